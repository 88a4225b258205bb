"""The Docker Engine of one node, through its Unix socket: which containers there are, and their logs.

The SDK blocks, so every call runs in a daemon thread with a time limit. Strings pass the sanitiser and argument lists
the masking (probe.remote's, handed in) here, before anything else sees them. Nothing here changes a container.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any

from sparktop import sanitise
from sparktop.errors import ChannelRefused, TransportError
from sparktop.model.engine import Container, Containers
from sparktop.transport.base import Transport
from sparktop.transport.dockerenv import Secrets, described
from sparktop.transport.dockerlog import FollowEnd, OnBatch, Pump, Stop, read_file, read_log
from sparktop.transport.threads import in_thread

MaskArgv = Callable[[Iterable[str]], Sequence[str]]
"""An argument list with the values of secrets replaced; sparktop.probe.remote.mask_argv is the one there is."""

SOCKET = "/var/run/docker.sock"
TIMEOUT_S = 10
MAX_STOPPED = 30
"""Of stopped containers only the newest are looked at."""
RETRY_S = 15.0
"""Where the Docker Engine can't be used it is asked again so often, whatever the caller's rate."""

_WHY_NOT = 'if [ ! -e "$1" ]; then echo missing; elif [ -r "$1" ] && [ -w "$1" ]; then echo open; else echo denied; fi'
"""sh -c ... sh SOCKET: over SSH a forwarded socket just closes, so the node is asked why, once a connection: a fork."""

_DETAILS: Mapping[str, str] = {
    "denied": "no permission to use the Docker Engine: run `sudo usermod -aG docker $USER` there, then log in again",
    "missing": "no Docker Engine here (no {socket})",
    "open": "the Docker Engine does not answer: see `systemctl status docker` there",
}


_STOPPED_OR_FORBIDDEN = (
    "the Docker Engine can't be reached: either it is stopped (`systemctl status docker` there), "
    "or that sshd forwards no Unix sockets (AllowStreamLocalForwarding)"
)


class DockerEngine:
    """One node's Docker Engine over one connection; make a new one with each new Transport."""

    def __init__(self, transport: Transport, *, mask: MaskArgv, socket_path: str = SOCKET) -> None:
        self._transport = transport
        self._mask = mask
        self._socket_path = socket_path
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._base_url: str | None = None
        self._api: Any = None
        self._known: dict[str, tuple[tuple[str, str], Container]] = {}
        self._busy: asyncio.Task[Containers] | None = None
        self._unavailable: Containers | None = None
        self._retry_at = 0.0
        self._reason: str | None = None

    async def list(self) -> Containers:
        """All running containers and the newest stopped ones, inspected where they changed; never raises for Docker's
        sake: why there are none stands in `detail`. While an earlier call hangs, it is not asked a second time."""
        loop = asyncio.get_running_loop()
        if self._unavailable is not None and loop.time() < self._retry_at:
            return self._unavailable
        if self._busy is not None and not self._busy.done():
            return Containers(detail=f"the Docker Engine has not answered for {TIMEOUT_S} s and is still being asked")
        self._busy = loop.create_task(self._list())
        try:
            async with asyncio.timeout(TIMEOUT_S + 2):
                answer = await asyncio.shield(self._busy)
        except TimeoutError:
            return Containers(detail=f"the Docker Engine has not answered for {TIMEOUT_S} s")
        self._unavailable = None if answer.available else answer
        self._retry_at = loop.time() + RETRY_S
        return answer

    async def follow(
        self, container_id: str, *, on_batch: OnBatch, tail: int = 1000, since: float | None = None
    ) -> FollowEnd:
        """Follow a container's log until it ends, the connection breaks or the caller is cancelled.

        Args:
            on_batch: called on the loop with at most some 20,000 lines a second.
            tail: lines of the past to begin with.
            since: node wall clock seconds; only later lines (to go on after a broken connection).
        """
        try:
            base_url = await self._open()
        except TransportError as error:
            return FollowEnd(reason=error.message, broken=True, last_wall_s=since)
        pump = Pump(on_batch, stamped=True, after_wall_s=since)
        end = await _pumped(pump, base_url, read_log, container_id, tail, since, True)
        if end.ended:
            # dockerd may close a follower before the last records have passed: an engine's last words, of all things
            pump = Pump(on_batch, stamped=True, after_wall_s=end.last_wall_s)
            await _pumped(pump, base_url, read_log, container_id, tail, end.last_wall_s, False)
        return replace(end, last_wall_s=pump.last_wall_s)

    async def follow_file(self, container_id: str, path: str, *, on_batch: OnBatch, tail: int = 500) -> FollowEnd:
        """Follow a file inside a container (launchers that write one); its lines carry no time."""
        try:
            base_url = await self._open()
        except TransportError as error:
            return FollowEnd(reason=error.message, broken=True)
        return await _pumped(Pump(on_batch, stamped=False), base_url, read_file, container_id, path, tail)

    async def close(self) -> None:
        """Let the socket go; followers are ended by cancelling them."""
        if self._busy is not None:
            self._busy.cancel()
        api, self._api = self._api, None
        if api is not None:
            api.close()
        await self._stack.aclose()

    async def _open(self) -> str:
        async with self._opening:
            if self._base_url is None:
                path = await self._stack.enter_async_context(self._transport.unix_socket(self._socket_path))
                self._base_url = f"unix://{path}"
            return self._base_url

    async def _list(self) -> Containers:
        try:
            base_url = await self._open()
        except ChannelRefused:
            return Containers(detail=await self._why_not(forwarded=False))
        except TransportError as error:
            return Containers(detail=error.message)
        outcome = await in_thread(self._ask, base_url)
        if isinstance(outcome, tuple):
            self._reason = None
            return Containers(containers=outcome, available=True, detail="")
        return Containers(detail=outcome or await self._why_not())

    def _ask(self, base_url: str) -> tuple[Container, ...] | str:
        """In a thread: the containers, or what is wrong; "" where only the node can tell."""
        import docker.errors
        import requests

        try:
            if self._api is None:
                self._api = make_client(base_url)
            api = self._api
            rows = api.containers(all=True)
            return self._inspected(api, rows)
        except docker.errors.APIError as error:
            return f"the Docker Engine refused: {sanitise.line(str(error.explanation), limit=200)}"
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            cause: BaseException | None = error
            while cause is not None:  # the SDK wraps a time-out of its first request in words
                if isinstance(cause, requests.Timeout | TimeoutError):
                    return f"the Docker Engine has not answered for {TIMEOUT_S} s"
                cause = cause.__cause__ or cause.__context__
            return ""
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return f"the Docker Engine's answer can't be read ({type(error).__name__})"

    def _inspected(self, api: Any, rows: Sequence[dict[str, Any]]) -> tuple[Container, ...]:
        import docker.errors

        running = [row for row in rows if row.get("State") not in ("exited", "dead", "created")]
        stopped = sorted((row for row in rows if row not in running), key=lambda row: -int(row.get("Created") or 0))
        found: dict[str, tuple[tuple[str, str], Container]] = {}
        for row in (*running, *stopped[:MAX_STOPPED]):
            container_id = str(row["Id"])
            mark = (str(row.get("State")), str(row.get("Status")))  # the words age ("Up 2 hours"): a restart shows
            known = self._known.get(container_id)
            if known is not None and known[0] == mark:
                found[container_id] = known
                continue
            try:
                found[container_id] = (mark, container_of(api.inspect_container(container_id), self._mask))
            except docker.errors.NotFound:
                continue  # removed meanwhile
        self._known = found
        return tuple(container for _, container in found.values())

    async def _why_not(self, *, forwarded: bool = True) -> str:
        try:
            async with asyncio.timeout(5):
                channel = await self._transport.run(["sh", "-c", _WHY_NOT, "sh", self._socket_path])
                try:
                    word = (await channel.read(64)).decode("ascii", "replace").strip()
                finally:
                    await channel.close()
        except (TimeoutError, TransportError):
            word = ""
        if word == "open" and not forwarded:
            return _STOPPED_OR_FORBIDDEN
        return _DETAILS.get(word, "the Docker Engine can't be reached").format(socket=self._socket_path)


def make_client(base_url: str) -> Any:
    """A docker.APIClient that reads no proxy settings and no netrc; blocking, for a thread."""
    import docker

    client = docker.APIClient(base_url=base_url, version="auto", timeout=TIMEOUT_S)
    client.trust_env = False
    return client


async def _pumped(pump: Pump, base_url: str, read: Callable[..., FollowEnd], *args: Any) -> FollowEnd:
    stop = Stop()
    try:
        end = await in_thread(_with_client, base_url, read, *args, pump, stop)
        await pump.finish()
        return replace(end, last_wall_s=pump.last_wall_s)
    finally:
        stop.now()
        pump.close()


def _with_client(base_url: str, read: Callable[..., FollowEnd], *args: Any) -> FollowEnd:
    import docker.errors
    import requests

    try:
        client = make_client(base_url)
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        what = sanitise.line(f"{type(error).__name__}: {error}", limit=200)
        return FollowEnd(reason=f"the Docker Engine can't be reached ({what})", broken=True)
    try:
        return read(client, *args)
    finally:
        client.close()


def container_of(raw: Mapping[str, Any], mask: MaskArgv) -> Container:
    """One answer of `docker inspect` to the model; what is missing or odd is left at its default."""
    state = _mapping(raw.get("State"))
    config = _mapping(raw.get("Config"))
    host = _mapping(raw.get("HostConfig"))
    network = _mapping(raw.get("NetworkSettings"))
    policy = _mapping(host.get("RestartPolicy"))
    status = sanitise.name(str(state.get("Status") or ""))
    secrets = Secrets(mask, [str(pair) for pair in _items(config.get("Env"))])
    argv = [str(raw.get("Path") or ""), *(str(part) for part in _items(raw.get("Args")))]
    addresses = (str(_mapping(net).get("IPAddress") or "") for net in _mapping(network.get("Networks")).values())
    return Container(
        container_id=sanitise.name(str(raw.get("Id") or "")),
        name=sanitise.name(str(raw.get("Name") or "").lstrip("/")),
        image=sanitise.name(str(config.get("Image") or "")),
        image_id=sanitise.name(str(raw.get("Image") or "")),
        status=status,
        exit_code=_number(state.get("ExitCode")) if status in ("exited", "dead") else None,
        oom_killed=bool(state.get("OOMKilled")),
        started_wall_s=wall_s_of(state.get("StartedAt")),
        finished_wall_s=wall_s_of(state.get("FinishedAt")),
        restart_count=_number(raw.get("RestartCount")),
        restart_policy=sanitise.name(str(policy.get("Name") or "")),
        auto_remove=bool(host.get("AutoRemove")),
        network_mode=sanitise.name(str(host.get("NetworkMode") or "")),
        pid=_number(state.get("Pid")) or None,
        published_ports=_published(_mapping(network.get("Ports"))),
        addresses=tuple(sanitise.name(address) for address in addresses if address),
        argv=tuple(sanitise.line(secrets.hide(part)) for part in mask([part for part in argv if part])),
        environment=tuple(sanitise.line(pair) for pair in secrets.environment),
        labels=described(config.get("Labels"), secrets),
        ipc_mode=sanitise.name(str(host.get("IpcMode") or "")),
        shm_bytes=_number(host.get("ShmSize")) or None,
        memory_limit_bytes=_number(host.get("Memory")) or None,
        is_privileged=bool(host.get("Privileged")),
        has_gpus=_has_gpus(host, secrets.environment),
        devices=tuple(
            sanitise.name(str(_mapping(device).get("PathOnHost") or "")) for device in _items(host.get("Devices"))
        ),
        ulimits=tuple(
            sanitise.name(f"{limit.get('Name')}={_number(limit.get('Soft'))}:{_number(limit.get('Hard'))}")
            for limit in map(_mapping, _items(host.get("Ulimits")))
        ),
        mounts=tuple(
            sanitise.line(f"{mount.get('Source') or mount.get('Name') or ''}:{mount.get('Destination') or ''}")
            for mount in map(_mapping, _items(raw.get("Mounts")))
        ),
    )


def _has_gpus(host: Mapping[str, Any], environment: Sequence[str]) -> bool:
    """Whether GPUs were asked for: an image's own NVIDIA_VISIBLE_DEVICES does nothing under plain runc."""
    requests = [_mapping(request) for request in _items(host.get("DeviceRequests"))]
    if any(
        request.get("Driver") in ("nvidia", "cdi")
        or any("gpu" in _items(one) for one in _items(request.get("Capabilities")))
        for request in requests
    ):
        return True
    if any("nvidia" in str(_mapping(device).get("PathOnHost")) for device in _items(host.get("Devices"))):
        return True
    runtime = str(host.get("Runtime") or "")
    visible = next((pair.partition("=")[2] for pair in environment if pair.startswith("NVIDIA_VISIBLE_DEVICES=")), "")
    return "nvidia" in runtime or (not runtime and visible not in ("", "void", "none"))


def _published(ports: Mapping[str, Any]) -> dict[int, int]:
    """TCP ports that the node's loopback reaches."""
    out: dict[int, int] = {}
    for port, bindings in ports.items():
        number, _, protocol = str(port).partition("/")
        if protocol == "udp" or not number.isdecimal():
            continue
        for binding in _items(bindings):
            host_port = str(_mapping(binding).get("HostPort") or "")
            if host_port.isdecimal() and str(_mapping(binding).get("HostIp") or "") in ("", "0.0.0.0", "127.0.0.1"):  # noqa: S104
                out[int(number)] = int(host_port)
    return out


def wall_s_of(stamp: object) -> float | None:
    """Docker's RFC 3339 time; None for its year 1, which means never."""
    try:
        moment = datetime.fromisoformat(str(stamp))
        return moment.timestamp() if moment.year > 1 else None
    except (ValueError, OverflowError):
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
