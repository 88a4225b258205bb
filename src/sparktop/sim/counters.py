"""What an engine counts over a scenario: totals and histograms that only rise, second by second."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import ceil

from sparktop.sim.script import EngineScript
from sparktop.sim.tracks import Track, noise

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""facts/engines.md section 3.1."""


class EngineCounters:
    """Counters of one engine since its last start; `t` is seconds of the showing."""

    def __init__(self, engine: EngineScript) -> None:
        self._engine = engine

    def at(self, t: float) -> dict[str, float]:
        """Totals by the names of `_step`, and cumulative buckets as ttft<i> and itl<i>."""
        engine = self._engine
        since = max((start for start, _ in engine.serves if start <= t), default=0.0)
        now, then = self._total(max(t, 0.0)), self._total(max(since, 0.0))
        totals = {key: now[key] - then[key] for key in now}
        if since <= 0:
            self._add_history(totals)
        return totals

    def _add_history(self, totals: dict[str, float]) -> None:
        engine = self._engine
        shape = self._step(0, prompt=0.0, generation=1.0, busy=False)
        totals["prompt"] += engine.prompt_tokens
        totals["generation"] += engine.generation_tokens
        totals["requests"] += engine.requests
        totals["cached"] += engine.prompt_tokens * engine.tracks["prefix_hit"].at(0)
        for key, share in shape.items():
            if key.startswith("ttft"):
                totals[key] += share * engine.request_tokens * engine.requests
            elif key.startswith("itl"):
                totals[key] += share * engine.generation_tokens

    def _total(self, t: float) -> dict[str, float]:
        found = dict.fromkeys(self._names, 0.0)
        for stretch in self._stretches:
            if t > stretch.start_s:
                part = self._counted(stretch, min(t, stretch.end_s) - stretch.start_s)
                found = {key: value + part[key] for key, value in found.items()}
        return found

    def _counted(self, stretch: _Stretch, t: float) -> dict[str, float]:
        if not stretch.table:
            self._fill(stretch)
        length = len(stretch.table) - 1
        rounds = 0.0
        if stretch.repeats:
            rounds, t = divmod(t, length)
        second = min(int(t), length - 1)
        low, high, whole = stretch.table[second], stretch.table[second + 1], stretch.table[length]
        part = t - second  # beyond the last keyframe its last second goes on
        return {key: rounds * whole[key] + low[key] + (high[key] - low[key]) * part for key in low}

    @cached_property
    def _stretches(self) -> list[_Stretch]:
        """What lies between two changes of course: each repeats, or stands still after its last keyframe."""
        parts = [part for track in self._engine.tracks.values() for part in track.stretches]
        starts = [0.0, *sorted({part.from_s for part in parts if part.before is not None and part.from_s > 0})]
        found: list[_Stretch] = []
        for start, end in pairwise([*starts, float("inf")]):
            holds = [track.holds(start) for track in self._engine.tracks.values()]
            period = max((one.period_s or 0.0 for one in holds if len(one.times) > 1), default=0.0)
            last = max(one.times[-1] for one in holds) - start
            found.append(
                _Stretch(start, end, repeats=bool(period), seconds=max(1, ceil(period or min(last, end - start)) + 1))
            )
        return found

    def _fill(self, stretch: _Stretch) -> None:
        tracks = self._engine.tracks
        stretch.table.append(dict.fromkeys(self._names, 0.0))
        for second in range(stretch.seconds - 1 if stretch.repeats else stretch.seconds):
            begin = stretch.start_s + second
            lively = 1 + 0.06 * noise(self._engine.port, self._engine.name, begin, every_s=1.0)
            # Up to a change of course, and not over it: beyond it another stretch counts.
            prompt, generation = (_mean(tracks[name], begin, stretch) * lively for name in ("prompt_tps", "gen_tps"))
            step = self._step(begin + 0.5, prompt=prompt, generation=generation)
            stretch.table.append({key: value + step[key] for key, value in stretch.table[-1].items()})

    @cached_property
    def _names(self) -> list[str]:
        return list(self._step(0, prompt=0.0, generation=0.0))

    def _step(self, t: float, *, prompt: float, generation: float, busy: bool = True) -> dict[str, float]:
        tracks, engine = self._engine.tracks, self._engine
        ttft, itl = tracks["ttft_s"].at(t), tracks["itl_s"].at(t)
        requests = generation / engine.request_tokens
        step = {
            "prompt": prompt,
            "generation": generation,
            "requests": requests,
            "cached": prompt * tracks["prefix_hit"].at(t),
            "preemptions": tracks["preemptions_per_s"].at(t) if busy else 0.0,
            "ttft_sum": requests * ttft * 1.2,
            "itl_sum": generation * itl * 1.05,
        }
        step |= {f"ttft{i}": requests * _share(le, ttft, 3.0) for i, le in enumerate(TTFT_BUCKETS_S)}
        step |= {f"itl{i}": generation * _share(le, itl, 8.0) for i, le in enumerate(ITL_BUCKETS_S)}
        return step


@dataclass(slots=True)
class _Stretch:
    """From one change of course to the next."""

    start_s: float
    end_s: float
    repeats: bool
    seconds: int
    table: list[dict[str, float]] = field(default_factory=list)
    """Totals after each second of it, as they are wanted."""


def _mean(track: Track, begin_s: float, stretch: _Stretch) -> float:
    return track.holds(stretch.start_s).alone.mean(begin_s, begin_s + 1)


def _share(bound: float, median: float, steepness: float) -> float:
    """The share of a log-logistic distribution below a bound."""
    return 1.0 / (1.0 + float((median / bound) ** steepness))
