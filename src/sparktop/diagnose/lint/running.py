"""A running engine as a specification: its own argv and environment, and its container as Docker describes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparktop.diagnose.lint.images import family_of
from sparktop.diagnose.lint.launches import Scope, read_command
from sparktop.diagnose.lint.place import Document, Word
from sparktop.diagnose.lint.spec import Item, Launcher, LaunchSpec, SourceKind
from sparktop.model.engine import Container, Engine, EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What of an engine, its container and its node the lints look at; equal where none of it has changed."""

    name: str
    node: str
    kind: EngineKind
    version: str | None
    argv: tuple[str, ...]
    environment: tuple[str, ...]
    image: str
    container: tuple[tuple[str, str | None], ...] | None
    """Docker's options by the names of `docker run`; None: in no container."""
    nodes: int
    desktop: bool | None


def running(engine: Engine, node: str, *, nodes: int, desktop: bool | None) -> Running:
    """An engine of a picture; `nodes` are those it runs on, as far as that is seen."""
    container = engine.container
    return Running(
        name=engine.name,
        node=node,
        kind=engine.kind,
        version=engine.version,
        argv=engine.argv or (container.argv if container else ()),
        environment=engine.environment,
        image=container.image if container else "",
        container=tuple(_options(container)) if container else None,
        nodes=nodes,
        desktop=desktop,
    )


def _options(container: Container) -> Iterator[tuple[str, str | None]]:
    if container.network_mode:
        yield "network", container.network_mode
    if container.ipc_mode:
        yield "ipc", container.ipc_mode
    if container.restart_policy:
        yield "restart", container.restart_policy
    if container.auto_remove:
        yield "rm", None
    if container.is_privileged:
        yield "privileged", None
    for port, host_port in (container.published_ports or {}).items():
        yield "publish", f"{host_port}:{port}"
    for name, values in (("device", container.devices), ("ulimit", container.ulimits), ("mount", container.mounts)):
        for value in values:
            yield name, value


def spec_of(engine: Running) -> LaunchSpec | None:
    """The specification of what runs; None where its command line isn't one of a server (a worker, a wrapper)."""
    document = Document(f"argv of {engine.name} @ {engine.node}")
    base = LaunchSpec(
        document=document,
        kind=SourceKind.RUNNING,
        launcher=Launcher.BARE if engine.container is None else Launcher.DOCKER,
        name=engine.name,
        image=Item(name="image", value=engine.image) if engine.image else None,
        family=family_of(engine.image) if engine.image else None,
        environment=tuple(
            Item(name=name, value=value) for name, _, value in (each.partition("=") for each in engine.environment)
        ),
        knows_environment=bool(engine.environment),
        has_container=engine.container is not None,
        options=tuple(Item(name=name, value=value) for name, value in engine.container or ()),
    )
    scope = Scope(document=document, kind=SourceKind.RUNNING, base=base)
    read_command([Word(each) for each in engine.argv], scope)
    found = next((spec for spec in scope.found if spec.engine is engine.kind), None)
    if found is None:
        return None
    return replace(
        found,
        version=engine.version or found.version,
        nodes=max(found.nodes, engine.nodes),
        desktop=engine.desktop,
    )
