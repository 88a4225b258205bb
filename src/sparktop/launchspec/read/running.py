"""Reads running engines into LaunchSpecs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sparktop.cmdline.source import Document, Item, Word
from sparktop.engines.images import family_of
from sparktop.launchspec.read.commands import Scope, read_command
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind
from sparktop.model.engine import Container, Engine


def running_engine(engine: Engine, node: str, *, nodes: int, desktop: bool | None) -> LaunchSpec:
    """An engine of the fleet state, its words not read yet (`wrapper`); equal if nothing changed that lints look at.

    `nodes`: how many nodes it is seen to run on.
    """
    container = engine.container
    return LaunchSpec(
        document=Document(f"argv of {engine.name} @ {node}"),
        kind=SourceKind.RUNNING,
        launcher=Launcher.BARE if container is None else Launcher.DOCKER,
        name=engine.name,
        engine=engine.kind,
        version=engine.version,
        wrapper=engine.argv or (container.argv if container else ()),
        environment=tuple(items_of(pair.partition("=")[::2] for pair in engine.environment)),
        image=Item(name="image", value=container.image) if container and container.image else None,
        has_container=container is not None,
        options=tuple(items_of(_running_options(container))) if container else (),
        nodes=nodes,
        desktop=desktop,
    )


def items_of(pairs: Iterable[tuple[str, str | None]]) -> Iterator[Item]:
    """Variables or options that stand in no file."""
    return (Item(name=name, value=value) for name, value in pairs)


def _running_options(container: Container) -> Iterator[tuple[str, str | None]]:
    for name, text in (
        ("network", container.network_mode), ("ipc", container.ipc_mode), ("restart", container.restart_policy),
    ):  # fmt: skip
        if text:
            yield name, text
    for name, is_on in (("rm", container.auto_remove), ("privileged", container.is_privileged)):
        if is_on:
            yield name, None
    for port, host_port in (container.published_ports or {}).items():
        yield "publish", f"{host_port}:{port}"
    for name, values in (("device", container.devices), ("ulimit", container.ulimits), ("mount", container.mounts)):
        for value in values:
            yield name, value


def spec_of(running: LaunchSpec) -> LaunchSpec | None:
    """A running engine with its command read; None if its words are not a server's (a worker, a wrapper)."""
    base = replace(
        running,
        engine=None,
        version=None,
        wrapper=(),
        family=family_of(running.image_name),
        knows_environment=bool(running.environment),
    )
    scope = Scope(document=running.document, kind=running.kind, base=base)
    read_command([Word(word) for word in running.wrapper], scope)
    spec = next((spec for spec in scope.specs if spec.engine is running.engine), None)
    if spec is None:
        return None
    return replace(spec, version=running.version or spec.version, nodes=max(spec.nodes, running.nodes))
