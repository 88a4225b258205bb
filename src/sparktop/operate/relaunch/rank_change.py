"""One running rank and the change requested for it; helpers shared by every kind of relaunch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.launch_command import changed
from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import Target, literal_flags, memory_target
from sparktop.engines.ranks import EngineRank
from sparktop.model.change import Change
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Ask, DockerGet, Survey
from sparktop.operate.container import inspected
from sparktop.operate.plan.origin import Origin
from sparktop.operate.plan.running_rank import RunningRank, inspect_ranks, requested_ranks, require_all_ranks
from sparktop.operate.plan.running_rank import asks as rank_asks
from sparktop.operate.refused import Refused
from sparktop.sanitise import items, mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChange:
    """The facts that a relaunch of one rank is planned from: the change for it, and what Docker says of its container
    and images. How it then comes up is a `RankRelaunch`."""

    rank: RunningRank
    change: Change
    """For this engine on this node, with every figure filled in."""
    notes: tuple[str, ...] = ()
    """Where the figures come from."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """`docker inspect` of the container; empty where there is none."""
    image: Mapping[str, Any] | None = field(default=None, repr=False)
    """Inspect of the image that the container was created from; None where it was removed."""
    tagged_image: Mapping[str, Any] | None = field(default=None, repr=False)
    """Inspect of what the image's name refers to now; None where it refers to nothing."""
    new_image: Mapping[str, Any] | None = field(default=None, repr=False)
    """Inspect of the requested image; None where none is requested or it isn't on the node."""
    written_bytes: int | None = None
    """Size of its writable layer; None where Docker doesn't say, and why in `unsized`."""
    unsized: str = ""

    @property
    def origin(self) -> Origin:
        return self.rank.origin

    @property
    def config(self) -> Mapping[str, Any]:
        """The container's Config; empty where there is none."""
        return mapping(self.raw.get("Config"))

    @property
    def host(self) -> Mapping[str, Any]:
        """The container's HostConfig; empty where there is none."""
        return mapping(self.raw.get("HostConfig"))

    @property
    def entrypoint(self) -> list[str]:
        return [str(word) for word in items(self.config.get("Entrypoint"))]

    @property
    def command(self) -> list[str]:
        return [str(word) for word in items(self.config.get("Cmd"))]

    @property
    def image_name(self) -> str:
        return str(self.config.get("Image") or "")

    @property
    def image_id(self) -> str:
        return str(self.raw.get("Image") or "")


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """Questions about every rank, in rounds: its images once its container is known."""
    team = requested_ranks(request, picture)
    questions: list[Ask] = list(rank_asks(team))
    for rank in team:
        questions += _image_asks(rank, request.change, survey)
    return tuple(dict.fromkeys(questions))


def changes_by_rank(request: Request, picture: FleetState, survey: Survey) -> tuple[RankChange, ...]:
    """Every rank with its part of the change, head first; or why it can't be relaunched."""
    rank_changes = ranks_with_change(request, picture, survey)
    # A --rm container can only be restarted by a relaunch, so an empty change is allowed for it.
    if all(
        rank_change.change.is_empty and not (rank_change.rank.container and rank_change.rank.container.auto_remove)
        for rank_change in rank_changes
    ):
        raise Refused(
            f"no change is given for {rank_changes[0].rank.name}",
            ("name one: a flag, a variable, an option or an image", "to restart it unchanged: safe-restart"),
        )
    return rank_changes


def ranks_with_change(request: Request, picture: FleetState, survey: Survey) -> tuple[RankChange, ...]:
    """The same, where there may be no change."""
    team = requested_ranks(request, picture)
    require_all_ranks(team)
    ranks = inspect_ranks(team, survey)
    rank_changes = []
    for rank in ranks:
        try:
            change, notes = _literal_change(request.change, rank, [rank.rank for rank in ranks])
        except CannotEdit as error:
            raise Refused(str(error), ("set the figure yourself: --FLAG=VALUE",)) from error
        rank_changes.append(_rank_change(rank, change, notes, survey))
    return tuple(rank_changes)


def _literal_change(change: Change, rank: RunningRank, team: Sequence[EngineRank]) -> tuple[Change, tuple[str, ...]]:
    own_change = change.for_engine(rank.engine.kind.value, rank.node)
    flags, notes = literal_flags(own_change.flags, team)
    return replace(own_change, flags=flags), notes


def _rank_change(rank: RunningRank, change: Change, notes: tuple[str, ...], survey: Survey) -> RankChange:
    rank_change = RankChange(rank=rank, change=change, notes=notes)
    if rank.container is None:
        return rank_change
    raw = survey.value(inspected.ask(rank.node, rank.container.container_id))
    rank_change = replace(rank_change, raw=raw if isinstance(raw, Mapping) else {})
    size_ask = _size_ask(rank.node, rank.container.container_id)
    size = mapping(survey.value(size_ask)).get("SizeRw")
    return replace(
        rank_change,
        image=inspected.image(rank.node, rank_change.image_id, survey),
        tagged_image=inspected.image(rank.node, rank_change.image_name, survey),
        new_image=inspected.image(rank.node, change.image, survey) if change.image else None,
        written_bytes=size if isinstance(size, int) else None,
        unsized=survey.problem(size_ask) or "Docker doesn't say",
    )


def _size_ask(node: str, container_id: str) -> DockerGet:
    """How much it has written. `docker diff` has the names, but walks the whole image for them and locks the container
    meanwhile: 20 s for 120,000 files, in which nothing else is answered about it (Docker 20.10, overlay2)."""
    return DockerGet(node=node, path=f"/containers/{container_id}/json?size=1")


def _image_asks(rank: EngineRank, change: Change, survey: Survey) -> Iterator[Ask]:
    container, node = rank.engine.container, rank.node.name
    if container is None or not inspected.is_whole_id(container.container_id):
        return
    yield _size_ask(node, container.container_id)
    raw = survey.value(inspected.ask(node, container.container_id))
    if not isinstance(raw, Mapping):
        return
    config = raw.get("Config")
    image_name = str(config.get("Image") or "") if isinstance(config, Mapping) else ""
    new_image = change.for_engine(rank.engine.kind.value, node).image or ""
    for name in (str(raw.get("Image") or ""), image_name, new_image):
        path = inspected.image_path(name)
        if path:
            yield DockerGet(node=node, path=path)


def targets(rank_change: RankChange, flags: Sequence[FlagChange], wanted_bytes: int | None) -> tuple[Target, Target]:
    """Memory to wait for before the changed engine starts, and before the old one does on the way back.

    Args:
        wanted_bytes: the operator's own figure. It holds on the way back, too, unless the change alters what is asked.
    """
    engine, view = rank_change.rank.engine, rank_change.rank.view
    try:
        argv = changed((), engine.argv, {flag.name: flag.after for flag in flags}, {}).command
    except CannotEdit:  # the title of a process: its flags are known from the container alone
        argv = (*engine.argv, *(word for flag in flags if flag.after is not None for word in (flag.name, flag.after)))
    changed_engine = replace(engine, argv=argv)
    target, old_target = memory_target(changed_engine, view, wanted_bytes=wanted_bytes), memory_target(engine, view)
    assert target is not None  # inspect_ranks() has a sample of every node
    assert old_target is not None
    return target, target if target.asked_bytes == old_target.asked_bytes else old_target
