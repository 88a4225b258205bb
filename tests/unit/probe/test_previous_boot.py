"""The end of the previous boot's journal: what of it is kept, and what is said where it can't be read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sparktop.model.telemetry import PreviousBoot
from sparktop.probe.remote import previous_boot, programs
from sparktop.wire.decode import decode

BOOT = "587ba0b6057a4de0a69a32fd4421db2d"


def entry(text: object, sender: str = "systemd", *, uid: str = "0", at: int = 0, **more: str) -> bytes:
    fields = {"MESSAGE": text, "SYSLOG_IDENTIFIER": sender, "_COMM": sender, "_UID": uid, "_BOOT_ID": BOOT}
    stamps = {"__REALTIME_TIMESTAMP": str(1_795_969_883_000_000 + at), "__MONOTONIC_TIMESTAMP": str(900_000_000 + at)}
    return json.dumps({**fields, **stamps, "_TRANSPORT": "journal", **more}).encode()


def test_an_order_is_kept_however_long_the_shutdown_is() -> None:
    order = entry("The system will reboot now!", "systemd-logind")
    stops = [entry(f"Stopped unit{at}.service.", at=at) for at in range(300)]
    rows, boot = previous_boot.system_rows([*reversed(stops), order, b"no JSON", b"[]", b""])
    assert boot == BOOT
    assert rows[0][1:] == ["systemd-logind", "The system will reboot now!"]
    assert [row[2] for row in rows[1:]] == [f"Stopped unit{at}.service." for at in range(280, 300)]


def test_a_user_who_calls_himself_logind_is_told_apart() -> None:
    sudo = entry("spark : USER=root ; COMMAND=/usr/sbin/reboot", "sudo", uid="1000")
    rows, _ = previous_boot.system_rows([sudo, entry("The system will reboot now!", "systemd-logind", uid="1000")])
    assert [row[1] for row in rows] == ["systemd-logind (uid 1000)", "sudo"]


def test_secrets_are_masked_and_a_message_that_is_no_text_left_out() -> None:
    rows, _ = previous_boot.system_rows([entry("started with HF_TOKEN=hf_abcdefghijklmnopqrstuv"), entry([1, 2])])
    assert "hf_abc" not in str(rows)
    assert len(rows) == 1


def test_both_logs_are_read_and_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = entry("Out of memory: Killed process 1 (x) total-vm:1kB", "kernel", _TRANSPORT="kernel", PRIORITY="3")
    asked: list[list[str]] = []

    def capture(argv: list[str], **_: object) -> tuple[int, bytes]:
        asked.append(argv)
        return 0, kernel if argv[-1] == "_TRANSPORT=kernel" else entry("the last words", "app")

    monkeypatch.setattr(previous_boot, "capture", capture)
    monkeypatch.setattr(previous_boot, "reader", lambda: (["sudo", "-n"], ""))
    monkeypatch.setattr(previous_boot, "PSTORES", ())
    message = decode(json.dumps(previous_boot.previous_boot()).encode())
    assert isinstance(message, PreviousBoot)
    assert (message.boot_id, message.reason) == (BOOT, "")
    assert [line.text for line in message.system] == ["app: the last words"]
    assert [line.text for line in message.kernel] == ["Out of memory: Killed process 1 (x) total-vm:1kB"]
    assert all(argv[:5] == ["sudo", "-n", "journalctl", "-b", "-1"] for argv in asked)


def test_who_may_not_read_it_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(previous_boot, "JOURNAL", str(tmp_path))
    monkeypatch.setattr(previous_boot, "is_program", lambda _: True)
    monkeypatch.setattr(previous_boot, "may_sudo", lambda: False)
    assert "doesn't outlast a boot" in previous_boot.reader()[1]
    (tmp_path / BOOT).mkdir()
    (tmp_path / BOOT / "system.journal").write_bytes(b"")
    assert previous_boot.reader() == ([], "")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not read" in previous_boot.reader()[1]
    monkeypatch.setattr(previous_boot, "may_sudo", lambda: True)
    assert previous_boot.reader() == (["sudo", "-n"], "")
    monkeypatch.setattr(previous_boot, "is_program", lambda _: False)
    assert "no journalctl" in previous_boot.reader()[1]


def test_sudo_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(programs, "_sudo", [])
    monkeypatch.setattr(programs, "is_program", lambda _: True)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(programs, "capture", lambda argv: (asked.append(argv), (1, b""))[1])
    assert [programs.may_sudo(), programs.may_sudo()] == [False, False]
    assert len(asked) == 1


def test_the_newest_dump_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(previous_boot, "PSTORES", (str(tmp_path), str(tmp_path / "none")))
    for name, changed_s in (("old/dmesg.txt", 1_000), ("new/dmesg.txt", 2_000), ("console", 1_500)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"Panic#1 Part1\n<4>[   12.5] of {name}\n<0>[   12.6] Kernel panic - not syncing: x\n")
        os.utime(path, (changed_s, changed_s))
    files, rows = previous_boot.crash_dumps()
    assert [path.removeprefix(f"{tmp_path}/") for path, _ in files] == ["new/dmesg.txt", "console", "old/dmesg.txt"]
    assert [row[3] for row in rows] == ["of new/dmesg.txt", "Kernel panic - not syncing: x"]
