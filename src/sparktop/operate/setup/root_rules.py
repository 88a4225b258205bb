"""Permit sparktop's own root commands without a password: exact sudoers lines, checked before they are installed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.remote_file import RemoteFile, remove
from sparktop.operate.machine.reboot import REBOOT
from sparktop.operate.plan.common_steps import privilege_questions, step_id
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import (
    SUDOERS_FILE,
    RootAccess,
    program,
    require_root_for,
    root_access,
    sudo_notes,
    sudoers_lines,
)
from sparktop.operate.step.plan import Difference, Plan, Step

LIMIT_S = 30.0
ROOT_COMMANDS: tuple[tuple[str, ...], ...] = (
    (program("sysctl"), "-w", "vm.drop_caches=3"),
    REBOOT,
    (program("dmesg"),),
)
"""What sparktop runs as root at night: dropping caches, rebooting, reading the kernel log."""


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return privilege_questions(request)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Check the lines with visudo, install them as one file of root's, check the whole of sudoers."""
    lines = {node: text for node in request.nodes if (text := _lines(node, survey))}
    if not lines:
        raise Refused(f"sudo asks for no password for this on {' and '.join(request.nodes)}")
    steps = tuple(step for node, text in lines.items() for step in _steps(node, text, request.nodes))
    require_root_for(steps, survey)
    return Plan(
        request=request,
        title=f"Permit {len(ROOT_COMMANDS)} root commands without a password on {' and '.join(lines)}",
        risk=Risk.SAFE,
        steps=steps,
        rollback=tuple(_remove_step(node, request.nodes) for node in lines),
        effect="sudo runs exactly these commands without a password. Everything else asks as before.",
        warnings=tuple(
            note for node in lines for note in sudo_notes(steps, survey.privileges(node), node, with_lines=False)
        ),
        differences=tuple(
            Difference(what="rule", name=f"on {node}", before=None, after=line)
            for node, text in lines.items()
            for line in text.splitlines()
        ),
        equivalent=tuple(f"on {node}: sudo visudo -f {SUDOERS_FILE}" for node in lines),
    )


def _lines(node: str, survey: Survey) -> str:
    """The file's text; empty where root needs no password there."""
    privileges = survey.privileges(node)
    if root_access(privileges, ROOT_COMMANDS) is RootAccess.FREE or privileges is None:
        return ""
    lines = sudoers_lines(privileges.user, ROOT_COMMANDS)
    if any(line.startswith("USER ") for line in lines):
        raise Refused(f"{node} has not said which user it is logged in as", ("log in as USER: sparktop USER@HOST",))
    return "".join(f"{line}\n" for line in lines)


def _steps(node: str, text: str, nodes: Sequence[str]) -> tuple[Step, ...]:
    check = Command(argv=(program("visudo"), "-cf", "{content}"), content=text, limit_s=LIMIT_S)
    mode = ("-m", "0440", "-o", "root", "-g", "root")
    install = RemoteFile(path=SUDOERS_FILE, after=text, privilege=Privilege.ROOT, mode=mode).write()
    # With its file named, visudo reads what that includes too, and leaves the owners and modes of others' files alone.
    whole = Command(argv=(program("visudo"), "-cf", "/etc/sudoers"), privilege=Privilege.ROOT, limit_s=LIMIT_S)
    return (
        Step(
            id=step_id("check-rules", node, nodes),
            title=f"Check the lines with visudo on {node}",
            node=node,
            act=Remote(operations=(check,)),
            verifies="visudo accepts them",
        ),
        Step(
            id=step_id("permit-root", node, nodes),
            title=f"Install them as {SUDOERS_FILE} on {node}",
            node=node,
            act=Remote(operations=(install, whole), undo=(remove(SUDOERS_FILE, privilege=Privilege.ROOT),)),
            limit_s=2 * LIMIT_S + 60.0,  # time to type a password
            verifies="visudo accepts all of sudoers",
        ),
    )


def _remove_step(node: str, nodes: Sequence[str]) -> Step:
    return Step(
        id=step_id("forbid-root", node, nodes),
        title=f"Remove {SUDOERS_FILE} on {node}",
        node=node,
        act=Remote(
            operations=(remove(SUDOERS_FILE, privilege=Privilege.ROOT),),
            reverse=f"sparktop act permit-root {shlex.quote(node)}",
        ),
        limit_s=LIMIT_S + 60.0,
        verifies="the file is gone",
        undoes=(step_id("permit-root", node, nodes),),
    )
