"""What is shipped for Prometheus and Grafana, from the cards and the exporter's own page: `make readme` writes it.

docs/prometheus/alerts.yml, docs/prometheus/dashboard.json, and the table of metrics in docs/exporter.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.metrics_core import Metric
from tests.pictures_support import NOW_S, WALL_S, engine, gpu, node, picture

from sparktop.diagnose.catalogue import live_rules
from sparktop.headless.exporter import families
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Trend
from sparktop.model.telemetry import Disk, GpuReading, NetworkReading, Pressure

DOCS = Path(__file__).resolve().parents[1] / "docs"
ALERTS = DOCS / "prometheus" / "alerts.yml"
DASHBOARD = DOCS / "prometheus" / "dashboard.json"
PAGE = DOCS / "exporter.md"
START, END = "<!-- metrics -->\n", "<!-- /metrics -->"
FRONTS = ("kernel.log", "engine.log", "config.running")
"""Live rules that show other rules' findings, under those rules' ids."""


def full_picture() -> FleetState:
    """A Spark of which everything is known that a metric tells."""
    spark = node("spark1")
    sample, network = spark.sample, spark.network
    assert sample is not None
    assert network is not None
    assert spark.facts is not None
    some = Pressure(some_avg10=5.0, some_avg60=1.0, full_avg10=2.0, full_avg60=1.0)
    served = engine()
    assert served.metrics is not None
    counters = dict.fromkeys(
        (
            "iterations",
            "prefix_queries",
            "prefix_hits",
            "preemptions",
            "answers",
            "cut",
            "repeated",
            "slots",
            "context_tokens",
            "model_bytes",
        ),
        7.0,
    )
    times: dict[str, Any] = {"ttft_buckets": ((0.1, 2.0), (1.0, 3.0)), "ttft_sum_s": 1.5, "ttft_count": 3.0}
    times |= {name.replace("ttft", "itl"): value for name, value in times.items()}
    spark = replace(
        spark,
        sample=replace(
            sample,
            io_pressure=some,
            cpu_pressure=some,
            major_faults=3,
            allocation_stalls=2,
            oom_kills=1,
            probe_resident_bytes=9 << 20,
        ),
        facts=replace(spark.facts, disks=(Disk(mount="/", total_bytes=4 << 40, free_bytes=1 << 40),)),
        network=replace(
            network, rdma_ports=tuple(replace(one, received_bytes=1, sent_bytes=2) for one in network.rdma_ports)
        ),
        gpu=GpuReading(
            boot_s=sample.boot_s, gpus=(replace(gpu(throttle_reasons=()), memory_used_bytes=1, memory_total_bytes=2),)
        ),
        engines=(replace(served, metrics=replace(served.metrics, **counters, **times)),),
        trend=Trend(bytes_per_s=-2e9, time_to_empty_s=12.0),
        probe_cpu_percent=0.2,
    )
    assert isinstance(spark.network, NetworkReading)
    finding = Finding(rule="memory.low", severity=Severity.CRITICAL, title="Little memory", nodes=("spark1",))
    return picture(spark, findings=(finding,), rules_watching=62)


def full_page() -> Sequence[Metric]:
    """Every metric, each with a series."""
    return list(families(full_picture(), now_s=NOW_S, now_wall_s=WALL_S))


def metric_table(page: Iterable[Metric]) -> str:
    """The table of metrics in docs/exporter.md."""
    rows = ["| metric | labels besides `host` | what it is |", "| --- | --- | --- |"]
    for family in page:
        labels = {name for sample in family.samples for name in sample.labels} - {"host", "le"}
        name = family.name + ("_total" if family.type == "counter" else "")
        rows.append(f"| `{name}` | {', '.join(sorted(labels))} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    """docs/exporter.md with the table as the exporter has it now."""
    before, rest = text.split(START)
    return before + START + metric_table(full_page()) + END + rest.split(END)[1]


def alerts() -> str:
    """The alert rules: the watching itself, each live rule under a name of its own, and all others under one."""
    cards = [rule.card for rule in live_rules() if not rule.id.startswith(FRONTS)]
    own = [card for card in cards if card.severity is not Severity.INFO]
    names = "|".join(card.id for card in own)
    rules = [
        _alert("ExporterDown", "absent(sparktop_build_info)", "No sparktop exporter is scraped", "5m", "critical"),
        _alert("HostDown", "sparktop_up == 0", "{{ $labels.host }} is away", "1m", "critical"),
        _alert(
            "Blind",
            'sparktop_collector_up{collector!="desktop"} == 0',
            "{{ $labels.host }}: {{ $labels.collector }} can't be read: rules that need it are blind",
            "10m",
            "warning",
        ),
    ]
    for card in own:
        rules.append(_of_findings("".join(map(_camel, re.split(r"[.-]", card.id))), f'rule="{card.id}"', card.title))
    rules.append(_of_findings("Finding", f'rule!~"{names}"', "{{ $labels.rule }}"))
    head = "# Written by `make readme` from the rules' cards; edit tests/prometheus_page.py instead.\n"
    return head + yaml.safe_dump({"groups": [{"name": "sparktop", "rules": rules}]}, sort_keys=False, width=1000)


def _camel(word: str) -> str:
    return word[:1].upper() + word[1:]


def _of_findings(name: str, where: str, title: str) -> Mapping[str, Any]:
    """An alert of a rule's findings. A finding holds and clears by itself: it needs no `for`; its severity is kept."""
    subject = "{{ if $labels.subject }} ({{ $labels.subject }}){{ end }}"
    summary = f"{{{{ $labels.host }}}}: {title}{subject}"
    description = "{{ $labels.confidence }}; `sparktop rules show {{ $labels.rule }}` says what helps"
    return {
        "alert": f"Sparktop{name}",
        "expr": f'sparktop_finding{{severity!="info",{where}}} == 1',
        "annotations": {"summary": summary, "description": description},
    }


def _alert(name: str, expression: str, summary: str, holds: str, severity: str) -> Mapping[str, Any]:
    made = {"alert": f"Sparktop{name}", "expr": expression, "for": holds, "labels": {"severity": severity}}
    return {**made, "annotations": {"summary": summary}}


PANELS: tuple[tuple[str, str, str, str], ...] = (
    ("Hosts", "sparktop_up", "{{host}}", "bool"),
    ("Findings", 'sum by (host, severity) (sparktop_finding{severity!="info"})', "{{host}} {{severity}}", "none"),
    ("Memory available", "sparktop_memory_available_bytes", "{{host}}", "bytes"),
    ("Memory by holder", "sparktop_memory_held_bytes", "{{host}} {{kind}}", "bytes"),
    ("SM in use", "sparktop_gpu_utilisation_ratio", "{{host}} {{gpu}}", "percentunit"),
    ("GPU power", "sparktop_gpu_power_watts", "{{host}} {{gpu}}", "watt"),
    ("GPU temperature", "sparktop_gpu_temperature_celsius", "{{host}} {{gpu}}", "celsius"),
    ("Memory pressure, all tasks", 'sparktop_pressure_full_ratio{resource="memory"}', "{{host}}", "percentunit"),
    ("Tokens generated a second", "sparktop_engine_generation_tokens_per_second", "{{host}} {{engine}}", "none"),
    ("Requests running", "sparktop_engine_requests_running", "{{host}} {{engine}}", "none"),
    ("Requests waiting", "sparktop_engine_requests_waiting", "{{host}} {{engine}}", "none"),
    ("KV cache in use", "sparktop_engine_kv_cache_usage_ratio", "{{host}} {{engine}}", "percentunit"),
    (
        "Time to first token, p95",
        "histogram_quantile(0.95, rate(sparktop_engine_time_to_first_token_seconds_bucket[5m]))",
        "{{host}} {{engine}}",
        "s",
    ),
    ("Disk free", "sparktop_filesystem_free_bytes", "{{host}} {{mountpoint}}", "bytes"),
)
"""(title, expression, legend, Grafana's unit)"""


def dashboard() -> str:
    """Grafana's dashboard: two panels a row; the data source is asked for at import."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [{"refId": "A", "expr": expression, "legendFormat": legend, "datasource": source}],
        }
        for number, (title, expression, legend, unit) in enumerate(PANELS)
    ]
    asked = {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}
    whole = {"title": "sparktop", "uid": "sparktop", "schemaVersion": 39, "refresh": "15s", "__inputs": [asked]}
    return json.dumps({**whole, "time": {"from": "now-1h", "to": "now"}, "panels": panels}, indent=1) + "\n"


def write() -> None:
    """Write all three."""
    ALERTS.parent.mkdir(exist_ok=True)
    ALERTS.write_text(alerts(), "utf-8")
    DASHBOARD.write_text(dashboard(), "utf-8")
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    write()
