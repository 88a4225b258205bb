"""`sparktop check`: what counts at a level, a line each, and the exit code."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.pictures_support import link, node, picture
from tests.unit.headless.test_status import FINDING, StillWatch

from sparktop.headless.status import check, check_code, check_lines
from sparktop.model.engine import NOT_ASKED, Containers
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Phase
from sparktop.model.fleet import FleetState, LinkState

NOTE = replace(FINDING, rule="host.zombies", severity=Severity.INFO, title="Many zombies", brief="")
SUSPECTED = replace(NOTE, rule="a.b", severity=Severity.WARNING, confidence=Confidence.SUSPECTED)
RESOLVED = replace(FINDING, phase=Phase.RESOLVED)
FLEET = picture(findings=(FINDING, SUSPECTED, NOTE, RESOLVED), rules_watching=62)


@pytest.mark.parametrize(("level", "count"), [(Severity.INFO, 3), (Severity.WARNING, 2), (Severity.CRITICAL, 1)])
def test_what_is_at_the_level_or_above_is_a_line_and_one(level: Severity, count: int) -> None:
    *findings, summary = check_lines(FLEET, level)
    assert len(findings) == count
    assert summary.startswith(str(count))
    assert check_code(FLEET, level) == 1
    assert findings[0] == "critical spark1 gpu.spin-deadlock: Spin deadlock (96 % SM at 15 W)"
    assert [line.endswith(", suspected") for line in findings] == [line.startswith("warning") for line in findings]


def test_nothing_at_the_level_is_zero() -> None:
    fleet = picture(findings=(NOTE, RESOLVED), rules_watching=62)
    assert list(check_lines(fleet, Severity.WARNING)) == ["nothing at warning or above on 2 hosts, by 62 rules"]
    assert check_code(fleet, Severity.WARNING) == 0
    assert list(check_lines(picture(node()), Severity.CRITICAL)) == ["nothing at critical on 1 host, by 0 rules"]


def test_a_host_that_is_away_is_three_whatever_else_was_found() -> None:
    away = replace(node("spark2"), link=link(LinkState.LOST, reason="no answer"))
    fleet = picture(node(), away, findings=(FINDING,))
    lines = list(check_lines(fleet, Severity.WARNING))
    assert lines[1] == "unreachable spark2: lost: no answer"
    assert "1 finding at warning or above on 1 of 2 hosts" in lines[-1]
    assert check_code(fleet, Severity.CRITICAL) == 3


@pytest.mark.parametrize(
    "fleet",
    [
        picture(replace(node(), containers=Containers(detail="denied", is_denied=True))),
        picture(replace(node(), containers=NOT_ASKED)),
        picture(replace(node(), gpu=None)),
        picture(replace(node(), has_looked_for_engines=False)),
    ],
)
def test_what_cannot_be_judged_is_not_taken_for_good(fleet: FleetState) -> None:
    first, _ = check_lines(fleet, Severity.CRITICAL)
    assert first.startswith("unknown spark1: ")
    assert check_code(fleet, Severity.CRITICAL) == 1


def test_it_looks_once_and_prints_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    code = asyncio.run(check(lambda publish: StillWatch(FLEET, publish), Severity.CRITICAL, timeout_s=0.1))
    assert code == 1
    assert capsys.readouterr().out.splitlines() == list(check_lines(FLEET, Severity.CRITICAL))
