"""sparktop as somebody runs it from a shell, against machines: what it says, and when."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.terminal import SPARKTOP, sparktop
from tests.real.machine import Machine
from tests.support import PATIENCE_S, poll


@dataclass
class Watch:
    """`status --watch --json`: every picture with the moment at which it came."""

    process: subprocess.Popen[str]
    said: Path
    """What it writes beside the pictures."""
    pictures: list[tuple[float, Any]] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):  # it was told to end
                return
            self.pictures.append((time.monotonic(), json.loads(line)))

    @property
    def last(self) -> Any:
        return self.pictures[-1][1]

    def until(self, condition: Callable[[Any], object], *, what: str, within_s: float = PATIENCE_S) -> Any:
        """Wait for a picture like that, from now on; that picture. For what stays: not every second has a picture."""
        begun, seen = time.monotonic(), len(self.pictures)
        while time.monotonic() - begun < within_s and (self.process.poll() is None or seen < len(self.pictures)):
            for _, picture in self.pictures[seen:]:
                seen += 1
                if condition(picture):
                    return picture
            time.sleep(0.02)
        shown = told(self.last) if self.pictures else "no picture"
        raise AssertionError(f"{what}: not within {within_s} s; {shown}; {self.said.read_text()[-2000:]}")


@contextlib.contextmanager
def watching(*hosts: str) -> Iterator[Watch]:
    """Watch them until the block is left."""
    said = Path.home() / "status.stderr"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [*SPARKTOP, "status", "--watch", "--json", *hosts], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    watch = Watch(process, said)
    thread = threading.Thread(target=watch.read, daemon=True)
    thread.start()
    try:
        watch.until(lambda picture: all(node["link"] == "live" for node in picture["nodes"]), what="all are live")
        yield watch
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        thread.join(PATIENCE_S)


def picture(*hosts: str) -> Any:
    """One look."""
    return json.loads(sparktop("status", "--json", *hosts, is_hurried=True).stdout)


def looked(condition: Callable[[Any], object], *hosts: str) -> Any:
    """A look that shows it. One look waits some seconds for what a machine tells: a slow one may be late."""
    shown: list[Any] = []

    def shows() -> object:
        shown.append(picture(*hosts))
        return condition(shown[-1])

    poll(shows, what="what one look shows", otherwise=lambda: told(shown[-1]))
    return shown[-1]


def run(*words: str) -> str:
    """Run a command that changes something, to its end; what it says. It must succeed."""
    ended = sparktop(*words, "--yes", is_hurried=True)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    return ended.stdout


def act(action: str, *words: str) -> str:
    """Run an action to its end; what it says. It must succeed."""
    return run("act", action, *words)


def guard_fires(machine: Machine, engine: str) -> None:
    """Arm the guard over an engine that serves, take the memory that is left; its end, and the guard's kill as told."""
    one = looked(lambda one: state(one, engine) == "ready", "spark1")
    floor = f"floor_gib={one['nodes'][0]['memory']['available_bytes'] / 2**30 - 1.5:.1f}"
    act("guard", "spark1", "--engine", engine, "--set", floor, "--set", "empty_within_s=0", "--set", "stay_minutes=5")
    with watching("spark1") as watch:
        watch.until(lambda one: one["nodes"][0]["guard"]["phase"] == "armed", what="armed")
        assert state(watch.last, engine) == "ready"
        taking = "b'x' * (3 << 30) and __import__('time').sleep(600)"
        machine.run("sh", "-c", 'python3 -c "$0" >/dev/null 2>&1 </dev/null &', taking)
        watch.until(lambda one: state(one, engine) == "exited", what="its end")
        watch.until(lambda one: "guard.fired" in rules(one), what="the guard's kill told")


def bringup(*words: str) -> Any:
    """The checks of a bring-up."""
    return json.loads(sparktop("bringup", "--json", *words).stdout)["checks"]


def do(remedy: Any, **filled: str) -> None:
    """Do a remedy of a check as it is told: sparktop's own command, or each line in a shell where it says; `filled`
    stands for the words in capitals that it leaves open."""
    for line in [remedy["command"]] if remedy["action"] else remedy["steps"]:
        for name, value in filled.items():
            line = line.replace(name, value)
        where, _, typed = line.partition(": ")
        if line.startswith("sparktop "):
            run(*shlex.split(line)[1:])
        elif where.startswith("on "):
            type_in(f"ssh -tt {where[3:]} {shlex.quote(typed)}")
        elif where == "here":
            type_in(typed)
        else:
            raise AssertionError(f"nobody can type this: {line}")


def type_in(line: str) -> str:
    """Run a line in a shell whose ~/.ssh is this home's, as ssh looks it up, and answer what asks with Enter."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    Path(home, ".ssh").mkdir(mode=0o700, exist_ok=True)
    shell = ("unshare", "--mount", "sh", "-c", 'mount --bind "$HOME/.ssh" "$1/.ssh" && exec sh -c "$2"', "sh", home)
    ended = subprocess.run([*shell, line], input="\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    is_cut_off = "reboot" in line and ended.returncode == 255
    assert ended.returncode == 0 or is_cut_off, (line, ended.stdout[-1000:], ended.stderr[-1000:])
    return ended.stdout


def engine(picture_: Any, name: str, node: int = 0) -> Any:
    """An engine's row; None while there is none."""
    return next((one for one in picture_["nodes"][node]["engines"] if one["name"] == name), None)


def state(picture_: Any, name: str, node: int = 0) -> str:
    """Its state; empty while there is no such engine."""
    row = engine(picture_, name, node)
    return str(row["state"]) if row else ""


def rules(picture_: Any) -> dict[str, Any]:
    """The findings of now by their rule: a picture holds resolved ones for five minutes more."""
    return {one["rule"]: one for one in picture_["findings"] if one.get("phase") != "resolved"}


def told(picture_: Any) -> str:
    """A picture in short, for a test that failed."""
    nodes = [(one["name"], one["link"], [(e["name"], e["state"]) for e in one["engines"]]) for one in picture_["nodes"]]
    return f"{nodes}; {[(one['rule'], one.get('phase'), one['title']) for one in picture_['findings']]}"


@contextlib.contextmanager
def acting(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on meanwhile; killed when the block is left."""
    with (Path.home() / "acting").open("w") as said:
        process = subprocess.Popen([*SPARKTOP, *words, "--yes"], stdout=said, stderr=said, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def left_by(process: subprocess.Popen[str], how: int, then: Callable[[], object] = lambda: None) -> str:
    """Send it a signal, and wait for its end; what it has said."""
    process.send_signal(how)
    then()
    process.wait(PATIENCE_S)
    return (Path.home() / "acting").read_text()
