"""The kernel pane: events of all nodes folded, their details, a node's whole log, and why there may be none."""

from __future__ import annotations

import pytest
from tests.table import over
from tests.ui import svg
from tests.ui.log_stage import Stage

from sparktop.clock import ManualClock
from sparktop.diagnose.kernel import line
from sparktop.diagnose.kernel.incident import IncidentGrouper
from sparktop.documents.events import EventRow, event_line, rows, summary
from sparktop.model.event import Advice, KernelEvent, Severity
from sparktop.model.fleet import FleetState, Link, NodeView
from sparktop.model.telemetry import Collector, CollectorState, LogLine, Memory, Sample
from sparktop.observe.log_ring import LineRing
from sparktop.ui.dialogs.dialog import DetailsScreen
from sparktop.ui.panes.kernel import KernelPane

START = 1_780_000_000.0
XID_13 = (
    "NVRM: Xid (PCI:000f:01:00): 13, pid=214, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): "
    "Illegal Instruction"
)
XID_43 = "NVRM: Xid (PCI:000f:01:00): 43, pid=214, name=python3, Ch 00000008"


def read(*lines: tuple[float, str]) -> tuple[KernelEvent, ...]:
    folder = IncidentGrouper()
    for at, text in lines:
        event = line.read(LogLine(text=text, wall_s=START + at, boot_s=100.0 + at))
        assert event is not None, text
        folder.add(event)
    return folder.events


def event(title: str, **fields: object) -> KernelEvent:
    known = {"kind": "nvrm", "severity": Severity.WARNING, "text": f"raw {title}", **fields}
    return KernelEvent(title=title, **known)  # type: ignore[arg-type]


def node(name: str, *events: KernelEvent, **fields: object) -> NodeView:
    return NodeView(name=name, link=Link(), kernel_events=events, **{"kernel_source": "journal", **fields})  # type: ignore[arg-type]


BURST = read(*((n / 91, XID_13) for n in range(91)), (2.0, XID_43))


class FakeWatch:
    """Only what the pane asks."""

    def __init__(self) -> None:
        self.rings = {"spark1": LineRing(), "spark2": LineRing()}
        self.rings["spark1"].extend(LogLine(text=f"raw {n}", wall_s=START + n, priority=6) for n in range(50))

    def kernel_lines(self, name: str) -> LineRing:
        return self.rings[name]


def staged(*nodes: NodeView) -> tuple[KernelPane, Stage, FleetState]:
    pane, fleet = KernelPane(clock=ManualClock()), FleetState(nodes=nodes)
    stage = Stage(pane)
    stage.call_later(pane.attach, FakeWatch())
    stage.call_later(pane.show, fleet)
    stage.call_later(pane.focus)
    return pane, stage, fleet


def shown(stage: Stage) -> str:
    return "\n".join(svg.plain(stage))


async def test_a_burst_is_one_line_with_its_count() -> None:
    _, stage, _ = staged(node("spark1", *BURST), node("spark2"))
    async with stage.run_test(size=(100, 20)) as pilot:
        await svg.settle(pilot, lambda: "91 × Xid 13 in 1 s" in shown(stage))
        lines = svg.plain(stage)
        assert "kernel  both" in lines[0]
        assert lines[0].rstrip(" ─╮").endswith("92 Xids")
        assert "spark1 ▲ 91 × Xid 13 in 1 s" in lines[1]
        assert "Xid 43" in lines[2]


async def test_nodes_interleave_by_time() -> None:
    first = node("spark1", event("one", last_wall_s=START + 1), event("four", last_wall_s=START + 4))
    second = node("spark2", event("two", last_wall_s=START + 2), event("three", last_wall_s=START + 3))
    order = [row.event.title for row in rows(FleetState(nodes=(first, second)))]
    assert order == ["one", "two", "three", "four"]


def test_an_event_without_wall_time_is_placed_by_the_boot_clock() -> None:
    memory = Memory(total_bytes=1, available_bytes=1, free_bytes=1)
    sample = Sample(sequence=1, boot_s=500.0, wall_s=START, interval_s=1, memory=memory)
    (placed,) = rows(FleetState(nodes=(node("spark1", event("x", last_boot_s=400.0), sample=sample),)))
    assert placed.wall_s == START - 100
    (unknown,) = rows(FleetState(nodes=(node("spark1", event("x")),)))
    assert unknown.wall_s is None
    assert event_line(unknown, 80, show_node=False).plain.startswith(" " * 9 + "▲ x")


@over("width", [8, 20, 40, 60, 200])
def test_a_row_fits(width: int) -> None:
    for burst in BURST:
        assert event_line(EventRow("spark1", burst, START), width, show_node=True).width <= width


def test_the_title_counts_what_matters() -> None:
    def said(*events: KernelEvent) -> str:
        return summary(tuple(EventRow("n", one, START) for one in events)).plain

    assert said() == "quiet"
    assert said(event("x", severity=Severity.INFO)) == "1 noted"
    assert said(*BURST) == "92 Xids"
    assert said(BURST[1]) == "1 Xid"
    assert said(*BURST, event("x")) == "92 Xids · 1 other"
    assert said(event("x", count=3)) == "3 to look at"


async def test_details_say_meaning_and_what_to_do_with_their_sources() -> None:
    advice = (
        Advice(source="NVIDIA Xid catalogue", meaning="The [/x] display hung.", remedy="Restart [the] app."),
        Advice(source="field report 7", meaning="GPU fell off the bus."),
    )
    told = event("Xid 79  lost", code=79, advice=advice, pid=7, process="python3", container="vllm", last_wall_s=START)
    _, stage, _ = staged(node("spark1", told))
    async with stage.run_test(size=(100, 40)) as pilot:
        await pilot.press("d")
        await svg.settle(pilot, lambda: isinstance(stage.screen, DetailsScreen) and "As the kernel" in shown(stage))
        text = shown(stage)
        for wanted in (
            "Xid 79  lost",
            "NVIDIA Xid catalogue",
            "The [/x] display hung.",
            "What to do: Restart [the] app.",
            "field report 7",
            "GPU fell off the bus.",
            "raw Xid 79  lost",
            "python3  pid 7",
            "vllm",
        ):
            assert wanted in text
        await pilot.press("y")
        await svg.settle(pilot, lambda: "What to do: Restart [the] app." in stage.clipboard)
        await pilot.press("escape")
        await svg.settle(pilot, lambda: not isinstance(stage.screen, DetailsScreen))


async def test_long_details_scroll_on_a_small_screen() -> None:
    advice = tuple(Advice(source=f"source {n}", meaning="word " * 30) for n in range(6))
    _, stage, _ = staged(node("spark1", event("long", advice=advice)))
    async with stage.run_test(size=(60, 20)) as pilot:
        await pilot.press("enter")
        await svg.settle(pilot, lambda: "source 0" in shown(stage))
        assert "As the kernel wrote it" not in shown(stage)
        await pilot.press(*["pagedown"] * 5)
        await svg.settle(pilot, lambda: "As the kernel wrote it" in shown(stage))


async def test_the_cursor_stays_on_its_event_while_others_come_and_counts_grow() -> None:
    one, two = event("one", last_wall_s=START, first_boot_s=1.0), event("two", last_wall_s=START + 1, first_boot_s=2.0)
    pane, stage, _ = staged(node("spark1", one, two))
    async with stage.run_test(size=(80, 20)) as pilot:
        await pilot.press("k")
        await svg.settle(pilot, lambda: pane.row_list.selected and pane.row_list.selected.event.title == "one")
        assert "held" in svg.plain(stage)[0]
        grown = event("one", last_wall_s=START + 5, first_boot_s=1.0, count=9)
        pane.show(FleetState(nodes=(node("spark1", grown, two, event("new", last_wall_s=START + 9)),)))
        await svg.settle(pilot, lambda: "new" in shown(stage))
        selected = pane.row_list.selected
        assert selected is not None
        assert (selected.event.title, selected.event.count) == ("one", 9)
        await pilot.press("end")
        assert pane.row_list.selected is pane.row_list.rows[-1]
        await svg.settle(pilot, lambda: "held" not in svg.plain(stage)[0])


async def test_it_follows_the_newest_on_a_short_pane() -> None:
    many = tuple(event(f"event {n}", last_wall_s=START + n, first_boot_s=float(n)) for n in range(40))
    pane, stage, _ = staged(node("spark1", *many))
    async with stage.run_test(size=(80, 8)) as pilot:
        await svg.settle(pilot, lambda: "event 39" in shown(stage))
        await pilot.press("home")
        await svg.settle(pilot, lambda: "event 0" in shown(stage))
        await pilot.press("pagedown", "pagedown", "j")
        await svg.settle(pilot, lambda: pane.row_list.selected is pane.row_list.rows[11])


async def test_the_same_picture_again_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pane, stage, fleet = staged(node("spark1", *BURST))
    async with stage.run_test(size=(80, 20)) as pilot:
        await svg.settle(pilot, lambda: "Xid 43" in shown(stage))
        calls: list[object] = []
        monkeypatch.setattr(pane.row_list, "show_rows", calls.append)
        pane.show(FleetState(nodes=(node("spark1", *BURST),)))
        pane.show(fleet)
        assert calls == []


async def test_where_it_may_not_be_read_it_says_what_would_permit_it() -> None:
    why = "this user may not read the kernel log; to allow it: `sudo usermod -aG systemd-journal $USER`"
    denied = {"kernel": Collector(name="kernel", state=CollectorState.DENIED, detail=why)}
    _, stage, _ = staged(node("spark1", *BURST), node("spark2", kernel_source="", collectors=denied))
    async with stage.run_test(size=(60, 20)) as pilot:
        await svg.settle(pilot, lambda: "systemd-journal" in shown(stage))
        assert "▲ spark2" in svg.plain(stage)[1]
        assert "Xid 43" in shown(stage), "the other node's events stay"


async def test_a_quiet_kernel_is_said_to_be_quiet() -> None:
    _, stage, _ = staged(node("spark1"), node("spark2", kernel_source="sudo dmesg"))
    async with stage.run_test(size=(80, 10)) as pilot:
        await svg.settle(pilot, lambda: "No kernel line that matters since the boot" in shown(stage))
        assert "spark1 (journal), spark2 (sudo dmesg)" in " ".join(shown(stage).replace("│", " ").split())


async def test_a_goes_round_the_nodes_whole_logs() -> None:
    pane, stage, _ = staged(node("spark1"), node("spark2", *BURST))
    async with stage.run_test(size=(80, 20)) as pilot:
        await svg.settle(pilot, lambda: "Xid 43" in shown(stage))
        await pilot.press("a")
        await svg.settle(
            pilot, lambda: pane.raw_node == "spark2" and "No line from spark2's kernel yet." in shown(stage)
        )
        await pilot.press("a")
        await svg.settle(pilot, lambda: pane.raw_node == "spark1" and "raw 49" in shown(stage))
        assert "kernel  spark1, all lines" in svg.plain(stage)[0]
        assert "Xid 43" not in shown(stage)
        await pilot.press("space")
        await svg.settle(pilot, lambda: "paused" in svg.plain(stage)[0])
        await pilot.press("slash", *"raw 7")
        await svg.settle(pilot, lambda: "1/1" in shown(stage))
        await pilot.press("escape", "a")
        await svg.settle(pilot, lambda: pane.raw_node is None and "Xid 43" in shown(stage))
        assert pane.row_list.has_focus


async def test_the_events_are_filtered_by_a_regular_expression() -> None:
    pane, stage, _ = staged(node("spark1", *BURST), node("spark2", event("AER on the NVMe")))
    async with stage.run_test(size=(100, 20)) as pilot:
        await svg.settle(pilot, lambda: len(pane.row_list.rows) == 3)
        await pilot.press("slash", *"xid 4|nvme")
        await svg.settle(pilot, lambda: len(pane.row_list.rows) == 2 and "2 of 3" in shown(stage))
        assert "2 found" in svg.plain(stage)[0]
        await pilot.press("enter", "escape")
        await svg.settle(pilot, lambda: len(pane.row_list.rows) == 3)
        assert pane.raw_node is None
        await pilot.press("slash", *"(")
        await svg.settle(pilot, lambda: "not a regex: as text" in shown(stage))


async def test_search_opens_the_whole_log() -> None:
    pane, stage, _ = staged(node("spark1"))
    async with stage.run_test(size=(80, 20)) as pilot:
        await svg.settle(pilot, lambda: "No kernel line" in shown(stage))
        await pilot.press("slash", *"raw 3")
        await svg.settle(pilot, lambda: pane.raw_node == "spark1" and "11/11" in shown(stage))


async def test_copy_takes_the_kernels_own_line() -> None:
    _, stage, _ = staged(node("spark1", *BURST))
    async with stage.run_test(size=(80, 20)) as pilot:
        await svg.settle(pilot, lambda: "Xid 43" in shown(stage))
        await pilot.press("y")
        await svg.settle(pilot, lambda: stage.clipboard == f"spark1: {XID_43}")
