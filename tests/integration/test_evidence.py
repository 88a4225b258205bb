"""Evidence over a real sshd, a real runner and a real Docker Engine: canaries everywhere, and none in the archive."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import Engines
from tests.integration.sshd import Sshd, sshd  # noqa: F401 - a fixture
from tests.pictures_support import container, engine, node, picture
from tests.support import needs

from sparktop.model.engine import Endpoint, EndpointState
from sparktop.operate.evidence.collect import collect
from sparktop.operate.runner.client import RunnerLine
from sparktop.probe import bundle

pytestmark = pytest.mark.integration

BY_NAME = "canary-by-name-qx7hz"
BY_FLAG = "canary by flag & qx7jz"
BY_LABEL = "canary-by-label-qx7kz"
BY_FILE = "hf_CanaryByPattern0123456789abcdefgh"
KNOWN = "canary-known-qx7lz"
CANARIES = (BY_NAME, BY_FLAG, BY_LABEL, BY_FILE, KNOWN)


class OneLine:
    def __init__(self, line: Any) -> None:
        self._line = line

    def line(self, name: str) -> Any:
        return self._line

    async def wait(self, name: str) -> Any:
        return self._line


@pytest.fixture
async def line(sshd: Sshd, dockerd: Dockerd, tmp_path: Path) -> AsyncIterator[RunnerLine]:  # noqa: F811
    sshd.trust()
    transport = await sshd.connector().connect(patience_s=10.0)
    (tmp_path / "state").mkdir(mode=0o1777)
    launch = bundle.launch_runner(docker_socket=dockerd.socket_path, state_folder=str(tmp_path / "state"))
    opened = await RunnerLine.open("spark1", transport, key="test", launch=launch)
    try:
        yield opened
    finally:
        await opened.close()
        await transport.close()


SCRIPT = """
echo "plain $HF_TOKEN"
echo "query ?key=%s" >&2
echo "header %s"
echo "pattern %s"
printf '\\033[31mred\\033[0m %s\\n'
sleep 600
"""


async def test_no_canary_is_in_the_archive(
    dockerd: Dockerd, engines: Engines, line: RunnerLine, tmp_path: Path
) -> None:
    needs("ps", "procps")
    served = engines.start("vllm-served", "--api-key", BY_FLAG, env={"HF_TOKEN": BY_NAME, "LANG": "C.UTF-8"})
    encoded = base64.b64encode(f"user:{BY_LABEL}".encode()).decode()
    script = SCRIPT % (quote_plus(BY_FLAG), encoded, BY_FILE, KNOWN)
    loud = dockerd.run_container(
        "loud", ["sh", "-c", script], env={"HF_TOKEN": BY_NAME}, labels={"com.example.api-key": BY_LABEL}
    )
    view = node(
        "spark1",
        engines=(
            engine(
                "vllm-served",
                container=container("vllm-served", container_id=served.container_id),
                pids=(dockerd.pid_of(served.container_id),),
                endpoint=Endpoint(host="127.0.0.1", port=served.port, state=EndpointState.OK),
            ),
            engine("loud", container=container("loud", container_id=loud), endpoint=None, pids=()),
        ),
    )
    found = await collect(("spark1",), OneLine(line), picture(view), folder=tmp_path / "evidence", secrets=(KNOWN,))
    with tarfile.open(found.path) as tar:
        files = {
            entry.name.partition("/")[2]: file.read().decode() for entry in tar if (file := tar.extractfile(entry))
        }
    whole = "\n".join((*files, *files.values()))
    for canary in CANARIES:
        assert canary not in whole
        assert quote_plus(canary) not in whole
        assert base64.b64encode(canary.encode()).decode().rstrip("=") not in whole
    assert encoded not in whole
    assert "qx7hz" not in whole, "nor a piece of one"
    assert "qx7kz" not in whole
    assert "\x1b" not in whole

    log = files[f"spark1/logs/loud-{loud[:12]}.log"]
    for kept in ("plain <masked>", "query ?key=<masked>", "pattern <masked>", "red <masked>"):
        assert kept in log
    inspect = json.loads(files[f"spark1/docker/vllm-served-{served.container_id[:12]}.json"])
    assert "LANG=C.UTF-8" in inspect["Config"]["Env"]
    assert inspect["Id"] == served.container_id
    assert "MemTotal:" in files["spark1/memory/meminfo.txt"]
    assert "vllm:num_requests_running" in files["spark1/metrics/vllm-served.txt"]
    assert f"{dockerd.pid_of(served.container_id)} (" in files["spark1/processes/engines.txt"]
    assert "COMMAND" in files["spark1/processes/ps.txt"]
    kernel = files["spark1/kernel/this-boot.log"]
    assert kernel.count("<masked>") < 10, "what stays is readable"
    assert "Failed to parse" not in files["README.txt"]
    assert "value of a secret found elsewhere" in files["redaction-report.txt"]
    dockerd.remove_all()


async def test_a_container_that_is_gone_is_said(line: RunnerLine, tmp_path: Path) -> None:
    gone = "ab" * 32
    view = node("spark1", engines=(engine("gone", container=container("gone", container_id=gone), endpoint=None),))
    found = await collect(("spark1",), OneLine(line), picture(view), folder=tmp_path / "evidence")
    assert "spark1/logs/gone-abababababab.log: the container is gone" in found.problems
