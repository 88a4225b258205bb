"""What is acknowledged or put off: for how long, across sessions, and what a broken file does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.clock import ManualClock
from sparktop.documents.attention import FORGOTTEN_S, MAX_KEPT, Attention
from sparktop.documents.finding_tree import AttentionState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

ONE = Finding(rule="a.one", severity=Severity.WARNING, title="One", nodes=("spark1",), subject="x")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "acknowledged.json"


def test_it_is_kept_for_the_next_session_readable_by_its_owner_alone(clock: ManualClock, file: Path) -> None:
    assert Attention(clock, file).acknowledge([ONE], on=True) == ""
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    again = Attention(clock, file)
    assert again.standing(ONE) is AttentionState.ACKNOWLEDGED
    assert again.standing(replace(ONE, subject="y")) is AttentionState.OPEN
    again.acknowledge([ONE], on=False)
    assert Attention(clock, file).standing(ONE) is AttentionState.OPEN
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_one_that_is_resolved_and_comes_back_is_new(clock: ManualClock, file: Path) -> None:
    attention = Attention(clock, file)
    attention.acknowledge([ONE], on=True)
    attention.follow([replace(ONE, phase=Phase.RESOLVED)])
    assert attention.standing(ONE) is AttentionState.OPEN
    assert Attention(clock, file).standing(ONE) is AttentionState.OPEN


def test_one_that_got_worse_is_new(clock: ManualClock) -> None:
    attention = Attention(clock)
    attention.acknowledge([ONE], on=True)
    assert attention.standing(replace(ONE, severity=Severity.CRITICAL)) is AttentionState.OPEN
    assert attention.standing(replace(ONE, severity=Severity.INFO)) is AttentionState.ACKNOWLEDGED


def test_a_snooze_ends_by_itself(clock: ManualClock, file: Path) -> None:
    attention = Attention(clock, file)
    attention.snooze([ONE])
    clock.advance(3599)
    assert attention.standing(ONE) is AttentionState.SNOOZED
    assert Attention(clock, file).snoozed_until_s(ONE) == clock.wall() + 1
    clock.advance(2)
    assert attention.standing(ONE) is AttentionState.OPEN
    assert attention.snoozed_until_s(ONE) is None


def test_what_nobody_has_seen_for_long_is_forgotten_and_the_file_is_bounded(clock: ManualClock, file: Path) -> None:
    attention = Attention(clock, file)
    attention.acknowledge([replace(ONE, subject=str(n)) for n in range(MAX_KEPT + 100)], on=True)
    assert len(json.loads(file.read_text())["findings"]) == MAX_KEPT
    clock.advance(FORGOTTEN_S + 1)
    assert Attention(clock, file).standing(replace(ONE, subject=str(MAX_KEPT))) is AttentionState.OPEN


@given(
    st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(json.dumps))
)
def test_any_file_is_read_as_far_as_it_can_be(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("a") / "acknowledged.json"
    file.write_text(text, "utf-8", errors="replace")
    assert Attention(ManualClock(), file).standing(ONE) is AttentionState.OPEN
    file.write_text(f'{{"findings": {text}}}', "utf-8", errors="replace")
    assert Attention(ManualClock(), file).standing(ONE) is AttentionState.OPEN


def test_a_bad_row_leaves_the_others(clock: ManualClock, file: Path) -> None:
    Attention(clock, file).acknowledge([ONE], on=True)
    data = json.loads(file.read_text())
    data["findings"].insert(0, {"rule": "a.b", "nodes": 3})
    data["findings"].append({**data["findings"][1], "severity": "worst"})
    file.write_text(json.dumps(data))
    assert Attention(clock, file).standing(ONE) is AttentionState.ACKNOWLEDGED


def test_a_file_that_cannot_be_written_says_so_and_the_session_knows(clock: ManualClock, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    attention = Attention(clock, tmp_path / "state" / "acknowledged.json")
    assert "this session only" in attention.acknowledge([ONE], on=True)
    assert attention.standing(ONE) is AttentionState.ACKNOWLEDGED
