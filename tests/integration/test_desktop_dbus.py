"""A frozen desktop on real parts: a real dbus-daemon, a shell that is stopped and goes on, and the real probe."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import bus_support
from tests.nvml_stand_ins import BROKEN_NVML
from tests.probe_support import RunningProbe, processes_of
from tests.support import poll, unavailable

from sparktop.model.telemetry import DesktopReading
from sparktop.probe import bundle

pytestmark = pytest.mark.integration


@pytest.fixture
def session_bus(tmp_path: Path) -> Iterator[str]:
    """A session bus of our own; its address."""
    if shutil.which("dbus-daemon") is None:
        unavailable("dbus-daemon is not installed (apt-get install dbus)")
    address = f"unix:path={tmp_path}/bus"
    daemon = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address={address}", "--print-address=1"],
        stdout=subprocess.PIPE,
    )
    assert daemon.stdout is not None
    assert daemon.stdout.readline().startswith(b"unix:path=")
    yield address
    daemon.terminate()
    daemon.wait(10)
    daemon.stdout.close()


@pytest.fixture
def shell(session_bus: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process called gnome-shell that owns org.gnome.Shell and answers."""
    started = subprocess.Popen(
        [sys.executable, bus_support.__file__, "org.gnome.Shell", "gnome-shell"],
        env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": session_bus},
        stdout=subprocess.PIPE,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"owned\n"
    yield started
    started.send_signal(signal.SIGCONT)
    started.kill()
    started.wait(10)
    started.stdout.close()


@pytest.fixture
def probe() -> Iterator[RunningProbe]:
    launch = bundle.launch(interval_s=0.5, lease_s=30.0, nvml_source=BROKEN_NVML.format(value=12))
    running = RunningProbe(launch)
    yield running
    running.close()
    poll(lambda: not processes_of(launch), what="the end of every process of the probe")


@pytest.mark.slow
def test_a_stopped_shell_is_silent_and_answers_again(shell: subprocess.Popen[bytes], probe: RunningProbe) -> None:
    well = probe.first(DesktopReading, lambda reading: reading.answers is not None)
    if well.pid != shell.pid:
        unavailable(f"another {well.compositor} runs here")
    assert (well.compositor, well.answers, well.user_id) == ("gnome-shell", True, os.getuid())

    os.kill(shell.pid, signal.SIGSTOP)
    silent = probe.first(DesktopReading, lambda reading: reading.answers is False)
    assert silent.silent_since_boot_s is not None
    assert 2.5 < silent.boot_s - silent.silent_since_boot_s < 10
    assert silent.state == "T"
    twice = probe.first(DesktopReading, lambda reading: reading.answers is False and reading.boot_s > silent.boot_s)
    assert twice.silent_since_boot_s == silent.silent_since_boot_s
    before = len(probe.of(DesktopReading))

    os.kill(shell.pid, signal.SIGCONT)
    again = probe.until(lambda: [reading for reading in probe.of(DesktopReading)[before:] if reading.answers])
    assert again[0].silent_since_boot_s is None
    assert probe.process.poll() is None


def test_the_question_is_one_that_a_real_bus_passes_on(shell: subprocess.Popen[bytes], probe: RunningProbe) -> None:
    """The shell goes, the bus stays: that is no freeze."""
    probe.first(DesktopReading, lambda reading: reading.pid == shell.pid and reading.answers)
    shell.kill()
    gone = probe.first(DesktopReading, lambda reading: reading.pid != shell.pid)
    assert gone.answers is not False
