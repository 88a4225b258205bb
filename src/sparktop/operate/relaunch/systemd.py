"""Relaunch an engine that a systemd service runs.

The change is written to a drop-in (sparktop.conf) of the service, systemd reloads, and the service is stopped and
started. The unit's own files are never edited. Rollback restores or removes the drop-in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from sparktop import sanitise
from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.cmdline.systemd import Unreadable
from sparktop.engines.ranks import is_alive
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.remote_file import RemoteFile
from sparktop.operate.plan.origin import OriginKind
from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.plan.running_start import phases_anew
from sparktop.operate.plan.sequence import Phases
from sparktop.operate.plan.service import Service
from sparktop.operate.plan.start_steps import with_rollback
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch import manual_steps, systemd_drop_in
from sparktop.operate.relaunch.rank_change import CannotChange, Given, RankChange, RankRelaunch, targets
from sparktop.operate.relaunch.systemd_drop_in import DropIn, drop_in_of
from sparktop.operate.secrets.sudo import root_refusal
from sparktop.operate.step.plan import Step

RELOAD_LIMIT_S = 60.0


def reload_warnings(rank: RunningRank) -> Iterator[str]:
    """Containers that daemon-reload may cut off from the GPU (docs/facts/engines.md section 2.7).

    A reload of the user's own manager does not.
    """
    if rank.origin.is_own:
        return
    own_id = rank.engine.container.container_id if rank.engine.container else ""
    other_names = {
        engine.container.name
        for engine in rank.view.engines
        if engine.container is not None and is_alive(engine) and engine.container.container_id not in ("", own_id)
    }
    by_id = {container.container_id: container.name for container in rank.view.containers.containers}
    table = rank.view.processes.processes if rank.view.processes else ()
    for user in rank.view.gpu_processes:
        cgroup = next((process.cgroup for process in table if process.pid == user.pid), "") or ""
        other_names |= {
            name
            for container_id, name in by_id.items()
            if container_id != own_id and container_id and container_id in cgroup
        }
    if other_names:
        names_text = ", ".join(sanitise.name(name) for name in sorted(other_names))
        yield (
            "systemd reloads its files (daemon-reload): with NVIDIA's container toolkit before 1.18.1 that can take "
            f"the GPU from containers that run on {rank.node}: {names_text}. They would say 'Failed to initialize "
            "NVML: Unknown Error', and must be restarted."
        )


def relaunch(rank_change: RankChange, given: Given) -> RankRelaunch:
    """The rank's service, with the drop-in that changes it."""
    rank, unit, survey = rank_change.rank, rank_change.origin.unit, given.survey

    def refused(reason: str, *remedies: str) -> Refused:
        return Refused(reason, (*remedies, *manual_steps.lines(rank_change)))

    if rank.origin.kind is OriginKind.PODMAN:
        raise refused(
            f"{rank.name} on {rank.node} is made by Podman for {unit}, whose file is generated from another",
            f"on {rank.node}: edit the .container file of {unit} (~/.config/containers/systemd, "
            "/etc/containers/systemd), then systemctl daemon-reload and restart it",
        )
    if rank_change.change.image and rank_change.new_image is None and rank.container is not None:
        raise refused(
            f"the image {rank_change.change.image} is not on {rank.node}", f"docker pull {rank_change.change.image}"
        )
    try:
        drop_in = drop_in_of(rank_change, survey)
        text, flags = systemd_drop_in.edited(rank_change, drop_in)
    except CannotChange as error:
        raise refused(f"{unit} on {rank.node} can't be changed by a drop-in: {error}", *error.remedies) from error
    except (CannotEdit, Unreadable) as error:
        raise refused(f"the command of {unit} on {rank.node} can't be changed from here: {error}") from error
    service = rank.service
    assert service is not None  # Podman's is refused above
    if not service.is_own:
        needed = [service.argv("stop"), service.argv("start"), service.reload_argv]
        if (no_root := root_refusal(rank.privileges, needed, rank.node)) is not None:
            root_note = "and writing a service's drop-in means being root there: no narrower sudo rule permits it"
            raise refused(no_root.reason, *no_root.remedies, root_note)
    target, old_target = targets(rank_change, flags, given.wanted_bytes)
    file = RemoteFile(path=drop_in.path, before=drop_in.before, after=text, privilege=service.privilege)
    base = phases_anew(rank, target, old_target, any_run=False, api_key=rank_change.api_key)
    return RankRelaunch(
        rank=rank,
        rank_change=rank_change,
        target=target,
        phases=_phases(base, service, file, given.grace_s),
        flags=flags,
        until=f"{unit} has reloaded it",
        stays=f"The change stays in {file.path}. The rollback restores that file "
        f"{'as it was' if file.before else 'removed'}",
        warnings=(*reload_warnings(rank), *rank_change.notes, *_notes(rank, drop_in)),
        typed_start=tuple(_typed(service, file)),
        file=file,
    )


def _phases(base: Phases, service: Service, file: RemoteFile, grace_s: float) -> Phases:
    node, mark = service.node, service.mark
    check = Step(
        id=f"check{mark}",
        title=f"Check that {file.path} is as it was read",
        node=node,
        act=Remote(operations=(file.check(),)),
        limit_s=30.0,
        verifies="it has not changed since",
    )
    restore = (file.restore(), service.reload())
    write = Step(
        id=f"write{mark}",
        title=f"Write {file.path} and have systemd read it",
        node=node,
        act=Remote(operations=(file.check(), file.write(), service.reload()), undo=restore),
        limit_s=2 * RELOAD_LIMIT_S + 60.0,
        verifies="systemd has reloaded its files",
    )
    undo_write = Step(
        id=f"back-file{mark}",
        title=f"{file.path} {'as it was' if file.before is not None else 'removed'}, and systemd reads it",
        node=node,
        act=Remote(operations=(*restore, service.forget())),
        limit_s=2 * RELOAD_LIMIT_S + 60.0,
        verifies="systemd has reloaded its files",
    )
    return replace(
        base,
        prepare=(check,),
        before_start=(with_rollback(write),),
        start=(with_rollback(service.start()),),
        take_back=(replace(service.stop(grace_s), id=f"back-stop{mark}"),),
        undo_change=(undo_write,),
        start_old=(replace(service.start(), id=f"back-start{mark}"),),
    )


def _notes(rank: RunningRank, drop_in: DropIn) -> Iterator[str]:
    if drop_in.is_stale:
        unit = rank.origin.unit
        yield f"The files of {unit} on {rank.node} changed after systemd read them: that takes effect too."
    if rank.is_head and rank.container is not None:
        yield "A container that the service recreates has no id yet: the guard is armed when it has loaded."


def _typed(service: Service, file: RemoteFile) -> Iterator[str]:
    where, path = f"on {service.node}: ", file.path
    yield f"{where}{service.sudo}mkdir -p -- {shlex.quote(path.rpartition('/')[0])}"
    yield f"{where}{service.sudo}tee -- {shlex.quote(path)} >/dev/null <<'END'"
    yield from (sanitise.line(row) for row in file.after.splitlines())
    yield "END"
    yield f"{where}{service.typed_manager} daemon-reload"
    yield where + service.typed("start")
