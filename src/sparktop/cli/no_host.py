"""What is offered where no host is named, on the command line or in the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from sparktop.config import Config, config_home, shown
from sparktop.errors import UsageError
from sparktop.transport.targets import parse_target

MAX_OFFERED = 6
"""Of one kind."""


def no_host(command: str, config: Config, config_file: Path | None) -> UsageError:
    """The error for a command that needs a host, with the command lines for the hosts that can be found.

    Args:
        command: what a host is typed after: "sparktop", "sparktop status".
    """
    rows = [*_offers(command, Path(config.ssh_config).expanduser() if config.ssh_config else None)]
    width = max(len(typed) for typed, _ in rows)
    file = shown(config_file or config_home() / "config.toml")
    return UsageError(
        f"no host is given, and `hosts` is not set in {file}",
        hint="\n  ".join(["type one of these:", *(f"  {typed:{width}}  {meaning}" for typed, meaning in rows)]),
    )


def _offers(command: str, ssh_config: Path | None) -> Iterator[tuple[str, str]]:
    """(command line, what it watches)"""
    from sparktop.transport.mdns import announced_hosts
    from sparktop.transport.ssh.aliases import aliases

    for hosts, meaning in (
        (aliases(ssh_config), "ssh alias"),
        (asyncio.run(announced_hosts()), "announced on this network (mDNS)"),
    ):
        usable = sorted(filter(_is_usable, hosts), key=lambda host: "spark" not in host.lower())
        yield from ((f"{command} {host}", meaning) for host in usable[:MAX_OFFERED])
        if len(usable) > MAX_OFFERED:
            yield f"{command} ...", f"{meaning}, {len(usable) - MAX_OFFERED} more"
    yield f"{command} local", "this machine, if it is a Spark"
    yield "sparktop demo", "simulated Sparks, no hardware needed"


def _is_usable(host: str) -> bool:
    try:
        parse_target(host)
    except UsageError:
        return False
    return True
