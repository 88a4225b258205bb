"""Questions, which change nothing: each is answered in a child that ends with the runner."""

from __future__ import annotations

import _socket
import errno
import json
import os
import re

from sparktop.probe.runner.docker import DockerEngine, DockerLost, said_by_docker, unframed
from sparktop.probe.runner.hub import hub_model
from sparktop.probe.runner.journal import user_name
from sparktop.probe.runner.models import ModelFolders
from sparktop.probe.runner.notes import note, noted
from sparktop.probe.runner.program import Program, start_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Words = dict[str, Any]

ANSWER_BYTES = 4 << 20
TEXT_BYTES = 256 * 1024
"""The limit of a program's output and of a file, where the question has none."""
CHUNK_CHARS = 16 * 1024
"""At most 100 KB on the wire, if JSON escapes every character."""
_TAG = re.compile(r"^(?:[A-Z_]+: )+")


NO_PROGRAM = 127
"""A shell's exit code where there is no such program."""


def bounded(words: Words, usual: int = TEXT_BYTES) -> int:
    """The answer's limit in bytes."""
    return max(1, min(ANSWER_BYTES, int(words.get("limit") or usual)))


def answer_of(data: bytes, *, code: int | None = None, problem: str = "", cut: bool = False) -> list[Words]:
    """The lines of an answer: its text in chunks, then its end."""
    text = data.decode("utf-8", "replace")
    chunks: list[Words] = [
        {"kind": "chunk", "text": text[at : at + CHUNK_CHARS]} for at in range(0, len(text), CHUNK_CHARS)
    ]
    return [*chunks, {"kind": "answer", "found": True, "code": code, "problem": problem, "cut": cut}]


def no_answer(problem: str = "", *, code: int | None = None) -> list[Words]:
    """The line that says that there is nothing, and why."""
    return [{"kind": "answer", "found": False, "code": code, "problem": problem, "cut": False}]


def docker_answer(status: int, content_type: str, body: bytes, *, cut: bool, is_tail: bool) -> list[Words]:
    """The lines for what the Docker Engine answered; a log comes without its frames."""
    if status == 404:
        return no_answer("", code=status)
    if status != 200:
        return no_answer(said_by_docker(status, body), code=status)
    if "json" not in content_type:
        body = unframed(body, is_cut=cut and is_tail)
    return answer_of(body, code=status, cut=cut)


def output_answer(
    argv: list[str], code: int | None, said: bytes, errors: bytes, *, seconds: float, cut: bool
) -> list[Words]:
    """The lines for a program that has ended, or was ended after its `seconds` (`code` is None)."""
    problem = ""
    if code is None:
        problem = f"{argv[0]} took more than {seconds:g} s"
    elif code:
        why = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
        problem = f"{argv[0]} exited with {code}" + (f": {why[0][:300]}" if why[0] else "")
    if problem and not said:
        return no_answer(problem, code=code)
    return answer_of(said, code=code, problem=problem, cut=cut)


class Question:
    """One question; its answer is sent in chunks."""

    def __init__(
        self, tell: Callable[..., object], *, docker: str, control: int, folders: tuple[tuple[str, ...], list[str]]
    ) -> None:
        """`control` is a descriptor that hangs up when the runner has left; `folders` as `notes.noted` takes them."""
        self.folders = folders
        self.tell = tell
        self.docker = docker
        self.control = control

    def answer(self, request: Words) -> None:
        if "privileges" in request:
            self.tell(privileges(self.docker, self.control))
        elif "get" in request:
            self._get(request["get"])
        elif "output" in request:
            self._output(request["output"])
        elif "models" in request:
            words = request["models"]
            roots = [str(root) for root in words.get("roots") or ()]
            folders = ModelFolders(roots, float(words.get("seconds") or 20.0), str(words.get("cache") or ""))
            self._send(answer_of(json.dumps(folders.answer()).encode()))
        elif "hub" in request:
            self._send(answer_of(json.dumps(hub_model(request["hub"])).encode()))
        elif "note" in request:
            words = request["note"]
            problem = note(str(words["run"]), str(words["entry"]))
            self._send(no_answer(problem) if problem else answer_of(b""))
        elif "notes" in request:
            self._send(answer_of(json.dumps(noted(*self.folders)).encode()))
        else:
            self._file(request["file"])

    def _send(self, lines: list[Words]) -> None:
        for line in lines:
            self.tell(line)

    def _get(self, words: Words) -> None:
        where, _, query = str(words["path"]).partition("?")
        pairs = dict(part.partition("=")[::2] for part in query.split("&") if part)
        limit, is_tail = bounded(words, ANSWER_BYTES), bool(words.get("from_end"))
        try:
            status, headers, body, cut = DockerEngine(self.docker).ask(
                "GET", where, pairs, seconds=float(words.get("seconds") or 10.0), limit=limit, is_tail=is_tail
            )
        except DockerLost as lost:
            self._send(no_answer(str(lost)))
            return
        self._send(docker_answer(status, headers.get("content-type", ""), body, cut=cut, is_tail=is_tail))

    def _output(self, words: Words) -> None:
        argv = [str(word) for word in words["argv"]]
        seconds = float(words.get("seconds") or 5.0)
        try:
            program = Program(
                argv,
                overlay={"LC_ALL": "C.UTF-8"},
                keep=bounded(words),
                is_tail=bool(words.get("from_end")),
                errors_apart=True,
            )
        except (OSError, ValueError) as error:
            code = NO_PROGRAM if isinstance(error, FileNotFoundError) else None
            self._send(no_answer(start_problem(argv, error), code=code))
            return
        code = program.wait(seconds, control=self.control)
        self._send(
            output_answer(argv, code, bytes(program.said), bytes(program.errors), seconds=seconds, cut=program.cut)
        )

    def _file(self, words: Words) -> None:
        path, limit = str(words["path"]), bounded(words)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (FileNotFoundError, NotADirectoryError):
            self._send(no_answer())
            return
        except (OSError, ValueError) as error:
            self._send(no_answer(f"{path} can't be read: {getattr(error, 'strerror', None) or error}"))
            return
        try:
            size = os.fstat(file).st_size
            if words.get("from_end") and size > limit:
                os.lseek(file, -limit, os.SEEK_END)
            data = b""
            while len(data) <= limit and (piece := os.read(file, limit + 1 - len(data))):
                data += piece
        except OSError as error:
            self._send(no_answer(f"{path} can't be read: {error.strerror}"))
            return
        finally:
            os.close(file)
        self._send(answer_of(data[:limit], cut=max(size, len(data)) > limit))


# --- privileges -------------------------------------------------------------------------------------------------------


def privileges(docker: str, control: int) -> Words:
    """The `privileges` reply; asking sudo leaves a line in the node's log."""
    uid = os.getuid()
    sudo, rules = ("free", []) if uid == 0 else sudo_privileges(control)
    return {
        "kind": "privileges", "is_root": uid == 0, "user": user_name(), "docker": docker_access(docker), "sudo": sudo,
        "sudo_rules": rules, "has_compose": has_compose(control),
    }  # fmt: skip


def docker_access(path: str) -> str:
    """ "open", "denied" or "missing", by connecting to the socket."""
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.settimeout(5.0)
    try:
        line.connect(path)
    except OSError as error:
        return "denied" if error.errno in (errno.EACCES, errno.EPERM) else "missing"
    finally:
        line.close()
    return "open"


def has_compose(control: int) -> bool | None:
    """Whether `docker compose` works; None where that can't be told."""
    try:
        program = Program(["docker", "compose", "version"])
        code = program.wait(10.0, control=control)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return None if code is None else code == 0


def sudo_privileges(control: int) -> tuple[str, list[str]]:
    """(the `sudo` of the reply, rules that need no password)."""
    try:
        program = Program(["sudo", "-n", "-l"], overlay={"LC_ALL": "C", "COLUMNS": "100000"}, keep=65536)
        code = program.wait(10.0, control=control)
    except OSError:
        return "missing", []
    said = program.said.decode("utf-8", "replace")
    if code == 0:
        rules = free_rules(said)
        return ("free" if "ALL" in rules else "listed" if rules else "password"), rules
    if "have a tty" in said:
        return "tty", []
    if "may not run sudo" in said or "not in the sudoers" in said:
        return "denied", []
    return "password", []  # or not permitted: sudo says that only after the password


def free_rules(listing: str) -> list[str]:
    """Commands that `sudo -l` lists for root with NOPASSWD, verbatim.

    A line is "    (ALL : ALL) NOPASSWD: /usr/bin/a --b, /usr/bin/c": a tag holds until another revokes it. Long lines
    are folded and go on with eight spaces.
    """
    rules: list[str] = []
    joined = re.sub(r"\\?\n {5,}", " ", listing)
    for line in joined.splitlines():
        match = re.match(r"\s{1,4}\(([^)]*)\)\s*(.*)", line)
        if not match:
            continue
        runas = match.group(1).partition(":")[0]
        if not any(who.strip() in ("ALL", "root", "#0") for who in runas.split(",")):
            continue
        free = False
        for command in re.split(r"(?<!\\),\s*", match.group(2)):
            if tags := _TAG.match(command):
                names = tags.group().replace(":", "").split()
                free = "NOPASSWD" in names or (free and "PASSWD" not in names)
                command = command[tags.end() :]
            if free and command.strip():
                rules.append(command.strip())
    return rules[:100]
