"""Two unpacked Sparks that answer the bring-up's questions from texts of real machines (docs/facts/bringup.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.golden import CASES
from tests.pictures_support import WALL_S, facts, gib, gpu, idle_node, link, memory, picture
from tests.unit.diagnose.rules.pair_support import fabric

from sparktop.bringup.card import NO_PROGRAM
from sparktop.bringup.catalogue import CARDS, measured
from sparktop.bringup.looking import run_checks
from sparktop.model.bringup import Chapter, CheckResult, Key
from sparktop.model.fleet import Contact, FleetState, LoginMethod, NodeView
from sparktop.model.request import Request, Risk
from sparktop.model.survey import (
    Answer,
    DockerGet,
    FileText,
    OperatorKeys,
    Output,
    Privileges,
    PrivilegesQuestion,
    PublicKey,
    Question,
)
from sparktop.model.telemetry import Disk
from sparktop.operate.container.inspected import image_path
from sparktop.operate.measure.all_reduce import parse_collective
from sparktop.operate.measure.collective_run import MeasureCollective, collective_result
from sparktop.operate.measure.gpu_load import parse_load
from sparktop.operate.measure.link_load import MeasureLink, bandwidth_result, latency_result
from sparktop.operate.measure.perftest import Half, parse_bandwidth, parse_latency
from sparktop.operate.measure.power_run import MeasurePower, power_result
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState

BOTH = ("spark1", "spark2")
MISSING = NO_PROGRAM
Text = str | int | tuple[int, str] | tuple[int, str, str] | None
"""An answer: a text; an exit code without output; both; the last line of errors besides; None: no such file."""

PING = """PING 10.0.0.2 (10.0.0.2) from 10.0.0.1 : 8972(9000) bytes of data.
8980 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.282 ms

--- 10.0.0.2 ping statistics ---
1 packets transmitted, 1 received, 0% packet loss, time 0ms
"""
LOST = """PING 10.0.0.2 (10.0.0.2) from 10.0.0.1 : 8972(9000) bytes of data.

--- 10.0.0.2 ping statistics ---
1 packets transmitted, 0 received, 100% packet loss, time 0ms
"""
ADDRESSES = """[{"ifname":"enp1s0f0np0","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24}]},
{"ifname":"enP2p1s0f0np0","addr_info":[{"family":"inet","local":"10.0.1.1","prefixlen":24}]}]"""
PROFILES = (
    "enP7s7:yes:/etc/NetworkManager/system-connections/wired.nmconnection\n"
    "enp1s0f0np0:yes:/run/NetworkManager/system-connections/netplan-enp1s0f0np0.nmconnection\n"
    "enP2p1s0f0np0:yes:/run/NetworkManager/system-connections/netplan-enP2p1s0f0np0.nmconnection\n"
)
NEIGHBOURS = """{"lldp":[{"interface":[{"name":"enp1s0f0np0","via":"LLDP",
"chassis":[{"id":[{"type":"mac","value":"4c:bb:47:2c:00:11"}],"name":[{"value":"spark2-host"}]}],
"port":[{"id":[{"type":"mac","value":"4c:bb:47:2c:00:12"}],"descr":[{"value":"enp1s0f0np0"}]}]}]}]}"""
FIRMWARE = """{"Devices":[{"Name":"NVIDIA DGX Spark EC","Version":"0x02000005",
"Releases":[{"Version":"0x02000006","Summary":"Embedded controller"}]}]}"""
CDI = 'time="2026-09-05T10:33:15Z" level=info msg="Found 1 CDI devices"\nnvidia.com/gpu=all\n'

HEALTHY: Mapping[str, Text] = {
    "printenv SSH_CONNECTION": "192.168.20.5 51022 192.168.20.21 22\n",
    "/sys/class/dmi/id/board_vendor": "NVIDIA\n",
    "busctl call org.freedesktop.Avahi": 's "spark1-host"\n',
    "busctl call com.nvidia.dgx": 'ssbbs "ready" "2026-09-05T10:33:15+03:00" true false ""\n',
    "/run/reboot-required": None,
    "/run/reboot-required.pkgs": None,
    "fwupdmgr get-updates": 2,
    "apt-mark showhold": "",
    "nvidia-smi": "NVIDIA GB10, 580.142, 9A.0B.25.00.04\n",
    "python3 -I -S -c import ctypes": "0\n",
    "python3 -I -S -c import os": "~/.cache/flashinfer\n",
    "python3 -I -S -c import sysconfig": "/usr/include/python3.12\n",
    "test -e /usr/include/python3.12/Python.h": "",
    "/proc/sys/kernel/core_pattern": "core\n",
    "id -nG": "spark adm sudo docker\n",
    "nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.20.1\n",
    "nvidia-ctk cdi list": CDI,
    "prlimit": "unlimited\n",
    "systemctl is-active earlyoom.service systemd-oomd.service": (3, "inactive\ninactive\n"),
    "find -L /usr/local/cuda/lib64": "/usr/local/cuda/lib64/libcublas.so.13\n/usr/local/cuda/lib64/libcublas.so.13.1\n",
    "which": "/usr/bin/ib_write_bw\n/usr/sbin/lldpctl\n/usr/sbin/ethtool\n/usr/bin/rsync\n/usr/bin/prlimit\n",
    "lldpctl": NEIGHBOURS,
    "grep -RsE": 1,
    "grep -sH . -- /sys/class/net": (
        "/sys/class/net/enp1s0f0np0/carrier_down_count:1\n/sys/class/net/enP2p1s0f0np0/carrier_down_count:1\n"
    ),
    "ip -j route show default": '[{"dst":"default","gateway":"192.168.20.1","dev":"enP7s7","metric":100}]',
    "ip -j -4 address show": ADDRESSES,
    "nmcli": PROFILES,
    "find /etc/netplan -newer": "",
    "ip -j link show": '[{"ifname":"enp1s0f0np0","flags":["BROADCAST","UP"]}]',
    "networkctl": MISSING,
    "ping": PING,
    "ssh": "",
    "dpkg-query": "26.04.1",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 quiet",
}
IMAGES = [{"Id": "sha256:3f1c9a04d2be77", "RepoTags": ["vllm/vllm-openai:v0.21.0", "mine:1"]}, {"Id": 3}]
INFO = {"ServerVersion": "29.6.2", "Runtimes": {"runc": {}}, "DiscoveredDevices": [{"ID": "nvidia.com/gpu=all"}]}


OWN_KEY = PublicKey(
    algorithm="ssh-ed25519",
    blob="AAAAC3NzaC1lZDI1NTE5AAAAIDKmcx4QSFUIrJxsLkIX5RrKZ0n7vAFlm2l3UWAxBBIr",
    comment="me@laptop",
    place="/home/me/.ssh/id_ed25519.pub",
)
HOST_KEYS = {
    "spark1": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGwvpxCK01pTk4Tb9ZMDkUUXRBkN6n2NmLbL4lTnOeVK",
    "spark2": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJc2r3f6oG6Wn7cO8l7TLsoTlHfd8iy5VkJWqzZWcH0M",
}


def contact(name: str = "spark1", **more: Any) -> Contact:
    """As met where all is well: by its mDNS name, over the 10 GbE port, with a key."""
    address = f"192.168.20.2{name[-1]}"
    made = Contact(
        host=f"{name}-host.local",
        addresses=(address, "fe80::4ebb:47ff:fe2c:11"),
        answered=address,
        login=LoginMethod.KEY,
        host_key=HOST_KEYS.get(name, ""),
    )
    return replace(made, **more)


def view(name: str = "spark1", *, host: Mapping[str, Any] | None = None, **more: Any) -> NodeView:
    """A fresh Spark on the desk: cabled, nothing runs; `host` are more of its facts."""
    disk = Disk(mount="/", total_bytes=gib(3700), free_bytes=gib(3100))
    plain = {"is_lingering": True, "is_graphical": False, "disks": (disk,), **(host or {})}
    rest = memory(116.0, cma_total_bytes=131072 * 1024, cma_free_bytes=4096)
    options = {
        "link": link(contact=contact(name)),
        "facts": facts(name, **plain),
        "network": fabric(int(name[-1])),
        "memory": rest,
        **more,
    }
    if "available_gib" in more and "memory" not in more:
        options["memory"] = memory(more["available_gib"])
    return idle_node(name, **options)


def perftest_text(name: str) -> str:
    """What a program of perftest printed: tests/cases/perftest."""
    return (CASES / "perftest" / f"{name}.txt").read_text()


def load(*texts: str, back: bool = False, latency: bool = False, counted: float | None = 1.01) -> StepRun:
    """A step of measure-link in which the clients of so many halves printed these texts.

    Args:
        back: from spark2 to spark1.
        counted: share of the bytes that the RDMA ports counted; None: not read.
    """
    near, far = BOTH[::-1] if back else BOTH
    devices = ("rocep1s0f0", "roceP2p1s0f0")
    halves = tuple(
        Half(device=device, gid_index=3, ip="10.0.0.1", peer_device=device, peer_gid_index=3, peer_ip="10.0.0.2")
        for device in devices[: len(texts)]
    )
    act = MeasureLink(peer=far, halves=halves, is_latency=latency)
    if latency:
        result = latency_result(act, parse_latency(perftest_text(texts[0])), rtt_ms=0.282)
    else:
        readings = [parse_bandwidth(perftest_text(text)) for text in texts]
        moved = sum(reading.transferred_bytes for reading in readings)
        result = bandwidth_result(act, readings, None if counted is None else round(counted * moved), rtt_ms=0.282)
    state = StepState.DONE if result.ok else StepState.FAILED
    step = Step(id=f"{near}-{'-'.join(texts)}", title="", node=near, act=act)
    return StepRun(step=step, state=state, detail=result.detail, figures=result.figures)


def link_run(*loads: StepRun) -> Run:
    """An ended run of measure-link."""
    plan = Plan(request=Request(action="measure-link", nodes=BOTH), title="", risk=Risk.DISRUPTIVE, steps=())
    return Run(id="r", plan=plan, state=RunState.DONE, steps=loads)


def collective_run(log: str, *before: StepRun) -> Run:
    """An ended run of measure-collective whose head printed this log: tests/cases/all_reduce."""
    result = collective_result(parse_collective((CASES / "all_reduce" / f"{log}.txt").read_text()), code=0)
    step = Step(id="all-reduce", title="", node="spark1", act=MeasureCollective(peer="spark2", container_id="{NEW}"))
    state = StepState.DONE if result.ok else StepState.FAILED
    own = StepRun(step=step, state=state, detail=result.detail, figures=result.figures)
    plan = Plan(request=Request(action="measure-collective", nodes=BOTH), title="", risk=Risk.DISRUPTIVE, steps=())
    return Run(id="r", plan=plan, state=RunState.DONE, steps=(*before, own))


HEALTHY_LINK = link_run(
    load("bw-half"), load("bw-half", back=True), load("bw-conflicting-cpu", "bw-conflicting-cpu"),
    load("lat-small", latency=True),
)  # fmt: skip


def power_run(mhz: float = 2398, watts: float | None = 84.0, util: float = 96.0, *, log: str = "", **more: Any) -> Run:
    """An ended run of measure-power in which both GPUs were seen so under load; `log`: what the program printed."""
    said = log or 'SPARKTOP-GPU-LOAD {"rounds": 1200, "seconds": 12.04}\n'
    reading = gpu(util, sm_mhz=mhz, **{"power_w": watts, **more})
    steps = []
    for node in BOTH:
        result = power_result(parse_load(said, log), [gpu(0.0, 11.0, 2405), reading])
        act = MeasurePower(library="/usr/local/cuda/lib64/libcublas.so.13", seconds=12, limit_s=42)
        state = StepState.DONE if result.ok else StepState.FAILED
        step = Step(id=f"load@{node}", title="", node=node, act=act)
        steps.append(StepRun(step=step, state=state, detail=result.detail, figures=result.figures))
    plan = Plan(request=Request(action="measure-power", nodes=BOTH), title="", risk=Risk.DISRUPTIVE, steps=())
    return Run(id="r", plan=plan, state=RunState.DONE, steps=tuple(steps))


HEALTHY_COLLECTIVE = collective_run("rdma", load("bw-conflicting-cpu", "bw-conflicting-cpu"))


@dataclass
class Desk:
    """Both Sparks, and what they answer; `texts` and `views` spoil them, by node or ("") for both."""

    texts: dict[str, dict[str, Text]] = field(default_factory=dict)
    views: dict[str, NodeView] = field(default_factory=lambda: {name: view(name) for name in BOTH})
    privileges: Privileges = field(default_factory=lambda: Privileges(user="spark", docker="open", sudo="password"))
    info: Mapping[str, Any] | None = field(default_factory=lambda: INFO)
    keys: tuple[PublicKey, ...] = (OWN_KEY,)
    runs: tuple[Run, ...] = (HEALTHY_LINK, HEALTHY_COLLECTIVE, power_run())
    """What was measured before."""
    images: Mapping[str, Answer] = field(default_factory=lambda: {"": Answer(value=IMAGES)})
    asked: list[Question] = field(default_factory=list)

    @property
    def picture(self) -> FleetState:
        return picture(*self.views.values())

    async def ask(self, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        self.asked += questions
        return {ask: self._answer(ask) for ask in questions}

    def _answer(self, ask: Question) -> Answer:
        match ask:
            case OperatorKeys():
                return Answer(value=self.keys)
            case PrivilegesQuestion():
                return Answer(value=self.privileges)
            case DockerGet(path="/images/json"):
                return self.images.get(ask.node) or self.images.get("") or Answer(problem="Docker is away")
            case DockerGet(path=path) if path.startswith("/images/"):
                return self._image(ask.node, path)
            case DockerGet():
                return Answer(value=self.info) if self.info is not None else Answer(problem="Docker is away")
            case Output():
                return self._text(ask.node, " ".join(ask.argv), is_file=False)
            case FileText():
                return self._text(ask.node, ask.path, is_file=True)
        return Answer(problem="not asked here")

    def _image(self, node: str, path: str) -> Answer:
        """The image of that name among those listed: its layers are its id's."""
        listed = self.images.get(node) or self.images.get("") or Answer()
        for row in listed.value if isinstance(listed.value, list) else ():
            if any(image_path(name) == path for name in row.get("RepoTags", ())):
                return Answer(value=row | {"RootFS": {"Layers": [row["Id"]]}, "Architecture": "arm64"})
        return Answer()

    def _text(self, node: str, name: str, *, is_file: bool) -> Answer:
        known = {**HEALTHY, **self.texts.get("", {}), **self.texts.get(node, {})}
        keys = [key for key in known if (name == key if is_file else name.startswith(key))]
        assert keys, f"nobody answers {name}"
        text = known[max(keys, key=len)]
        if text is None:
            return Answer()
        if text == MISSING:
            return Answer(problem=f"there is no program {name.split()[0]} on this machine", code=MISSING)
        parts = (text,) if isinstance(text, int) else text if isinstance(text, tuple) else (0, text)
        code, said, error = (*parts, *("", "")[len(parts) - 1 :])
        problem = f"{name.split()[0]} ended with {code}{f': {error}' if error else ''}" if code else ""
        return Answer(value=said if said or not code else None, problem=problem, code=None if is_file else code)

    @property
    def kept(self) -> dict[Key, CheckResult]:
        """The rows of what was measured."""
        rows = (row for run in self.runs for row in measured(run, self.picture, now_wall_s=WALL_S))
        return {row.key: row for row in rows}

    def rows(self, *names: str, kept: Mapping[Key, CheckResult] | None = None) -> list[CheckResult]:
        """The rows of these checks; of all without names."""
        cards = [card for card in CARDS if not names or card.id in names]

        async def looked() -> list[CheckResult]:
            chapters: list[tuple[Chapter, tuple[CheckResult, ...]]] = [
                chapter
                async for chapter in run_checks(
                    cards, lambda: self.picture, self.ask, kept=self.kept | dict(kept or {}), now_wall_s=lambda: WALL_S
                )
            ]
            return [row for _, rows in chapters for row in rows]

        return asyncio.run(looked())
