"""`sparktop act`: chooses the target of an action, plans and runs it; or takes up an interrupted run again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from sparktop.dataclass import dataclass
from sparktop.documents.run import printed_lines
from sparktop.documents.step_text import masked_lines
from sparktop.errors import UsageError
from sparktop.headless.audit import last_run_on
from sparktop.headless.invocation import (
    Invocation,
    carry_out,
    check_engines_known,
    check_links,
    nearest,
    tell_interrupted,
    watched,
)
from sparktop.headless.look import Look, has_asked_who_works, has_looked_at_desktop
from sparktop.headless.terminal import draw, say, width_of
from sparktop.model.change import Change
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.operate.actions import ACTIONS, HALF_AUDITED, RESTORE, RUN_COMMANDS, Action
from sparktop.operate.audit.interrupted_runs import run_report
from sparktop.operate.audit.request_codec import whole_request
from sparktop.operate.audit_file import REBOOT_STEP
from sparktop.operate.run.operating import Operating
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run
from sparktop.operate.step.step_result import StepState
from sparktop.operate.targets import TargetChoice, remedy_choices, target_choices


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


async def act(call: Invocation, arguments: ActArguments) -> int:
    """Plan the action, ask, run it; the exit code: 0 done or printed, 1 refused or failed, 130 interrupted."""
    async with watched(call) as (look, operating):
        await tell_interrupted(operating, look.state)
        request = await _request(arguments, look, call.timeout_s)
        return await carry_out(call, operating, await operating.plan(request))


async def _request(arguments: ActArguments, look: Look, timeout_s: float) -> Request:
    """The request for what is on the nodes now.

    Raises:
        TransportError: a node is not connected.
        UsageError: the target doesn't exist, or several match.
    """
    if arguments.options.get("watch_only") != "yes":  # watch_only waits for a node that is gone
        check_links(look.state, one_will_do=arguments.action.name == "collect-evidence")
    if arguments.action.only_measures:  # what a node works on, figures say; others don't wait for one that hangs
        await look.every(has_asked_who_works, timeout_s)
    if arguments.action.name == "recover-desktop":
        await look.every(has_looked_at_desktop, timeout_s)
    if arguments.action.name == "guard" and arguments.options.get("off") == "yes":
        # A node has one guard, whatever it watches.
        return Request(action="guard", nodes=look.names, options=arguments.options)
    targets = (
        await _remedy_targets(arguments, look, timeout_s)
        if arguments.rule
        else target_choices(arguments.action, look.state)
    )
    request = _named_target(arguments, targets, look.state).request
    change = arguments.change if not arguments.change.is_empty else request.change
    return replace(request, options=arguments.options, change=change)


async def _remedy_targets(arguments: ActArguments, look: Look, timeout_s: float) -> Sequence[TargetChoice]:
    """The possible targets of the action as a remedy of the finding, waiting for the finding to appear."""

    def matching() -> Finding | None:
        return next((finding for finding in look.state.findings if finding.rule == arguments.rule), None)

    await look.until(lambda: matching() is not None, timeout_s)
    if (finding := matching()) is None:
        rules = sorted({item.rule for item in look.state.findings})
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
    return remedy_choices(arguments.action, remedy, finding, look.state)


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
    from sparktop.engines.ranks import ranks

    if not wish.request.target or len(wish.request.nodes) < 2:
        return False
    team = ranks(wish.request.target, wish.request.nodes[0], fleet)
    return any(rank.engine.name == name for rank in team)


# --- an interrupted run: what the console does with `o`, and with `b` there


async def take_up(call: Invocation, verb: str, target: str) -> int:
    """Show the interrupted run on these nodes, then plan it again or its way back, ask, and run that.

    Args:
        target: the engine that the run was about; empty: there is only one such run.

    Returns:
        The exit code: 0 done or printed, 1 refused or failed, 130 interrupted.
    """
    async with watched(call) as (look, operating):
        check_links(look.state)
        run = _chosen(await _reports(operating, look.state), target, look.state)
        draw(masked_lines(printed_lines(run, width_of(sys.stderr), has_steps=True), run.plan.secrets), sys.stderr)
        plan = _way_back(operating, run) if verb == RESTORE else await _again(operating, run)
        code = await carry_out(call, operating, plan)
        if code == 0 and not call.is_dry:
            reports = await _reports(operating, look.state) if verb != RESTORE else ()
            left = [report for report in reports if report.id == run.id]
            for one in left:
                say(f"sparktop: it is done, and the run before has left: {one.remains}. {one.hint}")
            if not left:
                operating.read(run.id)
        return code


async def _reports(operating: Operating, fleet: FleetState) -> Sequence[Run]:
    reports = [run_report(interrupted, fleet) for interrupted in await operating.interrupted_runs()]
    return [run for run in reports if run is not None]


def _chosen(runs: Sequence[Run], target: str, fleet: FleetState) -> Run:
    """The run that is meant.

    Raises:
        TransportError: what an interrupted run has left can't be seen, as containers can't be listed.
        UsageError: none or several match.
    """
    matching = [run for run in runs if target in ("", run.plan.request.target)]
    if len(matching) == 1:
        return matching[0]
    where = " and ".join(view.name for view in fleet.nodes)
    if not matching:
        check_engines_known(fleet)
        of = f" of {target}" if target else ""
        raise UsageError(f"no interrupted run{of} has left anything on {where}", hint="sparktop audit lists all runs")
    titles = ", ".join(run.plan.title for run in matching)
    raise UsageError(f"which run? {titles}", hint=f"name its engine: --engine {matching[-1].plan.request.target}")


def _way_back(operating: Operating, run: Run) -> Plan | Refusal:
    plan = operating.rollback(run)
    if plan is not None:
        return plan
    reason = (
        "Its rollback can't be planned: the audit is incomplete, it needs another node, or a later run did the same."
    )
    return Refusal(request=run.plan.request, reason=reason, remedies=(run.hint,) if run.hint else ())


async def _again(operating: Operating, run: Run) -> Plan | Refusal:
    """The same action anew; what the interrupted run owes is carried into it. A reboot isn't done twice."""
    request = run.plan.request
    states = {step_run.step.id: step_run.state for step_run in run.steps}
    if states.get(REBOOT_STEP) in (StepState.DONE, StepState.UNKNOWN):
        again = f"to reboot once more: sparktop act reboot {' '.join(request.nodes)}"
        reason = "That run has ordered the reboot, or may have. What it was to do afterwards is left."
        back = f"to do that: sparktop act {RESTORE} {' '.join(request.nodes)}" if run.can_go_back else run.hint
        return Refusal(request=request, reason=reason, remedies=(*filter(None, (back,)), again))
    if request.action in HALF_AUDITED:
        whole = whole_request(request, run.asked, os.environ)
        if whole is None:
            reason = f"What this {request.action} was to change is not kept whole in the audit: type it again."
            nodes = " ".join(request.nodes)
            remedy = f"to roll it back: sparktop act {RESTORE} {nodes}"
            return Refusal(request=request, reason=reason, remedies=(remedy,))
        request = whole
    return await operating.plan(replace(request, finding=None))
