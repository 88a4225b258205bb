"""Recreate from inspect, then inspect again: only what was asked differs. On a real Docker Engine."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.integration.dockerd import IMAGE, Dockerd
from tests.support import unavailable

from sparktop.cmdline.container_body import docker_run
from sparktop.operate.container.recreate import anonymous_volumes, recreation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OPTIONS = [
    "",
    "--ulimit memlock=-1 --ulimit stack=67108864 --ulimit nofile=1024:4096 --ipc host --shm-size 1g",
    "--ipc private --shm-size 32m --tmpfs /scratch:size=8m,mode=1770 --tmpfs /more",
    "--ipc shareable --pid host --uts host --cgroupns host",
    "--cap-add SYS_NICE --cap-add IPC_LOCK --cap-drop CHOWN --security-opt no-new-privileges",
    "--security-opt seccomp=unconfined --security-opt systempaths=unconfined --group-add 44 --group-add audio",
    "--privileged --device /dev/null:/dev/odd:rw --device /dev/zero",
    "--device-cgroup-rule 'c 195:* rmw' --sysctl net.ipv4.ip_unprivileged_port_start=80 --network none",
    "--label plain=x --label 'odd=a \"b\" $(c) `d` {e}' --label empty= --label sparktop.test=1",
    "-e PLAIN=1 -e 'ODD=a b \"c\" $(d) `e` \\ ; é' -e EMPTY= -e 'MANY=a=b=c' -e $'LINES=a\\nb'",
    "--hostname engine.example --domainname example --network none --add-host a:10.0.0.1 --add-host b:10.0.0.2",
    "--dns 10.0.0.53 --dns-search example --dns-option ndots:2 --network none",
    "--log-driver json-file --log-opt max-size=10m --log-opt max-file=3",
    "--log-driver none --restart no",
    "--restart unless-stopped",
    "--restart on-failure:5",
    "-v /data -v NAMED:/named -v /tmp:/host:ro -v /tmp:/shared:rshared",
    "--mount type=volume,dst=/anonymous --mount type=bind,src=/tmp,dst=/bound,readonly --mount type=tmpfs,dst=/t",
    "--mount type=volume,src=NAMED,dst=/named,volume-nocopy --read-only",
    "--health-cmd 'true || exit 1' --health-interval 30s --health-retries 5 --health-start-period 9s",
    "--no-healthcheck --init --stop-signal SIGINT --stop-timeout 45",
    "--memory 64m --memory-swap 128m --memory-reservation 32m --pids-limit 99 --cpus 0.5 --oom-score-adj 100",
    "--cpu-shares 512 --cpuset-cpus 0 --blkio-weight 300 --memory 64m --memory-swap -1",
    "--user 1000:1000 --workdir /tmp -t -i --expose 8000 --expose 9000/udp",
    "--publish 127.0.0.1:18765:8000 --publish 18766:8001/udp --network none",
    "--entrypoint /bin/busybox --stop-timeout 0",
    "--entrypoint ''",
    "--rm --runtime runc --volume /gone",
    "--userns host --cgroup-parent /sparktop-test",
]
VOLATILE = {
    "Id", "Created", "State", "Name", "Path", "Args", "ResolvConfPath", "HostnamePath", "HostsPath", "LogPath",
    "GraphDriver", "RestartCount", "ExecIDs", "NetworkSettings", "Mounts", "Image", "ImageManifestDescriptor",
}  # fmt: skip


def cli(dockerd: Dockerd, *argv: str, check: bool = True) -> str:
    out = subprocess.run(
        ["docker", "-H", f"unix://{dockerd.socket_path}", *argv], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0 or not check, out.stderr
    return out.stdout.strip() or out.stderr.strip()


@pytest.fixture
def made(dockerd: Dockerd) -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        cli(dockerd, "rm", "-f", "-v", name, check=False)
    cli(dockerd, "volume", "rm", "-f", "NAMED", check=False)


def said(inspect: Mapping[str, Any]) -> dict[str, Any]:
    """What inspect says of what was asked for; names that Docker makes up are left out."""
    out = {key: value for key, value in inspect.items() if key not in VOLATILE}
    config, host = dict(inspect["Config"]), dict(inspect["HostConfig"])
    if config["Hostname"] == inspect["Id"][:12]:
        config["Hostname"] = "(short id)"
    config["Env"] = sorted(config["Env"] or [])
    out |= {"Config": config, "HostConfig": host, "Path": inspect["Path"], "Args": inspect["Args"]}
    out["Mounts"] = sorted(
        (one["Type"], one.get("Name", ""), one.get("Source", ""), one["Destination"], one["RW"], one.get("Propagation"))
        for one in inspect["Mounts"]
    )
    out["Networks"] = {
        name: {key: one.get(key) for key in ("IPAMConfig", "Links", "DriverOpts")}
        for name, one in inspect["NetworkSettings"]["Networks"].items()
    }
    return out


def recreated(dockerd: Dockerd, made: list[str], name: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    before = dockerd.api.inspect_container(name)
    image = dockerd.api.inspect_image(before["Image"])
    wanted = recreation(before, image, image_name=before["Config"]["Image"], **changes)
    answer = dockerd.api._post_json(
        dockerd.api._url("/containers/create"), data=dict(wanted.body), params={"name": f"{name}-new"}
    )
    made.append(f"{name}-new")
    assert answer.status_code == 201, answer.text
    return before, dockerd.api.inspect_container(f"{name}-new")


@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_container_comes_out(dockerd: Dockerd, made: list[str], options: str) -> None:
    name = f"same-{abs(hash(options)) % 10**8}"
    words = (
        shlex.split(options) if "$'" not in options else shlex.split(options.replace("$'LINES=a\\nb'", "'LINES=a\nb'"))
    )
    cli(dockerd, "create", "--name", name, *words, IMAGE, "sleep", "60")
    made.append(name)
    before, after = recreated(dockerd, made, name)
    one, other = said(before), said(after)
    if anonymous_volumes(before) and not before["HostConfig"]["AutoRemove"]:  # the one thing that is named now
        assert {mount[:4] for mount in one["Mounts"]} == {mount[:4] for mount in other["Mounts"]}
        one["HostConfig"].pop("Binds"), other["HostConfig"].pop("Binds")
        for host in (one["HostConfig"], other["HostConfig"]):
            for mount in host.get("Mounts") or ():
                if mount["Type"] == "volume":
                    mount.pop("Source", None)
        one.pop("Mounts"), other.pop("Mounts")
    elif before["HostConfig"]["AutoRemove"]:
        one.pop("Mounts"), other.pop("Mounts")
    assert one == other


def image_with(dockerd: Dockerd, made: list[str], tag: str, *changes: str) -> str:
    """An image of its own settings."""
    own = ("--stop-signal", "SIGINT", "--health-cmd", "true") if changes == SETTINGS else ()
    cli(dockerd, "create", "--name", f"for-{tag}", *own, IMAGE, "true")
    made.append(f"for-{tag}")
    cli(dockerd, "commit", *(word for one in changes for word in ("--change", one)), f"for-{tag}", f"{tag}:test")
    return f"{tag}:test"


SETTINGS = (
    'ENTRYPOINT ["/bin/busybox", "env"]',
    'CMD ["sleep", "50"]',
    "ENV FROM_IMAGE=1 PATH=/bin",
    "LABEL own=image",
    "WORKDIR /tmp",
    "USER 1000",
    "VOLUME /declared",
    "EXPOSE 8000",
)


OVER_THEM = ("", "--entrypoint ''", "--entrypoint sh", "-e FROM_IMAGE=2 --label own=mine --user 0 --no-healthcheck")


@pytest.mark.parametrize(
    ("options", "command"),
    [
        (options, command)
        for options in OVER_THEM
        for command in ("", "sleep 60")
        if command or options != "--entrypoint ''"  # Docker wants a command then
    ],
)
def test_what_the_image_sets_stays_what_it_was(dockerd: Dockerd, made: list[str], options: str, command: str) -> None:
    image = image_with(dockerd, made, "settings", *SETTINGS)
    cli(dockerd, "create", "--name", "settled", *shlex.split(options), image, *command.split())
    made.append("settled")
    before, after = recreated(dockerd, made, "settled")
    one, other = said(before), said(after)
    one["HostConfig"].pop("Binds"), other["HostConfig"].pop("Binds")
    assert {mount[:4] for mount in one.pop("Mounts")} == {mount[:4] for mount in other.pop("Mounts")}
    assert one == other


def test_a_variable_of_the_image_can_be_taken_away(dockerd: Dockerd, made: list[str]) -> None:
    image = image_with(dockerd, made, "settings", "ENV FROM_IMAGE=1 PATH=/bin")
    cli(dockerd, "create", "--name", "unset", "-e", "OWN=1", image, "env")
    made.append("unset")
    recreated(dockerd, made, "unset", environment={"FROM_IMAGE": None, "OWN": None, "NEW": "a b"})
    assert "FROM_IMAGE=1" in cli(dockerd, "start", "-a", "unset")
    told = cli(dockerd, "start", "-a", "unset-new").splitlines()
    assert not [line for line in told if line.startswith(("FROM_IMAGE", "OWN"))]
    assert "NEW=a b" in told


def test_the_same_anonymous_volume_is_used(dockerd: Dockerd, made: list[str]) -> None:
    cli(dockerd, "run", "--name", "writer", "-v", "/data", IMAGE, "sh", "-c", "echo kept > /data/file")
    made.append("writer")
    recreated(dockerd, made, "writer", command=["cat", "/data/file"])
    assert cli(dockerd, "start", "-a", "writer-new") == "kept"
    cli(dockerd, "rm", "-f", "-v", "writer")
    assert cli(dockerd, "start", "-a", "writer-new") == "kept", "removed with the old container"


def test_another_image_brings_its_own_settings(dockerd: Dockerd, made: list[str]) -> None:
    old = image_with(dockerd, made, "old", *SETTINGS)
    new = image_with(
        dockerd,
        made,
        "new",
        'ENTRYPOINT ["/bin/sh", "-c"]',
        "ENV FROM_NEW=1 PATH=/bin",
        "WORKDIR /etc",
        "LABEL own=new",
    )
    cli(dockerd, "create", "--name", "moved", "-e", "OWN=1", "--label", "mine=1", old, "sleep", "60")
    made.append("moved")
    before = dockerd.api.inspect_container("moved")
    wanted = recreation(
        before,
        dockerd.api.inspect_image(old),
        image_name=new,
        new_image=dockerd.api.inspect_image(new),
        command=["sleep", "61"],
    )
    answer = dockerd.api._post_json(
        dockerd.api._url("/containers/create"), data=dict(wanted.body), params={"name": "moved-new"}
    )
    made.append("moved-new")
    assert answer.status_code == 201, answer.text
    config = dockerd.api.inspect_container("moved-new")["Config"]
    assert config["Entrypoint"] == ["/bin/sh", "-c"]
    assert config["Cmd"] == ["sleep", "61"]
    assert sorted(config["Env"]) == ["FROM_NEW=1", "OWN=1", "PATH=/bin"]
    assert config["Labels"] == {"own": "new", "mine": "1"}
    assert (config["WorkingDir"], config["User"], config.get("StopSignal")) == ("/etc", "", None)
    assert "Healthcheck" not in config


@pytest.mark.fast
def test_networks_aliases_and_addresses(dockerd: Dockerd, made: list[str]) -> None:
    try:
        cli(dockerd, "network", "create", "--subnet", "10.231.1.0/24", "one-net")
        cli(dockerd, "network", "create", "--subnet", "10.231.2.0/24", "two-net")
    except AssertionError as error:
        unavailable(f"no bridge networks here: {error}")
    try:
        cli(dockerd, "create", "--name", "netted", "--network", "one-net", "--network-alias", "engine",
            "--ip", "10.231.1.77", IMAGE, "sleep", "60")  # fmt: skip
        made.append("netted")
        cli(dockerd, "network", "connect", "--alias", "second", "two-net", "netted")
        before = dockerd.api.inspect_container("netted")
        wanted = recreation(before, None)
        answer = dockerd.api._post_json(
            dockerd.api._url("/containers/create"), data=dict(wanted.body), params={"name": "netted-new"}
        )
        made.append("netted-new")
        assert answer.status_code == 201, answer.text
        for network, body in wanted.connects:
            done = dockerd.api._post_json(
                dockerd.api._url("/networks/{0}/connect", network), data={"Container": "netted-new", **body}
            )
            assert done.status_code == 200, done.text
        after = dockerd.api.inspect_container("netted-new")
        for name in ("one-net", "two-net"):
            old, new = (each["NetworkSettings"]["Networks"][name] for each in (before, after))
            assert (new["IPAMConfig"] or {}) == (old["IPAMConfig"] or {})
            kept = set(old["Aliases"] or ()) - {before["Id"][:12]}
            assert kept <= set(new["Aliases"] or ())
            assert before["Id"][:12] not in (new["Aliases"] or ())
    finally:
        for name in made:
            cli(dockerd, "rm", "-f", name, check=False)
        cli(dockerd, "network", "rm", "one-net", "two-net", check=False)


@pytest.mark.parametrize("options", [one for one in OPTIONS if "--rm" not in one and "$'" not in one])
def test_the_line_to_paste_makes_the_same_container(dockerd: Dockerd, made: list[str], options: str) -> None:
    cli(dockerd, "create", "--name", "lined", *shlex.split(options), IMAGE, "sleep", "60")
    made.append("lined")
    before = dockerd.api.inspect_container("lined")
    image = dockerd.api.inspect_image(before["Image"])
    body = recreation(before, image, image_name=IMAGE).body
    words = shlex.split(docker_run("lined-new", body, image, mask=False))
    assert words[:3] == ["docker", "run", "--detach"]
    made.append("lined-new")
    cli(dockerd, "create", *words[3:])
    made_so = dockerd.api.inspect_container("lined-new")
    again = recreation(made_so, image, image_name=IMAGE).body
    assert told(again) == told(body)


def told(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body without the ways in which Docker's own tool says nothing: empty, absent and default are the same."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: one for key, each in value.items() if (one := cleaned(each)) not in (None, "", [], {}, 0, False)
            }
        return [cleaned(one) for one in value] if isinstance(value, list) else value

    out: dict[str, Any] = cleaned(dict(body))
    out["Env"] = sorted(out.get("Env", ()))
    host = out["HostConfig"]
    for key in ("SecurityOpt", "CapAdd", "CapDrop", "Ulimits", "Binds"):
        host[key] = sorted(host.get(key) or (), key=str)
    for key in ("AttachStdout", "AttachStderr", "AttachStdin", "StdinOnce", "Volumes"):  # of `docker create` itself
        out.pop(key, None)
    if host.get("LogConfig", {}).get("Config") == {}:
        host["LogConfig"].pop("Config")
    host.pop("ContainerIDFile", None)
    host.pop("ConsoleSize", None)
    return out
