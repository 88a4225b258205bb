"""`sparktop exporter` and `check` over a real sshd and Docker Engine, scraped by a real Prometheus."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.spark import Spark, machine, spark
from tests.integration.terminal import SPARKTOP, sparktop
from tests.prometheus_page import ALERTS
from tests.support import PATIENCE_S, free_port, interruptible, needs, poll

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["machine", "spark"]


@contextlib.contextmanager
def exporting(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a running exporter's metrics, and its process."""
    command = [sys.executable, "-X", "faulthandler", *SPARKTOP[1:], "exporter", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=interruptible) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stdout.readline().strip()
            assert url.endswith("/metrics"), process.stderr.read()
            yield url, process
        finally:
            process.kill()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as reply:
        text: str = reply.read().decode()
    return text


class Prometheus:
    """A real one, that scrapes an exporter each second and has the shipped alert rules."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "sparktop", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        needs("prometheus", "prometheus")
        command = [
            "prometheus",
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address={self.address}",
        ]
        with (self.folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                yield
            finally:
                process.terminate()

    def ask(self, path: str, **query: str) -> Any:
        try:
            return json.loads(read(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"))["data"]
        except OSError:  # it starts
            return {"result": [], "activeTargets": [], "alerts": []}

    def values(self, expression: str) -> dict[str, float]:
        """Host -> value now, of the only series that it has there."""
        rows = self.ask("query", query=expression)["result"]
        return {row["metric"].get("host", ""): float(row["value"][1]) for row in rows}

    def until(self, expression: str, wanted: dict[str, float]) -> None:
        poll(
            lambda: self.values(expression) == wanted,
            what=f"{expression} = {wanted}",
            otherwise=lambda: f"{self.values(expression)}\n{(self.folder / 'log').read_text()[-2000:]}",
        )


@pytest.mark.fast
def test_a_real_prometheus_scrapes_a_spark_and_sees_it_go_and_return(spark: Spark, tmp_path: Path) -> None:
    needs("prometheus", "prometheus")
    name = "vllm-near"
    spark.engines.start(name, env={"ENGINE_LOAD_S": "0.3"})
    with exporting("spark1", "--listen", "127.0.0.1:0") as (url, process):
        prometheus = Prometheus(tmp_path, url.split("/")[2])
        with prometheus.running():
            prometheus.until("sparktop_up", {"spark1": 1})
            total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
            prometheus.until("sparktop_memory_total_bytes", {"spark1": int(total.split()[1]) * 1024})
            prometheus.until(f'sparktop_engine_endpoint_up{{engine="{name}"}}', {"spark1": 1})
            prometheus.until(f'sparktop_engine_requests_running{{engine="{name}"}}', {"spark1": 0})
            prometheus.until(f'sum by (host) (sparktop_engine_info{{engine="{name}",kind="vllm"}})', {"spark1": 1})
            (target,) = prometheus.ask("targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            linted = subprocess.run(
                ["promtool", "check", "metrics"], input=read(url), capture_output=True, text=True, check=False
            )
            assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")

            spark.sshd.stop()
            prometheus.until("sparktop_up", {"spark1": 0})
            prometheus.until("sparktop_memory_available_bytes", {})
            prometheus.until('{__name__=~"sparktop_engine_.*"}', {})
            poll(lambda: prometheus.values("sparktop_sample_age_seconds")["spark1"] > 3, what="an age that grows")
            poll(
                lambda: any(
                    one["labels"]["alertname"] == "SparktopHostDown" for one in prometheus.ask("alerts")["alerts"]
                ),
                what="the shipped alert of a host that is away",
            )
            spark.sshd.run()
            prometheus.until("sparktop_up", {"spark1": 1})
            prometheus.until("sparktop_memory_total_bytes", {"spark1": int(total.split()[1]) * 1024})
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr is not None
        said = process.stderr.read()
        assert "spark1: lost" in said
        assert "Traceback" not in said
    with pytest.raises(OSError, match="refused"):
        read(url)


def test_prometheus_raises_each_finding_once_under_its_rules_name_or_the_name_of_all_others(tmp_path: Path) -> None:
    needs("promtool", "prometheus")
    given = {"host": "spark1", "confidence": "confirmed", "subject": "vllm"}
    findings = [("memory.low", "critical"), ("kernel.xid-79", "critical"), ("host.disk-low", "info")]
    series = [
        {"series": f"sparktop_finding{json_labels(given | {'rule': rule, 'severity': severity})}", "values": "1x5"}
        for rule, severity in findings
    ]
    raised = {"SparktopMemoryLow": "memory.low", "SparktopFinding": "kernel.xid-79"}
    summaries = {"SparktopMemoryLow": "Little memory is available", "SparktopFinding": "kernel.xid-79"}
    advice = "confirmed; `sparktop rules show {}` says what helps"
    expected = [
        {
            "eval_time": "2m",
            "alertname": name,
            "exp_alerts": [
                {
                    "exp_labels": given | {"rule": raised[name], "severity": "critical"},
                    "exp_annotations": {
                        "summary": f"spark1: {said} (vllm)",
                        "description": advice.format(raised[name]),
                    },
                }
            ],
        }
        for name, said in summaries.items()
    ]
    expected.append({"eval_time": "2m", "alertname": "SparktopHostDiskLow", "exp_alerts": []})
    case = {"interval": "1m", "input_series": series, "alert_rule_test": expected}
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": [case]}))
    for words in (["check", "rules", str(ALERTS)], ["test", "rules", str(tmp_path / "test.yml")]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def json_labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(text)}" for name, text in labels.items()) + "}"


def test_a_port_in_use_is_an_error_and_another_address_a_warning(spark: Spark) -> None:
    with exporting("spark1", "--listen", "0.0.0.0:0") as (url, process):
        port = url.split(":")[2].split("/")[0]
        done = sparktop("exporter", "spark1", "--listen", f"127.0.0.1:{port}")
        assert done.returncode == 2
        assert f"can't listen on 127.0.0.1:{port}" in done.stderr
        assert "--listen 127.0.0.1:0" in done.stderr
        poll(lambda: 'sparktop_up{host="spark1"} 1.0' in read(f"http://127.0.0.1:{port}/"), what="spark1 is up")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr is not None
        assert process.stderr.read().startswith(f"warning: who reaches 0.0.0.0:{port} can read")


@pytest.mark.fast
def test_a_check_looks_once_and_says_by_its_code(spark: Spark) -> None:
    done = sparktop("check", "spark1", "--fail-on", "info", "--timeout", "60")
    *findings, summary = done.stdout.splitlines()
    assert done.returncode == int(bool(findings)), done.stdout + done.stderr
    assert " at info or above on 1 host, by " in summary
    spark.sshd.stop()
    done = sparktop("check", "spark1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("unreachable spark1: ")
