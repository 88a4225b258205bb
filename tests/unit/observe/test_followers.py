"""Whether a container's listed start is of a run after the one whose log was read."""

from __future__ import annotations

import pytest

from sparktop.observe.followers import is_later_start


@pytest.mark.parametrize(
    ("started_s", "before_s", "last_line_s", "is_later"),
    [
        pytest.param(100.0, 100.0, 160.0, False, id="the run that was read"),
        pytest.param(170.0, 100.0, 160.0, True, id="started again after it"),
        pytest.param(100.0, None, 102.0, False, id="seen created before it was read, listed started afterwards"),
        pytest.param(None, None, 102.0, False, id="still listed as created"),
        pytest.param(100.0, 40.0, 102.0, False, id="listed with the start before when it was read"),
        pytest.param(100.0, None, None, True, id="created, nothing to read, then started"),
        pytest.param(None, 100.0, 102.0, False, id="its listing is gone"),
    ],
)
def test_later_start(
    started_s: float | None, before_s: float | None, last_line_s: float | None, is_later: bool
) -> None:
    assert is_later_start(started_s, before_s, last_line_s) is is_later
