"""A connector whose first connection begins at once: logging in takes its time while the rules are imported here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sparktop.model.fleet import Contact, Reach
from sparktop.transport.base import PATIENCE_S, Connector, Transport

if TYPE_CHECKING:
    from sparktop.model.survey import PublicKey


class EarlyConnector:
    """Connects as another connector does; its first connection has begun when it is asked for."""

    def __init__(self, connector: Connector) -> None:
        """To be made on the event loop."""
        self._connector = connector
        self._first: asyncio.Task[Transport] | None = asyncio.create_task(connector.connect(patience_s=PATIENCE_S))

    @property
    def name(self) -> str:
        return self._connector.name

    @property
    def contact(self) -> Contact:
        return self._connector.contact

    async def connect(self, *, patience_s: float) -> Transport:
        """See Connector; the first connection is the one that was begun."""
        first, self._first = self._first, None
        return await (first if first is not None else self._connector.connect(patience_s=patience_s))

    async def reach(self) -> tuple[Reach, str]:
        """See Connector."""
        return await self._connector.reach()

    async def own_keys(self) -> tuple[PublicKey, ...]:
        """See Connector."""
        return await self._connector.own_keys()

    async def log_in_with(self, key: PublicKey) -> None:
        """See Connector."""
        await self._connector.log_in_with(key)

    async def abandon(self) -> None:
        """End what was begun and never asked for."""
        first, self._first = self._first, None
        if first is None:
            return
        first.cancel()
        (outcome,) = await asyncio.gather(first, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.close()
