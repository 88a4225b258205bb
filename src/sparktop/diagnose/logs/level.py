"""The level of a log line, for its colour: vLLM, SGLang, uvicorn, torch, NCCL and JSON loggers. Pure."""

from __future__ import annotations

import re
from typing import Literal

Level = Literal["debug", "info", "warning", "error", "critical"]

_WORDS: dict[str, Level] = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "err": "error",
    "fatal": "critical",
    "critical": "critical",
    "i": "info",
    "w": "warning",
    "e": "error",
    "f": "critical",
    "d": "debug",
}
_NAME = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRITICAL)"
_BEFORE = re.compile(r"^(?:\(\S{1,60}(?: pid=\d+)?\) |\[rank\d+\]: ?|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]{0,40}\] )+")
"""Prefixes without a level: a process's or rank's mark, SGLang's prefix."""
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_NAME} \d\d-\d\d \d\d:\d\d:\d\d ",  # vLLM
        rf"{_NAME}:",  # uvicorn, logging.basicConfig
        # asctime - LEVEL, some with a name between
        rf"\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d+(?:[ |\[-]+[\w.]{{1,40}})?[ |\[-]+{_NAME}\b",
        rf"(?:\[[\w .:-]{{1,30}}\] ?)?\[{_NAME}\]",  # [TensorRT-LLM][ERROR], [Feb 27 2025 14:10:02] [ERROR]
        r"##\[(?P<level>error|warning)\]",  # a step of continuous integration
        r"\[?(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ ",  # glog, as torch writes it
        rf"\S+ - \S+ - {_NAME} - ",
        r"\d+\.\d\d\.\d{3}\.\d{3} (?P<level>[IWED]) ",  # llama.cpp
    )
)
_JSON = re.compile(rf'^\{{.{{0,2000}}?"(?:level|levelname|severity|lvl)": ?"{_NAME}"', re.IGNORECASE)
_SAYS: tuple[tuple[re.Pattern[str], Level], ...] = (
    (re.compile(r"^(?:Segmentation fault|Killed|Aborted|Bus error|Fatal Python error)\b"), "critical"),
    (re.compile(r"^\s*Traceback \(most recent call last\)"), "error"),
    (re.compile(r'^\s+File "[^"]{1,400}", line \d+'), "error"),
    (re.compile(r"^(?:\S+:\d+: )?(?:[\w.]{0,80})Warning: "), "warning"),
    (re.compile(r"^(?:[\w.]{0,120})(?:Error|Exception|Interrupt|Died)(?:: |$)"), "error"),
    (re.compile(r"\bNCCL WARN\b"), "warning"),
    (re.compile(r"\bNCCL INFO\b"), "info"),
    (re.compile(r"^(?:\S{1,200}: )?(?:[Ff]atal )?[Ee]rror(?::| while | in )"), "error"),
    (re.compile(r"^(?:Scheduler hit an exception|SIGQUIT received|Capture cuda graph failed)"), "error"),
)


def level_of(text: str) -> Level | None:
    """The level that a line names or clearly has; None if it has none."""
    if text.startswith("{"):
        match = _JSON.match(text)
        return _WORDS[match["level"].lower()] if match else None
    unprefixed = _BEFORE.sub("", text, count=1)
    for pattern in _PREFIXES:
        match = pattern.match(unprefixed)
        if match:
            return _WORDS[match["level"].lower()]
    for pattern, level in _SAYS:
        if pattern.search(unprefixed):
            return level
    return None
