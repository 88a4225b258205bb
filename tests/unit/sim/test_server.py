"""A simulated Spark over real SSH: the probe's channel, the Docker socket and the engines' endpoints."""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncssh
import docker
import docker.errors
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.table import over

from sparktop.clock import SystemClock
from sparktop.engines.metrics import parse
from sparktop.model.engine import EngineKind, EngineMetrics
from sparktop.model.telemetry import Bye, Garbled, GpuReading, KernelLines, Message, ProcessTable, Sample
from sparktop.observe.engines.rates import Scrapes, advance
from sparktop.probe import bundle
from sparktop.sim.node import DEMO_PASSWORD
from sparktop.sim.scenario.scenario import load
from sparktop.sim.server import SimulatedNode, simulated
from sparktop.sim.spark.exposition import exposition
from sparktop.sim.spark.spark import Spark
from sparktop.transport.ssh.failures import why_lost
from sparktop.wire.decode import decode
from sparktop.wire.framing import Splitter, sequence_of


async def connect(node: SimulatedNode, **changed: Any) -> asyncssh.SSHClientConnection:
    options: dict[str, Any] = {
        "username": node.username,
        "client_keys": [node.client_key],
        "known_hosts": ([node.host_key], [], []),
        "config": None,
        "agent_path": None,
    }
    return await asyncssh.connect(node.host, node.port, **(options | changed))


@asynccontextmanager
async def sparks(name: str = "healthy", *, speed: float = 20.0) -> AsyncIterator[list[SimulatedNode]]:
    async with asyncio.timeout(30), simulated(load(name), clock=SystemClock(), speed=speed) as nodes:
        yield nodes


class Lost(asyncssh.SSHClient):
    """Keeps why its connection ended."""

    reason: Exception | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.reason = exc


async def test_a_scenario_that_begins_again_says_so_to_whoever_watches() -> None:
    client = Lost()
    async with (
        sparks("kv-full", speed=300) as nodes,
        await connect(nodes[0], client_factory=lambda: client) as connection,
    ):
        await connection.wait_closed()
        assert why_lost(client.reason) == "sshd ended the connection: the demo begins again"
        async with await connect(nodes[0]) as again:
            assert (await again.run("true", encoding=None)).exit_status is not None


@asynccontextmanager
async def connected(
    name: str = "healthy", *, node: int = 0, speed: float = 20.0
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with sparks(name, speed=speed) as nodes, await connect(nodes[node]) as connection:
        yield connection


async def start_probe(
    connection: asyncssh.SSHClientConnection, launch: bundle.Launch, payload: bytes | None = None
) -> asyncssh.SSHClientProcess[bytes]:
    process = await connection.create_process(shlex.join(launch.argv), encoding=None)
    process.stdin.write(launch.payload if payload is None else payload)
    return process


async def converse(process: asyncssh.SSHClientProcess[bytes], wanted: set[type[Message]]) -> list[Message]:
    """Read and acknowledge, as the console does, until every wanted kind has come."""
    splitter, found = Splitter(), []
    while not wanted <= {type(message) for message in found}:
        data = await process.stdout.read(65536)
        assert data, "the probe ended"
        for line in splitter.feed(data):
            assert isinstance(line, bytes)
            if line.startswith(b"SPARKTOP "):
                continue
            message = decode(line)
            assert message is not None
            assert not isinstance(message, Garbled), message
            found.append(message)
            if (number := sequence_of(line)) is not None:
                process.stdin.write(b'{"ack":%d}\n' % number)
    return found


async def test_the_probe_is_run_as_a_spark_runs_it() -> None:
    async with connected() as connection:
        launch = bundle.launch(interval_s=1.0)
        process = await start_probe(connection, launch)
        assert await process.stdout.readline() == f"SPARKTOP {launch.nonce}\n".encode()
        hello = json.loads(await process.stdout.readline())
        assert (hello["kind"], hello["digest"]) == ("hello", launch.digest)
        found = await converse(process, {Sample, GpuReading, ProcessTable, KernelLines})
        engine = next(row for m in found if isinstance(m, ProcessTable) for row in m.processes if row.argv)
        assert engine.container_id is not None
        process.stdin.write(b'{"bye":1}\n')
        assert isinstance((await converse(process, {Bye}))[-1], Bye)
        assert (await process.wait()).exit_status == 0


async def test_the_probe_leaves_without_a_word_when_its_input_closes() -> None:
    async with connected() as connection:
        process = await start_probe(connection, bundle.launch(interval_s=1.0))
        await converse(process, {Sample})
        process.stdin.write_eof()
        said = await process.stdout.read()
        assert b'"bye"' not in said
        assert (await process.wait()).exit_status == 0


async def test_the_probe_leaves_by_its_lease() -> None:
    async with connected() as connection:
        process = await start_probe(connection, bundle.launch(interval_s=1.0, lease_s=0.3))
        said = await process.stdout.read()
        assert decode(said.splitlines()[-1]) == Bye(reason="nothing arrived for 0.3 s")


@pytest.mark.parametrize("damage", ["cut", "changed"])
async def test_a_payload_that_arrived_damaged_is_refused_in_stage_0s_words(damage: str) -> None:
    async with connected() as connection:
        launch = bundle.launch(interval_s=1.0)
        payload = launch.payload[:-7] if damage == "cut" else b"\0" + launch.payload[1:]
        process = await start_probe(connection, launch, payload)
        process.stdin.write_eof()
        ended = await process.wait()
        assert ended.exit_status == bundle.CUT_EXIT
        assert b"arrived damaged" in (ended.stderr or b"")  # type: ignore[operator]


async def test_any_other_command_is_not_found() -> None:
    async with connected() as connection:
        ended = await connection.run("sudo reboot", encoding=None)
        assert ended.exit_status == 127
        assert b"sudo: command not found" in (ended.stderr or b"")  # type: ignore[operator]


async def test_only_the_one_key_is_let_in_and_hosts_have_keys_of_their_own() -> None:
    async with sparks() as nodes:
        with pytest.raises(asyncssh.KeyExportError):
            nodes[0].host_key.export_private_key()
        stranger = asyncssh.generate_private_key("ssh-ed25519")
        with pytest.raises(asyncssh.PermissionDenied):
            await connect(nodes[0], client_keys=[stranger])
        with pytest.raises(asyncssh.PermissionDenied):
            await connect(nodes[0], client_keys=None, password="spark", preferred_auth="password")
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            await connect(nodes[0], known_hosts=([nodes[1].host_key], [], []))
        assert nodes[0].host_key.public_data != nodes[1].host_key.public_data


# Engines


async def ask(connection: asyncssh.SSHClientConnection, port: int, path: str) -> tuple[int, str]:
    reader, writer = await connection.open_connection("127.0.0.1", port, encoding=None)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: spark\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def figures(text: str) -> dict[str, float]:
    """Samples without their labels; buckets left out."""
    families = list(text_string_to_metric_families(text))
    assert all(family.type != "unknown" for family in families)
    return {s.name: s.value for family in families for s in family.samples if not s.name.endswith("_bucket")}


@pytest.mark.parametrize(
    ("node", "port", "running", "tokens"),
    [
        (0, 8000, "vllm:num_requests_running", "vllm:generation_tokens_total"),
        (1, 30000, "sglang:num_running_reqs", "sglang:generation_tokens_total"),
    ],
)
async def test_metrics_read_as_prometheus_reads_them_and_tokens_rise_in_decode(
    node: int, port: int, running: str, tokens: str
) -> None:
    async with connected(node=node, speed=40) as connection:
        first = figures((await ask(connection, port, "/metrics"))[1])
        later = first
        while later[tokens] < first[tokens] + 100 or later[running] < 1:
            await asyncio.sleep(0.05)
            status, text = await ask(connection, port, "/metrics")
            assert status == 200
            before, later = later, figures(text)
            for name, value in later.items():
                assert not name.endswith(("_total", "_count", "_sum")) or value >= before[name], name


async def test_histograms_are_cumulative_and_end_in_their_count() -> None:
    async with connected() as connection:
        _, text = await ask(connection, 8000, "/metrics")
        names = {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"}
        histograms = [f for f in text_string_to_metric_families(text) if f.name in names]
        assert {(f.name, f.type) for f in histograms} == {(name, "histogram") for name in names}
        for family in histograms:
            buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
            counts = [sample.value for sample in buckets]
            assert counts == sorted(counts)
            assert buckets[-1].labels["le"] == "+Inf"
            assert counts[-1] == next(s.value for s in family.samples if s.name.endswith("_count")) > 0


@over("node", [0, 1])
def test_the_first_request_takes_as_long_as_requests_take(node: int) -> None:
    scenario = load("healthy")
    spark = Spark(scenario, scenario.nodes[node], showing=0, began_wall_s=1.78e9)
    engine = spark.script.engines[0]
    kind = EngineKind(engine.kind)
    scrapes = Scrapes()
    seen_s = []
    for second in range(90):
        metrics = parse(exposition(spark, engine, float(second)), kind, 1.78e9 + second)
        assert isinstance(metrics, EngineMetrics)
        scrapes, rates = advance(scrapes, metrics)
        if "ttft_p50_s" not in rates.of_life:
            seen_s.append(rates.ttft_p50_s)
    assert seen_s
    assert all(value is not None and 0.1 < value < 2.0 for value in seen_s)


async def test_the_endpoint_answers_what_an_engine_answers() -> None:
    async with connected() as connection:
        status, models = await ask(connection, 8000, "/v1/models")
        assert status == 200
        assert json.loads(models)["data"][0]["id"] == "Qwen/Qwen3.6-35B-A3B-FP8"
        assert json.loads((await ask(connection, 8000, "/version"))[1])["version"] == "0.32.0"
        assert (await ask(connection, 8000, "/nothing"))[0] == 404


async def test_a_port_nobody_listens_on_refuses_and_so_does_another_machine() -> None:
    async with connected() as connection:
        for host, port in (("127.0.0.1", 9999), ("10.0.0.9", 8000)):
            with pytest.raises(asyncssh.ChannelOpenError, match="refused"):
                await connection.open_connection(host, port, encoding=None)
        with pytest.raises(asyncssh.ChannelOpenError, match="No such file"):
            await connection.open_unix_connection("/run/other.sock", encoding=None)


async def test_tokens_stand_still_in_a_spin_deadlock_while_requests_are_held() -> None:
    async with connected("spin-deadlock", speed=50) as connection:
        await asyncio.sleep(0)
        text = ""
        while "vllm:num_requests_waiting" not in text or figures(text)["vllm:num_requests_waiting"] < 1:
            await asyncio.sleep(0.02)
            _, text = await ask(connection, 8000, "/metrics")
        first = figures(text)
        await asyncio.sleep(0.2)
        later = figures((await ask(connection, 8000, "/metrics"))[1])
        for name in ("vllm:generation_tokens_total", "vllm:prompt_tokens_total"):
            assert later[name] == first[name]
        assert later["vllm:num_requests_running"] == 3


# Docker, by the real SDK through a forwarded socket


@contextmanager
def docker_client(path: str) -> Iterator[Any]:
    client = docker.DockerClient(base_url=f"unix://{path}", version="auto", timeout=10)
    try:
        yield client
    finally:
        client.close()


@asynccontextmanager
async def docker_socket(connection: asyncssh.SSHClientConnection) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has 107 bytes
        path = f"{folder}/d.sock"
        async with await connection.forward_local_path(path, "/var/run/docker.sock"):
            yield path


async def test_the_docker_sdk_lists_and_inspects() -> None:
    def use(path: str) -> None:
        with docker_client(path) as client:
            assert client.ping()
            assert client.info()["Architecture"] == "aarch64"
            (container,) = client.containers.list(all=True)
            assert (container.name, container.status) == ("vllm-qwen36", "running")
            assert container.image.tags == ["vllm/vllm-openai:v0.32.0"]
            assert container.attrs["HostConfig"]["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
            assert container.attrs["State"]["Pid"] > 0
            assert client.containers.get(container.id[:12]).name == container.name
            with pytest.raises(docker.errors.NotFound, match="No such container"):
                client.containers.get("nothing")
            with pytest.raises(docker.errors.APIError):
                container.stop()

    async with connected() as connection, docker_socket(connection) as path:
        await asyncio.to_thread(use, path)


async def test_the_docker_sdk_reads_and_follows_a_log() -> None:
    def use(path: str) -> tuple[list[bytes], list[bytes], list[bytes]]:
        with docker_client(path) as client:
            container = client.containers.get("vllm-qwen36")
            whole = container.logs().splitlines()
            tail = container.logs(tail=2, timestamps=True).splitlines()
            following = container.logs(stream=True, follow=True, tail=1)
            fresh = [piece for piece, _ in zip(following, range(4), strict=False)]
            following.close()
            return whole, tail, fresh

    async with connected(speed=60) as connection, docker_socket(connection) as path:
        whole, tail, fresh = await asyncio.to_thread(use, path)
    assert b"Application startup complete" in b"".join(whole)
    assert sum(b"Loading safetensors checkpoint shards" in line for line in whole) == 15
    assert sum(b"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE)" in line for line in whole) >= 1
    assert [line[10:11] + line[29:31] for line in tail] == [b"TZ "] * 2
    assert len(fresh) == 4
    assert any(b"Avg generation throughput" in piece for piece in fresh)


async def test_a_killed_container_says_so_and_its_log_ends() -> None:
    def use(path: str) -> tuple[str, dict[str, Any], list[bytes]]:
        with docker_client(path) as client:
            container = client.containers.get("sglang-minimax-1")
            pieces = list(container.logs(stream=True, follow=True))
            container.reload()
            return container.status, container.attrs["State"], pieces

    async with connected("leak-after-kill", node=1, speed=25) as connection, docker_socket(connection) as path:
        status, state, pieces = await asyncio.to_thread(use, path)
    assert (status, state["ExitCode"], state["Pid"]) == ("exited", 137, 0)
    assert state["FinishedAt"] > state["StartedAt"]
    assert pieces


async def test_a_new_spark_wants_a_password_until_it_has_the_key() -> None:
    async with sparks("unpacked") as (first, second):
        async with await connect(first):
            pass
        with pytest.raises(asyncssh.PermissionDenied):
            await connect(second)
        async with await connect(second, password=DEMO_PASSWORD):
            pass
