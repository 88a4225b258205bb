"""Whether what a step waits for has come: processes gone, a finding resolved, a node back after a reboot. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from sparktop.diagnose.live.window import span
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.plan import AwaitBack, AwaitGone, AwaitResolved
from sparktop.model.telemetry import CollectorState, Process
from sparktop.operate.judging import Judgement, Since, Verdict
from sparktop.operate.reboot import compared, lacks_driver

FindingKey = tuple[str, tuple[str, ...], str]


def judge_gone(act: AwaitGone, picture: FleetState, node: str, since: Since) -> Judgement:
    """Met when tables that were read since the wait began show none of the processes, and no GPU process of the
    container; a zombie holds nothing, and what has got a pid since is another process."""
    view = picture.node(node)
    if view is None or not since.available:
        return _waiting(f"no figures from {node} yet")
    began_boot_s = since.available[0][0]
    table = view.processes
    if table is None or table.boot_s < began_boot_s:
        return _waiting("its processes have not been read since")
    has_nvml = _has_driver(view)
    if has_nvml and (view.gpu is None or view.gpu.boot_s < began_boot_s):
        return _waiting("the GPU's processes have not been read since")
    users = {user.pid for gpu in (view.gpu.gpus if view.gpu else ()) for user in gpu.processes or ()}
    old = {one.pid: one for one in table.processes if one.started_boot_s <= began_boot_s}
    left = [one for one in old.values() if one.pid in act.pids and one.state not in ("Z", "X")]
    held = [one for one in old.values() if one not in left and one.pid in users and _is_of(one, act)]
    lost = sorted((users & set(act.pids)) - {one.pid for one in table.processes}) if has_nvml else []
    if not left and not held and not lost:
        many = f"all {len(act.pids)} processes are" if len(act.pids) > 1 else "it is" if act.pids else "they are"
        return Judgement(verdict=Verdict.MET, detail=f"{many} gone", ratio=1.0)
    told = [*(_named(one) for one in (*left, *held)), *(f"pid {pid}, which the GPU still lists" for pid in lost)]
    ratio = 1.0 - min(1.0, len(left) / len(act.pids)) if act.pids else None
    return _waiting(f"still there: {'; '.join(told[:4])}{' …' if len(told) > 4 else ''}", ratio)


def _is_of(process: Process, act: AwaitGone) -> bool:
    return process.pid in act.pids or bool(act.container_id and process.container_id == act.container_id)


def _named(process: Process) -> str:
    at = f" in {process.wait_channel}" if process.wait_channel else ""
    state = f", can't be interrupted{at}" if process.state == "D" else ""
    return f"{process.command} (pid {process.pid}{state})"


def judge_resolved(
    act: AwaitResolved, picture: FleetState, known: Collection[FindingKey], before: FleetState | None = None
) -> Judgement:
    """Met when the finding, or its like that came up since, is there no longer.

    `known` are the findings as the run began: another engine's, which was there before, is not this one's. What could
    be asked `before` and can't be now keeps silent, and that is no sign that all is well.
    """
    rule, nodes, _ = act.finding
    silent = [name for name in nodes if not _is_live(picture.node(name))]
    if silent:
        return _waiting(f"{' and '.join(silent)} can't be seen")
    old = before or picture
    if mute := [f"{what} on {name}" for name in nodes for what in _mute(old.node(name), picture.node(name))]:
        return _waiting(f"{' and '.join(mute)} can't be asked")
    there = next(_like(act, picture.findings, known), None)
    if there is None:
        return Judgement(verdict=Verdict.MET, detail=f"{rule} is no longer found", ratio=1.0)
    return _waiting(f"still found: {there.title}")


def _mute(old: NodeView | None, new: NodeView | None) -> Iterator[str]:
    """What a node could be asked before, and can't be now."""
    if old is None or new is None:
        return
    if old.containers.available and not new.containers.available:
        yield "Docker"
    if _has_driver(old) and not _has_driver(new):
        yield "the GPU's driver"


def _has_driver(view: NodeView) -> bool:
    nvml = view.collectors.get("nvml")
    return nvml is not None and nvml.state is CollectorState.OK


def _like(act: AwaitResolved, findings: Iterable[Finding], known: Collection[FindingKey]) -> Iterator[Finding]:
    rule, nodes, _ = act.finding
    for one in findings:
        if one.rule != rule or one.phase is Phase.RESOLVED:
            continue
        is_new = one.key not in known and (not nodes or bool(set(one.nodes) & set(nodes)))
        if one.key == act.finding or is_new:
            yield one


def judge_back(act: AwaitBack, picture: FleetState, node: str, since: Since) -> Judgement:
    """Met when the node is live with another boot id; how long that took is told, and what differs from before.

    sshd comes up before the GPU's driver may have been loaded: for a while after the boot that is waited for.
    """
    view = picture.node(node)
    took_s = max(0.0, picture.monotonic_s - since.began_monotonic_s)
    if view is None:
        return _waiting(f"{node} is not watched")
    if not _is_live(view):
        return _waiting(f"gone, {span(took_s)} after the order: {view.link.reason or view.link.state}")
    boot_id = view.facts.boot_id if view.facts is not None else ""
    if boot_id and boot_id != act.boot_id:
        if since.before is not None and lacks_driver(since.before, view):
            return _waiting(f"up {span(took_s)} after the order; its driver is not loaded yet")
        told = compared(since.before, view) if since.before is not None else ()
        detail = "; ".join((f"back {span(took_s)} after the order", *told))
        return Judgement(verdict=Verdict.MET, detail=detail, ratio=1.0)
    return _waiting(f"still up, {span(took_s)} after the order")


def _is_live(view: NodeView | None) -> bool:
    return view is not None and view.link.state is LinkState.LIVE and view.sample is not None


def _waiting(detail: str, ratio: float | None = None) -> Judgement:
    return Judgement(verdict=Verdict.WAITING, detail=detail, ratio=ratio)
