"""A service that systemd starts again and again, named by itself: its engine may never live to be seen. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Privilege
from sparktop.model.plan import Plan, Refusal, Remote, Request, Risk, Step
from sparktop.model.telemetry import Unit
from sparktop.operate.machine import evidence_step, resolved_step
from sparktop.operate.privilege import program, root_argvs, root_refusal, sudo_note
from sparktop.operate.survey import Ask, AskPrivileges, Survey
from sparktop.operate.unitsteps import STOP_LIMIT_S

_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_@:.\\-]{0,200}\.service")
_NEEDED = re.compile(r"(?:docker|containerd|ssh|sshd|systemd-.*|dbus|NetworkManager|user@.*)\.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looped:
    """A service on its node."""

    node: str
    unit: Unit


def named(request: Request, picture: FleetState) -> Looped | None:
    """The service that the request names, if it names one that is known there."""
    wanted = request.target.strip()
    for name in request.nodes:
        view = picture.node(name)
        for unit in view.facts.units if view is not None and view.facts else ():
            if wanted and unit.name == wanted and _UNIT.fullmatch(unit.name) and not _NEEDED.fullmatch(unit.name):
                return Looped(node=name, unit=unit)
    return None


def asks(request: Request) -> tuple[Ask, ...]:
    return tuple(AskPrivileges(node=name) for name in request.nodes)


def plan(request: Request, looped: Looped, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Evidence, then `systemctl stop`, which no Restart= undoes."""
    unit, node = looped.unit, looped.node
    command = Command(
        argv=(program("systemctl"), "stop", "--", unit.name), privilege=Privilege.ROOT, limit_s=STOP_LIMIT_S
    )
    stop = Step(
        id="stop",
        title=f"Stop {unit.name}",
        node=node,
        act=Remote(operations=(command,)),
        limit_s=STOP_LIMIT_S + 60.0,
        verifies="systemd says that it has stopped, and doesn't start it again",
        undone_by=f"sudo systemctl start -- {shlex.quote(unit.name)}",
    )
    steps = (evidence_step((node,)), stop, *resolved_step(request, node))
    privileges = survey.privileges(node)
    obstacle = root_refusal(privileges, root_argvs(steps, node), node)
    if obstacle is not None:
        return obstacle.refusal(request)
    note = sudo_note(privileges, root_argvs(steps, node), node)
    start = Command(
        argv=(program("systemctl"), "start", "--no-block", "--", unit.name), privilege=Privilege.ROOT, limit_s=60.0
    )
    times = f", started {unit.restarts} times so far," if unit.restarts else ""
    code = f" Its last run ended with status {unit.exit_status}." if unit.exit_status else ""
    return Plan(
        request=request,
        title=f"Break the restart loop of {unit.name} on {node}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        way_back=(
            Step(
                id="back-start",
                title=f"Start {unit.name}",
                node=node,
                act=Remote(operations=(start,)),
                limit_s=120.0,
                undoes=("stop",),
            ),
        ),
        effect=f"{unit.name}{times} is stopped and stays down.{code} Why it ends stands in its journal.",
        warnings=(afterwards(unit.name), *((note,) if note else ())),
        equivalent=(f"on {node}: sudo systemctl stop -- {shlex.quote(unit.name)}",),
        seen_monotonic_s=picture.monotonic_s,
    )


def afterwards(unit: str, *, is_own: bool = False) -> str:
    """What is left to do when the cause is mended."""
    name = shlex.quote(unit)
    manager = "systemctl --user" if is_own else "sudo systemctl"
    journal = "journalctl --user" if is_own else "journalctl"
    return (
        f"It is started again at the next boot if it is enabled. Read why it ends: {journal} -u {name} -n 400. When "
        f"that is mended: {manager} reset-failed -- {name}; {manager} start -- {name}"
    )
