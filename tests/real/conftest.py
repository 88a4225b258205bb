"""Machines and real engines for one test each; skipped where the part isn't built (`make real`), failed instead where
SPARKTOP_REQUIRE_REAL names the part: "machine images vllm"."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.real.machine import Machine
from tests.real.parts import CanNotBeHad, load_stand_in, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/real/" in item.nodeid:
            item.add_marker(pytest.mark.real)


def need(part: str) -> None:
    """Skip, or fail, where a part isn't there."""
    if why := missing(part):
        if part in os.environ.get("SPARKTOP_REQUIRE_REAL", "").split():
            pytest.fail(f"required, and not there: {why}")
        pytest.skip(why)


def machines(*names: str, has_kernel_log: bool = False) -> Iterator[tuple[Machine, ...]]:
    """Boot them with what this test's home needs to reach them."""
    need("machine")
    need("images")
    with ExitStack() as stack:
        try:
            up = [stack.enter_context(Machine.up(name, has_kernel_log=has_kernel_log)) for name in names]
        except CanNotBeHad as why:
            if "machine" in os.environ.get("SPARKTOP_REQUIRE_REAL", ""):
                raise
            pytest.skip(str(why))
        for one in up:
            one.alias()
            load_stand_in(one)
        yield tuple(up)


@pytest.fixture
def spark() -> Iterator[Machine]:
    """One machine, spark1."""
    for (one,) in machines("spark1"):
        yield one


@pytest.fixture
def pair() -> Iterator[tuple[Machine, Machine]]:
    """spark1 and spark2, their second ports on one cable."""
    yield from machines("spark1", "spark2")  # type: ignore[misc]
