"""The reading part of the Docker Engine API, about the containers of a simulated Spark."""

from __future__ import annotations

import json
import re
import struct
import time
import tomllib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from sparktop.sim.scenario.script import ContainerScript
from sparktop.sim.services import docker_state
from sparktop.sim.services.http import Answer, HttpRequest, json_answer
from sparktop.sim.services.process import Machine
from sparktop.sim.spark import storage
from sparktop.sim.spark.engine_log import Record, records
from sparktop.sim.spark.spark import GIB, LiveContainer, Spark

_POLL_S = 0.25
EMPTY: Mapping[str, str] = MappingProxyType({})
_LONGEST_PAUSE_S = 60.0
"""The longest pause between two starts by a restart policy."""


async def ask(
    machine: Machine, method: str, target: str, query: Mapping[str, str] = EMPTY, body: object = None
) -> Answer:
    """The answer to a program on the node, once it is whole; nothing is followed."""
    path, _, query_text = target.partition("?")
    pairs = dict(pair.partition("=")[::2] for pair in query_text.split("&") if pair)
    values = {name: str(value) for name, value in {**pairs, **query}.items() if name != "follow"}
    data = b"{}" if body is None else json.dumps(body).encode()
    request = HttpRequest(method=method, path=path, query=values, body=data)
    whole = await answer(machine, request) if method == "GET" else await docker_state.change(machine, request)
    if whole.stream is None:
        return whole
    return replace(whole, body=b"".join([piece async for piece in whole.stream]), stream=None)


async def answer(machine: Machine, request: HttpRequest) -> Answer:
    """The answer to one request that changes nothing; unknown paths get the engine's 404."""
    path = re.sub(r"^/v[0-9.]+(?=/)", "", request.path)
    spark, t = machine.moment()
    if request.method != "GET":
        return json_answer({"message": "the simulated Docker Engine only answers questions"}, status=501)
    if path == "/_ping":
        return Answer(body=b"OK", content_type="text/plain; charset=utf-8")
    if path == "/version":
        return json_answer(_fixed()["version"])
    if path == "/info":
        return json_answer(_info(spark))
    if path == "/containers/json":
        every = request.query.get("all", "0").lower() in ("1", "true")
        return json_answer([_row(spark, live, t) for live in spark.containers(t) if every or live.running])
    if found := re.fullmatch(r"/containers/([^/]+)/(json|logs)", path):
        live = docker_state.find(spark, found[1], t)
        if live is None:
            return json_answer({"message": f"No such container: {found[1]}"}, status=404)
        if found[2] == "json":
            size = {"SizeRw": docker_state.LAYER_BYTES if live.started else 0} if "size" in request.query else {}
            return json_answer(_inspect(spark, live, t) | size)
        return _logs(machine, live, request.query)
    if found := re.fullmatch(r"/images/(.+)/json", path):
        image = storage.inspection(spark, unquote(found[1]))
        if image is None:
            return json_answer({"message": f"No such image: {found[1]}"}, status=404)
        fixed = _fixed()["image"]
        return json_answer({**fixed, "Config": {**fixed["Config"], "Cmd": None, "Entrypoint": None}, **image})
    return json_answer({"message": "page not found"}, status=404)


@cache
def _fixed() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("docker.toml").read_text(encoding="utf-8"))


def _info(spark: Spark) -> dict[str, Any]:
    machine = spark.script.machine
    own = {"Name": machine.hostname, "OperatingSystem": machine.os_name, "KernelVersion": machine.kernel}
    return {**_fixed()["info"], **own}


def _row(spark: Spark, live: LiveContainer, t: float) -> dict[str, Any]:
    script, run = live.script, live.run
    if not live.started:
        status = "Created"
    elif live.running:
        status = f"Up {_age(t - run.start_s)}"
    else:
        status = f"Exited ({run.exit_code}) {_age(t - (run.end_s or t))} ago"
    return {
        "Id": live.container_id, "Names": [f"/{script.name}"], "Image": script.image,
        "Created": int(spark.wall_s(_created_s(live))), "Ports": [], "Labels": _labels(script),
        "State": _state(live, t), "Status": status,
    }  # fmt: skip


def _inspect(spark: Spark, live: LiveContainer, t: float) -> dict[str, Any]:
    script, run, fixed = live.script, live.run, _fixed()["container"]
    has_exited, state = live.started and not live.running, _state(live, t)
    devices = [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in script.devices]
    first = 2 if script.image.startswith("vllm/vllm-openai") else 0  # that image's entry point is `vllm serve`
    mounts = [
        {"Type": "bind", "Source": source, "Destination": target, "Mode": "", "RW": True, "Propagation": "rprivate"}
        for source, target in (bind.split(":")[:2] for bind in script.binds)
    ]
    return {
        "Id": live.container_id,
        "Created": _stamp(spark.wall_s(_created_s(live))),
        "Path": script.argv[0] if script.argv else "",
        "Args": list(script.argv[1:]),
        "Image": live.image_id,
        "Name": f"/{script.name}",
        "RestartCount": live.restarts,
        "State": {
            **fixed["State"], "Status": state, "Running": live.running or state == "restarting",
            "Restarting": state == "restarting", "OOMKilled": has_exited and run.oom_killed,
            "Pid": live.pid if live.running else 0, "ExitCode": run.exit_code if has_exited else 0,
            "StartedAt": _stamp(spark.wall_s(run.start_s)) if live.started else _NEVER,
            "FinishedAt": _finished(spark, live),
        },
        "Config": {
            **fixed["Config"], "Hostname": spark.script.machine.hostname, "Tty": script.tty,
            "Env": list(script.environment), "Cmd": list(script.argv[first:]),
            "Entrypoint": list(script.argv[:first]) or None, "Image": script.image,
            "Labels": _labels(script), **script.config,
        },
        "HostConfig": {
            **fixed["HostConfig"], "Binds": list(script.binds) or None, "NetworkMode": script.network,
            "Memory": int(script.memory_limit_gib * GIB), "Privileged": script.privileged, "Devices": devices,
            "Ulimits": [_ulimit(text) for text in script.ulimits], "AutoRemove": script.auto_remove,
            "ShmSize": int(script.shm_gib * GIB), **script.host_config,
            "RestartPolicy": {"Name": script.restart_policy, "MaximumRetryCount": 0},
        },
        "Mounts": mounts,
        "NetworkSettings": fixed["NetworkSettings"],
    }  # fmt: skip


def _labels(script: ContainerScript) -> dict[str, str]:
    return dict(label.partition("=")[::2] for label in script.labels)


def _ulimit(text: str) -> dict[str, Any]:
    name, _, limits = text.partition("=")
    soft, _, hard = limits.partition(":")
    return {"Name": name, "Soft": int(soft), "Hard": int(hard or soft)}


_NEVER = "0001-01-01T00:00:00Z"


def _state(live: LiveContainer, t: float) -> str:
    if live.running:
        return "running"
    ended_s = live.run.end_s or 0.0
    soon = any(t < run.start_s <= ended_s + _LONGEST_PAUSE_S and not run.asked for run in live.script.runs)
    comes = live.script.restart_policy != "no" and live.run.exit_code != 0 and soon
    return "restarting" if comes else "exited" if live.started else "created"


def _created_s(live: LiveContainer) -> float:
    created_s = live.script.created_s
    return live.script.runs[0].start_s if created_s is None else created_s


def _finished(spark: Spark, live: LiveContainer) -> str:
    ends = [run.end_s for run in live.script.runs if run.end_s is not None and run.start_s <= live.run.start_s]
    if live.running:
        ends = [end for end in ends if end <= live.run.start_s]
    return _stamp(spark.wall_s(ends[-1])) if ends else _NEVER


def _logs(machine: Machine, live: LiveContainer, query: Mapping[str, str]) -> Answer:
    streams = {name for name in ("stdout", "stderr") if query.get(name, "0").lower() in ("1", "true")}
    if not streams:
        return json_answer({"message": "Bad parameters: you must choose at least one stream"}, status=400)
    kind = "raw" if live.script.tty else "multiplexed"
    return Answer(
        content_type=f"application/vnd.docker.{kind}-stream", stream=_log_stream(machine, live, query, streams)
    )


async def _log_stream(
    machine: Machine, live: LiveContainer, query: Mapping[str, str], streams: set[str]
) -> AsyncIterator[bytes]:
    spark, t = machine.moment()
    stamped = query.get("timestamps", "0").lower() in ("1", "true")
    follow = query.get("follow", "0").lower() in ("1", "true")
    since, last = float(query.get("since", 0)), t
    after = since - spark.wall_s(0) - 1e-6 if since else float("-inf")
    selected = [record for record in records(spark, live.script, after, last) if record.stream in streams]
    if (tail := query.get("tail", "all")).isdecimal():
        selected = selected[-int(tail) :] if int(tail) else []
    while True:
        if selected:
            yield b"".join(_frame(spark, live, record, stamped=stamped) for record in selected)
        if not follow:
            return
        await machine.rest(_POLL_S)
        spark_now, until_s = machine.moment()
        if spark_now.boot_id != spark.boot_id:
            return
        spark = spark_now
        current = docker_state.find(spark, live.container_id, until_s)
        live = current or live  # what was done to it since gave it other lines to come
        selected = [record for record in records(spark, live.script, last, until_s) if record.stream in streams]
        last = until_s
        follow = current is not None and current.running


def _frame(spark: Spark, live: LiveContainer, record: Record, *, stamped: bool) -> bytes:
    data = (_stamp(spark.wall_s(record.at_s)).encode() + b" " if stamped else b"") + record.data
    if live.script.tty:
        return data
    return struct.pack(">BxxxL", 2 if record.stream == "stderr" else 1, len(data)) + data


def _stamp(wall_s: float) -> str:
    whole, fraction = divmod(wall_s, 1.0)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int(fraction * 1e6):06d}000Z"


def _age(seconds: float) -> str:
    for size, word in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {word}"
    return f"{max(1, int(seconds))} seconds"
