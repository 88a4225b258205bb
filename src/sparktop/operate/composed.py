"""A compose service brought up with a change: an override file beside the project, and `compose up`; the plan. Pure.

Compose makes the container anew and removes the old one, so the way back is the same way with the file as it was. What
the shell had given when it was first brought up is taken from the old container and given to each call in its
environment, never among its arguments (facts/engines.md section 6.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request, Risk, Step
from sparktop.operate import byhand, composedsteps, composedwords, sharedfiles
from sparktop.operate.changing import Changing
from sparktop.operate.commandline import CommandLine, changed
from sparktop.operate.composefiles import Project, Unusable, project
from sparktop.operate.composefiles import asks as file_asks
from sparktop.operate.composesecrets import Sealed, sealed
from sparktop.operate.downsteps import down_steps
from sparktop.operate.flags import CannotEdit, Changed
from sparktop.operate.hostoptions import with_options
from sparktop.operate.inspected import Inspected
from sparktop.operate.knownsecrets import secrets_of
from sparktop.operate.machine import evidence_step, resolved_step
from sparktop.operate.overridefile import CannotSay, merged, settings, written
from sparktop.operate.relaunching import in_order, nothing_new, sizes, starts
from sparktop.operate.startsteps import (
    MEMORY_LIMIT_S,
    Start,
    drop_step,
    guard_back,
    guard_on,
    may,
    memory,
    ready,
    smoke,
)
from sparktop.operate.survey import Ask, Survey
from sparktop.operate.swapsteps import first_request, or_back, over_the_new
from sparktop.recipe.secretnames import is_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """One rank's service, as it is and as it will be."""

    changing: Changing
    box: Inspected
    project: Project
    start: Start
    back: Start
    """What the old one needs."""
    text: str = field(repr=False)
    """The override file as it will be."""
    given: Mapping[str, str] = field(repr=False)
    """The environment of the calls that bring the new one up."""
    unset: tuple[str, ...] = ()
    """Variables that the calls must not have of the user's own environment."""
    flags: tuple[Changed, ...] = ()
    policy: Mapping[str, Any]
    """The restart policy that the new one gets when it has served."""
    sealed: tuple[str, ...] = ()
    """Variables of the file that only the shell has."""

    @property
    def name(self) -> str:
        return self.box.name

    @property
    def mark(self) -> str:
        return self.changing.part.mark


def asks(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """The project's files, and which compose there is."""
    return tuple(dict.fromkeys(ask for one in found for ask in file_asks(one, survey)))


def plan(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> Plan | Refusal:
    """The plan for every rank, or what stands in its way."""
    wanted = sizes(request, found)
    if isinstance(wanted, Refusal):
        return wanted
    made: list[Composed] = []
    for one in found:
        rank = _composed(request, one, survey, wanted.target_bytes)
        if isinstance(rank, Refusal):
            return rank
        made.append(rank)
    differences = composedwords.differences(made)
    if not any(one.what != "file" for one in differences):
        return nothing_new(request, made[0].name)
    down, up = in_order(found, made)
    steps = tuple(_steps(request, made, down, up, wanted.grace_s, survey))
    where = " and ".join(one.box.node for one in made)
    return Plan(
        request=request,
        title=f"Relaunch {made[0].name} on {where} {composedwords.summary(differences)}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        way_back=tuple(_way_back(up, wanted.grace_s)),
        effect=composedwords.effect(request, made),
        warnings=tuple(dict.fromkeys(composedwords.warnings(made, steps, survey))),
        differences=differences,
        equivalent=tuple(composedwords.equivalent(down, up, wanted.grace_s)),
        seen_monotonic_s=picture.monotonic_s,
        secrets=tuple(dict.fromkeys(value for one in made for value in _secrets(one))),
    )


def _composed(request: Request, one: Changing, survey: Survey, wanted: int | None) -> Composed | Refusal:
    box = one.part.box
    assert box is not None  # who made it is known by its labels
    by_hand = byhand.lines(one)

    def refused(reason: str, *remedies: str) -> Refusal:
        return Refusal(request=request, reason=reason, remedies=(*remedies, *by_hand))

    if box.status in ("paused", "removing", "dead"):
        return refused(f"{box.name} on {box.node} is {box.status}")
    if one.change.image and one.new_image is None:
        return refused(f"the image {one.change.image} is not on {box.node}")
    if not one.change.image and one.tagged is None:
        return refused(
            f"the image {one.image_name} that {box.name} was made from is not on {box.node} any more: compose would "
            "pull or build another"
        )
    if problem := with_options(dict(one.raw.get("HostConfig") or {}), one.change.options):
        return refused(problem)
    try:
        found = project(one, survey)
        line = _line(one)
        secrets = sealed(one, line, found)
        text = written(
            merged(found.before if found.uses_before else None, found.service, _settings(one, line, secrets))
        )
    except Unusable as error:
        return refused(
            f"docker compose can't bring {box.name} on {box.node} up anew from here: {error}", *error.remedies
        )
    except CannotEdit as error:
        return refused(f"the command line of {box.name} on {box.node} can't be changed from here: {error}")
    except CannotSay as error:
        return refused(
            f"the change can't be laid over {box.name}'s project on {box.node}: {error}",
            f"change the compose file itself on {box.node}, and bring it up",
        )
    return _whole(one, box, found, line, secrets, text, wanted)


def _line(one: Changing) -> CommandLine:
    config = one.raw.get("Config") or {}
    return changed(
        [str(word) for word in config.get("Entrypoint") or ()],
        [str(word) for word in config.get("Cmd") or ()],
        one.change.flags,
        one.change.environment,
    )


def _settings(one: Changing, line: CommandLine, secrets: Sealed) -> dict[str, Any]:
    config = one.raw.get("Config") or {}
    entrypoint = [str(word) for word in config.get("Entrypoint") or ()]
    command = [str(word) for word in config.get("Cmd") or ()]
    is_other = list(line.entrypoint) != entrypoint
    return settings(
        environment=secrets.environment,
        entrypoint=secrets.entrypoint if is_other else None,
        # a new entrypoint takes the image's own command away: both are said then
        command=secrets.command if is_other or list(line.command) != command else None,
        options=one.change.options,
        host=one.raw.get("HostConfig") or {},
        image=one.change.image,
    )


def _whole(
    one: Changing, box: Inspected, found: Project, line: CommandLine, secrets: Sealed, text: str, wanted: int | None
) -> Composed:
    start, back = starts(one, line.flags, wanted)
    unset = tuple(name for name, value in one.change.environment.items() if value is None)
    policy = one.change.options.get("RestartPolicy") or box.policy_body["RestartPolicy"]
    return Composed(
        changing=one,
        box=box,
        project=found,
        start=start,
        back=back,
        text=text,
        given={name: value for name, value in {**found.given, **secrets.given}.items() if name not in unset},
        unset=unset,
        flags=line.flags,
        policy=policy,
        sealed=tuple(secrets.given),
    )


def _secrets(one: Composed) -> Iterator[str]:
    config = one.changing.raw.get("Config") or {}
    yield from secrets_of(config, one.changing.change.environment)
    yield from (value for name, value in one.given.items() if name in one.sealed or is_secret(name, value))
    yield from (value for name, value in one.project.given.items() if is_secret(name, value))


def _steps(
    request: Request,
    made: Sequence[Composed],
    down: Sequence[Composed],
    up: Sequence[Composed],
    grace_s: float,
    survey: Survey,
) -> Iterator[Step]:
    yield evidence_step([one.box.node for one in made], [one.name for one in made])
    for one in made:
        yield composedsteps.check(one)
    yield from down_steps([one.changing.part for one in down], grace_s, is_coming_back=True)
    for one in made:
        yield memory(one.start, MEMORY_LIMIT_S)
    for one in made:
        part = one.changing.part
        for step in (sharedfiles.step(part.engine, part.view, survey, one.mark), drop_step(one.start)):
            if step is not None and may(step, part.node, survey):
                yield step
    for one in up:
        yield composedsteps.up(one)
        yield from (over_the_new(step) for step in guard_on(one.start))
    for one in made:
        yield or_back(composedsteps.renamed(ready(one.start), one))
    if request.options.get("smoke", "yes") != "no":
        for one in made:
            yield from (over_the_new(step) for step in guard_on(one.start, serving=True))
        yield composedsteps.renamed(first_request(smoke(made[0].start), made[0].changing.change), made[0])
    for one in made:
        yield guard_back(one.start)
    for one in made:
        if one.policy.get("Name") not in ("", "no", None):
            yield composedsteps.policy_on(one)
    yield from resolved_step(request, made[0].box.node)


def _way_back(up: Sequence[Composed], grace_s: float) -> Iterator[Step]:
    """The new ones stopped, memory, the files as they were and up again; each does nothing where that is so already."""
    for one in up:
        yield composedsteps.aside(one, grace_s)
    for one in up:
        yield replace(guard_back(one.start), id=f"back-guard{one.mark}")
    for one in up:
        if composedsteps.was_up(one):
            step = memory(one.back, MEMORY_LIMIT_S, one.project.container_name)  # an undo may have made it anew
            yield replace(step, id=f"back-memory{one.mark}")
    for one in up:
        yield composedsteps.as_before(one)
    for one in up:
        if composedsteps.was_up(one):
            step = composedsteps.renamed(ready(one.start, any_run=True), one)
            yield replace(step, id=f"back-ready{one.mark}")
    for one in up:
        if one.box.restarts and not one.box.loops:
            yield composedsteps.policy_as_before(one)
