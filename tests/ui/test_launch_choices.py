"""What the rows of a launch's choices say: what is stopped, which nodes can't be asked, what is on the disks."""

from __future__ import annotations

from dataclasses import replace

from tests.table import over
from tests.ui import launches, pictures
from tests.ui.launches import GPT, MINIMAX, QWEN
from tests.ui.look import clock_of_pictures

from sparktop.documents.prospect import bar, budget_lines, fetch_lines, gate_lines, verdict_lines, without_verdict
from sparktop.documents.recipe import RecipeRow, detail_lines
from sparktop.model.fleet import FleetState, Link, LinkState
from sparktop.model.prospect import Budget, Download, Fit, Gate, Lever, NodeBudget, OnDisk, Prospect, Slice, SliceKind
from sparktop.model.state import State
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.ui.screens.launch_choices import ChoiceRow, LaunchState, levers, rows
from sparktop.ui.screens.launch_draft import Draft, applied, first_draft

GIB = 1024**3


def fleet() -> FleetState:
    return pictures.decode(clock_of_pictures())


def known(draft: Draft, seen: FleetState | None = None, *, answer: Plan | Refusal | None = None) -> LaunchState:
    seen = seen or fleet()
    found = answer or launches.answer(draft.request(seen, {}))
    return LaunchState(draft=draft, fleet=seen, answer=found, is_planning=False, secrets={})


def said(row: ChoiceRow) -> str:
    return "\n".join(line.plain for line in row.lines)


def fetching(*, on_both: bool) -> LaunchState:
    """A pair whose model and image are fetched, while the same model in another folder is on its disks."""
    found = known(first_draft(MINIMAX, fleet()))
    assert isinstance(found.answer, Plan)
    assert found.prospect is not None
    there = OnDisk(
        name="MiniMax-M2.7-NVFP4",
        path="/srv/models/minimax",
        nodes=("spark1", "spark2") if on_both else ("spark1",),
        size_bytes=122 * GIB,
        note="the same model in NVFP4",
    )
    fetches = (
        Download(kind="image", name="registry.local/vllm:1", node="spark1", source="from its registry"),
        Download(kind="model", name="org/M", node="spark1", source="from huggingface.co", size="130.6 GB"),
        Download(kind="model", name="org/M", node="spark2", source="over the fabric from spark1", size="130.6 GB"),
    )
    prospect = replace(found.prospect, nodes=("spark1", "spark2"), on_disk=(there,), fetches=fetches)
    return replace(found, answer=replace(found.answer, prospect=prospect))


def test_what_would_be_fetched_is_said_where_it_is_launched() -> None:
    (first, *_) = rows(fetching(on_both=True), 76)
    assert "↓ fetches 130.6 GB of model org/M, image registry.local/vllm:1" in said(first)


def test_what_lies_on_every_node_spares_a_download_by_one_digit() -> None:
    found = fetching(on_both=True)
    (sparing,) = [one for one in levers(found) if "no download needed" in one.text]
    assert applied(found.draft, sparing, found.fleet).values["model"] == "/srv/models/minimax"
    assert not [one for one in levers(fetching(on_both=False)) if "no download needed" in one.text]


def test_what_would_be_stopped_is_said_where_it_is_launched() -> None:
    draft = first_draft(QWEN, fleet())
    assert "▲ stops vllm-minimax" in said(rows(known(draft), 100)[0])
    assert "▲ stops vllm-minimax" in said(rows(known(draft), 50)[0]), "on a line of its own where there is no room"
    assert "stops" not in said(rows(known(draft.set("port", "8001")), 100)[0])
    assert "stops" not in said(rows(known(draft.stopping("vllm-minimax", False)), 100)[0])


def test_what_opens_a_gate_has_a_digit_too_and_what_can_only_be_read_has_none() -> None:
    draft = first_draft(QWEN, fleet())
    found = launches.answer(draft.request(fleet(), {}))
    assert found.prospect is not None
    stop, other_port = Lever(stops=("old",)), Lever(values={"port": "8001"})
    gates = (
        Gate(name="port", node="spark1", state=State.FAILED, detail="x", levers=(stop, other_port)),
        Gate(name="name", node="spark2", state=State.FAILED, detail="x", levers=(stop,)),
        Gate(name="disk", node="spark1", state=State.FAILED, detail="x", steps=("--set port=8002",)),
        Gate(name="image", node="spark1", state=State.WARNING, detail="x", levers=(Lever(stops=("other",)),)),
    )
    shown = known(draft, answer=replace(found, prospect=replace(found.prospect, gates=gates)))
    assert levers(shown) == (stop, other_port)
    assert applied(draft, levers(shown)[1], fleet()).values == {"port": "8001"}


def test_ranks_of_one_name_are_named_once() -> None:
    assert said(rows(known(first_draft(MINIMAX, fleet())), 100)[0]).count("vllm-minimax") == 1


@over("state", [LinkState.LOST, LinkState.REFUSED])
def test_of_a_node_that_is_gone_no_memory_is_told(state: LinkState) -> None:
    seen = fleet()
    gone = replace(seen.nodes[1], link=Link(state=state))
    seen = replace(seen, nodes=(seen.nodes[0], gone))
    one, other = (said(row) for row in rows(known(first_draft(QWEN, seen), seen), 100) if row.kind == "node")
    assert "GiB available" in one
    assert "GiB" not in other
    assert other.endswith(f"spark2   {state}")
    pair, _ = (said(row) for row in rows(known(first_draft(MINIMAX, seen), seen), 100) if row.kind == "node")
    assert f"spark2 is {state}" in pair


def test_of_a_model_that_would_do_its_place_is_said_and_neither_its_nodes_twice_nor_what_enter_does() -> None:
    draft = first_draft(QWEN, fleet())
    found = launches.answer(draft.request(fleet(), {}))
    assert found.prospect is not None
    disk = OnDisk(
        name="Qwen-NVFP4",
        path="/srv/Qwen-NVFP4",
        nodes=("spark1", "spark2"),
        size_bytes=20 * GIB,
        quantisation="nvfp4",
        note="the same model in NVFP4",
    )
    shown = known(draft, answer=replace(found, prospect=replace(found.prospect, on_disk=(disk,))))
    (row,) = (row for row in rows(shown, 100) if row.kind == "model")
    assert said(row).count("spark1 and spark2") == 1
    assert "the same model in NVFP4, /srv/Qwen-NVFP4" in said(row)
    assert "--set" not in said(row)


def test_available_is_never_called_free() -> None:
    slices = [
        Slice(kind=SliceKind.HOST, label="host", size_bytes=95 * GIB),
        Slice(kind=SliceKind.FREE, label="available", size_bytes=26 * GIB, amount="26.6"),
    ]
    line, _ = bar(slices, 121 * GIB, 63)
    assert "26.6" in line.plain
    assert "free" not in line.plain


def test_what_is_missing_is_named_on_the_smallest_screen_and_not_by_its_colour_alone() -> None:
    amounts = {
        SliceKind.HOST: 9, SliceKind.WEIGHTS: 61, SliceKind.CACHE: 1, SliceKind.UNTOUCHED: 48,
        SliceKind.RESERVE: 4, SliceKind.SHORT: 3,
    }  # fmt: skip
    after = tuple(Slice(kind=kind, label=str(kind), size_bytes=size * GIB) for kind, size in amounts.items())
    one = NodeBudget(
        node="spark1", total_bytes=121 * GIB, available_bytes=112 * GIB, before=after[:1], after=after,
        left_bytes=0, fit=Fit.NO, sentence="",
    )  # fmt: skip
    *_, legend = budget_lines(Budget(fit=Fit.NO, why="", nodes=(one,)), 76, is_brief=True)
    assert legend.plain.strip().startswith("╳ short 3.0")


def test_a_gate_that_says_the_same_of_many_nodes_is_told_of_one_and_downloads_are_told_together() -> None:
    gates = [
        Gate(name="image", node=f"spark{n}", state=State.WARNING, detail=f"not on spark{n}, 20 GB", steps=("pull it",))
        for n in range(1, 5)
    ]
    told = [line.plain.strip() for line in gate_lines([*gates, replace(gates[0], node="spark9", detail="odd")], 90)]
    assert told[0].startswith("▲ image on spark1  not on spark1, 20 GB")
    assert "the same on spark2, spark3 and spark4" in told
    assert any("image on spark9  odd" in line for line in told)
    assert not any("the same" in line.plain for line in gate_lines(gates[:2], 90))
    unknown = [Gate(name="a", node="", state=State.UNKNOWN, detail=text) for text in ("b is not known: c", "d")]
    assert [line.plain for line in gate_lines(unknown, 90)] == ["? a  b is not known: c", "? a  not known: d"]
    fetches = tuple(Download(kind="image", name="i", node=f"spark{n}", source="from its registry") for n in (1, 2, 3))
    prospect = Prospect(recipe_id="r", title="t", nodes=("spark1",), fetches=fetches)
    (line,) = fetch_lines(prospect, 90)
    assert line.plain == "↓ image i on spark1, spark2 and spark3, from its registry"


def test_of_many_nodes_with_about_the_same_figures_one_is_drawn() -> None:
    parts = (Slice(kind=SliceKind.FREE, label="available", size_bytes=100 * GIB),)
    unseen = Slice(kind=SliceKind.OTHERS, label="sh", size_bytes=GIB // 3)
    nodes = tuple(
        NodeBudget(
            node=f"spark{n}", total_bytes=120 * GIB, available_bytes=100 * GIB, before=(*parts, *[unseen] * (n == 5)),
            after=parts if n != 3 else (replace(parts[0], size_bytes=90 * GIB),), left_bytes=0, fit=Fit.FITS,
            sentence="",
        )
        for n in range(1, 6)
    )  # fmt: skip
    told = [line.plain for line in budget_lines(Budget(fit=Fit.FITS, why="", nodes=nodes), 76)]
    assert [line.split()[0] for line in told if " now " in line] == ["spark1", "spark3"]
    assert "about the same on spark2, spark4 and spark5" in told[2]
    few = [line.plain for line in budget_lines(Budget(fit=Fit.FITS, why="", nodes=nodes[:2]), 76)]
    assert [line.split()[0] for line in few if " now " in line] == ["spark1", "spark2"]


@over("is_eager", [True, False])
def test_a_spike_that_does_not_come_as_the_recipe_stands_is_said_to(is_eager: bool) -> None:
    need = replace(GPT.need, spike_gib=47.0)
    recipe = replace(GPT, need=need, defaults={**GPT.defaults, "enforce_eager": is_eager})
    shown = " ".join(line.plain.strip() for line in detail_lines(RecipeRow(id=recipe.id, recipe=recipe), 200))
    assert "47 GiB more at the first request" in shown
    assert ("unless enforce_eager is set, as it is here" in shown) is is_eager


@over(
    "fit, state, is_told",
    [
        (Fit.NO, State.FAILED, False),
        (Fit.TIGHT, State.WARNING, False),
        (Fit.FITS, State.WARNING, True),
        (Fit.TIGHT, State.UNKNOWN, True),
    ],
)
def test_the_gate_that_says_what_the_verdict_says_is_left_out(fit: Fit, state: State, is_told: bool) -> None:
    gate = Gate(name="memory", node="spark1", state=state, detail="Tight: 8.5 GiB")
    assert bool(without_verdict([gate], Budget(fit=fit, why="8.5 GiB"))) is is_told


def test_beside_a_refusal_whether_it_fits_has_the_lines_that_are_left() -> None:
    prospect = launches.fitting({}, ("spark1",))
    assert prospect.budget is not None
    prospect = replace(prospect, budget=replace(prospect.budget, why=f"{'a word ' * 40}end"))
    lines = verdict_lines(prospect, 100, reason="port 8000 is held", limit=4)
    assert len(lines) == 4
    assert lines[-1].plain.endswith("end.")
    assert len(verdict_lines(prospect, 100, reason="port 8000 is held", limit=1)) == 2
