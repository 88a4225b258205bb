"""The GPU: spinning instead of working, starved of power, too hot."""

from __future__ import annotations

from sparktop.diagnose.live import spin
from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = (*spin.RULES,)
