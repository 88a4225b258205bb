"""Commands for a relaunch that sparktop can't do itself, by what started the engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sparktop import sanitise
from sparktop.cmdline.container_body import host_options, with_options
from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.cmdline.launch_command import changed
from sparktop.masking import is_secret, mask_argv
from sparktop.model.change import Change
from sparktop.operate.plan.origin import OriginKind
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch.compose_project import OVERRIDE
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.operate.secrets.masking import shown_value


def lines(rank_change: RankChange) -> tuple[str, ...]:
    """Commands to type for one rank."""
    makers = {OriginKind.COMPOSE: _compose, OriginKind.UNIT: _systemd, OriginKind.PODMAN: _systemd}
    commands = makers.get(rank_change.origin.kind, _command)(rank_change)
    return tuple(f"on {rank_change.rank.node}: {sanitise.line(line)}" for line in commands)


def command_line(rank_change: RankChange) -> str:
    """The engine's command line with the change, masked; the reason in brackets where it can't be edited."""
    argv = rank_change.rank.engine.argv
    try:
        words = changed((), argv, rank_change.change.flags, {}).command
    except CannotEdit as error:
        return f"({error})"
    return shlex.join(mask_argv(words))


def _in_words(rank_change: RankChange, change: Change) -> Iterator[str]:
    """The change itself, a line for each part; a secret as a reference to the shell's variable of that name."""
    for name, value in change.environment.items():
        yield f"variable: {name}={_shell_value(name, value)}" if value is not None else f"without the variable {name}"
    if change.flags:
        yield f"the engine's command line: {command_line(rank_change)}"
    if change.options:
        yield f"of its container: {json.dumps(dict(change.options), default=str)}"
    if change.image:
        yield f"image: {change.image}"


def _shell_value(name: str, value: str) -> str:
    return f'"${name}"' if is_secret(name, value) else shlex.quote(shown_value(name, value) or "")


def _compose(rank_change: RankChange) -> Iterator[str]:
    origin = rank_change.origin
    folder = shlex.quote(origin.working_dir or ".")
    files = " ".join(f"-f {shlex.quote(path)}" for path in origin.config_files)
    env_file_option = f" --env-file {shlex.quote(origin.environment_file)}" if origin.environment_file else ""
    yield f"write {folder}/{OVERRIDE}, of the service {json.dumps(origin.service)} with the change alone:"
    yield from _in_words(rank_change, rank_change.change)
    yield (
        f"docker compose -p {shlex.quote(origin.project)} --project-directory {folder}{env_file_option} {files} "
        f"-f {folder}/{OVERRIDE} up -d --no-deps {shlex.quote(origin.service)}"
    )


def _systemd(rank_change: RankChange) -> Iterator[str]:
    unit = shlex.quote(rank_change.origin.unit)
    systemctl = "systemctl --user" if rank_change.origin.is_own else "sudo systemctl"
    yield f"{systemctl} edit {unit}   # [Service], ExecStart= alone on a line, then the new ExecStart="
    yield from _in_words(rank_change, rank_change.change)
    yield f"{systemctl} restart {unit}"


def _command(rank_change: RankChange) -> Iterator[str]:
    yield from rank_change.origin.commands
    yield from _in_words(rank_change, rank_change.change)


_SPARKRUN_KEYS = {
    "--gpu-memory-utilization": "gpu_memory_utilization", "--mem-fraction-static": "gpu_memory_utilization",
    "--max-model-len": "max_model_len", "--context-length": "max_model_len", "--max-num-seqs": "max_num_seqs",
    "--port": "port", "--host": "host",
}  # fmt: skip
"""Flags that sparkrun recipes have a default for, set by `-o`; others go after `--`."""


_SPARKRUN_OPTIONS = {
    "IpcMode": "ipc", "ShmSize": "shm_size", "NetworkMode": "network", "Privileged": "privileged",
    "Memory": "memory_limit",
}  # fmt: skip


def manual_only(rank_changes: tuple[RankChange, ...]) -> Refused:
    """Why sparktop can't relaunch it, and what to type instead."""
    head = rank_changes[0]
    kind = head.origin.kind
    evidence = "; ".join(head.origin.evidence)
    why = "its container's own command starts no engine, so only its launcher can"
    if kind is OriginKind.PROCESS:
        why = "only its command line tells how it was started"
    maker = _LINES.get(kind, lines)
    ranks = rank_changes[:1] if kind in _FOR_ALL_RANKS else rank_changes
    return Refused(
        f"{head.rank.name} on {head.rank.node} was started by {kind.value}"
        + (f" ({evidence})" if evidence else "")
        + f": {why}",
        tuple(dict.fromkeys(sanitise.line(line, limit=4000) for rank in ranks for line in maker(rank))),
    )


def refuse_orchestrated(rank_changes: tuple[RankChange, ...]) -> None:
    """Refuse a container that Kubernetes or Swarm would recreate."""
    for rank_change in rank_changes:
        labels = rank_change.rank.labels
        lines: tuple[str, ...]
        if pod := labels.get("io.kubernetes.pod.name"):
            space = shlex.quote(labels.get("io.kubernetes.pod.namespace", "default"))
            orchestrator = "Kubernetes"
            lines = (
                f"kubectl -n {space} get pod {shlex.quote(pod)} -o jsonpath='{{.metadata.ownerReferences}}'",
                f"kubectl -n {space} edit deployment/NAME   # or what owns the pod, with the change",
            )
        elif service := labels.get("com.docker.swarm.service.name"):
            orchestrator = "Docker Swarm"
            lines = (f"docker service update {shlex.quote(service)} ...   # with the change",)
        else:
            continue
        raise Refused(
            f"{rank_change.rank.name} on {rank_change.rank.node} is made by {orchestrator}, which would recreate its "
            "own next to ours",
            tuple(sanitise.line(line) for line in (*lines, *_in_words(rank_change, rank_change.change))),
        )


# --- commands by launcher


def _sparkrun(rank_change: RankChange) -> Iterator[str]:
    labels, change = rank_change.rank.labels, rank_change.change
    recipe, job = labels.get("sparkrun.recipe", ""), labels.get("sparkrun.cluster_id", "")
    words: list[str] = []
    extra_words: list[str] = []
    for flag, value in change.flags.items():
        key = _SPARKRUN_KEYS.get(flag.replace("_", "-"))
        if key and value:
            words += ["-o", f"{key}={value}"]
        elif value is not None:
            shown = shown_value(flag, value)
            extra_words += [flag, *([shown] if shown else [])]
    for name, option in change.options.items():
        if name in _SPARKRUN_OPTIONS and isinstance(option, str | int):
            words += ["-o", f"{_SPARKRUN_OPTIONS[name]}={str(option).lower() if option in (True, False) else option}"]
    if change.image:
        words += ["--image", change.image]
    yield "where it was launched (sparkrun's own machine):"
    yield f"sparkrun stop {shlex.quote(job or recipe) if job or recipe else 'RECIPE'}"
    line = shlex.join([*words, *(["--", *extra_words] if extra_words else [])])
    target = shlex.quote(recipe) if recipe else "RECIPE"
    yield f"sparkrun run {target} {line}   # and the hosts and options that it was launched with".replace("  ", " ", 1)
    others = {name: option for name, option in change.options.items() if name not in _SPARKRUN_OPTIONS}
    in_recipe = replace(change, flags={}, options=others, image=None)
    yield from (f"in the recipe, {line}" for line in _in_words(rank_change, in_recipe))
    if rank_change.rank.engine.argv:
        yield f"its engine's command line is then: {command_line(rank_change)}"


def _eugr(rank_change: RankChange) -> Iterator[str]:
    words = [word for pair in _shell_assignments(rank_change) for word in ("-e", pair)]
    if rank_change.change.image:
        words += ["-t", rank_change.change.image]
    docker_options = _docker_options(rank_change)
    extra = f"VLLM_SPARK_EXTRA_DOCKER_ARGS={shlex.quote(docker_options)} " if docker_options else ""
    options = f" {' '.join(words)}" if words else ""
    yield "where it was launched, in spark-vllm-docker's folder:"
    yield "./launch-cluster.sh stop"
    yield (
        f"{extra}./launch-cluster.sh{options} exec {command_line(rank_change)}   # and -n, --solo and the like, "
        "as it was launched; by run-recipe.sh: --gpu-mem and -- EXTRA"
    )


def _docker_exec(rank_change: RankChange) -> Iterator[str]:
    """An engine that `docker exec` started in a container that only waits."""
    name = shlex.quote(rank_change.rank.name)
    variables = "".join(f"-e {pair} " for pair in _shell_assignments(rank_change))
    yield from rank_change.origin.commands[:1]
    yield f"on {rank_change.rank.node}: docker exec -it {variables}{name} {command_line(rank_change)}"
    if rank_change.change.options or rank_change.change.image:
        changes = " ".join(filter(None, (_docker_options(rank_change), rank_change.change.image or "")))
        yield f"and the container itself, where it is made: docker run ... {changes}"


_LINES: Mapping[OriginKind, Callable[[RankChange], Iterator[str] | tuple[str, ...]]] = {
    OriginKind.SPARKRUN: _sparkrun,
    OriginKind.EUGR: _eugr,
    OriginKind.RUN_CLUSTER: _docker_exec,
    OriginKind.EXEC: _docker_exec,
}


_FOR_ALL_RANKS = (OriginKind.SPARKRUN, OriginKind.EUGR)
"""These start every rank with one command."""


def _shell_assignments(rank_change: RankChange) -> Iterator[str]:
    for name, value in rank_change.change.environment.items():
        if value is not None:
            yield f"{shlex.quote(name)}={_shell_value(name, value)}"


def _docker_options(rank_change: RankChange) -> str:
    host: dict[str, Any] = {}
    if with_options(host, rank_change.change.options):
        return ""
    return shlex.join(f"--{name}" if value is None else f"--{name}={value}" for name, value in host_options(host))
