"""An engine launched from a recipe on a machine with systemd and compose v2, relaunched with a change, and rolled back:
looked at by docker inspect, compose's own picture, the files' text and curl."""

from __future__ import annotations

import json
import signal
from typing import Any

from tests.integration.terminal import sparktop
from tests.real.console import act, acting, left_by, run, type_in
from tests.real.machine import Machine
from tests.real.recipes import recipe

NAME = "vllm-tiny"
FOLDER = "/home/spark/llm"
WAITS = ("--set", "grace_s=5")


def inspected(spark: Machine, which: str = NAME) -> Any:
    return json.loads(spark.run("docker", "inspect", which))[0]


def served(spark: Machine) -> Any:
    """What it says itself that it serves, and with what context."""
    (model,) = json.loads(spark.run("curl", "--silent", "--fail", "http://127.0.0.1:8000/v1/models"))["data"]
    return model["id"], model["max_model_len"]


def refused(*words: str) -> str:
    """A relaunch whose engine doesn't start fails; what it says."""
    ended = sparktop("act", "relaunch", "spark1", *words, *WAITS, "--yes", is_hurried=True)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return "".join(ended.stdout.split())


def test_a_launched_container_is_relaunched_and_rolled_back(spark: Machine) -> None:
    file = recipe(spark, options="  restart_policy: unless-stopped")
    file.write_text(file.read_text().replace("host: 127.0.0.1", "host: 0.0.0.0"))
    to_ask = run("launch", str(file), "spark1").splitlines()[-1]
    first = inspected(spark)
    assert json.loads(type_in(f"{to_ask} --silent"))["choices"], "pasted here, where ssh alone knows a spark1"
    assert served(spark) == ("tests/tiny-1b", 4096)
    assert (first["State"]["Running"], first["RestartCount"]) == (True, 0)
    assert first["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"

    act("relaunch", "spark1", "--flag=--max-model-len=2048", *WAITS)
    second = inspected(spark)
    assert served(spark) == ("tests/tiny-1b", 2048)
    assert second["Id"] != first["Id"]
    assert second["Config"]["Env"] == first["Config"]["Env"]
    assert second["HostConfig"]["Binds"] == first["HostConfig"]["Binds"]
    assert second["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    kept = inspected(spark, first["Id"])
    assert (kept["State"]["Running"], kept["HostConfig"]["RestartPolicy"]["Name"]) == (False, "no")

    said = refused("--env=ENGINE_FAILS=load")
    (failed,) = spark.run("docker", "ps", "--all", "--format", "{{.Names}}", "--filter", "name=-failed-").split()
    assert failed in said.rpartition("Rolledback")[2]
    after = inspected(spark)
    assert after["Id"] == second["Id"]
    assert served(spark) == ("tests/tiny-1b", 2048)
    assert after["HostConfig"] == second["HostConfig"]
    names = spark.run("docker", "ps", "--format", "{{.Names}}").split()
    assert names == [NAME], "what failed doesn't run"


def test_a_mod_is_applied_once_even_where_the_machine_loses_power_in_it(spark: Machine) -> None:
    file = recipe(spark, options='  volumes: ["/run/hold:/hold"]')
    file.write_text(file.read_text().replace("runtime_cache: false", "mods: [fix-x]"))
    mod = file.parent / "mods/fix-x/run.sh"
    mod.parent.mkdir(parents=True)
    mod.write_text("#!/bin/sh\nwhile [ -e /hold/now ]; do sleep 0.1; done\necho patched >> /usr/local/share/patched\n")
    spark.run("mkdir", "-p", "/run/hold")
    spark.run("touch", "/run/hold/now")
    with acting("launch", str(file), "spark1") as process:
        spark.until(lambda: "sparktop-patch-" in spark.run("docker", "ps", "--format={{.Names}}"), what="its patch")
        spark.kill()
        left_by(process, signal.SIGKILL)
    spark.again()

    patches = "Apply fix-x to"
    assert patches in run("launch", str(file), "spark1")
    names = spark.run("docker", "ps", "--all", "--format={{.Names}}").split()
    assert names == [NAME]
    assert spark.run("docker", "exec", NAME, "cat", "/usr/local/share/patched") == "patched\n"
    image = inspected(spark)["Config"]["Image"]
    assert image.startswith("localhost/sparktop/")
    (compiled,) = (bind for bind in inspected(spark)["HostConfig"]["Binds"] if bind.endswith(":/cache/compiled"))
    assert spark.run("stat", "--format=%U", compiled.partition(":")[0]).strip() == "spark", "Docker makes it as root"

    assert patches not in run("launch", str(file), "spark1", "--stop", NAME)
    assert inspected(spark)["Config"]["Image"] == image


def test_an_exported_compose_service_is_relaunched_and_rolled_back(spark: Machine) -> None:
    exported = sparktop("launch", str(recipe(spark)), "spark1", "--export", "compose")
    assert exported.returncode == 0, exported.stderr
    spark.run("runuser", "-u", "spark", "--", "mkdir", FOLDER)
    (spark.root / FOLDER[1:] / "compose.yml").write_text(exported.stdout)
    compose(spark, "up", "--detach")
    spark.until(lambda: spark.run("sh", "-c", "curl -s 127.0.0.1:8000/health && echo up; true"), what="serves")
    first = inspected(spark)
    assert served(spark) == ("tests/tiny-1b", 4096)

    act("relaunch", "spark1", "--flag=--max-model-len=2048", *WAITS)
    second = inspected(spark)
    assert second["Id"] != first["Id"]
    assert served(spark) == ("tests/tiny-1b", 2048)
    assert owned(second) == owned(first)
    (listed,) = map(json.loads, compose(spark, "ps", "--format", "json").splitlines())
    assert (listed["Name"], listed["State"]) == (NAME, "running")
    files = texts(spark)
    assert files["compose.yml"] == exported.stdout, "what somebody wrote is left as it was"
    both = (f"--file={FOLDER}/{name}" for name in ("compose.yml", "compose.sparktop.yaml"))
    compose(spark, *both, "up", "--detach")
    assert inspected(spark)["Id"] == second["Id"], "with both files compose itself sees nothing to change"

    refused("--env=ENGINE_FAILS=load")
    assert texts(spark) == files
    after = inspected(spark)
    assert after["Config"]["Cmd"] == second["Config"]["Cmd"]
    assert sorted(after["Config"]["Env"]) == sorted(second["Config"]["Env"]), "in whatever order compose gives it"
    assert owned(after) == owned(second)
    assert served(spark) == ("tests/tiny-1b", 2048)


def compose(spark: Machine, *words: str) -> str:
    return spark.run("runuser", "-u", "spark", "--", "docker", "compose", "--project-directory", FOLDER, *words)


def owned(container: Any) -> Any:
    """What compose knows it by."""
    labels = container["Config"]["Labels"]
    return labels["com.docker.compose.project"], labels["com.docker.compose.service"]


def texts(spark: Machine) -> dict[str, str]:
    """The files of the project."""
    return {path.name: path.read_text() for path in (spark.root / FOLDER[1:]).iterdir()}
