"""Simulated Sparks on loopback: an SSH server for each node of a scenario, in this process.

async with simulated(load("healthy"), clock=SystemClock()) as nodes:
    ...  # connect to nodes[0].host, nodes[0].port as nodes[0].username with nodes[0].client_key
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncssh

from sparktop.clock import Clock
from sparktop.sim.line import LOOPBACK
from sparktop.sim.node import LiveNode
from sparktop.sim.play import Play
from sparktop.sim.script import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """Where a simulated Spark is, and what lets one in."""

    name: str
    host: str
    port: int
    username: str
    client_key: asyncssh.SSHKey
    """The one private key it accepts; made for this run, only in memory."""
    host_key: asyncssh.SSHKey
    """Its public host key: pin it."""


@asynccontextmanager
async def simulated(scenario: Scenario, *, clock: Clock, speed: float = 1.0) -> AsyncIterator[list[SimulatedNode]]:
    """The scenario's nodes, serving until the context ends.

    Args:
        scenario: what they do.
        clock: where their time comes from.
        speed: seconds of the scenario in one of the clock's.
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
        )
        for node in live
    ]
    await asyncio.gather(*(node.start() for node in live))
    try:
        yield nodes
    finally:
        await asyncio.gather(*(node.close() for node in live))
