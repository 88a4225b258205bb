"""The operator's own rules: their files read and checked, and each rule tried on its own examples."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparktop.diagnose.catalogue import cards
from sparktop.diagnose.logs import rules as logrules
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rules import LogRule
from sparktop.errors import ConfigError, SparktopError
from sparktop.model.event import Severity
from sparktop.model.fleet import Notice

if TYPE_CHECKING:
    from sparktop.diagnose.lint.userrules import LintRule

TABLES = ("rule", "lint")
_SERVES = "INFO:     Application startup complete."
"""What a log says when its engine serves: before the examples of rules for that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRules:
    """What the operator's files hold; a file that can't be meant gives nothing but its problem."""

    log: tuple[LogRule, ...] = ()
    lint: tuple[LintRule, ...] = ()
    problems: tuple[ConfigError, ...] = ()

    @property
    def every(self) -> tuple[LogRule | LintRule, ...]:
        return (*self.log, *self.lint)

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """What a console that starts all the same must say."""
        return tuple(
            Notice(severity=Severity.WARNING, text=f"own rules left out: {error.message}") for error in self.problems
        )

    def strict(self) -> OwnRules:
        """These, where nothing is wrong with any.

        Raises:
            ConfigError: the first problem there is.
        """
        if self.problems:
            raise self.problems[0]
        return self


def read_own(files: Iterable[tuple[str, str]]) -> OwnRules:
    """The rules of these files, (name, text) each. An id that is taken, by us or by an earlier file, is a problem."""
    taken: dict[str, str] = {}
    log: list[LogRule] = []
    lint: list[LintRule] = []
    problems: list[ConfigError] = []
    for name, text in files:
        if not taken:
            taken = {card.id: "one of sparktop's own" for card in cards()}
        try:
            found, checks = _parse(text, name)
            for rule in OwnRules(log=found, lint=checks).every:
                if rule.id in taken:
                    raise ConfigError(f"{name}: {rule.id} is taken by {taken[rule.id]}", hint="give it another id")
                taken[rule.id] = name
        except ConfigError as error:
            problems.append(error)
            continue
        log += found
        lint += checks
    return OwnRules(log=tuple(log), lint=tuple(lint), problems=tuple(problems))


def _parse(text: str, name: str) -> tuple[tuple[LogRule, ...], tuple[LintRule, ...]]:
    from sparktop.diagnose.lint import userrules  # brings a YAML reader along

    found = logrules.parse(text, name, user=True), userrules.parse(text, name, user=True)
    unknown = [key for key in tomllib.loads(text) if key not in TABLES]
    if unknown:
        raise ConfigError(f"{name}: unknown key `{unknown[0]}`", hint="rules are [[rule]] and [[lint]] tables")
    return found


def log_faults(rule: LogRule) -> list[str]:
    """What is wrong with a log rule by its own examples: one it doesn't read, a quiet line that it does."""
    wrong = [f"it doesn't read its example: {_shown(lines)}" for lines in rule.examples if not _reads(rule, lines)]
    return wrong + [
        f"it reads a line it must leave alone: {_shown(lines)}" for lines in rule.quiet if _reads(rule, lines)
    ]


def _reads(rule: LogRule, lines: Sequence[str]) -> bool:
    reader = LogReader((rule,), rule.engine)
    if rule.when == "serving":
        reader.feed(_SERVES)
    for _ in range(rule.at_least):
        for line in lines:
            reader.feed(line)
    return bool(reader.findings("example"))


def lint_faults(rule: LintRule) -> list[str]:
    """The same for a lint rule; its examples are command lines."""
    wrong = [f"it finds nothing in its example: {_shown([text])}" for text in rule.examples if not _finds(rule, text)]
    quiet = [text for text in rule.quiet if _finds(rule, text)]
    return wrong + [f"it finds something where it must not: {_shown([text])}" for text in quiet]


def _finds(rule: LintRule, text: str) -> bool:
    from sparktop.diagnose.lint.reading import read

    try:
        specs = read(text, "example").specs
    except SparktopError:
        return False
    return any(rule.lint.findings(spec) for spec in specs)


def _shown(lines: Sequence[str]) -> str:
    text = " ⏎ ".join(lines)
    return text if len(text) <= 160 else f"{text[:160]}…"
