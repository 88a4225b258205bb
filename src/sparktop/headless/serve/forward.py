"""`sparktop forward`: a local port to an engine, as long as the command runs."""

from __future__ import annotations

import asyncio

from sparktop.engines.ranks import is_alive
from sparktop.errors import UsageError
from sparktop.headless.act import check_engines_known, check_links, nearest
from sparktop.headless.status import MakeWatch, say_links, settled
from sparktop.headless.terminal import say
from sparktop.model.fleet import FleetState


async def forward(make: MakeWatch, engine: str, port: int, *, timeout_s: float) -> int:
    """Print the local address of the engine (empty: the only one), and pass on until interrupted."""
    fresh = asyncio.Event()
    watch = make(lambda _: fresh.set())
    watching = asyncio.create_task(watch.run())
    try:
        node = watch.state.nodes[0].name
        say(f"connecting to {node} …")
        await settled(watch, fresh, timeout_s, settle_s=timeout_s, held_s=0.0)
        check_links(watch.state)
        name = _engine(engine, watch.state)
        made = await watch.forward(node, name, port)
        print(f"http://127.0.0.1:{made.port}", flush=True)
        say(f"leads to {name} on {node}, over SSH; Ctrl-C ends it")
        await say_links(watch, fresh, watching)
        return 0
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _engine(name: str, fleet: FleetState) -> str:
    """The name of the engine that is meant.

    Raises:
        UsageError: none or several match.
    """
    view = fleet.nodes[0]
    serving = [one.name for one in view.engines if is_alive(one) and one.endpoint is not None]
    if name in serving or (not name and len(serving) == 1):
        return name or serving[0]
    check_engines_known(fleet)
    if not name and serving:
        raise UsageError(f"which engine of {view.name}?", hint=f"there is {', '.join(serving)}")
    what = f"no engine {name!r} serves" if name else "no engine serves"
    raise UsageError(f"{what} on {view.name}", hint=nearest(name, serving) or None)
