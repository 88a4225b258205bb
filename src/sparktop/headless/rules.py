"""`sparktop rules`: lists every rule, shows one with all that it knows, and checks the operator's own files."""

from __future__ import annotations

import inspect
import json
import signal
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from types import FrameType
from typing import Any, TextIO

from sparktop.config import config_home, shown
from sparktop.diagnose import exits, kernel, kernelfindings, xid
from sparktop.diagnose.catalogue import cards, live_rules
from sparktop.diagnose.lint import rules as lintrules
from sparktop.diagnose.lint import userrules
from sparktop.diagnose.lint.userrules import LintRule
from sparktop.diagnose.logs import rules as logrules
from sparktop.diagnose.logs.rules import LogRule
from sparktop.diagnose.ownrules import OwnRules, lint_faults, log_faults, read_own
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.errors import UsageError
from sparktop.model.event import Advice, KernelEvent
from sparktop.model.finding import Remedy

EXAMPLE_LIMIT_S = 1.0
"""A regular expression that takes longer on its own examples would hold up every log it reads."""
WIDTH = 100
Section = tuple[str, list[str]]
"""A heading, and lines already broken to the width."""


def all_cards(own: OwnRules) -> tuple[Rule, ...]:
    """The cards of our rules, then of the operator's."""
    return (*cards(), *(rule.card for rule in own.every))


def list_rules(own: OwnRules, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> int:
    """One line a rule; how many there are goes to standard error."""
    out, err = out or sys.stdout, err or sys.stderr
    known = all_cards(own)
    if as_json:
        print(json.dumps({"version": 1, "rules": [_card_data(card) for card in known]}, ensure_ascii=False), file=out)
        return 0
    widest = max(len(card.id) for card in known)
    for card in known:
        mine = "  (yours)" if card.user else ""
        print(f"{card.id:<{widest}}  {card.kind.value:8}  {card.severity.value:8}  {card.title}{mine}", file=out)
    out.flush()
    counts = Counter(card.kind.value for card in known)
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"sparktop: {len(known)} rules: {told}; sparktop rules show ID tells of one", file=err)
    return 0


def _card_data(card: Rule) -> dict[str, Any]:
    return {
        "id": card.id,
        "kind": card.kind.value,
        "severity": card.severity.value,
        "title": card.title,
        "scope": card.scope,
        "sources": list(card.sources),
        "user": card.user,
    }


def show_rule(name: str, own: OwnRules, *, out: TextIO | None = None) -> int:
    """All that a rule knows.

    Raises:
        UsageError: there is no such rule.
    """
    known = {card.id: card for card in all_cards(own)}
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.5) or [each for each in known if name in each][:3]
        hint = f"did you mean {' or '.join(near)}?" if near else "sparktop rules list shows them"
        raise UsageError(f"there is no rule {name}", hint=hint)
    print("\n".join(_page(known[name], own)), file=out or sys.stdout)
    return 0


def _page(card: Rule, own: OwnRules) -> list[str]:
    lines = [card.id, f"  {card.title}", ""]
    whose = ", yours" if card.user else ""
    lines += [f"  {card.kind.value} rule, {card.severity.value} at worst{whose}"]
    lines += _wrapped(f"holds for: {card.scope}", 2) if card.scope else []
    for heading, body in _sections(card, own):
        if body:
            lines += ["", f"{heading}:", *body]
    sources = [line for source in card.sources for line in _wrapped(f"- {source}", 2)]
    return [*lines, "", "sources:", *sources] if sources else lines


def _sections(card: Rule, own: OwnRules) -> Iterator[Section]:
    log = {rule.id: rule for rule in (*logrules.shipped(), *own.log)}
    lint = {rule.id: rule for rule in (*userrules.shipped(), *own.lint)}
    if card.id in log:
        yield from _log_sections(log[card.id])
    elif card.id in lint:
        yield from _lint_sections(lint[card.id])
    elif card.kind is RuleKind.LIVE:
        watching = next((rule for rule in live_rules() if rule.card.id == card.id), None)
        if watching is None:
            yield "looks for", ["  a rule that raises instead of answering"]
        else:
            yield from _live_sections(watching)
    elif card.kind is RuleKind.KERNEL:
        yield from _kernel_sections(card.id)
    elif card.kind is RuleKind.DOCUMENT:
        yield from _document_sections(card.id)
    else:
        found = next(each for each in lintrules.lints() if each.card.id == card.id)
        where = "launch files and running engines" if found.is_live else "launch files"
        yield "looks for", _wrapped(_doc(found.check) or f"what its title says, in {where}", 2)


def _document_sections(rule: str) -> Iterator[Section]:
    code, ending = next(((code, each) for code, each in exits.endings().items() if each.rule == rule), ("", None))
    if ending is None:
        yield "looks for", ["  what its title says, in what the program printed"]
        return
    sign = {"oom": "Docker's OOMKilled", "other": "any exit code without a rule of its own"}
    yield "looks for", [f"  {sign.get(code, f'exit code {code}')} of a container that ended in the last minutes"]
    yield "what it says", _wrapped(ending.explanation, 2)
    yield "what would settle it", _wrapped(ending.settles, 2)
    yield "what to do", _remedies(ending.remedies)


def _log_sections(rule: LogRule) -> Iterator[Section]:
    signs = [f"a line with {' or '.join(repr(text) for text in rule.any)}"]
    signs += [f"that matches  {rule.regex}"]
    signs += [f"and doesn't match  {rule.unless}"] if rule.unless else []
    signs += [f"within {rule.near_lines} lines of  {rule.near}"] if rule.near else []
    signs += [f"{rule.at_least} times or more"] if rule.at_least > 1 else []
    signs += [f"only while the engine is {rule.when}"] if rule.when else []
    signs += [f"only in the log of {rule.engine.value}"] if rule.engine is not None else []
    yield "signals", [f"  {sign}" for sign in signs]
    yield "what it says", _wrapped(rule.explanation, 2)
    yield "why not something else", [line for text in rule.distinction for line in _wrapped(f"- {text}", 2)]
    yield "what would settle it", _wrapped(rule.settles, 2)
    yield "follows from", [f"  {name}" for name in rule.follows]
    yield "what to do", _remedies(rule.remedies)
    yield "examples it reads", _examples(rule.examples)
    yield "lines it leaves alone", _examples(rule.quiet)


def _lint_sections(rule: LintRule) -> Iterator[Section]:
    signs = [f"{rule.name} {rule.op} {rule.value}".rstrip()]
    signs += [f"{rule.engine.value} {rule.versions}".rstrip()] if rule.engine is not None else []
    signs += [f"images of {', '.join(rule.families)}"] if rule.families else []
    signs += [{1: "one node only", 2: "two nodes and more"}[rule.nodes]] if rule.nodes else []
    signs += [f"models that match {rule.model}"] if rule.model else []
    signs += [f"not where {' or '.join(rule.unless)} is given"] if rule.unless else []
    yield "signals", [f"  {sign}" for sign in signs]
    yield "what it says", _wrapped(rule.explanation, 2)
    yield "what would settle it", _wrapped(rule.settles, 2)
    yield "what to do", _remedies(rule.remedies)
    yield "examples it finds something in", _examples(tuple((text,) for text in rule.examples))
    yield "examples it leaves alone", _examples(tuple((text,) for text in rule.quiet))


def _live_sections(rule: LiveRule) -> Iterator[Section]:
    yield "looks for", _wrapped(_doc(rule.check) or "what its title says", 2)
    course = [
        f"it is said once it has held for {rule.hold_s:g} s" if rule.hold_s else "it is said as soon as it is seen"
    ]
    course += [f"it is resolved once it has been gone for {rule.clear_s:g} s"]
    yield "course", [f"  {line}" for line in course]
    yield "follows from", [f"  {name}" for name in rule.follows]


def _kernel_sections(name: str) -> Iterator[Section]:
    code = name.removeprefix("kernel.xid-")
    if code.isdecimal():
        yield "signals", [f"  an NVRM line with Xid {code}"]
        yield "what it says", _advice(xid.lookup(int(code)).advice)
        return
    feeding = [pattern for pattern in kernel.patterns() if _feeds(pattern, name)]
    signs = [f"  a kernel line that matches  {pattern.regex}" for pattern in feeding]
    yield "signals", signs
    yield "what it says", _advice(tuple(dict.fromkeys(each for pattern in feeding for each in pattern.advice)))
    yield "examples it reads", _examples(tuple((text,) for pattern in feeding for text in pattern.examples))
    yield "lines it leaves alone", _examples(tuple((text,) for pattern in feeding for text in pattern.quiet))


def _feeds(pattern: kernel.Pattern, name: str) -> bool:
    event = KernelEvent(kind=pattern.kind, pattern=pattern.id, severity=pattern.severity, title="", text="")
    return kernelfindings.rule_of(event) == name


def _advice(advice: Iterable[Advice]) -> list[str]:
    lines: list[str] = []
    for each in advice:
        lines += _wrapped(f"{each.source}: {each.meaning}", 2)
        lines += _wrapped(f"→ {each.action}", 4) if each.action else []
    return lines


def _remedies(remedies: Iterable[Remedy]) -> list[str]:
    lines: list[str] = []
    for remedy in remedies:
        lines += _wrapped(f"→ {remedy.title}{f' (costs {remedy.cost})' if remedy.cost else ''}", 2)
        lines += [f"      {step}" for step in remedy.steps]
    return lines


def _examples(examples: Iterable[Sequence[str]]) -> list[str]:
    return [f"  | {part}" for lines in examples for line in lines for part in line.splitlines()]


def _doc(check: Callable[..., Any]) -> str:
    """What a check says of itself, without the rule's name that it may begin with."""
    while isinstance(check, partial):
        check = check.func
    text = " ".join((inspect.getdoc(check) or "").split())
    name, colon, rest = text.partition(": ")
    return rest[:1].upper() + rest[1:] if colon and "." in name and " " not in name else text


def _wrapped(text: str, indent: int) -> list[str]:
    if not text:
        return []
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + (2 if text[:2] in ("- ", "→ ") else 0)),
        break_long_words=False,
        break_on_hyphens=False,
    )


def check_files(files: Sequence[tuple[str, str]], *, out: TextIO | None = None) -> int:
    """Each file and each of its rules: read, and tried on its own examples; 0 when nothing is wrong, else 1."""
    out = out or sys.stdout
    wrong = 0
    seen: dict[str, str] = {}
    for name, text in files:
        own = read_own([(name, text)])
        for problem in own.problems:
            print(f"✖ {problem.message}" + (f"\n    {problem.hint}" if problem.hint else ""), file=out)
        faults = [(rule.id, fault) for rule in own.log for fault in _timed(log_faults, rule)]
        faults += [(rule.id, fault) for rule in own.lint for fault in _timed(lint_faults, rule)]
        faults += [(rule.id, f"{seen[rule.id]} has a rule of this id") for rule in own.every if rule.id in seen]
        seen |= {rule.id: name for rule in own.every}
        for rule_id, fault in faults:
            print(f"✖ {name}: {rule_id}: {fault}", file=out)
        wrong += len(own.problems) + len(faults)
        if own.every and not faults:
            print(f"✓ {name}: {len(own.every)} rule{'s' if own.every[1:] else ''}", file=out)
        elif not own.every and not own.problems:
            print(f"▲ {name}: no [[rule]] and no [[lint]] in it", file=out)
    if not files:
        print(f"no rule file: yours go to {shown(config_home() / 'rules')}/*.toml", file=out)
    return 1 if wrong else 0


def _timed(faults: Callable[[Any], list[str]], rule: LogRule | LintRule) -> list[str]:
    try:
        with _limit(EXAMPLE_LIMIT_S):
            return faults(rule)
    except TimeoutError:
        return [f"its regular expression takes longer than {EXAMPLE_LIMIT_S:g} s on its own examples"]


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Interrupt what runs longer, by a signal, which `re` looks for while it searches; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
