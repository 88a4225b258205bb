"""The guard: the probe's own promise to end one container before memory is gone; the planner, and the words. Pure.

Arming changes nothing on the node but the probe's mind. What it does when it fires was seen on a real Docker Engine
(20.10): a kill by the API is SIGKILL, and Docker takes it for the operator's will, so that no restart policy brings the
container back; `always` alone does when Docker or the machine is started anew. So the policy is left as it is.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping

from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import GIB, gib, span
from sparktop.model.engine import Container, Engine, EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.plan import GuardOrder, Plan, Refusal, Request, Risk, Step
from sparktop.operate.enginechoice import the_team
from sparktop.operate.judging import Judgement, Since, Verdict
from sparktop.operate.pair import Rank
from sparktop.operate.part import hidden_refusal
from sparktop.operate.privilege import docker_refusal
from sparktop.operate.survey import Ask, AskPrivileges, Survey

FLOOR_BYTES, FLOOR_SHARE = 4 * GIB, 0.03
"""Below 4 GiB sshd itself may no longer get any (facts/reliability.md section 0)."""
SMALL_MACHINE_BYTES = 64 * GIB
SMALL_SHARE = 0.05
EMPTY_WITHIN_S = 2.0
NARROW = 1.25
STAY_AT_MOST_MIN = 24 * 60
ARM_LIMIT_S = 15.0
_UP = (EngineState.READY, EngineState.SERVING)
_NUMBER = re.compile(r"\d{1,4}(\.\d{1,3})?")


def words(order: GuardOrder) -> Mapping[str, object]:
    """What the probe is told (`sparktop.wire`); each call is another order, by its token."""
    return {
        "guard": {
            "id": order.container_id,
            "name": order.container_name,
            "floor": order.floor_bytes,
            "within": order.empty_within_s,
            "stay": order.stay_s,
            "token": secrets.token_hex(6),
        }
    }


def judge_guard(order: GuardOrder, picture: FleetState, node: str, since: Since) -> Judgement:
    """Whether the probe has taken the order, by what it said since; `since.before` is what it had said until then."""
    view = picture.node(node)
    state = view.guard if view is not None else None
    old = since.before.guard if since.before is not None else None
    if not order.container_id:
        off = state is None or state.phase is not GuardPhase.ARMED
        return Judgement(verdict=Verdict.MET if off else Verdict.WAITING, detail="the guard is off" if off else "")
    if state is None or state is old:
        return Judgement(verdict=Verdict.WAITING, detail="the probe is asked")
    if state.phase is GuardPhase.ARMED:
        if state.container_id != order.container_id or state.until_wall_s is not None:
            return Judgement(verdict=Verdict.WAITING, detail="an earlier guard is armed yet")
        return Judgement(verdict=Verdict.MET, detail=f"armed: {shown(state)}")
    if state.phase is GuardPhase.FIRED:
        return Judgement(verdict=Verdict.FAILED, detail=f"it has ended {state.container_name} already: {state.detail}")
    return Judgement(verdict=Verdict.FAILED, detail=state.detail or "the probe could not arm it")


def shown(state: GuardState | GuardOrder) -> str:
    """What ends, and when: "vllm-qwen36 < 4.0 GiB, or 2 s from empty"."""
    rate = f", or {state.empty_within_s:g} s from empty" if state.empty_within_s else ""
    return f"{state.container_name} < {gib(state.floor_bytes)}{rate}"


def default_floor_bytes(total_bytes: int) -> int:
    """3 % of a Spark, and at least 4 GiB; 5 % of a small machine, which is none."""
    if total_bytes < SMALL_MACHINE_BYTES:
        return int(total_bytes * SMALL_SHARE)
    return max(FLOOR_BYTES, int(total_bytes * FLOOR_SHARE))


# --- the planner


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    return () if _is_off(request) else tuple(AskPrivileges(node=name) for name in request.nodes)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """One order for each node on which the engine has a rank, of those that were named."""
    if _is_off(request):
        return _off(request, picture)
    team = the_team(request, picture)
    if isinstance(team, Refusal):
        return team
    orders: list[tuple[str, GuardOrder]] = []
    try:
        for rank in team:
            if rank.node in request.nodes:
                order = _order(request, rank, picture.node(rank.node), survey)
                if isinstance(order, Refusal):
                    return order
                orders.append((rank.node, order))
    except ValueError as error:
        return Refusal(request=request, reason=str(error), remedies=("sparktop act --list explains each option",))
    where = " and ".join(node for node, _ in orders)
    first = orders[0][1]
    return Plan(
        request=request,
        title=f"Arm the guard over {first.container_name} on {where}",
        risk=Risk.DISRUPTIVE,
        steps=tuple(_step(node, order, len(orders)) for node, order in orders),
        way_back=tuple(_disarm(node, len(orders)) for node, _ in orders),
        effect=_effect(orders),
        warnings=tuple(dict.fromkeys(_warnings(team, orders, picture))),
        equivalent=tuple(f"on {node}, when it fires: docker kill {order.container_name}" for node, order in orders),
        seen_monotonic_s=picture.monotonic_s,
    )


def _is_off(request: Request) -> bool:
    return request.options.get("off", "no") == "yes"


def _off(request: Request, picture: FleetState) -> Plan | Refusal:
    known = [name for name in request.nodes if (view := picture.node(name)) is not None and view.guard is not None]
    if not known:
        return Refusal(request=request, reason=f"no guard is armed on {' or '.join(request.nodes) or 'any node'}")
    return Plan(
        request=request,
        title=f"Disarm the guard on {' and '.join(known)}",
        risk=Risk.SAFE,
        steps=tuple(_disarm(name, len(known)) for name in known),
        effect="Nothing is ended by itself any more; one that stayed after its console had gone is off too.",
        seen_monotonic_s=picture.monotonic_s,
    )


def _order(request: Request, rank: Rank, node: NodeView | None, survey: Survey) -> GuardOrder | Refusal:
    engine, name = rank.engine, rank.engine.name
    box = _container(engine)
    if node is None or node.sample is None:
        return Refusal(
            request=request,
            reason=f"nothing has been seen of {rank.node} yet",
            remedies=("wait for its first figures",),
        )
    if (refused := hidden_refusal(request, rank, survey)) is not None:
        return refused
    if box is None:
        return Refusal(
            request=request,
            reason=f"{name} on {rank.node} runs in no container: the guard ends a container, over Docker's socket",
            remedies=("run it in a container", f"or end it by hand when it must: sparktop act stop-engine {rank.node}"),
        )
    obstacle = docker_refusal(survey.privileges(rank.node), rank.node)
    if obstacle is not None:
        return obstacle.refusal(request)
    if box.status != "running" or not is_alive(engine):
        return Refusal(
            request=request,
            reason=f"{box.name} on {rank.node} is not running ({box.status or 'unknown'}): there is nothing to end",
            remedies=("start it, then arm the guard; a safe restart arms it by itself for the first request",),
        )
    memory = node.sample.memory
    wanted = _number(request, "floor_gib", 0.1, 4096.0)
    floor = default_floor_bytes(memory.total_bytes) if wanted is None else int(wanted * GIB)
    left = memory.available_bytes
    if wanted is None and floor * NARROW > left:
        floor = left // 2  # a machine that rests low: half of what is left is a floor yet
    if floor >= left:
        return Refusal(
            request=request,
            reason=f"{rank.node} has {gib(left)} available now, which is not above that floor of {gib(floor)}: it "
            "would end the engine at once",
            remedies=(f"--set floor_gib={max(0.1, left / GIB / 2):.1f}, or less", "or give the engine less memory"),
        )
    within = _number(request, "empty_within_s", 0.0, 600.0)
    stay = _number(request, "stay_minutes", 0.0, STAY_AT_MOST_MIN)
    if within is None:
        within = EMPTY_WITHIN_S if engine.state in _UP else 0.0
    return GuardOrder(
        container_id=box.container_id,
        container_name=box.name,
        floor_bytes=floor,
        empty_within_s=within or None,
        stay_s=(stay or 0.0) * 60.0,
    )


def _container(engine: Engine) -> Container | None:
    box = engine.container
    return box if box is not None and len(box.container_id) == 64 else None


def _number(request: Request, option: str, least: float, most: float) -> float | None:
    """An option's number; None where it isn't set.

    Raises:
        ValueError: it is none, or out of bounds; says so.
    """
    text = request.options.get(option, "").strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not least <= float(text) <= most:
        raise ValueError(f"a number between {least:g} and {most:g} is wanted for {option}, not {text[:20]!r}")
    return float(text)


def _step(node: str, order: GuardOrder, count: int) -> Step:
    return Step(
        id="guard" if count == 1 else f"guard@{node}",
        title=f"Arm the guard on {node}: {shown(order)}",
        node=node,
        act=order,
        limit_s=ARM_LIMIT_S,
        verifies="the probe says that it is armed, over this container by its id and name",
        undone_by="G disarms it; so does leaving, unless it was told to stay",
    )


def _disarm(node: str, count: int) -> Step:
    return Step(
        id="disarm" if count == 1 else f"disarm@{node}",
        title=f"Disarm the guard on {node}",
        node=node,
        act=GuardOrder(container_id=""),
        limit_s=ARM_LIMIT_S,
        verifies="the probe says that it is off",
    )


def _effect(orders: list[tuple[str, GuardOrder]]) -> str:
    order = orders[0][1]
    rate = (
        f", or as soon as memory falls so fast that it would be empty within {order.empty_within_s:g} s"
        if order.empty_within_s
        else ""
    )
    how_long = (
        f"It stays armed for {span(order.stay_s)} after this console has gone."
        if order.stay_s
        else "It is disarmed when this console goes, and with a command when that ends: stay_minutes keeps it."
    )
    return (
        f"Nothing now. When less than {gib(order.floor_bytes)} are available{rate}, the probe on the Spark ends "
        f"{order.container_name} itself, once, without waiting for the network. {how_long}"
    )


def _warnings(team: tuple[Rank, ...], orders: list[tuple[str, GuardOrder]], picture: FleetState) -> Iterator[str]:
    yield "It ends the container by SIGKILL: its running requests are lost, and it saves nothing."
    for rank in team:
        box = rank.engine.container
        order = next((order for node, order in orders if node == rank.node), None)
        view = picture.node(rank.node)
        if box is None or order is None or view is None or view.sample is None:
            continue
        if box.restart_policy == "always":
            yield (
                f"Docker leaves {box.name} ended after that; by its policy `always` it starts it again when Docker or "
                f"{rank.node} is started anew."
            )
        left = view.sample.memory.available_bytes
        if left < order.floor_bytes * NARROW:
            more = gib(left - order.floor_bytes)
            yield f"{rank.node} has {gib(left)} available: {more} more in use, and {box.name} is ended."
        if rank.engine.state not in _UP:
            falls = f"{box.name} is not ready yet, and memory falls fast while a model loads"
            yield (
                f"{falls}: that may end it." if order.empty_within_s else f"{falls}: only the floor counts until then."
            )
        if view.guard is not None and view.guard.phase is GuardPhase.ARMED:
            yield f"The guard that is armed on {rank.node} ({shown(view.guard)}) is replaced."
    if len(team) > 1:
        yield (
            f"{team[0].engine.name} runs on {len(team)} nodes: when one rank is ended, the other waits for it for ever "
            "and has to be stopped too."
        )
