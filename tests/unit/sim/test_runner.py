"""The runner of a simulated Spark, by the console's own line to it: it asks, changes and remembers as the real one."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.runner_support import no_secret
from tests.support import engine_of, unavailable

from sparktop.clock import SystemClock
from sparktop.errors import LinkLost, SparktopError
from sparktop.model.engine import Endpoint, EndpointState, EngineKind
from sparktop.model.operation import Command, DockerCall, Expect, Privilege, Signal
from sparktop.model.proof import Proof
from sparktop.model.survey import (
    Answer,
    DockerGet,
    DockerLog,
    FileText,
    Output,
    Privileges,
    PrivilegesQuestion,
    Question,
)
from sparktop.observe.engines.canary import canary
from sparktop.operate.acts.remote import Remote
from sparktop.operate.plan.process import parse_stat
from sparktop.operate.runner.api import OperationResult, Outcome, OutcomeState
from sparktop.operate.runner.client import RunnerLine
from sparktop.probe import bundle
from sparktop.sim.scenario.scenario import load
from sparktop.sim.server import SimulatedNode, simulated
from sparktop.transport.base import Transport
from sparktop.transport.completion import CompletionState, complete
from sparktop.transport.ssh.connector import SshConnector

DROP = Command(argv=("/usr/sbin/sysctl", "-w", "vm.drop_caches=3"), privilege=Privilege.ROOT)


async def until(ask: Callable[[], Awaitable[object]]) -> None:
    """Wait for something by asking."""
    deadline = time.monotonic() + 15
    while not await ask():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def transport_to(node: SimulatedNode) -> AsyncIterator[Transport]:
    connector = SshConnector.direct(
        name=node.name, host=node.host, port=node.port, username=node.username, client_key=node.client_key,
        pinned_host_key=node.host_key,
    )  # fmt: skip
    transport = await connector.connect(patience_s=5.0)
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def lines(name: str = "healthy", *, speed: float = 40.0) -> AsyncIterator[list[RunnerLine]]:
    """A runner on each node of a scenario."""
    async with (
        asyncio.timeout(40),
        simulated(load(name), clock=SystemClock(), speed=speed) as nodes,
        transport_to(nodes[0]) as first,
        transport_to(nodes[1]) as second,
    ):
        opened = [
            await RunnerLine.open(node.name, transport, key="mine")
            for node, transport in zip(nodes, (first, second), strict=True)
        ]
        yield opened
        for line in opened:
            await line.close()


async def perform(line: RunnerLine, *operations: Any, step: str = "a", undo: tuple[Any, ...] = ()) -> Outcome:
    told: list[OperationResult] = []
    outcome = await line.perform(
        "run-1", step, Remote(operations=operations, undo=undo), told=told.append, secret=no_secret
    )
    assert tuple(told) == outcome.results
    return outcome


async def value(line: RunnerLine, ask: Question) -> Any:
    return (await line.ask([ask]))[ask].value


async def container(line: RunnerLine, name: str) -> dict[str, Any]:
    found = await value(line, DockerGet(node=line.node, path=f"/containers/{name}/json"))
    assert isinstance(found, dict)
    return found


async def meminfo(line: RunnerLine) -> dict[str, int]:
    text = await value(line, FileText(node=line.node, path="/proc/meminfo"))
    return {key: int(rest.split()[0]) for key, _, rest in (row.partition(":") for row in text.splitlines())}


async def test_questions_are_answered() -> None:
    async with lines() as (line, _):
        assert await value(line, PrivilegesQuestion(node="spark1")) == Privileges(
            user="spark", docker="open", sudo="free", sudo_rules=("ALL",), has_compose=True
        )
        box = await container(line, "vllm-qwen36")
        assert box["State"]["Running"] is True
        missing = DockerGet(node="spark1", path="/containers/nothing/json")
        assert (await line.ask([missing]))[missing] == Answer(code=404)
        log = await value(line, DockerLog(node="spark1", container_id=box["Id"]))
        assert "Application startup complete" in log
        sized = await value(line, DockerGet(node="spark1", path=f"/containers/{box['Id']}/json?size=1"))
        assert sized["SizeRw"] > 0
        assert (await value(line, DockerGet(node="spark1", path=f"/images/{box['Image']}/json")))["Id"] == box["Image"]
        stat = parse_stat(await value(line, FileText(node="spark1", path=f"/proc/{box['State']['Pid']}/stat")))
        assert stat is not None
        assert stat.command == "vllm"
        who = await value(line, Output(node="spark1", argv=("who", "-u")))
        assert "spark" in who
        absent = Output(node="spark1", argv=("no-such-program",))
        assert "no program no-such-program" in (await line.ask([absent]))[absent].problem
        kernel = await value(line, Output(node="spark1", argv=("journalctl", "-k", "-n", "5", "-b")))
        assert "kernel:" in kernel


async def test_caches_are_dropped_by_root_alone() -> None:
    async with lines() as (line, _):
        before = await meminfo(line)
        refused = await perform(line, Command(argv=DROP.argv), step="as a user")
        assert refused.state is OutcomeState.FAILED
        assert "permission denied" in refused.problem
        outcome = await perform(line, Command(argv=("/usr/bin/sync",)), DROP, step="as root")
        assert outcome.state is OutcomeState.DONE

        async def dropped() -> bool:
            return (await meminfo(line))["MemFree"] > before["MemFree"] + 6 * 1024**2

        await until(dropped)


async def test_a_container_is_stopped_started_and_killed_by_dockers_rules() -> None:
    async with lines() as (line, _):
        box = await container(line, "vllm-qwen36")
        path = f"/containers/{box['Id']}"
        same = Expect(path=f"{path}/json", equals={"State.StartedAt": box["State"]["StartedAt"]}, otherwise="anew")
        stopped = Expect(path=f"{path}/json", equals={"State.Running": False}, otherwise="it runs")
        stop = DockerCall(method="POST", path=f"{path}/stop", query={"t": "10"}, limit_s=40)
        assert (await perform(line, stopped, step="too early")).problem.startswith("it runs; State.Running is true")
        assert (await perform(line, same, stop, stopped, step="stop")).state is OutcomeState.DONE
        again = await perform(line, stop, step="stop again")
        assert [result.code for result in again.results] == [304]
        kill = await perform(line, DockerCall(method="POST", path=f"{path}/kill", accepts=(204,)), step="kill")
        assert kill.results[0].code == 409
        assert "is not running" in kill.problem
        start = DockerCall(method="POST", path=f"{path}/start")
        assert [result.code for result in (await perform(line, start, step="start")).results] == [204]
        assert (await perform(line, same, step="not the same")).problem.startswith("anew")
        killed = await perform(line, DockerCall(method="POST", path=f"{path}/kill"), stopped, step="kill it")
        assert killed.state is OutcomeState.DONE
        assert (await container(line, "vllm-qwen36"))["State"]["ExitCode"] == 137
        assert (await container(line, "vllm-qwen36"))["RestartCount"] == 0


async def test_a_swap_makes_the_same_container_with_a_change_and_its_undoing_brings_the_old_one_back() -> None:
    async with lines(speed=100) as (line, _):
        box = await container(line, "vllm-qwen36")
        path = f"/containers/{box['Id']}"
        body = {**box["Config"], "HostConfig": box["HostConfig"], "Image": box["Image"]}
        body["Env"] = [*body["Env"], "VLLM_LOGGING_LEVEL=DEBUG"]
        rename = DockerCall(method="POST", path=f"{path}/rename", query={"name": "vllm-qwen36-old"})
        create = DockerCall(
            method="POST", path="/containers/create", query={"name": "vllm-qwen36"}, body=body, saves="NEW"
        )
        back = DockerCall(method="POST", path=f"{path}/rename", query={"name": "vllm-qwen36"})
        taken = await perform(line, create, step="taken")
        assert taken.results[0].code == 409
        assert box["Id"] in taken.problem
        remove = DockerCall(method="DELETE", path="/containers/{NEW}", query={"force": "true"})
        nonsense = Command(argv=("false",))
        undone = await perform(line, rename, create, nonsense, step="undone", undo=(remove, back))
        assert (undone.state, undone.undone) == (OutcomeState.FAILED, True)
        assert (await container(line, "vllm-qwen36"))["Id"] == box["Id"]
        stop = DockerCall(method="POST", path=f"{path}/stop", query={"t": "10"}, limit_s=40)
        start = DockerCall(method="POST", path="/containers/{NEW}/start")
        done = await perform(line, stop, rename, create, start, step="swap")
        assert done.state is OutcomeState.DONE, done.problem
        fresh = await container(line, "vllm-qwen36")
        assert fresh["Id"] == done.saved["NEW"] != box["Id"]
        assert fresh["State"]["Running"] is True
        changed = {key for key in box["Config"] if fresh["Config"].get(key) != box["Config"][key]}
        assert changed == {"Env", "Image"}, "an image named by its id stays named so, as Docker has it"
        assert fresh["HostConfig"] == box["HostConfig"]
        assert fresh["Image"] == box["Image"]
        old = await container(line, "vllm-qwen36-old")
        assert (old["Id"], old["State"]["Running"]) == (box["Id"], False)


async def test_one_process_is_signalled_if_it_is_still_that_one() -> None:
    async with lines("orphan", speed=20) as (line, _):
        left = await value(line, FileText(node="spark1", path="/proc/77352/stat"))
        stat = parse_stat(left)
        assert stat is not None
        other = Signal(pid=77352, started_ticks=stat.started_ticks + 500, privilege=Privilege.ROOT)
        assert (await perform(line, other, step="another")).results[0].was_done
        assert await value(line, FileText(node="spark1", path="/proc/77352/stat")) is not None
        mine = Signal(pid=77352, started_ticks=stat.started_ticks)
        assert "another user's" in (await perform(line, mine, step="not ours")).problem
        end = Signal(
            pid=77352, started_ticks=stat.started_ticks, privilege=Privilege.ROOT, ends_within_s=10, must_end=True
        )
        assert (await perform(line, end, step="end")).state is OutcomeState.DONE
        assert await value(line, FileText(node="spark1", path="/proc/77352/stat")) is None


async def test_a_step_goes_on_without_the_line_and_is_not_begun_twice() -> None:
    async with asyncio.timeout(30), simulated(load("healthy"), clock=SystemClock(), speed=10) as (node, _):
        stop = DockerCall(method="POST", path="/containers/vllm-qwen36/stop", query={"t": "10"}, limit_s=40)
        async with transport_to(node) as transport:
            line = await RunnerLine.open("spark1", transport, key="mine")
            assert await line.lock("me@here", "a stop") is None
            task = asyncio.create_task(perform(line, stop, step="stop"))
            await asyncio.sleep(0.1)
        with pytest.raises(LinkLost):
            await task
        async with transport_to(node) as transport:
            line = await RunnerLine.open("spark1", transport, key="another")
            holder = await line.lock("you@there", "another change")
            assert holder is None or holder.who == "me@here"

            async def ended() -> bool:
                return (await line.outcome("run-1", "stop")).state is not OutcomeState.RUNNING

            await until(ended)
            outcome = await line.outcome("run-1", "stop")
            assert outcome.state is OutcomeState.DONE
            assert await line.perform(
                "run-1", "stop", Remote(operations=(stop,)), told=lambda _: None, secret=no_secret
            ) == outcome  # fmt: skip
            assert (await line.outcome("run-1", "unknown")).state is OutcomeState.NOT_STARTED
            assert await line.lock("you@there", "another change") is None
            await line.close()


async def test_a_reboot_takes_the_line_and_brings_another_boot() -> None:
    async with asyncio.timeout(30), simulated(load("leak-after-kill"), clock=SystemClock(), speed=20) as (_, node):
        async with transport_to(node) as transport:
            line = await RunnerLine.open("spark2", transport, key="mine")
            boot_id = line.boot_id
            reboot = Command(argv=("/usr/bin/systemctl", "reboot"), privilege=Privilege.ROOT)
            assert (await perform(line, reboot)).state is OutcomeState.DONE
            await line.wait_ended()

        async def back() -> bool:
            try:
                async with asyncio.timeout(2), transport_to(node) as transport:
                    line = await RunnerLine.open("spark2", transport, key="mine")
                    await line.close()
                    return line.boot_id != boot_id
            except (TimeoutError, SparktopError):
                return False

        await until(back)


async def test_its_lines_have_the_real_runners_keys() -> None:
    """Every kind of reply, from the one and the other, to the same requests."""
    real = await _told_by_the_real_one()
    async with (
        asyncio.timeout(20),
        simulated(load("healthy"), clock=SystemClock(), speed=40) as (node, _),
        transport_to(node) as transport,
    ):
        launch = bundle.launch_runner()
        channel = await transport.run(launch.argv)
        await channel.write(launch.payload)
        simulated_lines = await _converse(channel.read, channel.write)
        await channel.close()
    for kind, theirs in real.items():
        assert {tuple(sorted(one)) for one in simulated_lines[kind]} == {tuple(sorted(one)) for one in theirs}, kind
        for name, wanted in theirs[0].items():
            found = simulated_lines[kind][0][name]
            assert type(found) is type(wanted) or None in (found, wanted), (kind, name, found, wanted)


REQUESTS = (
    {"id": 1, "privileges": 1},
    {"id": 2, "lock": {"who": "me", "what": "a test", "key": "k"}},
    {"id": 3, "file": {"path": "/proc/meminfo"}},
    {"id": 4, "output": {"argv": ["true"]}},
    {"id": 5, "step": {"run": "r", "step": "s", "operations": [{"do": "command", "argv": ["true"]}], "limit": 10}},
    {"id": 6, "outcome": {"run": "r", "step": "other"}},
    {"id": 7, "nothing": 1, "step": {"run": "r"}},
    {"id": 8, "unlock": 1},
)
WANTED = {"hello", "privileges", "lock", "chunk", "answer", "result", "outcome", "refused", "unlocked"}


async def _converse(read: Any, write: Any) -> dict[str, list[dict[str, Any]]]:
    for request in REQUESTS:
        await write(json.dumps(request).encode() + b"\n")
    found: dict[str, list[dict[str, Any]]] = {}
    data = b""
    while not found.keys() >= WANTED:
        piece = await read()
        assert piece, f"it ended; there was {sorted(found)}"
        *complete, data = (data + piece).split(b"\n")
        for line in complete:
            if not line.startswith(b"SPARKTOP "):
                words = json.loads(line)
                found.setdefault(words["kind"], []).append(words)
    return found


async def _told_by_the_real_one() -> dict[str, list[dict[str, Any]]]:
    if not sys.platform.startswith("linux"):
        unavailable("the runner runs on Linux")
    with tempfile.TemporaryDirectory() as folder:
        launch = bundle.launch_runner(state_folder=folder)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*launch.argv, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(launch.payload)
        stdout, stdin = process.stdout, process.stdin

        async def write(data: bytes) -> None:
            stdin.write(data)

        async with asyncio.timeout(20):
            found = await _converse(lambda: stdout.read(65536), write)
            stdin.write(b'{"bye": 1}\n')
            await process.wait()
        return found


async def test_a_request_is_answered_at_the_engines_pace() -> None:
    async with lines("healthy", speed=40) as (line, _):
        answer = await complete(line.transport, "127.0.0.1", 8000, prompt="?", max_tokens=5)
        assert (answer.state, answer.tokens) == (CompletionState.OK, 5)
        endpoint = Endpoint(host="127.0.0.1", port=8000, state=EndpointState.OK)
        engine = engine_of(key="a", kind=EngineKind.VLLM, name="vllm", endpoint=endpoint)
        for proof in (Proof.ANSWER, Proof.LONG_PROMPT):
            assert (await canary(line.transport, engine, proof, SystemClock())).is_right, proof


async def test_a_request_is_held_by_a_deadlock_and_refused_once_the_engine_is_killed() -> None:
    async with lines("spin-deadlock", speed=40) as (line, _):

        async def hangs() -> bool:
            held = await complete(line.transport, "127.0.0.1", 8000, prompt="?", max_tokens=5, idle_s=0.5)
            return held.state is CompletionState.HANGS

        await until(hangs)
        kill = DockerCall(method="POST", path="/containers/minimax-rank0/kill")
        assert (await perform(line, kill)).state is OutcomeState.DONE
        refused = await complete(line.transport, "127.0.0.1", 8000, prompt="?", max_tokens=5)
        assert refused.state is CompletionState.UNREACHABLE


async def test_the_first_request_to_an_engine_started_again_eats_memory_where_it_did_before() -> None:
    async with lines("memory-spike", speed=60) as (line, _):
        path = "/containers/vllm-gptoss"
        stop = DockerCall(method="POST", path=f"{path}/stop", query={"t": "10"}, limit_s=40)
        start = DockerCall(method="POST", path=f"{path}/start")
        assert (await perform(line, stop, start)).state is OutcomeState.DONE

        async def is_empty() -> bool:
            # A request that comes to nothing on a busy machine may never have reached the engine: ask again.
            await complete(line.transport, "127.0.0.1", 8000, prompt="?", max_tokens=5, idle_s=0.4)
            return (await meminfo(line))["MemAvailable"] < 2 * 1024**2

        await until(is_empty)
