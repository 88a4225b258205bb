"""Lints of memory: how much of the pool shared by CPU and GPU an engine takes.

Facts: docs/facts/engines.md sections 1A and 4.1, conflicts C2 and C11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.cmdline.docker_run import bytes_of
from sparktop.diagnose.lint.lint import Claim, change, lint, replaced, with_flag
from sparktop.diagnose.lint.spec import LaunchSpec, at_least, is_at_most, model_name
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


OPEN = "the arguments that are set outside this file: see the running engine's command line"


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
    is_long = spec.nodes > 1 and context is not None and context >= LONG_CONTEXT
    limit = LONG_CONTEXT_UTILISATION if is_long else WARN_UTILISATION
    if value <= limit or value > 1:
        return
    severity, title = (
        Severity.WARNING,
        f"{_UTILISATION} {item.value} is above {limit:.2f}, the highest that is stable on GB10",
    )
    if value > HIGHEST_UTILISATION:
        severity, title = Severity.CRITICAL, f"{_UTILISATION} {item.value} leaves the host too little memory"
    elif value == HIGHEST_UTILISATION and _NVIDIA_AT_090.search(model_name(spec)):
        severity = Severity.INFO
    reason = (
        "On two Sparks with a context of 128k or more, Xid 43 errors stopped only at 0.82."
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
    "gpu-memory-utilization-absent",
    Severity.WARNING,
    "Without --gpu-memory-utilization vLLM takes 90 % of the memory it shares with the host",
    "vLLM on GB10 (unified memory); the default is 0.90 up to 0.19 and 0.92 from 0.22.1",
    "field report 001",
    "vLLM 0.19.0 and 0.22.1, config/cache.py",
    is_live=True,
)
def gpu_memory_utilization_absent(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or not spec.has_command or spec.flag("gpu-memory-utilization"):
        return
    if spec.flag("kv-cache-memory-bytes", "config") or spec.is_ray_start:
        return
    default = "0.92" if at_least(spec, "0.22.1") else "0.90 or 0.92"
    default = "0.90" if is_at_most(spec, "0.19") else default
    yield claim(
        None,
        title=f"Without {_UTILISATION} vLLM takes {default} of the memory it shares with the host",
        explanation=(
            f"The default, {default} (0.90 up to vLLM 0.19, 0.92 from 0.22.1), is meant for a GPU with its own "
            "memory. On a Spark it is a fraction of all 128 GB: about 10 GB are left for the kernel, sshd and "
            "Docker. One such host stopped answering SSH."
        ),
        settles=OPEN if spec.is_open else "",
        remedies=[
            change(
                f"set --gpu-memory-utilization {SAFE_UTILISATION:.2f}, for a model that hasn't run here yet",
                with_flag(spec, "gpu-memory-utilization", f"{SAFE_UTILISATION:.2f}"),
                cost="a smaller KV cache: fewer tokens at once",
            )
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
    "mem-fraction-static-absent",
    Severity.WARNING,
    "Without --mem-fraction-static SGLang takes about 0.9 of the memory it shares with the host",
    "SGLang on GB10 (unified memory), all versions",
    "field report 004",
    "SGLang 0.5.12, server_args.py",
    is_live=True,
)
def mem_fraction_static_absent(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is not EngineKind.SGLANG or not spec.has_command:
        return
    if spec.flag("mem-fraction-static", "config"):
        return
    yield claim(
        None,
        explanation=(
            "SGLang then computes the fraction from the GPU's memory less a reserve of 10 GiB: about 0.9 on a Spark, "
            "as if no host shared that memory. At 0.88 an engine died in warm-up (exit 137)."
        ),
        settles=OPEN if spec.is_open else "",
        remedies=[
            change(
                f"set --mem-fraction-static {SAFE_FRACTION}",
                with_flag(spec, "mem-fraction-static", str(SAFE_FRACTION)),
                cost="a smaller KV cache: fewer tokens at once",
            )
        ],
    )


@lint(
    "sglang-flashinfer-memory",
    Severity.INFO,
    "SGLang's FlashInfer attention takes about 2 GB more at the start than Triton's",
    "SGLang on GB10, where memory is short",
    "field report 004",
)
def sglang_flashinfer_memory(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.flag("attention-backend")
    if spec.engine is not EngineKind.SGLANG or item is None or spec.value("attention-backend") != "flashinfer":
        return
    yield claim(
        item,
        explanation=(
            "--attention-backend flashinfer allocates buffers of about 2 GB besides the model. It works, and "
            "NVIDIA's own guide sets it too; it matters only where memory is short at the start."
        ),
        distinction=("This is not about the MoE runner (--moe-runner-backend flashinfer_cutlass).",),
        remedies=[
            change("where memory is short: --attention-backend triton", replaced(spec, item, "triton")),
        ],
    )


@lint(
    "memory-limit-without-effect",
    Severity.INFO,
    "Docker's memory limit doesn't limit what CUDA allocates",
    "every container on GB10",
    "docker/cli; NVIDIA GB10 unified memory",
)
def memory_limit_without_effect(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.option("memory")
    if not spec.has_container or item is None or item.value in (None, "0", ""):
        return
    yield claim(
        item,
        title=f"The memory limit of {item.value} doesn't limit what CUDA allocates",
        explanation=(
            "The driver holds CUDA memory outside the container's memory cgroup. The limit applies to the rest of "
            "the process and its page cache, not to the model or the KV cache."
        ),
        remedies=[Remedy(title="limit the engine itself: --gpu-memory-utilization, or --mem-fraction-static")],
    )


@lint(
    "shm-size-large",
    Severity.INFO,
    "A large /dev/shm takes memory from the model",
    "containers on GB10 (unified memory)",
    "Docker documentation, --shm-size",
)
def shm_size_large(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.option("shm-size")
    size = bytes_of(item.value or "") if item else None
    if item is None or size is None or size < LARGE_SHM_BYTES or spec.launcher.value != "docker":
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
