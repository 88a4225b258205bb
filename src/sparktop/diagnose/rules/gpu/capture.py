"""Rule on a stalled CUDA graph capture: the GPU polls because two nodes wait for each other (field report 003)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.dataclass import dataclass
from sparktop.diagnose.ended_by import is_being_stopped
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.gpu.power import normal_power, spinning
from sparktop.diagnose.rules.window import GpuStretch, of_engine, seen
from sparktop.engines.cuda_graphs import without_graphs
from sparktop.engines.ranks import EngineRank, names_in_order, spans_nodes, teams
from sparktop.knowledge.card import found
from sparktop.model.engine import EngineState
from sparktop.model.finding import Confidence, Finding
from sparktop.model.fleet import FleetState, is_current, node_wall_s
from sparktop.text.units import span

SUSPECTED_S = 60.0
"""So long the GPU has polled while the processor did not compile (COMPILING_PERCENT)."""
CONFIRMED_S = 300.0
ALONE = 2.0
"""Factor on these times for an engine on one node: it has no other rank to wait for."""
SPINS_S = 45.0
COMPILING_PERCENT = 40.0
"""Of all cores: compilation loads the CPU, polling takes one core for each rank."""
BEGINNING = "its beginning"


@dataclass(frozen=True, slots=True, kw_only=True)
class _StalledCapture:
    rank: EngineRank
    still_s: float
    moved_wall_s: float
    count: str
    """"20/36"; empty before the first."""


@live_rule("gpu.capture-stuck", follows=("cluster.rank-died", "cluster.link-down"))
def capture_stuck(fleet: FleetState) -> Iterable[Finding]:
    """gpu.capture-stuck: one finding for each engine, over all its nodes.

    The capture's bar hasn't moved, the GPU has been busy at idle power for most of a minute, and the CPU isn't
    compiling. Suspected after 60 s over two nodes, 120 s on one; confirmed after five times that.
    """
    for team in teams(fleet):
        stalled = [capture for rank in team if (capture := _stalled_capture(rank, fleet)) is not None]
        if not stalled or is_being_stopped(team, fleet):
            continue
        stretches = {
            rank.node.name: stretch
            for rank in team
            if is_current(rank.node) and (stretch := spinning(rank.node, fleet, longest_s=CONFIRMED_S)) is not None
        }
        longest = max(stalled, key=lambda capture: capture.still_s)
        if not stretches or max(stretch.seconds for stretch in stretches.values()) < SPINS_S:
            continue
        if any((rank.node.cpu_busy_percent or 0.0) > COMPILING_PERCENT for rank in team if rank.node.name in stretches):
            continue
        spans_two = len(team) > 1 or spans_nodes(longest.rank.engine)
        patience = 1.0 if spans_two else ALONE
        if longest.still_s < SUSPECTED_S * patience:
            continue
        is_confirmed = longest.still_s >= CONFIRMED_S * patience
        nodes = names_in_order(team, fleet)
        yield _finding(team, nodes, longest, stalled, stretches, is_confirmed=is_confirmed, spans_two=spans_two)


def _stalled_capture(rank: EngineRank, fleet: FleetState) -> _StalledCapture | None:
    engine, now_s = rank.engine, node_wall_s(rank.node, fleet)
    if engine.state is not EngineState.CAPTURING or engine.log is None or now_s is None:
        return None
    moved_s = engine.log.moved_wall_s
    progress = engine.progress or engine.log.progress
    if moved_s is None or (progress is not None and progress.done >= progress.total):
        return None
    count = f"{progress.done}/{progress.total}" if progress else ""
    return _StalledCapture(rank=rank, still_s=now_s - moved_s, moved_wall_s=moved_s, count=count)


def _finding(
    team: tuple[EngineRank, ...],
    nodes: tuple[str, ...],
    stalled: _StalledCapture,
    captures: Sequence[_StalledCapture],
    stretches: dict[str, GpuStretch],
    *,
    is_confirmed: bool,
    spans_two: bool,
) -> Finding:
    engine = stalled.rank.engine
    stretch = next(iter(stretches.values()))
    return found(
        "gpu.capture-stuck",
        "two-nodes" if spans_two else "one-node",
        {
            "engine": engine.name,
            "count": stalled.count or BEGINNING,
            "span": span(stalled.still_s),
            "util_percent": stretch.util_percent,
            "power_w": stretch.power_w,
            "normal_power": normal_power(stalled.rank.node),
            "confirmed": span(CONFIRMED_S if spans_two else CONFIRMED_S * ALONE),
            **without_graphs(engine),
        },
        confidence=Confidence.CONFIRMED if is_confirmed else Confidence.SUSPECTED,
        evidence=(
            *(
                of_engine(
                    capture.rank.engine,
                    capture.rank.node,
                    f"capture at {capture.count or BEGINNING}, unchanged for {span(capture.still_s)}",
                    part="log",
                    wall_s=capture.moved_wall_s,
                )
                for capture in captures
            ),
            *(
                seen(
                    rank.node,
                    "GPU",
                    f"SM {gpu.util_percent:.0f} % at {gpu.power_w:.1f} W for {span(gpu.seconds)}, "
                    f"CPU {rank.node.cpu_busy_percent or 0:.0f} %",
                )
                for rank in team
                if (gpu := stretches.get(rank.node.name)) is not None
            ),
        ),
        nodes=nodes,
        subject=engine.name,
    )
