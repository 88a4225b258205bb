"""The command line: mistakes are told before anything is drawn, with the exit codes of docs/operating.md."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import interruptible

from sparktop.cli import main
from sparktop.cli.commands import BY_NAME, COMMANDS, split
from sparktop.cli.session import publish_after
from sparktop.cli.watch import _run_app
from sparktop.clock import SystemClock
from sparktop.config import Config
from sparktop.model.fleet import FleetState
from sparktop.ui.setup import Setup


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "sparktop demo"),
        (["status"], "sparktop status local"),
        (["check"], "sparktop check local"),
        (["exporter"], "sparktop exporter local"),
        (["exporter", "local", "--listen", "9948"], "--listen wants ADDRESS:PORT"),
        (["--interval", "0.01", "local"], "--interval takes a number from 0.25 to 60"),
        (["check", "spark1", "--timeout", "-1"], "--timeout takes a number from 0 to 86400, not '-1'"),
        (["status", "spark1", "--timeout", "nan"], "--timeout takes a number"),
        (["audit", "--count", "0"], "--count takes a whole number from 1 up"),
        (["forward", "spark1", "--port", "65536"], "--port takes a whole number from 0 to 65535"),
        (
            ["expose", "llm.example.org", "--upstream", "10.0.0.1:8000", "--listen", "0"],
            "--listen takes a whole number",
        ),
        (["act", "kill-process", "spark1", "--pid", "0"], "--pid takes a whole number from 1"),
        (["act", "safe-restart", "spark1", "--pid", "7", "--engine", "vllm"], "--engine and --pid can't be used"),
        (["unit", "vllm", "spark1", "--install", "--remove"], "can't be used together"),
        (["watch", "spark1", "--test", "--install"], "can't be used together"),
        (["launch", "x.yaml", "spark1", "--grace", "601"], "--grace takes a whole number from 1 to 600"),
        (["recipes", "adopt", "vllm", "spark1", "spark2"], "takes one HOST"),
        (["--file", "compose.yaml", "local"], "needs a terminal"),
        (["a b"], "space"),
        (["spark1", "spark2:99999"], "port"),
        (["demo", "spin-deadlok"], "spin-deadlock"),
        (["demo"], "needs a terminal"),
        (["--config", "/nonexistent.toml", "local"], "no such file"),
        (["--read-only", "demo"], "needs a terminal"),
        (["--theme", "sparktop-light", "demo"], "needs a terminal"),
        (["demmo"], "there is no command 'demmo'"),
        (["--read-only", "stattus", "spark1"], "sparktop status"),
    ],
)
def test_a_mistake_is_two_and_says_what_to_do(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out = capsys.readouterr()
    assert said in out.err
    assert out.out == ""


@pytest.mark.parametrize("name", sorted(BY_NAME))
@pytest.mark.parametrize("words", [["{}", "--help"], ["help", "{}"], ["--read-only", "{}", "-h"]])
def test_each_command_tells_itself_with_examples(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([word.format(name) for word in words])
    out = capsys.readouterr().out
    assert left.value.code == 0
    if name == "console":
        assert all(f"sparktop {command.shape}" in out for command in COMMANDS)
    else:
        assert all(typed in out for typed, _ in BY_NAME[name].examples)
        assert len(BY_NAME[name].examples) >= 2


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_help_fits_a_terminal_of_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["help", name])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_an_example_is_a_command_line_that_is_read_as_that_command() -> None:
    for command in COMMANDS:
        for typed, _ in command.examples:
            words = typed.split("sparktop ", 1)[1].split()
            assert split(words)[0] is command, typed


def test_an_option_may_stand_before_between_or_after_names(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["qwen3-0.6b", "--set", "max_model_len=4096"]
    for order in (words, [*words[1:], words[0]]):
        assert main(["recipes", "show", *order]) == 0
    parsed = BY_NAME["launch"].arguments().parse_intermixed_args(["a.sh", "--set", "x=1", "spark1", "--dry-run"])
    assert (parsed.hosts, parsed.dry_run) == (["spark1"], True)


def test_a_host_may_be_called_as_a_command_is_or_nearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split(["--", "status"]) == (BY_NAME["console"], ["--", "status"])
    assert split(["--config", "status", "spark1"])[0] is BY_NAME["console"], "the file's name"
    file = tmp_path / "ssh_config"
    file.write_text("Host stattus\n  HostName 127.0.0.1\n")
    monkeypatch.setattr("sparktop.cli.watch._snapshot", lambda config, **_: len(config.hosts))
    assert main(["-F", str(file), "stattus"]) == 1
    assert main(["--", "status", "demo"]) == 2


@pytest.mark.parametrize(("result", "code"), [(None, 1), (0, 0), (3, 3)])
def test_a_console_that_ends_by_a_fault_has_an_exit_code(
    result: int | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.cli.watch.prepare_for_console", lambda: None)
    monkeypatch.setattr("sparktop.ui.app.SparktopApp.run", lambda _: result)

    async def unused(*_: object) -> Any:
        raise AssertionError

    setup = Setup(start=unused, node_names=("spark1",), clock=SystemClock(), operating=unused)
    assert _run_app(setup, Config(hosts=("spark1",))) == code


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


@pytest.mark.parametrize(("shape", "first"), [("--json", '{"version": 1'), ("", "")])
def test_a_reader_that_leaves_is_no_error(shape: str, first: str) -> None:
    words = f"{sys.executable} -m sparktop status --watch {shape} --interval 0.25 local | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", words], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.startswith(first)


def test_operations_that_fail_keep_no_picture_from_the_screen() -> None:
    shown: list[FleetState] = []

    def fail(_: FleetState) -> None:
        raise KeyError("gone")

    publish_after(shown.append, fail)(FleetState())
    ((notice,),) = (state.notices for state in shown)
    assert "a fault in sparktop itself, in the operations: KeyError" in notice.text
