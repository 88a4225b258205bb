"""The runner: carries out operations on a Spark, for a console that is connected to it.

A second small process beside the probe, started while the host is well, because an open channel outlives the ability
to open one (design.md). Python 3.10+ and the standard library alone; it imports nothing of ours, and travels as the
probe does (`probe.runnerbundle`). It sleeps in one poll. Whatever takes time happens in children: a question's ends
with the runner, a step's goes on without it (`runner_step`), and what it did stands in its journal (`runner_journal`).
The runner leaves when its input closes, when it heard nothing for LEASE_S, or when a newer one of the same console
asks it to.

The protocol, version 1: one JSON object a line, each way. Before its first line the runner prints `SPARKTOP <nonce>`.

To the runner (`id` is a number of the console's choice that the replies repeat; unknown words are ignored):

    {"beat": 1}                        every 3 s
    {"id", "privileges": 1}            what this user may do here
    {"id", "lock": {who, what, key}}   take the node; `key` is the console's own: its own older runner gives way to it
    {"id", "unlock": 1}
    {"id", "step": {run, step, operations [...], undo [...], limit}}     limit: seconds for the operations together
    {"id", "end": {run, step}}         end a step that fetches (below), whichever runner began it: its operation fails,
                                       ended: true; no other kind of operation is ended. The reply is its outcome now
    {"id", "outcome": {run, step}}     what became of a step; one that was never begun is barred from beginning through
                                       any runner that is older than this one
    {"id", "get": {path, seconds, limit, from_end}}      GET of the Docker Engine ("?query" included); limit: bytes;
                                       a log's frames are taken apart
    {"id", "output": {argv, seconds, limit, from_end}}                   standard output of a harmless command
    {"id", "file": {path, limit, from_end}}                              a file's text; from_end: its last bytes
    {"id", "models": {roots [...], seconds}}             the models on disk (runner_models): a JSON text
    {"id", "hub": {repo, revision, hub, token, seconds}} what the hub says of a model (runner_hub): a JSON text
    {"id", "secret": "..." | null}     the password that the step of this id asked for; null: the operator gave up
    {"bye": 1}                         leave now

An operation is one of (seconds and exit codes are numbers; what is left out is empty):

    {"do": "command", argv [...], root, limit, accepts [...], environment {}, content, done_when {command}}
    {"do": "docker", method, path, query {}, body {} | null, accepts [...], saves, limit, done_when {expect}}
    {"do": "expect", path, equals {dotted path: value}, otherwise, within}
    {"do": "signal", pid, started, signal, root, ends_within, must_end}
    {"do": "pull", image, limit}
    {"do": "transfer", command {command, never root}, grows, key, total (what the folder takes in the end) | null}

A step of pulls and transfers alone changes no engine: it doesn't hold the node.

From the runner (`kind` says which):

    hello       protocol, pid, boot (boot id), uid, user, digest, problem (why no step can be begun here; else "")
    privileges  id, is_root, user, docker (open, denied, missing), sudo (free, listed, password, missing, denied, tty),
                sudo_rules [...], has_compose (true, false, null)
    lock        id, held; where it isn't: who, what, since (wall seconds or null), own (an older step of this console)
    unlocked    id
    result      id, index, undo, ok, code (exit code, HTTP status or null), output, problem, seconds, was_done: one
                operation has ended; output and problem are masked, output is the last 4 KiB; with untouched: true
                nothing was done of it: sudo would not, or there is no such program; with ended: true it was asked to;
                bytes: what a pull or a transfer has brought
    progress    id, index, done, total (bytes or null), words: of a pull or a transfer, about once a second
    ask secret  id, wrong: sudo asks for the password of a step's operation; so many were wrong so far
    outcome     id, state (done, failed, running, never begun, gone), results [as in result, without id], problem,
                undone (true, false, null), saved {name: id}, progress (the newest, of one that is running)
                for `step` when it has ended, or at once where it had been begun before; for `outcome` at once
    chunk       id, text: a piece of an answer, at most 32 KiB of the original
    answer      id, found (false: it isn't there), code (exit code or HTTP status), problem, cut (there was more);
                after all its chunks
    refused     id, problem: the request could not be carried out, and nothing was done
    bye         reason
"""

from __future__ import annotations

import gc
import json
import os
import pwd
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Words = dict[str, Any]
if __name__ != "sparktop_runner":  # on a Spark the parts run among this file's own names
    from sparktop.probe.runner_asks import Asked
    from sparktop.probe.runner_fetch import FetchWork
    from sparktop.probe.runner_journal import STATE_ROOTS, Journals, NodeLock, Unable, boot_id
    from sparktop.probe.runner_start import load
    from sparktop.probe.runner_step import StepWork

PROTOCOL = 1
LEASE_S = 30.0
DOCKER_SOCKET = "/var/run/docker.sock"
INPUT_BYTES = 8 << 20
"""A request is at most so long; what is longer is no protocol of ours."""
UNSENT_BYTES = 256 * 1024
"""While so much waits to be read by the console, children wait too."""
ASKS_AT_MOST = 8
ASK_PARTS = ("program", "docker", "weights", "models", "hub", "asks")
STEP_PARTS = ("masking", "program", "docker", "step")
FETCH_PARTS = ("pull", "fetch")
FETCHES = ("pull", "transfer")

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Child:
    """The runner's end of one child: its lines, and for a step's a way to answer it."""

    def __init__(self, number: object, body: Callable[[int, int], None], keep: tuple[int, ...] = ()) -> None:
        """`body` gets (where to write lines, where to read answers); `keep` are descriptors it needs besides.

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
        except BaseException:  # the runner is told by the end of the pipe, and the journal by its missing end
            os._exit(70)
        os._exit(0)


def teller(data: int, number: object, *, matters: bool) -> Callable[..., bool]:
    """Writes lines of the protocol to the runner; where they don't matter, a runner that is gone is no hindrance.

    What it makes gives False when the runner is gone; a line that `may_skip` is left out where it would have to wait.
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


class Runner:
    """The main loop: one poll over standard input, the children and, while a write waits, the way out."""

    def __init__(self, out: int, digest: str, lease_s: float, settings: dict[str, str]) -> None:
        self.out = out
        self.digest = digest
        self.lease_s = lease_s
        self.docker = settings.get("docker", DOCKER_SOCKET)
        if "docker" in settings:
            os.environ["DOCKER_HOST"] = "unix://" + self.docker  # for docker's own program
        roots = (settings["state"],) if "state" in settings else STATE_ROOTS
        self.problem = ""
        self.journals: Journals | None = None
        try:
            self.journals = Journals(roots)
        except Unable as unable:
            self.problem = str(unable)
        self.lock = NodeLock(roots, self.journals)
        self.unsent = b""
        self.input = b""
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
        os._exit(0)  # a question's child sees its pipe end; a step's goes on

    # in

    def hear(self) -> None:
        try:
            chunk = os.read(0, 65536)
        except BlockingIOError:
            return
        if not chunk:
            self.leave("")
        self.heard_at = time.monotonic()
        *lines, self.input = (self.input + chunk).split(b"\n")
        if len(self.input) > INPUT_BYTES:
            self.leave("what came in is no protocol of ours")
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
                self.begin(number, request["step"])
            elif "outcome" in request or "end" in request:
                words = request.get("end") or request["outcome"]
                told = self.outcome(str(words["run"]), str(words["step"]), ends="end" in request)
                self.tell({"id": number, **told})
            elif "lock" in request:
                words = request["lock"]
                held = self.lock.take(str(words["who"]), str(words["what"]), str(words.get("key") or ""))
                self.tell({"id": number, "kind": "lock", **held})
            elif "unlock" in request:
                self.lock.give_back(steps_left=any(child.holds_node for child in self.children.values()))
                self.tell({"id": number, "kind": "unlocked"})
            elif "secret" in request:
                self.pass_on(number, request["secret"])
            elif any(word in request for word in ("privileges", "get", "output", "file", "models", "hub")):
                self.waiting.append(request)
                self.ask_waiting()
            elif "bye" in request:
                self.leave("asked to")
        except Unable as unable:
            self.tell({"id": number, "kind": "refused", "problem": str(unable)})
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            problem = f"the runner doesn't understand this request ({type(error).__name__}: {error}); nothing was done"
            self.tell({"id": number, "kind": "refused", "problem": problem})

    def pass_on(self, number: object, secret: object) -> None:
        for child in self.children.values():
            if child.step and child.number == number:
                try:
                    os.write(child.control, json.dumps(secret).encode() + b"\n")
                except OSError:
                    pass  # it has just ended

    # questions

    def ask_waiting(self) -> None:
        while self.waiting and sum(not child.step for child in self.children.values()) < ASKS_AT_MOST:
            request = self.waiting.pop(0)
            number = request.get("id")
            try:
                self.watch(Child(number, lambda data, control: self.ask(request, data, control)))  # noqa: B023 - now
            except OSError as error:
                self.tell({"id": number, "kind": "refused", "problem": f"no further process here: {error.strerror}"})

    def ask(self, request: Words, data: int, control: int) -> None:
        load(*ASK_PARTS)
        tell = teller(data, request.get("id"), matters=True)
        try:
            Asked(tell, docker=self.docker, control=control).answer(request)
        except Exception as error:  # the console waits for an answer
            tell({"kind": "refused", "problem": f"the runner failed at it: {type(error).__name__}: {error}"})

    # steps

    def begin(self, number: object, request: Words) -> None:
        run, step = str(request["run"]), str(request["step"])
        if not isinstance(request["operations"], list) or not request["operations"]:
            raise ValueError("no operations")
        float(request["limit"])
        fetches = [operation.get("do") in FETCHES for operation in request["operations"]]
        if self.journals is None:
            raise Unable(self.problem)
        journals = self.journals
        journal = journals.begin(run, step)
        if journal is None:
            self.tell({"id": number, **self.outcome(run, step)})
            return

        def body(data: int, control: int) -> None:
            os.setsid()
            for name in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
                signal.signal(name, signal.SIG_IGN)
            load(*STEP_PARTS)
            if any(fetches):
                load(*FETCH_PARTS)
            work = (FetchWork if any(fetches) else StepWork)(
                request,
                folder=(journals.path, journals.folder),
                docker=self.docker,
                journal=journal,
                tell=teller(data, number, matters=False),
                answers=control,
            )
            work.run()

        keep = [journal, journals.folder]
        if self.lock.descriptor >= 0 and not all(fetches):
            keep.append(self.lock.descriptor)
        try:
            child = Child(number, body, tuple(keep))
        except OSError as error:
            journals.forget(run, step)
            raise Unable(f"no process could be started for it ({error.strerror}); nothing was done") from None
        finally:
            os.close(journal)
        child.step, child.holds_node = (run, step), not all(fetches)
        self.watch(child)

    def outcome(self, run: str, step: str, *, ends: bool = False) -> Words:
        if self.journals is None:
            raise Unable(self.problem)
        found = self.journals.end(run, step) if ends else self.journals.outcome(run, step)
        whole = {"kind": "outcome", "results": [], "problem": "", "undone": None, "saved": {}, **found}
        if len(_encode(whole)) > 200_000:  # a line has its limit; how each ended matters more than its last words
            whole["results"] = [{**result, "output": result["output"][-200:]} for result in whole["results"]]
        return whole

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
        os.close(child.control)
        status = os.waitpid(child.pid, 0)[1]  # it is going: the pipe closes with it
        if child.step:
            try:
                self.tell({"id": child.number, **self.outcome(*child.step)})
            except Unable as unable:
                self.tell({"id": child.number, "kind": "refused", "problem": str(unable)})
        elif status:
            self.tell({"id": child.number, "kind": "refused", "problem": "what looked for the answer was killed"})
        self.ask_waiting()

    # the loop

    def run(self) -> NoReturn:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        self.tell({
            "kind": "hello", "protocol": PROTOCOL, "pid": os.getpid(), "boot": boot_id(), "uid": os.getuid(),
            "user": user, "digest": self.digest, "problem": self.problem,
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
                if select.select([0], [], [], 0)[0]:  # we were stopped, and not forgotten
                    self.hear()
                else:
                    self.leave(f"nothing came for {self.lease_s:g} s")
