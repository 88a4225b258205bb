"""What an engine says of itself: its log, held requests, a load that stands still."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
