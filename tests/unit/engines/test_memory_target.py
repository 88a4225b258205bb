"""How much memory must be available before an engine is started."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import pictures_support as made
from tests.recipe_support import SHIPPED, seats_for, shipped
from tests.restart_support import spark
from tests.table import over

from sparktop.engines.memory_needs import HOST_BYTES, PROCESSES_BYTES, overhead_bytes, overhead_of
from sparktop.engines.memory_target import (
    SLACK_BYTES,
    asked_bytes,
    gib_option,
    memory_target,
    reachable_bytes,
    share_flags,
)
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.render import render
from sparktop.recipe.weigh.settings import read

GIB = made.GIB
RESERVE = PROCESSES_BYTES + HOST_BYTES


def share(value: str, **more: object):
    return made.engine(argv=("vllm", "serve", "M", "--gpu-memory-utilization", value), **more)


def test_it_is_what_the_engine_asks_for_and_a_reserve() -> None:
    engine = share("0.70")
    target = memory_target(engine, spark(engines=(engine,)))
    assert target is not None
    assert target.asked_bytes == int(0.70 * made.TOTAL_BYTES)
    assert target.target_bytes == target.asked_bytes + RESERVE
    assert "--gpu-memory-utilization 0.7 of 121.7 GiB" in target.sentence
    assert target.warnings == ()


@over(
    "argv, image, version, beside_gib",
    [
        (("vllm", "serve", "M"), "nvcr.io/nvidia/vllm:26.05.post1-py3", None, 3),  # 0.21 counts its graphs
        (("vllm", "serve", "M"), "me/vllm:mine", "0.21.0", 3),
        (("vllm", "serve", "M"), "me/vllm:mine", "0.19.0", 6),
        (("vllm", "serve", "M"), "me/vllm:mine", None, 6),
        (("vllm", "serve", "M", "--enforce-eager"), "me/vllm:mine", None, 3),
        (("vllm", "serve", "M", "-cc.cudagraph_mode", "NONE"), "me/vllm:mine", None, 3),
        (("vllm", "serve", "M", "--compilation-config", '{"cudagraph_mode":"none"}'), "me/vllm:mine", None, 3),
        (("sglang.launch_server",), "lmsysorg/sglang:v0.5.12", "0.5.12", 6),
        (("sglang.launch_server", "--disable-cuda-graph"), "lmsysorg/sglang:v0.5.12", None, 3),
    ],
)
def test_what_it_takes_beside_its_share(argv, image, version, beside_gib) -> None:
    kind = EngineKind.SGLANG if "sglang" in argv[0] else EngineKind.VLLM
    engine = made.engine(kind=kind, argv=argv, version=version, container=made.container(image=image))
    assert overhead_of(engine) == beside_gib * GIB
    target = memory_target(engine, spark(engines=(engine,)))
    assert target is not None
    said = " ".join((target.sentence, *target.warnings))
    assert f"{beside_gib}.0 GiB more for {'graphs and' if beside_gib > 3 else 'its'} processes" in said


@over("name", SHIPPED)
def test_a_restart_counts_beside_the_share_what_the_launch_of_it_did(name: str) -> None:
    recipe = shipped(name)
    order = Order(recipe=recipe)
    rendered = render(resolve(order), seats_for(recipe))
    said = read(resolve(order))
    box = made.container(image=rendered.image)
    engine = made.engine(kind=recipe.engine, argv=rendered.head.argv, version=None, container=box)
    assert overhead_of(engine) == overhead_bytes(has_graphs=said.has_graphs, counts_graphs=said.counts_graphs)


def test_it_is_never_above_what_the_machine_had_after_its_boot() -> None:
    engine = share("0.85")
    target = memory_target(engine, spark(engines=(engine,), baseline_gib=108.0))
    assert target is not None
    assert target.target_bytes == 108 * GIB - SLACK_BYTES
    assert "little left" in target.warnings[0]
    assert "110.4 GiB" in target.warnings[0]


def test_what_the_engine_s_own_check_wants_is_waited_for_while_it_can_be_had() -> None:
    engine = share("0.90")  # 109.5 GiB
    target = memory_target(engine, spark(engines=(engine,), baseline_gib=111.0))
    assert target is not None
    assert target.target_bytes == target.asked_bytes
    assert "little left" in target.warnings[0]


def test_what_it_asks_for_and_no_machine_has_is_said() -> None:
    engine = share("0.95")
    target = memory_target(engine, spark(engines=(engine,), baseline_gib=100.0))
    assert target is not None
    assert target.target_bytes == 96 * GIB
    assert "will probably fail" in target.warnings[0]
    assert "relaunch with --gpu-memory-utilization" in target.warnings[0]


def test_without_a_baseline_it_is_what_is_there_and_what_it_holds() -> None:
    engine = share("0.90", gpu_bytes=60 * GIB)
    node = spark(engines=(engine,), baseline_gib=None, available_gib=40.0)
    reachable = reachable_bytes(engine, node)
    assert reachable is not None
    assert 100 * GIB <= reachable < 110 * GIB  # its processes' own memory too
    target = memory_target(engine, node)
    assert target is not None
    assert target.target_bytes == reachable - SLACK_BYTES


def test_what_other_engines_hold_is_not_expected_back() -> None:
    engine, other = share("0.30", gpu_bytes=20 * GIB), made.engine("other", gpu_bytes=30 * GIB, pids=(999,))
    node = spark(engines=(engine, other), available_gib=20.0)
    reachable = reachable_bytes(engine, node)
    assert reachable is not None
    assert 116 * GIB - reachable >= 30 * GIB


@over(
    "argv, version, expected",
    [
        (("vllm", "serve", "M"), "0.19.0", 0.90),
        (("vllm", "serve", "M"), "0.33.0", 0.92),
        (("vllm", "serve", "M", "--gpu_memory_utilization=0.5"), "0.33.0", 0.5),
        (("vllm", "serve", "M", "--gpu-memory-utilization", "lots"), "0.19.0", 0.90),
    ],
)
def test_share_that_is_not_told_is_the_version_s_default(argv, version, expected) -> None:
    engine = made.engine(argv=argv, version=version)
    size, why = asked_bytes(engine, spark(engines=(engine,)))
    assert size == int(expected * made.TOTAL_BYTES)
    assert ("(its default)" in why) == (len(argv) == 3)


def test_sglang_s_share_is_of_what_can_be_available_and_has_its_own_name() -> None:
    argv = ("python3", "-m", "sglang.launch_server", "--mem-fraction-static", "0.75")
    engine = made.engine(kind=EngineKind.SGLANG, argv=argv)
    size, why = asked_bytes(engine, spark(engines=(engine,), baseline_gib=108.0))
    assert size == int(0.75 * 108 * GIB)
    assert "--mem-fraction-static 0.75" in why
    assert "108.0 GiB" in why


def test_sglang_s_share_is_of_all_memory_where_nothing_tells_what_can_be_available() -> None:
    argv = ("python3", "-m", "sglang.launch_server", "--mem-fraction-static", "0.75")
    engine = made.engine(kind=EngineKind.SGLANG, argv=argv, gpu_bytes=None, pids=())
    size, why = asked_bytes(engine, spark(engines=(engine,), baseline_gib=None))
    assert size == int(0.75 * made.TOTAL_BYTES)
    assert why == "--mem-fraction-static 0.75 of 121.7 GiB"


def test_cache_in_bytes_names_only_a_part_so_what_it_held_counts() -> None:
    engine = made.engine(argv=("vllm", "serve", "M", "--kv-cache-memory-bytes", "20G"), gpu_bytes=50 * GIB)
    size, why = asked_bytes(engine, spark(engines=(engine,)))
    assert 50 * GIB <= size < 60 * GIB
    assert why.startswith("what it held")


def test_own_figure_wins_and_is_warned_of() -> None:
    engine = share("0.70")
    node = spark(engines=(engine,))
    low = memory_target(engine, node, wanted_bytes=20 * GIB)
    high = memory_target(engine, node, wanted_bytes=120 * GIB)
    assert low is not None
    assert high is not None
    assert (low.target_bytes, high.target_bytes) == (20 * GIB, 120 * GIB)
    assert "85.2 GiB" in low.warnings[0]
    assert "116.0 GiB" in high.warnings[0]


def test_node_without_a_sample_has_no_target() -> None:
    assert memory_target(share("0.7"), made.node(sample=None)) is None


def test_size_in_gib_is_read() -> None:
    assert gib_option("") is None
    assert gib_option("96") == 96 * GIB
    assert gib_option("96.5") == int(96.5 * GIB)


@given(st.text(max_size=12))
def test_any_other_text_is_told_and_never_taken(text: str) -> None:
    try:
        size = gib_option(text)
    except ValueError:
        return
    assert size is None or GIB <= size <= 9999 * GIB


def test_what_is_no_size_says_what_is_wanted() -> None:
    with pytest.raises(ValueError, match="is not a size in GiB"):
        gib_option("lots")


@given(st.text(max_size=20))
def test_hostile_arguments_leave_a_target(text: str) -> None:
    for flag in ("--gpu-memory-utilization", "--kv-cache-memory-bytes"):
        engine = made.engine(argv=("vllm", "serve", "M", flag, text))
        target = memory_target(engine, NODE)
        assert target is not None
        assert 0 < target.target_bytes <= made.TOTAL_BYTES


NODE = spark()


@over(
    "kinds, named",
    [
        ((), {"--gpu-memory-utilization", "--mem-fraction-static"}),
        ((EngineKind.VLLM, EngineKind.ATLAS), {"--gpu-memory-utilization"}),
        ((EngineKind.SGLANG,), {"--mem-fraction-static"}),
    ],
)
def test_a_flag_that_two_engines_have_is_named_once(kinds: tuple[EngineKind, ...], named: set[str]) -> None:
    flags = share_flags(kinds).split(" or ")
    assert set(flags) == named
    assert len(flags) == len(named)
