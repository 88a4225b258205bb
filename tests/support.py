"""What tests of several kinds share."""

from __future__ import annotations

import ast
import contextlib
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from sparktop.cmdline.engine_command import command_of
from sparktop.model.engine import Engine, EngineKind

PATIENCE_S = float(os.environ.get("SPARKTOP_PATIENCE_S") or 600.0)
"""How long a test waits for what must come: no limit of a product, and as good as never reached on a slow machine. Who
looks for why a test hangs sets it lower."""
_CHANCE = random.SystemRandom()
"""Not the one that hypothesis gives the same seed in every process."""


def unavailable(reason: str) -> NoReturn:
    """Skip with the reason; fail instead where SPARKTOP_REQUIRE_INTEGRATION=1 says nothing may be skipped."""
    if os.environ.get("SPARKTOP_REQUIRE_INTEGRATION") == "1":
        pytest.fail(f"required, and unavailable: {reason}")
    pytest.skip(reason)


def other_docker() -> dict[str, str]:
    """What puts the programs in SPARKTOP_DOCKER's folder before this machine's; empty without it.

    That folder holds dockerd, containerd, containerd-shim-runc-v2, runc, docker-proxy and docker, as Docker's static
    archives do; in cli-plugins/, docker-compose.
    """
    folder = os.environ.get("SPARKTOP_DOCKER")
    if not folder:
        return {}
    if shutil.which("dockerd", path=folder) is None:
        raise pytest.UsageError(f"SPARKTOP_DOCKER={folder}: there is no dockerd in that folder")
    path = os.environ["PATH"]
    plugins = {"DOCKER_CONFIG": folder} if os.path.isdir(f"{folder}/cli-plugins") else {}
    return {"PATH": path if path.startswith(f"{folder}:") else f"{folder}:{path}", **plugins}


def needs(program: str, package: str) -> None:
    """Skip where a program isn't installed."""
    if shutil.which(program) is None:
        unavailable(f"no {program} here: apt-get install {package}")


def parsed(source: str) -> ast.Module:
    """A module's syntax tree.

    Python before 3.11.8 counts wrongly where garbage whose end prints a traceback, which reads a tree too, is collected
    meanwhile: SystemError, for no fault of the source (gh-106905).
    """
    try:
        return ast.parse(source)
    except SystemError:
        return ast.parse(source)


def engine_of(kind: EngineKind, **fields: Any) -> Engine:
    """An engine with its command read from its words, as it is observed."""
    read = {name: fields[name] for name in ("environment", "container") if name in fields}
    return Engine(kind=kind, command=command_of(kind, fields.get("argv", ()), **read), **fields)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody has, above those that Ray gives its workers, below those that the kernel gives to connections.

    What stops and starts again on it, as a restarted engine does, finds it free again. Each process that runs tests
    has ports of its own, and none that is taken on another address of this machine.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    for _ in range(200):
        port = 20_000 + 1_500 * worker + _CHANCE.randrange(1_500)
        with socket.socket() as anywhere, socket.socket() as probe, contextlib.suppress(OSError):
            anywhere.bind(("", port))
            anywhere.close()
            probe.bind((host, port))
            return port
    pytest.fail("no port is free here")


def poll(
    condition: Callable[[], object],
    *,
    within_s: float = PATIENCE_S,
    what: str = "the condition",
    otherwise: Callable[[], object] = lambda: "",
) -> None:
    """Wait for a condition by asking, never by sleeping a fixed time; fails, with what is otherwise, when it doesn't
    come true."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {within_s} s: {otherwise()}")
        time.sleep(0.02)


def interruptible() -> None:
    """For `preexec_fn`: a program started in a shell's background ignores SIGINT, and so would what tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
