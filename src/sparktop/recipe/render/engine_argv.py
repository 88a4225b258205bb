"""The engine's command line: the recipe's template, or its defaults as flags, with the operator's settings applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from sparktop.cmdline import engine_argv as flags
from sparktop.cmdline.engine_command import server_at
from sparktop.cmdline.engine_flags import SECRET_FLAGS
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order, Recipe
from sparktop.recipe import gguf, parameters, template
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
        named = {"model": model.named, "resolved_model_path": model.named} | _encoder_named(launch, model)
        values = {**launch.by_name, **node_parameters(node, nodes), **named}
        argv, own = _from_template(recipe.command, values, {*launch.set_names, *named})
        if not argv or server_at(argv, 0) is None:
            raise CannotRender(
                f"the recipe's command starts {' '.join(argv[:2])[:60]!r}, which sparktop doesn't know as a server"
            )
        argv = _with_settings(argv, launch, model)
    else:
        argv = _from_defaults(launch, model)
    if recipe.engine.traits.file_flag:
        argv = _with_file(argv, recipe, model, {*recipe.environment, *own})
    elif model.is_hub and launch.revision and not flags.has(argv, "revision"):
        argv = (*argv, "--revision", launch.revision)
    served, name = launch.get("served_model_name"), flags.flag_of("served_model_name", recipe.engine)
    if not flags.has(argv, name, kind=recipe.engine) and (served or not model.is_hub):
        argv = (*argv, name, served or launch.model)
    return argv, own


def _encoder_named(launch: LaunchValues, model: ModelPlace) -> dict[str, str]:
    """The file of the model's image encoder for a command that names it as {mmproj}, unless the recipe has its own."""
    recipe = launch.order.recipe
    if not recipe.engine.traits.file_flag or "mmproj" in launch.by_name:
        return {}
    if not (model.encoder or model.is_hub) and "mmproj" in template.used(recipe.command, recipe.defaults):
        text = "the command names {mmproj}, and no image encoder comes with the model"
        raise CannotRender(text, "remove it", "set its path: `defaults: mmproj: ...`")
    return {"mmproj": model.encoder or "mmproj.gguf"}


def _with_file(argv: tuple[str, ...], recipe: Recipe, model: ModelPlace, variables: Set[str]) -> tuple[str, ...]:
    """With the file that is loaded in place of its repository, its image encoder and the port, whose default differs
    from build to build."""
    kind, traits = recipe.engine, recipe.engine.traits
    for name, why in traits.refused.items():
        if flags.has(argv, name, kind=kind):
            raise CannotRender(f"--{name} has no place in a launch: {why}")
    set_by = {flag: name for name, flag in traits.variables.items() if name in variables}
    for flag in (*traits.model_flags, *traits.refused):
        if flag in set_by:
            why = traits.refused.get(flag, "a launch names the model by flags")
            raise CannotRender(f"a variable sets --{flag}: {why}", f"remove {set_by[flag]}")
    if model.folder and not gguf.is_model(model.named):
        raise CannotRender("the model's path names no .gguf file, or not the first of its parts", key="model")
    names = _model_flags(kind)
    if not model.is_hub or not flags.has(argv, *names, kind=kind):
        flag = names[0] if model.is_hub else names[1]
        argv = flags.placed(argv, (flag, model.named), *names, kind=kind)
    if model.encoder and not flags.has(argv, "--mmproj", "--no-mmproj", kind=kind):
        argv = (*argv, "--mmproj", model.encoder)
    if "port" not in set_by and not flags.has(argv, "--port", kind=kind):
        argv = (*argv, "--port", str(traits.port))
    return argv


def _model_flags(kind: EngineKind) -> tuple[str, ...]:
    """(that of a repository, that of one file) of an engine that loads one file; none of others."""
    return (f"--{kind.traits.model_flags[0]}", kind.traits.file_flag) if kind.traits.file_flag else ()


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
    """(the argv, variables that the command sets before itself); the values of `fixed` are never split or parsed: the
    operator's, and the model's path, whose name somebody on the hub has chosen."""
    marks = {name: chr(_MARK + index) for index, name in enumerate(sorted(fixed))}
    words = template.render(command, {**node_values, **marks})
    for name, mark in marks.items():
        words = tuple(word.replace(mark, node_values[name]) for word in words)
    return template.split_env(words)


def _with_settings(argv: tuple[str, ...], launch: LaunchValues, model: ModelPlace) -> tuple[str, ...]:
    """The template's argv with the operator's settings that the template has no {parameter} for."""
    recipe = launch.order.recipe
    named = template.used(recipe.command, recipe.defaults)
    is_left_out = (names := _model_flags(recipe.engine)) and not flags.has(argv, *names, kind=recipe.engine)
    if "model" not in named and model.named != recipe.model and not is_left_out:
        if recipe.model not in argv:
            raise CannotRender("the recipe's command names its model, so you can't set another",
                               "write {model} there instead")  # fmt: skip
        argv = tuple(model.named if word == recipe.model else word for word in argv)
    for main, words in _flag_words(launch, sorted(launch.set_names - named - set(recipe.settings))):
        argv = flags.placed(argv, words, flags.flag_of(main, recipe.engine), kind=recipe.engine)
    return argv


def _flag_words(launch: LaunchValues, names: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(main name, words of its flag) of the parameters that are flags of the engine."""
    recipe = launch.order.recipe
    for name in names:
        main, is_bool = parameters.main_name(name), isinstance(recipe.defaults.get(name), bool)
        if main not in parameters.OWN and main not in recipe.engine.traits.lacks:
            yield main, flags.words_of(main, launch.by_name[name], recipe.engine, is_bool=is_bool)


def _from_defaults(launch: LaunchValues, model: ModelPlace) -> tuple[str, ...]:
    """The argv of a recipe without a command: its defaults become flags."""
    recipe = launch.order.recipe
    traits = recipe.engine.traits
    argv = tuple(model.named if word == "MODEL" else word for word in traits.starts.split())
    for _, words in _flag_words(launch, launch.by_name):
        argv = (*argv, *words)
    if traits.metrics_on and launch.get(traits.metrics_on) is None:
        argv = (*argv, traits.metrics_on)  # without it, there are no figures to watch
    return argv


def refuse_secrets(argv: Sequence[str], order: Order) -> None:
    """Refuse an argv that contains a secret."""
    kind = order.recipe.engine
    key = kind.traits.key_variable
    for name, variable in SECRET_FLAGS.items():
        if flags.has(argv, name, kind=kind):
            variable = key if name == "api-key" else variable
            hint = f"{kind.traits.name} reads it from {variable} in the environment" if variable else "leave it out"
            raise CannotRender(
                f"--{name} puts a secret on the command line: every user of the machine can read it",
                hint if key else _SGLANG_KEY,
            )
    for name, secret in order.secrets.items():
        if len(secret) > 5 and any(secret in word for word in argv):
            raise CannotRender(
                f"this puts the value of {name} on the command line: every user of the machine can read it",
                "set it in `env` as $" + name,
            )
