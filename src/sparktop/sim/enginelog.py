"""What a container's log says and when: lines, lines that come again, and progress bars drawn with `\\r`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from sparktop.sim.exposition import KV_TOKENS
from sparktop.sim.script import ENGINE_TRACKS, ContainerScript, EngineScript, LogEntry, Repeat
from sparktop.sim.spark import Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One piece of output as the Docker Engine would hand it on."""

    at_s: float
    stream: str
    data: bytes
    """Ends in a newline, but for the states of a bar that is drawn in place."""


def records(spark: Spark, container: ContainerScript, after_s: float, until_s: float) -> list[Record]:
    """Everything written after one second and up to another, in order."""
    engine = next((e for e in spark.script.engines if e.name == container.name), None)
    found = [
        Record(at_s=at, stream=entry.stream, data=data)
        for entry in container.log
        for at, data in _of(spark, container, engine, entry, after_s, until_s)
    ]
    found.sort(key=lambda record: record.at_s)
    return found


def _of(
    spark: Spark,
    container: ContainerScript,
    engine: EngineScript | None,
    entry: LogEntry,
    after_s: float,
    until_s: float,
) -> Iterator[tuple[float, bytes]]:
    if entry.total is not None:
        yield from _bar(spark, engine, entry, after_s, until_s)
        return
    recurs = entry.every_s is not None or _loops(spark, entry)
    for at in _times(spark, entry, after_s, until_s):
        if entry.busy and not _busy(engine, at, entry.every_s or 0.0):
            continue
        if recurs and not any(r.start_s <= at < (at + 1 if r.end_s is None else r.end_s) for r in container.runs):
            continue
        if recurs and entry.every_s is None and engine is not None and not engine.serves_at(at):
            continue
        yield at, (entry.text.format_map(_fields(spark, engine, at)) + "\n").encode()


def _loops(spark: Spark, entry: LogEntry) -> bool:
    return spark.scenario.repeat is Repeat.LOOP and entry.at_s >= 0 and not entry.once


def _times(spark: Spark, entry: LogEntry, after_s: float, until_s: float) -> Iterator[float]:
    if entry.every_s is None:
        step = spark.scenario.length_s if _loops(spark, entry) else float("inf")
        last = until_s
    else:
        step, last = entry.every_s, min(until_s, entry.until_s if entry.until_s is not None else until_s)
    if step == float("inf"):
        if after_s < entry.at_s <= last:
            yield entry.at_s
        return
    count = max(0, int((after_s - entry.at_s) // step)) if after_s > entry.at_s else 0
    while (at := entry.at_s + count * step) <= last:
        if at > after_s:
            yield at
        count += 1


def _busy(engine: EngineScript | None, t: float, window_s: float) -> bool:
    if engine is None:
        return False
    if engine.kind == "sglang":
        return engine.tracks["gen_tps"].mean(t - window_s, t) > 0
    # vLLM says so once more after its last token: its line falls silent when two windows in a row had none.
    return any(engine.tracks[name].mean(t - 2 * window_s, t) > 0 for name in ("gen_tps", "prompt_tps"))


def _bar(
    spark: Spark, engine: EngineScript | None, entry: LogEntry, after_s: float, until_s: float
) -> Iterator[tuple[float, bytes]]:
    total, steps = entry.total or 1, max(0, entry.last - entry.first)
    end = entry.until_s if entry.until_s is not None else entry.at_s
    for i in range(steps + 1):
        at = entry.at_s + (end - entry.at_s) * (i / steps if steps else 0.0)
        if not after_s < at <= until_s:
            continue
        done, elapsed = entry.first + i, at - entry.at_s
        rate = i / elapsed if elapsed > 0 else 0.0
        filled = 10 * done // total
        fields = _fields(spark, engine, at) | {
            "done": done,
            "total": total,
            "percent": 100.0 * done / total,
            "bar": "█" * filled + " " * (10 - filled),
            "elapsed": _clock(elapsed),
            "left": _clock((total - done) / rate) if rate else "?",
            "rate": rate,
        }
        ending = "\n" if entry.newline or done == total else ""
        yield at, f"\r{entry.text.format_map(fields)}{ending}".encode()


def _fields(spark: Spark, engine: EngineScript | None, t: float) -> dict[str, float | str]:
    at = time.gmtime(spark.wall_s(t))
    fields: dict[str, float | str] = dict.fromkeys(ENGINE_TRACKS, 0.0)
    fields |= {"prompt_tokens": 0.0, "generation_tokens": 0.0}
    if engine is not None:
        fields |= {name: track.mean(t - 10, t) if name.endswith("_tps") else track.at(t)
                   for name, track in engine.tracks.items()}  # fmt: skip
        totals = spark.counters[engine.name].at(t)
        fields |= {"prompt_tokens": totals["prompt"], "generation_tokens": totals["generation"]}
    return fields | {
        "vllm_time": time.strftime("%m-%d %H:%M:%S", at),
        "sglang_time": time.strftime("%Y-%m-%d %H:%M:%S", at),
        "kv_percent": 100 * float(fields["kv"]),
        "kv_tokens": KV_TOKENS * float(fields["kv"]),
        "hit_percent": 100 * float(fields["prefix_hit"]),
        "available_gib": spark.figure("available_gib", t),
    }


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
