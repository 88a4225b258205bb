"""Decoding: every kind of message, and nothing that comes can raise or get past the sanitiser."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.plain_text import unclean
from tests.table import over
from tests.wire_messages import MESSAGES, SAMPLE

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
from sparktop.wire.decode import MAX_GPUS, container_id_of, decode


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


@over(
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


@over("value", [10**400, -1, 2**65, "9" * 400, "17", "nan", "Infinity", [], None, 1e300])
def test_a_figure_out_of_bounds_is_garbled(value: Any) -> None:
    meminfo = {**SAMPLE["meminfo"], "MemAvailable": value}
    assert isinstance(decode(json.dumps({**SAMPLE, "meminfo": meminfo}).encode()), Garbled)
    assert isinstance(decode(json.dumps({**SAMPLE, "wall": value}).encode()), Garbled)


def test_a_float_that_is_no_finite_number_is_garbled() -> None:
    line = json.dumps(SAMPLE).encode()
    assert isinstance(decode(line.replace(b"7003.25", b"1e999")), Garbled)


def test_a_time_can_be_formatted_or_is_garbled() -> None:
    assert isinstance(decode(json.dumps({**SAMPLE, "wall": 1e15}).encode()), Garbled)


def test_lists_have_a_limit() -> None:
    gpu = MESSAGES["gpu"]["gpus"][0]
    assert isinstance(decode(json.dumps({**MESSAGES["gpu"], "gpus": [gpu] * MAX_GPUS}).encode()), GpuReading)
    assert isinstance(decode(json.dumps({**MESSAGES["gpu"], "gpus": [gpu] * (MAX_GPUS + 1)}).encode()), Garbled)
    assert isinstance(decode(json.dumps({**MESSAGES["kernel"], "lines": [[1.0, 2.0, 3, ""]] * 4097}).encode()), Garbled)


def test_a_text_holds_no_nested_value() -> None:
    nested = b"[" * 900 + b"]" * 900
    line = json.dumps(MESSAGES["bye"]).encode().replace(b'"asked to"', nested)
    assert isinstance(decode(line), Garbled)
    assert isinstance(decode(b'{"kind":"bye","reason":{"a":[1]}}'), Garbled)


def test_the_name_of_a_gap_is_sanitised() -> None:
    gpu = {**MESSAGES["gpu"]["gpus"][0], "gaps": {"x\x1b[31m\x9b" + "y" * 500: "failed"}}
    reading = decode(json.dumps({**MESSAGES["gpu"], "gpus": [gpu]}).encode())
    assert isinstance(reading, GpuReading)
    assert all(name.isprintable() and len(name) < 200 for name in reading.gpus[0].gaps)


def test_an_unknown_field_is_ignored() -> None:
    assert isinstance(decode(json.dumps({**SAMPLE, "later": [1]}).encode()), Sample)


@over(
    "cgroup, expected",
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
def test_any_line_is_plain_text(line: bytes) -> None:
    assert unclean(decode(line)) == []


@given(kind=st.sampled_from(sorted(MESSAGES)), data=st.data())
def test_no_value_of_any_type_in_any_field_raises(kind: str, data: st.DataObject) -> None:
    message = dict(MESSAGES[kind])
    field = data.draw(st.sampled_from(sorted(message)))
    if field != "kind":
        message[field] = data.draw(JSON)
    assert unclean(decode(json.dumps(message).encode())) == []


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
    assert unclean(decode(json.dumps(message).encode())) == []


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
