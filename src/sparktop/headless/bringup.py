"""`sparktop bringup`: looks at new Sparks chapter by chapter, and prints what it found and what to do."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from sparktop.bringup.card import Card
from sparktop.bringup.kept import ResultFile
from sparktop.bringup.looking import run_checks
from sparktop.documents.bringup import as_data, chapter_lines, page_text, summary
from sparktop.errors import ConfigError
from sparktop.headless.invocation import Invocation, watched
from sparktop.headless.look import is_gpu_known
from sparktop.headless.terminal import draw, put_json, say, width_of, write_page
from sparktop.model.bringup import CheckResult
from sparktop.model.fleet import LinkState, NodeView
from sparktop.model.state import State

FACTS_LIMIT_S = 15.0
"""How long to wait, after the first sample, for what the probe reads slowly: host facts, network, GPU."""
OK, WRONG, UNREACHED = 0, 1, 3


async def bring_up(call: Invocation, kept: ResultFile, cards: Sequence[Card], *, again: bool, page: Path | None) -> int:
    """Look at these rows, and print; its exit code.

    Args:
        again: look also at what earlier looks have proven.
        page: a file to write: HTML where it ends in .html, else Markdown.
    """
    clock = call.clock
    rows: list[CheckResult] = []
    async with watched(call) as (look, operating):
        await look.every(_has_facts, FACTS_LIMIT_S)
        judged = run_checks(
            cards, lambda: look.state, operating.ask, kept=kept.read(), now_wall_s=clock.wall, again=again
        )
        async for chapter, found in judged:
            rows += found
            try:
                kept.keep(found)
            except ConfigError as error:
                say(f"sparktop: {error}")
            if found and not call.as_json:
                draw(chapter_lines(chapter, found, width_of(sys.stdout), now_wall_s=clock.wall()), sys.stdout)
        hosts = look.names
        changes = await operating.changes(hosts) if page is not None else ()
        is_reached = all(view.link.state is LinkState.LIVE for view in look.state.nodes)
    if call.as_json:
        put_json(as_data(rows), indent=2)
    else:
        draw(summary(rows, width_of(sys.stdout)), sys.stdout)
    if page is not None:
        is_html = page.suffix in (".html", ".htm")
        text = page_text(rows, is_html=is_html, hosts=hosts, now_wall_s=clock.wall(), changes=changes)
        write_page(page, text, option="--page")
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
    return view.facts is not None and view.network is not None and view.has_looked_for_engines and is_gpu_known(view)
