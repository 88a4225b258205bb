"""Operations on a node's runner, through lost connections: begun once, their outcome found out however long that takes.

A step whose connection broke is asked about, never started again, unless the node knows nothing of it. A step in
progress is completed when the operator aborts; only a step that only downloads is ended.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from sparktop.dataclass import dataclass
from sparktop.errors import LinkLost, TransportError
from sparktop.model.fleet import NodeView
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Signal, Transfer
from sparktop.operate.acts.operation_text import operation_lines, typed, typed_by_hand
from sparktop.operate.acts.pace import ProgressRate, size
from sparktop.operate.runner.api import NodeLine, OperationResult, Outcome, OutcomeState, Progress
from sparktop.operate.runner.codec import longest_s
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.node_lock import RETRY_S, NodeTaken, NoLine
from sparktop.operate.step.placeholders import fill_command, fill_operations
from sparktop.operate.step.step_result import StepResult, StepState
from sparktop.operate.step.wait import Aborted
from sparktop.text.sentences import sentence
from sparktop.text.units import countdown

SLACK_S = 60.0
"""A node under memory pressure takes seconds for what it usually does at once."""
ANSWER_LIMIT_S = 30.0
ASK_AGAIN_S = 1.0
BEGIN_AT_MOST = 20
"""How often a step is begun whose node says that it never began."""
PROBE_OF_DONE_S = 30.0
END_LIMIT_S = 60.0
"""A step that only downloads ends within this time, once its node was told to."""
FULL_BYTES = 256 * 1024 * 1024
"""A transfer that failed with less free on its disk has failed for that: a shard's next piece is this large."""
STARTED_TOLERANCE_S = 1.5
_CONTAINER = re.compile(r"^/containers/([0-9a-f]{64})/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote(Act):
    """Operations that the runner on the Spark carries out in order; once started, they are completed or undone even
    if the connection is lost."""

    changes: ClassVar[bool] = True

    operations: tuple[Operation, ...]
    undo: tuple[Operation, ...] = ()
    """Carried out in this order when an operation fails; each is tried, even if the one before failed."""
    reverse: tuple[Operation, ...] | str | None = None
    """What reverts it once it is done: operations that only people type, or words where none do; None: its undo."""
    takes_link: bool = False
    """The step ends the connection (a reboot): its loss, or a node that has rebooted since, is no failure of this
    step. The next step checks the result."""

    async def perform(self, hands: Hands) -> StepResult:
        return await _Carrying(self, hands).carry_out()

    def text(self) -> Iterator[str]:
        for operation in self.operations:
            yield from operation_lines(operation)
        for operation in self.undo:
            for line in operation_lines(operation):
                yield f"if it fails: {line}"

    def commands(self) -> tuple[str, ...]:
        return tuple(typed_by_hand(self.operations, {}))

    def undoing(self) -> tuple[str, ...]:
        if isinstance(self.reverse, str):
            return (self.reverse,) if self.reverse else ()
        names: dict[str, str] = {}
        deque(typed(self.operations, names), maxlen=0)  # what it has renamed by then
        return tuple(typed_by_hand(self.undo if self.reverse is None else self.reverse, names))

    def filled(self, saved: Mapping[str, str]) -> Remote | None:
        reverse = self.reverse
        filled = fill_operations(saved, self.operations, self.undo, reverse if isinstance(reverse, tuple) else ())
        if filled is None:
            return None
        if reverse is not None:
            reverse = fill_command(reverse, saved) if isinstance(reverse, str) else filled[2]
        return replace(self, operations=filled[0], undo=filled[1], reverse=reverse)

    def outdated(self, view: NodeView) -> Iterator[str]:
        for operation in self.operations:
            if isinstance(operation, DockerCall) and 404 in operation.accepts:
                continue  # a container that is gone is fine for it
            if isinstance(operation, DockerCall | Expect) and (container := _CONTAINER.match(operation.path)):
                started_at = operation.equals.get("State.StartedAt") if isinstance(operation, Expect) else None
                yield from container_changes(container[1], started_at, view)

    @property
    def is_kept(self) -> bool:
        operations = (*self.operations, *self.undo)
        return bool(operations) and not self.takes_link and all(map(_can_be_kept, operations))

    @property
    def is_check(self) -> bool:
        return all(isinstance(operation, Expect) for operation in self.operations)

    @property
    def only_fetches(self) -> bool:
        return bool(self.operations) and all(isinstance(one, ImagePull | Transfer) for one in self.operations)

    @property
    def goes_on(self) -> str:
        if self.only_fetches:
            return "goes on by itself, and the next run follows it"
        return "completes or reverts this step by itself"

    @property
    def stops(self) -> bool:
        return any(
            isinstance(operation, Signal)
            or (isinstance(operation, DockerCall) and operation.path.endswith(("/stop", "/kill")))
            for operation in self.operations
        )

    @property
    def grace_s(self) -> float | None:
        for operation in self.operations:
            if isinstance(operation, DockerCall) and operation.path.endswith("/stop"):
                seconds_text = operation.query.get("t", "")
                return float(seconds_text) if seconds_text.isdecimal() and int(seconds_text) else None
            if isinstance(operation, Signal) and operation.signal == "TERM" and operation.ends_within_s:
                return operation.ends_within_s
        return None

    def bound_s(self, step_limit_s: float) -> float:
        """How long it may take: all its limits, its undo, and a slow node."""
        limits = 0.0
        for operation in (*self.operations, *self.undo):
            if isinstance(operation, Expect):
                limits += operation.within_s + ANSWER_LIMIT_S
            elif isinstance(operation, Signal):
                limits += operation.ends_within_s + ANSWER_LIMIT_S
            elif isinstance(operation, ImagePull | Transfer):
                limits += longest_s(operation) + ANSWER_LIMIT_S
            else:
                limits += operation.limit_s + (PROBE_OF_DONE_S if operation.done_when is not None else 0.0)
        return max(step_limit_s, limits) + SLACK_S


class _LinkTaken(Exception):
    """The link was lost, as the step meant it to be (a reboot)."""


class _Carrying:
    """Carries out the operations of one step."""

    def __init__(self, act: Remote, hands: Hands) -> None:
        self._act = act
        self._hands = hands
        self._context = hands.context
        self._locks = hands.locks
        self._abort = hands.abort
        self._pace = ProgressRate()
        self._is_silent = False
        self._is_begun = False
        """The node may have the step."""
        self._why = ""

    async def carry_out(self) -> StepResult:
        """Carry out the step; returns when its result is known, or can't be known."""
        node = self._hands.node
        try:
            outcome = await self._outcome()
        except NodeTaken as node_taken:
            return StepResult(state=StepState.FAILED, detail=f"{node_taken}. This step did not start.")
        except _LinkTaken:
            return StepResult(state=StepState.DONE, detail="the link broke with it", has_touched=True)
        except NoLine as no_line:
            if not self._is_begun:
                return StepResult(state=StepState.FAILED, detail=f"{no_line}. This step did not start.")
            detail = f"{no_line}. Whether it was done is not known; {node} {self._act.goes_on}."
            is_aborted = self._abort.is_wanted
            return StepResult(state=StepState.UNKNOWN, detail=detail, has_touched=True, is_aborted=is_aborted)
        except Aborted:
            if not self._is_begun:
                return StepResult(state=StepState.SKIPPED, is_aborted=True)
            detail = f"{self._why}. How it ended is not known; {node} {self._act.goes_on}."
            return StepResult(state=StepState.UNKNOWN, detail=detail, has_touched=True, is_aborted=True)
        if outcome.state is OutcomeState.GONE and self._act.takes_link:
            return StepResult(state=StepState.DONE, detail="the node has rebooted", has_touched=True)
        result = step_result(outcome, self._act, self._hands.node)
        was_ended = any(operation.was_ended for operation in outcome.results)
        return replace(result, is_aborted=True) if was_ended and self._abort.is_wanted else result

    async def _outcome(self) -> Outcome:
        """The step's outcome on the node, waited for."""
        clock, until_s = self._context.clock, None
        not_begun = 0
        while True:
            outcome = await self._next_outcome()
            if outcome.state is OutcomeState.RUNNING:
                until_s = clock.monotonic() + self._act.bound_s(self._hands.limit_s) if until_s is None else until_s
                if self._act.only_fetches and self._abort.is_wanted:
                    until_s = min(until_s, clock.monotonic() + END_LIMIT_S)
                if clock.monotonic() > until_s:
                    raise NoLine(f"{self._hands.node} still works on it, long after its time limit")
                if outcome.progress is None or self._is_silent:
                    self._is_silent = False
                    self._hands.found("it still works on it")
                if outcome.progress is not None:
                    self._told(outcome.progress)
                await self._context.pause(ASK_AGAIN_S)
            elif outcome.state is OutcomeState.NOT_STARTED:
                self._is_begun = False
                not_begun += 1
                if not_begun >= BEGIN_AT_MOST:
                    raise NoLine(
                        f"{self._hands.node} was asked {not_begun} times to start it, and says it never started"
                    )
                self._hands.found("it did not start there")
                await self._context.pause(RETRY_S)
            else:
                return outcome

    async def _next_outcome(self) -> Outcome:
        """The node's next answer; asked again on every new connection until there is one."""
        clock, until_s = self._context.clock, None
        while True:
            if self._abort.is_wanted and not self._is_begun:
                raise Aborted
            try:
                line = await self._line(until_s)
                if self._is_begun:
                    query = line.end if self._act.only_fetches and self._abort.is_wanted else line.outcome
                    return await query(self._hands.run_id, self._hands.step_id)
                if self._act.only_fetches:
                    await self._locks.let_go()
                else:
                    await self._locks.take(line)
                self._is_begun = True
                return await self._perform(line)
            except TimeoutError:
                self._why = f"{self._hands.node} doesn't answer"
            except TransportError as error:
                if self._is_begun and self._act.takes_link and isinstance(error, LinkLost):
                    raise _LinkTaken from None
                self._why = f"{self._hands.node}: {error.message}"
            self._is_silent = True
            self._lost(self._why)
            patience_s = self._context.abort_grace_s if self._abort.is_wanted else self._patience_s
            until_s = min(clock.monotonic() + patience_s, until_s if until_s is not None else math.inf)
            await self._context.pause(RETRY_S)

    @property
    def _patience_s(self) -> float:
        """How long the node may be silent: downloads go on without us, however long a laptop is closed."""
        patience_s = self._context.link_patience_s
        return max(patience_s, self._act.bound_s(self._hands.limit_s)) if self._act.only_fetches else patience_s

    async def _line(self, until_s: float | None) -> NodeLine:
        left_s = self._context.first_line_s if until_s is None else until_s - self._context.clock.monotonic()
        if left_s <= 0:
            raise NoLine(self._why)
        grace_s = self._context.abort_grace_s if self._abort.is_wanted else 0.0
        return await self._locks.line(self._hands.node, patience_s=left_s, grace_s=grace_s)

    async def _perform(self, line: NodeLine) -> Outcome:
        """Have the node begin the step; the node bounds each operation itself, this limit is for a node that falls
        silent."""
        loop = asyncio.get_running_loop()
        bound_limit_s = self._act.bound_s(self._hands.limit_s)

        async with asyncio.timeout(bound_limit_s) as limit:

            async def ask_secret(node: str, wrong: int) -> str | None:
                limit.reschedule(None)  # no limit while the operator types
                try:
                    return await self._hands.password(node, wrong)
                finally:
                    limit.reschedule(loop.time() + bound_limit_s)

            work = line.perform(self._hands.run_id, self._hands.step_id, self._act, told=self._told, secret=ask_secret)
            return await (self._endable(line, work) if self._act.only_fetches else work)

    async def _endable(self, line: NodeLine, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The outcome of a download; the node is told to end it when the operator aborts."""
        performing = asyncio.ensure_future(work)
        aborting = asyncio.ensure_future(self._abort.wanted())
        try:
            await asyncio.wait({performing, aborting}, return_when=asyncio.FIRST_COMPLETED)
            if performing.done():
                return performing.result()
            async with asyncio.timeout(END_LIMIT_S):
                await line.end(self._hands.run_id, self._hands.step_id)
                return await performing
        finally:
            for task in (performing, aborting):
                task.cancel()
            await asyncio.gather(performing, aborting, return_exceptions=True)

    def _told(self, result: OperationResult | Progress) -> None:
        total = len(self._act.operations)
        if isinstance(result, Progress):
            self._pace.hear(result, self._context.clock.monotonic())
            detail, ratio = self._pace.words, self._pace.ratio
            if total > 1:
                detail = f"{result.index + 1} of {total}: {detail}"
            self._hands.progress(detail, None if ratio is None else (result.index + ratio) / total)
        elif result.is_undo:
            self._hands.progress("reverting what this step did", None)
        elif result.ok and total > 1:
            done_count = result.index + 1
            self._hands.progress(f"{done_count} of {total} done", done_count / total)

    def _lost(self, why: str) -> None:
        self._pace.skip()
        self._hands.lost(why)


def step_result(outcome: Outcome, act: Remote, node: str) -> StepResult:
    """The result of a step, from its outcome on the node."""
    has_acted = _has_acted(outcome, act) and not act.only_fetches
    result = StepResult(
        state=StepState.FAILED,
        has_touched=has_acted,
        has_acted=has_acted,
        results=outcome.results,
        saved=outcome.saved,
    )
    if outcome.state is OutcomeState.DONE:
        detail, brief = _done_detail(outcome.results)
        return replace(result, state=StepState.DONE, detail=detail, brief=brief)
    if outcome.state is OutcomeState.FAILED:
        undo_note = {True: " What it had done is reverted.", None: "", False: _undo_problems(outcome.results)}
        return replace(
            result,
            detail=(
                f"{sentence(outcome.problem or _last_problem(outcome.results))}{undo_note[outcome.undone]}"
                f"{_left_note(outcome, act, node)}"
            ),
            has_touched=has_acted and outcome.undone is not True,
        )
    is_harmless = act.only_fetches
    next_step = (
        "What was downloaded stays; the next try goes on from there." if is_harmless else "Check it before you go on."
    )
    return replace(
        result,
        detail=(
            f"{node} has rebooted, or its runner was killed: how far this step came is not known. "
            f"{sentence(outcome.problem) + ' ' if outcome.problem else ''}{next_step}"
        ),
        has_touched=not is_harmless,
        has_acted=not is_harmless,
    )


def _has_acted(outcome: Outcome, act: Remote) -> bool:
    """Whether an operation began that changes something; a call that was refused may have."""
    for result in outcome.results:
        has_run = not (result.is_undo or result.was_done or result.is_untouched)
        if has_run and 0 <= result.index < len(act.operations) and not isinstance(act.operations[result.index], Expect):
            return True
    return not outcome.results and outcome.state is OutcomeState.DONE


def _done_detail(results: Sequence[OperationResult]) -> tuple[str, str | None]:
    """(detail, and in brief) of a step that is done; its time alone is shown beside it."""
    done_results = [result for result in results if not result.is_undo]
    if done_results and all(result.was_done for result in done_results):
        return "was done already", None
    seconds = sum(result.seconds for result in done_results)
    if total_bytes := sum(result.brought_bytes or 0 for result in done_results):
        return f"{size(total_bytes)} in {countdown(round(seconds))}", None
    return (f"{seconds:.1f} s", "") if seconds >= 0.05 else ("", None)


def _last_problem(results: Sequence[OperationResult]) -> str:
    failed = [result for result in results if not result.ok and not result.is_undo]
    if not failed:
        return "it failed"
    last = failed[-1]
    return last.problem or (f"exit {last.code}" if last.code is not None else "it failed")


def _left_note(outcome: Outcome, act: Remote, node: str) -> str:
    """What a transfer that failed has left in its folder, and the disk's free space where that is the reason."""
    result = next((result for result in outcome.results if not result.ok and result.brought_bytes is not None), None)
    transfer = act.operations[result.index] if result is not None and result.index < len(act.operations) else None
    if result is None or not isinstance(transfer, Transfer):
        return ""
    note = f" {size(result.brought_bytes or 0)} downloaded by now stay in {transfer.grows} on {node}."
    if result.free_bytes is not None and result.free_bytes < FULL_BYTES:
        return (
            f"{note} That disk is full: {size(result.free_bytes)} free. Free some (docker system df, du -sh "
            f"{transfer.grows}), then try again: it goes on from there."
        )
    return f"{note} The next try goes on from there."


def _undo_problems(results: Sequence[OperationResult]) -> str:
    problems = [result.problem or f"exit {result.code}" for result in results if result.is_undo and not result.ok]
    return f" It could not be reverted: {'; '.join(problems)}." if problems else " A part could not be reverted."


def _can_be_kept(operation: Operation) -> bool:
    """Whether it holds no secret, and means the same another day."""
    if isinstance(operation, Command):
        return not (operation.content or operation.environment)
    return isinstance(operation, DockerCall | Expect)


def container_changes(container_id: str, started_at: object, view: NodeView, name: str = "") -> Iterator[str]:
    """Sentences on a container that isn't there any more, or runs anew."""
    containers = view.containers
    if not containers.available:
        return  # the list is not available here; the step's own Expect asks Docker on the node
    container = next((candidate for candidate in containers.containers if candidate.container_id == container_id), None)
    if container is None:
        yield f"Container {name or container_id[:12]} is gone from {view.name}."
        return
    planned_s = _epoch(started_at)
    if planned_s is None or container.started_wall_s is None:
        return
    if abs(container.started_wall_s - planned_s) > STARTED_TOLERANCE_S:
        yield f"{container.name} on {view.name} has been restarted since the plan was made."


def _epoch(stamp: object) -> float | None:
    """Docker's time stamp in seconds; None for one that says "never"."""
    if not isinstance(stamp, str) or stamp.startswith("0001"):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
