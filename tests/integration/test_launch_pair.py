"""A recipe launched over two machines, and from the command line as it is typed, with all at its usual place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.desk import hurried, told
from tests.integration.launch_support import cache_with_model, order, text_of
from tests.integration.spark import Spark, sparks
from tests.integration.terminal import sparktop, terminal
from tests.integration.test_operate_pair import NODES, PairDesk, console
from tests.support import PATIENCE_S, free_port

from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.audit_file import entries
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import RunState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sparks"]
NAME = "vllm-tiny"
NO_RDMA = "    requires:\n      rdma: false\n"


@pytest.fixture
def pair(sparks: tuple[Spark, Spark], tmp_path: Path) -> Iterator[tuple[Spark, Spark]]:
    """Both with the model in a cache of their own."""
    for spark in sparks:
        home = tmp_path / f"hf-{spark.name}"
        cache_with_model(home)
        spark.sshd.options["SetEnv"] = f"HF_HOME={home}"
        spark.sshd.restart()
        spark.sshd.trust()
        spark.sshd.alias(spark.name)
        spark.engines.names.append(NAME)
    try:
        yield sparks
    finally:
        for spark in sparks:
            spark.engines.remove_all()


async def seen(at: PairDesk) -> None:
    """Both nodes answer, and can be asked."""
    await at.until(lambda: all(at.lines.line(node) for node in NODES), what="two runners")
    await at.until(
        lambda: all(one.sample and one.network and one.containers.available for one in at.monitor.state.nodes),
        what="figures of both",
    )


async def planned(at: PairDesk, asked: Order) -> Plan | Refusal:
    return await at.operations.plan(Request(action="launch", nodes=NODES, order=asked, options={"grace_s": "3"}))


def boxes(spark: Spark) -> dict[str, str]:
    rows = spark.dockerd.api.containers(all=True)
    return {str(row["Names"][0]).lstrip("/"): str(row["State"]) for row in rows}


@pytest.mark.fast
async def test_two_ranks_come_up_worker_first_and_are_proven(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    async with console(pair, tmp_path) as at:
        await seen(at)
        plan = await planned(at, order(free_port(), nodes=2, more=NO_RDMA))
        assert isinstance(plan, Plan), plan
        starts = [step.id for step in plan.steps if step.id.startswith("start")]
        assert starts == ["start@spark2", "start@spark1"]
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
        assert "tok/s" in next(one.detail for one in run.steps if one.step.id == "measure")
    for spark in pair:
        assert boxes(spark) == {NAME: "running"}


async def test_a_head_that_fails_takes_its_worker_with_it(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    monkeypatch.setattr("sparktop.operate.acts.readiness.SETTLED_S", 1.0)
    async with console(pair, tmp_path) as at:
        await seen(at)
        plan = await planned(at, order(free_port(), nodes=2, more=NO_RDMA, env={"ENGINE_FAILS": "ready"}))
        assert isinstance(plan, Plan), plan
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.ROLLED_BACK, told(run)
        assert Path(run.evidence_path).exists()
    assert [boxes(spark) for spark in pair] == [{}, {}]


# --- as it is typed


@pytest.fixture
def recipes() -> Path:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "sparktop" / "recipes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_dry_run_prints_all_of_it_and_changes_nothing(pair: tuple[Spark, Spark], recipes: Path) -> None:
    (recipes / "tiny.yaml").write_text(text_of(free_port()))
    out = sparktop("launch", "tiny", "spark1", "--dry-run")
    assert out.returncode == 0, out.stdout + out.stderr
    assert out.stdout.startswith("Launch tiny-1b on spark1 (vLLM)\n")
    for part in (
        "\nMemory\n",
        "\nOn disk already\n",
        "\nGates\n",
        " steps in this order\n",
        "docker run --detach --name vllm-tiny",
    ):
        assert part in out.stdout, part
    assert boxes(pair[0]) == {}
    assert entries()[0] == []


def test_a_refusal_prints_the_picture_of_why(pair: tuple[Spark, Spark], recipes: Path) -> None:
    (recipes / "tiny.yaml").write_text(text_of(free_port()))
    out = sparktop("launch", "tiny", "spark1", "--set", "gpu_memory_utilization=0.99", "--yes")
    assert out.returncode == 1, out.stdout + out.stderr
    assert out.stdout.startswith("✖ Does not fit")
    assert "recipe-lint --gpu-memory-utilization 0.99 leaves the host too little" in " ".join(out.stdout.split())
    assert "\nspark1  now  ▏" in out.stdout
    as_json = sparktop("launch", "tiny", "spark1", "--set", "gpu_memory_utilization=0.99", "--yes", "--json")
    told = json.loads(as_json.stdout)["refusal"]["prospect"]
    assert told["budget"]["fit"] == "does not fit"
    assert boxes(pair[0]) == {}


def test_yes_launches_it_with_a_key_from_a_file_that_nobody_else_reads(
    pair: tuple[Spark, Spark], recipes: Path
) -> None:
    port = free_port()
    secret = "sk-canary-4f2a9c77aa"
    (recipes / "tiny.yaml").write_text(text_of(port))
    env = recipes / ".env"
    env.write_text(f"VLLM_API_KEY={secret}\n")
    env.chmod(0o644)
    open_to_all = sparktop("launch", "tiny", "spark1", "--yes")
    assert open_to_all.returncode == 1, open_to_all.stdout
    told = " ".join(open_to_all.stdout.split())
    assert f"{env} is readable by other users" in told
    assert "chmod 600 ~/.config/sparktop/recipes/.env" in told
    assert boxes(pair[0]) == {}
    env.chmod(0o600)
    exported = sparktop("launch", "tiny", "spark1", "--export", "run").stdout
    out = sparktop("launch", "tiny", "spark1", "--yes", is_hurried=True)
    assert out.returncode == 0, out.stdout + out.stderr
    assert "tok/s" in out.stderr
    assert secret not in out.stdout + out.stderr + json.dumps(entries()[0])
    box = pair[0].dockerd.api.inspect_container(NAME)
    assert f"VLLM_API_KEY={secret}" in box["Config"]["Env"]
    assert secret not in json.dumps(box["Config"]["Cmd"])
    again = sparktop("launch", "tiny", "spark1", "--yes")
    assert again.returncode == 1
    assert "sparktop act safe-restart spark1 --engine vllm-tiny" in again.stdout
    as_it_runs = sparktop("launch", "tiny", "spark1", "--export", "run")
    assert (as_it_runs.returncode, as_it_runs.stdout) == (0, exported), as_it_runs.stderr
    assert "docker run --detach --name vllm-tiny" in exported
    assert boxes(pair[0]) == {NAME: "running"}


def test_export_prints_a_file_and_nothing_else(pair: tuple[Spark, Spark], recipes: Path) -> None:
    (recipes / "tiny.yaml").write_text(text_of(free_port()))
    out = sparktop("launch", "tiny", "spark1", "--export", "compose")
    assert out.returncode == 0, out.stdout + out.stderr
    assert "services:" in out.stdout
    assert "steps in this order" not in out.stdout
    assert boxes(pair[0]) == {}


def test_ctrl_c_while_it_loads_leaves_nothing(pair: tuple[Spark, Spark], recipes: Path) -> None:
    (recipes / "tiny.yaml").write_text(text_of(free_port(), env={"ENGINE_LOAD_S": "60"}))
    with terminal("launch", "tiny", "spark1", "--grace", "3", is_hurried=True) as at:
        seen = at.reads("Run this? (yes/no)")
        at.types("yes\r")
        at.reads("Wait until vllm-tiny answers", after=seen)
        at.types("\x03")
        assert at.ends() == 130, at.text
        assert "Rolled back: everything is as before" in " ".join(at.text.split())
    assert boxes(pair[0]) == {}


def test_sigterm_and_a_closed_terminal_leave_nothing(pair: tuple[Spark, Spark], recipes: Path) -> None:
    (recipes / "tiny.yaml").write_text(text_of(free_port(), env={"ENGINE_LOAD_S": "60"}))
    for ends in ("by SIGTERM", "with its terminal"):
        with terminal("launch", "tiny", "spark1", "--grace", "3", is_hurried=True) as at:
            seen = at.reads("Run this? (yes/no)")
            at.types("yes\r")
            at.reads("Wait until vllm-tiny answers", after=seen)
            if ends == "by SIGTERM":
                os.kill(at.pid, signal.SIGTERM)
                assert at.ends() == 130, at.text
            else:
                os.dup2(os.open(os.devnull, os.O_RDWR), at.handle)  # nobody has its other end any more
                assert os.waitstatus_to_exitcode(os.waitpid(at.pid, 0)[1]) == 130
                at.status = 130
        assert boxes(pair[0]) == {}, ends
    assert [one["state"] for one in entries()[0] if one["kind"] == "end"] == ["aborted", "aborted"]


def test_nobody_reads_on_and_it_ends_with_its_own_code(pair: tuple[Spark, Spark], recipes: Path) -> None:
    (recipes / "tiny.yaml").write_text(text_of(free_port(), env={"ENGINE_FAILS": "load"}))
    words = [sys.executable, "-m", "sparktop", "launch", "tiny", "spark1", "--yes"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
    assert [one["state"] for one in entries()[0] if one["kind"] == "end"] == ["rolled back"]
    assert boxes(pair[0]) == {}
