"""Tables of cases: one test over all rows where a row costs less than an item of pytest, and the few rows of a slow
table that `make test` tries."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest


def over(
    names: str, rows: Iterable[Any] | Callable[..., Iterable[Any]], *, ids: Callable[[Any], str] | Iterable[str] = str
) -> Callable[[Callable[..., Any]], Any]:
    """As `pytest.mark.parametrize`, but of one item; fixtures are made once, except that each row has its tmp_path.

    Args:
        names: the argument that a row is, or several with commas between them, for rows that are tuples.
        rows: or what makes them as the test is run, from the fixtures that it names.
        ids: the rows' names in what is told.
    """
    arguments = [name.strip() for name in names.split(",")]
    given = rows if callable(rows) else list(rows)
    names_of = ids if callable(ids) else list(ids)

    def calls(check: Callable[..., Any], fixtures: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
        named = inspect.signature(given).parameters if callable(given) else ()
        table = [*given(**{one: fixtures[one] for one in named})] if callable(given) else given
        assert table, "the table is empty"
        labels = map(names_of, table) if callable(names_of) else names_of
        for number, (label, row) in enumerate(zip(labels, table, strict=True)):
            own = dict(zip(arguments, [row] if len(arguments) == 1 else row, strict=True))
            if "tmp_path" in fixtures:
                own["tmp_path"] = fixtures["tmp_path"] / f"row{number}"
                own["tmp_path"].mkdir()
            yield label, functools.partial(check, **{**fixtures, **own})

    def decorated(check: Callable[..., Any]) -> Any:
        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            failed: list[str] = []
            for label, call in calls(check, fixtures):
                with _noted(failed, label):
                    call()
            _tell(failed)

        @functools.wraps(check)
        async def test_of_coroutines(**fixtures: Any) -> None:
            failed: list[str] = []
            for label, call in calls(check, fixtures):
                with _noted(failed, label):
                    await call()
            _tell(failed)

        signature = inspect.signature(check)
        own = [one for one in signature.parameters.values() if one.name not in arguments]
        chosen = test_of_coroutines if inspect.iscoroutinefunction(check) else test
        chosen.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return chosen

    return decorated


@contextlib.contextmanager
def _noted(failed: list[str], label: str) -> Iterator[None]:
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        failed.append(f"{label}:\n{type(error).__name__}: {error}")


def _tell(failed: list[str]) -> None:
    if failed:
        pytest.fail("\n\n".join([f"{len(failed)} rows failed", *failed]), False)


def few(rows: Iterable[Any], is_fast: Callable[[Any], bool]) -> list[Any]:
    """The rows for `pytest.mark.parametrize`; `make test` tries those that are fast, `make test-all` all."""
    several = [(row, row if isinstance(row, tuple) else (row,)) for row in rows]
    return [
        pytest.param(*values, marks=pytest.mark.fast if is_fast(row) else pytest.mark.slow) for row, values in several
    ]
