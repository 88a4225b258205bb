"""Check a recipe's command before it is rendered for any node."""

from __future__ import annotations

import re
from math import prod

import yaml

from sparktop.cmdline.engine_command import of_process
from sparktop.cmdline.yaml_nodes import text_at
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import MOST_NODES, Recipe
from sparktop.recipe import parameters
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.patches import parameters_in
from sparktop.recipe.problems import ProblemKind, shown
from sparktop.recipe.read.fields import Fields
from sparktop.recipe.render.environment import node_parameters
from sparktop.recipe.settings import made_up
from sparktop.recipe.template import fill, known_values, render, split_env, used

_FIXED_RANK = re.compile(r"--node[-_]rank[=\s]+\d|--data[-_]parallel[-_](?:start[-_])?rank[=\s]+\d")
"""Flags that must differ from rank to rank, written with a fixed value."""
_NODE_VALUES = {
    name: value or "0" for name, value in node_parameters(NodeContext(node="a"), [NodeContext(node="a")]).items()
}
"""Example values of the parameters that every node fills in for itself."""
_ALWAYS_USED = frozenset(
    (
        "port", "host", "tensor_parallel", "pipeline_parallel", "data_parallel", "served_model_name",
        "gpu_memory_utilization", "max_model_len", "distributed_executor_backend", *parameters.OWN,
    )
)  # fmt: skip
"""Parameters that affect the launch even where the command doesn't use them."""


def checked_argv(fields: Fields, recipe: Recipe) -> tuple[str, ...]:
    """The command rendered with the recipe's own values; empty without one, or where a problem of it was reported."""
    _check_environment(fields, recipe)
    section = fields.section("defaults")
    if not recipe.command.strip():
        if not recipe.defaults and recipe.model:
            text = "missing, and there are no `defaults` to build one from"
            fields.missing("command", text, "for example `vllm serve {model} --port {port}`")
        for name in section:
            if meant := parameters.nearest_parameter(name, recipe.engine):
                text = f"becomes --{name.replace('_', '-')}, a flag that sparktop doesn't know"
                section.add(name, text, kind=ProblemKind.NOTE, nearest=meant)
        return ()
    try:
        examples = _NODE_VALUES | ({"mmproj": "0"} if recipe.engine.traits.file_flag else {})
        argv = render(recipe.command, examples | made_up(recipe) | known_values(recipe))
    except CannotRender as error:
        _add_template_problem(fields, error)
        return ()
    _check_argv(fields, recipe, argv)
    in_hooks = {
        name for text in (*recipe.post_exec, *(p.command for p in recipe.patches)) for name in parameters_in(text)
    }
    for name in sorted(set(recipe.defaults) - used(recipe.command, known_values(recipe)) - _ALWAYS_USED - in_hooks):
        remedy = f"write {{{name}}} into the command, or remove it"
        section.note(name, "the command doesn't use it, so it has no effect", remedy)
    return argv


_NODE_COUNTS = ("min_nodes", *(f"defaults.{axis}_parallel" for axis in ("tensor", "pipeline", "data")))
"""Keys that say on how many Sparks it runs."""


def _check_argv(fields: Fields, recipe: Recipe, argv: tuple[str, ...]) -> None:
    started = of_process(split_env(argv)[0])
    if started is None:
        text = f"`{shown(' '.join(argv[:3]))}` starts no server that sparktop knows"
        remedy = (
            "vllm serve, sglang serve, llama-server, python3 -m sglang.launch_server, "
            "python3 -m vllm.entrypoints.openai.api_server"
        )
        fields.add("command", text, kind=ProblemKind.TEMPLATE, remedy=f"known servers: {remedy}")
    elif started.kind is not recipe.engine and not any(p.key == "runtime" for p in fields.sheet.problems):
        starts = f"the command starts {started.kind.traits.name}"
        if "runtime" in fields:
            fields.add("runtime", f"{starts}, but `runtime` says {recipe.engine.traits.name}")
        else:
            fields.missing("runtime", f"missing, and {starts}", "say which engine it is: sparktop takes it for vLLM")
    if fixed := _FIXED_RANK.search(recipe.command):
        text = f"`{shown(fixed[0])}` differs from node to node"
        fields.add("command", text, kind=ProblemKind.TEMPLATE, remedy="remove it: the launch adds it")
    axes = ("tensor", "pipeline", *(["data"] if recipe.engine is EngineKind.VLLM else []))
    ranks = prod(started.count(f"{axis}-parallel-size") for axis in axes) if started is not None else 1
    is_said = any(p.kind is ProblemKind.UNSUPPORTED and p.key in _NODE_COUNTS for p in fields.sheet.problems)
    if ranks > MOST_NODES and not is_said:
        text = f"it needs {ranks} Sparks, but sparktop launches on {MOST_NODES} at most"
        fields.unsupported("command", text, "a smaller quantisation may fit on fewer")


def _check_environment(fields: Fields, recipe: Recipe) -> None:
    nodes = fields.section("runtime_config").section("sparktop").section("node_environment")
    for section, values in ((fields.section("env"), recipe.environment), (nodes, recipe.node_environment)):
        for name, value in values.items():
            if name not in section:
                continue
            try:
                fill(value, _NODE_VALUES | made_up(recipe) | known_values(recipe))
            except CannotRender as error:
                section.refused(name, error)


def _add_template_problem(fields: Fields, error: CannotRender) -> None:
    """Report a template's problem at its own line of the file."""
    node = fields.node("command")
    offset = fields.place("command")
    if isinstance(node, yaml.ScalarNode):
        source_text = text_at(fields.sheet.document, node)
        lead = len(node.value) - len(node.value.lstrip("\n"))
        if source_text is not None and len(source_text.at) == len(source_text.text):
            index = min(error.offset + lead, len(source_text.at) - 1)
            offset = source_text.at[index] if index >= 0 else offset
    fields.refused("command", error, ProblemKind.TEMPLATE, offset)
