"""What the action keys do: choose an action, plan it, review the plan, run it, follow the run.

Nothing changes on a node before Run is pressed in the review. Whether a plan may run at all is checked by the executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App
from textual.screen import Screen

from sparktop.clock import Clock
from sparktop.engines.ranks import is_alive
from sparktop.errors import SparktopError
from sparktop.model.finding import Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, LinkState
from sparktop.operate.step.run import Run, RunState
from sparktop.text.lines import Line
from sparktop.ui.bring_up_flow import BringUpFlow
from sparktop.ui.launch_flow import LaunchFlow, found_here

if TYPE_CHECKING:
    from sparktop.model.request import Request
    from sparktop.operate.actions import Action
    from sparktop.operate.audit.interrupted_runs import InterruptedRun
    from sparktop.operate.run.operating import Execution, Operating
    from sparktop.operate.step.plan import Plan, Refusal
    from sparktop.operate.targets import Selection, TargetChoice
    from sparktop.ui.screens.run import RunScreen

PATIENCE_S = 0.25
"""A dialog says that the plan is being made when it takes longer than this."""


DOUBT_WITHIN_S = 1.0
"""The remedies of a finding are shown after this time, whether their plans are there or not."""
APPLICABLE_AMONG = 4
"""So many other findings are looked at for one that can be fixed, where none of the first's remedies helps."""
_PLANNED_AHEAD = ("safe-restart", "drop-caches", "relaunch", "stop-engine", "break-restart-loop", "end-holder")
"""Actions that need no more settings than a remedy has: their plans tell what to expect of them."""
_WARNING_STATES = (RunState.ABORTED, RunState.NO_HELP, RunState.ROLLED_BACK)


Answer = TypeVar("Answer")


AskSudo = Callable[[str, int], Awaitable[str | None]]
"""Asks for a node's sudo password: (node, number of wrong answers so far) to the password, None to give up."""


def _is_down(finding: Finding, picture: FleetState) -> bool:
    """Whether the engine that a finding is about doesn't run."""
    views = filter(None, map(picture.node, finding.nodes))
    engines = [one for view in views for one in view.engines if one.name in (finding.engine, finding.subject)]
    return bool(engines) and not any(map(is_alive, engines))


class ActionFlow:
    """Carries out the commands of the group "Acting", and keeps the runs of this session."""

    def __init__(
        self,
        app: App[Any],
        clock: Clock,
        *,
        is_read_only: bool,
        refusal: str = "",
        picture: Callable[[], FleetState],
        changed: Callable[[], None],
        ask_sudo: AskSudo,
        protected: Collection[str] = (),
        proven: Path | None = None,
    ) -> None:
        """`picture` returns the newest fleet state; `changed` is called when `shown` may have changed; `proven` is the
        file of what bring-ups have proven, None: none is kept."""
        self._app = app
        self._clock = clock
        self._is_read_only = is_read_only
        self._refusal = refusal
        self._picture = picture
        self._on_change = changed
        self._ask_sudo = ask_sudo
        self._protected = protected
        self._operating: Operating | None = None
        self._runs: dict[str, Run] = {}
        self._executions: dict[str, Execution] = {}
        self._unread: set[str] = set()
        """Ids of runs that are over and whose result the operator hasn't opened."""
        self._open: RunScreen | None = None
        self._is_bringing_up = False
        self._page_runs: set[str] = set()
        """Ids of runs that the bring-up's page started, and whose end leads back there."""
        self._is_asking = False
        self._cut_off = InterruptedRuns()
        self.show_log: Callable[[str, str], bool] = lambda node, engine: False
        """Shows the log of (node, engine); False where there is no such engine (yet). Set by the console."""
        self.glance: Callable[[Sequence[str], int], list[Line]] = lambda nodes, width: []
        """The verdict and the memory of these nodes now, in lines of a width. Set by the console."""
        self.bringing_up = BringUpFlow(ask=self._ask_screen, picture=picture, clock=clock, kept=proven)
        self.launching = LaunchFlow(ask=self._ask_screen, picture=picture, plan=self._plan_or_refusal, clock=clock)

    def attach(self, operating: Operating) -> None:
        """Enable planning, and look in the audit for runs that an earlier console left interrupted."""
        self._operating = operating
        self.launching.here = partial(found_here, operating=operating)
        self._app.run_worker(self._recall_cut_off(operating), name="cut-off", exit_on_error=False)

    async def _recall_cut_off(self, operating: Operating) -> None:
        await self._cut_off.recall(operating)
        self.see(self._picture())

    def see(self, picture: FleetState) -> None:
        """Take the newest fleet state: show or drop the interrupted runs that an earlier console left."""
        for run_id, run in self._cut_off.news(picture):
            if run is None:
                self._runs.pop(run_id, None)
                self._unread.discard(run_id)
            else:
                self._runs[run_id] = run
                self._unread.add(run_id)
            self._on_change()

    # The runs

    @property
    def under_way(self) -> tuple[Run, ...]:
        """The runs that are not over."""
        return tuple(run for run in self._runs.values() if not run.state.is_over)

    @property
    def shown(self) -> tuple[Run, ...]:
        """Runs for the console's top lines: those under way, then those that ended unread."""
        return (*self.under_way, *(run for run in self._runs.values() if run.id in self._unread))

    @property
    def has_read_run(self) -> bool:
        """Whether a run of this session has ended and has no line at the top any more."""
        return bool(self._runs) and not self.shown

    # The commands

    def fix(self, finding: Finding | None, others: Sequence[Finding] = ()) -> None:
        """Choose among the remedies of a finding, or go on to another of the `others`."""
        if finding is None:
            lost = " and ".join(view.name for view in self._picture().nodes if view.link.state is LinkState.LOST)
            self._notify(
                f"no finding to fix; {lost} can't be reached: the first line has why" if lost else "nothing to fix"
            )
        elif self._may_start(looks=True):
            self._start_worker(self._choose_remedy(finding, others))

    def act(self, name: str, selection: Selection) -> None:
        """Start the named action on the selection; asks which target is meant where that is not clear."""
        from sparktop.operate.actions import action

        chosen = action(name)
        assert chosen is not None, name
        if self._may_start(looks=chosen.only_looks):
            self._start_worker(self._act_on(chosen, selection))

    def launch(self, selection: Selection) -> None:
        """Choose a recipe and launch it; a read-only console only shows the recipes."""
        if not self._is_asking and (self.is_read_only or self._may_start()):
            self._start_worker(self._launch(selection.node))

    def bring_up(self, *, moves_on: bool = False) -> None:
        """Look at the nodes chapter by chapter; what the operator chooses there is planned and reviewed. `moves_on`: to
        the problem after the one chosen last."""
        if self._may_start(looks=True):
            self._start_worker(self._bring_up(moves_on=moves_on))

    def choose(self, selection: Selection) -> None:
        """Choose among all actions for the selection."""
        if self._may_start(looks=True):
            self._start_worker(self._choose(selection))

    def open_run(self) -> None:
        """Show the run under way, else the last one; with several, ask which."""
        runs = list(reversed(self._runs.values()))
        if not runs:
            self._notify("nothing has been done in this session")
            return
        candidates = [run for run in runs if not run.state.is_over] or runs
        if len(runs) == 1 or (len(candidates) == 1 and not candidates[0].state.is_over):
            self._show(candidates[0])
        else:
            self._start_worker(self._choose_run(runs))

    # The steps from a choice to a run

    async def _choose_remedy(self, finding: Finding, others: Sequence[Finding]) -> None:
        from sparktop.operate.actions import action
        from sparktop.operate.targets import remedy_choices
        from sparktop.ui.dialogs.dialog import ChooseScreen
        from sparktop.ui.screens.fix import (
            all_in_one,
            choices,
            first_applicable,
            introduction,
            is_applicable,
            other_finding_choices,
            with_consequences,
        )

        together = all_in_one(finding, self._picture())
        own = with_consequences(finding, self._picture().findings)
        remedies = (*((together,) if together is not None else ()), *own)
        doubts = await self._doubts(finding, remedies)
        doubtful = tuple(remedy for remedy, doubt in zip(remedies, doubts, strict=True) if doubt)
        rows = choices(
            finding, remedies, doubts=doubts, is_read_only=self.is_read_only, is_down=_is_down(finding, self._picture())
        )
        others = [other for other in others if other.key != finding.key]
        names = [view.name for view in self._picture().nodes]
        rows = (*rows, *other_finding_choices(others, names, count_above=len(rows)))
        is_hopeless = bool(doubtful) and not any(is_applicable(remedy) for remedy in remedies if remedy not in doubtful)
        remedy = await self._ask_screen(
            ChooseScreen(
                "fix",
                rows,
                intro=lambda: introduction(self._newest(finding), names),
                verb="shows the plan",
                at=first_applicable(
                    rows, doubtful=doubtful, instead=await self._first_fixable(others) if is_hopeless else None
                ),
            )
        )
        if isinstance(remedy, Finding):
            remaining = [other for other in others if other.key != remedy.key]
            await self._choose_remedy(remedy, (finding, *remaining))
            return
        chosen = action(remedy.action or "") if remedy is not None else None
        if remedy is None or chosen is None:
            return
        request = await self._choose_target(chosen, remedy_choices(chosen, remedy, finding, self._picture()))
        if request is not None:
            left = tuple(f"not fixed: {title}" for title in remedy.leaves)
            request = await self._with_settings(chosen, request, (remedy.title, *remedy.steps, *left))
        if request is not None:
            await self._review(chosen, request)

    def _newest(self, finding: Finding) -> Finding:
        """The finding as it is told now; resolved once it isn't any more."""
        newest = next((other for other in self._picture().findings if other.key == finding.key), None)
        return newest or replace(finding, phase=Phase.RESOLVED)

    async def _first_fixable(self, findings: Sequence[Finding]) -> Finding | None:
        """The first finding with a remedy that is expected to succeed: what stands in the way of the others, such as
        memory that only a reboot gives back."""
        from sparktop.ui.screens.fix import is_applicable

        for finding in findings[:APPLICABLE_AMONG]:
            doubts = await self._doubts(finding, finding.remedies)
            if any(is_applicable(remedy) and not doubt for remedy, doubt in zip(finding.remedies, doubts, strict=True)):
                return finding
        return None

    async def _doubts(self, finding: Finding, remedies: Sequence[Remedy]) -> tuple[str, ...]:
        """Why each remedy is expected to fail now, by its own plan; "" where it isn't, or that isn't known in time."""
        from sparktop.operate.actions import action
        from sparktop.operate.step.plan import Plan
        from sparktop.operate.targets import remedy_choices

        planning: dict[int, asyncio.Future[Plan | Refusal]] = {}
        for index, remedy in enumerate(remedies):
            chosen = action(remedy.action or "")
            is_whole = remedy.action in _PLANNED_AHEAD and (remedy.action != "relaunch" or remedy.change is not None)
            if chosen is None or not is_whole or self.is_read_only:
                continue
            targets = remedy_choices(chosen, remedy, finding, self._picture())
            if targets:
                planning[index] = asyncio.ensure_future(self._plan_or_refusal(targets[0].request))
        if planning:
            await asyncio.wait(planning.values(), timeout=DOUBT_WITHIN_S)
        doubts = {}
        for index, answer in planning.items():
            if answer.done():
                made = answer.result()
                doubts[index] = made.doubt if isinstance(made, Plan) else made.reason
            answer.cancel()
        return tuple(doubts.get(index, "") for index in range(len(remedies)))

    async def _launch(self, node: str) -> bool:
        return await self._start_reviewed(self.launching.choose(at=node, is_read_only=self.is_read_only))

    async def _start_reviewed(self, reviewed: Awaitable[Plan | None]) -> bool:
        """Start the plan that the review ends with; whether there was one."""
        if (plan := await reviewed) is not None:
            self._start(plan)
        return plan is not None

    async def _act_on(self, action: Action, selection: Selection) -> None:
        from sparktop.operate.targets import selected

        if action.name == "launch":
            await self._launch(selection.node)
            return
        request = await self._choose_target(action, selected(action, self._picture(), selection))
        if request is not None:
            request = await self._with_settings(action, request)
        if request is not None:
            await self._review(action, request)

    async def _with_settings(self, action: Action, request: Request, intro: Sequence[str] = ()) -> Request | None:
        """The request with what the plan needs to know: a relaunch's change, an option "way", a guard's options."""
        from sparktop.operate.targets import armed

        if action.name == "relaunch":
            return await self._with_change(request, intro)
        if action.name == "guard" and armed(self._picture().node(request.nodes[0])):
            return replace(request, options={"off": "yes"})
        if action.name == "guard":
            return await self._with_options(action, request)
        if action.name == "expose":
            return await self._with_exposure(action, request)
        if any(option.name == "way" for option in action.options):
            return await self._with_way(action, request)
        return request

    async def _bring_up(self, *, moves_on: bool) -> None:
        """The page, and what is chosen there; the page again where nothing was started, or once the run is closed."""
        from sparktop.operate.actions import action

        assert self._operating is not None
        self._is_bringing_up = True
        try:
            while (request := await self.bringing_up.choose(self._operating, moves_on=moves_on)) is not None:
                chosen, moves_on = action(request.action), False
                if chosen is None or await self._fix_row(chosen, request):
                    return
        finally:
            self._is_bringing_up = False

    async def _fix_row(self, action: Action, request: Request) -> bool:
        """Plan what a row of the page needs; whether it was started."""
        if action.name == "launch":
            return await self._launch(request.nodes[0])
        settled = await self._with_settings(action, request)
        return settled is not None and await self._review(action, settled)

    async def _choose(self, selection: Selection) -> None:
        from sparktop.ui.dialogs.dialog import ChooseScreen
        from sparktop.ui.screens.fix import actions

        rows = actions(self._picture(), selection, is_read_only=self.is_read_only, protected=self._protected)
        action = await self._ask_screen(ChooseScreen("actions", rows, verb="shows the plan"))
        if action is not None:
            await self._act_on(action, selection)

    async def _choose_target(self, action: Action, targets: Sequence[TargetChoice]) -> Request | None:
        """The only target's request, or the one that the operator chooses."""
        from sparktop.text.lines import Line
        from sparktop.ui.dialogs.dialog import Choice, ChooseScreen

        if not targets:
            noun = {"engine": "engine", "process": "process on the GPU"}.get(action.target, "node")
            self._notify(f"{action.phrase}: there is no {noun}")
            return None
        if len(targets) == 1:
            return targets[0].request
        rows = [
            Choice(
                label=Line.of((target.label, "value"), (f"  {target.note}" if target.note else "", "quiet")),
                value=target,
            )
            for target in targets
        ]
        target = await self._ask_screen(ChooseScreen(action.phrase, rows))
        return target.request if target is not None else None

    async def _with_change(self, request: Request, intro: Sequence[str]) -> Request | None:
        from sparktop.ui.screens.change import ChangeScreen

        views = [view for view in map(self._picture().node, request.nodes) if view is not None]
        engines = [engine for view in views for engine in view.engines if engine.name == request.target]
        running_command = " ".join(engines[0].argv) if engines else ""
        change = await self._ask_screen(
            ChangeScreen(f"change  {request.target}", request.change, intro=intro, running_command=running_command)
        )
        return None if change is None else replace(request, change=change)

    async def _with_options(self, action: Action, request: Request) -> Request | None:
        from sparktop.ui.dialogs.dialog import OptionsScreen

        options = [option for option in action.options if option.name != "off"]
        title = f"{action.phrase}  {request.target or ' and '.join(request.nodes)}"
        values = await self._ask_screen(OptionsScreen(title, options, request.options, intro=(action.description,)))
        return None if values is None else replace(request, options=values)

    async def _with_exposure(self, action: Action, request: Request) -> Request | None:
        """The request with the name that clients use, and the key that they must send."""
        from sparktop.recipe.operator_secrets import CLIENT_KEYS, client_key
        from sparktop.ui.dialogs.prompts import NamedSecret

        named = await self._with_options(action, replace(request, options={"on": request.nodes[0], **request.options}))
        if named is None:
            return None
        key, _ = await asyncio.to_thread(client_key)
        use = "Clients send it as their API key. It goes into a file of root's beside the proxy, and is never shown."
        typed: str | None = "" if key else await self._ask_screen(NamedSecret(CLIENT_KEYS[0], use=use))
        secret = key or typed or ""
        return replace(named, secret=secret) if secret else None

    async def _with_way(self, action: Action, request: Request) -> Request | None:
        """The request with the choice of the action's option "way"."""
        from sparktop.ui.dialogs.dialog import ChooseScreen
        from sparktop.ui.screens.fix import ways

        way = await self._ask_screen(ChooseScreen(action.phrase, ways(action), verb="shows the plan"))
        return None if way is None else replace(request, options={"way": way})

    async def _review(self, action: Action | None, request: Request) -> bool:
        """Plan and review, again each time that the operator changes the options; whether it was started."""
        from sparktop.operate.step.plan import Plan

        answer = await self._plan(request)
        while answer is not None:
            verdict = await self._review_verdict(action, answer)
            if verdict == "run" and isinstance(answer, Plan):
                self._start(answer)
                return True
            if verdict != "set" or action is None:
                return False
            changed = await (
                self._with_change(request, ()) if action.name == "relaunch" else self._with_options(action, request)
            )
            if changed is not None:
                request = changed
                answer = await self._plan(request)
        return False

    async def _review_verdict(self, action: Action | None, answer: Plan | Refusal) -> str | None:
        from sparktop.operate.step.plan import Plan
        from sparktop.ui.screens.review import RefusalScreen, ReviewScreen

        settings = (
            "" if action is None else "change" if action.name == "relaunch" else "options" if action.options else ""
        )
        if isinstance(answer, Plan):
            return await self._ask_screen(
                ReviewScreen(answer, settings=settings, glance=partial(self.glance, answer.request.nodes))
            )
        title = action.phrase if action is not None else answer.request.action
        return await self._ask_screen(RefusalScreen(answer, title=title, settings=settings))

    async def _plan(self, request: Request) -> Plan | Refusal | None:
        """Ask the nodes and plan; None when the operator stopped waiting."""
        from sparktop.ui.dialogs.dialog import WaitScreen

        planning = asyncio.ensure_future(self._plan_or_refusal(request))
        try:
            await asyncio.wait((planning,), timeout=PATIENCE_S)
            waiting = WaitScreen(f"Asking {' and '.join(request.nodes)} what it takes", planning)
            if not planning.done() and not await self._ask_screen(waiting):
                return None
            return planning.result()
        finally:
            planning.cancel()

    async def _plan_or_refusal(self, request: Request) -> Plan | Refusal:
        """The planner's answer; an error in the planner becomes a refusal."""
        from sparktop.operate.step.plan import Refusal

        assert self._operating is not None
        try:
            return await self._operating.plan(request)
        except SparktopError as error:
            return Refusal(request=request, reason=error.message, remedies=(error.hint,) if error.hint else ())
        except Exception as error:  # noqa: BLE001 - a planner's fault must not end the console at night
            self._app.log.error(error)
            return Refusal(request=request, reason=f"a fault in sparktop: {type(error).__name__}: {error}")

    def _start(self, plan: Plan) -> None:
        assert self._operating is not None
        execution = self._operating.start(plan, secret=self._ask_sudo, changed=self._follow)
        run = execution.run
        self._executions[run.id] = execution
        self._runs[run.id] = run
        if self._is_bringing_up:
            self._page_runs.add(run.id)
        self._show(run)
        self._on_change()

    def _follow(self, run: Run) -> None:
        """Show a run's new state; when it ended and isn't open, announce it."""
        before = self._runs.get(run.id)
        self._runs[run.id] = run
        screen = self._open
        is_seen = screen is not None and screen.is_attached and screen.run_shown.id == run.id
        if is_seen and screen is not None:
            screen.show(run)
        elif run.id in self._executions and run.state.is_over and not (before and before.state.is_over):
            self._unread.add(run.id)
            self._announce_end(run)
        self._on_change()

    def _announce_end(self, run: Run) -> None:
        """Announce how a run ended: with the bell, and with a notification where a dialog hides the run's line."""
        from sparktop.documents.run import end_text
        from sparktop.documents.step_text import masked

        is_well = run.state is RunState.DONE
        text = "\n".join(masked(line, run.plan.secrets) for line in end_text(run).splitlines())
        severity = "information" if is_well else "warning" if run.state in _WARNING_STATES else "error"
        if len(self._app.screen_stack) > 1:
            self._app.notify(f"{text}\no opens it", severity=severity, markup=False, timeout=20)  # type: ignore[arg-type]
        self._app.bell()

    def _show(self, run: Run) -> None:
        from sparktop.ui.screens.run import RunScreen

        self._unread.discard(run.id)
        self._cut_off.read(run.id)
        self._open = RunScreen(
            self._runs[run.id],
            self._clock,
            abort=lambda: self._executions[run.id].abort(),
            back=lambda: self._go_back(run.id),
            again=lambda: self._plan_again(run.plan.request),
            logs=self.show_log,
            glance=partial(self.glance, run.plan.request.nodes),
        )

        def closed(is_only_closed: bool | None) -> None:
            self._on_change()
            is_of_page = run.id in self._page_runs
            self._page_runs.discard(run.id)
            if is_of_page and is_only_closed and self._runs[run.id].state.is_over:
                self.bring_up(moves_on=True)

        self._app.push_screen(self._open, closed)

    def _go_back(self, run_id: str) -> None:
        plan = self._operating.way_back(self._runs[run_id]) if self._operating is not None else None
        if plan is None:
            self._notify("there is no rollback any more")
        else:
            self._start_worker(self._review_back(plan))

    async def _review_back(self, plan: Plan) -> None:
        if await self._review_verdict(None, plan) == "run":
            self._start(plan)

    def _plan_again(self, request: Request) -> None:
        from sparktop.operate.actions import action

        if not self._may_start():
            return
        if request.order is not None:
            self._start_worker(self._start_reviewed(self.launching.anew(request.order, request.nodes)))
        else:
            self._start_worker(self._review(action(request.action), request))

    async def _choose_run(self, runs: Sequence[Run]) -> None:
        from sparktop.documents.run import state_line
        from sparktop.text.lines import Line
        from sparktop.ui.dialogs.dialog import Choice, ChooseScreen

        now_s = self._clock.wall()
        rows = [
            Choice(label=Line.of((run.plan.title, "value")), notes=(state_line(run, now_s),), value=run) for run in runs
        ]
        run = await self._ask_screen(ChooseScreen("runs of this session", rows, verb="open"))
        if run is not None:
            self._show(run)

    # Helpers

    @property
    def is_read_only(self) -> bool:
        return self._is_read_only or (self._operating is not None and self._operating.is_read_only)

    def _may_start(self, *, looks: bool = False) -> bool:
        """Whether a command may start now; notifies the operator why not. `looks`: the command can be read-only."""
        if self._refusal:
            self._notify(self._refusal, severity="warning")
            return False
        if self.is_read_only and not looks:
            self._notify("read-only: this console changes nothing; start it without --read-only, or take read_only "
                      "out of config.toml. x shows what can be done here", severity="warning")  # fmt: skip
            return False
        if self._operating is None:
            self._notify("still starting: press the key again in a moment")
            return False
        return not self._is_asking

    def _start_worker(self, work: Coroutine[Any, Any, object]) -> None:
        self._is_asking = True

        async def guarded() -> None:
            try:
                await work
            finally:
                self._is_asking = False

        self._app.run_worker(guarded(), name="acting", group="acting")

    async def _ask_screen(self, screen: Screen[Answer]) -> Answer | None:
        return await self._app.push_screen_wait(screen)

    def _notify(self, text: str, *, severity: str = "information") -> None:
        self._app.notify(text, severity=severity, markup=False, timeout=6)  # type: ignore[arg-type]


class InterruptedRuns:
    """Interrupted runs that the audit held when the console connected, and those that are shown now."""

    def __init__(self) -> None:
        self._operating: Operating | None = None
        self._interrupted: dict[str, InterruptedRun] = {}
        self._shown: dict[str, Run] = {}

    async def recall(self, operating: Operating) -> None:
        """Read the interrupted runs from the audit."""
        self._operating = operating
        self._interrupted = {interrupted.run.id: interrupted for interrupted in await operating.interrupted_runs()}

    def news(self, picture: FleetState) -> Iterator[tuple[str, Run | None]]:
        """(run id, run to show) for each one that changed; None: it is no longer to be shown."""
        if not self._interrupted:
            return
        from sparktop.operate.audit.interrupted_runs import run_report

        for run_id, interrupted in self._interrupted.items():
            run = run_report(interrupted, picture)
            if run == self._shown.get(run_id):
                continue
            if run is None:
                del self._shown[run_id]
            else:
                self._shown[run_id] = run
            yield run_id, run

    def read(self, run_id: str) -> None:
        """Mark a run as read: it stays as it is shown now, and no later console shows it."""
        if self._interrupted.pop(run_id, None) is not None and self._operating is not None:
            self._operating.read(run_id)
