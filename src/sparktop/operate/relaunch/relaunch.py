"""Relaunch planner: picks the kind of relaunch by what started the engine, and adds lint warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.cmdline.container_body import host_options, with_options
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.launch_command import changed
from sparktop.dataclass import dataclass
from sparktop.diagnose.lint.catalogue import check
from sparktop.engines.memory_target import gib_option
from sparktop.launchspec.read.running import RunningEngine, running_engine, spec_of
from sparktop.masking import mask_text
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Ask, Survey
from sparktop.operate.container.lifecycle import is_policy
from sparktop.operate.plan.common_steps import evidence_step, link_steps, resolved_step
from sparktop.operate.plan.origin import Origin, OriginKind
from sparktop.operate.plan.outlook import doubt
from sparktop.operate.plan.running_rank import in_order, lost_work
from sparktop.operate.plan.sequence import sequence, way_back
from sparktop.operate.plan.start_steps import guard_note, typed_memory
from sparktop.operate.plan.stop_steps import down_steps, grace_of, typed_stop
from sparktop.operate.refused import Refused, refused_options
from sparktop.operate.relaunch import (
    compose,
    compose_project,
    context,
    manual_steps,
    plain,
    relaunch_text,
    sparktop_launch,
    systemd,
    systemd_drop_in,
)
from sparktop.operate.relaunch.rank_change import RankChange, changes_by_rank
from sparktop.operate.relaunch.rank_change import asks as rank_change_asks
from sparktop.operate.relaunch.rank_relaunch import RankRelaunch
from sparktop.operate.secrets.sudo import sudo_notes
from sparktop.operate.step.plan import Difference, Plan, Step, risk_of
from sparktop.text.sentences import listed

_NAMED = {"volume": "mount"}
"""Lint's name for a `docker run` option that has several."""


def new_findings(rank_changes: Sequence[RankChange]) -> tuple[str, ...]:
    """Lint findings that the change introduces: one sentence each."""
    return tuple(
        dict.fromkeys(
            warning for rank_change in rank_changes for warning in _new_findings(rank_change, len(rank_changes))
        )
    )


def _new_findings(rank_change: RankChange, nodes: int) -> Iterator[str]:
    desktop = rank_change.rank.view.facts.is_graphical if rank_change.rank.view.facts else None
    before = running_engine(rank_change.rank.engine, rank_change.rank.node, nodes=nodes, desktop=desktop)
    after = _changed_launch(rank_change, before)
    if after is None:
        return
    old_findings = {(old.rule, old.subject, old.title) for old in _findings(before)}
    for finding in _findings(after):
        if finding.severity is not Severity.INFO and (finding.rule, finding.subject, finding.title) not in old_findings:
            yield f"The change itself: {finding.title} ({finding.rule})."


def _findings(launch: RunningEngine) -> tuple[Finding, ...]:
    spec = spec_of(launch)
    return () if spec is None else check((spec,), mask=mask_text)


def _changed_launch(rank_change: RankChange, before: RunningEngine) -> RunningEngine | None:
    """The launch with the change; None where its command can't be edited."""
    change = rank_change.change
    try:
        argv = changed((), before.argv, change.flags, {}).command if change.flags else before.argv
    except CannotEdit:
        return None
    pairs = dict(pair.partition("=")[::2] for pair in before.environment)
    for name, value in change.environment.items():
        pairs.pop(name, None)
        if value is not None:
            pairs[name] = value
    return replace(
        before,
        argv=tuple(argv),
        environment=tuple(f"{name}={value}" for name, value in pairs.items()),
        image=change.image or before.image,
        container=_changed_options(before.container, rank_change) if before.container is not None else None,
    )


def _changed_options(
    container: tuple[tuple[str, str | None], ...], rank_change: RankChange
) -> tuple[tuple[str, str | None], ...]:
    """The container's Docker options with those that the change sets."""
    host: dict[str, Any] = dict(rank_change.host)
    changed_host = dict(host)
    with_options(changed_host, rank_change.change.options)
    old, new = (_option_pairs(config, rank_change.change.options) for config in (host, changed_host))
    kept = [pair for pair in container if pair not in old and pair[0] not in {name for name, _ in (*old, *new)}]
    return (*kept, *new)


def _option_pairs(host: Mapping[str, Any], names: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    changed_options = {name: host[name] for name in names if host.get(name) is not None}
    return tuple((_NAMED.get(name, name), value) for name, value in host_options(changed_options))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaunchWay:
    """How the engines that one kind of tool started are relaunched."""

    relaunch: Callable[[RankChange, FleetState, Survey, int | None, Sequence[FlagChange]], RankRelaunch]
    """(change, picture, survey, memory to wait for as set by the operator, flags changed on the head)."""
    asks: Callable[[RankChange, Survey], Iterable[Ask]] = lambda rank_change, survey: ()


_RELAUNCH_WAYS: Mapping[OriginKind, RelaunchWay] = {
    OriginKind.COMPOSE: RelaunchWay(relaunch=compose.rank_relaunch, asks=compose_project.asks),
    OriginKind.UNIT: RelaunchWay(relaunch=systemd.rank_relaunch, asks=systemd_drop_in.asks),
    OriginKind.PODMAN: RelaunchWay(relaunch=systemd.rank_relaunch),
}
"""By what started the engine. Any other is a plain container."""


def _way_of(origin: Origin) -> RelaunchWay | None:
    """The way that fits what started the engine; None: it can only be told how."""
    if origin.is_launched or origin.kind is OriginKind.PROCESS:
        return None
    return _RELAUNCH_WAYS.get(origin.kind, RelaunchWay(relaunch=plain.rank_relaunch))


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """Questions about every rank, and those of the way that fits the engine, in rounds."""
    questions = rank_change_asks(request, picture, survey)
    if any(ask not in survey.answers for ask in questions):
        return questions
    rank_changes = changes_by_rank(request, picture, survey)
    way = _way_of(rank_changes[0].origin)
    if way is None:
        return questions
    further = (ask for rank_change in rank_changes for ask in way.asks(rank_change, survey))
    return tuple(dict.fromkeys((*questions, *context.asks(rank_changes[0]), *further)))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """The plan of the way that fits the engine: its container comes from the one that runs."""
    rank_changes = changes_by_rank(request, picture, survey)
    way = _way(rank_changes)
    with refused_options():
        grace_s = grace_of(request, [rank_change.rank for rank_change in rank_changes])
        target_bytes = gib_option(request.options.get("target_gib", ""))
    ranks: list[RankRelaunch] = []
    for rank_change in rank_changes:
        head_flags = ranks[0].flags if ranks else ()
        try:
            ranks.append(way.relaunch(rank_change, picture, survey, target_bytes, head_flags))
        except Refused as refused:
            raise sparktop_launch.with_line(refused, rank_changes) from refused
    head = ranks[0]
    differences = tuple(dict.fromkeys(difference for rank in ranks for difference in rank.differences()))
    if not differences and not all(rank.is_made_again for rank in ranks):
        raise Refused(
            f"{head.name} already runs with all of this: nothing to change",
            ("to restart it unchanged: safe-restart",),
        )
    ranks = [rank.with_labels(ranks, differences) for rank in ranks]
    files = dict.fromkeys(tuple(rank.file_differences()) for rank in ranks)
    down, up = in_order([rank.rank for rank in ranks], ranks)
    steps = tuple(_steps(request, ranks, down, up, grace_s, survey, picture))
    expected = doubt(ranks, picture, is_changed=True)
    return Plan(
        request=request,
        title=f"Relaunch {head.name} on {listed(rank.node for rank in ranks)} {relaunch_text.summary(differences)}",
        risk=risk_of(steps),
        steps=steps,
        way_back=tuple(way_back(down, up, grace_s)),
        effect=head.effect(request, ranks[1:]),
        warnings=(
            *dict.fromkeys((*filter(None, (expected,)), *_warnings(ranks, steps, survey))),
            *context.warnings(rank_changes[0], survey),
            *new_findings(rank_changes),
        ),
        doubt=expected,
        differences=(*_by_node(ranks), *(line for lines in files for line in lines)),
        equivalent=tuple(_equivalent(rank_changes, ranks[0], down, up, grace_s)),
        secrets=tuple(dict.fromkeys(value for rank in ranks for value in rank.secrets())),
    )


def _by_node(ranks: Sequence[RankRelaunch]) -> tuple[Difference, ...]:
    """What all ranks change, then what each changes besides, with its node."""
    by_rank = [tuple(rank.differences()) for rank in ranks]
    common = tuple(difference for difference in by_rank[0] if all(difference in own for own in by_rank))
    return common + tuple(
        replace(difference, node=rank.node)
        for rank, own in zip(ranks, by_rank, strict=True)
        for difference in own
        if difference not in common
    )


def _way(rank_changes: tuple[RankChange, ...]) -> RelaunchWay:
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
    way = _way_of(rank_changes[0].origin)
    if way is None:
        raise manual_steps.manual_only(rank_changes)
    return way


def _steps(
    request: Request,
    ranks: Sequence[RankRelaunch],
    down: Sequence[RankRelaunch],
    up: Sequence[RankRelaunch],
    grace_s: float,
    survey: Survey,
    picture: FleetState,
) -> Iterator[Step]:
    yield from sequence(
        ranks,
        up=up,
        before=(
            evidence_step([rank.node for rank in ranks], [rank.evidence_name for rank in ranks]),
            *link_steps([rank.node for rank in ranks], picture),
        ),
        stop=down_steps([rank.rank for rank in down], grace_s, is_coming_back=True),
        survey=survey,
        is_proven=request.options.get("smoke", "yes") != "no",
        then=resolved_step(request, ranks[0].node),
    )
    if request.options.get("keep_old", "yes") == "no":
        for rank in ranks:
            yield from rank.remove_old()


def _warnings(ranks: Sequence[RankRelaunch], steps: Sequence[Step], survey: Survey) -> Iterator[str]:
    """What the review warns of: lost requests and files, memory, the guard, sudo."""
    yield from lost_work(ranks[0].rank)
    for rank in ranks:
        yield from rank.target.warnings
        yield from rank.warnings()
        if rank.rank.container is not None:
            yield from guard_note(rank.rank.view)
        yield from sudo_notes(steps, survey, rank.node, with_lines=rank.is_sudo_lasting)
    if is_policy(ranks[0].policy):
        yield "The new container gets its restart policy only once it has served."


def _equivalent(
    rank_changes: Sequence[RankChange],
    head: RankRelaunch,
    down: Sequence[RankRelaunch],
    up: Sequence[RankRelaunch],
    grace_s: float,
) -> Iterator[str]:
    """The same relaunch as shell commands."""
    yield from sparktop_launch.equivalent(rank_changes, head.labels)
    for rank in down:
        yield from typed_stop(rank.rank, grace_s)
    for rank in up:
        yield typed_memory(rank.node, rank.target.target_bytes)
        yield from rank.typed_start()
