"""The engine's command line: the recipe's template, or its defaults as flags, with the operator's settings applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sparktop.cmdline import engine_argv as flags
from sparktop.cmdline.engine_command import server_at
from sparktop.cmdline.engine_flags import SECRET_FLAGS
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.recipe import parameters, template
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.parameters import LaunchValues
from sparktop.recipe.render.environment import node_parameters
from sparktop.recipe.render.model_mounts import ModelPlace

_SGLANG_KEY = "SGLang takes its key only there: listen on 127.0.0.1, and let a reverse proxy check the key"
_MARK = 0xF0000
"""Private-use characters stand in for the operator's values while the template is split into words."""


def engine_argv(
    launch: LaunchValues, node: NodeContext, nodes: Sequence[NodeContext], model: ModelPlace
) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the engine's argv without the flags of its rank, environment variables that the command sets).

    Raises:
        CannotRender: the command starts no server, or what the operator sets has no place in it.
    """
    recipe = launch.order.recipe
    own: dict[str, str] = {}
    if recipe.command.strip():
        named = {"model": model.named, "resolved_model_path": model.named}
        values = {**launch.by_name, **node_parameters(node, nodes), **named}
        argv, own = _from_template(recipe.command, values, launch.set_names)
        if not argv or server_at(argv, 0) is None:
            raise CannotRender(
                f"the recipe's command starts {' '.join(argv[:2])[:60]!r}, which is neither a vLLM nor an SGLang server"
            )
        argv = _with_settings(argv, launch, model)
    else:
        argv = _from_defaults(launch, model)
    if model.is_hub and launch.revision and not flags.has(argv, "revision"):
        argv = (*argv, "--revision", launch.revision)
    served = launch.get("served_model_name")
    if not flags.has(argv, "served-model-name") and (served or not model.is_hub):
        argv = (*argv, "--served-model-name", served or launch.model)
    return argv, own


def plain_argv(launch: LaunchValues) -> tuple[str, ...]:
    """The engine's argv on any one node, with its model by its own name.

    Raises:
        CannotRender: no command can be made of it.
    """
    node = NodeContext(node="")
    return engine_argv(launch, node, (node,), ModelPlace(named=launch.model))[0]


def _from_template(
    command: str, node_values: Mapping[str, str], fixed: Collection[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the argv, variables that the command sets before itself); the operator's values are never split or parsed."""
    marks = {name: chr(_MARK + index) for index, name in enumerate(sorted(fixed))}
    words = template.render(command, {**node_values, **marks})
    for name, mark in marks.items():
        words = tuple(word.replace(mark, node_values[name]) for word in words)
    return template.split_env(words)


def _with_settings(argv: tuple[str, ...], launch: LaunchValues, model: ModelPlace) -> tuple[str, ...]:
    """The template's argv with the operator's settings that the template has no {parameter} for."""
    recipe = launch.order.recipe
    named = template.used(recipe.command, recipe.defaults)
    if "model" not in named and model.named != recipe.model:
        if recipe.model not in argv:
            raise CannotRender("the recipe's command names its model, so you can't set another",
                               "write {model} there instead")  # fmt: skip
        argv = tuple(model.named if word == recipe.model else word for word in argv)
    for main, words in _flag_words(launch, sorted(launch.set_names - named - set(recipe.settings))):
        argv = flags.placed(argv, words, flags.flag_of(main, recipe.engine))
    return argv


def _flag_words(launch: LaunchValues, names: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(main name, words of its flag) of the parameters that are flags of the engine."""
    recipe = launch.order.recipe
    for name in names:
        main, is_bool = parameters.main_name(name), isinstance(recipe.defaults.get(name), bool)
        if main not in parameters.OWN:
            yield main, flags.words_of(main, launch.by_name[name], recipe.engine, is_bool=is_bool)


def _from_defaults(launch: LaunchValues, model: ModelPlace) -> tuple[str, ...]:
    """The argv of a recipe without a command: its defaults become flags."""
    recipe = launch.order.recipe
    traits = recipe.engine.traits
    argv = tuple(model.named if word == "MODEL" else word for word in traits.starts.split())
    for _, words in _flag_words(launch, launch.by_name):
        argv = (*argv, *words)
    if traits.metrics_on and not flags.has(argv, traits.metrics_on):
        argv = (*argv, traits.metrics_on)  # without it, there are no figures to watch
    return argv


def refuse_secrets(argv: Sequence[str], order: Order) -> None:
    """Refuse an argv that contains a secret."""
    for name, variable in SECRET_FLAGS.items():
        if flags.has(argv, name):
            hint = f"vLLM reads it from {variable} in the environment" if variable else "leave it out"
            raise CannotRender(
                f"--{name} puts a secret on the command line: every user of the machine can read it",
                hint if order.recipe.engine is EngineKind.VLLM else _SGLANG_KEY,
            )
    for name, secret in order.secrets.items():
        if len(secret) > 5 and any(secret in word for word in argv):
            raise CannotRender(
                f"this puts the value of {name} on the command line: every user of the machine can read it",
                "set it in `env` as $" + name,
            )
