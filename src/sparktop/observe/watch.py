"""What a front end may ask of the observing side; the Monitor is the real one, a test's stand-in the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from sparktop.model.fleet import FleetState
from sparktop.observe.lines import LineRing
from sparktop.transport.base import Transport

Publish = Callable[[FleetState], None]
"""Called on the event loop with each new picture, at most some five times a second a node."""


class LogFeed(Protocol):
    """One engine's log, followed live and across reconnections."""

    @property
    def title(self) -> str:
        """ "vllm-qwen36 @ spark1"."""

    @property
    def status(self) -> str:
        """ "docker logs", "/tmp/sparkrun_serve.log", or why there are no lines and what would give them."""

    @property
    def ring(self) -> LineRing: ...


class Connections(Protocol):
    """Who wants a share of each connection while it stands: what changes a Spark has its own process on it."""

    def opened(self, node: str, transport: Transport) -> None:
        """A connection to the node stands; the host is as well as it will be."""

    def closed(self, node: str) -> None:
        """It is gone, or about to be closed."""


class Watch(Protocol):
    """A running observation of one or two nodes."""

    @property
    def state(self) -> FleetState:
        """The newest picture."""

    @property
    def interval_s(self) -> float: ...

    async def run(self) -> None:
        """Observe until cancelled, then leave nothing behind."""

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        """The feed of an engine's log; None when that engine is not known (any more)."""

    def kernel_lines(self, node: str) -> LineRing:
        """The node's kernel log, unfolded."""

    def set_interval(self, seconds: float) -> None:
        """Ask all probes for another rate; they may sample faster when memory is low."""

    def retry_now(self, node: str) -> None:
        """Cut a back-off short; also the way to try again after a refusal."""

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        """Pass words on to the node's probe, one JSON object, without a look at what they mean.

        False when there is no live probe; True says that they were sent, not that they arrived.
        """
