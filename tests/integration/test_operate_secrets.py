"""Canaries wherever secrets can stand, every kind of run, and a look at everything that was written, shown or started.

The engine's own container and what configures it have them by right, and so has the operator's own environment.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
import subprocess
import tarfile
import threading
import time
import zlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import pytest
from tests.integration.engine_image import EngineLike
from tests.integration.spark import Spark
from tests.integration.terminal import sparktop, terminal
from tests.support import free_port, unavailable

from sparktop.operate.secrets.masking import forms
from sparktop.record.writer import GZIP

pytestmark = [pytest.mark.integration, pytest.mark.slow]

QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}
QUICKLY = ("--set", "target_gib=2", "--set", "grace_s=5")


def canary(prefix: str = "") -> str:
    return f"{prefix}canary{secrets.token_hex(12)}"


@dataclass
class Canaries:
    """One for each place."""

    key: str = field(default_factory=canary)
    """The engine's VLLM_API_KEY and --api-key, and in its log in plain words."""
    hub: str = field(default_factory=lambda: canary("hf_"))
    """The engine's HF_TOKEN."""
    database: str = field(default_factory=canary)
    """In a URL of its environment."""
    logged: str = field(default_factory=canary)
    """A bearer's in its log, known from nowhere else."""
    label: str = field(default_factory=canary)
    ours: str = field(default_factory=lambda: canary("hf_"))
    """In the operator's environment, given to a relaunch."""
    configured: str = field(default_factory=canary)
    """In the operator's configuration."""
    typed: str = field(default_factory=canary)
    """The password."""

    @cached_property
    def looks(self) -> dict[str, set[bytes]]:
        """How each may be written."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: {one.encode() for one in (value, value.encode().hex(), *forms(value))}
            | {base64.b64encode(value.encode()).rstrip(b"=")}
            for name, value in values.items()
        }


def found_in(data: bytes, canaries: Canaries) -> list[str]:
    """Which of them stand in it, in any form in which a program writes them."""
    return [name for name, looks in canaries.looks.items() if any(one in data for one in looks)]


class Watcher:
    """Looks at every command line, and at the environments of what runs on the Spark, as fast as it can."""

    def __init__(self, spark: Spark, canaries: Canaries) -> None:
        self.leaks: dict[str, list[str]] = {}
        self.seen: set[str] = set()
        self._spark = os.readlink(f"/proc/{spark.init_pid}/ns/mnt")
        self._canaries = canaries
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.01):
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    with contextlib.suppress(OSError):
                        self._process(Path("/proc") / entry)

    def _process(self, process: Path) -> None:
        command = (process / "cmdline").read_bytes()
        if not command or b"docker" in (process / "cgroup").read_bytes():
            return  # in the container, whose own secrets they are
        what = command.replace(b"\0", b" ")[:80].decode(errors="replace").strip()
        self.seen.add(what)
        data = command
        if os.readlink(process / "ns/mnt") == self._spark:
            data += (process / "environ").read_bytes()
        if leaked := found_in(data, self._canaries):
            self.leaks[what] = leaked


@dataclass
class Stage:
    """A Spark with an engine full of secrets, and an operator who has some too."""

    spark: Spark
    engine: EngineLike
    canaries: Canaries
    home: Path
    shown: list[tuple[str, bytes]] = field(default_factory=list)

    def act(self, *words: str, want: Collection[int] = (0,)) -> str:
        out = sparktop(*words, environment={"HF_TOKEN": self.canaries.ours}, is_hurried=True)
        self.shown.append((" ".join(words), (out.stdout + out.stderr).encode()))
        assert out.returncode in want, out.stdout + out.stderr
        return out.stdout


@pytest.fixture
def stage() -> Iterator[Stage]:
    for program in ("sudo", "useradd", "chpasswd"):
        if shutil.which(program) is None:
            unavailable(f"no {program} here: apt-get install sudo passwd")
    canaries, home = Canaries(), Path(os.environ["HOME"])
    with Spark.start("spark1", "127.0.0.2") as spark:
        spark.run(
            "useradd", "--no-create-home", "--home-dir", "/tmp", "--groups", "docker", "--shell", "/bin/sh", "ada"
        )
        spark.run("chpasswd", said=f"ada:{canaries.typed}\n")
        spark.run("sh", "-c", "echo 'ada ALL=(ALL) ALL' >/etc/sudoers.d/ada; chown root:docker /run/docker.sock")
        spark.sshd.trust()
        spark.sshd.alias("spark1", User="ada")
        config = Path(os.environ["XDG_CONFIG_HOME"]) / "sparktop/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'notify = []\nnotify_command = ["true", "--token", "{canaries.configured}"]\n')
        port = free_port()
        engine = spark.engines.start(
            "vllm-mine",
            "--api-key",
            canaries.key,
            port=port,
            env={
                **QUICK,
                "VLLM_API_KEY": canaries.key,
                "HF_TOKEN": canaries.hub,
                "STORE_URL": f"postgres://ada:{canaries.database}@db.lan/models",
                "ENGINE_SAYS": f"the key is {canaries.key}; Authorization: Bearer {canaries.logged}",
            },
            labels={"lan.example.api-token": canaries.label},
            restart_policy={"Name": "unless-stopped"},
        )
        yield Stage(spark, engine, canaries, home)


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """What is packed into a file, else the file."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for one in archive.getmembers():
                file = archive.extractfile(one)
                if file is not None:
                    yield f"{path.name}:{one.name}", one.name.encode() + file.read()
    elif path.suffix == ".gz":
        yield path.name, zlib.decompressobj(GZIP).decompress(path.read_bytes())  # a killed console's has no end
    else:
        yield str(path), path.read_bytes()


def written(stage: Stage, since_s: float) -> Iterator[tuple[str, bytes]]:
    """Every file of the operator's, of the Spark's own tmpfs, and of the temporary folder, that is not its owner's."""
    exempt = Path(os.environ["XDG_CONFIG_HOME"]) / "sparktop/config.toml"
    places = [stage.home, stage.spark.root / "run", stage.spark.root / "dev/shm", Path("/tmp"), Path("/run/lock")]
    for place in places:
        for path in (Path(folder) / name for folder, _, names in os.walk(place) for name in names):
            if stage.spark.dockerd.root in path.parents or path == exempt or "docker" in path.parts[:5]:
                continue
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since_s - 1:
                    yield from members(path)


def console(stage: Stage) -> None:
    """The console at a terminal: its views, the logs, the details of the engine, a review."""
    with terminal("spark1", size=(60, 200)) as at:
        at.reads("vllm-mine")
        for keys, then in (
            ("l", "Application startup"),
            ("g", "the key is <masked>; Auth"),
            ("1", ""),
            ("3", ""),
            ("R", "Safe restart of"),
            ("\x1b", ""),
            ("x", ""),
        ):
            at.types(keys)
            if then:
                at.reads(then)
            at.pause(0.5)
        at.types("\x1b")
        at.pause(0.3)
        at.types("q")
        at.pause(0.5)
        stage.shown.append(("console", at.written))


@contextlib.contextmanager
def planted(stage: Stage) -> Iterator[str]:
    """A process on the Spark that has a canary: the watcher is no good unless it finds that one."""
    words = ["sleep", f"600.{secrets.randbelow(10**6):06}"]
    process = subprocess.Popen(
        [*stage.spark.inside, "--no-fork", *words], env={**os.environ, "PLANTED": stage.canaries.database}
    )
    try:
        yield " ".join(words)
    finally:
        process.kill()
        process.wait()


def test_no_secret_is_written_shown_or_passed_on(stage: Stage) -> None:
    canaries, since_s = stage.canaries, time.time()
    before = stage.engine.inspect()["Id"]
    with planted(stage) as control, Watcher(stage.spark, canaries) as watcher:
        change = ("--env", "HF_TOKEN", "--flag=--served-model-name=changed", *QUICKLY)
        with ThreadPoolExecutor(1) as beside:  # what changes nothing needs no turn of its own
            looks = [
                beside.submit(stage.act, "status", "spark1", "--json", want=(0, 1)),
                beside.submit(stage.act, "act", "safe-restart", "spark1", *QUICKLY, "--dry-run"),
                beside.submit(stage.act, "act", "relaunch", "spark1", *change, "--dry-run", "--json"),
            ]
            console(stage)
            for look in looks:
                look.result()
        stage.act("act", "safe-restart", "spark1", *QUICKLY, "--yes", "--json")
        stage.act("act", "guard", "spark1", "--set", "floor_gib=0.5", "--set", "stay_minutes=1", "--yes")
        stage.act("act", "relaunch", "spark1", *change, "--yes")
        stage.act("act", "relaunch", "spark1", "--env", "ENGINE_FAILS=load", *QUICKLY, "--yes", want=(1,))
        stage.act("act", "collect-evidence", "spark1", "--yes")
        with terminal("act", "drop-caches", "spark1", "--yes") as at:
            at.reads("sudo wants your password")
            at.types(canaries.typed + "\r")
            assert at.ends() == 0, at.text
            stage.shown.append(("drop-caches", at.written))
        stage.act("audit")
        stage.act("audit", "--json")

    now = stage.engine.inspect("vllm-mine")
    assert now["Id"] != before, "it was relaunched"
    assert f"HF_TOKEN={canaries.ours}" in now["Config"]["Env"], "with what was asked"
    assert stage.engine.answers(key=canaries.key)["data"][0]["id"] == "changed", "the failing one was rolled back"

    assert {what: leaked for what, data in stage.shown if (leaked := found_in(data, canaries))} == {}
    files = list(written(stage, since_s))
    assert {name: leaked for name, data in files if (leaked := found_in(data, canaries))} == {}
    assert watcher.leaks == {control: ["database"]}, "what was planted, and nothing else"
    names = " ".join(name for name, _ in files)
    assert "audit.jsonl" in names, "it was looked at"
    assert names.count(".tar.gz:") > 20
    assert any(one.startswith("python3 -I -S -B") for one in watcher.seen)
    assert any(one.startswith("sudo ") for one in watcher.seen)
    assert any("the key is" in data.decode(errors="replace") for name, data in files if ".tar.gz:" in name)
