"""The names on the Host lines of the ssh configuration, read as OpenSSH reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.transport.ssh import aliases as module
from sparktop.transport.ssh.aliases import aliases


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """~/.ssh of a home of its own; and no system-wide file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module, "_SYSTEM", tmp_path / "etc/ssh_config")
    (tmp_path / ".ssh/conf.d").mkdir(parents=True)
    return tmp_path / ".ssh"


def test_names_are_listed_and_patterns_are_not(folder: Path) -> None:
    (folder / "config").write_text(
        '# Host no\nhost spark1 *.lan !spark3 spark?\n  HostName 10.0.0.1\nHOST="my spark" spark2 # no\n'
        'Host spark1\nHost "open\nMatch host other\nHostName host\n'
    )
    assert aliases() == ("spark1", "my spark", "spark2")


def test_included_files_are_read_and_a_circle_ends(folder: Path, tmp_path: Path) -> None:
    (folder / "config").write_text("Include conf.d/*.conf ~/more missing\nHost last\n")
    (folder / "conf.d/b.conf").write_text("Host b\nInclude ../config\n")
    (folder / "conf.d/a.conf").write_text("Host a\n")
    (tmp_path / "more").write_text("Host more\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ssh_config").write_text("Include other.conf\n")
    (tmp_path / "etc/other.conf").write_text("Host everybody\n")
    assert aliases() == ("a", "b", "more", "last", "everybody")


def test_another_file_is_read_alone_and_none_is_no_error(folder: Path, tmp_path: Path) -> None:
    assert aliases() == ()
    (folder / "config").write_text("Host a\n")
    (tmp_path / "other").write_bytes(b"Host spark\xff b\n")
    assert aliases(tmp_path / "other") == ("spark�", "b")
    assert aliases(folder) == ()
