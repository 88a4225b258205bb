"""Programs with a time limit, and programs as root.

A program is an argv, never a shell's text. Its process group is killed when its time is over.
As root: directly, else by `sudo -n`, else by sudo with a password. The password is written only after sudo has printed
our random prompt: written blindly it would land in the command's input (docs/facts/reliability.md, section 3.1).
Standard input is closed behind it, so that sudo doesn't ask twice and no command waits for input.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time

from sparktop.probe.runner.journal import Unable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TERM_S = 5.0
"""How long SIGTERM, and then SIGKILL, may take."""
TICK_S = 1.0
SEEN_BYTES = 16 * 1024
"""How much of the end of an output is kept for masking: four times what is reported, so that no secret is cut."""
PASSWORDS_AT_MOST = 3
_NEEDS_PASSWORD = re.compile(rb"^sudo[\w-]*: .*(?:a password is required|authentication is required)", re.MULTILINE)
_NEEDS_TTY = re.compile(rb"^sudo[\w-]*: .*have a tty", re.MULTILINE)
_DENIED = re.compile(
    rb"^(?:Sorry, user \S+ (?:is not allowed to execute|may not run sudo)|\S+ is not in the sudoers file"
    rb"|sudo[\w-]*: (?:Sorry|I'm sorry) .*\. I'm afraid I can't do that)",
    re.MULTILINE,
)
_WRONG = re.compile(rb"^sudo[\w-]*: (?:\d+ incorrect |Authentication fail|Maximum \d+ incorrect)", re.MULTILINE)


class Program:
    """A running program: its output is collected, and its process group is killed when its time is over."""

    def __init__(
        self,
        argv: list[str],
        *,
        overlay: dict[str, str] | None = None,
        keep: int = SEEN_BYTES,
        is_tail: bool = True,
        errors_apart: bool = False,
        types: bool = False,
    ) -> None:
        """Start it; keeps `keep` bytes of its output, of the end or of the beginning.

        `errors_apart` collects standard error in `errors`; `types` leaves its input open for `type`.

        Raises:
            OSError: there is no such program, or no memory for a process.
        """
        self.keep = keep
        self.is_tail = is_tail
        self.said = bytearray()
        self.errors = bytearray()
        self.cut = False
        self.timed_out = False
        self.left = False
        """It couldn't be killed: it is another user's (sudo's), or stuck in the kernel."""
        self.input = -1
        out, out_write = os.pipe()
        err, err_write = os.pipe() if errors_apart else (-1, -1)
        typed = -1
        opened = [out_write, err_write]
        actions: list[tuple[object, ...]] = [
            (os.POSIX_SPAWN_DUP2, out_write, 1),
            (os.POSIX_SPAWN_DUP2, err_write if errors_apart else out_write, 2),
        ]
        if types:
            typed, self.input = os.pipe()
            opened.append(typed)
            actions.append((os.POSIX_SPAWN_DUP2, typed, 0))
        else:
            actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
        try:
            # A name without a slash is looked for in PATH, a relative path in the current folder.
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                {**os.environ, **(overlay or {})},
                file_actions=actions,
                setpgroup=0,
                setsigdef=[signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM],
            )
        except (OSError, ValueError):
            for descriptor in (out, err, self.input):
                if descriptor >= 0:
                    os.close(descriptor)
            raise
        finally:
            for descriptor in opened:
                if descriptor >= 0:
                    os.close(descriptor)
        self.ended = os.pidfd_open(self.pid)
        self.poll = select.poll()
        self.sources = {out: self.said}
        if errors_apart:
            self.sources[err] = self.errors
        for descriptor in (self.ended, *self.sources):
            self.poll.register(descriptor, select.POLLIN)

    def type(self, words: bytes) -> None:
        """Write to its input, and close it."""
        if self.input >= 0:
            try:
                os.write(self.input, words)
            except OSError:
                pass  # it has ended; its output says why
            os.close(self.input)
            self.input = -1

    def wait(
        self, seconds: float, *, heard: Callable[[], object] | None = None, control: int = -1,
        tick: Callable[[], object] | None = None,
    ) -> int | None:  # fmt: skip
        """Its exit code (minus the number of a signal); None when its time was over.

        `heard` is called after each output: when it returns true, the wait ends with -1, and the program goes on.
        `tick` is called every second or oftener: when it returns true, its time is over. So it is when the descriptor
        `control` hangs up.
        """
        deadline = time.monotonic() + seconds
        signals = [signal.SIGTERM, signal.SIGKILL]
        if control >= 0:
            self.poll.register(control, 0)
        while True:
            left = deadline - time.monotonic()
            ready = self.poll.poll(max(0, int((left if tick is None else min(left, TICK_S)) * 1000) + 1))
            names = [descriptor for descriptor, _ in ready]
            spoke = [descriptor for descriptor in names if descriptor in self.sources]
            for descriptor in spoke:
                self._take(descriptor)
            if self.ended in names:
                for descriptor in list(self.sources):  # its last output; a child of its own may keep the pipe open
                    while descriptor in self.sources and select.select([descriptor], [], [], 0)[0]:
                        self._take(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                self.close()
                return None if self.timed_out else code
            if spoke and heard is not None and not self.timed_out and heard():
                return -1
            if control in names:
                self.poll.unregister(control)
                control, deadline = -1, 0.0
            if tick is not None and not self.timed_out and tick():
                deadline = 0.0
            if time.monotonic() >= deadline:
                self.timed_out = True
                if not signals:
                    self.left = True
                    self.close()
                    return None
                try:
                    os.killpg(self.pid, signals.pop(0))
                except PermissionError:
                    signals.clear()  # sudo's process is root's: `timeout`, which sudo runs, kills it
                except ProcessLookupError:
                    pass
                deadline = time.monotonic() + TERM_S

    def close(self) -> None:
        self.type(b"")
        for descriptor in (*self.sources, self.ended):
            if descriptor >= 0:
                os.close(descriptor)
        self.sources = {}
        self.ended = -1

    def _take(self, descriptor: int) -> None:
        chunk = os.read(descriptor, 65536)
        kept = self.sources[descriptor]
        if not chunk:
            self.poll.unregister(descriptor)
            os.close(descriptor)
            del self.sources[descriptor]
            return
        limit = self.keep if kept is self.said else SEEN_BYTES
        kept += chunk
        if len(kept) > limit:
            if kept is self.said:
                self.cut = True
            if self.is_tail or kept is not self.said:
                del kept[: len(kept) - limit]
            else:
                del kept[limit:]


def start_problem(argv: list[str], error: Exception) -> str:
    """Why a program couldn't be started."""
    if isinstance(error, FileNotFoundError):
        return f"this machine has no program {argv[0]}"
    return f"{argv[0]} can't start: {getattr(error, 'strerror', None) or error}"


class AsRoot:
    """One program as root, in the first form that sudo permits."""

    def __init__(self, argv: list[str], seconds: float, secret: Callable[[int], str | None]) -> None:
        """`secret` asks the operator for the password, given how many were wrong so far.

        Raises:
            Unable: from `run`, when sudo refuses; then nothing was done.
        """
        self.argv = argv
        self.seconds = seconds
        self.secret = secret
        # This user can't kill root's program: `timeout`, which sudo runs as root, does. Where sudo's rules permit the
        # exact command alone, it runs without.
        self.forms = [["timeout", "-k", f"{TERM_S:g}", f"{seconds:g}", *argv], argv]
        self.said = b""
        self.left = False

    def run(self, still: Callable[[], bool] = lambda: True) -> int | None:
        """Its exit code, None when its time was over; `still` tells before each attempt whether it is needed yet."""
        if os.getuid() == 0:
            program = Program(self.argv)
            code = program.wait(self.seconds)
            self.said, self.left = bytes(program.said), program.left
            return code
        for form in self.forms:
            if not still():
                return 0
            code = self._try(["sudo", "-n", "--", *form])
            if code != 1 or not self._refusal():
                return self._bounded(code, form)
        refusal = self._refusal()
        if refusal != "password":
            raise Unable(refusal)
        return self._with_password(still)

    def _with_password(self, still: Callable[[], bool]) -> int | None:
        wrong = 0
        while wrong < PASSWORDS_AT_MOST:
            password = self.secret(wrong)
            if password is None:
                raise Unable("sudo got no password; nothing was done")
            for form in self.forms:
                if not still():
                    return 0
                marker = "sparktop-" + os.urandom(12).hex()
                code, asked = self._try_typing(marker, password, form)
                refusal = self._refusal() if code == 1 else ""
                if asked > 1 or refusal == "password" or (code == 1 and _WRONG.search(self.said)):
                    wrong += 1
                    break
                if not refusal:
                    return self._bounded(code, form)
            else:
                raise Unable(refusal)
        raise Unable(f"sudo refused the password {wrong} times; nothing was done")

    def _try(self, argv: list[str]) -> int | None:
        program = Program(argv, overlay={"LC_ALL": "C"})
        code = program.wait(self.seconds + 2 * TERM_S)
        self.said, self.left = bytes(program.said), program.left
        return code

    def _try_typing(self, marker: str, password: str, form: list[str]) -> tuple[int | None, int]:
        """(exit code, how often sudo asked): the password is written once, after sudo asked for it."""
        mark = marker.encode()
        argv = ["sudo", "-S", "-k", "-p", marker, "--", *form]
        program = Program(argv, overlay={"LC_ALL": "C"}, types=True)
        code = program.wait(self.seconds + 2 * TERM_S, heard=lambda: mark in program.said)
        if code != -1 or program.ended < 0:
            self.said, self.left = bytes(program.said), program.left
            return code, self.said.count(mark)
        program.type(password.encode() + b"\n")
        code = program.wait(self.seconds + 2 * TERM_S)
        said = bytes(program.said)
        asked = max(1, said.count(mark))
        self.said, self.left = said.rpartition(mark)[2].lstrip(b"]"), program.left
        if asked == 1 and self.said.startswith(b" Password:"):  # sudo-rs
            self.said = self.said[10:]
        return code, asked

    def _bounded(self, code: int | None, form: list[str]) -> int | None:
        return None if form is not self.argv and code in (124, 137) else code

    def _refusal(self) -> str:
        """Why sudo ran nothing, by its own words: "password", or a sentence; empty: it ran the program."""
        if _NEEDS_TTY.search(self.said):
            return "sudo needs a terminal on this machine (requiretty), and a runner has none"
        if _DENIED.search(self.said):
            return "sudo doesn't allow this for the user who is logged in; nothing was done"
        return "password" if _NEEDS_PASSWORD.search(self.said) else ""
