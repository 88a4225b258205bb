"""What one line of a living engine's log costs: read with all rules, beside making out the engine's phase from it."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.explain import _line
from tests.bench.lab import Lab
from tests.bench.table import Row

from sparktop.diagnose.logs.engine_state import EngineLogState, advance_all
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rule import shipped
from sparktop.masking import mask_text
from sparktop.model.engine import EngineKind
from sparktop.model.telemetry import LogLine

LINES = 40_000
BATCH = 1_000
PER_S = 17_000
"""As many as the Docker follower's pump lets through."""
GOAL_PERCENT = 25.0
HOW = (
    "{lines:,} lines of a kind that tells nothing, in one thread, the best of five: microseconds a line of "
    "`LogReader.feed` with all {rules} log rules, and of `advance_all` in pieces of {batch:,}, which the console "
    "did before there were log rules; the share is of one core at {per_s:,} lines/s, the most that the pump "
    "lets through. `a new text each`: seven words by chance, so that no line is like one before."
)


def rows(lab: Lab) -> Iterator[Row]:
    """The part of the table."""
    rng = random.Random(7)
    words = (
        "most", "warm", "water", "in", "deep", "northern", "lakes", "lies", "under", "thick", "white", "ice", "now",
    )  # fmt: skip
    bar = "█" * 10
    kinds = {
        "statistics and requests as vLLM writes them": [_line(rng, number).rstrip() for number in range(LINES)],
        "progress bars": [
            f"Loading shards: {n % 100:3}%|{bar[: n % 10]:10}| {n % 67}/67 [00:{n % 60:02}<00:12, {n % 3}.21s/it]"
            for n in range(LINES)
        ],
        "a new text each": [" ".join(rng.choices(words, k=7)) for _ in range(LINES)],
    }
    for name, texts in kinds.items():
        runs = [_timed(texts) for _ in range(2 if lab.quick else 5)]
        reader_us, phase_us = (min(run[which] for run in runs) for which in (0, 1))
        share = reader_us * PER_S / 1e4
        yield Row(
            measure=f"log rules over a line of a living log: {name}",
            result=f"{reader_us:.1f} µs, {share:.0f} % of a core at {PER_S:,} lines/s",
            baseline=f"its phase {phase_us:.1f} µs",
            goal=f"< {GOAL_PERCENT:g} %",
            met=share < GOAL_PERCENT,
            how=HOW.format(lines=LINES, rules=len(shipped()), batch=BATCH, per_s=PER_S),
        )


def _timed(texts: Sequence[str]) -> tuple[float, float]:
    """Microseconds a line of the rules, and of the phase."""
    reader = LogReader(shipped(), EngineKind.VLLM, mask=mask_text)
    reader.feed("INFO:     Application startup complete.")
    began_s = time.perf_counter()
    for number, text in enumerate(texts, 1):
        reader.feed(text, line=number)
    rules_s = time.perf_counter() - began_s
    lines = [LogLine(text=text) for text in texts]
    state = EngineLogState()
    began_s = time.perf_counter()
    for start in range(0, len(lines), BATCH):
        state = advance_all(state, lines[start : start + BATCH], EngineKind.VLLM)
    phase_s = time.perf_counter() - began_s
    return 1e6 * rules_s / len(texts), 1e6 * phase_s / len(texts)


if __name__ == "__main__":
    from tests.bench.table import plain

    print(plain(list(rows(Lab(folder=Path(), nodes=(), quick="--quick" in sys.argv)))))
