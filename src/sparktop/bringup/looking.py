"""A look at the nodes: chapter by chapter, the checks' questions asked and their answers made into rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from sparktop import faults
from sparktop.bringup.card import Basis, Card, Outcome, Scope, Seen, skipped, unknown
from sparktop.model.bringup import Chapter, CheckResult, CheckState
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.survey import ROUNDS_AT_MOST, Answer, Ask, Survey

Asking = Callable[[Sequence[Ask]], Awaitable[Mapping[Ask, Answer]]]
"""Puts questions to the nodes; `operate.operations.Operations.ask`."""
Key = tuple[str, tuple[str, ...]]


async def look(
    cards: Sequence[Card],
    picture: Callable[[], FleetState],
    ask: Asking,
    *,
    kept: Mapping[Key, CheckResult],
    now_wall_s: Callable[[], float],
) -> AsyncIterator[tuple[Chapter, tuple[CheckResult, ...]]]:
    """Yield each chapter's rows once its nodes have answered.

    Args:
        kept: rows proven by earlier looks; one whose basis holds is not looked at again.
    """
    answers: dict[Ask, Answer] = {}
    for chapter in Chapter:
        chapter_cards = [card for card in cards if card.chapter is chapter]
        if not chapter_cards:
            continue
        rows = [(card, nodes) for card in chapter_cards for nodes in targets(card, picture())]
        proven = {(card.id, nodes): row for card, nodes in rows if (row := still_proven(card, nodes, picture(), kept))}
        due = [(card, nodes) for card, nodes in rows if (card.id, nodes) not in proven]
        await _ask(due, picture(), ask, answers)
        seen = Seen(picture=picture(), survey=Survey(answers=answers))
        yield (
            chapter,
            tuple(
                proven.get((card.id, nodes)) or result(card, nodes, seen, now_wall_s=now_wall_s())
                for card, nodes in rows
            ),
        )


async def _ask(
    due: Sequence[tuple[Card, tuple[str, ...]]], picture: FleetState, ask: Asking, answers: dict[Ask, Answer]
) -> None:
    for _ in range(ROUNDS_AT_MOST):
        seen = Seen(picture=picture, survey=Survey(answers=answers))
        asks = dict.fromkeys(
            question
            for card, nodes in due
            if not _silent(nodes, picture)
            for question in _asks(card, seen, nodes)
            if question not in answers
        )
        if not asks:
            return
        answers.update(await ask(tuple(asks)))


def _asks(card: Card, seen: Seen, nodes: tuple[str, ...]) -> Iterator[Ask]:
    try:
        yield from card.asks(seen, nodes)
    except Exception as error:  # noqa: BLE001 - a fault of one check is that row's alone: `result` meets it, too
        faults.named(f"the check {card.id}", error)


def targets(card: Card, picture: FleetState) -> Iterator[tuple[str, ...]]:
    """The nodes of each of a check's rows."""
    names = tuple(view.name for view in picture.nodes)
    match card.scope:
        case Scope.NODE:
            yield from ((name,) for name in names)
        case Scope.PAIR:
            yield from combinations(names, 2)
        case Scope.FLEET:
            if len(names) > 1:
                yield names


def result(card: Card, nodes: tuple[str, ...], seen: Seen, *, now_wall_s: float) -> CheckResult:
    """The row that the check makes of what is known."""
    outcome = _outcome(card, nodes, seen)
    has_passed = outcome.state is CheckState.PASSED
    return CheckResult(
        check=card.id,
        nodes=nodes,
        state=outcome.state,
        found=outcome.found,
        remedies=outcome.remedies,
        basis=basis_of(card, nodes, seen.picture) if has_passed else {},
        proven_wall_s=now_wall_s if has_passed else None,
    )


def _outcome(card: Card, nodes: tuple[str, ...], seen: Seen) -> Outcome:
    if card.chapter is not Chapter.REACH and (silent := _silent(nodes, seen.picture)):
        return skipped(f"{' and '.join(silent)} can't be reached")
    try:
        return card.look(seen, nodes)
    except Exception as error:  # noqa: BLE001 - what one node says may break one check, and no other
        return unknown(faults.named(f"the check {card.id}", error))


def _silent(nodes: Collection[str], picture: FleetState) -> list[str]:
    """Those of the nodes that don't answer."""
    views = {view.name: view for view in picture.nodes}
    return [name for name in nodes if (view := views.get(name)) is None or view.link.state is not LinkState.LIVE]


# --- what stays proven


def still_proven(
    card: Card, nodes: tuple[str, ...], picture: FleetState, kept: Mapping[Key, CheckResult]
) -> CheckResult | None:
    """The kept row, where all that it depends on is known and the same."""
    row = kept.get((card.id, nodes))
    if row is None or row.state is not CheckState.PASSED or not card.basis or _silent(nodes, picture):
        return None
    now = basis_of(card, nodes, picture)
    is_same = dict(row.basis) == now and all(now.values())
    return replace(row, is_kept=True) if is_same else None


def basis_of(card: Card, nodes: tuple[str, ...], picture: FleetState) -> dict[str, str]:
    """What the check's result depends on, as it is now; an empty value: not known."""
    return {
        f"{node} {basis}": _BASES[basis](view) if (view := picture.node(node)) is not None else ""
        for node in nodes
        for basis in card.basis
    }


def _addresses(view: NodeView) -> str:
    return " ".join(sorted(f"{one.name}={','.join(sorted(one.addresses))}" for one in view.interfaces if one.addresses))


_BASES: Mapping[Basis, Callable[[NodeView], str]] = {
    Basis.BOOT: lambda view: view.facts.boot_id if view.facts else "",
    Basis.DRIVER: lambda view: view.driver_version,
    Basis.KERNEL: lambda view: view.facts.kernel if view.facts else "",
    Basis.RELEASE: lambda view: (view.facts.dgx_release if view.facts else None) or "",
    Basis.ADDRESSES: _addresses,
}
