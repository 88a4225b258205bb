"""What is launched and what is exported are the same container: made of both by a real Docker Engine, and compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dockerd import IMAGE, Dockerd
from tests.recipe_support import SHIPPED, seats_for, shipped
from tests.support import unavailable

from sparktop.model.recipe import Order, Recipe
from sparktop.recipe.container_spec import ContainerSpec, Rendered, RenderedRank
from sparktop.recipe.export import exported
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.host_config import body
from sparktop.recipe.render.render import render

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECRETS = {"HF_TOKEN": "hf_abcdefghijklmnop", "VLLM_API_KEY": "sk-qwertyuiop-123"}
HOSTILE = ("a'b", 'c"d', "$(touch /tmp/never)", "`id`", "e\nf", "; exit 9", "", "-x", "{{y}}", "${HOME}", "é\\n")
CONFIG = ("Cmd", "Entrypoint", "Env", "User", "WorkingDir", "Image")
HOST = (
    "NetworkMode", "IpcMode", "ShmSize", "Ulimits", "Devices", "CapAdd", "SecurityOpt", "Privileged", "Memory",
    "RestartPolicy", "AutoRemove", "Binds", "PortBindings",
)  # fmt: skip


@pytest.fixture
def made(dockerd: Dockerd) -> Iterator[Dockerd]:
    yield dockerd
    dockerd.remove_all()


def created(dockerd: Dockerd, container: ContainerSpec) -> str:
    """By the API, as a launch does it."""
    url = dockerd.api._url("/containers/create")
    answer = dockerd.api._post_json(url, data=body(container), params={"name": container.name})
    assert answer.status_code == 201, answer.text
    dockerd.made.append(str(answer.json()["Id"]))
    return dockerd.made[-1]


def as_made(dockerd: Dockerd, which: str) -> dict[str, Any]:
    """What Docker says of it, in a comparable form."""
    raw = dockerd.api.inspect_container(which)
    config = {key: raw["Config"].get(key) or None for key in CONFIG}
    config["Env"] = sorted(config["Env"] or ())
    host = {key: raw["HostConfig"].get(key) or None for key in HOST}
    host["Ulimits"] = sorted(json.dumps(one, sort_keys=True) for one in host["Ulimits"] or ())
    host["CapAdd"] = [one.removeprefix("CAP_") for one in host["CapAdd"] or ()]
    host["Binds"] = sorted(host["Binds"] or ())  # Docker tells several in any order
    requests = raw["HostConfig"].get("DeviceRequests") or ()
    host["gpus"] = [(one.get("Count"), one.get("DeviceIDs") or None, one.get("Capabilities")) for one in requests]
    return {**config, **host}


def order(recipe: Recipe) -> Order:
    """A launch of it by its image's tag: an image that is only here has no registry's digest."""
    name, at, _ = recipe.container.partition("@")
    tagged = name if ":" in name else f"{name}:latest"
    return Order(recipe=recipe, values={"container": tagged} if at else {}, secrets=SECRETS)


def on_image_of_tests(dockerd: Dockerd, made: Rendered) -> None:
    repository, _, tag = made.image.rpartition(":")
    dockerd.api.tag(IMAGE, repository, tag)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_run_line_makes_what_the_launch_makes(made: Dockerd, name: str) -> None:
    one = shipped(name)
    launch = render(resolve(order(one)), seats_for(one))
    on_image_of_tests(made, launch)
    for rank in launch.ranks:
        here = as_made(made, created(made, rank.container))
        made.remove_all()
        line = exported(launch, "run", rank).replace("docker run --detach", 'docker -H "$SOCKET" create')
        environment = {**os.environ, **SECRETS, "SOCKET": f"unix://{made.socket_path}"}
        found = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert found.returncode == 0, found.stderr
        made.made.append(found.stdout.strip())
        there = as_made(made, found.stdout.strip())
        here["Env"] = [each for each in here["Env"] if not each.startswith("NCCL_IB_GID_INDEX=")]
        assert there == here
        made.remove_all()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_compose_file_makes_what_the_launch_makes(made: Dockerd, name: str, tmp_path: Path) -> None:
    program = shutil.which("docker-compose") or unavailable("docker-compose isn't installed")
    one = shipped(name)
    launch = render(resolve(order(one)), seats_for(one))
    on_image_of_tests(made, launch)
    (tmp_path / ".env").write_text("".join(f"{key}={value}\n" for key, value in SECRETS.items()), encoding="utf-8")
    for rank in launch.ranks:
        here = as_made(made, created(made, rank.container))
        made.remove_all()
        (tmp_path / "compose.yaml").write_text(exported(launch, "compose", rank), encoding="utf-8")
        command = [program, "-H", f"unix://{made.socket_path}", "-f", "compose.yaml", "up", "--no-start"]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert found.returncode == 0, found.stderr
        made.made.append(made.api.inspect_container(rank.container.name)["Id"])
        there = as_made(made, rank.container.name)
        here["Env"] = [each for each in here["Env"] if not each.startswith("NCCL_IB_GID_INDEX=")]
        for one_way in (here, there):  # the same words, parted at another place
            entrypoint = [word for word in one_way.pop("Entrypoint") or () if word]
            one_way["Cmd"] = [*entrypoint, *one_way["Cmd"]]
            one_way["Binds"] = sorted(bind.removesuffix(":rw") for bind in one_way["Binds"] or ())
            one_way["Privileged"] = bool(one_way["Privileged"])
        assert there == here
        made.remove_all()


def test_hostile_words_reach_the_program_as_they_are(made: Dockerd) -> None:
    container = ContainerSpec(
        name="sparktop-words",
        image=IMAGE,
        argv=("printf", "<%s>", *HOSTILE, "$ODD"),
        entrypoint=(),
        environment={"ODD": "a\nb $(c) 'd'"},
        host={"NetworkMode": "none", "RestartPolicy": {"Name": "no"}},
    )
    which = created(made, container)
    made.api.start(which)
    assert made.wait(which) == 0
    said = made.api.logs(which).decode()
    assert said == "".join(f"<{word}>" for word in (*HOSTILE, "$ODD"))


def test_an_images_own_entrypoint_is_left_out(made: Dockerd, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f'FROM {IMAGE}\nENTRYPOINT ["/bin/false"]\n', encoding="utf-8")
    text = [*made.api.build(path=str(tmp_path), tag="sparktop-entry:test", rm=True)]
    assert any(b"Successfully" in line for line in text), text
    for entrypoint, code in (((), 0), (None, 1)):
        container = ContainerSpec(
            name="sparktop-entry", image="sparktop-entry:test", argv=("true",), entrypoint=entrypoint,
            host={"NetworkMode": "none"},
        )  # fmt: skip
        which = created(made, container)
        made.api.start(which)
        assert made.wait(which) == code
        made.remove_all()


def test_a_rank_is_a_container_that_docker_makes_without_a_word(made: Dockerd) -> None:
    one = shipped("minimax-m2.7-nvfp4")
    launch = render(resolve(Order(recipe=one)), seats_for(one))
    on_image_of_tests(made, launch)
    rank: RenderedRank = launch.ranks[1]
    answer = made.api._post_json(
        made.api._url("/containers/create"), data=body(rank.container), params={"name": rank.container.name}
    )
    made.made.append(str(answer.json()["Id"]))
    assert answer.json()["Warnings"] in ([], None)
