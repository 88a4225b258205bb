"""What real engines write, count and exit with, taken anew:

    python -m tests.real.capture [vllm|sglang|llama [LIFE ...]]

Each engine goes through its life in a machine's Docker: start, ready, requests, stop, its core killed, starts that
fail, a restart on damaged weights. tests/real/captures/ENGINE-VERSION/ then holds the log of each, the text of
/metrics, and ends.json with what Docker says of each end. Stand-ins are made from these.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.engines import MODELS, Engine
from tests.real.machine import Machine
from tests.real.parts import LLAMA_IMAGE, SGLANG, VLLM

CAPTURES = Path(__file__).parent / "captures"
LONGEST = 300
"""Lines of one log: 120 of its beginning and the last ones are kept of a longer one."""
FRAME = re.compile(r"(?:\(\w+ pid=\d+\) ERROR [^\]]*\])?  +\S")
"""A line of a traceback between its head and its error."""
FIGURES = "num_|kv_cache_usage|prefix_cache|prompt_tokens|generation_tokens|token_usage|realtime_tokens"
FAILING_VLLM: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "shm-small": (("--ipc", "private", "--shm-size", "1m"), ()),
    "read-only-root": (("--read-only",), ()),
    "no-right-to-temporary": (("--user", "4321", "--tmpfs", "/tmp:mode=700", "--tmpfs", "/var/tmp:mode=700"), ()),
    "lora-missing": ((), ("--enable-lora", "--lora-modules", "a=/models/none")),
    "draft-missing": ((), ("--speculative-config", '{"model": "/models/none", "num_speculative_tokens": 2}')),
    "host-not-here": ((), ("--host", "198.51.100.9")),
    "tokenizer-mode": ((), ("--tokenizer-mode", "mistral")),
    "config-missing": ((), ("--config", "/models/none.yaml")),
}
"""Of a start: Docker's options, vLLM's flags."""


@dataclass
class Captures:
    """One engine's folder."""

    machine: Machine
    folder: Path
    wanted: list[str]
    """Names of lives; empty for all."""
    ends: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.ends = json.loads((self.folder / "ends.json").read_text())

    def wants(self, name: str) -> bool:
        return not self.wanted or name in self.wanted

    def text(self, name: str, text: str) -> None:
        """Keep it, with addresses that are nobody's; of a log no more than LONGEST lines, of a traceback its ends."""
        lines = text.replace(f"10.77.{self.machine.number}.", "192.0.2.").splitlines()
        if name.endswith(".log"):
            groups = [list(lines) for _, lines in itertools.groupby(lines, key=lambda line: bool(FRAME.match(line)))]
            lines = [line for group in groups for line in without_middle(group)]
        if name.endswith(".log") and len(lines) > LONGEST:
            lines[120 : len(lines) - LONGEST + 121] = [f"... {len(lines) - LONGEST + 1} lines left out by capture.py"]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def figures(self, name: str, engine: Engine) -> None:
        """Keep what /metrics says now of its requests, tokens and cache."""
        own = re.compile(f"(?:vllm|sglang):(?:{FIGURES})")
        lines = [line for line in engine.metrics_text().splitlines() if own.match(line)]
        self.text(name, "\n".join([f"# at {time.monotonic():.1f} s", *lines]))

    def end(self, name: str, engine: Engine, since: str = "", *, is_stopped: bool = False) -> None:
        """Wait for its end, or stop it as Docker does; keep its log and what Docker says."""
        asked = time.monotonic()
        if is_stopped:
            self.machine.run("docker", "stop", engine.name)
        state = engine.ended()
        self.text(f"{name}.log", engine.log(*(("--since", since) if since else ())))
        kept = ("ExitCode", "OOMKilled", "Error")
        self.ends[name] = {key: state[key] for key in kept} | {"seconds": round(time.monotonic() - asked, 1)}
        (self.folder / "ends.json").write_text(json.dumps(self.ends, indent=1) + "\n")

    @contextlib.contextmanager
    def life(self, make: Callable[..., Engine], *flags: str, is_ready: bool = True, **more: Any) -> Iterator[Engine]:
        """One container, from its start to its removal."""
        engine = make(self.machine, "engine", *flags, **more)
        try:
            if is_ready:
                engine.ready()
            yield engine
        finally:
            self.machine.run("docker", "rm", "--force", engine.name)


def vllm(machine: Machine, wanted: list[str]) -> None:
    to = Captures(machine, CAPTURES / f"vllm-{VLLM}", wanted)
    if to.wants("healthy"):
        with to.life(Engine.vllm) as engine:
            usual(to, engine, core="VLLM::EngineCore")
    for name, process in (("core-killed", "VLLM::EngineCor"), ("worker-killed", "VLLM::Worker")):
        if to.wants(name):
            with to.life(Engine.vllm) as engine, two_requests(engine, "vllm:num_requests_running"):
                os.kill(engine.pid_of(process), signal.SIGKILL)
                to.end(name, engine)
    if to.wants("stopped-under-load"):
        with to.life(Engine.vllm) as engine, two_requests(engine, "vllm:num_requests_running"):
            to.end("stopped-under-load", engine, is_stopped=True)
    if to.wants("restarted-on-damaged-weights"):
        machine.run("cp", "-r", str(MODELS / "tiny"), "/root/damaged")
        mount = ("--volume", "/root/damaged:/damaged")
        with to.life(Engine.vllm, options=mount, model="/damaged") as engine:
            machine.run("docker", "stop", engine.name)
            engine.ended()
            machine.run("truncate", "--size=100000", "/root/damaged/model.safetensors")  # a download cut off
            machine.run("docker", "start", engine.name)
            to.end("restarted-on-damaged-weights", engine, since=engine.inspect()["State"]["StartedAt"])
    if to.wants("unknown-flag"):
        with to.life(Engine.vllm, "--max-num-seq-x", "8", is_ready=False) as engine:
            to.end("unknown-flag", engine)
    for name, (options, flags) in FAILING_VLLM.items():
        if to.wants(name):
            with to.life(Engine.vllm, *flags, is_ready=False, options=options) as engine:
                to.end(name, engine)
    if to.wants("preempting"):
        with to.life(Engine.vllm, "--num-gpu-blocks-override", "36") as engine, engine.under_load(6):
            engine.machine.until(lambda: engine.metrics()["vllm:num_preemptions_total"] > 1, what="preemptions")
            to.figures("metrics-preempting.txt", engine)
            time.sleep(40)
            to.figures("metrics-preempting-later.txt", engine)
    if to.wants("port-in-use"):
        port_in_use(to, Engine.vllm, 8000)


def sglang(machine: Machine, wanted: list[str]) -> None:
    to = Captures(machine, CAPTURES / f"sglang-{SGLANG}", wanted)
    if to.wants("priorities"):
        with (
            to.life(Engine.sglang, "--enable-priority-scheduling") as engine,
            engine.under_load(1, priority=1),
            engine.under_load(3, priority=9),
        ):
            own = "sglang:num_running_reqs"  # each of four in its priority's sample, and in the total
            engine.machine.until(lambda: engine.metrics().get(own) == 8, what="four requests")
            to.figures("metrics-priorities.txt", engine)


def llama(machine: Machine, wanted: list[str]) -> None:
    words = ("--entrypoint", "sh", LLAMA_IMAGE, "-c", "llama-server --version 2>&1")
    version = machine.run("docker", "run", "--rm", *words)
    found = re.search(r"version: ([\d.]+)", version)
    to = Captures(machine, CAPTURES / f"llama.cpp-{found.group(1) if found else 'unknown'}", wanted)
    to.text("version.txt", version)
    if to.wants("healthy"):
        with to.life(Engine.llama) as engine:
            usual(to, engine, core="llama-server")
    if to.wants("killed"):
        with to.life(Engine.llama) as engine, two_requests(engine, "llamacpp:requests_processing"):
            os.kill(engine.pid_of("llama-server"), signal.SIGKILL)
            to.end("killed", engine)
    if to.wants("stopped-under-load"):
        with to.life(Engine.llama) as engine, two_requests(engine, "llamacpp:requests_processing"):
            to.end("stopped-under-load", engine, is_stopped=True)
    failing: dict[str, dict[str, Any]] = {"unknown-flag": {}, "model-missing": {"model": "none.gguf"}}
    for name, more in failing.items():
        if to.wants(name):
            flags = ("--no-such-flag",) if name == "unknown-flag" else ()
            with to.life(Engine.llama, *flags, is_ready=False, **more) as engine:
                to.end(name, engine)
    if to.wants("port-in-use"):
        port_in_use(to, Engine.llama, 8080)


@contextlib.contextmanager
def two_requests(engine: Engine, running: str) -> Iterator[None]:
    """Two that run by its own count, as long as the block."""
    with engine.under_load(2):
        engine.machine.until(lambda: engine.metrics()[running] >= 2, what="two requests")
        yield


def port_in_use(to: Captures, make: Callable[..., Engine], port: int) -> None:
    to.machine.run("systemd-run", "--unit=port", "python3", "-m", "http.server", str(port))
    with to.life(make, is_ready=False) as engine:
        to.end("port-in-use", engine)
    to.machine.run("systemctl", "stop", "port")


def usual(to: Captures, engine: Engine, core: str) -> None:
    """A healthy life: a completion, a chat, a stream, two refused requests, four at once, its figures before, meanwhile
    and after, and a stop."""
    to.text("metrics-ready.txt", engine.metrics_text())
    say = [{"role": "user", "content": "ba be bi bo bu"}]
    engine.complete()
    chat = engine.ask("POST", "/v1/chat/completions", {"model": "tiny", "messages": say, "max_tokens": 8})[1]
    stream = {
        "model": "tiny",
        "messages": say,
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    to.text("chat.json", chat)
    to.text("stream.txt", engine.ask("POST", "/v1/chat/completions", stream)[1])
    to.text("models.json", engine.ask("GET", "/v1/models")[1])
    engine.ask("POST", "/v1/chat/completions", {"model": "none", "messages": say, "max_tokens": 4})
    engine.complete(prompt="ba " * 9000)
    names = sorted({Path(f"/proc/{pid}/comm").read_text().strip() for pid in engine.machine.pids_of(core[:4])})
    to.text("processes.txt", "\n".join(names))
    with engine.under_load(4, tokens=200) as answered:
        engine.machine.until(lambda: len(answered) >= 2, what="answers")
        to.text("metrics-under-load.txt", engine.metrics_text())
        engine.machine.until(lambda: len(answered) >= 8, what="answers")
    if core == "llama-server":
        to.text("slots.json", engine.ask("GET", "/slots")[1])
    to.text("metrics-after.txt", engine.metrics_text())
    to.end("healthy", engine, is_stopped=True)
    to.text("inspect.json", json.dumps(inspected(engine), indent=1))


def without_middle(lines: list[str]) -> list[str]:
    """Of a traceback's frames the first and the last ones."""
    return lines if len(lines) <= 8 or not FRAME.match(lines[0]) else [*lines[:2], *lines[-4:]]


def inspected(engine: Engine) -> Any:
    """What of `docker inspect` an engine makes of itself, once it has been stopped."""
    full = engine.inspect()
    kept = {"Path": full["Path"], "Args": full["Args"], "State": full["State"]}
    return kept | {"Config": {key: full["Config"][key] for key in ("Image", "Cmd", "Entrypoint", "Env")}}


def main(names: list[str]) -> None:
    engines = {"vllm": vllm, "sglang": sglang, "llama": llama}
    with Machine.up("spark1") as machine:
        for name in names[:1] or engines:
            engines[name](machine, names[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
