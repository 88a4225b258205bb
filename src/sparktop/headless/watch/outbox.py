"""The messages on their way: what is held back for now, and for each target what it hasn't got yet, in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from sparktop.config import MessageKind, Watching
from sparktop.headless.terminal import say
from sparktop.headless.watch.kept import Kept
from sparktop.headless.watch.message import Message, summary
from sparktop.headless.watch.targets import Send
from sparktop.model.event import Severity

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Between two attempts at a target that fails; each pause is twice the one before."""
OLDEST_S = 86_400.0
"""An older message is dropped once its target refuses or misses it again."""
MAX_QUEUED = 100
"""For one target; of more the oldest are folded into one."""
LEAVING_S = 5.0
_HELD = "held back until now"
_CHANGES = (MessageKind.NEW, MessageKind.WORSE, MessageKind.RESOLVED)


def is_quiet(watching: Watching, wall_s: float) -> bool:
    """Whether this is a quiet hour here."""
    if watching.quiet is None:
        return False
    local = time.localtime(wall_s)
    minute, (first, last) = local.tm_hour * 60 + local.tm_min, watching.quiet
    return first <= minute < last if first <= last else minute >= first or minute < last


def goes_now(message: Message, watching: Watching, wall_s: float, sent: int) -> bool:
    """Whether a change is sent at once, after so many in the last hour."""
    is_urgent = message.severity == Severity.CRITICAL and message.kind is not MessageKind.RESOLVED
    return sent < watching.most_per_hour and (is_urgent or not is_quiet(watching, wall_s))


class Outbox:
    """Sends each message to each target that wants it: once, in order, and again until it has it."""

    def __init__(self, watching: Watching, sends: Mapping[str, Send], kept: Kept, changed: Callable[[], None]) -> None:
        """`changed` is called after each message that a target took."""
        self._watching = watching
        self._sends = sends
        self._changed = changed
        self.queues: dict[str, list[Message]] = {name: list(kept.queues.get(name, ())) for name in sends}
        self.held: list[Message] = list(kept.held)
        self.sent_wall_s: list[float] = list(kept.sent_wall_s)
        self._fresh = {name: asyncio.Event() for name in sends}
        self._leaving = asyncio.Event()

    def add(self, message: Message) -> None:
        """Queue a message, or hold it back."""
        now_s = message.wall_s
        self.sent_wall_s = [at_s for at_s in self.sent_wall_s if 0 <= now_s - at_s < 3600]
        if message.kind in _CHANGES:
            is_first = not self.held or message.severity == Severity.CRITICAL
            if not (is_first and goes_now(message, self._watching, now_s, len(self.sent_wall_s))):
                self.held.append(message)
                if len(self.held) > MAX_QUEUED:
                    self.held[:2] = [summary(self.held[:2], now_s, _HELD)]
                return
        self._queue(message)

    def release(self, wall_s: float) -> None:
        """Queue what was held back, as one message, once it may go."""
        recent = [at_s for at_s in self.sent_wall_s if 0 <= wall_s - at_s < 3600]
        if self.held and len(recent) < self._watching.most_per_hour and not is_quiet(self._watching, wall_s):
            held, self.held = self.held, []
            self._queue(summary(held, wall_s, _HELD))

    def _queue(self, message: Message) -> None:
        is_change = message.kind in _CHANGES or message.kind is MessageKind.SUMMARY
        if is_change:
            self.sent_wall_s.append(message.wall_s)
        for target in self._watching.targets:
            wants = any(kind in target.events for kind in _CHANGES) if message.kind is MessageKind.SUMMARY else (
                message.kind in target.events)  # fmt: skip
            if wants:
                queue = self.queues[target.name]
                queue.append(message)
                if len(queue) > MAX_QUEUED:  # not the first, which may be on its way now
                    queue[1:3] = [summary(queue[1:3], message.wall_s, "delayed: this target didn't take them")]
                self._fresh[target.name].set()

    async def run(self) -> None:
        """Send until cancelled; what is being sent then has some seconds to arrive, as it would be sent twice."""
        tasks = [asyncio.create_task(self._deliver(name)) for name in self._sends]
        try:
            await asyncio.Event().wait()
        finally:
            self._leaving.set()
            for event in self._fresh.values():
                event.set()
            if tasks:
                await asyncio.wait(tasks, timeout=LEAVING_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, name: str) -> None:
        queue, fresh, failures = self.queues[name], self._fresh[name], 0
        while not self._leaving.is_set():
            if not queue:
                fresh.clear()
                await fresh.wait()
                continue
            message = queue[0]
            outcome = await self._sends[name](message)
            is_old = time.time() - message.wall_s > OLDEST_S
            if outcome.problem and not outcome.is_refused and not is_old:
                failures += 1
                if failures == 1:
                    say(f"{name}: {outcome.problem}; tried again until it works")
                pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 16))
                await self._pause(max(outcome.wait_s, pause_s))
                continue
            if outcome.problem:
                say(f"{name}: a message was dropped: {outcome.problem}")
            elif failures:
                say(f"{name}: takes messages again")
            failures = 0
            queue.remove(message)
            self._changed()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
