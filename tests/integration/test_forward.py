"""`sparktop forward` to a real engine's port over a real sshd."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from tests.integration.spark import Spark, machine, spark
from tests.integration.terminal import sparktop
from tests.support import PATIENCE_S, free_port, interruptible

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["machine", "spark"]


def answer(url: str) -> int:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as reply:
        return int(reply.status)


@pytest.mark.fast
def test_a_local_port_leads_to_the_engine_until_it_is_interrupted(spark: Spark) -> None:
    engine = spark.engines.start("vllm-near", env={"ENGINE_LOAD_S": "0.3"})
    assert engine.port
    python = [sys.executable, "-X", "faulthandler"]
    command = [*python, "-m", "sparktop", "forward", "spark1", "vllm-near", "--port", str(free_port())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=interruptible) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stdout.readline().strip()
            assert url == f"http://127.0.0.1:{command[-1]}", process.stderr.read() if not url else ""
            assert answer(url) == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # each thread's traceback
            pytest.fail(process.stderr.read())
        finally:
            process.kill()
        assert "leads to vllm-near on spark1" in process.stderr.read()
    with pytest.raises(urllib.error.URLError):
        answer(url)


def test_an_engine_that_is_not_there(spark: Spark) -> None:
    spark.engines.start("vllm-near", env={"ENGINE_LOAD_S": "0.3"})
    done = sparktop("forward", "spark1", "vllm-far")
    assert done.returncode == 2
    assert "no engine 'vllm-far' serves on spark1" in done.stderr
    assert "did you mean vllm-near?" in done.stderr
