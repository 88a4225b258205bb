"""Ending one process that holds GPU memory: the right one, never what the machine needs, and what is said before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.pictures_support import BOOT_S, container, engine, gib, idle_node, node, picture, process
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.operate.machine.machine_support import FREE, ids, operations, planned, refused, stat, step, warned

from sparktop.diagnose.rules.memory.held import orphan
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import GpuProcess
from sparktop.operate.acts.arrivals import AwaitGone
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.machine import end_process
from sparktop.operate.plan.process import parse_stat
from sparktop.operate.step.plan import Plan, Refusal

STARTED_S = BOOT_S - 7200


def wedged(command: str = "VLLM::EngineCor", pid: int = 90100, **more: Any) -> FleetState:
    row = process(pid, command, 3.0, **({"user_id": 0} | more))
    used = GpuProcess(pid=pid, name=command, used_bytes=gib(61.0))
    return picture(
        idle_node("spark1", available_gib=55.0, processes=(row, process(2411, "dockerd")), gpu_processes=(used,))
    )


def ask(target: str = "90100", **options: str) -> Request:
    return Request(action="end-holder", nodes=("spark1",), target=target, options=options)


def files(pid: int = 90100, command: str = "VLLM::EngineCor", *, state: str = "S", started_s: float = STARTED_S) -> Any:
    return {f"/proc/{pid}/stat": stat(pid, command, state=state, started_s=started_s)}


def test_an_orphan_is_ended_in_order() -> None:
    plan = planned(end_process, ask(), wedged(), files=files(), privileges=FREE)
    compare_plan("end-holder-orphan", plan)
    assert ids(plan) == ["evidence", "end", "gone", "memory"]
    assert isinstance(plan, Plan)
    assert plan.risk is Risk.DISRUPTIVE
    term, kill = operations(plan, "end")
    assert [one.signal for one in (term, kill)] == ["TERM", "KILL"]
    assert {one.pid for one in (term, kill)} == {90100}
    assert {one.started_ticks for one in (term, kill)} == {round(STARTED_S * 100)}
    assert kill.must_end
    assert not term.must_end
    assert term.argv == ("/usr/bin/kill", "-s", "TERM", "90100")
    assert step(plan, "gone").act == AwaitGone(pids=(90100,))
    act = step(plan, "memory").act
    assert isinstance(act, AwaitMemory)
    assert gib(95) < act.target_bytes < gib(116)
    assert "61.0 GiB" in plan.effect
    assert isinstance(step(plan, "evidence").act, CollectEvidence)


@over("user_id, privilege", [(1000, Privilege.USER), (0, Privilege.ROOT), (None, Privilege.ROOT)])
def test_only_what_is_ours_is_ended_without_root(user_id: int | None, privilege: Privilege) -> None:
    plan = planned(end_process, ask(), wedged(user_id=user_id), files=files())
    assert {one.privilege for one in operations(plan, "end")} == {privilege}
    assert ("will ask for" in warned(plan)) is (privilege is Privilege.ROOT)
    assert "NOPASSWD" not in warned(plan), "a line for one pid would serve once"


def test_without_root_it_is_refused() -> None:
    denied = Privileges(user="spark", sudo="denied", docker="open")
    assert "doesn't allow" in refused(planned(end_process, ask(), wedged(), files=files(), privileges=denied))
    assert isinstance(planned(end_process, ask(), wedged(user_id=1000), files=files(), privileges=denied), Plan)


def test_the_finding_names_the_process() -> None:
    fleet = wedged()
    finding = orphan(fleet.nodes[0])
    assert finding is not None
    request = Request(action="end-holder", nodes=("spark1",), finding=finding)
    plan = planned(end_process, request, fleet, files=files())
    assert ids(plan) == ["evidence", "end", "gone", "memory", "resolved"]


@over(
    "pictured, target, given, reason",
    [
        (wedged(), "90101", files(90101), "holds no GPU memory"),
        (wedged(), "-1", {}, "which process is meant"),
        (wedged(), "1 2", {}, "which process is meant"),
        (wedged(), "$(reboot)", {}, "which process is meant"),
        (wedged(), "9" * 40, {}, "which process is meant"),
        (picture(node("spark1")), "", {}, "which process is meant"),
        (wedged(), "90100", {}, "is gone"),
        (wedged(), "90100", files(state="Z"), "has exited already"),
        (wedged(), "90100", files(started_s=STARTED_S + 60), "is now another process"),
        (wedged("dockerd"), "90100", files(command="dockerd"), "running and reachable"),
        (wedged("sshd"), "90100", files(command="sshd"), "running and reachable"),
        (wedged("systemd", pid=1), "1", files(1, "systemd"), "running and reachable"),
        (wedged("gnome-shell"), "90100", files(command="gnome-shell"), "draws the desktop"),
        (wedged("Xorg"), "90100", files(command="Xorg"), "draws the desktop"),
        (picture(node("spark1", gpu_processes=None, util=None)), "90100", files(), "can't be listed"),
    ],
)
def test_what_is_refused(pictured: FleetState, target: str, given: dict[str, str], reason: str) -> None:
    assert reason in refused(planned(end_process, ask(target), pictured, files=given))


def test_a_refusal_names_who_could_be_meant() -> None:
    found = planned(end_process, ask("77"), wedged())
    assert isinstance(found, Refusal)
    assert found.remedies == ("pid 90100: VLLM::EngineCor, 61.0 GiB",)


def test_the_desktop_when_it_is_meant() -> None:
    fleet = wedged("gnome-shell")
    plan = planned(end_process, ask(even_desktop="yes"), fleet, files=files(command="gnome-shell"))
    compare_plan("end-holder-desktop", plan)
    assert ids(plan)[1] == "end"


def test_an_engine_that_serves_and_would_come_back() -> None:
    box = container()
    row = process(77352, "VLLM::EngineCor", 4.1, user_id=0, container_id=box.container_id)
    fleet = picture(node("spark1", engines=(engine(),), processes=(row,)))
    plan = planned(end_process, ask("77352"), fleet, files=files(77352))
    compare_plan("end-holder-engine", plan)
    text = warned(plan)
    assert "2 requests running" in text
    assert "restart policy unless-stopped" in text
    assert "`stop-engine`" in text
    assert "in container vllm-qwen36" in getattr(plan, "effect", "")


@over(
    "cgroup, stop",
    [
        ("/system.slice/parakeet-asr.service", "sudo systemctl stop parakeet-asr.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/asr.service",
            "systemctl --user stop asr.service",
        ),
        ("/user.slice/user-1000.slice/session-3.scope", ""),
    ],
)
def test_what_systemd_would_start_again(cgroup: str, stop: str) -> None:
    text = warned(planned(end_process, ask(), wedged(cgroup=cgroup), files=files()))
    assert ("systemd may" in text) == bool(stop)
    assert stop in text


def test_a_process_that_hangs_in_the_driver() -> None:
    fleet = wedged(state="D", wait_channel="nv_wait")
    assert "(state D) in nv_wait" in warned(planned(end_process, ask(), fleet, files=files(state="D")))


def test_a_hostile_name_is_data() -> None:
    name = "x\x1b]52;c;aGk=\x07) R 1 $(id)\n"
    fleet = wedged(name)
    plan = planned(end_process, ask(), fleet, files=files(command=name))
    assert isinstance(plan, Plan)
    shown = [plan.title, plan.effect, *plan.warnings, *plan.equivalent, *(one.title for one in plan.steps)]
    assert all(text.isprintable() for text in shown), shown
    assert {one.argv[-1] for one in operations(plan, "end")} == {"90100"}


def test_what_it_held_is_not_known() -> None:
    fleet = wedged()
    view = fleet.nodes[0]
    assert view.gpu is not None
    row = GpuProcess(pid=90100, name="x", used_bytes=None)
    unknown = replace(view, gpu=replace(view.gpu, gpus=(replace(view.gpu.gpus[0], processes=(row,)),)))
    plan = planned(end_process, ask(), picture(unknown), files=files())
    assert ids(plan) == ["evidence", "end", "gone"]
    assert isinstance(plan, Plan)
    assert "can't be read" in plan.effect


@given(st.text(max_size=40), st.integers(1, 2**22), st.integers(0, 2**40))
def test_a_stat_is_read_whatever_the_name(command: str, pid: int, ticks: int) -> None:
    found = parse_stat(f"{pid} ({command}) S 1 {' '.join(['0'] * 17)} {ticks} 0 0")
    assert found is not None
    assert (found.pid, found.command, found.started_ticks) == (pid, command, ticks)


@given(st.text(max_size=200))
def test_what_is_no_stat_is_none_or_read(text: str) -> None:
    found = parse_stat(text)
    assert found is None or f"({found.command})" in text
