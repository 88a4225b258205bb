"""The node's lock and the private folder: files in a place where any user of the node may write."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.table import over

from sparktop.probe.remote.guard import journal as guard_journal
from sparktop.probe.runner import journal
from sparktop.probe.runner.journal import (
    GROUP_LOCK_NAME,
    LOCK_NAME,
    Journals,
    NodeLock,
    Unable,
    append,
    full_hint,
    holder_words,
    open_folders,
)

NOBODY_UID = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")


@over(
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


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This user may not use Docker."""
    monkeypatch.setattr(journal, "docker_group", lambda: None)


def link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


@pytest.mark.usefixtures("no_docker")
@pytest.mark.parametrize(
    "make", [link, link_to_nowhere, fifo, Path.mkdir], ids=["link", "link-to-nowhere", "fifo", "folder"]
)
def test_what_is_no_file_is_not_taken_for_the_lock_and_keeps_nobody_from_acting(tmp_path: Path, make: Any) -> None:
    make(tmp_path / LOCK_NAME)
    lock, other = (NodeLock((str(tmp_path),), None) for _ in range(2))
    assert lock.take("me", "a test", "") == {"held": True}
    assert other.take("you", "a test", "")["who"] == "me"
    assert not (tmp_path / "nowhere").exists()
    lock.give_back(steps_left=False)


# --- a place that any user has filled


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two tmpfs, as /run/lock is: (of 1 MiB and 20 files, of 8 MiB)."""
    folders = tmp_path / "first", tmp_path / "second"
    mounted = []
    for folder, size in zip(folders, ("size=1m,nr_inodes=20", "size=8m"), strict=True):
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"{size},mode=1777", "tmpfs", str(folder)]
        said = subprocess.run(words, capture_output=True, text=True, check=False)
        if said.returncode == 0:
            mounted.append(folder)
    try:
        if len(mounted) < len(folders):
            pytest.skip("nothing can be mounted here")
        yield folders
    finally:
        for folder in mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def fill(place: Path) -> None:
    """Take every byte and every inode."""
    with contextlib.suppress(OSError), open(place / "filling", "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    with contextlib.suppress(OSError):
        for number in range(100):
            (place / f"filling{number}").touch()


def empty(place: Path) -> None:
    for file in place.glob("filling*"):
        file.unlink()


def roots_of(places: tuple[Path, Path]) -> tuple[str, ...]:
    return tuple(map(str, places))


def test_a_full_place_keeps_nobody_from_acting(places: tuple[Path, Path]) -> None:
    fill(places[0])
    journals = Journals(roots_of(places))
    lock = NodeLock(roots_of(places), journals)
    assert lock.take("me", "a test", "") == {"held": True}
    begun = journals.begin("run", "step")
    assert begun is not None
    assert begun[1][0].startswith(str(places[1]))
    empty(places[0])
    other = NodeLock(roots_of(places), Journals(roots_of(places)))
    assert other.take("you", "a test", "")["who"] == "me", "the lock that was made elsewhere counts"
    lock.give_back(steps_left=False)
    assert other.take("you", "a test", "") == {"held": True}
    other.give_back(steps_left=False)


@pytest.mark.parametrize("is_full_first", [True, False])
def test_a_step_is_found_wherever_its_journal_is(places: tuple[Path, Path], is_full_first: bool) -> None:
    changes = (fill, empty) if is_full_first else (empty, fill)
    first = Journals(roots_of(places))
    changes[0](places[0])
    begun = first.begin("run", "step")
    assert begun is not None
    changes[1](places[0])
    later = Journals(roots_of(places))
    assert later.outcome("run", "step")["state"] == "running"
    assert later.begin("run", "step") is None, "never twice"
    append(begun[0], {"result": {"output": "x" * 8000}})  # what was reserved for it
    append(begun[0], {"end": {"state": "done"}})
    os.close(begun[0])
    outcome = later.outcome("run", "step")
    assert (outcome["state"], len(outcome["results"])) == ("done", 1)
    assert later.outcome("run", "other")["state"] == "not started"
    with pytest.raises(Unable, match="too late"):
        first.begin("run", "other")


def test_what_a_step_writes_besides_goes_where_there_is_room(places: tuple[Path, Path]) -> None:
    journals = Journals(roots_of(places))
    begun = [journals.begin("run", str(room), room) for room in (100_000, 2 << 20)]
    assert [Path(one[1][0]).parent for one in begun if one is not None] == list(places)
    with pytest.raises(Unable, match="nothing was done"):
        journals.begin("run", "too much", 20 << 20)


def test_a_full_disk_has_its_own_hint() -> None:
    assert "df -h /run/lock" in full_hint(OSError(errno.ENOSPC, "No space left on device"), "/run/lock/sparktop-0")
    assert full_hint(OSError(errno.EACCES, "Permission denied"), "/run/lock/sparktop-0") == ""


def plain(root: Path) -> Path:
    return root / f"sparktop-{os.getuid()}"


def folder_in(root: Path) -> Path:
    ((path, descriptor),) = open_folders((str(root),))
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


def test_a_guard_s_order_is_kept_where_there_is_room(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_journal, "STATE_FOLDERS", roots_of(places))
    kept = guard_journal.Journal()
    assert kept.write("guard", {"order": 1}) != (0, 0)
    fill(places[0])
    assert kept.write("guard", {"order": 2, "more": "x" * 5000}) == kept.key("guard") != (0, 0)
    body = guard_journal.Journal().read("guard")
    assert body is not None
    assert body["order"] == 2
    kept.remove("guard")
    assert guard_journal.Journal().read("guard") is None, "the older one went with it"


# --- users of one node, each a process of its own


DOCKER_GID = 4242
MEMBERS = {"alice": (61001, [DOCKER_GID]), "bob": (61002, [DOCKER_GID]), "root": (0, [])}
OUTSIDERS = {"eve": (61003, []), "carol": (61004, [])}


class User:
    """A process of this user, which does what it is told and stays until the test is over."""

    def __init__(self, name: str) -> None:
        uid, groups = (MEMBERS | OUTSIDERS)[name]
        self.here, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid:
            there.close()
            return
        try:
            self.here.close()
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            lines = there.makefile("rw")
            lock = None
            for line in lines:
                words = json.loads(line)
                if words["do"] == "take":
                    lock = lock or NodeLock((words["root"],), None)
                    try:
                        answer: Any = lock.take(name, "a test", name)
                    except Unable as unable:
                        answer = {"problem": str(unable)}
                elif words["do"] == "give back":
                    assert lock is not None
                    lock.give_back(steps_left=False)
                    answer = None
                else:
                    answer = _hold_all(words["root"])
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
        finally:
            os._exit(0)

    def do(self, what: str, root: Path) -> Any:
        self.here.sendall(json.dumps({"do": what, "root": str(root)}).encode() + b"\n")
        return json.loads(self.here.makefile().readline())

    def end(self) -> None:
        self.here.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _hold_all(root: str) -> list[str]:
    """Lock whatever can be opened there, for ever; the names."""
    held = []
    for name in os.listdir(root):
        for flags in (os.O_RDWR, os.O_RDONLY):
            try:
                one = os.open(f"{root}/{name}", flags | os.O_NONBLOCK)
                fcntl.flock(one, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                continue
            held.append(name)
            break
    return held


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], User]]:
    monkeypatch.setattr(grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=DOCKER_GID))
    started: dict[str, User] = {}

    def user(name: str) -> User:
        return started.setdefault(name, started.get(name) or User(name))

    yield user
    for one in started.values():
        one.end()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder as /run/lock is; every user may pass through those above it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


def taken_by_eve(root: Path, user: Callable[[str], User]) -> None:
    (root / GROUP_LOCK_NAME).write_text("")
    (root / GROUP_LOCK_NAME).chmod(0o666)
    os.chown(root / GROUP_LOCK_NAME, OUTSIDERS["eve"][0], OUTSIDERS["eve"][0])


def a_fifo_of_eves(root: Path, user: Callable[[str], User]) -> None:
    os.mkfifo(root / GROUP_LOCK_NAME)
    (root / f"{GROUP_LOCK_NAME}.0").symlink_to("/etc/passwd")
    os.chown(root / GROUP_LOCK_NAME, OUTSIDERS["eve"][0], -1)


def as_it_was_left(root: Path, user: Callable[[str], User]) -> None:
    """A member has changed the node before."""
    assert user("bob").do("take", root) == {"held": True}
    user("bob").do("give back", root)


def nothing(root: Path, user: Callable[[str], User]) -> None:
    pass


@as_root
@pytest.mark.parametrize("before", [nothing, taken_by_eve, a_fifo_of_eves, as_it_was_left])
def test_who_may_not_use_docker_keeps_nobody_from_acting(
    place: Path, users: Callable[[str], User], before: Callable[..., None]
) -> None:
    before(place, users)
    users("eve").do("hold all", place)
    assert users("alice").do("take", place) == {"held": True}
    users("eve").do("hold all", place)
    for other in ("bob", "root"):
        answer = users(other).do("take", place)
        assert (answer["held"], answer["who"]) == (False, "alice"), other
    users("alice").do("give back", place)
    users("eve").do("hold all", place)
    assert users("root").do("take", place) == {"held": True}
    assert users("alice").do("take", place)["who"] == "root"


@as_root
def test_who_may_not_use_docker_has_a_lock_for_all(place: Path, users: Callable[[str], User]) -> None:
    assert users("alice").do("take", place) == {"held": True}
    assert users("eve").do("take", place) == {"held": True}, "alice's is not for them"
    answer = users("carol").do("take", place)
    assert (answer["held"], answer["who"]) == (False, "eve")


@as_root
def test_of_two_locks_made_at_once_both_are_taken(place: Path, users: Callable[[str], User]) -> None:
    assert users("alice").do("take", place) == {"held": True}
    late = place / f"{GROUP_LOCK_NAME}.0123456789abcdef"
    late.touch()
    os.chown(late, -1, DOCKER_GID)
    late.chmod(0o660)
    answer = users("bob").do("take", place)
    assert (answer["held"], answer["who"]) == (False, "alice")
    users("alice").do("give back", place)
    assert users("bob").do("take", place) == {"held": True}
    assert users("alice").do("take", place)["who"] == "bob"


@as_root
def test_a_lock_that_no_file_of_the_groups_stands_for_is_not_held(
    place: Path, users: Callable[[str], User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_make_lock", lambda root, name, group: None)
    assert "nothing was done" in users("alice").do("take", place)["problem"]


def words_of(root: Path) -> str:
    return next(root.glob("sparktop.*lock")).read_text()


def test_whose_lock_it_is_stands_in_it_while_it_is_held(tmp_path: Path) -> None:
    lock = NodeLock((str(tmp_path),), None)
    assert lock.take("me@laptop", "restart x", "") == {"held": True}
    kept = os.dup(lock.descriptors[0])
    lock.give_back(steps_left=True)
    assert "me@laptop" in words_of(tmp_path), "a step goes on under it"
    answer = NodeLock((str(tmp_path),), None).take("you", "y", "")
    assert (answer["held"], answer["who"], answer["what"], answer["own"]) == (False, "me@laptop", "restart x", False)
    os.close(kept)
    assert lock.take("me@laptop", "again", "") == {"held": True}
    lock.give_back(steps_left=False)
    assert words_of(tmp_path) == ""


def test_the_lock_lies_where_every_user_may_create_files(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("own", "sticky", "last")]
    for root in roots:
        root.mkdir(mode=0o700)
    roots[1].chmod(0o1777)
    lock = NodeLock(tuple(map(str, roots)), None)
    lock.take("me", "x", "")
    assert [bool(list(root.iterdir())) for root in roots] == [False, True, False]
    lock.give_back(steps_left=False)
    assert lock.descriptors == ()
    roots[1].chmod(0o777)
    lock.take("me", "x", "")
    assert list(roots[2].iterdir())
    lock.give_back(steps_left=False)


def test_a_console_knows_its_own_lock_by_its_newest_note(tmp_path: Path) -> None:
    journals = Journals((str(tmp_path),))
    for key in ("a long name of a console that was here before", "b"):
        lock = NodeLock((str(tmp_path),), journals)
        assert lock.take("me", "x", key) == {"held": True}
        note = json.loads(Path(journals.folders[0][0], "runner.lock").read_text())
        assert (note["key"], note["pid"]) == (key, os.getpid())
        lock.give_back(steps_left=False)


def test_a_note_that_is_no_note_makes_no_lock_one_s_own(tmp_path: Path) -> None:
    journals = Journals((str(tmp_path),))
    lock = NodeLock((str(tmp_path),), journals)
    lock.take("me", "x", "a")
    for text in ("{", "[]", ""):
        Path(journals.folders[0][0], "runner.lock").write_text(text)
        answer = NodeLock((str(tmp_path),), journals).take("me", "y", "a")
        assert (answer["held"], answer["own"]) == (False, False)
    lock.give_back(steps_left=False)


def test_where_there_is_no_group_docker_the_lock_is_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(grp, "getgrnam", none)
    lock = NodeLock(("/nonexistent", str(tmp_path)), None)
    assert lock.take("me", "x", "") == {"held": True}
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]
    assert (tmp_path / LOCK_NAME).stat().st_mode & 0o777 == 0o666
    lock.give_back(steps_left=False)


@over(
    "own, ended",
    [
        ({"pid": 2, "started": 7}, [(2, signal.SIGTERM)]),
        ({"pid": 2, "started": 8}, []),
        ({"pid": 1, "started": 7}, []),
        ({"pid": 0, "started": 7}, []),
        ({"pid": "2", "started": 7}, []),
        ({"pid": os.getpid(), "started": 7}, []),
        ({"pid": 3, "started": None}, []),
        ({"started": 7}, []),
    ],
)
def test_only_an_older_runner_of_this_console_is_ended(own: dict[str, Any], ended: list[tuple[int, int]]) -> None:
    """Its note may name any process: one that began at another moment is none of ours."""
    killed: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "started_ticks", lambda pid: 7)
        patch.setattr(journal.os, "kill", lambda *words: killed.append(words))
        NodeLock._replace(own)
    assert killed == ended
