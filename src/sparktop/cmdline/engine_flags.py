"""The flags of engines by all their names, as their own parsers read them: engine_flags.toml, and others' own files.

argparse takes any unambiguous beginning of a long name; vLLM also underscores for dashes, and `-O3` for
`--optimization-level 3`. A flag that no version in the table has takes one value, or none where its name begins as a
switch's does (docs/facts/engines.md section 4).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from sparktop.dataclass import dataclass
from sparktop.errors import nearest
from sparktop.model.engine import VERSIONED, EngineKind


class Arity(Enum):
    """How many words after a flag are its values."""

    SWITCH = 0
    ONE = 1
    MANY = 2
    OPT = 3
    """One or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpec:
    """A flag by its long name without dashes: vLLM's, where both engines have it."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names, without dashes."""
    arity: Arity = Arity.ONE
    says_off: bool = False
    """A switch that is off only as `--no-NAME`: where it isn't given, it is on, or the engine decides."""


_Named = tuple[FlagSpec, bool, tuple[str, ...]]
"""What a name stands for: the flag, whether it turns it off, the versions that have the name."""
_KINDS = {
    "one": Arity.ONE, "many": Arity.MANY, "optional": Arity.OPT, "switch": Arity.SWITCH, "pair": Arity.SWITCH,
    "pair-on": Arity.SWITCH, "pair-auto": Arity.SWITCH,
}  # fmt: skip
OFF = "no-"
"""Before the name of a flag that is turned off."""
SECRET_FLAGS = {"api-key": "VLLM_API_KEY", "admin-api-key": "", "hf-token": "HF_TOKEN", "ssl-keyfile-password": ""}
"""The flags that hold a secret, and the variable that vLLM reads instead; "" where it reads none."""
_SWITCH_NAME = re.compile(r"(?:enable|disable|no|trust|enforce|skip|use|allow|log)-")
_ATTACHED = re.compile(r"(-[Onqr])(?:(?<=O)=)?([^=.].*)")
"""A single-letter flag of vLLM with its value in the same word: `-O3`, `-n2`."""


class _Parser(NamedTuple):  # made in a sixth of a dataclass's time, and each start imports it
    """One engine's flags, by their names with dashes."""

    versions: tuple[str, ...]
    names: Mapping[str, _Named]
    in_order: Sequence[str]

    def meant(self, head: str, version: str) -> dict[tuple[str, bool], FlagSpec]:
        """(flag, whether off) that a name, or the beginning of several, stands for in one version; none where it is
        no name there."""
        named = self.names.get(head)
        if named is None or version not in named[2]:
            names = self.in_order[bisect_left(self.in_order, head) :] if len(head) > 2 else ()
            begun = [self.names[name] for name in takewhile(lambda name: name.startswith(head), names)]
        else:
            begun = [named]
        return {(flag.name, is_off): flag for flag, is_off, versions in begun if version in versions}

    def versions_for(self, version: str | None) -> tuple[str, ...]:
        """Those in the table that a version's parser is: itself, else its neighbours; all where it isn't known."""
        if version is None:
            return self.versions
        older = [each for each in self.versions if _numbers(each) <= _numbers(version)][-1:]
        newer = [each for each in self.versions if _numbers(each) >= _numbers(version)][:1]
        return tuple(dict.fromkeys(older + newer))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


@cache
def _parsers() -> Mapping[EngineKind, _Parser]:
    import tomllib  # first paint reads no flags

    tables = tomllib.loads(Path(__file__).with_name("engine_flags.toml").read_text("utf-8"))
    parsers: dict[EngineKind, _Parser] = {}
    for engine in EngineKind:
        table = tables[engine] if engine in VERSIONED else engine.traits.flags
        versions = tuple(table.get("versions", ()))
        known = parsers[EngineKind.VLLM].names if engine is EngineKind.SGLANG else {}
        names = dict(_names(table, versions, known))
        parsers[engine] = _Parser(versions, names, sorted(names))
    return parsers


def _names(
    table: Mapping[str, Any], versions: tuple[str, ...], known: Mapping[str, _Named]
) -> Iterator[tuple[str, _Named]]:
    """Every name of an engine's flags; a flag that `known` has under any name has its name."""
    for kind, arity in _KINDS.items():
        is_pair = kind.startswith("pair")
        for row in table.get(kind, "").split():
            signed = re.findall(r"([=!])([^=!@]+)@?([^=!]*)", f"=--{row}")
            own = [name for sign, name, _ in signed if sign == "="]
            main = next((known[name][0].name for name in own if name in known and not known[name][1]), own[0][2:])
            aliases = tuple(plain for name in own if (plain := name.lstrip("-")) != main)
            says_off = kind != "pair" if is_pair else "!--no-" in row
            flag = FlagSpec(name=main, aliases=aliases, arity=arity, says_off=says_off)
            for sign, name, limits in signed:
                first, _, last = limits.partition("-")
                begin = versions.index(first) if first else 0
                those = versions[begin : versions.index(last) + 1] if last else versions[begin:]
                yield name, (flag, sign == "!", those)
                if is_pair and sign == "=" and name.startswith("--"):
                    yield f"--no-{name[2:]}", (flag, True, those)


@cache
def _short_names(kind: EngineKind | None = None) -> frozenset[str]:
    parsers = [_parsers()[engine] for engine in ((kind,) if kind and kind not in VERSIONED else VERSIONED)]
    return frozenset(name[1:] for parser in parsers for name in parser.names if name[1] != "-")


def is_flag(text: str, kind: EngineKind | None = None) -> bool:
    """Whether a word is a flag: two dashes, or one for the engines' short flags."""
    if not text.startswith("-"):
        return False
    if re.match(r"--[A-Za-z]", text):
        return True
    if kind is not None and kind not in VERSIONED:
        return text[1:] in _short_names(kind)
    return text == "-O" or re.split(r"[=.]", text[1:])[0] in _short_names() or attached(text) is not None


def attached(text: str, kind: EngineKind | None = None) -> tuple[str, str, str] | None:
    """(flag, "=" or what takes its place, value) of a single-letter flag with its value; None for any other word."""
    match = _ATTACHED.fullmatch(text) if kind is None or kind in VERSIONED else None
    return (match[1], "=", match[2]) if match and re.split(r"[=.]", text[1:])[0] not in _short_names() else None


@lru_cache(maxsize=4096)
def polar(name: str, kind: EngineKind | None = None, version: str | None = None) -> str:
    """A flag's canonical name, with `no-` before it where `name` turns it off.

    `name` is any of its names or the beginning of one, with its dashes or without. Underscores become dashes; a key
    after a dot stays. Without `kind` it may be any launched engine's, without `version` any version's: a
    beginning counts where all versions that accept it mean the same flag.
    """
    head, dot, key = name.replace("_", "-").partition(".")
    if head.lstrip("-") == "O":
        return f"optimization-level{dot}{key}"
    if not head.startswith("-"):
        head = f"-{head}" if head in _short_names(kind) else f"--{head}"
    parsers = [_parsers()[engine] for engine in ((kind,) if kind else VERSIONED)]
    known = next((parser.names[head] for parser in parsers if head in parser.names), None)
    if known is not None:
        meant = {(known[0].name, known[1])}
    else:
        begun = [parser.meant(head, each) for parser in parsers for each in parser.versions_for(version)]
        meant = {one for found in begun if len(found) == 1 for one in found}
    if len(meant) != 1:
        return f"{head.lstrip('-')}{dot}{key}"
    ((flag_name, is_off),) = meant
    return f"{OFF if is_off else ''}{flag_name}{dot}{key}"


def canonical(name: str, kind: EngineKind | None = None) -> str:
    """A flag's canonical name, also for a name that turns it off."""
    return polar(name, kind).removeprefix(OFF)


def spec_of(name: str, kind: EngineKind | None = None) -> FlagSpec:
    """The flag of this canonical name, or what its name tells about one that isn't in the table."""
    base, dot, _ = name.removeprefix(OFF).partition(".")
    if dot:
        return FlagSpec(name=name)  # a key of a JSON value
    for engine in (kind,) if kind else VERSIONED:
        if flag := _by_name(engine).get(base):
            return flag
    if kind is EngineKind.SGLANG:  # it has no positional argument: all words after a flag are its values
        return FlagSpec(name=name, arity=Arity.MANY)
    return FlagSpec(name=name, arity=Arity.SWITCH if _SWITCH_NAME.match(name) else Arity.ONE)


@cache
def _by_name(kind: EngineKind) -> Mapping[str, FlagSpec]:
    return {flag.name: flag for flag, _, _ in _parsers()[kind].names.values()}


def spec_names(kind: EngineKind) -> frozenset[str]:
    """The canonical names of all flags that an engine has had."""
    return frozenset(_by_name(kind))


def closest(spelled: str, kind: EngineKind, version: str) -> str:
    """The name in that version which is spelled most like this one; empty where none is."""
    parser = _parsers()[kind]
    names = [name for name, (_, _, versions) in parser.names.items() if parser.versions_for(version)[-1] in versions]
    return nearest(spelled.partition(".")[0].replace("_", "-"), names, least=0.8)


def is_in(spelled: str, kind: EngineKind, version: str) -> bool | None:
    """Whether a version's parser takes this name as it is typed; None where the table can't tell.

    It can for a version that it has, and between two that agree. Only vLLM takes underscores.
    """
    parser, head = _parsers()[kind], spelled.partition(".")[0]
    if not _numbers(parser.versions[0]) <= _numbers(version) <= _numbers(parser.versions[-1]):
        return None
    head = head.replace("_", "-") if kind is EngineKind.VLLM else head
    answers = {head == "-O" or len(parser.meant(head, each)) == 1 for each in parser.versions_for(version)}
    return answers.pop() if len(answers) == 1 else None
