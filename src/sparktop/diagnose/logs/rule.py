"""Log rules as data: what a TOML file of them may say, read and checked. The operator's own files have the same format.

    [[rule]]
    id = "vllm.kv-cache-too-small"          # "area.name"
    title = "The KV cache can't hold one request of {max_len} tokens"   # groups of the regex fill it
    severity = "critical"                   # critical: it stops the engine or the machine; warning; info
    scope = "vLLM, all versions"
    engine = "vllm"                         # only in that engine's log; left out: in any text
    any = ["GiB KV cache is needed"]        # a line without one of these is never shown to the regex
    regex = 'seq len \\((?P<max_len>\\d+)\\)'
    unless = 'while stream is capturing'    # a line that has this is not it
    near = 'fused_moe/layer\\.py'           # one of the `near_lines` lines before (or the line itself) must have this
    near_lines = 40
    lines = 2                               # so many more lines belong to it: the regex sees them, after "\n"
    last_words = true                       # reads the error that ended a program (`last_words`) instead of lines; in
                                            # `unless` the words which say that the reason stands elsewhere, in `near`
                                            # those by which an unknown program's error concerns this machine
    at_least = 3                            # so many such lines before it is said
    ends_start = true                       # taken back where the same run comes to serve all the same
    of_clients = true                       # of a request that the server refuses: one alone is nobody's problem
    when = "starting"                       # or "serving": only before, or only after, the engine said that it serves
    rank = 50                               # nearer to the root: larger. Of two findings the larger is the cause
    consequence = true                      # only tells that something broke; hangs under whatever says what
    fallback = true                         # said only where no rule that knows a cause speaks near it
    follows = ["vllm.env-unknown"]          # rules whose finding, where there is one, is this one's cause
    confidence = "suspected"                # left out: confirmed
    settles = "..."                         # what would settle it, where it is suspected
    explanation = "..."                     # groups fill it too
    distinction = ["..."]                   # why it is not its look-alikes
    sources = ["field report 001", "vllm-project/vllm#35313"]
    examples = ["lines it reads"]           # a list within the list is several lines, one after the other
    quiet = ["lines like it that it must leave alone"]
    [[rule.remedy]]
    title = "..."
    steps = ["..."]                         # groups fill it, quoted for a shell; {container}, {image}, {model} and
                                            # {log} (what prints it) are the engine's, where it is known
    cost = "..."
    engine = "vllm"                         # only for that engine's log; within a text `[vllm: --a][sglang: --b]` says
                                            # it to each in its own words, and to another program nothing
    action = "relaunch"
    change = { flags = { "--max-model-len" = "{fits}" } }   # what the relaunch changes; also environment, options (of
                                            # Docker's HostConfig), remove = ["--flag", "VARIABLE"], and a table each
                                            # for vllm and sglang where they say it differently. Values: a text, ""
                                            # for a switch, "auto" for a computed share, "-0.05" off what stands there

After a line that says that the engine was told to stop, only rules with `after_stop = true` speak.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.errors import ConfigError
from sparktop.knowledge import rule_file
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Remedy

RANK = 50
NEAR_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """One rule over log lines."""

    id: str
    title: str
    severity: Severity
    regex: str
    any: tuple[str, ...]
    scope: str = ""
    engine: EngineKind | None = None
    unless: str = ""
    near: str = ""
    near_lines: int = NEAR_LINES
    lines: int = 0
    last_words: bool = False
    at_least: int = 1
    when: str = ""
    rank: int = RANK
    consequence: bool = False
    fallback: bool = False
    after_stop: bool = False
    ends_start: bool = False
    of_clients: bool = False
    follows: tuple[str, ...] = ()
    confidence: Confidence = Confidence.CONFIRMED
    settles: str = ""
    explanation: str = ""
    distinction: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    sources: tuple[str, ...] = ()
    examples: tuple[tuple[str, ...], ...] = ()
    quiet: tuple[tuple[str, ...], ...] = ()
    user: bool = False

    @property
    def card(self) -> Rule:
        """Its card, for `sparktop rules list`."""
        return Rule(
            id=self.id,
            kind=RuleKind.LOG,
            title=re.sub(r"(?:\{\w+\})+", "…", self.title),
            severity=self.severity,
            scope=self.scope or "any text",
            sources=self.sources,
            user=self.user,
        )


_TEXTS = ("id", "title", "scope", "engine", "regex", "unless", "near", "when", "settles", "explanation")
_NUMBERS = ("near_lines", "lines", "at_least", "rank")
_SWITCHES = ("last_words", "consequence", "fallback", "after_stop", "ends_start", "of_clients")
_LISTS = ("any", "follows", "distinction", "sources")
_LINES = ("examples", "quiet")
_KNOWN = (*_TEXTS, *_NUMBERS, *_SWITCHES, *_LISTS, *_LINES, "severity", "confidence", "remedy")
_REQUIRED = ("id", "title", "severity", "any", "regex", "explanation", "examples")


@cache
def shipped() -> tuple[LogRule, ...]:
    """The log rules that ship with sparktop, ordered by file name."""
    folder = Path(__file__).with_name("rules")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    texts = ((folder.joinpath(name).read_text("utf-8"), name) for name in names)
    return tuple(rule for text, name in texts for rule in parse(text, name, compiles=False))


@cache
def of_clients() -> frozenset[str]:
    """The rules of requests that the server refuses: told once several came."""
    return frozenset(rule.id for rule in shipped() if rule.of_clients)


def parse(text: str, source: str, *, user: bool = False, compiles: bool = True) -> tuple[LogRule, ...]:
    """The log rules of one TOML file.

    Args:
        compiles: check every regular expression. The shipped ones are checked by tests, and most are never used.

    Raises:
        ConfigError: malformed TOML or rule; the message names the file, the rule and the key.
    """
    rules = tuple(
        _rule(row, place, user=user, compiles=compiles) for row, place in rule_file.tables(text, source, "rule")
    )
    rule_file.check_distinct((rule.id for rule in rules), source)
    return rules


def _rule(row: Any, place: str, *, user: bool, compiles: bool) -> LogRule:
    row, place = rule_file.checked_table(row, place, _KNOWN, _REQUIRED)
    values: dict[str, Any] = {key: rule_file.value_of_type(row, key, str, place) for key in _TEXTS if key in row}
    values |= {key: rule_file.value_of_type(row, key, int, place) for key in _NUMBERS if key in row}
    values |= {key: rule_file.value_of_type(row, key, bool, place) for key in _SWITCHES if key in row}
    values |= {key: rule_file.checked_texts(row[key], key, place) for key in _LISTS if key in row}
    values |= {key: _lines(row[key], key, place) for key in _LINES if key in row}
    if not values["any"] or not all(values["any"]):
        raise ConfigError(f"{place}: `any` wants at least one text that the line must hold")
    for key in ("regex", "unless", "near") if compiles else ():
        rule_file.check_regex(values.get(key, ""), key, place)
    values["severity"] = rule_file.choice(row["severity"], "severity", Severity, place)
    if "confidence" in row:
        values["confidence"] = rule_file.choice(row["confidence"], "confidence", Confidence, place)
    if "engine" in values:
        values["engine"] = rule_file.choice(row["engine"], "engine", EngineKind, place)
    if values.get("when", "") not in ("", "starting", "serving"):
        raise ConfigError(f'{place}: `when` is "starting" or "serving"')
    return LogRule(user=user, remedies=rule_file.remedies(row, place), **values)


def _lines(value: Any, key: str, place: str) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (entry,) if isinstance(entry, str) else rule_file.checked_texts(entry, key, place)
        for entry in rule_file.checked_list(value, key, place)
    )
