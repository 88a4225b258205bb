"""Recover a frozen desktop: restart its shell or the display manager, or do without; each way shows first what is lost.
Pure.

Field report 000: the compositor waits forever for a GPU fence, and a HUP to the shell brings it back until the next
GPU work of the same kind. On X11 the session's programs survive without the shell; on Wayland the shell is the
display, and the session ends with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop import sanitise
from sparktop.checks.host import LingerFacts, judge_linger
from sparktop.checks.node_facts import engine_user_id
from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel.findings import GPU_GONE
from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege, Signal
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Output, Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.machine.sessions import GraphicalSession, graphical, session_questions
from sparktop.operate.plan.common_steps import (
    evidence_step,
    key_values,
    living,
    privilege_questions,
    resolved_step,
    the_node,
)
from sparktop.operate.plan.process import stat_of, stat_question
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program, require_root_for, sudo_notes
from sparktop.operate.step.plan import Plan, Step
from sparktop.text.units import GIB, gib

WAYS = ("shell", "manager", "console")
MANAGER = "display-manager.service"
RESTART_LIMIT_S = 120.0
"""systemd itself gives a hanging session 90 s before it kills it."""
ISOLATE_LIMIT_S = 120.0
_UNIT = re.compile(r"[A-Za-z0-9][\w@.:-]*\.service")
_SYSTEMCTL = program("systemctl")
_GRAPHICAL, _CONSOLE = "graphical.target", "multi-user.target"


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    node = the_node(request, picture)
    questions: list[Question] = [
        *privilege_questions(request),
        _manager_question(node.name),
        *session_questions(node.name, survey),
    ]
    if node.desktop is not None and node.desktop.pid is not None:
        questions.append(stat_question(node.name, node.desktop.pid))
    return tuple(questions)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Evidence, the chosen way, and a check that the finding resolves."""
    node = the_node(request, picture)
    way = request.options.get("way") or _usual_way(node, survey)
    if way not in WAYS:
        raise _refuse(f"{sanitise.name(way)} is no way to do it", f"choose one of {', '.join(WAYS)}")
    recovery = {"shell": _shell, "manager": _manager, "console": _console}[way](node, survey)
    require_root_for((recovery.step,), survey)
    notes = sudo_notes((recovery.step,), survey.privileges(node.name), node.name, with_lines=way != "shell")
    return Plan(
        request=request,
        title=f"{recovery.title} on {node.name}",
        risk=recovery.risk,
        steps=(evidence_step((node.name,)), recovery.step, *resolved_step(request, node.name)),
        rollback=recovery.back,
        effect=recovery.effect,
        warnings=(*recovery.warnings, *_gpu_gone(node, picture), *notes),
    )


def _usual_way(node: NodeView, survey: Survey) -> str:
    """As the finding ranks the ways: on X11 the shell alone; on Wayland, where the session ends with the shell, the
    manager."""
    desktop = node.desktop
    if desktop is None or desktop.pid is None:
        return "manager"
    stat = stat_of(survey, stat_question(node.name, desktop.pid))
    is_stopped = stat is not None and stat.state in "Tt"
    starts_anew = desktop.compositor == "gnome-shell" and _session_kind(node, survey) != "wayland"
    return "shell" if is_stopped or starts_anew else "manager"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recovery:
    """One way to recover the desktop."""

    title: str
    step: Step
    effect: str
    warnings: tuple[str, ...] = ()
    back: tuple[Step, ...] = ()
    risk: Risk = Risk.DISRUPTIVE


def _refuse(reason: str, *remedies: str) -> Refused:
    return Refused(reason, remedies)


def _other_way(node: NodeView, way: str) -> str:
    return f"sparktop act recover-desktop {node.name} --set way={way}"


# --- the shell -------------------------------------------------------------------------------------------------------


def _shell(node: NodeView, survey: Survey) -> _Recovery:
    desktop = node.desktop
    if desktop is None or desktop.compositor is None or desktop.pid is None:
        raise _refuse(f"no desktop was found running on {node.name}", _other_way(node, "manager"))
    stat = stat_of(survey, stat_question(node.name, desktop.pid))
    if stat is None or stat.command != desktop.compositor:
        raise _refuse(f"{desktop.compositor} (pid {desktop.pid}) is gone by now", "look again, and choose")
    is_own = node.facts is not None and desktop.user_id == node.facts.user_id
    is_stopped = stat.state in "Tt"
    if desktop.compositor != "gnome-shell" and not is_stopped:
        raise _refuse(
            f"{desktop.compositor} does not restart on HUP: it would end, and the session with it",
            _other_way(node, "manager"),
        )
    signal = Signal(
        pid=desktop.pid,
        started_ticks=stat.started_ticks,
        signal="CONT" if is_stopped else "HUP",
        privilege=Privilege.USER if is_own else Privilege.ROOT,
    )
    shell = f"{desktop.compositor} (pid {desktop.pid})"
    step = Step(
        id="shell",
        title=f"Resume {shell}" if is_stopped else f"HUP to {shell}",
        node=node.name,
        act=Remote(operations=(signal,)),
        limit_s=60.0,
        verifies="it answers on its session bus",
    )
    if is_stopped:
        return _Recovery(
            title=f"Resume {desktop.compositor}",
            step=step,
            effect=f"{shell} was paused by a signal and continues. Nothing is lost.",
            risk=Risk.SAFE,
        )
    return _Recovery(
        title=f"Restart {desktop.compositor}",
        step=step,
        effect=f"{shell} ends and its session restarts it. In field report 000 the desktop came back, then froze "
        "again with the next GPU work of the same kind: fix what froze it too.",
        warnings=tuple(_shell_warnings(node, survey, stat.state)),
    )


def _shell_warnings(node: NodeView, survey: Survey, state: str) -> Iterator[str]:
    desktop = node.desktop
    if desktop is not None and desktop.is_greeter:
        yield "This is the login screen: nobody's windows are lost."
        return
    kind = _session_kind(node, survey)
    whose = _owner_text(survey, node)
    if kind == "x11":
        yield f"The session is X11: {whose} open windows stay, only the shell restarts."
    elif kind == "wayland":
        yield f"The session is Wayland: it ends with the shell, and {whose} open windows with it."
        yield from _session_engines(node)
    else:
        yield f"Whether the session is X11 or Wayland is not known: on Wayland {whose} open windows are lost."
        yield from _session_engines(node)
    if state == "D":
        channel = f" in {desktop.wait_channel}" if desktop is not None and desktop.wait_channel else ""
        yield (
            f"It waits in the kernel (state D){channel}: a signal acts only when that wait ends. Where the driver "
            "hangs it never ends; then only a reboot helps."
        )


# --- the display manager ---------------------------------------------------------------------------------------------


def _manager_question(node: str) -> Output:
    return Output(node=node, argv=("systemctl", "show", "-p", "Id", "-p", "LoadState", "-p", "ActiveState", MANAGER))


def _manager(node: NodeView, survey: Survey) -> _Recovery:
    shown = key_values(survey.text(_manager_question(node.name)))
    if shown.get("LoadState", "loaded") != "loaded":
        raise _refuse(f"{node.name} has no display manager", "no desktop to recover")
    name = shown.get("Id", "")  # its own name, such as gdm.service
    unit = name if _UNIT.fullmatch(name) else MANAGER
    step = Step(
        id="manager",
        title=f"Restart {unit}",
        node=node.name,
        act=Remote(
            operations=(
                Command(argv=(_SYSTEMCTL, "restart", unit), privilege=Privilege.ROOT, limit_s=RESTART_LIMIT_S),
                Command(argv=(_SYSTEMCTL, "is-active", "--quiet", unit), limit_s=15.0),
            )
        ),
        limit_s=RESTART_LIMIT_S + 60,
        verifies=f"{unit} is active",
    )
    return _Recovery(
        title="Restart the display manager",
        step=step,
        effect="Every graphical session ends, and the login screen appears. Engines in containers keep running.",
        warnings=(
            f"All graphical sessions end with everything open in them: {_all_sessions(survey, node)}.",
            *_session_engines(node),
            *(
                []
                if shown
                else [f"Which one it has could not be asked: {survey.problem(_manager_question(node.name))}."]
            ),
        ),
    )


# --- no desktop ------------------------------------------------------------------------------------------------------


def _isolate(node: str, target: str, other: str, step_id: str, title: str) -> Step:
    """`other`: the target that reverts it."""
    graphical_is = (_SYSTEMCTL, "is-active", "--quiet", _GRAPHICAL)
    isolate, back = (
        Command(argv=(_SYSTEMCTL, "isolate", one), privilege=Privilege.ROOT, limit_s=ISOLATE_LIMIT_S)
        for one in (target, other)
    )
    return Step(
        id=step_id,
        title=title,
        node=node,
        act=Remote(
            operations=(
                isolate,
                Command(argv=graphical_is, limit_s=15.0, accepts=(0,) if target == _GRAPHICAL else (3,)),
            ),
            reverse=(back,),
        ),
        limit_s=ISOLATE_LIMIT_S + 60,
        verifies=f"{target} is reached",
    )


def _console(node: NodeView, survey: Survey) -> _Recovery:
    if node.facts is not None and node.facts.is_graphical is False:
        raise _refuse(f"{node.name} runs without a desktop already", _other_way(node, "manager"))
    desktop_bytes = (
        sum(holder.held_bytes for holder in node.ledger.holders if holder.kind == "desktop") if node.ledger else 0
    )
    amount = f", {gib(desktop_bytes)} here" if desktop_bytes > GIB // 4 else ""
    return _Recovery(
        title="Switch the desktop off",
        step=_isolate(node.name, _CONSOLE, _GRAPHICAL, "console", f"Switch to {_CONSOLE}"),
        back=(_isolate(node.name, _GRAPHICAL, _CONSOLE, "graphical", f"Switch back to {_GRAPHICAL}"),),
        effect="The desktop is off until you start it again, or until the next boot, and its memory is free"
        f"{amount}. Engines in containers keep running.",
        warnings=(
            f"All graphical sessions end with everything open in them: {_all_sessions(survey, node)}.",
            "To start the desktop again: sudo systemctl isolate graphical.target",
            "Services that only graphical.target wants are stopped too.",
            *_session_engines(node),
        ),
    )


# --- what is lost ----------------------------------------------------------------------------------------------------


def _session_of(node: NodeView, survey: Survey) -> GraphicalSession | None:
    """The session that the compositor belongs to."""
    user_id = node.desktop.user_id if node.desktop else None
    sessions = graphical(survey, node.name)
    return next(
        (session for session in sessions if session.user_id == user_id), sessions[0] if len(sessions) == 1 else None
    )


def _session_kind(node: NodeView, survey: Survey) -> str:
    session = _session_of(node, survey)
    if session is not None and session.kind:
        return session.kind
    commands = {row.command for row in node.processes.processes} if node.processes else set()
    if "Xorg" in commands:
        return "x11"
    return "wayland" if "Xwayland" in commands else ""


def _owner_text(survey: Survey, node: NodeView) -> str:
    session = _session_of(node, survey)
    return f"{session.user}'s" if session is not None and session.user else "its user's"


def _all_sessions(survey: Survey, node: NodeView) -> str:
    names = [
        f"{session.user} ({session.kind or 'graphical'})"
        for session in graphical(survey, node.name)
        if not session.is_greeter
    ]
    return ", ".join(names) if names else "none is known of"


def _session_engines(node: NodeView) -> Iterator[str]:
    """Warnings about engines that may end with a session."""
    rows = {row.pid: row for row in node.processes.processes} if node.processes else {}
    for engine in living(node):
        uncontained = [rows[pid] for pid in engine.pids if pid in rows and rows[pid].container_id is None]
        if any("/user.slice/" in f"/{row.cgroup}" for row in uncontained):
            yield f"{engine.name} runs in a login session, without a container: it may end with that session."
        facts, container = node.facts, engine.container
        if facts is None:
            continue
        linger = LingerFacts(
            host=facts,
            shares_ipc=container is not None and container.ipc_mode == "host",
            engine_user_id=engine_user_id(node, engine.pids),
        )
        if judge_linger(linger).is_problem:
            yield (
                f"{engine.name} shares the host's IPC under {facts.user}'s id, who does not linger: with that user's "
                f"last session logind removes its shared memory. First: sudo loginctl enable-linger {facts.user}"
            )


def _gpu_gone(node: NodeView, picture: FleetState) -> Iterator[str]:
    firing = [finding for finding in picture.findings if finding.phase is Phase.FIRING and node.name in finding.nodes]
    gpu_finding = next((finding for finding in firing if finding.rule in GPU_GONE), None)
    is_ranked = any(finding.rule == "desktop.frozen" and finding.needs_reboot for finding in firing)
    if gpu_finding is not None or is_ranked:
        rule = f" ({gpu_finding.rule})" if gpu_finding is not None else ""
        yield (
            f"The GPU itself does not answer the driver{rule}: a desktop that is started on it freezes again. A reboot "
            "is the surer way."
        )
