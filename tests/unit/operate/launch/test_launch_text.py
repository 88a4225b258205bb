"""Where a launch says that it serves, by what name, and how it is asked: in plan, review, run and JSON."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

from tests.table import over
from tests.unit.operate.launch.launch_support import Sparks
from tests.unit.operate.launch.test_launch import order, planned

from sparktop.documents.plan import closing_lines, plan_lines
from sparktop.documents.run import end_text, head_lines, printed_lines
from sparktop.headless.plan_data import plan_data, run_data
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import Contact
from sparktop.model.prospect import Gate
from sparktop.model.state import State
from sparktop.operate.launch.launch_text import first_request, outcome
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import Run, RunState
from sparktop.recipe.container_spec import ContainerSpec, Rendered, RenderedRank
from sparktop.text.lines import plain

SERVES = "serves Qwen/Qwen3-0.6B at http://spark1:8000/v1"
LISTENING = ("vllm", "serve", "m", "--host", "0.0.0.0")


def rendered(
    *argv: str, node: str = "spark1", name: str = "org/model", engine: EngineKind = EngineKind.VLLM
) -> Rendered:
    container = ContainerSpec(name="x", image="i", argv=())
    rank = RenderedRank(node=node, index=0, container=container, argv=argv)
    return Rendered(recipe_id="r", engine=engine, image="i", ranks=(rank,), port=8000, served_name=name)


@over(
    "node, url",
    [
        ("spark1", "http://spark1:8000/v1"),
        ("me@spark1:2222", "http://spark1:8000/v1"),
        ("ssh://me@10.0.0.5", "http://10.0.0.5:8000/v1"),
        ("[fe80::1]:22", "http://[fe80::1]:8000/v1"),
        ("local", "http://localhost:8000/v1"),
    ],
)
def test_the_host_is_called_what_the_operator_calls_it(node: str, url: str) -> None:
    made = rendered(*LISTENING, node=node)
    assert outcome(made, Contact(), has_key=False) == f"serves org/model at {url}"
    assert shlex.split(first_request(made, Contact(), has_key=False))[:2] == ["curl", f"{url}/chat/completions"]


def test_an_alias_of_ssh_is_no_name_for_curl() -> None:
    made = rendered(*LISTENING, node="spark1")
    assert outcome(made, Contact(host="10.0.0.5"), has_key=False) == "serves org/model at http://10.0.0.5:8000/v1"
    for contact in (Contact(host="10.0.0.5", via="jump"), Contact(host="127.0.0.1")):  # a tunnel, as in the demo
        assert outcome(made, contact, has_key=False) == "serves org/model at http://localhost:8000/v1 on spark1"
        assert first_request(made, contact, has_key=False).startswith("on spark1: curl http://localhost:8000/v1")


@over(
    "engine, argv",
    [(EngineKind.VLLM, ("--host", "127.0.0.1")), (EngineKind.VLLM, ("--host=localhost",)), (EngineKind.SGLANG, ())],
)
def test_what_listens_to_its_own_machine_alone_says_so(engine: EngineKind, argv: tuple[str, ...]) -> None:
    made = rendered(*argv, engine=engine)
    assert "on spark1 alone: it listens on" in outcome(made, Contact(), has_key=False)
    assert first_request(made, Contact(), has_key=False).startswith("on spark1: curl http://")


def test_tls_is_asked_over_tls() -> None:
    assert "https://spark1" in outcome(rendered(*LISTENING, "--ssl-certfile", "c"), Contact(), has_key=False)


def test_a_hostile_name_stays_one_word_of_the_line() -> None:
    name = "a'; touch x; $(id) `id`\n\x1b[31m"
    line = first_request(rendered(*LISTENING, name=name), Contact(), has_key=True)
    assert line.isprintable()
    words = shlex.split(line)
    assert json.loads(words[words.index("-d") + 1])["model"] == name


def test_a_plan_says_where_it_will_serve_and_a_run_that_it_does() -> None:
    plan = planned(Sparks(), order())
    assert plan.outcome == SERVES
    assert any("Result: serves Qwen/Qwen3-0.6B at" in line.plain for line in plan_lines(plan, 200))
    assert plan_data(plan)["outcome"] == SERVES
    assert SERVES in plain(plan_lines(plan, 200, is_printed=True))
    run = Run(id="1", plan=plan, state=RunState.DONE, message="Done in 1:00.")
    assert any(line.plain.split() == SERVES.split() for line in head_lines(run, 80, 0.0, limit=9))
    assert SERVES in end_text(run)
    for has_steps in (False, True):
        text = plain(printed_lines(run, 100, has_steps=has_steps))
        assert SERVES.split() in [line.split() for line in text.splitlines()]
        assert text.endswith(f"\n{plan.outcome_command}")
    assert run_data(run)["outcome"] == SERVES


@over("state", [state for state in RunState if state is not RunState.DONE])
def test_a_run_that_did_not_go_well_serves_nothing(state: RunState) -> None:
    run = Run(id="1", plan=planned(Sparks(), order()), state=state, message="x")
    shown = [*(line.plain for line in head_lines(run, 80, 0.0)), end_text(run)]
    shown += [plain(printed_lines(run, 100, has_steps=has_steps)) for has_steps in (False, True)]
    assert "http://" not in "\n".join(shown)
    assert "outcome" not in run_data(run)


def test_the_key_is_named_and_never_written() -> None:
    secret = "geheim-und-lang-1"
    plan = planned(Sparks(), order(secrets={"VLLM_API_KEY": secret}))
    assert plan.outcome == f"{SERVES}, key: as VLLM_API_KEY"
    assert "Authorization" in plan.outcome_command
    assert secret not in plan.outcome_command
    assert secret not in "\n".join([plain(plan_lines(plan, 100, is_printed=True)), json.dumps(plan_data(plan))])


def test_a_plan_without_an_outcome_says_nothing_of_it() -> None:
    plan: Plan = replace(planned(Sparks(), order()), outcome="", outcome_command="")
    assert "outcome" not in plan_data(plan)
    assert not any("Result: " in line.plain for line in plan_lines(plan, 200))


def test_what_decides_stands_at_the_end_where_the_question_is() -> None:
    gate = Gate(name="image", node="spark1", state=State.WARNING, detail="it is pulled first")
    plan = planned(Sparks(), order())
    assert plan.prospect is not None
    plan = replace(
        plan, warnings=("vllm-old is stopped", gate.sentence), prospect=replace(plan.prospect, gates=(gate,))
    )
    printed = plan_lines(plan, 100, is_printed=True)
    *_, begun, ended, risk, warning = [line.plain for line in printed]
    assert "reserved" in f"{begun} {ended}", "the end of the verdict's sentence"
    assert risk.startswith("✓ safe")
    assert warning == "▲ vllm-old is stopped"
    assert [line.plain for line in closing_lines(plan, 100)] == [risk, warning]
    assert "\n".join(line.plain for line in printed).count("it is pulled first") == 1
