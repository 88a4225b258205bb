"""One step on a node's runner, through lost connections: begun once, and its outcome found out however long that takes.

A step whose connection broke is asked about, never begun again, unless the node says that it knows nothing of it.
What is under way is finished when the operator wants out; only a step that fetches is ended (`operate.fetching`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from sparktop.errors import TransportError
from sparktop.model.operation import Expect, ImagePull, Signal, Transfer
from sparktop.model.plan import Remote, Step, StepState
from sparktop.operate.aborting import Abort, Aborted
from sparktop.operate.ended import Ended, of_outcome
from sparktop.operate.fetching import only_fetches
from sparktop.operate.hold import RETRY_S, Hold, NoLine, Taken
from sparktop.operate.line import AskSecret, NodeLine, Outcome, OutcomeState, Told
from sparktop.operate.means import Means
from sparktop.operate.runnerwords import longest_s

SLACK_S = 60.0
"""A node under memory pressure takes seconds for what it usually does at once."""
ANSWER_LIMIT_S = 30.0
ASK_AGAIN_S = 1.0
PROBE_OF_DONE_S = 30.0
END_LIMIT_S = 60.0
"""Within which a step that fetches is over, once its node was told to end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hears:
    """Who is told how a remote step goes."""

    result: Told
    lost: Callable[[str], None]
    """The node can't be heard: why."""
    found: Callable[[str], None]
    """It can be again: what it says."""


class _WentWithIt(Exception):
    """The link is lost, as it had to be."""


class RemoteStep:
    """A step, and what is known of it on its node."""

    def __init__(
        self, step: Step, act: Remote, run_id: str, *, means: Means, hold: Hold, abort: Abort, hears: Hears
    ) -> None:
        self._step = step
        self._act = act
        self._run_id = run_id
        self._means = means
        self._hold = hold
        self._abort = abort
        self._hears = hears
        self._fetches = only_fetches(act)
        self._is_lost = False
        self._is_begun = False
        """The node may have it."""
        self._why = ""

    async def carry_out(self, secret: AskSecret) -> Ended:
        """Have it done; returns when it is known how it ended, or that this can't be known."""
        node = self._step.node
        try:
            outcome = await self._outcome(secret)
        except Taken as taken:
            return Ended(state=StepState.FAILED, detail=f"{taken}. This step was not begun.")
        except _WentWithIt:
            return Ended(state=StepState.DONE, detail="the link went with it", has_touched=True)
        except NoLine as gone:
            if not self._is_begun:
                return Ended(state=StepState.FAILED, detail=f"{gone}. This step was not begun.")
            detail = f"{gone}. Whether it was done is not known; {node} {self._by_itself}."
            is_aborted = self._abort.is_wanted
            return Ended(state=StepState.UNKNOWN, detail=detail, has_touched=True, is_aborted=is_aborted)
        except Aborted:
            if not self._is_begun:
                return Ended(state=StepState.SKIPPED, is_aborted=True)
            detail = f"{self._why}. How it ended is not known; {node} {self._by_itself}."
            return Ended(state=StepState.UNKNOWN, detail=detail, has_touched=True, is_aborted=True)
        if outcome.state is OutcomeState.GONE and self._act.takes_link:
            return Ended(state=StepState.DONE, detail="the node has booted anew", has_touched=True)
        ended = of_outcome(outcome, self._step)
        was_ended = any(result.was_ended for result in outcome.results)
        return replace(ended, is_aborted=True) if was_ended and self._abort.is_wanted else ended

    @property
    def _by_itself(self) -> str:
        if self._fetches:
            return "goes on with it by itself, and the next run follows it"
        return "finishes or undoes by itself what it has begun"

    async def _outcome(self, secret: AskSecret) -> Outcome:
        """How it ended on the node."""
        clock, until_s = self._means.clock, None
        while True:
            outcome = await self._word(secret)
            if outcome.state is OutcomeState.RUNNING:
                until_s = clock.monotonic() + bound_s(self._step) if until_s is None else until_s
                if self._fetches and self._abort.is_wanted:
                    until_s = min(until_s, clock.monotonic() + END_LIMIT_S)
                if clock.monotonic() > until_s:
                    raise NoLine(f"{self._step.node} is still at it, long after its time")
                if outcome.progress is None or self._is_lost:
                    self._is_lost = False
                    self._hears.found("it is still at it there")
                if outcome.progress is not None:
                    self._hears.result(outcome.progress)
                await self._means.pause(ASK_AGAIN_S)
            elif outcome.state is OutcomeState.NEVER_BEGUN:
                self._is_begun = False
                self._hears.found("it was not begun there")
            else:
                return outcome

    async def _word(self, secret: AskSecret) -> Outcome:
        """What the node says next; asked on every new connection until it says something."""
        clock, until_s = self._means.clock, None
        while True:
            if self._abort.is_wanted and not self._is_begun:
                raise Aborted
            try:
                line = await self._line(until_s)
                if self._is_begun:
                    ask = line.end if self._fetches and self._abort.is_wanted else line.outcome
                    async with asyncio.timeout(ANSWER_LIMIT_S):
                        return await ask(self._run_id, self._step.id)
                if self._fetches:
                    await self._hold.let_go()
                else:
                    await self._hold.take(line)
                self._is_begun = True
                return await self._perform(line, secret)
            except TimeoutError:
                self._why = f"{self._step.node} doesn't answer"
            except TransportError as error:
                if self._is_begun and self._act.takes_link:
                    raise _WentWithIt from None
                self._why = f"{self._step.node}: {error.message}"
            self._is_lost = True
            self._hears.lost(self._why)
            patience_s = self._means.abort_grace_s if self._abort.is_wanted else self._patience_s
            until_s = min(clock.monotonic() + patience_s, until_s if until_s is not None else math.inf)
            await self._means.pause(RETRY_S)

    @property
    def _patience_s(self) -> float:
        """How long its node may not be heard: what is fetched comes without us, however long a laptop is closed."""
        patience_s = self._means.link_patience_s
        return max(patience_s, bound_s(self._step)) if self._fetches else patience_s

    async def _line(self, until_s: float | None) -> NodeLine:
        left_s = self._means.first_line_s if until_s is None else until_s - self._means.clock.monotonic()
        if left_s <= 0:
            raise NoLine(self._why)
        grace_s = self._means.abort_grace_s if self._abort.is_wanted else 0.0
        return await self._hold.line(self._step.node, patience_s=left_s, grace_s=grace_s)

    async def _perform(self, line: NodeLine, secret: AskSecret) -> Outcome:
        """Have the node begin; it bounds each operation itself, this is for a node that no longer says anything."""
        loop = asyncio.get_running_loop()
        bound = bound_s(self._step)

        async with asyncio.timeout(bound) as limit:

            async def asked(node: str, wrong: int) -> str | None:
                limit.reschedule(None)  # the operator may take their time
                try:
                    return await secret(node, wrong)
                finally:
                    limit.reschedule(loop.time() + bound)

            work = line.perform(self._run_id, self._step.id, self._act, told=self._hears.result, secret=asked)
            return await (self._endable(line, work) if self._fetches else work)

    async def _endable(self, line: NodeLine, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Its outcome; the node is told to end it when the operator wants out."""
        performing = asyncio.ensure_future(work)
        way_out = asyncio.ensure_future(self._abort.wanted())
        try:
            await asyncio.wait({performing, way_out}, return_when=asyncio.FIRST_COMPLETED)
            if performing.done():
                return performing.result()
            async with asyncio.timeout(END_LIMIT_S):
                await line.end(self._run_id, self._step.id)
                return await performing
        finally:
            for task in (performing, way_out):
                task.cancel()
            await asyncio.gather(performing, way_out, return_exceptions=True)


def bound_s(step: Step) -> float:
    """How long a remote step may take with all its limits, and undoing it, and a node that is slow."""
    act = step.act
    if not isinstance(act, Remote):
        return step.limit_s
    limits = 0.0
    for one in (*act.operations, *act.undo):
        if isinstance(one, Expect):
            limits += one.within_s + ANSWER_LIMIT_S
        elif isinstance(one, Signal):
            limits += one.ends_within_s + ANSWER_LIMIT_S
        elif isinstance(one, ImagePull | Transfer):
            limits += longest_s(one) + ANSWER_LIMIT_S
        else:
            limits += one.limit_s + (PROBE_OF_DONE_S if one.done_when is not None else 0.0)
    return max(step.limit_s, limits) + SLACK_S
