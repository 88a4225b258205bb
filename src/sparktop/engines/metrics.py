"""Parse an engine's /metrics into figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from types import MappingProxyType
from typing import Any

from sparktop import sanitise
from sparktop.bounds import LARGEST, json_of, number_in
from sparktop.dataclass import dataclass
from sparktop.model.engine import EndpointState, EngineKind, EngineMetrics
from sparktop.model.telemetry import NO_GAPS, GapReason
from sparktop.transport.lean import import_alone

_ANY: Mapping[str, frozenset[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMetrics:
    """Why an answer has no figures of this engine."""

    state: EndpointState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure comes from: a sample's name, the labels to match, and how several samples combine."""

    name: str
    where: Mapping[str, frozenset[str]] = field(default_factory=lambda: _ANY)
    way: str = "sum"
    """sum, max (for ratios) or count."""


_TERM = re.compile(r"(?:(?P<way>max|count) )?(?P<name>(?:/\S+ )?[\w:.]+)(?:\{(?P<label>\w+)=(?P<values>[\w|]+)\})?")
_Alternatives = tuple[tuple[Source, ...], ...]


def _source(text: str) -> Source:
    match = _TERM.fullmatch(text)
    assert match, text
    where = {match["label"]: frozenset(match["values"].split("|"))} if match["label"] else _ANY
    return Source(name=match["name"], where=where, way=match["way"] or "sum")


@cache
def sources_of(kind: EngineKind) -> Mapping[str, _Alternatives]:
    """By figure, what to try in order: each the sum of its sources. A name with a path is one in a JSON answer."""
    figures = kind.traits.figures.items()
    return {name: tuple(tuple(map(_source, text.split(" + "))) for text in texts) for name, texts in figures}


def _all_sources(kind: EngineKind) -> Iterator[Source]:
    return (source for texts in sources_of(kind).values() for sources in texts for source in sources)


@cache
def paths_of(kind: EngineKind) -> tuple[str, ...]:
    """The paths that figures come from: that of its metrics, and those of JSON."""
    json_paths = (source.name.partition(" ")[0] for source in _all_sources(kind) if " " in source.name)
    return tuple(dict.fromkeys(([kind.traits.metrics_path] if kind.traits.metrics_prefix else []) + [*json_paths]))


RANK_LABELS = ("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "cp_rank")
_NOT_SUPPORTED = dict.fromkeys(
    ("waiting", "prompt_tokens", "generation_tokens", "kv_cache_ratio"), GapReason.NOT_SUPPORTED
)
_WITHOUT_FIGURES = "its names have no figures yet: SGLang has some after half a minute or its first request"
MAX_ROWS = 4096
"""Samples of interest in one answer: an engine of eight ranks has some 600."""
_NAME = re.compile(rb"^([a-zA-Z_:][a-zA-Z0-9_:]*)[ {\t]")


def parse(
    text: bytes, kind: EngineKind, wall_s: float, answers: Mapping[str, bytes] = MappingProxyType({})
) -> EngineMetrics | NotMetrics:
    """The figures of one scrape; `gaps` names the missing ones.

    Args:
        text: the body of its metrics, any bytes; empty where there is none.
        wall_s: the operator's wall clock at the scrape.
        answers: JSON of other paths.
    """
    if text.lstrip()[:1] in (b"<", b"{"):
        return NotMetrics(state=EndpointState.NOT_METRICS, reason="it answers a page and not metrics")
    try:
        samples = _samples(text, kind)
        for path, body in answers.items():
            _add_json(samples, path, body)
    except TooManyRows:
        reason = f"its answer has more than {MAX_ROWS} samples of a name: left unread"
        return NotMetrics(state=EndpointState.NOT_METRICS, reason=reason)
    for source in _all_sources(kind):
        if source.way == "count" and source.name.partition(" ")[0] in answers:  # an empty list has no rows
            samples.setdefault(source.name, [])
    if not samples and any(_json(body) is not None for body in answers.values()):
        return without_figures(wall_s, GapReason.NOT_FOUND)
    if not samples:
        if not _NAME.search(text) and b"\n# TYPE " not in b"\n" + text:
            return NotMetrics(state=EndpointState.NOT_METRICS, reason="its answer can't be read as metrics")
        traits = kind.traits
        has_names = f"\n{traits.metrics_prefix}".encode() in b"\n" + text
        other = "or is this another server?"
        way = (
            f"start it with {traits.metrics_on}"
            if traits.metrics_on
            else f"is it started with {traits.metrics_off}, {other}"
        )
        reason = _WITHOUT_FIGURES if has_names else f"no {traits.metrics_prefix} names in it: {way}"
        return NotMetrics(state=EndpointState.NO_FIGURES, reason=reason)
    figures: dict[str, Any] = {name: _figure(samples, texts) for name, texts in sources_of(kind).items()}
    for name, histograms in kind.traits.histograms.items():
        figures[f"{name}_sum_s"] = _figure(samples, [(Source(name=f"{histogram}_sum"),) for histogram in histograms])
        figures[f"{name}_count"] = _figure(samples, [(Source(name=f"{histogram}_count"),) for histogram in histograms])
        figures[f"{name}_buckets"] = _buckets(samples, histograms)
    gaps = {name: GapReason.NOT_FOUND for name, value in figures.items() if value is None}
    gaps |= {name: reason for name, reason in _NOT_SUPPORTED.items() if name not in figures}
    return EngineMetrics(wall_s=wall_s, model=_model(samples), gaps=gaps or NO_GAPS, **figures)


def without_figures(wall_s: float, reason: GapReason) -> EngineMetrics:
    """Of an engine that serves and may not be asked."""
    return EngineMetrics(wall_s=wall_s, gaps=dict.fromkeys((*_NOT_SUPPORTED, "running"), reason))


def text_in(body: bytes, keys: str) -> str | None:
    """The first text at "KEY.KEY" of a JSON answer, lists looked through."""
    texts = (value for name, value, _ in _leaves(_json(body)) if name == keys and isinstance(value, str))
    return next((sanitise.name(text) for text in texts if text), None)


def _json(body: bytes) -> object:
    try:
        data: object = json_of(body)
    except ValueError:
        return None
    return data


def _leaves(
    value: object, name: str = "", labels: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, object, Mapping[str, str]]]:
    """(dotted name, value, the true and false beside it) of what is no list or object, lists looked through."""
    if isinstance(value, dict):
        labels = {**labels, **{key: str(item).lower() for key, item in value.items() if isinstance(item, bool)}}
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key), labels)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, name, labels)
    else:
        yield name, value, labels


def _add_json(samples: _Samples, path: str, body: bytes) -> None:
    for number, (name, value, labels) in enumerate(_leaves(_json(body))):
        if number > MAX_ROWS * 8:
            raise TooManyRows
        if isinstance(value, int | float) and abs(value) <= LARGEST:
            samples.setdefault(f"{path} {name}", []).append(({**labels, "row": str(number)}, float(value)))


class TooManyRows(Exception):
    """An answer with more samples than any engine has."""


_Samples = dict[str, list[tuple[Mapping[str, str], float]]]


@cache
def names_of(kind: EngineKind) -> frozenset[bytes]:
    """The samples that its figures need."""
    names = {source.name for source in _all_sources(kind)}
    for histograms in kind.traits.histograms.values():
        names |= {f"{name}{suffix}" for name in histograms for suffix in ("_sum", "_count", "_bucket")}
    return frozenset(name.encode() for name in names)


def _samples(text: bytes, kind: EngineKind) -> _Samples:
    """The samples of interest by name; an unreadable line is skipped, not the whole answer."""
    names = names_of(kind)
    rows = []
    for row in text.split(b"\n"):  # nine of ten lines are not needed: parsing them would be slow
        match = _NAME.match(row)
        if match and match[1] in names:
            rows.append(row.decode("utf-8", "replace"))
            if len(rows) > MAX_ROWS:
                raise TooManyRows
    samples = _parse_rows(rows)
    if samples is None:
        samples = [sample for row in rows for sample in _parse_rows([row]) or ()]
    by_name: _Samples = {}
    for name, labels, value in samples:
        if abs(value) <= LARGEST:  # also false for NaN
            by_name.setdefault(name, []).append((labels, float(value)))
    return by_name


def _parse_rows(rows: Sequence[str]) -> list[tuple[str, Mapping[str, str], float]] | None:
    parser = import_alone("prometheus_client.parser")  # the package has servers, a registry and their libraries: 1.2 MB
    try:
        families = list(parser.text_string_to_metric_families("\n".join(rows) + "\n"))
    except Exception:  # noqa: BLE001 - the parser says nowhere what it raises; found so far: five kinds
        return None
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def _figure(samples: _Samples, alternatives: Iterable[Sequence[Source]]) -> float | None:
    for sources in alternatives:
        if all(source.name in samples for source in sources):
            return sum(_combined(samples[source.name], source) for source in sources)
    return None


def _combined(rows: Sequence[tuple[Mapping[str, str], float]], source: Source) -> float:
    values = list(_once_per_rank(rows, source.where).values())
    if source.way == "count":
        return float(len(values))
    return max(values, default=0.0) if source.way == "max" else sum(values)


def _once_per_rank(
    rows: Sequence[tuple[Mapping[str, str], float]], where: Mapping[str, frozenset[str]] = _ANY
) -> dict[tuple[tuple[str, str], ...], float]:
    """Values by their labels without the rank; of several ranks, the lowest one's value.

    SGLang with priorities gives each one's share beside the total, whose priority is empty.
    """
    if any(labels.get("priority") == "" for labels, _ in rows):
        rows = [row for row in rows if not row[0].get("priority")]
    lowest: dict[tuple[tuple[str, str], ...], tuple[tuple[str, ...], float]] = {}
    for labels, value in rows:
        if any(labels.get(label) not in allowed for label, allowed in where.items()):
            continue
        group = tuple(sorted((name, text) for name, text in labels.items() if name not in RANK_LABELS))
        rank = tuple(labels.get(name, "").rjust(6, "0") for name in RANK_LABELS)
        if group not in lowest or rank < lowest[group][0]:
            lowest[group] = (rank, value)
    return {group: value for group, (_, value) in lowest.items()}


def _buckets(samples: _Samples, histograms: Iterable[str]) -> tuple[tuple[float, float], ...]:
    for histogram in histograms:
        rows = samples.get(f"{histogram}_bucket")
        if rows:
            by_bound: dict[float, float] = {}
            for group, count in _once_per_rank(rows).items():
                text = dict(group).get("le", "")
                bound = math.inf if text == "+Inf" else number_in(text)
                if bound is not None:
                    by_bound[bound] = by_bound.get(bound, 0.0) + count
            return tuple(sorted(by_bound.items()))
    return ()


def _model(samples: _Samples) -> str | None:
    for rows in samples.values():
        for labels, _ in rows:
            if labels.get("model_name"):
                return sanitise.name(labels["model_name"])
    return None
