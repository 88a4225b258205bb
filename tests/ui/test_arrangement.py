"""Every size of terminal gets an arrangement that fills it exactly."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st
from tests.table import over

from sparktop.ui.console_layout import MIN_TILE_ROWS, LayoutInputs, arrange, shown_nodes

asked = st.builds(
    LayoutInputs,
    width=st.integers(40, 240),
    height=st.integers(12, 80),
    view=st.sampled_from(("overview", "nodes", "engines", "log", "kernel", "findings")),
    nodes=st.integers(1, 40),
    is_solo=st.booleans(),
    verdict_lines=st.integers(1, 4),
    engine_lines=st.integers(2, 12),
    detail_lines=st.integers(0, 12),
    bottom=st.sampled_from(["log", "kernel"]),
    is_kernel_quiet=st.booleans(),
)


@given(asked)
@example(LayoutInputs(width=80, height=24, nodes=8))
def test_the_lines_add_up(question: LayoutInputs) -> None:
    answer = arrange(question)
    assert answer.verdict + answer.findings + answer.nodes + answer.engines + answer.logs == question.height - 2
    assert min(answer.verdict, answer.findings + answer.nodes + answer.engines + answer.logs) >= 1
    assert 1 <= answer.panes <= question.nodes
    assert bool(answer.logs) == bool(answer.bottom)
    if question.view == "overview":
        assert answer.nodes % math.ceil(answer.panes / answer.columns) == 0, "panes of one height"


@over(
    "size, columns, panes",
    [((60, 20), 1, 1), ((80, 24), 1, 1), ((80, 50), 1, 2), ((120, 40), 2, 2), ((200, 60), 2, 2)],
)
def test_two_nodes_stand_beside_or_below_one_another_or_one_at_a_time(
    size: tuple[int, int], columns: int, panes: int
) -> None:
    answer = arrange(LayoutInputs(width=size[0], height=size[1], nodes=2, engine_lines=3))
    assert (answer.columns, answer.panes) == (columns, panes)


@over(
    "size, nodes, columns, panes",
    [
        ((80, 24), 3, 2, 3), ((80, 24), 5, 2, 5), ((80, 24), 8, 2, 8), ((120, 40), 5, 3, 5), ((120, 40), 8, 3, 8),
        ((200, 50), 5, 5, 5), ((200, 50), 8, 4, 8), ((60, 20), 5, 1, 1),
    ],
)  # fmt: skip
def test_three_nodes_and_more_are_tiles_with_room_for_their_figures_or_one_at_a_time(
    size: tuple[int, int], nodes: int, columns: int, panes: int
) -> None:
    for view in ("overview", "nodes"):
        answer = arrange(
            LayoutInputs(width=size[0], height=size[1], nodes=nodes, engine_lines=3, view=view, verdict_lines=2)
        )
        if view == "overview" or panes > 1:
            assert (answer.columns, answer.panes) == (columns, panes)
        assert answer.nodes >= math.ceil(answer.panes / answer.columns) * MIN_TILE_ROWS


@over(
    "size, view, panes",
    [((80, 24), "overview", 6), ((80, 24), "nodes", 10), ((120, 40), "overview", 15), ((120, 40), "nodes", 27),
     ((200, 50), "overview", 32)],
)  # fmt: skip
def test_of_32_nodes_as_many_are_tiles_as_have_room(size: tuple[int, int], view: str, panes: int) -> None:
    asked = LayoutInputs(width=size[0], height=size[1], nodes=32, engine_lines=9, view=view, verdict_lines=2)
    assert arrange(asked).panes == panes


def test_of_many_nodes_the_selected_one_and_the_worst_are_shown_and_stay() -> None:
    assert shown_nodes([0] * 9, 3, selected=0, before=()) == {0, 1, 2}
    worse = shown_nodes([0, 0, 0, 0, 2, 0, 3, 0, 0], 3, selected=0, before=(0, 1, 2))
    assert worse == {0, 4, 6}
    assert shown_nodes([0] * 9, 3, selected=0, before=worse) == worse
    assert shown_nodes([0] * 9, 3, selected=8, before=worse) == {8, 0, 4}


@over("size", [(60, 20), (80, 24), (120, 40), (200, 60)])
def test_the_overview_has_all_parts(size: tuple[int, int]) -> None:
    answer = arrange(LayoutInputs(width=size[0], height=size[1], nodes=2, engine_lines=3))
    assert answer.nodes >= 9
    assert answer.engines == 3
    assert answer.logs >= 4
    assert "log" in answer.bottom


def test_log_and_kernel_share_the_bottom_where_there_is_room() -> None:
    wide = arrange(LayoutInputs(width=120, height=40))
    narrow = arrange(LayoutInputs(width=80, height=24, bottom="kernel"))
    assert wide.bottom == ("log", "kernel")
    assert narrow.bottom == ("kernel",)


def test_the_log_has_the_kernel_panes_room_while_that_is_quiet() -> None:
    assert arrange(LayoutInputs(width=200, height=50, is_kernel_quiet=True)).bottom == ("log",)
    asked_for = arrange(LayoutInputs(width=200, height=50, is_kernel_quiet=True, bottom="kernel"))
    assert asked_for.bottom == ("log", "kernel")
    assert arrange(LayoutInputs(width=120, height=40, view="kernel", is_kernel_quiet=True)).bottom == ("kernel",)


@over(
    "view, part",
    [("nodes", "nodes"), ("engines", "engines"), ("log", "logs"), ("kernel", "logs"), ("findings", "findings")],
)
def test_a_view_has_the_whole_screen(view: str, part: str) -> None:
    answer = arrange(LayoutInputs(width=120, height=40, view=view))
    assert getattr(answer, part) == 40 - 2 - 1
