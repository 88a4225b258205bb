"""What `explain` says of logs of llama.cpp's server: of real captures, and of failures whose lines stand together."""

from __future__ import annotations

from pathlib import Path

from tests.table import over

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.logs.rule import shipped
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

CAPTURES = Path(__file__).parents[3] / "real/captures/llama.cpp-0.7.0"
BEGINS = "0.00.004.100 I srv  llama_server: initializing ..."
SERVES = "0.09.883.120 I srv  llama_server: listening on http://127.0.0.1:9931"
ENDS = "0.09.990.001 E srv  llama_server: exiting due to model loading error"
NO_FILE = "0.00.310.009 E gguf_init_from_file: failed to open GGUF file '/data/side.gguf' (No such file or directory)"
FAILURES = {
    "the projector's file is missing": (
        "llama.model-file-missing",
        (BEGINS, NO_FILE, "0.00.310.100 E mtmd_init_from_file: error: Failed to load CLIP model from /data/side.gguf"),
    ),
    "a cache that no memory is left for": (
        "llama.kv-cache-too-large",
        (
            BEGINS,
            "0.07.112 E ggml_backend_cuda_buffer_type_alloc: allocating 98304 MiB: cudaMalloc failed: out of memory",
            "0.07.113 E llama_init_from_model: failed to initialize: failed to allocate buffer for kv cache",
        ),
    ),
    "a private repository": (
        "llama.hub-refused",
        (
            BEGINS,
            "0.00.702.400 E get_repo_commit: error: GET failed (404): Repository not found",
            "0.00.703.001 E srv    load_model: failed to load model, ''",
            "0.00.703.002 E cmn  common_init_: failed to load model ''",
        ),
    ),
}


def explained(data: bytes) -> tuple[Finding, ...]:
    explanation = Explanation("llama.log", shipped())
    explanation.feed(data)
    return explanation.finish()


def critical(lines: tuple[str, ...]) -> list[Finding]:
    found = explained("\n".join(lines).encode())
    return [one for one in found if one.severity is Severity.CRITICAL]


@over("failure", FAILURES)
def test_one_cause_comes_first_and_the_rest_hangs_beneath(failure: str) -> None:
    rule, lines = FAILURES[failure]
    assert {one.caused_by or one.rule for one in critical((*lines, ENDS))} == {rule}


def test_a_draft_that_isn_t_there_is_a_warning_where_the_server_serves_on() -> None:
    said = "0.00.311.000 E srv    load_model: failed to load draft model, '/data/side.gguf'"
    assert critical((BEGINS, NO_FILE, said, SERVES)) == []
    assert [one.rule for one in explained("\n".join((BEGINS, NO_FILE, said, SERVES)).encode())] == [
        "llama.draft-not-loaded"
    ]


@over(
    "name, rules",
    [
        ("healthy", []),
        ("killed", []),
        ("stopped-under-load", []),
        ("model-missing", ["llama.model-file-missing"]),
        ("port-in-use", ["llama.port-in-use"]),
        ("unknown-flag", ["llama.flag-unknown"]),
    ],
)
def test_a_capture(name: str, rules: list[str]) -> None:
    found = explained((CAPTURES / f"{name}.log").read_bytes())
    assert [one.rule for one in found if one.severity is not Severity.INFO] == rules


def test_a_probe_while_it_loads_is_no_failure() -> None:
    loading = "0.03.400.100 I srv  log_server_r: done request: GET /health 127.0.0.1 503"
    assert explained("\n".join((BEGINS, *[loading] * 40, SERVES)).encode()) == ()
