"""Plan for a safe restart: stop an engine, wait until memory is available, start it and test it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparktop.engines.memory_target import gib_option
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Survey
from sparktop.operate.plan.common_steps import questions_of
from sparktop.operate.plan.origin import OriginKind
from sparktop.operate.plan.outlook import expected_failure
from sparktop.operate.plan.running_rank import (
    RunningRank,
    inspect_ranks,
    lost_work,
    neighbours,
    refuse_launched,
    refuse_status,
    requested_ranks,
    require_all_ranks,
)
from sparktop.operate.plan.running_start import RunningStart, anew, existing
from sparktop.operate.plan.start_steps import MEMORY_LIMIT_S, guard_note, load_s
from sparktop.operate.plan.stop_steps import grace_of
from sparktop.operate.refused import Refused, refused_options
from sparktop.operate.relaunch import sparktop_launch
from sparktop.operate.secrets.sudo import require_root, sudo_notes
from sparktop.operate.step.plan import Plan, Step, risk_of
from sparktop.text.sentences import listed
from sparktop.text.units import gib, span

MEMORY_LONGEST_S = 3600.0
"""Longest that the operator may have it wait for memory."""


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """The steps of the restart, or why this engine can't be restarted from here."""
    team = requested_ranks(request, picture)
    require_all_ranks(team)
    ranks = inspect_ranks(team, survey)
    for rank in ranks:
        refuse_launched(rank)
        _refuse_unstartable(rank)
    with refused_options():
        target_bytes = gib_option(request.options.get("target_gib", ""))
        grace_s = grace_of(request, ranks, picture)
        limit_s = _limit_option(request.options.get("memory_limit_s", ""))
    starters = [existing(rank, wanted_bytes=target_bytes, limit_s=limit_s) for rank in ranks]
    steps, back, typed = anew(request, starters, picture, grace_s)
    _require_root(ranks)
    expected = expected_failure(starters, picture)
    return Plan(
        request=request,
        title=f"Safe restart of {ranks[0].name} on {listed(rank.node for rank in ranks)}",
        risk=risk_of(steps),
        steps=steps,
        rollback=back,
        effect=_effect(starters, grace_s),
        warnings=tuple(dict.fromkeys((*filter(None, (expected,)), *_warnings(request, starters, steps)))),
        expected_failure=expected,
        equivalent=(*typed, *sparktop_launch.again(ranks)),
        secrets=tuple(dict.fromkeys(box.api_key for rank in ranks if (box := rank.container) and box.api_key)),
    )


questions = questions_of(plan)


def _effect(starters: Sequence[RunningStart], grace_s: float) -> str:
    head = starters[0]
    last_load_s = load_s(head.rank.engine)
    took = f" Its last load took {span(last_load_s)}." if last_load_s is not None else ""
    nodes_by_target: dict[str, list[str]] = {}
    for starter in starters:
        nodes_by_target.setdefault(_target_text(starter), []).append(starter.node)
    targets = "; ".join(f"{listed(nodes)}: {text}" for text, nodes in nodes_by_target.items())
    down = (
        f"{head.name} is down from its stop (at most {grace_s:.0f} s) until it has loaded again."
        if any(starter.rank.runs for starter in starters)
        else f"{head.name} is down now, and serves again once it has loaded."
    )
    return f"{down}{took} It starts only when there is memory for it: {targets}. Otherwise nothing is started."


def _target_text(starter: RunningStart) -> str:
    """What must be available, and of an engine that is down what is, where that is less."""
    target, sample = starter.target, starter.rank.view.sample
    text = f"{gib(target.target_bytes)} available ({target.sentence})"
    if starter.rank.runs or sample is None or sample.memory.available_bytes >= target.target_bytes:
        return text
    return f"{text}, {gib(sample.memory.available_bytes)} now"


def _warnings(request: Request, starters: Sequence[RunningStart], steps: Sequence[Step]) -> Iterator[str]:
    """What the review warns of: lost requests, memory, the restart policy, sudo."""
    head = starters[0].rank
    yield from lost_work(head)
    for starter in starters:
        yield from starter.target.warnings
        yield from _rank_warnings(starter)
        yield from sudo_notes(steps, starter.rank.privileges, starter.node)
    if any(starter.rank.container is not None and starter.rank.container.restarts for starter in starters):
        yield "The restart policy stays off until the end; a run that ends early leaves it off, and offers a rollback."
    if request.options.get("smoke", "yes") != "no" and head.engine.endpoint is None and head.runs:
        yield f"No endpoint of {head.name} is known yet: the request goes to the port that it opens."


def _rank_warnings(starter: RunningStart) -> Iterator[str]:
    rank = starter.rank
    yield from neighbours(rank)
    if rank.container is not None:
        yield from guard_note(rank.view)
    if rank.origin.is_service:
        yield (
            f"{rank.origin.unit} runs it on {rank.node}: this restarts that service. Its new container "
            "has no id yet, so the guard is armed only when the engine has loaded."
        )
    for step in starter.phases.left_out:
        if step.id.startswith("shm"):
            yield f"Files in /dev/shm on {rank.node} stay: removing them needs root there."
        else:
            yield f"Caches of {rank.node} are not dropped, should free memory fall short: that needs root there."


# --- refusals


def _refuse_unstartable(rank: RunningRank) -> None:
    container = rank.container
    if container is not None and container.auto_remove and not rank.origin.is_service:
        raise Refused(
            f"{rank.name} on {rank.node} was started with --rm: Docker removes it when it stops, so it "
            "could not be started again",
            (
                "relaunch it: that creates a new container with the same settings",
                f"sparktop act relaunch {shlex.quote(rank.node)} --engine {shlex.quote(rank.name)}",
            ),
        )
    if container is not None:
        refuse_status(container)
    if rank.origin.kind is OriginKind.PROCESS:
        running = " ".join(rank.engine.argv)
        raise Refused(
            f"{rank.name} on {rank.node} runs in no container and no service: sparktop can stop it, but "
            "doesn't know how to start it again",
            (
                f"stop it: sparktop act stop-engine {shlex.quote(rank.node)} --engine {shlex.quote(rank.name)}",
                *((f"then start it where it was started: {running[:400]}",) if running else ()),
                "or let a service start it: write a systemd unit for it",
            ),
        )


def _require_root(ranks: Sequence[RunningRank]) -> None:
    """Refuse where a service needs root; other steps that need it are left out, and the review says so."""
    for rank in ranks:
        if (service := rank.service) is not None and not service.is_own:
            commands = [service.argv("stop"), service.argv("start")]
            require_root(rank.privileges, commands, rank.node)


def _limit_option(text: str) -> float:
    if not text:
        return MEMORY_LIMIT_S
    if not text.isdecimal() or not 10 <= int(text) <= MEMORY_LONGEST_S:
        raise ValueError(f"memory_limit_s must be between 10 and {MEMORY_LONGEST_S:.0f} seconds")
    return float(text)
