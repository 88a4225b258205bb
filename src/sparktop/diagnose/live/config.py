"""What runs now against what is known of its flags and variables: lint, live."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
