"""Sparks on loopback.

async with simulated(load("healthy"), clock=SystemClock()) as nodes:
    ...  # connect to nodes[0].host, nodes[0].port as nodes[0].username with nodes[0].client_key
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import asyncssh

from sparktop.clock import Clock, SystemClock
from sparktop.dataclass import dataclass
from sparktop.observe.watch import ForwardingWatch, Watch
from sparktop.sim.loopback import LOOPBACK
from sparktop.sim.node import DEMO_PASSWORD, LiveNode
from sparktop.sim.reaction.play import Play
from sparktop.sim.scenario.script import Scenario
from sparktop.transport.base import Connector, HostKeyQuestion, SecretQuestion
from sparktop.transport.ssh.connector import SshConnector


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """The address of a simulated Spark, and the keys for logging in."""

    name: str
    host: str
    port: int
    username: str
    client_key: asyncssh.SSHKey
    """The only private key it ever accepts; generated for this run, kept in memory."""
    host_key: asyncssh.SSHKey
    """Its public host key, to be pinned."""
    needs_password: bool = False
    """It doesn't accept the key yet."""


class _Typist:
    """Types a simulated Spark's password where the operator of a real one would."""

    async def host_key(self, question: HostKeyQuestion) -> bool:
        return False

    async def secret(self, question: SecretQuestion) -> str | None:
        return DEMO_PASSWORD


@asynccontextmanager
async def simulated(scenario: Scenario, *, clock: Clock, speed: float = 1.0) -> AsyncIterator[list[SimulatedNode]]:
    """The scenario's nodes, serving until the context ends.

    Args:
        scenario: their script.
        clock: where their time comes from.
        speed: seconds of the scenario per second of the clock.
    """
    play = Play(scenario, clock=clock, speed=speed)
    client_key = asyncssh.generate_private_key("ssh-ed25519", comment="sparktop demo")
    live = [LiveNode(play, script, client_key) for script in scenario.nodes]
    nodes = [
        SimulatedNode(
            name=node.script.name,
            host=LOOPBACK,
            port=node.port,
            username=node.script.machine.user,
            client_key=client_key,
            host_key=node.host_key.convert_to_public(),
            needs_password=node.script.machine.needs_password,
        )
        for node in live
    ]
    await asyncio.gather(*(node.start() for node in live))
    try:
        yield nodes
    finally:
        await asyncio.gather(*(node.close() for node in live))


async def simulated_watch(scenario: Scenario, make: Callable[[Sequence[Connector]], Watch]) -> Watch:
    """Start the scenario's Sparks, and a watch on them over real SSH."""
    stack = AsyncExitStack()
    nodes = await stack.enter_async_context(simulated(scenario, clock=SystemClock()))
    return _SimulatedWatch(make([connector_of(node) for node in nodes]), stack)


def connector_of(node: SimulatedNode) -> SshConnector:
    """The connector of a simulated Spark; it types the password of one that doesn't accept the key yet."""
    return SshConnector.direct(
        name=node.name, host=node.host, port=node.port, username=node.username, client_key=node.client_key,
        pinned_host_key=node.host_key, prompter=_Typist() if node.needs_password else None,
    )  # fmt: skip


class _SimulatedWatch(ForwardingWatch):
    """A watch that shuts down its Sparks when it ends."""

    def __init__(self, watch: Watch, sparks: AsyncExitStack) -> None:
        super().__init__(watch)
        self._sparks = sparks

    async def run(self) -> None:
        async with self._sparks:
            await self._watch.run()
