"""One answer of `docker inspect` to the model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plain_text import unclean
from tests.table import over

from sparktop.transport.docker.inspection import container_of, wall_s_of

INSPECTED: dict[str, Any] = {
    "Id": "ab" * 32,
    "Name": "/vllm-qwen",
    "Path": "vllm",
    "Args": ["serve", "org/model", "--api-key", "c4n4ryValue99"],
    "Image": "sha256:" + "cd" * 32,
    "RestartCount": 3,
    "State": {
        "Status": "exited",
        "ExitCode": 137,
        "OOMKilled": True,
        "Pid": 0,
        "StartedAt": "2026-05-18T12:00:01.5Z",
        "FinishedAt": "2026-05-18T13:00:01.123456789Z",
    },
    "Config": {
        "Image": "vllm/vllm-openai:v0.19.0",
        "Env": ["HF_TOKEN=c4n4ryValue99", "NCCL_IB_HCA=rocep1s0f0"],
        "Tty": False,
        "Labels": {"com.docker.compose.project": "llm", "org.api_key": "c4n4ryLabel77"},
    },
    "HostConfig": {
        "NetworkMode": "bridge",
        "RestartPolicy": {"Name": "unless-stopped"},
        "AutoRemove": False,
        "IpcMode": "host",
        "ShmSize": 17179869184,
        "Memory": 0,
        "Privileged": False,
        "Runtime": "runc",
        "DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}],
        "Devices": [{"PathOnHost": "/dev/infiniband", "PathInContainer": "/dev/infiniband"}],
        "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
    },
    "Mounts": [
        {"Type": "bind", "Source": "/data/models", "Destination": "/models"},
        {"Type": "volume", "Name": "hf", "Source": "", "Destination": "/root/.cache/huggingface"},
    ],
    "NetworkSettings": {
        "Ports": {
            "8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8001"}, {"HostIp": "::", "HostPort": "8001"}],
            "9000/tcp": None,
            "9001/udp": [{"HostIp": "", "HostPort": "9001"}],
            "9002/tcp": [{"HostIp": "192.168.1.5", "HostPort": "9002"}],
        },
        "Networks": {"bridge": {"IPAddress": "172.17.0.2"}},
    },
}


def test_everything_is_taken_over() -> None:
    container = container_of(INSPECTED)
    assert (container.name, container.status, container.exit_code) == ("vllm-qwen", "exited", 137)
    assert container.oom_killed
    assert container.restart_count == 3
    assert container.restart_policy == "unless-stopped"
    assert container.published_ports == {8000: 8001}
    assert container.addresses == ("172.17.0.2",)
    assert container.argv[:3] == ("vllm", "serve", "org/model")
    assert container.pid is None
    assert container.finished_wall_s == pytest.approx(1779109201.123456)
    assert container.environment == ("HF_TOKEN=<masked>", "NCCL_IB_HCA=rocep1s0f0")
    assert container.labels == {"com.docker.compose.project": "llm", "org.api_key": "<masked>"}
    assert (container.ipc_mode, container.shm_bytes, container.memory_limit_bytes) == ("host", 16 << 30, None)
    assert container.is_privileged is False
    assert container.has_gpus is True
    assert container.devices == ("/dev/infiniband",)
    assert container.ulimits == ("memlock=-1:-1",)
    assert container.mounts == ("/data/models:/models", "hf:/root/.cache/huggingface")
    assert "c4n4ry" not in repr(container)


SECRET = "c4n4ry pass, 99;x"


@over(
    "name",
    [
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY", "NGC_CLI_API_KEY", "WANDB_API_KEY",
        "POSTGRES_PASSWORD", "PGPASSWORD_SECRET", "AWS_SECRET_ACCESS_KEY", "OPENAI_KEY", "LICENSE_KEY", "GithubToken",
        "REDIS_PASSWD", "SESSION_COOKIE", "PRIVATE_KEYS",
    ],
)  # fmt: skip
def test_a_secret_variable_is_masked_whole_and_wherever_its_value_stands(name: str) -> None:
    env = ["A=b", f"{name}={SECRET}", f"COPY=x{SECRET}y"]
    raw = {"Config": {"Env": env, "Labels": {"note": SECRET}}, "Path": "sh", "Args": ["-c", f"login {SECRET} && serve"]}
    container = container_of(raw)
    assert container.environment[:2] == ("A=b", f"{name}=<masked>")
    assert "c4n4ry" not in repr(container)
    assert "99;x" not in repr(container)


@over(
    "value",
    [
        "hf_abcdefghijklmnopqrstuvwx", "nvapi-abcdefghijklmnop", "ghp_abcdefghijklmnopqrst", "sk-abcdefghijklmnop",
        "https://user:hunter22@host/x", "Bearer abcdef0123456789", '{"api_key": "abcdef0123456789"}',
    ],
)  # fmt: skip
def test_a_secret_in_a_plain_variable_is_known_by_its_pattern(value: str) -> None:
    container = container_of({"Config": {"Env": [f"EXTRA={value}"]}})
    assert "<masked>" in container.environment[0]
    for part in ("abcdef", "hunter22"):
        assert part not in container.environment[0]


@over(
    "pair",
    [
        "NCCL_IB_GID_INDEX=3", "TOKENIZERS_PARALLELISM=false", "VLLM_MAX_TOKENS_PER_EXPERT=4", "PATH=/usr/bin:/bin",
        "NCCL_SOCKET_IFNAME=enp1s0f0np0", "LD_PRELOAD=", "ODD",
    ],
)  # fmt: skip
def test_a_plain_variable_stays_as_it_is(pair: str) -> None:
    assert container_of({"Config": {"Env": [pair]}}).environment[0].rstrip("=") == pair.rstrip("=")


@over(
    "host, environment, has",
    [
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, [], True),
        ({"Runtime": "nvidia"}, [], True),
        ({"Runtime": "runc", "Devices": [{"PathOnHost": "/dev/nvidia0"}]}, [], True),
        ({"Runtime": "runc"}, ["NVIDIA_VISIBLE_DEVICES=all"], False),
        ({}, ["NVIDIA_VISIBLE_DEVICES=all"], True),
        ({}, ["NVIDIA_VISIBLE_DEVICES=void"], False),
        ({}, [], False),
    ],
)
def test_whether_it_has_gpus(host: dict[str, Any], environment: list[str], has: bool) -> None:
    assert container_of({"HostConfig": host, "Config": {"Env": environment}}).has_gpus is has


def test_a_running_container_has_no_exit_code() -> None:
    running = INSPECTED | {"State": {"Status": "running", "ExitCode": 0, "Pid": 77}}
    container = container_of(running)
    assert container.exit_code is None
    assert container.pid == 77


@over("never", ["0001-01-01T00:00:00Z", "", None, "soon", 5])
def test_a_time_that_is_none(never: object) -> None:
    assert wall_s_of(never) is None


def test_hostile_names_are_plain() -> None:
    container = container_of({"Name": "/\x1b]0;pwned\x07[/x]", "Config": {"Image": "a\x1b[2J"}})
    assert (container.name, container.image) == ("[/x]", "a")


_NAMES = (
    "Id Name Path Args State Status ExitCode Pid StartedAt Config Image HostConfig RestartPolicy NetworkMode "
    "NetworkSettings Ports 8000/tcp HostIp HostPort Networks x Env Labels Mounts Source Destination Ulimits Devices "
    "PathOnHost DeviceRequests Capabilities Memory ShmSize Privileged IpcMode Runtime Soft Hard"
)
_KEYS = st.sampled_from(_NAMES.split())
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just("exited"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _JSON))
def test_an_odd_answer_is_a_container_of_plain_text(raw: dict[str, Any]) -> None:
    assert unclean(container_of(raw)) == []


def test_figures_and_lists_out_of_bounds() -> None:
    raw = {
        "RestartCount": 10**30,
        "State": {"Pid": -(10**30)},
        "HostConfig": {"ShmSize": 10**30, "Devices": [{}] * 5000},
        "Mounts": [{}] * 5000,
        "Args": ["x"] * 5000,
        "NetworkSettings": {"Networks": {f"n{number}": {"IPAddress": "10.0.0.1"} for number in range(5000)}},
    }
    container = container_of(raw)
    assert (container.restart_count, container.pid, container.shm_bytes) == (0, None, None)
    assert max(map(len, (container.devices, container.mounts, container.addresses))) < 500
    assert len(container.argv) < 2500
