"""The engines as rows: a worker rank is shown as its pair is."""

from __future__ import annotations

from dataclasses import replace

from tests.pictures_support import picture
from tests.table import over
from tests.unit.diagnose.rules.pair_support import rank, spark
from tests.unit.diagnose.rules.test_team import ended, four

from sparktop.documents.engine_table import engine_rows, folded, state_cell
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.operate.run.settling import figures


@over(
    "head, worker, shown",
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
    told = figures(fleet, ["spark1", "spark2"])
    assert [value for node in told.values() for key, value in node.items() if key.startswith("engine ")] == [
        head,
        shown,
    ]


def test_a_worker_rank_is_stalled_while_the_head_of_its_pair_is() -> None:
    fleet = picture(
        spark(1, engines=(rank(0, state=EngineState.SERVING),)), spark(2, engines=(rank(1, state=EngineState.READY),))
    )
    head = fleet.nodes[0].engines[0]
    silent = Finding(
        rule="engine.no-tokens", severity=Severity.CRITICAL, title="t", nodes=("spark1",), subject=head.name
    )
    stalled = replace(fleet, findings=(silent,))
    cells = [state_cell(row).plain for row in engine_rows(stalled)]
    assert all("stalled" in cell for cell in cells)
    told = figures(stalled, ["spark1", "spark2"])
    states = [value for node in told.values() for key, value in node.items() if key.startswith("engine ")]
    assert states == ["stalled", "stalled"], "as the screen says"
    assert "stalled" not in state_cell(engine_rows(fleet)[1]).plain


def test_ready_ranks_of_an_engine_over_many_are_folded_into_its_heads_row() -> None:
    rows = folded(engine_rows(four()), four())
    assert [(row.node, row.folded) for row in rows] == [("spark1", 3)]
    fleet = four(engines={2: ended(2)})
    assert [(row.node, row.folded) for row in folded(engine_rows(fleet), fleet)] == [
        (f"spark{number}", 0) for number in range(1, 5)
    ], "a rank that waits for one that died is not ready"
    pair = picture(spark(1), spark(2))
    assert folded(engine_rows(pair), pair) == engine_rows(pair)
