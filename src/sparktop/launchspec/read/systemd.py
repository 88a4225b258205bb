"""Reads systemd units and drop-ins: their keys by section, and the engine that their ExecStart starts."""

from __future__ import annotations

import re
from dataclasses import replace

from sparktop.cmdline.docker_run import variable
from sparktop.cmdline.engine_command import kind_of_image
from sparktop.cmdline.shell import Variables
from sparktop.cmdline.source import Document, Item, Word
from sparktop.cmdline.systemd import Setting, draft_words, prefix, settings
from sparktop.launchspec.read.commands import Scope, read_command
from sparktop.launchspec.spec import LaunchSpec, SourceKind

_ENGINE_WORD = re.compile(r"vllm|sglang", re.IGNORECASE)


def read_unit(document: Document) -> list[LaunchSpec]:
    """The engine of a unit; if only its script starts the engine, the unit's keys are still checked."""
    keys = list(settings(document.text))
    unit = tuple(_item(key) for key in keys)
    scope = Scope(document=document, kind=SourceKind.UNIT)
    environment = [
        variable(word)
        for key in keys
        if key.name.text == "Environment"
        for word in draft_words(key.value, Variables(), fills=False)
        if "=" in word.text
    ]
    scope.exported |= {item.name: item for item in environment}
    scope.variables.update({item.name: [Word(item.value or "")] for item in environment})
    has_file = any(item.name in ("EnvironmentFile", "PassEnvironment") for item in unit)
    for key in keys:
        if key.name.text == "ExecStart" and key.value.text:
            before, _ = prefix(key.value.text)
            read_command(draft_words(key.value.part(len(before)), scope.variables, fills=":" not in before), scope)
    is_drop_in = not any(item.name == "ExecStart" and item.value for item in unit)
    name = document.name.rpartition("/")[2]
    specs = [
        replace(
            spec,
            unit=unit,
            name=spec.name or name,
            is_drop_in=is_drop_in,
            knows_environment=spec.knows_environment or (spec.has_container is False and not has_file),
        )
        for spec in scope.specs
    ]
    if not specs and any(_ENGINE_WORD.search(item.value or "") for item in unit):
        text = " ".join(item.value or "" for item in unit)
        specs = [
            LaunchSpec(
                document=document,
                kind=SourceKind.UNIT,
                name=name,
                span=unit[0].span,
                engine=kind_of_image(text),
                has_command=False,
                environment=tuple(environment),
                unit=unit,
                is_drop_in=is_drop_in,
            )
        ]
    return specs


def _item(setting: Setting) -> Item:
    name, value = setting.name, setting.value
    value_span = (value.at[0], value.at[-1] + 1) if value.at else None
    begin = name.span[0] if name.span else None
    span = (begin, value_span[1] if value_span else begin + len(name.text) + 1) if begin is not None else None
    return Item(name=name.text, value=value.text, section=setting.section, span=span, value_span=value_span)
