"""Scenario files: those that ship load, and a bad one says where and what."""

from __future__ import annotations

import math
import shutil
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from tests.table import few, over

from sparktop.cli.watch import INCIDENTS
from sparktop.cmdline.engine_argv import value_of
from sparktop.errors import ConfigError
from sparktop.sim.scenario.scenario import available, load, load_file
from sparktop.sim.scenario.script import Repeat
from sparktop.sim.scenario.tracks import Track, noise
from sparktop.sim.spark.spark import Spark

NAMES = [name for name, _ in available()]

GOOD = """
title = "t"
description = "d"
length_s = 60
[[nodes]]
name = "spark1"
[nodes.tracks]
util = [[0, 0], [10, 96]]
[[nodes.containers]]
name = "vllm-one"
image = "vllm:1"
argv = ["vllm", "serve", "m"]
runs = [{ start_s = -100 }]
[[nodes.containers.log]]
at_s = 3
text = "line"
[[nodes.engines]]
name = "vllm-one"
kind = "vllm"
model = "m"
version = "1"
port = 8000
serves = [[-50, inf]]
"""


def written(tmp_path: Path, text: str, name: str = "mine") -> Path:
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return path


def test_the_ones_that_ship_are_those_of_the_issue() -> None:
    assert NAMES[0] == "healthy"
    wanted = {"spin-deadlock", "memory-spike", "desktop-freeze", "leak-after-kill", "power-wedge", "link-loss"}
    assert set(NAMES) >= wanted | {"healthy"}
    assert all(title for _, title in available())
    assert set(INCIDENTS) < set(NAMES)


@over("name", NAMES)
def test_each_loads_with_its_nodes_and_a_calm_beginning(name: str) -> None:
    scenario = load(name)
    assert [node.name for node in scenario.nodes] == [f"spark{1 + n}" for n in range(8 if name == "eight-nodes" else 2)]
    assert scenario.description
    assert all(fault.start_s >= 10 for node in scenario.nodes for fault in node.faults)
    last_fault = max((fault.end_s for node in scenario.nodes for fault in node.faults), default=0)
    assert scenario.length_s - last_fault >= 60  # its end can be looked at


@pytest.mark.parametrize("name", few(NAMES, "healthy-day".__ne__))
def test_the_memory_of_each_adds_up_as_a_machines_does(name: str) -> None:
    scenario = load(name)
    for script in scenario.nodes:
        spark = Spark(scenario, script, showing=0, began_wall_s=1.78e9)
        for t in range(int(scenario.length_s)):
            memory = spark.memory(t)
            parts = memory.free + memory.cached + memory.buffers + memory.slab_reclaimable + memory.slab_unreclaimable
            parts += memory.page_tables + memory.kernel_stack + memory.gpu + memory.anonymous
            parts += spark.figure("leaked_gib", t)
            assert math.isclose(parts + 1.0, memory.total, abs_tol=0.01), (script.name, t)
            private = sum(max(0.0, p.resident_gib - p.shared_gib) for p in spark.processes(t))
            assert private <= memory.anonymous < 13, (script.name, t)


@over("name", NAMES)
def test_an_engine_begins_with_no_more_memory_than_its_share(name: str) -> None:
    for node in load(name).nodes:
        for container in node.containers:
            share = value_of(container.argv, "gpu-memory-utilization")
            owned = [process for process in node.processes if process.container == container.name]
            held = sum(process.gpu_gib.at(0.0) for process in owned if process.gpu_gib is not None)
            assert share is None or held <= float(share) * 121.7 + 3.0, container.name


def test_the_spike_is_the_field_reports_trace() -> None:
    spark1 = load("memory-spike").nodes[0]
    trace = [round(spark1.tracks["available_gib"].at(12 + 2 * step), 1) for step in range(5)]
    assert trace == [45.4, 43.7, 31.9, 11.4, 0.4]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        load("spin-deadlok")
    assert "spin-deadlock" in str(caught.value)
    assert caught.value.exit_code == 2


@over(
    "old, new, said",
    [
        ("util = [[0, 0], [10, 96]]", "utl = 3", ("nodes[spark1].tracks", "did you mean 'util'")),
        ("util = [[0, 0], [10, 96]]", "util = [[10, 0], [5, 96]]", ("tracks.util", "in order of time")),
        ("util = [[0, 0], [10, 96]]", "util = [[0, 0, 1]]", ("tracks.util", "[second, value]")),
        ("util = [[0, 0], [10, 96]]", 'util = "high"', ("tracks.util", "a number or a list")),
        ("length_s = 60", 'length_s = "long"', ("length_s", "'long' is no float")),
        ("length_s = 60", "", ("length_s", "is missing")),
        ("length_s = 60", 'length_s = 60\nrepeat = "restrt"', ("repeat", "did you mean 'restart'")),
        ('kind = "vllm"', 'kind = "vlm"', ("engines[vllm-one].kind", "did you mean 'vllm'")),
        ('[[nodes.engines]]\nname = "vllm-one"', '[[nodes.engines]]\nname = "vllm-on"', ("did you mean 'vllm-one'",)),
        ("{ start_s = -100 }", "{ start_s = -100, end_s = 5 }", ("loops", "restart")),
        ("{ start_s = -100 }", "{ start_s = -100, fin = 5 }", ("runs[0].fin", "is not a key here")),
        ('image = "vllm:1"', "image = 3", ("image", "3 is no str")),
        ("length_s = 60", "length_s = = 60", ("is not TOML", "line 4")),
        ("[[nodes]]\n", "[nodes]\n", ("nodes", "must be tables")),
    ],
)
def test_a_bad_file_says_where_and_what(tmp_path: Path, old: str, new: str, said: tuple[str, ...]) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load_file(written(tmp_path, GOOD.replace(old, new, 1)))
    assert str(caught.value).startswith(("mine.toml", str(tmp_path)))
    for words in said:
        assert words in str(caught.value)


def test_the_good_file_is_good(tmp_path: Path) -> None:
    scenario = load_file(written(tmp_path, GOOD))
    assert scenario.name == "mine"
    assert scenario.repeat is Repeat.LOOP
    assert scenario.nodes[0].tracks["util"].at(65) == pytest.approx(48)


def test_a_file_may_extend_another_and_leave_parts_out(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    over = """
extends = "mine"
title = "u"
[[nodes]]
name = "spark1"
seed = 9
[[nodes.engines]]
name = "vllm-one"
absent = true
"""
    scenario = load_file(written(tmp_path, over, "other"))
    assert (scenario.title, scenario.length_s, scenario.nodes[0].seed) == ("u", 60, 9)
    assert scenario.nodes[0].engines == ()
    assert [c.name for c in scenario.nodes[0].containers] == ["vllm-one"]


def test_a_node_may_be_like_one_above_it_in_its_own_words(tmp_path: Path) -> None:
    more = """
[[nodes]]
name = "spark2"
like = "spark1"
instead = { "vllm-one" = "vllm-two", "line" = "lime" }
[nodes.tracks]
util = 5
"""
    first, second = load_file(written(tmp_path, GOOD + more)).nodes
    assert [(c.name, c.log[0].text) for c in second.containers] == [("vllm-two", "lime")]
    assert ([c.name for c in first.containers], second.engines[0].port) == (["vllm-one"], 8000)
    assert (first.tracks["util"].at(10), second.tracks["util"].at(10)) == (96, 5)
    with pytest.raises(ConfigError, match="there is no 'spark9' above it"):
        load_file(written(tmp_path, GOOD + more.replace('like = "spark1"', 'like = "spark9"')))


def test_the_readmes_example_is_one(tmp_path: Path) -> None:
    folder = Path(str(files("sparktop.sim"))) / "scenarios"
    for name in ("healthy", "_spark"):
        shutil.copy(folder / f"{name}.toml", tmp_path)
    example = (folder / "README.md").read_text().split("```toml")[1].split("```")[0]
    scenario = load_file(written(tmp_path, example))
    assert [c.name for c in scenario.nodes[0].containers] == ["vllm-qwen36", "vllm-one"]
    assert scenario.nodes[0].faults[0].kind == "starved"


def test_extending_in_a_circle_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 'extends = "b"', "a")
    written(tmp_path, 'extends = "a"', "b")
    with pytest.raises(ConfigError, match="circle"):
        load_file(tmp_path / "a.toml")


def test_a_track_is_straight_between_keyframes_and_jumps_where_two_share_a_second() -> None:
    track = Track.of([(0, 0), (10, 10), (10, 50), (20, 50)])
    assert [track.at(t) for t in (-5, 0, 5, 9.999, 10, 99)] == pytest.approx([0, 0, 5, 9.999, 50, 50])
    assert track.integral(20) == pytest.approx(50 + 500)
    assert track.integral(-10) == 0
    assert track.mean(10, 20) == pytest.approx(50)


def test_a_repeating_tracks_integral_never_falls() -> None:
    track = Track.of([(0, 4), (5, 0), (10, 4)]).repeating(10)
    areas = [track.integral(t / 4) for t in range(200)]
    assert areas == sorted(areas)
    assert track.at(23) == pytest.approx(track.at(3))
    assert track.integral(20) == pytest.approx(2 * track.integral(10))


def test_what_has_risen_counts_rises_alone() -> None:
    track = Track.of([(0, 1), (10, 5), (20, 2), (30, 6)])
    assert track.risen(10) == pytest.approx(4)
    assert track.risen(20) == pytest.approx(4)
    assert track.risen(30) == pytest.approx(8)
    assert track.repeating(30).risen(60) == pytest.approx(16)


def test_noise_is_bounded_and_the_same_each_time() -> None:
    values = [noise(1, "power", t / 10) for t in range(1000)]
    assert max(map(abs, values)) <= 1
    assert max(values) - min(values) > 1
    assert values == [noise(1, "power", t / 10) for t in range(1000)]
    assert max(abs(a - b) for a, b in pairwise(values)) < 0.2
