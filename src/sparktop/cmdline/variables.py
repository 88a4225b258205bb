"""Compose's `${NAME}` variables: parsed, substituted, and recovered from the container that was created with them.
Pure.

`HF_TOKEN=... docker compose up` leaves no trace in any file: the next `up` without it would blank it
(docs/facts/engines.md section 6.4). The text with `${NAME}` in the file is compared with what the container was
given, which tells NAME's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto

from sparktop.dataclass import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELL_NAME = re.compile(r"[0-9@*#?$!-]")
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#])(\[[@*]\])?(?:(:?[-=?+])(.*))?", re.DOTALL)
_ENV_LINE = re.compile(r"\s*+(?:export\s++)?([A-Za-z_]\w*+)(?:\s*+=(.*))?")
_QUOTED = re.compile(r"(['\"])(.*?)\1(?:\s+#.*)?")
_COMMENT = re.compile(r"(?:^|\s+)#.*")
MAX_DEFAULTS = 4
"""Nested defaults are substituted to this depth."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One `$NAME` or `${NAME...}`."""

    name: str
    form: str = ""
    """"", "-", ":-", "?", ":?", "+", ":+", "=", ":="."""
    rest: str = ""
    """The default, message or replacement: itself a template."""
    rest_start: int = 0
    """Where `rest` stands, from the `$`."""

    @property
    def has_default(self) -> bool:
        return self.form.endswith("-")

    @property
    def is_demanded(self) -> bool:
        """Whether compose stops where it isn't set."""
        return self.form.endswith("?")


class Takes(Enum):
    """What stands for a reference."""

    VALUE = auto()
    REST = auto()
    """Its default or replacement."""
    NOTHING = auto()
    STOP = auto()
    """The shell, or compose, ends with its message."""


def takes(reference: Reference, value: str | None) -> Takes:
    """What stands for it where the variable has this value; None: it isn't set."""
    is_given = bool(value) if reference.form.startswith(":") else value is not None
    if reference.form.endswith("+"):
        return Takes.REST if is_given else Takes.NOTHING
    if is_given or not reference.form:
        return Takes.VALUE
    return Takes.STOP if reference.is_demanded else Takes.REST


def reference_at(text: str, at: int) -> tuple[Reference | None, int]:
    """(the reference that begins at this `$`; None for `$$`, a substitution or a form that isn't known; its end)."""
    if text.startswith("$$", at):
        return None, at + 2
    if text.startswith("${", at):
        end = _closing(text, at + 1)
        form = _BRACED.fullmatch(text, at + 2, end) if end > 0 else None
        if form is None:
            return None, end + 1 if end > 0 else len(text)
        is_rest = form[3] is not None
        return Reference(form[1], form[3] or "", form[4] or "", form.start(4) - at if is_rest else 0), end + 1
    name = _NAME.match(text, at + 1) or _SHELL_NAME.match(text, at + 1)
    return (Reference(name[0]), name.end()) if name else (None, at + 1)


def parts(template: str) -> tuple[str | Reference, ...]:
    """The literal texts and references of a template, in order; what compose would refuse is taken as text."""
    pieces: list[str | Reference] = []
    text, at = "", 0
    while (start := template.find("$", at)) >= 0:
        text += template[at:start]
        reference, at = reference_at(template, start)
        if template.startswith("$$", start):
            text += "$"
        elif reference is None or not _NAME.fullmatch(reference.name) or "=" in reference.form:
            at = at if at == len(template) else start + 1
            text += template[start:at]
        else:
            pieces += [text, reference] if text else [reference]
            text = ""
    text += template[at:]
    return (*pieces, text) if text else tuple(pieces)


def references(template: str) -> Iterator[Reference]:
    """Every reference, with those in defaults."""
    for part in parts(template):
        if isinstance(part, Reference):
            yield part
            yield from references(part.rest)


def filled(template: str, known: Mapping[str, str]) -> str | None:
    """The template as compose substitutes it; None where it would stop. Unknown variables are blank."""
    texts = []
    for part in parts(template):
        if isinstance(part, str):
            texts.append(part)
            continue
        value = known.get(part.name)
        taken = takes(part, value)
        text = filled(part.rest, known) if taken is Takes.REST else value or ""
        if taken is Takes.STOP or text is None:
            return None
        texts.append(text if taken is not Takes.NOTHING else "")
    return "".join(texts)


def recover_values(template: str, actual: str) -> dict[str, str] | None:
    """The values of its variables when it became `actual`; None where they are ambiguous, or it can't have become that.

    Each literal between two variables is searched from the left and from the right: where both find the same
    positions, there is no other reading. No backtracking: files and values come from a remote machine.
    """
    literals, named = [""], list[str]()
    for part in parts(template):
        if isinstance(part, str):
            literals[-1] += part
        elif part.form.endswith("+"):
            return None
        else:
            named.append(part.name)
            literals.append("")
    if not named:
        return {} if literals[0] == actual else None
    if "" in literals[1:-1] or not actual.startswith(literals[0]):
        return None
    left, right = len(literals[0]), len(actual) - len(literals[-1])
    if right < left or not actual.endswith(literals[-1]):
        return None
    middle, between = actual[left:right], literals[1:-1]
    values = _cut(middle, between)
    if values is None or values != _cut(middle, between, from_right=True):
        return None
    by_name: dict[str, str] = {}
    return (
        by_name
        if all(by_name.setdefault(name, value) == value for name, value in zip(named, values, strict=True))
        else None
    )


def escaped(text: str) -> str:
    """The text so that compose substitutes it to itself."""
    return text.replace("$", "$$")


def _cut(text: str, between: Sequence[str], *, from_right: bool = False) -> list[str] | None:
    """The text split at each of these in turn; None where one isn't found."""
    fields: list[str] = []
    for separator in reversed(between) if from_right else between:
        head, match, tail = text.rpartition(separator) if from_right else text.partition(separator)
        if not match:
            return None
        fields.append(tail if from_right else head)
        text = head if from_right else tail
    fields.append(text)
    return fields[::-1] if from_right else fields


def _closing(text: str, opened: int) -> int:
    """The index of the brace that closes the one at `opened`; -1 where none does."""
    depth, at = 0, opened
    while at < len(text):
        if text.startswith("${", at):
            depth, at = depth + 1, at + 2
            continue
        if text[at] == "{" and at == opened:
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return -1


# --- env files


def env_lines(text: str) -> Iterator[tuple[int, str, str | None]]:
    """(line number, name, what stands after its "="; None without one) of each line of a .env file that has a name."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _ENV_LINE.match(line):
            yield number, match[1], None if match[2] is None else match[2].strip()


def unquoted(text: str) -> str | None:
    """A .env file's value without its quotes and a comment after it; None where a quote is left open."""
    if text[:1] in ("'", '"'):
        quoted = _QUOTED.fullmatch(text)
        return quoted[2] if quoted else None
    return _COMMENT.sub("", text)


def env_file(text: str) -> dict[str, str | None]:
    """The NAME=value lines of a .env file, as compose reads them; None for a value that refers to others, or spans
    lines."""
    values: dict[str, str | None] = {}
    for _, name, written in env_lines(text):
        if written is not None:
            value, expanded = unquoted(written), {"'": "", '"': "$\\"}.get(written[:1], "$")
            values[name] = None if value is None or any(sign in value for sign in expanded) else value
    return values
