"""Engine logs as they come: faults in the words of many releases, crashes with the root far above, healthy starts."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.table import over

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.logs.rule import shipped
from sparktop.diagnose.outputs import capture_end
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding

CASES = Path(__file__).parents[3] / "cases" / "engine_logs"
WORDINGS = {rule: case["says"] for rule, case in tomllib.loads((CASES / "wordings.toml").read_text("utf-8")).items()}
LOUD = (Severity.WARNING, Severity.CRITICAL)


def _explained(text: str) -> tuple[Finding, ...]:
    explanation = Explanation("stdin", shipped())
    explanation.feed(text.encode())
    return explanation.finish()


def _roots(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.rule for finding in findings if finding.caused_by is None]


# Wordings of many releases


@over(
    "rule, text",
    [(rule, text) for rule in WORDINGS for text in WORDINGS[rule]],
)
def test_a_fault_is_known_in_the_words_of_other_releases(rule: str, text: str) -> None:
    assert [finding.rule for finding in _explained(text)][:1] == [rule]


# Crashes: the reason first, what only passes it on beneath

FRAMES = [
    '  File "/usr/lib/python3/dist-packages/vllm/v1/engine/core.py", line {n}, in run_engine_core',
    "    engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)",
    "                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    '  File "/usr/lib/python3/dist-packages/vllm/v1/worker/gpu_worker.py", line {n}, in load_model',
]

END = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"

REASONS = [
    (
        "vllm.kv-cache-too-small",
        (
            "ValueError: To serve at least one request with the models's max seq len (90000), (12.50 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (7.25 GiB)."
        ),
    ),
    ("vllm.kv-no-memory", "ValueError: No available memory for the cache blocks."),
    (
        "vllm.free-memory-below-utilisation",
        (
            "ValueError: Free memory on device cuda:0 (41.3/121.69 GiB) on startup is less than desired GPU memory "
            "utilization (0.85, 103.44 GiB)."
        ),
    ),
    ("torch.oom-loading", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB."),
    (
        "cuda.no-kernel-image",
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    ),
    ("triton.ptxas-too-old", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
    ("cutlass.error-internal", "RuntimeError: cutlass_gemm_caller, /x/cutlass_gemm_caller.cuh:60, Error Internal"),
    ("deepgemm.unsupported", "RuntimeError: Assertion error (csrc/apis/layout.hpp:58): Unknown SF transformation"),
    (
        "attention.backend-rejected",
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig()",
    ),
    ("start.module-missing", "ModuleNotFoundError: No module named 'humbug'"),
    (
        "model.weights-file-broken",
        "safetensors_rust.SafetensorError: Error while deserializing header: header too large",
    ),
    ("engine.last-words", "AttributeError: 'FooConfig' object has no attribute 'bar'"),
]


def _vllm_crash(reason: str, frames: int = 40) -> str:
    """A start of vLLM that fails: the reason within the core's traceback, said twice, the API server's end last."""
    core = "(EngineCore pid=77) ERROR 05-05 10:00:09 [core.py:1110] "
    trace = [frame.format(n=number) for number in range(frames) for frame in FRAMES]
    lines = [
        "(APIServer pid=1) INFO 05-05 10:00:00 [api_server.py:1977] vLLM API server version 0.19.0",
        "(APIServer pid=1) WARNING 05-05 10:00:00 [envs.py:1744] Unknown vLLM environment variable detected: VLLM_FOO",
        "(EngineCore pid=77) INFO 05-05 10:00:03 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: x",
        core + "EngineCore failed to start.",
        core + "Traceback (most recent call last):",
        *(core + line for line in trace),
        core + reason,
        "(EngineCore pid=77) Process EngineCore:",
        "(EngineCore pid=77) Traceback (most recent call last):",
        *("(EngineCore pid=77) " + line for line in trace),
        "(EngineCore pid=77) " + reason,
        "[rank0]:[W505 10:00:10 ProcessGroupNCCL.cpp:1553] Warning: WARNING: destroy_process_group() was not called",
        "(APIServer pid=1) Traceback (most recent call last):",
        *("(APIServer pid=1) " + line for line in trace[:20]),
        "(APIServer pid=1) " + END,
    ]
    return "\n".join(lines)


@over("rule, reason", REASONS, ids=[rule for rule, _ in REASONS])
def test_the_reason_of_a_crash_comes_first_and_the_rest_hangs_beneath(rule: str, reason: str) -> None:
    findings = _explained(_vllm_crash(reason))
    assert findings[0].rule == rule
    critical = [finding for finding in findings if finding.severity is Severity.CRITICAL]
    assert [finding.rule for finding in critical if finding.caused_by is None] == [rule]
    assert "vllm.engine-died" in [finding.rule for finding in critical[1:]]


def test_a_death_without_any_reason_is_told_as_such() -> None:
    (finding,) = _explained("(APIServer pid=1) " + END)
    assert finding.rule == "vllm.engine-died"
    assert finding.severity is Severity.CRITICAL


def test_what_the_scheduler_of_sglang_hit_comes_before_its_death() -> None:
    text = "\n".join(
        [
            "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='x', watchdog_timeout=300)",
            "[2026-05-01 10:00:40 TP0] Scheduler hit an exception: Traceback (most recent call last):",
            *(f'  File "/sgl/srt/managers/scheduler.py", line {number}, in init' for number in range(30)),
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.55",
            "",
            "[2026-05-01 10:00:41] SIGQUIT received. signum=3, frame=None. It usually means one child failed.",
        ]
    )
    findings = _explained(text)
    assert [finding.rule for finding in findings] == ["sglang.not-enough-memory", "sglang.process-died"]
    assert findings[1].caused_by == "sglang.not-enough-memory"


def test_memory_that_ran_out_in_capture_is_not_also_told_as_another_shortage() -> None:
    text = (
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
        "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    )
    assert _roots(_explained(text)) == ["sglang.capture-out-of-memory"]


def test_a_worker_killed_is_a_suspicion_that_says_how_to_settle_it() -> None:
    text = (
        "ERROR 05-05 10:00:00 [multiproc_executor.py:230] Worker proc VllmWorker-1 died unexpectedly (exit code: -9)."
    )
    finding = _explained(text)[0]
    assert finding.rule == "engine.process-killed"
    assert finding.confidence is Confidence.SUSPECTED
    assert "journalctl" in finding.settles


# Figures in lines


def test_unbalanced_memory_points_to_the_poorer_node() -> None:
    finding = _explained(
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=38.40, local_gpu_memory=103.70, local_gpu_memory * 0.9=93.33"
    )[0]
    assert finding.title == "SGLang refused to start: 38.40 GB available on another rank, 103.70 GB on this one"
    assert "on the other node or another GPU" in finding.explanation
    assert not any(remedy.action for remedy in finding.remedies), "they are for the other node"


def test_unbalanced_memory_whose_figures_stand_on_the_next_line_is_one_finding() -> None:
    text = (
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.\n"
        "pre_model_load_memory=10.11, local_gpu_memory=20.22, local_gpu_memory*0.9=18.20\n"
    )
    assert _roots(_explained(text)) == ["sglang.memory-unbalanced"]


def test_variables_of_the_image_are_harmless_and_lost_ones_are_not() -> None:
    start = "(APIServer pid=1) WARNING 05-05 10:00:00 [envs.py:2057] Unknown vLLM environment variable detected: "
    names = ("VLLM_BUILD_COMMIT", "VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_NVFP4_GEMM_BACKEND", "VLLM_SOMETHING")
    findings = {finding.rule: finding for finding in _explained("\n".join(start + name for name in names))}
    assert {rule: finding.severity for rule, finding in findings.items()} == {
        "vllm.env-build-variable": Severity.INFO,
        "vllm.env-moe-removed": Severity.WARNING,
        "vllm.env-gemm-removed": Severity.WARNING,
        "vllm.env-unknown": Severity.WARNING,
    }
    assert "--moe-backend" in findings["vllm.env-moe-removed"].title + findings["vllm.env-moe-removed"].explanation
    assert "VLLM_SOMETHING" in findings["vllm.env-unknown"].title


def test_waiting_once_is_no_warning_and_waiting_again_is_one() -> None:
    line = (
        "INFO 05-05 10:00:00 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds.\n"
    )
    assert [finding.severity for finding in _explained(line)] == [Severity.INFO]
    assert _roots(_explained(line * 3)) == ["vllm.shm-broadcast-stall"]


# Capture that stands still


@over(
    "text, at",
    [
        ("Capturing batches (bs=64 avail_mem=20.10 GB):   0%|          | 0/18 [00:00<?, ?it/s]", "0 of 18"),
        ("Capture cuda graph begin. avail mem=20.10 GB\n  0%|          | 0/18 [00:00<?, ?it/s]\n", "0 of 18"),
        ("Capturing x:  40%|##| 4/10 [00:07<00:05]\nCapturing x:  40%|##| 4/10 [00:07<00:05]", "4 of 10"),
        ("Capturing batches (bs=64):  40%|##| 4/10 [00:07<00:05, 1.0it/s]", None),  # cut off as it was drawn
        ("Capturing batches (bs=64):   0%| | 0/2 [00:00<?]\rCapturing batches (bs=8): 100%|#| 2/2 [00:07<00:00]", None),
        ("Capturing batches (bs=64):   0%| | 0/2 [00:00<?]\nCapture cuda graph end. Time elapsed: 9.1 s.", None),
        ("Loading safetensors checkpoint shards:   0% Completed | 0/9 [00:00<?, ?it/s]", None),
        ("  0%|          | 0/18 [00:00<?, ?it/s]", None),
        ("", None),
    ],
)
def test_a_log_that_ends_in_an_unmoved_capture_bar_is_suspected(text: str, at: str | None) -> None:
    found = capture_end.read(text, "stdin")
    assert (found[0].title.rpartition("at ")[2] if found else None) == at
    assert not found or (found[0].confidence is Confidence.SUSPECTED and found[0].settles)


# Healthy logs are full of words


@over("name", ["vllm_healthy.txt", "sglang_healthy.txt"])
def test_a_healthy_start_full_of_warnings_raises_none(name: str) -> None:
    findings = _explained((CASES / name).read_text("utf-8"))
    assert [(finding.rule, finding.evidence[0].text) for finding in findings if finding.severity in LOUD] == []


@over("name", ["vllm_healthy.txt", "sglang_healthy.txt"])
def test_no_line_of_a_healthy_start_is_loud_by_itself(name: str) -> None:
    lines = [line for line in (CASES / name).read_text("utf-8").splitlines() if "0%|" not in line]
    loud = {line: finding.rule for line in lines for finding in _explained(line) if finding.severity in LOUD}
    assert loud == {}


def test_an_exception_that_a_start_survives_is_none() -> None:
    failed = "(EngineCore pid=77) ModuleNotFoundError: No module named 'humbug'\n"
    assert _roots(_explained(failed)) == ["start.module-missing"]
    assert _explained(failed + "(APIServer pid=1) INFO:     Application startup complete.\n") == ()


def test_what_fails_after_the_start_is_not_taken_back() -> None:
    text = (
        "(APIServer pid=1) INFO:     Application startup complete.\n"
        "(EngineCore pid=77) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
        '(APIServer pid=1) INFO:     10.0.0.9:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    )
    assert _roots(_explained(text)) == ["torch.oom-serving"]


def test_an_engine_told_to_stop_has_not_crashed() -> None:
    text = "\n".join(
        [
            "(APIServer pid=1) INFO:     Application startup complete.",
            "(EngineCore pid=77) INFO 05-05 11:00:00 [core.py:1214] [shutdown] EngineCore: received signal=SIGTERM",
            "(APIServer pid=1) INFO 05-05 11:00:00 [launcher.py:100] [shutdown] API server: shutdown triggered",
            "(APIServer pid=1) ERROR 05-05 11:00:01 [async_llm.py:704] AsyncLLM output_handler failed.",
            "(APIServer pid=1) ERROR 05-05 11:00:01 [async_llm.py:704] EngineDeadError: EngineCore hit an issue.",
        ]
    )
    assert [finding.rule for finding in _explained(text) if finding.severity in LOUD] == []
