"""Log lines that repeat what the console shows otherwise: statistics, health probes and scrapes. Pure."""

from __future__ import annotations

import re

_STATISTICS = re.compile(r"\bEngine \d{3}: Avg prompt throughput: |\b(?:Decode batch|Prefill batch)(?: \[\d+\])?, #")
"""vLLM's and SGLang's, every few seconds (docs/facts/engines.md section 2)."""
_REQUEST = re.compile(
    r"\b(?:GET|HEAD) (?:/(?:(?P<scrapes>metrics|version)|health\w*|ping|readyz|livez)/? \S+ 2\d\d\b"
    r"|\S*[?&](?P<ours>client=sparktop) )"
)
"""In uvicorn's access log and llama.cpp's; what wasn't answered well is no routine, unless we have asked it."""
STATISTICS = "statistics"


def routine(text: str) -> str:
    """ "statistics", "probes", "scrapes" or "ours" for a line that tells nothing else; else ""."""
    if "hroughput" in text and _STATISTICS.search(text):
        return STATISTICS
    if " /" in text and (request := _REQUEST.search(text)):
        return "ours" if request["ours"] else "scrapes" if request["scrapes"] else "probes"
    return ""


def tells_nothing(record: bytes) -> bool:
    """Whether a record of a log is a scrape or a probe: which the console itself has caused, or another one."""
    return b" /" in record and routine(record.decode(errors="replace")) not in ("", STATISTICS)
