"""sparktop on a real llama.cpp server, in the Docker of a machine and as a unit of its own, over SSH."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.real.conftest import need
from tests.real.console import act, guard_fires, looked, rules, state, watching
from tests.real.console import engine as row
from tests.real.engines import Engine
from tests.real.machine import Machine

NAME = "llama"
NATIVE = "llama.cpp:8080"


def of(one: Any, part: str, name: str, which: str = NAME) -> Any:
    """A figure of its row in a picture; None while there is none."""
    return ((row(one, which) or {}).get(part) or {}).get(name)


def test_figures_a_safe_restart_and_a_death_under_load(spark: Machine) -> None:
    need("llama")
    llama = Engine.llama(spark, NAME, "-np", "2", "-c", "4096", options=("--restart", "unless-stopped"))
    llama.ready()
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) == "ready" and of(one, "metrics", "slots"), what="ready")
        watch.until(lambda one: (row(one, NAME) or {}).get("version"), what="its version")
        shown = row(watch.last, NAME)
        assert (shown["kind"], shown["model"]) == ("llama.cpp", "/models/tiny.gguf")
        assert (shown["metrics"]["slots"], shown["metrics"]["context_tokens"]) == (2, 2048)
        with llama.under_load(3, tokens=1500):
            watch.until(
                lambda one: (of(one, "metrics", "running"), of(one, "metrics", "waiting")) == (2, 1), what="2, 1"
            )
            watch.until(lambda one: (of(one, "rates", "generation_tokens_per_s") or 0) > 1, what="tokens as they come")
            assert state(watch.last, NAME) == "serving"
        total = llama.metrics()["llamacpp:tokens_predicted_total"]
        watch.until(lambda one: of(one, "metrics", "generation_tokens") == total, what="all its tokens")
    before = llama.inspect()["State"]["StartedAt"]
    act("safe-restart", "spark1", "--set", "target_gib=1", "--set", "grace_s=5")
    llama.ready()
    assert llama.inspect()["State"]["StartedAt"] != before
    assert llama.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    act("relaunch", "spark1", "--flag=--ctx-size=2048", "--set", "target_gib=1", "--set", "grace_s=5")
    assert " ".join(llama.inspect()["Args"]).endswith("-np 2 -c 2048")
    llama.ready()
    act("stop-engine", "spark1", "--set", "grace_s=5")
    assert llama.inspect()["State"]["Running"] is False
    spark.run("docker", "start", NAME)
    llama.ready()
    with watching("spark1") as watch, llama.under_load(2):
        watch.until(lambda one: of(one, "metrics", "running"), what="some running")
        spark.run("docker", "update", "--restart", "no", NAME)
        os.kill(llama.pid_of("llama-server"), signal.SIGKILL)
        llama.ended()
        watch.until(lambda one: state(one, NAME) == "exited" and rules(one), what="its death")


UNIT = """[Service]
RootDirectory=/opt/llama
BindReadOnlyPaths=/models:/mnt
MountAPIVFS=yes
Restart=on-failure
ExecStart=llama-server -m /mnt/tiny.gguf -t 1 --port 8080 --host 0.0.0.0
"""


def test_a_unit_of_its_own_without_metrics(spark: Machine) -> None:
    """A bare process: its slots tell what runs, its journal is its log, and its unit restarts it."""
    need("llama")
    spark.run("sh", "-c", 'printf %s "$1" > /etc/systemd/system/llama.service', "sh", UNIT)
    spark.run("systemctl", "start", "llama")
    llama = Engine(spark, NAME, 8080)
    spark.until(llama.answers, what="it serves")
    one = looked(lambda one: state(one, NATIVE) == "ready" and of(one, "metrics", "slots", NATIVE) == 4, "spark1")
    shown, metrics = row(one, NATIVE), row(one, NATIVE)["metrics"]
    assert (shown["model"], metrics["waiting"], metrics["generation_tokens"]) == ("/mnt/tiny.gguf", None, None)
    assert "--metrics" in shown["endpoint"]["detail"]
    assert shown["log"]["has_served"]
    with watching("spark1") as watch, llama.under_load(1, tokens=1500):
        watch.until(lambda one: of(one, "metrics", "running", NATIVE) == 1, what="a busy slot")
    before = spark.run("systemctl", "show", "-P", "MainPID", "llama")
    act("safe-restart", "spark1", "--set", "target_gib=1")
    spark.until(llama.answers, what="it serves again")
    assert spark.run("systemctl", "show", "-P", "MainPID", "llama") != before


def test_the_guard_ends_one_that_was_started_from_a_shell(spark: Machine) -> None:
    """In no container and no unit; the guard stays when its console has gone."""
    need("llama")
    spark.run("sh", "-c", "mkdir -p /opt/llama/mnt && mount --bind /models /opt/llama/mnt")
    serve = "llama-server -m /mnt/tiny.gguf -t 1 --port 8080 --host 0.0.0.0 >/tmp/llama.log 2>&1 </dev/null &"
    spark.run("sh", "-c", f"chroot --userspec=$(id -u spark) /opt/llama {serve}")
    llama = Engine(spark, NAME, 8080)
    spark.until(llama.answers, what="it serves")
    guard_fires(spark, NATIVE)
    assert not llama.answers()
