"""The dump of a plan for its golden file: it changes with every field, and shows no secret and no class name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args

from tests.plan_golden import OPERATIONS, dump
from tests.recipe_support import recipe
from tests.table import over

from sparktop.model.change import Change
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Finding, Severity
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Signal, Transfer
from sparktop.model.proof import Proof
from sparktop.model.prospect import Budget, Fit, Gate, NodeBudget, OnDisk, Prospect, Slice, SliceKind
from sparktop.model.recipe import Expected, Order, Recipe
from sparktop.model.request import Request, Risk
from sparktop.model.state import State
from sparktop.model.survey import PublicKey
from sparktop.operate.acts.arrivals import AwaitBack, AwaitGone, AwaitResolved
from sparktop.operate.acts.checks import CheckExposed, CheckLogin
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import Measure, SmokeTest
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.measure.collective_run import MeasureCollective
from sparktop.operate.measure.link_load import MeasureLink
from sparktop.operate.measure.perftest import Half
from sparktop.operate.measure.power_run import MeasurePower
from sparktop.operate.measure.proofs import Prove
from sparktop.operate.step.act import Act
from sparktop.operate.step.plan import Difference, Plan, Step

SECRET = "sk-canary-4f2a9c77"
OPERATIONS_OF_ALL_KINDS = (
    Command(argv=("true",), environment={"HF_TOKEN": SECRET}, content="one\ntwo\n"),
    DockerCall(method="POST", path="/containers/create"),
    Expect(path="/info", equals={}),
    Signal(pid=7, started_ticks=9),
    ImagePull(image="vllm/vllm-openai:v0.22.1"),
    Transfer(command=Command(argv=("hf",)), grows="/models", key="model"),
)
ACTS: tuple[Act, ...] = (
    Remote(operations=OPERATIONS_OF_ALL_KINDS),
    CollectEvidence(nodes=("spark1",)),
    AwaitGone(pids=(7,)),
    AwaitMemory(target_bytes=1),
    AwaitReady(name="vllm"),
    AwaitServing(name="vllm"),
    AwaitResolved(findings=(("rule", ("spark1",), "vllm"),)),
    AwaitBack(boot_id="b"),
    SmokeTest(engine="vllm", floor_bytes=1, api_key=SECRET),
    Measure(engine="vllm", expected=Expected(), floor_bytes=1),
    CheckExposed(name="llm.example.org", api_key=SECRET),
    CheckLogin(key=PublicKey(algorithm="ssh-ed25519", blob="AAAA")),
    MeasureLink(
        peer="spark2",
        halves=(Half(device="a", gid_index=3, ip="10.0.0.1", peer_device="b", peer_gid_index=3, peer_ip="10.0.0.2"),),
    ),
    MeasureCollective(peer="spark2", container_id="{NEW}"),
    Prove(engine="vllm", kind=EngineKind.VLLM, proof=Proof.ANSWER, limit_s=8.0, floor_bytes=1, api_key=SECRET),
    MeasurePower(library="/usr/local/cuda/lib64/libcublas.so.13", seconds=12, limit_s=42),
    GuardOrder(container_id=""),
)


def plan() -> Plan:
    """One with everything that a plan can hold."""
    finding = Finding(rule="rule", severity=Severity.WARNING, title="t", nodes=("spark1",))
    order = Order(recipe=recipe(), secrets={"VLLM_API_KEY": SECRET})
    host = Slice(kind=SliceKind.HOST, label="host", size_bytes=1)
    node = NodeBudget(
        node="spark1", total_bytes=2, available_bytes=1, before=(host,), after=(host,), left_bytes=1, fit=Fit.FITS,
        sentence="It fits.",
    )  # fmt: skip
    return Plan(
        request=Request(action="launch", nodes=("spark1",), change=Change(), finding=finding, order=order),
        title="t",
        risk=Risk.SAFE,
        steps=tuple(Step(id=str(index), title="t", node="spark1", act=act) for index, act in enumerate(ACTS)),
        differences=(Difference(what="flag", name="n", before=None, after=""),),
        secrets=(SECRET,),
        prospect=Prospect(
            recipe_id="r",
            title="t",
            nodes=("spark1",),
            budget=Budget(fit=Fit.FITS, why="it fits", nodes=(node,)),
            gates=(Gate(name="port", node="spark1", state=State.PASSED, detail="d"),),
            on_disk=(OnDisk(name="m", path="/m", nodes=("spark1",), size_bytes=1),),
            files={"run": {"vllm.sh": "docker run\n"}},
        ),
    )


def parts(value: Any) -> Iterator[Any]:
    """Every dataclass in it, but for what a recipe is made of."""
    if isinstance(value, Recipe):
        return
    if is_dataclass(value):
        yield value
        for field in fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from parts(item)


def another(value: Any, name: str) -> Any:
    """A value that differs as little as it can."""
    if isinstance(value, Recipe):
        return recipe(id="another")
    if name == "done_when":
        return Expect(path="/another", equals={})
    if name == "body":
        return {}
    if isinstance(value, Enum):
        return next(one for one in type(value) if one is not value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "~"
    if isinstance(value, Mapping):
        return {**value, "~": {}}
    return (*value, "~") if isinstance(value, tuple) else "~"


@over("with_files", [True, False])
def test_any_field_that_changes_changes_the_dump(with_files: bool) -> None:
    one = plan()
    before, seen = dump(one, with_files=with_files), set()
    for part in parts(one):
        for field in fields(part):
            was = getattr(part, field.name)
            if (type(part), field.name) in seen:
                continue
            seen.add((type(part), field.name))
            if is_dataclass(was) and not isinstance(was, Recipe):
                continue  # its own fields are changed in its place
            object.__setattr__(part, field.name, another(was, field.name))
            assert dump(one, with_files=with_files) != before, f"{type(part).__name__}.{field.name}"
            object.__setattr__(part, field.name, was)
    assert dump(one, with_files=with_files) == before
    assert {*OPERATIONS, *get_args(Act)} <= {kind for kind, _ in seen}


def test_a_secret_is_a_number_and_no_class_has_a_name() -> None:
    text = dump(plan())
    assert SECRET not in text
    assert '"HF_TOKEN": "<secret 1>"' in text
    assert not [kind.__name__ for kind in (*OPERATIONS, *get_args(Act)) if kind.__name__ in text]


def test_a_block_keeps_every_line_break() -> None:
    assert '"content": |\n            | one\n            | two\n            |\n' in dump(plan())


def test_what_may_be_nothing_is_told_from_what_is_empty() -> None:
    assert '{what: "flag", name: "n", before: null, after: ""}' in dump(plan())
