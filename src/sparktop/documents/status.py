"""A node's link and its guard as lines of the header and the node pane. Pure."""

from __future__ import annotations

from sparktop.model.fleet import FleetState, Link, LinkState, NodeView, Reach
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.text.lines import Line, wrapped
from sparktop.text.units import age, bare_gib, clock_time, countdown, duration

SIGNS: dict[LinkState, tuple[str, str]] = {
    LinkState.CONNECTING: ("◍", "info"),
    LinkState.LIVE: ("●", "ok"),
    LinkState.STALE: ("◌", "warning"),
    LinkState.LOST: ("✖", "critical"),
    LinkState.REFUSED: ("⊘", "critical"),
    LinkState.UNRECORDED: ("○", "warning"),
}
"""State -> (glyph, tone)."""


def badge(view: NodeView, now_s: float) -> Line:
    """ "● live 0.4 s", "✖ lost 0:42": the link's state, with the age of the figures or the time in that state."""
    state = view.link.state
    glyph, tone = SIGNS[state]
    if state in (LinkState.LIVE, LinkState.STALE):
        tail = age(view.age_s(now_s)) if view.sample_at_s is not None else ""
    else:
        tail = countdown(now_s - view.link.since_s)
    return Line.of((f"{glyph} {state}", tone), (f" {tail}" if tail else "", "quiet" if tone == "ok" else tone))


def trouble(view: NodeView, now_s: float, width: int, *, has_keys: bool = True) -> list[Line]:
    """What is wrong with a link that isn't live: state, reachability, next attempt or its key, cause, hint."""
    link = view.link
    if link.state is LinkState.LIVE:
        return []
    glyph, tone = SIGNS[link.state]
    age_s = view.age_s(now_s)
    parts = [f"{glyph} {link.state}"]
    if link.reach is not Reach.UNTESTED and link.state is LinkState.LOST:
        parts.append(str(link.reach))
    if age_s is not None:
        parts.append(f"figures as of {age(age_s)} ago")
    if has_keys or link.state is not LinkState.REFUSED:
        parts += [text for text in (_next(link, now_s),) if text]
    lines = wrapped(" · ".join(parts), width, tone, 2)
    room = 6 if link.state is LinkState.REFUSED else 2  # a refusal names a file, a line or a command, so it needs room
    if link.reason:
        lines += wrapped(link.reason, width, "", room)
    if link.hint:
        lines += wrapped(f"→ {link.hint}", width, "info", room)
    return lines


def _next(link: Link, now_s: float) -> str:
    if link.state is LinkState.REFUSED:
        return "r tries again"
    if link.next_attempt_s is not None:
        wait_s = link.next_attempt_s - now_s
        return f"next try in {countdown(wait_s)}" if wait_s > 0 else "trying now"
    if link.attempt > 1 and link.state is not LinkState.STALE:
        return f"attempt {link.attempt}"
    return ""


def story(view: NodeView, width: int, limit: int) -> list[Line]:
    """The last changes of the link with their times, the newest last."""
    lines: list[Line] = []
    for change in view.link_history[-limit:] if limit else ():
        glyph, tone = SIGNS[change.state]
        head = Line.of((f"{clock_time(change.wall_s)} ", "quiet"), (f"{glyph} {change.state} ", tone))
        text = "" if change.text == change.state else change.text
        lines.append((head + Line.of((text, "quiet"))).cut(width))
    return lines


TONES = {
    GuardPhase.ARMED: "ok",
    GuardPhase.FIRED: "critical",
    GuardPhase.FAILED: "warning",
    GuardPhase.DISARMED: "quiet",
}


NAME_CELLS = 24
DISARMED_SHOWN_S = 120.0
"""How long a node's pane tells that its guard was disarmed."""


def guard_brief(fleet: FleetState) -> Line:
    """ "guard off", "guard vllm-qwen36 < 4.0 GiB", "guard spark1 armed, spark2 fired"."""
    guards = _guards(fleet)
    if not guards:
        return Line.of(("guard off", "quiet"))
    if len(guards) == 1:
        name, guard = guards[0]
        return Line.of(("guard ", "quiet"), (_brief(name, guard), TONES[guard.phase]))
    line = Line.of(("guard ", "quiet"))
    for index, (name, guard) in enumerate(guards):
        line += Line.of((", " if index else "", "quiet"), (f"{name} {guard.phase}", TONES[guard.phase]))
    return line


def guard_word(fleet: FleetState) -> Line:
    """ "guard armed", "guard fired": the worst state of all nodes, for a narrow header."""
    phases = [view.guard.phase for view in fleet.nodes if view.guard is not None]
    worst = next(
        (phase for phase in (GuardPhase.FIRED, GuardPhase.FAILED, GuardPhase.ARMED) if phase in phases),
        GuardPhase.DISARMED,
    )
    return Line.of(("guard ", "quiet"), (str(worst), TONES[worst]))


def has_guard(fleet: FleetState) -> bool:
    """Whether any node has a guard that isn't disarmed."""
    return bool(_guards(fleet))


def _guards(fleet: FleetState) -> list[tuple[str, GuardState]]:
    """(node, guard) for each guard that isn't disarmed."""
    guards = [(view.name, view.guard) for view in fleet.nodes if view.guard is not None]
    return [(name, guard) for name, guard in guards if guard.phase is not GuardPhase.DISARMED]


def _brief(node: str, guard: GuardState) -> str:
    if guard.phase is GuardPhase.ARMED:
        name = guard.container_name
        name = name if len(name) <= NAME_CELLS else f"{name[: NAME_CELLS - 1]}…"
        return f"{name} < {bare_gib(guard.floor_bytes)} GiB"
    return f"{guard.phase} on {node}"


def _is_long_disarmed(guard: GuardState, view: NodeView) -> bool:
    if guard.phase is not GuardPhase.DISARMED or guard.since_wall_s is None or view.sample is None:
        return False
    return view.sample.wall_s - guard.since_wall_s > DISARMED_SHOWN_S


def guard_line(view: NodeView, width: int) -> list[Line]:
    """The node's guard as one line; empty where none was ever armed, and some time after it was disarmed."""
    guard = view.guard
    if guard is None or _is_long_disarmed(guard, view):
        return []
    since = f" {clock_time(guard.since_wall_s)}" if guard.since_wall_s is not None else ""
    tone = TONES[guard.phase]
    if guard.phase is GuardPhase.ARMED:
        rate = f", or {guard.empty_within_s:g} s from empty" if guard.empty_within_s else ""
        text = f"armed: kills {guard.container_name} below {bare_gib(guard.floor_bytes)} GiB{rate}"
        tail = ""
        if guard.until_wall_s is not None:
            tail = f"  until {clock_time(guard.until_wall_s)}"
        elif guard.stay_s:
            tail = f"  stays {duration(guard.stay_s)}"
        tail += f"  {guard.detail}" if guard.detail else ""
    elif guard.phase is GuardPhase.FIRED:
        available = f" at {bare_gib(guard.available_bytes)} GiB" if guard.available_bytes is not None else ""
        text = (
            f"killed {guard.container_name}{available}"
            if guard.answered_s is not None
            else f"killing {guard.container_name}"
        )
        tail = f"{since}  {guard.detail}"
    else:
        text, tail = str(guard.phase), f"{since}  {guard.detail}"
    return [Line.of(("guard ", "quiet"), (text, tone), (tail, "quiet")).cut(width)]
