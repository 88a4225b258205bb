"""A machine of its own as far as sparktop can see: a namespace with its own /run, /etc, processes and boot id, and in
it an OpenSSH server and a Docker Engine at their usual places. Two stand for a pair; network and memory are shared.

    with Spark.start("spark1", "127.0.0.2") as spark:
        spark.sshd.alias("spark1")
        spark.engines.start("vllm", port=...)

Nothing outside is touched: what is mounted is seen in the namespace alone, and goes with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dockerd import Dockerd, _answers, storage_driver
from tests.integration.engine_image import IMAGE, Engines, _engine_tree
from tests.integration.sshd import Sshd
from tests.support import poll, unavailable

_INIT = """
import os, sys, time
print("ready", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.05)
"""
"""The first process of the namespace: reaps, as the first process of a machine does."""
_SETUP = """
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/user
mkdir -m 1777 /run/lock
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$1/etc" /etc
exec "$2" -c "$3"
"""

image_tree = cache(_engine_tree)


@dataclass
class Spark:
    """One of them."""

    name: str
    init: subprocess.Popen[bytes]
    dockerd: Dockerd
    sshd: Sshd
    inside: tuple[str, ...]
    """What runs a program in it."""
    engines: Engines = field(init=False)

    def __post_init__(self) -> None:
        self.engines = Engines(self.dockerd)

    @property
    def init_pid(self) -> int:
        """Of its first process, as numbered outside."""
        return _child(self.init)

    @property
    def root(self) -> Path:
        """Its file system, seen from here."""
        return Path(f"/proc/{self.init_pid}/root")

    @property
    def dockerd_pid(self) -> int:
        """Of the daemon itself, as numbered outside."""
        return _child(self.dockerd.process)

    def restart_dockerd(self, number: int = signal.SIGTERM) -> None:
        """End the daemon by that signal, as systemd does (one that hangs is killed), and start it on the same data."""
        os.kill(self.dockerd_pid, number)
        try:
            self.dockerd.process.wait(30)
        except subprocess.TimeoutExpired:
            os.kill(self.dockerd_pid, signal.SIGKILL)
            self.dockerd.process.wait(10)
        (self.dockerd.root / "docker.pid").unlink(missing_ok=True)  # after SIGKILL; the number may be another's now
        self.dockerd.process = _spawn_dockerd(self.dockerd.root, self.inside)

    def run(self, *argv: str, said: str = "") -> str:
        """Run a program in it as root, `said` on its input; what it prints."""
        done = subprocess.run([*self.inside, *argv], input=said, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (argv, done.stderr)
        return done.stdout

    @classmethod
    @contextlib.contextmanager
    def start(cls, name: str, host: str) -> Iterator[Spark]:
        """Start it with everything in it, and end all of that."""
        for program in ("dockerd", "busybox", "runc", "unshare", "nsenter"):
            if shutil.which(program) is None:
                unavailable(f"no {program} here: apt-get install docker.io busybox-static util-linux")
        if os.geteuid() != 0:
            unavailable("namespaces and dockerd need root")
        root = Path(tempfile.mkdtemp(prefix="spk-nd-", dir="/tmp"))  # short: a socket's path has 107 bytes
        root.chmod(0o755)  # another user's keys are read there
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            init = _namespace(root)
            stack.callback(_end, init)
            inside = ("nsenter", "--target", str(_child(init)), "--mount", "--pid")
            docker = _dockerd(root, inside)
            stack.callback(_stop, docker)
            # Not forked, so that it is the listener itself; its sessions are in the namespace all the same. What has
            # threads, as dockerd has, can't be started so.
            sshd = stack.enter_context(Sshd.start(root / "sshd", host=host, prefix=(*inside, "--no-fork")))
            yield cls(name, init, docker, sshd, inside)


def _namespace(root: Path) -> subprocess.Popen[bytes]:
    (root / "boot_id").write_text(f"{uuid.uuid4()}\n")
    # Not the files that come and go while another test adds a user of the machine.
    (root / "etc").mkdir()
    packed = ["tar", "--create", "--directory=/etc", "--exclude=./*.lock", "--exclude=./*+", "."]
    with subprocess.Popen(packed, stdout=subprocess.PIPE) as packing:
        unpacked = ["tar", "--extract", "--same-owner", "--preserve-permissions", f"--directory={root / 'etc'}"]
        subprocess.run(unpacked, check=True, stdin=packing.stdout)
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
    init = subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL"),  # with it goes everything, also when the tests are killed
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"),
            *("sh", "-c", _SETUP, "sh", str(root), sys.executable, _INIT),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert init.stdout is not None
    assert init.stderr is not None
    if init.stdout.readline() != b"ready\n":
        said = init.stderr.read().decode(errors="replace").strip()
        init.wait()
        unavailable(f"no namespace can be made here: {said[-300:]}")
    return init


def _child(process: subprocess.Popen[bytes]) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def _end(init: subprocess.Popen[bytes]) -> None:
    """Everything in a namespace goes with its first process."""
    os.kill(_child(init), signal.SIGKILL)
    init.wait(10)
    for stream in (init.stdout, init.stderr):
        if stream is not None:
            stream.close()


def _spawn_dockerd(root: Path, inside: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """A daemon on this folder that answers."""
    with (root / "dockerd.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *inside,
                *("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", storage_driver(root)),
                *("--host", "unix:///run/docker.sock", "--host", f"unix://{root}/docker.sock"),
                *("--pidfile", f"{root}/docker.pid", "--data-root", f"{root}/data", "--exec-root", f"{root}/exec"),
            ],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def is_up() -> bool:
        if process.poll() is not None:
            pytest.fail((root / "dockerd.log").read_text(errors="replace")[-2000:])
        return _answers(root / "docker.sock")

    poll(is_up, what="dockerd in its namespace")
    return process


def _dockerd(root: Path, inside: tuple[str, ...]) -> Dockerd:
    import docker

    process = _spawn_dockerd(root, inside)
    api: Any = docker.APIClient(base_url=f"unix://{root}/docker.sock", version="auto", timeout=60)
    repository, _, tag = IMAGE.partition(":")
    changes = ["ENV PATH=/usr/local/bin:/usr/bin:/bin", "ENV PYTHONDONTWRITEBYTECODE=1"]
    api.import_image_from_data(image_tree(), repository=repository, tag=tag, changes=changes)
    return Dockerd(process=process, root=root, api=api)


def _stop(docker: Dockerd) -> None:
    docker.clear()
    docker.api.close()
    os.kill(_child(docker.process), signal.SIGTERM)
    docker.process.wait(30)


@pytest.fixture(scope="module")
def machine() -> Iterator[Spark]:
    """One, for the tests of one module."""
    with Spark.start("spark1", "127.0.0.2") as started:
        yield started


@pytest.fixture
def spark(machine: Spark) -> Iterator[Spark]:
    """Known to ssh as spark1, and without engines after each test."""
    machine.sshd.trust()
    machine.sshd.alias("spark1")
    try:
        yield machine
    finally:
        machine.engines.remove_all()


@pytest.fixture(scope="module")
def sparks() -> Iterator[tuple[Spark, Spark]]:
    """Two, for the tests of one module."""
    with Spark.start("spark1", "127.0.0.2") as one, Spark.start("spark2", "127.0.0.3") as two:
        yield one, two
