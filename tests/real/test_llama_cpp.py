"""sparktop on a real llama.cpp server, in the Docker of a machine and as a unit of its own, over SSH."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from tests.hub import Hub
from tests.integration.terminal import sparktop
from tests.real.conftest import need
from tests.real.console import act, acting, guard_fires, left_by, looked, rules, run, state, watching
from tests.real.console import engine as row
from tests.real.engines import Engine
from tests.real.machine import Machine
from tests.real.parts import LLAMA_IMAGE, MODELS

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


REPOSITORY = "acme/tiny-GGUF"
LAUNCHED = "llama.cpp-tiny"
LIMITS = [resource.getrlimit(which)[1] for which in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE)]
"""Who runs the tests may not raise them."""
RECIPE = f"""recipe_version: "2"
model: {REPOSITORY}:Q4_K_M
runtime: llama-cpp
container: {LLAMA_IMAGE}
defaults: {{host: 0.0.0.0, port: 8080, ctx_size: 2048, threads: 1}}
executor_config: {{gpus: "", shm_size: 64mb, ulimit: ["memlock={LIMITS[0]}", "nofile={LIMITS[1]}"]}}
command: llama-server -hf {{model}} --host {{host}} --port {{port}} -c {{ctx_size}} -t {{threads}} -np 2 --metrics
runtime_config:
  sparktop:
    need: {{reserve_gib: 1}}
    smoke_test: {{max_tokens: 16, measure_tokens: 24}}
"""


def test_a_recipe_launched_from_one_file_of_a_repository(spark: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloaded alone, not again, by hf or not at all; a quant that isn't there, and a launch cut off as it downloads,
    leave nothing behind that runs."""
    need("llama")
    file = Path.home() / "tiny.yaml"
    file.write_text(RECIPE)
    weights = (MODELS / "tiny.gguf").read_bytes()
    others = {"README.md": b"# tiny", "tiny-Q8_0.gguf": bytes(1 << 20), "tiny-BF16.gguf": bytes(1 << 20)}
    with Hub.start(f"10.77.{spark.number}.1") as hub:
        hub.model(REPOSITORY, {"tiny-Q4_K_M.gguf": weights, **others})
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert "no image of llama.cpp has Python" in refused(str(file))
        install_hf(spark)
        said = refused(str(file), "--set", f"model={REPOSITORY}:Q5_K_M")
        assert "no .gguf model of the quant Q5_K_M: tiny-BF16.gguf, tiny-Q4_K_M.gguf, tiny-Q8_0.gguf" in said
        assert not containers(spark)

        hub.bytes_s = 1 << 20
        with acting("launch", str(file), "spark1") as process:
            spark.until(lambda: hub.gets("Q4_K_M.gguf"), what="its download")
            left_by(process, signal.SIGINT)
        assert not containers(spark)
        downloads = "ps ax -o args= | grep '[h]uggingface_hub' || true"
        spark.until(lambda: not spark.run("sh", "-c", downloads), what="no download goes on")
        hub.bytes_s = None

        run("launch", str(file), "spark1")
        assert {path.rpartition("/")[2] for _, path, _ in hub.gets(".gguf")} == {"tiny-Q4_K_M.gguf"}
        llama = Engine(spark, LAUNCHED, 8080)
        inspected = llama.inspect()
        folder = f"/root/.cache/huggingface/hub/models--acme--tiny-GGUF/snapshots/{hub.models[REPOSITORY].commit}"
        assert inspected["Args"][:2] == ["--model", f"{folder}/tiny-Q4_K_M.gguf"]
        assert json.loads(llama.ask("GET", "/v1/models")[1])["data"][0]["id"] == f"{REPOSITORY}:Q4_K_M"
        one = looked(lambda one: state(one, LAUNCHED) in ("ready", "serving"), "spark1")
        assert (row(one, LAUNCHED)["kind"], row(one, LAUNCHED)["metrics"]["slots"]) == ("llama.cpp", 2)

        assert "runs on spark1 already" in refused(str(file))
        sent_bytes = hub.sent_bytes
        run("launch", str(file), "spark1", "--stop", LAUNCHED, "--set", "ctx_size=1K")
        assert hub.sent_bytes == sent_bytes, "it is there"
        assert llama.inspect()["Id"] != inspected["Id"]
        assert " -c 1024 " in " ".join(llama.inspect()["Args"])
    run("launch", str(file), "spark1", "--stop", LAUNCHED, "--set", "model=/models/tiny.gguf", "--no-fetch")
    assert llama.inspect()["Args"][:2] == ["--model", "/models/tiny.gguf"]
    act("relaunch", "spark1", "--flag=--ctx-size=512", "--set", "target_gib=1", "--set", "grace_s=5")
    assert " -c 512 " in " ".join(llama.inspect()["Args"])
    llama.ready()
    act("safe-restart", "spark1", "--set", "target_gib=1", "--set", "grace_s=5")
    llama.ready()


def refused(*words: str) -> str:
    """What a launch says that isn't begun."""
    ended = sparktop("launch", *words, "spark1", "--yes", is_hurried=True)
    assert ended.returncode != 0, ended.stdout
    return " ".join((ended.stdout + ended.stderr).split())


def containers(spark: Machine) -> str:
    return spark.run("docker", "ps", "--all", "--quiet")


def install_hf(spark: Machine) -> None:
    """This Python's huggingface_hub and all that it needs, for the machine's: its compiled parts are optional."""
    goal, left, seen = spark.root / "opt/hf", ["huggingface_hub"], set()
    while left:
        try:
            package = distribution(name := left.pop())
        except PackageNotFoundError:
            continue  # of another platform
        if name in seen:
            continue
        seen.add(name)
        left += [re.split(r"[^\w.-]", text)[0] for text in package.requires or () if "extra ==" not in text]
        for path in package.files or ():
            if ".." not in path.parts and "__pycache__" not in path.parts:
                (goal / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(package.locate_file(path))), goal / path)
    program = spark.root / "usr/local/bin/hf"
    program.write_text('#!/bin/sh\nPYTHONPATH=/opt/hf exec python3 -m huggingface_hub.cli.hf "$@"\n')
    program.chmod(0o755)
