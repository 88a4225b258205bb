"""The life of a container, in steps that each check what they rest on.

One that exists is stopped, killed and started again. One that a plan creates ("{NEW}" stands for its id) is made while
an older one may still run, takes that one's name in the step that starts it, and is set aside or removed on the way
back. Containers are removed by id, never by name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any
from urllib.parse import quote

from sparktop.cmdline.container_body import docker_run, one_line, secret_names, shown_line
from sparktop.dataclass import dataclass
from sparktop.model.engine import Engine
from sparktop.model.operation import Command, DockerCall, Expect, Operation
from sparktop.operate.acts.arrivals import AwaitGone
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.inspected import Inspected, image_path
from sparktop.operate.step.plan import OnFailure, Step

GRACE_S = 60.0
"""vLLM and SGLang need up to so long after SIGTERM (docs/facts/engines.md section 6.5); Docker's default is 10 s."""
GRACE_LONGEST_S = 600.0
NEW = "{NEW}"
"""Placeholder for the id of the container that the step "make" creates (`operate.step.placeholders`)."""
NEW_PATH = f"/containers/{NEW}"
NO_POLICY: Mapping[str, Any] = {"Name": "no", "MaximumRetryCount": 0}
KILL_S = 30.0
GONE_S = 90.0


def grace_option(text: str) -> float:
    """The grace period in seconds; GRACE_S for an empty text.

    Raises:
        ValueError: it is no whole number between 1 and GRACE_LONGEST_S; the text says so.
    """
    if not text:
        return GRACE_S
    if not text.isdecimal() or not 1 <= int(text) <= GRACE_LONGEST_S:
        raise ValueError(f"the grace must be between 1 and {GRACE_LONGEST_S:.0f} seconds, not {text[:20]!r}")
    return float(text)


def _state(container: Inspected, otherwise: str, **more: Any) -> Expect:
    """The container has its id and its name, and what `more` says of its State."""
    named = {"Id": container.container_id, "Name": f"/{container.name}"}
    states = {f"State.{name}": value for name, value in more.items()}
    return Expect(path=f"{container.path}/json", equals={**named, **states}, otherwise=otherwise)


def same_run(container: Inspected) -> Expect:
    """The container is still in the same run; where its runs can't be told apart, it is the same container."""
    if container.loops or not container.started_at:
        return same_container(container)
    otherwise = f"{container.name} was restarted, renamed or removed since the plan was made: plan again"
    return _state(container, otherwise, StartedAt=container.started_at)


def same_container(container: Inspected) -> Expect:
    return _state(container, f"{container.name} was renamed or removed since the plan was made")


def still_stopped(container: Inspected) -> Expect:
    """The container is down since its last run, and has its name."""
    otherwise = f"{container.name} was started, renamed or removed by somebody else meanwhile"
    is_one_run = container.started_at and not container.loops
    run = {"StartedAt": container.started_at} if is_one_run else {}
    return _state(container, otherwise, Running=False, **run)


def policy_call(container: Inspected, *, back: bool) -> DockerCall:
    """Docker's update of the restart policy: to "no", or back to its former value."""
    return update_policy(container.path, container.policy_body if back else NO_POLICY)


AGAIN_S = 30.0
"""How long a call is repeated that Docker answers with 500 for a moment, seconds: between two runs of a container that
loops, and while it removes one."""


def policy_off(container: Inspected, mark: str) -> Step:
    """Switch the restart policy off.

    Docker answers 500 ("task not found", "cannot update a stopped container") where the container ends while it is
    updated, and leaves the policy on: of one that ends again and again the update is repeated.
    """
    call = replace(policy_call(container, back=False), again_s=AGAIN_S if container.loops else None)
    return Step(
        id=f"policy-off{mark}",
        title=f"Switch the restart policy of {container.name} off (it is {container.policy})",
        node=container.node,
        act=Remote(
            operations=(same_run(container), call),
            undo=(policy_call(container, back=True),),
        ),
        limit_s=60.0,
        verifies="its restart policy is no",
    )


def policy_back(container: Inspected, mark: str, on_failure: OnFailure = OnFailure.STOP) -> Step:
    """Restore the restart policy."""
    return Step(
        id=f"policy-back{mark}",
        title=f"Restart policy of {container.name} back to {policy_word(container.policy_body)}",
        node=container.node,
        act=Remote(
            operations=(same_container(container), policy_call(container, back=True)),
            reverse=(policy_call(container, back=False),),
        ),
        limit_s=60.0,
        verifies=f"its restart policy is {container.policy}",
        undoes=(f"policy-off{mark}",),
        on_failure=on_failure,
    )


def policy_word(policy: Mapping[str, Any]) -> str:
    """The policy as `docker update --restart` takes it."""
    name, retries = str(policy.get("Name")), policy.get("MaximumRetryCount")
    return f"{name}:{retries}" if name == "on-failure" and retries else name


def policy_command(name: str, policy: Mapping[str, Any]) -> str:
    """The command that sets a container's restart policy."""
    return f"docker update --restart={policy_word(policy)} {name}"


def stop(container: Inspected, mark: str, grace_s: float, *, policy_back_if_not: bool = True) -> Step:
    """SIGTERM, and after the grace period Docker's SIGKILL.

    500 is Docker's answer where the container has not ended even then: the next step kills it. With
    `policy_back_if_not` the restart policy is restored where the container can't be stopped at all.
    """
    call = _post(
        f"{container.path}/stop",
        (204, 304, 404, 500) if container.auto_remove else (204, 304, 500),
        query={"t": f"{grace_s:.0f}"},
        limit_s=grace_s + 30.0,
        done_when=Expect(path=f"{container.path}/json", equals={"State.Running": False}, within_s=grace_s + 15.0),
    )
    undo = (policy_call(container, back=True),) if container.restarts and policy_back_if_not else ()
    return Step(
        id=f"stop{mark}",
        title=f"Stop {container.name}, {grace_s:.0f} s grace",
        node=container.node,
        act=Remote(
            operations=(same_run(container), call),
            undo=undo,
            reverse=() if container.auto_remove else (start_call(container.path),),
        ),
        limit_s=2 * grace_s + 90.0,
        verifies="it has stopped, or the next step kills it",
        stops=container.name,
    )


def kill(container: Inspected, mark: str) -> Step:
    """SIGKILL if the container still runs."""
    ended = Expect(
        path=f"{container.path}/json",
        equals={"State.Running": False},
        otherwise=f"{container.name} survives SIGKILL: one of its processes is stuck in the kernel, and only a "
        "reboot removes it",
        within_s=KILL_S,
    )
    call = _post(f"{container.path}/kill", (204, 404, 409), query={"signal": "KILL"}, limit_s=KILL_S, done_when=ended)
    # Docker removes a container of --rm when it ends: there is nothing left to check.
    operations = (call,) if container.auto_remove else (same_run(container), call, ended)
    return Step(
        id=f"kill{mark}",
        title=f"Kill {container.name} if it still runs",
        node=container.node,
        act=Remote(operations=operations),
        limit_s=3 * KILL_S,
        verifies="it does not run",
        stops=container.name,
    )


def stays_stopped(container: Inspected, mark: str) -> Step:
    """Check that it is there, stopped, with the restart policy that it had; Docker calls none "no" or ""."""
    otherwise = f"{container.name} runs again, or somebody removed it, renamed it or changed its restart policy"
    expected = _state(container, otherwise, Running=False, Restarting=False)
    if container.policy_now != "no":
        policy = {"HostConfig.RestartPolicy.Name": container.policy_now}
        expected = replace(expected, equals={**expected.equals, **policy})
    return Step(
        id=f"stopped{mark}",
        title=f"Check that {container.name} stays stopped",
        node=container.node,
        act=Remote(operations=(expected,)),
        limit_s=30.0,
        verifies="it exists, stopped, with its restart policy",
    )


def gone(engine: Engine, node: str, mark: str, container_id: str = "", pid: int | None = None) -> Step:
    """Wait until its processes are out of the process table and of the GPU's list."""
    pids = tuple(sorted({*engine.pids, *((pid,) if pid else ())}))
    return Step(
        id=f"gone{mark}",
        title=f"Wait until the processes of {engine.name} are gone",
        node=node,
        act=AwaitGone(pids=pids, container_id=container_id),
        limit_s=GONE_S,
        verifies="none of its processes is left, also not on the GPU",
    )


def start(container: Inspected, mark: str) -> Step:
    """Start the same container, unless somebody has started it meanwhile."""
    operations = (still_stopped(container), start_call(container.path))
    return Step(
        id=f"start{mark}",
        title=f"Start {container.name}",
        node=container.node,
        act=Remote(operations=operations, reverse=(_stop_call(container.path),)),
        limit_s=150.0,
        verifies="Docker says that it runs",
        undoes=(f"stop{mark}",),
    )


def start_again(container: Inspected, mark: str) -> Step:
    """The rollback's start: does nothing where the container runs."""
    act = Remote(operations=(same_container(container), start_call(container.path)))
    return replace(start(container, mark), title=f"Start {container.name}, unless it runs", act=act)


# --- a container that a plan creates


@dataclass(frozen=True, slots=True, kw_only=True)
class NewContainer:
    """A container that a plan creates, and the older one, if any, whose name it takes."""

    node: str
    mark: str
    """Suffix of its steps' ids."""
    name: str
    made_at: str = ""
    """The plan's time, in the names of containers that don't have their own; empty where it replaces none."""
    body: Mapping[str, Any] = field(repr=False)
    """Of POST /containers/create: without a restart policy until it has served (docs/facts/engines.md C13)."""
    folder: str = ""
    """Made before it: the user's own, that it mounts."""
    connects: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(network, body of its connect call), after the creation."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Restart policy, set once it has served; empty or "no": none."""
    image_ref: str = ""
    """The image as the body names it."""
    image_id: str = ""
    """Id of the image on the node; empty: it is pulled first."""
    created_as: Mapping[str, Any] = field(default_factory=dict)
    """What tells it from another container of that name, as `docker inspect` has it."""
    old: Inspected | None = None
    shares_volumes: bool = False
    """It has the old container's anonymous volumes: its removal leaves volumes alone."""
    old_body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Creates the old container again, where Docker removes it as it ends (--rm)."""

    @property
    def created_name(self) -> str:
        """Its name until it starts: its own, or a temporary one while another container has that."""
        return self.name if self.old is None else f"{self.name}-next-{self.made_at}"

    @property
    def before_name(self) -> str:
        """The old container's name once it is replaced."""
        return f"{self.name}-before-{self.made_at}"

    @property
    def after_name(self) -> str:
        """The new container's name once it is set aside."""
        return f"{self.name}-failed-{self.made_at}"

    @property
    def has_policy(self) -> bool:
        return is_policy(self.policy)

    @property
    def keeps_old(self) -> bool:
        """Whether the old container is there after its end."""
        return self.old is not None and not self.old.auto_remove

    @property
    def kept_id(self) -> str:
        """Id of the old container where it is there after its end; else empty."""
        return self.old.container_id if self.old is not None and self.keeps_old else ""


def is_policy(policy: Mapping[str, Any]) -> bool:
    """Whether Docker restarts a container of this restart policy."""
    return policy.get("Name") not in ("", "no", None)


def make(new: NewContainer, *, title: str, verifies: str, on_failure: OnFailure = OnFailure.STOP) -> Step:
    """Create the container, so that a rejection or a full disk costs nothing: nothing is stopped or started yet."""
    operations: list[Operation] = [same_run(new.old)] if new.old is not None else []
    if new.image_id:
        operations.append(same_image(new))
    if new.folder:  # by the user: Docker would make it as root
        operations.append(Command(argv=("mkdir", "-p", "--", new.folder)))
    operations.append(
        _post(
            "/containers/create",
            (201,),
            query={"name": new.created_name},
            body=new.body,
            saves="NEW",
            limit_s=120.0,
            done_when=Expect(
                path=f"/containers/{new.created_name}/json", equals={**new.created_as, "State.Status": "created"}
            ),
        )
    )
    operations += (
        _post(f"/networks/{quote(network, safe='')}/connect", (200,), body={"Container": new.created_name, **settings})
        for network, settings in new.connects
    )
    return Step(
        id=f"make{new.mark}",
        title=title,
        node=new.node,
        act=Remote(operations=tuple(operations), undo=(remove_new(new),)),
        limit_s=200.0,
        verifies=verifies,
        on_failure=on_failure,
    )


def start_new(
    new: NewContainer,
    *,
    step_id: str,
    title: str,
    verifies: str,
    undo: Iterable[Operation],
    saves_started: str = "",
) -> Step:
    """Give the container its name, which the old one gives up, and start it: completed or reverted by the node itself.

    Args:
        saves_started: save its id once more under this name when it has started.
    """
    created = Expect(
        path=f"{NEW_PATH}/json",
        equals={"Name": f"/{new.created_name}", "State.Running": False},
        otherwise=f"somebody else has renamed, started or removed the new container {new.created_name}",
    )
    operations: list[Operation] = [created]
    if new.old is not None and new.keeps_old:
        operations += [still_stopped(new.old), _rename(new.old.path, new.before_name)]
    elif new.old is not None:  # its name is taken until Docker has removed it
        operations.append(_post(f"{new.old.path}/wait", (200, 404), query={"condition": "removed"}, limit_s=60.0))
    if new.created_name != new.name:
        operations.append(_rename(NEW_PATH, new.name))
    operations.append(start_call(NEW_PATH, limit_s=120.0))
    if saves_started:
        operations.append(DockerCall(method="GET", path=f"{NEW_PATH}/json", accepts=(200,), saves=saves_started))
    reverse: tuple[Operation, ...] = (_stop_call(NEW_PATH),)
    if new.keeps_old:  # it is started again by what undoes its stop
        reverse = (*reverse, _rename(NEW_PATH, new.created_name), *restore_name(new))
    elif new.old is not None:  # Docker removed it: only the rollback makes it again
        reverse = ()
    return Step(
        id=f"{step_id}{new.mark}",
        title=title,
        node=new.node,
        act=Remote(operations=tuple(operations), undo=tuple(undo), reverse=reverse),
        limit_s=300.0,
        verifies=verifies,
        on_failure=OnFailure.ROLL_BACK,
    )


def set_old_aside(new: NewContainer) -> Step:
    """Have the old container give up its name to one that somebody else makes; one of --rm is gone by then."""
    assert new.old is not None  # there is one
    aside = _rename(new.old.path, new.before_name)
    return Step(
        id=f"aside{new.mark}",
        title=f"Rename {new.name} to {new.before_name}",
        node=new.node,
        act=Remote(operations=(still_stopped(new.old), aside), undo=restore_name(new)),
        limit_s=60.0,
        verifies="its name is free",
        on_failure=OnFailure.ROLL_BACK,
    )


def policy_on(node: str, mark: str, name: str, policy: Mapping[str, Any]) -> tuple[Step, ...]:
    """Give the new container its restart policy, once it has served; no step where that is none."""
    word = policy.get("Name")
    step = Step(
        id=f"policy{mark}",
        title=f"Give {name} its restart policy: {word}",
        node=node,
        act=Remote(operations=(update_policy(NEW_PATH, policy),), reverse=(update_policy(NEW_PATH, NO_POLICY),)),
        limit_s=60.0,
        verifies=f"its restart policy is {word}",
        on_failure=OnFailure.FAIL_AT_END,
    )
    return (step,) if is_policy(policy) else ()


def remove_old(new: NewContainer) -> Step:
    """Remove the old container, where the operator asked for it; its volumes stay."""
    assert new.old is not None  # there is one to remove
    kept = Expect(
        path=f"{new.old.path}/json",
        equals={"Name": f"/{new.before_name}", "State.Running": False},
        otherwise=f"{new.before_name} was renamed or started meanwhile",
    )
    call = DockerCall(method="DELETE", path=new.old.path, accepts=(204, 404), limit_s=120.0)
    return Step(
        id=f"remove{new.mark}",
        title=f"Remove {new.before_name}",
        node=new.node,
        act=Remote(operations=(kept, call)),
        limit_s=180.0,
        verifies="it is removed; its volumes stay",
        on_failure=OnFailure.GO_ON,
    )


def typed_new(new: NewContainer, image: Mapping[str, Any] | None) -> Iterator[str]:
    """What creates and starts it, by hand; secrets named, never written."""
    where = f"on {new.node}: "
    if new.keeps_old:
        yield f"{where}docker rename {new.name} {new.before_name}"
    if hidden := secret_names([str(pair) for pair in new.body.get("Env") or ()]):
        yield f"{where}export {' '.join(map(shlex.quote, hidden))}   # each with its value"
    line = docker_run(new.name, new.body, image)
    joined = docker_run(new.name, new.body, image, connects=new.connects).removeprefix(line)
    for row in (one_line(line), *joined.splitlines()[1:]):
        yield where + shown_line(row)
    yield from typed_policy(new.node, new.name, new.policy)


def typed_policy(node: str, name: str, policy: Mapping[str, Any]) -> Iterator[str]:
    """What gives a new container its restart policy, by hand."""
    if is_policy(policy):
        yield f"on {node}: {policy_command(name, policy)}   # when it has served"


# --- its rollback


def stop_new(
    node: str,
    mark: str,
    grace_s: float,
    *,
    name: str,
    title: str,
    step_id: str = "back-aside",
    aside_name: str = "",
    can_have_policy: bool = True,
    verifies: str = "it does not run",
    undoes: tuple[str, ...] = (),
    on_failure: OnFailure = OnFailure.STOP,
) -> Step:
    """Rollback step: stop the new container, kill it if it still runs, and rename it, or remove one that never ran;
    nothing where there is none.

    Args:
        aside_name: its name from then on; empty: it keeps its name.
        can_have_policy: False for a container of --rm, which Docker gives none.
    """
    calls = [
        _post(f"{NEW_PATH}/stop", (204, 304, 404, 500), query={"t": f"{grace_s:.0f}"}, limit_s=grace_s + 45.0),
        _post(f"{NEW_PATH}/kill", (204, 404, 409, 500), query={"signal": "KILL"}),
    ]
    if can_have_policy:
        calls.insert(0, update_policy(NEW_PATH, NO_POLICY, accepts=(200, 404, 409, 500), is_checked=False))
    if aside_name:  # for its log, which one that never ran hasn't
        never_ran = Expect(path=f"{NEW_PATH}/json", equals={"State.Status": "created"})
        remove = DockerCall(method="DELETE", path=NEW_PATH, accepts=(204, 404, 409), limit_s=90.0, only_where=never_ran)
        calls += [remove, rename_back(NEW_PATH, aside_name)]
    return Step(
        id=f"{step_id}{mark}",
        title=title,
        node=node,
        act=Remote(operations=tuple(calls)),
        limit_s=2 * grace_s + 150.0,
        verifies=verifies,
        undoes=tuple(f"{undone}{mark}" for undone in undoes),
        stops=name,
        leaves=aside_name,
        on_failure=on_failure,
    )


def restore_old(new: NewContainer) -> Step:
    """Rollback step: give the old container its name and policy back, and start it if it ran."""
    old = new.old
    assert old is not None  # there is one to restore
    runs = old.was_running
    operations: list[Operation]
    if old.auto_remove:
        create, start_it = start_old(new)
        recreated = Expect(
            path=f"/containers/{new.name}/json",
            equals={"Image": old.image_id, "HostConfig.AutoRemove": True},
            otherwise=f"another container has taken the name {new.name}: the old one was not recreated",
        )
        operations = [create, recreated, start_it]
    else:
        operations = [*restore_name(new), *(start_old(new) if runs else ())]
        if old.restarts and not old.loops:
            operations.append(restore_policy(old))
    return Step(
        id=f"back-old{new.mark}",
        title=f"Put the old {new.name} back in its place {'and start it' if runs else 'stopped, as it was'}",
        node=new.node,
        act=Remote(operations=tuple(operations)),
        limit_s=240.0,
        verifies="it has its name" + (" and runs" if runs else ""),
        undoes=tuple(f"{name}{new.mark}" for name in ("stop", *(() if old.loops else ("policy-off",)))),
    )


# --- operations


def _post(path: str, accepts: tuple[int, ...], **more: Any) -> DockerCall:
    return DockerCall(method="POST", path=path, accepts=accepts, **more)


def same_image(new: NewContainer) -> Expect:
    """The body's image is still the planned one: a tag can move while the plan is read."""
    return Expect(
        path=image_path(new.image_ref) or f"/images/{new.image_id}/json",
        equals={"Id": new.image_id},
        otherwise=f"the image {new.image_ref} was removed or replaced: plan again",
    )


def update_policy(
    path: str, policy: Mapping[str, Any], *, accepts: tuple[int, ...] = (200,), is_checked: bool = True
) -> DockerCall:
    """Docker's update of a restart policy."""
    done = Expect(path=f"{path}/json", equals={"HostConfig.RestartPolicy.Name": policy.get("Name")})
    return _post(
        f"{path}/update", accepts, body={"RestartPolicy": dict(policy)}, done_when=done if is_checked else None
    )


def restore_policy(container: Inspected) -> DockerCall:
    """The restart policy back, where the container is still there."""
    return replace(policy_call(container, back=True), accepts=(200, 404))


def _stop_call(path: str) -> DockerCall:
    return _post(f"{path}/stop", (204, 304), query={"t": f"{GRACE_S:.0f}"})


def start_call(path: str, *, limit_s: float = 60.0, accepts: tuple[int, ...] = (204, 304)) -> DockerCall:
    return _post(
        f"{path}/start", accepts, limit_s=limit_s, done_when=Expect(path=f"{path}/json", equals={"State.Running": True})
    )


def start_old(new: NewContainer) -> Iterator[DockerCall]:
    """Start the old container; one of --rm is gone and is created again."""
    assert new.old is not None
    if new.keeps_old:
        yield start_call(new.old.path, limit_s=120.0, accepts=(204, 304, 404))
        return
    yield _post("/containers/create", (201, 409), query={"name": new.name}, body=new.old_body, limit_s=120.0)
    yield start_call(f"/containers/{new.name}", limit_s=120.0)


def remove_new(new: NewContainer) -> DockerCall:
    """Remove the new container, with the volumes that only it has: not those that it shares with the old one."""
    volumes = {} if new.shares_volumes else {"v": "true"}
    return DockerCall(
        method="DELETE", path=NEW_PATH, query={"force": "true", **volumes}, accepts=(204, 404, 409), limit_s=90.0
    )


def _rename(path: str, name: str) -> DockerCall:
    return _post(
        f"{path}/rename",
        (204,),
        query={"name": name},
        done_when=Expect(path=f"{path}/json", equals={"Name": f"/{name}"}),
    )


def rename_back(path: str, name: str) -> DockerCall:
    """Undo a rename; Docker answers 404 where it was never done, 409 where the name is given already.

    While Docker removes a container of --rm it answers 500 ("open .../.tmp-config.v2...: no such file"), and 404 once
    that container is gone and its name free: the call is repeated until then.
    """
    return _post(f"{path}/rename", (204, 404, 409), query={"name": name}, again_s=AGAIN_S)


def free_name(new: NewContainer) -> tuple[Operation, ...]:
    """Remove what has the old container's name and doesn't run: never the old one itself, which first gives it up.

    A unit's `docker run` leaves its container behind, stopped, under that name, and nobody learns its id. Docker
    answers 400 to a container that is given the name it has.
    """
    assert new.old is not None
    aside = _post(f"{new.old.path}/rename", (204, 400, 404, 409), query={"name": new.before_name}, again_s=AGAIN_S)
    moved = Expect(path=f"/containers/{new.before_name}/json", equals={"Id": new.old.container_id})
    remove = DockerCall(method="DELETE", path=f"/containers/{new.name}", accepts=(204, 404), limit_s=90.0)
    if new.keeps_old:
        return aside, moved, remove
    return aside, remove, rename_back(new.old.path, new.name)  # gone, or its name back if it never ended


def restore_name(new: NewContainer) -> tuple[Operation, ...]:
    """Rename the old container back, and see that it has its name."""
    assert new.old is not None
    has_name = Expect(
        path=f"{new.old.path}/json",
        equals={"Name": f"/{new.name}"},
        otherwise=f"the old container could not get its name {new.name} back",
    )
    return (replace(rename_back(f"/containers/{new.before_name}", new.name), done_when=has_name), has_name)
