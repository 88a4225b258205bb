"""A node's runner from the console's side: starts it on an open connection, asks it, and has it perform steps.

Implements `runner.api.NodeLine`. Every call raises LinkLost when the runner's channel ends, because the connection
broke or the runner was killed; what it had begun is asked about on the next connection. A reply that can't be read may
be the one that a request waits for: a request for one reply then fails at once, a step is asked about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparktop import faults, wire
from sparktop.bounds import json_of, whole_or_none
from sparktop.errors import LinkLost, NoAnswer, ProbeError, TransportError
from sparktop.model.survey import Answer, PrivilegesQuestion, Question
from sparktop.model.telemetry import Garbled
from sparktop.operate.runner import codec
from sparktop.operate.runner.api import NOBODY, AskSecret, LockHolder, OnResult, Operations, Outcome, OutcomeState
from sparktop.probe import bundle
from sparktop.transport.base import Channel, Transport
from sparktop.wire.framing import Splitter

PROTOCOL = 1
HELLO_LIMIT_S = 120.0
"""Under memory pressure a process starts slowly, and does start (docs/facts/reliability.md section 0)."""
ASK_SLACK_S = 30.0
"""Beyond what a question may take on the node."""
REPLY_LIMIT_S = 30.0
"""For a request that the runner answers at once, on a slow node: lock, unlock, outcome, end."""
ASKS_AT_ONCE = 4
SECRETS_AT_MOST = 20
"""Of one step: sudo asks three times, for each of its few operations."""
ANSWER_CHARS = 8 << 20
"""More than any runner of ours answers (4 MiB); a longer answer is dropped."""
UNREAD_BYTES = 16 << 20
"""Replies to one request that nobody has read yet, as while the operator types a password: more ends the runner."""

Words = dict[str, Any]
Begun = dict[tuple[str, str], str]
"""(run, step) -> the node's boot id when the step was started; kept from connection to connection."""


class RunnerLine:
    """The connection to one runner, while its channel stands."""

    def __init__(
        self,
        node: str,
        transport: Transport,
        channel: Channel,
        *,
        key: str,
        begun: Begun,
        fault: Callable[[str, BaseException], object] | None = None,
    ) -> None:
        self._node = node
        self._transport = transport
        self._channel = channel
        self._key = key
        self._begun = begun
        self._fault = fault
        self._number = 0
        self._requests: dict[int, _Request] = {}
        self._hello: asyncio.Future[Words] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._why_ended = "the runner ended"
        self._bye_reason = ""
        self._privileges: Answer | None = None
        self._password: tuple[str, str] | None = None
        """(run, the password typed for it): for this run's further commands only."""
        self._asking = asyncio.Semaphore(ASKS_AT_ONCE)
        self._password_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.boot_id = ""
        self.pid = 0
        """Pid of the runner, on the node."""
        self.problem = ""
        """Why no step can be started here, in the runner's words."""

    def __repr__(self) -> str:
        return f"RunnerLine({self._node!r})"

    # -- its life

    @classmethod
    async def open(
        cls,
        node: str,
        transport: Transport,
        *,
        key: str,
        begun: Begun | None = None,
        launch: bundle.Launch | None = None,
        fault: Callable[[str, BaseException], object] | None = None,
    ) -> RunnerLine:
        """Start a runner on the connection, and wait for its greeting.

        Args:
            key: this console's own; its older runner on the node yields to one with the same key.
            begun: shared by all connections to the node.
            launch: replaces the usual one, in tests.
            fault: called once, with the place and the error, when a reply can't be read.

        Raises:
            LinkLost: the connection ended.
            ChannelRefused: sshd gave no session.
            ProbeError: the runner did not start; the hint says what to do.
        """
        launch = launch or bundle.launch_runner()
        channel = await transport.run(launch.argv)
        line = cls(node, transport, channel, key=key, begun={} if begun is None else begun, fault=fault)
        try:
            async with asyncio.timeout(HELLO_LIMIT_S):
                try:
                    await channel.write(launch.payload)
                except LinkLost:
                    pass  # it may have ended before reading everything: its output says why
                rest = await bundle.greeted(channel, launch.nonce, "runner")
                line._start(rest)
                hello = await line._hello
        except TimeoutError:
            await line.close()
            raise ProbeError(
                f"the runner on {node} did not come up within {HELLO_LIMIT_S:.0f} s",
                hint=bundle.SLOW_START_HINT,
            ) from None
        except BaseException:
            await line.close()
            raise
        if hello.get("protocol") != PROTOCOL:
            await line.close()
            raise ProbeError(f"the runner on {node} speaks another protocol than this console")
        line.boot_id, line.pid = str(hello.get("boot") or ""), whole_or_none(hello.get("pid")) or 0
        line.problem = codec.sentence_of(hello.get("problem"))
        return line

    def _start(self, data: bytes) -> None:
        for work in (self._listen(data), self._beat()):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the runner; a step that it started goes on."""
        self._end("closed here")
        for task in tuple(self._tasks):
            task.cancel()
        await self._channel.close()

    async def wait_ended(self) -> str:
        """Wait until the channel has ended; why it did."""
        await self._ended.wait()
        return self._why_ended

    def _end(self, why: str) -> None:
        if self._ended.is_set():
            return
        self._why_ended = why
        self._password = None
        self._ended.set()
        if not self._hello.done():
            self._hello.set_exception(LinkLost(why))
            self._hello.exception()  # marks it as retrieved: perhaps nobody waits for it
        for request in self._requests.values():
            request.take(LinkLost(why), 0)

    async def _listen(self, data: bytes) -> None:
        splitter = Splitter()
        try:
            while True:
                for line in splitter.feed(data):
                    self._dispatch(line)
                if self._ended.is_set():
                    return
                data = await self._channel.read()
                if not data:
                    break
        except LinkLost as error:
            self._end(error.message)
            return
        except Exception as error:  # noqa: BLE001 - whoever waits for an answer must hear that none will come
            self._end(faults.report(f"the runner of {self._node}", error))
            return
        reason = self._bye_reason or self._channel.error_tail().rpartition("\n")[2]
        self._end("the runner ended" + (f": {reason}" if reason else ""))

    def _dispatch(self, line: bytes | Garbled) -> None:
        try:
            if isinstance(line, Garbled):
                raise ProbeError(line.reason)
            words = json_of(line)
            if not isinstance(words, dict):
                raise ProbeError(f"a reply is no object: {type(words).__name__}")
            if words.get("kind") == "hello" and not self._hello.done():
                self._hello.set_result(words)
            elif words.get("kind") == "bye":
                self._bye_reason = codec.sentence_of(words.get("reason"))
            else:
                number = words.get("id")
                if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= self._number:
                    raise ProbeError("a reply to nothing that was asked")
                if (request := self._requests.get(number)) is not None:
                    self._hand_over(request, words, len(line))
        except (ProbeError, ValueError) as error:
            self._unreadable(error)

    def _unreadable(self, error: Exception) -> None:
        """Tell everybody who waits that a reply can't be read, as it may be theirs; name the first on the screen."""
        for request in self._requests.values():
            self._hand_over(request, self._no_answer(str(error)), 200)
        if self._fault is not None:
            self._fault("runner's replies", error)
            self._fault = None

    def _hand_over(self, request: _Request, reply: Words | TransportError, size: int) -> None:
        request.take(reply, size)
        if request.unread_bytes > UNREAD_BYTES:
            self._end(f"the runner sends more than anybody reads ({UNREAD_BYTES >> 20} MiB of replies to one request)")

    async def _beat(self) -> None:
        try:
            while True:
                await asyncio.sleep(wire.HEARTBEAT_S)
                await self._channel.write(b'{"beat":1}\n')
        except LinkLost:
            pass  # the listener gets the same error and says why

    # -- NodeLine

    @property
    def node(self) -> str:
        return self._node

    @property
    def transport(self) -> Transport:
        return self._transport

    async def ask(self, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        distinct_questions = tuple(dict.fromkeys(questions))
        async with asyncio.TaskGroup() as group:
            tasks = {ask: group.create_task(self._answer_or_lost(ask)) for ask in distinct_questions}
        results = {ask: task.result() for ask, task in tasks.items()}
        for answer in results.values():
            if isinstance(answer, LinkLost):
                raise answer
        return {ask: answer for ask, answer in results.items() if isinstance(answer, Answer)}

    async def _answer_or_lost(self, ask: Question) -> Answer | LinkLost:
        """An answer, or LinkLost as a value: a task group would wrap the exception."""
        try:
            async with self._asking:
                return await self._answer(ask)
        except LinkLost as error:
            return error

    async def _answer(self, ask: Question) -> Answer:
        if ask.node != self._node:
            return Answer(problem=f"this is {self._node}, and {ask.node} was asked")
        if isinstance(ask, PrivilegesQuestion) and self._privileges is not None:
            return self._privileges
        limit_s = codec.question_limit_s(ask) + ASK_SLACK_S
        pieces: list[str] = []
        left = ANSWER_CHARS
        unreadable = ""
        request = self._request()
        try:
            async with asyncio.timeout(limit_s):
                await request.send(codec.question_words(ask))
                while True:
                    try:
                        words = await request.reply()
                    except NoAnswer as error:
                        unreadable = unreadable or error.message
                        continue
                    if words["kind"] != "chunk":
                        break
                    pieces.append(str(words.get("text") or ""))
                    left -= len(pieces[-1])
                    if left < 0:
                        return Answer(problem=f"{self._node} says more than it was asked for")
        except TimeoutError:
            self._drop(request)
            return Answer(problem=unreadable or f"{self._node} gave no answer within {limit_s:.0f} s")
        except asyncio.CancelledError:
            self._drop(request)
            raise
        finally:
            request.close()
        answer = codec.answer_of(ask, words, "".join(pieces))
        if isinstance(ask, PrivilegesQuestion) and answer.value is not None:
            self._privileges = answer
        return answer

    def _drop(self, request: _Request) -> None:
        """Have the node end a program that nobody waits for any more, as one that loads the link."""

        async def dropped() -> None:
            with contextlib.suppress(LinkLost):
                await request.send({"drop": 1})

        task = asyncio.create_task(dropped())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def lock(self, who: str, what: str) -> LockHolder | None:
        words = await self._one_reply({"lock": {"who": who, "what": what, "key": self._key}}, "lock")
        if words["kind"] == "refused":
            problem, hint = (codec.sentence_of(words.get(key)) for key in ("problem", "hint"))
            return LockHolder(who=NOBODY, what=problem, hint=hint)
        if not isinstance(words.get("held"), bool):
            raise self._no_answer("it doesn't say whether the lock is held")
        return None if words["held"] else codec.holder_of(words)

    async def unlock(self) -> None:
        self._password = None
        await self._one_reply({"unlock": 1}, "unlocked")

    async def perform(
        self, run_id: str, step_id: str, act: Operations, *, told: OnResult, secret: AskSecret
    ) -> Outcome:
        if self._password is not None and self._password[0] != run_id:
            self._password = None
        request = self._request()
        secrets_asked = 0
        try:
            self._begun.setdefault((run_id, step_id), self.boot_id)
            await request.send({"step": codec.step_words(run_id, step_id, act)})
            while True:
                try:
                    words = await request.reply()
                except NoAnswer:  # was it the outcome?
                    outcome = await self.outcome(run_id, step_id)
                    if outcome.state is not OutcomeState.RUNNING:
                        return outcome
                    continue
                match words["kind"]:
                    case "result":
                        told(codec.result_of(words))
                    case "progress":
                        told(codec.progress_of(words))
                    case "ask secret":
                        secrets_asked += 1
                        if secrets_asked > SECRETS_AT_MOST:
                            raise NoAnswer(f"the runner asks for a password again and again ({secrets_asked} times)")
                        await self._give_secret(run_id, words.get("wrong"), secret, request)
                    case "refused":
                        return Outcome(state=OutcomeState.FAILED, problem=codec.sentence_of(words.get("problem")))
                    case "outcome":
                        return self._outcome_of_this_boot(run_id, step_id, codec.outcome_of(words))
        finally:
            request.close()

    async def outcome(self, run_id: str, step_id: str) -> Outcome:
        return await self._query_step("outcome", run_id, step_id)

    async def end(self, run_id: str, step_id: str) -> Outcome:
        return await self._query_step("end", run_id, step_id)

    async def _query_step(self, what: str, run_id: str, step_id: str) -> Outcome:
        words = await self._one_reply({what: {"run": run_id, "step": step_id}}, "outcome")
        if words["kind"] == "refused":
            return Outcome(state=OutcomeState.GONE, problem=codec.sentence_of(words.get("problem")))
        return self._outcome_of_this_boot(run_id, step_id, codec.outcome_of(words))

    def _outcome_of_this_boot(self, run_id: str, step_id: str, outcome: Outcome) -> Outcome:
        """The outcome, corrected for a reboot: a journal doesn't outlive a boot, so "not started" is GONE then."""
        boot_id = self._begun.get((run_id, step_id), self.boot_id)
        if outcome.state is OutcomeState.NOT_STARTED and boot_id != self.boot_id:
            return Outcome(state=OutcomeState.GONE, problem=f"{self._node} was rebooted meanwhile")
        return outcome

    async def _give_secret(self, run_id: str, wrong: object, ask: AskSecret, request: _Request) -> None:
        answer = None
        try:
            answer = await self._secret(run_id, wrong if isinstance(wrong, int) else 0, ask)
        finally:  # whatever happened here, the node must not wait for an answer
            sending = asyncio.ensure_future(request.send({"secret": answer}))
            self._tasks.add(sending)
            sending.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the listener reports a lost link

    async def _secret(self, run_id: str, wrong: int, ask: AskSecret) -> str | None:
        """The password: what was typed for this run already, else what the operator types now.

        The question ends when the connection is lost while the operator types.
        """
        async with self._password_lock:
            if wrong == 0 and self._password is not None and self._password[0] == run_id:
                return self._password[1]
            self._password = None
            asking = asyncio.ensure_future(ask(self._node, wrong))
            ended = asyncio.ensure_future(self._ended.wait())
            try:
                await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    raise LinkLost(self._why_ended)
                answer = asking.result()
            finally:
                asking.cancel()
                ended.cancel()
            if answer is not None and not self._ended.is_set():
                self._password = run_id, answer
            return answer

    # -- requests

    def _request(self) -> _Request:
        self._number += 1
        return _Request(self, self._number)

    async def _one_reply(self, words: Words, kind: str) -> Words:
        """The one reply to a request: of this kind, or "refused".

        Raises:
            LinkLost: the connection ended.
            NoAnswer: it can't be read, or doesn't come.
        """
        request = self._request()
        try:
            async with asyncio.timeout(REPLY_LIMIT_S):
                await request.send(words)
                reply = await request.reply()
        except TimeoutError:
            message = f"the runner gave no answer within {REPLY_LIMIT_S:.0f} s"
            raise NoAnswer(message, hint=f"{self._node} may be short of memory: wait, then plan again") from None
        finally:
            request.close()
        if reply["kind"] not in (kind, "refused"):
            raise self._no_answer(f"it is of another kind ({codec.sentence_of(reply['kind']) or 'none'})")
        return reply

    def _no_answer(self, problem: str) -> NoAnswer:
        return NoAnswer(
            f"the runner's answer could not be read: {codec.sentence_of(problem)}",
            hint=f"plan again; if it stays, start sparktop again: that starts another runner on {self._node}",
        )


class _Request:
    """One request, and the replies with its number."""

    def __init__(self, line: RunnerLine, number: int) -> None:
        self._line = line
        self._number = number
        self._queue: asyncio.Queue[tuple[Words | TransportError, int]] = asyncio.Queue()
        self.unread_bytes = 0
        line._requests[number] = self

    async def send(self, words: Words) -> None:
        """Raises LinkLost."""
        if self._line._ended.is_set():
            raise LinkLost(self._line._why_ended)
        await self._line._channel.write(json.dumps({"id": self._number, **words}).encode() + b"\n")

    def take(self, reply: Words | TransportError, size: int) -> None:
        """Keep a reply of so many bytes until it is read."""
        self._queue.put_nowait((reply, size))
        self.unread_bytes += size

    async def reply(self) -> Words:
        """The next reply; raises LinkLost, or NoAnswer where one came that can't be read and may be this one's."""
        if self._line._ended.is_set() and self._queue.empty():
            raise LinkLost(self._line._why_ended)
        words, size = await self._queue.get()
        self.unread_bytes -= size
        if isinstance(words, TransportError):
            raise words
        return {"kind": "", **words}

    def close(self) -> None:
        self._line._requests.pop(self._number, None)
