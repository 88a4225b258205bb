"""A rank of a launch on its node, and how it comes up.

Every container is created before anything is stopped or started, so that what Docker rejects costs nothing. A name that
an older container has is taken from it only in the step that starts the new one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from sparktop.config import resource_dir, shown
from sparktop.dataclass import dataclass
from sparktop.model.fleet import NodeView
from sparktop.model.operation import Operation
from sparktop.model.prospect import NodeBudget
from sparktop.model.recipe import Dialect, Executor, Recipe
from sparktop.model.survey import Survey
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import Measure, SmokeTest
from sparktop.operate.container import lifecycle
from sparktop.operate.container.lifecycle import NEW, NEW_PATH, NewContainer, rename_back
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.launch.name_holder import Leftover, clear
from sparktop.operate.plan import start_steps
from sparktop.operate.plan.common_steps import EVIDENCE_LIMIT_S
from sparktop.operate.plan.start_steps import with_rollback
from sparktop.operate.plan.starter import Starter
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.recipe.container_spec import RenderedRank
from sparktop.recipe.read import shelf
from sparktop.text.sentences import listed

MEASURE_LIMIT_S = 300.0
REASONING_TOKENS = 512
"""Tokens that a reasoning model needs for a non-empty answer (docs/facts/engines.md OPS-11)."""
STARTED = "STARTED"
"""Saved once Docker has started the container: only then does a rollback have a log to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRank(Starter):
    """A rank of the launch on its node: a starter whose container comes from a recipe."""

    rendered: RenderedRank
    recipe: Recipe
    view: NodeView
    container: NewContainer
    other_ranks: tuple[tuple[str, str], ...] = ()
    """(node, container) of its other ranks: one that ends fails them all."""
    image: Mapping[str, Any] | None = None
    """The inspected image, for the equivalent commands."""
    leftovers: tuple[Leftover, ...] = ()
    """Containers of an interrupted launch under its name: removed first."""
    budget: NodeBudget | None = None
    target_bytes: int | None = None
    """Memory that has to be available before the start; None: not known."""
    share_bytes: int | None = None
    """Memory that the engine reserves by its share; None: not known."""
    freed_bytes: int = 0
    """Memory that the engines to stop hold on the node."""
    floor_bytes: int = 0
    """The guard's limit."""
    stops_guarded: bool = False
    """The armed guard is over an engine that is stopped for this one: once it serves there is nothing to guard."""
    api_key: str = field(default="", repr=False)
    """For sparktop's own requests."""

    @property
    def node(self) -> str:
        return self.rendered.node

    @property
    def mark(self) -> str:
        return self.container.mark

    @property
    def name(self) -> str:
        return self.container.name

    @property
    def is_head(self) -> bool:
        return self.rendered.index == 0

    @property
    def _replaces_guarded(self) -> bool:
        """Whether the armed guard is over the container whose name it takes."""
        old = self.container.old
        return old is not None and start_steps.is_guarded(self.view, old.container_id)

    def clear(self) -> Iterator[Step]:
        """Remove what an interrupted launch has left under its name."""
        if self.leftovers:
            yield clear(self.node, self.mark, self.leftovers)

    def prepare(self) -> Iterator[Step]:
        new = self.container
        name_note = f", as {new.created_name} until it takes the name" if new.old is not None else ""
        yield lifecycle.make(
            new,
            title=f"Make the container {self.name}{name_note}",
            verifies="Docker accepts it; nothing runs yet",
            on_failure=OnFailure.ROLL_BACK,
        )

    def await_memory(self) -> Iterator[Step]:
        if self.target_bytes is not None:
            yield with_rollback(start_steps.memory(self.node, self.mark, self.target_bytes))

    def make_room(self, survey: Survey) -> Iterator[Step]:
        """Drop caches, where free memory would be short and root is permitted."""
        if self.share_bytes:
            drop = start_steps.drop_for(self.view, self.mark, need_bytes=self.share_bytes, back_bytes=self.freed_bytes)
            if drop is not None and start_steps.may(drop, self.node, survey):
                yield drop

    def before_start(self) -> Iterator[Step]:
        if self.container.old is None:
            yield self._guard(serving=False)

    def start(self) -> Iterator[Step]:
        new, old = self.container, self.container.old
        undo = (rename_back(NEW_PATH, new.created_name), self._old_name()) if old is not None else ()
        yield lifecycle.start_new(
            new,
            step_id="start",
            title=f"Start {self.name}" + (f"; the old one becomes {new.before_name}" if old is not None else ""),
            verifies="Docker says that it runs",
            undo=undo,
            saves_started=STARTED,
        )

    def guard_load(self) -> Iterator[Step]:
        if self.container.old is not None:  # it has its name only now
            yield self._guard(serving=False)

    def await_ready(self) -> Iterator[Step]:
        act = AwaitReady(
            name=self.name,
            container_id=NEW,
            is_worker=not self.rendered.serves,
            together=self.other_ranks,
            longer=_how_to_extend(self.recipe, self.node),
        )
        step = start_steps.ready(
            self.node, self.mark, act, self.recipe.proof.ready_limit_s, self.recipe.expected.load_s
        )
        yield with_rollback(replace(step, verifies="its endpoint or log says that it is ready"))

    def guard_request(self) -> Iterator[Step]:
        yield self._guard(serving=True)

    def prove(self) -> Iterator[Step]:
        """The first request, with tokens enough for a reasoning model's answer after its thoughts; then measure."""
        proof = self.recipe.proof
        request = SmokeTest(
            engine=self.name,
            floor_bytes=self.floor_bytes,
            prompt=proof.prompt,
            max_tokens=max(proof.max_tokens, REASONING_TOKENS if proof.is_reasoning else 0),
            api_key=self.api_key,
        )
        yield with_rollback(start_steps.smoke(self.node, request))
        yield Step(
            id="measure",
            title=f"Measure {self.name}: {proof.measure_tokens} tokens",
            node=self.node,
            act=Measure(
                engine=self.name,
                expected=self.recipe.expected,
                floor_bytes=self.floor_bytes,
                tokens=proof.measure_tokens,
                api_key=self.api_key,
            ),
            limit_s=MEASURE_LIMIT_S,
            verifies="first token, tokens a second and memory left, against what is expected",
            on_failure=OnFailure.GO_ON,
        )

    def restore_guard(self) -> Iterator[Step]:
        if self.stops_guarded and not self._replaces_guarded:
            yield start_steps.disarm(self.node, self.mark)
            return
        over = (NEW, self.name) if self._replaces_guarded else None
        yield start_steps.guard_as_it_was(self.view, self.mark, over=over)

    def guard_notes(self) -> Iterator[str]:
        """What becomes of the operator's guard, for the review."""
        if self.stops_guarded and not self._replaces_guarded and self.view.guard is not None:
            yield (
                f"The guard armed on {self.node} over {self.view.guard.container_name} goes with it: M arms one on "
                f"{self.name} once that serves."
            )
        else:
            yield from start_steps.guard_note(self.view)

    def on_ready(self) -> Iterator[Step]:
        if self.container.has_policy:
            yield lifecycle.policy_on(self.node, self.mark, self.name, self.container.policy)

    # the way back

    def take_back(self, grace_s: float) -> Iterator[Step]:
        yield lifecycle.stop_new(
            self.node,
            self.mark,
            grace_s,
            name=self.name,
            step_id="back-stop",
            title=f"Stop {self.name} if it runs, {grace_s:.0f} s grace",
            undoes=("start", "policy"),
            on_failure=OnFailure.GO_ON,
        )

    def restore_guard_first(self) -> Iterator[Step]:
        if self._replaces_guarded:  # it has its name back only when the new container is gone
            step = start_steps.disarm(self.node, self.mark)
        else:
            step = start_steps.guard_as_it_was(self.view, self.mark)
        yield replace(step, id=f"back-guard-launch{self.mark}")

    def undo_change(self) -> Iterator[Step]:
        """Remove the container that this launch created, and give its name back to the one that had it."""
        old = self.container.old
        operations: list[Operation] = [lifecycle.remove_new(self.container)]
        if old is not None:
            operations.append(self._old_name())
        name = f", and give {old.name} its name back" if old is not None else ""
        yield Step(
            id=f"back-remove{self.mark}",
            title=f"Remove the container {self.name} that was made{name}",
            node=self.node,
            act=Remote(operations=tuple(operations)),
            limit_s=180.0,
            verifies="it is gone",
            undoes=(f"make{self.mark}",),
        )

    def _guard(self, *, serving: bool) -> Step:
        return start_steps.guard_over(self.node, self.mark, NEW, self.name, self.floor_bytes, serving=serving)

    def _old_name(self) -> Operation:
        return rename_back(f"/containers/{self.container.before_name}", self.name)


def start_order(ranks: Sequence[PlannedRank], executor: Executor) -> tuple[PlannedRank, ...]:
    """The ranks in start order."""
    is_ray = executor is Executor.RAY
    return tuple(sorted(ranks, key=lambda rank: (rank.is_head != is_ray, rank.rendered.index)))


def keep_log(order: Sequence[PlannedRank]) -> Step:
    """Rollback step: keep the log of what was started, before it is removed.

    Args:
        order: ranks in start order.
    """
    nodes = tuple(rank.node for rank in order)
    return Step(
        id="back-evidence",
        title=f"Save the log of {order[0].name}, with evidence of {listed(nodes)}",
        node=order[0].node,
        act=CollectEvidence(nodes=nodes, engines=tuple(dict.fromkeys(rank.name for rank in order)), needs=STARTED),
        limit_s=EVIDENCE_LIMIT_S,
        on_failure=OnFailure.GO_ON,
    )


def _how_to_extend(recipe: Recipe, node: str) -> str:
    """The setting that raises the time limit, and the file to set it in: for a shipped recipe, a copy of it."""
    path, own_folder = Path(recipe.path), shelf.own_folder()
    file = shown(path)
    if path.is_relative_to(resource_dir("recipes")):
        file = f"a copy of the recipe: mkdir -p {shown(own_folder)} && cp {shown(path)} {shown(own_folder)}/"
    if recipe.dialect is Dialect.ADOPTED:
        file = f"a recipe of your own: sparktop recipes adopt {shlex.quote(recipe.path)} {shlex.quote(node)} --save"
    return (
        f"to allow more time, set runtime_config.sparktop.ready.limit_s, {recipe.proof.ready_limit_s:g} now, in {file}"
    )
