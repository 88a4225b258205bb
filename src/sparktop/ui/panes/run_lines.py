"""A run as lines of a width, how far it is in one line, and how it ended: pure, from the run and the time."""

from __future__ import annotations

from sparktop.model.plan import Remote, Run, RunState, StepRun, StepState
from sparktop.operate.beforeafter import ending, told
from sparktop.ui.format import countdown
from sparktop.ui.widgets.bar import progress
from sparktop.ui.widgets.ink import BLANK, Line, spread, wrapped

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
    RunState.REFUSED: ("✖", "critical"),
}
BAR_CELLS = 24
ENDED_DETAIL_LINES = 2
"""Of a step that went well; all of it is in what is copied."""


def current(run: Run) -> StepRun | None:
    """The step under way."""
    return next((one for one in run.steps if one.state in (StepState.RUNNING, StepState.UNKNOWN)), None)


def elapsed_s(run: Run, now_wall_s: float) -> float | None:
    """Since its first step began, until its last one ended or now."""
    began = [one.began_wall_s for one in run.steps if one.began_wall_s is not None]
    if not began:
        return None
    ended = [one.ended_wall_s for one in run.steps if one.ended_wall_s is not None]
    return max(0.0, (max(ended) if run.state.is_over and ended else now_wall_s) - min(began))


def state_line(run: Run, now_wall_s: float) -> Line:
    """ "▸ running  step 3 of 9  1:24"."""
    sign, tone = RUN_SIGNS[run.state]
    line = Line.of((f"{sign} {run.state}", tone))
    if run.state.is_over:
        done = sum(one.state is StepState.DONE for one in run.steps)
        line += Line.of((f"   {done} of {len(run.steps)} steps done", "quiet"))
    elif (now := current(run)) is not None:
        line += Line.of((f"   step {run.steps.index(now) + 1} of {len(run.steps)}", "quiet"))
    spent = elapsed_s(run, now_wall_s)
    return line if spent is None else line + Line.of((f"   {countdown(spent)}", "quiet"))


def summary(run: Run) -> Line:
    """One line for the console's top: "▸ Safe restart of vllm on spark1: available 96.4 of 108 GiB"."""
    sign, tone = RUN_SIGNS[run.state]
    line = Line.of((f"{sign} ", tone), (run.plan.title, "strong"))
    if run.state.is_over:
        return line + Line.of((f"  {run.state}", tone), (f"  {ending(run)}" if run.message else "", ""))
    if run.state is not RunState.RUNNING:
        line += Line.of((f"  {run.state}", tone))
    if (now := current(run)) is not None:
        # A wait's own words say how far it is; of a step on a node its title says more than "1 of 2 done".
        said = now.step.title if isinstance(now.step.act, Remote) or not now.detail else now.detail
        line += Line.of((f"  {run.steps.index(now) + 1}/{len(run.steps)} ", "quiet"), (said, ""))
    return line


def run_lines(run: Run, width: int, now_wall_s: float, *, is_whole: bool = False) -> tuple[list[Line], int | None]:
    """All lines, and which of them is of the step under way; `is_whole`: nothing is cut."""
    lines = [state_line(run, now_wall_s).cut(width)]
    if run.state.is_over:
        lines += _outcome(run, width)
    lines.append(BLANK)
    watched: int | None = None
    several = len({one.step.node for one in run.steps}) > 1
    own = len(run.plan.steps)
    for index, one in enumerate(run.steps):
        if index == own:
            lines += [BLANK, Line.of(("The way back", "title"))]
        lines += _step(one, width, now_wall_s, names_node=several, is_whole=is_whole)
        if one.state in (StepState.RUNNING, StepState.UNKNOWN) and not run.state.is_over:
            watched = len(lines) - 1
    lines += _figures(run, width)
    return lines, watched


def run_text(run: Run) -> str:
    """For the clipboard: how it stands, a hundred cells wide."""
    now_wall_s = max((one.ended_wall_s or one.began_wall_s or 0.0 for one in run.steps), default=0.0)
    lines, _ = run_lines(run, 100, now_wall_s, is_whole=True)
    return "\n".join([run.plan.title, f"run {run.id}", *(line.plain.rstrip() for line in lines)])


def _outcome(run: Run, width: int) -> list[Line]:
    lines = [BLANK]
    if run.message:
        lines += wrapped(ending(run), width, "strong")
    if run.hint:
        lines += wrapped(run.hint, width)
    if run.can_go_back:
        lines.append(Line.of(("b", "key"), (" shows the way back", "")))
    if run.evidence_path:
        path = f"evidence: {run.evidence_path}"
        lines += [Line.of((path[at : at + width], "quiet")) for at in range(0, len(path), max(10, width))]
    return lines if lines[1:] else []


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
    lines = [spread(width, title, right)]
    if one.detail:
        tone = "warning" if one.state is StepState.FAILED else "" if is_now else "quiet"
        limit = 0 if is_whole or is_now or one.state is StepState.FAILED else ENDED_DETAIL_LINES
        lines += [Line.of("    ") + line for line in wrapped(one.detail, width - 4, tone, limit)]
    elif one.state is StepState.UNKNOWN:
        lines.append(Line.of(("    the link broke here; the node is asked when it is back", "warning")).cut(width))
    if is_now and one.ratio is not None:
        share = min(1.0, max(0.0, one.ratio))
        bar = progress(round(share * 1000), 1000, min(BAR_CELLS, max(4, width - 12)))
        lines.append(Line.of("    ", (bar, "graph"), (f"  {share * 100:.0f} %", "quiet")))
    return lines


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
    return [BLANK, Line.of(("Before and after" if run.after else "Before", "title")), *rows]
