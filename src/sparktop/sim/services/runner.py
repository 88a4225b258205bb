"""The runner of a simulated Spark: `probe.runner` on a simulated machine.

Running steps belong to the node (`NodeSteps`), not to the connection: they go on when the console disconnects, and can
be queried on a later connection. A reboot ends them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import field
from typing import Any, NoReturn

from sparktop.dataclass import dataclass
from sparktop.probe.runner.journal import TOO_LATE, Unable
from sparktop.probe.runner.main import LEASE_S, PROTOCOL, Requests, fetches_only, outcome_line
from sparktop.probe.runner.program import start_problem
from sparktop.probe.runner.questions import (
    ANSWER_BYTES,
    NO_PROGRAM,
    TEXT_BYTES,
    answer_of,
    bounded,
    docker_answer,
    no_answer,
    output_answer,
)
from sparktop.sim.reaction import acts
from sparktop.sim.services import docker_api, programs
from sparktop.sim.services.answers import captured
from sparktop.sim.services.loads import Loads
from sparktop.sim.services.process import Departed, Machine, ProgramSession, Step
from sparktop.sim.services.runner_steps import Work
from sparktop.sim.spark import probe_lines, storage

Words = dict[str, Any]
Tell = Callable[[Words], None]
Spawn = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(slots=True)
class NodeSteps:
    """The steps under way on a node, whoever started them."""

    steps: dict[tuple[str, str], Step] = field(default_factory=dict)
    barred: set[tuple[str, str]] = field(default_factory=set)
    """Steps that were queried before they started: they will never start."""
    keys: dict[str, Step] = field(default_factory=dict)
    """Transfers under way, by key."""
    loads: Loads = field(default_factory=Loads)
    holder: Runner | None = None
    lock: Words = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        return any(step.is_running and step.holds_node for step in self.steps.values())


class Runner(Requests, ProgramSession):
    """One conversation; answers go out through `tell`."""

    def __init__(
        self, machine: Machine, bench: NodeSteps, *, tell: Tell, spawn: Spawn, digest: str, now_s: float,
        lease_s: float = LEASE_S,
    ) -> None:  # fmt: skip
        Requests.__init__(self)
        ProgramSession.__init__(self, machine.moment()[0], digest=digest, now_s=now_s, lease_s=lease_s)
        self._machine = machine
        self._bench = bench
        self._tell = tell
        self._spawn = spawn
        self._answering: dict[object, asyncio.Task[Any]] = {}
        """The questions that are being answered, by number."""
        self.is_gone = False

    def opening(self) -> bytes:
        machine = self.spark.script.machine
        hello = {
            "kind": "hello", "protocol": PROTOCOL, "pid": 21_402, "boot": self.spark.boot_id, "uid": machine.user_id,
            "user": machine.user, "digest": self.digest, "problem": "",
        }  # fmt: skip
        return json.dumps(hello).encode() + b"\n"

    def advance(self, t: float, now_s: float) -> bytes:
        if self.is_gone:
            raise Departed
        return super().advance(t, now_s)

    def close(self) -> None:
        """The connection closed; running steps go on, and lock the node until they end."""
        self.is_gone = True
        for step in self._bench.steps.values():
            step.listeners.clear()
        self._free_node()

    def tell(self, words: Words) -> None:
        self._tell(words)

    def leave(self, reason: str) -> NoReturn:
        raise Departed(reason)

    # The node's lock and the steps

    def lock_node(self, who: str, what: str, key: str) -> Words:
        bench, holder = self._bench, self._bench.holder
        if holder is not None and holder is not self and (bench.is_busy or not holder.is_gone):
            own = bool(key) and bench.lock.get("key") == key
            if bench.is_busy or not own:
                lock_info = {name: bench.lock.get(name) for name in ("who", "what", "since")}
                return {"held": False, **lock_info, "own": own}
            holder.is_gone = True
        spark, t = self._machine.moment()
        bench.holder = self
        bench.lock = {"who": who[:200], "what": what[:300], "since": round(spark.wall_s(t), 3), "key": key}
        self._machine.react(acts.hold())
        return {"held": True}

    def unlock_node(self) -> None:
        if self._bench.holder is self:
            self._bench.holder = None

    def _free_node(self) -> None:
        """Unlock the node once the connection that locked it, and its steps, are gone."""
        holder = self._bench.holder
        if holder is not None and holder.is_gone and not self._bench.is_busy:
            self._bench.holder = None

    def begin(self, number: object, run: str, step: str, request: Words) -> None:
        key, bench = (run, step), self._bench
        if key in bench.barred:
            raise Unable(TOO_LATE)
        boot_id = self._machine.moment()[0].boot_id
        if key in bench.steps:
            self._tell({"id": number, **bench.steps[key].outcome(boot_id)})
            return
        new_step = bench.steps[key] = Step(boot_id=boot_id, holds_node=not fetches_only(request["operations"]))
        new_step.listeners.append(lambda words: self._tell({"id": number, **words}))
        self._machine.react(acts.hold())
        self._spawn(self._work(request, new_step))

    async def _work(self, request: Words, step: Step) -> None:
        await Work(self._machine, request, step, self._bench.keys).carry_out()
        step.tell(step.outcome(self._machine.moment()[0].boot_id))
        self._free_node()

    def outcome(self, run: str, step: str, *, ends: bool = False) -> Words:
        begun_step = self._bench.steps.get((run, step))
        if begun_step is None:
            self._bench.barred.add((run, step))
            return outcome_line({"state": "not started"})
        begun_step.is_ending |= ends
        return begun_step.outcome(self._machine.moment()[0].boot_id)

    # Questions

    def ask(self, request: Words) -> None:
        self._machine.react(acts.hold())  # a planned change must find the state that was shown
        self._spawn(self._answer(request))

    def drop(self, number: object) -> None:
        if (answering := self._answering.get(number)) is not None:
            answering.cancel()

    async def _answer(self, request: Words) -> None:
        number = request.get("id")
        if (task := asyncio.current_task()) is not None:
            self._answering[number] = task
        try:
            for words in await self._answer_lines(request):
                self._tell({"id": number, **words})
        finally:
            self._answering.pop(number, None)

    async def _answer_lines(self, request: Words) -> list[Words]:
        spark, t = self._machine.moment()
        if "get" in request:
            return await self._docker_answer(request["get"])
        if "output" in request:
            return await self._program_answer(request["output"])
        if "file" in request:
            path = str(request["file"]["path"])
            answer = captured(spark.script, path)
            is_there = answer is not None and not answer.is_missing
            text = answer.output if answer is not None and is_there else probe_lines.text(spark, t, path)
            text = self._bench.loads.counter(path) or text
            if text is None:
                return no_answer()
            data, is_cut = _cut(text.encode(), request["file"])
            return answer_of(data, cut=is_cut)
        if "note" in request or "notes" in request:
            return answer_of(b"[]")  # a demo has one console, and its audit
        if "models" in request or "hub" in request:
            words = storage.hub_answer(request["hub"]) if "hub" in request else storage.models_answer(spark)
            await self._machine.rest(0.4)
            return answer_of(json.dumps(words).encode())
        return [{
            "kind": "privileges", "is_root": False, "user": spark.script.machine.user, "docker": "open",
            "sudo": "free", "sudo_rules": ["ALL"], "has_compose": True,
        }]  # fmt: skip

    async def _docker_answer(self, words: Words) -> list[Words]:
        answer = await docker_api.ask(self._machine, "GET", str(words["path"]))
        body, is_cut = _cut(answer.body, words, ANSWER_BYTES)
        return docker_answer(answer.status, answer.content_type, body, cut=is_cut, is_tail=bool(words.get("from_end")))

    async def _program_answer(self, words: Words) -> list[Words]:
        spark, t = self._machine.moment()
        argv = [str(word) for word in words["argv"]]
        ran = await self._bench.loads.run(self._machine, argv) or programs.run(spark, t, argv)
        if ran is None:
            return no_answer(start_problem(argv, FileNotFoundError()), code=NO_PROGRAM)
        await self._machine.rest(ran.seconds)
        said, is_cut = _cut(ran.output.encode(), words)
        return output_answer(argv, ran.code, said, ran.errors.encode(), seconds=ran.seconds, cut=is_cut)


def _cut(data: bytes, words: Words, usual: int = TEXT_BYTES) -> tuple[bytes, bool]:
    """(as much of an answer as the question wants, whether there was more)."""
    limit = bounded(words, usual)
    return (data[-limit:] if words.get("from_end") else data[:limit]), len(data) > limit
