"""A console that is killed in the middle of a run, and the commands that come after it, on a machine of its own."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from tests.integration.engine_image import EngineLike
from tests.integration.spark import Spark, machine, spark
from tests.integration.terminal import hurried_program, sparktop

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["machine", "spark"]

QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}
RESTART = ("safe-restart", "spark1", "--set", "target_gib=2", "--set", "grace_s=5", "--yes")


@pytest.fixture
def engine(spark: Spark) -> EngineLike:
    return spark.engines.start("vllm-owed", env=QUICK, restart_policy={"Name": "on-failure", "MaximumRetryCount": 4})


def policy(engine: EngineLike) -> tuple[str, int]:
    said = engine.inspect()["HostConfig"]["RestartPolicy"]
    return said["Name"], said["MaximumRetryCount"]


def killed_at(line: str, *words: str) -> None:
    """`sparktop act` as it is typed, killed as soon as it says this."""
    with subprocess.Popen(
        [*hurried_program(), "act", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stderr is not None
        said = []
        for row in process.stderr:
            said.append(row)
            if line in row:
                process.send_signal(signal.SIGKILL)
                return
        pytest.fail(f"{line!r} was never said:\n{''.join(said)}")


def test_a_restart_that_was_cut_off_is_resumed(engine: EngineLike) -> None:
    killed_at("Wait until the processes of vllm-owed are gone", *RESTART)
    told = sparktop("act", "drop-caches", "spark1", "--dry-run", is_hurried=True)
    assert "sparktop act resume spark1" in told.stderr
    out = sparktop("act", "resume", "spark1", "--yes", is_hurried=True)
    assert out.returncode == 0, out.stdout + out.stderr
    assert policy(engine) == ("on-failure", 4)
    assert engine.answers() is not None
    again = sparktop("act", "restore", "spark1", "--yes", is_hurried=True)
    assert (again.returncode, "no interrupted run" in again.stderr) == (2, True), again.stderr


def test_a_restart_that_was_cut_off_is_led_back(engine: EngineLike) -> None:
    killed_at("Wait until the processes of vllm-owed are gone", *RESTART)
    dry = sparktop("act", "restore", "spark1", "--dry-run", is_hurried=True)
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert policy(engine) == ("no", 0)
    out = sparktop("act", "restore", "spark1", "--engine", "vllm-owed", "--yes", is_hurried=True)
    assert out.returncode == 0, out.stdout + out.stderr
    assert policy(engine) == ("on-failure", 4)
    assert engine.answers() is not None


def test_a_stopped_engine_is_found(engine: EngineLike) -> None:
    engine.docker.api.stop(engine.container_id, timeout=2)
    out = sparktop("act", "safe-restart", "spark1", "--engine", "vllm-owed", "--dry-run")
    assert out.returncode == 0, out.stdout + out.stderr


def test_a_restart_that_was_cut_off_is_done_again_and_ends_with_the_policy_of_before(engine: EngineLike) -> None:
    killed_at("Wait until the processes of vllm-owed are gone", *RESTART)
    assert policy(engine) == ("no", 0)
    out = sparktop("act", *RESTART, is_hurried=True)
    assert out.returncode == 0, out.stdout + out.stderr
    assert "left its restart policy off: this plan sets it to on-failure again" in out.stdout
    assert policy(engine) == ("on-failure", 4)
    assert engine.answers() is not None
