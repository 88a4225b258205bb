"""What a swap says of itself before it is begun: what it changes, what is lost, the same as commands. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparktop import sanitise
from sparktop.diagnose.live.window import span
from sparktop.model.engine import EngineState
from sparktop.model.plan import Difference, Request, Step
from sparktop.operate import changewords
from sparktop.operate import containersteps as steps_of
from sparktop.operate.knownsecrets import shown_value
from sparktop.operate.part import requests_lost
from sparktop.operate.privilege import root_argvs, sudo_note
from sparktop.operate.recreate import anonymous_volumes
from sparktop.operate.startsteps import guard_note
from sparktop.operate.survey import Survey
from sparktop.recipe.dockerline import docker_run, one_line, secret_names, shown_line

if TYPE_CHECKING:
    from sparktop.operate.swap import Swap

_PASSING = ("/tmp/", "/run/", "/var/run/", "/var/log/", "/var/tmp/", "/dev/", "/proc/", "/sys/")  # noqa: S108
_NAMED_AT_MOST = 3


def differences(swaps: Sequence[Swap]) -> tuple[Difference, ...]:
    """What is another way than before; of several ranks each once, where they have it in common."""
    found: dict[Difference, None] = {}
    for one in swaps:
        found.update(dict.fromkeys(_differences(one)))
    return tuple(found)


def _differences(one: Swap) -> Iterator[Difference]:
    change = one.changing.change
    before = _environment(one.changing.raw.get("Config"))
    for name, value in change.environment.items():
        if before.get(name) != value:
            yield Difference(
                what="environment",
                name=sanitise.name(name),
                before=_shown(name, before.get(name)),
                after=_shown(name, value),
            )
    for flag in one.flags:
        yield Difference(
            what="flag",
            name=sanitise.name(flag.name),
            before=_shown(flag.name, flag.before),
            after=_shown(flag.name, flag.after),
        )
    host: Mapping[str, Any] = one.changing.raw.get("HostConfig") or {}
    made: Mapping[str, Any] = {**one.made.body["HostConfig"], "RestartPolicy": one.policy}
    for name in change.options:
        if host.get(name) != made.get(name):
            yield Difference(what="option", name=name, before=_json(host.get(name)), after=_json(made.get(name)))
    if change.image and one.image_id != one.changing.image_id:
        yield Difference(
            what="image",
            name="image",
            before=sanitise.line(one.changing.image_name, limit=200),
            after=sanitise.line(change.image, limit=200),
        )


def summary(found: Sequence[Difference]) -> str:
    """ "with --gpu-memory-utilization 0.70, --enforce-eager" for the title."""
    if not found:
        return "as it is"
    said = []
    for one in found:
        if one.after is None:
            said.append(f"no {one.name}")
        elif one.after == "":
            said.append(one.name)
        else:
            said.append(f"{one.name}{' ' if one.what == 'flag' else '='}{one.after}"[:60])
    more = len(said) - _NAMED_AT_MOST
    return "with " + ", ".join(said[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def effect(request: Request, swaps: Sequence[Swap]) -> str:
    head = swaps[0]
    took = f" Its last load took {span(head.start.load_s)}." if head.start.load_s is not None else ""
    kept = (
        f"The old container is kept as {head.before_name}, stopped and without a restart policy; "
        f"remove it with: docker rm {head.before_name}"
    )
    if request.options.get("keep_old", "yes") == "no":
        kept = "The old container is removed at the end, as you asked: from then on there is no way back"
    if head.box.auto_remove:
        kept = "Docker removes the old container, as it was started with --rm; the way back makes it again"
    return f"{head.name} is down until the new one has loaded.{took}{changewords.proof(request)} {kept}."


def warnings(request: Request, swaps: Sequence[Swap], steps: Sequence[Step], survey: Survey) -> Iterator[str]:
    part = swaps[0].changing.part
    if part.requests:
        yield requests_lost(part.requests, part.name)
    elif part.runs and part.engine.state in (EngineState.LOADING, EngineState.CAPTURING, EngineState.STARTING):
        yield f"{part.name} is {part.engine.state.value}: what it has loaded so far is lost."
    for one in swaps:
        yield from one.start.target.warnings
        yield from _lost(one)
        yield from one.changing.notes
        yield from one.made.notes
        yield from guard_note(one.changing.part)
        note = sudo_note(survey.privileges(one.box.node), root_argvs(steps, one.box.node), one.box.node)
        if note:
            yield note
    head = swaps[0]
    if head.policy.get("Name") not in ("", "no", None):
        yield "The new container gets its restart policy when it has served, not before."


def _lost(one: Swap) -> Iterator[str]:
    name, node = one.name, one.box.node
    written = written_paths(one.changing.written)
    if written is None:
        yield f"What {name} has written into its own file system on {node} could not be counted; the new one lacks it."
    elif written:
        some = ", ".join(sanitise.line(path, limit=60) for path in written[:3]) + (" ..." if len(written) > 3 else "")
        files = f"{len(written)} files" if len(written) > 1 else "1 file"
        yield (
            f"{files} in the writable layer of {name} on {node} ({some}), not in the new one. "
            "To keep what was installed or patched there: "
            f"docker commit {name} {name.lower()}-kept:{one.stamp.lower()}, and relaunch with that image."
        )
    if one.box.auto_remove:
        yield (
            f"{name} was started with --rm: Docker removes it and its log when it stops. Its log is in the evidence; "
            "there is no old container to go back to, it would be made again."
        )
        return
    volumes = anonymous_volumes(one.changing.raw)
    if volumes:
        where = ", ".join(sanitise.line(str(one.get("Destination")), limit=60) for one in volumes)
        yield f"Its anonymous volumes ({where}) are used by the new one too, under their names."
    named = one.changing.image_name
    if one.image_ref == one.changing.image_id and named not in ("", one.image_ref):
        yield (
            f"{sanitise.line(named, limit=120)} is another image by now, or none: the new one is made from the same "
            "image as the old one, by its id."
        )


def written_paths(paths: Sequence[str] | None) -> tuple[str, ...] | None:
    """Files that were written and would be missed; folders above others, bytecode and passing files are left out."""
    if paths is None:
        return None
    above = {path.rpartition("/")[0] for path in paths}
    while True:
        more = {path.rpartition("/")[0] for path in above} - above
        if not more:
            break
        above |= more
    return tuple(
        path
        for path in paths
        if path not in above and not f"{path}/".startswith(_PASSING) and "/__pycache__/" not in path
    )


def equivalent(down: Sequence[Swap], up: Sequence[Swap], grace_s: float) -> Iterator[str]:
    for one in down:
        if one.box.restarts:
            yield f"on {one.box.node}: docker update --restart=no {one.name}"
        if one.changing.part.runs:
            yield f"on {one.box.node}: docker stop -t {grace_s:.0f} {one.name}"
    for one in up:
        need = one.start.target.target_bytes // 1024
        yield f"on {one.box.node}: grep MemAvailable /proc/meminfo   # until it is {need} kB"
        if not one.box.auto_remove:
            yield f"on {one.box.node}: docker rename {one.name} {one.before_name}"
        hidden = secret_names([str(pair) for pair in one.made.body.get("Env") or ()])
        if hidden:
            yield f"on {one.box.node}: export {' '.join(map(shlex.quote, hidden))}   # each with its value"
        image = one.changing.new_image if one.changing.new_image is not None else one.changing.image
        line = docker_run(one.name, one.made.body, image)
        joined = docker_run(one.name, one.made.body, image, connects=one.made.connects).removeprefix(line)
        for row in (one_line(line), *joined.splitlines()[1:]):
            yield f"on {one.box.node}: {shown_line(row)}"
        if one.policy.get("Name") not in ("", "no", None):
            box = one.box
            word = steps_of.policy_word(box) if one.policy.get("Name") == box.policy else str(one.policy.get("Name"))
            yield f"on {box.node}: docker update --restart={word} {one.name}   # when it has served"


def _environment(config: object) -> dict[str, str]:
    pairs = config.get("Env") if isinstance(config, Mapping) else None
    return {name: value for name, _, value in (str(pair).partition("=") for pair in pairs or ())}


def _shown(name: str, value: str | None) -> str | None:
    shown = shown_value(name, value)
    return None if shown is None else sanitise.line(shown, limit=300)


def _json(value: object) -> str | None:
    return None if value is None else sanitise.line(json.dumps(value, ensure_ascii=False, default=str), limit=300)
