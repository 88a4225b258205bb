"""What started an engine, which decides how it is stopped and started: Docker, systemd, a launcher, nobody. Pure.

A container whose own command starts no engine holds one that was put there by `docker exec`: starting that container
again starts no engine (facts/engines.md section 6.1). One that a service runs is brought back by the service as soon as
it stops, so the service is what is acted on (6.6).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparktop.diagnose.enginecommand import joins_ray, of_container
from sparktop.model.engine import Container, Engine
from sparktop.model.fleet import NodeView
from sparktop.operate.survey import Ask, Output, Survey
from sparktop.probe.remote_installed import unit_of

_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_@:.\\-]{0,200}\.service")
_NOT_THEIRS = re.compile(r"(?:docker|containerd|podman|ssh|session|user@).*")
_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")
_UNITS_AT_MOST = 20


class Kind(StrEnum):
    CONTAINER = "container"
    UNIT = "unit"
    LAUNCHER = "launcher"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What brings an engine up."""

    kind: Kind
    unit: str = ""
    """The service, where it is one."""
    is_own: bool = False
    """The service is the user's own manager's (`systemctl --user`)."""
    launcher: str = ""
    """Its name, for a sentence."""
    commands: tuple[str, ...] = ()
    """What the launcher itself is told, as it would be typed."""


def asks(engine: Engine, node: NodeView) -> tuple[Ask, ...]:
    """Which services name the engine's container in their commands; of a bare process its cgroup says it."""
    units = tuple(name for name in _candidates(node) if engine.container is not None)
    if not units:
        return ()
    return (_show(node, units, own=False), _show(node, units, own=True))


def origin(engine: Engine, node: NodeView, survey: Survey) -> Origin:
    """What started it."""
    box = engine.container
    if box is None:
        held = unit_of_process(engine, node)
        return Origin(kind=Kind.UNIT, unit=held[0], is_own=held[1]) if held else Origin(kind=Kind.PROCESS)
    for question in asks(engine, node):
        for name, command in _commands(survey.value(question)).items():
            if _names(command, box):
                is_own = isinstance(question, Output) and "--user" in question.argv
                return Origin(kind=Kind.UNIT, unit=name, is_own=is_own)
    if of_container(box.argv) is not None or (joins_ray(box.argv) and engine.endpoint is None):
        return Origin(kind=Kind.CONTAINER)
    if not box.argv and not engine.pids:
        return Origin(kind=Kind.CONTAINER)
    return _launcher(box)


def unit_of_process(engine: Engine, node: NodeView) -> tuple[str, bool] | None:
    """(service, whether it is the user's own) that the engine's first process runs in; None outside of services."""
    table = {process.pid: process for process in (node.processes.processes if node.processes else ())}
    for pid in engine.pids:
        found = unit_of(table[pid].cgroup) if pid in table else None
        if found is not None and _UNIT.fullmatch(found[0]) and not _NOT_THEIRS.match(found[0]):
            return found
    return None


def _candidates(node: NodeView) -> tuple[str, ...]:
    units = node.facts.units if node.facts else ()
    names = (unit.name for unit in units if _UNIT.fullmatch(unit.name) and not _NOT_THEIRS.match(unit.name))
    return tuple(dict.fromkeys(names))[:_UNITS_AT_MOST]


def _show(node: NodeView, units: tuple[str, ...], *, own: bool) -> Output:
    uid = node.facts.user_id if node.facts else None
    manager = ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", "systemctl", "--user") if own else ("systemctl",)
    return Output(node=node.name, argv=(*manager, "show", "--no-pager", "-p", "Id,ExecStart", "--", *units))


def _commands(text: object) -> Mapping[str, str]:
    """The first ExecStart of each service, from what `systemctl show` prints."""
    found: dict[str, str] = {}
    for block in text.split("\n\n") if isinstance(text, str) else ():
        rows = dict(line.partition("=")[::2] for line in block.splitlines())
        match = _ARGV.search(rows.get("ExecStart", ""))
        name = rows.get("Id", "")
        if match and _UNIT.fullmatch(name):
            found[name] = match[1]
    return found


def _names(command: str, box: Container) -> bool:
    """Whether a service's command runs this container: `docker run --name X`, `docker start -a X`, with a compose
    project it is compose's."""
    words = command.split()
    if not words or words[0].rpartition("/")[2] not in ("docker", "podman", "nerdctl"):
        return False
    if "compose" in words[1:3]:
        return False  # compose brings its containers up and leaves them to Docker
    return box.name in words or f"--name={box.name}" in words or box.container_id in words


def _launcher(box: Container) -> Origin:
    name = shlex.quote(box.name)
    text = " ".join(box.argv)
    if box.name.startswith("sparkrun_"):
        return Origin(
            kind=Kind.LAUNCHER,
            launcher="sparkrun",
            commands=("sparkrun stop RECIPE", "sparkrun run RECIPE   # with what it was launched with"),
        )
    if "ray start" in text:
        return Origin(
            kind=Kind.LAUNCHER,
            launcher="run_cluster.sh (Ray)",
            commands=(
                "end the `vllm serve` where it was launched (ctrl+c)",
                f"docker exec -it {name} vllm serve ...   # as it was launched",
            ),
        )
    return Origin(
        kind=Kind.LAUNCHER,
        launcher="a launcher that put it there by `docker exec` (spark-vllm-docker does)",
        commands=("./launch-cluster.sh stop", "./launch-cluster.sh ...   # with the arguments it was launched with"),
    )
