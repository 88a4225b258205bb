"""What started an engine: its origin (container, service, launcher, process), and the starter that can start it again.

A container whose own command starts no engine holds one that was put there by `docker exec`: starting that container
again starts no engine (docs/facts/engines.md section 6.1). A service restarts its engine as soon as it stops, so the
service is what is stopped and started (6.6).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparktop import sanitise
from sparktop.cmdline.engine_command import joins_ray, of_container
from sparktop.engines import labels
from sparktop.engines.labels import SPARKRUN_LOG
from sparktop.model.engine import Container, Engine
from sparktop.model.fleet import NodeView
from sparktop.model.survey import Ask, Output, Survey
from sparktop.operate.container.inspected import Inspected
from sparktop.probe.remote.installed import unit_of

SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_@:.\\-]{0,200}\.service")
_NOT_AN_ENGINE = re.compile(r"(?:docker|containerd|podman|ssh|session|user@).*")
_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")
_UNITS_AT_MOST = 20


class OriginKind(StrEnum):
    """What kind of thing starts the engine."""

    CONTAINER = "container"
    UNIT = "unit"
    LAUNCHER = "launcher"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What starts an engine."""

    kind: OriginKind
    unit: str = ""
    """The service's name, for a service."""
    is_own: bool = False
    """The service belongs to the user's own manager (`systemctl --user`)."""
    launcher: str = ""
    """The launcher's name, for a sentence."""
    commands: tuple[str, ...] = ()
    """The launcher's own commands, as they would be typed."""


def systemctl(node: NodeView, *, is_own: bool, path: str = "systemctl") -> tuple[str, ...]:
    """The systemctl command of the system's manager, or of the user's own."""
    uid = node.facts.user_id if node.facts else None
    return ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", path, "--user") if is_own else (path,)


def asks(engine: Engine, node: NodeView) -> tuple[Ask, ...]:
    """Which services name the engine's container in their commands; a bare process is found by its cgroup instead."""
    units = tuple(name for name in _candidates(node) if engine.container is not None)
    if not units:
        return ()
    return (_show_ask(node, units, own=False), _show_ask(node, units, own=True))


def origin(engine: Engine, node: NodeView, survey: Survey) -> Origin:
    """What started the engine."""
    container = engine.container
    if container is None:
        unit = unit_of_process(engine, node)
        return Origin(kind=OriginKind.UNIT, unit=unit[0], is_own=unit[1]) if unit else Origin(kind=OriginKind.PROCESS)
    for question in asks(engine, node):
        for name, command in _commands(survey.value(question)).items():
            if _runs_container(command, container):
                is_own = isinstance(question, Output) and "--user" in question.argv
                return Origin(kind=OriginKind.UNIT, unit=name, is_own=is_own)
    if of_container(container.argv) is not None or (joins_ray(container.argv) and engine.endpoint is None):
        return Origin(kind=OriginKind.CONTAINER)
    if not container.argv and not engine.pids:
        return Origin(kind=OriginKind.CONTAINER)
    return _launcher_origin(container)


def unit_of_process(engine: Engine, node: NodeView) -> tuple[str, bool] | None:
    """(service, whether it is the user's own) that the engine's first process runs in; None outside of services."""
    table = {process.pid: process for process in (node.processes.processes if node.processes else ())}
    for pid in engine.pids:
        unit = unit_of(table[pid].cgroup) if pid in table else None
        if unit is not None and SERVICE_NAME.fullmatch(unit[0]) and not _NOT_AN_ENGINE.match(unit[0]):
            return unit
    return None


def _candidates(node: NodeView) -> tuple[str, ...]:
    units = node.facts.units if node.facts else ()
    names = (unit.name for unit in units if SERVICE_NAME.fullmatch(unit.name) and not _NOT_AN_ENGINE.match(unit.name))
    return tuple(dict.fromkeys(names))[:_UNITS_AT_MOST]


def _show_ask(node: NodeView, units: tuple[str, ...], *, own: bool) -> Output:
    return Output(
        node=node.name, argv=(*systemctl(node, is_own=own), "show", "--no-pager", "-p", "Id,ExecStart", "--", *units)
    )


def _commands(text: object) -> Mapping[str, str]:
    """The first ExecStart of each service, from what `systemctl show` prints."""
    commands: dict[str, str] = {}
    for block in text.split("\n\n") if isinstance(text, str) else ():
        fields = dict(line.partition("=")[::2] for line in block.splitlines())
        match = _ARGV.search(fields.get("ExecStart", ""))
        name = fields.get("Id", "")
        if match and SERVICE_NAME.fullmatch(name):
            commands[name] = match[1]
    return commands


def _runs_container(command: str, container: Container) -> bool:
    """Whether a service's command runs this container (`docker run --name X`, `docker start -a X`); compose's commands
    don't count."""
    words = command.split()
    if not words or words[0].rpartition("/")[2] not in ("docker", "podman", "nerdctl"):
        return False
    if "compose" in words[1:3]:
        return False  # compose starts its containers and leaves them to Docker
    return container.name in words or f"--name={container.name}" in words or container.container_id in words


def _launcher_origin(container: Container) -> Origin:
    name = shlex.quote(container.name)
    text = " ".join(container.argv)
    if container.name.startswith("sparkrun_"):
        return Origin(
            kind=OriginKind.LAUNCHER,
            launcher="sparkrun",
            commands=("sparkrun stop RECIPE", "sparkrun run RECIPE   # with what it was launched with"),
        )
    if "ray start" in text:
        return Origin(
            kind=OriginKind.LAUNCHER,
            launcher="run_cluster.sh (Ray)",
            commands=(
                "end the `vllm serve` where it was launched (ctrl+c)",
                f"docker exec -it {name} vllm serve ...   # as it was launched",
            ),
        )
    return Origin(
        kind=OriginKind.LAUNCHER,
        launcher="a launcher that put it there by `docker exec` (spark-vllm-docker does)",
        commands=("./launch-cluster.sh stop", "./launch-cluster.sh ...   # with the arguments it was launched with"),
    )


_COMPOSE = "com.docker.compose."
_SPARKRUN = re.compile(r"sparkrun_[A-Za-z0-9_]+_(?:solo|head|worker|node_\d+)")
_SPARKRUN_JOB = "sparkrun.cluster_id"
"""A label that newer versions set next to the recipe's."""
_RUN_CLUSTER = re.compile(r"node-\d+")


class ToolKind(StrEnum):
    """The tools that can have started an engine."""

    PLAIN = "docker run"
    COMPOSE = "docker compose"
    UNIT = "systemd"
    SPARKRUN = "sparkrun"
    EUGR = "spark-vllm-docker"
    RUN_CLUSTER = "run_cluster.sh"
    EXEC = "docker exec"
    """Put into a container that starts no engine of its own; by whom is not known."""
    RECIPE = "sparktop launch"
    PROCESS = "its command line"
    """In no container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTool:
    """The tool that started an engine, and what is needed to start it again with a change."""

    kind: ToolKind
    evidence: tuple[str, ...] = ()
    """The evidence for it, one phrase each."""
    unit: str = ""
    project: str = ""
    """The compose project."""
    service: str = ""
    working_dir: str = ""
    config_files: tuple[str, ...] = ()
    environment_file: str = ""
    recipe: str = ""

    @property
    def is_launched(self) -> bool:
        """Whether its container's own command starts no engine, so that recreating the container would start none."""
        return self.kind in (ToolKind.SPARKRUN, ToolKind.EUGR, ToolKind.RUN_CLUSTER, ToolKind.EXEC)


def start_tool(engine: Engine, origin: Origin, container: Inspected | None) -> StartTool:
    """The tool that started the engine; `origin` is what systemd and the container's own command say."""
    container_labels: Mapping[str, str] = container.labels if container is not None else {}
    if origin.kind is OriginKind.UNIT:
        return StartTool(
            kind=ToolKind.UNIT,
            unit=origin.unit,
            evidence=(
                f"the service {origin.unit} {'runs its container' if container is not None else 'holds its process'}",
            ),
        )
    if unit := container_labels.get("PODMAN_SYSTEMD_UNIT"):
        unit = sanitise.name(unit)
        return StartTool(kind=ToolKind.UNIT, unit=unit, evidence=(f"label PODMAN_SYSTEMD_UNIT={unit}",))
    if container is None:
        if origin.kind is OriginKind.PROCESS and engine.container is None:
            return StartTool(kind=ToolKind.PROCESS, evidence=("its processes are in no container and no service",))
        return StartTool(kind=ToolKind.PLAIN)
    if job := container_labels.get(_SPARKRUN_JOB):
        return StartTool(kind=ToolKind.SPARKRUN, evidence=(f"label {_SPARKRUN_JOB}={sanitise.name(job)}",))
    if container.name.startswith("sparkrun_") and (
        _SPARKRUN.fullmatch(container.name) or origin.kind is OriginKind.LAUNCHER
    ):
        words = (f"named {container.name}", f"the engine was put there by docker exec, and writes {SPARKRUN_LOG}")
        return StartTool(kind=ToolKind.SPARKRUN, evidence=words if origin.kind is OriginKind.LAUNCHER else words[:1])
    if origin.kind is OriginKind.LAUNCHER:
        return _exec_tool(engine, container)
    if recipe := labels.recipe_of(container_labels):
        return StartTool(kind=ToolKind.RECIPE, recipe=recipe, evidence=(f"label {labels.RECIPE}={recipe}",))
    if container_labels.get(f"{_COMPOSE}project") and container_labels.get(f"{_COMPOSE}service"):
        return _compose_tool(container_labels)
    return StartTool(
        kind=ToolKind.PLAIN, evidence=("its container's own command starts it, and no label names a tool",)
    )


def _exec_tool(engine: Engine, container: Inspected) -> StartTool:
    argv = engine.container.argv if engine.container is not None else ()
    text = " ".join(argv)
    command = sanitise.line(text, limit=80) or "unknown"
    exec_evidence = "the engine was put there by docker exec"
    if "ray start" in text:
        name_evidence = (
            (f"named {container.name}, as run_cluster.sh names them",) if _RUN_CLUSTER.fullmatch(container.name) else ()
        )
        return StartTool(
            kind=ToolKind.RUN_CLUSTER, evidence=(*name_evidence, f"its first process is `{command}`", exec_evidence)
        )
    is_eugr = container.auto_remove and container.ipc_mode == "host" and engine.container is not None
    if is_eugr and engine.container is not None and engine.container.is_privileged and "sleep infinity" in text:
        words = (
            f"its first process is `{command}`",
            "privileged, ipc host, --rm, as launch-cluster.sh starts it",
            exec_evidence,
        )
        return StartTool(kind=ToolKind.EUGR, evidence=words)
    return StartTool(kind=ToolKind.EXEC, evidence=(f"its first process is `{command}`", exec_evidence))


def _compose_tool(labels: Mapping[str, str]) -> StartTool:
    def label(name: str) -> str:
        return labels.get(_COMPOSE + name, "")

    return StartTool(
        kind=ToolKind.COMPOSE,
        project=label("project"),
        service=label("service"),
        working_dir=label("project.working_dir"),
        config_files=tuple(path for path in label("project.config_files").split(",") if path),
        environment_file=label("project.environment_file"),
        evidence=(
            f"label {_COMPOSE}project={sanitise.name(label('project'))}",
            f"label {_COMPOSE}service={sanitise.name(label('service'))}",
        ),
    )
