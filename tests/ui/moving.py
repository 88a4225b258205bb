"""The README's moving picture: the demo's memory spike, played in real time, in one SVG that loops.

python -m tests.ui.moving OUT.svg [--size 120x36] [--theme NAME] [--frames FOLDER]

A frame is a picture of the screen with what happens in it below. A row that several frames share is in the file once;
CSS says when each is seen, as no script runs in a README. What doesn't animate shows the frame `STILL`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.ui import svg
from textual.pilot import Pilot

from sparktop.cli.composition import session
from sparktop.cli.session import Session
from sparktop.clock import SystemClock
from sparktop.config import Config
from sparktop.observe.watch import Publish, Watch
from sparktop.sim.scenario import scenario as scenarios
from sparktop.sim.server import simulated_watch
from sparktop.text.units import GIB
from sparktop.transport.base import Prompter
from sparktop.ui.app import SparktopApp
from sparktop.ui.setup import Setup

SCENARIO, NODE = "memory-spike", "spark1"
STILL = "The first request takes 5 GiB/s that no setting counts. SSH would hang in seconds."
PATIENCE_S = 300.0
"""The engine loads for about two minutes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of the screen."""

    caption: str
    seconds: float
    rows: tuple[str, ...]
    """The elements of each row."""


class Player:
    """Plays the console, and takes its frames."""

    def __init__(self, pilot: Pilot[int], sessions: Sequence[Session]) -> None:
        self._pilot = pilot
        self._sessions = sessions
        self.frames: list[Frame] = []
        self.ground = svg.ground_of(pilot.app)

    @property
    def available_gib(self) -> float:
        view = self._sessions[0].state.node(NODE) if self._sessions else None
        return view.sample.memory.available_bytes / GIB if view is not None and view.sample is not None else 0.0

    async def until(self, words: str) -> None:
        """Let it run until the screen says this."""
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while words not in "\n".join(svg.plain(self._pilot.app)):
            shown = "\n".join(svg.plain(self._pilot.app))
            assert asyncio.get_running_loop().time() < deadline_s, f"{words!r} was not seen; the screen was:\n{shown}"
            await self._pilot.pause(0.02)

    async def until_available(self, *, above: float = 0.0, below: float = 1e9) -> None:
        while not above < self.available_gib < below:
            await self._pilot.pause(0.02)

    async def press(self, *keys: str, then: str) -> None:
        """Press these keys and wait until the screen says what they lead to."""
        await self._pilot.press(*keys)
        await self.until(then)

    async def take(self, caption: str, seconds: float) -> None:
        await self._pilot.pause(0.3)
        self.frames.append(Frame(caption, seconds, tuple(svg.rows(self._pilot.app))))


async def play(player: Player) -> None:
    """Spike, guard, cause, `f`, proven again."""
    await player.until_available(above=1.0)
    await player.until("ready ")
    await player.press("M", then="Kill the engine if memory drops")
    await player.press("enter", then="review")
    await player.press("tab", "enter", then="done in")
    await player.press("escape", then="free")
    await player.take("Two Sparks, over SSH. A guard is armed on vllm-gptoss.", 1.2)
    await player.until_available(below=44.5)
    await player.take("Its first request arrives.", 0.6)
    await player.until("Stop vllm-gptoss now")
    for below, seconds in ((36.0, 0.6), (30.0, 0.6), (24.0, 0.6)):
        await player.until_available(below=below)
        await player.take(STILL, seconds)
    await player.until("guard fired")
    await player.take("The guard on the Spark kills the engine: no network, no operator.", 1.0)
    await player.until_available(above=60.0)
    await player.until_available(above=110.0)
    await player.take("The host lives. The top line has the cause, and what was done.", 1.2)
    await player.press("f", then="costs")
    await player.take("f  What is known to help, the surest first.", 1.2)
    await player.press("1", then="changes 1 flag")
    await player.press("enter", then="What changes")
    await player.take("Every step is shown first. Nothing runs before you say so.", 1.4)
    await player.press("enter", then="running")
    await player.until("loading weights")
    await player.take("A relaunch with --enforce-eager; the old container is kept.", 0.8)
    await player.until("answers after")
    await player.take("A relaunch with --enforce-eager; the old container is kept.", 0.6)
    await player.until("done in")
    await player.take("Proven: one request, guarded, and the finding is gone.", 1.4)
    await player.press("escape", then="nothing wrong")
    await player.take("Quiet again.", 1.2)


@asynccontextmanager
async def console(size: tuple[int, int], theme: str) -> AsyncIterator[Player]:
    """The demo as `sparktop demo` composes it, without a terminal."""
    scenario = scenarios.load(SCENARIO)
    sessions: list[Session] = []

    async def start(publish: Publish, _: Prompter) -> Watch:
        def make(links: Sequence[object]) -> Session:
            sessions.append(session(links, publish, Config(), is_demo=True))  # type: ignore[arg-type]
            return sessions[0]

        return await simulated_watch(scenario, make)

    app = SparktopApp(
        Setup(
            start=start,
            node_names=tuple(node.name for node in scenario.nodes),
            clock=SystemClock(),
            title=f"demo: {scenario.title}",
            operating=lambda: sessions[0].late.in_background(),
        ),
        theme=theme,
    )
    async with app.run_test(size=size) as pilot:
        yield Player(pilot, sessions)


def timeline(frames: Sequence[Frame], still: int) -> tuple[list[str], list[str]]:
    """(CSS, elements): each different row once, seen in its frames; `still`: the frame without animation."""
    total_s = sum(frame.seconds for frame in frames)
    places: dict[tuple[int, str], list[int]] = {}
    for number, frame in enumerate(frames):
        for row, elements in enumerate(frame.rows):
            if elements:
                places.setdefault((row, elements), []).append(number)
    names: dict[tuple[int, ...], str] = {}
    css = [f"g[class]{{animation-duration:{total_s:g}s;animation-iteration-count:infinite}}"]
    body: list[str] = []
    for (_, elements), shown in places.items():
        if len(shown) == len(frames):
            body.append(elements)
            continue
        name = names.setdefault(tuple(shown), f"k{len(names)}")
        body.append(f'<g class="{name}">\n{elements}\n</g>')
    for shown, name in names.items():
        at_s, steps = 0.0, []
        for number, frame in enumerate(frames):
            if number == 0 or (number in shown) != (number - 1 in shown):
                state = "visible" if number in shown else "hidden"
                steps.append(f"{100 * at_s / total_s:.4g}%{{visibility:{state}}}")
            at_s += frame.seconds
        last = steps[-1].partition("{")[2]
        css.append(f"@keyframes {name}{{{''.join(steps)}100%{{{last}}}")
        first = "visible" if still in shown else "hidden"
        css.append(f".{name}{{visibility:{first};animation-name:{name};animation-timing-function:step-end}}")
    css.append("@media (prefers-reduced-motion){g[class]{animation:none}}")
    return css, body


def caption(text: str, size: tuple[int, int]) -> str:
    """A frame's caption, below the screen."""
    y = (size[1] + 0.9) * svg.CELL_H + svg.BASE
    return f'<text x="{svg.CELL_W:g}" y="{y:g}" fill="#f0b54a" font-weight="bold">{escape(text)}</text>'


def moving(frames: Sequence[Frame], size: tuple[int, int], ground: str) -> str:
    """All frames in one SVG."""
    captioned = [Frame(one.caption, one.seconds, (*one.rows, caption(one.caption, size))) for one in frames]
    still = max(number for number, frame in enumerate(frames) if frame.caption == STILL)
    css, body = timeline(captioned, still)
    return svg.page((size[0], size[1] + 2), ground, body, css)


async def shoot(size: tuple[int, int], theme: str) -> tuple[list[Frame], str]:
    """(frames, colour of the ground)."""
    async with console(size, theme) as player:
        await play(player)
        return player.frames, player.ground


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="120x36")
    parser.add_argument("--theme", default="sparktop-dark")
    parser.add_argument("--frames", type=Path, help="each frame as a picture of its own, to look at")
    options = parser.parse_args()
    width, height = (int(part) for part in options.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = folder
        frames, ground = asyncio.run(shoot((width, height), options.theme))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(moving(frames, (width, height), ground), "utf-8")
    if options.frames is not None:
        options.frames.mkdir(parents=True, exist_ok=True)
        for number, frame in enumerate(frames):
            rows = [*frame.rows, caption(frame.caption, (width, height))]
            (options.frames / f"{number:02}.svg").write_text(svg.page((width, height + 2), ground, rows), "utf-8")


if __name__ == "__main__":
    main()
