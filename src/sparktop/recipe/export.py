"""Export a rendered launch as a file to keep: a `docker run` script, a compose file or a systemd unit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.cmdline import engine_argv as flags
from sparktop.cmdline.container_body import docker_run
from sparktop.engines import labels
from sparktop.masking import is_secret
from sparktop.model.recipe import Muted
from sparktop.recipe.container_spec import ContainerSpec, Rendered, RenderedRank
from sparktop.recipe.render.host_config import body
from sparktop.recipe.yaml_text import dumped


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
    service: dict[str, Any] = {"image": container.image, "container_name": container.name}
    if container.entrypoint is None:
        service["command"] = list(container.argv)
    else:
        # Always written out: versions of compose differ in what an empty entrypoint means.
        first, *rest = (*container.entrypoint, *container.argv)
        service |= {"entrypoint": [first], "command": rest}
    service["environment"] = dict(container.environment)
    if container.mounts:
        service["volumes"] = [
            f"{mount.source}:{mount.target}" + (":ro" if mount.is_read_only else "") for mount in container.mounts
        ]
    service |= _network(host)
    service |= {name: host[key] for key, name in _COMPOSE_KEYS.items() if host.get(key)}
    if limits := host.get("Ulimits"):
        service["ulimits"] = {limit["Name"]: {"soft": limit["Soft"], "hard": limit["Hard"]} for limit in limits}
    if devices := host.get("Devices"):
        service["devices"] = [f"{request['PathOnHost']}:{request['PathInContainer']}" for request in devices]
    if container.user:
        service["user"] = container.user
    if container.workdir:
        service["working_dir"] = container.workdir
    service["labels"] = dict(container.labels)
    if requests := host.get("DeviceRequests"):
        service["deploy"] = {"resources": {"reservations": {"devices": [_device(device) for device in requests]}}}
    service["restart"] = "no"
    service = _escape_dollars(service)
    for name in container.secret_names:
        service["environment"][name] = f"${{{name}:?set it in .env}}"
    whole = {"services": {container.name: service}}
    return "".join(f"# {line}\n" for line in comments) + dumped(whole)


def _network(host: Mapping[str, Any]) -> dict[str, Any]:
    network: dict[str, Any] = {"network_mode": host["NetworkMode"]} if host.get("NetworkMode") else {}
    ports = [
        ":".join(field for field in (binding.get("HostIp"), binding.get("HostPort"), port.partition("/")[0]) if field)
        for port, bindings in (host.get("PortBindings") or {}).items()
        for binding in bindings
    ]
    return network | ({"ports": ports} if ports else {})


def _device(request: Mapping[str, Any]) -> dict[str, Any]:
    device: dict[str, Any] = {"driver": request.get("Driver") or "nvidia"}
    ids: Sequence[str] = request.get("DeviceIDs") or ()
    device |= {"device_ids": list(ids)} if ids else {"count": "all"}
    return device | {"capabilities": ["gpu"]}


def _escape_dollars(value: Any) -> Any:
    """Double every dollar sign, so that compose sees no variables."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _escape_dollars(item) for key, item in value.items()}
    return [_escape_dollars(item) for item in value] if isinstance(value, list) else value


WAIT_S = 300


START_S = 900


_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


WAIT = (
    "until awk -v share=\"$1\" '/^MemTotal:/ {t=$2} /^MemAvailable:/ {a=$2} END {exit !(a >= t * share)}' "
    "/proc/meminfo; do sleep 5; done"
)
"""Wait for free memory; its parameter is the share of all memory that must be available."""


DEFAULT_SHARE = "0.75"


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
        share: what the engine takes of all memory, as its flag says; None: DEFAULT_SHARE.
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
        f"ExecStartPre={_words(wait)}",
        f"ExecStartPre=-{_words(['/usr/bin/docker', 'rm', name])}",
        f"ExecStart={_words(['/usr/bin/docker', *run[1:]])}",
        f"ExecStop={_words(['/usr/bin/docker', 'stop', '-t', '60', name])}",
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


def _rank_unit(
    container: ContainerSpec, rank: RenderedRank, rendered: Rendered, comments: Iterable[str], *, is_own: bool
) -> str:
    names = ("gpu-memory-utilization", "mem-fraction-static")
    return unit_file(
        container.name,
        run_words(container, is_detached=False),
        flags.value_of(rank.argv, *names) or flags.value_of(rendered.head.argv, *names),
        description=f"{container.name}: {rendered.served_name}",
        has_secrets=bool(container.secret_names),
        is_own=is_own,
        comments=comments,
    )


def _words(words: Iterable[str]) -> str:
    return " ".join(_word(word) for word in words)


def _word(text: str) -> str:
    """One word as systemd parses it: quoted where needed, without specifiers or variables."""
    literal = text.replace("%", "%%").replace("$", "$$")
    if _PLAIN_WORD.fullmatch(text):
        return literal
    escaped = literal.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", escaped)
    return f'"{escaped}"'


def _plain(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).replace("%", "%%")


KINDS: Mapping[str, str] = {
    "run": "{name}.sh", "compose": "{name}.compose.yaml", "systemd": "{name}.service", "systemd-user": "{name}.service",
}  # fmt: skip
"""File name of each kind of export; on two nodes the node's name comes first."""


def exported(rendered: Rendered, kind: str, *, node: str = "", muted: Sequence[Muted] = ()) -> str:
    """The export file of one rank.

    Args:
        kind: one of KINDS.
        node: the rank's node; empty: the head.
        muted: the recipe's muted lint rules, muted in the file too.

    Raises:
        ValueError: unknown kind or node.
    """
    rank = next((candidate for candidate in rendered.ranks if candidate.node == node), None) if node else rendered.head
    if rank is None or kind not in KINDS:
        raise ValueError(f"no export {kind!r} for {node!r}")
    container = without_secrets(reusable(rank.container))
    comments = _comments(rendered, rank, kind, container, muted)
    if kind == "compose":
        return compose_file(container, comments)
    if kind in ("systemd", "systemd-user"):
        return _rank_unit(container, rank, rendered, comments, is_own=kind == "systemd-user")
    return "\n".join((*(f"# {line}" for line in comments), run_line(container, is_folded=True), ""))


def files(rendered: Rendered, kind: str, *, muted: Sequence[Muted] = ()) -> dict[str, str]:
    """File name -> text, for all ranks."""
    texts = {}
    for rank in rendered.ranks:
        name = KINDS[kind].format(name=rank.container.name)
        where = re.sub(r"[^A-Za-z0-9_.-]+", "-", rank.node)
        name = f"{where}.{name}" if len(rendered.ranks) > 1 else name
        texts[name] = exported(rendered, kind, node=rank.node, muted=muted)
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
        where = {
            "run": "export them first, or read them from a file: set -a; . ./.env; set +a",
            "compose": "in a file .env next to this one, mode 0600, one NAME=value a line",
            "systemd": f"in {environment_file(container.name)}, mode 0600, NAME=value a line",
            "systemd-user": f"in {environment_file(container.name, is_own=True)}, mode 0600, NAME=value a line",
        }[kind]
        lines.append(f"Secrets ({names}): {where}")
    lines += [f"sparktop: allow {mute.rule}: {mute.reason}" for mute in muted]
    return tuple(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", line) for line in lines)
