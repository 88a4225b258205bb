"""What is fetched to a simulated Spark: images and models come at a rate, are told of as they do, and then are there.

The runner's two operations for it (probe.runner_fetch), with its words, over the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparktop.probe.runner_fetch import ENDED, ENDED_PULL, FOLLOWS
from sparktop.probe.runner_step import Failed
from sparktop.sim import acts, catalogue, disk, images
from sparktop.sim.begun import Machine, Step
from sparktop.sim.catalogue import Model
from sparktop.sim.script import DiskModel

Words = Mapping[str, Any]

REGISTRY_S = 210e6
"""Bytes a second from a registry."""
UNPACK_S = 620e6
HUB_S = 260e6
FABRIC_S = 1.15e9
"""rsync through ssh with one cipher of the CPU's, over the cable."""
_LOOK_S = 0.5
_BEGIN_S = 1.5
"""Until the first byte: names are looked up, files are compared."""
_SOURCE = re.compile(r"(?:[a-z_][\w.-]*@)?\[?([0-9a-fA-F.:]+?)\]?:(/.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a command brings."""

    model: Model
    folder: str
    """As DiskModel has it."""
    rate_s: float


class Fetch:
    """One operation that fetches."""

    def __init__(self, machine: Machine, step: Step, index: int, keys: dict[str, Step]) -> None:
        self._machine = machine
        self._step = step
        self._index = index
        self._keys = keys
        """Transfers under way on the node, by what they are."""

    async def pull(self, operation: Words, result: dict[str, Any]) -> None:
        """An image from its registry.

        Raises:
            Failed: there is none of that name, or it was asked to end.
        """
        name = str(operation.get("image") or "")
        if images.find(self._machine.moment()[0].script, name) is not None:
            result["was_done"] = True
            return
        image = catalogue.image(name)
        await self._machine.rest(_BEGIN_S)
        if image is None or image.is_local:
            result["code"] = 404
            repository = name.partition("@")[0].rpartition(":")[0] or name
            why = "repository does not exist or may require 'docker login'"
            raise Failed(f"Docker: pull access denied for {repository}, {why}", code=404)
        size, layers = image.packed_bytes, image.layers
        async for done in self._coming(0, size, REGISTRY_S):
            if self._step.is_ending:
                result["ended"] = True
                raise Failed(ENDED_PULL)
            come = layers * done // size
            total = size if come > layers // 3 else None  # Docker tells a layer's size when it begins with it
            self._tell(done, total, f"{come} of {layers} layers")
        async for done in self._coming(0, size, UNPACK_S):
            if self._step.is_ending:
                result["ended"] = True
                raise Failed(ENDED_PULL)
            self._tell(done, size, f"unpacking, {layers * done // size} of {layers} layers")
        self._machine.react(acts.HaveImage(name=name))
        result.update(code=200, bytes=size)

    async def transfer(self, operation: Words, result: dict[str, Any]) -> None:
        """A model, by the program that fetches or copies it.

        Raises:
            Failed: the program ends badly, or it was asked to end.
        """
        key, total = str(operation["key"]), operation.get("total")
        while (other := self._keys.get(key)) is not None and other.end is None:
            told = other.progress or {}
            self._tell(told.get("done"), told.get("total"), FOLLOWS)
            self._end_if_wanted(result)
            await self._machine.rest(_LOOK_S)
        self._keys[key] = self._step
        argv = [str(word) for word in operation["command"]["argv"]]
        goal = self._goal(argv)
        await self._machine.rest(_BEGIN_S)
        script = self._machine.moment()[0].script
        there = next((one for one in script.models if (one.name, one.folder) == (goal.model.name, goal.folder)), None)
        begun = disk.held_bytes(there) if there is not None else 0
        first = 0 if isinstance(total, int) else begun
        size = goal.model.size_bytes
        result["code"] = 0
        async for done in self._coming(begun, size, goal.rate_s):
            self._have(goal, done)
            self._tell(done - first, total, "")
            self._end_if_wanted(result)
        self._have(goal, None)
        result["bytes"] = size - first

    def _end_if_wanted(self, result: dict[str, Any]) -> None:
        if self._step.is_ending:
            result["ended"] = True
            raise Failed(ENDED)

    def _have(self, goal: Goal, done: int | None) -> None:
        model = DiskModel(name=goal.model.name, folder=goal.folder, held_bytes=done)
        self._machine.react(acts.HaveModel(model=model))

    async def _coming(self, begun: int, size: int, rate_s: float) -> AsyncIterator[int]:
        """Bytes that are there, again and again until all are."""
        spark, began_s = self._machine.moment()
        while True:
            now, t = self._machine.moment()
            if now.boot_id != spark.boot_id:
                raise Failed("the node was rebooted in the middle of it")
            done = min(size, begun + int((t - began_s) * rate_s))
            yield done
            if done >= size:
                return
            await self._machine.rest(_LOOK_S)

    def _tell(self, done: int | None, total: int | None, words: str) -> None:
        said = {"index": self._index, "done": done, "total": total, "words": words}
        self._step.progress = said
        for tell in list(self._step.told):
            tell({"kind": "progress", **said})

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
        model = catalogue.model(repo)
        if model is None:
            said = f"Repository Not Found for url: {disk.HUB}/api/models/{repo}/revision/main"
            raise Failed(f"hf ended with exit code 1: {said}", code=1)
        return Goal(model=model, folder="", rate_s=HUB_S)

    def _copy(self, source: str, target: str) -> Goal:
        spark, t = self._machine.moment()
        found = _SOURCE.fullmatch(source)
        host, path = (found[1], found[2].rstrip("/")) if found else ("", "")
        holder = next(
            (
                script for node in spark.scenario.nodes for script in (node.at(t + spark.script.began_s),)
                for one in script.interfaces for text in one.addresses if text.partition("/")[0] == host
            ),
            None,
        )  # fmt: skip
        if holder is None:
            raise Failed(f"rsync ended with exit code 255: ssh: connect to host {host}: No route to host", code=255)
        there = disk.found(holder, path)
        if there is None:
            said = f'rsync: [sender] change_dir "{path}" failed: No such file or directory (2)'
            raise Failed(f"rsync ended with exit code 23: {said}", code=23)
        goal = target.rstrip("/")
        folder = "" if goal.startswith(disk.hub_folder(spark.script)) else goal.rpartition("/")[0]
        return Goal(model=disk.known(there), folder=folder, rate_s=FABRIC_S)


def is_fetch(operations: object) -> bool:
    """Whether a step only fetches: it doesn't hold the node."""
    kinds = [one.get("do") for one in operations if isinstance(one, dict)] if isinstance(operations, list) else []
    return bool(kinds) and all(kind in ("pull", "transfer") for kind in kinds)
