"""The README's screenshot: the demo itself, run for some seconds and saved as an SVG.

python -m tests.ui.screenshot OUT.svg [--scenario NAME] [--seconds N] [--size 132x40]
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.ui import svg

from sparktop.clock import SystemClock
from sparktop.observe.monitor import Monitor
from sparktop.observe.watch import Publish, Watch
from sparktop.sim.scenario import scenario as scenarios
from sparktop.sim.server import simulated_watch
from sparktop.transport.base import Connector, Prompter
from sparktop.ui.app import SparktopApp


async def shoot(name: str, seconds: float, size: tuple[int, int], theme: str) -> str:
    """Play a scenario in real time and take the screen after so many seconds."""
    scenario = scenarios.load(name)

    async def start(publish: Publish, _: Prompter) -> Watch:
        def make(connectors: Sequence[Connector]) -> Watch:
            return Monitor(connectors, publish=publish)

        return await simulated_watch(scenario, make)

    names = tuple(node.name for node in scenario.nodes)
    app = SparktopApp(start=start, node_names=names, clock=SystemClock(), title=f"demo: {scenario.title}", theme=theme)
    async with app.run_test(size=size) as pilot:
        await asyncio.sleep(seconds)
        await pilot.pause()
        return svg.picture(app)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenario", default="memory-spike")
    parser.add_argument("--seconds", type=float, default=17.5)
    parser.add_argument("--size", default="132x40")
    parser.add_argument("--theme", default="sparktop-dark")
    options = parser.parse_args()
    width, height = (int(part) for part in options.size.split("x"))
    picture = asyncio.run(shoot(options.scenario, options.seconds, (width, height), options.theme))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
