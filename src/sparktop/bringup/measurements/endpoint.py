"""Endpoint: what a minute of requests with content has shown of each engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from sparktop.bringup.card import (
    Basis,
    Card,
    CheckInputs,
    Nodes,
    Outcome,
    Scope,
    by_action,
    by_hand,
    card,
    not_measured,
    outcome,
    passed,
    skipped,
    target_of,
    unknown,
)
from sparktop.checks.judgement import SEVERITY_ORDER
from sparktop.engines.ranks import EngineRank, teams
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.finding import Remedy
from sparktop.model.fleet import FleetState
from sparktop.model.proof import Proof, Verdict
from sparktop.model.state import State
from sparktop.model.survey import Question
from sparktop.operate.measure.proofs import Prove
from sparktop.operate.measure.prove import SERVING, container_questions, is_open, port_bindings, proofs_of
from sparktop.operate.serve.sites import names_by_port, sites_question, statements
from sparktop.operate.step.run import Run, StepRun

ACTION = "prove-endpoint"
_STATES: Mapping[Verdict, State] = {
    **dict.fromkeys((Verdict.OK, Verdict.REASONED, Verdict.NO_TEXT, Verdict.LOCAL), State.PASSED),
    **dict.fromkeys((Verdict.DENIED, Verdict.THINKS_ALOUD, Verdict.SLOW, Verdict.IN_ONE_PIECE), State.WARNING),
    **dict.fromkeys((Verdict.NO_PARSER, Verdict.NO_CALL, Verdict.TOO_SHORT, Verdict.OPEN), State.WARNING),
}
"""Any other has failed."""


def _state(verdict: Verdict) -> State:
    return _STATES.get(verdict, State.FAILED)


def judged(run: Run, *proofs: Proof) -> Outcome | None:
    """The row of these proofs, the last of which it is about; None where that was not measured and none failed."""
    shown = [
        (step_run, step_run.step.act, Verdict(str(step_run.figures[step_run.step.act.proof])))
        for step_run in run.steps
        if isinstance(step_run.step.act, Prove)
        and step_run.step.act.proof in proofs
        and step_run.step.act.proof in step_run.figures
    ]
    if not shown:
        return None
    state = max((_state(verdict) for _, _, verdict in shown), key=SEVERITY_ORDER.index)
    if state is not State.FAILED and proofs[-1] not in {act.proof for _, act, _ in shown}:
        return None
    found = "; ".join(f"{_label(act)}{step_run.detail}" for step_run, act, _ in shown)
    remedies = [
        remedy
        for step_run, act, verdict in shown
        if _state(verdict) is state
        for remedy in _remedies(verdict, act, step_run)
    ]
    return outcome(state, found, *dict.fromkeys(remedies))


def _label(act: Prove) -> str:
    return "/health " if act.proof is Proof.HEALTH else ""


_RELAUNCH = "sparktop act relaunch {where}"
_BY_HAND: Mapping[Verdict, tuple[str, ...]] = {
    Verdict.THINKS_ALOUD: (
        "Relaunch it with the reasoning parser that the model's card names",
        f"{_RELAUNCH} --flag=--reasoning-parser=NAME",
    ),
    Verdict.NO_PARSER: (
        "Relaunch it with the tool parser that the model's card names",
        f"{_RELAUNCH} {{tool_flags}}",
    ),
    Verdict.NO_CALL: ("Check the model's card: whether it calls tools, and with which chat template",),
    Verdict.SLOW: (
        "Look at the GPU's clock and power while it decodes, and at what else uses the node",
        "on {node}: nvidia-smi -q -d CLOCK,POWER",
    ),
    Verdict.IN_ONE_PIECE: ("Look for --stream-interval, or for a wrapper in its container that buffers",),
    Verdict.TOO_SHORT: ("Relaunch it with a longer context", f"{_RELAUNCH} --flag=--max-model-len=32768"),
    Verdict.NOT_FOUND: ("Check what stretches or shrinks its context: rope scaling, KV cache quantisation",),
    Verdict.OPEN: ("Let it require a key", f"{_RELAUNCH} --env VLLM_API_KEY"),
    Verdict.DENIED: ("Give sparktop its key, and measure again", "export SPARKTOP_API_KEY=..."),
}
"""Verdict -> the remedy's title and its steps."""


def _remedies(verdict: Verdict, act: Prove, step_run: StepRun) -> Iterator[Remedy]:
    if _state(verdict) is State.PASSED:
        return
    if verdict not in _BY_HAND:
        yield by_action("safe-restart", "Look at its log (l in the console), then restart it")
        return
    if verdict is not Verdict.OPEN or act.kind is not EngineKind.SGLANG:  # whose key every user of the node can read
        node = step_run.step.node
        where = f"{shlex.quote(node)} --engine {shlex.quote(act.engine)}"
        flags = act.kind.traits.tool_flags.replace(" NAME", "=NAME").split()
        tool_flags = " ".join(f"--flag={flag}" for flag in flags)
        title, *steps = _BY_HAND[verdict]
        yield by_hand(title, *(step.format(where=where, node=node, tool_flags=tool_flags) for step in steps))
    if verdict is Verdict.OPEN:
        yield by_action("expose", "Let a proxy require a key; then let the engine listen on 127.0.0.1")


def _card(name: str, *proofs: Proof) -> Card:
    def judge(run: Run, nodes: Nodes) -> Outcome | None:
        return judged(run, *proofs)

    def look(seen: CheckInputs) -> Outcome:
        if proofs[-1] not in proofs_of(_head(seen).engine):
            return skipped("it serves embeddings or scores, and writes no text")
        return unmeasured(seen)

    unmeasured = not_measured(ACTION, "Prove it: a minute of requests, while nobody else uses it")
    return card(
        f"endpoint.{name}",
        look=look,
        measured_by=ACTION,
        judge=judge,
        scope=Scope.ENGINE,
        basis=(Basis.BOOT, Basis.ENGINE),
    )


# --- what serves


def _heads(picture: FleetState, node: str) -> list[Engine]:
    """The engines that run on the node and answer there."""
    return [team[0].engine for team in teams(picture) if team[0].node.name == node]


def _served(seen: CheckInputs) -> Outcome:
    node = seen.node
    heads = _heads(seen.picture, node)
    serving = [engine for engine in heads if engine.endpoint is not None and engine.state in SERVING]
    if serving:
        return passed("; ".join(f"{engine.name} serves {engine.model or 'a model'}" for engine in serving))
    if heads:
        return unknown("; ".join(f"{engine.name} is {engine.state}" for engine in heads))
    ranks = [team[0] for team in teams(seen.picture) if any(rank.node.name == node for rank in team)]
    if ranks:
        return skipped("; ".join(f"holds a rank of {head.engine.name}: {head.node.name} serves" for head in ranks))
    if teams(seen.picture):
        return skipped("no engine runs here")
    return skipped("no engine runs yet", by_action("launch", "Launch a recipe: it ends with a served model"))


def _head(seen: CheckInputs) -> EngineRank:
    """The head of the engine that the row is about."""
    return next(team[0] for team in teams(seen.picture) if target_of(team, seen.picture) == seen.target)


def _reached_questions(seen: CheckInputs) -> tuple[Question, ...]:
    head = _head(seen)
    return (*container_questions(head.node.name, head.engine), sites_question(head.node.name))


def _reached(seen: CheckInputs) -> Outcome:
    head = _head(seen)
    engine, node = head.engine, head.node.name
    if engine.endpoint is None:
        return skipped(f"it has no endpoint yet: it is {engine.state}")
    if is_open(engine, port_bindings(node, engine, seen.survey)):
        return passed(f"other machines reach port {engine.endpoint.port}")
    if (site := names_by_port(statements(seen.text(sites_question(node)))).get(engine.endpoint.port)) is not None:
        return passed(f"{site} leads to it, by a proxy on {node}")
    expose = by_action("expose", "Serve it to others, with a key")
    return passed(f"only {node} reaches port {engine.endpoint.port}", expose)


CARDS = (
    card("endpoint.served", look=_served),
    card("endpoint.reach", look=_reached, questions=_reached_questions, scope=Scope.ENGINE),
    _card("answer", Proof.HEALTH, Proof.ANSWER),
    _card("stream", Proof.STREAM),
    _card("tools", Proof.TOOL_CALL),
    _card("long-prompt", Proof.LONG_PROMPT),
    _card("parallel", Proof.TWO_AT_ONCE),
    _card("key", Proof.WRONG_KEY),
)
