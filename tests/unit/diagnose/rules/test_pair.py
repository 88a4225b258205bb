"""What two nodes must share before and while one engine runs over both: each rule fires on its signals only.

Field reports 002 and 003 (two-node configuration; memory of two nodes apart; a rank that ends).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import NOW_S, gib, link, memory, node, process
from tests.table import over
from tests.unit.diagnose.rules.pair_support import (
    RULES,
    bare,
    box,
    dead,
    fabric,
    facts,
    found,
    loading,
    picture,
    rank,
    shown,
    spark,
)

from sparktop.model.engine import EngineKind, Served
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Remedy
from sparktop.model.fleet import FleetState, Intervention, LinkState, NodeView, Trend
from sparktop.model.telemetry import GpuProcess, ProcessTable

PAIR = picture(spark(1), spark(2))
BARE = picture(bare(1), bare(2))
LOADING = picture(spark(1, engines=(loading(0),)), spark(2, engines=(loading(1),)))


@over(
    "fleet",
    [
        PAIR,
        BARE,
        LOADING,
        picture(),
        picture(node("spark1")),
        FleetState(),
        picture(bare(1), spark(2)),
        picture(spark(1, facts=None, network=None), spark(2, facts=None, network=None)),
        picture(spark(1, sample=None), spark(2)),
        picture(spark(1, gpu=None, processes=None, ledger=None), spark(2, gpu=None, processes=None, ledger=None)),
    ],
    ids=["pair", "bare", "loading", "unrelated", "one", "none", "half", "unread", "unsampled", "blind"],
)
def test_well_pairs_are_silent(fleet: FleetState) -> None:
    assert found(fleet) == {}


def test_every_finding_says_what_to_do_and_is_listed() -> None:
    listed = {rule.id: rule.card for rule in RULES}
    assert len(listed) == len(RULES)
    assert all(rule.card.sources and rule.card.scope for rule in RULES)
    for fleet in TROUBLED:
        for one in found(fleet).values():
            card = listed[one.rule]
            order = [Severity.INFO, Severity.WARNING, Severity.CRITICAL]
            assert order.index(one.severity) <= order.index(card.severity), one.rule
            assert all((one.title, one.explanation, one.evidence, one.remedies, one.references, one.brief)), one.rule
            assert one.confidence is Confidence.CONFIRMED or one.settles
            assert set(one.nodes) <= {"spark1", "spark2"}
            assert "facts" not in " ".join(one.references)


# --- software


@over(
    "rule, fact, values, severity",
    [
        ("driver-differs", "driver_version", ("580.142", "580.159.03"), Severity.WARNING),
        ("kernel-differs", "kernel", ("6.17.0-1026-nvidia", "6.14.0-1015-nvidia"), Severity.WARNING),
        ("dgx-os-differs", "dgx_release", ("7.6.0", "7.4.0"), Severity.INFO),
    ],
)
def test_software_apart(rule: str, fact: str, values: tuple[str, str], severity: Severity) -> None:
    def fleet(first: Any, second: Any, **more: Any) -> FleetState:
        one, other = (facts(f"spark{i + 1}", **{fact: value}) for i, value in enumerate((first, second)))
        return picture(bare(1, facts=one, **more), bare(2, facts=other, **more))

    finding = found(fleet(*values))[rule]
    assert finding.severity is severity
    assert finding.nodes == ("spark1", "spark2")
    for value in values:
        assert value in finding.title
    assert found(fleet(values[0], values[0])) == {}
    assert found(fleet(values[0], None)) == {}
    assert found(fleet(*values, network=None)) == {}, "two machines that nothing joins may differ"
    assert found(fleet(*values, link=link(LinkState.STALE))) == {}


def test_a_driver_that_waits_for_its_reboot_is_named() -> None:
    waiting = facts("spark2", driver_version="580.95.05", driver_installed="580.142")
    finding = found(picture(bare(1), bare(2, facts=waiting)))["driver-differs"]
    assert "580.142 is installed and waits for a reboot" in finding.explanation
    assert finding.remedies[0].title == "Reboot spark2, where 580.142 is installed already"


def test_a_driver_of_another_branch_goes_back_whichever_is_newer() -> None:
    newer = facts("spark2", driver_version="590.44.01")
    finding = found(picture(bare(1), bare(2, facts=newer)))["driver-differs"]
    assert finding.remedies[0].title == "Go back to the 580 driver on spark2, as the other node has it"
    older = found(picture(bare(1), bare(2, facts=facts("spark2", driver_version="580.95.05"))))["driver-differs"]
    assert older.remedies[0].title == "Update spark2 to spark1's versions, and reboot it"


def test_one_machine_under_two_names_is_not_compared() -> None:
    twin = facts("spark1", driver_version="1.2")
    assert found(picture(bare(1), replace(bare(1), name="other", facts=twin))) == {}


def test_kernel_and_driver_hang_under_the_release_they_came_with() -> None:
    old = facts("spark2", driver_version="580.95.05", kernel="6.14.0-1015-nvidia", dgx_release="7.4.0")
    assert shown(picture(bare(1), bare(2, facts=old))) == [
        "cluster.dgx-os-differs",
        "cluster.driver-differs",
        "cluster.kernel-differs",
    ]


def with_boxes(first: dict[str, Any], second: dict[str, Any], **more: Any) -> FleetState:
    return picture(
        spark(1, engines=(rank(0, held=box(0, **first), **more),)), spark(2, engines=(rank(1, held=box(1, **second)),))
    )


def test_images_apart() -> None:
    other = {"image_id": "sha256:" + "77" * 32}
    finding = found(with_boxes({}, other))["image-differs"]
    assert finding.severity is Severity.WARNING
    assert "777777777777" in finding.brief
    copy = finding.remedies[0].steps[1]
    assert copy.startswith("on spark1, if its image is the one that works: docker save ")
    assert copy.endswith(" | ssh spark2 docker load")
    assert "IMAGE" not in copy
    assert found(with_boxes({"image_id": ""}, other)) == {}
    gone = picture(spark(1), spark(2, engines=(dead(1, held=box(1, **other)),)))
    assert "image-differs" not in found(gone)


def test_versions_apart() -> None:
    fleet = picture(spark(1), spark(2, engines=(rank(1, version="0.22.1"),)))
    assert found(fleet)["engine-version-differs"].brief == "0.21.0 and 0.22.1"
    assert found(picture(spark(1), spark(2, engines=(rank(1, version=None),)))) == {}


@over(
    "variable, other, fires",
    [
        ("VLLM_NVFP4_GEMM_BACKEND=marlin", "VLLM_NVFP4_GEMM_BACKEND=cutlass", True),
        ("NCCL_PROTO=LL", "", True),
        ("NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE=0", True),
        ("VLLM_HOST_IP=10.0.0.1", "VLLM_HOST_IP=10.0.0.2", False),
        ("UCX_NET_DEVICES=a", "UCX_NET_DEVICES=b", False),
        ("NCCL_DEBUG=INFO", "", False),
        ("VLLM_API_KEY=<masked>", "", False),
        ("VLLM_CACHE_ROOT=/a", "VLLM_CACHE_ROOT=/b", False),
        ("HOSTNAME=a", "HOSTNAME=b", False),
        ("NVIDIA_BUILD_ID=1", "NVIDIA_BUILD_ID=2", False),
    ],
)
def test_variables_apart(variable: str, other: str, fires: bool) -> None:
    one, two = (
        {"environment": tuple(pair for pair in (text, "VLLM_USE_V1=1", "NCCL_IB_HCA=rocep1s0f0") if pair)}
        for text in (variable, other)
    )
    finding = found(with_boxes(one, two)).get("environment-differs")
    assert (finding is not None) is fires
    if finding is not None:
        assert variable.partition("=")[0] in finding.title
        assert len(finding.evidence) == 2
        assert {evidence.source for evidence in finding.evidence} == {"big-rank0 @ spark1", "big-rank1 @ spark2"}


@over(
    "first, second, fires",
    [
        (["--enforce-eager"], [], True),
        (["--kv-cache-dtype", "auto"], [], True),
        (
            ["--compilation-config", '{"cudagraph_mode":"NONE"}'],
            ["--compilation-config", '{"cudagraph_mode": "NONE"}'],
            False,
        ),
        (["--compilation-config", '{"cudagraph_mode":"NONE"}'], [], True),
        (["--served-model-name", "x"], [], False),
        (["--gpu-memory-utilization", "0.80"], ["--gpu-memory-utilization", "0.75"], False),
        (["--tensor-parallel-size=2"], ["-tp", "2"], False),
    ],
)
def test_flags_apart(first: list[str], second: list[str], fires: bool) -> None:
    boxes = [
        {"argv": ("vllm", "serve", "m", "--nnodes", "2", "--node-rank", str(i), *words)}
        for i, words in enumerate((first, second))
    ]
    assert ("environment-differs" in found(with_boxes(*boxes))) is fires


VLLM = ["vllm", "serve", "m"]


@over(
    "server, first, second, flags",
    [
        (VLLM, ["--gpu-memory-utilization=0.80"], [], {"spark2": {"--gpu-memory-utilization": "0.80"}}),
        (VLLM, [], ["--gpu-memory-utilization=0.75"], {"spark1": {"--gpu-memory-utilization": "0.75"}}),
        (VLLM, ["--enforce-eager"], [], {"spark2": {"--enforce-eager": ""}}),
        (VLLM, [], ["--kv-cache-dtype=fp8"], {"spark2": {"--kv-cache-dtype": None}}),
        (["python3", "-m", "sglang.launch_server", "--model-path", "m"], ["--context-length=8192"], [],
         {"spark2": {"--context-length": "8192"}}),
    ],
)  # fmt: skip
def test_a_relaunch_gives_the_other_rank_what_it_lacks(
    server: list[str], first: list[str], second: list[str], flags: dict[str, dict[str, str | None]]
) -> None:
    boxes = [
        {"argv": (*server, "--nnodes", "2", "--node-rank", str(i), *words)} for i, words in enumerate((first, second))
    ]
    change = found(with_boxes(*boxes))["environment-differs"].remedies[0].change
    assert change is not None
    assert {node: dict(own.flags) for node, own in change.by_node.items() if own.flags} == flags


# --- memory


def unequal(first: Any, second: Any, **more: Any) -> FleetState:
    return picture(bare(1, available_gib=first, **more), bare(2, available_gib=second, **more))


def booted(fleet: FleetState, ago_s: float) -> FleetState:
    """The same, the first node's boot so long ago: what its services take is not taken yet."""
    first, second = fleet.nodes
    assert first.sample is not None
    return replace(fleet, nodes=(replace(first, sample=replace(first.sample, boot_s=ago_s)), second))


@over(
    "fleet, poorer",
    [
        (unequal(107.0, 100.0), "spark2"),
        (unequal(90.0, 107.0), "spark1"),
        (unequal(107.0, 102.5), None),
        (unequal(107.0, 100.0, network=None), None),
        (booted(unequal(107.0, 100.0), 120.0), None),
        (booted(unequal(107.0, 100.0), 400.0), "spark2"),
        (unequal(107.0, 100.0, trend=Trend(bytes_per_s=2e9)), None),
        (picture(spark(1, available_gib=30.0), spark(2, available_gib=15.0)), None),
        (picture(bare(1, available_gib=115.0), spark(2, available_gib=15.0)), None),
        (picture(bare(1, available_gib=115.0), bare(2, available_gib=70.0, link=link(LinkState.LOST))), None),
    ],
)
def test_memory_apart_before_a_launch(fleet: FleetState, poorer: str | None) -> None:
    finding = found(fleet).get("memory-apart")
    assert (finding is not None) is (poorer is not None)
    if finding is not None:
        assert finding.severity is Severity.WARNING
        assert finding.title.startswith(f"{poorer} has ")


def test_the_poorer_nodes_holders_are_named() -> None:
    asr = GpuProcess(pid=5120, name="/opt/parakeet-asr", used_bytes=gib(8))
    rows = (process(5120, "parakeet-asr", 0.4),)
    fleet = picture(bare(1, available_gib=107.0), bare(2, available_gib=98.0, processes=rows, gpu_processes=(asr,)))
    finding = found(fleet)["memory-apart"]
    assert "parakeet-asr of spark2 holds 8.0 GiB more" in finding.explanation
    assert finding.brief == "98 against 107 GiB before load"
    assert not any(remedy.action == "drop-caches" for remedy in finding.remedies)


def test_what_only_a_reboot_gives_back_is_not_asked_of_a_service() -> None:
    asr = GpuProcess(pid=5120, name="/opt/parakeet-asr", used_bytes=gib(8))
    rows = (process(5120, "parakeet-asr", 0.4),)
    fleet = picture(bare(1, available_gib=107.0), bare(2, available_gib=68.0, processes=rows, gpu_processes=(asr,)))
    reboot = Remedy(title="Reboot", action="reboot")
    lost = Finding(
        rule="memory.held-after-exit", severity=Severity.CRITICAL, title="lost", nodes=("spark2",), remedies=(reboot,)
    )
    assert "Free memory on spark2" in found(fleet)["memory-apart"].remedies[0].title
    remedies = found(replace(fleet, findings=(lost,)))["memory-apart"].remedies
    assert not any("Free memory" in remedy.title for remedy in remedies)


def test_dropping_the_cache_is_offered_where_there_is_one() -> None:
    cached = memory(100.0, cache_gib=29.0, anonymous_bytes=gib(1.4))
    fleet = picture(bare(1, available_gib=107.0), bare(2, available_gib=100.0, memory=cached))
    assert "drop-caches" in {remedy.action for remedy in found(fleet)["memory-apart"].remedies}


def test_while_it_loads_what_there_was_before_counts() -> None:
    """Field report 003: 107 and 100 GiB after a reboot, and spark2 loaded four times slower."""
    falling = [(-900.0, 107.0), (-120.0, 107.0), (0.0, 40.0)]
    slower = [(-900.0, 100.0), (-120.0, 100.0), (0.0, 80.0)]

    def fleet(first: Any, second: Any, uptime_s: float = 120.0) -> FleetState:
        return picture(
            spark(1, engines=(loading(0, uptime_s=uptime_s),), available_gib=first),
            spark(2, engines=(loading(1, uptime_s=uptime_s),), available_gib=second),
        )

    finding = found(fleet(falling, slower))["memory-apart"]
    assert finding.severity is Severity.CRITICAL, "vLLM doesn't compare the nodes before it loads"
    assert finding.brief == "100 against 107 GiB before load"
    assert found(fleet(falling, [(-900.0, 106.0), (-120.0, 106.0), (0.0, 80.0)])) == {}
    assert found(fleet(falling, slower, uptime_s=5000.0)) == {}, "the histories don't reach back so far"


@over("second_gib, severity", [(100.0, Severity.WARNING), (90.0, Severity.CRITICAL)])
def test_sglang_loads_with_a_tenth_less_and_refuses_more(second_gib: float, severity: Severity) -> None:
    first, second = ([(-900.0, size), (-120.0, size), (0.0, 40.0)] for size in (107.0, second_gib))
    fleet = picture(
        spark(1, engines=(loading(0, kind=EngineKind.SGLANG),), available_gib=first),
        spark(2, engines=(loading(1, kind=EngineKind.SGLANG),), available_gib=second),
    )
    finding = found(fleet)["memory-apart"]
    assert finding.severity is severity
    assert "--mem-fraction-static" in finding.remedies[1].title


def test_memory_that_was_leaked_is_the_cause_where_it_is_known() -> None:
    (rule,) = [rule for rule in RULES if rule.id == "cluster.memory-apart"]
    assert "memory.held-after-exit" in rule.follows


# --- a rank that ends


@over(
    "fleet, dead_node",
    [
        (picture(spark(1), spark(2, engines=(dead(1),))), "spark2"),
        (picture(spark(1, engines=(dead(0),)), spark(2)), "spark1"),
        (picture(spark(1, engines=(loading(0),)), spark(2, engines=(dead(1, ago_s=20.0),))), "spark2"),
        (picture(spark(1), spark(2, engines=(dead(1, ago_s=9000.0),))), None),
        (picture(spark(1), spark(2, engines=(dead(1), rank(1)))), None),
        (picture(spark(1, engines=(dead(0),)), spark(2, engines=(dead(1),))), None),
        (picture(spark(1), spark(2, engines=(dead(1, argv=("vllm", "serve", "m"), model="m"),))), None),
        (picture(spark(1), spark(2, engines=(dead(1, model="/models/Other"),))), None),
        (picture(spark(1), spark(2, engines=(dead(1, kind=EngineKind.SGLANG),))), None),
        (picture(spark(1), spark(2, engines=())), None),
        (picture(spark(1), spark(2, engines=(dead(1),), link=link(LinkState.STALE))), None),
    ],
)
def test_a_rank_that_ended(fleet: FleetState, dead_node: str | None) -> None:
    finding = found(fleet).get("rank-died")
    assert (finding is not None) is (dead_node is not None), finding
    if finding is not None:
        assert finding.severity is Severity.CRITICAL
        assert f"on {dead_node} exited" in finding.title
        assert "137" in finding.explanation
        assert finding.remedies[0].action == "safe-restart"


def test_what_the_other_rank_holds_is_said() -> None:
    finding = found(picture(spark(1), spark(2, engines=(dead(1),))))["rank-died"]
    assert "holds 2 requests" in finding.explanation
    assert "96 %" in finding.explanation


# --- Ray and logind

RAY_HEAD = ("vllm", "serve", "m", "--tensor-parallel-size", "2", "--distributed-executor-backend", "ray")
RAY_NODE = ("sh", "-c", "ray start --block --address=10.0.0.1:6379")


def on_ray(*first: str, second: tuple[str, ...] | None = None) -> FleetState:
    head = box(0, argv=RAY_HEAD, environment=first)
    worker = box(1, argv=RAY_NODE, environment=first if second is None else second)
    return picture(
        spark(1, engines=(rank(0, held=head),)),
        spark(2, engines=(rank(1, held=worker, argv=("ray::RayWorkerWrapper.execute_method",), environment=()),)),
    )


def test_rays_memory_monitor() -> None:
    hca = "NCCL_IB_HCA=rocep1s0f0"
    finding = found(on_ray("A=b", hca))["ray-monitor"]
    assert finding.confidence is Confidence.CONFIRMED
    off = "RAY_memory_monitor_refresh_ms=0"
    assert "ray-monitor" not in found(on_ray(off, hca))
    assert "on spark2" in found(on_ray(off, hca, second=("A=b",)))["ray-monitor"].title
    assert "ray-monitor" not in found(on_ray())
    assert "ray-monitor" in found(on_ray("RAY_memory_monitor_refresh_ms=250", hca))


def of_a_user(number: int, uid: int = 1000, **said: Any) -> NodeView:
    made = facts(f"spark{number}", **{"removes_ipc": True, "is_lingering": False, **said})
    row = process(600 + number - 1, "VLLM::Worker_TP", user_id=uid)
    return spark(number, facts=made, processes=(row,))


@over(
    "node_2, fires",
    [
        (of_a_user(2), True),
        (of_a_user(2, is_lingering=True), False),
        (of_a_user(2, removes_ipc=False), False),
        (of_a_user(2, is_lingering=None), False),
        (of_a_user(2, uid=0), False),
        (of_a_user(2, user_id=0), False),
        (replace(of_a_user(2), engines=(rank(1, held=box(1, ipc_mode="private")),)), False),
        (replace(of_a_user(2), processes=ProcessTable(boot_s=1.0, processes=(), total_count=0)), False),
    ],
)
def test_ipc_objects_that_a_logout_removes(node_2: NodeView, fires: bool) -> None:
    finding = found(picture(spark(1), node_2)).get("linger")
    assert (finding is not None) is fires
    if finding is not None:
        assert "enable-linger spark" in finding.remedies[0].steps[0]


# --- the course


def test_a_claim_must_hold_before_it_is_shown() -> None:
    fleet = picture(spark(1), spark(2, engines=(dead(1),)))
    assert shown(fleet) == []
    assert shown(fleet, replace(fleet, monotonic_s=NOW_S + 6.0)) == ["cluster.rank-died"]


TROUBLED = [
    unequal(107.0, 100.0),
    picture(spark(1), spark(2, engines=(dead(1),))),
    picture(spark(1), of_a_user(2)),
    on_ray("A=b"),
    with_boxes({}, {"image_id": "sha256:" + "77" * 32, "environment": ("NCCL_PROTO=LL",)}),
    picture(bare(1), bare(2, facts=facts("spark2", driver_version="1", kernel="2", dgx_release="3"))),
    picture(spark(1), spark(2, network=fabric(2, mtu=1500, rate=100.0))),
    picture(spark(1), spark(2, network=fabric(2, up=False))),
]


def test_a_rank_that_died_stays_the_root_when_the_other_has_ended_too() -> None:
    first = picture(spark(1), spark(2, engines=(dead(1),)))
    told = found(first)["rank-died"]
    both = replace(picture(spark(1, engines=(dead(0),)), spark(2, engines=(dead(1),))), findings=(told,))
    after = found(both)["rank-died"]
    assert after.key == told.key
    assert after.title == f"{told.subject} is down: one rank exited, and the rest after it"
    assert "holds" not in after.explanation, "the other rank holds nothing any more"
    assert [remedy.cost for remedy in after.remedies] == ["seconds", "the time to load"]
    assert after.distinction == ()
    assert "rank-died" not in found(replace(both, findings=())), "nothing tells which was first"
    assert "rank-died" not in found(replace(both, nodes=(spark(1), spark(2)))), "it runs again"


@over("requests, severity", [(0, Severity.WARNING), (2, Severity.CRITICAL)])
def test_a_pair_that_is_down_is_as_grave_as_one_engine_that_is(requests: int, severity: Severity) -> None:
    told = found(picture(spark(1), spark(2, engines=(dead(1),))))["rank-died"]
    head = replace(dead(0), served=Served(wall_s=0.0, requests=requests))
    both = picture(spark(1, engines=(head,)), spark(2, engines=(dead(1),)))
    assert found(replace(both, findings=(told,)))["rank-died"].severity is severity


def test_a_rank_that_a_console_stopped_did_not_die() -> None:
    rank = dead(1)
    assert rank.container is not None
    assert rank.exited_wall_s is not None
    stop = Intervention(
        node="spark2", containers=(rank.container.container_id,), action="safe-restart", is_under_way=True,
        began_wall_s=rank.exited_wall_s - 5, ended_wall_s=rank.exited_wall_s + 5,
    )  # fmt: skip
    assert "rank-died" not in found(picture(spark(1), spark(2, engines=(rank,)), interventions=(stop,)))
