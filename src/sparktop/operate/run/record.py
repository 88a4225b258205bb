"""Publishes a run: each new state to the screen and each step's end to the audit, all of it masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit.plan_codec import encoded_steps
from sparktop.operate.audit.request_codec import encoded_request
from sparktop.operate.audit_file import Audit, AuditError
from sparktop.operate.run.operating import OnChange
from sparktop.operate.runner.api import OperationResult
from sparktop.operate.secrets.masking import Masker, operation_entry
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.run_context import RunContext
from sparktop.operate.step.step_result import Cause, Figures, StepResult, StepState

OVER = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)

_TEXTS = ("message", "brief", "hint", "brief_hint")


class Record:
    """Owns the `Run` of one execution; takes plain values, and masks all that leaves it."""

    def __init__(self, run: Run, *, context: RunContext, changed: OnChange) -> None:
        self._run = run
        self._context = context
        self._audit: Audit = context.audit
        self._noted: list[Mapping[str, Any]] = []
        self._changed = changed
        self._secrets: tuple[str, ...] = run.plan.secrets
        self._mask = Masker(self._secrets)
        self.audit_problem = ""
        """Why entries after the intent are missing."""

    @property
    def run(self) -> Run:
        return self._run

    @property
    def noted(self) -> Sequence[Mapping[str, Any]]:
        """The entries that the audit has of it."""
        return self._noted

    def also_mask(self, secret: str) -> None:
        """Mask a password that was typed for this run, too."""
        if secret not in self._secrets:
            self._secrets = (*self._secrets, secret)
            self._mask = Masker(self._secrets)

    # to the screen

    def update(self, *, is_told: bool = True, **fields: Any) -> None:
        """Set fields of the run; texts among them are masked. `is_told`: publish the new state."""
        texts = {key: self._mask.text(value) for key, value in fields.items() if key in _TEXTS and value is not None}
        self._run = replace(self._run, **{**fields, **texts})
        if is_told:
            self._publish(self._run)

    def step(
        self,
        index: int,
        *,
        state: StepState | None = None,
        detail: str | None = None,
        brief: str | None = None,
        ratio: float | None = None,
        cause: Cause | None = None,
        figures: Figures | None = None,
    ) -> None:
        """Update one step; a state that begins or ends it sets its time."""
        old = self._run.steps[index]
        wall_s = self._context.clock.wall()
        new = replace(old, ratio=ratio, cause=cause)
        if figures is not None:
            texts = {name: self._mask.text(value) for name, value in figures.items() if isinstance(value, str)}
            new = replace(new, figures={**figures, **texts})
        if detail is not None:
            new = replace(new, detail=self._mask.text(detail), brief=None if brief is None else self._mask.text(brief))
        if state is not None:
            began_s = wall_s if old.began_wall_s is None and state is StepState.RUNNING else old.began_wall_s
            new = replace(new, state=state, began_wall_s=began_s, ended_wall_s=wall_s if state in OVER else None)
        if new != old:
            self._publish(replace(self._run, steps=(*self._run.steps[:index], new, *self._run.steps[index + 1 :])))

    def add(self, steps: Sequence[Step]) -> range:
        """Append steps (the rollback); their indices."""
        first = len(self._run.steps)
        self._publish(replace(self._run, steps=(*self._run.steps, *(StepRun(step=step) for step in steps))))
        return range(first, first + len(steps))

    def skip_waiting(self) -> None:
        """Mark the steps that never started as skipped."""
        steps = tuple(
            replace(step_run, state=StepState.SKIPPED) if step_run.state is StepState.WAITING else step_run
            for step_run in self._run.steps
        )
        self._publish(replace(self._run, steps=steps))

    def _publish(self, run: Run) -> None:
        self._run = run
        try:
            self._changed(run)
        except Exception:  # noqa: BLE001, S110 - a failing screen must not leave a change on a Spark halfway
            pass

    # to the audit

    async def intent(self, before: Mapping[str, Figures]) -> None:
        """Write what will be done to disk, before it is done.

        Raises:
            AuditError: it couldn't be written.
        """
        self._run = replace(self._run, before=before)
        plan = self._run.plan
        finding = plan.request.finding
        entry = {
            "run": self._run.id,
            "action": plan.request.action,
            "target": self._mask.exact(plan.request.target),
            "title": self._mask.exact(plan.title),
            "risk": str(plan.risk),
            "nodes": list(dict.fromkeys((*plan.request.nodes, *plan.nodes))),
            "options": self._mask.data(plan.request.options),
            "finding": finding.rule if finding is not None else None,
            **({"also": [other.rule for other in plan.request.also]} if plan.request.also else {}),
            "steps": [self._step_entry(step) for step in plan.steps],
            "way_back": [self._step_entry(step) for step in plan.rollback],
            "kept": encoded_steps(plan.rollback, self._mask),
            "asked": encoded_request(plan.request, self._mask),
            "differences": [self._mask.data(asdict(difference)) for difference in plan.differences],
            "before": self._mask.data(before),
        }
        self._audit.hold(self._run.id)
        try:
            self._noted.append(await self._audit.keep("intent", entry))
        except AuditError:
            self._audit.let_go(self._run.id)
            raise

    def step_ended(self, index: int, result: StepResult) -> None:
        """Publish and audit the result of a step."""
        self.step(
            index,
            state=result.state,
            detail=result.detail,
            brief=result.brief,
            ratio=1.0 if result.state is StepState.DONE else None,
            cause=result.cause,
            figures=result.figures,
        )
        step_run = self._run.steps[index]
        seconds = (
            None if step_run.began_wall_s is None else round(self._context.clock.wall() - step_run.began_wall_s, 2)
        )
        entry: dict[str, Any] = {
            "step": step_run.step.id,
            "node": step_run.step.node,
            "title": self._mask.exact(step_run.step.title),
            "state": str(step_run.state),
            "detail": step_run.detail,
            "seconds": seconds,
        }
        if result.state is StepState.FAILED and not result.has_touched:
            entry["untouched"] = True
        if result.results:
            entry["results"] = [self._result_entry(operation_result) for operation_result in result.results]
        if result.saved:
            entry["saved"] = self._mask.data(result.saved)
        if step_run.figures:
            entry["figures"] = dict(step_run.figures)
        if result.cause is not None:
            entry["cause"] = {"rule": result.cause.finding.rule, "title": self._mask.text(result.cause.finding.title)}
        if result.evidence_path:
            entry["evidence"] = self._mask.exact(result.evidence_path)
        self.note("step", **entry)

    def note(self, kind: str, **entry: Any) -> None:
        """Add an entry after the intent. A disk that fills up halfway must not leave an engine stopped: the intent
        already says what was going to be done, and the run reports what is missing."""
        try:
            self._noted.append(self._audit.note(kind, {"run": self._run.id, **entry}))
        except AuditError as error:
            self.audit_problem = self._mask.text(error.message)

    async def end(self) -> None:
        """Write the last entry, on disk."""
        try:
            self._noted.append(await self._audit.keep("end", self._end_entry()))
        except AuditError as error:
            self.audit_problem = self._mask.text(error.message)
        self._audit.let_go(self._run.id)

    def end_at_once(self) -> None:
        """Write the last entry of a console that is closing."""
        self.note("end", **self._end_entry(), left=True)
        self._audit.let_go(self._run.id)

    def _end_entry(self) -> dict[str, Any]:
        run = self._run
        return {
            "run": run.id,
            "state": str(run.state),
            "message": run.message,
            **({"hint": run.hint} if run.hint else {}),
            "before": self._mask.data(run.before),
            "after": self._mask.data(run.after),
        }

    def _step_entry(self, step: Step) -> dict[str, Any]:
        entry: dict[str, Any] = {"step": step.id, "node": step.node, "title": self._mask.exact(step.title)}
        if step.stops:
            entry["stops"] = self._mask.exact(step.stops)
        if isinstance(step.act, Remote):
            entry["operations"] = [operation_entry(operation, self._mask) for operation in step.act.operations]
            if step.act.undo:
                entry["undo"] = [operation_entry(operation, self._mask) for operation in step.act.undo]
            if undoing := step.act.undoing():
                entry["undone_by"] = self._mask.exact("; ".join(undoing))
        else:
            entry["act"] = type(step.act).__name__
        return entry

    def _result_entry(self, result: OperationResult) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": result.index, "ok": result.ok, "seconds": round(result.seconds, 3)}
        entry |= {"code": result.code} if result.code is not None else {}
        entry |= {"undo": True} if result.is_undo else {}
        entry |= {"was_done": True} if result.was_done else {}
        entry |= {"was_ended": True} if result.was_ended else {}
        entry |= {"brought_bytes": result.brought_bytes} if result.brought_bytes is not None else {}
        entry |= {"output": self._mask.exact(result.output)[-2000:]} if result.output else {}
        entry |= {"problem": self._mask.exact(result.problem)} if result.problem else {}
        return entry


def new_run(run_id: str, plan: Plan, state: RunState = RunState.RUNNING) -> Run:
    """A run with every step still to be done."""
    return Run(id=run_id, plan=plan, state=state, steps=tuple(StepRun(step=step) for step in plan.steps))
