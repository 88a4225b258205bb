"""Waits for a collective's head to end, and reads its log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from sparktop.checks.link import COLLECTIVE_HEALTHY_GBPS
from sparktop.dataclass import dataclass
from sparktop.model.survey import DockerGet, DockerLog
from sparktop.operate.measure.all_reduce import CollectiveReading, parse_collective
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.run_context import Progress
from sparktop.operate.step.step_result import RequestResult, StepResult

LOOK_S = 1.0
FIGURE, NETWORK, COUNTED = "all_reduce_gbps", "nccl_network", "all_reduce_counted_percent"
"""Names of its figures."""
LOG_LINES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureCollective(Act):
    """Read what a collective's head has measured, once its container has ended."""

    peer: str
    """The node of the other rank."""
    container_id: str
    """The "{NAME}" under which an earlier step on the node saved it."""

    async def perform(self, hands: Hands) -> StepResult:
        return await hands.ask(self.read)

    def text(self) -> Iterator[str]:
        yield "until the container exits; then the figure in its log, and NCCL's line on its transport"

    async def read(self, line: NodeLine, progress: Progress) -> RequestResult:
        """Read the result once the head's container has ended; raises LinkLost where the connection ends."""
        state = await _ended(line, self.container_id, progress)
        if state is None:
            return RequestResult(ok=False, detail="its container is gone: nothing was measured")
        question = DockerLog(node=line.node, container_id=self.container_id, lines=LOG_LINES)
        answer = (await line.ask([question]))[question]
        if answer.text is None:
            return RequestResult(ok=False, detail=f"its log can't be read: {answer.problem or 'it is gone'}")
        return collective_result(parse_collective(answer.text), code=state.get("ExitCode"))


async def _ended(line: NodeLine, container_id: str, progress: Progress) -> Mapping[str, Any] | None:
    """The container's state once it has ended; None: there is no such container."""
    question = DockerGet(node=line.node, path=f"/containers/{container_id}/json")
    while True:
        answer = (await line.ask([question]))[question]
        if answer.value is None and not answer.problem:
            return None
        state = answer.value.get("State") if isinstance(answer.value, Mapping) else None
        if isinstance(state, Mapping) and state.get("Running") is False and state.get("Status") != "created":
            return state
        progress("the ranks meet, and reduce 1 GiB", None)
        await asyncio.sleep(LOOK_S)


def collective_result(reading: CollectiveReading, *, code: object) -> RequestResult:
    """The bus bandwidth with its witnesses, or why there is none."""
    if reading.gbps is None:
        ended = f" (exit {code})" if isinstance(code, int) and code else ""
        transport = f" over {reading.transport}" if reading.transport else ""
        return RequestResult(ok=False, detail=f"nothing was measured{transport}{ended}: {reading.problem}")
    figures: dict[str, float | str] = {FIGURE: reading.gbps}
    if reading.transport:
        figures[NETWORK] = reading.transport
    if reading.counted_percent is not None:
        figures[COUNTED] = reading.counted_percent
    low, high = COLLECTIVE_HEALTHY_GBPS
    over = f" over {reading.transport}" if reading.transport else ""
    return RequestResult(
        ok=True, detail=f"{reading.gbps:.1f} Gb/s{over} (healthy {low:g} to {high:g})", figures=figures
    )
