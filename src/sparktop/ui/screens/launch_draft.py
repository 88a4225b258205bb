"""A launch as chosen so far: nodes, parameters, engines to stop, secrets; and the levers that change it. Pure.

A draft is immutable: each choice makes a new draft, from which the Request to be planned is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import permutations
from math import perm

from sparktop.dataclass import dataclass
from sparktop.engines.ranks import EngineRank, teams
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Lever
from sparktop.model.recipe import Order, Recipe
from sparktop.model.request import Request
from sparktop.recipe.launch_line import launch_line
from sparktop.recipe.parameters import SHARE, get, main_name, resolve
from sparktop.recipe.render.render import container_name
from sparktop.recipe.weigh.settings import usual_nodes

MAIN_PARAMETERS = ("model", "container", "port", "max_model_len", "gpu_memory_utilization", "tensor_parallel", "name")
"""The most important parameters, by sparkrun's names."""
_SGLANG_NAMES = {"max_model_len": "context_length", "gpu_memory_utilization": "mem_fraction_static"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stoppable:
    """A running engine, and what stopping it would free; all its ranks together."""

    name: str
    """The name of the head's engine."""
    stops: tuple[tuple[str, str], ...]
    """(node, engine) of each rank, the head first."""
    held_bytes: Mapping[str, int | None]
    """Node -> bytes that its rank holds; None: not known."""
    state: str = ""
    port: int | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for node, _ in self.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The launch as it is chosen now."""

    order: Order
    """With the parameters that the operator has set; what it stops is `stops`."""
    nodes: tuple[str, ...]
    """The first one is the head."""
    decided: Mapping[str, bool] = field(default_factory=dict)
    """`Stoppable.name` -> whether the operator wants it stopped."""

    @property
    def recipe(self) -> Recipe:
        return self.order.recipe

    @property
    def values(self) -> Mapping[str, str]:
        """Parameters that the operator has set."""
        return self.order.values

    def set(self, name: str, value: str) -> Draft:
        """The draft with a parameter set; an empty value restores the recipe's."""
        values = {key: set_value for key, set_value in self.values.items() if main_name(key) != main_name(name)}
        values |= {name: value.strip()} if value.strip() else {}
        return replace(self, order=replace(self.order, values=values))

    def stopping(self, name: str, is_stopped: bool) -> Draft:
        """The draft with the decision whether to stop an engine."""
        return replace(self, decided={**self.decided, name: is_stopped})

    def with_secret(self, name: str, value: str) -> Draft:
        """The draft with a secret's value."""
        return replace(self, order=replace(self.order, secrets={**self.order.secrets, name: value}))

    def value(self, name: str) -> str:
        """A parameter's set value, else the recipe's."""
        set_value = get(self.values, name)
        return set_value if set_value is not None else recipe_value_of(self.recipe, name)

    def stops(self, fleet: FleetState, used: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """(node, engine) of each rank to stop: as the operator decided, else those with the same port or name."""
        return tuple(
            stop for engine in stoppables(fleet, self.nodes) if self.is_stopped(engine, used) for stop in engine.stops
        )

    def is_stopped(self, engine: Stoppable, used: Mapping[str, str]) -> bool:
        """Whether the engine would be stopped: as the operator decided, else when its port or name conflicts."""
        return self.decided.get(engine.name, self.conflict(engine, used) != "")

    def conflict(self, engine: Stoppable, used: Mapping[str, str]) -> str:
        """Why the engine conflicts: "the same port", "the same name" or ""; `used` are the last plan's parameters."""
        port = get(self.values, "port") or get(used, "port") or self.value("port")
        port = port or str(self.recipe.engine.traits.port)
        name = get(self.values, "name") or get(used, "name") or self.value("name")
        if name and engine.name == name:
            return "the same name"
        return "the same port" if engine.port is not None and str(engine.port) == port else ""

    def request(self, fleet: FleetState, used: Mapping[str, str]) -> Request:
        """The request to plan; `used` are the parameters of the last plan, with the final name and port."""
        order = replace(self.order, stops=self.stops(fleet, used))
        return Request(action="launch", nodes=self.nodes, order=order)

    def typed(self, fleet: FleetState, used: Mapping[str, str]) -> str:
        """The command line that does the same, without secrets."""
        return launch_line(self.recipe.id, self.nodes, self.values, (name for _, name in self.stops(fleet, used)))


def first_draft(recipe: Recipe, fleet: FleetState, *, at: str = "") -> Draft:
    """The first draft: on the selected node `at`, or on as many nodes as the recipe has ranks."""
    names = [view.name for view in fleet.nodes]
    order = Order(recipe=recipe)
    count = usual_nodes(order)
    if count == 1:
        names.sort(key=lambda name: name != at)
    return Draft(order=order, nodes=tuple(names[:count]))


MOST_ORDERS = 12


def node_choices(recipe: Recipe, fleet: FleetState) -> tuple[tuple[str, ...], ...]:
    """The choices of nodes for the recipe; the first node of each is the head.

    Every order while there are few; else neighbours, as they are watched and as a ring is cabled, each once as head.
    """
    names = [view.name for view in fleet.nodes]
    choices: list[tuple[str, ...]] = []
    for count in range(max(1, recipe.min_nodes), min(len(names), max(recipe.min_nodes, recipe.max_nodes)) + 1):
        if perm(len(names), count) <= MOST_ORDERS:
            choices += permutations(names, count)
        else:
            choices += (tuple((names * 2)[start : start + count]) for start in range(len(names)))
    return tuple(choices)


def recipe_value_of(recipe: Recipe, name: str) -> str:
    """The recipe's value of a parameter, by any of the parameter's names; "" without one."""
    value = resolve(Order(recipe=recipe)).get(name)
    if value is None and main_name(name) == "name":
        return container_name(f"{recipe.engine}-{recipe.id}")
    return value or ""


def is_share(name: str) -> bool:
    """Whether the parameter is the share of memory, under any engine's name for it."""
    return main_name(name) == SHARE


def parameters(draft: Draft) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(names of the most important parameters, the other names), spelled and ordered as in the recipe."""
    spelled = {main_name(name): name for name in (*draft.recipe.defaults, *draft.values)}
    if draft.recipe.engine is EngineKind.SGLANG:
        spelled = {**_SGLANG_NAMES, **spelled}
    has_ranks = len(draft.nodes) > 1 or "tensor_parallel" in spelled
    lacks = draft.recipe.engine.traits.lacks
    names = [name for name in MAIN_PARAMETERS if (name != "tensor_parallel" or has_ranks) and name not in lacks]
    main = [spelled.get(name, name) for name in names]
    known = {*MAIN_PARAMETERS, *draft.recipe.settings}
    further = dict.fromkeys(name for name in (*draft.recipe.defaults, *draft.values) if main_name(name) not in known)
    return (*draft.recipe.settings, *main), tuple(further)


def stoppables(fleet: FleetState, nodes: Sequence[str]) -> tuple[Stoppable, ...]:
    """The running engines on these nodes, each with all its ranks, as one rank alone can't serve."""
    return tuple(
        Stoppable(
            name=team[0].engine.name,
            stops=tuple((rank.node.name, rank.engine.name) for rank in team),
            held_bytes={rank.node.name: _held_bytes(rank) for rank in team},
            state=str(team[0].engine.state),
            port=next((rank.engine.endpoint.port for rank in team if rank.engine.endpoint is not None), None),
        )
        for team in teams(fleet)
        if any(rank.node.name in nodes for rank in team)
    )


def _held_bytes(rank: EngineRank) -> int | None:
    """Bytes of its node's memory that an engine holds, as in the console's bar; None: not known."""
    holders = rank.node.ledger.holders if rank.node.ledger is not None else ()
    held = {holder.label: holder.held_bytes for holder in holders if holder.kind == "engine"}
    return held.get(rank.engine.name, rank.engine.gpu_bytes)


def applied(draft: Draft, lever: Lever, fleet: FleetState) -> Draft:
    """The draft with a lever applied."""
    if lever.nodes and len(draft.nodes) != lever.nodes:
        choices = [nodes for nodes in node_choices(draft.recipe, fleet) if len(nodes) == lever.nodes]
        choices.sort(key=lambda nodes: nodes[:1] != draft.nodes[:1])
        draft = replace(draft, nodes=choices[0]) if choices else draft
    for name, value in lever.values.items():
        draft = draft.set(name, value)
    for stop in lever.stops:
        draft = draft.stopping(stop, True)
    return draft
