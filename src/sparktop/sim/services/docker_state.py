"""Requests that change the simulated Docker Engine: its rules and error messages, applied to the play."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

from sparktop.sim.reaction import acts
from sparktop.sim.scenario.script import ContainerScript, Reaction
from sparktop.sim.services.http import Answer, HttpRequest, json_answer
from sparktop.sim.services.process import Machine
from sparktop.sim.spark.spark import GIB, LiveContainer, Spark
from sparktop.sim.spark.storage import find_image, image_id

_CHECK_EVERY_S = 0.2
_MIN_COMMON_WORDS = 3
"""Words that two command lines must share to count as the same engine."""


def find(spark: Spark, name_or_id: str, t: float) -> LiveContainer | None:
    """A container by its name or the beginning of its id."""
    containers = spark.containers(t)
    named = next((live for live in containers if live.script.name == name_or_id.lstrip("/")), None)
    return named or next((live for live in containers if name_or_id and live.container_id.startswith(name_or_id)), None)


LAYER_BYTES = 312 << 20
"""What an engine that has started has written outside its volumes: compiled kernels and their caches."""


async def change(machine: Machine, request: HttpRequest) -> Answer:
    """Carry out a changing request; the answer comes once it is done."""
    if request.method == "POST" and request.path == "/containers/create":
        return _create(machine, request)
    container_path = re.fullmatch(r"/containers/([^/]+)", request.path)
    verb_path = re.fullmatch(r"/containers/([^/]+)/(stop|kill|start|rename|update|wait)", request.path)
    match = container_path if request.method == "DELETE" else verb_path if request.method == "POST" else None
    if match is None:
        return json_answer({"message": "page not found"}, status=404)
    spark, t = machine.moment()
    live = find(spark, unquote(match[1]), t)
    if live is None:
        return json_answer({"message": f"No such container: {unquote(match[1])}"}, status=404)
    if request.method == "DELETE":
        return await _remove(machine, live, request.query)
    return await _VERBS[match[2]](machine, live, request)


async def _stop(machine: Machine, live: LiveContainer, request: HttpRequest) -> Answer:
    if not live.running:
        return Answer(status=304)
    machine.react(acts.stop_container(name=live.script.name, grace_s=float(request.query.get("t", 10))))
    await _wait_until_exited(machine, live)
    return Answer(status=204)


async def _kill(machine: Machine, live: LiveContainer, request: HttpRequest) -> Answer:
    if not live.running:
        message = f"cannot kill container: {live.container_id}: container {live.container_id} is not running"
        return json_answer({"message": message}, status=409)
    machine.react(acts.kill_container(name=live.script.name))
    await _wait_until_exited(machine, live)
    return Answer(status=204)


async def _start(machine: Machine, live: LiveContainer, request: HttpRequest) -> Answer:
    if live.running:
        return Answer(status=304)
    machine.react(acts.start_container(name=live.script.name))
    return Answer(status=204)


async def _rename(machine: Machine, live: LiveContainer, request: HttpRequest) -> Answer:
    name = request.query.get("name", "").lstrip("/")
    refused = _name_error(machine, name)
    if refused is not None:
        return refused
    machine.react(acts.rename_container(name=live.script.name, new_name=name))
    return Answer(status=204)


async def _update(machine: Machine, live: LiveContainer, request: HttpRequest) -> Answer:
    policy = json.loads(request.body)["RestartPolicy"]["Name"]
    machine.react(acts.update_container(name=live.script.name, restart_policy=policy or "no"))
    return json_answer({"Warnings": None})


async def _wait(machine: Machine, live: LiveContainer, request: HttpRequest) -> Answer:
    await _wait_until_exited(machine, live)
    spark, t = machine.moment()
    exited = find(spark, live.container_id, t)
    return json_answer({"StatusCode": exited.run.exit_code if exited else 0})


_VERBS = {"stop": _stop, "kill": _kill, "start": _start, "rename": _rename, "update": _update, "wait": _wait}


async def _remove(machine: Machine, live: LiveContainer, query: Mapping[str, str]) -> Answer:
    if live.running and query.get("force", "0").lower() not in ("1", "true"):
        reason = "container is running: stop the container before removing or force remove"
        message = f'cannot remove container "{live.container_id}": {reason}'
        return json_answer({"message": message}, status=409)
    if live.running:
        machine.react(acts.kill_container(name=live.script.name))
        await _wait_until_exited(machine, live)
    machine.react(acts.remove_container(name=live.script.name))
    return Answer(status=204)


async def _wait_until_exited(machine: Machine, live: LiveContainer) -> None:
    boot_id = machine.moment()[0].boot_id
    while True:
        spark, t = machine.moment()
        current = find(spark, live.container_id, t)
        if current is None or not current.running or spark.boot_id != boot_id:
            return
        await machine.rest(_CHECK_EVERY_S)


def _name_error(machine: Machine, name: str) -> Answer | None:
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name):
        message = f"Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed"
        return json_answer({"message": message}, status=400)
    spark, t = machine.moment()
    holder = next((live for live in spark.containers(t) if live.script.name == name), None)
    if holder is None:
        return None
    message = (
        f'Conflict. The container name "/{name}" is already in use by container "{holder.container_id}". '
        "You have to remove (or rename) that container to be able to reuse that name."
    )
    return json_answer({"message": message}, status=409)


def _create(machine: Machine, request: HttpRequest) -> Answer:
    body = json.loads(request.body)
    spark, t = machine.moment()
    name = request.query.get("name", "").lstrip("/") or f"quiet_spark_{int(t) % 100_000}"
    if (refused := _name_error(machine, name)) is not None:
        return refused
    image_name = str(body.get("Image") or "")
    source = find_image(spark.script, image_name)
    if source is None:
        return json_answer({"message": f"No such image: {image_name}"}, status=404)
    image, found_id = source
    host = body.get("HostConfig") or {}
    entrypoint = [word for word in _text_list(body.get("Entrypoint")) if word]
    config = {key: value for key, value in body.items() if key not in ("HostConfig", "NetworkingConfig")}
    script = ContainerScript(
        name=name,
        image=image if image_name == found_id else image_name,
        image_id=found_id,
        argv=(*entrypoint, *_text_list(body.get("Cmd"))),
        runs=(),
        environment=tuple(word for word in _text_list(body.get("Env")) if "=" in word),
        binds=_text_list(host.get("Binds")),
        restart_policy=str((host.get("RestartPolicy") or {}).get("Name") or "no"),
        auto_remove=bool(host.get("AutoRemove")),
        tty=bool(body.get("Tty")),
        shm_gib=float(host.get("ShmSize") or 64 << 20) / GIB,
        network=str(host.get("NetworkMode") or "bridge"),
        privileged=bool(host.get("Privileged")),
        devices=tuple(str(device.get("PathOnHost")) for device in host.get("Devices") or ()),
        ulimits=tuple(
            f"{limit.get('Name')}={limit.get('Soft')}:{limit.get('Hard')}" for limit in host.get("Ulimits") or ()
        ),
        labels=tuple(f"{key}={value}" for key, value in (body.get("Labels") or {}).items()),
        memory_limit_gib=float(host.get("Memory") or 0) / GIB,
        reaction=Reaction(name=name),
        config={"Entrypoint": entrypoint or None, **{k: v for k, v in config.items() if k != "Entrypoint"}},
        host_config=host,
    )  # fmt: skip
    machine.react(acts.create_container(script=script, like=_similar_container(spark, script)))
    spark, t = machine.moment()
    return json_answer({"Id": spark.container_id(name), "Warnings": []}, status=201)


def _similar_container(spark: Spark, script: ContainerScript) -> str:
    """The container that ran the same engine, by command line and image; empty where there is none."""

    def similarity(candidate: ContainerScript) -> tuple[int, bool]:
        return len(set(candidate.argv) & set(script.argv)), image_id(candidate) == image_id(script)

    best = max(spark.script.containers, key=similarity, default=None)
    return (
        best.name if best is not None and similarity(best)[0] >= min(_MIN_COMMON_WORDS, len(set(script.argv))) else ""
    )


def _text_list(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
