"""From a restored link to a sample on the screen that was taken after it, for three ways of losing one."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

from tests.bench.lab import Lab, Node, both_live, can_cut, cut, wait_s
from tests.bench.screen import STAMP
from tests.bench.table import Row, median, spread
from tests.bench.terminal import Program, Screen

DOWN_S = 12.0
SETTLE_S = 3.0

HOW = (
    "One node at a time, the other stays. The figure is CLOCK_BOOTTIME when the terminal first shows, in that node's "
    "pane, a sample taken after the link was restored (the samples carry their time, as above), less the moment of "
    "restoring: the kill itself, where a kill -9 ends every sshd process of the session and the listener lives; "
    "SIGCONT, 12 s after SIGSTOP of the listener and of the session; the end of 12 s in which iptables drops every "
    "packet to and from the node's port, in a network namespace of the bench's own."
)

Fault = Callable[[Node], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def killed(node: Node) -> Iterator[None]:
    node.sshd.kill_sessions()
    yield


@contextlib.contextmanager
def stopped(node: Node) -> Iterator[None]:
    node.sshd.freeze()
    node.sshd.kill_sessions(signal.SIGSTOP)
    try:
        wait_s(DOWN_S)
        yield
    finally:
        node.sshd.kill_sessions(signal.SIGCONT)
        node.sshd.thaw()


@contextlib.contextmanager
def unplugged(node: Node) -> Iterator[None]:
    with cut(node.sshd):
        wait_s(DOWN_S)
        yield


def newest(screen: Screen, half: int) -> float:
    """When the sample shown there was taken, CLOCK_BOOTTIME; 0 where none is shown."""
    found = STAMP.search(screen.half(half))
    return float(found[1]) if found else 0.0


def recovery_s(console: Program, node: Node, half: int, fault: Fault) -> float:
    with fault(node):
        restored_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    if fault is not killed:
        restored_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    came_ns = console.expect(
        lambda screen: newest(screen, half) > restored_s, within_s=60.0, what=f"a fresh sample of {node.name}"
    )
    return came_ns / 1e9 - restored_s


def rows(lab: Lab) -> Iterator[Row]:
    faults: list[tuple[str, Fault]] = [("kill -9 of the session", killed), ("SIGSTOP of sshd, 12 s", stopped)]
    if can_cut():
        faults.append(("network cut, 12 s", unplugged))
    for name, fault in faults:
        times = []
        console = lab.console("--gpu", "--stamp")
        try:
            console.expect(both_live, what="data of both hosts")
            for number in range(2 if lab.quick else 8):
                wait_s(SETTLE_S + 0.37 * number)  # at different moments of the probe's second
                half = number % len(lab.nodes)
                times.append(recovery_s(console, lab.nodes[half], half, fault))
        finally:
            console.quit()
        yield Row(
            measure=f"link restored to fresh sample: {name}, s",
            result=f"{spread(times)} (of {len(times)})",
            goal="median 1, max 3",
            met=median(times) <= 1 and max(times) <= 3,
            how=HOW,
        )
    if not can_cut():
        yield Row(measure="link restored to fresh sample: network cut", result="not measured: needs root and iptables")
