"""The launch screen: each choice is planned anew, the verdict is in sight, and nothing runs but through the review."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from tests.ui import launches, svg
from tests.ui.acting import NARROW, USUAL, at, each_size, notified
from tests.ui.launches import GPT, HOSTILE_SHELF, MINIMAX, QWEN, launching
from tests.ui.operating import FakeOperating
from tests.ui.test_app import screen, until
from textual.pilot import Pilot
from textual.widgets import Input

from sparktop.documents.recipe import RecipeRow
from sparktop.errors import TransportError
from sparktop.model.engine import EngineState
from sparktop.model.request import Request
from sparktop.model.state import State
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import RunState
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.read.recipe_file import Reading
from sparktop.recipe.settings import not_set
from sparktop.ui.app import SparktopApp
from sparktop.ui.dialogs.dialog import ConfirmScreen
from sparktop.ui.dialogs.prompts import NamedSecret
from sparktop.ui.screens.launch import LaunchScreen
from sparktop.ui.screens.recipes import RecipesScreen
from sparktop.ui.screens.review import ReviewScreen
from sparktop.ui.screens.run import RunScreen

DOWNS = {GPT.id: 0, MINIMAX.id: 1, QWEN.id: 2}


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No secret of who runs the tests."""
    for name in ("HF_TOKEN", "VLLM_API_KEY", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path_factory.mktemp("homes-state")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.chdir(folder)


async def opened(pilot: Pilot[int], recipe: str, words: str) -> LaunchScreen:
    """The launch of a recipe, once it says so."""
    await pilot.press("L")
    await at(pilot, RecipesScreen)
    await pilot.press(*["down"] * DOWNS[recipe], "enter")
    await at(pilot, LaunchScreen, words)
    top = pilot.app.screen
    assert isinstance(top, LaunchScreen)
    return top


async def planned(pilot: Pilot[int], side: FakeOperating, count: int) -> Request:
    """The request that was planned as the so-many-th, once its answer is shown."""
    top = pilot.app.screen
    assert isinstance(top, LaunchScreen)
    await until(pilot, lambda: len(side.asked) >= count and not top.is_planning, what=f"plan {count}")
    await pilot.pause()
    return side.asked[-1]


async def go_to(pilot: Pilot[int], words: str) -> None:
    """The cursor on the row that says so."""
    for _ in range(60):
        if any(line.lstrip("│ ").startswith("▌") and words in line for line in svg.plain(pilot.app)):
            return
        await pilot.press("down")
    pytest.fail(f"no row {words}; the screen was:\n{screen(pilot)}")


@pytest.mark.parametrize("size", [NARROW, USUAL, (200, 50)])
async def test_the_verdict_is_first_then_the_picture_and_what_would_change_it(size: tuple[int, int]) -> None:
    async with launching(size=size) as (app, side, pilot):
        await opened(pilot, GPT.id, "✖ Does not fit: at 0.90")
        lines = svg.plain(app)  # type: ignore[arg-type]
        assert "✖ Does not fit" in lines[1]
        text = screen(pilot)
        for wanted in ("now", "then", "✖ short 109.9", "▶ Review and launch   ✖ blocked",
                       "1 --set gpu_memory_utilization=0.52", "port 8000 is held by vllm-minimax"):  # fmt: skip
            assert wanted in text
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, LaunchScreen), "a refusal stays here as the picture of why"
        assert "the reason is above" in notified(app)
    assert len(side.asked) == 1
    assert side.executions == ()


async def test_a_lever_is_applied_by_its_digit_and_planned_anew() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, GPT.id, "✖ Does not fit")
        await pilot.press("1")
        request = await planned(pilot, side, 2)
        assert request.order is not None
        assert request.order.values == {"gpu_memory_utilization": "0.52"}
        assert ("spark1", "vllm-minimax") in request.order.stops
        text = screen(pilot)
        assert "✔ Fits" in text
        assert "● gpu_memory_utilization" in text
        assert "0.52   recipe 0.7" in text


async def test_a_secret_that_a_file_holds_is_there() -> None:
    recipe = replace(QWEN, environment={"HF_TOKEN": "$HF_TOKEN"}, path="run.sh")
    held = Adopted(name="x", reading=Reading(recipe=recipe), kind="shell script", secrets={"HF_TOKEN": "hf_x"})
    async with launching(shelf=(RecipeRow(id=recipe.id, recipe=recipe, adopted=held),)) as (_, _, pilot):
        await opened(pilot, recipe.id, "✔ Fits")
        await go_to(pilot, "HF_TOKEN")
        assert re.search(r"● HF_TOKEN +from run\.sh", screen(pilot))
        assert "hf_x" not in screen(pilot)


async def test_what_nothing_sets_is_asked_for() -> None:
    recipe = replace(QWEN, model="{MODEL}", settings={"MODEL": "run.sh:3"})

    def answers(request: Request) -> Plan | Refusal:
        assert request.order is not None
        unset = not_set(request.order)
        return (
            launches.answer(request)
            if unset is None
            else Refusal(
                request=request, reason=unset.reason, remedies=("sparktop launch run.sh spark1 --set MODEL=...",)
            )
        )

    async with launching(shelf=(RecipeRow(id=recipe.id, recipe=recipe),), answers=answers) as (_, side, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen, "not set: run.sh:3 uses it")
        await pilot.press("enter")
        await at(pilot, LaunchScreen, "not set: MODEL (run.sh:3 uses it)")
        assert re.search(r"MODEL +not set   run\.sh:3 uses it", screen(pilot))
        assert re.search(r"model +as MODEL says", screen(pilot))
        assert "{MODEL}" not in screen(pilot)
        assert "fill in MODEL under Parameters" in screen(pilot)
        assert "sparktop launch" not in screen(pilot), "the remedy is its field"
        row = next(y for y, line in enumerate(svg.plain(pilot.app)) if re.search(r"MODEL +not set", line))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.focused, Input), what="its field")
        field = pilot.app.screen.query_one("#launch-field", Input)
        assert "computed" not in field.placeholder
        assert field.region.y == row, "it covers the setting's own row"
        await pilot.press(*"Org/M", "enter")
        request = await planned(pilot, side, 2)
        assert request.order is not None
        assert (request.order.values, request.order.recipe.model) == ({"MODEL": "Org/M"}, "Org/M")
        again = replace(request.order, values={"MODEL": "Org/N"})
        assert (again.recipe.model, replace(again, values={}).recipe) == ("Org/N", recipe)


async def test_from_the_list_to_a_run_and_only_by_the_reviews_button() -> None:
    async with launching() as (app, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await pilot.press("enter")
        await at(pilot, ReviewScreen, "✔ Fits: at 0.60")
        text = screen(pilot)
        assert text.index("weights 34.6") < text.index("8 steps in this order")
        for wanted in ("✔ 11 gates passed", "▲ image-version", "Stop vllm-minimax", "o choices"):
            assert wanted in text
        await pilot.press("enter")
        await at(pilot, LaunchScreen)
        assert side.executions == (), "its Cancel leads back to the choices"
        await pilot.press("ctrl+s")
        await at(pilot, ReviewScreen)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "Launch qwen3.6-35b-a3b-fp8 on spark1")
        (kept,) = app.acting.launching.drafts.values()
        assert (kept.nodes, kept.decided, kept.order.secrets) == (("spark1",), {}, {}), (
            "it is tried again where it fails"
        )
        mended = replace(QWEN, title="mended since")
        again = app.acting.launching._earlier_draft(mended)
        assert again == replace(kept, order=replace(kept.order, recipe=mended))
        assert app.acting.launching._earlier_draft(replace(QWEN, min_nodes=2, max_nodes=2)) is None
        assert app.acting.launching.fits == {}
    assert len(side.executions) == 1


async def test_choices_make_the_request() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await go_to(pilot, "spark2")
        await pilot.press("enter")
        request = await planned(pilot, side, 2)
        assert request.nodes == ("spark2",)
        await go_to(pilot, "nvidia/Qwen3.6-35B-A3B-NVFP4")
        await pilot.press("enter")
        request = await planned(pilot, side, 3)
        assert request.order is not None
        assert request.order.values == {"model": "/srv/models/qwen3.6-nvfp4"}
        await go_to(pilot, "[x] vllm-minimax")
        await pilot.press("space")
        request = await planned(pilot, side, 4)
        assert request.order is not None
        assert request.order.stops == ()
        assert "[ ] vllm-minimax" in screen(pilot)


async def test_a_parameter_is_edited_in_its_row() -> None:
    async with launching() as (app, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await go_to(pilot, "max_model_len")
        await pilot.press("enter")
        field = app.screen.query_one("#launch-field", Input)
        assert field.has_focus
        row = next(y for y, line in enumerate(svg.plain(app)) if "max_model_len" in line)  # type: ignore[arg-type]
        assert field.region.y == row, "the field lies over its row"
        await pilot.press(*"32768q1", "escape")
        assert isinstance(app.screen, LaunchScreen), "Esc leaves the field alone"
        assert len(side.asked) == 1
        await pilot.press("enter", *"32768", "enter")
        request = await planned(pilot, side, 2)
        assert request.order is not None
        assert request.order.values == {"max_model_len": "32768"}
        assert "● max_model_len" in screen(pilot)
        await pilot.press("backspace")
        request = await planned(pilot, side, 3)
        assert request.order is not None
        assert request.order.values == {}


async def test_more_parameters_unfold() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        assert "reasoning_parser" not in screen(pilot)
        await go_to(pilot, "3 more parameters")
        assert "Enter unfold" in screen(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "reasoning_parser" in screen(pilot))
        assert "fewer parameters" in screen(pilot)
        await go_to(pilot, "fewer parameters")
        assert "Enter fold" in screen(pilot)
    assert len(side.asked) == 1


async def test_two_nodes_are_named_with_their_head() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, MINIMAX.id, "✔ Fits")
        assert "◉ spark1 (head) and spark2" in screen(pilot)
        await go_to(pilot, "spark2 (head)")
        await pilot.press("enter")
        request = await planned(pilot, side, 2)
        assert request.nodes == ("spark2", "spark1")


async def test_the_newest_choice_wins_and_the_old_picture_is_faded_meanwhile() -> None:
    async with launching() as (_, side, pilot):
        top = await opened(pilot, QWEN.id, "✔ Fits")
        side.gate = asyncio.Event()
        await go_to(pilot, "spark2")
        await pilot.press("enter")
        await until(pilot, lambda: len(side.asked) == 2)
        assert "▸ looking again …" in screen(pilot)
        assert "▸ looking …" in screen(pilot)
        await pilot.press("up", "enter")
        await until(pilot, lambda: len(side.asked) == 3)
        side.gate.set()
        await until(pilot, lambda: not top.is_planning)
        assert top.answer is not None
        assert top.answer.request is side.asked[2]
        assert side.asked[2].nodes == ("spark1",)


async def test_a_review_that_is_asked_for_while_it_looks_comes_when_it_has_looked() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        side.gate = asyncio.Event()
        await go_to(pilot, "spark2")
        await pilot.press("enter", "ctrl+s")
        await until(pilot, lambda: len(side.asked) == 2)
        await pilot.pause()
        assert isinstance(pilot.app.screen, LaunchScreen)
        side.gate.set()
        await at(pilot, ReviewScreen, "on spark2")


async def test_a_fault_or_a_lost_line_is_a_refusal_here_too() -> None:
    async with launching() as (_, side, pilot):
        side.failure = TransportError("the line broke", hint="it is tried again")
        await opened(pilot, QWEN.id, "✖ the line broke")
        assert "it is tried again" in screen(pilot)
        side.failure = KeyError("x")
        await go_to(pilot, "spark2")
        await pilot.press("enter")
        await planned(pilot, side, 2)
        assert "a fault in sparktop: KeyError" in screen(pilot)


async def test_what_moved_on_the_node_is_looked_at_again() -> None:
    async with launching() as (app, side, pilot):
        top = await opened(pilot, QWEN.id, "✔ Fits")
        top._plan_if_changed()
        await pilot.pause(0.05)
        assert len(side.asked) == 1, "nothing has moved"
        state = app.console_screen.fleet
        rests = launches.replace(state.nodes[0].engines[0], state=EngineState.READY)
        app.publish(launches.replace(state, nodes=(launches.replace(state.nodes[0], engines=(rests,)), state.nodes[1])))
        await until(pilot, lambda: app.console_screen.fleet.nodes[0].engines[0].state is EngineState.READY)
        top._plan_if_changed()
        await pilot.pause(0.05)
        assert len(side.asked) == 1, "an engine that has nothing to do for a moment is no news"
        gone = launches.replace(state.nodes[0], engines=())
        app.publish(launches.replace(state, nodes=(gone, *state.nodes[1:])))
        await until(pilot, lambda: app.console_screen.fleet.nodes[0].engines == ())
        top._plan_if_changed()
        await planned(pilot, side, 2)
        assert "vllm-minimax" not in screen(pilot).partition("Stop to free memory")[2]


async def test_a_secret_comes_from_the_environment_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_hunter2hunter2")
    async with launching() as (app, side, pilot):
        top = await opened(pilot, GPT.id, "✖ Does not fit")
        await go_to(pilot, "HF_TOKEN")
        assert "● HF_TOKEN   from the environment" in screen(pilot)
        assert side.asked[0].order is not None
        assert side.asked[0].order.secrets == {"HF_TOKEN": "hf_hunter2hunter2"}
        copied: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        await pilot.press("y")
        assert copied == ["sparktop launch gpt-oss-120b spark1 --stop vllm-minimax"]
        assert "hunter2" not in screen(pilot)
        assert "hunter2" not in repr(top.draft)
        assert "hunter2" not in repr(side.asked[0])
        await pilot.press("escape")
        await at(pilot, RecipesScreen)
        assert not [one for one in app.acting.launching.drafts.values() if one.order.secrets]


async def test_a_missing_secret_is_asked_for_unseen() -> None:
    def refused(request: Request) -> Refusal:
        assert request.order is not None
        if request.order.secrets:
            return Refusal(request=request, reason="something else")
        prospect = launches.short({}, request.nodes)
        (shut,) = (gate for gate in launches.gates(hub=(State.FAILED, "the model is gated", "")) if gate.name == "hub")
        shut = launches.replace(shut, secrets=("HF_TOKEN",))
        return Refusal(request=request, reason="no HF_TOKEN", prospect=launches.replace(prospect, gates=(shut,)))

    async with launching(answers=refused) as (_, side, pilot):
        await opened(pilot, QWEN.id, "✖ no HF_TOKEN")
        await pilot.press("enter")
        await at(pilot, NamedSecret, "HF_TOKEN isn't set")
        await pilot.press(*"hf_hunter2hunter2")
        assert "hunter2" not in screen(pilot)
        await pilot.press("enter")
        await at(pilot, LaunchScreen)
        request = await planned(pilot, side, 2)
        assert request.order is not None
        assert request.order.secrets == {"HF_TOKEN": "hf_hunter2hunter2"}
        assert "as typed, for this launch" in screen(pilot)
        assert "hunter2" not in screen(pilot)


async def test_what_was_chosen_is_still_there_when_it_is_opened_again() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await go_to(pilot, "port")
        await pilot.press("enter", *"8123", "enter")
        await planned(pilot, side, 2)
        await pilot.press("escape")
        await at(pilot, RecipesScreen)
        await pilot.press("enter")
        await at(pilot, LaunchScreen, "✔ Fits")
        request = await planned(pilot, side, 3)
        assert request.order is not None
        assert request.order.values == {"port": "8123"}


async def test_planning_anew_after_a_failed_launch_opens_its_choices() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await pilot.press("enter")
        await at(pilot, ReviewScreen)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen)
        side.executions[0].end(RunState.FAILED, 4, message="no such image")
        await at(pilot, RunScreen, "p plan again")
        await pilot.press("p")
        await at(pilot, LaunchScreen, "✔ Fits")
        assert side.asked[-1].order is not None
        assert side.asked[-1].order.recipe.id == QWEN.id


async def test_leaving_during_a_fetch_says_that_it_goes_on() -> None:
    async with launching() as (_, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await pilot.press("enter")
        await at(pilot, ReviewScreen)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "v memory")
        side.executions[0].at(0, "1.7 GB", 0.1)
        await pilot.press("escape", "q")
        await at(pilot, ConfirmScreen, "goes on by itself")
        assert "completes or reverts" not in screen(pilot)


async def test_after_the_way_back_the_log_of_what_was_removed_is_in_the_evidence() -> None:
    async with launching() as (app, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await pilot.press("enter")
        await at(pilot, ReviewScreen)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "v memory")
        side.executions[0].end(RunState.ROLLED_BACK, 4, message="no such image", evidence_path="/x/spark1.tar.gz")
        await until(pilot, lambda: "rolled back" in screen(pilot))
        await pilot.press("l")
        assert "isn't among the engines of spark1 any more: see the evidence" in notified(app)


async def test_the_run_shows_the_memory_on_request_the_log_and_what_was_measured() -> None:
    async with launching() as (app, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await pilot.press("enter")
        await at(pilot, ReviewScreen)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "v memory")
        run = side.executions[0]
        run.at(1, "Qwen/Qwen3.6-35B-A3B-FP8: 12.1 of 34.9 GB, 112 MB/s, 3:24 left", 0.35)
        await until(pilot, lambda: "3:24 left" in screen(pilot) and "35 %" in screen(pilot))
        assert "weights 34.6" not in screen(pilot)
        await pilot.press("v")
        await until(pilot, lambda: "weights 34.6" in screen(pilot))
        await pilot.press("v")
        await until(pilot, lambda: "weights 34.6" not in screen(pilot))
        run.at(5, "loading 12 of 37 shards", 0.33)
        await pilot.press("l")
        assert "isn't among the engines of spark1 yet" in notified(app)
        shown: list[tuple[str, str]] = []
        app.acting.show_log = lambda node, engine: not shown.append((node, engine))  # type: ignore[func-returns-value]
        measured = "first token 0.4 s (expected 0.4 s); 51.2 tok/s (expected 48-53); 36 GiB left"
        steps = list(run.run.steps)
        run.end(RunState.DONE, message="It serves on port 8000.")
        steps = list(run.run.steps)
        steps[-1] = launches.replace(steps[-1], detail=measured)
        run._set(steps=tuple(steps))
        await until(pilot, lambda: "measured  first token 0.4 s" in screen(pilot))
        assert "51.2 tok/s (expected 48-53)" in screen(pilot)


async def test_the_log_of_an_engine_that_is_there_is_opened_from_the_run() -> None:
    async with launching() as (app, side, pilot):
        await opened(pilot, QWEN.id, "✔ Fits")
        await go_to(pilot, "name")
        await pilot.press("enter")
        await pilot.press("escape", "ctrl+s")
        await at(pilot, ReviewScreen)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "l log")
        state = app.console_screen.fleet
        born = launches.replace(state.nodes[0].engines[0], name=QWEN.id, key="0123456789ab")
        app.publish(launches.replace(state, nodes=(launches.replace(state.nodes[0], engines=(born,)), state.nodes[1])))
        await until(pilot, lambda: app.console_screen.fleet.nodes[0].engines[0].name == QWEN.id)
        await pilot.press("l")
        await until(pilot, lambda: app.console_screen.is_current and app.console_screen.view == "log")
        row = app.console_screen.engines.selected
        assert row is not None
        assert (row.node, row.engine.name) == ("spark1", QWEN.id)
    assert len(side.executions) == 1


@pytest.mark.parametrize("size", each_size((60, 20), NARROW, USUAL, (200, 50)))
async def test_hostile_text_is_only_text_and_everything_can_be_reached(size: tuple[int, int]) -> None:
    async with launching(size=size, shelf=HOSTILE_SHELF) as (app, _, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen)
        await pilot.press("enter")
        await at(pilot, LaunchScreen, "▲ Tight")
        for number in range(40):
            lines = svg.plain(app)  # type: ignore[arg-type]
            assert len(lines) == size[1]
            assert max(map(len, lines)) <= size[0]
            assert not [char for line in lines for char in line if ord(char) < 32 or 0x7F <= ord(char) < 0xA0]
            assert "]52;" not in screen(pilot)
            assert "‮" not in screen(pilot)
            await pilot.press("down" if number % 5 else "pagedown")
        await pilot.press("home", "enter")
        await at(pilot, ReviewScreen, "Cancel")
        assert "]52;" not in screen(pilot)


async def test_what_is_new_and_critical_is_said_above_and_not_over_the_choices() -> None:
    async with launching(size=NARROW) as (app, _, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen)
        top = app.screen
        assert isinstance(top, RecipesScreen)
        top.tell("new: spark1 will be out of memory")
        await until(pilot, lambda: "✖ new: spark1 will be out of memory" in screen(pilot))
        await pilot.press("enter")
        await at(pilot, LaunchScreen, "✖ Does not fit")
        assert isinstance(app.screen, LaunchScreen)
        app.screen.tell("new: spark1 will be out of memory")
        await until(pilot, lambda: "✖ new: spark1" in svg.plain(app)[1])  # type: ignore[arg-type]
        assert "✖ Does not fit" in screen(pilot)


async def test_nothing_of_a_remedy_is_left_out() -> None:
    image = f"ghcr.io/{'spark-arena-' * 9}nightly"

    def refused(request: Request) -> Refusal:
        shut = launches.gates(image=(State.FAILED, "it doesn't exist", f"docker pull {image}"))
        prospect = launches.replace(launches.fitting({}, request.nodes), gates=shut)
        return Refusal(request=request, reason="image: it doesn't exist", prospect=prospect)

    async with launching(answers=refused) as (_, _, pilot):
        await opened(pilot, QWEN.id, "✖ image: it doesn't exist")
        text = screen(pilot)
        assert "✔ Fits" in text, "what else is known is told below the reason"
        right = [line[60:].strip("│ ") for line in text.splitlines()]
        assert image in "".join(right).replace(" ", "")


async def test_it_asks_nothing_before_anything_can_act() -> None:
    async with launching() as (app, _, pilot):
        assert isinstance(app, SparktopApp)
        app.session_runs.operating = None
        await pilot.press("L")
        await pilot.pause()
        assert "still starting" in notified(app)
