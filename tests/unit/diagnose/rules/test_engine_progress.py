"""Live rules on what an engine says of itself: firing and quiet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.pictures_support import WALL_S, claims, container, engine, link, node, picture, process, rules_on
from tests.table import over

from sparktop.diagnose.findings import ordered
from sparktop.diagnose.logs.rule import parse
from sparktop.diagnose.rules.engine import answers, progress
from sparktop.engines import metrics as scraped
from sparktop.model.engine import (
    Endpoint,
    EndpointState,
    Engine,
    EngineKind,
    EngineMetrics,
    EngineRates,
    EngineState,
    LogFacts,
    Progress,
)
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.telemetry import GpuProcess, LogLine
from sparktop.observe.engines.engine_log import Feed
from sparktop.observe.engines.rates import Scrapes, advance

RULES = rules_on("engine")
CAPTURES = Path(__file__).parents[3] / "real/captures/vllm-0.32.0"


STOPPED = process(77352, "VLLM::EngineCor", state="T")


def rules(fleet: FleetState) -> list[str]:
    return [finding.rule for rule in RULES for finding in rule.check(fleet)]


@over(
    "fleet, expected",
    [
        (picture(), []),
        (picture(node(power_w=15.0, engines=(engine(stuck_s=42.0),))), ["engine.no-tokens"]),
        (picture(node(power_w=15.0, engines=(engine(stuck_s=8.0),))), []),
        (picture(node(power_w=92.0, engines=(engine(stuck_s=42.0),))), []),
        (picture(node(power_w=92.0, engines=(engine(stuck_s=240.0),))), ["engine.no-tokens"]),
        (picture(node(power_w=92.0, engines=(engine(stuck_s=42.0),), processes=(STOPPED,))), ["engine.no-tokens"]),
        (picture(node(power_w=12.0, util=0.0, engines=(engine(running=0, stuck_s=900.0),))), []),
        (picture(node(util=None, engines=(engine(stuck_s=42.0),))), ["engine.no-tokens"]),
        (picture(node(link=link(LinkState.LOST), power_w=15.0, engines=(engine(stuck_s=42.0),))), []),
        (picture(node(engines=(engine(stuck_s=42.0, has_metrics=False),))), []),
    ],
    ids=[
        "decode",
        "held",
        "a moment",
        "long prefill",
        "too long a prefill",
        "stopped by a signal",
        "idle",
        "no GPU",
        "lost",
        "no figures",
    ],
)
def test_requests_held(fleet: FleetState, expected: list[str]) -> None:
    assert rules(fleet) == expected


@over("stuck_s, severity", [(42.0, Severity.WARNING), (61.0, Severity.CRITICAL)])
def test_requests_held_for_a_minute_are_told_before_what_a_setting_costs(stuck_s: float, severity: Severity) -> None:
    (held,) = claims(RULES, picture(node(power_w=15.0, engines=(engine(stuck_s=stuck_s),), processes=(STOPPED,))))
    costs = Finding(rule="config.enforce-eager", severity=Severity.WARNING, title="slow", engine="vllm-qwen36")
    assert held.severity is severity
    assert ordered((costs, held), before=(costs.key,))[0] is held
    assert "77352" in held.remedies[0].steps[0]
    assert any("VLLM::EngineCor" in one.text for one in held.evidence)


@over(
    "version, argv, is_offered",
    [
        ("0.32.0", (), False),
        ("0.33.0", (), True),
        ("0.33.0", ("--watchdog-config.dump_dir", "/d"), False),
        ("0.33.0", ("--watchdog-config", '{"dump_dir": "/d"}'), False),
    ],
)
def test_a_stall_s_stacks_are_had_where_the_version_can(version: str, argv: tuple[str, ...], is_offered: bool) -> None:
    stuck = engine(stuck_s=42.0, version=version, argv=("vllm", "serve", "m", *argv))
    (held,) = claims(RULES, picture(node(power_w=15.0, engines=(stuck,))))
    flags = [
        change for one in held.remedies if (change := one.change) and change.flags == {progress.STACK_DUMPS: "/tmp"}
    ]
    assert bool(flags) is is_offered


def full(ratio: float = 0.997, waiting: float = 9.0, **more: Any) -> Engine:
    made = engine(running=40, waiting=waiting, **more)
    assert made.metrics is not None
    return replace(made, metrics=replace(made.metrics, kv_cache_ratio=ratio))


@over(
    "fleet, expected",
    [
        (picture(node(engines=(full(),))), ["engine.kv-cache-full"]),
        (picture(node(engines=(full(0.93),))), []),
        (picture(node(engines=(full(waiting=0),))), []),
        (picture(node(engines=(full(0.57, rates=EngineRates(preemptions_per_min=8.0)),))), ["engine.kv-cache-full"]),
        (picture(node(engines=(full(0.57, rates=EngineRates(preemptions_per_min=1.0)),))), []),
        (picture(node(link=link(LinkState.LOST), engines=(full(),))), []),
        (picture(node(engines=(engine(has_metrics=False),))), []),
    ],
    ids=["full", "nearly full", "nobody waits", "evicts", "evicted one", "lost", "no figures"],
)
def test_a_kv_cache_that_requests_wait_for(fleet: FleetState, expected: list[str]) -> None:
    assert rules(fleet) == expected


def test_a_real_vllm_that_evicts_is_told_though_its_cache_is_not_full() -> None:
    """36 blocks for six requests, twice 40 s apart."""
    scrapes = Scrapes()
    for name in ("metrics-preempting", "metrics-preempting-later"):
        text = (CAPTURES / f"{name}.txt").read_bytes()
        metrics = scraped.parse(text, EngineKind.VLLM, float(text.split()[2]))
        assert isinstance(metrics, EngineMetrics)
        scrapes, rates = advance(scrapes, metrics)
    (found,) = claims(RULES, picture(node(engines=(replace(engine(), metrics=metrics, rates=rates),))))
    assert (found.rule, found.brief) == (
        "engine.kv-cache-full",
        "KV cache 66 %, 5 waiting, 1 running, 4 evicted a minute",
    )


@over("has_metrics, expected", [(True, ["engine.kv-cache-full"]), (False, ["vllm.kv-cache-full"])])
def test_a_full_kv_cache_is_told_once(has_metrics: bool, expected: list[str]) -> None:
    told = Finding(rule="vllm.kv-cache-full", severity=Severity.INFO, title="The KV cache is full", subject="?")
    serving = full(log=LogFacts(findings=(told,)))
    fleet = picture(node(engines=(serving if has_metrics else replace(serving, metrics=None),)))
    assert rules(fleet) == expected
    assert not has_metrics or claims(RULES, fleet)[0].brief == "KV cache 100 %, 9 waiting, 40 running"


def loading(still_s: float = 400.0, **more: Any) -> Engine:
    log = LogFacts(phase="weights", moved_wall_s=WALL_S - still_s, last_line_wall_s=WALL_S - still_s)
    progress = Progress(phase="weights", done=12, total=37)
    return engine(has_metrics=False, state=EngineState.LOADING, log=log, progress=progress, **more)


@over(
    "fleet, expected",
    [
        (picture(node(util=0.0, power_w=12.0, cpu_busy_percent=2.0, engines=(loading(),))), ["engine.load-stalled"]),
        (picture(node(util=0.0, power_w=12.0, cpu_busy_percent=2.0, engines=(loading(60),))), []),
        (picture(node(util=0.0, power_w=12.0, cpu_busy_percent=40.0, engines=(loading(),))), []),
        (picture(node(util=96.0, power_w=15.0, cpu_busy_percent=2.0, engines=(loading(),))), []),
        (picture(node(util=0.0, cpu_busy_percent=2.0, engines=(loading(endpoint=None),))), []),
    ],
    ids=["stalled", "a minute", "compiling", "spinning is another rule's", "a worker rank"],
)
def test_a_load_that_stands_still(fleet: FleetState, expected: list[str]) -> None:
    assert rules(fleet) == expected


def test_a_server_that_does_not_answer_any_more() -> None:
    silent = Endpoint(host="127.0.0.1", port=8000, state=EndpointState.TIMED_OUT, detail="no answer in 2 s")
    assert rules(picture(node(engines=(engine(endpoint=silent),)))) == ["engine.not-answering"]
    loads = engine(endpoint=silent, state=EngineState.LOADING, metrics=None)
    assert rules(picture(node(cpu_busy_percent=50.0, engines=(loads,)))) == []


REASON = Finding(rule="vllm.torch-oom", severity=Severity.CRITICAL, title="out of memory", subject="?")


@over("ago_s, expected", [(30.0, ["vllm.torch-oom"]), (3600.0, [])])
def test_what_the_log_told_stands_while_the_end_is_recent(ago_s: float, expected: list[str]) -> None:
    over = engine(state=EngineState.EXITED, exited_wall_s=WALL_S - ago_s, log=LogFacts(findings=(REASON,)))
    fleet = picture(node(engines=(over,)))
    assert rules(fleet) == expected
    for finding in claims(RULES, fleet):
        assert (finding.nodes, finding.subject) == (("spark1",), "vllm-qwen36")


def test_what_the_log_told_is_over_with_its_node_s_boot() -> None:
    over = engine(state=EngineState.EXITED, exited_wall_s=WALL_S - 150, log=LogFacts(findings=(REASON,)))
    view = node(engines=(over,))
    assert view.sample is not None
    rebooted = replace(view, sample=replace(view.sample, boot_s=60.0))
    assert rules(picture(rebooted)) == ["engine.down"]
    assert rules(picture(view)) == ["vllm.torch-oom"]


def told(rule: str, *ago_s: float, severity: Severity = Severity.WARNING, **more: Any) -> Finding:
    evidence = tuple(Evidence(source="log", text="a line", wall_s=WALL_S - one) for one in ago_s)
    return Finding(rule=rule, severity=severity, title=rule, evidence=evidence, **more)


@over(
    "lines_s, expected",
    [((3000.0, 30.0), [Severity.INFO]), ((30.0,), []), ((3000.0, 700.0), [])],
    ids=["goes on", "once", "no longer"],
)
def test_what_clients_do_wrong_is_a_note_while_they_do(lines_s: tuple[float, ...], expected: list[Severity]) -> None:
    log = LogFacts(findings=(told("serving.request-404", *lines_s),))
    assert [one.severity for one in claims(RULES, picture(node(engines=(engine(log=log),))))] == expected


def test_one_failure_is_one_finding() -> None:
    cause = told("vllm.kv-no-memory", 9.0, severity=Severity.CRITICAL)
    start = told("vllm.start-exception", 8.0, severity=Severity.CRITICAL, caused_by=cause.rule)
    died = told("vllm.engine-died", 7.0, severity=Severity.CRITICAL, caused_by=start.rule)
    first, second = told("a.a", 6.0, caused_by="a.b"), told("a.b", 5.0, caused_by="a.a")
    log = LogFacts(findings=(cause, start, died, first, second))
    found = claims(RULES, picture(node(engines=(engine(log=log),))))
    assert [one.rule for one in found] == ["vllm.kv-no-memory", "a.a", "a.b"]
    assert [one.wall_s for one in found[0].evidence] == [WALL_S - 9, WALL_S - 8, WALL_S - 7]


@over(
    "is_gone, has_served, expected",
    [(True, False, Severity.WARNING), (False, False, Severity.CRITICAL), (True, True, Severity.CRITICAL)],
)
def test_a_removed_container_that_never_served_is_no_critical(
    is_gone: bool, has_served: bool, expected: Severity
) -> None:
    log = LogFacts(findings=(REASON,), has_served=has_served)
    box = container(is_gone=is_gone)
    over = engine(state=EngineState.EXITED, container=box, exited_wall_s=WALL_S - 60, log=log)
    assert [one.severity for one in claims(progress.LOGS, picture(node(engines=(over,))))] == [expected]


RULE = """
[[rule]]
id = "test.port"
title = "Port {port} is taken"
severity = "critical"
any = ["address already in use"]
regex = 'bind on port (?P<port>\\d+): address already in use'
explanation = "Another server listens on {port}."
examples = ["bind on port 8000: address already in use"]
"""


def test_what_the_log_told_is_so_since_its_line() -> None:
    said = Evidence(source="e", text="CUDA error", wall_s=WALL_S - 7200.0)
    log = LogFacts(findings=(Finding(rule="a.b", severity=Severity.WARNING, title="t", evidence=(said,)),))
    (found,) = claims(RULES, picture(node(engines=(engine(log=log),))))
    assert found.since_wall_s == WALL_S - 7200.0


def test_of_two_engines_on_a_node_the_title_names_the_one_whose_log_it_is() -> None:
    died = LogFacts(findings=(Finding(rule="a.b", severity=Severity.WARNING, title="vLLM's engine died"),))
    named = LogFacts(findings=(Finding(rule="a.b", severity=Severity.WARNING, title="vllm-b can't start"),))
    first, second = engine(name="vllm-a", log=died), engine(name="vllm-b", key="b", log=named)
    assert [one.title for one in claims(RULES, picture(node(engines=(first,))))] == ["vLLM's engine died"]
    titles = [one.title for one in claims(RULES, picture(node(engines=(first, second))))]
    assert titles == ["vllm-a: vLLM's engine died", "vllm-b can't start"]


NOTEBOOK = GpuProcess(pid=93111, name="/home/spark/venv/bin/python3", used_bytes=58 << 30)


@over(
    "rule, holder, others, title",
    [
        ("vllm.free-memory-below-utilisation", (NOTEBOOK,), (),
         "vllm-a can't start: python3 (pid 93111) holds 58.0 GiB"),
        ("vllm.kv-no-memory", (), (engine("vllm-b", key="b", gpu_bytes=40 << 30),),
         "vllm-a can't start: vllm-b holds 40.0 GiB"),
        ("vllm.kv-no-memory", (), (engine("vllm-b", key="b", gpu_bytes=1 << 30),), "vllm-a: too little"),
        ("start.port-in-use", (), (engine("vllm-b", key="b"),), "vllm-a can't start: vllm-b has port 8000"),
        ("start.port-in-use", (), (), "too little"),
        ("start.import-failed", (NOTEBOOK,), (), "too little"),
    ],
)  # fmt: skip
def test_a_start_that_lacks_something_names_who_has_it(
    rule: str, holder: tuple[GpuProcess, ...], others: tuple[Engine, ...], title: str
) -> None:
    failed = Finding(rule=rule, severity=Severity.CRITICAL, title="too little")
    log = LogFacts(findings=(failed,))
    over = engine("vllm-a", key="a", state=EngineState.EXITED, exited_wall_s=WALL_S - 9, log=log, pids=())
    (found,) = claims(progress.LOGS, picture(node(engines=(over, *others), gpu_processes=holder)))
    assert found.title == title
    assert ("too little" in found.explanation) is ("can't start" in title), "what the log says is kept"


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(text=text, wall_s=WALL_S + at) for at, text in enumerate(texts))


def test_a_feed_finds_with_the_place_of_the_line_and_without_its_secret() -> None:
    feed = Feed("vllm-a @ spark1", EngineKind.VLLM, parse(RULE, "test.toml"))
    feed.accept(lines("one", "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz bind on port 8000: address already in use"))
    (found,) = feed.facts().findings
    assert found.title == "Port 8000 is taken"
    (seen,) = found.evidence
    assert (seen.source, seen.line, seen.wall_s) == ("vllm-a @ spark1", 2, WALL_S + 1)
    assert "hf_abc" not in seen.text
    feed.begin(WALL_S + 60)
    assert feed.facts() == LogFacts(last_line_wall_s=WALL_S + 1)


def test_a_bar_that_is_drawn_again_does_not_move_the_lines_below() -> None:
    feed = Feed("vllm-a @ spark1", EngineKind.VLLM, parse(RULE, "test.toml"))
    bar = tuple(LogLine(text=f"{percent}%", replaces_last=percent > 0) for percent in range(0, 100, 10))
    feed.accept(bar, WALL_S)
    feed.accept(lines("bind on port 8000: address already in use"))
    ((seen,),) = [found.evidence for found in feed.facts().findings]
    assert seen.line == feed.ring.end == 2


def test_only_what_a_hang_brings_about_hangs_under_it() -> None:
    variable = Finding(rule="vllm.env-unknown", severity=Severity.WARNING, title="unknown variable")
    waiting = Finding(rule="vllm.rpc-timeout", severity=Severity.CRITICAL, title="timed out")
    view = node(engines=(engine(log=LogFacts(findings=(variable, waiting))),))
    told = {finding.rule: rule.follows for rule in RULES for finding in rule.check(picture(view))}
    assert told["vllm.env-unknown"] == ()
    assert "gpu.spin-deadlock" in told["vllm.rpc-timeout"]


def test_a_rank_that_says_another_ended_hangs_under_that_end() -> None:
    reason = Finding(rule="sglang.exception", severity=Severity.CRITICAL, title="an exception")
    follower = Finding(rule="sglang.process-died", severity=Severity.CRITICAL, title="a process died")
    view = node(engines=(engine(log=LogFacts(findings=(reason, follower))),))
    told = {finding.rule: rule.follows for rule in RULES for finding in rule.check(picture(view))}
    assert told == {"sglang.exception": (), "sglang.process-died": ("cluster.rank-died",)}


@over(
    "rates, severity",
    [
        (EngineRates(answers=20.0, cut=3.0), None),
        (EngineRates(cut=20.0), None),
        (EngineRates(answers=20.0, cut=19.0, repeated=0.0), Severity.INFO),
        (EngineRates(answers=40.0, cut=2.0, repeated=3.0), Severity.WARNING),
    ],
)
def test_answers_that_never_end_are_a_note_and_those_that_repeat_themselves_a_warning(
    rates: EngineRates, severity: Severity | None
) -> None:
    fleet = picture(node(engines=(replace(engine(), rates=rates),)))
    assert [one.severity for one in answers.answers_cut.check(fleet)] == ([severity] if severity else [])
