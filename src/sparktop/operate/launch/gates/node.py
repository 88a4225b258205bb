"""Gates on the nodes: driver, logind's linger, the port, and what several nodes must have in common."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import chain

from sparktop.checks.host import (
    DRIVER_BACK_STEP,
    SUPPORTED_BRANCH,
    DriverFacts,
    LingerFacts,
    judge_driver_branch,
    judge_driver_pending,
    judge_linger,
)
from sparktop.checks.judgement import worst
from sparktop.checks.node_facts import COMPONENTS, versions
from sparktop.checks.parity import MemoryFacts, judge_memory_parity
from sparktop.engines.ranks import is_alive
from sparktop.model.engine import Engine
from sparktop.model.fleet import NodeView
from sparktop.model.prospect import Gate, Lever, SliceKind
from sparktop.model.state import State
from sparktop.model.survey import FileText
from sparktop.operate.launch.gates.docker import rank_of
from sparktop.operate.launch.inputs.gate_inputs import (
    GateInputs,
    judged,
    passed,
    port_of,
    taken,
    told,
    unknown,
)
from sparktop.recipe.render.rank_argv import MASTER_PORT, RAY_PORT
from sparktop.text.sentences import listed
from sparktop.text.units import GIB, gib

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


_LISTEN_STATE = "0A"


def port_question(node: str, path: str) -> FileText:
    return FileText(node=node, path=path, limit_bytes=1 << 21)


def driver_gates(inputs: GateInputs) -> Iterator[Gate]:
    required = inputs.order.recipe.requires.driver
    return (driver_gate(node, inputs.view(node), required) for node in inputs.nodes)


def linger_gates(inputs: GateInputs) -> Iterator[Gate]:
    return (_linger(inputs, node) for node in inputs.nodes)


# --- driver


def driver_gate(node: str, view: NodeView | None, required: str = "") -> Gate:
    """Whether the node's driver is loaded, supported, and of the branch or version that is `required`."""
    if view is None:
        return unknown(node, "which NVIDIA driver is loaded is not known: not read yet")
    pending, branch = judge_driver_pending(view), judge_driver_branch(DriverFacts(node=view, required=required))
    is_pending = pending.is_problem and worst(pending, branch) is pending
    return told(
        node,
        judge_driver_pending if is_pending else judge_driver_branch,
        pending if is_pending else branch,
        version=view.driver_version,
        loaded=view.driver_version,
        refuses="is_refused" in pending.figures,
        installed=view.facts.driver_installed if view.facts else "",
        required=required,
        branch=SUPPORTED_BRANCH,
        back=DRIVER_BACK_STEP,
    )


# --- logind


def _linger(inputs: GateInputs, node: str) -> Gate:
    """logind removes a user's IPC objects at the last logout, except root's and those of other namespaces."""
    host = inputs.view(node).facts
    if host is None:
        return unknown(node, f"{node} has told nothing yet")
    rank = rank_of(inputs, node)
    container_user = rank.container.user.partition(":")[0] or "root" if rank is not None else ""
    facts = LingerFacts(
        host=host,
        shares_ipc=rank.container.host.get("IpcMode") == "host" if rank is not None else None,
        engine_user_id=0 if container_user == "root" else int(container_user) if container_user.isdecimal() else None,
        is_required=inputs.order.recipe.requires.linger,
    )
    judgement = judge_linger(facts)
    return told(node, judge_linger, judgement, user=host.user or "$USER", engine_user=container_user)


# --- the port


def listening(text: str) -> frozenset[int]:
    """Ports of the listening sockets in /proc/net/tcp or tcp6, on any address: an engine listens on all."""
    ports = set()
    for line in text.splitlines()[1:]:
        words = line.split()
        port = words[1].rpartition(":")[2] if len(words) > 3 and words[3] == _LISTEN_STATE else ""
        if re.fullmatch(r"[0-9A-F]{4}", port):
            ports.add(int(port, 16))
    return frozenset(ports)


def port_gate(inputs: GateInputs) -> Gate:
    """Whether the port is free on the head."""
    node, port = inputs.head, port_of(inputs.values, inputs.rendered)
    port_questions = [port_question(node, path) for path in _TABLES]
    tables = [table for table in map(inputs.survey.text, port_questions) if table is not None]
    used_ports = frozenset[int]().union(*map(listening, tables))
    holders = [engine for engine in inputs.view(node).engines if is_alive(engine) and port in _ports(engine)]
    stopped = [engine.name for engine in holders if inputs.is_stopped(node, engine.name, _container_name(engine))]
    staying = [engine.name for engine in holders if engine.name not in stopped]
    other_port = Lever(values={"port": str(_free_port(inputs, port, used_ports))})
    if staying:
        return taken(node, f"port {port} is held by {' and '.join(staying)}", other_port, by=staying)
    if port in used_ports and not stopped:
        return _foreign_port(inputs, node, port, other_port)
    if stopped:
        return passed(node, f"port {port} is free when {' and '.join(stopped)} is stopped")
    if not tables:
        why = inputs.survey.problem(port_questions[0]) or "it was not asked"
        return unknown(node, f"whether port {port} is free is not known: {why}")
    return passed(node, f"port {port} is free")


def _ports(engine: Engine) -> frozenset[int]:
    """Ports of the node that the engine has, or will have once loaded."""
    container = engine.container
    if container is None or container.network_mode == "host":
        return frozenset((engine.endpoint.port,)) if engine.endpoint is not None else frozenset()
    return frozenset((container.published_ports or {}).values())


def _container_name(engine: Engine) -> str:
    return engine.container.name if engine.container else ""


def _foreign_port(inputs: GateInputs, node: str, port: int, other_port: Lever) -> Gate:
    """The port is in use by something that is no engine: only its owner can stop it."""
    row = next((candidate for candidate in inputs.containers(node) if port in candidate.ports), None)
    if row is None:
        holder, by_hand = "a process that is not an engine", f"sudo ss -ltnp 'sport = :{port}'   # tells which"
    else:
        name = (row.names or ("?",))[0]
        holder = f"the container {name}, which sparktop doesn't know as an engine"
        by_hand = f"docker stop {shlex.quote(name)}"
    return taken(node, f"port {port} is held by {holder}", other_port, by_hand=by_hand)


def _free_port(inputs: GateInputs, port: int, used_ports: frozenset[int]) -> int:
    """The next port that is free on every node, as far as is known, and that ranks don't meet at."""
    avoided = {*used_ports, MASTER_PORT, RAY_PORT}
    for node in inputs.nodes:
        avoided.update(*(_ports(engine) for engine in inputs.view(node).engines if is_alive(engine)))
        avoided.update(*(row.ports for row in inputs.containers(node)))
    candidates = chain(range(port + 1, 65536), range(1024, port))
    return next((candidate for candidate in candidates if candidate not in avoided), port)


_UPDATE_OLDER = "update the older node in the DGX Dashboard (localhost:11000), then: sparktop act reboot {}"


def memory_gates(inputs: GateInputs) -> Iterator[Gate]:
    if len(inputs.nodes) > 1:
        yield _memory(inputs)


def software_gates(inputs: GateInputs) -> Iterator[Gate]:
    if len(inputs.nodes) > 1:
        yield _software(inputs)


def _memory(inputs: GateInputs) -> Gate:
    """Compares available memory, including what stopped engines free (docs/facts/engines.md MEM-09)."""
    sizes: dict[str, float] = {}
    for node in inputs.nodes:
        sample = inputs.view(node).sample
        if sample is None:
            return unknown("", f"how much memory {node} has available is not known yet")
        sizes[node] = sample.memory.available_bytes + _freed_bytes(inputs, node)
    limit = inputs.order.recipe.requires.equal_memory_gib
    judgement = judge_memory_parity(MemoryFacts(available=tuple(sizes.values()), limit_gib=limit))
    sizes_text = ", ".join(f"{gib(size)} on {node}" for node, size in sizes.items())
    apart = float(judgement.figures["apart_bytes"]) / GIB
    if not judgement.is_problem:
        return judged("", judgement, f"{sizes_text} available, {apart:.1f} apart")
    poorer = inputs.nodes[int(judgement.figures["poorer"])]
    return judged(
        "",
        judgement,
        f"{sizes_text} available: {apart:.1f} GiB apart, more than {limit:g}; the share is that of the poorer, and one "
        "rank loads later than another",
        f"sparktop act drop-caches {poorer}",
        f"or stop other engines on {poorer}: --stop ENGINE",
    )


def _freed_bytes(inputs: GateInputs, node: str) -> int:
    budget = inputs.budget_of(node)
    return sum(item.size_bytes for item in budget.before if item.kind is SliceKind.TO_BE_STOPPED) if budget else 0


def _software(inputs: GateInputs) -> Gate:
    views = [inputs.view(node) for node in inputs.nodes]
    if (silent := next((view.name for view in views if view.facts is None), None)) is not None:
        return unknown("", f"{silent} has told nothing yet")
    judged_versions = {component: versions(component, *views) for component in COMPONENTS}
    differing = {
        component: f"{component} {_by_version(dict(zip(views, node_versions, strict=True)))}"
        for component, (node_versions, judgement) in judged_versions.items()
        if "older" in judgement.figures
    }
    differences = "; ".join(differing.values())
    problem = next((judgement for _, judgement in judged_versions.values() if judgement.is_problem), None)
    if problem is not None:
        older = views[int(problem.figures["older"])]
        return judged("", problem, f"{differences}: each has its own faults", _UPDATE_OLDER.format(older.name))
    if (driver := judged_versions["driver"][1]).state is State.UNKNOWN:
        return judged("", driver, "which driver each has is not known")
    alike = ", ".join(
        f"{component} {first_version}"
        for component, ((first_version, *_), _) in judged_versions.items()
        if first_version and component not in differing
    )
    harmless = f"; {differences}, harmless by itself" if differing else ""
    return passed("", f"{alike} on {'both' if len(views) == 2 else 'all'}{harmless}")


def _by_version(versions_of: Mapping[NodeView, str]) -> str:
    """ "580.159 on spark1 and spark3 and 580.95 on spark2"."""
    return " and ".join(
        f"{version} on {listed(view.name for view, own in versions_of.items() if own == version)}"
        for version in dict.fromkeys(versions_of.values())
    )
