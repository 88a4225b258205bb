"""Let the login user linger, so that logind leaves an engine's shared memory at the last logout. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.plan.common_steps import login_user, privilege_questions, resolved_step, step_id
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program, require_root_for, sudo_notes
from sparktop.operate.step.plan import Plan, Step

LIMIT_S = 30.0


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return privilege_questions(request)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """One root command on each node whose user doesn't linger yet; refused where none is left."""
    users = {name: user for name in request.nodes if (user := _user_without_linger(name, picture))}
    if not users:
        raise Refused(f"the user lingers already on {' and '.join(request.nodes) or 'every node'}")
    steps = [_linger_step("enable", name, user, request.nodes) for name, user in users.items()]
    require_root_for(steps, survey)
    return Plan(
        request=request,
        title=f"Let {' and '.join(f'{user} linger on {name}' for name, user in users.items())}",
        risk=Risk.SAFE,
        steps=(*steps, *resolved_step(request, next(iter(users)))),
        rollback=tuple(_linger_step("disable", name, user, request.nodes) for name, user in users.items()),
        effect=(
            "systemd keeps the user's service manager, and with it semaphores and shared memory, when the last session "
            "ends. Running engines are not touched. At boot systemd also starts the user's own services."
        ),
        warnings=tuple(note for name in users for note in sudo_notes(steps, survey.privileges(name), name)),
    )


def _user_without_linger(name: str, picture: FleetState) -> str:
    """The login user of the node; empty where that user lingers already."""
    view = picture.node(name)
    facts = view.facts if view is not None else None
    if facts is None or facts.is_lingering is None:
        raise Refused(
            f"whether the user lingers on {name} is not known: "
            f"{(facts.gaps.get('is_lingering') if facts is not None else '') or 'not read yet'}",
            ("wait a minute: it is read once a minute", "without systemd-logind nothing is removed at logout"),
        )
    return "" if facts.is_lingering or facts.user_id == 0 else login_user(name, picture)


def _linger_step(verb: str, node: str, user: str, nodes: Sequence[str]) -> Step:
    """`loginctl enable-linger` or `disable-linger`, seen by the file that logind keeps."""
    words = ("!",) if verb == "disable" else ()
    seen = Command(argv=(program("test"), *words, "-e", f"/var/lib/systemd/linger/{user}"))
    command, back = (
        Command(argv=(program("loginctl"), f"{one}-linger", user), privilege=Privilege.ROOT, limit_s=LIMIT_S)
        for one in (verb, "disable" if verb == "enable" else "enable")
    )
    return Step(
        id=step_id(f"{verb}-linger", node, nodes),
        title=f"{verb.capitalize()} linger for {user} on {node}",
        node=node,
        act=Remote(operations=(replace(command, done_when=seen), seen), reverse=(back,)),
        limit_s=LIMIT_S + 60.0,  # time to type a password
        verifies=f"/var/lib/systemd/linger/{user} is {'gone' if verb == 'disable' else 'there'}",
        undoes=(step_id("enable-linger", node, nodes),) if verb == "disable" else (),
    )
