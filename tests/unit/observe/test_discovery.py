"""Engines from processes, containers and what was known before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.engine import (
    Container,
    Containers,
    Endpoint,
    EndpointState,
    Engine,
    EngineKind,
    EngineMetrics,
    EngineState,
    Progress,
    Served,
)
from sparktop.model.telemetry import GapReason, Gpu, GpuProcess, GpuReading, Process, ProcessTable
from sparktop.observe.engines.discovery import discover
from sparktop.observe.engines.engine_log import log_source

CID = "ab" * 32
NOW = 1_780_000_000.0
BOX = Container(
    container_id=CID,
    name="vllm-qwen",
    image="vllm/vllm-openai:v0.19.0",
    status="running",
    network_mode="host",
    started_wall_s=NOW - 700,
    argv=("vllm", "serve", "org/M", "--port", "8123"),
)
SLEEPER = replace(BOX, name="vllm_node", argv=("sleep", "infinity"), image="vllm-node:latest")


def process(
    pid: int, parent: int, *argv: str, comm: str = "python3", cid: str | None = CID, start: float = 100.0
) -> Process:
    return Process(
        pid=pid,
        parent_pid=parent,
        command=comm,
        state="S",
        resident_bytes=1,
        container_id=cid,
        argv=argv,
        started_boot_s=start,
    )


def table(*processes: Process, boot_s: float = 500.0) -> ProcessTable:
    return ProcessTable(boot_s=boot_s, processes=processes, total_count=len(processes))


def docker(*containers: Container) -> Containers:
    return Containers(containers=containers, available=True, detail="")


def card(*processes: tuple[int, int | None]) -> GpuReading:
    rows = tuple(GpuProcess(pid=pid, name="x", used_bytes=used) for pid, used in processes)
    return GpuReading(boot_s=1.0, gpus=(Gpu(name="NVIDIA GB10", processes=rows),))


SERVER = process(10, 1, "python3", "/usr/bin/vllm", "serve", "org/M", "--port", "8123", comm="vllm")
CORE = process(11, 10, "VLLM::EngineCore", comm="VLLM::EngineCor", start=101.0)
WORKER = process(12, 11, "VLLM::Worker_TP0", comm="VLLM::Worker_TP", start=102.0)
DENIED = Containers(detail="no permission to use the Docker Engine: run ...", is_denied=True)


def find(*args: object, **kwargs: object) -> tuple[Engine, ...]:
    return discover(*args, node_wall_s=NOW, **kwargs)  # type: ignore[arg-type]


def test_an_engine_in_a_container_is_one_engine() -> None:
    gpu = card((11, 5_000), (12, 60_000), (99, 7))
    (engine,) = find(table(SERVER, CORE, WORKER), gpu, docker(BOX))
    assert (engine.key, engine.kind, engine.name) == (CID[:12], EngineKind.VLLM, "vllm-qwen")
    assert engine.pids == (10, 11, 12)
    assert (engine.model, engine.version) == ("org/M", "0.19.0")
    assert engine.container == BOX
    assert engine.endpoint == Endpoint(host="127.0.0.1", port=8123)
    assert engine.gpu_bytes == 65_000
    assert (engine.started_boot_s, engine.uptime_s) == (100.0, 400.0)
    assert not engine.gaps


def test_an_engine_is_starting_by_its_age_alone_only_where_it_is_young() -> None:
    (old,) = find(table(SERVER), card(), docker(BOX))
    assert (old.uptime_s, old.state) == (400.0, EngineState.UNKNOWN)
    (young,) = find(table(replace(SERVER, started_boot_s=497.0)), card(), docker(BOX))
    assert young.state is EngineState.STARTING


def test_an_engine_executed_into_a_sleeping_container() -> None:
    (engine,) = find(table(SERVER, CORE), card(), docker(SLEEPER))
    assert (engine.name, engine.model, engine.pids) == ("vllm_node", "org/M", (10, 11))
    assert find(table(), card(), docker(SLEEPER)) == ()


def test_docker_that_cant_be_asked_leaves_a_gap() -> None:
    (engine,) = find(table(SERVER, CORE), card(), DENIED)
    assert (engine.key, engine.name, engine.container) == (CID[:12], "vllm:8123", None)
    assert engine.gaps["container"] is GapReason.NO_PERMISSION
    assert engine.endpoint is not None
    assert "can't be read" in log_source(engine).words


def test_docker_that_is_silent_for_a_while_forgets_nothing() -> None:
    before = find(table(SERVER, CORE), card(), docker(BOX))
    (engine,) = find(table(SERVER, CORE), card(), Containers(detail="not answered"), previous=before)
    assert engine.name == "vllm-qwen"
    assert engine.container == BOX


def test_one_that_goes_before_docker_has_named_its_container_leaves_no_phantom() -> None:
    seen = find(table(SERVER, CORE), card(), Containers(is_asked=False))
    assert [engine.name for engine in seen] == ["vllm:8123"]
    assert find(table(), card(), docker(), previous=seen) == ()


def test_bare_metal_is_grouped_by_the_chain_of_parents() -> None:
    server = replace(SERVER, container_id=None)
    core, worker = replace(CORE, container_id=None), replace(WORKER, container_id=None)
    other = process(50, 1, "sglang", "serve", "--model-path", "org/S", "--enable-metrics", cid=None, start=200.0)
    scheduler = process(51, 50, "sglang::scheduler", comm="sglang::schedul", cid=None)
    unknown = process(77, 11, "python3", cid=None, start=300.0)
    engines = find(table(server, core, worker, other, scheduler, unknown), card((77, 5)), Containers())
    assert [(engine.key, engine.name, engine.pids) for engine in engines] == [
        ("pid:10", "vllm:8123", (10, 11, 12, 77)),
        ("pid:50", "sglang:30000", (50, 51)),
    ]
    assert log_source(engines[0]).pid == 10


def test_two_engines_in_one_container_keep_their_keys() -> None:
    second = process(20, 1, "vllm", "serve", "org/N", "--port", "8200", start=300.0)
    core = process(21, 20, "VLLM::EngineCore", comm="VLLM::EngineCor", start=301.0)
    engines = find(table(second, core, SERVER, CORE), card(), docker(SLEEPER))
    assert [(e.key, e.name, e.model, e.pids) for e in engines] == [
        (CID[:12], "vllm_node", "org/M", (10, 11)),
        (f"{CID[:12]}:8200", "vllm_node:8200", "org/N", (20, 21)),
    ]


def test_a_forked_copy_and_a_wrapped_copy_are_the_same_server() -> None:
    forked = replace(SERVER, pid=13, parent_pid=10, started_boot_s=103.0)
    elsewhere = replace(SERVER, pid=14, parent_pid=9999, started_boot_s=104.0)
    (engine,) = find(table(SERVER, forked, elsewhere), card(), docker(BOX))
    assert engine.pids == (10, 13, 14)


def test_a_further_nodes_workers_are_an_engine_without_endpoint() -> None:
    ray = process(30, 1, "ray::RayWorkerWrapper.execute_method", comm="ray::RayWorkerW")
    (engine,) = find(table(ray), card((30, 50)), docker(SLEEPER))
    assert (engine.kind, engine.pids, engine.endpoint, engine.gpu_bytes) == (EngineKind.VLLM, (30,), None, 50)
    assert engine.gaps["endpoint"] is GapReason.NOT_FOUND
    headless = process(10, 1, "vllm", "serve", "org/M", "--headless", "--node-rank", "1")
    (engine,) = find(table(headless), card(), docker(SLEEPER))
    assert engine.endpoint is None


def test_a_zombie_and_a_client_are_no_engine() -> None:
    zombie = replace(CORE, state="Z", argv=())
    client = process(40, 1, "docker", "run", "vllm/vllm-openai", "vllm", "serve", "org/M", cid=None)
    assert find(table(zombie, client), card(), docker()) == ()


@over(
    "changes, endpoint",
    [
        ({"network_mode": "bridge", "published_ports": {8123: 9000}}, ("127.0.0.1", 9000)),
        ({"network_mode": "bridge", "addresses": ("172.17.0.2",)}, ("172.17.0.2", 8123)),
        ({"network_mode": "host"}, ("127.0.0.1", 8123)),
    ],
)
def test_where_the_node_reaches_the_endpoint(changes: dict[str, object], endpoint: tuple[str, int]) -> None:
    box = replace(BOX, **changes)  # type: ignore[arg-type]
    (engine,) = find(table(SERVER), card(), docker(box))
    assert engine.endpoint is not None
    assert (engine.endpoint.host, engine.endpoint.port) == endpoint


def test_an_address_in_the_command_counts_with_host_networking() -> None:
    server = replace(SERVER, argv=("vllm", "serve", "org/M", "--host", "192.168.100.10"))
    (engine,) = find(table(server), card(), docker(BOX))
    assert engine.endpoint is not None
    assert engine.endpoint.host == "192.168.100.10"
    wildcard = replace(SERVER, argv=("vllm", "serve", "org/M", "--host", "0.0.0.0"))
    (engine,) = find(table(wildcard), card(), docker(BOX))
    assert engine.endpoint is not None
    assert engine.endpoint.host == "127.0.0.1"


def test_sglang_without_metrics_says_what_to_add() -> None:
    server = process(10, 1, "python3", "-m", "sglang.launch_server", "--model-path", "org/S")
    (engine,) = find(table(server), card(), docker(SLEEPER))
    assert engine.endpoint is not None
    assert engine.endpoint.state is EndpointState.NO_METRICS
    assert "--enable-metrics" in engine.endpoint.detail


def test_a_container_that_will_start_an_engine_is_starting() -> None:
    box = replace(BOX, argv=("bash", "-c", "pip install ray && vllm serve org/M --port 8005"))
    (engine,) = find(table(), card(), docker(box))
    assert (engine.state, engine.model, engine.pids) == (EngineState.STARTING, "org/M", ())
    assert engine.uptime_s == pytest.approx(700)
    assert engine.gaps["pids"] is GapReason.NOT_FOUND
    (engine,) = find(None, None, docker(box))
    assert engine.state is EngineState.UNKNOWN
    assert engine.gaps["pids"] is GapReason.NOT_YET
    (engine,) = find(table(), card(), docker(replace(box, status="restarting")))
    assert "again and again" in engine.exit_detail


def test_its_key_stays_when_the_process_comes() -> None:
    starting = find(table(), card(), docker(BOX))
    (engine,) = find(table(SERVER), card(), docker(BOX), previous=starting)
    assert engine.key == starting[0].key
    assert engine.pids == (10,)


def ended(n: int, *, code: int = 1, ago_s: float = 60.0, **changes: object) -> Container:
    box = replace(
        BOX, container_id=f"{n:x}" * 64, name=f"old-{n}", status="exited", exit_code=code, finished_wall_s=NOW - ago_s
    )
    return replace(box, **changes)  # type: ignore[arg-type]


def test_what_ended_lately_stays_with_its_reason() -> None:
    boxes = [ended(n, ago_s=60.0 * n) for n in range(1, 6)]
    boxes.append(ended(9, ago_s=90_000.0))
    engines = find(table(), card(), docker(*boxes))
    assert [engine.name for engine in engines] == ["old-1", "old-2", "old-3"]
    assert engines[0].state is EngineState.EXITED
    assert engines[0].exited_wall_s == NOW - 60
    assert engines[0].exit_detail == "failed (exit code 1)"


def test_what_served_does_not_hide_why_a_new_one_did_not_start() -> None:
    served = [ended(n, ago_s=600.0 * n) for n in range(1, 6)]
    before = tuple(replace(one, served=Served(wall_s=NOW - 900)) for one in find(table(), card(), docker(*served)))
    missed = find(table(), card(), docker(*served), previous=before)
    boxes = [*served, *(ended(n, ago_s=10.0 * n) for n in range(6, 11))]
    engines = find(table(), card(), docker(*boxes), previous=missed)
    assert [engine.name for engine in engines] == ["old-6", "old-7", "old-8", "old-1", "old-2", "old-3"]


@over("word", ["before", "next", "failed"])
def test_what_a_relaunch_set_aside_is_no_engine_while_the_new_one_lives(word: str) -> None:
    old = ended(2, name=f"{BOX.name}-{word}-20261121T031211")
    engines = find(table(SERVER), card(), docker(BOX, old))
    assert [engine.name for engine in engines] == [BOX.name]
    again = find(table(SERVER), card(), docker(BOX, old), previous=(*engines, *find(table(), card(), docker(old))))
    assert [engine.name for engine in again] == [BOX.name]
    (alone,) = find(table(), card(), docker(old))
    assert (alone.name, alone.state) == (old.name, EngineState.EXITED), "until then it is all there is"
    (_, other) = find(table(SERVER), card(), docker(BOX, replace(old, name="vllm-other-before-20261121T031211")))
    assert other.state is EngineState.EXITED


@over(
    "changes, words",
    [
        ({"code": 137}, "SIGKILL"),
        ({"code": 137, "oom_killed": True}, "out of memory (exit code 137)"),
        ({"code": 143}, "SIGTERM"),
        ({"code": 0}, "exited without an error"),
        ({"code": 132}, "signal 4"),
        ({"code": 77}, "exit code 77"),
    ],
)
def test_how_it_ended(changes: dict[str, object], words: str) -> None:
    (engine,) = find(table(), card(), docker(ended(1, **changes)))  # type: ignore[arg-type]
    assert words in engine.exit_detail


def test_other_containers_that_ended_are_no_engines() -> None:
    sleeping = ended(1, argv=("sleep", "infinity"))
    web = ended(2, image="nginx:latest", argv=("nginx",))
    assert find(table(), card(), docker(sleeping, web)) == ()


def test_an_engine_that_vanishes_is_exited_and_says_how() -> None:
    before = find(table(SERVER, CORE), card(), docker(SLEEPER))
    (engine,) = find(table(), card(), docker(SLEEPER), previous=before)
    assert engine.state is EngineState.EXITED
    assert "container still runs" in engine.exit_detail
    assert (engine.pids, engine.uptime_s, engine.exited_wall_s) == ((), None, NOW)
    (again,) = find(table(), card(), docker(SLEEPER), previous=(engine,))
    assert again == engine
    (gone,) = find(table(), card(), docker(), previous=before)
    assert gone.exit_detail == "its container was removed"
    with_rm = find(table(SERVER, CORE), card(), docker(replace(SLEEPER, auto_remove=True)))
    (gone,) = find(table(), card(), docker(), previous=with_rm)
    assert "started with --rm: Docker removed it, with its exit code and log" in gone.exit_detail
    over = replace(SLEEPER, status="exited", exit_code=137, finished_wall_s=NOW - 1)
    (killed,) = find(table(), card(), docker(over), previous=before)
    assert "exit code 137" in killed.exit_detail
    (restarted,) = find(table(replace(SERVER, started_boot_s=495.0)), card(), docker(SLEEPER), previous=(engine,))
    assert restarted.state is EngineState.STARTING


def test_docker_knows_of_the_end_before_the_process_table() -> None:
    over = replace(BOX, status="exited", exit_code=0, finished_wall_s=NOW)
    (engine,) = find(table(SERVER, CORE), card(), docker(over))
    assert engine.state is EngineState.EXITED


def test_what_was_learned_is_carried_over_while_the_process_is_the_same() -> None:
    (engine,) = find(table(SERVER), card(), docker(BOX))
    learned = replace(
        engine,
        state=EngineState.LOADING,
        progress=Progress(phase="weights", done=1, total=3),
        metrics=EngineMetrics(wall_s=1.0, running=1.0),
        endpoint=Endpoint(host="127.0.0.1", port=8123, state=EndpointState.OK),
        version="0.19.1",
    )
    (same,) = find(table(SERVER), card(), docker(BOX), previous=(learned,))
    assert (same.state, same.progress, same.metrics) == (learned.state, learned.progress, learned.metrics)
    assert (same.endpoint, same.version) == (learned.endpoint, "0.19.1")
    (other,) = find(table(replace(SERVER, pid=900, started_boot_s=495.0)), card(), docker(BOX), previous=(learned,))
    assert other.state is EngineState.STARTING
    assert other.metrics is None
    assert other.endpoint is not None
    assert other.endpoint.state is EndpointState.NOT_ASKED


def test_without_a_process_table_the_known_engines_stay() -> None:
    before = find(table(SERVER), card(), docker(BOX))
    assert find(None, None, docker(BOX), previous=before) == before


@over(
    "gpu, held",
    [
        (None, None),
        (GpuReading(boot_s=1.0, gpus=(Gpu(name="x"),)), None),
        (card((10, None)), None),
        (card((10, None), (11, 7)), 7),
        (card((99, 7)), 0),
    ],
)
def test_gpu_memory_that_isnt_known_is_none(gpu: GpuReading | None, held: int | None) -> None:
    (engine,) = find(table(SERVER, CORE), gpu, docker(BOX))
    assert engine.gpu_bytes == held


def test_where_its_log_is() -> None:
    (engine,) = find(table(SERVER), card(), docker(BOX))
    assert log_source(engine).container_id == CID
    assert log_source(engine).path is None
    spark = replace(SLEEPER, name="sparkrun_0a1b_solo")
    (engine,) = find(table(SERVER), card(), docker(spark))
    assert log_source(engine).path == "/tmp/sparkrun_serve.log"


_PROCESS = st.builds(
    process,
    st.integers(1, 6),
    st.integers(0, 6),
    st.sampled_from(["vllm", "python3", "VLLM::EngineCore", "sglang", ""]),
    st.sampled_from(["serve", "-m", "x"]),
    comm=st.sampled_from(["python3", "VLLM::EngineCor", "sglang::schedul"]),
    cid=st.sampled_from([None, CID, "cd" * 32]),
)


@given(st.lists(_PROCESS, max_size=6), st.lists(_PROCESS, max_size=6))
def test_any_tables_give_engines_with_keys_of_their_own(first: list[Process], second: list[Process]) -> None:
    """Parents that are their own parents, pids twice, engines that come and go."""
    before = find(table(*first), card((1, 5)), docker(BOX, ended(1)))
    after = find(table(*second), card((2, 5)), docker(SLEEPER, ended(1)), previous=before)
    for engines in (before, after):
        assert len({engine.key for engine in engines}) == len(engines)
        alive = [pid for engine in engines for pid in engine.pids]
        assert len(alive) == len(set(alive))


def test_an_engines_environment_is_its_containers_where_that_started_it() -> None:
    env = ("NCCL_IB_HCA=rocep1s0f0",)
    (started,) = find(table(SERVER), None, docker(replace(BOX, environment=env)))
    assert started.environment == env
    assert "environment" not in started.gaps
    (executed,) = find(table(SERVER), None, docker(replace(SLEEPER, environment=env)))
    assert executed.environment == ()
    assert executed.gaps["environment"] is GapReason.NO_PERMISSION
    (outside,) = find(table(replace(SERVER, container_id=None)), None, docker())
    assert outside.gaps["environment"] is GapReason.NO_PERMISSION
