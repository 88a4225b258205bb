"""An engine's log, as text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.script import ENGINE_TRACKS, ContainerScript, EngineScript, LogEntry, Repeat
from sparktop.sim.spark.engine_start import lines_of
from sparktop.sim.spark.exposition import KV_TOKENS
from sparktop.sim.spark.spark import Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One piece of output, as the Docker Engine streams it."""

    at_s: float
    stream: str
    data: bytes
    """Ends in a newline, except for states of a progress bar drawn in place."""


def records(spark: Spark, container: ContainerScript, after_s: float, until_s: float) -> list[Record]:
    """All output after `after_s` up to `until_s`, in order."""
    engine = next((e for e in spark.script.engines if e.name == container.name), None)
    all_records = [
        Record(at_s=at, stream=entry.stream, data=data)
        for entry, end_s in _entries(spark, container.name)
        for at, data in _entry_output(spark, container, engine, entry, after_s, until_s)
        if at <= end_s
    ]
    all_records.sort(key=lambda record: record.at_s)
    return all_records


@lru_cache(maxsize=64)
def _entries(spark: Spark, name: str) -> tuple[tuple[LogEntry, float], ...]:
    """(line, the second after which it is no longer written) of a container: a scenario's own, and its runs'."""
    container = spark.script.container(name)
    assert container is not None
    own = [(entry, float("inf")) for entry in container.log]
    runs = [
        (entry, float("inf") if run.end_s is None else run.end_s)
        for run in container.runs
        for entry in lines_of(spark.scenario, spark.script, container, run)
    ]
    return (*own, *runs)


def _entry_output(
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
    step = entry.every_s or (spark.scenario.length_s if _loops(spark, entry) else None)
    if step is None:
        if after_s < entry.at_s <= until_s:
            yield entry.at_s
        return
    last = until_s if entry.every_s is None or entry.until_s is None else min(until_s, entry.until_s)
    number = int((after_s - entry.at_s) // step) if after_s > entry.at_s else 0
    while (at := entry.at_s + number * step) <= last:
        if at > after_s:
            yield at
        number += 1


def _busy(engine: EngineScript | None, t: float, window_s: float) -> bool:
    if engine is None:
        return False
    if engine.kind == "sglang":
        return engine.tracks["gen_tps"].mean(t - window_s, t) > 0
    # vLLM logs its line once more after the last token: it stops after two windows without tokens.
    return any(engine.tracks[name].mean(t - 2 * window_s, t) > 0 for name in ("gen_tps", "prompt_tps"))


def _bar(
    spark: Spark, engine: EngineScript | None, entry: LogEntry, after_s: float, until_s: float
) -> Iterator[tuple[float, bytes]]:
    """A bar's states; Docker hands over one that is drawn in place as a whole, with the newline at its end."""
    total, drawn = entry.total or 1, b""
    end_s = entry.at_s if entry.until_s is None else entry.until_s
    for done in range(total + 1) if entry.at_s <= until_s and after_s < end_s else ():
        at = entry.at_s + (end_s - entry.at_s) * done / total
        elapsed, filled = at - entry.at_s, 10 * done // total
        rate = done / elapsed if elapsed > 0 else 0.0
        fields = _fields(spark, engine, at) | {
            "done": done, "total": total, "percent": 100.0 * done / total, "bar": "█" * filled + " " * (10 - filled),
            "elapsed": _clock(elapsed), "left": _clock((total - done) / rate) if rate else "?",
            "rate": f"{rate:5.2f}it/s" if rate else "?it/s",
        }  # fmt: skip
        drawn += b"\r" + entry.text.format_map(fields).encode()
        if entry.newline or done == total:
            if after_s < at <= until_s:
                yield at, drawn + b"\n"
            drawn = b""


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
        "vllm_time": time.strftime("%m-%d %H:%M:%S", at), "sglang_time": time.strftime("%Y-%m-%d %H:%M:%S", at),
        "kv_percent": 100 * float(fields["kv"]), "kv_tokens": KV_TOKENS * float(fields["kv"]),
        "hit_percent": 100 * float(fields["prefix_hit"]), "available_gib": spark.figure("available_gib", t),
    }  # fmt: skip


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
