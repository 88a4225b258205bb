"""The output of processes outside containers, followed on this machine; a journal's lines as journalctl prints them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support import poll

from sparktop.model.telemetry import LogLine
from sparktop.transport.docker.log_follower import FollowEnd
from sparktop.transport.local import LocalTransport
from sparktop.transport.output_follower import follow_output


@contextmanager
def running(*argv: str, **streams: object) -> Iterator[int]:
    process = subprocess.Popen(argv, **streams)  # type: ignore[call-overload]
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def tails_of(path: Path) -> list[str]:
    found = subprocess.run(["pgrep", "-f", f"tail .*{path}"], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.parametrize(("name", "is_plain"), [("vllm.log", True), ("a; reboot", False)])
async def test_the_file_that_a_process_writes_is_followed_and_its_reader_ends_with_us(
    tmp_path: Path, name: str, is_plain: bool
) -> None:
    lines: list[LogLine] = []
    commands: list[str] = []
    log = tmp_path / name
    log.write_text("an earlier line\n")
    with log.open("a") as out, running("sh", "-c", "echo begun; exec sleep 60", stdout=out) as pid:
        follow = follow_output(
            LocalTransport(),
            pid,
            cgroup="",
            since=0.0,
            on_command=commands.append,
            on_batch=lines.extend,
            tail=10,
        )
        task = asyncio.create_task(follow)
        await asyncio.to_thread(poll, lambda: [line.text for line in lines] == ["an earlier line", "begun"])
        with log.open("a") as more:
            more.write("serves\n")
        await asyncio.to_thread(poll, lambda: lines[-1].text == "serves")
        assert tails_of(log)
        assert commands == [f"cat {log}"] * is_plain
        task.cancel()
        await asyncio.wait([task])
        await asyncio.to_thread(poll, lambda: not tails_of(log))


async def test_what_a_process_writes_to_another_program_is_said_to_be_there() -> None:
    with running("sleep", "60", stdout=subprocess.PIPE) as pid:
        end = await follow_output(
            LocalTransport(), pid, cgroup="/user.slice", since=0.0, on_command=print, on_batch=print, tail=10
        )
    assert "another program" in end.reason


async def test_a_journal_is_read_from_the_run_s_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`journalctl` of systemd 252 with short-unix: what it is asked, and the times of its lines."""
    asked = tmp_path / "asked"
    program = tmp_path / "journalctl"
    program.write_text(
        f'#!/bin/sh\necho "$*" >{asked}\n'
        "echo '1764311234.250000 vllm[41]: (APIServer pid=41) INFO 11-28 06:27:14 [utils.py:299] begins'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    lines: list[LogLine] = []
    commands: list[str] = []
    with running("sleep", "60", stdout=subprocess.PIPE) as pid:
        end: FollowEnd = await follow_output(
            LocalTransport(),
            pid,
            cgroup="/system.slice/vllm.service",
            since=1764311200.7,
            on_command=commands.append,
            on_batch=lines.extend,
            tail=9,
        )
    assert (lines[0].wall_s, end.last_wall_s) == (1764311234.25, 1764311234.25)
    assert lines[0].text.startswith("(APIServer pid=41)")
    words = asked.read_text().split()
    assert commands == ["journalctl -u vllm.service"]
    assert {"--unit=vllm.service", "--since=@1764311200"} <= set(words)
