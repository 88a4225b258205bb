"""Findings made by hand, as rules would make them, for pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparktop.clock import ManualClock
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, LogPlace, Phase, Remedy
from sparktop.model.fleet import FleetState

BOTH = ("spark1", "spark2")


def spin(wall_s: float) -> Finding:
    """Both ranks wait on one another."""
    return Finding(
        rule="gpu.spin-deadlock",
        severity=Severity.CRITICAL,
        title="Spin deadlock across both nodes",
        explanation=(
            "Both ranks wait on one another inside a collective: the SMs poll, so utilisation stays at 96 %, while "
            "power falls to that of a loaded model with nothing to do. Three requests have been held for 121 s and "
            "neither the token counters nor the engine's log have moved. It does not come back by itself."
        ),
        distinction=(
            "A long prefill draws decode power or more; this draws 15 W where decode here draws 38 W.",
            "The SM clock stands at 2405 MHz, so the power delivery is not at fault.",
            "Requests are held, so this is not an idle engine.",
        ),
        evidence=(
            Evidence(source="spark1 nvml", text="SM 96 % at 15 W and 2405 MHz for 121 s", wall_s=wall_s),
            Evidence(source="spark2 nvml", text="SM 96 % at 15 W and 2405 MHz for 120 s", wall_s=wall_s),
            Evidence(
                source="vllm-minimax @ spark1",
                log=LogPlace("spark1", "vllm-minimax"),
                text="3 requests running, 0.0 tok/s, generation_tokens_total unmoved for 121 s",
                wall_s=wall_s,
            ),
            Evidence(
                source="spark1 kernel log",
                log=LogPlace("spark1"),
                line=8121,
                text="NVRM: Xid (PCI:000f:01:00): 43, pid=197277, name=VLLM::Worker_TP, Ch 00000008",
                wall_s=wall_s - 140,
            ),
        ),
        remedies=(
            Remedy(
                title="Restart both ranks together",
                steps=(
                    "docker stop vllm-minimax            # on spark2, then on spark1",
                    "docker start vllm-minimax           # on spark1, then on spark2",
                ),
                cost="the three held requests; some 4 min to load",
                action="safe-restart",
            ),
            Remedy(
                title="If it comes back: start without CUDA graphs",
                steps=("add --enforce-eager to both ranks",),
                cost="10 to 15 % of the decode speed",
                action="relaunch",
            ),
        ),
        references=("field report 003", "vllm-project/vllm#46097"),
        nodes=BOTH,
        brief="96 % SM at 15 W, 0 tok/s, 3 requests held",
        since_wall_s=wall_s - 121,
    )


def apart(wall_s: float) -> Finding:
    return Finding(
        rule="memory.apart",
        severity=Severity.WARNING,
        title="Available memory 7 GB apart",
        explanation="spark1 had 107 GiB available before the load, spark2 100. vLLM sizes the KV cache by the smaller.",
        evidence=(Evidence(source="spark1", text="107.2 GiB available before the load", wall_s=wall_s - 7440),),
        remedies=(Remedy(title="Drop the page cache on spark2 before the next start", action="drop-caches"),),
        references=("field report 002",),
        nodes=BOTH,
        brief="100 against 107 GiB before load",
        since_wall_s=wall_s - 250,
    )


def held(wall_s: float) -> Finding:
    return Finding(
        rule="engine.requests-held",
        severity=Severity.CRITICAL,
        title="Clients of vllm-minimax get no answer",
        explanation="Three requests wait, and each new one joins them.",
        nodes=("spark1",),
        subject="vllm-minimax",
        brief="3 running, 0 waiting, none finished for 121 s",
        caused_by="gpu.spin-deadlock",
        since_wall_s=wall_s - 92,
    )


def rdma(wall_s: float) -> Finding:
    return Finding(
        rule="cluster.rdma-still",
        severity=Severity.WARNING,
        confidence=Confidence.SUSPECTED,
        title="No byte moves between the nodes",
        explanation="The RDMA counters of both ports stand still while requests are held.",
        settles="ib_write_bw between the two ports while it is so: if bytes flow there, the link itself is well.",
        nodes=BOTH,
        brief="0 B/s over enp1s0f0np0 for 121 s",
        caused_by="gpu.spin-deadlock",
        since_wall_s=wall_s - 121,
    )


def dead_variable(wall_s: float) -> Finding:
    return Finding(
        rule="config.variable-unread",
        severity=Severity.INFO,
        title="VLLM_DISABLE_CUDA_GRAPH does nothing in vLLM 0.14",
        explanation="No release ever read that variable; `--enforce-eager` is what turns CUDA graphs off.",
        scope="vLLM, all versions",
        evidence=(
            Evidence(
                source="vllm-minimax @ spark1", text="VLLM_DISABLE_CUDA_GRAPH=1", log=LogPlace("spark1", "vllm-minimax")
            ),
        ),
        nodes=("spark1",),
        subject="VLLM_DISABLE_CUDA_GRAPH",
        since_wall_s=wall_s - 7440,
    )


def unaccounted(wall_s: float) -> Finding:
    return Finding(
        rule="memory.unaccounted",
        severity=Severity.WARNING,
        confidence=Confidence.SUSPECTED,
        title="11 GiB are held by no one",
        explanation="Since the last engine ended 11 GiB less are available than this machine had after boot.",
        settles="wait a minute: what still drains comes back by itself; what stands still does not.",
        nodes=("spark2",),
        brief="101 of 112 GiB, standing still",
        since_wall_s=wall_s - 640,
    )


def hot(wall_s: float) -> Finding:
    return Finding(
        rule="gpu.throttled",
        severity=Severity.WARNING,
        title="The GPU is slowed for its heat",
        nodes=("spark2",),
        brief="88 °C, 1410 of 2405 MHz",
        phase=Phase.RESOLVED,
        since_wall_s=wall_s - 900,
        resolved_wall_s=wall_s - 185,
    )


def full_disk(wall_s: float) -> Finding:
    return Finding(
        rule="host.disk-low",
        severity=Severity.WARNING,
        title="The disk of the models is nearly full",
        nodes=("spark1",),
        subject="/",
        brief="41 GB of 3.7 TB free",
        since_wall_s=wall_s - 90_000,
    )


def falling(wall_s: float) -> Finding:
    return Finding(
        rule="memory.falling",
        severity=Severity.CRITICAL,
        title="spark1 will be starved of memory in 8 s: available memory is falling",
        explanation="Available memory fell 31 GiB in 6 s. When nothing is left the host hangs, SSH with it.",
        remedies=(Remedy(title="Stop vllm-minimax now", steps=("docker stop -t 2 vllm-minimax",)),),
        references=("field report 001",),
        nodes=("spark1",),
        brief="45.4 GiB available, -5.7 GiB/s, empty in 8 s",
        since_wall_s=wall_s - 2,
    )


def killed(wall_s: float) -> Finding:
    return Finding(
        rule="guard.fired",
        severity=Severity.WARNING,
        title="The guard killed vllm-minimax: memory would have been empty in 2 s",
        remedies=(Remedy(title="Start it with a smaller share", action="relaunch"),),
        nodes=("spark1",),
        subject="vllm-minimax",
        brief="17.2 GiB left, ended in 0.41 s",
        since_wall_s=wall_s - 40,
    )


def low(wall_s: float) -> Finding:
    return Finding(
        rule="memory.low",
        severity=Severity.CRITICAL,
        title="spark1 has 3.1 GiB of memory available: one more allocation can hang it",
        nodes=("spark1",),
        brief="3.1 of 121.7 GiB available",
        since_wall_s=wall_s - 700,
    )


def with_findings(fleet: FleetState, clock: ManualClock, *makers: Callable[[float], Finding]) -> FleetState:
    """The picture with these findings, as the Monitor would publish it."""
    return replace(fleet, findings=tuple(make(clock.wall()) for make in makers), rules_watching=58)
