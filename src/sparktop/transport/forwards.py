"""Local ports to engines, each over its node's connection and gone with this process; through reconnections.

Only 127.0.0.1 listens. Each client gets a forwarded socket of its own, to where the engine's endpoint is then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from sparktop.errors import SparktopError, UsageError
from sparktop.model.engine import Endpoint
from sparktop.model.fleet import Forward
from sparktop.transport.base import Transport

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16


class Forwards:
    """The local ports of one session."""

    def __init__(self, endpoint: Callable[[str, str], Endpoint | None], changed: Callable[[], None]) -> None:
        """`endpoint` finds an engine's by (node, engine); `changed` is called when a port comes or goes."""
        self._endpoint = endpoint
        self._changed = changed
        self._transports: dict[str, Transport] = {}
        self._servers: dict[Forward, asyncio.Server] = {}
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def shown(self) -> tuple[Forward, ...]:
        """The ports that are open."""
        return tuple(self._servers)

    def opened(self, node: str, transport: Transport) -> None:
        """A connection to the node is open."""
        self._transports[node] = transport

    def closed(self, node: str) -> None:
        """It is closed; its local ports wait for the next one."""
        self._transports.pop(node, None)

    async def open(self, node: str, engine: str, port: int = 0) -> Forward:
        """Open a local port to the engine; `port` 0 takes the engine's own number, or any that is free.

        Raises:
            UsageError: the engine has no endpoint, or the port is taken.
        """
        endpoint = self._endpoint(node, engine)
        if endpoint is None:
            raise UsageError(f"{engine} on {node} has no endpoint yet", hint="wait until it is ready")
        await self.close(node, engine)

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(node, engine, reader, writer))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

        try:
            server = await asyncio.start_server(accepted, HOST, port or endpoint.port)
        except OSError as error:
            if port:
                why = error.strerror or type(error).__name__
                raise UsageError(f"port {port} can't be opened here: {why}", hint="leave --port out") from None
            server = await asyncio.start_server(accepted, HOST, 0)
        local_port = int(server.sockets[0].getsockname()[1])
        forward = Forward(node=node, engine=engine, port=local_port)
        self._servers[forward] = server
        self._changed()
        return forward

    async def close(self, node: str, engine: str) -> None:
        """Close the engine's local port; nothing where there is none."""
        for forward in [one for one in self._servers if (one.node, one.engine) == (node, engine)]:
            self._servers.pop(forward).close()
            self._changed()

    async def aclose(self) -> None:
        """Close all, and what runs over them."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, node: str, engine: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection; closed at once where the node isn't connected."""
        transport, endpoint = self._transports.get(node), self._endpoint(node, engine)
        try:
            if transport is None or endpoint is None:
                return
            async with transport.tcp_socket(endpoint.host, endpoint.port) as path:
                far_reader, far_writer = await asyncio.open_unix_connection(str(path))
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(_pump(reader, far_writer))
                        group.create_task(_pump(far_reader, writer))
                finally:
                    far_writer.close()
        except (OSError, SparktopError, ExceptionGroup):
            pass  # the client sees its connection end
        finally:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, as it comes, and its end."""
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
