"""The demo proves: an engine launched on an unpacked Spark answers each proof, and the page shows it."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.demo import Demo, demo
from tests.integration.test_demo_launches import order, planned
from tests.support import PATIENCE_S

from sparktop.bringup.catalogue import BY_ID, CARDS
from sparktop.bringup.kept import ResultFile
from sparktop.bringup.looking import run_checks
from sparktop.cli.composition import proven_path
from sparktop.model.bringup import Chapter, CheckResult
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.state import State

pytestmark = pytest.mark.slow

ENGINE = "vllm-qwen3.6-35b-a3b-fp8"


async def endpoint_rows(shown: Demo) -> dict[str, CheckResult]:
    cards = [card for card in CARDS if card.chapter is Chapter.ENDPOINT and card.measured_by]
    kept = ResultFile(proven_path(is_demo=True)).read()
    operations = shown.session.late.built()
    looking = run_checks(cards, lambda: shown.picture, operations.ask, kept=kept, now_wall_s=lambda: 0.0)
    return {row.check: row async for _, found in looking for row in found if row.subject}


def is_idle(picture: FleetState) -> bool:
    view = picture.node("spark1")
    engines = [engine for engine in view.engines if engine.name == ENGINE] if view else []
    return any(engine.metrics is not None and engine.metrics.running == 0 for engine in engines)


@pytest.mark.fast
async def test_what_is_launched_on_an_unpacked_spark_is_proven() -> None:
    async with demo("unpacked", speed=10, has_engines=False) as shown:
        await shown.run(await planned(shown, order("qwen3.6-35b-a3b-fp8"), "spark1"))
        await shown.until(is_idle)
        assert {row.state for row in (await endpoint_rows(shown)).values()} == {State.UNKNOWN}
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


async def rows_of(shown: Demo) -> list[CheckResult]:
    kept = ResultFile(proven_path(is_demo=True)).read()
    looking = run_checks(
        CARDS, lambda: shown.picture, shown.session.late.built().ask, kept=kept, now_wall_s=lambda: 0.0
    )
    return [row async for _, found in looking for row in found]


async def test_from_first_contact_to_a_proven_exposed_endpoint_by_what_the_page_offers() -> None:
    async with demo("unpacked", speed=10, has_engines=False) as shown:
        rows = await rows_of(shown)
        assert len([row for row in rows if row.is_problem]) > 5
        for _ in range(8):
            fixes = [
                (row, row.remedies[0]) for row in rows if row.is_problem and row.remedies and row.remedies[0].action
            ]
            if not fixes:
                break
            row, remedy = fixes[0]
            await shown.do(remedy.action or "", row.nodes, row.subject, **dict(remedy.options))
            await shown.until(lambda picture: all(view.link.state is LinkState.LIVE for view in picture.nodes))
            rows = await until_cured(shown, row)
        assert [(row.check, row.found) for row in rows if row.is_problem] == []
        served = next(row for row in rows if row.check == "endpoint.served")
        assert [remedy.action for remedy in served.remedies] == ["launch"]
        await shown.run(await planned(shown, order("qwen3.6-35b-a3b-fp8", {"host": "127.0.0.1"}), "spark1"))
        await shown.until(is_idle)
        unproven = next(row for row in await rows_of(shown) if row.check == "endpoint.answer")
        remedy = unproven.remedies[0]
        await shown.do(remedy.action or "", unproven.nodes, unproven.subject)
        proven = [
            row for row in await rows_of(shown) if row.chapter is Chapter.ENDPOINT and BY_ID[row.check].measured_by
        ]
        reached = next(row for row in await rows_of(shown) if row.check == "endpoint.reach")
        assert [remedy.action for remedy in reached.remedies] == ["expose"]
        exposure = {"name": "llm.example.org", "on": "spark1", "secret": "a-key-of-the-demo"}
        await shown.do("expose", reached.nodes, reached.subject, **exposure)
        reached = next(row for row in await rows_of(shown) if row.check == "endpoint.reach")
    assert {(str(row.state), row.is_kept) for row in proven} == {("passed", True)}, [row.found for row in proven]
    assert (reached.found, reached.remedies) == ("llm.example.org leads to it, by a proxy on spark1", ())


async def until_cured(shown: Demo, row: CheckResult) -> list[CheckResult]:
    """The rows once this one is no problem any more: the probe reads facts and interfaces seldom."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        rows = await rows_of(shown)
        if row.key not in {one.key for one in rows if one.is_problem}:
            return rows
        assert asyncio.get_running_loop().time() < deadline, f"{row.check}: {row.found}"
        await asyncio.sleep(0.5)
