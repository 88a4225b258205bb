"""An engine's flags in its command line: parsed, looked up, set, removed. Of a flag given twice the last one counts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sparktop.cmdline.engine_flags import OFF, Arity, attached, canonical, is_flag, polar, spec_names, spec_of
from sparktop.cmdline.source import Item, Word, hull
from sparktop.dataclass import dataclass
from sparktop.model.engine import VERSIONED, EngineKind

_FIGURE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kKmMgGtT]?)(?:i?[bB])?")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One occurrence of a flag."""

    at: int
    """The index of its word."""
    word: str
    spelled: str
    """Its name as it is typed."""
    name: str
    """Canonical, with `no-` before it where the word turns the flag off."""
    joined: str | None = None
    """The value in the same word, as after "="."""
    values: tuple[int, ...] = ()
    """Indices of the words that are its values."""

    @property
    def end(self) -> int:
        """The index after its last word."""
        return self.values[-1] + 1 if self.values else self.at + 1


def parsed(
    words: Sequence[str | None], kind: EngineKind | None = None, version: str | None = None
) -> tuple[list[Flag], list[int]]:
    """The flags in order, and the indices of the words that belong to none: program, model, unknown words (None)."""
    flags: list[Flag] = []
    loose: list[int] = []
    index = 0
    while index < len(words):
        word, at = words[index], index
        index += 1
        if word is None or not is_flag(word, kind):
            loose.append(at)
            continue
        spelled, equals, joined = attached(word, kind) or word.partition("=")
        name = polar(spelled, kind, version)
        arity = spec_of(name, kind).arity
        limit = 0 if equals or arity is Arity.SWITCH else len(words) if arity is Arity.MANY else 1
        while index < len(words) and index - at <= limit and not is_flag(words[index] or "", kind):
            index += 1
        values, value = tuple(range(at + 1, index)), joined if equals else None
        flags.append(Flag(at=at, word=word, spelled=spelled, name=name, joined=value, values=values))
    return flags, loose


def flags_of(
    words: Sequence[Word], kind: EngineKind | None = None, version: str | None = None
) -> tuple[list[Item], list[Word]]:
    """The flags in order with their positions, and the words that belong to no flag (the model's name)."""
    flags, loose = parsed([word.text for word in words], kind, version)
    items = []
    for flag in flags:
        word, values = words[flag.at], [words[index] for index in flag.values]
        if flag.joined is not None:
            values = [word.part(len(flag.word) - len(flag.joined))]
        items.append(
            Item(
                name=flag.name,
                value=values[0].text if values else None,
                rest=tuple(value.text for value in values[1:]),
                spelled=flag.spelled,
                span=hull(word, values[-1] if values else None),
                value_span=hull(values[0], values[-1]) if values else None,
            )
        )
    return items, [words[index] for index in loose]


def flag_of(name: str, engine: EngineKind) -> str:
    """A parameter's flag ("tensor_parallel": "--tensor-parallel-size"), from sparkrun's names or the engine's own."""
    return "--" + engine.traits.parameters.get(name, name.replace("_", "-"))


def words_of(name: str, value: str, engine: EngineKind, *, is_bool: bool = False) -> tuple[str, ...]:
    """A parameter as words of an argv; a switch on or off, a value that begins with a dash joined by "="."""
    flag = flag_of(name, engine)
    spec = spec_of(canonical(flag, engine), engine)
    if is_bool and engine not in VERSIONED and spec.arity is Arity.ONE and spec.name in spec_names(engine):
        return (flag, "on" if value.lower() == "true" else "off")  # llama.cpp's flash-attn
    if is_bool or spec.arity is Arity.SWITCH:
        if value.lower() in ("true", ""):
            return (flag,)
        if value.lower() == "false":
            return (f"--{OFF}{flag[2:]}",) if spec.says_off and not polar(flag, engine).startswith(OFF) else ()
    return joined_words(flag, value, engine)


def joined_words(flag: str, value: str, kind: EngineKind) -> tuple[str, ...]:
    """The words of a flag; a value that begins with a dash is joined where argparse would take it for a flag."""
    return (f"{flag}={value}",) if value.startswith("-") and kind in VERSIONED else (flag, value)


def values_of(argv: Sequence[str], kind: EngineKind | None = None) -> Mapping[str, str]:
    """The first value of each flag's last occurrence, by canonical name; "" for a switch, `no-NAME` for one off."""
    return _values(tuple(argv), kind)


@lru_cache(maxsize=32)  # one argv is asked for dozens of flags
def _values(argv: tuple[str, ...], kind: EngineKind | None) -> Mapping[str, str]:
    values: dict[str, str] = {}
    for flag in parsed(argv, kind)[0]:
        values.pop(opposite(flag.name), None)
        values[flag.name] = flag.joined if flag.joined is not None else argv[flag.values[0]] if flag.values else ""
    return values


def opposite(name: str) -> str:
    """The canonical name of the same flag turned the other way."""
    return name.removeprefix(OFF) if name.startswith(OFF) else f"{OFF}{name}"


def value_of(argv: Sequence[str], *names: str, kind: EngineKind | None = None) -> str | None:
    """A flag's value, "" for a switch; None where it isn't set."""
    values = values_of(argv, kind)
    return next((values[flag] for name in names if (flag := polar(name, kind)) in values), None)


def has(argv: Sequence[str], *names: str, kind: EngineKind | None = None) -> bool:
    """Whether a flag is set."""
    return value_of(argv, *names, kind=kind) is not None


def is_pooling(argv: Sequence[str], kind: EngineKind) -> bool:
    """Whether it is told to serve embeddings or scores, and no text; a model may do that without being told."""
    return _is_told(argv, kind, kind.traits.pooling)


def is_ranking(argv: Sequence[str], kind: EngineKind) -> bool:
    """Whether it is told to score texts; a model may do that without being told."""
    return _is_told(argv, kind, kind.traits.ranking)


def _is_told(argv: Sequence[str], kind: EngineKind, flags: Mapping[str, tuple[str, ...]]) -> bool:
    given = values_of(argv, kind)
    return any(name in given and (not those or given[name] in those) for name, those in flags.items())


def without(argv: Sequence[str], *names: str, kind: EngineKind | None = None) -> tuple[str, ...]:
    """The argv without these flags, on or off, and their values."""
    removed = {at for flag in _occurrences(argv, names, kind) for at in range(flag.at, flag.end)}
    return tuple(word for at, word in enumerate(argv) if at not in removed)


def placed(argv: Sequence[str], words: Sequence[str], *names: str, kind: EngineKind | None = None) -> tuple[str, ...]:
    """The argv with these words in place of the flags of these names, or at its end where there are none."""
    occurrences = _occurrences(argv, names, kind)
    if not occurrences:
        return (*argv, *words)
    first = occurrences[0].at
    return (*argv[:first], *words, *without(argv[first:], *names, kind=kind))


def whole(text: str) -> int | None:
    """ "32768", "32k" (decimal) or "32K" (binary), as vLLM reads them, as a positive integer; None where it is none."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None:
        return None
    figure = int(float(match[1]) * _SUFFIXES[match[2]])
    return figure if figure > 0 else None


def _occurrences(argv: Sequence[str], names: Sequence[str], kind: EngineKind | None) -> list[Flag]:
    """The flags of these names, on or off."""
    wanted = {canonical(name, kind) for name in names}
    return [flag for flag in parsed(argv, kind)[0] if flag.name.removeprefix(OFF) in wanted]
