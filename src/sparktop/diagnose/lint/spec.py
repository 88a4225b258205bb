"""What a launch configuration says: one engine's start, whatever kind of file (or running container) says it.

Every part knows its place. What can't be known stays unknown: an open list of arguments, variables that come from
elsewhere, an image whose version its name doesn't tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sparktop.diagnose.lint.place import Document, Span
from sparktop.model.engine import EngineKind


class SourceKind(StrEnum):
    """What kind of text a specification was read from."""

    SHELL = "shell script"
    COMPOSE = "compose file"
    UNIT = "systemd unit"
    RECIPE = "recipe"
    INSPECT = "docker inspect"
    DOCKERFILE = "Dockerfile"
    RUNNING = "running engine"


class Launcher(StrEnum):
    """What starts the engine; a launcher of a project's own sets variables and options that the file doesn't show."""

    BARE = "its command line"
    DOCKER = "docker"
    RUN_CLUSTER = "run_cluster.sh"
    EUGR = "spark-vllm-docker"
    SPARKRUN = "sparkrun"


class Family(StrEnum):
    """Whose image it is: advice for one family's build is wrong for another's (facts/engines.md section 1E, C7)."""

    NGC = "NGC"
    VLLM_OPENAI = "vllm/vllm-openai"
    LMSYS = "lmsysorg/sglang"
    COMMUNITY = "community"


STOCK = (Family.NGC, Family.VLLM_OPENAI)
"""Builds of vLLM that carry nobody's own flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One flag, variable, Docker option or unit key, by its plain name, with its place in the document."""

    name: str
    value: str | None = None
    """None: given without a value."""
    rest: tuple[str, ...] = ()
    """Further values of the same flag: `--served-model-name a b`."""
    section: str = ""
    """Of a unit key: "Unit", "Service"."""
    span: Span | None = None
    """Where it stands, its value too; without the value where that stands elsewhere, in a variable."""
    value_span: Span | None = None
    """Where the value stands."""

    @property
    def number(self) -> float | None:
        """The value as a number; None where it is none, or a variable's."""
        try:
            number = float(self.value or "")
        except ValueError:
            return None
        return number if -1e15 < number < 1e15 else None

    @property
    def is_known(self) -> bool:
        """Whether the value stands here, and not in a variable of somewhere else."""
        return self.value is not None and "$" not in self.value and "{" not in self.value[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One engine's start as it is written down, or as it runs."""

    document: Document
    kind: SourceKind
    launcher: Launcher = Launcher.BARE
    name: str = ""
    """The service's, container's or unit's."""
    span: Span | None = None
    """Where it begins."""
    engine: EngineKind | None = None
    has_command: bool = True
    """False where the image is known and not what is started in it."""
    version: str | None = None
    image: Item | None = None
    family: Family | None = None
    model: Item | None = None
    flags: tuple[Item, ...] = ()
    is_open: bool = False
    """True when arguments come from somewhere else ("$@", an unknown variable): nothing is surely absent."""
    misplaced: tuple[Item, ...] = ()
    """Engine flags given before the image's name."""
    environment: tuple[Item, ...] = ()
    knows_environment: bool = False
    """True when every variable given to the engine stands here (those of the image excepted)."""
    has_container: bool | None = None
    """True: `options` are the container's; False: none; None: it runs in one that isn't described here."""
    options: tuple[Item, ...] = ()
    """Docker's, by the long names of `docker run` ("network", "shm-size", "mount")."""
    unit: tuple[Item, ...] = ()
    is_drop_in: bool = False
    """A unit file without its main command: what is absent from it may stand in another."""
    nodes: int = 1
    is_exec: bool = False
    """Started by `docker exec`: the container's own lines were judged where it was started."""
    is_ray_start: bool = False
    prelude: str = ""
    """What the same shell runs beside the engine: `pip install ...`."""
    comments: tuple[tuple[int, str], ...] = ()
    """(line, text) of every comment of the document."""
    desktop: bool | None = None
    """Whether a desktop runs beside it; known only of what runs."""

    @property
    def model_name(self) -> str:
        """The model as it is given; empty where it isn't."""
        return (self.model.value or "") if self.model else ""

    def flag(self, *names: str) -> Item | None:
        """The last flag of these names; None where it isn't given, or `--no-NAME` follows it."""
        found = None
        for item in self.flags:
            if item.name in names:
                found = None if (item.value or "").lower() == "false" else item
            elif item.name.removeprefix("no-") in names:
                found = None
        return found

    def value(self, *names: str) -> str:
        """A flag's value, lower-case; empty where there is none."""
        item = self.flag(*names)
        return (item.value or "").lower() if item else ""

    def number(self, *names: str) -> float | None:
        """A flag's value as a number."""
        item = self.flag(*names)
        return item.number if item else None

    def json(self, name: str) -> Mapping[str, Any]:
        """A flag's JSON value, dotted spellings (`--NAME.key value`) joined to it; empty where it can't be read."""
        found: dict[str, Any] = {}
        for item in self.flags:
            if item.name == name and item.value:
                try:
                    parsed = json.loads(item.value)
                except (ValueError, RecursionError):
                    continue
                found |= parsed if isinstance(parsed, dict) else {}
            elif item.name.startswith(name + "."):
                found[item.name.removeprefix(name + ".").replace("-", "_")] = item.value
        return found

    def variable(self, name: str) -> Item | None:
        """An environment variable; the last one given counts."""
        return next((item for item in reversed(self.environment) if item.name == name), None)

    def option(self, name: str) -> Item | None:
        """A Docker option; the last one given counts."""
        return next((item for item in reversed(self.options) if item.name == name), None)

    def options_of(self, name: str) -> tuple[Item, ...]:
        """Every Docker option of that name."""
        return tuple(item for item in self.options if item.name == name)

    def key(self, name: str, section: str | None = None) -> Item | None:
        """A unit's key; the last one given counts."""
        for item in reversed(self.unit):
            if item.name == name and (section is None or item.section == section):
                return item
        return None

    def line_of(self, item: Item | None) -> int | None:
        """The line an item stands in; where it has no place, the line the specification begins in."""
        span = (item.span or item.value_span) if item else None
        span = span or self.span
        return self.document.line_of(span[0]) if span and self.document.text else None

    def has_remark(self, pattern: str) -> bool:
        """Whether a comment of the document says something like this: what was set on purpose is left alone."""
        return any(re.search(pattern, text, re.IGNORECASE) for _, text in self.comments)
