"""Every rule that sparktop knows, shipped or the operator's own, and the check of a rule against its own examples."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from sparktop.dataclass import dataclass
from sparktop.diagnose import container_exit
from sparktop.diagnose.diagnosis import RULE_FAILED
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.logs import engine_state
from sparktop.diagnose.logs import rule as log_rule
from sparktop.diagnose.logs.rule import LogRule
from sparktop.diagnose.rule import LiveRule, Rule
from sparktop.diagnose.rules.engine import answers, config, down, ended, guard, progress
from sparktop.diagnose.rules.gpu import capture, power, spin
from sparktop.diagnose.rules.host import away, blind, desktop, kernel_log, previous_boot, system
from sparktop.diagnose.rules.memory import held, low, starvation
from sparktop.diagnose.rules.pair import (
    container_access,
    link,
    memory_parity,
    nccl,
    node_parity,
    rank_config_parity,
    rank_died,
)
from sparktop.errors import ConfigError, SparktopError
from sparktop.model.event import Severity
from sparktop.model.fleet import Notice

if TYPE_CHECKING:  # the lints are imported when there is an engine, or a file to check
    from sparktop.diagnose.lint.user_rules import LintRule

TABLES = ("rule", "lint")
_SERVING_LINE = "INFO:     Application startup complete."
"""A log line that says that an engine serves; fed before the examples of rules with `when = "serving"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRules:
    """The rules in the operator's files; a file with an error contributes only its error to `problems`."""

    log: tuple[LogRule, ...] = ()
    lint: tuple[LintRule, ...] = ()
    problems: tuple[ConfigError, ...] = ()

    @property
    def every(self) -> tuple[LogRule | LintRule, ...]:
        return (*self.log, *self.lint)

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """Warnings for a console that starts without the faulty files."""
        return tuple(
            Notice(severity=Severity.WARNING, text=f"own rules left out: {error.message}") for error in self.problems
        )

    def strict(self) -> OwnRules:
        """These rules, if every file was read without an error.

        Raises:
            ConfigError: the first error.
        """
        if self.problems:
            raise self.problems[0]
        return self


def read_own(files: Iterable[tuple[str, str]]) -> OwnRules:
    """Read the operator's rules from (file name, text) pairs.

    A rule whose id sparktop or an earlier file already uses makes its whole file an error.
    """
    id_owners: dict[str, str] = {}
    log: list[LogRule] = []
    lint: list[LintRule] = []
    problems: list[ConfigError] = []
    for name, text in files:
        if not id_owners:
            id_owners = {card.id: "one of sparktop's own" for card in cards()}
        try:
            log_rules, lint_rules = _parse(text, name)
            for rule in OwnRules(log=log_rules, lint=lint_rules).every:
                if rule.id in id_owners:
                    raise ConfigError(f"{name}: {rule.id} is taken by {id_owners[rule.id]}", hint="give it another id")
                id_owners[rule.id] = name
        except ConfigError as error:
            problems.append(error)
            continue
        log += log_rules
        lint += lint_rules
    return OwnRules(log=tuple(log), lint=tuple(lint), problems=tuple(problems))


def _parse(text: str, name: str) -> tuple[tuple[LogRule, ...], tuple[LintRule, ...]]:
    from sparktop.diagnose.lint import user_rules

    rules = log_rule.parse(text, name, user=True), user_rules.parse(text, name, user=True)
    unknown_keys = [key for key in tomllib.loads(text) if key not in TABLES]
    if unknown_keys:
        raise ConfigError(f"{name}: unknown key `{unknown_keys[0]}`", hint="rules are [[rule]] and [[lint]] tables")
    return rules


def log_faults(rule: LogRule) -> list[str]:
    """Faults of a log rule, found by its own examples: an example it misses, a quiet line it matches."""
    misses = [f"it doesn't read its example: {_excerpt(lines)}" for lines in rule.examples if not _matches(rule, lines)]
    return misses + [
        f"it reads a line it must leave alone: {_excerpt(lines)}" for lines in rule.quiet if _matches(rule, lines)
    ]


def _matches(rule: LogRule, lines: Sequence[str]) -> bool:
    from sparktop.diagnose.logs.reader import LogReader

    reader = LogReader((rule,), rule.engine)
    if rule.when == "serving":
        reader.feed(_SERVING_LINE)
    for _ in range(rule.at_least):
        for line in lines:
            reader.feed(line)
    return bool(reader.findings("example"))


def lint_faults(rule: LintRule) -> list[str]:
    """Faults of a lint rule, found by its own examples, which are command lines."""
    misses = [
        f"it finds nothing in its example: {_excerpt([text])}"
        for text in rule.examples
        if not _finds_anything(rule, text)
    ]
    false_matches = [text for text in rule.quiet if _finds_anything(rule, text)]
    return misses + [f"it finds something where it must not: {_excerpt([text])}" for text in false_matches]


def _finds_anything(rule: LintRule, text: str) -> bool:
    from sparktop.launchspec.read.configuration import read

    try:
        specs = read(text, "example").specs
    except SparktopError:
        return False
    return any(rule.lint.findings(spec) for spec in specs)


def _excerpt(lines: Sequence[str]) -> str:
    text = " ⏎ ".join(lines)
    return text if len(text) <= 160 else f"{text[:160]}…"


_LIVE_RULES = (
    kernel_log.oom_kill,
    kernel_log.nvrm_no_memory,
    kernel_log.failures,
    starvation.first_request_spike,
    starvation.falling,
    starvation.starved,
    held.held_after_exit,
    low.low,
    low.pressure,
    low.swap_used,
    guard.fired,
    guard.failed,
    power.power_wedge,
    spin.spin_deadlock,
    capture.capture_stuck,
    power.thermal,
    desktop.frozen,
    link.link_down,
    rank_died.rank_died,
    memory_parity.memory_apart,
    node_parity.dgx_os_differs,
    node_parity.driver_differs,
    node_parity.kernel_differs,
    node_parity.image_differs,
    node_parity.engine_version_differs,
    rank_config_parity.environment_differs,
    link.mtu_differs,
    link.link_slow,
    container_access.bridge_network,
    nccl.interface_wrong,
    nccl.gid_index,
    nccl.hca_wrong,
    nccl.hca_unset,
    container_access.no_infiniband_device,
    container_access.memlock,
    link.nccl_on_tcp,
    container_access.ray_monitor,
    container_access.linger,
    *progress.LOGS,
    progress.no_tokens,
    progress.kv_cache_full,
    progress.load_stalled,
    progress.not_answering,
    answers.wrong_answers,
    answers.answers_cut,
    down.engine_down,
    ended.ended,
    ended.restart_loop,
    ended.too_soon,
    ended.policies_fight,
    previous_boot.rebooted,
    away.away,
    system.driver_pending,
    system.next_kernel,
    system.driver_branch,
    system.kernel_advisory,
    system.disk_low,
    system.clock,
    blind.collectors,
    blind.docker_denied,
    system.zombies,
)
"""Causes before their consequences."""


@cache
def live_rules(own: tuple[LintRule, ...] = ()) -> tuple[LiveRule, ...]:
    """All live rules, causes before consequences. `own`: the operator's lint rules, applied to running engines."""
    return (*_LIVE_RULES, config.running(own))


def read_ahead() -> None:
    """Load the table of the kernel log now, so that its first line doesn't wait; that of Xids comes with the first."""
    kernel_line.words()
    kernel_line.bursts()


def read_ahead_for_engines() -> None:
    """Load what is applied to engines, so that the first one's first picture doesn't wait about 100 ms."""
    from sparktop.diagnose.lint import catalogue as lint_catalogue
    from sparktop.diagnose.lint import lifetimes
    from sparktop.launchspec.read import running  # noqa: F401 - only imported

    engine_state.wordings()
    container_exit.endings()
    lint_catalogue.lints()
    lifetimes.lifetimes()


@cache
def cards() -> tuple[Rule, ...]:
    """The cards of all shipped rules: live, log, kernel, lint and document rules."""
    from sparktop.diagnose.kernel import findings
    from sparktop.diagnose.lint import catalogue as lint_catalogue
    from sparktop.diagnose.outputs import reader as outputs_reader

    live_cards = tuple(rule.card for rule in live_rules())
    live_ids = {card.id for card in live_cards}  # two kernel rules are also live rules
    kernel_cards = (card for card in findings.cards() if card.id not in live_ids)
    log_cards = (rule.card for rule in log_rule.shipped())
    return (
        *live_cards,
        *log_cards,
        *kernel_cards,
        *lint_catalogue.cards(),
        *outputs_reader.cards(),
        *container_exit.cards(),
        RULE_FAILED,
    )
