"""An all-reduce's log, read; and what measure-collective plans and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bringup_support import PING
from tests.pictures_support import engine, picture
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.operate.machine.machine_support import ids, refused
from tests.unit.operate.measure.test_link import TOOLS, idle

from sparktop.model.fleet import NodeView
from sparktop.model.request import Request
from sparktop.model.survey import ROUNDS_AT_MOST, Answer, DockerGet, Output, Question, Survey
from sparktop.operate.measure import collective
from sparktop.operate.measure.all_reduce import PROGRAM, parse_collective
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Plan, Refusal

LOGS = Path(__file__).parents[3] / "cases" / "all_reduce"
TAG = "vllm/vllm-openai:v0.22.1"


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text()


@over(
    "name, gbps, transport, counted",
    [
        ("rdma", 187.4, "IB", 101.0),
        ("slow", 24.2, "IB", 101.0),
        ("socket", 16.35, "Socket", 0.0),
        ("uncounted", 187.4, "IB", None),
    ],
)
def test_a_result_is_read_with_its_witnesses(name: str, gbps: float, transport: str, counted: float | None) -> None:
    reading = parse_collective(log(name))
    assert (reading.gbps, reading.transport, reading.counted_percent, reading.problem) == (
        pytest.approx(gbps, abs=0.01), transport, counted, "",
    )  # fmt: skip


@over(
    "name, problem",
    [
        ("no-torch", "ModuleNotFoundError: No module named 'torch'"),
        ("memlock", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"),
        ("alone", "DistStoreError: Timed out after 91 seconds waiting for clients. 1/2 clients joined."),
        ("cut", "its result can't be read"),
    ],
)
def test_a_log_without_result_says_why(name: str, problem: str) -> None:
    reading = parse_collective(log(name))
    assert reading.gbps is None
    assert problem in reading.problem


@given(st.text(max_size=200))
def test_any_log_is_a_figure_or_a_reason(text: str) -> None:
    for said in (text, log("rdma")[:-20] + text, f"SPARKTOP-ALL-REDUCE {text}"):
        reading = parse_collective(said)
        assert (reading.gbps is None) == bool(reading.problem)


def test_the_program_is_python() -> None:
    compile(PROGRAM, "all_reduce", "exec")


IMAGE = {
    "Id": f"sha256:{'ab' * 32}", "Size": 20_000_000_000, "RootFS": {"Layers": ["a"]}, "Config": {}, "RepoDigests": [],
    "Architecture": "arm64",
}  # fmt: skip


def answers(**docker: Any) -> dict[str, Any]:
    llama = "scitrera/dgx-spark-llama-cpp:b8094"  # without Python, and on one Spark alone
    tags = [{"RepoTags": ["busybox:1", llama], "Created": 9}, {"RepoTags": [TAG, "x/vllm:old"], "Created": 5}]
    return {"/images/json": tags, "/containers/json?all=1": [], f"/images/{TAG}/json": IMAGE, **docker}


def planned(
    *views: NodeView, docker: dict[str, Any] | None = None, which: str = TOOLS, **options: str
) -> Plan | Refusal:
    request = Request(action="measure-collective", nodes=("spark1", "spark2"), options=options)
    fleet, survey, known = picture(*(views or (idle(), idle("spark2")))), Survey(), docker or answers()

    def answer(ask: Question) -> Answer:
        if isinstance(ask, DockerGet):
            value = known.get(f"{ask.node}{ask.path}", known.get(ask.path))
            return Answer(value=value)
        assert isinstance(ask, Output)
        return Answer(value=which if ask.argv[0] == "which" else PING, code=0)

    for _ in range(ROUNDS_AT_MOST):
        questions = [ask for ask in collective.questions(request, fleet, survey) if ask not in survey.answers]
        if not questions:
            break
        survey = Survey(answers={**survey.answers, **{ask: answer(ask) for ask in questions}})
    try:
        return collective.plan(request, fleet, survey)
    except Refused as error:
        return error.refusal(request)


def test_the_cable_is_measured_first_and_both_containers_are_removed() -> None:
    plan = planned()
    compare_plan("measure-collective", plan)
    assert ids(plan) == [
        "both@spark1", "make@spark1", "make@spark2", "start@spark2", "start@spark1", "all-reduce@spark1",
        "remove@spark1", "remove@spark2",
    ]  # fmt: skip
    assert isinstance(plan, Plan)
    assert [step.id for step in plan.rollback] == ["take-away@spark1", "take-away@spark2"]
    assert plan.is_all_or_nothing


def test_without_perftest_the_collective_is_run_alone() -> None:
    assert ids(planned(which=""))[0] == "make@spark1"


OURS = {"Id": "cd" * 32, "Names": ["/sparktop-all-reduce"], "Labels": {"sparktop.measures": "all-reduce"}}


def test_what_an_earlier_measurement_left_is_removed_by_its_id() -> None:
    plan = planned(docker=answers(**{"spark2/containers/json?all=1": [OURS]}))
    assert ids(plan)[0] == "clear@spark2"


@over(
    "views, docker, options, reason",
    [
        ((idle(engines=(engine("vllm-a", running=0.0),)), idle("spark2")), {}, {}, "vllm-a is loaded on spark1"),
        ((idle(available_gib=5.0), idle("spark2")), {}, {}, "spark1 has 5.0 GiB available"),
        ((), {"/images/json": []}, {}, "no serving image is on both"),
        ((), {"spark2/images/json": [{"RepoTags": None}]}, {}, "no serving image is on both"),
        ((), {f"spark2/images/{TAG}/json": None}, {}, f"{TAG} is not on spark2"),
        ((), {}, {"image": "a b;c"}, "is no image's name"),
        ((), {"/containers/json?all=1": [{**OURS, "Labels": {}}]}, {}, "that sparktop did not create"),
        (
            (),
            {f"spark2/images/{TAG}/json": {**IMAGE, "Id": "sha256:1", "RootFS": {"Layers": ["b"]}}},
            {},
            "is another build on spark2",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(
    views: tuple[NodeView, ...], docker: dict[str, Any], options: dict[str, str], reason: str
) -> None:
    assert reason in refused(planned(*views, docker=answers(**docker), **options))
