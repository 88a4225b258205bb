"""The gate: whether a plan may be run now. The conditions of every change, in one place. Pure.

Actions that change nothing on a Spark (collecting evidence, watching a node come back) are needed most where a node
is ill: they pass read-only, protected hosts and a stale picture. Where no runner can be asked, the archive says what
is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparktop.errors import UsageError
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.request import Request
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Plan
from sparktop.transport.targets import parse_target

PLAN_MAX_AGE_S = 120.0
STALE_INTERVALS = 3.0
STALE_AT_LEAST_S = 3.0
"""As on the observing side: older samples are no basis for an action."""


def only_looks(request: Request) -> bool:
    """Whether the request changes nothing on a Spark."""
    watches = request.action == "reboot" and request.options.get("watch_only") == "yes"
    return request.action == "collect-evidence" or watches


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
    if not any(step.act.changes for step in plan.steps):
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
        if view is not None and (why := next(step.act.outdated(view), None)) is not None:
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
