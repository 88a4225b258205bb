"""The command line: mistakes are told before anything is drawn, with the exit codes of docs/operating.md."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support import interruptible

from sparktop.cli import main
from sparktop.cli.session import seen_by
from sparktop.model.fleet import FleetState


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which Spark?"),
        (["status"], "which Spark?"),
        (["--interval", "0.01", "local"], "out of range"),
        (["a b"], "space"),
        (["spark1", "spark2:99999"], "port"),
        (["demo", "--scenario", "spin-deadlok"], "spin-deadlock"),
        (["demo"], "its output is no terminal"),
        (["--config", "/nonexistent.toml", "local"], "no such file"),
    ],
)
def test_a_mistake_is_two_and_says_what_to_do(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out = capsys.readouterr()
    assert said in out.err
    assert out.out == ""


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"healthy", "spin-deadlock", "memory-spike", "desktop-freeze", "leak-after-kill", "power-wedge"} <= set(
        names
    )
    assert "link-loss" in names


def test_hosts_come_from_the_configuration_and_output_to_a_pipe_is_one_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('hosts = ["local"]\n')
    assert main(["--config", str(file)]) in (0, 1), "this machine's kernel log may have something to say"
    assert "available " in capsys.readouterr().out


def test_a_snapshot_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "local"]) in (0, 1)
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["name"], node["link"]) == ("local", "live")
    assert node["memory"]["available_bytes"] > 0
    assert node["facts"]["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_an_unreachable_host_is_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--timeout", "5", "no-such-host.invalid"]) == 3
    assert "no-such-host.invalid" in capsys.readouterr().out


def test_a_stream_is_one_object_a_line_and_an_interrupt_is_130() -> None:
    words = [sys.executable, "-m", "sparktop", "status", "--watch", "--json", "--interval", "0.25", "local"]
    stream = subprocess.Popen(
        words, stdout=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}, preexec_fn=interruptible
    )
    assert stream.stdout is not None
    with stream.stdout:
        first, second = (json.loads(stream.stdout.readline()) for _ in range(2))
        assert second["wall_s"] > first["wall_s"]
        stream.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 10
        assert stream.wait(deadline - time.monotonic()) == 130


def test_a_reader_that_leaves_is_no_error() -> None:
    words = f"{sys.executable} -m sparktop status --watch --json --interval 0.25 local | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", words], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    assert json.loads(done.stdout)["version"] == 1


def test_operations_that_fail_keep_no_picture_from_the_screen() -> None:
    shown: list[FleetState] = []

    def fail(_: FleetState) -> None:
        raise KeyError("gone")

    seen_by(shown.append, fail)(FleetState())
    ((notice,),) = (state.notices for state in shown)
    assert "a fault in sparktop itself, in the operations: KeyError" in notice.text
