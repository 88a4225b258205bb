"""`sparktop act` and `sparktop audit` as they are typed, over an alias of ssh's, on a machine with all at its place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import Engines
from tests.integration.spark import Spark, machine, spark
from tests.integration.sshd import Sshd, sshd
from tests.integration.terminal import sparktop, terminal
from tests.support import PATIENCE_S, interruptible, poll

from sparktop.operate.audit_file import entries

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["machine", "spark", "sshd"]

QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}


def audited() -> list[dict[str, object]]:
    return entries()[0]


def config(text: str) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "sparktop"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)


def test_a_dry_run_prints_the_plan_and_leaves_no_trace(spark: Spark) -> None:
    out = sparktop("act", "drop-caches", "spark1", "--dry-run")
    assert out.returncode == 0, out.stderr
    assert out.stdout.startswith("Drop caches on spark1\n")
    assert "sudo sysctl -w vm.drop_caches=3" in out.stdout
    assert audited() == []
    as_json = sparktop("act", "drop-caches", "spark1", "--dry-run", "--json")
    told = json.loads(as_json.stdout)
    assert (told["run"], [step["node"] for step in told["plan"]["steps"]]) == (None, ["spark1", "spark1"])


@pytest.mark.fast
def test_yes_runs_it_and_the_audit_tells(spark: Spark) -> None:
    out = sparktop("act", "drop-caches", "spark1", "--yes", "--json")
    assert out.returncode == 0, out.stderr
    told = json.loads(out.stdout)["run"]
    assert (told["state"], [step["state"] for step in told["steps"]]) == ("done", ["done", "done"])
    assert told["before"]["spark1"]
    assert told["after"]["spark1"]
    assert [one["kind"] for one in audited()] == ["intent", "step", "step", "end"]
    shown = sparktop("audit")
    assert shown.returncode == 0
    assert "Drop caches on spark1" in shown.stdout
    raw = sparktop("audit", "--json", "--node", "spark1")
    lines = [json.loads(line) for line in raw.stdout.splitlines()] if raw.stdout[0] == "{" else json.loads(raw.stdout)
    assert "vm.drop_caches=3" in json.dumps(lines)
    assert sparktop("audit", "--node", "spark2").stdout.count("Drop caches") == 0


def test_at_a_terminal_it_asks_and_no_is_the_default(spark: Spark) -> None:
    engine = spark.engines.start("vllm-asked", env=QUICK)
    for answer in ("\r", "no\r", "yoghurt\r"):
        with terminal("act", "stop-engine", "spark1") as at:
            at.reads("Run this? (yes/no)")
            at.types(answer)
            assert at.ends() == 1
            assert "nothing was run" in at.text
    assert engine.inspect()["State"]["Running"] is True
    assert audited() == []
    with terminal("act", "stop-engine", "spark1", "--set", "grace_s=5") as at:
        at.reads("Run this? (yes/no)")
        at.types("y\r")
        assert at.ends() == 0, at.text
    assert engine.inspect()["State"]["Running"] is False
    again = sparktop("act", "stop-engine", "spark1", "--yes")
    assert again.returncode == 1, "there is nothing to stop"


def test_ctrl_c_in_a_wait_gets_out_and_the_way_back_is_offered(spark: Spark) -> None:
    engine = spark.engines.start("vllm-out", env=QUICK, restart_policy={"Name": "always"})
    with terminal("act", "safe-restart", "spark1", "--set", "target_gib=9000", "--set", "grace_s=5") as at:
        at.reads("Run this? (yes/no)")
        at.types("yes\r")
        at.reads("Wait for 9000.0 GiB")
        seen = at.reads("GiB available on spark1", after=len(at.written) - 200)
        at.types("\x03")
        seen = at.reads("aborting", after=seen)
        assert engine.inspect()["State"]["Running"] is False
        at.reads("Run this? (yes/no)", after=seen)
        at.types("no\r")
        assert at.ends() == 130, at.text
        assert "not rolled back" in at.text
    assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert [one["state"] for one in audited() if one["kind"] == "end"] == ["aborted"]


def test_ctrl_c_twice_leaves_it_and_says_so(spark: Spark) -> None:
    engine = spark.engines.start("vllm-left", env={**QUICK, "ENGINE_DEAF": "1"})
    words = [sys.executable, "-m", "sparktop", "act", "stop-engine", "spark1", "--set", "grace_s=20", "--yes"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=interruptible
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"Stop vllm-left" in line:
                break
        process.send_signal(signal.SIGINT)
        assert b"aborting" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(PATIENCE_S) == 130, said
        assert b"completes or reverts the current step by itself" in said
        assert b"Traceback" not in said
    poll(lambda: not engine.inspect()["State"]["Running"], what="the stop, finished without us")
    assert [one["state"] for one in audited() if one["kind"] == "end"] == ["aborted"]


def test_ctrl_c_while_it_connects_is_an_end_without_a_word_too_many(spark: Spark) -> None:
    spark.sshd.freeze()
    try:
        words = [sys.executable, "-m", "sparktop", "act", "drop-caches", "spark1", "--yes"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, preexec_fn=interruptible) as process:
            assert process.stderr is not None
            assert b"connecting" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(PATIENCE_S) == 130, said
            assert b"Traceback" not in said
    finally:
        spark.sshd.thaw()


def test_reading_only_and_a_protected_host_refuse(spark: Spark) -> None:
    out = sparktop("act", "drop-caches", "spark1", "--yes", "--read-only")
    assert out.returncode == 1
    assert "Nothing was done." in out.stdout
    assert "read" in out.stdout
    config("[host.spark1]\nprotected = true\n")
    out = sparktop("act", "drop-caches", "spark1", "--yes", "--json")
    assert out.returncode == 1
    assert "protected" in json.loads(out.stdout)["refusal"]["reason"]
    assert audited() == []


def test_a_session_that_only_looks_collects_evidence_and_does_nothing_else(spark: Spark) -> None:
    engine = spark.engines.start("vllm-seen", env=QUICK)
    out = sparktop("act", "collect-evidence", "spark1", "--read-only", "--yes", "--json")
    assert out.returncode == 0, out.stdout + out.stderr
    path = Path(json.loads(out.stdout)["run"]["evidence_path"])
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert any("logs/vllm-seen" in name for name in names), names  # asked of the node, not remembered
    stop = sparktop("act", "stop-engine", "spark1", "--read-only", "--yes")
    assert (stop.returncode, "read-only" in stop.stdout) == (1, True)
    assert engine.inspect()["State"]["Running"] is True


def test_an_unwritable_audit_keeps_it_from_everything(spark: Spark) -> None:
    engine = spark.engines.start("vllm-unaudited", env=QUICK)
    state = Path(os.environ["XDG_STATE_HOME"])
    state.mkdir(parents=True)
    (state / "sparktop").write_text("a file where the folder should be")
    out = sparktop("act", "stop-engine", "spark1", "--yes")
    assert out.returncode == 1, out.stdout + out.stderr
    assert "audit" in out.stdout
    assert engine.inspect()["State"]["Running"] is True


def test_a_docker_engine_that_listens_elsewhere_is_named_in_the_configuration(
    sshd: Sshd, dockerd: Dockerd, engines: Engines
) -> None:
    engine = engines.start("vllm-rootless", env=QUICK)
    sshd.trust()
    sshd.alias("spark9")
    config(f'[host.spark9]\ndocker_socket = "{dockerd.socket_path}"\n')
    mine = "--engine", "vllm-rootless"  # the machine's other processes can be seen here
    alone = sparktop("act", "guard", "spark9", "--set", "floor_gib=0.5", "--yes")
    assert (alone.returncode, "stay_minutes" in alone.stderr) == (2, True)  # it would be off again at once
    guarded = sparktop("act", "guard", "spark9", "--set", "floor_gib=0.5", "--set", "stay_minutes=5", "--yes", *mine)
    assert guarded.returncode == 0, guarded.stdout + guarded.stderr
    off = sparktop("act", "guard", "spark9", "--set", "off=yes", "--yes")
    assert off.returncode == 0, off.stdout + off.stderr
    out = sparktop("act", "stop-engine", "spark9", "--set", "grace_s=5", "--yes", *mine)
    assert out.returncode == 0, out.stdout + out.stderr
    assert engine.inspect()["State"]["Running"] is False
