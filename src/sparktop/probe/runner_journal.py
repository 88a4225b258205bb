"""The runner: what outlives it, journals of steps and the lock of the node (the rest: `runner`).

A journal is one file of JSON lines in a folder of this user alone, in tmpfs, which a logout leaves alone (logind
removes /run/user/UID and what a user has in /dev/shm). Whoever writes one holds a flock on it, so that a journal
without an end that nobody holds is known to be one whose step was killed. It holds neither bodies nor contents nor
environments; outputs come masked.

    {"begun": {run, step, boot, wall, pid}}   {"result": {...}}   {"end": {state, problem, undone, saved}}
    {"barred": started}    asked about before it was begun: a runner started before that (boot seconds) won't begin it

Beside it, of a step that fetches (`runner_fetch`): RUN.STEP.progress, the newest alone, written over and over; and
RUN.STEP.ending, put there by whichever runner was asked to end it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Words = dict[str, Any]

STATE_ROOTS = ("/run/lock", "/tmp")
KEPT_S = 24 * 3600.0
KEPT_FILES = 50
JOURNAL_BYTES = 8 << 20
LOCK_NAME = "sparktop.lock"


class Unable(Exception):
    """Why something can't be done here; nothing was."""


def read_text(path: str, limit: int = 65536) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def boot_id() -> str:
    try:
        return read_text("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


def started_ticks(pid: int | str) -> int | None:
    """Field 22 of /proc/PID/stat; None when there is no such process, or only its zombie."""
    try:
        words = read_text(f"/proc/{pid}/stat", 1024).rpartition(")")[2].split()
        return None if words[0] in "ZX" else int(words[19])
    except (OSError, ValueError, IndexError):
        return None


def open_folder(roots: tuple[str, ...]) -> tuple[str, int]:
    """The private folder, made where it isn't there: (path, descriptor).

    Raises:
        Unable: none of the places would do.
    """
    problem = "there is no place for it"
    for root in roots:
        path = f"{root}/sparktop-{os.getuid()}"
        try:
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            problem = f"{path}: {error.strerror}"
            continue
        found = os.fstat(folder)
        # Everybody may write beside it: another user may have made it first, or a link in its place.
        if found.st_uid == os.getuid() and found.st_mode & 0o077 == 0:
            return path, folder
        os.close(folder)
        problem = f"{path} belongs to somebody else"
    raise Unable(f"no journal can be kept ({problem}), and without one nothing is done")


def file_name(run: str, step: str) -> str:
    """A journal's: letters, digits and "-_@" stand for themselves, so that no name leads out of the folder."""
    words = []
    for word in (run, step):
        if not word or len(word) > 80:
            raise Unable("a run and a step need names of at most 80 characters")
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_@") else f"%{ord(c):x}." for c in word)
        words.append(safe)
    return f"{words[0]}.{words[1]}.step"


class Journals:
    """The folder's journals, as one runner sees them."""

    def __init__(self, roots: tuple[str, ...] = STATE_ROOTS) -> None:
        self.path, self.folder = open_folder(roots)
        self.boot = boot_id()
        self.started = time.clock_gettime(time.CLOCK_BOOTTIME)

    def begin(self, run: str, step: str) -> int | None:
        """A new journal's descriptor, held; None when this step was begun before.

        Raises:
            Unable: it can't be kept, or the step was given up before it came here.
        """
        name = file_name(run, step)
        try:
            self._hold_folder()
            try:
                self._tidy()
                barred = self._barred(name)
                if barred is not None:
                    if self.started < barred:
                        raise Unable("it came too late: the console has asked about it on a newer connection")
                    os.unlink(name, dir_fd=self.folder)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    journal = os.open(name, flags, 0o600, dir_fd=self.folder)
                except FileExistsError:
                    return None
                try:
                    fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    words = {"run": run, "step": step, "boot": self.boot, "wall": time.time(), "pid": os.getpid()}
                    append(journal, {"begun": words})
                except OSError:
                    os.close(journal)
                    os.unlink(name, dir_fd=self.folder)
                    raise
                return journal
            finally:
                fcntl.flock(self.folder, fcntl.LOCK_UN)
        except OSError as error:
            raise Unable(f"its journal can't be written ({self.path}: {error.strerror}); nothing was done") from None

    def forget(self, run: str, step: str) -> None:
        """Take a beginning back: nothing was done."""
        os.unlink(file_name(run, step), dir_fd=self.folder)

    def outcome(self, run: str, step: str) -> Words:
        """What became of it, as in the protocol; one that was never begun is barred from older runners."""
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
                    return {"state": "never begun"}
            finally:
                fcntl.flock(self.folder, fcntl.LOCK_UN)
        except OSError as error:
            raise Unable(f"its journal can't be read ({self.path}: {error.strerror})") from None
        results = [line["result"] for line in lines if isinstance(line.get("result"), dict)]
        ends = [line["end"] for line in lines if isinstance(line.get("end"), dict)]
        begun = lines[0].get("begun") if lines else None
        if ends:
            return {"results": results, **ends[-1]}
        if held:
            return {"state": "running", "results": results, "progress": self._progress(name)}
        rebooted = isinstance(begun, dict) and begun.get("boot") != self.boot
        problem = "the node was rebooted in the middle of it" if rebooted else "what did it was killed in the middle"
        return {"state": "gone", "results": results, "problem": problem}

    def end(self, run: str, step: str) -> Words:
        """Ask a step that fetches to end, whichever runner began it; its outcome as it is now."""
        found = self.outcome(run, step)
        if found["state"] == "running":
            try:
                mark(self.folder, file_name(run, step)[:-5] + ".ending")
            except OSError as error:
                raise Unable(f"it can't be told to end ({self.path}: {error.strerror})") from None
        return found

    def _progress(self, name: str) -> Words | None:
        try:
            words = json.loads(read_text(f"{self.path}/{name[:-5]}.progress"))
        except (OSError, ValueError):
            return None  # not one that fetches, or not that far yet
        return words if isinstance(words, dict) else None

    def _hold_folder(self) -> None:
        """Between runners of this user, for moments."""
        for _ in range(200):
            try:
                fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.01)
        raise OSError(errno.EBUSY, "another runner keeps it busy")

    def _barred(self, name: str) -> float | None:
        _, lines = self._read(name)
        return float(lines[0]["barred"]) if lines and "barred" in lines[0] else None

    def _read(self, name: str) -> tuple[bool, list[Words] | None]:
        """(somebody is writing it, its lines; None where there is none)."""
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
                except ValueError:
                    continue  # the last one, cut
                if isinstance(words, dict):
                    lines.append(words)
            return held, lines
        finally:
            os.close(journal)

    def _tidy(self) -> None:
        """Remove what is a day old, what is over the number kept, and what a killed step left: never what is held."""
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


def mark(folder: int, name: str) -> None:
    """An empty file."""
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder))


def append(journal: int, words: Words) -> None:
    """One line; a cut one is none."""
    line = json.dumps(words, separators=(",", ":")).encode() + b"\n"
    if os.write(journal, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# --- the lock of the node ---------------------------------------------------------------------------------------------


class NodeLock:
    """One change of the node at a time, whoever's: a flock that this runner and its steps' processes hold."""

    def __init__(self, roots: tuple[str, ...], journals: Journals | None) -> None:
        self.roots = roots
        self.journals = journals
        self.descriptor = -1

    def take(self, who: str, what: str, key: str) -> Words:
        """The reply to `lock`.

        Raises:
            Unable: there is no file to hold.
        """
        if self.descriptor < 0:
            lock = self._open()
            asked_to_leave = False
            for attempt in range(100):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    holder = holder_words(lock)
                    own = self._own(key, holder.pop("token"))
                    if own is None or attempt == 99:
                        os.close(lock)
                        return {"held": False, **holder, "own": own is not None}
                    if not asked_to_leave:
                        asked_to_leave = True
                        self._replace(own)
                    time.sleep(0.02)
            self.descriptor = lock
        token = os.urandom(8).hex()
        words = {"who": who[:200], "what": what[:300], "since": round(time.time(), 3), "token": token}
        text = json.dumps(words).encode()
        try:
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, text, 0)
        except OSError:
            pass  # opened for reading alone: held all the same, only without words
        if self.journals is not None:
            self._note({"key": key, "token": token, "pid": os.getpid(), "started": started_ticks("self")})
        return {"held": True}

    def give_back(self, *, steps_left: bool) -> None:
        """Let go; a step's process that is still at it keeps it held, and its words in place."""
        if self.descriptor < 0:
            return
        if not steps_left:
            try:
                os.ftruncate(self.descriptor, 0)
            except OSError:
                pass
        os.close(self.descriptor)
        self.descriptor = -1

    def _open(self) -> int:
        root = next((root for root in self.roots if _is_for_all(root)), self.roots[-1])
        path = f"{root}/{LOCK_NAME}"
        plain = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        # Without O_CREAT where it is there: fs.protected_regular refuses that for another user's file.
        for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
            try:
                lock = os.open(path, flags | plain, 0o666)
            except OSError as error:
                problem = error.strerror
                continue
            if os.fstat(lock).st_mode & 0o170000 != 0o100000:
                os.close(lock)
                problem = "it is no file"
                break
            if flags & os.O_CREAT:
                os.fchmod(lock, 0o666)  # whatever the umask: the next one may be another user
            return lock
        raise Unable(f"the node's lock can't be opened ({path}: {problem}); nothing was done")

    def _note(self, words: Words) -> None:
        """In the private folder: what is in the lock's own file anybody may have written."""
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
        """The note of a runner of the same console, where that is who holds the lock."""
        if self.journals is None:
            return None
        try:
            words = json.loads(read_text(f"{self.journals.path}/runner.lock"))
        except (OSError, ValueError):
            return None
        own = isinstance(words, dict) and key and token and [words.get("key"), words.get("token")] == [key, token]
        return words if own else None

    @staticmethod
    def _replace(own: Words) -> None:
        """Ask our console's older runner to leave; its lease would end it too, only later. A step's process stays."""
        pid = own.get("pid")
        if not isinstance(pid, int) or pid <= 1 or pid == os.getpid() or started_ticks(pid) != own.get("started"):
            return
        try:
            os.kill(pid, 15)
        except OSError:
            pass


def _is_for_all(folder: str) -> bool:
    """Whether every user may make files there: else root's lock would not be the others'."""
    try:
        return os.stat(folder).st_mode & 0o1002 == 0o1002
    except OSError:
        return False


def holder_words(lock: int) -> Words:
    """Who holds it, by words that any user may have written."""
    try:
        words = json.loads(os.pread(lock, 4096, 0))
    except (OSError, ValueError, RecursionError):
        words = None
    words = words if isinstance(words, dict) else {}
    since = words.get("since")
    return {
        "who": str(words.get("who") or "somebody")[:200],
        "what": str(words.get("what") or "")[:300],
        "since": since if isinstance(since, (int, float)) and not isinstance(since, bool) else None,
        "token": str(words.get("token") or ""),
    }
