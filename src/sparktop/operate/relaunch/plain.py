"""Relaunch a plain container.

A new container is created from the same image while the old one still runs. Then the old one is stopped, its memory is
awaited, and in one step, which the node completes or reverts by itself, the new one takes the name and starts. It gets
its restart policy only once it has served (docs/facts/engines.md C13, section 6.2). The old container is kept until the
operator removes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop import sanitise
from sparktop.cmdline.engine_command import joins_ray
from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.cmdline.launch_command import CommandLine, changed
from sparktop.engines.memory_target import Target
from sparktop.model.operation import Operation
from sparktop.operate.container import lifecycle
from sparktop.operate.container.inspected import Inspected, image_path
from sparktop.operate.container.lifecycle import NEW, NO_POLICY, NewContainer
from sparktop.operate.container.recreate import ContainerCopy, anonymous_volumes, recreation
from sparktop.operate.plan.common_steps import stamp
from sparktop.operate.plan.running_rank import RunningRank, refuse_status
from sparktop.operate.plan.running_start import phases_anew
from sparktop.operate.plan.sequence import Phases
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch import relaunch_text, sparktop_launch
from sparktop.operate.relaunch.rank_change import Given, RankChange, RankRelaunch, targets
from sparktop.operate.secrets.masking import secrets_of
from sparktop.text.sentences import listed


def _command_line(rank_change: RankChange) -> CommandLine:
    """The changed command line."""
    container = rank_change.rank.container
    assert container is not None  # a plain relaunch is of a container
    _check_replaceable(rank_change, container)
    change = rank_change.change
    try:
        return changed(rank_change.entrypoint, rank_change.command, change.flags, change.environment)
    except CannotEdit as error:
        raise Refused(
            f"the command line of {container.name} on {container.node} can't be changed from here: {error}",
            ("start it once yourself with the change, by `docker run` or a recipe; then relaunch can change it",),
        ) from error


def relaunch(rank_change: RankChange, given: Given) -> RankRelaunch:
    """The rank's old container, and the new one that takes its place.

    A rank that only joins Ray needs the memory of the head's flags, and labels tell what all ranks change.
    """
    rank, container, made_at = rank_change.rank, rank_change.rank.container, stamp(given.picture)
    assert container is not None  # a plain relaunch is of a container
    line, lines = _command_line(rank_change), [_command_line(one) for one in given.team]
    differences = [
        difference
        for one, own in zip(given.team, lines, strict=True)
        for difference in relaunch_text.change_differences(one, own.flags)
    ]
    copy = _copy(rank_change, line)
    new = _new_container(rank_change, container, copy, made_at)
    before = sanitise.mapping(copy.body.get("Labels"))
    labels = sparktop_launch.relabelled(
        before,
        rank.engine.kind,
        tuple(dict.fromkeys(flag for one in lines for flag in one.flags)),
        [row.name for row in differences if row.what in ("environment", "option")],
        (given.team[0].change.image or "") if any(row.what == "image" for row in differences) else "",
    )
    if labels != before:
        new = replace(new, body={**new.body, "Labels": labels})
    flags = lines[0].flags if joins_ray([*rank_change.entrypoint, *rank_change.command]) else line.flags
    target, old_target = targets(rank_change, flags, given.wanted_bytes)
    new_image = rank_change.new_image
    keeps_old = given.request.options.get("keep_old", "yes") != "no"
    return RankRelaunch(
        rank=rank,
        rank_change=rank_change,
        target=target,
        phases=_phases(rank_change, container, new, target, old_target, given),
        flags=line.flags,
        stays=_what_stays(new, [one.rank for one in given.team], made_at, keeps_old=keeps_old),
        warnings=(*_lost_files(rank_change, container, new, made_at), *rank_change.notes, *copy.notes),
        typed_start=tuple(lifecycle.typed_new(new, new_image if new_image is not None else rank_change.image)),
        labels=labels,
        policy=new.policy,
        remove_old=(lifecycle.remove_old(new),) if new.keeps_old and not keeps_old else (),
        secrets=tuple(secrets_of(new.body)),
    )


def _copy(rank_change: RankChange, line: CommandLine) -> ContainerCopy:
    """What reproduces the old container with the change."""
    entrypoint, command = list(line.entrypoint), list(line.command)
    return recreation(
        rank_change.raw,
        rank_change.image,
        image_name=rank_change.change.image or rank_change.image_reference,
        new_image=rank_change.new_image,
        entrypoint=entrypoint if entrypoint != rank_change.entrypoint else None,
        command=command if command != rank_change.command else None,
        environment=rank_change.change.environment,
        options=rank_change.change.options,
    )


def _new_container(rank_change: RankChange, container: Inspected, copy: ContainerCopy, made_at: str) -> NewContainer:
    image_id = rank_change.image_id
    if rank_change.new_image is not None:
        image_id = str(rank_change.new_image.get("Id") or "")
    return NewContainer(
        node=container.node,
        mark=rank_change.rank.mark,
        name=container.name,
        made_at=made_at,
        body={**copy.body, "HostConfig": {**copy.body["HostConfig"], "RestartPolicy": dict(NO_POLICY)}},
        connects=copy.connects,
        policy=rank_change.change.options.get("RestartPolicy") or container.policy_body,
        image_ref=rank_change.change.image or rank_change.image_reference,
        image_id=image_id,
        created_as={"Image": image_id},
        old=container,
        shares_volumes=True,
        old_body=rank_change.old_body,
    )


def _phases(
    rank_change: RankChange,
    container: Inspected,
    new: NewContainer,
    target: Target,
    old_target: Target,
    given: Given,
) -> Phases:
    rank, was_kept = rank_change.rank, new.keeps_old
    undo: list[Operation] = [lifecycle.remove_new(new)]
    undo += lifecycle.restore_name(new) if was_kept else ()
    undo += lifecycle.start_old(new) if container.was_running else ()
    if was_kept and container.restarts:
        undo.append(lifecycle.restore_policy(container))
    aside_note = f"; the old one becomes {new.before_name}" if was_kept else ""
    make = lifecycle.make(
        new,
        title=f"Create the new container, as {new.created_name} ({new.name} stays untouched)",
        verifies=f"same settings, same image ({new.image_id[:19]}); Docker accepts the new one",
    )
    swap = lifecycle.start_new(
        new,
        step_id="swap",
        title=f"Start the new container as {new.name}{aside_note}",
        verifies=f"{new.name} runs from image {new.image_id[:19]}",
        undo=undo,
    )
    stop = lifecycle.stop_new(
        new.node,
        new.mark,
        given.grace_s,
        name=new.name,
        title=f"Stop the new {new.name} and set it aside as {new.after_name}",
        aside_name=new.after_name,
        can_have_policy=was_kept,
        verifies="it is stopped, and its name is free",
        undoes=("make", "swap", "policy"),
    )
    phases = phases_anew(
        rank,
        target,
        old_target,
        new_id=NEW,
        old_id=new.kept_id,
        # A container of --rm that an undo has recreated has another id, but its old name.
        old_runs=container.name if container.auto_remove else container.container_id,
        was_running=container.was_running,
        api_key=rank_change.api_key,
    )
    return replace(
        phases,
        prepare=(make,),
        start=(swap,),
        on_ready=lifecycle.policy_on(new.node, new.mark, new.name, new.policy),
        take_back=(stop,),
        start_old=(lifecycle.restore_old(new),),
    )


def _what_stays(new: NewContainer, ranks: Sequence[RunningRank], made_at: str, *, keeps_old: bool) -> str:
    if not new.keeps_old:
        return "Docker removes the old container, because it was started with --rm. A rollback recreates it"
    if not keeps_old:
        return "The old container is removed at the end, as you asked. After that there is no rollback"
    if len(ranks) == 1:
        return (
            f"The old container is kept as {new.before_name}, stopped and without a restart policy; "
            f"remove it with: docker rm {new.before_name}"
        )
    return (
        f"The old containers are kept as {listed(f'{rank.name}-before-{made_at} on {rank.node}' for rank in ranks)}, "
        "stopped and without a restart policy; remove each with: docker rm NAME"
    )


def _lost_files(rank_change: RankChange, container: Inspected, new: NewContainer, made_at: str) -> Iterator[str]:
    """Files in the writable layer that the new container won't have; anonymous volumes; an untagged image."""
    yield from relaunch_text.lost_files(rank_change, fate="; the new one lacks it.", tag=f":{made_at.lower()}")
    if container.auto_remove:
        yield (
            f"{container.name} was started with --rm: Docker removes it and its log when it stops. Its log is in the "
            "evidence; a rollback would recreate the container."
        )
        return
    if volumes := anonymous_volumes(rank_change.raw):
        where = ", ".join(sanitise.line(str(volume.get("Destination")), limit=60) for volume in volumes)
        yield f"Its anonymous volumes ({where}) are used by the new container too."
    image_name = rank_change.image_name
    if new.image_ref == rank_change.image_id and image_name not in ("", new.image_ref):
        yield (
            f"{sanitise.line(image_name, limit=120)} has changed or is gone: the new container uses the old one's "
            "image, by its id."
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
