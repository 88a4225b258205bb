"""The result of a step, and the rate of a long one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from sparktop.dataclass import dataclass
from sparktop.model.operation import Expect, Transfer
from sparktop.model.plan import Remote, Step, only_fetches
from sparktop.model.run import Cause, Figures, StepState
from sparktop.operate.run.run_text import sentence
from sparktop.operate.runner.api import OperationResult, Outcome, OutcomeState, Progress
from sparktop.text.units import countdown


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How a step ended."""

    state: StepState
    """DONE, FAILED, or UNKNOWN."""
    detail: str = ""
    brief: str | None = None
    """`StepRun.brief`."""
    has_touched: bool = False
    """It changed something on the node, or may have, that is not undone."""
    has_acted: bool = False
    """It changed something, whether undone since or not."""
    is_aborted: bool = False
    results: tuple[OperationResult, ...] = ()
    evidence_path: str = ""
    figures: Figures = field(default_factory=dict)
    is_last: bool = False
    """Failed, so that no further step starts, whatever its `on_failure` says."""
    cause: Cause | None = None
    """`StepRun.cause`."""
    saved: Mapping[str, str] = field(default_factory=dict)
    """Ids that it created, for later steps (`run.placeholders`)."""


def step_result(outcome: Outcome, step: Step) -> StepResult:
    """The result of a step, from its outcome on the node."""
    has_acted = _has_acted(outcome, step) and not only_fetches(step.act)
    result = StepResult(
        state=StepState.FAILED,
        has_touched=has_acted,
        has_acted=has_acted,
        results=outcome.results,
        saved=outcome.saved,
    )
    if outcome.state is OutcomeState.DONE:
        detail, brief = _done_detail(outcome.results)
        return replace(result, state=StepState.DONE, detail=detail, brief=brief)
    if outcome.state is OutcomeState.FAILED:
        undo_note = {True: " What it had done is reverted.", None: "", False: _undo_problems(outcome.results)}
        return replace(
            result,
            detail=(
                f"{sentence(outcome.problem or _last_problem(outcome.results))}{undo_note[outcome.undone]}"
                f"{_left_note(outcome, step)}"
            ),
            has_touched=has_acted and outcome.undone is not True,
        )
    is_harmless = only_fetches(step.act)
    next_step = (
        "What was downloaded stays; the next try goes on from there." if is_harmless else "Check it before you go on."
    )
    return replace(
        result,
        detail=(
            f"{step.node} has rebooted, or its runner was killed: how far this step came is not known. "
            f"{sentence(outcome.problem) + ' ' if outcome.problem else ''}{next_step}"
        ),
        has_touched=not is_harmless,
        has_acted=not is_harmless,
    )


def _has_acted(outcome: Outcome, step: Step) -> bool:
    """Whether an operation began that changes something; a call that was refused may have."""
    operations = step.act.operations if isinstance(step.act, Remote) else ()
    for result in outcome.results:
        has_run = not (result.is_undo or result.was_done or result.is_untouched)
        if has_run and 0 <= result.index < len(operations) and not isinstance(operations[result.index], Expect):
            return True
    return not outcome.results and outcome.state is OutcomeState.DONE


def _done_detail(results: Sequence[OperationResult]) -> tuple[str, str | None]:
    """(detail, and in brief) of a step that is done; its time alone is shown beside it."""
    done_results = [result for result in results if not result.is_undo]
    if done_results and all(result.was_done for result in done_results):
        return "was done already", None
    seconds = sum(result.seconds for result in done_results)
    if total_bytes := sum(result.brought_bytes or 0 for result in done_results):
        return f"{size(total_bytes)} in {countdown(round(seconds))}", None
    return (f"{seconds:.1f} s", "") if seconds >= 0.05 else ("", None)


def _last_problem(results: Sequence[OperationResult]) -> str:
    failed = [result for result in results if not result.ok and not result.is_undo]
    if not failed:
        return "it failed"
    last = failed[-1]
    return last.problem or (f"exit {last.code}" if last.code is not None else "it failed")


def _left_note(outcome: Outcome, step: Step) -> str:
    """What a transfer that failed has left in its folder, and the disk's free space where that is the reason."""
    operations = step.act.operations if isinstance(step.act, Remote) else ()
    result = next((result for result in outcome.results if not result.ok and result.brought_bytes is not None), None)
    transfer = operations[result.index] if result is not None and result.index < len(operations) else None
    if result is None or not isinstance(transfer, Transfer):
        return ""
    note = f" {size(result.brought_bytes or 0)} downloaded by now stay in {transfer.grows} on {step.node}."
    if result.free_bytes is not None and result.free_bytes < FULL_BYTES:
        return (
            f"{note} That disk is full: {size(result.free_bytes)} free. Free some (docker system df, du -sh "
            f"{transfer.grows}), then try again: it goes on from there."
        )
    return f"{note} The next try goes on from there."


def _undo_problems(results: Sequence[OperationResult]) -> str:
    problems = [result.problem or f"exit {result.code}" for result in results if result.is_undo and not result.ok]
    return f" It could not be reverted: {'; '.join(problems)}." if problems else " A part could not be reverted."


FULL_BYTES = 256 * 1024 * 1024
"""A transfer that failed with less free on its disk has failed for that: a shard's next piece is this large."""
WINDOW_S = 10.0
"""The rate is averaged over so long: a shorter window jumps, the whole transfer hides a change."""
SHORTEST_S = 1e-3
"""Two reports closer together tell no rate."""
STALLED_S = 15.0
"""Without more bytes for so long it is reported as stalled."""
LONGEST_S = 99 * 3600.0
"""A longer time left is not forecast."""
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class Pace:
    """How fast an operation's transfer goes: rate, time left, stall."""

    def __init__(self) -> None:
        self._newest: Progress | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._moved_s: float | None = None
        """When the byte count last rose."""
        self._now_s = 0.0

    def hear(self, progress: Progress, now_s: float) -> None:
        """Take in a progress report; `now_s` by any monotonic clock."""
        previous, self._newest, self._now_s = self._newest, progress, now_s
        done_bytes = progress.done_bytes
        is_new_operation = previous is None or progress.index != previous.index or previous.done_bytes is None
        if done_bytes is None or is_new_operation or (self._samples and done_bytes < self._samples[-1][1]):
            self._samples.clear()  # another operation, or one that began again: unpacking after download, a retry
            self._moved_s = now_s
        elif not self._samples or done_bytes > self._samples[-1][1]:
            self._moved_s = now_s
        if done_bytes is None:
            return
        self._samples.append((now_s, done_bytes))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    def skip(self) -> None:
        """Forget the rate: reports were missed."""
        self._samples.clear()

    @property
    def rate(self) -> float | None:
        """Bytes a second of late; None while unknown."""
        if len(self._samples) < 2:
            return None
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s - first_s > SHORTEST_S else None

    @property
    def stalled_s(self) -> float | None:
        """Seconds without more bytes, from STALLED_S on; None while it moves, or when it is complete."""
        newest = self._newest
        if newest is None or newest.done_bytes is None or self._moved_s is None:
            return None
        if newest.total_bytes is not None and newest.done_bytes >= newest.total_bytes:
            return None
        still_s = self._now_s - self._moved_s
        return still_s if still_s >= STALLED_S else None

    @property
    def left_s(self) -> float | None:
        """Seconds until it is complete, at the current rate."""
        newest, rate = self._newest, self.rate
        if newest is None or newest.done_bytes is None or not newest.total_bytes or not rate or rate <= 0:
            return None
        left_s = max(0, newest.total_bytes - newest.done_bytes) / rate
        return left_s if left_s <= LONGEST_S else None

    @property
    def ratio(self) -> float | None:
        """How far it is, 0 to 1; None where unknown."""
        newest = self._newest
        if newest is None or newest.done_bytes is None or not newest.total_bytes:
            return None
        return min(1.0, newest.done_bytes / newest.total_bytes)

    @property
    def words(self) -> str:
        """ "12.4 of 34.6 GB · 84 MB/s · 4:20 left"; "12.4 of 34.6 GB · stalled for 0:40"."""
        newest = self._newest
        if newest is None:
            return ""
        parts = [amount(newest.done_bytes, newest.total_bytes)] if newest.done_bytes is not None else []
        if newest.words:
            parts.append(newest.words)
        if (stalled_s := self.stalled_s) is not None:
            parts.append(f"stalled for {countdown(round(stalled_s))}")
        elif (rate := self.rate) is not None and rate > 0:
            parts.append(f"{size(rate)}/s")
            if (left_s := self.left_s) is not None and self.ratio != 1.0:
                parts.append(f"{countdown(round(left_s))} left")
        return " · ".join(parts)


def amount(done: int, total: int | None) -> str:
    """ "12.4 of 34.6 GB", "0.9 of 1.2 GB", "310 MB"."""
    if not total:
        return size(done)
    unit, name = _unit(total)
    return f"{_figure(done / unit)} of {_figure(total / unit)} {name}"


def size(amount_bytes: float) -> str:
    """ "34.6 GB", "84 MB", decimal as registries and hubs count."""
    unit, name = _unit(amount_bytes)
    return f"{_figure(amount_bytes / unit)} {name}"


def _unit(amount_bytes: float) -> tuple[float, str]:
    return next(((unit, name) for unit, name in _UNITS if amount_bytes >= unit), (1.0, "bytes"))


def _figure(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 99.95 and value != int(value) else f"{value:.0f}"
