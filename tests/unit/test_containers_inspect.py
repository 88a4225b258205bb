"""One answer of `docker inspect` to the model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.probe.remote import mask_argv
from sparktop.transport.containers import container_of, wall_s_of

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
    "Config": {"Image": "vllm/vllm-openai:v0.19.0", "Env": ["HF_TOKEN=c4n4ryValue99"], "Tty": False},
    "HostConfig": {"NetworkMode": "bridge", "RestartPolicy": {"Name": "unless-stopped"}, "AutoRemove": False},
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
    container = container_of(INSPECTED, mask_argv)
    assert (container.name, container.status, container.exit_code) == ("vllm-qwen", "exited", 137)
    assert container.oom_killed
    assert container.restart_count == 3
    assert container.restart_policy == "unless-stopped"
    assert container.published_ports == {8000: 8001}
    assert container.addresses == ("172.17.0.2",)
    assert container.argv[:3] == ("vllm", "serve", "org/model")
    assert container.pid is None
    assert container.finished_wall_s == pytest.approx(1779109201.123456)
    assert "c4n4ry" not in repr(container)


def test_a_running_container_has_no_exit_code() -> None:
    running = INSPECTED | {"State": {"Status": "running", "ExitCode": 0, "Pid": 77}}
    container = container_of(running, mask_argv)
    assert container.exit_code is None
    assert container.pid == 77


@pytest.mark.parametrize("never", ["0001-01-01T00:00:00Z", "", None, "soon", 5])
def test_a_time_that_is_none(never: object) -> None:
    assert wall_s_of(never) is None


def test_hostile_names_are_plain() -> None:
    container = container_of({"Name": "/\x1b]0;pwned\x07[/x]", "Config": {"Image": "a\x1b[2J"}}, mask_argv)
    assert (container.name, container.image) == ("[/x]", "a")


_NAMES = (
    "Id Name Path Args State Status ExitCode Pid StartedAt Config Image HostConfig RestartPolicy NetworkMode "
    "NetworkSettings Ports 8000/tcp HostIp HostPort Networks x"
)
_KEYS = st.sampled_from(_NAMES.split())
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just("exited"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _JSON))
def test_an_odd_answer_is_no_crash(raw: dict[str, Any]) -> None:
    container_of(raw, mask_argv)
