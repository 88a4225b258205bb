"""A run as it is told: each new state to the screen, each end of a step to the audit, all of it masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.model.plan import Plan, Remote, Run, RunState, Step, StepRun, StepState
from sparktop.operate.audit import Audit, AuditError
from sparktop.operate.ended import Ended
from sparktop.operate.kept import kept
from sparktop.operate.line import OperationResult
from sparktop.operate.masking import Masker, described
from sparktop.operate.means import Means
from sparktop.operate.operating import Changed

OVER = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)


class Record:
    """The one owner of a `Run`; what it is given is plain, what leaves it is masked."""

    def __init__(self, run: Run, *, means: Means, changed: Changed) -> None:
        self._run = run
        self._means = means
        self._audit: Audit = means.audit
        self._changed = changed
        self._secrets: tuple[str, ...] = run.plan.secrets
        self._mask = Masker(self._secrets)
        self.audit_problem = ""
        """Why entries are missing since the intent."""

    @property
    def run(self) -> Run:
        return self._run

    def also_mask(self, secret: str) -> None:
        """A password that was typed for this run appears nowhere."""
        if secret not in self._secrets:
            self._secrets = (*self._secrets, secret)
            self._mask = Masker(self._secrets)

    # what the screen is told

    def update(self, *, is_told: bool = True, **fields: Any) -> None:
        """New fields of the run; texts among them are masked."""
        texts = {key: self._mask.text(value) for key, value in fields.items() if key in ("message", "hint")}
        self._run = replace(self._run, **{**fields, **texts})
        if is_told:
            self._tell(self._run)

    def step(
        self, index: int, *, state: StepState | None = None, detail: str | None = None, ratio: float | None = None
    ) -> None:
        """Where a step is; a state that begins or ends it is given its time."""
        old = self._run.steps[index]
        wall_s = self._means.clock.wall()
        new = replace(old, ratio=ratio, detail=old.detail if detail is None else self._mask.text(detail))
        if state is not None:
            began_s = wall_s if old.began_wall_s is None and state is StepState.RUNNING else old.began_wall_s
            new = replace(new, state=state, began_wall_s=began_s, ended_wall_s=wall_s if state in OVER else None)
        if new != old:
            self._tell(replace(self._run, steps=(*self._run.steps[:index], new, *self._run.steps[index + 1 :])))

    def add(self, steps: Sequence[Step]) -> range:
        """Further steps (the way back); their indices."""
        first = len(self._run.steps)
        self._tell(replace(self._run, steps=(*self._run.steps, *(StepRun(step=step) for step in steps))))
        return range(first, first + len(steps))

    def skip_waiting(self) -> None:
        """What was never begun won't be."""
        steps = tuple(
            replace(one, state=StepState.SKIPPED) if one.state is StepState.WAITING else one for one in self._run.steps
        )
        self._tell(replace(self._run, steps=steps))

    def _tell(self, run: Run) -> None:
        self._run = run
        try:
            self._changed(run)
        except Exception:  # noqa: BLE001, S110 - a screen that fails must not leave a change on a Spark half-way
            pass

    # what the audit is told

    async def intent(self, before: Mapping[str, Mapping[str, float | str]]) -> None:
        """What will be done, on disk before it is.

        Raises:
            AuditError: it couldn't be written down.
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
            "steps": [self._described(step) for step in plan.steps],
            "way_back": [self._described(step) for step in plan.way_back],
            "kept": kept(plan.way_back, self._mask),
            "differences": [
                self._mask.data({"what": one.what, "name": one.name, "before": one.before, "after": one.after})
                for one in plan.differences
            ],
            "before": self._mask.data(before),
        }
        self._audit.hold(self._run.id)
        try:
            await self._audit.keep("intent", entry)
        except AuditError:
            self._audit.let_go(self._run.id)
            raise

    def step_ended(self, index: int, ended: Ended) -> None:
        """The end of a step, for the screen and the audit."""
        self.step(index, state=ended.state, detail=ended.detail, ratio=1.0 if ended.state is StepState.DONE else None)
        told = self._run.steps[index]
        seconds = None if told.began_wall_s is None else round(self._means.clock.wall() - told.began_wall_s, 2)
        entry: dict[str, Any] = {
            "step": told.step.id,
            "node": told.step.node,
            "title": self._mask.exact(told.step.title),
            "state": str(told.state),
            "detail": told.detail,
            "seconds": seconds,
        }
        if ended.results:
            entry["results"] = [self._result(one) for one in ended.results]
        if ended.saved:
            entry["saved"] = self._mask.data(ended.saved)
        if ended.evidence_path:
            entry["evidence"] = self._mask.exact(ended.evidence_path)
        self.note("step", **entry)

    def note(self, kind: str, **entry: Any) -> None:
        """An entry after the intent. A disk that fills up in the middle doesn't leave an engine stopped: what was
        going to be done stands in the intent already, and the run says what is missing."""
        try:
            self._audit.note(kind, {"run": self._run.id, **entry})
        except AuditError as error:
            self.audit_problem = self._mask.text(error.message)

    async def end(self) -> None:
        """The last entry, on disk."""
        try:
            await self._audit.keep("end", self._end_entry())
        except AuditError as error:
            self.audit_problem = self._mask.text(error.message)
        self._audit.let_go(self._run.id)

    def end_at_once(self) -> None:
        """The last entry of a console that is being left."""
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

    def _described(self, step: Step) -> dict[str, Any]:
        told: dict[str, Any] = {"step": step.id, "node": step.node, "title": self._mask.exact(step.title)}
        if isinstance(step.act, Remote):
            told["operations"] = [described(one, self._mask) for one in step.act.operations]
            if step.act.undo:
                told["undo"] = [described(one, self._mask) for one in step.act.undo]
            if step.undone_by:
                told["undone_by"] = self._mask.exact(step.undone_by)
        else:
            told["act"] = type(step.act).__name__
        return told

    def _result(self, result: OperationResult) -> dict[str, Any]:
        told: dict[str, Any] = {"index": result.index, "ok": result.ok, "seconds": round(result.seconds, 3)}
        told |= {"code": result.code} if result.code is not None else {}
        told |= {"undo": True} if result.is_undo else {}
        told |= {"was_done": True} if result.was_done else {}
        told |= {"was_ended": True} if result.was_ended else {}
        told |= {"brought_bytes": result.brought_bytes} if result.brought_bytes is not None else {}
        told |= {"output": self._mask.exact(result.output)[-2000:]} if result.output else {}
        told |= {"problem": self._mask.exact(result.problem)} if result.problem else {}
        return told


def new_run(run_id: str, plan: Plan, state: RunState = RunState.RUNNING) -> Run:
    """A run with every step still to be done."""
    return Run(id=run_id, plan=plan, state=state, steps=tuple(StepRun(step=step) for step in plan.steps))
