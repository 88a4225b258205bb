"""A plan as lines: what changes, and where."""

from __future__ import annotations

from tests.table import over

from sparktop.documents.plan import closing_lines, plan_lines
from sparktop.model.request import Request, Risk
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import Difference, OnFailure, Plan, Step


def step(name: str, then: OnFailure = OnFailure.STOP, node: str = "spark1") -> Step:
    return Step(id=name, title=name, node=node, act=Remote(operations=()), limit_s=1.0, on_failure=then)


def test_what_a_plan_changes_on_one_of_two_nodes_is_headed_by_its_name() -> None:
    def flag(name: str, before: str | None, after: str | None, node: str = "") -> Difference:
        return Difference(what="flag", name=name, before=before, after=after, node=node)

    plan = Plan(
        request=Request(action="relaunch", nodes=("spark1", "spark2")),
        title="x",
        risk=Risk.DISRUPTIVE,
        steps=(),
        differences=(
            flag("--kv-cache-dtype", "fp8", None),
            flag("--gpu-memory-utilization", "0.80", "0.70", "spark1"),
            flag("--gpu-memory-utilization", None, "0.70", "spark2"),
        ),
    )
    lines = [line.plain.strip() for line in plan_lines(plan, 80)]
    begin = lines.index("What changes")
    assert lines[begin + 1 : begin + 7] == [
        "- --kv-cache-dtype=fp8",
        "on spark1 alone",
        "- --gpu-memory-utilization=0.80",
        "+ --gpu-memory-utilization=0.70",
        "on spark2 alone",
        "+ --gpu-memory-utilization=0.70",
    ]


@over(
    "on_failure, heading",
    [
        (OnFailure.STOP, "Rollback, offered if a step fails"),
        (OnFailure.ROLL_BACK, "Rollback, if it fails"),
    ],
)
def test_a_rollback_says_whether_it_starts_by_itself(on_failure: OnFailure, heading: str) -> None:
    plan = Plan(
        request=Request(action="stop-engine", nodes=("spark1",)),
        title="x",
        risk=Risk.DISRUPTIVE,
        steps=(step("stop"), step("start", on_failure)),
        rollback=(step("start again"),),
    )
    assert heading in [line.plain for line in plan_lines(plan, 80)]


def test_the_time_is_told_after_eight_names_too() -> None:
    steps = tuple(step("stop", node=f"spark{number}") for number in range(1, 9))
    request = Request(action="stop-engine", nodes=("spark1",))
    told = closing_lines(Plan(request=request, title="x", risk=Risk.DISRUPTIVE, steps=steps), 72)
    assert [line.plain for line in told][1:] == [
        "on spark1, spark2, spark3, spark4, spark5, spark6, spark7 and spark8, at",
        "most 8 s",
    ]
