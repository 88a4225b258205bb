"""What an interrupted act leaves on a machine, what is told of it, and the ways back from it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.terminal import sparktop
from tests.real.console import act, acting, left_by
from tests.real.engines import docker_run
from tests.real.machine import Machine
from tests.real.parts import ENGINE_IMAGE

NAME = "vllm"
HOLD = "/run/hold"
"""A folder of the machine: the file of that name in it holds the engine in its loading."""
UNIT = f"{NAME}.service"
TRIED, KEPT = "run/netplan/40-sparktop-cable.yaml", "etc/netplan/40-sparktop-cable.yaml"
NETPLAN = """#!/bin/sh
/usr/share/netplan/netplan.script "$@" || exit
while [ "$1" = apply ] && [ -e /run/hold ]; do sleep 0.1; done
"""
"""Its `apply` ends once nobody holds it."""
Pair = tuple[Machine, Machine]


def started(spark: Machine) -> str:
    """The tests' own engine; its container's id."""
    words = ("vllm", "serve", "tiny", "--gpu-memory-utilization", "0.1")
    held = ("--volume", f"{HOLD}:{HOLD}", "--env", f"ENGINE_HELD_BY={HOLD}/hold")
    options = ("--env", "ENGINE_LOAD_S=0.5", "--restart", "unless-stopped", *held)
    return spark.run(*docker_run(NAME, *options), ENGINE_IMAGE, *words).strip()


def containers(spark: Machine) -> dict[str, Any]:
    """All of them by name, as Docker knows them."""
    ids = spark.run("docker", "ps", "--all", "--quiet").split()
    listed = json.loads(spark.run("docker", "inspect", *ids)) if ids else []
    return {one["Name"].lstrip("/"): one for one in listed}


def assert_as_before(spark: Machine, container_id: str) -> None:
    """The engine's own container serves under its name, and nothing of the unit is left."""
    found = containers(spark)
    assert list(found) == [NAME]
    assert found[NAME]["Id"].startswith(container_id)
    assert found[NAME]["State"]["Running"]
    assert found[NAME]["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert not (spark.root / f"etc/systemd/system/{UNIT}").exists()
    assert spark.run("sh", "-c", f"systemctl is-active {UNIT} || true").strip() == "inactive"


def installing(spark: Machine, container_id: str, how: int) -> str:
    """`unit --install`, interrupted while the unit's own container loads; what it said."""

    def is_its_own() -> bool:
        said = spark.run("docker", "ps", "--all", "--no-trunc", "--format={{.ID}}", f"--filter=name=^{NAME}$").strip()
        return said not in ("", container_id)

    def released() -> None:
        spark.until(lambda: process.poll() is not None or not is_its_own(), what="its interruption")
        spark.run("rm", f"{HOLD}/hold")

    spark.run("touch", f"{HOLD}/hold")
    with acting("unit", NAME, "spark1", "--install") as process:
        spark.until(is_its_own, what="the unit's container")
        return left_by(process, how, released)


@pytest.mark.parametrize("way", ["ctrl-c", "restore", "by hand"])
def test_an_interrupted_unit_is_led_back_to_the_container_that_was(spark: Machine, way: str) -> None:
    before = started(spark)
    installing(spark, before, signal.SIGINT if way == "ctrl-c" else signal.SIGKILL)
    if way == "restore":
        act("restore", "spark1")
    elif way == "by hand":
        told = sparktop("act", "restore", "spark1", "--dry-run").stderr
        commands = re.search(r"Back by hand: (.*?) ✓", " ".join(told.split()))
        assert commands is not None, told
        spark.run("sh", "-c", commands[1])
    assert_as_before(spark, before)


def test_what_a_relaunch_changed_of_a_unit_goes_with_it(spark: Machine) -> None:
    drop_in = spark.root / f"etc/systemd/system/{UNIT}.d/sparktop.conf"
    started(spark)
    for change in ("2048", ""):
        done = sparktop("unit", NAME, "spark1", "--install", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        if change:
            act("relaunch", "spark1", f"--flag=--max-model-len={change}", "--set", "target_gib=1")
            assert change in " ".join(containers(spark)[NAME]["Args"])
            text = drop_in.read_text()
            sparktop("unit", NAME, "spark1", "--remove", "--yes")
            assert not drop_in.exists()
            spark.run("docker", "rm", NAME)
            started(spark)
            spark.run("mkdir", "-p", f"/etc/systemd/system/{UNIT}.d")  # as an older sparktop left it
            drop_in.write_text(text)
    assert "2048" not in " ".join(containers(spark)[NAME]["Args"])
    assert not drop_in.exists()


def test_addresses_that_nobody_kept_are_gone_with_the_next_boot(pair: Pair) -> None:
    first, _ = pair
    program = "/usr/sbin/netplan"
    first.run("rm", program)  # a link to its script
    first.run("sh", "-c", f"touch /run/hold; cat >{program}; chmod +x {program}", said=NETPLAN)
    with acting("act", "set-addresses", "spark1", "spark2") as process:
        first.until(lambda: "192.168.100." in first.run("ip", "-brief", "address"), what="an address")
        left_by(process, signal.SIGKILL)
    first.run("rm", "/run/hold")
    assert sparktop("act", "restore", "spark1", "spark2", "--dry-run").returncode == 0
    first.reboot()
    assert not (first.root / KEPT).exists()
    assert "192.168.100." not in first.run("ip", "-brief", "address")
    act("set-addresses", "spark1", "spark2")
    for one in pair:
        assert (one.root / KEPT).exists()
        assert "192.168.100." in one.run("ip", "-brief", "address")
        assert not one.run("systemctl", "list-timers", "--all", "--no-legend", "sparktop-netplan-return.timer").strip()


@pytest.mark.parametrize("action", ["restore", "safe-restart"])
def test_a_console_on_another_machine_leads_back_what_one_left(
    spark: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """It has an audit of its own: what the node has noted is all that it knows."""
    before = started(spark)
    with acting("act", "safe-restart", "spark1") as process:
        spark.until(lambda: not containers(spark)[NAME]["State"]["Running"], what="the stop")
        left_by(process, signal.SIGKILL)
    with monkeypatch.context() as there:
        there.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        act(action, "spark1")
        assert_as_before(spark, before)
        assert "no interrupted run" in sparktop("act", "restore", "spark1", "--dry-run").stderr
    assert "no interrupted run" in sparktop("act", "restore", "spark1", "--dry-run").stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_reboot_that_was_aborted_leaves_no_engine_stopped_without_a_word(spark: Machine, how: int) -> None:
    before = started(spark)
    spark.run("docker", "update", "--restart=no", NAME)
    boot = spark.boot_id()
    with acting("act", "reboot", "spark1") as process:
        spark.until(lambda: spark.boot_id() != boot, what="its reboot")
        left_by(process, how)
    spark.answers()
    if how == signal.SIGKILL:
        boot = spark.boot_id()
        resumed = sparktop("act", "resume", "spark1", "--yes")
        assert spark.boot_id() == boot, resumed.stdout + resumed.stderr
    assert not containers(spark)[NAME]["State"]["Running"]
    act("restore", "spark1")
    assert containers(spark)[NAME]["Id"].startswith(before)
    assert containers(spark)[NAME]["State"]["Running"]


def test_addresses_taken_back_leave_no_trace(pair: Pair) -> None:
    first, _ = pair
    with acting("act", "set-addresses", "spark1", "spark2") as process:
        first.until(lambda: (first.root / KEPT).exists(), what="the file")
        left_by(process, signal.SIGINT)
    act("restore", "spark1", "spark2")
    for one in pair:
        assert not (one.root / KEPT).exists()
        (port,) = json.loads(one.run("ip", "-j", "addr", "show", "enp1s0f0np0"))
        assert (port["mtu"], [at["family"] for at in port["addr_info"] if at["scope"] == "global"]) == (1500, [])


def test_a_mesh_half_made_is_taken_back(pair: Pair) -> None:
    """With the public keys that the run made, which the next console knows from its audit."""
    act("set-addresses", "spark1", "spark2")
    files = [one.root / "home/spark/.ssh/authorized_keys" for one in pair]
    before = [file.read_text() for file in files]
    with acting("act", "ssh-mesh", "spark1", "spark2") as process:
        pair[0].until(lambda: files[0].read_text() != before[0], what="the other's key")
        left_by(process, signal.SIGKILL)
    act("restore", "spark1", "spark2")
    assert [file.read_text() for file in files] == before
    assert not any((one.root / "home/spark/.ssh/known_hosts").read_text() for one in pair[:1])


def test_a_unit_file_written_before_the_kill_is_told_and_removed(spark: Machine) -> None:
    before = started(spark)
    file = spark.root / f"etc/systemd/system/{UNIT}"
    with acting("unit", NAME, "spark1", "--install") as process:
        spark.until(file.exists, what="the unit file")
        left_by(process, signal.SIGKILL)
    act("restore", "spark1")
    assert_as_before(spark, before)


def owed(*words: str) -> list[str]:
    """What a plan says that an earlier restart still owes."""
    planned = sparktop("act", *words, "spark1", "--dry-run", "--json")
    return [one for one in json.loads(planned.stdout)["plan"]["warnings"] if one.startswith('"Safe restart of ')]


def test_what_somebody_gave_back_or_no_run_has_taken_is_not_owed(spark: Machine) -> None:
    before = started(spark)
    with acting("act", "safe-restart", "spark1") as process:
        spark.until(lambda: not containers(spark)[NAME]["State"]["Running"], what="the stop")
        left_by(process, signal.SIGKILL)
    assert len(owed("safe-restart")) == 2, "its policy and its run"
    spark.run("docker", "update", "--restart=unless-stopped", NAME)
    spark.run("docker", "start", NAME)
    assert owed("stop-engine") == owed("reboot") == []
    for folder in ("/run/lock", "/tmp"):  # nowhere is there room for a lock
        spark.run("mount", "-t", "tmpfs", "-o", "size=4k,mode=1777", "tmpfs", folder)
        spark.run("sh", "-c", f"cat /dev/zero > {folder}/full || true")
    refused = sparktop("act", "safe-restart", "spark1", "--yes")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    spark.run("umount", "/run/lock", "/tmp")
    assert owed("stop-engine") == owed("reboot") == []
    assert_as_before(spark, before)
