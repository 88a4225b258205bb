"""Lint rules as data: what a TOML file of them may say, read and checked. Operators write theirs in the same format.

[[lint]]
id = "site.context-too-long"            # "area.name"
title = "A context of {value} is more than our proxy lets through"   # {value}: what is set
severity = "warning"                    # critical: it stops the engine or the machine; warning; info
scope = "our two Sparks"
engine = "vllm"                         # left out: any
flag = "--max-model-len"                # or `variable = "NCCL_DEBUG"`, or `option = "--shm-size"` of docker
op = "above"                            # present absent equals not-equals above below matches
value = 65536                           # for the last five
versions = ">=0.19, <0.23"              # left out: all; a version that isn't known is not judged
if_unknown = "info"                     # ... but for this: then it is said so, as a suspicion
families = ["NGC", "vllm/vllm-openai"]  # whose images: NGC, vllm/vllm-openai, lmsysorg/sglang, community
nodes = 2                               # 1: one node only; 2: two and more
model = '(?i)fp8'                       # only for models whose name has this
unless_model = '(?i)rerank'             # not for these
unless = ["--moe-backend", "NCCL_NET"]  # not where one of these is given
purpose = "eager|graphs"                # not where a comment in the file has this: it was set on purpose
fix = "65536"                           # the value it should have, or "remove": the changed line is shown
settles = "..."                         # makes it a suspicion, and says what would settle it
explanation = "..."
sources = ["..."]
examples = ["docker run ... / vllm serve ... lines it finds something in"]
quiet = ["lines it leaves alone"]
[[lint.remedy]]
title = "..."
steps = ["..."]
cost = "..."
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from sparktop.cmdline.source import Item
from sparktop.dataclass import dataclass
from sparktop.diagnose.lint.lint import Edit, FindingBuilder, Lint, edited, removed, replaced, with_flag, with_variables
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.engines.images import Family, numbers_of
from sparktop.errors import ConfigError
from sparktop.knowledge import rule_file
from sparktop.launchspec.spec import LaunchSpec
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.text.expression import expression

OPERATORS = ("present", "absent", "equals", "not-equals", "above", "below", "matches")
_TEXTS = (
    "id", "title", "severity", "scope", "engine", "flag", "variable", "option", "op", "versions", "if_unknown",
    "model", "unless_model", "purpose", "fix", "settles", "explanation",
)  # fmt: skip
_CHOICES = {"severity": Severity, "if_unknown": Severity, "engine": EngineKind}
_LISTS = ("families", "unless", "sources", "examples", "quiet")
_KNOWN = (*_TEXTS, *_LISTS, "value", "nodes", "remedy")
_REQUIRED = ("id", "title", "severity", "op", "explanation", "examples")
_REMEDY = ("title", "steps", "cost")
_HOLDS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
_RANGE = re.compile(r"(>=|<=|==|>|<)\s*(\d+(?:\.\d+){0,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRule:
    """A lint rule read from TOML, over flags, variables or Docker options."""

    id: str
    title: str
    severity: Severity
    op: str
    explanation: str
    examples: tuple[str, ...]
    flag: str = ""
    variable: str = ""
    option: str = ""
    value: str = ""
    scope: str = ""
    engine: EngineKind | None = None
    versions: str = ""
    if_unknown: Severity | None = None
    families: tuple[Family, ...] = ()
    nodes: int = 0
    model: str = ""
    unless_model: str = ""
    unless: tuple[str, ...] = ()
    purpose: str = ""
    fix: str = ""
    settles: str = ""
    sources: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    user: bool = False

    @property
    def card(self) -> Rule:
        """Its card, for `sparktop rules list`."""
        return Rule(
            id=self.id,
            kind=RuleKind.LINT,
            title=self.title.replace("{value}", "…"),
            severity=self.severity,
            scope=self.scope or "any engine",
            sources=self.sources,
            user=self.user,
        )

    @property
    def lint(self) -> Lint:
        """The rule as a lint like those written in code."""
        is_sure = self.severity is Severity.WARNING and not self.settles
        return Lint(id=self.id, own_card=self.card, check=partial(_check, self), is_live=self.user or is_sure)

    @property
    def name(self) -> str:
        """The flag, variable or option as typed."""
        return f"--{self.flag or self.option}" if self.flag or self.option else self.variable


@cache
def shipped() -> tuple[LintRule, ...]:
    """The lint rules that ship as TOML."""
    name = "flags.toml"
    return parse(Path(__file__).with_name(name).read_text("utf-8"), name, compiles=False)


def parse(text: str, source: str, *, user: bool = False, compiles: bool = True) -> tuple[LintRule, ...]:
    """The lint rules of one TOML file; its log rules ([[rule]]) have their own parser.

    Args:
        compiles: check every regular expression. The shipped ones are checked by tests.

    Raises:
        ConfigError: malformed TOML or rule; the message names the file, the rule and the key.
    """
    rules = tuple(
        _rule(row, place, user=user, compiles=compiles) for row, place in rule_file.tables(text, source, "lint")
    )
    rule_file.check_distinct((rule.id for rule in rules), source)
    return rules


def _rule(row: Any, place: str, *, user: bool, compiles: bool) -> LintRule:
    row, place = rule_file.checked_table(row, place, _KNOWN, _REQUIRED)
    values: dict[str, Any] = {key: rule_file.value_of_type(row, key, str, place) for key in _TEXTS if key in row}
    values |= {key: rule_file.checked_texts(row[key], key, place) for key in _LISTS if key in row}
    for key in ("flag", "option"):
        if key in values:
            values[key] = values[key].lstrip("-").replace("_", "-")
    if sum(bool(values.get(key)) for key in ("flag", "variable", "option")) != 1:
        raise ConfigError(f"{place}: the rule needs exactly one of `flag`, `variable` and `option`")
    for key in _CHOICES.keys() & values.keys():
        values[key] = rule_file.choice(values[key], key, _CHOICES[key], place)
    families = values.get("families", ())
    values["families"] = tuple(rule_file.choice(family, "families", Family, place) for family in families)
    values["value"] = _value(row, values["op"], place, compiles=compiles)
    if row.get("nodes", 0) not in (0, 1, 2) or isinstance(row.get("nodes"), bool):
        raise ConfigError(f"{place}: `nodes` must be 1 (one node only) or 2 (two or more)")
    values["nodes"] = row.get("nodes", 0)
    unparsed = _RANGE.sub("", values.get("versions", "")).replace(",", "").strip()
    if unparsed or (values.get("versions") == ""):
        raise ConfigError(f"{place}: `versions` must be a range", hint='for example ">=0.19, <0.23"')
    if compiles:
        for key in ("model", "unless_model", "purpose"):
            rule_file.check_regex(values.get(key, ""), key, place)
    if not values["examples"]:
        raise ConfigError(f"{place}: `examples` needs at least one command line that the rule matches")
    return LintRule(user=user, remedies=rule_file.remedies(row, place, keys=_REMEDY), **values)


def _value(row: Mapping[str, Any], op: str, place: str, *, compiles: bool) -> str:
    if op not in OPERATORS:
        raise ConfigError(f"{place}: `op` must be one of {', '.join(OPERATORS)}")
    value = row.get("value")
    if op in ("present", "absent"):
        if value is not None:
            raise ConfigError(f'{place}: `op = "{op}"` takes no `value`')
        return ""
    if value is None or isinstance(value, bool | list | dict):
        raise ConfigError(f'{place}: `op = "{op}"` needs a `value`, a text or a number')
    if op in ("above", "below") and not isinstance(value, int | float):
        raise ConfigError(f'{place}: `op = "{op}"` needs a number as `value`')
    if op == "matches" and compiles:
        rule_file.check_regex(str(value), "value", place)
    return str(value)


def _check(rule: LintRule, spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if not _applies(rule, spec):
        return
    settles = rule.settles or (spec.settles_image if rule.versions or rule.families else "")
    severity: Severity | None = None
    if rule.versions:
        if spec.version is None:
            if rule.if_unknown is None:
                return
            severity = rule.if_unknown
            settles = rule.settles or f"the engine's version: the rule applies to {rule.versions}"
        elif not _in_range(spec.version, rule.versions):
            return
    item = spec.flag(rule.flag) if rule.flag else spec.variable(rule.variable) or spec.option(rule.option)
    if not _matches(rule, spec, item):
        return
    if item is None and (spec.elsewhere or not _is_surely_known(rule, spec)):
        if not rule.flag:
            return
        severity = Severity.INFO
        settles = settles or spec.settles_missing or "the arguments that are set outside this file"
    value = (item.value or "") if item else ""
    remedies = rule.remedies
    if (edit := _edit(rule, spec, item)) is not None:
        remedies = edited(remedies or (Remedy(title="Change it"),), [edit])
    said = Finding(
        rule=rule.id,
        title=rule.title.replace("{value}", value),
        severity=severity or rule.severity,
        explanation=rule.explanation.replace("{value}", value),
        settles=settles,
        remedies=remedies,
        references=rule.sources,
        subject="" if not rule.user else rule.name,
    )
    yield build.of(item, said)


def _applies(rule: LintRule, spec: LaunchSpec) -> bool:
    if (spec.is_ray_start and rule.flag) or (rule.engine is not None and rule.engine is not spec.engine):
        return False
    if rule.purpose and spec.has_remark(rule.purpose):
        return False
    if rule.families and spec.family not in rule.families:
        return False
    if rule.nodes and min(spec.nodes, 2) != rule.nodes:
        return False
    for pattern, is_wanted in ((rule.model, True), (rule.unless_model, False)):
        if pattern and bool(expression(pattern, is_tested=not rule.user).search(spec.model_name)) is not is_wanted:
            return False
    return not any(spec.flag(name) if name.startswith("-") else spec.variable(name) for name in rule.unless)


def _is_surely_known(rule: LintRule, spec: LaunchSpec) -> bool:
    """Whether an item that isn't given is surely missing."""
    if rule.flag:
        return spec.has_command
    return spec.knows_environment if rule.variable else bool(spec.has_container)


def _matches(rule: LintRule, spec: LaunchSpec, item: Item | None) -> bool:
    if rule.op == "absent":
        return item is None and (spec.has_command or not rule.flag)
    if item is None:
        return False
    if rule.op == "present":
        return True
    value = item.value or ""
    if rule.op in ("equals", "not-equals"):
        if not item.is_known:
            return False
        number = Item(name=item.name, value=rule.value).number  # 0.70 equals 0.7
        is_equal = value.lower() == rule.value.lower() or (number is not None and number == item.number)
        return is_equal == (rule.op == "equals")
    if rule.op == "matches":
        return item.is_known and expression(rule.value, is_tested=not rule.user).search(value[:4096]) is not None
    if item.number is None:
        return False
    return item.number > float(rule.value) if rule.op == "above" else item.number < float(rule.value)


def _edit(rule: LintRule, spec: LaunchSpec, item: Item | None) -> Edit | None:
    if not rule.fix:
        return None
    if item is None:
        value = "" if rule.fix == "add" else rule.fix
        return with_flag(spec, rule.flag, value) if rule.flag else with_variables(spec, value, rule.variable)
    return removed(spec, item) if rule.fix == "remove" else replaced(spec, item, rule.fix)


def _in_range(version: str, versions: str) -> bool:
    """Whether a version is in a range; `<=0.22` includes 0.22.1."""
    numbers = numbers_of(version)
    for sign, text in _RANGE.findall(versions):
        parts = 3 if sign in (">=", "<") else text.count(".") + 1
        if not _HOLDS[sign](numbers[:parts], numbers_of(text)[:parts]):
            return False
    return True
