"""One step, in a process of its own that goes on without the runner.

Its journal has every result before the console does. A step that has begun is finished or undone here.

What takes time is a coroutine, for the simulated runner alone, which shares the steps' rules and waits in an event loop
(`sim.services.runner_steps`). On a Spark it blocks, and nothing is ever suspended.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import select
import signal
import time

from sparktop.masking import mask_text
from sparktop.probe.runner.docker import DockerEngine, DockerLost, is_same, percent, said_by_docker, unframed, value_at
from sparktop.probe.runner.journal import Unable, append, file_name, read_text, started_ticks
from sparktop.probe.runner.program import AsRoot, Program, start_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    Words = dict[str, Any]

KEPT_CHARS = 4096
LOG_LINES = 6
"""Of a container's log that are told of a failure; the output has more."""
_WHOLE_LOG = {"stdout": "1", "stderr": "1", "tail": "200"}
RETURN_S = 60.0
"""How long to wait for a Docker Engine that stopped answering."""
SECRET_S = 600.0
POLL_S = 0.25


class Failed(Exception):
    """Why an operation failed, with its exit code and output."""

    def __init__(self, problem: str, *, code: int | None = None, output: str = "") -> None:
        super().__init__(problem)
        self.code = code
        self.output = output


_TASK_LEFT = re.compile(rb"task ([0-9a-f]{64}): already exists")
"""Docker's refusal to start a container whose last run containerd still holds."""
_AFTERMATH = ("Broken pipe", "connection unexpectedly closed", "Connection reset")
"""Messages of one end of rsync after the other has ended."""


def kept(said: bytes) -> str:
    """The end of a program's output, masked; a secret that the cut left in part lies before what is kept."""
    return mask_text(said.decode("utf-8", "replace"))[-KEPT_CHARS:].strip()


def last_line(text: str) -> str:
    """The line of an output that says why it failed: the last; of rsync and nginx the first, the others' cause; the one
    before what visudo quotes and marks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    why = [line for line in lines if line.startswith("rsync: ") and not any(word in line for word in _AFTERMATH)]
    if why and lines[-1].startswith(("rsync: ", "rsync error: ")):
        return why[0][-300:]
    if lines and lines[-1].startswith("nginx: configuration file"):
        lines = [line for line in lines if "[emerg]" in line] or lines
    if lines and not lines[-1].strip("^~"):
        lines = lines[:-2]
    return lines[-1][-300:] if lines else ""


class StepWork:
    """The operations of one step, one after another."""

    def __init__(
        self, request: Words, *, folder: tuple[str, int], docker: str, journal: int, tell: Callable[..., bool],
        answers: int,
    ) -> None:  # fmt: skip
        """`folder` is the private folder (path, descriptor); `answers` a pipe of JSON lines with passwords."""
        self.request = request
        self.path, self.folder = folder
        self.docker = DockerEngine(docker)
        self.journal = journal
        self.tell = tell
        self.answers = answers
        self.saved: dict[str, str] = {}
        self.deadline = 0.0
        self.heard = b""
        self.number = 0
        self.tick: Callable[[], object] | None = None
        """Called while a program runs (`Program.wait`)."""

    def run(self) -> None:
        """Carry out the step, however long it takes."""
        finish(self.carry_out())
        os.ftruncate(self.journal, os.lseek(self.journal, 0, os.SEEK_CUR))  # of what was reserved, the rest

    # -- the machine: the simulated runner has others

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    async def rest(self, seconds: float) -> None:
        """Wait so long."""
        time.sleep(seconds)

    def keep(self, line: Words) -> None:
        """Write a line to the journal."""
        append(self.journal, line)

    async def ask(
        self, method: str, path: str, query: dict[str, str], body: object = None, *, seconds: float
    ) -> tuple[int, bytes]:
        """(status, body) of the Docker Engine's answer.

        Raises:
            DockerLost: no answer, or only part of one.
        """
        status, _, answer, _ = self.docker.ask(method, path, query, body, seconds=seconds)
        return status, answer

    async def execute(self, command: Words, argv: list[str], seconds: float) -> tuple[int | None, bytes, bool]:
        """(exit code, None when its time was over; output; whether it may still run) of a program.

        Raises:
            OSError, ValueError: it can't be started.
            Unable: sudo refuses.
        """
        if command.get("root"):
            root = AsRoot(argv, seconds, self._secret)
            return root.run(), root.said, root.left
        program = Program(argv, overlay=command.get("environment") or {})
        code = program.wait(seconds, tick=self.tick)
        return code, bytes(program.said), program.left

    # -- the operations

    async def carry_out(self) -> None:
        """Carry out the operations, or undo them after a failure, and write the end to the journal."""
        operations, undo = self.request["operations"], self.request.get("undo") or []
        self.deadline = self.now() + float(self.request["limit"])
        problem = ""
        for index, operation in enumerate(operations):
            result = await self._carry_out(operation, index, is_undo=False)
            if not result["ok"]:
                problem = result["problem"]
                break
        undone = None
        if problem and undo:
            undone = True
            for index, operation in enumerate(undo):
                self.deadline = self.now() + 1e9  # each has its own limit, and all of them run
                undone = (await self._carry_out(operation, index, is_undo=True))["ok"] and undone
        state = "failed" if problem else "done"
        self.keep({"end": {"state": state, "problem": problem, "undone": undone, "saved": self.saved}})

    async def _carry_out(self, operation: Words, index: int, *, is_undo: bool) -> Words:
        began = self.now()
        result: Words = {
            "index": index, "undo": is_undo, "ok": True, "code": None, "output": "", "problem": "", "seconds": 0.0,
            "was_done": False,
        }  # fmt: skip
        try:
            if began >= self.deadline:
                raise Failed(f"the step's time limit ({float(self.request['limit']):g} s) was over before this started")
            await self._do(operation, result, is_undo=is_undo)
        except Failed as failure:
            result.update(ok=False, problem=mask_text(str(failure)), code=failure.code, output=failure.output)
        except Unable as unable:
            result.update(ok=False, problem=str(unable), untouched=True)
        except Exception as error:  # whatever it is, earlier operations must be undone
            result.update(ok=False, problem=f"the runner failed: {type(error).__name__}: {mask_text(str(error))}")
        result["seconds"] = round(self.now() - began, 3)
        try:
            self.keep({"result": result})
        except OSError:
            pass  # going on matters more; where the end can't be written either, the outcome says so
        self.tell({"kind": "result", **result})
        return result

    async def _do(self, operation: Words, result: Words, *, is_undo: bool) -> None:
        kind = operation.get("do")
        if kind == "command":
            await self._command(operation, result)
        elif kind == "docker":
            await self._docker(operation, result, is_undo=is_undo)
        elif kind == "expect":
            await self._expect(operation)
        elif kind == "signal":
            await self._signal(operation, result)
        else:
            raise Failed(f"the runner knows no operation {str(kind)[:40]!r}")

    def _seconds(self, operation: Words) -> float:
        return max(0.1, min(float(operation.get("limit") or 30.0), self.deadline - self.now()))

    # -- programs

    async def _command(self, command: Words, result: Words) -> None:
        asked = command.get("done_when")
        if asked and (await self._run(asked, fails=False))[0]:
            result["was_done"] = True
            return
        again_until = min(self.now() + float(command.get("again") or 0.0), self.deadline)
        well, code, output = await self._run(command, fails=True)
        while not well and self.now() < again_until:
            await self.rest(POLL_S)
            well, code, output = await self._run(command, fails=True)
        result.update(code=code, output=output)
        if not well:
            name = str(command["argv"][0]).rpartition("/")[2]
            said = f"{name} exited {_exit(code)}: {last_line(output)}".removesuffix(": ")
            meaning = str(command.get("otherwise") or "")
            raise Failed(f"{meaning} ({said})" if meaning else said, code=code, output=output)
        if command.get("saves"):
            self.saved[str(command["saves"])] = output.rpartition("\n")[2]

    async def _run(self, command: Words, *, fails: bool) -> tuple[bool, int | None, str]:
        """(whether its exit code is accepted, the code, its output)."""
        argv = [str(word) for word in command["argv"]]
        seconds = self._seconds(command)
        content = self._content(command["content"]) if command.get("content") else ""
        if content:
            argv = [word.replace("{content}", f"{self.path}/{content}") for word in argv]
        try:
            code, said, left = await self.execute(command, argv, seconds)
        except (OSError, ValueError) as error:
            if fails:
                raise Unable(start_problem(["sudo"] if command.get("root") and os.getuid() else argv, error)) from None
            return False, None, ""
        finally:
            if content:
                self._remove_content(content)
        output = kept(said)
        if code is None and fails:
            what = "it couldn't be killed and may still run" if left else "it was killed"
            name = argv[0].rpartition("/")[2]
            raise Failed(f"{name} took more than {seconds:g} s: {what}", output=output)
        return code in (command.get("accepts") or [0]), code, output

    def _content(self, text: str) -> str:
        """Create a file of mode 0600 in the private folder for the time of a program; returns its name."""
        self.number += 1
        name = f"{file_name(self.request['run'], self.request['step'])[:-5]}.{self.number}.content"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=self.folder)
        try:
            rest = memoryview(text.encode("utf-8", "surrogatepass"))
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError:
            os.unlink(name, dir_fd=self.folder)
            raise
        finally:
            os.close(file)
        return name

    def _remove_content(self, name: str) -> None:
        os.unlink(name, dir_fd=self.folder)

    def _secret(self, wrong: int) -> str | None:
        """Ask the operator for sudo's password, through the runner; the step's time doesn't run meanwhile."""
        began = self.now()
        self.tell({"kind": "ask secret", "wrong": wrong})
        try:
            while b"\n" not in self.heard:
                left = SECRET_S - (self.now() - began)
                if left <= 0:
                    raise Unable("sudo got no password in time; nothing was done")
                if not select.select([self.answers], [], [], left)[0]:
                    continue
                chunk = os.read(self.answers, 65536)
                if not chunk:
                    raise Unable("the connection broke while sudo asked for the password; nothing was done")
                self.heard += chunk
            line, _, self.heard = self.heard.partition(b"\n")
            answer = json.loads(line)
            return answer if isinstance(answer, str) else None
        finally:
            self.deadline += self.now() - began

    # -- one process

    async def _signal(self, order: Words, result: Words) -> None:
        pid, started = int(order["pid"]), int(order["started"])
        number = getattr(signal, "SIG" + str(order.get("signal") or "TERM"))
        try:
            process = os.pidfd_open(pid)
        except OSError:
            process = -1
        try:
            if process < 0 or started_ticks(pid) != started:
                result["was_done"] = True
                return
            try:
                signal.pidfd_send_signal(process, number)
            except ProcessLookupError:
                result["was_done"] = True
                return
            except PermissionError:
                if not order.get("root"):
                    raise Failed(f"process {pid} belongs to another user") from None
                argv = ["/usr/bin/kill", "-s", str(order.get("signal") or "TERM"), str(pid)]
                root = AsRoot(argv, 10.0, self._secret)
                code = root.run(lambda: started_ticks(pid) == started)
                if code != 0 and started_ticks(pid) == started:
                    output = kept(root.said)
                    raise Failed(f"kill exited {_exit(code)}: {last_line(output)}", code=code, output=output) from None
            within = min(float(order.get("ends_within") or 0.0), self.deadline - self.now())
            if within > 0 and not select.select([process], [], [], within)[0] and order.get("must_end"):
                raise Failed(f"process {pid} still exists after {within:g} s{_held_by(pid)}")
        finally:
            if process >= 0:
                os.close(process)

    # -- Docker

    async def _forget_task(self, container_id: str) -> bool:
        """Have containerd forget a container's last run: a dockerd that was killed as it stopped the container never
        did, and each start fails. False where that needs a password, or containerd refuses, as of one that runs."""
        order = ["ctr", "--namespace", "moby", "tasks", "delete", container_id]
        try:
            root = AsRoot(order, 10.0, lambda _: None)
            return root.run() == 0
        except (OSError, Unable):
            return False

    def _filled(self, path: str) -> str | None:
        """A path with saved ids in place of their names; None where one was never saved."""
        for name in _names_in(path):
            if name not in self.saved:
                return None
            path = path.replace("{" + name + "}", percent(self.saved[name]))
        return path

    async def _docker(self, call: Words, result: Words, *, is_undo: bool) -> None:
        path = self._filled(str(call["path"]))
        if path is None:
            if not is_undo:
                raise Failed(f"an earlier call didn't return what {str(call['path'])[:100]} needs")
            result["was_done"] = True  # what it would undo was never done
            return
        only_where = call.get("only_where")
        if only_where and not (await self._awaited(only_where))[0]:
            result["was_done"] = True
            return
        method, body, query = str(call["method"]), call.get("body"), call.get("query") or {}
        if call.get("archive"):
            body = binascii.a2b_base64(str(call["archive"]))
        done_when = call.get("done_when")
        repeats, is_asked = 1, False
        again_until = self.now() + float(call.get("again") or 0.0)
        while True:
            try:
                seconds = self._seconds(call)
                status, answer = await self.ask(method, path, query, body, seconds=seconds)
                left = _TASK_LEFT.search(answer) if status == 500 and path.endswith("/start") else None
                if left is not None and not is_asked:  # once: each time is a program as root
                    is_asked = True
                    if await self._forget_task(left[1].decode()):
                        continue
                if status == 500 and self.now() < min(again_until, self.deadline):
                    await self.rest(POLL_S)
                    continue
                break
            except DockerLost as lost:
                if not lost.late:
                    await self._await_engine(str(lost))
                if lost.sent:
                    if done_when and (expected := await self._awaited(done_when))[0]:
                        self._save(call, expected[1])
                        result["was_done"] = True
                        return
                    if lost.late or repeats == 0 or not (done_when or method == "GET"):
                        unknown = "" if done_when else "; whether it was done is unknown"
                        raise Failed(f"{lost}{unknown}") from None
                    repeats -= 1
                if self.now() >= self.deadline:
                    raise Failed(str(lost)) from None
        result["code"] = status
        if status not in (call.get("accepts") or (200, 201, 204, 304)):
            raise Failed(said_by_docker(status, answer), code=status)
        try:
            words = json.loads(answer) if answer.strip() else None
        except ValueError:
            words = None
        self._save(call, words)
        if isinstance(words, dict) and words.get("Warnings"):
            result["output"] = kept("\n".join(str(line) for line in words["Warnings"]).encode())

    def _save(self, call: Words, words: object) -> None:
        name = call.get("saves")
        if not name:
            return
        created_id = words.get("Id") if isinstance(words, dict) else None
        if not isinstance(created_id, str) or not created_id:
            raise Failed("Docker's answer has no Id")
        self.saved[str(name)] = created_id

    async def _await_engine(self, reason: str) -> None:
        """Wait until the Docker Engine answers again: it may be restarting.

        Raises:
            Failed: it doesn't.
        """
        began = self.now()
        within = min(RETURN_S, self.deadline - began)
        while True:
            try:
                self.docker.negotiate(5.0)
                return
            except DockerLost as lost:
                reason = str(lost)
            if self.now() - began > within or "may not use" in reason:
                raise Failed(reason)
            await self.rest(POLL_S)

    async def _holds(self, expect: Words) -> tuple[bool, Any, str]:
        """(whether the expectation holds, the answer, how it differs)."""
        path = self._filled(str(expect["path"]))
        if path is None:
            return False, None, "the object it checks was never created"
        where, _, query = path.partition("?")
        pairs = dict(part.partition("=")[::2] for part in query.split("&") if part)
        status, body = await self.ask("GET", where, pairs, seconds=10.0)
        if status != 200:
            return False, None, said_by_docker(status, body)
        words = json.loads(body)
        for name, expected in (expect.get("equals") or {}).items():
            value = value_at(words, name)
            if not is_same(value, expected):
                return False, words, f"{name} is {json.dumps(value)[:200]}, not {json.dumps(expected)[:200]}"
        return True, words, ""

    async def _expect(self, expect: Words) -> None:
        holds, _, difference = await self._awaited(expect)
        if not holds:
            output = await self._log(str(expect["path"])) if expect.get("has_log") else ""
            end = " | ".join(output.splitlines()[-LOG_LINES:])
            parts = (str(expect.get("otherwise") or ""), difference if not end else "", end)
            raise Failed("; ".join(part for part in parts if part), output=output)

    async def _log(self, path: str) -> str:
        """The end of a container's log; empty where it can't be had."""
        path = (self._filled(path) or "").removesuffix("/json")
        try:
            status, log = await self.ask("GET", f"{path}/logs", _WHOLE_LOG, seconds=30.0)
        except DockerLost:
            return ""
        return kept(unframed(log)) if status == 200 else ""

    async def _awaited(self, expect: Words) -> tuple[bool, Any, str]:
        """As `_holds`, repeated until it does or its time is over."""
        until = min(self.now() + float(expect.get("within") or 0.0), self.deadline)
        while True:
            answer: tuple[bool, Any, str]
            try:
                answer = await self._holds(expect)
            except DockerLost as lost:
                answer = False, None, str(lost)
                if not lost.late:
                    await self._await_engine(str(lost))
                    until = max(until, self.now() + POLL_S)
            if answer[0] or self.now() >= until:
                return answer
            await self.rest(POLL_S)


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that blocks instead of being suspended."""
    for _ in work.__await__():
        pass


def _names_in(path: str) -> list[str]:
    return [piece.partition("}")[0] for piece in path.split("{")[1:] if "}" in piece]


def _exit(code: int | None) -> str:
    if code is None:
        return "without an exit code"
    return f"on signal {-code}" if code < 0 else f"with code {code}"


def _held_by(pid: int) -> str:
    """The state of a process, and where in the kernel it waits, for a sentence's end."""
    try:
        state = read_text(f"/proc/{pid}/stat", 1024).rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    try:
        where = read_text(f"/proc/{pid}/wchan", 200).strip()
    except OSError:
        where = ""
    return f" (state {state}{', in ' + where if where not in ('', '0') else ''})"
