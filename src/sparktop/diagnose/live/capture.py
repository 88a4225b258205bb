"""A graph capture that stands still while the GPU polls: two nodes wait on one another inside it (field report 003)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparktop.diagnose.live.graphs import change_without_graphs, flag_without_graphs, version_of
from sparktop.diagnose.live.idleness import normal_power, spinning
from sparktop.diagnose.live.ranks import Rank, names_in_order, spans_nodes, teams
from sparktop.diagnose.live.window import GpuStretch, is_current, node_wall_s, seen, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.engine import EngineKind, EngineState, Progress
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState

SUSPECTED_S = 150.0
"""A bar at 0 for two minutes can be the first compilation."""
CONFIRMED_S = 300.0
ALONE = 2.0
"""An engine of one node gets so many times as long: it has no other rank to wait for."""
SPINS_S = 60.0
COMPILING_PERCENT = 40.0
"""Of all cores: compilation works the processor, polling takes a core a rank."""

REFERENCES = (
    "field report 003",
    "vllm-project/vllm#52504 (NCCL 2.28.9, fixed by 2.30.4)",
    "eugr/spark-vllm-docker#35",
    "sgl-project/sglang#29548",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stuck:
    rank: Rank
    still_s: float
    progress: Progress | None


def check(fleet: FleetState) -> Iterable[Finding]:
    """gpu.capture-stuck: one finding for each engine, over all its nodes.

    The capture's bar has not moved, the GPU has been busy at the power of idleness for a minute, and the CPU compiles
    nothing. Suspected after 150 s over two nodes, 300 s on one; confirmed after twice that.
    """
    for team in teams(fleet):
        stuck = [found for rank in team if (found := _stuck(rank, fleet)) is not None]
        if not stuck:
            continue
        spun = {
            rank.node.name: stretch
            for rank in team
            if is_current(rank.node) and (stretch := spinning(rank.node, fleet, longest_s=CONFIRMED_S)) is not None
        }
        longest = max(stuck, key=lambda one: one.still_s)
        if not spun or max(one.seconds for one in spun.values()) < SPINS_S:
            continue
        if any((rank.node.cpu_busy_percent or 0.0) > COMPILING_PERCENT for rank in team if rank.node.name in spun):
            continue
        over = len(team) > 1 or spans_nodes(longest.rank.engine)
        patience = 1.0 if over else ALONE
        if longest.still_s < SUSPECTED_S * patience:
            continue
        sure = longest.still_s >= CONFIRMED_S * patience
        yield _finding(team, longest, spun, fleet, sure=sure, over=over)


def _stuck(rank: Rank, fleet: FleetState) -> _Stuck | None:
    engine, now_s = rank.engine, node_wall_s(rank.node, fleet)
    if engine.state is not EngineState.CAPTURING or engine.log is None or now_s is None:
        return None
    moved_s = engine.log.moved_wall_s
    progress = engine.progress or engine.log.progress
    if moved_s is None or (progress is not None and progress.done >= progress.total):
        return None
    return _Stuck(rank=rank, still_s=now_s - moved_s, progress=progress)


def _finding(
    team: tuple[Rank, ...],
    stuck: _Stuck,
    spun: dict[str, GpuStretch],
    fleet: FleetState,
    *,
    sure: bool,
    over: bool,
) -> Finding:
    engine, nodes = stuck.rank.engine, names_in_order(team, fleet)
    at = f"{stuck.progress.done}/{stuck.progress.total}" if stuck.progress else "its beginning"
    stretch = next(iter(spun.values()))
    waits = " The ranks wait on one another in a collective inside the capture." if over else ""
    return Finding(
        rule="gpu.capture-stuck",
        severity=Severity.CRITICAL,
        confidence=Confidence.CONFIRMED if sure else Confidence.SUSPECTED,
        title=f"{engine.name}'s CUDA graph capture is stuck at {at}",
        explanation=(
            f"The capture has stood at {at} for {span(stuck.still_s)} while the GPU was {stretch.util_percent:.0f} % "
            f"busy at {stretch.power_w:.0f} W; {normal_power(stuck.rank.node)}.{waits} It does not end by itself: "
            "it was still at 0/36 after 34 minutes in the report this comes from."
        ),
        distinction=(
            "Not a first compilation: that keeps the processor busy, and is over in some minutes.",
            "Not slow: a capture that works draws power for every size it captures, and its count moves.",
        ),
        settles=""
        if sure
        else f"Whether the count moves before {span(CONFIRMED_S if over else CONFIRMED_S * ALONE)} are over.",
        evidence=(
            *(
                Evidence(
                    source=f"{rank.engine.name} @ {rank.node.name} log",
                    text=f"capture {_count(rank)} unchanged for {span(found.still_s)}",
                    wall_s=rank.engine.log.moved_wall_s if rank.engine.log else None,
                )
                for rank in team
                if (found := _stuck(rank, fleet)) is not None
            ),
            *(
                seen(
                    rank.node,
                    "GPU",
                    f"SM {one.util_percent:.0f} % at {one.power_w:.1f} W for {span(one.seconds)}, "
                    f"processor {rank.node.cpu_busy_percent or 0:.0f} % busy",
                )
                for rank in team
                if (one := spun.get(rank.node.name)) is not None
            ),
        ),
        remedies=_remedies(stuck.rank, over=over),
        references=REFERENCES,
        nodes=nodes,
        subject=engine.name,
        brief=f"capture at {at} for {span(stuck.still_s)}, {stretch.util_percent:.0f} % SM at {stretch.power_w:.0f} W",
    )


def _count(rank: Rank) -> str:
    progress = rank.engine.progress or (rank.engine.log.progress if rank.engine.log else None)
    return f"{progress.done}/{progress.total}" if progress else "begun"


def _remedies(rank: Rank, *, over: bool) -> tuple[Remedy, ...]:
    engine = rank.engine
    flags = flag_without_graphs(engine)
    steps = [f"stop every rank, and relaunch with {flags}"]
    if engine.kind is EngineKind.SGLANG:
        steps.append("the flag, not the variable: SGLANG_DISABLE_CUDA_GRAPH is read by no version")
        if version_of(engine.version) is None:
            steps.append(
                "from SGLang 0.5.23 on: --cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"
            )
    relaunch = Remedy(
        title=f"Relaunch {'both nodes ' if over else ''}without CUDA graphs: {flags}",
        steps=tuple(steps),
        cost="decode speed; the time to load",
        action="relaunch",
        change=change_without_graphs(engine),
    )
    newer = Remedy(
        title="Or use an image with NCCL 2.30.4 or later, in which capture over two nodes completes",
        steps=("python3 -c 'import torch; print(torch.cuda.nccl.version())' in the container says which it has",),
        cost="another image, tested anew",
    )
    return (relaunch, newer) if over else (relaunch,)


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=Rule(
            id="gpu.capture-stuck",
            kind=RuleKind.LIVE,
            title="CUDA graph capture stands still while the GPU polls",
            severity=Severity.CRITICAL,
            scope="vLLM and SGLang, on two nodes above all",
            sources=REFERENCES,
        ),
        check=check,
        follows=("cluster.rank-died", "cluster.link-down"),
    ),
)
