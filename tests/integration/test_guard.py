"""The guard end to end: a real sshd, a real Docker Engine, and a container that takes real memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.guard_support import elsewhere
from tests.integration import dockerd as docker_module
from tests.integration.desk import until, watching
from tests.integration.dockerd import Dockerd
from tests.integration.sshd import Sshd, sshd
from tests.support import poll

from sparktop.model.fleet import LinkState, NodeView
from sparktop.model.guard import GuardPhase
from sparktop.observe.monitor import Monitor
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.run import guard_orders
from sparktop.probe import bundle
from sparktop.probe.remote.guard import processes

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sshd"]

MIB = 1024**2
MARGIN = 4096 * MIB
"""How far the floor is below what is available: other tests take memory on this machine too."""
FAR_BELOW = 1024 * MIB
HOLD_7_GIB = """BEGIN { s = sprintf("%1048576s", ""); while (n++ < 8) s = s s
  for (i = 0; i < 28; i++) a[i] = s; system("sleep 600") }"""
EATER = ["sh", "-c", 'until [ -e /tmp/go ]; do sleep 0.1; done; exec awk "$0"', HOLD_7_GIB]
"""Waits to be told, then takes 7 GiB and keeps them: others may free some."""


@pytest.fixture(autouse=True)
def _emptied(dockerd: Dockerd) -> Iterator[None]:
    yield
    dockerd.remove_all()


@pytest.fixture
def tmpfs() -> Iterator[Path]:
    """Stands for /run/lock, so that no other guard of this machine's is taken over; without it a guard is off."""
    folder = Path(tempfile.mkdtemp(prefix="spk-guard-"))
    yield folder
    shutil.rmtree(folder)


def moved(monkeypatch: pytest.MonkeyPatch, engine: Dockerd, tmpfs: Path) -> None:
    """Every probe from now on uses this Docker Engine and this folder."""
    launch = bundle.launch
    places = {'"/var/run/docker.sock"': f'"{engine.socket_path}"', '("/run/lock", "/tmp")': f'("{tmpfs}",)'}
    monkeypatch.setattr(bundle, "launch", lambda **more: elsewhere(launch(**more), places))


def is_in(phase: GuardPhase) -> Callable[[NodeView], bool]:
    return lambda node: node.guard is not None and node.guard.phase is phase


async def order_for(monitor: Monitor, container_id: str, name: str, *, is_reached: bool = True) -> GuardOrder:
    """A floor that only the eater's memory reaches; or one that nobody does."""
    node = await until(monitor, lambda node: node.link.state is LinkState.LIVE and node.sample is not None)
    assert node.sample is not None
    available = node.sample.memory.available_bytes
    floor = available - min(MARGIN, available // 4)
    assert floor > 4096 * MIB, "this machine has too little memory for the test"
    return GuardOrder(container_id=container_id, container_name=name, floor_bytes=floor if is_reached else FAR_BELOW)


def status(engine: Dockerd, container_id: str) -> str:
    return str(engine.api.inspect_container(container_id)["State"]["Status"])


@pytest.mark.fast
async def test_the_container_is_ended_while_the_network_is_gone(
    sshd: Sshd, dockerd: Dockerd, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved(monkeypatch, dockerd, tmpfs)
    eater = dockerd.run_container("guard-eater", EATER)
    other = dockerd.run_container("guard-bystander", ["sleep", "600"])
    async with watching(sshd.connector()) as monitor:
        order = await order_for(monitor, eater, "guard-eater")
        assert monitor.tell("spark1", order.words())
        armed = await until(monitor, is_in(GuardPhase.ARMED))
        assert armed.guard is not None
        assert (armed.guard.container_id, armed.guard.floor_bytes) == (eater, order.floor_bytes)
        stopped = sshd.kill_sessions(signal.SIGSTOP)
        try:
            dockerd.execute(eater, ["touch", "/tmp/go"])
            poll(lambda: status(dockerd, eater) == "exited", what="the container's end")
            silent = monitor.state.nodes[0]
            assert is_in(GuardPhase.ARMED)(silent)  # nothing of it has come over
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        told = await until(monitor, lambda node: is_in(GuardPhase.FIRED)(node) and node.guard.answered_s is not None)  # type: ignore[union-attr]
        assert told.guard is not None
        assert told.guard.available_bytes is not None
        assert told.guard.available_bytes < order.floor_bytes
        assert told.guard.answered_s is not None
        assert dockerd.api.inspect_container(eater)["State"]["ExitCode"] == 137
        assert status(dockerd, other) == "running"
        await until(monitor, lambda _: any(one.rule == "guard.fired" for one in monitor.state.findings))


@pytest.mark.fast
async def test_an_engine_in_no_container_is_ended_after_the_console_has_gone(
    sshd: Sshd, dockerd: Dockerd, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its pid and start, and its workers with it; Docker isn't asked."""
    moved(monkeypatch, dockerd, tmpfs)
    go = tmpfs / "go"
    taking = "b'x' * (7 << 30) and __import__('time').sleep(600)"
    waiting = f'until [ -e {go} ]; do sleep 0.1; done; "$0" -c "$1" & wait'
    eater = subprocess.Popen(["sh", "-c", waiting, sys.executable, taking])  # noqa: ASYNC220
    other = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    try:
        target = f"pid:{eater.pid}:{processes.started(eater.pid)}"
        async with watching(sshd.connector()) as monitor:
            order = replace(await order_for(monitor, target, "llama.cpp:8080"), stay_s=1200.0)
            assert monitor.tell("spark1", order.words())
            await until(monitor, is_in(GuardPhase.ARMED))
        poll(lambda: not sshd.session_pids(), what="the end of the SSH session")
        go.touch()
        poll(lambda: eater.poll() is not None, what="the eater's end")
        assert eater.returncode == -signal.SIGTERM
        async with watching(sshd.connector()) as monitor:
            told = await until(
                monitor, lambda node: is_in(GuardPhase.FIRED)(node) and node.guard.answered_s is not None
            )  # type: ignore[union-attr]
            assert told.guard is not None
            assert (told.guard.container_id, told.guard.container_name) == (target, "llama.cpp:8080")
        assert other.poll() is None
    finally:
        for process in (eater, other):
            process.kill()
            process.wait()


async def test_told_to_stay_it_acts_without_a_console_and_the_next_one_hears(
    sshd: Sshd, dockerd: Dockerd, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved(monkeypatch, dockerd, tmpfs)
    eater = dockerd.run_container("guard-stays", EATER)
    async with watching(sshd.connector()) as monitor:
        order = replace(await order_for(monitor, eater, "guard-stays"), stay_s=1200.0)
        assert monitor.tell("spark1", order.words())
        await until(monitor, is_in(GuardPhase.ARMED))
    poll(lambda: not sshd.session_pids(), what="the end of the SSH session: the guard holds nothing of it")
    claim = tmpfs / f"sparktop-{os.getuid()}" / "guard"
    assert claim.exists()
    dockerd.execute(eater, ["touch", "/tmp/go"])
    poll(lambda: status(dockerd, eater) == "exited", what="the container's end")
    poll(lambda: not claim.exists(), what="the guard's end")
    async with watching(sshd.connector()) as monitor:
        told = await until(monitor, is_in(GuardPhase.FIRED))
        assert told.guard is not None
        assert told.guard.container_name == "guard-stays"
        assert told.guard.answered_s is not None


async def test_without_a_stay_it_goes_with_the_console(
    sshd: Sshd, dockerd: Dockerd, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved(monkeypatch, dockerd, tmpfs)
    eater = dockerd.run_container("guard-goes", ["sleep", "600"])
    async with watching(sshd.connector()) as monitor:
        assert monitor.tell("spark1", (await order_for(monitor, eater, "guard-goes")).words())
        await until(monitor, is_in(GuardPhase.ARMED))
    poll(lambda: not (tmpfs / f"sparktop-{os.getuid()}" / "guard").exists(), what="the guard's end")
    poll(lambda: not sshd.session_pids())
    assert status(dockerd, eater) == "running"


async def test_a_probe_that_dies_takes_no_guard_with_it(
    sshd: Sshd, dockerd: Dockerd, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands between the executor and the probes tells the new one."""
    moved(monkeypatch, dockerd, tmpfs)
    monkeypatch.setattr(guard_orders, "AGAIN_S", 0.2)
    kept = dockerd.run_container("guard-kept", ["sleep", "600"])
    async with watching(sshd.connector()) as monitor:
        keeper = guard_orders.StandingOrders(monitor.tell, monotonic=time.monotonic)
        assert keeper.tell("spark1", (await order_for(monitor, kept, "guard-kept")).words())
        first = await until(monitor, is_in(GuardPhase.ARMED))
        claim = tmpfs / f"sparktop-{os.getuid()}" / "guard"
        pid = json.loads(claim.read_text())["pid"]
        os.kill(pid, signal.SIGKILL)

        def is_armed_anew(node: NodeView) -> bool:
            keeper.saw(monitor.state)
            return is_in(GuardPhase.ARMED)(node) and node.guard is not first.guard and claim.exists()

        await until(monitor, is_armed_anew)
        assert json.loads(claim.read_text())["pid"] != pid


async def test_a_restart_policy_does_not_bring_it_back(
    sshd: Sshd, dockerd: Dockerd, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the planner says of policies: a kill over the API is taken for the operator's will."""
    moved(monkeypatch, dockerd, tmpfs)
    eater = dockerd.run_container("guard-always", EATER)
    dockerd.api.update_container(eater, restart_policy={"Name": "always"})
    async with watching(sshd.connector()) as monitor:
        assert monitor.tell("spark1", (await order_for(monitor, eater, "guard-always")).words())
        await until(monitor, is_in(GuardPhase.ARMED))
        dockerd.execute(eater, ["touch", "/tmp/go"])
        await until(monitor, is_in(GuardPhase.FIRED))
        poll(lambda: status(dockerd, eater) == "exited")
        came = monitor.state.nodes[0].sample
        assert came is not None
        await until(monitor, lambda node: node.sample is not None and node.sample.boot_s > came.boot_s + 3)
        assert status(dockerd, eater) == "exited"
        assert dockerd.api.inspect_container(eater)["RestartCount"] == 0


async def test_a_daemon_that_restarts_is_found_again(
    sshd: Sshd, dockerd: Dockerd, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its own: the shared one belongs to other tests too."""
    with docker_module.own_dockerd() as engine:
        moved(monkeypatch, engine, tmpfs)
        kept = engine.run_container("guard-restart", ["sleep", "600"])
        async with watching(sshd.connector()) as monitor:
            assert monitor.tell("spark1", (await order_for(monitor, kept, "guard-restart")).words())
            await until(monitor, is_in(GuardPhase.ARMED))
            await asyncio.to_thread(docker_module._stop, engine.process)
            failed = await until(monitor, is_in(GuardPhase.FAILED))
            assert failed.guard is not None
            assert "Docker Engine" in failed.guard.detail
            engine.process = await asyncio.to_thread(docker_module._spawn, engine.root)
            again = await until(monitor, is_in(GuardPhase.ARMED))
            assert again.guard is not None
            assert "not running" in again.guard.detail  # it went with its daemon
