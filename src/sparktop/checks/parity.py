"""Checks of what the nodes of one engine must have in common: versions, images, available memory."""

from __future__ import annotations

import re
from collections.abc import Callable

from sparktop.checks.judgement import Judgement, check, failed, note, passed, unknown, warning
from sparktop.dataclass import dataclass
from sparktop.model.engine import EQUAL_MEMORY_GIB, EngineKind

Versions = tuple[str, ...]
"""One component's version on each node; empty: not known."""


def _compared(versions: Versions, judge: Callable[..., Judgement]) -> Judgement:
    if not all(versions):
        return unknown("it was not read on all")
    older = min(range(len(versions)), key=lambda index: _numbers(versions[index]))
    return passed() if len(set(versions)) == 1 else judge(older=older)


@check("cluster.driver-differs", gate="same-driver", bring_up="parity.driver")
def judge_driver_parity(versions: Versions) -> Judgement:
    """Whether all load one NVIDIA driver: each has its own faults to shared collectives and graphs."""
    return _compared(versions, warning)


@check("cluster.kernel-differs", gate="same-driver", bring_up="parity.kernel")
def judge_kernel_parity(versions: Versions) -> Judgement:
    """Whether all run one kernel, which owns memory, network driver and NVIDIA module."""
    return _compared(versions, warning)


@check("cluster.dgx-os-differs", gate="same-driver", bring_up="parity.dgx-os")
def judge_release_parity(versions: Versions) -> Judgement:
    """Whether all have one release of DGX OS, which by itself harms nothing."""
    return _compared(versions, note)


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.split(r"[.-]", version) if digits.isdecimal()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """The images of two ranks, as two Docker Engines name them."""

    ids: tuple[str, str]
    """Empty: not known."""
    digests: tuple[frozenset[str], frozenset[str]] | None = None
    """Registry digests; None: not known, so the containerd store may give one image two ids."""
    contents: tuple[object, object] | None = None
    """Layers and settings, for comparison."""


@check("cluster.image-differs", gate="image")
def judge_image_parity(facts: ImageFacts) -> Judgement:
    """Whether both ranks run one build: others hang in a collective or fail without naming a cause."""
    if not all(facts.ids):
        return unknown("an image is not known")
    if facts.ids[0] == facts.ids[1]:
        return passed()
    if facts.digests is None:
        return warning()
    shares_digest = bool(facts.digests[0] & facts.digests[1])
    has_same_content = facts.contents is not None and bool(facts.contents[0]) and facts.contents[0] == facts.contents[1]
    return passed() if shares_digest or has_same_content else failed()


TOLERATED_SHARE = 0.1
"""Of the larger node's memory: SGLang refuses to load with a larger difference (docs/facts/engines.md section 2.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """What the nodes have available without the engine, in bytes; None: not known."""

    available: tuple[float | None, ...]
    limit_gib: float = EQUAL_MEMORY_GIB
    """The largest difference that a launch takes."""
    is_loading: bool = False
    """Whether the engine loads already, so that it is too late to make them equal."""
    engine: EngineKind | None = None
    """SGLang compares the nodes itself and loads within TOLERATED_SHARE; vLLM takes its share of each, unasked."""


@check("cluster.memory-apart", gate="equal-memory")
def judge_memory_parity(facts: MemoryFacts) -> Judgement:
    """Whether one share of memory fits all nodes (docs/facts/engines.md MEM-09)."""
    sizes = [size for size in facts.available if size is not None]
    if len(sizes) < len(facts.available):
        return unknown("how much memory is available is not known")
    apart_bytes, poorer = max(sizes) - min(sizes), sizes.index(min(sizes))
    is_refused = apart_bytes > TOLERATED_SHARE * max(sizes)
    is_near = apart_bytes <= facts.limit_gib * (1 << 30)
    is_grave = facts.is_loading and (is_refused or facts.engine is not EngineKind.SGLANG)
    judge = passed if is_near else failed if is_grave else warning
    return judge(apart_bytes=apart_bytes, poorer=poorer)
