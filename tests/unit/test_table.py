"""A test over a table fails with every row that fails, and is given fixtures as any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.table import over


@over("number, text", [(1, "1"), (2, "2")], ids=["one", "two"])
def test_rows_and_fixtures_come_together(number: int, text: str, tmp_path: Path) -> None:
    assert str(number) == text
    assert tmp_path.is_dir()


@pytest.mark.parametrize("most", [2])
@over("number", lambda most: range(most))
async def test_rows_are_made_as_a_test_is_run_and_each_has_its_folder(number: int, most: int, tmp_path: Path) -> None:
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text(str(number))
    assert number < most


def test_every_row_that_fails_is_told() -> None:
    @over("number", range(5))
    def odd(number: int) -> None:
        assert number % 2, "even"

    with pytest.raises(pytest.fail.Exception) as failure:
        odd()
    assert [line for line in str(failure.value).splitlines() if line.endswith(":")] == ["0:", "2:", "4:"]


def test_a_table_without_rows_is_no_proof() -> None:
    with pytest.raises(AssertionError):
        over("row", [])(lambda row: None)()
