"""`sparktop rules`: lists all rules, shows one in full, and checks the operator's own rule files."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sparktop.config import config_home, shown
from sparktop.diagnose import container_exit
from sparktop.diagnose.catalogue import OwnRules, cards, lint_faults, live_rules, log_faults, read_own
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.kernel import xid
from sparktop.diagnose.lint import catalogue as lint_catalogue
from sparktop.diagnose.lint import user_rules
from sparktop.diagnose.lint.user_rules import LintRule
from sparktop.diagnose.logs import rule as log_rule
from sparktop.diagnose.logs.rule import LogRule
from sparktop.diagnose.names import PLACEHOLDERS, fill, for_engine
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.documents.data import plain
from sparktop.documents.finding import remedy_lines
from sparktop.errors import UsageError, nearest_names
from sparktop.headless.terminal import draw, put_json, width_of
from sparktop.model.event import Advice
from sparktop.model.finding import Remedy
from sparktop.text.lines import Line, hanging, spaced, titled
from sparktop.text.sentences import phrases

Entry = str | tuple[str, str] | Line | Remedy
"""A paragraph, one with a sign before it, a line that is shown as it is, or a remedy."""
Section = tuple[str, Sequence[Entry]]


def all_cards(own: OwnRules) -> tuple[Rule, ...]:
    """The cards of the shipped rules, then of the operator's own."""
    return (*cards(), *(rule.card for rule in own.every))


def list_rules(own: OwnRules, *, as_json: bool) -> int:
    """Print one line per rule; the counts go to standard error."""
    all_rules = all_cards(own)
    if as_json:
        put_json({"rules": plain(all_rules)})
        return 0
    widest = max(len(card.id) for card in all_rules)
    for card in all_rules:
        mine = "  (yours)" if card.user else ""
        print(f"{card.id:<{widest}}  {card.kind.value:8}  {card.severity.value:8}  {card.title}{mine}")
    sys.stdout.flush()
    counts = Counter(card.kind.value for card in all_rules)
    counts_text = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"sparktop: {len(all_rules)} rules: {counts_text}; sparktop rules show ID tells of one", file=sys.stderr)
    return 0


def show_rule(name: str, own: OwnRules) -> int:
    """Print a rule in full.

    Raises:
        UsageError: there is no such rule.
    """
    card_of = {card.id: card for card in all_cards(own)}
    if name not in card_of:
        near = nearest_names(name, card_of, least=0.5, most=3) or [rule for rule in card_of if name in rule][:3]
        hint = f"did you mean {' or '.join(near)}?" if near else "sparktop rules list shows them"
        raise UsageError(f"there is no rule {name}", hint=hint)
    draw(_page(card_of[name], own, width_of(sys.stdout)), sys.stdout)
    return 0


def _page(card: Rule, own: OwnRules, width: int) -> list[Line]:
    """A rule in full, with the headings that its findings have."""
    kind = f"{card.kind.value} rule, {card.severity.value} at worst{', yours' if card.user else ''}"
    head = [
        Line.of((card.id, "title")),
        *hanging(Line.of("  "), card.title, width),
        Line.of("  ", (kind, "quiet")),
    ]
    sources = ("Sources", [("· ", source) for source in card.sources])
    sections = [*_sections(card, own), ("Holds for", [card.scope] if card.scope else []), sources]
    return spaced([head, *(titled(title, _lines(entries, width - 2), indent=2) for title, entries in sections)])


def _lines(entries: Sequence[Entry], width: int) -> list[Line]:
    lines: list[Line] = []
    for number, entry in enumerate([entry for entry in entries if entry], 1):
        if isinstance(entry, Remedy):
            title, *steps = (fill(text, PLACEHOLDERS) for text in (entry.title, *entry.steps))
            remedy = replace(entry, title=title, steps=tuple(steps))
            lines += remedy_lines(number, remedy, width, is_printed=True)
        elif isinstance(entry, Line):
            lines.append(entry)
        else:
            sign, text = entry if isinstance(entry, tuple) else ("", entry)
            lines += hanging(Line.of((sign, "faint")), text, width)
    return lines


def _sections(card: Rule, own: OwnRules) -> Iterator[Section]:
    log = {rule.id: rule for rule in (*log_rule.shipped(), *own.log)}
    lint = {rule.id: rule for rule in (*user_rules.shipped(), *own.lint)}
    if card.id in log:
        yield from _log_sections(log[card.id])
    elif card.id in lint:
        yield from _lint_sections(lint[card.id])
    elif card.kind is RuleKind.LIVE:
        watching = next((rule for rule in live_rules() if rule.id == card.id), None)
        if watching is None:
            yield "Looks for", ["a rule that raises instead of answering"]
        else:
            yield from _live_sections(watching)
    elif card.kind is RuleKind.KERNEL:
        yield from _kernel_sections(card.id)
    elif card.kind is RuleKind.DOCUMENT:
        yield from _document_sections(card.id)
    else:
        lint_rule = next(candidate for candidate in lint_catalogue.lints() if candidate.id == card.id)
        files = "launch files and running engines" if lint_rule.is_live else "launch files"
        yield "Looks for", [_doc_text(lint_rule.check) or f"what its title says, in {files}"]


def _document_sections(rule: str) -> Iterator[Section]:
    code, ending = next(
        ((code, candidate) for code, candidate in container_exit.endings().items() if candidate.rule == rule),
        ("", None),
    )
    if ending is None:
        yield "Looks for", ["what its title says, in what the program printed"]
        return
    sign = {"oom": "Docker's OOMKilled", "other": "any exit code without a rule of its own"}
    yield "Looks for", [f"{sign.get(code, f'exit code {code}')} of a container that ended in the last minutes"]
    yield "What it says", [ending.explanation]
    yield "To be sure", [fill(ending.settles, PLACEHOLDERS)]
    yield "What to do", ending.remedies


def _log_sections(rule: LogRule) -> Iterator[Section]:
    signs = [f"a line with {' or '.join(repr(text) for text in rule.any)}"]
    signs += phrases(
        ("that matches  {}", rule.regex),
        ("and doesn't match  {}", rule.unless),
        (f"within {rule.near_lines} lines of  {{}}", rule.near),
        ("{} times or more", rule.at_least > 1 and rule.at_least),
        ("only while the engine is {}", rule.when),
        ("only in the log of {}", rule.engine),
    )
    yield "Signals", _verbatim(signs)
    yield "What it says", [rule.explanation]
    yield "Why this and nothing else", [("· ", text) for text in rule.distinction]
    yield "To be sure", [fill(rule.settles, PLACEHOLDERS)]
    yield "Follows from", rule.follows
    yield "What to do", for_engine(rule.remedies, None)
    yield "Examples it reads", _examples(rule.examples)
    yield "Lines it leaves alone", _examples(rule.quiet)


def _lint_sections(rule: LintRule) -> Iterator[Section]:
    signs = [f"{rule.name} {rule.op} {rule.value}".rstrip()]
    signs += phrases(
        ("{}", rule.engine and f"{rule.engine} {rule.versions}".rstrip()),
        ("images of {}", ", ".join(rule.families)),
        ("{}", {1: "one node only", 2: "two nodes and more"}.get(rule.nodes)),
        ("models that match {}", rule.model),
        ("not where {} is given", " or ".join(rule.unless)),
    )
    yield "Signals", _verbatim(signs)
    yield "What it says", [rule.explanation]
    yield "To be sure", [rule.settles]
    yield "What to do", rule.remedies
    yield "Examples it finds something in", _examples([rule.examples])
    yield "Examples it leaves alone", _examples([rule.quiet])


def _live_sections(rule: LiveRule) -> Iterator[Section]:
    yield "Looks for", [_doc_text(rule.check) or "what its title says"]
    course = [
        f"it is said once it has held for {rule.hold_s:g} s" if rule.hold_s else "it is said as soon as it is seen"
    ]
    course += [f"it is resolved once it has been gone for {rule.clear_s:g} s"]
    yield "Course", course
    yield "Follows from", rule.follows


def _kernel_sections(name: str) -> Iterator[Section]:
    code = name.removeprefix("kernel.xid-")
    if code.isdecimal():
        yield "Signals", [f"an NVRM line with Xid {code}"]
        yield "What it says", _advice(xid.lookup(int(code)).advice)
        return
    feeding = [pattern for pattern in kernel_line.patterns() if pattern.rule == name]
    yield "Signals", _verbatim(f"a kernel line that matches  {pattern.regex}" for pattern in feeding)
    yield "What it says", _advice(tuple(dict.fromkeys(advice for pattern in feeding for advice in pattern.advice)))
    yield "Examples it reads", _examples(pattern.examples for pattern in feeding)
    yield "Lines it leaves alone", _examples(pattern.quiet for pattern in feeding)


def _advice(advice: Iterable[Advice]) -> list[Entry]:
    lines: list[Entry] = []
    for item in advice:
        lines.append(f"{item.source}: {item.meaning}")
        lines += [("  → ", item.remedy)] if item.remedy else []
    return lines


def _verbatim(texts: Iterable[str]) -> list[Entry]:
    return [Line.of(text) for text in texts]


def _examples(examples: Iterable[Sequence[str]]) -> list[Entry]:
    return [Line.of(("| ", "faint"), part) for lines in examples for line in lines for part in line.splitlines()]


def _doc_text(check: Callable[..., Any]) -> str:
    """The docstring of a check, or of the function that it applies in part, without a leading rule id."""
    text = " ".join((inspect.getdoc(getattr(check, "func", check)) or "").split())
    name, colon, rest = text.partition(": ")
    return rest[:1].upper() + rest[1:] if colon and "." in name and " " not in name else text


def check_files(files: Sequence[tuple[str, str]]) -> int:
    """Read each file and try each of its rules on its own examples; 0 when nothing is wrong, else 1."""
    problem_count = 0
    file_of_rule: dict[str, str] = {}
    for name, text in files:
        own = read_own([(name, text)])
        for problem in own.problems:
            print(f"✖ {problem.message}" + (f"\n    {problem.hint}" if problem.hint else ""))
        faults = [(rule.id, fault) for rule in own.log for fault in log_faults(rule)]
        faults += [(rule.id, fault) for rule in own.lint for fault in lint_faults(rule)]
        faults += [
            (rule.id, f"{file_of_rule[rule.id]} has this rule id") for rule in own.every if rule.id in file_of_rule
        ]
        file_of_rule |= {rule.id: name for rule in own.every}
        for rule_id, fault in faults:
            print(f"✖ {name}: {rule_id}: {fault}")
        problem_count += len(own.problems) + len(faults)
        if own.every and not faults:
            print(f"✓ {name}: {len(own.every)} rule{'s' if own.every[1:] else ''}")
        elif not own.every and not own.problems:
            print(f"▲ {name}: no [[rule]] and no [[lint]] in it")
    if not files:
        print(f"no rule file: yours go to {shown(config_home() / 'rules')}/*.toml")
    return 1 if problem_count else 0
