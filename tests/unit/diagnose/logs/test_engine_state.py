"""What an engine's log says of where the engine is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.support import engine_of
from tests.table import over

from sparktop.diagnose.logs.engine_state import (
    EngineLogState,
    Phase,
    advance,
    advance_all,
    begun,
    kinds_of,
    phase_of,
    resolve_state,
    wordings,
)
from sparktop.model.engine import (
    Container,
    Endpoint,
    EndpointState,
    Engine,
    EngineKind,
    EngineMetrics,
    EngineState,
    Loaded,
    Progress,
)
from sparktop.model.telemetry import LogLine
from sparktop.text.units import GIB

V, S = EngineKind.VLLM, EngineKind.SGLANG
STARTING, LOADING, CAPTURING = EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING
READY, SERVING, EXITED, UNKNOWN = EngineState.READY, EngineState.SERVING, EngineState.EXITED, EngineState.UNKNOWN
CORE = "(EngineCore pid=77) INFO 05-18 12:00:00 "

VLLM_START = [
    ("(APIServer pid=1) INFO 05-18 12:00:00 [api_server.py:1354] vLLM API server version 0.19.0", STARTING, "", None),
    (CORE + "[core.py:93] Initializing a V1 LLM engine (v0.19.0) with config: model='org/M'", STARTING, "", None),
    (CORE + "[gpu_model_runner.py:35] Starting to load model org/M...", LOADING, "weights", None),
    ("Loading safetensors checkpoint shards:   0% Completed | 0/37 [00:00<?, ?it/s]", LOADING, "weights", (0, 37)),
    (
        "(EngineCore pid=77) Loading safetensors checkpoint shards:   3% Completed | 1/37 [00:02<01:39,  2.77s/it]",
        LOADING,
        "weights",
        (1, 37),
    ),
    (CORE + "[default_loader.py:308] Loading weights took 170.58 seconds", LOADING, "compile", None),
    (CORE + "[gpu_model_runner.py:36] Model loading took 29.04 GiB memory and 182.5 seconds", LOADING, "compile", None),
    (CORE + "[backends.py:278] Compiling a graph for compile range (1, 2048) takes 86.12 s", LOADING, "compile", None),
    (CORE + "[backends.py:310] saved AOT compiled function to /root/.cache/vllm/a/model", LOADING, "compile", None),
    (CORE + "[monitor.py:53] Initial profiling/warmup run took 2.31 s", LOADING, "kv cache", None),
    (CORE + "[kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens", LOADING, "kv cache", None),
    (CORE + "[gpu_worker.py:375] Available KV cache memory: 41.04 GiB", LOADING, "kv cache", None),
    ("[AutoTuner]: Tuning fp4_gemm:  40%|████      | 4/10 [00:01<00:02, 2.1profile/s]", LOADING, "autotune", (4, 10)),
    (
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  30%|███       | 20/67 [00:02<00:05, 9.1it/s]",
        CAPTURING,
        "capture",
        (20, 67),
    ),
    ("Capturing CUDA graphs (decode, FULL):   0%|          | 0/35 [00:00<?, ?it/s]", CAPTURING, "capture", (0, 35)),
    (CORE + "[gpu_model_runner.py:45] Graph capturing finished in 6 secs, took 1.28 GiB", CAPTURING, "warm-up", None),
    (
        CORE + "[core.py:259] init engine (profile, create kv cache, warmup model) took 118 seconds",
        CAPTURING,
        "warm-up",
        None,
    ),
    ("(APIServer pid=1) INFO:     Application startup complete.", READY, "", None),
    (
        (
            "(APIServer pid=1) INFO 05-18 12:09:01 [loggers.py:259] Engine 000: Avg prompt throughput: 12.0 tokens/s, "
            "Avg generation throughput: 28.8 tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 1.2%"
        ),
        SERVING,
        "",
        None,
    ),
    (
        (
            "(APIServer pid=1) INFO 05-18 12:09:11 [loggers.py:259] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
            "Avg generation throughput: 3.1 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%"
        ),
        READY,
        "",
        None,
    ),
]

SGLANG_START = [
    ("[2026-06-07 12:03:29] server_args=ServerArgs(model_path='org/S', port=30000)", STARTING, "", None),
    ("[2026-06-07 12:03:35 TP0] Init torch distributed begin.", STARTING, "distributed", None),
    ("[2026-06-07 12:03:35 TP0] Init parallel begin. backend=gloo", STARTING, "distributed", None),
    ("[2026-06-07 12:03:36 TP0] Load weight begin. avail mem=105.20 GB", LOADING, "weights", None),
    ("Multi-thread loading shards:  33% Completed | 1/3 [00:19<00:38, 19.5s/it]", LOADING, "weights", (1, 3)),
    ("[2026-06-07 12:03:56 TP0] Load weight end. elapsed=20.2 s, type=X, avail mem=13 GB", LOADING, "kv cache", None),
    ("[2026-06-07 12:03:56 TP0] KV Cache is allocated. #tokens: 674, K size: 0.01 GB", LOADING, "kv cache", None),
    (
        "[2026-06-07 12:03:57 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=12 GB",
        CAPTURING,
        "capture",
        None,
    ),
    (
        "Capturing batches (bs=256 avail_mem=33.77 GB):   0%|          | 0/36 [00:00<?, ?it/s]",
        CAPTURING,
        "capture",
        (0, 36),
    ),
    (
        (
            "Capturing batches (bs=8 avail_mem=9 GB):  50%|█████| 18/36 [00:05<00:05,  3.1it/s]"
            "Capturing batches (bs=4 avail_mem=9 GB):  55%|█████| 20/36 [00:06<00:04,  3.1it/s]"
        ),
        CAPTURING,
        "capture",
        (20, 36),
    ),
    ("[2026-06-07 12:04:10 TP0] Capture cuda graph end. Time elapsed: 12.85 s.", CAPTURING, "warm-up", None),
    ("[2026-06-07 12:04:10] Capture piecewise CUDA graph begin. avail mem=9.54 GB", CAPTURING, "capture", None),
    ("[2026-06-07 12:04:29] INFO:     Application startup complete.", CAPTURING, "capture", None),
    ("[2026-06-07 12:04:35] The server is fired up and ready to roll!", READY, "", None),
    (
        (
            "[2026-10-02 15:01:17 TP0] Decode batch, #running-req: 3, #token: 1200, token usage: 0.01, graph: True, "
            "gen throughput (token/s): 36.60, #queue-req: 0"
        ),
        SERVING,
        "",
        None,
    ),
]


def test_a_real_vllm_s_start_passes_through_its_phases() -> None:
    text = (Path(__file__).parents[3] / "real/captures/vllm-0.32.0/healthy.log").read_text()
    log, seen = EngineLogState(), []
    for line in text.splitlines():
        log = advance(log, LogLine(text=line), V)
        here = (log.state, log.phase)
        seen += [here] if here not in seen else []
    loads = [(LOADING, phase) for phase in ("weights", "compile", "kv cache")]
    assert seen == [(UNKNOWN, ""), (STARTING, ""), *loads, (CAPTURING, "warm-up"), (READY, "")]


@over("kind, script", [(V, VLLM_START), (S, SGLANG_START)], ids=["vllm", "sglang"])
def test_a_start_is_followed_line_by_line(
    kind: EngineKind, script: list[tuple[str, EngineState, str, tuple[int, int] | None]]
) -> None:
    state = EngineLogState()
    for text, expected, phase, count in script:
        state = advance(state, LogLine(text=text), kind)
        assert state.state is expected, text
        assert state.phase == phase, text
        assert (state.progress and (state.progress.done, state.progress.total)) == count, text
    assert not state.failure


def test_what_is_learned_on_the_way() -> None:
    state = advance_all(EngineLogState(), (LogLine(text=text) for text, *_ in VLLM_START[:-1]), V)
    assert state.version == "0.19.0"
    assert state.statistics is not None
    assert (state.statistics.running, state.statistics.waiting) == (2.0, 1.0)
    assert (state.statistics.prompt_tokens_per_s, state.statistics.generation_tokens_per_s) == (12.0, 28.8)


@over(
    "kind, text",
    [
        (V, "(EngineCore pid=9) ERROR 05-18 12:00:00 [core.py:1108] EngineCore failed to start."),
        (V, "sparktop: gave up after 900 s: 1 of 2 Ray nodes are missing"),
        (V, "sparktop: gave up after 900 s: no Ray at 10.0.0.1:6379"),
        (V, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
        (
            V,
            "ERROR 05-18 12:00:00 [core_client.py:668] Engine core proc EngineCore_DP0 died unexpectedly, bye.",
        ),
        (V, "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."),
        (V, "(APIServer pid=1) ERROR 11-28 [core_client.py:688] [shutdown] MPClient: engine core exited unexpectedly"),
        (V, "ERROR 05-18 12:00:00 [multiproc_executor.py:1] WorkerProc failed to start."),
        (V, "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."),
        (V, "vllm: error: unrecognized arguments: --mxfp4-layers moe"),
        (S, "Exception: Capture cuda graph failed: CUDA error: out of memory"),
        (S, "[2026-05-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):"),
        (S, "[2026-05-01 10:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
        (S, "[2026-05-01 10:00:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
    ],
)
def test_a_line_that_says_it_died(kind: EngineKind, text: str) -> None:
    state = advance_all(EngineLogState(), [LogLine(text=text), LogLine(text=text + " again")], kind)
    assert state.failure == text
    told = advance_all(EngineLogState(), [LogLine(text="INFO:     Shutting down"), LogLine(text=text)], kind)
    assert told.stopping
    assert not told.failure


@over(
    "text",
    [
        "",
        "Uvicorn running nowhere",
        "user asked: what does Loading weights mean?",
        "[api] 20/36 requests [ok]",
        'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK',
        "Free memory on device (110/121 GiB) on startup. Desired GPU memory utilization is (0.87, 105 GiB)",
        "Processed prompts: 50%|█████| 5/10 [00:01<00:01, 4.8it/s]",
    ],
)
def test_lines_that_say_nothing_of_it(text: str) -> None:
    assert phase_of(text) is None


def test_a_ready_engine_stays_ready_until_it_starts_again() -> None:
    ready = EngineLogState(state=READY, version="0.19.0", failure="it died")
    late = advance(ready, LogLine(text="Compiling a graph for compile range (1, 8) takes 1 s"), V)
    assert late.state is READY
    again = advance(ready, LogLine(text="INFO 05-18 12:00:00 [a.py:1] vLLM API server version 0.20.0"), V)
    assert (again.state, again.version, again.failure) == (STARTING, "0.20.0", "")
    assert begun(ready, 7.0) == EngineLogState(state=STARTING, version="0.19.0", moved_wall_s=7.0)


API = "(APIServer pid=1) INFO 11-28 00:44:52 "


@over(
    "kind, line, version",
    [
        (V, API + "[api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", "0.32.0"),
        (V, API + "[api_utils.py:284] vLLM server version 0.32.0, serving model /m", "0.32.0"),
        (V, "INFO 11-28 07:40:00 [serve.py:224] Launching vLLM (v0.32.0) headless multiproc executor, with", "0.32.0"),
        (V, API + "[api_utils.py:286] non-default args: {'model_tag': '/m'}", "0.19.0"),
        (V, "usage: vllm serve [model_tag] [options]", "0.19.0"),
        (S, "[2026-11-28 01:13:40] server_args=ServerArgs(model_path='/m')", "0.19.0"),
        (S, "[2026-11-28 01:13:40] server_args={'model_path': '/m'}", "0.19.0"),
    ],
)
def test_what_begins_a_run(kind: EngineKind, line: str, version: str) -> None:
    over = EngineLogState(state=READY, version="0.19.0", failure="it died", stopping=True)
    assert advance(over, LogLine(text=line, wall_s=7.0), kind) == begun(replace(over, version=version), 7.0)


@over(
    "line, stops",
    [
        (API + "[launcher.py:254] [shutdown] API server: shutdown triggered", True),
        (API + "[core_client.py:770] [shutdown] MPClient: start timeout=0s", False),
        (CORE + "[core.py:1454] [shutdown] EngineCore: trigger received signal=SIGTERM", False),
        (API + "[utils.py:628] [shutdown] Process manager: send sigterm to process EngineCore", False),
    ],
)
def test_of_the_shutdown_lines_one_tells_of_a_stop(line: str, stops: bool) -> None:
    assert advance(EngineLogState(), LogLine(text=line), V).stopping is stops


def test_a_count_that_stands_still_shows_when_it_last_moved() -> None:
    bar = "Capturing batches (bs=4 avail_mem=9 GB):  55%|█████| 20/36 [00:06<00:04,  3.1it/s]"
    state = EngineLogState()
    for wall_s in (100.0, 160.0, 220.0):
        state = advance(state, LogLine(text=bar, wall_s=wall_s), S)
    assert state.moved_wall_s == 100.0
    state = advance(state, LogLine(text=bar.replace("20/36", "21/36"), wall_s=230.0), S)
    assert state.moved_wall_s == 230.0


def test_when_it_was_first_ready_is_known_where_the_log_tells_of_its_load() -> None:
    bar = "Capturing batches (bs=4 avail_mem=9 GB):  55%|█████| 20/36 [00:06<00:04,  3.1it/s]"
    fired, served = "The server is fired up and ready to roll!", "Decode batch. #running-req: 1, gen throughput: 2.0"
    state = EngineLogState()
    for wall_s, text in ((100.0, bar), (160.0, fired), (220.0, served), (290.0, fired)):
        state = advance(state, LogLine(text=text, wall_s=wall_s), S)
    assert state.ready_wall_s == 160.0
    assert advance(EngineLogState(), LogLine(text=fired, wall_s=160.0), S).ready_wall_s is None, "read from its middle"


def test_a_json_log_says_the_same() -> None:
    text = '{"level":"INFO","message":"Graph capturing finished in 12 secs, took 0.26 GiB"}'
    assert phase_of(text, V) == Phase(state=CAPTURING, name="warm-up")


def test_every_wording_has_its_word() -> None:
    assert len({wording.pattern.source for wording in wordings()}) == len(wordings())


@given(st.text(max_size=200), st.sampled_from([None, V, S]))
def test_any_text_is_an_answer(text: str, kind: EngineKind | None) -> None:
    state = advance(EngineLogState(), LogLine(text=text), kind)
    assert state.progress is None or state.progress.done is None or state.progress.done >= 0
    assert state.state in EngineState


ENGINE = engine_of(key="a", kind=V, name="e", state=STARTING, endpoint=Endpoint(host="127.0.0.1", port=8000))
METRICS = EngineMetrics(wall_s=1.0, running=0.0, waiting=0.0)
CAPTURED = EngineLogState(state=CAPTURING, progress=Progress(phase="capture", done=3, total=9))


def asked(answer: EndpointState, **changes: object) -> Engine:
    engine = replace(ENGINE, endpoint=Endpoint(host="127.0.0.1", port=8000, state=answer))
    return replace(engine, **changes)  # type: ignore[arg-type]


@over(
    "engine, log, expected",
    [
        (asked(EndpointState.OK, metrics=METRICS), CAPTURED, READY),
        (asked(EndpointState.OK, metrics=replace(METRICS, running=1.0)), None, SERVING),
        (asked(EndpointState.OK, metrics=replace(METRICS, waiting=1.0)), None, SERVING),
        (asked(EndpointState.REFUSED), CAPTURED, CAPTURING),
        (asked(EndpointState.REFUSED), None, STARTING),
        (asked(EndpointState.REFUSED, metrics=replace(METRICS, running=1.0), state=SERVING), None, STARTING),
        (asked(EndpointState.TIMED_OUT, state=SERVING), None, SERVING),
        (asked(EndpointState.TIMED_OUT, state=SERVING), CAPTURED, SERVING),
        (asked(EndpointState.TIMED_OUT, state=SERVING), EngineLogState(state=READY), READY),
        (asked(EndpointState.TIMED_OUT), CAPTURED, CAPTURING),
        (asked(EndpointState.NO_METRICS), None, UNKNOWN),
        (asked(EndpointState.NO_METRICS), EngineLogState(state=READY), READY),
        (asked(EndpointState.NOT_ASKED), None, STARTING),
        (asked(EndpointState.OK, metrics=METRICS, state=EXITED), CAPTURED, EXITED),
        (
            asked(
                EndpointState.OK,
                metrics=METRICS,
                container=Container(container_id="c", name="n", image="i", status="exited", exit_code=1),
            ),
            None,
            EXITED,
        ),
    ],
)
def test_what_is_known_best_decides(engine: Engine, log: EngineLogState | None, expected: EngineState) -> None:
    state, progress = resolve_state(engine, log)
    assert state is expected
    assert (progress is not None) == (expected is CAPTURING)


def test_statistics_of_the_log_age() -> None:
    log = EngineLogState(state=SERVING, statistics_wall_s=1000.0)
    engine = asked(EndpointState.NO_METRICS)
    assert resolve_state(engine, log, 1010.0)[0] is SERVING
    assert resolve_state(engine, log, 1100.0)[0] is READY


def test_what_an_earlier_run_said_is_over_when_the_engine_restarts() -> None:
    log = EngineLogState(state=READY, moved_wall_s=1000.0, statistics_wall_s=1500.0)
    restarted = asked(EndpointState.REFUSED, uptime_s=3.0)
    assert resolve_state(restarted, log, 2000.0) == (STARTING, None)
    assert resolve_state(restarted, log, 1506.0)[0] is READY
    assert resolve_state(restarted, replace(log, moved_wall_s=1998.0, state=LOADING), 2000.0)[0] is LOADING
    assert resolve_state(restarted, log)[0] is READY


@over(
    "name, state, port, failure",
    [
        ("healthy", READY, 8080, ""),
        ("killed", READY, 8080, ""),
        ("model-missing", LOADING, None, "failed to load model"),
        ("port-in-use", STARTING, None, "couldn't bind HTTP server socket"),
        ("unknown-flag", UNKNOWN, None, "invalid argument: --no-such-flag"),
    ],
)
def test_a_real_llama_cpp(name: str, state: EngineState, port: int | None, failure: str) -> None:
    text = (Path(__file__).parents[3] / f"real/captures/llama.cpp-0.7.0/{name}.log").read_text()
    lines = [LogLine(text=line, wall_s=float(number)) for number, line in enumerate(text.splitlines())]
    told = advance_all(EngineLogState(), lines, EngineKind("llama.cpp"))
    assert (told.state, told.port, told.has_served) == (state, port, state is READY)
    assert failure in told.failure if failure else not told.failure


def test_an_endpoint_that_answers_503_loads_whatever_its_log_says() -> None:
    endpoint = Endpoint(host="127.0.0.1", port=8080, state=EndpointState.LOADING)
    engine = engine_of(key="a", kind=EngineKind("llama.cpp"), name="a", endpoint=endpoint, uptime_s=600.0)
    assert resolve_state(engine, None) == (LOADING, None)
    assert resolve_state(engine, EngineLogState(state=READY, moved_wall_s=1.0)) == (LOADING, None)
    capturing = EngineLogState(state=CAPTURING, progress=Progress(phase="capture", done=1, total=2))
    assert resolve_state(engine, capturing)[0] is CAPTURING


def test_ollama_serves_once_it_listens() -> None:
    """Lines of its log as owners post them."""
    head = "time=2026-11-20T10:00:00.000Z level=INFO source=routes.go:1318 "
    lines = [f'{head}msg="server config" env="map[]"', f'{head}msg="Listening on [::]:11435 (version 0.11.4)"']
    told = advance_all(EngineLogState(), [LogLine(text=line, wall_s=1.0) for line in lines], EngineKind("ollama"))
    assert (told.state, told.port, told.version) == (READY, 11435, "0.11.4")
    assert kinds_of('source=ggml.go:104 msg="" llama_model_loader: loaded') == {EngineKind("ollama")}


def told(kind: EngineKind, *texts: str) -> Loaded:
    return advance_all(EngineLogState(), [LogLine(text=text) for text in texts], kind).loaded


def test_what_the_load_took_is_read() -> None:
    lines = (
        CORE + "[gpu_model_runner.py:5150] Model loading took 34.25 GiB memory and 182.5 seconds",
        CORE + "[gpu_worker.py:760] Available KV cache memory: 47.5 GiB",
    )
    one_line = "[x.py:1] GPU KV cache size: 1,000,000 tokens, Maximum concurrency for 32,768 tokens per request: 30.52x"
    two_lines = one_line.split(", ", 1)
    for sizes in ([one_line], two_lines):
        found = told(V, *lines, *(CORE + text for text in sizes))
        assert (found.weights_bytes, found.cache_bytes) == (int(34.25 * GIB), int(47.5 * GIB))
        assert (found.context_tokens, found.contexts) == (32768, 30.52)
        assert found.context_bytes == int(47.5 * GIB / 30.52)


def test_sglang_s_model_and_draft_add_up() -> None:
    end = "Load weight end. elapsed=9 s, type=X, avail mem=70.00 GB, mem usage=%s GB."
    assert told(S, end % "60.50", end % "2.00").weights_bytes == int(60.5 * GIB) + 2 * GIB
    assert told(S, "Load weight end.").weights_bytes is None


def test_sglang_s_pools_add_up() -> None:
    time, sizes = "[2026-11-28 05:55:49 TP0] ", "dtype: torch.bfloat16, #tokens: 60000, K size: %s GB, V size: %s GB"
    most = "max_total_num_tokens=60000, chunked_prefill_size=4096, max_running_requests=3750, context_len=8192, x=1 GB"
    model, draft = "KV Cache is allocated. " + sizes % (8.5, 8.5), "KV Cache is allocated. " + sizes % (0.5, 0.5)
    linear = "Mamba Cache is allocated. max_mamba_cache_size: 9, conv_state size: 0.50GB, ssm_state size: 2.25GB"
    found = told(S, *(time + line for line in (linear, model, draft, most)))
    assert found.cache_bytes == int(20.75 * GIB)
    assert (found.context_tokens, found.context_bytes) == (8192, int(20.75 * GIB * 8192 / 60000))
    mla = "KV Cache is allocated. #tokens: 524288, KV size: 17.25 GB"
    assert told(S, time + mla).cache_bytes == int(17.25 * GIB)
    assert told(S, time + "KV Cache is allocated.").cache_bytes is None


def test_a_new_run_forgets_what_the_last_one_took() -> None:
    state = advance(
        EngineLogState(), LogLine(text=CORE + "[x.py:1] Model loading took 3.0 GiB memory and 1 seconds"), V
    )
    assert state.loaded != Loaded()
    assert begun(state, 1.0).loaded == Loaded()
