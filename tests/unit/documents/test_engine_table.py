"""The engines as rows: a worker rank is shown as its pair is."""

from __future__ import annotations

import pytest
from tests.pictures_support import picture
from tests.unit.diagnose.rules.pair_support import rank, spark

from sparktop.documents.engine_table import engine_rows
from sparktop.model.engine import EngineState


@pytest.mark.parametrize(
    ("head", "worker", "shown"),
    [
        (EngineState.SERVING, EngineState.UNKNOWN, EngineState.READY),
        (EngineState.READY, EngineState.LOADING, EngineState.READY),
        (EngineState.LOADING, EngineState.LOADING, EngineState.LOADING),
        (EngineState.SERVING, EngineState.EXITED, EngineState.EXITED),
    ],
)
def test_a_worker_rank_is_ready_when_its_pair_serves(
    head: EngineState, worker: EngineState, shown: EngineState
) -> None:
    fleet = picture(spark(1, engines=(rank(0, state=head),)), spark(2, engines=(rank(1, state=worker),)))
    assert [row.engine.state for row in engine_rows(fleet)] == [head, shown]
