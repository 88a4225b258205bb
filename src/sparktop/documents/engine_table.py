"""Engines as a table whose columns fit a width, and the details of one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.diagnose.ended_by import failed, stop_cause, stopped_by
from sparktop.diagnose.stall import STALLED, stall_of
from sparktop.documents.finding_tree import SIGNS
from sparktop.engines.labels import starter_words
from sparktop.engines.pair import over_nodes, state_of
from sparktop.engines.ranks import is_alive, is_worker, spans_nodes
from sparktop.model.engine import ORDINARY_EXITS, Container, EndpointState, Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.proof import Canary
from sparktop.text.bars import progress
from sparktop.text.lines import Line, hanging, joined, wrapped
from sparktop.text.sentences import phrases
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


def searched_text(row: EngineRow) -> str:
    """What a filter of the table looks at: node, name, state, model and image."""
    engine = row.engine
    image = engine.container.image if engine.container is not None else ""
    return " ".join((row.node, engine.name, state_cell(row, bar=False).plain, engine.model or "", image or ""))


def sorted_rows(rows: Sequence[EngineRow], by: str | None, findings: Sequence[Finding] = ()) -> tuple[EngineRow, ...]:
    """The rows in the order of this column of SORTS; without one, those with the worst of these findings first."""
    figure = next((one.figure for one in COLUMNS if one.title == by and one.figure), lambda row: _weight(row, findings))
    return tuple(sorted(rows, key=figure, reverse=True))


def _weight(row: EngineRow, findings: Sequence[Finding]) -> int:
    about = (one for one in findings if row.node in one.nodes and row.engine.name in (one.engine, one.subject))
    return max((one.severity.weight for one in about if one.severity is not Severity.INFO), default=0)


def _figure_cell(text: str, tone: str = "value") -> Line:
    return Line.of((text, "quiet" if text == NA else tone))


def _count_cell(value: float | None, tone: str) -> Line:
    return _figure_cell(count(value), tone if value else "quiet")


def _metric(row: EngineRow, name: str) -> float | None:
    return getattr(row.engine.metrics, name) if row.engine.metrics else None


def _rate(row: EngineRow, name: str) -> float | None:
    return getattr(row.engine.rates, name) if row.engine.rates else None


def _kv_cell(row: EngineRow) -> Line:
    used = _metric(row, "kv_cache_ratio")
    if used is not None and used >= 0.95:
        return Line.of((f"▲{ratio(used)}", "warning"))
    return _figure_cell(ratio(used))


def _tokens_cell(row: EngineRow) -> Line:
    """Tokens a second; marked while requests are held and no token has come for STILL_S."""
    tokens = speed(_rate(row, "generation_tokens_per_s"))
    if _metric(row, "running") and (_rate(row, "progress_age_s") or 0.0) >= STILL_S:
        return Line.of((f"▲{tokens}", "warning"))
    return _figure_cell(tokens, "strong")


def _latency_cell(row: EngineRow, name: str) -> Line:
    """A latency; "~" marks a median over the engine's whole life instead of the last window."""
    value, rates = _rate(row, name), row.engine.rates
    if value is not None and rates is not None and name in rates.of_life:
        return _figure_cell(f"~{latency(value)}", "quiet")
    return _figure_cell(latency(value))


def _model_cell(row: EngineRow) -> Line:
    name = row.engine.model or NA
    return _figure_cell(name.rstrip("/").rsplit("/", 1)[-1] if name != NA else name, "")


def _figure(
    title: str,
    turn: int,
    cells: int,
    cell: Callable[[EngineRow], Line],
    figure: Callable[[EngineRow], float] | None = None,
) -> Column[EngineRow]:
    return Column(title, cells, cell, turn, is_right=True, figure=figure)


_FROM_ENDPOINT = (
    _figure("RUN", 1, 4, lambda r: _count_cell(_metric(r, "running"), "strong")),
    _figure("WAIT", 3, 4, lambda r: _count_cell(_metric(r, "waiting"), "warning")),
    _figure("TOK/S", 1, 6, _tokens_cell, lambda r: _rate(r, "generation_tokens_per_s") or 0.0),
    _figure("KV", 4, 6, _kv_cell, lambda r: _metric(r, "kv_cache_ratio") or 0.0),
    _figure("PREFIX", 9, 6, lambda r: _figure_cell(ratio(_rate(r, "prefix_hit_ratio")))),
    _figure("TTFT", 6, 7, lambda r: _latency_cell(r, "ttft_p50_s")),
    _figure("ITL", 8, 7, lambda r: _latency_cell(r, "itl_p50_s")),
    _figure("PROMPT/S", 11, 8, lambda r: _figure_cell(speed(_rate(r, "prompt_tokens_per_s")))),
    _figure("PREEMPT", 12, 7, lambda r: _count_cell(_metric(r, "preemptions"), "value")),
)
"""Figures that the engine's endpoint tells."""
COLUMNS: tuple[Column[EngineRow], ...] = (
    # Rather leave out a column of figures than cut a name or a state: those grow before the columns of turn 5.
    Column("ENGINE", 10, lambda r: Line.of((r.engine.name, "strong")), grows=((4, 28),)),
    Column("NODE", 6, _node_cell, turn=2),
    Column("STATE", 9, state_cell, grows=((4, 26),)),
    Column("MODEL", 12, _model_cell, turn=5, grows=((5, 20), (14, 44))),
    *_FROM_ENDPOINT,
    _figure("GPU MEM", 13, 9, lambda r: _figure_cell(size(r.engine.gpu_bytes)), lambda r: r.engine.gpu_bytes or 0),
    _figure("UP", 7, 9, lambda r: _figure_cell(duration(r.engine.uptime_s)), lambda r: r.engine.uptime_s or 0.0),
    _figure("RESTARTS", 10, 8, lambda r: _count_cell(r.engine.restarts, "warning")),
)
SORTS = tuple(column.title for column in COLUMNS if column.figure)
"""Columns that the table may be sorted by."""


def columns(rows: Sequence[EngineRow], width: int, *, nodes: int) -> tuple[Column[EngineRow], ...]:
    """The columns that fit; the node's where there is more than one, and never cut, as no state's words are."""
    content = {column.title: max((column.cell(row).width for row in rows), default=0) for column in COLUMNS}
    uncut = {
        "NODE": min(14, content["NODE"]),
        "STATE": max((state_cell(row, bar=False).width for row in rows), default=0),
    }
    wanted = [one for one in COLUMNS if nodes > 1 or one.title != "NODE"]
    return fitted([replace(one, cells=max(one.cells, uncut.get(one.title, 0))) for one in wanted], width, content)


def row_line(row: EngineRow, columns: Sequence[Column[EngineRow]]) -> Line:
    """One engine; without figures from the endpoint, the reason is shown in their place."""
    cells: list[Line] = []
    why = no_figures(row.engine)
    from_endpoint = {column.title for column in _FROM_ENDPOINT} if why else frozenset[str]()
    figures = [column.cells for column in columns if column.title in from_endpoint]
    for column in columns:
        if column.title not in from_endpoint:
            cell = column.cell(row)
            if column.title == "STATE" and cell.width > column.cells:
                cell = state_cell(row, bar=False)
            cells.append(column.fit(cell))
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
    engine, container, endpoint = row.engine, row.engine.container, row.engine.endpoint
    pairs: list[tuple[str, str]] = [("engine", identity(engine))]
    if container is not None:
        image = container.image + (f"  ({container.image_id[:19]})" if container.image_id else "")
        pairs += [("image", image), ("container", _container_text(container))]
        pairs.append(("started by", starter_words(container.labels)))
    elif engine.pids:
        pairs.append(("process", f"pid {', '.join(map(str, engine.pids[:6]))}, in no container that can be read"))
    if endpoint is not None:
        why = f": {endpoint.detail}" if endpoint.detail else ""
        pairs.append(("endpoint", f"http://{endpoint.host}:{endpoint.port}  {endpoint.state}{why}"))
    elif engine.state is not EngineState.EXITED:
        pairs.append(("endpoint", no_figures(engine)))
    pairs += [
        ("command", " ".join(engine.argv or (container.argv if container else ()))),
        ("figures", _figures_text(engine) if engine.rates is not None else ""),
        ("canary", _canary_text(engine.canaries) if engine.canaries else ""),
        ("ended", engine.exit_detail),
    ]
    lines = wrapped(f"▲ as last seen: {row.node} doesn't answer", width, "warning") if row.is_old else []
    for label, text in pairs:
        lines += hanging(Line.of((label.ljust(11), "quiet")), text, width, limit=4) if text else []
    return lines


def identity(engine: Engine) -> str:
    """ "vllm 0.21.0 · Qwen/Qwen3.6-35B-A3B-FP8"."""
    return " · ".join(text for text in (f"{engine.kind} {engine.version or ''}".strip(), engine.model) if text)


def _container_text(container: Container) -> str:
    is_ended = container.status == "exited"
    started_s = container.started_wall_s
    texts = [container.name, container.container_id[:12], "removed" if container.is_gone else container.status]
    texts += phrases(
        ("exit code {}", container.exit_code if is_ended else None),
        ("killed by the kernel for memory", container.oom_killed),
        ("started {}", None if started_s is None else day_time(started_s)),
        (f"restart policy {container.restart_policy or 'none'}, {{}} restarts", container.restart_count),
        ("network {}", container.network_mode),
        ("removed when it ends (--rm)", container.auto_remove),
    )
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
    texts += [f"medians: first token {ttft}, between tokens {itl}"] if traits.histograms else []
    if metrics is not None:
        texts += phrases(
            ("{} preemptions", count(metrics.preemptions) if "preemptions" in traits.figures else None),
            (f"{count(metrics.running)} of {{:.0f}} slots busy", metrics.slots),
            ("{} of models loaded", None if metrics.model_bytes is None else size(metrics.model_bytes)),
            ("context of {:,.0f} tokens each", metrics.context_tokens),
        )
    return " · ".join([*texts, *([f"{size(engine.gpu_bytes)} of GPU memory"] if engine.gpu_bytes is not None else [])])
