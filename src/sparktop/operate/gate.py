"""Whether a plan may be run now: the conditions of every change, in one place. Pure.

What changes nothing on a Spark (collecting evidence, watching a node come back) is wanted most where a node is ill: it
passes read-only, protected hosts and a stale picture. Where no runner can be asked, the archive says what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sparktop.errors import UsageError
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.operation import DockerCall, Expect
from sparktop.model.plan import AwaitBack, AwaitGone, GuardOrder, Plan, Remote, Request, Step
from sparktop.transport.targets import parse_target

PLAN_MAX_AGE_S = 120.0
STALE_INTERVALS = 3.0
STALE_AT_LEAST_S = 3.0
"""As the observing side has them: older samples are no picture to act on."""
STARTED_TOLERANCE_S = 1.5
_ID = re.compile(r"[0-9a-f]{64}")
_CONTAINER = re.compile(r"^/containers/([0-9a-f]{64})/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    """Why not now, and what to do."""

    reason: str
    remedies: tuple[str, ...] = ()


def only_looks(request: Request) -> bool:
    """Whether what is asked for changes nothing on a Spark."""
    watches = request.action == "reboot" and request.options.get("watch_only") == "yes"
    return request.action == "collect-evidence" or watches


def changes(step: Step) -> bool:
    """Whether a step changes something on its node."""
    return isinstance(step.act, Remote | GuardOrder)


def is_protected(node: str, protected: Collection[str]) -> bool:
    """Whether the configuration protects a host: by the name as it is typed, and with any user or port before it."""
    if node in protected:
        return True
    try:
        return parse_target(node).host in protected
    except UsageError:
        return False


def bars_request(request: Request, *, is_read_only: bool, protected: Collection[str] = ()) -> Barred | None:
    """What is known before anything is asked of a node."""
    if only_looks(request):
        return None
    return _forbidden(request.nodes, is_read_only=is_read_only, protected=protected)


def is_away(request: Request, picture: FleetState) -> Barred | None:
    """What can't be planned because a node can't be asked anything: its connection is gone.

    One whose samples have stopped is asked all the same: the connection for actions may still be heard.
    """
    if only_looks(request):
        return None
    for name in request.nodes:
        view = picture.node(name)
        if view is not None and view.link.state in (LinkState.LOST, LinkState.REFUSED):
            said = f": {view.link.reason}" if view.link.reason and view.link.reason != view.link.state else ""
            return Barred(
                reason=f"{name} can't be asked anything now ({view.link.state}{said}). Nothing can be done over a "
                "connection that is gone; it is tried again by itself.",
                remedies=(
                    *((view.link.hint,) if view.link.hint else ()),
                    "collect evidence: what was last seen of it is kept",
                    "when it is back, arm the guard: it acts on the Spark itself, without the connection",
                ),
            )
    return None


def bars(
    plan: Plan,
    picture: FleetState,
    *,
    now_s: float,
    is_read_only: bool,
    protected: Collection[str] = (),
    busy: Mapping[str, str] | None = None,
) -> Barred | None:
    """What keeps a plan from being run now; None when nothing does.

    `now_s` is the operator's monotonic clock, `busy` says by node what else this session does there.
    """
    if not plan.steps:
        return Barred(reason="There is nothing to do: the plan has no steps.", remedies=_ANEW)
    if not any(changes(step) for step in plan.steps):
        return None
    concerned = tuple(dict.fromkeys((*plan.request.nodes, *plan.nodes)))
    if (found := _forbidden(concerned, is_read_only=is_read_only, protected=protected)) is not None:
        return found
    for node in concerned:
        if node in (busy or {}):
            return Barred(
                reason=f"{node} is taken by this session: {(busy or {})[node]}.",
                remedies=("wait until that is over, or abort it first",),
            )
    age_s = now_s - plan.seen_monotonic_s
    if age_s > PLAN_MAX_AGE_S:
        return Barred(reason=f"The plan is {age_s:.0f} s old; what it was made from may be so no more.", remedies=_ANEW)
    for node in concerned:
        if (found := _stale(picture.node(node), node, now_s)) is not None:
            return found
    for step in plan.steps:
        view = picture.node(step.node)
        if view is not None and (why := next(_moved(step, view), None)) is not None:
            return Barred(reason=why, remedies=_ANEW)
    return None


_ANEW = ("plan it again: what is shown then is what is there now",)


def _forbidden(nodes: tuple[str, ...], *, is_read_only: bool, protected: Collection[str]) -> Barred | None:
    if is_read_only:
        return Barred(
            reason="This session is read-only: it changes nothing on a Spark.",
            remedies=("start sparktop without --read-only, and without `read_only = true` in its configuration",),
        )
    if held := [node for node in nodes if is_protected(node, protected)]:
        return Barred(
            reason=f"{' and '.join(held)} {'is' if len(held) == 1 else 'are'} protected by your configuration.",
            remedies=("take `protected = true` of this host out of config.toml",),
        )
    return None


def _stale(view: NodeView | None, node: str, now_s: float) -> Barred | None:
    if view is None:
        return Barred(reason=f"{node} is not watched by this session.", remedies=(f"sparktop {node}",))
    if view.link.state is not LinkState.LIVE:
        said = view.link.reason if view.link.reason and view.link.reason != view.link.state else ""
        return Barred(
            reason=f"{node} is not live ({view.link.state}{': ' + said if said else ''}): what is shown is past.",
            remedies=(*((view.link.hint,) if view.link.hint else ()), "wait until the link is live, then plan again"),
        )
    age_s = view.age_s(now_s)
    if view.sample is None or age_s is None:
        return Barred(reason=f"Nothing has been seen of {node} yet.", remedies=("wait for its first figures",))
    if age_s > max(STALE_AT_LEAST_S, STALE_INTERVALS * view.sample.interval_s):
        return Barred(
            reason=f"The newest figures of {node} are {age_s:.0f} s old: too old to act on.",
            remedies=("wait until figures come again, then plan again",),
        )
    return None


def _moved(step: Step, view: NodeView) -> Iterator[str]:
    """Sentences on what the step names and the node has no longer."""
    act = step.act
    if isinstance(act, Remote):
        for operation in act.operations:
            if isinstance(operation, DockerCall) and 404 in operation.accepts:
                continue  # it is content with a container that is gone
            if isinstance(operation, DockerCall | Expect) and (found := _CONTAINER.match(operation.path)):
                wanted = operation.equals.get("State.StartedAt") if isinstance(operation, Expect) else None
                yield from _container_moved(found[1], wanted, view)
    elif isinstance(act, GuardOrder) and _ID.fullmatch(act.container_id):
        yield from _container_moved(act.container_id, None, view, act.container_name)
    elif isinstance(act, AwaitGone):
        if act.container_id:
            yield from _container_moved(act.container_id, None, view)
        elif act.pids and view.processes is not None:
            alive = {process.pid for process in view.processes.processes}
            alive |= {user.pid for gpu in (view.gpu.gpus if view.gpu else ()) for user in gpu.processes or ()}
            if not alive & set(act.pids):
                yield f"Process {', '.join(map(str, act.pids))} is not there any more on {view.name}."
    elif isinstance(act, AwaitBack) and view.facts is not None and view.facts.boot_id not in ("", act.boot_id):
        yield f"{view.name} has been rebooted since."


def _container_moved(container_id: str, started: object, view: NodeView, name: str = "") -> Iterator[str]:
    known = view.containers
    if not known.available:
        return  # Docker can't be asked from here; the step's own Expect asks on the node
    found = next((one for one in known.containers if one.container_id == container_id), None)
    if found is None:
        yield f"Container {name or container_id[:12]} is not there any more on {view.name}."
        return
    wanted_s = _epoch(started)
    if wanted_s is None or found.started_wall_s is None:
        return
    if abs(found.started_wall_s - wanted_s) > STARTED_TOLERANCE_S:
        yield f"{found.name} on {view.name} has been started anew since the plan was made."


def _epoch(stamp: object) -> float | None:
    """Docker's time stamp in seconds; None for one that says "never"."""
    if not isinstance(stamp, str) or stamp.startswith("0001"):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
