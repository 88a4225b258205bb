"""Memory bandwidth, said honestly: a counter where one moves, an estimate where the model is known, else why not.

GB10 exposes no memory-bandwidth counter (facts/gb10.md section 0); decode reads every active weight once a token, so
tokens/s times active bytes is the usable proxy, and is always called an estimate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparktop.model.engine import Engine
from sparktop.model.fleet import Bandwidth
from sparktop.model.telemetry import Gpu

GB10_PEAK_BYTES_PER_S = 273e9

_ACTIVE = re.compile(r"(?:^|[-_.])A(\d+(?:\.\d+)?)B(?=$|[-_.])", re.IGNORECASE)
_TOTAL = re.compile(r"(?:^|[-_.])(\d+(?:\.\d+)?)B(?=$|[-_.])", re.IGNORECASE)
_KNOWN_ACTIVE_BILLIONS = {
    "gpt-oss-120b": 5.1,
    "gpt-oss-20b": 3.6,
    "minimax-m2": 10.0,
}
"""Mixtures of experts whose names don't say how much of them is active (their model cards)."""
_BITS = (
    (re.compile(r"nvfp4|mxfp4|fp4|int4|w4a16|awq|gptq|q4", re.IGNORECASE), 4.5),
    (re.compile(r"fp8|int8|w8a8|q8", re.IGNORECASE), 8.0),
)
_MXFP4_BY_DEFAULT = "gpt-oss"


def active_bytes(model: str) -> float | None:
    """Bytes of weights read for one token, from the model's name alone; None where the name doesn't tell."""
    name = model.rstrip("/").rsplit("/", 1)[-1]
    known = next((size for key, size in _KNOWN_ACTIVE_BILLIONS.items() if key in name.lower()), None)
    if known is None:
        match = _ACTIVE.search(name) or _TOTAL.search(name)
        if match is None:
            return None
        known = float(match.group(1))
    default = 4.5 if _MXFP4_BY_DEFAULT in name.lower() else 16.0
    bits = next((bits for pattern, bits in _BITS if pattern.search(name)), default)
    return known * 1e9 * bits / 8


def bandwidth(gpu: Gpu | None, engines: Sequence[Engine]) -> Bandwidth:
    """What can be said of the node's memory bandwidth now."""
    if gpu is None:
        return Bandwidth(reason="no GPU reading")
    if gpu.bandwidth_percent is not None:
        return Bandwidth(percent=gpu.bandwidth_percent)
    estimate = 0.0
    told = False
    for engine in engines:
        speed = engine.rates.generation_tokens_per_s if engine.rates else None
        weights = active_bytes(engine.model) if engine.model else None
        if speed is not None and weights is not None:
            # Requests of one batch share a read of the weights (of a mixture of experts only in part: a low estimate).
            running = max(1.0, (engine.metrics.running if engine.metrics else None) or 1.0)
            estimate += speed * weights / running
            told = True
    reason = "n/a on GB10" if gpu.is_gb10 else "no counter"
    return Bandwidth(
        estimated_bytes_per_s=estimate if told else None,
        peak_bytes_per_s=GB10_PEAK_BYTES_PER_S if gpu.is_gb10 else None,
        reason=reason,
    )
