"""The guard's planner and its keeper: what is ordered, refused and said; and that an order outlives its probe."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.pictures_support import GIB, container, engine, gib, link, node, picture
from tests.plan_golden import compare_plan
from tests.planner_support import plan_of
from tests.table import over

from sparktop.clock import ManualClock
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Answer, Privileges, PrivilegesQuestion, Survey
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.machine import guard
from sparktop.operate.plan.process import stat_question
from sparktop.operate.run.guard_orders import StandingOrders
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.wait import Since, WaitVerdict
from sparktop.probe.remote.guard.decision import parse_order

BOX = container()


def request(*nodes: str, target: str = "vllm-qwen36", **options: str) -> Request:
    return Request(action="guard", nodes=nodes or ("spark1",), target=target, options=options)


def survey(docker: str = "open", *nodes: str) -> Survey:
    return Survey(
        answers={
            PrivilegesQuestion(node=name): Answer(value=Privileges(user="spark", docker=docker))
            for name in nodes or ("spark1", "spark2")
        }
    )


def planned(asked: Request, fleet: FleetState, known: Survey | None = None) -> Plan:
    found = plan_of(guard, asked, fleet, known or survey())
    assert isinstance(found, Plan), found
    return found


def refused(asked: Request, fleet: FleetState, known: Survey | None = None) -> str:
    found = plan_of(guard, asked, fleet, known or survey())
    assert isinstance(found, Refusal), found
    return " ".join((found.reason, *found.remedies))


def order_of(plan: Plan) -> GuardOrder:
    act = plan.steps[0].act
    assert isinstance(act, GuardOrder)
    return act


def test_it_orders_one_container_and_nothing_else() -> None:
    plan = planned(request(), picture(node()))
    compare_plan("guard-on", plan)
    assert order_of(plan) == GuardOrder(
        container_id=BOX.container_id, container_name="vllm-qwen36", floor_bytes=4 * GIB, empty_within_s=2.0
    )
    assert (plan.risk, len(plan.steps), plan.steps[0].node) == (Risk.DISRUPTIVE, 1, "spark1")
    assert "vllm-qwen36 < 4.0 GiB, or 2 s from empty" in plan.steps[0].title
    assert "SIGKILL" in plan.warnings[0]
    assert "console closes" in plan.effect
    assert guard.questions(request(), picture(node()), Survey()) == (PrivilegesQuestion(node="spark1"),)


def test_an_engine_in_no_container_is_known_by_its_pid_and_start() -> None:
    """Without Docker, which this user may not even use."""
    bare = engine(container=None, name="llama.cpp:8080")
    fleet = picture(node(engines=(bare,)))
    question = stat_question("spark1", 77352)
    assert guard.questions(request(target=bare.name), fleet, Survey()) == (PrivilegesQuestion(node="spark1"), question)
    stat = f"77352 (llama-server) S 1 {' '.join(['0'] * 17)} 4711 1 100 0 0"
    known = Survey(answers={**survey("denied").answers, question: Answer(value=stat)})
    plan = planned(request(target=bare.name), fleet, known)
    assert (order_of(plan).container_id, order_of(plan).container_name) == ("pid:77352:4711", "llama.cpp:8080")
    assert parse_order(order_of(plan).words()["guard"])["id"] == "pid:77352:4711"
    assert "SIGTERM" in plan.warnings[0]
    assert plan.equivalent == ("on spark1, when it fires: kill 77352; sleep 1; kill -9 77352",)
    gone = picture(node(engines=(replace(bare, pids=(1,)),)))
    assert (list(order_of(plan).outdated(fleet.nodes[0])), len(list(order_of(plan).outdated(gone.nodes[0])))) == ([], 1)


def test_what_is_set_is_taken() -> None:
    plan = planned(request(floor_gib="8.5", empty_within_s="0", stay_minutes="30"), picture(node()))
    compare_plan("guard-with-options", plan)
    order = order_of(plan)
    assert (order.floor_bytes, order.empty_within_s, order.stay_s) == (gib(8.5), None, 1800.0)
    assert "30 min" in plan.effect


def test_while_it_loads_only_the_floor_counts() -> None:
    loading = node(engines=(engine(state=EngineState.LOADING),))
    assert order_of(planned(request(), picture(loading))).empty_within_s is None
    plan = planned(request(empty_within_s="3"), picture(loading))
    assert order_of(plan).empty_within_s == 3.0
    assert any("may kill it" in warning for warning in plan.warnings)


@over("available_gib, floor_gib", [(27.0, 4.0), (4.4, 2.2), (116.0, 4.0)])
def test_the_floor_is_computed_for_the_machine(available_gib: float, floor_gib: float) -> None:
    plan = planned(request(), picture(node(available_gib=available_gib)))
    assert order_of(plan).floor_bytes == pytest.approx(gib(floor_gib), rel=0.01)
    told = [warning for warning in plan.warnings if "not the usual 4.0 GiB" in warning]
    assert bool(told) == (floor_gib < 4.0)
    low = planned(request(floor_gib="2"), picture(node(available_gib=available_gib)))
    assert not any("usual" in warning for warning in low.warnings), "who sets it knows"


def test_a_small_machine_has_a_small_floor() -> None:
    assert guard.default_floor_bytes(24 * GIB) == pytest.approx(1.2 * GIB)
    assert guard.default_floor_bytes(512 * GIB) == int(512 * GIB * 0.03)


@over(
    "asked, view, known, words",
    [
        (request(floor_gib="27.5"), node(), survey(), "27.0 GiB available now"),
        (request(floor_gib="x"), node(), survey(), "takes a number from"),
        (request(floor_gib="1e3"), node(), survey(), "takes a number from"),
        (request(stay_minutes="-1"), node(), survey(), "stay_minutes"),
        (request(empty_within_s="601"), node(), survey(), "empty_within_s"),
        (request(), node(), survey("denied"), "usermod -aG docker spark"),
        (request(), node(), survey("missing"), "no Docker Engine"),
        (request(), node(), Survey(), "could not be asked"),
        (request(), node(engines=(engine(container=None),)), survey(), "is not running"),
        (
            request(),
            node(engines=(engine(state=EngineState.EXITED, container=container(status="exited")),)),
            survey(),
            "not running",
        ),
        (request(target="other"), node(), survey(), "there is vllm-qwen36"),
        (request(off="yes"), node(), survey(), "no guard is armed on spark1"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_help(
    asked: Request, view: NodeView, known: Survey, words: str
) -> None:
    assert words in refused(asked, picture(view), known)


def test_warnings_say_what_docker_and_the_other_rank_do() -> None:
    box = container(restart_policy="always")
    plan = planned(request(), picture(node(engines=(engine(container=box),))))
    assert any("`always`" in warning for warning in plan.warnings)
    near = planned(request(floor_gib="26"), picture(node()))
    assert any("1.0 GiB more" in warning for warning in near.warnings)
    armed = GuardState(phase=GuardPhase.ARMED, container_name="old", floor_bytes=2 * GIB)
    assert any("replaced" in w for w in planned(request(), picture(node(guard=armed))).warnings)
    assert not any("`always`" in warning for warning in planned(request(), picture(node())).warnings)


def test_off_disarms_where_there_is_one() -> None:
    armed = GuardState(phase=GuardPhase.ARMED, container_id=BOX.container_id)
    plan = planned(request("spark1", "spark2", off="yes"), picture(node(guard=armed), node("spark2")))
    compare_plan("guard-off", plan)
    assert [(step.node, step.act) for step in plan.steps] == [("spark1", GuardOrder(container_id=""))]
    assert plan.risk is Risk.SAFE
    assert guard.questions(request(off="yes"), picture(node()), Survey()) == ()


def test_the_probe_understands_the_words_and_each_order_is_another() -> None:
    order = order_of(planned(request(stay_minutes="5"), picture(node())))
    first, second = order.words(), order.words()
    told = parse_order(json.loads(json.dumps(first))["guard"])
    assert (told["id"], told["name"], told["floor"], told["within"], told["stay"]) == (
        BOX.container_id, "vllm-qwen36", 4 * GIB, 2.0, 300.0,
    )  # fmt: skip
    assert first != second
    assert parse_order(dict(GuardOrder(container_id="").words())["guard"])["id"] == ""  # type: ignore[arg-type]


# --- whether it was taken

ORDER = GuardOrder(container_id=BOX.container_id, container_name=BOX.name, floor_bytes=4 * GIB)
ARMED = GuardState(phase=GuardPhase.ARMED, container_id=BOX.container_id, container_name=BOX.name, floor_bytes=4 * GIB)
FIRED = replace(ARMED, phase=GuardPhase.FIRED, available_bytes=3 * GIB, detail="3.0 GiB were available")


@over(
    "order, before, now, verdict",
    [
        (ORDER, None, None, WaitVerdict.WAITING),
        (ORDER, None, ARMED, WaitVerdict.MET),
        (ORDER, FIRED, FIRED, WaitVerdict.WAITING),  # what it said before the order is no answer
        (ORDER, None, FIRED, WaitVerdict.FAILED),
        (ORDER, None, replace(ARMED, phase=GuardPhase.FAILED, detail="no Docker"), WaitVerdict.FAILED),
        (ORDER, None, replace(ARMED, phase=GuardPhase.DISARMED), WaitVerdict.FAILED),
        (ORDER, None, replace(ARMED, container_id="b" * 64), WaitVerdict.WAITING),
        (ORDER, None, replace(ARMED, until_wall_s=1.0), WaitVerdict.WAITING),
        (GuardOrder(container_id=""), ARMED, ARMED, WaitVerdict.WAITING),
        (GuardOrder(container_id=""), ARMED, replace(ARMED, phase=GuardPhase.DISARMED), WaitVerdict.MET),
        (GuardOrder(container_id=""), None, None, WaitVerdict.MET),
    ],
)
def test_an_order_is_judged_by_what_the_probe_said_since(
    order: GuardOrder, before: GuardState | None, now: GuardState | None, verdict: WaitVerdict
) -> None:
    since = Since(began_monotonic_s=0.0, began_wall_s=0.0, before=node(guard=before))
    assert order.judge(picture(node(guard=now)), "spark1", since).verdict is verdict


# --- kept armed


class Wire:
    """Remembers what a probe was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []

    def __call__(self, name: str, words: object) -> bool:
        self.told.append((name, json.loads(json.dumps(words))))
        return True


def kept() -> tuple[StandingOrders, Wire, ManualClock]:
    clock, wire = ManualClock(), Wire()
    return StandingOrders(wire, monotonic=clock.monotonic), wire, clock


def test_a_new_probe_is_told_again() -> None:
    guarding, wire, clock = kept()
    guarding.saw(picture(node()))
    assert guarding.tell("spark1", ORDER.words())
    guarding.saw(picture(node(guard=ARMED)))
    clock.advance(60.0)
    guarding.saw(picture(node(guard=ARMED)))
    assert len(wire.told) == 1
    lost = link(LinkState.LOST)
    guarding.saw(picture(node(guard=None, link=lost)))  # a new probe is to come
    assert len(wire.told) == 1
    guarding.saw(picture(node(guard=None)))
    guarding.saw(picture(node(guard=None)))
    assert len(wire.told) == 2
    again, first = wire.told[1][1]["guard"], wire.told[0][1]["guard"]
    assert isinstance(again, dict)
    assert isinstance(first, dict)
    assert again == {**first, "again": True}
    stayed = replace(ARMED, until_wall_s=9e9, detail="by a console that is gone")
    clock.advance(5.0)
    guarding.saw(picture(node(guard=stayed)))  # ours, of the connection before: taken over
    assert len(wire.told) == 3


@over("state", [FIRED, replace(FIRED, phase=GuardPhase.FAILED), replace(ARMED, phase=GuardPhase.DISARMED)])
def test_one_that_has_acted_or_is_off_is_not_armed_again(state: GuardState) -> None:
    guarding, wire, clock = kept()
    guarding.tell("spark1", ORDER.words())
    guarding.saw(picture(node(guard=state)))
    for _ in range(5):
        clock.advance(10.0)
        guarding.saw(picture(node(guard=None)))
    assert len(wire.told) == 1
    assert guarding.wanted == ()


def test_what_was_said_before_the_order_is_no_answer_to_it() -> None:
    guarding, wire, clock = kept()
    guarding.saw(picture(node(guard=FIRED)))
    guarding.tell("spark1", ORDER.words())
    guarding.saw(picture(node(guard=FIRED)))
    assert guarding.wanted == ("spark1",)
    clock.advance(5.0)
    guarding.saw(picture(node(guard=FIRED)))
    assert len(wire.told) == 2


def test_off_is_told_once_and_other_words_pass() -> None:
    guarding, wire, clock = kept()
    guarding.tell("spark1", ORDER.words())
    guarding.tell("spark1", GuardOrder(container_id="").words())
    guarding.tell("spark1", {"interval": 0.25})
    clock.advance(60.0)
    guarding.saw(picture(node(guard=None)))
    assert [sorted(words) for _, words in wire.told] == [["guard"], ["guard"], ["interval"]]
