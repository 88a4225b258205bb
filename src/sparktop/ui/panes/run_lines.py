"""A run as lines of a width, how far it is in one line, and how it ended: pure, from the run and the time."""

from __future__ import annotations

import re

from rich.cells import cell_len

from sparktop.model.plan import AwaitReady, CollectEvidence, Measure, Remote, Run, RunState, StepRun, StepState
from sparktop.operate.asked import short_detail, waiting
from sparktop.operate.beforeafter import brief, ending, told
from sparktop.ui.format import countdown
from sparktop.ui.widgets.bar import progress
from sparktop.ui.widgets.ink import BLANK, Line, broken, spread, wrapped

STEP_SIGNS: dict[StepState, tuple[str, str]] = {
    StepState.WAITING: ("·", "quiet"),
    StepState.RUNNING: ("▸", "info"),
    StepState.DONE: ("✓", "ok"),
    StepState.FAILED: ("✖", "critical"),
    StepState.SKIPPED: ("–", "quiet"),
    StepState.UNKNOWN: ("?", "warning"),
}
"""State -> (sign, tone)."""
RUN_SIGNS: dict[RunState, tuple[str, str]] = {
    RunState.RUNNING: ("▸", "info"),
    RunState.LINK_LOST: ("?", "warning"),
    RunState.ABORTING: ("▸", "warning"),
    RunState.ROLLING_BACK: ("◂", "warning"),
    RunState.DONE: ("✓", "ok"),
    RunState.NO_HELP: ("▲", "warning"),
    RunState.FAILED: ("✖", "critical"),
    RunState.ROLLED_BACK: ("▲", "warning"),
    RunState.ABORTED: ("–", "warning"),
    RunState.CUT_OFF: ("▲", "warning"),
    RunState.REFUSED: ("✖", "critical"),
}
BAR_CELLS = 24
_WAY_BACK = "The way back can be taken"
"""So a hint begins to tell what `b` shows better."""
KEY_FIGURES = ("available_gib",)
"""Of those before and after, what is told of them in a few words."""
_DONE_IN = re.compile(r"^Done in [\d:]+\. ?")
ENDED_DETAIL_LINES = 2
"""Of a step that went well; all of it is in what is copied."""


def current(run: Run) -> StepRun | None:
    """The step under way."""
    return next((one for one in run.steps if one.state in (StepState.RUNNING, StepState.UNKNOWN)), None)


def watched_engine(run: Run) -> tuple[str, str] | None:
    """(node, engine) whose log tells how it goes: of the step under way, else the one that is waited for and asked."""
    waits = [one for one in run.steps if isinstance(one.step.act, AwaitReady)]
    chosen = [one for one in waits if one.state in (StepState.RUNNING, StepState.FAILED)]
    chosen += [one for one in waits if isinstance(one.step.act, AwaitReady) and not one.step.act.is_worker] + waits
    first = chosen[0].step if chosen else None
    return None if first is None or not isinstance(first.act, AwaitReady) else (first.node, first.act.name)


def elapsed_s(run: Run, now_wall_s: float) -> float | None:
    """Since its first step began, until its last one ended or now."""
    began = [one.began_wall_s for one in run.steps if one.began_wall_s is not None]
    if not began:
        return None
    ended = [one.ended_wall_s for one in run.steps if one.ended_wall_s is not None]
    return max(0.0, (max(ended) if run.state.is_over and ended else now_wall_s) - min(began))


def state_line(run: Run, now_wall_s: float) -> Line:
    """ "▸ running   step 3 of 9   1:24", "✓ done in 4:22   21 of 21 steps"."""
    sign, tone = RUN_SIGNS[run.state]
    line = Line.of((f"{sign} {run.state}", tone))
    spent = elapsed_s(run, now_wall_s)
    if run.state.is_over:
        if spent is not None:
            line += Line.of((f" {'in' if run.state is RunState.DONE else 'after'} {countdown(spent)}", tone))
        if len(run.steps) == 1:
            return line
        done = sum(one.state is StepState.DONE for one in run.steps)
        return line + Line.of((f"   {done} of {len(run.steps)} steps done", "quiet"))
    if (now := current(run)) is not None:
        line += Line.of((f"   step {run.steps.index(now) + 1} of {len(run.steps)}", "quiet"))
    return line if spent is None else line + Line.of((f"   {countdown(spent)}", "quiet"))


def summary(run: Run) -> Line:
    """One line for the console's top: "▸ Safe restart of vllm on spark1: available 96.4 of 108 GiB"."""
    sign, tone = RUN_SIGNS[run.state]
    if run.state is RunState.CUT_OFF:  # what is left of it is wanted first: on a narrow screen the rest is cut
        left, _, _ = run.message.partition(". ")
        return Line.of((f"{sign} {run.state}  ", tone), (left, "strong"), (f"  {run.plan.title}", "quiet"))
    line = Line.of((f"{sign} ", tone), (run.plan.title, "strong"))
    if run.state.is_over:
        return line + Line.of((f"  {run.state}", tone), (f"  {brief(run)}" if run.message else "", ""))
    if run.state is not RunState.RUNNING:
        line += Line.of((f"  {run.state}", tone))
    if (now := current(run)) is not None:
        # A wait's own words say how far it is; of a step on a node its title says more than "1 of 2 done".
        said = now.step.title if isinstance(now.step.act, Remote) or not now.detail else now.detail
        line += Line.of((f"  {run.steps.index(now) + 1}/{len(run.steps)} ", "quiet"), (said, ""))
    return line


def end_text(run: Run) -> str:
    """How it ended, for who looks elsewhere: "✓ Safe restart of vllm on spark1: done in 4:22"."""
    sign, _ = RUN_SIGNS[run.state]
    said = _DONE_IN.sub("", brief(run)) if run.state is RunState.DONE else brief(run)
    spent = elapsed_s(run, 0.0)
    when = "" if spent is None else f" {'in' if run.state is RunState.DONE else 'after'} {countdown(spent)}"
    figures = [
        f"{node}: {told(before, run.after.get(node, {}), only=KEY_FIGURES)}" for node, before in run.before.items()
    ]
    serves = run.plan.outcome if run.state is RunState.DONE else ""
    lines = [f"{sign} {run.plan.title}: {run.state}{when}", serves, said, *(figures if run.after else [])]
    return "\n".join(line for line in lines if line)


def head_lines(run: Run, width: int, now_wall_s: float, *, limit: int = 0) -> list[Line]:
    """How it stands, or how it ended and what to do next: what is in sight at all times.

    `limit`: so many lines at most, where a limit is given; what was said is then cut, and what to press is not.
    """
    lines = [state_line(run, now_wall_s).cut(width)]
    if not run.state.is_over:
        return lines
    last = [*_outcome(run, width), *_measured(run, width), *_last_lines(run, width)]
    room = max(2, limit - 1 - len(last)) if limit else 0
    next_words = run.hint.partition(_WAY_BACK)[0].rstrip(" ·") if limit and run.can_go_back else run.hint
    said = brief(run) if limit else ending(run)
    if run.state is RunState.DONE and limit:
        said = _DONE_IN.sub("", said)  # the line above says that
    message = wrapped(said, width, "strong", room and max(1, room - bool(next_words))) if said else []
    room = max(1, room - len(message)) if limit else 0
    hint = wrapped(next_words, width, "", room) if next_words else []
    return [*lines, *message, *hint, *last]


def _outcome(run: Run, width: int) -> list[Line]:
    """What is there now: where it serves, and by what name."""
    if run.state is not RunState.DONE or not run.plan.outcome:
        return []
    word, _, rest = run.plan.outcome.partition(" ")
    head = f"{word:<8}  "  # below "measured"
    first, *more = broken(rest, max(10, width - len(head)))
    return [
        Line.of((head, "quiet"), (first, "strong")),
        *(Line.of(" " * len(head), (line, "strong")) for line in more),
    ]


def _measured(run: Run, width: int) -> list[Line]:
    """The figures of the measurement beside what was expected: what a launch was for."""
    measured = next((one for one in run.steps if isinstance(one.step.act, Measure) and one.detail), None)
    if measured is None or measured.state is not StepState.DONE:
        return []
    first, *rest = wrapped(measured.detail, width - 10, "value", 3)
    return [Line.of(("measured  ", "quiet")) + first, *(Line.of(" " * 10) + line for line in rest)]


def _last_lines(run: Run, width: int) -> list[Line]:
    lines = []
    if run.can_go_back:
        lines.append(Line.of(("b", "key"), (" shows the way back", "")))
    if run.evidence_path:
        path = f"evidence: {run.evidence_path}"
        lines += [Line.of((path[at : at + width], "quiet")) for at in range(0, len(path), max(10, width))]
    return lines


def body_lines(run: Run, width: int, now_wall_s: float, *, is_whole: bool = False) -> tuple[list[Line], int | None]:
    """Figures and steps, and which line is of the step under way, or of the one that failed; `is_whole`: uncut.

    What came of it stands before the steps once it is over, and after them until then.
    """
    figures = _figures(run, width)
    lines = [*figures, BLANK] if figures and run.state.is_over else []
    watched: int | None = None
    several = len({one.step.node for one in run.steps}) > 1
    own = len(run.plan.steps)
    for index, one in enumerate(run.steps):
        if index == own:
            lines += [BLANK, Line.of(("The way back", "title"))]
        lines += _step(one, width, now_wall_s, names_node=several, is_whole=is_whole)
        if one.state in (StepState.RUNNING, StepState.UNKNOWN) and not run.state.is_over:
            watched = len(lines) - 1
    if figures and not run.state.is_over:
        lines += [BLANK, *figures]
    return lines, watched


def run_text(run: Run) -> str:
    """For the clipboard: how it stands, a hundred cells wide, nothing cut."""
    now_wall_s = max((one.ended_wall_s or one.began_wall_s or 0.0 for one in run.steps), default=0.0)
    lines, _ = body_lines(run, 100, now_wall_s, is_whole=True)
    lines = [*head_lines(run, 100, now_wall_s), BLANK, *lines]
    if run.state is RunState.DONE and run.plan.outcome_command:  # whole, to be pasted
        lines += [BLANK, Line.of((run.plan.outcome_command, ""))]
    return "\n".join([run.plan.title, f"run {run.id}", *(line.plain.rstrip() for line in lines)])


def _step(one: StepRun, width: int, now_wall_s: float, *, names_node: bool, is_whole: bool) -> list[Line]:
    sign, tone = STEP_SIGNS[one.state]
    is_now = one.state in (StepState.RUNNING, StepState.UNKNOWN)
    waits = one.state in (StepState.WAITING, StepState.SKIPPED)
    right = Line.of((one.step.node, "quiet")) if names_node else BLANK
    if one.began_wall_s is not None:
        spent = max(0.0, (now_wall_s if one.ended_wall_s is None else one.ended_wall_s) - one.began_wall_s)
        right += Line.of((f"{countdown(spent):>7}", "" if is_now else "quiet"))
    elif names_node:
        right += Line.of(" " * 7)
    title = Line.of((f"{sign} ", tone), (one.step.title, "strong" if is_now else "quiet" if waits else ""))
    detail = one.detail if is_whole else short_detail(one)
    if one.state is StepState.DONE and detail and title.width + 2 + cell_len(detail) + 2 + right.width <= width:
        return [spread(width, title + Line.of((f"  {detail}", "quiet")), right)]
    lines = [spread(width, title, right)]
    if (asked := waiting(one, now_wall_s)) is not None:
        return [*lines, *_asked(*asked, width)]
    if detail:
        tone = "warning" if one.state is StepState.FAILED else "" if is_now else "quiet"
        limit = 0 if is_whole or is_now or one.state is StepState.FAILED else ENDED_DETAIL_LINES
        lines += [Line.of("    ") + line for line in wrapped(detail, width - 4, tone, limit)]
    elif one.state is StepState.UNKNOWN:
        lines.append(Line.of(("    the link broke here; the node is asked when it is back", "warning")).cut(width))
    if is_now and one.ratio is not None:
        share = f"{min(1.0, max(0.0, one.ratio)) * 100:.0f} %"
        is_wait = not isinstance(one.step.act, Remote | CollectEvidence)
        lines.append(_bar(one.ratio, f"{share}, at most {countdown(one.step.limit_s)}" if is_wait else share, width))
    return lines


def _asked(since_s: float, grace_s: float, width: int) -> list[Line]:
    """A stop under way: the bar is of its grace."""
    told = (
        f"asked to end, killed after {countdown(grace_s)}" if since_s <= grace_s else "its time is over: it is killed"
    )
    share = min(1.0, since_s / grace_s)
    return [
        Line.of("    ", (told, "")).cut(width),
        _bar(share, f"{countdown(min(since_s, grace_s))} of {countdown(grace_s)}", width),
    ]


def _bar(share: float, beside: str, width: int) -> Line:
    bar = progress(round(min(1.0, max(0.0, share)) * 1000), 1000, min(BAR_CELLS, max(4, width - 20)))
    return Line.of("    ", (bar, "graph"), (f"  {beside}", "quiet")).cut(width)


def _figures(run: Run, width: int) -> list[Line]:
    """Before and after, a line a node."""
    rows: list[Line] = []
    for node, before in run.before.items():
        if parts := told(before, run.after.get(node, {})):
            first, *rest = wrapped(parts, max(10, width - len(node) - 2))
            rows.append(Line.of((f"{node}  ", "strong")) + first)
            rows += [Line.of(" " * (len(node) + 2)) + line for line in rest]
    if not rows:
        return []
    return [Line.of(("Before and after" if run.after else "Before", "title")), *rows]
