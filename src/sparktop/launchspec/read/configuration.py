"""Reads a launch configuration of any kind, recognised by its content, into LaunchSpecs; with the files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from sparktop import files, sanitise
from sparktop.cmdline.shell import UnclosedQuote, Variables
from sparktop.cmdline.source import Document, Word
from sparktop.cmdline.yaml_nodes import root_of
from sparktop.dataclass import dataclass
from sparktop.errors import ConfigError
from sparktop.launchspec.read.commands import MAX_LAUNCHES, Beside, Scope, read_script, too_many
from sparktop.launchspec.read.compose import is_compose, read_compose
from sparktop.launchspec.read.docker import read_dockerfile, read_inspect
from sparktop.launchspec.read.recipes import is_recipe, read_recipe
from sparktop.launchspec.read.systemd import read_unit
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.masking import is_secret

MAX_CHARS = 1_000_000
"""A larger file is no launch configuration."""
MAX_ITEMS = 20_000
"""Flags, variables, options and keys of all its launches together."""
_ELSEWHERE = frozenset({"HOME", "PWD", "OLDPWD", "PATH", "USER", "LOGNAME", "SHELL", "HOSTNAME", "UID", "_"})
"""Variables that are others on the Spark."""
_SECTION = re.compile(r"\[(?:Unit|Service|Install|Container|Timer|X-\w+)\]\s*\Z")
_YAML_KEY = re.compile(r"(?:[\w.-]+|\"[^\"]+\"|'[^']+')\s*:(?:\s|\Z)|- \w|---(?:\s|\Z)|%YAML")
_VARIABLE = re.compile(r"(?:export\s+)?[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The engines found in a text."""

    kind: str
    specs: tuple[LaunchSpec, ...] = ()
    note: str = ""
    """Why there is nothing to check; empty if there is something."""


def read(
    text: str, name: str, beside: Beside = lambda path: None, environment: Mapping[str, str] = MappingProxyType({})
) -> Reading:
    """The engines that a text starts.

    Args:
        beside: the files of its folder, for what it takes from them.
        environment: the variables of the shell that would start it.

    Raises:
        ConfigError: the text is malformed; the message names the line if known.
    """
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        hint = "give a compose file, a `docker run` script, a systemd unit or a recipe"
        raise ConfigError(f"{name} is a binary file, not a launch configuration", hint=hint)
    if len(text) > MAX_CHARS:
        raise ConfigError(
            f"{name} has {len(text) // 1000:,} kB: too large for a launch configuration",
            hint="for a log: sparktop explain FILE",
        )
    document = Document(name, text)
    rows = [row for row in (line.strip() for line in text.splitlines()) if row and not row.startswith(("#", ";"))]
    if not rows:
        return Reading(kind="empty file", note="the file is empty")
    try:
        reading = _read(document, rows, beside, environment)
    except RecursionError as error:
        raise ConfigError(f"{name}: nested too deeply") from error
    if sum(spec.size for spec in reading.specs) > MAX_ITEMS:
        raise too_many(name)
    return reading


def beside(folder: Path) -> Beside:
    """The texts of the files of a folder."""

    def text(path: str) -> str | None:
        try:
            return files.read(folder / path, MAX_CHARS).decode("utf-8", "replace")
        except OSError:
            return None

    return text


def read_file(path: Path, text: str, environment: Mapping[str, str] = MappingProxyType({})) -> Reading:
    """The engines that the file with this text starts.

    Args:
        environment: of who starts it; secrets, and what is another on the Spark, aren't taken from there.

    Raises:
        ConfigError: the text is malformed.
    """
    own = {
        name: value
        for name, value in environment.items()
        if name not in _ELSEWHERE and value.isprintable() and not is_secret(name, value) and name in text
    }
    return read(text, sanitise.line(str(path)), beside(path.parent), own)


def _read(document: Document, rows: list[str], beside: Beside, environment: Mapping[str, str]) -> Reading:
    first = rows[0]
    shebang = re.match(r"#!\s*(\S+)(?:\s+(\S+))?", document.text)
    if shebang and not re.search(r"sh\b", shebang[0]):
        raise ConfigError(
            f"{document.name} is a script for {shebang[2] or shebang[1]}: sparktop lint reads shell scripts only"
        )
    if shebang:
        return _script(document, beside, environment)
    if _SECTION.match(first):
        return _reading(SourceKind.UNIT, read_unit(document), "this unit starts no engine")
    if first[0] in "[{":
        return _json(document)
    if re.match(r"(?:FROM|ARG)\s+\S", first, re.IGNORECASE) and any(re.match(r"(?i)FROM\s", row) for row in rows):
        return _reading(SourceKind.DOCKERFILE, read_dockerfile(document), "this Dockerfile starts no engine")
    if _YAML_KEY.match(first) and not re.match(r"\S+::", first):
        return _yaml(document, beside, environment)
    if all(_VARIABLE.match(row) for row in rows):
        note = "only variables, and no engine that reads them: check the file that uses them"
        specs = _script(document, beside, environment).specs
        return Reading(kind="variables", specs=specs, note="" if specs else note)
    return _script(document, beside, environment)


def _script(document: Document, beside: Beside, environment: Mapping[str, str]) -> Reading:
    variables = Variables({name: [Word(value)] for name, value in environment.items()})
    scope = Scope(document=document, kind=SourceKind.SHELL, beside=beside, variables=variables)
    try:
        read_script(document.whole, scope, strict=True)
    except UnclosedQuote as error:
        position = f"{document.name}:{document.line_of(error.offset)}"
        raise ConfigError(f"{position}: this quote is never closed") from error
    return _reading(SourceKind.SHELL, scope.specs, "it has no `docker run`, `vllm serve` or sglang command")


def _yaml(document: Document, beside: Beside, environment: Mapping[str, str]) -> Reading:
    root = root_of(document)
    if is_compose(root):
        specs = read_compose(document, root, beside, environment)
        return _reading(SourceKind.COMPOSE, specs, "none of its services is a vLLM or SGLang engine")
    if is_recipe(root):
        return _reading(SourceKind.RECIPE, read_recipe(document, root), "its runtime is neither vLLM nor SGLang")
    return Reading(kind="YAML", note="YAML, but neither a compose file nor a recipe")


def _json(document: Document) -> Reading:
    try:
        data = json.loads(document.text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{document.name}:{error.lineno}: not valid JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{document.name}: the JSON can't be read ({type(error).__name__})") from error
    specs = read_inspect(document, data)
    if specs is None:
        return Reading(kind="JSON", note="JSON, but not from `docker inspect`")
    return _reading(SourceKind.INSPECT, specs, "none of its containers is a vLLM or SGLang engine")


def _reading(kind: SourceKind, specs: list[LaunchSpec], otherwise: str) -> Reading:
    if len(specs) > MAX_LAUNCHES:
        raise too_many(specs[0].document.name)
    return Reading(kind=kind.value, specs=tuple(specs), note="" if specs else otherwise)
