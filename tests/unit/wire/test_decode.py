"""Decoding: every kind of message, and nothing that comes can raise or get past the sanitiser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import (
    Bye,
    Collector,
    CollectorState,
    GapReason,
    Garbled,
    GpuReading,
    Hello,
    HostFacts,
    KernelLines,
    ProcessTable,
    Sample,
)
from sparktop.wire.decode import container_id_of, decode

FACTS = {
    "hostname": "spark-0d93",
    "boot_id": "2195ff23-1947-4619-b9b0-f26df50aa73f",
    "machine_digest": None,
    "kernel": "6.14.0-1015-nvidia",
    "arch": "aarch64",
    "os": "Ubuntu 24.04.3 LTS",
    "dgx": "7.6.0",
    "product": "DGX Spark",
    "driver": "580.142",
    "cpus": 20,
    "python": "3.12.3",
    "user": "nvidia",
    "uid": 1000,
    "disks": [["/", 4_000_000_000_000, 1_500_000_000_000]],
    "gaps": {"machine_digest": "no permission"},
}
SAMPLE = {
    "kind": "sample",
    "seq": 17,
    "boot": 7003.25,
    "wall": 1757000000.5,
    "interval": 1.0,
    "meminfo": {
        "MemTotal": 127535276,
        "MemFree": 2149448,
        "MemAvailable": 8134368,
        "Shmem": 3742096,
        "Cached": 6812020,
    },
    "psi": {"memory": [1.5, 0.8, 0.5, 0.2]},
    "vmstat": {"pswpin": 1, "pswpout": 2, "pgmajfault": 3, "allocstall": 4, "oom_kill": 5},
    "cpu": [10, 100],
    "load": [20.5, 18.0, 9.9],
    "cost": [1.25, 14440],
    "skipped": 2,
}
MESSAGES: dict[str, dict[str, Any]] = {
    "hello": {"kind": "hello", "protocol": 1, "pid": 77, "digest": "5072b139", "facts": FACTS},
    "sample": SAMPLE,
    "gpu": {
        "kind": "gpu",
        "seq": 2,
        "boot": 1.0,
        "gpus": [
            {
                "name": "NVIDIA GB10",
                "util": 96,
                "mem_util": 0,
                "power_mw": 13460,
                "pstate": 0,
                "throttle": 0x24,
                "procs": [[197277, "VLLM::Worker_TP0", 107610112000, "C"]],
                "gaps": {"mem_total": "not supported", "mem_used": "from a later version"},
            }
        ],
    },
    "processes": {
        "kind": "processes",
        "seq": 3,
        "boot": 1.0,
        "total": 578,
        "zombies": 1,
        "rows": [
            {
                "pid": 5,
                "ppid": 1,
                "comm": "x",
                "state": "S",
                "rss": 4096,
                "cgroup": f"/docker/{'a' * 64}",
                "argv": ["a"],
            }
        ],
    },
    "desktop": {
        "kind": "desktop",
        "seq": 7,
        "boot": 90.5,
        "compositor": "gnome-shell",
        "pid": 3849,
        "uid": 1000,
        "state": "S",
        "wchan": "do_sys_poll",
        "answers": False,
        "silent": 84.5,
        "blocked": None,
        "reason": "no answer within 3 s",
        "greeter": False,
    },
    "facts": {"kind": "facts", "seq": 4, **FACTS},
    "collector": {"kind": "collector", "seq": 5, "name": "nvml", "state": "stuck", "detail": "d", "since": 1.5},
    "kernel": {"kind": "kernel", "seq": 6, "source": "kmsg", "lines": [[1.0, 2.0, 3, "x"], [None, None, None, ""]]},
    "guard": {
        "kind": "guard",
        "seq": 8,
        "phase": "fired",
        "id": "a" * 64,
        "name": "vllm-qwen36",
        "floor": 4 << 30,
        "within": 2.0,
        "stay": 600.0,
        "since": 1.78e9,
        "available": 4_100_000_000,
        "answered": 0.04,
        "until": None,
        "detail": "below the floor",
    },
    "bye": {"kind": "bye", "reason": "asked to"},
}


def test_a_sample() -> None:
    sample = decode(json.dumps(SAMPLE).encode())
    assert isinstance(sample, Sample)
    assert sample.sequence == 17
    assert sample.memory.available_bytes == 8134368 * 1024
    assert sample.memory.page_cache_bytes == (6812020 - 3742096) * 1024
    assert sample.memory_pressure is not None
    assert sample.memory_pressure.full_avg10 == 0.5
    assert sample.io_pressure is None
    assert sample.allocation_stalls == 4
    assert sample.probe_resident_bytes == 14440 * 1024
    assert sample.skipped == 2
    assert (sample.memory.cma_total_bytes, sample.memory.cma_free_bytes) == (None, None)
    torn = decode(json.dumps(SAMPLE | {"meminfo": SAMPLE["meminfo"] | {"CmaTotal": 0, "CmaFree": 128}}).encode())
    assert isinstance(torn, Sample)
    assert (torn.memory.cma_total_bytes, torn.memory.cma_free_bytes) == (0, 131_072)


def test_hello_and_facts() -> None:
    hello = decode(json.dumps(MESSAGES["hello"]).encode())
    facts = decode(json.dumps(MESSAGES["facts"]).encode())
    assert isinstance(hello, Hello)
    assert isinstance(facts, HostFacts)
    assert hello.facts == facts
    assert facts.machine_id_digest is None
    assert facts.gaps["machine_id_digest"] is GapReason.NO_PERMISSION


def test_a_gb10_has_no_bandwidth_figure_because_its_counter_is_always_zero() -> None:
    reading = decode(json.dumps(MESSAGES["gpu"]).encode())
    assert isinstance(reading, GpuReading)
    (gpu,) = reading.gpus
    assert gpu.bandwidth_percent is None
    assert gpu.gaps["bandwidth_percent"] is GapReason.NOT_SUPPORTED
    assert gpu.gaps["memory_used_bytes"] is GapReason.FAILED
    assert gpu.power_w == 13.46
    assert gpu.throttle_reasons == ("software power cap", "software thermal")


def test_the_others() -> None:
    table = decode(json.dumps(MESSAGES["processes"]).encode())
    assert isinstance(table, ProcessTable)
    assert table.processes[0].container_id == "a" * 64
    collector = decode(json.dumps(MESSAGES["collector"]).encode())
    assert isinstance(collector, Collector)
    assert collector.state is CollectorState.STUCK
    kernel = decode(json.dumps(MESSAGES["kernel"]).encode())
    assert isinstance(kernel, KernelLines)
    assert kernel.lines[1].boot_s is None
    assert decode(json.dumps(MESSAGES["bye"]).encode()) == Bye(reason="asked to")


def test_a_guard_says_whose_it_is_and_what_it_did() -> None:
    guard = decode(json.dumps(MESSAGES["guard"]).encode())
    assert guard == GuardState(
        phase=GuardPhase.FIRED,
        container_id="a" * 64,
        container_name="vllm-qwen36",
        floor_bytes=4 << 30,
        empty_within_s=2.0,
        stay_s=600.0,
        since_wall_s=1.78e9,
        available_bytes=4_100_000_000,
        answered_s=0.04,
        detail="below the floor",
    )
    assert guard.has_acted
    hostile = decode(b'{"kind":"guard","phase":"failed","name":"a\\u001b[31mb","detail":"x\\u202ey\\nz"}')
    assert isinstance(hostile, GuardState)
    assert not hostile.has_acted
    assert (hostile.container_name + hostile.detail).isprintable()
    assert isinstance(decode(b'{"kind":"guard","phase":"asleep"}'), Garbled)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[]",
        b"3",
        b'{"kind":3}',
        b"{}",
        b'{"kind":"sample"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":1',
        b'{"kind":"bye","x":NaN}',
    ],
)
def test_what_is_no_message_is_garbled(line: bytes) -> None:
    assert isinstance(decode(line), Garbled)


def test_a_kind_from_a_later_version_is_ignored() -> None:
    assert decode(b'{"kind":"later","seq":1}') is None


def test_figures_are_numbers_or_the_line_is_garbled() -> None:
    assert isinstance(decode(json.dumps({**SAMPLE, "cpu": ["\x1b[31m", 1]}).encode()), Garbled)
    assert isinstance(decode(json.dumps({**SAMPLE, "load": ["x", 1, 1]}).encode()), Garbled)
    assert isinstance(decode(json.dumps({**SAMPLE, "boot": float("nan")}).encode()), Garbled)


def test_an_unknown_field_is_ignored() -> None:
    assert isinstance(decode(json.dumps({**SAMPLE, "later": [1]}).encode()), Sample)


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"/system.slice/docker-{'a' * 64}.scope", "a" * 64),
        (f"/docker/{'b' * 64}", "b" * 64),
        (f"/docker/{'b' * 64}/init.scope", "b" * 64),
        (f"/kubepods/pod1/cri-containerd-{'c' * 64}.scope", "c" * 64),
        ("/user.slice", None),
        ("/docker/" + "z" * 64, None),
        ("", None),
    ],
)
def test_container_ids(cgroup: str, expected: str | None) -> None:
    assert container_id_of(cgroup) == expected


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good line with a piece replaced."""
    line = json.dumps(draw(st.sampled_from(list(MESSAGES.values())))).encode()
    start = draw(st.integers(0, len(line)))
    return line[:start] + draw(st.binary(max_size=30)) + line[start + draw(st.integers(0, 20)) :]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=200) | damaged())
def test_no_line_raises(line: bytes) -> None:
    decode(line)


@given(kind=st.sampled_from(sorted(MESSAGES)), data=st.data())
def test_no_value_of_any_type_in_any_field_raises(kind: str, data: st.DataObject) -> None:
    message = dict(MESSAGES[kind])
    field = data.draw(st.sampled_from(sorted(message)))
    if field != "kind":
        message[field] = data.draw(JSON)
    decode(json.dumps(message).encode())


@given(kind=st.sampled_from(["hello", "gpu", "processes", "kernel"]), data=st.data())
def test_no_value_of_any_type_in_a_nested_field_raises(kind: str, data: st.DataObject) -> None:
    message = json.loads(json.dumps(MESSAGES[kind]))
    inner = {
        "hello": lambda: message["facts"],
        "gpu": lambda: message["gpus"][0],
        "processes": lambda: message["rows"][0],
        "kernel": lambda: message["lines"][0],
    }[kind]()
    if isinstance(inner, list):
        inner[data.draw(st.integers(0, 3))] = data.draw(JSON)
    else:
        inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(JSON)
    decode(json.dumps(message).encode())


ESCAPE = "\x1b]52;c;AAAA\x07\x1b[31m\x9b2J\u202e"


def test_no_remote_string_gets_past_the_sanitiser() -> None:
    def poison(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: poison(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [poison(inner, key) for inner in value]
        if isinstance(value, str) and key not in ("kind", "state", "phase", "cgroup"):
            return value + ESCAPE
        return value

    for message in MESSAGES.values():
        text = repr(decode(json.dumps(poison(message)).encode()))
        for bad in ("\\x1b", "\\x9b", "\\u202e", "\\x07"):
            assert bad not in text, (message["kind"], text)
