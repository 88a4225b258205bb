"""What a lint would change, as the lines to take out ("- ...") and to put in ("+ ..."), in the file's own style."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sparktop.diagnose.lint.place import Document, Span
from sparktop.diagnose.lint.spec import Item, LaunchSpec, SourceKind

Edit = tuple[int, int, str]
"""Replace the document's text from, up to, by this."""

_NO_FILE = (SourceKind.RUNNING, SourceKind.INSPECT)
"""Nobody edits what these were read from: the words are shown, not their lines."""
_EMPTY = re.compile(r"\s*(?:-\s*)?(?:--?e(?:nv)?\s*)?(?:export\s*)?(?:Environment=)?[\"']{0,2}\s*\\?\s*\Z")

_COMPOSE_OPTION = {
    "network": "network_mode: {}",
    "ipc": "ipc: {}",
    "gpus": "gpus: {}",
    "restart": 'restart: "{}"',
    "privileged": "privileged: true",
}
_COMPOSE_LIST = {"device": "devices", "mount": "volumes"}


def replaced(spec: LaunchSpec, item: Item, value: str) -> tuple[str, ...]:
    """The item with another value."""
    if _has_no_file(spec, item):
        return (f"- {shown(spec, item)}", f"+ {written(spec, item, value)}")
    text = spec.document.text
    span = item.value_span
    if span is None:  # no value of its own yet (`-O3`, a switch): the whole item is written anew
        start, end = item.span or (0, 0)
        return diff(spec.document, [(start, end, written(spec, item, value))])
    is_json = value.startswith("{") and text[span[0] - 1 : span[0]] not in ("'", '"')
    return diff(spec.document, [(*span, f"'{value}'" if is_json else value)])


def removed(spec: LaunchSpec, *items: Item) -> tuple[str, ...]:
    """Without these items."""
    if any(_has_no_file(spec, item) for item in items):
        return tuple(f"- {shown(spec, item)}" for item in items)
    edits: list[Edit] = []
    for item in items:
        for span in {item.span, item.value_span} - {None}:
            if span and not any(start <= span[0] < end for start, end, _ in edits):
                edits.append((*_with_quotes(spec.document.text, span), ""))
    return diff(spec.document, edits)


def renamed(spec: LaunchSpec, item: Item, text: str) -> tuple[str, ...]:
    """The whole item, name and value, written otherwise."""
    if _has_no_file(spec, item) or item.span is None:
        return (f"- {shown(spec, item)}", f"+ {text}")
    return diff(spec.document, [(*_with_quotes(spec.document.text, item.span), text)])


def with_flag(spec: LaunchSpec, name: str, value: str = "") -> tuple[str, ...]:
    """With one more flag for the engine."""
    words = f"--{name} {value}".strip()
    anchor = next((item for item in spec.flags if item.span and item not in spec.misplaced), None) or spec.model
    if anchor is None or anchor.span is None or _has_no_file(spec, anchor):
        return (f"+ {words}",)
    quoted = f"'{value}'" if value.startswith("{") else value
    return _beside(spec.document, anchor.span, f"--{name} {quoted}".strip(), f"--{name}={value}".removesuffix("="))


def with_variables(spec: LaunchSpec, names: Sequence[str], value: str) -> tuple[str, ...]:
    """With these environment variables, all of one value; a heading they need stands once."""
    return tuple(dict.fromkeys(line for name in names for line in with_variable(spec, name, value)))


def with_variable(spec: LaunchSpec, name: str, value: str) -> tuple[str, ...]:
    """With one more environment variable for the engine."""
    assignment = f"{name}={value}"
    anchor = next((item for item in reversed(spec.environment) if item.span), None)
    if spec.kind in _NO_FILE:
        return (f"+ {assignment}",)
    if anchor is not None and anchor.span is not None:
        number = spec.document.line_of(anchor.span[0])
        row = spec.document.line(number)
        if re.match(r"\s*export\s", row):
            return (f"+ export {assignment}",)
        text = spec.document.text[anchor.span[0] : anchor.span[1]]
        if text.startswith("-"):
            return _beside(spec.document, anchor.span, f"-e {assignment}", f"-e {assignment}")
        if re.match(rf"\s*[\"']?{re.escape(anchor.name)}[\"']?\s*:", row):
            return (f"+ {_indent(row)}{name}: {value!r}".replace("'", '"'),)
        return _beside(spec.document, anchor.span, assignment, assignment)
    if spec.kind is SourceKind.COMPOSE:
        indent = _key_indent(spec)
        return (f"+ {indent}environment:", f"+ {indent}  - {assignment}")
    if spec.kind is SourceKind.RECIPE:
        return ("+ env:", f'+   {name}: "{value}"')
    if spec.image and spec.image.span and spec.has_container:
        return _beside(spec.document, spec.image.span, f"-e {assignment}", f"-e {assignment}")
    return (f"+ {'Environment=' if spec.kind is SourceKind.UNIT else 'export '}{assignment}",)


def with_option(spec: LaunchSpec, name: str, value: str = "") -> tuple[str, ...]:
    """With one more option for the container."""
    words = f"--{'volume' if name == 'mount' else name} {value}".strip()
    if spec.kind is SourceKind.COMPOSE:
        indent = _key_indent(spec)
        if name in _COMPOSE_OPTION:
            return (f"+ {indent}{_COMPOSE_OPTION[name].format(value)}",)
        if name in _COMPOSE_LIST:
            return (f"+ {indent}{_COMPOSE_LIST[name]}:", f"+ {indent}  - {value}")
        kind, _, limit = value.partition("=")
        return (f"+ {indent}ulimits:", f"+ {indent}  {kind}: {limit}")
    if spec.kind in _NO_FILE or spec.image is None or spec.image.span is None:
        return (f"+ {words}",)
    return _beside(spec.document, spec.image.span, words, words)


def shown(spec: LaunchSpec, item: Item) -> str:
    """An item as it would be typed, for what has no line."""
    return written(spec, item, " ".join(filter(None, (item.value, *item.rest))))


def written(spec: LaunchSpec, item: Item, value: str) -> str:
    """An item with a value, as it would be typed."""
    if item in spec.environment:
        return f"{item.name}={value}"
    if item in spec.unit:
        return f"{item.name}={value}"
    return f"--{item.name} {value}".strip()


def diff(document: Document, edits: Iterable[Edit]) -> tuple[str, ...]:
    """The lines that the edits touch, before and after; a line that is left with nothing is gone."""
    text = document.text
    lines: dict[int, None] = {}
    ordered = sorted(edits)
    for start, end, _ in ordered:
        lines.update(dict.fromkeys(range(document.line_of(start), document.line_of(max(start, end - 1)) + 1)))
    out: list[str] = []
    for first, last in _blocks(sorted(lines)):
        begin, finish = document.line_span(first)[0], document.line_span(last)[1]
        after, done = "", begin
        for start, end, new in ordered:
            if begin <= start <= finish and start >= done:
                after += text[done:start] + new
                done = end
        after += text[done:finish]
        out += [f"- {row.rstrip()}" for row in text[begin:finish].splitlines()]
        out += [f"+ {row.rstrip()}" for row in after.splitlines() if not _EMPTY.match(row)]
    return tuple(out)


def _blocks(numbers: Sequence[int]) -> list[tuple[int, int]]:
    blocks: list[tuple[int, int]] = []
    for number in numbers:
        if blocks and number == blocks[-1][1] + 1:
            blocks[-1] = (blocks[-1][0], number)
        else:
            blocks.append((number, number))
    return blocks


def _beside(document: Document, span: Span, words: str, joined: str) -> tuple[str, ...]:
    """New words before what stands at `span`: on a line of their own where that has one, else in its line."""
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


def _with_quotes(text: str, span: Span) -> Span:
    """The span with its quotes, and with the comma or the space that would be left over."""
    start, end = span
    if text[start - 1 : start] in ("'", '"') and text[end : end + 1] == text[start - 1 : start]:
        start, end = start - 1, end + 1
    elif (quote := text[end : end + 1]) in ("'", '"') and text.count(quote, start, end) % 2:
        end += 1
    if comma := re.compile(r"\s*,[ \t]*").match(text, end):
        return start, comma.end()
    if (space := re.compile(r"[ \t]+(?=\S)").match(text, end)) and text[start - 1 : start] in (" ", "\t"):
        return start, space.end()
    return start, end


def _key_indent(spec: LaunchSpec) -> str:
    place = spec.image.span if spec.image and spec.image.span else spec.span
    return _indent(spec.document.line(spec.document.line_of(place[0]))) if place else ""


def _indent(row: str) -> str:
    return row[: len(row) - len(row.lstrip())]


def _has_no_file(spec: LaunchSpec, item: Item) -> bool:
    return spec.kind in _NO_FILE or not spec.document.text or (item.span is None and item.value_span is None)
