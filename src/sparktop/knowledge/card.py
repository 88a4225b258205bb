"""Card: what is said of one problem, by case. A judge gives the case and its figures, and the card speaks.

`knowledge/AREA.toml` has the cards of `AREA.*`. What a case doesn't say, its card says. Slots are `str.format`'s:

- `{mhz:.0f}` a figure; `{path:q}` quoted for a shell; several values are joined with "and".
- `if.NAME` and `else.NAME`, texts of a case: `{NAME}` is the first while that figure is there, else the second.
- Flags of a remedy's change have slots, too.
- A step that is no more than one slot becomes as many steps as its figure has; a text that comes out empty is left out.
- A remedy's `if`, `change` and `pid` name a figure: without the first it is left out, without the others its action is.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, Unpack

from sparktop.dataclass import dataclass
from sparktop.knowledge import rule_file
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.text.sentences import listed

Figures = Mapping[str, object]
_FOLDER = Path(__file__).parent
_CARD = re.compile(r"(?m)^\[(?=[\w-]+\]$)")
_TAKEN = ("if", "change", "pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is said in one case."""

    title: str
    severity: Severity
    confidence: Confidence = Confidence.CONFIRMED
    explanation: str = ""
    distinction: tuple[str, ...] = ()
    settles: str = ""
    brief: str = ""
    remedies: tuple[tuple[Mapping[str, str], Remedy], ...] = ()
    """Each with the figures that it takes, by `if`, `change` and `pid`."""
    present: tuple[tuple[str, str], ...] = ()
    absent: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One problem."""

    id: str
    title: str
    severity: Severity
    """The worst of its cases."""
    scope: str
    """Where it applies: engines, versions, machines, number of nodes."""
    sources: tuple[str, ...]
    """Where its knowledge comes from: "field report 003", "vllm-project/vllm#46097"."""
    cases: Mapping[str, Case]


class Facts(TypedDict, total=False):
    """Fields of a finding that its judge knows, and no card."""

    severity: Severity
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    nodes: tuple[str, ...]
    subject: str
    engine: str
    caused_by: str | None
    blocks_starts: bool
    references: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    scope: str
    since_wall_s: float | None


def found(card_id: str, case: str, figures: Figures, **facts: Unpack[Facts]) -> Finding:
    """The finding of a case. Its remedies are the card's; `remedies` takes their place.

    Raises:
        KeyError: the card has no such case, or a slot no figure.
    """
    own = card(card_id)
    said = own.cases[case]
    slots = _slots(said, figures)
    given: Facts = {
        "severity": said.severity,
        "confidence": said.confidence,
        "references": own.sources,
        **facts,
    }
    if "remedies" not in given:
        given["remedies"] = _remedies(said, figures, slots)
    return Finding(
        rule=card_id,
        title=said.title.format_map(slots),
        explanation=said.explanation.format_map(slots),
        distinction=tuple(_filled(said.distinction, slots)),
        settles=said.settles.format_map(slots) if given["confidence"] is Confidence.SUSPECTED else "",
        brief=said.brief.format_map(slots),
        **given,
    )


def remedies(card_id: str, case: str, figures: Figures) -> tuple[Remedy, ...]:
    """The remedies of a case."""
    said = card(card_id).cases[case]
    return _remedies(said, figures, _slots(said, figures))


@cache
def card(card_id: str) -> Card:
    """The card with this id; raises KeyError."""
    area, _, name = card_id.partition(".")
    return _card(card_id, tomllib.loads(_area(area)[name])[name])


def cards() -> Iterator[Card]:
    """Every card."""
    areas = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    return (card(f"{area}.{name}") for area in areas for name in _area(area))


# --- text


class _Text(str):
    """A figure in words, or several, which `:q` quotes for a shell."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return shlex.quote(self) if spec == "q" else str.__format__(self, spec)


def _slots(said: Case, figures: Figures) -> dict[str, object]:
    slots = {name: _shown(value) for name, value in figures.items() if value == "" or _is_there(value)}
    absent = {name: text.format_map(slots) for name, text in said.absent if not _is_there(figures.get(name))}
    present = {name: text.format_map(slots) for name, text in said.present if _is_there(figures.get(name))}
    empty = dict.fromkeys((name for name, _ in (*said.present, *said.absent)), "")
    return {**slots, **empty, **absent, **present} if empty else slots


def _is_there(value: object) -> bool:
    return value is not None and value is not False and value != "" and value != ()


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return _Text(listed(map(str, value)))
    return _Text(value) if isinstance(value, str) else value


def _filled(texts: Iterable[str], slots: Mapping[str, object]) -> Iterator[str]:
    return filter(None, (text.format_map(slots) for text in texts))


def _remedies(said: Case, figures: Figures, slots: Mapping[str, object]) -> tuple[Remedy, ...]:
    return tuple(
        replace(
            remedy,
            title=remedy.title.format_map(slots),
            steps=tuple(_steps(remedy.steps, figures, slots)),
            cost=remedy.cost.format_map(slots),
            **_computed(remedy, {key: figures.get(name) for key, name in taken.items() if key != "if"}, slots),
        )
        for taken, remedy in said.remedies
        if "if" not in taken or _is_there(figures.get(taken["if"]))
    )


def _computed(remedy: Remedy, fields: Mapping[str, Any], slots: Mapping[str, object]) -> Mapping[str, Any]:
    """What a figure gives: without it there is no action."""
    change = remedy.change and _change(remedy.change, slots)
    return {"change": change, **fields, "action": None if None in fields.values() else remedy.action}


def _change(change: Change, slots: Mapping[str, object]) -> Change:
    flags = {name.format_map(slots): value and value.format_map(slots) for name, value in change.flags.items()}
    return replace(change, flags=flags)


def _steps(steps: tuple[str, ...], figures: Figures, slots: Mapping[str, object]) -> Iterator[str]:
    for step in steps:
        several = figures.get(step[1:-1])
        if isinstance(several, tuple):
            yield from map(str, several)
        else:
            yield from _filled((step,), slots)


# --- files


@cache
def _area(name: str) -> Mapping[str, str]:
    """The text of each card: a finding waits for the parsing of its own card, not of all."""
    parts = _CARD.split((_FOLDER / f"{name}.toml").read_text("utf-8"))[1:]
    return {part.partition("]")[0]: f"[{part}" for part in parts}


def _card(card_id: str, row: Mapping[str, Any]) -> Card:
    return Card(
        id=card_id,
        title=row["title"],
        severity=Severity(row["severity"]),
        scope=row["scope"],
        sources=tuple(row["sources"]),
        cases={
            name: _case({**row, **table}, card_id)
            for name, table in row.items()
            if isinstance(table, Mapping) and name not in ("if", "else")
        },
    )


def _case(row: Mapping[str, Any], place: str) -> Case:
    rows = row.get("remedy", [])
    taken = [{key: entry[key] for key in _TAKEN if isinstance(entry.get(key), str)} for entry in rows]
    plain = {
        "remedy": [{key: entry[key] for key in entry.keys() - names} for entry, names in zip(rows, taken, strict=True)]
    }
    return Case(
        title=row["title"],
        severity=Severity(row["severity"]),
        confidence=Confidence(row.get("confidence", Confidence.CONFIRMED)),
        explanation=row.get("explanation", ""),
        distinction=tuple(row.get("distinction", ())),
        settles=row.get("settles", ""),
        brief=row.get("brief", ""),
        remedies=tuple(zip(taken, rule_file.remedies(plain, place), strict=True)),
        present=tuple(row.get("if", {}).items()),
        absent=tuple(row.get("else", {}).items()),
    )
