"""The host that is starved already: TCP answers, SSH doesn't, and the trajectory up to the gap says why.

Under thrash a handshake took 22-30 s, and a new session asks the host for memory that it has not (field report 001).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.live.starvation import EMPTY_IN_S, LOW_BYTES, trajectory
from sparktop.diagnose.live.window import GIB, gib, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Remedy
from sparktop.model.fleet import FleetState, LinkState, Reach


def check(fleet: FleetState) -> Iterable[Finding]:
    """memory.starved: the host takes TCP connections and does not answer SSH.

    Confirmed where memory was low or falling when it was last seen, suspected otherwise.
    """
    for node in fleet.nodes:
        if node.link.state not in (LinkState.STALE, LinkState.LOST) or node.link.reach is not Reach.STARVED:
            continue
        last = node.available_history.values[-1] if node.available_history.values else None
        trend = node.trend
        fell = trend is not None and trend.time_to_empty_s is not None and trend.time_to_empty_s < EMPTY_IN_S
        psi = node.sample.memory_pressure if node.sample else None
        stalled = psi is not None and psi.full_avg10 > 20
        sure = last is not None and (last < LOW_BYTES or fell or stalled)
        silent_s = node.age_s(fleet.monotonic_s) or fleet.monotonic_s - node.link.since_s
        if sure and last is not None:
            rate = f", falling {-trend.bytes_per_s / GIB:.1f} GiB/s" if trend is not None and fell else ""
            why = f"The last that was seen was {gib(last)} available{rate}"
        elif last is not None:
            why = f"Memory looked well when it was last seen ({gib(last)} available), so this may be another hang"
        else:
            why = "Nothing was seen of its memory before"
        yield Finding(
            rule="memory.starved",
            severity=Severity.CRITICAL,
            confidence=Confidence.CONFIRMED if sure else Confidence.SUSPECTED,
            title=f"{node.name} is starved of memory: it takes connections and does not answer SSH"
            if sure
            else f"{node.name} takes connections and does not answer SSH: most likely starved of memory",
            explanation=(
                f"No sample has come for {span(silent_s)}; TCP answers and no SSH banner comes. {why}. The kernel has "
                "no memory to fork sshd with, or thrashes: it may take minutes to answer, kill something, or stay so. "
                "It is neither down nor off the network."
            ),
            distinction=("The network is up: the node's kernel still completes TCP handshakes.",),
            settles="" if sure else "The previous boot's kernel log after it returns: oom-kill or NV_ERR_NO_MEMORY.",
            evidence=tuple(trajectory(node)),
            remedies=(
                Remedy(
                    title="Wait a few minutes: the kernel may kill the engine, and SSH then returns",
                    steps=("don't open more sessions: each asks it for memory it has not",),
                    cost="time",
                ),
                Remedy(
                    title="If it stays so, switch it off and on",
                    steps=("hold the power button until it is off, then start it",),
                    cost="everything running on it; about two minutes",
                ),
                Remedy(
                    title="Before the engine runs again, leave the host more room",
                    steps=(
                        "lower --gpu-memory-utilization (or --mem-fraction-static) so that 20 GiB stay available",
                        "after a first request starved it: --enforce-eager, or a smaller model",
                    ),
                    cost="some of the KV cache",
                ),
            ),
            references=("field report 001", "NVIDIA/dgx-spark-playbooks#116"),
            nodes=(node.name,),
            brief=f"silent {span(silent_s)}" + (f", last seen {gib(last)} available" if last is not None else ""),
        )


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=Rule(
            id="memory.starved",
            kind=RuleKind.LIVE,
            title="The host completes TCP handshakes and gives no SSH banner",
            severity=Severity.CRITICAL,
            scope="any node, after its samples stopped",
            sources=("field report 001", "NVIDIA/dgx-spark-playbooks#116"),
        ),
        check=check,
        follows=("memory.first-request-spike", "memory.falling", "memory.low"),
    ),
)
