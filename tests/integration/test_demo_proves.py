"""The demo proves: an engine launched on an unpacked Spark answers each proof, and the page shows it."""

from __future__ import annotations

from tests.integration.demo import Demo, demo
from tests.integration.test_demo_launches import order, planned

from sparktop.bringup.catalogue import CARDS
from sparktop.bringup.kept import Kept
from sparktop.bringup.looking import look
from sparktop.cli.composition import proven_path
from sparktop.model.bringup import Chapter, CheckResult, CheckState
from sparktop.model.fleet import FleetState

ENGINE = "vllm-qwen3.6-35b-a3b-fp8"


async def endpoint_rows(shown: Demo) -> dict[str, CheckResult]:
    cards = [card for card in CARDS if card.chapter is Chapter.ENDPOINT]
    kept = Kept(proven_path(is_demo=True)).read()
    operations = shown.session.operations
    looking = look(cards, lambda: shown.picture, operations.ask, kept=kept, now_wall_s=lambda: 0.0)
    return {row.check: row async for _, found in looking for row in found if row.subject}


def is_idle(picture: FleetState) -> bool:
    view = picture.node("spark1")
    engines = [engine for engine in view.engines if engine.name == ENGINE] if view else []
    return any(engine.metrics is not None and engine.metrics.running == 0 for engine in engines)


async def test_what_is_launched_on_an_unpacked_spark_is_proven() -> None:
    async with demo("unpacked", speed=10, has_engines=False) as shown:
        await shown.run(await planned(shown, order("qwen3.6-35b-a3b-fp8"), "spark1"))
        await shown.until(is_idle)
        assert {row.state for row in (await endpoint_rows(shown)).values()} == {CheckState.UNKNOWN}
        run = await shown.do("prove-endpoint", ("spark1",), ENGINE)
        rows = await endpoint_rows(shown)
    assert not proven_path(is_demo=False).exists(), "the operator's own file"
    told = {check: (str(row.state), row.found, row.is_kept) for check, row in rows.items()}
    assert {check: state for check, (state, _, _) in told.items()} == {
        "endpoint.answer": "passed",
        "endpoint.stream": "passed",
        "endpoint.tools": "passed",
        "endpoint.long-prompt": "passed",
        "endpoint.parallel": "passed",
        "endpoint.key": "warning",  # the recipe's engine listens on every interface
    }, told
    assert all(row.is_kept for row in rows.values())
    figures = {name: value for step in run.steps for name, value in step.figures.items()}
    assert 5 < float(figures["decode_tps"]) < 5000
