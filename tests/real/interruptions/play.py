"""One cell: a plan, interrupted in one step by one fault, on fresh machines; and the verdict on its end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.terminal import hurried_program, sparktop
from tests.real.interruptions.faults import CONSOLE, FAULTS
from tests.real.interruptions.look import Facts, difference, looked, settled
from tests.real.interruptions.plans import PLANS, Plan
from tests.real.machine import Machine
from tests.real.parts import FOLDER, load_stand_in

NOTHING_LEFT, AS_BEFORE_IT_SAYS = "no interrupted run", "everything is as before."
"""What sparktop says."""
ENDS_WITHIN_S = 420.0
"""A console that has been told to end, or has lost its node for good."""
Steps = list[tuple[str, str]]
"""(id, title) of each."""
AS_BEFORE, AS_PLANNED, TOLD, LOST, UNTOLD = "as before", "as planned", "told", "LOST", "UNTOLD"


@dataclass
class Run:
    """A console, and what its audit has of it."""

    process: subprocess.Popen[bytes]
    said: Path
    audit: Path
    skipped: int
    """Bytes of the audit that are of earlier runs."""

    def kinds(self) -> list[str]:
        """Of the entries, without reading them whole."""
        return [kind.decode() for kind in re.findall(rb'^{"v": \d+, "kind": "(\w+)"', self._raw(), re.MULTILINE)]

    def entries(self) -> list[Any]:
        return [json.loads(line) for line in self._raw().split(b"\n")[:-1] if line.strip()]

    def _raw(self) -> bytes:
        with contextlib.suppress(FileNotFoundError), self.audit.open("rb") as file:
            file.seek(self.skipped)
            return file.read()
        return b""

    def steps(self) -> Steps:
        """(id, title) of the planned ones."""
        intents = [entry for entry in self.entries() if entry["kind"] == "intent"]
        return [(step["step"], step["title"]) for step in intents[0]["steps"]] if intents else []

    def begins(self, number: int) -> bool:
        """Wait until that step is under way, from 1; 0: until the console connects. False where the run ends before."""
        while True:
            if number == 0 and b"connecting" in self.said.read_bytes():
                return True
            kinds = self.kinds() if number else []
            if "intent" in kinds and kinds.count("step") >= number - 1:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.01)

    def ends(self, within_s: float = ENDS_WITHIN_S) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        is_over = self.process.poll() is not None
        if not is_over:
            self.process.kill()
            self.process.wait()
        return is_over

    @property
    def text(self) -> str:
        return self.said.read_text(errors="replace")

    @property
    def state(self) -> str:
        """As the audit has it; empty without an end."""
        return next((str(one["state"]) for one in reversed(self.entries()) if one["kind"] == "end"), "")


def started(plan: Plan) -> Run:
    home = Path.home()
    audit = home / ".local/state/sparktop/audit.jsonl"
    said = home / "said"
    words = [word.replace("~", str(home)) for word in plan.words]
    with said.open("wb") as out:
        process = subprocess.Popen(
            [*hurried_program(), *words, "--yes"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={**os.environ, **plan.environment},
        )  # fmt: skip
    return Run(process, said, audit, audit.stat().st_size if audit.exists() else 0)


@dataclass(frozen=True)
class Cell:
    """A plan's step, from 1, or 0 for before; and a fault."""

    plan: str
    number: int
    fault: str
    seed: int = 0

    def step(self, steps: Steps) -> str:
        return ("before", *(step for step, _ in steps))[self.number]

    @property
    def chance(self) -> random.Random:
        return random.Random(f"{self.plan} {self.number} {self.fault} {self.seed}")


def key(cell: Cell, step: str) -> str:
    return f"{cell.plan} / {step} / {cell.fault}"


@dataclass
class Played:
    """What became of it."""

    cell: Cell
    step: str
    verdict: str = ""
    """Empty: it was not played."""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    steps: Steps = field(default_factory=list)
    log: str = ""


@contextlib.contextmanager
def own_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="spk-cut-") as name:
        old = dict(os.environ)
        os.environ.update(HOME=name, XDG_CONFIG_HOME=f"{name}/.config", XDG_STATE_HOME=f"{name}/.local/state")
        os.environ["LC_ALL"] = "C.UTF-8"
        for gone in ("SSH_AUTH_SOCK", "PYTHONDONTWRITEBYTECODE"):  # each start would compile the whole package anew
            os.environ.pop(gone, None)
        try:
            yield Path(name)
        finally:
            os.environ.clear()
            os.environ.update(old)


@contextlib.contextmanager
def grounded(plan: Plan) -> Iterator[tuple[Machine, ...]]:
    with contextlib.ExitStack() as stack:
        machines = tuple(stack.enter_context(Machine.up(name, images=stand_in())) for name in plan.hosts)
        for spark in machines:
            spark.alias()
            wait_for_logins(spark)
        plan.ground(machines)
        yield machines


def start_engines(machines: tuple[Machine, ...]) -> None:
    """What the fault itself has ended: a killed dockerd doesn't start again what it finds running."""
    for spark in machines:
        looked(spark)  # Docker answers again
        spark.run("sh", "-c", "docker ps -aq --filter status=exited | xargs -r docker start")


def wait_for_logins(spark: Machine) -> None:
    """sshd says its banner before users may log in."""
    questions = "ls /run/nologin 2>/dev/null; true"
    spark.until(lambda: not spark.run("sh", "-c", questions).strip(), what="users may log in")


@functools.cache
def stand_in() -> Path:
    """A Docker folder that has the tests' own engine alone, as it is now; it goes with this process."""
    folder = FOLDER / "machines" / f"stand-in-{os.getpid()}"
    with Machine.up("images", images=None) as one:
        load_stand_in(one)
        one.run("systemctl", "stop", "docker.socket", "docker", "containerd")
        one.docker.rename(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def ids_of(plan: Plan, machines: tuple[Machine, ...]) -> dict[str, str]:
    """Container id -> its name."""
    if plan.has_own_container:
        return {}
    listed = [one for spark in machines for one in json.loads(looked(spark)[0] or "[]")]
    return {one["Id"]: one["Name"].lstrip("/") for one in listed}


def undisturbed(name: str) -> tuple[Steps, Facts, Facts]:
    """The plan's steps, and what is seen before and after it."""
    plan = PLANS[name]
    with own_home(), grounded(plan) as machines:
        ids = ids_of(plan, machines)
        before = settled(machines, ids, ())
        run = started(plan)
        run.ends()
        assert run.process.returncode == 0, run.text
        for spark in machines:
            spark.answers()
        return run.steps(), before, settled(machines, ids, ())


def play(cell: Cell, steps: Steps, before: Facts, planned: Facts) -> Played:
    """One cell on fresh machines."""
    plan, begun = PLANS[cell.plan], time.monotonic()
    out = Played(cell, cell.step(steps))
    with own_home(), grounded(plan) as machines:
        ids = ids_of(plan, machines)
        run = started(plan)
        if not run.begins(cell.number):
            out.notes.append(f"ended before that step: {run.state or run.text[-200:]}")
            return out
        time.sleep(cell.chance.choice((0.0, 0.0, 0.1, 0.25)))
        if (number := CONSOLE.get(cell.fault)) is not None:
            run.process.send_signal(number)
        else:
            strike = FAULTS[cell.fault]
            assert strike is not None
            strike(machines[cell.chance.randrange(len(machines))])
        if not run.ends():
            out.notes.append("the console never ended")
        for spark in machines:
            spark.answers()
        if not plan.touches_engine:
            start_engines(machines)
        after = settled(machines, ids, (before, planned))
        if cell.number == 0 and after not in (before, planned):  # it was ended before anything was planned
            start_engines(machines)
            after = settled(machines, ids, (before, planned))
        out.log = run.text
        judge(out, plan, machines, run, (ids, before, planned, after))
    out.seconds = time.monotonic() - begun
    return out


def judge(
    out: Played, plan: Plan, machines: tuple[Machine, ...], run: Run,
    facts: tuple[Mapping[str, str], Facts, Facts, Facts],
) -> None:  # fmt: skip
    """The verdict on what is seen, by what was said; then the ways that were given, and a second run."""
    ids, before, planned, after = facts
    out.notes.append(f"exit {run.process.returncode}, {run.state or 'no end'}")
    wholes = (before, planned)
    out.verdict, wrong = told_truly(run, before, planned, after)
    out.notes += wrong
    is_checked = out.cell.chance.random() < 0.4
    if is_checked or after not in wholes:
        report = sparktop("act", "restore", *plan.hosts, "--dry-run", within_s=120, is_hurried=True)
        told = report.stdout + report.stderr
        out.log += f"\n=== restore --dry-run: {report.returncode}\n{told}"
        has_report = NOTHING_LEFT not in told
        if after in wholes and has_report:
            out.notes.append(f"the next console tells of something left: {report.returncode}")
        if after not in wholes:
            out.notes += difference(before, after)
            out.verdict = out.verdict or (TOLD if has_report else UNTOLD)
            after = _led_back(out, plan, machines, told, facts)
    if is_checked:
        second = started(plan)
        second.ends()
        for spark in machines:
            spark.answers()
        final = settled(machines, ids, (planned,))
        out.log += f"\n=== second run: {second.process.returncode} {second.state}\n{second.text}"
        if final != planned:
            out.notes += [f"a second run ({second.process.returncode}, {second.state}):", *difference(planned, final)]
            if after in wholes:
                out.verdict = UNTOLD


def told_truly(run: Run, before: Facts, planned: Facts, after: Facts) -> tuple[str, list[str]]:
    """The verdict by the run's own words, empty where something is left and nothing false was said; and why."""
    if "Traceback" in run.text:
        return UNTOLD, ["a traceback"]
    if (run.state == "done" or run.process.returncode == 0) and after != planned:
        return UNTOLD, ["done, it says, and it is not as planned:", *difference(planned, after)]
    if AS_BEFORE_IT_SAYS in run.text and after != before:
        return UNTOLD, ["as before, it says, and it is not:", *difference(before, after)]
    if after == planned and (after != before or run.state == "done"):
        return AS_PLANNED, []
    return AS_BEFORE if after == before else "", []


def _led_back(
    out: Played, plan: Plan, machines: tuple[Machine, ...], told: str,
    facts: tuple[Mapping[str, str], Facts, Facts, Facts],
) -> Facts:  # fmt: skip
    """Follow a way that was given, and where it doesn't lead back the others; what is seen at the end."""
    ids, before, planned, after = facts
    first = cell_way(out.cell)
    for way in (first, *(other for other in ("restore", "resume", "by hand") if other != first)):
        ended = followed(out, plan, machines, way, told)
        after = settled(machines, ids, (before, planned))
        if after in (before, planned):
            out.notes.append(f"whole after {way}")
            return after
        out.notes += [f"after {way} ({ended}):", *difference(before, after)]
        report = sparktop("act", "restore", *plan.hosts, "--dry-run", within_s=120, is_hurried=True)
        told = report.stdout + report.stderr
        out.log += f"\n=== restore --dry-run: {report.returncode}\n{told}"
        if ended == "0" and NOTHING_LEFT in told:
            out.verdict = UNTOLD
    out.verdict = LOST
    return after


def cell_way(cell: Cell) -> str:
    return cell.chance.choice(("restore", "restore", "resume", "by hand"))


def followed(out: Played, plan: Plan, machines: tuple[Machine, ...], way: str, told: str) -> str:
    """Follow a way that was given; what became of it in short."""
    if way == "by hand":
        text = " ".join(told.split())
        found = re.findall(r"Back by hand: (.*?)(?: ✓| sparktop:| connecting to |$)", text)
        if not found:
            return "no text"
        parts = re.split(r"(?:^|; )on (spark\d): ", found[-1])
        lines = [(parts[i], parts[i + 1]) for i in range(1, len(parts) - 1, 2)] or [("spark1", found[-1])]
        said = []
        for host, line in lines:
            spark = next(one for one in machines if one.hostname == host)
            ended = subprocess.run(
                spark.inside("sh", "-c", line.removesuffix(".")), capture_output=True, text=True, check=False
            )
            said.append(f"{line} -> {ended.returncode} {ended.stderr[-300:]}")
        out.log += "\n=== by hand\n" + "\n".join(said)
        return "0"
    ended = sparktop(
        "act", way, *plan.hosts, "--yes", within_s=300, is_hurried=True, environment=dict(plan.environment)
    )
    for spark in machines:
        spark.answers()
    out.log += f"\n=== {way}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return str(ended.returncode)
