"""Every check of the bring-up on captured text: what it finds where all is well, where it is not, and where it can't
look."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.bringup_support import (
    ADDRESSES,
    BOTH,
    FIRMWARE,
    IMAGES,
    LOST,
    MISSING,
    Desk,
    Text,
    collective_run,
    contact,
    link_run,
    load,
    power_run,
    view,
)
from tests.pictures_support import GIB, engine, gib, gpu, link, memory
from tests.table import over
from tests.unit.bringup.endpoint_cases import ENDPOINT
from tests.unit.diagnose.rules.pair_support import fabric

from sparktop.bringup.card import Scope
from sparktop.bringup.catalogue import BY_ID, CARDS
from sparktop.checks.catalogue import CHECKS
from sparktop.checks.judgement import View
from sparktop.cli.commands import split
from sparktop.documents.bringup import typed
from sparktop.model.engine import EngineState
from sparktop.model.fleet import Contact, LinkState, LoginMethod, NodeView
from sparktop.model.state import State
from sparktop.model.survey import Answer, Privileges
from sparktop.model.telemetry import Collector, CollectorState, Disk, GpuReading, Interface, NetworkReading, Unit
from sparktop.operate.actions import ACTIONS
from sparktop.operate.step.run import Run, StepRun

PASSED, WARNING, FAILED, SKIPPED, UNKNOWN = State.PASSED, State.WARNING, State.FAILED, State.SKIPPED, State.UNKNOWN


class Given:
    """What spoils the two healthy Sparks: spark1's texts and view, or the desk's fields."""

    def __init__(self, texts: Mapping[str, Text] | None = None, first: NodeView | None = None, **desk: Any) -> None:
        self.texts, self.first, self.desk = dict(texts or {}), first, desk
        self.spoils: dict[str, dict[str, Text]] = {}

    def with_(self, **desk: Any) -> Given:
        self.desk |= desk
        return self

    def made(self) -> Desk:
        desk = Desk(texts={"spark1": self.texts, **self.spoils}, **self.desk)
        if self.first is not None:
            desk.views["spark1"] = self.first
        return desk


def on(name: str, text: Text, **desk: Any) -> Given:
    return Given({name: text}, **desk)


def spoilt(host: Mapping[str, Any] | None = None, **more: Any) -> Given:
    return Given(first=view(host=host, **more))


def measured_as(*loads: StepRun) -> Given:
    """Measured by a run with these steps."""
    return Given(runs=(link_run(*loads),))


def serving(*runs: Run) -> Given:
    """An engine serves on spark1, and these runs have measured it."""
    return Given(first=view(engines=(engine(),)), runs=runs)


NGINX_SITE = """/etc/nginx/sites-enabled/llm.example.org:    server 127.0.0.1:8000;
/etc/nginx/sites-enabled/llm.example.org:server {
/etc/nginx/sites-enabled/llm.example.org:    server_name llm.example.org;
"""
CADDY_SITE = """/etc/caddy/sparktop/llm.local.caddy:http://llm.local:8080 {
/etc/caddy/sparktop/llm.local.caddy:        reverse_proxy 127.0.0.1:8000 {
"""


def alone(said: Text) -> Given:
    """An engine that only spark1 reaches, and what the files of its proxies say."""
    local = engine(argv=("vllm", "serve", "--host", "127.0.0.1"))
    return Given({"grep -RsE": said}, view(engines=(local,)))


def under_unit(restart: str) -> Given:
    """A unit of this policy that runs an engine on spark1."""
    unit = Unit(name=f"{ENGINE.name}.service", active="active", restart=restart)
    other = Unit(name="else.service", active="active", restart="on-failure")
    return spoilt({"units": (other, unit)}, engines=(ENGINE,))


def tagged(image_id: str) -> Answer:
    return Answer(value=[{"Id": f"sha256:{image_id}", "RepoTags": ["vllm/vllm-openai:v0.21.0"]}])


def powered(*figures: Any, **more: Any) -> Given:
    return Given(runs=(power_run(*figures, **more),))


BOTH_FAST = load("bw-conflicting-cpu", "bw-conflicting-cpu")


ENGINE = engine()
LOADING = engine(state=EngineState.LOADING, endpoint=None)


def spoilt_unmeasured(**more: Any) -> Given:
    return Given(first=view(**more), runs=())


def wired(*interfaces: Interface) -> Given:
    made = fabric(1)
    return spoilt(network=replace(made, interfaces=interfaces))


def changed(interface: str, **more: Any) -> NetworkReading:
    """The healthy network with one interface changed."""
    made = fabric(1)
    return replace(
        made, interfaces=tuple(replace(one, **more) if one.name == interface else one for one in made.interfaces)
    )


def without(part: str, state: CollectorState) -> NodeView:
    made = view()
    return replace(
        made, collectors={**made.collectors, part: Collector(name=part, state=state, detail="not permitted")}
    )


def hot(temperature_c: int) -> Given:
    return spoilt(gpu=GpuReading(boot_s=0.0, gpus=(gpu(temp_c=temperature_c),)))


HEADER = "test -e /usr/include/python3.12/Python.h"
OTA = "busctl call com.nvidia.dgx"
SMI = "nvidia-smi"
CU_INIT = "python3 -I -S -c import ctypes"
GUARDS = "systemctl is-active earlyoom.service systemd-oomd.service"
ROUTE = "ip -j route show default"
BY_HAND = {
    "Name": "enp1s0f0np0",
    "NetworkFile": "/run/systemd/network/10-netplan-enp1s0f0np0.network",
    "Addresses": [{"Family": 2, "Address": [10, 0, 0, 1], "ConfigSource": "foreign"}],
}
"""As systemd 257 says it of `ip address add` on a port that netplan declares without an address."""
DROPS = "grep -sH . -- /sys/class/net"
NO_GPU = {"gpu": GpuReading(boot_s=0.0, gpus=())}
UNREAD_NETWORK = {"network": None}


def met(state: LinkState = LinkState.LIVE, **more: Any) -> Given:
    """The first contact went so."""
    return spoilt(link=link(state, contact=contact(**more)))


def three(*hears: tuple[str, str]) -> Given:
    """Three Sparks, each of which hears on port 0 this machine at this port."""
    names = ("spark1", "spark2", "spark3")
    made = Given(views={name: view(name) for name in names})
    made.spoils = {
        name: {"lldpctl": json.dumps({"lldp": [{"interface": [
            {"name": "enp1s0f0np0", "chassis": [{"name": [{"value": machine}]}],
             "port": [{"descr": [{"value": port}]}]}]}]})}
        for name, (machine, port) in zip(names, hears, strict=True)
    }  # fmt: skip
    return made


CASES: list[tuple[str, State, str, Given]] = [
    # (check, state, a part of what it says, what spoils it)
    ("reach.name", FAILED, "mDNS", met(LinkState.LOST, addresses=(), answered="", is_unknown_name=True)),
    (
        "reach.name",
        FAILED,
        "the name service knows no spark1",
        met(LinkState.LOST, host="spark1", addresses=(), answered="", is_unknown_name=True),
    ),
    ("reach.name", FAILED, "IPv6 addresses alone", met(LinkState.LOST, addresses=("fe80::1",), answered="")),
    ("reach.name", WARNING, "192.168.20.99 is another", met(addresses=("192.168.20.21", "192.168.20.99"))),
    ("reach.name", WARNING, "calls itself spark1-host", met(host="spark1-host-2.local")),
    ("reach.name", PASSED, "IPv6 addresses alone", met(addresses=("fe80::1",), answered="fe80::1")),
    ("reach.name", PASSED, "by bastion", met(via="bastion")),
    ("reach.name", PASSED, "an address, no name", met(host="192.168.20.21")),
    ("reach.name", SKIPPED, "this machine itself", spoilt(link=link(contact=Contact()))),
    ("reach.name", UNKNOWN, "gave no answer", met(LinkState.LOST, addresses=(), answered="")),
    ("reach.login", WARNING, "by a password", met(login=LoginMethod.PASSWORD)),
    ("reach.login", WARNING, "no key on this machine", met(login=LoginMethod.PASSWORD).with_(keys=())),
    ("reach.login", UNKNOWN, "nobody has logged in", met(LinkState.REFUSED, login=LoginMethod.NONE)),
    ("reach.ssh", FAILED, "connection refused", spoilt(link=link(LinkState.LOST, reason="connection refused"))),
    ("reach.path", WARNING, "Wi-Fi", Given(first=view(network=changed("enP7s7", name="wlP9s9x")))),
    ("reach.path", WARNING, "the cable", on("printenv SSH_CONNECTION", "10.0.0.9 51022 10.0.0.1 22\n")),
    ("reach.path", PASSED, "loopback", on("printenv SSH_CONNECTION", "127.0.0.1 51022 127.0.0.1 22\n")),
    ("reach.path", UNKNOWN, "ended with 1", on("printenv SSH_CONNECTION", 1)),
    ("reach.clock", UNKNOWN, "no sample", spoilt(sample=None)),
    ("identity.product", WARNING, "Standard PC", spoilt({"product": "Standard PC"})),
    ("identity.product", UNKNOWN, "not read", spoilt({"product": None})),
    ("identity.name", WARNING, "spark1-host-2.local", on("busctl call org.freedesktop.Avahi", 's "spark1-host-2"')),
    ("identity.name", PASSED, "publishes no name", on("busctl call org.freedesktop.Avahi", MISSING)),
    ("identity.name", UNKNOWN, "not read", spoilt(facts=None)),
    ("identity.clones", FAILED, "one machine id", spoilt({"machine_id_digest": "machine-spark2"})),
    ("identity.clones", FAILED, "one machine under two names", spoilt({"boot_id": "boot-of-spark2"})),
    ("identity.clones", WARNING, "one host name", spoilt({"hostname": "spark2-host"})),
    ("identity.clones", UNKNOWN, "an id was not read", spoilt({"machine_id_digest": None})),
    ("identity.user", WARNING, "nvidia (1000) on spark1, spark (1000) on spark2", spoilt({"user": "nvidia"})),
    ("identity.user", PASSED, "spark (1001) on spark1", spoilt({"user_id": 1001})),
    ("identity.user", UNKNOWN, "a user was not read", spoilt({"user": ""})),
    ("release.os", SKIPPED, "not DGX OS", spoilt({"dgx_release": None})),
    ("release.os", UNKNOWN, "not read", spoilt(facts=None)),
    (
        "release.ota",
        WARNING,
        "July 2026 is out",
        on(OTA, 'ssbbs "ready" "2026-09-05T10:33:15+03:00" true true "July 2026"'),
    ),
    ("release.ota", UNKNOWN, "cache-pending", on(OTA, 'ssbbs "cache-pending" "" false false ""')),
    ("release.ota", UNKNOWN, "ended with 1", on(OTA, 1)),
    ("release.ota", UNKNOWN, "not read", on(OTA, 'ssbbs "ready')),
    (
        "release.reboot",
        WARNING,
        "a reboot is due for linux-base, libc6",
        Given(
            {
                "/run/reboot-required": "*** System restart required ***\n",
                "/run/reboot-required.pkgs": "linux-base\nlibc6\n",
            }
        ),
    ),
    ("release.reboot", UNKNOWN, "ended with 1", on("/run/reboot-required", 1)),
    ("release.driver", WARNING, "590.44", spoilt({"driver_version": "590.44"})),
    ("release.driver", WARNING, "waits for a reboot", spoilt({"driver_installed": "580.178.04"})),
    ("release.driver", UNKNOWN, "not known", spoilt({"driver_version": None}, **NO_GPU)),
    (
        "release.next-kernel",
        WARNING,
        "has no NVIDIA module",
        spoilt({"kernel_next": "7.0.0-1019-nvidia", "kernel_next_has_driver": False}),
    ),
    ("release.next-kernel", UNKNOWN, "was not read", spoilt({"kernel_next": "7.0.0-1019-nvidia"})),
    ("release.firmware", WARNING, "NVIDIA DGX Spark EC 0x02000006", on("fwupdmgr get-updates", FIRMWARE)),
    ("release.firmware", SKIPPED, "not installed", on("fwupdmgr get-updates", MISSING)),
    ("release.firmware", UNKNOWN, "ended with 1", on("fwupdmgr get-updates", 1)),
    (
        "release.held",
        PASSED,
        "held back: linux-image-nvidia-hwe-24.04",
        on("apt-mark showhold", "linux-image-nvidia-hwe-24.04\n"),
    ),
    ("release.held", UNKNOWN, "no program", on("apt-mark showhold", MISSING)),
    ("machine.gpu", FAILED, "No devices were found", Given({SMI: (6, "No devices were found\n")}, view(**NO_GPU))),
    ("machine.gpu", FAILED, "No devices were found", Given({SMI: "No devices were found\n"}, view(**NO_GPU))),
    ("machine.gpu", FAILED, "there is no nvidia-smi", Given({SMI: MISSING}, view(**NO_GPU))),
    ("machine.gpu", UNKNOWN, "ended with 124", Given({SMI: 124}, view(**NO_GPU))),
    ("machine.cuda", FAILED, "no CUDA program can use it", on(CU_INIT, "100\n")),
    ("machine.cuda", FAILED, "cuInit(0) = 999", on(CU_INIT, "999\n")),
    ("machine.cuda", FAILED, "there is no libcuda", on(CU_INIT, "missing\n")),
    ("machine.cuda", UNKNOWN, "ended with 124", on(CU_INIT, 124)),
    ("machine.memory", FAILED, "63.0 GiB", spoilt(memory=replace(memory(60.0), total_bytes=gib(63)))),
    ("machine.memory", UNKNOWN, "no sample", spoilt(sample=None)),
    (
        "machine.hidden-memory",
        WARNING,
        "9.3 GiB free to the kernel alone",
        spoilt({"kernel": "7.0.0-1019-nvidia"}, memory=memory(107.0, cma_total_bytes=0, cma_free_bytes=int(9.3 * GIB))),
    ),
    (
        "machine.hidden-memory",
        PASSED,
        "holds none back",
        spoilt(memory=memory(116.0, cma_total_bytes=131072 * 1024, cma_free_bytes=4096)),
    ),
    ("machine.hidden-memory", UNKNOWN, "does not report", spoilt(memory=memory(116.0, cma_total_bytes=None))),
    ("machine.heat", WARNING, "87 °C", hot(87)),
    ("machine.heat", FAILED, "93 °C", hot(93)),
    ("machine.heat", PASSED, "56 °C", hot(56)),
    ("machine.heat", UNKNOWN, "not read", spoilt(**NO_GPU)),
    (
        "machine.disk",
        FAILED,
        "free on /",
        spoilt({"disks": (Disk(mount="/", total_bytes=gib(900), free_bytes=gib(1)),)}),
    ),
    (
        "machine.disk",
        PASSED,
        "700.0 GiB of 900.0 GiB",
        spoilt({"disks": (Disk(mount="/", total_bytes=gib(900), free_bytes=gib(700)),)}),
    ),
    ("machine.disk", UNKNOWN, "not read", spoilt({"disks": ()})),
    ("machine.headers", WARNING, "/usr/include/python3.12/Python.h is missing", on(HEADER, 1)),
    ("machine.headers", UNKNOWN, "no program", on("python3 -I -S -c import sysconfig", MISSING)),
    ("machine.crash-dumps", SKIPPED, "apport", on("/proc/sys/kernel/core_pattern", "|/usr/share/apport/apport -p%p\n")),
    ("machine.crash-dumps", UNKNOWN, "not read", on("/proc/sys/kernel/core_pattern", None)),
    ("access.kernel-log", WARNING, "not permitted", Given(first=without("kernel", CollectorState.DENIED))),
    ("access.kernel-log", UNKNOWN, "not read", spoilt(collectors={})),
    (
        "access.docker",
        FAILED,
        "this session is older",
        Given(
            {"id -nG": "spark adm\n", "id -nG spark": "spark adm docker\n"},
            privileges=Privileges(user="spark", docker="denied", sudo="password"),
        ),
    ),
    (
        "access.docker",
        FAILED,
        "may not use Docker",
        Given({"id -nG": "spark adm\n"}, privileges=Privileges(user="spark", docker="denied")),
    ),
    ("access.docker", FAILED, "no Docker Engine", Given(privileges=Privileges(user="spark", docker="missing"))),
    (
        "access.gpu-runtime",
        FAILED,
        "can't hand out the GPU",
        Given({"nvidia-ctk --version": MISSING}, info={"ServerVersion": "29.6.2", "Runtimes": {"runc": {}}}),
    ),
    ("access.gpu-runtime", WARNING, "no CDI device", Given(info={"ServerVersion": "29.6.2", "Runtimes": {"runc": {}}})),
    ("access.gpu-runtime", UNKNOWN, "not known", Given(info=None)),
    ("access.cdi", FAILED, "no CDI device", on("nvidia-ctk cdi list", "")),
    ("access.cdi", FAILED, "no nvidia-ctk", on("nvidia-ctk cdi list", MISSING)),
    ("access.cdi", UNKNOWN, "ended with 1", on("nvidia-ctk cdi list", 1)),
    (
        "access.sudo",
        WARNING,
        "sudo is denied",
        Given(privileges=Privileges(user="spark", docker="open", sudo="denied")),
    ),
    (
        "access.sudo",
        PASSED,
        "for every command",
        Given(privileges=Privileges(user="spark", docker="open", sudo="free")),
    ),
    (
        "access.sudo",
        UNKNOWN,
        "in no group",
        Given({"id -nG": "plain docker\n"}, privileges=Privileges(user="plain", docker="open", sudo="password")),
    ),
    ("access.sudo", PASSED, "logged in as root", Given(privileges=Privileges(is_root=True, docker="open"))),
    ("access.linger", WARNING, "does not linger", spoilt({"is_lingering": False, "removes_ipc": True})),
    ("access.linger", UNKNOWN, "not read", spoilt({"is_lingering": None})),
    ("access.memlock", WARNING, "8 MiB", on("prlimit", "8388608\n")),
    ("access.memlock", UNKNOWN, "no program", on("prlimit", MISSING)),
    ("access.restart", PASSED, "Restart=always", under_unit("always")),
    ("access.restart", WARNING, "Restart=on-failure", under_unit("on-failure")),
    ("access.restart", UNKNOWN, "was not read", under_unit("")),
    ("access.restart", PASSED, "no unit", Given()),
    ("memory.rest", WARNING, "94.0 GiB available without an engine", spoilt(available_gib=94.0)),
    ("memory.rest", SKIPPED, "not at rest", spoilt(engines=None, available_gib=27.0)),
    ("memory.rest", UNKNOWN, "no sample", spoilt(sample=None)),
    ("memory.habits", PASSED, "swap 16.0 GiB, out-of-memory daemon none, no desktop", Given()),
    (
        "memory.habits",
        PASSED,
        "earlyoom, desktop",
        Given({GUARDS: (3, "active\ninactive\n")}, view(host={"is_graphical": True})),
    ),
    ("memory.habits", UNKNOWN, "no sample", Given(first=replace(view(), sample=None))),
    (
        "tools.programs",
        SKIPPED,
        "missing: ib_write_bw",
        on("which", (1, "/usr/sbin/lldpctl\n/usr/sbin/ethtool\n/usr/bin/rsync\n/usr/bin/prlimit\n")),
    ),
    ("tools.programs", UNKNOWN, "no program", on("which", MISSING)),
    ("wiring.cable", FAILED, "no ConnectX-7 interface", wired(Interface(name="enP7s7", is_up=True))),
    (
        "wiring.cable",
        FAILED,
        "no carrier",
        wired(Interface(name="enp1s0f0np0", is_up=False), Interface(name="enP2p1s0f0np0", is_up=False)),
    ),
    (
        "wiring.cable",
        WARNING,
        "one half only: enp1s0f0np0",
        wired(Interface(name="enp1s0f0np0", is_up=True), Interface(name="enP2p1s0f0np0", is_up=False)),
    ),
    (
        "wiring.cable",
        FAILED,
        "switched off: enp1s0f0np0",
        Given(
            {"ip -j link show": '[{"ifname":"enp1s0f0np0","flags":["BROADCAST"]}]'},
            view(network=replace(fabric(1), interfaces=(Interface(name="enp1s0f0np0", is_up=False),))),
        ),
    ),
    ("wiring.cable", UNKNOWN, "not read", spoilt(**UNREAD_NETWORK)),
    ("wiring.neighbours", SKIPPED, "not installed", on("lldpctl", MISSING)),
    ("wiring.neighbours", SKIPPED, "no other machine", on("lldpctl", '{"lldp":[{}]}')),
    ("wiring.neighbours", UNKNOWN, "ended with 1", on("lldpctl", 1)),
    (
        "wiring.drops",
        WARNING,
        "lost its carrier 21 times",
        on(DROPS, "/sys/class/net/enp1s0f0np0/carrier_down_count:21\n"),
    ),
    ("wiring.shape", PASSED, "switch: sw ← spark1 0, spark2 0, spark3 0", three(*(("sw", "q1"),) * 3)),
    ("wiring.shape", WARNING, "no ring, and not all on one switch", three(("sw", "q1"), ("sw", "q2"), ("sw2", "q1"))),
    ("wiring.shape", SKIPPED, "a pair", Given({"lldpctl": MISSING})),
    ("wiring.shape", UNKNOWN, "heard by spark3", three(("sw", "q1"), ("sw", "q2"), ("spark3-host", "x"))),
    ("wiring.drops", SKIPPED, "no cable", spoilt(network=fabric(1, up=False))),
    ("wiring.drops", UNKNOWN, "no counter", on(DROPS, 1)),
    (
        "addresses.plan",
        FAILED,
        "spark1 have no address",
        wired(Interface(name="enp1s0f0np0", is_up=True), Interface(name="enP2p1s0f0np0", is_up=True)),
    ),
    ("addresses.plan", FAILED, "in one network", spoilt(network=changed("enP2p1s0f0np0", addresses=("10.0.0.7/24",)))),
    (
        "addresses.plan",
        FAILED,
        "no network is common",
        wired(Interface(name="enp1s0f0np0", is_up=True, addresses=("10.9.0.1/24",))),
    ),
    (
        "addresses.plan",
        WARNING,
        "enP2p1s0f0np0 of spark1 has no peer",
        spoilt(network=changed("enP2p1s0f0np0", addresses=("10.9.1.1/24",))),
    ),
    ("addresses.plan", SKIPPED, "no cable is up on spark1", spoilt(network=fabric(1, up=False))),
    ("addresses.jumbo", WARNING, "MTU 1500", spoilt(network=fabric(1, mtu=1500))),
    (
        "addresses.jumbo",
        UNKNOWN,
        "no MTU",
        spoilt(
            network=replace(
                fabric(1), interfaces=(Interface(name="enp1s0f0np0", is_up=True, addresses=("10.0.0.1/24",)),)
            )
        ),
    ),
    ("addresses.mtu", SKIPPED, "no cable is up on spark1", spoilt(network=fabric(1, up=False))),
    ("addresses.mtu", WARNING, "1500 on spark1", spoilt(network=fabric(1, mtu=1500))),
    ("addresses.ping", FAILED, "not with those of 9000", on("ping -c1 -W1 -n -M", (1, LOST))),
    (
        "addresses.ping",
        FAILED,
        "does not reach",
        Given({"ping": (1, LOST), "python3 -I -S -c import socket": "failed: No route to host\n"}),
    ),
    ("addresses.ping", UNKNOWN, "not known", Given({"ping": MISSING, "python3 -I -S -c import socket": MISSING})),
    (
        "addresses.route",
        FAILED,
        "no internet",
        on(ROUTE, '[{"dev":"enp1s0f0np0","metric":50},{"dev":"enP7s7","metric":100}]'),
    ),
    (
        "addresses.route",
        WARNING,
        "second default route",
        on(ROUTE, '[{"dev":"enP7s7","metric":100},{"dev":"enp1s0f0np0","metric":101}]'),
    ),
    ("addresses.route", PASSED, "no default route", on(ROUTE, "[]")),
    ("addresses.route", UNKNOWN, "ended with 1", on(ROUTE, 1)),
    (
        "addresses.kept",
        WARNING,
        "DHCP lease",
        on("ip -j -4 address show", ADDRESSES.replace('"prefixlen":24', '"dynamic":true,"prefixlen":24')),
    ),
    ("addresses.kept", FAILED, "no configuration declares", on("nmcli", "enP7s7:yes:/etc/x\n")),
    (
        "addresses.kept",
        FAILED,
        "no configuration declares",
        Given({"nmcli": MISSING, "networkctl": json.dumps({"Interfaces": [BY_HAND]})}),
    ),
    ("addresses.kept", WARNING, "changed since", on("find /etc/netplan -newer", "/etc/netplan\n")),
    ("addresses.kept", UNKNOWN, "was not read", on("find /etc/netplan -newer", MISSING)),
    ("addresses.kept", SKIPPED, "no address", wired(Interface(name="enp1s0f0np0", is_up=True))),
    ("addresses.kept", UNKNOWN, "was not read", Given({"nmcli": MISSING, "networkctl": MISSING})),
    (
        "addresses.ssh",
        WARNING,
        "its key is not accepted",
        on("ssh", (255, "", "spark@10.0.0.2: Permission denied (publickey).")),
    ),
    ("addresses.ssh", WARNING, "is not recorded", on("ssh", (255, "", "Host key verification failed."))),
    (
        "addresses.ssh",
        WARNING,
        "No route to host",
        on("ssh", (255, "", "ssh: connect to host 10.0.0.2 port 22: No route to host")),
    ),
    ("addresses.ssh", UNKNOWN, "not tried", on("ssh", MISSING)),
    ("rdma.link", FAILED, "without RDMA", spoilt(network=replace(fabric(1), rdma_ports=()))),
    ("rdma.link", SKIPPED, "no addresses yet", wired(Interface(name="enp1s0f0np0", is_up=True))),
    ("rdma.link", UNKNOWN, "has not been read", spoilt(**UNREAD_NETWORK)),
    ("rdma.rate", WARNING, "at 100 Gb/s", spoilt(network=fabric(1, rate=100.0))),
    (
        "rdma.devices",
        WARNING,
        "has no address in a network of spark1",
        spoilt(network=replace(fabric(1), rdma_ports=fabric(1).rdma_ports[:2])),
    ),
    (
        "rdma.gid",
        WARNING,
        "no RoCE v2 entry",
        spoilt(
            network=replace(
                fabric(1),
                rdma_ports=tuple(replace(port, roce_v2_gids=((3, "10.0.0.77"),)) for port in fabric(1).rdma_ports),
            )
        ),
    ),
    ("parity.driver", WARNING, "spark1 580.95.05, spark2 580.142", spoilt({"driver_version": "580.95.05"})),
    ("parity.driver", UNKNOWN, "not known on spark1", spoilt({"driver_version": None}, **NO_GPU)),
    ("parity.kernel", WARNING, "7.0.0-1019-nvidia", spoilt({"kernel": "7.0.0-1019-nvidia"})),
    ("parity.dgx-os", PASSED, "differs", spoilt({"dgx_release": "7.5.0"})),
    ("parity.vbios", PASSED, "9A.0B.2D", on(SMI, "NVIDIA GB10, 580.142, 9A.0B.2D.00.01\n")),
    ("parity.dgx-spark-ota-update-meta", WARNING, "26.02.1", on("dpkg-query", "26.02.1")),
    ("parity.docker", UNKNOWN, "not known on spark1", Given(info=None)),
    (
        "parity.container-toolkit",
        PASSED,
        "differs",
        on("nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.18.0\n"),
    ),
    (
        "parity.swap",
        WARNING,
        "spark1 none, spark2 16.0 GiB",
        spoilt(memory=memory(116.0, cma_total_bytes=131072 * 1024, cma_free_bytes=4096, swap_total_bytes=0)),
    ),
    ("parity.out-of-memory-daemon", WARNING, "spark1 earlyoom, spark2 none", on(GUARDS, (3, "active\ninactive\n"))),
    ("parity.locked-memory", WARNING, "8388608", on("prlimit", "8388608\n")),
    (
        "parity.kernel-command-line",
        WARNING,
        "kho=off",
        on("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=2 quiet kho=off"),
    ),
    ("parity.jit-caches", WARNING, "spark1 none, spark2 ~/.cache/flashinfer", on("python3 -I -S -c import os", "")),
    ("parity.jit-caches", UNKNOWN, "not known on spark1", on("python3 -I -S -c import os", MISSING)),
    (
        "parity.images",
        WARNING,
        "vllm/vllm-openai:v0.21.0 is of another build: spark1 aa, spark2 3f1c9a04d2be",
        Given(images={"spark1": tagged("aa"), "spark2": Answer(value=IMAGES)}),
    ),
    ("parity.images", PASSED, "no serving image is on all", Given(images={"": Answer(value=[])})),
    ("parity.images", UNKNOWN, "not listed on spark1 and spark2", Given(images={"": Answer(problem="away")})),
    ("parity.python-headers", WARNING, "spark1 missing, spark2 there", on(HEADER, 1)),
    # power
    ("machine.power", FAILED, "611 MHz at 12 W under load: its power delivery is stuck", powered(611, 12.4)),
    ("machine.power", FAILED, "611 MHz under load: its power delivery is stuck", powered(611, None)),
    ("machine.power", WARNING, "1100 MHz at 55 W under load: heat slows it down", powered(1100, 55.0, temp_c=86)),
    ("machine.power", WARNING, "heat slows it down", powered(1100, 55.0, throttle_reasons=("sw thermal slowdown",))),
    ("machine.power", WARNING, "it draws power, and stays slow", powered(1200, 60.0)),
    ("machine.power", UNKNOWN, "not measured yet", powered(611, 12.4, 40.0)),
    ("machine.power", UNKNOWN, "not measured yet", powered(log="libcublas.so.13: cannot open shared object file")),
    ("machine.power", UNKNOWN, "not measured yet", Given(runs=())),
    ("machine.power", SKIPPED, "no cuBLAS is there", on("find -L /usr/local/cuda/lib64", "", runs=())),
    # bandwidth
    (
        "bandwidth.half",
        FAILED,
        "12.9 Gb/s over rocep1s0f0, spark2 to spark1: everything is green, and it is slow",
        measured_as(load("bw-half"), load("bw-slow", back=True)),
    ),
    (
        "bandwidth.half",
        WARNING,
        "92.6 Gb/s over rocep1s0f0, spark1 to spark2: small packets cost it",
        measured_as(load("bw-mtu1024")),
    ),
    ("bandwidth.half", FAILED, "it did not go over RDMA", measured_as(load("bw-half", counted=0.0))),
    ("bandwidth.half", PASSED, "counters were not read", measured_as(load("bw-half", counted=None))),
    (
        "bandwidth.half",
        WARNING,
        "another half has no figure: nothing was measured: Couldn't connect to 10.0.0.2:18515",
        measured_as(load("bw-half"), load("bw-no-server", back=True)),
    ),
    ("bandwidth.half", UNKNOWN, "not measured yet", Given(runs=())),
    ("bandwidth.half", UNKNOWN, "not measured yet", measured_as(load("bw-other-language"))),
    ("bandwidth.half", SKIPPED, "spark1 has no ib_write_bw", on("which", (1, "/usr/sbin/lldpctl\n"), runs=())),
    ("bandwidth.half", SKIPPED, "RDMA doesn't lead", spoilt_unmeasured(network=replace(fabric(1), rdma_ports=()))),
    ("bandwidth.both", FAILED, "25.7 Gb/s over both halves", measured_as(load("bw-slow", "bw-slow"))),
    (
        "bandwidth.both",
        WARNING,
        "104.7 Gb/s over both halves, spark1 to spark2: below what is healthy",
        measured_as(load("bw-half-share", "bw-half-share")),
    ),
    ("bandwidth.both", UNKNOWN, "not measured yet", Given(runs=())),
    (
        "bandwidth.latency",
        WARNING,
        "13.12 µs, 99 % within 15.02, rocep1s0f0",
        measured_as(load("lat-slow", latency=True)),
    ),
    ("bandwidth.latency", PASSED, "1.44 µs, rocep1s0f0", measured_as(load("lat-duration", latency=True))),
    ("bandwidth.latency", UNKNOWN, "not measured yet", Given(runs=())),
    # collective
    (
        "collective.all-reduce",
        FAILED,
        "16.4 Gb/s over Socket: NCCL found no RDMA device in the container",
        Given(runs=(collective_run("socket"),)),
    ),
    (
        "collective.all-reduce",
        FAILED,
        "24.2 Gb/s over IB: whether the cable alone is fast was not measured",
        Given(runs=(collective_run("slow"),)),
    ),
    (
        "collective.all-reduce",
        FAILED,
        "24.2 Gb/s over IB: the cable itself carries only 26 Gb/s",
        Given(runs=(collective_run("slow", load("bw-slow", "bw-slow")),)),
    ),
    (
        "collective.all-reduce",
        FAILED,
        "so the fault is on the GPUs' side",
        Given(runs=(collective_run("slow", BOTH_FAST),)),
    ),
    (
        "collective.all-reduce",
        FAILED,
        "a ping takes 1.02 ms instead of 0.28",
        Given(runs=(collective_run("slow", replace(BOTH_FAST, figures={**BOTH_FAST.figures, "rtt_ms": 1.016})),)),
    ),
    ("collective.all-reduce", FAILED, "the RDMA ports did not count it", Given(runs=(collective_run("elsewhere"),))),
    ("collective.all-reduce", PASSED, "not every witness was read", Given(runs=(collective_run("uncounted"),))),
    ("collective.all-reduce", UNKNOWN, "not measured yet", Given(runs=())),
    ("collective.all-reduce", UNKNOWN, "not measured yet", Given(runs=(collective_run("no-torch"),))),
    ("endpoint.served", PASSED, "vllm-qwen36 serves Qwen/Qwen3.6-35B-A3B-FP8", serving()),
    ("endpoint.reach", PASSED, "other machines reach port 8000", serving()),
    (
        "endpoint.reach",
        PASSED,
        "only spark1 reaches port 8000",
        spoilt(engines=(engine(argv=("vllm", "serve", "--host", "127.0.0.1")),)),
    ),
    ("endpoint.reach", PASSED, "llm.example.org leads to it", alone(NGINX_SITE)),
    ("endpoint.reach", PASSED, "llm.local leads to it", alone((2, CADDY_SITE))),
    ("endpoint.reach", PASSED, "only spark1 reaches port 8000", alone(NGINX_SITE.replace(":8000", ":30000"))),
    ("endpoint.served", UNKNOWN, "vllm-qwen36 is loading", spoilt(engines=(LOADING,))),
    ("endpoint.reach", SKIPPED, "it has no endpoint yet: it is loading", spoilt(engines=(LOADING,))),
    ("endpoint.served", SKIPPED, "no engine runs yet", Given()),
    *((check, state, part, serving(run)) for check, state, part, run in ENDPOINT),
    *(
        (card.id, UNKNOWN, "not measured yet", serving())
        for card in CARDS
        if card.scope is Scope.ENGINE and card.measured_by
    ),
]


@over("check, state, part, given", CASES, ids=[f"{row[0]}-{row[1]}-{row[2]}" for row in CASES])
def test_a_check_finds(check: str, state: State, part: str, given: Given) -> None:
    rows = given.made().rows(check)
    row = next(row for row in rows if "spark1" in row.nodes)
    assert (row.state, part in row.found) == (state, True), row.found
    if state in (WARNING, FAILED):
        assert row.remedies, "what is wrong has a remedy"


def test_every_command_of_sparktop_that_a_row_offers_is_one() -> None:
    typed_lines = {
        line
        for check, _, _, given in CASES
        for row in given.made().rows(check)
        for remedy in row.remedies
        for line in (*remedy.steps, *((typed(remedy, row),) if remedy.action else ()))
        if line.startswith("sparktop ")
    }
    actions = {action.name for action in ACTIONS}
    assert len(typed_lines) > 20
    for line in typed_lines:
        command, words = split(shlex.split(line, comments=True)[1:])
        try:
            parsed = command.arguments().parse_args(words)
        except SystemExit as error:
            raise AssertionError(f"{line} is no command: {error}") from error
        if command.name == "act":
            assert parsed.action in actions, line


def remedy_of(check: str, given: Given) -> tuple[str | None, tuple[str, ...]]:
    row = next(row for row in given.made().rows(check) if "spark1" in row.nodes)
    return row.remedies[0].action, row.remedies[0].steps


def test_addresses_that_somebody_set_are_never_rewritten_by_an_action() -> None:
    bare = wired(Interface(name="enp1s0f0np0", is_up=True), Interface(name="enP2p1s0f0np0", is_up=True))
    assert remedy_of("addresses.plan", bare) == ("set-addresses", ())
    for address, wanted in (("10.0.0.7/24", "enP2p1s0f0np0"), ("10.9.1.1/24", "enP2p1s0f0np0")):
        action, steps = remedy_of("addresses.plan", spoilt(network=changed("enP2p1s0f0np0", addresses=(address,))))
        assert action is None
        assert steps[0].startswith("on spark1: sudo netplan set --origin-hint 40-cx7 ")
        assert f"{wanted}.addresses=[ADDRESS/24]" in steps[0]


def test_addresses_that_work_are_declared_as_they_are() -> None:
    _, steps = remedy_of("addresses.kept", on("nmcli", "enP2p1s0f0np0:yes:/etc/x\n"))
    assert steps == (
        "on spark1: sudo netplan set --origin-hint 40-cx7 'ethernets.enp1s0f0np0.addresses=[10.0.0.1/24]'",
        "on spark1: sudo netplan set --origin-hint 40-cx7 ethernets.enp1s0f0np0.dhcp4=false",
        "on spark1: sudo netplan try   # returns to what was, unless you press Enter",
    )


def test_two_healthy_sparks_pass_every_check() -> None:
    wrong = [(row.check, row.nodes, row.found) for row in Desk().rows() if row.state is not PASSED]
    assert wrong == [("endpoint.served", (node,), "no engine runs yet") for node in BOTH]


def test_every_check_is_seen_failing_and_unable_to_look() -> None:
    seen = {check: {state for name, state, _, _ in CASES if name == check} for check in BY_ID}
    never_wrong = {check for check, states in seen.items() if not states & {WARNING, FAILED}}
    # these tell what is there, and judge nothing
    assert never_wrong == {
        "reach.clock", "release.os", "release.held", "machine.crash-dumps", "memory.habits", "tools.programs",
        "wiring.neighbours", "parity.dgx-os", "parity.vbios", "parity.docker", "parity.container-toolkit",
        "endpoint.served", "endpoint.reach",
    }  # fmt: skip
    assert {name for name, _, _, _ in CASES} == set(BY_ID)


def test_every_judgement_that_is_shown_here_has_its_card() -> None:
    assert {name for check in CHECKS if (name := check.views.get(View.BRING_UP))} <= set(BY_ID)
    assert len(BY_ID) == len(CARDS)


def test_a_node_that_is_not_reached_is_told_by_all_chapters_but_the_first() -> None:
    desk = spoilt(link=link(LinkState.LOST, reason="no route")).made()
    rows = [row for row in desk.rows() if "spark1" in row.nodes]
    assert {row.state for row in rows if not row.check.startswith("reach.")} == {State.UNREACHED}
    assert not [ask for ask in desk.asked if ask.node == "spark1"]


def test_one_spark_needs_no_cable() -> None:
    desk = spoilt(network=replace(fabric(1), interfaces=(), rdma_ports=())).made()
    del desk.views["spark2"]
    assert {row.state for row in desk.rows() if row.chapter in ("wiring", "addresses", "rdma", "parity")} <= {
        PASSED,
        SKIPPED,
    }


def ring_of_three(*, bare: str = "") -> Desk:
    """Three Sparks in a ring, each cable with two networks; one may have no addresses."""
    names = ("spark1", "spark2", "spark3")
    desk = Desk(views={})
    for number, name in enumerate(names):
        rows, ends = [], []
        for port, (cable, other) in enumerate(((number, (number + 1) % 3), ((number - 1) % 3, number - 1))):
            for half in ("", "P2"):
                address = f"192.168.{100 + 2 * cable + bool(half)}.1{number}/24"
                made = Interface(name=f"en{half}p1s0f{port}np{port}", is_up=True, mtu=9000)
                rows.append(replace(made, addresses=() if name == bare else (address,)))
                far = f"en{half}p1s0f{1 - port}np{1 - port}"
                chassis = [{"name": [{"value": f"{names[other]}-host"}]}]
                ends.append({"name": made.name, "chassis": chassis, "port": [{"descr": [{"value": far}]}]})
        desk.views[name] = view(name, network=replace(fabric(1), interfaces=tuple(rows), rdma_ports=()))
        desk.texts[name] = {"lldpctl": json.dumps({"lldp": [{"interface": ends}]})}
    return desk


def test_a_ring_is_drawn_and_each_cable_judged_by_its_own_two_ends() -> None:
    desk = ring_of_three()
    (shape,) = desk.rows("wiring.shape")
    assert (shape.state, shape.found) == (PASSED, "ring: spark1 0→1 spark2 0→1 spark3 0→1 spark1")
    assert [row.state for row in desk.rows("addresses.plan")] == [PASSED] * 3
    bare = ring_of_three(bare="spark2").rows("addresses.plan")
    assert [row.state for row in bare] == [FAILED, PASSED, FAILED]
    assert "set-addresses spark1 spark2 spark3" in bare[0].remedies[0].steps[0]


@over("name", BOTH)
def test_text_of_a_node_is_one_masked_line(name: str) -> None:
    hostile = "linux\x1b[2J-image sshpass -p hunter2 [/red]"
    row = next(
        row for row in Desk(texts={name: {"apt-mark showhold": hostile}}).rows("release.held") if name in row.nodes
    )
    assert "\x1b" not in row.found
    assert "\n" not in row.found


def test_a_fault_of_one_check_is_that_row_s_alone() -> None:
    desk = Desk(info={"ServerVersion": 3, "Runtimes": {"runc": {}}, "DiscoveredDevices": 7})
    rows = {row.check: row for row in desk.rows() if row.nodes == ("spark1",)}
    assert rows["access.gpu-runtime"].state is UNKNOWN
    assert rows["access.cdi"].state is PASSED
