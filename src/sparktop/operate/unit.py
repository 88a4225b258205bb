"""A systemd service's engine started with a change: a drop-in with another ExecStart=; the plan. Pure.

The service is stopped first and its memory awaited; then the drop-in is written, systemd reads its files, and the
service starts (facts/engines.md section 6.6). That reading can take the GPU from other containers that run (2.7): they
are named. The way back takes the drop-in away again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request, Risk, Step
from sparktop.operate import (
    byhand,
    changewords,
    sharedfiles,
    swapwords,
    unitdropsteps,
    unitedit,
    unitsteps,
    unitwarnings,
)
from sparktop.operate.changing import Changing
from sparktop.operate.downsteps import down_steps
from sparktop.operate.flags import CannotEdit, Changed
from sparktop.operate.knownsecrets import secrets_of
from sparktop.operate.machine import evidence_step, resolved_step
from sparktop.operate.privilege import root_refusal
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
from sparktop.operate.swapsteps import or_back
from sparktop.operate.unitplace import NotHere, Place, place
from sparktop.operate.unitplace import asks as place_asks
from sparktop.operate.unitwords import Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """One rank's service, with the drop-in that it gets."""

    changing: Changing
    place: Place
    start: Start
    back: Start
    text: str = field(repr=False)
    flags: tuple[Changed, ...] = ()

    @property
    def name(self) -> str:
        return self.changing.part.name

    @property
    def node(self) -> str:
        return self.changing.part.node

    @property
    def unit(self) -> str:
        return self.changing.part.origin.unit

    @property
    def mark(self) -> str:
        return self.changing.part.mark


def asks(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """The service's files, and where its drop-ins belong."""
    return tuple(dict.fromkeys(ask for one in found for ask in place_asks(one, survey)))


def plan(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> Plan | Refusal:
    """The plan for every rank, or what stands in its way."""
    wanted = sizes(request, found)
    if isinstance(wanted, Refusal):
        return wanted
    made: list[Dropped] = []
    for one in found:
        rank = _dropped(request, one, survey, wanted.target_bytes)
        if isinstance(rank, Refusal):
            return rank
        made.append(rank)
    asked = tuple(dict.fromkeys(row for one in made for row in changewords.asked(one.changing, one.flags)))
    if not asked:
        return nothing_new(request, made[0].name)
    files = tuple(row for one in made for row in changewords.file_lines(one.place.path, one.place.before, one.text))
    down, up = in_order(found, made)
    steps = tuple(_steps(request, made, down, up, wanted.grace_s, survey))
    return Plan(
        request=request,
        title=f"Relaunch {made[0].name} on {' and '.join(one.node for one in made)} {swapwords.summary(asked)}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        way_back=tuple(_way_back(down, up, wanted.grace_s)),
        effect=unitwarnings.effect(request, made),
        warnings=tuple(dict.fromkeys(unitwarnings.warnings(made, steps, survey))),
        differences=(*asked, *files),
        equivalent=tuple(unitwarnings.equivalent(down, up)),
        seen_monotonic_s=picture.monotonic_s,
        secrets=tuple(dict.fromkeys(value for one in made for value in _secrets(one))),
    )


def _dropped(request: Request, one: Changing, survey: Survey, wanted: int | None) -> Dropped | Refusal:
    part, unit = one.part, one.starter.unit

    def refused(reason: str, *remedies: str) -> Refusal:
        return Refusal(request=request, reason=reason, remedies=(*remedies, *byhand.lines(one)))

    if not part.origin.unit:  # a label alone names it: Podman's
        return refused(
            f"{part.name} on {part.node} is made by Podman for {unit}, whose file is generated from another",
            f"on {part.node}: edit the .container file of {unit} (~/.config/containers/systemd, "
            "/etc/containers/systemd), then systemctl daemon-reload and restart it",
        )
    if one.change.image and one.new_image is None and part.box is not None:
        return refused(f"the image {one.change.image} is not on {part.node}", f"docker pull {one.change.image}")
    try:
        found = place(one, survey)
        made = unitedit.edited(one, found)
    except NotHere as error:
        return refused(f"{unit} on {part.node} can't be changed by a drop-in: {error}", *error.remedies)
    except (CannotEdit, Unreadable) as error:
        return refused(f"the command of {unit} on {part.node} can't be changed from here: {error}")
    if not part.origin.is_own:
        needed = [unitsteps.argv(part, "stop"), unitsteps.argv(part, "start"), unitdropsteps.reload_argv(part)]
        obstacle = root_refusal(survey.privileges(part.node), needed, part.node)
        if obstacle is not None:
            refusal = obstacle.refusal(request)
            more = "and to write a service's drop-in is to be root there: no narrower rule of sudo permits it"
            return replace(refusal, remedies=(*refusal.remedies, more, *byhand.lines(one)))
    start, back = starts(one, made.flags, wanted)
    return Dropped(
        changing=one,
        place=found,
        start=start,
        back=back,
        text=made.text,
        flags=made.flags,
    )


def _secrets(one: Dropped) -> Iterator[str]:
    config: Mapping[str, object] = one.changing.raw.get("Config") or {}
    yield from secrets_of(config, one.changing.change.environment)


def _steps(
    request: Request,
    made: Sequence[Dropped],
    down: Sequence[Dropped],
    up: Sequence[Dropped],
    grace_s: float,
    survey: Survey,
) -> Iterator[Step]:
    yield evidence_step([one.node for one in made], [one.changing.part.engine.name for one in made])
    for one in made:
        yield unitdropsteps.check(one)
    yield from down_steps([one.changing.part for one in down], grace_s, is_coming_back=True)
    for one in made:
        yield memory(one.start, MEMORY_LIMIT_S)
    for one in made:
        part = one.changing.part
        for step in (sharedfiles.step(part.engine, part.view, survey, one.mark), drop_step(one.start)):
            if step is not None and may(step, part.node, survey):
                yield step
    for one in up:
        yield unitdropsteps.write(one)
    for one in up:
        yield or_back(unitsteps.start(one.changing.part))
    for one in made:
        yield or_back(ready(one.start))
    if request.options.get("smoke", "yes") != "no":
        for one in made:
            yield from guard_on(one.start, serving=True)
        yield smoke(made[0].start)
    for one in made:
        if one.changing.part.box is not None:
            yield guard_back(one.start)
    yield from resolved_step(request, made[0].node)


def _way_back(down: Sequence[Dropped], up: Sequence[Dropped], grace_s: float) -> Iterator[Step]:
    """The service stopped, its files as they were, memory, and up again."""
    for one in down:
        yield replace(unitsteps.stop(one.changing.part, grace_s), id=f"back-stop{one.mark}")
    for one in up:
        if one.changing.part.box is not None:
            yield replace(guard_back(one.start), id=f"back-guard{one.mark}")
    for one in up:
        yield unitdropsteps.as_before(one)
    for one in up:
        yield replace(memory(one.back, MEMORY_LIMIT_S), id=f"back-memory{one.mark}")
    for one in up:
        yield replace(unitsteps.start(one.changing.part), id=f"back-start{one.mark}")
    for one in up:
        yield replace(ready(one.start), id=f"back-ready{one.mark}")
