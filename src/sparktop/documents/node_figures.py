"""The lines of figures in a node's pane: GPU, memory, host, processes, and what can't be read, with the reason."""

from __future__ import annotations

from sparktop.engines.memory_needs import may_load
from sparktop.model.fleet import NodeView, is_current
from sparktop.model.telemetry import CollectorState, Gpu, GpuProcess, Pressure, Sample
from sparktop.text.lines import Line, fitting, wrapped
from sparktop.text.units import GIB, NA, bare_gib, countdown, duration, memory_rate, missing, percent, rate, size, watts

LOW_BYTES = 8 * GIB
"""Available memory below which GB10 machines were seen to hang (docs/facts/gb10.md section 2)."""
GPU_LATE_S = 10.0
"""GPU figures that lag behind by this are outdated: NVML hangs or is slow."""
PRESSURE_WARNING = 10.0
PRESSURE_CRITICAL = 40.0
"""Percent of time that tasks waited for memory over ten seconds (PSI "some")."""
_COLLECTOR_NAMES = {"processes": "process list"}
"""Where "processes paused" would tell of the host's own."""
_COLLECTOR_TONES = {
    CollectorState.OK: "quiet",
    CollectorState.MISSING: "quiet",
    CollectorState.PAUSED: "info",
    CollectorState.DENIED: "info",
    CollectorState.STUCK: "warning",
    CollectorState.FAILED: "warning",
}


def figure(label: str, value: str, tone: str = "value") -> Line:
    """A quiet label and its value."""
    return Line.of((f"{label} ", "quiet"), (value, "quiet" if value.startswith(NA) else tone))


def available_tone(available_bytes: float, total_bytes: float) -> str:
    """The tone for a level of available memory; "" is good."""
    floor = min(float(LOW_BYTES), total_bytes * 0.07)
    if available_bytes < floor:
        return "critical"
    return "warning" if available_bytes < 2 * floor else ""


def headline_tone(view: NodeView) -> str:
    """The tone of the large figure: by the level, and by how soon memory would be empty."""
    if view.sample is None:
        return "quiet"
    memory = view.sample.memory
    if _soon_empty_s(view) is not None:
        return "critical"
    return available_tone(memory.available_bytes, memory.total_bytes) or "strong"


def trend_line(view: NodeView) -> Line:
    """ "▼ 6.1 GiB/s", "steady"; empty before it is known, and once it isn't any more."""
    if view.trend is None or not is_current(view):
        return Line()
    speed = view.trend.bytes_per_s
    if view.trend.time_to_empty_s is None and abs(speed) < 60e6:
        return Line.of(("steady", "quiet"))
    if speed < 0:
        return Line.of(
            (f"▼ {memory_rate(-speed)}", headline_tone(view) if headline_tone(view) != "strong" else "value")
        )
    return Line.of((f"▲ {memory_rate(speed)}", "ok"))


def empty_line(view: NodeView) -> Line:
    """ "empty in 0:07" while available memory falls so fast that it is worth an alarm; else empty."""
    empty_s = _soon_empty_s(view) if is_current(view) else None
    return Line() if empty_s is None else Line.of((f"empty in {countdown(empty_s)}", "critical"))


def _soon_empty_s(view: NodeView) -> float | None:
    """How soon memory would be empty, where that is a finding too; None while an engine loads: that ends by itself."""
    if view.trend is None or view.trend.time_to_empty_s is None or any(map(may_load, view.engines)):
        return None
    from sparktop.diagnose.rules.memory.starvation import fall_of, threatens  # not needed for the first paint

    fall = fall_of(view)
    return fall.empty_in_s if fall is not None and threatens(view, fall) else None


def short_headline(view: NodeView, width: int) -> Line:
    """Available memory, the GPU's load and power, and the trend, on one line."""
    assert view.sample is not None
    figure = Line.of((f"{bare_gib(view.sample.memory.available_bytes)} GiB", headline_tone(view)))
    return fitting(
        [figure.cut(width), load_line(view).cut(width - 10), empty_line(view), trend_line(view)], width, "  "
    )


def gpu_line(view: NodeView, width: int, *, rest: bool = False) -> Line:
    """SM, power, clock, temperature and throttling, or why there are none; `rest`: without what the charts tell."""
    gpu = view.first_gpu
    if gpu is None:
        return no_gpu(view).cut(width)
    if late_s := gpu_age_s(view):
        head = Line.of((f"▲ GPU as of {duration(late_s)} ago  ", "warning"))
        return (head + _gpu_items(gpu, width - head.width, rest=rest).faded()).cut(width)
    return _gpu_items(gpu, width, rest=rest)


def load_line(view: NodeView) -> Line:
    """ "SM 96 %  38 W" alone, with how old it is where that is worth saying; why there is none."""
    gpu = view.first_gpu
    if gpu is None:
        return no_gpu(view)
    line = figure("SM", percent(gpu.utilisation_percent), "strong") + Line.of("  ", (watts(gpu.power_w), "strong"))
    late_s = gpu_age_s(view)
    return line.faded() + Line.of((f"  ▲ {duration(late_s)} old", "warning")) if late_s else line


def _gpu_items(gpu: Gpu, width: int, *, rest: bool) -> Line:
    gaps = gpu.gaps
    clock = missing("sm_clock_mhz", gaps) if gpu.sm_clock_mhz is None else f"{gpu.sm_clock_mhz} MHz"
    heat = missing("temperature_c", gaps) if gpu.temperature_c is None else f"{gpu.temperature_c} °C"
    power = missing("power_w", gaps) if gpu.power_w is None else watts(gpu.power_w)
    busy = missing("utilisation_percent", gaps) if gpu.utilisation_percent is None else percent(gpu.utilisation_percent)
    hot = "warning" if gpu.temperature_c is not None and gpu.temperature_c >= 85 else "value"
    if rest:
        state = figure("state", gpu.performance_state or missing("performance_state", gaps))
        unread = [figure(name, text) for name, text in (("SM", busy), ("power", power)) if text.startswith(NA)]
        return fitting([*unread, figure("clock", clock), figure("temp", heat, hot), throttle(gpu), state], width)
    items = [
        figure("SM", busy.rjust(5), "strong"),
        figure("power", power.rjust(5), "strong"),
        figure("clock", clock.rjust(8)),
        figure("temp", heat, hot),
        throttle(gpu),
        Line.of((gpu.performance_state or "", "quiet")),
    ]
    short = [
        figure("SM", busy, "strong"),
        Line.of((power, "strong")),
        Line.of(clock),
        Line.of((heat, hot)),
    ]
    if _all_fit(items, width):
        return fitting(items, width)
    room = width - sum(item.width + 2 for item in short)
    return fitting([*short, throttle(gpu).cut(room)] if room >= _LEAST_REASON else short, width, "  ")


_LEAST_REASON = len("▲ throttled")
"""Cells from which the reason for throttling is told, cut where it is longer."""


def _all_fit(items: list[Line], width: int) -> bool:
    return sum(item.width for item in items) + 3 * (len(items) - 1) <= width


def gpu_age_s(view: NodeView) -> float:
    """Seconds that the GPU's figures are older than the sample; 0 while that is normal."""
    if view.gpu is None or view.sample is None:
        return 0.0
    behind_s = view.sample.boot_s - view.gpu.boot_s
    return behind_s if behind_s > max(GPU_LATE_S, 5 * view.sample.interval_s) else 0.0


def throttle(gpu: Gpu) -> Line:
    """The reasons for GPU throttling."""
    if gpu.throttle_reasons is None:
        return Line.of((f"throttle {missing('throttle_reasons', gpu.gaps)}", "quiet"))
    reasons = [reason for reason in gpu.throttle_reasons if "idle" not in reason.lower()]
    if reasons:
        return Line.of((f"▲ throttled: {', '.join(reasons)}", "warning"))
    return Line.of(("no throttling", "quiet"))


def no_gpu(view: NodeView) -> Line:
    """Why there are no GPU figures."""
    nvml = view.collectors.get("nvml")
    if nvml is not None and nvml.state is not CollectorState.OK:
        return figure("GPU", f"{NA} ({nvml.state}{': ' + nvml.detail if nvml.detail else ''})")
    return figure("GPU", f"{NA} (none found)" if view.gpu is not None else f"{NA} (not read yet)")


def bandwidth_line(view: NodeView) -> Line:
    """Memory bandwidth: as counted, else an estimate with the reason."""
    bandwidth = view.bandwidth
    if view.first_gpu is None:
        return Line()
    if bandwidth.percent is not None:
        return figure("memory bandwidth", percent(bandwidth.percent))
    text = bandwidth.reason or NA
    if bandwidth.estimated_bytes_per_s is not None:
        peak = f" of {rate(bandwidth.peak_bytes_per_s)}" if bandwidth.peak_bytes_per_s else ""
        estimate = rate(bandwidth.estimated_bytes_per_s)
        if peak.endswith("GB/s"):
            estimate = f"{bandwidth.estimated_bytes_per_s / 1e9:.0f}"
        return Line.of(("bandwidth ", "quiet"), (f"{text}, est. ", "quiet"), f"{estimate}{peak}")
    return Line.of((f"bandwidth {text}", "quiet"))


def memory_line(sample: Sample, width: int) -> Line:
    """Used, cache, swap, shared and pressure, as many as fit."""
    memory = sample.memory
    swap_text = bare_gib(memory.swap_used_bytes)
    if memory.swap_total_bytes:
        swap_text += f" of {bare_gib(memory.swap_total_bytes)}"
    pressure = pressure_line(sample.memory_pressure)
    items = [
        figure("used", bare_gib(memory.used_bytes)),
        figure("cache", bare_gib(memory.page_cache_bytes)),
        figure("swap", swap_text),
        pressure,
        figure("shared", bare_gib(memory.shared_bytes)),
    ]
    if not _all_fit(items, width):
        items[2] = figure("swap", bare_gib(memory.swap_used_bytes))
    if sample.memory_pressure is not None and sample.memory_pressure.some_avg10 >= PRESSURE_WARNING:
        items = [pressure, *items[:3], items[4]]
    return fitting(items, width, "   " if _all_fit(items, width) else "  ")


def pressure_line(pressure: Pressure | None) -> Line:
    """Memory pressure (PSI) over the last ten seconds, coloured when tasks wait."""
    if pressure is None:
        return figure("pressure", NA)
    some = pressure.some_avg10
    text = percent(some)
    if some < PRESSURE_WARNING:
        return figure("pressure", text)
    glyph, tone = ("✖", "critical") if some >= PRESSURE_CRITICAL else ("▲", "warning")
    return Line.of((f"{glyph} pressure {text}, all {percent(pressure.full_avg10)}", tone))


def host_line(view: NodeView, width: int) -> Line:
    """CPU, load, disk, uptime, kernel: as many as fit."""
    sample, facts = view.sample, view.facts
    items: list[Line] = []
    if sample is not None:
        items += [
            figure("cpu", percent(view.cpu_busy_percent)),
            figure("load", NA if sample.load_1m is None else f"{sample.load_1m:.1f}"),
            figure("up", duration(sample.boot_s)),
        ]
    if facts is not None:
        root = next((disk for disk in facts.disks if disk.mount == "/"), facts.disks[0] if facts.disks else None)
        if root is not None:
            tone = "warning" if root.free_bytes < root.low_bytes else "value"
            items.insert(2, figure("disk", f"{size(root.free_bytes)} free", tone))
        items.append(Line.of((facts.kernel, "quiet")))
    return fitting(items, width)


def system_line(view: NodeView, width: int) -> Line:
    """Product, GPU, cores, architecture, OS and user, as many as fit."""
    facts = view.facts
    if facts is None:
        return Line()
    gpu = view.first_gpu
    texts = [
        facts.product or "",
        gpu.name if gpu else "",
        f"{facts.cpu_count} cores" if facts.cpu_count else "",
        facts.architecture,
        facts.os_name or "",
        f"as {facts.user}" if facts.user else "",
    ]
    return fitting([Line.of((text, "quiet")) for text in texts if text], width, " · ")


def gpu_processes(view: NodeView, width: int, limit: int) -> list[Line]:
    """The processes on the GPU, the largest first."""
    gpu = view.first_gpu
    if gpu is None or limit < 1:
        return []
    if gpu.processes is None:
        return [Line.of((f"GPU processes {missing('processes', gpu.gaps)}", "quiet"))]
    rows = sorted(gpu.processes, key=lambda row: -(row.used_bytes or 0))
    if not rows:
        return [Line.of(("no process on the GPU", "quiet"))]
    lines = [_process(row, width) for row in rows[: limit if len(rows) <= limit else limit - 1]]
    if len(rows) > limit:
        hidden = rows[limit - 1 :]
        hidden_bytes = sum(row.used_bytes or 0 for row in hidden)
        lines.append(Line.of((f"  and {len(hidden)} more GPU processes, {size(hidden_bytes)}", "quiet")))
    return lines


def _process(row: GpuProcess, width: int) -> Line:
    used = Line.of((size(row.used_bytes).rjust(9), "value"))
    kind = {"C": "compute", "G": "graphics"}.get(row.kind, row.kind)
    name = Line.of((f"{row.pid:>8} ", "quiet"), row.name.rsplit("/", 1)[-1], (f"  {kind}", "quiet"))
    return (used + Line.of("  ") + name.cut(max(0, width - 11))).cut(width)


def collectors(view: NodeView, width: int, lines_each: int = 2) -> list[Line]:
    """The probe's collectors that don't work, worst first, and how many of its lines could not be read."""
    lines: list[Line] = []
    for collector in sorted(view.collectors.values(), key=lambda c: c.state is not CollectorState.STUCK):
        if collector.state is CollectorState.OK or (
            collector.name == "nvml" and collector.state is CollectorState.MISSING
        ):
            continue
        tone = _COLLECTOR_TONES[collector.state]
        since = ""
        if collector.state is CollectorState.STUCK and view.sample is not None:
            since = f" for {duration(view.sample.boot_s - collector.since_boot_s)}"
        glyph = "▲ " if tone == "warning" else "• "
        name = _COLLECTOR_NAMES.get(collector.name, collector.name)
        text = f"{glyph}{name} {collector.state}{since}{': ' + collector.detail if collector.detail else ''}"
        lines += wrapped(text, width, tone, lines_each)
    if (
        not view.containers.available
        and view.sample is not None
        and view.containers.is_asked
        and view.containers.detail
    ):
        lines += wrapped(f"• containers {NA}: {view.containers.detail}", width, "info", lines_each)
    if view.garbled_count:
        lines.append(Line.of((f"• {view.garbled_count} lines of the probe could not be read", "quiet")).cut(width))
    return lines
