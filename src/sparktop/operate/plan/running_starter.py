"""Starters of an engine that is known from its last run: as it is, from its container or its service; the base of
those that change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import Target, held_bytes, memory_target
from sparktop.model.survey import Survey
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.container import lifecycle, shared_memory
from sparktop.operate.container.inspected import Inspected
from sparktop.operate.plan import start_steps
from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.plan.service import service_of
from sparktop.operate.plan.start_steps import MEMORY_LIMIT_S, READY_AT_LEAST_S, floor_of, load_s, may
from sparktop.operate.plan.starter import Starter
from sparktop.operate.step.plan import OnFailure, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStarter(Starter):
    """A rank that runs or has run, to be started anew."""

    rank: RunningRank
    target: Target
    """Memory to wait for before it starts."""
    old_target: Target
    """Memory that the engine needs as it was."""
    memory_limit_s: float = MEMORY_LIMIT_S

    @property
    def node(self) -> str:
        return self.rank.node

    @property
    def mark(self) -> str:
        return self.rank.mark

    @property
    def is_head(self) -> bool:
        return self.rank.is_head

    @property
    def name(self) -> str:
        return self.rank.name

    @property
    def new_name(self) -> str:
        """Its container's name from now on."""
        return self.name

    @property
    def guarded_id(self) -> str:
        """Id of the container that comes up; empty where it is known only when it runs, or there is none."""
        return ""

    @property
    def kept_id(self) -> str:
        """Id of the container that ran before, where the way back finds that one; empty where it's made anew."""
        return ""

    @property
    def is_guarded(self) -> bool:
        """Whether the guard that is armed on its node is over its container."""
        container = self.rank.container
        return container is not None and start_steps.is_guarded(self.rank.view, container.container_id)

    @property
    def api_key(self) -> str:
        return self.rank.container.api_key if self.rank.container is not None else ""

    @property
    def container(self) -> Inspected:
        container = self.rank.container
        assert container is not None  # of a starter of containers
        return container

    @property
    def floor_bytes(self) -> int:
        return floor_of(self.rank)

    @property
    def load_s(self) -> float | None:
        """How long its last load took."""
        return load_s(self.rank.engine)

    def await_memory(self) -> Iterator[Step]:
        yield start_steps.memory(self.node, self.mark, self.target.target_bytes, limit_s=self.memory_limit_s)

    def room_steps(self, survey: Survey) -> Iterator[Step]:
        """Free /dev/shm and drop caches, where needed; whether permitted or not."""
        rank = self.rank
        held = (held_bytes(rank.engine, rank.view) or 0) if rank.runs else 0
        drop = start_steps.drop_for(rank.view, rank.mark, need_bytes=self.target.asked_bytes, back_bytes=held)
        yield from filter(None, (shared_memory.step(rank.engine, rank.view, survey, rank.mark), drop))

    def make_room(self, survey: Survey) -> Iterator[Step]:
        yield from (step for step in self.room_steps(survey) if may(step, self.node, survey))

    def await_ready(self) -> Iterator[Step]:
        yield self._ready()

    def guard_request(self) -> Iterator[Step]:
        container = self.rank.container
        if self.guarded_id or container is None:
            yield from self._guard(serving=True)
            return
        yield start_steps.find_new_container(container, self.mark)
        yield start_steps.guard_over(self.node, self.mark, "{ANEW}", self.name, self.floor_bytes, serving=True)

    def prove(self) -> Iterator[Step]:
        yield start_steps.smoke(
            self.node, SmokeTest(engine=self.new_name, floor_bytes=self.floor_bytes, api_key=self.api_key)
        )

    def restore_guard(self) -> Iterator[Step]:
        if self.is_guarded:
            yield from self._guard_again(self.guarded_id, self.new_name)
        elif self.rank.container is not None:
            yield start_steps.guard_as_it_was(self.rank.view, self.mark)

    def _guard_again(self, container_id: str, name: str) -> Iterator[Step]:
        """The guard that was over its container, over the one that it has now; that is looked up where no id is
        known."""
        if not container_id:
            yield replace(start_steps.find_new_container(self.container, self.mark), id=f"anew-guard{self.mark}")
        yield start_steps.guard_as_it_was(self.rank.view, self.mark, over=(container_id or "{ANEW}", name))

    def _ready(self, *, any_run: bool = False) -> Step:
        act = AwaitReady(name=self.new_name, is_worker=not self.is_head, any_run=any_run)
        limit_s = max(READY_AT_LEAST_S, 2 * (self.load_s or 0.0))
        return start_steps.ready(self.node, self.mark, act, limit_s, self.load_s)

    def _guard(self, *, serving: bool) -> Iterator[Step]:
        if self.guarded_id:
            yield start_steps.guard_over(
                self.node, self.mark, self.guarded_id, self.name, self.floor_bytes, serving=serving
            )

    # the way back

    def restore_guard_first(self) -> Iterator[Step]:
        if self.is_guarded:  # its container isn't back yet
            yield replace(start_steps.disarm(self.node, self.mark), id=f"back-unguard{self.mark}")
        else:
            yield from self._restored_guard()

    def settle_old(self) -> Iterator[Step]:
        if self.is_guarded:
            yield from self._restored_guard()

    def _restored_guard(self) -> Iterator[Step]:
        """The guard as it was: over its own container once that is back."""
        steps = self._guard_again(self.kept_id, self.name) if self.is_guarded else self.restore_guard()
        yield from (replace(step, id=step.id.replace("guard-back", "back-guard")) for step in steps)

    def _old_memory(self, unless_runs: str) -> Step:
        step = start_steps.memory(
            self.node,
            self.mark,
            self.old_target.target_bytes,
            limit_s=self.memory_limit_s,
            unless_runs=unless_runs,
        )
        return replace(step, id=f"back-memory{self.mark}")

    def _old_ready(self, *, any_run: bool = True) -> Step:
        return replace(self._ready(any_run=any_run), id=f"back-ready{self.mark}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing(RunningStarter):
    """A rank that is started as it is: what is common to a container and a service."""

    def on_ready(self) -> Iterator[Step]:
        if self.rank.container is not None and self.rank.container.restarts:
            yield lifecycle.policy_back(self.rank.container, self.mark, OnFailure.FAIL_AT_END)

    def await_old_memory(self) -> Iterator[Step]:
        if self.rank.container is not None and self.rank.ran:  # what was down before is left down
            yield self._old_memory(self.rank.container.container_id)

    def start_old(self) -> Iterator[Step]:
        yield from start_again(self.rank)

    def await_old_ready(self) -> Iterator[Step]:
        if self.rank.ran:
            yield self._old_ready()

    def restore_guard_first(self) -> Iterator[Step]:
        """None: the plan's own is over the same container."""
        return iter(())

    def settle_old(self) -> Iterator[Step]:
        yield from self._restored_guard()
        yield from policy_again(self.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingContainer(Existing):
    """A container that is stopped and started."""

    @property
    def guarded_id(self) -> str:
        return self.container.container_id

    @property
    def kept_id(self) -> str:
        return self.container.container_id

    def before_start(self) -> Iterator[Step]:
        yield from self._guard(serving=False)

    def start(self) -> Iterator[Step]:
        yield lifecycle.start(self.container, self.mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingService(Existing):
    """A service that is stopped and started; a container that it makes anew has its id only when it runs."""

    def start(self) -> Iterator[Step]:
        yield service_of(self.rank).start()


def existing(
    rank: RunningRank, *, wanted_bytes: int | None = None, limit_s: float = MEMORY_LIMIT_S
) -> ExistingContainer | ExistingService:
    """What starts the rank as it is.

    Args:
        wanted_bytes: memory to wait for as the operator has set it.
        limit_s: how long to wait for it.
    """
    target = memory_target(rank.engine, rank.view, wanted_bytes=wanted_bytes)
    assert target is not None  # inspect_ranks() has a sample of every node
    kind = ExistingService if rank.origin.is_service else ExistingContainer
    return kind(rank=rank, target=target, old_target=target, memory_limit_s=limit_s)


def start_again(rank: RunningRank) -> Iterator[Step]:
    """Rollback step: start it as it was; nothing where it didn't run, or is gone with its end (--rm)."""
    step = None
    if rank.origin.is_service:
        step = service_of(rank).start()
    elif rank.container is not None and rank.ran and not rank.container.auto_remove:
        step = lifecycle.start_again(rank.container, rank.mark)
    if step is not None:
        yield replace(step, id=f"back-start{rank.mark}")


def policy_again(rank: RunningRank) -> Iterator[Step]:
    """Rollback step: the restart policy as it was; a service's container gets its own from the service."""
    if rank.container is not None and rank.container.restarts and not rank.origin.is_service:
        yield replace(lifecycle.policy_back(rank.container, rank.mark), id=f"back-policy{rank.mark}")
