"""Every rule there is, in one list: what the console watches with, and what `sparktop rules` shows."""

from __future__ import annotations

from functools import cache

from sparktop.diagnose.live import cluster, config, desktop, engine, gpu, host, kernel, memory, restart, start
from sparktop.diagnose.rule import LiveRule, Rule


@cache
def live_rules() -> tuple[LiveRule, ...]:
    """The rules over the picture, causes before what follows from them."""
    modules = (kernel, memory, gpu, desktop, cluster, engine, restart, start, host, config)
    return tuple(rule for module in modules for rule in module.RULES)


@cache
def cards() -> tuple[Rule, ...]:
    """The cards of all rules that come with sparktop: over the picture, logs, the kernel log, launch configurations."""
    # Needed by nobody who only watches, and the last brings a YAML reader along.
    from sparktop.diagnose import kernelfindings
    from sparktop.diagnose.lint import rules as lints
    from sparktop.diagnose.logs import rules as logs

    live = tuple(rule.card for rule in live_rules())
    return (*live, *(rule.card for rule in logs.shipped()), *kernelfindings.cards(), *lints.cards())
