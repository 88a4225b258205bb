"""A real container with a faulty command: found in `docker inspect` by lint, and in the picture of what runs."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.integration.dockerd import Dockerd
from tests.pictures_support import engine, node, picture

from sparktop.cli import main
from sparktop.diagnose.rules.engine.config import running
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.transport.docker.engine import DockerEngine
from sparktop.transport.local import LocalTransport

pytestmark = pytest.mark.integration

CANARY = "c4n4ry-of-a-key"
# busybox's sh takes what follows -c as the script and the rest as its parameters: nothing of an engine runs.
COMMAND = (
    "sleep 600; vllm serve Org/Model-30B-A3B-NVFP4 --gpu_memory_utilization 0.95 --enforce-eager "
    f"--tensor-parallel-size 1 --api-key {CANARY}"
)


@pytest.fixture
def faulty(dockerd: Dockerd) -> str:
    return dockerd.run_container(
        "vllm-faulty", ["sh", "-c", COMMAND], env={"VLLM_ATTENTION_BACKEND": "FLASHINFER", "HF_TOKEN": CANARY}
    )


@pytest.fixture(autouse=True)
def _clean(dockerd: Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    yield
    dockerd.remove_all()


def test_inspects_answer_piped_into_lint(
    dockerd: Dockerd, faulty: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps([dockerd.api.inspect_container(faulty)], indent=4)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert main(["lint", "--json", "-"]) == 1
    out = capsys.readouterr().out
    findings = {finding["rule"]: finding for finding in json.loads(out)["findings"]}
    assert findings["config.gpu-memory-utilization-high"]["severity"] == "critical"
    assert findings["config.secret-in-argv"]["severity"] == "warning"
    assert {"config.enforce-eager", "config.variable-without-effect", "config.gpus-not-requested"} <= set(findings)
    line = findings["config.gpu-memory-utilization-high"]["evidence"][0]["line"]
    assert "gpu_memory_utilization" in text.splitlines()[line - 1]
    assert CANARY not in out


async def test_the_running_container_as_the_follower_sees_it(dockerd: Dockerd, faulty: str) -> None:
    transport = LocalTransport()
    docker = DockerEngine(transport, socket_path=dockerd.socket_path)
    try:
        answer = await docker.list()
    finally:
        await docker.close()
        await transport.close()
    (container,) = [each for each in answer.containers if each.container_id == faulty]
    one = replace(engine(), kind=EngineKind.VLLM, name=container.name, argv=(), version="0.19.0", container=container,
                  environment=container.environment)  # fmt: skip
    findings = {each.rule: each for each in running().check(picture(replace(node("spark1"), engines=(one,))))}
    assert {"config.gpu-memory-utilization-high", "config.enforce-eager", "config.secret-in-argv",
            "config.variable-without-effect", "config.nvfp4-moe-backend"} <= set(findings)  # fmt: skip
    assert Severity.CRITICAL not in {each.severity for each in findings.values()}
    assert findings["config.enforce-eager"].evidence[0].source == "argv of vllm-faulty @ spark1"
    assert CANARY not in repr(findings)
