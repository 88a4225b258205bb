"""Simulated Sparks for a process of its own: python -m tests.sim_hosts SCENARIO FOLDER COUNT [SPEED].

Writes an ssh configuration with all that it names into FOLDER, prints its path once they serve, and ends with its
standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sparktop.clock import SystemClock
from sparktop.sim.scenario.scenario import load
from sparktop.sim.server import SimulatedNode, simulated


def entry(name: str, node: SimulatedNode, folder: Path) -> str:
    key, known = folder / f"{name}.key", folder / f"{name}.known"
    key.write_bytes(node.client_key.export_private_key("openssh"))
    key.chmod(0o600)
    known.write_text(f"[{node.host}]:{node.port} {node.host_key.export_public_key('openssh').decode()}")
    return (
        f"Host {name}\n  HostName {node.host}\n  Port {node.port}\n  User {node.username}\n  IdentityFile {key}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n"
    )


async def serve(scenario: str, folder: Path, count: int, speed: float) -> None:
    async with contextlib.AsyncExitStack() as stack:
        nodes: list[SimulatedNode] = []
        while len(nodes) < count:
            nodes += await stack.enter_async_context(simulated(load(scenario), clock=SystemClock(), speed=speed))
        entries = [entry(f"spark{number + 1}", node, folder) for number, node in enumerate(nodes[:count])]
        (folder / "ssh_config").write_text("\n".join(entries))
        print(folder / "ssh_config", flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def simulated_hosts(scenario: str, folder: Path, count: int = 2, speed: float = 1.0) -> Iterator[Path]:
    """The ssh configuration of hosts spark1, spark2 and so on, which serve while the block runs."""
    command = [sys.executable, "-m", "tests.sim_hosts", scenario, str(folder), str(count), str(speed)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=Path(__file__).parents[1]) as process:
        assert process.stdout is not None
        try:
            config = process.stdout.readline().strip()
            assert config, "it ended"
            yield Path(config)
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
