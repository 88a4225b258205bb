"""What outlives a runner: the journals of steps, and the node's lock.

A journal is a file of JSON lines in a folder of this user alone, in tmpfs that survives a logout (logind removes
/run/user/UID and a user's files in /dev/shm). Its writer holds a flock on it: a journal without an end that nobody
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


def open_folder(roots: tuple[str, ...]) -> tuple[str, int]:
    """The private folder, created where it is missing: (path, descriptor).

    Raises:
        Unable: it can't be created in any of the roots.
    """
    problem, hint = "there is no place to write it", ""
    for path in (path for root in roots for path in _folder_paths(root)):
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
            return path, folder
        os.close(folder)
        problem = f"{path} belongs to another user"
    raise Unable(f"the runner can't keep a journal ({problem}), and does nothing without one", hint)


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
    """The journals in the private folder."""

    def __init__(self, roots: tuple[str, ...] = STATE_ROOTS) -> None:
        self.path, self.folder = open_folder(roots)
        self.boot = boot_id()
        self.started = time.clock_gettime(time.CLOCK_BOOTTIME)

    def begin(self, run: str, step: str) -> int | None:
        """Create and lock a journal; returns its descriptor, or None when the step was begun before.

        Raises:
            Unable: it can't be written, or the step is barred.
        """
        name = file_name(run, step)
        try:
            self._hold_folder()
            try:
                self._tidy()
                barred = self._barred(name)
                if barred is not None:
                    if self.started < barred:
                        raise Unable(TOO_LATE)
                    os.unlink(name, dir_fd=self.folder)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    journal = os.open(name, flags, 0o600, dir_fd=self.folder)
                except FileExistsError:
                    return None
                try:
                    fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    words = {"run": run, "step": step, "boot": self.boot, "wall": time.time(), "pid": os.getpid()}
                    append(journal, {"started": words})
                except OSError:
                    os.close(journal)
                    os.unlink(name, dir_fd=self.folder)
                    raise
                return journal
            finally:
                fcntl.flock(self.folder, fcntl.LOCK_UN)
        except OSError as error:
            problem = f"the runner can't write its journal ({self.path}: {error.strerror}); nothing was done"
            raise Unable(problem, full_hint(error, f"{self.path}/")) from None

    def forget(self, run: str, step: str) -> None:
        """Remove the journal of a step that did nothing."""
        os.unlink(file_name(run, step), dir_fd=self.folder)

    def outcome(self, run: str, step: str) -> Words:
        """A step's outcome, as in the protocol; a step that never started is barred from older runners."""
        name = file_name(run, step)
        try:
            self._hold_folder()
            try:
                held, lines = self._read(name)
                if lines is None or (lines and "barred" in lines[0]):
                    barred = os.open(
                        name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600,
                        dir_fd=self.folder,
                    )  # fmt: skip
                    try:
                        append(barred, {"barred": self.started})
                    finally:
                        os.close(barred)
                    return {"state": "not started"}
            finally:
                fcntl.flock(self.folder, fcntl.LOCK_UN)
        except OSError as error:
            raise Unable(f"the runner can't read its journal ({self.path}: {error.strerror})") from None
        return outcome_of(lines, boot=self.boot, is_held=held, progress=self._progress(name) if held else None)

    def end(self, run: str, step: str) -> Words:
        """Tell a step that fetches to stop, whichever runner began it; returns its outcome now."""
        outcome = self.outcome(run, step)
        if outcome["state"] == "running":
            try:
                mark(self.folder, file_name(run, step)[:-5] + ".ending")
            except OSError as error:
                raise Unable(f"the runner can't stop it ({self.path}: {error.strerror})") from None
        return outcome

    def _progress(self, name: str) -> Words | None:
        try:
            words = json.loads(read_text(f"{self.path}/{name[:-5]}.progress"))
        except (OSError, ValueError, RecursionError):
            return None  # it doesn't fetch, or has no progress yet
        return words if isinstance(words, dict) else None

    def _hold_folder(self) -> None:
        """Lock the folder, which this user's runners hold for moments only.

        Raises:
            OSError: another runner keeps it.
        """
        for _ in range(200):
            try:
                fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.01)
        raise OSError(errno.EBUSY, "another runner is using it")

    def _barred(self, name: str) -> float | None:
        _, lines = self._read(name)
        return float(lines[0]["barred"]) if lines and "barred" in lines[0] else None

    def _read(self, name: str) -> tuple[bool, list[Words] | None]:
        """(whether its step still runs, its lines; None where there is no journal)."""
        try:
            journal = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)
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
            for line in text.split(b"\n"):
                try:
                    words = json.loads(line)
                except (ValueError, RecursionError):
                    continue  # the last line, cut
                if isinstance(words, dict):
                    lines.append(words)
            return held, lines
        finally:
            os.close(journal)

    def _tidy(self) -> None:
        """Remove files that are a day old or beyond the newest KEPT_FILES, never one that is locked."""
        ages = []
        for name in os.listdir(self.folder):
            if name.endswith((".step", ".content", ".progress", ".ending", ".key")):
                ages.append((os.stat(name, dir_fd=self.folder, follow_symlinks=False).st_mtime, name))
        ages.sort(reverse=True)
        now = time.time()
        for number, (changed, name) in enumerate(ages):
            if (number < KEPT_FILES and now - changed < KEPT_S) or self._read(name)[0]:
                continue
            os.unlink(name, dir_fd=self.folder)


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
    that is Docker's group's alone: nobody outside can make one, or open it. Under its plain name another user may have
    put something else; then it has a longer name, and as two may be made at once, all that there are are locked. Who
    may not use Docker locks a file for all.
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
            self._note({"key": key, "token": token, "pid": os.getpid(), "started": started_ticks("self")})
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
        root = next((root for root in self.roots if _is_for_all(root)), self.roots[-1])
        group = docker_group()
        if group is None:
            return (_open_for_all(root),)
        try:
            locks = _open_groups(root, group)
            if not locks:
                _make_groups(root, group)
                locks = _open_groups(root, group)
            if not locks:
                raise OSError(errno.EPERM, "can't set its group to docker")
        except OSError as error:
            where = f"{root}/{GROUP_LOCK_NAME}"
            problem = f"can't open the node's lock ({where}: {error.strerror}); nothing was done"
            raise Unable(problem, full_hint(error, where)) from None
        return locks

    def _note(self, words: Words) -> None:
        """Write a note in the private folder: any user may have written what is in the lock's own file."""
        assert self.journals is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            note = os.open("runner.lock", flags, 0o600, dir_fd=self.journals.folder)
        except OSError:
            return
        try:
            os.write(note, json.dumps(words).encode())
        except OSError:
            pass
        finally:
            os.close(note)

    def _own(self, key: str, token: str) -> Words | None:
        """The note of the runner that holds the lock, if it serves the same console."""
        if self.journals is None:
            return None
        try:
            words = json.loads(read_text(f"{self.journals.path}/runner.lock"))
        except (OSError, ValueError, RecursionError):
            return None
        own = isinstance(words, dict) and key and token and [words.get("key"), words.get("token")] == [key, token]
        return words if own else None

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


def _open_groups(root: str, group: int) -> tuple[int, ...]:
    """Every lock file of that group alone, in the order of their names."""
    locks = []
    for name in sorted(os.listdir(root)):
        if name == GROUP_LOCK_NAME or name.startswith(f"{GROUP_LOCK_NAME}."):
            try:
                lock = os.open(f"{root}/{name}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue  # nothing that the group's members made
            status = os.fstat(lock)
            if stat.S_ISREG(status.st_mode) and status.st_gid == group and not status.st_mode & 0o007:
                locks.append(lock)
            else:
                os.close(lock)
    return tuple(locks)


def _make_groups(root: str, group: int) -> None:
    """Create a lock file of that group alone: under the plain name, or a longer one where that is taken."""
    for name in (GROUP_LOCK_NAME, f"{GROUP_LOCK_NAME}.{os.urandom(8).hex()}"):
        try:
            lock = os.open(f"{root}/{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        try:
            os.fchown(lock, -1, group)
            os.fchmod(lock, 0o660)
        finally:
            os.close(lock)
        return


def _open_for_all(root: str) -> int:
    """The lock file that every user can open."""
    path = f"{root}/{LOCK_NAME}"
    plain = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    problem, hint = "it doesn't exist", ""
    # First without O_CREAT: fs.protected_regular refuses that for another user's file.
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        try:
            lock = os.open(path, flags | plain, 0o666)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EEXIST):
                problem, hint = str(error.strerror), full_hint(error, path) or _lock_hint(path)
            continue
        if os.fstat(lock).st_mode & 0o170000 != 0o100000:
            os.close(lock)
            problem, hint = "it is not a file", _lock_hint(path)
            break
        if flags & os.O_CREAT:
            os.fchmod(lock, 0o666)  # whatever the umask: another user must be able to lock it
        return lock
    raise Unable(f"can't open the node's lock ({path}: {problem}); nothing was done", hint)


def _lock_hint(path: str) -> str:
    """What helps where a link, a FIFO, a folder or a file of nobody else's stands in the lock's place."""
    return f"check what it is and whose: ls -ld {path}; then remove it: sudo rm -r {path}"


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
