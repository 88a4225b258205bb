"""The process pane: sorted while it is shown, details of the selected process, its pid to copy."""

from __future__ import annotations

from tests import pictures_support as made
from tests.ui import svg
from tests.ui.log_stage import Stage

from sparktop.model.telemetry import GpuProcess
from sparktop.ui.dialogs.dialog import DetailsScreen
from sparktop.ui.panes.processes import ProcessPane

PICTURE = made.picture(
    made.node(
        "spark1",
        processes=(
            made.process(4711, "python3", 1.0, argv=("python3", "serve.py", "--api-key", "sk-canary-0123456789abc")),
            made.process(77, "[/b] \x1b[31mred", 2.0),
        ),
        gpu_processes=(GpuProcess(pid=4711, name="python3", used_bytes=made.gib(50)),),
    ),
    made.node("spark2"),
)


def staged() -> tuple[ProcessPane, Stage]:
    pane = ProcessPane()
    stage = Stage(pane)
    stage.call_later(pane.show, PICTURE)
    stage.call_later(pane.focus)
    return pane, stage


async def test_the_cursor_is_on_the_largest_holder_and_stays_on_its_process() -> None:
    pane, stage = staged()
    async with stage.run_test(size=(110, 20)) as pilot:
        await svg.settle(pilot, lambda: "python3" in "\n".join(svg.plain(stage)))
        assert "processes  both" in svg.plain(stage)[0]
        first = pane.row_list.selected
        assert first is not None
        await pilot.press("j")
        second = pane.row_list.selected
        assert second is not None
        assert (second.node, second.pid) != (first.node, first.pid)
        pane.show(PICTURE)
        assert pane.row_list.selected == second
        await pilot.press("k")
        assert pane.row_list.selected == first


async def test_details_mask_secrets_and_names_are_no_markup() -> None:
    pane, stage = staged()
    async with stage.run_test(size=(110, 30)) as pilot:
        await svg.settle(pilot, lambda: "4711" in "\n".join(svg.plain(stage)))
        row = next(index for index, one in enumerate(pane.row_list.rows) if one.pid == 4711)
        pane.row_list.select(row)
        await pilot.press("enter")
        assert isinstance(stage.screen, DetailsScreen)
        await svg.settle(pilot, lambda: "serve.py" in "\n".join(svg.plain(stage)))
        assert "sk-canary" not in "\n".join(svg.plain(stage))


async def test_the_list_is_filtered_and_sorted_by_keys() -> None:
    pane, stage = staged()
    async with stage.run_test(size=(110, 20)) as pilot:
        await svg.settle(pilot, lambda: len(pane.row_list.rows) > 1)
        every = len(pane.row_list.rows)
        await pilot.press("slash", *"serve[.]py", "enter")
        await svg.settle(pilot, lambda: [row.pid for row in pane.row_list.rows] == [4711])
        assert "1 found" in svg.plain(stage)[-1]
        await pilot.press("escape")
        await svg.settle(pilot, lambda: len(pane.row_list.rows) == every)
        await pilot.press("S", "S")
        await svg.settle(pilot, lambda: "by resident" in svg.plain(stage)[-1])
        resident = [row.process.resident_bytes if row.process else 0 for row in pane.row_list.rows]
        assert resident == sorted(resident, reverse=True)
