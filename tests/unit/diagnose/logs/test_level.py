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
        ("panic: runtime error: index out of range", "critical"),
        ("thread 'main' panicked at src/main.rs:7:5:", "critical"),
        ("SIGBUS: bus error", "critical"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "critical"),
        ('Exception in thread "main" java.lang.IllegalStateException: no store', "critical"),
        ("/src/x.cpp:9: GGML_ASSERT(n > 0) failed", "critical"),
        ("prog: a.cc:7: int f(): Assertion `n > 0' failed.", "critical"),
        ("ctk: symbol lookup error: ctk: undefined symbol: nvmlFoo", "critical"),
        ("2026-04-09 10:00:00.120 UTC [1] FATAL:  no such file of the base", "critical"),
        ("9:M 09 Apr 2026 10:00:00.015 # Fatal: no room for the log", "critical"),
        ("/src/llama.cpp/ggml/src/ggml-rpc.cpp:9: the other side went away", "error"),
        ("/src/x.cpp:9:5: warning: unused", None),
        ("load_it: error loading model: no tensor", "error"),
        ("Error downloading object: no room", "error"),
        ("srv    load_it: failed to load the model", "error"),
        ("sudo: nvq: command not found", "error"),
        ("ssh: connect to host b port 22: No route to host", "error"),
        ("CMake Error at CMakeLists.txt:3 (find_package):", "error"),
        ("the model wasn't found: not found", None),
        ('level=info ts=2026-04-09T10:00:00Z msg="error rate 0"', "info"),
        ('t=2026-04-09T10:00:00Z level=fatal msg="no address"', "critical"),
        ("2026-04-09T10:00:00.312Z\tERROR\tmain.go:4\tno manager", "error"),
        ("2026-04-09T10:00:00Z\tFATAL\tno manager", "critical"),
        ("2026-04-09 10:00:00 0 [ERROR] the store is locked", "error"),
        ("FATA[0000] no store", "critical"),
        ("2026/04/09 10:00:00 main.go:7: WARN no seat", "warning"),
        ("nvcc fatal   : Value 'x' is not defined", "error"),
        ("make[2]: *** [all] Error 2", "error"),
        ("Data reading error: it is shut", "error"),
        ("Validation error: 0.31", None),
        ('{"level": 50, "msg": "x"}', None),
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
