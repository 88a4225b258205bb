"""Review text of a relaunch: differences, effect, warnings and equivalent commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from sparktop import sanitise
from sparktop.cmdline.engine_flag_edits import FlagChange
from sparktop.model.request import Request
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.operate.secrets.masking import shown_value
from sparktop.operate.step.plan import Difference
from sparktop.text.units import size


def proof(request: Request) -> str:
    """The findings that must be gone after the relaunch; empty where it isn't meant to fix one."""
    if request.finding is None:
        return ""
    if request.also:
        others = f"one of {len(request.also)} others"
        return f' The run fails if "{request.finding.title}" or {others} is still reported.'
    return f' The run fails if "{request.finding.title}" is still reported.'


def change_differences(rank_change: RankChange, flags: Sequence[FlagChange]) -> Iterator[Difference]:
    """What the change makes different from the running engine."""
    change = rank_change.change
    pairs = rank_change.config.get("Env") if rank_change.raw else rank_change.rank.engine.environment
    before = dict(str(pair).partition("=")[::2] for pair in sanitise.items(pairs))
    for name, value in change.environment.items():
        if before.get(name) != value:
            yield Difference(
                what="environment",
                name=sanitise.name(name),
                before=shown(name, before.get(name)),
                after=shown(name, value),
            )
    for flag in flags:
        yield Difference(
            what="flag",
            name=sanitise.name(flag.name),
            before=shown(flag.name, flag.before),
            after=shown(flag.name, flag.after),
        )
    host, changed_host = rank_change.host, rank_change.changed_host
    for name in change.options:
        if host.get(name) != changed_host.get(name):
            yield Difference(
                what="option", name=name, before=_json(host.get(name)), after=_json(changed_host.get(name))
            )
    if change.image and (rank_change.new_image or {}).get("Id") != rank_change.image_id:
        yield Difference(
            what="image",
            name="image",
            before=sanitise.line(rank_change.image_name, limit=200),
            after=sanitise.line(change.image, limit=200),
        )


def shown(name: str, value: str | None) -> str | None:
    """A value safe for the screen: masked and sanitised."""
    safe = shown_value(name, value)
    return None if safe is None else sanitise.line(safe, limit=300)


def _json(value: object) -> str | None:
    return None if value is None else sanitise.line(json.dumps(value, ensure_ascii=False, default=str), limit=300)


_NAMED_AT_MOST = 3


def summary(differences: Sequence[Difference]) -> str:
    """ "with --gpu-memory-utilization 0.70, --enforce-eager" for the title."""
    if not differences:
        return "as it is"
    words = []
    for difference in differences:
        if difference.after is None:
            words.append(f"no {difference.name}")
        elif difference.after == "":
            words.append(difference.name)
        else:
            words.append(f"{difference.name}{' ' if difference.what == 'flag' else '='}{difference.after}"[:60])
    hidden_count = len(words) - _NAMED_AT_MOST
    return "with " + ", ".join(words[:_NAMED_AT_MOST]) + (f" and {hidden_count} more" if hidden_count > 0 else "")


def lost_files(rank_change: RankChange, *, fate: str, tag: str = "") -> Iterator[str]:
    """What the container has written into its own file system, which the new container won't have.

    Args:
        fate: what becomes of it, as the end of a sentence.
        tag: of the image that would keep it.
    """
    name, node, written_bytes = rank_change.rank.name, rank_change.rank.node, rank_change.written_bytes
    if written_bytes is None:
        yield (
            f"How much {name} has written into its own file system on {node} is not known ({rank_change.unsized}){fate}"
        )
    elif written_bytes:
        yield (
            f"{size(written_bytes)} in the writable layer of {name} on {node} (compiled code, and what was installed "
            f"or patched there; `docker diff {name}` lists it){fate} To keep it: docker commit {name} "
            f"{name.lower()}-kept{tag}, and relaunch with that image."
        )
