"""Check a recipe's command before it is rendered for any node, and read facts about the launch from it."""

from __future__ import annotations

import json
import re

import yaml

from sparktop.cmdline.engine_argv import has, value_of
from sparktop.cmdline.yaml_nodes import text_at
from sparktop.dataclass import dataclass
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import MOST_NODES, Recipe
from sparktop.recipe import parameters
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.problems import ProblemKind, shown
from sparktop.recipe.read.fields import Fields
from sparktop.recipe.render.environment import node_parameters
from sparktop.recipe.template import TemplateError, fill, known_values, render, server_of, used

_FIXED_RANK = re.compile(r"--node[-_]rank[=\s]+\d|--data[-_]parallel[-_](?:start[-_])?rank[=\s]+\d")
"""Flags that must differ from rank to rank, written with a fixed value."""
_NODE_VALUES = {
    name: value or "0" for name, value in node_parameters(NodeContext(node="a"), [NodeContext(node="a")]).items()
}
"""Example values of the parameters that every node fills in for itself."""
_NO_CHAT = ("embed", "embedding", "score", "classify", "reward")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+\Z")
_DRAFT_FLAGS = ("--speculative-draft-model-path", "--speculative-draft-model", "--speculative-config.model")
_ALWAYS_USED = frozenset(
    (
        "port", "host", "tensor_parallel", "pipeline_parallel", "data_parallel", "served_model_name",
        "gpu_memory_utilization", "max_model_len", "distributed_executor_backend", *parameters.OWN,
    )
)  # fmt: skip
"""Parameters that affect the launch even where the command doesn't use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """What a command says about the launch."""

    is_ray: bool = False
    served_name: str = ""
    drafts: tuple[str, ...] = ()
    """Repositories of the draft models it names."""


def check_command(fields: Fields, recipe: Recipe) -> CommandFacts:
    """Render the command with the recipe's own values; problems are reported at their line of the command."""
    _check_environment(fields, recipe)
    if not recipe.command.strip():
        if not recipe.defaults and recipe.model:
            text = "missing, and there are no `defaults` to build one from"
            fields.add(
                "command", text, kind=ProblemKind.MISSING, remedy="for example `vllm serve {model} --port {port}`"
            )
        _note_typos(fields, recipe)
        return CommandFacts()
    try:
        argv = render(recipe.command, _NODE_VALUES | known_values(recipe))
    except TemplateError as error:
        _add_template_problem(fields, error)
        return CommandFacts()
    _check_argv(fields, recipe, argv)
    idle = sorted(set(recipe.defaults) - used(recipe.command, known_values(recipe)) - _ALWAYS_USED)
    section = fields.section("defaults")
    for name in idle:
        note = "the command doesn't use it, so it has no effect"
        section.add(name, note, kind=ProblemKind.NOTE, remedy=f"write {{{name}}} into the command, or remove it")
    return CommandFacts(
        is_ray=value_of(argv, "--distributed-executor-backend") == "ray",
        served_name=value_of(argv, "--served-model-name") or "",
        drafts=_draft_models(argv),
    )


def _note_typos(fields: Fields, recipe: Recipe) -> None:
    """Without a command every default becomes a flag: report names that look like typos of known ones."""
    section = fields.section("defaults")
    for name in section:
        if meant := parameters.nearest_parameter(name, recipe.engine):
            note = f"becomes --{name.replace('_', '-')}, a flag that sparktop doesn't know"
            section.add(name, note, kind=ProblemKind.NOTE, nearest=meant)


def _draft_models(argv: tuple[str, ...]) -> tuple[str, ...]:
    models = [value_of(argv, flag) or "" for flag in _DRAFT_FLAGS]
    try:
        config = json.loads(value_of(argv, "--speculative-config") or "{}")
    except (ValueError, RecursionError):
        config = {}
    if isinstance(config, dict):
        models.append(str(config.get("model", "")))
    return tuple(dict.fromkeys(model for model in models if _REPOSITORY.match(model)))


_NODE_COUNTS = ("min_nodes", *(f"defaults.{axis}_parallel" for axis in ("tensor", "pipeline", "data")))
"""Keys that say on how many Sparks it runs."""


def _check_argv(fields: Fields, recipe: Recipe, argv: tuple[str, ...]) -> None:
    engine = server_of(argv)
    if engine is None:
        text = f"`{shown(' '.join(argv[:3]))}` starts no server that sparktop knows"
        remedy = (
            "vllm serve, sglang serve, python3 -m sglang.launch_server, python3 -m vllm.entrypoints.openai.api_server"
        )
        fields.add("command", text, kind=ProblemKind.TEMPLATE, remedy=f"known servers: {remedy}")
    elif engine is not recipe.engine and "runtime" in fields:
        text = f"the command starts {engine.traits.name}, but `runtime` says {recipe.engine.traits.name}"
        fields.add("runtime", text)
    if fixed := _FIXED_RANK.search(recipe.command):
        text = f"`{shown(fixed[0])}` differs from node to node"
        fields.add("command", text, kind=ProblemKind.TEMPLATE, remedy="remove it: the launch adds it")
    if value_of(argv, "--runner") == "pooling" or value_of(argv, "--task") in _NO_CHAT or has(argv, "--is-embedding"):
        text = "it serves embeddings or a ranking, but sparktop proves a launch by a chat answer"
        fields.add("command", text, kind=ProblemKind.UNSUPPORTED, remedy="launch it with sparkrun")
    tensor, pipeline, data = (_size(argv, f"{axis}-parallel-size") for axis in ("tensor", "pipeline", "data"))
    ranks = tensor * pipeline * (data if recipe.engine is EngineKind.VLLM else 1)
    is_said = any(p.kind is ProblemKind.UNSUPPORTED and p.key in _NODE_COUNTS for p in fields.sheet.problems)
    if ranks > MOST_NODES and not is_said:
        text = f"it needs {ranks} Sparks, but sparktop launches on {MOST_NODES} at most"
        fields.add("command", text, kind=ProblemKind.UNSUPPORTED, remedy="a smaller quantisation may fit on fewer")


def _size(argv: tuple[str, ...], flag: str) -> int:
    size = value_of(argv, flag) or ""
    return int(size) if size.isdecimal() and 0 < len(size) < 5 else 1


def _check_environment(fields: Fields, recipe: Recipe) -> None:
    nodes = fields.section("runtime_config").section("sparktop").section("node_environment")
    for section, values in ((fields.section("env"), recipe.environment), (nodes, recipe.node_environment)):
        for name, value in values.items():
            if name not in section:
                continue
            try:
                fill(value, _NODE_VALUES | known_values(recipe))
            except TemplateError as error:
                section.add(name, error.reason, nearest=error.nearest, remedy=" ".join(error.remedies))


def _add_template_problem(fields: Fields, error: TemplateError) -> None:
    """Report a template's problem at its own line of the file."""
    node = fields.node("command")
    offset = fields.place("command")
    if isinstance(node, yaml.ScalarNode):
        source_text = text_at(fields.sheet.document, node)
        lead = len(node.value) - len(node.value.lstrip("\n"))
        if source_text is not None and len(source_text.at) == len(source_text.text):
            index = min(error.offset + lead, len(source_text.at) - 1)
            offset = source_text.at[index] if index >= 0 else offset
    fields.sheet.add(
        offset,
        fields.dotted("command"),
        error.reason,
        kind=ProblemKind.TEMPLATE,
        nearest=error.nearest,
        remedy="; ".join(filter(None, error.remedies)),
    )
