"""What reaches the console of one node, each kind a class: it is kept on the tape, and taken into the node's state.

A replay takes the same again, so it shows what was shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sparktop.dataclass import dataclass
from sparktop.model.engine import Containers, EndpointState, EngineMetrics
from sparktop.model.event import Event
from sparktop.model.fleet import Contact, Intervention, LinkState, Reach
from sparktop.model.proof import Canary
from sparktop.model.telemetry import Garbled, LogLine, Message
from sparktop.text.units import day_time
from sparktop.wire.decode import decode

if TYPE_CHECKING:
    from sparktop.observe.engines.engine_book import EngineBook
    from sparktop.observe.node_state import NodeState


class Books(Protocol):
    """Where it is taken to."""

    state: NodeState
    engines: EngineBook


class Received(Protocol):
    """One thing that was received of a node."""

    def into(self, books: Books) -> bool:
        """Take it; False where the rest is still to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The connection's state, and why."""

    state: LinkState
    reason: str
    hint: str = ""
    reach: Reach = Reach.UNTESTED
    attempt: int = 0
    next_attempt_in_s: float | None = None

    def into(self, books: Books) -> bool:
        """Take it."""
        in_s, now_s = self.next_attempt_in_s, books.state.clock.monotonic()
        books.state.link(
            self.state,
            self.reason,
            hint=self.hint,
            reach=self.reach,
            attempt=self.attempt,
            next_attempt_s=None if in_s is None else now_s + in_s,
        )
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Contacted:
    """What the newest attempt to connect met."""

    contact: Contact

    def into(self, books: Books) -> bool:
        """Take it."""
        books.state.contact(self.contact)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A connection was opened."""

    fingerprint: str | None
    warnings: tuple[str, ...] = ()

    def into(self, books: Books) -> bool:
        """Take it."""
        books.state.connection(self.fingerprint, self.warnings)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A message of the probe."""

    line: bytes
    """As the probe wrote it; empty for a line that was none."""
    message: Message | None

    @staticmethod
    def of(line: bytes) -> Probed:
        """From the probe's own line."""
        return Probed(line=line, message=decode(line) if line else Garbled(reason="not a message"))

    def into(self, books: Books) -> bool:
        """Take it."""
        if self.message is not None:
            books.state.message(self.message, books.state.clock.monotonic())
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The Docker Engine's answer, or why there is none."""

    containers: Containers
    age_s: float
    """How long ago it was asked."""

    def into(self, books: Books) -> bool:
        """Take it."""
        books.state.containers(self.containers, books.state.clock.monotonic() - self.age_s)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The engines were looked for in what had come."""

    def into(self, books: Books) -> bool:
        """Look for them."""
        books.engines.look()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """An engine's figures; parsed, as the text would be a thousand times as long."""

    key: str
    state: EndpointState
    detail: str = ""
    metrics: EngineMetrics | None = None
    version: str | None = None

    def into(self, books: Books) -> bool:
        """Take it; False where frequent scrapes are useless."""
        return books.engines.answered(self.key, self.state, self.detail, self.metrics, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaried:
    """An engine's answer to a canary's question."""

    key: str
    canary: Canary

    def into(self, books: Books) -> bool:
        """Take it."""
        books.engines.canary(self.key, self.canary)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """Lines of an engine's log, masked."""

    key: str
    lines: tuple[LogLine, ...]

    def into(self, books: Books) -> bool:
        """Take them; False where the rest is still to be read: then take none."""
        return books.engines.logged(self.key, self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Where an engine's log is read, or why it isn't."""

    key: str
    status: str
    command: str = ""
    """What prints it; empty: as before."""

    def into(self, books: Books) -> bool:
        """Take it."""
        if (feed := books.engines.feed(self.key)) is not None:
            feed.status = self.status
            feed.command = self.command or feed.command
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervened:
    """What consoles of this machine have stopped there of late."""

    interventions: tuple[Intervention, ...]

    def into(self, books: Books) -> bool:
        """Take it."""
        books.state.interventions = self.interventions
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a console told of the node as it recorded: a replay has its marks from that, without looking again."""

    events: tuple[Event, ...]

    def into(self, books: Books) -> bool:
        """Nothing is taken: a replay's pictures tell by themselves."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecorded:
    """A hole between two recordings; on no tape (`record.window`)."""

    from_s: float
    until_s: float

    def into(self, books: Books) -> bool:
        """Say so."""
        reason = f"nothing was recorded from {day_time(self.from_s)} to {day_time(self.until_s)}"
        books.state.link(LinkState.UNRECORDED, reason)
        return True


KINDS = (Canaried, Connected, Contacted, Followed, Intervened, Linked, Listed, Logged, Looked, Probed, Scraped,
         Told, Unrecorded)  # fmt: skip
