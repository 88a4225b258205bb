"""`sparktop bringup`: looks at new Sparks chapter by chapter, and prints what it found and what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path

from sparktop.bringup.catalogue import CARDS
from sparktop.bringup.kept import ResultFile
from sparktop.bringup.looking import look
from sparktop.clock import Clock, SystemClock
from sparktop.dataclass import dataclass
from sparktop.documents.bringup import as_data, as_html, as_markdown, chapter_lines, summary
from sparktop.errors import ConfigError
from sparktop.headless.act import MakeSession, OutputOptions, watched
from sparktop.headless.status import wait_until
from sparktop.headless.terminal import draw, say, width_of, write_page
from sparktop.model.bringup import Chapter, CheckResult
from sparktop.model.fleet import LinkState, NodeView
from sparktop.model.state import State
from sparktop.model.telemetry import CollectorState

FACTS_LIMIT_S = 15.0
"""How long to wait, after the first sample, for what the probe reads slowly: host facts, network, GPU."""
OK, WRONG, UNREACHED = 0, 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BringUp:
    """A bring-up and its options, as given on the command line."""

    chapters: Collection[Chapter] = ()
    """Empty: all."""
    checks: Collection[str] = ()
    """Ids of the checks to look at; empty: all of the chapters'."""
    again: bool = False
    """Look also at what earlier looks have proven."""
    page: Path | None = None
    """A file to write: HTML where it ends in .html, else Markdown."""


async def bring_up(
    make: MakeSession, command: BringUp, kept: ResultFile, *, output: OutputOptions, clock: Clock | None = None
) -> int:
    """Look, and print; its exit code."""
    clock = clock or SystemClock()
    cards = [
        card
        for card in CARDS
        if (not command.chapters or card.chapter in command.chapters)
        and (not command.checks or card.id in command.checks)
    ]
    rows: list[CheckResult] = []
    async with watched(make, output) as (watch, operating, fresh):
        await wait_until(lambda: all(map(_has_facts, watch.state.nodes)), fresh, FACTS_LIMIT_S)
        looking = look(
            cards,
            lambda: watch.state,
            operating.ask,
            kept=kept.read(),
            now_wall_s=clock.wall,
            again=command.again,
        )
        async for chapter, found in looking:
            rows += found
            try:
                kept.keep(found)
            except ConfigError as error:
                say(f"sparktop: {error}")
            if found and not output.as_json:
                draw(chapter_lines(chapter, found, width_of(sys.stdout), now_wall_s=clock.wall()), sys.stdout)
        hosts = [view.name for view in watch.state.nodes]
        changes = await operating.changes(hosts) if command.page is not None else ()
        is_reached = all(view.link.state is LinkState.LIVE for view in watch.state.nodes)
    if output.as_json:
        print(json.dumps(as_data(rows), indent=2, ensure_ascii=False))
    else:
        draw(summary(rows, width_of(sys.stdout)), sys.stdout)
    if command.page is not None:
        page = as_html if command.page.suffix in (".html", ".htm") else as_markdown
        write_page(command.page, page(rows, hosts=hosts, now_wall_s=clock.wall(), changes=changes), option="--page")
    return exit_code(rows) if is_reached else UNREACHED


def exit_code(rows: Collection[CheckResult]) -> int:
    """0 nothing wrong, 1 something is or nothing could be looked at, 3 a host couldn't be reached."""
    states = {row.state for row in rows}
    if State.UNREACHED in states:
        return UNREACHED
    is_blind = State.UNKNOWN in states and State.PASSED not in states
    return WRONG if is_blind or states & {State.WARNING, State.FAILED} else OK


def _has_facts(view: NodeView) -> bool:
    """Whether the node has told what its probe reads seldom; a node that doesn't answer tells nothing."""
    if view.link.state is not LinkState.LIVE:
        return True
    nvml = view.collectors.get("nvml")
    has_gpu = view.gpu is not None or (nvml is not None and nvml.state is not CollectorState.OK)
    return view.facts is not None and view.network is not None and view.has_looked_for_engines and has_gpu
