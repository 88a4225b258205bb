"""Rules on fast falling memory, the first request's spike, and a starved host.

Facts: field report 001 (walls 1 and 4: 45 GiB gone in six seconds on the first request), docs/facts/engines.md MEM-01
and MEM-02, docs/facts/gb10.md section 2. The measure is MemAvailable, not MemFree or the page cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.dataclass import dataclass
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.gpu.power import IDLE_PERCENT
from sparktop.diagnose.rules.memory.relief import engine_to_stop, is_unguarded
from sparktop.diagnose.rules.window import newest, of_engine, seen
from sparktop.engines.memory_needs import floor_bytes, is_loading, loading, most_bytes, settling
from sparktop.engines.ranks import is_alive
from sparktop.knowledge.card import found
from sparktop.model.engine import Engine
from sparktop.model.finding import Confidence, Evidence, Finding
from sparktop.model.fleet import FleetState, LinkState, NodeView, Reach, current_nodes
from sparktop.text.units import GIB, gib, span

EMPTY_IN_S = 60.0
LOOK_BACK_S = 20.0
FALLEN_BYTES = 4 * GIB
"""A smaller fall means nothing yet: a workspace, a compilation."""
SPIKE_BYTES_PER_S = 2 * GIB
SPIKE_WITHIN_S = 10.0
"""At most this long from the first request's arrival to the fall (docs/facts/engines.md MEM-02)."""
UNEXPLAINED_SHARE = 0.3
"""Of a fall: readings of the GPU's list are some seconds apart, so less is no other process."""
LOW_BYTES = 6 * GIB
GONE_BYTES = GIB
"""A fall to so little hasn't ended: nothing is left to fall."""
ROOMY_SHARE, TIGHT_SHARE = 0.5, 0.25
_TAKERS = ("engine", "gpu", "processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A fall of available memory that is going on."""

    available_bytes: float
    fallen_bytes: float
    """Since the maximum of the last LOOK_BACK_S."""
    over_s: float
    bytes_per_s: float
    """Negative."""
    empty_in_s: float


def fall_of(node: NodeView) -> Fall | None:
    """The node's current fall; None if memory stands, rises, or lasts for more than a minute at this rate."""
    trend = node.trend
    if trend is None or trend.time_to_empty_s is None or trend.time_to_empty_s >= EMPTY_IN_S:
        return None
    points = list(newest(node.available_history, LOOK_BACK_S))
    if len(points) < 2 or (points[0][1] >= points[1][1] and points[0][1] > GONE_BYTES):
        return None  # the newest step doesn't fall: that fall has ended
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
    """Whether this fall would starve the host if nothing stops it, as far as can be told."""
    floor = floor_bytes(node, fleet)
    if floor is not None:  # a load takes what its command says: only more is a danger
        return fall.available_bytes < min(floor, LOW_BYTES) and fall.empty_in_s < SPIKE_WITHIN_S
    return threatens(node, fall) and not _is_the_end_of_a_load(node, fall, fleet)


def threatens(node: NodeView, fall: Fall) -> bool:
    """Whether this fall would starve the host if nothing loads there."""
    if fall.fallen_bytes < FALLEN_BYTES:
        return False
    total = node.sample.memory.total_bytes if node.sample else 0
    if any(is_alive(engine) for engine in node.engines):  # it holds what it reserved and takes no more by design
        return fall.available_bytes <= ROOMY_SHARE * total
    # An unknown job mostly takes what it needs: a danger only near the end.
    return fall.available_bytes <= TIGHT_SHARE * total and fall.empty_in_s < SPIKE_WITHIN_S


def _is_the_end_of_a_load(node: NodeView, fall: Fall, fleet: FleetState) -> bool:
    """Whether the fall is the end of a load: an engine just became ready and holds no more than its command allows.

    A first request differs, however soon it comes: the GPU is at work, or the server counts it.
    """
    ready = settling(node, fleet)
    if node.sample is None or not ready or fall.available_bytes < LOW_BYTES:
        return False
    engine, share = ready[0]
    if any(process.pid not in engine.pids for process in node.growing):
        return False
    busy = next((util for _, util in newest(node.utilisation_history, 1.0)), 0.0)
    held_bytes = fall.fallen_bytes if engine.gpu_bytes is None else engine.gpu_bytes
    return busy < IDLE_PERCENT and held_bytes <= most_bytes(share, node.sample.memory.total_bytes)


@live_rule("memory.falling", by_samples=True, follows=("memory.first-request-spike",))
def falling(fleet: FleetState) -> Iterable[Finding]:
    """memory.falling: at its present rate available memory is gone within a minute.

    While an engine serves: after a fall of 4 GiB into the lower half of memory. While one loads: only below what its
    command leaves, and 10 s before the end. For other programs: only 10 s before the end. In the seconds after an
    engine became ready, what it took by its command is the end of its load, not a fall.
    """
    for node, _ in current_nodes(fleet):
        fall = fall_of(node)
        if fall is None or not is_dangerous(node, fall, fleet):
            continue
        engine = engine_to_stop(node)
        yield found(
            "memory.falling",
            "fast",
            {
                **_figures(node, fall),
                "span": span(fall.over_s),
                "empty_in_s": fall.empty_in_s if fall.empty_in_s >= 1.5 else None,
                **_taker(node, fall),
                **engine,
                "pid": node.growing[0].pid if node.growing and not engine else None,
                "has_unknown_taker": not node.growing and not engine,
                "is_unguarded": is_unguarded(node),
            },
            evidence=(*trajectory(node), *_holders(node)),
            nodes=(node.name,),
        )


@live_rule("memory.first-request-spike", by_samples=True)
def first_request_spike(fleet: FleetState) -> Iterable[Finding]:
    """memory.first-request-spike: memory falls with the first request after a load.

    At 2 GiB/s or more, within 10 s after the GPU of an engine with hardly any tokens yet began to work.
    """
    for node, _ in current_nodes(fleet):
        fall = None if loading(node, fleet) else fall_of(node)
        if fall is None or -fall.bytes_per_s < SPIKE_BYTES_PER_S or not is_dangerous(node, fall, fleet):
            continue
        engine = next((engine for engine in node.engines if is_alive(engine) and _has_first_request(engine)), None)
        began_s = _began_to_work_s(node)
        if engine is None or began_s is None or began_s > SPIKE_WITHIN_S + fall.over_s:
            continue
        metrics = engine.metrics
        running = metrics.running if metrics else None
        made = f"{running or 0:.0f} running, {metrics.generation_tokens or 0:.0f} tokens made" if metrics else ""
        yield found(
            "memory.first-request-spike",
            "spike",
            {
                **_figures(node, fall),
                "span": span(began_s),
                "engine": engine.name,
                "container": engine.container is not None,
            },
            confidence=Confidence.CONFIRMED if running else Confidence.SUSPECTED,
            evidence=(
                *trajectory(node),
                *([of_engine(engine, node, made, part="metrics", wall_s=metrics.wall_s)] if metrics else []),
                *_holders(node),
            ),
            nodes=(node.name,),
            subject=engine.name,
        )


def _figures(node: NodeView, fall: Fall) -> dict[str, object]:
    return {
        "node": node.name,
        "left": gib(fall.available_bytes),
        "fallen": gib(fall.fallen_bytes),
        "rate": -fall.bytes_per_s / GIB,
    }


def _has_first_request(engine: Engine) -> bool:
    """Whether it is ready and has made hardly any tokens, as far as its metrics say."""
    if is_loading(engine):
        return False
    tokens = engine.metrics.generation_tokens if engine.metrics else None
    return tokens is None or tokens < 200


def _began_to_work_s(node: NodeView) -> float | None:
    """Seconds since the GPU became busy after at least five seconds of rest; None if not recently."""
    began_s: float | None = None
    rested = 0
    points = newest(node.utilisation_history, LOOK_BACK_S + SPIKE_WITHIN_S)
    newest_s = node.utilisation_history.times[-1] if node.utilisation_history.times else 0.0
    for time_s, util in points:
        if util >= IDLE_PERCENT:
            if rested:
                break
            began_s = newest_s - time_s
        elif began_s is None or rested >= 4:
            break
        else:
            rested += 1
    return began_s if rested >= 4 else None


def trajectory(node: NodeView) -> Iterable[Evidence]:
    """The last seconds of available memory, one figure every two."""
    points = list(newest(node.available_history, 10.0))
    if not points:
        return
    end_s = points[0][0]
    values: list[str] = []
    due_s = end_s
    for time_s, value in points:
        if time_s <= due_s:
            values.append(f"-{end_s - time_s:.0f} s {value / GIB:.1f}")
            due_s = time_s - 1.9
    yield seen(node, "memory", "available GiB: " + ", ".join(reversed(values)))


def _taker(node: NodeView, fall: Fall) -> dict[str, object]:
    """Who takes the memory: what grows in the GPU's list, and how much of the fall that leaves unexplained."""
    if not node.growing:
        holders = node.holders(*_TAKERS)
        return {"holder": f"{holders[0].label} ({gib(holders[0].held_bytes)})"} if holders else {}
    first = node.growing[0]
    others_bytes_per_s = -fall.bytes_per_s - sum(growth.bytes_per_s for growth in node.growing)
    is_explained = others_bytes_per_s < UNEXPLAINED_SHARE * -fall.bytes_per_s
    return {
        "grower": first.label,
        "takes": first.bytes_per_s / GIB,
        "is_explained": is_explained,
        "others": None if is_explained else others_bytes_per_s / GIB,
    }


def _holders(node: NodeView) -> Iterable[Evidence]:
    for grown in node.growing[:3]:
        yield seen(
            node, "GPU memory", f"{grown.label} holds {gib(grown.held_bytes)}, +{grown.bytes_per_s / GIB:.1f} GiB/s"
        )
    if not node.growing and (holders := node.holders(*_TAKERS)):
        yield seen(node, "memory", f"largest holder: {holders[0].label}, {gib(holders[0].held_bytes)}")


@live_rule(
    "memory.starved",
    clear_s=0.0,  # the first sample disproves it
    follows=("memory.first-request-spike", "memory.falling", "memory.low"),
)
def starved(fleet: FleetState) -> Iterable[Finding]:
    """memory.starved: the host accepts TCP connections and doesn't answer SSH.

    Confirmed if memory was low or falling when last seen, else suspected: also once the host was gone, as it may boot,
    and systemd takes connections for sshd before that has started.
    """
    for node in fleet.nodes:
        if node.link.state not in (LinkState.STALE, LinkState.LOST) or node.link.reach is not Reach.SSH_SILENT:
            continue
        last = node.available_history.values[-1] if node.available_history.values else None
        trend, was_gone = node.trend, node.link.was_gone
        fell = trend is not None and trend.time_to_empty_s is not None and trend.time_to_empty_s < EMPTY_IN_S
        psi = node.sample.memory_pressure if node.sample else None
        stalled = psi is not None and psi.full_avg10 > 20
        was_low = not was_gone and last is not None and (last < LOW_BYTES or fell or stalled)
        available = gib(last) if last is not None else None
        yield found(
            "memory.starved",
            "was-low" if was_low else "may-be",
            {
                "node": node.name,
                "silent": span(node.age_s(fleet.monotonic_s) or fleet.monotonic_s - node.link.since_s),
                "last": available,
                "available": available,
                "falling": -trend.bytes_per_s / GIB if trend is not None and fell else None,
                "was_gone": was_gone,
                "fine": None if was_gone else available,
                "is_unseen": not was_gone and last is None,
            },
            evidence=tuple(trajectory(node)),
            nodes=(node.name,),
        )
