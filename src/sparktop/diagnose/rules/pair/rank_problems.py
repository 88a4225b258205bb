"""Problems that a check finds in the ranks of one engine over two nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from sparktop.checks.judgement import Check, Judgement
from sparktop.engines.pair import Pair, pair_of
from sparktop.engines.ranks import EngineRank
from sparktop.model.fleet import FleetState

F = TypeVar("F")


def rank_problems(
    fleet: FleetState, check: Check[F], facts_of: Callable[[Pair, EngineRank], F | None]
) -> Iterator[tuple[Pair, EngineRank, F, Judgement]]:
    """Ranks that a check finds a problem in while both run, with their facts; one without facts is left out."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    for rank in pair.ranks:
        facts = facts_of(pair, rank)
        if facts is not None and (judgement := check(facts)).is_problem:
            yield pair, rank, facts, judgement
