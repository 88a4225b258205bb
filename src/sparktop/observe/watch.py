"""The interfaces of the observing side for a front end; implemented by Monitor, and by stand-ins in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from sparktop.model.fleet import FleetState, Forward
from sparktop.observe.log_ring import LineRing
from sparktop.transport.base import Transport

Publish = Callable[[FleetState], None]
"""Called on the event loop with each new picture, at most about five times a second per node."""
OnFault = Callable[[str, BaseException], object]
"""Called with a place in a node's data and what is wrong there; the console names it among its notices."""


class LogFeed(Protocol):
    """One engine's log, followed live and across reconnections."""

    @property
    def title(self) -> str:
        """ "vllm-qwen36 @ spark1"."""

    @property
    def status(self) -> str:
        """ "docker logs", "/tmp/sparkrun_serve.log", or why there are no lines and the next step."""

    @property
    def ring(self) -> LineRing: ...

    @property
    def brief(self) -> LineRing | None:
        """The ring without the lines that the screen shows otherwise; None where nothing is left out."""

    @property
    def folded(self) -> Mapping[str, int]:
        """How many lines `brief` leaves out, by what they are."""

    @property
    def previous(self) -> LogFeed | None:
        """The log of the container that had this engine's name before; None where none was seen in this session."""


class Connections(Protocol):
    """Notified when connections open and close: code that changes a Spark runs its own process over them."""

    def opened(self, node: str, transport: Transport, fault: OnFault) -> None:
        """A connection to the node is open, and its checks are done; `fault` tells what is wrong with its data."""

    def closed(self, node: str) -> None:
        """The connection is closed, or about to be."""


class Watch(Protocol):
    """A running observation of some nodes."""

    @property
    def state(self) -> FleetState:
        """The newest picture."""

    @property
    def interval_s(self) -> float: ...

    async def run(self) -> None:
        """Observe until cancelled, then clean up."""

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        """The feed of an engine's log; None when that engine isn't known (any more)."""

    def kernel_lines(self, node: str) -> LineRing:
        """The node's kernel log, line by line."""

    def set_interval(self, seconds: float) -> None:
        """Set the sample interval of all probes; they may sample faster when memory is low."""

    def retry_now(self, node: str) -> None:
        """End a back-off early; also the way to retry after a refusal."""

    async def forward(self, node: str, engine: str, port: int = 0) -> Forward:
        """Open a local port to an engine, which ends with this session; 0: any that is free, the engine's own first.

        Raises:
            UsageError: the engine has no endpoint, or the port is taken.
        """

    async def end_forward(self, node: str, engine: str) -> None:
        """Close it."""

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        """Send one JSON object to the node's probe, uninterpreted.

        False when there is no live probe; True means sent, not received.
        """


class ForwardingWatch:
    """A Watch that forwards everything to another one; subclasses do something around its run."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def state(self) -> FleetState:
        return self._watch.state

    @property
    def interval_s(self) -> float:
        return self._watch.interval_s

    async def run(self) -> None:
        await self._watch.run()

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        return self._watch.log(node, engine_key)

    def kernel_lines(self, node: str) -> LineRing:
        return self._watch.kernel_lines(node)

    def set_interval(self, seconds: float) -> None:
        self._watch.set_interval(seconds)

    def retry_now(self, node: str) -> None:
        self._watch.retry_now(node)

    async def forward(self, node: str, engine: str, port: int = 0) -> Forward:
        return await self._watch.forward(node, engine, port)

    async def end_forward(self, node: str, engine: str) -> None:
        await self._watch.end_forward(node, engine)

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        return self._watch.tell(node, words)
