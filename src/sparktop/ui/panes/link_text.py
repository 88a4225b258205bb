"""The state of a link in glyphs and words, the same in the header, the panes and the help."""

from __future__ import annotations

from sparktop.model.fleet import Link, LinkState, NodeView, Reach
from sparktop.ui.format import age, clock_time, countdown
from sparktop.ui.widgets.ink import Line, wrapped

SIGNS: dict[LinkState, tuple[str, str]] = {
    LinkState.CONNECTING: ("◍", "info"),
    LinkState.LIVE: ("●", "ok"),
    LinkState.STALE: ("◌", "warning"),
    LinkState.LOST: ("✖", "critical"),
    LinkState.REFUSED: ("⊘", "critical"),
}
"""State -> (glyph, tone)."""


def badge(view: NodeView, now_s: float) -> Line:
    """ "● live 0.4 s", "✖ lost 0:42": the word, and how old the figures are or how long it has lasted."""
    state = view.link.state
    glyph, tone = SIGNS[state]
    if state in (LinkState.LIVE, LinkState.STALE):
        tail = age(view.age_s(now_s)) if view.sample_at_s is not None else ""
    else:
        tail = countdown(now_s - view.link.since_s)
    return Line.of((f"{glyph} {state}", tone), (f" {tail}" if tail else "", "quiet" if tone == "ok" else tone))


def trouble(view: NodeView, now_s: float, width: int) -> list[Line]:
    """What there is to say of a link that isn't live: state, cause, what was tested, what comes next."""
    link = view.link
    if link.state is LinkState.LIVE:
        return []
    glyph, tone = SIGNS[link.state]
    old = view.age_s(now_s)
    parts = [f"{glyph} {link.state}"]
    if link.reach is not Reach.UNTESTED and link.state is LinkState.LOST:
        parts.append(str(link.reach))
    if old is not None:
        parts.append(f"figures as of {age(old)} ago")
    parts += [text for text in (_next(link, now_s),) if text]
    lines = wrapped(" · ".join(parts), width, tone, 2)
    room = 6 if link.state is LinkState.REFUSED else 2  # a refusal is settled by reading it: a file, a line, a command
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
    """The last changes of the link with their times, newest last."""
    lines: list[Line] = []
    for change in view.link_history[-limit:] if limit else ():
        glyph, tone = SIGNS[change.state]
        head = Line.of((f"{clock_time(change.wall_s)} ", "quiet"), (f"{glyph} {change.state} ", tone))
        lines.append((head + Line.of((change.text, "quiet"))).cut(width))
    return lines
