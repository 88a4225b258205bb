"""Building blocks of the planners: the named node, and common steps. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.rules.pair.link import down_ports
from sparktop.model.engine import RESTARTING_POLICIES, Engine, EngineState
from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.request import Request
from sparktop.model.survey import PrivilegesQuestion, Question, Survey, looked_up
from sparktop.operate.acts.arrivals import AwaitResolved
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.text.sentences import listed

EVIDENCE_LIMIT_S = 90.0
RESOLVED_LIMIT_S = 90.0
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
LINK_DOWN = "cluster.link-down"
LINK_LIMIT_S = 900.0
"""Somebody has to seat a cable."""


def the_node(request: Request, picture: FleetState) -> NodeView:
    """The one node that is named, as it was last seen."""
    if len(request.nodes) != 1:
        raise Refused("one node at a time", tuple(f"name one: {node.name}" for node in picture.nodes))
    node = picture.node(request.nodes[0])
    if node is None:
        raise Refused(
            f"{request.nodes[0]} is not one of the nodes watched here",
            tuple(f"there is {node.name}" for node in picture.nodes),
        )
    return node


def login_user(node: str, picture: FleetState) -> str:
    """Who sparktop is logged in as there."""
    view = picture.node(node)
    user = view.facts.user if view is not None and view.facts is not None else ""
    if not _USER.fullmatch(user):
        raise Refused(f"{node} has not said which user it is logged in as", ("log in as USER: sparktop USER@HOST",))
    return user


def living(node: NodeView) -> tuple[Engine, ...]:
    """The node's engines that have not exited."""
    return tuple(engine for engine in node.engines if engine.state is not EngineState.EXITED)


def stamp(picture: FleetState) -> str:
    """The plan's time, for names and labels of what it creates: "20261121T031211"."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(picture.wall_s))


# --- steps and words


def questions_of(
    plan: Callable[[Request, FleetState, Survey], object],
) -> Callable[[Request, FleetState, Survey], tuple[Question, ...]]:
    """A planner's questions: what its plan looks up, as far as the answers let it go."""

    def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
        def look(look_ups: Survey) -> None:
            with suppress(Refused):
                plan(request, picture, look_ups)

        return looked_up(survey, look)

    return questions


def privilege_questions(request: Request) -> tuple[Question, ...]:
    return tuple(PrivilegesQuestion(node=name) for name in request.nodes)


def evidence_step(nodes: Sequence[str], engines: Sequence[str] = ()) -> Step:
    """Collect evidence before anything is stopped; a failure is no reason to leave a machine frozen."""
    return Step(
        id="evidence",
        title=f"Collect evidence of {listed(nodes)}",
        node=nodes[0],
        act=CollectEvidence(nodes=tuple(nodes), engines=tuple(engines)),
        limit_s=EVIDENCE_LIMIT_S,
        on_failure=OnFailure.GO_ON,
    )


def stays_note(request: Request, picture: FleetState) -> str:
    """Why the finding can't resolve while its engine runs on (it comes from what a log said); empty otherwise."""
    finding = request.finding
    if finding is None or not _is_from_a_log(request):
        return ""
    engines = [engine for node in picture.nodes if node.name in finding.nodes for engine in node.engines]
    engine = next((engine for engine in engines if engine.name == finding.subject), None)
    name = "its engine" if engine is None else engine.name
    container = engine.container if engine is not None and engine.restarts else None
    if container is not None and container.restart_policy in RESTARTING_POLICIES:
        return f"Docker keeps restarting {name}: findings from its log stay until a start gets further."
    return f"Findings from {name}'s log stay until {name} starts again: restart it afterwards."


def _is_from_a_log(request: Request) -> bool:
    return request.finding is not None and all(rule.id != request.finding.rule for rule in live_rules())


def resolved_step(request: Request, node: str, *, engines_run_on: bool = False) -> tuple[Step, ...]:
    """See the request's findings resolve; no step where none is named, or it can't resolve without a restart."""
    findings = request.findings
    if not findings or (engines_run_on and _is_from_a_log(request)):
        return ()
    if len(findings[0].nodes) == 1 and findings[0].nodes[0] in request.nodes:
        (node,) = findings[0].nodes  # of a pair's two findings of one title it is this one
    gone = (
        f"the finding is gone: {findings[0].title}" if len(findings) == 1 else f"all {len(findings)} findings are gone"
    )
    return (
        Step(
            id="resolved",
            title=f"Check that {gone}",
            node=node,
            act=AwaitResolved(findings=tuple(finding.key for finding in findings)),
            limit_s=RESOLVED_LIMIT_S,
            verifies="the finding is gone" if len(findings) == 1 else "these findings are gone",
        ),
    )


def link_steps(nodes: Sequence[str], picture: FleetState) -> tuple[Step, ...]:
    """Have the cable seated, and wait for the link between a server's nodes where it is down now: ranks that start
    without it find nobody."""
    down = next(
        (
            finding
            for finding in picture.findings
            if finding.rule == LINK_DOWN and finding.phase is Phase.FIRING and set(nodes) & set(finding.nodes)
        ),
        None,
    )
    if down is None or len(nodes) < 2:
        return ()
    return (
        Step(
            id="link",
            title=f"Seat the cable of {_dead_ports(picture) or ' and '.join(nodes)}; waiting for the link",
            node=nodes[0],
            act=AwaitResolved(findings=(down.key,)),
            limit_s=LINK_LIMIT_S,
            verifies="the link is up; nothing is stopped before",
            on_failure=OnFailure.ROLL_BACK,
        ),
    )


def _dead_ports(picture: FleetState) -> str:
    """The ports without a link: "enp1s0f0np0 on spark1 and spark2"; a port's two interfaces count as one."""
    nodes_of: dict[str, list[str]] = {}
    for rank, ports in down_ports(picture):
        interface = next((port.interface or port.device for port in ports), "")
        nodes_of.setdefault(interface, []).append(rank.node.name)
    return " and ".join(f"{interface} on {' and '.join(names)}" for interface, names in nodes_of.items())


def step_id(name: str, node: str, nodes: Sequence[str]) -> str:
    """The step's id, with its node where there are several."""
    return name if len(nodes) < 2 else f"{name}@{node}"


def key_values(text: str | None) -> dict[str, str]:
    """The values of KEY=value lines, as `systemctl show` and `loginctl show-session` print them."""
    rows = (line.partition("=") for line in (text or "").splitlines())
    return {key: value.strip() for key, equals, value in rows if equals}


SYNC_LIMIT_S = 60.0
DROP_LIMIT_S = 60.0
SYNC = (program("sync"),)
DROP = (program("sysctl"), "-w", "vm.drop_caches=3")
