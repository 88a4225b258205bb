"""What is offered after a start that failed."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from tests.recipe_support import order, recipe
from tests.table import over

from sparktop.cli import act
from sparktop.cli.commands import BY_NAME
from sparktop.diagnose.logs.rule import shipped
from sparktop.model.change import Change
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.request import Request, Risk
from sparktop.operate.actions import ACTIONS
from sparktop.operate.acts.remote import Remote
from sparktop.operate.relaunch.next_try import next_try
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import Cause, StepState

STEP = Step(id="ready", title="Wait until vllm answers", node="spark1", act=Remote(operations=()))
SMALLER = Change(by_engine={"vllm": Change(flags={"--gpu-memory-utilization": "-0.05"})})
RELAUNCHED = [
    (rule.id, remedy, kind)
    for rule in shipped()
    for remedy in rule.remedies
    if remedy.change is not None
    for kind in EngineKind
    if not (change := remedy.change.for_engine(kind.value)).is_empty
    and not any("{" in name for name in (*change.flags, *change.environment))  # filled in from the log's line
]


def failed(
    request: Request, *remedies: Remedy, kind: EngineKind = EngineKind.VLLM, state: RunState | None = None
) -> Run:
    finding = Finding(rule="memory.kv", severity=Severity.CRITICAL, title="No room for the KV cache", remedies=remedies)
    plan = Plan(request=request, title="", risk=Risk.SAFE, steps=(STEP,))
    step_run = StepRun(step=STEP, state=StepState.FAILED, cause=Cause(finding=finding, engine=kind))
    return Run(id="1", plan=plan, state=state or RunState.ROLLED_BACK, steps=(step_run,))


def launch_of(values: dict[str, str] | None = None, **more: object) -> Request:
    return Request(action="launch", nodes=("spark1",), order=order(values, **more))


@over("rule, remedy, kind", RELAUNCHED)
def test_relaunch_line_makes_the_remedys_change(rule: str, remedy: Remedy, kind: EngineKind) -> None:
    request = Request(action="safe-restart", nodes=("spark1",), target="vllm qwen")
    attempt = next_try(failed(request, remedy, kind=kind))
    assert attempt is not None
    assert remedy.change is not None
    words = shlex.split(attempt.command)
    assert words[:4] == ["sparktop", "act", "relaunch", "spark1"]
    options = BY_NAME["act"].arguments().parse_args(words[2:])
    assert options.engine == "vllm qwen"
    relaunch = next(action for action in ACTIONS if action.name == "relaunch")
    assert act._change(options, relaunch) == remedy.change.for_engine(kind.value)


def test_relaunch_that_failed_keeps_its_own_changes_and_shows_no_secret() -> None:
    tried = Change(flags={"--max-model-len": "4096"}, environment={"HF_TOKEN": "hf_abcdefghijklmnop", "A": "b"})
    request = Request(action="relaunch", nodes=("spark1", "spark2"), target="vllm", change=tried)
    attempt = next_try(failed(request, Remedy(title="Less", action="relaunch", change=SMALLER)))
    assert attempt is not None
    assert attempt.command == (
        "sparktop act relaunch spark1 spark2 --engine vllm --flag=--max-model-len=4096 "
        "--flag=--gpu-memory-utilization=-0.05 --env HF_TOKEN --env A=b"
    )


@over(
    "value, expected",
    [("-0.05", "0.75"), ("auto", "0.75"), ("0.5", "0.5")],
)
def test_launch_line_sets_the_parameter(value: str, expected: str) -> None:
    change = Change(flags={"--gpu-memory-utilization": value})
    request = launch_of({"gpu_memory_utilization": "0.80", "port": "8001"})
    attempt = next_try(failed(request, Remedy(title="Less", action="relaunch", change=change)))
    assert attempt is not None
    options = BY_NAME["launch"].arguments().parse_args(shlex.split(attempt.command)[2:])
    assert options.hosts == ["spark1"]
    assert options.set == [f"gpu_memory_utilization={expected}", "port=8001"]


def test_switch_is_set_and_what_was_stopped_stays_stopped() -> None:
    request = Request(action="launch", nodes=("spark1",), order=order())
    assert request.order is not None
    request = replace(request, order=replace(request.order, stops=(("spark1", "old"),)))
    attempt = next_try(failed(request, Remedy(title="", change=Change(flags={"--enforce-eager": ""}))))
    assert attempt is not None
    assert attempt.command == f"sparktop launch {recipe().path} spark1 --set enforce_eager=true --stop old@spark1"


@pytest.mark.parametrize(
    "change",
    [
        Change(environment={"A": "b"}),
        Change(options={"IpcMode": "host"}),
        Change(flags={"--enforce-eager": None}),
        Change(flags={"--a-flag-of-no-recipe": "1"}),
    ],
    ids=str,
)
def test_what_only_the_recipe_can_say_has_no_line_and_its_steps_are_left(change: Change) -> None:
    by_hand = Remedy(title="Edit the recipe", steps=("vi recipe.yaml",), change=change)
    attempt = next_try(failed(launch_of(), by_hand))
    assert attempt is not None
    assert not attempt.command
    assert attempt.remedy is by_hand


def test_remedy_that_a_command_applies_comes_before_one_by_hand() -> None:
    by_hand = Remedy(title="Read on", steps=("docker logs vllm",))
    smaller = Remedy(title="Less", change=SMALLER)
    attempt = next_try(failed(launch_of({"gpu_memory_utilization": "0.8"}), by_hand, smaller))
    assert attempt is not None
    assert attempt.remedy is smaller


def test_nothing_is_offered_after_a_run_that_is_done_or_whose_cause_is_not_known() -> None:
    remedy = Remedy(title="Less", change=SMALLER)
    assert next_try(failed(launch_of(), remedy, state=RunState.DONE)) is None
    assert next_try(failed(launch_of())) is None
    run = failed(launch_of(), remedy)
    assert next_try(Run(id="1", plan=run.plan, state=RunState.FAILED, steps=(StepRun(step=STEP),))) is None
