"""A model comes to a pair for real: `hf download` from a hub on loopback, then rsync from node to node over ssh.

Asked for, planned and carried out as a launch does it, by the runners on two machines with an sshd each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.hub import Hub, index_of, safetensors
from tests.integration.spark import Spark, sparks
from tests.runner_support import no_secret, until
from tests.support import PATIENCE_S, needs, unavailable

from sparktop.model.engine import EngineKind
from sparktop.model.operation import Transfer
from sparktop.model.recipe import Dialect, Order, Recipe
from sparktop.model.survey import DockerGet, Question, Survey, looked_up
from sparktop.observe.monitor import Monitor
from sparktop.operate.acts.remote import Remote
from sparktop.operate.launch.inputs import download_steps, downloads
from sparktop.operate.launch.inputs.download_steps import Fetch
from sparktop.operate.launch.inputs.downloads import ModelOnNodes
from sparktop.operate.runner.api import NodeLine, OperationResult, Outcome, OutcomeState, Progress
from sparktop.operate.runner.connections import RunnerConnections
from sparktop.operate.step.plan import Step
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.models import NodeModels, node_models_of
from sparktop.recipe.parameters import resolve

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sparks"]

TOKEN = "hf_abcdefghijklmnopqrstuvwx"
MODEL = "acme/small-8B"
DRAFT = "acme/small-draft"
MIB = 1 << 20
SHARDS = {
    "model-00001-of-00003.safetensors": {"a": 2 * MIB},
    "model-00002-of-00003.safetensors": {"b": 6 * MIB},
    "model-00003-of-00003.safetensors": {"c": MIB},
}
FILES = {
    "config.json": json.dumps({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 28}).encode(),
    "model.safetensors.index.json": index_of(SHARDS),
    **{name: safetensors(tensors) for name, tensors in SHARDS.items()},
    "original/model.safetensors": safetensors({"z": 4 * MIB}),
}
NEEDED = sum(len(data) for name, data in FILES.items() if "/" not in name)
NODES = ("spark1", "spark2")
ADDRESSES = {"spark1": "127.0.0.2", "spark2": "127.0.0.3"}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.start() as server:
        server.tokens.add(TOKEN)
        server.model(MODEL, FILES, is_gated=True)
        yield server


@pytest.fixture
def rsync() -> None:
    """For what goes from node to node; first, so that no node is started for a test that is skipped."""
    needs("rsync", "rsync")


@dataclass
class Pair:
    """Both, each with a home of its own, and what a console does with them."""

    lines: RunnerConnections
    homes: dict[str, Path]
    sparks: tuple[Spark, Spark]
    told: list[OperationResult | Progress] = field(default_factory=list)
    seats: tuple[NodeContext, ...] = ()

    async def line(self, node: str) -> NodeLine:
        async with asyncio.timeout(PATIENCE_S):
            return await self.lines.wait(node)

    def models(self, order: Order, survey: Survey) -> tuple[ModelOnNodes, ...]:
        return downloads.models_on_nodes(resolve(order), self.seats, survey)

    def look(self, order: Order, survey: Survey) -> None:
        models = self.models(order, survey)
        download_steps.fetch(models, {})
        for model in models:
            for target in model.lacking:
                model.obstacle(target)

    async def survey(self, order: Order) -> Survey:
        """All that is asked, by the real runners; every image is taken to be there."""
        survey = Survey()
        for _ in range(5):
            left = looked_up(survey, partial(self.look, order))
            wanted: dict[str, list[Question]] = {}
            for ask in left:
                if not isinstance(ask, DockerGet):
                    wanted.setdefault(ask.node, []).append(ask)
            answers = dict(survey.answers)
            for node, questions in wanted.items():
                answers |= await (await self.line(node)).ask(questions)
            if len(answers) == len(survey.answers):
                return survey
            survey = Survey(answers=answers)
        raise AssertionError("too many rounds")

    async def fetch(self, order: Order) -> Fetch:
        return download_steps.fetch(self.models(order, await self.survey(order)), {})

    async def perform(self, step: Step) -> Outcome:
        """In a run of its own: what a run has done, its nodes remember until they boot."""
        assert isinstance(step.act, Remote)
        line = await self.line(step.node)
        async with asyncio.timeout(PATIENCE_S):
            return await line.perform(
                f"r{uuid.uuid4().hex}", step.id, step.act, told=self.told.append, secret=no_secret
            )

    async def disk(self, node: str, order: Order) -> NodeModels:
        ask = downloads.disk_question(node, order)
        disk = node_models_of(node, (await (await self.line(node)).ask([ask]))[ask].value)
        assert disk is not None
        return disk

    def folder(self, node: str) -> Path:
        return self.homes[node] / ".cache/huggingface/hub" / f"models--{MODEL.replace('/', '--')}"

    def journals(self) -> bytes:
        files = [path for spark in self.sparks for path in (spark.root / "run/lock").rglob("*") if path.is_file()]
        assert files
        return b"".join(path.read_bytes() for path in files)


@pytest.fixture
async def pair(sparks: tuple[Spark, Spark], tmp_path: Path) -> AsyncIterator[Pair]:
    program = Path(sys.executable).with_name("hf")
    if not program.exists():
        unavailable("no huggingface_hub here: pip install huggingface_hub")
    homes = {}
    for spark in sparks:
        home = tmp_path / spark.name
        (home / ".local/bin").mkdir(parents=True)
        (home / ".local/bin/hf").symlink_to(program)
        homes[spark.name] = home
        passwd = spark.root / "etc/passwd"
        rows = [row.split(":") for row in passwd.read_text().splitlines()]
        passwd.write_text(
            "".join(":".join([*row[:5], str(home), *row[6:]] if row[2] == "0" else row) + "\n" for row in rows)
        )
    for one, other in (sparks, sparks[::-1]):
        other.sshd.trust(homes[one.name])
        other.sshd.alias(ADDRESSES[other.name], homes[one.name])
    lines = RunnerConnections()
    monitor = Monitor(
        [spark.sshd.connector(spark.name) for spark in sparks],
        publish=lambda _: None,
        interval_s=0.5,
        connections=lines,
    )
    running = asyncio.create_task(monitor.run())
    seats = tuple(
        NodeContext(node=node, index=at, home=str(homes[node]), fabric_ip=ADDRESSES[node])
        for at, node in enumerate(NODES)
    )
    try:
        yield Pair(lines, homes, sparks, seats=seats)
    finally:
        await lines.aclose()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def wanted(hub: Hub, **more: Any) -> Order:
    recipe = Recipe(
        id="small",
        path="small.yaml",
        dialect=Dialect.SPARKRUN,
        engine=EngineKind.VLLM,
        model=MODEL,
        container="acme/x:1",
    )
    return Order(recipe=recipe, hub=hub.url, **{"secrets": {"HF_TOKEN": TOKEN}, **more})


@contextlib.contextmanager
def command_lines() -> Iterator[set[bytes]]:
    """Every command line of the machine meanwhile."""
    seen: set[bytes] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.005):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(5)


@pytest.mark.fast
@pytest.mark.usefixtures("rsync")
async def test_once_from_the_hub_then_over_the_fabric(pair: Pair, hub: Hub) -> None:
    order = wanted(hub)
    found = await pair.fetch(order)
    assert [step.id for step in found.steps] == ["model@spark1", "copy@spark2"]
    hub.bytes_s = 6 * MIB
    with command_lines() as seen:
        for step in found.steps:
            outcome = await pair.perform(step)
            assert outcome.state is OutcomeState.DONE, outcome
    assert hub.sent_bytes == NEEDED + len(FILES["config.json"])  # which the survey has read too
    assert any(b"hf\0download\0" in one for one in seen)
    assert any(b"rsync" in one for one in seen)
    assert not any(TOKEN.encode() in one for one in seen)
    assert TOKEN.encode() not in pair.journals()
    assert TOKEN not in repr(found) + repr(pair.told)
    for node in NODES:
        one = (await pair.disk(node, order)).find(MODEL)
        assert one is not None
        assert (one.is_complete, one.facts.weights_bytes, one.revision) == (True, 9 * MIB, hub.models[MODEL].commit)
        for name in SHARDS:
            path = Path(one.path) / name
            assert path.is_symlink()
            assert path.read_bytes() == FILES[name]
    assert await pair.fetch(order) == Fetch()
    progress = [one for one in pair.told if isinstance(one, Progress) and one.done_bytes is not None]
    assert progress
    assert {one.total_bytes for one in progress} == {NEEDED}


async def test_a_bad_network_is_gone_on_from_where_it_broke(pair: Pair, hub: Hub) -> None:
    """huggingface_hub writes 10 MB at a time, and goes on from what was written."""
    hub.model(MODEL, {**FILES, "model-00002-of-00003.safetensors": safetensors({"b": 24 * MIB})}, is_gated=True)
    order = wanted(hub)
    found = await pair.fetch(order)
    hub.cut_after_bytes = 16 * MIB
    outcome = await pair.perform(found.steps[0])
    assert outcome.state is OutcomeState.DONE, outcome
    assert [one[2] for one in hub.gets("00002-of-00003.safetensors")] == ["", "bytes=10485760-"]
    one = (await pair.disk("spark1", order)).find(MODEL)
    assert one is not None
    assert one.is_complete


@pytest.mark.usefixtures("rsync")
async def test_a_download_that_was_killed_keeps_the_files_that_had_come(pair: Pair, hub: Hub) -> None:
    order = wanted(hub)
    found = await pair.fetch(order)
    hub.bytes_s = 4 * MIB
    performing = asyncio.create_task(pair.perform(found.steps[0]))
    blobs = pair.folder("spark1") / "blobs"

    def small_ones_are_there() -> bool:
        there = [path for path in blobs.glob("*") if not path.name.endswith(".incomplete")] if blobs.is_dir() else []
        return len(there) >= 4

    await until(small_ones_are_there)
    killed = [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_download(entry, order)
    ]
    assert killed
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    outcome = await performing
    assert outcome.state is OutcomeState.FAILED
    half = (await pair.disk("spark1", order)).find(MODEL)
    assert half is not None
    assert not half.is_complete
    hub.bytes_s = None
    again = await pair.fetch(order)
    assert [step.id for step in again.steps] == ["model@spark1", "copy@spark2"]
    assert isinstance(again.steps[0].act, Remote)
    (operation,) = again.steps[0].act.operations
    assert isinstance(operation, Transfer)
    assert isinstance(found.steps[0].act, Remote)
    assert operation.key == found.steps[0].act.operations[0].key  # type: ignore[union-attr]
    for step in again.steps:
        assert (await pair.perform(step)).state is OutcomeState.DONE
    assert len(hub.gets("00001-of-00003.safetensors")) == 1  # it had come
    assert len(hub.gets("00002-of-00003.safetensors")) == 2
    for node in NODES:
        whole = (await pair.disk(node, order)).find(MODEL)
        assert whole is not None
        assert (node, whole.is_complete, whole.missing) == (node, True, ())


def _is_download(entry: Path, order: Order) -> bool:
    with contextlib.suppress(OSError):
        words = (entry / "cmdline").read_bytes().split(b"\0")
        return b"download" in words and order.recipe.model.encode() in words
    return False


async def test_a_gated_model_without_the_right_token(pair: Pair, hub: Hub) -> None:
    for secrets in ({}, {"HF_TOKEN": "hf_anothers-token-here"}):
        order = wanted(hub, secrets=secrets)
        assert await pair.fetch(order) == Fetch()
        (model,) = pair.models(order, await pair.survey(order))
        assert model.hub is not None
        assert model.hub.status in (401, 403)


@pytest.mark.usefixtures("rsync")
async def test_where_the_nodes_do_not_reach_one_another_both_download(pair: Pair, hub: Hub) -> None:
    (pair.homes["spark2"] / ".ssh/known_hosts").write_text("")
    order = wanted(hub)
    found = await pair.fetch(order)
    assert [step.id for step in found.steps] == ["model@spark1", "model@spark2"]
    assert "Host key verification failed" in found.downloads[1].text
    assert (pair.homes["spark2"] / ".ssh/known_hosts").read_text() == ""  # nothing was taken on trust


async def test_a_hub_that_is_not_there(pair: Pair, hub: Hub) -> None:
    order = replace(wanted(hub), hub="http://127.0.0.1:9")
    assert await pair.fetch(order) == Fetch()
    (model,) = pair.models(order, await pair.survey(order))
    assert model.hub is not None
    assert "can't be reached" in model.hub.problem


@pytest.mark.usefixtures("rsync")
async def test_a_model_and_its_draft_each_once_from_the_hub_and_once_over_the_fabric(pair: Pair, hub: Hub) -> None:
    files = {"config.json": b'{"num_hidden_layers": 1}', "model.safetensors": safetensors({"d": 3 * MIB})}
    hub.model(DRAFT, files)
    told = wanted(hub)
    recipe = replace(
        told.recipe,
        more_models=("acme/unset-draft",),
        defaults={"draft": "acme/unset-draft"},
        command="vllm serve {model} --speculative-draft-model-path {draft}",
    )
    order = replace(told, recipe=recipe, values={"draft": DRAFT})
    found = await pair.fetch(order)
    assert [step.id for step in found.steps] == ["model@spark1", "copy@spark2", "model-2@spark1", "copy-2@spark2"]
    for step in found.steps:
        outcome = await pair.perform(step)
        assert outcome.state is OutcomeState.DONE, outcome
    assert len(hub.gets(f"{DRAFT}/resolve/{hub.models[DRAFT].commit}/model.safetensors")) == 1
    for node in NODES:
        disk = await pair.disk(node, order)
        for name, size in ((MODEL, 9 * MIB), (DRAFT, 3 * MIB)):
            one = disk.find(name)
            assert one is not None
            assert (node, name, one.is_complete, one.facts.weights_bytes) == (node, name, True, size)
    assert await pair.fetch(order) == Fetch()
    assert not any("unset" in path for _, path, _ in hub.asked)
    shutil.rmtree(pair.homes["spark2"] / ".cache/huggingface/hub" / f"models--{DRAFT.replace('/', '--')}")
    again = await pair.fetch(order)
    assert [step.title.partition(" (")[0] for step in again.steps] == [f"Copy {DRAFT}"]
