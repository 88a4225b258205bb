"""Gates of the Docker Engine: that it may be used, that it hands out the GPU, and that the names are free. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.model.prospect import Gate
from sparktop.operate.launching.looked import Looked, failed, passed, unknown, warned, why_not
from sparktop.operate.privilege import docker_refusal
from sparktop.operate.survey import Ask, AskPrivileges, DockerGet, Output
from sparktop.recipe import labels
from sparktop.recipe.rendered import Rank

_TOOLKIT = (
    "sudo apt-get install nvidia-container-toolkit && sudo nvidia-ctk runtime configure --runtime=docker && "
    "sudo systemctl restart docker   # the restart ends containers without a live-restore"
)


def info_ask(node: str) -> DockerGet:
    return DockerGet(node=node, path="/info")


def list_ask(node: str) -> DockerGet:
    """Every container, those that don't run too."""
    return DockerGet(node=node, path="/containers/json?all=1")


def toolkit_ask(node: str) -> Output:
    return Output(node=node, argv=("nvidia-ctk", "--version"))


def asks(nodes: Sequence[str]) -> Iterator[Ask]:
    for node in nodes:
        yield AskPrivileges(node=node)
        yield info_ask(node)
        yield list_ask(node)
        yield toolkit_ask(node)


def gates(looked: Looked) -> Iterator[Gate]:
    """docker, gpu-runtime and name, for each node."""
    for node in looked.nodes:
        docker = _docker(looked, node)
        yield docker
        yield _gpu_runtime(looked, node)
        yield from _names(looked, node)


def info(looked: Looked, node: str) -> Mapping[str, Any]:
    """GET /info of the node; empty where it isn't known."""
    found = looked.survey.value(info_ask(node))
    return found if isinstance(found, Mapping) else {}


def is_never_started(row: Mapping[str, Any]) -> bool:
    """Whether it was made by a launch that was interrupted before it started it."""
    said = row.get("Labels")
    return row.get("State") == "created" and isinstance(said, Mapping) and bool(said.get(labels.LAUNCH))


def rank_of(looked: Looked, node: str) -> Rank | None:
    return next((one for one in looked.rendered.ranks if one.node == node), None) if looked.rendered else None


def _docker(looked: Looked, node: str) -> Gate:
    privileges = looked.survey.privileges(node)
    obstacle = docker_refusal(privileges, node)
    if privileges is None and obstacle is not None:
        return unknown("docker", node, obstacle.reason, "; ".join(obstacle.remedies))
    if obstacle is not None:
        return failed("docker", node, obstacle.reason, "; ".join(obstacle.remedies))
    version = info(looked, node).get("ServerVersion")
    return passed("docker", node, f"Docker {version} may be used" if version else "Docker may be used")


# --- the GPU


def _gpu_runtime(looked: Looked, node: str) -> Gate:
    rank = rank_of(looked, node)
    if rank is not None and not _wants_gpu(rank):
        return passed("gpu-runtime", node, "the container asks Docker for no GPU")
    told = info(looked, node)
    if not told:
        why = why_not(looked.survey, info_ask(node), "Docker has not answered")
        return unknown("gpu-runtime", node, f"whether Docker hands out the GPU is not known: {why}")
    runtimes = told.get("Runtimes")
    names = sorted(map(str, runtimes)) if isinstance(runtimes, Mapping) else []
    devices = [
        str(one.get("ID"))
        for one in told.get("DiscoveredDevices") or ()
        if isinstance(one, Mapping) and str(one.get("ID", "")).startswith("nvidia.com/gpu")
    ]
    version = looked.survey.value(toolkit_ask(node))
    toolkit = version.splitlines()[0].strip() if isinstance(version, str) and version.strip() else ""
    if "nvidia" in names or devices:
        by = "the nvidia runtime" if "nvidia" in names else f"CDI: {', '.join(devices[:3])}"
        return passed("gpu-runtime", node, f"{by}{f', {toolkit}' if toolkit else ''}")
    if toolkit:
        return warned(
            "gpu-runtime",
            node,
            f"{toolkit} is there, but Docker's runtimes are {', '.join(names) or 'none'} and it has no CDI device of "
            "the GPU: --gpus may work by its hook, or not",
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
        )
    return failed(
        "gpu-runtime",
        node,
        f"Docker can't hand out the GPU: its runtimes are {', '.join(names) or 'none'}, no CDI device, and there is no "
        "nvidia-ctk",
        _TOOLKIT,
    )


def _wants_gpu(rank: Rank) -> bool:
    host = rank.container.host
    return bool(host.get("DeviceRequests")) or host.get("Runtime") == "nvidia"


# --- names


def _names(looked: Looked, node: str) -> Iterator[Gate]:
    rank = rank_of(looked, node)
    if rank is None:
        why = looked.unrendered or "the launch was not rendered"
        yield unknown("name", node, f"the container's name is not known: {why}")
        return
    listed = looked.survey.value(list_ask(node))
    name = rank.container.name
    if not isinstance(listed, list):
        why = why_not(looked.survey, list_ask(node), "Docker has not answered")
        yield unknown("name", node, f"whether {name} is free is not known: {why}")
        return
    row = next((one for one in listed if isinstance(one, Mapping) and f"/{name}" in (one.get("Names") or ())), None)
    yield _name(looked, node, name, row) if row is not None else passed("name", node, f"{name} is free")


def _alone(looked: Looked, node: str, row: Mapping[str, Any]) -> str:
    """That a launch was interrupted between its ranks: what it made on another node doesn't run."""
    stamp = _stamp(row)
    for other in looked.nodes:
        listed = looked.survey.value(list_ask(other)) if other != node and stamp else None
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, Mapping) and _stamp(one) == stamp and one.get("State") != "running":
                return f", alone: its other rank on {other} doesn't run, as its launch was interrupted"
    return ""


def _stamp(row: Mapping[str, Any]) -> str:
    said = row.get("Labels")
    return str(said.get(labels.LAUNCH) or "") if isinstance(said, Mapping) else ""


def _name(looked: Looked, node: str, name: str, row: Mapping[str, Any]) -> Gate:
    state, said = str(row.get("State") or "not known"), row.get("Labels")
    recipe = str(said.get(labels.RECIPE) or "") if isinstance(said, Mapping) else ""
    number = str(row.get("Id") or "")[:12]
    whose = f"of the recipe {recipe}, " if recipe else ""
    if looked.is_stopped(node, name):
        return passed("name", node, f"{name} ({whose}{number}) is stopped first, and gives its name up to the new one")
    if state in ("running", "restarting", "paused"):
        return failed(
            "name",
            node,
            f"{name} is there already: {whose}container {number}, {state}{_alone(looked, node, row)}",
            f"--stop {name}   # or keep it, and launch under another name: --set name={name}-2",
        )
    if is_never_started(row):
        return passed(
            "name", node, f"{name} ({whose}{number}) was made by a launch that was interrupted, never started: it goes"
        )
    if recipe:
        return passed(
            "name",
            node,
            f"{name} of an earlier launch ({recipe}, {number}, {state}) gives its name up when the new one starts, and "
            "stays under another",
        )
    return failed(
        "name",
        node,
        f"{name} is there already: container {number}, {state}, of image {row.get('Image') or 'not known'}; it was not "
        "made by a launch, so it is left alone",
        f"on {node}: docker rename {name} {name}-old   # or: docker rm {name}; or --set name={name}-2",
    )
