"""What is told live of a machine that freezes, is cut off, loses its power, reboots; and what is done to it."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.spark import image_tree
from tests.integration.terminal import sparktop
from tests.real.console import Watch, act, engine, looked, rules, state, watching
from tests.real.engines import docker_run
from tests.real.machine import Machine
from tests.real.parts import ENGINE_IMAGE

from sparktop.observe.history import AWAY_S

NAME = "vllm"
SERVES = ("ready", "serving")


def started(spark: Machine, *options: str, name: str = NAME, load_s: float = 0.5) -> None:
    """The tests' own engine: what is looked at here is the machine."""
    words = ("vllm", "serve", "tiny", "--gpu-memory-utilization", "0.1")
    spark.run(*docker_run(name, "--env", f"ENGINE_LOAD_S={load_s}", *options), ENGINE_IMAGE, *words)


def inspected(spark: Machine, name: str = NAME) -> Any:
    return json.loads(spark.run("docker", "inspect", name))[0]


def link(picture_: Any) -> tuple[str, str]:
    node = picture_["nodes"][0]
    return node["link"], node["reach"]


def away(watch: Watch, began_s: float, back: Callable[[], object]) -> Any:
    """What is said of a machine that was away long enough to be asked about, once it is back."""
    watch.until(lambda _: time.monotonic() - began_s > AWAY_S + 5, what="long enough away")
    back()
    watch.until(lambda one: link(one)[0] == "live", what="live again")
    return rules(watch.until(lambda one: "host.away" in rules(one), what="why it was away"))["host.away"]


def test_a_frozen_machine_is_told_and_comes_back(spark: Machine) -> None:
    with watching("spark1") as watch:
        spark.freeze()
        frozen_s = time.monotonic()
        watch.until(lambda one: link(one) == ("lost", "host up, SSH silent"), what="SSH silent")
        told = away(watch, frozen_s, spark.thaw)
    # This kernel is the host's: what else runs here may have waited for its disk so long.
    assert "took connections for" in told["title"] or "waited for a disk" in told["title"], told
    assert any("all its tasks waited" in one["text"] for one in told["evidence"])


def test_a_cut_lan_is_told_and_its_return(spark: Machine) -> None:
    with watching("spark1") as watch:
        spark.cut("lan")
        cut_s = time.monotonic()
        watch.until(lambda one: link(one) == ("lost", "host gone"), what="host gone")
        told = away(watch, cut_s, lambda: spark.plug("lan"))
    assert (told["severity"], told["confidence"]) == ("info", "suspected")
    assert "was cut off for" in told["title"], told


def test_lost_power_is_told_and_the_engine_of_the_next_boot(spark: Machine) -> None:
    started(spark, "--restart", "unless-stopped")
    boot = spark.boot_id()
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) in SERVES, what="serves")
        spark.kill()
        watch.until(lambda one: link(one) == ("lost", "host gone"), what="host gone")
        spark.again()
        assert spark.boot_id() != boot
        watch.until(lambda one: link(one)[0] == "live", what="live again")
        watch.until(lambda one: state(one, NAME) in SERVES, what="serves again")
        seen = [picture_ for _, picture_ in watch.pictures]
    assert {one["name"] for picture_ in seen for one in picture_["nodes"][0]["engines"]} == {NAME}
    titles = {one["title"] for picture_ in seen for one in rules(picture_).values()}
    assert not [title for title in titles if "exit code" in title or "failed" in title], titles


def test_a_reboot_brings_back_what_would_not_come_by_itself(spark: Machine) -> None:
    started(spark)
    boot = spark.boot_id()
    said = act("reboot", "spark1")
    assert spark.boot_id() != boot
    assert inspected(spark)["State"]["Running"], said


def test_caches_are_dropped(spark: Machine) -> None:
    """Those of all machines here: others fill them meanwhile, but not with this file."""
    spark.run("dd", "if=/dev/urandom", "of=/root/cached", "bs=1M", "count=300", "status=none")
    file = spark.root / "root/cached"
    assert cached_bytes(file) > 250 * 2**20
    act("drop-caches", "spark1")
    assert cached_bytes(file) < 50 * 2**20


def cached_bytes(file: Path) -> int:
    words = ("fincore", "--bytes", "--noheadings", "--output=RES", str(file))
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def test_what_was_stopped_and_started_by_hand_is_followed(spark: Machine) -> None:
    started(spark)
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) in SERVES, what="serves")
        spark.run("docker", "stop", NAME)
        watch.until(lambda one: state(one, NAME) == "exited", what="exited")
        spark.run("docker", "start", NAME)
        watch.until(lambda one: state(one, NAME) in SERVES, what="serves again")


def test_a_safe_restart_on_systemd_and_docker_26(spark: Machine) -> None:
    started(spark, "--restart", "unless-stopped")
    before = inspected(spark)
    act("safe-restart", "spark1", "--set", "target_gib=1", "--set", "grace_s=5")
    after = inspected(spark)
    assert after["Id"] == before["Id"]
    assert after["State"]["StartedAt"] > before["State"]["FinishedAt"]
    assert after["State"]["StartedAt"] > before["State"]["StartedAt"]
    assert after["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"


def test_a_unit_serves_again_after_a_reboot_and_is_removed(spark: Machine) -> None:
    started(spark, "--restart", "unless-stopped")
    installed = sparktop("unit", NAME, "spark1", "--install", "--yes")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert spark.run("systemctl", "is-active", f"{NAME}.service").strip() == "active"
    assert spark.run("systemctl", "is-enabled", f"{NAME}.service").strip() == "enabled"
    assert inspected(spark)["HostConfig"]["RestartPolicy"]["Name"] in ("no", "")
    spark.reboot()
    with watching("spark1") as watch:
        watch.until(lambda one: state(one, NAME) in SERVES, what="serves")
    assert spark.run("systemctl", "is-active", f"{NAME}.service").strip() == "active"
    removed = sparktop("unit", NAME, "spark1", "--remove", "--yes")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert not inspected(spark)["State"]["Running"]
    assert spark.run("sh", "-c", f"systemctl is-enabled {NAME}.service 2>/dev/null; true").strip() in ("", "not-found")
    assert not (spark.root / f"etc/systemd/system/{NAME}.service").exists()


def test_a_unit_starts_a_killed_engine_again(spark: Machine) -> None:
    started(spark)
    installed = sparktop("unit", NAME, "spark1", "--install", "--yes")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    # vLLM ends with 0 where its EngineCore was killed, and `on-failure` would leave it down
    assert spark.run("systemctl", "show", "-P", "Restart", f"{NAME}.service").strip() == "always"
    before = inspected(spark)["Id"]
    with watching("spark1") as watch:
        spark.run("docker", "kill", NAME)

        def is_new() -> bool:
            listed = spark.run("docker", "ps", "--quiet", "--no-trunc", "--filter", f"name=^{NAME}$").strip()
            return listed not in ("", before)

        spark.until(is_new, what="another container")
        watch.until(lambda one: state(one, NAME) in SERVES, what="the new container of that name serves")


def test_a_log_in_the_journal_of_a_unit_is_read(spark: Machine) -> None:
    with tarfile.open(fileobj=io.BytesIO(image_tree())) as tree:
        tree.extractall(spark.root / "opt/stand-in", filter="tar")
    words = ("--unit=native", "--setenv=ENGINE_LOAD_S=0.5", "chroot", "/opt/stand-in", "python3", "/usr/local/bin/vllm")
    spark.run("systemd-run", *words, "serve", "tiny", "--port", "8000")
    looked(lambda one: (engine(one, "vllm:8000") or {}).get("log", {}).get("ready_wall_s"), "spark1")


def guard(picture_: Any) -> str:
    found = picture_["nodes"][0]["guard"]
    return found["phase"] if found else ""


def test_a_restart_leaves_the_guard_armed(spark: Machine) -> None:
    started(spark)
    act("guard", "spark1", "--engine", NAME, "--set", "floor_gib=0.5", "--set", "stay_minutes=30")
    act("safe-restart", "spark1", "--set", "target_gib=1", "--set", "grace_s=5")
    one = looked(lambda one: guard(one) == "armed", "spark1")["nodes"][0]["guard"]
    assert (one["container_name"], one["floor_bytes"]) == (NAME, 2**29)


def test_gpu_figures_come_through_nvml(spark: Machine) -> None:
    spark.gb10(sm=96, power_mw=15_000, clock_mhz=2405, temperature=52)
    one = looked(lambda one: one["nodes"][0]["gpus"], "spark1")
    gpu = one["nodes"][0]["gpus"][0]
    assert (gpu["utilisation_percent"], gpu["power_w"], gpu["sm_clock_mhz"], gpu["temperature_c"]) == (96, 15, 2405, 52)
    assert gpu["gaps"]["memory_used_bytes"] == "not supported"
    assert engine(one, NAME) is None


def test_whoever_fills_run_lock_keeps_nobody_from_acting(spark: Machine) -> None:
    nobody = ("runuser", "-u", "nobody", "--", "sh", "-c")
    spark.run(*nobody, "mkfifo /run/lock/sparktop.lock /run/lock/sparktop.docker.lock")
    spark.run(*nobody, "cat /dev/zero > /run/lock/filling || true")
    assert spark.run("df", "--output=avail", "/run/lock").split()[-1] == "0"
    said = act("enable-linger", "spark1")
    assert (spark.root / "var/lib/systemd/linger/spark").exists(), said
