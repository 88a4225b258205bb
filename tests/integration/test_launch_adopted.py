"""What owners have, launched on a real sshd and Docker Engine: a running container, a compose file, a script."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.types import Ulimit
from tests.integration.desk import NODE, Desk, told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import IMAGE, SHARE, EngineLike, Engines
from tests.integration.launch_support import MODEL
from tests.integration.test_launch import at_desk, boxes, launched, planned, sshd  # noqa: F401 (fixtures)
from tests.support import free_port

from sparktop.engines.ranks import find
from sparktop.model.change import Change
from sparktop.model.recipe import Order
from sparktop.operate.launch.launches_here import running_recipe
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import RunState
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.read.shelf import entry

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NAME = "own-engine"
CANARY = "hf_canary9d1e0c55d2abcdefghijkl"
LIMITS = {
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
}
"""Who runs the tests may not raise them."""
QUICK = {"ENGINE_LOAD_S": "0.6", "ENGINE_HOLD_MIB": "16", "MY_TOKEN": CANARY}


@pytest.fixture
def model() -> str:
    """What its command serves."""
    return MODEL


@pytest.fixture
def own(engines: Engines, tmp_path: Path, model: str) -> EngineLike:
    """A container of the operator's own."""
    port = free_port()
    return engines.start(
        NAME,
        env=QUICK,
        port=port,
        argv=("vllm", "serve", model, SHARE, "0.2", "--port", str(port), "--max-model-len", "4096"),
        binds=[f"{tmp_path}:/mine:ro"],
        ulimits=[Ulimit(name=name, soft=limit, hard=limit) for name, limit in LIMITS.items()],
        restart_policy={"Name": "unless-stopped"},
    )


async def adopted(at: Desk) -> Adopted:
    await at.serves(NAME)
    rank = find(NAME, "", at.monitor.state)
    assert rank is not None
    found = await running_recipe(rank, at.operations.ask)
    assert found.reading.recipe is not None, found.reading.problems
    assert CANARY not in found.text
    return found


@pytest.mark.fast
@pytest.mark.parametrize("model", [MODEL, "/opt/in-the-image"])
async def test_a_running_container_is_launched_in_its_own_place(
    at_desk: Any,  # noqa: F811
    dockerd: Dockerd,
    own: EngineLike,
    model: str,
) -> None:
    before = own.inspect()
    async with at_desk() as at:
        found = await adopted(at)
        assert found.reading.recipe is not None
        share = {"gpu_memory_utilization": "0.2"}  # else the budget's
        stops = ((NODE, NAME),)
        order = Order(recipe=found.reading.recipe, values=share, secrets=found.secrets, stops=stops)
        plan = await planned(at, order)
        assert isinstance(plan, Plan), plan
        assert CANARY not in repr(plan)
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
    after = own.inspect(NAME)
    assert after["Id"] != before["Id"]
    old = own.inspect()
    assert old["Name"].startswith(f"/{NAME}-before-")
    assert old["HostConfig"]["RestartPolicy"]["Name"] == "no", "else both start after a reboot"
    command = after["Config"]["Cmd"]
    assert (command[: len(before["Config"]["Cmd"])], after["Config"]["Image"]) == (before["Config"]["Cmd"], IMAGE)
    assert command[len(before["Config"]["Cmd"]) :] in ([], ["--served-model-name", model])
    assert set(before["Config"]["Env"]) <= set(after["Config"]["Env"])
    assert after["HostConfig"]["Binds"][-1:] == before["HostConfig"]["Binds"]
    assert after["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert own.answers()["data"][0]["id"] == model


async def test_it_is_back_when_the_new_one_fails(at_desk: Any, dockerd: Dockerd, own: EngineLike) -> None:  # noqa: F811
    before = own.inspect()
    async with at_desk() as at:
        found = await adopted(at)
        assert found.reading.recipe is not None
        environment = {**found.reading.recipe.environment, "ENGINE_FAILS": "load"}
        recipe = replace(found.reading.recipe, environment=environment)
        run = await launched(at, Order(recipe=recipe, secrets=found.secrets, stops=((NODE, NAME),)))
        assert run.state is RunState.ROLLED_BACK, told(run)
        await at.serves(NAME)
    assert own.inspect(NAME)["Id"] == before["Id"]
    assert [name for name in boxes(dockerd) if name.startswith(NAME)] == [NAME]
    assert own.answers()["data"][0]["id"] == MODEL


COMPOSE = """\
services:
  own:
    image: ${{IMAGE:-{image}}}
    container_name: {name}
    network_mode: host
    environment: {{ENGINE_LOAD_S: "0.6", ENGINE_HOLD_MIB: "16"}}
    ulimits: {{memlock: {memlock}, nofile: {nofile}}}
    volumes: ["./mine:/mine"]
    command: vllm serve ${{MODEL}} --gpu-memory-utilization 0.2 --port {port} --max-model-len 4096
"""
SCRIPT = """\
#!/bin/bash
. ./model.sh
docker run -d --name {name} --network host -e ENGINE_LOAD_S=0.6 -e ENGINE_HOLD_MIB=16 \\
  --ulimit memlock={memlock} --ulimit nofile={nofile} -v "$(pwd)/mine:/mine" \\
  {image} vllm serve "$MODEL" --gpu-memory-utilization 0.2 --port {port} --max-model-len 4096 "$@"
"""


WRAPPED = """\
docker run -d --name {name} --network host -e ENGINE_LOAD_S=0.6 -e ENGINE_HOLD_MIB=16 \\
  --ulimit memlock={memlock} --ulimit nofile={nofile} -v "$(pwd)/mine:/mine" {image} sh -c "
    echo \\"of $MODEL\\" > /mine/before && test -s /mine/before &&
    exec vllm serve $MODEL --gpu-memory-utilization 0.2 --port {port} --max-model-len 4096"
"""


@pytest.mark.parametrize(
    ("name", "text", "beside"),
    [("compose.yaml", COMPOSE, ".env"), ("run.sh", SCRIPT, "model.sh"), ("wrapped.sh", WRAPPED, "unread.sh")],
)
async def test_a_file_is_launched_changed_and_changed_back(
    at_desk: Any,  # noqa: F811
    engines: Engines,
    dockerd: Dockerd,
    tmp_path: Path,
    name: str,
    text: str,
    beside: str,
) -> None:
    port = free_port()
    (tmp_path / "mine").mkdir()
    (tmp_path / beside).write_text(f"MODEL={MODEL}\n")
    path = tmp_path / name
    path.write_text(text.format(image=IMAGE, name=NAME, port=port, **LIMITS))
    engines.names.append(NAME)
    chosen = entry(str(path)).recipe
    assert chosen is not None
    async with at_desk() as at:
        run = await launched(at, Order(recipe=chosen, values=dict.fromkeys(chosen.settings, MODEL)))
        assert run.state is RunState.DONE, told(run)
        commands = []
        for change, end in (
            (Change(flags={"--max-num-seqs": "8"}), RunState.DONE),
            (Change(environment={"ENGINE_FAILS": "load"}), RunState.ROLLED_BACK),
        ):
            await at.serves(NAME)
            plan = await at.plan("relaunch", NAME, change=change, target_gib="1", grace_s="5")
            assert isinstance(plan, Plan), plan
            run = await at.finished(at.begin(plan))
            assert run.state is end, told(run)
            commands.append(EngineLike(dockerd, "", NAME, port).inspect(NAME)["Config"]["Cmd"])
        assert commands[0][-2:] == ["--max-num-seqs", "8"]
        assert commands[1] == commands[0]
        await at.serves(NAME)
    engine = EngineLike(dockerd, "", NAME, port)
    assert engine.answers()["data"][0]["id"] == MODEL
    assert (tmp_path / "mine/before").is_file() is (name == "wrapped.sh")
    assert f"{tmp_path}/mine:/mine" in engine.inspect(NAME)["HostConfig"]["Binds"]
