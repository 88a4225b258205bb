"""The Docker Engine of one node, through its Unix socket: its containers and their logs.

The SDK blocks, so every call runs in a daemon thread with a time limit. Its results are sanitised and masked before
anything else sees them. Nothing here changes a container.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from sparktop import sanitise
from sparktop.errors import ChannelRefused, TransportError
from sparktop.masking import mask_text
from sparktop.model.engine import Container, Containers
from sparktop.transport.base import Transport
from sparktop.transport.docker.client import TIMEOUT_S, Unreadable, make_client
from sparktop.transport.docker.inspection import Secrets, container_of, secrets_of
from sparktop.transport.docker.log_follower import FollowEnd, OnBatch, Pump, Skip, Stop, read_file, read_log
from sparktop.transport.lean import import_lean
from sparktop.transport.threads import in_thread

SOCKET = "/var/run/docker.sock"
MAX_RUNNING = 200
"""How many other containers are: a Spark runs a handful."""
MAX_STOPPED = 30
"""How many stopped containers are inspected, the newest first."""
_STOPPED = ("exited", "dead", "created")
INSPECTED_AGE_S = 30.0
"""How often an unchanged running container is inspected anyway: the list doesn't show the effect of `docker update`."""
TAIL_LINES = 10_000
"""An engine that is scraped every 2 s writes nothing else of note for hours: so many lines are 5 to 40 h, and 1 MB."""
RETRY_S = 15.0
"""Interval of attempts while the Docker Engine can't be used, whatever the caller's rate."""
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
    """One node's Docker Engine over one connection; create a new one for each new Transport."""

    def __init__(self, transport: Transport, *, socket_path: str = "") -> None:
        self._transport = transport
        self._socket_path = socket_path or SOCKET
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._base_url: str | None = None
        self._api: Any = None
        self._known: dict[str, tuple[tuple[str, str], float, Container]] = {}
        """By id: what of its row a change would show in, when it was inspected, and what was found."""
        self._secrets: dict[str, Secrets] = {}
        """Of each container that was inspected."""
        self._busy: asyncio.Task[Containers] | None = None
        self._unavailable: Containers | None = None
        self._retry_at = 0.0

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
        self,
        container_id: str,
        *,
        on_batch: OnBatch,
        tail: int = TAIL_LINES,
        since: float | None = None,
        skip: Skip = lambda _: False,
    ) -> FollowEnd:
        """Follow a container's log until it ends, the connection breaks or the caller is cancelled.

        What looks like a secret is masked in it, and so is what was listed before as one of the container's own.

        Args:
            on_batch: called on the loop with at most some 20,000 lines a second.
            tail: lines of the past to begin with.
            skip: of the past, whether a line is left out.
            since: node wall clock seconds; only later lines (to go on after a broken connection).
        """
        try:
            base_url = await self._open()
        except TransportError as error:
            return FollowEnd(reason=error.message, last_wall_s=since)
        mask = self._masking(container_id)
        pump = Pump(on_batch, mask=mask, stamped=True, after_wall_s=since)
        end = await _pumped(pump, base_url, read_log, container_id, tail, since, True, skip)
        if end.ended:
            # dockerd may close a follower before the last records have passed: an engine's last words, of all things
            pump = Pump(on_batch, mask=mask, stamped=True, after_wall_s=end.last_wall_s)
            await _pumped(pump, base_url, read_log, container_id, tail, end.last_wall_s, False, skip)
        return replace(end, last_wall_s=pump.last_wall_s)

    async def follow_file(self, container_id: str, path: str, *, on_batch: OnBatch, tail: int = 500) -> FollowEnd:
        """Follow a file inside a container (launchers that write one), masked as `follow` does; no line has a time."""
        try:
            base_url = await self._open()
        except TransportError as error:
            return FollowEnd(reason=error.message)
        pump = Pump(on_batch, mask=self._masking(container_id), stamped=False)
        return await _pumped(pump, base_url, read_file, container_id, path, tail)

    def _masking(self, container_id: str) -> Callable[[str], str]:
        secrets = self._secrets.get(container_id)
        return mask_text if secrets is None else lambda text: mask_text(secrets.hide(text))

    async def close(self) -> None:
        """Close the client; cancel followers to end them."""
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
            return await self._why_not(forwarded=False)
        except TransportError as error:
            return Containers(detail=error.message)
        outcome = await in_thread(self._ask, base_url)
        if isinstance(outcome, tuple):
            return Containers(containers=outcome, available=True, detail="")
        return Containers(detail=outcome) if outcome else await self._why_not()

    def _ask(self, base_url: str) -> tuple[Container, ...] | str:
        """In a thread: the containers, or why there are none; "" where only the node can tell."""
        docker = import_lean("docker")
        import requests

        try:
            if self._api is None:
                self._api = make_client(base_url)
            return self._inspected(self._api, self._api.containers(all=True))
        except docker.errors.APIError as error:
            return f"the Docker Engine refused: {sanitise.line(str(error.explanation), limit=200)}"
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            cause: BaseException | None = error
            while cause is not None:  # the SDK wraps a time-out of its first request in words
                if isinstance(cause, requests.Timeout | TimeoutError):
                    return f"the Docker Engine has not answered for {TIMEOUT_S} s"
                if isinstance(cause, Unreadable):
                    return f"the Docker Engine can't be used: {cause}"
                cause = cause.__cause__ or cause.__context__
            return ""
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return f"the Docker Engine's answer can't be read ({type(error).__name__})"

    def _inspected(self, api: Any, rows: Sequence[dict[str, Any]]) -> tuple[Container, ...]:
        import docker.errors

        running = [row for row in rows if row.get("State") not in _STOPPED]
        stopped = [row for row in rows if row.get("State") in _STOPPED]
        stopped.sort(key=lambda row: -int(row.get("Created") or 0))
        inspected: dict[str, tuple[tuple[str, str], float, Container]] = {}
        now_s = time.monotonic()
        for row in (*running[:MAX_RUNNING], *stopped[:MAX_STOPPED]):
            container_id = str(row["Id"])
            mark = (str(row.get("State")), str(row.get("Status")))  # the words age ("Up 2 hours"): a restart shows
            cached = self._known.get(container_id)
            is_fresh = cached is not None and (row.get("State") in _STOPPED or now_s - cached[1] < INSPECTED_AGE_S)
            if cached is not None and cached[0] == mark and is_fresh:
                inspected[container_id] = cached
                continue
            try:
                raw = api.inspect_container(container_id)
            except docker.errors.NotFound:
                continue  # removed meanwhile
            self._secrets[container_id] = secrets_of(raw)
            inspected[container_id] = (mark, now_s, container_of(raw))
        self._known = inspected
        self._secrets = {container_id: self._secrets[container_id] for container_id in inspected}
        return tuple(container for *_, container in inspected.values())

    async def _why_not(self, *, forwarded: bool = True) -> Containers:
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
            return Containers(detail=_STOPPED_OR_FORBIDDEN)
        detail = _DETAILS.get(word, "the Docker Engine can't be reached").format(socket=self._socket_path)
        return Containers(detail=detail, is_denied=word == "denied", is_absent=word == "missing")


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
    docker = import_lean("docker")
    import requests

    try:
        client = make_client(base_url)
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        reason = sanitise.line(f"{type(error).__name__}: {error}", limit=200)
        return FollowEnd(reason=f"the Docker Engine can't be reached ({reason})")
    try:
        return read(client, *args)
    finally:
        client.close()
