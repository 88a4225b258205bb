"""What the action keys do: choose an action, plan it, review the plan, run it, follow the run.

Nothing changes on a node before Run is pressed in the review. Whether a plan may run at all is checked by the executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from textual.app import App

from sparktop.documents.run import end_text, state_line
from sparktop.documents.step_text import masked
from sparktop.engines.ranks import is_alive
from sparktop.errors import SparktopError
from sparktop.model.finding import Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.request import Request
from sparktop.operate.actions import Action, action
from sparktop.operate.run.gate import unreachable_refusal
from sparktop.operate.run.operating import Execution, Operating
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.targets import Selection, TargetChoice, armed, remedy_choices, selected
from sparktop.recipe.operator_secrets import CLIENT_KEYS, client_key
from sparktop.text.lines import Line
from sparktop.ui.dialogs.dialog import Choice, ChooseScreen, OptionsScreen, WaitScreen
from sparktop.ui.dialogs.prompts import NamedSecret
from sparktop.ui.launch_flow import LaunchFlow, found_here
from sparktop.ui.screens.bring_up import BringUpFlow
from sparktop.ui.screens.change import ChangeScreen
from sparktop.ui.screens.fix import (
    Offer,
    actions,
    all_in_one,
    choices,
    first_applicable,
    introduction,
    other_finding_choices,
    ways,
    with_consequences,
)
from sparktop.ui.screens.review import RefusalScreen, ReviewScreen
from sparktop.ui.screens.run import RunScreen
from sparktop.ui.session_runs import SessionRuns
from sparktop.ui.setup import Setup

PATIENCE_S = 0.25
"""A dialog says that the plan is being made when it takes longer than this."""


DOUBT_WITHIN_S = 1.0
"""The remedies of a finding are shown after this time, whether their plans are there or not."""
APPLICABLE_AMONG = 4
"""So many other findings are looked at for one that can be fixed, where none of the first's remedies helps."""
_PLANNED_AHEAD = ("safe-restart", "drop-caches", "relaunch", "stop-engine", "break-restart-loop", "end-holder")
"""Actions that need no more settings than a remedy has: their plans tell what to expect of them."""
_WARNING_STATES = (RunState.ABORTED, RunState.NO_HELP, RunState.ROLLED_BACK)


AskSudo = Callable[[str, int], Awaitable[str | None]]
"""Asks for a node's sudo password: (node, number of wrong answers so far) to the password, None to give up."""


def _is_down(finding: Finding, picture: FleetState) -> bool:
    """Whether the engine that a finding is about doesn't run."""
    views = filter(None, map(picture.node, finding.nodes))
    engines = [one for view in views for one in view.engines if one.name in (finding.engine, finding.subject)]
    return bool(engines) and not any(map(is_alive, engines))


class ActionFlow:
    """Carries out the commands of the group "Acting"."""

    def __init__(
        self,
        app: App[Any],
        setup: Setup,
        session: SessionRuns,
        *,
        picture: Callable[[], FleetState],
        ask_sudo: AskSudo,
        show_log: Callable[[str, str], bool],
        glance: Callable[[Sequence[str], int], list[Line]],
    ) -> None:
        """`picture` returns the newest fleet state; `show_log` shows the log of (node, engine), False where there is no
        such engine (yet); `glance` returns the verdict and the memory of these nodes now, in lines of a width."""
        self._app = app
        self._ask = app.push_screen_wait
        self._clock = setup.clock
        self._session = session
        self._picture = picture
        self._ask_sudo = ask_sudo
        self.show_log = show_log
        self._glance = glance
        self._protected = setup.protected
        self._executions: dict[str, Execution] = {}
        self._open: RunScreen | None = None
        self._is_bringing_up = False
        self._page_runs: set[str] = set()
        """Ids of runs that the bring-up's page started, and whose end leads back there."""
        self._is_asking = False
        self.bringing_up = BringUpFlow(ask=self._ask, picture=picture, clock=setup.clock, kept=setup.proven)
        self.launching = LaunchFlow(
            ask=self._ask,
            picture=picture,
            plan=self._plan_or_refusal,
            clock=setup.clock,
            here=lambda fleet: found_here(fleet, self._operating),
            given=setup.files,
        )

    @property
    def _operating(self) -> Operating:
        assert self._session.operating is not None
        return self._session.operating

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
        chosen = action(name)
        assert chosen is not None, name
        if self._may_start(looks=chosen.only_looks):
            self._start_worker(self._act_on(chosen, selection))

    def launch(self, selection: Selection) -> None:
        """Choose a recipe and launch it; a read-only console only shows the recipes."""
        if not self._is_asking and (self._session.why_not or self._may_start()):
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
        runs = list(reversed(self._session.runs.values()))
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
        together = all_in_one(finding, self._picture())
        own = with_consequences(finding, self._picture().findings)
        remedies = (*((together,) if together is not None else ()), *own)
        offers = await self._offers(finding, remedies)
        is_down = _is_down(finding, self._picture())
        rows = choices(finding, offers, is_read_only=self._session.is_read_only, is_down=is_down)
        others = [other for other in others if other.key != finding.key]
        names = [view.name for view in self._picture().nodes]
        rows = (*rows, *other_finding_choices(others, names, count_above=len(rows)))
        is_hopeless = any(offer.expected_failure for offer in offers) and not any(offer.can_help for offer in offers)
        answer = await self._ask(
            ChooseScreen(
                "fix",
                rows,
                intro=lambda: introduction(self._newest(finding), names),
                verb="shows the plan",
                at=first_applicable(rows, instead=await self._first_fixable(others) if is_hopeless else None),
            )
        )
        if isinstance(answer, Finding):
            await self._choose_remedy(answer, (finding, *(other for other in others if other.key != answer.key)))
        elif isinstance(answer, Offer) and (chosen := action(answer.remedy.action or "")) is not None:
            remedy = answer.remedy
            request = await self._choose_target(chosen, remedy_choices(chosen, remedy, finding, self._picture()))
            left = tuple(f"not fixed: {title}" for title in remedy.leaves)
            await self._settle(chosen, request, (remedy.title, *remedy.steps, *left))

    def _newest(self, finding: Finding) -> Finding:
        """The finding as it is told now; resolved once it isn't any more."""
        newest = next((other for other in self._picture().findings if other.key == finding.key), None)
        return newest or replace(finding, phase=Phase.RESOLVED)

    async def _first_fixable(self, findings: Sequence[Finding]) -> Finding | None:
        """The first finding with a remedy that is expected to succeed: what stands in the way of the others, such as
        memory that only a reboot gives back."""
        for finding in findings[:APPLICABLE_AMONG]:
            if any(offer.can_help for offer in await self._offers(finding, finding.remedies)):
                return finding
        return None

    async def _offers(self, finding: Finding, remedies: Sequence[Remedy]) -> tuple[Offer, ...]:
        """The remedies, each with the doubt of its own plan where that is known in time."""
        planning: dict[int, asyncio.Future[Plan | Refusal]] = {}
        expected_failures = {}
        for index, remedy in enumerate(remedies):
            chosen = action(remedy.action or "")
            if chosen is None or self._session.is_read_only:
                continue
            targets = remedy_choices(chosen, remedy, finding, self._picture())
            is_whole = remedy.action in _PLANNED_AHEAD and (remedy.action != "relaunch" or remedy.change is not None)
            if targets and (barred := unreachable_refusal(targets[0].request, self._picture())) is not None:
                expected_failures[index] = str(barred)
            elif targets and is_whole:
                planning[index] = asyncio.ensure_future(self._plan_or_refusal(targets[0].request))
        if planning:
            await asyncio.wait(planning.values(), timeout=DOUBT_WITHIN_S)
        for index, answer in planning.items():
            if answer.done():
                made = answer.result()
                expected_failures[index] = made.expected_failure if isinstance(made, Plan) else made.reason
            answer.cancel()
        return tuple(Offer(remedy, expected_failures.get(index, "")) for index, remedy in enumerate(remedies))

    async def _launch(self, node: str) -> bool:
        return await self._start_reviewed(self.launching.choose(at=node, why_not=self._session.why_not))

    async def _start_reviewed(self, reviewed: Awaitable[Plan | None]) -> bool:
        """Start the plan that the review ends with; whether there was one."""
        if (plan := await reviewed) is not None:
            self._start(plan)
        return plan is not None

    async def _act_on(self, action: Action, selection: Selection) -> None:
        if action.name == "launch":
            await self._launch(selection.node)
        else:
            await self._settle(action, await self._choose_target(action, selected(action, self._picture(), selection)))

    async def _settle(self, action: Action, request: Request | None, intro: Sequence[str] = ()) -> bool:
        """Ask for what the plan still needs to know, plan and review it; whether it was started."""
        settled = await self._with_settings(action, request, intro) if request is not None else None
        return settled is not None and await self._review(action, settled)

    async def _with_settings(self, action: Action, request: Request, intro: Sequence[str] = ()) -> Request | None:
        """The request with what the plan needs to know: a relaunch's change, an option "way", a guard's options."""
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
        self._is_bringing_up = True
        try:
            while (request := await self.bringing_up.choose(self._operating, moves_on=moves_on)) is not None:
                chosen, moves_on = action(request.action), False
                if chosen is None:
                    return
                is_launch = chosen.name == "launch"
                if await (self._launch(request.nodes[0]) if is_launch else self._settle(chosen, request)):
                    return
        finally:
            self._is_bringing_up = False

    async def _choose(self, selection: Selection) -> None:
        is_read_only = self._session.is_read_only
        rows = actions(self._picture(), selection, is_read_only=is_read_only, protected=self._protected)
        chosen = await self._ask(ChooseScreen("actions", rows, verb="shows the plan"))
        if chosen is not None:
            await self._act_on(chosen, selection)

    async def _choose_target(self, action: Action, targets: Sequence[TargetChoice]) -> Request | None:
        """The only target's request, or the one that the operator chooses."""
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
        target = await self._ask(ChooseScreen(action.phrase, rows))
        return target.request if target is not None else None

    async def _with_change(self, request: Request, intro: Sequence[str]) -> Request | None:
        views = [view for view in map(self._picture().node, request.nodes) if view is not None]
        engines = [engine for view in views for engine in view.engines if engine.name == request.target]
        running_command = " ".join(engines[0].argv) if engines else ""
        change = await self._ask(
            ChangeScreen(f"change  {request.target}", request.change, intro=intro, running_command=running_command)
        )
        return None if change is None else replace(request, change=change)

    async def _with_options(self, action: Action, request: Request) -> Request | None:
        options = [option for option in action.options if option.name != "off"]
        title = f"{action.phrase}  {request.target or ' and '.join(request.nodes)}"
        values = await self._ask(OptionsScreen(title, options, request.options, intro=(action.description,)))
        return None if values is None else replace(request, options=values)

    async def _with_exposure(self, action: Action, request: Request) -> Request | None:
        """The request with the name that clients use, and the key that they must send."""
        named = await self._with_options(action, replace(request, options={"on": request.nodes[0], **request.options}))
        if named is None:
            return None
        key, _ = await asyncio.to_thread(client_key)
        use = "Clients send it as their API key. It goes into a file of root's beside the proxy, and is never shown."
        typed: str | None = "" if key else await self._ask(NamedSecret(CLIENT_KEYS[0], use=use))
        secret = key or typed or ""
        return replace(named, secret=secret) if secret else None

    async def _with_way(self, action: Action, request: Request) -> Request | None:
        """The request with the choice of the action's option "way"."""
        way = await self._ask(ChooseScreen(action.phrase, ways(action), verb="shows the plan"))
        return None if way is None else replace(request, options={"way": way})

    async def _review(self, action: Action | None, request: Request) -> bool:
        """Plan and review, again each time that the operator changes the options; whether it was started."""
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
        settings = (
            "" if action is None else "change" if action.name == "relaunch" else "options" if action.options else ""
        )
        if isinstance(answer, Plan):
            return await self._ask(
                ReviewScreen(answer, settings=settings, glance=partial(self._glance, answer.request.nodes))
            )
        title = action.phrase if action is not None else answer.request.action
        return await self._ask(RefusalScreen(answer, title=title, settings=settings))

    async def _plan(self, request: Request) -> Plan | Refusal | None:
        """Ask the nodes and plan; None when the operator stopped waiting."""
        planning = asyncio.ensure_future(self._plan_or_refusal(request))
        try:
            await asyncio.wait((planning,), timeout=PATIENCE_S)
            waiting = WaitScreen(f"Asking {' and '.join(request.nodes)} what it takes", planning)
            if not planning.done() and not await self._ask(waiting):
                return None
            return planning.result()
        finally:
            planning.cancel()

    async def _plan_or_refusal(self, request: Request) -> Plan | Refusal:
        """The planner's answer; an error in the planner becomes a refusal."""
        try:
            return await self._operating.plan(request)
        except SparktopError as error:
            return Refusal(request=request, reason=error.message, remedies=(error.hint,) if error.hint else ())
        except Exception as error:  # noqa: BLE001 - a planner's fault must not end the console at night
            self._app.log.error(error)
            return Refusal(request=request, reason=f"a fault in sparktop: {type(error).__name__}: {error}")

    def _start(self, plan: Plan) -> None:
        execution = self._operating.start(plan, secret=self._ask_sudo, changed=self._follow)
        run = execution.run
        self._executions[run.id] = execution
        self._session.runs[run.id] = run
        if self._is_bringing_up:
            self._page_runs.add(run.id)
        self._show(run)
        self._session.changed()

    def _follow(self, run: Run) -> None:
        """Show a run's new state; when it ended and isn't open, announce it."""
        before = self._session.runs.get(run.id)
        self._session.runs[run.id] = run
        screen = self._open
        is_seen = screen is not None and screen.is_attached and screen.run_shown.id == run.id
        if is_seen and screen is not None:
            screen.show(run)
        elif run.id in self._executions and run.state.is_over and not (before and before.state.is_over):
            self._session.unread.add(run.id)
            self._announce_end(run)
        self._session.changed()

    def _announce_end(self, run: Run) -> None:
        """Announce how a run ended: with the bell, and with a notification where a dialog hides the run's line."""
        is_well = run.state is RunState.DONE
        text = "\n".join(masked(line, run.plan.secrets) for line in end_text(run).splitlines())
        severity = "information" if is_well else "warning" if run.state in _WARNING_STATES else "error"
        if len(self._app.screen_stack) > 1:
            self._app.notify(f"{text}\no opens it", severity=severity, markup=False, timeout=20)  # type: ignore[arg-type]
        self._app.bell()

    def _show(self, run: Run) -> None:
        self._session.read(run.id)
        self._open = RunScreen(
            self._session.runs[run.id],
            self._clock,
            abort=lambda: self._executions[run.id].abort(),
            logs=self.show_log,
            glance=partial(self._glance, run.plan.request.nodes),
        )

        def closed(chosen: str | None) -> None:
            self._session.changed()
            is_of_page = run.id in self._page_runs
            self._page_runs.discard(run.id)
            if chosen == "back":
                self._go_back(run.id)
            elif chosen == "again":
                self._plan_again(run.plan.request)
            elif chosen == "close" and is_of_page and self._session.runs[run.id].state.is_over:
                self.bring_up(moves_on=True)

        self._app.push_screen(self._open, closed)

    def _go_back(self, run_id: str) -> None:
        plan = self._operating.rollback(self._session.runs[run_id])
        if plan is None:
            self._notify("there is no rollback any more")
        else:
            self._start_worker(self._review_back(plan))

    async def _review_back(self, plan: Plan) -> None:
        if await self._review_verdict(None, plan) == "run":
            self._start(plan)

    def _plan_again(self, request: Request) -> None:
        if not self._may_start():
            return
        if request.order is not None:
            self._start_worker(self._start_reviewed(self.launching.anew(request.order, request.nodes)))
        else:
            self._start_worker(self._review(action(request.action), request))

    async def _choose_run(self, runs: Sequence[Run]) -> None:
        now_s = self._clock.wall()
        rows = [
            Choice(label=Line.of((run.plan.title, "value")), notes=(state_line(run, now_s),), value=run) for run in runs
        ]
        run = await self._ask(ChooseScreen("runs of this session", rows, verb="open"))
        if run is not None:
            self._show(run)

    # Helpers

    def _may_start(self, *, looks: bool = False) -> bool:
        """Whether a command may start now; notifies the operator why not. `looks`: the command can be read-only."""
        if why_not := self._session.refusal if looks else self._session.why_not:
            hint = "" if self._session.refusal else " x shows what can be done here."
            self._notify(f"{why_not}{hint}", severity="warning")
            return False
        if self._session.operating is None:
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

    def _notify(self, text: str, *, severity: str = "information") -> None:
        self._app.notify(text, severity=severity, markup=False, timeout=6)  # type: ignore[arg-type]
