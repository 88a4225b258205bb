"""What simulated Sparks say: it decodes, it keeps the probe's rules, and its keys are those of the real probe."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.nvml_stand_ins import GB10_NVML
from tests.probe_support import RunningProbe
from tests.support import unavailable
from tests.table import few, over

from sparktop.model.telemetry import (
    Collector,
    CollectorState,
    DesktopReading,
    Garbled,
    GpuReading,
    Hello,
    HostFacts,
    KernelLines,
    Message,
    NetworkReading,
    ProcessTable,
    Sample,
)
from sparktop.observe.history import rdma_rate
from sparktop.probe import bundle
from sparktop.probe.remote import desktop, network
from sparktop.probe.remote.kernel_log import Batches
from sparktop.probe.remote.pace import FAST_S
from sparktop.probe.remote.parsers import MEMINFO_KEYS
from sparktop.sim.scenario.scenario import available, load
from sparktop.sim.scenario.script import Repeat
from sparktop.sim.services.probe_session import Talk
from sparktop.sim.services.process import Departed
from sparktop.sim.spark import probe_lines
from sparktop.sim.spark.spark import Spark
from sparktop.wire.decode import decode
from sparktop.wire.framing import sequence_of

NAMES = [name for name, _ in available()]


def spark_of(name: str, node: int = 0, *, showing: int = 0) -> Spark:
    scenario = load(name)
    return Spark(scenario, scenario.nodes[node], showing=showing, began_wall_s=1.78e9)


def talk_of(spark: Spark, began_s: float = 0.0) -> Talk:
    return Talk(spark, interval_s=1.0, digest="00000000", began_s=began_s, now_s=0.0)


def played(spark: Spark, until_s: float, *, began_s: float = 0.0) -> Iterator[bytes]:
    """Every line of a conversation played fast: the clock jumps to what is due next, every line is acknowledged."""
    talk = talk_of(spark, began_s)
    yield talk.opening().rstrip(b"\n")
    t = began_s
    while t <= until_s:
        for line in talk.advance(t, 0.0).splitlines():
            yield line
            talk.hear(b'{"ack":%d}\n' % (sequence_of(line) or 0), 0.0)
        t = max(talk.due_s, t + 0.01)


def messages(found: Iterator[bytes]) -> list[Message]:
    told = [(line, decode(line)) for line in found]
    for line, message in told:
        assert message is not None, line
        assert not isinstance(message, Garbled), (message, line)
        assert len(line) < 64 * 1024
    return [message for _, message in told if message is not None]


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("name", few(NAMES, {"spin-deadlock", "two-node-link", "unpacked"}.__contains__))
def test_every_line_of_every_scenario_is_a_message(name: str, node: int) -> None:
    spark = spark_of(name, node)
    length_s = spark.scenario.length_s
    until_s = length_s * 1.5 if spark.scenario.repeat is Repeat.LOOP else length_s
    found = messages(played(spark, until_s))
    kinds = {type(message) for message in found}
    assert kinds == {
        Hello, Sample, GpuReading, ProcessTable, NetworkReading, DesktopReading, HostFacts, Collector, KernelLines,
    }  # fmt: skip

    samples = [message for message in found if isinstance(message, Sample)]
    assert len(samples) > length_s * 0.9
    assert samples[-1].skipped == 0
    for counter in ("boot_s", "cpu_busy_ticks", "cpu_total_ticks", "swap_in_pages", "swap_out_pages", "major_faults",
                    "allocation_stalls", "oom_kills", "probe_cpu_s"):  # fmt: skip
        values = [getattr(sample, counter) for sample in samples]
        assert values == sorted(values), counter
    for sample in samples:
        memory = sample.memory
        assert 0 < memory.available_bytes < memory.total_bytes
        assert 0 < memory.free_bytes <= memory.available_bytes
        assert 0 <= memory.swap_free_bytes <= memory.swap_total_bytes

    for reading in (message for message in found if isinstance(message, GpuReading)):
        gpu = reading.gpus[0]
        assert gpu.is_gb10
        assert gpu.bandwidth_percent is None
        assert gpu.memory_used_bytes is None
        assert gpu.utilisation_percent is not None
        assert 0 <= gpu.utilisation_percent <= 96  # no capture of a GB10 ever showed more
        assert gpu.power_w is not None
        assert 3 <= gpu.power_w < 100


def test_healthy_draws_what_a_healthy_machine_does() -> None:
    """docs/facts/gb10.md section 0: 10-14 W with the model resident, 31-45 W in decode at 90-96 %."""
    found = messages(played(spark_of("healthy"), 120.0))
    readings = [message.gpus[0] for message in found if isinstance(message, GpuReading)]
    idle = [gpu.power_w for gpu in readings if gpu.utilisation_percent == 0]
    assert sorted(idle)[len(idle) // 2] == pytest.approx(12, abs=2)  # type: ignore[type-var]
    busy = sorted(gpu.power_w for gpu in readings if (gpu.utilisation_percent or 0) >= 90 and gpu.power_w)
    assert 32 <= busy[len(busy) // 2] <= 45


def test_a_spin_deadlock_is_hot_on_paper_and_cool_to_the_touch() -> None:
    for node in (0, 1):
        found = messages(played(spark_of("spin-deadlock", node), 160.0))
        late = [message.gpus[0] for message in found if isinstance(message, GpuReading)][-60:]
        assert all((gpu.utilisation_percent or 0) >= 94 for gpu in late)
        assert all(14 <= (gpu.power_w or 0) <= 16 for gpu in late)
        assert all((gpu.sm_clock_mhz or 0) > 2400 for gpu in late)
        temperatures = [message.gpus[0].temperature_c or 0 for message in found if isinstance(message, GpuReading)]
        assert temperatures[-1] < temperatures[0] - 10


def test_the_kernel_log_comes_once_each_from_the_boot_on_and_in_order() -> None:
    spark = spark_of("desktop-freeze")
    found = [m for m in messages(played(spark, 119.0, began_s=30.0)) if isinstance(m, KernelLines)]
    told = [line for message in found for line in message.lines]
    assert told[0].boot_s == 0
    assert "Booting Linux" in told[0].text
    assert [line.boot_s for line in told] == sorted(line.boot_s or 0 for line in told)
    xids = [line.text.split("): ")[1].split(",")[0] for line in told if "Xid" in line.text]
    assert xids == ["119", "120", "154"]
    assert "name=KMS thread," in next(line.text for line in told if "Xid" in line.text)
    assert sum("Failed to post KMS update" in line.text for line in told) == 6


def test_an_oom_kill_names_the_container_by_its_id() -> None:
    spark = spark_of("memory-spike")
    text = next(row[3] for row in probe_lines.kernel_rows(spark, 0, 150) if "oom-kill:" in row[3])
    container = next(live for live in spark.containers(10) if live.script.name == "vllm-gptoss")
    assert f"task_memcg=/system.slice/docker-{container.container_id}.scope" in text
    assert spark.oom_kills(60) == 0
    assert spark.oom_kills(70) == 1


def test_unacknowledged_samples_stop_at_the_window_and_are_counted() -> None:
    talk = talk_of(spark_of("healthy"))
    told = b"".join(talk.advance(t / 4, 0.0) for t in range(40))
    kinds = [json.loads(line)["kind"] for line in told.splitlines()]
    assert kinds.count("sample") == 3
    assert kinds.count("gpu") == 3
    assert kinds.count("kernel") == 0, "it waits until all before it has arrived"
    talk.hear(b'{"ack":1000}\n', 0.0)
    fresh = [json.loads(line) for line in talk.advance(10.0, 0.0).splitlines()]
    assert [line["kind"] for line in fresh].count("kernel") == 1
    sample = next(line for line in fresh if line["kind"] == "sample")
    assert sample["skipped"] == 7
    assert sample["boot"] == pytest.approx(spark_of("healthy").boot_s(10.0), abs=0.01)


def test_the_interval_is_the_consoles_to_set() -> None:
    talk = talk_of(spark_of("healthy"))
    talk.advance(0.0, 0.0)
    talk.hear(b'{"interval":5}\n{"beat":1}\nnot json\n[]\n', 0.0)
    told = [json.loads(line) for t in range(1, 80) for line in _acknowledged(talk, t / 4)]
    boots = [line["boot"] for line in told if line["kind"] == "sample"]
    assert all(later - earlier == pytest.approx(5, abs=0.3) for earlier, later in pairwise(boots[1:]))
    assert len(boots) in (4, 5)


def test_facts_that_are_asked_for_come_at_once() -> None:
    talk = talk_of(spark_of("healthy"))
    told = [json.loads(line)["kind"] for t in range(1, 30) for line in _acknowledged(talk, float(t))]
    assert told.count("facts") == 1
    talk.hear(b'{"facts":1}\n', 0.0)
    assert "facts" in [json.loads(line)["kind"] for line in _acknowledged(talk, 30.5)]


def _acknowledged(talk: Talk, t: float) -> list[bytes]:
    told = talk.advance(t, 0.0).splitlines()
    for line in told:
        talk.hear(b'{"ack":%d}\n' % (sequence_of(line) or 0), 0.0)
    return told


def test_it_samples_faster_while_memory_falls() -> None:
    samples = [m for m in messages(played(spark_of("memory-spike"), 20.0)) if isinstance(m, Sample)]
    assert {sample.interval_s for sample in samples if sample.boot_s - samples[0].boot_s < 12} == {1.0}
    assert samples[-1].interval_s == FAST_S


def test_under_pressure_it_leaves_processes_alone_as_the_probe_does() -> None:
    found = messages(played(spark_of("memory-spike"), 140.0))
    states = [m.state for m in found if isinstance(m, Collector) and m.name == "processes"]
    assert states == [CollectorState.OK, CollectorState.PAUSED, CollectorState.OK]


@over(
    "heard, reason",
    [(b'{"bye":1}\n', "asked to"), (b"", ""), (b"x" * 70_000, "the input is not sparktop's protocol")],
)
def test_a_conversation_ends_as_the_probes_does(heard: bytes, reason: str) -> None:
    with pytest.raises(Departed) as caught:
        talk_of(spark_of("healthy")).hear(heard, 0.0)
    assert caught.value.reason == reason


def test_the_lease_ends_it_when_nothing_is_heard() -> None:
    talk = talk_of(spark_of("healthy"))
    talk.advance(1.0, 29.0)
    talk.hear(b'{"beat":1}\n', 29.0)
    talk.advance(2.0, 58.0)
    with pytest.raises(Departed, match="nothing arrived for 30 s"):
        talk.advance(3.0, 60.0)


def test_a_new_showing_is_a_new_boot_of_the_same_machine() -> None:
    first, second = spark_of("power-wedge"), spark_of("power-wedge", showing=1)
    assert first.boot_id != second.boot_id
    assert first.machine_digest == second.machine_digest
    assert first.machine_digest != spark_of("power-wedge", 1).machine_digest


# The simulator can't drift from the probe: their lines have the same keys.


@pytest.fixture(scope="module")
def real() -> dict[str, list[dict[str, Any]]]:
    """One line or more of every kind, as the real probe says it here, with NVML's answers those of a GB10."""
    if not sys.platform.startswith("linux"):
        unavailable("the probe reads /proc, which only Linux has")
    with RunningProbe(bundle.launch(interval_s=0.2, nvml_source=GB10_NVML.format(hold=""))) as probe:
        probe.first(HostFacts)
        probe.first(GpuReading, lambda reading: reading.gpus[0].processes)
        probe.until(lambda: len(probe.of(ProcessTable)) > 1, what="two process tables")
        told = [json.loads(line) for line in probe.lines[1:]]
    return {kind: [line for line in told if line["kind"] == kind] for kind in {line["kind"] for line in told}}


@pytest.fixture(scope="module")
def simulated() -> dict[str, list[dict[str, Any]]]:
    told = [json.loads(line) for line in played(spark_of("healthy"), 70.0)]
    return {kind: [line for line in told if line["kind"] == kind] for kind in {line["kind"] for line in told}}


Lines = dict[str, list[dict[str, Any]]]


@pytest.mark.parametrize("kind", ["hello", "sample", "gpu", "processes", "network", "facts", "collector"])
def test_its_keys_are_the_probes(real: Lines, simulated: Lines, kind: str) -> None:
    assert {tuple(line) for line in simulated[kind]} == {tuple(line) for line in real[kind]}


def test_its_figures_nest_as_the_probes(real: Lines, simulated: Lines) -> None:
    ours, theirs = simulated["sample"][0], real["sample"][0]
    assert tuple(ours["meminfo"]) == MEMINFO_KEYS
    assert set(theirs["meminfo"]) <= set(ours["meminfo"])
    for key in ("vmstat", "psi"):
        assert set(theirs[key]) <= set(ours[key])
    assert set(ours["vmstat"]) == {"pswpin", "pswpout", "pgmajfault", "oom_kill", "allocstall"}
    assert set(ours["psi"]) == {"memory", "io", "cpu"}
    assert [len(ours[key]) for key in ("cpu", "load", "cost")] == [2, 3, 2]
    assert tuple(simulated["hello"][0]["facts"]) == tuple(real["hello"][0]["facts"])
    assert [len(row) for row in simulated["facts"][0]["disks"]] == [3]

    ours, theirs = simulated["gpu"][0]["gpus"][0], next(g for line in real["gpu"] for g in line["gpus"] if "procs" in g)
    assert set(ours) == set(theirs)
    assert ours["gaps"] == theirs["gaps"]
    assert {len(row) for row in ours["procs"]} == {4}
    assert type(ours["power_mw"]) is type(theirs["power_mw"])

    now_and_then = {"argv", "wchan"}
    assert {tuple(row) for line in real["network"] for row in line["interfaces"]} <= {
        tuple(row) for row in simulated["network"][0]["interfaces"]
    }

    ours, theirs = simulated["processes"][0]["rows"], [row for line in real["processes"] for row in line["rows"]]
    (keys,) = {frozenset(set(row) - now_and_then) for row in ours}
    told = {frozenset(set(row) - now_and_then) for row in theirs}
    assert keys in told
    assert all(less <= keys for less in told), told  # a process that is just ending has no memory to tell of
    assert now_and_then <= {key for row in ours for key in row}


def test_a_kernel_batch_is_the_probes(simulated: Lines) -> None:
    reading, writing = os.pipe()
    try:
        batches = Batches(writing, "journal")
        batches.add([1.5, 1.78e9, 6, "a line"])
        batches.flush()
        theirs = json.loads(os.read(reading, 65536).partition(b" ")[2])
    finally:
        os.close(reading)
        os.close(writing)
    ours = simulated["kernel"][0]
    assert set(ours) - {"seq"} == set(theirs)
    assert [type(part) for part in ours["lines"][0]] == [type(part) for part in theirs["lines"][0]]


def test_a_pairs_fabric_falls_silent_in_a_spin(tmp_path: Path) -> None:
    """Its RDMA rows have the keys that the probe gives those of a Spark's own tree."""
    for name, text in {"state": "4: ACTIVE", "counters/port_rcv_data": "1", "counters/port_xmit_data": "1"}.items():
        path = tmp_path / "infiniband/rocep1s0f0/ports/1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    told = network.Network(str(tmp_path), addresses=dict).read(1.0)
    assert told is not None

    spark = spark_of("spin-deadlock")
    assert tuple(probe_lines.network(spark, 1.0)["rdma"][0]) == tuple(told["rdma"][0])
    assert tuple(probe_lines.network(spark, 1.0)) == tuple(told)
    readings = [m for m in messages(played(spark, 60.0)) if isinstance(m, NetworkReading)]
    rates = [rdma_rate(before, after) for before, after in pairwise(readings)]
    assert rates[0] == pytest.approx(820e6, rel=0.05)
    assert rates[-1] == 0
    assert {port.state for port in readings[-1].rdma_ports} == {"ACTIVE", "DOWN"}


def test_a_frozen_desktop_is_asked_as_the_probe_asks(tmp_path: Path) -> None:
    """The message has the probe's keys; silence is told 3 s after a question, and a second time 3 s later."""
    for name, text in {
        "stat": f"3849 (gnome-shell) S {' '.join(['1'] * 21)}",
        "status": "Uid:\t4711\t0\t0\t0\n",
    }.items():
        (tmp_path / "3849").mkdir(exist_ok=True)
        (tmp_path / "3849" / name).write_text(text)
    (told,) = desktop.Desktop(str(tmp_path)).look([3849], ask=False)

    spark = spark_of("desktop-freeze")
    live = probe_lines.compositor(spark, 1.0)
    assert live is not None
    assert tuple(probe_lines.desktop(spark, 1.0, live, answers=True, silent_s=None)) == tuple(told)
    readings = [m for m in messages(played(spark, 60.0)) if isinstance(m, DesktopReading)]
    frozen_boot_s = spark.boot_s(14.0)
    assert all(reading.answers for reading in readings if reading.boot_s < frozen_boot_s)
    first, second, *_ = (reading for reading in readings if reading.answers is False)
    assert first.silent_since_boot_s == second.silent_since_boot_s is not None
    assert first.boot_s - first.silent_since_boot_s == pytest.approx(3.0, abs=0.3)
    assert second.boot_s - first.boot_s == pytest.approx(3.0, abs=0.3)
    assert first.boot_s - frozen_boot_s < 13.5
