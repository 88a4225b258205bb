"""What stands around an engine, read as whole texts: the root first, consequences under it, healthy texts left alone.

That each rule reads its own examples and nobody else's is test_logs_rules.py's matter.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from tests.table import over

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.logs.rule import LogRule, parse, shipped
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

AREAS = frozenset(("driver", "docker", "host", "nccl", "dist", "gloo", "mpi", "ucx", "ray", "hub", "python", "proxy"))
TEXTS = tomllib.loads((Path(__file__).parents[3] / "cases" / "platform_logs.toml").read_text("utf-8"))
OURS = [rule for rule in shipped() if rule.id.partition(".")[0] in AREAS]


def explained(text: str) -> tuple[Finding, ...]:
    explanation = Explanation("stdin", shipped())
    explanation.feed(text.encode())
    return explanation.finish()


@over("case", TEXTS["case"], ids=lambda case: case["name"])
def test_the_root_comes_first_and_the_rest_hangs_under_it(case: dict[str, Any]) -> None:
    found = [finding for finding in explained(case["text"]) if finding.severity is not Severity.INFO]
    assert [finding.rule for finding in found if finding.caused_by is None] == case["roots"]
    assert sorted(finding.rule for finding in found if finding.caused_by is not None) == sorted(case.get("under", []))
    assert found[0].rule == case["roots"][0]


@over("case", TEXTS["healthy"], ids=lambda case: case["name"])
def test_healthy_and_unrelated_texts_are_left_alone(case: dict[str, Any]) -> None:
    assert [finding for finding in explained(case["text"]) if finding.severity is not Severity.INFO] == []


def test_137_claims_no_more_than_sigkill() -> None:
    (finding,) = explained("sglang-1 exited with code 137\n")
    assert finding.severity is Severity.WARNING
    assert finding.settles
    assert "memory ran out" not in finding.title + finding.explanation


def test_a_retried_socket_warning_is_no_missing_peer() -> None:
    says = "lient socket has failed to connect to any network address of (spark1, 29501)."
    retried = f"[W604 10:00:00.1 TCPStore.cpp:125] c{says}"
    given_up = f"torch.distributed.DistNetworkError: The c{says}"
    assert explained(retried + "\n") == ()
    assert [finding.rule for finding in explained(given_up + "\n")] == ["dist.peers-missing"]


@over("rule", OURS, ids=[rule.id for rule in OURS])
def test_a_rule_is_complete(rule: LogRule) -> None:
    groups = set(re.compile(rule.regex).groupindex)
    assert set(re.findall(r"\{(\w+)\}", rule.title)) <= groups
    assert len(rule.examples) >= 2
    assert rule.scope
    assert rule.sources
    assert rule.remedies
    assert all(len(word) >= 4 for word in rule.any), "a text so short is in too many lines"


@over("rule", OURS, ids=[rule.id for rule in OURS])
def test_a_remedy_names_only_actions_that_exist(rule: LogRule) -> None:
    known = {
        None, "drop-caches", "safe-restart", "relaunch", "stop-engine", "end-holder", "break-restart-loop", "reboot",
    }  # fmt: skip
    assert {remedy.action for remedy in rule.remedies} <= known


def test_none_of_these_files_is_empty() -> None:
    assert {rule.id.partition(".")[0] for rule in OURS} >= AREAS
    assert parse("", "empty.toml") == ()
