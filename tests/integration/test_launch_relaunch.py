"""What a launch has started is acted on as anything else: relaunched with a change, restarted, stopped, launched anew;
over two machines by its own ranks and by Ray."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import hurried, told
from tests.integration.launch_support import text_of
from tests.integration.spark import Spark, sparks
from tests.integration.test_launch_pair import NAME, NO_RDMA, pair, planned, seen
from tests.integration.test_operate_pair import NODES, PairDesk, console
from tests.support import free_port

from sparktop.engines import labels
from sparktop.model.change import Change
from sparktop.model.engine import EngineState
from sparktop.model.recipe import Order
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.recipe.read.recipe_file import read
from sparktop.recipe.render import rank_argv

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["pair", "sparks"]
RESTART = {"target_gib": "2", "grace_s": "5"}
KINDS = {"native": ("spark2", "spark1"), "ray": ("spark1", "spark2")}
"""In which order their ranks are started."""


def asked(kind: str, **env: str) -> Order:
    text = text_of(free_port(), nodes=2, more=NO_RDMA, options="  restart_policy: unless-stopped", env=env)
    if kind == "ray":
        text = text.replace("runtime: vllm\n", "runtime: vllm-ray\n").replace(
            "  port: ", f"  ray_port: {free_port()}\n  port: "
        )
    reading = read(text, "/recipes/tiny.yaml")
    assert reading.recipe is not None, reading.problems
    return Order(recipe=reading.recipe, values={"max_model_len": "2048"})


@dataclass
class Ranks:
    """The two containers as Docker has them now."""

    sparks: tuple[Spark, Spark]

    def boxes(self) -> list[dict[str, Any]]:
        return [spark.dockerd.api.inspect_container(NAME) for spark in self.sparks]

    def states(self, name: str) -> list[Any]:
        return [box["State"][name] for box in self.boxes()]

    def labelled(self, name: str) -> set[str | None]:
        return {box["Config"]["Labels"].get(name) for box in self.boxes()}

    def started(self) -> tuple[str, ...]:
        """The nodes, by the start of their containers."""
        return tuple(sorted(NODES, key=lambda node: self.states("StartedAt")[NODES.index(node)]))

    def policies(self) -> set[str]:
        return {str(box["HostConfig"]["RestartPolicy"]["Name"]) for box in self.boxes()}


async def launched(at: PairDesk, order: Order) -> None:
    await seen(at)
    plan = await planned(at, order)
    assert isinstance(plan, Plan), plan
    run = await at.finished(at.begin(plan))
    assert run.state is RunState.DONE, told(run)
    await at.serves(NAME)


def done(run: Run) -> Run:
    assert run.state is RunState.DONE, told(run)
    return run


@pytest.mark.parametrize("kind", KINDS)
async def test_a_launched_pair_is_relaunched_restarted_and_stopped(
    kind: str, pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    ranks = Ranks(pair)
    order = asked(kind)
    async with console(pair, tmp_path) as at:
        await launched(at, order)
        assert ranks.started() == KINDS[kind]
        assert ranks.policies() == {"unless-stopped"}
        before = ranks.boxes()

        change = Change(flags={"--max-num-seqs": "8"}, environment={"NCCL_DEBUG": "INFO"})
        plan = await at.plan("relaunch", NAME, change=change, **RESTART)
        assert isinstance(plan, Plan), plan
        policy = [step.id for step in plan.steps].index("policy@spark1")
        assert policy > [step.id for step in plan.steps].index("smoke")
        done(await at.finished(at.begin(plan)))
        after = ranks.boxes()
        assert not {box["Id"] for box in before} & {box["Id"] for box in after}
        assert ranks.started() == KINDS[kind]
        assert ranks.policies() == {"unless-stopped"}
        assert all("NCCL_DEBUG=INFO" in box["Config"]["Env"] for box in after)
        commands = [(old["Config"]["Cmd"], new["Config"]["Cmd"]) for old, new in zip(before, after, strict=True)]
        assert commands[0][1] == [*commands[0][0], "--max-num-seqs", "8"]
        if kind == "ray":
            assert commands[0][1][:3] == ["sh", "-c", rank_argv.HEAD_SCRIPT]
            assert commands[1][1] == commands[1][0]
        else:
            assert commands[1][1] == [*commands[1][0], "--max-num-seqs", "8"]
        assert ranks.labelled(labels.VALUES) == {json.dumps({"max_model_len": "2048", "max_num_seqs": "8"})}
        assert ranks.labelled(labels.CHANGED) == {'["NCCL_DEBUG"]'}
        assert len(ranks.labelled(labels.LAUNCH)) == 1

        await at.serves(NAME)
        again = await planned(at, order)
        assert isinstance(again, Refusal)
        assert "with these values" not in again.reason

        ids = {box["Id"] for box in ranks.boxes()}
        done(await at.do("safe-restart", NAME, **RESTART))
        assert {box["Id"] for box in ranks.boxes()} == ids
        assert ranks.started() == KINDS[kind]
        assert ranks.policies() == {"unless-stopped"}

        await at.serves(NAME)
        done(await at.do("stop-engine", NAME, nodes=("spark2",), grace_s="5"))
        assert ranks.states("Running") == [False, False]
        head, worker = ranks.states("FinishedAt")
        assert head < worker, "the head first: then no request comes in"

        anew = await planned(at, order)
        assert isinstance(anew, Plan), anew
        told_of = [one.title for one in at.monitor.state.findings if one.rule.startswith("restart.")]
        assert told_of == [], "it was stopped, and the rank under Ray went with its head"
        done(await at.finished(at.begin(anew)))
        assert not {box["Id"] for box in ranks.boxes()} & ids
        assert ranks.labelled(labels.CHANGED) == {None}
        same = await planned(at, order)
        assert isinstance(same, Refusal)
        assert "with these values" in same.reason


async def test_the_launched_ones_come_back_when_the_change_fails(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    ranks = Ranks(pair)
    async with console(pair, tmp_path) as at:
        await launched(at, asked("ray"))
        ids = [box["Id"] for box in ranks.boxes()]
        run = await at.do("relaunch", NAME, change=Change(environment={"ENGINE_FAILS": "load"}), **RESTART)
        assert run.state is RunState.ROLLED_BACK, told(run)
        assert [box["Id"] for box in ranks.boxes()] == ids
        assert ranks.policies() == {"unless-stopped"}
        assert ranks.labelled(labels.CHANGED) == {None}
        await at.serves(NAME)


async def test_a_rank_that_only_joins_is_seen_and_stopped_before_its_head_has_put_anything_there(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's Ray never comes up: the worker's container waits, and is a rank all the same."""
    hurried(monkeypatch)
    ranks = Ranks(pair)
    async with console(pair, tmp_path) as at:
        await launched(at, asked("ray"))
        done(await at.do("stop-engine", NAME, grace_s="5"))
        pair[1].dockerd.api.start(ranks.boxes()[1]["Id"])

        def waits() -> bool:
            node = at.monitor.state.node("spark2")
            found = [one for one in (node.engines if node else ()) if one.name == NAME]
            return bool(found) and found[0].state is not EngineState.EXITED and not found[0].pids

        await at.until(waits, what="the worker that waits for its head")
        done(await at.do("stop-engine", NAME, grace_s="2"))
        assert ranks.states("Running") == [False, False]
