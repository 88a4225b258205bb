"""What an act works with on its node, for one step of one run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from sparktop.dataclass import dataclass
from sparktop.errors import TransportError
from sparktop.model.fleet import FleetState, NodeView
from sparktop.operate.runner.api import AskSecret, NodeLine
from sparktop.operate.step.node_lock import NodeLocks, NoLine
from sparktop.operate.step.run_context import Progress, RunContext
from sparktop.operate.step.step_result import RequestResult, StepResult, StepState
from sparktop.operate.step.wait import Abort, Ending, Judge, wait_for

OnProgress = Callable[[str, float | None, str], None]
"""(what it is doing, how far: 0 to 1, why its node can't be heard)."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What one act of one run works with."""

    node: str
    limit_s: float
    """The step's."""
    run_id: str
    step_id: str
    context: RunContext
    locks: NodeLocks
    abort: Abort
    start_picture: FleetState
    """As it was when the run, or its rollback, began."""
    ready_views: Mapping[tuple[str, str], NodeView]
    """(node, engine) -> its node as it was when it became ready."""
    secrets: tuple[str, ...]
    tell: OnProgress
    lost: Callable[[str], None]
    """Called where the node can't be heard, so that how far the step is isn't known: why."""
    found: Callable[[str], None]
    """Called when the node is heard again: what it says."""
    password: AskSecret

    def picture(self) -> FleetState:
        return self.context.picture()

    def progress(self, detail: str, ratio: float | None) -> None:
        self.tell(detail, ratio, "")

    async def line(self, node: str = "", *, patience_s: float | None = None) -> NodeLine:
        """The open connection to a node's runner, the step's own node where none is named; raises as the locks do."""
        patience_s = self.context.first_line_s if patience_s is None else patience_s
        return await self.locks.line(node or self.node, patience_s=patience_s)

    async def wait(
        self,
        judge: Judge,
        *,
        before: NodeView | None = None,
        stands_s: float = 0.0,
        hears_silence: bool = False,
        silence: StepState = StepState.FAILED,
    ) -> StepResult:
        """Wait until the judge says that it is over.

        `before`: the node as it was, else as the run began; `stands_s` and `hears_silence` as in `wait_for`; `silence`:
        the result's state where the node doesn't come back.
        """
        result = await wait_for(
            judge,
            node=self.node,
            context=self.context,
            abort=self.abort,
            limit_s=self.limit_s,
            on_status=lambda status, why: self.tell(status.detail, status.ratio, why),
            before=before or self.start_picture.node(self.node),
            stands_s=stands_s,
            hears_silence=hears_silence,
        )
        if result.ending is Ending.MET:
            return StepResult(state=StepState.DONE, detail=result.detail)
        if result.ending is Ending.SILENT:
            return StepResult(state=silence, detail=result.detail)
        if result.ending is Ending.ABORTED:
            return StepResult(state=StepState.SKIPPED, detail=f"given up: {result.detail}", is_aborted=True)
        return StepResult(state=StepState.FAILED, detail=result.detail)

    async def ask(
        self,
        work: Callable[[NodeLine, Progress], Coroutine[Any, Any, RequestResult]],
        *,
        unknown: str = "nothing was measured",
        patience_s: float | None = None,
        is_last: bool = False,
    ) -> StepResult:
        """Have something asked over the connection to the node, once and within the step's limit.

        `unknown`: what isn't known where the connection, or the answer, didn't come; `is_last`: no further step starts
        then.

        Raises:
            Aborted: the operator aborted first.
        """
        try:
            line = await self.line(patience_s=patience_s)
            result = await self.abort.unless(_bounded(work(line, self.progress), self.limit_s))
        except NoLine as no_line:
            return StepResult(state=StepState.FAILED, detail=f"{no_line}: {unknown}", is_last=is_last)
        except TimeoutError:
            detail = f"no answer within {self.limit_s:.0f} s: {unknown}"
            return StepResult(state=StepState.FAILED, detail=detail, is_last=is_last)
        except TransportError as error:
            detail = f"the connection broke ({error.message}): {unknown}"
            return StepResult(state=StepState.FAILED, detail=detail, is_last=is_last)
        state = StepState.DONE if result.ok else StepState.FAILED
        return StepResult(state=state, detail=result.detail, figures=result.figures, is_last=result.is_last)


async def _bounded(work: Coroutine[Any, Any, _T], limit_s: float) -> _T:
    async with asyncio.timeout(limit_s):
        return await work
