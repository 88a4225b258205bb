"""The gate: what keeps a plan from being run, each with its sentence and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.operate_support import plan, step
from tests.pictures_support import NOW_S, WALL_S, container, engine, link, node, picture
from tests.table import over

from sparktop.diagnose.notices import notices
from sparktop.model.fleet import LinkState, Reach
from sparktop.model.operation import Command, DockerCall, Expect
from sparktop.model.request import Request
from sparktop.operate.acts.arrivals import AwaitBack, AwaitGone
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.remote import Remote
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.run.gate import is_protected, plan_refusal, request_refusal, unreachable_refusal
from sparktop.operate.step.plan import Plan

BOX = container()
STOP = Remote(operations=(DockerCall(method="POST", path=f"/containers/{BOX.container_id}/stop"),))
OTHER = "cd" * 32


def made(*acts: Any, action: str = "safe-restart", **more: Any) -> Plan:
    return plan(*(step(str(n), act) for n, act in enumerate(acts)), action=action, seen_monotonic_s=NOW_S, **more)


def barred(one: Plan, *, at_s: float = 0.0, **more: Any) -> str | None:
    state = more.pop("state", picture())
    found = plan_refusal(one, state, now_s=NOW_S + at_s, **{"is_read_only": False, **more})
    assert found is None or found.remedies
    return found.reason if found else None


def test_a_fresh_plan_on_a_live_node_passes() -> None:
    assert barred(made(STOP, AwaitMemory(target_bytes=1))) is None


@over("kind", ["read-only", "protected"])
def test_what_changes_is_kept_from_a_session_that_only_looks(kind: str) -> None:
    told: dict[str, Any] = {"is_read_only": True} if kind == "read-only" else {"protected": ("spark1",)}
    for act in (STOP, GuardOrder(container_id=BOX.container_id)):
        reason = barred(made(act), **told)
        assert reason is not None
        assert kind in reason
    request = Request(action="safe-restart", nodes=("spark1",))
    found = request_refusal(request, **{"is_read_only": False, **told})
    assert found is not None
    assert kind in found.reason


def test_what_only_looks_passes_everything() -> None:
    sick = picture(node("spark1", age_s=500.0, link=link(LinkState.LOST)))
    evidence = made(CollectEvidence(nodes=("spark1",)), action="collect-evidence")
    watch = made(AwaitBack(boot_id="b"), action="reboot")
    for one in (evidence, watch):
        assert barred(one, state=sick, is_read_only=True, protected=("spark1",), busy={"spark1": "a run"}) is None
    for request in (
        Request(action="collect-evidence", nodes=("spark1",)),
        Request(action="reboot", nodes=("spark1",), options={"watch_only": "yes"}),
    ):
        assert request_refusal(request, is_read_only=True, protected=("spark1",)) is None
    # evidence before a kill is not enough to be let through
    assert barred(made(CollectEvidence(nodes=("spark1",)), STOP, action="collect-evidence"), is_read_only=True)


@over(
    "typed, is_held",
    [("spark1", True), ("me@spark1", True), ("spark1:2222", True), ("spark11", False), ("local", False), ("", False)],
)
def test_a_protected_host_is_known_with_any_user_and_port(typed: str, is_held: bool) -> None:
    assert is_protected(typed, ("spark1",)) is is_held
    assert is_protected(typed, (typed,))


@over("state", [one for one in LinkState if one is not LinkState.LIVE])
def test_a_node_that_is_not_live_is_not_acted_on(state: LinkState) -> None:
    view = node("spark1", link=link(state, reason="no packets", hint="see the switch"))
    found = plan_refusal(made(STOP), picture(view), now_s=NOW_S, is_read_only=False)
    assert found is not None
    assert f"spark1 is not live ({view.link.trouble})" in found.reason
    assert found.remedies[0] == "see the switch"


@over("state", list(LinkState))
def test_a_node_whose_connection_is_gone_is_asked_nothing_for_a_plan(state: LinkState) -> None:
    view = node("spark1", link=link(state, reason="no packets", hint="see the switch"))
    found = unreachable_refusal(Request(action="stop-engine", nodes=("spark1",), target="vllm"), picture(view))
    assert (found is not None) == (state in (LinkState.LOST, LinkState.REFUSED))
    if found is not None:
        assert f"spark1 can't be reached now ({state}: no packets)" in found.reason
        assert found.remedies[0] == "see the switch"
    assert unreachable_refusal(Request(action="collect-evidence", nodes=("spark1",)), picture(view)) is None


def test_a_node_that_cant_be_reached_is_told_as_the_test_of_the_host_told() -> None:
    starved = link(LinkState.LOST, reason="no answer to keepalives for 6 s", reach=Reach.SSH_SILENT)
    told = "(host up, SSH silent: no answer to keepalives for 6 s)"
    request = Request(action="stop-engine", nodes=("spark1",), target="vllm")
    found = unreachable_refusal(request, picture(node("spark1", link=starved)))
    assert found is not None
    assert told in found.reason
    assert told in (barred(made(STOP), state=picture(node("spark1", link=starved))) or "")
    assert [notice.text for notice in notices((node("spark1", link=starved, sample=None),))] == [told.strip("()")]


def test_old_figures_are_not_acted_on() -> None:
    assert barred(made(STOP), at_s=2.0) is None
    assert "10 s old" in (barred(made(STOP), at_s=10.0) or "")
    slow = node("spark1", step_s=60.0, age_s=100.0)
    assert barred(made(STOP), state=picture(slow)) is None
    assert barred(made(STOP), state=picture(node("spark1", sample=None))) == "No figures yet from spark1."
    assert barred(made(STOP), state=picture(node("spark2"))) == "spark1 is not watched by this session."


def test_an_old_plan_is_made_anew() -> None:
    old = replace(made(STOP), seen_monotonic_s=NOW_S - 119)
    assert barred(old) is None
    reason = barred(replace(old, seen_monotonic_s=NOW_S - 121))
    assert reason is not None
    assert "121 s old" in reason


def test_one_change_per_node_at_a_time() -> None:
    assert barred(made(STOP), busy={"spark2": "Restart"}) is None
    assert barred(made(STOP), busy={"spark1": "Restart"}) == "spark1 is in use by this session: Restart."
    two = replace(made(STOP), request=Request(action="safe-restart", nodes=("spark1", "spark2")))
    assert barred(two, busy={"spark2": "Restart"}) is not None


def test_an_empty_plan_is_none() -> None:
    assert barred(plan(seen_monotonic_s=NOW_S)) == "Nothing to do: the plan has no steps."


STAMP = "2026-05-28T19:26:40.123456789Z"


@over(
    "act, said",
    [
        (Remote(operations=(DockerCall(method="POST", path=f"/containers/{OTHER}/stop"),)), "is gone from"),
        (Remote(operations=(Expect(path=f"/containers/{OTHER}/json", equals={}),)), "is gone from"),
        (Remote(operations=(DockerCall(method="POST", path=f"/containers/{OTHER}/start", accepts=(204, 404)),)), None),
        (GuardOrder(container_id=OTHER, container_name="vllm"), "Container vllm is gone from spark1"),
        (GuardOrder(container_id="{NEW}"), None),
        (GuardOrder(container_id=""), None),
        (AwaitGone(pids=(1, 2), container_id=OTHER), "is gone from"),
        (AwaitGone(pids=(999_999,)), "Process 999999 is gone"),
        (AwaitGone(pids=(999_999, 77352)), None),
        (AwaitBack(boot_id="another"), "has been rebooted since"),
        (AwaitBack(boot_id="boot-of-spark1"), None),
        (
            Remote(
                operations=(Expect(path=f"/containers/{BOX.container_id}/json", equals={"State.StartedAt": STAMP}),)
            ),
            "has been restarted",
        ),
        (
            Remote(
                operations=(
                    Expect(
                        path=f"/containers/{BOX.container_id}/json",
                        equals={"State.StartedAt": "2026-05-28T18:26:40.9Z"},
                    ),
                )
            ),
            None,
        ),
        (
            Remote(operations=(Expect(path=f"/containers/{BOX.container_id}/json", equals={"State.StartedAt": "?"}),)),
            None,
        ),
        (Remote(operations=(Command(argv=("rm", f"/containers/{OTHER}/x")),)), None),
    ],
)
def test_what_the_plan_names_has_to_be_there(act: Any, said: str | None) -> None:
    reason = barred(made(STOP, act))
    assert (reason is None) if said is None else (reason is not None and said in reason)


def test_a_container_that_runs_since_the_same_moment_is_the_same() -> None:
    box = replace(BOX, started_wall_s=1_780_000_000.123)
    view = node("spark1", engines=(engine(container=box),))
    for stamp, is_same in (("2026-05-28T20:26:40.123456789Z", True), ("2026-05-28T20:27:40Z", False)):
        act = Remote(
            operations=(Expect(path=f"/containers/{BOX.container_id}/json", equals={"State.StartedAt": stamp}),)
        )
        assert (barred(made(act), state=picture(view)) is None) is is_same
    assert WALL_S == 1_780_000_000


def test_where_docker_can_not_be_asked_the_node_tells() -> None:
    view = node("spark1")
    blind = replace(view, containers=replace(view.containers, available=False, containers=()))
    assert barred(made(STOP), state=picture(blind)) is None
