"""systemd units and drop-ins: their keys with their sections, and the engine their ExecStart starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sparktop.diagnose.enginecommand import kind_of_image
from sparktop.diagnose.lint.dockerrun import variable
from sparktop.diagnose.lint.launches import Scope, read_command
from sparktop.diagnose.lint.place import Document, Word, joined
from sparktop.diagnose.lint.shellwords import plain_words
from sparktop.diagnose.lint.spec import Item, LaunchSpec, SourceKind

_SECTION = re.compile(r"\[([\w-]+)\]\s*\Z")
_ENGINE_WORD = re.compile(r"vllm|sglang", re.IGNORECASE)


def read_unit(document: Document) -> list[LaunchSpec]:
    """The engine of a unit; a unit that only mentions one (its script starts it) still has its own keys judged."""
    keys = list(_keys(document))
    unit = tuple(item for item, _ in keys)
    scope = Scope(document=document, kind=SourceKind.UNIT)
    environment: list[Item] = []
    for item, value in keys:
        if item.name == "Environment":
            environment += [variable(word) for word in plain_words(value, {}) if "=" in word.text]
    for given in environment:
        scope.variables[given.name] = [Word(given.value or "")]
        scope.exported[given.name] = given
    has_file = any(item.name in ("EnvironmentFile", "PassEnvironment") for item in unit)
    for item, value in keys:
        if item.name == "ExecStart" and value.text:
            words = plain_words(value.part(len(value.text) - len(value.text.lstrip("-@:+!|"))), scope.variables)
            read_command(words, scope)
    is_drop_in = not any(item.name == "ExecStart" and item.value for item in unit)
    name = document.name.rpartition("/")[2]
    found = [
        replace(
            spec,
            unit=unit,
            name=spec.name or name,
            is_drop_in=is_drop_in,
            knows_environment=spec.knows_environment or (spec.has_container is False and not has_file),
        )
        for spec in scope.found
    ]
    if not found and any(_ENGINE_WORD.search(item.value or "") for item in unit):
        text = " ".join(item.value or "" for item in unit)
        found = [
            LaunchSpec(
                document=document,
                kind=SourceKind.UNIT,
                name=name,
                span=unit[0].span,
                engine=kind_of_image(text),
                has_command=False,
                environment=tuple(environment),
                unit=unit,
                is_drop_in=is_drop_in,
            )
        ]
    return found


def _keys(document: Document) -> Iterator[tuple[Item, Word]]:
    """Each key with its value as a text with places, continued lines joined; comments between them are left out."""
    section = ""
    pieces: list[Word] = []
    key: Word | None = None
    offset = 0
    for row in document.text.splitlines(keepends=True):
        start, offset = offset, offset + len(row)
        text = row.rstrip("\r\n")
        stripped = text.strip()
        if stripped.startswith(("#", ";")) or (not stripped and key is None):
            continue
        whole = Word(text, range(start, start + len(text)))
        if key is None:
            if found := _SECTION.match(stripped):
                section = found[1]
                continue
            name, equals, _ = text.partition("=")
            if not equals:
                continue
            key = whole.part(0, len(name))
            whole = whole.part(len(name) + 1)
        is_continued = whole.text.endswith("\\")
        pieces.append(whole.part(0, len(whole.text) - 1) if is_continued else whole)
        if not is_continued:
            yield _item(section, key, pieces)
            key, pieces = None, []
    if key is not None:
        yield _item(section, key, pieces)


def _item(section: str, key: Word, pieces: list[Word]) -> tuple[Item, Word]:
    value = joined(pieces, between=" ")
    text = value.text
    first = len(text) - len(text.lstrip())
    value = value.part(first, len(text.rstrip()))
    name = key.part(len(key.text) - len(key.text.lstrip()), len(key.text.rstrip()))
    place = (value.at[0], value.at[-1] + 1) if value.at else None
    begin = name.span[0] if name.span else None
    span = (begin, place[1] if place else begin + len(name.text) + 1) if begin is not None else None
    return Item(name=name.text, value=value.text, section=section, span=span, value_span=place), value
