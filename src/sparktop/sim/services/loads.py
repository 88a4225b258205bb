"""Programs that load a simulated Spark: perftest over its cable, matrices on its GPU.

A server of perftest listens until its client has gone, and both count what went over the cable. What a program prints
is captured text (`services.answers`), a scenario's own where it has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import field

from sparktop.dataclass import dataclass
from sparktop.sim.reaction import acts
from sparktop.sim.services.answers import captured
from sparktop.sim.services.process import Machine, Ran

MATRICES = "python3 -I -S -c import array, ctypes"
"""How the command line of the program begins that `measure-power` runs."""
PROGRAMS = ("ib_write_bw", "ib_write_lat")
SERVES_S = 1.0
"""How much longer than its client a server takes: it starts earlier."""
UNSEEN_S = 30.0
"""How long a server waits for a client that never comes."""
SHARED_GBPS = 98.02
"""Of each half where both are loaded: 196 Gb/s is what one cable carries."""
_ROW = re.compile(r"^(\s*(\d+)\s+)(\d+)(\s+[\d.]+\s+)([\d.]+)", re.MULTILINE)
"""Size, iterations, peak and average of a result."""
_COUNTER = re.compile(r"/sys/class/infiniband/([^/]+)/ports/1/counters/(port_(?:xmit|rcv)_data)")
WORD_BYTES = 4


@dataclass(slots=True)
class Loads:
    """Those of one node, and what they moved since boot."""

    listening: dict[str, asyncio.Event] = field(default_factory=dict)
    """TCP ports of servers; the event: somebody has seen it listen, and its client will come."""
    clients: int = 0
    is_shared: bool = False
    """Two clients have been at work at once."""
    moved_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    """By device and counter."""

    async def run(self, machine: Machine, argv: Sequence[str]) -> Ran | None:
        """What the program prints once it has ended; None: it is none of these."""
        words = list(argv[4:] if argv[:2] == ["timeout", "-k"] else argv)
        if words[:2] == ["ss", "-Hltn"]:
            if (seen := self.listening.get(words[-1].removeprefix(":"))) is None:
                return Ran()
            seen.set()
            return Ran(output=f"LISTEN 0      128          0.0.0.0{words[-1]}       0.0.0.0:*\n")
        if " ".join(words).startswith(MATRICES):
            machine.react(acts.load_gpu(seconds=float(words[-1])))
            await machine.rest(float(words[-1]))
            answer = captured(machine.moment()[0].script, MATRICES)
            return Ran(output=answer.output if answer is not None else "", seconds=0.0)
        if not words or words[0] not in PROGRAMS:
            return None
        answer = captured(machine.moment()[0].script, " ".join(words))
        if answer is None or answer.is_missing:
            return Ran(code=127, errors=f"timeout: failed to run command ‘{words[0]}’: No such file or directory\n")
        device, port = words[words.index("-d") + 1], words[words.index("-p") + 1]
        seconds = float(words[words.index("-D") + 1]) if "-D" in words else 1.0
        if words[-2].startswith("-") or "." not in words[-1]:
            self.listening[port] = seen = asyncio.Event()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(UNSEEN_S):
                        await seen.wait()
                await machine.rest(seconds + SERVES_S)
            finally:
                del self.listening[port]
            self._count(device, "port_rcv_data", answer.output)
            return Ran(output=answer.output, seconds=0.0)
        self.clients += 1
        self.is_shared = self.clients > 1
        try:
            await machine.rest(seconds)
            text = _shared(answer.output) if self.is_shared else answer.output
        finally:
            self.clients -= 1
        self._count(device, "port_xmit_data", text)
        return Ran(code=answer.code, output=text, errors=answer.errors, seconds=0.0)

    def _count(self, device: str, counter: str, text: str) -> None:
        row = _ROW.search(text)
        moved = int(row[2]) * int(row[3]) if row is not None else 0
        self.moved_bytes[device, counter] = self.moved_bytes.get((device, counter), 0) + moved

    def counter(self, path: str) -> str | None:
        """The text of an RDMA port's counter; None: the path is no counter's."""
        match = _COUNTER.fullmatch(path)
        return None if match is None else f"{self.moved_bytes.get((match[1], match[2]), 0) // WORD_BYTES}\n"


def _shared(text: str) -> str:
    """A half's text where the cable carries both."""
    row = _ROW.search(text)
    if row is None or float(row[5]) <= SHARED_GBPS:
        return text
    iterations = round(int(row[3]) * SHARED_GBPS / float(row[5]))
    return f"{text[: row.start()]}{row[1]}{iterations}{row[4]}{SHARED_GBPS}{text[row.end() :]}"
