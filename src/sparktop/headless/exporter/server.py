"""Serves the metrics over HTTP until interrupted."""

from __future__ import annotations

import asyncio
import ipaddress
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from sparktop.clock import SystemClock
from sparktop.errors import UsageError
from sparktop.headless.exporter.metrics import FleetCollector
from sparktop.headless.status import MakeWatch, say_links
from sparktop.headless.terminal import say

SILENT_S = 10.0
"""After which a client that sends nothing is disconnected."""


async def exporter(make: MakeWatch, address: str, port: int) -> int:
    """Serve the metrics of these nodes, and say on standard error when a connection changes.

    Raises:
        UsageError: it can't listen there.
    """
    fresh = asyncio.Event()
    watch = make(lambda _: fresh.set())
    registry = CollectorRegistry()
    registry.register(FleetCollector(lambda: watch.state, SystemClock()))
    ProcessCollector(registry=registry)
    server = _listen(address, port, registry)
    shown = _shown(address, server.server_port)
    print(f"http://{shown}/metrics", flush=True)
    if not ipaddress.ip_address(address).is_loopback:
        say(f"warning: who reaches {shown} can read names, figures and findings: no password, no encryption")
    watching = asyncio.create_task(watch.run())
    try:
        await say_links(watch, fresh, watching)
        return 0
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await asyncio.to_thread(server.shutdown)
        server.server_close()


def _listen(address: str, port: int, registry: CollectorRegistry) -> WSGIServer:
    try:
        server, _ = start_http_server(port, address, registry)
    except OSError as error:
        hint = "choose another: --listen 127.0.0.1:0 takes any port that is free"
        raise UsageError(f"can't listen on {_shown(address, port)}: {error.strerror or error}", hint=hint) from error
    server.RequestHandlerClass.timeout = SILENT_S  # type: ignore[attr-defined]  # it is a class, the library's
    return server


def _shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
