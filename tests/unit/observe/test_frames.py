"""Kernel lines are read in frames: a Spark that sends thousands, or slow ones, holds no key up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from sparktop.clock import ManualClock
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.model.event import KernelEvent
from sparktop.model.telemetry import Hello, HostFacts, KernelLines, LogLine
from sparktop.observe.contained import Contained
from sparktop.observe.frames import FRAME_S, FrameReader
from sparktop.observe.node_state import NodeState

XID = "NVRM: Xid (PCI:0000:01:00): {}, pid=1, name=x"


def batch(*numbers: int) -> KernelLines:
    lines = tuple(LogLine(text=XID.format(number), boot_s=float(number)) for number in numbers)
    return KernelLines(source="journal", lines=lines, dropped=0)


class Loop:
    """What an event loop would call, called by hand."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        assert seconds == FRAME_S
        self.calls.append(call)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel line takes half a frame."""
    from sparktop.observe import node_state

    clock = count(0.0, FRAME_S / 2)
    timed = lambda read, **more: FrameReader(read, now=lambda: next(clock), **more)  # noqa: E731
    monkeypatch.setattr(node_state, "FrameReader", {LogLine: timed})


def node(loop: Loop | None) -> tuple[NodeState, list[bool], Contained]:
    changes: list[bool] = []
    contained = Contained(ManualClock())
    later = loop.later if loop else None
    return (
        NodeState("spark1", clock=ManualClock(), changed=changes.append, contained=contained, later=later),
        changes,
        contained,
    )


def codes(book: NodeState) -> list[int | None]:
    return [event.code for event in book.view().kernel_events]


@pytest.mark.usefixtures("slow")
def test_kernel_lines_are_read_a_frame_at_a_time_and_shown_at_once() -> None:
    loop = Loop()
    book, changes, _ = node(loop)
    book.message(batch(13, 31, 43), 0.0)
    assert len(book.kernel_lines) == 3
    assert codes(book) == [13, 31]
    book.message(batch(79), 0.0)
    assert codes(book) == [13, 31]
    assert len(loop.calls) == 1, "one reader, however many batches come"
    del changes[:]
    loop.turn()
    assert codes(book) == [13, 31, 43, 79]
    assert changes == [False], "the picture is published anew"
    loop.turn()
    assert loop.calls == []
    book.message(batch(119), 0.0)
    assert codes(book)[-1] == 119


@pytest.mark.usefixtures("slow")
def test_without_a_loop_all_is_read_at_once() -> None:
    book, _, _ = node(None)
    book.message(batch(13, 31, 43, 79), 0.0)
    assert codes(book) == [13, 31, 43, 79]


@pytest.mark.usefixtures("slow")
def test_what_an_earlier_boot_left_unread_is_dropped() -> None:
    loop = Loop()
    book, _, _ = node(loop)
    for boot in ("a", "b"):
        facts = HostFacts(boot_id=boot, hostname="spark1")
        book.message(Hello(protocol=1, pid=1, probe_digest="", facts=facts), 0.0)
        if boot == "a":
            book.message(batch(13, 31, 43, 79), 0.0)
    loop.turn()
    assert codes(book) == []


@pytest.mark.usefixtures("slow")
def test_a_fault_in_one_line_costs_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    read = kernel_line.read

    def broken(line: LogLine) -> KernelEvent | None:
        if " 31," in line.text:
            raise ValueError("broken")
        return read(line)

    monkeypatch.setattr(kernel_line, "read", broken)
    for loop in (None, Loop()):
        book, _, contained = node(loop)
        book.message(batch(13, 31, 43), 0.0)
        while loop and loop.calls:
            loop.turn()
        assert codes(book) == [13, 43]
        assert "kernel lines" in contained.notices()[0].text


def test_what_is_unread_is_bounded() -> None:
    read: list[int] = []
    reader = FrameReader[int](read.append, now=lambda: 0.0, most_unread=3)
    reader.add(range(5))
    assert reader.read_frame()
    assert read == [2, 3, 4]
