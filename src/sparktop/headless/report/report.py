"""`sparktop report`: the account of a recording, written as a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sparktop.errors import UsageError
from sparktop.headless.report.account import account_of
from sparktop.headless.report.page import page
from sparktop.headless.terminal import write_page, written
from sparktop.observe.replay.replay import Replay
from sparktop.text.units import day_time

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def report(replay: Replay, *, since_s: float, until_s: float, out: Path, notes: Sequence[str] = ()) -> int:
    """Write what a recording tells between two moments, as the file's name ends; Markdown on standard output.

    Args:
        notes: what is said of the recordings themselves.

    Raises:
        UsageError: nothing was recorded then, or the page can't be written.
    """
    if str(out) != "-" and out.suffix not in (*HTML, *MARKDOWN):
        raise UsageError(f"{out} ends in neither .html nor .md", hint="-o report.html, -o report.md or -o -")
    account = account_of(replay.play(until_s, seen=False), since_s)
    if account is None:
        raise UsageError(f"nothing was recorded from {day_time(since_s)} on", hint="`sparktop replay` lists what was")
    text = page(account, is_html=out.suffix in HTML, notes=notes)
    if str(out) == "-":
        written(text, sys.stdout, end="")
    else:
        write_page(out, text, option="-o")
    return 0
