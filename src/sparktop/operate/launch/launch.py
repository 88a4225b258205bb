"""Launch planner: the plan for a recipe on its nodes, or why it can't be launched."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.engines.labels import LAUNCH
from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.engines.memory_target import SLACK_BYTES
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit, Gate, NodeBudget, SliceKind
from sparktop.model.recipe import Executor, Recipe
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Ask, Survey
from sparktop.operate.container import inspected
from sparktop.operate.container.lifecycle import NO_POLICY, NewContainer, grace_option
from sparktop.operate.launch import compiled, launch_text, make_room, patching
from sparktop.operate.launch import prospect as launch_prospect
from sparktop.operate.launch.gates.catalogue import blocking
from sparktop.operate.launch.name_holder import NEXT, leftovers, name_holder, policy_remedies
from sparktop.operate.launch.planned_rank import PlannedRank, keep_log, start_order
from sparktop.operate.launch.prospect import LaunchInputs
from sparktop.operate.plan.running_rank import with_owed_guard
from sparktop.operate.plan.sequence import sequence, way_back
from sparktop.operate.plan.start_steps import is_guarded, with_rollback
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.masking import secrets_of
from sparktop.operate.secrets.sudo import require_docker
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.recipe.container_spec import Rendered, RenderedRank
from sparktop.recipe.operator_secrets import ENGINE_KEY
from sparktop.recipe.read.shelf import word
from sparktop.recipe.render.host_config import body
from sparktop.text.sentences import listed
from sparktop.text.units import GIB


def launch_plan(request: Request, inputs: LaunchInputs, grace_s: float) -> Plan:
    """The plan, where nothing prevents the launch."""
    rendered = inputs.rendered
    assert rendered is not None  # checked by the planner
    ranks = planned_ranks(inputs, rendered)
    executor = inputs.order.recipe.executor if len(ranks) > 1 else Executor.ALONE
    up = start_order(ranks, executor)
    has_key = bool(ranks[0].api_key)
    steps = tuple(_steps(inputs, ranks, up, grace_s))
    where = listed(rank.node for rank in ranks)
    kind = inputs.order.recipe.engine.traits.name
    return Plan(
        request=request,
        title=f"Launch {inputs.prospect.title} on {where} ({kind})",
        risk=_risk(inputs),
        steps=steps,
        way_back=tuple(_rollback(inputs, ranks, up, grace_s)),
        is_all_or_nothing=True,
        effect=launch_text.effect(inputs, ranks),
        outcome=launch_text.outcome(rendered, ranks[0].view.link.contact, has_key=has_key),
        outcome_command=launch_text.first_request(rendered, ranks[0].view.link.contact, has_key=has_key),
        warnings=tuple(dict.fromkeys(launch_text.warnings(inputs, ranks, steps))),
        typed=inputs.order.recipe.consent,
        equivalent=tuple(launch_text.equivalent(inputs, up, steps, grace_s)),
        secrets=tuple(dict.fromkeys(value for value in _secrets(inputs, ranks) if value)),
        prospect=inputs.prospect,
    )


def _risk(inputs: LaunchInputs) -> Risk:
    """Disruptive where engines are stopped, or where others run on and memory gets tight."""
    views = filter(None, map(inputs.gate_inputs.view, inputs.gate_inputs.nodes))
    runs_on = any(engine.exited_wall_s is None for view in views for engine in view.engines)
    is_tight = inputs.budget is None or inputs.budget.fit is not Fit.FITS
    return Risk.DISRUPTIVE if inputs.engines_to_stop or (runs_on and is_tight) else Risk.SAFE


def _steps(
    inputs: LaunchInputs, ranks: Sequence[PlannedRank], up: Sequence[PlannedRank], grace_s: float
) -> Iterator[Step]:
    survey, rendered = inputs.gate_inputs.survey, inputs.rendered
    assert rendered is not None  # checked by the planner
    stop = make_room.stop_steps(inputs.engines_to_stop, grace_s, survey)
    yield from sequence(
        ranks,
        up=up,
        before=(
            *inputs.fetch.steps,
            *patching.steps(rendered, ranks, survey),
            *(step for rank in ranks for step in rank.clear()),
        ),
        stop=(step if step.on_failure is OnFailure.GO_ON else with_rollback(step) for step in stop),
        survey=survey,
    )


def _rollback(
    inputs: LaunchInputs, ranks: Sequence[PlannedRank], up: Sequence[PlannedRank], grace_s: float
) -> Iterator[Step]:
    """Keep the log, stop every container, remove them, and restart the engines that were stopped."""
    yield keep_log(up)
    yield from way_back(ranks, ranks, grace_s)
    yield from make_room.restart_steps(inputs.engines_to_stop)


def _secrets(inputs: LaunchInputs, ranks: Sequence[PlannedRank]) -> Iterator[str]:
    yield from inputs.order.secrets.values()
    for rank in ranks:
        spec = rank.rendered.container
        yield from (spec.environment[name] for name in spec.secret_names if name in spec.environment)
        yield from secrets_of(rank.container.body)


_SHARE_KINDS = (SliceKind.WEIGHTS, SliceKind.CACHE, SliceKind.UNTOUCHED)


def stamp_of(picture: FleetState) -> str:
    """The plan's time, for names and labels of what it creates: "20261121T031211"."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(picture.wall_s))


def planned_ranks(inputs: LaunchInputs, rendered: Rendered) -> tuple[PlannedRank, ...]:
    """Every rank with its node, head first."""
    key = rendered.head.container.environment.get(ENGINE_KEY, "")  # SGLang takes one as a flag only
    return tuple(_planned_rank(rank, rendered, inputs, key) for rank in rendered.ranks)


def _planned_rank(rank: RenderedRank, rendered: Rendered, inputs: LaunchInputs, api_key: str) -> PlannedRank:
    gate_inputs = inputs.gate_inputs
    survey, view = gate_inputs.survey, gate_inputs.view(rank.node)
    assert view is not None  # checked before planning
    stamp = stamp_of(gate_inputs.picture)
    container_body = dict(body(rank.container))
    host = {**(container_body.get("HostConfig") or {}), "RestartPolicy": dict(NO_POLICY)}
    is_there = patching.is_patched(rendered, rank.node, survey)
    image = inspected.image(rank.node, rank.container.image, survey) if is_there else None
    budgets = inputs.budget.nodes if inputs.budget is not None else ()
    budget = next((node_budget for node_budget in budgets if node_budget.node == rank.node), None)
    target_bytes, share_bytes = room_for(budget)
    holder, interrupted = name_holder(rank, survey), leftovers(rank, survey)
    if holder is not None and holder.container_id in {leftover.container_id for leftover in interrupted}:
        holder = None
    name = rank.container.name
    guarded = with_owed_guard(view, survey)
    stopped_ranks = [one for engine in inputs.engines_to_stop for one in engine.ranks if one.node == rank.node]
    return PlannedRank(
        rendered=rank,
        recipe=inputs.order.recipe,
        view=guarded,
        container=NewContainer(
            node=rank.node,
            mark=f"@{rank.node}" if len(rendered.ranks) > 1 else "",
            name=name,
            created_name=f"{name}{NEXT}{stamp}" if holder is not None else name,
            body={
                **container_body,
                "HostConfig": host,
                "Labels": {**(container_body.get("Labels") or {}), LAUNCH: stamp},
            },
            folder=compiled.folder_of(rank),
            policy=policy_of(inputs.order.recipe),
            image_ref=rank.container.image,
            image_id=str(image.get("Id") or "") if image is not None else "",
            created_as={f"Config.Labels.{LAUNCH}": stamp},
            old=holder,
            before_name=f"{name}-before-{stamp}",
        ),
        other_ranks=tuple((other.node, other.container.name) for other in rendered.ranks if other is not rank),
        image=image,
        leftovers=interrupted,
        budget=budget,
        target_bytes=target_bytes,
        share_bytes=share_bytes,
        freed_bytes=sum(engine.held_bytes_on(rank.node) for engine in inputs.engines_to_stop),
        floor_bytes=floor_of(budget),
        stops_guarded=any(
            one.container is not None and is_guarded(guarded, one.container.container_id) for one in stopped_ranks
        ),
        api_key=api_key,
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


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """Questions about nodes, models, images and memory, in rounds."""
    _check_order(request)
    return tuple(dict.fromkeys(launch_prospect.asks(request, picture, survey)))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """The plan, or a refusal with the prospect that shows why."""
    _check_order(request)
    for node in request.nodes:
        require_docker(survey.privileges(node), node)
    inputs = launch_prospect.launch_inputs(request, picture, survey)
    try:
        grace_s = grace_option(request.options.get("grace_s", ""))
    except ValueError as error:
        raise Refused(str(error), ("sparktop launch --help explains each option",)) from error
    _check_inputs(request, inputs)
    return launch_plan(request, inputs, grace_s)


# --- refusals


def _check_order(request: Request) -> None:
    """Refuse an order that can be rejected before any question is asked."""
    order = request.order
    if order is None:
        raise Refused("no recipe is named", ("sparktop launch RECIPE HOST", "in the console: L"))
    recipe, count = order.recipe, len(request.nodes)
    if not recipe.min_nodes <= count <= recipe.max_nodes:
        least, most = recipe.min_nodes, recipe.max_nodes
        nodes_text = f"{least} to {most} nodes" if least != most else f"{least} node{'s' if least > 1 else ''}"
        hosts = " ".join(["HOST"] * least + ["[HOST]"] * (most > least)) + ("..." if most > least + 1 else "")
        raise Refused(
            f"{recipe.id} is for {nodes_text}, and {count} {'is' if count == 1 else 'are'} named",
            (f"sparktop launch {shlex.quote(word(recipe))} {hosts}",),
        )
    if len(set(request.nodes)) != count:
        raise Refused("a node is named twice", ("name each Spark once",))


def _check_inputs(request: Request, inputs: LaunchInputs) -> None:
    """Refuse if it can't be rendered, runs already, doesn't fit, or a gate blocks it."""
    prospect = inputs.prospect
    if inputs.render_error is not None:
        raise Refused(inputs.render_error.reason, inputs.render_error.remedies, prospect=prospect)
    assert inputs.rendered is not None  # else render_error is set
    running_ranks = prospect.runs
    # Where the operator agreed to stop it, it is launched anew.
    if running_ranks and not set(running_ranks) <= set(inputs.gate_inputs.order.stops):
        name = shlex.quote(running_ranks[0][1])
        where = listed(node for node, _ in running_ranks)
        hosts = " ".join(map(shlex.quote, request.nodes))
        how_to_set_policy = tuple(
            policy_remedies(inputs.rendered, policy_of(inputs.order.recipe), inputs.gate_inputs.survey)
        )
        why = (
            ". Its restart policy is not on, as after a launch that was interrupted before its end"
            if how_to_set_policy
            else ""
        )
        raise Refused(
            f"{running_ranks[0][1]} runs on {where} already, launched from this recipe with these values{why}",
            (
                *how_to_set_policy,
                f"to start it again: sparktop act safe-restart {hosts} --engine {name}",
                f"to launch it again: --stop {name}",
            ),
            prospect=prospect,
        )
    budget = inputs.budget
    if budget is not None and budget.fit is Fit.NO:
        raise Refused(budget.sentence, tuple(lever.text for lever in budget.levers), prospect=prospect, is_verdict=True)
    blocking_gates = blocking(inputs.gates)
    if blocking_gates or inputs.fetch.problems:
        remedies = [gate.remedy for gate in blocking_gates if gate.remedy]
        raise Refused(
            blocking_reason(blocking_gates) if blocking_gates else "; ".join(inputs.fetch.problems),
            tuple(dict.fromkeys(remedies or inputs.fetch.remedies)),
            prospect=prospect,
        )


def blocking_reason(gates: Sequence[Gate]) -> str:
    """The first gate's sentence, and the names of the others: their sentences are listed among the gates."""
    first, *further = gates
    nodes: dict[str, list[str]] = {}
    for gate in further:
        nodes.setdefault(gate.name, []).append(gate.node)
    names = [f"{name} on {listed(on)}" if any(on) else name for name, on in nodes.items()]
    return f"{first.sentence}; shut too: {', '.join(names)}" if names else first.sentence
