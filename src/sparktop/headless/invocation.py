"""What commands that plan and run share: a session, a plan that is shown, asked about and run, and its result."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field
from functools import partial
from typing import Any, TextIO

from sparktop.clock import Clock, SystemClock
from sparktop.dataclass import dataclass
from sparktop.documents.plan import plan_lines, refusal_lines
from sparktop.documents.run import printed_lines, step_line
from sparktop.documents.step_text import masked, masked_lines
from sparktop.errors import TransportError, UsageError, did_you_mean
from sparktop.headless.look import Look, MakeWatch, looking
from sparktop.headless.plan_data import plan_data, refusal_data, run_data
from sparktop.headless.terminal import agreed, answered, draw, json_text, say, width_of, written
from sparktop.model.fleet import FleetState, LinkState
from sparktop.observe.watch import Publish, Watch
from sparktop.operate.actions import RESTORE, RESUME
from sparktop.operate.audit.interrupted_runs import one_line, run_report
from sparktop.operate.run.operating import Execution, Operating
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.text.lines import Line

INTERRUPTED = 130
PROGRESS_EVERY_S = 10.0
"""Seconds between progress lines of a step under way."""
MakeSession = Callable[[Publish], tuple[Watch, Operating]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How a command that plans and runs was called: its session, whom it asks, whether it runs, and how it prints."""

    make: MakeSession
    secret: AskSecret
    clock: Clock = field(default_factory=SystemClock)
    is_dry: bool = False
    is_agreed: bool = False
    """`--yes`: run without asking."""
    as_json: bool = False
    timeout_s: float = 30.0
    """Seconds to wait for complete answers of all nodes."""
    has_terminal: bool = False


@asynccontextmanager
async def connected(make: MakeWatch, timeout_s: float) -> AsyncIterator[Look]:
    """Run a Watch; yields it once all nodes have answered in full or the time is over.

    Raises what ended the Watch before.
    """
    async with looking(make) as look:
        say(f"connecting to {' and '.join(look.names)} …")
        await look.settle(timeout_s, settle_s=timeout_s, held_s=0.0)
        if look.running.done():
            look.running.result()
        yield look


@asynccontextmanager
async def watched(call: Invocation) -> AsyncIterator[tuple[Look, Operating]]:
    """The nodes once they have answered, and what plans and runs there."""
    planners: list[Operating] = []

    def make(publish: Publish) -> Watch:
        watch, operating = call.make(publish)
        planners.append(operating)
        return watch

    async with connected(make, call.timeout_s) as look:
        yield look, planners[0]


async def tell_interrupted(operating: Operating, fleet: FleetState) -> None:
    """Print one line for each run that an earlier console left interrupted on these nodes."""
    nodes = " ".join(view.name for view in fleet.nodes)
    for interrupted in await operating.interrupted_runs():
        run = run_report(interrupted, fleet)
        if run is not None:
            back = f", or to roll it back: sparktop act {RESTORE} {nodes}" if run.can_go_back else ""
            hint = f" To plan it again: sparktop act {RESUME} {nodes}{back}"
            say(f"sparktop: {one_line(run)}{hint}")


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


def no_engine(fleet: FleetState, message: str, name: str, names: Sequence[str], *, hint: str = "") -> UsageError:
    """The error for an engine that isn't there, with the nearest of those that are; else with this hint.

    Raises:
        TransportError: a node has not told enough yet.
    """
    check_engines_known(fleet)
    return UsageError(message, hint=nearest(name, names) or hint or None)


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint: "did you mean NAME?", or which names there are; "" without any."""
    return did_you_mean(name, names, f"there is {', '.join(names)}" if names else "")


async def carry_out(call: Invocation, operating: Operating, plan: Plan | Refusal) -> int:
    """Print the plan, ask, run it, print the result, offer the rollback; of a refusal why; the exit code."""
    if isinstance(plan, Refusal):
        put(call, _refusal_page(plan), {"refusal": refusal_data(plan)})
        return 1
    page = partial(plan_lines, plan, is_printed=True)
    data: dict[str, Any] = {"plan": plan_data(plan), "run": None}
    if call.is_dry:
        put(call, page, data)
        return 0
    if not call.is_agreed and not call.has_terminal:
        put(call, page, data)
        say("sparktop: nothing was run: there is no terminal to ask on\n  --yes runs it, --dry-run only prints it")
        return 1
    if call.is_agreed and (new_sources := plan.new_sources):
        put(call, page, data)
        trusting = "; ".join(f"sparktop recipes source trust {source.name}" for source in new_sources)
        say(
            f"sparktop: nothing was run: nobody has agreed to launch from {plan.typed.replace(' ', ' and ')} as it is "
            f"now\n  {trusting}, or launch without --yes and type {plan.typed}"
        )
        return 1
    _show(page, sys.stderr if call.as_json else sys.stdout)
    if not call.is_agreed and not await _is_agreed(plan):
        if call.as_json:
            put(call, page, data)
        say("nothing was run")
        return 1
    run = await _run(call, operating, plan)
    put(call, _run_page(run), data | {"run": run_data(run)})
    rollback = operating.rollback(run) if run.can_go_back else None
    if rollback is not None:
        say("")
        _show(partial(plan_lines, rollback, is_printed=True), sys.stderr)
        if call.has_terminal and not call.is_agreed and await _is_agreed(rollback):
            _show(_run_page(await _run(call, operating, rollback)), sys.stderr)
        else:
            say("not rolled back")
    return 0 if run.state is RunState.DONE else INTERRUPTED if run.state is RunState.ABORTED else 1


def print_files(plan: Plan | Refusal, files: Mapping[str, str]) -> int:
    """Print only files of a plan: a single one as it is, several each with its name above; of a refusal why.

    Returns: the exit code.
    """
    if isinstance(plan, Refusal):
        _show(_refusal_page(plan), sys.stderr)
        return 1
    several = len(files) > 1
    print("\n".join(f"# --- {name}\n{text}" if several else text for name, text in files.items()), end="")
    return 0


async def _is_agreed(plan: Plan) -> bool:
    """Ask whether to run the plan; no is the default, and a destructive plan needs a name typed."""
    if plan.typed:
        return await answered(f"Type {plan.typed} to confirm, anything else to cancel: ") == plan.typed
    return await agreed("Run this?")


async def _run(call: Invocation, operating: Operating, plan: Plan) -> Run:
    progress = Progress(call.clock)
    execution = operating.start(plan, secret=call.secret, changed=progress.follow)
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
            waits_on = step.state is StepState.RUNNING and line != self._said
            if is_news or (waits_on and self._clock.monotonic() - self._said_s >= PROGRESS_EVERY_S):
                self._line(line)
        self._states = [step.state for step in run.steps]

    def _line(self, text: str) -> None:
        self._said, self._said_s = text, self._clock.monotonic()
        say(text)


Page = Callable[[int], Sequence[Line]]
"""The lines of a width."""


def _refusal_page(refusal: Refusal) -> Page:
    return partial(refusal_lines, refusal, is_printed=True)


def _run_page(run: Run) -> Page:
    return lambda width: masked_lines(printed_lines(run, width, has_steps=False), run.plan.secrets)


def put(call: Invocation, page: Page, data: Mapping[str, Any]) -> None:
    """Print the result on standard output: the page, or the data as JSON."""
    if call.as_json:
        written(json_text(data, indent=2), sys.stdout)
    else:
        _show(page, sys.stdout)


def _show(page: Page, out: TextIO) -> None:
    draw(page(width_of(out)), out)


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
