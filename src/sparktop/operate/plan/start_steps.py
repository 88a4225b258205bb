"""Steps around a start, whatever starts: wait for memory, drop caches, guard, wait until ready, first request.

"It loaded" is not "it serves": the first forward pass takes memory that no budget counts, 47 GiB in six seconds in
field report 001. So during the load the guard watches the floor only (memory falls fast by design), and during the
first request the rate of the fall too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.engines.memory_target import SLACK_BYTES
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import NodeView
from sparktop.model.guard import GuardPhase
from sparktop.model.operation import Command, DockerCall, Privilege
from sparktop.model.survey import Privileges
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.container.inspected import Inspected
from sparktop.operate.plan.common_steps import DROP, DROP_LIMIT_S, SYNC, SYNC_LIMIT_S
from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.secrets.sudo import root_argvs, root_refusal
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.text.units import GIB, gib, span

MEMORY_LIMIT_S = 300.0
READY_AT_LEAST_S = 1800.0
"""Tens of GiB of weights, compilation and capture take minutes; a first load from a slow disk half an hour."""
LOAD_LONGEST_S = 4 * 3600.0
SMOKE_LIMIT_S = 600.0
"""The first request may compile kernels."""
EMPTY_WITHIN_S = 4.0
_READY_STATES = (EngineState.READY, EngineState.SERVING)
_FREE_ENOUGH = '$1=="MemFree:"{f=$2} $1=="CmaTotal:"{t=$2} $1=="CmaFree:"{c=$2} END{if(t<c)c=0; exit !(f-c>=need)}'
"""CmaFree is part of MemFree and no use to the driver; with a CmaTotal of 0 it is a kernel bug (docs/facts/engines.md
section 7)."""


def floor_of(rank: RunningRank) -> int:
    """The floor of its guard: HOST_BYTES, or half of what it leaves available while serving, where that is less."""
    memory = rank.view.sample.memory if rank.view.sample else None
    if memory is None or rank.engine.state not in _READY_STATES:
        return HOST_BYTES
    return min(HOST_BYTES, max(GIB, memory.available_bytes // 2))


def load_s(engine: Engine) -> float | None:
    """How long its last load took, from its start to the first line that says it is ready; None where unknown."""
    container, log = engine.container, engine.log
    if (
        engine.state not in _READY_STATES
        or container is None
        or log is None
        or not container.started_wall_s
        or not log.ready_wall_s
    ):
        return None
    took_s = log.ready_wall_s - container.started_wall_s
    return took_s if 0 < took_s <= LOAD_LONGEST_S else None


def memory(node: str, mark: str, target_bytes: int, *, limit_s: float = MEMORY_LIMIT_S, unless_runs: str = "") -> Step:
    """Wait until there is memory for it; nothing to wait for while the container of `unless_runs` runs."""
    return Step(
        id=f"memory{mark}",
        title=f"Wait for {gib(target_bytes)} available on {node}",
        node=node,
        act=AwaitMemory(target_bytes=target_bytes, unless_runs=unless_runs),
        limit_s=limit_s,
        verifies="that much memory is available and stays available",
    )


def typed_memory(node: str, target_bytes: int) -> str:
    """The same by hand."""
    return f"on {node}: grep MemAvailable /proc/meminfo   # until it is {target_bytes // 1024} kB"


def drop_for(view: NodeView, mark: str, *, need_bytes: int, back_bytes: int) -> Step | None:
    """Drop caches if MemFree is too low for `need_bytes`; `back_bytes` will have come back by then."""
    sample = view.sample
    if sample is None:
        return None
    meminfo = sample.memory
    reserved = meminfo.cma_free_bytes or 0
    usable = meminfo.free_bytes - (reserved if reserved <= (meminfo.cma_total_bytes or 0) else 0)
    if usable + back_bytes >= need_bytes + SLACK_BYTES:
        return None
    enough = Command(argv=("awk", "-v", f"need={need_bytes // 1024}", _FREE_ENOUGH, "/proc/meminfo"), limit_s=10.0)
    return Step(
        id=f"drop{mark}",
        title=f"Drop caches on {view.name}, unless {gib(need_bytes)} are free already",
        node=view.name,
        act=Remote(
            operations=(
                Command(argv=SYNC, limit_s=SYNC_LIMIT_S, done_when=enough),
                Command(argv=DROP, privilege=Privilege.ROOT, limit_s=DROP_LIMIT_S, done_when=enough),
            )
        ),
        limit_s=SYNC_LIMIT_S + DROP_LIMIT_S + 60.0,
        verifies="MemFree, before and after",
        on_failure=OnFailure.GO_ON,
    )


def guard_over(node: str, mark: str, container_id: str, name: str, floor_bytes: int, *, serving: bool) -> Step:
    """Arm the guard on a container; while it serves also by the rate of a fall."""
    empty_within_s = EMPTY_WITHIN_S if serving else None
    rate_text = f" or {EMPTY_WITHIN_S:.0f} s from empty" if serving else ""
    return Step(
        id=f"guard-{'request' if serving else 'load'}{mark}",
        title=f"Arm the guard on {name}: below {gib(floor_bytes)}{rate_text}",
        node=node,
        act=GuardOrder(
            container_id=container_id, container_name=name, floor_bytes=floor_bytes, empty_within_s=empty_within_s
        ),
        limit_s=15.0,
        verifies="the probe reports that it is armed",
        on_failure=OnFailure.GO_ON,
    )


def find_new_container(container: Inspected, mark: str) -> Step:
    """Look up the id of the container that the service has created under the same name."""
    return Step(
        id=f"anew{mark}",
        title=f"Find which container {container.name} is now",
        node=container.node,
        act=Remote(
            operations=(
                DockerCall(method="GET", path=f"/containers/{container.name}/json", accepts=(200,), saves="ANEW"),
            )
        ),
        limit_s=30.0,
        on_failure=OnFailure.GO_ON,
    )


def is_guarded(view: NodeView, container_id: str) -> bool:
    """Whether the guard that is armed on the node is over this container."""
    was = view.guard
    return was is not None and was.phase is GuardPhase.ARMED and was.container_id == container_id


def guard_as_it_was(view: NodeView, mark: str, *, over: tuple[str, str] | None = None) -> Step:
    """Restore the guard of a node that a plan has replaced by its own; disarm it where none was armed.

    Args:
        over: (id, name) of the container that has taken the place of the one it was over.
    """
    was = view.guard
    if was is None or was.phase is not GuardPhase.ARMED:
        return disarm(view.name, mark)
    container_id, container_name = over or (was.container_id, was.container_name)
    order = GuardOrder(
        container_id=container_id,
        container_name=container_name,
        floor_bytes=was.floor_bytes,
        empty_within_s=was.empty_within_s,
        stay_s=was.stay_s,
    )
    how_long = f"for {span(was.stay_s)} after sparktop ends here" if was.stay_s else "until sparktop ends here"
    title = f"Arm the guard on {view.name} again, on {container_name}, {how_long}"
    return _guard_back(view.name, mark, order, title)


def disarm(node: str, mark: str) -> Step:
    """Disarm the guard that a plan has armed."""
    return _guard_back(node, mark, GuardOrder(container_id=""), f"Disarm the guard on {node}")


def _guard_back(node: str, mark: str, order: GuardOrder, title: str) -> Step:
    return Step(id=f"guard-back{mark}", title=title, node=node, act=order, limit_s=15.0, on_failure=OnFailure.GO_ON)


def guard_note(view: NodeView) -> Iterator[str]:
    """The warning that somebody's guard is replaced meanwhile; nothing where none is armed."""
    was = view.guard
    if was is not None and was.phase is GuardPhase.ARMED:
        yield (
            f"The guard armed on {view.name} over {was.container_name} is replaced, and armed again at the end. From "
            "then on it is this sparktop's, whoever armed it: when this one ends, "
            + (f"it stays for {span(was.stay_s)}." if was.stay_s else "no guard is left.")
        )


def ready(node: str, mark: str, act: AwaitReady, limit_s: float, likely_s: float | None) -> Step:
    """Wait until it answers, as it did after `likely_s`; a worker rank until its head does."""
    return Step(
        id=f"ready{mark}",
        title=f"Wait until {act.name} {'runs and its head answers' if act.is_worker else 'answers'}",
        node=node,
        act=act,
        limit_s=limit_s,
        likely_s=likely_s,
        verifies="its endpoint or log says ready, in a run that began after the start",
    )


def smoke(node: str, act: SmokeTest) -> Step:
    """Send the first request."""
    return Step(
        id="smoke",
        title=f"Send one request to {act.engine}, keeping at least {gib(act.floor_bytes)} available",
        node=node,
        act=act,
        limit_s=SMOKE_LIMIT_S,
        verifies=f"{'an answer arrives' if act.is_pooling else 'tokens arrive'}, and memory stays above the floor",
    )


def with_rollback(step: Step) -> Step:
    """The step, with a rollback if it fails."""
    return replace(step, on_failure=OnFailure.ROLL_BACK)


def may(step: Step, privileges: Privileges | None) -> bool:
    """Whether the user may do on its node what the step runs as root."""
    return root_refusal(privileges, root_argvs((step,), step.node), step.node) is None
