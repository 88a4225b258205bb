"""What needs a kernel of its own: a kill by cgroup v2's limit, a panic, soft-RoCE over a cable."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.real.conftest import need
from tests.real.console import bringup, rules, state, told, watching
from tests.real.engines import docker_run
from tests.real.machine import CABLE
from tests.real.parts import ENGINE_IMAGE
from tests.real.vm import BOOT_S, Guest

pytestmark = [pytest.mark.slow]
SERVES = ("ready", "serving")
KILLED, DOWN = "kernel.oom-kill-in-limit", "engine.down"
DEVICE = "rocep1s0f0"


@contextlib.contextmanager
def guest(name: str) -> Iterator[Guest]:
    """One that this test's home reaches by its name."""
    need("vm")
    with Guest.up(name) as one:
        one.alias()
        yield one


def started(spark: Guest, name: str, port: int, *options: str, model: str = "tiny") -> Any:
    """The tests' own engine; what Docker says of it."""
    words = ("vllm", "serve", model, "--gpu-memory-utilization", "0.1", "--port", str(port))
    spark.run(*docker_run(name, "--env", "ENGINE_LOAD_S=0.3", *options), ENGINE_IMAGE, *words)
    return inspected(spark, name)


def inspected(spark: Guest, name: str) -> Any:
    return json.loads(spark.run("docker", "inspect", name))[0]


def test_a_kill_by_cgroup_2_s_limit_is_named_with_its_container() -> None:
    with guest("spark1") as spark:
        limits = ("--memory", "200m", "--memory-swap", "200m", "--env", "ENGINE_SPIKE_MIB=400")
        container = started(spark, "vllm", 8000, *limits)
        started(spark, "other", 8001)
        with watching("spark1") as watch:
            both = ("vllm", "other")
            watch.until(lambda one: all(state(one, name) in SERVES for name in both), what="serve", within_s=120)
            ask = 'curl --silent --data \'{"model": "tiny", "prompt": "a"}\' localhost:8000/v1/completions; true'
            spark.run("sh", "-c", ask)
            watch.until(lambda one: KILLED in rules(one), what="the kill", within_s=60)
            watch.until(lambda one: state(one, "vllm") == "exited", what="its end", within_s=60)
            live = watch.last
        kernel = spark.run("dmesg")
        ended = inspected(spark, "vllm")["State"]
        with watching("spark1") as watch:
            watch.until(lambda one: KILLED in rules(one), what="the kill, looked at later", within_s=60)
            after = watch.last
    assert (ended["OOMKilled"], ended["ExitCode"]) == (True, 137)
    said = re.findall(r"oom-kill:constraint=CONSTRAINT_MEMCG,.*", kernel)
    assert said
    assert all(f"/system.slice/docker-{container['Id']}.scope,task=vllm," in line for line in said), said
    for looked in (live, after):
        kill = rules(looked)[KILLED]
        assert "vllm" in kill["title"], told(looked)
        assert "other" not in kill["title"], told(looked)
        assert {one["text"] for one in kill["evidence"]} <= set(said), kill
        assert state(looked, "other") in SERVES


def test_a_panic_is_told_and_the_boot_after_it_is_nobody_s() -> None:
    with guest("spark1") as spark:
        started(spark, "back", 8000, "--restart", "unless-stopped")
        started(spark, "down", 8001, model="another")
        boot = spark.boot_id()
        with watching("spark1") as watch:
            both = ("back", "down")
            watch.until(lambda one: all(state(one, name) in SERVES for name in both), what="serve", within_s=120)
            spark.run("systemd-run", "--quiet", "sh", "-c", "sleep 1; echo c >/proc/sysrq-trigger")
            watch.until(lambda one: link(one) == ("lost", "host gone"), what="host gone", within_s=90)
            assert "Kernel panic - not syncing" in (spark.folder / "console").read_text(errors="replace")
            watch.until(lambda one: link(one)[0] == "live", what="live again", within_s=BOOT_S)
            assert spark.boot_id() not in ("", boot)
            watch.until(lambda one: state(one, "back") in SERVES, what="serves again", within_s=BOOT_S)
            watch.until(lambda one: state(one, "down") == "exited", what="is down", within_s=60)
            watch.until(lambda one: DOWN in rules(one), what="why it is down", within_s=60)
            why = rules(watch.last)[DOWN]
            told_of_it = [finding for _, one in watch.pictures for finding in one["findings"]]
    assert re.search(r"\bdown\b.*since the reboot", why["title"]), why
    assert not [one["title"] for one in told_of_it if re.search(r"\byour?\b", one["title"])], "nobody rebooted it"
    assert not [one["title"] for one in told_of_it if one.get("subject") == "down" and one["rule"] != DOWN]
    confirmed = [one for one in told_of_it if one["confidence"] == "confirmed"]
    assert not [one["title"] for one in confirmed if one["rule"] == "memory.starved"], "it boots"


def link(picture_: Any) -> tuple[str, str]:
    node = picture_["nodes"][0]
    return node["link"], node["reach"]


def test_soft_roce_is_seen_at_both_ends_of_a_cable() -> None:
    with guest("spark1") as first, guest("spark2") as second:
        second.becomes_another()
        for number, one in enumerate((first, second), 1):
            one.run("modprobe", "rdma_rxe")
            one.run("ip", "address", "add", f"192.168.100.{number}/24", "dev", CABLE)
            one.run("ip", "link", "set", CABLE, "mtu", "9000", "up")
            one.run("rdma", "link", "add", DEVICE, "type", "rxe", "netdev", CABLE)
        gids = [gid_index(one) for one in (first, second)]

        def is_seen() -> bool:
            """Two emulated machines at once are at times too slow to be reached."""
            rows = {one["check"]: one for one in bringup("spark1", "spark2", "--only", "rdma")}
            passed = [rows[name]["state"] == "passed" for name in ("rdma.link", "rdma.devices", "rdma.gid")]
            said = [f"{name}: RoCE v2 at index {gid}" for name, gid in zip(("spark1", "spark2"), gids, strict=True)]
            return all(passed) and all(one in rows["rdma.gid"]["found"] for one in said)

        first.until(is_seen, what="both devices, with their GIDs", within_s=600)


def gid_index(machine: Guest) -> int:
    """Of its own address on the cable, as the kernel has it: the only one of IPv4."""
    lines = machine.run("sh", "-c", f"grep -s . /sys/class/infiniband/{DEVICE}/ports/1/gids/*").splitlines()
    (found,) = [line for line in lines if re.search(r"/(\d+):(0000:){5}ffff:", line)]
    return int(found.partition(":")[0].rpartition("/")[2])
