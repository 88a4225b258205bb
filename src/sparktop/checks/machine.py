"""Checks of one Spark before anything runs on it: does CUDA start, how much memory is there, how hot is it."""

from __future__ import annotations

from sparktop.checks.judgement import Judgement, check, failed, note, passed, unknown, warning
from sparktop.dataclass import dataclass
from sparktop.model.telemetry import Memory

GIB = 1 << 30
ADVISORY_KERNEL = "7.0.0-1019"
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE of cuInit."""
MEMORY_TOTAL_GIB = 110.0
"""MemTotal of a Spark is 119.6 to 121.7 GiB; below this a part of it is gone (docs/facts/bringup.md section 6)."""
MEMORY_AT_REST_GIB = 110.0
"""Without engine 114 to 118 GiB are available after boot; below this somebody holds it (docs/facts/bringup.md
section 10)."""
WARM_C = 85
HOT_C = 90
"""Of the GPU (joeynyc/spark-doctor)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaFacts:
    """What starting CUDA gave."""

    code: int | None
    """Of cuInit(0); None: it could not be called."""
    has_gpu: bool | None = None
    """Whether NVML lists a GPU; None: not known."""
    is_missing: bool = False
    """There is no libcuda."""


@check("machine.cuda-fails", is_rule=False, bring_up="machine.cuda")
def judge_cuda(facts: CudaFacts) -> Judgement:
    """Whether CUDA starts: nvidia-smi may be fine while every CUDA program fails."""
    if facts.is_missing:
        return failed("missing")
    if facts.code is None:
        return unknown("cuInit was not called")
    if facts.code == 0:
        return passed()
    if facts.code == NO_DEVICE and facts.has_gpu:
        return failed("dead-engine")
    return failed("error")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverFacts:
    """What tells whether the kernel keeps memory for a kexec handover (docs/facts/bringup.md section 2.4)."""

    kernel: str
    cma_total_bytes: int | None
    cma_free_bytes: int | None


def handover_facts(kernel: str, memory: Memory) -> HandoverFacts:
    """Those facts from a sample."""
    return HandoverFacts(kernel=kernel, cma_total_bytes=memory.cma_total_bytes, cma_free_bytes=memory.cma_free_bytes)


@check("host.kernel-advisory", bring_up="machine.hidden-memory")
def judge_handover(facts: HandoverFacts) -> Judgement:
    """Whether the kernel keeps memory back that no program gets: CmaTotal 0 with CmaFree above 0."""
    if facts.cma_total_bytes is None or facts.cma_free_bytes is None:
        return unknown("the kernel does not report its CMA")
    has_advisory = facts.kernel.startswith(ADVISORY_KERNEL)
    if facts.cma_total_bytes > 0 or facts.cma_free_bytes == 0:
        return note("advisory") if has_advisory else passed()
    return warning("hides" if has_advisory else "other-kernel", hidden_bytes=facts.cma_free_bytes)


@check("machine.memory-total", is_rule=False, bring_up="machine.memory")
def judge_memory_total(total_bytes: int | None) -> Judgement:
    """Whether all of the memory is there, by MemTotal."""
    if total_bytes is None:
        return unknown("no sample yet")
    return passed() if total_bytes >= MEMORY_TOTAL_GIB * GIB else failed()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestFacts:
    """Memory of a machine, and whether an engine runs on it."""

    available_bytes: float | None
    engines: tuple[str, ...] = ()
    has_looked: bool = True
    """Whether engines were looked for."""


@check("memory.taken-at-rest", is_rule=False, bring_up="memory.rest")
def judge_memory_at_rest(facts: RestFacts) -> Judgement:
    """Whether a machine without engine has its memory free; one with an engine is not at rest."""
    if facts.available_bytes is None:
        return unknown("no sample yet")
    if not facts.has_looked:
        return unknown("engines were not looked for yet")
    if facts.engines:
        return note("busy")
    return passed() if facts.available_bytes >= MEMORY_AT_REST_GIB * GIB else warning()


@check("machine.hot", is_rule=False, bring_up="machine.heat")
def judge_heat(temperature_c: int | None) -> Judgement:
    """Whether the GPU has room to get warmer, by its temperature now."""
    if temperature_c is None:
        return unknown("its temperature was not read")
    return failed() if temperature_c >= HOT_C else warning() if temperature_c >= WARM_C else passed()


PINNED_MHZ = 1400.0
"""A GPU whose power delivery is stuck has 481 to 858 MHz under load, a well one 1900 to 2483."""
PINNED_W = 40.0
"""The most that thatcooperguy/NVCheckup's rule allows the fault; it was seen at 5 to 20 W."""
LOADED_PERCENT = 90.0
LOADED_HEALTHY_W = (70.0, 100.0)
"""Heavy load by docs/facts/gb10.md section 0; a cuBLAS loop drew 84 W."""
LOADED_HEALTHY_MHZ = (1900.0, 2483.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFacts:
    """A GPU under a load of some seconds; each figure the highest of it."""

    busy_percent: float | None
    power_w: float | None
    sm_mhz: float | None
    temperature_c: float | None = None
    is_throttled: bool = False
    """The driver itself says that heat slows the clock."""
    problem: str = ""


@check("machine.power-pinned", is_rule=False, bring_up="machine.power")
def judge_power(facts: PowerFacts) -> Judgement:
    """Whether clock and power rise under load; a GPU whose power delivery is stuck stays at 500 to 850 MHz."""
    if facts.sm_mhz is None or facts.busy_percent is None:
        return unknown(facts.problem or "its clock under load was not read")
    if facts.busy_percent < LOADED_PERCENT:
        return unknown(f"the load kept the GPU only {facts.busy_percent:.0f} % busy", case="unloaded")
    if facts.sm_mhz >= PINNED_MHZ:
        return passed(sm_mhz=facts.sm_mhz)
    if facts.is_throttled or (facts.temperature_c is not None and facts.temperature_c >= WARM_C):
        return warning("hot", sm_mhz=facts.sm_mhz)
    is_pinned = facts.power_w is None or facts.power_w < PINNED_W
    return failed("pinned", sm_mhz=facts.sm_mhz) if is_pinned else warning("slow", sm_mhz=facts.sm_mhz)


@check("launch.context", is_rule=False, gate="context")
def judge_context(tokens: tuple[int | None, int | None, bool]) -> Judgement:
    """Whether the context is longer than the model's own maximum, which vLLM and SGLang refuse by default.

    Only a warning: a rope scaling in its config.json may extend it.

    Args:
        tokens: of a request's context (None: the engine chooses), of the model at most, whether the engine caps it.
    """
    context, longest, is_capped = tokens
    if context is None:
        return passed("chosen")
    if longest is None:
        return unknown("how long the model's context may be is not known")
    if context <= longest:
        return passed()
    return warning("capped" if is_capped else "longer")
