"""The part of the Docker Engine API that a monitor reads, about the containers of a simulated Spark."""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from sparktop.sim import dockerstate, images
from sparktop.sim.dockerstate import Moment, React, Rest
from sparktop.sim.enginelog import Record, records
from sparktop.sim.http import Answer, Request, json_answer
from sparktop.sim.script import ContainerScript
from sparktop.sim.spark import GIB, LiveContainer, Spark

API_VERSION = "1.51"
_VERSION = "28.3.3"
_POLL_S = 0.25
_LONGEST_PAUSE_S = 60.0
"""Between two starts by a restart policy."""


async def answer(moment: Moment, rest: Rest, request: Request, react: React | None = None) -> Answer:
    """The answer to one request; what isn't known is the engine's own 404. Without `react` it changes nothing."""
    path = re.sub(r"^/v[0-9.]+(?=/)", "", request.path)
    spark, t = moment()
    if request.method == "HEAD" and path == "/_ping":
        return Answer(content_type="text/plain; charset=utf-8", headers=_PING)
    if request.method != "GET" and react is not None:
        return await dockerstate.changed(moment, rest, react, replace(request, path=path))
    if request.method != "GET":
        return json_answer({"message": "the simulated Docker Engine only answers questions"}, status=501)
    if path == "/_ping":
        return Answer(body=b"OK", content_type="text/plain; charset=utf-8", headers=_PING)
    if path == "/version":
        return json_answer(_version())
    if path == "/info":
        return json_answer(_info(spark, t))
    if path == "/containers/json":
        every = request.query.get("all", "0").lower() in ("1", "true")
        return json_answer([_row(spark, live, t) for live in spark.containers(t) if every or live.running])
    if path == "/events":
        return Answer(stream=_events(moment, rest, request.query))
    if found := re.fullmatch(r"/containers/([^/]+)/(json|logs|changes)", path):
        live = dockerstate.find(spark, found[1], t)
        if live is None:
            return json_answer({"message": f"No such container: {found[1]}"}, status=404)
        if found[2] == "json":
            return json_answer(_inspect(spark, live, t))
        if found[2] == "changes":
            return json_answer(dockerstate.layer(live) or None)
        return _logs(moment, rest, live, request.query)
    if found := re.fullmatch(r"/images/(.+)/json", path):
        image = images.inspection(spark, unquote(found[1]))
        if image is None:
            return json_answer({"message": f"No such image: {found[1]}"}, status=404)
        return json_answer(image)
    return json_answer({"message": "page not found"}, status=404)


_PING = {"Api-Version": API_VERSION, "Docker-Experimental": "false", "Ostype": "linux"}


def _version() -> dict[str, Any]:
    return {
        "Platform": {"Name": "Docker Engine - Community"},
        "Components": [{"Name": "Engine", "Version": _VERSION, "Details": {"ApiVersion": API_VERSION}}],
        "Version": _VERSION,
        "ApiVersion": API_VERSION,
        "MinAPIVersion": "1.24",
        "Os": "linux",
        "Arch": "arm64",
    }


def _info(spark: Spark, t: float) -> dict[str, Any]:
    machine, containers = spark.script.machine, spark.containers(t)
    running = sum(live.running for live in containers)
    return {
        "ID": spark.machine_digest,
        "Name": machine.hostname,
        "Containers": len(containers),
        "ContainersRunning": running,
        "ContainersStopped": len(containers) - running,
        "ContainersPaused": 0,
        "Driver": "overlay2",
        "DockerRootDir": "/var/lib/docker",
        "ServerVersion": _VERSION,
        "OperatingSystem": machine.os_name,
        "OSType": "linux",
        "Architecture": "aarch64",
        "KernelVersion": machine.kernel,
        "NCPU": machine.cpus,
        "MemTotal": machine.total_kib * 1024,
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
        "Runtimes": {"nvidia": {"path": "nvidia-container-runtime"}, "runc": {"path": "runc"}},
        "DefaultRuntime": "runc",
    }


def _row(spark: Spark, live: LiveContainer, t: float) -> dict[str, Any]:
    script, run = live.script, live.run
    if not live.started:
        status = "Created"
    elif live.running:
        status = f"Up {_age(t - run.start_s)}"
    else:
        status = f"Exited ({run.exit_code}) {_age(t - (run.end_s or t))} ago"
    return {
        "Id": live.container_id,
        "Names": [f"/{script.name}"],
        "Image": script.image,
        "ImageID": live.image_id,
        "Command": " ".join(script.argv),
        "Created": int(spark.wall_s(_created_s(live))),
        "Ports": [],
        "Labels": _labels(script),
        "State": _state(live, t),
        "Status": status,
        "HostConfig": {"NetworkMode": "host"},
        "NetworkSettings": {"Networks": {"host": {"NetworkID": "", "IPAddress": ""}}},
        "Mounts": [],
    }


def _inspect(spark: Spark, live: LiveContainer, t: float) -> dict[str, Any]:
    script, run = live.script, live.run
    ended = live.started and not live.running
    return {
        "Id": live.container_id,
        "Created": _stamp(spark.wall_s(_created_s(live))),
        "Path": script.argv[0] if script.argv else "",
        "Args": list(script.argv[1:]),
        "State": {
            "Status": _state(live, t),
            "Running": live.running or _state(live, t) == "restarting",
            "Paused": False,
            "Restarting": _state(live, t) == "restarting",
            "OOMKilled": ended and run.oom_killed,
            "Dead": False,
            "Pid": live.pid if live.running else 0,
            "ExitCode": run.exit_code if ended else 0,
            "Error": "",
            "StartedAt": _stamp(spark.wall_s(run.start_s)) if live.started else _NEVER,
            "FinishedAt": _finished(spark, live),
        },
        "Image": live.image_id,
        "Name": f"/{script.name}",
        "RestartCount": live.restarts,
        "Driver": "overlay2",
        "Platform": "linux",
        "LogPath": f"/var/lib/docker/containers/{live.container_id}/{live.container_id}-json.log",
        "Config": {
            "Hostname": spark.script.machine.hostname,
            "User": "",
            "Tty": script.tty,
            "OpenStdin": False,
            "Env": list(script.environment),
            "Cmd": list(script.argv),
            "Entrypoint": None,
            "Image": script.image,
            "WorkingDir": "/workspace",
            "Labels": _labels(script),
            **script.config,
        },
        "HostConfig": {
            "Binds": list(script.binds) or None,
            "NetworkMode": script.network,
            "IpcMode": "host",
            "Memory": int(script.memory_limit_gib * GIB),
            "Privileged": script.privileged,
            "Devices": [
                {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in script.devices
            ],
            "Ulimits": [_ulimit(text) for text in script.ulimits],
            "PortBindings": {},
            "AutoRemove": script.auto_remove,
            "LogConfig": {"Type": "json-file", "Config": {}},
            "Runtime": "runc",
            "ShmSize": int(script.shm_gib * GIB),
            "DeviceRequests": [
                {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
            ],
            **script.host_config,
            "RestartPolicy": {"Name": script.restart_policy, "MaximumRetryCount": 0},
        },
        "Mounts": [
            {"Type": "bind", "Source": source, "Destination": target, "Mode": "", "RW": True, "Propagation": "rprivate"}
            for source, target in (bind.split(":")[:2] for bind in script.binds)
        ],
        "NetworkSettings": {"Ports": {}, "Networks": {"host": {"NetworkID": "", "IPAddress": ""}}},
    }


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


def _logs(moment: Moment, rest: Rest, live: LiveContainer, query: dict[str, str] | Any) -> Answer:
    streams = {name for name in ("stdout", "stderr") if query.get(name, "0").lower() in ("1", "true")}
    if not streams:
        return json_answer({"message": "Bad parameters: you must choose at least one stream"}, status=400)
    kind = "raw" if live.script.tty else "multiplexed"
    return Answer(
        content_type=f"application/vnd.docker.{kind}-stream", stream=_log_stream(moment, rest, live, query, streams)
    )


async def _log_stream(
    moment: Moment, rest: Rest, live: LiveContainer, query: dict[str, str] | Any, streams: set[str]
) -> AsyncIterator[bytes]:
    spark, t = moment()
    stamped = query.get("timestamps", "0").lower() in ("1", "true")
    follow = query.get("follow", "0").lower() in ("1", "true")
    since = _seconds(query.get("since"))
    until = _seconds(query.get("until"))
    last = t if until is None else min(t, until - spark.wall_s(0))
    after = float("-inf") if since is None else since - spark.wall_s(0) - 1e-6
    found = [record for record in records(spark, live.script, after, last) if record.stream in streams]
    if (tail := query.get("tail", "all")).isdecimal():
        found = found[-int(tail) :] if int(tail) else []
    if found:
        yield b"".join(_frame(spark, live, record, stamped=stamped) for record in found)
    while follow and until is None:
        await rest(_POLL_S)
        now, until_s = moment()
        if now.boot_id != spark.boot_id:
            return
        spark = now
        found = [record for record in records(spark, live.script, last, until_s) if record.stream in streams]
        last = until_s
        if found:
            yield b"".join(_frame(spark, live, record, stamped=stamped) for record in found)
        current = dockerstate.find(spark, live.container_id, until_s)
        if current is None or not current.running:
            return


def _frame(spark: Spark, live: LiveContainer, record: Record, *, stamped: bool) -> bytes:
    data = (_stamp(spark.wall_s(record.at_s)).encode() + b" " if stamped else b"") + record.data
    if live.script.tty:
        return data
    return struct.pack(">BxxxL", 2 if record.stream == "stderr" else 1, len(data)) + data


async def _events(moment: Moment, rest: Rest, query: dict[str, str] | Any) -> AsyncIterator[bytes]:
    spark, last = moment()
    if (since := _seconds(query.get("since"))) is not None:
        last = min(last, since - spark.wall_s(0))
    until = _seconds(query.get("until"))
    while True:
        now, t = moment()
        if now.boot_id != spark.boot_id:
            return
        spark = now
        for at, event in _container_events(spark):
            if last < at <= t:
                yield (
                    json.dumps(
                        event | {"time": int(spark.wall_s(at)), "timeNano": int(spark.wall_s(at) * 1e9)}
                    ).encode()
                    + b"\n"
                )
        last = t
        if until is not None and spark.wall_s(t) >= until:
            return
        await rest(_POLL_S)


def _container_events(spark: Spark) -> list[tuple[float, dict[str, Any]]]:
    found: list[tuple[float, dict[str, Any]]] = []
    for script in spark.script.containers:
        for run in script.runs:
            actor = {"ID": spark.container_id(script.name), "Attributes": {"image": script.image, "name": script.name}}
            event = {"Type": "container", "scope": "local", "id": actor["ID"], "from": script.image, "Actor": actor}
            found.append((run.start_s, event | {"Action": "start", "status": "start"}))
            if run.end_s is not None:
                attributes = {**actor["Attributes"], "exitCode": str(run.exit_code)}  # type: ignore[dict-item]
                died = event | {"Action": "die", "status": "die", "Actor": actor | {"Attributes": attributes}}
                found.append((run.end_s, died))
    return sorted(found, key=lambda row: row[0])


def _seconds(text: str | None) -> float | None:
    """A Docker time parameter: unix seconds with or without a fraction; "0" means none."""
    try:
        return float(text) or None if text else None
    except ValueError:
        return None


def _stamp(wall_s: float) -> str:
    whole, fraction = divmod(wall_s, 1.0)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int(fraction * 1e6):06d}000Z"


def _age(seconds: float) -> str:
    for size, word in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {word}"
    return f"{max(1, int(seconds))} seconds"
