"""The machine itself: firing and quiet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import BOOT_S, GIB, claims, facts, idle_node, link, memory, node, picture, rules_on
from tests.table import over

from sparktop.model.engine import Containers
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import Collector, CollectorState, Disk, Gpu, GpuReading

RULES = rules_on("host")
C, W, I = Severity.CRITICAL, Severity.WARNING, Severity.INFO  # noqa: E741


def with_facts(**more: Any) -> FleetState:
    return picture(node(facts=facts(**more)))


def with_disk(free_gib: float, total_gib: float = 3700.0) -> FleetState:
    return with_facts(disks=(Disk(mount="/", total_bytes=int(total_gib * GIB), free_bytes=int(free_gib * GIB)),))


def with_part(name: str, state: CollectorState, detail: str = "why", **more: Any) -> FleetState:
    return picture(node(collectors={name: Collector(name=name, state=state, detail=detail)}, **more))


def with_docker(detail: str, *, is_denied: bool = False) -> FleetState:
    return picture(node(containers=Containers(detail=detail, is_denied=is_denied)))


TORN = memory(cma_total_bytes=0, cma_free_bytes=131_072)
NVML_DIFFERS = "NVIDIA driver and library versions differ, as after an update: reboot this machine"
OTHER_GPU = GpuReading(boot_s=BOOT_S, gpus=(Gpu(name="NVIDIA RTX PRO 6000", power_w=90.0),))


@over(
    "fleet, expected",
    [
        (picture(), []),
        (picture(idle_node()), []),
        (with_facts(driver_installed="580.142"), []),
        (with_facts(driver_installed="580.173.02"), [("driver-pending", W)]),
        (picture(node(facts=facts(driver_installed="580.173.02", driver_version=None), gpu=None)), []),
        (with_facts(kernel_next="6.17.0-1030-nvidia", kernel_next_has_driver=True), []),
        (with_facts(kernel_next="6.17.0-1030-nvidia", kernel_next_has_driver=None), []),
        (with_facts(kernel_next="6.17.0-1026-nvidia", kernel_next_has_driver=False), []),
        (with_facts(kernel_next="7.0.0-1020", kernel_next_has_driver=False), [("next-kernel-without-driver", W)]),
        (with_facts(driver_version="590.48.01"), [("driver-branch", W)]),
        (with_facts(driver_version="585.10"), [("driver-branch", W)]),
        (with_facts(driver_version="580.95.05"), []),
        (picture(node(facts=facts(driver_version="595.84"), gpu=OTHER_GPU)), []),
        (with_facts(kernel="7.0.0-1019-nvidia"), [("kernel-advisory", I)]),
        (picture(node(facts=facts(kernel="7.0.0-1019-nvidia"), memory=TORN)), [("kernel-advisory", W)]),
        (picture(node(memory=TORN)), []),
        (with_disk(120.0), []),
        (with_disk(14.0), [("disk-low", W)]),
        (with_disk(1.2), [("disk-low", C)]),
        (with_disk(6.0, 50.0), []),
        (with_disk(3.0, 50.0), [("disk-low", W)]),
        (with_part("nvml", CollectorState.STUCK), [("collector", W)]),
        (with_part("nvml", CollectorState.MISSING), []),
        (with_part("kernel", CollectorState.DENIED), [("collector", I)]),
        (with_part("nvml", CollectorState.DENIED), [("collector", W)]),
        (with_part("desktop", CollectorState.FAILED), [("collector", W)]),
        (with_part("processes", CollectorState.PAUSED), []),
        (with_part("nvml", CollectorState.STUCK, link=link(LinkState.LOST)), []),
        (with_docker("...", is_denied=True), [("docker-denied", I)]),
        (with_docker("no Docker Engine here"), []),
    ],
)  # fmt: skip
def test_what_is_said(fleet: FleetState, expected: list[tuple[str, Severity]]) -> None:
    found = claims(RULES, fleet)
    assert [(finding.rule.removeprefix("host."), finding.severity) for finding in found] == expected
    assert all(finding.evidence and finding.nodes == ("spark1",) for finding in found)


def test_a_refusing_nvml_makes_a_waiting_driver_critical() -> None:
    fleet = with_part("nvml", CollectorState.FAILED, NVML_DIFFERS, facts=facts(driver_installed="580.173.02"))
    pending, blind = claims(RULES, fleet)
    assert (pending.rule, pending.severity) == ("host.driver-pending", C)
    assert pending.remedies[0].action == "reboot"
    assert pending.remedies[0].title == "Reboot at the next quiet moment, which stops the engines", "as the plan does"
    assert blind.rule == "host.collector"
    (rule,) = (rule for rule in RULES if rule.id == "host.collector")
    assert "host.driver-pending" in rule.follows


def test_many_zombies_are_told_and_few_are_not() -> None:
    def with_zombies(count: int) -> FleetState:
        view = node()
        assert view.processes is not None
        return picture(replace(view, processes=replace(view.processes, zombie_count=count)))

    assert claims(RULES, with_zombies(12)) == []
    assert [finding.rule for finding in claims(RULES, with_zombies(340))] == ["host.zombies"]


def at_clock(name: str, ahead_s: float) -> NodeView:
    view = node(name)
    assert view.sample is not None
    return replace(view, sample=replace(view.sample, wall_s=view.sample.wall_s + ahead_s))


@over(
    "ahead_s, nodes",
    [
        ((0.0, 0.0), []),
        ((250.0, -250.0), []),
        ((0.0, -7200.0), [("spark2",)]),
        ((9000.0, -7200.0), [("spark1",), ("spark2",)]),
        ((7200.0, 7210.0), [("spark1", "spark2")]),
    ],
)
def test_a_clock_that_is_minutes_off_is_told_and_whose_it_is(
    ahead_s: tuple[float, float], nodes: list[tuple[str, ...]]
) -> None:
    fleet = picture(at_clock("spark1", ahead_s[0]), at_clock("spark2", ahead_s[1]))
    found = [finding for finding in claims(RULES, fleet) if finding.rule == "host.clock"]
    assert [finding.nodes for finding in found] == nodes


def test_a_stuck_driver_call_warns_of_killing_it() -> None:
    (finding,) = claims(RULES, with_part("nvml", CollectorState.STUCK, "no answer within 5 s"))
    assert "killing an NVML client" in finding.explanation
    assert "no answer within 5 s" in finding.evidence[0].text
