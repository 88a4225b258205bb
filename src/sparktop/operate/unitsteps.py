"""Steps on the systemd service that runs an engine: it is the service that is stopped and started. Pure.

Stopping its container would only have systemd start it again (facts/engines.md section 6.6). A stop by systemctl is
no failure, so the service's Restart= stays out of it.
"""

from __future__ import annotations

import shlex

from sparktop.model.operation import Command, Privilege
from sparktop.model.plan import Remote, Step
from sparktop.operate.part import Part
from sparktop.operate.privilege import program

STOP_LIMIT_S = 300.0
"""Longer than systemd's own TimeoutStopSec (90 s unless told otherwise)."""


def argv(part: Part, verb: str) -> tuple[str, ...]:
    """systemctl's words; a start doesn't wait, a service may wait for memory before it starts."""
    options = ("--no-block",) if verb == "start" else ()
    if not part.origin.is_own:
        return (program("systemctl"), verb, *options, "--", part.origin.unit)
    uid = part.view.facts.user_id if part.view.facts else None
    own = ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", program("systemctl"), "--user")
    return (*own, verb, *options, "--", part.origin.unit)


def typed(part: Part, verb: str) -> str:
    """As it would be typed."""
    manager = "systemctl --user" if part.origin.is_own else "sudo systemctl"
    return f"{manager} {verb} -- {shlex.quote(part.origin.unit)}"


def stop(part: Part, grace_s: float) -> Step:
    """Stop the service and wait until it has."""
    return Step(
        id=f"stop{part.mark}",
        title=f"Stop {part.origin.unit}, which runs {part.name}",
        node=part.node,
        act=Remote(operations=(_command(part, "stop", max(STOP_LIMIT_S, 2 * grace_s)),)),
        limit_s=max(STOP_LIMIT_S, 2 * grace_s) + 60.0,
        verifies="the service is inactive",
        undone_by=typed(part, "start"),
    )


def start(part: Part) -> Step:
    """Start the service."""
    return Step(
        id=f"start{part.mark}",
        title=f"Start {part.origin.unit}, which runs {part.name}",
        node=part.node,
        act=Remote(operations=(_command(part, "start", 60.0),)),
        limit_s=120.0,
        verifies="systemd has taken the order",
        undone_by=typed(part, "stop"),
        undoes=(f"stop{part.mark}",),
    )


def _command(part: Part, verb: str, limit_s: float) -> Command:
    privilege = Privilege.USER if part.origin.is_own else Privilege.ROOT
    return Command(argv=argv(part, verb), privilege=privilege, limit_s=limit_s)
