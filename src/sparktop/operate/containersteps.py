"""The steps of a container's end and beginning, as restart, stop and loop-breaking use them. Pure.

Each call names the container by its whole id, and is preceded by the question whether it is still the same run of the
same container: a name can be taken by another, an id can have been started anew (facts/reliability.md section 3.3).
"""

from __future__ import annotations

from sparktop.model.engine import Engine
from sparktop.model.operation import DockerCall, Expect
from sparktop.model.plan import AwaitGone, OnFailure, Remote, Step
from sparktop.operate.inspected import Inspected

GRACE_S = 60.0
"""vLLM and SGLang need up to so long after SIGTERM (facts/engines.md section 6.5); Docker's own is 10 s."""
GRACE_LONGEST_S = 600.0
KILL_S = 30.0
GONE_S = 90.0


def grace_option(text: str) -> float:
    """Seconds of grace.

    Raises:
        ValueError: it isn't a number between 1 and GRACE_LONGEST_S; says so.
    """
    if not text:
        return GRACE_S
    if not text.isdecimal() or not 1 <= int(text) <= GRACE_LONGEST_S:
        raise ValueError(f"seconds between 1 and {GRACE_LONGEST_S:.0f} are wanted for the grace, not {text[:20]!r}")
    return float(text)


def same_run(box: Inspected) -> Expect:
    """It is still this run of this container; of one that is started again and again, this container."""
    if box.loops:
        return same_container(box)
    return Expect(
        path=f"{box.path}/json",
        equals={"Id": box.container_id, "Name": f"/{box.name}", "State.StartedAt": box.started_at},
        otherwise=f"{box.name} was started anew, renamed or removed since the plan was made: plan again",
    )


def same_container(box: Inspected) -> Expect:
    return Expect(
        path=f"{box.path}/json",
        equals={"Id": box.container_id, "Name": f"/{box.name}"},
        otherwise=f"{box.name} was renamed or removed since the plan was made",
    )


def policy_call(box: Inspected, *, back: bool) -> DockerCall:
    """Docker's update of the restart policy: to "no", or back to what it was."""
    return DockerCall(
        method="POST",
        path=f"{box.path}/update",
        body=box.policy_body if back else {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}},
        accepts=(200,),
        done_when=Expect(
            path=f"{box.path}/json", equals={"HostConfig.RestartPolicy.Name": box.policy if back else "no"}
        ),
    )


def policy_off(box: Inspected, mark: str) -> Step:
    """Docker does not start it by itself any more."""
    return Step(
        id=f"policy-off{mark}",
        title=f"Switch the restart policy of {box.name} off (it is {box.policy})",
        node=box.node,
        act=Remote(operations=(same_run(box), policy_call(box, back=False)), undo=(policy_call(box, back=True),)),
        limit_s=60.0,
        verifies="its restart policy is no",
        undone_by=f"docker update --restart={policy_word(box)} {box.name}",
    )


def policy_back(box: Inspected, mark: str, on_failure: OnFailure = OnFailure.STOP) -> Step:
    """As it was."""
    return Step(
        id=f"policy-back{mark}",
        title=f"Restart policy of {box.name} back to {policy_word(box)}",
        node=box.node,
        act=Remote(operations=(same_container(box), policy_call(box, back=True))),
        limit_s=60.0,
        verifies=f"its restart policy is {box.policy}",
        undone_by=f"docker update --restart=no {box.name}",
        undoes=(f"policy-off{mark}",),
        on_failure=on_failure,
    )


def policy_word(box: Inspected) -> str:
    """As `docker update --restart` takes it."""
    return f"on-failure:{box.policy_retries}" if box.policy == "on-failure" and box.policy_retries else box.policy


def stop(box: Inspected, mark: str, grace_s: float, *, policy_back_if_not: bool = True) -> Step:
    """SIGTERM, and after the grace Docker's own SIGKILL.

    500 is Docker's answer where even that showed no end in its time: the next step sees to it. With
    `policy_back_if_not` the policy goes back to what it was where it can't be stopped at all.
    """
    call = DockerCall(
        method="POST",
        path=f"{box.path}/stop",
        query={"t": f"{grace_s:.0f}"},
        accepts=(204, 304, 404, 500) if box.auto_remove else (204, 304, 500),
        limit_s=grace_s + 30.0,
        done_when=Expect(path=f"{box.path}/json", equals={"State.Running": False}, within_s=grace_s + 15.0),
    )
    undo = (policy_call(box, back=True),) if box.restarts and policy_back_if_not else ()
    return Step(
        id=f"stop{mark}",
        title=f"Stop {box.name}, {grace_s:.0f} s grace",
        node=box.node,
        act=Remote(operations=(same_run(box), call), undo=undo),
        limit_s=2 * grace_s + 90.0,
        verifies="it has ended, or the next step ends it",
        undone_by=f"docker start {box.name}",
    )


def kill(box: Inspected, mark: str) -> Step:
    """SIGKILL to what the stop left; nothing where it has ended."""
    ended = Expect(
        path=f"{box.path}/json",
        equals={"State.Running": False},
        otherwise=f"{box.name} outlives SIGKILL: a process of it is stuck in the kernel, and only a reboot ends that",
        within_s=KILL_S,
    )
    call = DockerCall(
        method="POST",
        path=f"{box.path}/kill",
        query={"signal": "KILL"},
        accepts=(204, 404, 409),  # 409: it doesn't run
        limit_s=KILL_S,
        done_when=ended,
    )
    # Docker removes a container of --rm when it ends: there is nothing left to be asked.
    operations = (call,) if box.auto_remove else (same_run(box), call, ended)
    return Step(
        id=f"kill{mark}",
        title=f"Kill {box.name} if it still runs",
        node=box.node,
        act=Remote(operations=operations),
        limit_s=3 * KILL_S,
        verifies="it does not run",
    )


def gone(engine: Engine, node: str, mark: str, container_id: str = "", pid: int | None = None) -> Step:
    """Its processes are out of the table, and the GPU's list has none of them."""
    pids = tuple(sorted({*engine.pids, *((pid,) if pid else ())}))
    return Step(
        id=f"gone{mark}",
        title=f"Wait until the processes of {engine.name} are gone",
        node=node,
        act=AwaitGone(pids=pids, container_id=container_id),
        limit_s=GONE_S,
        verifies="no process and no GPU process of it is left",
    )


def start(box: Inspected, mark: str) -> Step:
    """The same container again, unless somebody has started it meanwhile."""
    still = Expect(
        path=f"{box.path}/json",
        equals={
            "Id": box.container_id,
            "Name": f"/{box.name}",
            "State.Running": False,
            **({} if box.loops else {"State.StartedAt": box.started_at}),
        },
        otherwise=f"{box.name} was started by somebody else meanwhile, renamed or removed",
    )
    return Step(
        id=f"start{mark}",
        title=f"Start {box.name}",
        node=box.node,
        act=Remote(operations=(still, start_call(box))),
        limit_s=150.0,
        verifies="Docker says that it runs",
        undone_by=f"docker stop -t {GRACE_S:.0f} {box.name}",
        undoes=(f"stop{mark}",),
    )


def start_again(box: Inspected, mark: str) -> Step:
    """The way back's start: nothing to do where it runs."""
    return Step(
        id=f"start{mark}",
        title=f"Start {box.name}, unless it runs",
        node=box.node,
        act=Remote(operations=(same_container(box), start_call(box))),
        limit_s=150.0,
        verifies="Docker says that it runs",
        undoes=(f"stop{mark}",),
    )


def start_call(box: Inspected) -> DockerCall:
    return DockerCall(
        method="POST",
        path=f"{box.path}/start",
        accepts=(204, 304),
        limit_s=60.0,
        done_when=Expect(path=f"{box.path}/json", equals={"State.Running": True}),
    )
