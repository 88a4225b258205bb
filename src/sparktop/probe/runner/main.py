"""The runner's main loop: carries out operations on a Spark for the console that is connected to it.

It is a second small process beside the probe, started while the host is well, because a starved host serves an open
channel long after it can't open one. Python 3.10+ and the standard library alone; it travels as the probe does
(`probe.bundle`). It sleeps in one poll. Whatever takes time happens in children: a question's child ends with the
runner, a step's child goes on without it (`step`) and writes what it did to its journal (`journal`). The runner leaves
when its input closes, when it heard nothing for LEASE_S, or when a newer runner of the same console asks it to.

The protocol, version 1: one JSON object a line, each way. Before its first line the runner prints `SPARKTOP <nonce>`.

To the runner (`id` is a number that the console chooses and replies repeat; unknown words are ignored):

    {"beat": 1}                        every 3 s
    {"id", "privileges": 1}            what this user may do here
    {"id", "lock": {who, what, key}}   lock the node; `key` names the console: an older runner of the same key leaves
    {"id", "unlock": 1}
    {"id", "step": {run, step, operations [...], undo [...], limit}}     limit: seconds for the operations together
    {"id", "end": {run, step}}         stop a step that fetches (below), whichever runner began it: its operation fails,
                                       ended: true; no other operation can be stopped. The reply is its outcome now
    {"id", "outcome": {run, step}}     the outcome of a step; from then on no runner older than this one may begin a
                                       step that never started
    {"id", "get": {path, seconds, limit, from_end}}      GET of the Docker Engine ("?query" included); limit: bytes;
                                       a log comes without Docker's frames
    {"id", "output": {argv, seconds, limit, from_end}}                   standard output of a read-only command
    {"id", "file": {path, limit, from_end}}                              a file's text; from_end: its last bytes
    {"id", "models": {roots [...], cache, seconds}}             the models on disk (`models`): a JSON text
    {"id", "hub": {repo, revision, hub, token, seconds}} what the hub says of a model (`hub`): a JSON text
    {"id", "note": {run, entry}}       keep an entry of a run (`notes`); the answer's problem says why it wasn't
    {"id", "notes": 1}                 the runs that were noted here (`notes`): a JSON text
    {"id", "drop": 1}                  end the question of this id with the program that answers it; its reply still
                                       comes, and says so
    {"id", "secret": "..." | null}     the password that the step of this id asked for; null: the operator has none
    {"bye": 1}                         leave now

An operation is one of (seconds and exit codes are numbers; a field that is left out is empty):

    {"do": "command", argv [...], root, limit, accepts [...], otherwise, again, environment {}, content,
     done_when {command}}
    {"do": "docker", method, path, query {}, body {} | null, accepts [...], saves, limit, again,
     done_when {expect}, only_where {expect}}
    {"do": "expect", path, equals {dotted path: value}, otherwise, within}
    {"do": "signal", pid, started, signal, root, ends_within, must_end}
    {"do": "pull", image, limit}
    {"do": "transfer", command {command, never root}, grows, key, total (bytes of the finished folder) | null}

A step of pulls and transfers alone changes no engine, and doesn't lock the node.

From the runner (`kind` says which):

    hello       protocol, pid, boot (boot id), uid, user, digest, problem (why no step can begin here; else "")
    privileges  id, is_root, user, docker (open, denied, missing), sudo (free, listed, password, missing, denied, tty),
                sudo_rules [...], has_compose (true, false, null)
    lock        id, held; where it isn't: who, what, since (wall seconds or null), own (a step of this console holds it)
    unlocked    id
    result      id, index, undo, ok, code (exit code, HTTP status or null), output, problem, seconds, was_done: one
                operation has ended; output and problem are masked, output is the last 4 KiB; untouched: true where
                it changed nothing (sudo refused, no such program); ended: true where it was stopped by `end`;
                bytes: what a pull or a transfer has fetched
    progress    id, index, done, total (bytes or null), words: of a pull or a transfer, about once a second
    ask secret  id, wrong: sudo asks for the password of a step's operation; `wrong` were wrong so far
    outcome     id, state (done, failed, running, not started, gone), results [as in result, without id], problem,
                undone (true, false, null), saved {name: id}, progress (the newest, of one that is running)
                answers `step` when it has ended, or at once where it was begun before; answers `outcome` at once
    chunk       id, text: a piece of an answer, at most 32 KiB of the original
    answer      id, found (false: it doesn't exist), code (exit code or HTTP status), problem, cut (there was more);
                comes after its chunks
    refused     id, problem: the request couldn't be carried out, and nothing was done
    bye         reason
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time

from sparktop.probe.runner.fetch import FetchWork
from sparktop.probe.runner.journal import STATE_ROOTS, Journals, NodeLock, Unable, boot_id, user_name
from sparktop.probe.runner.questions import Question
from sparktop.probe.runner.start import load
from sparktop.probe.runner.step import StepWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Words = dict[str, Any]

PROTOCOL = 1
LEASE_S = 30.0
DOCKER_SOCKET = "/var/run/docker.sock"
INPUT_BYTES = 8 << 20
"""A longer request isn't ours: the runner leaves."""
UNSENT_BYTES = 256 * 1024
"""While more than this waits for the console, children aren't read."""
QUESTIONS_AT_MOST = 8
QUESTION_PARTS = ("program", "docker", "weights", "models", "hub", "notes", "questions")
STEP_PARTS = ("masking", "program", "docker", "step")
FETCH_PARTS = ("pull", "fetch")
"""Parts that the children compile for a question, for a step, and besides for a step that fetches."""
FETCHES = ("pull", "transfer")
QUESTIONS = ("privileges", "get", "output", "file", "models", "hub", "note", "notes")

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Child:
    """The runner's end of one child: its lines, and a pipe on which a step is answered."""

    def __init__(self, number: object, body: Callable[[int, int], None], keep: tuple[int, ...] = ()) -> None:
        """Fork; `body` gets (descriptor to write lines to, descriptor to read answers from) and needs `keep` open.

        Raises:
            OSError: no memory for a fork, or no more processes.
        """
        self.number = number
        self.pending = b""
        self.step: tuple[str, str] | None = None
        self.holds_node = False
        self.data, data_write = os.pipe()
        control_read, self.control = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            for descriptor in (self.data, data_write, control_read, self.control):
                os.close(descriptor)
            raise
        if self.pid:
            os.close(data_write)
            os.close(control_read)
            return
        try:
            # Nothing of the SSH channel may stay open here: a child that hangs would keep the session alive.
            null = os.open("/dev/null", os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            first = 3
            for descriptor in sorted({data_write, control_read, *keep}):
                os.closerange(first, descriptor)
                first = descriptor + 1
            os.closerange(first, 1024)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            body(data_write, control_read)
        except BaseException:  # the pipe's end tells the runner, the journal's missing end any later one
            os._exit(70)
        os._exit(0)


def line_writer(data: int, number: object, *, matters: bool) -> Callable[..., bool]:
    """A function that writes lines of the protocol to the runner, for the child that answers request `number`.

    It returns False when the runner is gone, or ends the child where its lines `matters`. A line that `may_skip` is
    left out where writing it would block.
    """

    def tell(words: Words, *, may_skip: bool = False) -> bool:
        if may_skip and not select.select([], [data], [], 0)[1]:
            return True
        rest = memoryview(_encode({"id": number, **words}).encode() + b"\n")
        try:
            while rest:
                rest = rest[os.write(data, rest) :]
        except BrokenPipeError:
            if matters:
                os._exit(0)
            return False
        return True

    return tell


class Requests:
    """The console's requests on one connection: what comes in is cut into lines, and each goes to one method.

    What each of them takes; the simulated runner has methods of its own.
    """

    tell: Callable[[Words], None]
    leave: Callable[[str], NoReturn]
    begin: Callable[[object, str, str, Words], None]
    outcome: Callable[..., Words]
    lock_node: Callable[[str, str, str], Words]
    unlock_node: Callable[[], None]
    pass_on: Callable[[object, object], None]
    drop: Callable[[object], None]
    ask: Callable[[Words], None]

    def __init__(self) -> None:
        self.input = b""

    def follow(self, chunk: bytes) -> None:
        """Handle the requests that are complete with this piece of input."""
        *lines, self.input = (self.input + chunk).split(b"\n")
        if len(self.input) > INPUT_BYTES:
            self.leave("the input is not sparktop's protocol")
        for line in lines:
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(request, dict):
                self.handle(request)

    def handle(self, request: Words) -> None:
        number = request.get("id")
        try:
            if "step" in request:
                if not isinstance(request["step"]["operations"], list) or not request["step"]["operations"]:
                    raise ValueError("no operations")
                float(request["step"]["limit"])
                self.begin(number, str(request["step"]["run"]), str(request["step"]["step"]), request["step"])
            elif "outcome" in request or "end" in request:
                words = request.get("end") or request["outcome"]
                outcome = self.outcome(str(words["run"]), str(words["step"]), ends="end" in request)
                self.tell({"id": number, **outcome})
            elif "lock" in request:
                words = request["lock"]
                held = self.lock_node(str(words["who"]), str(words["what"]), str(words.get("key") or ""))
                self.tell({"id": number, "kind": "lock", **held})
            elif "unlock" in request:
                self.unlock_node()
                self.tell({"id": number, "kind": "unlocked"})
            elif "drop" in request:
                self.drop(number)
            elif "secret" in request:
                self.pass_on(number, request["secret"])
            elif any(word in request for word in QUESTIONS):
                self.ask(request)
            elif "bye" in request:
                self.leave("asked to")
        except Unable as unable:
            self.tell({"id": number, "kind": "refused", "problem": str(unable), "hint": unable.hint})
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            problem = f"the runner doesn't understand this request ({type(error).__name__}: {error}); nothing was done"
            self.tell({"id": number, "kind": "refused", "problem": problem})


def fetches_only(operations: list[Words]) -> bool:
    """Whether a step changes no engine: then it doesn't lock the node."""
    return all(operation.get("do") in FETCHES for operation in operations)


def outcome_line(outcome: Words) -> Words:
    """An outcome with every key that the protocol has, outputs shortened where the line would be too long."""
    whole = {"kind": "outcome", "results": [], "problem": "", "undone": None, "saved": {}, **outcome}
    if len(_encode(whole)) > 200_000:
        whole["results"] = [{**result, "output": result["output"][-200:]} for result in whole["results"]]
    return whole


class Runner(Requests):
    """The main loop: one poll over standard input, the children and, while a write waits, the way out."""

    def __init__(self, out: int, digest: str, lease_s: float, settings: dict[str, str]) -> None:
        super().__init__()
        self.out = out
        self.digest = digest
        self.lease_s = lease_s
        self.docker = settings.get("docker", DOCKER_SOCKET)
        if "docker" in settings:
            os.environ["DOCKER_HOST"] = "unix://" + self.docker  # for docker's own program
        roots = tuple(settings["state"].split(":")) if "state" in settings else STATE_ROOTS
        self.problem = self.hint = ""
        self.journals: Journals | None = None
        try:
            self.journals = Journals(roots)
        except Unable as unable:
            self.problem, self.hint = str(unable), unable.hint
        self.lock = NodeLock(roots, self.journals)
        self.roots = roots
        self.unsent = b""
        self.heard_at = time.monotonic()
        self.children: dict[int, Child] = {}
        self.waiting: list[Words] = []
        self.held_back = False
        self.poll = select.poll()

    # out

    def tell(self, words: Words) -> None:
        self.unsent += _encode(words).encode() + b"\n"

    def flush(self) -> None:
        if self.unsent:
            try:
                self.unsent = self.unsent[os.write(self.out, self.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                self.leave("")

    def leave(self, reason: str) -> NoReturn:
        if reason:
            try:
                os.write(self.out, self.unsent + _encode({"kind": "bye", "reason": reason}).encode() + b"\n")
            except OSError:
                pass
        os._exit(0)  # a question's child sees its pipe close; a step's child goes on

    # in

    def hear(self) -> None:
        try:
            chunk = os.read(0, 65536)
        except BlockingIOError:
            return
        if not chunk:
            self.leave("")
        self.heard_at = time.monotonic()
        self.follow(chunk)

    def lock_node(self, who: str, what: str, key: str) -> Words:
        return self.lock.take(who, what, key)

    def unlock_node(self) -> None:
        self.lock.give_back(steps_left=any(child.holds_node for child in self.children.values()))

    def ask(self, request: Words) -> None:
        self.waiting.append(request)
        self.ask_waiting()

    def pass_on(self, number: object, secret: object) -> None:
        for child in self.children.values():
            if child.step and child.number == number:
                try:
                    os.write(child.control, json.dumps(secret).encode() + b"\n")
                except OSError:
                    pass  # it has just ended

    # questions

    def drop(self, number: object) -> None:
        self.waiting = [request for request in self.waiting if request.get("id") != number]
        for child in self.children.values():
            if not child.step and child.number == number and child.control >= 0:
                os.close(child.control)  # its program's time is over when this hangs up, as when the runner leaves
                child.control = -1

    def ask_waiting(self) -> None:
        while self.waiting and sum(not child.step for child in self.children.values()) < QUESTIONS_AT_MOST:
            request = self.waiting.pop(0)
            number = request.get("id")
            try:
                self.watch(Child(number, lambda data, control: self.answer(request, data, control)))  # noqa: B023 - now
            except OSError as error:
                self.tell(
                    {"id": number, "kind": "refused", "problem": f"can't start another process: {error.strerror}"}
                )

    def answer(self, request: Words, data: int, control: int) -> None:
        load(*QUESTION_PARTS)
        tell = line_writer(data, request.get("id"), matters=True)
        try:
            Question(tell, docker=self.docker, control=control, folders=self.folders).answer(request)
        except Exception as error:  # the console waits for an answer
            tell({"kind": "refused", "problem": f"the runner failed: {type(error).__name__}: {error}"})

    @property
    def folders(self) -> tuple[tuple[str, ...], list[str]]:
        """Those with the node's lock, and with the journals of steps."""
        return self.roots, [path for path, _ in self.journals.folders] if self.journals else []

    # steps

    def begin(self, number: object, run: str, step: str, request: Words) -> None:
        operations = request["operations"]
        fetches, fetches_all = any(operation.get("do") in FETCHES for operation in operations), fetches_only(operations)
        if self.journals is None:
            raise Unable(self.problem, self.hint)
        journals = self.journals
        begun = journals.begin(run, step, room=len(_encode(request)))
        if begun is None:
            self.tell({"id": number, **self.outcome(run, step)})
            return
        journal, folder = begun

        def body(data: int, control: int) -> None:
            os.setsid()
            for name in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
                signal.signal(name, signal.SIG_IGN)
            load(*STEP_PARTS)
            if fetches:
                load(*FETCH_PARTS)
            work = (FetchWork if fetches else StepWork)(
                request,
                folder=folder,
                docker=self.docker,
                journal=journal,
                tell=line_writer(data, number, matters=False),
                answers=control,
            )
            work.run()

        keep = [journal, folder[1]]
        if not fetches_all:
            keep += self.lock.descriptors
        try:
            child = Child(number, body, tuple(keep))
        except OSError as error:
            journals.forget(run, step)
            raise Unable(f"can't start a process for this step ({error.strerror}); nothing was done") from None
        finally:
            os.close(journal)
        child.step, child.holds_node = (run, step), not fetches_all
        self.watch(child)

    def outcome(self, run: str, step: str, *, ends: bool = False) -> Words:
        if self.journals is None:
            raise Unable(self.problem, self.hint)
        return outcome_line(self.journals.end(run, step) if ends else self.journals.outcome(run, step))

    # children

    def watch(self, child: Child) -> None:
        self.children[child.data] = child
        if not self.held_back:
            self.poll.register(child.data, select.POLLIN)

    def read_child(self, child: Child) -> None:
        chunk = os.read(child.data, 65536)
        if chunk:
            whole, newline, rest = (child.pending + chunk).rpartition(b"\n")
            child.pending = rest
            self.unsent += whole + newline
            return
        self.poll.unregister(child.data)
        del self.children[child.data]
        os.close(child.data)
        if child.control >= 0:
            os.close(child.control)
        status = os.waitpid(child.pid, 0)[1]  # it is ending: its pipe closes with it
        if child.step:
            try:
                self.tell({"id": child.number, **self.outcome(*child.step)})
            except Unable as unable:
                self.tell({"id": child.number, "kind": "refused", "problem": str(unable)})
        elif status:
            self.tell(
                {"id": child.number, "kind": "refused", "problem": "the process that looked up the answer was killed"}
            )
        self.ask_waiting()

    # the loop

    def run(self) -> NoReturn:
        self.tell({
            "kind": "hello", "protocol": PROTOCOL, "pid": os.getpid(), "boot": boot_id(), "uid": os.getuid(),
            "user": user_name(), "digest": self.digest, "problem": self.problem,
        })  # fmt: skip
        self.poll.register(0, select.POLLIN)
        gc.collect()
        gc.freeze()
        watched_out = False
        while True:
            self.flush()
            if bool(self.unsent) != watched_out:
                watched_out = not watched_out
                if watched_out:
                    self.poll.register(self.out, select.POLLOUT)
                else:
                    self.poll.unregister(self.out)
            if (len(self.unsent) > UNSENT_BYTES) != self.held_back:
                self.held_back = not self.held_back
                for descriptor in self.children:
                    if self.held_back:
                        self.poll.unregister(descriptor)
                    else:
                        self.poll.register(descriptor, select.POLLIN)
            left = self.heard_at + self.lease_s - time.monotonic()
            for descriptor, events in self.poll.poll(max(0, int(left * 1000) + 1)):
                if descriptor == 0:
                    self.hear()
                elif descriptor == self.out:
                    if events & (select.POLLERR | select.POLLHUP):
                        self.leave("")
                elif descriptor in self.children:
                    self.read_child(self.children[descriptor])
            if time.monotonic() - self.heard_at >= self.lease_s:
                if select.select([0], [], [], 0)[0]:  # this process was stopped; the console did write
                    self.hear()
                else:
                    self.leave(f"nothing arrived for {self.lease_s:g} s")
