"""Every rule there is, in one list: what the console watches with, and what `sparktop rules` shows."""

from __future__ import annotations

from functools import cache

from sparktop.diagnose.lint.userrules import LintRule
from sparktop.diagnose.live import cluster, config, desktop, engine, gpu, host, kernel, memory, restart, start
from sparktop.diagnose.rule import LiveRule, Rule


@cache
def live_rules(own: tuple[LintRule, ...] = ()) -> tuple[LiveRule, ...]:
    """The rules over the picture, causes before what follows from them; `own` are the operator's lints of what runs."""
    modules = (kernel, memory, gpu, desktop, cluster, engine, restart, start, host, config)
    rules = tuple(rule for module in modules for rule in module.RULES)
    return tuple(config.live_rule(own) if own and rule in config.RULES else rule for rule in rules)


@cache
def cards() -> tuple[Rule, ...]:
    """The cards of all rules that come with sparktop: over the picture, logs, the kernel log, launch configurations."""
    # Needed by nobody who only watches, and the last brings a YAML reader along.
    from sparktop.diagnose import kernelfindings
    from sparktop.diagnose.lint import rules as lints
    from sparktop.diagnose.logs import rules as logs

    live = tuple(rule.card for rule in live_rules())
    known = {card.id for card in live}  # two of the kernel's rules are live rules of their own
    of_kernel = (card for card in kernelfindings.cards() if card.id not in known)
    return (*live, *(rule.card for rule in logs.shipped()), *of_kernel, *lints.cards())
