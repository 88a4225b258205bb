"""The exporter's page: what is known and only that, in Prometheus's format, whatever names a host gives its things."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests import prometheus_page
from tests.pictures_support import NOW_S, WALL_S, container, engine, link, node, picture
from tests.table import over

from sparktop.cli.options import address_of
from sparktop.clock import ManualClock
from sparktop.diagnose.catalogue import live_rules
from sparktop.errors import UsageError
from sparktop.headless import exporter
from sparktop.headless.exporter import FleetCollector, families
from sparktop.model.engine import Containers, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.telemetry import Collector, CollectorState, GpuReading

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
LOW = Finding(rule="memory.low", severity=Severity.CRITICAL, title="Little memory", nodes=("spark1",))


def series(fleet: FleetState, *, later_s: float = 0.0) -> Series:
    """What a scrape of the real text gives: (name, labels) -> value."""
    registry = CollectorRegistry()
    registry.register(FleetCollector(lambda: fleet, ManualClock(WALL_S + later_s, NOW_S + later_s)))
    made: Series = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in made, "Prometheus refuses a page with one series twice"
            made[key] = sample.value
    return made


def value(found: Series, name: str, **labels: str) -> float | None:
    return found.get((f"sparktop_{name}", frozenset(labels.items())))


def names(found: Series, host: str = "spark1") -> set[str]:
    return {name.removeprefix("sparktop_") for name, labels in found if ("host", host) in labels}


def test_figures_have_base_units() -> None:
    found = series(picture())
    spark = node()
    assert spark.sample is not None
    assert value(found, "memory_available_bytes", host="spark1") == spark.sample.memory.available_bytes
    assert value(found, "gpu_utilisation_ratio", host="spark2", gpu="0") == 0.96
    assert value(found, "gpu_sm_clock_hertz", host="spark1", gpu="0") == 2.398e9
    assert value(found, "engine_generation_tokens_total", host="spark1", engine="vllm-qwen36") == 411_908
    assert value(found, "up", host="spark1") == 1
    held = [
        number
        for (name, labels), number in found.items()
        if name.endswith("held_bytes") and ("host", "spark1") in labels
    ]
    assert sum(held) == pytest.approx(spark.sample.memory.total_bytes, abs=10)


def test_a_histogram_is_whole() -> None:
    found = series(prometheus_page.full_picture())
    labels = {"host": "spark1", "engine": "vllm-qwen36"}
    name = "engine_time_to_first_token_seconds"
    assert [value(found, f"{name}_bucket", **labels, le=le) for le in ("0.1", "1.0", "+Inf")] == [2, 3, 3]
    assert value(found, f"{name}_count", **labels) == 3
    assert value(found, f"{name}_sum", **labels) == 1.5


def test_every_figure_is_on_the_full_page() -> None:
    """So that docs/exporter.md, which is made from it, has them all."""
    tables: list[Any] = [table for table in vars(exporter).values() if isinstance(table, tuple)]
    declared = {figure.name for table in tables for figure in table if isinstance(figure, exporter.Figure)}
    assert len(declared) > 40
    page = {one.name + "_total" * (one.type == "counter") for one in prometheus_page.full_page()}
    assert {f"sparktop_{name}" for name in declared} <= page


def test_what_is_not_known_has_no_series() -> None:
    spark = node(engines=(engine(has_metrics=False),))
    assert spark.sample is not None
    spark = replace(
        spark, facts=None, network=None, ledger=None, trend=None, cpu_busy_percent=None,
        sample=replace(spark.sample, memory_pressure=None, load_1m=None),
    )  # fmt: skip
    found = names(series(picture(spark)))
    gone = r"load1|pressure|held|trend|cpu|filesystem|interface|rdma|host_info|requests|kv_cache|tokens|gpu_memory_used"
    assert {name for name in found if re.search(gone, name) and name != "engine_gpu_memory_bytes"} == set()
    assert {"memory_available_bytes", "engine_state", "gpu_power_watts"} <= found


ALWAYS = {"up", "link_state", "sample_age_seconds"}


@over("state", [LinkState.STALE, LinkState.LOST, LinkState.REFUSED, LinkState.CONNECTING])
def test_the_figures_of_a_host_that_is_away_vanish(state: LinkState) -> None:
    unseen = replace(LOW, is_unseen=True)
    found = series(picture(replace(node(), link=link(state)), node("spark2"), findings=(unseen,)), later_s=20.0)
    assert names(found) == ALWAYS
    assert value(found, "up", host="spark1") == 0
    assert value(found, "sample_age_seconds", host="spark1") == pytest.approx(20.3)
    assert value(found, "link_state", host="spark1", state=str(state), reach="untested") == 1
    assert "memory_available_bytes" in names(found, "spark2")


def test_a_finding_on_the_silence_of_a_host_stands() -> None:
    silent = replace(LOW, rule="memory.starved")
    found = series(picture(replace(node(), link=link(LinkState.STALE)), findings=(silent,)))
    assert names(found) == ALWAYS | {"finding"}


def test_a_host_never_seen_has_no_age() -> None:
    found = series(picture(replace(node(), link=link(LinkState.CONNECTING), sample=None, sample_at_s=None)))
    assert names(found) == {"up", "link_state"}


def test_a_picture_that_no_one_renews_is_no_news() -> None:
    assert names(series(picture(), later_s=31.0)) == ALWAYS


def test_outdated_parts_vanish() -> None:
    spark = node()
    assert spark.gpu is not None
    late = replace(spark, gpu=GpuReading(boot_s=spark.gpu.boot_s - 20, gpus=spark.gpu.gpus))
    assert {name for name in names(series(picture(late))) if name.startswith("gpu_")} == set()
    (served,) = spark.engines
    assert served.metrics is not None
    silent = replace(served, metrics=replace(served.metrics, wall_s=WALL_S - 31))
    assert "engine_requests_running" not in names(series(picture(replace(spark, engines=(silent,)))))


def test_what_cannot_be_read_is_zero_and_what_is_not_there_absent() -> None:
    states = {"nvml": CollectorState.MISSING, "kernel": CollectorState.DENIED, "processes": CollectorState.OK}
    spark = replace(
        node(),
        collectors={name: Collector(name=name, state=state) for name, state in states.items()},
        containers=Containers(detail="no", is_denied=True),
    )
    found = series(picture(spark))
    parts = {part: value(found, "collector_up", host="spark1", collector=part) for part in (*states, "containers")}
    assert parts == {"nvml": None, "kernel": 0, "processes": 1, "containers": 0}


def test_hostile_names_stay_labels() -> None:
    name = 'a"} 1\nsparktop_up{host="evil"} 1\\ \x1b]0;x\x07'
    spark = replace(node(name='s"1'), engines=(engine(name, model="m" * 900, container=container(name)),))
    found = series(picture(spark, findings=(replace(LOW, nodes=('s"1',), subject=name),)))
    hosts = {text for _, labels in found for label, text in labels if label == "host"}
    assert hosts == {'s"1'}
    texts = [text for _, labels in found for _, text in labels]
    assert any(text.startswith('a"} 1') for text in texts)
    assert all(text.isprintable() for text in texts)
    assert max(map(len, texts)) < 180


def test_no_secret_is_in_a_label() -> None:
    secret = "hf_" + "a1B2" * 8
    served = engine(f"vllm-{secret}", model=f"https://me:{secret}@hub/model", version=secret)
    fleet = picture(node(engines=(served,)), findings=(replace(LOW, subject=secret),))
    assert secret not in str(series(fleet))


def test_of_two_engines_with_one_name_the_running_one_is_shown() -> None:
    gone = engine(container=container(container_id="b" * 64), state=EngineState.EXITED, gpu_bytes=1)
    found = series(picture(node(engines=(gone, engine()))))
    assert value(found, "engine_state", host="spark1", engine="vllm-qwen36", state="serving") == 1
    assert value(found, "engine_state", host="spark1", engine="vllm-qwen36", state="exited") is None
    assert value(found, "engine_gpu_memory_bytes", host="spark1", engine="vllm-qwen36") == engine().gpu_bytes


def test_a_finding_is_one_for_each_of_its_hosts_while_it_fires() -> None:
    pair = replace(LOW, rule="cluster.mtu-differs", severity=Severity.WARNING, nodes=("spark1", "spark2"), subject="x")
    over_now = replace(LOW, rule="memory.pressure", phase=Phase.RESOLVED)
    found = series(picture(findings=(LOW, pair, LOW, over_now)))
    shown = [dict(labels) for name, labels in found if name == "sparktop_finding"]
    assert sorted((one["rule"], one["host"], one["severity"], one["confidence"], one["subject"]) for one in shown) == [
        ("cluster.mtu-differs", "spark1", "warning", "confirmed", "x"),
        ("cluster.mtu-differs", "spark2", "warning", "confirmed", "x"),
        ("memory.low", "spark1", "critical", "confirmed", ""),
    ]


def test_there_are_not_more_series_than_a_page_holds() -> None:
    many = tuple(replace(LOW, subject=str(number)) for number in range(2 * exporter.FINDINGS_MOST))
    engines = tuple(engine(f"e{number}") for number in range(2 * exporter.ENGINES_MOST))
    page = list(families(picture(node(engines=engines), findings=many), now_s=NOW_S, now_wall_s=WALL_S))
    counts = {family.name: len(family.samples) for family in page}
    assert counts["sparktop_finding"] == exporter.FINDINGS_MOST
    assert counts["sparktop_engine_info"] == exporter.ENGINES_MOST


def test_a_client_that_says_nothing_is_disconnected_and_keeps_no_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "SILENT_S", 0.3)
    registry = CollectorRegistry()
    registry.register(FleetCollector(picture, ManualClock(WALL_S, NOW_S)))
    serving = exporter._listen("127.0.0.1", 0, registry)
    try:
        with socket.create_connection(("127.0.0.1", serving.server_port), timeout=30) as silent:
            with urllib.request.urlopen(f"http://127.0.0.1:{serving.server_port}/metrics", timeout=30) as reply:
                assert b"sparktop_up" in reply.read()
            assert silent.recv(1) == b""
    finally:
        serving.shutdown()
        serving.server_close()


@over(
    "text, address",
    [
        ("127.0.0.1:9948", ("127.0.0.1", 9948)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        *((bad, None) for bad in ("", "9948", ":9948", "127.0.0.1", "spark1:80", "127.0.0.1:65536", "127.0.0.1:-1")),
    ],
)
def test_the_address_to_listen_on(text: str, address: tuple[str, int] | None) -> None:
    if address is not None:
        assert address_of(text) == address
        return
    with pytest.raises(UsageError):
        address_of(text)


def test_what_is_shipped_is_made_from_the_cards_and_the_page() -> None:
    assert prometheus_page.ALERTS.read_text("utf-8") == prometheus_page.alerts(), "make readme"
    assert prometheus_page.DASHBOARD.read_text("utf-8") == prometheus_page.dashboard(), "make readme"
    text = prometheus_page.PAGE.read_text("utf-8")
    assert text == prometheus_page.with_table(text), "make readme"


def test_alerts_and_panels_ask_for_metrics_and_rules_that_there_are() -> None:
    known = {one.name + "_total" * (one.type == "counter") for one in prometheus_page.full_page()}
    known |= {f"{name}_bucket" for name in known if name.endswith("_seconds")}
    alerts = yaml.safe_load(prometheus_page.ALERTS.read_text("utf-8"))["groups"][0]["rules"]
    panels = json.loads(prometheus_page.DASHBOARD.read_text("utf-8"))["panels"]
    asked = [rule["expr"] for rule in alerts] + [panel["targets"][0]["expr"] for panel in panels]
    assert {name for text in asked for name in re.findall(r"sparktop_\w+", text)} <= known
    rules = {rule.id for rule in live_rules()}
    assert {name for text in asked for name in re.findall(r'rule="([^"]+)"', text)} <= rules
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
