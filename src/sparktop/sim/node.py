"""One live simulated Spark: its SSH server, and the handlers of its channels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import asyncssh

from sparktop.probe import bundle
from sparktop.sim.loopback import Listener
from sparktop.sim.reaction.acts import Act
from sparktop.sim.reaction.play import Play
from sparktop.sim.scenario.script import NodeScript
from sparktop.sim.services import docker_api, engine_api, http, proxy
from sparktop.sim.services.probe_session import Talk
from sparktop.sim.services.process import Departed, ProgramSession
from sparktop.sim.services.runner import NodeSteps, Runner
from sparktop.sim.services.ssh_files import accepts
from sparktop.sim.spark.spark import Spark

DEMO_PASSWORD = "unpacked"  # noqa: S105 - of a machine that exists in this process alone
DOCKER_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
_WATCH_S = 0.2
_LONGEST_REST_S = 0.5
"""Real seconds: how often a clock that is moved by hand is checked."""
_CONNECTION_ERRORS = (OSError, EOFError, asyncssh.Error)
Handler = Callable[[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]], Awaitable[None]]


class LiveNode:
    """A node of the play, reachable over SSH from `start` to `close`."""

    def __init__(self, play: Play, script: NodeScript, client_key: asyncssh.SSHKey) -> None:
        self.script = script
        self.host_key = asyncssh.generate_private_key("ssh-ed25519", comment=script.machine.hostname)
        self._play = play
        self.client_key = client_key
        spark, _ = play.moment(script.name)
        self._boot_id, self._showing = spark.boot_id, spark.showing
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._bench = NodeSteps()
        """What is under way on it: nothing of before its last boot, whose memory is gone."""
        self._listener = Listener(lambda connected: self.spawn(self._serve(connected)))
        self._tasks: set[asyncio.Task[None]] = set()
        self._options = asyncssh.SSHServerConnectionOptions(
            server_factory=lambda: _Door(self), process_factory=self._command, server_host_keys=[self.host_key],
            encoding=None, server_version="OpenSSH_9.6p1", gss_host=None, password_auth=script.machine.needs_password,
            kbdint_auth=False, agent_forwarding=False, x11_forwarding=False, allow_pty=False, compression_algs=None,
        )  # fmt: skip

    @property
    def port(self) -> int:
        return self._listener.port

    async def start(self) -> None:
        """Listen, and apply the scripted faults over time."""
        self._listener.accept()
        self.spawn(self._watch())

    async def close(self) -> None:
        """Close every connection and end all tasks."""
        await self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def moment(self) -> tuple[Spark, float]:
        """The node's Spark, and the second of its current boot."""
        spark, t = self._play.moment(self.script.name)
        if spark.boot_id != self._boot_id:
            self._boot_id, self._bench = spark.boot_id, NodeSteps()
            if spark.showing == self._showing:
                self._listener.reset()
            else:  # no incident: whoever watches is told
                self._showing = spark.showing
                for connection in tuple(self._connections):
                    connection.disconnect(asyncssh.DISC_SERVICE_NOT_AVAILABLE, "the demo begins again")
        return spark, t

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds of the scenario."""
        await self._play.rest(seconds)

    def react(self, act: Act) -> None:
        """Something is done to the node."""
        self._play.react(self.script.name, act)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on, whatever line it came over."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            self.moment()
            fault = self._play.fault(self.script.name)
            delay_s = fault.delay_s / self._play.speed if fault else 0.0
            await self._listener.set_fault(fault.kind if fault else None, delay_s)
            await asyncio.sleep(min(_WATCH_S, _WATCH_S / self._play.speed))

    async def _serve(self, connected: socket.socket) -> None:
        connection: asyncssh.SSHServerConnection | None = None
        try:
            connection = await asyncssh.run_server(connected, options=self._options)
            self._connections.add(connection)
            await connection.wait_closed()
        except _CONNECTION_ERRORS:
            pass  # the client gave up, or isn't let in
        finally:
            if connection is not None:
                self._connections.discard(connection)
                connection.abort()
            else:
                connected.close()

    # Channels

    def docker(self) -> Handler:
        """Who answers on the Docker socket."""
        return partial(http.serve, handle=partial(docker_api.answer, self), server="Docker/28.3.3 (linux)")

    def engine(self, port: int) -> Handler | None:
        """Who answers on a port of the node's loopback: an engine, or a proxy before one; None while nobody does."""
        spark, t = self.moment()
        exposed = proxy.served(spark.script, port)
        if exposed is not None:
            port = exposed.engine_port
        if spark.engine_at(port, t) is None:
            return None

        async def handle(request: http.HttpRequest) -> http.Answer:
            spark, t = self.moment()
            status = exposed.status(request.path, request.key) if exposed is not None else 200
            if status != 200:
                return http.Answer(status=status, content_type="text/html")
            engine = spark.engine_at(port, t)
            if engine is None:
                raise ConnectionResetError("the engine ended")
            if request.method == "POST" and request.path.rstrip("/") in engine_api.PATHS:
                return await engine_api.answer_completion(self, port, request)
            return engine_api.answer(spark, engine, t, request)

        return partial(http.serve, handle=handle, server="uvicorn")

    async def _command(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        command = process.command or ""
        with contextlib.suppress(*_CONNECTION_ERRORS):
            for begin, name in ((self._probe, bundle.NAME), (self._runner, bundle.RUNNER_NAME)):
                arguments = bundle.parse_command(command, name)
                if arguments is not None:
                    if await self._arrived(process, arguments):
                        await _Conversation(self, self._play, process, begin(process, arguments)).run()
                    return
            word = (command.split() or ["-bash"])[0][:100]
            process.stderr.write(f"bash: line 1: {word}: command not found (this is a simulated Spark)\n".encode())
            process.exit(127)

    def _probe(self, process: asyncssh.SSHServerProcess[bytes], arguments: bundle.Arguments) -> ProgramSession:
        spark, t = self.moment()
        return Talk(
            spark, interval_s=arguments.interval_s, digest=f"{arguments.crc:08x}", lease_s=arguments.lease_s, began_s=t,
            now_s=self._play.clock.monotonic(), react=self.react,
        )  # fmt: skip

    def _runner(self, process: asyncssh.SSHServerProcess[bytes], arguments: bundle.Arguments) -> ProgramSession:
        def tell(words: dict[str, Any]) -> None:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                process.stdout.write(_line(words))

        self.moment()  # notices a reboot
        return Runner(
            self, self._bench, tell=tell, spawn=self.spawn, digest=f"{arguments.crc:08x}",
            now_s=self._play.clock.monotonic(), lease_s=arguments.lease_s,
        )  # fmt: skip

    async def _arrived(self, process: asyncssh.SSHServerProcess[bytes], arguments: bundle.Arguments) -> bool:
        """Stage 0: whether what came is whole, with its words about it."""
        try:
            payload = await process.stdin.readexactly(arguments.length)
        except asyncio.IncompleteReadError as error:
            payload = error.partial
        if len(payload) < arguments.length or zlib.crc32(payload) != arguments.crc:
            lengths = f"{len(payload)} of {arguments.length}"
            process.stderr.write(f"sparktop: the probe arrived damaged: {lengths} bytes\n".encode())
            process.exit(bundle.CUT_EXIT)
            return False
        process.stdout.write(f"SPARKTOP {arguments.nonce}\n".encode())
        return True


class _Conversation:
    """A probe or a runner over one channel."""

    def __init__(
        self, node: LiveNode, play: Play, process: asyncssh.SSHServerProcess[bytes], session: ProgramSession
    ) -> None:
        self._node = node
        self._play = play
        self._process = process
        self._session = session
        self._boot_id = session.spark.boot_id
        self._wake = asyncio.Event()
        self._departed: Departed | None = None

    async def run(self) -> None:
        """Until either side ends it."""
        listening = asyncio.create_task(self._listen())
        try:
            self._process.stdout.write(self._session.opening())
            while self._departed is None:
                t = self._moment()
                if t is None:  # rebooted: the process is gone without a word
                    return
                self._process.stdout.write(self._session.advance(t, self._play.clock.monotonic()))
                await self._process.stdout.drain()
                await self._rest(self._session.due_s - t)
            raise self._departed
        except Departed as departed:
            if departed.reason:
                self._process.stdout.write(_line({"kind": "bye", "reason": departed.reason}))
            self._process.exit(0)
        finally:
            self._session.close()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    def _moment(self) -> float | None:
        """The second of the boot, with the node as it is now; None after a reboot."""
        spark, t = self._node.moment()
        if spark.boot_id != self._boot_id:
            return None
        self._session.spark = spark  # what it is told to do it does to the node as it is now
        return t

    async def _listen(self) -> None:
        try:
            while True:
                data = await self._process.stdin.read(65536)
                if self._moment() is None:
                    return
                self._session.hear(data, self._play.clock.monotonic())
                self._wake.set()
        except Departed as departed:
            self._departed = departed
        except _CONNECTION_ERRORS:
            self._departed = Departed()
        finally:
            self._wake.set()

    async def _rest(self, scenario_s: float) -> None:
        try:
            async with asyncio.timeout(min(_LONGEST_REST_S, max(0.003, scenario_s / self._play.speed))):
                await self._wake.wait()
            self._wake.clear()
        except TimeoutError:
            pass


def _line(words: dict[str, Any]) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode() + b"\n"


class _Door(asyncssh.SSHServer):
    """Who is let in, and to what."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        algorithm, blob = key.export_public_key().decode().split()[:2]
        script = self._node.moment()[0].script
        return key == self._node.client_key.convert_to_public() and accepts(script, f"{algorithm} {blob}")

    def password_auth_supported(self) -> bool:
        return self._node.script.machine.needs_password

    def validate_password(self, username: str, password: str) -> bool:
        return password == DEMO_PASSWORD

    def unix_connection_requested(self, dest_path: str) -> Any:
        if dest_path not in DOCKER_SOCKETS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "No such file or directory")
        return self._node.docker()

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        handler = self._node.engine(dest_port) if dest_host in ("127.0.0.1", "localhost", "::1") else None
        if handler is None:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "Connection refused")
        return handler
