"""The steps that only a swap has: the swap itself, and the way back from it. Pure.

The new one is made first, while the old one still runs: whatever keeps Docker from making it stops nothing. Its id
isn't known when the plan is made: "{NEW}" stands for it (`saved`). The old one keeps its id through the renaming, and
its way back by name is taken only from the name that the swap gave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sparktop.model.change import Change
from sparktop.model.operation import DockerCall, Expect, Operation
from sparktop.model.plan import GuardOrder, OnFailure, Remote, SmokeTest, Step
from sparktop.operate import containersteps as steps_of
from sparktop.operate.changing import image_path
from sparktop.operate.recreate import recreation

if TYPE_CHECKING:
    from sparktop.operate.swap import Swap

NEW = "{NEW}"
_NEW_PATH = f"/containers/{NEW}"


def make(one: Swap) -> Step:
    """The new one, beside the old one that still runs: what Docker refuses, and a full disk, cost nothing then."""
    return Step(
        id=f"make{one.mark}",
        title=f"Make the new container, as {one.next_name}, while {one.name} is left as it is",
        node=one.box.node,
        act=Remote(
            operations=(steps_of.same_run(one.box), _image(one), _create(one), *_connects(one)), undo=(_remove_new(),)
        ),
        limit_s=180.0,
        verifies=f"same container, same image ({one.image_id[:19]}); Docker takes the new one",
        undone_by=f"docker rm {one.next_name}",
    )


def swap(one: Swap) -> Step:
    """The new one takes the old one's name and starts; or everything back, and the old one started."""
    was_kept = not one.box.auto_remove
    new = Expect(
        path=f"{_NEW_PATH}/json",
        equals={"Name": f"/{one.next_name}", "State.Running": False},
        otherwise=f"the new container {one.next_name} was renamed, started or removed meanwhile",
    )
    operations: list[Operation] = [new]
    operations += [_stopped(one), _rename(one)] if was_kept else [_removed(one)]
    operations += [_named(one), _start(NEW)]
    undo: list[Operation] = [_remove_new()]
    undo += _name_back(one) if was_kept else ()
    if one.was_up:
        undo += _old_started(one)
    if was_kept and one.box.restarts:
        undo.append(_policy_back(one))
    names = (f"docker rename {one.name} {one.next_name}", f"docker rename {one.before_name} {one.name}")
    back = "; ".join((f"docker stop -t {steps_of.GRACE_S:.0f} {one.name}", *names))  # what was stopped, its stop says
    return Step(
        id=f"swap{one.mark}",
        title=f"Start the new container as {one.name}"
        + (f"; the old one becomes {one.before_name}" if was_kept else ""),
        node=one.box.node,
        act=Remote(operations=tuple(operations), undo=tuple(undo)),
        limit_s=300.0,
        verifies=f"{one.name} runs from image {one.image_id[:19]}",
        undone_by=back if was_kept else "nothing by hand: Docker removed the old one; the way back makes it anew",
        on_failure=OnFailure.ROLL_BACK,
    )


def or_back(step: Step) -> Step:
    """Its failure brings the old one back at once."""
    return replace(step, on_failure=OnFailure.ROLL_BACK)


def over_the_new(step: Step) -> Step:
    """The guard's order, for the container that the swap has made."""
    assert isinstance(step.act, GuardOrder)
    return replace(step, act=replace(step.act, container_id=NEW))


def first_request(step: Step, change: Change) -> Step:
    """With the key that the change gives it, where it gives one. Its failure offers the way back."""
    assert isinstance(step.act, SmokeTest)
    key = change.flags.get("--api-key") or change.environment.get("VLLM_API_KEY")
    return replace(step, act=replace(step.act, api_key=key)) if key else step


def policy_on(one: Swap) -> Step:
    """It has served: now Docker may bring it back by itself, as it did the old one."""
    name = one.policy.get("Name")
    call = DockerCall(
        method="POST",
        path=f"{_NEW_PATH}/update",
        body={"RestartPolicy": dict(one.policy)},
        accepts=(200,),
        done_when=Expect(path=f"{_NEW_PATH}/json", equals={"HostConfig.RestartPolicy.Name": name}),
    )
    return Step(
        id=f"policy{one.mark}",
        title=f"Give {one.name} its restart policy: {name}",
        node=one.box.node,
        act=Remote(operations=(call,)),
        limit_s=60.0,
        verifies=f"its restart policy is {name}",
        undone_by=f"docker update --restart=no {one.name}",
    )


def remove_old(one: Swap) -> Step:
    """Asked for by an option; its volumes stay."""
    kept = Expect(
        path=f"{one.box.path}/json",
        equals={"Name": f"/{one.before_name}", "State.Running": False},
        otherwise=f"{one.before_name} was renamed or started meanwhile",
    )
    call = DockerCall(method="DELETE", path=one.box.path, accepts=(204, 404), limit_s=120.0)
    return Step(
        id=f"remove{one.mark}",
        title=f"Remove {one.before_name}",
        node=one.box.node,
        act=Remote(operations=(kept, call)),
        limit_s=180.0,
        verifies="it is gone; the volumes stay",
        undone_by="nothing: from here on there is no way back",
        on_failure=OnFailure.GO_ON,
    )


# --- the way back


def aside(one: Swap, grace_s: float) -> Step:
    """The new one stopped, never to be started by Docker, under another name; nothing where there is none."""
    no_policy = DockerCall(
        method="POST",
        path=f"{_NEW_PATH}/update",
        body={"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}},
        accepts=(200, 404),
    )
    calls = (
        *(() if one.box.auto_remove else (no_policy,)),
        DockerCall(
            method="POST",
            path=f"{_NEW_PATH}/stop",
            query={"t": f"{grace_s:.0f}"},
            accepts=(204, 304, 404),
            limit_s=grace_s + 45.0,
        ),
        DockerCall(method="POST", path=f"{_NEW_PATH}/rename", query={"name": one.after_name}, accepts=(204, 404, 409)),
    )
    return Step(
        id=f"back-aside{one.mark}",
        title=f"Stop the new {one.name} and set it aside as {one.after_name}",
        node=one.box.node,
        act=Remote(operations=calls),
        limit_s=grace_s + 120.0,
        verifies="it does not run, and its name is free",
        undoes=tuple(f"{name}{one.mark}" for name in ("make", "swap", "policy")),
    )


def old_back(one: Swap) -> Step:
    """The old one under its name, running if it was, with its policy."""
    operations: list[Operation] = []
    if one.box.auto_remove:
        create, start = _old_started(one)
        operations += [create, _is_old(one), start]
    else:
        operations += _name_back(one)
        if one.was_up:
            operations += _old_started(one)
        if one.box.restarts and not one.box.loops:
            operations.append(_policy_back(one))
    did = "and start it" if one.was_up else "stopped, as it was"
    return Step(
        id=f"back-old{one.mark}",
        title=f"Put the old {one.name} back in its place {did}",
        node=one.box.node,
        act=Remote(operations=tuple(operations)),
        limit_s=240.0,
        verifies="it has its name" + (" and runs" if one.was_up else ""),
        undoes=tuple(f"{name}{one.mark}" for name in ("stop", *(() if one.box.loops else ("policy-off",)))),
    )


# --- operations


def _image(one: Swap) -> Expect:
    """What the body names is the image that is meant: a tag can be moved while the plan is read."""
    return Expect(
        path=image_path(one.image_ref) or f"/images/{one.image_id}/json",
        equals={"Id": one.image_id},
        otherwise=f"the image {one.image_ref} was removed, or is another one by now: plan again",
    )


def _stopped(one: Swap) -> Expect:
    return Expect(
        path=f"{one.box.path}/json",
        equals={
            "Id": one.box.container_id,
            "Name": f"/{one.name}",
            "State.Running": False,
            **({} if one.box.loops else {"State.StartedAt": one.box.started_at}),
        },
        otherwise=f"{one.name} was started by somebody else meanwhile, renamed or removed",
    )


def _removed(one: Swap) -> DockerCall:
    """Docker removes it when it has ended, and takes a moment for it; its name is taken until then."""
    return DockerCall(
        method="POST", path=f"{one.box.path}/wait", query={"condition": "removed"}, accepts=(200, 404), limit_s=60.0
    )


def _rename(one: Swap) -> DockerCall:
    return DockerCall(
        method="POST",
        path=f"{one.box.path}/rename",
        query={"name": one.before_name},
        accepts=(204,),
        done_when=Expect(path=f"{one.box.path}/json", equals={"Name": f"/{one.before_name}"}),
    )


def _create(one: Swap) -> DockerCall:
    return DockerCall(
        method="POST",
        path="/containers/create",
        query={"name": one.next_name},
        body=one.made.body,
        accepts=(201,),
        saves="NEW",
        limit_s=120.0,
        done_when=Expect(
            path=f"/containers/{one.next_name}/json", equals={"Image": one.image_id, "State.Status": "created"}
        ),
    )


def _remove_new() -> DockerCall:
    return DockerCall(method="DELETE", path=_NEW_PATH, query={"force": "true"}, accepts=(204, 404, 409), limit_s=60.0)


def _named(one: Swap) -> DockerCall:
    return DockerCall(
        method="POST",
        path=f"{_NEW_PATH}/rename",
        query={"name": one.name},
        accepts=(204,),
        done_when=Expect(path=f"{_NEW_PATH}/json", equals={"Name": f"/{one.name}"}),
    )


def _connects(one: Swap) -> Iterator[DockerCall]:
    for network, settings in one.made.connects:
        yield DockerCall(
            method="POST",
            path=f"/networks/{quote(network, safe='')}/connect",
            body={"Container": one.next_name, **settings},
            accepts=(200,),
        )


def _start(which: str) -> DockerCall:
    return DockerCall(
        method="POST",
        path=f"/containers/{which}/start",
        accepts=(204, 304),
        limit_s=120.0,
        done_when=Expect(path=f"/containers/{which}/json", equals={"State.Running": True}),
    )


def _name_back(one: Swap) -> tuple[Operation, ...]:
    """From the name that the swap gave it: 404 where it never got that far, 409 where it has its own already."""
    named = Expect(
        path=f"{one.box.path}/json",
        equals={"Name": f"/{one.name}"},
        otherwise=f"the old container could not get its name {one.name} back",
    )
    rename = DockerCall(
        method="POST",
        path=f"/containers/{one.before_name}/rename",
        query={"name": one.name},
        accepts=(204, 404, 409),
        done_when=named,
    )
    return (rename, named)


def _old_started(one: Swap) -> tuple[DockerCall, ...]:
    """The old one; of --rm it is gone, and is made again from what it was."""
    if not one.box.auto_remove:
        return (replace(_start(one.box.container_id), accepts=(204, 304, 404)),)
    body: dict[str, Any] = dict(recreation(one.changing.raw, one.changing.image, image_name=one.changing.image_id).body)
    create = DockerCall(
        method="POST",
        path="/containers/create",
        query={"name": one.name},
        body=body,
        accepts=(201, 409),
        limit_s=120.0,
    )
    return (create, _start(one.name))


def _is_old(one: Swap) -> Expect:
    """What has the name, where it was taken already, is what the swap's own undo has made anew, and nobody else's."""
    return Expect(
        path=f"/containers/{one.name}/json",
        equals={"Image": one.changing.image_id, "HostConfig.AutoRemove": True},
        otherwise=f"another container is called {one.name} by now: the old one was not made anew",
    )


def _policy_back(one: Swap) -> DockerCall:
    return replace(steps_of.policy_call(one.box, back=True), accepts=(200, 404))
