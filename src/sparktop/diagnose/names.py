"""The names that a rule file's steps use for the engine they are about: its container, image, model and port. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparktop.model.engine import Engine, EngineKind
from sparktop.model.finding import Remedy

DOCKER_LOGS = "docker logs {container} 2>&1"
PLACEHOLDERS: Mapping[str, str] = {
    "container": "NAME",
    "image": "IMAGE",
    "model": "ORG/MODEL",
    "port": "PORT",
    "log": DOCKER_LOGS.format(container="NAME"),
}
"""What a step says where the engine isn't known, as in a text given to `explain`."""
_PLAIN = re.compile(r"[A-Za-z0-9][\w.:/@+-]*", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


def names(**known: str) -> Mapping[str, str]:
    """The known names by slot; PLACEHOLDERS for others, and for one that a shell would not take as it is: it comes from
    another machine."""
    return {**PLACEHOLDERS, **{slot: name for slot, name in known.items() if _PLAIN.fullmatch(name)}}


def names_of(engine: Engine, log: str = DOCKER_LOGS) -> Mapping[str, str]:
    """What is known of an engine for the steps of its log's findings; its model only where it is a repository.

    Args:
        log: the command that prints its log.

    Returns: by slot; the container is empty where it has none.
    """
    container, command = engine.container, engine.command
    model, port = command.model or "", command.port
    known = names(
        container=container.name if container is not None else "",
        image=container.image if container is not None else "",
        model=model if _REPOSITORY.fullmatch(model) else "",
        port=str(port) if port is not None else "",
    )
    return {**known, "log": fill(log, known), "container": known["container"] if container is not None else ""}


def steps_of(steps: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The steps filled in; of an engine outside containers those that fit it: what would run in its container runs as
    it is, what would ask Docker about that is left out."""
    if not values["container"]:
        bare = (step.removeprefix("docker exec {container} ") for step in steps)
        steps = [step for step in bare if "{container}" not in step]
    return tuple(fill(step, values) for step in steps)


def typed(values: Mapping[str, str]) -> Mapping[str, str]:
    """Values read in a log, as a person would type them in a command: quoted where a shell would read more in them."""
    return {slot: shlex.quote(value) if value else "" for slot, value in values.items()}


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with `{name}` replaced by the values; unknown names stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda slot: values.get(slot[1], slot[0]), template) if "{" in template else template


_BY_ENGINE = re.compile(r"(?:\[(?:vllm|sglang): [^\[\]]*\])+")
_OF_ENGINE = re.compile(r"\[(vllm|sglang): ([^\[\]]*)\]")


def for_engine(remedies: Sequence[Remedy], engine: str | None) -> tuple[Remedy, ...]:
    """The remedies in the words of one engine: those of its own, and of `[vllm: ...][sglang: ...]` its part.

    Args:
        engine: "vllm", "sglang", or another program, which gets no engine's flags; None where it isn't known: then
            each engine's words are told with its name.
    """

    def is_said(text: str) -> bool:
        return engine is None or _BY_ENGINE.search(text) is None or f"[{engine}: " in text

    found = []
    for remedy in remedies:
        if (engine and remedy.engine not in ("", engine)) or not is_said(remedy.title):
            continue
        texts = (remedy.title, *filter(is_said, remedy.steps))
        title, *steps = (_BY_ENGINE.sub(lambda group: _chosen(group[0], engine), text) for text in texts)
        label = f" ({EngineKind(remedy.engine).traits.name})" if remedy.engine and not engine else ""
        found.append(replace(remedy, title=title + label, steps=tuple(steps)))
    return tuple(found)


def _chosen(group: str, engine: str | None) -> str:
    parts: list[tuple[str, str]] = _OF_ENGINE.findall(group)
    if engine:
        return next((text for name, text in parts if name == engine), "")
    if len(parts) > 1 and len({text for _, text in parts}) == 1:
        return parts[0][1]
    return ", ".join(f"{text} ({EngineKind(name).traits.name})" for name, text in parts)
