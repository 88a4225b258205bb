"""What the guard did is one finding, not three: its own, and no riddle about exit code 137."""

from __future__ import annotations

from dataclasses import replace

from tests.pictures_support import GIB, WALL_S, container, engine, node, picture
from tests.table import over

from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.diagnose.ended_by import ended_by_guard
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase, GuardState

BOX = container(status="exited", exit_code=137, finished_wall_s=WALL_S - 20)
ENDED = engine(state=EngineState.EXITED, container=BOX, exited_wall_s=WALL_S - 20, exit_detail="exit 137", pids=())
FIRED = GuardState(
    phase=GuardPhase.FIRED,
    container_id=BOX.container_id,
    container_name=BOX.name,
    floor_bytes=4 * GIB,
    empty_within_s=2.0,
    since_wall_s=WALL_S - 20,
    available_bytes=int(3.9 * GIB),
    answered_s=0.04,
    detail="3.9 GiB was available, less than 4.0",
)


def findings(*views: NodeView) -> dict[str, Finding]:
    fleet: FleetState = picture(*views)
    diagnosis = Diagnosis(live_rules())
    diagnosis.update(fleet)
    later = replace(fleet, monotonic_s=fleet.monotonic_s + 3.0)
    return {one.rule: one for one in diagnosis.update(later)}


def after(guard: GuardState | None, box: object = BOX) -> NodeView:
    return node(available_gib=80.0, engines=(replace(ENDED, container=box),), guard=guard)


def test_a_fired_guard_is_told_with_its_figures_and_what_to_do() -> None:
    found = findings(after(FIRED), node("spark2"))
    fired = found["guard.fired"]
    assert (fired.severity, fired.confidence) == (Severity.CRITICAL, Confidence.CONFIRMED)
    assert fired.title == "The guard killed vllm-qwen36 at 3.9 GiB available"
    assert fired.brief == "armed below 4.0 GiB or 2 s from empty, killed in 0.04 s"
    assert "3.9 GiB was available, less than 4.0." in fired.explanation
    assert [remedy.action for remedy in fired.remedies] == ["relaunch", "safe-restart"]
    assert (fired.nodes, fired.subject) == (("spark1",), "vllm-qwen36")
    assert not any(rule.startswith(("restart.", "exit")) for rule in found), found.keys()


def test_another_end_is_still_a_riddle() -> None:
    assert any(one.title.startswith("vllm-qwen36 was killed") for one in findings(after(None)).values())
    other = replace(FIRED, container_id="b" * 64, container_name="other")
    assert any(one.title.startswith("vllm-qwen36 was killed") for one in findings(after(other)).values())
    long_ago = replace(FIRED, since_wall_s=WALL_S - 900)
    assert any(one.title.startswith("vllm-qwen36 was killed") for one in findings(after(long_ago)).values())


def test_without_dockers_answer_it_says_so() -> None:
    assert "hasn't ended yet" in findings(after(replace(FIRED, answered_s=None)))["guard.fired"].title


def test_of_a_process_it_speaks_of_no_container() -> None:
    bare = replace(FIRED, container_id="pid:77352:4711", container_name="llama.cpp:8080")
    ended = engine("llama.cpp:8080", container=None, state=EngineState.EXITED, exited_wall_s=FIRED.since_wall_s)
    view = replace(node(engines=(ended,)), guard=bare)
    found = findings(view)["guard.fired"]
    assert "docker" not in f"{found.explanation} {found.remedies}".lower()
    assert ended_by_guard(view, ended)
    assert not ended_by_guard(view, replace(ended, key="pid:1"))
    again = replace(view, engines=(ended, engine("llama.cpp:8080", container=None, key="pid:9")))
    assert "guard.fired" not in findings(again)


@over(
    "view",
    [
        after(None),
        after(replace(FIRED, phase=GuardPhase.ARMED, available_bytes=None)),
        after(replace(FIRED, phase=GuardPhase.DISARMED, available_bytes=None)),
        after(replace(FIRED, since_wall_s=WALL_S - 4000)),
        after(FIRED, container(started_wall_s=WALL_S - 5)),  # it runs again
        after(FIRED, replace(container(started_wall_s=WALL_S - 5), container_id="c" * 64)),  # anew, by its name
    ],
)
def test_it_is_quiet_otherwise(view: NodeView) -> None:
    assert not [rule for rule in findings(view) if rule.startswith("guard.")]


def test_one_that_cannot_act_is_a_warning_and_one_that_could_not_is_worse() -> None:
    blind = replace(FIRED, phase=GuardPhase.FAILED, available_bytes=None, detail="the Docker Engine is not running")
    warning = findings(after(blind))["guard.failed"]
    assert warning.severity is Severity.WARNING
    assert "not running" in warning.explanation
    late = replace(FIRED, phase=GuardPhase.FAILED, detail="Docker answered 500: no")
    critical = findings(after(late))["guard.failed"]
    assert critical.severity is Severity.CRITICAL
    assert "couldn't kill vllm-qwen36" in critical.title
    assert critical.remedies[0].action == "stop-engine"
