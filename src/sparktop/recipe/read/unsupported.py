"""Keys of the community's formats that sparktop knows but doesn't support: refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from sparktop.cmdline.yaml_nodes import get, items, pairs
from sparktop.recipe.problems import ProblemKind, shown
from sparktop.recipe.read.fields import Fields

_ON_YOUR_MACHINE = "post_commands"
_NO_KEY = (
    "no key of this format: neither sparktop nor sparkrun knows what it changes",
    "write what it does into `command` or `env`, and remove it",
)
"""For what can't be there for nothing: its author has a launcher of his own."""
REFUSED: Mapping[str, tuple[str, str]] = {
    _ON_YOUR_MACHINE: (
        "runs commands on your machine after the start; sparktop runs none",
        "what can run in the container goes under `post_exec`; run the others yourself",
    ),
    "include": ("takes its fields from another recipe", "`sparkrun recipe export` writes it as one file"),
    "overrides": ("changes fields depending on the hosts", "write the fields for the Sparks you have"),
    "layout": ("places ranks on hosts by name", "name the hosts on the command line: the first is the head"),
    "cluster_config": ("has settings of a cluster", "to set the model's path: --set model=/path"),
    "containers": ("gives each machine its own image", "name one image for all as `container`"),
    **dict.fromkeys(
        ("patches", "launch", "build", "raw_entrypoint", "env_file", "args", "extra_args", "ports"), _NO_KEY
    ),
}
"""Why a key isn't supported, and what to do."""
IGNORED = (
    "benchmark", "min_sparkrun_version", "capabilities", "unsupported_capabilities", "runtime_version", "scheduler",
)  # fmt: skip
"""Keys that don't affect a launch: benchmarks, audience, placement."""
RUNTIMES = {
    "trtllm": "TensorRT-LLM",
    "atlas": "Atlas",
    "tokenary": "Tokenary",
    "modular-max": "Modular MAX",
}
BUILDERS = ("", "none", "docker-pull", "eugr")
"""Those that pull; what eugr's builds instead is told of its image (`read/images`)."""


def refuse_unsupported(fields: Fields) -> None:
    """Report every unsupported key that has a value; an empty one is ignored."""
    other_commands = () if "command" in fields else [name for name in fields if name.startswith("command_")]
    for name, (reason, remedy) in {**REFUSED, **dict.fromkeys(other_commands, _NO_KEY)}.items():
        if filled(node := fields.node(name)):
            fields.unsupported(name, reason + (_names_of(node) if name == _ON_YOUR_MACHINE else ""), remedy)
    for name in IGNORED:
        fields.node(name)
    _builder(fields)
    executor = fields.text("executor").strip()
    if executor not in ("", "docker"):
        text = f"`{shown(executor)}` is not Docker; sparktop starts containers with Docker"
        fields.unsupported("executor", text, "remove it, or set it to docker")
    _distribution(fields)
    if fields.flag("stop_after_post"):
        fields.unsupported("stop_after_post", "stops the engine as soon as it has started", "remove it")


def filled(node: yaml.Node | None) -> bool:
    """Whether the node has a value: no empty list, mapping or text, no null."""
    if node is None:
        return False
    if isinstance(node, yaml.ScalarNode):
        return bool(node.value.strip()) and node.tag != "tag:yaml.org,2002:null"
    return bool(node.value)


def more_models(fields: Fields, model: str) -> tuple[str, ...]:
    """The repositories of `distribution_config` that are downloaded besides the model."""
    config = fields.section("distribution_config")
    models = []
    for item in _model_nodes(config):
        name = get(item, "name") if isinstance(item, yaml.MappingNode) else item
        text = name.value.strip() if isinstance(name, yaml.ScalarNode) else ""
        if text and text not in ("{model}", model):
            models.append(text)
    return tuple(dict.fromkeys(models))


def _names_of(node: yaml.Node | None) -> str:
    """ ": `a`, `b`", the first texts of a list, or the text itself."""
    nodes = items(node) if isinstance(node, yaml.SequenceNode) else (node,)
    names = ", ".join(f"`{shown(item.value)}`" for item in nodes[:6] if isinstance(item, yaml.ScalarNode))
    return f": {names}" if names else ""


def _builder(fields: Fields) -> None:
    builder = fields.text("builder").strip()
    if builder not in BUILDERS:
        text = f"`{shown(builder)}` builds an image before the launch; sparktop builds none"
        fields.unsupported("builder", text, "build it, name its image as `container`, and remove `builder`")
    if filled(fields.node("builder_config")) and builder in BUILDERS:
        note = "has no effect: it is for a builder, and sparktop builds no image"
        fields.note("builder_config", note, "remove it")


def _model_nodes(config: Fields) -> Iterator[yaml.Node]:
    """The further models: those of `additional_models` and of `models`."""
    yield from (*items(config.node("additional_models")), *_entries(config.node("models")))


def _entries(node: yaml.Node | None) -> tuple[yaml.Node, ...]:
    """What is distributed: a list, or a mapping that holds it."""
    return items(get(node, "entries") if isinstance(node, yaml.MappingNode) else node)


def _is_every_node(node: yaml.Node) -> bool:
    """Whether it is the target [-1]: sparkrun's word for all nodes."""
    return [getattr(item, "value", "") for item in items(node)] == ["-1"]


def _distribution(fields: Fields) -> None:
    """Refuse what would give nodes different images or partial models."""
    config = fields.section("distribution_config")
    images = {getattr(get(item, "name"), "value", "") for item in _entries(config.node("containers"))}
    if images - {"{container}", fields.text("container").strip()}:
        config.unsupported("containers", "distributes its own images", "name one image as `container`")
    pinned = fields.text("model_revision", is_any=True)
    for item in _model_nodes(config):
        keys = {key.text: value for key, value in pairs(item) if filled(value) and not _is_every_node(value)}
        for key in sorted(set(keys) & set(_PARTIAL_KEYS)):
            if key != "revision" or getattr(keys[key], "value", "") != pinned:
                text = f"{_PARTIAL_KEYS[key]}; sparktop downloads the whole model to every node"
                where = f"{config.dotted('models')}.{key}"
                fields.sheet.add(item.start_mark.index, where, text, kind=ProblemKind.UNSUPPORTED, remedy="remove it")
    config.finish()


_PARTIAL_KEYS = {
    "target": "downloads it to some nodes only",
    "allow_patterns": "downloads only some files",
    "ignore_patterns": "leaves out some files",
    "revision": "pins a revision of a second model",
}
