"""Whether a load would disturb a node's work. Not known counts as busy. Pure.

unslothai/unsloth counts a compute process from 96 MiB as work, capetron/gb10-cluster-check a utilisation from 10 %
(docs/facts/bringup.md section 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparktop.model.engine import Engine, EngineMetrics, EngineState
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.operate.plan.common_steps import living
from sparktop.operate.refused import Refused
from sparktop.text.units import gib

HOLDS_BYTES = 96 << 20
BUSY_PERCENT = 10.0
_STARTING = (EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)
COMPUTE = "C"


def require_idle(nodes: Iterable[str], picture: FleetState, *, loads_gpu: bool = False) -> None:
    """Refuse where a node works, or may.

    Args:
        loads_gpu: the GPU is loaded too: an engine that is only loaded is then in the way as well.

    Raises:
        Refused: with the work, or what is not known.
    """
    for node in nodes:
        if reason := busy_reason(picture.node(node), node, loads_gpu=loads_gpu):
            way_out = "stop the engine" if loads_gpu else "stop the engine, or wait until it is idle"
            raise Refused(reason, (f"measure when nobody uses the nodes: {way_out}",))


def busy_reason(view: NodeView | None, node: str, *, loads_gpu: bool = False) -> str:
    """Why the node is not known to be idle; empty: it is."""
    if view is None or view.sample is None or view.link.state is not LinkState.LIVE:
        return f"whether {node} works is not known: no figures come from it"
    if not view.has_looked_for_engines:
        return f"{view.engines_gap}: one may hold work"
    return next((reason for engine in living(view) if (reason := _engine_reason(engine, node, loads_gpu))), "") or next(
        _gpu_reasons(view), ""
    )


def _engine_reason(engine: Engine, node: str, loads_gpu: bool) -> str:
    if loads_gpu:
        return f"{engine.name} is loaded on {node}, and the measurement needs the GPU for itself"
    if engine.state in _STARTING:
        return f"{engine.name} on {node} is {engine.state}"
    return held_reason(f"{engine.name} on {node}", engine.metrics)


def held_reason(engine: str, metrics: EngineMetrics | None) -> str:
    """Why the engine is not known to hold no request, by its figures; empty: it holds none."""
    if metrics is None or metrics.running is None:
        return f"whether {engine} holds requests is not known: it has no figures"
    held = metrics.running + (metrics.waiting or 0.0)
    return f"{engine} holds {held:.0f} request{'' if held == 1 else 's'}" if held else ""


def _gpu_reasons(view: NodeView) -> Iterator[str]:
    gpu = view.first_gpu
    if gpu is None or gpu.processes is None:
        yield f"whether the GPU of {view.name} works is not known: its processes were not read"
        return
    of_engines = {pid for engine in living(view) for pid in engine.pids}
    for process in gpu.processes:
        size = process.used_bytes
        if process.kind == COMPUTE and process.pid not in of_engines and (size is None or size >= HOLDS_BYTES):
            held = f"{gib(size)} of" if size is not None else "memory of"
            yield f"{process.name} (pid {process.pid}) holds {held} the GPU of {view.name}"
    if gpu.utilisation_percent is None:
        yield f"whether the GPU of {view.name} works is not known: its utilisation was not read"
    elif gpu.utilisation_percent >= BUSY_PERCENT:
        yield f"the GPU of {view.name} is {gpu.utilisation_percent:.0f} % busy"
