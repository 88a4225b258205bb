"""`sparktop exporter`: the picture as metric families, by Prometheus's conventions, served over HTTP.

What isn't known has no series: never 0. A host that is away has `up` 0, its link and the age of its last sample, and
no figure. Every label is of a bounded set, cut, and masked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, NamedTuple, TypeVar
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from sparktop import __version__, sanitise
from sparktop.clock import Clock, SystemClock
from sparktop.documents.node_figures import gpu_age_s
from sparktop.headless.look import MakeWatch, looking
from sparktop.headless.terminal import cannot_listen, say, shown_address
from sparktop.masking import mask_text
from sparktop.model.engine import EndpointState, Engine, EngineMetrics, EngineRates, EngineState
from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState, NodeView, Trend, is_current
from sparktop.model.telemetry import CollectorState, Disk, Gpu, Interface, Pressure, RdmaPort, Sample

PREFIX = "sparktop_"
OUTDATED_S = 30.0
"""An older figure has no series; an engine at rest is asked every 15 s."""
ENGINES_MOST = 64
"""Of one host."""
FINDINGS_MOST = 500
SILENT_S = 10.0
"""After which a client that sends nothing is disconnected."""

_T = TypeVar("_T")


class Figure(NamedTuple, Generic[_T]):
    """One metric of a thing; a name that ends in `_total` is a counter's, any other a gauge's."""

    name: str
    meaning: str
    read: Callable[[_T], float | None]


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _hertz(mhz: float | None) -> float | None:
    return None if mhz is None else mhz * 1e6


def _is_throttled(gpu: Gpu) -> float | None:
    reasons = gpu.throttle_reasons
    return None if reasons is None else any("idle" not in reason.lower() for reason in reasons)


SAMPLE: tuple[Figure[Sample], ...] = (
    Figure("memory_total_bytes", "Memory that CPU and GPU share.", lambda it: it.memory.total_bytes),
    Figure("memory_available_bytes", "MemAvailable: the figure for alerts.", lambda it: it.memory.available_bytes),
    Figure(
        "memory_free_bytes", "MemFree; page cache fills it, so no figure for alerts.", lambda it: it.memory.free_bytes
    ),
    Figure(
        "memory_page_cache_bytes", "What dropping caches could free at most.", lambda it: it.memory.page_cache_bytes
    ),
    Figure("swap_total_bytes", "Swap space.", lambda it: it.memory.swap_total_bytes),
    Figure("swap_used_bytes", "Swap space in use.", lambda it: it.memory.swap_used_bytes),
    Figure("swap_in_pages_total", "Pages swapped in since boot.", lambda it: it.swap_in_pages),
    Figure("swap_out_pages_total", "Pages swapped out since boot.", lambda it: it.swap_out_pages),
    Figure("major_faults_total", "Page faults that read from disk, since boot.", lambda it: it.major_faults),
    Figure(
        "allocation_stalls_total", "Allocations that waited for reclaim, since boot.", lambda it: it.allocation_stalls
    ),
    Figure("oom_kills_total", "Processes that the kernel killed for memory, since boot.", lambda it: it.oom_kills),
    Figure("load1", "Load average over a minute.", lambda it: it.load_1m),
    Figure("boot_time_seconds", "When the host booted, by its own clock.", lambda it: round(it.wall_s - it.boot_s)),
    Figure("probe_resident_bytes", "Memory of sparktop's probe on the host.", lambda it: it.probe_resident_bytes),
    Figure("samples_skipped_total", "Samples not sent, as the connection was slow.", lambda it: it.skipped),
)
NODE: tuple[Figure[NodeView], ...] = (
    Figure("cpu_busy_ratio", "Of all cores together, between two samples.", lambda it: _ratio(it.cpu_busy_percent)),
    Figure("probe_cpu_ratio", "CPU time of sparktop's probe, of one core.", lambda it: _ratio(it.probe_cpu_percent)),
)
TREND: tuple[Figure[Trend], ...] = (
    Figure("memory_available_trend_bytes_per_second", "Change of available memory.", lambda it: it.bytes_per_s),
    Figure("memory_empty_in_seconds", "Until memory is empty, while it falls fast.", lambda it: it.time_to_empty_s),
)
PRESSURE: tuple[Figure[Pressure], ...] = (
    Figure("pressure_some_ratio", "Time that some task waited, over 10 s (PSI).", lambda it: it.some_avg10 / 100),
    Figure("pressure_full_ratio", "Time that all tasks waited, over 10 s (PSI).", lambda it: it.full_avg10 / 100),
)
DISK: tuple[Figure[Disk], ...] = (
    Figure("filesystem_size_bytes", "Size of a filesystem.", lambda it: it.total_bytes),
    Figure("filesystem_free_bytes", "Free to an unprivileged user.", lambda it: it.free_bytes),
)
INTERFACE: tuple[Figure[Interface], ...] = (
    Figure("interface_up", "1 while the interface has a carrier.", lambda it: it.is_up),
)
RDMA_PORT: tuple[Figure[RdmaPort], ...] = (
    Figure("rdma_port_up", "1 while the RDMA port is active.", lambda it: it.is_active),
    Figure("rdma_received_bytes_total", "Received by the RDMA port since boot.", lambda it: it.received_bytes),
    Figure("rdma_sent_bytes_total", "Sent by the RDMA port since boot.", lambda it: it.sent_bytes),
)
GPU: tuple[Figure[Gpu], ...] = (
    Figure("gpu_utilisation_ratio", "Time that an SM was in use.", lambda it: _ratio(it.utilisation_percent)),
    Figure("gpu_power_watts", "Power of the GPU's rail alone.", lambda it: it.power_w),
    Figure("gpu_temperature_celsius", "Temperature of the GPU.", lambda it: it.temperature_c),
    Figure("gpu_sm_clock_hertz", "SM clock.", lambda it: _hertz(it.sm_clock_mhz)),
    Figure("gpu_throttled", "1 while the GPU is slowed down, other than at idle.", _is_throttled),
    Figure("gpu_memory_used_bytes", "GPU memory in use; absent on GB10.", lambda it: it.memory_used_bytes),
    Figure("gpu_memory_total_bytes", "GPU memory; absent on GB10.", lambda it: it.memory_total_bytes),
)


def _endpoint_up(engine: Engine) -> float | None:
    if engine.endpoint is None or engine.endpoint.state is EndpointState.NOT_ASKED:
        return None
    return engine.endpoint.state not in (EndpointState.REFUSED, EndpointState.TIMED_OUT)


ENGINE: tuple[Figure[Engine], ...] = (
    Figure("engine_endpoint_up", "1 while the engine's HTTP endpoint answers.", _endpoint_up),
    Figure("engine_gpu_memory_bytes", "GPU memory of its processes, from NVML.", lambda it: it.gpu_bytes),
    Figure("engine_restarts_total", "Restarts of its container by Docker.", lambda it: it.restarts),
)
ENGINE_METRICS: tuple[Figure[EngineMetrics], ...] = (
    Figure("engine_requests_running", "Requests in progress.", lambda it: it.running),
    Figure("engine_requests_waiting", "Requests that wait.", lambda it: it.waiting),
    Figure("engine_slots", "Requests that can run at once, where that is fixed.", lambda it: it.slots),
    Figure(
        "engine_context_tokens",
        "The longest context of one request, where the engine tells.",
        lambda it: it.context_tokens,
    ),
    Figure("engine_model_bytes", "Memory of its loaded models, as it says itself.", lambda it: it.model_bytes),
    Figure("engine_kv_cache_usage_ratio", "Share of the KV cache in use.", lambda it: it.kv_cache_ratio),
    Figure("engine_prompt_tokens_total", "Prompt tokens computed.", lambda it: it.prompt_tokens),
    Figure("engine_generation_tokens_total", "Tokens generated.", lambda it: it.generation_tokens),
    Figure("engine_iterations_total", "Steps of the engine's loop.", lambda it: it.iterations),
    Figure("engine_prefix_cache_queries_total", "Tokens looked up in the prefix cache.", lambda it: it.prefix_queries),
    Figure("engine_prefix_cache_hits_total", "Tokens found in the prefix cache.", lambda it: it.prefix_hits),
    Figure("engine_preemptions_total", "Requests set back as the KV cache was full.", lambda it: it.preemptions),
    Figure("engine_answers_total", "Finished requests.", lambda it: it.answers),
    Figure("engine_answers_cut_total", "Of them, ended at their token limit.", lambda it: it.cut),
    Figure("engine_answers_repeated_total", "Of them, ended as they repeated themselves.", lambda it: it.repeated),
)
ENGINE_RATES: tuple[Figure[EngineRates], ...] = (
    Figure("engine_generation_tokens_per_second", "Tokens generated a second.", lambda it: it.generation_tokens_per_s),
    Figure("engine_progress_age_seconds", "Since its token counters last advanced.", lambda it: it.progress_age_s),
)


class _Page:
    """The families in the order in which they get their first series."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}
        self._series: set[tuple[str, ...]] = set()

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())

    def add(self, name: str, meaning: str, value: float | None, /, **labels: str) -> None:
        """Add a series, unless its value isn't known or one with these labels is there: two would spoil the page."""
        texts = [_label(text) for text in labels.values()]
        if value is None or (name, *texts) in self._series:
            return
        self._series.add((name, *texts))
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = self._families.setdefault(name, kind(PREFIX + name, meaning, labels=tuple(labels)))
        family.add_metric(texts, float(value))  # type: ignore[attr-defined]  # both kinds have it

    def fill(self, figures: Iterable[Figure[_T]], thing: _T | None, **labels: str) -> None:
        """Add a series of each figure that is known of a thing, where that is there."""
        if thing is None:
            return
        for figure in figures:
            self.add(figure.name, figure.meaning, figure.read(thing), **labels)

    def histogram(
        self, name: str, meaning: str, buckets: tuple[tuple[float, float], ...], sum_s: float | None, **labels: str
    ) -> None:
        """Add a histogram of cumulative buckets in ascending order."""
        if not buckets or sum_s is None:
            return
        rows = [(floatToGoString(bound), count) for bound, count in buckets]  # type: ignore[no-untyped-call]
        if not math.isinf(buckets[-1][0]):
            rows.append(("+Inf", buckets[-1][1]))
        family = self._families.setdefault(name, HistogramMetricFamily(PREFIX + name, meaning, labels=tuple(labels)))
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric([_label(text) for text in labels.values()], rows, sum_s)


def _label(text: str) -> str:
    return mask_text(sanitise.name(text))


def families(fleet: FleetState, *, now_s: float, now_wall_s: float) -> Iterable[Metric]:
    """Every metric family of the picture that has a series; the times are the operator's, of the scrape."""
    page = _Page()
    page.add("build_info", "Always 1: the version of this exporter.", 1, version=__version__)
    page.add("rules_watching", "Rules that look for what is wrong.", fleet.rules_watching)
    up = {node.name for node in fleet.nodes if _is_up(node, now_s)}
    for node in fleet.nodes:
        page.add("up", "1 while samples of the host arrive.", node.name in up, host=node.name)
        state, reach = str(node.link.state), str(node.link.reach)
        text = "Always 1: the connection's state, and what answered while samples were missing."
        page.add("link_state", text, 1, host=node.name, state=state, reach=reach)
        page.add("sample_age_seconds", "Age of the host's last sample.", node.age_s(now_s), host=node.name)
        if node.sample is not None and node.name in up:
            _host(page, node, node.sample, now_wall_s)
    firing = (one for one in fleet.findings if one.phase is Phase.FIRING and not one.is_unseen)
    for finding in islice(firing, FINDINGS_MOST):
        for host in finding.nodes or ("",):
            labels = {"host": host, "rule": finding.rule, "subject": finding.subject}
            labels |= {"severity": str(finding.severity), "confidence": str(finding.confidence)}
            page.add("finding", "Always 1: a finding that fires, once for each of its hosts.", 1, **labels)
    return page


def _is_up(node: NodeView, now_s: float) -> bool:
    age_s = node.age_s(now_s)
    if not is_current(node) or node.sample is None or age_s is None:
        return False
    return age_s <= max(OUTDATED_S, 3 * node.sample.interval_s)  # also where this program itself hangs


def _host(page: _Page, node: NodeView, sample: Sample, now_wall_s: float) -> None:
    host, facts = node.name, node.facts
    page.fill(SAMPLE, sample, host=host)
    page.fill(NODE, node, host=host)
    page.fill(TREND, node.trend, host=host)
    pressures = {"memory": sample.memory_pressure, "io": sample.io_pressure, "cpu": sample.cpu_pressure}
    for resource, pressure in pressures.items():
        page.fill(PRESSURE, pressure, host=host, resource=resource)
    held: dict[str, int] = {}
    for holder in node.ledger.holders if node.ledger else ():
        held[holder.kind] = held.get(holder.kind, 0) + holder.held_bytes
    for kind, held_bytes in held.items():
        page.add("memory_held_bytes", "By kind of holder; all kinds are the total.", held_bytes, host=host, kind=kind)
    if facts is not None:
        about = {"product": facts.product or "", "kernel": facts.kernel, "driver": node.driver_version}
        about["release"] = facts.dgx_release or ""
        page.add("host_info", "Always 1: what the host is and runs.", 1, host=host, **about)
        for disk in facts.disks:
            page.fill(DISK, disk, host=host, mountpoint=disk.mount)
    if node.network is not None and sample.boot_s - node.network.boot_s <= OUTDATED_S:
        for interface in node.interfaces:
            page.fill(INTERFACE, interface, host=host, interface=interface.name)
        for port in node.rdma_ports:
            page.fill(RDMA_PORT, port, host=host, device=port.device, port=str(port.port))
    parts = [part for part in node.collectors.values() if part.state is not CollectorState.MISSING]
    working = {part.name: part.state is CollectorState.OK for part in parts}
    if node.containers.is_asked and not node.containers.is_absent:
        working["containers"] = node.containers.available
    for name, is_ok in working.items():
        page.add("collector_up", "1 while this part of what is watched can be read.", is_ok, host=host, collector=name)
    for index, gpu in enumerate(node.gpu.gpus if node.gpu and not gpu_age_s(node) else ()):
        labels = {"host": host, "gpu": str(index)}
        page.add("gpu_info", "Always 1: which GPU it is.", 1, **labels, name=gpu.name, uuid=gpu.uuid or "")
        page.fill(GPU, gpu, **labels)
    _engines(page, node, now_wall_s)


def _engines(page: _Page, node: NodeView, now_wall_s: float) -> None:
    """Of engines with one name, the one that runs."""
    named: dict[str, Engine] = {}
    for engine in sorted(node.engines, key=lambda one: one.state is EngineState.EXITED):
        named.setdefault(_label(engine.name), engine)
    for name, engine in islice(named.items(), ENGINES_MOST):
        labels = {"host": node.name, "engine": name}
        about = {"kind": str(engine.kind), "model": engine.model or "", "version": engine.version or ""}
        page.add("engine_info", "Always 1: what the engine is and serves.", 1, **labels, **about)
        text = "Always 1: the phase of the engine's life."
        page.add("engine_state", text, 1, **labels, state=str(engine.state))
        page.fill(ENGINE, engine, **labels)
        figures = engine.metrics
        if figures is None or engine.state is EngineState.EXITED or now_wall_s - figures.wall_s > OUTDATED_S:
            continue
        page.fill(ENGINE_METRICS, figures, **labels)
        page.fill(ENGINE_RATES, engine.rates or EngineRates(), **labels)
        for metric, text, buckets, sum_s in (
            ("engine_time_to_first_token_seconds", "Time to a first token.", figures.ttft_buckets, figures.ttft_sum_s),
            ("engine_inter_token_latency_seconds", "Time between tokens.", figures.itl_buckets, figures.itl_sum_s),
        ):
            page.histogram(metric, text, buckets, sum_s, **labels)


class FleetCollector(Collector):
    """The newest picture, as prometheus-client collects it at each scrape, in a thread of its own."""

    def __init__(self, picture: Callable[[], FleetState], clock: Clock) -> None:
        self._picture = picture
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """The families of this moment."""
        return families(self._picture(), now_s=self._clock.monotonic(), now_wall_s=self._clock.wall())


async def exporter(make: MakeWatch, address: str, port: int) -> int:
    """Serve the metrics of these nodes, and say on standard error when a connection changes.

    Raises:
        UsageError: it can't listen there.
    """
    async with looking(make) as look:
        registry = CollectorRegistry()
        registry.register(FleetCollector(lambda: look.state, SystemClock()))
        ProcessCollector(registry=registry)
        server = _listen(address, port, registry)
        try:
            shown = shown_address(address, server.server_port)
            print(f"http://{shown}/metrics", flush=True)
            if not ipaddress.ip_address(address).is_loopback:
                say(f"warning: who reaches {shown} can read names, figures and findings: no password, no encryption")
            await look.say_links()
        finally:
            await asyncio.to_thread(server.shutdown)
            server.server_close()
    return 0


def _listen(address: str, port: int, registry: CollectorRegistry) -> WSGIServer:
    try:
        server, _ = start_http_server(port, address, registry)
    except OSError as error:
        raise cannot_listen(address, port, error) from error
    server.RequestHandlerClass.timeout = SILENT_S  # type: ignore[attr-defined]  # it is a class, the library's
    return server
