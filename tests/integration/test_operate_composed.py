"""Relaunch of a compose service, end to end on a real sshd, Docker Engine and compose program."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import desk, hurried, relaunched, told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import IMAGE, EngineLike, Engines
from tests.integration.sshd import Sshd
from tests.integration.test_operate_relaunch import assert_nowhere
from tests.support import free_port, unavailable

from sparktop.model.change import Change
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import RunState

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CANARY = "hf_canary6f1e0c55d2abcdefghijkl"
SECOND = "canary-77d0aa41c9"
COMPOSE = """\
x-common: &common
  network_mode: host
services:
  engine:
    <<: *common
    image: ${ENGINE_IMAGE:-nobody/nothing}
    command: ["vllm", "serve", "tiny", "--port", "${PORT}"]
    environment:
      HF_TOKEN: ${HF_TOKEN}
      PASSED_ON:
      ENGINE_LOAD_S: "0.5"
      DOLLAR: "a$$b"
    restart: unless-stopped
  other:
    image: ${OTHER_IMAGE}
    environment: [HF_TOKEN]
"""


def program() -> list[str]:
    """This machine's compose."""
    there = [argv for argv in (["docker", "compose"], ["docker-compose"]) if shutil.which(argv[0])]
    works = [
        argv for argv in there if subprocess.run([*argv, "version"], capture_output=True, check=False).returncode == 0
    ]
    if not works:
        unavailable("no compose here: apt-get install docker-compose")
    return works[0]


@dataclass
class Composition:
    """One project, brought up by a shell that gave it secrets."""

    folder: Path
    docker: Dockerd
    port: int
    name: str

    def compose(self, *words: str, **given: str) -> None:
        environment = {**os.environ, "DOCKER_HOST": f"unix://{self.docker.socket_path}", **given}
        subprocess.run(
            [*program(), *words], cwd=self.folder, env=environment, check=True, capture_output=True, timeout=120
        )

    def up(self) -> EngineLike:
        self.compose("up", "-d", "engine", HF_TOKEN=CANARY, PORT=str(self.port), PASSED_ON="from the shell",
                     ENGINE_IMAGE=IMAGE, OTHER_IMAGE="unused:1")  # fmt: skip
        made = self.inspect()
        engine = EngineLike(self.docker, made["Id"], made["Name"].lstrip("/"), self.port)
        engine.wait_ready()
        return engine

    def inspect(self) -> dict[str, Any]:
        """The one container of the service."""
        label = f"com.docker.compose.project={self.name}"
        (row,) = self.docker.api.containers(all=True, filters={"label": [label]})
        found: dict[str, Any] = self.docker.api.inspect_container(row["Id"])
        return found

    @property
    def override(self) -> Path:
        return self.folder / "compose.sparktop.yaml"


def variables(inspect: dict[str, Any]) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in inspect["Config"]["Env"])


@pytest.fixture
def composition(dockerd: Dockerd, engines: Engines, tmp_path: Path) -> Iterator[Composition]:
    program()
    made = Composition(tmp_path / "llm$(touch pwned) ' stack", dockerd, free_port(), "llmtouchpwnedstack")
    made.folder.mkdir()
    (made.folder / "docker-compose.yml").write_text(COMPOSE)
    (made.folder / ".env").write_text("COMPOSE_PROJECT_NAME=llmtouchpwnedstack\n")
    engines.names.append(made.name)
    try:
        yield made
    finally:
        dockerd.clear(f"com.docker.compose.project={made.name}")
        for network in dockerd.api.networks(filters={"label": [f"com.docker.compose.project={made.name}"]}):
            dockerd.api.remove_network(network["Id"])  # its bridge would outlive that Docker Engine


@pytest.fixture
def node(dockerd: Dockerd, tmp_path: Path) -> Iterator[Sshd]:
    """A machine whose programs find the tests' Docker Engine in its usual place, as far as they know."""
    with Sshd.start(tmp_path / "sshd", options={"SetEnv": f"DOCKER_HOST=unix://{dockerd.socket_path}"}) as server:
        yield server


async def test_it_serves_with_the_change_and_what_the_shell_had_given(
    node: Sshd, dockerd: Dockerd, composition: Composition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    engine = composition.up()
    old = composition.inspect()
    seen: set[str] = set()
    change = Change(
        flags={"--served-model-name": "chang$ed"}, environment={"SECOND_TOKEN": SECOND, "DOLLAR": "$HOME `id`\n'\""}
    )
    async with desk(node, dockerd, tmp_path, monkeypatch) as at:
        await at.serves(engine.name)
        plan = await at.plan("relaunch", engine.name, change=change, target_gib="2", grace_s="10")
        assert isinstance(plan, Plan), plan
        watching = asyncio.create_task(asyncio.to_thread(watch_command_lines, seen, stop := threading.Event()))
        run = await at.finished(at.begin(plan))
        stop.set()
        await watching
        assert run.state is RunState.DONE, (run.message, told(run))
        new = composition.inspect()
        assert new["Id"] != old["Id"]
        assert new["Name"] == old["Name"]
        assert engine.answers()["data"][0]["id"] == "chang$ed"
        assert variables(new) == variables(old) | {"SECOND_TOKEN": SECOND, "DOLLAR": "$HOME `id`\n'\""}
        assert variables(new)["HF_TOKEN"] == CANARY
        assert new["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
        text = composition.override.read_text()
        assert "${SECOND_TOKEN:?" in text
        for canary in (CANARY, SECOND):
            assert not any(canary in line for line in seen), "in a command line"
            assert canary not in "".join(map(repr, at.shown))
            assert_nowhere(tmp_path, canary)
        assert any("up" in line and "compose" in line for line in seen), "the call was watched"
        assert not list(tmp_path.rglob("pwned"))

        # a second change is merged with the first; it loads and does not serve, and the way back leads to the first
        await at.serves(engine.name)
        change = Change(environment={"ENGINE_COMPLETION": "error"})
        run = await at.do("relaunch", engine.name, change=change, target_gib="2")
        assert run.state is RunState.FAILED, (run.message, told(run))
        newer = composition.inspect()
        assert variables(newer) == variables(new) | {"ENGINE_COMPLETION": "error"}
        assert newer["Config"]["Cmd"] == new["Config"]["Cmd"]
        back = at.operations.rollback(run)
        assert back is not None
        gone = await at.finished(at.begin(back))
        assert gone.state is RunState.DONE, (gone.message, told(gone))
        assert variables(composition.inspect()) == variables(new)
        assert composition.override.read_text() == text


async def test_one_that_fails_to_load_brings_the_old_one_back(
    node: Sshd, dockerd: Dockerd, composition: Composition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    engine = composition.up()
    old = composition.inspect()
    async with desk(node, dockerd, tmp_path, monkeypatch) as at:
        run = await relaunched(at, engine.name, Change(environment={"ENGINE_FAILS": "load"}))
        assert run.state is RunState.ROLLED_BACK, (run.message, told(run))
        now = composition.inspect()
        assert variables(now) == variables(old)
        assert now["Config"]["Cmd"] == old["Config"]["Cmd"]
        assert now["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
        assert not composition.override.exists()
        assert engine.answers() is not None


async def test_what_docker_refuses_at_the_start_brings_the_old_one_back_at_once(
    node: Sshd, dockerd: Dockerd, composition: Composition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    engine = composition.up()
    old = composition.inspect()
    device = {"PathOnHost": "/dev/nothing-here", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}
    async with desk(node, dockerd, tmp_path, monkeypatch) as at:
        run = await relaunched(at, engine.name, Change(options={"Devices": [device]}))
        assert run.state is RunState.ROLLED_BACK, (run.message, told(run))
        now = composition.inspect()
        assert now["State"]["Running"]
        assert variables(now) == variables(old)
        assert now["HostConfig"]["Devices"] in (None, [])
        assert now["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
        assert not composition.override.exists()
        assert engine.answers() is not None


async def test_what_compose_refuses_stops_nothing(
    node: Sshd, dockerd: Dockerd, composition: Composition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    engine = composition.up()
    old = composition.inspect()
    async with desk(node, dockerd, tmp_path, monkeypatch) as at:
        await at.serves(engine.name)
        plan = await at.plan("relaunch", engine.name, change=Change(environment={"A": "1"}), target_gib="2")
        with (composition.folder / "docker-compose.yml").open("a") as file:
            file.write("  broken: [\n")
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.FAILED, (run.message, told(run))
        now = composition.inspect()
        assert (now["Id"], now["State"]["StartedAt"]) == (old["Id"], old["State"]["StartedAt"])
        assert not composition.override.exists()


def watch_command_lines(seen: set[str], stop: threading.Event) -> None:
    """Every command line on this machine until told to stop."""
    while not stop.wait(0.01):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                try:
                    seen.add(Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:
                    continue
