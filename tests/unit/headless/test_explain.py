"""`sparktop explain` as a user meets it: what is data, what is narration, and the exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from tests.support import interruptible

from sparktop.cli import main
from sparktop.errors import UsageError
from sparktop.headless.explain import explain

KILL = (
    "[  940.100200] Out of memory: Killed process 7311 (VLLM::EngineCor) total-vm:120000000kB, anon-rss:9000000kB, "
    "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:2000kB oom_score_adj:0\n"
)
COMMAND = [sys.executable, "-m", "sparktop", "explain"]


def _stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_json_is_the_shared_shape_and_all_that_standard_output_carries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stdin(monkeypatch, f"one\n{KILL}")
    assert main(["explain", "-", "--json"]) == 1
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert sorted(data) == ["findings", "version"]
    assert data["version"] == 1
    (found,) = data["findings"]
    assert found["rule"] == "kernel.oom-kill"
    assert found["evidence"][0] == {"source": "stdin", "line": 2, "text": KILL.strip()}
    assert {"severity", "confidence", "title", "explanation", "remedies", "references"} <= set(found)
    assert err == ""


def test_nothing_found_is_said_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stdin(monkeypatch, "hello\nworld\n")
    assert main(["explain"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing found" in err
    assert "2 lines" in err
    _stdin(monkeypatch, "hello\n")
    assert main(["explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "findings": []}


def test_an_empty_input_is_said_to_be_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stdin(monkeypatch, "")
    assert main(["explain"]) == 0
    assert "nothing to read" in capsys.readouterr().err


def test_several_files_are_one_incident(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine, system = tmp_path / "engine.log", tmp_path / "kernel.log"
    engine.write_text("vllm-a-1 exited with code 137\n")
    system.write_text(KILL)
    assert main(["explain", str(engine), str(system)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("✖ Out of memory")
    assert [line for line in lines if line.startswith("✖")] == lines[:1], "its consequence is folded under it"
    assert any(line.endswith(f"{engine}:1") for line in lines[lines.index("  What belongs to it") :])
    assert any(line.split() == f"{system}:1  {KILL.strip()}".split() for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_files_that_cannot_be_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "screen.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    for name, words in (
        (str(tmp_path), "is a directory"),
        (str(tmp_path / "no.log"), "there is no such file"),
        (str(picture), "is a PNG image"),
    ):
        assert main(["explain", name]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert words in err
        assert len(err.splitlines()) == 2


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opening = Path.open

    def refused(path: Path, *options: Any, **more: Any) -> IO[Any]:
        if str(path) == "/var/log/kern.log":
            raise PermissionError(13, "Permission denied")
        return opening(path, *options, **more)

    monkeypatch.setattr(Path, "open", refused)
    assert main(["explain", "/var/log/kern.log"]) == 2
    err = capsys.readouterr().err
    assert "no permission" in err
    assert "sudo cat /var/log/kern.log | sparktop explain" in err


def test_one_bad_file_of_two_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "kernel.log"
    good.write_text(KILL)
    assert main(["explain", str(good), str(tmp_path / "no.log")]) == 2
    assert capsys.readouterr().out == ""


def test_secrets_do_not_reach_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "kernel.log"
    log.write_text(KILL.rstrip() + " --api-key sk-0123456789abcdef0123 HF_TOKEN=hf_0123456789abcdef0123\n")
    main(["explain", str(log), "--json"])
    out = capsys.readouterr().out
    assert "<masked>" in out
    assert "0123456789abcdef" not in out


def test_a_broken_configuration_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "config.toml"
    broken.write_text("theem = 'x'")
    assert main(["explain", "--config", str(broken)]) == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _printed(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = _Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    _stdin(monkeypatch, f"[x] {KILL}{KILL}")
    assert explain(["-"], (), as_json=False) == 1
    return out.getvalue()


def test_the_next_step_for_an_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.log").touch()
    assert main(["explain", str(tmp_path / "empty.log")]) == 0
    assert "docker logs vllm 2>&1 | sparktop explain" in capsys.readouterr().err


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in _printed(monkeypatch)
    assert "\x1b" not in _printed(monkeypatch, NO_COLOR="1")


def test_a_terminal_as_standard_input_is_no_text() -> None:
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(COMMAND, stdin=theirs, capture_output=True, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.returncode == UsageError.exit_code
    assert b"docker logs" in ended.stderr
    assert ended.stdout == b""


def test_a_reader_that_has_read_enough_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text("".join(KILL.replace("7311", str(pid)) for pid in range(2000, 2400)))
    with subprocess.Popen([*COMMAND, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        running.wait(timeout=60)
    assert running.returncode in (0, 1)


def test_control_c_while_reading_ends_quietly() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=interruptible) as running:
        assert running.stdin is not None
        # What it can't take in any more stands in the pipe, so it has begun to read.
        running.stdin.write(b"x\n" * 200_000)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, b"", b"")
