"""What an error that no rule knows says of what to try, and which part of the engine raised it: advice.toml. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sparktop.dataclass import dataclass
from sparktop.model.finding import Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to try, as remedies whose titles `values` fill."""

    remedies: tuple[Remedy, ...] = ()
    values: Mapping[str, str]
    part: str = ""
    """ "attention"; empty where neither the words nor the file tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    regex: re.Pattern[str]
    remedy: Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    name: str
    regex: re.Pattern[str]
    by_engine: Mapping[str, str]


def advice_of(words: str, file: str, engine: str) -> Advice:
    """The advice for an error.

    Args:
        words: what the error said, whole.
        file: of the innermost frame, where there is a traceback.
        engine: "vllm", "sglang", "llama.cpp"; empty for another program, which gets no engine's flags.
    """
    said, layers = _tables()
    remedies: list[Remedy] = []
    values: dict[str, str] = {}
    for row in said:
        if match := row.regex.search(words):
            remedies.append(row.remedy)
            values |= match.groupdict(default="")
    layer = _layer(layers, file, words) if engine else None
    if layer is not None and engine in layer.by_engine:
        remedies.append(Remedy(title=layer.by_engine[engine], cost="one more start"))
    return Advice(remedies=tuple(remedies), values=values, part=layer.name if layer is not None else "")


def _layer(layers: tuple[_Layer, ...], file: str, words: str) -> _Layer | None:
    """By the file's own name first: every path goes through folders of many parts."""
    for text in (file.rpartition("/")[2], file, words):
        for layer in layers:
            if text and layer.regex.search(text):
                return layer
    return None


@cache
def _tables() -> tuple[tuple[_Said, ...], tuple[_Layer, ...]]:
    raw = tomllib.loads(Path(__file__).with_name("advice.toml").read_text("utf-8"))
    said = tuple(
        _Said(regex=re.compile(row["regex"]), remedy=Remedy(title=row["title"], cost="one more start"))
        for row in raw["said"]
    )
    layers = tuple(
        _Layer(
            name=row["name"],
            regex=re.compile(row["regex"], re.IGNORECASE),
            by_engine={name: row[name] for name in ("vllm", "sglang", "llama.cpp") if name in row},
        )
        for row in raw["layer"]
    )
    return said, layers
