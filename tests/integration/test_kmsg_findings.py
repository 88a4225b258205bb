"""An Xid written to the real kernel log becomes a finding, through the real probe, over both real transports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.integration.desk import watching
from tests.integration.sshd import Sshd, sshd
from tests.pictures_support import rules_on
from tests.support import PATIENCE_S, unavailable

from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.observe.monitor import Monitor
from sparktop.transport.base import Connector
from sparktop.transport.local import LocalConnector

pytestmark = pytest.mark.integration
__all__ = ["sshd"]

T = TypeVar("T")


async def until(monitor: Monitor, look: Callable[[FleetState], T | None]) -> T:
    """What a look at the newest picture gives, once it gives something."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if (seen := look(monitor.state)) is not None:
                return seen
            await asyncio.sleep(0.05)


def finding_of(rule: str, text: str) -> Callable[[FleetState], Finding | None]:
    """Looks for a rule's finding that has this text in its evidence."""

    def look(fleet: FleetState) -> Finding | None:
        of_rule = (finding for finding in fleet.findings if finding.rule == rule)
        return next((one for one in of_rule if any(text in each.text for each in one.evidence)), None)

    return look


def write(text: str) -> None:
    """One line into the kernel log, as the driver writes it."""
    try:
        Path("/dev/kmsg").write_text(f"<3>{text}\n")
    except OSError as error:
        unavailable(f"the kernel log can't be written here: {error}")


@pytest.mark.parametrize("way", ["local", "ssh"])
async def test_an_xid_in_the_kernel_log_is_named(way: str, sshd: Sshd) -> None:
    connector: Connector = LocalConnector() if way == "local" else sshd.connector("spark1")
    async with watching(connector, rules=rules_on("kernel")) as monitor:
        await until(monitor, lambda fleet: fleet.nodes[0].kernel_source or None)
        marks = f"pid={os.getpid()}, name={way}-{os.getpid()}"  # another name is another incident
        write(f"NVRM: Xid (PCI:000f:01:00): 32, {marks}, Channel ID 00000008 intr0 00040000")
        write(f"NVRM: Xid (PCI:000f:01:00): 43, {marks}, channel 0x00000002")
        fault = await until(monitor, finding_of("kernel.xid-32", marks))
        assert fault.severity is Severity.CRITICAL
        assert fault.nodes == (connector.name,)
        assert fault.remedies[0].action == "safe-restart"
        reset = await until(monitor, finding_of("kernel.xid-43", ""))
        assert reset.caused_by is not None
        assert reset.caused_by.startswith("kernel.xid-")
