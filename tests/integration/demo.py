"""The demo as the console composes it, for tests: simulated Sparks over real SSH, faster than time goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support import PATIENCE_S

from sparktop.cli.composition import session
from sparktop.cli.session import Session
from sparktop.clock import SystemClock
from sparktop.config import Config
from sparktop.model.change import Change
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.sim.scenario.scenario import load
from sparktop.sim.server import connector_of, simulated


@dataclass(frozen=True, slots=True)
class Demo:
    session: Session

    @property
    def picture(self) -> FleetState:
        return self.session.state

    async def until(self, condition: Callable[[FleetState], object]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while not condition(self.picture):
            assert loop.time() < deadline, "it was not seen in time"
            await asyncio.sleep(0.05)

    async def plan(self, action: str, nodes: tuple[str, ...], target: str = "", *, change: Change | None = None,
                   secret: str = "", **options: str) -> Plan:  # fmt: skip
        request = Request(action=action, nodes=nodes, target=target, options=options, change=change or Change(),
                          secret=secret)  # fmt: skip
        plan = await self.session.late.built().plan(request)
        assert isinstance(plan, Plan), plan
        return plan

    async def launch(self, order: Order, *nodes: str) -> Plan | Refusal:
        """What is planned for a recipe."""
        return await self.session.late.built().plan(Request(action="launch", nodes=nodes, order=order))

    async def go(self, plan: Plan, changed: Callable[[Run], None] = lambda run: None) -> Run:
        """However it ends."""

        async def secret(node: str, wrong: int) -> str | None:
            raise AssertionError(f"{node} asks for a password")

        async with asyncio.timeout(PATIENCE_S):
            return await self.session.late.built().start(plan, secret=secret, changed=changed).finished()

    async def run(self, plan: Plan) -> Run:
        run = await self.go(plan)
        assert run.state is RunState.DONE, (run.message, [(one.step.id, one.state, one.detail) for one in run.steps])
        return run

    async def do(self, action: str, nodes: tuple[str, ...], target: str = "", **options: str) -> Run:
        return await self.run(await self.plan(action, nodes, target, **options))


@asynccontextmanager
async def demo(name: str, *, speed: float, has_engines: bool = True) -> AsyncIterator[Demo]:
    """The desk of a scenario, when all of it is seen."""
    async with simulated(load(name), clock=SystemClock(), speed=speed) as nodes:
        connectors = [connector_of(node) for node in nodes]
        made = session(connectors, lambda picture: None, Config(), is_demo=True)
        running = asyncio.create_task(made.run())
        try:
            shown = Demo(made)
            await shown.until(
                lambda picture: (
                    len(picture.nodes) == len(connectors)
                    and all(_is_seen(node, has_engines=has_engines) for node in picture.nodes)
                )
            )
            yield shown
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _is_seen(node: NodeView, *, has_engines: bool) -> bool:
    has_read = (
        node.link.state is LinkState.LIVE and node.gpu and node.network and node.facts and node.containers.available
    )
    if not has_engines:
        return bool(has_read)
    return bool(has_read and node.engines and all(engine.container for engine in node.engines))
