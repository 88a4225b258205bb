"""Relaunch with a change, end to end on a real sshd and a real Docker Engine: it serves, or the old one comes back."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from tests.integration.desk import NODE, Desk, at, relaunched, told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import Engines
from tests.integration.sshd import Sshd, sshd

from sparktop.model.change import Change
from sparktop.model.guard import GuardPhase
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.text.units import GIB

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at", "sshd"]

CANARY = "canary-6f1e0c55d2"


async def test_it_serves_with_the_change_and_the_old_one_is_kept(at: Desk, engines: Engines, tmp_path: Path) -> None:
    engine = engines.start(
        "vllm-change", env={"VLLM_API_KEY": CANARY, "ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "unless-stopped"}
    )
    old = engine.inspect()
    change = Change(flags={"--served-model-name": "changed"}, environment={"SECOND_TOKEN": CANARY + "2"})
    run = await relaunched(at, "vllm-change", change)
    assert run.state is RunState.DONE, (run.message, told(run))
    assert all(one.state in (StepState.DONE, StepState.SKIPPED) for one in run.steps), told(run)
    new = engine.inspect("vllm-change")
    assert new["Id"] != old["Id"]
    assert new["Image"] == old["Image"]
    assert new["Config"]["Image"] == old["Config"]["Image"]
    assert new["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert engine.answers(key=CANARY)["data"][0]["id"] == "changed"
    kept = engine.inspect(old["Id"])
    assert kept["Name"].startswith("/vllm-change-before-")
    assert (kept["State"]["Running"], kept["HostConfig"]["RestartPolicy"]["Name"]) == (False, "no")
    guarded = {one.step.id: one.state for one in run.steps if one.step.id.startswith("guard")}
    assert guarded["guard-load"] is guarded["guard-request"] is StepState.DONE, told(run)
    back = at.operations.rollback(run)
    if back is not None:
        gone = await at.finished(at.begin(back))
        assert gone.state is RunState.DONE, (gone.message, told(gone))
        assert engine.inspect("vllm-change")["Id"] == old["Id"]
    assert CANARY not in "".join(map(repr, at.shown))
    assert_nowhere(tmp_path, CANARY)


def assert_nowhere(folder: Path, canary: str) -> None:
    """In no file that was written, the evidence's archive among them (it is compressed)."""
    for path in folder.rglob("*"):
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path
            if path.name.endswith(".tar.gz"):
                with tarfile.open(path) as archive:
                    for member in archive.getmembers():
                        file = archive.extractfile(member)
                        assert file is None or canary.encode() not in file.read(), member.name
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            assert canary.encode() not in command, command


@pytest.mark.fast
async def test_one_that_fails_to_load_brings_the_old_one_back(at: Desk, engines: Engines) -> None:
    engine = engines.start("vllm-broken", env={"ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "always"})
    old = engine.inspect()
    run = await relaunched(at, "vllm-broken", Change(environment={"ENGINE_FAILS": "load"}))
    assert run.state is RunState.ROLLED_BACK, (run.message, told(run))
    now = engine.inspect("vllm-broken")
    assert (now["Id"], now["State"]["Running"]) == (old["Id"], True)
    assert now["HostConfig"]["RestartPolicy"]["Name"] == "always"
    assert engine.answers() is not None


async def test_the_operators_guard_goes_over_to_the_new_one_and_comes_back_with_the_old_one(
    at: Desk, engines: Engines
) -> None:
    engine = engines.start("vllm-watched", env={"ENGINE_LOAD_S": "0.5"})

    def armed() -> tuple[object, str, int]:
        node = at.monitor.state.node(NODE)
        assert node is not None
        assert node.guard is not None
        return node.guard.phase, node.guard.container_id, node.guard.floor_bytes

    await at.serves("vllm-watched")
    run = await at.do("guard", "vllm-watched", floor_gib="0.2")
    assert run.state is RunState.DONE, told(run)
    assert armed() == (GuardPhase.ARMED, engine.inspect("vllm-watched")["Id"], GIB // 5)
    run = await relaunched(at, "vllm-watched", Change(flags={"--served-model-name": "changed"}))
    assert run.state is RunState.DONE, (run.message, told(run))
    new_id = engine.inspect("vllm-watched")["Id"]
    assert armed() == (GuardPhase.ARMED, new_id, GIB // 5), told(run)
    run = await relaunched(at, "vllm-watched", Change(environment={"ENGINE_FAILS": "load"}))
    assert run.state is RunState.ROLLED_BACK, (run.message, told(run))
    assert engine.inspect("vllm-watched")["Id"] == new_id
    assert armed() == (GuardPhase.ARMED, new_id, GIB // 5), told(run)


async def test_one_that_loads_and_does_not_serve_offers_the_way_back(at: Desk, engines: Engines) -> None:
    engine = engines.start("vllm-mute", env={"ENGINE_LOAD_S": "0.5"})
    old = engine.inspect()
    run = await relaunched(at, "vllm-mute", Change(environment={"ENGINE_COMPLETION": "error"}))
    assert run.state is RunState.FAILED, (run.message, told(run))
    assert run.can_go_back
    back = at.operations.rollback(run)
    gone = await at.finished(at.begin(back)) if back is not None else None
    assert gone is not None
    assert gone.state is RunState.DONE, (gone.message, told(gone))
    assert engine.inspect("vllm-mute")["Id"] == old["Id"]
    assert engine.answers() is not None


async def test_the_link_is_cut_at_every_step_and_the_relaunch_is_finished(
    at: Desk, sshd: Sshd, dockerd: Dockerd, engines: Engines
) -> None:
    engine = engines.start("vllm-cut-swap", env={"ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "always"})
    old = engine.inspect()
    await at.serves("vllm-cut-swap")
    change = Change(flags={"--served-model-name": "changed"})
    plan = await at.plan("relaunch", "vllm-cut-swap", change=change, target_gib="2", grace_s="10")
    cut: list[str] = []

    def cut_new_steps(run: Run) -> None:
        for one in run.steps:
            if one.state is StepState.RUNNING and one.step.id not in cut:
                cut.append(one.step.id)
                sshd.kill_sessions()

    run = await at.finished(at.begin(plan, also=cut_new_steps))
    assert run.state is RunState.DONE, (run.message, told(run))
    assert "swap" in cut
    rows = [row for row in dockerd.api.containers(all=True) if "vllm-cut-swap" in row["Names"][0]]
    assert len(rows) == 2, "made once"
    assert engine.inspect("vllm-cut-swap")["Id"] != old["Id"]
    assert engine.answers()["data"][0]["id"] == "changed"
