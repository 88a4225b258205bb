"""Relaunch an engine that Docker Compose started.

The change is written to an override file (compose.sparktop.yaml) in the project folder, and `docker compose up` brings
the service up with it. The project's own files are never edited. Rollback restores the override file and brings the
service up again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparktop import sanitise
from sparktop.cmdline.container_body import with_options
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagChange
from sparktop.cmdline.launch_command import CommandLine, changed
from sparktop.cmdline.variables import filled
from sparktop.dataclass import dataclass
from sparktop.masking import is_secret
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, DockerCall, Expect, Operation
from sparktop.model.request import Request
from sparktop.model.survey import Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import lifecycle
from sparktop.operate.container.lifecycle import NEW, NEW_PATH, NO_POLICY, update_policy
from sparktop.operate.container.remote_file import RemoteFile
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch import manual_steps, relaunch_text
from sparktop.operate.relaunch.compose_override import (
    NotInOverride,
    SealedChange,
    merged,
    seal_secrets,
    settings,
    written,
)
from sparktop.operate.relaunch.compose_project import OVERRIDE, Project, UnusableProject, project
from sparktop.operate.relaunch.compose_shell_values import environment_of
from sparktop.operate.relaunch.rank_change import RankChange, targets
from sparktop.operate.relaunch.rank_relaunch import RankRelaunch
from sparktop.operate.step.plan import Difference, OnFailure, Step

UP_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeRelaunch(RankRelaunch):
    """One rank's Compose service: the container it has, and what it will be brought up with."""

    project: Project
    text: str = field(repr=False)
    """The new content of the override file."""
    environment: Mapping[str, str] = field(repr=False)
    """Environment of the Compose calls that bring the new container up."""
    unset: tuple[str, ...] = ()
    """Variables to remove from the user's own environment in those calls."""
    shell_variables: tuple[str, ...] = ()
    """Variables that the override takes from the shell, as their values are secrets."""

    @property
    def new_name(self) -> str:
        return self.project.container_name

    @property
    def guarded_id(self) -> str:
        return NEW

    @property
    def policy(self) -> Mapping[str, Any]:
        policy: Mapping[str, Any] = self.rank_change.change.options.get("RestartPolicy") or self.container.policy_body
        return policy

    def prepare(self) -> Iterator[Step]:
        """Have Compose read the project with the change, so that what it rejects is found before anything stops."""
        yield Step(
            id=f"check{self.mark}",
            title=f"Let compose read the project {self.project.name} with the change; {self.name} stays as it is",
            node=self.node,
            act=Remote(
                operations=(
                    lifecycle.same_run(self.container),
                    self._file.check(),
                    self._compose("config", "--quiet", override="{content}", content=self.text),
                )
            ),
            limit_s=90.0,
            verifies="the files are unchanged, and compose accepts them",
        )

    def start(self) -> Iterator[Step]:
        """Write the override and bring the service up with it; the undo restores the file and the old service.

        The container is created first (`up --no-start`), its restart policy is turned off, and only then is it
        started: with the policy on, a container that fails would start again and again. `up -d` starts the created
        container and connects its networks (Compose v1 connects them only then).
        """
        container, project = self.container, self.project
        stopped = Expect(
            path=f"{container.path}/json",
            equals={"Id": container.container_id, "State.Running": False},
            otherwise=f"{self.name} was started by somebody else meanwhile, or removed",
        )
        undo: list[Operation] = [
            self._file.restore(),
            self._up_before("-d" if container.was_running else "--no-start"),
            self._restore_name(),
        ]
        if container.restarts:
            undo.append(self._update_policy(container.policy_body))
        yield Step(
            id=f"up{self.mark}",
            title=f"Write {project.override} and bring {project.service} up with it",
            node=self.node,
            act=Remote(
                operations=(
                    stopped,
                    self._file.check(),
                    self._file.write(),
                    self._up("--no-start", override=project.override),
                    DockerCall(method="GET", path=f"{self._path}/json", accepts=(200,), saves="NEW"),
                    update_policy(NEW_PATH, NO_POLICY, is_checked=False),
                    self._up("-d", override=project.override),
                ),
                undo=tuple(undo),
            ),
            limit_s=2 * UP_LIMIT_S + 60.0,
            verifies=f"{self.new_name} exists, made by compose",
            on_failure=OnFailure.ROLL_BACK,
        )

    # the way back

    def take_back(self, grace_s: float) -> Iterator[Step]:
        yield lifecycle.stop_new(
            self.node, self.mark, grace_s, name=self.new_name, title=f"Stop the new {self.new_name}"
        )

    def await_old_memory(self) -> Iterator[Step]:
        if self.container.was_running:  # by name: an undo may have made it anew
            yield self._old_memory(self.new_name)

    def start_old(self) -> Iterator[Step]:
        """Restore the override file and bring the service up as it was.

        Where Compose has not removed the old container yet, that one is started.
        """
        runs = self.container.was_running
        kept = Command(argv=("docker", "container", "inspect", self.container.container_id), limit_s=20.0)
        operations: list[Operation] = [
            self._file.restore(),
            replace(self._up_before("--no-start"), done_when=kept),
            self._restore_name(),
            self._update_policy(NO_POLICY),
        ]
        if runs:
            start = replace(lifecycle.start_call(self.container.path, accepts=(204, 304, 404)), done_when=None)
            operations += [start, replace(self._up_before("-d"), done_when=kept)]
        yield Step(
            id=f"back-old{self.mark}",
            title=f"{self.project.override} as it was, and {self.project.service} "
            + ("up again as it was" if runs else "made as it was, not started"),
            node=self.node,
            act=Remote(operations=tuple(operations)),
            limit_s=2 * UP_LIMIT_S + 90.0,
            verifies="compose has made it from the restored files",
        )

    def await_old_ready(self) -> Iterator[Step]:
        if self.container.was_running:
            yield self._old_ready()

    def settle_old(self) -> Iterator[Step]:
        yield from RankRelaunch.settle_old(self)
        container = self.container
        if container.restarts and not container.loops:
            yield Step(
                id=f"back-policy{self.mark}",
                title=f"Restart policy of {self.new_name} back to {lifecycle.policy_word(container.policy_body)}",
                node=self.node,
                act=Remote(operations=(self._update_policy(container.policy_body),)),
                limit_s=60.0,
                verifies=f"its restart policy is {container.policy}",
            )

    # operations

    @property
    def _path(self) -> str:
        return f"/containers/{self.new_name}"

    def _compose(self, *words: str, override: str, content: str = "", with_change: bool = True) -> Command:
        """A Compose command on the project.

        Args:
            override: path of the override file to include; empty: none.
            content: text for the `{content}` placeholder: the file that the runner writes for the call.
            with_change: whether the change's variables are in the environment; else only those the project needs.
        """
        unset = tuple(word for name in (self.unset if with_change else ()) for word in ("-u", name))
        argv = self.project.argv(*words, override=override)
        return Command(
            argv=("env", *unset, *argv) if unset else argv,
            limit_s=60.0,
            environment=dict(self.environment if with_change else self.project.shell_values),
            content=content,
        )

    def _up(self, flag: str, *, override: str, with_change: bool = True) -> Command:
        words = ("up", flag, "--no-deps", "--", self.project.service)
        return replace(self._compose(*words, override=override, with_change=with_change), limit_s=UP_LIMIT_S)

    def _up_before(self, flag: str) -> Command:
        return self._up(flag, override=self.project.override if self.project.uses_before else "", with_change=False)

    @property
    def _file(self) -> RemoteFile:
        return RemoteFile(path=self.project.override, before=self.project.before, after=self.text)

    def _restore_name(self) -> DockerCall:
        """Give the old container its name back.

        Compose v1 renames the old container while it creates the new one, and leaves it renamed if that fails. Docker
        answers 400 where it has its name already, 404 where it is gone, 409 where the new one has the name.
        """
        return replace(lifecycle.rename_back(self.container.path, self.name), accepts=(204, 400, 404, 409))

    def _update_policy(self, policy: Mapping[str, Any]) -> DockerCall:
        return update_policy(self._path, policy, accepts=(200, 404), is_checked=False)

    # what the review says

    def file_differences(self) -> Iterator[Difference]:
        yield from self._file.differences()

    def _what_stays(self, request: Request, others: Sequence[RankRelaunch]) -> str:
        return (
            f"Compose recreates the container and removes the old one. The rollback restores {OVERRIDE}, then runs "
            "`up` again"
        )

    def warnings(self) -> Iterator[str]:
        yield from relaunch_text.lost_files(self.rank_change, fate=": lost with the container.")
        yield "The old container's log is removed with it; the evidence has its end."
        yield from _unrequested_changes(self)
        yield from self.rank_change.notes
        yield from self.project.notes
        yield from _override_notes(self)

    def typed_start(self) -> Iterator[str]:
        where, project = f"on {self.node}: ", self.project
        yield f"{where}cat > {shlex.quote(project.override)} <<'END'"
        yield from (sanitise.line(row) for row in self.text.splitlines())
        yield "END"
        for name in self.unset:
            yield f"{where}unset {shlex.quote(name)}"
        if self.environment:
            names = " ".join(map(shlex.quote, sorted(self.environment)))
            yield f"{where}export {names}   # each with its value"
        words = ("up", "-d", "--no-deps", "--", project.service)
        yield f"{where}{shlex.join(project.argv(*words, override=project.override))}"
        yield from lifecycle.typed_policy(self.node, self.new_name, self.policy)

    def secrets(self) -> Iterator[str]:
        yield from RankRelaunch.secrets(self)
        yield from (
            value for name, value in self.environment.items() if name in self.shell_variables or is_secret(name, value)
        )
        yield from (value for name, value in self.project.shell_values.items() if is_secret(name, value))


def _unrequested_changes(relaunch: ComposeRelaunch) -> Iterator[str]:
    """What `up` would also change: an image tag that moved, compose files that were edited."""
    rank_change = relaunch.rank_change
    tagged = (rank_change.tagged_image or {}).get("Id")
    if not rank_change.change.image and tagged not in (None, rank_change.image_id):
        yield (
            f"{sanitise.line(rank_change.image_name, limit=120)} is a different image on {relaunch.node} than "
            "the one that "
            f"{relaunch.name} was made from (pulled or tagged since): compose takes the new one, also in a rollback. "
            "To "
            f"stay with the old one: image {rank_change.image_id}"
        )
    actual = dict(str(pair).partition("=")[::2] for pair in rank_change.config.get("Env") or ())
    environment: dict[str, str | None] = {}
    for definition in relaunch.project.definitions:
        environment |= environment_of(definition)
    edited_names = sorted(
        name
        for name, template in environment.items()
        if template is not None and "$" not in template and name not in rank_change.change.environment
        and actual.get(name, "") != filled(template, {})
    )  # fmt: skip
    if edited_names:
        names = ", ".join(sanitise.name(name) for name in edited_names[:5]) + (" ..." if len(edited_names) > 5 else "")
        yield f"The compose files were edited after {relaunch.name} was made ({names}): those edits take effect too."


def _override_notes(relaunch: ComposeRelaunch) -> Iterator[str]:
    """Where the change is kept, and what a later `docker compose up` has to know."""
    path = sanitise.line(relaunch.project.override, limit=200)
    yield (
        f"The change stays in {path}. `docker compose up` in that folder doesn't read it by itself: name it with -f, "
        "or copy its lines into the compose file."
    )
    if relaunch.project.before is not None and not relaunch.project.uses_before:
        yield f"{path} exists but is not in use: it is replaced."
    if relaunch.shell_variables:
        names = ", ".join(relaunch.shell_variables)
        yield (
            f"{names} {'are' if len(relaunch.shell_variables) > 1 else 'is'} kept in no file: a later `docker compose "
            "up` with "
            f"{OVERRIDE} wants {'them' if len(relaunch.shell_variables) > 1 else 'it'} from the shell."
        )


def rank_relaunch(
    rank_change: RankChange,
    picture: FleetState,
    survey: Survey,
    wanted_bytes: int | None,
    head_flags: Sequence[FlagChange],
) -> ComposeRelaunch:
    """One rank's relaunch."""
    container = rank_change.rank.container
    assert container is not None  # Compose is recognised by container labels
    by_hand = manual_steps.lines(rank_change)

    def refused(reason: str, *remedies: str) -> Refused:
        return Refused(reason, (*remedies, *by_hand))

    if container.status in ("paused", "removing", "dead"):
        raise refused(f"{container.name} on {container.node} is {container.status}")
    if rank_change.change.image and rank_change.new_image is None:
        raise refused(f"the image {rank_change.change.image} is not on {container.node}")
    if not rank_change.change.image and rank_change.tagged_image is None:
        raise refused(
            f"the image {rank_change.image_name} that {container.name} was made from is not on {container.node} any "
            "more: compose would "
            "pull or build another"
        )
    if problem := with_options(dict(rank_change.host), rank_change.change.options):
        raise refused(problem)
    try:
        compose_project = project(rank_change, survey)
        change = rank_change.change
        line = changed(rank_change.entrypoint, rank_change.command, change.flags, change.environment)
        secrets = seal_secrets(rank_change, line, compose_project)
        text = written(
            merged(
                compose_project.before if compose_project.uses_before else None,
                compose_project.service,
                _settings(rank_change, line, secrets),
            )
        )
    except UnusableProject as error:
        raise refused(
            f"docker compose can't recreate {container.name} on {container.node} from here: {error}",
            *error.remedies,
        ) from error
    except CannotEdit as error:
        raise refused(
            f"the command line of {container.name} on {container.node} can't be changed from here: {error}"
        ) from error
    except NotInOverride as error:
        raise refused(
            f"the change can't be laid over {container.name}'s project on {container.node}: {error}",
            f"edit the compose file on {container.node}, and bring it up",
        ) from error
    unset = tuple(name for name, value in rank_change.change.environment.items() if value is None)
    values = {**compose_project.shell_values, **secrets.shell_values}
    target, old_target = targets(rank_change, line.flags, wanted_bytes)
    return ComposeRelaunch(
        rank=rank_change.rank,
        rank_change=rank_change,
        target=target,
        old_target=old_target,
        project=compose_project,
        text=text,
        environment={name: value for name, value in values.items() if name not in unset},
        unset=unset,
        flags=line.flags,
        shell_variables=tuple(secrets.shell_values),
    )


def _settings(rank_change: RankChange, line: CommandLine, secrets: SealedChange) -> dict[str, Any]:
    is_other = list(line.entrypoint) != rank_change.entrypoint
    return settings(
        environment=secrets.environment,
        entrypoint=secrets.entrypoint if is_other else None,
        # a new entrypoint drops the image's command, so both are set
        command=secrets.command if is_other or list(line.command) != rank_change.command else None,
        options=rank_change.change.options,
        host=rank_change.host,
        image=rank_change.change.image,
    )
