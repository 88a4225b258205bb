"""A real Docker Engine of the tests' own: started on a Unix socket in a temporary folder, with a busybox image.

Nothing of it is shared with a Docker Engine that may run on this machine, and only what was started here is ended.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
from tests.support import unavailable

IMAGE = "sparktop-busybox:test"


@dataclass
class Dockerd:
    """A running daemon and a client of it."""

    process: subprocess.Popen[bytes]
    root: Path
    api: Any
    """docker.APIClient"""
    made: list[str] = field(default_factory=list)

    @property
    def socket_path(self) -> str:
        return str(self.root / "docker.sock")

    def run_container(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        tty: bool = False,
        labels: Mapping[str, str] | None = None,
        network_mode: str = "host",
        binds: Sequence[str] = (),
    ) -> str:
        """Create and start; the container's id. `name` gets no prefix: tests choose names of their own."""
        made = self.api.create_container(
            IMAGE,
            list(argv),
            name=name,
            environment=dict(env or {}),
            tty=tty,
            labels=dict(labels or {}),
            volumes=[bind.split(":")[1] for bind in binds],
            host_config=self.api.create_host_config(network_mode=network_mode, binds=list(binds)),
        )
        self.made.append(made["Id"])
        self.api.start(made["Id"])
        return str(made["Id"])

    def execute(self, container_id: str, argv: Sequence[str]) -> None:
        """Start a process in a container and leave it running."""
        self.api.exec_start(self.api.exec_create(container_id, list(argv))["Id"], detach=True)

    def pid_of(self, container_id: str) -> int:
        """The container's init process, as this machine numbers it."""
        return int(self.api.inspect_container(container_id)["State"]["Pid"])

    def wait(self, container_id: str) -> int:
        """Wait for its end; the exit code."""
        return int(self.api.wait(container_id, timeout=30)["StatusCode"])

    def kill_process(self, pid: int) -> None:
        """Kill one process that runs in a container made here, and no other."""
        if any(container in Path(f"/proc/{pid}/cgroup").read_text() for container in self.made):
            os.kill(pid, signal.SIGKILL)

    def restart(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """End the daemon, and with it what runs in it, and start it again on the same data."""
        _stop(self.process)
        meanwhile()
        self.process = _spawn(self.root)

    def remove_all(self) -> None:
        """Remove every container that was made here."""
        for container_id in self.made:
            remove(self.api, container_id)
        self.made.clear()

    def clear(self, label: str = "", *, keep: str = "") -> None:
        """Remove every container that it lists, whoever made it; only those with `label`, and never the id `keep`."""
        for row in self.api.containers(all=True, filters={"label": [label]} if label else None):
            if row["Id"] != keep:
                remove(self.api, row["Id"])
        self.made[:] = [container_id for container_id in self.made if label or container_id == keep]


def remove(api: Any, container_id: str) -> None:
    """Remove a container, or find it gone: Docker Engine 20.10 may go on listing one that is no longer there."""
    with contextlib.suppress(docker.errors.NotFound):
        api.remove_container(container_id, force=True, v=True)


def processes_with(text: str) -> list[int]:
    """Pids on this machine whose command line contains `text`, this process left out."""
    out = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in command:
                out.append(int(entry))
    return out


def busybox_tree() -> bytes:
    busybox = shutil.which("busybox")
    assert busybox is not None
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tree:
        for folder in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tree.addfile(info)
        tree.add(busybox, "bin/busybox")
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tree.addfile(link)
    return out.getvalue()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def storage_driver(root: Path) -> str:
    """An option of dockerd: overlays where this file system can have them; else a copy of the image per container."""
    try:
        for name in ("lower", "upper", "work", "merged"):
            (root / "overlay" / name).mkdir(parents=True, exist_ok=True)
        options = "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work".format(root / "overlay")
        merged = str(root / "overlay/merged")
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, merged]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return "--storage-driver=vfs"
        subprocess.run(["umount", merged], check=True)
        return "--storage-driver=overlay2"
    finally:
        shutil.rmtree(root / "overlay", ignore_errors=True)


def _spawn(root: Path) -> subprocess.Popen[bytes]:
    """A daemon on this folder that answers."""
    with (root / "dockerd.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", storage_driver(root)),
                *("--host", f"unix://{root}/docker.sock", "--pidfile", f"{root}/docker.pid"),
                *("--data-root", f"{root}/data", "--exec-root", f"{root}/exec"),
            ],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    deadline = time.monotonic() + 60
    while not _answers(root / "docker.sock"):
        if process.poll() is not None or time.monotonic() > deadline:
            tail = (root / "dockerd.log").read_text(errors="replace").strip().splitlines()[-1:]
            if process.poll() is None:
                _stop(process)
            unavailable(f"dockerd does not start here: {' '.join(tail)[-300:]}")
        time.sleep(0.05)
    return process


def _start(root: Path) -> Dockerd:
    process = _spawn(root)
    api = docker.APIClient(base_url=f"unix://{root}/docker.sock", version="auto", timeout=60)
    repository, _, tag = IMAGE.partition(":")
    api.import_image_from_data(busybox_tree(), repository=repository, tag=tag)
    return Dockerd(process=process, root=root, api=api)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)


@contextlib.contextmanager
def own_dockerd(below: str = "/tmp") -> Iterator[Dockerd]:
    """A Docker Engine of the caller's own, in a new folder."""
    root = Path(tempfile.mkdtemp(prefix="spk-dk-", dir=below))  # short: a socket's path has 107 bytes
    engine = _start(root)
    try:
        yield engine
    finally:
        engine.remove_all()
        engine.api.close()
        _stop(engine.process)
        # What a Docker Engine may leave mounted: 26 its own network namespace each time, one that was killed its data.
        subprocess.run(["umount", f"{root}/exec/netns/default", f"{root}/data"], capture_output=True, check=False)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    """One Docker Engine for the whole run; skipped with the reason where it can't run."""
    for program in ("dockerd", "busybox", "runc"):
        if shutil.which(program) is None:
            unavailable(f"no {program} here: apt-get install docker.io busybox-static")
    if os.geteuid() != 0:
        unavailable("dockerd needs root")
    with own_dockerd() as engine:
        yield engine
