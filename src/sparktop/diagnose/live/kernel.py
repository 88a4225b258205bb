"""What the kernel log says: Xids and what follows what, memory the driver could not get, kills."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
