"""Measure the cable between two Sparks: each half both ways, both at once, then the latency. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.checks.fabric import half_of
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Gate
from sparktop.model.request import Request, Risk
from sparktop.model.state import State
from sparktop.model.survey import Output, Question, Survey, looked_up
from sparktop.operate.launch.gates.link import Pair, pair_gates
from sparktop.operate.launch.inputs.link import End, Rail, fabrics, rails
from sparktop.operate.measure.busy import require_idle
from sparktop.operate.measure.link_load import MeasureLink
from sparktop.operate.measure.perftest import BANDWIDTH, LATENCY, PACKAGE, Half, client_argv, limit_s, server_argv
from sparktop.operate.plan.common_steps import step_id
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import OnFailure, Plan, Step

_BARRED_BY = ("link", "mtu", "peer")
"""Gates without which there is nothing to measure."""
SLACK_S = 45.0
"""For pings, counters and programs that start slowly."""


def which_question(node: str) -> Output:
    return Output(node=node, argv=("which", BANDWIDTH, LATENCY))


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    if len(request.nodes) != 2:
        return ()
    return (
        *(which_question(node) for node in request.nodes),
        *looked_up(survey, lambda look_ups: barring_gates(request.nodes, picture, look_ups)),
    )


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Loads of some seconds each, one after the other; refused while a node works, or the link can't carry them."""
    if len(request.nodes) != 2:
        raise Refused("a cable has two ends: name two Sparks", ("sparktop act measure-link spark1 spark2",))
    require_idle(request.nodes, picture)
    _require_programs(request.nodes, survey)
    require_link(request.nodes, picture, survey)
    pair_rails = sorted(rails(request.nodes, picture), key=port_of)
    if not pair_rails:
        raise Refused(
            f"no RDMA device of {request.nodes[0]} shares a network with one of {request.nodes[1]}",
            (
                "give each half of the cable a network of its own: sparktop act set-addresses "
                + " ".join(request.nodes),
            ),
        )
    loads = tuple(steps(request.nodes, pair_rails))
    seconds = sum(step.act.seconds for step in loads if isinstance(step.act, MeasureLink))
    return Plan(
        request=request,
        title=f"Measure the cable between {' and '.join(request.nodes)}",
        risk=Risk.SAFE,
        steps=loads,
        effect=(
            f"Loads the cable for about {seconds} s in all. Nothing is changed; what runs for it ends with it, "
            f"and by itself after {max(limit_s(step.act) for step in loads if isinstance(step.act, MeasureLink))} s."
        ),
        equivalent=tuple(_by_hand(loads[0])),
    )


def missing_programs(node: str, survey: Survey) -> list[str]:
    """Those of perftest that the node doesn't have, or isn't known to have."""
    there = {line.rpartition("/")[2] for line in (survey.text(which_question(node)) or "").split()}
    return [name for name in (BANDWIDTH, LATENCY) if name not in there]


def _require_programs(nodes: Sequence[str], survey: Survey) -> None:
    for node in nodes:
        if missing := missing_programs(node, survey):
            raise Refused(f"{node} has no {' and no '.join(missing)}", (f"on {node}: sudo apt install {PACKAGE}",))


def barring_gates(nodes: Sequence[str], picture: FleetState, survey: Survey) -> tuple[Gate, ...]:
    """Whether there is a link to be measured."""
    pair = Pair(picture=picture, survey=survey, ends=fabrics(nodes, picture, survey), wants_rdma=True)
    return tuple(pair_gates(pair, _BARRED_BY))


def require_link(nodes: Sequence[str], picture: FleetState, survey: Survey) -> None:
    for gate in barring_gates(nodes, picture, survey):
        if gate.state is State.FAILED:
            where = f"{gate.node}: " if gate.node else ""
            raise Refused(f"{where}{gate.detail}", gate.steps)


def steps(nodes: Sequence[str], pair_rails: Sequence[Rail]) -> Iterator[Step]:
    """The cheap and telling first: each half one way and back, both at once, then the latency."""
    for there, back in ((nodes[0], nodes[1]), (nodes[1], nodes[0])):
        for number, rail in enumerate(pair_rails):
            half = _half(rail, is_back=there != nodes[0])
            act = MeasureLink(peer=back, halves=(half,))
            yield _step(f"half-{number}", f"Measure {half.device}, {there} to {back}", there, act, nodes)
    for port, cable in groupby(pair_rails, key=port_of):
        both = tuple(_half(rail, is_back=False) for rail in cable)[:2]
        if len(both) == 2:
            name = "both" if port < 1 else f"both-{port}"
            title = f"Measure both halves at once, {nodes[0]} to {nodes[1]}"
            yield _step(name, title, nodes[0], MeasureLink(peer=nodes[1], halves=both), nodes)
    first = _half(pair_rails[0], is_back=False)
    act = MeasureLink(peer=nodes[1], halves=(first,), is_latency=True, seconds=1)
    yield _step("latency", f"Measure the latency of {first.device}, {nodes[0]} to {nodes[1]}", nodes[0], act, nodes)


def port_of(rail: Rail) -> int:
    """The cage that a rail's cable is in, by the first node's interface."""
    return (half_of(rail.near.interface) or (0, 0))[0]


def _half(rail: Rail, *, is_back: bool) -> Half:
    near, far = (rail.far, rail.near) if is_back else (rail.near, rail.far)
    mtus = [end.mtu for end in (near, far) if end.mtu]
    return Half(
        device=near.device,
        gid_index=_gid(near),
        ip=near.ip,
        peer_device=far.device,
        peer_gid_index=_gid(far),
        peer_ip=far.ip,
        mtu=min(mtus) if len(mtus) == 2 else None,
    )


def _gid(end: End) -> int:
    if end.own_gid is None:
        raise Refused(
            f"{end.device} has no RoCE v2 entry for {end.ip}",
            (f"show_gids   # an entry v2 with the address; sudo ip link set {end.interface} down, up",),
        )
    return end.own_gid


def _step(name: str, title: str, node: str, act: MeasureLink, nodes: Sequence[str]) -> Step:
    return Step(
        id=step_id(name, node, nodes),
        title=title,
        node=node,
        act=act,
        limit_s=limit_s(act) + SLACK_S,
        verifies="a figure, and the RDMA ports' counters that it went over them",
        on_failure=OnFailure.FAIL_AT_END,
    )


def _by_hand(step: Step) -> Iterator[str]:
    act = step.act
    if isinstance(act, MeasureLink):
        for number, half in enumerate(act.halves):
            yield f"on {act.peer}: {' '.join(server_argv(act, half, number))}"
            yield f"on {step.node}: {' '.join(client_argv(act, half, number))}"
