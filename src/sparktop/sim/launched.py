"""An engine made from an image: what its command line asks for, what it takes of memory, and why it may refuse to.

What vLLM and SGLang check at their start they check here, with their own words (facts/engines.md 4.4, 1A).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from sparktop.sim import catalogue, disk
from sparktop.sim.aftermath import Moment
from sparktop.sim.catalogue import Model
from sparktop.sim.images import find
from sparktop.sim.script import (
    ENGINE_TRACKS,
    ContainerScript,
    EngineScript,
    Launched,
    Needs,
    NodeScript,
    ProcessScript,
    Reaction,
)
from sparktop.sim.spark import GIB
from sparktop.sim.tracks import Track

LAUNCH = "sparktop.launch"
"""The label that all containers of one launch have in common."""
_ACTIVATIONS_GIB = 2.4
_BESIDE_GIB = {True: 0.7, False: 2.1}
"""By whether it captures no graphs: what it takes beside its share."""
_SGLANG_GRAPHS_GIB = 2.3
_DEFAULT_SHARE = {"vllm": 0.92, "sglang": 0.88}
_READ_GIB_S = 0.9
_INIT_S = 28.0
_EAGER_PART = 0.5
"""Of its speed without graphs, by the field reports."""
_PORTS = {"vllm": 8000, "sglang": 30000}
_CORE = "(EngineCore_DP0 pid=152) ERROR {vllm_time} [core.py:1136] "


def flag_value(argv: Sequence[str], *flags: str) -> str | None:
    """What follows a flag, as a word of its own or after "="."""
    for i, word in enumerate(argv):
        for flag in flags:
            if word == flag and i + 1 < len(argv):
                return argv[i + 1]
            if word.startswith(f"{flag}="):
                return word.partition("=")[2]
    return None


def label(box: ContainerScript, name: str) -> str:
    return next((text.partition("=")[2] for text in box.labels if text.startswith(f"{name}=")), "")


def asked(now: Moment, box: ContainerScript) -> Launched | None:
    """What a container's command line asks for; None where it starts no engine that is known here."""
    argv = engine_argv(box.argv)
    if "sparktop-ray-worker" in box.argv:
        head = _head(now, box)
        if head is None or head.launched is None:
            return None
        return replace(head.launched, rank=1, problem="")
    if not argv:
        return None
    kind = "vllm" if argv[1:2] == ("serve",) else "sglang"
    named = _model_name(argv)
    model = _model(now.script, box, named)
    if model is None:
        return None
    there = find(now.script, box.image_id or box.image)
    image = catalogue.image(there[0]) if there is not None else None
    default = "0.21.0" if kind == "vllm" else "0.5.12"
    eager = any(word in argv for word in ("--enforce-eager", "--disable-cuda-graph"))
    eager = eager or '"cudagraph_mode":"none"' in (flag_value(argv, "--compilation-config") or "").replace(" ", "")
    return Launched(
        kind=kind,
        version=image.version if image is not None else default,
        model=model.name,
        share=_share(argv, kind),
        context=_whole(flag_value(argv, "--max-model-len", "--context-length")) or model.longest_tokens,
        eager=eager,
        rank=_whole(flag_value(argv, "--node-rank")) or 0,
        ranks=2 if _is_ray(box) else _whole(flag_value(argv, "--nnodes")) or 1,
        is_ray=_is_ray(box),
        problem=_problem(argv, kind, model),
    )


def engine_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's own part of a command line, which a shell may stand before; empty: there is none."""
    for i, word in enumerate(argv):
        if word.rpartition("/")[2] == "vllm" and argv[i + 1 : i + 2] == ("serve",):
            return argv[i:]
        if word == "sglang.launch_server" and i >= 2:
            return argv[i - 2 :]
    return ()


def model_of(launched: Launched) -> Model:
    found = catalogue.model(launched.model)
    assert found is not None  # `asked` has found it
    return found


# --- when it starts


def weighed(now: Moment, box: ContainerScript) -> Reaction:
    """What comes of a start at that moment: how long it loads, what it holds, or why it ends."""
    launched = box.launched
    assert launched is not None
    model = model_of(launched)
    weights = model.weights_bytes / GIB / launched.ranks
    memory = now.spark.memory(now.t)
    slower = _EAGER_PART if "--enforce-eager" in box.argv else 1.0
    reaction = replace(
        box.reaction,
        group=label(box, LAUNCH) or box.reaction.group,
        ranks=launched.ranks,
        load_s=_INIT_S + weights / _READ_GIB_S,
        tokens_per_s=model.tokens_s * slower,
        fault="",
        says="",
        says_after=0.0,
    )
    if launched.kind == "vllm":
        wanted = launched.share * memory.total
        gpu = wanted + _BESIDE_GIB[launched.eager]
        says, after = _vllm_refuses(launched, weights, wanted, memory.total, memory.available)
    else:
        wanted = launched.share * memory.available
        gpu = wanted + (0.0 if launched.eager else _SGLANG_GRAPHS_GIB)
        says, after = "", 0.0
        if weights + 0.5 > wanted:
            says = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
            says, after = f"[{{sglang_time}} TP{launched.rank}] Scheduler hit an exception: {says}", 0.74
    reaction = replace(reaction, gpu_gib=gpu, load_share=min(0.98, weights / gpu))
    if launched.problem:
        says, after = launched.problem, 0.0
    if says:
        return replace(reaction, fault="exit", says=says, says_after=after, needs=Needs(by_hand=True))
    if model.spike_gib is not None and not launched.eager:
        return replace(reaction, fault="spike", needs=Needs(flags=("--enforce-eager",)), spike_gib=model.spike_gib)
    return reaction


def _vllm_refuses(
    launched: Launched, weights: float, wanted: float, total: float, available: float
) -> tuple[str, float]:
    """(its last words, after which part of its start); empty: it starts."""
    if available < wanted:
        free = f"Free memory on device cuda:0 ({available:.2f}/{total:.2f} GiB) on startup"
        desired = f"less than desired GPU memory utilization ({launched.share:g}, {wanted:.2f} GiB)"
        mend = "Decrease GPU memory utilization or reduce GPU memory used by other processes."
        return _core_fails(f"ValueError: {free} is {desired}. {mend}"), 0.0
    if weights + _ACTIVATIONS_GIB >= wanted:
        none = "No available memory for the cache blocks."
        mend = "Try increasing `gpu_memory_utilization` when initializing the engine."
        return _core_fails(f"ValueError: {none} {mend}"), 0.77
    return "", 0.0


def _problem(argv: tuple[str, ...], kind: str, model: Model) -> str:
    longest, wanted = model.longest_tokens, _whole(flag_value(argv, "--max-model-len", "--context-length"))
    if wanted and wanted > longest and kind == "vllm":
        return (
            f"(APIServer pid=1) ValueError: User-specified max_model_len ({wanted}) is greater than the derived "
            f"max_model_len (max_position_embeddings={longest} or model_max_length=None in model's config.json). This "
            "may lead to incorrect model outputs or CUDA errors."
        )
    backend = (flag_value(argv, "--attention-backend") or "").upper()
    if model.spike_gib is not None and backend == "FLASHINFER" and kind == "vllm":
        return _core_fails(
            "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason: "
            "['attention sinks not supported']"
        )
    return ""


def _core_fails(why: str) -> str:
    """Lines of vLLM's, as its core's end comes to its server."""
    ends = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. "
    return f"{_CORE}EngineCore failed to start.\n{_CORE}{why}\n{ends}Failed core proc(s): {{{{}}}}"


# --- what it is made of


def parts(now: Moment, box: ContainerScript) -> tuple[tuple[ProcessScript, ...], EngineScript | None]:
    """Its processes, and its endpoint where it has one."""
    launched = box.launched
    assert launched is not None
    base = 100_000 + zlib.crc32(f"{now.script.name}/{box.key}".encode()) % 800_000 * 4
    argv = engine_argv(box.argv) or box.argv
    if launched.kind == "sglang":
        processes = _sglang_processes(box, argv, base, launched.rank)
    elif launched.is_ray:
        processes = _ray_processes(box, argv, base, launched.rank)
    else:
        processes = _vllm_processes(box, argv, base, launched)
    return processes, _engine(box, argv, launched) if launched.rank == 0 else None


def _engine(box: ContainerScript, argv: tuple[str, ...], launched: Launched) -> EngineScript:
    model = model_of(launched)
    told = {"itl_s": 1.0 / model.tokens_s, "ttft_s": 0.25, "prefix_hit": 0.0}
    return EngineScript(
        name=box.name,
        kind=launched.kind,
        model=flag_value(argv, "--served-model-name") or _model_name(argv),
        version=launched.version,
        port=_whole(flag_value(argv, "--port")) or _PORTS[launched.kind],
        max_model_len=launched.context,
        serves=(),
        tracks={name: Track.constant(told.get(name, usual)) for name, usual in ENGINE_TRACKS.items()},
        metrics=launched.kind == "vllm" or "--enable-metrics" in argv,
    )


def _process(
    box: ContainerScript, pid: int, comm: str, argv: tuple[str, ...], parent: int, **more: object
) -> ProcessScript:  # fmt: skip
    given: dict[str, object] = {"resident_gib": Track.constant(1.3), "shared_gib": Track.constant(0.5), **more}
    return ProcessScript(
        pid=pid, comm=comm[:15], argv=argv, parent_pid=parent, container=box.name, **given  # type: ignore[arg-type]
    )  # fmt: skip


def _on_gpu(box: ContainerScript, pid: int, name: str, parent: int, delay_s: float) -> ProcessScript:
    return _process(
        box, pid, name, (name,), parent, delay_s=delay_s, resident_gib=Track.constant(3.6),
        shared_gib=Track.constant(0.9), gpu_gib=Track.constant(1.0), gpu_name=name,
    )  # fmt: skip


def _vllm_processes(
    box: ContainerScript, argv: tuple[str, ...], base: int, launched: Launched
) -> tuple[ProcessScript, ...]:
    server = _process(
        box, base, "vllm", ("python3", "/usr/local/bin/vllm", *argv[1:]), base - 21, wait_channel="ep_poll"
    )  # fmt: skip
    if launched.ranks == 1:
        return server, _on_gpu(box, base + 263, "VLLM::EngineCore", base, 14.0)
    worker = f"VLLM::Worker_TP{launched.rank}"
    if launched.rank > 0:
        return server, _on_gpu(box, base + 398, worker, base, 18.0)
    core = _process(box, base + 263, "VLLM::EngineCore", ("VLLM::EngineCore",), base, delay_s=14.0)
    return server, core, _on_gpu(box, base + 398, worker, base + 263, 18.0)


def _ray_processes(box: ContainerScript, argv: tuple[str, ...], base: int, rank: int) -> tuple[ProcessScript, ...]:
    raylet = _process(box, base + 55, "raylet", ("/usr/local/lib/python3.12/ray/core/src/ray/raylet/raylet",), base)
    worker = _on_gpu(box, base + 402, "ray::RayWorkerWrapper.execute_method", base + 55, 20.0)
    if rank > 0:
        joins = ("/usr/bin/python3", "/usr/local/bin/ray", "start", "--block")
        return _process(box, base, "ray", joins, base - 21), raylet, worker
    server = _process(box, base, "vllm", ("python3", "/usr/local/bin/vllm", *argv[1:]), base - 21)
    core = _process(box, base + 263, "VLLM::EngineCore", ("VLLM::EngineCore",), base, delay_s=14.0)
    return server, raylet, core, worker


def _sglang_processes(box: ContainerScript, argv: tuple[str, ...], base: int, rank: int) -> tuple[ProcessScript, ...]:
    server = _process(box, base, "python3", argv, base - 21, wait_channel="ep_poll")
    scheduler = f"sglang::scheduler_TP{rank}" if rank else "sglang::scheduler"
    return (
        server,
        _on_gpu(box, base + 348, scheduler, base, 9.0),
        _process(box, base + 349, "sglang::detokenizer", ("sglang::detokenizer",), base, delay_s=9.0),
    )


# --- its command line


def _model_name(argv: tuple[str, ...]) -> str:
    if argv[1:2] == ("serve",) and len(argv) > 2 and not argv[2].startswith("-"):
        return argv[2]
    return flag_value(argv, "--model-path", "--model") or ""


def _model(script: NodeScript, box: ContainerScript, named: str) -> Model | None:
    """By its repository, or by the folder that is mounted where the engine finds it."""
    if not named.startswith("/"):
        return catalogue.model(named)
    for source, target in (bind.split(":")[:2] for bind in box.binds):
        if named == target or named.startswith(f"{target.rstrip('/')}/"):
            there = disk.found(script, source + named[len(target.rstrip("/")) :])
            return disk.known(there) if there is not None else catalogue.model_of_folder(source)
    return catalogue.model_of_folder(named)


def _share(argv: tuple[str, ...], kind: str) -> float:
    text = flag_value(argv, "--gpu-memory-utilization", "--mem-fraction-static")
    try:
        return float(text) if text else _DEFAULT_SHARE[kind]
    except ValueError:
        return _DEFAULT_SHARE[kind]


def _is_ray(box: ContainerScript) -> bool:
    return "sparktop-ray-head" in box.argv or "sparktop-ray-worker" in box.argv


def _head(now: Moment, box: ContainerScript) -> ContainerScript | None:
    """The container of the same launch that is rank 0."""
    showing_s, launch = now.t + now.script.began_s, label(box, LAUNCH)
    boxes = (one for node in now.scenario.nodes for one in node.at(showing_s).containers)
    return next(
        (one for one in boxes if launch and label(one, LAUNCH) == launch and "sparktop-ray-head" in one.argv), None
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
