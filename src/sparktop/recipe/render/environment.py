"""Environment variables of each rank: what its node needs, the recipe's own, and the operator's secrets.

Names of interfaces, RDMA devices and GIDs are detected on the node, never taken from a file: they differ from machine
to machine (docs/facts/engines.md 4.5, docs/facts/gb10.md section 5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from sparktop.dataclass import dataclass
from sparktop.masking import is_secret_name
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order
from sparktop.recipe import template
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.operator_secrets import REFERENCE, env_path

HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
HUB = "https://huggingface.co"
NODES_OWN = frozenset({
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include",
    "VLLM_HOST_IP", "RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS", "MASTER_ADDR", "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
})  # fmt: skip
"""Variables that only the node can set: a recipe's value is another machine's."""
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The environment of one rank."""

    environment: Mapping[str, str] = field(repr=False)
    secret_names: tuple[str, ...] = ()
    detected_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Which of the recipe's settings were not used, and why."""


def node_parameters(node: NodeContext, nodes: Sequence[NodeContext]) -> dict[str, str]:
    """The parameters a template may use for the node it runs on."""
    return {
        "node_rank": str(node.index),
        "num_nodes": str(len(nodes)),
        "fabric_ip": node.fabric_ip,
        "fabric_interface": node.fabric_interface,
        "hcas": ",".join(node.hcas),
        "head_ip": nodes[0].fabric_ip,
    }


def variables(
    order: Order,
    values: Mapping[str, str],
    node: NodeContext,
    nodes: Sequence[NodeContext],
    *,
    executor: Executor,
    own: Mapping[str, str] | None = None,
) -> Variables:
    """The environment of one rank.

    Args:
        values: every parameter's final value.
        own: variables that the command sets before itself or the container needs; the recipe's `env` overrides them.

    Raises:
        CannotRender: a secret that the recipe uses is missing, or a name is no variable's.
    """
    recipe = order.recipe
    detected = _detected_variables(node, nodes, recipe.engine, executor) if len(nodes) > 1 else {}
    environment = {**_shared_variables(recipe.engine, executor, nodes), **detected, **(own or {})}
    secrets: list[str] = []
    notes: list[str] = []
    if node.has_all:
        environment["HF_HUB_OFFLINE"] = "1"
    else:
        if order.hub.rstrip("/") != HUB:
            environment["HF_ENDPOINT"] = order.hub
        if token := order.secrets.get("HF_TOKEN"):
            environment["HF_TOKEN"] = token
    name = recipe.engine.traits.key_variable
    if name and node.index == 0 and (key := order.secrets.get(name)):
        environment[name] = key
    for name, text in recipe.environment.items():
        if name in HUB_TOKENS and (node.has_all or _names_missing_token(text, order.secrets)):
            continue  # not needed, or only for a gated model, which a pre-launch check covers
        value = _fill(name, text, values, order.secrets)
        if len(nodes) > 1 and name in NODES_OWN and environment.get(name) != value:
            notes.append(_override_note(name, value, environment.get(name), node))
            continue
        environment[name] = value
    for name, text in recipe.node_environment.items():
        environment[name] = _fill(name, text, {**values, **node_parameters(node, nodes)}, order.secrets)
    secret_values = {value for value in order.secrets.values() if value}
    for name, value in environment.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise CannotRender(f"env: {name[:60]!r} is not a variable name, or its value has a NUL character")
        if value and (is_secret_name(name) or any(secret in value for secret in secret_values)):
            secrets.append(name)
    return Variables(
        environment=environment,
        secret_names=tuple(secrets),
        detected_names=tuple(name for name in detected if name not in recipe.node_environment),
        notes=tuple(notes),
    )


def _names_missing_token(text: str, secrets: Mapping[str, str]) -> bool:
    named = {match["braced"] or match["plain"] for match in REFERENCE.finditer(text)}
    return bool(named) and named <= set(HUB_TOKENS) - set(secrets)


def _shared_variables(engine: EngineKind, executor: Executor, nodes: Sequence[NodeContext]) -> dict[str, str]:
    """Variables that are the same on all of several nodes; a ring's are in docs/facts/bringup.md section 9."""
    if len(nodes) < 2:
        return {}
    environment = {"NCCL_IB_DISABLE": "0", "NCCL_NET_PLUGIN": "none", "NCCL_IGNORE_CPU_AFFINITY": "1"}
    if any(node.is_ring for node in nodes):
        environment |= {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0"}
        environment |= {"NCCL_ALGO": "Ring"} if len(nodes) > 3 else {}  # of three, each has a cable to each
    if executor is Executor.RAY and engine is EngineKind.VLLM:
        environment |= {
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_num_prestart_python_workers": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
    return environment


def _detected_variables(
    node: NodeContext, nodes: Sequence[NodeContext], engine: EngineKind, executor: Executor
) -> dict[str, str]:
    environment = {"MASTER_ADDR": nodes[0].fabric_ip}
    if node.fabric_interface:
        names = "NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME UCX_NET_DEVICES OMPI_MCA_btl_tcp_if_include"
        environment |= dict.fromkeys(names.split(), node.fabric_interface)
    if engine is EngineKind.VLLM:
        environment["VLLM_HOST_IP"] = node.fabric_ip
    if executor is Executor.RAY:
        environment |= dict.fromkeys(("RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS"), node.fabric_ip)
    if node.hcas:
        environment["NCCL_IB_HCA"] = ",".join(node.hcas)
    indices = {other.gid_index for other in nodes}
    if len(indices) == 1 and node.gid_index is not None:
        environment["NCCL_IB_GID_INDEX"] = str(node.gid_index)
    return environment


def _override_note(name: str, value: str, detected: str | None, node: NodeContext) -> str:
    if detected is None:
        return f"sparktop leaves out the recipe's {name}={value} on {node.node}: it differs between machines"
    return f"sparktop sets {name}={detected} on {node.node}, not the recipe's {value}: it differs between machines"


def _fill(name: str, text: str, values: Mapping[str, str], secrets: Mapping[str, str]) -> str:
    """A value with its {parameters} and $VARIABLES filled in; the values of variables are not expanded again."""
    pieces: list[str] = []
    end = 0
    for reference in REFERENCE.finditer(text):
        secret = reference["braced"] or reference["plain"]
        value = secrets.get(secret) or reference["default"]
        if value is None:
            raise CannotRender(
                f"the recipe's env takes {name} from your ${secret}, which isn't set",
                f"export {secret} before you start sparktop, or add {secret}=... to {env_path()} (mode 0600)",
            )
        pieces += [template.fill(text[end : reference.start()], values), value]
        end = reference.end()
    return "".join((*pieces, template.fill(text[end:], values)))
