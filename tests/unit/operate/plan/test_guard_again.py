"""The guard that an operator has armed is over the engine again when a plan is done, whatever its container is then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests import pictures_support as made
from tests import relaunch_support as support
from tests import restart_support as restarts
from tests.relaunch_support import asked, possible
from tests.table import over
from tests.unit.operate.relaunch import test_compose, test_systemd
from tests.unit.operate.serve import test_unit

from sparktop.model.change import Change
from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.container.lifecycle import NEW
from sparktop.operate.restart import restart
from sparktop.operate.step.plan import Plan, Refusal, Step

LESS = Change(flags={"--gpu-memory-utilization": "0.60"})
OLD = made.container().container_id
FOUND = "{ANEW}"


def guarded(picture: FleetState) -> FleetState:
    """The same, a guard of the operator's armed on the engine's container."""
    (node,) = picture.nodes
    (engine,) = node.engines
    assert engine.container is not None
    guard = GuardState(
        phase=GuardPhase.ARMED,
        container_id=engine.container.container_id,
        container_name=engine.container.name,
        floor_bytes=3 << 30,
        empty_within_s=7.0,
        stay_s=60.0,
    )
    return replace(picture, nodes=(replace(node, guard=guard),))


def plain(**more: object) -> FleetState:
    return made.picture(restarts.spark(engines=(support.engine(**more),)))


def relaunched(picture: FleetState) -> Plan | Refusal:
    return support.planned(asked(LESS), guarded(picture))


def restarted(picture: FleetState) -> Plan | Refusal:
    return restarts.planned(restart, restarts.request(), guarded(picture))


CASES: dict[str, tuple[Callable[[], Plan | Refusal], str, str]] = {
    "restart": (lambda: restarted(plain()), OLD, OLD),
    "relaunch": (lambda: relaunched(plain()), NEW, OLD),
    "relaunch of --rm": (lambda: relaunched(plain(auto_remove=True, restart_policy="no")), NEW, FOUND),
    "compose": (lambda: test_compose.planned(LESS, guarded(test_compose.composed())), NEW, FOUND),
    "service": (
        lambda: test_systemd.planned(LESS, guarded(test_systemd.service()), test_systemd.file_of(test_systemd.DOCKER)),
        FOUND,
        FOUND,
    ),
    "unit": (lambda: test_unit.planned(guarded(test_unit.spark(restart_policy="unless-stopped"))), FOUND, OLD),
}


def last_order(steps: Sequence[Step]) -> GuardOrder:
    """The last order to the guard; the container that it looks for is looked up before it."""
    at, order = [(at, step.act) for at, step in enumerate(steps) if isinstance(step.act, GuardOrder)][-1]
    if order.container_id == FOUND:
        assert any(step.id.endswith("anew-guard") for step in steps[:at])
    return order


@over("plan, after, back", CASES.values(), ids=CASES)
def test_it_is_armed_again_on_the_container_that_runs_then(
    plan: Callable[[], Plan | Refusal], after: str, back: str
) -> None:
    made_plan = possible(plan())
    for steps, expected in ((made_plan.steps, after), (made_plan.rollback, back)):
        order = last_order(steps)
        assert (order.container_id, order.container_name) == (expected, "vllm-qwen36")
        assert (order.floor_bytes, order.empty_within_s, order.stay_s) == (3 << 30, 7.0, 60.0)
        ids = [step.id for step in steps]
        assert len(set(ids)) == len(ids)
