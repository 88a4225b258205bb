"""One trial from its beginning to its facts."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.draw import Trial
from tests.faults.faults import Hit, Place, processes, small_disk, strike
from tests.faults.judge import Facts, Promise, Told, problems
from tests.faults.stages import POLICY, SECRETS, Scene, scene
from tests.integration.spark import Spark
from tests.integration.terminal import Terminal, sparktop, terminal

from sparktop.documents.run import STEP_SIGNS
from sparktop.model.run import StepState
from sparktop.operate.audit.audit import entries

SIZE = 40, 400
"""A wide window: what is told is read back, and a name that is cut in two would not be found."""
MOMENT_S, END_S, OUT_S = 120.0, 150.0, 90.0
"""Seconds for the moment to come; for the end, after which the operator presses Ctrl-C; for the end then."""
BEFORE_LAST = 0.8
"""Share of a plan's steps after which still one is carried out on the node."""
_BEGUN = re.compile(f"{STEP_SIGNS[StepState.RUNNING][0]} (\\d+)/(\\d+) ".encode())
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True)
class Played:
    """A trial that is over."""

    trial: Trial
    moment: str
    told: str
    wrong: tuple[str, ...]
    said: str


def play(trial: Trial, sparks: tuple[Spark, Spark], folder: Path) -> Played:
    """Play it, on Sparks with nothing on them."""
    state = folder / "state"
    disk = small_disk(state) if trial.fault == "disk-full-here" else contextlib.nullcontext()
    with scene(trial, sparks, folder) as made, disk, _environment(made, state):
        before = made.boxes()
        with terminal(*made.words, size=SIZE, is_hurried=True) as at:
            place = Place(trial=trial, scene=made, at=at, state_folder=state, rival_folder=folder / "rival")
            first = _to_the_way_back(at) if trial.action == "way-back" else 0
            moment = _moment(at, trial, first)
            hit = strike(place)
            with hit.undo:
                code = _end(at)
                rival = _rival_end(hit, place)
            written = at.text
        quiet(made)
        told = [_told(state, code, written), *rival]
        if told[-1].state != "done":
            told[0] = _with_next(told[0], made)
        told.sort(key=lambda one: one.at_wall_s)
        facts = _facts(trial, made, before, tuple(told), hit, folder)
        wrong = list(problems(facts))
        words = [f"{one.state or 'no word'} ({one.code})" for one in told]
        said = "\n".join(one.said for one in told)
        if hit.missed:
            moment = f"{moment}, {hit.missed}"
        if not any(one.state == "done" for one in told) and made.promise is Promise.SERVES:
            again, wrong_again = _retried(trial, made, state, hit, folder)
            words.append(f"tried again: {again.state} ({again.code})")
            wrong += [f"tried again: {one}" for one in wrong_again]
            said += f"\n--- tried again\n{again.said}"
        return Played(trial=trial, moment=moment, told=", ".join(words), wrong=tuple(wrong), said=said)


@contextlib.contextmanager
def _environment(made: Scene, state: Path) -> Iterator[None]:
    given = {**made.environment, "XDG_STATE_HOME": str(state), "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _to_the_way_back(at: Terminal) -> int:
    """Say yes to a restart, get out of it while it stops the engine, and say yes to its way back."""
    seen = at.reads("Run this? (yes/no)")
    at.types("yes\r")
    seen = at.reads(f"{STEP_SIGNS[StepState.RUNNING][0]} 3/", after=seen)
    at.types("\x03")
    seen = at.reads("Run this? (yes/no)", after=seen)
    at.types("yes\r")
    return seen


def _moment(at: Terminal, trial: Trial, first: int) -> str:
    """Wait for the trial's moment; in words."""
    deadline = time.monotonic() + MOMENT_S
    share, delay_s = (trial.share * BEFORE_LAST, 0.0) if trial.hurts_step else (trial.share, trial.delay_s)
    while time.monotonic() < deadline:
        runs = at.looks()
        for found in _BEGUN.finditer(at.written, first):
            number, count = int(found[1]), int(found[2])
            if number >= 1 + int(share * count):
                at.pause(delay_s)
                return f"step {number}/{count} + {delay_s:.2f} s"
        if not runs:
            return "after its end"
    return "no step came"


def _end(at: Terminal) -> int | None:
    """Its exit code; None where it doesn't end, Ctrl-C or not."""
    deadline = time.monotonic() + END_S
    while at.looks() and time.monotonic() < deadline:
        pass
    if at.status is None:
        if not at.is_hung_up:
            at.types("\x03")
        deadline = time.monotonic() + OUT_S
        while at.looks() and time.monotonic() < deadline:
            pass
    return None if at.status is None else at.ends()


def _rival_end(hit: Hit, place: Place) -> list[Told]:
    if hit.rival is None:
        return []
    try:
        code: int | None = hit.rival.wait(END_S)
    except subprocess.TimeoutExpired:
        hit.rival.kill()
        code = None
    return [_told(place.rival_folder, code, (place.rival_folder / "output").read_text(errors="replace"))]


def _intents(state: Path) -> list[str]:
    """The runs that were begun from this state folder."""
    known, _ = entries(state / "sparktop/audit.jsonl")
    return [entry["run"] for entry in known if entry["kind"] == "intent"]


def _told(state: Path, code: int | None, written: str, *, earlier: int = 0) -> Told:
    """What the console whose state folder this is has told at its end; `earlier` runs there are not its own."""
    known, _ = entries(state / "sparktop/audit.jsonl")
    runs = _intents(state)[earlier:]
    steps = [entry for entry in known if entry["kind"] == "step" and entry.get("run") in runs[-1:]]
    ended = [entry for entry in known if entry["kind"] == "end" and entry.get("run") in runs[-1:]]
    end = ended[-1] if ended else {}
    begun = re.search(_BEGUN.pattern.decode(), written)
    after_the_plan = written[begun.start() :] if begun else written
    said = " ".join((after_the_plan, str(end.get("message", "")), str(end.get("hint", ""))))
    is_nothing = not runs and code is not None and code > 0
    return Told(
        code=code,
        state="nothing" if is_nothing else str(end.get("state", "")),
        at_wall_s=float(end.get("wall_s", time.time())),
        said=said,
        checked_wall_s=steps[-1]["wall_s"] - (steps[-1].get("seconds") or 0.0) if steps else 0.0,
    )


def _with_next(told: Told, made: Scene) -> Told:
    """And what the next console says of it."""
    done = sparktop("act", "drop-caches", *made.nodes, "--dry-run", is_hurried=True, within_s=120)
    said = f"{told.said}\n--- the next console, {done.returncode}\n{done.stderr}"
    return replace(told, said=said)


def _retried(trial: Trial, made: Scene, state: Path, hit: Hit, folder: Path) -> tuple[Told, tuple[str, ...]]:
    """The same again with nobody in the way: what it tells, and what is wrong with that."""
    before = made.boxes()
    earlier = len(_intents(state))
    done = sparktop(*made.retry_words, is_hurried=True, within_s=END_S + OUT_S)
    quiet(made)
    told = _told(state, done.returncode, done.stdout + done.stderr, earlier=earlier)
    if told.state != "done":  # what it can't do, it says; and what it has left was judged
        return told, ()
    return told, problems(_facts(trial, made, before, (told,), Hit(removed=hit.removed), folder))


def _facts(trial: Trial, made: Scene, before: tuple, told: tuple[Told, ...], hit: Hit, folder: Path) -> Facts:
    last = told[-1].state or ("done" if told[-1].code == 0 else "")
    answers = made.answers(last)
    deadline = time.monotonic() + (20 if last in ("done", "rolled back") and made.promise is Promise.SERVES else 0)
    while not answers and time.monotonic() < deadline:
        time.sleep(0.2)
        answers = made.answers(last)
    return Facts(
        names=made.names,
        nodes=made.nodes,
        promise=made.promise,
        policy="always" if made.promise is Promise.BROKEN else POLICY,
        before=before,
        after=made.boxes(),
        answers=answers,
        told=told,
        fault_wall_s=hit.hurt_wall_s,
        removed=frozenset(hit.removed),
        secrets=tuple(_with_secrets(told, folder)),
        controls=tuple(_with_controls(told, folder)),
        is_code_of_run=trial.action != "way-back",
    )


def quiet(made: Scene) -> None:
    """Until nobody changes anything any more: what a node has begun it finishes by itself."""
    deadline = time.monotonic() + 75
    still_since, last = time.monotonic(), made.boxes()
    while time.monotonic() < deadline:
        time.sleep(0.2)
        now = made.boxes()
        is_still = [box.runs for box in now] == [box.runs for box in last] and {
            (box.container_id, box.name, box.policy) for box in now
        } == {(box.container_id, box.name, box.policy) for box in last}
        if not is_still or any(processes(spark) for spark in made.sparks):
            still_since = time.monotonic()
        last = now
        if time.monotonic() - still_since > 1.0:
            return


def _texts(told: tuple[Told, ...], folder: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of all that was written here."""
    yield from (("the output", one.said) for one in told)
    for part in ("state", "rival"):
        for path in sorted((folder / part).rglob("*")):
            if not path.is_file() or path.name == "filler":
                continue
            if path.name.endswith(".tar.gz"):
                with contextlib.suppress(tarfile.TarError, EOFError, OSError), tarfile.open(path) as archive:
                    for member in archive:
                        file = archive.extractfile(member)
                        if file is not None:
                            yield f"{path.name}:{member.name}", file.read().decode(errors="replace")
            else:
                yield path.name, path.read_text(errors="replace")


def _with_secrets(told: tuple[Told, ...], folder: Path) -> Iterator[str]:
    for place, text in _texts(told, folder):
        yield from (f"{place} ({name})" for name, value in SECRETS.items() if value in text)


def _with_controls(told: tuple[Told, ...], folder: Path) -> Iterator[str]:
    for place, text in _texts(told, folder):
        if found := _CONTROL.search(text):
            yield f"{place} ({found[0]!r})"
