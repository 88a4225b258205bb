"""What `sparktop launch` has started, relaunched with a change: its labels, and what a launch alone can do. Pure.

Its containers are plain ones, made anew as any other. Only what a launch looks for on the nodes (who is there, how the
ranks meet) a relaunch can't: that is a launch of the recipe, whose line is told. The labels follow the change: a
parameter that the operator could have set stands among those afterwards, everything else is named as changed, so that
the next launch of the recipe takes it for what it is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from sparktop import sanitise
from sparktop.diagnose.live.ranks import flag as flag_of
from sparktop.model.engine import EngineKind
from sparktop.model.plan import Refusal, Request
from sparktop.operate.changing import Changing
from sparktop.operate.flags import Changed
from sparktop.operate.knownsecrets import shown_value
from sparktop.operate.part import Part
from sparktop.recipe import labels, parameters
from sparktop.recipe.secretnames import is_secret

_NODES = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_MEETING = ("nnodes", "node_rank", "headless", "master_addr", "dist_init_addr", "nccl_init_addr",
            "distributed_executor_backend")  # fmt: skip


def refusal(request: Request, found: Sequence[Changing]) -> Refusal | None:
    """What of the change only a launch can do; None where a relaunch can do all of it, or it isn't ours."""
    head = found[0]
    if not head.starter.recipe:
        return None
    name = f"{head.part.name} on {' and '.join(one.part.node for one in found)}"
    for given, value in head.change.flags.items():
        main = parameters.main_name(given)
        if flag_of(head.part.engine.argv, given) == value:
            continue
        if main in (*_NODES, *_MEETING):
            what = f"{sanitise.name(given)} says on which nodes it runs, or how they meet"
            return Refusal(
                request=request,
                reason=f"{name} was launched from {head.starter.recipe}: {what}, which a launch finds out on the nodes",
                remedies=lines(found),
            )
        host = head.raw.get("HostConfig")
        if main == "port" and isinstance(host, Mapping) and host.get("PortBindings"):
            return Refusal(
                request=request,
                reason=f"{name} has its port published by Docker: another one has to be published with it",
                remedies=lines(found),
            )
    return None


def with_line(refused: Refusal, found: Sequence[Changing]) -> Refusal:
    """A relaunch that can't be, with the launch that can; as it is where it isn't one of ours."""
    if not found[0].starter.recipe:
        return refused
    return replace(refused, remedies=(*refused.remedies, *lines(found)))


def lines(found: Sequence[Changing]) -> tuple[str, ...]:
    """The launch with the change in it, as typed, and what of the change has to be written into the recipe."""
    head = found[0]
    values = labels.values_of(_labels(head.part))
    asked, _ = _split(head)
    for name, value in asked.items():
        _put(values, name, value)
    nodes = [one.part.node for one in found]
    if (wanted := asked.get(_NODES[0])) is not None:
        nodes = [*nodes, "HOST"][: int(wanted)]
    line = _line(head.starter.recipe, nodes, values, head.part.name)
    return tuple(sanitise.line(text, limit=4000) for text in (line, *_for_the_recipe(head)))


def again(parts: Sequence[Part]) -> Iterator[str]:
    """The launch that makes the same anew; nothing where it isn't ours, or was changed by what no parameter says."""
    said = _labels(parts[0]) if parts else {}
    recipe = labels.recipe_of(said)
    if recipe and not said.get(labels.CHANGED):
        line = _line(recipe, [part.node for part in parts], labels.values_of(said), parts[0].name)
        yield sanitise.line(f"{line}   # or anew from its recipe", limit=4000)


def equivalent(found: Sequence[Changing], made: Mapping[str, str]) -> Iterator[str]:
    """The launch that makes what the relaunch makes, by its labels; nothing where no parameters say all of it."""
    head = found[0]
    if head.starter.recipe and not made.get(labels.CHANGED):
        line = _line(head.starter.recipe, [one.part.node for one in found], labels.values_of(made), head.part.name)
        yield sanitise.line(f"{line}   # the same from its recipe", limit=4000)


def relabelled(
    before: Mapping[str, str], kind: EngineKind, flags: Sequence[Changed], others: Collection[str], image: str
) -> dict[str, str]:
    """The labels of what a relaunch makes; those it had where it isn't ours.

    Args:
        flags: what was changed in the engine's arguments, of all ranks.
        others: names of the variables and options that are changed.
        image: its new one's name; empty: the same.
    """
    after = dict(before)
    if not labels.recipe_of(before):
        return after
    values = labels.values_of(before)
    changed = {*labels.changed_in(before), *map(sanitise.name, others)}
    for one in flags:
        if one.after is not None and parameters.can_be_set(kind, one.name, one.after or "true"):
            _put(values, one.name, one.after or "true")
        else:
            changed.add(sanitise.name(one.name))
    if image and parameters.can_be_set(kind, "container", image):
        _put(values, "container", image)
    elif image:
        changed.add("container")
    after[labels.VALUES] = json.dumps(values, sort_keys=True)
    if changed:
        after[labels.CHANGED] = json.dumps(sorted(changed))
    return after


# --- lines


def _line(recipe: str, nodes: Sequence[str], values: Mapping[str, str], name: str) -> str:
    given = [word for key, value in values.items() for word in ("--set", f"{key}={shown_value(key, value) or ''}")]
    return shlex.join(["sparktop", "launch", recipe, *nodes, *given, "--stop", name])


def _split(one: Changing) -> tuple[dict[str, str], list[tuple[str, str | None]]]:
    """(parameters of a launch, the flags that are none)."""
    values: dict[str, str] = {}
    rest: list[tuple[str, str | None]] = []
    for given, value in one.change.flags.items():
        main = parameters.main_name(given)
        if main in _MEETING:
            continue  # found out by the launch itself
        if value is not None and parameters.can_be_set(one.part.engine.kind, given, value or "true"):
            values[main] = value or "true"
        else:
            rest.append((given, value))
    if one.change.image:
        values["container"] = one.change.image
    return values, rest


def _for_the_recipe(one: Changing) -> Iterator[str]:
    where = f"in a copy of {one.starter.recipe}"
    for given, value in _split(one)[1]:
        words = [given, *filter(None, [shown_value(given, value)])]
        yield f"{where}, in command: {'without ' if value is None else ''}{shlex.join(words)}"
    for name, value in one.change.environment.items():
        if value is not None and is_secret(name, value):
            yield f"in a .env file of mode 0600, or exported: {name}"
        else:
            yield f"{where}, in env: " + (f"without {name}" if value is None else f"{name}={shown_value(name, value)}")
    for name, wanted in one.change.options.items():
        yield f"{where}, in executor_config: {name} {json.dumps(wanted, default=str)}"


# --- labels


def _labels(part: Part) -> Mapping[str, str]:
    return part.box.labels if part.box is not None else {}


def _put(values: dict[str, str], name: str, value: str) -> None:
    """Under the name that the operator had used, where that is there."""
    main = parameters.main_name(name)
    own = next((key for key in values if parameters.main_name(key) == main), main)
    values[own] = value
