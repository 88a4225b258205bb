"""The scenario "unpacked": a bring-up finds its faults, and its own remedies cure them, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenario_support import Stage
from tests.stage_operations import Acting

from sparktop.bringup.catalogue import CARDS, measured
from sparktop.bringup.looking import run_checks
from sparktop.model.bringup import CheckResult
from sparktop.model.request import Request
from sparktop.model.state import State
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import Run, RunState

FAULTS = {
    ("reach.login", "spark2"), ("release.reboot", "spark2"), ("release.driver", "spark2"), ("machine.cuda", "spark1"),
    ("access.linger", "spark1"), ("access.linger", "spark2"), ("addresses.plan", "spark1 spark2"),
    ("parity.driver", "spark1 spark2"),
}  # fmt: skip
SETTLES_S = 90.0
"""The probe reads interfaces and facts once a minute."""


async def looked(acting: Acting) -> list[CheckResult]:
    for node in acting.stage.nodes:
        if acting.lines.line(node.name) is None:
            await acting.lines.wait(node.name)
    stage = acting.stage
    rows: list[CheckResult] = []
    async for _, found in run_checks(
        CARDS, lambda: stage.picture, acting.operations.ask, kept={}, now_wall_s=stage.clock.wall
    ):
        rows += found
    return rows


def problems(rows: list[CheckResult]) -> set[tuple[str, str]]:
    return {(row.check, " ".join(row.nodes)) for row in rows if row.is_problem}


@pytest.mark.slow
async def test_a_cable_that_was_plugged_in_after_the_boot_is_slow_until_both_reboot(tmp_path: Path) -> None:
    acting = Acting(Stage("unpacked").run(70), tmp_path)

    async def done(action: str, *nodes: str) -> Run:
        for node in acting.stage.nodes:
            await acting.lines.wait(node.name)
        plan = await acting.plan(Request(action=action, nodes=nodes))
        assert isinstance(plan, Plan), plan
        run = await acting.run(plan)
        assert run.state is RunState.DONE, run.message
        acting.stage.run(acting.stage.t + SETTLES_S)
        return run

    def half(run: Run) -> CheckResult:
        rows = measured(run, acting.stage.picture, now_wall_s=acting.stage.clock.wall())
        return next(row for row in rows if row.check == "bandwidth.half")

    try:
        await done("set-addresses", "spark1", "spark2")
        slow = half(await done("measure-link", "spark1", "spark2"))
        assert (slow.state, slow.found[:9]) == (State.FAILED, "12.9 Gb/s")
        assert slow.remedies[0].steps[:2] == ("sparktop act reboot spark1", "sparktop act reboot spark2")
        await done("reboot", "spark1")
        await done("reboot", "spark2")
        assert half(await done("measure-link", "spark1", "spark2")).state is State.PASSED
    finally:
        await acting.aclose()


async def test_its_faults_are_found(tmp_path: Path) -> None:
    acting = Acting(Stage("unpacked").run(70), tmp_path)
    assert problems(await looked(acting)) == FAULTS
    await acting.aclose()


@pytest.mark.slow
async def test_its_faults_are_cured_by_what_the_page_offers(tmp_path: Path) -> None:
    acting = Acting(Stage("unpacked").run(70), tmp_path)
    try:
        rows = await looked(acting)
        for turn in range(12):
            wrong = [row for row in rows if row.is_problem]
            fixable = [(row, remedy) for row in wrong for remedy in row.remedies[:1] if remedy.action]
            if not fixable:
                break
            row, remedy = fixable[0]
            request = Request(action=remedy.action or "", nodes=row.nodes, options=dict(remedy.options))
            plan = await acting.plan(request)
            assert isinstance(plan, Plan), (turn, row.check, plan)
            run = await acting.run(plan)
            assert run.state is RunState.DONE, (row.check, run.message)
            acting.stage.run(acting.stage.t + SETTLES_S)
            rows = await looked(acting)
            assert row.key not in {one.key for one in rows if one.is_problem}, f"{row.check} is cured"
        assert problems(rows) == set(), [row.found for row in rows if row.is_problem]
        passed = {row.check for row in rows if row.state is State.PASSED}
        assert {"reach.login", "addresses.ssh"} <= passed
        reached = next(row for row in rows if row.check == "addresses.ping")
        assert reached.state is State.PASSED
        assert "192.168.100.11" in reached.found
        plan = await acting.plan(Request(action="measure-link", nodes=("spark1", "spark2")))
        assert isinstance(plan, Plan), plan
        run = await acting.run(plan)
        assert run.state is RunState.DONE, run.message
        made = {row.check: row for row in measured(run, acting.stage.picture, now_wall_s=acting.stage.clock.wall())}
        assert {check: row.state for check, row in made.items()} == dict.fromkeys(
            ("bandwidth.half", "bandwidth.both", "bandwidth.latency"), State.PASSED
        )
        plan = await acting.plan(Request(action="measure-power", nodes=("spark1", "spark2")))
        assert isinstance(plan, Plan), plan
        run = await acting.run(plan)
        assert run.state is RunState.DONE, run.message
        powers = measured(run, acting.stage.picture, now_wall_s=acting.stage.clock.wall())
        assert [(row.check, row.state, row.found[:12]) for row in powers] == [
            ("machine.power", State.PASSED, "2398 MHz at ")
        ] * 2
        assert made["bandwidth.both"].found.startswith("196.0 Gb/s over both halves, spark1 to spark2; the RDMA ports")
    finally:
        await acting.aclose()
