"""`sparktop serve`: the console in a browser, by textual-serve, for whoever has the address with its token.

The console is a process of its own for each page. The server listens on loopback; a page of another site can neither
read from it (Host: DNS rebinding) nor open its WebSocket (Origin, and the token in the path).
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import shlex
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sparktop.errors import UsageError
from sparktop.headless.terminal import cannot_listen, say, shown_address

if TYPE_CHECKING:
    from aiohttp import web

LEAVING_S = 3.0
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def need_extra() -> None:
    """Refuse without the optional extra.

    Raises:
        UsageError: with the line that installs it.
    """
    if find_spec("textual_serve") is None or find_spec("aiohttp") is None:
        hint = "pip install 'sparktop[serve]'   # with pipx: pipx inject sparktop textual-serve"
        raise UsageError("sparktop serve needs textual-serve, which isn't installed", hint=hint)


async def serve(argv: Sequence[str], title: str, address: str, port: int) -> int:
    """Serve the console that `argv` starts until interrupted; print its address, token included.

    Raises:
        UsageError: it can't listen there.
    """
    from aiohttp import web

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    token = secrets.token_urlsafe(32)
    hosts: set[str] = set()
    runner = web.AppRunner(_application(argv, title, token, hosts), access_log=None, shutdown_timeout=LEAVING_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, address, port)
        try:
            await site.start()
        except OSError as error:
            raise cannot_listen(address, port, error) from error
        port = runner.addresses[0][1]
        is_loopback = ipaddress.ip_address(address).is_loopback
        shown = shown_address(address, port)
        hosts |= {shown, *((f"localhost:{port}", f"127.0.0.1:{port}") if is_loopback else ())}
        print(f"http://{shown}/{token}/", flush=True)
        if not is_loopback:
            say("warning: the token and all that is typed cross the network unencrypted; "
                f"safer: ssh -L {port}:127.0.0.1:{port} HOST, and the default --listen")  # fmt: skip
        await stopping.wait()
        return 0
    finally:
        await runner.cleanup()


def _application(argv: Sequence[str], title: str, token: str, hosts: set[str]) -> web.Application:
    """textual-serve's page and WebSocket below the token, and its scripts and fonts, which are no secret."""
    import aiohttp_jinja2
    import jinja2
    from aiohttp import web
    from textual_serve.server import Server

    console = Server(shlex.join(argv), title=title)  # it runs the command by a shell

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if request.host not in hosts or origin not in (None, f"http://{request.host}"):
            raise web.HTTPForbidden(text="This address isn't served to other sites.\n")
        given = request.match_info.get("token")
        if given is not None and not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
            raise web.HTTPForbidden(text="The token is wrong: open the address that `sparktop serve` printed.\n")
        return await handler(request)

    async def headers(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS | {"Content-Security-Policy": _POLICY.format(host=request.host)})

    async def page(request: web.Request) -> web.Response:
        context: dict[str, Any] = {
            "font_size": 16,
            "app_websocket_url": f"ws://{request.host}/{token}/ws",
            "config": {"static": {"url": "/static/"}},
            "application": {"name": title},
        }
        return aiohttp_jinja2.render_template("app_index.html", request, context)

    async def websocket(request: web.Request) -> web.WebSocketResponse:
        with suppress(ConnectionError):  # the page is closed
            return await console.handle_websocket(request)
        return web.WebSocketResponse()

    application = web.Application(middlewares=[guard])
    aiohttp_jinja2.setup(application, loader=jinja2.FileSystemLoader(console.templates_path))
    application.on_response_prepare.append(headers)
    application.add_routes(
        [
            web.get("/{token}/", page),
            web.get("/{token}/ws", websocket),
            web.static("/static", console.statics_path),
        ]
    )
    return application
