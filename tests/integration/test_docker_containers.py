"""Containers of a real Docker Engine: listed, inspected, and what is said where it can't be used."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.dockerd import Dockerd

from sparktop.model.engine import Container, Containers
from sparktop.transport.docker import engine as containers
from sparktop.transport.docker.engine import DockerEngine
from sparktop.transport.local import LocalTransport

pytestmark = pytest.mark.integration

CANARY = "c4n4ry-Value-with-odd-chars"


@pytest.fixture
async def engine(dockerd: Dockerd) -> AsyncIterator[DockerEngine]:
    transport = LocalTransport()
    engine = DockerEngine(transport, socket_path=dockerd.socket_path)
    yield engine
    await engine.close()
    await transport.close()
    dockerd.remove_all()


def by_name(answer: Containers, name: str) -> Container:
    assert answer.available, answer.detail
    return next(container for container in answer.containers if container.name == name)


async def test_what_runs_and_what_ended(dockerd: Dockerd, engine: DockerEngine) -> None:
    running = dockerd.run_container("sleeper", ["sleep", "600"], env={"HF_TOKEN": CANARY, "NCCL_IB_HCA": "rocep1s0f0"})
    ended = dockerd.run_container("killed", ["sleep", "600"])
    dockerd.api.kill(ended)
    assert dockerd.wait(ended) == 137
    answer = await engine.list()
    sleeper, killed = by_name(answer, "sleeper"), by_name(answer, "killed")
    assert sleeper.container_id == running
    assert (sleeper.status, sleeper.exit_code, sleeper.network_mode) == ("running", None, "host")
    assert sleeper.argv == ("sleep", "600")
    assert {"HF_TOKEN=<masked>", "NCCL_IB_HCA=rocep1s0f0"} <= set(sleeper.environment)
    assert (sleeper.is_privileged, sleeper.has_gpus, sleeper.memory_limit_bytes) == (False, False, None)
    assert sleeper.ipc_mode
    assert sleeper.image == "sparktop-busybox:test"
    assert sleeper.pid == dockerd.pid_of(running)
    assert sleeper.started_wall_s is not None
    assert sleeper.finished_wall_s is None
    assert (killed.status, killed.exit_code) == ("exited", 137)
    assert killed.finished_wall_s is not None
    assert killed.finished_wall_s >= killed.started_wall_s
    assert CANARY not in repr(answer)


async def test_a_change_is_seen_and_a_removed_container_goes(dockerd: Dockerd, engine: DockerEngine) -> None:
    container_id = dockerd.run_container("changes", ["sleep", "600"])
    assert by_name(await engine.list(), "changes").status == "running"
    dockerd.api.pause(container_id)
    assert by_name(await engine.list(), "changes").status == "paused"
    dockerd.api.unpause(container_id)
    dockerd.api.kill(container_id)
    dockerd.wait(container_id)
    assert by_name(await engine.list(), "changes").exit_code == 137
    dockerd.remove_all()
    assert (await engine.list()).containers == ()


async def test_what_docker_update_changed_is_seen_though_the_list_looks_the_same(
    dockerd: Dockerd, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    container_id = dockerd.run_container("updated", ["sleep", "600"])
    assert by_name(await engine.list(), "updated").restart_policy in ("", "no")
    dockerd.api.update_container(container_id, restart_policy={"Name": "unless-stopped"})
    monkeypatch.setattr(containers, "INSPECTED_AGE_S", 0.0)
    assert by_name(await engine.list(), "updated").restart_policy == "unless-stopped"
    dockerd.remove_all()


async def test_hostile_words_are_plain_text_and_secrets_are_masked(dockerd: Dockerd, engine: DockerEngine) -> None:
    dockerd.run_container(
        "hostile",
        ["sleep", "600", "[/red]", "\x1b]52;c;ZXZpbA==\x07", "--api-key", CANARY, f"--hf-token={CANARY}"],
        labels={"evil": "\x1b[2J[/x]", "token": CANARY},
        env={"ALSO_SAID": CANARY, "MY_PASSWORD": CANARY},
    )
    dockerd.run_container("shelled", ["sh", "-c", f"sleep 600; vllm serve m --api-key {CANARY}"])
    answer = await engine.list()
    argv = by_name(answer, "hostile").argv
    assert argv[2] == "[/red]"
    assert not any(ord(char) < 32 for part in argv for char in part)
    assert CANARY not in repr(answer)
    assert "vllm serve m" in by_name(answer, "shelled").argv[2]


async def test_no_socket_is_said(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none.sock")
    engine = DockerEngine(LocalTransport(), socket_path=nowhere)
    answer = await engine.list()
    assert not answer.available
    assert answer.detail == f"no Docker Engine here (no {tmp_path}/none.sock)"
    await engine.close()


async def test_a_socket_that_nobody_serves_is_said(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    engine = DockerEngine(LocalTransport(), socket_path=str(path))
    answer = await engine.list()
    assert not answer.available
    assert "does not answer" in answer.detail
    assert "systemctl status docker" in answer.detail
    await engine.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_no_permission_says_what_would_permit_it(dockerd: Dockerd) -> None:
    """The node's own answer to "why" decides: over SSH a refused forward only closes."""

    class AsNobody(LocalTransport):
        async def run(self, argv):  # type: ignore[no-untyped-def]
            return await super().run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv])

        def unix_socket(self, remote_path):  # type: ignore[no-untyped-def]
            return super().unix_socket("/nonexistent/as-if-refused")

    os.chmod(dockerd.root, 0o755)
    engine = DockerEngine(AsNobody(), socket_path=dockerd.socket_path)
    answer = await engine.list()
    assert not answer.available
    assert "sudo usermod -aG docker $USER" in answer.detail
    assert "log in again" in answer.detail
    await engine.close()


async def test_an_engine_that_hangs_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktop.transport.docker.engine.TIMEOUT_S", 0.3)
    path = tmp_path / "hangs.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen(8)
        engine = DockerEngine(LocalTransport(), socket_path=str(path))
        first = await engine.list()
        assert not first.available
        assert "not answered" in first.detail
        await engine.close()
    # a thread that still waits is a daemon and doesn't keep the process
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("sparktop"))
