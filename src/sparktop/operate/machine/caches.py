"""Drop caches on one node or both: write back dirty pages, then drop what the kernel can read again. Pure.

It helps less than is often believed (docs/facts/engines.md C6): MemAvailable, which the engines' own start-up checks
read, counts the cache as free already, and memory held by a process or the driver is not released.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.plan.common_steps import (
    DROP,
    DROP_LIMIT_S,
    SYNC,
    SYNC_LIMIT_S,
    living,
    privilege_questions,
    resolved_step,
    stays_note,
    step_id,
)
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import require_root, sudo_note
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.text.units import GIB, gib

LITTLE_BYTES = 4 * GIB
HELD_BYTES = 2 * GIB
"""Less than this unaccounted for is within the estimate's error."""


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return privilege_questions(request)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Two steps on each node; refused only where root is not available."""
    if not request.nodes:
        raise Refused("no node is named", ("name one, or both",))
    for name in request.nodes:
        require_root(survey.privileges(name), (DROP,), name)
    nodes = [(name, picture.node(name)) for name in request.nodes]
    steps = [step for name, node in nodes for step in _steps(name, node, request)]
    for name in request.nodes[:1]:
        steps += resolved_step(request, name, engines_run_on=True)
    warnings = [warning for _, node in nodes if node is not None for warning in _warnings(node)]
    expected_failure = next(
        (expected_failure for _, node in nodes if (expected_failure := _expected_failure(node, request))), ""
    )
    warnings = (
        [expected_failure, *(warning for warning in warnings if warning != expected_failure)]
        if expected_failure
        else warnings
    )
    warnings += [stays] if (stays := stays_note(request, picture)) else []
    warnings += [note for name, _ in nodes if (note := sudo_note(survey.privileges(name), (DROP,), name))]
    return Plan(
        request=request,
        title=f"Drop caches on {' and '.join(request.nodes)}",
        risk=Risk.SAFE,
        steps=tuple(steps),
        effect=_effect([node for _, node in nodes if node is not None]),
        warnings=tuple(warnings),
        expected_failure=expected_failure,
    )


def _steps(name: str, node: NodeView | None, request: Request) -> Iterator[Step]:
    yield Step(
        id=step_id("sync", name, request.nodes),
        title=f"Write dirty pages to disk on {name}",
        node=name,
        act=Remote(operations=(Command(argv=SYNC, limit_s=SYNC_LIMIT_S),)),
        limit_s=SYNC_LIMIT_S + 10,
        verifies="sync returns; if a disk hangs, sparktop says so and drops the clean pages anyway",
        on_failure=OnFailure.GO_ON,
    )
    cache = f", {gib(node.sample.memory.page_cache_bytes)} of page cache" if node is not None and node.sample else ""
    yield Step(
        id=step_id("drop", name, request.nodes),
        title=f"Drop caches on {name}{cache}",
        node=name,
        act=Remote(operations=(Command(argv=DROP, privilege=Privilege.ROOT, limit_s=DROP_LIMIT_S),)),
        limit_s=DROP_LIMIT_S + 60,  # time to type a password
        verifies="MemFree and the cache, before and after",
    )


def _effect(nodes: list[NodeView]) -> str:
    amounts = [
        f"up to {gib(node.sample.memory.page_cache_bytes)} on {node.name}" for node in nodes if node.sample is not None
    ]
    first = f"The page cache becomes free memory: {', '.join(amounts)}." if amounts else "The page cache becomes free."
    return (
        f"{first} MemAvailable hardly changes: it counts the cache as available, and so do the engines' own "
        "start-up checks. It helps large allocations by CUDA and the driver, and loads that stall because "
        "no page is free. The next load reads its weights from disk again."
    )


def _expected_failure(node: NodeView | None, request: Request) -> str:
    """Why it is expected not to mend the finding: the driver holds memory, or a process that is no engine does and
    holds far more than the page cache."""
    if request.finding is None or node is None or node.sample is None or node.ledger is None:
        return ""
    cache_bytes = node.sample.memory.page_cache_bytes
    others = [holder for holder in node.ledger.holders if holder.kind == "gpu"]
    largest = max(others, key=lambda holder: holder.held_bytes, default=None)
    if largest is None or largest.held_bytes < 2 * cache_bytes:
        return _lost_text(node)
    return (
        f"{largest.label} holds {gib(largest.held_bytes)} on {node.name}, which this doesn't free; the page cache has "
        f"only {gib(cache_bytes)}."
    )


def _warnings(node: NodeView) -> Iterator[str]:
    if node.sample is not None and node.sample.memory.page_cache_bytes < LITTLE_BYTES:
        cache = gib(node.sample.memory.page_cache_bytes)
        yield f"{node.name}: only {cache} are page cache, so this will not help much."
    gpu_holders = [holder for holder in node.ledger.holders if holder.kind in ("engine", "gpu")] if node.ledger else []
    if gpu_holders:
        largest = max(gpu_holders, key=lambda holder: holder.held_bytes)
        total = sum(holder.held_bytes for holder in gpu_holders)
        yield f"{node.name}: GPU processes hold {gib(total)}, most in {largest.label}; this doesn't free it."
    if lost := _lost_text(node):
        yield lost
    for engine in living(node):
        if engine.state in (EngineState.STARTING, EngineState.LOADING):
            yield f"{node.name}: {engine.name} is loading: it reads from disk again what it had read ahead."


def _lost_text(node: NodeView) -> str:
    gap = node.ledger.unaccounted_bytes if node.ledger else None
    if gap is None or gap < HELD_BYTES:
        return ""
    return (
        f"{node.name}: {gib(gap)} belong to no process: the driver kept them when a process ended. Dropping "
        "caches doesn't free them; a reboot does."
    )
