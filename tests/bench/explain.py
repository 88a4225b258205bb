"""How fast `sparktop explain` reads a long log, beside `grep -E` of the same patterns, and how much memory it takes."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.lab import Lab
from tests.bench.table import Row, median, ratio, spread
from tests.hostile_lines import hostile

from sparktop.diagnose.kernel import line as kernel
from sparktop.diagnose.logs.rule import shipped

HOW = (
    "`python -m sparktop explain --json FILE` on a generated log, from just before its start to its end, and the "
    "largest resident set of the process; before it `grep -cE -f` with every log and kernel rule's regular expression "
    "(those that POSIX can't say as their fixed texts) on the same file, LC_ALL=C.UTF-8. The log is vLLM's while it "
    "serves: statistics, requests, answers, a tenth of the lines with 32 random hexadecimal digits, one with a "
    "request's parameters in each ten; at its end a CUDA out-of-memory with its traceback, in its middle an Xid."
)
HOW_HOSTILE = (
    "`python -m sparktop explain --json FILE` on 300 lines of 2 to 16 kB, each grown from the regular expression and "
    "the fixed texts of another log rule (tests/hostile_lines.py), and on as many lines as long of ordinary words: "
    "user and system time, the start of the program included, the best of the runs."
)
HOSTILE_LINES = 300
GOAL_HOSTILE = 4.0
GOAL_MB_PER_S = 10.0
GOAL_MB = 80.0

_FAULT = """\
(EngineCore pid=99) ERROR 03-14 08:00:00 [core.py:9] Traceback (most recent call last):
(EngineCore pid=99) ERROR 03-14 08:00:00 [core.py:9]   File "/opt/vllm/v1/engine/core.py", line 5, in step
(EngineCore pid=99) ERROR 03-14 08:00:00 [core.py:9] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate \
2.00 GiB. GPU 0 has a total capacity of 121.69 GiB of which 1.00 GiB is free.
(APIServer pid=1) ERROR 03-14 08:00:00 [async_llm.py:9] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
"""
_XID = (
    "[ 4711.000001] NVRM: Xid (PCI:000f:01:00): 13, pid=99, name=python3, Graphics Exception: ESR 0x404490=0x80000001\n"
)


def rows(lab: Lab) -> Iterator[Row]:
    megabytes = 10 if lab.quick else 100
    log = generated(lab.folder / "engine.log", megabytes)
    patterns = lab.folder / "patterns"
    patterns.write_text("\n".join(expressions()) + "\n")
    seconds, peaks, greps = [], [], []
    for _ in range(1 if lab.quick else 5):
        greps.append(_timed(["grep", "-cE", "-f", str(patterns), str(log)])[0])
        took_s, peak_mb = _timed([sys.executable, "-m", "sparktop", "explain", "--json", str(log)])
        seconds.append(took_s)
        peaks.append(peak_mb)
    speed, grep = [megabytes / each for each in seconds], [megabytes / each for each in greps]
    yield Row(
        measure=f"explain: a log of {megabytes} MB, MB/s",
        result=spread(speed, "{:.1f}"),
        baseline=f"`grep -E` of the same {len(expressions())} patterns {spread(grep, '{:.1f}')}, "
        f"{ratio(median(speed), median(grep))}",
        goal=f"{GOAL_MB_PER_S:.0f}",
        met=median(speed) >= GOAL_MB_PER_S,
        how=HOW,
    )
    yield Row(
        measure=f"explain: memory on {megabytes} MB, MB",
        result=spread(peaks, "{:.1f}"),
        goal=f"{GOAL_MB:.0f}",
        met=median(peaks) <= GOAL_MB,
        how=HOW,
    )
    yield _hostile(lab)


def _hostile(lab: Lab) -> Row:
    """What lines grown from our own rules cost, which any client of an engine can have written to its log."""
    rng = random.Random(14)
    grown = [
        rng.choice([text for text in hostile(rule.regex, rng.choice((2000, 4000, 8000, 16000)), rule.any) if text])
        for rule in rng.sample(shipped(), HOSTILE_LINES)
    ]
    words = ("most", "warm", "water", "in", "deep", "northern", "lakes", "lies", "under", "thick", "white", "ice")
    took_s: dict[str, float] = {}
    for name, lines in (
        ("hostile", [line.replace("\n", " ") for line in grown]),
        ("plain", [" ".join(rng.choices(words, k=len(line) // 5))[: len(line)] for line in grown]),
    ):
        path = lab.folder / f"{name}.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
        command = [sys.executable, "-m", "sparktop", "explain", "--json", str(path)]
        took_s[name] = min(_processor_s(command) for _ in range(2 if lab.quick else 5))
    times = took_s["hostile"] / took_s["plain"]
    return Row(
        measure=f"explain: {HOSTILE_LINES} lines grown from our rules' own words, s of a core",
        result=f"{took_s['hostile']:.2f}",
        baseline=f"plain lines of their size {took_s['plain']:.2f}, {ratio(took_s['hostile'], took_s['plain'])}",
        goal=f"x {GOAL_HOSTILE:g}",
        met=times <= GOAL_HOSTILE,
        how=HOW_HOSTILE,
    )


def _processor_s(command: list[str]) -> float:
    """User and system time."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        _, _, usage = os.wait4(running.pid, 0)
        running.returncode = 0
    return usage.ru_utime + usage.ru_stime


def _timed(command: list[str]) -> tuple[float, float]:
    """Seconds, and the largest resident set in MB."""
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"}) as running:
        _, _, usage = os.wait4(running.pid, 0)
        running.returncode = 0
    return time.monotonic() - begun, usage.ru_maxrss / 1024


def expressions() -> list[str]:
    """Every rule's regular expression as POSIX has it; where it can't, the rule's fixed texts."""
    found: list[str] = []
    for regex, words in [(rule.regex, rule.any) for rule in shipped()] + [
        (pattern.regex, pattern.literals) for pattern in kernel.patterns()
    ]:
        plain = re.sub(r"\(\?P<\w+>|\(\?:", "(", regex).replace(r"\d", "[0-9]")
        plain = re.sub(r"(?<!\\)([*+?}])\?", r"\1", plain)
        if re.search(r"\(\?|\[[^\]]*\\|\\[^wWsSbB.|()\[\]{}*+?^$/<>-]|[*+?}]\+", plain):
            found += [re.sub(r"([.\\|()\[\]{}*+?^$])", r"\\\1", word) for word in words]
        else:
            found.append(plain)
    return list(dict.fromkeys(found))


def generated(path: Path, megabytes: int) -> Path:
    """A log of an engine that serves all day, until it doesn't."""
    rng = random.Random(20260314)
    with path.open("w") as file:
        file.write("(APIServer pid=1) INFO 03-14 00:00:00 [api_server.py:9] vLLM API server version 0.14.0\n")
        file.write("(APIServer pid=1) INFO:     Application startup complete.\n")
        written, number, half = 0, 0, True
        while written < megabytes * 1_000_000:
            line = _line(rng, number)
            file.write(line)
            written += len(line)
            number += 1
            if half and written > megabytes * 500_000:
                half = False
                file.write(_XID)
        file.write(_FAULT)
    return path


def _line(rng: random.Random, number: int) -> str:
    at = f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
    kind = number % 10
    if kind < 4:
        return (
            f"(APIServer pid=1) INFO 03-14 {at} [loggers.py:257] Engine 000: Avg prompt throughput: "
            f"{rng.random() * 900:.1f} tokens/s, Avg generation throughput: {rng.random() * 90:.1f} tokens/s, "
            f"Running: {number % 5} reqs, Waiting: 0 reqs, GPU KV cache usage: {rng.random() * 99:.1f}%, "
            f"Prefix cache hit rate: {rng.random() * 99:.1f}%\n"
        )
    if kind < 8:
        port = 30000 + number % 20000
        return f'(APIServer pid=1) INFO:     172.17.0.1:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    request = f"chatcmpl-{rng.getrandbits(128):032x}"
    if kind < 9:
        return f"(APIServer pid=1) INFO 03-14 {at} [async_llm.py:345] Added request {request}.\n"
    return (
        f"(APIServer pid=1) INFO 03-14 {at} [logger.py:39] Received request {request}: prompt: None, params: "
        f"SamplingParams(n=1, temperature=0.7, top_p=0.8, top_k=20, min_p=0.0, seed={number}, stop=[], "
        f"max_tokens={number % 4096}), prompt_token_ids: None, lora_request: None.\n"
    )
