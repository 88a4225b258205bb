"""A faulty engine-like container under a real Docker Engine, seen through a real sshd, is found and named."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.integration.desk import while_running
from tests.integration.dockerd import Dockerd
from tests.integration.sshd import Sshd, sshd
from tests.support import PATIENCE_S

from sparktop.diagnose.findings import as_data, firing_at
from sparktop.headless.status import status
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.observe.monitor import Monitor
from sparktop.observe.watch import Publish

pytestmark = pytest.mark.integration
__all__ = ["sshd"]

START = r"""#!/bin/sh
echo "(APIServer pid=1) INFO 11-20 03:10:11 [utils.py:299] vLLM API server version 0.19.0"
stamp="WARNING 11-20 03:10:12 [envs.py:1742]"
echo "(EngineCore_DP0 pid=88) $stamp Unknown vLLM environment variable detected: VLLM_MXFP4_BACKEND"
"""
FAULT = r"""
core="(EngineCore_DP0 pid=88)"
i=0; while [ $i -lt 90 ]; do echo "$core ERROR 11-20 03:11:40 [core.py:1108]   frame $i"; i=$((i+1)); done
advice="Try increasing \`gpu_memory_utilization\` when initializing the engine."
echo "$core ValueError: No available memory for the cache blocks. $advice"
echo "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
exit 1
"""
SERVES = r"""
echo "(APIServer pid=1) INFO:     Application startup complete."
exec sleep 600
"""


@pytest.fixture(autouse=True)
def _clean(dockerd: Dockerd) -> Iterator[None]:
    yield
    dockerd.remove_all()


def script(tmp_path: Path, body: str) -> str:
    """A `vllm` of ours to be mounted into the container."""
    path = tmp_path / "vllm"
    path.write_text(START + body)
    path.chmod(0o755)
    return f"{path}:/usr/bin/vllm"


@contextlib.asynccontextmanager
async def watching(sshd: Sshd, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Monitor]:
    # The tests' daemon listens in a folder of its own, where no node would have it.
    monkeypatch.setattr("sparktop.transport.docker.engine.SOCKET", dockerd.socket_path)
    sshd.trust()
    monitor = Monitor([sshd.connector("spark1")], publish=lambda _: None, interval_s=0.25)
    async with while_running(monitor):
        yield monitor


async def until(monitor: Monitor, condition: Callable[[list[Finding]], bool]) -> list[Finding]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = list(monitor.state.findings)
        if condition(found):
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"not within {PATIENCE_S} s: {[one.rule for one in found]}, {monitor.state.nodes[0].engines}")
        await asyncio.sleep(0.05)


def rules(findings: list[Finding]) -> list[str]:
    return [one.rule for one in findings if one.phase is Phase.FIRING]


async def test_a_start_that_fails_is_named_by_its_root_and_the_rest_hangs_under_it(
    sshd: Sshd,
    dockerd: Dockerd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argv = ["vllm", "serve", "Qwen/Qwen3.6-35B-A3B-FP8", "--port", "18765"]
    async with watching(sshd, dockerd, monkeypatch) as monitor:
        dockerd.run_container("vllm-faulty", argv, binds=[script(tmp_path, FAULT)])
        found = await until(monitor, lambda found: {"vllm.kv-no-memory", "restart.failed"} <= set(rules(found)))
        root = next(one for one in found if one.rule == "vllm.kv-no-memory")
        end = next(one for one in found if one.rule == "restart.failed")
        assert root.severity is Severity.CRITICAL
        assert (root.nodes, root.subject) == (("spark1",), "vllm-faulty")
        assert any("No available memory" in seen.text and seen.line == 93 for seen in root.evidence)
        assert end.caused_by == "vllm.kv-no-memory"
        assert found.index(root) < found.index(end)
        assert firing_at(found)
        steps = [step for one in found for remedy in one.remedies for step in remedy.steps]
        assert any(step.startswith("docker logs") and " vllm-faulty" in step for step in steps), steps
        assert not any(" NAME" in step for step in steps), steps
        data = as_data(root)
        assert {"rule", "severity", "confidence", "title", "explanation", "evidence", "remedies", "references"} <= set(
            data
        )


async def test_what_runs_is_linted_and_its_log_read_without_showing_a_secret(
    sshd: Sshd,
    dockerd: Dockerd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argv = [
        "vllm", "serve", "Qwen/Qwen3.6-35B-A3B-FP8", "--port", "18766", "--enforce_eager",
        "--api-key", "sk-0123456789abcdef0123456789abcdef",
    ]  # fmt: skip
    env = {
        "SGLANG_DISABLE_CUDA_GRAPH": "1",
        "VLLM_MXFP4_BACKEND": "marlin",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz",
    }
    async with watching(sshd, dockerd, monkeypatch) as monitor:
        dockerd.run_container("vllm-risky", argv, env=env, binds=[script(tmp_path, SERVES)])
        wanted = {"vllm.env-moe-removed", "config.secret-in-argv", "config.enforce-eager"}
        found = await until(monitor, lambda found: wanted <= set(rules(found)))
        shown = repr([as_data(one) for one in found])
        assert "sk-0123" not in shown
        assert "hf_abc" not in shown
        assert not any(one.severity is Severity.CRITICAL for one in found if one.rule.startswith("config."))


async def test_one_snapshot_of_status_has_the_log_and_the_lint_of_what_runs(
    sshd: Sshd,
    dockerd: Dockerd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparktop.transport.docker.engine.SOCKET", dockerd.socket_path)
    sshd.trust()
    argv = ["vllm", "serve", "Qwen/Qwen3.6-35B-A3B-FP8", "--port", "18767", "--enforce-eager"]
    dockerd.run_container("vllm-here", argv, env={"VLLM_MXFP4_BACKEND": "marlin"}, binds=[script(tmp_path, SERVES)])

    def make(publish: Publish) -> Monitor:
        return Monitor([sshd.connector("spark1")], publish=publish, interval_s=1.0)

    with redirect_stdout(io.StringIO()) as out:
        code = await status(make, as_json=True, watch=False, timeout_s=20.0, interval_s=1.0)
    data = json.loads(out.getvalue())
    assert {"vllm.env-moe-removed", "config.enforce-eager"} <= {one["rule"] for one in data["findings"]}
    assert (data["version"], code) == (1, 1)


async def test_a_docker_engine_that_hangs_is_said_and_is_exit_code_1(
    sshd: Sshd, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.transport.docker.engine.SOCKET", dockerd.socket_path)
    sshd.trust()

    def make(publish: Publish) -> Monitor:
        return Monitor([sshd.connector("spark1")], publish=publish, interval_s=1.0)

    dockerd.process.send_signal(signal.SIGSTOP)
    try:
        with redirect_stdout(io.StringIO()) as out:
            code = await status(make, as_json=False, watch=False, timeout_s=20.0, interval_s=1.0)
    finally:
        dockerd.process.send_signal(signal.SIGCONT)
    assert "spark1: containers and engines are not known: the Docker Engine has not answered yet" in out.getvalue()
    assert "nothing wrong" not in out.getvalue()
    assert code == 1
