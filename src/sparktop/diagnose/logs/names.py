"""The names that a rule file's steps use for the engine they are about: its container, image and model. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from sparktop.cmdline.engine_command import command_of
from sparktop.model.engine import Engine

PLACEHOLDERS: Mapping[str, str] = {"container": "NAME", "image": "IMAGE", "model": "ORG/MODEL"}
"""What a step says where the engine isn't known, as in a text given to `explain`."""
_PLAIN = re.compile(r"[A-Za-z0-9][\w.:/@+-]*", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


def names(**known: str) -> Mapping[str, str]:
    """The known names by slot; PLACEHOLDERS for others, and for one that a shell would not take as it is: it comes from
    another machine."""
    return {**PLACEHOLDERS, **{slot: name for slot, name in known.items() if _PLAIN.fullmatch(name)}}


def names_of(engine: Engine) -> Mapping[str, str]:
    """What is known of an engine for the steps of its log's findings; its model only where it is a repository."""
    container, model = engine.container, command_of(engine).model or ""
    return names(
        container=container.name if container is not None else "",
        image=container.image if container is not None else "",
        model=model if _REPOSITORY.fullmatch(model) else "",
    )


def typed(values: Mapping[str, str]) -> Mapping[str, str]:
    """Values read in a log, as a person would type them in a command: quoted where a shell would read more in them."""
    return {slot: shlex.quote(value) if value else "" for slot, value in values.items()}


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with `{name}` replaced by the values; unknown names stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda slot: values.get(slot[1], slot[0]), template) if "{" in template else template
