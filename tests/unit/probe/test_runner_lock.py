"""The node's lock and the private folder: files in a place where any user of the node may write."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparktop.probe.runner.journal import LOCK_NAME, NodeLock, Unable, full_hint, holder_words, open_folder

NOBODY_UID = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"who": "a", "since": 10**400}),
        json.dumps({"who": ["a"], "what": {"b": 1}, "since": -1, "token": 3}),
        '{"who":' + "[" * 900 + "]" * 900 + "}",
        "[" * 4000,
        '{"since": 1e999}',
        "",
    ],
)
def test_hostile_words_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    lock = os.open(tmp_path / "lock", os.O_RDONLY)
    try:
        words: dict[str, Any] = holder_words(lock)
    finally:
        os.close(lock)
    assert words["since"] is None
    assert [type(words[key]) for key in ("who", "what", "token")] == [str] * 3
    assert json.loads(json.dumps(words, allow_nan=False)) == words


def link(path: Path) -> None:
    (path.parent / "elsewhere").write_text("")
    path.symlink_to(path.parent / "elsewhere")


def fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [link, fifo, Path.mkdir], ids=["link", "fifo", "folder"])
def test_what_is_no_file_is_not_taken_for_the_lock_and_how_to_remove_it_is_told(tmp_path: Path, make: Any) -> None:
    path = tmp_path / LOCK_NAME
    make(path)
    with pytest.raises(Unable, match="can't be opened") as unable:
        NodeLock((str(tmp_path),), None).take("me", "a test", "")
    assert f"sudo rm -r {path}" in unable.value.hint


def test_a_link_to_nowhere_creates_nothing_there(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unable):
        NodeLock((str(tmp_path),), None).take("me", "a test", "")
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_has_its_own_hint() -> None:
    assert "df -h /run/lock" in full_hint(OSError(errno.ENOSPC, "No space left on device"), "/run/lock/sparktop-0")
    assert full_hint(OSError(errno.EACCES, "Permission denied"), "/run/lock/sparktop-0") == ""


def plain(root: Path) -> Path:
    return root / f"sparktop-{os.getuid()}"


def folder_in(root: Path) -> Path:
    path, descriptor = open_folder((str(root),))
    os.close(descriptor)
    return Path(path)


def test_the_folder_is_the_users_alone_and_found_again(tmp_path: Path) -> None:
    assert folder_in(tmp_path) == folder_in(tmp_path) == plain(tmp_path)
    assert plain(tmp_path).stat().st_mode & 0o777 == 0o700


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def of_another(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, NOBODY_UID, NOBODY_UID)


def link_to_own(path: Path) -> None:
    own = path.parent / "own"
    own.mkdir(mode=0o700)
    path.symlink_to(own)


@pytest.mark.parametrize(
    "make",
    [open_to_all, pytest.param(of_another, marks=as_root), link_to_own, link, fifo],
    ids=["open-to-all", "another-users", "link-to-a-folder", "link-to-a-file", "fifo"],
)
def test_a_name_that_somebody_has_taken_keeps_nobody_from_acting(tmp_path: Path, make: Any) -> None:
    make(plain(tmp_path))
    found = folder_in(tmp_path)
    assert found != plain(tmp_path)
    assert (found.stat().st_uid, found.stat().st_mode & 0o777, found.is_symlink()) == (os.getuid(), 0o700, False)
    assert folder_in(tmp_path) == found, "the next runner reads the same journals"
