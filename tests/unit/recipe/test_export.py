"""A launch as a file to keep: read again it is the same, our linter and compose accept it, no secret is in it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe_support import SHIPPED, order, pair, seat, seats_for, shipped
from tests.support import unavailable
from tests.table import few, over

from sparktop.cmdline.shell import Variables, commands
from sparktop.cmdline.source import Document
from sparktop.diagnose.lint.catalogue import check
from sparktop.launchspec.read.configuration import read
from sparktop.launchspec.spec import LaunchSpec
from sparktop.masking import mask_text
from sparktop.model.event import Severity
from sparktop.model.recipe import Executor, Muted, Order, Recipe
from sparktop.operate.launch.gates.recipe import lint
from sparktop.recipe.container_spec import CannotRender, Rendered
from sparktop.recipe.export import KINDS, WAIT, exported, files, run_line
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render import rank_argv
from sparktop.recipe.render.host_config import body
from sparktop.recipe.render.render import render

SECRETS = {"HF_TOKEN": "hf_abcdefghijklmnop", "VLLM_API_KEY": "sk-qwertyuiop-123"}


def launch(name: str) -> tuple[Rendered, Recipe]:
    one = shipped(name)
    return render(resolve(Order(recipe=one, secrets=SECRETS)), seats_for(one), share=0.66), one


def test_what_a_file_can_t_do_is_said_in_it() -> None:
    made, one = launch("qwen3-0.6b")
    assert all("post_exec" not in text for kind in KINDS for text in files(made, kind).values())
    hooked = render(resolve(Order(recipe=replace(one, post_exec=("touch x",)), secrets=SECRETS)), seats_for(one))
    for kind in KINDS:
        assert all("# Not in here: the recipe's post_exec" in text for text in files(hooked, kind).values()), kind


def again(text: str) -> LaunchSpec:
    (*_, spec) = read(text, "file").specs
    return spec


def flags(spec: LaunchSpec) -> list[str]:
    out = []
    for item in spec.flags:
        out += [f"--{item.name}", *([item.value] if item.value is not None else []), *item.rest]
    return out


@over("name", SHIPPED)
def test_nothing_stands_against_a_shipped_recipe(name: str) -> None:
    made, one = launch(name)
    assert [found.title for found in lint(made, one).findings if found.severity is not Severity.INFO] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHIPPED)
def test_our_own_linter_accepts_every_file(name: str, kind: str) -> None:
    made, one = launch(name)
    for file, text in files(made, kind, muted=one.muted).items():
        reading = read(text, file)
        assert reading.specs, reading.note
        found = check(reading.specs, mask=mask_text)
        assert [each.title for each in found if each.severity is not Severity.INFO] == []
        assert not [secret for secret in SECRETS.values() if secret in text]


@over("name", SHIPPED)
def test_the_run_line_read_again_is_the_same_launch(name: str) -> None:
    made, _ = launch(name)
    for rank in made.ranks:
        spec = again(exported(made, "run", rank))
        environment = {item.name: item.value for item in spec.environment}
        assert environment == {
            key: f"${key}" if key in rank.container.secret_names else value
            for key, value in rank.container.environment.items()
            if key != "NCCL_IB_GID_INDEX"
        }
        if spec.engine is not None:
            bare = again(shlex.join(rank.argv))
            assert spec.model_name == bare.model_name != ""
            assert flags(spec) == flags(bare) != []


@over("kind", KINDS)
def test_a_pair_has_a_file_for_each_node_with_its_own_names(kind: str) -> None:
    made, one = launch("minimax-m2.7-nvfp4")
    found = files(made, kind, muted=one.muted)
    assert [name.partition(".")[0] for name in found] == ["spark1", "spark2"]
    first, second = found.values()
    assert "enp1s0f0np0" in first
    assert "enp1s0f0np0" not in second
    assert "rocep1s0f1,roceP2p1s0f1" in second
    assert "--headless" in second
    assert "--headless" not in first
    assert "NCCL_IB_GID_INDEX" not in first  # it differs after a reboot
    assert "sparktop.recipe" not in first  # what a file starts is the file's


def test_a_unit_waits_for_memory_and_gives_up_in_the_end() -> None:
    made, _ = launch("qwen3.6-35b-a3b-fp8")
    text = exported(made, "systemd", made.head)
    assert "RestartSec=60" in text
    assert "StartLimitIntervalSec=600" in text
    assert text.index("StartLimitBurst=3") < text.index("[Service]")
    assert text.count("EnvironmentFile=/etc/sparktop/vllm-qwen3.6-35b-a3b-fp8.env") == 1
    assert " wait-for-memory 0.66\n" in text
    assert not [word for word in ("--detach", "--restart", "--rm") if word in text]


@pytest.mark.parametrize(("kind", "manager"), [("systemd", "--system"), ("systemd-user", "--user")])
@pytest.mark.parametrize("name", SHIPPED)
def test_systemd_accepts_every_unit(name: str, kind: str, manager: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        unavailable("systemd-analyze isn't installed")
    made, _ = launch(name)
    for file, text in files(made, kind).items():
        path = tmp_path / file
        path.write_text(text.replace("/usr/bin/docker", "/bin/true"), encoding="utf-8")
        command = [program, manager, "verify", "--recursive-errors=no", str(path)]
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
        assert [line for line in found.stderr.splitlines() if file in line] == []


def test_the_units_wait_is_over_when_the_memory_is_there() -> None:
    for share, code in (("0.000001", 0), ("1.5", 124)):
        command = ["timeout", "0.5", "/bin/sh", "-c", WAIT, "wait-for-memory", share]
        assert subprocess.run(command, check=False, timeout=20).returncode == code


def composed(text: str, folder: Path, secrets: Mapping[str, str]) -> dict[str, object]:
    program = shutil.which("docker-compose")
    if program is None:
        unavailable("docker-compose isn't installed")
    (folder / "compose.yaml").write_text(text, encoding="utf-8")
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in secrets.items()), encoding="utf-8")
    found = subprocess.run(
        [program, "-f", "compose.yaml", "config"], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0, found.stderr
    (service,) = yaml.safe_load(found.stdout)["services"].values()
    return dict(service)


@pytest.mark.parametrize("name", few(SHIPPED, {"minimax-m2.7-nvfp4-ray"}.__contains__))
def test_docker_compose_accepts_every_file(name: str, tmp_path: Path) -> None:
    made, _ = launch(name)
    for rank in made.ranks:
        service = composed(exported(made, "compose", rank), tmp_path, SECRETS)
        whole = [*(service.get("entrypoint") or []), *service["command"]]  # type: ignore[misc]
        assert [str(word).replace("$$", "$") for word in whole] == list(rank.container.argv)
        environment = service["environment"]
        assert isinstance(environment, dict)
        for key, value in rank.container.environment.items():
            assert key == "NCCL_IB_GID_INDEX" or environment[key] == value
        assert service["restart"] == "no"


def test_a_compose_file_without_its_secrets_says_which(tmp_path: Path) -> None:
    made, _ = launch("qwen3-0.6b")
    (tmp_path / "compose.yaml").write_text(exported(made, "compose", made.head), encoding="utf-8")
    program = shutil.which("docker-compose") or unavailable("docker-compose isn't installed")
    found = subprocess.run(
        [program, "-f", "compose.yaml", "config"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode != 0
    assert any(name in found.stderr for name in SECRETS)  # Compose v2 names any of them first


def test_what_a_recipe_mutes_is_listed_and_left_alone_in_its_files() -> None:
    eager: dict[str, Any] = {"command": "vllm serve {model} --gpu-memory-utilization 0.95", "defaults": {}}
    one = order(**eager).recipe
    made = render(resolve(order(**eager)), [seat()])
    (finding,) = [each for each in lint(made, one).findings if each.severity is Severity.CRITICAL]
    muted = (Muted(rule=finding.rule, reason="measured here"),)
    quiet = lint(made, order(**eager, muted=muted).recipe)
    assert finding.rule not in [each.rule for each in quiet.findings]
    assert [(why.reason, each.rule) for why, each in quiet.muted] == [("measured here", finding.rule)]
    assert finding.rule not in [
        each.rule for each in check(read(exported(made, "run", made.head, muted=muted), "x").specs, mask=mask_text)
    ]


TEXTS = st.text(
    st.one_of(
        st.sampled_from(list("'\"$`\\;&|<>(){}[]#%!*?~ \n\t-=:,/.aZ0é\x1b\x00\u202e")), st.characters(codec="utf-8")
    ),
    max_size=24,
)
NAMES = st.sampled_from(["served_model_name", "chat_template", "port", "model", "container", "max_model_len", "name"])


FLAGS = ("--chat-template", "--max-model-len")
"""Of parameters that the command doesn't name."""


@given(name=NAMES, value=TEXTS, ray_=st.booleans())
def test_whatever_is_set_is_one_word_or_refused_and_in_no_script(name: str, value: str, ray_: bool) -> None:
    more: dict[str, Any] = {
        "command": "vllm serve {model} --port {port} --served-model-name {served_model_name} -tp 2",
        "defaults": {"port": 8000, "served_model_name": "org/x"},
        "max_nodes": 2,
        "executor": Executor.RAY if ray_ else Executor.NATIVE,
    }
    plain = render(resolve(order(**more)), pair())
    try:
        made = render(resolve(order({name: value}, **more)), pair())
    except CannotRender:
        return
    for before, rank in zip(plain.ranks, made.ranks, strict=True):
        command, usual = body(rank.container)["Cmd"], body(before.container)["Cmd"]
        if ray_:
            assert command[2] == (rank_argv.WORKER_SCRIPT if rank.index else rank_argv.HEAD_SCRIPT)
        changed = [word for word in command if word not in usual]
        folder = [word for word in changed if name == "model" and re.fullmatch(r"/models/[\w.-]+", word)]
        assert not [word for word in changed if word not in (value, *FLAGS, *folder)]
        assert len(command) - len(usual) in (0, 2)
    # Written as a shell's text and read again, it is the same words.
    text = run_line(made.head.container)
    assert [word.text for word in next(commands(Document("x", text).whole, Variables()))[1]][-3:] == list(
        made.head.argv[-3:]
    )


@given(value=TEXTS)
def test_whatever_a_recipe_says_in_its_variables_stays_a_value(value: str) -> None:
    try:
        made = render(resolve(order(environment={"WORDS": value.replace("$", "")})), [seat()])
    except CannotRender:
        return
    spec = again(exported(made, "run", made.head))
    item = spec.variable("WORDS")
    assert item is not None
    assert item.value == made.head.container.environment["WORDS"]
    service = yaml.safe_load(exported(made, "compose", made.head))["services"]["vllm-small"]
    assert service["environment"]["WORDS"] == made.head.container.environment["WORDS"]
