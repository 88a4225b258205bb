"""Lints of flags and variables that have no effect in the version that will run, or that its parser refuses.

The lifetimes are in lifetimes.toml and flags.toml. An engine at most warns of an unknown variable, so a recipe that
outlives its image silently loses its protection.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.cmdline.engine_flags import closest, is_in
from sparktop.dataclass import dataclass
from sparktop.diagnose.lint.lint import FindingBuilder, lint, removed, renamed, replaced, respelled
from sparktop.engines.images import STOCK, Family, numbers_of
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind, at_least, is_at_most, likely_version
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

_FIRST = ("first", "second", "third")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """A flag or variable and the versions in which it works: one row of lifetimes.toml."""

    engine: EngineKind
    flag: str = ""
    variable: str = ""
    works_from: str = ""
    works_to: str = ""
    absent_to: str = ""
    gone_from: str = ""
    deprecated_from: str = ""
    idle_from: str = ""
    idle_why: str = ""
    never: bool = False
    stock: bool = False
    is_old: bool = False
    """Removed so long ago that an unknown version surely lacks it."""
    is_default: bool = False
    """What it asked for became the default when it was removed."""
    replacement: str = ""
    replacement_from: str = ""
    value: str = ""
    values: tuple[str, ...] = ()
    """All that the parsers of these versions take for the flag."""
    instead: str = ""
    sources: tuple[str, ...] = ()


@cache
def lifetimes() -> tuple[Lifetime, ...]:
    """The rows of lifetimes.toml."""
    rows = tomllib.loads(Path(__file__).with_name("lifetimes.toml").read_text("utf-8"))["item"]
    return tuple(Lifetime(**_values(row)) for row in rows)


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return values | {"engine": EngineKind(row["engine"])}


@lint("variable-without-effect", is_live=True)
def variable_without_effect(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    for row in lifetimes():
        item = spec.variable(row.variable) if row.variable else None
        if item is None or row.engine is not spec.engine or (row.stock and spec.family not in STOCK):
            continue
        name = row.engine.traits.name
        is_gone = row.never or (bool(row.gone_from) and bool(at_least(spec, row.gone_from)))
        is_idle = bool(row.idle_from) and bool(at_least(spec, row.idle_from)) and bool(is_at_most(spec, row.works_to))
        is_between = bool(row.works_to and row.gone_from) and is_at_most(spec, row.works_to) is False and not is_gone
        if likely_version(spec) is not None and not (is_gone or is_idle or is_between):
            continue
        version = f"{name} {spec.version}" if spec.version else f"this version of {name}"
        is_sure = (is_gone or is_idle) and (row.never or spec.version is not None)
        replacement = _replacement(row, spec) if is_gone else ""
        figures = {
            "variable": item.name,
            "version": version,
            "engine": name,
            "module": row.engine.value,
            "gone_from": row.gone_from,
            "sure": is_sure,
            "unsure": not is_sure,
            "replace": replacement,
            "remove": not replacement and (is_gone or row.idle_from),
            **_why(row, is_idle=is_idle),
        }
        yield build(
            item,
            "unread",
            figures,
            severity=_severity_of(row, spec, is_gone=is_gone or (row.is_old and spec.version is None)),
            settles=spec.settles_image if is_sure else "",
            edits=[removed(spec, item)],
            subject=item.name,
            references=row.sources,
        )


def _why(row: Lifetime, *, is_idle: bool) -> dict[str, object]:
    if is_idle:
        return {"idle": row.idle_why}
    reason = {"never": True} if row.never else {"until": row.works_to} if row.works_to else {"since": row.gone_from}
    return {**reason, "instead": row.replacement}


def _severity_of(row: Lifetime, spec: LaunchSpec, *, is_gone: bool) -> Severity:
    flag = row.replacement.split(" ")[0].removeprefix("--")
    is_covered = row.is_default or (bool(flag) and spec.flag(flag) is not None)
    is_tuned = spec.launcher in (Launcher.EUGR, Launcher.SPARKRUN)
    return Severity.WARNING if is_gone and not is_covered and not is_tuned else Severity.INFO


def _replacement(row: Lifetime, spec: LaunchSpec) -> str:
    """What is set instead, with its value; "" where this version doesn't have it yet."""
    is_later = row.replacement_from and spec.version and not at_least(spec, row.replacement_from)
    return "" if is_later or not row.replacement else f"{row.replacement} {row.value}".rstrip()


@cache
def _vllm_variables() -> tuple[tuple[str, ...], Mapping[str, tuple[str, str]]]:
    """The versions of vLLM in variables.toml, and the first and last with each variable."""
    table = tomllib.loads(Path(__file__).with_name("variables.toml").read_text("utf-8"))["vllm"]
    versions = tuple(table["versions"])
    limits = (row.partition("@")[::2] for row in table["names"].split())
    known = {name: limit.partition("-")[::2] for name, limit in limits}
    return versions, {f"VLLM_{name}": (one or versions[0], end or versions[-1]) for name, (one, end) in known.items()}


@lint("variable-unknown")
def variable_unknown(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    versions, known = _vllm_variables()
    version = spec.version
    if (
        spec.engine is not EngineKind.VLLM
        or spec.family is Family.COMMUNITY
        or (version and not _is_between(version, (versions[0], versions[-1])))
    ):
        return
    told = {row.variable for row in lifetimes()}
    items = {
        item.name: item
        for item in spec.environment
        if item.name.startswith("VLLM_") and item.name not in told and not _is_own(spec, item.name)
    }
    unread = [
        item
        for name, item in items.items()
        if name not in known or (version and not _is_between(version, known[name], versions))
    ]
    if not unread:
        return
    names = ", ".join(item.name for item in unread[:3]) + (f" and {len(unread) - 3} more" if unread[3:] else "")
    first = unread[:3]
    yield build(
        first,
        "this-version" if version else "any-version",
        {"version": version, "names": names, **dict(zip(_FIRST, (item.name for item in first), strict=False))},
        severity=None if spec.family in STOCK else Severity.INFO,
        settles=spec.settles_image if version else "",
        edits=[removed(spec, item) for item in first],
    )


def _is_between(version: str, limits: tuple[str, str], versions: Sequence[str] = ()) -> bool:
    """Whether a version is within these, or between the last of them and the next that was read."""
    after = next((numbers_of(each) for each in versions if numbers_of(each) > numbers_of(limits[1])), None)
    numbers = numbers_of(version)
    return numbers_of(limits[0]) <= numbers and (numbers < after if after else numbers <= numbers_of(limits[1]))


def _is_own(spec: LaunchSpec, name: str) -> bool:
    """Whether the script uses the variable itself."""
    sign = r"\$" if spec.kind is SourceKind.SHELL else r"\$\$"
    return re.search(rf"{sign}\{{?{name}\b", spec.document.text) is not None


def _of_version(spec: LaunchSpec) -> dict[str, object]:
    return {"engine": spec.engine.traits.name if spec.engine else "", "version": spec.version}


@lint("flag-unknown-to-version")
def flag_unknown_to_version(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    for row in lifetimes():
        item = spec.flag(row.flag) if row.flag else None
        if item is None or row.engine is not spec.engine or not spec.version:
            continue
        figures = _of_version(spec) | {"flag": row.flag, "instead": row.instead}
        if row.absent_to and is_at_most(spec, row.absent_to):
            case, edit = "newer", renamed(spec, item, row.instead) if row.instead else removed(spec, item)
            figures["works_from"] = row.works_from
        elif row.values and item.is_known and _is_refused(spec, row, item.value or ""):
            case, edit = "value", replaced(spec, item, row.instead)
            figures |= {"value": item.value or "", "values": ", ".join(row.values)}
        else:
            continue
        yield build(
            item,
            case,
            figures,
            settles=spec.settles_image,
            edits=[edit],
            subject=row.flag,
            references=row.sources,
        )
    yield from _refused(spec, build)


def _is_refused(spec: LaunchSpec, row: Lifetime, value: str) -> bool:
    is_judged = at_least(spec, row.works_from) and is_at_most(spec, row.works_to)
    return bool(is_judged) and value.lower().replace("-", "_") not in row.values


def _refused(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    """Flags that the parser of a stock image's version doesn't have under the name that is typed."""
    engine, version = spec.engine, spec.version
    if engine is None or version is None or spec.family not in (*STOCK, Family.LMSYS):
        return
    for item in spec.flags:
        spelled = item.spelled or f"--{item.name}"
        if item in spec.misplaced or "$" in spelled or is_in(spelled, engine, version) is not False:
            continue
        row = next((row for row in lifetimes() if row.engine is engine and row.flag == f"--{item.name}"), None)
        right = row.replacement if row and row.replacement else f"--{item.name}"
        if not is_in(right, engine, version):
            right = closest(spelled, engine, version)
        yield build(
            item,
            "refused",
            _of_version(spec) | {"flag": spelled, "right": right, "alone": not right},
            settles=spec.settles_image,
            edits=[*([respelled(spec, item, right)] if right else []), removed(spec, item)],
            subject=spelled,
            references=row.sources if row else (),
        )


@lint("deprecated")
def deprecated(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    for row in lifetimes():
        item = spec.variable(row.variable) if row.variable else spec.flag(row.flag)
        if item is None or row.engine is not spec.engine or not row.deprecated_from or not spec.version:
            continue
        is_gone = row.gone_from and at_least(spec, row.gone_from)
        is_idle = row.idle_from and at_least(spec, row.idle_from)
        if not at_least(spec, row.deprecated_from) or is_gone or is_idle or is_at_most(spec, row.works_to) is False:
            continue
        yield build(
            item,
            "works",
            _of_version(spec) | {"name": item.name if row.variable else row.flag, "replacement": row.replacement},
            settles=spec.settles_image,
            subject=item.name,
            references=row.sources,
        )
