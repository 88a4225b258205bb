"""What a run has measured is a row of the page until its basis changes, whatever the row says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bringup_support import Desk, view
from tests.pictures_support import WALL_S, container, engine
from tests.table import over

from sparktop.bringup import catalogue as module
from sparktop.bringup.card import Basis, Card, Nodes, Outcome, Scope, by_hand, failed, not_measured, passed
from sparktop.bringup.catalogue import BY_ID, measured
from sparktop.bringup.kept import ResultFile
from sparktop.bringup.looking import run_checks
from sparktop.cli.composition import keep_measured, proven_path
from sparktop.documents.bringup import as_data, detail_lines, page_text, row_lines
from sparktop.model.bringup import CheckResult
from sparktop.model.request import Request, Risk
from sparktop.model.state import State
from sparktop.operate.acts.arrivals import AwaitGone
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun

SLOW = by_hand("Look at its clock", "nvidia-smi -q -d CLOCK")


def judge(run: Run, nodes: Nodes) -> Outcome | None:
    """Fast from 10 tok/s."""
    rates = [step.figures["decode_tps"] for step in run.steps if "decode_tps" in step.figures]
    if not rates:
        return None
    rate = float(rates[0])
    return passed(f"{rate:g} tok/s") if rate >= 10 else failed(f"{rate:g} tok/s", SLOW)


CARD = Card(
    id="endpoint.rate",
    title="Rate",
    looks_at="a stream",
    why="A slow engine serves nobody.",
    sources=("a test",),
    look=not_measured("time-it", "Time it"),
    measured_by="time-it",
    judge=judge,
    scope=Scope.ENGINE,
    basis=(Basis.BOOT, Basis.ENGINE),
)


@pytest.fixture(autouse=True)
def _card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BY_ID, CARD.id, CARD)
    monkeypatch.setattr(module, "CARDS", (CARD,))


def desk() -> Desk:
    """Two engines on spark1."""
    made = Desk()
    two = (engine("vllm-a"), engine("vllm-b", container=container("vllm-b", started_wall_s=WALL_S - 60)))
    made.views["spark1"] = view(engines=two)
    return made


def a_run(target: str = "vllm-a", rate: float | None = 30.0, action: str = "time-it") -> Run:
    step = Step(id="time", title="Time it", node="spark1", act=AwaitGone(pids=()))
    plan = Plan(
        request=Request(action=action, nodes=("spark1",), target=target), title="", risk=Risk.SAFE, steps=(step,)
    )
    figures = {} if rate is None else {"decode_tps": rate}
    return Run(id="r", plan=plan, state=RunState.DONE, steps=(StepRun(step=step, figures=figures),))


def rows(made: Desk, kept: ResultFile | None = None, *, again: bool = False) -> list[CheckResult]:
    async def looked() -> list[CheckResult]:
        chapters = run_checks(
            [CARD], lambda: made.picture, made.ask, kept=kept.read() if kept else {}, now_wall_s=lambda: WALL_S,
            again=again,
        )  # fmt: skip
        return [row async for _, found in chapters for row in found]

    return asyncio.run(looked())


def kept_of(tmp_path: Path, run: Run) -> ResultFile:
    kept = ResultFile(tmp_path / "bringup.json")
    kept.keep(measured(run, desk().picture, now_wall_s=WALL_S))
    return kept


def told(found: list[CheckResult]) -> list[tuple[str, State, str, bool]]:
    return [(row.subject, row.state, row.found, row.is_kept) for row in found]


UNMEASURED = (State.UNKNOWN, "not measured yet", False)


def test_before_any_run_each_engine_has_a_row_that_says_what_measures_it() -> None:
    found = rows(desk())
    assert told(found) == [("vllm-a", *UNMEASURED), ("vllm-b", *UNMEASURED)]
    lines = [line.plain for row in found for line in row_lines(row, 78, now_wall_s=WALL_S, names_node=False)]
    assert [line.strip() for line in lines if "act" in line] == [
        "sparktop act time-it spark1 --engine vllm-a", "sparktop act time-it spark1 --engine vllm-b",
    ]  # fmt: skip


@over("rate, state", [(30.0, State.PASSED), (3.0, State.FAILED)])
def test_a_measurement_stands_whatever_it_found(tmp_path: Path, rate: float, state: State) -> None:
    kept = kept_of(tmp_path, a_run(rate=rate))
    found = rows(desk(), kept)
    assert told(found) == [("vllm-a", state, f"{rate:g} tok/s", True), ("vllm-b", *UNMEASURED)]
    assert found[0].remedies == (() if state is State.PASSED else (SLOW,))
    assert rows(desk(), kept, again=True)[0].is_kept, "a look can't measure it again"
    kept.keep(found)
    assert rows(desk(), kept)[0].is_kept
    details = "\n".join(line.plain for line in detail_lines(found[0], 78, now_wall_s=WALL_S + 240))
    assert "measured 4 min ago" in details
    assert "sparktop act time-it spark1 --engine vllm-a" in details


def test_another_start_of_the_engine_ends_it_and_a_boot_too(tmp_path: Path) -> None:
    kept = kept_of(tmp_path, a_run())
    for spoilt in (
        view(engines=(engine("vllm-a", container=container("vllm-a", started_wall_s=WALL_S - 5)),)),
        view(engines=(engine("vllm-a", container=container("vllm-a", container_id="ab" * 32)),)),
        view(engines=(engine("vllm-a", container=container("vllm-a", started_wall_s=None)),)),
        view(engines=(engine("vllm-a"),), host={"boot_id": "another"}),
    ):
        made = desk()
        made.views["spark1"] = spoilt
        found = rows(made, kept)
        assert told(found) == [("vllm-a", *UNMEASURED)]
        kept.keep(found)
    assert rows(desk(), kept)[0].is_kept, "a picture that is not whole yet takes nothing back"


def test_it_is_of_the_start_that_was_measured(tmp_path: Path) -> None:
    """An engine that crashes under the run and comes back was not measured."""
    kept = kept_of(tmp_path, a_run(rate=3.0))
    made = desk()
    crashed = engine("vllm-a", container=container("vllm-a", started_wall_s=WALL_S - 1))
    made.views["spark1"] = view(engines=(crashed,))
    assert told(rows(made, kept)) == [("vllm-a", *UNMEASURED)]


def test_a_run_that_measured_nothing_or_another_thing_leaves_no_row() -> None:
    assert measured(a_run(rate=None), desk().picture, now_wall_s=WALL_S) == ()
    assert measured(a_run(action="safe-restart"), desk().picture, now_wall_s=WALL_S) == ()


def test_a_session_keeps_it_and_a_demo_somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own, demo = proven_path(is_demo=False), proven_path(is_demo=True)
    assert keep_measured(demo)(a_run(), desk().picture) == ""
    assert (own.exists(), [key[2] for key in ResultFile(demo).read()]) == (False, ["vllm-a"])
    own.mkdir(parents=True)
    assert "can't be written" in keep_measured(own)(a_run(), desk().picture)


def test_the_page_names_the_engine(tmp_path: Path) -> None:
    found = rows(desk(), kept_of(tmp_path, a_run(rate=3.0)))
    assert "| failed | Rate | vllm-a on spark1 | 3 tok/s |" in page_text(
        found, is_html=False, hosts=["spark1"], now_wall_s=WALL_S
    )
    assert [row["subject"] for row in as_data(found)["checks"]] == ["vllm-a", "vllm-b"]


def test_a_remedy_with_options_comes_back_whole(tmp_path: Path) -> None:
    kept = ResultFile(tmp_path / "bringup.json")
    (row,) = measured(a_run(rate=3.0), desk().picture, now_wall_s=WALL_S)
    remedy = replace(SLOW, action="reboot", options=(("watch_only", "yes"),))
    kept.keep([replace(row, remedies=(remedy,))])
    (again,) = kept.read().values()
    assert again.remedies == (remedy,)
    (told,) = as_data([again])["checks"][0]["remedies"]
    assert told["command"] == "sparktop act reboot spark1 --engine vllm-a --set watch_only=yes"
