"""Rule on spin deadlocks: requests wait, no token comes, and the GPU is busy waiting (field report 003)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.dataclass import dataclass
from sparktop.diagnose.ended_by import is_being_stopped
from sparktop.diagnose.kernel.findings import rule_of
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.gpu.power import IDLE_PERCENT, low_power_w, normal_power, spinning
from sparktop.diagnose.rules.window import GpuStretch, highest, of_engine, seen
from sparktop.engines.cuda_graphs import without_graphs
from sparktop.engines.ranks import EngineRank, is_alive, names_in_order, spans_nodes, teams
from sparktop.knowledge.card import found
from sparktop.model.engine import EngineKind, EngineState
from sparktop.model.event import KernelEvent
from sparktop.model.finding import Confidence, Evidence, Finding
from sparktop.model.fleet import FleetState, NodeView, boot_s_now, is_current, node_wall_s
from sparktop.text.sentences import MOST_NAMED, counted
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
"""During a load, compilation alone may keep a log silent for minutes; one without statistics is silent anyway."""
STALE_FIGURES_S = 15.0
FLAT_BYTES_PER_S = 1e6
LONGEST_S = 600.0
LINK_BEFORE_S = 60.0
"""A link lost this long before the first missing token broke the ranks' connection: idle ranks notice late."""
LINK_DOWN = "kernel.link-down"


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
    clear_s=4.0,
    follows=("cluster.rank-died", "cluster.link-down", "kernel.xid-79", "kernel.xid-119", "kernel.xid-120"),
)
def spin_deadlock(fleet: FleetState) -> Iterable[Finding]:
    """gpu.spin-deadlock: one finding for each engine, over all its nodes.

    The engine has requests or loads; its token counters (without metrics: its log) stand still; the GPU is busy at a
    power near this machine's loaded idle, its clock not pinned low. Suspected after 20 s of standing counters (25 s of
    a silent log, 150 s of a silent load or of a log without statistics), confirmed after 120 s if the counters can be
    read, after 60 s if another rank is idle or the RDMA counters are flat too. Data that moves between the ranks is
    work: a long prefill.
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
        if last_s is None or now_s is None:
            return None
        silences.append(now_s - last_s)
    if not silences:
        return None
    is_loading = any(rank.engine.state in (EngineState.STARTING, EngineState.LOADING) for rank in team)
    is_mute = any(rank.engine.command.has("--disable-log-stats") for rank in team)
    required_s = LOADING_S if is_loading or is_mute else SILENT_S
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
    idle = [rank for rank in spin.team if rank.node.name not in spin.stretches]
    busy = tuple(name for name in nodes if name in spin.stretches)
    rank = next(rank for rank in spin.team if rank.node.name in spin.stretches)
    stretch = spin.stretches[rank.node.name]
    spans_two = len(spin.team) > 1 or spans_nodes(engine)
    lost_link = _lost_link(spin, fleet)
    metrics = engine.metrics
    running, waiting = (int(metrics.running or 0), int(metrics.waiting or 0)) if metrics else (0, 0)
    figures = {
        "where": busy if len(busy) <= MOST_NAMED else (counted(busy),),
        "engine": engine.name,
        "span": span(spin.seconds),
        "is_counted": spin.has_counters,
        "is_uncounted": not spin.has_counters,
        "node": rank.node.name,
        "util_percent": stretch.util_percent,
        "power_w": stretch.power_w,
        "normal_power": normal_power(rank.node),
        "clock": f"{stretch.clock_mhz:.0f} MHz" if stretch.clock_mhz else "its usual rate",
        "held": _requests(running) if metrics else None,
        "waiting": waiting or None,
        "was_loading": metrics is None and spin.is_loading,
        "is_quiet": metrics is None and not spin.is_loading,
        "pending": _requests(running + waiting) if running + waiting else None,
        "dumps": tuple(
            f"sudo py-spy dump --pid {rank.engine.pids[-1]}   # on {rank.node.name}"
            for rank in spin.team
            if rank.engine.pids
        ),
        "spans_two": spans_two,
        "is_one": not spans_two,
        "still_s": spin.still_s,
        "confirmed_s": spin.confirmed_after_s,
        _settled_by(spin): True,
        "asks_nccl": not spin.is_shared and not spin.has_counters,
    }
    if idle:
        figures |= {"idle": idle[0].node.name, "state": "is idle" if is_alive(idle[0].engine) else "has exited"}
    if lost_link is not None:
        figures |= {"interface": lost_link[1].figure("interface"), "link_of": lost_link[0].name}
    elif spans_two:
        figures |= without_graphs(engine)
    return found(
        "gpu.spin-deadlock",
        "each-other" if len(spin.stretches) > 1 else "idle-rank" if idle else "alone",
        figures,
        confidence=Confidence.CONFIRMED if spin.is_confirmed else Confidence.SUSPECTED,
        evidence=(*_link_evidence(lost_link), *_evidence(spin, idle, fleet)),
        nodes=nodes,
        subject=engine.name,
    )


def _requests(count: int) -> str:
    return f"{count} request{'s' * (count != 1)}"


def _settled_by(spin: _Spin) -> str:
    """What the card names as settling it."""
    if spin.is_shared:
        return "shared"
    if spin.has_counters:
        return "young"
    engine = spin.head.engine
    if engine.kind is EngineKind.SGLANG and not engine.command.has("--enable-metrics"):
        return "without_metrics"
    return "without_server" if engine.endpoint is None else "unread"


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
