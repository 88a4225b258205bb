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
from sparktop.cmdline.engine_flag_edits import CannotEdit
from sparktop.cmdline.launch_command import changed
from sparktop.cmdline.variables import filled
from sparktop.dataclass import dataclass
from sparktop.masking import is_secret
from sparktop.model.operation import Command, DockerCall, Expect, Operation
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import lifecycle
from sparktop.operate.container.inspected import Inspected
from sparktop.operate.container.lifecycle import NEW, NEW_PATH, NO_POLICY, update_policy
from sparktop.operate.container.remote_file import RemoteFile
from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.plan.running_start import phases_anew
from sparktop.operate.plan.sequence import Phases
from sparktop.operate.refused import Refused
from sparktop.operate.relaunch import manual_steps, relaunch_text
from sparktop.operate.relaunch.compose_override import NotInOverride, merged, settings, written
from sparktop.operate.relaunch.compose_project import OVERRIDE, Project, project
from sparktop.operate.relaunch.compose_shell_values import environment_of
from sparktop.operate.relaunch.rank_change import CannotChange, Given, RankChange, RankRelaunch, targets
from sparktop.operate.step.plan import OnFailure, Step

UP_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """What is run on the node to bring the service up, with the change or as it was."""

    container: Inspected
    """The one that runs now."""
    project: Project
    file: RemoteFile
    """The override."""
    environment: Mapping[str, str] = field(repr=False)
    """Environment of the Compose calls that bring the new container up."""
    unset: tuple[str, ...]
    """Variables to remove from the user's own environment in those calls."""

    def check(self) -> tuple[Operation, ...]:
        """Have Compose read the project with the change, so that what it rejects is found before anything stops."""
        config = self._compose("config", "--quiet", override="{content}", content=self.file.after)
        return (lifecycle.same_run(self.container), self.file.check(), config)

    def start(self) -> tuple[Operation, ...]:
        """Write the override and bring the service up with it.

        The container is created first (`up --no-start`), its restart policy is turned off, and only then is it
        started: with the policy on, a container that fails would start again and again. `up -d` starts the created
        container and connects its networks (Compose v1 connects them only then).
        """
        container, override = self.container, self.project.override
        stopped = Expect(
            path=f"{container.path}/json",
            equals={"Id": container.container_id, "State.Running": False},
            otherwise=f"{container.name} was started by somebody else meanwhile, or removed",
        )
        return (
            stopped,
            self.file.check(),
            self.file.write(),
            self._up("--no-start", override=override),
            DockerCall(method="GET", path=f"{self._path}/json", accepts=(200,), saves="NEW"),
            update_policy(NEW_PATH, NO_POLICY, is_checked=False),
            self._up("-d", override=override),
        )

    def undo(self) -> tuple[Operation, ...]:
        """Restore the file and the old service."""
        up = self._up_before("-d" if self.container.was_running else "--no-start")
        policy = (self.update_policy(self.container.policy_body),) if self.container.restarts else ()
        return (self.file.restore(), up, self._restore_name(), *policy)

    def start_old(self) -> tuple[Operation, ...]:
        """Restore the override file and bring the service up as it was.

        Where Compose has not removed the old container yet, that one is started.
        """
        kept = Command(argv=("docker", "container", "inspect", self.container.container_id), limit_s=20.0)
        made: tuple[Operation, ...] = (
            self.file.restore(),
            replace(self._up_before("--no-start"), done_when=kept),
            self._restore_name(),
            self.update_policy(NO_POLICY),
        )
        if not self.container.was_running:
            return made
        start = replace(lifecycle.start_call(self.container.path, accepts=(204, 304, 404)), done_when=None)
        return (*made, start, replace(self._up_before("-d"), done_when=kept))

    def update_policy(self, policy: Mapping[str, Any]) -> DockerCall:
        return update_policy(self._path, policy, accepts=(200, 404), is_checked=False)

    def typed(self, policy: Mapping[str, Any]) -> Iterator[str]:
        """What writes the override and brings the service up with it, by hand."""
        where, project = f"on {self.container.node}: ", self.project
        yield f"{where}cat > {shlex.quote(project.override)} <<'END'"
        yield from (sanitise.line(row) for row in self.file.after.splitlines())
        yield "END"
        for name in self.unset:
            yield f"{where}unset {shlex.quote(name)}"
        if self.environment:
            names = " ".join(map(shlex.quote, sorted(self.environment)))
            yield f"{where}export {names}   # each with its value"
        words = ("up", "-d", "--no-deps", "--", project.service)
        yield f"{where}{shlex.join(project.argv(*words, override=project.override))}"
        yield from lifecycle.typed_policy(self.container.node, project.container_name, policy)

    @property
    def _path(self) -> str:
        return f"/containers/{self.project.container_name}"

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

    def _restore_name(self) -> DockerCall:
        """Give the old container its name back.

        Compose v1 renames the old container while it creates the new one, and leaves it renamed if that fails. Docker
        answers 400 where it has its name already, 404 where it is gone, 409 where the new one has the name.
        """
        return replace(lifecycle.rename_back(self.container.path, self.container.name), accepts=(204, 400, 404, 409))


def _phases(calls: _Calls, base: Phases, rank: RunningRank, policy: Mapping[str, Any], grace_s: float) -> Phases:
    node, mark, container, project = rank.node, rank.mark, calls.container, calls.project
    new_name, runs = project.container_name, container.was_running
    check = Step(
        id=f"check{mark}",
        title=f"Let compose read the project {project.name} with the change; {container.name} stays as it is",
        node=node,
        act=Remote(operations=calls.check()),
        limit_s=90.0,
        verifies="the files are unchanged, and compose accepts them",
    )
    up = Step(
        id=f"up{mark}",
        title=f"Write {project.override} and bring {project.service} up with it",
        node=node,
        act=Remote(operations=calls.start(), undo=calls.undo()),
        limit_s=2 * UP_LIMIT_S + 60.0,
        verifies=f"{new_name} exists, made by compose",
        on_failure=OnFailure.ROLL_BACK,
    )
    back_old = Step(
        id=f"back-old{mark}",
        title=f"{project.override} as it was, and {project.service} "
        + ("up again as it was" if runs else "made as it was, not started"),
        node=node,
        act=Remote(operations=calls.start_old()),
        limit_s=2 * UP_LIMIT_S + 90.0,
        verifies="compose has made it from the restored files",
    )
    back_policy = Step(
        id=f"back-policy{mark}",
        title=f"Restart policy of {new_name} back to {lifecycle.policy_word(container.policy_body)}",
        node=node,
        act=Remote(operations=(calls.update_policy(container.policy_body),)),
        limit_s=60.0,
        verifies=f"its restart policy is {container.policy}",
    )
    has_policy = container.restarts and not container.loops
    return replace(
        base,
        prepare=(check,),
        start=(up,),
        on_ready=lifecycle.policy_on(node, mark, new_name, policy),
        take_back=(lifecycle.stop_new(node, mark, grace_s, name=new_name, title=f"Stop the new {new_name}"),),
        start_old=(back_old,),
        settle_old=(*base.settle_old, *((back_policy,) if has_policy else ())),
    )


def _unrequested_changes(rank_change: RankChange, project: Project) -> Iterator[str]:
    """What `up` would also change: an image tag that moved, compose files that were edited."""
    name, node = rank_change.rank.name, rank_change.rank.node
    tagged = (rank_change.tagged_image or {}).get("Id")
    if not rank_change.change.image and tagged not in (None, rank_change.image_id):
        yield (
            f"{sanitise.line(rank_change.image_name, limit=120)} is a different image on {node} than the one that "
            f"{name} was made from (pulled or tagged since): compose takes the new one, also in a rollback. To stay "
            f"with the old one: image {rank_change.image_id}"
        )
    actual = dict(str(pair).partition("=")[::2] for pair in rank_change.config.get("Env") or ())
    environment: dict[str, str | None] = {}
    for definition in project.definitions:
        environment |= environment_of(definition)
    edited_names = sorted(
        variable
        for variable, template in environment.items()
        if template is not None and "$" not in template and variable not in rank_change.change.environment
        and actual.get(variable, "") != filled(template, {})
    )  # fmt: skip
    if edited_names:
        names = ", ".join(map(sanitise.name, edited_names[:5])) + (" ..." if len(edited_names) > 5 else "")
        yield f"The compose files were edited after {name} was made ({names}): those edits take effect too."


def _override_notes(project: Project, secret_names: Sequence[str]) -> Iterator[str]:
    """Where the change is kept, and what a later `docker compose up` has to know.

    Args:
        secret_names: variables that the override takes from the shell, as their values are secrets.
    """
    path = sanitise.line(project.override, limit=200)
    yield (
        f"The change stays in {path}. `docker compose up` in that folder doesn't read it by itself: name it with -f, "
        "or copy its lines into the compose file."
    )
    if project.before is not None and not project.uses_before:
        yield f"{path} exists but is not in use: it is replaced."
    if secret_names:
        several = len(secret_names) > 1
        yield (
            f"{', '.join(secret_names)} {'are' if several else 'is'} kept in no file: a later `docker compose up` with "
            f"{OVERRIDE} wants {'them' if several else 'it'} from the shell."
        )


def relaunch(rank_change: RankChange, given: Given) -> RankRelaunch:
    """The rank's Compose service: the container it has, and what it will be brought up with."""
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
            "more: compose would pull or build another"
        )
    if problem := with_options(dict(rank_change.host), rank_change.change.options):
        raise refused(problem)
    try:
        compose_project = project(rank_change, given.survey)
        change = rank_change.change
        line = changed(rank_change.entrypoint, rank_change.command, change.flags, change.environment)
        new_settings, secrets = settings(rank_change, line, compose_project)
        before = compose_project.before if compose_project.uses_before else None
        text = written(merged(before, compose_project.service, new_settings))
    except CannotChange as error:
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
    rank, unset = rank_change.rank, tuple(name for name, value in change.environment.items() if value is None)
    values = {**compose_project.shell_values, **secrets}
    calls = _Calls(
        container=container,
        project=compose_project,
        file=RemoteFile(path=compose_project.override, before=compose_project.before, after=text),
        environment={name: value for name, value in values.items() if name not in unset},
        unset=unset,
    )
    target, old_target = targets(rank_change, line.flags, given.wanted_bytes)
    new_name = compose_project.container_name
    base = phases_anew(
        rank,
        target,
        old_target,
        new_name=new_name,
        new_id=NEW,
        old_runs=new_name,  # by name: an undo may have made it anew
        was_running=container.was_running,
        api_key=rank_change.api_key,
    )
    policy = change.options.get("RestartPolicy") or container.policy_body
    return RankRelaunch(
        rank=rank,
        rank_change=rank_change,
        target=target,
        phases=_phases(calls, base, rank, policy, given.grace_s),
        flags=line.flags,
        stays=f"Compose recreates the container and removes the old one. The rollback restores {OVERRIDE}, then runs "
        "`up` again",
        warnings=(
            *relaunch_text.lost_files(rank_change, fate=": lost with the container."),
            "The old container's log is removed with it; the evidence has its end.",
            *_unrequested_changes(rank_change, compose_project),
            *rank_change.notes,
            *compose_project.notes,
            *_override_notes(compose_project, tuple(secrets)),
        ),
        typed_start=tuple(calls.typed(policy)),
        file=calls.file,
        policy=policy,
        secrets=tuple(value for name, value in values.items() if name in secrets or is_secret(name, value)),
    )
