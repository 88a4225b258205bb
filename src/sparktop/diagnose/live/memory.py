"""Memory: falling, spiking at the first request, held after an exit, apart from its baseline."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
