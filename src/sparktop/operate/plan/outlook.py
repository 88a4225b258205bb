"""Whether a start is expected to fail now: for memory that is lost, or for what its last start failed of. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparktop.diagnose.rules.memory.held import RULE as HELD_AFTER_EXIT
from sparktop.diagnose.rules.memory.held import is_flat, lost_memory, surviving_process
from sparktop.engines.memory_target import held_bytes
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase
from sparktop.model.fleet import FleetState, has_rebooted_since
from sparktop.operate.plan.running_start import RunningStart
from sparktop.operate.refused import Refused
from sparktop.text.units import gib

_OF_OTHERS_MEMORY = ("vllm.free-memory-below-utilisation", "torch.oom-other-process")
"""A start failed of what others held then, not of its own share."""
STANDS_S = 8.0
"""Memory that has stood still this long isn't being freed now; that it is lost takes longer to tell."""


def expected_failure(starters: Sequence[RunningStart], picture: FleetState, *, is_changed: bool = False) -> str:
    """Why the start is expected to fail; empty where nothing says so.

    Args:
        is_changed: it starts with a change, so that the last failure says nothing of it.

    Raises:
        Refused: it can't succeed, because memory that it needs is lost until the node reboots.
    """
    return next(_doubts(starters, picture, is_changed=is_changed), "")


def _doubts(starters: Sequence[RunningStart], picture: FleetState, *, is_changed: bool) -> Iterator[str]:
    for starter in starters:
        engine, view = starter.rank.engine, starter.rank.view
        available = view.sample.memory.available_bytes if view.sample is not None else 0
        reachable = available + ((held_bytes(engine, view) or 0) if starter.rank.runs else 0)
        lost = lost_memory(picture, starter.node)
        if lost is not None and reachable < starter.target.target_bytes:
            why = (
                f"{starter.name} needs {gib(starter.target.target_bytes)} on {starter.node}, but at most "
                f"{gib(reachable)} can become available: no process holds the rest, and only a reboot frees it"
            )
            if lost.confidence is Confidence.CONFIRMED:
                node, name = shlex.quote(starter.node), shlex.quote(starter.name)
                less = f"or start it with less: sparktop act relaunch {node} --engine {name}"
                takes_less = any(remedy.action == "relaunch" for remedy in lost.remedies)
                raise Refused(why, (f"sparktop act reboot {node}", *((less,) if takes_less else ())))
            yield why
        survivor = surviving_process(picture, starter.node)
        if survivor is not None and reachable < starter.target.target_bytes:
            yield (
                f"{survivor.title}. {starter.name} needs {gib(starter.target.target_bytes)}, and {gib(reachable)} is "
                "available: kill that process first."
            )
        unaccounted = (view.ledger.unaccounted_bytes or 0) if view.ledger is not None else 0
        missing = starter.target.target_bytes - available
        if lost is None and not starter.rank.runs and 0 < missing <= unaccounted and is_flat(view, STANDS_S):
            yield (
                f"{starter.name} needs {gib(starter.target.target_bytes)} on {starter.node}: {gib(available)} are "
                f"available, {gib(unaccounted)} belong to no process, and nothing is coming back now. The start waits "
                "for them, and may wait in vain."
            )
        if (broken := _only_rebooting_mends(picture, starter.node)) is not None:
            yield f"{broken.title}. Only a reboot of {starter.node} fixes that; a start before it is likely to fail."
        if starter.target.is_short:
            yield starter.target.warnings[0]
        log = engine.log
        has_ended = engine.state is EngineState.EXITED or bool(engine.restarts)
        # What its log said was said of another state of the nodes.
        has_rebooted = any(has_rebooted_since(other.rank.view, engine.exited_wall_s) for other in starters)
        if is_changed or not has_ended or has_rebooted or log is None or log.has_served:
            continue
        is_there_now = reachable >= starter.target.target_bytes  # the memory that its last start lacked
        if log.critical_finding is not None and not (is_there_now and log.critical_finding.rule in _OF_OTHERS_MEMORY):
            yield f"Its last start failed: {log.critical_finding.title}. The same start is likely to fail the same way."


def _only_rebooting_mends(picture: FleetState, node: str) -> Finding | None:
    """The finding that the node's GPU or driver fails every program until a reboot; None without it."""
    return next(
        (
            finding
            for finding in picture.findings
            if finding.phase is Phase.FIRING
            and finding.severity is Severity.CRITICAL
            and finding.needs_reboot
            and node in finding.nodes
            and finding.rule != HELD_AFTER_EXIT
        ),
        None,
    )
