"""What stays proven, until when, and what is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.bringup_support import Desk, view
from tests.pictures_support import link
from tests.table import over
from tests.unit.diagnose.rules.pair_support import fabric

from sparktop.bringup.kept import ResultFile
from sparktop.documents.bringup import summary
from sparktop.headless.bringup import exit_code
from sparktop.model.bringup import CheckResult
from sparktop.model.fleet import LinkState, NodeView
from sparktop.model.state import State


def proven(path: Path, desk: Desk | None = None) -> ResultFile:
    kept = ResultFile(path)
    kept.keep((desk or Desk()).rows())
    return kept


def test_what_passed_is_kept_and_not_asked_again(tmp_path: Path) -> None:
    kept = proven(tmp_path / "b.json").read()
    desk = Desk()
    rows = desk.rows("machine.gpu", "machine.cuda", kept=kept)
    assert [(row.check, row.is_kept) for row in rows] == [
        ("machine.gpu", True), ("machine.gpu", True), ("machine.cuda", False), ("machine.cuda", False),
    ]  # fmt: skip
    assert all("cuInit" in " ".join(getattr(ask, "argv", ())) for ask in desk.asked)
    assert {row.found for row in rows if row.is_kept} == {"NVIDIA GB10, driver 580.142, VBIOS 9A.0B.25.00.04"}


@over(
    "changed",
    [
        view(host={"boot_id": "another"}),
        view(host={"driver_version": "580.178.04"}),
        replace(view(), link=link(LinkState.LOST)),
        view(facts=None),
    ],
    ids=["rebooted", "updated", "lost", "unread"],
)
def test_it_is_no_longer_proven_once_that_changed_which_it_depends_on(tmp_path: Path, changed: NodeView) -> None:
    kept = proven(tmp_path / "b.json").read()
    desk = Desk()
    desk.views["spark1"] = changed
    first, second = desk.rows("machine.gpu", kept=kept)
    assert (first.is_kept, second.is_kept) == (False, True)


def test_what_fails_now_is_forgotten(tmp_path: Path) -> None:
    kept = proven(tmp_path / "b.json")
    desk = Desk()
    desk.views["spark1"] = view(host={"product": "Standard PC"})
    kept.keep(desk.rows("identity.product"))
    assert [nodes for check, nodes, _ in kept.read() if check == "identity.product"] == [("spark2",)]


def test_what_was_not_reached_is_said_and_takes_nothing_back(tmp_path: Path) -> None:
    kept = proven(tmp_path / "b.json")
    before = kept.read()
    desk = Desk()
    desk.views = {name: replace(one, link=link(LinkState.LOST)) for name, one in desk.views.items()}
    rows = desk.rows("machine.gpu", "identity.product")
    assert {row.state for row in rows} == {State.UNREACHED}
    (line,) = summary(rows, 100)
    assert line.runs[0][1] == "warning"
    assert f"{len(rows)} not reached" in line.plain
    assert "nothing wrong" not in line.plain
    assert exit_code(rows) == 3
    kept.keep(rows)
    assert kept.read() == before


@over(
    "states, code",
    [
        ((State.PASSED, State.UNKNOWN, State.SKIPPED), 0),
        ((State.PASSED, State.WARNING), 1),
        ((State.SKIPPED, State.UNKNOWN), 1),
        ((State.FAILED, State.UNREACHED), 3),
        ((State.PASSED, State.UNREACHED), 3),
    ],
)
def test_the_exit_code_says_what_could_not_be_looked_at(states: tuple[State, ...], code: int) -> None:
    row = Desk().rows("machine.gpu")[0]
    assert exit_code([replace(row, state=state) for state in states]) == code


def test_two_consoles_keep_their_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    first, second = ResultFile(path), ResultFile(path)
    first.keep(Desk().rows("machine.gpu"))
    second.keep(Desk().rows("machine.memory"))
    assert {check for check, *_ in first.read()} == {"machine.gpu", "machine.memory"}


@given(st.text(max_size=200) | st.sampled_from(['{"version":1,"proven":[3,{}]}', "[" * 100_000, '{"version":1}']))
def test_whatever_stands_in_the_file(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.json"
        path.write_text(text, encoding="utf-8", errors="replace")
        assert ResultFile(path).read() == {}


def test_a_row_that_is_no_row_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    kept = proven(path)
    path.write_text(path.read_text().replace('"machine.gpu"', '"machine.gone"'))
    assert "machine.gone" not in {check for check, *_ in kept.read()}
    assert ("machine.memory", ("spark1",), "") in kept.read()


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    row = {"check": "machine.gpu", "nodes": ["spark1"], "found": "NVIDIA GB10", "wall_s": 1.8e9}
    basis = {"spark1 boot": "boot-of-spark1", "spark1 driver": "580.142"}
    path.write_text(json.dumps({"version": 1, "proven": [row | {"basis": basis}]}))
    (kept,) = ResultFile(path).read().values()
    assert (kept.key, kept.state, kept.basis) == (("machine.gpu", ("spark1",), ""), State.PASSED, basis)


def test_a_changed_network_asks_the_pair_anew(tmp_path: Path) -> None:
    desk = Desk()
    desk.views["spark1"] = view(network=fabric(1, gid=5))
    rows: list[CheckResult] = desk.rows("rdma.gid", kept=proven(tmp_path / "b.json").read())
    assert [row.state for row in rows] == [State.PASSED]
    assert "index 5" in rows[0].found
