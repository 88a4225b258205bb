"""What is left to the host, and how high a share may go: the figures that a launch and a restart both decide by. Pure.

Facts: facts/engines.md 1A (MEM-01, MEM-03, MEM-08) and conflict C2: no constant share serves, it is computed from
what is available, less a reserve.
"""

from __future__ import annotations

from sparktop.diagnose.live.window import GIB
from sparktop.model.engine import EngineKind

RESERVE_DESKTOP_BYTES = 20 * GIB
RESERVE_HEADLESS_BYTES = 12 * GIB
HOST_BYTES = 4 * GIB
"""Left to the host beside everything; the guard's own default floor."""
MOST = 0.87
"""Above it the first requests have been seen to take the host's memory (C2)."""
NEVER_ABOVE = 0.90
"""Above it a machine whose GPU shares its memory loses it sooner or later (C2)."""
MOST_LONG = 0.82
"""Of vLLM on two nodes with a long context: Xid 43 above it (MEM-03)."""
LONG_TOKENS = 131072
MOST_PAIR_SGLANG = 0.84
"""Of SGLang on two nodes: at 0.85 the poorer one swapped (MEM-08)."""


def reserve_bytes(has_desktop: bool | None, own_gib: float | None = None) -> tuple[int, str]:
    """(what is to be left to the host at the least, why so much).

    Args:
        has_desktop: None where that isn't known: then as with one.
        own_gib: the recipe's own figure, which wins.
    """
    if own_gib is not None and own_gib >= 0:
        return int(min(own_gib, 9999.0) * GIB), "the recipe's reserve"
    if has_desktop is False:
        return RESERVE_HEADLESS_BYTES, "no desktop runs"
    return RESERVE_DESKTOP_BYTES, "a desktop runs" if has_desktop else "whether a desktop runs isn't known"


def most_share(kind: EngineKind, nodes: int, context_tokens: int | None) -> float:
    """The highest share that can be called comfortable; above it a launch is tight at best."""
    if nodes > 1 and kind is EngineKind.SGLANG:
        return MOST_PAIR_SGLANG
    if nodes > 1 and context_tokens is not None and context_tokens >= LONG_TOKENS:
        return MOST_LONG
    return MOST
