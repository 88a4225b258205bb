"""Rule on spin deadlocks: requests wait, no token comes, and the GPU is busy waiting (field report 003)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.cmdline.engine_command import command_of
from sparktop.dataclass import dataclass
from sparktop.diagnose.ended_by import is_being_stopped
from sparktop.diagnose.kernel.findings import rule_of
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.gpu.power import IDLE_PERCENT, low_power_w, normal_power, spinning
from sparktop.diagnose.rules.window import GpuStretch, highest, of_engine, seen
from sparktop.engines.cuda_graphs import without_graphs
from sparktop.engines.ranks import EngineRank, is_alive, names_in_order, spans_nodes, teams
from sparktop.model.engine import EngineKind, EngineState
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView, boot_s_now, is_current, node_wall_s
from sparktop.text.units import span

SUSPECTED_S = 20.0
CONFIRMED_S = 120.0
"""Prefills and JIT compilations of a minute are reported (docs/facts/engines.md section 2.4: 120 s and more)."""
SEEN_TWICE_S = 60.0
"""The same where a second sign says it: both ranks' RDMA counters are flat, or the other rank is idle or gone."""
SILENT_S = 25.0
"""Without metrics, the log must be silent this long too: SGLang writes every 40 decode steps, vLLM every 10 s."""
SHARED_S = 90.0
"""The same if another process computes on that GPU and could be what keeps it busy."""
LOADING_S = 150.0
"""During a load, compilation alone may keep a log silent for minutes."""
STALE_FIGURES_S = 15.0
FLAT_BYTES_PER_S = 1e6
LONGEST_S = 600.0
LINK_BEFORE_S = 60.0
"""A link lost this long before the first missing token broke the ranks' connection: idle ranks notice late."""
LINK_DOWN = "kernel.link-down"

REFERENCES = (
    "vllm-project/vllm#46097",
    "eugr/spark-vllm-docker#260",
    "vllm-project/vllm#52504 (NCCL below 2.30.4 with CUDA graphs over two nodes)",
    "field report 003",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spin:
    """An engine's ranks with queued requests and no tokens."""

    team: tuple[EngineRank, ...]
    stretches: dict[str, GpuStretch]
    """The busy-waiting stretch by node name."""
    still_s: float
    has_counters: bool
    """Its token counters were seen standing still, as opposed to inferring it from a silent log."""
    is_loading: bool = False
    is_shared: bool = False
    """A process of no engine computes on each of its busy GPUs, and may be what keeps them so."""

    @property
    def confirmed_after_s(self) -> float:
        ranks = self.team if len(self.team) > 1 else ()
        is_idle = any(rank.node.name not in self.stretches for rank in ranks)
        is_flat = bool(ranks) and all(rank.node.rdma_bytes_per_s is not None for rank in ranks)
        return SEEN_TWICE_S if is_idle or is_flat else CONFIRMED_S

    @property
    def is_confirmed(self) -> bool:
        return self.has_counters and not self.is_shared and self.seconds >= self.confirmed_after_s

    @property
    def head(self) -> EngineRank:
        return self.team[0]

    @property
    def seconds(self) -> float:
        return min(self.still_s, max(stretch.seconds for stretch in self.stretches.values()))


@live_rule(
    "gpu.spin-deadlock",
    "Spin deadlock: requests but no token, and a busy GPU at idle power",
    Severity.CRITICAL,
    scope=(
        "vLLM and SGLang on one or two nodes; power limits are GB10's or learned, so another GPU needs learned ones "
        "or a bandwidth counter that moves"
    ),
    sources=REFERENCES,
    clear_s=4.0,
    follows=("cluster.rank-died", "cluster.link-down", "kernel.xid-79", "kernel.xid-119", "kernel.xid-120"),
)
def spin_deadlock(fleet: FleetState) -> Iterable[Finding]:
    """gpu.spin-deadlock: one finding for each engine, over all its nodes.

    The engine has requests or loads; its token counters (without metrics: its log) stand still; the GPU is busy at a
    power near this machine's loaded idle, its clock not pinned low. Suspected after 20 s of standing counters (25 s of
    a silent log, 150 s of a silent load), confirmed after 120 s if the counters can be read, after 60 s if another
    rank is idle or the RDMA counters are flat too. Data that moves between the ranks is work: a long prefill.
    """
    for team in teams(fleet):
        spin = _spin_of(team, fleet)
        if spin is not None:
            yield _finding(spin, fleet)


def _spin_of(team: tuple[EngineRank, ...], fleet: FleetState) -> _Spin | None:
    engine = team[0].engine
    if any(rank.engine.state is EngineState.CAPTURING for rank in team if is_alive(rank.engine)):
        return None  # a stalled capture has its own rule and remedies
    if is_being_stopped(team, fleet):
        return None
    stretches = {
        rank.node.name: stretch
        for rank in team
        if is_current(rank.node) and (stretch := spinning(rank.node, fleet, longest_s=LONGEST_S)) is not None
    }
    flows = [rank.node.rdma_bytes_per_s for rank in team if len(team) > 1]
    if not stretches or any(flow is not None and flow > FLAT_BYTES_PER_S for flow in flows):
        return None
    metrics, rates = engine.metrics, engine.rates
    if metrics is not None and metrics.generation_tokens is not None:
        pending = (metrics.running or 0) + (metrics.waiting or 0)
        if not pending or rates is None or rates.progress_age_s is None or not is_current(team[0].node):
            return None
        is_fresh = fleet.wall_s - metrics.wall_s < STALE_FIGURES_S
        is_shared = all(_is_shared(rank.node) for rank in team if rank.node.name in stretches)
        spin = _Spin(
            team=team, stretches=stretches, still_s=rates.progress_age_s, has_counters=is_fresh, is_shared=is_shared
        )
        return spin if spin.seconds >= (SHARED_S if is_shared else SUSPECTED_S) else None
    return _by_silence(team, stretches, fleet)


def _by_silence(team: tuple[EngineRank, ...], stretches: dict[str, GpuStretch], fleet: FleetState) -> _Spin | None:
    """The spin without token counters: a log silent for too long, if it would write while there is work."""
    silences: list[float] = []
    for rank in team:
        engine, now_s = rank.engine, node_wall_s(rank.node, fleet)
        last_s = engine.log.last_line_wall_s if engine.log else None
        if not is_alive(engine) or engine.state is EngineState.READY:
            return None
        if engine.endpoint is None:  # a worker's log is always silent: only its RDMA traffic tells
            flow = rank.node.rdma_bytes_per_s
            if flow is not None and flow > FLAT_BYTES_PER_S:
                return None
            if flow is not None and len(team) == 1:
                silences.append(stretches[rank.node.name].seconds if rank.node.name in stretches else 0.0)
            continue
        if last_s is None or now_s is None or command_of(engine).has("--disable-log-stats"):
            return None
        silences.append(now_s - last_s)
    if not silences:
        return None
    is_loading = any(rank.engine.state in (EngineState.STARTING, EngineState.LOADING) for rank in team)
    required_s = LOADING_S if is_loading else SILENT_S
    if any(_is_shared(rank.node) for rank in team if rank.node.name in stretches):
        required_s = max(required_s, SHARED_S)
    spin = _Spin(team=team, stretches=stretches, still_s=min(silences), has_counters=False, is_loading=is_loading)
    return spin if spin.seconds >= required_s else None


def _is_shared(node: NodeView) -> bool:
    """Whether a process of no engine computes on the GPU too."""
    gpu = node.first_gpu
    ours = {pid for engine in node.engines for pid in engine.pids}
    return any(row.kind == "C" and row.pid not in ours for row in (gpu.processes or ())) if gpu else False


def _finding(spin: _Spin, fleet: FleetState) -> Finding:
    engine, nodes = spin.head.engine, names_in_order(spin.team, fleet)
    is_confirmed = spin.is_confirmed
    idle = [rank for rank in spin.team if rank.node.name not in spin.stretches]
    where = " and ".join(name for name in nodes if name in spin.stretches)
    if len(spin.stretches) > 1:
        title = f"Spin deadlock: {where} wait for each other"
    elif idle:
        title = f"Spin deadlock: {where} waits for {idle[0].node.name}"
    else:
        title = f"Spin deadlock on {where}: its GPU is busy waiting"
    lost_link = _lost_link(spin, fleet)
    metrics = engine.metrics
    running, waiting = (int(metrics.running or 0), int(metrics.waiting or 0)) if metrics else (0, 0)
    pending = running + waiting
    first = next(iter(spin.stretches.values()))
    work = (
        f"{running} request{'s' * (running != 1)} held" + (f", {waiting} waiting" if waiting else "")
        if metrics
        else ("it was loading" if spin.is_loading else "log silent")
    )
    brief = f"{first.util_percent:.0f} % SM at {first.power_w:.0f} W, 0 tok/s, {work}"
    return Finding(
        rule="gpu.spin-deadlock",
        severity=Severity.CRITICAL,
        confidence=Confidence.CONFIRMED if is_confirmed else Confidence.SUSPECTED,
        title=title,
        explanation=_explanation(spin, idle, lost_link),
        distinction=_distinction(spin),
        settles="" if is_confirmed else _settles(spin),
        evidence=(*_link_evidence(lost_link), *_evidence(spin, idle, fleet)),
        remedies=_remedies(spin, pending, is_by_link=lost_link is not None),
        references=REFERENCES,
        nodes=nodes,
        subject=engine.name,
        brief=brief,
    )


def _lost_link(spin: _Spin, fleet: FleetState) -> tuple[NodeView, KernelEvent] | None:
    """The newest loss of an RDMA port's link just before the tokens stopped, also of one that is up again."""
    losses = [
        (boot_s_now(rank.node, rank.node.sample, fleet) - event.last_boot_s, rank.node, event)
        for rank in spin.team
        if rank.node.sample is not None
        for event in rank.node.kernel_events
        if event.last_boot_s is not None
        and rule_of(event) == LINK_DOWN
        and event.figure("interface") in {port.interface for port in rank.node.rdma_ports}
    ]
    recent = [loss for loss in losses if loss[0] <= spin.still_s + LINK_BEFORE_S and len(spin.team) > 1]
    return min(recent, key=lambda loss: loss[0])[1:] if recent else None


def _link_evidence(lost_link: tuple[NodeView, KernelEvent] | None) -> Iterable[Evidence]:
    if lost_link is not None:
        node, event = lost_link
        yield Evidence(source=f"{node.name} kernel log", text=event.text, wall_s=event.last_wall_s)


def _explanation(spin: _Spin, idle: Sequence[EngineRank], lost_link: tuple[NodeView, KernelEvent] | None) -> str:
    node = next(rank.node for rank in spin.team if rank.node.name in spin.stretches)
    stretch = spin.stretches[node.name]
    grounds = (
        f"For {span(spin.seconds)} {spin.head.engine.name} had requests and produced no token"
        if spin.has_counters
        else f"For {span(spin.seconds)} the log of {spin.head.engine.name} was silent"
    )
    text = (
        f"{grounds}, and the GPU ran at {stretch.util_percent:.0f} % with only {stretch.power_w:.0f} W; "
        f"{normal_power(node)}. So a kernel polls for something that never comes"
    )
    if len(spin.team) > 1 and not idle:
        text += (
            ": the ranks wait for each other in an NCCL collective. It never recovers by itself, and /health stays "
            "green."
        )
    elif idle:
        idle_rank = idle[0]
        state = "has exited" if not is_alive(idle_rank.engine) else "is idle"
        text += f": the rank on {idle_rank.node.name} {state}, so the collective it waits for can't complete."
    else:
        text += ". It never recovers by itself, and /health stays green."
    if lost_link is not None:
        interface = lost_link[1].figure("interface")
        text += (
            f" {interface} of {lost_link[0].name} lost its link just before: the ranks lost their connection, and "
            "don't get it back when the link is up again."
        )
    return text


def _distinction(spin: _Spin) -> tuple[str, ...]:
    name, stretch = next(iter(spin.stretches.items()))
    clock = f"{stretch.clock_mhz:.0f} MHz" if stretch.clock_mhz else "its usual rate"
    return (
        "Not a long prefill: that stops token counters too, but draws 46-100 W.",
        f"Not short of power: the SM clock of {name} is {clock}, not 500-850 MHz, and it produces nothing.",
        "Not loading or compiling: those keep the disk or the processor busy, not the SMs.",
        "The memory-bandwidth counter doesn't help: on GB10 it reads 0 in healthy decode too.",
    )


def _settles(spin: _Spin) -> str:
    if spin.is_shared:
        return "Another process computes on the same GPU: stop it, or ask NCCL which operation each rank is in."
    if spin.has_counters:
        return f"No token for {spin.still_s:.0f} s; confirmed at {spin.confirmed_after_s:.0f} s."
    ras = (
        "ask NCCL in the engine's container or on its node: `echo verbose status | nc -w 5 localhost 28028`, twice; "
        "if operation counts don't move, it is a deadlock"
    )
    if spin.head.engine.kind is EngineKind.SGLANG and not command_of(spin.head.engine).has("--enable-metrics"):
        return f"Start SGLang with --enable-metrics to make its token counters visible; now, {ras}."
    if spin.head.engine.endpoint is None:
        return f"Watch the node of rank 0 too: only its server has token counters; or {ras}."
    return f"Its own token counters, which can't be read now; or {ras}."


def _evidence(spin: _Spin, idle: Sequence[EngineRank], fleet: FleetState) -> Iterable[Evidence]:
    for rank in spin.team:
        stretch = spin.stretches.get(rank.node.name)
        if stretch is not None:
            limit_w = low_power_w(rank.node)
            under = f" (work would take more than {limit_w:.0f} W)" if limit_w is not None else ""
            clock = f", SM clock {stretch.clock_mhz:.0f} MHz" if stretch.clock_mhz else ""
            yield seen(
                rank.node,
                "GPU",
                f"SM {stretch.util_percent:.0f} % at {stretch.power_w:.1f} W for {span(stretch.seconds)}{under}{clock}",
            )
        if rank.node.rdma_bytes_per_s is not None and len(spin.team) > 1:
            rate = rank.node.rdma_bytes_per_s
            flat = "flat" if rate < FLAT_BYTES_PER_S else "moving"
            yield seen(rank.node, "RDMA", f"byte counters {flat}: {rate / 1e6:.1f} MB/s")
    for rank in idle:
        util = highest(rank.node.utilisation_history, SUSPECTED_S)
        if not is_alive(rank.engine):
            detail = f": {rank.engine.exit_detail}" if rank.engine.exit_detail else ""
            yield seen(rank.node, rank.engine.name, f"the rank has exited{detail}")
        elif util is not None and util < IDLE_PERCENT:
            yield seen(rank.node, "GPU", f"SM {util:.0f} % at most in the last {SUSPECTED_S:.0f} s: this rank is idle")
    engine = spin.head.engine
    if engine.metrics is not None and engine.rates is not None:
        text = (
            f"{engine.metrics.running or 0:.0f} running, {engine.metrics.waiting or 0:.0f} waiting; "
            f"prompt and generation tokens unchanged for {span(engine.rates.progress_age_s or 0.0)}"
        )
        yield of_engine(engine, spin.head.node, text, part="metrics", wall_s=engine.metrics.wall_s)
    now_s = node_wall_s(spin.head.node, fleet)
    if engine.log is not None and engine.log.last_line_wall_s is not None and now_s is not None:
        silent_s = max(0.0, now_s - engine.log.last_line_wall_s)
        text = f"last line {span(silent_s)} ago"
        yield of_engine(engine, spin.head.node, text, part="log", wall_s=engine.log.last_line_wall_s)


def _remedies(spin: _Spin, pending: int, *, is_by_link: bool) -> tuple[Remedy, ...]:
    engine = spin.head.engine
    spans_two = len(spin.team) > 1 or spans_nodes(engine)
    workers = [(rank.node.name, rank.engine.pids[-1]) for rank in spin.team if rank.engine.pids]
    lost = f"its {pending} request{'s' * (pending != 1)} and the time to load" if pending else "the time to load"
    evidence = Remedy(
        title="Save logs and metrics; by hand first, which operation each rank is in",
        steps=(
            "echo verbose status | nc -w 5 localhost 28028   # on each node; NCCL 2.24 or later; twice, 10 s apart",
            *(f"sudo py-spy dump --pid {pid}   # on {node}" for node, pid in workers),
        ),
        cost="nothing",
        action="collect-evidence",
    )
    restart = Remedy(
        title="Restart every rank together" if spans_two else "Restart the engine",
        steps=(
            (
                "stop the engine's containers on all its nodes",
                "wait until memory is free on both",
                "start them together",
            )
            if spans_two
            else ("stop the container", "wait until its memory is free", "start it")
        ),
        cost=lost + ("; one rank alone would wait again" if spans_two else ""),
        action="safe-restart",
    )
    graphs = [without_graphs(engine)] if spans_two and not is_by_link else []
    return (evidence, restart, *graphs)
