"""The engine table's columns: what each shows, how wide, and which go first when there is no room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktop.model.engine import EndpointState, Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.ui.format import NA, count, duration, latency, ratio, size, speed
from sparktop.ui.panes.finding_rows import SIGNS
from sparktop.ui.widgets.bar import progress
from sparktop.ui.widgets.ink import Line

STATES: dict[EngineState, tuple[str, str]] = {
    EngineState.UNKNOWN: ("?", "quiet"),
    EngineState.STARTING: ("◌", "info"),
    EngineState.LOADING: ("◔", "info"),
    EngineState.CAPTURING: ("◑", "info"),
    EngineState.READY: ("○", "ok"),
    EngineState.SERVING: ("●", "ok"),
    EngineState.EXITED: ("✖", "critical"),
}
"""State -> (glyph, tone)."""


STALLS = ("gpu.spin-deadlock", "gpu.capture-stuck", "engine.no-tokens", "engine.load-stalled")
"""Rules whose finding says that an engine stands still."""
STILL_S = 15.0
"""Held requests without a token for so long are marked; a long prompt's prefill stays under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One engine on one node."""

    node: str
    engine: Engine
    is_old: bool = False
    """The node's link isn't live: this was so when it was last seen."""
    stalled: Severity | None = None
    """How bad it is that it holds work and makes no progress, where a finding says that it doesn't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `rank` says how long it stays when room gets scarce, 0 for ever."""

    title: str
    rank: int
    cell: Callable[[Row], Line]
    width: int
    widest: int = 0
    """For a column that grows with its content: how far."""
    is_left: bool = False
    is_figure: bool = False
    """Comes from the engine's endpoint."""


def state_cell(row: Row, *, bar: bool = True) -> Line:
    """ "● serving", "◑ capturing 20/36 ▰▰▱▱", "✖ exited 137", "– removed", "◌ was serving"."""
    engine = row.engine
    if row.is_old:
        return Line.of((f"◌ was {engine.state}", "quiet"))
    glyph, tone = STATES[engine.state]
    word = str(engine.state)
    if row.stalled is not None and engine.state is not EngineState.EXITED:
        (glyph, tone), word = SIGNS[row.stalled], "stalled"
    runs = Line.of((f"{glyph} {word}", tone))
    if engine.progress is not None and engine.progress.total > 0:
        done, total = engine.progress.done, engine.progress.total
        runs += Line.of((f" {done}/{total}", "value"))
        return runs + Line.of((f" {progress(done, total, 6)}", tone)) if bar else runs
    if engine.state is EngineState.EXITED and engine.container is not None:
        code = engine.container.exit_code
        why = "OOM" if engine.container.oom_killed else f"{code}" if code is not None else ""
        if engine.container.is_gone:
            runs, why = Line.of(("– removed", "quiet")), "" if code == 0 else why
        elif code == 0 and not engine.container.oom_killed:
            runs = Line.of((f"{glyph} {engine.state}", "quiet"))
        return runs + Line.of((f" {why}", "value")) if why else runs
    return runs


def stall_of(engine: Engine, node: str, findings: Sequence[Finding]) -> Severity | None:
    """How bad a standstill of this engine is, by what fires now; a deadlock over several nodes is of all its ranks."""
    told = [
        finding.severity
        for finding in findings
        if finding.rule in STALLS
        and finding.phase is Phase.FIRING
        and node in finding.nodes
        and (finding.subject in ("", engine.name) or len(finding.nodes) > 1)
    ]
    return Severity.CRITICAL if Severity.CRITICAL in told else told[0] if told else None


def _figure(text: str, tone: str = "value") -> Line:
    return Line.of((text, "quiet" if text == NA else tone))


def _busy(value: float | None, tone: str) -> Line:
    return _figure(count(value), tone if value else "quiet")


def _kv(row: Row) -> Line:
    used = row.engine.metrics.kv_cache_ratio if row.engine.metrics else None
    if used is not None and used >= 0.95:
        return Line.of((f"▲{ratio(used)}", "warning"))
    return _figure(ratio(used))


def _tokens(row: Row) -> Line:
    """Tokens a second; marked when requests are held and no token has come for a while."""
    rates = row.engine.rates
    held = (_run(row) or 0) > 0
    if rates is not None and held and (rates.progress_age_s or 0.0) >= STILL_S:
        return Line.of((f"▲{speed(rates.generation_tokens_per_s)}", "warning"))
    return _figure(speed(_generated(row)), "strong")


def _metric(name: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.engine.metrics, name) if row.engine.metrics else None


def _rate(name: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.engine.rates, name) if row.engine.rates else None


def _latency(name: str) -> Callable[[Row], Line]:
    """A latency; "~" where it is of the engine's whole life and not of the last window."""

    def cell(row: Row) -> Line:
        rates = row.engine.rates
        value = getattr(rates, name) if rates else None
        if value is not None and rates is not None and rates.lifetime_latency:
            return _figure(f"~{latency(value)}", "quiet")
        return _figure(latency(value))

    return cell


_run, _wait = _metric("running"), _metric("waiting")
_generated, _prompted, _prefix = (
    _rate("generation_tokens_per_s"),
    _rate("prompt_tokens_per_s"),
    _rate("prefix_hit_ratio"),
)
_preempted = _metric("preemptions")

COLUMNS: tuple[Column, ...] = (
    Column(
        title="ENGINE", rank=0, width=10, widest=28, is_left=True, cell=lambda r: Line.of((r.engine.name, "strong"))
    ),
    Column(title="NODE", rank=2, width=6, widest=14, is_left=True, cell=lambda r: Line.of(r.node)),
    Column(title="STATE", rank=0, width=9, widest=26, is_left=True, cell=state_cell),
    Column(title="MODEL", rank=5, width=12, widest=44, is_left=True, cell=lambda r: _model(r.engine)),
    Column(title="RUN", rank=1, width=4, is_figure=True, cell=lambda r: _busy(_run(r), "strong")),
    Column(title="WAIT", rank=3, width=4, is_figure=True, cell=lambda r: _busy(_wait(r), "warning")),
    Column(title="TOK/S", rank=1, width=6, is_figure=True, cell=_tokens),
    Column(title="KV", rank=4, width=5, is_figure=True, cell=_kv),
    Column(title="PREFIX", rank=9, width=6, is_figure=True, cell=lambda r: _figure(ratio(_prefix(r)))),
    Column(title="TTFT", rank=6, width=7, is_figure=True, cell=_latency("ttft_p50_s")),
    Column(title="ITL", rank=8, width=7, is_figure=True, cell=_latency("itl_p50_s")),
    Column(title="PROMPT/S", rank=11, width=8, is_figure=True, cell=lambda r: _figure(speed(_prompted(r)))),
    Column(title="PREEMPT", rank=12, width=7, is_figure=True, cell=lambda r: _busy(_preempted(r), "value")),
    Column(title="GPU MEM", rank=13, width=9, cell=lambda r: _figure(size(r.engine.gpu_bytes))),
    Column(title="UP", rank=7, width=9, cell=lambda r: _figure(duration(r.engine.uptime_s))),
    Column(title="RESTARTS", rank=10, width=8, cell=lambda r: _restarts(r.engine)),
)
GAP = 2
FIGURES_BEFORE_NAMES = 4
"""Columns up to this rank come before names are given all the room they want."""
MODEL_FIRST = 20
"""So much of a model's name comes before the last figures."""


def _model(engine: Engine) -> Line:
    name = engine.model or NA
    return _figure(name.rstrip("/").rsplit("/", 1)[-1] if name != NA else name, "")


def _restarts(engine: Engine) -> Line:
    number = engine.restarts
    return _figure(count(number), "warning" if number else "quiet")


def choose(rows: Sequence[Row], width: int, *, nodes: int) -> list[tuple[Column, int]]:
    """The columns that fit and their widths, in order: lowest ranks first, then the growing ones get the rest."""
    chosen: dict[str, int] = {}
    wanted: dict[str, int] = {}
    free = width + GAP
    for column in sorted(COLUMNS, key=lambda column: column.rank):
        if column.title == "NODE" and nodes < 2:
            continue
        content = max((column.cell(row).width for row in rows), default=0)
        wanted[column.title] = min(column.widest, max(column.width, content)) if column.widest else column.width
        first = wanted[column.title] if column.title == "NODE" else column.width
        if column.title == "STATE":
            first = max([column.width, *(state_cell(row, bar=False).width for row in rows)])
        # A name or a state that must be cut is worse than a column of figures that isn't there.
        if column.rank > FIGURES_BEFORE_NAMES:
            for title in ("ENGINE", "STATE", "MODEL"):
                if title in chosen:
                    grown = min(wanted[title], chosen[title] + max(0, free), MODEL_FIRST if title == "MODEL" else 99)
                    free -= max(0, grown - chosen[title])
                    chosen[title] = max(chosen[title], grown)
        if first + GAP <= free:
            chosen[column.title] = first
            free -= first + GAP
    for title in ("ENGINE", "STATE", "MODEL"):
        if title in chosen:
            grown = min(wanted[title], chosen[title] + free)
            free -= grown - chosen[title]
            chosen[title] = grown
    return [(column, chosen[column.title]) for column in COLUMNS if column.title in chosen]


def heading(columns: Sequence[tuple[Column, int]], hidden: int = 0) -> Line:
    """The titles over their columns; says how many rows have no room."""
    cells: list[Line] = []
    for column, width in columns:
        title = f"{column.title} +{hidden}" if hidden and column.title == "ENGINE" else column.title
        cell = Line.of((title, "quiet"))
        cells.append(cell.fit(width) if column.is_left else cell.right(width))
    return _joined(cells)


def table_row(row: Row, columns: Sequence[tuple[Column, int]]) -> Line:
    """One engine; where its endpoint gives no figures, why stands in their place."""
    cells: list[Line] = []
    why = no_figures(row.engine)
    figures = [width for column, width in columns if column.is_figure]
    said = False
    for column, width in columns:
        if column.is_figure and why:
            if not said:
                room = sum(figures) + GAP * (len(figures) - 1)
                cells.append(Line.of((why, "quiet")).fit(room))
                said = True
            continue
        cell = column.cell(row)
        if column.title == "STATE" and cell.width > width:
            cell = state_cell(row, bar=False)
        cells.append(cell.fit(width) if column.is_left else cell.right(width))
    line = _joined(cells)
    return line.faded() if row.is_old else line


def no_figures(engine: Engine) -> str:
    """Why an engine has no figures of its own; empty when it has."""
    if engine.metrics is not None:
        return ""
    if engine.state in (EngineState.EXITED, EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING):
        return engine.exit_detail if engine.state is EngineState.EXITED and engine.exit_detail else "–"
    endpoint = engine.endpoint
    if endpoint is None:
        return f"{NA}: no endpoint found"
    if endpoint.state is EndpointState.NOT_ASKED:
        return f"{NA}: endpoint not asked yet"
    return f"{NA}: endpoint {endpoint.state}"


def _joined(cells: Sequence[Line]) -> Line:
    runs = [run for index, cell in enumerate(cells) for run in ((" " * (GAP if index else 0), ""), *cell.runs)]
    return Line(tuple(runs))
