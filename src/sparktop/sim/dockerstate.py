"""What the Docker Engine of a simulated Spark does when it is told to: its rules and its words, over what is played."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

from sparktop.sim import acts
from sparktop.sim.http import Answer, Request, json_answer
from sparktop.sim.images import find as find_image
from sparktop.sim.images import image_id
from sparktop.sim.script import ContainerScript, Reaction
from sparktop.sim.spark import GIB, LiveContainer, Spark

Moment = Callable[[], tuple[Spark, float]]
"""The node's Spark and the second of its boot's time, now."""
Rest = Callable[[float], Awaitable[None]]
"""Wait so many seconds of the scenario."""
React = Callable[[acts.Act], None]
"""Do something to the node."""

_LOOK_S = 0.2

_ALIKE = 3
"""Words that two command lines must share for one engine to be the other's successor."""
_POLICIES = ("", "no", "always", "unless-stopped", "on-failure")


def find(spark: Spark, wanted: str, t: float) -> LiveContainer | None:
    """A container by its name or the beginning of its id."""
    rows = spark.containers(t)
    named = next((live for live in rows if live.script.name == wanted.lstrip("/")), None)
    return named or next((live for live in rows if wanted and live.container_id.startswith(wanted)), None)


def layer(live: LiveContainer) -> list[dict[str, Any]]:
    """What an engine has written beside its volumes: compiled kernels and their caches."""
    if not live.started:
        return []
    paths = [("/root", 0), ("/root/.cache", 0), ("/root/.cache/vllm", 1), ("/root/.cache/vllm/torch_compile_cache", 1)]
    paths += [("/root/.triton", 1), ("/root/.triton/cache", 1), ("/tmp", 0), ("/tmp/torchinductor_root", 1)]  # noqa: S108
    return [{"Path": path, "Kind": kind} for path, kind in paths]


async def changed(moment: Moment, rest: Rest, react: React, request: Request) -> Answer:
    """The answer to a request that changes something, when it has been done."""
    if request.method == "POST" and request.path == "/containers/create":
        return _create(moment, react, request)
    whole = re.fullmatch(r"/containers/([^/]+)", request.path)
    verb = re.fullmatch(r"/containers/([^/]+)/(stop|kill|start|restart|rename|update|wait)", request.path)
    found = whole if request.method == "DELETE" else verb if request.method == "POST" else None
    if found is None:
        return json_answer({"message": "page not found"}, status=404)
    spark, t = moment()
    live = find(spark, unquote(found[1]), t)
    if live is None:
        return json_answer({"message": f"No such container: {unquote(found[1])}"}, status=404)
    if request.method == "DELETE":
        return await _remove(moment, rest, react, live, request.query)
    return await _VERBS[found[2]](moment, rest, react, live, request)


async def _stop(moment: Moment, rest: Rest, react: React, live: LiveContainer, request: Request) -> Answer:
    if not live.running:
        return Answer(status=304)
    react(acts.StopContainer(name=live.script.name, grace_s=_number(request.query.get("t"), 10.0)))
    await _until_ended(moment, rest, live)
    return Answer(status=204)


async def _kill(moment: Moment, rest: Rest, react: React, live: LiveContainer, request: Request) -> Answer:
    if not live.running:
        message = f"cannot kill container: {live.container_id}: container {live.container_id} is not running"
        return json_answer({"message": message}, status=409)
    signal = request.query.get("signal", "KILL").upper().removeprefix("SIG")
    if signal in ("KILL", "9"):
        react(acts.KillContainer(name=live.script.name))
        await _until_ended(moment, rest, live)
    elif signal in ("TERM", "INT", "15", "2"):
        react(acts.StopContainer(name=live.script.name, grace_s=float("inf")))
    return Answer(status=204)


async def _start(moment: Moment, rest: Rest, react: React, live: LiveContainer, request: Request) -> Answer:
    if live.running:
        return Answer(status=304)
    react(acts.StartContainer(name=live.script.name))
    return Answer(status=204)


async def _restart(moment: Moment, rest: Rest, react: React, live: LiveContainer, request: Request) -> Answer:
    if live.running:
        await _stop(moment, rest, react, live, request)
    react(acts.StartContainer(name=live.script.name))
    return Answer(status=204)


async def _rename(moment: Moment, rest: Rest, react: React, live: LiveContainer, request: Request) -> Answer:
    name = request.query.get("name", "").lstrip("/")
    refused = _name_refused(moment, name)
    if refused is not None:
        return refused
    react(acts.RenameContainer(name=live.script.name, new_name=name))
    return Answer(status=204)


async def _update(moment: Moment, rest: Rest, react: React, live: LiveContainer, request: Request) -> Answer:
    body = _body(request)
    policy = body.get("RestartPolicy", {}).get("Name") if isinstance(body.get("RestartPolicy"), dict) else None
    if policy is not None and policy not in _POLICIES:
        message = f"invalid restart policy: unknown policy '{policy}'; use one of 'no', 'always', 'on-failure'"
        return json_answer({"message": message}, status=400)
    if policy is not None:
        react(acts.UpdateContainer(name=live.script.name, restart_policy=policy or "no"))
    return json_answer({"Warnings": None})


async def _wait(moment: Moment, rest: Rest, react: React, live: LiveContainer, request: Request) -> Answer:
    await _until_ended(moment, rest, live)
    spark, t = moment()
    ended = find(spark, live.container_id, t)
    return json_answer({"StatusCode": ended.run.exit_code if ended else 0})


_VERBS = {
    "stop": _stop, "kill": _kill, "start": _start, "restart": _restart, "rename": _rename, "update": _update,
    "wait": _wait,
}  # fmt: skip


async def _remove(
    moment: Moment, rest: Rest, react: React, live: LiveContainer, query: Mapping[str, str]
) -> Answer:  # fmt: skip
    if live.running and query.get("force", "0").lower() not in ("1", "true"):
        what = "container is running: stop the container before removing or force remove"
        message = f'cannot remove container "{live.container_id}": {what}'
        return json_answer({"message": message}, status=409)
    if live.running:
        react(acts.KillContainer(name=live.script.name))
        await _until_ended(moment, rest, live)
    react(acts.RemoveContainer(name=live.script.name))
    return Answer(status=204)


async def _until_ended(moment: Moment, rest: Rest, live: LiveContainer) -> None:
    boot_id = moment()[0].boot_id
    while True:
        spark, t = moment()
        now = find(spark, live.container_id, t)
        if now is None or not now.running or spark.boot_id != boot_id:
            return
        await rest(_LOOK_S)


def _name_refused(moment: Moment, name: str) -> Answer | None:
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name):
        message = f"Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed"
        return json_answer({"message": message}, status=400)
    spark, t = moment()
    holder = next((live for live in spark.containers(t) if live.script.name == name), None)
    if holder is None:
        return None
    message = (
        f'Conflict. The container name "/{name}" is already in use by container "{holder.container_id}". '
        "You have to remove (or rename) that container to be able to reuse that name."
    )
    return json_answer({"message": message}, status=409)


def _create(moment: Moment, react: React, request: Request) -> Answer:
    body = _body(request)
    spark, t = moment()
    name = request.query.get("name", "").lstrip("/") or f"quiet_spark_{int(t) % 100_000}"
    if (refused := _name_refused(moment, name)) is not None:
        return refused
    wanted = str(body.get("Image") or "")
    source = find_image(spark.script, wanted)
    if source is None:
        return json_answer({"message": f"No such image: {wanted}"}, status=404)
    image, number = source
    host = body.get("HostConfig") if isinstance(body.get("HostConfig"), dict) else {}
    assert isinstance(host, dict)
    entrypoint = [word for word in _words(body.get("Entrypoint")) if word]
    config = {key: value for key, value in body.items() if key not in ("HostConfig", "NetworkingConfig")}
    default = Reaction(name=name)
    script = ContainerScript(
        name=name,
        image=image if wanted == number else wanted,
        image_id=number,
        argv=(*entrypoint, *_words(body.get("Cmd"))),
        runs=(),
        environment=tuple(word for word in _words(body.get("Env")) if "=" in word),
        binds=_words(host.get("Binds")),
        restart_policy=str((host.get("RestartPolicy") or {}).get("Name") or "no"),
        auto_remove=bool(host.get("AutoRemove")),
        tty=bool(body.get("Tty")),
        shm_gib=float(host.get("ShmSize") or 64 << 20) / GIB,
        network=str(host.get("NetworkMode") or "bridge"),
        privileged=bool(host.get("Privileged")),
        devices=tuple(str(one.get("PathOnHost")) for one in host.get("Devices") or () if isinstance(one, dict)),
        ulimits=tuple(
            f"{one.get('Name')}={one.get('Soft')}:{one.get('Hard')}"
            for one in host.get("Ulimits") or () if isinstance(one, dict)
        ),
        labels=tuple(f"{key}={value}" for key, value in (body.get("Labels") or {}).items()),
        memory_limit_gib=float(host.get("Memory") or 0) / GIB,
        reaction=default,
        config={"Entrypoint": entrypoint or None, **{k: v for k, v in config.items() if k != "Entrypoint"}},
        host_config=host,
    )  # fmt: skip
    react(acts.CreateContainer(script=script, like=_like(spark, script)))
    spark, t = moment()
    return json_answer({"Id": spark.container_id(name), "Warnings": []}, status=201)


def _like(spark: Spark, script: ContainerScript) -> str:
    """The container whose engine this one runs: of the same image where there is one, by its command line."""

    def alike(one: ContainerScript) -> tuple[int, bool]:
        return len(set(one.argv) & set(script.argv)), image_id(one) == image_id(script)

    best = max(spark.script.containers, key=alike, default=None)
    return best.name if best is not None and alike(best)[0] >= min(_ALIKE, len(set(script.argv))) else ""


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _number(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default
