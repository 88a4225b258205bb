"""LaunchSpec: how one engine is started, as written in a file of any kind or as it runs.

Every item knows its position. What can't be known stays unknown: an open argument list, variables set elsewhere, an
image whose name doesn't tell the version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sparktop.cmdline.docker_run import MORE
from sparktop.cmdline.engine_argv import opposite
from sparktop.cmdline.engine_flags import polar
from sparktop.cmdline.source import Document, Item, Span
from sparktop.dataclass import dataclass
from sparktop.engines.images import Family, numbers_of
from sparktop.model.engine import EngineKind
from sparktop.text.expression import expression


class SourceKind(StrEnum):
    """The kind of text a specification was read from."""

    SHELL = "shell script"
    COMPOSE = "compose file"
    UNIT = "systemd unit"
    RECIPE = "recipe"
    INSPECT = "docker inspect"
    DOCKERFILE = "Dockerfile"
    RUNNING = "running engine"


class Launcher(StrEnum):
    """What starts the engine. Third-party launchers set variables and options that the file doesn't show."""

    BARE = "its command line"
    DOCKER = "docker"
    RUN_CLUSTER = "run_cluster.sh"
    EUGR = "spark-vllm-docker"
    SPARKRUN = "sparkrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A part of a document whose values may not be the ones that count."""

    start: int
    end: int
    reason: str
    """What would settle it: "whether GPU_UTIL is set where this starts"."""
    variable: str = ""
    """Whose default it is."""

    def holds(self, place: int) -> bool:
        """Whether this offset is in the part."""
        return self.start <= place < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Doubt):
    """A part of a script that runs only sometimes, or when it is called: no doubt for a command in the same one."""

    whole: Span
    """The statement with all its branches."""
    head: str
    """ "if", "case", "&&" for what follows && or ||, "{" for a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """How one engine is started, as written down or as it runs."""

    document: Document
    kind: SourceKind
    launcher: Launcher = Launcher.BARE
    name: str = ""
    """The name of the service, container or unit."""
    span: Span | None = None
    """Where it begins in the document."""
    begin: Span | None = None
    """Where the engine's own command begins, in a container's."""
    engine: EngineKind | None = None
    has_command: bool = True
    """False if only the image is known, not the command in it."""
    wrapper: tuple[str, ...] = ()
    """The words of its own command before the engine's: `tini --`, an entrypoint script; all of it where the engine's
    isn't known."""
    version: str | None = None
    image: Item | None = None
    family: Family | None = None
    model: Item | None = None
    flags: tuple[Item, ...] = ()
    elsewhere: tuple[str, ...] = ()
    """Where more arguments come from ("$@", an unknown variable, a --config file): then nothing is surely missing."""
    doubts: tuple[Doubt, ...] = ()
    guess: str = ""
    """What would show that it starts an engine, where only its flags tell."""
    cuts: tuple[Item, ...] = ()
    """Comments that end its command before its last line."""
    stopped: Item | None = None
    """The command that stops a container or engine right before, with no look at memory between."""
    misplaced: tuple[Item, ...] = ()
    """Engine flags given before the image's name, where Docker takes them."""
    repeated: Item | None = None
    """The words of its command that start a server again: what runs before them, as the image's entrypoint, does so."""
    environment: tuple[Item, ...] = ()
    knows_environment: bool = False
    """True if all variables of the engine are known, except those of the image."""
    has_container: bool | None = None
    """True: `options` are the container's; False: no container; None: in a container that isn't described here."""
    options: tuple[Item, ...] = ()
    """Docker's options by the long names of `docker run` ("network", "shm-size", "mount"); a compose file's keys that
    `docker run` has no option for by their own."""
    defaults: tuple[str, ...] = ()
    """Variables of a compose file's service that have their default, as nothing beside the file sets them."""
    dotenv: tuple[str, ...] = ()
    """Variables of a compose file's service that the `.env` beside it sets; those of a shell would replace them."""
    project: str = ""
    """The `name` of a compose file; empty: compose takes its folder's."""
    volumes: tuple[tuple[str, str], ...] = ()
    """(name, Docker's own name) of a compose file's volumes that aren't named after the project."""
    unit: tuple[Item, ...] = ()
    is_drop_in: bool = False
    """A systemd file without ExecStart: missing keys may be in another file."""
    nodes: int = 1
    is_exec: bool = False
    """Started by `docker exec`: the container's own options are checked where it was started."""
    is_ray_start: bool = False
    prelude: str = ""
    """Commands run before it in the same shell: `pip install ...`."""
    shell: tuple[str, ...] = ()
    """The shell in the container that starts it, with its options: `bash -lc`; empty where a branch of it does."""
    before: str = ""
    """The text that this shell runs up to the engine's command."""
    exported: tuple[str, ...] = ()
    """Variables that this shell exports."""
    desktop: bool | None = None
    """Whether a desktop runs on the node; known only for running engines."""

    @property
    def is_by_image(self) -> bool:
        """Whether the image's own command starts the engine, and the document has none."""
        return self.has_container is True and not self.has_command and not self.wrapper and self.image is not None

    @property
    def shows_container(self) -> bool:
        """Whether the options of its container are all here."""
        return bool(self.has_container) and self.launcher is Launcher.DOCKER and self.option(MORE) is None

    @property
    def settles_missing(self) -> str:
        """What would settle whether a flag that isn't given is missing; empty if it surely is."""
        return f"what `{self.elsewhere[0]}` adds: see the running engine's command line" if self.elsewhere else ""

    @property
    def settles_image(self) -> str:
        """What would settle whether it is this image, and with it the version."""
        return self.doubt(self.image) if self.image else ""

    def doubt(self, item: Item) -> str:
        """What would settle whether the item has this value; empty if it surely has."""
        decisive = self._doubts_of(item)
        return min(decisive, key=lambda doubt: doubt.end - doubt.start).reason if decisive else ""

    def variables(self, item: Item) -> set[str]:
        """The variables whose defaults the item has."""
        return {doubt.variable for doubt in self._doubts_of(item)}

    def _doubts_of(self, item: Item) -> list[Doubt]:
        return self._doubts([span[0] for span in (item.value_span, item.span) if span])

    def is_in_branch(self, item: Item) -> bool:
        """Whether it is given only where a branch of the script runs that doesn't hold the command too."""
        return item.span is not None and any(isinstance(doubt, Branch) for doubt in self._doubts([item.span[0]]))

    def _doubts(self, places: Sequence[int]) -> list[Doubt]:
        """The doubts about what stands at these places."""
        own = [span[0] for span in (self.span, self.begin) if span]
        found = [doubt for doubt in self.doubts if any(doubt.holds(place) for place in places)]
        return [doubt for doubt in found if not (isinstance(doubt, Branch) and any(map(doubt.holds, own)))]

    @property
    def model_name(self) -> str:
        """The model as given; empty if not given."""
        return (self.model.value or "") if self.model else ""

    @property
    def image_name(self) -> str:
        """The image as given; empty if not given."""
        return (self.image.value or "") if self.image else ""

    def flag(self, *names: str) -> Item | None:
        """The last flag of these names, in any spelling; None if not given, or if it is turned off later."""
        wanted = {polar(name, self.engine) for name in names}
        last = None
        for item in self.flags:
            if item.name in wanted:
                last = None if (item.value or "").lower() == "false" else item
            elif opposite(item.name) in wanted:
                last = None
        return last

    def value(self, *names: str) -> str:
        """A flag's value in lower case; empty if not given."""
        item = self.flag(*names)
        return (item.value or "").lower() if item else ""

    def number(self, *names: str) -> float | None:
        """A flag's value as a number; None if it is none."""
        item = self.flag(*names)
        return item.number if item else None

    def json(self, name: str) -> Mapping[str, Any]:
        """A flag's JSON value, dotted flags (`--NAME.key value`) merged in; empty if it can't be parsed."""
        merged: dict[str, Any] = {}
        for item in self.flags:
            if item.name == name and item.value:
                try:
                    parsed = json.loads(item.value)
                except (ValueError, RecursionError):
                    continue
                merged |= parsed if isinstance(parsed, dict) else {}
            elif item.name.startswith(name + "."):
                merged[item.name.removeprefix(name + ".").replace("-", "_")] = item.value
        return merged

    def variable(self, name: str) -> Item | None:
        """An environment variable; the last one given wins."""
        return next((item for item in reversed(self.environment) if item.name == name), None)

    def option(self, name: str) -> Item | None:
        """A Docker option; the last one given wins."""
        return next((item for item in reversed(self.options) if item.name == name), None)

    def options_of(self, name: str) -> tuple[Item, ...]:
        """All Docker options of that name."""
        return tuple(item for item in self.options if item.name == name)

    def key(self, name: str, section: str | None = None) -> Item | None:
        """A unit's key; the last one given wins."""
        items = (item for item in reversed(self.unit) if section is None or item.section == section)
        return next((item for item in items if item.name == name), None)

    def line_of(self, item: Item | None) -> int | None:
        """The line of an item; without a position, the line where the specification begins."""
        span = (item.span or item.value_span) if item else None
        span = span or self.span
        return self.document.line_of(span[0]) if span and self.document.text else None

    def has_remark(self, pattern: str) -> bool:
        """Whether a comment in the document matches: what was set on purpose is left alone."""
        return _has_remark(self.document.text, pattern)

    @property
    def size(self) -> int:
        """How many flags, variables, options and keys it has."""
        return sum(map(len, (self.flags, self.environment, self.options, self.unit)))


_COMMENT = re.compile(r"(?:^|\s)#+\s?(.*)$")


@lru_cache(maxsize=512)  # once for all launches of a document
def _has_remark(text: str, pattern: str) -> bool:
    return expression(f"(?i){pattern}", is_tested=False).search(_comments(text)) is not None


@lru_cache(maxsize=4)
def _comments(text: str) -> str:
    return "\n".join(dict.fromkeys(match[1] for row in text.splitlines() if (match := _COMMENT.search(row))))


_MOE = re.compile(
    r"-a\d+(?:\.\d+)?b|moe|mixtral|gpt-oss|minimax-m\d|deepseek-(?:v[2-9]|r1)|glm-(?:4\.[5-9]|5)|kimi-k|mistral-small-4"
    r"|nemotron-?3|llama-4|qwen3-(?:next|coder-480)|\d+x\d+b"
)
_FP8 = re.compile(r"(?:^|[-_./])fp8(?:$|[-_./])")


def likely_version(spec: LaunchSpec) -> str | None:
    """The engine's version; where its image doesn't tell it, the only one that the text names, in a remark."""
    return spec.version or (_named_version(spec.document.text, str(spec.engine)) if spec.engine else None)


@lru_cache(maxsize=8)
def _named_version(text: str, engine: str) -> str | None:
    named = set(re.findall(rf"(?i){engine}\W{{0,3}}v?(\d+\.\d+\.\d+)", text))
    return named.pop() if len(named) == 1 else None


def at_least(spec: LaunchSpec, version: str) -> bool | None:
    """Whether the engine's likely version is this one or later; None if unknown."""
    likely = likely_version(spec)
    return None if likely is None else numbers_of(likely) >= numbers_of(version)


def is_at_most(spec: LaunchSpec, version: str) -> bool | None:
    """Whether the engine's likely version is this one, a patch of it, or earlier; None if unknown."""
    likely = likely_version(spec)
    if likely is None:
        return None
    limit = numbers_of(version)
    length = max(2, version.count(".") + 1)
    return numbers_of(likely)[:length] <= limit[:length]


def model_name(spec: LaunchSpec) -> str:
    """The model's name in lower case (last part of a path, repository of a cached snapshot); empty if unknown."""
    name = spec.model_name.lower()
    if "$" in name:
        return ""
    if cached := re.search(r"models--([\w.-]+)", name):
        return cached[1].replace("--", "/")
    return name.rstrip("/").rpartition("/")[2] if name.startswith(("/", "~", ".")) else name


def is_moe(spec: LaunchSpec) -> bool | None:
    """True for known mixture-of-experts models; None if the name doesn't tell."""
    return True if _MOE.search(model_name(spec)) else None


def quantisation(spec: LaunchSpec) -> str | None:
    """nvfp4, mxfp4 or fp8, by flag or model name; None if neither tells."""
    flag, name = spec.value("quantization"), model_name(spec)
    if "mxfp4" in flag or (not flag and re.search(r"mxfp4|gpt[-_]oss", name)):
        return "mxfp4"
    if "fp4" in flag or (not flag and "nvfp4" in name):
        return "nvfp4"
    if "nvfp4" in name and flag in ("compressed-tensors", "modelopt"):
        return "nvfp4"
    return "fp8" if flag == "fp8" or (not flag and _FP8.search(name)) else None
