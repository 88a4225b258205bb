"""What a compose relaunch says of itself before it is begun: what it changes, what is lost, the same by hand. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sparktop import sanitise
from sparktop.diagnose.live.window import span
from sparktop.model.engine import EngineState
from sparktop.model.plan import Difference, Request, Step
from sparktop.operate import changewords, swapwords
from sparktop.operate import containersteps as steps_of
from sparktop.operate.composefiles import OVERRIDE
from sparktop.operate.composegiven import environment_of
from sparktop.operate.composevalues import filled
from sparktop.operate.privilege import root_argvs, sudo_note
from sparktop.operate.survey import Survey

if TYPE_CHECKING:
    from sparktop.operate.composed import Composed


def differences(made: Sequence[Composed]) -> tuple[Difference, ...]:
    """What is another way than before; of several ranks each once, where they have it in common."""
    found: dict[Difference, None] = {}
    for one in made:
        found.update(dict.fromkeys(_differences(one)))
    return tuple(found)


def _differences(one: Composed) -> Iterator[Difference]:
    yield from changewords.asked(one.changing, one.flags)
    yield from changewords.file_lines(one.project.override, one.project.before, one.text)


def summary(found: Sequence[Difference]) -> str:
    return swapwords.summary([one for one in found if one.what != "file"])


def effect(request: Request, made: Sequence[Composed]) -> str:
    head = made[0]
    took = f" Its last load took {span(head.start.load_s)}." if head.start.load_s is not None else ""
    return (
        f"{head.name} is down until the new one has loaded.{took}{changewords.proof(request)} "
        f"Compose makes the container anew and removes the old one; the way back is {OVERRIDE} as it was, and up again."
    )


def warnings(made: Sequence[Composed], steps: Sequence[Step], survey: Survey) -> Iterator[str]:
    part = made[0].changing.part
    if part.requests:
        yield f"{part.requests} requests that {part.name} holds are lost."
    elif part.runs and part.engine.state in (EngineState.LOADING, EngineState.CAPTURING, EngineState.STARTING):
        yield f"{part.name} is {part.engine.state.value}: what it has loaded so far is lost."
    for one in made:
        yield from one.start.target.warnings
        yield from _lost(one)
        yield from _drifted(one)
        yield from one.changing.notes
        yield from one.project.notes
        yield from _kept(one)
        note = sudo_note(survey.privileges(one.box.node), root_argvs(steps, one.box.node), one.box.node)
        if note:
            yield note
    if made[0].policy.get("Name") not in ("", "no", None):
        yield "The new container gets its restart policy when it has served, not before."


def _lost(one: Composed) -> Iterator[str]:
    written = swapwords.written_paths(one.changing.written)
    if written is None:
        yield f"What {one.name} has written into its own file system on {one.box.node} could not be counted: it is lost"
    elif written:
        some = ", ".join(sanitise.line(path, limit=60) for path in written[:3]) + (" ..." if len(written) > 3 else "")
        files = f"{len(written)} files" if len(written) > 1 else "1 file"
        yield (
            f"{files} in the writable layer of {one.name} on {one.box.node} ({some}) are removed with the container. "
            "To keep what was installed or patched there: "
            f"docker commit {one.name} {one.name.lower()}-kept, and relaunch with that image."
        )
    yield "The old container's log is removed with it; the evidence has its end."


def _drifted(one: Composed) -> Iterator[str]:
    """What `up` would change though nobody asks for it: a tag that moved, a file that was edited."""
    changing = one.changing
    tagged = (changing.tagged or {}).get("Id")
    if not changing.change.image and tagged not in (None, changing.image_id):
        yield (
            f"{sanitise.line(changing.image_name, limit=120)} is another image on {one.box.node} than the one that "
            f"{one.name} was made from (pulled or tagged since): compose takes the new one, on the way back too. To "
            f"stay with the old one: image {changing.image_id}"
        )
    actual = dict(str(pair).partition("=")[::2] for pair in (changing.raw.get("Config") or {}).get("Env") or ())
    said: dict[str, str | None] = {}
    for each in one.project.definitions:
        said |= environment_of(each)
    edited = sorted(
        name
        for name, template in said.items()
        if template is not None and "$" not in template and name not in changing.change.environment
        and actual.get(name, "") != filled(template, {})
    )  # fmt: skip
    if edited:
        names = ", ".join(sanitise.name(name) for name in edited[:5]) + (" ..." if len(edited) > 5 else "")
        yield f"The compose files were edited since {one.name} was made of them ({names}): that takes effect too."


def _kept(one: Composed) -> Iterator[str]:
    path = sanitise.line(one.project.override, limit=200)
    yield (
        f"The change stays in {path}. `docker compose up` in that folder doesn't read it by itself: name it with -f, "
        "or take its lines over into the compose file."
    )
    if one.project.before is not None and not one.project.uses_before:
        yield f"{path} was written before and is not in use now: it is replaced."
    if one.sealed:
        names = ", ".join(one.sealed)
        yield (
            f"{names} {'are' if len(one.sealed) > 1 else 'is'} kept in no file: a later `docker compose up` with "
            f"{OVERRIDE} wants {'them' if len(one.sealed) > 1 else 'it'} from the shell."
        )


def equivalent(down: Sequence[Composed], up: Sequence[Composed], grace_s: float) -> Iterator[str]:
    for one in down:
        if one.box.restarts:
            yield f"on {one.box.node}: docker update --restart=no {one.name}"
        if one.changing.part.runs:
            yield f"on {one.box.node}: docker stop -t {grace_s:.0f} {one.name}"
    for one in up:
        node = one.box.node
        yield f"on {node}: grep MemAvailable /proc/meminfo   # until it is {one.start.target.target_bytes // 1024} kB"
        yield f"on {node}: cat > {shlex.quote(one.project.override)} <<'END'"
        yield from (sanitise.line(row) for row in one.text.splitlines())
        yield "END"
        for name in one.unset:
            yield f"on {node}: unset {shlex.quote(name)}"
        if one.given:
            names = " ".join(map(shlex.quote, sorted(one.given)))
            yield f"on {node}: export {names}   # each with its value"
        words = ("up", "-d", "--no-deps", "--", one.project.service)
        yield f"on {node}: {shlex.join(one.project.argv(*words, override=one.project.override))}"
        if one.policy.get("Name") not in ("", "no", None):
            update = f"docker update --restart={_policy(one)} {one.project.container_name}"
            yield f"on {node}: {update}   # when it has served"


def _policy(one: Composed) -> str:
    name = str(one.policy.get("Name"))
    return steps_of.policy_word(one.box) if name == one.box.policy else name
