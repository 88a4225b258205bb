"""Who started an engine, by what Docker and systemd say of it; and the share of memory a machine has for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests import pictures_support as made
from tests import restart_support as restarts
from tests.relaunch_support import engine as engine_in

from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.engines.memory_target import largest_share, literal_flags
from sparktop.engines.rank_order import TeamRank
from sparktop.model.change import AUTO, Change
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import NodeView
from sparktop.model.survey import Answer, Survey
from sparktop.operate.container import inspected as containers
from sparktop.operate.plan.origin import Origin, OriginKind, StartTool, ToolKind, origin, start_tool


def told(engine: Engine, **more: Any) -> StartTool:
    view = restarts.spark(engines=(engine,))
    box = None
    if engine.container is not None:
        ask = containers.ask("spark1", engine.container.container_id)
        survey = Survey(answers={ask: Answer(value=restarts.inspect(engine.container))})
        box = containers.inspected("spark1", engine.container.container_id, survey)
        assert box is not None
    return start_tool(engine, more.get("origin") or origin(engine, view, Survey()), box)


COMPOSE = {
    "com.docker.compose.project": "llm",
    "com.docker.compose.service": "engine",
    "com.docker.compose.project.working_dir": "/srv/llm",
    "com.docker.compose.project.config_files": "/srv/llm/a.yaml,/srv/llm/b.yaml",
    "com.docker.compose.project.environment_file": "/srv/llm/.env",
}
SLEEPS = ("sleep", "infinity")
CASES: list[tuple[dict[str, Any], ToolKind]] = [
    ({}, ToolKind.PLAIN),
    ({"labels": {"com.nvidia.version": "26.05"}}, ToolKind.PLAIN),
    ({"labels": COMPOSE}, ToolKind.COMPOSE),
    ({"labels": {"com.docker.compose.project": "llm"}}, ToolKind.PLAIN),
    ({"labels": {"sparktop.recipe": "minimax"}}, ToolKind.RECIPE),
    ({"labels": {"PODMAN_SYSTEMD_UNIT": "vllm.service"}}, ToolKind.UNIT),
    ({"name": "sparkrun_ab12cd_solo", "argv": SLEEPS}, ToolKind.SPARKRUN),
    ({"name": "sparkrun_ab12cd_node_1"}, ToolKind.SPARKRUN),
    ({"name": "vllm_node", "argv": SLEEPS, "auto_remove": True, "ipc_mode": "host", "is_privileged": True},
     ToolKind.EUGR),
    ({"name": "mine", "argv": SLEEPS}, ToolKind.EXEC),
    ({"name": "node-31415", "argv": ("bash", "-c", "ray start --block --head")}, ToolKind.RUN_CLUSTER),
]  # fmt: skip


@pytest.mark.parametrize(("box", "kind"), CASES, ids=[f"{kind.name} {index}" for index, (_, kind) in enumerate(CASES)])
def test_kinds(box: dict[str, Any], kind: ToolKind) -> None:
    starter = told(engine_in(**box))
    assert starter.kind is kind
    assert starter.evidence, "it says why"
    assert starter.is_launched == ("argv" in box or kind is ToolKind.SPARKRUN)


def test_compose_in_detail() -> None:
    starter = told(engine_in(labels=COMPOSE))
    assert (starter.project, starter.service, starter.working_dir) == ("llm", "engine", "/srv/llm")
    assert starter.config_files == ("/srv/llm/a.yaml", "/srv/llm/b.yaml")
    assert starter.environment_file == "/srv/llm/.env"


def test_a_service_wins_over_labels() -> None:
    starter = told(engine_in(labels=COMPOSE), origin=Origin(kind=OriginKind.UNIT, unit="vllm.service"))
    assert (starter.kind, starter.unit) == (ToolKind.UNIT, "vllm.service")


def test_a_bare_process() -> None:
    assert told(made.engine(container=None)).kind is ToolKind.PROCESS


# --- the share --------------------------------------------------------------------------------------------------------


def team(*nodes: NodeView) -> list[tuple[TeamRank, NodeView]]:
    return [(TeamRank(node=view.name, engine=view.engines[0]), view) for view in nodes]


def node(name: str = "spark1", baseline_gib: float = 100.0, **more: Any) -> NodeView:
    graphical = more.pop("is_graphical", None)
    return restarts.spark(
        name, baseline_gib=baseline_gib, available_gib=10.0, facts=made.facts(name, is_graphical=graphical), **more
    )


@pytest.mark.parametrize(
    ("nodes", "share"),
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


@pytest.mark.parametrize(
    ("nodes", "share", "says"),
    [
        ([sglang()], 0.74, "of 100.0 GiB"),  # (100 - 20 - 6) / 100
        ([sglang(), sglang("spark2", baseline_gib=80.0)], 0.67, "of 80.0 GiB"),  # the poorer decides for both
        ([sglang(share="0.99", baseline_gib=119.0, is_graphical=False)], 0.84, "6.0 GiB to what it takes beside"),
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


def test_newer_sparkrun_is_known_by_its_label() -> None:
    one = told(engine_in(name="sparkrun_7d7b_15b3_solo", labels={"sparkrun.cluster_id": "sparkrun_7d7b_15b3"}))
    assert (one.kind, one.evidence) == (ToolKind.SPARKRUN, ("label sparkrun.cluster_id=sparkrun_7d7b_15b3",))
