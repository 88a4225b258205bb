"""Reads recipes of sparkrun (v2) and spark-vllm-docker (v1): the command template filled with its defaults.

Their launchers set network variables and options themselves, and somebody tested the whole combination, so what was
tuned together is left alone. Facts: docs/facts/engines.md sections 5.1 and 5.2, conflict C10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import yaml

from sparktop.cmdline.docker_options import by_name
from sparktop.cmdline.engine_argv import flag_of
from sparktop.cmdline.engine_flags import canonical
from sparktop.cmdline.source import Document, Item, Word, item_of, joined
from sparktop.cmdline.yaml_nodes import get, pairs, scalar, text_at
from sparktop.engines.images import Family, family_of, version_of
from sparktop.launchspec.read.commands import Scope, nodes_of, read_script
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind
from sparktop.model.engine import EngineKind

_PARAMETER = re.compile(r"\{(\w+)\}")
_RUNTIMES = {"vllm": EngineKind.VLLM, "eugr": EngineKind.VLLM, "sglang": EngineKind.SGLANG}
MAX_FILLINGS = 4
"""Parameters may hold parameters, up to this depth."""


def is_recipe(root: yaml.Node | None) -> bool:
    """Whether a YAML document looks like a recipe."""
    has = {key.text for key, _ in pairs(root)}
    return "model" in has and bool(has & {"recipe_version", "runtime", "container", "defaults"})


def read_recipe(document: Document, root: yaml.Node | None) -> list[LaunchSpec]:
    """The engine a recipe starts; empty if its runtime is neither vLLM nor SGLang."""
    version = scalar(document, get(root, "recipe_version")) or scalar(document, get(root, "sparkrun_version"))
    runtime = scalar(document, get(root, "runtime"))
    is_eugr = version.startswith("1") or (not runtime and get(root, "build_args") is not None)
    engine = next((kind for name, kind in _RUNTIMES.items() if runtime.startswith(name)), None)
    if runtime and engine is None:
        return []
    image = text_at(document, get(root, "container"))
    model = text_at(document, get(root, "model"))
    values = {key.text: word for key, node in pairs(get(root, "defaults")) if (word := text_at(document, node))}
    for name in ("model", "container", "model_revision"):
        if (word := text_at(document, get(root, name))) is not None:
            values.setdefault(name, word)
    environment = [
        item_of(key.text, word, key)
        for key, node in pairs(get(root, "env"))
        if (word := text_at(document, node)) is not None and key.span and word.span
    ]
    base = LaunchSpec(
        document=document,
        kind=SourceKind.RECIPE,
        launcher=Launcher.EUGR if is_eugr else Launcher.SPARKRUN,
        name=scalar(document, get(root, "name")),
        span=model.span if model else None,
        image=item_of("image", image) if image else None,
        family=(family_of(image.text) or Family.COMMUNITY) if image else Family.COMMUNITY,
        environment=tuple(environment),
        has_container=True,
        options=tuple(_options(document, root)),
    )
    scope = Scope(document=document, kind=SourceKind.RECIPE, base=base)
    template = text_at(document, get(root, "command"))
    if template is not None:
        read_script(_fill(template, values, is_doubled=is_eugr), scope)
    specs = scope.specs or [_without_command(base, engine or EngineKind.VLLM, values, model)]
    nodes = _nodes(document, root)
    return [replace(_with_model(spec, model), nodes=max(nodes or 1, spec.nodes)) for spec in specs]


def _without_command(base: LaunchSpec, engine: EngineKind, values: dict[str, Word], model: Word | None) -> LaunchSpec:
    """The specification of a recipe without a command: its defaults are the flags, under sparkrun's names."""
    flags = tuple(
        item_of(canonical(flag_of(name, engine), engine), word)
        for name, word in values.items()
        if name not in ("model", "container", "model_revision")
    )
    return replace(
        base,
        engine=engine,
        version=version_of(base.image_name, engine),
        flags=flags,
        has_command=False,
        model=item_of("model", model) if model else None,
        nodes=nodes_of(flags),
    )


def _with_model(spec: LaunchSpec, model: Word | None) -> LaunchSpec:
    if model is None or (spec.model and "{" not in spec.model_name):
        return spec
    return replace(spec, model=item_of("model", model))


def _fill(template: Word, values: dict[str, Word], *, is_doubled: bool) -> Word:
    """The template with `{parameters}` replaced by their values, which keep their own positions."""
    for _ in range(MAX_FILLINGS):
        pieces, done = [], 0
        for match in _PARAMETER.finditer(template.text):
            if match[1] in values:
                pieces += [template.part(done, match.start()), values[match[1]]]
                done = match.end()
        if not pieces or len(template.text) > 100_000:
            break
        template = joined([*pieces, template.part(done)])
    if is_doubled:
        pieces, index = [], 0
        while index < len(template.text):
            pieces.append(template.part(index, index + 1))
            index += 2 if template.text[index : index + 2] in ("{{", "}}") else 1
        template = joined(pieces)
    return template


def _nodes(document: Document, root: yaml.Node | None) -> int | None:
    least = scalar(document, get(root, "min_nodes"))
    if least.isdecimal():
        return min(int(least[:4]), 64)
    if scalar(document, get(root, "cluster_only")).lower() == "true":
        return 2
    return None


def _options(document: Document, root: yaml.Node | None) -> Iterator[Item]:
    config = get(root, "executor_config")
    for option in dict.fromkeys(by_name().values()):
        word = text_at(document, get(config, option.recipe)) if option.recipe else None
        if word is not None:
            yield item_of(option.name, word)
    if scalar(document, get(config, "auto_remove")).lower() == "true":
        yield Item(name="rm")
