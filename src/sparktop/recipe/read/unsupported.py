"""Keys of the community's formats that sparktop knows but doesn't support: refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from sparktop.cmdline.yaml_nodes import get, items, pairs
from sparktop.recipe.problems import ProblemKind, shown
from sparktop.recipe.read.fields import Fields

IMAGE_HOLDS_ALL = "build these changes into your own image, name that as `container`, and remove the key"

HOOKS = {
    "post_exec": "runs commands in the container after the start; sparktop runs none",
    "post_commands": "runs commands on your machine after the start; sparktop runs none",
}
TOPOLOGY = {
    "include": ("takes its fields from another recipe", "`sparkrun recipe export` writes it as one file"),
    "overrides": ("changes fields depending on the hosts", "write the fields for the Sparks you have"),
    "layout": ("places ranks on hosts by name", "name the hosts on the command line: the first is the head"),
    "cluster_config": ("has settings of a cluster", "to set the model's path: --set model=/path"),
    "containers": ("gives each machine its own image", "name one image for all as `container`"),
}
CHANGES_THE_RUN = ("patches", "launch", "build", "raw_entrypoint", "env_file", "args", "extra_args", "ports")
"""Keys of no format that can't be there for nothing: their author has a launcher of his own."""
IGNORED = (
    "benchmark", "min_sparkrun_version", "capabilities", "unsupported_capabilities", "runtime_version", "scheduler",
)  # fmt: skip
"""Keys that don't affect a launch: benchmarks, audience, placement."""
RUNTIMES = {
    "llama-cpp": "llama.cpp",
    "trtllm": "TensorRT-LLM",
    "atlas": "Atlas",
    "tokenary": "Tokenary",
    "modular-max": "Modular MAX",
}
BUILDERS = ("", "none", "docker-pull", "eugr")
"""Those that pull; what eugr's builds instead is told of its image (`read/images`)."""


def refuse_unsupported(fields: Fields) -> None:
    """Report every unsupported key that has a value; an empty one is ignored."""
    for name, reason in HOOKS.items():
        if filled(fields.node(name)):
            names = ", ".join(f"`{shown(name_)}`" for name_ in _scalar_names(fields, name))
            fields.add(name, f"{reason}{f': {names}' if names else ''}", kind=_UNSUPPORTED, remedy=IMAGE_HOLDS_ALL)
    for name, (reason, remedy) in TOPOLOGY.items():
        if filled(fields.node(name)):
            fields.add(name, reason, kind=_UNSUPPORTED, remedy=remedy)
    for name in IGNORED:
        fields.node(name)
    for name in CHANGES_THE_RUN:
        if filled(fields.node(name)):
            text = "no key of this format: neither sparktop nor sparkrun knows what it changes"
            fields.add(
                name, text, kind=_UNSUPPORTED, remedy="write what it does into `command` or `env`, and remove it"
            )
    _builder(fields)
    _executor(fields)
    _distribution(fields)
    if fields.flag("stop_after_post"):
        fields.add(
            "stop_after_post", "stops the engine as soon as it has started", kind=_UNSUPPORTED, remedy="remove it"
        )


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


def _scalar_names(fields: Fields, name: str) -> list[str]:
    node = fields.node(name)
    nodes = items(node) if isinstance(node, yaml.SequenceNode) else (node,)
    return [item.value for item in nodes[:6] if isinstance(item, yaml.ScalarNode)]


def _builder(fields: Fields) -> None:
    builder = fields.text("builder").strip()
    is_none = builder in BUILDERS
    if not is_none:
        text = f"`{shown(builder)}` builds an image before the launch; sparktop builds none"
        remedy = "build it, name its image as `container`, and remove `builder`"
        fields.add("builder", text, kind=_UNSUPPORTED, remedy=remedy)
    if filled(fields.node("builder_config")) and is_none:
        note = "has no effect: it is for a builder, and sparktop builds no image"
        fields.add("builder_config", note, kind=ProblemKind.NOTE, remedy="remove it")


def _executor(fields: Fields) -> None:
    executor = fields.text("executor").strip()
    if executor not in ("", "docker"):
        text = f"`{shown(executor)}` is not Docker; sparktop starts containers with Docker"
        fields.add("executor", text, kind=_UNSUPPORTED, remedy="remove it, or set it to docker")


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
        config.add(
            "containers", "distributes its own images", kind=_UNSUPPORTED, remedy="name one image as `container`"
        )
    pinned = fields.text("model_revision", is_any=True)
    for item in _model_nodes(config):
        keys = {key.text: value for key, value in pairs(item) if filled(value) and not _is_every_node(value)}
        for key in sorted(set(keys) & set(_PARTIAL_KEYS)):
            if key != "revision" or getattr(keys[key], "value", "") != pinned:
                text = f"{_PARTIAL_KEYS[key]}; sparktop downloads the whole model to every node"
                where = f"{config.dotted('models')}.{key}"
                fields.sheet.add(item.start_mark.index, where, text, kind=_UNSUPPORTED, remedy="remove it")
    config.finish()


_UNSUPPORTED = ProblemKind.UNSUPPORTED
_PARTIAL_KEYS = {
    "target": "downloads it to some nodes only",
    "allow_patterns": "downloads only some files",
    "ignore_patterns": "leaves out some files",
    "revision": "pins a revision of a second model",
}
