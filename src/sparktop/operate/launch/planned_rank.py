"""A rank of a launch on its node, and how it comes up.

Every container is created before anything is stopped or started, so that what Docker rejects costs nothing. A name that
an older container has is taken from it only in the step that starts the new one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparktop.cmdline.engine_argv import is_pooling
from sparktop.config import resource_dir, shown
from sparktop.dataclass import dataclass
from sparktop.engines.labels import LAUNCH
from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.engines.memory_target import SLACK_BYTES
from sparktop.model.fleet import NodeView
from sparktop.model.operation import Operation
from sparktop.model.prospect import NodeBudget, SliceKind
from sparktop.model.recipe import Dialect, Executor, Recipe
from sparktop.operate.acts.post_exec import LIMIT_S, post_exec
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import Measure, SmokeTest
from sparktop.operate.container import inspected, lifecycle
from sparktop.operate.container.lifecycle import NEW, NEW_PATH, NO_POLICY, NewContainer, rename_back
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.launch import patching
from sparktop.operate.launch.inputs.gate_inputs import GateInputs
from sparktop.operate.launch.name_holder import name_holder
from sparktop.operate.plan import start_steps
from sparktop.operate.plan.common_steps import evidence_step, stamp
from sparktop.operate.plan.running_rank import with_owed_guard
from sparktop.operate.plan.sequence import Phases
from sparktop.operate.plan.start_steps import with_rollback
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.recipe.container_spec import Rendered, RenderedRank
from sparktop.recipe.read import shelf
from sparktop.recipe.render.compiled import folder_of
from sparktop.recipe.render.host_config import body
from sparktop.text.sentences import listed
from sparktop.text.units import GIB

MEASURE_LIMIT_S = 300.0
REASONING_TOKENS = 512
"""Tokens that a reasoning model needs for a non-empty answer (docs/facts/engines.md OPS-11)."""
STARTED = "STARTED"
"""Saved once Docker has started the container: only then does a rollback have a log to keep."""


_SHARE_KINDS = (SliceKind.WEIGHTS, SliceKind.CACHE, SliceKind.UNTOUCHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRank:
    """A rank of the launch on its node."""

    rendered: RenderedRank
    view: NodeView
    container: NewContainer
    patch: Step | None
    """What makes its image of the recipe's; None: it needs none."""
    image: Mapping[str, Any] | None
    """The inspected image, for the equivalent commands."""
    target_bytes: int | None
    """Memory that has to be available before the start; None: not known."""
    drops_guard: bool
    """The armed guard is over an engine that is stopped for this one, and goes with it."""
    phases: Phases

    @property
    def node(self) -> str:
        return self.rendered.node

    @property
    def name(self) -> str:
        return self.container.name


def planned_rank(
    rank: RenderedRank, rendered: Rendered, inputs: GateInputs, *, api_key: str, grace_s: float
) -> PlannedRank:
    """The rank, and how it comes up.

    Args:
        api_key: for sparktop's own requests.
    """
    survey, recipe, node = inputs.survey, inputs.order.recipe, rank.node
    view, budget = with_owed_guard(inputs.view(node), survey), inputs.budget_of(node)
    patch = patching.step(rank, rendered, survey)
    image = inspected.image(node, rank.container.image, survey) if patch is None else None
    new = _new_container(rank, rendered, inputs, image)
    mark, name, is_new = new.mark, new.name, new.old is None
    target_bytes, share_bytes = room_for(budget)
    floor_bytes = floor_of(budget)
    # Over the container whose name it takes, or over one that is stopped for this one: then there is nothing to guard.
    is_replaced = new.old is not None and start_steps.is_guarded(view, new.old.container_id)
    stopped = [one.container for engine in inputs.engines_to_stop for one in engine.ranks if one.node == node]
    drops_guard = not is_replaced and any(box and start_steps.is_guarded(view, box.container_id) for box in stopped)
    disarm, as_it_was = start_steps.disarm(node, mark), start_steps.guard_as_it_was(view, mark)
    guard_after = start_steps.guard_as_it_was(view, mark, over=(NEW, name)) if is_replaced else as_it_was
    # The one that it was over has its name back only when the new container is gone.
    guard_first = disarm if is_replaced else as_it_was
    guard_load, guard_request = (
        start_steps.guard_over(node, mark, NEW, name, floor_bytes, serving=serving) for serving in (False, True)
    )
    act = AwaitReady(
        name=name,
        container_id=NEW,
        is_worker=not rank.serves,
        together=tuple((other.node, other.container.name) for other in rendered.ranks if other is not rank),
        longer=_how_to_extend(recipe, node),
    )
    ready = start_steps.ready(node, mark, act, recipe.proof.ready_limit_s, recipe.expected.load_s)
    stop = lifecycle.stop_new(
        node,
        mark,
        grace_s,
        name=name,
        step_id="back-stop",
        title=f"Stop {name} if it runs, {grace_s:.0f} s grace",
        undoes=("start", "policy"),
        on_failure=OnFailure.GO_ON,
    )
    phases = Phases(
        is_head=rank.index == 0,
        prepare=(_make(new),),
        memory=() if target_bytes is None else (with_rollback(start_steps.memory(node, mark, target_bytes)),),
        room=tuple(_drop(view, mark, share_bytes, inputs)),
        before_start=(guard_load,) if is_new else (),
        start=(_start(new),),
        guard_load=() if is_new else (guard_load,),  # it has its name only now
        ready=(with_rollback(replace(ready, verifies="its endpoint or log says that it is ready")),),
        guard_request=(guard_request,),
        prove=_proof(rank, rendered, recipe, floor_bytes, api_key),
        restore_guard=(disarm if drops_guard else guard_after,),
        on_ready=lifecycle.policy_on(node, mark, name, new.policy),
        take_back=(stop,),
        restore_guard_first=(replace(guard_first, id=f"back-guard-launch{mark}"),),
        undo_change=(_remove(new),),
    )
    return PlannedRank(
        rendered=rank,
        view=view,
        container=new,
        patch=patch,
        image=image,
        target_bytes=target_bytes,
        drops_guard=drops_guard,
        phases=phases if inputs.compose is None else inputs.compose.phases(phases, new, STARTED),
    )


def _new_container(
    rank: RenderedRank, rendered: Rendered, inputs: GateInputs, image: Mapping[str, Any] | None
) -> NewContainer:
    made_at = stamp(inputs.picture)
    asked = body(rank.container)
    return NewContainer(
        node=rank.node,
        mark=f"@{rank.node}" if len(rendered.ranks) > 1 else "",
        name=rank.container.name,
        made_at=made_at,
        body={
            **asked,
            "HostConfig": {**asked["HostConfig"], "RestartPolicy": dict(NO_POLICY)},
            "Labels": {**(asked.get("Labels") or {}), LAUNCH: made_at},
        },
        folder=folder_of(rank),
        policy=policy_of(inputs.order.recipe),
        image_ref=rank.container.image,
        image_id=str(image.get("Id") or "") if image is not None else "",
        created_as={f"Config.Labels.{LAUNCH}": made_at},
        old=name_holder(rank, inputs.docker[rank.node]),
    )


def policy_of(recipe: Recipe) -> Mapping[str, Any]:
    """The recipe's restart policy as Docker's update call takes it; empty for none or an unknown one."""
    name, _, retries = str(recipe.options.get("restart_policy") or "no").strip().partition(":")
    if name not in ("always", "unless-stopped", "on-failure"):
        return {}
    return {"Name": name, "MaximumRetryCount": int(retries) if name == "on-failure" and retries.isdecimal() else 0}


def room_for(budget: NodeBudget | None) -> tuple[int | None, int | None]:
    """(memory to wait for before the start, memory that the engine reserves at once), bytes; None: not known.

    The engine checks MemAvailable against its share when it starts (docs/facts/engines.md section 4.4), so the first is
    never less than the second. On top come its overhead and the host's reserve, as far as the budget expects that much.
    """
    if budget is None or not budget.after:
        return None, None
    own_bytes = sum(item.size_bytes for item in budget.after if item.kind in _SHARE_KINDS)
    overhead_bytes = sum(item.size_bytes for item in budget.after if item.kind is SliceKind.OVERHEAD)
    if own_bytes <= 0:
        return None, None
    expected = own_bytes + overhead_bytes + budget.left_bytes
    return max(own_bytes, min(own_bytes + overhead_bytes + HOST_BYTES, expected - SLACK_BYTES)), own_bytes


def floor_of(budget: NodeBudget | None) -> int:
    """The guard's limit: HOST_BYTES, or half of what the launch is expected to leave where that is less."""
    return HOST_BYTES if budget is None else min(HOST_BYTES, max(GIB, budget.left_bytes // 2))


def _make(new: NewContainer) -> Step:
    name_note = f", as {new.created_name} until it takes the name" if new.old is not None else ""
    return lifecycle.make(
        new,
        title=f"Make the container {new.name}{name_note}",
        verifies="Docker accepts it; nothing runs yet",
        on_failure=OnFailure.ROLL_BACK,
    )


def _drop(view: NodeView, mark: str, share_bytes: int | None, inputs: GateInputs) -> Iterator[Step]:
    """Drop caches, where free memory would be short and root is permitted."""
    if share_bytes:
        freed_bytes = sum(engine.held_bytes_on(view.name) for engine in inputs.engines_to_stop)
        drop = start_steps.drop_for(view, mark, need_bytes=share_bytes, back_bytes=freed_bytes)
        if drop is not None and start_steps.may(drop, inputs.survey.privileges(view.name)):
            yield drop


def _start(new: NewContainer) -> Step:
    return lifecycle.start_new(
        new,
        step_id="start",
        title=f"Start {new.name}" + (f"; the old one becomes {new.before_name}" if new.old is not None else ""),
        verifies="Docker says that it runs",
        undo=(rename_back(NEW_PATH, new.created_name), *_old_name(new)) if new.old is not None else (),
        saves_started=STARTED,
    )


def _proof(rank: RenderedRank, rendered: Rendered, recipe: Recipe, floor_bytes: int, api_key: str) -> tuple[Step, ...]:
    """The first request, with tokens enough for a reasoning model's answer after its thoughts; the recipe's own
    commands; then measure, where it generates tokens."""
    node, name, proof = rank.node, rank.container.name, recipe.proof
    request = SmokeTest(
        engine=name,
        floor_bytes=floor_bytes,
        prompt=proof.prompt,
        max_tokens=max(proof.max_tokens, REASONING_TOKENS if proof.is_reasoning else 0),
        is_pooling=is_pooling(rank.argv, recipe.engine),
        api_key=api_key,
    )
    first = (with_rollback(start_steps.smoke(node, request)), *_hooks(node, name, rendered))
    if request.is_pooling:
        return first
    measure = Step(
        id="measure",
        title=f"Measure {name}: {proof.measure_tokens} tokens",
        node=node,
        act=Measure(
            engine=name,
            expected=recipe.expected,
            floor_bytes=floor_bytes,
            tokens=proof.measure_tokens,
            api_key=api_key,
        ),
        limit_s=MEASURE_LIMIT_S,
        verifies="first token, tokens a second and memory left, against what is expected",
        on_failure=OnFailure.GO_ON,
    )
    return *first, measure


def _hooks(node: str, name: str, rendered: Rendered) -> tuple[Step, ...]:
    """The recipe's `post_exec`; where one fails the engine stays, as with sparkrun, and the launch has failed."""
    if not rendered.post_exec:
        return ()
    return (
        Step(
            id="post-exec",
            title=f"Run the recipe's post_exec in {name}",
            node=node,
            act=post_exec(name, rendered.post_exec),
            limit_s=len(rendered.post_exec) * LIMIT_S,
            verifies="each exits with 0",
            on_failure=OnFailure.FAIL_AT_END,
        ),
    )


def _remove(new: NewContainer) -> Step:
    """Remove the container that this launch created, and give its name back to the one that had it."""
    name = f", and give {new.name} its name back" if new.old is not None else ""
    return Step(
        id=f"back-remove{new.mark}",
        title=f"Remove the container {new.name} that was made{name}",
        node=new.node,
        act=Remote(operations=(lifecycle.remove_new(new), *_old_name(new))),
        limit_s=180.0,
        verifies="it is gone",
        undoes=(f"make{new.mark}",),
    )


def _old_name(new: NewContainer) -> tuple[Operation, ...]:
    return (rename_back(f"/containers/{new.before_name}", new.name),) if new.old is not None else ()


def guard_notes(rank: PlannedRank) -> Iterator[str]:
    """What becomes of the operator's guard, for the review."""
    if rank.drops_guard and rank.view.guard is not None:
        yield (
            f"The guard armed on {rank.node} over {rank.view.guard.container_name} goes with it: M arms one on "
            f"{rank.name} once that serves."
        )
    else:
        yield from start_steps.guard_note(rank.view)


def start_order(ranks: Sequence[PlannedRank], executor: Executor) -> tuple[PlannedRank, ...]:
    """The ranks in start order."""
    is_ray = executor is Executor.RAY
    return tuple(sorted(ranks, key=lambda rank: ((rank.rendered.index == 0) != is_ray, rank.rendered.index)))


def keep_log(order: Sequence[PlannedRank]) -> Step:
    """Rollback step: keep the log of what was started, before it is removed.

    Args:
        order: ranks in start order.
    """
    nodes, names = tuple(rank.node for rank in order), tuple(dict.fromkeys(rank.name for rank in order))
    return replace(
        evidence_step(nodes),
        id="back-evidence",
        title=f"Save the log of {order[0].name}, with evidence of {listed(nodes)}",
        act=CollectEvidence(nodes=nodes, engines=names, needs=STARTED),
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
