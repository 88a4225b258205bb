"""The operator's public keys: which are found, in which order, and that no private key is read."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh
import pytest

from sparktop.transport.ssh.config import SshOptions
from sparktop.transport.ssh.own_keys import own_public_keys, with_key_alone


@pytest.fixture
def folder() -> Path:
    made = Path(os.environ["HOME"]) / ".ssh"
    made.mkdir(mode=0o700)
    return made


def write(folder: Path, name: str, comment: str = "", *, has_private: bool = True) -> str:
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment or name)
    (folder / f"{name}.pub").write_bytes(key.export_public_key())
    if has_private:
        (folder / name).touch(mode=0o000)  # it is enough that it is there
    return key.export_public_key().decode().split()[1]


async def test_what_ssh_would_offer_comes_first_and_each_key_once(folder: Path) -> None:
    other, named = write(folder, "a_other"), write(folder, "named")
    (folder / "copy.pub").write_text((folder / "named.pub").read_text())
    (folder / "copy").touch()
    (folder / "broken.pub").write_text("ssh-ed25519 ?\n")
    (folder / "broken").touch()
    write(folder, "orphan", has_private=False)
    keys = await own_public_keys(SshOptions(host="spark1", user="me", identity_files=(folder / "named",)))
    assert [key.blob for key in keys] == [named, other]
    assert keys[0].place == str(folder / "named.pub")
    assert keys[0].line == f"ssh-ed25519 {named} named"


async def test_a_comment_is_one_plain_line(folder: Path) -> None:
    write(folder, "id_ed25519", "me\x1b[2J\x07@laptop")
    (key,) = await own_public_keys(SshOptions(host="spark1", user="me"))
    assert "\x1b" not in key.line
    assert "\n" not in key.line


async def test_an_agent_that_is_gone_leaves_the_files(folder: Path, tmp_path: Path) -> None:
    write(folder, "id_ed25519")
    options = SshOptions(host="spark1", user="me", agent_socket=str(tmp_path / "none"))
    assert len(await own_public_keys(options)) == 1


async def test_a_login_with_one_key_may_use_nothing_else(folder: Path) -> None:
    write(folder, "work")
    (key,) = await own_public_keys(SshOptions(host="spark1", user="me"))
    options = with_key_alone(SshOptions(host="spark1", user="me"), key)
    assert (options.password, options.keyboard_interactive) == (False, False)
    assert options.identity_files == (folder / "work",)
