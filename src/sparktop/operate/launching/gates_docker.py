"""Gates of the Docker Engine: that it may be used, and that it hands out the GPU. Pure."""

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
    """docker and gpu-runtime, for each node."""
    for node in looked.nodes:
        yield _docker(looked, node)
        yield _gpu_runtime(looked, node)


def info(looked: Looked, node: str) -> Mapping[str, Any]:
    """GET /info of the node; empty where it isn't known."""
    found = looked.survey.value(info_ask(node))
    return found if isinstance(found, Mapping) else {}


def rows(looked: Looked, node: str) -> tuple[Mapping[str, Any], ...] | None:
    """The node's containers as Docker lists them; None where it hasn't."""
    found = looked.survey.value(list_ask(node))
    return tuple(one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else None


def names_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What a listed container is called."""
    found = row.get("Names")
    return tuple(str(one).removeprefix("/") for one in found) if isinstance(found, list) else ()


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
