"""What is known against a launch as the change makes it, and was not against it before: lint, for the review. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.diagnose.lint.rules import check
from sparktop.diagnose.lint.running import Running, running, spec_of
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.operate.changing import Changing
from sparktop.operate.commandline import changed
from sparktop.operate.flags import CannotEdit
from sparktop.operate.hostoptions import with_options
from sparktop.probe.remote import mask_text
from sparktop.recipe.dockerline import host_options

_NAMED = {"volume": "mount"}
"""As lint calls what `docker run` has several words for."""


def warnings(found: Sequence[Changing]) -> tuple[str, ...]:
    """One sentence for each thing that the new launch would be warned of and the old one was not."""
    return tuple(dict.fromkeys(said for one in found for said in _of(one, len(found))))


def _of(one: Changing, nodes: int) -> Iterator[str]:
    desktop = one.part.view.facts.is_graphical if one.part.view.facts else None
    before = running(one.part.engine, one.part.node, nodes=nodes, desktop=desktop)
    after = _after(one, before)
    if after is None:
        return
    known = {(each.rule, each.subject, each.title) for each in _findings(before)}
    for finding in _findings(after):
        if finding.severity is not Severity.INFO and (finding.rule, finding.subject, finding.title) not in known:
            yield f"The change itself: {finding.title} ({finding.rule})."


def _findings(launch: Running) -> tuple[Finding, ...]:
    spec = spec_of(launch)
    return () if spec is None else check((spec,), mask=mask_text)


def _after(one: Changing, before: Running) -> Running | None:
    """The launch with the change; None where its command can't be read."""
    change = one.change
    try:
        argv = changed((), before.argv, change.flags, {}).command if change.flags else before.argv
    except CannotEdit:
        return None
    pairs = dict(each.partition("=")[::2] for each in before.environment)
    for name, value in change.environment.items():
        pairs.pop(name, None)
        if value is not None:
            pairs[name] = value
    return replace(
        before,
        argv=tuple(argv),
        environment=tuple(f"{name}={value}" for name, value in pairs.items()),
        image=change.image or before.image,
        container=_options(before.container, one) if before.container is not None else None,
    )


def _options(container: tuple[tuple[str, str | None], ...], one: Changing) -> tuple[tuple[str, str | None], ...]:
    """Docker's options, those that the change names as it makes them."""
    host: dict[str, Any] = dict(one.raw.get("HostConfig") or {})
    then = dict(host)
    with_options(then, one.change.options)
    old, new = (_said(each, one.change.options) for each in (host, then))
    kept = [pair for pair in container if pair not in old and pair[0] not in {name for name, _ in (*old, *new)}]
    return (*kept, *new)


def _said(host: Mapping[str, Any], names: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    part = {name: host[name] for name in names if host.get(name) is not None}
    return tuple((_NAMED.get(name, name), value) for name, value in host_options(part))
