"""Every check of the bring-up, in the order of the page, and the rows that an ended run has measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.bringup import access, contact, machine, parity, wiring
from sparktop.bringup.card import Card
from sparktop.bringup.looking import row_of, targets
from sparktop.bringup.measurements import endpoint, hardware
from sparktop.model.bringup import Chapter, CheckResult
from sparktop.model.fleet import FleetState
from sparktop.operate.step.run import Run

_OF_MODULES = (
    *contact.CARDS,
    *machine.CARDS,
    *access.CARDS,
    *wiring.CARDS,
    *parity.CARDS,
    *hardware.CARDS,
    *endpoint.CARDS,
)
CARDS = tuple(card for chapter in Chapter for card in _OF_MODULES if card.chapter is chapter)
BY_ID = {card.id: card for card in CARDS}


def measured(run: Run, picture: FleetState, *, now_wall_s: float) -> tuple[CheckResult, ...]:
    """The rows of every check that the run's action measures, about what it was asked for; () for another run.

    Args:
        picture: from before its first step: a row doesn't outlive an engine that ended while it was measured.
    """
    cards = [card for card in CARDS if card.measured_by and card.measured_by == run.plan.request.action]
    return tuple(row for card in cards for row in _rows(card, run, picture, now_wall_s))


def _rows(card: Card, run: Run, picture: FleetState, now_wall_s: float) -> Iterator[CheckResult]:
    request = run.plan.request
    for target in targets(card, picture):
        is_asked = set(target.nodes) <= set(request.nodes) and target.subject in ("", request.target)
        if is_asked and card.judge is not None and (outcome := card.judge(run, target.nodes)) is not None:
            yield row_of(card, target, outcome, picture, now_wall_s=now_wall_s)
