"""The real operating side over a scenario that is played without real time: planners, executor, the runner's line.

    acting = Acting(Stage("spin-deadlock").run(120), tmp_path)
    run = await acting.fix(rule="gpu.spin-deadlock", action="safe-restart")
    assert run.state is RunState.DONE

What carries a change out is `operate.operations`; its lines are the real `RunnerLine`, and at their other end is the
simulated Spark's runner. Whoever waits moves the stage's clock. Only the first request and the archive of evidence are
the tests' own: the one needs sockets, the other a disk.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from tests.bringup_support import OWN_KEY
from tests.scenario_support import Stage

from sparktop.errors import AuthRefused, LinkLost
from sparktop.model.engine import EndpointState, EngineState
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import Contact, LoginMethod, Reach
from sparktop.model.request import Request
from sparktop.model.survey import PublicKey
from sparktop.operate.actions import ACTIONS, Action
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.audit.interventions import Interventions
from sparktop.operate.audit_file import Audit
from sparktop.operate.evidence.archive import WrittenArchive
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.operations import Operations
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.runner.client import RunnerLine
from sparktop.operate.step.act import Act as PlanAct
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run
from sparktop.operate.step.run_context import Picture, Progress
from sparktop.operate.step.step_result import RequestResult
from sparktop.operate.targets import remedy_choices
from sparktop.probe import bundle
from sparktop.sim.reaction.acts import Act
from sparktop.sim.services import engine_api, http
from sparktop.sim.services.process import Departed, Machine
from sparktop.sim.services.runner import NodeSteps, Runner
from sparktop.sim.services.ssh_files import accepts
from sparktop.sim.spark.spark import Spark
from sparktop.transport.base import Transport
from sparktop.transport.endpoint import Reply

STEP_S = 0.25


class StageClock:
    """Waiting on a stage: whoever waits moves the clock, a little at a time, and lets others have their turn."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def rest(self, seconds: float) -> None:
        until_s = self.stage.t + seconds
        await self._turns()
        while self.stage.t < until_s - 1e-9:
            self.stage.run(min(until_s, self.stage.t + STEP_S))
            await self._turns()

    @staticmethod
    async def _turns() -> None:
        for _ in range(8):
            await asyncio.sleep(0)


class StageMachine:
    """One node of the stage, as the simulator's runner wants it."""

    def __init__(self, clock: StageClock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._bench: tuple[str, NodeSteps] = ("", NodeSteps())

    def moment(self) -> tuple[Spark, float]:
        return self._clock.stage.spark(self._name)

    async def rest(self, seconds: float) -> None:
        await self._clock.rest(seconds)

    def react(self, act: Act) -> None:
        self._clock.stage.do(act, self._name)

    def bench(self) -> NodeSteps:
        boot_id = self.moment()[0].boot_id
        if self._bench[0] != boot_id:
            self._bench = (boot_id, NodeSteps())
        return self._bench[1]


class StageChannel:
    """The channel of a runner on a node of the stage."""

    def __init__(self, machine: StageMachine, launch: bundle.Launch) -> None:
        self._machine = machine
        self._boot_id = machine.moment()[0].boot_id
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._launch = launch
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner = Runner(machine, machine.bench(), tell=self._tell, spawn=self._spawn, digest="", now_s=0.0)

    def _tell(self, words: Mapping[str, Any]) -> None:
        self._out.put_nowait(json.dumps(words).encode() + b"\n")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def write(self, data: bytes) -> None:
        if self._machine.moment()[0].boot_id != self._boot_id:
            self._out.put_nowait(b"")
            raise LinkLost("the connection ended")
        if data == self._launch.payload:
            self._out.put_nowait(f"SPARKTOP {self._launch.nonce}\n".encode())
            self._out.put_nowait(self._runner.opening())
            return
        try:
            self._runner.hear(data, 0.0)
        except Departed:
            self._out.put_nowait(b"")

    async def read(self, limit: int = 65536) -> bytes:
        return await self._out.get()

    def error_tail(self) -> str:
        return ""

    async def exit_status(self) -> int | None:
        return None

    async def close(self) -> None:
        self._runner.close()
        self._out.put_nowait(b"")


class StageConnector:
    """Logs in at a node of the stage with the operator's own key, as its authorized_keys permits."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.name = name
        self._stage = stage

    @property
    def contact(self) -> Contact:
        view = self._stage.picture.node(self.name)
        return view.link.contact if view is not None else Contact()

    async def own_keys(self) -> tuple[PublicKey, ...]:
        return (OWN_KEY,)

    async def log_in_with(self, key: PublicKey) -> None:
        if not accepts(self._stage.spark(self.name)[0].script, f"{key.algorithm} {key.blob}"):
            raise AuthRefused(f"{self.name} rejected every login method")
        node = next(one for one in self._stage.nodes if one.name == self.name)
        node.book.contact(replace(self.contact, login=LoginMethod.KEY))

    async def connect(self, *, patience_s: float) -> Transport:
        raise AssertionError("the stage has no sockets")

    async def reach(self) -> tuple[Reach, str]:
        return Reach.ANSWERS, "it answers"


class StageLines:
    """Lines to all nodes; one that has booted anew gets another as soon as it answers."""

    def __init__(self, clock: StageClock) -> None:
        self._clock = clock
        self._machines = {node.name: StageMachine(clock, node.name) for node in clock.stage.nodes}
        self._open: dict[str, tuple[str, RunnerLine]] = {}
        self._begun: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._machines)

    def machine(self, node: str) -> StageMachine:
        return self._machines[node]

    def line(self, node: str) -> NodeLine | None:
        known = self._open.get(node)
        return known[1] if known is not None and known[0] == self._machines[node].moment()[0].boot_id else None

    async def wait(self, node: str) -> NodeLine:
        while True:
            machine = self._machines[node]
            if self._answers(node):
                launch = bundle.launch_runner()
                transport = cast("Transport", _OneChannel(StageChannel(machine, launch)))
                line = await RunnerLine.open(
                    node, transport, key="mine", begun=self._begun.setdefault(node, {}), launch=launch
                )
                self._open[node] = (machine.moment()[0].boot_id, line)
                return line
            await self._clock.rest(1.0)

    def problem(self, node: str) -> str:
        return ""

    def _answers(self, node: str) -> bool:
        spark, t = self._machines[node].moment()
        return not any(one.start_s <= t < one.end_s for one in spark.script.faults if one.once)

    async def aclose(self) -> None:
        for _, line in self._open.values():
            await line.close()


@dataclass(frozen=True, slots=True)
class _OneChannel:
    channel: StageChannel

    async def run(self, argv: Sequence[str]) -> StageChannel:
        return self.channel


class _Smoke(SmokeTest):
    """The first request goes to the simulated endpoint itself."""

    stage: Acting

    async def request(self, line: NodeLine, picture: Picture, node: str, progress: Progress) -> RequestResult:
        view = picture().node(node)
        assert view is not None
        port = next(one.endpoint.port for one in view.engines if self.engine in (one.name, one.key) and one.endpoint)
        body = json.dumps({"messages": [], "max_tokens": 4}).encode()
        request = http.HttpRequest(method="POST", path="/v1/chat/completions", query={}, body=body)
        machine = self.stage.lines.machine(node)
        asking = asyncio.ensure_future(_streamed(machine, port, request))
        try:
            for _ in range(240):
                await self.stage.clock.rest(0.25)
                sample = picture().node(node)
                assert sample is not None
                if sample.sample is not None and sample.sample.memory.available_bytes < self.floor_bytes:
                    return RequestResult(ok=False, detail="available memory fell below the floor")
                if asking.done():
                    return RequestResult(ok=asking.result(), detail="it serves")
            return RequestResult(ok=False, detail="no token came")
        except ConnectionResetError as error:
            return RequestResult(ok=False, detail=str(error))
        finally:
            asking.cancel()


class _Serving(AwaitServing):
    async def request(self, line: NodeLine, picture: Picture, node: str) -> Reply:
        view = picture().node(node)
        engines = view.engines if view is not None else ()
        runs = any(self.name in (one.name, one.key) and one.state is not EngineState.EXITED for one in engines)
        return Reply(state=EndpointState.OK if runs else EndpointState.REFUSED, detail="asked on the stage")


class _Collect(CollectEvidence):
    async def archive(self, hands: Hands) -> WrittenArchive:
        return WrittenArchive(path=Path("evidence.tar.gz"), problems=())


def _stand_in(act: PlanAct, stage: Acting) -> PlanAct:
    fake = next((fake for fake in (_Smoke, _Serving, _Collect) if type(act) is fake.__bases__[0]), None)
    if fake is None:
        return act
    stands: Any = fake(**{field.name: getattr(act, field.name) for field in fields(act)})
    object.__setattr__(stands, "stage", stage)
    return stands  # type: ignore[no-any-return]


async def _streamed(machine: Machine, port: int, request: http.HttpRequest) -> bool:
    """Whether the engine streams its whole answer."""
    answer = await engine_api.answer_completion(machine, port, request)
    assert answer.stream is not None
    async for _ in answer.stream:
        pass
    return answer.status == 200


class Acting:
    """An operator at the stage."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.clock = StageClock(stage)
        self.lines = StageLines(self.clock)
        self.operations = Operations(
            picture=lambda: stage.picture,
            lines=self.lines,
            audit=Audit(folder / "audit.jsonl", clock=stage.clock),
            clock=stage.clock,
            pause=self.clock.rest,
            tell=self._tell,
            stand_in=lambda act: _stand_in(act, self),
            evidence_folder=folder / "evidence",
            connectors=[StageConnector(stage, node) for node in self.lines.names],
        )
        stage.interventions = Interventions(folder / "audit.jsonl", monotonic=stage.clock.monotonic)
        self.told: list[Run] = []

    def _tell(self, node: str, words: Mapping[str, object]) -> bool:
        return next(one for one in self.stage.nodes if one.name == node).hear(words)

    def requests(self, finding: Finding, remedy: Remedy) -> tuple[Request, ...]:
        """What `f` offers to ask for."""
        return tuple(
            one.request for one in remedy_choices(action(remedy.action or ""), remedy, finding, self.stage.picture)
        )

    async def plan(self, request: Request) -> Plan | Refusal:
        """What would be done."""
        for node in self.stage.nodes:
            if self.lines.line(node.name) is None:
                await self.lines.wait(node.name)
        return await self.operations.plan(request)

    async def run(self, plan: Plan, *, abort: Callable[[Run], bool] = lambda run: False) -> Run:
        """Carry it out to its end."""

        async def secret(node: str, wrong: int) -> str | None:
            raise AssertionError("a password is asked for")

        execution = self.operations.start(plan, secret=secret, changed=self.told.append)
        finished = asyncio.ensure_future(execution.finished())
        while not finished.done():
            if abort(execution.run):
                execution.abort()
            await asyncio.sleep(0)
        return finished.result()

    async def aclose(self) -> None:
        await self.operations.aclose()
        await self.lines.aclose()


def action(name: str) -> Action:
    """An action that a remedy names."""
    return next(one for one in ACTIONS if one.name == name)
