"""Every gate of a launch: one way for it to pass, to warn, to fail, and not to be known, and what is said of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.table import over
from tests.unit.diagnose.rules.pair_support import fabric, ring
from tests.unit.operate.launch import gates_docker, gates_fetch, gates_link, gates_node
from tests.unit.operate.launch.gates_docker import row
from tests.unit.operate.launch.gates_link import cable
from tests.unit.operate.launch.gates_support import (
    CASES,
    FAILED,
    FOUND,
    FOUR,
    ONE,
    PASSED,
    UNKNOWN,
    WARNED,
    Spoil,
    World,
    image,
)

from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.state import State
from sparktop.model.survey import Answer, PrivilegesQuestion
from sparktop.operate.launch.gates import catalogue, docker, downloads, link, recipe
from sparktop.operate.launch.gates.recipe import LintResult
from sparktop.operate.launch.inputs import docker as inputs_docker
from sparktop.operate.launch.inputs.downloads import disk_question

TABLES = (gates_docker, gates_fetch, gates_link, gates_node)
"""Each fills CASES."""


@pytest.fixture(autouse=True)
def no_findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the linter is made to find."""
    FOUND.clear()
    monkeypatch.setattr("sparktop.operate.launch.gates.recipe.lint", lambda *_: LintResult(findings=tuple(FOUND)))
    return FOUND


def test_a_launch_that_nothing_stands_against_passes_every_gate() -> None:
    found = World().gates()
    assert {gate.name for gate in found if gate.state is not PASSED} == set(), found
    assert {gate.name for gate in found} == set(catalogue.GATES) - {"ssh"}
    assert catalogue.blocking(found) == ()


def test_on_one_node_nothing_is_said_of_a_link() -> None:
    found = World(nodes=ONE).gates()
    assert {gate.name for gate in found if gate.state is not PASSED} == set(), found
    assert not {"link", "rate", "mtu", "hca", "gid", "peer", "ssh", "equal-memory", "same-driver"} & {
        gate.name for gate in found
    }


def in_a_ring(world: World, *order: int) -> None:
    for node, number in zip(FOUR, order, strict=True):
        world.view(node, network=ring(number, len(order)))
    world.every_ping()


def test_four_nodes_pass_on_a_switch_and_in_a_ring_in_its_order() -> None:
    world = World(nodes=FOUR)
    assert {gate.name for gate in world.gates() if gate.state is not PASSED} == set(), world.gates()
    assert sum(gate.name == "peer" for gate in world.gates()) == 6, "the head and each other node, both ways"
    in_a_ring(world, 1, 2, 3, 4)
    assert {gate.name for gate in world.gates() if gate.state is not PASSED} == set(), world.gates()
    assert [gate.detail for gate in world.gates() if gate.name == "mtu"] == ["1500 and 9000"]


@over(
    "name, node, spoil, detail",
    [
        (
            "hca",
            "spark2",
            lambda world: in_a_ring(world, 1, 2, 4, 3),
            "spark1 and spark4, not to spark3, the next rank",
        ),
        (
            "mtu",
            "",
            lambda world: world.view("spark3", network=fabric(3, mtu=1500)),
            "9000 on spark1 (enp1s0f0np0), 1500 on spark3",
        ),
        ("peer", "spark4", lambda world: world.ping(*world.ways()[5], lost=True), "does not reach spark1 at 10.0.0.1"),
        ("rate", "spark4", lambda world: world.view("spark4", network=fabric(4, rate=100.0)), "at 100 Gb/s"),
        ("hca", "spark4", lambda world: world.view("spark4", network=fabric(4, up=False)), "rocep1s0f0 DOWN"),
        (
            "link",
            "",
            lambda world: world.view("spark4", facts=world.views["spark2"].facts),
            "spark2 and spark4 are one machine",
        ),
        (
            "same-driver",
            "",
            lambda world: world.view("spark3", facts=replace(world.views["spark3"].facts, kernel="6.1")),
            "on spark1, spark2 and spark4",
        ),
        (
            "equal-memory",
            "",
            lambda world: world.view("spark4", sample=smaller(world.views["spark4"].sample)),
            "on spark4 available",
        ),
    ],
)
def test_one_of_four_nodes_is_told(name: str, node: str, spoil: Any, detail: str) -> None:
    world = World(nodes=FOUR)
    spoil(world)
    found = [gate for gate in world.gates() if gate.name == name and gate.state in (WARNED, FAILED)]
    assert found, world.gates()
    assert (found[0].node, detail in found[0].detail) == (node, True), found
    assert found[0].remedy


def smaller(sample: Any) -> Any:
    return replace(sample, memory=replace(sample.memory, available_bytes=sample.memory.available_bytes // 2))


@pytest.mark.parametrize(
    ("name", "node", "state", "spoil", "detail", "remedy"),
    CASES,
    ids=[f"{row[0]}-{row[2].value}-{index}" for index, row in enumerate(CASES)],
)
def test_gate(name: str, node: str, state: State, spoil: Spoil, detail: str, remedy: str) -> None:
    world = World()
    spoil(world)
    found = [gate for gate in world.gates() if gate.name == name and gate.node == node]
    assert found, (name, node, world.gates())
    gate = next((one for one in found if detail in one.detail), found[0])
    assert gate.state is state, gate
    assert detail in gate.detail
    assert remedy in gate.remedy
    if state in (WARNED, FAILED):
        assert gate.remedy
    assert bool(gate.levers) == (state is FAILED and (name in ("name", "port") or "load_format" in gate.remedy))
    assert all(lever.text in gate.remedy for lever in gate.levers), "what a digit sets is what is said"


def test_every_gate_has_a_case_of_each_kind() -> None:
    states: dict[str, set[State]] = {}
    for name, _node, state, *_ in CASES:
        states.setdefault(name, set()).add(state)
    assert set(states) == set(catalogue.GATES)
    bad = {WARNED, FAILED}
    assert [name for name in catalogue.GATES if not states[name] & bad] == []
    never_unknown = {"secrets", "hca", "gid"}  # of these there is always an answer, or the gate before them has none
    assert [name for name in catalogue.GATES if UNKNOWN not in states[name] and name not in never_unknown] == []


def test_what_failed_is_shown_first_and_then_by_name() -> None:
    world = World()
    cable(world, rate=100.0, mtu=1500)
    world.image("spark1", image(Architecture="amd64"))
    world.silent(disk_question("spark2"))
    found = world.gates()
    states = [gate.state for gate in found]
    assert states == sorted(states, key=[FAILED, WARNED, UNKNOWN, PASSED].index)
    assert (found[0].name, found[0].state) == ("image", FAILED)
    shown = [gate.name for gate in found if gate.state is PASSED]
    assert shown == sorted(shown, key=list(catalogue.GATES).index)


def test_only_what_failed_blocks_and_a_docker_that_could_not_be_asked() -> None:
    world = World()
    world.silent(disk_question("spark2"))
    cable(world, rate=100.0)
    assert catalogue.blocking(world.gates()) == ()
    world.silent(PrivilegesQuestion(node="spark1"))
    assert [gate.name for gate in catalogue.blocking(world.gates())] == ["docker"]


def test_nothing_of_a_node_reaches_the_screen_as_it_is() -> None:
    world = World()
    evil = "x\x1b]52;c;aGk=\x07\n$(reboot)"
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[row(State="exited", Image=evil)])
    world.answers[docker.toolkit_question("spark1")] = Answer(value=evil)
    world.info("spark2", ServerVersion=evil, Runtimes={evil: {}})
    world.image("spark2", image(2, Created=evil, Architecture=evil))
    world.silent(disk_question("spark2"), f"HF_TOKEN=hf_abcdefghijklmnopqrstuv {evil}")
    for gate in world.gates():
        assert gate.detail.isprintable(), gate
        assert gate.remedy.isprintable(), gate
        assert "hf_abcdefghijklmnop" not in gate.detail + gate.remedy


@over("value", [None, 7, "text", [], {}, [None, 7], {"Id": 7}, {"Runtimes": 7, "models": 7}])
def test_an_answer_of_another_shape_is_as_none(value: Any) -> None:
    world = World()
    for ask in list(world.answers):
        world.answers[ask] = Answer(value=value)
    assert {gate.name for gate in world.gates()} >= {"docker", "image", "model", "disk", "port"}


def test_the_questions_come_in_rounds_and_end() -> None:
    world = World()
    world.image("spark2", None)
    known, world.answers = world.answers, {}
    for _ in range(5):
        if not (missing := world.questions):
            break
        for ask in missing:
            world.answers[ask] = known.get(ask, Answer(problem="no answer here"))
    assert not missing
    assert downloads.df_question("spark2", "/var/lib/docker") in world.answers
    assert all(link.ping_question(*way) in world.answers for way in world.ways())
    assert not any(link.tcp_question(*way) in world.answers for way in world.ways())


def test_a_node_without_ping_is_asked_otherwise() -> None:
    world = World()
    one, other = world.ways()[0]
    world.silent(link.ping_question(one, other), "there is no ping")
    assert link.tcp_question(one, other) in world.questions


def test_what_the_linter_would_write_is_left_out_as_the_line_is_made_from_the_recipe() -> None:
    world = World()
    steps = ("- docker run X --flag 1", "+ docker run X", "then look again")
    FOUND.append(
        Finding(
            rule="config.some",
            severity=Severity.WARNING,
            title="T",
            explanation="E",
            remedies=(Remedy(title="drop --flag", steps=steps),),
        )
    )
    assert next(iter(recipe.lint_gates(world.looked))).remedy == "drop --flag: then look again"


def test_the_linter_is_not_asked_of_what_could_not_be_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktop.operate.launch.gates.recipe.lint", lambda *_: pytest.fail("asked"))
    world = World()
    world.rendered = None
    assert next(iter(recipe.lint_gates(world.looked))).state is UNKNOWN
