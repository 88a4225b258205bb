"""Create containers and the engines that their command lines start.

Startup checks of vLLM and SGLang are simulated with their own messages (docs/facts/engines.md 4.4, 1A).
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any, Literal

from sparktop.cmdline.engine_argv import value_of
from sparktop.sim.reaction.figures import Moment
from sparktop.sim.scenario import hub
from sparktop.sim.scenario.hub import Model
from sparktop.sim.scenario.script import (
    ENGINE_TRACKS,
    ContainerScript,
    EngineScript,
    Launched,
    Needs,
    NodeScript,
    ProcessScript,
    Reaction,
)
from sparktop.sim.scenario.tracks import Track
from sparktop.sim.spark import storage
from sparktop.sim.spark.engine_start import held_by, is_eager, number_in, of_container
from sparktop.sim.spark.spark import GIB
from sparktop.sim.spark.storage import find_image

LAUNCH = "sparktop.launch"
"""The label that all containers of one launch share."""
_ACTIVATIONS_GIB = 2.4
_OVERHEAD_GIB = {True: 0.7, False: 2.1}
"""By whether it captures no graphs: memory outside its share."""
_SGLANG_GRAPHS_GIB = 2.3
_DEFAULT_SHARE = {"vllm": 0.92, "sglang": 0.88}
_READ_GIB_S = 0.9
_INIT_S = 28.0
_EAGER_SPEED = 0.5
"""Relative speed without graphs, from field reports."""
_PORTS = {"vllm": 8000, "sglang": 30000}
_CORE_LOG_PREFIX = "(EngineCore pid=152) ERROR {vllm_time} [core.py:1510] "


def label(container: ContainerScript, name: str) -> str:
    return next((text.partition("=")[2] for text in container.labels if text.startswith(f"{name}=")), "")


def launched_engine(moment: Moment, container: ContainerScript) -> Launched | None:
    """The engine that a container's command line starts; None where it starts none that the simulation knows."""
    argv = engine_argv(container.argv)
    if "sparktop-ray-worker" in container.argv:
        head = _ray_head(moment, container)
        if head is None or head.launched is None:
            return None
        return replace(head.launched, rank=1, problem="")
    if not argv:
        return None
    kind: Literal["vllm", "sglang"] = "vllm" if argv[1:2] == ("serve",) else "sglang"
    model_name = _model_name(argv)
    model = _model(moment.script, container, model_name)
    if model is None:
        return None
    image_entry = find_image(moment.script, container.image_id or container.image)
    image = hub.image(image_entry[0]) if image_entry is not None else None
    default = "0.32.0" if kind == "vllm" else "0.5.23"
    return Launched(
        kind=kind, version=image.version if image is not None else default, model=model.name, share=_share(argv, kind),
        context=number_in(argv, "--max-model-len", "--context-length") or model.longest_tokens, eager=is_eager(argv),
        rank=number_in(argv, "--node-rank") or 0, ranks=2 if _is_ray(container) else number_in(argv, "--nnodes") or 1,
        is_ray=_is_ray(container), problem=_config_problem(argv, kind, model),
    )  # fmt: skip


def engine_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's own part of a command line, without a shell in front; empty where there is none."""
    for i, word in enumerate(argv):
        if word.rpartition("/")[2] == "vllm" and argv[i + 1 : i + 2] == ("serve",):
            return argv[i:]
        if word == "sglang.launch_server" and i >= 2:
            return argv[i - 2 :]
    return ()


def model_of(launched: Launched) -> Model:
    model = hub.model(launched.model)
    assert model is not None  # `launched_engine` has checked it
    return model


# --- its start


def launch_reaction(moment: Moment, container: ContainerScript) -> Reaction:
    """The outcome of a start now: how long it loads and what it allocates, or why it exits."""
    launched = container.launched
    assert launched is not None
    model = model_of(launched)
    weights = model.weights_bytes / GIB / launched.ranks
    memory = moment.spark.memory(moment.t)
    speed = _EAGER_SPEED if "--enforce-eager" in container.argv else 1.0
    if launched.kind == "vllm":
        share_gib = launched.share * memory.total
        gpu = share_gib + _OVERHEAD_GIB[launched.eager]
        says, after = _vllm_failure(launched, weights, share_gib, memory.total, memory.available)
    else:
        share_gib = launched.share * memory.available
        gpu = share_gib + (0.0 if launched.eager else _SGLANG_GRAPHS_GIB)
        says, after = "", 0.0
        if weights + 0.5 > share_gib:
            says = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
            says, after = f"[{{sglang_time}} TP{launched.rank}] Scheduler hit an exception: {says}", 0.74
    reaction = replace(
        container.reaction, load_s=_INIT_S + weights / _READ_GIB_S, tokens_per_s=model.tokens_s * speed, fault="",
        says="", says_after=0.0, gpu_gib=gpu, load_share=min(0.98, weights / gpu),
    )  # fmt: skip
    if launched.problem:
        says, after = launched.problem, 0.0
    if says:
        return replace(reaction, fault="exit", says=says, says_after=after, needs=Needs(by_hand=True))
    if model.spike_gib is not None and not launched.eager:
        return replace(reaction, fault="spike", needs=Needs(eager=True), spike_gib=model.spike_gib)
    return reaction


def _vllm_failure(
    launched: Launched, weights: float, share_gib: float, total: float, available: float
) -> tuple[str, float]:
    """(the last log lines, after which part of the start); empty where it starts."""
    if available < share_gib:
        free_memory = f"Free memory on device cuda:0 ({available:.2f}/{total:.2f} GiB) on startup"
        desired = f"less than desired GPU memory utilization ({launched.share:g}, {share_gib:.2f} GiB)"
        advice = "Decrease GPU memory utilization or reduce GPU memory used by other processes."
        return _core_failure(f"ValueError: {free_memory} is {desired}. {advice}"), 0.0
    if weights + _ACTIVATIONS_GIB >= share_gib:
        problem = "No available memory for the cache blocks."
        advice = "Try increasing `gpu_memory_utilization` when initializing the engine."
        return _core_failure(f"ValueError: {problem} {advice}"), 0.77
    return "", 0.0


def _config_problem(argv: tuple[str, ...], kind: str, model: Model) -> str:
    longest, context = model.longest_tokens, number_in(argv, "--max-model-len", "--context-length")
    if context and context > longest and kind == "vllm":
        return (
            f"ValueError: User-specified max_model_len ({context}) is greater than the derived "
            f"max_model_len (max_position_embeddings={longest} or model_max_length=None in model's config.json). This "
            "may lead to incorrect model outputs or CUDA errors."
        )
    backend = (value_of(argv, "--attention-backend") or "").upper()
    if model.spike_gib is not None and backend == "FLASHINFER" and kind == "vllm":
        return _core_failure(
            "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason: "
            "['attention sinks not supported']"
        )
    return ""


def _core_failure(why: str) -> str:
    """vLLM's log lines when its engine core fails and its server exits."""
    ends = "RuntimeError: Engine core initialization failed. See root cause above. "
    return (
        f"{_CORE_LOG_PREFIX}EngineCore failed to start.\n{_CORE_LOG_PREFIX}{why}\n{ends}Failed core proc(s): {{{{}}}}"
    )


# --- its processes and endpoint


def _engine(container: ContainerScript, argv: tuple[str, ...], launched: Launched) -> EngineScript:
    model = model_of(launched)
    tracks = {"itl_s": 1.0 / model.tokens_s, "ttft_s": 0.25, "prefix_hit": 0.0}
    return EngineScript(
        name=container.name, kind=launched.kind, model=value_of(argv, "--served-model-name") or _model_name(argv),
        version=launched.version, port=number_in(argv, "--port") or _PORTS[launched.kind],
        max_model_len=launched.context, serves=(),
        tracks={name: Track.constant(tracks.get(name, default)) for name, default in ENGINE_TRACKS.items()},
        metrics=launched.kind == "vllm" or "--enable-metrics" in argv,
    )  # fmt: skip


def _processes(
    container: ContainerScript, argv: tuple[str, ...], base: int, launched: Launched
) -> tuple[ProcessScript, ...]:
    """The processes of one rank; `base` is the pid of the first."""

    def process(number: int, comm: str, parent: int = base, argv: tuple[str, ...] = (), **more: Any) -> ProcessScript:
        figures = {"resident_gib": Track.constant(1.3), "shared_gib": Track.constant(0.5), **more}
        return ProcessScript(
            pid=base + number, comm=comm[:15], argv=argv or (comm,), parent_pid=parent, container=container.name,
            **figures,
        )  # fmt: skip

    def on_gpu(number: int, name: str, parent: int, delay_s: float) -> ProcessScript:
        return process(
            number, name, parent, delay_s=delay_s, resident_gib=Track.constant(3.6), shared_gib=Track.constant(0.9),
            gpu_gib=Track.constant(1.0), gpu_name=name,
        )  # fmt: skip

    rank, outside = launched.rank, base - 21
    if launched.kind == "sglang":
        scheduler = f"sglang::scheduler_TP{rank}" if rank else "sglang::scheduler"
        return (
            process(0, "python3", outside, argv, wait_channel="ep_poll"),
            on_gpu(348, scheduler, base, 9.0),
            process(349, "sglang::detokenizer", delay_s=9.0),
        )
    vllm = ("python3", "/usr/local/bin/vllm", *argv[1:])
    core = process(263, "VLLM::EngineCore", delay_s=14.0)
    if launched.is_ray:
        raylet = process(55, "raylet", argv=("/usr/local/lib/python3.12/ray/core/src/ray/raylet/raylet",))
        ray_worker = on_gpu(402, "ray::RayWorkerWrapper.execute_method", base + 55, 20.0)
        if rank > 0:
            joins = ("/usr/bin/python3", "/usr/local/bin/ray", "start", "--block")
            return process(0, "ray", outside, joins), raylet, ray_worker
        return process(0, "vllm", outside, vllm), raylet, core, ray_worker
    server = process(0, "vllm", outside, vllm, wait_channel="ep_poll")
    if launched.ranks == 1:
        return server, on_gpu(263, "VLLM::EngineCore", base, 14.0)
    if rank > 0:
        return server, on_gpu(398, f"VLLM::Worker_TP{rank}", base, 18.0)
    return server, core, on_gpu(398, "VLLM::Worker_TP0", base + 263, 18.0)


# --- its command line


def _model_name(argv: tuple[str, ...]) -> str:
    if argv[1:2] == ("serve",) and len(argv) > 2 and not argv[2].startswith("-"):
        return argv[2]
    return value_of(argv, "--model-path", "--model") or ""


def _model(script: NodeScript, container: ContainerScript, model_name: str) -> Model | None:
    """The model by its repository, or by the folder mounted at the path that the engine reads."""
    if not model_name.startswith("/"):
        return hub.model(model_name)
    for source, target in (bind.split(":")[:2] for bind in container.binds):
        if model_name == target or model_name.startswith(f"{target.rstrip('/')}/"):
            disk_model = storage.find_model(script, source + model_name[len(target.rstrip("/")) :])
            return storage.model_of_disk(disk_model) if disk_model is not None else hub.model_of_folder(source)
    return hub.model_of_folder(model_name)


def _share(argv: tuple[str, ...], kind: str) -> float:
    text = value_of(argv, "--gpu-memory-utilization", "--mem-fraction-static")
    try:
        return float(text) if text else _DEFAULT_SHARE[kind]
    except ValueError:
        return _DEFAULT_SHARE[kind]


def _is_ray(container: ContainerScript) -> bool:
    return "sparktop-ray-head" in container.argv or "sparktop-ray-worker" in container.argv


def _ray_head(moment: Moment, container: ContainerScript) -> ContainerScript | None:
    """The container of rank 0 in the same Ray launch."""
    showing_s, launch = moment.t + moment.script.began_s, label(container, LAUNCH)
    containers = (candidate for node in moment.scenario.nodes for candidate in node.at(showing_s).containers)
    heads = (candidate for candidate in containers if "sparktop-ray-head" in candidate.argv)
    return next((head for head in heads if launch and label(head, LAUNCH) == launch), None)


_WEIGHT_FLAGS = ("--gpu-memory-utilization", "--mem-fraction-static")


def with_new_container(moment: Moment, script: ContainerScript, like: str) -> NodeScript:
    """The node with a container that has never run.

    In a launch it runs the engine of its command line; else processes and endpoint are copied from `like`.
    """
    node = moment.script
    number = sum(1 for existing in node.containers if existing.key) + sum(
        existing.created_s is not None for existing in node.containers
    )
    template = node.container(like)
    key = f"{script.name}#{number + 1}@{moment.t:.3f}"
    container = replace(script, key=key, runs=(), log=(), created_s=moment.t)
    is_own = template is None or template.launched is not None or bool(label(container, LAUNCH))
    if is_own and (launched := launched_engine(moment, container)) is not None:
        return _with_launched_engine(moment, replace(container, launched=launched))
    if template is None:
        return replace(node, containers=(*node.containers, container))
    share = _created_share(template.argv, container.argv)
    reaction = template.reaction
    gib_by_pid = held_by(node, template)
    if share != 1.0 and gib_by_pid:
        reaction = replace(reaction, gpu_gib=sum(gib_by_pid.values()) * share)
    container = replace(container, reaction=reaction, notes=template.notes)
    processes = tuple(
        replace(
            process,
            container=script.name,
            pid=process.pid + 100_003 * (number + 1),
            parent_pid=process.parent_pid + 100_003 * (number + 1) if process.parent_pid > 1 else 1,
            argv=_argv_of_process(process.argv, template.argv, container.argv),
            state="S",
            wait_channel=None if process.wait_channel == "nvidia_wait_gsp" else process.wait_channel,
            gpu_gib=Track.constant(gib_by_pid[process.pid]) if process.pid in gib_by_pid else None,
            resident_gib=Track.constant(process.resident_gib.first),
            swapped_gib=Track.constant(0.0),
        )
        for process in of_container(node, like)
    )
    engines = node.engines
    if (old_engine := node.engine(like)) is not None:
        new_engine = replace(
            old_engine, name=script.name, serves=(), prompt_tokens=0.0, generation_tokens=0.0, requests=0.0,
            port=number_in(container.argv, "--port") or old_engine.port,
        )  # fmt: skip
        engines = (*engines, new_engine)
    return replace(
        node, containers=(*node.containers, container), processes=(*node.processes, *processes), engines=engines
    )


def _with_launched_engine(moment: Moment, container: ContainerScript) -> NodeScript:
    """The node with a launched container, its processes and its endpoint."""
    node, launched = moment.script, container.launched
    assert launched is not None
    reaction = replace(container.reaction, group=label(container, LAUNCH), ranks=launched.ranks)
    base = 100_000 + zlib.crc32(f"{node.name}/{container.key}".encode()) % 800_000 * 4
    argv = engine_argv(container.argv) or container.argv
    return replace(
        node,
        containers=(*node.containers, replace(container, reaction=reaction)),
        processes=(*node.processes, *_processes(container, argv, base, launched)),
        engines=(*node.engines, _engine(container, argv, launched)) if launched.rank == 0 else node.engines,
    )


def _created_share(old: tuple[str, ...], new: tuple[str, ...]) -> float:
    """Ratio of the memory that the new command line requests to the old one's."""
    for flag in _WEIGHT_FLAGS:
        before, after = value_of(old, flag), value_of(new, flag)
        try:
            if before and after:
                return float(after) / float(before)
            if after and flag == "--gpu-memory-utilization":
                return float(after) / 0.92
        except (ValueError, ZeroDivisionError):
            return 1.0
    return 1.0


def _argv_of_process(argv: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """A process's command line, with its container's old command line replaced by the new one."""
    if len(argv) >= len(old) and argv[len(argv) - len(old) + 1 :] == old[1:]:
        return (*argv[: len(argv) - len(old) + 1], *new[1:])
    return argv
