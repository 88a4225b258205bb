"""The desktop: alive and not answering, while every figure says idle."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
