"""A console that is killed while an engine is stopped to make room: the next one tells of it, and leads back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.desk import hurried, told
from tests.integration.interrupting import OLD, Stage, killed, stage
from tests.integration.spark import Spark, sparks
from tests.integration.terminal import sparktop, terminal
from tests.integration.test_launch_pair import NAME
from tests.integration.test_operate_pair import console
from tests.support import poll

from sparktop.config import state_home
from sparktop.documents.run import STEP_SIGNS
from sparktop.operate.audit.interrupted_runs import run_report
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sparks"]


@pytest.fixture
def launch(sparks: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    hurried(monkeypatch)
    with stage(sparks, tmp_path, 1) as made:
        yield made


def waits_for_the_end_of_the_old(line: str) -> bool:
    return line.startswith(STEP_SIGNS[StepState.RUNNING][0]) and f"the processes of {OLD} are gone" in line


async def test_the_next_console_tells_of_it_and_leads_back(launch: Stage) -> None:
    killed(launch, waits_for_the_end_of_the_old)
    assert launch.boxes()["spark1"] == {OLD: "exited", NAME: "created"}
    said = sparktop("act", "drop-caches", "spark1", "--dry-run", is_hurried=True)
    assert said.returncode == 0, said.stderr
    assert f"was cut off: {OLD} on spark1 is stopped; {NAME} on spark1 was created and never started." in said.stderr
    by_hand = f"docker rm {NAME}; docker start {OLD}; docker update --restart=unless-stopped {OLD}"
    assert by_hand in said.stderr

    async with console(launch.sparks[:1], state_home()) as at:
        (one,) = await at.operations.interrupted_runs()
        found: list[Run] = []

        def is_told() -> bool:
            run = run_report(one, at.monitor.state)
            found.extend([run] if run is not None else [])
            return run is not None

        await at.until(is_told, what="what is left")
        assert f"Wait until the processes of {OLD} are gone" in found[0].message
        back = at.operations.rollback(found[0])
        assert back is not None
        await launch.live(at)
        run = await at.finished(at.begin(back))
        assert run.state is RunState.DONE, told(run)
        assert launch.is_as_before()
        await at.until(lambda: run_report(one, at.monitor.state) is None, what="nothing of it left")
        assert await at.operations.interrupted_runs() == (), "a later run has dealt with it"


def test_the_console_at_a_terminal_shows_it_until_it_is_read(launch: Stage) -> None:
    killed(launch, waits_for_the_end_of_the_old)
    with terminal("spark1", size=(24, 80)) as screen:
        screen.reads("cut off")
        screen.reads(f"{OLD} on spark1 is stopped")
        screen.types("o")
        screen.reads("plans the rollback")
        screen.types("b")
        screen.reads("r exact")  # the review: a dialog that waits for the plan has its title too
        screen.reads("Cancel")  # in sight, however small the terminal; a key before that may be lost
        screen.types("\t\r")
        poll(launch.is_as_before, what="all as it was")
    said = sparktop("act", "drop-caches", "spark1", "--dry-run", is_hurried=True)
    assert "cut off: Launch tiny" not in said.stderr
    assert f"{OLD} on spark1 is stopped" not in said.stderr
