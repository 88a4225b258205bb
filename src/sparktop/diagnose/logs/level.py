"""The level of a log line, for its colour: vLLM, SGLang, uvicorn, torch, NCCL and JSON loggers. Pure."""

from __future__ import annotations

import re
from typing import Literal

from sparktop.diagnose.logs.head import head_of

Level = Literal["debug", "info", "warning", "error", "critical"]

_WORDS: dict[str, Level] = {
    **dict.fromkeys("td", "debug"),
    **dict.fromkeys("in", "info"),
    "w": "warning",
    "e": "error",
    **dict.fromkeys("fcp", "critical"),
}
"""By a level's first letter: WARN, warning and W are one, as are FATAL, FATA and F."""
_JSON = re.compile(r'^\{.{0,2000}?"(?:level|levelname|severity|lvl)": ?"(\w+)"', re.IGNORECASE)
_DIES = re.compile(
    r"(?:Segmentation fault|Killed|Aborted|Bus error|Fatal Python error)\b"
    r"|(?:panic|fatal error|SIG(?:SEGV|ABRT|BUS|ILL|FPE)|LLVM ERROR|(?:free|malloc|realloc)\(\)|double free[^:]*"
    r"|\S+: symbol lookup error): "
    r"|(?:thread '[^']{0,80}' (?:\(\d+\) )?panicked at |terminate called |Exception in thread \")"
    r"|.*\b(?:GGML_ASSERT\(|Assertion [`'].{1,300}' failed)"
)
"""What a program's runtime or its C library says as it ends a process: Python, C++, Go, Rust, Java."""
_SAYS: tuple[tuple[re.Pattern[str], Level], ...] = (
    (_DIES, "critical"),
    (re.compile(r"(?:[\w:.,+*#/\[\]-]{1,40} ){0,8}(?:FATAL|PANIC|Fatal): "), "critical"),  # PostgreSQL, Redis
    (re.compile(r'\s*Traceback \(most recent call last\)|\s+File "[^"]{1,400}", line \d+'), "error"),
    (re.compile(r"(?:\S+:\d+: )?(?:[\w.]{0,80})Warning: "), "warning"),
    (re.compile(r"(?:[\w.]{0,120})(?:Error|Exception|Interrupt|Died)(?:: |$)"), "error"),
    (re.compile(r".*\bNCCL WARN\b"), "warning"),
    (re.compile(r".*\bNCCL INFO\b"), "info"),
    (
        re.compile(
            r"(?:\S{1,200}: )?(?:fatal |[A-Z]\w*(?: \w+)? )?(?:[Ee]rror|ERROR)(?::(?! ?[\d.]+$)| while | in "
            r"| (?:(?:down)?load|open|read|writ|creat|fetch)ing )|CMake Error\b|nvcc fatal *: "
            r"|(?:make|ninja)(?:\[\d+\])?: (?:\*\*\*|build stopped)|FAILED: |E: | *× "  # a build's steps, pip, uv
            r"|(?:Scheduler hit an exception|SIGQUIT received|Capture cuda graph failed)"
            r"|(?:[a-z]{3,4} +)?[\w:~]{3,60}: failed to (?:load|open|read|create|allocate) "
            r"|/\S{1,200}\.(?:c|cc|cpp|cu|cuh|h):\d+: (?!\d|warning|note)"  # llama.cpp's abort
            r"|[\w./-]{2,40}: .{0,200}?\b(?:[Nn]ot found|No such file or directory|Permission denied"
            r"|No route to host|Connection refused|[Cc]ouldn't connect to server|Cannot allocate memory)\.?$"
        ),
        "error",
    ),
)


def is_crash(text: str) -> bool:
    """Whether a runtime wrote this message as it ended a process."""
    return _DIES.match(text) is not None


def level_of(text: str) -> Level | None:
    """The level that a line names or clearly has; None if it has none."""
    if text.startswith("{"):
        match = _JSON.match(text)
        return _WORDS.get(match[1][0].lower()) if match else None
    head = head_of(text)
    if head.level:
        return _WORDS[head.level[0].lower()]
    message = text[head.stop :]
    return next((level for pattern, level in _SAYS if pattern.match(message)), None)
