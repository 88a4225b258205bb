"""The front end without a screen: one snapshot, or a stream of them, as text or JSON.

Standard output carries data only; narration goes to standard error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import TextIO

from sparktop.diagnose.enginecommand import of_container
from sparktop.headless.findings import exit_code as finding_code
from sparktop.headless.present import as_data, as_text
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import CollectorState
from sparktop.observe.watch import Publish, Watch

SETTLE_S = 3.0
"""How long a snapshot waits, after the first sample, for the parts that come later (GPU, containers, engines)."""
HELD_S = 1.2
"""And how much longer it looks: a line of the kernel log speaks once it has stood for a second."""

MakeWatch = Callable[[Publish], Watch]


async def status(
    make: MakeWatch, *, as_json: bool, watch: bool, timeout_s: float, interval_s: float, out: TextIO | None = None
) -> int:
    """Print one snapshot, or with `watch` one an interval until interrupted; the exit code."""
    fresh = asyncio.Event()
    observation = make(lambda _: fresh.set())
    running = asyncio.create_task(observation.run())
    try:
        await settled(observation, fresh, timeout_s)
        while True:
            state = observation.state
            _print(state, as_json=as_json, one_line=watch, out=out or sys.stdout)
            if not watch:
                return exit_code(state)
            await asyncio.sleep(interval_s)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def settled(
    observation: Watch,
    fresh: asyncio.Event,
    timeout_s: float,
    *,
    settle_s: float = SETTLE_S,
    held_s: float = HELD_S,
) -> None:
    """Wait until every node has answered in full, or has refused, or the time is over.

    `fresh` is set with each new picture; `settle_s` is for what comes after the first samples, and then it is looked
    on for `held_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while not all(_answered(node) for node in observation.state.nodes):
                fresh.clear()
                await fresh.wait()
    except TimeoutError:
        return
    try:
        async with asyncio.timeout(settle_s):
            while not all(_complete(node) for node in observation.state.nodes):
                fresh.clear()
                await fresh.wait()
    except TimeoutError:
        pass
    if all(node.sample is None for node in observation.state.nodes):
        return
    complete_s = observation.state.monotonic_s
    try:
        async with asyncio.timeout(2 * held_s):
            while observation.state.monotonic_s - complete_s < held_s:
                fresh.clear()
                await fresh.wait()
    except TimeoutError:
        return


def _answered(node: NodeView) -> bool:
    # Lost before it was ever live means two attempts failed: another would say the same.
    return node.sample is not None or node.link.state in (LinkState.REFUSED, LinkState.LOST)


def _complete(node: NodeView) -> bool:
    if node.link.state is not LinkState.LIVE:
        return True
    nvml = node.collectors.get("nvml")
    gpu_known = node.gpu is not None or (nvml is not None and nvml.state is not CollectorState.OK)
    docker_known = node.containers.available or node.containers.detail != type(node.containers)().detail
    return gpu_known and docker_known and node.processes is not None and _has_heard_its_engines(node)


def _has_heard_its_engines(node: NodeView) -> bool:
    """Whether the engines that containers run are known, and their logs have said something."""
    boxes = [box for box in node.containers.containers if box.status == "running" and of_container(box.argv)]
    known = {engine.container.container_id: engine for engine in node.engines if engine.container}
    return all(
        (engine := known.get(box.container_id)) is not None
        and engine.log is not None
        and engine.log.last_line_wall_s is not None
        for box in boxes
    )


def exit_code(state: FleetState) -> int:
    """3 when a node has no live link, else 1 when something at warning or above is wrong, else 0."""
    if not all(node.link.state is LinkState.LIVE for node in state.nodes):
        return 3
    return finding_code(state.findings)


def _print(state: FleetState, *, as_json: bool, one_line: bool, out: TextIO) -> None:
    indent = None if one_line else 2
    if as_json:
        text = json.dumps(as_data(state), indent=indent, ensure_ascii=False)
    else:
        text = as_text(state, is_snapshot=not one_line, out=out)
    print(text, file=out, flush=True)
