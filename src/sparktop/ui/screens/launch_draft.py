"""What is to be launched, as far as it has been chosen: nodes, parameters, what may be stopped, secrets. Pure.

A draft is never changed: each choice makes another one, and each makes the Request that is planned.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from sparktop.diagnose.live.ranks import is_alive
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.plan import Request
from sparktop.model.recipe import Order, Recipe
from sparktop.operate.pair import Rank, ranks
from sparktop.recipe.parameters import SHARE, get, main_name
from sparktop.recipe.rendering import container_name
from sparktop.recipe.template import text_of

FIRST = ("model", "container", "port", "max_model_len", "gpu_memory_utilization", "tensor_parallel", "name")
"""The parameters that matter first, by sparkrun's names."""
_SGLANG = {"max_model_len": "context_length", "gpu_memory_utilization": "mem_fraction_static"}
DEFAULT_PORTS = {EngineKind.VLLM: "8000", EngineKind.SGLANG: "30000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stoppable:
    """One engine that runs, and what stopping it would give; its ranks on several nodes are one."""

    name: str
    """The head's."""
    stops: tuple[tuple[str, str], ...]
    """(node, engine) of every rank, the head first."""
    held_bytes: Mapping[str, int | None]
    """By node; None: not known."""
    state: str = ""
    port: int | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for node, _ in self.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One launch as it is chosen at the moment."""

    recipe: Recipe
    nodes: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    """What the operator has set."""
    decided: Mapping[str, bool] = field(default_factory=dict)
    """Engines by `Stoppable.name`: whether the operator wants them stopped."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_problems: tuple[str, ...] = ()
    """Files of secrets that were not read, and why."""
    hub: str = ""
    """Where models come from; empty: Hugging Face's own."""

    def set(self, name: str, value: str) -> Draft:
        """A parameter; an empty value gives it back to the recipe."""
        rest = {key: held for key, held in self.values.items() if main_name(key) != main_name(name)}
        return replace(self, values={**rest, name: value.strip()} if value.strip() else rest)

    def on(self, nodes: tuple[str, ...]) -> Draft:
        """On these nodes, the first of them the head."""
        return replace(self, nodes=nodes)

    def stopping(self, name: str, wanted: bool) -> Draft:
        """Whether an engine may be stopped."""
        return replace(self, decided={**self.decided, name: wanted})

    def with_secret(self, name: str, value: str) -> Draft:
        """A secret that was asked for; an empty one is none."""
        return replace(self, secrets={**self.secrets, name: value}) if value else self

    def value(self, name: str) -> str:
        """A parameter as it is known without planning."""
        given = get(self.values, name)
        return given if given is not None else own_value(self.recipe, name)

    def stops(self, fleet: FleetState, used: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """What may be stopped: what was decided, and of the rest what has the same port or name."""
        return tuple(stop for one in stoppables(fleet, self.nodes) if self.is_stopped(one, used) for stop in one.stops)

    def is_stopped(self, one: Stoppable, used: Mapping[str, str]) -> bool:
        """Decided by the operator, else whether it stands in the way by its port or name."""
        return self.decided.get(one.name, self.in_the_way(one, used) != "")

    def in_the_way(self, one: Stoppable, used: Mapping[str, str]) -> str:
        """ "the same port", "the same name", or empty; `used` are parameters as they were planned last."""
        port = get(self.values, "port") or get(used, "port") or self.value("port") or DEFAULT_PORTS[self.recipe.engine]
        name = get(self.values, "name") or get(used, "name") or self.value("name")
        if name and one.name == name:
            return "the same name"
        return "the same port" if one.port is not None and str(one.port) == port else ""

    def order(self, fleet: FleetState, used: Mapping[str, str]) -> Order:
        order = Order(
            recipe=self.recipe,
            values=dict(self.values),
            stops=self.stops(fleet, used),
            secrets=dict(self.secrets),
            secret_problems=self.secret_problems,
        )
        return replace(order, hub=self.hub) if self.hub else order

    def request(self, fleet: FleetState, used: Mapping[str, str]) -> Request:
        """What is planned; `used` are the parameters of the last plan, which know name and port."""
        return Request(action="launch", nodes=self.nodes, order=self.order(fleet, used))

    def typed(self, fleet: FleetState, used: Mapping[str, str]) -> str:
        """The same as a command line; it holds no secret."""
        words = ["sparktop", "launch", self.recipe.id, *self.nodes]
        for name, value in self.values.items():
            words += ["--set", f"{name}={value}"]
        for engine in dict.fromkeys(engine for _, engine in self.stops(fleet, used)):
            words += ["--stop", engine]
        return shlex.join(words)


def begun(
    recipe: Recipe, fleet: FleetState, *, at: str = "", hub: str = "", secrets: Mapping[str, str] | None = None
) -> Draft:
    """The first draft: on the node where the operator is, and on as many as the recipe needs at least."""
    names = [view.name for view in fleet.nodes]
    names.sort(key=lambda name: name != at)
    if recipe.min_nodes > 1:
        names = [view.name for view in fleet.nodes]
    draft = Draft(recipe=recipe, nodes=tuple(names[: max(1, recipe.min_nodes)]), secrets=dict(secrets or {}))
    return replace(draft, hub=hub) if hub else draft


def places(recipe: Recipe, fleet: FleetState) -> tuple[tuple[str, ...], ...]:
    """The nodes it could be launched on; of two the first is the head."""
    names = [view.name for view in fleet.nodes]
    found: list[tuple[str, ...]] = []
    for count in range(max(1, recipe.min_nodes), max(recipe.min_nodes, recipe.max_nodes) + 1):
        found += permutations(names, count)
    return tuple(found)


def own_value(recipe: Recipe, name: str) -> str:
    """What the recipe says of a parameter, by any of its names; empty: nothing."""
    said = get({key: text_of(value) for key, value in recipe.defaults.items()}, name)
    if said is not None:
        return said
    made = {
        "model": recipe.model,
        "container": recipe.container,
        "name": container_name(f"{recipe.engine}-{recipe.id}"),
    }
    return made.get(main_name(name), "")


def is_share(name: str) -> bool:
    """Whether it is the share of memory, whatever the engine calls it."""
    return main_name(name) == SHARE


def parameters(draft: Draft) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that matter first, and the others, as the recipe spells them and in its order."""
    spelled = {main_name(name): name for name in (*draft.recipe.defaults, *draft.values)}
    if draft.recipe.engine is EngineKind.SGLANG:
        spelled = {**_SGLANG, **spelled}
    first = [spelled.get(name, name) for name in FIRST if name != "tensor_parallel" or _has_ranks(draft, spelled)]
    rest = dict.fromkeys(name for name in (*draft.recipe.defaults, *draft.values) if main_name(name) not in FIRST)
    return tuple(first), tuple(rest)


def _has_ranks(draft: Draft, spelled: Mapping[str, str]) -> bool:
    return len(draft.nodes) > 1 or "tensor_parallel" in spelled


def stoppables(fleet: FleetState, nodes: Sequence[str]) -> tuple[Stoppable, ...]:
    """What runs on these nodes, each with its ranks elsewhere: a rank alone is of no use to anybody."""
    found: list[Stoppable] = []
    seen: set[tuple[str, str]] = set()
    for view in (view for view in fleet.nodes if view.name in nodes):
        for engine in (one for one in view.engines if is_alive(one)):
            if (view.name, engine.name) in seen:
                continue
            team = ranks(engine.name, view.name, fleet) or (Rank(node=view.name, engine=engine),)
            stops = tuple((rank.node, rank.engine.name) for rank in team)
            seen |= {*stops, (view.name, engine.name)}
            found.append(
                Stoppable(
                    name=team[0].engine.name,
                    stops=stops,
                    held_bytes={rank.node: held(fleet.node(rank.node), rank.engine) for rank in team},
                    state=str(team[0].engine.state),
                    port=next((rank.engine.endpoint.port for rank in team if rank.engine.endpoint is not None), None),
                )
            )
    return tuple(found)


def held(view: NodeView | None, engine: Engine) -> int | None:
    """What it holds of the node's memory, as the console's bar has it."""
    holders = view.ledger.holders if view is not None and view.ledger is not None else ()
    found = next((one.held_bytes for one in holders if one.kind == "engine" and one.label == engine.name), None)
    return found if found is not None else engine.gpu_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """What would change the verdict, as it would be typed, and what that sets."""

    text: str
    values: Mapping[str, str] = field(default_factory=dict)
    stops: tuple[str, ...] = ()
    nodes: int = 0
    """On so many nodes; 0: as many as now."""

    @property
    def can_be_applied(self) -> bool:
        return bool(self.values or self.stops or self.nodes)


def lever(text: str, *, most_nodes: int = 1) -> Lever:
    """ "--set gpu_memory_utilization=0.76", "--stop vllm-qwen36", or a whole command for two nodes.

    With any other word in it, it can only be read.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return Lever(text=text)
    nodes = 2 if "launch" in words and text.startswith("two nodes:") else 0
    if nodes:
        words = words[next((at for at, word in enumerate(words) if word.startswith("--")), len(words)) :]
    values: dict[str, str] = {}
    stops: list[str] = []
    rest = iter(words)
    for word in rest:
        given = next(rest, "")
        name, equals, value = given.partition("=")
        if word == "--set" and equals and name and value:
            values[name] = value
        elif word == "--stop" and given:
            stops.append(given)
        else:
            return Lever(text=text)
    return Lever(text=text) if nodes > most_nodes else Lever(text=text, values=values, stops=tuple(stops), nodes=nodes)


def applied(draft: Draft, one: Lever, fleet: FleetState) -> Draft:
    """The draft with what a lever sets."""
    if one.nodes and len(draft.nodes) != one.nodes:
        found = [place for place in places(draft.recipe, fleet) if len(place) == one.nodes]
        found.sort(key=lambda place: place[:1] != draft.nodes[:1])
        draft = draft.on(found[0]) if found else draft
    for name, value in one.values.items():
        draft = draft.set(name, value)
    for stop in one.stops:
        draft = draft.stopping(stop, True)
    return draft
