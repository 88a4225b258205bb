"""From a key to a run: which action, on what, the plan, its review, the run. One thing is asked at a time.

Nothing is changed before the review's Run is pressed; what may be run at all is the executor's to say, not ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App
from textual.screen import Screen

from sparktop.clock import Clock
from sparktop.errors import SparktopError
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request, Run, RunState
from sparktop.ui.cutoff import CutOffRuns
from sparktop.ui.launching import Launching

if TYPE_CHECKING:
    from sparktop.operate.actions import Action
    from sparktop.operate.operating import Execution, Operating
    from sparktop.operate.wishes import Selection, Wish
    from sparktop.ui.screens.run import RunScreen

PATIENCE_S = 0.25
"""A plan that comes sooner needs no dialog that says it is being made."""

_MILD = (RunState.ABORTED, RunState.NO_HELP, RunState.ROLLED_BACK)
Answer = TypeVar("Answer")
AskSudo = Callable[[str, int], Awaitable[str | None]]
"""Asks for a node's sudo password, of which so many were wrong; None when the operator gave up."""


class Acting:
    """What the keys of the group Acting do, and the runs of this session."""

    def __init__(
        self,
        app: App[Any],
        clock: Clock,
        *,
        is_read_only: bool,
        picture: Callable[[], FleetState],
        changed: Callable[[], None],
        ask_sudo: AskSudo,
    ) -> None:
        """`picture` is the newest; `changed` is called when `shown` may be another."""
        self._app = app
        self._clock = clock
        self._is_read_only = is_read_only
        self._picture = picture
        self._tell = changed
        self._ask_sudo = ask_sudo
        self._operating: Operating | None = None
        self._runs: dict[str, Run] = {}
        self._executions: dict[str, Execution] = {}
        self._unread: set[str] = set()
        """Runs that are over, and whose end nobody has looked at."""
        self._open: RunScreen | None = None
        self._is_asking = False
        self._cut_off = CutOffRuns()
        self.show_log: Callable[[str, str], bool] = lambda node, engine: False
        """Shows an engine's log; False where it isn't there (yet). Set by the console."""
        self.launching = Launching(ask=self._ask, picture=picture, plan=self._answered, clock=clock)

    def attach(self, operating: Operating | None) -> None:
        """From now on plans can be made; what an earlier console has left is looked for."""
        self._operating = operating
        if operating is not None:
            self._app.run_worker(self._recall(operating), name="cut-off", exit_on_error=False)

    async def _recall(self, operating: Operating) -> None:
        await self._cut_off.recall(operating)
        self.see(self._picture())

    def see(self, picture: FleetState) -> None:
        """A new picture: what an earlier console has left is told as long as it is to be seen, and wasn't read."""
        for run_id, run in self._cut_off.news(picture):
            if run is None:
                self._runs.pop(run_id, None)
                self._unread.discard(run_id)
            else:
                self._runs[run_id] = run
                self._unread.add(run_id)
            self._tell()

    # What is to be seen

    @property
    def under_way(self) -> tuple[Run, ...]:
        return tuple(run for run in self._runs.values() if not run.state.is_over)

    @property
    def shown(self) -> tuple[Run, ...]:
        """Runs for the console's top: those under way, then those whose end hasn't been looked at."""
        return (*self.under_way, *(run for run in self._runs.values() if run.id in self._unread))

    # What the keys ask for

    def fix(self, finding: Finding | None, others: Sequence[Finding] = ()) -> None:
        """Choose among a finding's remedies, or go on to another's."""
        if finding is None:
            self._say("nothing is wrong that could be fixed")
        elif self._may(looks=True):
            self._work(self._fix(finding, others))

    def act(self, name: str, at: Selection) -> None:
        """One action, on what is selected, or chosen where that leaves a choice."""
        from sparktop.operate.actions import action

        known = action(name)
        assert known is not None, name
        if self._may(looks=known.only_looks):
            self._work(self._act(known, at))

    def launch(self, at: Selection) -> None:
        """Choose a recipe, and what is wanted of it; in a read-only console the recipes are there to be read."""
        if not self._is_asking and (self.is_read_only or self._may()):
            self._work(self._launch(at.node))

    def choose(self, at: Selection) -> None:
        """Choose among all actions."""
        if self._may(looks=True):
            self._work(self._choose(at))

    def open_run(self) -> None:
        """Show the run under way, else the last; several are chosen from."""
        runs = list(reversed(self._runs.values()))
        if not runs:
            self._say("nothing has been done in this session")
            return
        first = [run for run in runs if not run.state.is_over] or runs
        if len(runs) == 1 or (len(first) == 1 and not first[0].state.is_over):
            self._show(first[0])
        else:
            self._work(self._choose_run(runs))

    # How it goes

    async def _fix(self, finding: Finding, others: Sequence[Finding]) -> None:
        from sparktop.operate.actions import action
        from sparktop.operate.wishes import mending
        from sparktop.ui.screens.ask import ChooseScreen
        from sparktop.ui.screens.fix import also, choices, first_mending, introduction

        offered = choices(finding, is_read_only=self.is_read_only)
        offered = (*offered, *also([one for one in others if one.key != finding.key], have=len(offered)))
        remedy = await self._ask(
            ChooseScreen("fix", offered, intro=introduction(finding), verb="shows the plan", at=first_mending(offered))
        )
        if isinstance(remedy, Finding):
            rest = [one for one in others if one.key not in (finding.key, remedy.key)]
            await self._fix(remedy, (finding, *rest))
            return
        known = action(remedy.action or "") if remedy is not None else None
        if remedy is None or known is None:
            return
        request = await self._one_of(known, mending(known, remedy, finding, self._picture()))
        if request is not None:
            request = await self._prepared(known, request, (remedy.title, *remedy.steps))
        if request is not None:
            await self._review(known, request)

    async def _launch(self, at: str) -> None:
        plan = await self.launching.choose(at=at, is_read_only=self.is_read_only)
        if plan is not None:
            self._start(plan)

    async def _launch_anew(self, request: Request) -> None:
        assert request.order is not None
        plan = await self.launching.anew(request.order, request.nodes)
        if plan is not None:
            self._start(plan)

    async def _act(self, known: Action, at: Selection) -> None:
        from sparktop.operate.wishes import selected

        if known.name == "launch":
            await self._launch(at.node)
            return
        request = await self._one_of(known, selected(known, self._picture(), at))
        if request is not None:
            request = await self._prepared(known, request)
        if request is not None:
            await self._review(known, request)

    async def _prepared(self, known: Action, request: Request, intro: Sequence[str] = ()) -> Request | None:
        """With what has to be said before there can be a plan: which change, which way, which floor."""
        from sparktop.operate.wishes import armed

        if known.name == "relaunch":
            return await self._changed(request, intro)
        if known.name == "guard" and armed(self._picture().node(request.nodes[0])):
            return replace(request, options={"off": "yes"})
        if known.name == "guard":
            return await self._options(known, request)
        if any(option.name == "way" for option in known.options):
            return await self._way(known, request)
        return request

    async def _choose(self, at: Selection) -> None:
        from sparktop.ui.screens.ask import ChooseScreen
        from sparktop.ui.screens.fix import actions

        offered = actions(self._picture(), at, is_read_only=self.is_read_only)
        known = await self._ask(ChooseScreen("actions", offered, verb="shows the plan"))
        if known is not None:
            await self._act(known, at)

    async def _one_of(self, known: Action, found: Sequence[Wish]) -> Request | None:
        """The only one, or the one that is chosen."""
        from sparktop.ui.screens.ask import Choice, ChooseScreen
        from sparktop.ui.widgets.ink import Line

        if not found:
            what = {"engine": "engine", "process": "process on the GPU"}.get(known.target, "node")
            self._say(f"{known.title.lower()}: there is no {what} to do it to")
            return None
        if len(found) == 1:
            return found[0].request
        rows = [
            Choice(label=Line.of((wish.label, "value"), (f"  {wish.note}" if wish.note else "", "quiet")), value=wish)
            for wish in found
        ]
        wish = await self._ask(ChooseScreen(known.title.lower(), rows))
        return wish.request if wish is not None else None

    async def _changed(self, request: Request, intro: Sequence[str]) -> Request | None:
        from sparktop.ui.screens.change import ChangeScreen

        now = " ".join(
            next(
                (
                    one.argv
                    for name in request.nodes
                    if (view := self._picture().node(name)) is not None
                    for one in view.engines
                    if one.name == request.target
                ),
                (),
            )
        )
        change = await self._ask(ChangeScreen(f"change  {request.target}", request.change, intro=intro, now=now))
        return None if change is None else replace(request, change=change)

    async def _options(self, known: Action, request: Request) -> Request | None:
        from sparktop.ui.screens.ask import OptionsScreen

        shown = [option for option in known.options if option.name != "off"]
        title = f"{known.title.lower()}  {request.target or ' and '.join(request.nodes)}"
        given = await self._ask(OptionsScreen(title, shown, request.options, intro=(known.description,)))
        return None if given is None else replace(request, options=given)

    async def _way(self, known: Action, request: Request) -> Request | None:
        """One of the ways that an action can be done."""
        from sparktop.ui.screens.ask import ChooseScreen
        from sparktop.ui.screens.fix import ways

        way = await self._ask(ChooseScreen(known.title.lower(), ways(known), verb="shows the plan"))
        return None if way is None else replace(request, options={"way": way})

    async def _review(self, known: Action | None, request: Request) -> None:
        """The plan as it stands, again and again while its options are set anew."""
        answer = await self._plan(request)
        while answer is not None:
            verdict = await self._judged(known, answer)
            if verdict == "run" and isinstance(answer, Plan):
                self._start(answer)
                return
            if verdict != "set" or known is None:
                return
            wanted = await (self._changed(request, ()) if known.name == "relaunch" else self._options(known, request))
            if wanted is not None:
                request = wanted
                answer = await self._plan(request)

    async def _judged(self, known: Action | None, answer: Plan | Refusal) -> str | None:
        from sparktop.ui.screens.review import RefusalScreen, ReviewScreen

        settings = "" if known is None else "change" if known.name == "relaunch" else "options" if known.options else ""
        if isinstance(answer, Plan):
            return await self._ask(ReviewScreen(answer, settings=settings))
        title = known.title.lower() if known is not None else answer.request.action
        return await self._ask(RefusalScreen(answer, title=title, settings=settings))

    async def _plan(self, request: Request) -> Plan | Refusal | None:
        """Ask the nodes and plan; None when the operator would not wait."""
        from sparktop.ui.screens.ask import WaitScreen

        planning = asyncio.ensure_future(self._answered(request))
        try:
            await asyncio.wait((planning,), timeout=PATIENCE_S)
            waiting = WaitScreen(f"Asking {' and '.join(request.nodes)} what it takes", planning)
            if not planning.done() and not await self._ask(waiting):
                return None
            return planning.result()
        finally:
            planning.cancel()

    async def _answered(self, request: Request) -> Plan | Refusal:
        """The operating side's answer; a fault of its is a refusal."""
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
        self._show(run)
        self._tell()

    def _follow(self, run: Run) -> None:
        """A run has a new state."""
        before = self._runs.get(run.id)
        self._runs[run.id] = run
        screen = self._open
        is_seen = screen is not None and screen.is_attached and screen.run_shown.id == run.id
        if is_seen and screen is not None:
            screen.show(run)
        elif run.id in self._executions and run.state.is_over and not (before and before.state.is_over):
            self._unread.add(run.id)
            self._tell_end(run)
        self._tell()

    def _tell_end(self, run: Run) -> None:
        """Nobody looks at it: how it ended is said wherever the operator is, and by the bell."""
        from sparktop.operate.wording import masked
        from sparktop.ui.panes.run_lines import end_text

        is_well = run.state is RunState.DONE
        text = "\n".join(masked(line, run.plan.secrets) for line in end_text(run).splitlines())
        severity = "information" if is_well else "warning" if run.state in _MILD else "error"
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
            again=lambda: self._again(run.plan.request),
            logs=self.show_log,
        )
        self._app.push_screen(self._open, lambda _: self._tell())

    def _go_back(self, run_id: str) -> None:
        plan = self._operating.way_back(self._runs[run_id]) if self._operating is not None else None
        if plan is None:
            self._say("there is no way back any more")
        else:
            self._work(self._review_back(plan))

    async def _review_back(self, plan: Plan) -> None:
        if await self._judged(None, plan) == "run":
            self._start(plan)

    def _again(self, request: Request) -> None:
        from sparktop.operate.actions import action

        if not self._may():
            return
        if request.order is not None:
            self._work(self._launch_anew(request))
        else:
            self._work(self._review(action(request.action), request))

    async def _choose_run(self, runs: Sequence[Run]) -> None:
        from sparktop.ui.panes.run_lines import state_line
        from sparktop.ui.screens.ask import Choice, ChooseScreen
        from sparktop.ui.widgets.ink import Line

        now_s = self._clock.wall()
        rows = [
            Choice(label=Line.of((run.plan.title, "value")), notes=(state_line(run, now_s),), value=run) for run in runs
        ]
        run = await self._ask(ChooseScreen("runs of this session", rows, verb="open"))
        if run is not None:
            self._show(run)

    # Small things

    @property
    def is_read_only(self) -> bool:
        return self._is_read_only or (self._operating is not None and self._operating.is_read_only)

    def _may(self, *, looks: bool = False) -> bool:
        """Whether it may be asked for now; says why not. `looks`: it can lead to what changes nothing."""
        if self.is_read_only and not looks:
            self._say("read-only: this console changes nothing; start it without --read-only, or take read_only "
                      "out of config.toml. x shows what can be done here", severity="warning")  # fmt: skip
            return False
        if self._operating is None:
            self._say("not connected yet: nothing can be planned before a node answers")
            return False
        return not self._is_asking

    def _work(self, going: Coroutine[Any, Any, None]) -> None:
        self._is_asking = True

        async def guarded() -> None:
            try:
                await going
            finally:
                self._is_asking = False

        self._app.run_worker(guarded(), name="acting", group="acting")

    async def _ask(self, screen: Screen[Answer]) -> Answer | None:
        return await self._app.push_screen_wait(screen)

    def _say(self, text: str, *, severity: str = "information") -> None:
        self._app.notify(text, severity=severity, markup=False, timeout=6)  # type: ignore[arg-type]
