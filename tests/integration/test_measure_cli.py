"""The cable measured as it is typed: plan, run, the page that remembers it, Ctrl-C and a killed console.

Two machines with networks, sshd, probe and runner of their own; NVML and perftest are played.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cabled import Cable, cabled
from tests.integration.terminal import Terminal, sparktop, terminal
from tests.nvml_stand_ins import GB10_NVML
from tests.support import PATIENCE_S, poll

pytestmark = [pytest.mark.integration, pytest.mark.slow]
BOTH = ("spark1", "spark2")


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cable]:
    with cabled(tmp_path_factory.mktemp("cable") / "c") as cable:
        yield cable


@pytest.fixture
def cable(wired: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cable]:
    """With aliases in ~/.ssh/config, and idle GPUs."""
    idle = GB10_NVML.format(hold="").replace("Row(gpu=96, memory=0)", "Row(gpu=0, memory=0)")
    at = idle.index("def nvmlDeviceGetComputeRunningProcesses")
    (tmp_path / "pynvml.py").write_text(
        f"{idle[:at]}def nvmlDeviceGetComputeRunningProcesses(h): return []\n{idle[idle.index(chr(10), at) + 1 :]}"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, machine in wired.machines.items():
        machine.sshd.trust()
        machine.sshd.alias(name)
    wired.mode = ""
    yield wired
    poll(lambda: not wired.alive, what="every program of the measurement ended")


def bandwidth() -> dict[str, str]:
    """State by check, as a later look has them."""
    out = sparktop("bringup", *BOTH, "--only", "bandwidth", "--json")
    assert out.stdout, out.stderr
    return {row["check"]: row["state"] for row in json.loads(out.stdout)["checks"]}


def test_it_is_planned_run_and_remembered(cable: Cable) -> None:
    assert set(bandwidth().values()) == {"unknown"}
    plan = sparktop("act", "measure-link", *BOTH, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "ib_write_bw -d rocep1s0f0 -x 3 -p 18515" in plan.stdout
    assert cable.started == []
    out = sparktop("act", "measure-link", *BOTH, "--yes")
    assert out.returncode == 0, out.stdout + out.stderr
    assert "111.9 Gb/s (healthy 109 to 112)" in out.stdout + out.stderr
    assert bandwidth() == {"bandwidth.half": "passed", "bandwidth.both": "passed", "bandwidth.latency": "passed"}
    page = sparktop("bringup", *BOTH, "--only", "bandwidth")
    assert "rocep1s0f0, spark1 to spark2  █" in page.stdout


def loading(cable: Cable, at: Terminal) -> None:
    """A server and its client run."""
    deadline = time.monotonic() + PATIENCE_S
    while len(cable.alive) < 2:
        assert time.monotonic() < deadline, at.text
        at.looks()


def test_ctrl_c_in_the_middle_leaves_no_process(cable: Cable) -> None:
    cable.mode = "hang"
    with terminal("act", "measure-link", *BOTH, "--yes") as at:
        loading(cable, at)
        at.types("\x03")
        poll(lambda: not cable.alive or not at.looks(), what="server and client ended")
        at.ends()
    poll(lambda: not cable.alive, what="server and client ended")


def test_a_console_that_is_killed_leaves_no_process(cable: Cable) -> None:
    cable.mode = "hang"
    with terminal("act", "measure-link", *BOTH, "--yes") as at:
        loading(cable, at)
        os.kill(at.pid, signal.SIGKILL)
        poll(lambda: not cable.alive, what="server and client ended")
