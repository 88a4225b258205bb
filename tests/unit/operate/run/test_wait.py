"""Waits: judged by what came since they began, bounded, and patient with a node that can't be heard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.operate_support import Stage
from tests.pictures_support import BOOT_S, NOW_S, WALL_S, facts, gib, link, node, picture, process
from tests.table import over

from sparktop.model.engine import Containers
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import LinkState, NodeView
from sparktop.model.telemetry import Collector, CollectorState, GpuProcess
from sparktop.operate.acts.arrivals import AwaitBack, AwaitGone, AwaitResolved
from sparktop.operate.step.wait import Abort, Ending, Since, WaitResult, WaitStatus, WaitVerdict, wait_for

MET, WAITING, FAILED = WaitVerdict.MET, WaitVerdict.WAITING, WaitVerdict.FAILED
BOX = "ab" * 32


def since(*points: tuple[float, int], **more: Any) -> Since:
    return Since(began_monotonic_s=NOW_S - 60, began_wall_s=WALL_S - 60, available=points, **more)


# --- the loop


async def waited(stage: Stage, judge: Any, **more: Any) -> tuple[WaitResult, list[WaitStatus]]:
    seen: list[WaitStatus] = []
    abort = more.pop("abort", Abort())
    ended = await wait_for(
        judge,
        node="spark1",
        context=stage.means,
        abort=abort,
        on_status=lambda judgement, why: seen.append(judgement),
        **{"limit_s": 60.0, **more},
    )
    return ended, seen


async def test_a_judge_is_asked_four_times_a_second_with_what_came_since(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    sinces: list[Since] = []

    def judge(state: Any, since: Since) -> WaitStatus:
        sinces.append(since)
        return WaitStatus(verdict=MET if len(sinces) == 9 else WAITING)

    ended, seen = await waited(stage, judge, before=node("spark1"))
    assert (ended.ending, len(seen)) == (Ending.MET, 9)
    assert stage.clock.monotonic() == 1002.0
    assert [len(one.available) for one in sinces] == list(range(1, 10))
    assert sinces[-1].began_monotonic_s == 1000.0
    assert sinces[-1].before is not None
    steps = [
        later[0] - earlier[0] for earlier, later in zip(sinces[-1].available, sinces[-1].available[1:], strict=False)
    ]
    assert steps == [0.25] * 8


async def test_samples_from_before_it_began_are_no_news(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.views["spark1"] = {"sample_at_s": 999.0}
    lengths: list[int] = []

    def judge(state: Any, since: Since) -> WaitStatus:
        lengths.append(len(since.available))
        if len(lengths) == 3:
            stage.views.clear()
        return WaitStatus(verdict=MET if len(lengths) == 5 else WAITING)

    await waited(stage, judge)
    assert lengths == [0, 0, 0, 1, 2]


async def test_a_boot_begins_anew(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    lengths: list[int] = []

    def judge(state: Any, since: Since) -> WaitStatus:
        lengths.append(len(since.available))
        if len(lengths) == 3:
            sample = node("spark1").sample
            assert sample is not None
            stage.views["spark1"] = {"sample": replace(sample, boot_s=4.0)}
        return WaitStatus(verdict=MET if len(lengths) == 4 else WAITING)

    await waited(stage, judge)
    assert lengths == [1, 2, 3, 1]


async def test_what_must_stand_is_met_only_without_a_break(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def judge(state: Any, since: Since) -> WaitStatus:
        passed_s = state.monotonic_s - 1000.0
        return WaitStatus(verdict=WAITING if 3.0 <= passed_s <= 4.0 else MET)

    ended, _ = await waited(stage, judge, stands_s=5.0)
    assert ended.ending is Ending.MET
    assert stage.clock.monotonic() == 1009.25


@pytest.mark.parametrize("verdict", [WAITING, FAILED])
async def test_it_ends_when_time_is_up_or_it_has_failed(tmp_path: Path, verdict: WaitVerdict) -> None:
    stage = Stage(tmp_path)
    ended, _ = await waited(stage, lambda state, since: WaitStatus(verdict=verdict, detail="still loading"))
    if verdict is FAILED:
        assert (ended.ending, ended.detail, stage.clock.monotonic()) == (Ending.FAILED, "still loading", 1000.0)
    else:
        assert (ended.ending, ended.detail) == (Ending.LATE, "not within 60 s: still loading")
        assert stage.clock.monotonic() == 1060.0


async def test_what_to_do_is_told_when_time_is_up(tmp_path: Path) -> None:
    late = WaitStatus(verdict=WAITING, detail="loading 12/37", late="raise it")
    ended, seen = await waited(Stage(tmp_path), lambda state, since: late)
    assert ended.detail == "not within 60 s: loading 12/37; raise it"
    assert seen[-1].detail == "loading 12/37"


async def test_abort_is_heard_at_once(tmp_path: Path) -> None:
    stage, abort = Stage(tmp_path), Abort()
    stage.at_pause = abort.want
    ended, seen = await waited(stage, lambda state, since: WaitStatus(verdict=WAITING, detail="x"), abort=abort)
    assert (ended.ending, len(seen)) == (Ending.ABORTED, 2)


async def test_silence_stops_the_limit_and_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=500.0)
    stage.at_pause = lambda: stage.views.clear() if stage.clock.monotonic() > 1400 else stage.silence()
    ended, seen = await waited(stage, lambda state, since: WaitStatus(verdict=WAITING, detail="x"))
    assert ended.ending is Ending.LATE
    assert 1455 < stage.clock.monotonic() < 1465
    assert "25 s (no packets)" in seen[100].detail


async def test_silence_has_its_limit_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=100.0)
    stage.silence()
    ended, _ = await waited(stage, lambda state, since: WaitStatus(verdict=MET))
    assert ended.ending is Ending.SILENT
    assert 1100 < stage.clock.monotonic() < 1102


async def test_a_judge_that_wants_to_see_the_absence_does(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.silence()
    ended, _ = await waited(
        stage,
        lambda state, since: WaitStatus(verdict=WAITING, detail=str(state.node("spark1").link.state)),
        hears_silence=True,
    )
    assert (ended.ending, ended.detail) == (Ending.LATE, "not within 60 s: lost")


# --- processes gone


def machine(*processes: Any, users: tuple[int, ...] = (), age_s: float = 0.0, **more: Any) -> NodeView:
    view = node(
        "spark1",
        processes=processes or (process(1, "systemd"),),
        gpu_processes=tuple(GpuProcess(pid=pid, name="x", used_bytes=gib(80)) for pid in users),
        **more,
    )
    assert view.processes is not None
    assert view.gpu is not None
    at_s = BOOT_S - age_s
    return replace(view, processes=replace(view.processes, boot_s=at_s), gpu=replace(view.gpu, boot_s=at_s))


GONE = AwaitGone(pids=(10, 11), container_id=BOX)
BEGAN = (BOOT_S - 10, gib(20))


@over(
    "view, verdict, said",
    [
        (machine(), MET, "all 2 processes are gone"),
        (machine(process(10, "vllm")), WAITING, "still there: vllm (pid 10)"),
        (
            machine(process(11, "VLLM::EngineCor", state="D", wait_channel="nvidia_close")),
            WAITING,
            "VLLM::EngineCor (pid 11, can't be interrupted in nvidia_close)",
        ),
        (machine(process(10, "vllm", state="Z")), MET, "gone"),
        (machine(process(10, "other", started_boot_s=BOOT_S - 2)), MET, "gone"),  # the pid is another's now
        (machine(process(12, "worker", container_id=BOX), users=(12,)), WAITING, "worker (pid 12)"),
        (machine(process(12, "worker", container_id=BOX)), MET, "gone"),  # holds no GPU memory
        (machine(process(12, "worker", container_id="cd" * 32), users=(12,)), MET, "gone"),
        (machine(users=(11,)), WAITING, "pid 11, which the GPU still lists"),
        (machine(age_s=30.0), WAITING, "waiting for a new process list"),
        (replace(machine(), processes=None), WAITING, "waiting for a new process list"),
        (replace(machine(), gpu=None), WAITING, "waiting for a new list of GPU processes"),
        (
            replace(machine(), gpu=None, collectors={"nvml": Collector(name="nvml", state=CollectorState.STUCK)}),
            MET,
            "gone",
        ),
    ],
)
def test_processes_are_gone_when_new_tables_say_so(view: NodeView, verdict: WaitVerdict, said: str) -> None:
    judged = GONE.judge(picture(view), "spark1", since(BEGAN))
    assert judged.verdict is verdict
    assert said in judged.detail


def test_nothing_is_gone_before_anything_is_seen() -> None:
    assert GONE.judge(picture(machine()), "spark1", since()).verdict is WAITING
    assert GONE.judge(picture(machine()), "spark9", since(BEGAN)).verdict is WAITING
    half = GONE.judge(picture(machine(process(10, "vllm"))), "spark1", since(BEGAN))
    assert half.ratio == 0.5


# --- a finding resolved


def finding(**more: Any) -> Finding:
    fields: dict[str, Any] = {"nodes": ("spark1",), "subject": "vllm", **more}
    return Finding(rule="gpu.spin", severity=Severity.CRITICAL, title="It spins", **fields)


@over(
    "findings, verdict",
    [
        ((), MET),
        ((finding(),), WAITING),
        ((finding(phase=Phase.RESOLVED),), MET),
        ((finding(subject="vllm-2"),), WAITING),
        ((finding(subject="known"),), MET),
        ((finding(subject="vllm-2", nodes=("spark2",)),), MET),
        ((replace(finding(), rule="other"),), MET),
    ],
)
def test_a_finding_is_resolved_when_neither_it_nor_its_like_is_there(
    findings: tuple[Finding, ...], verdict: WaitVerdict
) -> None:
    act = AwaitResolved(findings=(finding().key,))
    known = {finding().key, finding(subject="known").key}
    assert act.judge(picture(findings=findings), known).verdict is verdict


def test_of_several_findings_those_that_remain_are_named() -> None:
    first, second = finding(), replace(finding(), rule="other", title="B", nodes=("spark2",))
    act = AwaitResolved(findings=(first.key, second.key))
    nodes = (node("spark1"), node("spark2"))
    judged = act.judge(picture(*nodes, findings=(second,)), {first.key, second.key})
    assert (judged.verdict, judged.detail) == (WAITING, "1 of 2 still found: B")
    clearing = picture(*nodes, findings=(replace(second, is_clearing=True),))
    judged = act.judge(clearing, {first.key, second.key})
    assert judged.verdict is WAITING
    judged = act.judge(picture(*nodes), {first.key, second.key})
    assert judged.verdict is MET
    unseen = act.judge(picture(node("spark1"), node("spark2", link=link(LinkState.LOST))), ())
    assert unseen.detail.startswith("spark2")


def test_what_was_serious_and_is_history_now_is_resolved() -> None:
    act = AwaitResolved(findings=(finding().key,))
    grave = replace(finding(), severity=Severity.CRITICAL)
    history = replace(finding(), severity=Severity.INFO, title="Earlier, 5 min ago: A")
    before = picture(node("spark1"), findings=(grave,))
    assert act.judge(picture(node("spark1"), findings=(history,)), {grave.key}, before).verdict is MET
    note_before = picture(node("spark1"), findings=(history,))
    judged = act.judge(picture(node("spark1"), findings=(history,)), {grave.key}, note_before)
    assert judged.verdict is WAITING, "a note that was to go"


def test_a_finding_of_a_node_that_is_not_seen_is_not_resolved() -> None:
    act = AwaitResolved(findings=(finding().key,))
    judged = act.judge(picture(node("spark1", link=link(LinkState.LOST))), ())
    assert (judged.verdict, judged.detail[:6]) == (WAITING, "spark1")


def test_a_finding_that_nobody_can_be_asked_about_is_not_resolved() -> None:
    """A Docker Engine or a driver that hangs takes what was found by it along."""
    act = AwaitResolved(findings=(finding().key,))
    well = replace(node("spark1"), containers=Containers(available=True))
    assert act.judge(picture(well), (), picture(well)).verdict is MET
    hangs = replace(well, containers=Containers(available=False, detail="no answer"))
    judged = act.judge(picture(hangs), (), picture(well))
    assert (judged.verdict, judged.detail[:16]) == (WAITING, "Docker on spark1")
    assert act.judge(picture(hangs), (), picture(hangs)).verdict is MET  # as when it was found
    stuck = replace(well, collectors={"nvml": Collector(name="nvml", state=CollectorState.STUCK)})
    seen = replace(well, collectors={"nvml": Collector(name="nvml", state=CollectorState.OK)})
    judged = act.judge(picture(stuck), (), picture(seen))
    assert judged.verdict is WAITING
    assert "driver on spark1" in judged.detail


# --- a node back


@over(
    "view, verdict, said",
    [
        (node("spark1"), WAITING, "still up, 60 s after the order"),
        (
            node("spark1", link=link(LinkState.LOST, reason="host gone")),
            WAITING,
            "not back 60 s after the order; last try: host gone",
        ),
        (node("spark1", facts=facts("spark1", boot_id="new")), MET, "back 60 s after the order"),
        (node("spark1", facts=None), WAITING, "still up"),
        (node("spark1", facts=facts("spark1", boot_id="new"), link=link(LinkState.STALE)), WAITING, "not back"),
    ],
)
def test_a_node_is_back_with_another_boot_id(view: NodeView, verdict: WaitVerdict, said: str) -> None:
    judged = AwaitBack(boot_id="boot-of-spark1").judge(picture(view), "spark1", since())
    assert judged.verdict is verdict
    assert said in judged.detail
