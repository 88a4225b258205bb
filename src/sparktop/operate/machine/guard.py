"""Arm or disarm the guard: the probe itself kills one engine before memory runs out. Pure.

Arming changes nothing on the node but the probe's state. The effect of its kill was observed on a real Docker Engine
(20.10): a kill by the API is SIGKILL, and Docker treats it as the operator's will, so no restart policy restarts the
container, except `always` when Docker or the machine restarts. So the policy is left as it is. An engine in no
container is killed by its pid and start (`probe/remote/guard/processes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop.engines.ranks import EngineRank, is_alive
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase, pid_of
from sparktop.model.request import Request, Risk
from sparktop.model.survey import PrivilegesQuestion, Question, Survey
from sparktop.operate.acts.guard_order import GuardOrder, guard_text
from sparktop.operate.plan.origin import unit_of_process
from sparktop.operate.plan.process import root_pid, stat_of, stat_question
from sparktop.operate.plan.running_rank import requested_ranks, require_known_container
from sparktop.operate.refused import Refused, refused_options
from sparktop.operate.secrets.sudo import require_docker
from sparktop.operate.step.plan import Plan, Step
from sparktop.text.units import GIB, gib, span

FLOOR_BYTES, FLOOR_SHARE = 4 * GIB, 0.03
"""Below 4 GiB sshd itself may get no memory (docs/facts/reliability.md section 0)."""
SMALL_MACHINE_BYTES = 64 * GIB
SMALL_SHARE = 0.05
EMPTY_WITHIN_S = 2.0
NARROW = 1.25
STAY_AT_MOST_MIN = 24 * 60
ARM_LIMIT_S = 15.0
_UP = (EngineState.READY, EngineState.SERVING)
_NUMBER = re.compile(r"\d{1,4}(\.\d{1,3})?")


def default_floor_bytes(total_bytes: int) -> int:
    """3 % of a Spark's memory, and at least 4 GiB; 5 % of a machine smaller than a Spark."""
    if total_bytes < SMALL_MACHINE_BYTES:
        return int(total_bytes * SMALL_SHARE)
    return max(FLOOR_BYTES, int(total_bytes * FLOOR_SHARE))


# --- the planner


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    if _is_off(request):
        return ()
    bare = [rank for rank in requested_ranks(request, picture) if rank.engine.container is None and rank.engine.pids]
    stats = (stat_question(rank.node.name, root_pid(rank.engine)) for rank in bare)
    return (*(PrivilegesQuestion(node=name) for name in request.nodes), *stats)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """One guard order for each of the request's nodes on which the engine has a rank."""
    if _is_off(request):
        return _disarm_plan(request, picture)
    team = requested_ranks(request, picture)
    with refused_options():
        orders = [
            (rank.node.name, _guard_order(request, rank, survey)) for rank in team if rank.node.name in request.nodes
        ]
    where = " and ".join(node for node, _ in orders)
    first = orders[0][1]
    return Plan(
        request=request,
        title=f"Arm the guard on {first.container_name} on {where}",
        risk=Risk.DISRUPTIVE,
        steps=tuple(_step(node, order, len(orders)) for node, order in orders),
        rollback=tuple(_disarm(node, len(orders)) for node, _ in orders),
        effect=_effect(orders),
        warnings=tuple(dict.fromkeys(_warnings(request, team, orders))),
        equivalent=tuple(f"on {node}, when it fires: {_typed(order)}" for node, order in orders),
    )


def _is_off(request: Request) -> bool:
    return request.options.get("off", "no") == "yes"


def _disarm_plan(request: Request, picture: FleetState) -> Plan:
    nodes = [name for name in request.nodes if (view := picture.node(name)) is not None and view.guard is not None]
    if not nodes:
        raise Refused(f"no guard is armed on {' or '.join(request.nodes) or 'any node'}")
    return Plan(
        request=request,
        title=f"Disarm the guard on {' and '.join(nodes)}",
        risk=Risk.SAFE,
        steps=tuple(_disarm(name, len(nodes)) for name in nodes),
        effect="The probe kills nothing by itself any more; a guard that stayed after its console is off too.",
    )


def _guard_order(request: Request, rank: EngineRank, survey: Survey) -> GuardOrder:
    engine, node = rank.engine, rank.node
    if node.sample is None:
        raise Refused(f"no figures yet from {node.name}", ("wait for its first figures",))
    require_known_container(rank, survey)
    target, name = _target(rank, survey)
    memory = node.sample.memory
    floor_gib = _number(request, "floor_gib", 0.1, 4096.0)
    floor = default_floor_bytes(memory.total_bytes) if floor_gib is None else int(floor_gib * GIB)
    available = memory.available_bytes
    if floor_gib is None and floor * NARROW > available:
        floor = available // 2  # little is available even at rest: half of it is still a useful floor
    if floor >= available:
        raise Refused(
            f"{rank.node.name} has {gib(available)} available now, which is not above that floor of {gib(floor)}: it "
            "would kill the engine at once",
            (
                f"--set floor_gib={max(0.1, available / GIB / 2):.1f}, or less",
                "or give the engine less memory",
            ),
        )
    within = _number(request, "empty_within_s", 0.0, 600.0)
    stay = _number(request, "stay_minutes", 0.0, STAY_AT_MOST_MIN)
    if within is None:
        within = EMPTY_WITHIN_S if engine.state in _UP else 0.0
    return GuardOrder(
        container_id=target,
        container_name=name,
        floor_bytes=floor,
        empty_within_s=within or None,
        stay_s=(stay or 0.0) * 60.0,
    )


def _target(rank: EngineRank, survey: Survey) -> tuple[str, str]:
    """(what the probe knows it by, its name): the rank's container, else its server's process."""
    engine, node, container = rank.engine, rank.node, rank.engine.container
    if container is None:
        return _process(rank, survey), engine.name
    require_docker(survey.privileges(node.name), node.name)
    if container.status != "running" or not is_alive(engine):
        raise Refused(
            f"{container.name} on {rank.node.name} is not running ({container.status or 'unknown'}): there is "
            "nothing to end",
            ("start it, then arm the guard; a safe restart arms it by itself for the first request",),
        )
    return container.container_id, container.name


def _process(rank: EngineRank, survey: Survey) -> str:
    engine, node = rank.engine, rank.node
    pid = root_pid(engine) if engine.pids else 0
    stat = stat_of(survey, stat_question(node.name, pid)) if pid else None
    if stat is None or stat.has_ended:
        raise Refused(
            f"{engine.name} on {node.name} is not running: there is nothing to end", ("start it, then arm the guard",)
        )
    return f"pid:{pid}:{stat.started_ticks}"


def _typed(order: GuardOrder) -> str:
    pid = pid_of(order.container_id)
    return f"docker kill {order.container_name}" if pid is None else f"kill {pid}; sleep 1; kill -9 {pid}"


def _number(request: Request, option: str, least: float, most: float) -> float | None:
    """An option's number; None where it isn't set.

    Raises:
        ValueError: it is not a number, or out of bounds; the text says so.
    """
    text = request.options.get(option, "").strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not least <= float(text) <= most:
        raise ValueError(f"{option} takes a number from {least:g} to {most:g}, not {text[:20]!r}")
    return float(text)


def _step(node: str, order: GuardOrder, count: int) -> Step:
    return Step(
        id="guard" if count == 1 else f"guard@{node}",
        title=f"Arm the guard on {node}: {guard_text(order)}",
        node=node,
        act=order,
        limit_s=ARM_LIMIT_S,
        verifies="the probe reports that it is armed, for this container by id and name",
    )


def _disarm(node: str, count: int) -> Step:
    return Step(
        id="disarm" if count == 1 else f"disarm@{node}",
        title=f"Disarm the guard on {node}",
        node=node,
        act=GuardOrder(container_id=""),
        limit_s=ARM_LIMIT_S,
        verifies="the probe reports that it is off",
    )


def _effect(orders: list[tuple[str, GuardOrder]]) -> str:
    order = orders[0][1]
    rate_text = (
        f", or as soon as memory falls so fast that it would be empty within {order.empty_within_s:g} s"
        if order.empty_within_s
        else ""
    )
    how_long = (
        f"It stays armed for {span(order.stay_s)} after this console has closed."
        if order.stay_s
        else "It is disarmed when this console closes, or the command that armed it ends; stay_minutes keeps it longer."
    )
    return (
        f"It kills nothing now. When less than {gib(order.floor_bytes)} are available{rate_text}, the probe on the "
        f"Spark kills {order.container_name} itself, once, without waiting for the network. {how_long}"
    )


def _warnings(request: Request, team: tuple[EngineRank, ...], orders: list[tuple[str, GuardOrder]]) -> Iterator[str]:
    if any(pid_of(order.container_id) is None for _, order in orders):
        yield "It kills the container by SIGKILL: its running requests are lost, and it can save nothing."
    if any(pid_of(order.container_id) for _, order in orders):
        yield "It sends SIGTERM, and SIGKILL after 1 s to what is left: its running requests are lost."
    for rank in team:
        container = rank.engine.container
        view, node = rank.node, rank.node.name
        order = next((order for ordered, order in orders if ordered == node), None)
        if order is None or view.sample is None:
            continue
        name = order.container_name
        if unit := unit_of_process(rank.engine, view) if container is None else None:
            yield f"{unit[0]} may start it again at once, and so take the memory again: see its Restart=."
        if container is not None and container.restart_policy == "always":
            yield (
                f"Docker leaves {container.name} stopped after that; its policy `always` starts it again when "
                f"Docker or {node} restarts."
            )
        available = view.sample.memory.available_bytes
        usual = default_floor_bytes(view.sample.memory.total_bytes)
        if order.floor_bytes < usual and "floor_gib" not in request.options:
            yield (
                f"{node} has only {gib(available)} available: the limit is half of that, "
                f"{gib(order.floor_bytes)}, not the usual {gib(usual)}."
            )
        if available < order.floor_bytes * NARROW:
            margin = gib(available - order.floor_bytes)
            yield f"{node} has {gib(available)} available: {margin} more in use, and {name} is killed."
        if rank.engine.state not in _UP:
            load_text = f"{name} is not ready yet, and memory falls fast while a model loads"
            yield (
                f"{load_text}: that may kill it."
                if order.empty_within_s
                else f"{load_text}: only the floor counts until then."
            )
        if view.guard is not None and view.guard.phase is GuardPhase.ARMED:
            yield f"The guard armed on {node} ({guard_text(view.guard)}) is replaced."
    if len(team) > 1:
        yield (
            f"{team[0].engine.name} runs on {len(team)} nodes: when one rank is killed, the other waits forever: "
            "stop it too."
        )
