"""Relaunch planner: picks the kind of relaunch by what started the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sparktop.engines.memory_target import gib_option
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Survey
from sparktop.operate.container.lifecycle import is_policy
from sparktop.operate.plan.common_steps import questions_of
from sparktop.operate.plan.origin import OriginKind
from sparktop.operate.plan.outlook import expected_failure
from sparktop.operate.plan.running_rank import lost_work
from sparktop.operate.plan.running_start import anew
from sparktop.operate.plan.start_steps import guard_note, load_s
from sparktop.operate.plan.stop_steps import grace_of
from sparktop.operate.refused import Refused, refused_options
from sparktop.operate.relaunch import (
    compose,
    manual_steps,
    objections,
    plain,
    relaunch_text,
    sparktop_launch,
    systemd,
)
from sparktop.operate.relaunch.rank_change import Given, RankChange, RankRelaunch, changes_by_rank
from sparktop.operate.secrets.sudo import sudo_notes
from sparktop.operate.step.plan import Difference, Plan, Step, risk_of
from sparktop.text.sentences import listed
from sparktop.text.units import span

_Relaunch = Callable[[RankChange, Given], RankRelaunch]
_WAYS: Mapping[OriginKind, _Relaunch] = {
    OriginKind.COMPOSE: compose.relaunch,
    OriginKind.UNIT: systemd.relaunch,
    OriginKind.PODMAN: systemd.relaunch,
    OriginKind.PLAIN: plain.relaunch,
    OriginKind.RECIPE: plain.relaunch,
}
"""How a rank of an engine that one kind of tool started is relaunched; of the others it can only be told how."""


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """The plan of the way that fits the engine: its container comes from the one that runs."""
    rank_changes = changes_by_rank(request, picture, survey)
    relaunch = _way(rank_changes)
    with refused_options():
        given = Given(
            team=rank_changes,
            request=request,
            picture=picture,
            survey=survey,
            grace_s=grace_of(request, [rank_change.rank for rank_change in rank_changes], picture),
            wanted_bytes=gib_option(request.options.get("target_gib", "")),
        )
    try:
        ranks = tuple(relaunch(rank_change, given) for rank_change in rank_changes)
    except Refused as refused:
        raise sparktop_launch.with_line(refused, rank_changes) from refused
    head, nodes = ranks[0], [rank.node for rank in ranks]
    by_rank = [tuple(relaunch_text.change_differences(rank.rank_change, rank.flags)) for rank in ranks]
    differences = tuple(dict.fromkeys(difference for own in by_rank for difference in own))
    if not differences and not all(rank_change.may_be_empty for rank_change in rank_changes):
        raise Refused(
            f"{head.name} already runs with all of this: nothing to change",
            ("to restart it unchanged: safe-restart",),
        )
    files = dict.fromkeys(tuple(rank.file.differences()) for rank in ranks if rank.file is not None)
    replaced, back, typed = anew(request, ranks, picture, given.grace_s)
    steps = (*replaced, *(step for rank in ranks for step in rank.remove_old))
    expected = expected_failure(ranks, picture, is_changed=True)
    return Plan(
        request=request,
        title=f"Relaunch {head.name} on {listed(nodes)} {relaunch_text.summary(differences)}",
        risk=risk_of(steps),
        steps=steps,
        rollback=back,
        effect=_effect(head, request),
        warnings=(
            *dict.fromkeys((*filter(None, (expected,)), *_warnings(ranks, steps))),
            *objections.context(rank_changes[0], survey),
            *objections.lint(rank_changes),
        ),
        expected_failure=expected,
        differences=(*_by_node(nodes, by_rank), *(line for lines in files for line in lines)),
        equivalent=(
            *sparktop_launch.same([one.rank for one in ranks], head.labels, "the same from its recipe"),
            *typed,
        ),
        secrets=tuple(dict.fromkeys(value for rank in ranks for value in rank.all_secrets)),
    )


questions = questions_of(plan)


def _by_node(nodes: Sequence[str], by_rank: Sequence[tuple[Difference, ...]]) -> tuple[Difference, ...]:
    """What all ranks change, then what each changes besides, with its node."""
    common = tuple(difference for difference in by_rank[0] if all(difference in own for own in by_rank))
    return common + tuple(
        replace(difference, node=node)
        for node, own in zip(nodes, by_rank, strict=True)
        for difference in own
        if difference not in common
    )


def _effect(head: RankRelaunch, request: Request) -> str:
    last_load_s = load_s(head.rank.engine)
    took = f" Its last load took {span(last_load_s)}." if last_load_s is not None else ""
    return f"{head.name} is down until {head.until}.{took}{relaunch_text.proof(request)} {head.stays}."


def _way(rank_changes: tuple[RankChange, ...]) -> _Relaunch:
    """The way that fits the engine; refused where only another tool can start it, or its ranks need several."""
    manual_steps.refuse_orchestrated(rank_changes)
    sparktop_launch.refuse_launch_only(rank_changes)
    if len({rank_change.origin.kind for rank_change in rank_changes}) > 1:
        launcher_ranks = tuple(rank_change for rank_change in rank_changes if rank_change.origin.is_launched)
        if launcher_ranks:  # the launcher started every rank
            raise manual_steps.manual_only(launcher_ranks)
        starters = ", ".join(f"{change.rank.node}: {change.origin.kind.value}" for change in rank_changes)
        raise Refused(
            f"the ranks of {rank_changes[0].rank.name} were started differently ({starters})",
            tuple(line for rank_change in rank_changes for line in manual_steps.lines(rank_change)),
        )
    way = _WAYS.get(rank_changes[0].origin.kind)
    if way is None:
        raise manual_steps.manual_only(rank_changes)
    return way


def _warnings(ranks: Sequence[RankRelaunch], steps: Sequence[Step]) -> Iterator[str]:
    """What the review warns of: lost requests and files, memory, the guard, sudo."""
    yield from lost_work(ranks[0].rank)
    for rank in ranks:
        yield from rank.target.warnings
        yield from rank.warnings
        if rank.rank.container is not None:
            yield from guard_note(rank.rank.view)
        # Lines for sudo would not apply again where a service's drop-in is written as root.
        with_lines = not rank.rank.origin.is_service
        yield from sudo_notes(steps, rank.rank.privileges, rank.node, with_lines=with_lines)
    if is_policy(ranks[0].policy):
        yield "The new container gets its restart policy only once it has served."
