"""A compose file's service launched as itself, on a machine of its own with sshd, Docker Engine and compose."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import Desk, hurried, told
from tests.integration.engine_image import IMAGE, EngineLike
from tests.integration.spark import Spark, machine, spark
from tests.integration.terminal import hurried_program, sparktop
from tests.integration.test_launch_interrupted import at_step
from tests.integration.test_operate_composed import program
from tests.integration.test_operate_pair import console
from tests.support import free_port, poll

from sparktop.documents.run import STEP_SIGNS
from sparktop.model.change import Change
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.launch.launches_here import recipe_of_file
from sparktop.operate.run.executor import PlanExecution
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["machine", "spark"]

NODE, FOLDER = "spark1", "/run/my stack"
PATH = f"{FOLDER}/compose.yaml"
CANARY = "hf_canary8e2b0c55d2abcdefghijkl"
LIMITS = {
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
}
"""Who runs the tests may not raise them."""
COMPOSE = """\
services:
  engine:
    image: {image}
    network_mode: host
    restart: unless-stopped
    environment:
      ENGINE_LOAD_S: "${{LOAD_S:-0.5}}"
      ENGINE_HOLD_MIB: "16"
      ENGINE_FAILS: "${{FAILS}}"
      HF_TOKEN: ${{HF_TOKEN:-}}
    ulimits: {{memlock: {memlock}, nofile: {nofile}}}
    volumes: ["./mine:/mine"]
    healthcheck: {{test: "true", interval: 1h}}
    command: vllm serve ${{MODEL}} --gpu-memory-utilization 0.2 --port {port} --max-model-len 4096
  other:
    image: {image}
    network_mode: host
    command: sleep 1000
"""


@dataclass
class Project:
    """One project on the Spark; none of its containers is there."""

    spark: Spark
    port: int = field(default_factory=free_port)
    program: list[str] = field(default_factory=program)
    """Asked for once: a console that waits for it has old figures."""

    def write(self, *, text: str = COMPOSE, **variables: str) -> None:
        folder = Path(f"{self.spark.root}{FOLDER}")
        (folder / "mine").mkdir(parents=True, exist_ok=True)
        (folder / "compose.yaml").write_text(text.format(image=IMAGE, port=self.port, **LIMITS))
        pairs = {"MODEL": "/opt/in-the-image", "FAILS": "", **variables}
        (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in pairs.items()))

    def compose(self, *words: str) -> str:
        line = subprocess.list2cmdline([*self.program, *words])
        return self.spark.run("sh", "-c", f"cd '{FOLDER}' && {line}").strip()

    def boxes(self) -> dict[str, str]:
        """Service -> state of each container of the project."""
        rows = self.spark.dockerd.api.containers(all=True)
        return {row["Labels"].get("com.docker.compose.service", row["Names"][0]): row["State"] for row in rows}

    def inspect(self) -> dict[str, Any]:
        found: dict[str, Any] = self.spark.dockerd.api.inspect_container(self.compose("ps", "-q", "engine"))
        return found

    @property
    def engine(self) -> EngineLike:
        made = self.inspect()
        return EngineLike(self.spark.dockerd, made["Id"], made["Name"].lstrip("/"), self.port)


@pytest.fixture
def project(spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    hurried(monkeypatch)
    made = Project(spark)
    made.write()
    try:
        yield made
    finally:
        spark.dockerd.clear()


@contextlib.asynccontextmanager
async def desk(project: Project, folder: Path) -> AsyncIterator[Desk]:
    async with console((project.spark,), folder) as at:
        yield Desk(at.monitor, at.lines, at.operations, at.audit_path, at.evidence_folder)


async def order_of(at: Desk, **asked: Any) -> Order:
    """What the file's engine is made into, as it is now."""
    await at.until(lambda: at.lines.line(NODE) is not None, what="a runner")
    await at.until(lambda: at.monitor.state.nodes[0].sample is not None, what="figures")
    adopted = await recipe_of_file(PATH, "engine", at.monitor.state.nodes[0], at.operations.ask)
    assert adopted.reading.recipe is not None, adopted.reading.problems
    return Order(recipe=adopted.reading.recipe, **asked)


async def planned(at: Desk, order: Order) -> Plan | Refusal:
    return await at.operations.plan(Request(action="launch", nodes=(NODE,), order=order, options={"grace_s": "3"}))


async def possible(at: Desk, **asked: Any) -> Plan:
    plan = await planned(at, await order_of(at, **asked))
    assert isinstance(plan, Plan), plan
    return plan


async def launched(at: Desk, **asked: Any) -> Run:
    return await at.finished(at.begin(await possible(at, **asked)))


async def test_compose_knows_what_is_launched_changed_and_changed_back(project: Project, tmp_path: Path) -> None:
    async with desk(project, tmp_path) as at:
        order = await order_of(at, secrets={"HF_TOKEN": CANARY})
        plan = await planned(at, order)
        assert isinstance(plan, Plan), plan
        assert CANARY not in repr(plan)
        line = f"{' '.join(project.program)} -f '{PATH}' -p mystack up -d --no-deps engine"
        assert f"Runs `{line}`." in plan.effect
        assert f"on {NODE}: {line}" in plan.equivalent
        assert "export HF_TOKEN" in "".join(plan.equivalent)
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
        assert project.boxes() == {"engine": "running"}
        made = project.inspect()
        assert f"HF_TOKEN={CANARY}" in made["Config"]["Env"]
        assert made["Config"]["Healthcheck"], "what no recipe can say"
        assert made["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
        assert made["HostConfig"]["Binds"] == [f"{FOLDER}/mine:/mine:rw"]
        engine = project.engine
        assert engine.answers()["data"][0]["id"] == "/opt/in-the-image"

        await at.serves(engine.name)
        again = await planned(at, order)
        assert isinstance(again, Refusal)
        assert f"{engine.name} of engine on {NODE} already (running)" in again.reason
        for change, end in (
            (Change(flags={"--max-num-seqs": "8"}), RunState.DONE),
            (Change(environment={"ENGINE_FAILS": "load"}), RunState.ROLLED_BACK),
        ):
            run = await at.do("relaunch", engine.name, change=change, target_gib="1", grace_s="5")
            assert run.state is end, told(run)
            await at.serves(engine.name)
        assert project.inspect()["Config"]["Cmd"][-2:] == ["--max-num-seqs", "8"]
    project.compose("down")
    assert project.boxes() == {}


async def test_one_that_fails_is_removed_and_what_made_room_runs_again(project: Project, tmp_path: Path) -> None:
    old = project.spark.engines.start("vllm-old", env={"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"})
    project.compose("up", "-d", "other")
    project.write(FAILS="load")
    async with desk(project, tmp_path) as at:
        await at.serves("vllm-old")
        run = await launched(at, stops=((NODE, "vllm-old"),))
        assert run.state is RunState.ROLLED_BACK, told(run)
        assert any("CUDA error: out of memory" in one.detail for one in run.steps), told(run)
        await at.serves("vllm-old")
    assert Path(run.evidence_path).exists()
    assert project.boxes() == {"/vllm-old": "running", "other": "running"}
    assert old.answers() is not None


async def test_out_of_it_at_each_of_its_steps(project: Project, tmp_path: Path) -> None:
    project.write(LOAD_S="60")
    async with desk(project, tmp_path) as at:
        for step in (step for step in (await possible(at)).steps if step.id in ("check", "make", "start", "ready")):
            plan = await possible(at)
            begun: list[PlanExecution] = []
            begun.append(at.begin(plan, also=at_step(step, lambda begun=begun: begun[0].abort())))
            run = await at.finished(begun[0])
            assert run.state is RunState.ABORTED, f"{step.id}: {told(run)}"
            assert project.boxes() == {}, f"{step.id}: {told(run)}"
            assert not run.can_go_back


@pytest.mark.parametrize(
    ("text", "variables", "why"),
    [
        (
            COMPOSE.replace("restart: unless-stopped", "restart: always"),
            {},
            "/compose.yaml on spark1 was changed since",
        ),
        (COMPOSE, {"LOAD_S": "1"}, "/.env on spark1 was changed since"),
    ],
)
async def test_a_file_that_is_changed_meanwhile(
    project: Project, tmp_path: Path, text: str, variables: dict[str, str], why: str
) -> None:
    async with desk(project, tmp_path) as at:
        order = await order_of(at)
        plan = await planned(at, order)
        assert isinstance(plan, Plan), plan
        project.write(text=text, **variables)
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.ROLLED_BACK, told(run)
        assert "was changed since it was read: plan again" in told(run)
        again = await planned(at, order)
        assert isinstance(again, Refusal)
        assert why in again.reason
    assert project.boxes() == {}


@pytest.mark.parametrize("image", ["nobody/nothing:1", IMAGE])
async def test_what_compose_refuses_stops_nothing(project: Project, tmp_path: Path, image: str) -> None:
    """An image that went meanwhile; a part of the file that sparktop doesn't read."""
    text = COMPOSE + ("" if image != IMAGE else "  broken: {{image: x, ports: [nonsense]}}\n")
    project.write(text=text)
    old = project.spark.engines.start("vllm-old", env={"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"})
    began = old.inspect()["State"]["StartedAt"]
    async with desk(project, tmp_path) as at:
        await at.serves("vllm-old")
        order = await order_of(at, stops=((NODE, "vllm-old"),))
        plan = await planned(at, order)
        assert isinstance(plan, Plan), plan
        if image != IMAGE:
            project.spark.dockerd.api.tag(IMAGE, "kept", "1")
            project.spark.dockerd.api.remove_image(IMAGE, force=True)
        try:
            run = await at.finished(at.begin(plan))
        finally:
            if image != IMAGE:
                project.spark.dockerd.api.tag("kept:1", *IMAGE.split(":"))
        assert run.state is RunState.ROLLED_BACK, told(run)
    assert project.boxes() == {"/vllm-old": "running"}
    assert old.inspect()["State"]["StartedAt"] == began


def killed_while(words: str, *arguments: str) -> None:
    """`sparktop launch` as it is typed, gone without a word when it has written this line."""
    process = subprocess.Popen(
        [*hurried_program(), "launch", *arguments, "--yes", "--grace", "3"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ,
    )  # fmt: skip
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.startswith(STEP_SIGNS[StepState.RUNNING][0]) and words in line:
                return
        pytest.fail(f"it never came there:\n{''.join(said)}")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()


def test_a_console_that_is_killed_is_led_back_by_the_next(project: Project) -> None:
    project.write(LOAD_S="60")
    for words, left in (("available on spark1", "created"), ("Wait until mystack", "running")):
        killed_while(words, f"{PATH}#engine", NODE)
        # What the node has begun it completes by itself.
        poll(lambda left=left: project.boxes() == {"engine": left}, what=left)
        said = sparktop("act", "restore", NODE, "--yes", is_hurried=True)
        assert said.returncode == 0, words + said.stdout + said.stderr
        assert project.boxes() == {}, words


def test_it_is_launched_by_its_path_on_the_spark(project: Project) -> None:
    said = sparktop("launch", f"{PATH}#engine", NODE, "--yes", is_hurried=True)
    assert said.returncode == 0, said.stdout + said.stderr
    assert project.boxes() == {"engine": "running"}
    assert EngineLike(project.spark.dockerd, "", "", project.port).answers() is not None
    for name, why in ((f"{FOLDER}/none.yaml", "is no file"), (f"{PATH}#none", "starts no engine none")):
        said = sparktop("launch", name, NODE, "--dry-run")
        assert said.returncode == 2
        assert why in said.stderr


async def test_with_other_values_it_is_a_container_of_its_own(project: Project, tmp_path: Path) -> None:
    async with desk(project, tmp_path) as at:
        run = await launched(at, values={"max_model_len": "2048", "name": "own"})
        assert run.state is RunState.DONE, told(run)
    assert project.boxes() == {"/own": "running"}
