"""The console as it runs: keys, mouse, views, sizes, themes, faults; against a stand-in for the watching."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import PATIENCE_S
from tests.table import over
from tests.ui import claims, pictures, svg
from tests.ui.look import clock_of_pictures, console
from textual.pilot import Pilot

import sparktop.ui.app as app_module
from sparktop.config import resource_dir
from sparktop.errors import ConfigError
from sparktop.model.event import Severity
from sparktop.model.finding import Remedy
from sparktop.model.fleet import FleetState
from sparktop.operate.actions import Action
from sparktop.ui.app import SparktopApp
from sparktop.ui.panes.engines import EnginePane
from sparktop.ui.setup import Setup

SIZES = [(60, 20), (80, 24), (120, 40), (200, 60)]
EACH_SIZE = [pytest.param(size, marks=pytest.mark.fast if size == (80, 24) else pytest.mark.slow) for size in SIZES]


async def until(pilot: Pilot[int], condition: Callable[[], object], *, what: str = "the condition") -> None:
    """Let the app run until something is so; fails when it doesn't come."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        await pilot.pause(0.01)
        if condition():
            return
    pytest.fail(f"{what} did not come; the screen was:\n{screen(pilot)}")


def screen(pilot: Pilot[int]) -> str:
    return "\n".join(svg.plain(pilot.app))


async def ready(pilot: Pilot[int], words: str = "spark1 ● live") -> SparktopApp:
    """The app once the picture is there and the log panes are mounted."""
    app = pilot.app
    assert isinstance(app, SparktopApp)
    await until(pilot, lambda: words in screen(pilot) and app.console_screen.bottom.kernel is not None, what=words)
    await pilot.pause()
    return app


@pytest.mark.parametrize("size", [(60, 20), pytest.param((200, 60), marks=pytest.mark.slow)])
@pytest.mark.parametrize("picture", sorted(pictures.PICTURES))
async def test_every_picture_is_drawn_at_every_size(picture: str, size: tuple[int, int]) -> None:
    app, _ = console(picture)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app._state is not None and app.console_screen.bottom.kernel is not None)
        lines = svg.plain(app)
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]
        assert "q quit" in lines[-1]
        assert "watching has stopped" not in screen(pilot)


@pytest.mark.parametrize("size", EACH_SIZE)
@pytest.mark.parametrize("picture", ["loading", "no-gpu"])
async def test_every_view_can_be_reached_at_every_size(picture: str, size: tuple[int, int]) -> None:
    app, _ = console(picture)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app._state is not None and app.console_screen.bottom.kernel is not None)
        seen = []
        for key in ("2", "3", "4", "5", "A", "1", "enter", "m", "m", "tab", "m", "escape", "escape"):
            await pilot.press(key)
            seen.append(app.console_screen.view)
        assert seen[:6] == ["nodes", "engines", "log", "kernel", "findings", "overview"]
        assert seen[-1] == "overview"
        assert "watching has stopped" not in screen(pilot)


async def test_the_state_is_exported_as_status_prints_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    app, _ = console("deadlock")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("e")
        await until(
            pilot, lambda: any(note.message.startswith("The state was saved to") for note in app._notifications)
        )
        (file,) = (tmp_path / "sparktop" / "logs").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        text = file.read_text("utf-8")
        assert "Spin deadlock" in text
        assert "spark2" in text
        monkeypatch.setenv("XDG_STATE_HOME", str(file))  # no folder
        await pilot.press("e")
        await until(
            pilot, lambda: any(note.message.startswith("The state was not saved") for note in app._notifications)
        )


async def test_it_paints_before_it_starts_watching() -> None:
    clock = clock_of_pictures()
    painted: list[str] = []
    gate = asyncio.Event()

    async def start(publish: Callable[[FleetState], None], prompter: object) -> pictures.FakeWatch:
        painted.extend(svg.plain(app))
        await gate.wait()
        raise AssertionError

    app = SparktopApp(Setup(start=start, node_names=("spark1", "spark2"), clock=clock))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: painted)
        assert "spark1 ◍ connecting" in painted[0]
        assert "connecting…" in painted[1]
        clock.advance(5)
        app.console_screen.tick()
        await until(pilot, lambda: "connecting 0:05" in screen(pilot))


async def test_the_panes_below_the_figures_come_without_any_figures() -> None:
    clock = clock_of_pictures()

    async def start(publish: Callable[[FleetState], None], prompter: object) -> pictures.FakeWatch:
        await asyncio.Event().wait()
        raise AssertionError

    app = SparktopApp(Setup(start=start, node_names=("spark1",), clock=clock))
    async with app.run_test(size=(120, 40)) as pilot:
        assert not app.console_screen.bottom.panes
        await until(pilot, lambda: set(app.console_screen.bottom.panes) == {"log", "kernel", "processes", "events"})


async def test_a_fault_in_the_panes_below_costs_only_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktop.ui.panes.bottom._import_panes", lambda: 1 / 0)
    app, _ = console("decode")
    async with app.run_test(size=(160, 40)) as pilot:
        await until(pilot, lambda: "the pane logs" in screen(pilot), what="the fault is told")
        assert "GiB available" in screen(pilot)


async def test_garbage_is_collected_again_once_the_console_has_started() -> None:
    app, _ = console("idle")
    gc.disable()
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await ready(pilot)
            assert not gc.isenabled()
        assert gc.isenabled(), "a console that ended, or failed to start"
        gc.disable()
        app_module._freeze_permanent_objects()
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


async def test_garbage_is_collected_while_a_question_waits_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "SETTLED_S", 0.01)

    async def start(publish: Callable[[FleetState], None], prompter: object) -> pictures.FakeWatch:
        await asyncio.Event().wait()
        raise AssertionError

    app = SparktopApp(Setup(start=start, node_names=("spark1",), clock=clock_of_pictures()))
    gc.disable()
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, gc.isenabled)
    finally:
        gc.enable()


async def test_the_age_ticks_when_nothing_arrives() -> None:
    clock = clock_of_pictures()
    app, _ = console("decode", clock=clock)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        clock.advance(7)
        await until(pilot, lambda: "live 7.4 s" in screen(pilot), what="the app's own tick")


async def test_only_the_newest_of_many_pictures_is_drawn() -> None:
    app, _ = console("idle")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        drawn: list[FleetState] = []
        show = app.console_screen.show
        app.console_screen.show = lambda fleet: (drawn.append(fleet), show(fleet))[1]  # type: ignore[method-assign]
        clock = clock_of_pictures()
        for _ in range(20):
            app.publish(pictures.idle(clock))
        newest = pictures.memory_spike(clock)
        app.publish(newest)
        await until(pilot, lambda: "empty in 0:07" in screen(pilot))
        assert drawn == [newest]


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (ConfigError("no such host", hint="check the name"), "watching has stopped: no such host · check the name", 2),
        (ValueError("odd [/] text"), "a fault in sparktop stopped watching: ValueError: odd", 1),
    ],
)
@pytest.mark.parametrize("stage", ["start", "run"])
async def test_a_fault_is_seen_and_the_console_stays(error: Exception, words: str, code: int, stage: str) -> None:
    clock = clock_of_pictures()
    state = pictures.idle(clock)
    watch = pictures.FakeWatch(state)

    async def start(publish: Callable[[FleetState], None], prompter: object) -> pictures.FakeWatch:
        if stage == "start":
            raise error
        watch.failure = error
        return watch

    app = SparktopApp(Setup(start=start, node_names=("spark1",), clock=clock))
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: words in screen(pilot), what=words)
        await pilot.press("2")
        await pilot.press("q")
    assert app.return_value == code


async def test_one_key_widens_the_graphs_window_round_to_the_first() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        seen = []
        for _ in range(5):
            await pilot.press("h")
            await pilot.pause()
            seen.append(re.findall(r"\d+ (?:min|h) ago", screen(pilot))[0])
    assert seen == ["2 min ago", "10 min ago", "1 h ago", "20 min ago", "10 min ago"]


async def test_quitting_ends_the_watching() -> None:
    app, watch = console("idle")
    async with app.run_test() as pilot:
        await ready(pilot)
        await pilot.press("q")
    assert app.return_value == 0
    async with asyncio.timeout(15):
        while not watch.has_ended:  # noqa: ASYNC110 - cancelled while the app closes
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("picture", "lower"), [("decode", ["LogPane"]), ("deadlock", ["LogPane", "KernelPane"])])
async def test_tab_walks_through_the_panes_and_back(picture: str, lower: list[str]) -> None:
    app, _ = console(picture)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        board = app.console_screen
        assert isinstance(board.focused, EnginePane)
        seen = []
        for _ in range(3 + len(lower)):
            await pilot.press("tab")
            await pilot.pause()
            seen.append(board._focused_pane())
        assert [type(pane).__name__ for pane in seen] == [*lower, "NodePane", "NodePane", "EnginePane"]
        await pilot.press("shift+tab")
        await pilot.pause()
        assert board._focused_pane() is board.nodes[1]


async def test_views_take_the_whole_screen_and_escape_returns() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        board = app.console_screen
        for key, view in (("2", "nodes"), ("3", "engines"), ("4", "log"), ("5", "kernel"), ("6", "findings")):
            await pilot.press(key)
            await pilot.pause()
            assert board.view == view
            visible = [w for w in (board.findings, board._node_row, board.engines, board.bottom) if w.display]
            assert len(visible) == 1
            assert visible[0].size.height == 37
        await pilot.press("escape")
        assert board.view == "overview"


async def test_one_node_is_maximised_alone_and_put_back() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        board = app.console_screen
        board.nodes[1].focus()
        await pilot.press("m")
        await pilot.pause()
        assert [pane.display for pane in board.nodes] == [False, True]
        assert board.nodes[1].size == (120, 37)
        await pilot.press("m")
        await pilot.pause()
        assert [pane.display for pane in board.nodes] == [True, True]


async def test_on_a_narrow_screen_one_node_is_shown_and_the_other_named() -> None:
    app, _ = console("stale")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        board = app.console_screen
        assert "╭─ spark1 ─" in screen(pilot)
        assert "│ spark2 ◌ stale" in screen(pilot)
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert "╭─ spark2 ─" in screen(pilot)
        assert "│ spark1 ● 45.4 GiB 96 % 38 W" in screen(pilot)
        assert board.selected_node is not None
        assert board.selected_node.name == "spark2"
        await pilot.resize_terminal(130, 40)
        await until(pilot, lambda: all(pane.display for pane in board.nodes))


async def test_clicking_the_other_node_selects_it() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        pane = app.console_screen.nodes[0]
        column = svg.plain(app)[2].index("spark2")
        await pilot.click(pane, offset=(column + 2, 0))
        await pilot.pause()
        assert "╭─ spark2 ─" in screen(pilot)


async def test_the_log_follows_the_selected_engine() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot, "log  vllm-minimax @ spark1")
        await pilot.press("j")
        await until(pilot, lambda: "log  vllm-minimax @ spark2" in screen(pilot))
        await pilot.press("k")
        await until(pilot, lambda: "log  vllm-minimax @ spark1" in screen(pilot))
        await pilot.click(EnginePane, offset=(20, 2))
        await until(pilot, lambda: "log  vllm-minimax @ spark2" in screen(pilot))
        await pilot.press("l")
        await pilot.pause()
        assert app.console_screen.view == "log"


async def test_the_cursor_stays_on_its_engine_when_others_come() -> None:
    clock = clock_of_pictures()
    app, watch = console("decode", clock=clock)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("j")
        fleet = pictures.decode(clock)
        extra = pictures.engine(key="aaaaaaaaaaaa", name="another")
        first = pictures._decoding(clock, "spark1", 0.1, engines=(extra, *fleet.nodes[0].engines))
        watch.state = FleetState(nodes=(first, fleet.nodes[1]))
        app.publish(watch.state)
        await until(pilot, lambda: "another" in screen(pilot))
        chosen = app.console_screen.engines.selected
        assert chosen is not None
        assert (chosen.node, chosen.engine.key) == ("spark2", "8be07711aa23")


async def test_details_open_and_close() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(pilot, lambda: "vllm/vllm-openai" in screen(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: "vllm/vllm-openai" not in screen(pilot))


async def test_intervals_and_retries_reach_the_watch() -> None:
    app, watch = console("lost")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot, "spark2 ● live")
        await pilot.press("plus")
        assert watch.interval_s == 0.5
        await pilot.press("plus", "plus")
        assert watch.interval_s == 0.25
        await pilot.press("minus")
        assert watch.interval_s == 0.5
        await pilot.press("r")
        assert watch.retried == ["spark1"]


async def test_a_local_port_to_the_selected_engine_is_opened_and_closed() -> None:
    app, watch = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("F")
        await until(pilot, lambda: watch.state.forwards)
        assert [(one.node, one.port) for one in watch.state.forwards] == [("spark1", 8000)]
        app.publish(watch.state)
        await until(pilot, lambda: "127.0.0.1:8000 → vllm" in screen(pilot))
        await pilot.press("F")
        await until(pilot, lambda: not watch.state.forwards)
        app.publish(watch.state)
        await until(pilot, lambda: "127.0.0.1:8000" not in screen(pilot).partition("\n")[0])


@pytest.mark.parametrize(("key", "words"), [("slash", "/"), ("space", "paused")])
async def test_keys_of_the_log_work_from_other_panes(key: str, words: str) -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot, "following")
        await pilot.press(key)
        await pilot.pause()
        await until(pilot, lambda: words in screen(pilot))
        assert app.console_screen._focused_pane() is app.console_screen.bottom.log_pane


async def test_the_keys_at_the_bottom_can_be_clicked() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        column = svg.plain(app)[-1].index("engines")
        await pilot.click("#keys", offset=(column, 0))
        await until(pilot, lambda: app.console_screen.view == "engines")
        column = svg.plain(app)[-1].index("help")
        await pilot.click("#keys", offset=(column, 0))
        await until(pilot, lambda: len(app.screen_stack) == 2)


async def test_the_palette_runs_a_command() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        await pilot.press(*"kernel's")
        await until(pilot, lambda: "Kernel  (5)" in screen(pilot))
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.console_screen.view == "kernel")


async def test_dark_and_light() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, "following")
        dark = svg.picture(app)
        await pilot.press("t")
        await until(pilot, lambda: app.theme == "sparktop-light")
        await pilot.pause()
        light = svg.picture(app)
        assert dark != light
        assert app.theme_variables["severity-critical"].lower() not in dark.lower()
        await pilot.press("t")
        await until(pilot, lambda: svg.picture(app) == dark, what="the first picture again")


async def test_a_theme_of_textuals_own_works_too() -> None:
    app, _ = console("memory-spike", theme="nord")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert app.theme == "nord"


@over("name, full", [("light", "sparktop-light"), ("dark", "sparktop-dark")])
def test_our_themes_have_short_names(name: str, full: str) -> None:
    assert console("decode", theme=name)[0].theme == full


def test_an_unknown_theme_is_an_error_with_the_list() -> None:
    with pytest.raises(ConfigError, match="there is no theme 'drak'") as caught:
        console("decode", theme="drak")
    assert caught.value.hint.startswith("themes: dark, light, ")
    assert "nord" in caught.value.hint


async def test_a_theme_is_chosen_by_its_name() -> None:
    app, _ = console("decode")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("T")
        await until(pilot, lambda: "nord" in screen(pilot) or "Search" in screen(pilot))
        await pilot.press(*"nord")
        await until(pilot, lambda: screen(pilot).count("nord") > 1, what="the theme among what was found")
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.theme == "nord")


@pytest.mark.parametrize("picture", ["deadlock", "lost", "loading", "low"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_plain_terminal_gets_plain_ascii(picture: str, size: tuple[int, int]) -> None:
    app, _ = console(picture, is_ascii=True)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.3)
        await until(pilot, lambda: "log" in screen(pilot))
        for keys in ((), ("question_mark",), ("escape", "A")):
            await pilot.press(*keys)
            await pilot.pause(0.2)
            rows = svg.plain(app)
            assert "\n".join(rows).isascii()
            assert max(len(row) for row in rows) <= size[0]
        assert "-" * 10 in screen(pilot)


async def test_without_colour_everything_still_has_a_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, _ = console("lost")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot, "spark2 ● live")
        text = screen(pilot)
        for sign in ("✖ lost", "● live", "▏", "◌ was serving", "✖ pressure"):
            assert sign in text
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                colour = segment.style.color if segment.style else None
                if colour is not None and colour.triplet is not None:
                    assert max(colour.triplet) - min(colour.triplet) <= 2, "grey, or no colour at all"


@pytest.mark.parametrize("size", EACH_SIZE)
async def test_hostile_names_are_shown_as_they_are(size: tuple[int, int]) -> None:
    app, _ = console("hostile")
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        assert "[/][b]x" in screen(pilot)
        for key in ("2", "3", "4", "5", "1", "d", "right_square_bracket"):
            await pilot.press(key)
            await pilot.pause()
        assert "[/][b]x[@click=app.quit]" in screen(pilot)
        await pilot.click(EnginePane, offset=(4, 1))
        await pilot.pause()
        assert app.is_running


def test_only_the_theme_writes_colours() -> None:
    package = Path(resource_dir("styles")).parent / "src" / "sparktop" / "ui"
    places = [*resource_dir("styles").glob("*.tcss"), *package.rglob("*.py")]
    assert len(places) > 10
    wrong = [p.name for p in places if p.name != "theme.py" and re.search(r"#[0-9a-fA-F]{6}\b", p.read_text("utf-8"))]
    assert wrong == []


async def test_what_plans_the_remedies_of_an_alarm_is_imported_as_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []

    def planner_of(chosen: Action) -> None:
        imported.append(chosen.name)
        raise ModuleNotFoundError

    monkeypatch.setattr("sparktop.operate.actions.planner_of", planner_of)
    app, watch = console("decode")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        stop = Remedy(title="Stop it", action="stop-engine")
        alarm = replace(claims.falling(watch.state.wall_s), remedies=(stop, Remedy(title="Look")))
        before, milder = alarm, replace(alarm, since_wall_s=watch.state.wall_s, severity=Severity.WARNING)
        app.publish(replace(watch.state, findings=(before, milder)))
        await pilot.pause()
        assert app._importing is None
        for _ in range(2):
            app.publish(replace(watch.state, findings=(replace(alarm, since_wall_s=watch.state.wall_s + 1.0),)))
            await until(pilot, lambda: imported)
        await pilot.pause()
        assert imported == ["stop-engine"]
