"""One rank of an engine that is to be started anew with a change: what it is now, who started it, what is asked. Pure.

Shared by the ways of a relaunch: a plain container is swapped (`swap`), others are started by whoever started them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from sparktop.model.change import Change
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.plan import Refusal, Request
from sparktop.operate import inspected as containers
from sparktop.operate.enginechoice import alone_refusal, the_team
from sparktop.operate.flags import CannotEdit
from sparktop.operate.pair import Rank
from sparktop.operate.part import Part, parts
from sparktop.operate.part import asks as part_asks
from sparktop.operate.share import literal_flags
from sparktop.operate.starter import Starter, starter_of
from sparktop.operate.survey import Ask, DockerGet, Survey

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,300}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing:
    """One rank with its change."""

    part: Part
    starter: Starter
    change: Change
    """For this engine on this node, with every figure in it."""
    notes: tuple[str, ...] = ()
    """Where figures come from."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Docker's inspect; empty where there is no container."""
    image: Mapping[str, Any] | None = field(default=None, repr=False)
    """Inspect of the image that its container was made from; None where that is gone."""
    tagged: Mapping[str, Any] | None = field(default=None, repr=False)
    """Inspect of what its image's name means now; None where it means nothing."""
    new_image: Mapping[str, Any] | None = field(default=None, repr=False)
    """Inspect of the image that is asked for; None where none is asked for, or it isn't there."""
    written: tuple[str, ...] | None = None
    """Paths of the writable layer that were changed; None where that couldn't be asked."""

    @property
    def image_name(self) -> str:
        config = self.raw.get("Config")
        return str(config.get("Image") or "") if isinstance(config, Mapping) else ""

    @property
    def image_id(self) -> str:
        return str(self.raw.get("Image") or "")


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """What is to be known of every rank, in rounds: its images after its container is known."""
    team = the_team(request, picture)
    if isinstance(team, Refusal):
        return ()
    found: list[Ask] = list(part_asks(team, picture))
    for rank in team:
        found += _image_asks(rank, request.change, survey)
    return tuple(dict.fromkeys(found))


def changing(request: Request, picture: FleetState, survey: Survey) -> tuple[Changing, ...] | Refusal:
    """Every rank, head first, with its part of the change; or why that can't be done."""
    team = the_team(request, picture)
    if isinstance(team, Refusal):
        return team
    refused = alone_refusal(request, team, picture)
    if refused is not None:
        return refused
    found = parts(request, team, picture, survey)
    if isinstance(found, Refusal):
        return found
    views = [(part.rank, part.view) for part in found]
    out = []
    for part in found:
        try:
            change, notes = _literal(request.change, part, views)
        except CannotEdit as error:
            return Refusal(request=request, reason=str(error), remedies=("set the figure yourself: --FLAG=VALUE",))
        out.append(_one(part, change, notes, survey))
    # What Docker removes at its end can be started again in no other way: for that nothing needs to be changed.
    if all(one.change.is_empty and not (one.part.box and one.part.box.auto_remove) for one in out):
        return Refusal(
            request=request,
            reason=f"nothing is asked to be changed of {found[0].name}",
            remedies=("say what: a flag, a variable, an option or an image", "to start it as it is: safe-restart"),
        )
    return tuple(out)


def image_path(name: str) -> str | None:
    """Docker's path of an image by its name or id; None for what is no name of one."""
    if not _REFERENCE.fullmatch(name) or ".." in name:
        return None
    return f"/images/{quote(name, safe='/:@')}/json"


def _literal(change: Change, part: Part, views: Sequence[tuple[Rank, NodeView]]) -> tuple[Change, tuple[str, ...]]:
    own = change.for_engine(part.engine.kind.value, part.node)
    flags, notes = literal_flags(own.flags, views)
    return replace(own, flags=flags), notes


def _one(part: Part, change: Change, notes: tuple[str, ...], survey: Survey) -> Changing:
    made = Changing(part=part, starter=starter_of(part.engine, part.origin, part.box), change=change, notes=notes)
    if part.box is None:
        return made
    raw = survey.value(containers.ask(part.node, part.box.container_id))
    made = replace(made, raw=raw if isinstance(raw, Mapping) else {})
    written = survey.value(_changes_ask(part.node, part.box.container_id))
    paths = tuple(str(one.get("Path")) for one in written if isinstance(one, Mapping)) if _is_list(written) else None
    return replace(
        made,
        image=_image(part.node, made.image_id, survey),
        tagged=_image(part.node, made.image_name, survey),
        new_image=_image(part.node, change.image, survey) if change.image else None,
        written=() if paths is None and written is None and _was_answered(part, survey) else paths,
    )


def _was_answered(part: Part, survey: Survey) -> bool:
    """Docker says null, and not an empty list, where nothing was changed."""
    ask = _changes_ask(part.node, part.box.container_id if part.box else "")
    return ask in survey.answers and not survey.problem(ask)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _image(node: str, name: str, survey: Survey) -> Mapping[str, Any] | None:
    path = image_path(name)
    found = survey.value(DockerGet(node=node, path=path)) if path else None
    return found if isinstance(found, Mapping) else None


def _changes_ask(node: str, container_id: str) -> DockerGet:
    return DockerGet(node=node, path=f"/containers/{container_id}/changes")


def _image_asks(rank: Rank, change: Change, survey: Survey) -> Iterator[Ask]:
    box = rank.engine.container
    if box is None or not containers.is_whole_id(box.container_id):
        return
    yield _changes_ask(rank.node, box.container_id)
    raw = survey.value(containers.ask(rank.node, box.container_id))
    if not isinstance(raw, Mapping):
        return
    config = raw.get("Config")
    named = str(config.get("Image") or "") if isinstance(config, Mapping) else ""
    wanted = change.for_engine(rank.engine.kind.value, rank.node).image or ""
    for name in (str(raw.get("Image") or ""), named, wanted):
        path = image_path(name)
        if path:
            yield DockerGet(node=rank.node, path=path)
