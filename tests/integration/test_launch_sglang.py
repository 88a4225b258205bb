"""An SGLang recipe launched on one machine and over two, by its own way of meeting."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.desk import hurried, told
from tests.integration.launch_support import text_of
from tests.integration.spark import Spark, sparks
from tests.integration.test_launch_pair import NO_RDMA, boxes, pair, planned, seen
from tests.integration.test_operate_pair import console
from tests.support import free_port

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import RunState
from sparktop.recipe.read.recipe_file import read

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["pair", "sparks"]
NAME = "sglang-tiny"
COMMAND = (
    "sglang serve --model-path {model} --host {host} --port {port} --tp {tensor_parallel} --enable-metrics "
    "--mem-fraction-static {mem_fraction_static} --context-length {context_length}\n"
)


def asked(**env: str) -> Order:
    head, _, rest = text_of(free_port(), nodes=2, more=NO_RDMA, env=env).partition("command: |\n")
    text = f"{head}command: |\n  {COMMAND}runtime_config:\n{rest.partition('runtime_config:' + chr(10))[2]}"
    text = text.replace("runtime: vllm\n", "runtime: sglang\n")
    text = text.replace("gpu_memory_utilization:", "mem_fraction_static:").replace("max_model_len:", "context_length:")
    reading = read(text, "/recipes/tiny.yaml")
    assert reading.recipe is not None, reading.problems
    return Order(recipe=reading.recipe)


@pytest.fixture(autouse=True)
def names(pair: tuple[Spark, Spark]) -> None:
    for spark in pair:
        spark.engines.names.append(NAME)


async def test_two_ranks_meet_and_are_proven(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    async with console(pair, tmp_path) as at:
        await seen(at)
        plan = await planned(at, asked())
        assert isinstance(plan, Plan), plan
        assert plan.title == "Launch tiny-1b on spark1 and spark2 (SGLang)"
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
        steps = {one.step.id: one for one in run.steps}
        assert steps["smoke"].detail.startswith("serves:")
        assert "tok/s" in steps["measure"].detail
        served = [one for one in at.monitor.state.nodes[0].engines if one.name == NAME]
        assert [one.kind for one in served] == [EngineKind.SGLANG]
    assert [boxes(spark) for spark in pair] == [{NAME: "running"}] * 2
    commands = [" ".join(spark.dockerd.api.inspect_container(NAME)["Config"]["Cmd"]) for spark in pair]
    assert [f"--nnodes 2 --node-rank {rank}" in words for rank, words in enumerate(commands)] == [True, True]
    assert all("--dist-init-addr 127.0.0.2:" in words for words in commands)


async def test_a_head_that_fails_takes_its_other_rank_with_it(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    async with console(pair, tmp_path) as at:
        await seen(at)
        plan = await planned(at, asked(ENGINE_FAILS="ready"))
        assert isinstance(plan, Plan), plan
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.ROLLED_BACK, told(run)
        assert "NCCL failed on a system call" in run.message
    assert [boxes(spark) for spark in pair] == [{}, {}]
