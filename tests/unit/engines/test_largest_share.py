"""The largest share of memory that a machine has for an engine, and the figures of a change that are made of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests import pictures_support as made
from tests import restart_support as restarts
from tests.table import over

from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.engines.memory_target import largest_share, literal_flags
from sparktop.engines.ranks import EngineRank
from sparktop.model.change import AUTO, Change
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import NodeView


def team(*nodes: NodeView) -> list[EngineRank]:
    return [EngineRank(node=view, engine=view.engines[0]) for view in nodes]


def node(name: str = "spark1", baseline_gib: float = 100.0, **more: Any) -> NodeView:
    graphical = more.pop("is_graphical", None)
    return restarts.spark(
        name, baseline_gib=baseline_gib, available_gib=10.0, facts=made.facts(name, is_graphical=graphical), **more
    )


@over(
    "nodes, share",
    [
        ([node()], 0.63),  # (100 - 20 - 3) / 121.7
        ([node(baseline_gib=95.0)], 0.59),
        ([node(baseline_gib=90.0, is_graphical=False)], 0.61),  # a reserve of 12
        ([node(), node("spark2", baseline_gib=80.0)], 0.46),  # the poorer node decides
        ([node(baseline_gib=118.0)], 0.65),  # as much as now: a step less
    ],
)
def test_the_largest_share(nodes: list[NodeView], share: float) -> None:
    assert largest_share(team(*nodes))[0] == share


def sglang(name: str = "spark1", share: str = "0.85", **more: Any) -> NodeView:
    argv = ("python3", "-m", "sglang.launch_server", "--model-path", "M", "--mem-fraction-static", share)
    return node(name, engines=(made.engine(kind=EngineKind.SGLANG, argv=argv),), **more)


@over(
    "nodes, share, says",
    [
        ([sglang()], 0.74, "of 100.0 GiB"),  # (100 - 20 - 6) / 100
        ([sglang(), sglang("spark2", baseline_gib=80.0)], 0.67, "of 80.0 GiB"),  # the poorer decides for both
        ([sglang(share="0.99", baseline_gib=119.0, is_graphical=False)], 0.84, "6.0 GiB outside"),
    ],
)
def test_sglang_s_largest_share_is_of_what_can_be_available(nodes: list[NodeView], share: float, says: str) -> None:
    figure, note = largest_share(team(*nodes))
    assert figure == share
    assert says in note


def test_it_leaves_other_flags_alone() -> None:
    flags = {"--kv-cache-dtype": AUTO, "--gpu_memory_utilization": AUTO, "--x": None, "--y": ""}
    out, notes = literal_flags(flags, team(node()))
    assert out == {"--kv-cache-dtype": AUTO, "--gpu_memory_utilization": "0.63", "--x": None, "--y": ""}
    assert len(notes) == 1


def test_less_of_what_is_not_there() -> None:
    with pytest.raises(CannotEdit, match="no figure"):
        literal_flags({"--temperature": "-0.05"}, team(node()))
    assert literal_flags({"--gpu-memory-utilization": "-0.05"}, team(node()))[0] == {"--gpu-memory-utilization": "0.65"}


def test_more_than_what_is_there() -> None:
    assert literal_flags({"--gpu-memory-utilization": "+0.05"}, team(node()))[0] == {"--gpu-memory-utilization": "0.75"}
    with pytest.raises(CannotEdit, match="no room"):
        literal_flags({"--gpu-memory-utilization": "+0.2"}, team(node()))
    argv = ("vllm", "serve", "Qwen/Qwen3.6-35B-A3B-FP8")
    silent = node(engines=(made.engine(argv=argv, container=made.container(argv=argv)),))
    less = literal_flags({"--gpu-memory-utilization": "-0.05"}, team(silent))[0]
    assert less == {"--gpu-memory-utilization": "0.85"}, "off its version's default"


def test_a_change_of_several_layers_is_one() -> None:
    devices = [{"PathInContainer": path} for path in ("/dev/a", "/dev/b")]
    change = Change(
        options={"Devices": devices[:1], "IpcMode": "host"},
        flags={"--x": "1"},
        by_engine={"vllm": Change(flags={"--x": "2"}), "sglang": Change(flags={"--y": "3"})},
        by_node={"spark2": Change(options={"Devices": devices[1:], "IpcMode": "private"})},
    )
    assert change.for_engine("vllm", "spark1") == Change(
        options={"Devices": devices[:1], "IpcMode": "host"}, flags={"--x": "2"}
    )
    assert change.for_engine("sglang", "spark2").options == {"Devices": devices, "IpcMode": "private"}
    assert change.for_engine("sglang", "spark2").flags == {"--x": "1", "--y": "3"}
