"""The gate: whether a plan may be run now. The conditions of every change, in one place. Pure.

Actions that change nothing on a Spark (collecting evidence, watching a node come back) are needed most where a node
is ill: they pass read-only, protected hosts and a stale picture. Where no runner can be asked, the archive says what
is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from sparktop.errors import UsageError
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.operation import DockerCall, Expect
from sparktop.model.plan import AwaitBack, AwaitGone, GuardOrder, MeasureLink, MeasurePower, Plan, Remote, Request, Step
from sparktop.model.proof import Prove
from sparktop.operate.refused import Refused
from sparktop.transport.targets import parse_target

PLAN_MAX_AGE_S = 120.0
STALE_INTERVALS = 3.0
STALE_AT_LEAST_S = 3.0
"""As on the observing side: older samples are no basis for an action."""
STARTED_TOLERANCE_S = 1.5
_ID = re.compile(r"[0-9a-f]{64}")
_CONTAINER = re.compile(r"^/containers/([0-9a-f]{64})/")


def only_looks(request: Request) -> bool:
    """Whether the request changes nothing on a Spark."""
    watches = request.action == "reboot" and request.options.get("watch_only") == "yes"
    return request.action == "collect-evidence" or watches


def changes(step: Step) -> bool:
    """Whether a step changes something on its node, or loads it so that nothing else should run there."""
    return isinstance(step.act, Remote | GuardOrder | MeasureLink | MeasurePower | Prove)


def is_protected(node: str, protected: Collection[str]) -> bool:
    """Whether the configuration protects a host, by its name as typed, with or without user and port."""
    if node in protected:
        return True
    try:
        return parse_target(node).host in protected
    except UsageError:
        return False


def request_refusal(request: Request, *, is_read_only: bool, protected: Collection[str] = ()) -> Refused | None:
    """Why a request can't be planned, before any node is asked: read-only session or protected host."""
    if only_looks(request):
        return None
    return _forbidden_refusal(request.nodes, is_read_only=is_read_only, protected=protected)


def unreachable_refusal(request: Request, picture: FleetState) -> Refused | None:
    """Why a request can't be planned: a node's connection is gone.

    A node whose samples have stopped is asked all the same: the connection for actions may still work.
    """
    if only_looks(request):
        return None
    for name in request.nodes:
        view = picture.node(name)
        if view is not None and view.link.state in (LinkState.LOST, LinkState.REFUSED):
            return Refused(
                f"{name} can't be reached now ({view.link.trouble}). sparktop reconnects by itself.",
                (
                    *((view.link.hint,) if view.link.hint else ()),
                    f"wait until {name} answers; if it doesn't, power-cycle it",
                    "meanwhile collect evidence: it saves the last data seen from this node",
                ),
            )
    return None


def plan_refusal(
    plan: Plan,
    picture: FleetState,
    *,
    now_s: float,
    is_read_only: bool,
    protected: Collection[str] = (),
    busy: Mapping[str, str] | None = None,
) -> Refused | None:
    """Why a plan may not be run now; None where it may.

    `now_s` is the operator's monotonic clock, `busy` says by node what else this session is doing there.
    """
    if not plan.steps:
        return Refused("Nothing to do: the plan has no steps.", _PLAN_AGAIN)
    if not any(changes(step) for step in plan.steps):
        return None
    nodes = tuple(dict.fromkeys((*plan.request.nodes, *plan.nodes)))
    if (refusal := _forbidden_refusal(nodes, is_read_only=is_read_only, protected=protected)) is not None:
        return refusal
    for node in nodes:
        if node in (busy or {}):
            return Refused(
                f"{node} is in use by this session: {(busy or {})[node]}.",
                ("wait until that is done, or abort it first",),
            )
    age_s = now_s - plan.seen_monotonic_s
    if age_s > PLAN_MAX_AGE_S:
        return Refused(f"The plan is {age_s:.0f} s old; what it was made from may have changed.", _PLAN_AGAIN)
    for node in nodes:
        if (refusal := _stale_refusal(picture.node(node), node, now_s)) is not None:
            return refusal
    for step in plan.steps:
        view = picture.node(step.node)
        if view is not None and (why := next(_changes_since_plan(step, view), None)) is not None:
            return Refused(why, _PLAN_AGAIN)
    return None


_PLAN_AGAIN = ("plan it again, from what is there now",)


def _forbidden_refusal(nodes: tuple[str, ...], *, is_read_only: bool, protected: Collection[str]) -> Refused | None:
    if is_read_only:
        return Refused(
            "This session is read-only: it changes nothing on a Spark.",
            ("start sparktop without --read-only, and without `read_only = true` in its configuration",),
        )
    if names := [node for node in nodes if is_protected(node, protected)]:
        return Refused(
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} protected by your configuration.",
            ("take `protected = true` of this host out of config.toml",),
        )
    return None


def _stale_refusal(view: NodeView | None, node: str, now_s: float) -> Refused | None:
    if view is None:
        return Refused(f"{node} is not watched by this session.", (f"sparktop {node}",))
    if view.link.state is not LinkState.LIVE:
        return Refused(
            f"{node} is not live ({view.link.trouble}): the screen shows its past.",
            (*((view.link.hint,) if view.link.hint else ()), "wait until the link is live, then plan again"),
        )
    age_s = view.age_s(now_s)
    if view.sample is None or age_s is None:
        return Refused(f"No figures yet from {node}.", ("wait for its first figures",))
    if age_s > max(STALE_AT_LEAST_S, STALE_INTERVALS * view.sample.interval_s):
        return Refused(
            f"The newest figures of {node} are {age_s:.0f} s old: too old to act on.",
            ("wait until figures come again, then plan again",),
        )
    return None


def _changes_since_plan(step: Step, view: NodeView) -> Iterator[str]:
    """Sentences on what the step refers to and the node no longer has."""
    act = step.act
    if isinstance(act, Remote):
        for operation in act.operations:
            if isinstance(operation, DockerCall) and 404 in operation.accepts:
                continue  # a container that is gone is fine for it
            if isinstance(operation, DockerCall | Expect) and (container := _CONTAINER.match(operation.path)):
                started_at = operation.equals.get("State.StartedAt") if isinstance(operation, Expect) else None
                yield from _container_changes(container[1], started_at, view)
    elif isinstance(act, GuardOrder) and _ID.fullmatch(act.container_id):
        yield from _container_changes(act.container_id, None, view, act.container_name)
    elif isinstance(act, AwaitGone):
        if act.container_id:
            yield from _container_changes(act.container_id, None, view)
        elif act.pids and view.processes is not None:
            alive = {process.pid for process in view.processes.processes}
            alive |= {user.pid for user in view.gpu_processes}
            if not alive & set(act.pids):
                yield f"Process {', '.join(map(str, act.pids))} is gone from {view.name}."
    elif isinstance(act, AwaitBack) and view.facts is not None and view.facts.boot_id not in ("", act.boot_id):
        yield f"{view.name} has been rebooted since."


def _container_changes(container_id: str, started_at: object, view: NodeView, name: str = "") -> Iterator[str]:
    containers = view.containers
    if not containers.available:
        return  # the list is not available here; the step's own Expect asks Docker on the node
    container = next((candidate for candidate in containers.containers if candidate.container_id == container_id), None)
    if container is None:
        yield f"Container {name or container_id[:12]} is gone from {view.name}."
        return
    planned_s = _epoch(started_at)
    if planned_s is None or container.started_wall_s is None:
        return
    if abs(container.started_wall_s - planned_s) > STARTED_TOLERANCE_S:
        yield f"{container.name} on {view.name} has been restarted since the plan was made."


def _epoch(stamp: object) -> float | None:
    """Docker's time stamp in seconds; None for one that says "never"."""
    if not isinstance(stamp, str) or stamp.startswith("0001"):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
