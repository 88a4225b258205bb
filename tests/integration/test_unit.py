"""`sparktop unit` on a real Docker Engine over a real sshd: the engine serves on under a unit, and is stopped with it.
In systemd's place stands a program that runs what unit files say."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration import systemctl_program
from tests.integration.desk import told
from tests.integration.spark import Spark
from tests.integration.terminal import sparktop
from tests.integration.test_operate_pair import PairDesk, console
from tests.support import unavailable

from sparktop.model.engine import EngineState
from sparktop.model.request import Request
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.recipe.export import UNIT_HEAD

pytestmark = [pytest.mark.integration, pytest.mark.slow]
CANARY = "canary-90cc41\"$d'e"
NAME = "vllm-kept"
UNIT = f"etc/systemd/system/{NAME}.service"


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Spark]:
    if not Path("/usr/bin/systemctl").exists():
        unavailable("no systemctl here: apt-get install systemd")
    program = tmp_path / "systemctl"
    source = Path(systemctl_program.__file__)
    program.write_text(f"#!{sys.executable}\n{source.read_text()}")
    program.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    with Spark.start("spark1", "127.0.0.2") as one:
        one.run("mount", "--bind", str(program), "/usr/bin/systemctl")
        one.run("mkdir", "-p", "/run/systemd/system")
        yield one


def test_what_is_printed_and_planned_as_it_is_typed(spark: Spark) -> None:
    spark.sshd.trust()
    spark.sshd.alias("spark1")
    spark.engines.start(NAME, env={"VLLM_API_KEY": CANARY, "ENGINE_LOAD_S": "0.3"})
    printed = sparktop("unit", NAME, "spark1")
    assert (printed.returncode, printed.stdout.count("ExecStart=")) == (0, 1), printed.stderr
    assert printed.stdout.startswith(UNIT_HEAD)
    assert "sparktop-engine:test vllm serve tiny" in printed.stdout
    own = sparktop("unit", NAME, "spark1", "--user")
    assert "EnvironmentFile=%h/.config/sparktop/" in own.stdout
    planned = sparktop("unit", NAME, "spark1", "--install", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert f"Write /etc/{UNIT.removeprefix('etc/')}" in " ".join(planned.stdout.split())
    assert CANARY not in printed.stdout + own.stdout + planned.stdout + planned.stderr
    assert not (spark.root / UNIT).exists()
    near = sparktop("unit", "vllm-kep", "spark1")
    assert (near.returncode, f"did you mean {NAME}?" in near.stderr) == (2, True), near.stderr
    gone = sparktop("unit", NAME, "spark1", "--remove", "--yes")
    assert (gone.returncode, "no unit of sparktop's" in gone.stdout) == (1, True), gone.stderr
    recipe = sparktop("unit", "qwen3-0.6b", "spark1", "--install", "--dry-run")
    assert (recipe.returncode, "sparktop launch qwen3-0.6b spark1" in recipe.stderr) == (2, True), recipe.stderr


async def planned(at: PairDesk, action: str, **options: str) -> Plan | Refusal:
    return await at.operations.plan(Request(action=action, nodes=("spark1",), target=NAME, options=options))


async def done(at: PairDesk, plan: Plan | Refusal) -> Run:
    assert isinstance(plan, Plan), plan
    run = await at.finished(at.begin(plan))
    assert run.state is RunState.DONE, told(run)
    return run


async def serves(at: PairDesk) -> None:
    def is_there() -> bool:
        node = at.monitor.state.nodes[0]
        states = [one.state for one in node.engines if one.name == NAME]
        is_ready = any(state in (EngineState.READY, EngineState.SERVING) for state in states)
        return is_ready and bool(node.containers.available) and at.lines.line("spark1") is not None

    await at.until(is_there, what="the engine")


async def test_it_serves_under_a_unit_until_that_is_removed(spark: Spark, tmp_path: Path) -> None:
    engine = spark.engines.start(
        NAME, env={"VLLM_API_KEY": CANARY, "ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "always"}
    )
    old = engine.inspect()
    async with console((spark,), tmp_path / "one") as at:
        await serves(at)
        await done(at, await planned(at, "install-unit", grace_s="5"))
        assert engine.answers(key=CANARY)["data"]
        new = engine.inspect(NAME)
        assert new["Id"] != old["Id"]
        assert f"VLLM_API_KEY={CANARY}" in new["Config"]["Env"]
        assert new["HostConfig"]["RestartPolicy"]["Name"] == "no"
        assert engine.inspect(old["Id"])["Name"].startswith(f"/{NAME}-before-")
        assert (spark.root / UNIT).exists()
        assert (spark.root / "etc/systemd/system/multi-user.target.wants" / f"{NAME}.service").is_symlink()
        secrets = spark.root / f"etc/sparktop/{NAME}.env"
        assert secrets.stat().st_mode & 0o777 == 0o600
        assert CANARY not in (spark.root / UNIT).read_text()
        assert CANARY not in "".join(map(repr, at.shown)) + (tmp_path / "one/audit.jsonl").read_text()

    async with console((spark,), tmp_path / "two") as at:  # which has not seen how it came
        await serves(at)
        again = await planned(at, "install-unit")
        assert isinstance(again, Refusal)
        assert f"{NAME}.service runs {NAME} on spark1 already" in again.reason
        await done(at, await planned(at, "remove-unit"))
        assert not (spark.root / UNIT).exists()
        assert not engine.inspect(NAME)["State"]["Running"]
        assert not (spark.root / f"etc/sparktop/{NAME}.env").exists()


async def test_one_that_does_not_come_up_gives_the_old_container_its_place_back(spark: Spark, tmp_path: Path) -> None:
    engine = spark.engines.start(NAME, env={"ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "always"})
    old = engine.inspect()
    async with console((spark,), tmp_path / "one") as at:
        await serves(at)
        plan = await planned(at, "install-unit", grace_s="5")
        spark.run("mount", "--bind", "/bin/false", "/usr/bin/docker")  # the unit's docker, not the daemon
        assert isinstance(plan, Plan)
        execution = at.begin(plan)
        await at.until(lambda: at.shown and any(one.step.id == "ready" for one in at.shown[-1].steps
                                                if one.state.value == "running"), what="the wait")  # fmt: skip
        execution.abort()
        run = await at.finished(execution)
        assert run.state in (RunState.ABORTED, RunState.ROLLED_BACK), told(run)
        assert engine.inspect(NAME)["Id"] == old["Id"]
        assert engine.inspect(NAME)["HostConfig"]["RestartPolicy"]["Name"] == "always"
        engine.wait_ready()
        assert not (spark.root / UNIT).exists()
