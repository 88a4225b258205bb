"""What lints are made of: card and check, the finding they yield, and the diff lines of a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import unified_diff
from itertools import islice
from types import MappingProxyType

from sparktop.cmdline.docker_options import by_name
from sparktop.cmdline.source import Document, Item, Span
from sparktop.dataclass import dataclass
from sparktop.diagnose.rule import Rule, RuleKind, rule_of
from sparktop.knowledge.card import Figures, found
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingBuilder:
    """Makes the findings of one lint in one specification."""

    spec: LaunchSpec
    lint: Lint

    def __call__(
        self,
        items: Item | Sequence[Item] | None,
        case: str,
        figures: Figures = MappingProxyType({}),
        *,
        edits: Iterable[Edit] = (),
        severity: Severity | None = None,
        settles: str = "",
        subject: str = "",
        references: tuple[str, ...] = (),
    ) -> Finding:
        """What the card says of these items in this case, but for what is given here.

        Args:
            edits: the changes that its first remedies make, one each.
        """
        said = found(self.lint.id, case, figures, confidence=Confidence.SUSPECTED, subject=subject)
        said = replace(
            said,
            severity=severity or said.severity,
            settles=settles or said.settles,
            remedies=edited(said.remedies, edits),
            references=references or said.references,
        )
        return self.of(items, said)

    def of(self, items: Item | Sequence[Item] | None, said: Finding) -> Finding:
        """A finding about these items, or (None) about something missing. With `settles` it is only suspected."""
        item_list = (items,) if isinstance(items, Item) else tuple(items or ())
        settles = said.settles or self.spec.guess or next(filter(None, map(self.spec.doubt, item_list)), "")
        lines = tuple(dict.fromkeys(line for item in item_list for line in evidence(self.spec, item)))
        return replace(
            said,
            confidence=Confidence.SUSPECTED if settles else Confidence.CONFIRMED,
            settles=settles,
            evidence=lines or (beginning(self.spec),),
            scope=self.lint.card.scope,
        )


LintCheck = Callable[[LaunchSpec, FindingBuilder], Iterable[Finding]]
"""Pure: compares a specification with what is known about versions, images and hardware."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One rule over launch specifications."""

    id: str
    check: LintCheck
    is_live: bool = False
    """Whether it can be certain about a running engine."""
    own_card: Rule | None = None
    """None: `knowledge` has it."""

    @property
    def card(self) -> Rule:
        return self.own_card or rule_of(self.id, RuleKind.LINT)

    def findings(self, spec: LaunchSpec) -> tuple[Finding, ...]:
        """Its findings in one specification."""
        return tuple(self.check(spec, FindingBuilder(spec=spec, lint=self)))


def lint(name: str, *, is_live: bool = False) -> Callable[[LintCheck], Lint]:
    """Make a check the lint of the card `config.NAME`; `lint.catalogue` lists it."""
    return lambda check: Lint(id=f"config.{name}", check=check, is_live=is_live)


def evidence(spec: LaunchSpec, item: Item) -> tuple[Evidence, ...]:
    """The lines of an item and of its value; for a running engine, the item itself."""
    span = item.span or item.value_span
    if span is None or not spec.document.text or spec.kind in (SourceKind.RUNNING, SourceKind.INSPECT):
        line = spec.line_of(item) if spec.kind is SourceKind.INSPECT and span else None
        return (Evidence(source=spec.document.name, line=line, text=as_typed(spec, item)),)
    offsets = [span[0], *([item.value_span[0]] if item.value_span else [])]
    numbers = dict.fromkeys(spec.document.line_of(offset) for offset in offsets)
    return tuple(
        Evidence(source=spec.document.name, line=number, text=spec.document.line(number).strip()) for number in numbers
    )


def beginning(spec: LaunchSpec) -> Evidence:
    """The beginning of the specification: evidence for what is missing."""
    number = spec.line_of(None)
    if number is None or spec.kind is SourceKind.INSPECT:
        words = (f"{spec.engine} {spec.version or ''}".strip() if spec.engine else "", spec.model_name)
        return Evidence(source=spec.document.name, line=number, text=" ".join(filter(None, words)) or spec.name)
    return Evidence(source=spec.document.name, line=number, text=spec.document.line(number).strip())


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a configuration: the touched lines as a diff, and what a relaunch of a running engine changes."""

    lines: tuple[str, ...]
    change: Change | None = None
    """None where a relaunch can't make it: a file, or an option of the container."""

    def __add__(self, other: Edit) -> Edit:
        """Both edits, in this order; a relaunch makes them where it can make each."""
        lines = (*self.lines, *other.lines)
        if self.change is None or other.change is None:
            return Edit(lines)
        flags = {**self.change.flags, **other.change.flags}
        return Edit(lines, Change(environment={**self.change.environment, **other.change.environment}, flags=flags))


def edited(remedies: Sequence[Remedy], edits: Iterable[Edit]) -> tuple[Remedy, ...]:
    """The remedies, the first of them with these edits, one each, before their steps; a relaunch where one can."""
    first = tuple(
        replace(
            remedy,
            steps=(*edit.lines, *remedy.steps),
            action="relaunch" if edit.change else remedy.action,
            change=edit.change or remedy.change,
        )
        for remedy, edit in zip(remedies, edits, strict=False)
    )
    return (*first, *remedies[len(first) :])


Replacement = tuple[int, int, str]
"""(start, end, text) in the document's text."""
_NO_FILE = (SourceKind.RUNNING, SourceKind.INSPECT)
"""Sources without a file to edit: remedies show words instead of lines."""
_EMPTY = re.compile(r"-?(?:--?e(?:nv)?)?(?:export)?(?:Environment=)?[\"']{0,2}\\?")
"""A line that says nothing any more, without its spaces."""


def replaced(spec: LaunchSpec, item: Item, value: str) -> Edit:
    """Give the item another value."""
    if _has_no_file(spec, item):
        return _in_words(spec, [item], [as_typed(spec, item, value)], _change(spec, [item], value))
    text, span = spec.document.text, item.value_span
    if span is None:  # no separate value (`-O3`, a switch): rewrite the whole item
        return Edit(diff(spec.document, [(*(item.span or (0, 0)), as_typed(spec, item, value))]))
    is_json = value.startswith("{") and text[span[0] - 1 : span[0]] not in ("'", '"')
    return Edit(diff(spec.document, [(*span, f"'{value}'" if is_json else value)]))


def removed(spec: LaunchSpec, *items: Item) -> Edit:
    """Remove these items."""
    if any(_has_no_file(spec, item) for item in items):
        return _in_words(spec, items, [], _change(spec, items, None))
    edits: list[Replacement] = []
    for item in items:
        for span in {item.span, item.value_span} - {None}:
            if span and not any(start <= span[0] < end for start, end, _ in edits):
                edits.append((*_with_quotes(spec.document.text, span), ""))
    return Edit(diff(spec.document, edits))


def renamed(spec: LaunchSpec, item: Item, text: str) -> Edit:
    """Rewrite the whole item, name and value; `text` is a flag as it is typed."""
    if _has_no_file(spec, item) or item.span is None:
        name, _, value = text.partition(" ")
        gone = _change(spec, [item], None)
        change = replace(gone, flags={**gone.flags, name: value}) if gone and name.startswith("--") else None
        return _in_words(spec, [item], [text], change)
    (start, end), source = _quoted(spec.document.text, item.span), spec.document.text
    quote = source[start] if (start, end) != item.span else ""
    return Edit(diff(spec.document, [(start, end, f"{quote}{text}{quote}")]))


def respelled(spec: LaunchSpec, item: Item, name: str) -> Edit:
    """Write a flag's name another way; its values stay."""
    start = item.span[0] if item.span else 0
    if _has_no_file(spec, item) or not spec.document.text.startswith(item.spelled, start):
        return _in_words(spec, [item], [as_typed(spec, replace(item, spelled=name))])
    return Edit(diff(spec.document, [(start, start + len(item.spelled), name)]))


def with_flag(spec: LaunchSpec, name: str, value: str = "") -> Edit:
    """Add a flag to the engine's command."""
    anchors = (item for item in spec.flags if item not in spec.misplaced and _is_in_command(spec, item))
    anchor = next(anchors, None) or spec.model
    if anchor is None or anchor.span is None or _has_no_file(spec, anchor):
        return _in_words(spec, [], [f"--{name} {value}".strip()], Change(flags={f"--{name}": value}))
    quoted = f"'{value}'" if value.startswith("{") else value
    words, joined = f"--{name} {quoted}".strip(), f"--{name}={value}".removesuffix("=")
    return Edit(_inserted(spec.document, anchor.span, words, joined))


def with_variables(spec: LaunchSpec, value: str, *names: str) -> Edit:
    """Set these environment variables of the engine to one value; a heading they need is added once."""
    if spec.kind in _NO_FILE:
        words = [f"{name}={value}" for name in names]
        return _in_words(spec, [], words, Change(environment=dict.fromkeys(names, value)))
    return Edit(tuple(dict.fromkeys(line for name in names for line in _variable_lines(spec, name, value))))


def _in_words(spec: LaunchSpec, gone: Sequence[Item], new: Sequence[str], change: Change | None = None) -> Edit:
    """An edit of what stands in no file: what goes and comes as it would be typed, and a running engine's relaunch."""
    lines = (*(f"- {as_typed(spec, item)}" for item in gone), *(f"+ {words}" for words in new))
    return Edit(lines, change if spec.kind is SourceKind.RUNNING else None)


def _change(spec: LaunchSpec, items: Sequence[Item], value: str | None) -> Change | None:
    """What gives these items a value, or (None) removes them; None where one is neither flag nor variable."""
    flags = {f"--{item.name}": value for item in items if item in spec.flags}
    environment = {item.name: value for item in items if item in spec.environment}
    is_whole = all(item in spec.flags or item in spec.environment for item in items)
    return Change(flags=flags, environment=environment) if is_whole else None


def _variable_lines(spec: LaunchSpec, name: str, value: str) -> tuple[str, ...]:
    assignment = f"{name}={value}"
    is_near = spec.has_container is False
    anchors = (item for item in reversed(spec.environment) if item.span and (is_near or _is_in_command(spec, item)))
    anchor = next(anchors, None)
    if anchor is not None and anchor.span is not None:
        number = spec.document.line_of(anchor.span[0])
        row = spec.document.line(number)
        if re.match(r"\s*export\s", row):
            return (f"+ export {assignment}",)
        text = spec.document.text[anchor.span[0] : anchor.span[1]]
        if text.startswith("-"):
            return _inserted(spec.document, anchor.span, f"-e {assignment}", f"-e {assignment}")
        if re.match(rf"\s*[\"']?{re.escape(anchor.name)}[\"']?\s*:", row):
            return (f"+ {_indent(row)}{name}: {value!r}".replace("'", '"'),)
        return _inserted(spec.document, anchor.span, assignment, assignment)
    if spec.kind is SourceKind.COMPOSE:
        indent = _key_indent(spec)
        return (f"+ {indent}environment:", f"+ {indent}  - {assignment}")
    if spec.kind is SourceKind.RECIPE:
        return ("+ env:", f'+   {name}: "{value}"')
    if spec.image and spec.image.span and spec.has_container:
        return _before_image(spec, f"-e {assignment}")
    return (f"+ {'Environment=' if spec.kind is SourceKind.UNIT else 'export '}{assignment}",)


def with_option(spec: LaunchSpec, name: str, value: str = "") -> Edit:
    """Add an option to the container."""
    option = by_name()["volume" if name == "mount" else name]
    if spec.kind is not SourceKind.COMPOSE:
        return Edit(_before_image(spec, f"--{option.name} {value}".strip()))
    indent = _key_indent(spec)
    if option.name == "ulimit":
        kind, _, limit = value.partition("=")
        return Edit((f"+ {indent}ulimits:", f"+ {indent}  {kind}: {limit}"))
    if option.name in ("device", "volume"):
        return Edit((f"+ {indent}{option.compose}:", f"+ {indent}  - {value}"))
    return Edit((f"+ {indent}{option.compose}: {value}",))


def _before_image(spec: LaunchSpec, words: str) -> tuple[str, ...]:
    """The diff that gives Docker these words; only the words where the image stands in no file, or further up."""
    if spec.kind in _NO_FILE or spec.image is None or spec.image.span is None or not _is_in_command(spec, spec.image):
        return (f"+ {words}",)
    return _inserted(spec.document, spec.image.span, words, words)


def as_typed(spec: LaunchSpec, item: Item, value: str | None = None) -> str:
    """An item as it would be typed, with another value where one is given; for sources without lines."""
    value = " ".join(filter(None, (item.value, *item.rest))) if value is None else value
    if item in spec.environment or item in spec.unit:
        return f"{item.name}={value}"
    return f"{item.spelled or f'--{item.name}'} {value}".strip()


def diff(document: Document, edits: Iterable[Replacement]) -> tuple[str, ...]:
    """The touched lines as a diff, before ("- ") and after ("+ "); a line left empty is dropped."""
    ordered = sorted(edits)
    if not ordered:
        return ()
    begin, _ = document.line_span(document.line_of(ordered[0][0]))
    _, finish = document.line_span(document.line_of(max(end for _, end, _ in ordered)))
    after, done = "", begin
    for start, end, new in ordered:
        if start >= done:
            after += document.text[done:start] + new
            done = end
    after += document.text[done:finish]
    before = [row.rstrip() for row in document.text[begin:finish].splitlines()]
    rows = unified_diff(before, [row.rstrip() for row in after.splitlines()], n=0, lineterm="")
    changed = [row for row in islice(rows, 2, None) if not row.startswith("@@")]
    return tuple(
        f"{row[0]} {row[1:]}" for row in changed if row[0] == "-" or not _EMPTY.fullmatch("".join(row[1:].split()))
    )


def _inserted(document: Document, span: Span, words: str, joined: str) -> tuple[str, ...]:
    """The diff that inserts `words` before `span`: on a new line if `span` has its own line, else joined."""
    number = document.line_of(span[0])
    start, _ = document.line_span(number)
    row = document.line(number)
    before = row[: span[0] - start]
    after = row[span[1] - start :] if span[1] - start <= len(row) else ""
    frame = before.strip()
    quote = before[-1:] if before[-1:] in ("'", '"') else ""
    if frame.removesuffix(quote).strip() == "-":
        return (f"+ {before}{joined}{quote}",)
    if "[" in before and ("," in before or frame.removesuffix(quote).endswith("[")):
        at = span[0] - len(quote)
        return diff(document, [(at, at, f'"{joined}", ')])
    if not frame:
        tail = " \\" if after.rstrip().endswith("\\") or _is_continued(document, number) else ""
        return (f"+ {before}{words}{tail}",)
    return diff(document, [(span[0] - len(quote), span[0] - len(quote), f"{words} ")])


def _is_continued(document: Document, number: int) -> bool:
    return number > 1 and document.line(number - 1).endswith("\\")


def _quoted(text: str, span: Span) -> Span:
    """The span with the quotes around it."""
    start, end = span
    if text[start - 1 : start] in ("'", '"') and text[end : end + 1] == text[start - 1 : start]:
        return start - 1, end + 1
    return start, end


def _with_quotes(text: str, span: Span) -> Span:
    """The span with its quotes and with the comma or space that would be left over."""
    if text[span[1] : span[1] + 1] == "}" and text.count("${", *span) > text.count("}", *span):  # a default's end
        span = span[0], span[1] + 1
    start, end = _quoted(text, span)
    if (start, end) == span and (quote := text[end : end + 1]) in ("'", '"') and text.count(quote, start, end) % 2:
        end += 1
    if comma := re.compile(r"\s*,[ \t]*").match(text, end):
        return start, comma.end()
    if (space := re.compile(r"[ \t]+(?=\S)").match(text, end)) and text[start - 1 : start] in (" ", "\t"):
        return start, space.end()
    return start, end


def _is_in_command(spec: LaunchSpec, item: Item) -> bool:
    """Whether it is given where the command is, and not in a variable further up."""
    is_above = spec.kind is SourceKind.SHELL and item.span and spec.span and item.span[0] < spec.span[0]
    return item.span is not None and not is_above


def _key_indent(spec: LaunchSpec) -> str:
    item = spec.image.span if spec.image and spec.image.span else spec.span
    return _indent(spec.document.line(spec.document.line_of(item[0]))) if item else ""


def _indent(row: str) -> str:
    return row[: len(row) - len(row.lstrip())]


def _has_no_file(spec: LaunchSpec, item: Item) -> bool:
    return spec.kind in _NO_FILE or not spec.document.text or (item.span is None and item.value_span is None)
