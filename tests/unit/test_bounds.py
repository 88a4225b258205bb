"""The limits of what another machine may make us hold."""

from __future__ import annotations

import json
import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.bounds import (
    LARGEST,
    LARGEST_IN_JSON,
    LATEST_S,
    MAX_DEPTH,
    MAX_ROWS,
    amount,
    json_of,
    list_of,
    number_in,
    real,
    seconds_of,
    string_of,
    whole,
    whole_or_none,
)


@over(
    "text",
    [
        "9" * 400,
        "9" * 5000,
        "-" + "9" * 41,
        "1e999",
        "1e41",
        "NaN",
        "-Infinity",
        '{"a": [1, NaN]}',
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "[" * 100_000,
        '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
        "",
        "nonsense",
    ],
)
def test_what_is_out_of_bounds_is_no_json(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the reason, a reader handles it as one
        json_of(text)
    with pytest.raises(ValueError):  # noqa: PT011
        json_of(text.encode())


def test_what_programs_write_is_read() -> None:
    value = {"max": 10**30, "min": -1, "share": 0.25, "rows": [[1, "x"], None, True], "text": "[" * 500}
    assert json_of(json.dumps(value)) == value
    assert json_of(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert len(json_of(json.dumps([{}] * 1000))) == 1000


@over(
    "read, value",
    product([whole, amount, real, seconds_of], [10**400, 1e300, math.inf, math.nan, "3", None, [3], {}, 2**65]),
)
def test_a_figure_is_a_number_within_bounds(read: Any, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        read(value)


def test_figures() -> None:
    assert (whole(-3), whole(7.9), amount(2**64), real(3)) == (-3, 7, 2**64, 3.0)
    assert seconds_of(LATEST_S) == LATEST_S
    for value in (-1, -0.5):
        with pytest.raises(ValueError, match="no time"):
            seconds_of(value)
    with pytest.raises(ValueError, match="negative"):
        amount(-1)
    assert [whole_or_none(value) for value in (5, 5.0, True, 10**400, "5", None)] == [5, *[None] * 5]
    assert [number_in(text) for text in ("1.5", "", "x", "9" * 400, "nan")] == [1.5, *[None] * 4]


def test_each_bound_is_where_it_is_said_to_be() -> None:
    assert (LARGEST, LARGEST_IN_JSON, LATEST_S, MAX_ROWS, MAX_DEPTH) == (2.0**64, 1e40, 1e11, 4096, 64)
    assert (whole(-(2**64)), real(LARGEST), real(-LARGEST)) == (-(2**64), LARGEST, -LARGEST)
    assert json_of("[1e40, -1e40]") == [1e40, -1e40]
    assert json_of("9" * 40) == 10**40 - 1
    for text in ("1.1e40", "-1.1e40", "9" * 41):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever the reason
            json_of(text)
    assert len(list_of([0] * 4096)) == 4096
    with pytest.raises(ValueError, match="4097"):
        list_of([0] * 4097)
    deepest = "[" * 63 + "[], {}" + "]" * 63
    assert json_of(deepest)
    with pytest.raises(ValueError, match="deeply"):
        json_of(deepest.replace("[], {}", "[[]], {}"))


def test_lists_and_texts() -> None:
    assert list_of([1, 2], 2) == [1, 2]
    assert [string_of(value) for value in ("x", 3, 0.5)] == ["x", "3", "0.5"]
    for value in ({"a": 1}, "ab", None, 3):
        with pytest.raises(TypeError):
            list_of(value)
    with pytest.raises(ValueError, match="more than 2"):
        list_of([1, 2, 3], 2)
    for value in ([], {}, None):
        with pytest.raises(TypeError):
            string_of(value)


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_nothing_else_is_raised(text: str | bytes) -> None:
    try:
        value = json_of(text)
    except ValueError:
        return
    assert json_of(json.dumps(value)) == value
