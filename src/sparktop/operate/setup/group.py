"""Add the login user to a group: docker for Docker, systemd-journal for the kernel log. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Output, Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.plan.common_steps import login_user, privilege_questions, step_id
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program, require_root_for, sudo_notes
from sparktop.operate.step.plan import Plan, Step

LIMIT_S = 30.0
GROUPS = {
    "docker": "Who may use Docker can become root on the Spark.",
    "systemd-journal": "It reads every service's log, and changes nothing.",
}
"""The groups that it offers, and what membership means."""
_IS_MEMBER = '$1==g{n=split($4,m,",");for(i=1;i<=n;i++)if(m[i]==u)f=1} END{exit !f}'
"""awk over /etc/group: exit code 0 where user u is listed in group g."""


def members_question(node: str, user: str) -> Output:
    """Asks the user database for the user's groups, whatever the session has."""
    return Output(node=node, argv=("id", "-nG", user))


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return (*privilege_questions(request), *(members_question(node, _user(node, picture)) for node in request.nodes))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """One root command on each node where the user isn't in the group yet; refused where none is left."""
    group = request.options.get("group", "docker")
    if group not in GROUPS:
        raise Refused(f"sparktop adds to the groups {' and '.join(GROUPS)}, not to {group[:40]}")
    nodes = [node for node in request.nodes if not _is_member(node, group, picture, survey)]
    if not nodes:
        raise Refused(
            f"the user is in the group {group} already on {' and '.join(request.nodes)}",
            ("groups are read at login: quit sparktop, end an ssh control master (ssh -O exit HOST), connect again",),
        )
    users = {node: _user(node, picture) for node in nodes}
    steps = tuple(_member_step("join", node, users[node], group, request.nodes) for node in nodes)
    require_root_for(steps, survey)
    who = " and ".join(f"{user} on {node}" for node, user in users.items())
    return Plan(
        request=request,
        title=f"Add {who} to the group {group}",
        risk=Risk.SAFE,
        steps=steps,
        rollback=tuple(_member_step("leave", node, users[node], group, request.nodes) for node in nodes),
        effect=f"{GROUPS[group]} It holds from the next login on: quit sparktop and connect again.",
        warnings=tuple(note for node in nodes for note in sudo_notes(steps, survey.privileges(node), node)),
    )


def _user(node: str, picture: FleetState) -> str:
    user = login_user(node, picture)
    if user == "root":
        raise Refused(f"root needs no group on {node}")
    return user


def _is_member(node: str, group: str, picture: FleetState, survey: Survey) -> bool:
    question = members_question(node, _user(node, picture))
    groups = survey.text(question)
    if groups is None:
        raise Refused(f"the groups on {node} are not known: {survey.problem(question) or 'not read'}")
    return group in groups.split()


def _member_step(verb: str, node: str, user: str, group: str, nodes: Sequence[str]) -> Step:
    is_joining = verb == "join"
    is_member = Command(argv=("awk", "-F:", "-v", f"g={group}", "-v", f"u={user}", _IS_MEMBER, "/etc/group"))
    seen = is_member if is_joining else Command(argv=is_member.argv, accepts=(1,))
    join, leave = (program("usermod"), "-aG", group, user), (program("gpasswd"), "-d", user, group)
    what = f"Add {user} to the group" if is_joining else f"Take {user} out of the group"
    argv, back = (join, leave) if is_joining else (leave, join)
    command = Command(argv=argv, privilege=Privilege.ROOT, limit_s=LIMIT_S, done_when=seen)
    return Step(
        id=step_id(f"{verb}-{group}", node, nodes),
        title=f"{what} {group} on {node}",
        node=node,
        act=Remote(operations=(command, seen), reverse=(Command(argv=back, privilege=Privilege.ROOT),)),
        limit_s=LIMIT_S + 60.0,  # time to type a password
        verifies=f"/etc/group lists {user}" if is_joining else f"/etc/group doesn't list {user}",
        undoes=() if is_joining else (step_id(f"join-{group}", node, nodes),),
    )
