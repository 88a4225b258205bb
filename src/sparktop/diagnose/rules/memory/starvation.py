"""Rules on fast falling memory, the first request's spike, and a starved host.

Facts: field report 001 (walls 1 and 4: 45 GiB gone in six seconds on the first request), docs/facts/engines.md MEM-01
and MEM-02, docs/facts/gb10.md section 2. The measure is MemAvailable, not MemFree or the page cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.dataclass import dataclass
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.gpu.power import IDLE_PERCENT
from sparktop.diagnose.rules.memory.relief import arm_guard, stop_engine
from sparktop.diagnose.rules.window import newest, of_engine, seen
from sparktop.engines.memory_needs import floor_bytes, is_loading, loading, most_bytes, settling
from sparktop.engines.ranks import is_alive
from sparktop.model.change import Change
from sparktop.model.engine import Engine
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
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
ROOMY_SHARE, TIGHT_SHARE = 0.5, 0.25
_TAKERS = ("engine", "gpu", "processes")
_REFERENCES = ("field report 001", "NVIDIA/dgx-spark-playbooks#116 (34 to 13 GiB in 1.5 s)")


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
    if len(points) < 2 or points[0][1] >= points[1][1]:
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


@live_rule(
    "memory.falling",
    "Out of memory within a minute: available memory falls fast",
    Severity.CRITICAL,
    scope="any node; a load in progress may use what its own command allows",
    sources=_REFERENCES,
    by_samples=True,
    follows=("memory.first-request-spike",),
)
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
        rate = -fall.bytes_per_s / GIB
        due = f"empty in {fall.empty_in_s:.0f} s: " if fall.empty_in_s >= 1.5 else ""
        yield Finding(
            rule="memory.falling",
            severity=Severity.CRITICAL,
            title=f"{node.name} is running out of memory",
            explanation=(
                f"Available memory fell {gib(fall.fallen_bytes)} in {span(fall.over_s)} to "
                f"{gib(fall.available_bytes)}, and falls {rate:.1f} GiB/s.{_at_fault(node, fall)} On this "
                "machine the GPU uses the same memory. When none is left the host hangs, and SSH with it. Often no "
                "process is killed."
            ),
            distinction=("MemAvailable counts page cache as free; a low MemFree alone would mean nothing.",),
            evidence=(*trajectory(node), *_holders(node)),
            remedies=_stop_now(node),
            references=_REFERENCES,
            nodes=(node.name,),
            brief=f"{due}{gib(fall.available_bytes)} left, down {gib(fall.fallen_bytes)} in {span(fall.over_s)}",
        )


@live_rule(
    "memory.first-request-spike",
    "An engine's first request takes gigabytes a second that no memory setting counts",
    Severity.CRITICAL,
    scope="vLLM and SGLang on unified memory, after they are ready",
    sources=(*_REFERENCES, "field report 002"),
    by_samples=True,
)
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
        yield Finding(
            rule="memory.first-request-spike",
            severity=Severity.CRITICAL,
            confidence=Confidence.CONFIRMED if running else Confidence.SUSPECTED,
            title=f"Stop {engine.name} now: its first request takes {node.name}'s memory",
            explanation=(
                f"It was loaded and idle. {span(began_s)} after its GPU began the first request, "
                f"{gib(fall.fallen_bytes)} are gone, at {-fall.bytes_per_s / GIB:.1f} GiB/s. "
                "--gpu-memory-utilization doesn't count what the first forward pass captures and compiles: \"it "
                'loaded" is not "it serves". In one report this took a host from 45 GiB to nothing in six seconds.'
            ),
            settles="" if running else "Its own count of running requests, which sparktop hasn't read since.",
            evidence=(
                *trajectory(node),
                *([of_engine(engine, node, made, part="metrics", wall_s=metrics.wall_s)] if metrics else []),
                *_holders(node),
            ),
            remedies=(
                Remedy(
                    title="Stop the engine now, before the host hangs",
                    steps=(f"docker stop -t 2 {engine.name}" if engine.container else "kill the engine's processes",),
                    cost="the request",
                    action="stop-engine",
                ),
                Remedy(
                    title="Relaunch with less memory: --enforce-eager disables capture and compilation",
                    steps=(
                        "add --enforce-eager",
                        """or first, if graphs alone grow: --compilation-config '{"cudagraph_mode":"PIECEWISE"}'""",
                        "or lower --gpu-memory-utilization by the missing amount, to 0.60 or so",
                        "or use a smaller model, or one in FP8: MXFP4 has no native kernels on SM 12.1",
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


def _at_fault(node: NodeView, fall: Fall) -> str:
    """Who takes the memory: what grows in the GPU's list, and how much of the fall that leaves unexplained."""
    if not node.growing:
        holders = node.holders(*_TAKERS)
        return f" {holders[0].label} ({gib(holders[0].held_bytes)}) holds most." if holders else ""
    first = node.growing[0]
    others_bytes_per_s = -fall.bytes_per_s - sum(growth.bytes_per_s for growth in node.growing)
    grows = f" {first.label} takes {first.bytes_per_s / GIB:.1f} GiB/s as GPU memory"
    if others_bytes_per_s < UNEXPLAINED_SHARE * -fall.bytes_per_s:
        return f"{grows}."
    return f"{grows}; the other {others_bytes_per_s / GIB:.1f} GiB/s are no GPU memory."


def _holders(node: NodeView) -> Iterable[Evidence]:
    for grown in node.growing[:3]:
        yield seen(
            node, "GPU memory", f"{grown.label} holds {gib(grown.held_bytes)}, +{grown.bytes_per_s / GIB:.1f} GiB/s"
        )
    if not node.growing and (holders := node.holders(*_TAKERS)):
        yield seen(node, "memory", f"largest holder: {holders[0].label}, {gib(holders[0].held_bytes)}")


def _stop_now(node: NodeView) -> tuple[Remedy, ...]:
    cost = "its current work; every second counts"
    kill = Remedy(
        title="Kill the growing process now",
        steps=("kill it by its pid",),
        cost=cost,
        action="end-holder",
        pid=node.growing[0].pid if node.growing else None,
    )
    return (*(stop_engine(node, cost=cost) or (kill,)), *arm_guard(node, "Arm the guard for the next time"))


_LEAVE_MORE = Remedy(
    title="Before the engine runs again, leave the host more memory",
    steps=(
        "lower --gpu-memory-utilization (or --mem-fraction-static) so that 20 GiB stay available",
        "if a first request used it up: --enforce-eager, or a smaller model",
    ),
    cost="some of the KV cache",
)


@live_rule(
    "memory.starved",
    "The host is out of memory: it accepts TCP connections but SSH doesn't answer",
    Severity.CRITICAL,
    scope="any node whose samples stopped",
    sources=("field report 001", "NVIDIA/dgx-spark-playbooks#116"),
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
        trend = node.trend
        fell = trend is not None and trend.time_to_empty_s is not None and trend.time_to_empty_s < EMPTY_IN_S
        psi = node.sample.memory_pressure if node.sample else None
        stalled = psi is not None and psi.full_avg10 > 20
        is_confirmed = not node.link.was_gone and last is not None and (last < LOW_BYTES or fell or stalled)
        silent_s = node.age_s(fleet.monotonic_s) or fleet.monotonic_s - node.link.since_s
        if is_confirmed and last is not None:
            rate = f", falling {-trend.bytes_per_s / GIB:.1f} GiB/s" if trend is not None and fell else ""
            last_seen = f"Its last sample had {gib(last)} available{rate}"
        elif node.link.was_gone:
            last_seen = "Before that nothing answered there, so it may be booting"
        elif last is not None:
            last_seen = f"Its last sample looked fine ({gib(last)} available), so this may be another hang"
        else:
            last_seen = "sparktop has no earlier memory figures"
        yield Finding(
            rule="memory.starved",
            severity=Severity.CRITICAL,
            confidence=Confidence.CONFIRMED if is_confirmed else Confidence.SUSPECTED,
            title=f"{node.name} is out of memory: it accepts connections but SSH doesn't answer"
            if is_confirmed
            else f"{node.name} accepts connections but SSH doesn't answer: it may be out of memory",
            explanation=(
                f"No sample came for {span(silent_s)}. TCP connects, but SSH sends no banner. {last_seen}. "
                + (
                    "The kernel has no memory to start sshd, or it thrashes. It may take minutes to answer, kill "
                    "something, or never recover."
                    if is_confirmed
                    else "Without memory the kernel can't start sshd; sshd may hang for another reason too."
                )
                + " It is neither down nor off the network."
            ),
            distinction=("The network is up: the node's kernel still completes TCP handshakes.",),
            settles=""
            if is_confirmed
            else "Once it is back, look for oom-kill or NV_ERR_NO_MEMORY in its kernel log, this boot's or the last.",
            evidence=tuple(trajectory(node)),
            remedies=(
                Remedy(
                    title="Wait a few minutes: the kernel may kill the engine, and then SSH answers again"
                    if is_confirmed
                    else "Wait a few minutes: SSH may answer again",
                    steps=("don't open more sessions: each one needs memory that the host doesn't have",),
                    cost="time",
                ),
                Remedy(
                    title="If it doesn't recover, power-cycle it",
                    steps=("hold the power button until it is off, then start it",),
                    cost="everything running on it; about two minutes",
                ),
                *((_LEAVE_MORE,) if is_confirmed else ()),
            ),
            references=("field report 001", "NVIDIA/dgx-spark-playbooks#116"),
            nodes=(node.name,),
            brief=f"silent {span(silent_s)}" + (f", last seen {gib(last)} available" if last is not None else ""),
        )
