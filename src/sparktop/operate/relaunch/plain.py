"""Relaunch a plain container.

A new container is created from the same image while the old one still runs. Then the old one is stopped, its memory is
awaited, and in one step, which the node completes or reverts by itself, the new one takes the name and starts. It gets
its restart policy only once it has served (docs/facts/engines.md C13, section 6.2). The old container is kept until the
operator removes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparktop import sanitise
from sparktop.cmdline.engine_command import joins_ray
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.launch_command import changed
from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Operation
from sparktop.model.request import Request
from sparktop.model.survey import Survey
from sparktop.operate.container import lifecycle
from sparktop.operate.container.inspected import Inspected, image_path
from sparktop.operate.container.lifecycle import NEW, NO_POLICY, NewContainer
from sparktop.operate.container.recreate import CannotRecreate, ContainerCopy, anonymous_volumes, recreation
from sparktop.operate.plan.running_rank import refuse_status
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch import relaunch_text, sparktop_launch
from sparktop.operate.relaunch.rank_change import RankChange, targets
from sparktop.operate.relaunch.rank_relaunch import RankRelaunch
from sparktop.operate.secrets.masking import secrets_of
from sparktop.operate.step.plan import Difference, Step
from sparktop.text.sentences import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRelaunch(RankRelaunch):
    """One rank's old container and the new one that takes its place."""

    new: NewContainer = field(repr=False)
    recreation: ContainerCopy = field(repr=False)
    stamp: str

    @property
    def guarded_id(self) -> str:
        return NEW

    @property
    def kept_id(self) -> str:
        return self.new.kept_id

    @property
    def labels(self) -> Mapping[str, str]:
        return sanitise.mapping(self.new.body.get("Labels"))

    @property
    def policy(self) -> Mapping[str, Any]:
        return self.new.policy

    @property
    def is_made_again(self) -> bool:
        return self.container.auto_remove and self.rank_change.change.is_empty

    def prepare(self) -> Iterator[Step]:
        new = self.new
        yield lifecycle.make(
            new,
            title=f"Create the new container, as {new.created_name} ({new.name} stays untouched)",
            verifies=f"same settings, same image ({new.image_id[:19]}); Docker accepts the new one",
        )

    def start(self) -> Iterator[Step]:
        new, was_kept = self.new, self.new.keeps_old
        undo: list[Operation] = [lifecycle.remove_new(new)]
        undo += lifecycle.restore_name(new) if was_kept else ()
        undo += lifecycle.start_old(new) if self.container.was_running else ()
        if was_kept and self.container.restarts:
            undo.append(lifecycle.restore_policy(self.container))
        yield lifecycle.start_new(
            new,
            step_id="swap",
            title=f"Start the new container as {new.name}"
            + (f"; the old one becomes {new.before_name}" if was_kept else ""),
            verifies=f"{new.name} runs from image {new.image_id[:19]}",
            undo=undo,
        )

    def remove_old(self) -> Iterator[Step]:
        if self.new.keeps_old:
            yield lifecycle.remove_old(self.new)

    # the way back

    def take_back(self, grace_s: float) -> Iterator[Step]:
        new = self.new
        yield lifecycle.stop_new(
            self.node,
            self.mark,
            grace_s,
            name=new.name,
            title=f"Stop the new {new.name} and set it aside as {new.after_name}",
            aside_name=new.after_name,
            can_have_policy=self.new.keeps_old,
            verifies="it is stopped, and its name is free",
            undoes=("make", "swap", "policy"),
        )

    def await_old_memory(self) -> Iterator[Step]:
        if self.container.was_running:
            # A container of --rm that an undo has recreated has another id, but its old name.
            yield self._old_memory(self.name if self.container.auto_remove else self.container.container_id)

    def start_old(self) -> Iterator[Step]:
        yield lifecycle.restore_old(self.new)

    def await_old_ready(self) -> Iterator[Step]:
        if self.container.was_running:
            yield self._old_ready()

    # what the review says

    def with_labels(self, ranks: Sequence[RankRelaunch], differences: Sequence[Difference]) -> RankRelaunch:
        """The same, the labels of a sparktop launch updated for the change on all ranks."""
        head, before = ranks[0], self.labels
        after = sparktop_launch.relabelled(
            before,
            head.rank.engine.kind,
            tuple(dict.fromkeys(flag for rank in ranks for flag in rank.flags)),
            [difference.name for difference in differences if difference.what in ("environment", "option")],
            (head.rank_change.change.image or "") if any(row.what == "image" for row in differences) else "",
        )
        if after == before:
            return self
        return replace(self, new=replace(self.new, body={**self.new.body, "Labels": after}))

    def _what_stays(self, request: Request, others: Sequence[RankRelaunch]) -> str:
        if self.container.auto_remove:
            return "Docker removes the old container, because it was started with --rm. A rollback recreates it"
        if request.options.get("keep_old", "yes") == "no":
            return "The old container is removed at the end, as you asked. After that there is no rollback"
        kept = [rank for rank in (self, *others) if isinstance(rank, PlainRelaunch)]
        names = {rank.node: rank.new.before_name for rank in kept}
        if len(names) == 1:
            name = self.new.before_name
            return (
                f"The old container is kept as {name}, stopped and without a restart policy; "
                f"remove it with: docker rm {name}"
            )
        return (
            f"The old containers are kept as {listed(f'{name} on {node}' for node, name in names.items())}, "
            "stopped and without a restart policy; remove each with: docker rm NAME"
        )

    def warnings(self) -> Iterator[str]:
        yield from self._lost_files()
        yield from self.rank_change.notes
        yield from self.recreation.notes

    def _lost_files(self) -> Iterator[str]:
        """Files in the writable layer that the new container won't have; anonymous volumes; an untagged image."""
        yield from relaunch_text.lost_files(
            self.rank_change, fate="; the new one lacks it.", tag=f":{self.stamp.lower()}"
        )
        if self.container.auto_remove:
            yield (
                f"{self.name} was started with --rm: Docker removes it and its log when it stops. Its log is in the "
                "evidence; a rollback would recreate the container."
            )
            return
        if volumes := anonymous_volumes(self.rank_change.raw):
            where = ", ".join(sanitise.line(str(volume.get("Destination")), limit=60) for volume in volumes)
            yield f"Its anonymous volumes ({where}) are used by the new container too."
        image_name = self.rank_change.image_name
        if self.new.image_ref == self.rank_change.image_id and image_name not in ("", self.new.image_ref):
            yield (
                f"{sanitise.line(image_name, limit=120)} has changed or is gone: the new container uses the old one's "
                "image, by its id."
            )

    def typed_start(self) -> Iterator[str]:
        new_image = self.rank_change.new_image
        yield from lifecycle.typed_new(self.new, new_image if new_image is not None else self.rank_change.image)

    def secrets(self) -> Iterator[str]:
        yield from secrets_of(self.rank_change.config)
        yield from secrets_of(self.new.body, self.rank_change.change.environment)


def rank_relaunch(
    rank_change: RankChange,
    picture: FleetState,
    survey: Survey,
    wanted_bytes: int | None,
    head_flags: Sequence[FlagChange],
) -> PlainRelaunch:
    """One rank's relaunch.

    Args:
        head_flags: the flags changed on the head; a rank that only joins Ray needs the same memory for them.
    """
    container = rank_change.rank.container
    assert container is not None  # a plain relaunch is of a container
    _check_replaceable(rank_change, container)
    same_tag = (
        rank_change.tagged_image is not None
        and rank_change.tagged_image.get("Id") == rank_change.image_id
        and rank_change.image_name
    )
    reference = rank_change.change.image or (rank_change.image_name if same_tag else rank_change.image_id)
    entrypoint, command = rank_change.entrypoint, rank_change.command
    try:
        words = changed(entrypoint, command, rank_change.change.flags, rank_change.change.environment)
        recreated = recreation(
            rank_change.raw,
            rank_change.image,
            image_name=reference,
            new_image=rank_change.new_image,
            entrypoint=words.entrypoint if list(words.entrypoint) != entrypoint else None,
            command=words.command if list(words.command) != command else None,
            environment=rank_change.change.environment,
            options=rank_change.change.options,
        )
    except CannotEdit as error:
        raise Refused(
            f"the command line of {container.name} on {container.node} can't be changed from here: {error}",
            ("start it once yourself with the change, by `docker run` or a recipe; then relaunch can change it",),
        ) from error
    except CannotRecreate as error:
        raise Refused(error.reason, error.remedies) from error
    host = recreated.body["HostConfig"]
    image_id = rank_change.image_id
    if rank_change.new_image is not None:
        image_id = str(rank_change.new_image.get("Id") or "")
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(picture.wall_s))
    flags = head_flags if joins_ray([*entrypoint, *command]) else words.flags
    target, old_target = targets(rank_change, flags, wanted_bytes)
    return PlainRelaunch(
        rank=rank_change.rank,
        rank_change=rank_change,
        target=target,
        old_target=old_target,
        new=NewContainer(
            node=container.node,
            mark=rank_change.rank.mark,
            name=container.name,
            created_name=f"{container.name}-next-{stamp}",
            body={**recreated.body, "HostConfig": {**host, "RestartPolicy": dict(NO_POLICY)}},
            connects=recreated.connects,
            policy=rank_change.change.options.get("RestartPolicy") or container.policy_body,
            image_ref=reference,
            image_id=image_id,
            created_as={"Image": image_id},
            old=container,
            before_name=f"{container.name}-before-{stamp}",
            after_name=f"{container.name}-failed-{stamp}",
            shares_volumes=True,
            old_body=recreation(rank_change.raw, rank_change.image, image_name=rank_change.image_id).body
            if container.auto_remove
            else {},
        ),
        recreation=recreated,
        stamp=stamp,
        flags=words.flags,
    )


def _check_replaceable(rank_change: RankChange, container: Inspected) -> None:
    """Refuse where no new container can be made: the old one's state, or a missing image."""
    refuse_status(container)
    if rank_change.change.image and rank_change.new_image is None:
        raise Refused(
            f"the image {rank_change.change.image} is not on {container.node}",
            (f"on {container.node}: docker pull {rank_change.change.image}",)
            if image_path(rank_change.change.image)
            else ("give it as NAME:TAG or NAME@sha256:...",),
        )
    if rank_change.image is None and rank_change.new_image is None:
        image_name = rank_change.image_name if rank_change.tagged_image is not None else ""
        raise Refused(
            f"the image that {container.name} was made from is not on {container.node} any more, "
            "so it can't be recreated",
            (
                *((f"relaunch it with what {image_name} is now: image {image_name}",) if image_name else ()),
                (
                    f"on {container.node}: docker commit {container.name} {container.name}-kept   # makes an image of "
                    "the container itself"
                ),
            ),
        )
