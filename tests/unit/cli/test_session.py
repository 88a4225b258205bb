"""What the console and `act` are composed of: watching and acting end together, acting first."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.ui.look import clock_of_pictures
from tests.ui.pictures import FakeWatch, idle

from sparktop.cli.composition import session
from sparktop.cli.session import LazyOperations, Session, publish_after
from sparktop.config import Config
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.operate.step.plan import Plan, Refusal


class Order:
    """Remembers what was closed, and whether the watching still ran then."""

    def __init__(self, watch: FakeWatch, *, hangs: bool = False) -> None:
        self.watch = watch
        self.seen: list[tuple[str, bool]] = []
        self.hangs = hangs

    def closer(self, name: str) -> object:
        order = self

        class Closer:
            async def aclose(self) -> None:
                order.seen.append((name, order.watch.has_ended))
                if order.hangs:
                    await asyncio.Event().wait()

        return Closer()

    def late(self) -> LazyOperations:
        late = LazyOperations(lambda: (self.closer("lines"), self.closer("operations")))  # type: ignore[arg-type,return-value]
        late.built()
        return late


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_what_acts_is_left_before_its_connections_go(how: str) -> None:
    watch = FakeWatch(idle(clock_of_pictures()))
    watch.failure = ValueError("broken") if how == "failed" else None
    order = Order(watch)
    made = Session(watch, order.late())
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if how == "cancelled":
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        with pytest.raises(ValueError, match="broken"):
            await running
    assert order.seen == [("operations", how == "failed"), ("lines", how == "failed")]
    assert watch.has_ended


async def test_what_hangs_at_the_end_does_not_keep_the_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktop.cli.session.LEAVING_S", 0.01)
    watch = FakeWatch(idle(clock_of_pictures()))
    order = Order(watch, hangs=True)
    made = Session(watch, order.late())
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert watch.has_ended


class Parts:
    """Stands in for the connections and for the operations, and notes what they are told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def opened(self, node: str, *_: object) -> None:
        self.told.append(f"{node} opened")

    def closed(self, node: str) -> None:
        self.told.append(f"{node} closed")

    def see(self, picture: FleetState) -> None:
        self.told.append(picture)


async def test_what_acts_is_built_once_and_told_of_the_connections_that_are_open_then() -> None:
    parts = Parts()
    built: list[str] = []

    def build() -> tuple[Any, Any]:
        built.append(threading.current_thread().name)
        return parts, parts

    late = LazyOperations(build)
    for node in ("spark1", "spark2"):
        late.opened(node, None, None)  # type: ignore[arg-type]
    late.closed("spark1")
    late.see(FleetState())
    assert not built
    assert await late.in_background() is parts
    assert parts.told == ["spark2 opened"]
    late.opened("spark1", None, None)  # type: ignore[arg-type]
    late.closed("spark2")
    late.see(picture := FleetState())
    assert parts.told[1:] == ["spark1 opened", "spark2 closed", picture]
    assert late.built() is await late.in_background() is parts
    assert len(built) == 1
    assert built != [threading.current_thread().name]


async def test_what_acts_and_was_never_wanted_is_not_built_to_be_left() -> None:
    built: list[str] = []

    def build() -> tuple[Any, Any]:
        built.append("built")
        return Parts(), Parts()

    await LazyOperations(build).aclose()
    assert not built


def test_a_picture_is_seen_by_what_acts_before_it_is_shown() -> None:
    told: list[str] = []
    publish = publish_after(lambda _: told.append("shown"), lambda _: told.append("seen"))
    publish(FleetState())
    assert told == ["seen", "shown"]


async def test_a_read_only_session_refuses_and_a_demo_keeps_its_audit_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = session([], lambda _: None, Config(read_only=True), is_demo=True)
    assert made.late.built().is_read_only
    answer = await made.late.built().plan(Request(action="drop-caches", nodes=("spark1",)))
    assert isinstance(answer, Refusal)
    assert not isinstance(answer, Plan)
    assert "read" in answer.reason
    assert made.late.built()._context.audit.path == tmp_path / "sparktop/demo/audit.jsonl"
    real = session([], lambda _: None, Config(protected=("spark1",)))
    assert real.late.built()._context.audit.path == tmp_path / "sparktop/audit.jsonl"
    barred = await real.late.built().plan(Request(action="drop-caches", nodes=("spark1",)))
    assert isinstance(barred, Refusal)
    assert "protected" in barred.reason
