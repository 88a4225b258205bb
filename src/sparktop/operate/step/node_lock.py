"""The node locks of a run: the connection to each node's runner and the lock on it, renewed after a lost connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from sparktop.errors import NoAnswer, TransportError
from sparktop.operate.runner.api import NOBODY, LockHolder, NodeLine
from sparktop.operate.step.run_context import RunContext
from sparktop.operate.step.wait import Abort

RETRY_S = 0.5
OWN_LEASE_S = 60.0
"""An earlier runner of this console keeps its lock until it notices that nobody listens any more."""
RENEW_S = 1.0
UNLOCK_LIMIT_S = 3.0


class NoLine(Exception):
    """No connection to the node's runner; the text says why."""


class NodeTaken(Exception):
    """The node can't be locked for a change; the text says who has it, or why."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint or "wait until that is done, then plan again"


class NodeLocks:
    """The locks that one run holds."""

    def __init__(self, context: RunContext, run_id: str, what: str, abort: Abort) -> None:
        self._context = context
        self._mark = f"[{run_id}]"
        self._what = f"{what} {self._mark}"
        self._abort = abort
        self._locked: dict[str, NodeLine] = {}
        self.is_let_go = False
        """All locks were released for a while; all are taken again before anything is changed."""
        self._lock_guard = asyncio.Lock()

    async def line(self, node: str, *, patience_s: float, grace_s: float = 0.0) -> NodeLine:
        """The node's open connection, waited for; `grace_s` longer than the operator's abort.

        Raises:
            NoLine: there was none in time.
            Aborted: the operator aborted.
        """
        if (line := self._context.lines.line(node)) is not None:
            return line
        return await self._abort.unless(self._wait(node, patience_s), grace_s=grace_s)

    async def _wait(self, node: str, patience_s: float) -> NodeLine:
        try:
            async with asyncio.timeout(patience_s):
                return await self._context.lines.wait(node)
        except TimeoutError:
            why = self._context.lines.problem(node)
            reason = f": {why}" if why else f", and none came within {patience_s:.0f} s"
            raise NoLine(f"there is no runner on {node}{reason}") from None

    async def take(self, line: NodeLine) -> None:
        """Take the node's lock over this connection.

        Raises:
            NodeTaken: another run holds it.
            TransportError: the connection broke, or the runner's answer can't be read.
        """
        until_s = self._context.clock.monotonic() + OWN_LEASE_S
        while (holder := await self._lock(line)) is not None:
            is_ours = holder.what.endswith(self._mark)
            if not is_ours or self._abort.is_wanted or self._context.clock.monotonic() > until_s:
                raise NodeTaken(_taken_text(line.node, holder), holder.hint)
            await self._context.pause(RETRY_S)

    async def take_all(self, nodes: Iterable[str], *, patience_s: float) -> None:
        """Take the locks of these nodes, one after the other; raises as `line` and `take` do."""
        for node in nodes:
            await self.take(await self.line(node, patience_s=patience_s))
        self.is_let_go = False

    async def _lock(self, line: NodeLine, *, instead_of: NodeLine | None = None) -> LockHolder | None:
        async with self._lock_guard:
            if self._locked.get(line.node) is line:
                return None
            try:
                holder = await line.lock(self._context.audit.who, self._what)
            except NoAnswer:  # it may be ours all the same
                await _unlock(line)
                raise
            if instead_of is not None and self._locked.get(line.node) is not instead_of:
                await _unlock(line)  # all locks were released while this one was being renewed
            elif holder is None:
                self._locked[line.node] = line
            return holder

    async def keep(self) -> None:
        """Until cancelled: take the lock again on each node that has reconnected, before anybody else does."""
        while True:
            await asyncio.sleep(RENEW_S)
            for node, locked in tuple(self._locked.items()):
                line = self._context.lines.line(node)
                if line is None or line is locked:
                    continue
                try:
                    await self._lock(line, instead_of=locked)
                except TransportError:
                    pass  # the step that needs the node gets the same error

    async def let_go(self) -> None:
        """Release every node while nothing is being changed (downloads may take hours)."""
        self.is_let_go = True
        await self.release()

    async def release(self) -> None:
        """Release every node; where the connection is gone, the lock went with it."""
        lines, self._locked = self._locked, {}
        for node, line in lines.items():
            if self._context.lines.line(node) is line:
                await _unlock(line)


async def _unlock(line: NodeLine) -> None:
    try:
        async with asyncio.timeout(UNLOCK_LIMIT_S):
            await line.unlock()
    except (TimeoutError, TransportError):
        pass  # it goes with the runner's lease


def _taken_text(node: str, holder: LockHolder) -> str:
    if holder.who == NOBODY:
        return f"{node} can't be taken for a change: {holder.what}"
    since = f" since {time.strftime('%H:%M:%S', time.localtime(holder.since_wall_s))}" if holder.since_wall_s else ""
    return f"{holder.who or 'somebody'} is changing {node}{since}: {holder.what or 'they do not say what'}"
