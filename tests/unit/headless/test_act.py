"""`sparktop act`: what is meant is found or asked about, nothing runs unasked, and what is printed holds no secret."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cutoff_support import OLD, OLD_ID, launch, written
from tests.pictures_support import container
from tests.ui import operating, pictures
from tests.ui.look import clock_of_pictures
from tests.ui.operating import FakeOperating

from sparktop.cli import main
from sparktop.cli.act import _change, _options
from sparktop.errors import TransportError, UsageError
from sparktop.headless.act import ActArguments, act, take_up
from sparktop.headless.invocation import Invocation
from sparktop.model.change import Change
from sparktop.model.engine import Containers, Endpoint, EndpointState
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.model.telemetry import Collector, CollectorState
from sparktop.operate.actions import action
from sparktop.operate.audit.interrupted_runs import interrupted_runs
from sparktop.operate.audit_file import Audit
from sparktop.operate.run.operating import OnChange
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import RunState
from sparktop.recipe.read.shelf import recipe


class Side(FakeOperating):
    """Runs end by themselves, as `how` says."""

    def __init__(self, how: Callable[[operating.FakeExecution], None] | None = None) -> None:
        super().__init__()
        self.how = how or (lambda run: run.end(RunState.DONE, message="done and well"))

    def start(self, plan: Plan, *, secret: Any, changed: OnChange) -> operating.FakeExecution:
        execution = super().start(plan, secret=secret, changed=changed)
        asyncio.get_running_loop().call_later(0.02, self.how, execution)
        return execution


async def nobody(node: str, wrong: int) -> str | None:
    return None


def asked(name: str, **more: Any) -> ActArguments:
    known = action(name)
    assert known is not None
    return ActArguments(action=known, **more)


async def run(
    side: FakeOperating, what: ActArguments, picture: str = "one", state: FleetState | None = None, **output: Any
) -> int:
    clock = clock_of_pictures()
    watch = pictures.FakeWatch(state or pictures.PICTURES[picture](clock))
    call = Invocation(make=lambda _: (watch, side), secret=nobody, clock=clock, timeout_s=0.2, **output)
    code = await act(call, what)
    assert watch.has_ended or call.is_dry or not side.executions
    return code


async def test_a_dry_run_prints_the_plan_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    assert await run(side, asked("safe-restart"), is_dry=True) == 0
    out = capsys.readouterr().out
    for wanted in (
        "Safe restart of vllm-minimax on spark1", "▲ disruptive", "▲ The 3 requests that it holds are lost.",
        "docker stop -t 60 3f1c9a04d2be", "Rollback, offered if a step fails",
    ):  # fmt: skip
        assert wanted in out
    assert side.executions == ()


async def test_a_measurement_is_planned_once_engines_were_asked_and_nvml_answered() -> None:
    """Without their figures it is refused, as where they are off; what stops one that hangs doesn't wait."""
    known = with_endpoint(pictures.PICTURES["one"](clock_of_pictures()), EndpointState.OK)
    planned: list[bool] = []
    watch = pictures.FakeWatch(known)

    class Plans(Side):
        async def plan(self, request: Request) -> Plan | Refusal:
            planned.append(watch.state is known)
            return await super().plan(request)

    def made(publish: Callable[[FleetState], None]) -> Any:
        def answers() -> None:
            watch.state = known
            publish(watch.state)

        asyncio.get_running_loop().call_later(0.05, answers)
        return watch, Plans()

    for before in (with_endpoint(known, EndpointState.NOT_ASKED), with_late_nvml(known)):
        for name in ("prove-endpoint", "safe-restart"):
            watch.state = before
            await act(Invocation(make=made, secret=nobody, timeout_s=60, is_dry=True), asked(name))
    assert planned == [True, False] * 2


def with_late_nvml(state: FleetState) -> FleetState:
    """It compiles its binding, on a slow machine longer than one answer may take."""
    late = Collector(name="nvml", state=CollectorState.STUCK)
    return replace(state, nodes=tuple(replace(one, gpu=None, collectors={"nvml": late}) for one in state.nodes))


def with_endpoint(state: FleetState, answer: EndpointState) -> FleetState:
    """The picture's first engine after its endpoint gave this answer."""
    node, *others = state.nodes
    engine, *rest = node.engines
    endpoint = Endpoint(host="127.0.0.1", port=8000, state=answer)
    return replace(state, nodes=(replace(node, engines=(replace(engine, endpoint=endpoint), *rest)), *others))


async def test_what_a_killed_console_has_left_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = await written(tmp_path, "gone")
    side = Side()
    side.left = interrupted_runs(audit, is_under_way=lambda run: False, now_wall_s=audit[0]["wall_s"])
    state = pictures.decode(clock_of_pictures())
    assert await run(side, asked("drop-caches"), state=state, is_dry=True) == 0
    assert "cut off" not in capsys.readouterr().err, "nothing of it is to be seen"
    view = state.nodes[0]
    box = container(OLD, container_id=OLD_ID, status="exited", restart_policy="no")
    there = replace(view.containers, containers=(*view.containers.containers, box), available=True)
    state = replace(state, nodes=(replace(view, containers=there), *state.nodes[1:]))
    assert await run(side, asked("drop-caches"), state=state, is_dry=True) == 0
    said = capsys.readouterr()
    assert "sparktop: Launch tiny on spark1 (vLLM) was cut off: vllm-old on spark1 is stopped. Its" in said.err
    assert "docker start vllm-old" in said.err
    assert "cut off" not in said.out
    assert side.was_read == []


def with_left_overs(side: Side, audit: list[dict[str, Any]]) -> FleetState:
    """spark1 as a run of this audit has left it, which the operating side tells of."""
    side.left = interrupted_runs(audit, is_under_way=lambda run: False, now_wall_s=audit[0]["wall_s"])
    state = pictures.decode(clock_of_pictures())
    view = state.nodes[0]
    box = container(OLD, container_id=OLD_ID, status="exited", restart_policy="no")
    there = replace(view.containers, containers=(*view.containers.containers, box), available=True)
    return replace(state, nodes=(replace(view, containers=there), *state.nodes[1:]))


async def taken_up(side: Side, verb: str, state: FleetState, target: str = "", **output: Any) -> int:
    clock = clock_of_pictures()
    watch = pictures.FakeWatch(state)
    call = Invocation(make=lambda _: (watch, side), secret=nobody, clock=clock, timeout_s=0.2, **output)
    return await take_up(call, verb, target)


async def test_an_interrupted_run_is_led_back_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    state = with_left_overs(side, await written(tmp_path, "gone"))
    assert await taken_up(side, "restore", state, is_dry=True) == 0
    assert (side.executions, side.was_read) == ((), [])
    assert await taken_up(side, "restore", state, is_agreed=True) == 0
    assert [one.run.plan.title for one in side.executions] == ["Way back of Launch tiny on spark1 (vLLM)"]
    assert side.was_read == ["run-1"]
    assert "vllm-old on spark1 is stopped" in capsys.readouterr().err


async def test_an_interrupted_run_is_planned_again_with_its_options(tmp_path: Path) -> None:
    side = Side()
    made = launch(action="safe-restart")
    made = replace(made, request=replace(made.request, target="vllm-old", options={"grace_s": "7"}))
    state = with_left_overs(side, await written(tmp_path, "gone", made))
    assert await taken_up(side, "resume", state, is_agreed=True) == 0
    (asked_again,) = side.asked
    assert (asked_again.action, asked_again.target, asked_again.options["grace_s"]) == ("safe-restart", "vllm-old", "7")
    assert side.was_read == [], "what it left is there still, and is told again"


async def test_a_relaunch_and_a_launch_are_planned_again_with_all_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2hunter2")
    change = Change(flags={"--enforce-eager": ""}, environment={"HF_TOKEN": "hunter2hunter2"})
    order = Order(recipe=recipe("qwen3.6-35b-a3b-fp8"), values={"port": "8001"}, secrets={"HF_TOKEN": "hunter2hunter2"})
    for name, fields in (("relaunch", {"change": change}), ("launch", {"order": order})):
        side = Side()
        made = launch(action=name)
        made = replace(made, request=replace(made.request, **fields), secrets=("hunter2hunter2",))
        (tmp_path / name).mkdir()
        audit = await written(tmp_path / name, "gone", made)
        assert "hunter2" not in json.dumps(audit)
        await taken_up(side, "resume", with_left_overs(side, audit), is_dry=True)
        (again,) = side.asked
        assert (again.action, again.change, again.order) == (name, made.request.change, made.request.order)


async def test_what_the_audit_holds_only_in_part_is_typed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side = Side()
    state = with_left_overs(side, await written(tmp_path, "gone"))
    assert await taken_up(side, "resume", state, is_agreed=True) == 1
    assert "sparktop act restore spark1" in capsys.readouterr().out
    assert side.asked == []


async def test_a_run_to_take_up_is_there_or_not_known(tmp_path: Path) -> None:
    side = Side()
    state = with_left_overs(side, await written(tmp_path, "gone"))
    with pytest.raises(UsageError, match="no interrupted run of other"):
        await taken_up(side, "restore", state, "other")
    view = replace(state.nodes[0], containers=Containers(available=False, detail="nothing listens"))
    with pytest.raises(TransportError, match="not known"):
        await taken_up(side, "restore", replace(state, nodes=(view, *state.nodes[1:])))


async def test_yes_runs_it_and_tells_of_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    assert await run(side, asked("safe-restart"), is_agreed=True) == 0
    said = capsys.readouterr()
    assert "done and well" in said.out
    assert "8 of 8 steps done" in said.out
    assert "▸ 1/8 Collect evidence" in said.err
    assert "✓ 8/8 Restart policy back to unless-stopped" in said.err
    assert "✓ 8/8" not in said.out


async def test_without_a_terminal_nothing_runs_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    assert await run(side, asked("drop-caches")) == 1
    said = capsys.readouterr()
    assert "there is no terminal to ask on" in said.err
    assert "--yes runs it" in said.err
    assert "Drop caches on spark1" in said.out
    assert side.executions == ()


async def test_a_refusal_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    side.answer = lambda request: Refusal(
        request=request, reason="no docker", remedies=("sudo usermod -aG docker ops",)
    )
    assert await run(side, asked("safe-restart"), is_dry=True) == 1
    assert capsys.readouterr().out == (
        "✖ no docker\n\nNothing was done.\n\nTo make it possible\n  sudo usermod -aG docker ops\n"
    )
    assert await run(side, asked("safe-restart"), is_agreed=True, as_json=True) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["version"] == 1
    assert (data["refusal"]["reason"], data["refusal"]["remedies"]) == ("no docker", ["sudo usermod -aG docker ops"])
    assert data["refusal"]["nodes"] == ["spark1"]


@pytest.mark.parametrize(
    ("state", "code"),
    [(RunState.FAILED, 1), (RunState.REFUSED, 1), (RunState.NO_HELP, 1), (RunState.ROLLED_BACK, 1),
     (RunState.ABORTED, 130)],
)  # fmt: skip
async def test_how_it_ended_is_the_exit_code(state: RunState, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    side = Side(lambda execution: execution.end(state, 3, message="it stands there", hint="look", can_go_back=True))
    assert await run(side, asked("safe-restart"), is_agreed=True) == code
    said = capsys.readouterr()
    assert "it stands there" in said.out
    assert "Way back of Safe restart" in said.err
    assert "not rolled back" in said.err
    assert len(side.executions) == 1


async def test_json_is_one_object_with_plan_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    assert await run(side, asked("safe-restart"), is_agreed=True, as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["version"] == 1
    assert data["plan"]["risk"] == "disruptive"
    assert data["plan"]["steps"][2]["commands"] == ["docker: POST /containers/3f1c9a04d2be/stop?t=60"]
    assert data["run"]["state"] == "done"
    assert [one["state"] for one in data["run"]["steps"]] == ["done"] * 8
    assert await run(side, asked("safe-restart"), is_dry=True, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["run"] is None


@pytest.mark.parametrize("as_json", [False, True])
async def test_secrets_and_controls_are_in_nothing_that_is_printed(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    change = Change(environment={"HF_TOKEN": "hunter2hunter2", "A": "1"}, flags={"--api-key": "hunter2hunter2"})
    side = Side(lambda one: one.end(RunState.FAILED, 1, message="--api-key hunter2hunter2 \x1b]0;x\x07 [/b]"))
    await run(side, asked("relaunch", change=change), is_agreed=True, as_json=as_json)
    side.answer = operating.hostile
    await run(side, asked("safe-restart"), is_dry=True, as_json=as_json)
    said = capsys.readouterr()
    assert "A" in said.out
    assert "hunter2" not in said.out + said.err
    assert "\x1b" not in said.out + said.err
    assert "\u202e" not in said.out + said.err


async def test_an_engine_that_is_gone_is_told_with_its_last_run() -> None:
    audit = Audit()
    plan = {"target": "vllm-gone", "nodes": ["spark1"]}
    for run_id, title, state in (("1", "Safe restart of vllm-gone", "aborted"), ("2", "Way back", "failed")):
        audit.note("intent", {**plan, "run": run_id, "title": title})
        audit.note("step", {"run": run_id, "step": "x"} | ({"evidence": "/e/1.tar.gz"} if run_id == "1" else {}))
        audit.note("end", {"run": run_id, "state": state, "message": "Check failed: it doesn't exist. Done: all."})
    with pytest.raises(UsageError, match="there is no engine 'vllm-gone'") as unknown:
        await run(Side(), asked("safe-restart", target="vllm-gone"))
    hint = str(unknown.value.hint)
    assert ": Way back: failed. Check failed: it doesn't exist. Its log" in hint
    assert hint.endswith("Its log and settings from before: /e/1.tar.gz")


async def test_an_engine_is_found_by_name_or_asked_for() -> None:
    side = Side()
    assert await run(side, asked("stop-engine", target="sglang-qwen"), "loading", is_dry=True) == 1
    assert side.asked[-1].target == "sglang-qwen"
    assert side.asked[-1].nodes == ("spark2",)
    with pytest.raises(UsageError, match="which engine\\? vllm-minimax on spark1") as several:
        await run(side, asked("stop-engine"), "loading", is_dry=True)
    assert several.value.hint == "name one: --engine vllm-minimax"
    with pytest.raises(UsageError, match="there is no engine 'sglang-qwem'") as unknown:
        await run(side, asked("stop-engine", target="sglang-qwem"), "loading", is_dry=True)
    assert unknown.value.hint == "did you mean sglang-qwen?"
    with pytest.raises(UsageError, match="there is no engine on spark1 and spark2"):
        await run(side, asked("stop-engine"), "idle", is_dry=True)


@pytest.mark.parametrize(
    "gap",
    [{"has_looked_for_engines": False}, {"containers": Containers(available=False, detail="nothing listens")}],
    ids=["not-looked", "no-docker"],
)
async def test_an_engine_that_is_not_shown_yet_is_not_said_to_be_missing(gap: dict[str, Any]) -> None:
    state = pictures.PICTURES["idle"](clock_of_pictures())
    state = replace(state, nodes=(replace(state.nodes[0], **gap), *state.nodes[1:]))
    with pytest.raises(TransportError, match="not known") as unknown:
        await run(Side(), asked("stop-engine", target="vllm"), state=state, is_agreed=True)
    assert unknown.value.exit_code == 3


async def test_what_is_for_one_node_is_not_done_to_two() -> None:
    side = Side()
    with pytest.raises(UsageError, match="reboot is for one node, not 2"):
        await run(side, asked("reboot"), "idle", is_dry=True)
    assert await run(side, asked("drop-caches"), "idle", is_dry=True) == 0
    assert side.asked[-1].nodes == ("spark1", "spark2")


async def test_a_node_that_is_not_there_is_three() -> None:
    with pytest.raises(TransportError, match="spark1: TCP answers") as gone:
        await run(Side(), asked("drop-caches"), "lost", is_agreed=True)
    assert gone.value.exit_code == 3


async def test_a_guard_is_switched_off_whatever_it_is_over() -> None:
    side = Side()
    await run(side, asked("guard", options={"off": "yes"}), "idle", is_dry=True)
    assert (side.asked[-1].nodes, side.asked[-1].target) == (("spark1", "spark2"), "")


async def test_evidence_of_one_node_is_collected_while_the_other_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    state = pictures.idle(clock_of_pictures())
    first, second = state.nodes
    gone = replace(second, link=replace(second.link, state=LinkState.LOST, reason="no route to it"))
    state = replace(state, nodes=(first, gone))
    side = Side()
    await run(side, asked("collect-evidence"), state=state, is_dry=True)
    assert side.asked[-1].nodes == (first.name, gone.name)
    assert f"{gone.name}: no route to it" in capsys.readouterr().err
    with pytest.raises(TransportError, match="no route to it"):
        await run(side, asked("drop-caches"), state=state, is_dry=True)


async def test_a_finding_brings_its_change_and_has_to_be_there() -> None:
    clock = clock_of_pictures()
    state = pictures.deadlock(clock)
    (first, *rest) = state.findings
    change = Change(flags={"--enforce-eager": ""})
    first = replace(first, remedies=(first.remedies[0], replace(first.remedies[1], change=change)))
    state = replace(state, findings=(first, *rest))
    side = Side()
    what = asked("relaunch", rule="gpu.spin-deadlock", target="vllm-minimax")
    with pytest.raises(UsageError, match="which engine"):
        await run(side, what, state=state, is_dry=True)
    alone = replace(state, nodes=state.nodes[:1])
    assert await run(side, what, state=alone, is_dry=True) == 0
    assert side.asked[-1].change.flags == {"--enforce-eager": ""}
    assert side.asked[-1].finding is first
    with pytest.raises(UsageError, match="is not found") as unknown:
        await run(side, replace(what, rule="gpu.spin-deadlok"), state=alone, is_dry=True)
    assert unknown.value.hint == "did you mean gpu.spin-deadlock?"
    with pytest.raises(UsageError, match="drop-caches is no remedy of"):
        await run(side, asked("drop-caches", rule="gpu.spin-deadlock"), state=alone, is_dry=True)


@pytest.mark.parametrize(
    ("answer", "make", "runs"),
    [
        ("yes", operating.restart, True),
        ("", operating.restart, False),
        ("y", operating.restart, True),
        ("yoghurt", operating.restart, False),
        ("spark1", operating.reboot, True),
        ("yes", operating.reboot, False),
    ],
)
async def test_with_a_terminal_it_is_asked_and_no_is_the_default(
    answer: str,
    make: Callable[[Request], Plan],
    runs: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(os.dup(theirs), "r") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            os.write(ours, f"{answer}\n".encode())
            side = Side()
            side.answer = make
            code = await run(side, asked("safe-restart"), has_terminal=True)
    finally:
        os.close(ours)
        os.close(theirs)
    assert code == (0 if runs else 1)
    assert len(side.executions) == runs
    said = capsys.readouterr()
    assert "(yes/no) [no]" in said.err or "Type spark1 to confirm" in said.err
    assert ("nothing was run" in said.err) is not runs


async def test_an_interrupt_aborts_and_a_second_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(execution: operating.FakeExecution) -> None:
        execution.at(2, "stopping")
        os.kill(os.getpid(), signal.SIGINT)
        asyncio.get_running_loop().call_later(0.05, end, execution)

    def end(execution: operating.FakeExecution) -> None:
        assert execution.aborted == 1
        execution.end(RunState.ABORTED, 3, message="aborted after Stop")

    assert await run(Side(interrupt), asked("safe-restart"), is_agreed=True) == 130
    said = capsys.readouterr()
    assert "aborting: the current step is completed or reverted first" in said.err
    assert "aborted after Stop" in said.out


def test_a_second_interrupt_leaves_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(execution: operating.FakeExecution) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run(Side(interrupt), asked("safe-restart"), is_agreed=True))
    assert "completes or reverts the current step by itself" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ("", "sparktop act safe-restart spark1"),
        ('hosts = ["a1", "b2"]', "sparktop act safe-restart a1   # your configuration names a1, b2"),
        ("[host.c3]\nprotected = true", "sparktop act safe-restart c3   # your configuration names c3"),
    ],
)
def test_without_a_host_the_configured_ones_are_named(
    settings: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(settings)
    assert main(["act", "safe-restart", "--config", str(tmp_path / "config.toml")]) == 2
    assert capsys.readouterr().err.splitlines() == ["sparktop: on which Spark?", f"  {hint}"]


def test_the_one_configured_host_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text('hosts = ["no-such-spark.invalid"]')
    words = ["act", "safe-restart", "--dry-run", "--config", str(tmp_path / "config.toml"), "--timeout", "1"]
    assert main(words) == 3
    assert "no-such-spark.invalid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["act"], "which action?"),
        (["act", "safe-restrat", "local"], "did you mean safe-restart?"),
        (["act", "safe-restart"], "on which Spark?"),
        (["act", "restore"], "on which Spark?"),
        (["act", "restor", "local"], "did you mean restore?"),
        (["act", "resume", "local", "--set", "grace_s=5"], "takes the run as it was planned"),
        (["act", "safe-restart", "local", "--dry-run", "--yes"], "together"),
        (["act", "safe-restart", "local", "--set", "grace=5"], "did you mean grace_s?"),
        (["act", "safe-restart", "local", "--set", "smoke=perhaps"], "yes, no"),
        (["act", "safe-restart", "local", "--set", "smoke"], "NAME=VALUE"),
        (["act", "safe-restart", "local", "--flag=--a=1"], "changes nothing of a launch"),
        (["act", "relaunch", "local", "--env", "HF_TOKEN=abcdef"], "--env HF_TOKEN"),
        (["act", "relaunch", "local", "--flag=--api-key=abcdef"], "looks like a secret"),
        (["act", "guard", "local", "--yes"], "--set stay_minutes=60"),
        (["act", "guard", "local", "--set", "stay_minutes=0.0"], "--set stay_minutes=60"),
        (["act", "relaunch", "local", "--env", "NOT_SET_ANYWHERE"], "is not set here"),
        (["act", "relaunch", "local", "--flag=enforce"], "not set here"),
    ],
)
def test_a_mistake_is_two(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out = capsys.readouterr()
    assert said in out.err
    assert out.out == ""


def test_the_actions_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["act", "--list"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("drop-caches ")
    assert "--set grace_s=" in out
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["resume", "restore"]


def test_what_a_relaunch_changes_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    monkeypatch.setenv("HF_TOKEN", "abc")
    known = action("relaunch")
    assert known is not None
    given = Namespace(
        flag=["--gpu-memory-utilization=0.7", "--enforce-eager"], unset_flag=["--a"], env=["HF_TOKEN", "A="],
        unset_env=["B"], option=["ShmSize=17179869184", "IpcMode=host"], image="x:1",
    )  # fmt: skip
    assert _change(given, known) == Change(
        flags={"--gpu-memory-utilization": "0.7", "--enforce-eager": "", "--a": None},
        environment={"HF_TOKEN": "abc", "A": "", "B": None},
        options={"ShmSize": 17179869184, "IpcMode": "host"},
        image="x:1",
    )
    restart = action("safe-restart")
    assert restart is not None
    assert _options(["grace_s=5"], restart) == {"grace_s": "5"}
