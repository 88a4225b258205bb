"""Operations of a step as the runner on a simulated Spark does them: its protocol and its words, over what is played.

One implementation of Docker's changes serves here; programs are those of `commands`. What a step does goes on without
the line, as on a Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparktop.probe.remote import mask_text
from sparktop.probe.runner_docker import is_same, said_by_docker, value_at
from sparktop.probe.runner_step import Failed, kept, last_line
from sparktop.sim import acts, commands, dockerd, procfs
from sparktop.sim.begun import Machine, Step
from sparktop.sim.fetching import Fetch
from sparktop.sim.http import Answer, Request
from sparktop.sim.program import Ran

Words = Mapping[str, Any]
_POLL_S = 0.25
NO_PROGRAM = "there is no program {} on this machine"


class Work:
    """The operations of one step, one after another."""

    def __init__(self, machine: Machine, request: Words, step: Step, keys: dict[str, Step]) -> None:
        self._machine = machine
        self._keys = keys
        self._request = request
        self._step = step
        self._saved: dict[str, str] = {}

    async def run(self) -> None:
        """All of it, or what its undoing leaves."""
        problem, undone = "", None
        for index, operation in enumerate(self._request["operations"]):
            problem = await self._one(operation, index, is_undo=False)
            if problem:
                break
        undo = self._request.get("undo") or []
        if problem and undo:
            undone = True
            for index, operation in enumerate(undo):
                undone = not await self._one(operation, index, is_undo=True) and undone
        state = "failed" if problem else "done"
        self._step.end = {"state": state, "problem": problem, "undone": undone, "saved": self._saved}

    async def _one(self, operation: Words, index: int, *, is_undo: bool) -> str:
        """Its problem; empty when it went well."""
        result: dict[str, Any] = {
            "index": index, "undo": is_undo, "ok": True, "code": None, "output": "", "problem": "", "seconds": 0.0,
            "was_done": False,
        }  # fmt: skip
        spark, began = self._machine.moment()
        try:
            await self._do(operation, result, is_undo=is_undo)
        except Failed as failure:
            result.update(ok=False, problem=mask_text(str(failure)), code=failure.code, output=failure.output)
        now, ended = self._machine.moment()
        result["seconds"] = round(ended - began, 3) if now.boot_id == spark.boot_id else 0.0
        self._step.results.append(result)
        for tell in list(self._step.told):
            tell({"kind": "result", **result})
        return str(result["problem"])

    async def _do(self, operation: Words, result: dict[str, Any], *, is_undo: bool) -> None:
        kind = operation.get("do")
        if kind == "command":
            await self._command(operation, result)
        elif kind == "docker":
            await self._docker(operation, result, is_undo=is_undo)
        elif kind == "expect":
            await self._expect(operation)
        elif kind == "signal":
            await self._signal(operation, result)
        elif kind in ("pull", "transfer"):
            fetch = Fetch(self._machine, self._step, int(result["index"]), self._keys)
            await (fetch.pull if kind == "pull" else fetch.transfer)(operation, result)
        else:
            raise Failed(f"the runner knows no operation {str(kind)[:40]!r}")

    # Programs

    async def _command(self, command: Words, result: dict[str, Any]) -> None:
        asked = command.get("done_when")
        if asked:
            ran = self._ran(asked)
            if ran is not None and ran.code in (asked.get("accepts") or [0]):
                result["was_done"] = True
                return
        ran = self._ran(command)
        if ran is None:
            raise Failed(NO_PROGRAM.format(command["argv"][0]))
        limit_s = float(command.get("limit") or 30.0)
        await self._machine.rest(min(ran.seconds, limit_s))
        if ran.seconds > limit_s:
            raise Failed(f"{_name(command)} took more than {limit_s:g} s: it was ended")
        if ran.act is not None:
            self._machine.react(ran.act)
        output = kept((ran.output + ran.errors).encode())
        result.update(code=ran.code, output=output)
        if ran.code not in (command.get("accepts") or [0]):
            said = last_line(output)
            words = f"{_name(command)} ended with exit code {ran.code}" + (f": {said}" if said else "")
            raise Failed(words, code=ran.code, output=output)

    def _ran(self, command: Words) -> Ran | None:
        spark, t = self._machine.moment()
        argv = [str(word) for word in command["argv"]]
        return commands.run(spark, t, argv, is_root=bool(command.get("root")))

    # One process

    async def _signal(self, order: Words, result: dict[str, Any]) -> None:
        spark, t = self._machine.moment()
        pid, started = int(order["pid"]), int(order["started"])
        live = next((one for one in spark.processes(t) if one.pid == pid), None)
        if live is None or abs(procfs.started_ticks(spark, live) - started) > 1:
            result["was_done"] = True
            return
        if not order.get("root") and live.script.user_id != spark.script.machine.user_id:
            raise Failed(f"process {pid} is another user's")
        self._machine.react(acts.SignalProcess(pid=pid, signal=str(order.get("signal") or "TERM")))
        within = float(order.get("ends_within") or 0.0)
        while within > 0:
            await self._machine.rest(_POLL_S)
            within -= _POLL_S
            spark, t = self._machine.moment()
            if not any(one.pid == pid for one in spark.processes(t)):
                return
        if order.get("must_end"):
            waits = f", in {live.script.wait_channel}" if live.script.wait_channel else ""
            raise Failed(f"process {pid} is still there (state {live.script.state}{waits})")

    # Docker

    def _filled(self, path: str) -> str | None:
        for name in [piece.partition("}")[0] for piece in path.split("{")[1:] if "}" in piece]:
            if name not in self._saved:
                return None
            path = path.replace("{" + name + "}", self._saved[name])
        return path

    async def _ask(self, method: str, path: str, query: Words, body: object = None) -> Answer:
        where, _, more = path.partition("?")
        pairs = dict(part.partition("=")[::2] for part in more.split("&") if part)
        request = Request(
            method=method,
            path=where,
            query={**pairs, **{key: str(value) for key, value in query.items()}},
            headers={},
            body=b"" if body is None else json.dumps(body).encode(),
        )
        return await dockerd.answer(self._machine.moment, self._machine.rest, request, self._machine.react)

    async def _docker(self, call: Words, result: dict[str, Any], *, is_undo: bool) -> None:
        path = self._filled(str(call["path"]))
        if path is None:
            if not is_undo:
                raise Failed(f"an earlier call did not give what {str(call['path'])[:100]} needs")
            result["was_done"] = True
            return
        answer = await self._ask(str(call["method"]), path, call.get("query") or {}, call.get("body"))
        result["code"] = answer.status
        if answer.status not in (call.get("accepts") or (200, 201, 204, 304)):
            raise Failed(said_by_docker(answer.status, answer.body), code=answer.status)
        if call.get("saves"):
            words = json.loads(answer.body) if answer.body.strip() else None
            found = words.get("Id") if isinstance(words, dict) else None
            if not isinstance(found, str) or not found:
                raise Failed("Docker's answer has no Id")
            self._saved[str(call["saves"])] = found

    async def _expect(self, expect: Words) -> None:
        left = float(expect.get("within") or 0.0)
        while (found := await self._differs(expect)) is not None:
            if left <= 0:
                raise Failed("; ".join(part for part in (str(expect.get("otherwise") or ""), found) if part))
            await self._machine.rest(_POLL_S)
            left -= _POLL_S

    async def _differs(self, expect: Words) -> str | None:
        """What was found in its place; None: it holds."""
        path = self._filled(str(expect["path"]))
        if path is None:
            return "what it asks about was never made"
        answer = await self._ask("GET", path, {})
        if answer.status != 200:
            return said_by_docker(answer.status, answer.body)
        words = json.loads(answer.body)
        for name, wanted in (expect.get("equals") or {}).items():
            found = value_at(words, name)
            if not is_same(found, wanted):
                return f"{name} is {json.dumps(found)[:200]}, not {json.dumps(wanted)[:200]}"
        return None


def _name(command: Words) -> str:
    return str(command["argv"][0]).rpartition("/")[2]
