"""A container's inspect as the body that makes it again: what is kept, what Docker makes anew, what is changed."""

from __future__ import annotations

import shlex
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.cmdline.container_body import docker_run, secret_names
from sparktop.operate.container.recreate import anonymous_volumes, recreation
from sparktop.operate.refused import Refused

ID = "0123456789ab" + "c" * 52


def inspect(**more: Any) -> dict[str, Any]:
    """As Docker 28 answers for `docker run --gpus all ... IMAGE vllm serve m`."""
    config = {
        "Hostname": ID[:12], "User": "", "Env": ["A=1", "PATH=/bin"], "Cmd": ["vllm", "serve", "m"], "Entrypoint": None,
        "Image": "org/image:tag", "Labels": {}, "WorkingDir": "", "ExposedPorts": {"8000/tcp": {}},
    }  # fmt: skip
    host = {
        "NetworkMode": "bridge", "IpcMode": "private", "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "Binds": None, "AutoRemove": False, "MaskedPaths": [], "ReadonlyPaths": None, "PortBindings": {},
        "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}],
    }  # fmt: skip
    return {
        "Id": ID,
        "Image": "sha256:" + "5a" * 32,
        "Name": "/engine",
        "Config": config | more.pop("config", {}),
        "HostConfig": host | more.pop("host", {}),
        "Mounts": more.pop("mounts", []),
        "NetworkSettings": {
            "Networks": more.pop("networks", {"bridge": {"NetworkID": "n1", "IPAddress": "172.17.0.2"}})
        },
    }


def body(raw: dict[str, Any], image: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    before = deepcopy(raw)
    made = recreation(raw, image, **changes).body
    assert raw == before, "what was handed in is not changed"
    return dict(made)


def test_it_is_made_from_the_image_itself_where_its_name_may_mean_another() -> None:
    assert body(inspect())["Image"] == "sha256:" + "5a" * 32
    assert body(inspect(), image_name="org/image:tag")["Image"] == "org/image:tag"


@over(
    "config, host, hostname",
    [
        ({}, {}, ""),
        ({"Hostname": "engine"}, {}, "engine"),
        ({"Hostname": "engine"}, {"NetworkMode": "container:abc"}, ""),
        ({"Hostname": "spark1"}, {"UTSMode": "host"}, ""),
        ({"Hostname": "spark1"}, {"NetworkMode": "host"}, "spark1"),
    ],
)
def test_host_names(config: dict[str, Any], host: dict[str, Any], hostname: str) -> None:
    assert body(inspect(config=config, host=host))["Hostname"] == hostname


def test_nulls_and_empty_lists_stay_what_they_are() -> None:
    host = body(inspect())["HostConfig"]
    assert host["MaskedPaths"] == []
    assert host["ReadonlyPaths"] is None
    assert host["Binds"] is None
    assert body(inspect(host={"MemorySwappiness": -1}))["HostConfig"]["MemorySwappiness"] is None


def test_a_body_that_says_nothing_of_its_entrypoint_has_the_image_s() -> None:
    own = {"Config": {"Entrypoint": ["/image.sh"]}}
    line = "docker run --detach --name engine"
    assert docker_run("engine", {"Image": "org/image", "Cmd": ["-m", "x"]}, own) == f"{line} org/image -m x"
    cleared = {"Image": "org/image", "Cmd": ["-m", "x"], "Entrypoint": None}
    assert docker_run("engine", cleared, own) == f"{line} --entrypoint= org/image -m x"


@over(
    "entrypoint, image, made",
    [
        (None, {"Entrypoint": ["/image.sh"]}, [""]),
        ([], {"Entrypoint": ["/image.sh"]}, [""]),
        (None, {}, None),
        (["/own"], {"Entrypoint": ["/image.sh"]}, ["/own"]),
    ],
)
def test_an_entrypoint_that_was_cleared_stays_so(entrypoint: Any, image: dict[str, Any], made: Any) -> None:
    assert body(inspect(config={"Entrypoint": entrypoint}), {"Config": image})["Entrypoint"] == made
    if entrypoint is None:
        assert body(inspect(config={"Entrypoint": entrypoint}))["Entrypoint"] == [""], "an image that isn't known"


def test_variables() -> None:
    image = {"Config": {"Env": ["PATH=/bin"]}}
    made = body(inspect(), image, environment={"A": "2", "PATH": None, "B": "x=y", "GONE": None})
    assert made["Env"] == ["A=2", "PATH", "B=x=y"]


def test_networks_keep_what_was_asked_for() -> None:
    networks = {
        "mine": {
            "IPAMConfig": {"IPv4Address": "10.0.0.7"}, "Aliases": [ID[:12], "engine"], "Links": None,
            "MacAddress": "02:42:0a:00:00:07", "IPAddress": "10.0.0.7", "NetworkID": "n7", "DriverOpts": {"a": "b"},
        },
        "other": {"Aliases": ["second"], "NetworkID": "n8"},
    }  # fmt: skip
    made = recreation(inspect(host={"NetworkMode": "n7"}, networks=networks))
    assert made.body["NetworkingConfig"]["EndpointsConfig"] == {
        "mine": {"IPAMConfig": {"IPv4Address": "10.0.0.7"}, "DriverOpts": {"a": "b"}, "Aliases": ["engine"]}
    }
    assert made.connects == (("other", {"EndpointConfig": {"Aliases": ["second"]}}),)


@over("mode", ["host", "none", "container:" + "d" * 64])
def test_no_network_of_its_own(mode: str) -> None:
    made = recreation(inspect(host={"NetworkMode": mode}, networks={mode: {"NetworkID": "x", "Aliases": ["y"]}}))
    assert made.body["NetworkingConfig"] == {"EndpointsConfig": {}}
    assert made.connects == ()
    if mode.startswith("container:"):
        assert made.body["ExposedPorts"] is None


@over("old, name", [("bridge", "bridge"), ("default", "bridge"), ("", "bridge"), ("mine", "mine"), ("n7", "mine")])
def test_another_network_leaves_the_one_before_and_keeps_the_rest(old: str, name: str) -> None:
    networks = {name: {"NetworkID": "n7", "Aliases": ["engine"]}, "other": {"NetworkID": "n8", "Aliases": ["second"]}}
    made = recreation(inspect(host={"NetworkMode": old}, networks=networks), options={"NetworkMode": "new"})
    assert name not in made.body["NetworkingConfig"]["EndpointsConfig"]
    assert [network for network, _ in made.connects] == ["other"]
    kept = recreation(inspect(host={"NetworkMode": old}, networks=networks))
    assert list(kept.body["NetworkingConfig"]["EndpointsConfig"]) == [name]


def test_the_host_s_network_leaves_the_bridge() -> None:
    made = recreation(
        inspect(host={"PortBindings": {"8000/tcp": [{"HostPort": "80"}]}}), options={"NetworkMode": "host"}
    )
    assert made.body["NetworkingConfig"] == {"EndpointsConfig": {}}
    assert made.body["HostConfig"]["PortBindings"] == {}
    assert made.notes == ("On the host's network Docker publishes no ports: engine listens on the host's own.",)
    assert not recreation(inspect(), options={"NetworkMode": "host"}).notes, "it published none"


def test_anonymous_volumes_are_named() -> None:
    mounts = [
        {"Type": "volume", "Name": "v1", "Destination": "/a", "RW": True},
        {"Type": "volume", "Name": "v2", "Destination": "/b", "RW": False},
        {"Type": "volume", "Name": "v3", "Destination": "/c", "RW": True},
        {"Type": "volume", "Name": "named", "Destination": "/d", "RW": True},
        {"Type": "bind", "Source": "/tmp", "Destination": "/e", "RW": True},
    ]
    host = {"Binds": ["named:/d"], "Mounts": [{"Type": "volume", "Target": "/c"}]}
    made = body(inspect(mounts=mounts, host=host))["HostConfig"]
    assert made["Binds"] == ["named:/d", "v1:/a", "v2:/b:ro"]
    assert made["Mounts"] == [{"Type": "volume", "Target": "/c", "Source": "v3"}]
    kept = recreation(inspect(mounts=mounts, host=host | {"AutoRemove": True}))
    assert kept.body["HostConfig"]["Binds"] == ["named:/d"]
    assert any("go with the old container" in note for note in kept.notes)


@over(
    "before, change, after",
    [
        ({"ShmSize": 1}, {"ShmSize": 2}, {"ShmSize": 2}),
        ({"ShmSize": 1}, {"ShmSize": None}, {}),
        (
            {"Ulimits": [{"Name": "nofile", "Soft": 1}, {"Name": "memlock", "Soft": 5}]},
            {"Ulimits": [{"Name": "memlock", "Soft": -1}]},
            {"Ulimits": [{"Name": "nofile", "Soft": 1}, {"Name": "memlock", "Soft": -1}]},
        ),
        ({"CapAdd": ["SYS_NICE"]}, {"CapAdd": ["IPC_LOCK", "SYS_NICE"]}, {"CapAdd": ["SYS_NICE", "IPC_LOCK"]}),
        ({"Sysctls": {"a": "1", "b": "2"}}, {"Sysctls": {"a": None, "c": "3"}}, {"Sysctls": {"b": "2", "c": "3"}}),
        ({"ExtraHosts": ["a:1", "a:2"]}, {"ExtraHosts": ["b:3"]}, {"ExtraHosts": ["a:1", "a:2", "b:3"]}),
        ({"Binds": ["/x:/a", "/y:/b"]}, {"Binds": ["/z:/a:ro"]}, {"Binds": ["/z:/a:ro", "/y:/b"]}),
        (
            {"LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}}},
            {"LogConfig": {"Type": "none"}},
            {"LogConfig": {"Type": "none"}},
        ),
    ],
)
def test_options(before: dict[str, Any], change: dict[str, Any], after: dict[str, Any]) -> None:
    made = body(inspect(host=before), options=change)["HostConfig"]
    for name in change:
        assert made.get(name) == after.get(name)


@over("options", [{"Shm": 1}, {"ShmSize": "1g"}, {"Init": 1}, {"Ulimits": {}}, {"ShmSize": True}])
def test_options_that_docker_would_ignore_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        recreation(inspect(), options=options)


# --- properties -------------------------------------------------------------------------------------------------------

_WORD = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0="), min_size=1, max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _WORD,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORD, inner, max_size=2),
    max_leaves=4,
)
_OPTIONS = st.dictionaries(
    st.sampled_from(["ShmSize", "Runtime", "Ulimits", "Tmpfs", "CapAdd", "Future", "PidsLimit", "LogConfig"]), _JSON
)
_ENVIRONMENT = st.lists(st.tuples(_WORD, _WORD).map("=".join), max_size=4, unique_by=lambda pair: pair.split("=")[0])


@given(_OPTIONS, _ENVIRONMENT, st.dictionaries(_WORD, st.none() | _WORD, max_size=3))
def test_nothing_is_lost_and_nothing_added(
    options: dict[str, Any], environment: list[str], changes: dict[str, str | None]
) -> None:
    raw = inspect(host=options, config={"Env": environment, "Future": "kept"})
    made = body(raw, {"Config": {}}, environment=changes)
    assert made["HostConfig"] == raw["HostConfig"]
    assert {key: value for key, value in made.items() if key not in ("HostConfig", "NetworkingConfig", "Env")} == {
        **{key: value for key, value in raw["Config"].items() if key != "Env"},
        "Hostname": "",
        "Image": raw["Image"],
    }
    wanted = dict(pair.split("=", 1) for pair in environment) | changes
    assert dict(pair.split("=", 1) for pair in made["Env"]) == {k: v for k, v in wanted.items() if v is not None}


@given(_OPTIONS)
def test_anything_that_docker_says_is_read(options: dict[str, Any]) -> None:
    made = recreation(
        {"Id": ID, "HostConfig": options, "Config": options, "Mounts": [options], "NetworkSettings": options}
    )
    assert set(options) <= set(made.body)
    assert len(anonymous_volumes({"Mounts": [options], "HostConfig": options})) <= 1


# --- the line to paste ------------------------------------------------------------------------------------------------


def test_secrets_are_named_and_not_told() -> None:
    raw = inspect(
        config={
            "Env": ["HF_TOKEN=hf_secret", "PLAIN=a b", "EMPTY_TOKEN="],
            "Cmd": ["vllm", "serve", "m", "--api-key", "canary"],
            "Labels": {"password": "canary", "plain": "$(x)"},
        }
    )
    line = docker_run("engine", recreation(raw).body)
    words = shlex.split(line)
    assert "--env=HF_TOKEN" in words
    assert "--env=PLAIN=a b" in words
    assert "--gpus=all" in words
    assert "--label=plain=$(x)" in words
    assert "canary" not in line
    assert "hf_secret" not in line
    assert secret_names(raw["Config"]["Env"]) == ("HF_TOKEN",)


@over(
    "request_, word",
    [
        ({"Count": -1, "Capabilities": [["gpu"]]}, "--gpus=all"),
        ({"Count": 2, "Capabilities": [["gpu"]]}, "--gpus=count=2"),
        ({"DeviceIDs": ["0"], "Capabilities": [["gpu"]]}, "--gpus=device=0"),
        ({"DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]]}, '--gpus="device=0,1"'),
        ({"Count": -1, "Capabilities": [["gpu", "compute"]]}, "--gpus=all,capabilities=compute"),
        ({"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}, "--device=nvidia.com/gpu=all"),
    ],
)
def test_gpus(request_: dict[str, Any], word: str) -> None:
    line = docker_run("engine", recreation(inspect(host={"DeviceRequests": [request_]})).body)
    assert word in shlex.split(line)


@over(
    "bindings, words",
    [
        ({"8000/tcp": [{"HostIp": "", "HostPort": "80"}]}, ["--publish=80:8000/tcp"]),
        ({"8000/tcp": [{"HostIp": "::1", "HostPort": "80"}]}, ["--publish=[::1]:80:8000/tcp"]),
        ({"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}, ["--publish=127.0.0.1::8000/tcp"]),
        ({"9/udp": None}, ["--publish=9/udp"]),
    ],
)
def test_ports(bindings: dict[str, Any], words: list[str]) -> None:
    said = shlex.split(docker_run("engine", recreation(inspect(host={"PortBindings": bindings})).body))
    assert [word for word in said if word.startswith("--publish")] == words
