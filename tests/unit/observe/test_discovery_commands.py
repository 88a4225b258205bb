"""What a command line starts."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.cmdline.engine_command import kind_of_image, of_container, of_process, version_of_image
from sparktop.model.engine import EngineKind

V, S = EngineKind.VLLM, EngineKind.SGLANG


@over(
    "line, kind, model, port",
    [
        ("/usr/bin/python3 /usr/local/bin/vllm serve org/M-NVFP4 --port 8123", V, "org/M-NVFP4", 8123),
        ("vllm serve org/M", V, "org/M", 8000),
        ("vllm serve --port=8001 --max-model-len 4096 org/M", V, "org/M", 8001),
        ("vllm serve --enforce-eager org/M -tp 2 -O3", V, "org/M", 8000),
        ("vllm serve --model org/M --served_model_name short other", V, "org/M", 8000),
        ("python3 -m vllm.entrypoints.openai.api_server --model /models/m --port 9", V, "/models/m", 9),
        ("python3.12 -u -X faulthandler -m vllm.entrypoints.cli.main serve org/M", V, "org/M", 8000),
        ("/venv/bin/python -m sglang.launch_server --model-path org/S --tp 2", S, "org/S", 30000),
        ("python3 -m sglang.launch_server --model org/S --port 31000", S, "org/S", 31000),
        ("sglang serve --model-path org/S", S, "org/S", 30000),
        ("vllm serve /root/.cache/huggingface/hub/models--org--M/snapshots/0a1b/ --port 8000", V, "org/M", 8000),
        ("vllm serve --served-model-name only-this", V, "only-this", 8000),
        ("vllm serve", V, None, 8000),
        ("vllm serve org/M --port ${PORT}", V, "org/M", 8000),
        ("vllm serve org/M --port 99999999999", V, "org/M", 8000),
    ],
)
def test_a_server_process(line: str, kind: EngineKind, model: str | None, port: int) -> None:
    found = of_process(shlex.split(line))
    assert found is not None
    assert (found.kind, found.model, found.port) == (kind, model, port)
    in_container = of_container(shlex.split(line))
    assert in_container == found


@over(
    "argv",
    [
        ["docker", "run", "--gpus", "all", "vllm/vllm-openai", "vllm", "serve", "org/M"],
        ["bash", "-c", "vllm serve org/M"],
        ["/bin/bash", "-lc", "python3 -m sglang.launch_server --model-path m"],
        ["sudo", "vllm", "serve", "org/M"],
        ["grep", "vllm serve"],
        ["vllm", "bench", "serve", "--model", "org/M"],
        ["vllm", "chat"],
        ["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "vllm", "serve"],
        ["python3", "-m", "pytest", "vllm", "serve"],
        ["python3", "client.py", "vllm", "serve"],
        ["tail", "-f", "vllm serve.log"],
        ["VLLM::EngineCore"],
        ["python3"],
        ["python3", "-m"],
        [""],
        [],
    ],
    ids=lambda argv: " ".join(argv)[:40] or "empty",
)
def test_what_is_no_server_process(argv: list[str]) -> None:
    assert of_process(argv) is None


@over(
    "argv, model, port",
    [
        (["/bin/bash", "-c", "pip install -q ray && exec vllm serve org/M --port 8005 2>&1 | tee /log"], "org/M", 8005),
        (["bash", "-lc", "cd /x; vllm serve org/M; sleep 5"], "org/M", 8000),
        (["/opt/nvidia/nvidia_entrypoint.sh", "vllm", "serve", "org/M"], "org/M", 8000),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/M"], "org/M", 8000),
        (["sh", "-c", "python3 -m sglang.launch_server \\\n  --model-path org/M \\\n  --port 30001"], "org/M", 30001),
        (["bash", "-c", 'vllm serve org/M --speculative-config \'{"method":"mtp"}\' --port 8006'], "org/M", 8006),
        (["bash", "-c", "vllm serve org/M --chat-template 'open quote"], "org/M", 8000),
    ],
    ids=["pip", "cd", "ngc", "module", "continued", "json", "broken"],
)
def test_a_containers_command(argv: list[str], model: str, port: int) -> None:
    found = of_container(argv)
    assert found is not None
    assert (found.model, found.port) == (model, port)


@over(
    "argv", [["sleep", "infinity"], ["/bin/bash"], ["ray", "start", "--block"], ["earlyoom", "-m", "2"], [], ["x y z"]]
)
def test_a_container_that_only_waits(argv: list[str]) -> None:
    assert of_container(argv) is None


@over(
    "line, off",
    [
        ("sglang serve --model-path m", "--enable-metrics"),
        ("sglang serve --model-path m --enable-metrics", ""),
        ("sglang serve --model-path m --enable_metrics", ""),
        ("vllm serve m", ""),
        ("vllm serve m --disable-log-stats", "--disable-log-stats"),
    ],
)
def test_whether_it_gives_figures(line: str, off: str) -> None:
    found = of_process(line.split())
    assert found is not None
    assert (off in found.metrics_off) if off else not found.metrics_off


@over(
    "line, worker",
    [
        ("vllm serve m --nnodes 2 --node-rank 1 --headless", True),
        ("vllm serve m --nnodes 2 --node-rank 0", False),
        ("sglang serve --model-path m --node-rank=1", True),
    ],
)
def test_a_further_nodes_part_serves_nothing(line: str, worker: bool) -> None:
    found = of_process(line.split())
    assert found is not None
    assert found.is_worker is worker


@over(
    "image, kind, version",
    [
        ("vllm/vllm-openai:v0.19.0", V, "0.19.0"),
        ("vllm/vllm-openai:latest", V, None),
        ("nvcr.io/nvidia/vllm:26.05.post1-py3", V, None),
        ("lmsysorg/sglang:v0.5.12-cu130", S, "0.5.12"),
        ("ubuntu:24.04", None, None),
    ],
)
def test_an_image(image: str, kind: EngineKind | None, version: str | None) -> None:
    assert kind_of_image(image) is kind
    assert version_of_image(image) == version


@given(
    st.lists(st.text(max_size=12) | st.sampled_from(["vllm", "serve", "python3", "-m", "--port", "--model", "bash"]))
)
def test_any_words_are_an_answer(argv: list[str]) -> None:
    for command in (of_process(argv), of_container(argv)):
        assert command is None or command.kind in EngineKind
        assert of_process(argv) is None or command is not None, "what a process starts, its container does"
