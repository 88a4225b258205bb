"""A look at the nodes: chapter by chapter, the checks' questions asked and their answers made into rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from sparktop import faults
from sparktop.bringup.card import Basis, Card, CheckInputs, Outcome, Scope, Target, Unread, target_of, unknown
from sparktop.engines.ranks import teams
from sparktop.model.bringup import Chapter, CheckResult, Key
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.state import State
from sparktop.model.survey import ROUNDS_AT_MOST, Answer, Question, Survey

Asking = Callable[[Sequence[Question]], Awaitable[Mapping[Question, Answer]]]
"""Puts questions to the nodes; `operate.operations.Operations.ask`."""
Row = tuple[Card, Target]


async def run_checks(
    cards: Sequence[Card],
    picture: Callable[[], FleetState],
    ask: Asking,
    *,
    kept: Mapping[Key, CheckResult],
    now_wall_s: Callable[[], float],
    again: bool = False,
) -> AsyncIterator[tuple[Chapter, tuple[CheckResult, ...]]]:
    """Yield each chapter's rows once its nodes have answered.

    Args:
        kept: rows proven or measured earlier; one whose basis holds is not looked at again.
        again: look also at what a look has proven; a look can't measure, so a measured row stands.
    """
    answers: dict[Question, Answer] = {}
    for chapter in Chapter:
        chapter_cards = [card for card in cards if card.chapter is chapter]
        if not chapter_cards:
            continue
        rows = [(card, target) for card in chapter_cards for target in targets(card, picture())]
        proven = {
            (card, target): row
            for card, target in rows
            if (card.measured_by or not again) and (row := still_proven(card, target, picture(), kept))
        }
        await _ask([row for row in rows if row not in proven], picture(), ask, answers)
        now, survey, wall_s = picture(), Survey(answers=answers), now_wall_s()
        yield (
            chapter,
            tuple(proven.get(row) or row_of(*row, _outcome(*row, now, survey), now, now_wall_s=wall_s) for row in rows),
        )


async def _ask(due: Sequence[Row], picture: FleetState, ask: Asking, answers: dict[Question, Answer]) -> None:
    for _ in range(ROUNDS_AT_MOST):
        survey = Survey(answers=answers)
        questions = dict.fromkeys(
            question
            for card, target in due
            if not _silent(target.nodes, picture)
            for question in _questions(card, CheckInputs(picture=picture, survey=survey, target=target))
            if question not in answers
        )
        if not questions:
            return
        answers.update(await ask(tuple(questions)))


def _questions(card: Card, seen: CheckInputs) -> Iterator[Question]:
    try:
        yield from (ask for ask in card.questions(seen) if ask is not None)
    except Exception as error:  # noqa: BLE001 - a fault of one check is that row's alone: its look meets it, too
        faults.report(f"the check {card.id}", error)


def targets(card: Card, picture: FleetState) -> Iterator[Target]:
    """What each of a check's rows is about."""
    names = tuple(view.name for view in picture.nodes)
    match card.scope:
        case Scope.NODE:
            yield from (Target(nodes=(name,)) for name in names)
        case Scope.PAIR:
            yield from (Target(nodes=pair) for pair in combinations(names, 2))
        case Scope.FLEET:
            if len(names) > 1:
                yield Target(nodes=names)
        case Scope.ENGINE:
            yield from (target_of(team, picture) for team in teams(picture))


def row_of(card: Card, target: Target, outcome: Outcome, picture: FleetState, *, now_wall_s: float) -> CheckResult:
    """The row of this outcome, with what it depends on where it will be kept."""
    is_proven = outcome.state is State.PASSED or (bool(card.measured_by) and outcome.state in MEASURED)
    return CheckResult(
        check=card.id,
        nodes=target.nodes,
        subject=target.subject,
        state=outcome.state,
        found=outcome.found,
        remedies=outcome.remedies,
        gauges=outcome.gauges,
        basis=basis_of(card, target, picture) if is_proven else {},
        proven_wall_s=now_wall_s if is_proven else None,
    )


MEASURED = (State.PASSED, State.WARNING, State.FAILED)
"""What a measurement can find; all of it is kept."""


def _outcome(card: Card, target: Target, picture: FleetState, survey: Survey) -> Outcome:
    if card.chapter is not Chapter.REACH and (silent := _silent(target.nodes, picture)):
        return Outcome(state=State.UNREACHED, found=f"{' and '.join(silent)} can't be reached")
    try:
        return card.look(CheckInputs(picture=picture, survey=survey, target=target))
    except Unread as why:
        return unknown(str(why))
    except Exception as error:  # noqa: BLE001 - what one node says may break one check, and no other
        return unknown(faults.report(f"the check {card.id}", error))


def _silent(nodes: Collection[str], picture: FleetState) -> list[str]:
    """Those of the nodes that don't answer."""
    views = {view.name: view for view in picture.nodes}
    return [name for name in nodes if (view := views.get(name)) is None or view.link.state is not LinkState.LIVE]


# --- what stays proven


def still_proven(
    card: Card, target: Target, picture: FleetState, kept: Mapping[Key, CheckResult]
) -> CheckResult | None:
    """The kept row, where all that it depends on is known and the same."""
    row = kept.get((card.id, target.nodes, target.subject))
    if row is None or not card.basis or _silent(target.nodes, picture):
        return None
    if row.state not in (MEASURED if card.measured_by else (State.PASSED,)):
        return None
    now = basis_of(card, target, picture)
    is_same = dict(row.basis) == now and all(now.values())
    return replace(row, is_kept=True) if is_same else None


def basis_of(card: Card, target: Target, picture: FleetState) -> dict[str, str]:
    """What the check's result depends on, as it is now; an empty value: not known."""
    return {
        f"{view.name} {basis}": _BASES[basis](view) if basis in _BASES else _engine_start(view.name, target, picture)
        for view in picture.nodes
        if view.name in target.nodes
        for basis in card.basis
    }


def _engine_start(node: str, target: Target, picture: FleetState) -> str:
    """The container of the engine's rank on the node, or its process, and when that started."""
    team = next((team for team in teams(picture) if target_of(team, picture) == target), ())
    engine = next((rank.engine for rank in team if rank.node.name == node), None)
    if engine is None:
        return ""
    container = engine.container
    started_s = container.started_wall_s if container is not None else engine.started_boot_s
    identity = container.container_id if container is not None else engine.key
    return "" if started_s is None else f"{identity} {started_s:.3f}"


def _addresses(view: NodeView) -> str:
    return " ".join(sorted(f"{one.name}={','.join(sorted(one.addresses))}" for one in view.interfaces if one.addresses))


_BASES: Mapping[Basis, Callable[[NodeView], str]] = {
    Basis.BOOT: lambda view: view.facts.boot_id if view.facts else "",
    Basis.DRIVER: lambda view: view.driver_version,
    Basis.KERNEL: lambda view: view.facts.kernel if view.facts else "",
    Basis.RELEASE: lambda view: (view.facts.dgx_release if view.facts else None) or "",
    Basis.ADDRESSES: _addresses,
}
