"""A run as lines of a width: state, steps, figures; also its progress in one line and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from sparktop.documents.plan import time_text
from sparktop.documents.step_text import masked
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import Measure
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.run.run_text import brief, figures_text, measured, short_detail, waiting
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState
from sparktop.text.bars import progress
from sparktop.text.lines import BLANK, Line, broken, hanging, indented, spaced, spread, titled, wrapped
from sparktop.text.units import countdown

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
    RunState.INTERRUPTED: ("▲", "warning"),
    RunState.REFUSED: ("✖", "critical"),
}
BAR_CELLS = 24
LEAST_END = 28
"""Cells that a run's step or result has in one line, however long the plan's title is."""
KEY_FIGURES = ("available_gib",)
"""The figures before and after that a short text includes."""
ENDED_DETAIL_LINES = 2
"""Most lines of a successful step's detail; the copied text has all of them."""


_UNDER_WAY = (StepState.RUNNING, StepState.UNKNOWN)


def current(run: Run) -> StepRun | None:
    """The step under way."""
    return next((step for step in run.steps if step.state in _UNDER_WAY), None)


def watched_engine(run: Run) -> tuple[str, str] | None:
    """(node, engine) whose log shows the progress: of the wait under way or failed, else of the head, else any wait."""
    waits = [(step, step.step.act) for step in run.steps if isinstance(step.step.act, AwaitReady)]
    chosen = [wait for wait in waits if wait[0].state in (StepState.RUNNING, StepState.FAILED)]
    chosen += [wait for wait in waits if not wait[1].is_worker] + waits
    return next(((step.step.node, act.name) for step, act in chosen), None)


def elapsed_s(run: Run, now_wall_s: float) -> float | None:
    """Seconds from the start of the first step to the end of the last one, or to now; None before the start."""
    starts = [step.began_wall_s for step in run.steps if step.began_wall_s is not None]
    if not starts:
        return None
    ends = [step.ended_wall_s for step in run.steps if step.ended_wall_s is not None]
    return max(0.0, (max(ends) if run.state.is_over and ends else now_wall_s) - min(starts))


def state_line(run: Run, now_wall_s: float) -> Line:
    """ "▸ running   step 3 of 9   1:24", "✓ done in 4:22   21 of 21 steps"."""
    sign, tone = RUN_SIGNS[run.state]
    line = Line.of((f"{sign} {run.state}", tone))
    spent = elapsed_s(run, now_wall_s)
    if run.state.is_over:
        line += Line.of((_spent_text(run), tone))
        if len(run.steps) == 1:
            return line
        own, rollback = _phases(run)
        of_rollback = f", {_done_of(rollback)} of the rollback" if rollback else ""
        return line + Line.of((f"   {_done_of(own)} steps done", "quiet"), (of_rollback, "quiet"))
    if (step_run := current(run)) is not None:
        line += Line.of((f"   step {_place(step_run, run, ' of ')}", "quiet"))
    return line if spent is None else line + Line.of((f"   {countdown(spent)}", "quiet"))


def summary(run: Run, width: int) -> Line:
    """One line for the console's top: "▸ Safe restart of vllm on spark1: available 96.4 of 108 GiB".

    Where both don't fit, the plan's title leaves `LEAST_END` cells, so that the step or the result is read.
    """
    sign, tone = RUN_SIGNS[run.state]
    title = Line.of((masked(run.plan.title, run.plan.secrets), "strong"))  # before it is cut: half a secret is one too
    if run.state is RunState.INTERRUPTED:  # what it left comes first, as a narrow screen cuts the rest
        return Line.of((f"{sign} {run.state}  ", tone), (run.remains, "strong"), (f"  {run.plan.title}", "quiet"))
    if run.cause is not None:  # what was learnt comes first
        learnt = Line.of((f"{sign} ", tone), (run.cause.finding.title, "strong"), (f"  {run.plan.title}", "quiet"))
        return learnt + Line.of((f"  {run.state}{_spent_text(run)}", tone))
    if run.state.is_over:
        end = Line.of((f"  {run.state}{_spent_text(run)}", tone), (f"  {brief(run)}" if brief(run) else "", ""))
        end += Line.of((f"  {'; '.join(_key_figures(run))}" if run.after else "", "quiet"))
    else:
        end = Line() if run.state is RunState.RUNNING else Line.of((f"  {run.state}", tone))
        if (step := current(run)) is not None:
            # A wait's detail tells its progress; a step on a node has only "1 of 2 done", so its title says more.
            is_title = isinstance(step.step.act, Remote) or not step.detail
            text = _title(step, run) if is_title else _with_node(step.detail, step, run)
            end += Line.of((f"  {_place(step, run)} ", "quiet"), (text, ""))
    head = Line.of((f"{sign} ", tone))
    return head + title.cut(max(0, width - head.width - min(end.width, LEAST_END))) + end


def end_text(run: Run) -> str:
    """How the run ended, for a notification: "✓ Safe restart of vllm on spark1: done in 4:22"."""
    sign, _ = RUN_SIGNS[run.state]
    figures = _key_figures(run)
    serves = run.plan.outcome if run.state is RunState.DONE else ""
    head = f"{sign} {run.plan.title}: {run.state}{_spent_text(run)}"
    lines = [head, serves, brief(run), *(figures if run.after else [])]
    return "\n".join(line for line in lines if line)


def _key_figures(run: Run) -> list[str]:
    """ "spark1: available 45.4 → 108.0 GiB" of each node."""
    return [
        f"{node}: {figures_text(before, run.after.get(node, {}), only=KEY_FIGURES)}"
        for node, before in run.before.items()
    ]


def _spent_text(run: Run) -> str:
    """ " in 4:22" of a run that is done, " after 4:22" of another."""
    spent = elapsed_s(run, 0.0)
    return "" if spent is None else f" {'in' if run.state is RunState.DONE else 'after'} {countdown(spent)}"


def head_lines(run: Run, width: int, now_wall_s: float, *, limit: int = 0, has_keys: bool = True) -> list[Line]:
    """The fixed lines above the steps: state, or how the run ended and what to do next, with its key if `has_keys`.

    `limit`: the most lines, 0 for any number; message and hint are then cut, keys are not.
    """
    lines = [state_line(run, now_wall_s).cut(width)]
    if not run.state.is_over:
        return lines
    tail = [
        *_outcome(run, width),
        *_next_try(run, width, is_whole=not has_keys),
        *_measurement(run, width),
        *_last_lines(run, width, has_keys=has_keys),
    ]
    room = max(2, limit - 1 - len(tail)) if limit else 0
    next_words = run.hint if run.brief_hint is None or not limit else run.brief_hint
    text = brief(run) if limit or run.state is RunState.DONE else run.message  # the state line has a success's time
    message = wrapped(text, width, "strong", room and max(1, room - bool(next_words))) if text else []
    room = max(1, room - len(message)) if limit else 0
    hint = wrapped(next_words, width, "", room) if next_words else []
    return [*lines, *message, *hint, *tail]


def _outcome(run: Run, width: int) -> list[Line]:
    """The plan's outcome, once the run is done: where the engine serves, and under what name."""
    if run.state is not RunState.DONE or not run.plan.outcome:
        return []
    word, _, rest = run.plan.outcome.partition(" ")
    head = _label(word)
    first, *more = broken(rest, max(10, width - head.width))
    return [head + Line.of((first, "strong")), *indented((Line.of((line, "strong")) for line in more), head.width)]


def _label(word: str) -> Line:
    return Line.of((f"{word:<8}  ", "quiet"))  # as wide as "measured"


def _next_try(run: Run, width: int, *, is_whole: bool) -> list[Line]:
    """The remedy for why the engine didn't start, and the command that applies it, else the steps by hand.

    `is_whole`: each command on one line, to be pasted.
    """
    if run.cause is None:
        return []
    from sparktop.operate.relaunch.next_try import next_try  # only a run that failed needs it

    attempt = next_try(run)
    if attempt is None:
        return []
    lines = hanging(_label("to fix"), attempt.remedy.title, width, "strong", 3)
    commands = (attempt.command,) if attempt.command else attempt.remedy.steps
    if is_whole:
        return [*lines, *(Line.of("  ", command) for command in commands)]
    return [*lines, *indented((line for command in commands for line in wrapped(command, width - 10)), 10)]


def _measurement(run: Run, width: int) -> list[Line]:
    """The result of a launch's measurement."""
    step = next((step for step in run.steps if isinstance(step.step.act, Measure) and step.detail), None)
    if step is None or step.state is not StepState.DONE:
        return []
    return hanging(_label("measured"), step.detail, width, "value", 3)


def _last_lines(run: Run, width: int, *, has_keys: bool) -> list[Line]:
    lines = []
    if run.can_go_back and has_keys:
        lines.append(Line.of(("b", "key"), (" plans the rollback", "")))
    if run.evidence_path:
        path = f"evidence: {run.evidence_path}"
        lines += [Line.of((path[start : start + width], "quiet")) for start in range(0, len(path), max(10, width))]
    return lines


def body_lines(run: Run, width: int, now_wall_s: float, *, is_whole: bool = False) -> tuple[list[Line], int | None]:
    """The lines of figures and steps, and the index of the line of the step under way, if any; `is_whole`: uncut.

    The figures come before the steps once the run is over, and after them until then.
    """
    figures = _figures(run, width)
    lines = [*figures, BLANK] if figures and run.state.is_over else []
    watched: int | None = None
    several = len({step.step.node for step in run.steps}) > 1
    plan_step_count = len(run.plan.steps)
    for index, step in enumerate(run.steps):
        if index == plan_step_count:
            lines += [BLANK, Line.of(("Rollback", "title"))]
        lines += _step(step, width, now_wall_s, names_node=several, is_whole=is_whole)
        if step.state in _UNDER_WAY and not run.state.is_over:
            watched = len(lines) - 1
    if figures and not run.state.is_over:
        lines += [BLANK, *figures]
    return lines, watched


def printed_lines(run: Run, width: int, *, has_steps: bool) -> list[Line]:
    """An ended run without a screen, uncut: for the clipboard with its steps, after `act` without."""
    now_wall_s = max((step.ended_wall_s or step.began_wall_s or 0.0 for step in run.steps), default=0.0)
    body = body_lines(run, width, now_wall_s, is_whole=True)[0] if has_steps else _figures(run, width)
    is_served = run.state is RunState.DONE and run.plan.outcome_command
    to_ask = [Line.of((run.plan.outcome_command, ""))] if is_served else []  # whole, to be pasted
    return spaced([
        [*wrapped(run.plan.title, width, "title"), Line.of((f"run {run.id}", "quiet")),
         *head_lines(run, width, now_wall_s, has_keys=False)], body, to_ask,
    ])  # fmt: skip


def step_line(number: int, run: Run) -> Line:
    """A step's progress: "✓ 3/8 Stop vllm-qwen36, 60 s grace: exited with 0"."""
    step = run.steps[number - 1]
    sign, tone = STEP_SIGNS[step.state]
    detail = short_detail(step)
    phase = "rollback " if number > len(run.plan.steps) else ""
    text = f"{phase}{_place(step, run)} {_title(step, run)}{': ' if detail else ''}{detail}"
    return Line.of((f"{sign} ", tone), (text, ""))


def _phases(run: Run) -> tuple[Sequence[StepRun], Sequence[StepRun]]:
    """(the steps of the plan, those of its rollback)."""
    count = len(run.plan.steps)
    return run.steps[:count], run.steps[count:]


def _place(step: StepRun, run: Run, of: str = "/") -> str:
    """ "3/9": its number among the steps of its phase."""
    own, rollback = _phases(run)
    index = run.steps.index(step)
    return f"{index + 1}{of}{len(own)}" if index < len(own) else f"{index - len(own) + 1}{of}{len(rollback)}"


def _done_of(steps: Sequence[StepRun]) -> str:
    return f"{sum(step.state is StepState.DONE for step in steps)} of {len(steps)}"


def _title(step: StepRun, run: Run) -> str:
    return _with_node(step.step.title, step, run)


def _with_node(text: str, step: StepRun, run: Run) -> str:
    """The text, after its node where a run of several nodes has steps that don't name theirs."""
    is_told = len({other.step.node for other in run.steps}) < 2 or step.step.node in text.split()
    return text if is_told else f"{step.step.node}: {text}"


def _step(step: StepRun, width: int, now_wall_s: float, *, names_node: bool, is_whole: bool) -> list[Line]:
    sign, tone = STEP_SIGNS[step.state]
    is_now = step.state in _UNDER_WAY
    waits = step.state in (StepState.WAITING, StepState.SKIPPED)
    right = Line.of((step.step.node, "quiet")) if names_node else BLANK
    if step.began_wall_s is not None:
        spent = max(0.0, (now_wall_s if step.ended_wall_s is None else step.ended_wall_s) - step.began_wall_s)
        right += Line.of((f"{countdown(spent):>7}", "" if is_now else "quiet"))
    elif names_node:
        right += Line.of(" " * 7)
    title = Line.of((f"{sign} ", tone), (step.step.title, "strong" if is_now else "quiet" if waits else ""))
    detail = step.detail if is_whole else short_detail(step)
    if step.state is StepState.DONE and detail and title.width + 2 + cell_len(detail) + 2 + right.width <= width:
        return [spread(width, title + Line.of((f"  {detail}", "quiet")), right)]
    lines = [spread(width, title, right)]
    if (stop := waiting(step, now_wall_s)) is not None:
        return [*lines, *_stop_lines(*stop, width)]
    if detail:
        tone = "warning" if step.state is StepState.FAILED else "" if is_now else "quiet"
        limit = 0 if is_whole or is_now or step.state is StepState.FAILED else ENDED_DETAIL_LINES
        lines += indented(wrapped(detail, width - 4, tone, limit), 4)
    elif step.state is StepState.UNKNOWN:
        lines.append(Line.of(("    the link broke here; sparktop asks the node when it is back", "warning")).cut(width))
    if is_now and step.ratio is not None:
        share = min(1.0, max(0.0, step.ratio)) * 100
        is_wait = not isinstance(step.step.act, Remote | CollectEvidence)
        lines.append(_bar(step.ratio, f"{share:.0f} %{f', {time_text((step.step,))}' if is_wait else ''}", width))
    elif is_now and step.step.likely_s is not None:
        lines.append(Line.of((f"    {time_text((step.step,))}", "quiet")).cut(width))
    return lines


def _stop_lines(since_s: float, grace_s: float, width: int) -> list[Line]:
    """A stop under way: a bar of its grace period."""
    is_over = since_s > grace_s
    text = "grace period over: killing it" if is_over else f"SIGTERM sent, SIGKILL after {countdown(grace_s)}"
    label = f"{countdown(min(since_s, grace_s))} of {countdown(grace_s)}"
    return [Line.of("    ", (text, "")).cut(width), _bar(since_s / grace_s, label, width)]


def _bar(ratio: float, label: str, width: int) -> Line:
    share = min(1.0, max(0.0, ratio))
    bar = progress(round(share * 1000), 1000, min(BAR_CELLS, max(4, width - 20)))
    return Line.of("    ", (bar, "graph"), (f"  {label}", "quiet")).cut(width)


def _figures(run: Run, width: int) -> list[Line]:
    """What was measured, and the figures before and after: one line per node each."""
    own = _rows({node: figures_text(figures, {}) for node, figures in measured(run).items()}, width)
    changes = {node: figures_text(before, run.after.get(node, {})) for node, before in run.before.items()}
    compared = titled("Before and after" if run.after else "Before", _rows(changes, width))
    return spaced([titled("Measured", own), compared])


def _rows(texts: Mapping[str, str], width: int) -> list[Line]:
    """A line per node that has a text."""
    return [
        line for node, text in texts.items() if text for line in hanging(Line.of((f"{node}  ", "strong")), text, width)
    ]
