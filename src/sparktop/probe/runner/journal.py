"""What outlives a runner: the journals of steps, and the node's lock.

A journal is a file of JSON lines in a folder of this user alone, in tmpfs that survives a logout (logind removes
/run/user/UID and a user's files in /dev/shm), or in /tmp where nothing can be written there: any user may have filled
it. What is asked about is looked for in both. Its writer holds a flock on it: a journal without an end that nobody
holds is one whose step was killed. It has no request bodies, file contents or environments; outputs are masked.

    {"started": {run, step, boot, wall, pid}}   {"result": {...}}   {"end": {state, problem, undone, saved}}
    {"barred": started}    asked about before it was begun: a runner that started before `started` (seconds since boot)
                           won't begin it

A step that fetches (`fetch`) has two more files: RUN.STEP.progress, overwritten with its newest progress, and
RUN.STEP.ending, which a runner creates to stop it.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import json
import os
import pwd
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Words = dict[str, Any]

STATE_ROOTS = ("/run/lock", "/tmp")
_FULL = (errno.ENOSPC, errno.EDQUOT)
KEPT_S = 24 * 3600.0
KEPT_FILES = 50
JOURNAL_BYTES = 8 << 20
RESERVED_BYTES = 16384
"""Of a journal, before its step begins: what fills the disk meanwhile takes no result from it."""
LOCK_NAME = "sparktop.lock"
GROUP_LOCK_NAME = "sparktop.docker.lock"
TOO_LATE = "it arrived too late: the console has already asked for its result on a newer connection"


class Unable(Exception):
    """Why something can't be done here; nothing was done. `hint`: what makes it possible."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.hint = hint


def read_text(path: str, limit: int = 65536) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Changes at every boot; empty where it can't be read."""
    try:
        return read_text("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


def user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def started_ticks(pid: int | str) -> int | None:
    """When a process started (field 22 of /proc/PID/stat); None for a zombie and where there is no such process."""
    try:
        words = read_text(f"/proc/{pid}/stat", 1024).rpartition(")")[2].split()
        return None if words[0] in "ZX" else int(words[19])
    except (OSError, ValueError, IndexError):
        return None


def open_folders(roots: tuple[str, ...]) -> list[tuple[str, int]]:
    """The private folders, one in each root that can have one, created where missing: (path, descriptor).

    Raises:
        Unable: none of the roots can have one.
    """
    folders = []
    problem, hint = "there is no place to write it", ""
    for root in roots:
        for path in _folder_paths(root):
            try:
                try:
                    os.mkdir(path, 0o700)
                except FileExistsError:
                    pass
                folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                problem, hint = f"{path}: {error.strerror}", full_hint(error, path) or hint
                continue
            status = os.fstat(folder)
            # Every user may create files there: another may have created this folder, or a link in its place.
            if status.st_uid == os.getuid() and status.st_mode & 0o077 == 0:
                folders.append((path, folder))
                break
            os.close(folder)
            problem = f"{path} belongs to another user"
    if not folders:
        raise Unable(f"the runner can't keep a journal ({problem}), and does nothing without one", hint)
    return folders


def _folder_paths(root: str) -> list[str]:
    """Where the private folder may be: under its plain name, or, as another user may have taken that, under a longer
    one that nobody can foresee."""
    plain = f"sparktop-{os.getuid()}"
    try:
        longer = sorted(name for name in os.listdir(root) if name.startswith(f"{plain}."))
    except OSError:
        longer = []
    return [f"{root}/{name}" for name in (plain, *longer, f"{plain}.{os.urandom(8).hex()}")]


def full_hint(error: OSError, path: str) -> str:
    """What helps where a file system is full; empty for another error."""
    folder = path.rpartition("/")[0] or "/"
    return f"free some space there: df -h {folder}; df -i {folder}" if error.errno in _FULL else ""


def file_name(run: str, step: str) -> str:
    """A journal's name: all but letters, digits and "-_@" is encoded, so that no name leads out of the folder.

    Raises:
        Unable: a name is empty or too long.
    """
    words = []
    for word in (run, step):
        if not word or len(word) > 80:
            raise Unable("a run and a step need names of at most 80 characters")
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_@") else f"%{ord(c):x}." for c in word)
        words.append(safe)
    return f"{words[0]}.{words[1]}.step"


class Journals:
    """The journals in the private folders."""

    def __init__(self, roots: tuple[str, ...] = STATE_ROOTS) -> None:
        self.folders = open_folders(roots)
        self.boot = boot_id()
        self.started = time.clock_gettime(time.CLOCK_BOOTTIME)

    def begin(self, run: str, step: str, room: int = 0) -> tuple[int, tuple[str, int]] | None:
        """Create and lock a journal where `room` bytes more can be written: its descriptor, and its folder as in
        `open_folders`; None when the step was begun before.

        Raises:
            Unable: it can't be written, or the step is barred.
        """
        name = file_name(run, step)
        try:
            self._hold_folders()
            try:
                for _, folder in self.folders:
                    self._tidy(folder)
                    barred = self._barred(name, folder)
                    if barred is not None:
                        if self.started < barred:
                            raise Unable(TOO_LATE)
                        os.unlink(name, dir_fd=folder)
                    elif os.access(name, os.F_OK, dir_fd=folder, follow_symlinks=False):
                        return None
                problem: OSError | None = None
                for path, folder in self.folders:
                    try:
                        return self._create(name, folder, run, step, room), (path, folder)
                    except OSError as error:
                        problem = problem or error
                raise problem or OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            finally:
                self._let_go()
        except OSError as error:
            path = self.folders[0][0]
            text = f"the runner can't write its journal ({path}: {error.strerror}); nothing was done"
            raise Unable(text, full_hint(error, f"{path}/")) from None

    def _create(self, name: str, folder: int, run: str, step: str, room: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        journal = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(journal, 0, RESERVED_BYTES + room)
            os.ftruncate(journal, RESERVED_BYTES)
            words = {"run": run, "step": step, "boot": self.boot, "wall": time.time(), "pid": os.getpid()}
            append(journal, {"started": words})
        except OSError:
            os.close(journal)
            os.unlink(name, dir_fd=folder)
            raise
        return journal

    def forget(self, run: str, step: str) -> None:
        """Remove the journal of a step that did nothing."""
        name = file_name(run, step)
        os.unlink(name, dir_fd=self._folder_of(name)[1])

    def outcome(self, run: str, step: str) -> Words:
        """A step's outcome, as in the protocol; a step that never started is barred from older runners."""
        name = file_name(run, step)
        try:
            self._hold_folders()
            try:
                path, folder = self._folder_of(name)
                held, lines = self._read(name, folder)
                if lines is None or (lines and "barred" in lines[0]):
                    self.write(name, {"barred": self.started})
                    return {"state": "not started"}
            finally:
                self._let_go()
        except OSError as error:
            raise Unable(f"the runner can't read its journal ({self.folders[0][0]}: {error.strerror})") from None
        return outcome_of(lines, boot=self.boot, is_held=held, progress=_progress(path, name) if held else None)

    def end(self, run: str, step: str) -> Words:
        """Tell a step that fetches to stop, whichever runner began it; returns its outcome now."""
        outcome = self.outcome(run, step)
        if outcome["state"] == "running":
            name = file_name(run, step)
            path, folder = self._folder_of(name)
            try:
                mark(folder, name[:-5] + ".ending")
            except OSError as error:
                raise Unable(f"the runner can't stop it ({path}: {error.strerror})") from None
        return outcome

    def _folder_of(self, name: str) -> tuple[str, int]:
        """The folder with this file; the first where none has it."""
        held = (one for one in self.folders if os.access(name, os.F_OK, dir_fd=one[1], follow_symlinks=False))
        return next(held, self.folders[0])

    def write(self, name: str, words: Words) -> None:
        """Write a file of one line in the first folder that has room for it.

        Raises:
            OSError: none has.
        """
        for number, (_, folder) in enumerate(self.folders, 1):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                file = os.open(name, flags, 0o600, dir_fd=folder)
                try:
                    append(file, words)
                finally:
                    os.close(file)
                return
            except OSError:
                if number == len(self.folders):
                    raise

    def _hold_folders(self) -> None:
        """Lock the folders, which this user's runners hold for moments only, and in one order.

        Raises:
            OSError: another runner keeps one.
        """
        for _, folder in self.folders:
            for _ in range(200):
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.01)
            else:
                raise OSError(errno.EBUSY, "another runner is using it")

    def _let_go(self) -> None:
        for _, folder in self.folders:
            fcntl.flock(folder, fcntl.LOCK_UN)

    def _barred(self, name: str, folder: int) -> float | None:
        _, lines = self._read(name, folder)
        return float(lines[0]["barred"]) if lines and "barred" in lines[0] else None

    def _read(self, name: str, folder: int) -> tuple[bool, list[Words] | None]:
        """(whether its step still runs, its lines; None where there is no journal)."""
        try:
            journal = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return False, None
        try:
            try:
                fcntl.flock(journal, fcntl.LOCK_SH | fcntl.LOCK_NB)
                held = False
            except BlockingIOError:
                held = True
            lines, text = [], b""
            while len(text) < JOURNAL_BYTES and (piece := os.read(journal, 65536)):
                text += piece
            for line in text.rstrip(b"\0").split(b"\n"):
                try:
                    words = json.loads(line)
                except (ValueError, RecursionError):
                    continue  # the last line, cut
                if isinstance(words, dict):
                    lines.append(words)
            return held, lines
        finally:
            os.close(journal)

    def _tidy(self, folder: int) -> None:
        """Remove files that are a day old or beyond the newest KEPT_FILES, never one that is locked."""
        ages = []
        for name in os.listdir(folder):
            if name.endswith((".step", ".content", ".progress", ".ending", ".key")):
                ages.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name))
        ages.sort(reverse=True)
        now = time.time()
        for number, (changed, name) in enumerate(ages):
            if (number < KEPT_FILES and now - changed < KEPT_S) or self._read(name, folder)[0]:
                continue
            os.unlink(name, dir_fd=folder)


def _progress(path: str, name: str) -> Words | None:
    try:
        words = json.loads(read_text(f"{path}/{name[:-5]}.progress"))
    except (OSError, ValueError, RecursionError):
        return None  # it doesn't fetch, or has no progress yet
    return words if isinstance(words, dict) else None


def outcome_of(lines: list[Words], *, boot: str, is_held: bool, progress: Words | None) -> Words:
    """The outcome that a journal's lines tell, on the machine's present `boot`; `is_held`: its step still runs."""
    results = [line["result"] for line in lines if isinstance(line.get("result"), dict)]
    ends = [line["end"] for line in lines if isinstance(line.get("end"), dict)]
    begun = lines[0].get("started") if lines else None
    if ends:
        return {"results": results, **ends[-1]}
    if is_held:
        return {"state": "running", "results": results, "progress": progress}
    rebooted = isinstance(begun, dict) and begun.get("boot") != boot
    problem = "the node rebooted during this step" if rebooted else "the process that ran this step was killed"
    return {"state": "gone", "results": results, "problem": problem}


def mark(folder: int, name: str) -> None:
    """Create an empty file."""
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder))


def append(journal: int, words: Words) -> None:
    """Write one line.

    Raises:
        OSError: it wasn't written whole.
    """
    line = json.dumps(words, separators=(",", ":")).encode() + b"\n"
    if os.write(journal, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# --- the lock of the node ---------------------------------------------------------------------------------------------


class NodeLock:
    """Allows one change of the node at a time: a flock that the runner and its steps' processes hold.

    Whoever can open a file can hold a flock on it, and a change waits for none. So those who may use Docker lock a file
    that is Docker's group's alone: nobody outside can make one, or open it. Who may not use Docker locks a file for
    all. Under its plain name another user may have put something else, or filled the place; then it has a longer name,
    or is in the next root, and as two may be made at once, all that there are are locked.
    """

    def __init__(self, roots: tuple[str, ...], journals: Journals | None) -> None:
        self.roots = roots
        self.journals = journals
        self.descriptors: tuple[int, ...] = ()

    def take(self, who: str, what: str, key: str) -> Words:
        """Lock the node; returns the reply to `lock`.

        Raises:
            Unable: its file can't be opened.
        """
        if not self.descriptors:
            locks = self._open_all()
            for lock in locks:
                refusal = self._hold(lock, key)
                if refusal is not None:
                    for opened in locks:
                        os.close(opened)
                    return refusal
            self.descriptors = locks
        token = os.urandom(8).hex()
        words = {"who": who[:200], "what": what[:300], "since": round(time.time(), 3), "token": token}
        text = json.dumps(words).encode()
        for lock in self.descriptors:
            try:
                os.ftruncate(lock, 0)
                os.pwrite(lock, text, 0)
            except OSError:
                pass  # opened read-only: it is locked all the same, without our words in it
        if self.journals is not None:
            words = {"key": key, "token": token, "pid": os.getpid(), "started": started_ticks("self")}
            try:  # in a private folder: any user may have written what is in the lock's own file
                self.journals.write("runner.lock", words)
            except OSError:
                pass
        return {"held": True}

    def _hold(self, lock: int, key: str) -> Words | None:
        """Lock one file; the reply where somebody else holds it."""
        refusal: Words = {}
        for _ in range(100):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return None
            except OSError:
                holder = holder_words(lock)
                own = self._own(key, holder.pop("token"))
                if own is not None and not refusal:
                    self._replace(own)
                refusal = {"held": False, **holder, "own": own is not None}
                if own is None:
                    break
                time.sleep(0.02)
        return refusal

    def give_back(self, *, steps_left: bool) -> None:
        """Unlock; while a step's process runs (`steps_left`) the flock stays held, with its words."""
        for lock in self.descriptors:
            if not steps_left:
                try:
                    os.ftruncate(lock, 0)
                except OSError:
                    pass
            os.close(lock)
        self.descriptors = ()

    def _open_all(self) -> tuple[int, ...]:
        """Every lock file in any root, made in the first where it can be."""
        roots = [root for root in self.roots if _is_for_all(root)] or [self.roots[-1]]
        group = docker_group()
        name = LOCK_NAME if group is None else GROUP_LOCK_NAME
        problem, hint = "", ""
        for root in (None, *roots):
            try:
                if root is not None:
                    _make_lock(root, name, group)
                locks = tuple(lock for place in roots for lock in _open_locks(place, name, group))
            except OSError as error:
                problem = problem or f"{root or roots[0]}/{name}: {error.strerror}"
                hint = hint or full_hint(error, f"{root}/{name}")
                continue
            if locks:
                return locks
        problem = problem or f"{roots[0]}/{name}: can't set its group to docker"
        raise Unable(f"can't open the node's lock ({problem}); nothing was done", hint)

    def _own(self, key: str, token: str) -> Words | None:
        """The note of the runner that holds the lock, if it serves the same console."""
        for path, _ in self.journals.folders if self.journals is not None else ():
            try:
                words = json.loads(read_text(f"{path}/runner.lock"))
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(words, dict) and key and token and [words.get("key"), words.get("token")] == [key, token]:
                return words
        return None

    @staticmethod
    def _replace(own: Words) -> None:
        """Terminate this console's older runner before its lease does; a step's process stays."""
        pid = own.get("pid")
        if not isinstance(pid, int) or pid <= 1 or pid == os.getpid() or started_ticks(pid) != own.get("started"):
            return
        try:
            os.kill(pid, 15)
        except OSError:
            pass


def docker_group() -> int | None:
    """The group whose members may use Docker, where this process is one of them."""
    try:
        group = grp.getgrnam("docker").gr_gid
    except KeyError:
        return None
    return group if os.geteuid() == 0 or group in (os.getegid(), *os.getgroups()) else None


def _open_locks(root: str, name: str, group: int | None) -> tuple[int, ...]:
    """Every lock file of that name or a longer one, in their order; a group's are its own alone."""
    locks = []
    for entry in sorted(os.listdir(root)):
        if entry != name and not entry.startswith(f"{name}."):
            continue
        # Without O_CREAT, which fs.protected_regular refuses for another user's file.
        for flags in (os.O_RDWR, os.O_RDONLY):
            try:
                lock = os.open(f"{root}/{entry}", flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue  # another user's, or what no lock is
            status = os.fstat(lock)
            if stat.S_ISREG(status.st_mode) and (
                group is None or (status.st_gid == group and not status.st_mode & 0o007)
            ):
                locks.append(lock)
            else:
                os.close(lock)
            break
    return tuple(locks)


def _make_lock(root: str, name: str, group: int | None) -> None:
    """Create a lock file, for that group alone or for all: under the plain name, or a longer one where that is taken.

    Raises:
        OSError: nothing can be created there.
    """
    for each in (name, f"{name}.{os.urandom(8).hex()}"):
        try:
            lock = os.open(f"{root}/{each}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        try:
            if group is not None:
                os.fchown(lock, -1, group)
            os.fchmod(lock, 0o666 if group is None else 0o660)  # whatever the umask
        finally:
            os.close(lock)
        return


def _is_for_all(folder: str) -> bool:
    """Whether every user may create files there; otherwise root's lock would be a different file."""
    try:
        return os.stat(folder).st_mode & 0o1002 == 0o1002
    except OSError:
        return False


def holder_words(lock: int) -> Words:
    """Who holds the lock; any user may have written these words."""
    try:
        words = json.loads(os.pread(lock, 4096, 0))
    except (OSError, ValueError, RecursionError):
        words = None
    words = words if isinstance(words, dict) else {}
    since = words.get("since")
    texts = {key: value for key, value in words.items() if isinstance(value, str)}
    is_time = isinstance(since, (int, float)) and not isinstance(since, bool) and 0 <= since < 1e11
    return {
        "who": texts.get("who", "")[:200] or "somebody",
        "what": texts.get("what", "")[:300],
        "since": since if is_time else None,
        "token": texts.get("token", ""),
    }
