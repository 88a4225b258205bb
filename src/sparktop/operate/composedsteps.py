"""The steps that only a compose relaunch has: the check before anything stops, the way up, and the way back. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sparktop.model.operation import Command, DockerCall, Expect, Operation
from sparktop.model.plan import AwaitReady, OnFailure, Remote, SmokeTest, Step
from sparktop.operate import containersteps as steps_of

if TYPE_CHECKING:
    from sparktop.operate.composed import Composed

UP_LIMIT_S = 180.0
_NEW_PATH = "/containers/{NEW}"
_NO_POLICY = {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}}


def was_up(one: Composed) -> bool:
    return one.box.running and not one.box.loops


def check(one: Composed) -> Step:
    """Compose reads all of it, the override too, while the engine still runs: what it refuses costs nothing then."""
    made = one.project
    return Step(
        id=f"check{one.mark}",
        title=f"Have compose read the project {made.name} with the change, while {one.name} is left as it is",
        node=one.box.node,
        act=Remote(
            operations=(
                steps_of.same_run(one.box),
                _unchanged(one),
                _compose(one, "config", "--quiet", override="{content}", content=one.text),
            )
        ),
        limit_s=90.0,
        verifies="the files are as they were read, and compose accepts them",
        undone_by="nothing was changed",
    )


def up(one: Composed) -> Step:
    """The file, and the service with it; or the file as it was, and the service as it was.

    It is made before it is started: with its restart policy, one that fails would be started again and again. `up -d`
    starts what is made already, with its networks (version 1 connects it to them only then).
    """
    stopped = Expect(
        path=f"{one.box.path}/json",
        equals={"Id": one.box.container_id, "State.Running": False},
        otherwise=f"{one.name} was started by somebody else meanwhile, or removed",
    )
    back: list[Operation] = [*_file_back(one), _up_before(one, "-d" if was_up(one) else "--no-start"), _name_back(one)]
    if one.box.restarts:
        back.append(_update(one, f"/containers/{one.project.container_name}", is_back=True))
    return Step(
        id=f"up{one.mark}",
        title=f"Write {one.project.override} and bring {one.project.service} up with it",
        node=one.box.node,
        act=Remote(
            operations=(
                stopped,
                _unchanged(one),
                _write(one, one.text),
                _up(one, "--no-start", override=one.project.override),
                DockerCall(
                    method="GET",
                    path=f"/containers/{one.project.container_name}/json",
                    accepts=(200,),
                    saves="NEW",
                ),
                DockerCall(method="POST", path=f"{_NEW_PATH}/update", body=_NO_POLICY, accepts=(200,)),
                _up(one, "-d", override=one.project.override),
            ),
            undo=tuple(back),
        ),
        limit_s=2 * UP_LIMIT_S + 60.0,
        verifies=f"{one.project.container_name} is there, made by compose",
        undone_by="the file is put back as it was, and the service brought up as it was",
        on_failure=OnFailure.ROLL_BACK,
    )


def renamed(step: Step, one: Composed) -> Step:
    """For the container as compose will call it."""
    name = one.project.container_name
    if isinstance(step.act, AwaitReady):
        return replace(step, act=replace(step.act, name=name))
    if isinstance(step.act, SmokeTest):
        return replace(step, act=replace(step.act, engine=name))
    return step


def policy_on(one: Composed) -> Step:
    """It has served: now Docker may bring it back by itself, as compose's files say."""
    call = DockerCall(
        method="POST",
        path=f"{_NEW_PATH}/update",
        body={"RestartPolicy": dict(one.policy)},
        accepts=(200,),
        done_when=Expect(path=f"{_NEW_PATH}/json", equals={"HostConfig.RestartPolicy.Name": one.policy.get("Name")}),
    )
    return Step(
        id=f"policy{one.mark}",
        title=f"Give {one.project.container_name} its restart policy: {one.policy.get('Name')}",
        node=one.box.node,
        act=Remote(operations=(call,)),
        limit_s=60.0,
        verifies=f"its restart policy is {one.policy.get('Name')}",
        undone_by=f"docker update --restart=no {one.project.container_name}",
    )


# --- the way back


def aside(one: Composed, grace_s: float) -> Step:
    """The new one stopped; nothing where it was never made."""
    calls = (
        DockerCall(method="POST", path=f"{_NEW_PATH}/update", body=_NO_POLICY, accepts=(200, 404)),
        DockerCall(
            method="POST",
            path=f"{_NEW_PATH}/stop",
            query={"t": f"{grace_s:.0f}"},
            accepts=(204, 304, 404),
            limit_s=grace_s + 45.0,
        ),
    )
    return Step(
        id=f"back-aside{one.mark}",
        title=f"Stop the new {one.project.container_name}",
        node=one.box.node,
        act=Remote(operations=calls),
        limit_s=grace_s + 90.0,
        verifies="it does not run",
    )


def as_before(one: Composed) -> Step:
    """The file as it was, and the service with it; the old container where compose has not removed it."""
    kept = Command(argv=("docker", "container", "inspect", one.box.container_id), limit_s=20.0)
    operations: list[Operation] = [
        *_file_back(one),
        replace(_up_before(one, "--no-start"), done_when=kept),
        _name_back(one),
        _update(one, f"/containers/{one.project.container_name}", is_back=False),
    ]
    if was_up(one):
        start = DockerCall(method="POST", path=f"{one.box.path}/start", accepts=(204, 304, 404), limit_s=60.0)
        operations += [start, replace(_up_before(one, "-d"), done_when=kept)]
    return Step(
        id=f"back-old{one.mark}",
        title=f"{one.project.override} as it was, and {one.project.service} "
        + ("up again as it was" if was_up(one) else "made as it was, not started"),
        node=one.box.node,
        act=Remote(operations=tuple(operations)),
        limit_s=2 * UP_LIMIT_S + 90.0,
        verifies="compose has made it of the files as they were",
    )


def policy_as_before(one: Composed) -> Step:
    return Step(
        id=f"back-policy{one.mark}",
        title=f"Restart policy of {one.project.container_name} back to {steps_of.policy_word(one.box)}",
        node=one.box.node,
        act=Remote(operations=(_update(one, f"/containers/{one.project.container_name}", is_back=True),)),
        limit_s=60.0,
        verifies=f"its restart policy is {one.box.policy}",
    )


# --- operations


def _compose(one: Composed, *words: str, override: str, content: str = "", given: bool = True) -> Command:
    unset = tuple(word for name in (one.unset if given else ()) for word in ("-u", name))
    argv = one.project.argv(*words, override=override)
    return Command(
        argv=("env", *unset, *argv) if unset else argv,
        limit_s=60.0,
        environment=dict(one.given if given else one.project.given),
        content=content,
    )


def _up(one: Composed, how: str, *, override: str, given: bool = True) -> Command:
    words = ("up", how, "--no-deps", "--", one.project.service)
    return replace(_compose(one, *words, override=override, given=given), limit_s=UP_LIMIT_S)


def _up_before(one: Composed, how: str) -> Command:
    return _up(one, how, override=one.project.override if one.project.uses_before else "", given=False)


def _unchanged(one: Composed) -> Command:
    """The override is as it was when the plan was made: it may have been edited since."""
    path = one.project.override
    if one.project.before is None:
        return Command(argv=("test", "!", "-e", path), limit_s=10.0)
    return Command(argv=("cmp", "--", "{content}", path), content=one.project.before, limit_s=10.0)


def _write(one: Composed, text: str) -> Command:
    return Command(
        argv=("install", "-m", "0644", "-T", "--", "{content}", one.project.override), content=text, limit_s=15.0
    )


def _file_back(one: Composed) -> Iterator[Command]:
    if one.project.before is None:
        yield Command(argv=("rm", "-f", "--", one.project.override), limit_s=15.0)
    else:
        yield _write(one, one.project.before)


def _name_back(one: Composed) -> DockerCall:
    """Version 1 gives the old one another name while it makes the new one, and leaves it so where that fails.

    400 where it has its name, 404 where it is gone, 409 where its successor has the name.
    """
    return DockerCall(
        method="POST", path=f"{one.box.path}/rename", query={"name": one.name}, accepts=(204, 400, 404, 409)
    )


def _update(one: Composed, path: str, *, is_back: bool) -> DockerCall:
    body = one.box.policy_body if is_back else _NO_POLICY
    return DockerCall(method="POST", path=f"{path}/update", body=body, accepts=(200, 404))
