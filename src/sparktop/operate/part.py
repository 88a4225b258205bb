"""One rank of an engine with all that a planner has been told of it, and what a plan can't do with it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparktop import sanitise
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.plan import Refusal, Request
from sparktop.operate import inspected as containers
from sparktop.operate import origin as origins
from sparktop.operate import sharedfiles
from sparktop.operate.inspected import Inspected
from sparktop.operate.machine import stat_ask
from sparktop.operate.origin import Kind, Origin
from sparktop.operate.pair import Rank
from sparktop.operate.privilege import docker_refusal
from sparktop.operate.survey import Ask, AskPrivileges, Survey

PIDS_AT_MOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rank."""

    rank: Rank
    view: NodeView
    origin: Origin
    box: Inspected | None = None
    """None where it runs in no container."""
    mark: str = ""
    """Of its steps' ids: "@spark2" where there are two."""

    @property
    def node(self) -> str:
        return self.rank.node

    @property
    def engine(self) -> Engine:
        return self.rank.engine

    @property
    def name(self) -> str:
        """What it is called on its node: by its container where it has one."""
        return self.box.name if self.box else self.rank.engine.name

    @property
    def runs(self) -> bool:
        """Whether there is something to stop."""
        if self.box is not None:
            return self.box.running or self.box.loops
        return self.rank.engine.state is not EngineState.EXITED

    @property
    def requests(self) -> int:
        """How many it holds at the moment."""
        metrics = self.rank.engine.metrics
        return round((metrics.running or 0) + (metrics.waiting or 0)) if metrics else 0


def asks(team: Sequence[Rank], picture: FleetState) -> Iterator[Ask]:
    """What is to be known of each rank and its node."""
    for rank in team:
        view, box = picture.node(rank.node), rank.engine.container
        yield AskPrivileges(node=rank.node)
        if view is not None:
            yield from origins.asks(rank.engine, view)
        if box is not None and containers.is_whole_id(box.container_id):
            yield containers.ask(rank.node, box.container_id)
            if box.ipc_mode == "host":
                yield sharedfiles.ask(rank.node)
        elif box is None:
            yield from (stat_ask(rank.node, pid) for pid in rank.engine.pids[:PIDS_AT_MOST])


def parts(request: Request, team: Sequence[Rank], picture: FleetState, survey: Survey) -> tuple[Part, ...] | Refusal:
    """The ranks as they were found to be, or why one of them can't be acted on."""
    found = []
    for rank in team:
        view = picture.node(rank.node)
        if view is None or view.sample is None:
            return Refusal(
                request=request,
                reason=f"nothing is known of {rank.node} at the moment",
                remedies=("wait until it is live",),
            )
        box = None
        if (refused := hidden_refusal(request, rank, survey)) is not None:
            return refused
        if rank.engine.container is not None:
            refused = _docker(request, rank, survey)
            if refused is not None:
                return refused
            box = containers.inspected(rank.node, rank.engine.container.container_id, survey)
            if box is None:
                return _vanished(request, rank, survey)
        found.append(
            Part(
                rank=rank,
                view=view,
                origin=origins.origin(rank.engine, view, survey),
                box=box,
                mark=f"@{rank.node}" if len(team) > 1 else "",
            )
        )
    return tuple(found)


def hidden_refusal(request: Request, rank: Rank, survey: Survey) -> Refusal | None:
    """An engine whose processes are in a container that Docker has not shown: it is not one without a container."""
    if "container" not in rank.engine.gaps:
        return None
    refused = _docker(request, rank, survey)
    return refused or Refusal(
        request=request,
        reason=f"{rank.engine.name} on {rank.node} runs in a container, and Docker has not shown which yet",
        remedies=("look again in some seconds: the list of containers follows",),
    )


def neighbours(part: Part) -> Iterator[str]:
    """Warnings of what shares the engine's container, and goes with it."""
    box = part.engine.container
    for other in part.view.engines if box is not None else ():
        shares = other.container is not None and box is not None and other.container.container_id == box.container_id
        if shares and other.key != part.engine.key and other.state is not EngineState.EXITED:
            yield f"{other.name} runs in the same container, {part.name}: it goes with it."


def launcher_refusal(request: Request, part: Part) -> Refusal | None:
    """An engine that a launcher put into a sleeping container is started by that launcher, and by nothing else."""
    if part.origin.kind is not Kind.LAUNCHER:
        return None
    return Refusal(
        request=request,
        reason=(
            f"{part.name} on {part.node} holds an engine that {part.origin.launcher} put there: its container's own "
            "command starts none, so stopping and starting the container would bring back an empty one"
        ),
        remedies=("use the launcher's own commands:", *part.origin.commands, *_known_command(part)),
    )


def _known_command(part: Part) -> Iterator[str]:
    if part.engine.argv:
        yield f"the engine runs as: {sanitise.line(' '.join(part.engine.argv), limit=400)}"


def _docker(request: Request, rank: Rank, survey: Survey) -> Refusal | None:
    obstacle = docker_refusal(survey.privileges(rank.node), rank.node)
    return obstacle.refusal(request) if obstacle is not None else None


def _vanished(request: Request, rank: Rank, survey: Survey) -> Refusal:
    box = rank.engine.container
    problem = survey.problem(containers.ask(rank.node, box.container_id)) if box else ""
    why = f": {problem}" if problem else ""
    return Refusal(
        request=request,
        reason=f"Docker on {rank.node} has no container of {rank.engine.name} any more{why}",
        remedies=("look again: the list of engines follows within seconds", "sparktop launch starts one from a recipe"),
    )


def requests_lost(count: int, name: str) -> str:
    """ "2 requests that vllm-qwen36 holds are lost."."""
    return f"{count} requests that {name} holds are lost." if count != 1 else f"1 request that {name} holds is lost."
