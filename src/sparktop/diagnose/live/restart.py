"""Engines that ended, and what brings them back too soon or too often."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
