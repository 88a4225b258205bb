"""Launch a recipe: from nothing to a served, proven model, on one Spark or two; the planner. Pure.

Its order: what is missing is fetched while all else runs on, the containers are made, what was agreed is stopped, the
memory comes back, they are started under the guard, waited for together, asked once, measured. From the first container
on a failure takes all of them away again, on both nodes, and starts again what was stopped.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request
from sparktop.model.prospect import Fit, Gate
from sparktop.operate.containersteps import grace_option
from sparktop.operate.launching import outlook as looking
from sparktop.operate.launching import running
from sparktop.operate.launching.assembling import assembled
from sparktop.operate.launching.gates import blocking
from sparktop.operate.launching.outlook import Outlook
from sparktop.operate.launching.places import policy_of
from sparktop.operate.privilege import docker_refusal
from sparktop.operate.survey import Ask, Survey


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """In rounds: what is there, then what comes of that."""
    if _unfit(request) is not None:
        return ()
    return tuple(dict.fromkeys(looking.asks(request, picture, survey)))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """The whole of it, or the picture of why not."""
    refused = _unfit(request) or _no_docker(request, survey)
    if refused is not None:
        return refused
    found = looking.outlook(request, picture, survey)
    if isinstance(found, Refusal):
        return found
    try:
        grace_s = grace_option(request.options.get("grace_s", ""))
    except ValueError as error:
        return Refusal(request=request, reason=str(error), remedies=("sparktop launch --help explains each option",))
    refused = _refused(request, found)
    return refused if refused is not None else assembled(request, found, grace_s)


# --- what can't be


def _unfit(request: Request) -> Refusal | None:
    """What is known before anything is asked."""
    order = request.order
    if order is None:
        return Refusal(
            request=request, reason="no recipe is named", remedies=("sparktop launch RECIPE HOST", "in the console: L")
        )
    recipe, count = order.recipe, len(request.nodes)
    if not recipe.min_nodes <= count <= recipe.max_nodes:
        wanted = _nodes(recipe.min_nodes, recipe.max_nodes)
        return Refusal(
            request=request,
            reason=f"{recipe.id} is for {wanted}, and {count} {'is' if count == 1 else 'are'} named",
            remedies=(f"sparktop launch {shlex.quote(recipe.id)} {_hosts(recipe.min_nodes, recipe.max_nodes)}",),
        )
    if len(set(request.nodes)) != count:
        return Refusal(request=request, reason="a node is named twice", remedies=("name each Spark once",))
    return None


def _hosts(least: int, most: int) -> str:
    return " ".join(["HOST"] * least + ["[HOST]"] * (most - least))


def _nodes(least: int, most: int) -> str:
    if least == most:
        return f"{least} node{'s' if least > 1 else ''}"
    return f"{least} to {most} nodes"


def _no_docker(request: Request, survey: Survey) -> Refusal | None:
    for node in request.nodes:
        obstacle = docker_refusal(survey.privileges(node), node)
        if obstacle is not None:
            return obstacle.refusal(request)
    return None


def _refused(request: Request, found: Outlook) -> Refusal | None:
    """The first of: it can't be rendered, it runs already, it doesn't fit, a gate is shut."""
    prospect = found.prospect
    if found.cannot is not None:
        return Refusal(request=request, reason=found.cannot.reason, remedies=found.cannot.remedies, prospect=prospect)
    assert found.rendered is not None  # or there is a reason above
    here = prospect.runs
    if here and not set(here) <= set(found.looked.order.stops):  # agreed to be stopped, it is launched anew
        name = shlex.quote(here[0][1])
        where = looking.listed([one for one, _ in here])
        hosts = " ".join(map(shlex.quote, request.nodes))
        lacking = tuple(running.without_policy(found.rendered, policy_of(found.order.recipe), found.looked.survey))
        why = ". Its restart policy is not on, as after a launch that was interrupted before its end" if lacking else ""
        return Refusal(
            request=request,
            reason=f"{here[0][1]} runs on {where} already, launched from this recipe with these values{why}",
            remedies=(
                *lacking,
                f"to start it again: sparktop act safe-restart {hosts} --engine {name}",
                f"to launch it anew: --stop {name}",
            ),
            prospect=prospect,
        )
    budget = found.budget
    if budget is not None and budget.fit is Fit.NO:
        return Refusal(request=request, reason=budget.sentence, remedies=budget.levers, prospect=prospect)
    shut = blocking(found.gates)
    if shut or found.fetch.problems:
        remedies = [gate.remedy for gate in shut if gate.remedy]
        return Refusal(
            request=request,
            reason=why_shut(shut) if shut else "; ".join(found.fetch.problems),
            remedies=tuple(dict.fromkeys(remedies or found.fetch.remedies)),
            prospect=prospect,
        )
    return None


def why_shut(shut: Sequence[Gate]) -> str:
    """The first in full, the others by their names: what each found stands among the gates, and all of it here is read
    to its end by nobody."""
    first, *others = shut
    nodes: dict[str, list[str]] = {}
    for gate in others:
        nodes.setdefault(gate.name, []).append(gate.node)
    names = [f"{name} on {' and '.join(on)}" if any(on) else name for name, on in nodes.items()]
    return f"{first.sentence}; shut too: {', '.join(names)}" if names else first.sentence
