"""sparktop on a real vLLM in the Docker of a machine, over SSH: its figures, its deaths, a GPU that only seems busy.

One engine serves the whole file, started a minute long; what ends it starts one of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.terminal import sparktop
from tests.real.conftest import need
from tests.real.console import Watch, act, guard_fires, looked, rules, state, told, watching
from tests.real.console import engine as row
from tests.real.engines import Engine
from tests.real.machine import Machine, standing_still

from sparktop.observe.engines.rates import RATE_SPAN_S

CORE = "VLLM::EngineCor"  # a command name has 15 characters
NAME = "vllm-tiny"
STALLS = {"gpu.spin-deadlock", "engine.no-tokens", "engine.not-answering"}


def figure(one: Any, name: str, of: str = "metrics", engine: str = NAME) -> Any:
    """A figure of its row in a picture; None while there is none."""
    figures = (row(one, engine) or {}).get(of)
    return figures[name] if figures else None


@pytest.fixture(scope="module")
def running() -> Iterator[Engine]:
    for part in ("machine", "images", "vllm"):
        need(part)
    with Machine.up("spark1") as machine:
        engine = Engine.vllm(machine, NAME)
        engine.ready()
        yield engine


@pytest.fixture
def vllm(running: Engine) -> Engine:
    """It serves, has nothing to do, and its GPU idles."""
    running.machine.alias()
    running.machine.gb10()
    if not running.inspect()["State"]["Running"]:
        running.machine.run("docker", "start", NAME)
    running.ready()
    running.machine.until(lambda: running.metrics()["vllm:num_requests_running"] == 0, what="idle")
    return running


def looked_on(watch: Watch, seconds: float) -> None:
    """Let so much time go by in its pictures: what must not be said has to have been possible."""
    begun = watch.last["wall_s"]
    watch.until(lambda one: one["wall_s"] - begun >= seconds, what=f"{seconds} s")


@contextlib.contextmanager
def holding_still(engine: Engine) -> Iterator[None]:
    """Its core stands still, with requests by its own figures: between two answers it may have none."""
    with contextlib.ExitStack() as still:

        def has_some() -> bool:
            still.close()
            still.enter_context(standing_still(engine.pid_of(CORE)))
            return engine.metrics()["vllm:num_requests_running"] > 0

        engine.machine.until(has_some, what="it holds requests")
        yield


def test_figures_under_load_are_those_of_its_own_metrics(vllm: Engine) -> None:
    with watching("spark1") as watch, vllm.under_load(3, tokens=600):
        vllm.machine.until(lambda: vllm.metrics()["vllm:num_requests_running"] == 3, what="three requests")
        looked_on(watch, 20)
        with holding_still(vllm):
            watch.until(lambda one: has_figures_of(one, vllm.metrics()), what="its own figures")
    assert_rates_are_of_the_counter([one for _, one in watch.pictures])


def has_figures_of(one: Any, own: dict[str, float]) -> bool:
    running, tokens = own["vllm:num_requests_running"], own["vllm:generation_tokens_total"]
    return running > 0 and (figure(one, "running"), figure(one, "generation_tokens")) == (running, tokens)


def assert_rates_are_of_the_counter(pictures: list[Any]) -> None:
    """Each rate is taken from a scrape that is as old as its span, at least, and no older than the last one shown."""
    known = [one for one in pictures if figure(one, "generation_tokens") is not None]
    scrapes = sorted({(figure(one, "wall_s"), figure(one, "generation_tokens")) for one in known})
    rates = {figure(one, "wall_s"): figure(one, "generation_tokens_per_s", "rates") for one in known}
    compared = 0
    for at, tokens in scrapes:
        older = [one for one in scrapes if one[0] <= at - RATE_SPAN_S]
        if older and rates[at] is not None:
            oldest_s, fewest = older[-1]
            most = next(count for moment, count in scrapes if moment > at - RATE_SPAN_S)
            least_rate, highest_rate = (tokens - most) / (at - oldest_s), (tokens - fewest) / RATE_SPAN_S
            assert least_rate - 0.01 <= rates[at] <= highest_rate + 0.01
            compared += highest_rate > 0
    assert compared


def test_an_idle_engine_and_a_busy_gpu_of_another_are_quiet(vllm: Engine) -> None:
    vllm.machine.gb10(sm=96, power_mw=38_000, clock_mhz=2405, temperature=60)
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) in ("ready", "serving"), what="serves")
        looked_on(watch, 30)
        said = {rule for _, one in watch.pictures for rule in rules(one)}
    assert not STALLS & said


@pytest.mark.parametrize(
    ("gpu", "is_spin"),
    [
        ({"sm": 96, "power_mw": 15_000, "clock_mhz": 2405, "temperature": 50}, True),
        ({"sm": 0, "power_mw": 4_200, "clock_mhz": 208, "temperature": 41}, False),
    ],
    ids=["busy at 15 W", "idle"],
)
def test_a_core_that_stands_still_with_requests(vllm: Engine, gpu: dict[str, int], is_spin: bool) -> None:
    """A spin deadlock is only suspected where the GPU is busy; a stall is told anyway."""
    with watching("spark1") as watch, vllm.under_load(2, tokens=2000):
        watch.until(lambda one: figure(one, "running"), what="some running")
        vllm.machine.gb10(**gpu)
        with holding_still(vllm):
            before = vllm.metrics()["vllm:generation_tokens_total"]
            if is_spin:
                watch.until(lambda one: "gpu.spin-deadlock" in rules(one), what="a deadlock")
            else:
                watch.until(lambda one: STALLS & set(rules(one)), what="a stall")
                looked_on(watch, 20)
                assert "gpu.spin-deadlock" not in rules(watch.last), told(watch.last)
        watch.until(lambda one: not STALLS & set(rules(one)), what="it is over")
        assert vllm.metrics()["vllm:generation_tokens_total"] > before


def test_a_long_prompt_is_no_deadlock_though_its_gpu_seems_to_spin(vllm: Engine) -> None:
    """A minute without a token, at 96 % and 15 W; but its cache fills, chunk by chunk."""
    words = ("--max-model-len", "131072", "--hf-overrides", '{"max_position_embeddings": 131072}')
    long = Engine.vllm(vllm.machine, "vllm-long", *words, "--max-num-batched-tokens", "512", port=8001)

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # it is removed before it is through
            long.complete(1, prompt="ba be bi " * 43_000)

    try:
        long.ready()
        long.machine.gb10(sm=96, power_mw=15_000, clock_mhz=2405, temperature=50)
        with watching("spark1") as watch:
            threading.Thread(target=ask, daemon=True).start()
            long.machine.until(lambda: long.metrics()["vllm:kv_cache_usage_perc"] > 0, what="its first chunk")
            seen, before = len(watch.pictures), long.metrics()
            looked_on(watch, 60)
            watch.until(lambda one: figure(one, "running", engine="vllm-long") == 1, what="it runs")
            after, pictures = long.metrics(), [one for _, one in watch.pictures[seen:]]
    finally:
        long.machine.run("docker", "rm", "--force", "vllm-long")
    assert after["vllm:num_requests_running"] == 1
    assert after["vllm:generation_tokens_total"] == before["vllm:generation_tokens_total"]
    assert after["vllm:kv_cache_usage_perc"] > before["vllm:kv_cache_usage_perc"]
    assert not STALLS & {rule for one in pictures for rule in rules(one)}


@pytest.mark.parametrize("process", [CORE, "VLLM::Worker"])
def test_a_part_killed_under_load_is_named_as_its_death(vllm: Engine, process: str) -> None:
    """It exits with 0, after lines that also come at a stop from outside."""
    with watching("spark1") as watch, vllm.under_load(2):
        watch.until(lambda one: figure(one, "running"), what="some running")
        os.kill(vllm.pid_of(process), signal.SIGKILL)
        ended = vllm.ended()
        assert (ended["ExitCode"], ended["OOMKilled"]) == (0, False)
        watch.until(is_named, what="its death")
    looked(is_named, "spark1")


def is_named(one: Any) -> bool:
    """It is down, and the top line is its death, by its own log: nobody is asked whether somebody meant it."""
    findings = one["findings"]
    deaths = ("engine.died-serving", "engine.process-killed")
    return state(one, NAME) == "exited" and bool(findings) and findings[0]["rule"] in deaths


def test_a_stop_by_docker_is_no_failure(vllm: Engine) -> None:
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) in ("ready", "serving"), what="serves")
        vllm.machine.run("docker", "stop", NAME)
        watch.until(lambda one: state(one, NAME) == "exited", what="exited")
        said = {name for name, found in rules(watch.last).items() if found["severity"] == "critical"}
    assert not {name for name in said if name.startswith("vllm.")}


def test_a_safe_restart_that_is_proven_and_then_the_guard(vllm: Engine) -> None:
    before = vllm.inspect()["State"]["StartedAt"]
    act("safe-restart", "spark1", "--engine", NAME, "--set", "target_gib=1", "--set", "grace_s=10")
    assert vllm.answers()
    assert vllm.inspect()["State"]["StartedAt"] != before
    guard_fires(vllm.machine, NAME)
    assert vllm.ended()["ExitCode"] == 137


def test_a_taken_port_is_named(vllm: Engine) -> None:
    second = Engine.vllm(vllm.machine, "vllm-second")
    try:
        assert second.ended()["ExitCode"] == 1
        found = looked(lambda one: "start.port-in-use" in rules(one), "spark1")
        assert "vllm-second" in rules(found)["start.port-in-use"]["title"]
    finally:
        vllm.machine.run("docker", "rm", "--force", "vllm-second")


def test_a_dead_replica_is_told_while_another_one_of_its_model_serves(vllm: Engine) -> None:
    replica = Engine.vllm(vllm.machine, "vllm-replica", port=8001)

    def is_told(one: Any) -> bool:
        end = rules(one).get("restart.exit-137")
        return end is not None and end["subject"] == "vllm-replica"

    try:
        replica.ready()
        with watching("spark1") as watch:
            watch.until(lambda one: {state(one, name) for name in (NAME, "vllm-replica")} == {"ready"}, what="both")
            vllm.machine.run("docker", "kill", "vllm-replica")
            watch.until(is_told, what="its end")
        looked(is_told, "spark1")
    finally:
        vllm.machine.run("docker", "rm", "--force", "vllm-replica")


def test_damaged_weights_are_named_after_a_good_run(vllm: Engine) -> None:
    """The log holds a run that served and was stopped; what counts is the last one."""
    machine = vllm.machine
    machine.run("sh", "-c", "cp -r /models/tiny /root/damaged")
    mount = ("--volume", "/root/damaged:/damaged")
    again = Engine.vllm(machine, "vllm-damaged", options=mount, model="/damaged", port=8001)
    try:
        again.ready()
        machine.run("docker", "stop", "vllm-damaged")
        machine.run("truncate", "--size=100000", "/root/damaged/model.safetensors")
        machine.run("docker", "start", "vllm-damaged")
        assert again.ended()["ExitCode"] == 1
        found = looked(lambda one: "model.weights-file-broken" in rules(one), "spark1")
        assert rules(found)["model.weights-file-broken"]["subject"] == "vllm-damaged"
    finally:
        machine.run("docker", "rm", "--force", "vllm-damaged")


def test_a_unit_starts_an_engine_again_that_died_with_0(vllm: Engine) -> None:
    machine = vllm.machine
    installed = sparktop("unit", NAME, "spark1", "--install", "--yes")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    unit = f"{NAME}.service"
    assert machine.run("systemctl", "is-active", unit).strip() == "active"
    os.kill(vllm.pid_of(CORE), signal.SIGKILL)
    restarts = ("systemctl", "show", "--property=NRestarts", "--value", unit)
    machine.until(lambda: machine.run(*restarts).strip() != "0", what="its end, and its return")
    machine.until(vllm.answers, what="its model")
