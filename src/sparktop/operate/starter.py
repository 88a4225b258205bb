"""How an engine was started, which decides who starts it with a change: Docker, compose, systemd, a launcher. Pure.

What Docker says of its container (labels, name, first process) and what systemd says of its services is evidence, and
is told with the answer. Facts: facts/engines.md sections 5.1, 5.2, 5.3, 6.1, 6.4, 6.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparktop import sanitise
from sparktop.model.engine import Engine
from sparktop.operate.inspected import Inspected
from sparktop.operate.origin import Kind, Origin
from sparktop.recipe import labels as ours

RECIPE_LABEL = ours.RECIPE
_COMPOSE = "com.docker.compose."
_SPARKRUN = re.compile(r"sparkrun_[A-Za-z0-9_]+_(?:solo|head|worker|node_\d+)")
_SPARKRUN_JOB = "sparkrun.cluster_id"
"""A label that newer versions set, beside the recipe's."""
_RUN_CLUSTER = re.compile(r"node-\d+")
SPARKRUN_LOG = "/tmp/sparkrun_serve.log"  # noqa: S108 - a path inside a container, where sparkrun writes


class StarterKind(StrEnum):
    PLAIN = "docker run"
    COMPOSE = "docker compose"
    UNIT = "systemd"
    SPARKRUN = "sparkrun"
    EUGR = "spark-vllm-docker"
    RUN_CLUSTER = "run_cluster.sh"
    EXEC = "docker exec"
    """Put into a container that starts no engine of its own, by whom isn't known."""
    RECIPE = "sparktop launch"
    PROCESS = "its command line"
    """In no container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Who started it, and what is needed to have it started again with a change."""

    kind: StarterKind
    evidence: tuple[str, ...] = ()
    """What says so, one phrase each."""
    unit: str = ""
    is_own_unit: bool = False
    """The user's own manager runs it (`systemctl --user`)."""
    project: str = ""
    """Of compose."""
    service: str = ""
    working_dir: str = ""
    config_files: tuple[str, ...] = ()
    environment_file: str = ""
    recipe: str = ""

    @property
    def is_launched(self) -> bool:
        """Whether its container's own command starts no engine: making the container anew would start none."""
        return self.kind in (StarterKind.SPARKRUN, StarterKind.EUGR, StarterKind.RUN_CLUSTER, StarterKind.EXEC)


def starter_of(engine: Engine, origin: Origin, box: Inspected | None) -> Starter:
    """Who started it; `origin` is what systemd and the container's own command say."""
    labels: Mapping[str, str] = box.labels if box is not None else {}
    if origin.kind is Kind.UNIT:
        return Starter(
            kind=StarterKind.UNIT,
            unit=origin.unit,
            is_own_unit=origin.is_own,
            evidence=(f"the service {origin.unit} {'runs its container' if box is not None else 'holds its process'}",),
        )
    if unit := labels.get("PODMAN_SYSTEMD_UNIT"):
        unit = sanitise.name(unit)
        return Starter(kind=StarterKind.UNIT, unit=unit, evidence=(f"label PODMAN_SYSTEMD_UNIT={unit}",))
    if box is None:
        if origin.kind is Kind.PROCESS and engine.container is None:
            return Starter(kind=StarterKind.PROCESS, evidence=("its processes are in no container and no service",))
        return Starter(kind=StarterKind.PLAIN)
    if job := labels.get(_SPARKRUN_JOB):
        return Starter(kind=StarterKind.SPARKRUN, evidence=(f"label {_SPARKRUN_JOB}={sanitise.name(job)}",))
    if box.name.startswith("sparkrun_") and (_SPARKRUN.fullmatch(box.name) or origin.kind is Kind.LAUNCHER):
        words = (f"named {box.name}", f"the engine was put there by docker exec, and writes {SPARKRUN_LOG}")
        return Starter(kind=StarterKind.SPARKRUN, evidence=words if origin.kind is Kind.LAUNCHER else words[:1])
    if origin.kind is Kind.LAUNCHER:
        return _launched(engine, box)
    if recipe := ours.recipe_of(labels):
        return Starter(kind=StarterKind.RECIPE, recipe=recipe, evidence=(f"label {RECIPE_LABEL}={recipe}",))
    if labels.get(f"{_COMPOSE}project") and labels.get(f"{_COMPOSE}service"):
        return _composed(labels)
    return Starter(
        kind=StarterKind.PLAIN, evidence=("its container's own command starts it, and no label names a tool",)
    )


def _launched(engine: Engine, box: Inspected) -> Starter:
    argv = engine.container.argv if engine.container is not None else ()
    text = " ".join(argv)
    first = sanitise.line(text, limit=80) or "unknown"
    put = "the engine was put there by docker exec"
    if "ray start" in text:
        named = (f"named {box.name}, as run_cluster.sh names them",) if _RUN_CLUSTER.fullmatch(box.name) else ()
        return Starter(kind=StarterKind.RUN_CLUSTER, evidence=(*named, f"its first process is `{first}`", put))
    is_eugr = box.auto_remove and box.ipc_mode == "host" and engine.container is not None
    if is_eugr and engine.container is not None and engine.container.is_privileged and "sleep infinity" in text:
        words = (f"its first process is `{first}`", "privileged, ipc host, --rm, as launch-cluster.sh starts it", put)
        return Starter(kind=StarterKind.EUGR, evidence=words)
    return Starter(kind=StarterKind.EXEC, evidence=(f"its first process is `{first}`", put))


def _composed(labels: Mapping[str, str]) -> Starter:
    def said(name: str) -> str:
        return labels.get(_COMPOSE + name, "")

    return Starter(
        kind=StarterKind.COMPOSE,
        project=said("project"),
        service=said("service"),
        working_dir=said("project.working_dir"),
        config_files=tuple(path for path in said("project.config_files").split(",") if path),
        environment_file=said("project.environment_file"),
        evidence=(
            f"label {_COMPOSE}project={sanitise.name(said('project'))}",
            f"label {_COMPOSE}service={sanitise.name(said('service'))}",
        ),
    )
