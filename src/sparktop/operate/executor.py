"""A run: the steps of a plan in their order, until all are done, one fails, or the operator wants out.

Nothing is begun before the intent is on disk and every node that is changed is locked. What a step did is never
guessed: it is told as done, failed, or not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any

from sparktop.errors import TransportError
from sparktop.model.plan import AwaitResolved, GuardOrder, OnFailure, Plan, Remote, Run, RunState, Step, StepState
from sparktop.operate import telling
from sparktop.operate.aborting import Abort, Aborted
from sparktop.operate.acting import Beginning, LocalStep
from sparktop.operate.audit import AuditError
from sparktop.operate.ended import Ended
from sparktop.operate.fetching import only_fetches
from sparktop.operate.figures import figures
from sparktop.operate.gate import Barred, changes
from sparktop.operate.hold import RETRY_S, Hold, NoLine, Taken
from sparktop.operate.line import AskSecret, OperationResult, Progress, Told
from sparktop.operate.means import Means
from sparktop.operate.operating import Changed
from sparktop.operate.pace import Pace
from sparktop.operate.record import Record, new_run
from sparktop.operate.remoting import Hears, RemoteStep
from sparktop.operate.saved import filled
from sparktop.operate.settling import settled
from sparktop.operate.undoing import armed_yet

_LEADS_BACK = (RunState.FAILED, RunState.NO_HELP, RunState.ABORTED)


@dataclass(slots=True, kw_only=True)
class _Course:
    """What has happened on the way."""

    has_touched: bool = False
    """Something is changed that isn't undone, or may be."""
    has_acted: bool = False
    problems: list[str]
    """Of steps after which the run went on."""
    guards: dict[str, str]
    """By node: over which container this run has armed the guard there."""


class PlanExecution:
    """Carries out one plan; implements `operating.Execution`."""

    def __init__(self, run_id: str, plan: Plan, *, means: Means, secret: AskSecret, changed: Changed) -> None:
        """`start` begins it; until then nothing is done."""
        self._plan = plan
        self._means = means
        self._secret = secret
        self._passwords: dict[str, str] = {}
        self._has_left_question = False
        """The operator got out where a password was asked for."""
        self._abort = Abort()
        self._record = Record(new_run(run_id, plan), means=means, changed=changed)
        self._hold = Hold(means, run_id, plan.title, self._abort)
        self._state = RunState.RUNNING
        """The state where nothing is lost."""
        self._nodes = tuple(dict.fromkeys((*plan.request.nodes, *plan.nodes)))
        self._began_s = means.clock.monotonic()
        self._is_known = False
        """The intent is in the audit, or may be: its writing has begun."""
        self._course = _Course(problems=[], guards={})
        self._beginning = Beginning(picture=means.picture())
        self._task: asyncio.Task[None] | None = None

    @property
    def run(self) -> Run:
        return self._record.run

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.create_task(self._whole(), name=f"run {self.run.id}")

    def refuse(self, barred: Barred) -> None:
        """End before the beginning."""
        self._record.skip_waiting()
        self._record.update(**self._end(RunState.REFUSED, barred.reason, " · ".join(barred.remedies)))

    def abort(self) -> None:
        if self.run.state.is_over or self._abort.is_wanted:
            return
        self._abort.want()
        if self._state is RunState.RUNNING:
            self._state = RunState.ABORTING
            if self.run.state is RunState.RUNNING:
                self._record.update(state=RunState.ABORTING)
        if self._is_known:
            self._record.note("note", text="the operator wants out")

    async def finished(self) -> Run:
        if self._task is not None:
            await asyncio.wait({self._task})
        return self.run

    async def leave(self) -> None:
        """The console is being closed: nothing more is begun from here; what a node has begun it finishes itself."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    # the course of it

    async def _whole(self) -> None:
        keeping = asyncio.create_task(self._hold.keep())
        try:
            if await self._prepared():
                await self._steps()
        except asyncio.CancelledError:
            self._left()
        except Exception as error:  # noqa: BLE001 - a fault of ours must end the run in sight, not leave it running
            await self._over(RunState.FAILED, f"A fault in sparktop ended the run: {type(error).__name__}: {error}")
        finally:
            keeping.cancel()
            self._passwords.clear()
            await self._hold.release()

    async def _prepared(self) -> bool:
        """Intent on disk, then every node that will be changed in our hands."""
        self._is_known = True
        try:
            await self._record.intent(figures(self._means.picture(), self._nodes))
        except AuditError as error:
            self._is_known = False
            self._record.skip_waiting()
            self._record.update(**self._end(RunState.REFUSED, error.message, error.hint or ""))
            return False
        for node in self._changed_nodes():
            try:
                if self._means.lines.line(node) is None:
                    self._record.step(0, detail=f"waiting for the runner on {node}")
                line = await self._hold.line(node, patience_s=self._means.first_line_s)
                await self._hold.take(line)
            except (NoLine, Taken) as why:
                await self._over(RunState.REFUSED, f"{why}.", hint="wait until that is over, then plan again")
                return False
            except TransportError as error:
                await self._over(RunState.REFUSED, f"{node}: {error.message}.", hint=error.hint or "")
                return False
            except Aborted:
                await self._over(RunState.ABORTED, "You got out before the first step.")
                return False
        self._record.step(0, detail="")
        return True

    async def _steps(self) -> None:
        for index, step in enumerate(self._plan.steps):
            ended = await self._take(index, step)
            if ended.is_aborted:
                said = self._record.run.steps[index].detail if ended.state is StepState.FAILED else ""
                why = f"You got out at: {step.title}{': ' + said.rstrip('.') if said else ''}"
                if self._plan.is_all_or_nothing and self._plan.way_back and self._course.has_acted:
                    unknown = step if ended.state is StepState.UNKNOWN else None
                    return await self._roll_back(why, then=RunState.ABORTED, unknown=unknown)
                return await self._over(RunState.ABORTED, f"{why}.")
            if ended.state is StepState.DONE:
                continue
            told = self._record.run.steps[index]
            if ended.state is StepState.UNKNOWN:
                is_whole = self._plan.is_all_or_nothing and bool(self._plan.way_back)
                if is_whole and step.on_failure is OnFailure.GO_ON:
                    self._course.problems.append(f"{step.title}: {told.detail}")
                    continue
                if is_whole and step.on_failure is OnFailure.ROLL_BACK:
                    return await self._roll_back(f"{step.title}: {told.detail}", unknown=step)
                return await self._over(RunState.FAILED, f"{step.title}: {told.detail}")
            if isinstance(step.act, AwaitResolved):
                return await self._over(RunState.NO_HELP, f"All was done, and it did not help: {told.detail}.")
            if step.on_failure is OnFailure.GO_ON:
                self._course.problems.append(telling.failed(told))
            elif step.on_failure is OnFailure.ROLL_BACK and self._plan.way_back and self._course.has_acted:
                return await self._roll_back(telling.failed(told))
            else:
                return await self._over(RunState.FAILED, telling.failed(told))
        await self._over(RunState.DONE, "")
        return None

    async def _roll_back(self, why: str, *, then: RunState = RunState.ROLLED_BACK, unknown: Step | None = None) -> None:
        """Take the way back. Of a plan that is all or nothing, what fails on one node keeps no other from being led
        back; `unknown` is a step of which it isn't known whether it was done."""
        why = why.strip().rstrip(".")
        self._abort.heeded()
        self._state = RunState.ROLLING_BACK
        self._beginning = Beginning(picture=self._means.picture())  # what failed is not what is waited for from here on
        self._record.skip_waiting()
        self._record.update(state=self._state, message=why)
        self._record.note("note", text="the way back is taken", why=self.run.message)
        used = {one.step.id for one in self.run.steps}
        steps = [replace(one, id=f"back-{one.id}") if one.id in used else one for one in self._plan.way_back]
        stuck: dict[str, str] = {}
        is_unmade = False
        for index, step in zip(self._record.add(steps), steps, strict=True):
            if stuck.keys() & {step.node, *step.needs_nodes}:
                continue
            ended = await self._take(index, step)
            told = self._record.run.steps[index]
            if ended.is_aborted:
                return await self._over(RunState.ABORTED, f"{why}. You got out of the way back at: {step.title}.")
            if ended.state is StepState.DONE:
                is_unmade |= unknown is not None and told.state is StepState.SKIPPED and step.node == unknown.node
                continue
            is_cut = self._means.lines.line(step.node) is None
            if step.on_failure is OnFailure.GO_ON and ended.state is StepState.FAILED and not is_cut:
                self._course.problems.append(telling.failed(told))
                continue
            stuck[step.node] = telling.failed(told)
            if not self._plan.is_all_or_nothing:
                break
        if stuck or is_unmade:
            rest = f" If it was done after all: {unknown.undone_by}." if unknown is not None and is_unmade else ""
            back = f"The way back failed too: {'; '.join(stuck.values())}" if stuck else "The way back was taken"
            over = then if then is RunState.ABORTED else RunState.FAILED
            return await self._over(over, f"{why}. {back.rstrip('.')}.{rest}")
        self._course.has_touched = False
        await self._over(then, f"{why}. It is as it was before: the way back was taken.")
        return None

    async def _take(self, index: int, step: Step) -> Ended:
        """One step, told and audited. Out before it, where the operator wants that."""
        if self._abort.is_wanted:
            return Ended(state=StepState.SKIPPED, is_aborted=True)
        act = filled(step.act, self.run.saved.get(step.node, {}))
        if act is None:  # it belongs to a container that was never made
            self._record.step(index, state=StepState.SKIPPED, detail="there is nothing to do it to")
            return Ended(state=StepState.DONE)
        step = replace(step, act=act)
        self._record.step(index, state=StepState.RUNNING, detail="")
        if self._hold.is_let_go and changes(step) and not only_fetches(act):
            obstacle = await self._all_again(index)
            if obstacle is not None:
                self._record.step_ended(index, obstacle)
                return obstacle
        if isinstance(act, Remote):
            ended = await self._remote(index, step, act)
        else:
            ended = await self._local(index, step)
        if ended.saved:
            of_node = {**self.run.saved.get(step.node, {}), **ended.saved}
            self._record.update(saved={**self.run.saved, step.node: of_node}, is_told=False)
        self._record.step_ended(index, ended)
        if isinstance(act, GuardOrder) and ended.state is StepState.DONE:
            self._course.guards[step.node] = act.container_name
        self._course.has_touched |= ended.has_touched
        self._course.has_acted |= ended.has_acted or ended.has_touched
        if self.run.state is RunState.LINK_LOST:
            self._record.update(state=self._state)
        if ended.evidence_path:
            self._record.update(evidence_path=ended.evidence_path)
        return ended

    async def _all_again(self, index: int) -> Ended | None:
        """Every node in our hands once more, before anything is changed; else why not."""
        until_s = self._means.clock.monotonic() + self._means.link_patience_s
        while True:
            try:
                await self._hold.take_all(self._changed_nodes(), patience_s=self._means.link_patience_s)
            except (NoLine, Taken) as why:
                return Ended(state=StepState.FAILED, detail=f"{why}. This step was not begun.")
            except Aborted:
                return Ended(state=StepState.SKIPPED, is_aborted=True)
            except TransportError as error:  # after hours, a link may be dead that looks alive
                if self._abort.is_wanted or self._means.clock.monotonic() > until_s:
                    return Ended(state=StepState.FAILED, detail=f"{error.message}. This step was not begun.")
                self._record.step(index, detail=f"{error.message}: it is tried again")
                await self._means.pause(RETRY_S)
            else:
                self._record.step(index, detail="")
                return None

    def _changed_nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.node for step in self._plan.steps if changes(step)))

    async def _remote(self, index: int, step: Step, act: Remote) -> Ended:
        pace = Pace()

        def lost(why: str) -> None:
            pace.skip()
            self._lost(index, why)

        hears = Hears(
            result=self._progress(index, len(act.operations), pace),
            lost=lost,
            found=lambda what: self._found(index, what),
        )
        work = RemoteStep(step, act, self.run.id, means=self._means, hold=self._hold, abort=self._abort, hears=hears)
        ended = await work.carry_out(self._ask)
        if self._has_left_question and ended.state is StepState.FAILED:
            return replace(ended, state=ended.state if ended.has_touched else StepState.SKIPPED, is_aborted=True)
        return ended

    def _progress(self, index: int, total: int, pace: Pace) -> Told:
        def told(result: OperationResult | Progress) -> None:
            if isinstance(result, Progress):
                pace.hear(result, self._means.clock.monotonic())
                detail = f"{result.index + 1} of {total}: {pace.words}" if total > 1 else pace.words
                ratio = None if pace.ratio is None else (result.index + pace.ratio) / total
                self._record.step(index, detail=detail, ratio=ratio)
                return
            if result.is_undo:
                self._record.step(index, detail="undoing what was done of it")
            elif result.ok and total > 1:
                done = result.index + 1
                self._record.step(index, detail=f"{done} of {total} done", ratio=done / total)

        return told

    def _lost(self, index: int, why: str) -> None:
        if self.run.state is not RunState.LINK_LOST:
            self._record.note("note", text="link lost", step=self.run.steps[index].step.id, why=why)
        self._record.step(index, state=StepState.UNKNOWN, detail=why)
        self._record.update(state=RunState.LINK_LOST)

    def _found(self, index: int, what: str) -> None:
        self._record.step(index, state=StepState.RUNNING, detail=what)
        self._record.update(state=self._state)

    async def _local(self, index: int, step: Step) -> Ended:
        work = LocalStep(
            means=self._means,
            hold=self._hold,
            abort=self._abort,
            beginning=self._beginning,
            secrets=self._plan.secrets,
        )

        def told(detail: str, ratio: float | None, silence: str) -> None:
            if silence:
                self._record.update(state=RunState.LINK_LOST)
            elif self.run.state is RunState.LINK_LOST:
                self._record.update(state=self._state)
            self._record.step(index, detail=detail, ratio=ratio)

        return await work.carry_out(step, told)

    async def _ask(self, node: str, wrong: int) -> str | None:
        """A password: asked for once in a run, kept no longer; again where it was wrong."""
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

    # the end of it

    async def _over(self, state: RunState, how: str, *, hint: str = "") -> None:
        """Newer figures, the nodes given back, the last entry, and then it is told."""
        self._record.skip_waiting()
        if self._course.has_acted:
            await settled(self._means, self.run, self._nodes)
        await self._hold.release()
        self._record.update(after=figures(self._means.picture(), self._nodes), is_told=False)
        self._record.update(**self._end(state, how, hint), is_told=False)
        await self._record.end()
        if missing := self._record.audit_problem:
            self._record.update(message=f"{self.run.message} The audit is not whole: {missing}.", is_told=False)
        self._record.update()

    def _end(self, state: RunState, how: str, hint: str = "") -> dict[str, Any]:
        """The fields of a run that is over."""
        run = self.run
        guards = () if state is RunState.DONE else armed_yet(self._course.guards, self._means.picture())
        problems = [*self._course.problems, *guards]
        can_go_back = bool(self._plan.way_back) and self._course.has_touched and state in _LEADS_BACK
        if state is RunState.DONE:
            said = telling.success(run, self._means.clock.monotonic() - self._began_s, but=problems)
        elif state is RunState.ROLLED_BACK:
            said = telling.plain(how, but=problems)
        else:
            said = telling.message(run, how, but=problems)
        if state not in (RunState.DONE, RunState.ROLLED_BACK):
            hint = " · ".join(part for part in (hint, telling.hint(run, can_go_back=can_go_back)) if part)
        return {"state": state, "message": said, "hint": hint, "can_go_back": can_go_back}

    def _left(self) -> None:
        """The console goes; there is no time left but for the audit."""
        current = next((one for one in self.run.steps if one.state in (StepState.RUNNING, StepState.UNKNOWN)), None)
        how = "The console was closed."
        if current is not None and isinstance(current.step.act, Remote):
            itself = "finishes or undoes by itself what it has begun of it"
            if only_fetches(current.step.act):
                itself = "goes on with it by itself, and the next run follows it"
            how = (
                f"The console was closed during: {current.step.title}. {current.step.node} {itself}; nothing after it "
                "is done."
            )
            self._course.has_touched |= not only_fetches(current.step.act)
        elif current is not None:
            how = f"The console was closed during: {current.step.title}. Nothing after it is done."
        for index, one in enumerate(self.run.steps):
            if one is current:
                was_remote = isinstance(one.step.act, Remote)
                self._record.step(index, state=StepState.UNKNOWN if was_remote else StepState.SKIPPED)
        self._record.skip_waiting()
        self._course.guards.clear()  # they go with the console
        self._record.update(**self._end(RunState.ABORTED, how), is_told=False)
        if self._is_known:
            self._record.end_at_once()
        self._record.update()


async def _answered(question: Awaitable[str | None]) -> str | None:
    return await question
