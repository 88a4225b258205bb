"""What the top of the console says of a scenario at 120 columns, where most people start, without a key."""

from __future__ import annotations

import pytest
from tests.scenario_support import Stage
from tests.table import over
from tests.ui import svg
from tests.ui.look import console

pytestmark = pytest.mark.slow


async def headline(stage: Stage) -> str:
    """The two lines below the title's."""
    app, _ = console(stage.picture, clock=stage.clock)
    async with app.run_test(size=(120, 40)) as pilot:
        await svg.settle(pilot, lambda: any(mark in svg.plain(app)[1] for mark in "▲✖•"))
        return "\n".join(svg.plain(app)[1:3])


@over(
    "scenario, at_s, words",
    [
        ("two-node-tcp", 50.0, ("pair-0 uses TCP, not RDMA", "tok/s")),
        ("kv-full", 100.0, ("vllm-qwen36's KV cache is full", "7 waiting")),
        ("restart-loop", 60.0, ("vllm-coder can't start: python3 (pid 93111) holds 58.0 GiB",)),
    ],
)
async def test_the_top_line_has_the_cause_and_its_figures(scenario: str, at_s: float, words: tuple[str, ...]) -> None:
    shown = await headline(Stage(scenario).run(at_s))
    assert all(word in shown for word in words), shown
    assert "nothing wrong" not in shown
