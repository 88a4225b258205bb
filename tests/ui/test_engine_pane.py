"""The engine table and its details: pure parts, at every width."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over
from tests.ui import pictures
from tests.ui.look import clock_of_pictures, console
from tests.ui.test_app import ready, screen, until
from tests.unit.diagnose.rules.test_team import four

from sparktop.cmdline.engine_command import with_argv
from sparktop.documents.engine_table import (
    SORTS,
    EngineRow,
    columns,
    no_figures,
    row_line,
    sorted_rows,
    state_cell,
)
from sparktop.model.engine import Containers, Endpoint, EndpointState, EngineState, figures_of
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.telemetry import EngineMoment, Series
from sparktop.text.table import heading
from sparktop.ui.panes.charts import FIGURES, GAP_FROM_ROWS, engine_charts
from sparktop.ui.panes.engines import details


def rows(picture: str) -> list[EngineRow]:
    fleet = pictures.PICTURES[picture](clock_of_pictures())
    return [EngineRow(node=view.name, engine=engine) for view in fleet.nodes for engine in view.engines]


def titles(width: int, nodes: int = 2, picture: str = "decode") -> list[str]:
    return [column.title for column in columns(rows(picture), width, nodes=nodes)]


@given(st.integers(20, 240), st.sampled_from(["decode", "loading", "spin-deadlock", "hostile"]))
def test_rows_and_heading_have_one_width(width: int, picture: str) -> None:
    found = rows(picture)
    shown = columns(found, width, nodes=2)
    assert shown
    widths = {heading(shown).width} | {row_line(row, shown).width for row in found}
    assert len(widths) == 1
    assert widths.pop() <= width


def test_columns_go_by_rank_when_it_gets_narrow() -> None:
    assert titles(58)[:2] == ["ENGINE", "NODE"]
    assert {"STATE", "RUN", "TOK/S"} <= set(titles(58))
    assert {"MODEL", "WAIT", "KV"} <= set(titles(78))
    assert {"PREFIX", "TTFT", "UP"} <= set(titles(118))
    assert {"ITL", "RESTARTS", "PREEMPT", "PROMPT/S", "GPU MEM"} <= set(titles(198))


def test_one_node_needs_no_column_for_it() -> None:
    assert "NODE" not in titles(118, nodes=1)


def test_the_figures() -> None:
    row = rows("decode")[0]
    line = row_line(row, columns([row], 198, nodes=2)).plain
    for words in (
        "vllm-minimax",
        "spark1",
        "● serving",
        "MiniMax-M2.7-NVFP4",
        "32.7",
        "41 %",
        "62 %",
        "1.2 s",
        "31 ms",
    ):
        assert words in line, words


def test_states() -> None:
    capturing, killed, silent = rows("loading")
    assert state_cell(capturing).plain == "◑ capturing 20/36 ▰▰▰▱▱▱"
    assert state_cell(capturing, bar=False).plain == "◑ capturing 20/36"
    assert state_cell(killed).plain == "✖ exited OOM"
    assert state_cell(silent).plain == "● serving"
    assert state_cell(replace(silent, is_old=True)).plain == "◌ was serving"
    assert state_cell(replace(silent, is_old=True, stalled=Severity.WARNING)).plain == "◌ was stalled"


@over(
    "code, told, tone",
    [(0, "– exited 0", "quiet"), (143, "– exited 143", "quiet"), (1, "✖ exited 1", "critical")],
)
def test_an_ordinary_stop_is_no_failure(code: int, told: str, tone: str) -> None:
    """Whether it is missed the findings say; of a load that somebody stopped there is none."""
    _, killed, _ = rows("loading")
    box = killed.engine.container
    assert box is not None
    ended = replace(killed, engine=replace(killed.engine, container=replace(box, oom_killed=False, exit_code=code)))
    cell = state_cell(ended)
    assert cell.plain == told
    assert cell.runs[0][1] == tone


def test_one_whose_container_was_removed_is_no_alarm() -> None:
    _, killed, _ = rows("loading")
    box = killed.engine.container
    assert box is not None
    removed = replace(killed, engine=replace(killed.engine, container=replace(box, is_gone=True)))
    assert state_cell(removed).plain == "– removed OOM"
    assert state_cell(removed).runs[0][1] == "quiet"


@over("code, tone", [(0, "quiet"), (1, "critical")])
def test_a_clean_exit_is_no_alarm(code: int, tone: str) -> None:
    killed = rows("loading")[1]
    assert killed.engine.container is not None
    box = replace(killed.engine.container, exit_code=code, oom_killed=False)
    assert state_cell(replace(killed, engine=replace(killed.engine, container=box))).runs[0][1] == tone


def test_why_there_are_no_figures_stands_in_their_place() -> None:
    silent = rows("loading")[2]
    assert "n/a: endpoint metrics off" in row_line(silent, columns([silent], 118, nodes=2)).plain
    refused = replace(silent.engine, endpoint=Endpoint(host="127.0.0.1", port=1, state=EndpointState.REFUSED))
    assert no_figures(refused) == "n/a: endpoint refused"
    assert no_figures(replace(silent.engine, endpoint=None)) == "n/a: no endpoint found"
    worker = with_argv(
        replace(silent.engine, endpoint=None), ("vllm", "serve", "m", "--nnodes", "2", "--node-rank", "1")
    )
    assert no_figures(worker) == "worker: its head answers"
    assert no_figures(rows("decode")[0].engine) == ""


def test_held_requests_without_a_token_are_marked() -> None:
    row = rows("spin-deadlock")[0]
    assert "▲0.0" in row_line(row, columns([row], 118, nodes=2)).plain
    healthy = rows("decode")[0]
    assert "▲" not in row_line(healthy, columns([healthy], 118, nodes=2)).plain


def test_a_latency_of_the_whole_life_is_marked() -> None:
    row = rows("decode")[0]
    assert row.engine.rates is not None
    old = replace(row, engine=replace(row.engine, rates=replace(row.engine.rates, of_life=frozenset({"ttft_p50_s"}))))
    text = row_line(old, columns([old], 118, nodes=2)).plain
    assert "~1.2 s" in text
    assert text.count("~") == 1


def test_details_have_what_the_table_has_no_room_for() -> None:
    text = " ".join(line.plain.strip() for line in details(rows("decode")[0], 110))
    for words in (
        "vllm 0.14.1 · MiniMaxAI/MiniMax-M2.7-NVFP4",
        "vllm/vllm-openai:v0.14.1-aarch64  (sha256:9d2f6c1b77aa)",
        "3f1c9a04d2be",
        "restart policy unless-stopped, 0 restarts",
        "http://127.0.0.1:8000  ok",
        "--gpu-memory-utilization 0.82",
        "0 preemptions",
    ):
        assert words in text, words
    assert "as last seen" not in text
    lost = details(replace(rows("decode")[0], is_old=True), 110)
    assert lost[0].plain == "▲ as last seen: spark1 doesn't answer"
    killed = " ".join(line.plain.strip() for line in details(rows("loading")[1], 110))
    assert "exit code 137" in killed
    assert "killed by the kernel for memory" in killed
    assert rows("loading")[1].engine.state is EngineState.EXITED


@given(st.integers(20, 200))
def test_details_fit(width: int) -> None:
    for row in rows("hostile") + rows("loading"):
        assert all(line.width <= width for line in details(row, width))


def test_rows_are_sorted_by_the_column_that_the_heading_marks() -> None:
    idle, busy = rows("decode")[:1] * 2
    busy = replace(busy, engine=replace(busy.engine, key="busy", uptime_s=9e9))
    assert sorted_rows((idle, busy), "UP") == (busy, idle)
    assert sorted_rows((idle, busy), None) == (idle, busy)
    name = busy.engine.name
    stuck = Finding(rule="engine.x", title="x", severity=Severity.CRITICAL, nodes=(busy.node,), engine=name)
    assert sorted_rows((replace(idle, node="elsewhere"), busy), None, [stuck])[0] is busy
    shown = columns([idle, busy], 200, nodes=2)
    for column in SORTS:
        assert f"{column}▼" in heading(shown, by=column).plain
        assert heading(shown, by=column).width == heading(shown).width


async def test_engines_are_filtered_in_their_own_view_and_the_key_searches_the_log_elsewhere() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        pane = app.console_screen.engines
        every = len(pane.rows)
        await pilot.press("slash")
        await pilot.pause()
        assert not pane.search_bar.is_open, "in the overview the log is searched"
        await pilot.press("escape")
        app.console_screen.action_view("engines")
        await pilot.press("slash", *"spark2")
        await until(pilot, lambda: {row.node for row in pane.rows} == {"spark2"})
        await pilot.press("enter", "slash", *"zzz")
        await until(pilot, lambda: "no engine matches the filter" in screen(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: len(pane.rows) == every)


async def test_the_cursor_follows_a_container_made_anew_under_its_old_name() -> None:
    fleet = pictures.PICTURES["decode"](clock_of_pictures())
    old = fleet.nodes[0].engines[0]
    assert old.container is not None
    gone = replace(old, state=EngineState.EXITED, container=replace(old.container, is_gone=True))
    anew = replace(old, key="anew", container=replace(old.container, container_id="9" * 64))
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        pane = app.console_screen.engines
        for engines, key in (((old,), old.key), ((gone,), old.key), ((gone, anew), "anew"), ((gone, anew), "anew")):
            pane.show(replace(fleet, nodes=(replace(fleet.nodes[0], engines=engines), *fleet.nodes[1:])))
            assert pane.selected is not None
            assert pane.selected.engine.key == key


LABELS = [figure.label for figure in FIGURES]


@over("width, rows, height", [(76, 5, 1), (116, 23, 5), (196, 31, 7), (60, 17, 2), (60, 8, 0), (76, 4, 0)])
def test_the_charts_of_an_engine_fill_their_room_evenly(width: int, rows: int, height: int) -> None:
    view = pictures.decode(clock_of_pictures()).nodes[0]
    (engine,) = view.engines
    lines = engine_charts(engine, view.engine_histories[engine.key], width, rows)
    labelled = [label for label in LABELS if any(label in line.plain for line in lines)]
    assert labelled == (LABELS if height else [])
    assert len(lines) == (height * (4 if width >= 72 else 8) + 1 if height else 0)
    assert all(line.width <= width for line in lines)
    if height >= GAP_FROM_ROWS:
        above = [line.plain for line in lines[height : 4 * height : height]]
        assert not any("\u2800" < char < "\u2900" for row in above for char in row), "no chart stands on the next"


def test_a_figure_that_is_unknown_is_no_zero_in_its_chart() -> None:
    view = pictures.decode(clock_of_pictures()).nodes[0]
    (engine,) = view.engines
    assert engine.metrics is not None
    blind = replace(engine, metrics=replace(engine.metrics, waiting=None))
    moments = tuple(EngineMoment(figures_of(blind)) for _ in range(30))
    lines = engine_charts(blind, Series(times=tuple(map(float, range(30))), values=moments), 76, 5)
    rows = {label: next(line.plain for line in lines if label in line.plain)[:37] for label in ("running", "waiting")}
    assert "n/a" in rows["waiting"]
    drawn = {label: any("\u2800" < char < "\u2900" for char in row) for label, row in rows.items()}
    assert drawn == {"running": True, "waiting": False}


async def test_a_rank_without_a_row_gets_one_where_it_is_looked_for_or_has_the_room() -> None:
    app, _ = console(four())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "spark1 +3" in screen(pilot))
        pane = app.console_screen.engines
        app.console_screen.action_view("engines")
        assert len(pane.rows) == 4
        app.console_screen.action_view("overview")
        assert len(pane.rows) == 1
        assert pane.find("spark3", "big-rank2")
        assert (len(pane.rows), pane.selected and pane.selected.node) == (4, "spark3")
        assert not pane.find("spark3", "no-such")


async def test_the_view_of_engines_has_the_selected_ones_charts() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert "prompt/s" not in screen(pilot)
        await pilot.press("3")
        await until(pilot, lambda: all(label in screen(pilot) for label in LABELS))
        assert "10 min ago" in screen(pilot)
        await pilot.press("h")
        await until(pilot, lambda: "2 min ago" in screen(pilot))


async def test_where_nothing_serves_the_bring_up_is_offered() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert "B checks" not in screen(pilot)
        fleet = app.console_screen.fleet
        bare = tuple(
            replace(view, engines=(), has_looked_for_engines=True, containers=Containers(available=True))
            for view in fleet.nodes
        )
        app.publish(replace(fleet, nodes=bare, findings=()))
        await until(pilot, lambda: "B checks a new machine" in screen(pilot), what="the offer")
