"""Merges what `dump.py` printed of one or more engines into src/sparktop/cmdline/engine_flags.toml.

    python -m tests.real.flags.table DUMP.json...

A version that the table has already is replaced; the others stay, with the flags and spellings that each has. What was
wrong is printed: in the table of that version, and in the figures of the engine's file in model/kinds.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparktop.engines.metrics import sources_of
from sparktop.model.engine import EngineKind

PATH = Path(__file__).parents[3] / "src" / "sparktop" / "cmdline" / "engine_flags.toml"
HEAD = """\
# The flags of vLLM and SGLang as their own argparse has them, made by `make engine-flags` from installed engines.
#
# NAME=ALIAS!OFF@VERSIONS: a flag's first long name, its other names, the names that turn a switch off; a name that
# isn't in all versions is followed by the first and the last that have it, of those read (@0.28.0-, @-0.24.0).
# The keys say how many words a flag takes: one, many, none (`switch`), one or none (`optional`). A `pair` has --NAME
# and --no-NAME; a `pair-on` is on in every version unless turned off, for a `pair-auto` the engine decides.
"""
KEYS = ("one", "many", "optional", "switch", "pair", "pair-on", "pair-auto")
_ARITY = {None: "one", 1: "one", "*": "many", "+": "many", "?": "optional"}


@dataclass
class Flag:
    """One flag in all versions: its spellings and its kind by version."""

    names: dict[str, set[str]] = field(default_factory=dict)
    off: dict[str, set[str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)


def kind_of(option: Mapping[str, Any]) -> str:
    """The key of one option of a dump; a number of values that no key stands for is an error."""
    if not option["switch"]:
        return _ARITY[option["nargs"]]
    if not option["off"]:
        return "switch"
    return {True: "pair-on", False: "pair"}.get(option["default"], "pair-auto")


def merged(engines: Mapping[str, Mapping[str, Iterable[Mapping[str, Any]]]]) -> str:
    """The table of {engine: {version: options as in a dump}}."""
    return HEAD + "".join(_engine(name, dict(sorted(versions.items(), key=_order))) for name, versions in
                          sorted(engines.items(), reverse=True))  # fmt: skip


def _engine(name: str, versions: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    flags: list[Flag] = []
    by_spelling: dict[str, Flag] = {}
    for version, options in versions.items():
        for option in options:
            flag = next((by_spelling[text] for text in option["opts"] if text in by_spelling), None)
            if flag is None:
                flags.append(flag := Flag())
            flag.kinds[version] = kind_of(option)
            for text in option["opts"]:
                if by_spelling.setdefault(text, flag) is not flag:
                    raise SystemExit(f"{name} {version}: {text} was another flag in an earlier version")
                (flag.off if text in option["off"] else flag.names).setdefault(text, set()).add(version)
    rows: dict[str, list[str]] = {key: [] for key in KEYS}
    for flag in flags:
        rows[_key(name, flag)].append(_row(flag, list(versions)))
    lines = [f"\n[{name}]", f"versions = {json.dumps(list(versions))}"]
    for key, names in rows.items():
        if names:
            lines += [f'{key} = """', *textwrap.wrap(" ".join(sorted(names)), 119, break_on_hyphens=False), '"""']
    return "\n".join(lines) + "\n"


def _key(engine: str, flag: Flag) -> str:
    kinds = set(flag.kinds.values())
    if len(kinds) == 1:
        return kinds.pop()
    if kinds <= {"pair", "pair-on", "pair-auto"}:
        return "pair-auto"
    raise SystemExit(
        f"{engine}: {next(iter(flag.names))} takes another number of values in another version: {flag.kinds}"
    )


def _row(flag: Flag, versions: list[str]) -> str:
    newest = max(flag.kinds, key=versions.index)
    long_names = [text for text in flag.names if text.startswith("--")]
    first = next(text for text in long_names if newest in flag.names[text])
    text = first[2:] + _range(flag.names[first], versions)
    text += "".join(f"={name}{_range(flag.names[name], versions)}" for name in flag.names if name != first)
    implied = {f"--no-{name[2:]}": flag.names[name] for name in long_names}
    return text + "".join(
        f"!{name}{_range(those, versions)}" for name, those in flag.off.items() if implied.get(name) != those
    )


def _range(those: set[str], versions: list[str]) -> str:
    if len(those) == len(versions):
        return ""
    at = sorted(map(versions.index, those))
    if at != list(range(at[0], at[-1] + 1)):
        raise SystemExit(f"a name is in {sorted(those)}, but not in all versions between them")
    first, last = versions[at[0]] if at[0] else "", versions[at[-1]] if at[-1] < len(versions) - 1 else ""
    return f"@{first}-{last}"


def dumped(text: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """What dumps with this table's content would hold: {engine: {version: options}}."""
    return {
        engine: {version: list(_options(table, version)) for version in table["versions"]}
        for engine, table in tomllib.loads(text).items()
    }


def _options(table: Mapping[str, Any], version: str) -> Iterable[dict[str, Any]]:
    for key in KEYS:
        for row in table.get(key, "").split():
            names = [_in(part, version, table["versions"]) for part in re.split(r"(?=[=!])", f"=--{row}")]
            opts = [name[1:] for name in names if name.startswith("=")]
            off = [name[1:] for name in names if name.startswith("!")]
            if key.startswith("pair"):
                off += [f"--no-{name[2:]}" for name in opts if name.startswith("--")]
            if opts:
                nargs = {"many": "+", "optional": "?", "one": None}.get(key, 0)
                default = {"pair-on": True, "pair-auto": None}.get(key, False)
                yield {"opts": opts + off, "off": off, "switch": nargs == 0, "nargs": nargs, "default": default}


def _in(part: str, version: str, versions: list[str]) -> str:
    name, _, limits = part.partition("@")
    first, _, last = limits.partition("-")
    at = versions.index(version)
    is_in = versions.index(first or versions[0]) <= at <= versions.index(last or versions[-1])
    return name if is_in else ""


def wrong(dump: Mapping[str, Any], options: Iterable[Mapping[str, Any]] | None) -> Iterator[str]:
    """What these options, of the table for its version, have otherwise than a dump, and which figures it can't give."""
    named = {frozenset(option["opts"]): option for option in dump["flags"] if option["opts"]}
    ours = {frozenset(option["opts"]): option for option in options or named.values()}
    yield from (f"no flag: {' '.join(sorted(names))}" for names in ours.keys() - named.keys())
    yield from (f"missing: {' '.join(sorted(names))}" for names in named.keys() - ours.keys())
    for names in named.keys() & ours.keys():
        kinds = [re.sub("pair.*", "pair", kind_of(option[names])) for option in (ours, named)]
        if kinds[0] != kinds[1] or set(ours[names]["off"]) != set(named[names]["off"]):
            yield f"other values: {' '.join(sorted(names))}: {kinds[0]}, really {kinds[1]}"
    kind, metrics = EngineKind(dump["engine"]), set(dump.get("metrics", ()))
    figures = {figure: [[one.name for one in sources] for sources in all_] for figure, all_ in sources_of(kind).items()}
    figures |= {figure: [[name] for name in names] for figure, names in kind.traits.histograms.items()}
    for figure, alternatives in figures.items() if metrics else ():
        bare = [{re.sub("(_(total|count|sum|bucket))+$", "", name) for name in names} for names in alternatives]
        if not any(names <= metrics for names in bare):
            yield f"no metric of {figure}: {' '.join(sorted(set().union(*bare) - metrics))}"


def _order(item: tuple[str, object]) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", item[0]))


def main() -> None:
    engines = dumped(PATH.read_text()) if PATH.exists() else {}
    for path in sys.argv[1:]:
        dump = json.loads(Path(path).read_text())
        version = re.match(r"[\d.]+", dump["version"])[0]  # type: ignore[index]
        versions = engines.setdefault(dump["engine"], {})
        print(
            f"{dump['engine']} {version}",
            *(list(wrong(dump, versions.get(version))) or ["nothing is wrong"]),
            sep="\n  ",
        )
        versions[version] = dump["flags"]
    PATH.write_text(merged(engines))


if __name__ == "__main__":
    main()
