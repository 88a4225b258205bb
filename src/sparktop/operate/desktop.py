"""Bring a frozen desktop back: its shell, the display manager, or none; each way says first what it loses. Pure.

Field report 000: the compositor waits for a GPU fence for ever, and a HUP to the shell brings it back until the next
GPU work of the same kind. On X11 the session's programs live on without the shell; on Wayland the shell *is* the
display, and its end is the session's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparktop import sanitise
from sparktop.diagnose.live.window import GIB, gib
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege, Signal
from sparktop.model.plan import Plan, Refusal, Remote, Request, Risk, Step
from sparktop.operate.machine import (
    evidence_step,
    living,
    privilege_asks,
    resolved_step,
    said,
    stat_ask,
    stat_of,
    the_node,
)
from sparktop.operate.privilege import program, root_argvs, root_refusal, sudo_note
from sparktop.operate.sessions import GraphicalSession, graphical, session_asks
from sparktop.operate.survey import Ask, Output, Survey

WAYS = ("shell", "manager", "console")
MANAGER = "display-manager.service"
RESTART_LIMIT_S = 120.0
"""systemd itself gives a session that hangs 90 s before it kills it."""
ISOLATE_LIMIT_S = 120.0
FIRST_USER_ID = 1000
_GPU_GONE = ("kernel.xid-79", "kernel.xid-119", "kernel.xid-120", "kernel.nvrm-gsp")
_UNIT = re.compile(r"[A-Za-z0-9][\w@.:-]*\.service")
_SYSTEMCTL = program("systemctl")


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    node = the_node(request, picture)
    if isinstance(node, Refusal):
        return ()
    found: list[Ask] = [*privilege_asks(request), _manager_ask(node.name), *session_asks(node.name, survey)]
    if node.desktop is not None and node.desktop.pid is not None:
        found.append(stat_ask(node.name, node.desktop.pid))
    return tuple(found)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Evidence, the way that was chosen, and a look at what came of it."""
    node = the_node(request, picture)
    if isinstance(node, Refusal):
        return node
    way = request.options.get("way") or _usual_way(node, survey)
    if way not in WAYS:
        return _refuse(request, f"there is no way named {sanitise.name(way)}", f"choose one of {', '.join(WAYS)}")
    made = {"shell": _shell, "manager": _manager, "console": _console}[way](request, node, survey)
    if isinstance(made, Refusal):
        return made
    commands = root_argvs((made.step,), node.name)
    obstacle = root_refusal(survey.privileges(node.name), commands, node.name)
    if obstacle is not None:
        return obstacle.refusal(request)
    note = sudo_note(survey.privileges(node.name), commands, node.name, with_lines=way != "shell")
    return Plan(
        request=request,
        title=f"{made.title} on {node.name}",
        risk=made.risk,
        steps=(evidence_step((node.name,)), made.step, *resolved_step(request, node.name)),
        way_back=made.back,
        effect=made.effect,
        warnings=(*made.warnings, *_gpu_gone(node, picture), *((note,) if note else ())),
        equivalent=(f"on {node.name}: {made.typed}",),
        seen_monotonic_s=picture.monotonic_s,
    )


def _usual_way(node: NodeView, survey: Survey) -> str:
    """As the finding ranks them: on X11 the shell alone, on Wayland, where its end is the session's, the manager."""
    desktop = node.desktop
    if desktop is None or desktop.pid is None:
        return "manager"
    stat = stat_of(survey, stat_ask(node.name, desktop.pid))
    is_stopped = stat is not None and stat.state in "Tt"
    starts_anew = desktop.compositor == "gnome-shell" and _kind(node, survey) != "wayland"
    return "shell" if is_stopped or starts_anew else "manager"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One way to bring it back."""

    title: str
    step: Step
    effect: str
    typed: str
    warnings: tuple[str, ...] = ()
    back: tuple[Step, ...] = ()
    risk: Risk = Risk.DISRUPTIVE


def _refuse(request: Request, reason: str, *remedies: str) -> Refusal:
    return Refusal(request=request, reason=reason, remedies=remedies)


def _other(node: NodeView, way: str) -> str:
    return f"sparktop act recover-desktop {node.name} --set way={way}"


# --- the shell -------------------------------------------------------------------------------------------------------


def _shell(request: Request, node: NodeView, survey: Survey) -> _Way | Refusal:
    desktop = node.desktop
    if desktop is None or desktop.compositor is None or desktop.pid is None:
        return _refuse(request, f"no desktop was found running on {node.name}", _other(node, "manager"))
    stat = stat_of(survey, stat_ask(node.name, desktop.pid))
    if stat is None or stat.command != desktop.compositor:
        return _refuse(request, f"{desktop.compositor} (pid {desktop.pid}) is gone by now", "look again, and choose")
    mine = node.facts is not None and desktop.user_id == node.facts.user_id
    go_on = stat.state in "Tt"
    if desktop.compositor != "gnome-shell" and not go_on:
        return _refuse(
            request,
            f"{desktop.compositor} does not start anew on HUP: it would end, and the session with it",
            _other(node, "manager"),
        )
    signal = Signal(
        pid=desktop.pid,
        started_ticks=stat.started_ticks,
        signal="CONT" if go_on else "HUP",
        privilege=Privilege.USER if mine else Privilege.ROOT,
    )
    who = f"{desktop.compositor} (pid {desktop.pid})"
    typed = f"{'' if mine else 'sudo '}kill -s {signal.signal} {desktop.pid}"
    step = Step(
        id="shell",
        title=f"Let {who} go on" if go_on else f"HUP to {who}",
        node=node.name,
        act=Remote(operations=(signal,)),
        limit_s=60.0,
        verifies="it answers on its session bus",
    )
    if go_on:
        return _Way(
            title=f"Let {desktop.compositor} go on",
            step=step,
            effect=f"{who} was stopped by a signal, and goes on where it was. Nothing is lost.",
            typed=typed,
            risk=Risk.SAFE,
        )
    return _Way(
        title=f"Restart {desktop.compositor}",
        step=step,
        effect=f"{who} ends and its session starts it anew. In field report 000 the desktop came back, and froze again "
        "with the next GPU work of the same kind: what froze it has to be mended too.",
        typed=typed,
        warnings=tuple(_shell_warnings(node, survey, stat.state)),
    )


def _shell_warnings(node: NodeView, survey: Survey, state: str) -> Iterator[str]:
    desktop = node.desktop
    if desktop is not None and desktop.is_greeter:
        yield "This is the login screen: nobody's windows are lost."
        return
    kind = _kind(node, survey)
    whose = _whose(survey, node)
    if kind == "x11":
        yield f"The session is X11: {whose} open windows stay, the shell alone starts anew."
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
            "hangs it never does, and a reboot is left."
        )


# --- the display manager ---------------------------------------------------------------------------------------------


def _manager_ask(node: str) -> Output:
    return Output(node=node, argv=("systemctl", "show", "-p", "Id", "-p", "LoadState", "-p", "ActiveState", MANAGER))


def _shown(survey: Survey, node: str) -> dict[str, str]:
    return said(survey.value(_manager_ask(node)))


def _unit(survey: Survey, node: str) -> str:
    """gdm.service, where that is what display-manager.service is another name of."""
    found = _shown(survey, node).get("Id", "")
    return found if _UNIT.fullmatch(found) else MANAGER


def _manager(request: Request, node: NodeView, survey: Survey) -> _Way | Refusal:
    shown = _shown(survey, node.name)
    if shown.get("LoadState", "loaded") != "loaded":
        return _refuse(request, f"{node.name} has no display manager", "there is nothing graphical to bring back")
    unit = _unit(survey, node.name)
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
    return _Way(
        title="Restart the display manager",
        step=step,
        effect="Every graphical session ends, and the login screen comes. Engines in containers go on.",
        typed=f"sudo systemctl restart {unit}",
        warnings=(
            f"All graphical sessions end with everything open in them: {_all_sessions(survey, node)}.",
            *_session_engines(node),
            *([] if shown else [f"Which one it has could not be asked: {survey.problem(_manager_ask(node.name))}."]),
        ),
    )


# --- no desktop ------------------------------------------------------------------------------------------------------


def _isolate(node: str, target: str, step_id: str, title: str) -> Step:
    graphical_is = (_SYSTEMCTL, "is-active", "--quiet", "graphical.target")
    return Step(
        id=step_id,
        title=title,
        node=node,
        act=Remote(
            operations=(
                Command(argv=(_SYSTEMCTL, "isolate", target), privilege=Privilege.ROOT, limit_s=ISOLATE_LIMIT_S),
                Command(argv=graphical_is, limit_s=15.0, accepts=(0,) if target == "graphical.target" else (3,)),
            )
        ),
        limit_s=ISOLATE_LIMIT_S + 60,
        verifies=f"{target} is reached",
        undone_by="sudo systemctl isolate graphical.target" if target == "multi-user.target" else "",
    )


def _console(request: Request, node: NodeView, survey: Survey) -> _Way | Refusal:
    if node.facts is not None and node.facts.is_graphical is False:
        return _refuse(request, f"{node.name} runs without a desktop already", _other(node, "manager"))
    held = sum(one.held_bytes for one in node.ledger.holders if one.kind == "desktop") if node.ledger else 0
    amount = f", {gib(held)} here" if held > GIB // 4 else ""
    return _Way(
        title="Do without the desktop",
        step=_isolate(node.name, "multi-user.target", "console", "Switch to multi-user.target"),
        back=(_isolate(node.name, "graphical.target", "graphical", "Switch back to graphical.target"),),
        effect="The desktop is gone until you ask for it again, or until the next boot, and its memory is free"
        f"{amount}. Engines in containers go on.",
        typed="sudo systemctl isolate multi-user.target",
        warnings=(
            f"All graphical sessions end with everything open in them: {_all_sessions(survey, node)}.",
            "The desktop comes back with: sudo systemctl isolate graphical.target",
            "Services that only graphical.target wants are stopped too.",
            *_session_engines(node),
        ),
    )


# --- what is lost ----------------------------------------------------------------------------------------------------


def _session_of(node: NodeView, survey: Survey) -> GraphicalSession | None:
    """The session whose compositor it is."""
    user_id = node.desktop.user_id if node.desktop else None
    sessions = graphical(survey, node.name)
    return next((one for one in sessions if one.user_id == user_id), sessions[0] if len(sessions) == 1 else None)


def _kind(node: NodeView, survey: Survey) -> str:
    session = _session_of(node, survey)
    if session is not None and session.kind:
        return session.kind
    commands = {row.command for row in node.processes.processes} if node.processes else set()
    if "Xorg" in commands:
        return "x11"
    return "wayland" if "Xwayland" in commands else ""


def _whose(survey: Survey, node: NodeView) -> str:
    session = _session_of(node, survey)
    return f"{session.user}'s" if session is not None and session.user else "its user's"


def _all_sessions(survey: Survey, node: NodeView) -> str:
    names = [f"{one.user} ({one.kind or 'graphical'})" for one in graphical(survey, node.name) if not one.is_greeter]
    return ", ".join(names) if names else "none is known of"


def _session_engines(node: NodeView) -> Iterator[str]:
    """Engines that a session's end may take along."""
    rows = {row.pid: row for row in node.processes.processes} if node.processes else {}
    for engine in living(node):
        own = [rows[pid] for pid in engine.pids if pid in rows and rows[pid].container_id is None]
        if any("/user.slice/" in f"/{row.cgroup}" for row in own):
            yield f"{engine.name} runs in a login session, without a container: it may end with that session."
        facts, box = node.facts, engine.container
        if (
            facts is not None
            and facts.removes_ipc is not False
            and facts.is_lingering is False
            and box is not None
            and box.ipc_mode == "host"
            and any(
                rows[pid].user_id == facts.user_id and (facts.user_id or 0) >= FIRST_USER_ID
                for pid in engine.pids
                if pid in rows
            )
        ):
            yield (
                f"{engine.name} shares the host's IPC under {facts.user}'s id, who does not linger: with that user's "
                f"last session logind removes its shared memory. First: sudo loginctl enable-linger {facts.user}"
            )


def _gpu_gone(node: NodeView, picture: FleetState) -> Iterator[str]:
    firing = [one for one in picture.findings if one.phase is Phase.FIRING and node.name in one.nodes]
    named = next((one for one in firing if one.rule in _GPU_GONE), None)
    ranked = any(one.rule == "desktop.frozen" and _reboot_comes_first(one) for one in firing)
    if named is not None or ranked:
        by = f" ({named.rule})" if named is not None else ""
        yield (
            f"The GPU itself does not answer the driver{by}: a desktop that is started on it freezes again. A reboot "
            "is the surer way."
        )


def _reboot_comes_first(finding: Finding) -> bool:
    """The finding's own rule has looked at the kernel's log, and ranks its remedies by it."""
    return bool(finding.remedies) and finding.remedies[0].action == "reboot"
