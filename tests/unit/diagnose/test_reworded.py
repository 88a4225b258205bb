"""Prose is only shown: with every sentence of findings, kernel events, plans, runs and prospects reworded, the same is
asked to be done, offered and coloured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

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
from tests.table import over
from tests.ui import launches, pictures
from tests.ui.launches import GPT, MINIMAX, QWEN
from tests.ui.look import clock_of_pictures
from tests.unit.operate.machine.machine_support import FREE, planned, stat

from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.kernel import findings as kernel_findings
from sparktop.diagnose.kernel import line, xid
from sparktop.documents.plan import plan_lines
from sparktop.documents.run import body_lines, summary
from sparktop.documents.run import head_lines as run_head_lines
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Growth
from sparktop.model.prospect import Gate, Lever
from sparktop.model.request import Request
from sparktop.model.state import State
from sparktop.model.telemetry import GpuProcess
from sparktop.operate.actions import action
from sparktop.operate.acts.remote import Remote
from sparktop.operate.machine import end_process
from sparktop.operate.run.run_text import by_hand
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState
from sparktop.operate.targets import remedy_choices
from sparktop.text.lines import Line
from sparktop.ui.dialogs.dialog import Choice
from sparktop.ui.notify import is_own_doing
from sparktop.ui.screens.fix import Offer, choices, first_applicable, introduction
from sparktop.ui.screens.launch_choices import LaunchState, failed_gate_lines, head_lines, rows
from sparktop.ui.screens.launch_draft import Draft, first_draft

T = TypeVar("T")
PROSE = frozenset(
    (
        *("title", "detail", "text", "meaning", "remedy", "source", "explanation", "distinction", "settles"),
        *("steps", "cost", "brief", "references", "scope"),
        *("verifies", "reverse", "message", "hint", "brief_hint", "remains", "effect", "outcome", "warnings"),
        *(
            "reason",
            "remedies",
            "why",
            "advice",
            "sentence",
            "share_source",
            "unknowns",
            "label",
            "note",
            "words",
            "risks",
        ),
    )
)
"""Names of the fields that hold sentences; what is left holds ids, figures, names and commands."""
OTHER = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;!?-–─✖▲",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM··········○",
)
"""No word and no sign as it was, and each as long as it was: what is drawn has its shape."""


def reworded(value: T) -> T:
    """The value with every sentence in it in other words: another one for each."""
    return _reworded(value)  # type: ignore[no-any-return]


def _reworded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_reworded, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{field.name: _field(field.name, getattr(value, field.name)) for field in fields(value)})


def _field(name: str, value: Any) -> Any:
    if name in PROSE:
        if isinstance(value, tuple):
            return tuple(text.translate(OTHER) if isinstance(text, str) else _reworded(text) for text in value)
        return value.translate(OTHER) if isinstance(value, str) else value
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


@over("text", KERNEL_LINES, ids=lambda text: text[:50])
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


@over("fleet", FLEETS.values(), ids=FLEETS.keys())
def test_a_finding_in_other_words_offers_the_same_targets(fleet: FleetState) -> None:
    findings = claims(live_rules(), fleet)
    assert any(remedy.action for finding in findings for remedy in finding.remedies)
    for finding in findings:
        in_other_words = reworded(finding)
        assert in_other_words.title == finding.title.translate(OTHER) != finding.title
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


# --- what is drawn


def tones(lines: Sequence[Line]) -> list[list[tuple[int, str]]]:
    """The shape and the colours of lines, without their words."""
    return [[(len(text), tone) for text, tone in line.runs] for line in lines]


@over("fleet", FLEETS.values(), ids=FLEETS.keys())
def test_findings_in_other_words_have_the_same_choices_and_colours(fleet: FleetState) -> None:
    findings = claims(live_rules(), fleet)
    for finding, in_other_words in zip(findings, reworded(tuple(findings)), strict=True):
        for read_only in (False, True):
            offered, others = (
                choices(one, tuple(map(Offer, one.remedies)), is_read_only=read_only)
                for one in (finding, in_other_words)
            )
            assert [drawn(choice) for choice in others] == [drawn(choice) for choice in offered]
            assert first_applicable(others) == first_applicable(offered)
        assert tones(introduction(in_other_words)) == tones(introduction(finding))


def drawn(choice: Choice) -> tuple[Any, ...]:
    remedy = choice.value.remedy if isinstance(choice.value, Offer) else None
    asked_for = (remedy.action, remedy.pid, remedy.change) if remedy is not None else None
    return (asked_for, tones([choice.label, *choice.notes]))


def drafts() -> list[Draft]:
    fleet = pictures.decode(clock_of_pictures())
    return [
        first_draft(QWEN, fleet),
        first_draft(GPT, fleet),
        first_draft(GPT, fleet).set("gpu_memory_utilization", "0.9"),
        first_draft(MINIMAX, fleet),
    ]


@over("number", range(4))
def test_a_prospect_in_other_words_has_the_same_rows_and_colours(number: int) -> None:
    fleet, draft = pictures.decode(clock_of_pictures()), drafts()[number]
    answer = launches.answer(draft.request(fleet, {}))
    assert answer.prospect is not None
    port = Gate(
        name="port",
        node="spark1",
        state=State.FAILED,
        detail="port 8000 is held",
        steps=("--stop old, or --set port=8001",),
        levers=(Lever(stops=("old",)), Lever(values={"port": "8001"})),
    )
    answer = replace(answer, prospect=replace(answer.prospect, gates=(*answer.prospect.gates, port)))
    states = [
        LaunchState(draft=draft, fleet=fleet, answer=each, is_planning=False, secrets={})
        for each in (answer, reworded(answer))
    ]
    seen, others = ([(row.kind, row.draft) for row in rows(state, 500)] for state in states)
    assert others == seen
    assert any(kind == "lever" for kind, _ in seen)
    assert [tones(row.lines) for row in rows(states[1], 500)] == [tones(row.lines) for row in rows(states[0], 500)]
    for draw in (head_lines, failed_gate_lines):
        first, second = (draw(state, 500, *([40] if draw is head_lines else [])) for state in states)
        assert tones(second) == tones(first)


STOPPED = Run(
    id="r",
    state=RunState.FAILED,
    plan=launches.launch(first_draft(QWEN, pictures.decode(clock_of_pictures())).request(FleetState(), {})),
    message="Wait until it answers failed: it stalled. Done: Pull.",
    brief="Wait until it answers failed: it stalled.",
    hint="Look at it. · You can roll back: Start it.",
    brief_hint="Look at it.",
    can_go_back=True,
)


def test_a_run_in_other_words_is_its_own_doing_and_undone_by_hand_alike() -> None:
    look, start = Remote(operations=()), Remote(operations=(), reverse="docker start vllm")
    steps = (
        Step(id="look", title="See that it is as it was", node="spark1", act=look),
        Step(id="stop", title="Stop vllm", node="spark1", act=start, stops="vllm"),
    )
    run = replace(
        STOPPED, steps=tuple(StepRun(step=step, state=StepState.DONE, detail="3 s", brief="") for step in steps)
    )
    in_other_words = reworded(run)
    died = Finding(rule="cluster.rank-died", severity=Severity.CRITICAL, title="It died", subject="vllm")
    assert is_own_doing(died, run)
    assert is_own_doing(reworded(died), in_other_words)
    assert by_hand(run) == ("docker start vllm",)
    assert by_hand(in_other_words) == tuple(text.translate(OTHER) for text in by_hand(run))


@over("state", [state for state in RunState if state is not RunState.INTERRUPTED])
def test_a_run_in_other_words_is_drawn_alike(state: RunState) -> None:
    steps = tuple(
        StepRun(step=step, state=StepState.DONE, detail="a/b.tar.gz; 2 things missing: x", brief="b.tar.gz; 2 missing")
        for step in STOPPED.plan.steps
    )
    run = replace(STOPPED, state=state, steps=steps)
    for limit in (0, 4, 9):
        assert tones(run_head_lines(reworded(run), 500, 0.0, limit=limit)) == tones(
            run_head_lines(run, 500, 0.0, limit=limit)
        )
    assert tones(body_lines(reworded(run), 500, 0.0)[0]) == tones(body_lines(run, 500, 0.0)[0])
    assert tones([summary(reworded(run), 200)]) == tones([summary(run, 200)])
    assert tones(plan_lines(reworded(run.plan), 500)) == tones(plan_lines(run.plan, 500))
