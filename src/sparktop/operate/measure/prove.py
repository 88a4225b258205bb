"""Plan the proof of an engine's endpoint: a minute of requests with content. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.cmdline.engine_argv import is_pooling, value_of
from sparktop.engines.listening import is_loopback, listen_host
from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.engines.questions import first_question
from sparktop.engines.ranks import EngineRank, is_alive
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import FleetState
from sparktop.model.proof import LONG_TOKENS, POOLING, Proof
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.container import inspected
from sparktop.operate.measure.busy import held_reason
from sparktop.operate.measure.proofs import Prove
from sparktop.operate.plan.running_rank import requested_ranks, require_all_ranks
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.sanitise import items, mapping
from sparktop.text.units import GIB

TITLES: Mapping[Proof, str] = {
    Proof.HEALTH: "Ask /health",
    Proof.ANSWER: "Ask for an answer in one piece",
    Proof.STREAM: "Ask for a streamed answer",
    Proof.TOOL_CALL: "Offer a tool, and ask for its call",
    Proof.LONG_PROMPT: f"Hide a word in {LONG_TOKENS:,} tokens, and ask for it",
    Proof.TWO_AT_ONCE: "Ask twice at once",
    Proof.WRONG_KEY: "Ask with a wrong key",
}
LIMITS_S: Mapping[Proof, float] = {
    Proof.HEALTH: 3.0,
    Proof.ANSWER: 9.0,
    Proof.STREAM: 9.0,
    Proof.TOOL_CALL: 9.0,
    Proof.LONG_PROMPT: 20.0,
    Proof.TWO_AT_ONCE: 7.0,
    Proof.WRONG_KEY: 3.0,
}
"""A minute together; the first without a token in its time ends the run."""
IDLE_LIMIT_S = 4.0
"""How long a step may take, besides, to find the engine idle."""
_REQUESTS = {Proof.TWO_AT_ONCE: 2}
"""How many requests a proof has under way, if not one: SGLang's /health asks the model, too."""
SERVING = (EngineState.READY, EngineState.SERVING)


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    """The head's container: its key, and where its port is published."""
    head = requested_ranks(request, picture)[0]
    return container_questions(head.node.name, head.engine)


def container_questions(node: str, engine: Engine) -> tuple[Question, ...]:
    """What `port_bindings` needs of the node."""
    container = engine.container
    if container is None or not inspected.is_whole_id(container.container_id):
        return ()
    return (inspected.ask(node, container.container_id),)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """A step for each proof; refused while the engine loads or is used, or where that can't be told."""
    team = requested_ranks(request, picture)
    require_all_ranks(team)
    head = team[0]
    _require_idle(head)
    node, engine = head.node.name, head.engine
    found = inspected.inspected(node, engine.container.container_id, survey) if engine.container else None
    key = found.api_key if found is not None else ""
    available_bytes = [rank.node.sample.memory.available_bytes for rank in team if rank.node.sample]
    proofs = proofs_of(engine)
    first = Prove(
        engine=engine.name,
        kind=engine.kind,
        proof=Proof.HEALTH,
        limit_s=0.0,
        floor_bytes=min(HOST_BYTES, *(max(GIB, available // 2) for available in available_bytes)),
        is_pooling=proofs == POOLING,
        is_open=is_open(engine, port_bindings(node, engine, survey)),
        api_key=key,
    )
    long = f", one of some {LONG_TOKENS:,} tokens," if Proof.LONG_PROMPT in proofs else ""
    return Plan(
        request=request,
        title=f"Prove the endpoint of {engine.name} on {node}",
        risk=Risk.SAFE,
        steps=tuple(_steps(node, first, proofs)),
        effect=(
            f"Sends {len(proofs) + 1} requests{long} within a minute, and changes nothing. Each starts only while "
            "nobody else's request runs or waits."
        ),
        equivalent=tuple(_equivalent(node, engine, has_key=bool(key))),
        secrets=(key,) if key else (),
    )


def proofs_of(engine: Engine) -> tuple[Proof, ...]:
    """What is asked of it, in order."""
    return POOLING if is_pooling(engine.argv, engine.kind) else tuple(Proof)


def _require_idle(head: EngineRank) -> None:
    engine, node = head.engine, head.node.name
    where = f"{engine.name} on {node}"
    if not is_alive(engine):
        start = f"sparktop act safe-restart {shlex.quote(node)} --engine {shlex.quote(engine.name)}"
        raise Refused(f"{where} doesn't run", (start, "or launch a recipe: sparktop launch RECIPE HOST"))
    if engine.endpoint is None or engine.state not in SERVING:
        raise Refused(f"{where} doesn't serve yet: it is {engine.state}", ("wait until it is ready, then plan again",))
    if busy := held_reason(where, engine.metrics):
        needs = engine.kind.traits.metrics_on or f"no {engine.kind.traits.metrics_off}"
        is_known = engine.metrics is not None and engine.metrics.running is not None
        remedy = "wait until they are done, then plan again" if is_known else f"it needs {needs} to tell"
        raise Refused(busy, (remedy,))


def _steps(node: str, first: Prove, proofs: Sequence[Proof]) -> Iterator[Step]:
    before = 0
    for proof in proofs:
        yield Step(
            id=f"prove-{proof.value.replace('_', '-')}",
            title=TITLES[proof],
            node=node,
            act=replace(first, proof=proof, limit_s=LIMITS_S[proof], own_requests=before),
            limit_s=LIMITS_S[proof] + IDLE_LIMIT_S,
            on_failure=OnFailure.FAIL_AT_END,
        )
        before = _REQUESTS.get(proof, 1)


def port_bindings(node: str, engine: Engine, survey: Survey) -> Mapping[str, Any] | None:
    """Docker's bindings of its container's ports; None where they aren't known."""
    value = survey.value(inspected.ask(node, engine.container.container_id)) if engine.container else None
    return mapping(mapping(value.get("NetworkSettings")).get("Ports")) if isinstance(value, Mapping) else None


def is_open(engine: Engine, ports: Mapping[str, Any] | None) -> bool:
    """Whether other machines reach its port; where the bindings of a published one aren't known, they may."""
    container = engine.container
    if container is None or container.network_mode == "host":
        return not is_loopback(listen_host(engine.argv, engine.kind))
    if ports is None:
        return bool(container.published_ports)
    bindings = [mapping(binding) for port in ports.values() for binding in items(port)]
    return any(not is_loopback(str(binding.get("HostIp") or "")) for binding in bindings)


def _equivalent(node: str, engine: Engine, *, has_key: bool) -> Iterator[str]:
    """The first two requests as a shell has them; the key is the shell's own."""
    if engine.endpoint is None:
        return
    host = f"[{engine.endpoint.host}]" if ":" in engine.endpoint.host else engine.endpoint.host
    url = f"http://{host}:{engine.endpoint.port}"
    key = ' -H "Authorization: Bearer $SPARKTOP_API_KEY"' if has_key else ""
    served = (engine.metrics.model if engine.metrics else None) or value_of(engine.argv, "--served-model-name")
    model = served or engine.model or "MODEL"
    path, asked = first_question(engine.argv, engine.kind, str(model))
    body = json.dumps({"model": model, **asked})
    yield f"on {node}: curl {url}/health"
    yield f"on {node}: curl {url}/v1/{path} -H 'Content-Type: application/json'{key} -d {shlex.quote(body)}"
