"""Unwraps log lines (JSON, journal, Docker, compose, quotes), joins lines that were cut, removes clients' words.

Pure. The engine's own prefix (process, level, time) stays. The wrapping often names the service, and one service's stop
must not count for another's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.diagnose.logs.level import level_of

DEPTH = 5
"""At most this many wrappings inside one another: a quoted compose prefix around JSON."""


_JSON_CHARS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A log line taken out of its wrapping."""

    text: str
    """May hold several lines if it came from JSON."""
    stream: str = ""
    """Whose line it is: the compose service, unit or container."""
    is_kernel: bool = False
    boot_s: float | None = None
    stamp: str = ""
    """The timestamp of the wrapping; parsed by `wall_s`."""

    @property
    def wall_s(self) -> float | None:
        """Seconds since the epoch; None if the timestamp lacks year or zone."""
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


_FILE = r"[\w./@-]{5,200}+(?<=\.log|\.txt|\.out|\.err)"


_WRAPS = re.compile(
    r"(?P<quote>(?:> ?)++)"
    r"|(?P<service>(?!(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)\b)[A-Za-z][\w.-]{0,80}+) *+\| ?"
    rf"|(?P<stamp>{_STAMP}) (?:(?:stdout|stderr) [FP] )?"
    rf"|\d{{1,7}}+:(?!\d\d(?::|\b))|{_FILE}:(?:\d{{1,7}}:)?(?!\d\d(?::|\b))"  # grep
    r"| {4}MESSAGE="  # journalctl -o verbose
    r"|(?P<kmsg>\d{1,3},\d{1,20},(?P<boot_us>\d{1,20}),[-c+][^;]{0,200};)"
    r"|(?P<delta>\[ *\d{1,10}\.\d{1,9} <[ \d.]{1,20}>\] )"  # dmesg -d
    r"|<\d{1,3}>1 (?P<rfc>\S{10,40}) [\w.-]{1,64} (?P<app>[\w./@-]{1,80}) "
    r"\S{1,40} \S{1,40} (?:-|\[[^\]]{0,400}\]) (?:\ufeff)?"  # syslog, RFC 5424
    r"|(?P<facility>kern|user|daemon|syslog) *: *(?:emerg|alert|crit|err|warn|notice|info|debug) *: "  # dmesg -x
    r"|\[pod/(?P<pod>[\w./-]{1,200}+)\] "
    r"|(?:\[\d{1,7}\] )++"  # torchrun's ranks, a router's instances
    r"|(?:#\d{1,4} )?\d{1,5}\.\d{1,3} (?=[^\d\s]| +[^\d\s])|#\d{1,4} (?=ERROR)"  # docker build
    r"|(?:(?:<\d{1,3}>)?(?:[^\W\d_]{3,4}\.?|\d{1,2}月) [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d{9,11}\.\d{1,9}"
    r"|\[ *\d{1,10}\.\d{6}\](?= \S{1,64} (?:[\w./@:-]{1,80}\[\d{1,10}\]|kernel): )"  # the kernel's own name no host
    r"|[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [A-Z]{2,5}) [\w.-]{1,64}+ "
    r"(?P<unit>[\w./@:-]{1,80}?)(?:\[\d{1,10}\])?: "
)


_UNIT = re.compile(r"[\w.-]{1,64}+ (?P<unit>[\w./@-]{1,80}+)\[\d{1,10}\]: |[\w.-]{1,64}+ (?P<kernel>kernel): ")
"""What follows an ISO timestamp written by the journal, as opposed to Docker."""


_ESCAPED_LINES = 2
"""A line with this many literal `\\n` is several lines printed as a Python or JSON string."""


_ESCAPES = (("\\n", "\n"), ("\\r", "\r"), ("\\t", "    "), ('\\"', '"'), ("\\'", "'"))


_BAR_END = re.compile(r"(?<=it/s\]|s/it\])(?=[^\s,])")
"""A progress bar has no line end: what is said next stands behind it."""


_ESCAPED_COLOUR = re.compile(r"\\(?:x1b|u001b|033)\[[0-9;]{0,20}m")


def unwrap(text: str) -> Record | None:
    """The line inside its wrapping; None for a line that isn't wrapped."""
    record: Record | None = None
    for _ in range(DEPTH):
        inner = _unwrapped_once(text)
        if inner is None:
            break
        record = inner if record is None else _merged(record, inner)
        text = record.text
    if "\\n" in text and text.count("\\n") >= _ESCAPED_LINES and without_client_text(text) is text:
        for escape, char in _ESCAPES:
            text = text.replace(escape, char)
        text = _ESCAPED_COLOUR.sub("", text)
        record = Record(text=text) if record is None else replace(record, text=text)
    if "it" in text and _BAR_END.search(text) is not None:
        text = _BAR_END.sub("\n", text)
        record = Record(text=text) if record is None else replace(record, text=text)
    return record


def _unwrapped_once(text: str) -> Record | None:
    if text.startswith("{"):
        return _from_json(text) if len(text) <= _JSON_CHARS and text.rstrip().endswith("}") else None
    match = _WRAPS.match(text)
    if match is None:
        return None
    body = text[match.end() :]
    if match["facility"]:
        return Record(text=body, is_kernel=match["facility"] == "kern")
    if match["kmsg"]:
        return Record(text=body, is_kernel=True, boot_s=int(match["boot_us"]) / 1e6)
    if match["delta"]:
        return Record(text=body, is_kernel=True)
    if match["rfc"]:
        return Record(text=body, stream=match["app"], is_kernel=match["app"] == "kernel", stamp=match["rfc"])
    if match["stamp"]:
        unit = _UNIT.match(body)
        if unit is not None:
            name = unit["unit"] or unit["kernel"]
            return Record(text=body[unit.end() :], stream=name, is_kernel=name == "kernel", stamp=match["stamp"])
        return Record(text=body, stamp=match["stamp"])
    unit_name = match["unit"] or ""
    return Record(
        text=body, stream=match["service"] or match["pod"] or unit_name, is_kernel=unit_name.startswith("kernel")
    )


def _merged(outer: Record, inner: Record) -> Record:
    return replace(
        inner,
        stream=inner.stream or outer.stream,
        is_kernel=inner.is_kernel or outer.is_kernel,
        boot_s=inner.boot_s if inner.boot_s is not None else outer.boot_s,
        stamp=inner.stamp or outer.stamp,
    )


_MESSAGES = ("message", "msg", "@message", "event", "textPayload", "text", "body", "log")


_LEVELS = ("level", "levelname", "severity", "lvl")


_LOGGERS = frozenset((*_LEVELS, "timestamp", "time", "ts", "asctime", "@timestamp", "logger", "name"))


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
    message = next((data[key] for key in _MESSAGES if isinstance(data.get(key), str)), None)
    if message is None:
        return None
    if (
        message[:1].isalpha()
        and level_of(message) is None
        and _is_error(next((data[key] for key in _LEVELS if key in data), None))
    ):
        message = f"ERROR: {message}"
    message = "\n".join([message, *(data[key] for key in _TRACES if isinstance(data.get(key), str))])
    return Record(text=message.rstrip("\r\n"))


def _is_error(level: object) -> bool:
    """By its word, or its number at pino's and Python's loggers, where 50 is what both call one."""
    return (
        level >= 50 if isinstance(level, int) else isinstance(level, str) and level[:1].lower() in ("e", "f", "c", "p")
    )


def _from_journal(data: dict[str, Any]) -> Record | None:
    message = data["MESSAGE"]
    if isinstance(message, list):  # the journal writes non-text bytes as a list
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


HEAD_CHARS = 600
"""The engine's own words lie within this many characters, after any prefixes."""


_ECHO_BEGINS = re.compile(
    r"(?:Received request [^\s:]{1,120}: prompt|Generated response [^\s:]{1,120}(?: \([^)]{0,40}\))?: output"
    r"|\b(?:Receive|Finish): (?:obj|rid))[:=]"
)


def without_client_text(text: str) -> str:
    """The line up to where a client's or model's words begin; the whole line if it holds none."""
    if "Rece" not in text and "Gener" not in text and "Finish" not in text:
        return text
    match = _ECHO_BEGINS.search(text, 0, HEAD_CHARS)
    return text if match is None else text[: match.end()]


JOINED_CHARS = 2000
"""Lines are not joined beyond this length."""


SEAM_CHARS = 100
"""How much of both sides of a cut is searched for a fixed text that was split."""


_JOIN_BEGINS = re.compile(
    r"  |\t|\((?:\w+ )?\w+ ?pid=|\[|\d{4}[-/]\d\d|\d\d:\d\d:\d\d|(?:DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL)\b"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:|Traceback|[\w.]+(?:Error|Exception)\b|NVRM:|[{<#$|]|[-*+] |==|$"
)
"""How a line begins that can't continue another."""


class Joiner:
    """Joins each line to those before it, where it may continue them."""

    __slots__ = ("_spaced", "_tight", "line")

    def __init__(self) -> None:
        self._spaced = self._tight = ""
        self.line: int | None = None
        """The number of the first joined line."""

    def add(self, text: str, line: int | None) -> tuple[tuple[str, str], ...]:
        """The joined line so far as (text, seam): cut between words, then cut anywhere; () for a new line."""
        before, tight = self._spaced, self._tight
        if not before or _JOIN_BEGINS.match(text) or len(before) + len(text) > JOINED_CHARS:
            self._spaced, self._tight = text.rstrip(), text
            self.line = line
            return ()
        self._spaced, self._tight = f"{before} {text.strip()}", f"{tight}{text}"
        head = text.strip()[:SEAM_CHARS]
        return (
            (self._spaced, f"{before[-SEAM_CHARS:]} {head}"),
            (self._tight, f"{tight[-SEAM_CHARS:]}{text[:SEAM_CHARS]}"),
        )


MOST = 2_000
"""At most this many values are read from one text."""


WASTED_CHARS = 1 << 24
"""So much is read in vain of what begins like a value and isn't one; brackets nested too deep count for a page."""


_TOO_DEEP_CHARS = 4096


_OPENING = re.compile(r"^[ \t]*(?:data:[ \t]*)?(?=[\[{])", re.MULTILINE)


_DECODER = json.JSONDecoder()


def values(text: str, *, having: str) -> Iterator[tuple[Any, int]]:
    """Each JSON object or array that begins a line, with the line's number; nothing if `having` isn't in the text.

    Values that are cut off or malformed are skipped.
    """
    if having not in text:
        return
    at = count = wasted = 0
    while count < MOST and wasted < WASTED_CHARS and (opening := _OPENING.search(text, at)) is not None:
        try:
            value, end = _DECODER.raw_decode(text, opening.end())
        except (ValueError, RecursionError) as error:
            wasted += error.pos - opening.end() if isinstance(error, json.JSONDecodeError) else _TOO_DEEP_CHARS
            newline = text.find("\n", opening.end())
            if newline < 0:
                return
            at = newline + 1
            continue
        count += 1
        yield value, text.count("\n", 0, opening.end()) + 1
        at = max(end, opening.end() + 1)
