"""Engines as a table whose columns fit a width, and the details of one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.diagnose.ended_by import failed, stop_cause, stopped_by
from sparktop.diagnose.stall import STALLED, stall_of
from sparktop.documents.finding_tree import SIGNS
from sparktop.engines.labels import starter_words
from sparktop.engines.pair import over_nodes, state_of
from sparktop.engines.ranks import is_alive, is_worker, spans_nodes
from sparktop.model.engine import ORDINARY_EXITS, EndpointState, Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.proof import Canary
from sparktop.text.bars import progress
from sparktop.text.lines import Line, hanging, joined, wrapped
from sparktop.text.table import GAP, Column, fitted
from sparktop.text.units import NA, count, day_time, duration, latency, ratio, size, speed

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


STILL_S = 15.0
"""Seconds without a token, with requests held, from which they are marked; a long prefill takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine on one node."""

    node: str
    engine: Engine
    is_old: bool = False
    """The node's link is lost: this is the last known state."""
    stalled: Severity | None = None
    """Severity of the finding that the engine makes no progress; None without one."""
    is_stopped: bool = False
    """A console stopped it, to stay stopped or to start it again: its exit code is no failure."""
    folded: int = 0
    """How many further ranks of it have no row of their own, as they are ready and nothing is wrong with them."""


class EngineColumn(StrEnum):
    """The columns of the engines' table, by their titles."""

    ENGINE = "ENGINE"
    NODE = "NODE"
    STATE = "STATE"
    MODEL = "MODEL"
    RUN = "RUN"
    WAIT = "WAIT"
    TOK_S = "TOK/S"
    KV = "KV"
    PREFIX = "PREFIX"
    TTFT = "TTFT"
    ITL = "ITL"
    PROMPT_S = "PROMPT/S"
    PREEMPT = "PREEMPT"
    GPU_MEM = "GPU MEM"
    UP = "UP"
    RESTARTS = "RESTARTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureColumn(Column):
    """One column of the engines' table."""

    cell: Callable[[EngineRow], Line]
    is_figure: bool = False
    """The value comes from the engine's endpoint."""


def state_cell(row: EngineRow, *, bar: bool = True) -> Line:
    """ "● serving", "◑ capturing 20/36 ▰▰▱▱", "✖ exited 137", "– exited 143", "– stopped", "◌ was serving"."""
    engine = row.engine
    if row.is_old:
        return Line.of((f"◌ was {engine.state if row.stalled is None else STALLED}", "quiet"))
    glyph, tone = STATES[engine.state]
    word = str(engine.state)
    if row.stalled is not None:
        (glyph, tone), word = SIGNS[row.stalled], STALLED
    runs = Line.of((f"{glyph} {word}", tone))
    if engine.progress is not None and engine.progress.total > 0:
        done_count, total = engine.progress.done, engine.progress.total
        runs += Line.of((f" {done_count}/{total}", "value"))
        return runs + Line.of((f" {progress(done_count, total, 6)}", tone)) if bar else runs
    if row.is_stopped and not (engine.container is not None and engine.container.is_gone):
        return Line.of(("– stopped", "quiet"))
    if engine.state is EngineState.EXITED and engine.container is not None:
        code = engine.container.exit_code
        why = "OOM" if engine.container.oom_killed else f"{code}" if code is not None else ""
        if engine.container.is_gone:
            runs, why = Line.of(("– removed", "quiet")), "" if code == 0 else why
        elif code in ORDINARY_EXITS and not failed(engine):
            runs = Line.of((f"– {engine.state}", "quiet"))  # an ordinary stop: whether it is missed the findings say
        return runs + Line.of((f" {why}", "value")) if why else runs
    return runs


def engine_rows(fleet: FleetState) -> tuple[EngineRow, ...]:
    """The engines of all nodes; a worker rank is ready when its head serves, as it answers no request itself.

    An ending that sparktop knows better than Docker is told as the findings tell it.
    """
    spread = over_nodes(fleet)
    return tuple(
        EngineRow(
            node=view.name,
            engine=replace(
                engine,
                state=state_of(engine, spread),
                exit_detail=stop_cause(view, engine, fleet) or engine.exit_detail,
            ),
            is_old=view.link.state in (LinkState.LOST, LinkState.REFUSED, LinkState.UNRECORDED),
            stalled=stall_of(engine, view.name, fleet.findings, spread),
            is_stopped=not is_alive(engine) and stopped_by(view, engine, fleet) is not None,
        )
        for view in fleet.nodes
        for engine in view.engines
    )


def folded(rows: Sequence[EngineRow], fleet: FleetState) -> tuple[EngineRow, ...]:
    """The rows without those of ready ranks, where an engine has more than one: its head's row counts them."""
    heads = {
        (rank.node.name, rank.engine.key): (team.head.node.name, team.head.engine.key)
        for team in over_nodes(fleet)
        for rank in team.ranks[1:]
        if len(team.ranks) > 2
    }
    quiet = [
        (row.node, row.engine.key)
        for row in rows
        if row.engine.state is EngineState.READY and row.stalled is None and not row.is_old
    ]
    counts = Counter(heads[key] for key in quiet if key in heads)
    return tuple(
        replace(row, folded=counts[key])
        for row in rows
        if (key := (row.node, row.engine.key)) not in quiet or key not in heads
    )


def _node_cell(row: EngineRow) -> Line:
    return Line.of(row.node, (f" +{row.folded}" if row.folded else "", "quiet"))


SORTS: Mapping[EngineColumn, Callable[[EngineRow], float]] = {
    EngineColumn.TOK_S: lambda row: (row.engine.rates.generation_tokens_per_s or 0.0) if row.engine.rates else 0.0,
    EngineColumn.KV: lambda row: (row.engine.metrics.kv_cache_ratio or 0.0) if row.engine.metrics else 0.0,
    EngineColumn.GPU_MEM: lambda row: row.engine.gpu_bytes or 0,
    EngineColumn.UP: lambda row: row.engine.uptime_s or 0.0,
}
"""Columns that the table may be sorted by, the highest first."""


def searched_text(row: EngineRow) -> str:
    """What a filter of the table looks at: node, name, state, model and image."""
    engine = row.engine
    image = engine.container.image if engine.container is not None else ""
    return " ".join((row.node, engine.name, state_cell(row, bar=False).plain, engine.model or "", image or ""))


def sorted_rows(
    rows: Sequence[EngineRow], by: EngineColumn | None, findings: Sequence[Finding] = ()
) -> tuple[EngineRow, ...]:
    """The rows in the order of this column; without one, those with the worst of these findings first."""
    return tuple(sorted(rows, key=SORTS[by] if by is not None else lambda row: _weight(row, findings), reverse=True))


def _weight(row: EngineRow, findings: Sequence[Finding]) -> int:
    about = (one for one in findings if row.node in one.nodes and row.engine.name in (one.engine, one.subject))
    return max((one.severity.weight for one in about if one.severity is not Severity.INFO), default=0)


def _figure_cell(text: str, tone: str = "value") -> Line:
    return Line.of((text, "quiet" if text == NA else tone))


def _count_cell(value: float | None, tone: str) -> Line:
    return _figure_cell(count(value), tone if value else "quiet")


def _kv_cell(row: EngineRow) -> Line:
    used = row.engine.metrics.kv_cache_ratio if row.engine.metrics else None
    if used is not None and used >= 0.95:
        return Line.of((f"▲{ratio(used)}", "warning"))
    return _figure_cell(ratio(used))


def _tokens_cell(row: EngineRow) -> Line:
    """Tokens a second; marked while requests are held and no token has come for STILL_S."""
    rates = row.engine.rates
    is_busy = (_run(row) or 0) > 0
    if rates is not None and is_busy and (rates.progress_age_s or 0.0) >= STILL_S:
        return Line.of((f"▲{speed(rates.generation_tokens_per_s)}", "warning"))
    return _figure_cell(speed(_generated(row)), "strong")


def _metric(name: str) -> Callable[[EngineRow], float | None]:
    return lambda row: getattr(row.engine.metrics, name) if row.engine.metrics else None


def _rate(name: str) -> Callable[[EngineRow], float | None]:
    return lambda row: getattr(row.engine.rates, name) if row.engine.rates else None


def _latency_cell(name: str) -> Callable[[EngineRow], Line]:
    """A cell for a latency; "~" marks a median over the engine's whole life instead of the last window."""

    def cell(row: EngineRow) -> Line:
        rates = row.engine.rates
        value = getattr(rates, name) if rates else None
        if value is not None and rates is not None and name in rates.of_life:
            return _figure_cell(f"~{latency(value)}", "quiet")
        return _figure_cell(latency(value))

    return cell


_run, _wait = _metric("running"), _metric("waiting")


_generated, _prompted, _prefix = (
    _rate("generation_tokens_per_s"),
    _rate("prompt_tokens_per_s"),
    _rate("prefix_hit_ratio"),
)


_preempted = _metric("preemptions")


def _column(key: EngineColumn, turn: int, cells: int, cell: Callable[[EngineRow], Line]) -> FigureColumn:
    return FigureColumn(key=key, turn=turn, cells=cells, cell=cell, is_right=True)


def _figure(key: EngineColumn, turn: int, cells: int, cell: Callable[[EngineRow], Line]) -> FigureColumn:
    return FigureColumn(key=key, turn=turn, cells=cells, cell=cell, is_right=True, is_figure=True)


def _name(
    key: EngineColumn, turn: int, cells: int, cell: Callable[[EngineRow], Line], *grows: tuple[int, int]
) -> FigureColumn:
    return FigureColumn(key=key, turn=turn, cells=cells, cell=cell, grows=grows)


COLUMNS = (
    # Rather leave out a column of figures than cut a name or a state: those grow before the columns of turn 5.
    _name(EngineColumn.ENGINE, 0, 10, lambda r: Line.of((r.engine.name, "strong")), (4, 28)),
    _name(EngineColumn.NODE, 2, 6, _node_cell),
    _name(EngineColumn.STATE, 0, 9, state_cell, (4, 26)),
    _name(EngineColumn.MODEL, 5, 12, lambda r: _model_cell(r.engine), (5, 20), (14, 44)),
    _figure(EngineColumn.RUN, 1, 4, lambda r: _count_cell(_run(r), "strong")),
    _figure(EngineColumn.WAIT, 3, 4, lambda r: _count_cell(_wait(r), "warning")),
    _figure(EngineColumn.TOK_S, 1, 6, _tokens_cell),
    _figure(EngineColumn.KV, 4, 6, _kv_cell),
    _figure(EngineColumn.PREFIX, 9, 6, lambda r: _figure_cell(ratio(_prefix(r)))),
    _figure(EngineColumn.TTFT, 6, 7, _latency_cell("ttft_p50_s")),
    _figure(EngineColumn.ITL, 8, 7, _latency_cell("itl_p50_s")),
    _figure(EngineColumn.PROMPT_S, 11, 8, lambda r: _figure_cell(speed(_prompted(r)))),
    _figure(EngineColumn.PREEMPT, 12, 7, lambda r: _count_cell(_preempted(r), "value")),
    _column(EngineColumn.GPU_MEM, 13, 9, lambda r: _figure_cell(size(r.engine.gpu_bytes))),
    _column(EngineColumn.UP, 7, 9, lambda r: _figure_cell(duration(r.engine.uptime_s))),
    _column(EngineColumn.RESTARTS, 10, 8, lambda r: _restarts_cell(r.engine)),
)


def _model_cell(engine: Engine) -> Line:
    name = engine.model or NA
    return _figure_cell(name.rstrip("/").rsplit("/", 1)[-1] if name != NA else name, "")


def _restarts_cell(engine: Engine) -> Line:
    number = engine.restarts
    return _figure_cell(count(number), "warning" if number else "quiet")


def columns(rows: Sequence[EngineRow], width: int, *, nodes: int) -> tuple[FigureColumn, ...]:
    """The columns that fit; the node's where there is more than one, and never cut, as no state's words are."""
    content = {column.key: max((column.cell(row).width for row in rows), default=0) for column in COLUMNS}
    uncut: dict[StrEnum, int] = {
        EngineColumn.NODE: min(14, content[EngineColumn.NODE]),
        EngineColumn.STATE: max((state_cell(row, bar=False).width for row in rows), default=0),
    }
    wanted = [one for one in COLUMNS if nodes > 1 or one.key is not EngineColumn.NODE]
    return fitted([replace(one, cells=max(one.cells, uncut.get(one.key, 0))) for one in wanted], width, content)


def row_line(row: EngineRow, columns: Sequence[FigureColumn]) -> Line:
    """One engine; without figures from the endpoint, the reason is shown in their place."""
    cells: list[Line] = []
    why = no_figures(row.engine)
    figures = [column.cells for column in columns if column.is_figure]
    for column in columns:
        if not (column.is_figure and why):
            cell = column.cell(row)
            if column.key is EngineColumn.STATE and cell.width > column.cells:
                cell = state_cell(row, bar=False)
            cells.append(column.of(cell))
        elif figures:
            cells.append(Line.of((why, "quiet")).fit(sum(figures) + len(GAP) * (len(figures) - 1)))
            figures.clear()
    line = joined(cells, GAP)
    return line.faded() if row.is_old else line


def no_figures(engine: Engine) -> str:
    """Why an engine has no figures; "" when it has."""
    if engine.metrics is not None:
        return ""
    if engine.state in (EngineState.EXITED, EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING):
        return engine.exit_detail if engine.state is EngineState.EXITED and engine.exit_detail else "–"
    endpoint = engine.endpoint
    if endpoint is None:
        return "worker: its head answers" if is_worker(engine) and spans_nodes(engine) else f"{NA}: no endpoint found"
    if endpoint.state is EndpointState.NOT_ASKED:
        return f"{NA}: endpoint not asked yet"
    return f"{NA}: endpoint {endpoint.state}"


def details(row: EngineRow, width: int) -> list[Line]:
    """The details of one engine: model, image, container, endpoint, command line, figures."""
    engine = row.engine
    container = engine.container
    pairs: list[tuple[str, str]] = [("engine", identity(engine))]
    if container is not None:
        image = container.image + (f"  ({container.image_id[:19]})" if container.image_id else "")
        pairs += [("image", image), ("container", _container_text(engine))]
        if starter := starter_words(container.labels):
            pairs.append(("started by", starter))
    elif engine.pids:
        pairs.append(("process", f"pid {', '.join(map(str, engine.pids[:6]))}, in no container that can be read"))
    if engine.endpoint is not None:
        endpoint_text = f"http://{engine.endpoint.host}:{engine.endpoint.port}  {engine.endpoint.state}"
        pairs.append(("endpoint", endpoint_text + (f": {engine.endpoint.detail}" if engine.endpoint.detail else "")))
    elif engine.state is not EngineState.EXITED and (why := no_figures(engine)):
        pairs.append(("endpoint", why))
    argv = engine.argv or (container.argv if container else ())
    if argv:
        pairs.append(("command", " ".join(argv)))
    if engine.rates is not None:
        pairs.append(("figures", _figures_text(engine)))
    if engine.canaries:
        pairs.append(("canary", _canary_text(engine.canaries)))
    if engine.exit_detail:
        pairs.append(("ended", engine.exit_detail))
    lines = wrapped(f"▲ as last seen: {row.node} doesn't answer", width, "warning") if row.is_old else []
    for label, text in pairs:
        lines += hanging(Line.of((label.ljust(11), "quiet")), text, width, limit=4)
    return lines


def identity(engine: Engine) -> str:
    """ "vllm 0.21.0 · Qwen/Qwen3.6-35B-A3B-FP8"."""
    return " · ".join(text for text in (f"{engine.kind} {engine.version or ''}".strip(), engine.model) if text)


def _container_text(engine: Engine) -> str:
    container = engine.container
    assert container is not None
    texts = [container.name, container.container_id[:12], "removed" if container.is_gone else container.status]
    if container.exit_code is not None and container.status == "exited":
        texts.append(f"exit code {container.exit_code}")
    if container.oom_killed:
        texts.append("killed by the kernel for memory")
    if container.started_wall_s is not None:
        texts.append(f"started {day_time(container.started_wall_s)}")
    texts.append(f"restart policy {container.restart_policy or 'none'}, {container.restart_count} restarts")
    if container.network_mode:
        texts.append(f"network {container.network_mode}")
    if container.auto_remove:
        texts.append("removed when it ends (--rm)")
    return " · ".join(text for text in texts if text)


def _canary_text(canaries: Sequence[Canary]) -> str:
    """The last answer to each of its questions."""
    last = {one.proof: one for one in canaries}
    words = {True: "right", False: "wrong", None: "unclear"}
    said = (
        f"{str(proof).replace('_', ' ')} "
        + ("never right in this run" if one.is_right is False and not one.was_right else words[one.is_right])
        + f" ({one.why})" * bool(one.why)
        for proof, one in last.items()
    )
    return f"{', '.join(said)}; last asked {day_time(canaries[-1].wall_s)}"


def _figures_text(engine: Engine) -> str:
    rates, metrics = engine.rates, engine.metrics
    assert rates is not None
    ttft, itl = (
        f"{latency(getattr(rates, name))} ({'since it started' if name in rates.of_life else 'lately'})"
        for name in ("ttft_p50_s", "itl_p50_s")
    )
    traits = engine.kind.traits  # what an engine never tells isn't named
    texts = [f"{speed(rates.generation_tokens_per_s)} tok/s out, {speed(rates.prompt_tokens_per_s)} tok/s in"]
    if traits.histograms:
        texts.append(f"medians: first token {ttft}, between tokens {itl}")
    if metrics is not None:
        if "preemptions" in traits.figures:
            texts.append(f"{count(metrics.preemptions)} preemptions")
        if metrics.slots is not None:
            texts.append(f"{count(metrics.running)} of {count(metrics.slots)} slots busy")
        if metrics.model_bytes is not None:
            texts.append(f"{size(metrics.model_bytes)} of models loaded")
        if metrics.context_tokens is not None:
            texts.append(f"context of {metrics.context_tokens:,.0f} tokens each")
    if engine.gpu_bytes is not None:
        texts.append(f"{size(engine.gpu_bytes)} of GPU memory")
    return " · ".join(texts)
