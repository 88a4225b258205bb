"""The log lines of an engine's start, and its memory over that time: lines as vLLM and SGLang print them."""

from __future__ import annotations

from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.script import ContainerScript, EngineScript, LogEntry

SHARES = ((0.0, 0.0), (0.06, 0.005), (0.2, 0.01), (0.72, 0.62), (0.76, 0.62), (0.785, 0.97), (0.95, 0.985), (1.0, 1.0))
"""(share of the start's time, share of its memory): weights take most of the time, the KV cache comes at once."""
_BEFORE_WEIGHTS, _WEIGHTS, _GRAPHS = 0.01, 0.62, 0.98
"""Of SHARES: what is taken before the weights, with them, and what is left for graphs."""
CAPTURE, _CAPTURED = 0.8, 0.94
"""Part of the time after which CUDA graphs are captured."""
_EAGER = ("--enforce-eager", "--disable-cuda-graph")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of an engine."""

    container: ContainerScript
    engine: EngineScript | None
    """None: a rank without an endpoint."""
    kind: str
    version: str
    model: str
    begin_s: float
    ready_s: float
    gpu_gib: float
    rank: int = 0
    weights: float | None = None
    """The weights' share of its memory; None: as in SHARES."""
    shards: int = 14

    def at(self, time_share: float) -> float:
        """The second at which this share of the start's time has passed."""
        return self.begin_s + time_share * (self.ready_s - self.begin_s)

    @property
    def loaded(self) -> float:
        """The share of its memory that is allocated once the weights are loaded."""
        return self.weights if self.weights is not None else _WEIGHTS

    @property
    def shares(self) -> list[tuple[float, float]]:
        if self.weights is None:
            return [(self.at(time_share), share) for time_share, share in SHARES]
        grown = [
            (self.at(time_share), self.loaded if _BEFORE_WEIGHTS < share <= _WEIGHTS else share)
            for time_share, share in SHARES
            if share < _GRAPHS
        ]
        return [*grown, (self.at(_CAPTURED), 1.0)]  # the graphs are allocated last


def lines(start: Start, *, until_s: float = float("inf")) -> tuple[LogEntry, ...]:
    """The log of a start, up to a second."""
    start = replace(start, model=start.model.replace("{", "{{").replace("}", "}}"))  # what follows is formatted
    if _RAY_WORKER in start.container.argv:
        entries = _log_entries(start, _RAY_JOINS)
    else:
        entries = _vllm(start) if start.kind == "vllm" else _sglang(start)
    if _RAY_HEAD in start.container.argv:
        entries = [*_log_entries(start, _RAY_STARTS), *entries]
    return tuple(entry for entry in entries if entry.at_s < until_s and (entry.until_s or entry.at_s) <= until_s)


def stuck_capture(start: Start) -> LogEntry:
    """A progress bar of graph capture that stays at 0."""
    at = start.at(CAPTURE)
    text, total = (_PIECEWISE, 51) if start.kind == "vllm" else (_BATCHES, 36)
    return LogEntry(at_s=at, until_s=at, total=total, last=0, text=text)


def shutdown_line(kind: str, at_s: float) -> LogEntry:
    """The last log line of an engine that was stopped."""
    prefix = "(APIServer pid=1)" if kind == "vllm" else "[{sglang_time}]"
    return LogEntry(at_s=at_s - 0.05, text=f"{prefix} INFO:     Shutting down", once=True)


def notes(container: ContainerScript) -> tuple[str, ...]:
    """The lines about its kernels that it logs at every start."""
    single_lines = [entry.text for entry in container.log if entry.every_s is None and entry.total is None]
    kernel_lines = [text for text in single_lines if "] Using " in text or "Weight-only FP4" in text]
    return container.notes or tuple(dict.fromkeys(kernel_lines))


_BAR = "{percent:3.0f}%|{bar}| {done}/{total} [{elapsed}<{left},  {rate:.2f}it/s]"
_PIECEWISE = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): " + _BAR
_BATCHES = "Capturing batches (bs=1 avail_mem={available_gib:.2f} GB): " + _BAR
_SHARDS = (
    " Loading safetensors checkpoint shards: {percent:3.0f}% Completed | {done}/{total} "
    "[{elapsed}<{left},  {rate:.2f}it/s]"
)
_STATISTICS = (
    "(APIServer pid=1) INFO {vllm_time} [loggers.py:217] Engine 000: Avg prompt throughput: {prompt_tps:.1f} tokens/s, "
    "Avg generation throughput: {gen_tps:.1f} tokens/s, Running: {running:.0f} reqs, Waiting: {waiting:.0f} reqs, "
    "GPU KV cache usage: {kv_percent:.1f}%, Prefix cache hit rate: {hit_percent:.1f}%"
)
_DECODE = (
    "[{sglang_time} TP0] Decode batch, #running-req: {running:.0f}, #token: {kv_tokens:.0f}, token usage: {kv:.2f}, "
    "cuda graph: GRAPH, gen throughput (token/s): {gen_tps:.2f}, #queue-req: {waiting:.0f}"
)
_AVAILABLE = "avail mem={available_gib:.2f} GB"

_RAY_HEAD, _RAY_WORKER = "sparktop-ray-head", "sparktop-ray-worker"
_RAY_STARTS = [
    (0.0, "sparktop: starting Ray at 10.0.0.1:6379"),
    (0.01, "Ray runtime started."),
    (0.015, "sparktop: waiting for 1 of 2 Ray nodes"),
    (0.05, "sparktop: all 2 Ray nodes joined, starting the engine"),
]
_RAY_JOINS = [
    (0.0, "sparktop: waiting for Ray at 10.0.0.1:6379"),
    (0.02, "sparktop: joining Ray at 10.0.0.1:6379"),
    (0.04, "Ray runtime started."),
]

TimedLines = list[tuple[float, str]]
"""(share of the start's time, line)."""


def _vllm(start: Start) -> list[LogEntry]:
    core = "(EngineCore_DP0 pid=152)"
    prefix = f"(Worker_TP{start.rank} pid={301 - 14 * start.rank})" if "--nnodes" in start.container.argv else core
    prefix = "(RayWorkerWrapper pid=402)" if _RAY_HEAD in start.container.argv else prefix
    info, weights_s = f"{prefix} INFO {{vllm_time}} ", start.at(0.72) - start.at(0.2)
    weights = f"{start.loaded * start.gpu_gib:.2f} GiB memory and {weights_s + 2.1:.6f} seconds"
    timed_lines: TimedLines = [
        (0.12, f"{info}[core.py:97] Initializing a V1 LLM engine (v{start.version}) with model='{start.model}'"),
        (0.18, f"{info}[gpu_model_runner.py:4736] Starting to load model {start.model}..."),
        (0.722, f"{info}[default_loader.py:384] Loading weights took {weights_s:.2f} seconds"),
        (0.725, f"{info}[gpu_model_runner.py:4821] Model loading took {weights}"),
    ]
    graphs = start.rank == 0 and not _is_eager(start.container)
    if graphs:
        duration = f"{start.at(0.94) - start.at(CAPTURE):.0f} secs, took 0.98 GiB"
        timed_lines.append((0.945, f"{info}[gpu_model_runner.py:6047] Graph capturing finished in {duration}"))
    if start.engine is not None:
        api, core = "(APIServer pid=1) INFO", f"{core} INFO {{vllm_time}} "
        duration = f"{start.at(0.96) - start.at(0.73):.2f} seconds"
        tokens = f"{int(start.gpu_gib * 3400):,} tokens"
        timed_lines += [
            (0.07, f"{api} {{vllm_time}} [utils.py:299] vLLM API server version {start.version}"),
            (0.786, f"{core}[kv_cache_utils.py:1312] GPU KV cache size: {tokens}"),
            (0.96, f"{core}[core.py:284] init engine (profile, create kv cache, warmup model) took {duration}"),
            (0.98, f"{api} {{vllm_time}} [launcher.py:46] Starting vLLM server on http://0.0.0.0:{start.engine.port}"),
            (1.0, f"{api}:     Application startup complete."),
        ]
    entries = _log_entries(start, timed_lines)
    bar = LogEntry(at_s=start.at(0.2), until_s=start.at(0.72), total=start.shards, newline=True, text=prefix + _SHARDS)
    entries.append(replace(bar, last=start.shards))
    if graphs:
        entries.append(LogEntry(at_s=start.at(CAPTURE), until_s=start.at(0.94), total=51, last=51, text=_PIECEWISE))
    if start.engine is not None and not _logs_repeatedly(start.container, "Avg generation throughput"):
        entries.append(LogEntry(at_s=start.ready_s, every_s=10.0, busy=True, text=_STATISTICS))
    return entries


def _sglang(start: Start) -> list[LogEntry]:
    stamp, eager = f"[{{sglang_time}} TP{start.rank}]", _is_eager(start.container)
    load_s, gib = start.at(0.72) - start.at(0.2), start.gpu_gib
    loaded = f"elapsed={load_s:.2f} s, type=CausalLM, {_AVAILABLE}, mem usage={start.loaded * gib:.2f} GB."
    cache = f"#tokens: {int(gib * 1540)}, K size: {0.17 * gib:.2f} GB, V size: {0.17 * gib:.2f} GB"
    joined = f"elapsed={start.at(0.15) - start.at(0.1):.2f} s, mem usage=0.12 GB"
    timed_lines: TimedLines = [
        (0.1, f"{stamp} Init torch distributed begin."),
        (0.15, f"{stamp} Init torch distributed ends. {joined}"),
        (0.2, f"{stamp} Load weight begin. {_AVAILABLE}"),
        (0.72, f"{stamp} Load weight end. {loaded}"),
        (0.786, f"{stamp} KV Cache is allocated. {cache}"),
        (0.79, f"{stamp} Memory pool end. {_AVAILABLE}"),
    ]
    if not eager:
        duration = f"Time elapsed: {start.at(0.945) - start.at(CAPTURE):.2f} s. mem usage=2.10 GB. {_AVAILABLE}."
        timed_lines += [
            (0.795, f"{stamp} Capture cuda graph begin. This can take up to several minutes. {_AVAILABLE}"),
            (0.945, f"{stamp} Capture cuda graph end. {duration}"),
        ]
    if start.engine is not None:
        timed_lines += [
            (0.05, f"[{{sglang_time}}] server_args=ServerArgs(model_path='{start.model}')"),
            (1.0, "[{sglang_time}] The server is fired up and ready to roll!"),
        ]
    entries = _log_entries(start, timed_lines)
    if not eager and start.rank == 0:
        entries.append(LogEntry(at_s=start.at(CAPTURE), until_s=start.at(0.94), total=36, last=36, text=_BATCHES))
    if start.engine is not None and not _logs_repeatedly(start.container, "gen throughput"):
        text = _DECODE.replace("GRAPH", str(not eager))
        entries.append(LogEntry(at_s=start.ready_s, every_s=3.0, busy=True, text=text))
    return entries


def _log_entries(start: Start, timed_lines: TimedLines) -> list[LogEntry]:
    all_lines = [*timed_lines, *((0.19, text) for text in notes(start.container))]
    return [LogEntry(at_s=start.at(time_share), text=text) for time_share, text in all_lines]


def _is_eager(container: ContainerScript) -> bool:
    return container.launched.eager if container.launched else any(flag in container.argv for flag in _EAGER)


def _logs_repeatedly(container: ContainerScript, words: str) -> bool:
    """Whether its scripted log already repeats this text."""
    return any(words in entry.text and entry.every_s is not None and entry.until_s is None for entry in container.log)
