"""Gates on Docker: access, the GPU runtime, and the container's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparktop.checks.docker import GpuRuntimeFacts, judge_docker_access, judge_gpu_runtime
from sparktop.engines import labels
from sparktop.engines.ranks import is_alive
from sparktop.model.engine import Engine
from sparktop.model.prospect import Gate, Lever
from sparktop.model.survey import Output, Survey
from sparktop.operate.launch.inputs.docker import Listed, info, info_question, list_question
from sparktop.operate.launch.inputs.gate_inputs import GateInputs, judged, passed, taken, told, unknown
from sparktop.operate.secrets.sudo import docker_refusal
from sparktop.recipe.container_spec import RenderedRank


def toolkit_question(node: str) -> Output:
    return Output(node=node, argv=("nvidia-ctk", "--version"))


def docker_gates(inputs: GateInputs) -> Iterator[Gate]:
    return (docker_gate(node, inputs.survey) for node in inputs.nodes)


def gpu_runtime_gates(inputs: GateInputs) -> Iterator[Gate]:
    for node in inputs.nodes:
        rank = rank_of(inputs, node)
        yield gpu_runtime_gate(node, inputs.survey, wants_gpu=rank is None or _wants_gpu(rank))


def rank_of(inputs: GateInputs, node: str) -> RenderedRank | None:
    """The rank that runs on the node; None where nothing was rendered."""
    return next((rank for rank in inputs.rendered.ranks if rank.node == node), None) if inputs.rendered else None


def docker_gate(node: str, survey: Survey) -> Gate:
    """Whether the user may use Docker there."""
    privileges = survey.privileges(node)
    judgement = judge_docker_access(privileges.docker if privileges is not None else "")
    if (obstacle := docker_refusal(privileges, node)) is not None:
        return judged(node, judgement, obstacle.reason, *obstacle.remedies)
    version = info(survey, node).get("ServerVersion")
    return judged(node, judgement, f"Docker {version} may be used" if version else "Docker may be used")


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
    toolkit = (survey.text(toolkit_question(node)) or "").strip().partition("\n")[0].strip()
    judgement = judge_gpu_runtime(
        GpuRuntimeFacts(
            wants_gpu=wants_gpu,
            runtimes=frozenset(names) if docker_info else None,
            has_cdi_device=bool(devices),
            has_toolkit=bool(toolkit),
        )
    )
    return told(
        node,
        judge_gpu_runtime,
        judgement,
        means="the nvidia runtime" if "nvidia" in names else f"CDI: {', '.join(devices[:3])}",
        toolkit=toolkit,
        listed=", ".join(names) or "none",
        why=survey.problem(info_question(node)) or judgement.unknown,
    )


def _wants_gpu(rank: RenderedRank) -> bool:
    host = rank.container.host
    return bool(host.get("DeviceRequests")) or host.get("Runtime") == "nvidia"


_RUNNING_STATES = ("running", "restarting", "paused")


_NAME_CHARS = 63
"""Longest name that `--set name=` takes."""


def name_gates(inputs: GateInputs) -> Iterator[Gate]:
    return (_name(inputs, node) for node in inputs.nodes)


def _name(inputs: GateInputs, node: str) -> Gate:
    rank = rank_of(inputs, node)
    if rank is None:
        why = inputs.unrendered or "the launch was not rendered"
        return unknown(node, f"the container's name is not known: {why}")
    there, name = inputs.docker[node], rank.container.name
    if there.containers is None:
        why = inputs.survey.problem(list_question(node)) or "Docker has not answered"
        return unknown(node, f"whether {name} is free is not known: {why}")
    row = there.holder(name)
    return _taken_name_gate(inputs, node, name, row) if row is not None else passed(node, f"{name} is free")


def _taken_name_gate(inputs: GateInputs, node: str, name: str, row: Listed) -> Gate:
    state, recipe, number = row.state, row.labels.get(labels.RECIPE), row.container_id[:12]
    whose = f"of the recipe {recipe}, " if recipe else ""
    if inputs.is_stopped(node, name):
        return passed(node, f"{name} ({whose}{number}) is stopped first; the new one takes its name")
    if state in _RUNNING_STATES:
        sentence = f"{name} already exists: {whose}container {number}, {state}{_lone_rank_note(inputs, node, row)}"
        return _running_gate(inputs, node, name, sentence, row)
    if row.is_never_started:
        return passed(
            node, f"{name} ({whose}{number}) was made by an interrupted launch and never started: it is removed"
        )
    if recipe:
        return passed(
            node,
            f"{name} of an earlier launch ({recipe}, {number}, {state}) gets another name when the new one starts, and "
            "stays",
        )
    detail = f"{name} already exists: container {number}, {state}, of image {row.image}; no launch made it, so it stays"
    by_hand = f"docker rename {name} {_old_name(inputs, name)}   # or: docker rm {name}"
    return taken(node, detail, _other_name(inputs, name), by_hand=by_hand)


def _running_gate(inputs: GateInputs, node: str, name: str, sentence: str, row: Listed) -> Gate:
    """The name is in use by a running engine, by a launch not seen as an engine yet, or by another program."""
    other_name = _other_name(inputs, name)
    if (engine := _engine(inputs, node, name, row)) is not None:
        return taken(node, sentence, other_name, by=(engine.name,))
    if row.labels.get(labels.RECIPE):
        detail = f"{sentence}; it has no engine that sparktop sees, so it can't be stopped from here"
        soon = "an engine that has just been started is seen in some seconds"
        by_hand = f"docker stop {name}   # that frees its name; {soon}"
        return taken(node, detail, other_name, by_hand=by_hand)
    detail = f"{sentence}, of image {row.image}; sparktop doesn't know it as an engine, so it can't stop it"
    old_name = _old_name(inputs, name)
    by_hand = f"docker rename {name} {old_name}   # keeps it running; or remove it: docker rm -f {name}"
    return taken(node, detail, other_name, by_hand=by_hand)


def _engine(inputs: GateInputs, node: str, name: str, row: Listed) -> Engine | None:
    """The running engine in this container."""
    for engine in inputs.view(node).engines:
        container = engine.container
        if (
            is_alive(engine)
            and container is not None
            and (container.name == name or container.container_id == row.container_id)
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
    used_names = {name for node in inputs.nodes for row in inputs.containers(node) for name in row.names}
    for number in range(first, first + len(used_names) + 1):
        end = f"-{number}" if number > 1 else ""
        if (candidate := f"{stem[: _NAME_CHARS - len(end)]}{end}") not in used_names:
            return candidate
    return stem


def _lone_rank_note(inputs: GateInputs, node: str, row: Listed) -> str:
    """ ", alone: ..." where the launch was interrupted and its other rank doesn't run."""
    stamp = row.labels.get(labels.LAUNCH)
    for other_node in inputs.nodes if stamp else ():
        for other_row in inputs.containers(other_node) if other_node != node else ():
            if other_row.labels.get(labels.LAUNCH) == stamp and other_row.state != "running":
                return f", alone: its other rank on {other_node} doesn't run, as its launch was interrupted"
    return ""
