"""End one process that holds GPU memory: SIGTERM, then SIGKILL, and never another process that got its pid. Pure.

Meant for what an engine left behind. An engine that serves has an action of its own, which the review mentions;
processes that the machine needs to be reached and drawn are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop import sanitise
from sparktop.model.engine import RESTARTING_POLICIES, Container, Engine
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.model.telemetry import GpuProcess, Process
from sparktop.operate.acts.arrivals import AwaitGone
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.plan.common_steps import (
    evidence_step,
    living,
    privilege_questions,
    resolved_step,
    stays_note,
    the_node,
)
from sparktop.operate.plan.origin import service_of_process
from sparktop.operate.plan.process import ProcessStat, end_step, stat_of, stat_question
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import require_root_for, sudo_notes
from sparktop.operate.step.plan import Plan, Step
from sparktop.probe.remote.parsers import COMPOSITORS
from sparktop.text.units import GIB, gib, requests, span

TERM_S = 15.0
GONE_S = 30.0
MEMORY_S = 120.0
BACK_SHARE = 0.8
"""Share of its memory that must come back: others take and release memory meanwhile."""
_SYSTEM_PROCESS = re.compile(r"systemd|init$|sshd|dockerd|containerd|dbus|NetworkManager|tailscaled|sparktop")
_DESKTOP = re.compile(r"Xwayland|gnome-session|gdm|sddm|lightdm")


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    node = the_node(request, picture)
    pid = _target(request, node)
    return (*privilege_questions(request), *((stat_question(node.name, pid),) if pid is not None else ()))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Evidence, SIGTERM and SIGKILL, process gone, memory back."""
    node = the_node(request, picture)
    pid = _target(request, node)
    if pid is None:
        raise _refuse("which process is meant? Name its pid", *_named_holders(node))
    row = next((row for row in _holders(node) or () if row.pid == pid), None)
    process = next((entry for entry in _table(node) if entry.pid == pid), None)
    stat = stat_of(survey, stat_question(node.name, pid))
    refusal = _process_refusal(request, node, row, process, stat, survey)
    if refusal is not None:
        raise refusal
    assert row is not None
    assert stat is not None
    is_own = process is not None and node.facts is not None and process.user_id == node.facts.user_id
    steps = _steps(request, node, row, stat, Privilege.USER if is_own else Privilege.ROOT)
    require_root_for(steps, survey)
    name = sanitise.name(stat.command)
    return Plan(
        request=request,
        title=f"Kill {name} (pid {pid}) on {node.name}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        effect=f"{_holder_text(node, row, stat, process)}. SIGTERM first, SIGKILL after {TERM_S:.0f} s.",
        warnings=(
            *_warnings(node, pid, process, stat),
            *filter(None, (stays_note(request, picture),)),
            *sudo_notes(steps, survey.privileges(node.name), node.name, with_lines=False),
        ),
        equivalent=(f"on {node.name}: {'' if is_own else 'sudo '}kill {pid}; after {TERM_S:.0f} s: kill -9 {pid}",),
    )


# --- the process


def _target(request: Request, node: NodeView) -> int | None:
    """The pid of the request, else the one that the finding's remedy names, else the only holder's."""
    text = request.target.strip()
    if not text and request.finding is not None:
        text = next((str(remedy.pid) for remedy in request.finding.remedies if remedy.pid is not None), "")
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    holders = _holders(node) or ()
    return holders[0].pid if not text and len(holders) == 1 else None


def _holders(node: NodeView) -> tuple[GpuProcess, ...] | None:
    """The processes that hold GPU memory, by NVML; None where they can't be listed."""
    lists = [gpu.processes for gpu in node.gpu.gpus] if node.gpu else []
    if not lists or any(rows is None for rows in lists):
        return None
    return tuple(row for rows in lists for row in rows or ())


def _table(node: NodeView) -> tuple[Process, ...]:
    return node.processes.processes if node.processes else ()


def _named_holders(node: NodeView) -> Iterator[str]:
    for row in sorted(_holders(node) or (), key=lambda row: -(row.used_bytes or 0))[:8]:
        held = gib(row.used_bytes) if row.used_bytes is not None else "an unknown amount"
        yield f"pid {row.pid}: {sanitise.name(row.name)}, {held}"


def _engine_of(node: NodeView, pid: int) -> Engine | None:
    return next((engine for engine in living(node) if pid in engine.pids), None)


def _container_of(node: NodeView, process: Process | None) -> Container | None:
    if process is None or process.container_id is None:
        return None
    return next(
        (container for container in node.containers.containers if container.container_id == process.container_id), None
    )


# --- what is refused


def _refuse(reason: str, *remedies: str) -> Refused:
    return Refused(reason, remedies)


def _process_refusal(
    request: Request,
    node: NodeView,
    row: GpuProcess | None,
    process: Process | None,
    stat: ProcessStat | None,
    survey: Survey,
) -> Refused | None:
    pid = _target(request, node)
    if _holders(node) is None:
        return _refuse(
            f"who holds GPU memory on {node.name} can't be listed now, so sparktop kills no process on suspicion",
            f"on {node.name}: nvidia-smi   # then kill it by hand, if it is the one",
        )
    if row is None:
        return _refuse(f"pid {pid} holds no GPU memory on {node.name}, as NVML lists it", *_named_holders(node))
    if stat is None:
        problem = survey.problem(stat_question(node.name, row.pid))
        return _refuse(f"pid {pid} is gone{f' or can not be read: {problem}' if problem else ''}")
    name = sanitise.name(stat.command)
    if stat.has_ended:
        return _refuse(
            f"{name} (pid {pid}) has exited already and is a zombie until its parent, pid {stat.parent_pid}, reaps it",
            f"stop or restart pid {stat.parent_pid}; another process holds the missing memory",
        )
    if process is not None and not stat.is_same(process):
        return _refuse(f"pid {pid} is now another process: the one you chose has exited", "look again, then choose")
    if row.pid == 1 or _SYSTEM_PROCESS.match(stat.command):
        return _refuse(f"{name} (pid {pid}) keeps {node.name} running and reachable")
    is_drawing = stat.command in COMPOSITORS or _DESKTOP.match(stat.command) is not None
    if (is_drawing or (node.desktop is not None and node.desktop.pid == row.pid)) and not _even_desktop(request):
        return _refuse(
            f"{name} (pid {pid}) draws the desktop of {node.name}: every open window may close with it",
            f"sparktop act recover-desktop {node.name}",
            "or say that you mean it: --set even_desktop=yes",
        )
    return None


def _even_desktop(request: Request) -> bool:
    return request.options.get("even_desktop", "no") == "yes"


# --- what is done


def _steps(
    request: Request, node: NodeView, row: GpuProcess, stat: ProcessStat, privilege: Privilege
) -> tuple[Step, ...]:
    name = sanitise.name(stat.command)
    engine = _engine_of(node, row.pid)
    steps = [
        evidence_step((node.name,), (engine.name,) if engine else ()),
        end_step("end", node.name, name, (stat,), privilege, TERM_S),
        Step(
            id="gone",
            title=f"Check that pid {row.pid} has left the GPU's list",
            node=node.name,
            act=AwaitGone(pids=(row.pid,)),
            limit_s=GONE_S,
        ),
    ]
    # Below a GiB, what others take and release hides whether it came back.
    if row.used_bytes is not None and row.used_bytes >= GIB and node.sample is not None:
        memory = node.sample.memory
        target = min(memory.total_bytes, memory.available_bytes + int(BACK_SHARE * row.used_bytes))
        steps.append(
            Step(
                id="memory",
                title=f"Wait for {gib(target)} available",
                node=node.name,
                act=AwaitMemory(target_bytes=target),
                limit_s=MEMORY_S,
                verifies=f"most of its {gib(row.used_bytes)} are free again",
            )
        )
    return (*steps, *resolved_step(request, node.name, engines_run_on=True))


def _holder_text(node: NodeView, row: GpuProcess, stat: ProcessStat, process: Process | None) -> str:
    held = gib(row.used_bytes) if row.used_bytes is not None else "memory, how much can't be read,"
    parts = [f"{sanitise.name(stat.command)} (pid {row.pid}) holds {held} on {node.name}"]
    if node.sample is not None:
        parts.append(f"started {span(max(0.0, node.sample.boot_s - stat.started_boot_s))} ago")
    if process is not None and process.container_id is not None:
        container = _container_of(node, process)
        is_over = container is not None and container.status in ("exited", "dead")
        of_container = "left by the stopped container" if is_over else "in container"
        parts.append(f"{of_container} {container.name}" if container else f"in container {process.container_id[:12]}")
    if process is not None and process.argv:
        command = sanitise.line(" ".join(process.argv), limit=120)
        parts.append(f"command: {command}")
    return ", ".join(parts)


def _warnings(node: NodeView, pid: int, process: Process | None, stat: ProcessStat) -> Iterator[str]:
    engine = _engine_of(node, pid)
    if engine is not None:
        running = engine.metrics.running if engine.metrics else None
        requests_text = f" with {requests(running)} running" if running else ""
        yield f"It is part of {engine.name}{requests_text}. `stop-engine` stops the whole engine in order."
    service = service_of_process(process) if process is not None and process.container_id is None else None
    if service is not None:
        unit, is_own = service
        stop = f"{'systemctl --user' if is_own else 'sudo systemctl'} stop {unit}"
        yield f"It is part of {unit}, and systemd may start it again. To keep it down instead: {stop}"
    container = _container_of(node, process)
    if (
        container is not None
        and container.status == "running"
        and container.restart_policy.partition(":")[0] in RESTARTING_POLICIES
    ):
        yield (
            f"Its container {container.name} has the restart policy {container.restart_policy}: where the container "
            "ends with it, Docker starts it again. `stop-engine` switches that off first."
        )
    if stat.state == "D":
        channel = f" in {process.wait_channel}" if process is not None and process.wait_channel else ""
        yield (
            f"It waits in the kernel (state D){channel}: a signal acts only when that wait ends, and where the driver "
            "hangs it never ends; then only a reboot helps."
        )
