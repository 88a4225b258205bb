"""What an engine says of itself: its log, requests it holds without a token, a load that stands still, silence.

Which of the machine's failures is behind it, other rules say; what follows from them hangs under them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sparktop.diagnose.live.window import highest
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.engine import EndpointState, Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, LinkState, NodeView

HELD_S = 20.0
COUNTED_WITHIN_S = 6.0
"""After a prompt's end until its tokens have been scraped."""
LONG_PREFILL_S = 180.0
"""At work's power a prompt of a hundred thousand tokens takes this long before its first token."""
WORKING_POWER_W = 60.0
"""Prefill draws 70 to 100 W on GB10, decoding 31 to 45 (facts/gb10.md section 0)."""
STILL_S = 300.0
"""A load's count may stand this long: one shard from a cold disk, a first compilation."""
BUSY_CPU_PERCENT = 12.0
"""Some two and a half of twenty cores: compiling, or reading."""
ENDED_TOLD_S = 600.0
OF_A_HANG = frozenset(
    (
        "vllm.rpc-timeout",
        "vllm.shm-broadcast-wait",
        "vllm.shm-broadcast-stall",
        "sglang.watchdog-timeout",
        "sglang.watchdog-soft",
        "sglang.health-check-failed",
        "dist.collective-timeout",
        "ray.channel-timeout",
    )
)
"""Log rules whose lines a rank writes because another, or the GPU, doesn't answer."""


def check_log(fleet: FleetState) -> Iterator[Finding]:
    """What the log rules found in the logs of engines that run, or ended lately."""
    for node in fleet.nodes:
        now_s = node.sample.wall_s if node.sample else None
        for engine in node.engines:
            if engine.log is None:
                continue
            if engine.state is EngineState.EXITED and (
                now_s is None or engine.exited_wall_s is None or now_s - engine.exited_wall_s > ENDED_TOLD_S
            ):
                continue
            for finding in engine.log.findings:
                said_s = min((one.wall_s for one in finding.evidence if one.wall_s is not None), default=None)
                yield replace(finding, nodes=(node.name,), subject=engine.name, since_wall_s=said_s)


def _of_log(fleet: FleetState, *, is_of_a_hang: bool) -> Iterator[Finding]:
    """The log's findings that a hang brings about, or the others: those have causes of their own."""
    return (finding for finding in check_log(fleet) if (finding.rule in OF_A_HANG) is is_of_a_hang)


def check_held(fleet: FleetState) -> Iterator[Finding]:
    """Requests held and no token for a while, unless the power says that a long prompt is being read."""
    for node in fleet.nodes:
        if node.link.state is not LinkState.LIVE:
            continue
        for engine in node.engines:
            held = engine.metrics.running if engine.metrics else None
            still_s = engine.rates.progress_age_s if engine.rates else None
            if not held or still_s is None or still_s < HELD_S or engine.state is EngineState.EXITED:
                continue
            # A prompt read to its end is counted a moment after its power has gone.
            now_w = node.first_gpu.power_w if node.first_gpu else None
            power_w = max(
                (w for w in (now_w, highest(node.power_history, COUNTED_WITHIN_S)) if w is not None), default=None
            )
            if power_w is not None and power_w >= WORKING_POWER_W and still_s < LONG_PREFILL_S:
                continue
            yield _held(node, engine, held, still_s)


def _held(node: NodeView, engine: Engine, held: float, still_s: float) -> Finding:
    gpu = node.first_gpu
    drawn = ""
    if gpu is not None and gpu.utilisation_percent is not None and gpu.power_w is not None:
        drawn = f"SM {gpu.utilisation_percent:.0f} % at {gpu.power_w:.0f} W"
    wait = engine.metrics.waiting if engine.metrics else None
    return Finding(
        rule="engine.no-tokens",
        severity=Severity.WARNING,
        confidence=Confidence.CONFIRMED,
        title=f"{engine.name} has {held:.0f} request{'s' if held != 1 else ''} in progress and gives no token",
        explanation=(
            "Its own counters of prompt and generated tokens stand still while requests are in progress. "
            "`/health` stays "
            "green through this: it only tells that the web server lives. Whether the GPU spins, waits for its "
            "other rank, "
            "or is busy with something else, its power, clock and the kernel log tell."
        ),
        distinction=("A long prompt also gives no token for a while, but draws 70 W and more: this does not.",),
        evidence=(
            Evidence(
                source=f"{engine.name} @ {node.name} metrics",
                text=f"{held:.0f} running, {wait or 0:.0f} waiting, token counters still for {still_s:.0f} s",
            ),
            *([Evidence(source=f"{node.name} nvml", text=drawn)] if drawn else []),
        ),
        remedies=(
            Remedy(title="Collect evidence before anything is restarted", cost="seconds", action="collect-evidence"),
            Remedy(
                title="Restart the engine safely",
                cost="the requests it holds; the time to load",
                action="safe-restart",
            ),
        ),
        references=("eugr/spark-vllm-docker#260", "vllm-project/vllm#41725"),
        nodes=(node.name,),
        subject=engine.name,
        brief=f"no token for {still_s:.0f} s" + (f", {drawn}" if drawn else ""),
    )


def check_load(fleet: FleetState) -> Iterator[Finding]:
    """A load whose count has stood still for minutes, with neither GPU, CPU nor disk at work."""
    for node in fleet.nodes:
        if node.link.state is not LinkState.LIVE or node.sample is None:
            continue
        gpu = node.first_gpu
        for engine in node.engines:
            log = engine.log
            if engine.state not in (EngineState.LOADING, EngineState.STARTING) or log is None:
                continue
            if log.moved_wall_s is None or log.last_line_wall_s is None or engine.endpoint is None:
                continue  # a rank without a server never says that it is done
            still_s = node.sample.wall_s - max(log.moved_wall_s, log.last_line_wall_s)
            is_busy = (
                gpu is None
                or (gpu.utilisation_percent or 0) >= 10
                or (node.cpu_busy_percent or 100.0) >= BUSY_CPU_PERCENT
                or (node.sample.io_pressure is not None and node.sample.io_pressure.some_avg60 >= 5)
            )
            if still_s >= STILL_S and not is_busy:
                yield _load(node, engine, still_s)


def _load(node: NodeView, engine: Engine, still_s: float) -> Finding:
    at = f"{engine.progress.phase} {engine.progress.done}/{engine.progress.total}" if engine.progress else "its start"
    return Finding(
        rule="engine.load-stalled",
        severity=Severity.WARNING,
        confidence=Confidence.SUSPECTED,
        title=f"{engine.name} has stood still at {at} for {still_s / 60:.0f} min",
        explanation=(
            "Its log says nothing new, and neither GPU, processor nor disk works: it waits for something. On two "
            "nodes that "
            "is most often the other rank (its log, its interface names, a firewall on the fabric); on one a "
            "download, a "
            "lock in the cache directory, or a question on a terminal that nobody sees."
        ),
        settles=f"what it waits in: `docker exec {engine.name} py-spy dump --pid 1`, and the other node's log",
        evidence=(
            Evidence(source=f"{engine.name} @ {node.name}", text=f"no line and no progress for {still_s:.0f} s"),
        ),
        remedies=(
            Remedy(title="Look at the other rank's log, then restart both together", action="safe-restart"),
            Remedy(title="Collect evidence", cost="seconds", action="collect-evidence"),
        ),
        references=("field report 003",),
        nodes=(node.name,),
        subject=engine.name,
        brief=f"still for {still_s / 60:.0f} min",
    )


def check_silent(fleet: FleetState) -> Iterator[Finding]:
    """A server that served and doesn't answer its own figures any more, though its process lives."""
    for node in fleet.nodes:
        if node.link.state is not LinkState.LIVE:
            continue
        for engine in node.engines:
            served = engine.state in (EngineState.READY, EngineState.SERVING) and engine.metrics is not None
            if served and engine.endpoint is not None and engine.endpoint.state is EndpointState.TIMED_OUT:
                yield Finding(
                    rule="engine.not-answering",
                    severity=Severity.WARNING,
                    title=f"{engine.name} does not answer on port {engine.endpoint.port}",
                    explanation=(
                        "The connection stands and no answer comes within the limit. The server process is "
                        "there; it is "
                        "starved of memory or processor, or its event loop is blocked. The figures shown are its "
                        "last ones."
                    ),
                    evidence=(
                        Evidence(
                            source=f"{engine.name} @ {node.name}",
                            text=engine.endpoint.detail or "GET /metrics timed out",
                        ),
                    ),
                    remedies=(
                        Remedy(title="Collect evidence", cost="seconds", action="collect-evidence"),
                        Remedy(title="Restart it safely", cost="the requests it holds", action="safe-restart"),
                    ),
                    references=("vllm-project/vllm#41725",),
                    nodes=(node.name,),
                    subject=engine.name,
                    brief="no answer to /metrics",
                )


def _card(name: str, title: str, scope: str, *sources: str) -> Rule:
    return Rule(
        id=f"engine.{name}", kind=RuleKind.LIVE, title=title, severity=Severity.WARNING, scope=scope, sources=sources
    )


_HANGS = (
    "gpu.spin-deadlock",
    "gpu.capture-stuck",
    "gpu.power-wedge",
    "cluster.rank-died",
    "cluster.link-down",
    "kernel.xid",
    "memory.falling",
    "memory.low",
)
RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=_card("log", "What an engine's log tells, by the log rules", "vLLM and SGLang, wherever the log is read"),
        check=partial(_of_log, is_of_a_hang=False),
    ),
    LiveRule(
        card=_card(
            "log-of-a-hang",
            "What an engine's log tells of a standstill: time-outs, watchdogs, ranks that wait",
            "vLLM and SGLang, wherever the log is read",
        ),
        check=partial(_of_log, is_of_a_hang=True),
        follows=_HANGS,
    ),
    LiveRule(
        card=_card(
            "no-tokens",
            "Requests held and no token",
            "engines whose figures are read",
            "eugr/spark-vllm-docker#260",
        ),
        check=check_held,
        follows=_HANGS,
    ),
    LiveRule(
        card=_card(
            "load-stalled", "A load that stands still with nothing at work", "vLLM and SGLang", "field report 003"
        ),
        check=check_load,
        hold_s=10.0,
        follows=("cluster.rank-died", "cluster.interface-wrong", "cluster.gid-index", "memory.pressure"),
    ),
    LiveRule(
        card=_card(
            "not-answering",
            "A server that stopped answering",
            "engines whose figures are read",
            "vllm-project/vllm#41725",
        ),
        check=check_silent,
        hold_s=15.0,
        follows=("memory.starved", "memory.falling", "memory.low", "memory.pressure"),
    ),
)
