"""Gates of a node itself: its driver, what logind takes away, and that the port is free. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.diagnose.live.ranks import is_alive
from sparktop.model.engine import Engine
from sparktop.model.fleet import NodeView
from sparktop.model.prospect import Gate
from sparktop.model.telemetry import GapReason
from sparktop.operate.launching.gates_docker import names_of, rank_of, rows
from sparktop.operate.launching.looked import Looked, failed, passed, port_of, unknown, warned, why_not
from sparktop.operate.survey import Ask, FileText
from sparktop.recipe.ranks import MASTER_PORT
from sparktop.recipe.ray import RAY_PORT

SUPPORTED_BRANCH = "580"
"""Of GB10; 590 is reported to deadlock in CUDA graphs, 595 not to be supported (facts/engines.md KRN-16)."""
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
_UPDATE = "nvidia-spark-ota-check summary; then the DGX Dashboard's update (localhost:11000), firmware too"


def asks(nodes: Sequence[str]) -> Iterator[Ask]:
    """Who listens on the head."""
    for path in _TABLES:
        yield port_ask(nodes[0], path)


def port_ask(node: str, path: str) -> FileText:
    return FileText(node=node, path=path, limit_bytes=1 << 21)


def gates(looked: Looked) -> Iterator[Gate]:
    """driver and linger for each node, port for the head."""
    for node in looked.nodes:
        yield _driver(looked, node)
        yield _linger(looked, node)
    yield _port(looked)


# --- driver


def loaded_driver(view: NodeView | None) -> str:
    """The version that is loaded; empty where nothing tells."""
    if view is None:
        return ""
    by_gpu = view.first_gpu.driver_version if view.first_gpu else None
    return by_gpu or (view.facts.driver_version if view.facts else None) or ""


def _driver(looked: Looked, node: str) -> Gate:
    view = looked.view(node)
    version = loaded_driver(view)
    if not version:
        gap = view.facts.gaps.get("driver_version") if view is not None and view.facts is not None else None
        return unknown("driver", node, f"which NVIDIA driver is loaded is not known: {gap or 'not read yet'}")
    branch, wanted = version.partition(".")[0], looked.order.recipe.requires.driver
    if wanted and branch != wanted.partition(".")[0]:
        return failed(
            "driver", node, f"driver {version} is loaded, and the recipe wants branch {wanted}", f"on {node}: {_UPDATE}"
        )
    installed = view.facts.driver_installed if view is not None and view.facts is not None else None
    if installed and installed != version:
        detail = f"driver {version} is loaded and {installed} is installed: it waits for a reboot"
        if view is not None and view.first_gpu is None:
            return failed(
                "driver",
                node,
                f"{detail}, and NVML does not answer meanwhile: no container gets the GPU",
                f"sparktop act reboot {node}",
            )
        return warned("driver", node, detail, f"sparktop act reboot {node}   # then both are one version")
    if branch.isdecimal() and int(branch) >= 590:
        return warned(
            "driver",
            node,
            f"driver {version}: {SUPPORTED_BRANCH} is the branch that NVIDIA supports on a Spark, and 590 is reported "
            "to hang in CUDA graphs",
            f"on {node}: {_UPDATE}   # it brings {SUPPORTED_BRANCH}.x",
        )
    return passed("driver", node, f"driver {version}")


# --- logind


def _linger(looked: Looked, node: str) -> Gate:
    """logind removes a user's IPC objects at his last logout; those of root and of other namespaces it leaves."""
    view = looked.view(node)
    facts = view.facts if view is not None else None
    wants = looked.order.recipe.requires.linger
    if facts is None:
        return unknown("linger", node, f"nothing is known of {node} yet")
    if facts.user_id == 0:
        return passed("linger", node, "root's own IPC objects are left at logout")
    if facts.is_lingering:
        return passed("linger", node, f"{facts.user} lingers")
    mend = f"on {node}: sudo loginctl enable-linger {facts.user or '$USER'}"
    if facts.is_lingering is None:
        gap = facts.gaps.get("is_lingering")
        if gap is GapReason.NOT_FOUND:
            return passed("linger", node, "no systemd there: nothing is taken away at logout")
        return unknown(
            "linger", node, f"whether {facts.user or 'the user'} lingers is not known: {gap or 'not read yet'}"
        )
    if wants:
        return failed("linger", node, f"the recipe wants {facts.user} to linger, and it doesn't", mend)
    if facts.removes_ipc is False:
        return passed("linger", node, f"{facts.user} does not linger, but RemoveIPC=no")
    rank = rank_of(looked, node)
    if rank is None:
        return unknown(
            "linger", node, f"{facts.user} does not linger; whether the container would lose by it is not known", mend
        )
    user = rank.container.user.partition(":")[0]
    shares = rank.container.host.get("IpcMode") == "host"
    if not shares or user in ("", "0", "root"):
        why = "has IPC of its own" if not shares else "runs as root, whose objects are left"
        return passed("linger", node, f"{facts.user} does not linger, but the container {why}")
    return warned(
        "linger",
        node,
        f"{facts.user} does not linger and RemoveIPC is on: at the last logout logind removes the semaphores of a "
        f"container with --ipc=host and user {user}, and its worker dies with FileNotFoundError",
        mend,
    )


# --- the port


def listening(text: object) -> frozenset[int]:
    """The ports of every listening socket of /proc/net/tcp or tcp6, whatever the address: an engine takes all."""
    found = set()
    for line in text.splitlines()[1:] if isinstance(text, str) else ():
        words = line.split()
        port = words[1].rpartition(":")[2] if len(words) > 3 and words[3] == _LISTENS else ""
        if re.fullmatch(r"[0-9A-F]{4}", port):
            found.add(int(port, 16))
    return frozenset(found)


def _port(looked: Looked) -> Gate:
    node, port = looked.head, port_of(looked.order, looked.rendered)
    asked = [port_ask(node, path) for path in _TABLES]
    heard = [said for ask in asked if isinstance(said := looked.survey.value(ask), str)]
    taken = frozenset[int]().union(*map(listening, heard))
    view = looked.view(node)
    holders = [one for one in view.engines if is_alive(one) and port in _ports(one)] if view is not None else []
    going = [one.name for one in holders if looked.is_stopped(node, one.name, _box(one))]
    staying = [one.name for one in holders if one.name not in going]
    other = f"--set port={_free_port(looked, port, taken)}"
    if staying:
        stops = " ".join(f"--stop {shlex.quote(one)}" for one in staying)
        return failed("port", node, f"port {port} is held by {' and '.join(staying)}", f"{stops}, or {other}")
    if port in taken and not going:
        return _not_ours(looked, node, port, other)
    if going:
        return passed("port", node, f"port {port} is free when {' and '.join(going)} is stopped")
    if not heard:
        why = why_not(looked.survey, asked[0], "it was not asked")
        return unknown("port", node, f"whether port {port} is free is not known: {why}")
    return passed("port", node, f"port {port} is free")


def _ports(engine: Engine) -> frozenset[int]:
    """Those of the node's that it has, or will have when it has loaded."""
    box = engine.container
    if box is None or box.network_mode == "host":
        return frozenset((engine.endpoint.port,)) if engine.endpoint is not None else frozenset()
    return frozenset((box.published_ports or {}).values())


def _box(engine: Engine) -> str:
    return engine.container.name if engine.container else ""


def _not_ours(looked: Looked, node: str, port: int, other: str) -> Gate:
    """A port that no engine has: what has it is for its owner to end."""
    box = next((one for one in rows(looked, node) or () if port in _published(one)), None)
    if box is None:
        holder, by_hand = "a process that is no engine", f"sudo ss -ltnp 'sport = :{port}'   # tells which"
    else:
        name = (names_of(box) or ("?",))[0]
        holder = f"the container {name}, which is no engine that sparktop knows"
        by_hand = f"docker stop {shlex.quote(name)}"
    return failed("port", node, f"port {port} is held by {holder}", f"{other}, or on {node}: {by_hand}")


def _free_port(looked: Looked, port: int, taken: frozenset[int]) -> int:
    """The next that nobody has on any of the nodes, as far as is known, and that no rank meets at."""
    there = {*taken, MASTER_PORT, RAY_PORT}
    for node in looked.nodes:
        view = looked.view(node)
        there.update(*(_ports(one) for one in (view.engines if view is not None else ()) if is_alive(one)))
        there.update(*(_published(row) for row in rows(looked, node) or ()))
    return next((one for one in (*range(port + 1, 65536), *range(1024, port)) if one not in there), port)


def _published(row: Mapping[str, Any]) -> frozenset[int]:
    """The node's ports that Docker publishes for a listed container."""
    found = row.get("Ports")
    ports = [one.get("PublicPort") for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    return frozenset(port for port in ports if isinstance(port, int))
