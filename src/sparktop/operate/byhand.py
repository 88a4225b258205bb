"""A relaunch that isn't done from here, as the lines that do it by hand, secrets masked. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from sparktop import sanitise
from sparktop.model.plan import Refusal, Request
from sparktop.operate.changing import Changing
from sparktop.operate.commandline import changed
from sparktop.operate.composefiles import OVERRIDE
from sparktop.operate.flags import CannotEdit
from sparktop.operate.knownsecrets import shown_value
from sparktop.operate.starter import StarterKind
from sparktop.probe.remote import mask_argv


def refusal(request: Request, found: tuple[Changing, ...]) -> Refusal:
    """Why not, with the lines for every rank."""
    head = found[0]
    evidence = "; ".join(head.starter.evidence)
    told = f" ({evidence})" if evidence else ""
    reasons = {
        StarterKind.COMPOSE: "a container made beside the project would be unknown to compose",
        StarterKind.UNIT: "systemd would start its own again beside a container made here",
        StarterKind.PROCESS: "nothing here knows how it was started, but for its command line",
    }
    why = reasons.get(head.starter.kind, "its container's own command starts no engine, so only its launcher can")
    return Refusal(
        request=request,
        reason=f"{head.part.name} on {head.part.node} was started by {head.starter.kind.value}{told}: {why}",
        remedies=tuple(line for one in found for line in lines(one)),
    )


def lines(one: Changing) -> tuple[str, ...]:
    """What to type for one rank."""
    makers = {StarterKind.COMPOSE: _compose, StarterKind.UNIT: _unit}
    made = makers.get(one.starter.kind, _command)(one)
    return tuple(f"on {one.part.node}: {sanitise.line(line)}" for line in made)


def command_line(one: Changing) -> str:
    """The engine's own command line with the change, masked; why it can't be told, in brackets."""
    argv = one.part.engine.argv
    try:
        words = changed((), argv, one.change.flags, {}).command
    except CannotEdit as error:
        return f"({error})"
    return shlex.join(mask_argv(words))


def _compose(one: Changing) -> Iterator[str]:
    starter = one.starter
    folder = shlex.quote(starter.working_dir or ".")
    files = " ".join(f"-f {shlex.quote(path)}" for path in starter.config_files)
    given = f" --env-file {shlex.quote(starter.environment_file)}" if starter.environment_file else ""
    yield f"write {folder}/{OVERRIDE}:"
    yield f"services: {{ {json.dumps(starter.service)}: {{"
    pairs = {name: shown_value(name, value) for name, value in one.change.environment.items()}
    if pairs:
        yield f"  environment: {json.dumps(pairs)},"
    if one.change.flags:
        yield f"  command: (whole) {command_line(one)}"
    if one.change.options:
        yield f"  # and, in compose's words, HostConfig {json.dumps(dict(one.change.options), default=str)}"
    if one.change.image:
        yield f"  image: {json.dumps(one.change.image)}"
    yield "} }"
    yield (
        f"docker compose -p {shlex.quote(starter.project)} --project-directory {folder}{given} {files} "
        f"-f {folder}/{OVERRIDE} up -d --no-deps {shlex.quote(starter.service)}"
    )


def _unit(one: Changing) -> Iterator[str]:
    unit = shlex.quote(one.starter.unit)
    systemctl = "systemctl --user" if one.starter.is_own_unit else "sudo systemctl"
    yield f"{systemctl} edit {unit}   # [Service], ExecStart= alone on a line, then the new ExecStart="
    for name, value in one.change.environment.items():
        shown = shown_value(name, value)
        yield f"  variable: {name}={shown}" if shown is not None else f"  without the variable {name}"
    if one.change.flags:
        yield f"  the engine's part of it: {command_line(one)}"
    yield f"{systemctl} restart {unit}"


def _command(one: Changing) -> Iterator[str]:
    yield from one.part.origin.commands
    for name, value in one.change.environment.items():
        shown = shown_value(name, value)
        yield f"export {name}={shlex.quote(shown)}" if shown is not None else f"unset {name}"
    if one.part.engine.argv:
        yield f"its command line with the change: {command_line(one)}"
