"""A node's figures before a console began, from what earlier ones recorded: so that its charts reach back."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.dataclass import dataclass
from sparktop.model.telemetry import GpuReading, Sample
from sparktop.observe.history import Past, Points
from sparktop.observe.received import Probed, Scraped
from sparktop.observe.replay.recorder import unpacked
from sparktop.record.tape import Entry

EVERY_S = 15.0
"""One value in so long is enough: charts of older times are no finer."""


@dataclass(slots=True)
class _Thin:
    """Takes one of many."""

    last_s: float = float("-inf")

    def wants(self, at_s: float) -> bool:
        if at_s - self.last_s < EVERY_S:
            return False
        self.last_s = at_s
        return True


def past_of(entries: Iterable[Entry]) -> Past:
    """The figures that a tape holds, thinned out."""
    samples, readings = _Thin(), _Thin()
    counters: dict[str, tuple[float, float]] = {}
    available: Points = []
    utilisation: Points = []
    power: Points = []
    tokens: Points = []
    for entry in entries:
        if entry.kind == "scraped":
            received = unpacked(entry)
            if isinstance(received, Scraped) and received.metrics is not None:
                now, count = entry.at_s, received.metrics.generation_tokens
                then, before = counters.get(received.key, (float("-inf"), 0.0))
                if count is not None and now - then >= EVERY_S:
                    counters[received.key] = now, count
                    if now - then < 4 * EVERY_S and count >= before:
                        tokens.append((now, (count - before) / (now - then)))
            continue
        is_sample, is_reading = b'"kind":"sample"' in entry.payload[:200], b'"kind":"gpu"' in entry.payload[:200]
        thin = samples if is_sample else readings
        if entry.kind != "probed" or not (is_sample or is_reading) or not thin.wants(entry.at_s):
            continue
        message = Probed.of(entry.payload).message
        if isinstance(message, Sample):
            available.append((entry.at_s, float(message.memory.available_bytes)))
        elif isinstance(message, GpuReading) and message.gpus:
            utilisation.append((entry.at_s, message.gpus[0].utilisation_percent))
            power.append((entry.at_s, message.gpus[0].power_w))
    return Past(available=available, utilisation=utilisation, power=power, tokens=tokens)
