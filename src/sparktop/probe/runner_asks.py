"""The runner: questions that change nothing, each in a child that ends with the runner (the rest: `runner`)."""

from __future__ import annotations

import _socket
import errno
import json
import os
import pwd
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Words = dict[str, Any]
if __name__ != "sparktop_runner":  # on a Spark this text runs among the runner's own names
    from sparktop.probe.runner_docker import DockerEngine, DockerLost, said_by_docker, unframed
    from sparktop.probe.runner_hub import hub_model
    from sparktop.probe.runner_models import ModelFolders
    from sparktop.probe.runner_program import Program, start_problem

ANSWER_BYTES = 4 << 20
CHUNK_CHARS = 16 * 1024
"""At most 100 KB on the wire, where every character has to be escaped."""
_TAG = re.compile(r"^(?:[A-Z_]+: )+")


def bounded(words: Words, usual: int) -> int:
    return max(1, min(ANSWER_BYTES, int(words.get("limit") or usual)))


class Asked:
    """One question; its answer goes out in pieces."""

    def __init__(self, tell: Callable[..., object], *, docker: str, control: int) -> None:
        """`control` hangs up when the runner has left."""
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
            self._give(json.dumps(ModelFolders(roots, float(words.get("seconds") or 20.0)).answer()).encode())
        elif "hub" in request:
            self._give(json.dumps(hub_model(request["hub"])).encode())
        else:
            self._file(request["file"])

    def _give(self, data: bytes, *, code: int | None = None, problem: str = "", cut: bool = False) -> None:
        text = data.decode("utf-8", "replace")
        for at in range(0, len(text), CHUNK_CHARS):
            self.tell({"kind": "chunk", "text": text[at : at + CHUNK_CHARS]})
        self.tell({"kind": "answer", "found": True, "code": code, "problem": problem, "cut": cut})

    def _none(self, problem: str = "", *, code: int | None = None) -> None:
        self.tell({"kind": "answer", "found": False, "code": code, "problem": problem, "cut": False})

    def _get(self, words: Words) -> None:
        where, _, query = str(words["path"]).partition("?")
        pairs = dict(part.partition("=")[::2] for part in query.split("&") if part)
        limit, is_tail = bounded(words, ANSWER_BYTES), bool(words.get("from_end"))
        try:
            status, headers, body, cut = DockerEngine(self.docker).ask(
                "GET", where, pairs, seconds=float(words.get("seconds") or 10.0), limit=limit, is_tail=is_tail
            )
        except DockerLost as lost:
            self._none(str(lost))
            return
        if status == 404:
            self._none("", code=status)
        elif status != 200:
            self._none(said_by_docker(status, body), code=status)
        else:
            if "json" not in headers.get("content-type", ""):
                body = unframed(body, is_cut=cut and is_tail)
            self._give(body, code=status, cut=cut)

    def _output(self, words: Words) -> None:
        argv = [str(word) for word in words["argv"]]
        seconds = float(words.get("seconds") or 5.0)
        try:
            program = Program(
                argv,
                overlay={"LC_ALL": "C.UTF-8"},
                keep=bounded(words, 256 * 1024),
                is_tail=bool(words.get("from_end")),
                errors_apart=True,
            )
        except (OSError, ValueError) as error:
            self._none(start_problem(argv, error))
            return
        code = program.wait(seconds, control=self.control)
        problem = ""
        if code is None:
            problem = f"{argv[0]} took more than {seconds:g} s"
        elif code:
            said = program.errors.decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
            problem = f"{argv[0]} ended with {code}" + (f": {said[0][:300]}" if said[0] else "")
        if problem and not program.said:
            self._none(problem, code=code)
        else:
            self._give(bytes(program.said), code=code, problem=problem, cut=program.cut)

    def _file(self, words: Words) -> None:
        path, limit = str(words["path"]), bounded(words, 256 * 1024)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (FileNotFoundError, NotADirectoryError):
            self._none()
            return
        except (OSError, ValueError) as error:
            self._none(f"{path} can't be read: {getattr(error, 'strerror', None) or error}")
            return
        try:
            size = os.fstat(file).st_size
            if words.get("from_end") and size > limit:
                os.lseek(file, -limit, os.SEEK_END)
            data = b""
            while len(data) <= limit and (piece := os.read(file, limit + 1 - len(data))):
                data += piece
        except OSError as error:
            self._none(f"{path} can't be read: {error.strerror}")
            return
        finally:
            os.close(file)
        self._give(data[:limit], cut=max(size, len(data)) > limit)


# --- privileges -------------------------------------------------------------------------------------------------------


def privileges(docker: str, control: int) -> Words:
    """What this user may do, as in the protocol; asking sudo leaves a line in the node's log."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    sudo, rules = ("free", []) if uid == 0 else sudo_privileges(control)
    return {
        "kind": "privileges", "is_root": uid == 0, "user": user, "docker": docker_access(docker), "sudo": sudo,
        "sudo_rules": rules, "has_compose": has_compose(control),
    }  # fmt: skip


def docker_access(path: str) -> str:
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
    try:
        program = Program(["docker", "compose", "version"])
        code = program.wait(10.0, control=control)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return None if code is None else code == 0


def sudo_privileges(control: int) -> tuple[str, list[str]]:
    """(as Privileges.sudo has it, the rules that want no password)."""
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
    return "password", []  # also where it will turn out that it isn't permitted: sudo doesn't say so before


def free_rules(said: str) -> list[str]:
    """The commands that `sudo -l` marks NOPASSWD and gives as root's, as they stand there.

    "    (ALL : ALL) NOPASSWD: /usr/bin/a --b, /usr/bin/c\\n": a tag holds until another revokes it; long lines are
    folded, and go on with eight spaces.
    """
    rules: list[str] = []
    joined = re.sub(r"\\?\n {5,}", " ", said)
    for line in joined.splitlines():
        found = re.match(r"\s{1,4}\(([^)]*)\)\s*(.*)", line)
        if not found:
            continue
        runas = found.group(1).partition(":")[0]
        if not any(who.strip() in ("ALL", "root", "#0") for who in runas.split(",")):
            continue
        free = False
        for command in re.split(r"(?<!\\),\s*", found.group(2)):
            if tags := _TAG.match(command):
                names = tags.group().replace(":", "").split()
                free = "NOPASSWD" in names or (free and "PASSWD" not in names)
                command = command[tags.end() :]
            if free and command.strip():
                rules.append(command.strip())
    return rules[:100]
