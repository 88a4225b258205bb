"""The tests' own engine as an image: this machine's Python and busybox, engine_program.py as `vllm` and
`sglang`, a `ray` beside them.

`engines` is a fixture that starts such containers on the tests' Docker Engine and removes them, and what became of
them (a relaunch makes others of the same name), when the test is over.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dockerd import Dockerd, busybox_tree, remove
from tests.support import PATIENCE_S, free_port, poll

from sparktop.sim.spark import engine_start

SHARE = "--gpu-memory-utilization"

IMAGE = "sparktop-engine:test"
_LEFT_OUT = {"test", "site-packages", "dist-packages", "idlelib", "tkinter", "ensurepip", "lib2to3", "turtledemo",
             "__pycache__", "pydoc_data", "distutils", "unittest", "sqlite3", "curses", "dbm"}  # fmt: skip
_MODULES_LEFT_OUT = re.compile(
    r"_(?:ssl|hashlib|tkinter|sqlite3|curses|curses_panel|dbm|gdbm|test\w*|xx\w*)\.|readline\.|_codecs_"
)


def _libraries(binary: Path) -> set[Path]:
    out = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(/\S+)", out)}


def _engine_tree() -> bytes:
    """A root file system: busybox, /usr/bin/python3 with what of its library a small server needs, `vllm`."""
    interpreter = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix}))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    out = io.BytesIO(busybox_tree())
    with tarfile.open(fileobj=out, mode="a") as tree:
        tree.add(interpreter, f"usr/bin/{version}")
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, version
        tree.addfile(link)
        needed = _libraries(interpreter)
        for path in sorted(library.rglob("*")):
            inside = path.relative_to(library)
            if _LEFT_OUT & set(inside.parts) or any(part.startswith("config-") for part in inside.parts):
                continue
            if path.suffix == ".so":
                if _MODULES_LEFT_OUT.search(path.name):
                    continue
                needed |= _libraries(path)
            elif path.suffix != ".py":
                continue
            tree.add(path, f"usr/lib/{version}/{inside}", recursive=False)
        for path in sorted(needed):
            tree.add(path.resolve(), str(path).lstrip("/"))
        here, lines = Path(__file__).parent, Path(engine_start.__file__).with_name("engine_lines.toml")
        for name, program in (
            ("bin/vllm", (here / "engine_program.py").read_bytes()),
            ("bin/sglang", (here / "engine_program.py").read_bytes()),
            ("bin/ray", (here / "ray_program.py").read_bytes()),
            ("bin/bash", b'#!/bin/sh\nexec sh "$@"\n'),
            ("share/engine_lines.toml", lines.read_bytes()),
        ):
            info = tarfile.TarInfo(f"usr/local/{name}")
            info.mode, info.size = 0o755, len(program)
            tree.addfile(info, io.BytesIO(program))
    return out.getvalue()


@dataclass
class EngineLike:
    """One container with the tests' engine."""

    docker: Dockerd
    container_id: str
    name: str
    port: int

    def inspect(self, which: str = "") -> dict[str, Any]:
        """Of the container it was started as, or of a name."""
        found: dict[str, Any] = self.docker.api.inspect_container(which or self.container_id)
        return found

    def answers(self, path: str = "/v1/models", key: str = "") -> Any:
        """The JSON its port gives; None while it gives none."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            line.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            reply = line.getresponse()
            return json.loads(reply.read()) if reply.status == 200 else None
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            line.close()

    def wait_ready(self, key: str = "", within_s: float = PATIENCE_S) -> None:
        poll(lambda: self.answers(key=key), within_s=within_s, what=f"{self.name} ready")


@dataclass
class Engines:
    """Starts them."""

    docker: Dockerd
    names: list[str] = field(default_factory=list)

    def start(
        self,
        name: str,
        *flags: str,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        argv: Sequence[str] | None = None,
        ready: bool = True,
        labels: Mapping[str, str] | None = None,
        **host: Any,
    ) -> EngineLike:
        """`vllm serve tiny SHARE --port PORT FLAGS...` on the host's network; `host` goes to create_host_config."""
        port = port or free_port()
        api = self.docker.api
        share = () if SHARE in flags else (SHARE, "0.2")  # of this machine, whose memory other tests take meanwhile
        command = list(argv or ("vllm", "serve", "tiny", *share, "--port", str(port), *flags))
        made = api.create_container(
            IMAGE,
            command,
            name=name,
            environment=dict(env or {}),
            labels=dict(labels or {}),
            host_config=api.create_host_config(network_mode="host", **host),
        )
        self.names.append(name)
        self.docker.made.append(made["Id"])
        api.start(made["Id"])
        engine = EngineLike(self.docker, str(made["Id"]), name, port)
        if ready:
            engine.wait_ready(key=(env or {}).get("VLLM_API_KEY", ""))
        return engine

    def remove_all(self) -> None:
        """Those started here, and what took or kept their names."""
        for row in self.docker.api.containers(all=True):
            names = [str(name).lstrip("/") for name in row["Names"]]
            mine = row["Id"] in self.docker.made or any(name.startswith(one) for name in names for one in self.names)
            if mine:
                remove(self.docker.api, row["Id"])
                if row["Id"] in self.docker.made:
                    self.docker.made.remove(row["Id"])
        self.names.clear()


@pytest.fixture(scope="session")
def engine_image(dockerd: Dockerd) -> str:
    """The image, imported once."""
    repository, _, tag = IMAGE.partition(":")
    changes = [
        "ENV PATH=/usr/local/bin:/usr/bin:/bin",
        "ENV PYTHONDONTWRITEBYTECODE=1",
        'CMD ["vllm", "serve", "tiny"]',
    ]
    dockerd.api.import_image_from_data(_engine_tree(), repository=repository, tag=tag, changes=changes)
    return IMAGE


@pytest.fixture
def engines(dockerd: Dockerd, engine_image: str) -> Iterator[Engines]:
    """Starts engines for one test."""
    started = Engines(dockerd)
    try:
        yield started
    finally:
        started.remove_all()
