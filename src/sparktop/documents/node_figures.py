"""A node as lines: link, guard, figures (GPU, memory, host, processes), and what can't be read, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparktop.engines.memory_needs import may_load
from sparktop.model.fleet import FleetState, Link, LinkState, NodeView, Reach, is_current
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import CollectorState, Gpu, GpuProcess, Pressure, Sample
from sparktop.text.lines import Line, fitting, joined, wrapped
from sparktop.text.units import (
    GIB,
    NA,
    age,
    bare_gib,
    clock_time,
    countdown,
    duration,
    gib,
    memory_rate,
    missing,
    percent,
    rate,
    size,
    watts,
)

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
    if speed >= 0:
        return Line.of((f"▲ {memory_rate(speed)}", "ok"))
    tone = headline_tone(view)
    return Line.of((f"▼ {memory_rate(-speed)}", "value" if tone == "strong" else tone))


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
    def text(field: str, shown: Callable[[Any], str]) -> str:
        value = getattr(gpu, field)
        return missing(field, gpu.gaps) if value is None else shown(value)

    busy, power = text("utilisation_percent", percent), text("power_w", watts)
    clock, heat = text("sm_clock_mhz", "{} MHz".format), text("temperature_c", "{} °C".format)
    hot = "warning" if gpu.temperature_c is not None and gpu.temperature_c >= 85 else "value"
    if rest:
        state = figure("state", text("performance_state", str))
        unread = [figure(name, said) for name, said in (("SM", busy), ("power", power)) if said.startswith(NA)]
        return fitting([*unread, figure("clock", clock), figure("temp", heat, hot), throttle(gpu), state], width)
    items = [
        figure("SM", busy.rjust(5), "strong"),
        figure("power", power.rjust(5), "strong"),
        figure("clock", clock.rjust(8)),
        figure("temp", heat, hot),
        throttle(gpu),
        Line.of((gpu.performance_state or "", "quiet")),
    ]
    if _all_fit(items, width):
        return fitting(items, width)
    short = [figure("SM", busy, "strong"), Line.of((power, "strong")), Line.of(clock), Line.of((heat, hot))]
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
    if bandwidth.estimated_bytes_per_s is None:
        return Line.of((f"bandwidth {text}", "quiet"))
    peak = f" of {rate(bandwidth.peak_bytes_per_s)}" if bandwidth.peak_bytes_per_s else ""
    estimate = rate(bandwidth.estimated_bytes_per_s)
    if peak.endswith("GB/s"):
        estimate = f"{bandwidth.estimated_bytes_per_s / 1e9:.0f}"
    return Line.of(("bandwidth ", "quiet"), (f"{text}, est. ", "quiet"), f"{estimate}{peak}")


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
    shown = rows if len(rows) <= limit else rows[: limit - 1]
    lines = [_process(row, width) for row in shown]
    if hidden := rows[len(shown) :]:
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
        is_absent = collector.name == "nvml" and collector.state is CollectorState.MISSING
        if collector.state is CollectorState.OK or is_absent:
            continue
        tone = _COLLECTOR_TONES[collector.state]
        since = ""
        if collector.state is CollectorState.STUCK and view.sample is not None:
            since = f" for {duration(view.sample.boot_s - collector.since_boot_s)}"
        glyph = "▲ " if tone == "warning" else "• "
        name = _COLLECTOR_NAMES.get(collector.name, collector.name)
        text = f"{glyph}{name} {collector.state}{since}{': ' + collector.detail if collector.detail else ''}"
        lines += wrapped(text, width, tone, lines_each)
    containers = view.containers
    if view.sample is not None and not containers.available and containers.is_asked and containers.detail:
        lines += wrapped(f"• containers {NA}: {containers.detail}", width, "info", lines_each)
    if view.garbled_count:
        lines.append(Line.of((f"• {view.garbled_count} lines of the probe could not be read", "quiet")).cut(width))
    return lines


SIGNS: dict[LinkState, tuple[str, str]] = {
    LinkState.CONNECTING: ("◍", "info"),
    LinkState.LIVE: ("●", "ok"),
    LinkState.STALE: ("◌", "warning"),
    LinkState.LOST: ("✖", "critical"),
    LinkState.REFUSED: ("⊘", "critical"),
    LinkState.UNRECORDED: ("○", "warning"),
}
"""State -> (glyph, tone)."""


def badge(view: NodeView, now_s: float) -> Line:
    """ "● live 0.4 s", "✖ lost 0:42": the link's state, with the age of the figures or the time in that state."""
    state = view.link.state
    glyph, tone = SIGNS[state]
    if state in (LinkState.LIVE, LinkState.STALE):
        tail = age(view.age_s(now_s)) if view.sample_at_s is not None else ""
    else:
        tail = countdown(now_s - view.link.since_s)
    return Line.of((f"{glyph} {state}", tone), (f" {tail}" if tail else "", "quiet" if tone == "ok" else tone))


def trouble(view: NodeView, now_s: float, width: int, *, has_keys: bool = True) -> list[Line]:
    """What is wrong with a link that isn't live: state, reachability, next attempt or its key, cause, hint."""
    link = view.link
    if link.state is LinkState.LIVE:
        return []
    glyph, tone = SIGNS[link.state]
    age_s = view.age_s(now_s)
    parts = [f"{glyph} {link.state}"]
    if link.reach is not Reach.UNTESTED and link.state is LinkState.LOST:
        parts.append(str(link.reach))
    if age_s is not None:
        parts.append(f"figures as of {age(age_s)} ago")
    if has_keys or link.state is not LinkState.REFUSED:
        parts += [text for text in (_next(link, now_s),) if text]
    lines = wrapped(" · ".join(parts), width, tone, 2)
    room = 6 if link.state is LinkState.REFUSED else 2  # a refusal names a file, a line or a command, so it needs room
    if link.reason:
        lines += wrapped(link.reason, width, "", room)
    if link.hint:
        lines += wrapped(f"→ {link.hint}", width, "info", room)
    return lines


def _next(link: Link, now_s: float) -> str:
    if link.state is LinkState.REFUSED:
        return "r tries again"
    if link.next_attempt_s is not None:
        wait_s = link.next_attempt_s - now_s
        return f"next try in {countdown(wait_s)}" if wait_s > 0 else "trying now"
    if link.attempt > 1 and link.state is not LinkState.STALE:
        return f"attempt {link.attempt}"
    return ""


def story(view: NodeView, width: int, limit: int) -> list[Line]:
    """The last changes of the link with their times, the newest last."""
    lines: list[Line] = []
    for change in view.link_history[-limit:] if limit else ():
        glyph, tone = SIGNS[change.state]
        head = Line.of((f"{clock_time(change.wall_s)} ", "quiet"), (f"{glyph} {change.state} ", tone))
        text = "" if change.text == change.state else change.text
        lines.append((head + Line.of((text, "quiet"))).cut(width))
    return lines


GUARD_TONES = {
    GuardPhase.ARMED: "ok",
    GuardPhase.FIRED: "critical",
    GuardPhase.FAILED: "warning",
    GuardPhase.DISARMED: "quiet",
}


GUARD_NAME_CELLS = 24
DISARMED_SHOWN_S = 120.0
"""How long a node's pane tells that its guard was disarmed."""


def guard_brief(fleet: FleetState) -> Line:
    """ "guard off", "guard vllm-qwen36 < 4.0 GiB", "guard spark1 armed, spark2 fired"."""
    head, guards = Line.of(("guard ", "quiet")), _guards(fleet)
    if not guards:
        return Line.of(("guard off", "quiet"))
    if len(guards) == 1:
        name, guard = guards[0]
        return head + Line.of((_brief(name, guard), GUARD_TONES[guard.phase]))
    states = (Line.of((f"{name} {guard.phase}", GUARD_TONES[guard.phase])) for name, guard in guards)
    return head + joined(states, ", ", "quiet")


def guard_word(fleet: FleetState) -> Line:
    """ "guard armed", "guard fired": the worst state of all nodes, for a narrow header."""
    phases = {guard.phase for _, guard in _guards(fleet)}
    order = (GuardPhase.FIRED, GuardPhase.FAILED, GuardPhase.ARMED)
    worst = next((phase for phase in order if phase in phases), GuardPhase.DISARMED)
    return Line.of(("guard ", "quiet"), (str(worst), GUARD_TONES[worst]))


def has_guard(fleet: FleetState) -> bool:
    """Whether any node has a guard that isn't disarmed."""
    return bool(_guards(fleet))


def _guards(fleet: FleetState) -> list[tuple[str, GuardState]]:
    """(node, guard) for each guard that isn't disarmed."""
    guards = ((view.name, view.guard) for view in fleet.nodes)
    return [(name, guard) for name, guard in guards if guard is not None and guard.phase is not GuardPhase.DISARMED]


def _brief(node: str, guard: GuardState) -> str:
    if guard.phase is GuardPhase.ARMED:
        return f"{Line.of(guard.container_name).cut(GUARD_NAME_CELLS).plain} < {gib(guard.floor_bytes)}"
    return f"{guard.phase} on {node}"


def _is_long_disarmed(guard: GuardState, view: NodeView) -> bool:
    if guard.phase is not GuardPhase.DISARMED or guard.since_wall_s is None or view.sample is None:
        return False
    return view.sample.wall_s - guard.since_wall_s > DISARMED_SHOWN_S


def guard_line(view: NodeView, width: int) -> list[Line]:
    """The node's guard as one line; empty where none was ever armed, and some time after it was disarmed."""
    guard = view.guard
    if guard is None or _is_long_disarmed(guard, view):
        return []
    since = f" {clock_time(guard.since_wall_s)}" if guard.since_wall_s is not None else ""
    text, tail = str(guard.phase), f"{since}  {guard.detail}"
    if guard.phase is GuardPhase.ARMED:
        rate = f", or {guard.empty_within_s:g} s from empty" if guard.empty_within_s else ""
        text = f"armed: kills {guard.container_name} below {gib(guard.floor_bytes)}{rate}"
        until = f"  until {clock_time(guard.until_wall_s)}" if guard.until_wall_s is not None else ""
        stays = f"  stays {duration(guard.stay_s)}" if guard.stay_s else ""
        tail = (until or stays) + (f"  {guard.detail}" if guard.detail else "")
    elif guard.phase is GuardPhase.FIRED:
        available = f" at {gib(guard.available_bytes)}" if guard.available_bytes is not None else ""
        text = f"killing {guard.container_name}"
        if guard.answered_s is not None:
            text = f"killed {guard.container_name}{available}"
    return [Line.of(("guard ", "quiet"), (text, GUARD_TONES[guard.phase]), (tail, "quiet")).cut(width)]
