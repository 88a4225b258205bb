"""What a Spark can make the console hold and do grows with nothing that it sends: times, names, parents, engines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests import pictures_support as made
from tests.support import engine_of
from tests.table import over
from tests.wire_messages import MESSAGES

from sparktop.clock import ManualClock
from sparktop.model.engine import Containers, Engine, EngineKind, EngineState, figures_of
from sparktop.model.fleet import NodeView
from sparktop.model.telemetry import GpuProcess, GpuReading, Hello, Level, Process, ProcessTable, Sample
from sparktop.observe.baseline import READINGS_KEPT
from sparktop.observe.engines import engine_book
from sparktop.observe.engines.discovery import MAX_ENGINES, discover
from sparktop.observe.engines.engine_book import LAST_FEEDS_KEPT, EngineBook
from sparktop.observe.history import MOST_POINTS, MOST_READINGS, History, Thinned
from sparktop.observe.node_state import NodeState
from sparktop.wire.decode import decode

GPU = made.gpu()


def book() -> NodeState:
    clock = ManualClock()
    one = NodeState("spark1", clock=clock, changed=lambda _: None)
    hello = decode(json.dumps(MESSAGES["hello"]).encode())
    assert isinstance(hello, Hello)
    one.message(hello, clock.monotonic())
    one.message(Sample(sequence=1, boot_s=1.0, wall_s=1.0, interval_s=1.0, memory=made.memory()), clock.monotonic())
    return one


# --- time


def test_a_spark_whose_time_hardly_passes_fills_no_history() -> None:
    """All of it happens within one second, says the Spark."""
    flooded = book()
    busy = replace(GPU, utilisation_percent=99.0, power_w=38.0, sm_clock_mhz=2400)
    for number in range(2 * MOST_POINTS):
        flooded._take_gpu(GpuReading(boot_s=1.0 + number / 1e5, gpus=(busy,)))
    assert len(flooded.view().power_history.times) == MOST_POINTS
    assert len(flooded._growth._readings) == MOST_READINGS
    flooded = book()  # whose views are small
    for number in range(2 * READINGS_KEPT):
        flooded.message(GpuReading(boot_s=2.0 + number / 1e5, gpus=(busy,)), 1.0)
        flooded.view()
    assert len(flooded._baseline_learner._pending_power) == READINGS_KEPT


def test_points_that_are_too_many_are_thinned_as_those_that_are_too_old() -> None:
    history = History()
    for number in range(MOST_POINTS + 100):
        history.add(number / 1e3, 3.0 if number == 7 else 9.0)
    assert history.earlier().values == (3.0,)
    assert history.series().times[0] == pytest.approx(0.1)


def test_a_session_of_many_gaps_is_thinned_like_another() -> None:
    """As on a link that breaks every minute, for days: gaps of their own in every stretch."""
    thinned = Thinned(stretch_s=15.0, most=100)
    for minute in range(10_000):
        thinned.add(60.0 * minute, 2.0 if minute == 5 else 5.0)
        thinned.add(60.0 * minute + 30.0, None)
    series = thinned.series()
    assert len(series.times) <= 100
    assert (series.times[0], min(value for value in series.values if value is not None)) == (0.0, 2.0)
    assert series.times[-1] > 550_000
    assert list(series.times) == sorted(series.times)


def test_a_gap_that_is_longer_than_a_stretch_stays() -> None:
    thinned = Thinned(stretch_s=15.0, most=100)
    for time_s, value in ((0.0, 5.0), (4.0, None), (8.0, 3.0), (14.0, None), (31.0, 4.0)):
        thinned.add(time_s, value)
    assert thinned.series().values == (3.0, None, 4.0)


# --- names


def test_engines_under_ever_new_names_leave_only_so_many_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EngineBook(book())
    engines: list[Engine] = []
    monkeypatch.setattr(engine_book, "discover", lambda *_, **__: tuple(engines))
    for number in range(3 * LAST_FEEDS_KEPT):
        name = f"vllm-{number}" if number % 2 else "the same"
        engines[:] = [engine_of(key=f"k{number}", kind=EngineKind.VLLM, name=name, state=EngineState.READY)]
        found.look()
    assert len(found._feeds) == 1
    assert len(found._last_feeds) == LAST_FEEDS_KEPT
    assert list(found._last_feeds)[-1] == "the same"  # the newest stay


# --- processes


def processes(count: int, command: str, *argv: str, chained: bool = False) -> ProcessTable:
    rows = tuple(
        Process(
            pid=1000 + number,
            parent_pid=999 + number if chained else 1,
            command=command,
            state="S",
            resident_bytes=1,
            argv=argv,
            started_boot_s=float(number),
        )
        for number in range(count)
    )
    return ProcessTable(boot_s=1e4, processes=rows, total_count=count)


@over("command, argv", [("vllm", ("vllm", "serve", "m")), ("VLLM::Worker", ())])
def test_only_so_many_engines_are_followed_and_it_is_said(command: str, argv: tuple[str, ...]) -> None:
    crowded = book()
    crowded.process_table = processes(500, command, *argv)
    crowded.containers(Containers(available=True))
    found = EngineBook(crowded)
    found.look()
    view = crowded.view()
    assert len(view.engines) == len(found._feeds) == MAX_ENGINES
    assert view.engines[0].pids == (1000,)
    assert (
        view.collectors["engines"].detail == f"more than {MAX_ENGINES} engines are seen here: only so many are followed"
    )


def test_as_many_as_are_followed_are_no_news() -> None:
    full = book()
    full.process_table = processes(MAX_ENGINES, "vllm", "vllm", "serve", "m")
    full.containers(Containers(available=True))
    EngineBook(full).look()
    assert len(full.view().engines) == MAX_ENGINES
    assert "engines" not in full.view().collectors


@over("generations, is_found", [(20, True), (100, False)])
def test_a_server_is_looked_for_among_the_nearest_parents(generations: int, *, is_found: bool) -> None:
    table = processes(generations, "python3", "python3", "x", chained=True)
    server = replace(table.processes[0], argv=("vllm", "serve", "m"))
    table = replace(table, processes=(server, *table.processes[1:]))
    last = table.processes[-1].pid
    card = replace(GPU, processes=(GpuProcess(pid=last, name="p", used_bytes=1, kind="C"),))
    (engine,) = discover(table, GpuReading(boot_s=1e4, gpus=(card,)), Containers(available=True), (), node_wall_s=1e9)
    assert (last in engine.pids) is is_found


def test_an_engines_figures_are_kept_while_it_is_there() -> None:
    """And the parts of the memory, once the processes are known: before, they would be nobody's."""
    clock = ManualClock()
    one = NodeState("spark1", clock=clock, changed=lambda _: None)

    def sampled(second: float) -> NodeView:
        memory = made.memory()
        one.message(Sample(sequence=int(second), boot_s=second, wall_s=second, interval_s=1.0, memory=memory), second)
        return one.view()

    assert not isinstance(sampled(1.0).available_history.values[-1], Level)
    serving = made.engine()
    one.message(ProcessTable(boot_s=1.0, processes=(), total_count=0), 1.0)
    one.engines((serving, replace(serving, key="silent", metrics=None, rates=None)))
    view = sampled(2.0)
    assert isinstance(view.available_history.values[-1], Level)
    assert [moment.figures for moment in view.engine_histories[serving.key].values] == [figures_of(serving)]
    one.engines((replace(serving, metrics=None),))
    assert list(sampled(3.0).engine_histories) == [serving.key]
    assert sampled(4.0).engine_histories[serving.key].values[1:] == (None, None)
    one.engines(())
    assert not sampled(5.0).engine_histories
