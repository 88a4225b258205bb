"""Loads a GPU, and reads its clock and power from the samples that come meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from sparktop.checks.machine import LOADED_PERCENT, PINNED_MHZ
from sparktop.dataclass import dataclass
from sparktop.model.survey import Output
from sparktop.model.telemetry import Gpu
from sparktop.operate.measure.busy import busy_reason
from sparktop.operate.measure.gpu_load import LoadReading, argv_of, parse_load
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.run_context import Picture, Progress
from sparktop.operate.step.step_result import RequestResult, StepResult

LOOK_S = 0.2
POWER, CLOCK, BUSY, HEAT, THROTTLED = "load_w", "load_sm_mhz", "load_percent", "load_c", "load_throttled"
"""Names of its figures."""
HEAT_REASON = "thermal"
"""In a throttle reason's name where heat is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePower(Act):
    """Load the node's GPU for some seconds, and keep its clock and power meanwhile."""

    changes: ClassVar[bool] = True

    library: str
    """Path of cuBLAS on the node."""
    seconds: int
    limit_s: int
    """After so long the program is ended, whatever becomes of sparktop."""

    async def perform(self, hands: Hands) -> StepResult:
        return await hands.ask(lambda line, progress: self.load(line, hands.picture, progress))

    def text(self) -> Iterator[str]:
        yield f"timeout {self.limit_s} python3: cuBLAS ({self.library}) multiplies matrices for {self.seconds} s"

    async def load(self, line: NodeLine, picture: Picture, progress: Progress) -> RequestResult:
        """Load once, and keep every reading of the GPU; raises LinkLost where the connection ends."""
        if reason := busy_reason(picture().node(line.node), line.node, loads_gpu=True):
            return RequestResult(ok=False, detail=f"{reason}: nothing was measured")
        argv = argv_of(self.library, self.seconds, self.limit_s)
        question = Output(node=line.node, argv=argv, limit_s=self.limit_s + 20.0)
        loading = asyncio.ensure_future(line.ask([question]))
        readings: dict[float, Gpu] = {}
        try:
            while not loading.done():
                await asyncio.wait({loading}, timeout=LOOK_S)
                view = picture().node(line.node)
                if view is not None and view.gpu is not None and (gpu := view.first_gpu) is not None:
                    readings[view.gpu.boot_s] = gpu
                    watts = f"{gpu.power_w:.0f} W" if gpu.power_w is not None else "power not read"
                    progress(f"{watts}, {gpu.sm_clock_mhz or '?'} MHz", None)
            answer = loading.result()[question]
        finally:
            loading.cancel()
            await asyncio.wait({loading})
        return power_result(parse_load(answer.text or "", answer.problem), list(readings.values()))


def power_result(reading: LoadReading, gpus: list[Gpu]) -> RequestResult:
    """The highest clock, power and temperature under the load, or why there is nothing to judge."""
    if reading.tflops is None:
        return RequestResult(ok=False, detail=f"nothing was measured: {reading.problem}")
    busy = [gpu for gpu in gpus if gpu.utilisation_percent is not None]
    if not busy or not any(gpu.sm_clock_mhz for gpu in busy):
        return RequestResult(ok=False, detail="nothing was measured: no figure of the GPU came during the load")
    loaded = [gpu for gpu in busy if (gpu.utilisation_percent or 0.0) >= LOADED_PERCENT] or busy
    figures: dict[str, float | str] = {
        BUSY: max(gpu.utilisation_percent or 0.0 for gpu in busy),
        CLOCK: max(gpu.sm_clock_mhz or 0 for gpu in loaded),
    }
    if watts := [gpu.power_w for gpu in loaded if gpu.power_w is not None]:
        figures[POWER] = max(watts)
    if heat := [gpu.temperature_c for gpu in busy if gpu.temperature_c is not None]:
        figures[HEAT] = max(heat)
    if reasons := {name for gpu in busy for name in gpu.throttle_reasons or () if HEAT_REASON in name.lower()}:
        figures[THROTTLED] = ", ".join(sorted(reasons))
    figures["sgemm_tflops"] = reading.tflops
    watts_text = f"{figures[POWER]:.0f} W, " if POWER in figures else ""
    detail = f"{watts_text}{figures[CLOCK]} MHz (healthy from {PINNED_MHZ:g}), {reading.tflops:.1f} TFLOPS"
    return RequestResult(ok=True, detail=detail, figures=figures)
