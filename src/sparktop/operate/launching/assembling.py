"""A launch's plan, put together: its steps in their order, the way back, and what is said of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.model.engine import EngineKind
from sparktop.model.fleet import NodeView
from sparktop.model.plan import OnFailure, Plan, Request, Risk, Step
from sparktop.model.prospect import Fit
from sparktop.model.recipe import Executor
from sparktop.operate.knownsecrets import secrets_of
from sparktop.operate.launching import boxsteps, launchwords, makeroom, proofsteps, served
from sparktop.operate.launching.leftovers import clear
from sparktop.operate.launching.outlook import Outlook
from sparktop.operate.launching.place import Place
from sparktop.operate.launching.places import places
from sparktop.operate.launching.startorder import start_order, stop_order
from sparktop.recipe.ownsecrets import ENGINE_KEY

_KINDS = {EngineKind.VLLM: "vLLM", EngineKind.SGLANG: "SGLang"}


def assembled(request: Request, found: Outlook, grace_s: float) -> Plan:
    """The plan of a launch that nothing stands in the way of."""
    made = places(found)
    executor = found.order.recipe.executor if len(made) > 1 else Executor.ALONE
    up = start_order(made, executor)
    key = _api_key(made)
    steps = tuple(_steps(found, made, up, key, grace_s))
    where = " and ".join(one.node for one in made)
    kind = _KINDS.get(found.order.recipe.engine, str(found.order.recipe.engine))
    return Plan(
        request=request,
        title=f"Launch {found.prospect.title} on {where} ({kind})",
        risk=_risk(found),
        steps=steps,
        way_back=tuple(_way_back(found, made, up, grace_s)),
        is_all_or_nothing=True,
        effect=launchwords.effect(found, made),
        outcome=served.outcome(found.rendered, has_key=bool(key)) if found.rendered is not None else "",
        outcome_command=served.asking(found.rendered, has_key=bool(key)) if found.rendered is not None else "",
        warnings=tuple(dict.fromkeys(launchwords.warnings(found, made, steps))),
        equivalent=tuple(launchwords.equivalent(found, up, grace_s)),
        seen_monotonic_s=found.looked.picture.monotonic_s,
        secrets=tuple(dict.fromkeys(value for value in _secrets(found, made) if value)),
        prospect=found.prospect,
    )


def _risk(found: Outlook) -> Risk:
    """What is stopped is lost meanwhile; and what runs on may be, where memory gets tight."""
    runs_on = any(engine.exited_wall_s is None for view in _views(found) for engine in view.engines)
    is_tight = found.budget is None or found.budget.fit is not Fit.FITS
    return Risk.DISRUPTIVE if found.goings or (runs_on and is_tight) else Risk.SAFE


def _views(found: Outlook) -> tuple[NodeView, ...]:
    return tuple(view for node in found.looked.nodes if (view := found.looked.view(node)) is not None)


def _steps(found: Outlook, made: Sequence[Place], up: Sequence[Place], key: str, grace_s: float) -> Iterator[Step]:
    recipe, survey = found.order.recipe, found.looked.survey
    yield from found.fetch.steps
    for one in made:
        if one.leftovers:
            yield clear(one.node, one.mark, one.leftovers)
    for one in made:
        yield boxsteps.make(one)
    for step in makeroom.down(found.goings, grace_s, survey):
        yield step if step.on_failure is OnFailure.GO_ON else replace(step, on_failure=OnFailure.ROLL_BACK)
    for one in made:
        if (room := proofsteps.memory(one)) is not None:
            yield room
    for one in made:
        back = sum(going.held_on(one.node) for going in found.goings)
        if (dropped := proofsteps.drop(one, back, survey)) is not None:
            yield dropped
    for one in made:
        if one.taken is None:
            yield proofsteps.guard(one, serving=False)
    for one in up:
        yield boxsteps.start(one)
    for one in made:
        if one.taken is not None:  # before its start it had another name
            yield proofsteps.guard(one, serving=False)
    yield from proofsteps.ready(made, recipe)
    for one in made:
        yield proofsteps.guard(one, serving=True)
    yield proofsteps.smoke(made[0], recipe, key)
    yield proofsteps.measured(made[0], recipe, key)
    for one in made:
        yield proofsteps.guard_back(one)
    for one in made:
        if one.policy:
            yield boxsteps.policy_on(one)


def _way_back(found: Outlook, made: Sequence[Place], up: Sequence[Place], grace_s: float) -> Iterator[Step]:
    """The log, all containers down together, gone, and what was stopped as it was."""
    yield proofsteps.log_kept(up)
    for one in stop_order(made):
        yield boxsteps.away(one, grace_s)
    for one in made:
        yield proofsteps.back_guard(one)
    for one in stop_order(made):
        yield boxsteps.remove(one)
    yield from makeroom.back(found.goings)


def _api_key(made: Sequence[Place]) -> str:
    """The key that its requests want: as its container is given it. SGLang takes none that isn't in its arguments."""
    return made[0].rank.container.environment.get(ENGINE_KEY, "")


def _secrets(found: Outlook, made: Sequence[Place]) -> Iterator[str]:
    yield from found.order.secrets.values()
    for one in made:
        spec = one.rank.container
        yield from (spec.environment[name] for name in spec.secret_names if name in spec.environment)
        yield from secrets_of(one.body)
