"""Launch planner: the plan for a recipe on its nodes, or why it can't be launched."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Fit, Gate, Prospect
from sparktop.model.recipe import Executor, Order
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Survey
from sparktop.operate.container.lifecycle import grace_option
from sparktop.operate.launch import engines_to_stop, launch_text
from sparktop.operate.launch import prospect as launch_prospect
from sparktop.operate.launch.gates.catalogue import blocking
from sparktop.operate.launch.inputs.gate_inputs import GateInputs
from sparktop.operate.launch.name_holder import clear, policy_remedies
from sparktop.operate.launch.planned_rank import PlannedRank, keep_log, planned_rank, policy_of, start_order
from sparktop.operate.plan.common_steps import questions_of
from sparktop.operate.plan.sequence import rollback, sequence
from sparktop.operate.plan.start_steps import with_rollback
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.masking import secrets_of
from sparktop.operate.secrets.sudo import require_docker
from sparktop.operate.step.plan import OnFailure, Plan
from sparktop.recipe.container_spec import Rendered
from sparktop.recipe.read.shelf import recipe_argument
from sparktop.recipe.settings import line_that_sets, not_set
from sparktop.text.sentences import listed


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """The plan, or a refusal with the prospect that shows why."""
    inputs, prospect = launch_prospect.launch_inputs(_checked(request), request.nodes, picture, survey)
    for node in request.nodes:
        require_docker(survey.privileges(node), node)
    try:
        grace_s = grace_option(request.options.get("grace_s", ""))
    except ValueError as error:
        raise Refused(str(error), ("sparktop launch --help explains each option",)) from error
    rendered, recipe = _rendered(request, inputs, prospect), inputs.order.recipe
    variable = recipe.engine.traits.key_variable  # SGLang takes one as a flag only
    key = rendered.head.container.environment.get(variable, "")
    has_key = bool(key)
    ranks = tuple(planned_rank(rank, rendered, inputs, api_key=key, grace_s=grace_s) for rank in rendered.ranks)
    up = start_order(ranks, recipe.executor if len(ranks) > 1 else Executor.ALONE)
    phases = [rank.phases for rank in ranks]
    stop = engines_to_stop.stop_steps(inputs.engines_to_stop, grace_s)
    steps = tuple(
        sequence(
            phases,
            up=[rank.phases for rank in up],
            before=(
                *inputs.fetch.steps,
                *(rank.patch for rank in ranks if rank.patch is not None),
                *(step for rank in ranks for step in clear(rank.container, inputs.containers(rank.node))),
            ),
            stop=(step if step.on_failure is OnFailure.GO_ON else with_rollback(step) for step in stop),
        )
    )
    where = listed(rank.node for rank in ranks)
    kind = recipe.engine.traits.name
    return Plan(
        request=request,
        title=f"Launch {prospect.title} on {where} ({kind})",
        risk=_risk(inputs),
        steps=steps,
        rollback=(
            keep_log(up),
            *rollback(phases, phases),
            *engines_to_stop.restart_steps(inputs.engines_to_stop),
        ),
        is_all_or_nothing=True,
        effect=launch_text.effect(inputs, ranks),
        outcome=launch_text.outcome(rendered, ranks[0].view.link.contact, has_key=has_key),
        outcome_command=launch_text.first_request(rendered, ranks[0].view.link.contact, has_key=has_key),
        warnings=tuple(dict.fromkeys(launch_text.warnings(inputs, prospect, ranks, steps))),
        typed=recipe.consent,
        equivalent=tuple(launch_text.equivalent(inputs, up, steps, grace_s)),
        secrets=tuple(dict.fromkeys(value for value in _secrets(inputs, ranks) if value)),
        prospect=prospect,
    )


questions = questions_of(plan)


def _risk(inputs: GateInputs) -> Risk:
    """Disruptive where engines are stopped, or where others run on and memory gets tight."""
    views = map(inputs.view, inputs.nodes)
    runs_on = any(engine.exited_wall_s is None for view in views for engine in view.engines)
    is_tight = inputs.budget is None or inputs.budget.fit is not Fit.FITS
    return Risk.DISRUPTIVE if inputs.engines_to_stop or (runs_on and is_tight) else Risk.SAFE


def _secrets(inputs: GateInputs, ranks: Sequence[PlannedRank]) -> Iterator[str]:
    yield from inputs.order.secrets.values()
    for rank in ranks:
        spec = rank.rendered.container
        yield from (spec.environment[name] for name in spec.secret_names if name in spec.environment)
        yield from secrets_of(rank.container.body)


# --- refusals


def _checked(request: Request) -> Order:
    """The order; refused where it can be rejected before any question is asked."""
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
            (f"sparktop launch {shlex.quote(recipe_argument(recipe))} {hosts}",),
        )
    if len(set(request.nodes)) != count:
        raise Refused("a node is named twice", ("name each Spark once",))
    if (unset := not_set(order)) is not None:
        raise Refused(unset.reason, (line_that_sets(order, recipe_argument(recipe), request.nodes),))
    return order


def _rendered(request: Request, inputs: GateInputs, prospect: Prospect) -> Rendered:
    """The launch; refused if compose can't start it, it can't be rendered, runs already, doesn't fit, or a gate blocks
    it."""
    if inputs.compose is not None and (obstacle := inputs.compose.obstacle) is not None:
        raise Refused(str(obstacle), obstacle.remedies, prospect=prospect)
    if inputs.render_error is not None:
        raise Refused(inputs.render_error.reason, inputs.render_error.remedies, prospect=prospect)
    assert inputs.rendered is not None  # else render_error is set
    running_ranks = prospect.runs
    # Where the operator agreed to stop it, it is launched anew.
    if running_ranks and not set(running_ranks) <= set(inputs.order.stops):
        name = shlex.quote(running_ranks[0][1])
        where = listed(node for node, _ in running_ranks)
        hosts = " ".join(map(shlex.quote, request.nodes))
        policy = policy_of(inputs.order.recipe)
        how_to_set_policy = tuple(policy_remedies(inputs.rendered, policy, inputs.docker, inputs.survey))
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
    if blocking_gates := blocking(prospect.gates):
        remedies = tuple(dict.fromkeys(gate.remedy for gate in blocking_gates if gate.remedy))
        raise Refused(blocking_reason(blocking_gates), remedies, prospect=prospect)
    return inputs.rendered


def blocking_reason(gates: Sequence[Gate]) -> str:
    """The first gate's sentence, and the names of the others: their sentences are listed among the gates."""
    first, *further = gates
    nodes: dict[str, list[str]] = {}
    for gate in further:
        nodes.setdefault(gate.name, []).append(gate.node)
    names = [f"{name} on {listed(on)}" if any(on) else name for name, on in nodes.items()]
    return f"{first.sentence}; shut too: {', '.join(names)}" if names else first.sentence
