"""The next try after an engine didn't start: a remedy for what its log says, and the command that applies it. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import LEAST, STEP
from sparktop.masking import is_secret
from sparktop.model.change import AUTO, Change
from sparktop.model.finding import Finding, Remedy
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.relaunch.sparktop_launch import set_parameters, split_flags
from sparktop.operate.secrets.masking import shown_value
from sparktop.operate.step.run import Run
from sparktop.recipe import parameters
from sparktop.recipe.launch_line import launch_line
from sparktop.recipe.read import shelf


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTry:
    """What to try after a start that failed."""

    finding: Finding
    remedy: Remedy
    command: str = ""
    """The command line that starts the engine with the remedy's change; empty where none can express it."""


def next_try(run: Run) -> NextTry | None:
    """The first remedy that a command applies, else the first one; None where the cause isn't known."""
    cause = run.cause
    if cause is None:
        return None
    kind = cause.engine.value
    tries = []
    for remedy in cause.finding.remedies:
        change = remedy.change.for_engine(kind) if remedy.change is not None else Change()
        command = "" if change.is_empty else _command(run.plan.request, change)
        tries.append(NextTry(finding=cause.finding, remedy=remedy, command=sanitise.line(command, limit=4000)))
    return next((one for one in tries if one.command), tries[0] if tries else None)


def _command(request: Request, change: Change) -> str:
    """The request again with this change, as a command line; empty where none can express it."""
    if request.order is not None:
        return _launch_command(request.nodes, request.order, change)
    merged = replace(
        request.change,
        flags={**request.change.flags, **change.flags},
        environment={**request.change.environment, **change.environment},
        options={**request.change.options, **change.options},
        image=change.image or request.change.image,
    )
    if merged.by_node or not request.target:
        return ""
    words = ["sparktop", "act", "relaunch", *request.nodes, "--engine", request.target, *_change_words(merged)]
    return shlex.join(words)


def _change_words(change: Change) -> Iterator[str]:
    for name, value in change.flags.items():
        if value is None:
            yield f"--unset-flag={name}"
        else:
            yield f"--flag={name}={shown_value(name, value)}" if value else f"--flag={name}"
    for name, value in change.environment.items():
        if value is None:
            yield from ("--unset-env", name)
        else:
            yield from ("--env", name if is_secret(name, value) else f"{name}={value}")
    for name, option in change.options.items():
        yield from ("--option", f"{name}={json.dumps(option)}")
    if change.image:
        yield from ("--image", change.image)


def _launch_command(nodes: tuple[str, ...], order: Order, change: Change) -> str:
    """`sparktop launch` with the flags as parameters; empty where the recipe itself has to change."""
    if change.environment or change.options:
        return ""
    values = dict(order.values)
    now = parameters.resolve(order).by_name
    flags = ((flag, _setting(parameters.main_name(flag), value, now)) for flag, value in change.flags.items())
    settings, other_flags = split_flags(order.recipe.engine, flags)
    if other_flags:
        return ""
    set_parameters(values, settings)
    if change.image:
        values["container"] = change.image
    return launch_line(
        shelf.recipe_argument(order.recipe), nodes, values, (f"{engine}@{node}" for node, engine in order.stops)
    )


def _setting(name: str, value: str | None, now: Mapping[str, str]) -> str | None:
    """The parameter's value for a flag's; None where there is none.

    A share that is computed is a step smaller, as one is for a running engine whose memory would allow more
    (`engines.memory_target.largest_share`): the launch's budget had found room for the share that failed.
    """
    if value is None:
        return None
    if name != parameters.SHARE or not (value == AUTO or value[:1] in "+-"):
        return value or "true"
    shift = -STEP if value == AUTO else float(value)
    try:
        share = float(parameters.get(now, name) or "") + shift
    except ValueError:
        return None
    return f"{share:.2f}" if LEAST <= share < 1 else None
