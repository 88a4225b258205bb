"""What a launch would find, all of it: engines that go, seats, budget, rendered ranks, gates, fetches. Pure.

Made anew from picture and survey each time it is asked for, in the rounds of questions too: what isn't known yet is as
if it weren't there, and what is asked next comes of what is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sparktop.model.fleet import FleetState
from sparktop.model.plan import Refusal, Request
from sparktop.model.prospect import Budget, Gate, Prospect
from sparktop.model.recipe import Order
from sparktop.operate.launching import fabric, fetchsteps, gates, makeroom, running, seats
from sparktop.operate.launching.fetchsteps import Fetch
from sparktop.operate.launching.looked import Looked, model_of, revision_of
from sparktop.operate.launching.makeroom import Going
from sparktop.operate.launching.rooms import rooms
from sparktop.operate.survey import Ask, AskPrivileges, Survey
from sparktop.recipe import export
from sparktop.recipe.alternatives import alternatives
from sparktop.recipe.budget import budget
from sparktop.recipe.models import on_disk
from sparktop.recipe.parameters import values
from sparktop.recipe.rendered import CannotRender, Rendered
from sparktop.recipe.rendering import render


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """As far as it is known."""

    looked: Looked
    goings: tuple[Going, ...]
    fetch: Fetch
    gates: tuple[Gate, ...]
    prospect: Prospect
    cannot: CannotRender | None = None
    """Why it can't be rendered."""

    @property
    def order(self) -> Order:
        return self.looked.order

    @property
    def rendered(self) -> Rendered | None:
        return self.looked.rendered

    @property
    def budget(self) -> Budget | None:
        return self.looked.budget


def asks(request: Request, picture: FleetState, survey: Survey) -> Iterator[Ask]:
    """Everything that is to be known, as far as the answers so far tell what that is."""
    order, nodes = request.order, request.nodes
    if order is None:
        return
    yield from (AskPrivileges(node=node) for node in nodes)
    yield from (seats.disk_ask(node) for node in nodes)
    yield from makeroom.asks(request, picture)
    yield from fabric.asks(nodes, picture)
    found = outlook(request, picture, survey)
    if isinstance(found, Refusal):
        return
    yield from gates.asks(found.looked)
    if found.rendered is not None:
        yield from running.asks(found.rendered, survey)
    yield from fetchsteps.asks(order, found.looked.seats, survey)


def outlook(request: Request, picture: FleetState, survey: Survey) -> Outlook | Refusal:
    """What is known; a refusal only for what is agreed to be stopped and can't be."""
    order, nodes = request.order, request.nodes
    assert order is not None  # the planner has looked
    goings = makeroom.goings(request, picture, survey)
    if isinstance(goings, Refusal):
        return goings
    order = replace(order, stops=makeroom.by_every_name(goings))
    places = seats.seats(order, nodes, picture, survey)
    known, facts = seats.disks(nodes, survey), seats.facts(order, nodes, survey)
    beside = seats.beside(order, nodes, survey)
    there = alternatives(order, on_disk(known, model_of(order), revision_of(order)))
    cannot: CannotRender | None = None
    used: Mapping[str, str] = {}
    weighed: Budget | None = None
    rendered: Rendered | None = None
    try:
        used = values(order)
        weighed = budget(order, rooms(nodes, picture, goings), facts, values=used, on_disk=there, beside=beside)
        rendered = render(order, places, share=weighed.share)
        used = rendered.values
    except CannotRender as why:
        cannot = why
    looked = Looked(
        order=order,
        nodes=tuple(nodes),
        picture=picture,
        survey=survey,
        seats=places,
        rendered=rendered,
        unrendered=cannot.reason if cannot is not None else "",
        budget=weighed,
    )
    fetch = fetchsteps.fetch(order, places, survey)
    judged = tuple(gates.gates(looked))
    recipe = order.recipe
    prospect = Prospect(
        recipe_id=recipe.id,
        title=title_of(order),
        nodes=tuple(nodes),
        values=used,
        budget=weighed,
        gates=judged,
        on_disk=tuple(there),
        fetches=fetch.sentences,
        risks=recipe.risks,
        runs=running.as_asked(rendered, survey) if rendered else (),
        files={kind: export.files(rendered, kind, muted=recipe.muted) for kind in export.KINDS} if rendered else {},
    )
    return Outlook(looked=looked, goings=goings, fetch=fetch, gates=judged, prospect=prospect, cannot=cannot)


def title_of(order: Order) -> str:
    """What is launched, in a few words: the model's own name."""
    return model_of(order).rstrip("/").rpartition("/")[2] or order.recipe.id


def listed(names: Sequence[str]) -> str:
    return " and ".join(names)
