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
_PARTS_AT_MOST = 64


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
    """What its variables were, as it became `actual`; None where they can't be told, or it can't have become that."""
    pieces = parts(template)
    named = [part for part in pieces if isinstance(part, Reference)]
    if not named:
        return {} if "".join(map(str, pieces)) == actual else None
    if len(pieces) > _PARTS_AT_MOST or any(part.form.endswith("+") for part in named):
        return None
    found = [_matched(pieces, actual, wild) for wild in ("(.*)", "(.*?)")]
    return found[0] if found[0] == found[1] else None


def escaped(text: str) -> str:
    """A text that compose fills in to itself."""
    return text.replace("$", "$$")


def _matched(pieces: Sequence[str | Reference], actual: str, wild: str) -> dict[str, str] | None:
    pattern, order = "", list[str]()
    for part in pieces:
        if isinstance(part, str):
            pattern += re.escape(part)
        elif part.name in order:
            pattern += rf"(?:\{order.index(part.name) + 1})"
        else:
            order.append(part.name)
            pattern += wild
    match = re.fullmatch(pattern, actual, re.DOTALL)
    return dict(zip(order, match.groups(), strict=True)) if match else None


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
