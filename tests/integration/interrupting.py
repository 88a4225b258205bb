"""A launch that can be broken off anywhere: on one Spark, where an engine gives it room, or on a pair, to which its
model has to come from a hub and then from node to node.

async with stage.console() as at:
    for step in await stage.steps(at):
        plan = await stage.plan(at, step)
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.hub import Hub
from tests.integration.engine_image import EngineLike
from tests.integration.launch_support import COMMIT, MODEL, cache_with_model, text_of
from tests.integration.spark import Spark
from tests.integration.terminal import hurried_program
from tests.integration.test_launch_pair import NAME, NO_RDMA, boxes
from tests.integration.test_operate_pair import PairDesk, console
from tests.support import free_port, unavailable

from sparktop.model.engine import EngineState
from sparktop.model.fleet import LinkState
from sparktop.model.plan import Plan, Refusal, Request, Step
from sparktop.model.recipe import Order
from sparktop.model.run import Run, StepState
from sparktop.recipe.read.recipe_file import read

OLD = "vllm-old"
NODES = ("spark1", "spark2")
_ADDRESSES = {"spark1": "127.0.0.2", "spark2": "127.0.0.3"}
FETCHES = ("image", "model", "copy", "cache")


@dataclass
class Stage:
    """The Sparks, what runs there before, and the launch."""

    sparks: tuple[Spark, Spark]
    hub: Hub
    folder: Path
    count: int = 2
    """Of its nodes."""
    port: int = field(default_factory=free_port)
    old: EngineLike | None = field(init=False, default=None)
    """What gives it room."""

    def __post_init__(self) -> None:
        program = Path(sys.executable).with_name("hf")
        if not program.exists():
            unavailable("no huggingface_hub here: pip install huggingface_hub")
        for spark in self.sparks:
            home = self.home(spark.name)
            (home / ".local/bin").mkdir(parents=True)
            (home / ".local/bin/hf").symlink_to(program)
            passwd = spark.root / "etc/passwd"
            rows = [row.split(":") for row in passwd.read_text().splitlines()]
            passwd.write_text(
                "".join(":".join([*row[:5], str(home), *row[6:]] if row[2] == "0" else row) + "\n" for row in rows)
            )
            spark.engines.names += [NAME, OLD]
        for one, other in (self.sparks, self.sparks[::-1]):
            other.sshd.trust(self.home(one.name))
            other.sshd.alias(_ADDRESSES[other.name], self.home(one.name))
        for spark in self.sparks:
            self.has_model(spark.name)
            spark.sshd.trust()
            spark.sshd.alias(spark.name)
        self._offer()
        if self.count == 1:
            env = {"ENGINE_LOAD_S": "0.2", "ENGINE_HOLD_MIB": "16"}
            self.old = self.sparks[0].engines.start(OLD, env=env, restart_policy={"Name": "unless-stopped"})

    def _offer(self) -> None:
        there = self.home("spark1") / ".cache/huggingface/hub" / f"models--{MODEL.replace('/', '--')}"
        snapshot = there / "snapshots" / COMMIT
        files = {path.name: path.read_bytes() for path in snapshot.iterdir()}
        self.hub.model(MODEL, files, commit=COMMIT)

    @property
    def nodes(self) -> tuple[str, ...]:
        return NODES[: self.count]

    def spark(self, node: str) -> Spark:
        return self.sparks[NODES.index(node)]

    def home(self, node: str) -> Path:
        return self.folder / node

    def has_model(self, node: str, *, whether: bool = True) -> None:
        cache = self.home(node) / ".cache/huggingface"
        shutil.rmtree(cache, ignore_errors=True)
        if whether:
            cache_with_model(cache)

    @property
    def text(self) -> str:
        """The recipe's."""
        return text_of(
            self.port,
            nodes=self.count,
            more=NO_RDMA if self.count > 1 else "",
            options="  restart_policy: unless-stopped",
            env={"ENGINE_LOAD_S": "0.3"},
        )

    def order(self, *also: tuple[str, str]) -> Order:
        """It, with what is stopped for it besides."""
        reading = read(self.text, "/recipes/tiny.yaml")
        assert reading.recipe is not None, reading.problems
        stops = (("spark1", OLD),) if self.old is not None and self.old.inspect()["State"]["Running"] else ()
        return Order(recipe=reading.recipe, stops=(*stops, *also), hub=self.hub.url)

    @contextlib.asynccontextmanager
    async def console(self, name: str = "console") -> AsyncIterator[PairDesk]:
        async with console(self.sparks[: self.count], self.folder / name) as at:
            await self.seen(at)
            yield at

    async def seen(self, at: PairDesk) -> None:
        """All nodes answer, and the engine that is there before serves."""
        await at.until(lambda: all(at.lines.line(node) for node in self.nodes), what="its runners")
        await at.until(
            lambda: all(one.sample and one.network and one.containers.available for one in at.monitor.state.nodes),
            what="figures of all",
        )
        if self.old is not None:
            await at.until(lambda: self._serves(at), what="the engine that is there before")

    async def live(self, at: PairDesk) -> None:
        """All nodes are heard and can be changed."""

        def are() -> bool:
            views = [at.monitor.state.node(node) for node in self.nodes]
            heard = all(view is not None and view.link.state is LinkState.LIVE for view in views)
            return heard and all(at.lines.line(node) for node in self.nodes)

        await at.until(are, what="links to all")

    def _serves(self, at: PairDesk) -> bool:
        found = [one for one in at.monitor.state.nodes[0].engines if one.name == OLD]
        return any(one.state in (EngineState.READY, EngineState.SERVING) for one in found)

    async def planned(self, at: PairDesk, *also: tuple[str, str]) -> Plan | Refusal:
        return await at.operations.plan(
            Request(action="launch", nodes=self.nodes, order=self.order(*also), options={"grace_s": "3"})
        )

    async def possible(self, at: PairDesk, *also: tuple[str, str]) -> Plan:
        """A plan, as soon as what was there has left the picture."""
        found = await self.planned(at, *also)
        deadline = time.monotonic() + 20
        while isinstance(found, Refusal):
            assert time.monotonic() < deadline, found.reason
            await asyncio.sleep(0.25)
            found = await self.planned(at, *also)
        return found

    async def steps(self, at: PairDesk) -> tuple[Step, ...]:
        """All steps that this launch can have."""
        for node in self.nodes:
            self.has_model(node, whether=False)
        plan = await self.possible(at)
        for node in self.nodes:
            self.has_model(node)
        return plan.steps

    def has_to_fetch(self, step: Step) -> None:
        """What this step would bring isn't there; all else is."""
        what = kind(step)
        for node in self.nodes:
            self.has_model(node, whether=what not in FETCHES or (what == "copy" and node != step.node))

    async def plan(self, at: PairDesk, step: Step) -> Plan:
        """A plan that has this step."""
        self.has_to_fetch(step)
        plan = await self.possible(at)
        assert step.id in [one.id for one in plan.steps], [one.id for one in plan.steps]
        return plan

    def boxes(self) -> dict[str, dict[str, str]]:
        """By node: name -> state of every container."""
        return {spark.name: boxes(spark) for spark in self.sparks[: self.count]}

    def is_as_before(self) -> bool:
        """Nothing but what was there, and that as it was."""
        before: dict[str, dict[str, str]] = {node: {} for node in self.nodes}
        policy = "unless-stopped"
        if self.old is not None:
            before["spark1"][OLD] = "running"
            policy = self.old.inspect()["HostConfig"]["RestartPolicy"]["Name"]
        return self.boxes() == before and policy == "unless-stopped"

    def clear(self) -> None:
        """Away with what a launch has left."""
        for spark in self.sparks[: self.count]:
            spark.dockerd.clear(keep="" if self.old is None else self.old.container_id)
        if self.old is not None:
            self.old.docker.api.start(self.old.container_id)
            self.old.docker.api.update_container(self.old.container_id, restart_policy={"Name": "unless-stopped"})
            self.old.wait_ready()


def kind(step: Step) -> str:
    return step.id.partition("@")[0].partition("-")[0]


def is_at(run: Run, step: str) -> bool:
    return any(one.step.id == step and one.state is StepState.RUNNING for one in run.steps)


def killed(launch: Stage, is_there: Callable[[str], bool]) -> None:
    """`sparktop launch` as it is typed, gone without a word when it has written this line."""
    recipes = Path(os.environ["XDG_CONFIG_HOME"]) / "sparktop/recipes"
    recipes.mkdir(parents=True, exist_ok=True)
    (recipes / "tiny.yaml").write_text(launch.text)
    stops = [word for _, name in launch.order().stops for word in ("--stop", name)]
    process = subprocess.Popen(
        [*hurried_program(), "launch", "tiny", *launch.nodes, *stops, "--yes", "--grace", "3"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HF_ENDPOINT": launch.hub.url},
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if is_there(line):
                return
        pytest.fail(f"it never came there:\n{''.join(said)}")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()


@contextlib.contextmanager
def stage(sparks: tuple[Spark, Spark], folder: Path, count: int) -> Iterator[Stage]:
    try:
        with Hub.start() as hub:
            yield Stage(sparks, hub, folder, count)
    finally:
        for spark in sparks:
            if spark.sshd.process is None:
                spark.sshd.run()
            spark.engines.remove_all()
