"""Keys of the community's formats that sparktop knows and doesn't do: refused by name, never skipped."""

from __future__ import annotations

import yaml

from sparktop.recipe.fields import Fields
from sparktop.recipe.problems import ProblemKind, shown

IMAGE_HOLDS_ALL = "build what it does into an image of your own, name that as `container`, and take the key out"

HOOKS = {
    "mods": "patches an image while it starts; sparktop starts an image as it is",
    "pre_exec": "runs commands in the container before the engine; sparktop starts an image as it is",
    "post_exec": "runs commands in the container after the start; sparktop runs none",
    "post_commands": "runs commands on your own machine after the start; sparktop runs none",
}
TOPOLOGY = {
    "include": ("takes its fields from another recipe", "`sparkrun recipe export` writes it out as one file"),
    "overrides": ("changes fields by what is launched on", "write the fields out for one or two Sparks"),
    "layout": ("places ranks on hosts by name", "name the hosts on the command line: the first is the head"),
    "cluster_config": ("holds a cluster's own settings", "the model's place can be given: --set model=/path"),
    "containers": ("gives each machine an image of its own", "name one image for both as `container`"),
}
IGNORED = (
    "benchmark", "min_sparkrun_version", "capabilities", "unsupported_capabilities", "runtime_version", "scheduler",
)  # fmt: skip
"""What these say changes nothing in the launch: what is measured, for whom, and where it would be placed."""
RUNTIMES = {
    "llama-cpp": "llama.cpp",
    "trtllm": "TensorRT-LLM",
    "atlas": "Atlas",
    "tokenary": "Tokenary",
    "modular-max": "Modular MAX",
}
BUILDERS = ("", "none", "docker-pull")


def refuse_unsupported(fields: Fields) -> None:
    """Note every key that is filled and can't be honoured; one that is empty says nothing."""
    for name, reason in HOOKS.items():
        if filled(fields.node(name)) and not (name == "mods" and _are_ours(fields)):
            what = ", ".join(f"`{shown(each)}`" for each in _names(fields, name))
            fields.add(name, f"{reason}{f': {what}' if what else ''}", kind=_NO, remedy=IMAGE_HOLDS_ALL)
    for name, (reason, remedy) in TOPOLOGY.items():
        if filled(fields.node(name)):
            fields.add(name, reason, kind=_NO, remedy=remedy)
    for name in IGNORED:
        fields.node(name)
    _builder(fields)
    _executor(fields)
    _distribution(fields)
    if fields.flag("stop_after_post"):
        fields.add("stop_after_post", "stops the engine as soon as it has started", kind=_NO, remedy="take it out")
    if filled(fields.node("runtime_cache")) and fields.plain("runtime_cache") is not False:
        note = "kernels that were compiled are not kept between launches: the first minutes are slower"
        fields.add("runtime_cache", note, kind=ProblemKind.NOTE)


def _are_ours(fields: Fields) -> bool:
    """Whether the mods do only what a launch of ours does anyway."""
    if {name.rsplit("/", 1)[-1] for name in _names(fields, "mods")} != {"drop-caches"}:
        return False
    note = "`drop-caches` is what a launch does anyway: once, before it starts, and not every minute"
    fields.add("mods", note, kind=ProblemKind.NOTE)
    return True


def filled(node: yaml.Node | None) -> bool:
    """Whether something is said there: no empty list, mapping or text, no null."""
    if node is None:
        return False
    if isinstance(node, yaml.ScalarNode):
        return bool(node.value.strip()) and node.tag != "tag:yaml.org,2002:null"
    return bool(node.value)


def more_models(fields: Fields, model: str) -> tuple[str, ...]:
    """The repositories of `distribution_config` that are fetched beside the model."""
    config = fields.section("distribution_config")
    if config is None:
        return ()
    found = []
    for section in (config.node("additional_models"), _entries(config)):
        for each in section.value if isinstance(section, yaml.SequenceNode) else ():
            name = each if isinstance(each, yaml.ScalarNode) else None
            if isinstance(each, yaml.MappingNode):
                name = next((v for k, v in each.value if getattr(k, "value", "") == "name"), None)
            text = name.value.strip() if isinstance(name, yaml.ScalarNode) else ""
            if text and text not in ("{model}", model):
                found.append(text)
    return tuple(dict.fromkeys(found))


def _names(fields: Fields, name: str) -> list[str]:
    node = fields.node(name)
    many = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return [each.value for each in many[:6] if isinstance(each, yaml.ScalarNode)]


def _builder(fields: Fields) -> None:
    builder = fields.text("builder").strip()
    is_none = builder in BUILDERS
    if not is_none:
        text = f"`{shown(builder)}` builds an image before the launch; sparktop builds none"
        remedy = "build it, name its image as `container`, and take `builder` out"
        fields.add("builder", text, kind=_NO, remedy=remedy)
    if filled(fields.node("builder_config")) and is_none:
        note = "is for a builder, and sparktop builds none: it changes nothing"
        fields.add("builder_config", note, kind=ProblemKind.NOTE, remedy="take it out")


def _executor(fields: Fields) -> None:
    executor = fields.text("executor").strip()
    if executor not in ("", "docker"):
        text = f"`{shown(executor)}` is no Docker; sparktop starts containers with Docker"
        fields.add("executor", text, kind=_NO, remedy="take it out, or set it to docker")


def _entries(config: Fields) -> yaml.Node | None:
    """The entries of its `models`: a list, or a mapping that has one."""
    node = config.node("models")
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if getattr(key, "value", "") == "entries"), None)
    return node


def _distribution(fields: Fields) -> None:
    """One image for all; a model whole, on every node."""
    config = fields.section("distribution_config")
    if config is None:
        return
    if filled(config.node("containers")):
        config.add("containers", "distributes images of its own", kind=_NO, remedy="name one image as `container`")
    pinned = fields.text("model_revision", is_any=True)
    for section in (config.node("additional_models"), _entries(config)):
        for each in section.value if isinstance(section, yaml.SequenceNode) else ():
            said = {k.value: v for k, v in each.value if filled(v)} if isinstance(each, yaml.MappingNode) else {}
            for key in sorted(set(said) & set(_PARTS)):
                if key == "revision" and getattr(said[key], "value", "") == pinned:
                    continue
                fields.sheet.add(
                    each.start_mark.index,
                    f"{config.dotted('models')}.{key}",
                    f"{_PARTS[key]}; sparktop fetches a model whole, for every node",
                    kind=_NO,
                    remedy="take it out",
                )
    config.finish()


_NO = ProblemKind.UNSUPPORTED
_PARTS = {
    "target": "fetches it for some nodes only",
    "allow_patterns": "fetches a part of it",
    "ignore_patterns": "leaves a part of it out",
    "revision": "pins a revision of a second model",
}
