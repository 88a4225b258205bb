"""Make a recipe of a launch that somebody else wrote: a compose file's service, a `docker run` line, a container.

The recipe's text is written and read back, so that what is launched is what the text says. A value that isn't known is
a problem with its line, never a guess; what a recipe can't express is named among the recipe's risks, which every
review shows; a secret becomes the name of a variable that the operator sets.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.cmdline.yaml_nodes import dumped
from sparktop.dataclass import dataclass
from sparktop.engines.labels import name_set_aside
from sparktop.errors import ConfigError
from sparktop.launchspec.read.configuration import read_file
from sparktop.launchspec.read.docker import with_image_command
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.model.recipe import ComposeService, Dialect
from sparktop.recipe.operator_secrets import SecretValues
from sparktop.recipe.problems import ProblemKind, shown
from sparktop.recipe.read.adoption import Adoption, kind_of
from sparktop.recipe.read.recipe_file import ENDINGS, Reading, read, unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A recipe made of a launch, or why there is none."""

    name: str
    """The container's; "" where it has none."""
    text: str = ""
    """The recipe file; "" where a value is unknown."""
    reading: Reading
    """Of that text; its problems are those of the launch."""
    kind: str
    """What it was read from: "compose file"."""
    engines: tuple[str, ...] = ()
    """Where the file starts several and none was named: how each is, after `FILE#`."""
    image: str = ""
    """The image whose own command starts the engine: with it, `read_launch` reads the rest; "" where it is known."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of secrets that the launch holds, by the names that the recipe asks for; never written."""
    default_secrets: frozenset[str] = frozenset()
    """Those that a variable of the operator's of that name replaces."""
    dotenv_secrets: frozenset[str] = frozenset()
    """Those that one replaces which is given for this command, as compose takes a shell's before its `.env`'s."""

    def secrets_over(self, own: SecretValues) -> SecretValues:
        """The operator's secrets, with the launch's own in the place of those that it holds."""
        replaced = (self.default_secrets & own.values.keys()) | (self.dotenv_secrets & own.given)
        held = {name: value for name, value in self.secrets.items() if name not in replaced}
        path = self.reading.recipe.path if self.reading.recipe is not None else self.name
        return replace(
            own, values={**own.values, **held}, sources={**own.sources, **dict.fromkeys(held, f"from {path}")}
        )


def adopted(
    spec: LaunchSpec,
    *,
    folder: str,
    name: str = "",
    overrides: Sequence[str] = (),
    service: ComposeService | None = None,
) -> Adopted:
    """The recipe of this launch.

    Args:
        folder: absolute; what relative paths are relative to.
        name: the container's, where it isn't the launch's own.
        overrides: further compose files of the project, which aren't read.
        service: where the spec is that of a compose file on a Spark: the file's place.
    """
    adoption = Adoption(spec, folder)
    for override in overrides:
        adoption.leave(None, f"{shown(override)} changes what compose starts, and isn't read")
    container = name_set_aside(name) or name or adoption.name()
    data = adoption.recipe(container)
    problems = tuple(sorted(dict.fromkeys(adoption.problems), key=lambda problem: problem.line))
    if any(problem.is_error for problem in problems):
        return Adopted(
            name=container,
            reading=Reading(recipe=None, problems=problems),
            kind=kind_of(spec),
            image=spec.image_name if spec.is_by_image else "",
        )
    text = f"# {shown(container) or 'An engine'} {adoption.how()}, by `sparktop recipes adopt`.\n" + dumped(data)
    reading = read(text, f"{container or str(spec.engine)}.yaml")
    # What the reader finds is the launch's own: its lines are of a text that nobody has seen.
    found = tuple(replace(problem, file=spec.document.name, line=adoption.line(None)) for problem in reading.problems)
    recipe = reading.recipe and replace(reading.recipe, path=spec.document.name, dialect=Dialect.ADOPTED)
    if recipe and service and adoption.is_published and not overrides:
        risks = tuple(dict.fromkeys(adoption.shared_risks))
        service = replace(service, name=spec.name, project=adoption.project(), risks=risks)
        recipe = replace(recipe, compose=service)
    return Adopted(
        name=container,
        text=text if recipe else "",
        reading=Reading(recipe=recipe, problems=(*problems, *found)),
        kind=kind_of(spec),
        secrets=adoption.secrets,
        default_secrets=frozenset(adoption.default_secrets),
        dotenv_secrets=frozenset(adoption.dotenv_secrets),
    )


def read_launch(text: str, path: Path, engine: str = "", image: Mapping[str, Any] | None = None) -> Adopted | None:
    """The recipe of the engine that a compose file, script, unit or `docker inspect` starts; None for another text.

    Args:
        engine: its service's or container's name, or its line, where the file starts several.
        image: as Docker tells it, where the image's own command starts the engine.
    """
    is_yaml = path.suffix in ENDINGS
    try:
        reading = read_file(path, text, os.environ)
    except ConfigError:
        if is_yaml:
            return None  # as the reader of recipes says
        raise
    name = sanitise.line(str(path))
    specs = engines(reading.specs)
    if not specs:
        is_launch = not is_yaml or reading.kind in (SourceKind.COMPOSE, SourceKind.UNIT)
        return unadopted(name, reading.kind, reading.note) if is_launch and reading.note else None
    chosen = one_of(specs, engine, name, reading.kind)
    if isinstance(chosen, Adopted):
        return chosen
    spec = with_image_command(chosen, image) if image is not None and chosen.is_by_image else chosen
    overrides = [name for name in override_names(str(path)) if path.with_name(name).is_file()]
    return adopted(spec, folder=str(path.absolute().parent), overrides=overrides)


def one_of(specs: Sequence[LaunchSpec], engine: str, name: str, kind: str) -> LaunchSpec | Adopted:
    """The engine of this name, or at this line, of those that a file starts; else why it isn't clear which."""
    chosen = [spec for spec in specs if engine in (spec.name, str(spec.line_of(None)))] if engine else specs
    if len(chosen) != 1:
        count = Counter(spec.name for spec in specs)
        ways = (spec.name if count[spec.name] == 1 else "" for spec in specs)
        places = [way or str(spec.line_of(None) or spec.name) for way, spec in zip(ways, specs, strict=True)]
        places = list(dict.fromkeys(places))
        names = ", ".join(f"{name}#{place}" for place in places)
        what = f"starts no engine {shown(engine)}" if engine and not chosen else f"starts {len(specs)} engines"
        none = unadopted(name, kind, what, f"name one: {names}")
        return replace(none, name="", engines=tuple(places))
    return chosen[0]


def engines(specs: Sequence[LaunchSpec]) -> list[LaunchSpec]:
    """Those that start an engine, without containers that were started for a `docker exec` of it."""
    own = [spec for spec in specs if spec.engine is not None and spec.kind is not SourceKind.RECIPE]
    used = [(spec.name, spec.options) for spec in own if spec.is_exec]
    return [spec for spec in own if spec.has_command or (spec.name, spec.options) not in used]


def override_names(path: str) -> tuple[str, ...]:
    """The names of the files that `docker compose up` would lay over this one by itself, where they are beside it."""
    stem = posixpath.splitext(posixpath.basename(path))[0]
    is_default = stem in ("compose", "docker-compose")
    return tuple(f"{stem}.override{ending}" for ending in (".yaml", ".yml") if is_default)


def unadopted(name: str, kind: str, why: str, remedy: str = "") -> Adopted:
    """Where no recipe can be made of it at all."""
    return Adopted(name=name, reading=unreadable(name, 1, why, remedy, kind=ProblemKind.MISSING), kind=kind)
