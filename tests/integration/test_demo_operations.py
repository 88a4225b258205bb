"""The demo acts: the console's own composition over real SSH to simulated Sparks, faster than time goes.

What is planned here is carried out over a runner's line as on a Spark; the simulated Spark reacts, and what comes of it
is seen through the probe, Docker's socket, the engine's endpoint and the rules.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from tests.integration.demo import demo

from sparktop.bringup.kept import ResultFile
from sparktop.cli.composition import proven_path
from sparktop.config import state_home
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState
from sparktop.operate.measure.busy import busy_reason

pytestmark = pytest.mark.slow


def engine_state(picture: FleetState, node: str, name: str) -> EngineState | None:
    view = picture.node(node)
    return next((one.state for one in view.engines if one.name == name), None) if view else None


async def test_a_pair_is_restarted_and_serves() -> None:
    async with demo("spin-deadlock", speed=20) as shown:
        run = await shown.do("safe-restart", ("spark1", "spark2"), "minimax-rank0", grace_s="5")
        ids = [one.step.id.partition("@")[0] for one in run.steps]
        assert ids.index("stop") < ids.index("memory") < ids.index("start") < ids.index("ready") < ids.index("smoke")
        assert engine_state(shown.picture, "spark1", "minimax-rank0") in (EngineState.READY, EngineState.SERVING)
        archive = Path(run.evidence_path)
        with tarfile.open(archive) as tar:
            names = tar.getnames()
        assert any("spark1" in name for name in names)
        assert any("spark2" in name for name in names)
        audit = (state_home() / "demo/audit.jsonl").read_text()
        assert run.id in audit


async def test_the_cable_is_measured_as_a_real_one_is() -> None:
    async with demo("bare", speed=20, has_engines=False) as shown:
        await shown.until(lambda picture: all(not busy_reason(view, view.name) for view in picture.nodes))
        run = await shown.do("measure-link", ("spark1", "spark2"))
        figures = {one.step.id: one.detail for one in run.steps}
        assert figures["half-0@spark2"] == "111.9 Gb/s (healthy 109 to 112)"
        assert figures["both@spark1"] == "196.0 Gb/s (healthy 189 to 197)"
        kept = ResultFile(proven_path(is_demo=True)).read()
        assert {row.check for row in kept.values()} == {"bandwidth.half", "bandwidth.both", "bandwidth.latency"}
