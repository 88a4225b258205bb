"""Rules on what an engine itself shows: its log, requests without tokens, a stalled load, a silent server.

Other rules name the machine's failures behind it; these findings then appear as their consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sparktop.cmdline.engine_flags import is_in
from sparktop.diagnose.logs.rule import of_clients
from sparktop.diagnose.rule import LiveRule, live_rule
from sparktop.diagnose.rules.memory.held import OTHER_HOLDER_BYTES, largest_of_no_engine
from sparktop.diagnose.rules.window import highest, of_engine
from sparktop.engines.memory_target import SHARE_FLAGS
from sparktop.engines.ranks import is_alive
from sparktop.knowledge.card import found, remedies
from sparktop.model.engine import EndpointState, Engine, EngineKind, EngineMetrics, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, LogPlace, Remedy
from sparktop.model.fleet import FleetState, NodeView, has_rebooted_since, live_engines
from sparktop.model.telemetry import Process
from sparktop.text.units import GIB, gib, percent, requests

FULL_RATIO = 0.98
EVICTED_PER_MIN = 2.0
"""One preemption may be chance."""
SPARE_BYTES = 26 * GIB
"""Available memory from which the host can give 6 GiB and keep its reserve of 20."""
HELD_S = 20.0
HARMS_S = 60.0
"""Requests held so long are lost to whoever sent them."""
COUNTED_WITHIN_S = 6.0
"""Tokens of a finished prompt are scraped this long afterwards at most."""
LONG_PREFILL_S = 180.0
"""At working power, a prompt of a hundred thousand tokens takes this long before its first token."""
WORKING_POWER_W = 60.0
"""Prefill draws 70 to 100 W on GB10, decode 31 to 45 W (docs/facts/gb10.md section 0)."""
STILL_S = 300.0
"""A load's count may stand still this long: one shard from a cold disk, a first compilation."""
BUSY_CPU_PERCENT = 12.0
"""About two and a half of twenty cores: compiling, or reading."""
ENDED_REPORTED_S = 600.0
CLIENTS_S = 600.0
"""How long what clients do wrong is told after its last line."""
STACK_DUMPS = "--watchdog-config.dump_dir"
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
"""Log rules whose lines a rank writes because another rank, or the GPU, doesn't answer."""
OF_UNEQUAL_MEMORY = frozenset(("sglang.memory-unbalanced", "sglang.memory-unbalanced-bare"))
"""Log rules whose lines a rank writes because the other node has less memory."""
OF_ANOTHER_RANKS_END = frozenset(
    (
        "vllm.engine-died",
        "sglang.process-died",
        "sglang.other-rank-not-loaded",
        "nccl.peer-gone",
        "gloo.peer-gone",
        "dist.work-failed",
        "dist.store-gone",
        "ray.actor-died",
        "ray.channel-closed",
        "ray.node-dead",
    )
)
"""Log rules whose lines a rank writes because another rank exited, where its own log names no other cause."""
LACKS_MEMORY = frozenset(
    (
        "vllm.free-memory-below-utilisation",
        "vllm.kv-no-memory",
        "vllm.load-out-of-memory",
        "torch.oom-other-process",
        "torch.oom-loading",
        "sglang.not-enough-memory",
    )
)
"""Log rules of a start that found less memory than it needs: another program may hold it."""
PORT_IN_USE = "start.port-in-use"
OF_NODES_BEFORE_IT = OF_UNEQUAL_MEMORY | OF_ANOTHER_RANKS_END | LACKS_MEMORY
"""Log rules of the memory that a start found, or of another node's rank: a reboot has ended both."""
OF_A_FULL_CACHE = frozenset(("vllm.kv-cache-full",))
"""Log rules that say what `kv_cache_full` says of an engine whose metrics are read."""
_CAUSED_ELSEWHERE = OF_A_HANG | OF_UNEQUAL_MEMORY | OF_ANOTHER_RANKS_END


def _log_findings(fleet: FleetState, is_told: Callable[[str], bool]) -> Iterator[Finding]:
    """The log rules' findings for engines that run or ended recently. `is_told` is asked of each one's rule."""
    for node in fleet.nodes:
        now_s = node.sample.wall_s if node.sample else 0.0
        for engine in node.engines:
            if engine.log is None:
                continue
            if not is_alive(engine) and not 0 < now_s <= (engine.exited_wall_s or 0.0) + ENDED_REPORTED_S:
                continue
            if has_rebooted_since(node, engine.exited_wall_s):
                continue  # the boot has ended what it told of; that the engine is down is told by engine.down
            has_rebooted = any(has_rebooted_since(one, engine.exited_wall_s) for one in fleet.nodes)
            for finding in _folded(engine.log.findings):
                if not is_told(finding.rule) or (finding.rule in OF_A_FULL_CACHE and engine.metrics is not None):
                    continue
                if has_rebooted and finding.rule in OF_NODES_BEFORE_IT:
                    continue
                stamps = [line.wall_s for line in finding.evidence if line.wall_s is not None]
                logged_s = finding.since_wall_s or min(stamps, default=None)
                is_of_clients = finding.rule in of_clients()
                if is_of_clients and (len(finding.evidence) == 1 or now_s - max(stamps, default=now_s) > CLIENTS_S):
                    continue
                log = LogPlace(node.name, engine.name)
                is_clear = len(node.engines) == 1 or engine.name in finding.title
                title = finding.title if is_clear else f"{engine.name}: {finding.title}"
                in_the_way = "" if engine.log.has_served else _in_the_way(finding.rule, engine, node)
                if in_the_way:
                    title = found("engine.log", "blocked", {"engine": engine.name, "holder": in_the_way}).title
                    finding = replace(finding, explanation=f"{finding.title}. {finding.explanation}")
                yield replace(
                    finding,
                    severity=_severity(finding, engine),
                    title=title,
                    nodes=(node.name,),
                    subject=engine.name,
                    since_wall_s=logged_s,
                    evidence=tuple(replace(line, log=log) for line in finding.evidence),
                    remedies=(*_end_holder(finding, node), *finding.remedies),
                )


def _folded(findings: Sequence[Finding]) -> Iterator[Finding]:
    """One finding a failure: what follows from another one of the log stands in that one's evidence."""
    causes = {finding.rule: finding.caused_by for finding in findings}

    def root(rule: str) -> str:
        way = [rule]
        while (cause := causes[way[-1]]) in causes and cause not in way:
            way.append(cause)
        return rule if cause in way else way[-1]  # of a circle, each one is told

    roots = {rule: root(rule) for rule in causes}
    for finding in findings:
        if roots[finding.rule] == finding.rule:
            then = [one for one in findings if roots[one.rule] == finding.rule != one.rule]
            lines = (replace(one.evidence[0], text=f"then: {one.title}") for one in then if one.evidence)
            yield replace(finding, evidence=(*finding.evidence, *lines)) if then else finding


def _severity(finding: Finding, engine: Engine) -> Severity:
    """Of clients a note; of a container that somebody removed before it ever served no more than a warning."""
    if finding.rule in of_clients():
        return Severity.INFO
    has_served = engine.served is not None or bool(engine.log and engine.log.has_served)
    is_past = engine.container is not None and engine.container.is_gone and not has_served
    return Severity.WARNING if is_past and finding.severity is Severity.CRITICAL else finding.severity


def _in_the_way(rule: str, engine: Engine, node: NodeView) -> str:
    """Who holds the memory or the port that its start lacks: "python3 (pid 93111) holds 58.0 GiB"; "" if not known."""
    others = [other for other in node.engines if other is not engine and is_alive(other)]
    if rule == PORT_IN_USE:
        port = engine.command.port
        return next((f"{one.name} has port {port}" for one in others if one.command.port == port), "")
    if rule not in LACKS_MEMORY:
        return ""
    if (holder := largest_of_no_engine(node, OTHER_HOLDER_BYTES)) is not None:
        return f"{holder.name.rpartition('/')[2]} (pid {holder.pid}) holds {gib(holder.used_bytes or 0)}"
    largest = max(others, key=lambda other: other.gpu_bytes or 0, default=None)
    held_bytes = (largest.gpu_bytes or 0) if largest is not None else 0
    return f"{largest.name} holds {gib(held_bytes)}" if largest is not None and held_bytes > OTHER_HOLDER_BYTES else ""


def _end_holder(finding: Finding, node: NodeView) -> tuple[Remedy, ...]:
    """Ends the program that holds the memory which a start lacks, where one does now."""
    holder = largest_of_no_engine(node, OTHER_HOLDER_BYTES) if finding.rule in LACKS_MEMORY else None
    if holder is None:
        return ()
    figures = {"name": holder.name.rpartition("/")[2], "pid": holder.pid, "size": gib(holder.used_bytes or 0)}
    offered = remedies("engine.log", "held", {**figures, "node": node.name})
    return tuple(replace(remedy, pid=holder.pid) for remedy in offered)


def _log_rule(rule_id: str, is_told: Callable[[str], bool], *follows: str) -> LiveRule:
    """What log rules have read in an engine's log, of those that `is_told` names: they follow from the same."""
    return live_rule(rule_id, follows=follows)(lambda fleet: _log_findings(fleet, is_told))


LOGS = (
    _log_rule("engine.log", lambda rule: rule not in _CAUSED_ELSEWHERE),
    _log_rule("engine.log-of-a-hang", OF_A_HANG.__contains__, *_HANGS),
    _log_rule("engine.log-of-unequal-memory", OF_UNEQUAL_MEMORY.__contains__, "cluster.memory-apart"),
    _log_rule("engine.log-of-another-rank", OF_ANOTHER_RANKS_END.__contains__, "cluster.rank-died"),
)


@live_rule(
    "engine.no-tokens",
    clear_s=0.0,  # a token, or the engine's end, ends it: it can't flicker, as the next takes HELD_S again
    follows=_HANGS,
)
def no_tokens(fleet: FleetState) -> Iterator[Finding]:
    """Requests without a token for a while, unless the power says that a long prompt is being read."""
    for node, engine in live_engines(fleet):
        running = engine.metrics.running if engine.metrics else None
        still_s = engine.rates.progress_age_s if engine.rates else None
        if not running or still_s is None or still_s < HELD_S or engine.state is EngineState.EXITED:
            continue
        # a finished prompt is counted shortly after its power dropped
        now_w = node.first_gpu.power_w if node.first_gpu else None
        power_w = max(now_w or 0.0, highest(node.power_history, COUNTED_WITHIN_S) or 0.0)
        if power_w < WORKING_POWER_W or still_s >= LONG_PREFILL_S or _stopped(node, engine):
            yield _no_tokens(node, engine, running, still_s)


def _stopped(node: NodeView, engine: Engine) -> tuple[Process, ...]:
    """The engine's processes that a signal or a debugger has stopped: none of them does anything until it goes on."""
    table = node.processes.processes if node.processes else ()
    return tuple(process for process in table if process.state in ("T", "t") and process.pid in engine.pids)


def _of_stopped(node: NodeView, stopped: Sequence[Process]) -> tuple[Evidence, ...]:
    texts = [f"{process.command} (pid {process.pid}) is stopped: state {process.state}" for process in stopped]
    return tuple(Evidence(source=f"{node.name} processes", text=text) for text in texts)


def _pids(stopped: Sequence[Process]) -> str:
    return " ".join(str(process.pid) for process in stopped)


def _can_dump_stacks(engine: Engine) -> bool:
    """Whether its next stall can say where it stands: the version can (vLLM 0.33), and isn't told to yet."""
    can = engine.kind is EngineKind.VLLM and is_in(STACK_DUMPS, engine.kind, engine.version or "") is True
    return can and not engine.command.has(STACK_DUMPS.replace("_", "-"), STACK_DUMPS.partition(".")[0])


def _no_tokens(node: NodeView, engine: Engine, running: float, still_s: float) -> Finding:
    gpu = node.first_gpu
    gpu_load = ""
    if gpu is not None and gpu.utilisation_percent is not None and gpu.power_w is not None:
        gpu_load = f"SM {gpu.utilisation_percent:.0f} % at {gpu.power_w:.0f} W"
    waiting = engine.metrics.waiting if engine.metrics else None
    stopped = _stopped(node, engine)
    counters = f"{running:.0f} running, {waiting or 0:.0f} waiting, token counters still for {still_s:.0f} s"
    return found(
        "engine.no-tokens",
        "held",
        {
            "engine": engine.name,
            "requests": requests(running),
            "stopped": stopped[0].command if stopped else None,
            "pids": _pids(stopped),
            "still_s": still_s,
            "gpu_load": gpu_load,
            "flag": _can_dump_stacks(engine) and STACK_DUMPS,
            "inside": f"docker exec {engine.container.name} " if engine.container is not None else "",
        },
        severity=Severity.CRITICAL if still_s >= HARMS_S else Severity.WARNING,
        evidence=(
            of_engine(engine, node, counters, part="metrics"),
            *_of_stopped(node, stopped),
            *([Evidence(source=f"{node.name} nvml", text=gpu_load)] if gpu_load else []),
        ),
        nodes=(node.name,),
        subject=engine.name,
    )


@live_rule("engine.kv-cache-full", hold_s=30.0, clear_s=15.0, follows=("vllm.preemption", "sglang.kv-pool-full"))
def kv_cache_full(fleet: FleetState) -> Iterator[Finding]:
    """engine.kv-cache-full: for 30 s 98 % of the KV cache in use and requests waiting for it, or requests evicted from
    it, each of which leaves it less full."""
    for node, engine in live_engines(fleet):
        metrics, evicted = engine.metrics, (engine.rates and engine.rates.preemptions_per_min) or 0.0
        if metrics is None or not metrics.waiting:
            continue  # who was evicted waits, too
        if evicted >= EVICTED_PER_MIN or (metrics.kv_cache_ratio or 0.0) >= FULL_RATIO:
            yield _kv_cache_full(node, engine, metrics, evicted)


def _kv_cache_full(node: NodeView, engine: Engine, metrics: EngineMetrics, evicted: float) -> Finding:
    waiting, running = metrics.waiting or 0, metrics.running or 0
    figures = f"KV cache {percent(100 * (metrics.kv_cache_ratio or 0.0))}, {waiting:.0f} waiting, {running:.0f} running"
    is_evicting = evicted >= EVICTED_PER_MIN
    if is_evicting:
        figures = f"{figures}, {evicted:.0f} evicted a minute"
    command, flag = engine.command, SHARE_FLAGS.get(engine.kind, "")
    available = node.sample.memory.available_bytes if node.sample is not None else 0
    return found(
        "engine.kv-cache-full",
        "waiting",
        {
            "engine": engine.name,
            "figures": figures,
            "evicted": evicted if is_evicting else None,
            "wait": "1 request waits" if waiting <= 1 else f"{waiting:.0f} requests wait",
            "is_unquantised": not command.has("--kv-cache-dtype"),
            "flag": flag if available >= SPARE_BYTES and command.has(flag) else None,
            "available": gib(available),
            "node": node.name,
        },
        evidence=(of_engine(engine, node, figures, part="metrics", wall_s=metrics.wall_s),),
        nodes=(node.name,),
        subject=engine.name,
    )


@live_rule(
    "engine.load-stalled",
    hold_s=10.0,
    follows=("cluster.rank-died", "cluster.interface-wrong", "cluster.gid-index", "memory.pressure"),
)
def load_stalled(fleet: FleetState) -> Iterator[Finding]:
    """A load whose count stands still for minutes while GPU, CPU and disk are idle."""
    for node, engine in live_engines(fleet):
        gpu, log, sample = node.first_gpu, engine.log, node.sample
        if engine.state not in (EngineState.LOADING, EngineState.STARTING) or log is None or sample is None:
            continue
        if log.moved_wall_s is None or log.last_line_wall_s is None or engine.endpoint is None:
            continue  # a rank without a server never reports that it is ready
        started_s = engine.container.started_wall_s if engine.container is not None else None
        still_s = sample.wall_s - max(log.moved_wall_s, log.last_line_wall_s, started_s or 0.0)
        is_busy = (
            gpu is None
            or (gpu.utilisation_percent or 0) >= 10
            or (node.cpu_busy_percent or 100.0) >= BUSY_CPU_PERCENT
            or (sample.io_pressure is not None and sample.io_pressure.some_avg60 >= 5)
        )
        if still_s >= STILL_S and not is_busy:
            yield _load(node, engine, still_s)


def _load(node: NodeView, engine: Engine, still_s: float) -> Finding:
    progress = engine.progress
    return found(
        "engine.load-stalled",
        "idle",
        {
            "engine": engine.name,
            "at": f"{progress.phase} {progress.done}/{progress.total}" if progress else None,
            "minutes": still_s / 60,
            "container": engine.container and engine.name,
            "pid": min(engine.pids, default="PID"),
        },
        evidence=(of_engine(engine, node, f"no line and no progress for {still_s:.0f} s"),),
        nodes=(node.name,),
        subject=engine.name,
    )


@live_rule(
    "engine.not-answering",
    hold_s=15.0,
    follows=("memory.starved", "memory.falling", "memory.low", "memory.pressure"),
)
def not_answering(fleet: FleetState) -> Iterator[Finding]:
    """A server that used to serve and no longer answers /metrics, though its process lives."""
    for node, engine in live_engines(fleet):
        served = engine.state in (EngineState.READY, EngineState.SERVING) and engine.metrics is not None
        if served and engine.endpoint is not None and engine.endpoint.state is EndpointState.TIMED_OUT:
            stopped = _stopped(node, engine)
            silence = of_engine(engine, node, engine.endpoint.detail or "GET /metrics timed out")
            yield found(
                "engine.not-answering",
                "silent",
                {"engine": engine.name, "port": engine.endpoint.port, "pids": _pids(stopped)},
                evidence=(silence, *_of_stopped(node, stopped)),
                nodes=(node.name,),
                subject=engine.name,
            )
