"""Limits of what another machine may make us hold: numbers are finite, lists and nesting are short.

Everything decoded from a Spark passes here; what is out of bounds is a ValueError, which every reader of remote data
handles as unreadable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

LARGEST = 2.0**64
"""Of a typed figure: bytes, counters, flags; products and rates of such figures stay finite."""
LARGEST_IN_JSON = 1e40
"""Of a number that is only carried: a model's configuration writes 1e30 for "no limit"."""
LATEST_S = 1e11
"""Of a time, in the year 5138: the sum of two can still be formatted."""
MAX_ROWS = 4096
MAX_DEPTH = 64
_DIGITS = 40


def json_of(text: bytes | str) -> Any:
    """The JSON value of a text.

    Raises:
        ValueError: it is no JSON, is nested deeper than MAX_DEPTH, or holds a number that is not finite or too large.
    """
    try:
        value = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    opening, bracket = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if text.count(opening) + text.count(bracket) > MAX_DEPTH:  # type: ignore[arg-type]
        _check_depth(value)
    return value


def whole(value: object) -> int:
    """A number as a whole one.

    Raises:
        TypeError, ValueError: it is no number, or is out of bounds.
    """
    return int(real(value)) if isinstance(value, float) else _within(value)


def amount(value: object) -> int:
    """A whole number that can't be negative: bytes, a count; raises as `whole` does."""
    number = whole(value)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def real(value: object) -> float:
    """A number, finite; raises as `whole` does."""
    return float(_within(value))


def seconds_of(value: object) -> float:
    """Seconds since the epoch or since boot, or a duration: can be added and formatted; raises as `whole` does."""
    seconds = real(value)
    if not 0.0 <= seconds <= LATEST_S:
        raise ValueError(f"{seconds:g} s is no time")
    return seconds


def number_in(text: str) -> float | None:
    """The number that a text of digits is, from a log or a name; None where it is none, or out of bounds."""
    try:
        return real(float(text))
    except ValueError:
        return None


def whole_or_none(value: object) -> int | None:
    """A whole number; None for anything else, out of bounds included."""
    try:
        return None if isinstance(value, bool) or not isinstance(value, int) else whole(value)
    except ValueError:
        return None


def list_of(value: object, limit: int = MAX_ROWS) -> Sequence[Any]:
    """A list of at most `limit` elements.

    Raises:
        TypeError, ValueError: it is no list, or a longer one.
    """
    if not isinstance(value, list | tuple):
        raise TypeError(f"{type(value).__name__} in place of a list")
    if len(value) > limit:
        raise ValueError(f"a list of {len(value)}, more than {limit}")
    return value


def string_of(value: object) -> str:
    """A scalar as text.

    Raises:
        TypeError: it is a list or an object, whose nesting nobody has limited.
    """
    if not isinstance(value, str | int | float):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return str(value)


def _within(value: object) -> Any:
    if not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} in place of a number")
    if not -LARGEST <= value <= LARGEST:  # also false for NaN
        raise ValueError("a number out of bounds")
    return value


def _int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.fabs(value) <= LARGEST_IN_JSON:
        raise ValueError("a number out of bounds")
    return value


def _no_number(name: str) -> NoReturn:
    """Refuse NaN and Infinity: they are no JSON, and one of them would spoil every sum over a history."""
    raise ValueError(name)


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
