"""`sparktop act`: chooses the target, plans, asks, runs an action and prints its progress and result."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from sparktop.clock import Clock, SystemClock
from sparktop.dataclass import dataclass
from sparktop.documents.plan import plan_lines, refusal_lines
from sparktop.documents.run import printed_lines, step_line
from sparktop.documents.step_text import masked, masked_lines
from sparktop.errors import TransportError, UsageError
from sparktop.headless.audit import last_run_on
from sparktop.headless.plan_data import JSON_VERSION, plan_data, refusal_data, run_data
from sparktop.headless.status import has_asked_who_works, has_looked_at_desktop, settled, wait_until
from sparktop.headless.terminal import agreed, answered, draw, say, width_of, written
from sparktop.model.change import Change
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.request import Request
from sparktop.observe.watch import Publish, Watch
from sparktop.operate.actions import ACTIONS, RESTORE, RESUME, RUN_COMMANDS, Action
from sparktop.operate.audit.interrupted_runs import one_line, run_report
from sparktop.operate.run.operating import Execution, Operating
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.operate.targets import TargetChoice, remedy_choices, target_choices
from sparktop.text.lines import Line


@contextmanager
def interruptible(execution: Execution) -> Iterator[None]:
    """Ctrl-C, SIGTERM or a closed terminal aborts the run; a second Ctrl-C leaves it to the node and exits."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    is_aborted = False

    def interrupted() -> None:
        if not is_aborted:
            aborted()
            return
        say(
            "left: the Spark completes or reverts the current step by itself; the rest is cancelled.\n"
            "  `sparktop audit` lists what was done; `sparktop act restore HOST` rolls it back where that is possible"
        )
        if task is not None:
            task.cancel()

    def aborted() -> None:
        nonlocal is_aborted
        if not is_aborted:
            is_aborted = True
            say("aborting: the current step is completed or reverted first. Ctrl-C again leaves that to the Spark")
            execution.abort()

    handlers: dict[signal.Signals, Callable[[], None]] = {signal.SIGINT: interrupted, signal.SIGTERM: aborted}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
        handlers[signal.SIGHUP] = aborted
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    except asyncio.CancelledError:
        if is_aborted:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


INTERRUPTED = 130


PROGRESS_EVERY_S = 10.0
"""Seconds between progress lines of a step under way."""


MakeSession = Callable[[Publish], tuple[Watch, Operating]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActArguments:
    """An action and its arguments, as given on the command line."""

    action: Action
    target: str = ""
    """An engine's name or a pid; empty: the only one on the nodes."""
    options: Mapping[str, str] = field(default_factory=dict)
    change: Change = field(default_factory=Change)
    rule: str = ""
    """Rule of the finding that the action must resolve; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Whether to ask and to run, and how to print."""

    is_dry: bool = False
    is_agreed: bool = False
    """`--yes`: run without asking."""
    as_json: bool = False
    timeout_s: float = 30.0
    """Seconds to wait for complete answers of all nodes."""
    has_terminal: bool = False


def list_actions() -> int:
    """Print all actions with their options."""
    for action in ACTIONS:
        print(f"{action.name:20} {action.risk:12} {action.description}")
        for option in action.options:
            choices = f" ({', '.join(option.choices)})" if option.choices else ""
            default = f", else {option.default}" if option.default else ""
            print(f"{'':20}   --set {option.name}=...  {option.text}{choices}{default}")
    for name, description in RUN_COMMANDS.items():
        print(f"{name:20} {'as the run':12} {description}")
    return 0


async def act(
    make: MakeSession, arguments: ActArguments, *, output: OutputOptions, secret: AskSecret, clock: Clock | None = None
) -> int:
    """Plan the action, ask, run it; the exit code: 0 done or printed, 1 refused or failed, 130 interrupted."""
    async with watched(make, output) as (watch, operating, fresh):
        await tell_interrupted(operating, watch.state)
        request = await _request(arguments, watch, fresh, output.timeout_s)
        answer = await operating.plan(request)
        if isinstance(answer, Refusal):
            put(output, refusal_page(answer), {"refusal": refusal_data(answer)})
            return 1
        return await carry_out(operating, answer, output, secret, clock or SystemClock())


@asynccontextmanager
async def watched(make: MakeSession, output: OutputOptions) -> AsyncIterator[tuple[Watch, Operating, asyncio.Event]]:
    """Run the Watch; yields it once all nodes have answered or the time is over, with the planner and an event that
    each new fleet state sets."""
    fresh = asyncio.Event()
    watch, operating = make(lambda _: fresh.set())
    watching = asyncio.create_task(watch.run())
    try:
        say(f"connecting to {' and '.join(view.name for view in watch.state.nodes)} …")
        await settled(watch, fresh, output.timeout_s, settle_s=output.timeout_s, held_s=0.0)
        if watching.done():
            watching.result()
        yield watch, operating, fresh
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def tell_interrupted(operating: Operating, fleet: FleetState) -> None:
    """Print one line for each run that an earlier console left interrupted on these nodes."""
    nodes = " ".join(view.name for view in fleet.nodes)
    for interrupted in await operating.interrupted_runs():
        run = run_report(interrupted, fleet)
        if run is not None:
            back = f", or to roll it back: sparktop act {RESTORE} {nodes}" if run.can_go_back else ""
            hint = f" To plan it again: sparktop act {RESUME} {nodes}{back}"
            say(f"sparktop: {one_line(run)}{hint}")


# --- the target


async def _request(arguments: ActArguments, watch: Watch, fresh: asyncio.Event, timeout_s: float) -> Request:
    """The request for what is on the nodes now.

    Raises:
        TransportError: a node is not connected.
        UsageError: the target doesn't exist, or several match.
    """
    if arguments.options.get("watch_only") != "yes":  # watch_only waits for a node that is gone
        check_links(watch.state, one_will_do=arguments.action.name == "collect-evidence")
    if arguments.action.only_measures:  # what a node works on, figures say; others don't wait for one that hangs
        await wait_until(lambda: all(map(has_asked_who_works, watch.state.nodes)), fresh, timeout_s)
    if arguments.action.name == "recover-desktop":
        await wait_until(lambda: all(map(has_looked_at_desktop, watch.state.nodes)), fresh, timeout_s)
    if (
        arguments.action.name == "guard" and arguments.options.get("off") == "yes"
    ):  # a node has one guard, whatever it watches
        nodes = tuple(view.name for view in watch.state.nodes)
        return Request(action="guard", nodes=nodes, options=arguments.options)
    targets = (
        await _remedy_targets(arguments, watch, fresh, timeout_s)
        if arguments.rule
        else target_choices(arguments.action, watch.state)
    )
    request = _named_target(arguments, targets, watch.state).request
    change = arguments.change if not arguments.change.is_empty else request.change
    return replace(request, options=arguments.options, change=change)


def check_links(fleet: FleetState, *, one_will_do: bool = False) -> None:
    """Check that all nodes are connected; `one_will_do`: that at least one is.

    Raises:
        TransportError: a needed node is not connected.
    """
    silent = [view for view in fleet.nodes if view.link.state is not LinkState.LIVE]
    for view in silent:
        if one_will_do and len(silent) < len(fleet.nodes):
            say(f"{view.name}: {view.link.reason or view.link.state}")
        else:
            raise TransportError(
                f"{view.name}: {view.link.reason or view.link.state}; nothing was planned", hint=view.link.hint or None
            )


def check_engines_known(fleet: FleetState) -> None:
    """Check that an engine that isn't shown isn't there.

    Raises:
        TransportError: a node has not told enough yet.
    """
    gaps = [view.engines_gap for view in fleet.nodes if view.engines_gap]
    if gaps:
        raise TransportError(f"{'; '.join(gaps)}; nothing was planned", hint="try again, or wait longer: --timeout 60")


async def _remedy_targets(
    arguments: ActArguments, watch: Watch, fresh: asyncio.Event, timeout_s: float
) -> Sequence[TargetChoice]:
    """The possible targets of the action as a remedy of the finding, waiting for the finding to appear."""

    def matching() -> Finding | None:
        return next((finding for finding in watch.state.findings if finding.rule == arguments.rule), None)

    await wait_until(lambda: matching() is not None, fresh, timeout_s)
    if (finding := matching()) is None:
        rules = sorted({item.rule for item in watch.state.findings})
        raise UsageError(
            f"{arguments.rule} is not found on these nodes",
            hint=nearest(arguments.rule, rules) or "leave out --finding, or wait longer: --timeout 60",
        )
    remedy = next((item for item in finding.remedies if item.action == arguments.action.name), None)
    if remedy is None:
        actions = sorted({item.action for item in finding.remedies if item.action})
        raise UsageError(
            f"{arguments.action.name} is no remedy of {arguments.rule}",
            hint=f"its remedies are {', '.join(actions)}" if actions else "sparktop can carry out none of its remedies",
        )
    return remedy_choices(arguments.action, remedy, finding, watch.state)


def _named_target(arguments: ActArguments, targets: Sequence[TargetChoice], fleet: FleetState) -> TargetChoice:
    """The target that the arguments name.

    Raises:
        UsageError: none or several match.
    """
    action = arguments.action
    names = [view.name for view in fleet.nodes]
    if action.target == "nodes":
        return targets[-1]  # the last one is all nodes together
    if action.target == "node":
        if len(targets) != 1:
            raise UsageError(
                f"{action.name} is for one node, not {len(targets)}", hint=f"sparktop act {action.name} HOST"
            )
        return targets[0]
    matching = [wish for wish in targets if arguments.target in ("", wish.request.target)]
    if arguments.target and not matching:
        matching = [wish for wish in targets if _has_rank(wish, arguments.target, fleet)]
    noun = "engine" if action.target == "engine" else "process on the GPU"
    if not matching:
        if action.target == "engine":
            check_engines_known(fleet)
        gone = last_run_on(arguments.target, names) if arguments.target else ""
        hint = gone or nearest(arguments.target, [wish.request.target for wish in targets])
        message = f"there is no {noun} {arguments.target!r} on" if arguments.target else f"there is no {noun} on"
        raise UsageError(f"{message} {' and '.join(names)}", hint=hint or None)
    if len(matching) > 1:
        flag = "--engine" if action.target == "engine" else "--pid"
        is_everywhere = len({wish.request.target for wish in matching}) == 1
        hint = "name one HOST alone" if is_everywhere else f"name one: {flag} {matching[0].request.target}"
        raise UsageError(f"which {noun}? {', '.join(wish.label for wish in matching)}", hint=hint)
    return matching[0]


def _has_rank(wish: TargetChoice, name: str, fleet: FleetState) -> bool:
    """Whether the name is that of another rank of the target's engine."""
    from sparktop.engines.rank_order import ranks

    if not wish.request.target or len(wish.request.nodes) < 2:
        return False
    team = ranks(wish.request.target, wish.request.nodes[0], fleet)
    return any(rank.engine.name == name for rank in team)


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint: "did you mean NAME?", or which names there are; "" without any."""
    matches = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {matches[0]}?" if matches else f"there is {', '.join(names)}" if names else ""


# --- the run


async def carry_out(operating: Operating, plan: Plan, output: OutputOptions, secret: AskSecret, clock: Clock) -> int:
    """Print the plan, ask, run it, print the result, offer the rollback; the exit code."""
    data: dict[str, Any] = {"plan": plan_data(plan), "run": None}
    if output.is_dry:
        put(output, plan_page(plan), data)
        return 0
    if not output.is_agreed and not output.has_terminal:
        put(output, plan_page(plan), data)
        say("sparktop: nothing was run: there is no terminal to ask on\n  --yes runs it, --dry-run only prints it")
        return 1
    if output.is_agreed and (new_sources := plan.new_sources):
        put(output, plan_page(plan), data)
        trusting = "; ".join(f"sparktop recipes source trust {source.name}" for source in new_sources)
        say(
            f"sparktop: nothing was run: nobody has agreed to launch from {plan.typed.replace(' ', ' and ')} as it is "
            f"now\n  {trusting}, or launch without --yes and type {plan.typed}"
        )
        return 1
    _show(output, plan_page(plan))
    if not output.is_agreed and not await _is_agreed(plan):
        if output.as_json:
            put(output, lambda _: [], data)
        say("nothing was run")
        return 1
    run = await _run(operating, plan, secret, clock)
    put(output, _run_page(run), data | {"run": run_data(run)})
    rollback = operating.way_back(run) if run.can_go_back else None
    if rollback is not None:
        say("")
        _show(replace(output, as_json=True), plan_page(rollback))
        if output.has_terminal and not output.is_agreed and await _is_agreed(rollback):
            rollback_run = await _run(operating, rollback, secret, clock)
            _show(replace(output, as_json=True), _run_page(rollback_run))
        else:
            say("not rolled back")
    return 0 if run.state is RunState.DONE else INTERRUPTED if run.state is RunState.ABORTED else 1


async def _is_agreed(plan: Plan) -> bool:
    """Ask whether to run the plan; no is the default, and a destructive plan needs a name typed."""
    if plan.typed:
        return await answered(f"Type {plan.typed} to confirm, anything else to cancel: ") == plan.typed
    return await agreed("Run this?")


async def _run(operating: Operating, plan: Plan, secret: AskSecret, clock: Clock) -> Run:
    progress = Progress(clock)
    execution = operating.start(plan, secret=secret, changed=progress.follow)
    progress.follow(execution.run)
    with interruptible(execution):
        return await execution.finished()


class Progress:
    """Prints a run's progress on standard error: each step's start and end, and a line every PROGRESS_EVERY_S."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: list[StepState] = []
        self._said_s = 0.0
        self._said = ""
        self._state = RunState.RUNNING

    def follow(self, run: Run) -> None:
        """Print what has changed since the last state of the run."""
        before = [*self._states, *([StepState.WAITING] * (len(run.steps) - len(self._states)))]
        if run.state is not self._state and not run.state.is_over:
            self._line(f"{run.state} …")
        self._state = run.state
        for number, (state_before, step) in enumerate(zip(before, run.steps, strict=True), 1):
            line = masked(step_line(number, run).plain, run.plan.secrets)
            is_news = step.state is not state_before and step.state is not StepState.SKIPPED
            waits_on = step.state is StepState.RUNNING and line != self._said and self._is_due()
            if is_news or waits_on:
                self._line(line)
        self._states = [step.state for step in run.steps]

    def _is_due(self) -> bool:
        return self._clock.monotonic() - self._said_s >= PROGRESS_EVERY_S

    def _line(self, text: str) -> None:
        self._said, self._said_s = text, self._clock.monotonic()
        say(text)


# --- output


Page = Callable[[int], Sequence[Line]]
"""The lines of a width."""


def plan_page(plan: Plan) -> Page:
    """The plan, printed."""
    return partial(plan_lines, plan, is_printed=True)


def refusal_page(refusal: Refusal) -> Page:
    """The refusal, printed."""
    return partial(refusal_lines, refusal, is_printed=True)


def _run_page(run: Run) -> Page:
    return lambda width: masked_lines(printed_lines(run, width, has_steps=False), run.plan.secrets)


def put(output: OutputOptions, page: Page, data: Mapping[str, Any]) -> None:
    """Print the result on standard output: the page, or the data as JSON."""
    if output.as_json:
        written(json.dumps({"version": JSON_VERSION, **data}, indent=2, ensure_ascii=False), sys.stdout)
    else:
        draw(page(width_of(sys.stdout)), sys.stdout)


def _show(output: OutputOptions, page: Page) -> None:
    """Print what isn't data: on standard error when the data is JSON, else on standard output."""
    out = sys.stderr if output.as_json else sys.stdout
    draw(page(width_of(out)), out)
