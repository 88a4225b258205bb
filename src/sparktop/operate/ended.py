"""How a step ended: what the executor goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.model.operation import Expect
from sparktop.model.plan import Remote, Step, StepState
from sparktop.operate.fetching import only_fetches
from sparktop.operate.line import OperationResult, Outcome, OutcomeState
from sparktop.operate.pace import size
from sparktop.operate.telling import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a step ended."""

    state: StepState
    """DONE, FAILED, or UNKNOWN."""
    detail: str = ""
    has_touched: bool = False
    """It has changed something on the node, or may have, that isn't undone."""
    has_acted: bool = False
    """It has changed something, undone since or not."""
    is_aborted: bool = False
    results: tuple[OperationResult, ...] = ()
    evidence_path: str = ""
    saved: Mapping[str, str] = field(default_factory=dict)
    """Ids that it made, for later steps (`operate.saved`)."""


def of_outcome(outcome: Outcome, step: Step) -> Ended:
    """What a node's word on a step means."""
    acted = _has_acted(outcome, step) and not only_fetches(step.act)
    if outcome.state is OutcomeState.DONE:
        return Ended(
            state=StepState.DONE,
            detail=_done(outcome.results),
            has_touched=acted,
            has_acted=acted,
            results=outcome.results,
            saved=outcome.saved,
        )
    if outcome.state is OutcomeState.FAILED:
        undo = {True: " What had been done of it is undone.", None: "", False: _not_undone(outcome.results)}
        return Ended(
            state=StepState.FAILED,
            detail=f"{_sentence(outcome.problem or _last_problem(outcome.results))}{undo[outcome.undone]}",
            has_touched=acted and outcome.undone is not True,
            has_acted=acted,
            results=outcome.results,
            saved=outcome.saved,
        )
    is_harmless = only_fetches(step.act)
    next_word = (
        "What has come stays: it goes on from there next time." if is_harmless else "Look at it before you go on."
    )
    return Ended(
        state=StepState.FAILED,
        detail=(
            f"{step.node} has rebooted, or what did it was killed: how far it came is not known. "
            f"{_sentence(outcome.problem) + ' ' if outcome.problem else ''}{next_word}"
        ),
        has_touched=not is_harmless,
        has_acted=not is_harmless,
        results=outcome.results,
        saved=outcome.saved,
    )


def _has_acted(outcome: Outcome, step: Step) -> bool:
    """Whether an operation was begun that changes something; a call that was refused may have."""
    operations = step.act.operations if isinstance(step.act, Remote) else ()
    for result in outcome.results:
        is_ours = not (result.is_undo or result.was_done or result.is_untouched)
        if is_ours and 0 <= result.index < len(operations) and not isinstance(operations[result.index], Expect):
            return True
    return not outcome.results and outcome.state is OutcomeState.DONE


def _done(results: Sequence[OperationResult]) -> str:
    acts = [result for result in results if not result.is_undo]
    if acts and all(result.was_done for result in acts):
        return "it had been done already"
    seconds = sum(result.seconds for result in acts)
    if brought := sum(result.brought_bytes or 0 for result in acts):
        return f"{size(brought)} in {clock(seconds)}"
    return f"{seconds:.1f} s" if seconds >= 0.05 else ""


def _last_problem(results: Sequence[OperationResult]) -> str:
    failed = [result for result in results if not result.ok and not result.is_undo]
    if not failed:
        return "it failed"
    last = failed[-1]
    return last.problem or (f"exit {last.code}" if last.code is not None else "it failed")


def _not_undone(results: Sequence[OperationResult]) -> str:
    problems = [result.problem or f"exit {result.code}" for result in results if result.is_undo and not result.ok]
    return f" It could not be undone: {'; '.join(problems)}." if problems else " It could not all be undone."


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
