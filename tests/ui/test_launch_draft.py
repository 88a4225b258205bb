"""What is chosen of a launch: nodes, parameters by any of their names, levers, engines that may be stopped."""

from __future__ import annotations

import shlex
from dataclasses import replace

from tests.pictures_support import idle_node
from tests.table import over
from tests.ui import launches, pictures
from tests.ui.launches import GPT, MINIMAX, MISTRAL, QWEN
from tests.ui.look import clock_of_pictures

from sparktop.cmdline.engine_command import with_argv
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Lever
from sparktop.model.recipe import Order
from sparktop.ui.screens.launch_choices import LaunchState, rows
from sparktop.ui.screens.launch_draft import Draft, applied, first_draft, node_choices, parameters, stoppables


def fleet() -> FleetState:
    return pictures.decode(clock_of_pictures())


def test_it_begins_where_the_operator_is_and_on_as_many_nodes_as_it_needs() -> None:
    assert first_draft(QWEN, fleet(), at="spark2").nodes == ("spark2",)
    assert first_draft(QWEN, fleet()).nodes == ("spark1",)
    assert first_draft(MINIMAX, fleet(), at="spark2").nodes == ("spark1", "spark2"), (
        "the first is the head, as it is named"
    )


def test_the_places_are_within_its_least_and_most_nodes() -> None:
    both = (("spark1", "spark2"), ("spark2", "spark1"))
    assert node_choices(QWEN, fleet()) == (("spark1",), ("spark2",))
    assert node_choices(MINIMAX, fleet()) == both
    assert node_choices(MISTRAL, fleet()) == (("spark1",), ("spark2",), *both)
    assert node_choices(MINIMAX, pictures.one(clock_of_pictures())) == ()


def test_of_many_nodes_neighbours_are_the_places_each_once_as_head() -> None:
    seen = FleetState(nodes=tuple(idle_node(f"spark{number}") for number in range(1, 9)))
    many = replace(MINIMAX, min_nodes=2, max_nodes=8, defaults={**MINIMAX.defaults, "tensor_parallel": 4})
    assert len(first_draft(many, seen).nodes) == 4
    assert len(first_draft(replace(many, max_nodes=2), seen).nodes) == 2
    found = node_choices(many, seen)
    assert len(found) == 7 * 8
    assert ("spark7", "spark8", "spark1", "spark2") in found
    draft = first_draft(many, seen)
    (row,) = (row for row in rows(LaunchState(draft=draft, fleet=seen, answer=None, is_planning=False, secrets={}), 100)
              if row.draft == draft and row.kind == "node")  # fmt: skip
    assert "spark1 (head), spark2, spark3 and spark4   at least 116.0 GiB available" in row.lines[0].plain


def test_a_parameter_has_one_value_by_whatever_name() -> None:
    draft = first_draft(MISTRAL, fleet()).set("mem_fraction_static", "0.7").set("gpu_memory_utilization", " 0.6 ")
    assert draft.values == {"gpu_memory_utilization": "0.6"}
    assert draft.value("mem_fraction_static") == "0.6"
    assert draft.set("mem_fraction_static", " ").values == {}
    assert draft.value("context_length") == "65536"
    assert draft.value("model") == MISTRAL.model
    assert draft.value("name") == "sglang-mistral-small-4-119b-nvfp4", "as the container is named"


def test_those_that_matter_come_first_as_the_engine_spells_them() -> None:
    first, others = parameters(first_draft(QWEN, fleet()))
    assert first == ("model", "container", "port", "max_model_len", "gpu_memory_utilization", "tensor_parallel", "name")
    assert others == ("host", "max_num_seqs", "reasoning_parser")
    first, others = parameters(first_draft(MISTRAL, fleet()))
    assert first == ("model", "container", "port", "context_length", "mem_fraction_static", "name")
    assert others == ()


def test_nothing_is_stopped_but_what_has_the_same_port_or_name_until_it_is_said() -> None:
    draft = first_draft(QWEN, fleet())
    (running,) = stoppables(fleet(), ("spark1",))
    assert running.port == 8000
    assert draft.conflict(running, {}) == "the same port"
    assert [engine for _, engine in draft.stops(fleet(), {})] == ["vllm-minimax"] * len(running.stops)
    other = draft.set("port", "8001")
    assert other.stops(fleet(), {}) == ()
    assert other.stopping("vllm-minimax", True).stops(fleet(), {}) == running.stops
    assert draft.stopping("vllm-minimax", False).stops(fleet(), {}) == ()
    assert other.conflict(running, {"name": "vllm-minimax"}) == "the same name"


def test_ranks_of_one_engine_go_together() -> None:
    state = fleet()
    argv = ("vllm", "serve", "m", "--nnodes", "2", "--tensor-parallel-size", "2")
    nodes = []
    for number, view in enumerate(state.nodes):
        engine = with_argv(view.engines[0], (*argv, "--node-rank", str(number)))
        engine = replace(engine, metrics=None, endpoint=None) if number else engine
        nodes.append(replace(view, engines=(engine,)))
    (one,) = stoppables(FleetState(nodes=tuple(nodes)), ("spark1",))
    assert one.nodes == ("spark1", "spark2")
    assert all(held is not None for held in one.held_bytes.values())


@over(
    "lever, words",
    [
        (
            Lever(values={"max_model_len": "32768"}, stops=("a", "b c")),
            "--set max_model_len=32768 --stop a --stop 'b c'",
        ),
        (Lever(values={"model": "/srv/a b=c"}), "--set 'model=/srv/a b=c'"),
        (Lever(values={"a": "1; reboot"}), "--set 'a=1; reboot'"),
    ],
)
def test_a_lever_is_shown_as_it_would_be_typed(lever: Lever, words: str) -> None:
    typed = shlex.split(lever.text)
    assert typed == shlex.split(words)
    assert lever.can_be_applied


def test_what_is_only_words_sets_nothing() -> None:
    only_words = Lever(words="--set port=8001")
    assert not only_words.can_be_applied
    assert applied(first_draft(GPT, fleet()), only_words, fleet()) == first_draft(GPT, fleet())


def test_applying_a_lever_sets_what_it_says() -> None:
    one = Lever(values={"gpu_memory_utilization": "0.52"}, stops=("vllm-minimax",))
    draft = applied(first_draft(GPT, fleet()).set("port", "8001"), one, fleet())
    assert draft.values == {"port": "8001", "gpu_memory_utilization": "0.52"}
    assert draft.decided == {"vllm-minimax": True}
    two = Lever(values={"tensor_parallel": "2"}, nodes=2, words="on another Spark too")
    assert applied(first_draft(MISTRAL, fleet(), at="spark2"), two, fleet()).nodes == ("spark2", "spark1")


def test_the_order_and_the_command_say_the_same_and_the_command_no_secret() -> None:
    draft = first_draft(GPT, fleet()).set("port", "8001").stopping("vllm-minimax", True)
    draft = draft.with_secret("HF_TOKEN", "hf_hunter2hunter2")
    request = draft.request(fleet(), {})
    assert request.order is not None
    assert request.action == "launch"
    assert request.nodes == ("spark1",)
    assert request.order.values == {"port": "8001"}
    assert request.order.secrets == {"HF_TOKEN": "hf_hunter2hunter2"}
    assert request.order.hub == "https://huggingface.co"
    assert draft.typed(fleet(), {}) == "sparktop launch gpt-oss-120b spark1 --set port=8001 --stop vllm-minimax"
    assert "hunter2" not in repr(draft)
    assert (
        replace(draft, order=replace(draft.order, hub="http://127.0.0.1:1")).request(fleet(), {}).order.hub
        == "http://127.0.0.1:1"
    )  # type: ignore[union-attr]


def test_a_draft_is_never_changed() -> None:
    draft = Draft(order=Order(recipe=launches.QWEN), nodes=("spark1",))
    draft.set("port", "1")
    draft.stopping("x", True)
    assert draft == Draft(order=Order(recipe=launches.QWEN), nodes=("spark1",))
