"""A process of an engine that outlived it and holds its memory: the rung of the ladder where somebody can be named."""

from __future__ import annotations

from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import GIB, gib, seen
from sparktop.model.engine import Engine
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
    over = {box.container_id for box in node.containers.containers if box.status in ("exited", "dead")}
    served = {pid for engine in node.engines if is_alive(engine) and _has_server(engine) for pid in engine.pids}
    for pid in sorted(held, key=lambda pid: -held[pid]):
        process = table.get(pid)
        if held[pid] < HOLDER_BYTES or process is None:
            continue
        if process.container_id in over:
            return process, held[pid], "its container has ended"
        if process.parent_pid == 1 and process.container_id is None and pid not in served and _is_titled(process):
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


def _is_titled(process: Process) -> bool:
    """Named as engines name their workers (setproctitle)."""
    title = process.argv[0] if process.argv else ""
    return process.command.startswith(_ENGINE_TITLES) or title.startswith(_ENGINE_TITLES)


def _has_server(engine: Engine) -> bool:
    """Whether a server of it was found, and not only workers."""
    return engine.endpoint is not None or not engine.argv[:1] or not engine.argv[0].startswith(_ENGINE_TITLES)
