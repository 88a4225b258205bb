"""What a node's figures become when an engine ends, loads, serves or waits in vain: its script from a second on.

The sums of spark.py are kept: what GPU processes let go comes back as available memory, but for what leaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparktop.sim.script import (
    ENGINE_TRACKS,
    ContainerScript,
    EngineScript,
    FaultKind,
    NodeScript,
    ProcessScript,
    Repeat,
    Scenario,
)
from sparktop.sim.spark import FIRMWARE_GIB, KERNEL_GIB, Spark
from sparktop.sim.tracks import Track

BACK_S = 6.0
"""Until the memory of an ended engine is back."""
_ANONYMOUS_GIB = 5.0
"""Of a machine with a desktop, however many engines ran before."""
_IDLE_W, _LOADED_W, _DECODE_W, _SPIN_W = 4.5, 12.0, 38.0, 15.6

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A node's script at one second of its own time."""

    scenario: Scenario
    script: NodeScript
    t: float

    @property
    def spark(self) -> Spark:
        return Spark(self.scenario, self.script, showing=0, began_wall_s=0.0)


def with_tracks(script: NodeScript, t: float, tracks: Mapping[str, Sequence[Point]]) -> NodeScript:
    """The node with other figures from second `t` on."""
    changed = {name: script.tracks[name].then(t, Track.of(points)) for name, points in tracks.items()}
    return replace(script, tracks={**script.tracks, **changed})


def of_container(script: NodeScript, name: str) -> list[ProcessScript]:
    """A container's processes."""
    return [one for one in script.processes if one.container == name]


def idle(moment: Moment, *, ended: Sequence[int] = ()) -> dict[str, list[Point]]:
    """GPU, load and pressure when what worked until `t` works no more; `ended` are its processes' (scripts') pids."""
    t, now = moment.t, moment.script.tracks
    computes = any(
        (live.gpu_gib or 0) > 1 and live.script.pid not in ended and live.script.gpu_kind == "C"
        for live in moment.spark.processes(t)
    )
    warm = now["temp_c"].at(t)
    return {
        "util": [(t + 0.3, now["util"].at(t)), (t + 0.4, 0.0)],
        "power_w": [(t, now["power_w"].at(t)), (t + 3, 11.0 if computes else _IDLE_W)],
        "sm_mhz": [(t, now["sm_mhz"].at(t)), (t + 3, _clock(moment.script, 2405 if computes else 208, t))],
        "temp_c": [(t, warm), (t + 60, min(warm, 40.0))],
        "throttle": [(t, 0.0)],
        "rdma_mb_s": [(t, 0.0)],
        "cpu_percent": [(t, now["cpu_percent"].at(t)), (t + 2, 2.2)],
        "load": [(t, now["load"].at(t)), (t + 60, 0.6)],
        "psi": [(t, now["psi"].at(t)), (t + 8, 0.0)],
        "psi_io": [(t, now["psi_io"].at(t)), (t + 8, 0.0)],
        "psi_cpu": [(t, 0.3)],
    }


def released(moment: Moment, ended: Sequence[int], *, leaks_gib: float = 0.0) -> NodeScript:
    """The node after some processes (by their scripts' pids) have ended at `t`: memory comes back, the GPU rests."""
    script, t = moment.script, moment.t
    before = moment.spark.memory(t - 0.01)
    gone = [live for live in moment.spark.processes(t - 0.01) if live.script.pid in ended]
    held = sum(live.gpu_gib or 0.0 for live in gone)
    others = [live for live in moment.spark.processes(t - 0.01) if live.script.pid not in ended]
    rest = sum(max(live.resident_gib, live.script.resident_gib.last(t)) for live in others)
    leaked = script.tracks["leaked_gib"].last(t)
    swap = before.swap_used
    cached = max(before.cached, 1.5)
    after = {
        "gpu": before.gpu - held,
        "leaked": leaked + min(held, leaks_gib),
        "anonymous": max(min(before.anonymous, _ANONYMOUS_GIB), rest + 2.2),
    }
    available = available_gib(before.total, cached=cached, shared=before.shared, **after)
    figures: dict[str, list[Point]] = {
        "leaked_gib": [(t, leaked + held), (t + BACK_S, after["leaked"])],
        "available_gib": [(t, script.tracks["available_gib"].at(t)), (t + BACK_S, available)],
        "cache_gib": [(t, before.cached), (t + BACK_S, cached)],
        "swap_gib": [(t, swap), (t + 15, swap * 0.25)],
    }
    works_on = any((live.gpu_gib or 0) > 1 and live.script.container for live in others)
    if held > 1 or (gone and not works_on):  # also what was busy before it had taken anything
        figures |= idle(moment, ended=ended)
    script = with_tracks(script, t, figures)
    if moment.scenario.repeat is not Repeat.LOOP:  # a starved host comes back with its memory
        faults = (
            replace(one, end_s=min(one.end_s, t + 2)) if one.kind in (FaultKind.STARVED, FaultKind.SLOW) else one
            for one in script.faults
        )
        kernel = tuple(one for one in script.kernel if one.at_s <= t)
        script = replace(script, faults=tuple(one for one in faults if one.start_s < one.end_s), kernel=kernel)
    return script


def available_gib(total: float, *, gpu: float, leaked: float, anonymous: float, cached: float, shared: float) -> float:
    """MemAvailable where the rest is known, in GiB."""
    return total - KERNEL_GIB - FIRMWARE_GIB - gpu - leaked - anonymous - cached + 0.95 * max(0.0, cached - shared)


def held_by(script: NodeScript, container: ContainerScript) -> dict[int, float]:
    """GPU memory of an engine's processes (by their scripts' pids) when it serves, in GiB: as the scenario began."""
    shares = {
        one.pid: max(0.0, one.gpu_gib.stretches[0].at(0.0)) for one in of_container(script, container.name)
        if one.gpu_gib is not None
    }  # fmt: skip
    whole = sum(shares.values())
    wanted = container.reaction.gpu_gib
    if wanted is None or not shares:
        return shares
    return {pid: wanted * (share / whole if whole else 1 / len(shares)) for pid, share in shares.items()}


def with_memory(
    moment: Moment, container: ContainerScript, shares: Sequence[tuple[float, float]], held: Mapping[int, float]
) -> NodeScript:
    """An engine takes memory from `t` on: `shares` is [(second, share of what it will hold)]."""
    script, t = moment.script, moment.t
    ours = {one.pid for one in of_container(script, container.name)}
    others = [live for live in moment.spark.processes(t) if live.script.pid not in ours]
    base_gpu = sum(live.gpu_gib or 0.0 for live in others)
    resident = sum(max(live.resident_gib, live.script.resident_gib.last(t)) for live in others)
    resident += sum(one.resident_gib.at(0.0) for one in of_container(script, container.name))
    whole = sum(held.values())
    total, shared = moment.spark.memory(t).total, script.tracks["shared_gib"].last(t)
    leaked, cached = script.tracks["leaked_gib"].last(t), script.tracks["cache_gib"].last(t)
    free_enough = available_gib(
        total, gpu=base_gpu + whole, leaked=leaked, anonymous=_ANONYMOUS_GIB, cached=0, shared=0
    )
    cached = min(cached, max(1.5, 0.6 * free_enough))  # it gives way to what loads
    anonymous = max(_ANONYMOUS_GIB, resident + 0.4)
    room = available_gib(total, gpu=base_gpu, leaked=leaked, anonymous=anonymous, cached=cached, shared=shared)
    whole = min(whole, room - 1.0)  # an engine that doesn't fit takes all but the last
    available = [(at, room - share * whole) for at, share in shares]
    figures: dict[str, list[Point]] = {
        "available_gib": [(t, script.tracks["available_gib"].at(t)), *((max(at, t + 4), v) for at, v in available)],
        "cache_gib": [(t, script.tracks["cache_gib"].at(t)), (t + 10, cached)],
    }
    script = with_tracks(script, t, figures)
    return with_held(script, t, {
        pid: [(at, share * gib) for at, share in shares] for pid, gib in held.items()
    })  # fmt: skip


def with_held(script: NodeScript, t: float, held: Mapping[int, Sequence[Point]]) -> NodeScript:
    """Other GPU memory of some processes from second `t` on; what else is told of them is as at the beginning."""
    processes = tuple(
        one if one.pid not in held or one.gpu_gib is None else replace(
            one,
            gpu_gib=one.gpu_gib.then(t, Track.of(held[one.pid])),
            resident_gib=one.resident_gib.then(t, Track.constant(one.resident_gib.stretches[0].at(0.0))),
            swapped_gib=one.swapped_gib.then(t, Track.constant(0.0)),
        )
        for one in script.processes
    )  # fmt: skip
    return replace(script, processes=processes)


# What engines do, beside memory


def with_traffic(script: NodeScript, name: str, t: float, tracks: Mapping[str, Sequence[Point]]) -> NodeScript:
    """An engine's own figures from second `t` on; those not named stand at their default."""
    engines = []
    for engine in script.engines:
        if engine.name == name:
            still = {key: engine.tracks[key].then(t, Track.constant(default)) for key, default in _QUIET.items()}
            told = {key: engine.tracks[key].then(t, Track.of(points)) for key, points in tracks.items()}
            engine = replace(engine, tracks={**engine.tracks, **still, **told})
        engines.append(engine)
    return replace(script, engines=tuple(engines))


_QUIET = {key: value for key, value in ENGINE_TRACKS.items() if key not in ("prefix_hit", "ttft_s", "itl_s")}


def tokens_per_s(engine: EngineScript, container: ContainerScript) -> float:
    """What it gives when it serves anew."""
    if container.reaction.tokens_per_s is not None:
        return container.reaction.tokens_per_s
    return max(engine.tracks["gen_tps"].stretches[0].values) or 31.0


def loading(script: NodeScript, t: float, ready_s: float | None) -> NodeScript:
    """CPU, disk and GPU while an engine loads, from second `t` on; `ready_s` None: it waits for something."""
    now = script.tracks
    end = ready_s if ready_s is not None else t + 30
    middle = t + 0.75 * (end - t)
    return with_tracks(script, t, {
        "util": [(t, 0.0), (t + 4, 3.0), (middle, 4.0), (end, 0.0)],
        "power_w": [(t, now["power_w"].at(t)), (t + 4, 11.2), (end, _LOADED_W)],
        "sm_mhz": [(t, _clock(script, 2405, t))],
        "temp_c": [(t, now["temp_c"].at(t)), (end, 42.0)],
        "cpu_percent": [(t, now["cpu_percent"].at(t)), (t + 4, 21.0), (middle, 19.0), (end, 4.0)],
        "load": [(t, now["load"].at(t)), (middle, 3.6), (end + 40, 1.4)],
        "rdma_mb_s": [(t, 0.0)],
        "throttle": [(t, 0.0)],
    })  # fmt: skip


def decoding(script: NodeScript, t: float, *, is_pair: bool) -> NodeScript:
    """The GPU and the fabric when tokens flow from second `t` on."""
    now = script.tracks
    slow = script.reaction("gpu").needs.by_hand
    return with_tracks(script, t, {
        "util": [(t, 0.0), (t + 0.5, 95.0)],
        "power_w": [(t, now["power_w"].at(t)), (t + 1, 14.2 if slow else 48.0), (t + 3, 14.2 if slow else _DECODE_W)],
        "sm_mhz": [(t, _clock(script, 2388, t))],
        "temp_c": [(t, now["temp_c"].at(t)), (t + 60, 45.0 if slow else 56.0)],
        "cpu_percent": [(t, now["cpu_percent"].at(t)), (t + 1, 8.0)],
        "rdma_mb_s": [(t, 0.0), (t + 0.5, 404.0 if is_pair else 0.0)],
    })  # fmt: skip


def spinning(script: NodeScript, t: float) -> NodeScript:
    """The GPU when a rank waits for another that never comes."""
    now = script.tracks
    return with_tracks(script, t, {
        "util": [(t, now["util"].at(t)), (t + 0.3, 96.0)],
        "power_w": [(t, now["power_w"].at(t)), (t + 1.5, _SPIN_W)],
        "sm_mhz": [(t, _clock(script, 2405, t))],
        "temp_c": [(t, now["temp_c"].at(t)), (t + 50, 45.0)],
        "rdma_mb_s": [(t, 0.0)],
    })  # fmt: skip


def _clock(script: NodeScript, mhz: float, t: float) -> float:
    """The SM clock: as it is, where the power controller keeps it there."""
    return script.tracks["sm_mhz"].at(t) if script.reaction("gpu").needs.by_hand else mhz
