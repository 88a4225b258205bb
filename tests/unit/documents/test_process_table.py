"""The processes as a table: the largest holder first, names and users, and what a narrow one leaves out."""

from __future__ import annotations

from dataclasses import replace

from tests import pictures_support as made
from tests.table import over

from sparktop.documents.process_table import SORTS, columns, facts, row_line, rows, summary
from sparktop.model.fleet import FleetState
from sparktop.model.telemetry import GpuProcess, Process
from sparktop.text.table import heading


def fleet(processes: tuple[Process, ...], on_gpu: tuple[GpuProcess, ...] = ()) -> FleetState:
    return made.picture(made.node("spark1", processes=processes, gpu_processes=on_gpu))


CORE = made.process(77, "VLLM::EngineCor", 4.1, user_id=0)
SHELL = made.process(38, "gnome-shell", 0.4, user_id=1000, shared_bytes=made.gib(0.3))
STUCK = made.process(
    99, "python3", 6.0, user_id=1234, state="D", swapped_bytes=made.gib(2), wait_channel="nvidia_ioctl"
)
ON_GPU = (
    GpuProcess(pid=77, name="VLLM::EngineCore", used_bytes=made.gib(84.1)),
    GpuProcess(pid=5000, name="ghost", used_bytes=None),
)


def test_the_largest_holder_is_first() -> None:
    assert [row.name for row in rows(fleet((SHELL, STUCK, CORE), ON_GPU))] == [
        "VLLM::EngineCore", "python3", "gnome-shell", "ghost",
    ]  # fmt: skip


@over(
    "by, first",
    [("GPU", "VLLM::EngineCore"), ("RESIDENT", "python3"), ("SWAP", "python3")],
)
def test_the_table_is_sorted_by_the_column_asked_for(by: str, first: str) -> None:
    assert rows(fleet((SHELL, CORE, STUCK), ON_GPU), by)[0].name == first
    assert by in SORTS


def test_users_are_named_where_they_are_known() -> None:
    assert {row.name: row.user for row in rows(fleet((SHELL, STUCK, CORE), ON_GPU))} == {
        "VLLM::EngineCore": "root", "python3": "1234", "gnome-shell": "spark", "ghost": "",
    }  # fmt: skip


def test_what_is_not_known_is_blank_and_never_zero() -> None:
    (ghost,) = [row for row in rows(fleet((CORE,), ON_GPU)) if row.name == "ghost"]
    assert "0 B" not in row_line(ghost, columns(120, nodes=2)).plain
    assert dict(facts(ghost))["GPU memory"] == "n/a, compute"


def test_a_process_stuck_in_the_kernel_is_marked_and_told() -> None:
    (row,) = rows(fleet((STUCK,)))
    assert ("D", "warning") in row_line(row, columns(120, nodes=1)).runs
    assert dict(facts(row))["state"] == "D, waits in nvidia_ioctl"
    assert dict(facts(row))["swapped"] == "2.0 GiB"


@over("width", [48, 76, 84, 90, 100, 200])
def test_rows_fit_and_stand_under_their_heading(width: int) -> None:
    shown = columns(width, nodes=2)
    head = heading(shown, " ")
    for row in rows(fleet((SHELL, STUCK, CORE), ON_GPU)):
        line = row_line(row, shown)
        assert line.width <= width
        if width >= 84:
            assert line.plain.index(row.name[:5]) == head.plain.index("PROCESS")


def test_the_summary_counts_all_and_zombies() -> None:
    picture = fleet((CORE,))
    view = picture.nodes[0]
    assert view.processes is not None
    dead = replace(view, processes=replace(view.processes, zombie_count=3))
    assert summary(replace(picture, nodes=(dead,))) == "412 in all · 3 zombies"
    assert summary(FleetState()) == "not read yet"
