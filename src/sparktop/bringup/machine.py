"""Machine: GPU, CUDA, memory that the kernel keeps back, heat, disk, headers, crash dumps."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Nodes,
    Outcome,
    by_action,
    by_hand,
    card,
    each,
    failed,
    judged,
    passed,
    skipped,
    told,
    unknown,
    warning,
)
from sparktop.checks.host import DiskFacts, judge_disk_room
from sparktop.checks.judgement import worst
from sparktop.checks.machine import (
    CudaFacts,
    handover_facts,
    judge_cuda,
    judge_handover,
    judge_heat,
    judge_memory_total,
)
from sparktop.model.survey import Ask, FileText, Output
from sparktop.model.telemetry import CollectorState
from sparktop.text.units import gib

_CU_INIT = (
    "import ctypes\ntry:\n    print(ctypes.CDLL('libcuda.so.1').cuInit(0))\nexcept OSError:\n    print('missing')\n"
)


def smi_ask(node: str) -> Output:
    argv = ("nvidia-smi", "--query-gpu=name,driver_version,vbios_version", "--format=csv,noheader")
    return Output(node=node, argv=argv, limit_s=10.0)


def _gpu(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, view, ask = nodes[0], seen.view(nodes[0]), smi_ask(nodes[0])
    gpu = view.first_gpu if view is not None else None
    text = (seen.text(ask) or "").strip()
    rows = [row for row in text.splitlines() if row.count(",") == 2]
    if rows:
        name, driver, vbios = (part.strip() for part in rows[0].split(","))
        return passed(f"{name}, driver {driver}, VBIOS {vbios}")
    if gpu is not None:
        return passed(f"{gpu.name}, driver {gpu.driver_version or 'not known'}")
    if seen.is_missing(ask):
        return failed("there is no nvidia-smi", by_hand("Install the driver by an update of DGX OS", _update(node)))
    said = text.splitlines()[-1] if text else seen.why_not(ask)
    nvml = view.collectors.get("nvml") if view is not None else None
    if nvml is not None and nvml.state is CollectorState.STUCK:
        return failed(f"NVML hangs: {said}", by_action("reboot", f"Reboot {node}"))
    if not seen.has_answer(ask) and not text:
        return unknown(said)
    # "No devices were found" comes with exit code 6, or with 0
    return failed(
        f"no GPU: {said}",
        by_hand("Finish the update: driver and firmware don't fit each other", _update(node)),
        by_action("reboot", f"Reboot {node}"),
    )


def _update(node: str) -> str:
    return f"ssh -L 11000:localhost:11000 {node}, then http://localhost:11000 (DGX Dashboard)"


def cuda_ask(node: str) -> Output:
    return Output(node=node, argv=("python3", "-I", "-S", "-c", _CU_INIT), limit_s=15.0)


def _cuda(seen: CheckInputs, nodes: Nodes) -> Outcome:
    node, ask = nodes[0], cuda_ask(nodes[0])
    text, view = (seen.text(ask) or "").strip(), seen.view(nodes[0])
    judgement = judge_cuda(
        CudaFacts(
            code=int(text) if text.isdecimal() else None,
            has_gpu=view is not None and view.first_gpu is not None,
            is_missing=text == "missing",
        )
    )
    return told(judge_cuda, judgement, why=seen.why_not(ask), node=node, code=text)


def _hidden_memory(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    if view is None or view.sample is None or view.facts is None:
        return unknown("no sample yet")
    memory, kernel = view.sample.memory, view.facts.kernel
    judgement = judge_handover(handover_facts(kernel, memory))
    hidden = gib(float(judgement.figures.get("hidden_bytes", 0)))
    return told(judge_handover, judgement, node=nodes[0], kernel=kernel, hidden=hidden)


def _memory(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    total = view.sample.memory.total_bytes if view is not None and view.sample is not None else None
    return told(judge_memory_total, judge_memory_total(total), total=gib(total or 0))


def _heat(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    gpu = view.first_gpu if view is not None else None
    temperature = gpu.temperature_c if gpu is not None else None
    load = gpu.utilisation_percent if gpu is not None else None
    return told(judge_heat, judge_heat(temperature), temperature=temperature, load=load)


def _disk(seen: CheckInputs, nodes: Nodes) -> Outcome:
    view = seen.view(nodes[0])
    disks = view.facts.disks if view is not None and view.facts is not None else ()
    if not disks:
        return unknown("the disks were not read")
    judged_disks = [(judge_disk_room(DiskFacts(free_bytes=disk.free_bytes, disk=disk)), disk) for disk in disks]
    judgement = worst(*(judgement for judgement, _ in judged_disks))
    disk = next(disk for one, disk in judged_disks if one is judgement)
    found = f"{gib(disk.free_bytes)} of {gib(disk.total_bytes)} free on {disk.mount}; models take 20 to 400 GB"
    return judged(
        judgement,
        found,
        by_hand("Free disk space", f"on {nodes[0]}: docker system df; du -xh -d1 ~/.cache/huggingface"),
    )


def python_ask(node: str) -> Output:
    argv = ("python3", "-I", "-S", "-c", "import sysconfig; print(sysconfig.get_path('include'))")
    return Output(node=node, argv=argv)


def header_ask(seen: CheckInputs, node: str) -> Output | None:
    """Asks for Python's header, where the folder is known."""
    folder = (seen.text(python_ask(node)) or "").strip()
    return Output(node=node, argv=("test", "-e", f"{folder}/Python.h")) if folder.startswith("/") else None


def _header_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    yield python_ask(nodes[0])
    if (ask := header_ask(seen, nodes[0])) is not None:
        yield ask


def _headers(seen: CheckInputs, nodes: Nodes) -> Outcome:
    ask = header_ask(seen, nodes[0])
    answer = seen.survey.answers.get(ask) if ask is not None else None
    if ask is None or answer is None or answer.code not in (0, 1):
        return unknown(f"whether Python's headers are there: {seen.why_not(ask or python_ask(nodes[0]))}")
    if answer.code == 0:
        return passed(ask.argv[-1])
    version = ask.argv[-1].split("/")[-2]
    return warning(
        f"{ask.argv[-1]} is missing",
        by_hand("Install it, on each node", f"on {nodes[0]}: sudo apt install {version}-dev"),
    )


_CORE_PATTERN = "/proc/sys/kernel/core_pattern"


def _pattern_ask(node: str) -> FileText:
    return FileText(node=node, path=_CORE_PATTERN)


def _crash(seen: CheckInputs, nodes: Nodes) -> Outcome:
    ask = _pattern_ask(nodes[0])
    pattern = seen.text(ask)
    if pattern is None:
        return unknown(seen.why_not(ask))
    if "apport" not in pattern:
        return passed(f"crash dumps: {pattern.strip()[:60]}")
    return skipped(
        "apport takes crash dumps: an engine of 100 GB that dies is read for minutes",
        by_hand("Switch it off on a machine that serves", f"on {nodes[0]}: sudo systemctl disable --now apport"),
    )


CARDS = (
    card("machine.gpu", look=_gpu, asks=each(smi_ask), basis=(Basis.BOOT, Basis.DRIVER)),
    card(judge_cuda, look=_cuda, asks=each(cuda_ask)),
    card(judge_memory_total, look=_memory, basis=(Basis.BOOT,)),
    card(judge_handover, look=_hidden_memory, basis=(Basis.BOOT, Basis.KERNEL)),
    card(judge_heat, look=_heat),
    card(judge_disk_room, look=_disk),
    card("machine.headers", look=_headers, asks=_header_asks, basis=(Basis.BOOT,)),
    card("machine.crash-dumps", look=_crash, asks=each(_pattern_ask)),
)
