"""The last check of a plan that promised a served engine: whether it is so now."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.dataclass import dataclass
from sparktop.errors import TransportError
from sparktop.model.engine import Container, EndpointState, Engine, EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.operate.acts.readiness import (
    UP,
    container_of,
    end_text,
    ended_long_ago,
    engine_of,
    failure_cause,
    has_reason,
    is_of_old_run,
    log_of_this_run,
    with_reason,
)
from sparktop.operate.acts.request import answer
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.node_lock import RETRY_S, NoLine
from sparktop.operate.step.run_context import Picture
from sparktop.operate.step.step_result import Cause, StepResult, StepState
from sparktop.operate.step.wait import Since, WaitStatus, failed, met, waiting
from sparktop.transport.endpoint import Reply

_ANSWERED = (EndpointState.OK, EndpointState.NOT_METRICS, EndpointState.NO_METRICS, EndpointState.NO_FIGURES)
"""Any answer in HTTP: figures are not the question here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitServing(Act):
    """Check that this engine still is what the plan promised: running since it became ready, and answering."""

    name: str
    """As in AwaitReady, like the next two."""
    container_id: str = ""
    is_worker: bool = False

    @property
    def is_kept(self) -> bool:
        return True

    @property
    def is_check(self) -> bool:
        return True

    async def perform(self, hands: Hands) -> StepResult:
        """Ask the engine, then judge its answer with what is read of the node from now on."""
        reply = None
        if not self.is_worker:
            try:
                reply = await self._reply(hands)
            except NoLine as no_line:
                detail = f"{no_line}: whether {self.name} still serves is not known"
                return StepResult(state=StepState.UNKNOWN, detail=detail)
        return await hands.wait(
            lambda picture, since: self.judge(picture, hands.node, since, reply),
            before=hands.ready_views.get((hands.node, self.name)),
            silence=StepState.UNKNOWN,
        )

    async def request(self, line: NodeLine, picture: Picture, node: str) -> Reply:
        """What its endpoint answers now; raises LinkLost where the connection ended."""
        return await answer(line, picture, node, self.name)

    async def _reply(self, hands: Hands) -> Reply:
        """The engine's answer, asked for again on each new connection."""
        clock = hands.context.clock
        until_s = clock.monotonic() + hands.context.link_patience_s
        while True:
            line = await hands.line(patience_s=max(0.0, until_s - clock.monotonic()))
            try:
                return await hands.abort.unless(self.request(line, hands.picture, hands.node))
            except TransportError as error:
                hands.tell(error.message, None, error.message)
                if clock.monotonic() >= until_s:
                    raise NoLine(error.message) from error
                await hands.context.pause(RETRY_S)

    def text(self) -> Iterator[str]:
        yield f"{self.name} still runs, not restarted since it was ready{'' if self.is_worker else ', and answers'}"

    def cause(self, node: str, picture: FleetState) -> Cause | None:
        return failure_cause(((node, self.name),), picture)

    def judge(self, picture: FleetState, node: str, since: Since, reply: Reply | None = None) -> WaitStatus:
        """Met when it runs, not restarted since it was ready, by what was read since the check began, and has answered.

        Args:
            since: `before` is the node as it was when the engine became ready.
            reply: the answer of its endpoint; None for a worker, which has none.
        """
        view = picture.node(node)
        if view is None or not since.available:
            return waiting(f"waiting for new figures from {node}")
        before = since.before
        expected = container_of(self.name, before)
        engine = engine_of(self.name, view)
        if expected is not None:
            status = _container_status(self, expected, view, since)
            container = container_of(self.name, view)
            if engine is not None and container is not None and is_of_old_run(engine, container):
                engine = None
        else:
            status = _process_status(engine, engine_of(self.name, before) if before is not None else None, view, since)
        if status is not None:
            return status
        if self.is_worker:
            return met("still runs, not restarted since it was ready")
        if reply is not None and reply.state is not EndpointState.NOT_ASKED and reply.state not in _ANSWERED:
            return failed(f"it runs, but no longer answers: {reply.detail}")
        if engine is None or engine.state not in UP:
            return waiting(f"it runs; its state is {engine.state.value if engine is not None else 'not known yet'}")
        if reply is None or reply.state is EndpointState.NOT_ASKED:
            return met("still runs, not restarted since it was ready; it has no endpoint to ask")
        return met("answers, not restarted since it was ready")


def _container_status(act: AwaitServing, expected: Container, view: NodeView, since: Since) -> WaitStatus | None:
    """Why its container isn't what became ready, or isn't known to be; None where it is."""
    if view.containers_at_s is None or view.containers_at_s < since.began_monotonic_s:
        return waiting(f"asking Docker on {view.name}")
    if not view.containers.available:
        return waiting(f"Docker on {view.name} doesn't list its containers: {view.containers.detail}")
    container = next(
        (listed for listed in view.containers.containers if listed.container_id == expected.container_id), None
    )
    if container is None or container.is_gone:
        return failed("it was ready, then its container was removed")
    engine = engine_of(act.name, view)
    if engine is not None and is_of_old_run(engine, container):
        engine = None
    log = log_of_this_run(engine, container)
    if (ending := end_text(container, engine, log, view, since.before)) is not None:
        text = f"it was ready, then ended: {ending}"
        return failed(text) if has_reason(log) or ended_long_ago(container, view) else waiting(text)
    if container.status != "running":
        return failed(f"it was ready; its container is now {container.status}")
    if container.started_wall_s != expected.started_wall_s:
        return failed("it was ready, ended, and was started again")
    if log is not None and log.failure:
        return failed(with_reason("it runs, but its log says that it failed", log))
    return None


def _process_status(engine: Engine | None, expected: Engine | None, view: NodeView, since: Since) -> WaitStatus | None:
    """The same of an engine in no container."""
    table = view.processes
    if table is None or table.boot_s < since.available[0][0]:
        return waiting("waiting for a new process list")
    pids = {process.pid for process in table.processes if process.state not in ("Z", "X")}
    if expected is not None and not pids & set(expected.pids):
        ended = engine is not None and engine.state is EngineState.EXITED and engine.exit_detail
        return failed(f"it was ready, then its processes ended{f': {ended}' if ended else ''}")
    return None
