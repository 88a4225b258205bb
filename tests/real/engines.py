"""Real engines in the Docker of a machine, asked from outside over its network.

engine = Engine.vllm(spark, "vllm", "--max-num-seqs", "2")
engine.ready()
with engine.under_load(4):
    engine.metrics()["vllm:num_requests_running"]
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from prometheus_client.parser import text_string_to_metric_families
from tests.real.machine import Machine
from tests.real.parts import FOLDER, LLAMA_IMAGE, SGLANG_IMAGE, VLLM_IMAGE
from tests.support import PATIENCE_S

MODELS = Path("/models")
SERVE = ("--served-model-name", "tiny", "--max-model-len", "4096", "--enforce-eager", "--gpu-memory-utilization", "0.2")
"""What every vLLM here is started with: compiling takes half a minute more."""
SGLANG_SERVE = (
    *("--served-model-name", "tiny", "--host", "0.0.0.0", "--device", "cpu", "--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--enable-metrics", "--max-total-tokens", "60000", "--skip-server-warmup"),
)
"""Without its warm-up the first request is a client's."""


@dataclass
class Engine:
    """One container."""

    machine: Machine
    name: str
    port: int
    start: IO[str] | None = None
    """Held until it serves or has ended: one heavy start at a time on this machine, whoever tests."""

    @classmethod
    def vllm(cls, machine: Machine, name: str, *flags: str, options: tuple[str, ...] = (), model: str = "tiny",
             port: int = 8000) -> Engine:  # fmt: skip
        """Start one; `options` are docker run's."""
        words = (str(MODELS / model), *SERVE, "--port", str(port), *flags)
        start = one_start()
        machine.run(*docker_run(name, "--ipc", "host", *options), VLLM_IMAGE, *words)
        return cls(machine, name, port, start)

    @classmethod
    def llama(cls, machine: Machine, name: str, *flags: str, options: tuple[str, ...] = (), model: str = "tiny.gguf",
              port: int = 8080) -> Engine:  # fmt: skip
        """Start one. With a thread a core it spins where cores are busy."""
        words = ("-m", str(MODELS / model), "--port", str(port), "-t", "1", "--metrics", "--alias", "tiny", *flags)
        machine.run(*docker_run(name, *options), LLAMA_IMAGE, *words)
        return cls(machine, name, port)

    @classmethod
    def sglang(cls, machine: Machine, name: str, *flags: str, port: int = 30000) -> Engine:
        """Start one, in the image that has the packages it runs on, under the name of its own image."""
        machine.run("docker", "tag", VLLM_IMAGE, SGLANG_IMAGE)
        words = ("-m", "sglang.launch_server", "--model-path", str(MODELS / "tiny"), *SGLANG_SERVE, "--port", str(port))
        options = ("--ipc", "host", "--volume", "/opt/sglang:/opt/sglang", "--entrypoint", "python3")
        variables = ("PYTHONPATH=/opt/sglang", "SGLANG_USE_CPU_ENGINE=1", "HF_HUB_OFFLINE=1")
        given = (word for variable in variables for word in ("--env", variable))
        start = one_start()
        machine.run(*docker_run(name, *options, *given), SGLANG_IMAGE, *words, *flags)
        return cls(machine, name, port, start)

    # -- what Docker says

    def inspect(self, which: str = "") -> Any:
        return json.loads(self.machine.run("docker", "inspect", which or self.name))[0]

    def log(self, *options: str) -> str:
        """What it wrote, both streams in their order."""
        return self.machine.run("sh", "-c", 'docker logs "$@" 2>&1', "sh", *options, self.name)

    def ended(self) -> Any:
        """Its state, once it has ended."""
        self.machine.until(lambda: not self.inspect()["State"]["Running"], what=f"{self.name}'s end")
        self.is_over_with_its_start()
        return self.inspect()["State"]

    def pid_of(self, name: str) -> int:
        """Of its process whose command name begins so (VLLM::EngineCore, VLLM::Worker), numbered as here."""
        found = self.machine.pids_of(name)
        assert len(found) == 1, (name, found)
        return found[0]

    # -- what it answers

    def ask(self, method: str, path: str, body: Any = None, within_s: float = PATIENCE_S) -> tuple[int, str]:
        """Status and text; OSError or HTTPException where it gives none."""
        line = http.client.HTTPConnection(self.machine.address, self.port, timeout=within_s)
        try:
            head = {"Content-Type": "application/json"}
            line.request(method, path, json.dumps(body) if body is not None else None, head)
            reply = line.getresponse()
            return reply.status, reply.read().decode()
        finally:
            line.close()

    def answers(self, path: str = "/v1/models") -> bool:
        try:
            return self.ask("GET", path, within_s=20)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def ready(self) -> None:
        """Wait until it lists its model; fails as soon as it has ended."""

        def serves() -> bool:
            state = self.inspect()["State"]
            assert state["Running"], self.log("--tail", "20")
            return self.answers()

        try:
            self.machine.until(serves, what=f"{self.name} ready")
        finally:
            self.is_over_with_its_start()

    def is_over_with_its_start(self) -> None:
        """Let another one start."""
        if self.start is not None:
            self.start.close()
            self.start = None

    def complete(self, tokens: int = 16, prompt: str = "ba be bi", **more: Any) -> tuple[int, str]:
        """One completion, exactly so long."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **more}
        return self.ask("POST", "/v1/completions", body)

    def metrics_text(self) -> str:
        return self.ask("GET", "/metrics")[1]

    def metrics(self) -> dict[str, float]:
        """Each metric's samples added up over their labels."""
        out: dict[str, float] = {}
        for family in text_string_to_metric_families(self.metrics_text()):
            for sample in family.samples:
                out[sample.name] = out.get(sample.name, 0.0) + sample.value
        return out

    @contextlib.contextmanager
    def under_load(self, clients: int, tokens: int = 3000, **more: Any) -> Iterator[list[object]]:
        """So many clients, each with one request after another until the block is left; what they were answered."""
        answered: list[object] = []
        is_over = threading.Event()

        def client(number: int) -> None:
            while not is_over.is_set():
                try:
                    answered.append(self.complete(tokens, prompt=f"ba be bi {'bo ' * number}", **more)[0])
                except (OSError, http.client.HTTPException) as problem:
                    answered.append(problem)
                    is_over.wait(0.5)

        threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield answered
        finally:
            is_over.set()
            until_s = time.monotonic() + PATIENCE_S / 10
            for thread in threads:  # what runs is answered first, or ends with the engine; SGLang may lose a request
                thread.join(max(0.0, until_s - time.monotonic()))


def one_start() -> IO[str]:
    """Wait until no other engine starts; closed, it lets the next one."""
    start = (FOLDER / "engine.lock").open("w")
    fcntl.flock(start, fcntl.LOCK_EX)
    return start


def docker_run(name: str, *options: str) -> tuple[str, ...]:
    return ("docker", "run", "--detach", "--name", name, "--network", "host", "--volume", "/models:/models", *options)
