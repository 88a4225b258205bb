"""The head of a log line is told from its message, for each logger; a message is never taken for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.logs.head import NONE, head_of

CORE = "(EngineCore_DP0 pid=214) "


@over(
    "line, message, process, time, source",
    [
        (
            f"{CORE}ERROR 11-20 02:14:03 [core.py:1091] EngineCore encountered a fatal error.",
            "EngineCore encountered a fatal error.",
            "EngineCore_DP0",
            "02:14:03",
            "core.py:1091",
        ),
        (f"{CORE}Loading safetensors: 41%", "Loading safetensors: 41%", "EngineCore_DP0", "", ""),
        (f"{CORE}ERROR 11-20 02:14:03 [v1/core.py:9]   File x", "  File x", "EngineCore_DP0", "02:14:03", "core.py:9"),
        ("INFO 05-19 10:00:00 [a.py:1] ready", "ready", "", "10:00:00", "a.py:1"),
        ('(APIServer pid=1) INFO:     "POST /v1" 200 OK', '"POST /v1" 200 OK', "APIServer", "", ""),
        ("(RayWorkerWrapper pid=12, ip=10.0.0.2) INFO 05-19 10:00:00 [a.py:1] x", "x", "RayWorkerWrapper",
         "10:00:00", "a.py:1"),
        ("(Worker_TP1 pid=9) [rank1]: boom", "boom", "rank1", "", ""),
        ("[2026-05-19 10:00:00 TP0] Decode batch.", "Decode batch.", "TP0", "10:00:00", ""),
        ("[2026-05-19 10:00:00 DP1 TP0] Decode batch.", "Decode batch.", "DP1 TP0", "10:00:00", ""),
        ("[2026-05-19 10:00:00] INFO:     Started", "Started", "", "10:00:00", ""),
        ("2026-05-19 10:00:00,123 - INFO - httpx - ok", "httpx - ok", "", "10:00:00", ""),
        ("2026-05-19 10:00:00,123 - ray.serve - INFO - ok", "ok", "", "10:00:00", "ray.serve"),
        ("[TensorRT-LLM][ERROR] no engine", "no engine", "", "", ""),
        ("[rank0]:[W1120 02:11:05.123456 ProcessGroupNCCL.cpp:4571] no device", "no device", "rank0", "02:11:05",
         "ProcessGroupNCCL.cpp:4571"),
        ("[rank3]:[E704 02:11:05.123456 ProcessGroupNCCL.cpp:45] no device", "no device", "rank3", "02:11:05",
         "ProcessGroupNCCL.cpp:45"),
        ("[04/09/2026-10:00:00] [TRT-LLM] [RANK 1] [E] no plan", "no plan", "", "10:00:00", ""),
        ("10:00:00 - LiteLLM Proxy:ERROR: utils.py:9 - no base", "no base", "", "10:00:00", "utils.py:9"),
        ('time=2026-04-09T10:00:00Z level=ERROR msg="no runner"', 'msg="no runner"', "", "", ""),
        ("ERROR store::start: no room", "store::start: no room", "", "", ""),
    ],
)  # fmt: skip
def test_the_head_of_each_logger(line: str, message: str, process: str, time: str, source: str) -> None:
    head = head_of(line)
    assert line[head.stop :] == message
    assert (head.process, head.time, head.source) == (process, time, source)


@over(
    "line",
    [
        "",
        "(this is a remark) and goes on",
        "[1] first of several",
        'Loading shards: 41% | 11/27 [01:12<01:44,  6.55s/it]',
        '  File "/usr/lib/x.py", line 1',
        "INFORMATION: none",
        "INFO:     ",
        "(APIServer pid=1) ",
        "── connection to spark1 lost 02:15:20 ──",
    ],
)  # fmt: skip
def test_a_message_is_not_taken_for_a_head(line: str) -> None:
    assert head_of(line) == NONE


@given(st.text())
def test_something_is_always_left_of_a_line(text: str) -> None:
    head = head_of(f"{CORE}{text}")
    assert head == NONE or f"{CORE}{text}"[head.stop :].strip()
