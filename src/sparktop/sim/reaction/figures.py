"""The figures of a node after an act: memory, GPU, load and pressure.

The sums of spark.py hold: memory that GPU processes release becomes available again, except for what leaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.script import (
    ENGINE_TRACKS,
    NODE_TRACKS,
    ContainerScript,
    EngineScript,
    Fault,
    FaultKind,
    KernelEntry,
    NodeScript,
    ProcessScript,
    Repeat,
    Run,
    Scenario,
)
from sparktop.sim.scenario.tracks import Track
from sparktop.sim.spark.engine_start import of_container
from sparktop.sim.spark.spark import FIRMWARE_GIB, KERNEL_GIB, Spark

LEFT_IN_SWAP = 0.25
"""Share of what lies in swap that nobody reads back when memory is free again."""
MEMORY_BACK_S = 6.0
"""Time until an ended engine's memory is available again."""
_ANONYMOUS_GIB = 5.0
"""Anonymous memory of a machine with a desktop, however many engines ran before."""
_IDLE_W, _LOADED_W, _DECODE_W, _SPIN_W, _BURN_W = 4.5, 12.0, 38.0, 15.6, 84.0
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

    @property
    def where(self) -> tuple[Scenario, str, float]:
        """The scenario, the node's name and the second of the showing."""
        return self.scenario, self.script.name, self.t + self.script.began_s


def moment(scenario: Scenario, node: str, showing_s: float) -> Moment:
    """A node at a second of the showing, in its own time."""
    script = next(node_script for node_script in scenario.nodes if node_script.name == node).at(showing_s)
    return Moment(scenario=scenario, script=script, t=showing_s - script.began_s)


def with_tracks(script: NodeScript, t: float, tracks: Mapping[str, Sequence[Point]]) -> NodeScript:
    """The node with these figures from second `t` on."""
    changed = {name: script.tracks[name].then(t, Track.of(points)) for name, points in tracks.items()}
    return replace(script, tracks={**script.tracks, **changed})


def idle(moment: Moment, *, ended: Sequence[int] = ()) -> dict[str, list[Point]]:
    """GPU, load and pressure after the work ends at `t`; `ended` are the script pids of the processes that end."""
    t, tracks = moment.t, moment.script.tracks
    computes = any(
        (live.gpu_gib or 0) > 1 and live.script.pid not in ended and live.script.gpu_kind == "C"
        for live in moment.spark.processes(t)
    )
    warm = tracks["temp_c"].at(t)
    return {
        "util": [(t + 0.3, tracks["util"].at(t)), (t + 0.4, 0.0)],
        "power_w": [(t, tracks["power_w"].at(t)), (t + 3, 11.0 if computes else _IDLE_W)],
        "sm_mhz": [(t, tracks["sm_mhz"].at(t)), (t + 3, _clock(moment.script, 2405 if computes else 208, t))],
        "temp_c": [(t, warm), (t + 60, min(warm, 40.0))], "throttle": [(t, 0.0)], "rdma_mb_s": [(t, 0.0)],
        "cpu_percent": [(t, tracks["cpu_percent"].at(t)), (t + 2, 2.2)],
        "load": [(t, tracks["load"].at(t)), (t + 60, 0.6)], "psi": [(t, tracks["psi"].at(t)), (t + 8, 0.0)],
        "psi_io": [(t, tracks["psi_io"].at(t)), (t + 8, 0.0)], "psi_cpu": [(t, 0.3)],
    }  # fmt: skip


def released(moment: Moment, ended: Sequence[int], *, leaks_gib: float = 0.0) -> NodeScript:
    """The node after processes (script pids) have ended at `t`: memory comes free, the GPU goes idle."""
    script, t = moment.script, moment.t
    before = moment.spark.memory(t - 0.01)
    ended_processes = [live for live in moment.spark.processes(t - 0.01) if live.script.pid in ended]
    released_gib = sum(live.gpu_gib or 0.0 for live in ended_processes)
    remaining = [live for live in moment.spark.processes(t - 0.01) if live.script.pid not in ended]
    resident_gib = sum(max(live.resident_gib, live.script.resident_gib.last(t)) for live in remaining)
    leaked = script.tracks["leaked_gib"].last(t)
    swap_gib = before.swap_used
    cached = max(before.cached, 1.5)
    after = {
        "gpu": before.gpu - released_gib,
        "leaked": leaked + min(released_gib, leaks_gib),
        "anonymous": max(min(before.anonymous, _ANONYMOUS_GIB), resident_gib + 2.2),
    }
    available = available_gib(before.total, cached=cached, shared=before.shared, **after)
    figures: dict[str, list[Point]] = {
        "leaked_gib": [(t, leaked + released_gib), (t + MEMORY_BACK_S, after["leaked"])],
        "available_gib": [(t, script.tracks["available_gib"].at(t)), (t + MEMORY_BACK_S, available)],
        "cache_gib": [(t, before.cached), (t + MEMORY_BACK_S, cached)],
        "swap_gib": [(t, swap_gib), (t + 15, swap_gib * LEFT_IN_SWAP)],
    }
    processes = tuple(
        script_of if script_of.pid in ended else _swapped_in(script_of, t) for script_of in script.processes
    )
    script = replace(script, processes=processes)
    works_on = any((live.gpu_gib or 0) > 1 and live.script.container for live in remaining)
    if released_gib > 1 or (ended_processes and not works_on):  # also one that was busy before it had allocated memory
        figures |= idle(moment, ended=ended)
    script = with_tracks(script, t, figures)
    if moment.scenario.repeat is not Repeat.LOOP:  # a starved host recovers with its memory
        faults = (
            replace(fault, end_s=min(fault.end_s, t + 2))
            if fault.kind in (FaultKind.STARVED, FaultKind.SLOW)
            else fault
            for fault in script.faults
        )
        kernel = tuple(entry for entry in script.kernel if entry.at_s <= t)
        script = replace(script, faults=tuple(fault for fault in faults if fault.start_s < fault.end_s), kernel=kernel)
    return script


def _swapped_in(process: ProcessScript, t: float) -> ProcessScript:
    """A process that lives on, most of it read back from swap as the rest of the node's."""
    swapped_gib = process.swapped_gib.at(t)
    points = [(t, swapped_gib), (t + 15, swapped_gib * LEFT_IN_SWAP)]
    return replace(process, swapped_gib=process.swapped_gib.then(t, Track.of(points)))


def available_gib(total: float, *, gpu: float, leaked: float, anonymous: float, cached: float, shared: float) -> float:
    """MemAvailable in GiB, computed from the other parts."""
    return total - KERNEL_GIB - FIRMWARE_GIB - gpu - leaked - anonymous - cached + 0.95 * max(0.0, cached - shared)


def with_memory(
    moment: Moment, container: ContainerScript, shares: Sequence[tuple[float, float]], gib_by_pid: Mapping[int, float]
) -> NodeScript:
    """An engine allocates memory from `t` on; `shares` is [(second, share of its final memory)]."""
    script, t = moment.script, moment.t
    own_pids = {process.pid for process in of_container(script, container.name)}
    other_processes = [live for live in moment.spark.processes(t) if live.script.pid not in own_pids]
    base_gpu = sum(live.gpu_gib or 0.0 for live in other_processes)
    resident = sum(max(live.resident_gib, live.script.resident_gib.last(t)) for live in other_processes)
    resident += sum(one.resident_gib.at(0.0) for one in of_container(script, container.name))
    total_gib = sum(gib_by_pid.values())
    total, shared = moment.spark.memory(t).total, script.tracks["shared_gib"].last(t)
    leaked, cached = script.tracks["leaked_gib"].last(t), script.tracks["cache_gib"].last(t)
    free_enough = available_gib(
        total, gpu=base_gpu + total_gib, leaked=leaked, anonymous=_ANONYMOUS_GIB, cached=0, shared=0
    )
    cached = min(cached, max(1.5, 0.6 * free_enough))  # the page cache shrinks for the engine
    anonymous = max(_ANONYMOUS_GIB, resident + 0.4)
    room = available_gib(total, gpu=base_gpu, leaked=leaked, anonymous=anonymous, cached=cached, shared=shared)
    total_gib = min(total_gib, room - 1.0)  # an engine that doesn't fit takes all but the last GiB
    available = [(at, room - share * total_gib) for at, share in shares]
    figures: dict[str, list[Point]] = {
        "available_gib": [(t, script.tracks["available_gib"].at(t)), *((max(at, t + 4), v) for at, v in available)],
        "cache_gib": [(t, script.tracks["cache_gib"].at(t)), (t + 10, cached)],
    }
    script = with_tracks(script, t, figures)
    processes = tuple(  # beside GPU memory, their figures return to the initial ones
        process if process.pid not in gib_by_pid or process.gpu_gib is None else replace(
            process,
            gpu_gib=process.gpu_gib.then(t, Track.of([(at, share * gib_by_pid[process.pid]) for at, share in shares])),
            resident_gib=process.resident_gib.then(t, Track.constant(process.resident_gib.first)),
            swapped_gib=process.swapped_gib.then(t, Track.constant(0.0)),
        )
        for process in script.processes
    )  # fmt: skip
    return replace(script, processes=processes)


# What engines do, apart from memory


def with_traffic(script: NodeScript, name: str, t: float, tracks: Mapping[str, Sequence[Point]]) -> NodeScript:
    """An engine's own figures from second `t` on; figures not given go to their default."""
    engine = script.engine(name)
    assert engine is not None
    quiet = {key: engine.tracks[key].then(t, Track.constant(default)) for key, default in _QUIET.items()}
    given_tracks = {key: engine.tracks[key].then(t, Track.of(points)) for key, points in tracks.items()}
    return script.with_engine(name, tracks={**engine.tracks, **quiet, **given_tracks})


_QUIET = {key: value for key, value in ENGINE_TRACKS.items() if key not in ("prefix_hit", "ttft_s", "itl_s")}


def tokens_per_s(engine: EngineScript, container: ContainerScript) -> float:
    """Generation rate of the engine after a restart."""
    if container.reaction.tokens_per_s is not None:
        return container.reaction.tokens_per_s
    return max(engine.tracks["gen_tps"].stretches[0].values) or 31.0


_WORK: Mapping[str, Mapping[str, tuple[Point, ...]]] = {
    "loading": {
        "util": ((0.1, 3.0), (0.75, 4.0), (1, 0.0)), "power_w": ((0.1, 11.2), (1, _LOADED_W)), "sm_mhz": ((0, 2405.0),),
        "temp_c": ((1, 42.0),), "cpu_percent": ((0.1, 21.0), (0.75, 19.0), (1, 4.0)), "load": ((0.75, 3.6), (1.5, 1.4)),
        "rdma_mb_s": ((0, 0.0),), "throttle": ((0, 0.0),),
    },
    "decoding": {
        "util": ((0.5, 95.0),), "power_w": ((1, 48.0), (3, _DECODE_W)), "sm_mhz": ((0, 2388.0),),
        "temp_c": ((60, 56.0),), "cpu_percent": ((1, 8.0),), "rdma_mb_s": ((0.5, 0.0),),
    },
    "decoding with another": {"rdma_mb_s": ((0.5, 404.0),)},
    "burning": {
        "util": ((0.5, 96.0),), "power_w": ((1, _BURN_W),), "sm_mhz": ((0, 2398.0),), "temp_c": ((60, 68.0),),
    },
    "spinning": {
        "util": ((0.3, 96.0),), "power_w": ((1.5, _SPIN_W),), "sm_mhz": ((0, 2405.0),), "temp_c": ((50, 45.0),),
        "rdma_mb_s": ((0, 0.0),),
    },
}  # fmt: skip
"""What GPU, CPU and link come to, and after how many seconds; of "loading" shares of its time. Spinning is the GPU of a
rank that busy-waits for another that never comes."""
_WEDGED_MOST = {"power_w": 14.2, "temp_c": 45.0}
"""While a wedged power controller pins the clock."""


def with_work(script: NodeScript, t: float, *works: str, length_s: float = 1.0) -> NodeScript:
    """The node at work from second `t` on."""
    is_wedged = script.reaction("gpu").needs.by_hand
    figures: dict[str, list[Point]] = {}
    for name, points in (row for work in works for row in _WORK[work].items()):
        if not (is_wedged and name == "sm_mhz"):
            most = _WEDGED_MOST.get(name, float("inf")) if is_wedged else float("inf")
            first = [] if points[0][0] == 0 else [(t, script.tracks[name].at(t))]
            figures[name] = [*first, *((t + after * length_s, min(value, most)) for after, value in points)]
    return with_tracks(script, t, figures)


def _clock(script: NodeScript, mhz: float, t: float) -> float:
    """The SM clock; unchanged where a wedged power controller pins it."""
    return script.tracks["sm_mhz"].at(t) if script.reaction("gpu").needs.by_hand else mhz


SHUTDOWN_S, OFF_S, SSHD_S = 2.0, 8.0, 14.0
"""Until sshd ends, until the kernel boots anew, and from there until sshd answers: 40 s on a desk, less here."""
BACK_S = SHUTDOWN_S + OFF_S + SSHD_S + 6.0
"""Until containers are started by their restart policy."""
_BOOT_LINES_S = 60.0
_AVAILABLE_GIB = 113.2


def rebooted(moment: Moment) -> NodeScript:
    """The node with its next boot, whose second 0 is the kernel's start."""
    script, t = moment.script, moment.t
    begins_s = t + SHUTDOWN_S + OFF_S
    faults = (
        *(fault for fault in script.faults if fault.end_s <= t),
        Fault(start_s=t + SHUTDOWN_S, end_s=t + SHUTDOWN_S + 2, kind=FaultKind.REFUSED, once=True),
        Fault(start_s=t + SHUTDOWN_S + 2, end_s=begins_s + 1, kind=FaultKind.NO_ROUTE, once=True),
    )
    next_boot = replace(
        script,
        seed=script.seed + 1,
        boot_age_s=0.0,
        machine=replace(script.machine, driver=script.machine.driver_installed or script.machine.driver),
        tracks=_boot_tracks(script, t),
        processes=tuple(process for process in map(_rebooted_process, script.processes) if process is not None),
        containers=tuple(_rebooted_container(container, t) for container in script.containers),
        engines=tuple(replace(engine, serves=(), tracks=_quiet_tracks(engine.tracks)) for engine in script.engines),
        kernel=tuple(_boot_lines(script)),
        faults=(
            Fault(start_s=0.0, end_s=3.0, kind=FaultKind.NO_ROUTE, once=True),
            Fault(start_s=3.0, end_s=SSHD_S, kind=FaultKind.REFUSED, once=True),
        ),
        interfaces=tuple(
            replace(interface, mtu=Track.constant(interface.mtu.at(t)), up=Track.constant(interface.up.at(t)))
            for interface in script.interfaces
        ),
        units=tuple(replace(unit, restarts=Track.constant(0)) for unit in script.units),
        boots=script.boots + 1,
        began_s=script.began_s + begins_s,
        next_boot=None,
    )
    return replace(script, faults=faults, next_boot=next_boot)


def _boot_tracks(script: NodeScript, t: float) -> dict[str, Track]:
    own = sum(process.gpu_gib.first for process in script.processes if process.gpu_gib and not process.container)
    tracks = {name: Track.constant(value) for name, value in NODE_TRACKS.items()}
    tracks |= {
        "available_gib": Track.of([(0, 115.0), (12, 114.6), (25, _AVAILABLE_GIB - own)]),
        "cache_gib": Track.of([(0, 1.2), (20, 2.2)]),
        "cpu_percent": Track.of([(0, 30), (20, 12), (30, 2)]),
        "load": Track.of([(0, 1.0), (20, 3.1), (120, 0.6)]),
        "sm_mhz": Track.constant(_clock(script, 208.0, t)),
    }
    return tracks


def _quiet_tracks(tracks: Mapping[str, Track]) -> dict[str, Track]:
    return {name: Track.constant(_QUIET.get(name, track.at(0.0))) for name, track in tracks.items()}


def _rebooted_process(process: ProcessScript) -> ProcessScript | None:
    """What comes up with the machine; what was started by hand doesn't. Pids are another boot's."""
    rebooted_process = replace(
        process,
        gpu_gib=Track.constant(process.gpu_gib.first) if process.gpu_gib else None,
        resident_gib=Track.constant(process.resident_gib.first),
        swapped_gib=Track.constant(0.0),
    )
    if process.container:
        return rebooted_process
    if any(part in process.cgroup for part in ("<id of ", "/app-")) or (
        process.end_s is not None and process.gpu_kind == "G"
    ):
        return None
    return replace(
        rebooted_process, pid=max(900, process.pid - 211),
        parent_pid=1 if process.parent_pid == 1 else max(800, process.parent_pid - 211), state="S", start_s=6.0,
        end_s=None,
    )  # fmt: skip


def _rebooted_container(container: ContainerScript, t: float) -> ContainerScript:
    """It has ended with the old boot, in the run that it was in."""
    last = max(container.runs, key=lambda run: run.start_s, default=None)
    code = 0 if last is None else 143 if last.end_s is None or last.end_s > t else last.exit_code
    begins_s = t + SHUTDOWN_S + OFF_S
    runs = () if last is None else (Run(start_s=last.start_s - begins_s, end_s=-OFF_S, exit_code=code, log_share=-1.0),)
    created_s = -3600.0 if last is None else container.created_s
    return replace(container, runs=runs, log=(), created_s=created_s, key=container.key or container.name)


def _boot_lines(script: NodeScript) -> list[KernelEntry]:
    first = -script.boot_age_s
    return [
        replace(one, at_s=one.at_s - first) for one in script.kernel if first <= one.at_s <= first + _BOOT_LINES_S
    ]  # fmt: skip
