"""Relaunch of what `sparktop launch` started: its labels, and changes that need a launch instead.

Its containers are plain ones and are replaced as such. Changes that depend on facts found on the nodes (which nodes
take part, how ranks meet) are refused with the command line of the launch that makes them. Labels follow the change: a
parameter that the operator can set is kept as a value, everything else is listed as changed, so that the next launch of
the recipe knows what differs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sparktop import sanitise
from sparktop.cmdline.engine_flag_edits import FlagChange
from sparktop.cmdline.engine_flags import polar
from sparktop.engines import labels
from sparktop.masking import is_secret
from sparktop.model.engine import EngineKind
from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.operate.secrets.masking import shown_value
from sparktop.recipe import parameters
from sparktop.recipe.launch_line import launch_line
from sparktop.text.sentences import listed

_PARALLELISM = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_RENDEZVOUS = ("nnodes", "node_rank", "headless", "master_addr", "dist_init_addr", "nccl_init_addr",
            "distributed_executor_backend")  # fmt: skip


def refuse_launch_only(rank_changes: Sequence[RankChange]) -> None:
    """Refuse a change to a launched engine that only a launch can make."""
    head = rank_changes[0]
    if not head.origin.recipe:
        return
    name = f"{head.rank.name} on {listed(rank_change.rank.node for rank_change in rank_changes)}"
    command = head.rank.engine.command
    for flag, value in head.change.flags.items():
        main, why = parameters.main_name(flag), ""
        if main in (*_PARALLELISM, *_RENDEZVOUS):
            reason = f"{sanitise.name(flag)} sets the nodes it runs on, or how they meet"
            why = f"was launched from {head.origin.recipe}: {reason}, which only a launch can find out"
        elif main == "port" and head.host.get("PortBindings"):
            why = "has its port published by Docker: a new port must be published too"
        if why and command.value(polar(flag, command.kind)) != value:
            raise Refused(f"{name} {why}", lines(rank_changes))


def with_line(refused: Refused, rank_changes: Sequence[RankChange]) -> Refused:
    """The refusal, with the launch command that does it where sparktop launched the engine."""
    if not rank_changes[0].origin.recipe:
        return refused
    return Refused(refused.reason, (*refused.remedies, *lines(rank_changes)))


def lines(rank_changes: Sequence[RankChange]) -> tuple[str, ...]:
    """The launch command with the change, and what of the change has to go into the recipe."""
    head = rank_changes[0]
    values, flags = labels.values_of(head.rank.labels), head.change.flags.items()
    # How ranks meet is found out by the launch.
    own_flags = ((flag, value) for flag, value in flags if parameters.main_name(flag) not in _RENDEZVOUS)
    settings, other_flags = split_flags(head.rank.engine.kind, own_flags)
    if head.change.image:
        settings["container"] = head.change.image
    set_parameters(values, settings)
    nodes = [rank_change.rank.node for rank_change in rank_changes]
    if (node_count := settings.get(_PARALLELISM[0])) is not None:
        nodes = [*nodes, "HOST"][: int(node_count)]
    line = launch_line(head.origin.recipe, nodes, values, [head.rank.name])
    return tuple(sanitise.line(text, limit=4000) for text in (line, *_recipe_lines(head, other_flags)))


def again(ranks: Sequence[RunningRank]) -> Iterator[str]:
    """The command that launches the same again; nothing where sparktop didn't, or no parameters express its changes."""
    if ranks:
        yield from same(ranks, ranks[0].labels, "or from its recipe")


def same(ranks: Sequence[RunningRank], container_labels: Mapping[str, str], words: str) -> Iterator[str]:
    """The command that launches what has these labels; nothing where parameters can't express all of it."""
    recipe = labels.recipe_of(container_labels)
    if recipe and not container_labels.get(labels.CHANGED):
        line = launch_line(recipe, [rank.node for rank in ranks], labels.values_of(container_labels), [ranks[0].name])
        yield sanitise.line(f"{line}   # {words}", limit=4000)


def relabelled(
    before: Mapping[str, str], kind: EngineKind, flags: Sequence[FlagChange], other_names: Collection[str], image: str
) -> dict[str, str]:
    """Labels of the new container; those of the old one where sparktop didn't launch it.

    Args:
        flags: changed engine flags of all ranks.
        others: names of changed variables and options.
        image: the new image's name; empty: unchanged.
    """
    after = dict(before)
    if not labels.recipe_of(before):
        return after
    values = labels.values_of(before)
    changed = {*labels.changed_in(before), *map(sanitise.name, other_names)}
    settings, other_flags = split_flags(kind, ((flag.name, flag.after) for flag in flags))
    changed |= {sanitise.name(flag) for flag, _ in other_flags}
    if image and parameters.can_be_set(kind, "container", image):
        settings["container"] = image
    elif image:
        changed.add("container")
    set_parameters(values, settings)
    after[labels.VALUES] = json.dumps(values, sort_keys=True)
    if changed:
        after[labels.CHANGED] = json.dumps(sorted(changed))
    return after


# --- lines


_Flags = Iterable[tuple[str, str | None]]


def split_flags(kind: EngineKind, flags: _Flags) -> tuple[dict[str, str], _Flags]:
    """(changed flags as launch parameters, those that are none)."""
    values: dict[str, str] = {}
    other_flags: list[tuple[str, str | None]] = []
    for flag, value in flags:
        if value is not None and parameters.can_be_set(kind, flag, value or "true"):
            values[parameters.main_name(flag)] = value or "true"
        else:
            other_flags.append((flag, value))
    return values, other_flags


def _recipe_lines(rank_change: RankChange, other_flags: _Flags) -> Iterator[str]:
    where = f"in a copy of {rank_change.origin.recipe}"
    for flag, value in other_flags:
        words = [flag, *filter(None, [shown_value(flag, value)])]
        yield f"{where}, in command: {'without ' if value is None else ''}{shlex.join(words)}"
    for name, value in rank_change.change.environment.items():
        if value is not None and is_secret(name, value):
            yield f"in a .env file of mode 0600, or exported: {name}"
        else:
            yield f"{where}, in env: " + (f"without {name}" if value is None else f"{name}={shown_value(name, value)}")
    for name, option in rank_change.change.options.items():
        yield f"{where}, in executor_config: {name} {json.dumps(option, default=str)}"


def set_parameters(values: dict[str, str], settings: Mapping[str, str]) -> None:
    """Set each under the name that the operator used, if it is set already."""
    for name, value in settings.items():
        values[next((key for key in values if parameters.main_name(key) == name), name)] = value
