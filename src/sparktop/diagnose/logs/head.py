"""The head of a log line: what an engine's logger writes before the message. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A line's head, by what it names; empty where the logger writes none."""

    stop: int = 0
    """Character offset of the message."""
    process: str = ""
    """ "EngineCore_DP0", "TP1"."""
    time: str = ""
    """ "02:14:03", in the container's own time zone."""
    source: str = ""
    """ "core.py:1091"."""
    level: str = ""
    """ "ERROR", or its letter."""


NONE = Head()

_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRITICAL)"
_TIME = r"(?P<time>\d\d:\d\d:\d\d)"
_PROCESS = re.compile(
    r"\((?P<process>\w[\w.-]{0,40})(?: rank=\d+)?,? pid=\d+(?:, ip=[\w.:]{1,45})?\) |\[(?P<rank>rank\d+)\]: ?"
)
"""vLLM's and Ray's processes, torch's ranks (docs/facts/engines.md section 2.0)."""
_LOGGERS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_LEVEL} \d\d-\d\d {_TIME} (?:\[(?P<source>[^\]\s]{{1,80}})\] ?)?",  # vLLM
        rf"\[\d{{4}}-\d\d-\d\d {_TIME}(?:[.,]\d+)?(?P<process>(?: [A-Z]{{2}}\d+){{0,4}})\] (?:{_LEVEL}: +)?",  # SGLang
        rf"{_LEVEL}(?:: *|[ \t]+)",  # uvicorn, logging.basicConfig, Rust's tracing
        r"\d+\.\d\d\.\d{3}\.\d{3} (?P<level>[IWED]) ",  # llama.cpp: since its start
        rf"\d{{4}}-\d\d-\d\d[ T]{_TIME}[.,]\d+ - (?P<source>[\w.]{{1,60}}) - {_LEVEL} - ",
        rf"\d{{4}}-\d\d-\d\d[ T]{_TIME}(?:[.,]\d+)?Z?(?:[ |\[-]+[\w.]{{1,40}})?[ \t|\[-]+{_LEVEL}\b[\]\s|:-]+",
        rf"(?:\[[\w .:-]{{1,30}}\] ?|[\d/:., -]{{8,30}})?\[{_LEVEL}\] ?",  # [TensorRT-LLM][ERROR], 2026-02-27 [ERROR]
        r"##\[(?P<level>error|warning)\]",  # a step of continuous integration
        rf"\[?(?P<level>[IWEF])\d{{3,4}} {_TIME}\.\d+ +(?:\d+ +)?(?P<source>[\w./-]{{1,80}}:\d+)\] ",  # glog, as torch
        rf"\[\d\d/\d\d/\d{{4}}-{_TIME}\] (?:\[[\w -]{{1,20}}\] ){{1,3}}\[(?P<level>[IWEF])\] ",  # TensorRT-LLM
        rf"{_TIME} - [\w .]{{1,40}}:{_LEVEL}: (?P<source>[\w.]{{1,60}}:\d+) - ",  # LiteLLM
        rf"(?:(?:time|ts|t|caller)=(?:\"[^\"]*\"|\S+) ){{0,2}}level=(?i:{_LEVEL})\b *",  # Go
        rf"\S+ - \S+ - {_LEVEL} - ",
        r"(?P<level>DEBU|INFO|WARN|ERRO|FATA|PANI)\[\d{4}\S{0,40}\] ",  # logrus on a terminal: docker, dockerd, runc
        rf"\d{{4}}/\d\d/\d\d {_TIME}(?:\.\d+)? (?:(?P<source>[\w./-]{{1,80}}:\d+): )?(?:{_LEVEL}:? )?",  # Go
    )
)


@lru_cache(maxsize=1024)
def head_of(text: str) -> Head:
    """The head of a line; NONE for one that has none, or nothing after it."""
    stop, process = 0, ""
    while match := _PROCESS.match(text, stop):
        process, stop = match["process"] or match["rank"] or process, match.end()
    time = source = level = ""
    for logger in _LOGGERS:
        if match := logger.match(text, stop):
            groups = match.groupdict()
            time, source = groups.get("time", ""), groups.get("source") or ""
            level = groups.get("level") or ""
            process, stop = (groups.get("process") or "").strip() or process, match.end()
            break
    if not stop or not text[stop:].strip():
        return NONE
    return Head(stop=stop, process=process, time=time, source=source.rpartition("/")[2], level=level)
