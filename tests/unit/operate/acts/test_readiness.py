"""Whether an engine that was started answers, and why it will not any more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import pictures_support as made
from tests.restart_support import ended, head, worker
from tests.table import over

from sparktop.model.engine import Container, Containers, EngineState, LogFacts, Progress
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding
from sparktop.model.fleet import Link, LinkState, Reach
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.step.wait import Since, WaitStatus, WaitVerdict

ACT = AwaitReady(name="vllm-qwen36")
STARTED_S = made.WALL_S - 40
BEGAN = Since(began_monotonic_s=made.NOW_S - 41, began_wall_s=made.WALL_S - 41, before=made.node())


def anew(state: EngineState, **more: object):
    """The engine in its new run, started 40 s ago."""
    box = made.container(**{"started_wall_s": STARTED_S, **more.pop("box", {})})
    options = {"metrics": None, "rates": None, "uptime_s": 40.0, "pids": (90001,), "log": None, **more}
    return made.engine(state=state, container=box, **options)


def judged(*engines, act: AwaitReady = ACT, since: Since = BEGAN, **more: object):
    return act.judge(made.picture(made.node(engines=engines, **more)), "spark1", since)


def test_loading_is_told_with_its_count() -> None:
    found = judged(anew(EngineState.LOADING, progress=Progress(phase="weights", done=12, total=37)))
    assert found.verdict is WaitVerdict.WAITING
    assert found.detail.startswith("loading weights 12/37")
    assert found.ratio == pytest.approx(12 / 37)


@over(
    "still_s, silent_s, said",
    [
        (4.0, 4.0, "its last progress was 4 s ago: slow, not stuck; set it in x.yaml"),
        (
            1200.0,
            2.0,
            "it has made no progress for 20 min; its log goes on: read it; set it in x.yaml",
        ),
        (1200.0, 1200.0, "it has made no progress for 20 min; its log is silent: it is stuck rather than slow"),
    ],
)
def test_when_its_time_is_up_a_slow_load_is_told_from_one_that_is_stuck(
    still_s: float, silent_s: float, said: str
) -> None:
    log = LogFacts(moved_wall_s=made.WALL_S - still_s, last_line_wall_s=made.WALL_S - silent_s)
    loading = anew(EngineState.LOADING, log=log, box={"started_wall_s": made.WALL_S - 3600})
    assert judged(loading, act=replace(ACT, longer="set it in x.yaml")).late.startswith(said)


def test_what_gives_it_longer_is_told_where_its_log_says_nothing_too() -> None:
    assert judged(act=replace(ACT, longer="set it in x.yaml")).late == "set it in x.yaml"
    assert judged(anew(EngineState.LOADING)).late == ""


def test_capturing_is_told_with_its_count() -> None:
    found = judged(anew(EngineState.CAPTURING, progress=Progress(phase="capture", done=20, total=36)))
    assert found.detail.startswith("capturing graphs 20/36")
    assert found.ratio == pytest.approx(20 / 36)


def test_starting_and_unknown_are_told_plainly() -> None:
    assert judged(
        anew(EngineState.STARTING, log=LogFacts(phase="compile", last_line_wall_s=made.WALL_S))
    ).detail.startswith("starting, compile")
    assert judged(anew(EngineState.UNKNOWN)).detail.startswith("running;")


@over("state", [EngineState.READY, EngineState.SERVING])
def test_ready_in_its_new_run_it_is_met(state: EngineState) -> None:
    fresh = made.engine().metrics
    found = judged(anew(state, metrics=fresh))
    assert found.verdict is WaitVerdict.MET
    assert found.detail == "answers after 40 s"


def test_run_of_before_that_still_shows_is_not_taken_for_the_new_one() -> None:
    """Docker is asked every three seconds: the picture may be of before the stop."""
    found = judged(made.engine())
    assert found.verdict is WaitVerdict.WAITING
    assert "not seen running" in found.detail
    assert judged(ended(made.engine())).verdict is WaitVerdict.WAITING


@over(
    "policy, listed_s, verdict",
    [
        ("no", 61.0, "failed"),
        ("no", 59.0, "waiting"),  # the newest list is of before a silence
        ("no", None, "waiting"),
        ("unless-stopped", 900.0, "waiting"),
    ],
)
def test_a_container_that_nobody_has_started_is_not_waited_for(
    policy: str, listed_s: float | None, verdict: str
) -> None:
    old = ended(made.engine(container=made.container(restart_policy=policy)))
    before = made.node(engines=(old,))
    began_s = made.NOW_S - 900.0
    node = replace(before, containers_at_s=None if listed_s is None else began_s + listed_s)
    since = Since(began_monotonic_s=began_s, began_wall_s=0.0, before=before)
    found = ACT.judge(made.picture(node), "spark1", since)
    assert found.verdict is WaitVerdict(verdict), found
    assert ("not started" in found.detail) is (verdict == "failed")


@over("began_s, verdict", [(3.0, WaitVerdict.WAITING), (41.0, WaitVerdict.FAILED)])
def test_a_removed_container_of_that_name_may_be_the_one_before(began_s: float, verdict: WaitVerdict) -> None:
    """A way back removes what has the name, then gives it to another: the list of containers may be older."""
    since = replace(BEGAN, began_monotonic_s=made.NOW_S - began_s)
    gone = ended(anew(EngineState.READY, box={"is_gone": True, "container_id": "f" * 64}))
    assert judged(gone, since=since).verdict is verdict


@over("old", [made.engine(), ended(made.engine(), exit_detail="stopped by SIGTERM (exit code 143)")])
def test_engine_of_the_run_before_in_a_container_that_runs_anew_says_nothing(old) -> None:
    """Containers are listed at other moments than engines."""
    node = made.node(engines=(old,))
    box = made.container(started_wall_s=STARTED_S)
    node = replace(node, containers=replace(node.containers, containers=(box,)))
    found = ACT.judge(made.picture(node), "spark1", BEGAN)
    assert found.verdict is WaitVerdict.WAITING
    assert "not appeared yet" in found.detail


def test_way_back_takes_the_run_that_was_never_stopped() -> None:
    act = replace(ACT, any_run=True)
    assert judged(made.engine(), act=act).verdict is WaitVerdict.MET
    was_over = replace(BEGAN, before=made.node(engines=(ended(made.engine()),)))
    assert judged(ended(made.engine()), act=act, since=was_over).verdict is WaitVerdict.WAITING
    assert judged(anew(EngineState.READY), act=act, since=was_over).verdict is WaitVerdict.MET


def test_way_back_does_not_take_the_stop_that_went_before_it_for_a_failure() -> None:
    """The list of containers is some seconds old: it was started again since."""
    assert judged(ended(made.engine()), act=replace(ACT, any_run=True)).verdict is WaitVerdict.WAITING


def test_figures_of_the_run_before_do_not_make_it_ready() -> None:
    """They stay until the next scrape, and say that all is well."""
    old = made.engine().metrics
    assert old is not None
    stale = replace(old, wall_s=made.WALL_S - 60)
    assert judged(anew(EngineState.READY, metrics=stale)).verdict is WaitVerdict.WAITING


def test_run_that_ended_has_failed_with_its_first_error_and_what_that_is() -> None:
    said = Finding(rule="memory.kv", severity=Severity.CRITICAL, title="No room is left for the KV cache")
    log = LogFacts(
        failure="ValueError: No available memory for the cache blocks", findings=(said,), last_line_wall_s=made.WALL_S
    )
    engine = anew(EngineState.EXITED, log=log, exit_detail="failed (exit code 1)")
    engine = replace(engine, container=replace(engine.container, status="exited", exit_code=1), endpoint=None)
    found = judged(engine)
    assert found.verdict is WaitVerdict.FAILED
    assert found.detail == (
        "No room is left for the KV cache; failed (exit code 1); its log: "
        '"ValueError: No available memory for the cache blocks"'
    )


def test_what_its_log_says_is_waited_for_and_told_where_no_line_of_it_is_a_failure_by_itself() -> None:
    why = Evidence(source="vllm-qwen36", text="OSError: [Errno 98] Address already in use")
    said = Finding(rule="start.port", severity=Severity.CRITICAL, title="The port is already in use", evidence=(why,))
    for findings, verdict in (((), WaitVerdict.WAITING), ((said,), WaitVerdict.FAILED)):
        log = LogFacts(phase="weights", findings=findings, last_line_wall_s=made.WALL_S)
        engine = anew(EngineState.EXITED, log=log, exit_detail="ended with exit code 1")
        box = replace(engine.container, status="exited", exit_code=1, finished_wall_s=made.WALL_S - 1)
        found = judged(replace(engine, container=box, endpoint=None))
        assert found.verdict is verdict
    assert found.detail == (
        'The port is already in use; ended with exit code 1; its log: "OSError: [Errno 98] Address already in use"'
    )


def test_loop_has_failed() -> None:
    again = judged(anew(EngineState.STARTING, box={"status": "restarting", "restart_count": 2}))
    assert again.verdict is WaitVerdict.FAILED
    assert "restart loop" in again.detail
    counted = judged(anew(EngineState.STARTING, box={"restart_count": 1}))
    assert counted.verdict is WaitVerdict.FAILED
    assert "1 times" in counted.detail


def test_failure_in_its_log_is_waited_on_until_it_is_silent() -> None:
    def log(silent_s: float) -> LogFacts:
        return LogFacts(failure="EngineCore failed to start.", last_line_wall_s=made.WALL_S - silent_s)

    assert judged(anew(EngineState.LOADING, log=log(2))).verdict is WaitVerdict.WAITING
    found = judged(anew(EngineState.LOADING, log=log(20)))
    assert found.verdict is WaitVerdict.FAILED
    assert 'its log: "EngineCore failed to start."' in found.detail


def test_engine_that_answers_while_its_log_says_that_it_died_has_failed() -> None:
    """vLLM's /health stays green while its core is dead."""
    log = LogFacts(failure="EngineDeadError", last_line_wall_s=made.WALL_S - 1)
    assert judged(anew(EngineState.READY, log=log)).verdict is WaitVerdict.FAILED


def test_failure_of_the_run_before_is_none_of_this_one() -> None:
    log = LogFacts(failure="killed while it stopped", last_line_wall_s=STARTED_S - 30)
    assert judged(anew(EngineState.LOADING, log=log)).verdict is WaitVerdict.WAITING


def test_process_that_ended_in_a_container_that_runs_on_has_failed() -> None:
    engine = anew(EngineState.EXITED, exit_detail="its process ended and the container still runs")
    assert judged(engine).verdict is WaitVerdict.FAILED


def test_container_without_an_engine_yet_is_waited_for() -> None:
    node = made.node(engines=())
    box = made.container(started_wall_s=STARTED_S)
    node = replace(node, containers=replace(node.containers, containers=(box,)))
    assert "not appeared yet" in ACT.judge(made.picture(node), "spark1", BEGAN).detail


def test_new_container_of_the_name_counts_as_new() -> None:
    engine = anew(EngineState.READY, box={"container_id": "f" * 64})
    assert judged(engine).verdict is WaitVerdict.MET
    created = anew(EngineState.STARTING, box={"container_id": "f" * 64, "status": "created", "started_wall_s": None})
    assert judged(created, since=replace(BEGAN, before=made.node(engines=()))).verdict is WaitVerdict.WAITING


def test_engine_without_a_container_is_known_by_its_processes() -> None:
    old = made.engine("vllm:8000", container=None)
    since = replace(BEGAN, before=made.node(engines=(old,)))
    act = AwaitReady(name="vllm:8000")
    assert judged(old, act=act, since=since).verdict is WaitVerdict.WAITING
    assert judged(replace(old, pids=(90001,)), act=act, since=since).verdict is WaitVerdict.MET
    gone = replace(old, state=EngineState.EXITED, pids=())
    assert judged(gone, act=act, since=since).verdict is WaitVerdict.WAITING
    since = replace(BEGAN, before=made.node(engines=(gone,)))
    assert judged(gone, act=act, since=since).verdict is WaitVerdict.WAITING
    long_since = replace(since, began_monotonic_s=made.NOW_S - 61)
    assert judged(gone, act=act, since=long_since).verdict is WaitVerdict.FAILED
    assert judged(replace(old, key="pid:90001"), act=act, since=since).verdict is WaitVerdict.MET


@over(
    "state, metrics_age_s, verdict",
    [
        (EngineState.READY, 1, WaitVerdict.MET),
        (EngineState.LOADING, 1, WaitVerdict.WAITING),
        (EngineState.READY, 90, WaitVerdict.WAITING),
    ],
)
def test_further_rank_is_ready_when_its_head_is(state, metrics_age_s, verdict) -> None:
    rank = worker()
    rank = replace(rank, container=replace(rank.container, started_wall_s=STARTED_S), pids=(90002,), log=None)
    first = head(state=state)
    first = replace(first, metrics=replace(first.metrics, wall_s=made.WALL_S - metrics_age_s))
    fleet = made.picture(made.node("spark1", engines=(first,)), made.node("spark2", engines=(rank,)))
    since = replace(BEGAN, before=made.node("spark2", engines=(worker(),)))
    found = AwaitReady(name="vllm-worker", is_worker=True).judge(fleet, "spark2", since)
    assert found.verdict is verdict


def test_nothing_known_is_waited_for() -> None:
    assert ACT.judge(made.picture(), "elsewhere", BEGAN).verdict is WaitVerdict.WAITING
    assert judged().verdict is WaitVerdict.WAITING


def lost(head_box: Container, *, waited_s: float = 20.0) -> WaitStatus:
    """A worker that waits for its head, whose container is this."""
    rank = worker()
    fleet = made.picture(
        made.node("spark1", engines=(), containers=Containers(containers=(head_box,), available=True)),
        made.node("spark2", engines=(rank,)),
    )
    since = replace(BEGAN, began_monotonic_s=fleet.monotonic_s - waited_s, before=made.node("spark2", engines=()))
    act = AwaitReady(name="vllm-worker", is_worker=True, together=(("spark1", "vllm-head"),))
    return act.judge(fleet, "spark2", since)


def test_a_rank_whose_other_rank_has_ended_waits_no_longer() -> None:
    over = made.container("vllm-head", status="exited", exit_code=1, started_wall_s=made.WALL_S - 15)
    found = lost(over)
    assert found.verdict is WaitVerdict.FAILED
    assert found.detail == "its other rank, vllm-head on spark1, is gone: ended with exit code 1"


@over(
    "reach, ago_s, verdict",
    [
        (Reach.NO_HOST, 130.0, WaitVerdict.FAILED),
        (Reach.NO_HOST, 90.0, WaitVerdict.WAITING),
        (Reach.SSH_SILENT, 900.0, WaitVerdict.WAITING),
    ],
)
def test_a_rank_whose_other_ranks_node_is_gone_waits_no_longer(
    reach: Reach, ago_s: float, verdict: WaitVerdict
) -> None:
    fleet = made.picture(made.node("spark1"), made.node("spark2", engines=(worker(),)))
    link = Link(state=LinkState.LOST, reach=reach, since_s=fleet.monotonic_s - ago_s)
    fleet = replace(fleet, nodes=(replace(fleet.nodes[0], link=link), fleet.nodes[1]))
    since = replace(BEGAN, began_monotonic_s=fleet.monotonic_s - 1000.0, before=made.node("spark2", engines=()))
    act = AwaitReady(name="vllm-worker", is_worker=True, together=(("spark1", "vllm-head"),))
    assert act.judge(fleet, "spark2", since).verdict is verdict


@over(
    "box, waited_s",
    [
        (made.container("vllm-head", status="running", started_wall_s=made.WALL_S - 15), 20.0),
        (made.container("vllm-head", status="exited", exit_code=1, started_wall_s=made.WALL_S - 9000), 20.0),
        (made.container("vllm-head", status="exited", exit_code=1, started_wall_s=made.WALL_S - 15), 2.0),
        (made.container("other", status="exited", exit_code=1, started_wall_s=made.WALL_S - 15), 20.0),
    ],
    ids=["it runs", "of an earlier launch", "the list may be old", "another's"],
)
def test_only_the_end_of_its_own_launch_counts(box: Container, waited_s: float) -> None:
    assert lost(box, waited_s=waited_s).verdict is WaitVerdict.WAITING


def test_another_container_of_the_name_is_not_the_one_that_is_meant() -> None:
    act = AwaitReady(name="vllm-qwen36", container_id="ef" * 32)
    found = judged(ended(made.engine()), act=act, since=replace(BEGAN, before=None))
    assert found.verdict is WaitVerdict.WAITING


def test_a_quick_end_waits_for_its_log() -> None:
    def box(ended_s: float) -> Container:
        at_s = made.WALL_S - ended_s
        return made.container(status="exited", exit_code=1, started_wall_s=at_s - 1, finished_wall_s=at_s)

    engine = made.engine(state=EngineState.EXITED, log=None)
    for ended_s, verdict in ((1.0, WaitVerdict.WAITING), (30.0, WaitVerdict.FAILED)):
        one = replace(engine, container=box(ended_s))
        assert judged(one, since=replace(BEGAN, before=made.node("spark1", engines=()))).verdict is verdict


def test_an_end_with_its_node_is_not_told_by_its_exit_code() -> None:
    box = made.container(status="exited", exit_code=255, started_wall_s=STARTED_S, finished_wall_s=made.WALL_S - 40)
    view = made.node(engines=(replace(made.engine(state=EngineState.EXITED, log=None), container=box),))
    assert view.sample is not None
    for boot_s, is_its_own in ((made.BOOT_S, True), (30.0, False)):
        booted = replace(view, sample=replace(view.sample, boot_s=boot_s))
        found = ACT.judge(made.picture(booted), "spark1", BEGAN)
        assert (found.verdict, "255" in found.detail) == (WaitVerdict.FAILED, is_its_own), found


@over("act", [AwaitReady(name="vllm-qwen36"), SmokeTest(engine="vllm-qwen36", floor_bytes=0)])
def test_cause_of_a_failure_is_what_its_own_run_logged(act: AwaitReady | SmokeTest) -> None:
    said = Finding(rule="memory.kv", severity=Severity.CRITICAL, title="No room is left for the KV cache")
    for last_line_s, expected in ((made.WALL_S, said), (0.0, None)):
        log = LogFacts(findings=(said,), last_line_wall_s=last_line_s)
        picture = made.picture(made.node(engines=(anew(EngineState.EXITED, log=log),)))
        cause = act.cause("spark1", picture)
        assert (cause.finding if cause else None) is expected
