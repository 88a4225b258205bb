"""The endpoint's rows: what a run of proofs has shown, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

from tests.bringup_support import Desk, view
from tests.pictures_support import WALL_S, engine
from tests.table import over
from tests.unit.bringup.endpoint_cases import ENDPOINT, HEALTHY, proof_run
from tests.unit.diagnose.rules import pair_support as pair

from sparktop.bringup.catalogue import BY_ID, measured
from sparktop.bringup.measurements.endpoint import CARDS as ALL
from sparktop.bringup.measurements.endpoint import judged
from sparktop.model.engine import EngineKind
from sparktop.model.proof import Proof, Verdict
from sparktop.model.state import State
from sparktop.operate.step.run import Run

CARDS = [card for card in ALL if card.measured_by]


@over("check, state, said, run", ENDPOINT)
def test_a_run_makes_its_row(check: str, state: State, said: str, run: Run) -> None:
    card = BY_ID[check]
    assert card.judge is not None
    outcome = card.judge(run, ("spark1",))
    assert outcome is not None
    assert (outcome.state, said in outcome.found) == (state, True), outcome.found
    assert bool(outcome.remedies) is (state is not State.PASSED)


def test_every_check_has_a_row_that_passed_and_one_that_did_not() -> None:
    for card in CARDS:
        states = {state for check, state, _, _ in ENDPOINT if check == card.id}
        assert State.PASSED in states, card.id
        assert len(states) > 1, card.id


def test_every_verdict_is_judged() -> None:
    for verdict in Verdict:
        outcome = judged(proof_run((Proof.STREAM, verdict, "said")), Proof.STREAM)
        assert outcome is not None
        assert bool(outcome.remedies) is (outcome.state is not State.PASSED), verdict


def test_what_was_not_measured_leaves_no_row() -> None:
    run = proof_run(HEALTHY, (Proof.ANSWER, None, "vllm-qwen36 holds 1 request: nothing was measured"))
    assert [card.id for card in CARDS if card.judge is not None and card.judge(run, ("spark1",))] == []


def test_each_engine_s_flags_are_its_own() -> None:
    shown = (Proof.TOOL_CALL, Verdict.NO_PARSER, "it takes no tools")
    for kind, flags in (
        (EngineKind.VLLM, "--flag=--enable-auto-tool-choice --flag=--tool-call-parser=NAME"),
        (EngineKind.SGLANG, "--flag=--tool-call-parser=NAME"),
    ):
        outcome = judged(proof_run(shown, kind=kind), Proof.TOOL_CALL)
        assert outcome is not None
        assert outcome.remedies[0].steps == (f"sparktop act relaunch spark1 --engine vllm-qwen36 {flags}",)


def test_a_whole_run_makes_a_row_of_each_check() -> None:
    desk = Desk()
    desk.views["spark1"] = view(engines=(engine(),))
    run = proof_run(*((proof, Verdict.OK, "well") for proof in Proof))
    rows = measured(run, desk.picture, now_wall_s=WALL_S)
    assert [(row.check, row.subject, row.state) for row in rows] == [
        (card.id, "vllm-qwen36", State.PASSED) for card in CARDS
    ]
    assert all(set(row.basis) == {"spark1 boot", "spark1 engine"} and all(row.basis.values()) for row in rows)
    others = replace(run, plan=replace(run.plan, request=replace(run.plan.request, target="another")))
    assert measured(others, desk.picture, now_wall_s=WALL_S) == ()


def test_a_model_that_writes_no_text_is_not_asked_for_any() -> None:
    desk = Desk()
    desk.views["spark1"] = view(engines=(engine(argv=("vllm", "serve", "m", "--runner", "pooling")),))
    states = {check: row.state for check in (card.id for card in CARDS) for row in desk.rows(check)}
    assert [check for check, state in states.items() if state is State.SKIPPED] == [
        *("endpoint.stream", "endpoint.tools", "endpoint.long-prompt"),
    ]


def test_a_server_of_two_nodes_has_one_row_that_either_rank_s_restart_ends() -> None:
    desk = Desk()
    desk.views |= {"spark1": pair.spark(1), "spark2": pair.spark(2)}
    run = proof_run(*((proof, Verdict.OK, "well") for proof in Proof))
    request = replace(run.plan.request, nodes=("spark1", "spark2"), target="big-rank0")
    desk.runs = (replace(run, plan=replace(run.plan, request=request)),)
    (row,) = desk.rows("endpoint.answer")
    assert (row.nodes, row.subject, row.is_kept) == (("spark1", "spark2"), "big-rank0", True)
    assert set(row.basis) == {f"{node} {what}" for node in row.nodes for what in ("boot", "engine")}
    kept = desk.kept
    desk.runs = ()
    desk.views["spark2"] = pair.spark(2, engines=(pair.rank(1, held=replace(pair.box(1), started_wall_s=WALL_S)),))
    (row,) = desk.rows("endpoint.answer", kept=kept)
    assert (row.state, row.is_kept) == (State.UNKNOWN, False)
    worker = next(row for row in desk.rows("endpoint.served") if row.nodes == ("spark2",))
    assert worker.found == "holds a rank of big-rank0: spark1 serves"
