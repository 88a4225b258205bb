"""Relaunch an engine that a systemd service runs.

The change is written to a drop-in (sparktop.conf) of the service, systemd reloads, and the service is stopped and
started. The unit's own files are never edited. Rollback restores or removes the drop-in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from sparktop import sanitise
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.systemd import Unreadable
from sparktop.dataclass import dataclass
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Operation
from sparktop.model.request import Request
from sparktop.model.survey import Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.remote_file import RemoteFile
from sparktop.operate.plan.origin import OriginKind
from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.plan.service import Service, service_of
from sparktop.operate.plan.start_steps import with_rollback
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch import manual_steps, systemd_drop_in
from sparktop.operate.relaunch.rank_change import RankChange, targets
from sparktop.operate.relaunch.rank_relaunch import RankRelaunch
from sparktop.operate.relaunch.systemd_drop_in import DropIn, NoDropIn, drop_in_of
from sparktop.operate.secrets.sudo import root_refusal
from sparktop.operate.step.plan import Difference, Step

RELOAD_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DropInRelaunch(RankRelaunch):
    """One rank's service with the drop-in that changes it."""

    drop_in: DropIn
    text: str = field(repr=False)
    """The new content of the drop-in."""

    @property
    def evidence_name(self) -> str:
        return self.rank.engine.name

    @property
    def service(self) -> Service:
        return service_of(self.rank)

    def prepare(self) -> Iterator[Step]:
        yield Step(
            id=f"check{self.mark}",
            title=f"Check that {self.drop_in.path} is as it was read",
            node=self.node,
            act=Remote(operations=(self._file.check(),)),
            limit_s=30.0,
            verifies="it has not changed since",
        )

    def before_start(self) -> Iterator[Step]:
        """Write the drop-in and reload systemd; the undo restores the drop-in."""
        write = Step(
            id=f"write{self.mark}",
            title=f"Write {self.drop_in.path} and have systemd read it",
            node=self.node,
            act=Remote(
                operations=(self._file.check(), self._file.write(), self.service.reload()),
                undo=self._restore_file(),
            ),
            limit_s=2 * RELOAD_LIMIT_S + 60.0,
            verifies="systemd has reloaded its files",
        )
        yield with_rollback(write)

    def start(self) -> Iterator[Step]:
        yield with_rollback(self.service.start())

    # the way back

    def take_back(self, grace_s: float) -> Iterator[Step]:
        yield replace(self.service.stop(grace_s), id=f"back-stop{self.mark}")

    def undo_change(self) -> Iterator[Step]:
        """Restore or remove the drop-in, reload systemd and reset the service's failure count."""
        state = "as it was" if self.drop_in.before is not None else "removed"
        yield Step(
            id=f"back-file{self.mark}",
            title=f"{self.drop_in.path} {state}, and systemd reads it",
            node=self.node,
            act=Remote(operations=(*self._restore_file(), self.service.forget())),
            limit_s=2 * RELOAD_LIMIT_S + 60.0,
            verifies="systemd has reloaded its files",
        )

    def await_old_memory(self) -> Iterator[Step]:
        yield self._old_memory("")

    def start_old(self) -> Iterator[Step]:
        yield replace(self.service.start(), id=f"back-start{self.mark}")

    def await_old_ready(self) -> Iterator[Step]:
        yield self._old_ready(any_run=False)

    # operations

    @property
    def _file(self) -> RemoteFile:
        drop_in, privilege = self.drop_in, self.service.privilege
        return RemoteFile(path=drop_in.path, before=drop_in.before, after=self.text, privilege=privilege)

    def _restore_file(self) -> tuple[Operation, ...]:
        return (self._file.restore(), self.service.reload())

    # what the review says

    def file_differences(self) -> Iterator[Difference]:
        yield from self._file.differences()

    def _until(self) -> str:
        return f"{self.service.unit} has reloaded it"

    def _what_stays(self, request: Request, others: Sequence[RankRelaunch]) -> str:
        return (
            f"The change stays in {self.drop_in.path}. The rollback restores that file "
            f"{'as it was' if self.drop_in.before else 'removed'}"
        )

    def warnings(self) -> Iterator[str]:
        yield from reload_warnings(self.rank)
        yield from self.rank_change.notes
        if self.drop_in.is_stale:
            yield (
                f"The files of {self.service.unit} on {self.node} changed after systemd read them: that takes "
                "effect too."
            )
        if self.is_head and self.rank.container is not None:
            yield ("A container that the service recreates has no id yet: the guard is armed when it has loaded.")

    @property
    def is_sudo_lasting(self) -> bool:
        return False

    def typed_start(self) -> Iterator[str]:
        where, path = f"on {self.node}: ", self.drop_in.path
        yield f"{where}{self.service.sudo}mkdir -p -- {shlex.quote(path.rpartition('/')[0])}"
        yield f"{where}{self.service.sudo}tee -- {shlex.quote(path)} >/dev/null <<'END'"
        yield from (sanitise.line(row) for row in self.text.splitlines())
        yield "END"
        yield f"{where}{self.service.typed_manager} daemon-reload"
        yield where + self.service.typed("start")


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
            "NVML: "
            "Unknown Error', and must be restarted."
        )


def rank_relaunch(
    rank_change: RankChange,
    picture: FleetState,
    survey: Survey,
    wanted_bytes: int | None,
    head_flags: Sequence[FlagChange],
) -> DropInRelaunch:
    """One rank's relaunch."""
    rank, unit = rank_change.rank, rank_change.origin.unit

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
        edit = systemd_drop_in.edited(rank_change, drop_in)
    except NoDropIn as error:
        raise refused(f"{unit} on {rank.node} can't be changed by a drop-in: {error}", *error.remedies) from error
    except (CannotEdit, Unreadable) as error:
        raise refused(f"the command of {unit} on {rank.node} can't be changed from here: {error}") from error
    if not rank.origin.is_own:
        service = service_of(rank)
        needed = [service.argv("stop"), service.argv("start"), service.reload_argv]
        if (no_root := root_refusal(survey.privileges(rank.node), needed, rank.node)) is not None:
            root_note = "and writing a service's drop-in means being root there: no narrower sudo rule permits it"
            raise refused(no_root.reason, *no_root.remedies, root_note)
    target, old_target = targets(rank_change, edit.flags, wanted_bytes)
    return DropInRelaunch(
        rank=rank,
        rank_change=rank_change,
        target=target,
        old_target=old_target,
        drop_in=drop_in,
        text=edit.text,
        flags=edit.flags,
    )
