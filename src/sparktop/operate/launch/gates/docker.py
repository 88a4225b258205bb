"""Gates on Docker: access, the GPU runtime, and the container's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.checks.docker import GpuRuntimeFacts, judge_docker_access, judge_gpu_runtime
from sparktop.engines import labels
from sparktop.engines.ranks import is_alive
from sparktop.model.engine import Engine
from sparktop.model.prospect import Gate, Lever
from sparktop.model.survey import Ask, AskPrivileges, Output, Survey
from sparktop.operate.launch.inputs.docker import info, info_ask, is_never_started, list_ask, names_of, rows
from sparktop.operate.launch.inputs.gate_inputs import GateInputs, failed, judged, passed, told, unknown, why_unanswered
from sparktop.operate.secrets.sudo import docker_refusal
from sparktop.recipe.container_spec import RenderedRank


def toolkit_ask(node: str) -> Output:
    return Output(node=node, argv=("nvidia-ctk", "--version"))


def asks(nodes: Sequence[str]) -> Iterator[Ask]:
    """Questions about Docker's access, configuration and containers, and the NVIDIA toolkit."""
    for node in nodes:
        yield AskPrivileges(node=node)
        yield info_ask(node)
        yield list_ask(node)
        yield toolkit_ask(node)


def gates(inputs: GateInputs) -> Iterator[Gate]:
    """Gates docker and gpu-runtime, for each node."""
    for node in inputs.nodes:
        rank = rank_of(inputs, node)
        yield docker_gate(node, inputs.survey)
        yield gpu_runtime_gate(node, inputs.survey, wants_gpu=rank is None or _wants_gpu(rank))


def rank_of(inputs: GateInputs, node: str) -> RenderedRank | None:
    """The rank that runs on the node; None where nothing was rendered."""
    return next((rank for rank in inputs.rendered.ranks if rank.node == node), None) if inputs.rendered else None


def docker_gate(node: str, survey: Survey) -> Gate:
    """Whether the user may use Docker there."""
    privileges = survey.privileges(node)
    judgement = judge_docker_access(privileges.docker if privileges is not None else "")
    if (obstacle := docker_refusal(privileges, node)) is not None:
        return judged("docker", node, judgement, obstacle.reason, *obstacle.remedies)
    version = info(survey, node).get("ServerVersion")
    return judged("docker", node, judgement, f"Docker {version} may be used" if version else "Docker may be used")


# --- the GPU


def gpu_runtime_gate(node: str, survey: Survey, *, wants_gpu: bool = True) -> Gate:
    """Whether Docker can hand out the GPU there."""
    docker_info = info(survey, node)
    runtimes = docker_info.get("Runtimes")
    names = sorted(map(str, runtimes)) if isinstance(runtimes, Mapping) else []
    devices = [
        str(device.get("ID"))
        for device in docker_info.get("DiscoveredDevices") or ()
        if isinstance(device, Mapping) and str(device.get("ID", "")).startswith("nvidia.com/gpu")
    ]
    version = survey.value(toolkit_ask(node))
    toolkit = version.splitlines()[0].strip() if isinstance(version, str) and version.strip() else ""
    judgement = judge_gpu_runtime(
        GpuRuntimeFacts(
            wants_gpu=wants_gpu,
            runtimes=frozenset(names) if docker_info else None,
            has_cdi_device=bool(devices),
            has_toolkit=bool(toolkit),
        )
    )
    return told(
        "gpu-runtime",
        node,
        judge_gpu_runtime,
        judgement,
        means="the nvidia runtime" if "nvidia" in names else f"CDI: {', '.join(devices[:3])}",
        toolkit=toolkit,
        listed=", ".join(names) or "none",
        why=why_unanswered(survey, info_ask(node), judgement.unknown),
    )


def _wants_gpu(rank: RenderedRank) -> bool:
    host = rank.container.host
    return bool(host.get("DeviceRequests")) or host.get("Runtime") == "nvidia"


_RUNNING_STATES = ("running", "restarting", "paused")


_NAME_CHARS = 63
"""Longest name that `--set name=` takes."""


def name_gates(inputs: GateInputs) -> Iterator[Gate]:
    """Gate name, for each node."""
    for node in inputs.nodes:
        yield from _name_gate(inputs, node)


def _name_gate(inputs: GateInputs, node: str) -> Iterator[Gate]:
    rank = rank_of(inputs, node)
    if rank is None:
        why = inputs.unrendered or "the launch was not rendered"
        yield unknown("name", node, f"the container's name is not known: {why}")
        return
    listed, name = rows(inputs.survey, node), rank.container.name
    if listed is None:
        why = why_unanswered(inputs.survey, list_ask(node), "Docker has not answered")
        yield unknown("name", node, f"whether {name} is free is not known: {why}")
        return
    row = next((candidate for candidate in listed if name in names_of(candidate)), None)
    yield _taken_name_gate(inputs, node, name, row) if row is not None else passed("name", node, f"{name} is free")


def _taken_name_gate(inputs: GateInputs, node: str, name: str, row: Mapping[str, Any]) -> Gate:
    state, recipe = str(row.get("State") or "not known"), _label(row, labels.RECIPE)
    number = str(row.get("Id") or "")[:12]
    whose = f"of the recipe {recipe}, " if recipe else ""
    if inputs.is_stopped(node, name):
        return passed("name", node, f"{name} ({whose}{number}) is stopped first; the new one takes its name")
    if state in _RUNNING_STATES:
        sentence = f"{name} already exists: {whose}container {number}, {state}{_lone_rank_note(inputs, node, row)}"
        return _running_gate(inputs, node, name, sentence, row)
    if is_never_started(row):
        return passed(
            "name", node, f"{name} ({whose}{number}) was made by an interrupted launch and never started: it is removed"
        )
    if recipe:
        return passed(
            "name",
            node,
            f"{name} of an earlier launch ({recipe}, {number}, {state}) gets another name when the new one starts, and "
            "stays",
        )
    other_name = _other_name(inputs, name)
    return failed(
        "name",
        node,
        f"{name} already exists: container {number}, {state}, of image {row.get('Image') or 'not known'}; no "
        "launch made it, so it stays",
        f"{other_name.text}, or on {node}: docker rename {name} {_old_name(inputs, name)}   # or: docker rm {name}",
        levers=(other_name,),
    )


def _running_gate(inputs: GateInputs, node: str, name: str, sentence: str, row: Mapping[str, Any]) -> Gate:
    """The name is in use by a running engine, by a launch not seen as an engine yet, or by another program."""
    engine = _engine(inputs, node, name, row)
    other_name = _other_name(inputs, name)
    if engine is not None:
        stop = Lever(stops=(engine.name,))
        return failed("name", node, sentence, f"{stop.text}, or {other_name.text}", levers=(stop, other_name))
    if _label(row, labels.RECIPE):
        return failed(
            "name",
            node,
            f"{sentence}; it has no engine that sparktop sees, so it can't be stopped from here",
            f"{other_name.text}, or on {node}: docker stop {name}   # that frees its name; an engine that has "
            "just been started is seen in some seconds",
            levers=(other_name,),
        )
    return failed(
        "name",
        node,
        f"{sentence}, of image {row.get('Image') or 'not known'}; sparktop doesn't know it as an engine, so it can't "
        "stop it",
        f"{other_name.text}, or on {node}: docker rename {name} {_old_name(inputs, name)}   # keeps it running; "
        f"or remove it: docker rm -f {name}",
        levers=(other_name,),
    )


def _engine(inputs: GateInputs, node: str, name: str, row: Mapping[str, Any]) -> Engine | None:
    """The running engine in this container."""
    view = inputs.view(node)
    for engine in view.engines if view is not None else ():
        container = engine.container
        if (
            is_alive(engine)
            and container is not None
            and (container.name == name or container.container_id == row.get("Id"))
        ):
            return engine
    return None


# --- free names


def _other_name(inputs: GateInputs, name: str) -> Lever:
    """A container name that is free on every node of the launch."""
    return Lever(values={"name": _free_name(inputs, name, 2)})


def _old_name(inputs: GateInputs, name: str) -> str:
    return _free_name(inputs, f"{name[: _NAME_CHARS - 4]}-old", 1)


def _free_name(inputs: GateInputs, stem: str, first: int) -> str:
    """The stem with the first free number from `first` on; 1 is left out."""
    used_names = {name for node in inputs.nodes for row in rows(inputs.survey, node) or () for name in names_of(row)}
    for number in range(first, first + len(used_names) + 1):
        end = f"-{number}" if number > 1 else ""
        if (candidate := f"{stem[: _NAME_CHARS - len(end)]}{end}") not in used_names:
            return candidate
    return stem


# --- labels


def _lone_rank_note(inputs: GateInputs, node: str, row: Mapping[str, Any]) -> str:
    """ ", alone: ..." where the launch was interrupted and its other rank doesn't run."""
    stamp = _label(row, labels.LAUNCH)
    for other_node in inputs.nodes if stamp else ():
        for other_row in (rows(inputs.survey, other_node) or ()) if other_node != node else ():
            if _label(other_row, labels.LAUNCH) == stamp and other_row.get("State") != "running":
                return f", alone: its other rank on {other_node} doesn't run, as its launch was interrupted"
    return ""


def _label(row: Mapping[str, Any], name: str) -> str:
    row_labels = row.get("Labels")
    return str(row_labels.get(name) or "") if isinstance(row_labels, Mapping) else ""
