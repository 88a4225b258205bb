"""What a recipe's command says, and what is wrong with it, before it is rendered for any node."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import yaml

from sparktop.diagnose.lint.yamlnodes import text_at
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Recipe
from sparktop.recipe import parameters
from sparktop.recipe.environment import node_parameters
from sparktop.recipe.fields import Fields
from sparktop.recipe.problems import ProblemKind, shown
from sparktop.recipe.rendered import Seat
from sparktop.recipe.template import TemplateError, fill, known_values, render, server_of, used

_FIXED_RANK = re.compile(r"--node[-_]rank[=\s]+\d|--data[-_]parallel[-_](?:start[-_])?rank[=\s]+\d")
"""What differs from rank to rank, and is the same in this command."""
_OF_NODES = {name: value or "0" for name, value in node_parameters(Seat(node="a"), [Seat(node="a")]).items()}
"""Parameters that every node fills in for itself."""
_NO_CHAT = ("embed", "embedding", "score", "classify", "reward")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+\Z")
_DRAFT_FLAGS = ("--speculative-draft-model-path", "--speculative-draft-model", "--speculative-config.model")
_PARALLEL = {
    "-tp": "tp", "--tensor-parallel-size": "tp", "--tp": "tp", "--tp-size": "tp",
    "-pp": "pp", "--pipeline-parallel-size": "pp", "--pp": "pp", "--pp-size": "pp",
    "-dp": "dp", "--data-parallel-size": "dp", "--dp": "dp", "--dp-size": "dp",
}  # fmt: skip
_ASKED_ANYWAY = frozenset(
    (
        "port", "host", "tensor_parallel", "pipeline_parallel", "data_parallel", "served_model_name",
        "gpu_memory_utilization", "max_model_len", "distributed_executor_backend", *parameters.OWN,
    )
)  # fmt: skip
"""Parameters that mean something to the launch even where the command doesn't name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded:
    """What a command tells of the launch."""

    is_ray: bool = False
    served_name: str = ""
    drafts: tuple[str, ...] = ()
    """Repositories of draft models that it names."""


def check_command(fields: Fields, recipe: Recipe) -> Commanded:
    """Render it once with the recipe's own values; problems stand at the line of the command that has them."""
    _check_environment(fields, recipe)
    if not recipe.command.strip():
        if not recipe.defaults and recipe.model:
            text = "missing, and no `defaults` to make one from"
            fields.add("command", text, kind=ProblemKind.MISSING, remedy="`vllm serve {model} --port {port}`, for one")
        _note_slips(fields, recipe)
        return Commanded()
    try:
        argv = render(recipe.command, _OF_NODES | known_values(recipe))
    except TemplateError as error:
        _note(fields, recipe, error)
        return Commanded()
    _check_argv(fields, recipe, argv)
    idle = sorted(set(recipe.defaults) - used(recipe.command, known_values(recipe)) - _ASKED_ANYWAY)
    section = fields.section("defaults")
    for name in idle if section is not None else ():
        note = "the command doesn't take it: it changes nothing"
        if section is not None:
            section.add(name, note, kind=ProblemKind.NOTE, remedy=f"write {{{name}}} into the command, or take it out")
    return Commanded(
        is_ray=_value(argv, "--distributed-executor-backend") == "ray",
        served_name=_value(argv, "--served-model-name"),
        drafts=_drafts(argv),
    )


def _note_slips(fields: Fields, recipe: Recipe) -> None:
    """Without a command every default is a flag by its name: of one that nearly has a known name, the name."""
    section = fields.section("defaults")
    for name in section or ():
        if section is not None and (meant := parameters.meant_by(name, recipe.engine)):
            note = f"becomes --{name.replace('_', '-')}, which isn't known here"
            section.add(name, note, kind=ProblemKind.NOTE, nearest=meant)


def _drafts(argv: tuple[str, ...]) -> tuple[str, ...]:
    found = [_value(argv, flag) for flag in _DRAFT_FLAGS]
    try:
        config = json.loads(_value(argv, "--speculative-config") or "{}")
    except (ValueError, RecursionError):
        config = {}
    if isinstance(config, dict):
        found.append(str(config.get("model", "")))
    return tuple(dict.fromkeys(each for each in found if _REPOSITORY.match(each)))


def _check_argv(fields: Fields, recipe: Recipe, argv: tuple[str, ...]) -> None:
    engine = server_of(argv)
    if engine is None:
        text = f"`{shown(' '.join(argv[:3]))}` starts no server that sparktop knows"
        remedy = (
            "vllm serve, sglang serve, python3 -m sglang.launch_server, python3 -m vllm.entrypoints.openai.api_server"
        )
        fields.add("command", text, kind=ProblemKind.TEMPLATE, remedy=f"it knows {remedy}")
    elif engine is not recipe.engine and "runtime" in fields:
        text = f"the command starts {_NAMES[engine]}, and `runtime` says {_NAMES[recipe.engine]}"
        fields.add("runtime", text)
    if fixed := _FIXED_RANK.search(recipe.command):
        text = f"`{shown(fixed[0])}` differs from node to node"
        fields.add("command", text, kind=ProblemKind.TEMPLATE, remedy="leave it out: the launch writes it")
    if _value(argv, "--runner") == "pooling" or _value(argv, "--task") in _NO_CHAT or "--is-embedding" in argv:
        text = "it serves embeddings or ranks, and a launch proves itself by an answer in words"
        fields.add("command", text, kind=ProblemKind.UNSUPPORTED, remedy="sparkrun launches it")
    sizes = {"tp": 1, "pp": 1, "dp": 1}
    for index, word in enumerate(argv):
        flag, _, value = word.partition("=")
        size = value or (argv[index + 1] if index + 1 < len(argv) else "")
        if flag in _PARALLEL and size.isdecimal() and 0 < len(size) < 5:
            sizes[_PARALLEL[flag]] = int(size)
    ranks = sizes["tp"] * sizes["pp"] * (sizes["dp"] if recipe.engine is EngineKind.VLLM else 1)
    if ranks > 2 and not any(p.kind is ProblemKind.UNSUPPORTED and "Sparks" in p.text for p in fields.sheet.problems):
        text = f"it takes {ranks} Sparks, and sparktop launches on one or two"
        fields.add("command", text, kind=ProblemKind.UNSUPPORTED, remedy="a smaller quantisation may do on two")


_NAMES = {EngineKind.VLLM: "vLLM", EngineKind.SGLANG: "SGLang"}


def _check_environment(fields: Fields, recipe: Recipe) -> None:
    config = fields.section("runtime_config")
    our = config.section("sparktop") if config is not None else None
    nodes = our.section("node_environment") if our is not None else None
    for section, values in ((fields.section("env"), recipe.environment), (nodes, recipe.node_environment)):
        for name, value in values.items():
            if section is None or name not in section:
                continue
            try:
                fill(value, _OF_NODES | known_values(recipe))
            except TemplateError as error:
                section.add(name, error.reason, nearest=error.nearest, remedy=" ".join(error.remedies))


def _value(argv: tuple[str, ...], flag: str) -> str:
    for index, word in enumerate(argv):
        name, is_joined, value = word.partition("=")
        if name.replace("_", "-") == flag:
            return value if is_joined else argv[index + 1] if index + 1 < len(argv) else ""
    return ""


def _note(fields: Fields, recipe: Recipe, error: TemplateError) -> None:
    """A template's problem at its own line of the file."""
    node = fields.node("command")
    place = fields.place("command")
    if isinstance(node, yaml.ScalarNode):
        word = text_at(fields.sheet.document, node)
        lead = len(node.value) - len(node.value.lstrip("\n"))
        if word is not None and len(word.at) == len(word.text):
            index = min(error.offset + lead, len(word.at) - 1)
            place = word.at[index] if index >= 0 else place
    fields.sheet.add(
        place,
        fields.dotted("command"),
        error.reason,
        kind=ProblemKind.TEMPLATE,
        nearest=error.nearest,
        remedy="; ".join(filter(None, error.remedies)),
    )
