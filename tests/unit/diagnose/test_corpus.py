"""The score on labelled excerpts of real logs, where that folder is there: ../shared/corpus beside the checkout."""

from __future__ import annotations

import pytest
from tests.score_corpus import CORPUS, Score, scores, table

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"there is no corpus at {CORPUS}")

FOUND, FIRST = 0.9, 0.8


@pytest.fixture(scope="module")
def results() -> list[Score]:
    return scores()


def test_nine_of_ten_problems_are_found(results: list[Score]) -> None:
    problems = [one for one in results if one.is_problem]
    assert sum(one.found for one in problems) >= FOUND * len(problems), table(results)


def test_the_root_cause_comes_first(results: list[Score]) -> None:
    problems = [one for one in results if one.is_problem]
    assert sum(one.first for one in problems) >= FIRST * len(problems), table(results)


def test_healthy_logs_raise_no_alarm(results: list[Score]) -> None:
    assert [(one.file, one.alarm) for one in results if one.alarm] == [], table(results)


def test_nothing_says_what_would_be_wrong(results: list[Score]) -> None:
    assert [(one.file, one.forbidden) for one in results if one.forbidden] == []
