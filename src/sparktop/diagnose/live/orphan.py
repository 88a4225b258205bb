"""A process of an engine that outlived it and holds its memory: the rung of the ladder where somebody can be named."""

from __future__ import annotations

from sparktop.diagnose.live.window import GIB, gib, seen
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import NodeView
from sparktop.model.telemetry import Process

HOLDER_BYTES = 2 * GIB
_ENGINE_TITLES = ("VLLM::", "sglang::", "ray::")


def _living(node: NodeView) -> tuple[Process, int, str] | None:
    """(process, GPU bytes, why it is one): an engine's process that outlived its server or its container."""
    held = {
        row.pid: row.used_bytes or 0
        for gpu in (node.gpu.gpus if node.gpu else ())
        for row in gpu.processes or ()
        if row.kind == "C"
    }
    table = {process.pid: process for process in (node.processes.processes if node.processes else ())}
    running = {box.container_id for box in node.containers.containers if box.status not in ("exited", "dead")}
    for pid in sorted(held, key=lambda pid: -held[pid]):
        process = table.get(pid)
        if held[pid] < HOLDER_BYTES or process is None:
            continue
        titled = process.command.startswith(_ENGINE_TITLES) or any(
            part.startswith(_ENGINE_TITLES) for part in process.argv[:1]
        )
        if process.container_id is not None:
            if node.containers.available and process.container_id not in running:
                return process, held[pid], "its container has ended"
        elif titled and process.parent_pid == 1:
            return process, held[pid], "its server has ended and left it to init"
    return None


def orphan(node: NodeView) -> Finding | None:
    """memory.held-after-exit, the rung where somebody holds it: named, with its pid."""
    living = _living(node)
    if living is None:
        return None
    process, held, why = living
    return Finding(
        rule="memory.held-after-exit",
        severity=Severity.WARNING,
        title=f"{node.name}: {process.command} (pid {process.pid}) still holds {gib(held)} of an engine that ended",
        explanation=(
            f"The process lives on though {why}, and holds {gib(held)} of GPU memory, which on this machine is the "
            "host's memory. It gives nothing to anyone; the next engine will not find room beside it."
        ),
        distinction=("A living process holds it, so neither waiting nor dropping caches nor a reboot is called for.",),
        evidence=(
            seen(node, "GPU processes", f"pid {process.pid} {process.command}: {gib(held)}"),
            seen(node, "processes", f"pid {process.pid}, parent {process.parent_pid}, state {process.state}: {why}"),
        ),
        remedies=(
            Remedy(
                title=f"End pid {process.pid}: ask it first, then make it",
                steps=(f"sudo kill {process.pid}", f"after 15 s: sudo kill -9 {process.pid}"),
                cost="nothing: it serves nobody",
                action="end-holder",
            ),
        ),
        references=("Blackwellboy/model-serving-minefield (trap 123)",),
        nodes=(node.name,),
        brief=f"pid {process.pid} {process.command} holds {gib(held)}",
    )
