"""Lints of memory: how much of the pool shared by CPU and GPU an engine takes.

Facts: docs/facts/engines.md sections 1A and 4.1, conflicts C2 and C11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.cmdline.docker_run import bytes_of
from sparktop.diagnose.lint.lint import Claim, change, lint, removed, replaced
from sparktop.diagnose.lint.spec import Launcher, LaunchSpec, model_name
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

SAFE_UTILISATION = 0.70
"""A safe first start for an untested model on one Spark; leaves the host about 26 GB more than the default."""
HIGHEST_UTILISATION = 0.90
WARN_UTILISATION = 0.87
LONG_CONTEXT = 131072
LONG_CONTEXT_UTILISATION = 0.82
SAFE_FRACTION = 0.75
FRACTION_LIMIT = {1: 0.88, 2: 0.85}
LARGE_SHM_BYTES = 32 << 30
_UTILISATION = "--gpu-memory-utilization"
_NVIDIA_AT_090 = re.compile(r"nemotron-?3-super")
"""NVIDIA's own recipe for it on a Spark uses 0.90 (dgx-spark-playbooks, nvidia/nemotron)."""


@lint(
    "gpu-memory-utilization-high",
    Severity.CRITICAL,
    "--gpu-memory-utilization leaves the host too little memory",
    "vLLM on GB10 (unified memory), all versions",
    "field report 002",
    "field report 001",
    is_live=True,
)
def gpu_memory_utilization_high(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("gpu-memory-utilization")
    value = item.number if item else None
    if spec.engine is not EngineKind.VLLM or item is None or value is None or spec.flag("kv-cache-memory-bytes"):
        return
    context = spec.number("max-model-len")
    is_long = spec.nodes > 1 and context is not None and context >= LONG_CONTEXT and value <= WARN_UTILISATION
    limit = LONG_CONTEXT_UTILISATION if is_long else WARN_UTILISATION
    if value <= limit or value > 1:
        return
    severity, title = (
        Severity.WARNING,
        f"{_UTILISATION} {item.value} is above {limit:.2f}, the highest that is stable on GB10",
    )
    if is_long:
        severity = Severity.INFO
        title = f"{_UTILISATION} {item.value} with 128k or more on two Sparks: one report saw Xid 43 above {limit:.2f}"
    elif value > HIGHEST_UTILISATION:
        severity, title = Severity.CRITICAL, f"{_UTILISATION} {item.value} leaves the host too little memory"
    elif value == HIGHEST_UTILISATION and _NVIDIA_AT_090.search(model_name(spec)):
        severity = Severity.INFO
    reason = (
        "One report of two Sparks with a context of 128k or more saw Xid 43 errors until 0.82; many run above it."
        if is_long
        else "0.90 is the highest that ever worked; 0.85 to 0.87 is stable for most models."
    )
    yield claim(
        [item, *([long] if is_long and (long := spec.flag("max-model-len")) else [])],
        title=title,
        severity=severity,
        explanation=(
            "On a Spark it is a fraction of all 128 GB that CPU and GPU share: the kernel, sshd and Docker get only "
            f"what vLLM leaves. {reason} A host without memory stops answering SSH while it still answers ping."
        ),
        settles="one long request, while you watch available memory" if is_long else "",
        remedies=[
            change(
                f"lower it to {limit:.2f}, or to what is available before the start less 12 to 20 GiB",
                replaced(spec, item, f"{limit:.2f}"),
                cost="a smaller KV cache: fewer tokens at once",
            ),
            Remedy(
                title=f"start with {SAFE_UTILISATION:.2f} for a model that hasn't run here yet",
                cost="a smaller KV cache; raise it step by step and watch available memory",
            ),
        ],
    )


@lint(
    "mem-fraction-static-high",
    Severity.WARNING,
    "--mem-fraction-static leaves the host too little headroom",
    "SGLang on GB10 (unified memory): 0.88 and above on one Spark, 0.85 and above on two",
    "field report 003",
    "field report 004",
    is_live=True,
)
def mem_fraction_static_high(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("mem-fraction-static")
    limit = FRACTION_LIMIT[min(spec.nodes, 2)]
    if spec.engine is EngineKind.VLLM or item is None or item.number is None or item.number < limit:
        return
    where = (
        "on two Sparks one of them swapped at 0.85"
        if spec.nodes > 1
        else "an engine at 0.88 died in warm-up (exit 137)"
    )
    yield claim(
        item,
        title=f"--mem-fraction-static {item.value} leaves the host too little headroom",
        explanation=(
            f"It is a fraction of the memory that CPU and GPU share: {where}. Warm-up and the first requests need "
            "memory besides it. 0.75 is stable, and NVIDIA's own guide for the Spark sets it."
        ),
        remedies=[
            change(
                f"lower it to {SAFE_FRACTION}",
                replaced(spec, item, str(SAFE_FRACTION)),
                cost="a smaller KV cache: fewer tokens at once",
            )
        ],
    )


@lint(
    "shm-size-large",
    Severity.INFO,
    "A size of /dev/shm that may take memory from the model, or that does nothing beside ipc: host",
    "containers on GB10 (unified memory)",
    "Docker documentation, --shm-size and --ipc",
)
def shm_size_large(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item, ipc = spec.option("shm-size"), spec.option("ipc")
    size = bytes_of(item.value or "") if item else None
    if item is None or size is None or size < LARGE_SHM_BYTES or spec.launcher is not Launcher.DOCKER:
        return
    if ipc and ipc.value == "host":
        yield claim(
            [item, ipc],
            title=f"shm-size {item.value} does nothing beside ipc: host",
            explanation=(
                "With the host's IPC namespace the container uses the machine's own /dev/shm, and Docker ignores the "
                "size: it limits nothing, and reserves nothing."
            ),
            remedies=[change("remove the size", removed(spec, item))],
        )
        return
    yield claim(
        item,
        title=f"shm-size {item.value} may take that much memory from the model",
        explanation=(
            "Files in shared memory are memory, and on a Spark the GPU uses the same memory. They take only what is "
            "written, but nothing stops them before this size."
        ),
        remedies=[change("16 GB are enough for one engine", replaced(spec, item, "16g"))],
    )
