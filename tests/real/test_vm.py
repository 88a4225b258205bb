"""What needs a kernel of its own: a kill by cgroup v2's limit, a panic, soft-RoCE over a cable."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.terminal import sparktop
from tests.real.conftest import need
from tests.real.console import bringup, rules, state, told, watching
from tests.real.engines import docker_run
from tests.real.machine import CABLE
from tests.real.parts import ENGINE_IMAGE
from tests.real.vm import BOOT_S, Guest
from tests.support import poll

pytestmark = [pytest.mark.slow]
SERVES = ("ready", "serving")
KILLED, DOWN = "kernel.oom-kill-in-limit", "engine.down"
DEVICE = "rocep1s0f0"
BOTH = ("spark1", "spark2")


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
            watch.until(lambda one: all(state(one, name) in SERVES for name in both), what="serve")
            ask = 'curl --silent --data \'{"model": "tiny", "prompt": "a"}\' localhost:8000/v1/completions; true'
            spark.run("sh", "-c", ask)
            live = watch.until(is_told, what="the kill, its end, and the other's going on")
        kernel = spark.run("dmesg")
        ended = inspected(spark, "vllm")["State"]
        with watching("spark1") as watch:
            after = watch.until(is_told, what="the same, looked at later")
    assert ended["ExitCode"] == 137  # OOMKilled may be false: containerd's word of it can come after the end
    said = re.findall(r"oom-kill:constraint=CONSTRAINT_MEMCG,.*", kernel)
    assert said
    assert all(f"/system.slice/docker-{container['Id']}.scope,task=vllm," in line for line in said), said
    for looked in (live, after):
        kill = rules(looked)[KILLED]
        assert "vllm" in kill["title"], told(looked)
        assert "other" not in kill["title"], told(looked)
        assert {one["text"] for one in kill["evidence"]} <= set(said), kill


def is_told(one: Any) -> bool:
    return KILLED in rules(one) and state(one, "vllm") == "exited" and state(one, "other") in SERVES


def test_a_panic_is_told_and_the_boot_after_it_is_nobody_s() -> None:
    with guest("spark1") as spark:
        started(spark, "back", 8000, "--restart", "unless-stopped")
        started(spark, "down", 8001, model="another")
        boot = spark.boot_id()
        with watching("spark1") as watch:
            both = ("back", "down")
            watch.until(lambda one: all(state(one, name) in SERVES for name in both), what="serve")
            spark.run("systemd-run", "--quiet", "sh", "-c", "sleep 1; echo c >/proc/sysrq-trigger")
            watch.until(lambda one: link(one) == ("lost", "host gone"), what="host gone")
            assert "Kernel panic - not syncing" in (spark.folder / "console").read_text(errors="replace")
            watch.until(lambda one: link(one)[0] == "live", what="live again", within_s=BOOT_S)
            assert spark.boot_id() not in ("", boot)
            watch.until(lambda one: state(one, "back") in SERVES, what="serves again", within_s=BOOT_S)
            watch.until(lambda one: state(one, "down") == "exited", what="is down")
            why = rules(watch.until(lambda one: DOWN in rules(one), what="why it is down"))[DOWN]
            told_of_it = [finding for _, one in watch.pictures for finding in one["findings"]]
    assert re.search(r"\bdown\b.*since the reboot", why["title"]), why
    assert not [one["title"] for one in told_of_it if re.search(r"\byour?\b", one["title"])], "nobody rebooted it"
    assert not [one["title"] for one in told_of_it if one.get("subject") == "down" and one["rule"] != DOWN]
    confirmed = [one for one in told_of_it if one["confidence"] == "confirmed"]
    assert not [one["title"] for one in confirmed if one["rule"] == "memory.starved"], "it boots"


def link(picture_: Any) -> tuple[str, str]:
    node = picture_["nodes"][0]
    return node["link"], node["reach"]


PERFTEST = """#!/bin/sh
"$0.real" -u 20 "$@" >/tmp/said.$$ 2>&1; code=$?
{ echo "== $*"; cat /tmp/said.$$; } >>/tmp/perftest
cat /tmp/said.$$; exit $code
"""
"""Notes what it prints, and with what arguments. An emulated machine may answer later than the 67 ms after which a
queue pair sends again (timeout 14): duplicates end soft-RoCE's run with status 9."""
PAYLOAD = re.compile(r"^ *(65536) +(\d+) +[\d.]+ +([\d.]+) ", re.MULTILINE)
"""Bytes of a message, messages, the average in Gb/s."""


def test_soft_roce_is_seen_and_measured_between_two() -> None:
    with guest("spark1") as first, guest("spark2") as second:
        second.becomes_another()
        for number, one in enumerate((first, second), 1):
            one.run("modprobe", "rdma_rxe")
            one.run("ip", "address", "add", f"192.168.100.{number}/24", "dev", CABLE)
            one.run("ip", "link", "set", CABLE, "mtu", "9000", "up")
            one.run("rdma", "link", "add", DEVICE, "type", "rxe", "netdev", CABLE)
            for program in ("/usr/bin/ib_write_bw", "/usr/bin/ib_write_lat"):
                one.run("mv", program, f"{program}.real")
                one.run("sh", "-c", f"cat >{program}; chmod +x {program}", said=PERFTEST)
        gids = [gid_index(one) for one in (first, second)]

        def is_seen() -> bool:
            """Two emulated machines at once are at times too slow to be reached."""
            rows = {one["check"]: one for one in bringup(*BOTH, "--only", "rdma")}
            passed = [rows[name]["state"] == "passed" for name in ("rdma.link", "rdma.devices", "rdma.gid")]
            said = [f"{name}: RoCE v2 at index {gid}" for name, gid in zip(BOTH, gids, strict=True)]
            return all(passed) and all(one in rows["rdma.gid"]["found"] for one in said)

        first.until(is_seen, what="both devices, with their GIDs")
        sent = {name: carried_bytes(one) for name, one in zip(BOTH, (first, second), strict=True)}
        figures, said = measured()
        for here, machine, peer in (("spark1", first, "192.168.100.2"), ("spark2", second, "192.168.100.1")):
            printed = machine.run("cat", "/tmp/perftest").split("== ")[1:]
            client = [text for text in printed if text.partition("\n")[0].endswith(f" {peer}") and "65536" in text][-1]
            size, count, gbps = PAYLOAD.findall(client)[-1]
            assert figures[here][f"{DEVICE}_gbps"] == round(float(gbps), 2), (client, said)
            assert carried_bytes(machine) - sent[here] >= int(size) * int(count) > 0, client
            assert f" -x {gids[here == 'spark2']} " in client
        assert figures["spark1"]["latency_us"] > 0
        states = {one["check"]: one["state"] for one in bringup(*BOTH, "--only", "bandwidth")}
        assert states["bandwidth.half"] == "failed", "an emulator is slow"


def measured() -> tuple[dict[str, Any], str]:
    """A whole measurement, by node and figure, and what was said; on two cores with other work one may not be."""
    said: list[str] = []

    def is_done() -> bool:
        ended = sparktop("act", "measure-link", *BOTH, "--yes", "--timeout", "300")
        said[:] = [ended.stdout + ended.stderr]
        return ended.returncode == 0

    poll(is_done, what="a measurement", otherwise=lambda: said[0][-3000:])
    figures: dict[str, Any] = {}
    for line in (Path(os.environ["XDG_STATE_HOME"]) / "sparktop/audit.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "figures" in entry and "node" in entry:
            figures.setdefault(entry["node"], {}).update(entry["figures"])
    return figures, said[0]


def carried_bytes(machine: Guest) -> int:
    """Sent by its port of the cable, by the kernel's count."""
    return int(machine.run("cat", f"/sys/class/net/{CABLE}/statistics/tx_bytes"))


def gid_index(machine: Guest) -> int:
    """Of its own address on the cable, as the kernel has it: the only one of IPv4."""
    lines = machine.run("sh", "-c", f"grep -s . /sys/class/infiniband/{DEVICE}/ports/1/gids/*").splitlines()
    (found,) = [line for line in lines if re.search(r"/(\d+):(0000:){5}ffff:", line)]
    return int(found.partition(":")[0].rpartition("/")[2])
