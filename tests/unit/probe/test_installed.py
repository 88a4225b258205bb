"""The slow facts: what is on disk for the next boot, what logind removes, and services that run engines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.telemetry import GapReason, HostFacts
from sparktop.probe.engine_marks import engine_marks
from sparktop.probe.remote.installed import (
    Installed,
    newest_kernel,
    parse_span,
    parse_units,
    removes_ipc,
    unit_of,
    unit_row,
)
from sparktop.wire.decode import decode

RELEASE = "6.17.0-1026-nvidia"
MODULES = f"lib/modules/{RELEASE}/modules.dep"
TREE = {
    MODULES: "kernel/fs/ext4/ext4.ko.zst:\nupdates/dkms/nvidia.ko.zst: kernel/x.ko.zst\nupdates/dkms/nvidia-uvm.ko:\n",
    "lib/modules/6.17.0-999-nvidia/modules.dep": "kernel/fs/ext4/ext4.ko.zst:\n",
    "boot/vmlinuz-6.17.0-999-nvidia": "",
    "boot/vmlinuz-6.17.0-1026-nvidia": "",
    "boot/vmlinuz": "",
    "run/systemd/system/.keep": "",
    "etc/systemd/system/vllm-qwen.service": "[Service]\nExecStartPre=-/bin/true\nExecStart=/usr/bin/docker run q\n",
    "etc/systemd/system/agent.service": "[Service]\nExecStart=/bin/bash -c \\\n  'sglang serve x'\n",
    "etc/systemd/system/vllm@.service": "[Service]\nExecStart=/usr/bin/vllm serve %i\n",
    "etc/systemd/system/backup.service": "[Unit]\nAfter=docker.service\n[Service]\nExecStart=/usr/bin/restic backup\n",
    "etc/systemd/system/docker.service": "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n",
}
SHOWN = b"""Restart=always
RestartUSec=1min
NRestarts=4
Result=exit-code
ExecMainStatus=137
MainPID=0
Id=vllm-qwen.service
ActiveState=activating
SubState=auto-restart

Restart=no
RestartUSec=100ms
NRestarts=0
Result=exit-code
MainPID=0
Id=snap-thing.service
ActiveState=failed
SubState=failed

Restart=on-failure
RestartUSec=infinity
NRestarts=3
Result=success
MainPID=77
Id=odd.service
ActiveState=activating
SubState=start-pre

Id=gdm.service
ActiveState=active
"""


UNITS = engine_marks()["unit"]


class Ran:
    """Stands in for running programs: what was asked, with answers by the first word."""

    def __init__(self, **answers: tuple[int | None, bytes]) -> None:
        self.answers = {"modinfo": (0, b"580.142\n"), "systemctl": (0, SHOWN), **answers}
        self.asked: list[list[str]] = []

    def __call__(self, argv: list[str], timeout_s: float) -> tuple[int | None, bytes]:
        assert timeout_s <= 5
        self.asked.append(argv)
        return self.answers.get(argv[0], (None, b""))


@pytest.fixture
def root(tmp_path: Path) -> Callable[..., str]:
    def make(*without: str, **more: str) -> str:
        for name, text in {**TREE, **more}.items():
            if not name.startswith(tuple(without) or ("\0",)):
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        link = tmp_path / "etc/systemd/system/display-manager.service"
        if "desktop" not in without and not link.is_symlink():
            link.symlink_to("/lib/systemd/system/gdm.service")
        return str(tmp_path)

    return make


def facts_of(body: Mapping[str, Any]) -> HostFacts:
    message = decode(json.dumps({"kind": "facts", "hostname": "h", "boot_id": "b", **body}).encode())
    assert isinstance(message, HostFacts), message
    return message


def test_everything_is_there(root: Callable[..., str]) -> None:
    ran = Ran()
    facts = facts_of(Installed(UNITS, root(), ran).read(1.0, RELEASE, "spark", 1000, []))
    assert facts.driver_installed == "580.142"
    assert facts.kernel_next == "6.17.0-1026-nvidia"
    assert facts.kernel_next_has_driver is True
    assert facts.is_lingering is False
    assert facts.removes_ipc is True
    assert facts.is_graphical is True
    assert [unit.name for unit in facts.units] == ["vllm-qwen.service", "odd.service"]
    unit = facts.units[0]
    assert (unit.active, unit.sub, unit.result, unit.restarts) == ("activating", "auto-restart", "exit-code", 4)
    assert (unit.restart, unit.restart_delay_s, unit.main_pid, unit.exit_status) == ("always", 60.0, None, 137)
    assert facts.units[1].restart_delay_s is None
    assert facts.gaps == {}
    (show,) = [argv for argv in ran.asked if argv[0] == "systemctl"]
    assert show[show.index("--") + 1 :] == ["*.service", "agent.service", "vllm-qwen.service", "gdm.service"]


def test_without_a_display_manager_no_desktop_runs(root: Callable[..., str]) -> None:
    ran = Ran(systemctl=(0, SHOWN.replace(b"gdm.service", b"graphical.target")))  # which Debian has active
    assert facts_of(Installed(UNITS, root("desktop"), ran).read(1.0, RELEASE, "spark", 1000, [])).is_graphical is False


def test_a_machine_without_a_unit_of_interest_has_none(root: Callable[..., str]) -> None:
    """systemctl 252 prints nothing then, and ends with 0."""
    facts = facts_of(
        Installed(UNITS, root("desktop", "etc/"), Ran(systemctl=(0, b""))).read(1.0, RELEASE, "spark", 1000, [])
    )
    assert (facts.units, "units" in facts.gaps) == ((), False)


def test_the_driver_is_asked_for_again_only_when_the_modules_change(root: Callable[..., str]) -> None:
    ran = Ran()
    installed = Installed(UNITS, root(), ran)

    def drivers() -> list[object]:
        return [installed.read(now, RELEASE, "spark", 1000, [])["installed"] for now in (1.0, 61.0)]

    assert drivers() == ["580.142", "580.142"]
    assert sum(argv[0] == "modinfo" for argv in ran.asked) == 1
    ran.answers["modinfo"] = (0, b"580.159.03\n")
    os.utime(f"{root()}/{MODULES}", (5, 5))
    assert drivers() == ["580.159.03", "580.159.03"]


def test_a_next_kernel_without_its_driver(root: Callable[..., str]) -> None:
    make = root()
    Path(make, "boot/vmlinuz-6.17.0-1031-nvidia").touch()
    facts = facts_of(Installed(UNITS, make, Ran()).read(1.0, RELEASE, "spark", 1000, []))
    assert (facts.kernel_next, facts.kernel_next_has_driver) == ("6.17.0-1031-nvidia", False)


@pytest.mark.parametrize(
    ("files", "removes"),
    [
        ({}, True),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, True),
        ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n"}, False),
        ({"etc/systemd/logind.conf": "RemoveIPC=no\n", "etc/systemd/logind.conf.d/9.conf": "RemoveIPC=yes\n"}, True),
        (
            {"etc/systemd/logind.conf.d/9.conf": "RemoveIPC=no\n", "run/systemd/logind.conf.d/9.conf": "RemoveIPC=1\n"},
            False,
        ),
    ],
)
def test_remove_ipc_is_read_as_logind_reads_it(root: Callable[..., str], files: dict[str, str], removes: bool) -> None:
    assert removes_ipc(root(**files)) is removes


def test_a_user_may_linger(root: Callable[..., str]) -> None:
    make = root(**{"var/lib/systemd/linger/spark": ""})
    installed = Installed(UNITS, make, Ran())
    assert installed.read(1.0, RELEASE, "spark", 1000, [])["lingers"] is True
    assert installed.read(1.0, RELEASE, "other", 1001, [])["lingers"] is False


def test_without_systemd_nothing_is_asked_and_the_gaps_say_so(root: Callable[..., str]) -> None:
    ran = Ran()
    facts = facts_of(Installed(UNITS, root("run/", "boot/", "lib/"), ran).read(1.0, RELEASE, "spark", 1000, []))
    assert ran.asked == []
    assert (facts.is_lingering, facts.removes_ipc, facts.is_graphical, facts.units) == (None, None, None, ())
    assert facts.gaps == dict.fromkeys(
        (
            "driver_installed",
            "kernel_next",
            "kernel_next_has_driver",
            "is_lingering",
            "removes_ipc",
            "is_graphical",
            "units",
        ),
        GapReason.NOT_FOUND,
    )


def test_a_systemctl_that_hangs_is_left_alone_for_a_while(root: Callable[..., str]) -> None:
    ran = Ran(systemctl=(None, b""))
    installed = Installed(UNITS, root(), ran)
    for now in (0.0, 60.0, 120.0, 590.0):
        facts = facts_of(installed.read(now, RELEASE, "spark", 1000, []))
        assert facts.gaps["units"] is GapReason.FAILED
    assert sum(argv[0] == "systemctl" for argv in ran.asked) == 1
    installed.read(601.0, RELEASE, "spark", 1000, [])
    assert sum(argv[0] == "systemctl" for argv in ran.asked) == 2


def test_an_engine_in_a_users_own_service_is_asked_of_its_own_manager(root: Callable[..., str]) -> None:
    ran = Ran(env=(0, b"Id=sparkrun.service\nActiveState=active\nNRestarts=2\n"))
    make = root(**{"run/user/1000/systemd/private": ""})
    cgroup = "/user.slice/user-1000.slice/user@1000.service/app.slice/sparkrun.service"
    facts = facts_of(Installed(UNITS, make, ran).read(1.0, RELEASE, "spark", 1000, [cgroup]))
    (asked,) = [argv for argv in ran.asked if argv[0] == "env"]
    assert asked[1:4] == ["XDG_RUNTIME_DIR=/run/user/1000", "systemctl", "--user"]
    assert asked[-1] == "sparkrun.service"
    assert facts.units[-1].name == "sparkrun.service"


@over(
    "cgroup, unit",
    [
        ("/system.slice/vllm.service", ("vllm.service", False)),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/a.service", ("a.service", True)),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", None),
        ("/user.slice/user-1000.slice/session-2.scope", None),
        ("/system.slice/docker-" + "ab" * 32 + ".scope", None),
        ("/system.slice/; rm -rf.service", None),
        ("", None),
    ],
)
def test_the_service_of_a_cgroup(cgroup: str, unit: tuple[str, bool] | None) -> None:
    assert unit_of(cgroup) == unit


@over(
    "text, seconds",
    [
        ("100ms", 0.1), ("1min", 60.0), ("1min 30s", 90.0), ("1h 2min 3.5s", 3723.5), ("0", 0.0), ("infinity", None),
        ("", None),
    ],
)  # fmt: skip
def test_spans(text: str, seconds: float | None) -> None:
    assert parse_span(text) == seconds


@over(
    "names, newest",
    [
        (["6.17.0-999-nvidia", "6.17.0-1026-nvidia", "6.8.0-31-generic"], "6.17.0-1026-nvidia"),
        (["6.17.0-1026-nvidia", "6.17.0-1026-nvidia-64k"], "6.17.0-1026-nvidia-64k"),
        (["", "old"], None),
    ],
)
def test_the_newest_kernel(names: list[str], newest: str | None) -> None:
    assert newest_kernel(names) == newest


@given(st.lists(st.text(max_size=12), max_size=5))
@example(["\u00b9"])  # a digit to str.isdigit, and no number to int
def test_any_names_have_an_order(names: list[str]) -> None:
    numbered = ["1" + name for name in names]
    newest = newest_kernel(numbered)
    assert newest in numbered if numbered else newest is None


@given(st.binary(max_size=200))
def test_any_output_of_systemctl_is_rows(output: bytes) -> None:
    for unit in parse_units(output):
        name, *_, pid, _ = unit_row(unit)
        assert name == unit["Id"]
        assert pid is None or pid > 0
