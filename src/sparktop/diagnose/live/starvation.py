"""The host about to starve: how fast available memory falls, what grows, and what is to be done at once.

Facts: field report 001 (walls 1 and 4: 45 GiB gone in six seconds on the first request), facts/engines.md MEM-01 and
MEM-02, facts/gb10.md section 2. MemAvailable is the measure; MemFree and the page cache are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparktop.diagnose.live.expectation import floor_bytes, is_loading, loading, most_bytes, settling
from sparktop.diagnose.live.idleness import IDLE_PERCENT
from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import GIB, gib, is_current, newest, seen, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.change import Change
from sparktop.model.engine import Engine
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView

EMPTY_IN_S = 60.0
LOOK_BACK_S = 20.0
FALLEN_BYTES = 4 * GIB
"""A fall of less says nothing yet: a workspace, a compile."""
SPIKE_BYTES_PER_S = 2 * GIB
SPIKE_WITHIN_S = 10.0
"""From the first request's arrival to the fall (facts/engines.md MEM-02)."""
LOW_BYTES = 6 * GIB
ROOMY_SHARE, TIGHT_SHARE = 0.5, 0.25

_REFERENCES = ("field report 001", "NVIDIA/dgx-spark-playbooks#116 (34 to 13 GiB in 1.5 s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """Available memory falling, as it stands now."""

    available_bytes: float
    fallen_bytes: float
    """From the highest of the last LOOK_BACK_S."""
    over_s: float
    bytes_per_s: float
    """Negative."""
    empty_in_s: float


def fall_of(node: NodeView) -> Fall | None:
    """The fall under way on a node; None when memory stands, rises, or falls slower than in a minute to nothing."""
    trend = node.trend
    if trend is None or trend.time_to_empty_s is None or trend.time_to_empty_s >= EMPTY_IN_S:
        return None
    points = list(newest(node.available_history, LOOK_BACK_S))
    if len(points) < 2 or points[0][1] >= points[1][1]:
        return None  # the newest step doesn't fall: the fit is of a fall that has ended
    now_s, now_bytes = points[0]
    top_s, top_bytes = max(points, key=lambda point: (point[1], point[0]))
    return Fall(
        available_bytes=now_bytes,
        fallen_bytes=top_bytes - now_bytes,
        over_s=max(0.1, now_s - top_s),
        bytes_per_s=trend.bytes_per_s,
        empty_in_s=trend.time_to_empty_s,
    )


def is_dangerous(node: NodeView, fall: Fall, fleet: FleetState) -> bool:
    """Whether this fall ends in a starved host if nothing stops it, as far as can be told."""
    floor = floor_bytes(node, fleet)
    if floor is not None:  # a load takes what it was told to take: only what goes beyond is a danger
        return fall.available_bytes < min(floor, LOW_BYTES) and fall.empty_in_s < SPIKE_WITHIN_S
    if fall.fallen_bytes < FALLEN_BYTES:
        return False
    total = node.sample.memory.total_bytes if node.sample else 0
    if _is_the_end_of_a_load(node, fall, fleet):
        return False
    if any(is_alive(engine) for engine in node.engines):  # it has what it reserved: it takes no more by design
        return fall.available_bytes <= ROOMY_SHARE * total
    # A job of which nothing is known takes what it needs, most often: only near the end is that a danger.
    return fall.available_bytes <= TIGHT_SHARE * total and fall.empty_in_s < SPIKE_WITHIN_S


def _is_the_end_of_a_load(node: NodeView, fall: Fall, fleet: FleetState) -> bool:
    """Whether an engine that has only just become ready explains it: it holds no more than it was told to take.

    A first request is something else, however soon it comes: its GPU is at work, or its server counts it.
    """
    ready = settling(node, fleet)
    if node.sample is None or not ready or fall.available_bytes < LOW_BYTES:
        return False
    engine, told = ready[0]
    if any(grown.pid not in engine.pids for grown in node.growing):
        return False
    busy = next((util for _, util in newest(node.utilisation_history, 1.0)), 0.0)
    held = fall.fallen_bytes if engine.gpu_bytes is None else engine.gpu_bytes
    return busy < IDLE_PERCENT and held <= most_bytes(told, node.sample.memory.total_bytes)


def falling(fleet: FleetState) -> Iterable[Finding]:
    """memory.falling: at its present rate available memory is gone within a minute.

    While an engine serves, after a fall of 4 GiB into the lower half of memory; while one loads, only below what its
    own command leaves and 10 s before the end; of other programs only 10 s before the end. In the seconds after an
    engine has become ready, what it took by its own command is the end of its load, and no fall.
    """
    for node in fleet.nodes:
        if not is_current(node):
            continue
        fall = fall_of(node)
        if fall is None or not is_dangerous(node, fall, fleet):
            continue
        rate = -fall.bytes_per_s / GIB
        growing = _growing(node)
        at_fault = f" {growing} {'is what grows.' if node.growing else 'holds most.'}" if growing else ""
        yield Finding(
            rule="memory.falling",
            severity=Severity.CRITICAL,
            title=f"{node.name} will be out of memory {_in(fall.empty_in_s)}",
            explanation=(
                f"Available memory fell {gib(fall.fallen_bytes)} in {span(fall.over_s)} and stands at "
                f"{gib(fall.available_bytes)}, falling {rate:.1f} GiB/s.{at_fault} On this machine the GPU takes from "
                "the same memory: when nothing is left the host hangs, SSH with it, and often no process is killed."
            ),
            distinction=(
                "This is MemAvailable, which counts page cache as free; a low MemFree alone would mean nothing.",
            ),
            evidence=(*trajectory(node), *_holders(node)),
            remedies=_stop_now(node),
            references=_REFERENCES,
            nodes=(node.name,),
            brief=f"{gib(fall.available_bytes)} available, {gib(fall.fallen_bytes)} gone in {span(fall.over_s)}",
        )


def _in(seconds: float) -> str:
    return f"in {seconds:.0f} s" if seconds >= 1.5 else "at any moment"


def first_request(fleet: FleetState) -> Iterable[Finding]:
    """memory.first-request-spike: the fall that follows the first request after a load.

    At 2 GiB/s or more, within 10 s of the moment at which the GPU of an engine that has hardly made a token began to
    work.
    """
    for node in fleet.nodes:
        if not is_current(node) or loading(node, fleet):
            continue
        fall = fall_of(node)
        if fall is None or -fall.bytes_per_s < SPIKE_BYTES_PER_S or not is_dangerous(node, fall, fleet):
            continue
        engine = next((one for one in node.engines if is_alive(one) and _has_first_request(one)), None)
        began_s = _began_to_work_s(node)
        if engine is None or began_s is None or began_s > SPIKE_WITHIN_S + fall.over_s:
            continue
        running = engine.metrics.running if engine.metrics else None
        yield Finding(
            rule="memory.first-request-spike",
            severity=Severity.CRITICAL,
            confidence=Confidence.CONFIRMED if running else Confidence.SUSPECTED,
            title=f"Stop {engine.name} now: its first request eats {node.name}'s memory",
            explanation=(
                f"It was loaded and idle; {span(began_s)} after its GPU began to work on the first request, "
                f"{gib(fall.fallen_bytes)} are gone, at {-fall.bytes_per_s / GIB:.1f} GiB/s. What the first forward "
                'pass captures and compiles no --gpu-memory-utilization counts: "it loaded" is not "it serves". '
                "A host that starved this way went from 45 GiB to nothing in six seconds."
            ),
            settles="" if running else "Its own count of running requests, which has not been read since.",
            evidence=(*trajectory(node), *_request_evidence(node, engine)),
            remedies=(
                Remedy(
                    title="Stop the engine now, before the host hangs",
                    steps=(f"docker stop -t 2 {engine.name}" if engine.container else "kill the engine's processes",),
                    cost="the request",
                    action="stop-engine",
                ),
                Remedy(
                    title="Relaunch so that it fits: --enforce-eager turns capture and compilation off",
                    steps=(
                        "add --enforce-eager",
                        """or first, if graphs alone grow: --compilation-config '{"cudagraph_mode":"PIECEWISE"}'""",
                        "or lower --gpu-memory-utilization by what was missing, to 0.60 or so",
                        "or take a smaller model, or one in FP8: MXFP4 has no native kernels on SM 12.1",
                    ),
                    cost="up to half of decode speed",
                    action="relaunch",
                    change=Change(
                        by_engine={
                            "vllm": Change(flags={"--enforce-eager": ""}),
                            "sglang": Change(flags={"--disable-cuda-graph": ""}),
                        }
                    ),
                ),
            ),
            references=(*_REFERENCES, "field report 002 (what --enforce-eager costs)"),
            nodes=(node.name,),
            subject=engine.name,
            brief=f"{gib(fall.available_bytes)} left, falling {-fall.bytes_per_s / GIB:.1f} GiB/s",
        )


def _has_first_request(engine: Engine) -> bool:
    """Ready, and hardly a token made yet, as far as its figures say."""
    if is_loading(engine):
        return False
    made = engine.metrics.generation_tokens if engine.metrics else None
    return made is None or made < 200


def _began_to_work_s(node: NodeView) -> float | None:
    """Seconds since the GPU rose from a rest of at least five seconds; None where it has not lately."""
    began_s: float | None = None
    rested = 0
    points = newest(node.utilisation_history, LOOK_BACK_S + SPIKE_WITHIN_S)
    newest_s = node.utilisation_history.times[-1] if node.utilisation_history.times else 0.0
    for time_s, util in points:
        if util >= IDLE_PERCENT:
            if rested:
                return began_s if rested >= 4 else None
            began_s = newest_s - time_s
        else:
            if began_s is None:
                return None
            rested += 1
            if rested >= 5:
                return began_s
    return began_s if rested >= 4 else None


def trajectory(node: NodeView) -> Iterable[Evidence]:
    """The last seconds of available memory, one figure every two."""
    points = list(newest(node.available_history, 10.0))
    if not points:
        return
    end_s = points[0][0]
    shown: list[str] = []
    due_s = end_s
    for time_s, value in points:
        if time_s <= due_s:
            shown.append(f"-{end_s - time_s:.0f} s {value / GIB:.1f}")
            due_s = time_s - 1.9
    yield seen(node, "memory", "available GiB: " + ", ".join(reversed(shown)))


def _growing(node: NodeView) -> str:
    if node.growing:
        first = node.growing[0]
        return f"{first.label} (+{first.bytes_per_s / GIB:.1f} GiB/s)"
    largest = _largest(node)
    return f"{largest[0]} ({gib(largest[1])})" if largest else ""


def _largest(node: NodeView) -> tuple[str, int] | None:
    held = [one for one in node.ledger.holders if one.kind in ("engine", "gpu", "processes")] if node.ledger else []
    top = max(held, key=lambda one: one.held_bytes, default=None)
    return (top.label, top.held_bytes) if top else None


def _holders(node: NodeView) -> Iterable[Evidence]:
    for grown in node.growing[:3]:
        yield seen(
            node, "GPU memory", f"{grown.label} holds {gib(grown.held_bytes)}, +{grown.bytes_per_s / GIB:.1f} GiB/s"
        )
    if not node.growing and (largest := _largest(node)):
        yield seen(node, "memory", f"largest holder: {largest[0]}, {gib(largest[1])}")


def _request_evidence(node: NodeView, engine: Engine) -> Iterable[Evidence]:
    if engine.metrics is not None:
        yield Evidence(
            source=f"{engine.name} @ {node.name} metrics",
            text=f"{engine.metrics.running or 0:.0f} running, {engine.metrics.generation_tokens or 0:.0f} tokens made",
            wall_s=engine.metrics.wall_s,
        )
    yield from _holders(node)


def _stop_now(node: NodeView) -> tuple[Remedy, ...]:
    engines = [engine for engine in node.engines if is_alive(engine)]
    name = engines[0].name if engines else ""
    stop = Remedy(
        title=f"Stop {name} now" if name else "End the process that grows, now",
        steps=(f"docker stop -t 2 {name}",) if name and engines[0].container else ("kill it by its pid",),
        cost="what it is working on; every second counts",
        action="stop-engine" if name else "end-holder",
    )
    guard = Remedy(
        title="Let the guard do it next time",
        steps=("arm the guard: it stops the engine before memory is gone",),
        cost="nothing while memory is well",
        action="guard",
    )
    return (stop, guard)


def _rule(name: str, title: str, scope: str, sources: tuple[str, ...]) -> Rule:
    return Rule(
        id=f"memory.{name}",
        kind=RuleKind.LIVE,
        title=title,
        severity=Severity.CRITICAL,
        scope=scope,
        sources=sources,
    )


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=_rule(
            "first-request-spike",
            "An engine's first request takes gigabytes a second that no budget counts",
            "vLLM and SGLang on unified memory, after they are ready",
            (*_REFERENCES, "field report 002"),
        ),
        check=first_request,
    ),
    LiveRule(
        card=_rule(
            "falling",
            "Available memory falls so fast that the host will be starved within a minute",
            "any node; a load under way may fall to what its own command leaves",
            _REFERENCES,
        ),
        check=falling,
        follows=("memory.first-request-spike",),
    ),
)
