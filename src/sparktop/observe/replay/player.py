"""Plays recordings as a console watches nodes: at a speed, from any moment, with what is in them marked beforehand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from sparktop.dataclass import dataclass
from sparktop.errors import UsageError
from sparktop.model.event import Event, EventKind, Severity
from sparktop.model.fleet import FleetState, Forward
from sparktop.observe.log_ring import LineRing
from sparktop.observe.replay.replay import Replay
from sparktop.observe.watch import LogFeed, Publish
from sparktop.transport.threads import in_thread

TURN_S = 0.1
FRAME_S = 0.02
"""How long it may keep the loop busy at once: keys are answered there."""
SPEEDS = (0.25, 1.0, 4.0, 15.0, 60.0, 240.0)
IN_A_HOLE_S = 5.0
"""How much of a hole is played: it is long, and nothing is in it."""
SEEN_S = 2.0
"""How long before a moment that is gone to its pictures are made as if they were seen."""
NEAR_S = 120.0
"""A moment not farther ahead is reached by playing on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """Where a replay stands."""

    begin_s: float
    end_s: float
    now_s: float
    speed: float
    is_playing: bool
    marks: tuple[Event, ...]
    marked_until_s: float
    """How far it has been looked through for marks."""
    doing: str = ""
    """What takes a while just now."""
    holes: tuple[tuple[float, float], ...] = ()
    """(From, until) of where nothing was recorded."""


def is_mark(event: Event) -> bool:
    """Whether an event is worth a look by itself: a cause that is found, a node that is lost."""
    if event.severity is None or event.severity is Severity.INFO or event.is_consequence:
        return False
    return event.kind in (EventKind.FOUND, EventKind.LINK)


class Player:
    """A replay that goes on by itself; implements `observe.watch.Watch`. Nothing is sent to a node."""

    def __init__(
        self,
        make: Callable[[float], Replay],
        *,
        begin_s: float,
        end_s: float,
        at_s: float,
        publish: Publish,
        holes: tuple[tuple[float, float], ...] = (),
        told: Callable[[], Sequence[Event] | None] = lambda: None,
    ) -> None:
        """`make` gives a replay that begins some time before a moment; `at_s`: where to begin; `holes`: see Playing.

        `told` gives what consoles told as they recorded, None where that isn't known; called in a thread.
        """
        self._holes, self._told = holes, told
        self._make = make
        self._begin_s, self._end_s = begin_s, end_s
        self._publish = publish
        self._replay = make(begin_s)
        self._wanted_s = at_s
        self._is_sought = at_s > begin_s
        self._speed = SPEEDS.index(1.0)
        self._is_playing = True
        self._marks: list[Event] = []
        self._marked_s = begin_s
        self._doing = ""
        self._is_over = threading.Event()

    @property
    def playing(self) -> Playing:
        """Where it stands."""
        return Playing(
            begin_s=self._begin_s,
            end_s=self._end_s,
            now_s=self._replay.clock.wall(),
            speed=SPEEDS[self._speed],
            is_playing=self._is_playing,
            marks=tuple(self._marks),
            marked_until_s=self._marked_s,
            doing=self._doing,
            holes=self._holes,
        )

    # Clock

    def wall(self) -> float:
        """See Clock: the tape's."""
        return self._replay.clock.wall()

    def monotonic(self) -> float:
        """See Clock: the tape's."""
        return self._replay.clock.monotonic()

    # What a person does

    def pause(self) -> None:
        """Pause, or go on."""
        self._is_playing = not self._is_playing

    def change_speed(self, steps: int) -> None:
        """Play slower or faster."""
        self._speed = min(len(SPEEDS) - 1, max(0, self._speed + steps))

    def step(self, seconds: float) -> None:
        """Move by so much, and pause."""
        self._is_playing = False
        self.seek(self._wanted_s + seconds)

    def seek(self, at_s: float) -> None:
        """Go to a moment."""
        self._wanted_s = min(self._end_s, max(self._begin_s, at_s))
        self._is_sought = True

    def seek_mark(self, direction: int) -> Event | None:
        """Go to the next mark, or the one before; None where there is none, so far as it was looked through."""
        at_s = self._wanted_s
        marks = [mark for mark in self._marks if (mark.at_s > at_s + 0.5 if direction > 0 else mark.at_s < at_s - 2.0)]
        if not marks:
            return None
        mark = marks[0] if direction > 0 else marks[-1]
        self._is_playing = False
        self.seek(mark.at_s)
        return mark

    # Watch

    @property
    def state(self) -> FleetState:
        """The picture of the moment."""
        return self._replay.state

    @property
    def interval_s(self) -> float:
        """Not of a replay's choosing."""
        return 1.0

    async def run(self) -> None:
        """Play until cancelled."""
        marking = threading.Thread(target=self._mark, daemon=True)
        marking.start()
        try:
            while True:
                await self._turn(monotonic())
        finally:
            self._is_over.set()

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        """The feed of an engine's log."""
        return self._replay.log(node, engine_key)

    def kernel_lines(self, node: str) -> LineRing:
        """The node's kernel log."""
        return self._replay.kernel_lines(node)

    def set_interval(self, seconds: float) -> None:
        """Nothing samples."""

    def retry_now(self, node: str) -> None:
        """Nothing connects."""

    async def forward(self, node: str, engine: str, port: int = 0) -> Forward:
        """Refused.

        Raises:
            UsageError: always.
        """
        raise UsageError("a replay reaches no engine")

    async def end_forward(self, node: str, engine: str) -> None:
        """There is none."""

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        """There is no probe."""
        return False

    async def _turn(self, began_s: float) -> None:
        if self._is_sought:
            self._is_sought = False
            await self._jump(self._wanted_s)
        await asyncio.sleep(TURN_S)
        if self._is_playing and not self._is_sought:
            wanted_s = self._wanted_s + (monotonic() - began_s) * SPEEDS[self._speed]
            holes = (until_s for from_s, until_s in self._holes if from_s + IN_A_HOLE_S < wanted_s < until_s)
            self._wanted_s = min(self._end_s, next(holes, wanted_s))
            busy_until_s = monotonic() + FRAME_S
            for _ in self._replay.play(self._wanted_s):
                if monotonic() > busy_until_s:
                    await asyncio.sleep(0)
                    busy_until_s = monotonic() + FRAME_S
            self._is_playing = self._wanted_s < self._end_s
        self._publish(self._replay.state)

    async def _jump(self, at_s: float) -> None:
        """Play up to a moment as fast as it goes, from before it where it is behind."""
        is_on = self._replay.clock.wall() <= at_s <= self._replay.clock.wall() + NEAR_S
        self._doing = "" if is_on else "going there"
        self._publish(self._replay.state)
        self._replay = await in_thread(lambda: self._played(self._replay if is_on else self._make(at_s), at_s))
        self._doing = ""

    def _played(self, replay: Replay, at_s: float) -> Replay:
        for part in (replay.play(at_s - SEEN_S, seen=False), replay.play(at_s)):
            for _ in part:
                if self._is_over.is_set():
                    break
        return replay

    def _mark(self) -> None:
        """Take the marks that the recordings hold, else look through all of it; in a thread of its own."""
        if (told := self._told()) is not None:
            self._marks += filter(is_mark, told)
            self._marked_s = self._end_s
            return
        for picture in self._make(self._begin_s).play(seen=False):
            self._marked_s = picture.wall_s
            self._marks += filter(is_mark, picture.news)
            if self._is_over.is_set():
                return
        self._marked_s = self._end_s
