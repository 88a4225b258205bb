"""The machine itself: a driver that waits for a reboot, a kernel without one, a disk that fills up."""

from __future__ import annotations

from sparktop.diagnose.rule import LiveRule

RULES: tuple[LiveRule, ...] = ()
