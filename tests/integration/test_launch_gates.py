"""The gates of a launch on a real pair: two Docker Engines, two sshd, a small disk, a port that is taken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import hurried
from tests.integration.dockerd import busybox_tree
from tests.integration.engine_image import IMAGE
from tests.integration.launch_support import cache_with_model, order
from tests.integration.spark import Spark, image_tree, sparks
from tests.support import PATIENCE_S, free_port

from sparktop.model.prospect import Gate
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.model.state import State
from sparktop.observe.monitor import Monitor
from sparktop.operate.audit_file import Audit
from sparktop.operate.operations import Operations
from sparktop.operate.runner.connections import RunnerConnections

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sparks"]

NODES = ("spark1", "spark2")
NAME = "vllm-tiny"
ADDRESSES = {"spark1": "127.0.0.2", "spark2": "127.0.0.3"}
NO_CABLE = "    requires:\n      rdma: false\n"
FAILED, PASSED, WARNED = State.FAILED, State.PASSED, State.WARNING


@dataclass
class Pair:
    """Both, each with a home of its own, and what a console asks them."""

    sparks: tuple[Spark, Spark]
    operations: Operations
    lines: RunnerConnections
    monitor: Monitor
    homes: dict[str, Path] = field(default_factory=dict)

    async def gates(self, asked: Order) -> dict[tuple[str, str], Gate]:
        """By name and node, as the whole planner comes to them."""
        async with asyncio.timeout(PATIENCE_S):
            for node in NODES:
                await self.lines.wait(node)
            while any(node.network is None or node.facts is None for node in self.monitor.state.nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        found = await self.operations.plan(Request(action="launch", nodes=NODES, order=asked))
        assert found.prospect is not None, found
        told: dict[tuple[str, str], Gate] = {}
        for gate in found.prospect.gates:  # of several of one name the first shown, which is the worst
            told.setdefault((gate.name, gate.node), gate)
        return told

    def cache(self, node: str) -> Path:
        return self.homes[node] / ".cache/huggingface"


@pytest.fixture
async def pair(sparks: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    hurried(monkeypatch)
    homes = {}
    for spark in sparks:
        home = homes[spark.name] = tmp_path / spark.name
        home.mkdir()
        passwd = spark.root / "etc/passwd"
        rows = [row.split(":") for row in passwd.read_text().splitlines()]
        passwd.write_text(
            "".join(":".join([*row[:5], str(home), *row[6:]] if row[2] == "0" else row) + "\n" for row in rows)
        )
    lines = RunnerConnections()
    operations = Operations(picture=lambda: monitor.state, lines=lines, audit=Audit(tmp_path / "audit.jsonl"))
    monitor = Monitor(
        [spark.sshd.connector(spark.name) for spark in sparks],
        publish=lambda _: None,
        interval_s=0.25,
        connections=lines,
    )
    running = asyncio.create_task(monitor.run())
    try:
        yield Pair(sparks, operations, lines, monitor, homes)
    finally:
        await operations.aclose()
        await lines.aclose()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for spark in sparks:
            spark.dockerd.clear()


@pytest.fixture
def other_image(sparks: tuple[Spark, Spark]) -> Iterator[None]:
    """The second Spark has another image of that name."""
    _import(sparks[1], busybox_tree())
    yield
    _import(sparks[1], image_tree())


@pytest.fixture
def no_image(sparks: tuple[Spark, Spark]) -> Iterator[None]:
    """The second Spark has none."""
    sparks[1].dockerd.api.remove_image(IMAGE, force=True)
    yield
    _import(sparks[1], image_tree())


def _import(spark: Spark, tree: bytes) -> None:
    repository, _, tag = IMAGE.partition(":")
    changes = ["ENV PATH=/usr/local/bin:/usr/bin:/bin", "ENV PYTHONDONTWRITEBYTECODE=1"]
    spark.dockerd.api.import_image_from_data(tree, repository=repository, tag=tag, changes=changes)


def wanted(port: int = 0, **more: Any) -> Order:
    return order(port or free_port(), nodes=2, more=NO_CABLE, **more)


def with_models(pair: Pair, *nodes: str) -> None:
    for node in nodes:
        cache_with_model(pair.cache(node))


async def test_a_pair_that_has_everything(pair: Pair) -> None:
    """Each has imported the image for itself: two ids, and the same in it."""
    with_models(pair, *NODES)
    found = await pair.gates(wanted())
    ids = {spark.dockerd.api.inspect_image(IMAGE)["Id"] for spark in pair.sparks}
    assert len(ids) == 2
    for name in ("docker", "gpu-runtime", "image", "model", "disk", "name", "linger", "peer"):
        for node in NODES:
            assert found[name, node].state is PASSED, found[name, node]
    assert found["port", "spark1"].state is PASSED
    assert found["same-driver", ""].state is not FAILED
    assert "127.0.0.3 from 127.0.0.2" in found["peer", "spark1"].detail
    assert found["link", "spark1"].state is WARNED
    assert "lo 127.0.0.2" in found["link", "spark1"].detail


async def test_another_image_of_the_same_name(pair: Pair, other_image: None) -> None:
    gate = (await pair.gates(wanted()))["image", ""]
    short = [str(spark.dockerd.api.inspect_image(IMAGE)["Id"])[7:19] for spark in pair.sparks]
    assert gate.state is FAILED
    assert f"{short[0]} on spark1" in gate.detail
    assert f"{short[1]} on spark2" in gate.detail
    assert f"docker save {IMAGE} | ssh" in gate.remedy


async def test_an_image_that_only_one_has(pair: Pair, no_image: None) -> None:
    gate = (await pair.gates(wanted()))["image", "spark2"]
    assert gate.state is FAILED
    assert "no registry has it" in gate.detail
    assert gate.remedy == f"on spark1: docker save {IMAGE} | ssh spark2 docker load"


async def test_a_name_and_a_port_that_are_taken(pair: Pair) -> None:
    one, other = pair.sparks
    for spark, starts in ((one, True), (other, False)):
        made = spark.dockerd.api.create_container(
            IMAGE, ["sleep", "600"], name=NAME, host_config=spark.dockerd.api.create_host_config(network_mode="host")
        )
        if starts:
            spark.dockerd.api.start(made["Id"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = await pair.gates(wanted(port))
    assert found["name", "spark1"].state is FAILED
    assert "running" in found["name", "spark1"].detail
    assert found["name", "spark2"].state is FAILED
    assert f"docker rename {NAME}" in found["name", "spark2"].remedy
    assert found["port", "spark1"].state is FAILED
    assert f"port {port} is held by" in found["port", "spark1"].detail
    assert (await pair.gates(wanted(port)))["port", "spark1"].state is PASSED


async def test_a_disk_that_is_too_small(pair: Pair) -> None:
    snapshot = cache_with_model(pair.cache("spark1"))
    (snapshot / "model-2.safetensors").write_bytes((snapshot / "model.safetensors").read_bytes() + bytes(40 << 20))
    cache = pair.cache("spark2")
    cache.mkdir(parents=True)
    pair.sparks[1].run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(cache))
    try:
        gate = (await pair.gates(wanted()))["disk", "spark2"]
        assert gate.state is FAILED
        assert f"17 MB free on {cache} for the model, 42 MB: 46 MB with 10 % over, 29 MB short" in gate.detail
        pair.sparks[1].run("mount", "-o", "remount,size=64m", str(cache))
        gate = (await pair.gates(wanted()))["disk", "spark2"]
        assert gate.state is PASSED, gate
        assert "67 MB free" in gate.detail
    finally:
        pair.sparks[1].run("umount", str(cache))


async def test_a_way_from_node_to_node(pair: Pair) -> None:
    with_models(pair, "spark1")
    found = await pair.gates(wanted())
    assert found["model", "spark2"].state is WARNED
    gate = found["ssh", "spark2"]
    assert gate.state is WARNED, gate
    assert "127.0.0.2" in gate.remedy
    pair.sparks[0].sshd.trust(pair.homes["spark2"])
    pair.sparks[0].sshd.alias(ADDRESSES["spark1"], pair.homes["spark2"])
    gate = (await pair.gates(wanted()))["ssh", "spark2"]
    assert gate.state is PASSED, gate


async def test_a_docker_that_is_gone(pair: Pair) -> None:
    socket_path = pair.sparks[1].root / "run/docker.sock"
    aside = socket_path.with_name("docker.aside")
    async with asyncio.timeout(PATIENCE_S):
        await pair.lines.wait("spark2")
    socket_path.rename(aside)
    try:
        found = await pair.operations.plan(Request(action="launch", nodes=NODES, order=wanted()))
    finally:
        aside.rename(socket_path)
    assert "no Docker Engine answers on spark2" in getattr(found, "reason", "")
