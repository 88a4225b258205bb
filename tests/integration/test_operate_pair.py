"""One server over two machines, each with its own sshd, Docker Engine, lock and processes: both ranks are acted on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import Desk, hurried, told, while_running
from tests.integration.engine_image import EngineLike
from tests.integration.spark import Spark, sparks
from tests.support import free_port

from sparktop.model.change import Change
from sparktop.model.engine import Engine
from sparktop.model.request import Request
from sparktop.observe.monitor import Monitor
from sparktop.operate.audit_file import Audit, entries
from sparktop.operate.operations import Operations
from sparktop.operate.runner.connections import RunnerConnections
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sparks"]

QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}
RESTART = {"target_gib": "2", "grace_s": "5"}
NODES = ("spark1", "spark2")


class PairDesk(Desk):
    """A console that watches both."""

    def engine(self, name: str) -> Engine | None:
        found = [one for node in self.monitor.state.nodes for one in node.engines if one.name == name]
        return found[0] if found and all(self.lines.line(node) for node in NODES) else None

    async def plan(self, action: str, target: str = "", **more: Any) -> Plan | Refusal:
        change = more.pop("change", Change())
        nodes = more.pop("nodes", NODES)
        return await self.operations.plan(
            Request(action=action, nodes=nodes, target=target, change=change, options=more)
        )


@dataclass
class Team:
    """The two ranks, each on its machine."""

    sparks: tuple[Spark, Spark]
    head: EngineLike
    worker: EngineLike

    @property
    def ranks(self) -> tuple[EngineLike, EngineLike]:
        return self.head, self.worker

    def states(self, name: str) -> list[Any]:
        return [rank.inspect(rank.name)["State"][name] for rank in self.ranks]

    def policies(self) -> list[str]:
        return [str(rank.inspect(rank.name)["HostConfig"]["RestartPolicy"]["Name"]) for rank in self.ranks]

    def ids(self) -> list[str]:
        return [str(rank.inspect(rank.name)["Id"]) for rank in self.ranks]


@pytest.fixture
def team(sparks: tuple[Spark, Spark]) -> Iterator[Team]:
    port = free_port()
    flags = ("--port", str(port), "--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.2")
    more = {"env": QUICK, "restart_policy": {"Name": "unless-stopped"}, "port": port}
    try:
        yield Team(
            sparks,
            sparks[0].engines.start("vllm-head", *flags, "--node-rank", "0", **more),
            sparks[1].engines.start("vllm-worker", *flags, "--node-rank", "1", "--headless", ready=False, **more),
        )
    finally:
        for spark in sparks:
            spark.engines.remove_all()


@contextlib.asynccontextmanager
async def console(sparks: tuple[Spark, ...], folder: Path) -> AsyncIterator[PairDesk]:
    """On the usual places of both machines: nothing stands in for anything."""
    lines = RunnerConnections()
    operations = Operations(
        picture=lambda: monitor.state,
        lines=lines,
        audit=Audit(folder / "audit.jsonl"),
        tell=lambda node, words: monitor.tell(node, words),
        evidence_folder=folder / "evidence",
    )
    monitor = Monitor(
        [spark.sshd.connector(spark.name) for spark in sparks],
        publish=lambda picture: operations.see(picture),
        interval_s=0.25,
        connections=lines,
    )
    async with while_running(monitor):
        try:
            yield PairDesk(monitor, lines, operations, folder / "audit.jsonl", folder / "evidence")
        finally:
            await operations.aclose()
            await lines.aclose()


async def both(at: PairDesk) -> None:
    await at.serves("vllm-head")
    await at.sees("vllm-worker")


async def no_password(node: str, wrong: int) -> str | None:
    return None


async def test_both_ranks_are_restarted_in_their_order(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    before, ids = team.states("StartedAt"), team.ids()
    async with console(team.sparks, tmp_path) as at:
        await both(at)
        run = await at.do("safe-restart", "vllm-head", **RESTART)
    assert run.state is RunState.DONE, told(run)
    head_ended, worker_ended = team.states("FinishedAt")
    head_began, worker_began = team.states("StartedAt")
    assert head_ended < worker_ended < worker_began < head_began
    assert (head_began, worker_began) > tuple(before)
    assert (team.ids(), team.policies()) == (ids, ["unless-stopped"] * 2)
    assert team.head.answers() is not None
    known, damaged = entries(tmp_path / "audit.jsonl")
    assert damaged == 0
    assert {entry["node"] for entry in known if entry["kind"] == "step"} == set(NODES)
    assert set(run.before) == set(run.after) == set(NODES)


async def test_both_ranks_stop_whichever_is_named(team: Team, tmp_path: Path) -> None:
    async with console(team.sparks, tmp_path) as at:
        await both(at)
        run = await at.do("stop-engine", "vllm-worker", nodes=("spark2",), grace_s="5")
    assert run.state is RunState.DONE, told(run)
    assert team.states("Running") == [False, False]
    assert team.states("FinishedAt")[0] < team.states("FinishedAt")[1], "the head first: then no request comes in"


async def test_one_rank_alone_is_refused(team: Team, tmp_path: Path) -> None:
    async with console(team.sparks[:1], tmp_path) as at:
        node = at.monitor.state.nodes[0].name
        await at.until(lambda: at.lines.line(node) and at.monitor.state.nodes[0].engines, what="its engine")
        await at.until(lambda: at.monitor.state.nodes[0].has_looked_for_engines, what="Docker's word on it")
        for action in ("safe-restart", "relaunch"):
            change = Change(environment={"NEW": "1"}) if action == "relaunch" else Change()
            refused = await at.plan(action, "vllm-head", nodes=(node,), change=change)
            assert isinstance(refused, Refusal), refused
            assert "2 nodes" in refused.reason
    assert team.states("Running") == [True, True]


async def test_both_ranks_are_relaunched_with_a_change(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    before = team.ids()
    change = Change(environment={"NCCL_DEBUG": "INFO"}, flags={"--max-num-seqs": "8"})
    async with console(team.sparks, tmp_path) as at:
        await both(at)
        run = await at.do("relaunch", "vllm-head", change=change, **RESTART)
        assert run.state is RunState.DONE, told(run)
        assert not set(before) & set(team.ids())
        for rank in team.ranks:
            now = rank.inspect(rank.name)
            assert "NCCL_DEBUG=INFO" in now["Config"]["Env"]
            assert now["Config"]["Cmd"][-2:] == ["--max-num-seqs", "8"]
        assert team.policies() == ["unless-stopped"] * 2
        head, worker = team.states("StartedAt")
        assert worker < head
        assert team.head.answers() is not None


async def test_both_old_ranks_come_back_when_the_new_ones_fail(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    before = team.ids()
    async with console(team.sparks, tmp_path) as at:
        await both(at)
        change = Change(environment={"ENGINE_FAILS": "load"})
        run = await at.do("relaunch", "vllm-head", change=change, **RESTART)
        assert run.state is RunState.ROLLED_BACK, told(run)
    assert (team.ids(), team.states("Running"), team.policies()) == (before, [True, True], ["unless-stopped"] * 2)
    team.head.wait_ready()


@pytest.mark.parametrize("victim", [0, 1])
async def test_one_node_s_link_is_cut_at_each_of_its_steps(
    victim: int, team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    async with console(team.sparks, tmp_path) as at:
        await both(at)
        plan = await at.plan("safe-restart", "vllm-head", **RESTART)
        assert isinstance(plan, Plan), plan
        cut: list[str] = []

        def changed(run: Run) -> None:
            for one in run.steps:
                if one.state is StepState.RUNNING and one.step.id not in cut and one.step.node == NODES[victim]:
                    cut.append(one.step.id)
                    team.sparks[victim].sshd.kill_sessions()

        execution = at.operations.start(plan, secret=no_password, changed=changed)
        run = await at.finished(execution)
    assert run.state is RunState.DONE, told(run)
    assert set(cut) == {one.step.id for one in run.steps if one.step.node == NODES[victim]}
    assert team.policies() == ["unless-stopped"] * 2
    assert [rank.inspect()["RestartCount"] for rank in team.ranks] == [0, 0]
    assert team.head.answers() is not None
