"""What a node pane says of each picture, at every size: pure, no terminal."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over
from tests.ui import claims, pictures
from tests.ui.look import clock_of_pictures, console
from tests.ui.test_app import ready

from sparktop.documents.node_figures import gpu_line
from sparktop.model.finding import Phase
from sparktop.model.fleet import Earlier, Intervention, LinkState, NodeView
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import GapReason, Pressure, Series
from sparktop.text.graph import SESSION
from sparktop.text.units import percent, watts
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.panes.charts import USUAL, Window, marks
from sparktop.ui.panes.node import NodePane, _briefest, node_body

ROOMY = (96, 30)


def body(picture: str, node: int = 0, size: tuple[int, int] = ROOMY) -> str:
    clock = clock_of_pictures()
    return shown(pictures.PICTURES[picture](clock).nodes[node], size)


def shown(view: NodeView, size: tuple[int, int] = ROOMY) -> str:
    now_s = clock_of_pictures().monotonic()
    return "\n".join(line.plain for line in node_body(view, width=size[0], height=size[1], now_s=now_s))


@given(st.sampled_from(sorted(pictures.PICTURES)), st.integers(10, 200), st.integers(1, 60), st.integers(0, 1))
def test_it_never_exceeds_its_room(picture: str, width: int, height: int, node: int) -> None:
    clock = clock_of_pictures()
    nodes = pictures.PICTURES[picture](clock).nodes
    lines = node_body(nodes[min(node, len(nodes) - 1)], width=width, height=height, now_s=clock.monotonic())
    assert len(lines) <= height
    assert max((line.width for line in lines), default=0) <= width


def test_healthy_decode_has_all_of_it() -> None:
    text = body("decode")
    for words in (
        "GiB available of 121.7",
        "steady",
        "vllm-minimax 66.0",
        "other 5.7",
        "tok/s",
        "used 76.3",
        "cache 9.1",
        "swap 0.0 of 16.0",
        "shared 0.4",
        "pressure 0 %",
        "96 %",
        "2405 MHz",
        "58 °C",
        "no throttling",
        "bandwidth n/a on GB10, est. 184 of 273 GB/s",
        "VLLM::Worker_TP0",
        "cpu 8 %",
        "load 1.9",
        "1.2 TiB free",
        "up 12 d 4 h",
        "6.17.0-1014-nvidia",
        "10 min ago",
    ):
        assert words in text, words


def test_a_small_pane_keeps_what_matters() -> None:
    text = body("memory-spike", size=(54, 7))
    for words in ("GiB available", "▼ 5.7 GiB/s", "empty in 0:07", "vllm-minimax 66.0", "38 W", "96 %"):
        assert words in text, words


def test_pressure_is_marked_and_comes_first_when_it_matters() -> None:
    text = body("memory-spike", size=(54, 20))
    assert "▲ pressure 23 %, all 11 %" in text
    assert "empty in 0:07" in text


def test_a_lost_node_says_what_is_known_and_how_old_it_is() -> None:
    text = body("lost")
    for words in (
        "✖ lost · host up, SSH silent · figures as of 44 s ago · next try in 0:12",
        "TCP answers on port 22, no SSH banner",
        "→ wait: it may come back by itself",
        "03:12:02 ✖ lost keepalive unanswered",
    ):
        assert words in text, words


def test_old_figures_are_faded_and_the_alarm_is_not() -> None:
    clock = clock_of_pictures()
    view = pictures.stale(clock).nodes[1]
    lines = node_body(view, width=60, height=18, now_s=clock.monotonic())
    tones = {tone for line in lines[2:-2] for text, tone in line.runs if text.strip()}
    assert tones
    assert all(tone.startswith("~") for tone in tones)
    assert lines[0].runs[0] == ("◌ stale · figures as of 12 s ago", "warning")


def test_a_refusal_says_what_to_do() -> None:
    text = body("refused")
    assert "⊘ refused · r tries again" in text
    assert "ssh-copy-id spark1" in text


def test_a_machine_without_a_gpu_is_no_error() -> None:
    text = body("no-gpu")
    assert "GPU n/a (missing: libnvidia-ml.so.1 not found)" in text
    assert "kernel denied: needs the group systemd-journal" in text
    assert "containers n/a: permission denied" in text
    assert " 0 W" not in text


def test_a_stuck_collector_says_since_when() -> None:
    assert "▲ nvml stuck for 2 min: no answer from the driver" in body("stuck")


def test_figures_of_a_gpu_that_hangs_are_said_to_be_old() -> None:
    for size in ((54, 8), ROOMY):
        assert "▲ GPU as of 2 min ago" in body("stuck", size=size)
        assert "GPU as of" not in body("decode", size=size)


def test_missing_figures_give_the_reason_and_never_a_zero() -> None:
    clock = clock_of_pictures()
    view = pictures.decode(clock).nodes[0]
    assert view.gpu is not None
    gaps = {"power_w": GapReason.NO_PERMISSION, "sm_clock_mhz": GapReason.TIMED_OUT, "processes": GapReason.FAILED}
    gpu = replace(view.gpu.gpus[0], power_w=None, sm_clock_mhz=None, processes=None, throttle_reasons=None, gaps=gaps)
    text = shown(replace(view, gpu=replace(view.gpu, gpus=(gpu,))), (120, 40))
    for words in ("n/a (no permission)", "n/a (timed out)", "GPU processes n/a (failed)", "throttle n/a"):
        assert words in text, words
    assert view.sample is not None
    assert "pressure n/a" in shown(replace(view, sample=replace(view.sample, memory_pressure=None)))


def test_throttling_is_said_in_words() -> None:
    clock = clock_of_pictures()
    view = pictures.decode(clock).nodes[0]
    hot = pictures.gpu(busy=96, power=61, clock=1800, heat=88, throttle=("thermal slowdown", "idle"))
    text = shown(replace(view, gpu=hot))
    assert "▲ throttled: thermal slowdown" in text
    assert "idle" not in text


def test_a_narrow_pane_cuts_the_reasons_for_throttling_before_it_leaves_them_out() -> None:
    view = pictures.decode(clock_of_pictures()).nodes[0]
    reasons = ("software thermal slowdown", "hardware thermal slowdown")
    hot = pictures.gpu(busy=96, power=31, clock=1605, heat=83, throttle=reasons)
    view = replace(view, gpu=hot)
    assert gpu_line(view, 76).plain == "SM 96 %  31 W  1605 MHz  83 °C  ▲ throttled: software thermal slowdown, har…"
    assert gpu_line(view, 46).plain.endswith("83 °C  ▲ throttled:…")
    assert "throttled" not in gpu_line(view, 40).plain


@over("some, sign", [(0.0, ""), (12.0, "▲"), (60.0, "✖")])
def test_levels_of_pressure(some: float, sign: str) -> None:
    clock = clock_of_pictures()
    pressure = Pressure(some_avg10=some, some_avg60=0, full_avg10=0, full_avg60=0)
    assert f"{sign} pressure".strip() in shown(pictures.node(clock, "n", pressure=pressure))


def test_a_long_gap_in_the_history_is_named() -> None:
    clock = clock_of_pictures()
    values: list[float | None] = [*[60.0] * 200, None, *[60.0] * 60]
    view = pictures.node(clock, "n")
    steps = pictures.series(pictures.BOOT_S, pictures.levels(values))
    times = (*[time_s - 250 for time_s in steps.times[:200]], *steps.times[200:])
    view = replace(view, available_history=replace(steps, times=times))
    assert "no data" in shown(view)


def test_more_gpu_processes_than_room_are_counted() -> None:
    clock = clock_of_pictures()
    rows = tuple(pictures.GpuProcess(pid=pid, name=f"job{pid}", used_bytes=pictures.gib(pid)) for pid in range(1, 30))
    text = shown(pictures.node(clock, "n", reading=pictures.gpu(processes=rows)))
    assert "job29" in text
    assert "more GPU processes" in text


@over("width", [4, 6, 8, 12, 16, 20, 30])
def test_available_memory_is_the_last_figure_to_go(width: int) -> None:
    assert "45.4" in body("decode", size=(width, 1))


@over("size", [(80, 24), (120, 40), (200, 50)])
async def test_a_tile_has_its_memory_its_gpu_and_its_worst_finding_whole(size: tuple[int, int]) -> None:
    app, watch = console("five")
    async with app.run_test(size=size) as pilot:
        await ready(pilot, "4 live" if size[0] < 100 else "spark5 ●")
        for pane, view in zip(app.screen.query(NodePane), watch.state.nodes, strict=True):
            text = " ".join(line.strip("╭╮│╰╯─ ") for line in pane.text().splitlines())
            words = " ".join(text.split())
            gpu = view.first_gpu
            assert view.sample is not None
            assert gpu is not None
            assert view.name in words
            assert f"{view.sample.memory.available_bytes / 2**30:.1f} GiB" in words
            assert f"SM {percent(gpu.utilisation_percent)} {watts(gpu.power_w)}" in words
            title = next(
                (one.title for one in watch.state.findings if view.name in one.nodes and one.phase is Phase.FIRING), ""
            )
            assert title in words


@over("width", range(38, 100, 4))
def test_load_and_power_are_there_where_their_charts_have_no_room(width: int) -> None:
    text = body("decode", size=(width, 13))
    assert "SM" in text
    assert re.search(r"\d W\b", text)


def test_a_small_tile_keeps_old_figures_whole_and_says_what_to_do_about_a_refusal() -> None:
    clock = clock_of_pictures()
    stuck, refused = pictures.stuck(clock).nodes[0], pictures.refused(clock).nodes[0]
    tile = Window(is_tile=True)
    (first, *_) = node_body(stuck, width=38, height=3, now_s=clock.monotonic(), window=tile)
    assert "SM 96 %  38 W  ▲ 2 min old" in first.plain
    lines = node_body(refused, width=38, height=5, now_s=clock.monotonic(), window=tile)
    assert "ssh" in lines[-1].plain


async def test_brackets_and_enter_open_one_of_five() -> None:
    app, _ = console("five")
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot, "spark5 ●")
        screen = app.screen
        assert isinstance(screen, ConsoleScreen)
        await pilot.press("right_square_bracket", "right_square_bracket", "enter")
        shown = [pane.node_name for pane in screen.nodes if pane.display]
        assert (screen.view, shown) == ("nodes", ["spark3"])
        await pilot.press("left_square_bracket")
        assert [pane.node_name for pane in screen.nodes if pane.display] == ["spark2"]
        await pilot.press("enter")
        assert screen.view == "overview"
        assert all(pane.display for pane in screen.nodes)


@over("width", [9, 12, 16, 24])
def test_another_nodes_available_memory_is_the_last_of_its_tab_to_go(width: int) -> None:
    node = pictures.decode(clock_of_pictures()).nodes[1]
    line = _briefest(node, width)
    assert line.width <= width
    assert "45.4" in line.plain
    assert line.plain.startswith("s")


def test_a_wide_pane_has_load_power_and_tokens_beside_the_memory() -> None:
    clock = clock_of_pictures()
    node = pictures.decode(clock).nodes[0]
    times = node.available_history.times
    node = replace(node, token_history=Series(times=times, values=(32.0,) * len(times)))

    def charted(size: tuple[int, int]) -> list[int]:
        rows = shown(node, size).splitlines()
        return [next(y for y, row in enumerate(rows) if name in row) for name in ("SM ", "power ", "tok/s")]

    assert charted((54, 15)) == [0, 1, 2], "in the headline, a row each"
    assert charted((76, 7)) == [0, 1, 2]
    first, second, third = charted((96, 24))
    assert second - first == third - second > 1
    assert "min ago" not in shown(node, (76, 7))


def test_what_began_is_marked_on_the_axis() -> None:
    clock = clock_of_pictures()
    node = pictures.decode(clock).nodes[0]
    guard = GuardState(phase=GuardPhase.FIRED, since_wall_s=clock.wall() - 100)
    run = Intervention(node="spark1", action="restart", began_wall_s=clock.wall() - 50)
    node = replace(node, guard=guard, engines=(replace(node.engines[0], uptime_s=200.0),))
    finding = replace(claims.spin(clock.wall()), since_wall_s=clock.wall() - 20)
    window = Window(findings=(finding,), interventions=(run,), wall_s=clock.wall())
    shown_marks = [(round(ago_s, -1), word) for ago_s, _, word in marks(node, window, 0.4)]
    assert shown_marks == [(20, ""), (100, "guard"), (50, "restart"), (200, "start")]


def test_the_window_reaches_back_to_the_sessions_start_and_marks_findings() -> None:
    clock = clock_of_pictures()
    node = pictures.decode(clock).nodes[0]
    first_s = node.available_history.times[0]
    earlier = Series(times=(first_s - 7000.0, first_s - 30.0), values=(5e9, 5e9))
    node = replace(node, earlier=Earlier(available=earlier))
    finding = claims.spin(clock.wall() - 3600.0)
    lines = node_body(
        node, width=70, height=30, now_s=clock.monotonic(),
        window=Window(span_s=SESSION, findings=(finding,), wall_s=clock.wall()),
    )  # fmt: skip
    (axis,) = [line for line in lines if "h ago" in line.plain]
    assert axis.plain.startswith("3 h ago")
    assert ("✖", "critical") in axis.runs
    assert "10 min ago" in shown(node, (70, 30))


def test_the_title_counts_the_nodes_that_have_no_room() -> None:
    clock = clock_of_pictures()
    fleet = pictures.five(clock)
    views = [replace(fleet.nodes[0], name=f"spark{number}") for number in range(1, 33)]
    lost = replace(views[20], link=replace(views[20].link, state=LinkState.LOST))
    others = (*views[1:20], lost, *views[21:])
    pane = NodePane("spark1", clock)
    pane.show(views[0], others)
    title = pane.draw(100, 20)[0].plain
    assert re.search(r"spark21 .*spark2 .*│ \+26 more ", title), title
    pane.show(replace(views[0]), others, replace(USUAL, is_tile=True))
    assert re.search(r" spark1 ─+ \+31 more ● ", pane.draw(36, 4)[0].plain)
