"""Drop caches: write back what is dirty, then let the kernel forget what it can read again; one node or both. Pure.

What it is good for is less than its fame (facts/engines.md C6): MemAvailable, which the engines' own start-up checks
read, counts the cache as free already, and nothing that a process or the driver holds is given back.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.diagnose.live.window import GIB, gib
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.plan import OnFailure, Plan, Refusal, Remote, Request, Risk, Step
from sparktop.operate.machine import living, privilege_asks, resolved_step, stays_said, step_id
from sparktop.operate.privilege import program, root_refusal, sudo_note
from sparktop.operate.survey import Ask, Survey

LITTLE_BYTES = 4 * GIB
HELD_BYTES = 2 * GIB
"""Less than this unaccounted for is the estimate's own error."""
SYNC_LIMIT_S = 60.0
DROP_LIMIT_S = 60.0

SYNC = (program("sync"),)
DROP = (program("sysctl"), "-w", "vm.drop_caches=3")


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    return privilege_asks(request)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Two steps on each node; refused only where root can't be had."""
    if not request.nodes:
        return Refusal(request=request, reason="no node is named", remedies=("name one, or both",))
    for name in request.nodes:
        obstacle = root_refusal(survey.privileges(name), (DROP,), name)
        if obstacle is not None:
            return obstacle.refusal(request)
    nodes = [(name, picture.node(name)) for name in request.nodes]
    steps = [step for name, node in nodes for step in _steps(name, node, request)]
    for name in request.nodes[:1]:
        steps += resolved_step(request, name, engines_run_on=True)
    warnings = [warning for _, node in nodes if node is not None for warning in _warnings(node)]
    warnings += [said] if (said := stays_said(request)) else []
    warnings += [note for name, _ in nodes if (note := sudo_note(survey.privileges(name), (DROP,), name))]
    return Plan(
        request=request,
        title=f"Drop caches on {' and '.join(request.nodes)}",
        risk=Risk.SAFE,
        steps=tuple(steps),
        effect=_effect([node for _, node in nodes if node is not None]),
        warnings=tuple(warnings),
        equivalent=tuple(f"on {name}: sync; sudo sysctl -w vm.drop_caches=3" for name in request.nodes),
        seen_monotonic_s=picture.monotonic_s,
    )


def _steps(name: str, node: NodeView | None, request: Request) -> Iterator[Step]:
    yield Step(
        id=step_id("sync", name, request.nodes),
        title=f"Write back what is dirty on {name}",
        node=name,
        act=Remote(operations=(Command(argv=SYNC, limit_s=SYNC_LIMIT_S),)),
        limit_s=SYNC_LIMIT_S + 10,
        verifies="sync returns; a disk that hangs is told, and what is clean is dropped all the same",
        on_failure=OnFailure.GO_ON,
    )
    cache = f", {gib(node.sample.memory.page_cache_bytes)} of page cache" if node is not None and node.sample else ""
    yield Step(
        id=step_id("drop", name, request.nodes),
        title=f"Drop caches on {name}{cache}",
        node=name,
        act=Remote(operations=(Command(argv=DROP, privilege=Privilege.ROOT, limit_s=DROP_LIMIT_S),)),
        limit_s=DROP_LIMIT_S + 60,  # somebody may have to type a password
        verifies="MemFree and the cache, before and after",
    )


def _effect(nodes: list[NodeView]) -> str:
    amounts = [
        f"up to {gib(node.sample.memory.page_cache_bytes)} on {node.name}" for node in nodes if node.sample is not None
    ]
    first = f"The page cache becomes free memory: {', '.join(amounts)}." if amounts else "The page cache becomes free."
    return (
        f"{first} MemAvailable hardly changes, for it counts the cache as available already, and the engines' own "
        "start-up checks read that. It helps large allocations by CUDA and the driver, and loads that stall for "
        "want of free pages. The next load reads its weights from disk again."
    )


def _warnings(node: NodeView) -> Iterator[str]:
    if node.sample is not None and node.sample.memory.page_cache_bytes < LITTLE_BYTES:
        cache = gib(node.sample.memory.page_cache_bytes)
        yield f"{node.name}: only {cache} are page cache, so this will not help: little comes back."
    held = [one for one in node.ledger.holders if one.kind in ("engine", "gpu")] if node.ledger else []
    if held:
        most = max(held, key=lambda one: one.held_bytes)
        total = sum(one.held_bytes for one in held)
        yield f"{node.name}: {gib(total)} are held by processes on the GPU, most by {most.label}: that stays."
    lost = node.ledger.unaccounted_bytes if node.ledger else None
    if lost is not None and lost >= HELD_BYTES:
        yield (
            f"{node.name}: {gib(lost)} are accounted for by nobody. Dropping caches does not release what the driver "
            "kept of a process that is gone; a reboot has."
        )
    for engine in living(node):
        if engine.state in (EngineState.STARTING, EngineState.LOADING):
            yield f"{node.name}: {engine.name} is loading: what it has read ahead is read from disk once more."
