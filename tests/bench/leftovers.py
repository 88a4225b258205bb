"""What is left of the probes on a node 35 s after each kind of end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.bench.lab import Lab, Node, can_cut, cut, nodes_started, wait_s
from tests.bench.processes import born, with_nonces
from tests.bench.table import Row
from tests.bench.terminal import Program

AFTER_S = 35.0

HOW = (
    "A console and an sshd of its own for each kind of end, all at the same time. Before the end: every process that "
    "descends from a probe's main process, by pid and start time, and the nonces in their command lines. {after:g} s "
    "after it: how many of those processes live, plus others with one of those nonces. A console that lives on and "
    "starts a new probe after a killed session is not a leftover. The last time is when the last one was gone, looked "
    "for every 0.25 s."
)


@dataclass
class Case:
    """One end of one console on one node."""

    name: str
    end: Callable[[Program, Node], None]
    node: Node
    console: Program
    nonces: set[bytes] = field(default_factory=set)
    before: dict[int, int] = field(default_factory=dict)
    gone_after_s: float | None = None

    def remember(self) -> None:
        self.nonces = self.node.nonces()
        self.before = {pid: start for pid in self.node.probe_processes() if (start := born(pid)) is not None}
        assert self.before, f"{self.name}: no probe to end"

    def left(self) -> set[int]:
        return {pid for pid, start in self.before.items() if born(pid) == start} | with_nonces(self.nonces)


def quit_cleanly(console: Program, node: Node) -> None:
    console.send(b"q")


def kill_client(console: Program, node: Node) -> None:
    os.kill(console.pid, signal.SIGKILL)


def kill_session(console: Program, node: Node) -> None:
    node.sshd.kill_sessions()


def stop_session(console: Program, node: Node) -> None:
    node.sshd.kill_sessions(signal.SIGSTOP)


def stop_client(console: Program, node: Node) -> None:
    os.kill(console.pid, signal.SIGSTOP)


ENDS = {
    "q": quit_cleanly,
    "kill -9 of the client": kill_client,
    "kill -9 of the sshd session": kill_session,
    "SIGSTOP of the sshd session": stop_session,
    "SIGSTOP of the client": stop_client,
}
CUT = "network cut"


def rows(lab: Lab) -> Iterator[Row]:
    names = [*ENDS, *([CUT] if can_cut() else [])]
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(nodes_started(lab.folder / "ends", [f"end{at}" for at in range(len(names))]))
        cases = []
        for name, node in zip(names, nodes, strict=True):
            own = Lab(folder=lab.folder / "ends", nodes=(node,), quick=lab.quick)
            console = own.console("--gpu")
            stack.callback(console.end)
            cases.append(Case(name, ENDS.get(name, lambda *_: None), node, console))
        for case in cases:
            case.console.expect(lambda screen: "GiB available" in screen.text(), what=f"{case.name}: data")
        wait_s(3.0)
        for case in cases:
            case.remember()
        begun = time.monotonic()
        for case in cases:
            if case.name == CUT:
                stack.enter_context(cut(case.node.sshd))
            case.end(case.console, case.node)
        while (took_s := time.monotonic() - begun) < AFTER_S:
            for case in cases:
                if case.gone_after_s is None and not case.left():
                    case.gone_after_s = took_s
            wait_s(0.25)
        for case in cases:
            left = case.left()
            when = "" if case.gone_after_s is None else f"; the last was gone after {case.gone_after_s:.1f} s"
            yield Row(
                measure=f"leftovers {AFTER_S:g} s after: {case.name}",
                result=f"{len(left)} of {len(case.before)} processes{when}",
                goal="0",
                met=not left,
                how=HOW.format(after=AFTER_S),
            )
    if not can_cut():
        yield Row(measure=f"leftovers {AFTER_S:g} s after: {CUT}", result="not measured: needs root and iptables")
