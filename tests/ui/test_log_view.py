"""The virtualised log view: what it draws, where it stands while lines come and go, and what it costs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from tests.table import over
from tests.ui import svg
from tests.ui.log_stage import Stage, from_remote, level_of, numbered
from textual import events
from textual.pilot import Pilot

from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing, Snapshot
from sparktop.ui.screens.help import HelpScreen
from sparktop.ui.widgets.log_rows import LogRow, fold, level_name, window
from sparktop.ui.widgets.log_view import LogView
from sparktop.ui.widgets.search import LogSearch, parse_query


def screen_of(view: LogView) -> list[str]:
    """What is on screen, row by row, without trailing blanks."""
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


def texts(view: LogView) -> list[str]:
    return [row.line.text for row in view.visible_rows]


async def staged(
    ring: LineRing, check: Callable[[LogView, Pilot[None]], Awaitable[None]], *, size: tuple[int, int] = (40, 10)
) -> None:
    view = LogView(level_of=level_of)
    async with Stage(view).run_test(size=size) as pilot:
        view.set_ring(ring)
        view.focus()
        await pilot.pause()
        await check(view, pilot)


def filled(count: int, capacity: int = 50_000) -> LineRing:
    ring = LineRing(capacity)
    ring.extend(numbered(0, count))
    return ring


async def test_it_follows_the_newest_line() -> None:
    ring = filled(100)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        assert texts(view) == [f"line {n}" for n in range(90, 100)]
        ring.extend(numbered(100, 5))
        await svg.settle(pilot, lambda: texts(view)[-1] == "line 104")
        assert view.is_following
        assert screen_of(view)[-1] == "  line 104"

    await staged(ring, check)


async def test_a_short_log_stands_at_the_top() -> None:
    async def check(view: LogView, pilot: Pilot[None]) -> None:
        assert texts(view) == ["line 0", "line 1", "line 2"]
        assert screen_of(view)[3:] == [""] * 7

    await staged(filled(3), check)


async def test_scrolling_up_pauses_and_lines_stay_while_the_ring_turns_over() -> None:
    ring = filled(100, capacity=100)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.action_move(-20)
        shown = texts(view)
        assert shown == [f"line {n}" for n in range(70, 80)]
        assert not view.is_following
        ring.extend(numbered(100, 1000))
        await svg.settle(pilot, lambda: view.new_count == 1000)
        assert ring.first > 80, "the lines on screen have left the ring"
        assert texts(view) == shown
        view.action_move(-5)
        assert texts(view)[0] == "line 65"
        view.action_move(5)
        assert texts(view) == shown
        view.action_last()
        assert view.is_following
        assert texts(view)[-1] == "line 1099"
        assert view.new_count == 0

    await staged(ring, check)


async def test_a_paused_view_reads_on_through_what_came_since() -> None:
    ring = filled(50)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.pause()
        assert texts(view)[-1] == "line 49"
        ring.extend(numbered(50, 30))
        await svg.settle(pilot, lambda: view.new_count == 30)
        assert texts(view)[-1] == "line 49"
        view.action_move(10)
        assert texts(view) == [f"line {n}" for n in range(50, 60)]
        view.action_move(1000)
        assert texts(view)[-1] == "line 79"
        assert not view.is_following, "reaching the end stands there"
        view.action_move(1)
        assert view.is_following, "going on from the end follows"

    await staged(ring, check)


async def test_a_replaced_last_line_is_redrawn_followed_or_paused() -> None:
    ring = filled(3)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        ring.extend([LogLine(text="loading 10 %")])
        await svg.settle(pilot, lambda: texts(view)[-1] == "loading 10 %")
        ring.extend([LogLine(text="loading 20 %", replaces_last=True)])
        await svg.settle(pilot, lambda: texts(view)[-1] == "loading 20 %")
        assert len(texts(view)) == 4
        view.pause()
        ring.extend([LogLine(text="loading 30 %", replaces_last=True)])
        await svg.settle(pilot, lambda: texts(view)[-1] == "loading 30 %")
        assert screen_of(view)[3] == "  loading 30 %"
        assert view.new_count == 0

    await staged(ring, check)


async def test_the_wheel_scrolls_and_pauses() -> None:
    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.post_message(
            events.MouseScrollUp(view, x=1, y=1, delta_x=0, delta_y=0, button=0, shift=False, meta=False, ctrl=False)
        )
        await svg.settle(pilot, lambda: texts(view)[-1] == "line 196")
        assert not view.is_following

    await staged(filled(200), check)


async def test_dragging_the_bar_goes_where_it_says() -> None:
    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.scroll_to(y=300, animate=False)
        await svg.settle(pilot, lambda: not view.is_following)
        assert texts(view)[0] == "line 300"
        view.scroll_to(y=view.max_scroll_y, animate=False)
        await svg.settle(pilot, lambda: view.is_following)

    await staged(filled(1000), check)


async def test_another_ring_starts_at_its_newest_line() -> None:
    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.action_move(-20)
        other = LineRing()
        other.extend(numbered(0, 4, "other"))
        view.set_ring(other)
        assert view.is_following
        assert texts(view) == [f"other {n}" for n in range(4)]
        view.set_ring(None)
        assert texts(view) == []

    await staged(filled(100), check)


async def test_nothing_is_drawn_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(view: LogView, pilot: Pilot[None]) -> None:
        await pilot.pause(0.3)
        drawn: list[object] = []
        monkeypatch.setattr(view, "refresh", lambda *regions, **options: drawn.append(regions) or view)
        monkeypatch.setattr(view, "_scroll_to_row", lambda top: drawn.append(top))
        await pilot.pause(0.4)
        assert drawn == []

    await staged(filled(100), check)


async def test_lines_arrive_without_a_message_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = filled(10)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        painted: list[int] = []
        paint = view._paint
        monkeypatch.setattr(view, "_paint", lambda row: painted.append(row.number) or paint(row))
        ring.extend(numbered(10, 40_000))
        await svg.settle(pilot, lambda: texts(view)[-1] == "line 40009")
        await pilot.pause(0.3)
        assert set(painted) == set(range(40_000, 40_010)), "only what is visible is drawn"

    await staged(ring, check)


async def test_wrapping_measures_the_visible_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = LineRing()
    ring.extend(LogLine(text=f"{n} " + "word " * 20) for n in range(50_000))
    measured: set[str] = set()

    def counting(text: str, width: int, start: int = 0) -> tuple[tuple[int, int], ...]:
        measured.add(text)
        return fold(text, width, start)

    monkeypatch.setattr("sparktop.ui.widgets.log_rows.fold", counting)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.wrap_wish = True
        await pilot.pause()
        assert view.visible_rows[-1].number == 49_999
        assert view.visible_rows[-1].stop == len(view.visible_rows[-1].line.text)
        assert any(row.continues for row in view.visible_rows)
        view.action_move(-1)
        await pilot.pause()
        assert len(measured) < 40
        above = view.visible_rows[0]
        view.action_move(-1)
        assert (view.visible_rows[1].number, view.visible_rows[1].start) == (above.number, above.start), "by one row"
        view.action_first()
        assert (view.visible_rows[0].number, view.visible_rows[0].start) == (0, 0)
        assert len(measured) < 80

    await staged(ring, check)


async def test_a_line_longer_than_the_screen_wraps_and_scrolls_row_by_row() -> None:
    ring = LineRing()
    ring.extend([LogLine(text="x" * 4096), LogLine(text="end")])

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.wrap_wish = True
        await pilot.pause()
        assert texts(view)[-1] == "end"
        first = view.visible_rows[0]
        assert (first.number, first.continues) == (0, True)
        view.action_first()
        assert view.visible_rows[0].start == 0
        seen = {row.start for row in view.visible_rows}
        for _ in range(200):
            if view.is_following:
                break
            view.action_move(1)
            seen |= {row.start for row in view.visible_rows if row.number == 0}
        assert view.is_following
        assert seen >= {start for start, _ in fold("x" * 4096, view._text_cells)}

    await staged(ring, check)


async def test_sideways_scrolling_shows_the_rest_and_marks_what_is_cut() -> None:
    ring = LineRing()
    ring.extend([LogLine(text="".join(f"{n:04}" for n in range(30))), LogLine(text="short")])

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        assert screen_of(view)[0].endswith("›")
        assert not screen_of(view)[1].endswith("›")
        await pilot.press("right")
        await pilot.pause()
        assert screen_of(view)[0].startswith(" ‹0020003")
        for _ in range(20):
            await pilot.press("right")
        assert "0029" in screen_of(view)[0]
        for _ in range(20):
            await pilot.press("left")
        assert screen_of(view)[0].startswith("  0000")

    await staged(ring, check)


async def test_levels_have_a_letter_beside_the_colour() -> None:
    ring = LineRing()
    ring.extend(from_remote(["ERROR bad", "WARNING hm", "INFO fine", "plain"]))
    ring.extend([LogLine(text="kernel", priority=2)])

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        assert screen_of(view)[:5] == ["E ERROR bad", "W WARNING hm", "  INFO fine", "  plain", "E kernel"]

    await staged(ring, check)


async def test_times_are_a_column_that_can_be_switched_on() -> None:
    ring = LineRing()
    ring.extend([LogLine(text="with", wall_s=0.0), LogLine(text="without"), LogLine(text="wrong", wall_s=1e300)])

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.time_wish = True
        await pilot.pause()
        rows = screen_of(view)
        assert rows[0].endswith(":00 with")
        assert rows[1] == " " * 11 + "without"
        assert rows[2] == "  --:--:-- wrong"

    await staged(ring, check)


# Searching


async def test_a_search_goes_to_the_nearest_hit_and_round() -> None:
    ring = LineRing()
    ring.extend(LogLine(text="needle" if n in (10, 500, 900) else f"hay {n}") for n in range(1000))

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.search(parse_query("needle"))
        await svg.settle(pilot, lambda: view.search_status() == "3/3")
        assert "needle" in texts(view)
        assert not view.is_following
        view.find(LogSearch.to_next)
        await svg.settle(pilot, lambda: view.search_status().startswith("1/3"))
        assert view.search_status() == "1/3  from the top"
        assert view.visible_rows[0].number <= 10 <= view.visible_rows[-1].number
        view.find(LogSearch.to_next)
        await svg.settle(pilot, lambda: view.search_status() == "2/3")
        view.find(LogSearch.to_previous)
        view.find(LogSearch.to_previous)
        await svg.settle(pilot, lambda: view.search_status() == "3/3  from the end")
        view.search(parse_query("nothing like it"))
        await svg.settle(pilot, lambda: view.search_status() == "no match")
        view.search(None)
        assert view.search_status() == ""

    await staged(ring, check)


async def test_the_hit_scrolls_into_view_sideways_too() -> None:
    ring = LineRing()
    ring.extend([LogLine(text="x" * 300 + "needle" + "y" * 300)])

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.search(parse_query("needle"))
        await svg.settle(pilot, lambda: view.search_status() == "1/1")
        assert "needle" in screen_of(view)[0]

    await staged(ring, check)


async def test_new_lines_are_searched_as_they_come() -> None:
    ring = filled(20)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        view.search(parse_query("line 1"))
        await svg.settle(pilot, lambda: view.search_status() == "11/11")
        ring.extend([LogLine(text="line 1 again"), LogLine(text="other")])
        await svg.settle(pilot, lambda: view.search_status() == "11/12")
        ring.extend([LogLine(text="now line 1", replaces_last=True)])
        await svg.settle(pilot, lambda: view.search_status() == "11/13")

    await staged(ring, check)


def held(*lines: str) -> Snapshot:
    ring = LineRing()
    ring.extend(LogLine(text=line) for line in lines)
    return ring.snapshot()


@over(
    "typed, line, spans",
    [
        ("error", "An Error, an ERROR", [(3, 8), (13, 18)]),
        ("Error", "An Error, an ERROR", [(3, 8)]),
        (r"\[/x\]", "markup [/x] here", [(7, 11)]),
        (r"a\.b", "a.b axb", [(0, 3)]),
        ("a.b", "a.b axb", [(0, 3), (4, 7)]),
        ("a b-c_d/e", "a b-c_d/e", [(0, 9)]),
        (r"\D+5", "ab5", [(0, 3)]),
        ("x*", "yxxy", [(1, 3)]),
        ("oom|nccl", "NCCL or OOM", [(0, 4), (8, 11)]),
        ("(unclosed", "an (Unclosed", [(3, 12)]),
        ("é", "naïve café É", [(9, 10), (11, 12)]),
    ],
)
def test_a_query_finds(typed: str, line: str, spans: list[tuple[int, int]]) -> None:
    query = parse_query(typed)
    assert query is not None
    assert query.spans(line) == spans
    assert query.found_in(line)
    assert not query.found_in("")


def test_a_query_that_is_none() -> None:
    assert parse_query("") is None


def test_what_is_no_regular_expression_is_text_and_says_why() -> None:
    query = parse_query("(unclosed")
    assert query is not None
    assert query.why_text == "not a regex: as text"
    plain, expression = parse_query("unclosed"), parse_query("un.losed")
    assert plain is not None
    assert expression is not None
    assert (plain.why_text, expression.why_text) == ("", "")
    assert (plain.needle, expression.needle) == ("unclosed", None)


def test_lines_are_searched_in_slices() -> None:
    query = parse_query("x")
    assert query is not None
    lines = held(*["x"] * 1000)
    search = LogSearch(query)
    ticks = iter(range(10_000))
    slices = 0
    while not search.scan(lines, budget_s=2.5, now=lambda: float(next(ticks))):
        slices += 1
        assert slices < 100
    assert slices > 2, "a slice ends when its time is up"
    assert search.numbers == list(range(1000))


def test_going_round() -> None:
    query = parse_query("x")
    assert query is not None
    search, lines = LogSearch(query), held("x", "", "x", "")
    rows = [LogRow(number=number, line=lines.line(number), start=0, stop=0) for number in range(4)]
    assert search.to_next(rows) is None
    search.scan(lines)
    assert search.status(lines) == "2 matches"
    assert search.to_nearest(rows) == 2
    assert (search.to_next(rows), search.status(lines)) == (0, "1/2  from the top")
    assert (search.to_next(rows), search.status(lines)) == (2, "2/2")
    assert search.to_previous(rows) == 0
    assert (search.to_previous(rows), search.status(lines)) == (2, "2/2  from the end")
    assert search.to_next(rows[:1]) == 0, "the current one is out of sight"
    assert search.to_next([]) is None


# Breaking lines


@over(
    "text, width, rows",
    [
        ("", 10, [""]),
        ("short", 10, ["short"]),
        ("exactly 10", 10, ["exactly 10"]),
        ("one two three", 8, ["one two", "three"]),
        ("abcdefghijkl", 5, ["abcde", "fghij", "kl"]),
        ("日本語テスト", 4, ["日本", "語テ", "スト"]),
        ("日本語", 2, ["日", "本", "語"]),
        ("a" + "\u0301" * 50, 4, ["a" + "\u0301" * 50]),
    ],
)
def test_folding(text: str, width: int, rows: list[str]) -> None:
    assert [text[start:stop] for start, stop in fold(text, width)] == rows


def test_a_window_into_a_line() -> None:
    assert window("abcdef", 2, 3) == (2, 5)
    assert window("abc", 10, 3) == (3, 3)
    assert window("日本語", 2, 4) == (1, 3)


def test_level_names() -> None:
    assert level_name("CRITICAL", None) == "error"
    assert level_name(None, 4) == "warning"
    assert level_name(None, None) is None
    assert level_name("info", 2) is None, "what the line says itself goes first"


@pytest.mark.parametrize("seed", range(6))
async def test_anything_in_any_order_leaves_the_rows_in_order(seed: int) -> None:
    chance = random.Random(seed)
    ring, other = LineRing(chance.choice([1, 7, 300, 2000])), filled(40)
    words = ["short", "x" * 300, "日本語" * 40, "ERROR needle", "", "word " * 60, "a\u0301" * 50]

    def feed() -> None:
        lines = [LogLine(text=chance.choice(words)) for _ in range(chance.choice([0, 1, 5, 50, 800]))]
        ring.extend([*lines, LogLine(text=chance.choice(words), replaces_last=True)])

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        steps: list[Callable[[], object]] = [
            feed,
            feed,
            view._poll,
            lambda: view.action_move(chance.choice([-1, 1, -3, 3, -200, 200])),
            lambda: view.action_page(chance.choice([-1, 1])),
            view.action_first,
            view.action_last,
            view.toggle_follow,
            lambda: setattr(view, "wrap_wish", not view.wrap),
            lambda: setattr(view, "time_wish", not view.show_time),
            lambda: view.action_sideways(chance.choice([-1, 1])),
            lambda: view.search(parse_query(chance.choice(["", "needle", "x+", "日"]))),
            lambda: view.find(LogSearch.to_next),
            lambda: view.find(LogSearch.to_previous),
            lambda: view.scroll_to(y=chance.randrange(2000), animate=False),
            lambda: view.set_ring(chance.choice([ring, ring, ring, other, None])),
        ]
        for number in range(150):
            if number % 15 == 0:
                await pilot.resize_terminal(chance.choice([1, 2, 5, 40, 130]), chance.choice([1, 2, 10, 50]))
            chance.choice(steps)()
            if chance.random() < 0.2:
                await pilot.pause()
            rows = view.visible_rows
            assert len(rows) <= max(view.size.height, 0)
            places = [(row.number, row.start) for row in rows]
            assert places == sorted(places)
            assert len(set(places)) == len(places) or not view.wrap
            assert all(after.number - before.number in (0, 1) for before, after in pairwise(rows))
            for y in range(view.size.height):
                assert view.render_line(y).cell_length == view._cells
        view.set_ring(ring)
        view.follow()
        if view.size.height and len(ring):
            assert view.visible_rows[-1].number == ring.end - 1

    await staged(ring, check)


async def test_it_wakes_up_only_while_it_is_shown_and_has_a_ring() -> None:
    view = LogView(level_of=level_of)
    async with Stage(view).run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        assert not view.is_polling, "there is no ring"
        ring = filled(5)
        view.set_ring(ring)
        assert view.is_polling
        view.display = False
        assert not view.is_polling
        await svg.settle(pilot, lambda: not wakes_up(view))
        ring.extend(numbered(5, 1))
        view.display = True
        await svg.settle(pilot, lambda: view.is_polling and texts(view)[-1] == "line 5")
        ring.extend(numbered(6, 1))
        await svg.settle(pilot, lambda: texts(view)[-1] == "line 6")


def wakes_up(view: LogView) -> bool:
    return view._poll_timer is not None and view._poll_timer._active.is_set()


class Untold(LogView):
    """A view that isn't told that it is shown, as happens where its place is asked for before the first layout."""

    def on_show(self, event: events.Show) -> None:
        event.prevent_default()


async def test_it_follows_also_where_it_is_not_told_that_it_is_shown() -> None:
    view, ring = Untold(level_of=level_of), filled(5)
    async with Stage(view).run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        view.set_ring(ring)
        ring.extend(numbered(5, 1))
        await svg.settle(pilot, lambda: texts(view)[-1] == "line 5")


async def test_it_is_not_drawn_below_an_opaque_screen() -> None:
    ring = filled(20)

    async def check(view: LogView, pilot: Pilot[None]) -> None:
        below = texts(view)
        pilot.app.push_screen(HelpScreen())
        await svg.settle(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        ring.extend(numbered(20, 5))
        view._drawn_s = 0.0
        view._poll()
        assert texts(view) == below
        await pilot.press("escape")
        await svg.settle(pilot, lambda: texts(view)[-1] == "line 24")

    await staged(ring, check)
