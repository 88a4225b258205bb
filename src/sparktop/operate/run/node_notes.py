"""Notes of a run on the nodes that it changes, so that consoles on other machines know of it too.

Each node keeps the entries of the run's audit (`probe/runner/notes`) and by what name this console knows it. The audit
on this machine is what counts: a note that doesn't arrive is sent again while the run lasts, and then left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sparktop.errors import TransportError
from sparktop.model.survey import NoteRun
from sparktop.operate.runner.api import NodeLines

LIMIT_S = 5.0
"""How long a run waits for its nodes to have noted its intent, or its end."""
AGAIN_S = 2.0
Entry = Mapping[str, Any]


class NodeNotes:
    """What one run notes on its nodes."""

    def __init__(self, run_id: str, nodes: Sequence[str], lines: NodeLines, entries: Sequence[Entry]) -> None:
        """`entries`: those of the audit, which grow."""
        self._run_id = run_id
        self._lines = lines
        self._entries = entries
        self._sent = dict.fromkeys(nodes, 0)
        """By node, how many entries it has."""
        self._sending = {node: asyncio.Lock() for node in nodes}

    async def keep(self) -> None:
        """Until cancelled: send what is new."""
        while True:
            await self.send()
            await asyncio.sleep(AGAIN_S)

    async def send(self, *nodes: str) -> None:
        """Send what is new to these nodes, or to all, where they are connected, for LIMIT_S at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_S):
                await asyncio.gather(*(self._send(node) for node in nodes or self._sent if node in self._sent))

    async def _send(self, node: str) -> None:
        line = self._lines.line(node)
        with suppress(TransportError):
            async with self._sending[node]:
                while line is not None and self._sent[node] < len(self._entries):
                    entry = json.dumps({**self._entries[self._sent[node]], "as": node}, default=str)
                    question = NoteRun(node=node, run_id=self._run_id, entry=entry)
                    if (await line.ask([question]))[question].problem:
                        return
                    self._sent[node] += 1
