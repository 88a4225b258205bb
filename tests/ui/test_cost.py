"""What drawing and keeping costs, counted and never timed: nothing is worked out twice for one picture."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from rich.style import Style
from tests.ui import pictures
from tests.ui.log_stage import Feed, Stage, numbered
from tests.ui.look import clock_of_pictures
from tests.ui.svg import plain, settle
from tests.ui.test_app import ready
from textual._compositor import Compositor
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.widget import Widget

from sparktop.clock import ManualClock
from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing
from sparktop.observe.watch import Publish
from sparktop.text import graph, lines
from sparktop.text.lines import Line
from sparktop.ui import app as app_module
from sparktop.ui.panes.header import Header
from sparktop.ui.panes.log import LogPane
from sparktop.ui.setup import Setup
from sparktop.ui.widgets import line_widget
from sparktop.ui.widgets.line_widget import LineWidget


def test_a_line_counts_its_cells_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    real = lines.cell_len
    monkeypatch.setattr(lines, "cell_len", lambda text: counted.append(text) or real(text))
    line = Line.of("available ", ("45 GiB", "value"))
    assert (line.width, line.fit(16).width, line.cut(20).width) == (16, 16, 16)
    assert counted == ["available ", "45 GiB"]
    assert line == Line.of("available ", ("45 GiB", "value"))


def test_a_graph_whose_cells_stay_is_not_drawn_again() -> None:
    moments = [None, graph.GAP, *(float(value) for value in range(40))]

    def drawn(top: float) -> list[Line]:
        return graph.area(moments, top=top, rows=4, tone="graph")

    first = drawn(100.0)
    before = graph._curve.cache_info()
    assert drawn(100.0) == first
    assert graph._curve.cache_info().misses == before.misses
    assert drawn(40.0) != first


class _Five(LineWidget):
    DEFAULT_CSS = "_Five { height: 5; }"

    def draw(self, width: int, height: int) -> list[Line]:
        return [Line.of(("line", "value"))] * height


class _App(App[None]):
    def compose(self) -> ComposeResult:
        yield _Five()


async def test_the_tones_are_looked_up_once_for_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []

    def tones(app: object, background: object) -> dict[str, Style]:
        looked_up.append(background)
        return {"": Style(), "value": Style(bold=True)}

    monkeypatch.setattr(line_widget, "tones", tones)
    async with _App().run_test() as pilot:
        widget = pilot.app.query_one(_Five)
        looked_up.clear()
        widget.refresh()
        await pilot.pause()
        assert len(looked_up) == 1
        assert widget._palette is None


async def test_a_new_title_repaints_its_edge_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pausing a log changes one word: with the whole pane repainted, a key waited twice as long under a flood."""
    pane = LogPane(clock=ManualClock())
    feed = Feed()
    feed.ring.extend(numbered(0, 100))
    stage = Stage(pane)
    stage.call_later(pane.show, feed)
    painted: list[Region] = []
    real = Compositor.update_widgets

    def update_widgets(compositor: Compositor, widgets: set[Widget]) -> None:
        real(compositor, widgets)
        painted.extend(compositor._dirty_regions)

    async with stage.run_test(size=(60, 20)) as pilot:
        pane.focus()
        await settle(pilot, lambda: plain(stage)[0].rstrip(" ─╮").endswith("following"))
        monkeypatch.setattr(Compositor, "update_widgets", update_widgets)
        painted.append(Region())
        while painted:  # the scrollbar may come after the title
            painted.clear()
            await pilot.pause(0.1)
        await pilot.press("space")
        await settle(pilot, lambda: painted)
        assert plain(stage)[0].rstrip(" ─╮").endswith("paused")
        assert set(painted) == {Region(0, 0, 60, 1)}
        painted.clear()
        feed.status = "the docker logs of spark1"
        pane.show(feed)
        await settle(pilot, lambda: painted)
        assert "the docker logs of spark1" in plain(stage)[-1]
        assert set(painted) == {Region(0, 19, 60, 1)}


async def test_ages_are_drawn_with_a_picture_and_alone_only_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each paint of its own costs as much as what it shows."""
    clock = clock_of_pictures()
    state = pictures.idle(clock)

    async def start(publish: Publish, prompter: object) -> pictures.FakeWatch:
        publish(state)
        return pictures.FakeWatch(state)

    ticks: list[float] = []
    monkeypatch.setattr(Header, "tick", lambda _: ticks.append(clock.monotonic()))
    app = app_module.SparktopApp(Setup(start=start, node_names=("spark1", "spark2"), clock=clock))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = (await ready(pilot)).console_screen
        ticks.clear()
        for _ in range(3):
            clock.advance(0.7)
            shown.show(state)
            clock.advance(0.3)
            shown.tick()
        assert len(ticks) == 3
        clock.advance(1.0)
        shown.tick()
        assert len(ticks) == 4


@pytest.fixture
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
def test_a_flooded_log_makes_no_garbage_collection() -> None:
    """A full ring lets go of as many lines as come, so a batch must stay below the collector's threshold."""
    ring = LineRing(20_000)
    batch = [f"step {number}" for number in range(5_000)]
    for _ in range(5):
        ring.extend([LogLine(text=text) for text in batch])
    app_module._freeze_permanent_objects()
    before = gc.get_stats()[0]["collections"]
    for _ in range(40):
        ring.extend([LogLine(text=text) for text in batch])
    assert gc.get_stats()[0]["collections"] == before
