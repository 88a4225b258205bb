"""The steps around a start: room for it, the guard over it, the wait for it, and the first request. Pure.

"It loaded" is not "it serves": the first forward pass takes memory that no budget counts, 47 GiB in six seconds in
field report 001. So the guard watches the load by its floor alone (a load falls fast by design), and the first request
by the rate of the fall too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparktop.diagnose.live.window import GIB, gib
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import NodeView
from sparktop.model.guard import GuardPhase
from sparktop.model.operation import Command, DockerCall, Privilege
from sparktop.model.plan import AwaitMemory, AwaitReady, GuardOrder, OnFailure, Remote, SmokeTest, Step
from sparktop.operate.caches import DROP, DROP_LIMIT_S, SYNC, SYNC_LIMIT_S
from sparktop.operate.inspected import Inspected
from sparktop.operate.origin import Kind
from sparktop.operate.part import Part
from sparktop.operate.privilege import root_argvs, root_refusal
from sparktop.operate.survey import Survey
from sparktop.operate.target import SLACK_BYTES, Target, held_bytes
from sparktop.recipe.reserve import HOST_BYTES

MEMORY_LIMIT_S = 300.0
READY_AT_LEAST_S = 1800.0
"""Tens of GiB of weights, compilation and capture take minutes; a first load from a slow disk half an hour."""
LOAD_LONGEST_S = 4 * 3600.0
SMOKE_LIMIT_S = 600.0
"""The first request may compile kernels."""
EMPTY_WITHIN_S = 4.0
_UP = (EngineState.READY, EngineState.SERVING)
_FREE_ENOUGH = '$1=="MemFree:"{f=$2} $1=="CmaTotal:"{t=$2} $1=="CmaFree:"{c=$2} END{if(t<c)c=0; exit !(f-c>=need)}'
"""CmaFree is part of MemFree and no use to the driver; with a CmaTotal of 0 it is a kernel's error (section 7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One rank that is to be started, with what it needs."""

    part: Part
    target: Target
    floor_bytes: int
    load_s: float | None = None


def floor_of(part: Part) -> int:
    """The floor of its guard: HOST_BYTES, or half of what it leaves when it serves as it should, where that is less."""
    memory = part.view.sample.memory if part.view.sample else None
    if memory is None or part.engine.state not in _UP:
        return HOST_BYTES
    return min(HOST_BYTES, max(GIB, memory.available_bytes // 2))


def load_s(engine: Engine) -> float | None:
    """How long its last load took, from its start to the last thing its log told of it; None where that isn't known."""
    box, log = engine.container, engine.log
    if engine.state not in _UP or box is None or log is None or not box.started_wall_s or not log.moved_wall_s:
        return None
    took_s = log.moved_wall_s - box.started_wall_s
    return took_s if 0 < took_s <= LOAD_LONGEST_S else None


def memory(one: Start, limit_s: float, unless_runs: str = "") -> Step:
    """Until there is room for it; nothing to wait for while the container of `unless_runs` runs."""
    return Step(
        id=f"memory{one.part.mark}",
        title=f"Wait for {gib(one.target.target_bytes)} available on {one.part.node}",
        node=one.part.node,
        act=AwaitMemory(target_bytes=one.target.target_bytes, unless_runs=unless_runs),
        limit_s=limit_s,
        verifies="available memory is there and stays",
        undone_by="nothing is started where it doesn't come",
    )


def drop_step(one: Start) -> Step | None:
    """Drop caches if MemFree is short of what it asks for when it comes to that; None where it will be enough."""
    held = (held_bytes(one.part.engine, one.part.view) or 0) if one.part.runs else 0
    return drop_for(one.part.view, one.part.mark, need_bytes=one.target.asked_bytes, back_bytes=held)


def drop_for(view: NodeView, mark: str, *, need_bytes: int, back_bytes: int) -> Step | None:
    """The same for what isn't there yet; `back_bytes` will have come back by then."""
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
        title=f"Drop caches on {view.name}, unless {gib(need_bytes)} are free without",
        node=view.name,
        act=Remote(
            operations=(
                Command(argv=SYNC, limit_s=SYNC_LIMIT_S, done_when=enough),
                Command(argv=DROP, privilege=Privilege.ROOT, limit_s=DROP_LIMIT_S, done_when=enough),
            )
        ),
        limit_s=SYNC_LIMIT_S + DROP_LIMIT_S + 60.0,
        verifies="MemFree, before and after",
        undone_by="nothing: what is needed is read from disk again",
        on_failure=OnFailure.GO_ON,
    )


def guard_on(one: Start, *, serving: bool = False) -> Iterator[Step]:
    """Arm the guard; a container that a service makes anew has its id only when it runs."""
    box = one.part.box
    if box is None:
        return
    container_id = box.container_id
    if one.part.origin.kind is Kind.UNIT:
        if not serving:
            return
        container_id = "{ANEW}"
        yield _anew(box, one.part.mark)
    yield guard_over(box.node, one.part.mark, container_id, box.name, one.floor_bytes, serving=serving)


def guard_over(node: str, mark: str, container_id: str, name: str, floor_bytes: int, *, serving: bool) -> Step:
    """Arm the guard over a container; while it serves by the rate of a fall too."""
    within = EMPTY_WITHIN_S if serving else None
    rate = f" or {EMPTY_WITHIN_S:.0f} s from empty" if serving else ""
    return Step(
        id=f"guard-{'request' if serving else 'load'}{mark}",
        title=f"Arm the guard over {name}: below {gib(floor_bytes)}{rate}",
        node=node,
        act=GuardOrder(container_id=container_id, container_name=name, floor_bytes=floor_bytes, empty_within_s=within),
        limit_s=15.0,
        verifies="the probe says that it is armed",
        undone_by="G disarms it",
        on_failure=OnFailure.GO_ON,
    )


def _anew(box: Inspected, mark: str) -> Step:
    """Which container the service has made: its name is the same, its id another."""
    return Step(
        id=f"anew{mark}",
        title=f"Look which container {box.name} is now",
        node=box.node,
        act=Remote(
            operations=(DockerCall(method="GET", path=f"/containers/{box.name}/json", accepts=(200,), saves="ANEW"),)
        ),
        limit_s=30.0,
        on_failure=OnFailure.GO_ON,
    )


def guard_back(one: Start) -> Step:
    """The guard as it was before: off, or armed as somebody had it."""
    return guard_as_it_was(one.part.view, one.part.mark)


def guard_as_it_was(view: NodeView, mark: str) -> Step:
    """The same of a node where nothing ran before."""
    was = view.guard
    if was is not None and was.phase is GuardPhase.ARMED:
        order = GuardOrder(
            container_id=was.container_id,
            container_name=was.container_name,
            floor_bytes=was.floor_bytes,
            empty_within_s=was.empty_within_s,
            stay_s=was.stay_s,
        )
        title = f"The guard on {view.name} as it was: over {was.container_name}"
    else:
        order, title = GuardOrder(container_id=""), f"Disarm the guard on {view.name}"
    return Step(
        id=f"guard-back{mark}",
        title=title,
        node=view.name,
        act=order,
        limit_s=15.0,
        on_failure=OnFailure.GO_ON,
    )


def guard_note(part: Part) -> Iterator[str]:
    """That somebody's guard gives way meanwhile; nothing where none is armed."""
    was = part.view.guard
    if part.box is not None and was is not None and was.phase is GuardPhase.ARMED:
        yield (
            f"The guard that is armed on {part.node} over {was.container_name} is replaced, and armed again as it was "
            "at the end; a console that is closed before leaves none."
        )


def ready(one: Start, *, any_run: bool = False) -> Step:
    """Until it answers; a further rank until its head does."""
    limit_s = max(READY_AT_LEAST_S, 2 * (one.load_s or 0.0))
    return Step(
        id=f"ready{one.part.mark}",
        title=f"Wait until {one.part.name} {'answers' if one.part.rank.is_head else 'runs and its head answers'}",
        node=one.part.node,
        act=AwaitReady(name=one.part.name, is_worker=not one.part.rank.is_head, any_run=any_run),
        limit_s=limit_s,
        verifies="it is ready by its own endpoint or log, in a run that began after the start",
    )


def smoke(one: Start) -> Step:
    """The first request."""
    return Step(
        id="smoke",
        title=f"One request to {one.part.name}, with no less than {gib(one.floor_bytes)} left",
        node=one.part.node,
        act=SmokeTest(
            engine=one.part.name,
            floor_bytes=one.floor_bytes,
            api_key=one.part.box.api_key if one.part.box else "",
        ),
        limit_s=SMOKE_LIMIT_S,
        verifies="tokens come, and memory holds",
    )


def may(step: Step, node: str, survey: Survey) -> bool:
    """Whether root can be had on the node for what the step would run as root."""
    return root_refusal(survey.privileges(node), root_argvs((step,), node), node) is None
