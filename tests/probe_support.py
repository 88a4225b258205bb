"""Runs the real probe with the real launch, as a transport would: acknowledges, beats, and looks for leftovers."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self, TypeVar

import pytest
from tests.support import PATIENCE_S

from sparktop.model.telemetry import Garbled, Hello, Message, Sample
from sparktop.probe.bundle import Launch
from sparktop.wire.decode import decode
from sparktop.wire.framing import Splitter, sequence_of

M = TypeVar("M")


def processes_of(launch: Launch) -> set[int]:
    """Every process of that probe: its children are forks, so all have the nonce in their command line."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if launch.nonce.encode() in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


class RunningProbe:
    """One probe on pipes. `messages` holds what it said so far; every line must be a message."""

    def __init__(
        self,
        launch: Launch,
        *,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
        acknowledge: bool = True,
        payload: bytes | None = None,
    ) -> None:
        self.launch = launch
        self.acknowledge = acknowledge
        self.messages: list[Message] = []
        self.lines: list[bytes] = []
        self.marker = b""
        self.ended = False
        self._splitter = Splitter()
        self._beat_at = 0.0
        self.process = subprocess.Popen(
            launch.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else {**os.environ, **env},
            user=user,
            extra_groups=[] if user is not None else None,
            cwd="/",
        )
        self.send(launch.payload if payload is None else payload)

    @property
    def out(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def take(self, timeout_s: float = 0.05) -> None:
        """Read what there is, acknowledging it and proving that we live."""
        if self.acknowledge and time.monotonic() > self._beat_at:
            self._beat_at = time.monotonic() + 0.3
            self.send(b'{"beat":1}\n')
        if not select.select([self.out], [], [], timeout_s)[0]:
            return
        data = os.read(self.out, 65536)
        self.ended = not data
        for line in self._splitter.feed(data):
            assert isinstance(line, bytes), line
            self.lines.append(line)
            if not self.marker:
                self.marker = line
                continue
            message = decode(line)
            assert message is not None, line
            assert not isinstance(message, Garbled), (message, line)
            self.messages.append(message)
            number = sequence_of(line)
            if self.acknowledge and number is not None:
                self.send(b'{"ack":%d}\n' % number)

    def until(self, condition: Callable[[], M], *, within_s: float = PATIENCE_S, what: str = "") -> M:
        """Read until the condition gives something true."""
        deadline = time.monotonic() + within_s
        while not (found := condition()):
            if time.monotonic() > deadline or self.ended:
                said = "" if self.process.poll() is None else self.error()
                tail = [str(message)[:200] for message in self.messages[-6:]]
                pytest.fail(f"{what or 'it'} did not come about; ended={self.ended} {said} {tail}")
            self.take()
        return found

    def of(self, kind: type[M]) -> list[M]:
        return [message for message in self.messages if isinstance(message, kind)]

    def first(
        self, kind: type[M], matching: Callable[[M], object] = lambda _: True, *, within_s: float = PATIENCE_S
    ) -> M:
        """The first message of a kind that matches, read on for until it comes."""

        def found() -> list[M]:
            return [message for message in self.of(kind) if matching(message)]

        return self.until(found, within_s=within_s, what=f"a matching {kind.__name__}")[0]

    def more_samples(self, count: int) -> list[Sample]:
        """The next so many samples."""
        have = len(self.of(Sample))
        self.until(lambda: len(self.of(Sample)) >= have + count, what=f"{count} more samples")
        return self.of(Sample)[have:]

    def hello(self) -> Hello:
        return self.first(Hello)

    def drain(self, within_s: float = PATIENCE_S) -> int:
        """Read to the end; the exit status."""
        deadline = time.monotonic() + within_s
        while not self.ended and time.monotonic() < deadline:
            self.take()
        assert self.ended, "standard output did not end"
        return self.process.wait(within_s)

    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it however it is, for tests that failed."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass
        self.process.wait(10)
