"""The runner of a simulated Spark: carries out the console's changes, by the protocol that probe/runner.py tells of.

What has been begun is the node's (`Bench`), not the line's: it goes on when the console is gone, and can be asked
about on another line. A reboot takes it, as it takes what lies in memory.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from sparktop.probe.runner import LEASE_S, PROTOCOL
from sparktop.probe.runner_docker import said_by_docker, unframed
from sparktop.sim import acts, commands, disk, dockerd, procfs
from sparktop.sim.begun import Machine, Step
from sparktop.sim.fetching import is_fetch
from sparktop.sim.http import Request
from sparktop.sim.steps import NO_PROGRAM, Work

INPUT_BYTES = 8 << 20
ANSWER_BYTES = 256 * 1024
_CHUNK = 16 * 1024
_QUESTIONS = ("privileges", "get", "output", "file", "models", "hub")
_encode = json.JSONEncoder(separators=(",", ":")).encode

Tell = Callable[[dict[str, Any]], None]
Spawn = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(slots=True)
class Bench:
    """What is under way on a node, whoever began it."""

    steps: dict[tuple[str, str], Step] = field(default_factory=dict)
    barred: set[tuple[str, str]] = field(default_factory=set)
    """Asked about before they were begun: they never will be."""
    keys: dict[str, Step] = field(default_factory=dict)
    """Transfers, by what they are."""
    holder: Runner | None = None
    lock: dict[str, Any] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        return any(step.end is None and step.holds_node for step in self.steps.values())


class Departed(Exception):
    """The conversation is over; a bye says why where there is a reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Runner:
    """One conversation: `hear` takes what the console sent, answers go out through `tell`."""

    def __init__(
        self, machine: Machine, bench: Bench, *, tell: Tell, spawn: Spawn, digest: str, now_s: float,
        lease_s: float = LEASE_S,
    ) -> None:  # fmt: skip
        self._machine = machine
        self._bench = bench
        self._tell = tell
        self._spawn = spawn
        self._digest = digest
        self._lease_s = lease_s
        self._heard_s = now_s
        self._input = b""
        self.is_gone = False

    def opening(self) -> dict[str, Any]:
        """The first line: who this is."""
        spark, _ = self._machine.moment()
        machine = spark.script.machine
        return {
            "kind": "hello", "protocol": PROTOCOL, "pid": 21_402, "boot": spark.boot_id, "uid": machine.user_id,
            "user": machine.user, "digest": self._digest, "problem": "",
        }  # fmt: skip

    def check(self, now_s: float) -> None:
        """Whether the console is still there, by the operator's clock.

        Raises:
            Departed: nothing was heard for as long as the lease, or another runner of the same console asked for it.
        """
        if self.is_gone:
            raise Departed("")
        if now_s - self._heard_s >= self._lease_s:
            raise Departed(f"nothing came for {self._lease_s:g} s")

    def hear(self, data: bytes, now_s: float) -> None:
        """Take input.

        Raises:
            Departed: it ended, or asked for the end.
        """
        if not data:
            raise Departed("")
        self._heard_s = now_s
        *complete, self._input = (self._input + data).split(b"\n")
        if len(self._input) > INPUT_BYTES:
            raise Departed("what came in is no protocol of ours")
        for line in complete:
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(request, dict):
                self._handle(request)

    def leave(self) -> None:
        """The line is gone; what has been begun goes on, and holds the node until it ends."""
        self.is_gone = True
        for step in self._bench.steps.values():
            step.told.clear()
        if self._bench.holder is self and not self._bench.is_busy:
            self._bench.holder = None

    def _handle(self, request: dict[str, Any]) -> None:
        number = request.get("id")
        try:
            if "step" in request:
                self._begin(number, request["step"])
            elif "outcome" in request:
                self._tell({"id": number, **self._outcome(request["outcome"])})
            elif "end" in request:
                self._tell({"id": number, **self._outcome(request["end"], ends=True)})
            elif "lock" in request:
                self._tell({"id": number, "kind": "lock", **self._lock(request["lock"])})
            elif "unlock" in request:
                if self._bench.holder is self:
                    self._bench.holder = None
                self._tell({"id": number, "kind": "unlocked"})
            elif any(word in request for word in _QUESTIONS):
                self._machine.react(acts.Hold())  # whoever plans a change shall find what they saw
                self._spawn(self._answer(number, request))
            elif "bye" in request:
                raise Departed("asked to")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"the runner doesn't understand this request ({type(error).__name__}: {error}); nothing was done"
            self._tell({"id": number, "kind": "refused", "problem": problem})

    # The node's lock and the steps

    def _lock(self, words: dict[str, Any]) -> dict[str, Any]:
        bench, key = self._bench, str(words.get("key") or "")
        holder = bench.holder
        if holder is not None and holder is not self and (bench.is_busy or not holder.is_gone):
            own = bool(key) and bench.lock.get("key") == key
            if bench.is_busy or not own:
                told = {name: bench.lock.get(name) for name in ("who", "what", "since")}
                return {"held": False, **told, "own": own}
            holder.is_gone = True
        spark, t = self._machine.moment()
        bench.holder = self
        bench.lock = {
            "who": str(words["who"])[:200], "what": str(words["what"])[:300], "since": round(spark.wall_s(t), 3),
            "key": key,
        }  # fmt: skip
        self._machine.react(acts.Hold())
        return {"held": True}

    def _begin(self, number: object, request: dict[str, Any]) -> None:
        key = str(request["run"]), str(request["step"])
        float(request["limit"])
        if not isinstance(request["operations"], list) or not request["operations"]:
            raise ValueError("no operations")
        if key in self._bench.barred:
            problem = "it came too late: the console has asked about it on a newer connection"
            self._tell({"id": number, "kind": "refused", "problem": problem})
            return
        known = self._bench.steps.get(key)
        spark, _ = self._machine.moment()
        if known is not None:
            self._tell({"id": number, **known.outcome(spark.boot_id)})
            return
        step = self._bench.steps[key] = Step(boot_id=spark.boot_id, holds_node=not is_fetch(request["operations"]))
        step.told.append(lambda words: self._tell({"id": number, **words}))
        self._machine.react(acts.Hold())
        self._spawn(self._work(request, step))

    async def _work(self, request: dict[str, Any], step: Step) -> None:
        await Work(self._machine, request, step, self._bench.keys).run()
        spark, _ = self._machine.moment()
        for tell in step.told:
            tell(step.outcome(spark.boot_id))
        holder = self._bench.holder
        if holder is not None and holder.is_gone and not self._bench.is_busy:
            self._bench.holder = None

    def _outcome(self, words: dict[str, Any], *, ends: bool = False) -> dict[str, Any]:
        key = str(words["run"]), str(words["step"])
        step = self._bench.steps.get(key)
        if ends and step is not None:
            step.is_ending = True
        if step is None:
            self._bench.barred.add(key)
            empty: dict[str, Any] = {"kind": "outcome", "results": [], "problem": "", "undone": None, "saved": {}}
            return {**empty, "state": "never begun"}
        return step.outcome(self._machine.moment()[0].boot_id)

    # Questions

    async def _answer(self, number: object, request: dict[str, Any]) -> None:
        async for words in self._said(request):
            self._tell({"id": number, **words})

    async def _said(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        spark, t = self._machine.moment()
        if "privileges" in request:
            yield {
                "kind": "privileges", "is_root": False, "user": spark.script.machine.user, "docker": "open",
                "sudo": "free", "sudo_rules": ["ALL"], "has_compose": True,
            }  # fmt: skip
            return
        if "get" in request:
            pieces = self._got(request["get"])
        elif "models" in request or "hub" in request:
            said = disk.hub_answer(request["hub"]) if "hub" in request else disk.answer(spark)
            await self._machine.rest(0.4)
            pieces = _given(_encode(said).encode(), {"limit": 4 << 20})
        elif "output" in request:
            pieces = self._printed(request["output"])
        else:
            words = request["file"]
            text = procfs.text(spark, t, str(words["path"]))
            pieces = _none() if text is None else _given(text.encode(), words)
        async for piece in pieces:
            yield piece

    async def _got(self, words: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        where, _, more = str(words["path"]).partition("?")
        query = dict(part.partition("=")[::2] for part in more.split("&") if part)
        query.pop("follow", None)
        request = Request(method="GET", path=where, query=query, headers={})
        answer = await dockerd.answer(self._machine.moment, self._machine.rest, request)
        body = answer.body
        if answer.stream is not None:
            body = b"".join([piece async for piece in answer.stream])
        if answer.status == 404:
            pieces = _none(code=404)
        elif answer.status != 200:
            pieces = _none(said_by_docker(answer.status, body), code=answer.status)
        else:
            data = body if "json" in answer.content_type else unframed(body)
            pieces = _given(data, {"limit": 4 << 20, **words}, code=answer.status)
        async for piece in pieces:
            yield piece

    async def _printed(self, words: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        spark, t = self._machine.moment()
        argv = [str(word) for word in words["argv"]]
        ran = commands.run(spark, t, argv)
        if ran is None:
            pieces = _none(NO_PROGRAM.format(argv[0] if argv else ""))
        else:
            await self._machine.rest(ran.seconds)
            said = last(ran.errors)
            problem = f"{argv[0]} ended with {ran.code}" + (f": {said}" if said else "") if ran.code else ""
            if problem and not ran.output:
                pieces = _none(problem, code=ran.code)
            else:
                pieces = _given(ran.output.encode(), words, code=ran.code, problem=problem)
        async for piece in pieces:
            yield piece


def last(text: str) -> str:
    """The last line of something."""
    return (text.strip().splitlines() or [""])[-1][:300]


async def _none(problem: str = "", *, code: int | None = None) -> AsyncIterator[dict[str, Any]]:
    yield {"kind": "answer", "found": False, "code": code, "problem": problem, "cut": False}


async def _given(
    data: bytes, words: dict[str, Any], *, code: int | None = None, problem: str = ""
) -> AsyncIterator[dict[str, Any]]:
    limit = max(1, int(words.get("limit") or ANSWER_BYTES))
    cut = len(data) > limit
    text = (data[-limit:] if words.get("from_end") else data[:limit]).decode("utf-8", "replace")
    for at in range(0, len(text), _CHUNK):
        yield {"kind": "chunk", "text": text[at : at + _CHUNK]}
    yield {"kind": "answer", "found": True, "code": code, "problem": problem, "cut": cut}
