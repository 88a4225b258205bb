"""Prose is only shown: with every sentence of findings and kernel events reworded, the same is asked to be done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import pytest
from tests.kernel_support import XID, log
from tests.pictures_support import (
    BOOT_S,
    claims,
    engine,
    gib,
    idle_node,
    node,
    picture,
    process,
    rules_on,
)
from tests.unit.operate.machine.machine_support import FREE, planned, stat

from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.kernel import findings as kernel_findings
from sparktop.diagnose.kernel import line, xid
from sparktop.model.event import KernelEvent
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Growth
from sparktop.model.plan import Plan, Request
from sparktop.model.telemetry import GpuProcess
from sparktop.operate.actions import action
from sparktop.operate.machine import end_process
from sparktop.operate.targets import remedy_choices

T = TypeVar("T")
PROSE = frozenset(
    (
        *("title", "detail", "text", "meaning", "remedy", "source", "explanation", "distinction", "settles"),
        *("steps", "cost", "brief", "references", "scope"),
    )
)
"""Names of the fields that hold sentences; what is left holds ids, figures, names and commands."""


def reworded(value: T) -> T:
    """The value with every sentence in it written backwards: another one for each, and no word as it was."""
    return _reworded(value)  # type: ignore[no-any-return]


def _reworded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_reworded, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{field.name: _field(field.name, getattr(value, field.name)) for field in fields(value)})


def _field(name: str, value: Any) -> Any:
    if name in PROSE:
        return tuple(text[::-1] for text in value) if isinstance(value, tuple) else value[::-1] if value else value
    return _reworded(value)


KERNEL_LINES = [
    *(example for pattern in line.patterns() for example in pattern.examples),
    *(f"{XID}{code}, pid=91, name=python3, Ch 00000008" for code in xid.catalogue()),
]


def asked(findings: Iterable[Finding]) -> list[tuple[Any, ...]]:
    """What findings are, and what their remedies do; those without an action are only read."""
    return [
        (
            finding.key,
            finding.severity,
            finding.caused_by,
            [(remedy.action, remedy.pid, remedy.change) for remedy in finding.remedies if remedy.action],
        )
        for finding in findings
    ]


@pytest.mark.parametrize("text", KERNEL_LINES, ids=lambda text: text[:50])
def test_a_kernel_event_in_other_words_asks_for_the_same(text: str) -> None:
    for ago_s in (5.0, 3000.0):
        events = log(text, text, "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up", ago_s=ago_s)
        in_other_words = reworded(events)
        assert asked(kernel_findings.findings(in_other_words, source="x")) == asked(
            kernel_findings.findings(events, source="x")
        )
        rules = rules_on("kernel", "desktop", "restart")
        assert asked(claims(rules, seen(in_other_words))) == asked(claims(rules, seen(events)))


def seen(events: tuple[KernelEvent, ...]) -> FleetState:
    return picture(node(kernel_events=events), idle_node("spark2"))


def wedged() -> FleetState:
    worker = process(90100, "VLLM::EngineCor", 3.0, user_id=0)
    other = GpuProcess(pid=2500, name="whisper", used_bytes=gib(9.0))
    used = GpuProcess(pid=90100, name="VLLM::EngineCor", used_bytes=gib(61.0))
    table = (worker, process(2500, "whisper", 1.0), process(2411, "dockerd"))
    return picture(idle_node(available_gib=45.0, processes=table, gpu_processes=(used, other)))


FALL = [(-900.0, 45.4), (-3.0, 45.4), (-1.0, 43.7), (0.0, 37.8)]
FLEETS = {
    "orphan": wedged(),
    "fall of an engine": picture(node(available_gib=FALL, engines=(engine(),))),
    "fall of a process": picture(
        idle_node(
            available_gib=[(-900, 110), (-9, 110), (0, 18)],
            growing=(Growth(label="train.py", pid=90100, held_bytes=gib(80.0), bytes_per_s=9e9),),
            gpu_processes=(GpuProcess(pid=90100, name="train.py", used_bytes=gib(80.0)),),
        )
    ),
    "low": picture(node(available_gib=3.0)),
    "idle power": picture(node(power_w=14.0, engines=(engine(stuck_s=60.0),)), node("spark2")),
}


@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS.keys())
def test_a_finding_in_other_words_offers_the_same_targets(fleet: FleetState) -> None:
    findings = claims(live_rules(), fleet)
    assert any(remedy.action for finding in findings for remedy in finding.remedies)
    for finding in findings:
        in_other_words = reworded(finding)
        assert in_other_words.title == finding.title[::-1]
        assert requests(in_other_words, fleet) == requests(finding, fleet)


def requests(finding: Finding, fleet: FleetState) -> list[Request]:
    """All that the finding's remedies can ask for, without the finding itself."""
    return [
        replace(choice.request, finding=None)
        for remedy in finding.remedies
        if remedy.action and (chosen := action(remedy.action)) is not None
        for choice in remedy_choices(chosen, remedy, finding, fleet)
    ]


def test_a_finding_in_other_words_ends_the_same_process() -> None:
    fleet = wedged()
    (finding,) = (each for each in claims(rules_on("memory"), fleet) if each.rule == "memory.held-after-exit")
    files = {"/proc/90100/stat": stat(90100, "VLLM::EngineCor", started_s=BOOT_S - 7200)}
    plans = []
    for told in (finding, reworded(finding)):
        request = Request(action="end-holder", nodes=("spark1",), finding=told)
        plan = planned(end_process, request, fleet, files=files, privileges=FREE)
        assert isinstance(plan, Plan)
        plans.append([(step.id, step.node, step.act) for step in plan.steps])
    assert plans[0] == plans[1]
