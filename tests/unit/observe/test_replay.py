"""A recording shows again what the console showed: the same findings at the same times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.scenario_support import Stage

from sparktop.cli.record import find
from sparktop.clock import ManualClock
from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.events import events_between
from sparktop.model.event import Event
from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState
from sparktop.observe.node_state import NodeState
from sparktop.observe.received import Told
from sparktop.observe.replay.past import past_of
from sparktop.observe.replay.player import Player, is_mark
from sparktop.observe.replay.recorder import Recorder
from sparktop.observe.replay.replay import Replay
from sparktop.record.reader import entries, recent, span
from sparktop.record.tape import folder_of, recordings
from sparktop.record.writer import Limits, TapeWriter
from sparktop.sim.scenario.scenario import available, load

FAST = ("two-node-link",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name, _ in available()]
)
def test_a_replay_finds_what_was_found_when_it_was_found(tmp_path: Path, name: str) -> None:
    nodes = [node.name for node in load(name).nodes]
    tapes = recorders(tmp_path, nodes)
    live = told(Stage(name, tapes=tapes).play())
    for tape in tapes.values():
        tape.close()
    for is_seen in (True, False):
        again = told(replayed(tmp_path, nodes).play(seen=is_seen))
        assert again.keys() == live.keys()
        for what, times in live.items():
            # The stage makes one picture a second: of those a hold begins with one, and ends with another.
            assert again[what] == pytest.approx(times, abs=2.0), what


def recorders(home: Path, nodes: Iterable[str], begin_s: float = 0.0) -> dict[str, Recorder]:
    """What keeps all that a stage's nodes tell; `begin_s`: of the stage."""
    clock, limits = ManualClock(), Limits()
    lead_s = clock.wall() - clock.monotonic()
    clock.advance(begin_s)
    return {
        node: Recorder(TapeWriter(node, limits=limits, product="0", home=home, wall=clock.wall, lead_s=lead_s))
        for node in nodes
    }


def replayed(home: Path, nodes: list[str]) -> Replay:
    found = {node: recordings(folder_of(node, home))[-1].files for node in nodes}
    begin_s = min(span(files)[0] for files in found.values())
    return Replay({node: entries(files) for node, files in found.items()}, begin_s=begin_s, rules=live_rules())


def told(pictures: Iterator[FleetState]) -> dict[tuple[object, ...], list[float]]:
    """When each finding began and ended."""
    times: dict[tuple[object, ...], list[float]] = defaultdict(list)
    before: set[tuple[object, ...]] = set()
    for picture in pictures:
        now = {(*f.key, f.severity, f.confidence) for f in picture.findings if f.phase is Phase.FIRING}
        for what in now ^ before:
            times[what].append(picture.wall_s)
        before = now
    return dict(times)


def test_a_recording_of_the_first_version_is_still_read() -> None:
    """Written on 29 November 2026, never again: forty seconds of a memory spike."""
    file = Path(__file__).parents[1] / "record/version-1.tape.gz"
    replay = Replay({"spark1": entries([file])}, begin_s=span([file])[0], rules=live_rules())
    found = {what[0] for what in told(replay.play())}
    assert {"memory.first-request-spike", "memory.falling", "memory.starved"} <= found
    assert replay.has_ended
    assert replay.log("spark1", replay.state.nodes[0].engines[0].key) is not None


def test_the_charts_reach_back_into_what_was_recorded(tmp_path: Path) -> None:
    tapes = recorders(tmp_path, ["spark2"])
    stage = Stage("memory-spike", tapes=tapes)
    for _ in stage.play(60.0):
        pass
    tapes["spark2"].close()
    end_s = stage.clock.wall()
    past = past_of(recent(folder_of("spark2", tmp_path), end_s - 3600.0, end_s))
    assert 3 <= len(past.available) <= 5
    assert any(percent and percent > 90.0 for _, percent in past.utilisation)
    assert any(rate and rate > 1.0 for _, rate in past.tokens)

    clock = ManualClock(wall=end_s + 600.0, monotonic=50.0)
    state = NodeState("spark2", clock=clock, changed=lambda _: None)
    state.remember(past)
    state.remember(past)
    earlier = state.view().earlier
    assert earlier.available.times[0] == pytest.approx(50.0 - 600.0 - 60.0, abs=2.0)
    assert earlier.available.values[-1] is None
    assert len(earlier.available.times) == len(past.available) + 1


def test_marks_are_what_the_console_told_and_are_found_again_where_it_told_nothing(tmp_path: Path) -> None:
    """Of a recording by an older version the replay looks itself, and finds the same."""
    tapes = recorders(tmp_path, ["spark1"])
    stage, before = Stage("memory-spike", tapes=tapes), FleetState()
    found = []
    for picture in stage.play(30.0):
        news = tuple(event for event in events_between(before, picture) if "spark1" in event.nodes)
        found += [event for event in news if is_mark(event)]
        before = picture
        tapes["spark1"].keep(Told(events=news), stage.clock.monotonic())
    tapes["spark1"].close()
    folder = str(folder_of("spark1", tmp_path))
    taped = find([folder], None)
    assert [event for event in taped.told() or () if is_mark(event)] == found

    def marks(told: Callable[[], Sequence[Event] | None]) -> list[tuple[str, float]]:
        player = Player(
            taped.replay, begin_s=taped.begin_s, end_s=taped.end_s, at_s=0.0, publish=lambda _: None, told=told
        )
        player._mark()
        assert player.playing.marked_until_s == taped.end_s
        return [(mark.subject, mark.at_s) for mark in player.playing.marks]

    quick, slow = marks(taped.told), marks(lambda: None)
    assert [subject for subject, _ in quick] == [subject for subject, _ in slow]
    assert [at_s for _, at_s in quick] == pytest.approx([at_s for _, at_s in slow], abs=2.0)
    assert {"memory.first-request-spike", "stale"} <= {subject for subject, _ in quick}
    assert find([str(Path(__file__).parents[1] / "record/version-1.tape.gz")], None).told() is None
