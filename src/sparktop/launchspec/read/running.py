"""Reads running engines into LaunchSpecs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.cmdline.source import Document, Item, Word
from sparktop.dataclass import dataclass
from sparktop.engines.images import family_of
from sparktop.launchspec.read.commands import Scope, read_command
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind
from sparktop.model.engine import Container, Engine, EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """What the lints look at in a running engine, its container and its node; hashable, equal if nothing changed."""

    name: str
    node: str
    kind: EngineKind
    version: str | None
    argv: tuple[str, ...]
    environment: tuple[str, ...]
    image: str
    container: tuple[tuple[str, str | None], ...] | None
    """Docker's options by their `docker run` names; None: not in a container."""
    nodes: int
    desktop: bool | None


def running_engine(engine: Engine, node: str, *, nodes: int, desktop: bool | None) -> RunningEngine:
    """An engine of the fleet state as lint input; `nodes`: how many nodes it is seen to run on."""
    container = engine.container
    return RunningEngine(
        name=engine.name,
        node=node,
        kind=engine.kind,
        version=engine.version,
        argv=engine.argv or (container.argv if container else ()),
        environment=engine.environment,
        image=container.image if container else "",
        container=tuple(_running_options(container)) if container else None,
        nodes=nodes,
        desktop=desktop,
    )


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


def spec_of(engine: RunningEngine) -> LaunchSpec | None:
    """The specification of a running engine; None if its command line is not a server's (a worker, a wrapper)."""
    document = Document(f"argv of {engine.name} @ {engine.node}")
    base = LaunchSpec(
        document=document,
        kind=SourceKind.RUNNING,
        launcher=Launcher.BARE if engine.container is None else Launcher.DOCKER,
        name=engine.name,
        image=Item(name="image", value=engine.image) if engine.image else None,
        family=family_of(engine.image) if engine.image else None,
        environment=tuple(
            Item(name=name, value=value)
            for name, _, value in (variable.partition("=") for variable in engine.environment)
        ),
        knows_environment=bool(engine.environment),
        has_container=engine.container is not None,
        options=tuple(Item(name=name, value=value) for name, value in engine.container or ()),
    )
    scope = Scope(document=document, kind=SourceKind.RUNNING, base=base)
    read_command([Word(variable) for variable in engine.argv], scope)
    spec = next((spec for spec in scope.specs if spec.engine is engine.kind), None)
    if spec is None:
        return None
    return replace(
        spec,
        version=engine.version or spec.version,
        nodes=max(spec.nodes, engine.nodes),
        desktop=engine.desktop,
    )
