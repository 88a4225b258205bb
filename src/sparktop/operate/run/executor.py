"""A run: the steps of a plan in order, until all are done, one fails, or the operator aborts.

Nothing starts before the intent is on disk and every node to be changed is locked. What a step did is never guessed:
it is reported as done, failed, or unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

from sparktop import faults
from sparktop.errors import TransportError
from sparktop.model.fleet import NodeView
from sparktop.operate.audit_file import AuditError
from sparktop.operate.refused import Refused
from sparktop.operate.run import run_text
from sparktop.operate.run.node_notes import NodeNotes
from sparktop.operate.run.operating import OnChange
from sparktop.operate.run.record import Record, new_run
from sparktop.operate.run.run_text import armed_guards
from sparktop.operate.run.settling import figures, settled
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.node_lock import RETRY_S, NodeLocks, NodeTaken, NoLine
from sparktop.operate.step.placeholders import saved_for
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.run_context import RunContext
from sparktop.operate.step.step_result import StepResult, StepState
from sparktop.operate.step.wait import Abort, Aborted
from sparktop.text.sentences import sentences
from sparktop.transport.threads import in_thread

_CONTINUES = (OnFailure.GO_ON, OnFailure.FAIL_AT_END)
_CAN_ROLL_BACK = (RunState.FAILED, RunState.NO_HELP, RunState.ABORTED)


class PlanExecution:
    """Runs one plan; implements `operating.Execution`."""

    def __init__(self, run_id: str, plan: Plan, *, context: RunContext, secret: AskSecret, changed: OnChange) -> None:
        """Nothing is done until `start`."""
        self._plan = plan
        self._context = context
        self._secret = secret
        self._passwords: dict[str, str] = {}
        self._has_left_question = False
        """The operator aborted at a password prompt."""
        self._abort = Abort()
        changed_nodes = tuple(dict.fromkeys(step.node for step in plan.steps if step.act.changes))
        self._record = Record(new_run(run_id, plan), context=context, changed=changed)
        self._notes = NodeNotes(run_id, changed_nodes, context.lines, self._record.noted)
        self._locks = NodeLocks(context, run_id, plan.title, self._abort)
        self._state = RunState.RUNNING
        """The run's state while no link is lost."""
        self._nodes = tuple(dict.fromkeys((*plan.request.nodes, *plan.nodes)))
        self._began_s = context.clock.monotonic()
        self._is_known = False
        """The intent is in the audit, or may be: its writing has begun."""
        self._has_touched = False
        """Something was changed, or may have been, that is not undone."""
        self._has_acted = False
        self._problems: list[str] = []
        """Of failed steps after which the run went on."""
        self._broken: list[str] = []
        """Those of them without which the plan's promise does not hold."""
        self._guards: dict[str, str] = {}
        """Node -> container over which this run armed the guard."""
        self._start_picture = self._begun_picture = context.picture()
        self._ready_views: dict[tuple[str, str], NodeView] = {}
        """(node, engine) -> its node as it was when it became ready."""
        self._last_checks: tuple[Step, ...] = ()
        """Those at the end of the plan, or of its rollback: what they see is what the end tells."""
        self._is_settled = False
        self._task: asyncio.Task[None] | None = None

    @property
    def run(self) -> Run:
        return self._record.run

    def start(self) -> None:
        """Start the run on the running event loop."""
        self._task = asyncio.create_task(self._execute(), name=f"run {self.run.id}")

    def refuse(self, refused: Refused) -> None:
        """End the run before its first step, with the gate's reason."""
        self._record.skip_waiting()
        self._record.update(**self._final_fields(RunState.REFUSED, refused.reason, " · ".join(refused.remedies)))

    def abort(self) -> None:
        if self.run.state.is_over or self._abort.is_wanted:
            return
        self._abort.want()
        if self._state is RunState.RUNNING:
            self._state = RunState.ABORTING
            if self.run.state is RunState.RUNNING:
                self._record.update(state=RunState.ABORTING)
        if self._is_known:
            self._record.note("note", text="the operator aborts")

    async def finished(self) -> Run:
        if self._task is not None:
            await asyncio.wait({self._task})
        return self.run

    async def leave(self) -> None:
        """The console is closing: start no further step; a node completes what it has begun."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    # steps

    async def _execute(self) -> None:
        keeping = [asyncio.create_task(self._locks.keep())]
        try:
            if await self._prepare():
                await self._notes.send()
                keeping.append(asyncio.create_task(self._notes.keep()))
                await self._steps()
        except asyncio.CancelledError:
            self._close()
        except Exception as error:  # noqa: BLE001 - a fault of ours must end the run in sight, not leave it running
            fault = faults.report(f"the run {self.run.id}", error)
            await self._finish(RunState.FAILED, f"The run was ended by {fault}")
        finally:
            for task in keeping:
                task.cancel()
            self._passwords.clear()
            if len(keeping) > 1:
                await self._notes.send()
            await self._locks.release()

    async def _prepare(self) -> bool:
        """Write the intent to disk, then lock every node that will be changed; False where that ended the run."""
        self._is_known = True
        try:
            await self._record.intent(figures(self._context.picture(), self._nodes))
        except AuditError as error:
            self._is_known = False
            self._record.skip_waiting()
            self._record.update(**self._final_fields(RunState.REFUSED, error.message, error.hint or ""))
            return False
        for node in self._changed_nodes():
            try:
                if self._context.lines.line(node) is None:
                    self._record.step(0, detail=f"waiting for the runner on {node}")
                line = await self._locks.line(node, patience_s=self._context.first_line_s)
                await self._locks.take(line)
            except NodeTaken as taken:
                await self._finish(RunState.REFUSED, f"{taken}.", hint=taken.hint)
                return False
            except NoLine as why:
                await self._finish(RunState.REFUSED, f"{why}.", hint="wait until that is done, then plan again")
                return False
            except TransportError as error:
                await self._finish(RunState.REFUSED, f"{node}: {error.message}.", hint=error.hint or "")
                return False
            except Aborted:
                await self._finish(RunState.ABORTED, "Aborted before the first step.")
                return False
        self._record.step(0, detail="")
        return True

    async def _steps(self) -> None:
        self._last_checks = _checks_at_end(self._plan.steps)
        for index, step in enumerate(self._plan.steps):
            result = await self._carry_out(index, step)
            if result.is_aborted:
                detail = self._record.run.steps[index].detail if result.state is StepState.FAILED else ""
                why = f"Aborted at: {step.title}{': ' + detail.rstrip('.') if detail else ''}"
                if self._plan.is_all_or_nothing and self._plan.rollback and self._has_acted:
                    unknown = step if result.state is StepState.UNKNOWN else None
                    return await self._roll_back(why, then=RunState.ABORTED, unknown=unknown)
                return await self._finish(RunState.ABORTED, f"{why}.")
            if result.state is StepState.DONE:
                continue
            step_run = self._record.run.steps[index]
            if result.state is StepState.UNKNOWN:
                # What has served is not taken back for a node's silence alone.
                is_whole = self._plan.is_all_or_nothing and bool(self._plan.rollback) and not step.act.is_check
                if is_whole and step.on_failure in _CONTINUES:
                    self._go_on(step, f"{step.title}: {step_run.detail}")
                    continue
                if is_whole and step.on_failure is OnFailure.ROLL_BACK:
                    return await self._roll_back(f"{step.title}: {step_run.detail}", unknown=step)
                return await self._finish(RunState.FAILED, f"{step.title}: {step_run.detail}")
            if result.no_help and step.on_failure is OnFailure.STOP:
                how = f"All steps are done, but {result.no_help}: {step_run.detail}."
                return await self._finish(RunState.NO_HELP, how)
            if step.on_failure in _CONTINUES and not result.is_last:
                self._go_on(step, run_text.failed(step_run))
            elif step.on_failure is OnFailure.ROLL_BACK and self._plan.rollback and self._has_acted:
                return await self._roll_back(run_text.failed(step_run))
            else:
                return await self._finish(RunState.FAILED, run_text.failed(step_run))
        broken, self._broken = self._broken, []
        await self._finish(RunState.FAILED if broken else RunState.DONE, sentences(*broken))
        return None

    def _go_on(self, step: Step, problem: str) -> None:
        (self._problems if step.on_failure is OnFailure.GO_ON else self._broken).append(problem)

    async def _roll_back(self, why: str, *, then: RunState = RunState.ROLLED_BACK, unknown: Step | None = None) -> None:
        """Run the rollback steps. Where the plan is all or nothing, a failure on one node doesn't keep the others from
        being rolled back; `unknown` is a step of which it is not known whether it was done."""
        why = why.strip().rstrip(".")
        self._abort.heeded()
        self._state = RunState.ROLLING_BACK
        self._start_picture = self._context.picture()  # waits of the rollback start from here
        self._record.skip_waiting()
        self._record.update(state=self._state, message=why)
        self._record.note("note", text="rolling back", why=self.run.message)
        used_ids = {step_run.step.id for step_run in self.run.steps}
        steps = [replace(back, id=f"back-{back.id}") if back.id in used_ids else back for back in self._plan.rollback]
        self._last_checks, self._is_settled = _checks_at_end(steps), False
        failures: dict[str, str] = {}
        was_skipped = False
        for index, step in zip(self._record.add(steps), steps, strict=True):
            if failures.keys() & {step.node, *step.needs_nodes}:
                continue
            result = await self._carry_out(index, step)
            step_run = self._record.run.steps[index]
            if result.is_aborted:
                return await self._finish(RunState.ABORTED, f"{why}. You aborted the rollback at: {step.title}.")
            if result.state is StepState.DONE:
                was_skipped |= unknown is not None and step_run.state is StepState.SKIPPED and step.node == unknown.node
                continue
            is_disconnected = self._context.lines.line(step.node) is None
            if step.on_failure is OnFailure.GO_ON and result.state is StepState.FAILED and not is_disconnected:
                self._problems.append(run_text.failed(step_run))
                continue
            failures[step.node] = run_text.failed(step_run)
            if not self._plan.is_all_or_nothing:
                break
        if failures or was_skipped:
            undoing = self.run.typed(unknown, undoes=True) if unknown is not None and was_skipped else ""
            unknown_note = f" If that step was done after all: {undoing}." if undoing else ""
            outcome = f"The rollback failed too: {'; '.join(failures.values())}" if failures else "Rolled back"
            final_state = then if then is RunState.ABORTED else RunState.FAILED
            return await self._finish(final_state, f"{why}. {outcome.rstrip('.')}.{unknown_note}")
        self._has_touched = False
        await self._settle()
        left = run_text.set_aside(steps, self._context.picture())
        await self._finish(then, f"{why}. Rolled back: everything is as before{left}.")
        return None

    async def _carry_out(self, index: int, step: Step) -> StepResult:
        """Carry out one step, recorded and audited; skipped where the operator has aborted."""
        if step.act.changes:  # what was done before it is known there even if this console dies in it
            await self._notes.send(step.node)
        if self._abort.is_wanted:
            return StepResult(state=StepState.SKIPPED, is_aborted=True)
        act = step.act.filled(saved_for(step.node, self.run.saved))
        if act is None:  # it acts on a container that was never created
            self._record.step(index, state=StepState.SKIPPED, detail="its container was never created")
            return StepResult(state=StepState.DONE)
        self._record.step(index, state=StepState.RUNNING, detail="")
        if step in self._last_checks:
            with suppress(Aborted):
                await self._abort.unless(self._settle())
        if self._locks.is_let_go and act.changes and not act.only_fetches:
            failure = await self._relock_all(index)
            if failure is not None:
                self._record.step_ended(index, failure)
                return failure
        result = await self._perform(index, step, act)
        if result.saved:
            node_ids = {**self.run.saved.get(step.node, {}), **result.saved}
            self._record.update(saved={**self.run.saved, step.node: node_ids}, is_told=False)
        self._record.step_ended(index, result)
        if result.guards is not None:
            self._guards[step.node] = result.guards
        if result.ready:
            view = self._context.picture().node(step.node)
            if view is not None:
                self._ready_views[step.node, result.ready] = view
        self._has_touched |= result.has_touched
        self._has_acted |= result.has_acted or result.has_touched
        if self.run.state is RunState.LINK_LOST:
            self._record.update(state=self._state)
        if result.evidence_path:
            self._record.update(evidence_path=result.evidence_path)
        return result

    async def _relock_all(self, index: int) -> StepResult | None:
        """Re-acquire every node lock before anything is changed; the failure if one can't be had."""
        until_s = self._context.clock.monotonic() + self._context.link_patience_s
        while True:
            try:
                await self._locks.take_all(self._changed_nodes(), patience_s=self._context.link_patience_s)
            except (NoLine, NodeTaken) as why:
                return StepResult(state=StepState.FAILED, detail=f"{why}. This step did not start.")
            except Aborted:
                return StepResult(state=StepState.SKIPPED, is_aborted=True)
            except TransportError as error:  # after hours, a link that looks alive may be dead
                if self._abort.is_wanted or self._context.clock.monotonic() > until_s:
                    return StepResult(state=StepState.FAILED, detail=f"{error.message}. This step did not start.")
                self._record.step(index, detail=f"{error.message}: trying again")
                await self._context.pause(RETRY_S)
            else:
                self._record.step(index, detail="")
                return None

    def _changed_nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.node for step in self._plan.steps if step.act.changes))

    async def _perform(self, index: int, step: Step, act: Act) -> StepResult:
        """Perform the act of a step, with the cause where it failed."""

        def tell(detail: str, ratio: float | None, silence: str) -> None:
            if silence:
                self._record.update(state=RunState.LINK_LOST)
            elif self.run.state is RunState.LINK_LOST:
                self._record.update(state=self._state)
            self._record.step(index, detail=detail, ratio=ratio)

        def lost(why: str) -> None:
            if self.run.state is not RunState.LINK_LOST:
                self._record.note("note", text="link lost", step=step.id, why=why)
            self._record.step(index, state=StepState.UNKNOWN, detail=why)
            self._record.update(state=RunState.LINK_LOST)

        def found(what: str) -> None:
            self._record.step(index, state=StepState.RUNNING, detail=what)
            self._record.update(state=self._state)

        hands = Hands(
            node=step.node,
            limit_s=step.limit_s,
            run_id=self.run.id,
            step_id=step.id,
            context=self._context,
            locks=self._locks,
            abort=self._abort,
            start_picture=self._start_picture,
            ready_views=self._ready_views,
            secrets=self._plan.secrets,
            tell=tell,
            lost=lost,
            found=found,
            password=self._password,
        )
        try:
            performed: Act = self._context.stand_in(act)
            result = await performed.perform(hands)
        except Aborted:
            return StepResult(state=StepState.SKIPPED, detail="given up", is_aborted=True)
        if result.state is StepState.FAILED:
            if self._has_left_question:
                state = result.state if result.has_touched else StepState.SKIPPED
                return replace(result, state=state, is_aborted=True)
            return replace(result, cause=act.cause(step.node, self._context.picture()))
        return result

    async def _password(self, node: str, wrong: int) -> str | None:
        """The password for a node: asked for once per run, again where it was wrong, and not kept longer."""
        if wrong:
            self._passwords.pop(node, None)
        if node in self._passwords:
            return self._passwords[node]
        try:
            password = await self._abort.unless(_answered(self._secret(node, wrong)))
        except Aborted:
            self._has_left_question = True
            return None
        if password:
            self._record.also_mask(password)
            self._passwords[node] = password
        return password

    # ending

    async def _finish(self, state: RunState, how: str, *, hint: str = "") -> None:
        """End the run: wait for newer figures, release the nodes, write the last entry, then publish it."""
        self._record.skip_waiting()
        if state not in (RunState.DONE, RunState.ROLLED_BACK):
            self._is_settled = False
        await self._settle()
        await self._locks.release()
        self._record.update(after=figures(self._context.picture(), self._nodes), is_told=False)
        self._record.update(**self._final_fields(state, how, hint), is_told=False)
        await self._record.end()
        missing = self._record.audit_problem
        unkept = await self._keep_measured()
        audit_note = f"The audit is incomplete: {missing}" if missing else ""
        for note in filter(None, (audit_note, unkept)):
            self._record.update(
                message=sentences(self.run.message, note),
                brief=sentences(run_text.brief(self.run), note),
                is_told=False,
            )
        self._record.update()

    async def _keep_measured(self) -> str:
        """Hand the ended run over to whoever keeps what it measured; why that couldn't be kept, or ""."""
        if self._context.keep_measured is None:
            return ""
        try:
            return await in_thread(self._context.keep_measured, self.run, self._begun_picture)
        except Exception as error:  # noqa: BLE001 - the run is over, and its result is shown all the same
            return faults.report("keeping what was measured", error)

    async def _settle(self) -> None:
        """Wait until the picture shows how the run leaves its nodes: before the last checks, else at the end."""
        if self._has_acted and not self._is_settled:
            if (tell := self._context.tell) is not None:
                for node in self._nodes:  # read once a minute otherwise: what was mended is seen at once
                    tell(node, {"facts": 1})
            await settled(self._context, self.run, self._nodes)
            self._is_settled = True

    def _final_fields(self, state: RunState, how: str, hint: str = "") -> dict[str, Any]:
        """The final fields of a run."""
        run = self.run
        guards = () if state is RunState.DONE else armed_guards(self._guards, self._context.picture())
        problems = [*self._problems, *self._broken, *guards]
        can_go_back = bool(self._plan.rollback) and self._has_touched and state in _CAN_ROLL_BACK
        brief = text = sentences(how, *problems)
        if state is RunState.DONE:
            left = run_text.set_aside(self._plan.steps, self._context.picture()) if self._plan.is_rollback else ""
            text = run_text.success(run, self._context.clock.monotonic() - self._began_s, left, but=problems)
        elif state is not RunState.ROLLED_BACK:
            text = run_text.message(run, how, but=problems)
        brief_hint = hint if can_go_back else None
        if state not in (RunState.DONE, RunState.ROLLED_BACK):
            hint = " · ".join(part for part in (hint, run_text.hint(run, can_go_back=can_go_back)) if part)
        return {
            "state": state,
            "message": text,
            "brief": brief,
            "hint": hint,
            "brief_hint": brief_hint,
            "can_go_back": can_go_back,
        }

    def _close(self) -> None:
        """Record that the console was closed during the run; there is only time for the audit."""
        current = next(
            (step_run for step_run in self.run.steps if step_run.state in (StepState.RUNNING, StepState.UNKNOWN)), None
        )
        reason = "The console was closed."
        if current is not None:
            act, node = current.step.act, current.step.node
            goes_on = f" {node} {act.goes_on}; the rest is cancelled." if act.goes_on else " The rest is cancelled."
            reason = f"The console was closed during: {current.step.title}.{goes_on}"
            self._has_touched |= bool(act.goes_on) and not act.only_fetches
        for index, step_run in enumerate(self.run.steps):
            if step_run is current:
                state = StepState.UNKNOWN if step_run.step.act.goes_on else StepState.SKIPPED
                self._record.step(index, state=state)
        self._record.skip_waiting()
        self._guards.clear()  # guards are disarmed with the console
        self._record.update(**self._final_fields(RunState.ABORTED, reason), is_told=False)
        if self._is_known:
            self._record.end_at_once()
        self._record.update()


def _checks_at_end(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps after the last one that changes or waits for something."""
    return tuple(takewhile(lambda step: step.act.is_check, reversed(steps)))


async def _answered(question: Awaitable[str | None]) -> str | None:
    return await question
