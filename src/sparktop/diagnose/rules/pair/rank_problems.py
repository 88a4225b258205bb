"""Problems that a check finds in the ranks of an engine over several nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TypeVar

from sparktop.checks.judgement import Check, Judgement
from sparktop.engines.pair import Team, whole
from sparktop.engines.ranks import EngineRank
from sparktop.model.fleet import FleetState

F = TypeVar("F")


def rank_problems(
    fleet: FleetState, check: Check[F], facts_of: Callable[[Team, EngineRank], F | None]
) -> Iterator[tuple[Team, EngineRank, F, Judgement]]:
    """Ranks that a check finds a problem in while all run, with their facts; one without facts is left out."""
    for team in whole(fleet):
        for rank in team.ranks:
            facts = facts_of(team, rank)
            if facts is not None and (judgement := check(facts)).is_problem:
                yield team, rank, facts, judgement


def team_problems(
    fleet: FleetState, check: Check[F], facts_of: Callable[[Team, EngineRank], F | None]
) -> Iterator[tuple[Team, list[tuple[EngineRank, F, Judgement]]]]:
    """The same, all ranks of an engine together."""
    for team, problems in groupby(rank_problems(fleet, check, facts_of), key=lambda problem: problem[0]):
        yield team, [problem[1:] for problem in problems]
