"""Every check of the bring-up, in the order of the page."""

from __future__ import annotations

from sparktop.bringup import access, identity, machine, memory, parity, reach, release, wiring
from sparktop.bringup.card import Card
from sparktop.bringup.measurements import bandwidth, collective, endpoint, power

CARDS: tuple[Card, ...] = (
    *reach.CARDS,
    *identity.CARDS,
    *release.CARDS,
    *machine.CARDS,
    *power.CARDS,
    *access.CARDS,
    *memory.CARDS,
    *wiring.CARDS,
    *parity.CARDS,
    *bandwidth.CARDS,
    *collective.CARDS,
    *endpoint.CARDS,
)
BY_ID = {card.id: card for card in CARDS}
