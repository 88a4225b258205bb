"""An engine's own command line: the recipe's template, or its defaults as flags, with what is set over it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sparktop.diagnose.enginecommand import server_at
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order, Recipe
from sparktop.recipe import argv as flags
from sparktop.recipe import parameters, template
from sparktop.recipe.environment import node_parameters
from sparktop.recipe.modelplace import ModelPlace
from sparktop.recipe.rendered import CannotRender, Seat

_SECRET_FLAGS = ("api-key", "admin-api-key", "hf-token", "ssl-keyfile-password")
_SGLANG_KEY = "SGLang takes its key nowhere else: listen on 127.0.0.1, and let a reverse proxy ask for the key"
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_MARK = 0xF0000
"""Characters for private use stand for the operator's values while the template is split into words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is the same for every rank."""

    order: Order
    values: Mapping[str, str]
    fixed: frozenset[str]
    """Parameters that are not the recipe's own any more."""
    executor: Executor
    seats: Sequence[Seat]
    name: str
    launch: str

    @property
    def recipe(self) -> Recipe:
        return self.order.recipe


def engine_argv(wanted: Wanted, seat: Seat, place: ModelPlace) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the engine's argv without what its rank adds, variables that the command sets)."""
    recipe = wanted.recipe
    here = {
        **wanted.values,
        **node_parameters(seat, wanted.seats),
        "model": place.named,
        "resolved_model_path": place.named,
    }
    own: dict[str, str] = {}
    if recipe.command.strip():
        argv, own = _from_template(recipe.command, here, wanted.fixed)
        if not argv or server_at(argv, 0) is None:
            raise CannotRender(f"the recipe's command starts {' '.join(argv[:2])[:60]!r}, no vLLM and no SGLang server")
        argv = _with_settings(argv, wanted, place)
    else:
        argv = _from_defaults(wanted, place)
    revision = wanted.values.get("model_revision", "")
    if place.is_hub and revision and not flags.has(argv, "revision"):
        argv = (*argv, "--revision", revision)
    served = parameters.get(wanted.values, "served_model_name")
    if not flags.has(argv, "served-model-name") and (served or not place.is_hub):
        argv = (*argv, "--served-model-name", served or wanted.values["model"])
    return argv, own


def _from_template(
    command: str, here: Mapping[str, str], fixed: Collection[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the argv, variables that the command sets before itself); what the operator has set is never split or read."""
    marks = {name: chr(_MARK + index) for index, name in enumerate(sorted(fixed))}
    words = template.render(command, {**here, **marks})
    for name, mark in marks.items():
        words = tuple(word.replace(mark, here[name]) for word in words)
    own: dict[str, str] = {}
    if words[:1] == ("env",):
        words = words[1:]
        while words and (found := _ASSIGNMENT.match(words[0])):
            own[found[1]] = words[0][found.end() :]
            words = words[1:]
    return words, own


def _with_settings(argv: tuple[str, ...], wanted: Wanted, place: ModelPlace) -> tuple[str, ...]:
    """The template's words with what is set and isn't a {parameter} of it."""
    recipe = wanted.recipe
    named = template.used(recipe.command, recipe.defaults)
    if "model" not in named and place.named != recipe.model:
        if recipe.model not in argv:
            raise CannotRender("the recipe's command names its model itself, so that no other can be set",
                               "write {model} in its place")  # fmt: skip
        argv = tuple(place.named if word == recipe.model else word for word in argv)
    for name in sorted(wanted.fixed - named):
        if parameters.main_name(name) in parameters.OWN:
            continue
        main = parameters.main_name(name)
        is_bool = isinstance(recipe.defaults.get(name), bool)
        words = flags.words_of(main, wanted.values[name], recipe.engine, is_bool=is_bool)
        argv = flags.placed(argv, words, flags.flag_of(main, recipe.engine))
    return argv


def _from_defaults(wanted: Wanted, place: ModelPlace) -> tuple[str, ...]:
    """A recipe without a command: its defaults are flags by their names."""
    recipe = wanted.recipe
    if recipe.engine is EngineKind.SGLANG:
        argv: tuple[str, ...] = ("python3", "-m", "sglang.launch_server", "--model-path", place.named)
    else:
        argv = ("vllm", "serve", place.named)
    for name, value in wanted.values.items():
        main = parameters.main_name(name)
        if main in parameters.OWN:
            continue
        is_bool = isinstance(recipe.defaults.get(name), bool)
        argv = (*argv, *flags.words_of(main, value, recipe.engine, is_bool=is_bool))
    if recipe.engine is EngineKind.SGLANG and not flags.has(argv, "enable-metrics"):
        argv = (*argv, "--enable-metrics")  # without it, there are no figures to watch
    return argv


def no_secrets(argv: Sequence[str], order: Order) -> None:
    """A secret has no place on a command line."""
    for name in _SECRET_FLAGS:
        if flags.has(argv, name):
            is_vllm = order.recipe.engine is EngineKind.VLLM
            hint = "vLLM reads it from VLLM_API_KEY in the environment" if is_vllm else _SGLANG_KEY
            raise CannotRender(
                f"--{name} would put a secret on the command line, where every user of the machine can read it", hint
            )
    for name, secret in order.secrets.items():
        if len(secret) > 5 and any(secret in word for word in argv):
            raise CannotRender(f"the value of {name} would stand on the command line", "set it in `env` as $" + name)
