"""What the operator sees for each rule: the pages of docs/rules, and the patterns of the ids on each.

Of the patterns that match an id the one with the most literal characters wins, so a page can take `cuda.*` and another
`cuda.ecc-error`. A test holds that every rule is on exactly one page and that every pattern is of use.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One page of docs/rules."""

    slug: str
    title: str
    says: str
    """What the operator sees, in a sentence or two."""
    rules: tuple[str, ...]
    """Ids, or patterns of them."""


SYMPTOMS = (
    Symptom(
        slug="out-of-memory",
        title="Out of memory",
        says="Available memory falls or is gone, an allocation fails, or memory does not come back after an engine "
        "ends.",
        rules=(
            "memory.*", "guard.*", "kernel.oom-*", "kernel.memory-*", "kernel.nvrm-no-memory", "torch.oom*",
            "llama.*memory", "llama.*-too-large", "llama.context-not-fitted",
            "torch.expandable-segments-unsupported", "vllm.kv-no-memory", "vllm.kv-cache-too-small*",
            "vllm.free-memory-below-utilisation", "vllm.memory-profiling-race", "vllm.load-out-of-memory",
            "vllm.warmup-out-of-memory", "vllm.max-num-seqs-over-mamba-blocks", "vllm.swap-space-*",
            "sglang.not-enough-memory", "sglang.capture-out-of-memory", "sglang.kv-pool-exhausted", "sglang.pool-leak",
            "sglang.host-cache-memory", "host.cpu-allocation-failed", "host.cannot-fork", "host.unit-oom-killed",
            "build.compiler-killed", "docker.oom-killed", "docker.shm-default", "restart.oom-killed",
            "ray.memory-monitor", "start.shared-memory-full",
        ),
    ),
    Symptom(
        slug="no-tokens",
        title="GPU busy or idle, and no tokens",
        says="The engine holds requests, or loads, and nothing moves. The GPU may show 96 % and do no work.",
        rules=(
            "gpu.spin-deadlock", "gpu.capture-stuck", "gpu.busy-at-low-power", "engine.no-tokens",
            "engine.load-stalled", "engine.not-answering", "engine.graph-capture-*", "vllm.rpc-timeout",
            "vllm.shm-broadcast-*", "sglang.watchdog-*", "sglang.health-check-failed", "ray.channel-timeout",
            "dist.collective-timeout",
        ),
    ),
    Symptom(
        slug="engine-does-not-start",
        title="The engine doesn't start",
        says="A flag, a variable, a package or a port: the engine ends before it loads the model.",
        rules=(
            "start.*", "cli.*", "python.*", "vllm.env-*", "vllm.config-invalid", "vllm.batch-limits-contradict",
            "vllm.port-variable-is-uri", "sglang.gpu-memory-not-reported",
            "attention.backend-rejected", "attention.feature-unsupported",
            "llama.flag-*", "llama.device-unknown", "llama.port-in-use", "llama.host-not-here",
            "llama.kv-quantised-*", "llama.router-without-model",
        ),
    ),
    Symptom(
        slug="model-does-not-load",
        title="The model doesn't load",
        says="The checkpoint, its tokenizer or its quantisation does not fit this engine, release or GPU.",
        rules=(
            "model.*", "quantisation.*", "vllm.mxfp4-loader-format", "vllm.max-len-over-derived",
            "sglang.processor-missing", "llama.*",
        ),
    ),
    Symptom(
        slug="gpu-kernels",
        title="A GPU kernel is missing, can't be built or fails",
        says="CUDA, Triton, FlashInfer, CUTLASS and torch.compile on GB10 (SM 12.1).",
        rules=(
            "cuda.*", "torch.*", "triton.*", "kernels.*", "flashinfer.*", "cutlass.*", "deepgemm.*", "attention.*",
            "vllm.no-compatible-kernel", "vllm.moe-backend-unsupported", "vllm.workspace-locked",
            "sglang.capture-failed",
        ),
    ),
    Symptom(
        slug="engine-ends-or-restarts",
        title="The engine ends or restarts",
        says="A container or a service ended, crashed, was killed, or starts again and again.",
        rules=(
            "restart.*", "engine.down", "docker.exit-*", "docker.restart-loop", "engine.process-killed",
            "vllm.engine-died", "engine.last-words", "engine.died-serving", "sglang.process-died", "host.unit-*",
            "host.killed-by-shell-report", "host.illegal-instruction", "host.segfault", "host.ipc-removed",
            "start.bus-error", "llama.stop-hung",
        ),
    ),
    Symptom(
        slug="requests-fail",
        title="Requests fail, or answers are wrong",
        says="The engine serves, and clients or the proxy before it get errors, empty answers or nonsense.",
        rules=(
            "serving.*", "engine.answers-cut", "engine.wrong-answers", "proxy.*", "sglang.input-too-long",
            "vllm.nvfp4-moe-cutlass-old", "llama.request-over-context", "llama.key-refused", "llama.slot-context-*",
        ),
    ),
    Symptom(
        slug="slow",
        title="It serves, and is slow",
        says="Heat, a pinned clock, a full KV cache, or a slower code path than there could be.",
        rules=(
            "gpu.power-wedge", "gpu.thermal", "gpu.slowed-down", "kernel.thermal-throttled", "vllm.preemption",
            "*.kv-*-full", "vllm.jit-while-serving", "vllm.fp4-marlin-notice",
            "sglang.spec-v1-fallback", "moe.*", "llama.draft-mismatch", "llama.mlock-refused",
        ),
    ),
    Symptom(
        slug="two-nodes",
        title="Two nodes don't work together",
        says="The cable, RDMA, NCCL, Gloo, Ray, and two Sparks that are not alike.",
        rules=(
            "cluster.*", "nccl.*", "dist.*", "gloo.*", "ray.*", "mpi.*", "ucx.*", "kernel.link-*",
            "sglang.memory-unbalanced*", "sglang.other-rank-not-loaded", "host.ssh-between-nodes",
        ),
    ),
    Symptom(
        slug="images-and-downloads",
        title="Images, models, downloads and disks",
        says="The registry or Hugging Face refuses, a download breaks, or the disk is full.",
        rules=(
            "hub.*", "docker.image-*", "docker.pull-rate-limit", "docker.registry-unreachable",
            "docker.wrong-architecture", "docker.exec-format", "docker.disk-full", "host.disk-*",
            "ray.disk-nearly-full", "llama.hub-*", "llama.model-not-resolved",
        ),
    ),
    Symptom(
        slug="docker",
        title="Docker can't start the container",
        says="The daemon, its command line, its names, ports, mounts and networks.",
        rules=("docker.*",),
    ),
    Symptom(
        slug="driver-and-gpu",
        title="The driver or the GPU is missing",
        says="No driver, the wrong one, two versions at once, a container without its GPU, or a GPU that is lost.",
        rules=(
            "driver.*", "kernel.driver-*", "kernel.nvrm-*", "kernel.uvm-fatal", "host.driver-*",
            "host.next-kernel-without-driver", "host.torn-update", "docker.no-gpu-runtime", "docker.cuda-requirement",
            "docker.nvidia-cli-*", "docker.cdi-unresolved", "docker.device-missing", "cuda.ecc-error",
        ),
    ),
    Symptom(
        slug="xids",
        title="Xids in the kernel log",
        says="What the NVIDIA driver writes into the kernel log when a GPU, or a program on it, fails.",
        rules=("kernel.xid-*",),
    ),
    Symptom(
        slug="host-and-desktop",
        title="Host, kernel, hardware and desktop",
        says="The screen is frozen, the kernel stalls or crashed, or PCIe, memory or a disk reports errors.",
        rules=("host.*", "kernel.*", "desktop.*"),
    ),
    Symptom(
        slug="launch-configurations",
        title="Launch configurations",
        says="Known to go wrong before it runs: compose files, docker run scripts, systemd units, recipes and "
        "running containers.",
        rules=("config.*",),
    ),
    Symptom(
        slug="sparktop-itself",
        title="sparktop itself",
        says="What sparktop can't see or do, and live rules that show what log, kernel or launch rules find.",
        rules=(
            "sparktop.*", "engine.log*", "kernel.log", "config.running", "host.collector",
            "host.docker-denied", "host.kernel-log-closed",
        ),
    ),
)  # fmt: skip


def patterns(rule: str) -> list[tuple[int, str, Symptom]]:
    """What matches an id, the most specific first: (literal characters, pattern, symptom)."""
    matching = [
        (len(pattern) - pattern.count("*"), pattern, symptom)
        for symptom in SYMPTOMS
        for pattern in symptom.rules
        if fnmatchcase(rule, pattern)
    ]
    return sorted(matching, key=lambda one: -one[0])


def symptom_of(rule: str) -> Symptom | None:
    """The page that a rule is on; None where no pattern matches it."""
    return next((symptom for _, _, symptom in patterns(rule)), None)
