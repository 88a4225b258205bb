"""Carry out the operations of the simulated runner's steps, by the real runner's rules.

Docker calls go to the simulated Docker Engine, programs to `programs`. A step goes on without the connection, as on a
Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.probe.runner.fetch import ENDED, ENDED_PULL, FOLLOWS
from sparktop.probe.runner.pull import Layers, as_reference
from sparktop.probe.runner.step import POLL_S, Failed, StepWork
from sparktop.sim.reaction import acts
from sparktop.sim.scenario import hub
from sparktop.sim.scenario.hub import Image, Model
from sparktop.sim.scenario.script import DiskModel
from sparktop.sim.services import docker_api, programs
from sparktop.sim.services.process import Machine, Step
from sparktop.sim.spark import probe_lines, storage

Json = Mapping[str, Any]
REGISTRY_BYTES_S = 210e6
"""Bytes per second from a registry."""
UNPACK_BYTES_S = 620e6
HUB_BYTES_S = 260e6
FABRIC_BYTES_S = 1.15e9
"""rsync through ssh over the cable, limited by one CPU core's cipher."""
_CHECK_EVERY_S = 0.5
_START_S = 1.5
"""Time until the first byte: name lookup, comparison of files."""
_RSYNC_SOURCE = re.compile(r"(?:[a-z_][\w.-]*@)?\[?([0-9a-fA-F.:]+?)\]?:(/.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a download or copy command brings."""

    model: Model
    folder: str
    """As in DiskModel."""
    rate_s: float


class Work(StepWork):
    """The operations of one step, carried out one after another on a simulated Spark."""

    def __init__(self, machine: Machine, request: dict[str, Any], step: Step, keys: dict[str, Step]) -> None:
        """`keys`: transfers under way on the node, by what they are."""
        super().__init__(request, folder=("", -1), docker="", journal=-1, tell=step.tell, answers=-1)
        self._machine = machine
        self._step = step
        self._keys = keys

    # The machine

    def now(self) -> float:
        spark, t = self._machine.moment()
        return spark.wall_s(t)

    async def rest(self, seconds: float) -> None:
        await self._machine.rest(seconds)

    def keep(self, line: dict[str, Any]) -> None:
        self._step.journal.append(line)

    def _content(self, text: str) -> str:
        return text  # no file is written: a simulated program finds the text in place of its name

    def _remove_content(self, name: str) -> None:
        pass

    async def ask(
        self, method: str, path: str, query: dict[str, str], body: object = None, *, seconds: float
    ) -> tuple[int, bytes]:
        answer = await docker_api.ask(self._machine, method, path, query, body)
        return answer.status, answer.body

    async def execute(self, command: Json, argv: list[str], seconds: float) -> tuple[int | None, bytes, bool]:
        spark, t = self._machine.moment()
        ran = programs.run(spark, t, argv, is_root=bool(command.get("root")))
        if ran is None:
            if command.get("root"):
                return 1, f"sudo: {argv[0]}: command not found".encode(), False
            raise FileNotFoundError
        await self._machine.rest(min(ran.seconds, seconds))
        if ran.seconds > seconds:
            return None, b"", False
        if ran.act is not None:
            self._machine.react(ran.act)
        return ran.code, (ran.output + ran.errors).encode(), False

    async def _do(self, operation: Json, result: dict[str, Any], *, is_undo: bool) -> None:
        if operation.get("do") == "pull":
            await self._pull(operation, result)
        elif operation.get("do") == "transfer":
            await self._transfer(operation, result)
        else:
            await super()._do(dict(operation), result, is_undo=is_undo)

    async def _signal(self, order: Json, result: dict[str, Any]) -> None:
        spark, t = self._machine.moment()
        pid, started = int(order["pid"]), int(order["started"])
        process = spark.process(pid, t)
        if process is None or abs(probe_lines.started_ticks(spark, process) - started) > 1:
            result["was_done"] = True
            return
        if not order.get("root") and process.script.user_id != spark.script.machine.user_id:
            raise Failed(f"process {pid} is another user's")
        self._machine.react(acts.signal_process(pid=pid, signal=str(order.get("signal") or "TERM")))
        within = float(order.get("ends_within") or 0.0)
        while within > 0:
            await self._machine.rest(POLL_S)
            within -= POLL_S
            spark, t = self._machine.moment()
            if spark.process(pid, t) is None:
                return
        if order.get("must_end"):
            waits = f", in {process.script.wait_channel}" if process.script.wait_channel else ""
            raise Failed(f"process {pid} is still there (state {process.script.state}{waits})")

    # Downloads

    async def _pull(self, operation: Json, result: dict[str, Any]) -> None:
        """Pull an image from its registry.

        Raises:
            Failed: there is no such image, or the step was cancelled.
        """
        name = str(operation.get("image") or "")
        if storage.find_image(self._machine.moment()[0].script, name) is not None:
            result["was_done"] = True
            return
        image = hub.image(name)
        await self._machine.rest(_START_S)
        if image is None or image.is_local:
            result["code"] = 404
            why = "repository does not exist or may require 'docker login'"
            raise Failed(f"Docker: pull access denied for {as_reference(name)[0]}, {why}", code=404)
        layers, size = Layers(), image.packed_bytes
        async for come in self._progress(0, size, REGISTRY_BYTES_S):
            self._tell_layers(result, layers, _docker_lines(image, come, 0))
        async for unpacked in self._progress(0, size, UNPACK_BYTES_S):
            self._tell_layers(result, layers, _docker_lines(image, size, unpacked))
        self._machine.react(acts.have_image(name=name))
        result.update(code=200, bytes=layers.brought)

    def _tell_layers(self, result: dict[str, Any], layers: Layers, lines: Iterable[bytes]) -> None:
        self._stop_if_ending(result, ENDED_PULL)
        for line in lines:
            layers.hear(line)
        if (progress := layers.progress()) is not None:
            self._tell_progress(result, *progress)

    async def _transfer(self, operation: Json, result: dict[str, Any]) -> None:
        """Download or copy a model, as its command's program would.

        Raises:
            Failed: the program fails, or the step was cancelled.
        """
        key, total = str(operation["key"]), operation.get("total")
        while (running_step := self._keys.get(key)) is not None and running_step.is_running:
            progress = running_step.progress or {}
            self._tell_progress(result, progress.get("done"), progress.get("total"), FOLLOWS)
            self._stop_if_ending(result)
            await self._machine.rest(_CHECK_EVERY_S)
        self._keys[key] = self._step
        argv = [str(word) for word in operation["command"]["argv"]]
        goal = self._goal(argv)
        await self._machine.rest(_START_S)
        first_bytes = storage.bytes_there(self._machine.moment()[0].script, goal.model.name, goal.folder)
        first = 0 if isinstance(total, int) else first_bytes
        size = goal.model.size_bytes
        result["code"] = 0
        async for done_bytes in self._progress(first_bytes, size, goal.rate_s):
            self._store(goal, done_bytes)
            self._tell_progress(result, done_bytes - first, total, "")
            self._stop_if_ending(result)
        self._store(goal, None)
        result["bytes"] = size - first

    def _stop_if_ending(self, result: dict[str, Any], problem: str = ENDED) -> None:
        if self._step.is_ending:
            result["ended"] = True
            raise Failed(problem)

    def _store(self, goal: Goal, held_bytes: int | None) -> None:
        model = DiskModel(name=goal.model.name, folder=goal.folder, held_bytes=held_bytes)
        self._machine.react(acts.have_model(model=model))

    async def _progress(self, first_bytes: int, size: int, rate_s: float) -> AsyncIterator[int]:
        """Yield the bytes held so far, at intervals, until all are there."""
        spark, began_s = self._machine.moment()
        while True:
            spark_now, t = self._machine.moment()
            if spark_now.boot_id != spark.boot_id:
                raise Failed("the node rebooted during this step")
            done_bytes = min(size, first_bytes + int((t - began_s) * rate_s))
            yield done_bytes
            if done_bytes >= size:
                return
            await self._machine.rest(_CHECK_EVERY_S)

    def _tell_progress(self, result: Json, done: int | None, total: int | None, words: str) -> None:
        self._step.progress = {"index": result["index"], "done": done, "total": total, "words": words}
        self._step.tell({"kind": "progress", **self._step.progress})

    # What a command means

    def _goal(self, argv: list[str]) -> Goal:
        program = argv[0].rpartition("/")[2]
        if program in ("hf", "huggingface-cli") and argv[1:2] == ["download"]:
            return self._download(argv[2])
        if program == "docker" and "-c" in argv:
            return self._download(argv[argv.index("-c") + 2])
        if program == "rsync" and "--" in argv:
            source, target = argv[argv.index("--") + 1 :][:2]
            return self._copy(source, target)
        raise Failed(f"there is no program {argv[0]} on this machine")

    @staticmethod
    def _download(repo: str) -> Goal:
        model = hub.model(repo)
        if model is None:
            message = f"Repository Not Found for url: {storage.HUB}/api/models/{repo}/revision/main"
            raise Failed(f"hf exited with code 1: {message}", code=1)
        return Goal(model=model, folder="", rate_s=HUB_BYTES_S)

    def _copy(self, source: str, target: str) -> Goal:
        spark, t = self._machine.moment()
        match = _RSYNC_SOURCE.fullmatch(source)
        host, path = (match[1], match[2].rstrip("/")) if match else ("", "")
        source_node = programs.node_at(spark, t, host)
        if source_node is None:
            raise Failed(f"rsync exited with code 255: ssh: connect to host {host}: No route to host", code=255)
        model = storage.find_model(source_node[0], path)
        if model is None:
            message = f'rsync: [sender] change_dir "{path}" failed: No such file or directory (2)'
            raise Failed(f"rsync exited with code 23: {message}", code=23)
        goal = target.rstrip("/")
        folder = "" if goal.startswith(storage.hub_folder(spark.script)) else goal.rpartition("/")[0]
        return Goal(model=storage.model_of_disk(model), folder=folder, rate_s=FABRIC_BYTES_S)


def _docker_lines(image: Image, come: int, unpacked: int) -> Iterator[bytes]:
    """What Docker says of an image's layers when so many bytes have come, and so many are unpacked."""
    size = image.packed_bytes // image.layers
    for index in range(image.layers):
        stages = (("Downloading", "Download complete", come), ("Extracting", "Pull complete", unpacked))
        yield json.dumps({"id": f"layer-{index}", "status": "Pulling fs layer"}).encode()
        for status, end, done_bytes in stages:
            current = min(size, done_bytes - size * index)
            if current > 0:
                detail = {"current": current, "total": size}
                yield json.dumps({"id": f"layer-{index}", "status": status, "progressDetail": detail}).encode()
            if current == size:
                yield json.dumps({"id": f"layer-{index}", "status": end}).encode()
