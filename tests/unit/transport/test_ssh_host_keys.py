"""known_hosts: what a file says of a host, and what follows for a key it shows."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import needs
from tests.table import over

from sparktop.transport.ssh.host_keys import (
    KeyVerdict,
    SeenHosts,
    _hashed,
    fingerprint,
    judge,
    known_name,
    look_up,
    remember,
)


def key(seed: int, kind: str = "ssh-ed25519") -> bytes:
    return len(kind).to_bytes(4, "big") + kind.encode() + b"\0\0\0\x20" + bytes([seed]) * 32


def line(names: str, seed: int, *, kind: str = "ssh-ed25519", marker: str = "") -> str:
    lead = f"@{marker} " if marker else ""
    return f"{lead}{names} {kind} {base64.b64encode(key(seed, kind)).decode()} some comment\n"


def broken(text: str) -> str:
    """With a character that base64 hasn't, which a lenient reader passes over."""
    return text[:-3] + "!" + text[-3:]


KEY_1 = base64.b64encode(key(1)).decode()
HASHED = _hashed("spark1")


def verdict(
    tmp_path: Path, text: str, seed: int, *, host: str = "spark1", port: int = 22, alias: str | None = None
) -> str:
    file = tmp_path / "known_hosts"
    file.write_text(text)
    known = look_up([file], host, port, alias)
    found, entry = judge(known, key(seed))
    return found.value + (f" {entry.line_number}" if entry else "")


@over(
    "text, expected",
    [
        ("", "unknown"),
        (line("spark1", 1), "trusted 1"),
        (line("other", 1), "unknown"),
        ("# comment\n\n" + line("spark1", 2), "changed 3"),
        (line("spark1", 2) + line("spark1", 1), "trusted 2"),
        (line("spark1", 9, kind="ssh-rsa"), "changed 1"),
        (line("a,spark1,10.0.0.1", 1), "trusted 1"),
        (line("spark*", 1), "trusted 1"),
        (line("spark?,!spark1", 1), "unknown"),
        (line("SPARK1", 1), "trusted 1"),
        (line("[spark1]:22", 1), "unknown"),
        (line("spark1", 1, marker="revoked"), "revoked 1"),
        (line("spark1", 1) + line("*", 1, marker="revoked"), "revoked 2"),
        (line("spark1", 1, marker="cert-authority"), "unknown"),
        (line("spark1", 1, marker="no-such-marker"), "unknown"),
        ("spark1 ssh-ed25519 AAAA!!\n" + line("spark1", 1), "trusted 2"),
        ("spark1\n" + line("spark1", 1), "trusted 2"),
        ("spark1 ssh-ed25519\n" + line("spark1", 1), "trusted 2"),
        (line("spark1", 2) + line("spark1", 3), "changed 1"),
        (f"spark1 ssh-ed25519 {KEY_1} #mine", "trusted 1"),
        (f"spark1 ssh-ed25519 {broken(KEY_1)}", "unknown"),
        (f"{HASHED} ssh-ed25519 {KEY_1}", "trusted 1"),
        (f"{broken(HASHED)} ssh-ed25519 {KEY_1}", "unknown"),
        (f"|1|x ssh-ed25519 {KEY_1}", "unknown"),
        ("spark1 ssh-ed25519 " + base64.b64encode(key(1, "ssh-rsa")).decode(), "unknown"),
        ("\udcff\n".encode("utf-8", "surrogateescape").decode("latin-1") + line("spark1", 1), "trusted 2"),
        ("|1|AAAA|BBBB ssh-ed25519 AAAA\n|1|x\n" + line("spark1", 1), "trusted 3"),
    ],
)
def test_what_a_file_says_of_a_key(tmp_path: Path, text: str, expected: str) -> None:
    assert verdict(tmp_path, text, 1) == expected


@over(
    "text, expected",
    [
        (line("[spark1]:2222", 1), "trusted 1"),
        (line("[spark1]:2222", 2), "changed 1"),
        (line("[spark1]:2223", 1), "unknown"),
        (line("spark1", 1), "trusted 1"),
        (line("spark1", 2), "unknown"),  # another sshd on the same host has its own key: OpenSSH asks, so do we
        (line("[spark1]:2222", 2) + line("spark1", 1), "trusted 2"),
        (line("[s?ark*]:2222", 1), "trusted 1"),
        (line("spark1", 1, marker="revoked"), "revoked 1"),
    ],
)
def test_a_host_on_another_port(tmp_path: Path, text: str, expected: str) -> None:
    assert verdict(tmp_path, text, 1, port=2222) == expected


def test_an_alias_stands_alone(tmp_path: Path) -> None:
    assert known_name("spark1", 2222, "cluster") == "cluster"
    assert verdict(tmp_path, line("cluster", 1), 1, port=2222, alias="cluster") == "trusted 1"
    assert verdict(tmp_path, line("spark1", 1), 1, port=2222, alias="cluster") == "unknown"


def test_malformed_lines_of_this_host_are_named_and_others_are_not(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("elsewhere ssh-ed25519 ???\nspark1 ssh-ed25519 ???\n")
    [warning] = look_up([tmp_path / "absent", file], "spark1", 22).warnings
    assert f"{file}:2" in warning


def test_a_directory_in_place_of_a_file_is_a_warning_and_the_next_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "second").write_text(line("spark1", 1))
    known = look_up([tmp_path, tmp_path / "second"], "spark1", 22)
    [warning] = known.warnings
    assert "can't be read" in warning
    assert judge(known, key(1))[0] is KeyVerdict.TRUSTED


def test_a_key_accepted_in_this_session_is_trusted_and_another_is_a_change(tmp_path: Path) -> None:
    from dataclasses import replace

    seen = SeenHosts()
    seen.accept("spark1", key(1))
    known = replace(look_up([], "spark1", 22), session=seen.accepted("spark1"))
    assert judge(known, key(1)) == (KeyVerdict.TRUSTED, None)
    assert judge(known, key(2)) == (KeyVerdict.CHANGED, None)


def test_types_on_file_are_asked_for_first(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line("spark1", 1, kind="ssh-rsa") + line("spark1", 3) + line("spark1", 4, marker="revoked"))
    assert look_up([file], "spark1", 22).algorithms == ("ssh-rsa", "ssh-ed25519")


def test_seen_hosts_find_the_others_with_the_same_key() -> None:
    seen = SeenHosts()
    seen.record("spark1", "SHA256:a")
    seen.record("spark2", "SHA256:b")
    assert seen.others_with("spark3", "SHA256:a") == ("spark1",)
    assert seen.others_with("spark1", "SHA256:a") == ()
    seen.record("spark1", "SHA256:c")  # reinstalled meanwhile
    assert seen.others_with("spark3", "SHA256:a") == ()


@over("hashed", [False, True])
def test_a_key_is_written_once_with_narrow_modes_after_whatever_stands_there(tmp_path: Path, hashed: bool) -> None:
    file = tmp_path / "home" / ".ssh" / "known_hosts"
    remember(file, "[spark1]:2222", "ssh-ed25519", key(1), hashed=hashed)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.write_bytes(file.read_bytes().rstrip(b"\n"))  # an editor left the last line open
    for _ in range(2):
        remember(file, "spark2", "ssh-ed25519", key(2), hashed=hashed)
    assert len(file.read_text().splitlines()) == 2
    assert judge(look_up([file], "spark1", 2222), key(1))[0] is KeyVerdict.TRUSTED
    assert judge(look_up([file], "spark2", 22), key(2))[0] is KeyVerdict.TRUSTED
    assert ("spark" in file.read_text()) != hashed


@over(
    "before",
    [line("spark2", 1), line("spark1", 2), f"spark1 ssh-ed25519 {broken(KEY_1)}\n", f"@revoked {line('x', 1)}"],
)
def test_only_the_same_key_of_the_same_host_counts_as_written(tmp_path: Path, before: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(before)
    for _ in range(2):
        remember(file, "spark1", "ssh-ed25519", key(1))
    assert file.read_text() == before + f"spark1 ssh-ed25519 {KEY_1}\n"


def test_what_is_written_is_what_ssh_keygen_finds(tmp_path: Path) -> None:
    needs("ssh-keygen", "openssh-client")
    file = tmp_path / "known_hosts"
    remember(file, "[spark1]:2222", "ssh-ed25519", key(1), hashed=True)
    found = subprocess.run(
        ["ssh-keygen", "-l", "-F", "[spark1]:2222", "-f", str(file)], capture_output=True, text=True, check=True
    )
    assert fingerprint(key(1)) in found.stdout


def test_dev_null_keeps_nothing_and_is_no_error() -> None:
    remember(Path(os.devnull), "spark1", "ssh-ed25519", key(1))
    assert Path(os.devnull).is_char_device(), "no file was put in its place"


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    threads = [
        threading.Thread(target=remember, args=(file, f"spark{number}", "ssh-ed25519", key(number)))
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(16):
        assert judge(look_up([file], f"spark{number}", 22), key(number))[0] is KeyVerdict.TRUSTED


@given(st.text(max_size=300))
def test_no_text_breaks_the_reading(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("known") / "known_hosts"
    file.write_text(text + "\n" + line("spark1", 1), encoding="utf-8", errors="replace")
    assert judge(look_up([file], "spark1", 22), key(1))[0] in (KeyVerdict.TRUSTED, KeyVerdict.REVOKED)
