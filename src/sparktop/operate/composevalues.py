"""Values that the shell had given to a compose project, found again from the container that was made of it. Pure.

`HF_TOKEN=... docker compose up` leaves no trace in any file: the next `up` without it would blank it (facts/engines.md
section 6.4). What a file says with `${NAME}` is compared with what the container was given, which tells NAME.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """One `$NAME` or `${NAME...}`."""

    name: str
    form: str = ""
    """"", "-", ":-", "?", ":?", "+", ":+"."""
    rest: str = ""
    """The default, message or replacement: a template itself."""

    @property
    def has_default(self) -> bool:
        return self.form.endswith("-")

    @property
    def is_demanded(self) -> bool:
        """Compose stops where it isn't given."""
        return self.form.endswith("?")


def parts(template: str) -> tuple[str | Reference, ...]:
    """The literal texts and references of a template, in order; what compose would refuse is taken as text."""
    out: list[str | Reference] = []
    text, at = "", 0
    while at < len(template):
        start = template.find("$", at)
        if start < 0:
            break
        text += template[at:start]
        at = start + 1
        if template.startswith("$", at):
            text, at = text + "$", at + 1
            continue
        found: Reference | None = None
        if template.startswith("{", at) and (end := _closing(template, at)) > 0:
            form = _FORM.fullmatch(template[at + 1 : end])
            if form is not None:
                found, at = Reference(form[1], form[2] or "", form[3] or ""), end + 1
        elif bare := _NAME.match(template, at):
            found, at = Reference(bare[0]), bare.end()
        if found is None:
            text += "$"
            continue
        out += [text, found] if text else [found]
        text = ""
    text += template[at:]
    return (*out, text) if text else tuple(out)


def references(template: str) -> Iterator[Reference]:
    """Every reference, those in defaults too."""
    for part in parts(template):
        if isinstance(part, Reference):
            yield part
            yield from references(part.rest)


def filled(template: str, known: Mapping[str, str]) -> str | None:
    """As compose would fill it in; None where it would stop. What isn't known is blank."""
    out = []
    for part in parts(template):
        if isinstance(part, str):
            out.append(part)
            continue
        value = known.get(part.name)
        is_given = bool(value) if part.form.startswith(":") else value is not None
        if part.form.endswith("+"):
            said = filled(part.rest, known) if is_given else ""
        elif is_given or not part.form:
            said = value or ""
        else:
            said = filled(part.rest, known) if part.has_default else None
        if said is None:
            return None
        out.append(said)
    return "".join(out)


def told(template: str, actual: str) -> dict[str, str] | None:
    """What its variables were, as it became `actual`; None where they can't be told, or it can't have become that.

    Each text between two variables is looked for from the left and from the right: where both find the same places,
    there is no other way. Nothing is tried again and again: files and values are a remote machine's.
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
    out: dict[str, str] = {}
    return out if all(out.setdefault(name, value) == value for name, value in zip(named, values, strict=True)) else None


def escaped(text: str) -> str:
    """A text that compose fills in to itself."""
    return text.replace("$", "$$")


def _cut(text: str, between: Sequence[str], *, from_right: bool = False) -> list[str] | None:
    """The text cut at each of these in turn; None where one isn't there."""
    out: list[str] = []
    for each in reversed(between) if from_right else between:
        head, found, tail = text.rpartition(each) if from_right else text.partition(each)
        if not found:
            return None
        out.append(tail if from_right else head)
        text = head if from_right else tail
    out.append(text)
    return out[::-1] if from_right else out


def _closing(text: str, opened: int) -> int:
    """Where the brace that is open at `opened` ends; -1 where it doesn't."""
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


def env_file(text: str) -> dict[str, str | None]:
    """NAME=value lines of a .env file; None for a value that refers to others, or goes on over lines."""
    out: dict[str, str | None] = {}
    for row in text.splitlines():
        line = row.strip().removeprefix("export ").lstrip()
        name, equals, value = line.partition("=")
        name = name.strip()
        if not line or line.startswith("#") or not equals or not _NAME.fullmatch(name):
            continue
        out[name] = _env_value(value.strip())
    return out


def _env_value(text: str) -> str | None:
    if text[:1] == "'":
        return text[1 : text.rindex("'")] if text.rindex("'") > 0 else None
    if text[:1] == '"':
        inside = text[1 : text.rindex('"')] if text.rindex('"') > 0 else None
        return None if inside is None or "$" in inside or "\\" in inside else inside
    bare = re.split(r"\s+#", text, maxsplit=1)[0].strip()
    return None if "$" in bare else bare
