"""Every rule there is, in one list: what the console watches with, and what `sparktop rules` shows."""

from __future__ import annotations

from functools import cache

from sparktop.diagnose.live import cluster, config, desktop, engine, gpu, host, kernel, memory, restart, start
from sparktop.diagnose.rule import LiveRule


@cache
def live_rules() -> tuple[LiveRule, ...]:
    """The rules over the picture, causes before what follows from them."""
    modules = (kernel, memory, gpu, desktop, cluster, engine, restart, start, host, config)
    return tuple(rule for module in modules for rule in module.RULES)
