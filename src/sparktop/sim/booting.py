"""A machine booted anew: its line goes, and it comes back with its memory, and without what was wrong."""

from __future__ import annotations

from dataclasses import replace

from sparktop.sim.aftermath import Moment
from sparktop.sim.script import (
    NODE_TRACKS,
    ContainerScript,
    Fault,
    FaultKind,
    KernelEntry,
    NodeScript,
    ProcessScript,
    Run,
)
from sparktop.sim.tracks import Track

SHUTDOWN_S, OFF_S, SSHD_S = 2.0, 8.0, 14.0
"""Until sshd ends, until the kernel boots anew, and from there until sshd answers: 40 s on a desk, less here."""
BACK_S = SHUTDOWN_S + OFF_S + SSHD_S + 6.0
"""Until containers are started by their restart policy."""
_BOOT_LINES_S = 60.0
_AVAILABLE_GIB = 113.2


def rebooted(now: Moment) -> NodeScript:
    """The node, with the boot that follows: its own second 0 is when the kernel starts."""
    script, t = now.script, now.t
    begins_s = t + SHUTDOWN_S + OFF_S
    faults = (
        *(one for one in script.faults if one.end_s <= t),
        Fault(start_s=t + SHUTDOWN_S, end_s=t + SHUTDOWN_S + 2, kind=FaultKind.REFUSED, once=True),
        Fault(start_s=t + SHUTDOWN_S + 2, end_s=begins_s + 1, kind=FaultKind.NO_ROUTE, once=True),
    )
    next_boot = NodeScript(
        name=script.name,
        seed=script.seed + 1,
        boot_age_s=0.0,
        machine=replace(script.machine, driver=script.machine.driver_installed or script.machine.driver),
        tracks=_tracks(script, t),
        processes=tuple(one for one in map(_process, script.processes) if one is not None),
        containers=tuple(_container(one, t) for one in script.containers),
        engines=tuple(replace(one, serves=(), tracks=_still(one.tracks)) for one in script.engines),
        kernel=tuple(_boot_lines(script)),
        faults=(
            Fault(start_s=0.0, end_s=3.0, kind=FaultKind.NO_ROUTE, once=True),
            Fault(start_s=3.0, end_s=SSHD_S, kind=FaultKind.REFUSED, once=True),
        ),
        interfaces=tuple(
            replace(one, mtu=Track.constant(one.mtu.at(t)), up=Track.constant(one.up.at(t)))
            for one in script.interfaces
        ),
        rdma=script.rdma,
        units=tuple(replace(one, restarts=Track.constant(0)) for one in script.units),
        reactions=script.reactions,
        boots=script.boots + 1,
        began_s=script.began_s + begins_s,
    )
    return replace(script, faults=faults, next_boot=next_boot)


def _tracks(script: NodeScript, t: float) -> dict[str, Track]:
    own = sum(one.gpu_gib.stretches[0].at(0.0) for one in script.processes if one.gpu_gib and not one.container)
    still = {name: Track.constant(value) for name, value in NODE_TRACKS.items()}
    still |= {
        "available_gib": Track.of([(0, 115.0), (12, 114.6), (25, _AVAILABLE_GIB - own)]),
        "cache_gib": Track.of([(0, 1.2), (20, 2.2)]),
        "cpu_percent": Track.of([(0, 30), (20, 12), (30, 2)]),
        "load": Track.of([(0, 1.0), (20, 3.1), (120, 0.6)]),
        "temp_c": Track.constant(38.0),
        "sm_mhz": Track.constant(208.0),
    }
    if script.reaction("gpu").needs.by_hand:
        still["sm_mhz"] = Track.constant(script.tracks["sm_mhz"].at(t))
    return still


def _still(tracks: object) -> dict[str, Track]:
    assert isinstance(tracks, dict)
    keep = ("prefix_hit", "ttft_s", "itl_s")
    return {name: Track.constant(track.at(0.0) if name in keep else 0.0) for name, track in tracks.items()}


def _process(one: ProcessScript) -> ProcessScript | None:
    """What comes up with the machine; what was started by hand doesn't. Pids are another boot's."""
    if one.container:
        return replace(
            one,
            gpu_gib=Track.constant(one.gpu_gib.stretches[0].at(0.0)) if one.gpu_gib else None,
            resident_gib=Track.constant(one.resident_gib.stretches[0].at(0.0)),
            swapped_gib=Track.constant(0.0),
        )
    if "<id of " in one.cgroup or "/app-" in one.cgroup or (one.end_s is not None and one.gpu_kind == "G"):
        return None
    return replace(
        one,
        pid=max(900, one.pid - 211),
        parent_pid=1 if one.parent_pid == 1 else max(800, one.parent_pid - 211),
        state="S",
        start_s=6.0,
        end_s=None,
        gpu_gib=Track.constant(one.gpu_gib.stretches[0].at(0.0)) if one.gpu_gib else None,
        resident_gib=Track.constant(one.resident_gib.stretches[0].at(0.0)),
        swapped_gib=Track.constant(0.0),
    )


def _container(one: ContainerScript, t: float) -> ContainerScript:
    """It has ended with the old boot, and stays so: what its policy would start is not played."""
    last = max(one.runs, key=lambda run: run.start_s, default=None)
    code = 0 if last is None else 143 if last.end_s is None or last.end_s > t else last.exit_code
    runs = () if last is None else (Run(start_s=-3600.0, end_s=-OFF_S, exit_code=code),)
    created_s = -3600.0 if last is None else one.created_s
    return replace(one, runs=runs, log=(), created_s=created_s, key=one.key or one.name)


def _boot_lines(script: NodeScript) -> list[KernelEntry]:
    first = -script.boot_age_s
    return [
        replace(one, at_s=one.at_s - first) for one in script.kernel if first <= one.at_s <= first + _BOOT_LINES_S
    ]  # fmt: skip
