"""What the rows of a launch's choices say: what is stopped, which nodes can't be asked, what is on the disks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ui import launches, pictures
from tests.ui.launches import GPT, MINIMAX, QWEN
from tests.ui.look import clock_of_pictures

from sparktop.model.fleet import FleetState, Link, LinkState
from sparktop.model.plan import Plan, Refusal
from sparktop.model.prospect import OnDisk, Slice, SliceKind
from sparktop.ui.panes.budget_bar import bar
from sparktop.ui.panes.recipe_rows import Shelved, detail_lines
from sparktop.ui.screens.launch_choices import Known, Row, rows
from sparktop.ui.screens.launch_draft import Draft, begun

GIB = 1024**3


def fleet() -> FleetState:
    return pictures.decode(clock_of_pictures())


def known(draft: Draft, seen: FleetState | None = None, *, answer: Plan | Refusal | None = None) -> Known:
    seen = seen or fleet()
    found = answer or launches.answer(draft.request(seen, {}))
    return Known(draft=draft, fleet=seen, answer=found, is_looking=False, secrets={})


def said(row: Row) -> str:
    return "\n".join(line.plain for line in row.lines)


def test_what_would_be_stopped_is_said_where_it_is_launched() -> None:
    draft = begun(QWEN, fleet())
    assert "▲ stops vllm-minimax" in said(rows(known(draft), 100)[0])
    assert "▲ stops vllm-minimax" in said(rows(known(draft), 50)[0]), "on a line of its own where there is no room"
    assert "stops" not in said(rows(known(draft.set("port", "8001")), 100)[0])
    assert "stops" not in said(rows(known(draft.stopping("vllm-minimax", False)), 100)[0])


def test_ranks_of_one_name_are_named_once() -> None:
    assert said(rows(known(begun(MINIMAX, fleet())), 100)[0]).count("vllm-minimax") == 1


@pytest.mark.parametrize("state", [LinkState.LOST, LinkState.REFUSED])
def test_of_a_node_that_is_gone_no_memory_is_told(state: LinkState) -> None:
    seen = fleet()
    gone = replace(seen.nodes[1], link=Link(state=state))
    seen = replace(seen, nodes=(seen.nodes[0], gone))
    one, other = (said(row) for row in rows(known(begun(QWEN, seen), seen), 100) if row.kind == "node")
    assert "GiB available" in one
    assert "GiB" not in other
    assert f"spark2 {state}" in other


def test_of_a_model_that_would_do_its_place_is_said_and_neither_its_nodes_twice_nor_what_enter_does() -> None:
    draft = begun(QWEN, fleet())
    found = launches.answer(draft.request(fleet(), {}))
    assert found.prospect is not None
    disk = OnDisk(
        name="Qwen-NVFP4",
        path="/srv/Qwen-NVFP4",
        nodes=("spark1", "spark2"),
        size_bytes=20 * GIB,
        quantisation="nvfp4",
        note="the same model in NVFP4, on spark1 and spark2: --set model=/srv/Qwen-NVFP4",
    )
    shown = known(draft, answer=replace(found, prospect=replace(found.prospect, on_disk=(disk,))))
    (row,) = (row for row in rows(shown, 100) if row.kind == "model")
    assert said(row).count("spark1 and spark2") == 1
    assert "the same model in NVFP4, /srv/Qwen-NVFP4" in said(row)
    assert "--set" not in said(row)


def test_available_is_never_called_free() -> None:
    slices = [
        Slice(kind=SliceKind.HOST, label="host 95.1", size_bytes=95 * GIB),
        Slice(kind=SliceKind.FREE, label="available 26.6", size_bytes=26 * GIB),
    ]
    line, _ = bar(slices, 121 * GIB, 63)
    assert "26.6" in line.plain
    assert "free" not in line.plain


@pytest.mark.parametrize("is_eager", [True, False])
def test_a_spike_that_does_not_come_as_the_recipe_stands_is_said_to(is_eager: bool) -> None:
    need = replace(GPT.need, spike_gib=47.0)
    recipe = replace(GPT, need=need, defaults={**GPT.defaults, "enforce_eager": is_eager})
    shown = " ".join(line.plain.strip() for line in detail_lines(Shelved(id=recipe.id, recipe=recipe), 200))
    assert "47 GiB more at the first request" in shown
    assert ("unless enforce_eager is set, as it is here" in shown) is is_eager
