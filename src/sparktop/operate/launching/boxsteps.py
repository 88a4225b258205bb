"""The steps of a launch's own containers: made, started, given their policy, and taken away again. Pure.

All are made before anything is stopped or started: what Docker refuses costs nothing then. The id isn't known when the
plan is made, "{NEW}" stands for it; what is taken away is that id, never a name. A name that an older container still
has is given up only in the step that starts the new one, which the Spark finishes or undoes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.operation import DockerCall, Expect, Operation
from sparktop.model.plan import OnFailure, Remote, Step
from sparktop.operate.changing import image_path
from sparktop.operate.launching.place import NEW, STARTED, Place
from sparktop.recipe.labels import LAUNCH

_PATH = f"/containers/{NEW}"
_NO_POLICY = {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}}


def make(one: Place) -> Step:
    """The container, not started."""
    operations: list[Operation] = []
    path = image_path(one.rank.container.image)
    if one.image_id and path is not None:
        operations.append(
            Expect(
                path=path,
                equals={"Id": one.image_id},
                otherwise=f"the image {one.rank.container.image} was removed, or is another one by now: plan again",
            )
        )
    if one.taken is not None:
        operations.append(_still_named(one))
    operations.append(
        DockerCall(
            method="POST",
            path="/containers/create",
            query={"name": one.made_name},
            body=one.body,
            accepts=(201,),
            saves="NEW",
            limit_s=120.0,
            done_when=Expect(
                path=f"/containers/{one.made_name}/json",
                equals={f"Config.Labels.{LAUNCH}": one.stamp, "State.Status": "created"},
            ),
        )
    )
    named = f", as {one.made_name} until it takes the name" if one.taken is not None else ""
    return Step(
        id=f"make{one.mark}",
        title=f"Make the container {one.name}{named}",
        node=one.node,
        act=Remote(operations=tuple(operations), undo=(_gone(),)),
        limit_s=200.0,
        verifies="Docker takes it; nothing runs yet",
        undone_by=f"docker rm {one.made_name}",
        on_failure=OnFailure.ROLL_BACK,
    )


def start(one: Place) -> Step:
    """It runs, under its name; or is as it was made, and the older one has its name."""
    made = Expect(
        path=f"{_PATH}/json",
        equals={"Name": f"/{one.made_name}", "State.Running": False},
        otherwise=f"the new container {one.made_name} was renamed, started or removed meanwhile",
    )
    operations: list[Operation] = [made]
    undo: list[Operation] = []
    if one.taken is not None:
        taken = one.taken
        path = f"/containers/{taken.container_id}"
        operations += [
            Expect(
                path=f"{path}/json",
                equals={"Name": f"/{taken.name}", "State.Running": False},
                otherwise=f"{taken.name} was started by somebody meanwhile, renamed or removed",
            ),
            _rename(path, taken.before_name),
            _rename(_PATH, one.name),
        ]
        undo += [_renamed_back(_PATH, one.made_name), *_old_name(one)]
    operations += [
        DockerCall(
            method="POST",
            path=f"{_PATH}/start",
            accepts=(204, 304),
            limit_s=120.0,
            done_when=Expect(path=f"{_PATH}/json", equals={"State.Running": True}),
        ),
        DockerCall(method="GET", path=f"{_PATH}/json", accepts=(200,), saves=STARTED),
    ]
    renames = f"; the old one becomes {one.taken.before_name}" if one.taken is not None else ""
    return Step(
        id=f"start{one.mark}",
        title=f"Start {one.name}{renames}",
        node=one.node,
        act=Remote(operations=tuple(operations), undo=tuple(undo)),
        limit_s=300.0,
        verifies="Docker says that it runs",
        undone_by=f"docker stop {one.name}",
        on_failure=OnFailure.ROLL_BACK,
    )


def policy_on(one: Place) -> Step:
    """It has served: now Docker may bring it back by itself."""
    name = one.policy.get("Name")
    call = DockerCall(
        method="POST",
        path=f"{_PATH}/update",
        body={"RestartPolicy": dict(one.policy)},
        accepts=(200,),
        done_when=Expect(path=f"{_PATH}/json", equals={"HostConfig.RestartPolicy.Name": name}),
    )
    return Step(
        id=f"policy{one.mark}",
        title=f"Give {one.name} its restart policy: {name}",
        node=one.node,
        act=Remote(operations=(call,)),
        limit_s=60.0,
        verifies=f"its restart policy is {name}",
        undone_by=f"docker update --restart=no {one.name}",
        on_failure=OnFailure.GO_ON,
    )


# --- the way back


def away(one: Place, grace_s: float) -> Step:
    """Stopped, where it runs; nothing where it was never made."""
    calls = (
        DockerCall(method="POST", path=f"{_PATH}/update", body=_NO_POLICY, accepts=(200, 404, 409, 500)),
        DockerCall(
            method="POST",
            path=f"{_PATH}/stop",
            query={"t": f"{grace_s:.0f}"},
            accepts=(204, 304, 404, 500),
            limit_s=grace_s + 45.0,
        ),
        DockerCall(method="POST", path=f"{_PATH}/kill", query={"signal": "KILL"}, accepts=(204, 404, 409, 500)),
    )
    return Step(
        id=f"back-stop{one.mark}",
        title=f"Stop {one.name} if it runs, {grace_s:.0f} s grace",
        node=one.node,
        act=Remote(operations=calls),
        limit_s=2 * grace_s + 150.0,
        verifies="it does not run",
        undoes=(f"start{one.mark}", f"policy{one.mark}"),
        on_failure=OnFailure.GO_ON,
    )


def remove(one: Place) -> Step:
    """The container that this launch has made, and nothing else; the name back to what had it."""
    operations: list[Operation] = [_gone()]
    if one.taken is not None:
        operations += _old_name(one)
    name = f", and give {one.taken.name} its name back" if one.taken is not None else ""
    return Step(
        id=f"back-remove{one.mark}",
        title=f"Remove the container {one.name} that was made{name}",
        node=one.node,
        act=Remote(operations=tuple(operations)),
        limit_s=180.0,
        verifies="it is gone",
        undoes=(f"make{one.mark}",),
    )


# --- operations


def _still_named(one: Place) -> Expect:
    assert one.taken is not None
    return Expect(
        path=f"/containers/{one.taken.container_id}/json",
        equals={"Id": one.taken.container_id, "Name": f"/{one.taken.name}"},
        otherwise=f"{one.taken.name} was renamed or removed since the plan was made: plan again",
    )


def _gone() -> DockerCall:
    return DockerCall(
        method="DELETE", path=_PATH, query={"force": "true", "v": "true"}, accepts=(204, 404, 409), limit_s=90.0
    )


def _rename(path: str, name: str) -> DockerCall:
    return DockerCall(
        method="POST",
        path=f"{path}/rename",
        query={"name": name},
        accepts=(204,),
        done_when=Expect(path=f"{path}/json", equals={"Name": f"/{name}"}),
    )


def _renamed_back(path: str, name: str) -> DockerCall:
    """409 where it has that name: it never got further."""
    return DockerCall(method="POST", path=f"{path}/rename", query={"name": name}, accepts=(204, 404, 409))


def _old_name(one: Place) -> Iterator[Operation]:
    """From the name that the start gave it: 404 where it never got that far."""
    assert one.taken is not None
    taken = one.taken
    yield DockerCall(
        method="POST",
        path=f"/containers/{taken.before_name}/rename",
        query={"name": taken.name},
        accepts=(204, 404, 409),
    )
