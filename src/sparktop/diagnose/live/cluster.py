"""Two nodes that should be alike and linked, and are not."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
