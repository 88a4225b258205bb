"""A relaunch that only somebody else's launcher can do: its own command with the change, to type. Pure.

sparkrun and launch-cluster.sh run on whatever machine the operator launched from, with hosts and options that leave no
trace in the containers: nothing can be reconstructed for certain, so nothing is run. What is known (the recipe of
sparkrun's label, the engine's command line) is printed with the change in it (facts/engines.md sections 5.1-5.3, 6.1).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparktop import sanitise
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request
from sparktop.operate import byhand
from sparktop.operate.changing import Changing
from sparktop.operate.hostoptions import with_options
from sparktop.operate.knownsecrets import shown_value
from sparktop.operate.starter import StarterKind
from sparktop.operate.survey import Ask, Survey
from sparktop.recipe.dockerline import host_options
from sparktop.recipe.secretnames import is_secret

_WHY: Mapping[StarterKind, str] = {
    StarterKind.PROCESS: "nothing here knows how it was started, but for its command line",
}
_SPARKRUN_KEYS = {
    "--gpu-memory-utilization": "gpu_memory_utilization", "--mem-fraction-static": "gpu_memory_utilization",
    "--max-model-len": "max_model_len", "--context-length": "max_model_len", "--max-num-seqs": "max_num_seqs",
    "--port": "port", "--host": "host",
}  # fmt: skip
"""Flags that its recipes have a default for, which `-o` sets; others go behind `--`."""
_SPARKRUN_OPTIONS = {
    "IpcMode": "ipc", "ShmSize": "shm_size", "NetworkMode": "network", "Privileged": "privileged",
    "Memory": "memory_limit",
}  # fmt: skip


def asks(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """Nothing beyond what is asked of every relaunch."""
    return ()


def plan(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Always why not, with what to type."""
    head = found[0]
    kind = head.starter.kind
    evidence = "; ".join(head.starter.evidence)
    why = _WHY.get(kind, "its container's own command starts no engine, so only its launcher can")
    maker = _LINES.get(kind, byhand.lines)
    ranks = found[:1] if kind in _FOR_ALL_RANKS else found
    return Refusal(
        request=request,
        reason=f"{head.part.name} on {head.part.node} was started by {kind.value}"
        + (f" ({evidence})" if evidence else "")
        + f": {why}",
        remedies=tuple(dict.fromkeys(sanitise.line(line, limit=4000) for one in ranks for line in maker(one))),
    )


def elsewhere(request: Request, found: tuple[Changing, ...]) -> Refusal | None:
    """Why a container is an orchestrator's to make anew, whatever started it on the node; None where it is nobody's."""
    for one in found:
        labels: Mapping[str, str] = one.part.box.labels if one.part.box is not None else {}
        name = f"{one.part.name} on {one.part.node}"
        lines: tuple[str, ...]
        if pod := labels.get("io.kubernetes.pod.name"):
            space = shlex.quote(labels.get("io.kubernetes.pod.namespace", "default"))
            who = "Kubernetes"
            lines = (
                f"kubectl -n {space} get pod {shlex.quote(pod)} -o jsonpath='{{.metadata.ownerReferences}}'",
                f"kubectl -n {space} edit deployment/NAME   # or what owns the pod, with the change",
            )
        elif service := labels.get("com.docker.swarm.service.name"):
            who = "Docker Swarm"
            lines = (f"docker service update {shlex.quote(service)} ...   # with the change",)
        else:
            continue
        return Refusal(
            request=request,
            reason=f"{name} is made by {who}, which would make its own again beside one made here",
            remedies=tuple(sanitise.line(line) for line in (*lines, *_wanted(one))),
        )
    return None


# --- what to type, by launcher


def _sparkrun(one: Changing) -> Iterator[str]:
    labels: Mapping[str, str] = one.part.box.labels if one.part.box is not None else {}
    recipe = labels.get("sparkrun.recipe", "")
    job = labels.get("sparkrun.cluster_id", "")
    words: list[str] = []
    behind: list[str] = []
    for flag, value in one.change.flags.items():
        key = _SPARKRUN_KEYS.get(flag.replace("_", "-"))
        if key and value:
            words += ["-o", f"{key}={value}"]
        elif value is not None:
            shown = shown_value(flag, value)
            behind += [flag, *([shown] if shown else [])]
    for name, wanted in one.change.options.items():
        if name in _SPARKRUN_OPTIONS and isinstance(wanted, str | int):
            words += ["-o", f"{_SPARKRUN_OPTIONS[name]}={str(wanted).lower() if wanted in (True, False) else wanted}"]
    if one.change.image:
        words += ["--image", one.change.image]
    yield "where it was launched (sparkrun's own machine):"
    yield f"sparkrun stop {shlex.quote(job or recipe) if job or recipe else 'RECIPE'}"
    line = shlex.join([*words, *(["--", *behind] if behind else [])])
    target = shlex.quote(recipe) if recipe else "RECIPE"
    yield f"sparkrun run {target} {line}   # and the hosts and options that it was launched with".replace("  ", " ", 1)
    yield from _not_said(one, by_flag=True, options=_SPARKRUN_OPTIONS, place="the recipe")
    if one.part.engine.argv:
        yield f"its engine's command line is then: {byhand.command_line(one)}"


def _eugr(one: Changing) -> Iterator[str]:
    words = [word for pair in _variables(one) for word in ("-e", pair)]
    if one.change.image:
        words += ["-t", one.change.image]
    docker = _docker_options(one)
    extra = f"VLLM_SPARK_EXTRA_DOCKER_ARGS={shlex.quote(docker)} " if docker else ""
    given = f" {' '.join(words)}" if words else ""
    yield "where it was launched, in spark-vllm-docker's folder:"
    yield "./launch-cluster.sh stop"
    yield (
        f"{extra}./launch-cluster.sh{given} exec {byhand.command_line(one)}   # and -n, --solo and the like, as it was "
        "launched; by run-recipe.sh: --gpu-mem and -- EXTRA"
    )
    yield from _not_said(one, options=one.change.options, place="the launch")


def _inside(one: Changing) -> Iterator[str]:
    """What a `docker exec` put into a container that only waits."""
    name = shlex.quote(one.part.name)
    given = "".join(f"-e {pair} " for pair in _variables(one))
    yield from one.part.origin.commands[:1]
    yield f"on {one.part.node}: docker exec -it {given}{name} {byhand.command_line(one)}"
    if one.change.options or one.change.image:
        wanted = " ".join(filter(None, (_docker_options(one), one.change.image or "")))
        yield f"and the container itself, where it is made: docker run ... {wanted}"


_LINES: Mapping[StarterKind, Callable[[Changing], Iterator[str] | tuple[str, ...]]] = {
    StarterKind.SPARKRUN: _sparkrun,
    StarterKind.EUGR: _eugr,
    StarterKind.RUN_CLUSTER: _inside,
    StarterKind.EXEC: _inside,
}
_FOR_ALL_RANKS = (StarterKind.SPARKRUN, StarterKind.EUGR)
"""They start every rank with one command."""


def _wanted(one: Changing) -> Iterator[str]:
    """The change itself, in words."""
    for name, value in one.change.environment.items():
        yield f"variable: {name}={_value(name, value)}" if value is not None else f"without the variable {name}"
    if one.change.flags:
        yield f"the engine's command line: {byhand.command_line(one)}"
    if one.change.options:
        yield f"of its container: {json.dumps(dict(one.change.options), default=str)}"
    if one.change.image:
        yield f"image: {one.change.image}"


def _not_said(one: Changing, *, options: Mapping[str, Any], place: str, by_flag: bool = False) -> Iterator[str]:
    """What the command above has no word for."""
    if by_flag:
        for name, value in one.change.environment.items():
            what = f"{name}={_value(name, value)}" if value is not None else f"without {name}"
            yield f"in env: of {place}: {what}"
    for flag, value in one.change.flags.items():
        if value is None and by_flag:
            yield f"in {place}: without {flag}"
    for name, wanted in one.change.options.items():
        if name not in options:
            yield f"in {place}, of the container: {name} {json.dumps(wanted, default=str)}"


def _variables(one: Changing) -> Iterator[str]:
    for name, value in one.change.environment.items():
        if value is not None:
            yield f"{shlex.quote(name)}={_value(name, value)}"


def _value(name: str, value: str) -> str:
    """A secret is taken from the shell's own variable of that name."""
    return f'"${name}"' if is_secret(name, value) else shlex.quote(shown_value(name, value) or "")


def _docker_options(one: Changing) -> str:
    host: dict[str, Any] = {}
    if with_options(host, one.change.options):
        return ""
    return shlex.join(f"--{name}" if value is None else f"--{name}={value}" for name, value in host_options(host))
