"""Every action of the console without a screen: the plan, the question, the run, and how it ended.

Standard output carries data (the plan, the result, or JSON), narration and questions go to standard error. Without a
terminal nothing is run unless `--yes` says so.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, TextIO

from sparktop.clock import Clock, SystemClock
from sparktop.errors import TransportError, UsageError
from sparktop.headless.ask import answered
from sparktop.headless.leaving import interruptible
from sparktop.headless.narration import say, written
from sparktop.headless.plans import (
    JSON_VERSION,
    plan_data,
    plan_text,
    refusal_data,
    refusal_text,
    run_data,
    run_text,
    step_line,
)
from sparktop.headless.status import settled
from sparktop.model.change import Change
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.plan import Plan, Refusal, Request, Run, RunState, StepState
from sparktop.observe.watch import Publish, Watch
from sparktop.operate.actions import ACTIONS, Action
from sparktop.operate.cutleft import line, shown
from sparktop.operate.line import AskSecret
from sparktop.operate.operating import Operating
from sparktop.operate.wishes import Wish, mending, wishes

INTERRUPTED = 130
TOLD_EVERY_S = 10.0
"""Where progress is no terminal: how often a wait is told of."""

MakeBoth = Callable[[Publish], tuple[Watch, Operating]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    action: Action
    target: str = ""
    """An engine's name or a pid; empty: the only one there is."""
    options: Mapping[str, str] = field(default_factory=dict)
    change: Change = field(default_factory=Change)
    rule: str = ""
    """Of the finding that it is to mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How it is gone about."""

    is_dry: bool = False
    is_agreed: bool = False
    """`--yes`: nothing is asked."""
    as_json: bool = False
    timeout_s: float = 30.0
    """For the nodes to answer in full."""
    has_terminal: bool = False


def list_actions(out: TextIO | None = None) -> int:
    """All actions with what can be set of them."""
    for one in ACTIONS:
        print(f"{one.name:20} {one.risk:12} {one.description}", file=out or sys.stdout)
        for option in one.options:
            choices = f" ({', '.join(option.choices)})" if option.choices else ""
            default = f", else {option.default}" if option.default else ""
            print(f"{'':20}   --set {option.name}=...  {option.description}{choices}{default}", file=out or sys.stdout)
    return 0


async def act(make: MakeBoth, asked: Asked, *, manner: Manner, secret: AskSecret, clock: Clock | None = None) -> int:
    """Plan it, ask, run it; the exit code: 0 done or printed, 1 refused or failed, 130 interrupted."""
    async with watched(make, manner) as (watch, operating, fresh):
        await tell_cut_off(operating, watch.state)
        request = await _request(asked, watch, fresh, manner.timeout_s)
        answer = await operating.plan(request)
        if isinstance(answer, Refusal):
            put(manner, refusal_text(answer), {"refusal": refusal_data(answer)})
            return 1
        return await carry_out(operating, answer, manner, secret, clock or SystemClock())


@asynccontextmanager
async def watched(make: MakeBoth, manner: Manner) -> AsyncIterator[tuple[Watch, Operating, asyncio.Event]]:
    """What watches and what acts, as soon as the nodes have answered or had their time."""
    fresh = asyncio.Event()
    watch, operating = make(lambda _: fresh.set())
    watching = asyncio.create_task(watch.run())
    try:
        say(f"connecting to {' and '.join(view.name for view in watch.state.nodes)} …")
        await settled(watch, fresh, manner.timeout_s, settle_s=manner.timeout_s, held_s=0.0)
        if watching.done():
            watching.result()
        yield watch, operating, fresh
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def tell_cut_off(operating: Operating, fleet: FleetState) -> None:
    """What a console that was killed has left on these nodes, a line a run."""
    for one in await operating.cut_off():
        run = shown(one, fleet)
        if run is not None:
            back = " In the console o opens it, and b there plans its way back." if run.can_go_back else ""
            say(f"sparktop: {line(run)}{back}")


# --- what is meant


async def _request(asked: Asked, watch: Watch, fresh: asyncio.Event, timeout_s: float) -> Request:
    """The request in terms of what there is on the nodes.

    Raises:
        TransportError: a node isn't there.
        UsageError: what is named isn't there, or could be several.
    """
    if asked.options.get("watch_only") != "yes":  # a node that is gone is what that one waits for
        check_links(watch.state, one_will_do=asked.action.name == "collect-evidence")
    if asked.action.name == "guard" and asked.options.get("off") == "yes":  # whatever it is over, it is the node's
        nodes = tuple(view.name for view in watch.state.nodes)
        return Request(action="guard", nodes=nodes, options=asked.options)
    found = await _of_finding(asked, watch, fresh, timeout_s) if asked.rule else wishes(asked.action, watch.state)
    request = _chosen(asked, found, watch.state).request
    change = asked.change if not asked.change.is_empty else request.change
    return replace(request, options=asked.options, change=change)


def check_links(fleet: FleetState, *, one_will_do: bool = False) -> None:
    """`one_will_do`: of a node that is gone, what is known of the other is wanted all the more."""
    silent = [view for view in fleet.nodes if view.link.state is not LinkState.LIVE]
    for view in silent:
        if one_will_do and len(silent) < len(fleet.nodes):
            say(f"{view.name}: {view.link.reason or view.link.state}")
        else:
            raise TransportError(
                f"{view.name}: {view.link.reason or view.link.state}; nothing was planned", hint=view.link.hint or None
            )


async def _of_finding(asked: Asked, watch: Watch, fresh: asyncio.Event, timeout_s: float) -> Sequence[Wish]:
    """What the action could mean as a remedy of the finding, as soon as that is there."""
    try:
        async with asyncio.timeout(timeout_s):
            while not (found := [one for one in watch.state.findings if one.rule == asked.rule]):
                fresh.clear()
                await fresh.wait()
    except TimeoutError:
        known = sorted({one.rule for one in watch.state.findings})
        raise UsageError(
            f"{asked.rule} is not found on these nodes",
            hint=nearest(asked.rule, known) or "leave --finding out, or give it more time with --timeout",
        ) from None
    finding = found[0]
    remedy = next((one for one in finding.remedies if one.action == asked.action.name), None)
    if remedy is None:
        offered = sorted({one.action for one in finding.remedies if one.action})
        raise UsageError(
            f"{asked.action.name} is no remedy of {asked.rule}",
            hint=f"its remedies are {', '.join(offered)}" if offered else "sparktop can carry out none of its remedies",
        )
    return mending(asked.action, remedy, finding, watch.state)


def _chosen(asked: Asked, found: Sequence[Wish], fleet: FleetState) -> Wish:
    """The one that is meant; several are never guessed among."""
    known = asked.action
    names = [view.name for view in fleet.nodes]
    if known.target == "nodes":
        return found[-1]  # all of them together stand last
    if known.target == "node":
        if len(found) != 1:
            raise UsageError(f"{known.name} is for one node, not {len(found)}", hint=f"sparktop act {known.name} HOST")
        return found[0]
    own = [wish for wish in found if asked.target in ("", wish.request.target)]
    if asked.target and not own:
        own = [wish for wish in found if _has_rank(wish, asked.target, fleet)]
    what = "engine" if known.target == "engine" else "process on the GPU"
    if not own:
        hint = nearest(asked.target, [wish.request.target for wish in found])
        told = f"there is no {what} {asked.target!r} on" if asked.target else f"there is no {what} on"
        raise UsageError(f"{told} {' and '.join(names)}", hint=hint or None)
    if len(own) > 1:
        flag = "--engine" if known.target == "engine" else "--pid"
        is_everywhere = len({wish.request.target for wish in own}) == 1
        hint = "name one HOST alone" if is_everywhere else f"name one: {flag} {own[0].request.target}"
        raise UsageError(f"which {what}? {', '.join(wish.label for wish in own)}", hint=hint)
    return own[0]


def _has_rank(wish: Wish, name: str, fleet: FleetState) -> bool:
    """Whether the name is another rank's of the same server."""
    from sparktop.operate.pair import ranks

    if not wish.request.target or len(wish.request.nodes) < 2:
        return False
    team = ranks(wish.request.target, wish.request.nodes[0], fleet)
    return any(rank.engine.name == name for rank in team)


def nearest(name: str, known: Sequence[str]) -> str:
    """What may have been meant, or what there is."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}" if known else ""


# --- the run


async def carry_out(operating: Operating, plan: Plan, manner: Manner, secret: AskSecret, clock: Clock) -> int:
    """Show the plan, ask, run it, tell how it ended; the exit code."""
    data: dict[str, Any] = {"plan": plan_data(plan), "run": None}
    if manner.is_dry:
        put(manner, plan_text(plan), data)
        return 0
    if not manner.is_agreed and not manner.has_terminal:
        put(manner, plan_text(plan), data)
        say("sparktop: nothing was run: there is no terminal to ask on\n  --yes runs it, --dry-run only prints it")
        return 1
    _show(manner, plan_text(plan))
    if not manner.is_agreed and not await _is_agreed(plan):
        if manner.as_json:
            put(manner, [], data)
        say("nothing was run")
        return 1
    run = await _run(operating, plan, secret, clock)
    put(manner, run_text(run), data | {"run": run_data(run)})
    back = operating.way_back(run) if run.can_go_back else None
    if back is not None:
        _show(replace(manner, as_json=True), ["", *plan_text(back)])
        if manner.has_terminal and not manner.is_agreed and await _is_agreed(back):
            run_back = await _run(operating, back, secret, clock)
            _show(replace(manner, as_json=True), run_text(run_back))
        else:
            say("the way back was not taken")
    return 0 if run.state is RunState.DONE else INTERRUPTED if run.state is RunState.ABORTED else 1


async def _is_agreed(plan: Plan) -> bool:
    """Whether the operator wants it; no is the default, and what destroys wants its name typed."""
    if plan.typed:
        return await answered(f"Type {plan.typed} to run this, anything else to leave it: ") == plan.typed
    return (await answered("Run this? (yes/no) [no] ")).lower() == "yes"


async def _run(operating: Operating, plan: Plan, secret: AskSecret, clock: Clock) -> Run:
    progress = Progress(clock)
    execution = operating.start(plan, secret=secret, changed=progress.follow)
    progress.follow(execution.run)
    with interruptible(execution):
        return await execution.finished()


class Progress:
    """Tells of a run on standard error: each step when it begins and ends, waits now and then."""

    def __init__(self, clock: Clock, err: TextIO | None = None) -> None:
        self._clock = clock
        self._err = err or sys.stderr
        self._states: list[StepState] = []
        self._said_s = 0.0
        self._said = ""
        self._state = RunState.RUNNING

    def follow(self, run: Run) -> None:
        """Tell what is new in this state of it."""
        before = [*self._states, *([StepState.WAITING] * (len(run.steps) - len(self._states)))]
        if run.state is not self._state and not run.state.is_over:
            self._line(f"{run.state} …")
        self._state = run.state
        for number, (was, one) in enumerate(zip(before, run.steps, strict=True), 1):
            line = step_line(number, len(run.steps), one, run)
            is_news = one.state is not was and one.state is not StepState.SKIPPED
            waits_on = one.state is StepState.RUNNING and line != self._said and self._is_due()
            if is_news or waits_on:
                self._line(line)
        self._states = [one.state for one in run.steps]

    def _is_due(self) -> bool:
        return self._clock.monotonic() - self._said_s >= TOLD_EVERY_S

    def _line(self, text: str) -> None:
        self._said, self._said_s = text, self._clock.monotonic()
        written(text, self._err)


# --- where it goes


def put(manner: Manner, lines: Sequence[str], data: Mapping[str, Any]) -> None:
    """Data: to standard output."""
    if manner.as_json:
        written(json.dumps({"version": JSON_VERSION, **data}, indent=2, ensure_ascii=False), sys.stdout)
    else:
        written("\n".join(lines), sys.stdout)


def _show(manner: Manner, lines: Sequence[str]) -> None:
    """To be read before the question: beside the data where that is JSON."""
    written("\n".join(lines), sys.stderr if manner.as_json else sys.stdout)
