"""Waits: until processes have ended, a node is back after its reboot, findings are resolved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, FindingKey, Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import CollectorState, Process
from sparktop.operate.acts.remote import container_changes
from sparktop.operate.step.act import Act, Wait
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.step_result import StepResult, StepState
from sparktop.operate.step.wait import Since, WaitStatus, met, waiting
from sparktop.text.units import gib, span

DRIVER_COMES_S = 120.0
"""For so long after a boot the driver is waited for; facts arrive once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitBack(Wait):
    """Wait until the node is back after a reboot, with a new boot id."""

    boot_id: str

    hears_silence: ClassVar[bool] = True

    def text(self) -> Iterator[str]:
        yield "until the node is back with another boot id"

    def outdated(self, view: NodeView) -> Iterator[str]:
        if view.facts is not None and view.facts.boot_id not in ("", self.boot_id):
            yield f"{view.name} has been rebooted since."

    def judge(self, picture: FleetState, node: str, since: Since) -> WaitStatus:
        """Met when the node is live with another boot id; the detail says how long that took, and what differs.

        sshd is up before the GPU's driver is loaded, which is waited for until some time after the boot.
        """
        view = picture.node(node)
        took_s = max(0.0, picture.monotonic_s - since.began_monotonic_s)
        if view is None:
            return waiting(f"{node} is not watched")
        if not is_live(view):
            return waiting(f"not back {span(took_s)} after the order; last try: {view.link.reason or view.link.state}")
        boot_id = view.facts.boot_id if view.facts is not None else ""
        if boot_id and boot_id != self.boot_id:
            if since.before is not None and lacks_driver(since.before, view):
                return waiting(f"up {span(took_s)} after the order; its driver is not loaded yet")
            differences = compared(since.before, view) if since.before is not None else ()
            detail = "; ".join((f"back {span(took_s)} after the order", *differences))
            return met(detail)
        return waiting(f"still up, {span(took_s)} after the order")


def is_live(view: NodeView | None) -> bool:
    return view is not None and view.link.state is LinkState.LIVE and view.sample is not None


def lacks_driver(before: NodeView, after: NodeView) -> bool:
    """Whether a driver that was loaded before the boot may still come."""
    had_driver = before.facts is not None and before.facts.driver_version is not None
    has_driver = after.facts is not None and after.facts.driver_version is not None
    return had_driver and not has_driver and after.sample is not None and after.sample.boot_s < DRIVER_COMES_S


def compared(before: NodeView, after: NodeView) -> tuple[str, ...]:
    """What a node reports after a boot, compared with before: only what is known of both, differences first."""
    differences: list[str] = []
    same: list[str] = []
    if before.facts is not None and after.facts is not None:
        for label, old, new in (
            ("driver", before.facts.driver_version, after.facts.driver_version),
            ("kernel", before.facts.kernel, after.facts.kernel),
            ("DGX OS", before.facts.dgx_release, after.facts.dgx_release),
        ):
            if old and not new:
                differences.append(f"{label} {sanitise.name(old)} before, none now")
            elif old and new and old != new:
                differences.append(f"{label} {sanitise.name(new)}, was {sanitise.name(old)}")
            elif new:
                same.append(f"{label} {sanitise.name(new)} as before")
    if before.gpu is not None and after.gpu is not None and len(before.gpu.gpus) != len(after.gpu.gpus):
        differences.append(f"{len(after.gpu.gpus)} GPUs, were {len(before.gpu.gpus)}")
    if after.sample is not None:
        available = gib(after.sample.memory.available_bytes)
        usual = before.baseline.after_boot_available_bytes if before.baseline else None
        same.append(f"{available} available" + (f", {gib(usual)} after an earlier boot" if usual else ""))
    return (*differences, *same)


RESOLVED_STANDS_S = 5.0
"""An engine that has just started has no symptoms yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitResolved(Act):
    """Wait until findings are resolved."""

    findings: tuple[FindingKey, ...]
    """Their keys; the subjects may differ after a relaunch."""

    async def perform(self, hands: Hands) -> StepResult:
        begun = hands.start_picture
        known = {finding.key for finding in begun.findings if finding.phase is not Phase.RESOLVED}
        result = await hands.wait(lambda picture, since: self.judge(picture, known, begun), stands_s=RESOLVED_STANDS_S)
        if result.state is not StepState.FAILED:
            return result
        return replace(result, no_help="it did not help" if len(self.findings) == 1 else "problems remain")

    def text(self) -> Iterator[str]:
        rules = [rule for rule, _, _ in self.findings]
        yield f"until {' and '.join(rules)} {'is' if len(rules) == 1 else 'are'} no longer found"

    def judge(self, picture: FleetState, known: Collection[FindingKey], before: FleetState | None = None) -> WaitStatus:
        """Met when the findings, and similar ones that came up since, are gone; the detail says which remain.

        `known` are the findings when the run began: another engine's, which was there before, doesn't count. Neither
        does one that was serious `before` and is told as history now. A source that could be asked before and can't be
        now reports nothing, which is no sign that all is well.
        """
        nodes = tuple(dict.fromkeys(node for _, key_nodes, _ in self.findings for node in key_nodes))
        silent = [name for name in nodes if not is_live(picture.node(name))]
        if silent:
            return waiting(f"{' and '.join(silent)} can't be seen")
        old_picture = before or picture
        if gaps := [
            f"{source} on {name}" for name in nodes for source in _gaps(old_picture.node(name), picture.node(name))
        ]:
            return waiting(f"{' and '.join(gaps)} can't be asked")
        serious = {finding.key for finding in old_picture.findings if finding.severity is not Severity.INFO}
        left = [
            next((one for one in _similar(key, picture.findings, known) if not _is_history(one, key, serious)), None)
            for key in self.findings
        ]
        found = [finding for finding in left if finding is not None]
        titles = tuple(dict.fromkeys(finding.title for finding in found if not finding.is_clearing))
        if not found:
            return met("the finding is gone" if len(left) == 1 else f"all {len(left)} findings are gone")
        if not titles:
            return waiting("the problem is gone now; watching that it stays gone")
        count = f"{len(titles)} of {len(left)} " if len(left) > 1 else ""
        return waiting(f"{count}still found: {'; '.join(titles)}")


def _is_history(finding: Finding, key: FindingKey, serious: Collection[FindingKey]) -> bool:
    return finding.severity is Severity.INFO and key in serious


def _gaps(old: NodeView | None, new: NodeView | None) -> Iterator[str]:
    """What could be asked on the node before, and can't be now."""
    if old is None or new is None:
        return
    if old.containers.available and not new.containers.available:
        yield "Docker"
    if has_driver(old) and not has_driver(new):
        yield "the GPU's driver"


def has_driver(view: NodeView) -> bool:
    nvml = view.collectors.get("nvml")
    return nvml is not None and nvml.state is CollectorState.OK


def _similar(
    key: FindingKey, findings: Iterable[Finding], initial_findings: Collection[FindingKey]
) -> Iterator[Finding]:
    """The finding itself, or new ones of its rule on its nodes."""
    rule, nodes, _ = key
    for finding in findings:
        if finding.rule != rule or finding.phase is Phase.RESOLVED:
            continue
        is_new = finding.key not in initial_findings and (not nodes or bool(set(finding.nodes) & set(nodes)))
        if finding.key == key or is_new:
            yield finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitGone(Wait):
    """Wait until these processes, and all GPU processes of the container, have ended."""

    pids: tuple[int, ...]
    container_id: str = ""

    @property
    def is_kept(self) -> bool:
        return not self.pids

    def text(self) -> Iterator[str]:
        pids = f"pid {', '.join(map(str, self.pids))}" if self.pids else "its processes"
        yield f"until {pids} and every GPU process of the container are gone"

    def outdated(self, view: NodeView) -> Iterator[str]:
        if self.container_id:
            yield from container_changes(self.container_id, None, view)
        elif self.pids and view.processes is not None:
            alive = {process.pid for process in view.processes.processes}
            alive |= {user.pid for user in view.gpu_processes}
            if not alive & set(self.pids):
                yield f"Process {', '.join(map(str, self.pids))} is gone from {view.name}."

    def judge(self, picture: FleetState, node: str, since: Since) -> WaitStatus:
        """Met when tables read since the wait began show none of the processes, and no GPU process of the container. A
        zombie holds nothing, and a process started since with the same pid is another."""
        view = picture.node(node)
        if view is None or not since.available:
            return waiting(f"waiting for new figures from {node}")
        began_boot_s = since.available[0][0]
        table = view.processes
        if table is None or table.boot_s < began_boot_s:
            return waiting("waiting for a new process list")
        has_nvml = has_driver(view)
        if has_nvml and (view.gpu is None or view.gpu.boot_s < began_boot_s):
            return waiting("waiting for a new list of GPU processes")
        users = {user.pid for user in view.gpu_processes}
        old_processes = {process.pid: process for process in table.processes if process.started_boot_s <= began_boot_s}
        running = [
            process
            for process in old_processes.values()
            if process.pid in self.pids and process.state not in ("Z", "X")
        ]
        on_gpu = [
            process
            for process in old_processes.values()
            if process not in running and process.pid in users and self._is_of_engine(process)
        ]
        unlisted = sorted((users & set(self.pids)) - {process.pid for process in table.processes}) if has_nvml else []
        if not running and not on_gpu and not unlisted:
            subject = (
                f"all {len(self.pids)} processes are" if len(self.pids) > 1 else "it is" if self.pids else "they are"
            )
            return met(f"{subject} gone")
        names = [
            *(_process_text(process) for process in (*running, *on_gpu)),
            *(f"pid {pid}, which the GPU still lists" for pid in unlisted),
        ]
        ratio = 1.0 - min(1.0, len(running) / len(self.pids)) if self.pids else None
        return waiting(f"still there: {'; '.join(names[:4])}{' …' if len(names) > 4 else ''}", ratio)

    def _is_of_engine(self, process: Process) -> bool:
        return process.pid in self.pids or bool(self.container_id and process.container_id == self.container_id)


def _process_text(process: Process) -> str:
    at = f" in {process.wait_channel}" if process.wait_channel else ""
    state = f", can't be interrupted{at}" if process.state == "D" else ""
    return f"{process.command} (pid {process.pid}{state})"
