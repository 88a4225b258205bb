"""The figures of a run's nodes, and the wait until they show how it leaves them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sparktop.diagnose.stall import STALLED, stall_of
from sparktop.engines.pair import Team, over_nodes, state_of
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.operate.step.run import Run
from sparktop.operate.step.run_context import RunContext
from sparktop.operate.step.step_result import Figures, StepState
from sparktop.operate.step.wait import POLL_S
from sparktop.text.units import GIB


def figures(picture: FleetState, nodes: Iterable[str]) -> dict[str, Figures]:
    """Figures by node: "available_gib", "free_gib", "cache_gib", "swap_used_gib", and "engine NAME" with its state
    or "stalled"; "link" where the link is not live, because the figures are then old."""
    spread = over_nodes(picture)
    findings = picture.findings
    return {name: _node_figures(view, findings, spread) for name in nodes if (view := picture.node(name)) is not None}


def _node_figures(view: NodeView, findings: Sequence[Finding], spread: Sequence[Team]) -> Figures:
    values: dict[str, float | str] = {}
    if view.link.state is not LinkState.LIVE:
        values["link"] = str(view.link.state)
    if view.sample is not None:
        memory = view.sample.memory
        values["available_gib"] = round(memory.available_bytes / GIB, 2)
        values["free_gib"] = round(memory.free_bytes / GIB, 2)
        values["cache_gib"] = round(memory.page_cache_bytes / GIB, 2)
        values["swap_used_gib"] = round(memory.swap_used_bytes / GIB, 2)
    for engine in view.engines:
        is_stalled = stall_of(engine, view.name, findings, spread) is not None
        values[f"engine {engine.name}"] = STALLED if is_stalled else str(state_of(engine, spread))
    return values


def is_newer(picture: FleetState, nodes: Iterable[str], than_s: float) -> bool:
    """Whether every one of the nodes that is live has been sampled after that moment (operator's monotonic clock)."""
    views = [view for name in nodes if (view := picture.node(name)) is not None]
    return all(
        view.sample_at_s is not None and view.sample_at_s >= than_s
        for view in views
        if view.link.state is LinkState.LIVE
    )


def lists_newer_containers(picture: FleetState, nodes: Iterable[str], than_s: float) -> bool:
    """Whether Docker on each of the nodes that is live has been asked for its containers after that moment.

    A node whose Docker can't be asked counts as asked: nothing newer will come.
    """
    views = [view for name in nodes if (view := picture.node(name)) is not None]
    return all(
        view.containers_at_s is None or view.containers_at_s >= than_s
        for view in views
        if view.link.state is LinkState.LIVE and view.containers.available
    )


NEWER_FIGURES_S = 3.0
"""How long a run waits at its end for figures newer than its last step."""
NEWER_CONTAINERS_S = 6.0
"""How long it waits for a newer list of containers, which comes every 3 s: a plan made at once must not see a container
that this run has removed."""
COMING_BACK_S = 12.0
"""How long it waits in all while memory is still being released."""
RISING_BYTES_PER_S = 0.2 * GIB


async def settled(context: RunContext, run: Run, nodes: Collection[str]) -> None:
    """Wait until the picture shows how the run has left its nodes, or for COMING_BACK_S at most."""
    is_rolled_back = len(run.steps) > len(run.plan.steps)
    has_stopped = is_rolled_back or any(
        step_run.state is StepState.DONE and step_run.step.act.stops for step_run in run.steps
    )
    began_s = since_s = context.clock.monotonic()
    last_picture: FleetState | None = None
    while True:
        picture, now_s = context.picture(), context.clock.monotonic()
        has_containers = not has_stopped or lists_newer_containers(picture, nodes, began_s)
        if has_containers and is_newer(picture, nodes, since_s):
            if not has_stopped or (last_picture is not None and not rises(last_picture, picture, nodes)):
                return
            last_picture, since_s = picture, now_s + POLL_S
        limit_s = NEWER_FIGURES_S if has_containers else NEWER_CONTAINERS_S
        if now_s - since_s > limit_s or now_s - began_s > COMING_BACK_S:
            return
        await context.pause(POLL_S)


def rises(before: FleetState, after: FleetState, nodes: Collection[str]) -> bool:
    """Whether available memory of one of the nodes is still rising, by two samples of each."""
    for name in nodes:
        old_view, view = before.node(name), after.node(name)
        if old_view is None or view is None or old_view.sample is None or view.sample is None:
            continue
        if view.link.state is not LinkState.LIVE:
            continue
        elapsed_s = view.sample.boot_s - old_view.sample.boot_s
        gained = view.sample.memory.available_bytes - old_view.sample.memory.available_bytes
        if elapsed_s > 0 and gained / elapsed_s > RISING_BYTES_PER_S:
            return True
    return False
