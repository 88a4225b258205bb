"""What an engine counts over a scenario: totals and histograms that only rise, second by second."""

from __future__ import annotations

from functools import cached_property

from sparktop.sim.script import EngineScript, Repeat, Scenario
from sparktop.sim.tracks import noise

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""facts/engines.md section 3.1."""

_NAMES = ("prompt", "generation", "requests", "cached", "preemptions", "ttft_sum", "itl_sum")


class EngineCounters:
    """Counters of one engine since its last start; `t` is seconds of the showing."""

    def __init__(self, scenario: Scenario, engine: EngineScript) -> None:
        self._scenario = scenario
        self._engine = engine

    def at(self, t: float) -> dict[str, float]:
        """Totals by the names of `_NAMES`, and cumulative buckets as ttft<i> and itl<i>."""
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
        length = len(self._table) - 1
        rounds = 0.0
        if self._scenario.repeat is Repeat.LOOP:
            rounds, t = divmod(t, length)
        second = min(int(t), length - 1)
        low, high = self._table[second], self._table[second + 1]
        part = t - second  # beyond the end of a scenario that holds, its last second goes on
        whole = self._table[length]
        return {key: rounds * whole[key] + low[key] + (high[key] - low[key]) * part for key in low}

    @cached_property
    def _table(self) -> list[dict[str, float]]:
        tracks = self._engine.tracks
        rows = [dict.fromkeys([*_NAMES, *self._step(0, prompt=0.0, generation=0.0)], 0.0)]
        for second in range(max(1, round(self._scenario.length_s))):
            middle = second + 0.5
            lively = 1 + 0.06 * noise(self._engine.port, self._engine.name, second, every_s=1.0)
            prompt = tracks["prompt_tps"].mean(second, second + 1) * lively
            generation = tracks["gen_tps"].mean(second, second + 1) * lively
            step = self._step(middle, prompt=prompt, generation=generation)
            rows.append({key: rows[-1][key] + step[key] for key in rows[-1]})
        return rows

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


def _share(bound: float, median: float, steepness: float) -> float:
    """The share of a log-logistic distribution below a bound."""
    return 1.0 / (1.0 + float((median / bound) ** steepness))
