"""The machine: release and firmware, GPU, CUDA, memory, heat, disk, headers, and the tools that later chapters need.

Looking never changes: NVIDIA's `check_ota_status.py is-ota-available` may install a newer checker, so the Dashboard's
own snapshot is read instead, over D-Bus, which a plain user may (docs/facts/bringup.md section 2.2).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sparktop import sanitise
from sparktop.bounds import json_of
from sparktop.bringup.card import (
    Basis,
    CheckInputs,
    Outcome,
    by_action,
    by_hand,
    card,
    command,
    each,
    failed,
    file,
    from_gates,
    judged,
    passed,
    skipped,
    told,
    unknown,
    warning,
    worst_of,
)
from sparktop.checks.host import (
    DiskFacts,
    judge_disk_room,
    judge_driver_branch,
    judge_driver_pending,
    judge_next_kernel,
)
from sparktop.checks.judgement import Judgement
from sparktop.checks.machine import (
    MEMORY_AT_REST_GIB,
    CudaFacts,
    RestFacts,
    handover_facts,
    judge_cuda,
    judge_handover,
    judge_heat,
    judge_memory_at_rest,
    judge_memory_total,
)
from sparktop.checks.release import OtaFacts, judge_firmware, judge_held, judge_ota, judge_reboot_due
from sparktop.engines.ranks import is_alive
from sparktop.model.state import State
from sparktop.model.survey import Output, Question
from sparktop.model.telemetry import CollectorState, Disk
from sparktop.operate.launch.gates.node import driver_gate
from sparktop.text.units import gib

# --- release


def _release(seen: CheckInputs) -> Outcome:
    if not seen.facts.dgx_release:
        return skipped("there is no /etc/dgx-release: not DGX OS")
    return passed(f"DGX OS {seen.facts.dgx_release}, kernel {seen.facts.kernel}")


_ota_question = command(
    *("busctl", "call", "com.nvidia.dgx.dashboard.admin1", "/com/nvidia/dgx/dashboard/admin"),
    *("com.nvidia.dgx.dashboard.admin1", "GetOTAAvailabilitySnapshot"),
)
"""The Dashboard's snapshot: `ssbbs "ready" "2026-09-05T10:33:15+03:00" true true "July 2026"`."""


def _parse_ota(text: str) -> OtaFacts:
    """The snapshot from busctl's line; the second boolean tells whether an OTA is available."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if len(words) < 6 or words[0] != "ssbbs" or words[4] not in ("true", "false"):
        return OtaFacts()
    return OtaFacts(status=words[1], is_available=words[4] == "true", name=words[5])


def _ota(seen: CheckInputs) -> Outcome:
    question = _ota_question(seen.node)
    facts = _parse_ota(seen.words(question))
    judgement = judge_ota(facts)
    if judgement.state is State.UNKNOWN:
        why = seen.why_not(question) if facts.is_available is None else f"the Dashboard says {facts.status}"
        return unknown(f"whether an update is out: {why}", by_hand("Ask the Dashboard", _dashboard(seen.node)))
    return told(judge_ota, judgement, node=seen.node, name=facts.name or "an update")


def _dashboard(node: str) -> str:
    return f"ssh -L 11000:localhost:11000 {node}, then http://localhost:11000"


_flag_question, _packages_question = file("/run/reboot-required"), file("/run/reboot-required.pkgs")


def _reboot(seen: CheckInputs) -> Outcome:
    flag = _flag_question(seen.node)
    if not seen.has_answer(flag):
        return unknown(seen.why_not(flag))
    packages = seen.words(_packages_question(seen.node)).split() if seen.text(flag) is not None else None
    names = ", ".join(dict.fromkeys(packages or ())) or "packages"
    return told(judge_reboot_due, judge_reboot_due(packages), node=seen.node, names=names)


def _driver(seen: CheckInputs) -> Outcome:
    outcome = from_gates(driver_gate(seen.node, seen.own))
    if not judge_driver_pending(seen.own).is_problem:
        return outcome
    return replace(outcome, remedies=(by_action("reboot", f"Reboot {seen.node}: then both are one version"),))


def _next_kernel(seen: CheckInputs) -> Outcome:
    upcoming = seen.facts.kernel_next or seen.facts.kernel
    return told(judge_next_kernel, judge_next_kernel(seen.own), upcoming=upcoming, kernel=seen.facts.kernel)


_NO_UPDATES = 2
"""fwupdmgr's exit code where there is nothing to do."""
_firmware_question = command(
    "fwupdmgr", "get-updates", "--json", "--no-metadata-check", "--no-unreported-check", limit_s=20.0
)


def _parse_firmware(text: str) -> tuple[str, ...] | None:
    """The devices that fwupd has an update for, with its version; None where the text is no such JSON."""
    try:
        devices = sanitise.mapping(json_of(text)).get("Devices")
    except ValueError:
        return None
    if not isinstance(devices, list):
        return None
    waiting = ((device, sanitise.items(device.get("Releases"))) for device in map(sanitise.mapping, devices))
    return tuple(
        f"{device.get('Name', 'a device')} {sanitise.mapping(releases[0]).get('Version', '')}".strip()
        for device, releases in waiting
        if releases
    )


def _firmware(seen: CheckInputs) -> Outcome:
    question = _firmware_question(seen.node)
    if seen.is_missing(question):
        return skipped("fwupdmgr is not installed", by_hand("Install it", f"on {seen.node}: sudo apt install fwupd"))
    devices = () if seen.code(question) == _NO_UPDATES else _parse_firmware(seen.words(question))
    names = ", ".join(devices or ())
    return told(judge_firmware, judge_firmware(devices), why=seen.why_not(question), node=seen.node, names=names)


_held_question = command("apt-mark", "showhold")


def _held(seen: CheckInputs) -> Outcome:
    question = _held_question(seen.node)
    if seen.text(question) is None and not seen.has_answer(question):
        return unknown(seen.why_not(question))
    packages = seen.words(question).split()
    shown = ", ".join(packages[:4]) + (f" and {len(packages) - 4} more" if len(packages) > 4 else "")
    return judged(judge_held(packages), f"held back: {shown}" if packages else "no package is held back")


# --- machine


smi_question = command(
    "nvidia-smi", "--query-gpu=name,driver_version,vbios_version", "--format=csv,noheader", limit_s=10.0
)


def _gpu(seen: CheckInputs) -> Outcome:
    node, gpu, question = seen.node, seen.own.first_gpu, smi_question(seen.node)
    lines = seen.words(question).splitlines()
    row = next((line for line in lines if line.count(",") == 2), None)
    if row is not None:
        name, driver, vbios = (part.strip() for part in row.split(","))
        return passed(f"{name}, driver {driver}, VBIOS {vbios}")
    if gpu is not None:
        return passed(f"{gpu.name}, driver {gpu.driver_version or 'not known'}")
    update = f"{_dashboard(node)} (DGX Dashboard)"
    if seen.is_missing(question):
        return failed("there is no nvidia-smi", by_hand("Install the driver by an update of DGX OS", update))
    said = lines[-1] if lines else seen.why_not(question)
    reboot = by_action("reboot", f"Reboot {node}")
    nvml = seen.own.collectors.get("nvml")
    if nvml is not None and nvml.state is CollectorState.STUCK:
        return failed(f"NVML hangs: {said}", reboot)
    if not seen.has_answer(question) and not lines:
        return unknown(said)
    # "No devices were found" comes with exit code 6, or with 0
    return failed(
        f"no GPU: {said}", by_hand("Finish the update: driver and firmware don't fit each other", update), reboot
    )


_CU_INIT = (
    "import ctypes\ntry:\n    print(ctypes.CDLL('libcuda.so.1').cuInit(0))\nexcept OSError:\n    print('missing')\n"
)
_cuda_question = command("python3", "-I", "-S", "-c", _CU_INIT, limit_s=15.0)


def _cuda(seen: CheckInputs) -> Outcome:
    question = _cuda_question(seen.node)
    text = seen.words(question)
    judgement = judge_cuda(
        CudaFacts(
            code=int(text) if text.isdecimal() else None,
            has_gpu=seen.own.first_gpu is not None,
            is_missing=text == "missing",
        )
    )
    return told(judge_cuda, judgement, why=seen.why_not(question), node=seen.node, code=text)


def _hidden_memory(seen: CheckInputs) -> Outcome:
    memory, kernel = seen.sample.memory, seen.facts.kernel
    judgement = judge_handover(handover_facts(kernel, memory))
    hidden = gib(float(judgement.figures.get("hidden_bytes", 0)))
    return told(judge_handover, judgement, node=seen.node, kernel=kernel, hidden=hidden)


def _memory(seen: CheckInputs) -> Outcome:
    total = seen.sample.memory.total_bytes
    return told(judge_memory_total, judge_memory_total(total), total=gib(total))


def _heat(seen: CheckInputs) -> Outcome:
    gpu = seen.own.first_gpu
    temperature = gpu.temperature_c if gpu is not None else None
    load = gpu.utilisation_percent if gpu is not None else None
    return told(judge_heat, judge_heat(temperature), temperature=temperature, load=load)


def _judge_disk(disk: Disk) -> Judgement:
    return judge_disk_room(DiskFacts(free_bytes=disk.free_bytes, disk=disk))


def _disk(seen: CheckInputs) -> Outcome:
    disks = seen.own.facts.disks if seen.own.facts is not None else ()
    if not disks:
        return unknown("the disks were not read")
    judgement, disk = worst_of(_judge_disk, disks)
    found = f"{gib(disk.free_bytes)} of {gib(disk.total_bytes)} free on {disk.mount}; models take 20 to 400 GB"
    steps = f"on {seen.node}: docker system df; du -xh -d1 ~/.cache/huggingface"
    return judged(judgement, found, by_hand("Free disk space", steps))


python_question = command("python3", "-I", "-S", "-c", "import sysconfig; print(sysconfig.get_path('include'))")


def header_question(seen: CheckInputs, node: str) -> Output | None:
    """Asks for Python's header, where the folder is known."""
    folder = seen.words(python_question(node))
    return Output(node=node, argv=("test", "-e", f"{folder}/Python.h")) if folder.startswith("/") else None


def header_questions(seen: CheckInputs) -> Iterator[Question | None]:
    for node in seen.nodes:
        yield from (python_question(node), header_question(seen, node))


def _headers(seen: CheckInputs) -> Outcome:
    question = header_question(seen, seen.node)
    if question is None or seen.code(question) not in (0, 1):
        return unknown(f"whether Python's headers are there: {seen.why_not(question or python_question(seen.node))}")
    path = question.argv[-1]
    if seen.code(question) == 0:
        return passed(path)
    install = f"on {seen.node}: sudo apt install {path.split('/')[-2]}-dev"
    return warning(f"{path} is missing", by_hand("Install it, on each node", install))


_pattern_question = file("/proc/sys/kernel/core_pattern")


def _crash(seen: CheckInputs) -> Outcome:
    pattern = seen.read(_pattern_question(seen.node))
    if "apport" not in pattern:
        return passed(f"crash dumps: {pattern.strip()[:60]}")
    return skipped(
        "apport takes crash dumps: an engine of 100 GB that dies is read for minutes",
        by_hand("Switch it off on a machine that serves", f"on {seen.node}: sudo systemctl disable --now apport"),
    )


# --- memory at rest, tools


def _rest(seen: CheckInputs) -> Outcome:
    available_bytes = seen.sample.memory.available_bytes
    engines = tuple(engine.name for engine in seen.own.engines if is_alive(engine))
    judgement = judge_memory_at_rest(
        RestFacts(available_bytes=available_bytes, engines=engines, has_looked=seen.own.has_looked_for_engines)
    )
    available = f"{gib(available_bytes)} available"
    if judgement.case == "busy":
        return skipped(f"{', '.join(engines)} runs: not at rest ({available})")
    holders = seen.own.holders("gpu", "desktop", "processes")[:3]
    return told(
        judge_memory_at_rest,
        judgement,
        node=seen.node,
        available=available,
        holders=", ".join(f"{holder.label} {gib(holder.held_bytes)}" for holder in holders),
        expected=MEMORY_AT_REST_GIB,
    )


guards_question = command("systemctl", "is-active", "earlyoom.service", "systemd-oomd.service")


def guards_text(seen: CheckInputs, node: str) -> str | None:
    """The out-of-memory daemons that are active, or none; None: systemd did not answer."""
    states = seen.words(guards_question(node)).split()
    if len(states) != 2:
        return None
    active = [name for name, state in zip(("earlyoom", "systemd-oomd"), states, strict=True) if state == "active"]
    return " and ".join(active) or "none"


def swap_text(seen: CheckInputs, node: str) -> str | None:
    """The swap of /proc/meminfo: "16.0 GiB", or none; None: no sample."""
    sample = seen.view(node).sample
    if sample is None:
        return None
    return gib(sample.memory.swap_total_bytes) if sample.memory.swap_total_bytes else "none"


def _habits(seen: CheckInputs) -> Outcome:
    swap, guards, facts = swap_text(seen, seen.node), guards_text(seen, seen.node), seen.own.facts
    if swap is None:
        return unknown("no sample yet")
    parts = [f"swap {swap}"]
    parts += [f"out-of-memory daemon {guards}"] if guards is not None else []
    if facts is not None and facts.is_graphical is not None:
        parts += ["desktop running (1.5 to 3 GB)" if facts.is_graphical else "no desktop"]
    return passed(", ".join(parts))


TOOLS: Mapping[str, str] = {
    "ib_write_bw": "perftest",
    "lldpctl": "lldpd",
    "ethtool": "ethtool",
    "rsync": "rsync",
    "prlimit": "util-linux",
}
"""Programs that later chapters use, and the apt package of each."""
tools_question = command("which", *TOOLS)


def missing_tools(seen: CheckInputs, node: str) -> list[str] | None:
    """Those of the programs that the node doesn't have; None: it was not told."""
    if seen.code(tools_question(node)) not in (0, 1):
        return None
    there = {line.rpartition("/")[2] for line in seen.words(tools_question(node)).split()}
    return [name for name in TOOLS if name not in there]


def _tools(seen: CheckInputs) -> Outcome:
    missing = missing_tools(seen, seen.node)
    if missing is None:
        return unknown(seen.why_not(tools_question(seen.node)))
    if not missing:
        return passed(", ".join(TOOLS))
    packages = " ".join(dict.fromkeys(TOOLS[name] for name in missing))
    return skipped(
        f"missing: {', '.join(missing)}",
        by_hand("Install what you want to be able to look at", f"on {seen.node}: sudo apt install {packages}"),
    )


CARDS = (
    card("release.os", look=_release),
    card(judge_ota, look=_ota, questions=each(_ota_question)),
    card(judge_reboot_due, look=_reboot, questions=each(_flag_question, _packages_question)),
    card(judge_driver_branch, look=_driver),
    card(judge_next_kernel, look=_next_kernel),
    card(judge_firmware, look=_firmware, questions=each(_firmware_question), basis=(Basis.BOOT, Basis.RELEASE)),
    card(judge_held, look=_held, questions=each(_held_question)),
    card("machine.gpu", look=_gpu, questions=each(smi_question), basis=(Basis.BOOT, Basis.DRIVER)),
    card(judge_cuda, look=_cuda, questions=each(_cuda_question)),
    card(judge_memory_total, look=_memory, basis=(Basis.BOOT,)),
    card(judge_handover, look=_hidden_memory, basis=(Basis.BOOT, Basis.KERNEL)),
    card(judge_heat, look=_heat),
    card(judge_disk_room, look=_disk),
    card("machine.headers", look=_headers, questions=header_questions, basis=(Basis.BOOT,)),
    card("machine.crash-dumps", look=_crash, questions=each(_pattern_question)),
    card(judge_memory_at_rest, look=_rest),
    card("memory.habits", look=_habits, questions=each(guards_question)),
    card("tools.programs", look=_tools, questions=each(tools_question)),
)
