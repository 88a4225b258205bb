"""The further models of a launch, such as a draft: which they are with what the operator sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sparktop.cmdline import engine_argv as flags
from sparktop.recipe import template
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.models import is_path, is_repo
from sparktop.recipe.parameters import OWN, LaunchValues, main_name
from sparktop.recipe.render.engine_argv import plain_argv

_MODEL_FLAGS = (
    "speculative-draft-model-path",
    "speculative-draft-model",
    "speculative-config.model",
    "speculative-model",
)
_METHOD_FLAGS = ("speculative-algorithm", "speculative-config.method")


def speculation(argv: Sequence[str]) -> tuple[str, str]:
    """(the draft model that a command names, its method of drafting, in lower case); empty: none."""
    config = _mapping(flags.value_of(argv, "speculative-config") or "")
    model = flags.value_of(argv, *_MODEL_FLAGS) or config.get("model") or ""
    method = flags.value_of(argv, *_METHOD_FLAGS) or config.get("method") or ""
    return str(model), str(method).lower()


def more_models(now: LaunchValues) -> tuple[str, ...]:
    """The launch's further models, each once: repositories, or paths on the nodes."""
    recipe, was = now.order.recipe, now.before or now
    if was.problem or now.problem:  # rendering reports it
        return recipe.more_models
    draft = _draft(now)
    changes = [(text, now.by_name.get(name, "")) for name, text in was.by_name.items() if main_name(name) not in OWN]
    changes.append((_draft(was) if was is not now else draft, draft))
    replaced = {model: _named_by(new) for old, new in changes if new != old for model in _named_by(old)}
    models: list[str] = []
    for listed in recipe.more_models:
        name = _filled(listed, was.by_name)
        models += replaced.get(name, (name,))
    models += _named_by(draft)
    return tuple(name for name in dict.fromkeys(models) if name and name != now.model)


def _draft(launch: LaunchValues) -> str:
    """The draft model that its command names; empty where it names none, or there is no command."""
    try:
        return speculation(plain_argv(launch))[0]
    except CannotRender:  # rendering reports it
        return ""


def parameter_of(values: LaunchValues, model: str) -> str:
    """The parameter that sets this further model, so that another can be chosen; empty: none does."""
    rows = values.by_name.items()
    return next((name for name, value in rows if main_name(name) not in OWN and value == model), "")


def _named_by(text: str) -> tuple[str, ...]:
    """The model that a value names: the value itself, or "model" of its JSON."""
    name = str(_mapping(text).get("model") or "") if text.lstrip().startswith("{") else text
    return (name,) if is_path(name) or (is_repo(name) and "/" in name) else ()


def _mapping(text: str) -> Mapping[str, object]:
    """The JSON mapping in a text; empty where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _filled(text: str, values: Mapping[str, str]) -> str:
    try:
        return template.fill(text, values).strip()
    except CannotRender:
        return text.strip()
