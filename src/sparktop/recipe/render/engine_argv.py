"""The engine's command line: the recipe's template, or its defaults as flags, with the operator's settings applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sparktop.cmdline import engine_argv as flags
from sparktop.cmdline.engine_command import server_at
from sparktop.dataclass import dataclass
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order, Recipe
from sparktop.recipe import parameters, template
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.render.environment import node_parameters
from sparktop.recipe.render.model_mounts import ModelPlace

_SECRET_FLAGS = ("api-key", "admin-api-key", "hf-token", "ssl-keyfile-password")
_SGLANG_KEY = "SGLang takes its key only there: listen on 127.0.0.1, and let a reverse proxy check the key"
_HINTS = {
    "api-key": "vLLM reads it from VLLM_API_KEY in the environment",
    "hf-token": "vLLM reads it from HF_TOKEN in the environment",
}
_MARK = 0xF0000
"""Private-use characters stand in for the operator's values while the template is split into words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderInputs:
    """What is the same for every rank of a launch."""

    order: Order
    values: Mapping[str, str]
    fixed: frozenset[str]
    """Parameters whose values the operator or sparktop has set, overriding the recipe."""
    executor: Executor
    seats: Sequence[NodeContext]
    name: str
    launch: str

    @property
    def recipe(self) -> Recipe:
        return self.order.recipe


def engine_argv(inputs: RenderInputs, node: NodeContext, model: ModelPlace) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the engine's argv without the flags of its rank, environment variables that the command sets)."""
    recipe = inputs.recipe
    node_values = {
        **inputs.values,
        **node_parameters(node, inputs.seats),
        "model": model.named,
        "resolved_model_path": model.named,
    }
    own: dict[str, str] = {}
    if recipe.command.strip():
        argv, own = _from_template(recipe.command, node_values, inputs.fixed)
        if not argv or server_at(argv, 0) is None:
            raise CannotRender(
                f"the recipe's command starts {' '.join(argv[:2])[:60]!r}, which is neither a vLLM nor an SGLang server"
            )
        argv = _with_settings(argv, inputs, model)
    else:
        argv = _from_defaults(inputs, model)
    revision = inputs.values.get("model_revision", "")
    if model.is_hub and revision and not flags.has(argv, "revision"):
        argv = (*argv, "--revision", revision)
    served = parameters.get(inputs.values, "served_model_name")
    if not flags.has(argv, "served-model-name") and (served or not model.is_hub):
        argv = (*argv, "--served-model-name", served or inputs.values["model"])
    return argv, own


def _from_template(
    command: str, node_values: Mapping[str, str], fixed: Collection[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the argv, variables that the command sets before itself); the operator's values are never split or parsed."""
    marks = {name: chr(_MARK + index) for index, name in enumerate(sorted(fixed))}
    words = template.render(command, {**node_values, **marks})
    for name, mark in marks.items():
        words = tuple(word.replace(mark, node_values[name]) for word in words)
    return template.split_env(words)


def _with_settings(argv: tuple[str, ...], inputs: RenderInputs, model: ModelPlace) -> tuple[str, ...]:
    """The template's argv with the operator's settings that the template has no {parameter} for."""
    recipe = inputs.recipe
    named = template.used(recipe.command, recipe.defaults)
    if "model" not in named and model.named != recipe.model:
        if recipe.model not in argv:
            raise CannotRender("the recipe's command names its model, so you can't set another",
                               "write {model} there instead")  # fmt: skip
        argv = tuple(model.named if word == recipe.model else word for word in argv)
    for main, words in _flag_words(inputs, sorted(inputs.fixed - named)):
        argv = flags.placed(argv, words, flags.flag_of(main, recipe.engine))
    return argv


def _flag_words(inputs: RenderInputs, names: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(main name, words of its flag) of the parameters that are flags of the engine."""
    recipe = inputs.recipe
    for name in names:
        main, is_bool = parameters.main_name(name), isinstance(recipe.defaults.get(name), bool)
        if main not in parameters.OWN:
            yield main, flags.words_of(main, inputs.values[name], recipe.engine, is_bool=is_bool)


def _from_defaults(inputs: RenderInputs, model: ModelPlace) -> tuple[str, ...]:
    """The argv of a recipe without a command: its defaults become flags."""
    recipe = inputs.recipe
    if recipe.engine is EngineKind.SGLANG:
        argv: tuple[str, ...] = ("python3", "-m", "sglang.launch_server", "--model-path", model.named)
    else:
        argv = ("vllm", "serve", model.named)
    for _, words in _flag_words(inputs, inputs.values):
        argv = (*argv, *words)
    if recipe.engine is EngineKind.SGLANG and not flags.has(argv, "enable-metrics"):
        argv = (*argv, "--enable-metrics")  # without it, there are no figures to watch
    return argv


def refuse_secrets(argv: Sequence[str], order: Order) -> None:
    """Refuse an argv that contains a secret."""
    for name in _SECRET_FLAGS:
        if flags.has(argv, name):
            is_vllm = order.recipe.engine is EngineKind.VLLM
            hint = _HINTS.get(name, "leave it out") if is_vllm else _SGLANG_KEY
            raise CannotRender(
                f"--{name} puts a secret on the command line: every user of the machine can read it", hint
            )
    for name, secret in order.secrets.items():
        if len(secret) > 5 and any(secret in word for word in argv):
            raise CannotRender(
                f"this puts the value of {name} on the command line: every user of the machine can read it",
                "set it in `env` as $" + name,
            )
