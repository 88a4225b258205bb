"""Recognises a log that ends in the middle of CUDA graph capture.

Pure. A stall shows in missing lines, which no rule on lines can match. Only a complete text has an end; live rules use
figures and times to tell whether a capture still moves.
"""

from __future__ import annotations

from sparktop.knowledge.card import found
from sparktop.model.finding import Evidence, Finding
from sparktop.sanitise import line as sanitise_line
from sparktop.text.expression import expression

UNFINISHED = "engine.graph-capture-unfinished"
CARDS = (UNFINISHED,)

_TAIL_CHARS = 20_000
_NEAR_LINES = 6
_COUNT = r"\d{1,3}%\|[^|]*\|\s*(?P<done>\d{1,9})/(?P<total>\d{1,9})\b"
_BAR = expression(rf"Captur[^|]{{0,170}}?{_COUNT}")
_BARE = expression(rf"^\s*{_COUNT}")
"""Older SGLang doesn't name what its bar counts; the line before does."""
_BEGUN = expression(r"Captur[^|]*graphs? begin")


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """A suspected stall if the last lines are capture bars that aren't full; None for any other text.

    A bar that moved within the last two lines was only cut off, and so was a single bar unless it is at 0.
    """
    tail = text[-_TAIL_CHARS:].rstrip()
    lines = tail.split("\n")
    begun = any(_BEGUN.search(line) for line in lines[-_NEAR_LINES:])
    last = _last_bar(lines[-1], begun)
    if last is None:
        return None
    done, total = last
    before = _last_bar(lines[-2], begun) if len(lines) > 1 else None
    if done >= total or (done and (before is None or before[0] != done)):
        return None
    return (_finding(done, total, lines[-1].split("\r")[-1], text.rstrip().count("\n") + 1, source),)


def _last_bar(line: str, begun: bool) -> tuple[int, int] | None:
    """How far the last bar of a line has come, and how far it goes."""
    state = line.rstrip("\r").split("\r")[-1]
    bars = [*_BAR.finditer(state)] or ([*_BARE.finditer(state)] if begun else [])
    if not bars:
        return None
    figures = bars[-1].groups  # redrawn bars share one line
    return int(figures["done"] or 0), int(figures["total"] or 0)


def _finding(done: int, total: int, text: str, line: int, source: str) -> Finding:
    evidence = Evidence(source=source, text=sanitise_line(text.strip(), limit=400), line=line)
    return found(UNFINISHED, "cut", {"done": done, "total": total}, evidence=(evidence,))
