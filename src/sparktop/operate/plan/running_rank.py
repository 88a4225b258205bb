"""The ranks of the engine that a request means, each with its node, container and origin; and why they can't be acted
on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.diagnose.rules.engine.ended import is_looping
from sparktop.engines.ranks import EngineRank, find, is_alive, missing, rank_of, start_order, stop_order, team_of
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Privilege
from sparktop.model.request import Request
from sparktop.model.survey import Privileges, PrivilegesQuestion, Question, Survey
from sparktop.operate.container import inspected, shared_memory
from sparktop.operate.container.inspected import Inspected
from sparktop.operate.container.shared_memory import SharedFile
from sparktop.operate.plan import origin
from sparktop.operate.plan.origin import Origin
from sparktop.operate.plan.process import ProcessStat, stat_questions, still_there
from sparktop.operate.plan.service import Service
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import require_docker


def requested_ranks(request: Request, picture: FleetState) -> tuple[EngineRank, ...]:
    """All ranks of the engine that the request means, head first.

    Without a name it is the only engine on the nodes: the running one, else the one that ended last.
    """
    unknown = [name for name in request.nodes if picture.node(name) is None]
    if unknown or not request.nodes:
        named = f"{unknown[0]} is not one of the nodes watched here" if unknown else "no node is named"
        raise Refused(named, tuple(f"there is {view.name}" for view in picture.nodes))
    name, where = request.target.strip(), " or ".join(request.nodes)
    there = [view for view in picture.nodes if view.name in request.nodes]
    seen = [rank_of(engine, view) for view in there for engine in view.engines]
    running = [rank for rank in seen if is_alive(rank.engine)]
    if name:
        candidates = [rank for node in request.nodes if (rank := find(name, node, picture)) is not None][:1]
    else:
        candidates = running or seen[:1]
    teams = {team[0].engine.key: team for team in (team_of(rank, picture) for rank in candidates)}
    if len(teams) == 1:
        return next(iter(teams.values()))
    if teams:
        raise Refused(
            "which engine is meant? Name one", tuple(f"{rank.engine.name} on {rank.node.name}" for rank in candidates)
        )
    # An engine that isn't shown may be there all the same: that is not known, and said so.
    if gaps := [view.engines_gap for view in there if view.engines_gap]:
        raise Refused("; ".join(gaps), ("look again in a few seconds",))
    raise Refused(
        f"no engine of that name is on {where}" if name else f"no engine is seen on {where}",
        tuple(f"there is {rank.engine.name} on {rank.node.name}" for rank in running),
    )


def require_all_ranks(team: tuple[EngineRank, ...]) -> None:
    """Refuse where ranks of the engine are not watched: stopped on one node only, the others would wait in a
    collective forever."""
    count = missing(team)
    if not count:
        return
    name = team[0].engine.name
    seen = ", ".join(f"{rank.engine.name} on {rank.node.name}" for rank in team)
    raise Refused(
        f"{name} runs over {len(team) + count} nodes, and {count} of its ranks {'is' if count == 1 else 'are'} "
        f"not seen here (seen: {seen}); a rank started alone waits for the others, and they wait for it",
        ("watch all its nodes: sparktop HOST HOST..., or name them: sparktop act ACTION HOST HOST...",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRank:
    """One rank of a running engine, as found on its node."""

    rank: EngineRank
    origin: Origin
    container: Inspected | None = None
    """Its container; None where it runs in none."""
    processes: tuple[ProcessStat, ...] = ()
    """Of one in no container, those that still are the ones seen; the server first."""
    privileges: Privileges | None = None
    """Of the user on its node; None: not known."""
    shared: tuple[SharedFile, ...] = ()
    """Engines' files in the node's /dev/shm, where its container has that."""
    mark: str = ""
    """Suffix of its steps' ids: "@spark2" where there are two ranks."""

    @property
    def view(self) -> NodeView:
        return self.rank.node

    @property
    def node(self) -> str:
        return self.rank.node.name

    @property
    def is_head(self) -> bool:
        return self.rank.is_head

    @property
    def engine(self) -> Engine:
        return self.rank.engine

    @property
    def name(self) -> str:
        """Its name on its node: its container's, where it has one."""
        return self.container.name if self.container else self.rank.engine.name

    @property
    def service(self) -> Service | None:
        """The service that runs it; None where none does."""
        if not self.origin.is_service:
            return None
        unit, is_own = self.origin.unit, self.origin.is_own
        return Service(view=self.view, unit=unit, is_own=is_own, engine=self.name, mark=self.mark)

    @property
    def privilege(self) -> Privilege:
        """To end its processes: USER where all are the user's own, else ROOT."""
        table = {process.pid: process for process in (self.view.processes.processes if self.view.processes else ())}
        own = self.view.facts.user_id if self.view.facts else None
        mine = own is not None and all(pid in table and table[pid].user_id == own for pid in self.engine.pids)
        return Privilege.USER if mine else Privilege.ROOT

    @property
    def labels(self) -> Mapping[str, str]:
        """Those of its container; none where it runs in none."""
        return self.container.labels if self.container is not None else {}

    @property
    def runs(self) -> bool:
        """Whether there is something to stop."""
        if self.container is not None:
            return self.container.running or self.container.loops
        return self.rank.engine.state is not EngineState.EXITED

    @property
    def is_startable(self) -> bool:
        """Whether it can be started again as it is: by its service, or its container, which stays when it ends."""
        if self.origin.is_service:
            return True
        container = self.container
        return container is not None and not container.auto_remove and not self.origin.is_in_sleeping_container

    @property
    def ran(self) -> bool:
        """Whether the way back starts it: it runs, or an interrupted run has stopped it."""
        return self.runs or (self.container is not None and self.container.was_running)

    @property
    def requests(self) -> int:
        """How many requests it holds at the moment."""
        metrics = self.rank.engine.metrics
        return round((metrics.running or 0) + (metrics.waiting or 0)) if metrics else 0


def look_up(team: Sequence[EngineRank], survey: Survey) -> None:
    """Look up what `inspect_ranks` does, all at once: it ends at the first rank that isn't known."""
    for question in _questions(team):
        survey.answer(question)


def _questions(team: Sequence[EngineRank]) -> Iterator[Question]:
    for rank in team:
        node, container = rank.node.name, rank.engine.container
        yield PrivilegesQuestion(node=node)
        yield from origin.questions(rank.engine, rank.node)
        if container is not None and inspected.is_whole_id(container.container_id):
            yield inspected.ask(node, container.container_id)
            if container.ipc_mode == "host":
                yield shared_memory.ask(node)
        elif container is None:
            yield from stat_questions(rank.engine, rank.node)


def inspect_ranks(team: Sequence[EngineRank], survey: Survey) -> tuple[RunningRank, ...]:
    """The ranks as found on their nodes, or why one of them can't be acted on."""
    look_up(team, survey)
    ranks_found = []
    for rank in team:
        view, node = rank.node, rank.node.name
        if view.sample is None:
            raise Refused(f"{node} has told nothing yet", ("wait until it is live",))
        container, privileges, shared = None, survey.privileges(node), ""
        require_known_container(rank, survey)
        if rank.engine.container is not None:
            require_docker(privileges, node)
            container = inspected.inspected(node, rank.engine.container.container_id, survey)
            if container is None:
                raise _vanished(rank, survey)
            if is_looping(rank.engine, rank.engine.container):
                # Seen "running" as often as "restarting": steps for one run of it would come too late.
                container = replace(container, loops=True)
            if rank.engine.container.ipc_mode == "host":
                shared = survey.text(shared_memory.ask(node)) or ""
        ranks_found.append(
            RunningRank(
                rank=replace(rank, node=with_owed_guard(view, survey)),
                origin=origin.origin(rank.engine, view, survey, container),
                container=container,
                privileges=privileges,
                shared=shared_memory.parse(shared),
                processes=still_there(rank.engine, view, survey) if container is None else (),
                mark=f"@{node}" if len(team) > 1 else "",
            )
        )
    return tuple(ranks_found)


def with_owed_guard(view: NodeView, survey: Survey) -> NodeView:
    """The node with the guard that an interrupted run has replaced by its own: it is restored at the plan's end."""
    guard = survey.guards_to_restore.get(view.name)
    return view if guard is None else replace(view, guard=guard)


def require_known_container(rank: EngineRank, survey: Survey) -> None:
    """Refuse where the engine's container is not known yet: it must not be taken for one without a container."""
    if "container" not in rank.engine.gaps:
        return
    require_docker(survey.privileges(rank.node.name), rank.node.name)
    raise Refused(
        f"{rank.engine.name} on {rank.node.name} runs in a container, and Docker has not shown which yet",
        ("look again in a few seconds: the list of containers follows",),
    )


def neighbours(rank: RunningRank) -> Iterator[str]:
    """Warnings about engines in the same container, which stop with it."""
    container = rank.engine.container
    for other in rank.view.engines if container is not None else ():
        is_shared = (
            other.container is not None
            and container is not None
            and other.container.container_id == container.container_id
        )
        if is_shared and other.key != rank.engine.key and other.state is not EngineState.EXITED:
            yield f"{other.name} runs in the same container, {rank.name}: it stops too."


def refuse_status(container: Inspected) -> None:
    """Refuse a container that can neither be stopped nor started in its state."""
    if container.status in ("paused", "removing", "dead"):
        raise Refused(
            f"{container.name} on {container.node} is {container.status}",
            (f"docker unpause {container.name}",) if container.status == "paused" else ("look again in a minute",),
        )


def refuse_launched(rank: RunningRank) -> None:
    """Refuse an engine that a launcher put into a sleeping container: only that launcher can start it."""
    if not rank.origin.is_in_sleeping_container:
        return
    raise Refused(
        f"{rank.name} on {rank.node} holds an engine that {rank.origin.launcher} put there: its container's own "
        "command starts none, so a restarted container would come back empty",
        ("use the launcher's own commands:", *rank.origin.commands, *_known_command(rank)),
    )


def _known_command(rank: RunningRank) -> Iterator[str]:
    if rank.engine.argv:
        yield f"the engine runs as: {sanitise.line(' '.join(rank.engine.argv), limit=400)}"


def _vanished(rank: EngineRank, survey: Survey) -> Refused:
    container = rank.engine.container
    is_asked = container is not None and inspected.is_whole_id(container.container_id)
    problem = survey.problem(inspected.ask(rank.node.name, container.container_id)) if container and is_asked else ""
    if problem:
        return Refused(f"the container of {rank.engine.name} on {rank.node.name} can't be inspected: {problem}")
    return Refused(
        f"Docker on {rank.node.name} has no container of {rank.engine.name} any more",
        ("look again: the list of engines follows within seconds", "sparktop launch starts one from a recipe"),
    )


def requests_lost(count: int, name: str) -> str:
    """ "2 requests that vllm-qwen36 holds are lost."."""
    return f"{count} requests that {name} holds are lost." if count != 1 else f"1 request that {name} holds is lost."


def lost_work(rank: RunningRank) -> Iterator[str]:
    """What a stop of it loses: its requests, or its load so far."""
    if rank.requests:
        yield requests_lost(rank.requests, rank.name)
    elif rank.runs and rank.engine.state in (EngineState.LOADING, EngineState.CAPTURING, EngineState.STARTING):
        yield f"{rank.name} is {rank.engine.state.value}: the load so far is lost."


_Item = TypeVar("_Item")


def in_order(ranks: Sequence[RunningRank], items: Sequence[_Item]) -> tuple[list[_Item], list[_Item]]:
    """`items` (one for each rank) in stop order, and in start order."""
    by_node = {rank.node: item for rank, item in zip(ranks, items, strict=True)}
    team = tuple(rank.rank for rank in ranks)
    return [by_node[rank.node.name] for rank in stop_order(team)], [
        by_node[rank.node.name] for rank in start_order(team)
    ]
