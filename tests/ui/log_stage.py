"""A bare app around one of the log widgets, with the themes and styles of the console, and lines to show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from textual.app import App, ComposeResult
from textual.theme import Theme
from textual.widget import Widget

from sparktop import sanitise
from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing
from sparktop.ui.theme import DARK, THEMES, variable_defaults

STYLES = [Path(__file__).resolve().parents[2] / "styles" / name for name in ("logs.tcss", "operating.tcss")]

VLLM = """\
(APIServer pid=1) INFO 11-20 02:11:05 [api_server.py:1937] vLLM API server version 0.17.1
(APIServer pid=1) INFO 11-20 02:11:05 [utils.py:253] non-default args: {'model': '/models/MiniMax-M2.7-NVFP4', \
'served_model_name': ['minimax'], 'tensor_parallel_size': 2, 'gpu_memory_utilization': 0.82, 'max_model_len': 131072}
(EngineCore_DP0 pid=214) INFO 11-20 02:11:31 [gpu_model_runner.py:4204] Starting to load model /models/MiniMax-M2.7
(EngineCore_DP0 pid=214) WARNING 11-20 02:11:33 [compilation.py:1110] cudagraph_mode FULL is not supported here
Loading safetensors checkpoint shards: 41% Completed | 11/27 [01:12<01:44,  6.55s/it]
(EngineCore_DP0 pid=214) INFO 11-20 02:14:02 [gpu_worker.py:352] Available KV cache memory: 9.41 GiB
(EngineCore_DP0 pid=214) ERROR 11-20 02:14:03 [core.py:1091] EngineCore encountered a fatal error.
(EngineCore_DP0 pid=214) ERROR 11-20 02:14:03 [core.py:1091] Traceback (most recent call last):
  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1082, in run_engine_core
    engine_core.run_busy_loop()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 121.69 GiB
INFO:     172.17.0.1:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO 11-20 02:15:11 [loggers.py:257] Engine 000: Avg prompt throughput: 12.4 tokens/s, Avg \
generation throughput: 32.7 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 41.2%
DEBUG 11-20 02:15:12 [shm_broadcast.py:487] No available shared memory broadcast block found in 60 seconds
日本語のログ行: モデルを読み込みました 完了 ✓ naïve café
── connection to spark1 lost 02:15:20, back 02:15:52; lines of this time follow ──""".splitlines()


def level_of(text: str) -> str | None:
    """A stand-in for the real one, good enough for these lines."""
    return next((word.lower() for word in ("ERROR", "WARNING", "INFO", "DEBUG") if word in text[:60]), None)


def numbered(start: int, count: int, words: str = "line") -> list[LogLine]:
    return [LogLine(text=f"{words} {number}") for number in range(start, start + count)]


def from_remote(texts: Iterable[str | bytes]) -> list[LogLine]:
    """Lines as ingestion makes them."""
    return [LogLine(text=sanitise.line(text), wall_s=1_780_000_000.0 + at) for at, text in enumerate(texts)]


@dataclass
class Feed:
    """A LogFeed without a node."""

    title: str = "vllm-minimax @ spark1"
    status: str = "docker logs"
    brief: LineRing | None = None
    folded: dict[str, int] = field(default_factory=dict)
    ring: LineRing = field(default_factory=LineRing)
    previous: Feed | None = None


class Stage(App[None]):
    """Mounts one widget."""

    CSS_PATH = STYLES

    def __init__(self, *widgets: Widget, theme: str = DARK.name) -> None:
        super().__init__()
        self._widgets = widgets
        for known in THEMES:
            self.register_theme(known)
        self.theme = theme

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self._theme_now())

    def _theme_now(self) -> Theme:
        return self.get_theme(self.theme) or DARK

    def compose(self) -> ComposeResult:
        yield from self._widgets
