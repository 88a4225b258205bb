"""sparktop on a real SGLang in the Docker of a machine, over SSH: late figures, a stop, a death, a taken port."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.real.conftest import need
from tests.real.console import engine as row
from tests.real.console import looked, rules, state, watching
from tests.real.engines import Engine
from tests.real.machine import Machine, standing_still

NAME = "sglang-tiny"
DEATHS = ("engine.died-serving", "engine.process-killed")
SCHEDULER = "sglang::schedul"  # a command name has 15 characters


@pytest.fixture(scope="module")
def running() -> Iterator[Engine]:
    for part in ("machine", "images", "vllm", "sglang"):
        need(part)
    with Machine.up("spark1") as machine:
        yield Engine.sglang(machine, NAME)


@pytest.fixture
def sglang(running: Engine) -> Engine:
    """It serves."""
    running.machine.alias()
    if not running.inspect()["State"]["Running"]:
        running.machine.run("docker", "start", NAME)
    running.ready()
    return running


def figure(one: Any, name: str) -> Any:
    """A figure of its row in a picture; None while there is none."""
    return ((row(one, NAME) or {}).get("metrics") or {}).get(name)


def decoded(engine: Engine) -> float:
    """Its own count of tokens."""
    lines = engine.metrics_text().splitlines()
    return float(next(line for line in lines if re.match(r'sglang:realtime.*mode="decode"', line)).split()[-1])


def test_figures_come_though_it_has_none_before_its_first_request(running: Engine) -> None:
    """Asked from its start on: its /metrics has names of its own first, gauges after half a minute, tokens later."""
    running.machine.alias()
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) == "ready", what="ready")
        running.ready()
        assert not {name for name in running.metrics() if name.startswith("sglang:generation_tokens")}
        assert figure(watch.last, "generation_tokens") is None
        assert running.complete()[0] == 200
        # It counts them a while after it has answered: what is equal in the end is what counts.
        watch.until(lambda one: (told := figure(one, "generation_tokens")) and told == decoded(running), what="tokens")
        with running.under_load(3, tokens=1500):
            running.machine.until(lambda: running.metrics()["sglang:num_running_reqs"] == 3, what="three")
            with standing_still(running.pid_of(SCHEDULER)):
                now = running.metrics()["sglang:num_running_reqs"]
                watch.until(lambda one: figure(one, "running") == now, what="as many running")
        states = {((row(one, NAME) or {}).get("endpoint") or {}).get("state") for _, one in watch.pictures}
    assert "ok" in states  # whether "without figures" is seen before depends on when it was asked
    assert "metrics off" not in states


def test_a_stop_by_docker_is_no_failure(sglang: Engine) -> None:
    """It is down, and no rule reads a death in its log, though it lets requests run and is killed after 10 s."""
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) in ("ready", "serving"), what="serves")
        sglang.machine.run("docker", "stop", NAME)
        watch.until(lambda one: state(one, NAME) == "exited", what="exited")
        said = [watch.last, looked(lambda one: state(one, NAME) == "exited", "spark1")]
    assert not {rule for one in said for rule in rules(one)} & {*DEATHS, "sglang.process-died"}


def test_a_scheduler_killed_under_load_is_named_as_its_death(sglang: Engine) -> None:
    with watching("spark1") as watch, sglang.under_load(2, tokens=4000):
        watch.until(lambda one: figure(one, "running"), what="some running")
        os.kill(sglang.pid_of(SCHEDULER), signal.SIGKILL)
        ended = sglang.ended()
        watch.until(is_named, what="its death")
    assert not ended["OOMKilled"]
    looked(is_named, "spark1")


def is_named(one: Any) -> bool:
    """It is down, and the top line is its death."""
    findings = one["findings"]
    return state(one, NAME) == "exited" and bool(findings) and findings[0]["rule"] in DEATHS


def test_a_taken_port_is_named(running: Engine) -> None:
    machine = running.machine
    machine.alias()
    running.is_over_with_its_start()  # alone, this test doesn't wait for it
    machine.run("systemd-run", "--unit=port", "python3", "-m", "http.server", "30001")
    machine.until(lambda: ":30001 " in machine.run("ss", "-Hltn"), what="the port taken")
    second = Engine.sglang(machine, "sglang-second", port=30001)
    try:
        assert second.ended()["ExitCode"] != 0
        found = looked(lambda one: "start.port-in-use" in rules(one), "spark1")
        assert "sglang-second" in rules(found)["start.port-in-use"]["title"]
    finally:
        machine.run("docker", "rm", "--force", "sglang-second")
        machine.run("systemctl", "stop", "port")
