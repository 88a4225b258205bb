"""`sparktop act resume` and `sparktop act restore`: an interrupted run, shown and planned again, or led back.

What the console does with `o`, and with `b` there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from sparktop.clock import Clock, SystemClock
from sparktop.documents.run import printed_lines
from sparktop.documents.step_text import masked_lines
from sparktop.errors import TransportError, UsageError
from sparktop.headless.act import MakeSession, OutputOptions, carry_out, check_links, put, refusal_page, watched
from sparktop.headless.plan_data import refusal_data
from sparktop.headless.terminal import draw, say, width_of
from sparktop.model.fleet import FleetState
from sparktop.operate.actions import HALF_AUDITED, RESTORE
from sparktop.operate.audit.interrupted_runs import run_report
from sparktop.operate.audit.request_codec import whole_request
from sparktop.operate.audit_file import REBOOT_STEP
from sparktop.operate.run.operating import Operating
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run
from sparktop.operate.step.step_result import StepState


async def take_up(
    make: MakeSession,
    verb: str,
    target: str,
    *,
    output: OutputOptions,
    secret: AskSecret,
    clock: Clock | None = None,
) -> int:
    """Show the interrupted run on these nodes, then plan it again or its way back, ask, and run that.

    Args:
        target: the engine that the run was about; empty: there is only one such run.

    Returns:
        The exit code: 0 done or printed, 1 refused or failed, 130 interrupted.
    """
    async with watched(make, output) as (watch, operating, _):
        check_links(watch.state)
        run = _chosen(await _reports(operating, watch.state), target, watch.state)
        draw(masked_lines(printed_lines(run, width_of(sys.stderr), has_steps=True), run.plan.secrets), sys.stderr)
        plan = _way_back(operating, run) if verb == RESTORE else await _again(operating, run)
        if isinstance(plan, Refusal):
            put(output, refusal_page(plan), {"refusal": refusal_data(plan)})
            return 1
        code = await carry_out(operating, plan, output, secret, clock or SystemClock())
        if code == 0 and not output.is_dry:
            reports = await _reports(operating, watch.state) if verb != RESTORE else ()
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
        gaps = [view.engines_gap for view in fleet.nodes if view.engines_gap]
        if gaps:
            raise TransportError(
                f"{'; '.join(gaps)}; nothing was planned", hint="try again, or wait longer: --timeout 60"
            )
        of = f" of {target}" if target else ""
        raise UsageError(f"no interrupted run{of} has left anything on {where}", hint="sparktop audit lists all runs")
    titles = ", ".join(run.plan.title for run in matching)
    raise UsageError(f"which run? {titles}", hint=f"name its engine: --engine {matching[-1].plan.request.target}")


def _way_back(operating: Operating, run: Run) -> Plan | Refusal:
    plan = operating.way_back(run)
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
