"""An operating side that does nothing: plans as a test wants them, and runs that go as far as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from sparktop.model.bringup import Changed
from sparktop.model.operation import Command, DockerCall, Expect, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Answer, Question
from sparktop.operate.acts.arrivals import AwaitResolved
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.audit.interrupted_runs import InterruptedRun
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.run.operating import OnChange
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.step.plan import Difference, OnFailure, Plan, Refusal, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState

GIB = 1024**3
WALL_S = 1_779_937_964.0
ID = "3f1c9a04d2be".ljust(64, "0")
HOSTILE = "a[/x] $(reboot) 'q\" \x1b]52;c;UFdORUQ=\x07 -rf \u202eevil"


def drop(request: Request) -> Plan:
    """Drop caches, as the planner of it would have it."""
    steps = []
    for node in request.nodes:
        steps += [
            Step(id=f"sync@{node}", title="Write dirty pages back", node=node, limit_s=120,
                 act=Remote(operations=(Command(argv=("/usr/bin/sync",), limit_s=110),))),
            Step(id=f"drop@{node}", title="Drop the page cache", node=node, limit_s=30,
                 act=Remote(operations=(Command(argv=("/usr/sbin/sysctl", "-w", "vm.drop_caches=3"),
                                                privilege=Privilege.ROOT, limit_s=20),)),
                 verifies="the page cache is smaller"),
        ]  # fmt: skip
    return Plan(
        request=request,
        title=f"Drop caches on {' and '.join(request.nodes)}",
        risk=Risk.SAFE,
        steps=tuple(steps),
        effect="9.1 GiB of page cache become free memory. Files are read from disk again.",
        warnings=("It releases no leaked GPU memory; engines' own checks read MemAvailable, which counts the cache.",),
        equivalent=tuple(f"on {node}: sync; sudo sysctl -w vm.drop_caches=3" for node in request.nodes),
    )  # fmt: skip


def restart(request: Request) -> Plan:
    """A safe restart of one engine on one node."""
    node, name = request.nodes[0], request.target
    running = Expect(path=f"/containers/{ID}/json", equals={"State.Running": True})
    steps = (
        Step(id="evidence", title="Collect evidence", node=node, act=CollectEvidence(nodes=(node,)), limit_s=60,
             on_failure=OnFailure.GO_ON),
        Step(id="policy", title="Switch the restart policy off", node=node, limit_s=15,
             act=Remote(operations=(running, DockerCall(method="POST", path=f"/containers/{ID}/update",
                                                        body={"RestartPolicy": {"Name": "no"}})),
                        reverse="policy back")),
        Step(id="stop", title=f"Stop {name}, 60 s grace", node=node, limit_s=90, verifies="it is not running",
             act=Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop", query={"t": "60"},
                                               limit_s=80),))),
        Step(id="memory", title="Wait until 108 GiB are available", node=node, limit_s=300,
             act=AwaitMemory(target_bytes=108 * GIB)),
        Step(id="start", title=f"Start {name}", node=node, limit_s=30, verifies="it runs",
             act=Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/start"),))),
        Step(id="ready", title="Wait until it answers", node=node, limit_s=900, act=AwaitReady(name=name)),
        Step(id="smoke", title="Send one request, with the guard armed", node=node, limit_s=120,
             act=SmokeTest(engine=name, floor_bytes=4 * GIB)),
        Step(id="policy-back", title="Restart policy back to unless-stopped", node=node, limit_s=15,
             act=Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/update",
                                               body={"RestartPolicy": {"Name": "unless-stopped"}}),))),
    )  # fmt: skip
    return Plan(
        request=request,
        title=f"Safe restart of {name} on {' and '.join(request.nodes)}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        rollback=(replace(steps[-1], id="back"),),
        effect="The engine is down for some 5 minutes: 40 s to stop, up to 5 min for its memory, 4 min to load.",
        warnings=("The 3 requests that it holds are lost.",),
        equivalent=(f"docker update --restart=no {name}", f"docker stop -t 60 {name}", f"docker start {name}",
                    f"docker update --restart=unless-stopped {name}"),
    )  # fmt: skip


def relaunch(request: Request) -> Plan:
    """A relaunch with the change that was asked for."""
    node, name = request.nodes[0], request.target
    asked = [
        Difference(what="flag", name=flag, before="0.82", after=value) for flag, value in request.change.flags.items()
    ]
    asked += [
        Difference(what="environment", name=variable, before=None, after=value)
        for variable, value in request.change.environment.items()
    ]
    swap = (
        DockerCall(method="POST", path=f"/containers/{ID}/rename", query={"name": f"{name}.old"}),
        DockerCall(method="POST", path="/containers/create", query={"name": name}, saves="new",
                   body={"Env": ["A=1"] * 90}),
        DockerCall(method="POST", path="/containers/{new}/start"),
    )  # fmt: skip
    return Plan(
        request=request,
        title=f"Relaunch {name} on {node} with a change",
        risk=Risk.DISRUPTIVE,
        steps=(
            Step(id="swap", title=f"Replace {name}, the old container kept", node=node, limit_s=120,
                 act=Remote(operations=swap, reverse="the old container gets its name back and is started"),
                 on_failure=OnFailure.ROLL_BACK),
            Step(id="ready", title="Wait until it answers", node=node, limit_s=900, act=AwaitReady(name=name)),
            Step(id="resolved", title="See the finding resolve", node=node, limit_s=120,
                 act=AwaitResolved(findings=(("gpu.spin-deadlock", (node,), ""),))),
        ),
        effect="The same container with the change, from the same image. The old one is kept until the new one serves.",
        warnings=("12 files in the writable layer are lost; docker commit keeps them.",),
        differences=tuple(asked),
        equivalent=(" ".join(("docker run -d --name vllm --gpus all vllm/vllm-openai serve --max-model-len 131072",
                              "--gpu-memory-utilization 0.7 --tensor-parallel-size 2 --api-key hunter2hunter2")),),
        secrets=("hunter2hunter2",),
    )  # fmt: skip


def reboot(request: Request) -> Plan:
    """What wants the node's name typed."""
    node = request.nodes[0]
    return Plan(
        request=request,
        title=f"Reboot {node}",
        risk=Risk.DESTRUCTIVE,
        steps=(Step(id="reboot", title=f"Reboot {node}", node=node, limit_s=60,
                    act=Remote(operations=(Command(argv=("/usr/bin/systemctl", "reboot"),
                                                   privilege=Privilege.ROOT),))),),
        effect="The machine is away for some two minutes.",
        warnings=("ada is logged in on tty2.", "vllm-minimax runs and holds 3 requests."),
        typed=node,
    )  # fmt: skip


def hostile(request: Request) -> Plan:
    """Every text of it attacks the terminal, the shell or the markup."""
    call = DockerCall(method="POST", path=f"/x/{HOSTILE}", body={HOSTILE: HOSTILE})
    act = Remote(operations=(Command(argv=("echo", "--", HOSTILE)), call), reverse=HOSTILE)
    step = Step(id="x", title=HOSTILE, node=HOSTILE, verifies=HOSTILE, act=act)
    return Plan(request=request, title=HOSTILE, risk=Risk.DISRUPTIVE, steps=(step,), rollback=(step,), effect=HOSTILE,
                warnings=(HOSTILE,), equivalent=(HOSTILE,), typed="",
                differences=(Difference(what="flag", name=HOSTILE, before=HOSTILE, after=HOSTILE),))  # fmt: skip


PLANS: dict[str, Callable[[Request], Plan]] = {
    "drop-caches": drop,
    "safe-restart": restart,
    "relaunch": relaunch,
    "reboot": reboot,
}


class FakeExecution:
    """A run that moves when a test says so."""

    def __init__(self, plan: Plan, changed: OnChange, number: int = 1) -> None:
        self._changed = changed
        self._over = asyncio.Event()
        self.aborted = 0
        self.run = Run(
            id=f"20260528T031244-{number:06}",
            plan=plan,
            steps=tuple(StepRun(step=step) for step in plan.steps),
            before={node: {"available_gib": 45.4, "cache_gib": 9.1} for node in plan.nodes},
        )

    def abort(self) -> None:
        self.aborted += 1
        self._set(state=RunState.ABORTING)

    async def finished(self) -> Run:
        await self._over.wait()
        return self.run

    def at(self, index: int, detail: str = "", ratio: float | None = None, now_s: float = 84.0) -> None:
        """The step of that index runs, those before it are done."""
        steps = []
        for number, one in enumerate(self.run.steps):
            if number < index:
                began, ended = WALL_S + number * 4, WALL_S + number * 4 + 4
                one = replace(one, state=StepState.DONE, began_wall_s=began, ended_wall_s=ended, ratio=None)
            elif number == index:
                one = replace(
                    one, state=StepState.RUNNING, began_wall_s=WALL_S + number * 4, detail=detail, ratio=ratio
                )
            steps.append(one)
        self._set(steps=tuple(steps))

    def end(self, state: RunState, failed_at: int | None = None, **more: object) -> None:
        """Over, all done, or failed at a step."""
        steps = []
        for number, one in enumerate(self.run.steps):
            if failed_at is None or number < failed_at:
                told = StepState.DONE
            else:
                told = StepState.FAILED if number == failed_at else StepState.SKIPPED
            begun = told is not StepState.SKIPPED
            steps.append(
                replace(
                    one,
                    state=told,
                    ratio=None,
                    began_wall_s=WALL_S + number * 9 if begun else None,
                    ended_wall_s=WALL_S + number * 9 + 9 if begun else None,
                )
            )
        self._over.set()
        self._set(steps=tuple(steps), state=state, **more)

    def _set(self, **more: object) -> None:
        self.run = replace(self.run, **more)  # type: ignore[arg-type]
        self._changed(self.run)


class FakeOperating:
    """Remembers what was asked and started."""

    def __init__(self, *, is_read_only: bool = False) -> None:
        self.is_read_only = is_read_only
        self.executions: tuple[FakeExecution, ...] = ()
        self.asked: list[Request] = []
        self.answer: Callable[[Request], Plan | Refusal] | None = None
        self.gate: asyncio.Event | None = None
        """Planning takes until this is set."""
        self.secret: AskSecret | None = None
        self.failure: Exception | None = None
        self.begins_at: tuple[int, str, float | None] = (0, "", None)
        """Where a run that is started is at: step, detail, ratio."""
        self.left: tuple[InterruptedRun, ...] = ()
        self.was_read: list[str] = []
        self.answers: Callable[[Sequence[Question]], Awaitable[Mapping[Question, Answer]]] | None = None

    changed: tuple[Changed, ...] = ()
    """What its audit would say was changed."""

    async def interrupted_runs(self) -> tuple[InterruptedRun, ...]:
        return self.left

    async def changes(self, nodes: Collection[str]) -> tuple[Changed, ...]:
        return self.changed

    def read(self, run_id: str) -> None:
        self.was_read.append(run_id)

    async def ask(self, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        return (
            await self.answers(questions)
            if self.answers
            else {ask: Answer(problem="not asked here") for ask in questions}
        )

    async def plan(self, request: Request) -> Plan | Refusal:
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            return self.answer(request)
        made = PLANS.get(request.action)
        return made(request) if made else Refusal(request=request, reason=f"{request.action} is not planned here")

    def start(self, plan: Plan, *, secret: AskSecret, changed: OnChange) -> FakeExecution:
        self.secret = secret
        execution = FakeExecution(plan, changed, len(self.executions) + 1)
        self.executions = (*self.executions, execution)
        execution.at(*self.begins_at)
        return execution

    def rollback(self, run: Run) -> Plan | None:
        if not run.can_go_back:
            return None
        return replace(run.plan, title=f"Way back of {run.plan.title}", steps=run.plan.rollback, rollback=())
