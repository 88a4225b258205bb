"""Whether what a plan promised is so at its end, by what has been read since."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import pictures_support as made
from tests.restart_support import ended
from tests.table import over

from sparktop.model.engine import Containers, EndpointState, EngineState, LogFacts
from sparktop.model.fleet import NodeView
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.step.wait import Since, WaitStatus, WaitVerdict
from sparktop.transport.endpoint import Reply

ACT = AwaitServing(name="vllm-qwen36")
WORKER = replace(ACT, is_worker=True)
READY = made.node(engines=(made.engine(),))
BEGAN_S = made.NOW_S - 2
SINCE = Since(
    began_monotonic_s=BEGAN_S, began_wall_s=made.WALL_S - 2, before=READY, available=((made.BOOT_S - 1, made.GIB),)
)
OK = Reply(state=EndpointState.OK)


def now(*engines, asked_s: float | None = made.NOW_S - 1, **more: object) -> NodeView:
    return replace(made.node(engines=engines, **more), containers_at_s=asked_s)


def judged(view: NodeView, *, act: AwaitServing = ACT, since: Since = SINCE, reply: Reply | None = OK) -> WaitStatus:
    return act.judge(made.picture(view), "spark1", since, reply)


def boxed(state: EngineState = EngineState.READY, **box: object):
    """The engine, its container with other facts than when it became ready."""
    return made.engine(state=state, container=made.container(**box))


def test_what_runs_in_its_start_and_answers_is_as_promised() -> None:
    assert judged(now(made.engine())).verdict is WaitVerdict.MET


def test_containers_listed_before_the_check_prove_nothing() -> None:
    for asked_s in (None, BEGAN_S - 0.1):
        assert judged(now(made.engine(), asked_s=asked_s)).verdict is WaitVerdict.WAITING


def test_a_docker_engine_that_is_away_is_waited_for() -> None:
    view = replace(now(made.engine()), containers=Containers(available=False, detail="nothing listens"))
    found = judged(view)
    assert found.verdict is WaitVerdict.WAITING
    assert "nothing listens" in found.detail


@pytest.mark.parametrize(
    "view",
    [
        now(ended(made.engine())),
        now(boxed(status="exited", finished_wall_s=made.WALL_S - 60, exit_code=137)),
        now(boxed(status="paused")),
        now(boxed(started_wall_s=made.WALL_S - 1)),
        now(boxed(restart_count=1)),
        now(boxed(status="restarting", finished_wall_s=made.WALL_S - 60)),
        now(boxed(container_id="ab" * 32)),
        now(),
        now(made.engine(log=LogFacts(failure="EngineDeadError", last_line_wall_s=made.WALL_S))),
    ],
    ids=["ended", "killed", "paused", "again", "restarted", "restarting", "another", "gone", "says-it-failed"],
)
@pytest.mark.parametrize("act", [ACT, WORKER], ids=["head", "worker"])
def test_what_is_not_as_it_was_when_ready_fails(view: NodeView, act: AwaitServing) -> None:
    assert judged(view, act=act).verdict is WaitVerdict.FAILED


def test_an_end_that_was_just_now_is_told_when_its_log_has_been_read() -> None:
    just_now = boxed(status="exited", finished_wall_s=made.WALL_S, exit_code=1)
    assert judged(now(just_now)).verdict is WaitVerdict.WAITING


@over("state", [EndpointState.REFUSED, EndpointState.TIMED_OUT])
def test_what_runs_and_does_not_answer_fails_and_says_why(state: EndpointState) -> None:
    found = judged(now(made.engine()), reply=Reply(state=state, detail="nothing answers on 127.0.0.1:8000"))
    assert found.verdict is WaitVerdict.FAILED
    assert "nothing answers on 127.0.0.1:8000" in found.detail


@over("state", [EndpointState.NO_METRICS, EndpointState.NOT_METRICS, EndpointState.NOT_ASKED])
def test_an_engine_without_figures_or_a_known_endpoint_is_not_failed_for_that(state: EndpointState) -> None:
    assert judged(now(made.engine()), reply=Reply(state=state)).verdict is WaitVerdict.MET


def test_an_engine_that_loads_again_is_not_ready() -> None:
    assert judged(now(boxed(EngineState.LOADING))).verdict is WaitVerdict.WAITING


def test_a_worker_has_no_endpoint() -> None:
    assert judged(now(boxed(EngineState.UNKNOWN)), act=WORKER, reply=None).verdict is WaitVerdict.MET


def test_an_engine_in_no_container_is_known_by_its_processes() -> None:
    engine = made.engine(container=None, name="vllm-qwen36", pids=(90001,))
    since = replace(SINCE, before=made.node(engines=(engine,)))
    assert judged(now(engine, processes=(made.process(90001, "vllm"),)), since=since).verdict is WaitVerdict.MET
    assert judged(now(engine, processes=()), since=since).verdict is WaitVerdict.FAILED
    old = replace(since, available=((made.BOOT_S + 60, made.GIB),))
    assert judged(now(engine, processes=()), since=old).verdict is WaitVerdict.WAITING
