"""Run an engine's container as a systemd service: its unit is installed, enabled and started. Pure.

The unit makes its own container by `docker run`, from the settings of the one that runs, so that a relaunch can change
it by a drop-in. The old container is kept under another name. An engine is given to systemd once it has served:
systemd would start a failing one again and again (docs/facts/engines.md C13).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparktop.cmdline.container_body import docker_run
from sparktop.cmdline.engine_argv import value_of
from sparktop.dataclass import dataclass
from sparktop.engines import labels
from sparktop.engines.memory_needs import HOST_BYTES
from sparktop.masking import is_secret
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command
from sparktop.model.request import Request, Risk
from sparktop.model.survey import FileText, Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import lifecycle
from sparktop.operate.container.lifecycle import NewContainer
from sparktop.operate.container.recreate import recreation
from sparktop.operate.container.remote_file import RemoteFile, remove
from sparktop.operate.plan.common_steps import evidence_step, questions_of, stamp
from sparktop.operate.plan.origin import OriginKind
from sparktop.operate.plan.running_rank import in_order, lost_work, refuse_launched, refuse_status
from sparktop.operate.plan.running_start import RunningStart, phases_anew
from sparktop.operate.plan.sequence import Phases, rollback, sequence
from sparktop.operate.plan.service import Service, home_of, home_questions, unit_folder
from sparktop.operate.plan.start_steps import guard_note, with_rollback
from sparktop.operate.plan.stop_steps import down_steps, grace_of, typed_stop
from sparktop.operate.refused import Refused, refused_options
from sparktop.operate.relaunch import relaunch_text, systemd_drop_in
from sparktop.operate.relaunch.rank_change import RankChange, ranks_with_change, targets
from sparktop.operate.relaunch.systemd import reload_warnings
from sparktop.operate.secrets.masking import secret_words, secrets_of
from sparktop.operate.secrets.sudo import require_root_for, sudo_notes
from sparktop.operate.step.plan import Difference, Plan, Step
from sparktop.recipe.export import UNIT_HEAD, environment_file, environment_text, share_of, unit_file

PRINT = "print"
"""An option of the request: "yes" asks for the files alone, without a step."""
_DETECTED = "NCCL_IB_GID_INDEX"
"""A launch reads it from the node, and it may differ after a reboot (docs/facts/gb10.md section 5)."""
_SHARES = ("gpu-memory-utilization", "mem-fraction-static")
_NOT_OURS_TO_COPY = (labels.OURS, "com.docker.compose.")
"""Labels by which a container is taken for one that a launch or compose has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFile:
    """A unit of sparktop's on its node."""

    service: Service
    path: str
    text: str
    before: str | None = None
    """What is there now; None: nothing."""
    secrets_path: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    had_secrets: bool = False
    """The file of secrets is there already: it is overwritten, and not removed on the way back."""
    drop_in: str | None = None
    """What relaunches have changed, in a file of sparktop's that wins over the unit: it goes with what it changed."""

    @property
    def own(self) -> RemoteFile:
        privilege = self.service.privilege
        return RemoteFile(path=self.path, before=self.before, after=self.text, privilege=privilege)

    @property
    def _secret(self) -> RemoteFile:
        text, mode = environment_text(self.secrets), ("-m", "0600")
        return RemoteFile(path=self.secrets_path, after=text, privilege=self.service.privilege, mode=mode)

    def write(self) -> Step:
        """Write it, and its secrets to a file that only its owner reads; nothing is stopped yet."""
        service = self.service
        operations = [self.own.check()]
        if self.secrets:
            operations.append(self._secret.write())
        operations += [self.own.write(), *self.drop_change(), service.reload()]
        return Step(
            id=f"write{service.mark}",
            title=f"Write {self.path}" + (f", and its secrets to {self.secrets_path}" if self.secrets else ""),
            node=service.node,
            act=Remote(operations=tuple(operations), undo=tuple(self.take_back())),
            limit_s=300.0,
            verifies="systemd has read it",
        )

    def drop_change(self) -> Iterator[Command]:
        """Remove what relaunches have changed."""
        if self.drop_in is not None:
            yield remove(drop_in_path(self.path), privilege=self.service.privilege)

    def take_back(self) -> Iterator[Command]:
        """Restore or remove it; its secrets go where it was not there before."""
        if self.drop_in is not None:
            before, privilege = self.drop_in, self.service.privilege
            yield RemoteFile(path=drop_in_path(self.path), before=before, privilege=privilege).restore()
        yield self.own.restore()
        if self.before is None and self.secrets and not self.had_secrets:
            yield self._secret.restore()
        yield self.service.reload()

    def enable(self) -> Step:
        """Have it start at boot, and start it."""
        service = self.service
        start = service.start()
        assert isinstance(start.act, Remote)
        assert isinstance(start.act.reverse, tuple)
        disable = service.enable(now=False)
        act = Remote(
            operations=(service.enable(), *start.act.operations),
            undo=(disable,),
            reverse=(*start.act.reverse, disable),
        )
        return replace(start, title=f"Enable and start {service.unit}", act=act, undoes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStart(RunningStart):
    """A rank whose container systemd runs from now on."""

    file: UnitFile
    new: NewContainer = field(repr=False)
    """The old container, and its name from now on."""


def _phases(base: Phases, file: UnitFile, new: NewContainer, grace_s: float) -> Phases:
    service = file.service
    undo = Step(
        id=f"back-file{service.mark}",
        title=f"Disable {service.unit}, {file.path} {'removed' if file.before is None else 'as it was'}",
        node=service.node,
        act=Remote(
            operations=(
                service.enable(now=False),
                *file.take_back(),
                service.forget(),
                *lifecycle.free_name(new),
            )
        ),
        limit_s=300.0,
        verifies="systemd has reloaded its files, and the container that it made is removed",
        undoes=(f"write{service.mark}",),
    )
    return replace(
        base,
        prepare=(file.write(),),
        before_start=(lifecycle.set_old_aside(new),) if new.keeps_old else (),
        start=(with_rollback(file.enable()),),
        take_back=(replace(service.stop(grace_s), id=f"back-stop{service.mark}"),),
        undo_change=(undo,),
        start_old=(lifecycle.restore_old(new),),
    )


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    """Questions about every rank, its image, and the unit file that may be there."""
    if questions := questions_of(ranks_with_change)(request, picture, survey):
        return questions
    ranks = ranks_with_change(request, picture, survey)
    homes = [question for one in ranks for question in home_questions(one.rank.view)]
    paths = [_path(one, request, survey) for one in ranks]
    files = [
        FileText(node=one.rank.node, path=file)
        for one, path in zip(ranks, paths, strict=True)
        if path
        for file in (path, drop_in_path(path))
    ]
    return (*homes, *files, *(_secrets_question(one, request, survey) for one in ranks))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """The plan; with the option `print` only its files."""
    rank_changes = ranks_with_change(request, picture, survey)
    with refused_options():
        grace_s = grace_of(request, [change.rank for change in rank_changes], picture)
    starters = [_starter(change, request, survey, stamp(picture), grace_s) for change in rank_changes]
    several = len(starters) > 1
    files = {f"{one.node}:{one.file.path}" if several else one.file.path: one.file.text for one in starters}
    head, secrets = starters[0], [value for change in rank_changes for value in secrets_of(change.config)]
    where = " and ".join(one.node for one in starters)
    whole = Plan(
        request=request,
        title=f"Run {head.name} as a systemd service on {where}",
        risk=Risk.DISRUPTIVE,
        steps=(),
        files=files,
        secrets=tuple(dict.fromkeys(secrets)),
    )
    if request.options.get(PRINT) == "yes":
        return whole
    for one in starters:
        _refuse_stranger(one.file, one.name)
        _refuse_waiting(one)
    down, up = in_order([one.rank for one in starters], starters)
    steps = tuple(
        sequence(
            [one.phases for one in starters],
            up=[one.phases for one in up],
            before=(evidence_step([one.node for one in starters], [one.name for one in starters]),),
            stop=(with_rollback(step) for step in down_steps([one.rank for one in down], grace_s, is_coming_back=True)),
        )
    )
    require_root_for(steps, survey)
    return replace(
        whole,
        steps=steps,
        rollback=tuple(rollback([one.phases for one in down], [one.phases for one in up])),
        is_all_or_nothing=True,
        effect=_effect(head),
        warnings=tuple(dict.fromkeys(_warnings(starters, rank_changes, steps))),
        differences=tuple(line for one in starters for line in _difference(one.file)),
        equivalent=tuple(_typed(down, grace_s)),
    )


def _starter(change: RankChange, request: Request, survey: Survey, made_at: str, grace_s: float) -> UnitStart:
    """The rank with its unit; refused where a unit can't run what runs now."""
    rank, container = change.rank, change.rank.container
    if rank.origin.is_service or rank.origin.kind is OriginKind.PODMAN:
        name, node = shlex.quote(rank.name), shlex.quote(rank.node)
        raise Refused(
            f"{rank.origin.unit} runs {rank.name} on {rank.node} already",
            (f"to change it: sparktop act relaunch {node} --engine {name}", f"sparktop unit {name} {node} --remove"),
        )
    if container is None:
        raise Refused(f"{rank.name} on {rank.node} runs in no container", ("sparktop launch RECIPE HOST starts one",))
    refuse_launched(rank)
    refuse_status(container)
    recreated = recreation(change.raw, change.image, image_name=change.image_reference)
    if recreated.connects:
        networks = ", ".join(network for network, _ in recreated.connects)
        raise Refused(
            f"{container.name} on {rank.node} is in several networks, and a unit's `docker run` joins one",
            (f"leave all but one: docker network disconnect {networks} {container.name}",),
        )
    is_own = request.options.get("user") == "yes"
    body, secrets = _body(recreated.body)
    run = shlex.split(docker_run(container.name, body, change.image, mask=False))
    if secret_words(run):
        names = f"{shlex.quote(rank.node)} --engine {shlex.quote(rank.name)}"
        relaunch = f"sparktop act relaunch {names} --env VLLM_API_KEY --unset-flag=--api-key"
        raise Refused(
            f"the command of {container.name} on {rank.node} holds a secret, and everybody can read a unit file",
            (f"make it a variable, whose value goes into a file of mode 0600: {relaunch}",),
        )
    secrets_question = _secrets_question(change, request, survey)
    path = _path(change, request, survey)
    if not path:
        raise Refused(f"the home folder of the user of {rank.node} isn't known", ("leave out --user",))
    service = Service(
        view=rank.view, unit=f"{container.name}.service", is_own=is_own, engine=container.name, mark=rank.mark
    )
    target, old_target = targets(change, (), None)
    share, sample = value_of(rank.engine.argv, *_SHARES), rank.view.sample
    if not rank.engine.kind.traits.share_flag and sample is not None:  # it waits for what it holds now
        held_bytes = min(target.target_bytes, target.asked_bytes + HOST_BYTES)
        share = share_of(held_bytes, sample.memory.total_bytes)
    text = unit_file(
        container.name,
        [word for at, word in enumerate(run) if (at, word) != (2, "--detach")],
        share,
        description=f"{container.name}: {rank.engine.model or container.name}",
        has_secrets=bool(secrets),
        is_own=is_own,
    )
    file = UnitFile(
        service=service,
        path=path,
        text=text,
        before=survey.text(FileText(node=rank.node, path=path)),
        drop_in=survey.text(FileText(node=rank.node, path=drop_in_path(path))),
        secrets_path=secrets_question.path,
        secrets=secrets,
        had_secrets=survey.value(secrets_question) is not None or bool(survey.problem(secrets_question)),
    )
    new = NewContainer(
        node=rank.node,
        mark=rank.mark,
        name=container.name,
        made_at=made_at,
        body={},
        old=container,
        old_body=change.old_body,
    )
    base = phases_anew(
        rank,
        target,
        old_target,
        old_id=new.kept_id,
        old_runs=container.container_id,
        was_running=container.was_running,
        api_key=container.api_key,
    )
    return UnitStart(rank=rank, target=target, phases=_phases(base, file, new, grace_s), file=file, new=new)


def _body(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """(the container's create body for a file that anybody reads, its secret variables)."""
    secrets: dict[str, str] = {}
    environment = []
    is_launched = labels.RECIPE in (body.get("Labels") or {})
    for pair in map(str, body.get("Env") or ()):
        name, equals, value = pair.partition("=")
        if equals and value and is_secret(name, value):
            secrets[name] = value
        if name != _DETECTED or not is_launched:
            environment.append(name if name in secrets else pair)
    kept = {name: value for name, value in (body.get("Labels") or {}).items() if not name.startswith(_NOT_OURS_TO_COPY)}
    host = {**(body.get("HostConfig") or {}), "RestartPolicy": {}, "AutoRemove": False}
    return {**body, "Env": environment, "Labels": kept, "HostConfig": host}, secrets


def _path(change: RankChange, request: Request, survey: Survey) -> str:
    is_own = request.options.get("user") == "yes"
    folder = unit_folder(change.rank.view, survey, is_own=is_own)
    return f"{folder}/{change.rank.name}.service" if folder else ""


def _secrets_question(change: RankChange, request: Request, survey: Survey) -> FileText:
    rank, is_own = change.rank, request.options.get("user") == "yes"
    path = environment_file(rank.name, is_own=is_own, home=home_of(rank.view, survey))
    return FileText(node=rank.node, path=path, limit_bytes=1)


def drop_in_path(path: str) -> str:
    """Where a relaunch writes what it changes of the unit that this file describes."""
    return f"{path}.d/{systemd_drop_in.NAME}"


def _refuse_stranger(file: UnitFile, name: str) -> None:
    if file.before is not None and not file.before.startswith(UNIT_HEAD):
        raise Refused(
            f"{file.path} is there already on {file.service.node}, and sparktop did not write it",
            (
                f"look: systemctl cat {shlex.quote(file.service.unit)}",
                f"sparktop unit {shlex.quote(name)} prints its own",
            ),
        )


def _refuse_waiting(one: UnitStart) -> None:
    """An engine that does not serve isn't given to systemd, which would start it again and again."""
    if not one.rank.ran or (one.rank.is_head and one.rank.engine.endpoint is None):
        raise Refused(
            f"{one.name} on {one.node} does not serve: systemd would start it again and again",
            (f"sparktop act safe-restart {shlex.quote(one.node)} --engine {shlex.quote(one.name)}   # then again",),
        )


# --- what the review says


def _effect(head: UnitStart) -> str:
    kept = (
        f"The old container is kept as {head.new.before_name}; remove it with: docker rm {head.new.before_name}"
        if head.new.keeps_old
        else "Docker removes the old container, because it was started with --rm"
    )
    return (
        f"{head.name} is down until the new one has loaded. From then on systemd starts it at boot and whenever "
        f"it ends (after `docker stop` too; `systemctl stop` keeps it down), waits for its memory first, and gives up "
        f"after 3 starts within 10 minutes. {kept}."
    )


def _warnings(starters: Sequence[UnitStart], changes: Sequence[RankChange], steps: Sequence[Step]) -> Iterator[str]:
    yield from lost_work(starters[0].rank)
    for one, change in zip(starters, changes, strict=True):
        rank = one.rank
        yield from one.target.warnings
        yield from relaunch_text.lost_files(change, fate="; the new one lacks it.")
        if rank.origin.kind is OriginKind.COMPOSE:
            yield (
                f"docker compose started {rank.name}: take {rank.origin.service or 'it'} out of its file, or the next "
                "`docker compose up` starts a second one."
            )
        if one.file.service.is_own:
            facts = rank.view.facts
            if facts is not None and facts.is_lingering is False:
                yield (
                    f"The user does not linger on {rank.node}: the unit starts at login and stops at logout. "
                    f"First: sparktop act enable-linger {shlex.quote(rank.node)}"
                )
        else:
            yield from reload_warnings(rank)
        if one.file.secrets and one.file.had_secrets:
            yield f"{one.file.secrets_path} is there already on {rank.node}: it is overwritten, and can't be restored."
        yield from guard_note(rank.view)
        yield from sudo_notes(steps, rank.privileges, rank.node, with_lines=False)


def _difference(file: UnitFile) -> Iterator[Difference]:
    yield from file.own.differences()
    yield from gone(drop_in_path(file.path), file.drop_in)
    for name in file.secrets:
        yield Difference(what="file", name=file.secrets_path, before=None, after=f"{name}=<masked>")


def gone(path: str, text: str | None) -> Iterator[Difference]:
    """A file that is removed."""
    if text is not None:
        yield Difference(what="file", name=path, before=f"{len(text.splitlines())} lines", after=None)


def _typed(down: Sequence[UnitStart], grace_s: float) -> Iterator[str]:
    for one in down:
        name, node, service = shlex.quote(one.name), one.node, one.file.service
        flag = " --user" if service.is_own else ""
        yield f"sparktop unit {name} {shlex.quote(node)}{flag} > {name}.service"
        if one.file.secrets:
            yield f"on {node}: {service.sudo}install -m 0600 -D {name}.env {shlex.quote(one.file.secrets_path)}"
        yield f"on {node}: {service.sudo}install -m 0644 -D {name}.service {shlex.quote(one.file.path)}"
        yield f"on {node}: {service.typed_manager} daemon-reload"
        yield from typed_stop(one.rank, grace_s)
        if one.new.keeps_old:
            yield f"on {node}: docker rename {name} {one.new.before_name}"
        yield f"on {node}: {service.typed_manager} enable --now -- {shlex.quote(service.unit)}"
