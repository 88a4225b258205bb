"""Histories drawn in braille, and the bars: pure."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.fleet import Holder, Ledger
from sparktop.model.telemetry import Level, Series
from sparktop.text.bars import by_part, legend, memory_bar, progress, shares
from sparktop.text.graph import SESSION, area, columns, joined, span_of, stack, time_axis
from sparktop.text.lines import Line

GIB = 1024**3


def made(values: list[float | None], *, end: float = 1000.0, step: float = 1.0) -> Series:
    times = tuple(end - step * (len(values) - 1 - index) for index in range(len(values)))
    return Series(times=times, values=tuple(values))


def is_gap(value: float | None) -> bool:
    return value is not None and math.isnan(value)


def test_before_the_first_sample_there_is_nothing() -> None:
    found = columns(made([5.0] * 60), now_s=1000.0, count=60, span_s=600)
    assert found[0] is None
    assert found[-1] == 5.0
    assert sum(value is None for value in found) >= 52


def test_the_lowest_value_of_a_moment_is_drawn() -> None:
    found = columns(made([9.0] * 300 + [2.0] + [9.0] * 300), now_s=1000.0, count=60)
    assert min(value for value in found if value is not None) == 2.0


def test_the_highest_value_is_drawn_where_that_is_the_one_to_see() -> None:
    series = made([1.0] * 300 + [9.0] + [1.0] * 300)
    found = columns(series, now_s=1000.0, count=60, takes_highest=True)
    assert [value for value in found if value is not None].count(9.0) == 1
    assert 9.0 not in columns(series, now_s=1000.0, count=60)


def test_a_gap_is_a_gap_and_not_a_value() -> None:
    series = Series(times=(400.0, 500.0, 600.0, 990.0, 1000.0), values=(5.0, 5.0, None, 5.0, 5.0))
    found = columns(series, now_s=1000.0, count=60)
    assert sum(is_gap(value) for value in found) > 30
    assert not is_gap(found[-1])


def test_slow_sampling_is_no_gap() -> None:
    found = columns(made([5.0] * 11, step=60.0), now_s=1000.0, count=60)
    assert not any(is_gap(value) for value in found)


def test_silence_after_the_last_sample_opens_a_gap() -> None:
    found = columns(made([5.0] * 300), now_s=1120.0, count=60)
    assert is_gap(found[-1])
    assert is_gap(found[-10])


def test_a_drawn_history_moves_by_whole_columns() -> None:
    values: list[float | None] = [float(index % 17) for index in range(600)]
    one = columns(made(values), now_s=1000.0, count=120)
    same = columns(made(values), now_s=1004.9, count=120)
    moved = columns(made(values), now_s=1005.0, count=120)
    assert one[:-1] == same[:-1]
    assert one[1:-1] == moved[:-2]


def test_rows_and_width() -> None:
    lines = area(columns(made([5.0] * 600), now_s=1000.0, count=80), top=10.0, rows=4, tone="graph")
    assert [line.width for line in lines] == [40] * 4
    assert lines[0].plain.strip() == ""
    assert lines[3].plain[20] == "⣿"


def stacked(*tops: tuple[int, int, int, int], rows: int = 4, **more: bool) -> list[Line]:
    levels = [Level(100.0 - tops[2], tops) for tops in tops]
    return stack(levels, top=100.0, rows=rows, tone=lambda left: "graph-critical" if left < 10 else "", **more)


def test_the_parts_are_stacked_from_below_and_what_is_free_is_air() -> None:
    lines = stacked((50, 50, 50, 75))
    assert [line.runs for line in lines] == [
        ((" ", ""),), (("█", "mark-cache"),), (("█", "mark-engine"),), (("█", "mark-engine"),),
    ]  # fmt: skip
    (shared,) = stacked((5, 25, 25, 25), rows=1)
    assert shared.runs == (("▂", "mark-processes"),), "a cell with much air has the colour of its largest part"
    (full,) = stacked((50, 50, 50, 100), rows=1)
    assert full.runs == (("▄", "fill-engine-cache"),)


def test_the_top_of_what_is_used_tells_that_it_is_too_high() -> None:
    lines = stacked((95, 95, 95, 100))
    assert lines[0].runs == (("▆", "graph-critical"),)
    assert lines[1].runs == (("█", "mark-engine"),)


def test_lost_memory_is_seen_and_a_rounding_is_not() -> None:
    assert "mark-unaccounted" in {tone for line in stacked((0, 5, 75, 80)) for _, tone in line.runs}
    assert stacked((20, 22, 24, 24))[-1].runs == (("▆", "fill-engine-processes"),)


def test_who_held_it_is_unknown_where_only_the_level_is_known() -> None:
    lines = stack([50.0, None, math.nan], top=100.0, rows=2, tone=lambda _: "")
    assert [line.runs for line in lines] == [((" ", ""), ("  ", "faint")), (("█", "mark-kernel"), (" ╌", "faint"))]


def test_without_colour_the_parts_have_textures() -> None:
    assert [line.plain for line in stacked((50, 50, 50, 75), has_colour=False)] == [" ", "░", "▓", "▓"]
    book = held(("engine", "vllm", 60), ("cache", "page cache", 6), ("free", "free", 10))
    assert legend(book.holders, 60, 1, has_colour=False)[0].plain == "▓▓ vllm 60.0  ░░ page cache 6.0     free 10.0"


def test_a_gap_in_a_stack_says_so() -> None:
    assert "no data" in "".join(line.plain for line in stack([5.0, *[math.nan] * 20, 5.0], top=9, rows=3, tone=str))


def test_a_gap_with_room_says_so() -> None:
    values: list[float | None] = [5.0] * 100 + [None] + [5.0]
    series = Series(times=(*range(100), 300.0, 600.0), values=tuple(values))
    lines = area(columns(series, now_s=600.0, count=120), top=10.0, rows=3, tone="graph")
    assert "no data" in lines[0].plain
    assert "╌" in lines[-1].plain


def test_a_young_history_gets_a_short_span() -> None:
    assert span_of(made([5.0] * 900), 120.0) == 120
    assert span_of(made([5.0] * 900), SESSION) == 1200
    assert span_of(made([5.0] * 11, step=3600.0), SESSION) == 12 * 3600
    assert span_of(made([5.0] * 30, step=3600.0), SESSION) == 48 * 3600
    assert time_axis(40, 12 * 3600.0).plain.startswith("12 h ago")
    assert span_of(Series()) == 30
    assert span_of(made([5.0] * 20)) == 30
    assert span_of(made([5.0] * 60)) == 60
    assert span_of(made([5.0] * 200)) == 300
    assert span_of(made([5.0] * 900)) == 600
    assert time_axis(40, 120).plain.startswith("2 min ago")


def test_the_axis_has_the_width() -> None:
    for cells in (3, 10, 20, 40, 90):
        assert time_axis(cells).width == cells
        assert time_axis(cells).plain.endswith("now")


@given(
    st.lists(st.tuples(st.floats(0, 2000), st.none() | st.floats(-1e15, 1e15)), max_size=80),
    st.floats(0, 3000),
    st.integers(1, 40),
)
def test_any_history_can_be_drawn(points: list[tuple[float, float | None]], now_s: float, cells: int) -> None:
    points = sorted(points, key=lambda point: point[0])
    series = Series(times=tuple(t for t, _ in points), values=tuple(v for _, v in points))
    moments = columns(series, now_s=now_s, count=cells * 2)
    assert len(moments) == cells * 2
    lines = area(moments, top=100.0, rows=3, tone="graph")
    assert [line.width for line in lines] == [cells] * 3


@given(st.lists(st.floats(0, 1e12), max_size=12), st.integers(0, 200))
def test_shares_never_exceed_the_bar(weights: list[float], width: int) -> None:
    cells = shares(weights, sum(weights), width)
    assert all(cell >= 0 for cell in cells)
    assert sum(cells) <= width
    if sum(weights) > 0:
        assert sum(cells) == width


def held(*parts: tuple[str, str, float]) -> Ledger:
    holders = tuple(Holder(kind=kind, label=label, held_bytes=int(size * GIB)) for kind, label, size in parts)
    return Ledger(holders=holders, total_bytes=sum(h.held_bytes for h in holders), unaccounted_bytes=0)


def test_the_bar_is_to_scale_and_names_what_fits() -> None:
    book = held(("engine", "vllm", 60), ("desktop", "desktop", 2), ("free", "free", 58))
    line, unnamed = memory_bar(book, 60)
    assert line.width == 60
    assert "vllm 60.0" in line.plain
    assert [holder.kind for holder in unnamed] == ["desktop"]
    assert legend(unnamed, 60, 1)[0].plain == "■ desktop 2.0"


def test_parts_are_told_apart_without_colour() -> None:
    line, _ = memory_bar(held(("engine", "vllm", 60), ("cache", "page cache", 10), ("free", "free", 30)), 50)
    assert line.plain.count("▏") == 3


def test_what_is_only_the_rest_is_not_accused() -> None:
    book = Ledger(
        holders=(
            Holder(kind="unaccounted", label="unaccounted", held_bytes=50 * GIB, estimated=True),
            Holder(kind="free", label="free", held_bytes=50 * GIB),
        ),
        total_bytes=100 * GIB,
        unaccounted_bytes=None,
    )
    line, _ = memory_bar(book, 60)
    assert "rest 50.0" in line.plain
    assert "hold-unaccounted" not in {tone for _, tone in line.runs}


def test_progress() -> None:
    assert progress(20, 36, 6) == "▰▰▰▱▱▱"
    assert progress(0, 0, 4) == "▱▱▱▱"
    assert progress(40, 36, 4) == "▰▰▰▰"


def test_findings_are_marked_where_they_began() -> None:
    critical, warning = ("✖", "critical"), ("▲", "warning")
    line = time_axis(50, 600, [(300.0, warning, ""), (1.0, critical, ""), (900.0, critical, "")])
    assert line.width == 50
    assert line.plain == "10 min ago" + " " * 14 + "▲" + " " * 24 + "✖"
    assert [run for run in line.runs if run in (critical, warning)] == [warning, critical]


def test_marks_have_their_words_where_there_is_room() -> None:
    guard, start, run = ("⊘", "critical"), ("↑", "info"), ("◆", "info")
    line = time_axis(40, 600, [(1.0, ("✖", "critical"), ""), (1.0, guard, "guard"), (300.0, start, "start")])
    assert line.plain == "10 min ago         ↑start        guard⊘✖"
    assert time_axis(12, 600, [(300.0, start, "start"), (200.0, run, "relaunch")]).plain.strip().startswith("start↑")
    for cells in range(1, 30):
        assert time_axis(cells, 600, [(300.0, start, "start"), (299.0, run, "run")]).width == cells


def test_the_legend_names_who_holds_a_lot_and_sums_the_rest() -> None:
    book = held(("engine", "vllm", 60), ("gpu", "python3", 20), ("desktop", "desktop", 2), ("kernel", "kernel", 1),
                ("unaccounted", "unaccounted", 1), ("cache", "page cache", 6), ("free", "free", 10))  # fmt: skip
    assert legend(by_part(book), 100, 1)[0].plain == (
        "■ vllm 60.0  ■ python3 20.0  ■ other 3.0  ■ unaccounted 1.0  ■ page cache 6.0  ■ free 10.0"
    )


def test_an_earlier_history_goes_before_the_recent_one() -> None:
    whole = joined(made([9.0] * 10, end=500.0, step=15.0), made([5.0] * 400))
    found = columns(whole, now_s=1000.0, count=60, span_s=600)
    assert (found[2], found[-1]) == (9.0, 5.0)
    assert joined(Series(), whole) is whole
