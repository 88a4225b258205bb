"""The level of a log line."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.logs.level import Level, level_of


@over(
    "text, level",
    [
        ("INFO 05-18 12:00:01 [api_server.py:594] Starting vLLM server", "info"),
        ("(EngineCore_DP0 pid=77) WARNING 10-22 09:33:49 [kv_cache_utils.py:1] careful", "warning"),
        ("(Worker_TP0 pid=9) ERROR 10-22 09:33:49 [x.py:1] Traceback (most recent call last):", "error"),
        ("(APIServer pid=1) DEBUG 05-18 12:00:01 [x.py:1] x", "debug"),
        ("CRITICAL 05-18 12:00:01 [x.py:1] x", "critical"),
        ("INFO:     127.0.0.1:1 - 200 OK", "info"),
        ("(APIServer pid=1) INFO:     Application startup complete.", "info"),
        ("[2026-06-07 12:04:29] INFO:     Application startup complete.", "info"),
        ("[2026-06-07 12:04:29 TP0] Decode batch, #running-req: 1", None),
        ("[2026-05-01 10:00:00 DP0 TP1 EP1] Scheduler hit an exception: Traceback", "error"),
        ("WARNING:root:careful", "warning"),
        ("2026-03-18 12:08:41,650 - INFO - autotuner.py:256 - flashinfer.jit: starts", "info"),
        ("2026-06-07 12:03:58,207 - CUTE_DSL - WARNING - [handle_import_error] x", "warning"),
        ("[TensorRT-LLM][ERROR] Failed to initialize", "error"),
        ("[rank0]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught", "error"),
        ("W0607 12:03:23.986000 1 torch/utils/_pytree.py:630] x", "warning"),
        ("gx10:158:188 [0] transport/net_ib/p2p.cc:651 NCCL WARN NET/IB: x", "warning"),
        ("spark1:1:1 [0] NCCL INFO Using network IB", "info"),
        ('{"timestamp":"2026-05-18","level":"ERROR","message":"x"}', "error"),
        ('{"levelname": "warning", "msg": "level info"}', "warning"),
        ('{"a": 1}', None),
        ("Traceback (most recent call last):", "error"),
        ('  File "/x/y.py", line 12, in run', "error"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "error"),
        ("KeyboardInterrupt", "error"),
        ("/usr/lib/x.py:14: UserWarning: Failed to load image", "warning"),
        ("FutureWarning: x", "warning"),
        ("vllm: error: unrecognized arguments: --x", "error"),
        ("Killed", "critical"),
        ("Error handling is described below", None),
        ("the INFO: is inside", None),
        ("plain words", None),
        ("", None),
    ],
)
def test_a_lines_level(text: str, level: str | None) -> None:
    assert level_of(text) == level


@given(st.text(max_size=300))
def test_any_text_is_an_answer(text: str) -> None:
    assert level_of(text) in (None, *get_args(Level))
