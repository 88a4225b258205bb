"""Export a rendered launch as a file to keep: a `docker run` script, a compose file or a systemd unit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.cmdline import engine_argv as flags
from sparktop.cmdline.container_body import docker_run
from sparktop.cmdline.systemd import joined
from sparktop.cmdline.yaml_nodes import dumped
from sparktop.engines import labels
from sparktop.masking import is_secret
from sparktop.model.recipe import Muted
from sparktop.recipe.container_spec import ContainerSpec, Rendered, RenderedRank
from sparktop.recipe.render.host_config import body


def run_words(container: ContainerSpec, *, is_detached: bool = True) -> list[str]:
    """The words of `docker run`; a secret is given by its name alone, so its value comes from the caller's
    environment."""
    bare = without_secrets(container)
    create_body = body(bare)
    create_body["Env"] = [
        name if name in bare.secret_names else f"{name}={value}" for name, value in bare.environment.items()
    ]
    words = shlex.split(docker_run(container.name, create_body, mask=False))
    return words if is_detached else [word for word in words if word != "--detach"]


def run_line(container: ContainerSpec, *, is_folded: bool = False) -> str:
    """`docker run` as a shell command; folded: one option per line."""
    words = run_words(container)
    if not is_folded:
        return shlex.join(words)
    head = next(at for at in range(5, len(words)) if not words[at].startswith("--"))
    rows = [shlex.join(words[:5]), *(shlex.quote(word) for word in words[5:head])]
    rows += [f"{shlex.quote(words[head])}", *_command_rows(words[head + 1 :])]
    return " \\\n  ".join(rows)


def reusable(container: ContainerSpec) -> ContainerSpec:
    """The specification without what may differ after a reboot, and without sparktop's own labels.

    NCCL finds the GID index by itself; interfaces and HCAs keep their names (docs/facts/gb10.md section 5). With
    sparktop's labels, the container would be taken for one that `sparktop launch` has started.
    """
    dropped = {"NCCL_IB_GID_INDEX"} & set(container.detected_names)
    return replace(
        container,
        environment={name: value for name, value in container.environment.items() if name not in dropped},
        labels={name: value for name, value in container.labels.items() if not name.startswith(labels.OURS)},
    )


def without_secrets(container: ContainerSpec) -> ContainerSpec:
    """The specification with its secrets' values removed; their names stay in `secret_names`."""
    names = {name for name, value in container.environment.items() if is_secret(name, value)}
    names |= set(container.secret_names)
    environment = {name: "" if name in names else value for name, value in container.environment.items()}
    return replace(container, environment=environment, secret_names=tuple(sorted(names)))


def _command_rows(words: Iterable[str]) -> list[str]:
    """One row per flag with its values; a word of several lines gets a row of its own."""
    rows: list[str] = []
    is_open = False
    for word in words:
        is_alone = "\n" in word
        if is_open and not is_alone and not word.startswith("-"):
            rows[-1] += f" {shlex.quote(word)}"
        else:
            rows.append(shlex.quote(word))
        is_open = not is_alone
    return rows


_COMPOSE_KEYS = {
    "IpcMode": "ipc", "ShmSize": "shm_size", "Memory": "mem_limit", "Privileged": "privileged", "CapAdd": "cap_add",
    "SecurityOpt": "security_opt",
}  # fmt: skip


def compose_file(container: ContainerSpec, comments: Iterable[str]) -> str:
    """The compose file's text; secrets are `${NAME}`, which compose takes from its environment or from `.env`."""
    host: Mapping[str, Any] = container.host
    command: dict[str, Any] = {"command": list(container.argv)}
    if container.entrypoint is not None:
        # Always written out: versions of compose differ in what an empty entrypoint means.
        first, *rest = (*container.entrypoint, *container.argv)
        command = {"entrypoint": [first], "command": rest}
    limits, requests = host.get("Ulimits") or (), host.get("DeviceRequests") or ()
    whole: dict[str, Any] = {
        "image": container.image,
        "container_name": container.name,
        **command,
        "environment": dict(container.environment),
        "volumes": [mount.text for mount in container.mounts],
        "network_mode": host.get("NetworkMode"),
        "ports": _ports(host),
        **{name: host.get(key) for key, name in _COMPOSE_KEYS.items()},
        "ulimits": {limit["Name"]: {"soft": limit["Soft"], "hard": limit["Hard"]} for limit in limits},
        "devices": [f"{device['PathOnHost']}:{device['PathInContainer']}" for device in host.get("Devices") or ()],
        "user": container.user,
        "labels": dict(container.labels),
        "deploy": {"resources": {"reservations": {"devices": list(map(_device, requests))}}} if requests else None,
        "restart": "no",
    }
    always = ("command", "environment", "labels")
    service = _escape_dollars({name: value for name, value in whole.items() if value or name in always})
    for name in container.secret_names:
        service["environment"][name] = f"${{{name}:?set it in .env}}"
    return "".join(f"# {line}\n" for line in comments) + dumped({"services": {container.name: service}})


def _ports(host: Mapping[str, Any]) -> list[str]:
    return [
        ":".join(field for field in (binding.get("HostIp"), binding.get("HostPort"), port.partition("/")[0]) if field)
        for port, bindings in (host.get("PortBindings") or {}).items()
        for binding in bindings
    ]


def _device(request: Mapping[str, Any]) -> dict[str, Any]:
    ids = request.get("DeviceIDs")
    which = {"device_ids": list(ids)} if ids else {"count": "all"}
    return {"driver": request.get("Driver") or "nvidia", **which, "capabilities": ["gpu"]}


def _escape_dollars(value: Any) -> Any:
    """Double every dollar sign, so that compose sees no variables."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _escape_dollars(item) for key, item in value.items()}
    return [_escape_dollars(item) for item in value] if isinstance(value, list) else value


WAIT_S = 300


START_S = 900


WAIT = (
    "until awk -v share=\"$1\" '/^MemTotal:/ {t=$2} /^MemAvailable:/ {a=$2} END {exit !(a >= t * share)}' "
    "/proc/meminfo; do sleep 5; done"
)
"""Wait for free memory; its parameter is the share of all memory that must be available."""


DEFAULT_SHARE = "0.75"


def share_of(size_bytes: int, total_bytes: int) -> str:
    """A size as the share that `WAIT` takes."""
    return f"{min(1.0, size_bytes / total_bytes):.4f}"


START_LIMIT_S = 600
"""docs/facts/engines.md, OPS-02."""


UNIT_HEAD = "# Written by sparktop. To remove it: sparktop unit "
"""How each unit of sparktop's begins."""


def unit_file(
    name: str,
    run: Sequence[str],
    share: str | None,
    *,
    description: str,
    has_secrets: bool,
    is_own: bool = False,
    comments: Iterable[str] = (),
) -> str:
    """The text of a unit that runs a container.

    Args:
        name: the container's; the unit's is NAME.service.
        run: the words of `docker run`, not detached, secrets by name.
        share: what must be available of all memory, as the engine's flag says; None: DEFAULT_SHARE.
        has_secrets: it reads their values from `environment_file`.
        is_own: for the user's own manager, which knows neither Docker nor the network as units.
    """
    share = share if re.fullmatch(r"0?\.\d+|1(?:\.0+)?", share or "") else DEFAULT_SHARE
    wait = ["/usr/bin/timeout", str(WAIT_S), "/bin/sh", "-c", WAIT, "wait-for-memory", share or DEFAULT_SHARE]
    system = ("Requires=docker.service", "After=docker.service network-online.target", "Wants=network-online.target")
    lines = [
        f"{UNIT_HEAD}{_plain(name)} HOST --remove",
        *(f"# {line}" for line in comments),
        "[Unit]",
        f"Description={_plain(description)}",
        *(() if is_own else system),
        f"StartLimitIntervalSec={START_LIMIT_S}",
        "StartLimitBurst=3",
        "",
        "[Service]",
        *([f"EnvironmentFile={environment_file(name, is_own=is_own)}"] if has_secrets else []),
        f"ExecStartPre={joined(wait)}",
        f"ExecStartPre=-{joined(['/usr/bin/docker', 'rm', name])}",
        f"ExecStart={joined(['/usr/bin/docker', *run[1:]])}",
        f"ExecStop={joined(['/usr/bin/docker', 'stop', '-t', '60', name])}",
        "Restart=always",  # a vLLM whose EngineCore was killed exits with 0 (docs/facts/engines.md section 6.6)
        "RestartSec=60",
        f"TimeoutStartSec={START_S}",
        "TimeoutStopSec=90",
        "",
        "[Install]",
        f"WantedBy={'default' if is_own else 'multi-user'}.target",
    ]
    return "\n".join(lines) + "\n"


def environment_file(name: str, *, is_own: bool = False, home: str = "%h") -> str:
    """Where a unit reads its secrets from: NAME=value lines, mode 0600."""
    return f"{f'{home}/.config' if is_own else '/etc'}/sparktop/{name}.env"


def environment_text(values: Mapping[str, str]) -> str:
    """The lines of an EnvironmentFile= (systemd.exec(5)): in double quotes a backslash takes four signs literally."""

    def quoted(value: str) -> str:
        return re.sub(r'(["\\`$])', r"\\\1", value)

    return "".join(f'{name}="{quoted(value)}"\n' for name, value in values.items())


def _plain(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).replace("%", "%%")


KINDS: Mapping[str, str] = {
    "run": "{name}.sh", "compose": "{name}.compose.yaml", "systemd": "{name}.service", "systemd-user": "{name}.service",
}  # fmt: skip
"""File name of each kind of export; on several nodes the node's name comes first."""


def exported(
    rendered: Rendered, kind: str, rank: RenderedRank, *, muted: Sequence[Muted] = (), share: str | None = None
) -> str:
    """The export file of one rank.

    Args:
        kind: one of KINDS.
        share: what a unit waits for of all memory, where no flag of the engine says it.
        muted: the recipe's muted lint rules, muted in the file too.
    """
    container = without_secrets(reusable(rank.container))
    comments = _comments(rendered, rank, kind, container, muted)
    if kind == "compose":
        return compose_file(container, comments)
    if kind == "run":
        return "\n".join((*(f"# {line}" for line in comments), run_line(container, is_folded=True), ""))
    names = ("gpu-memory-utilization", "mem-fraction-static")
    return unit_file(
        container.name,
        run_words(container, is_detached=False),
        flags.value_of(rank.argv, *names) or flags.value_of(rendered.head.argv, *names) or share,
        description=f"{container.name}: {rendered.served_name}",
        has_secrets=bool(container.secret_names),
        is_own=kind == "systemd-user",
        comments=comments,
    )


def files(
    rendered: Rendered, kind: str, *, muted: Sequence[Muted] = (), shares: Mapping[str, str] | None = None
) -> dict[str, str]:
    """File name -> text, for all ranks; `shares` by node."""
    texts = {}
    for rank in rendered.ranks:
        name = KINDS[kind].format(name=rank.container.name)
        where = re.sub(r"[^A-Za-z0-9_.-]+", "-", rank.node)
        name = f"{where}.{name}" if len(rendered.ranks) > 1 else name
        texts[name] = exported(rendered, kind, rank, muted=muted, share=(shares or {}).get(rank.node))
    return texts


def _comments(
    rendered: Rendered, rank: RenderedRank, kind: str, container: ContainerSpec, muted: Sequence[Muted]
) -> tuple[str, ...]:
    """The header of the file, one comment per item."""
    lines = [f"{container.name}, from sparktop's recipe {rendered.recipe_id}"]
    if len(rendered.ranks) > 1:
        other_nodes = ", ".join(other.node for other in rendered.ranks if other is not rank)
        lines.append(f"For {rank.node} only: rank {rank.index} of {len(rendered.ranks)}, with {other_nodes}.")
        lines.append("The interfaces and addresses are this node's. Start and stop all ranks together.")
    if container.secret_names:
        names = ", ".join(container.secret_names)
        line = "NAME=value a line"
        where = {
            "run": "export them first, or read them from a file: set -a; . ./.env; set +a",
            "compose": f"in a file .env next to this one, mode 0600, one {line}",
        }.get(kind) or f"in {environment_file(container.name, is_own=kind == 'systemd-user')}, mode 0600, {line}"
        lines.append(f"Secrets ({names}): {where}")
    if rendered.post_exec and rank is rendered.head:
        lines.append("Not in here: the recipe's post_exec, commands that run in the container once it serves.")
    lines += [f"sparktop: allow {mute.rule}: {mute.reason}" for mute in muted]
    return tuple(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", line) for line in lines)
