"""Every rule there is, in one list: what the console watches with, and what `sparktop rules` shows."""

from __future__ import annotations

from functools import cache

from sparktop.diagnose import enginelog, exits, kernel, xid
from sparktop.diagnose.diagnosis import RULE_FAILED
from sparktop.diagnose.lint import lifetimes
from sparktop.diagnose.lint import rules as lints
from sparktop.diagnose.lint.userrules import LintRule
from sparktop.diagnose.live import cluster, config, desktop, engine, gpu, guard, host, memory, restart, start
from sparktop.diagnose.live import kernel as live_kernel
from sparktop.diagnose.rule import LiveRule, Rule


@cache
def live_rules(own: tuple[LintRule, ...] = ()) -> tuple[LiveRule, ...]:
    """The rules over the picture, causes before what follows from them; `own` are the operator's lints of what runs."""
    modules = (live_kernel, memory, guard, gpu, desktop, cluster, engine, restart, start, host, config)
    rules = tuple(rule for module in modules for rule in module.RULES)
    return tuple(config.live_rule(own) if own and rule in config.RULES else rule for rule in rules)


def read_ahead() -> None:
    """Read the tables that ship, some 100 ms of work that the first kernel line and the first engine would wait for."""
    kernel.words()
    kernel.bursts()
    xid.catalogue()
    enginelog.wordings()
    exits.endings()
    lints.lints()
    lifetimes.lifetimes()


@cache
def cards() -> tuple[Rule, ...]:
    """The cards of all rules that come with sparktop: over the picture, logs, the kernel log, launches, documents."""
    from sparktop.diagnose import documents, kernelfindings
    from sparktop.diagnose.logs import rules as logs

    live = tuple(rule.card for rule in live_rules())
    known = {card.id for card in live}  # two of the kernel's rules are live rules of their own
    of_kernel = (card for card in kernelfindings.cards() if card.id not in known)
    of_logs = (rule.card for rule in logs.shipped())
    return (*live, *of_logs, *of_kernel, *lints.cards(), *documents.cards(), *exits.cards(), RULE_FAILED)
