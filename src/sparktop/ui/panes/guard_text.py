"""The guard in words: short for the first line of the console, whole for its node's pane."""

from __future__ import annotations

from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.ui.format import clock_time, duration, gib
from sparktop.ui.widgets.ink import Line

TONES = {
    GuardPhase.ARMED: "ok",
    GuardPhase.FIRED: "critical",
    GuardPhase.FAILED: "warning",
    GuardPhase.DISARMED: "quiet",
}
NAME_CELLS = 24


def guard_brief(fleet: FleetState) -> Line:
    """ "guard off", "guard vllm-qwen36 < 4.0 GiB", "guard spark1 armed, spark2 fired"."""
    known = [(v.name, v.guard) for v in fleet.nodes if v.guard is not None and v.guard.phase is not GuardPhase.DISARMED]
    if not known:
        return Line.of(("guard off", "quiet"))
    if len(known) == 1:
        name, guard = known[0]
        return Line.of(("guard ", "quiet"), (_brief(name, guard), TONES[guard.phase]))
    line = Line.of(("guard ", "quiet"))
    for index, (name, guard) in enumerate(known):
        line += Line.of((", " if index else "", "quiet"), (f"{name} {guard.phase}", TONES[guard.phase]))
    return line


def guard_word(fleet: FleetState) -> Line:
    """ "guard armed", "guard fired": the worst of all nodes, where there is room for no more."""
    phases = [view.guard.phase for view in fleet.nodes if view.guard is not None]
    worst = next(
        (one for one in (GuardPhase.FIRED, GuardPhase.FAILED, GuardPhase.ARMED) if one in phases), GuardPhase.DISARMED
    )
    return Line.of(("guard ", "quiet"), (str(worst), TONES[worst]))


def is_worth_its_room(fleet: FleetState) -> bool:
    """Whether it is more than that there is none."""
    return any(v.guard is not None and v.guard.phase is not GuardPhase.DISARMED for v in fleet.nodes)


def _brief(node: str, guard: GuardState) -> str:
    if guard.phase is GuardPhase.ARMED:
        name = guard.container_name
        name = name if len(name) <= NAME_CELLS else f"{name[: NAME_CELLS - 1]}…"
        return f"{name} < {gib(guard.floor_bytes)} GiB"
    return f"{guard.phase} on {node}"


def guard_line(view: NodeView, width: int) -> list[Line]:
    """The node's guard, in one line; none where none was ever ordered."""
    guard = view.guard
    if guard is None:
        return []
    at = f" {clock_time(guard.since_wall_s)}" if guard.since_wall_s is not None else ""
    tone = TONES[guard.phase]
    if guard.phase is GuardPhase.ARMED:
        rate = f", or {guard.empty_within_s:g} s from empty" if guard.empty_within_s else ""
        said = f"armed: ends {guard.container_name} < {gib(guard.floor_bytes)} GiB{rate}"
        tail = ""
        if guard.until_wall_s is not None:
            tail = f"  until {clock_time(guard.until_wall_s)}"
        elif guard.stay_s:
            tail = f"  stays {duration(guard.stay_s)}"
        tail += f"  {guard.detail}" if guard.detail else ""
    elif guard.phase is GuardPhase.FIRED:
        left = f" at {gib(guard.available_bytes)} GiB" if guard.available_bytes is not None else ""
        said = (
            f"ended {guard.container_name}{left}" if guard.answered_s is not None else f"ending {guard.container_name}"
        )
        tail = f"{at}  {guard.detail}"
    else:
        said, tail = str(guard.phase), f"{at}  {guard.detail}"
    return [Line.of(("guard ", "quiet"), (said, tone), (tail, "quiet")).cut(width)]
