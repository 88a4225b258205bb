"""Reads texts that are a whole and not a log: what `docker inspect`, `docker ps`, `nvidia-smi` and an API "
"answer say."""

from __future__ import annotations

from sparktop.diagnose.documents import answer, capture, inspection, processes, smi
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

READERS = (inspection.read, processes.read, smi.read, answer.read, capture.read)


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """What the documents in a text say; None where there is none, an empty tuple where they tell of nothing wrong.

    They may stand between other lines, as in a terminal's copy. Pure; never raises.
    """
    said = [found for reader in READERS if (found := reader(text, source)) is not None]
    return tuple(finding for found in said for finding in found) if said else None


def cards() -> tuple[Rule, ...]:
    """What documents are read for, besides how containers end (`exits.cards`)."""
    return tuple(
        Rule(id=name, kind=RuleKind.DOCUMENT, title=title, severity=severity, scope=scope, sources=sources)
        for name, severity, title, scope, sources in _CARDS
    )


_CARDS = (
    (
        "restart.unhealthy",
        Severity.WARNING,
        "A container is up and its health check fails",
        "docker ps, docker compose ps",
        ("Docker: HEALTHCHECK",),
    ),
    (
        "driver.gpu-error",
        Severity.CRITICAL,
        "A GPU reports ERR! for some of its figures",
        "nvidia-smi's table",
        ("NVIDIA: nvidia-smi documentation",),
    ),
    (
        "driver.ecc-errors",
        Severity.CRITICAL,
        "A GPU has uncorrectable ECC errors",
        "nvidia-smi's table, GPUs with ECC (not GB10)",
        ("NVIDIA: GPU memory error management",),
    ),
    (
        "gpu.busy-at-low-power",
        Severity.WARNING,
        "The GPU is busy at idle's power: spinning, or starved of power",
        "nvidia-smi's table on GB10",
        ("vllm-project/vllm#46097", "Blackwellboy/model-serving-minefield", "field report 003"),
    ),
    (
        "gpu.slowed-down",
        Severity.WARNING,
        "The GPU is slowed down by heat or by its supply",
        "nvidia-smi -q",
        ("NVIDIA: nvidia-smi documentation",),
    ),
    (
        "serving.content-null",
        Severity.WARNING,
        "The answer's content is null: the model spent its tokens on reasoning",
        "an API's answer",
        ("field report 002",),
    ),
    (
        capture.RULE,
        Severity.WARNING,
        "The log ends while CUDA graphs are captured",
        "vLLM and SGLang logs as a whole",
        ("field report 003",),
    ),
)
