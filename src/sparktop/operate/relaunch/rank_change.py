"""One running rank and the change requested for it, and how it comes up with that, whatever starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparktop.cmdline.container_body import with_options
from sparktop.cmdline.engine_command import with_argv
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.launch_command import changed
from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import Target, literal_flags, memory_target
from sparktop.engines.ranks import EngineRank
from sparktop.model.change import Change
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import DockerGet, Survey
from sparktop.operate.container import inspected
from sparktop.operate.container.recreate import recreation
from sparktop.operate.container.remote_file import RemoteFile
from sparktop.operate.plan.origin import Origin
from sparktop.operate.plan.running_rank import (
    RunningRank,
    inspect_ranks,
    requested_ranks,
    require_all_ranks,
)
from sparktop.operate.plan.running_start import RunningStart
from sparktop.operate.plan.sequence import Steps
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.masking import secrets_of
from sparktop.sanitise import items, mapping


class CannotChange(ValueError):
    """Why what started the engine can't bring it up with the change from here; `remedies` say what would help."""

    def __init__(self, reason: str, *remedies: str) -> None:
        super().__init__(reason)
        self.remedies = remedies


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
    def changed_host(self) -> Mapping[str, Any]:
        """The same with the options that the change sets; without one that Docker doesn't take."""
        changed_host = dict(self.host)
        with_options(changed_host, self.change.options)
        return changed_host

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

    @property
    def may_be_empty(self) -> bool:
        """Whether a relaunch without a change makes sense: a container of --rm can be restarted by nothing else."""
        return self.change.is_empty and self.rank.container is not None and self.rank.container.auto_remove

    @property
    def image_reference(self) -> str:
        """How a new container names the same image: by its id where its name refers to another one now."""
        is_same = self.tagged_image is not None and self.tagged_image.get("Id") == self.image_id
        return self.image_name if is_same and self.image_name else self.image_id

    @property
    def old_body(self) -> Mapping[str, Any]:
        """Creates the container again as it was, where Docker removes it as it ends (--rm); else empty."""
        if self.rank.container is None or not self.rank.container.auto_remove:
            return {}
        return recreation(self.raw, self.image, image_name=self.image_id).body

    @property
    def api_key(self) -> str:
        """The engine's API key with the change."""
        key = self.change.flags.get("--api-key") or self.change.environment.get("VLLM_API_KEY")
        return key or (self.rank.container.api_key if self.rank.container is not None else "")


def changes_by_rank(request: Request, picture: FleetState, survey: Survey) -> tuple[RankChange, ...]:
    """Every rank with its part of the change, head first; or why it can't be relaunched."""
    rank_changes = ranks_with_change(request, picture, survey)
    if all(rank_change.change.is_empty and not rank_change.may_be_empty for rank_change in rank_changes):
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
    size_question = _size_question(rank.node, rank.container.container_id)
    size = mapping(survey.value(size_question)).get("SizeRw")
    return replace(
        rank_change,
        image=inspected.image(rank.node, rank_change.image_id, survey),
        tagged_image=inspected.image(rank.node, rank_change.image_name, survey),
        new_image=inspected.image(rank.node, change.image, survey) if change.image else None,
        written_bytes=size if isinstance(size, int) else None,
        unsized=survey.problem(size_question) or "Docker doesn't say",
    )


def _size_question(node: str, container_id: str) -> DockerGet:
    """How much it has written. `docker diff` has the names, but walks the whole image for them and locks the container
    meanwhile: 20 s for 120,000 files, in which nothing else is answered about it (Docker 20.10, overlay2)."""
    return DockerGet(node=node, path=f"/containers/{container_id}/json?size=1")


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
    changed_engine = with_argv(engine, argv)
    target, old_target = memory_target(changed_engine, view, wanted_bytes=wanted_bytes), memory_target(engine, view)
    assert target is not None  # inspect_ranks() has a sample of every node
    assert old_target is not None
    return target, target if target.asked_bytes == old_target.asked_bytes else old_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What every rank's relaunch is planned with."""

    team: tuple[RankChange, ...]
    """All ranks with their changes, head first."""
    request: Request
    picture: FleetState
    survey: Survey
    grace_s: float
    wanted_bytes: int | None
    """Memory to wait for as the operator has set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRelaunch(RunningStart):
    """A rank with its change, how it is written and started, and what the review says of it."""

    rank_change: RankChange
    flags: tuple[FlagChange, ...]
    """Changed flags of the engine."""
    until: str = "the new one has loaded"
    """Until when the engine is down."""
    stays: str
    """What becomes of the old container, or of the change."""
    warnings: tuple[str, ...]
    """What is lost, and what else takes effect."""
    file: RemoteFile | None = None
    """The file that the change is written to."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the new container."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Restart policy of the new container, set once it has served; empty: that is another's task."""
    remove_old: Steps = ()
    """At the very end, where the operator asked for it."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that are shown nowhere, beside those of the container and the change."""

    @property
    def all_secrets(self) -> tuple[str, ...]:
        """Every value that is shown nowhere."""
        return (*secrets_of(self.rank_change.config, self.rank_change.change.environment), *self.secrets)
