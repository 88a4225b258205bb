"""Takes a log line out of what carried it: Docker's and the journal's JSON, prefixes of compose and Kubernetes, quotes.

Pure. What the engine itself writes before its words (process, level, time) stays. What carried a line often says whose
it is, and a stop of one service is none of another's.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sparktop.diagnose.logs import echo

DEPTH = 5
"""So many wraps may lie around one another: a quote of compose's prefix of JSON."""
_JSON_CHARS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A line as it was written."""

    text: str
    """May hold several lines where JSON carried it."""
    stream: str = ""
    """Whose line it is: the compose service, unit or container."""
    is_kernel: bool = False
    boot_s: float | None = None
    stamp: str = ""
    """When, as what carried it said; `wall_s` reads it."""

    @property
    def wall_s(self) -> float | None:
        """Seconds since the epoch, where what carried the line says year and zone."""
        if not self.stamp:
            return None
        if self.stamp.isdecimal() and len(self.stamp) <= 20:
            return int(self.stamp) / 1e6
        try:
            return datetime.fromisoformat(_LONG_FRACTION.sub(r"\1", self.stamp)).timestamp()
        except (ValueError, OverflowError):
            return None


_LONG_FRACTION = re.compile(r"(\.\d{6})\d+")
_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_WRAPS = re.compile(
    r"(?P<quote>(?:> ?)++)"
    r"|(?P<service>(?!(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)\b)[A-Za-z][\w.-]{0,80}+) *+\| ?"
    rf"|(?P<stamp>{_STAMP}) (?:(?:stdout|stderr) [FP] )?"
    r"|\[pod/(?P<pod>[\w./-]{1,200}+)\] "
    r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d{9,11}\.\d{1,9}) [\w.-]{1,64}+ "
    r"(?P<unit>[\w./@:-]{1,80}?)(?:\[\d{1,10}\])?: "
)
_UNIT = re.compile(r"[\w.-]{1,64}+ (?P<unit>[\w./@-]{1,80}+)\[\d{1,10}\]: |[\w.-]{1,64}+ (?P<kernel>kernel): ")
"""What follows an ISO stamp where the journal wrote it, and not Docker."""
_ESCAPED_LINES = 2
"""A line with so many `\\n` in words is several lines that somebody printed as a Python or JSON string."""
_ESCAPES = (("\\n", "\n"), ("\\r", "\r"), ("\\t", "    "), ('\\"', '"'), ("\\'", "'"))
_ESCAPED_COLOUR = re.compile(r"\\(?:x1b|u001b|033)\[[0-9;]{0,20}m")


def unwrap(text: str) -> Record | None:
    """The line in a wrapped one; None for a line that nothing carried."""
    record: Record | None = None
    for _ in range(DEPTH):
        inner = _inside(text)
        if inner is None:
            break
        record = inner if record is None else _both(record, inner)
        text = record.text
    if "\\n" in text and text.count("\\n") >= _ESCAPED_LINES and echo.without(text) is text:
        for written, meant in _ESCAPES:
            text = text.replace(written, meant)
        text = _ESCAPED_COLOUR.sub("", text)
        record = Record(text=text) if record is None else replace(record, text=text)
    return record


def _inside(text: str) -> Record | None:
    if text.startswith("{"):
        return _from_json(text) if len(text) <= _JSON_CHARS and text.rstrip().endswith("}") else None
    found = _WRAPS.match(text)
    if found is None:
        return None
    rest = text[found.end() :]
    if found["stamp"]:
        unit = _UNIT.match(rest)
        if unit is not None:
            name = unit["unit"] or unit["kernel"]
            return Record(text=rest[unit.end() :], stream=name, is_kernel=name == "kernel", stamp=found["stamp"])
        return Record(text=rest, stamp=found["stamp"])
    unit_name = found["unit"] or ""
    return Record(
        text=rest, stream=found["service"] or found["pod"] or unit_name, is_kernel=unit_name.startswith("kernel")
    )


def _both(outer: Record, inner: Record) -> Record:
    return replace(
        inner,
        stream=inner.stream or outer.stream,
        is_kernel=inner.is_kernel or outer.is_kernel,
        boot_s=inner.boot_s if inner.boot_s is not None else outer.boot_s,
        stamp=inner.stamp or outer.stamp,
    )


_MESSAGES = ("message", "msg", "@message", "event", "textPayload", "text", "body", "log")
_LOGGERS = frozenset(
    ("level", "levelname", "severity", "lvl", "timestamp", "time", "ts", "asctime", "@timestamp", "logger", "name")
)
_TRACES = ("exc_info", "exc_text", "exception", "traceback", "stack_trace", "stacktrace", "stack", "error")


def _from_json(text: str) -> Record | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if "MESSAGE" in data:
        return _from_journal(data)
    if isinstance(data.get("log"), str) and ("stream" in data or "time" in data):
        return Record(text=data["log"].rstrip("\r\n"), stamp=_text(data.get("time")))
    if _LOGGERS.isdisjoint(data):
        return None
    said = next((data[key] for key in _MESSAGES if isinstance(data.get(key), str)), None)
    if said is None:
        return None
    said = "\n".join([said, *(data[key] for key in _TRACES if isinstance(data.get(key), str))])
    return Record(text=said.rstrip("\r\n"))


def _from_journal(data: dict[str, Any]) -> Record | None:
    message = data["MESSAGE"]
    if isinstance(message, list):  # the journal writes bytes that are no text so
        if not all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
            return None
        message = bytes(message).decode("utf-8", "replace")
    if not isinstance(message, str):
        return None
    names = (data.get(key) for key in ("CONTAINER_NAME", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER"))
    boot = _text(data.get("_SOURCE_MONOTONIC_TIMESTAMP")) or _text(data.get("__MONOTONIC_TIMESTAMP"))
    return Record(
        text=message,
        stream=next((name for name in names if isinstance(name, str) and name), ""),
        is_kernel=data.get("_TRANSPORT") == "kernel",
        boot_s=int(boot) / 1e6 if boot.isdecimal() and len(boot) <= 20 else None,
        stamp=_text(data.get("__REALTIME_TIMESTAMP")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
