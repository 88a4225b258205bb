"""What a change makes another way, as the review shows it: variables, flags, options, image, a file's lines. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence

from sparktop import sanitise
from sparktop.model.plan import Difference, Request
from sparktop.operate.changing import Changing
from sparktop.operate.flags import Changed
from sparktop.operate.hostoptions import with_options
from sparktop.operate.knownsecrets import shown_value


def proof(request: Request) -> str:
    """What must come of it, for the review; empty where it is not to mend anything."""
    return f' "{request.finding.title}" must be gone then, or it did not help.' if request.finding else ""


def asked(one: Changing, flags: Sequence[Changed]) -> Iterator[Difference]:
    """What is another way than the engine runs with now."""
    change, raw = one.change, one.raw
    pairs = (raw.get("Config") or {}).get("Env") if raw else one.part.engine.environment
    before = dict(str(pair).partition("=")[::2] for pair in pairs or ())
    for name, value in change.environment.items():
        if before.get(name) != value:
            yield Difference(
                what="environment",
                name=sanitise.name(name),
                before=shown(name, before.get(name)),
                after=shown(name, value),
            )
    for flag in flags:
        yield Difference(
            what="flag",
            name=sanitise.name(flag.name),
            before=shown(flag.name, flag.before),
            after=shown(flag.name, flag.after),
        )
    host = dict(raw.get("HostConfig") or {})
    then = dict(host)
    with_options(then, change.options)
    for name in change.options:
        if host.get(name) != then.get(name):
            yield Difference(what="option", name=name, before=_json(host.get(name)), after=_json(then.get(name)))
    if change.image and (one.new_image or {}).get("Id") != one.image_id:
        yield Difference(
            what="image",
            name="image",
            before=sanitise.line(one.image_name, limit=200),
            after=sanitise.line(change.image, limit=200),
        )


def file_lines(path: str, before: str | None, after: str) -> Iterator[Difference]:
    """A file's lines that go, and those that come."""
    name = sanitise.line(path, limit=200)
    for row in difflib.ndiff((before or "").splitlines(), after.splitlines()):
        text = sanitise.line(row[2:], limit=8000)
        if row.startswith("- "):
            yield Difference(what="file", name=name, before=text, after=None)
        elif row.startswith("+ "):
            yield Difference(what="file", name=name, before=None, after=text)


def shown(name: str, value: str | None) -> str | None:
    """A value fit for the screen."""
    safe = shown_value(name, value)
    return None if safe is None else sanitise.line(safe, limit=300)


def _json(value: object) -> str | None:
    return None if value is None else sanitise.line(json.dumps(value, ensure_ascii=False, default=str), limit=300)
