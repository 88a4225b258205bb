"""One step on a node's runner, through lost connections: begun once, its outcome found out however long that takes.

A step whose connection broke is asked about, never started again, unless the node knows nothing of it. A step in
progress is completed when the operator aborts; only a step that only downloads is ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.errors import LinkLost, TransportError
from sparktop.model.operation import Expect, ImagePull, Signal, Transfer
from sparktop.model.plan import Remote, Step, only_fetches
from sparktop.model.run import StepState
from sparktop.operate.run.node_lock import RETRY_S, NodeLocks, NodeTaken, NoLine
from sparktop.operate.run.run_context import RunContext
from sparktop.operate.run.step_result import StepResult, step_result
from sparktop.operate.run.wait import Abort, Aborted
from sparktop.operate.runner.api import AskSecret, NodeLine, OnResult, Outcome, OutcomeState
from sparktop.operate.runner.codec import longest_s

SLACK_S = 60.0
"""A node under memory pressure takes seconds for what it usually does at once."""
ANSWER_LIMIT_S = 30.0
ASK_AGAIN_S = 1.0
BEGIN_AT_MOST = 20
"""How often a step is begun whose node says that it never began."""
PROBE_OF_DONE_S = 30.0
END_LIMIT_S = 60.0
"""A step that only downloads ends within this time, once its node was told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepListener:
    """Callbacks on the progress of a remote step."""

    result: OnResult
    lost: Callable[[str], None]
    """The node can't be heard, and why."""
    found: Callable[[str], None]
    """The node is heard again, and what it says."""


class _LinkTaken(Exception):
    """The link was lost, as the step meant it to be (a reboot)."""


class RemoteStep:
    """Carries out one step on its node."""

    def __init__(
        self,
        step: Step,
        act: Remote,
        run_id: str,
        *,
        context: RunContext,
        locks: NodeLocks,
        abort: Abort,
        listener: StepListener,
    ) -> None:
        self._step = step
        self._act = act
        self._run_id = run_id
        self._context = context
        self._locks = locks
        self._abort = abort
        self._listener = listener
        self._fetches = only_fetches(act)
        self._is_silent = False
        self._is_begun = False
        """The node may have the step."""
        self._why = ""

    async def carry_out(self, secret: AskSecret) -> StepResult:
        """Carry out the step; returns when its result is known, or can't be known."""
        node = self._step.node
        try:
            outcome = await self._outcome(secret)
        except NodeTaken as node_taken:
            return StepResult(state=StepState.FAILED, detail=f"{node_taken}. This step did not start.")
        except _LinkTaken:
            return StepResult(state=StepState.DONE, detail="the link broke with it", has_touched=True)
        except NoLine as no_line:
            if not self._is_begun:
                return StepResult(state=StepState.FAILED, detail=f"{no_line}. This step did not start.")
            detail = f"{no_line}. Whether it was done is not known; {node} {self._continues_text}."
            is_aborted = self._abort.is_wanted
            return StepResult(state=StepState.UNKNOWN, detail=detail, has_touched=True, is_aborted=is_aborted)
        except Aborted:
            if not self._is_begun:
                return StepResult(state=StepState.SKIPPED, is_aborted=True)
            detail = f"{self._why}. How it ended is not known; {node} {self._continues_text}."
            return StepResult(state=StepState.UNKNOWN, detail=detail, has_touched=True, is_aborted=True)
        if outcome.state is OutcomeState.GONE and self._act.takes_link:
            return StepResult(state=StepState.DONE, detail="the node has rebooted", has_touched=True)
        result = step_result(outcome, self._step)
        was_ended = any(operation.was_ended for operation in outcome.results)
        return replace(result, is_aborted=True) if was_ended and self._abort.is_wanted else result

    @property
    def _continues_text(self) -> str:
        if self._fetches:
            return "goes on by itself, and the next run follows it"
        return "completes or reverts this step by itself"

    async def _outcome(self, secret: AskSecret) -> Outcome:
        """The step's outcome on the node, waited for."""
        clock, until_s = self._context.clock, None
        not_begun = 0
        while True:
            outcome = await self._next_outcome(secret)
            if outcome.state is OutcomeState.RUNNING:
                until_s = clock.monotonic() + bound_s(self._step) if until_s is None else until_s
                if self._fetches and self._abort.is_wanted:
                    until_s = min(until_s, clock.monotonic() + END_LIMIT_S)
                if clock.monotonic() > until_s:
                    raise NoLine(f"{self._step.node} still works on it, long after its time limit")
                if outcome.progress is None or self._is_silent:
                    self._is_silent = False
                    self._listener.found("it still works on it")
                if outcome.progress is not None:
                    self._listener.result(outcome.progress)
                await self._context.pause(ASK_AGAIN_S)
            elif outcome.state is OutcomeState.NOT_STARTED:
                self._is_begun = False
                not_begun += 1
                if not_begun >= BEGIN_AT_MOST:
                    raise NoLine(
                        f"{self._step.node} was asked {not_begun} times to start it, and says it never started"
                    )
                self._listener.found("it did not start there")
                await self._context.pause(RETRY_S)
            else:
                return outcome

    async def _next_outcome(self, secret: AskSecret) -> Outcome:
        """The node's next answer; asked again on every new connection until there is one."""
        clock, until_s = self._context.clock, None
        while True:
            if self._abort.is_wanted and not self._is_begun:
                raise Aborted
            try:
                line = await self._line(until_s)
                if self._is_begun:
                    query = line.end if self._fetches and self._abort.is_wanted else line.outcome
                    return await query(self._run_id, self._step.id)
                if self._fetches:
                    await self._locks.let_go()
                else:
                    await self._locks.take(line)
                self._is_begun = True
                return await self._perform(line, secret)
            except TimeoutError:
                self._why = f"{self._step.node} doesn't answer"
            except TransportError as error:
                if self._is_begun and self._act.takes_link and isinstance(error, LinkLost):
                    raise _LinkTaken from None
                self._why = f"{self._step.node}: {error.message}"
            self._is_silent = True
            self._listener.lost(self._why)
            patience_s = self._context.abort_grace_s if self._abort.is_wanted else self._patience_s
            until_s = min(clock.monotonic() + patience_s, until_s if until_s is not None else math.inf)
            await self._context.pause(RETRY_S)

    @property
    def _patience_s(self) -> float:
        """How long the node may be silent: downloads go on without us, however long a laptop is closed."""
        patience_s = self._context.link_patience_s
        return max(patience_s, bound_s(self._step)) if self._fetches else patience_s

    async def _line(self, until_s: float | None) -> NodeLine:
        left_s = self._context.first_line_s if until_s is None else until_s - self._context.clock.monotonic()
        if left_s <= 0:
            raise NoLine(self._why)
        grace_s = self._context.abort_grace_s if self._abort.is_wanted else 0.0
        return await self._locks.line(self._step.node, patience_s=left_s, grace_s=grace_s)

    async def _perform(self, line: NodeLine, secret: AskSecret) -> Outcome:
        """Have the node begin the step; the node bounds each operation itself, this limit is for a node that falls
        silent."""
        loop = asyncio.get_running_loop()
        bound_limit_s = bound_s(self._step)

        async with asyncio.timeout(bound_limit_s) as limit:

            async def ask_secret(node: str, wrong: int) -> str | None:
                limit.reschedule(None)  # no limit while the operator types
                try:
                    return await secret(node, wrong)
                finally:
                    limit.reschedule(loop.time() + bound_limit_s)

            work = line.perform(self._run_id, self._step.id, self._act, told=self._listener.result, secret=ask_secret)
            return await (self._endable(line, work) if self._fetches else work)

    async def _endable(self, line: NodeLine, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The outcome of a download; the node is told to end it when the operator aborts."""
        performing = asyncio.ensure_future(work)
        aborting = asyncio.ensure_future(self._abort.wanted())
        try:
            await asyncio.wait({performing, aborting}, return_when=asyncio.FIRST_COMPLETED)
            if performing.done():
                return performing.result()
            async with asyncio.timeout(END_LIMIT_S):
                await line.end(self._run_id, self._step.id)
                return await performing
        finally:
            for task in (performing, aborting):
                task.cancel()
            await asyncio.gather(performing, aborting, return_exceptions=True)


def bound_s(step: Step) -> float:
    """How long a remote step may take: all its limits, its undo, and a slow node."""
    act = step.act
    if not isinstance(act, Remote):
        return step.limit_s
    limits = 0.0
    for operation in (*act.operations, *act.undo):
        if isinstance(operation, Expect):
            limits += operation.within_s + ANSWER_LIMIT_S
        elif isinstance(operation, Signal):
            limits += operation.ends_within_s + ANSWER_LIMIT_S
        elif isinstance(operation, ImagePull | Transfer):
            limits += longest_s(operation) + ANSWER_LIMIT_S
        else:
            limits += operation.limit_s + (PROBE_OF_DONE_S if operation.done_when is not None else 0.0)
    return max(step.limit_s, limits) + SLACK_S
