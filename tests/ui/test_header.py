"""The first lines: who is watched, how fresh that is, and what is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from tests.table import over
from tests.ui import pictures
from tests.ui.look import clock_of_pictures

from sparktop.clock import ManualClock
from sparktop.documents.node_figures import SIGNS
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState, Forward, LinkState, Notice
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.ui.panes.header import Header, KeyLine
from sparktop.ui.panes.node import node_body
from sparktop.ui.panes.verdict import VerdictPane


@pytest.fixture
def clock() -> ManualClock:
    return clock_of_pictures()


def header(clock: ManualClock, picture: str, width: int, *, title: str = "", read_only: bool = False) -> str:
    line = Header(clock, title=title, read_only=read_only)
    line._fleet = pictures.PICTURES[picture](clock)
    (drawn,) = line.draw(width, 1)
    assert drawn.width <= width
    return drawn.plain


def verdict(clock: ManualClock, fleet: FleetState, width: int = 110, height: int = 4) -> list[str]:
    pane = VerdictPane(clock)
    pane._fleet = fleet
    return [line.plain for line in pane.draw(width, height)]


def test_links_ages_costs_and_time(clock: ManualClock) -> None:
    text = header(clock, "decode", 120, read_only=True)
    assert text.startswith(" sparktop   spark1 ● live 0.4 s   spark2 ● live 0.6 s")
    assert text.endswith("read-only   costs spark1 0.1 %   03:12:44 ")


def test_the_age_grows_when_nothing_comes(clock: ManualClock) -> None:
    line = Header(clock)
    line._fleet = pictures.decode(clock)
    clock.advance(3)
    assert "spark1 ● live 3.4 s" in line.draw(120, 1)[0].plain
    assert "03:12:47" in line.draw(120, 1)[0].plain


@over("picture, width", product(sorted(pictures.PICTURES), [40, 60, 80, 120, 200]))
def test_links_are_the_last_to_go(clock: ManualClock, picture: str, width: int) -> None:
    text = header(clock, picture, width, title="demo: a long title of a scenario", read_only=True)
    nodes = pictures.PICTURES[picture](clock).nodes
    if len(nodes) > 2 and width < 120:
        assert "● 4 live   ✖ 1 lost" in text or width < 60
    elif width >= 60 and picture != "hostile":
        for view in nodes:
            assert f"{view.name} {SIGNS[view.link.state][0]} {view.link.state}" in text


@over(
    "width, words",
    [(120, "● 8 live  "), (160, "spark8 ● live  "), (200, "spark8 ● live  "), (240, "spark8 ● live 0.4 s  ")],
)
def test_eight_nodes_leave_the_guard_and_the_clock_in_sight(clock: ManualClock, width: int, words: str) -> None:
    fleet = pictures.decode(clock)
    eight = tuple(replace(fleet.nodes[0], name=f"spark{number}") for number in range(1, 9))
    line = Header(clock, title="demo: eight nodes")
    line._fleet = replace(fleet, nodes=eight)
    text = line.draw(width, 1)[0].plain
    assert words in text
    assert text.endswith("   03:12:44 ")
    assert "guard off   read-write" in text or width == 160, "a guard that is off goes before the nodes' names"


@pytest.mark.parametrize(
    ("width", "words"), [(60, ":8001"), (80, ":8001 → vllm"), (120, "127.0.0.1:8001 → vllm"), (200, "127.0.0.1:8001 →")]
)
def test_a_local_port_is_shown_at_every_width(clock: ManualClock, width: int, words: str) -> None:
    line = Header(clock)
    forward = Forward(node="spark1", engine="vllm-minimax", port=8001)
    line._fleet = replace(pictures.decode(clock), forwards=(forward,))
    (drawn,) = line.draw(width, 1)
    assert drawn.width <= width
    assert words in drawn.plain


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_demo_is_marked_at_every_width(clock: ManualClock, width: int) -> None:
    text = header(clock, "decode", width, title="demo: memory runs out")
    assert text.startswith((" sparktop demo   spark1", " demo   spark1"))
    assert ("memory runs out" in text) == (width >= 120)


@pytest.mark.parametrize("picture", ["decode", "stale"])
def test_a_demo_and_its_access_are_both_named_at_80_columns(clock: ManualClock, picture: str) -> None:
    text = header(clock, picture, 80, title="demo: memory runs out")
    assert " demo " in text
    assert "read-write" in text


def test_every_state_has_its_own_sign_and_word() -> None:
    assert set(SIGNS) == set(LinkState)
    assert len({glyph for glyph, _ in SIGNS.values()}) == len(SIGNS)


def test_nothing_wrong_is_one_quiet_line(clock: ManualClock) -> None:
    assert verdict(clock, pictures.idle(clock)) == [" ✓ nothing wrong seen from here"]
    assert verdict(clock, pictures.connecting(clock)) == [" connecting…"]


def test_the_worst_comes_first_and_the_rest_is_counted(clock: ManualClock) -> None:
    fleet = pictures.idle(clock)
    many = tuple(Notice(severity=Severity.WARNING, text=f"thing {n}", node="spark1") for n in range(6))
    worst = Notice(severity=Severity.CRITICAL, text="only 1.0 GiB available", node="spark2")
    lines = verdict(clock, FleetState(nodes=fleet.nodes, notices=(worst, *many)), height=3)
    assert lines[0].rstrip() == " ✖ spark2  only 1.0 GiB available"
    assert lines[-1].rstrip().endswith("+4  A all")
    assert len(lines) == 3


def test_a_lost_link_says_when_it_is_tried_again(clock: ManualClock) -> None:
    fleet = pictures.lost(clock)
    assert verdict(clock, fleet, width=200)[0].rstrip().endswith("next try in 0:12  r now")
    clock.advance(13)
    assert verdict(clock, fleet, width=200)[0].rstrip().endswith("trying now")


@over("width", [40, 60, 80, 120])
def test_help_and_quit_are_always_among_the_keys(width: int) -> None:
    (line,) = KeyLine().draw(width, 1)
    assert line.width <= width
    assert "? help" in line.plain
    assert "q quit" in line.plain


ARMED = GuardState(
    phase=GuardPhase.ARMED, container_id="a" * 64, container_name="vllm-qwen36", floor_bytes=4 << 30, empty_within_s=2.0
)
FIRED = replace(
    ARMED, phase=GuardPhase.FIRED, available_bytes=4_187_593_113, answered_s=0.04, detail="3.9 GiB were available",
    since_wall_s=1_795_231_964.0,
)  # fmt: skip


def guarded(clock: ManualClock, *guards: GuardState | None) -> FleetState:
    fleet = pictures.decode(clock)
    return replace(
        fleet, nodes=tuple(replace(view, guard=guard) for view, guard in zip(fleet.nodes, guards, strict=True))
    )


@pytest.mark.parametrize(
    ("guards", "words"),
    [
        ((None, None), "guard off"),
        ((ARMED, None), "guard vllm-qwen36 < 4.0 GiB"),
        ((None, FIRED), "guard fired on spark2"),
        ((replace(ARMED, phase=GuardPhase.DISARMED), None), "guard off"),
        ((replace(ARMED, phase=GuardPhase.FAILED), ARMED), "guard spark1 failed, spark2 armed"),
        ((replace(ARMED, container_name="x" * 90), None), "x… < 4.0 GiB"),
    ],
)
def test_the_guard_is_visible(clock: ManualClock, guards: tuple[GuardState | None, ...], words: str) -> None:
    line = Header(clock)
    line._fleet = guarded(clock, *guards)
    assert words in line.draw(140, 1)[0].plain


def test_an_armed_guard_outlasts_the_clock_and_one_that_is_off_does_not(clock: ManualClock) -> None:
    line = Header(clock)
    line._fleet = guarded(clock, ARMED, None)
    assert "guard vllm-qwen36 < 4.0 GiB" in line.draw(80, 1)[0].plain
    assert "03:12" not in line.draw(80, 1)[0].plain
    assert "guard armed" in line.draw(60, 1)[0].plain
    line._fleet = guarded(clock, None, None)
    assert "guard" not in line.draw(60, 1)[0].plain
    assert "03:12:44" in line.draw(60, 1)[0].plain


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        (ARMED, "guard armed: kills vllm-qwen36 below 4.0 GiB, or 2 s from empty"),
        (replace(ARMED, stay_s=1800.0), "stays 30 min"),
        (replace(ARMED, until_wall_s=1_795_231_964.0), "until 03:32:44"),
        (FIRED, "guard killed vllm-qwen36 at 3.9 GiB 03:32:44  3.9 GiB were available"),
        (replace(FIRED, answered_s=None), "guard killing vllm-qwen36"),
        (replace(FIRED, phase=GuardPhase.FAILED, detail="no Docker"), "guard failed 03:32:44  no Docker"),
    ],
)
def test_the_pane_of_its_node_says_what_it_does(clock: ManualClock, guard: GuardState, words: str) -> None:
    (view, _) = guarded(clock, guard, None).nodes
    lines = [line.plain for line in node_body(view, width=100, height=12, now_s=clock.monotonic())]
    assert any(words in line for line in lines), lines
    assert not any("guard" in one.plain for one in node_body(replace(view, guard=None), width=100, height=12, now_s=0))


@over("view", ["overview", "nodes", "engines", "log", "kernel", "findings", "processes"])
def test_the_footer_names_the_open_view_at_80_columns(view: str) -> None:
    line = KeyLine()
    line.view = view
    (drawn,) = line.draw(80, 1)
    assert drawn.width <= 80
    assert any(tone == "tab" for _, tone in drawn.runs), drawn.plain
    assert "q quit" in drawn.plain
