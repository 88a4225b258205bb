"""What carried a line is taken off, and what the engine itself wrote stays."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.logs.unwrap import Record, unwrap

LINE = "(EngineCore pid=71) ERROR 05-06 07:08:09 [core.py:5] it broke"
AT_S = 1746500000.25
DOCKER = json.dumps({"log": LINE + "\n", "stream": "stderr", "time": "2025-05-06T02:53:20.250000000Z"})


@over(
    "text, record",
    [
        (f"vllm-1  | {LINE}", Record(text=LINE, stream="vllm-1")),
        (
            f"vllm  | 2025-05-06T02:53:20.250Z {LINE}",
            Record(text=LINE, stream="vllm", stamp="2025-05-06T02:53:20.250Z"),
        ),
        (f"2025-05-06T02:53:20.250000000Z {LINE}", Record(text=LINE, stamp="2025-05-06T02:53:20.250000000Z")),
        (f"2025-05-06T02:53:20.250+00:00 stderr F {LINE}", Record(text=LINE, stamp="2025-05-06T02:53:20.250+00:00")),
        (f"[pod/vllm-7f/server] {LINE}", Record(text=LINE, stream="vllm-7f/server")),
        (f"> {LINE}", Record(text=LINE)),
        (f"> > vllm | {LINE}", Record(text=LINE, stream="vllm")),
        (DOCKER, Record(text=LINE, stamp="2025-05-06T02:53:20.250000000Z")),
        (f"engine | {DOCKER}", Record(text=LINE, stream="engine", stamp="2025-05-06T02:53:20.250000000Z")),
        (f"May  6 02:53:20 spark1 docker[812]: {LINE}", Record(text=LINE, stream="docker")),
        ("May  6 02:53:20 spark1 kernel: NVRM: hello", Record(text="NVRM: hello", stream="kernel", is_kernel=True)),
        (
            "2025-05-06T02:53:20+0000 spark1 kernel: NVRM: hello",
            Record(text="NVRM: hello", stream="kernel", is_kernel=True, stamp="2025-05-06T02:53:20+0000"),
        ),
        (
            json.dumps({"level": "error", "message": LINE, "exc_info": "Traceback\nValueError: x"}),
            Record(text=f"{LINE}\nTraceback\nValueError: x"),
        ),
        (json.dumps({"level": 50, "msg": "it broke"}), Record(text="ERROR: it broke")),
        (json.dumps({"level": 50, "msg": "level=INFO msg=up"}), Record(text="level=INFO msg=up")),
        (json.dumps({"severity": "INFO", "message": "up"}), Record(text="up")),
        ("50%|#  | 1/2 [00:01<00:01,  1.00it/s]Killed", Record(text="50%|#  | 1/2 [00:01<00:01,  1.00it/s]\nKilled")),
        (
            json.dumps(
                {
                    "MESSAGE": list(LINE.encode()),
                    "_SYSTEMD_UNIT": "vllm.service",
                    "__REALTIME_TIMESTAMP": "1746500000250000",
                    "__MONOTONIC_TIMESTAMP": "12500000",
                }
            ),
            Record(text=LINE, stream="vllm.service", boot_s=12.5, stamp="1746500000250000"),
        ),
        (
            json.dumps({"MESSAGE": "NVRM: hello", "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}),
            Record(text="NVRM: hello", stream="kernel", is_kernel=True),
        ),
    ],
)
def test_what_carries_a_line(text: str, record: Record) -> None:
    assert unwrap(text) == record
    if record.stamp:
        assert record.wall_s in (AT_S, AT_S - 0.25)


def test_lines_printed_as_one_string_are_lines_again() -> None:
    record = unwrap(r"RuntimeError(b'\x1b[31mTraceback:\n  File \"a.py\"\r\nValueError: x\n')")
    assert record is not None
    assert record.text.splitlines() == ["RuntimeError(b'Traceback:", '  File "a.py"', "ValueError: x", "')"]
    assert unwrap(r"path C:\new is no line") is None


@over(
    "text",
    [
        LINE,
        "INFO 05-06 07:08:09 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        "INFO | started",
        "Loading safetensors checkpoint shards:  60% Completed | 3/5 [01:01<00:40, 20.44s/it]",
        "Capturing batches (bs=152 avail_mem=15.10 GB):  58%|##| 30/52 [00:07<00:05]",
        "| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05 |",
        "[2025-05-06 07:08:09 TP0] Load weight begin.",
        "[  123.456789] NVRM: hello",
        '{"object":"error","message":"The model `x` does not exist.","code":404}',
        '{"id":"chatcmpl-1","choices":[]}',
        "{not json}",
        "{" * 3000 + "}",
        "[" * 100_000,
        "",
    ],
)
def test_what_nothing_carried(text: str) -> None:
    assert unwrap(text) is None


@given(st.text(max_size=300))
def test_no_text_breaks_it(text: str) -> None:
    for one in (text, "{" + text + "}", "2025-05-06T02:53:20Z " + text, f"May  6 02:53:20 {text}: {text}"):
        record = unwrap(one)
        assert record is None or record.wall_s is None or record.wall_s > 0


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    ),
    st.sampled_from(["MESSAGE", "log", "message", "time", "__REALTIME_TIMESTAMP", "_SYSTEMD_UNIT", "level"]),
)
def test_no_json_breaks_it(value: object, key: str) -> None:
    for other in ({}, {"MESSAGE": "x"}, {"log": "x", "time": "y"}, {"message": "m", "level": "info"}):
        record = unwrap(json.dumps({**other, key: value}))
        if record is not None:
            assert isinstance(record.text, str)
            assert isinstance(record.wall_s, float | None)
