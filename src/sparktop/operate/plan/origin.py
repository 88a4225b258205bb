"""What started an engine, and what is needed to start it again.

A container whose own command starts no engine holds one that was put there by `docker exec`: starting that container
again starts no engine (docs/facts/engines.md section 6.1). A service restarts its engine as soon as it stops, so the
service is what is stopped and started (6.6).
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.engines import labels
from sparktop.engines.labels import SPARKRUN_LOG
from sparktop.model.engine import Container, Engine
from sparktop.model.fleet import NodeView
from sparktop.model.survey import Output, Question, Survey
from sparktop.model.telemetry import Process
from sparktop.operate.container.inspected import Inspected
from sparktop.probe.remote.installed import unit_of

SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_@:.\\-]{0,200}\.service")
_NOT_AN_ENGINE = re.compile(r"(?:docker|containerd|podman|ssh|session|user@).*")
_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")
_UNITS_AT_MOST = 20


class OriginKind(StrEnum):
    """What can have started an engine, as a sentence names it."""

    PLAIN = "docker run"
    COMPOSE = "docker compose"
    UNIT = "systemd"
    PODMAN = "podman"
    """A service that only a label of its container names: Podman generates its file."""
    SPARKRUN = "sparkrun"
    EUGR = "spark-vllm-docker"
    RUN_CLUSTER = "run_cluster.sh"
    EXEC = "docker exec"
    """Put into a container that starts no engine of its own; by whom is not known."""
    RECIPE = "sparktop launch"
    PROCESS = "its command line"
    """In no container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What started an engine, and what is needed to start it again, as it was or with a change."""

    kind: OriginKind
    evidence: tuple[str, ...] = ()
    """The evidence for it, one phrase each."""
    unit: str = ""
    is_own: bool = False
    """The service belongs to the user's own manager (`systemctl --user`)."""
    launcher: str = ""
    """Who put it into a container that starts no engine of its own, for a sentence; empty where nobody did."""
    commands: tuple[str, ...] = ()
    """The launcher's own commands, as they would be typed."""
    project: str = ""
    """The compose project."""
    service: str = ""
    working_dir: str = ""
    config_files: tuple[str, ...] = ()
    environment_file: str = ""
    recipe: str = ""

    @property
    def is_service(self) -> bool:
        """Whether a service of systemd's stops and starts it."""
        return self.kind is OriginKind.UNIT

    @property
    def is_in_sleeping_container(self) -> bool:
        """Whether starting its container again would start no engine."""
        return bool(self.launcher)

    @property
    def is_launched(self) -> bool:
        """Whether only its launcher can make its container again."""
        return self.kind in (OriginKind.SPARKRUN, OriginKind.EUGR, OriginKind.RUN_CLUSTER, OriginKind.EXEC)


def systemctl(node: NodeView, *, is_own: bool, path: str = "systemctl") -> tuple[str, ...]:
    """The systemctl command of the system's manager, or of the user's own."""
    uid = node.facts.user_id if node.facts else None
    return ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", path, "--user") if is_own else (path,)


def questions(engine: Engine, node: NodeView) -> tuple[Question, ...]:
    """Which services name the engine's container in their commands; a bare process is found by its cgroup instead."""
    units = tuple(name for name in service_names(node) if engine.container is not None)
    if not units:
        return ()
    return (_show_question(node, units, own=False), _show_question(node, units, own=True))


def origin(engine: Engine, node: NodeView, survey: Survey, inspected: Inspected | None) -> Origin:
    """What started the engine.

    Args:
        inspected: its container; None where it runs in none.
    """
    container = engine.container
    service = unit_of_process(engine, node) if container is None else _unit_of_container(engine, node, survey)
    if service is not None:
        unit, is_own = service
        what = "holds its process" if container is None else "runs its container"
        return Origin(kind=OriginKind.UNIT, unit=unit, is_own=is_own, evidence=(f"the service {unit} {what}",))
    if container is None:
        return Origin(kind=OriginKind.PROCESS, evidence=("its processes are in no container and no service",))
    made_by = _of_container(container, inspected, is_asleep=engine.is_exec)
    if not engine.is_exec:
        return made_by
    launcher, commands = _launcher(container)
    return replace(made_by, launcher=launcher, commands=commands)


def _unit_of_container(engine: Engine, node: NodeView, survey: Survey) -> tuple[str, bool] | None:
    """(service, whether it is the user's own) whose command runs the engine's container."""
    for question in questions(engine, node):
        for name, command in _commands(survey.text(question)).items():
            if engine.container is not None and _runs_container(command, engine.container):
                return name, isinstance(question, Output) and "--user" in question.argv
    return None


def unit_of_process(engine: Engine, node: NodeView) -> tuple[str, bool] | None:
    """(service, whether it is the user's own) that the engine's first process runs in; None outside of services."""
    table = {process.pid: process for process in (node.processes.processes if node.processes else ())}
    units = (service_of_process(table[pid]) for pid in engine.pids if pid in table)
    return next((unit for unit in units if unit is not None), None)


def service_of_process(process: Process) -> tuple[str, bool] | None:
    """(service, whether it is the user's own) that a process runs in; None outside of services, and in a session."""
    unit = unit_of(process.cgroup)
    if unit is None or not SERVICE_NAME.fullmatch(unit[0]) or _NOT_AN_ENGINE.match(unit[0]):
        return None
    return unit


def service_names(node: NodeView) -> tuple[str, ...]:
    """The services there that may run an engine."""
    units = node.facts.units if node.facts else ()
    names = (unit.name for unit in units if SERVICE_NAME.fullmatch(unit.name) and not _NOT_AN_ENGINE.match(unit.name))
    return tuple(dict.fromkeys(names))[:_UNITS_AT_MOST]


def _show_question(node: NodeView, units: tuple[str, ...], *, own: bool) -> Output:
    return Output(
        node=node.name, argv=(*systemctl(node, is_own=own), "show", "--no-pager", "-p", "Id,ExecStart", "--", *units)
    )


def _commands(text: str | None) -> Mapping[str, str]:
    """The first ExecStart of each service, from what `systemctl show` prints."""
    commands: dict[str, str] = {}
    for block in (text or "").split("\n\n"):
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


def _launcher(container: Container) -> tuple[str, tuple[str, ...]]:
    """Who has put the engine into its container, and the commands of that."""
    if container.name.startswith("sparkrun_"):
        return "sparkrun", ("sparkrun stop RECIPE", "sparkrun run RECIPE   # with what it was launched with")
    if "ray start" in " ".join(container.argv):
        return "run_cluster.sh (Ray)", (
            "end the `vllm serve` where it was launched (ctrl+c)",
            f"docker exec -it {shlex.quote(container.name)} vllm serve ...   # as it was launched",
        )
    return "a launcher that put it there by `docker exec` (spark-vllm-docker does)", (
        "./launch-cluster.sh stop",
        "./launch-cluster.sh ...   # with the arguments it was launched with",
    )


_COMPOSE = "com.docker.compose."
_SPARKRUN = re.compile(r"sparkrun_[A-Za-z0-9_]+_(?:solo|head|worker|node_\d+)")
_SPARKRUN_JOB = "sparkrun.cluster_id"
"""A label that newer versions set next to the recipe's."""
_RUN_CLUSTER = re.compile(r"node-\d+")


def _of_container(container: Container, inspected: Inspected | None, *, is_asleep: bool) -> Origin:
    """What made the container, by its labels, its name, and whether its own command starts an engine."""
    container_labels: Mapping[str, str] = inspected.labels if inspected is not None else {}
    if unit := sanitise.name(container_labels.get("PODMAN_SYSTEMD_UNIT", "")):
        return Origin(kind=OriginKind.PODMAN, unit=unit, evidence=(f"label PODMAN_SYSTEMD_UNIT={unit}",))
    if job := container_labels.get(_SPARKRUN_JOB):
        return Origin(kind=OriginKind.SPARKRUN, evidence=(f"label {_SPARKRUN_JOB}={sanitise.name(job)}",))
    if _SPARKRUN.fullmatch(container.name) or (is_asleep and container.name.startswith("sparkrun_")):
        words = (f"named {container.name}", f"the engine was put there by docker exec, and writes {SPARKRUN_LOG}")
        return Origin(kind=OriginKind.SPARKRUN, evidence=words if is_asleep else words[:1])
    if is_asleep:
        return _exec_origin(container, inspected)
    if recipe := labels.recipe_of(container_labels):
        return Origin(kind=OriginKind.RECIPE, recipe=recipe, evidence=(f"label {labels.RECIPE}={recipe}",))
    if container_labels.get(f"{_COMPOSE}project") and container_labels.get(f"{_COMPOSE}service"):
        return _compose_origin(container_labels)
    return Origin(kind=OriginKind.PLAIN, evidence=("its container's own command starts it, and no label names a tool",))


def _exec_origin(container: Container, inspected: Inspected | None) -> Origin:
    text = " ".join(container.argv)
    command = f"its first process is `{sanitise.line(text, limit=80) or 'unknown'}`"
    exec_evidence = "the engine was put there by docker exec"
    if "ray start" in text:
        is_named = _RUN_CLUSTER.fullmatch(container.name)
        names = (f"named {container.name}, as run_cluster.sh names them",) if is_named else ()
        return Origin(kind=OriginKind.RUN_CLUSTER, evidence=(*names, command, exec_evidence))
    is_host_rm = inspected is not None and inspected.auto_remove and inspected.ipc_mode == "host"
    if is_host_rm and container.is_privileged and "sleep infinity" in text:
        how = "privileged, ipc host, --rm, as launch-cluster.sh starts it"
        return Origin(kind=OriginKind.EUGR, evidence=(command, how, exec_evidence))
    return Origin(kind=OriginKind.EXEC, evidence=(command, exec_evidence))


def _compose_origin(labels: Mapping[str, str]) -> Origin:
    def label(name: str) -> str:
        return labels.get(_COMPOSE + name, "")

    return Origin(
        kind=OriginKind.COMPOSE,
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


def compose_project(labels: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """(the project of a container that compose made, the absolute paths of its files); empty where it didn't."""
    origin = _compose_origin(labels)
    paths = (posixpath.normpath(posixpath.join(origin.working_dir, path)) for path in origin.config_files)
    return origin.project, tuple(path for path in paths if path.startswith("/") and path.isprintable())
