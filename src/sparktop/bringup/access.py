"""Permissions and container runtime: kernel log, Docker, CDI, sudo, linger, locked memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.bringup.card import (
    CheckInputs,
    Outcome,
    by_action,
    by_hand,
    card,
    command,
    each,
    from_gates,
    judged,
    passed,
    told,
    unknown,
    warning,
    worst_of,
)
from sparktop.checks.docker import (
    CdiFacts,
    SessionFacts,
    judge_cdi,
    judge_docker_session,
    judge_gpu_runtime,
)
from sparktop.checks.host import (
    LingerFacts,
    judge_host_memlock,
    judge_kernel_log,
    judge_linger,
    judge_unit_restart,
)
from sparktop.checks.judgement import Judgement
from sparktop.model.survey import Output, PrivilegesQuestion, Question
from sparktop.model.telemetry import Unit
from sparktop.operate.launch.gates.docker import docker_gate, gpu_runtime_gate, toolkit_question
from sparktop.operate.launch.inputs.docker import info_question


def _user(seen: CheckInputs) -> str:
    return (seen.own.facts.user if seen.own.facts is not None else "") or "$USER"


def _kernel_log(seen: CheckInputs) -> Outcome:
    collector = seen.own.collectors.get("kernel")
    return told(
        judge_kernel_log,
        judge_kernel_log(collector),
        by_action("join-group", "Add the user to systemd-journal, then connect again", group="systemd-journal"),
        detail=collector.detail if collector is not None else "",
        source=seen.own.kernel_source or "the kernel",
    )


def _privileges_question(node: str) -> PrivilegesQuestion:
    return PrivilegesQuestion(node=node)


def groups_question(node: str, user: str = "") -> Output:
    """The groups of the session or, with a user, those of the user database."""
    return Output(node=node, argv=("id", "-nG", *((user,) if user else ())))


def _docker_questions(seen: CheckInputs) -> Iterator[Question]:
    yield from (_privileges_question(seen.node), info_question(seen.node), groups_question(seen.node))
    if (user := _user(seen)) != "$USER":
        yield groups_question(seen.node, user)


def _docker(seen: CheckInputs) -> Outcome:
    privileges, user = seen.survey.privileges(seen.node), _user(seen)
    in_session, in_database = (seen.text(groups_question(seen.node, name)) for name in ("", user))
    judgement = judge_docker_session(
        SessionFacts(
            access=privileges.docker if privileges is not None else "",
            is_member="docker" in in_database.split() if in_database is not None else None,
            is_session_member="docker" in in_session.split() if in_session is not None else None,
        )
    )
    if judgement.case == "session":
        return judged(
            judgement,
            f"{user} is in the group docker, and this session is older: groups are read at login",
            by_hand("Log in again", "quit sparktop, end an ssh control master: ssh -O exit HOST; then connect again"),
        )
    outcome = from_gates(docker_gate(seen.node, seen.survey))
    if judgement.case != "denied":
        return outcome
    joins = by_action("join-group", "Add the user to docker, then connect again", group="docker")
    return replace(outcome, remedies=(joins,))


def _runtime(seen: CheckInputs) -> Outcome:
    return from_gates(gpu_runtime_gate(seen.node, seen.survey))


_cdi_question = command("nvidia-ctk", "cdi", "list", limit_s=10.0)


def _cdi(seen: CheckInputs) -> Outcome:
    """The devices of `nvidia-ctk cdi list`, one on a line; its log lines begin with time=."""
    question = _cdi_question(seen.node)
    lines = map(str.strip, seen.words(question).splitlines())
    devices = tuple(line for line in lines if "=" in line and " " not in line)
    is_told = seen.text(question) is not None or seen.code(question) == 0
    has_toolkit = False if seen.is_missing(question) else None
    judgement = judge_cdi(CdiFacts(devices=devices if is_told else None, has_toolkit=has_toolkit))
    return told(judge_cdi, judgement, why=seen.why_not(question), node=seen.node, devices=", ".join(devices[:3]))


_ADMINS = {"sudo", "admin", "wheel"}
"""Groups whose members may run everything by sudo, as Ubuntu and others have it in sudoers."""


def _sudo(seen: CheckInputs) -> Outcome:
    privileges = seen.survey.privileges(seen.node)
    if privileges is None:
        return unknown(seen.why_not(PrivilegesQuestion(node=seen.node)))
    if privileges.is_root:
        return passed("logged in as root")
    scoped = by_action("permit-root", "Permit exactly what sparktop needs at night, without a password")
    match privileges.sudo:
        case "free":
            return passed("sudo without a password, for every command")
        case "listed":
            return passed(f"sudo without a password, for {len(privileges.sudo_rules)} commands")
        case "password" if _ADMINS & set(seen.words(groups_question(seen.node)).split()):
            return passed("sudo asks for a password", scoped)
        case "password":  # it asks before it looks whether the user may do anything
            return unknown(f"sudo asks for a password, and {privileges.user} is in no group that may use it")
        case other:
            return warning(f"no root: sudo is {other}", scoped)


def _linger(seen: CheckInputs) -> Outcome:
    host = seen.facts
    judgement = judge_linger(LingerFacts(host=host, shares_ipc=True, engine_user_id=host.user_id))
    turn_on = by_action("enable-linger", f"Turn lingering on for user {host.user}")
    return told(judge_linger, judgement, turn_on, user=host.user, engine_user=host.user)


def _judge_unit(unit: Unit) -> Judgement:
    return judge_unit_restart(unit.restart)


def _restart(seen: CheckInputs) -> Outcome:
    if gap := seen.facts.gaps.get("units"):
        return unknown(f"systemd's units: {gap}")
    engines = {engine.name for engine in seen.own.engines}
    units = [unit for unit in seen.facts.units if unit.name.removesuffix(".service") in engines]
    if not units:
        return passed("no unit of systemd's is named after an engine there")
    judgement, unit = worst_of(_judge_unit, units)
    if judgement.unknown:
        return unknown(f"{unit.name}: {judgement.unknown}")
    case = replace(judgement, case="")
    return told(judge_unit_restart, case, node=seen.node, unit=unit.name, restart=unit.restart)


memlock_question = command("prlimit", "--memlock", "--noheadings", "--raw", "--output", "SOFT")


def _memlock(seen: CheckInputs) -> Outcome:
    question = memlock_question(seen.node)
    limit = seen.words(question)
    shown = f"{int(limit) / (1 << 20):,.0f} MiB" if limit.isdecimal() else limit
    return told(judge_host_memlock, judge_host_memlock(limit), why=seen.why_not(question), node=seen.node, limit=shown)


CARDS = (
    card(judge_kernel_log, look=_kernel_log),
    card(judge_docker_session, look=_docker, questions=_docker_questions),
    card(judge_gpu_runtime, look=_runtime, questions=each(info_question, toolkit_question)),
    card(judge_cdi, look=_cdi, questions=each(_cdi_question)),
    card("access.sudo", look=_sudo, questions=each(_privileges_question, groups_question)),
    card("access.linger", check=judge_linger, look=_linger),
    card(judge_host_memlock, look=_memlock, questions=each(memlock_question)),
    card(judge_unit_restart, look=_restart),
)
