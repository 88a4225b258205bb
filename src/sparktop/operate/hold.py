"""The nodes that a run has in its hands: their lines, and the lock on each, taken anew where a connection was lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from sparktop.errors import TransportError
from sparktop.operate.aborting import Abort
from sparktop.operate.line import NOBODY, LockHolder, NodeLine
from sparktop.operate.means import Means

RETRY_S = 0.5
OWN_LEASE_S = 60.0
"""An earlier runner of ours keeps its lock until it notices that nobody listens any more."""
RENEW_S = 1.0
UNLOCK_LIMIT_S = 3.0


class NoLine(Exception):
    """There is no way to the node's runner; the sentence says so."""


class Taken(Exception):
    """Somebody else changes the node at the moment; the sentence says who."""


class Hold:
    """What one run holds of its nodes."""

    def __init__(self, means: Means, run_id: str, what: str, abort: Abort) -> None:
        self._means = means
        self._mark = f"[{run_id}]"
        self._what = f"{what} {self._mark}"
        self._abort = abort
        self._locked: dict[str, NodeLine] = {}
        self.is_let_go = False
        """What was held has been given back for a while: all of it is taken again before anything is changed."""
        self._one_at_a_time = asyncio.Lock()

    async def line(self, node: str, *, patience_s: float, grace_s: float = 0.0) -> NodeLine:
        """The node's open line, waited for; `grace_s` longer than the operator wants to wait.

        Raises:
            NoLine: it didn't come in time.
            Aborted: the operator wanted out.
        """
        if (line := self._means.lines.line(node)) is not None:
            return line
        return await self._abort.unless(self._wait(node, patience_s), grace_s=grace_s)

    async def _wait(self, node: str, patience_s: float) -> NodeLine:
        try:
            async with asyncio.timeout(patience_s):
                return await self._means.lines.wait(node)
        except TimeoutError:
            why = self._means.lines.problem(node)
            told = f": {why}" if why else f", and none came within {patience_s:.0f} s"
            raise NoLine(f"there is no runner on {node}{told}") from None

    async def take(self, line: NodeLine) -> None:
        """Have the node's lock on this line.

        Raises:
            Taken: another has it.
            TransportError: the line broke meanwhile.
        """
        until_s = self._means.clock.monotonic() + OWN_LEASE_S
        while (holder := await self._lock(line)) is not None:
            is_ours = holder.what.endswith(self._mark)
            if not is_ours or self._abort.is_wanted or self._means.clock.monotonic() > until_s:
                raise Taken(_who(line.node, holder))
            await self._means.pause(RETRY_S)

    async def take_all(self, nodes: Iterable[str], *, patience_s: float) -> None:
        """Have the locks of these nodes, each waited for as `line` and `take` do, and raising as they do."""
        for node in nodes:
            await self.take(await self.line(node, patience_s=patience_s))
        self.is_let_go = False

    async def _lock(self, line: NodeLine, *, instead_of: NodeLine | None = None) -> LockHolder | None:
        async with self._one_at_a_time:
            if self._locked.get(line.node) is line:
                return None
            holder = await line.lock(self._means.audit.who, self._what)
            if instead_of is not None and self._locked.get(line.node) is not instead_of:
                await _unlock(line)  # all was given back while this one was taken anew
            elif holder is None:
                self._locked[line.node] = line
            return holder

    async def keep(self) -> None:
        """Until cancelled: take the lock of a node anew that has come back, before anybody else does."""
        while True:
            await asyncio.sleep(RENEW_S)
            for node, locked in tuple(self._locked.items()):
                line = self._means.lines.line(node)
                if line is None or line is locked:
                    continue
                try:
                    await self._lock(line, instead_of=locked)
                except TransportError:
                    pass  # the step that needs the node finds out the same

    async def let_go(self) -> None:
        """Give every node back for as long as nothing is changed (`fetching`): it may take hours."""
        self.is_let_go = True
        await self.release()

    async def release(self) -> None:
        """Give every node back; where the line is gone, the lock went with it."""
        held, self._locked = self._locked, {}
        for node, line in held.items():
            if self._means.lines.line(node) is line:
                await _unlock(line)


async def _unlock(line: NodeLine) -> None:
    try:
        async with asyncio.timeout(UNLOCK_LIMIT_S):
            await line.unlock()
    except (TimeoutError, TransportError):
        pass  # it goes with the runner's lease


def _who(node: str, holder: LockHolder) -> str:
    if holder.who == NOBODY:
        return f"{node} can't be taken for a change: {holder.what}"
    since = f" since {time.strftime('%H:%M:%S', time.localtime(holder.since_wall_s))}" if holder.since_wall_s else ""
    return f"{holder.who or 'somebody'} is changing {node}{since}: {holder.what or 'they do not say what'}"
