"""Judge of a wait for a started engine: its phase and progress, whether it answers, and why it never will. Pure.

What the picture shows may still be of the run before: Docker is asked every few seconds, and figures stay until the
next scrape. So only what belongs to the new run counts: a container started since, or processes that weren't there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.engines.ranks import other_ranks, rank_of
from sparktop.model.engine import RESTARTING_POLICIES, Container, Engine, EngineState, LogFacts
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView, Reach, has_rebooted_since
from sparktop.operate.step.act import Wait
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.step_result import Cause, StepResult, StepState
from sparktop.operate.step.wait import Since, WaitStatus, WaitVerdict, failed, met, waiting
from sparktop.text.units import span

FAILED_SILENT_S = 15.0
"""After a log line that says it failed: silent for so long, it has given up."""
LOG_READ_S = 30.0
"""A log is followed some seconds after its container is listed, later on a Spark or a laptop under load: by then the
reason of a quick end has been read."""
STUCK_S = 600.0
"""A load without news for so long is stuck: a compilation, or a shard from a slow disk, takes less."""
SETTLED_S = 10.0
"""After so long a list of containers is newer than the start."""
NOT_STARTED_S = 60.0
"""A container that nobody has started for so long waits for nothing."""
STARTED_WITHIN_S = 600.0
"""All ranks of one launch start within this time."""
HOST_GONE_S = 120.0
"""A node that nothing answers at for so long is taken for down, and the rank on it with it; a cable pulled and plugged
in again takes less."""
UP = (EngineState.READY, EngineState.SERVING)
_OVER = ("exited", "dead", "removing")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitReady(Wait):
    """Wait until this container's engine answers; reports its phases and counts."""

    name: str
    """The container's name; its id changes with a relaunch."""
    container_id: str = ""
    """For one specific container of that name: its full id, or the "{NAME}" under which an earlier step saved it."""
    is_worker: bool = False
    """A worker rank serves no HTTP: it is ready when it runs and its log says so, or when its head is ready."""
    any_run: bool = False
    """A container run from before the wait counts too (the rollback of a run that stopped nothing)."""
    together: tuple[tuple[str, str], ...] = ()
    """(node, container) of its other ranks: if one exits, all have failed."""
    longer: str = ""
    """How to allow more time, as the end of a sentence: reported when time is up."""

    @property
    def is_kept(self) -> bool:
        return True

    async def perform(self, hands: Hands) -> StepResult:
        result = await Wait.perform(self, hands)
        return replace(result, ready=self.name) if result.state is StepState.DONE else result

    def text(self) -> Iterator[str]:
        yield f"until {self.name} {'runs and its head answers' if self.is_worker else 'answers'}"

    def cause(self, node: str, picture: FleetState) -> Cause | None:
        return failure_cause(((node, self.name), *self.together), picture)

    def judge(self, picture: FleetState, node: str, since: Since) -> WaitStatus:
        """Met when the engine of this container answers in its new run; failed when that run has ended or says that it
        failed.

        While waiting, `late` says from its log whether it is slow or stuck, and which option gives it longer.
        """
        status = _status(self, picture, node, since)
        if status.verdict is not WaitVerdict.WAITING:
            return status
        view = picture.node(node)
        engine = engine_of(self.name, view) if view is not None else None
        late = "; ".join(filter(None, (_pace_text(engine, view), self.longer)))
        return replace(status, late=late)


def _status(act: AwaitReady, picture: FleetState, node: str, since: Since) -> WaitStatus:
    view = picture.node(node)
    if view is None:
        return waiting(f"waiting for new figures from {node}")
    if act.container_id and not _is_listed(act, view):
        return waiting("started; not seen running yet")
    container = container_of(act.name, view)
    engine = engine_of(act.name, view)
    if container is None and engine is not None:
        container = engine.container
    is_settled = picture.monotonic_s - since.began_monotonic_s >= SETTLED_S
    if container is not None and container.is_gone and not is_settled:  # perhaps the one that had the name before
        return waiting("started; not seen running yet")
    if not _is_new_run(container, engine, act, since):
        if container is not None and _nobody_starts_it(container, view, since):
            return failed("its container was not started: it is exited, and Docker doesn't start it by itself")
        waited_s = picture.monotonic_s - since.began_monotonic_s
        if container is None and engine and engine.state is EngineState.EXITED and waited_s >= NOT_STARTED_S:
            return failed("its process has not appeared since the start")
        return waiting("started; not seen running yet")
    if engine is not None and container is not None and is_of_old_run(engine, container):
        engine = None
    log = log_of_this_run(engine, container)
    if container is not None and (ending := end_text(container, engine, log, view, since.before)) is not None:
        is_over = has_reason(log) or ended_long_ago(container, view)
        return WaitStatus(verdict=WaitVerdict.FAILED if is_over else WaitVerdict.WAITING, detail=ending)
    if (rank_problem := _lost_rank_text(act, picture, since)) is not None:
        return failed(rank_problem)
    if engine is None:
        return waiting("its container runs; its engine has not appeared yet")
    if engine.state is EngineState.EXITED:
        return failed(with_reason(engine.exit_detail or "its process ended", log))
    if log is not None and log.failure and (engine.state in UP or is_silent(log, view)):
        return failed(with_reason("it still runs, but its log says that it failed", log))
    if engine.state in UP and _is_fresh(engine, since):
        return met(_ready_text(engine))
    if act.is_worker and _has_head_up(engine, view, picture, since):
        return met("its head answers")
    return _starting_status(engine, log)


def _nobody_starts_it(container: Container, view: NodeView, since: Since) -> bool:
    """Whether a list of containers asked for so long after the wait began, not one from before a silence, has it down,
    and Docker doesn't start it by itself."""
    listed_s = view.containers_at_s if view.containers.available else None
    is_down = container.status == "exited" and container.restart_policy.partition(":")[0] not in RESTARTING_POLICIES
    return is_down and listed_s is not None and listed_s - since.began_monotonic_s >= NOT_STARTED_S


def _is_listed(act: AwaitReady, view: NodeView) -> bool:
    """Whether the container with this id is listed under its name; another id is of another launch."""
    return any(
        container.name == act.name and container.container_id == act.container_id
        for container in view.containers.containers
    )


def has_reason(log: LogFacts | None) -> bool:
    """Whether the reason of its end has been read; the last lines arrive after the end is known."""
    return log is not None and bool(log.failure or log.critical_finding)


def ended_long_ago(container: Container, view: NodeView) -> bool:
    """Whether it ended so long ago that its log would have been read by now."""
    if view.sample is None or container.finished_wall_s is None:
        return True
    return view.sample.wall_s - container.finished_wall_s >= LOG_READ_S


def _lost_rank_text(act: AwaitReady, picture: FleetState, since: Since) -> str | None:
    """That another rank of the same launch has ended, or its node has: this one would wait for it forever."""
    waited_s = picture.monotonic_s - since.began_monotonic_s
    for node, name in act.together:
        view = picture.node(node)
        if view is not None and view.link.state is LinkState.LOST and view.link.reach is Reach.NO_HOST:
            gone_s = picture.monotonic_s - view.link.since_s
            if gone_s >= HOST_GONE_S:
                return f"its other rank's node, {node}, has been gone for {span(gone_s)}"
        container = container_of(name, view)
        if (
            view is None
            or view.sample is None
            or container is None
            or container.started_wall_s is None
            or waited_s < SETTLED_S
        ):
            continue
        if view.sample.wall_s - container.started_wall_s > waited_s + STARTED_WITHIN_S:
            continue  # that name, from an earlier launch: containers are listed some seconds late
        engine = engine_of(name, view)
        log = log_of_this_run(engine, container)
        if not has_reason(log) and not ended_long_ago(container, view):
            continue
        if (ending := end_text(container, engine, log, view, None)) is not None:
            return f"its other rank, {name} on {node}, is gone: {ending}"
    return None


def container_of(name: str, view: NodeView | None) -> Container | None:
    """The container of that name."""
    containers = view.containers.containers if view is not None else ()
    return next((candidate for candidate in containers if candidate.name == name), None)


def engine_of(name: str, view: NodeView) -> Engine | None:
    """The engine in the container of that name, a running one first; else one of that name without a container."""
    candidates = [
        engine for engine in view.engines if (engine.container.name if engine.container else engine.name) == name
    ]
    return min(candidates, key=lambda engine: engine.state is EngineState.EXITED, default=None)


def _is_new_run(container: Container | None, engine: Engine | None, act: AwaitReady, since: Since) -> bool:
    """Whether what is seen is of a run that began after the change, by the node's own stamps.

    With `any_run` a run from before counts too while it runs; an ended one is not counted until another is seen, as
    a list of containers may be some seconds old.
    """
    name = act.name
    old_engine = engine_of(name, since.before) if since.before else None
    if container is not None:
        old_container = container_of(name, since.before) or (old_engine.container if old_engine else None)
        if old_container is None:
            return container.status != "created"
        if (container.container_id, container.started_wall_s) != (
            old_container.container_id,
            old_container.started_wall_s,
        ):
            return True
        return act.any_run and old_container.status == container.status == "running"
    is_over = engine is not None and engine.state is EngineState.EXITED
    if engine is None or (is_over and old_engine is not None and engine.key == old_engine.key):
        return False
    return (
        act.any_run
        or old_engine is None
        or old_engine.state is EngineState.EXITED
        or not set(old_engine.pids) & set(engine.pids)
    )


def is_of_old_run(engine: Engine, container: Container) -> bool:
    """Whether the engine shown is still that of the run before: containers and engines are listed at different
    moments."""
    shown = engine.container
    return shown is not None and (shown.container_id, shown.started_wall_s) != (
        container.container_id,
        container.started_wall_s,
    )


def log_of_this_run(engine: Engine | None, container: Container | None) -> LogFacts | None:
    """Its log facts, unless its newest line is older than the container's start."""
    log = engine.log if engine else None
    if log is None or container is None or container.started_wall_s is None:
        return log
    return log if (log.last_line_wall_s or 0.0) >= container.started_wall_s - 1.0 else None


def end_text(
    container: Container, engine: Engine | None, log: LogFacts | None, view: NodeView, before: NodeView | None
) -> str | None:
    """How the container ended or restarts, with the reason from its log; None while it runs."""
    old_container = next(
        (
            candidate
            for candidate in (before.containers.containers if before else ())
            if candidate.container_id == container.container_id
        ),
        None,
    )
    if container.status == "restarting":
        return with_reason("its container is in a restart loop", log)
    if container.status in _OVER and has_rebooted_since(view, container.started_wall_s):
        return f"it ended with its node: {view.name} has rebooted since it started"
    if container.status in _OVER:
        ending = engine.exit_detail if engine and engine.exit_detail else f"ended with exit code {container.exit_code}"
        return with_reason(ending, log)
    if container.restart_count > 0 and (old_container is None or container.restart_count > old_container.restart_count):
        return with_reason(f"its restart policy has started it again {container.restart_count} times", log)
    return None


def with_reason(ending: str, log: LogFacts | None) -> str:
    """What is known about why it ended, how it ended, and the line that says why, else its first error line."""
    parts = []
    worst = log.critical_finding if log is not None else None
    error_line = log.failure if log is not None else ""
    if worst is not None and worst.evidence:  # vLLM's first error line says only that its core failed to start
        error_line = worst.evidence[0].text
    if worst is not None:
        parts.append(worst.title)
    parts.append(ending)
    if error_line:
        parts.append(f'its log: "{error_line[:200]}"')
    return "; ".join(parts)


def failure_cause(ranks: Iterable[tuple[str, str]], picture: FleetState) -> Cause | None:
    """What the log of an engine says of its end: of the first of its ranks, (node, name), that says it."""
    for rank_node, name in ranks:
        view = picture.node(rank_node)
        engine = engine_of(name, view) if view is not None else None
        log = log_of_this_run(engine, container_of(name, view) or (engine.container if engine else None))
        if engine is not None and log is not None and log.critical_finding is not None:
            return Cause(finding=_explained(log.critical_finding, rank_node, picture), engine=engine.kind)
    return None


def _explained(finding: Finding, node: str, picture: FleetState) -> Finding:
    """What the node's kernel log says of the cause of a finding of an engine's log, where it says it; else itself."""
    causes = kernel_line.explaining(finding.rule)
    firing = [other for other in picture.findings if other.phase is Phase.FIRING and node in other.nodes]
    return next((other for other in firing if other.rule in causes), finding)


def is_silent(log: LogFacts, view: NodeView) -> bool:
    now_s = view.sample.wall_s if view.sample else None
    return now_s is not None and now_s - (log.last_line_wall_s or 0.0) >= FAILED_SILENT_S


def _is_fresh(engine: Engine, since: Since) -> bool:
    """Whether its figures are of this run: figures from before the wait are of the run before."""
    return engine.metrics is None or engine.metrics.wall_s >= since.began_wall_s


def _has_head_up(engine: Engine, view: NodeView, picture: FleetState, since: Since) -> bool:
    """Whether the head rank answers: a worker has no figures of its own, and often no log."""
    ranks = other_ranks(rank_of(engine, view), picture)
    return any(rank.engine.state in UP and _is_fresh(rank.engine, since) for rank in ranks)


def _pace_text(engine: Engine | None, view: NodeView | None) -> str:
    """Whether a load still progresses, by the node's own stamps; empty where unknown."""
    log = log_of_this_run(engine, engine.container if engine else None)
    if log is None or log.moved_wall_s is None or view is None or view.sample is None:
        return ""
    stalled_s = max(0.0, view.sample.wall_s - log.moved_wall_s)
    silent_s = max(0.0, view.sample.wall_s - (log.last_line_wall_s or log.moved_wall_s))
    if stalled_s < STUCK_S:
        return f"its last progress was {span(stalled_s)} ago: slow, not stuck"
    if silent_s < STUCK_S:
        return f"it has made no progress for {span(stalled_s)}; its log goes on: read it"
    return (
        f"it has made no progress for {span(stalled_s)}; its log is silent: it is stuck rather than slow, "
        "and more time alone is unlikely to help"
    )


def _ready_text(engine: Engine) -> str:
    took = f" after {span(engine.uptime_s)}" if engine.uptime_s is not None else ""
    return f"answers{took}"


_DOING = {
    "compile": "compiling or profiling",  # with --enforce-eager it only profiles, and logs the same
    "autotune": "tuning kernels",
    "kv cache": "allocating the KV cache",
    "warm-up": "warming up",
}
"""Phase of a load, as engine_state.toml names it -> what the engine does, where that isn't loading."""


def _starting_status(engine: Engine, log: LogFacts | None) -> WaitStatus:
    """The status of an engine that is starting."""
    progress = engine.progress or (log.progress if log else None)
    phase = (progress.phase if progress else "") or (log.phase if log else "")
    words = {
        EngineState.LOADING: _DOING.get(phase) or f"loading {phase}".rstrip(),
        EngineState.CAPTURING: _DOING.get(phase) or "capturing graphs",
        EngineState.STARTING: f"starting{f', {phase}' if phase else ''}",
    }.get(engine.state, "running; its log is still empty")
    ratio = None
    if progress is not None and progress.total > 0:
        words += f" {progress.done}/{progress.total}"
        ratio = min(1.0, progress.done / progress.total)
    up = f", {span(engine.uptime_s)} so far" if engine.uptime_s is not None else ""
    return waiting(words + up, ratio)
