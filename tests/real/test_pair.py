"""Bring-up on one machine and on two over a cable, to its end: what it offers is done, and looked at from outside."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.terminal import sparktop, terminal
from tests.real.console import act, bringup, do, rules, watching
from tests.real.machine import CABLE, Machine
from tests.real.recipes import recipe
from tests.real.test_remedies import answered as asked
from tests.support import poll

Pair = tuple[Machine, Machine]
LINK_DOWN = "cluster.link-down"
HERE_NEVER = {
    "machine.cuda", "machine.power", "access.gpu-runtime", "access.cdi", "collective.all-reduce",  # no GPU
    "machine.memory", "machine.hidden-memory", "memory.rest", "access.memlock",  # this machine's
    "identity.product", "release.ota", "release.firmware", "parity.dgx-spark-ota-update-meta",  # no Spark
    "machine.headers", "parity.container-toolkit", "parity.swap",  # no apt source to have it from
    "wiring.cable", "rdma.link", "rdma.rate", "rdma.devices", "rdma.gid",  # one half of a port, without RDMA
    "bandwidth.half", "bandwidth.both", "bandwidth.latency",
}  # fmt: skip
"""Checks that a machine without GPU, firmware, apt sources and RDMA can't pass, or not wherever this runs."""
ALONE = {"wiring.neighbours", "addresses.jumbo", "addresses.kept"}
"""Those that are about two machines."""
KEY = "canary-77c1d0"


def rows(*words: str, offering: tuple[str, ...]) -> dict[str, Any]:
    """A bring-up's rows by their check, once these offer something: what a slow machine was asked may be unknown."""
    found: dict[str, Any] = {}

    def offers() -> bool:
        found.update({one["check"]: one for one in bringup(*words)})
        return all(found[check]["remedies"] for check in offering)

    poll(offers, what=f"remedies for {offering}", otherwise=lambda: [found[check] for check in offering])
    return found


def remedy(found: dict[str, Any], check: str) -> Any:
    """The first that a row offers."""
    return found[check]["remedies"][0]


def nothing_is_left_to_do(*words: str, but: set[str]) -> None:
    """All rows that could here come to pass, but those."""
    left = lambda: {one["check"] for one in bringup(*words) if one["state"] != "passed"} - HERE_NEVER - but  # noqa: E731
    poll(lambda: not left(), what="nothing left to do", otherwise=left)


def publish(spark: Machine, name: str) -> None:
    """Have avahi publish another name, as it does where its own is taken."""
    spark.run("busctl", "call", *AVAHI, "SetHostName", "s", name)
    spark.until(lambda: published(spark) == name, what="another name")


def published(spark: Machine) -> str:
    """Empty while avahi starts."""
    said = spark.run("sh", "-c", f"busctl call {' '.join(AVAHI)} GetHostName || true")
    return said.removeprefix("s ").strip().strip('"')


AVAHI = ("org.freedesktop.Avahi", "/", "org.freedesktop.Avahi.Server")


def served(spark: Machine) -> tuple[int, list[str]]:
    """The context that the engine says to have, and its arguments."""
    (model,) = json.loads(spark.run("curl", "--silent", "--fail", "http://127.0.0.1:8000/v1/models"))["data"]
    return model["max_model_len"], json.loads(spark.run("docker", "inspect", "vllm-tiny"))[0]["Args"]


def test_one_machine_is_brought_up_to_its_end(spark: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it is told, done as it is told: until an engine serves, is proven, and nothing is left."""
    spark.run("gpasswd", "--delete", "spark", "docker")
    publish(spark, "spark1-2")
    spark.run("touch", "/run/reboot-required")
    told = ("access.docker", "access.linger", "identity.name", "release.reboot", "endpoint.served")
    found = rows("spark1", offering=told)
    do(remedy(found, "access.docker"))
    assert "spark" in spark.run("getent", "group", "docker").strip().split(":")[-1].split(",")
    do(remedy(found, "access.linger"))
    assert spark.run("loginctl", "show-user", "spark", "--property=Linger").strip() == "Linger=yes"
    do(remedy(found, "identity.name"))
    spark.until(lambda: published(spark) == "spark1", what="its own name")
    boot = spark.boot_id()
    do(remedy(found, "release.reboot"))
    assert spark.boot_id() != boot

    do(remedy(found, "endpoint.served"), RECIPE=str(recipe(spark)))
    assert served(spark)[0] == 4096
    found = rows("spark1", offering=("endpoint.answer",))
    assert found["access.docker"]["state"] == "passed"
    do(remedy(found, "endpoint.answer"))  # proves it
    found = rows("spark1", "--only", "endpoint", offering=("endpoint.tools", "endpoint.reach"))
    do(remedy(found, "endpoint.tools"), NAME="hermes")
    context, words = served(spark)
    assert (context, "--enable-auto-tool-choice" in words, "hermes" in words) == (4096, True, True), words
    spark.run("systemctl", "start", "nginx")
    monkeypatch.setenv("SPARKTOP_API_KEY", KEY)
    do(remedy(found, "endpoint.reach"), HOSTNAME="llm.example.org")
    spark.until(lambda: (asked(spark, "wrong"), asked(spark, KEY)) == ("401", "200"), what="a key")
    monkeypatch.delenv("SPARKTOP_API_KEY")
    do(remedy(rows("spark1", "--only", "endpoint", offering=("endpoint.answer",)), "endpoint.answer"))
    nothing_is_left_to_do("spark1", but=ALONE)


def test_looking_changes_no_file(spark: Machine) -> None:
    spark.run("runuser", "-u", "spark", "--", "sudo", "true")  # sudo itself notes the first time
    spark.run("sh", "-c", "systemctl is-system-running --wait; systemctl stop '*.timer'")  # and systemd, of its boot
    spark.run("touch", "/run/before")
    bringup("spark1")
    folders = ("/etc", "/home", "/root", "/usr", "/var/lib/systemd")
    assert spark.run("find", *folders, "-type", "f", "-newer", "/run/before").splitlines() == []


def test_two_machines_are_brought_up_to_their_end(pair: Pair) -> None:
    """Clones of one image, their cable without addresses: told, done as told, kept over a reboot, and nothing left."""
    first, second = pair
    for file in ("etc/machine-id", "etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub"):
        (second.root / file).write_bytes((first.root / file).read_bytes())
    second.run("systemctl", "restart", "ssh")
    known(second)
    found = rows("spark1", "spark2", offering=("addresses.plan", "identity.clones"))
    do(remedy(found, "addresses.plan"))
    addresses = [cable_address(one) for one in pair]
    assert all(addresses), addresses
    reaches_with_jumbo_frames(first, addresses[1])
    for one in pair:
        assert json.loads(one.run("ip", "-j", "link", "show", CABLE))[0]["mtu"] == 9000
        assert [path for path in (one.root / "etc/netplan").iterdir() if path.name != "01-lan.yaml"]

    boot = second.boot_id()
    do(remedy(found, "identity.clones"))
    second.until(lambda: second.boot_id() not in ("", boot), what="its reboot")
    second.answers()
    known(second)
    assert first.run("cat", "/etc/machine-id") != second.run("cat", "/etc/machine-id")
    assert host_key(first) != host_key(second)
    second.until(lambda: cable_address(second) == addresses[1], what="its address after the reboot")

    found = rows("spark1", "spark2", "--only", "addresses", offering=("addresses.ssh",))
    do(remedy(found, "addresses.ssh"))
    as_spark = ("runuser", "-u", "spark", "--", "ssh", "-o", "BatchMode=yes", f"spark@{addresses[1]}", "hostname")
    assert first.run(*as_spark).strip() == "spark2"
    for node in ("spark1", "spark2"):
        act("enable-linger", node)
    nothing_is_left_to_do("spark1", "spark2", but={"endpoint.served"})
    for action, lacks in (("measure-link", "RDMA"), ("measure-collective", "RDMA"), ("measure-power", "cuBLAS")):
        first.until(lambda: lacks in refusal(action), what=f"a refusal of {action} for {lacks}")  # noqa: B023
    act("ssh-mesh", "spark1", "spark2", "--set", "remove=yes")
    with pytest.raises(AssertionError):
        first.run(*as_spark)


def test_clones_by_their_host_key_alone_keep_their_machine_ids(pair: Pair) -> None:
    first, second = pair
    for file in ("etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub"):
        (second.root / file).write_bytes((first.root / file).read_bytes())
    second.run("systemctl", "restart", "ssh")
    known(second)
    machine_id, boot = second.run("cat", "/etc/machine-id"), second.boot_id()
    told = rows("spark1", "spark2", "--only", "identity", offering=("identity.clones",))
    assert "one SSH host key" in told["identity.clones"]["found"]
    do(remedy(told, "identity.clones"))
    second.until(lambda: second.boot_id() not in ("", boot), what="its reboot")
    second.answers()
    known(second)
    assert host_key(first) != host_key(second)
    assert second.run("cat", "/etc/machine-id") == machine_id
    nothing_is_left_to_do("spark1", "spark2", "--only", "identity", but=set())


def refusal(action: str) -> str:
    """Why it is refused for both."""
    said = sparktop("act", action, "spark1", "spark2", "--dry-run", "--json").stdout
    return str(json.loads(said)["refusal"]["reason"])


def reaches_with_jumbo_frames(machine: Machine, address: str) -> None:
    """Over the cable: a ping is answered, if not the first."""
    machine.run("ping", "-c", "1", "-w", "100", "-M", "do", "-s", "8972", "-I", CABLE, address)


def host_key(machine: Machine) -> str:
    return (machine.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[1]


def known(machine: Machine) -> None:
    """Somebody has compared its fingerprint: what known_hosts has of it is the key that it has now."""
    file = Path.home() / ".ssh/known_hosts"
    others = [line for line in file.read_text().splitlines() if not line.startswith(f"{machine.address} ")]
    file.write_text("\n".join([*others, f"{machine.address} ssh-ed25519 {host_key(machine)}\n"]))


def test_addresses_set_by_hand_are_put_right_by_hand(pair: Pair) -> None:
    """Two networks, small frames, and nothing that declares them: each line typed where it is told."""
    for one, address in zip(pair, ("10.50.0.1", "10.60.0.2"), strict=True):
        one.run("ip", "link", "set", CABLE, "mtu", "1500")
        one.run("ip", "address", "add", f"{address}/24", "dev", CABLE)
    found = rows("spark1", "spark2", "--only", "addresses", offering=("addresses.plan", "addresses.kept"))
    assert (found["addresses.plan"]["state"], found["addresses.kept"]["state"]) == ("failed", "failed")
    do(remedy(found, "addresses.plan"), ADDRESS="10.50.0.2")
    assert cable_address(pair[1]) == "10.50.0.2"
    for node in ("spark1", "spark2"):
        for check in ("addresses.kept", "addresses.jumbo"):
            one = row(check, node, "spark1", "spark2", "--only", "addresses")
            if one["state"] != "passed":
                do(one["remedies"][0])
    pair[0].reboot()
    pair[0].until(lambda: cable_address(pair[0]) == "10.50.0.1", what="its address after a reboot")
    reaches_with_jumbo_frames(pair[1], "10.50.0.1")
    nothing_is_left_to_do("spark1", "spark2", "--only", "addresses", but={"addresses.ssh"})


def test_a_cut_cable_between_two_is_told_live(pair: Pair) -> None:
    act("set-addresses", "spark1", "spark2")
    with watching("spark1", "spark2") as watch:
        cut(pair[0])
        found = watch.until(lambda one: LINK_DOWN in rules(one), what="told")
        assert rules(found)[LINK_DOWN]["nodes"] == ["spark1", "spark2"]
        pair[0].plug("cable")
        watch.until(lambda one: LINK_DOWN not in rules(one), what="over")


def test_a_cut_cable_between_two_is_seen_by_bring_up(pair: Pair) -> None:
    act("set-addresses", "spark1", "spark2")
    cut(pair[0])
    failed = lambda: {one["check"] for one in bringup("spark1", "spark2") if one["state"] == "failed"}  # noqa: E731
    pair[0].until(lambda: "wiring.cable" in failed(), what="a failed cable")


def cut(machine: Machine) -> None:
    machine.cut("cable")
    file = f"/sys/class/net/{CABLE}/carrier"
    machine.until(lambda: machine.run("cat", file).strip() == "0", what="no carrier")


def test_root_is_permitted_for_what_is_needed_alone(spark: Machine) -> None:
    """By a user who is asked for a password."""
    theirs, ours = (spark.root / "etc/sudoers.d" / name for name in ("spark", "sparktop"))
    theirs.write_text("spark ALL=(ALL) ALL\n")
    theirs.chmod(0o644)  # no matter to sudo, and to visudo only where it is told of no file
    spark.run("chpasswd", said="spark:sesame\n")
    spark.run("gpasswd", "--delete", "spark", "adm")
    checks = ("access.kernel-log", "access.sudo")
    found = rows("spark1", "--only", "access", offering=checks)
    broken = spark.root / "etc/sudoers.d/z-broken"
    broken.write_text("nobody may ANYTHING\n")
    broken.chmod(0o440)
    said = with_password(remedy(found, "access.sudo")["command"], ended=1)
    assert "z-broken" in said
    assert not ours.exists(), "taken back, as visudo refuses the whole of sudoers"
    broken.unlink()
    for check in checks:
        with_password(remedy(found, check)["command"])
    assert "spark" in spark.run("getent", "group", "systemd-journal")
    assert spark.run("stat", "--format=%a %U %G", "/etc/sudoers.d/sparktop").strip() == "440 root root"
    theirs.chmod(0o440)
    spark.run("visudo", "-c")
    as_spark = ("runuser", "-u", "spark", "--", "sudo", "-n")
    allowed = spark.run(*as_spark, "-l")
    assert "NOPASSWD" in allowed
    with pytest.raises(AssertionError):
        spark.run(*as_spark, "/usr/bin/id")


def with_password(command: str, ended: int = 0) -> str:
    """Do a remedy of spark's, who types the password; what it says."""
    with terminal(*shlex.split(command)[1:], "--yes") as at:
        at.reads("wants your password")
        at.types("sesame\n")
        assert at.ends() == ended, at.text
        return at.text


def cable_address(machine: Machine) -> str:
    """IPv4 of its second port; empty while it has none."""
    rows = json.loads(machine.run("ip", "-j", "-4", "addr", "show", CABLE))
    return next((one["local"] for row in rows for one in row.get("addr_info", ())), "")


def row(check: str, node: str, *hosts: str, is_it: Callable[[Any], object] = bool) -> Any:
    """A check's row about one node alone, once it is that one."""
    found: list[Any] = []

    def is_there() -> object:
        found[:] = [one for one in bringup(*hosts) if one["check"] == check and one["nodes"] == [node]]
        return is_it(found[0])

    poll(is_there, what=check, otherwise=lambda: found)
    return found[0]


def test_a_port_that_is_switched_off_is_switched_on_by_its_remedy(pair: Pair) -> None:
    pair[0].run("ip", "link", "set", CABLE, "down")
    off = row("wiring.cable", "spark1", "spark1", "spark2", is_it=lambda one: one["state"] == "failed")
    ((step,),) = [remedy["steps"] for remedy in off["remedies"]]
    pair[0].run(*shlex.split(step.removeprefix("on spark1: sudo ")))
    pair[0].until(lambda: pair[0].run("cat", f"/sys/class/net/{CABLE}/carrier").strip() == "1", what="carrier")
    row("wiring.cable", "spark1", "spark1", "spark2", is_it=lambda one: one["state"] != "failed")


def test_addresses_whose_netplan_file_is_gone_are_not_kept(pair: Pair) -> None:
    act("set-addresses", "spark1", "spark2")
    (file,) = (path for path in (pair[0].root / "etc/netplan").iterdir() if path.name != "01-lan.yaml")
    pair[0].run("rm", f"/etc/netplan/{file.name}")
    for node, state in (("spark1", "warning"), ("spark2", "passed")):
        row("addresses.kept", node, "spark1", "spark2", is_it=lambda one: one["state"] == state)  # noqa: B023


def test_a_user_without_any_right_is_offered_no_rule(spark: Machine) -> None:
    """sudo asks for the password before it looks whether the user may do anything."""
    (spark.root / "etc/sudoers.d/spark").unlink()
    spark.run("gpasswd", "--delete", "spark", "sudo")
    assert row("access.sudo", "spark1", "spark1", is_it=lambda one: one["state"] == "unknown")["remedies"] == []
