"""What is normal on a machine: learned from pictures, kept per machine and boot, and never from an abnormal one."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pictures_support import GIB, NOW_S, engine, facts, gib, idle_node, node
from tests.table import over

from sparktop.model.engine import Loaded, LogFacts
from sparktop.model.fleet import Baseline, Holder, LinkState, NodeView
from sparktop.model.telemetry import GpuProcess, GpuReading
from sparktop.observe.baseline import (
    MACHINES_KEPT,
    MACHINES_OF_ONE_NODE,
    WRITE_EVERY_S,
    BaselineFile,
    BaselineLearner,
    Machine,
)


def watched(learner: BaselineLearner, view: NodeView, seconds: int = 30) -> Baseline:
    """The picture as it stays for so many seconds, with a scrape every two."""
    found = Baseline()
    for second in range(seconds):
        found = learner.saw(later(view, float(second)))
    return found


def later(view: NodeView, second: float) -> NodeView:
    assert view.sample is not None
    assert view.sample_at_s is not None
    engines = tuple(
        replace(one, metrics=replace(one.metrics, wall_s=one.metrics.wall_s + second // 2 * 2)) if one.metrics else one
        for one in view.engines
    )
    reading = view.gpu or GpuReading(boot_s=0.0)
    return replace(
        view,
        sample=replace(view.sample, wall_s=view.sample.wall_s + second),
        sample_at_s=view.sample_at_s + second,
        gpu=replace(reading, boot_s=reading.boot_s + second),
        engines=engines,
    )


def test_memory_after_boot_is_the_most_that_was_there_without_an_engine() -> None:
    learner = BaselineLearner()
    watched(learner, idle_node(available_gib=114.0))
    found = watched(learner, idle_node(available_gib=116.0))
    watched(learner, idle_node(available_gib=109.0))
    assert found.after_boot_available_bytes == gib(116.0)
    assert not found.is_earlier_boot


def test_the_least_that_nothing_accounts_for_is_learned_beside_an_engine_too(tmp_path: Path) -> None:
    kept = BaselineFile(tmp_path / "baselines.json")
    learner = BaselineLearner(kept)
    found = watched(learner, with_unaccounted(node(), 2.0))
    assert found.least_unaccounted_bytes == gib(2.0)
    assert watched(learner, with_unaccounted(node(), 36.0)).least_unaccounted_bytes == gib(2.0)
    overlapping = with_unaccounted(node(), 0.0, estimated=True)
    assert watched(learner, overlapping).least_unaccounted_bytes == gib(2.0)
    rebooted = with_unaccounted(node(facts=facts(boot_id="another boot")), 4.0)
    assert watched(learner, rebooted).least_unaccounted_bytes == gib(4.0)


def with_unaccounted(view: NodeView, unaccounted_gib: float, *, estimated: bool = False) -> NodeView:
    assert view.ledger is not None
    holders = (Holder(kind="engine", label="vllm", held_bytes=1, estimated=estimated),)
    return replace(view, ledger=replace(view.ledger, holders=holders, unaccounted_bytes=gib(unaccounted_gib)))


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(node(), id="an engine is there"),
        pytest.param(idle_node(available_gib=80.0), id="nobody holds 36 GiB"),
        pytest.param(
            idle_node(gpu_processes=(GpuProcess(pid=9, name="python3", used_bytes=12 * GIB),)), id="a job holds the GPU"
        ),
        pytest.param(replace(idle_node(), processes=None), id="no process table yet"),
        pytest.param(
            replace(idle_node(), link=replace(idle_node().link, state=LinkState.STALE)), id="the figures are old"
        ),
    ],
)
def test_memory_is_not_learned_while(view: NodeView) -> None:
    assert watched(BaselineLearner(), view).after_boot_available_bytes is None


def test_nothing_is_learned_before_engines_can_have_been_found() -> None:
    learner = BaselineLearner()
    for second in range(5):
        assert learner.saw(later(idle_node(), float(second))).after_boot_available_bytes is None


def test_power_in_decode_is_the_median_while_tokens_flow() -> None:
    found = watched(BaselineLearner(), node(power_w=38.0))
    assert found.decode_power_w == 38.0
    assert found.loaded_idle_power_w is None


def test_power_at_rest_with_a_model_resident() -> None:
    quiet = node(util=0.0, power_w=11.8, engines=(engine(running=0),))
    assert watched(BaselineLearner(), quiet).loaded_idle_power_w == 11.8
    nothing_resident = idle_node(power_w=4.4)
    assert watched(BaselineLearner(), nothing_resident).loaded_idle_power_w is None


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param({"engines": (engine(stuck_s=90.0),), "power_w": 15.0}, id="tokens stand"),
        pytest.param({"sm_mhz": 611.0, "power_w": 14.0}, id="the power controller has wedged"),
        pytest.param({"throttle": ("hardware thermal",)}, id="it is too hot"),
        pytest.param({"engines": (engine(has_metrics=False),)}, id="nothing says that tokens flow"),
    ],
)
def test_power_in_decode_is_not_learned_while(spoiled: dict[str, Any]) -> None:
    assert watched(BaselineLearner(), node(**spoiled)).decode_power_w is None


def test_a_deadlock_after_decode_does_not_become_the_normal() -> None:
    learner = BaselineLearner()
    watched(learner, node(power_w=38.0), 40)
    found = watched(learner, later(node(power_w=15.0, engines=(engine(stuck_s=60.0),)), 40.0), 600)
    assert found.decode_power_w == 38.0


def test_it_is_kept_by_machine_and_boot(tmp_path: Path) -> None:
    path = tmp_path / "state" / "baselines.json"
    kept = BaselineFile(path)
    watched(BaselineLearner(kept), idle_node(available_gib=116.0))
    kept.write()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    again = BaselineLearner(BaselineFile(path)).saw(node())
    assert again.after_boot_available_bytes == gib(116.0)
    assert not again.is_earlier_boot

    rebooted = node(facts=facts(boot_id="another boot"))
    earlier = BaselineLearner(BaselineFile(path)).saw(rebooted)
    assert earlier.after_boot_available_bytes == gib(116.0)
    assert earlier.is_earlier_boot

    other = BaselineLearner(BaselineFile(path)).saw(node(facts=facts("spark2")))
    assert other.after_boot_available_bytes is None


def test_a_boot_of_its_own_replaces_the_earlier_one(tmp_path: Path) -> None:
    kept = BaselineFile(tmp_path / "baselines.json")
    learner = BaselineLearner(kept)
    watched(learner, idle_node(available_gib=116.0))
    found = watched(learner, idle_node(available_gib=112.0, facts=facts(boot_id="another boot")))
    assert found.after_boot_available_bytes == gib(112.0)
    assert not found.is_earlier_boot


def test_it_is_written_once_and_then_at_most_every_minute(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    kept = BaselineFile(path)
    kept.put("a", Machine(available_bytes=1), NOW_S)
    first = path.read_text()
    kept.put("a", Machine(available_bytes=2), NOW_S + WRITE_EVERY_S - 1)
    assert path.read_text() == first
    kept.put("a", Machine(available_bytes=3), NOW_S + WRITE_EVERY_S)
    assert json.loads(path.read_text())["machines"]["a"]["available_bytes"] == 3
    assert [each.name for each in tmp_path.iterdir()] == ["baselines.json"]


def test_two_consoles_keep_one_another_s_machines(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    one, two = BaselineFile(path), BaselineFile(path)
    one.put("a", Machine(idle_w=11.0), NOW_S)
    two.put("b", Machine(idle_w=12.0), NOW_S)
    assert BaselineFile(path).of("a").idle_w == 11.0
    assert BaselineFile(path).of("b").idle_w == 12.0


def test_only_so_many_machines_are_kept_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    kept = BaselineFile(path)
    for number in range(MACHINES_KEPT + 5):
        kept.put(f"m{number}", Machine(idle_w=1.0, seen_wall_s=float(number)), NOW_S + number * WRITE_EVERY_S)
    names = set(json.loads(path.read_text())["machines"])
    assert len(names) == MACHINES_KEPT
    assert "m0" not in names
    assert f"m{MACHINES_KEPT + 4}" in names


def test_a_node_that_says_it_is_another_machine_all_the_time_pushes_none_out(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    kept = BaselineFile(path)
    for number in range(MACHINES_KEPT):
        kept.put(f"m{number}", Machine(idle_w=1.0, seen_wall_s=float(number)), NOW_S)
    kept.write()
    liar = BaselineLearner(kept)
    for number in range(3 * MACHINES_KEPT):
        found = watched(liar, idle_node(facts=facts(f"liar{number}")), seconds=3)
    assert found == Baseline()
    kept.write()
    names = set(json.loads(path.read_text())["machines"])
    assert len([name for name in names if "liar" in name]) <= MACHINES_OF_ONE_NODE
    assert len(kept._machines) <= MACHINES_KEPT + MACHINES_OF_ONE_NODE


@over(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 99, "machines": {"a": {"idle_w": 1.0}}}',
        '{"version": 1, "machines": []}',
        '{"version": 1, "machines": {"a": {"idle_w": "hot"}}}',
        '{"version": 1, "machines": {"a": {"idle_w": -4}}}',
        '{"version": 1, "machines": {"a": {"idle_w": NaN}}}',
        '{"version": 1, "machines": {"a": {"idle_w": true}}}',
        '{"version": 1, "machines": {"a": {"boot_id": 7}}}',
        '{"version": 1, "machines": {"a": 7}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_no_knowledge_and_is_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baselines.json"
    path.write_text(text)
    kept = BaselineFile(path)
    assert kept.of("a") == Machine()
    kept.put("b", Machine(idle_w=11.0), NOW_S)
    assert BaselineFile(path).of("b").idle_w == 11.0


def test_a_place_that_can_t_be_written_costs_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    kept = BaselineFile(blocked / "baselines.json")
    kept.put("a", Machine(idle_w=11.0), NOW_S)
    assert kept.of("a").idle_w == 11.0


def test_what_an_engine_serves_on_is_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    learner = BaselineLearner(BaselineFile(path))
    busy = node(engines=(engine(),))
    (name,) = (one.name for one in busy.engines)
    assert busy.facts is not None
    learned = watched(learner, busy).served_on[name]
    assert (learned.kernel, learned.command) == (busy.facts.kernel, " ".join(engine().argv))
    watched(learner, later(node(engines=(engine(running=0, stuck_s=900.0),)), 60.0))
    again = BaselineLearner(BaselineFile(path))
    assert again.saw(later(node(engines=()), 120.0)).served_on[name] == learned


def test_a_machine_whose_engines_are_malformed_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    watched(BaselineLearner(BaselineFile(path)), node(engines=(engine(),)))
    kept = json.loads(path.read_text())
    for row in kept["machines"].values():
        row["served_on"] |= {
            "a": 7,
            "b": {"wall_s": "x"},
            "c": {"wall_s": 1.0, "colour": "red"},
            "d": {"wall_s": 1.0, "kernel": 6},
        }
    path.write_text(json.dumps(kept))
    (machine,) = BaselineFile(path)._machines.values()
    assert list(machine.served_on) == ["vllm-qwen36"]


def test_what_an_engine_takes_is_kept_while_its_tokens_flow(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    learner = BaselineLearner(BaselineFile(path))
    said = LogFacts(loaded=Loaded(weights_bytes=gib(34.2), cache_bytes=gib(40.0), contexts=20.0, context_tokens=65536))
    busy = node(engines=(engine(log=said),))
    (learned,) = watched(learner, busy).taken
    assert (learned.kind, learned.model, learned.version) == ("vllm", "Qwen/Qwen3.6-35B-A3B-FP8", "0.21.0")
    assert (learned.weights_bytes, learned.context_bytes, learned.context_tokens) == (gib(34.2), gib(2.0), 65536)
    assert not any("port" in flag or "gpu-memory" in flag for flag in learned.flags)
    unread = watched(learner, later(node(engines=(engine(),)), 40.0)).taken
    assert unread == (learned,), "a log that isn't read back to its load takes nothing away"
    again = BaselineLearner(BaselineFile(path))
    assert again.saw(later(node(engines=()), 120.0)).taken == (learned,)


def test_nothing_is_learned_of_an_engine_whose_tokens_don_t_flow() -> None:
    said = LogFacts(loaded=Loaded(weights_bytes=gib(34.2)))
    assert watched(BaselineLearner(), node(engines=(engine(running=0, stuck_s=900.0, log=said),))).taken == ()


def test_the_most_that_it_held_beyond_its_share_counts() -> None:
    learner = BaselineLearner()
    argv = ("vllm", "serve", "org/m", "--gpu-memory-utilization", "0.5")
    held = [gib(121.7 * 0.5 + beyond) for beyond in (1.0, 3.0, 2.0)]
    for second, size in enumerate(held):
        view = later(node(engines=(engine(argv=argv),)), 10.0 * second)
        assert view.ledger is not None
        ledger = replace(view.ledger, holders=(Holder(kind="engine", label="vllm-qwen36", held_bytes=size),))
        found = watched(learner, replace(view, ledger=ledger), 3).taken
    assert found[0].beyond_bytes is not None
    assert found[0].beyond_bytes / GIB == pytest.approx(3.0, abs=0.2)
    assert found[0].share == 0.5


def test_a_machine_whose_figures_are_malformed_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    said = LogFacts(loaded=Loaded(weights_bytes=gib(34.2)))
    (learned,) = watched(BaselineLearner(BaselineFile(path)), node(engines=(engine(log=said),))).taken
    kept = json.loads(path.read_text())
    for row in kept["machines"].values():
        (good,) = row["taken"]
        changes = ({"flags": "a"}, {"flags": [1]}, {"model": 7}, {"weights_bytes": -1}, {"weights_bytes": True},
                   {"weights_bytes": 1.5}, {"share": "0.7"}, {"colour": 1})  # fmt: skip
        row["taken"] += [7, {}, *(good | change for change in changes)]
    path.write_text(json.dumps(kept))
    (machine,) = BaselineFile(path)._machines.values()
    assert machine.taken == (learned,)
