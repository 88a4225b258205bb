"""Permissions and container runtime: kernel log, Docker, CDI, sudo, linger, locked memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.bringup.card import (
    CheckInputs,
    Nodes,
    Outcome,
    by_action,
    by_hand,
    card,
    each,
    from_gates,
    judged,
    passed,
    told,
    unknown,
    warning,
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
from sparktop.checks.judgement import worst
from sparktop.model.survey import Ask, AskPrivileges, Output
from sparktop.operate.launch.gates.docker import docker_gate, gpu_runtime_gate, toolkit_ask
from sparktop.operate.launch.inputs.docker import info_ask


def _user(seen: CheckInputs, node: str) -> str:
    view = seen.view(node)
    return (view.facts.user if view is not None and view.facts is not None else "") or "$USER"


def _kernel_log(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    collector = view.collectors.get("kernel") if view is not None else None
    return told(
        judge_kernel_log,
        judge_kernel_log(collector),
        by_action("join-group", "Add the user to systemd-journal, then connect again", group="systemd-journal"),
        detail=collector.detail if collector is not None else "",
        source=(view.kernel_source if view is not None else "") or "the kernel",
    )


def _privileges_ask(node: str) -> AskPrivileges:
    return AskPrivileges(node=node)


def groups_ask(node: str, user: str = "") -> Output:
    """The groups of the session or, with a user, those of the user database."""
    return Output(node=node, argv=("id", "-nG", *((user,) if user else ())))


def _docker_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    yield _privileges_ask(nodes[0])
    yield info_ask(nodes[0])
    yield groups_ask(nodes[0])
    if (user := _user(seen, nodes[0])) != "$USER":
        yield groups_ask(nodes[0], user)


def _docker(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, privileges = nodes[0], seen.privileges(nodes[0])
    user = _user(seen, node)
    in_session, in_database = (seen.text(groups_ask(node, name)) for name in ("", user))
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
    outcome = from_gates(docker_gate(node, seen.survey))
    if judgement.case != "denied":
        return outcome
    joins = by_action("join-group", "Add the user to docker, then connect again", group="docker")
    return replace(outcome, remedies=(joins,))


def _runtime(seen: CheckInputs, nodes: Nodes) -> Outcome:
    return from_gates(gpu_runtime_gate(nodes[0], seen.survey))


def cdi_ask(node: str) -> Output:
    return Output(node=node, argv=("nvidia-ctk", "cdi", "list"), limit_s=10.0)


def parse_cdi(text: str | None) -> tuple[str, ...] | None:
    """The devices of `nvidia-ctk cdi list`, one on a line; its log lines begin with time=."""
    if text is None:
        return None
    return tuple(word for line in text.splitlines() if "=" in (word := line.strip()) and " " not in word)


def _cdi(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, ask = nodes[0], cdi_ask(nodes[0])
    answer = seen.survey.answers.get(ask)
    devices = parse_cdi(seen.text(ask))
    if devices is None and answer is not None and answer.code == 0:
        devices = ()
    judgement = judge_cdi(CdiFacts(devices=devices, has_toolkit=False if seen.is_missing(ask) else None))
    return told(judge_cdi, judgement, why=seen.why_not(ask), node=node, devices=", ".join((devices or ())[:3]))


_ADMINS = {"sudo", "admin", "wheel"}
"""Groups whose members may run everything by sudo, as Ubuntu and others have it in sudoers."""


def _sudo(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, privileges = nodes[0], seen.privileges(nodes[0])
    if privileges is None:
        return unknown(seen.why_not(AskPrivileges(node=node)))
    if privileges.is_root:
        return passed("logged in as root")
    scoped = by_action("permit-root", "Permit exactly what sparktop needs at night, without a password")
    match privileges.sudo:
        case "free":
            return passed("sudo without a password, for every command")
        case "listed":
            return passed(f"sudo without a password, for {len(privileges.sudo_rules)} commands")
        case "password" if _ADMINS & set((seen.text(groups_ask(node)) or "").split()):
            return passed("sudo asks for a password", scoped)
        case "password":  # it asks before it looks whether the user may do anything
            return unknown(f"sudo asks for a password, and {privileges.user} is in no group that may use it")
        case other:
            return warning(f"no root: sudo is {other}", scoped)


def _linger(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    host = view.facts if view is not None else None
    if host is None:
        return unknown("not read yet")
    judgement = judge_linger(LingerFacts(host=host, shares_ipc=True, engine_user_id=host.user_id))
    turn_on = by_action("enable-linger", f"Turn lingering on for user {host.user}")
    return told(judge_linger, judgement, turn_on, user=host.user, engine_user=host.user)


def _restart(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, view = nodes[0], seen.view(nodes[0])
    if view is None or view.facts is None:
        return unknown("not read yet")
    if gap := view.facts.gaps.get("units"):
        return unknown(f"systemd's units: {gap}")
    engines = {engine.name for engine in view.engines}
    units = [unit for unit in view.facts.units if unit.name.removesuffix(".service") in engines]
    if not units:
        return passed("no unit of systemd's is named after an engine there")
    judgements = [(judge_unit_restart(unit.restart), unit) for unit in units]
    judgement = worst(*(judgement for judgement, _ in judgements))
    unit = next(unit for one, unit in judgements if one is judgement)
    if judgement.unknown:
        return unknown(f"{unit.name}: {judgement.unknown}")
    case = replace(judgement, case="")
    return told(judge_unit_restart, case, node=node, unit=unit.name, restart=unit.restart)


def memlock_ask(node: str) -> Output:
    return Output(node=node, argv=("prlimit", "--memlock", "--noheadings", "--raw", "--output", "SOFT"))


def _memlock(seen: CheckInputs, nodes: Nodes) -> Outcome:
    ask = memlock_ask(nodes[0])
    limit = (seen.text(ask) or "").strip()
    judgement = judge_host_memlock(limit)
    shown = f"{int(limit) / (1 << 20):,.0f} MiB" if limit.isdecimal() else limit
    return told(judge_host_memlock, judgement, why=seen.why_not(ask), node=nodes[0], limit=shown)


CARDS = (
    card(judge_kernel_log, look=_kernel_log),
    card(judge_docker_session, look=_docker, asks=_docker_asks),
    card(judge_gpu_runtime, look=_runtime, asks=each(info_ask, toolkit_ask)),
    card(judge_cdi, look=_cdi, asks=each(cdi_ask)),
    card("access.sudo", look=_sudo, asks=each(_privileges_ask, groups_ask)),
    card("access.linger", check=judge_linger, look=_linger),
    card(judge_host_memlock, look=_memlock, asks=each(memlock_ask)),
    card(judge_unit_restart, look=_restart),
)
