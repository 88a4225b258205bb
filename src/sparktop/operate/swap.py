"""A plain container made once more with a change, the old one kept aside until the operator removes it; the plan. Pure.

The new one is made from the same image while the old one still runs; then that is stopped and its memory awaited as a
safe restart does it; then, in one step that the Spark finishes or undoes by itself, the new one takes its name and is
started. It gets no restart policy before it has served (facts/engines.md C13, 6.2).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparktop.diagnose.enginecommand import joins_ray
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Difference, Plan, Refusal, Request, Risk, Step
from sparktop.operate import containersteps as steps_of
from sparktop.operate import launched, sharedfiles, swapsteps, swapwords
from sparktop.operate.changing import Changing, image_path
from sparktop.operate.commandline import changed
from sparktop.operate.flags import CannotEdit, Changed
from sparktop.operate.inspected import Inspected
from sparktop.operate.knownsecrets import secrets_of
from sparktop.operate.machine import evidence_step, resolved_step
from sparktop.operate.recreate import CannotRecreate, Recreation, recreation
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

_POLICY_OFF: Mapping[str, Any] = {"Name": "no", "MaximumRetryCount": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """One rank's old container and the new one that takes its place."""

    changing: Changing
    box: Inspected
    start: Start
    back: Start
    """What the old one needs."""
    made: Recreation = field(repr=False)
    policy: Mapping[str, Any]
    """The restart policy that the new one gets when it has served."""
    next_name: str
    """What the new one is called until it takes the old one's place."""
    before_name: str
    after_name: str
    """What the new one is called when it is set aside again."""
    stamp: str
    image_ref: str
    """How the body names the image."""
    flags: tuple[Changed, ...] = ()

    @property
    def name(self) -> str:
        return self.box.name

    @property
    def mark(self) -> str:
        return self.changing.part.mark

    @property
    def image_id(self) -> str:
        """Of the image it is made from."""
        one = self.changing
        return str(one.new_image.get("Id") or "") if one.new_image is not None else one.image_id

    @property
    def was_up(self) -> bool:
        """Whether the old one ran; one that only failed again and again is not started again on the way back."""
        return self.box.running and not self.box.loops


def asks(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """Nothing beyond what is asked of every relaunch."""
    return ()


def plan(request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey) -> Plan | Refusal:
    """The swap of every rank, or what stands in its way."""
    wanted = sizes(request, found)
    if isinstance(wanted, Refusal):
        return wanted
    swaps: list[Swap] = []
    for one in found:
        made = _swap(request, one, picture, wanted.target_bytes, told=swaps[0].flags if swaps else ())
        if isinstance(made, Refusal):
            return launched.with_line(made, found)
        swaps.append(made)
    differences = swapwords.differences(swaps)
    swaps = [_labelled(one, swaps, differences) for one in swaps]
    if not differences and not all(one.box.auto_remove and one.changing.change.is_empty for one in swaps):
        return nothing_new(request, swaps[0].name)
    down, up = in_order(found, swaps)
    steps = tuple(_steps(request, swaps, down, up, wanted.grace_s, survey))
    head, where = swaps[0], " and ".join(one.box.node for one in swaps)
    return Plan(
        request=request,
        title=f"Relaunch {head.name} on {where} {swapwords.summary(differences)}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        way_back=tuple(_way_back(up, wanted.grace_s)),
        effect=swapwords.effect(request, swaps),
        warnings=tuple(dict.fromkeys(swapwords.warnings(request, swaps, steps, survey))),
        differences=differences,
        equivalent=(
            *launched.equivalent(found, head.made.body.get("Labels") or {}),
            *swapwords.equivalent(down, up, wanted.grace_s),
        ),
        seen_monotonic_s=picture.monotonic_s,
        secrets=tuple(
            dict.fromkeys(
                value
                for one in swaps
                for value in (
                    *secrets_of(one.changing.raw.get("Config") or {}),
                    *secrets_of(one.made.body, one.changing.change.environment),
                )
            )
        ),
    )


def _swap(
    request: Request, one: Changing, picture: FleetState, wanted: int | None, *, told: Sequence[Changed]
) -> Swap | Refusal:
    """One rank's; `told` is what is changed in its head's arguments, which count for one that only joins by Ray."""
    box = one.part.box
    assert box is not None  # only what runs in a container gets here
    refused = _unmakeable(request, one, box)
    if refused is not None:
        return refused
    config = one.raw.get("Config") or {}
    same_tag = one.tagged is not None and one.tagged.get("Id") == one.image_id and one.image_name
    reference = one.change.image or (one.image_name if same_tag else one.image_id)
    entrypoint = [str(word) for word in config.get("Entrypoint") or ()]
    command = [str(word) for word in config.get("Cmd") or ()]
    try:
        words = changed(entrypoint, command, one.change.flags, one.change.environment)
        made = recreation(
            one.raw,
            one.image,
            image_name=reference,
            new_image=one.new_image,
            entrypoint=words.entrypoint if list(words.entrypoint) != entrypoint else None,
            command=words.command if list(words.command) != command else None,
            environment=one.change.environment,
            options=one.change.options,
        )
    except CannotEdit as error:
        return Refusal(
            request=request,
            reason=f"the command line of {box.name} on {box.node} can't be changed from here: {error}",
            remedies=(
                "start it once with the change yourself, by `docker run` or a recipe; then relaunch works on it",
            ),
        )
    except CannotRecreate as error:
        return Refusal(request=request, reason=error.reason, remedies=error.remedies)
    body = dict(made.body)
    host = dict(body["HostConfig"])
    policy = host.get("RestartPolicy") or _POLICY_OFF
    host["RestartPolicy"] = dict(_POLICY_OFF)
    body["HostConfig"] = host
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(picture.wall_s))
    start, back = starts(one, told if joins_ray([*entrypoint, *command]) else words.flags, wanted)
    return Swap(
        changing=one,
        box=box,
        start=start,
        back=back,
        made=replace(made, body=body),
        policy=policy,
        next_name=f"{box.name}-next-{stamp}",
        before_name=f"{box.name}-before-{stamp}",
        after_name=f"{box.name}-failed-{stamp}",
        stamp=stamp,
        image_ref=reference,
        flags=words.flags,
    )


def _labelled(one: Swap, swaps: Sequence[Swap], differences: Sequence[Difference]) -> Swap:
    """What the labels of a launch say of all ranks' change, on every rank."""
    head, before = swaps[0], one.made.body.get("Labels") or {}
    after = launched.relabelled(
        before,
        head.changing.part.engine.kind,
        tuple(dict.fromkeys(flag for each in swaps for flag in each.flags)),
        [each.name for each in differences if each.what in ("environment", "option")],
        (head.changing.change.image or "") if any(each.what == "image" for each in differences) else "",
    )
    return one if after == before else replace(one, made=replace(one.made, body={**one.made.body, "Labels": after}))


def _unmakeable(request: Request, one: Changing, box: Inspected) -> Refusal | None:
    if box.status in ("paused", "removing", "dead"):
        return Refusal(
            request=request,
            reason=f"{box.name} on {box.node} is {box.status}",
            remedies=(f"docker unpause {box.name}",) if box.status == "paused" else ("look again in a minute",),
        )
    if one.change.image and one.new_image is None:
        return Refusal(
            request=request,
            reason=f"the image {one.change.image} is not on {box.node}",
            remedies=(f"on {box.node}: docker pull {one.change.image}",)
            if image_path(one.change.image)
            else ("give it as NAME:TAG or NAME@sha256:...",),
        )
    if one.image is None and one.new_image is None:
        named = one.image_name if one.tagged is not None else ""
        return Refusal(
            request=request,
            reason=f"the image that {box.name} was made from is not on {box.node} any more: nothing can be made of it",
            remedies=(
                *((f"relaunch it with what {named} is now: image {named}",) if named else ()),
                f"on {box.node}: docker commit {box.name} {box.name}-kept   # makes an image of the container itself",
            ),
        )
    return None


def _steps(
    request: Request, swaps: Sequence[Swap], down: Sequence[Swap], up: Sequence[Swap], grace_s: float, survey: Survey
) -> Iterator[Step]:
    yield evidence_step([one.box.node for one in swaps], [one.name for one in swaps])
    for one in swaps:
        yield swapsteps.make(one)
    for one in down:
        if one.box.restarts:
            yield steps_of.policy_off(one.box, one.mark)
    for one in down:
        if one.changing.part.runs:
            yield steps_of.stop(one.box, one.mark, grace_s)
            yield steps_of.kill(one.box, one.mark)
    for one in down:
        part = one.changing.part
        yield steps_of.gone(part.engine, part.node, one.mark, one.box.container_id, one.box.pid)
    for one in swaps:
        yield memory(one.start, MEMORY_LIMIT_S)
    for one in swaps:
        yield from _room(one, survey)
    for one in up:
        yield swapsteps.swap(one)
        yield from (swapsteps.over_the_new(step) for step in guard_on(one.start))
    for one in swaps:
        yield swapsteps.or_back(ready(one.start))
    if request.options.get("smoke", "yes") != "no":
        for one in swaps:
            yield from (swapsteps.over_the_new(step) for step in guard_on(one.start, serving=True))
        yield swapsteps.first_request(smoke(swaps[0].start), swaps[0].changing.change)
    for one in swaps:
        yield guard_back(one.start)
    for one in swaps:
        if one.policy.get("Name") not in ("", "no", None):
            yield swapsteps.policy_on(one)
    yield from resolved_step(request, swaps[0].box.node)
    if request.options.get("keep_old", "yes") == "no":
        for one in swaps:
            if not one.box.auto_remove:
                yield swapsteps.remove_old(one)


def _room(one: Swap, survey: Survey) -> Iterator[Step]:
    part = one.changing.part
    for step in (sharedfiles.step(part.engine, part.view, survey, one.mark), drop_step(one.start)):
        if step is not None and may(step, part.node, survey):
            yield step


def _way_back(up: Sequence[Swap], grace_s: float) -> Iterator[Step]:
    """The new ones aside, memory, the old ones back in their places; a step does nothing where that is so already."""
    for one in up:
        yield swapsteps.aside(one, grace_s)
    for one in up:
        yield replace(guard_back(one.start), id=f"back-guard{one.mark}")
    for one in up:
        if one.was_up:
            # One of --rm has another id when the swap's own undo has made it anew; its name is its own again.
            back = one.name if one.box.auto_remove else one.box.container_id
            yield replace(memory(one.back, MEMORY_LIMIT_S, back), id=f"back-memory{one.mark}")
    for one in up:
        yield swapsteps.old_back(one)
    for one in up:
        if one.was_up:
            yield replace(ready(one.start, any_run=True), id=f"back-ready{one.mark}")
