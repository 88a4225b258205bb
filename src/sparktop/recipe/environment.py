"""The variables of each rank: what its node needs, what the recipe says, and the operator's secrets. Pure.

Names of interfaces, RDMA devices and GIDs come from what was detected on the node, never from a file: they differ from
machine to machine (facts/engines.md 4.5, facts/gb10.md section 5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order
from sparktop.probe.remote import is_secret_name
from sparktop.recipe import template
from sparktop.recipe.ownsecrets import place
from sparktop.recipe.rendered import CannotRender, Seat

HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
HUB = "https://huggingface.co"
NODES_OWN = frozenset({
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include",
    "VLLM_HOST_IP", "RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS", "MASTER_ADDR", "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
})  # fmt: skip
"""What only the node can tell: a recipe's own value is another machine's."""
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """Of one rank."""

    environment: Mapping[str, str] = field(repr=False)
    secret_names: tuple[str, ...] = ()
    detected_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Where the recipe's own words were not taken, and why."""


def node_parameters(seat: Seat, seats: Sequence[Seat]) -> dict[str, str]:
    """What a template may name of the node it runs on."""
    return {
        "node_rank": str(seat.index),
        "num_nodes": str(len(seats)),
        "fabric_ip": seat.fabric_ip,
        "fabric_interface": seat.fabric_interface,
        "hcas": ",".join(seat.hcas),
        "head_ip": seats[0].fabric_ip,
    }


def variables(
    order: Order,
    values: Mapping[str, str],
    seat: Seat,
    seats: Sequence[Seat],
    *,
    executor: Executor,
    own: Mapping[str, str] | None = None,
) -> Variables:
    """The environment of one rank.

    Args:
        values: every parameter as it is used.
        own: what the command sets before itself, and what the container needs; the recipe's `env` wins over it.

    Raises:
        CannotRender: a secret that the recipe names is not given, or a name that can't be a variable's.
    """
    recipe = order.recipe
    detected = _detected(seat, seats, recipe.engine, executor) if len(seats) > 1 else {}
    found = {**_shared(recipe.engine, executor, len(seats)), **detected, **(own or {})}
    secrets: list[str] = []
    notes: list[str] = []
    if seat.has_all:
        found["HF_HUB_OFFLINE"] = "1"
    else:
        if order.hub.rstrip("/") != HUB:
            found["HF_ENDPOINT"] = order.hub
        if token := order.secrets.get("HF_TOKEN"):
            found["HF_TOKEN"] = token
    if recipe.engine is EngineKind.VLLM and seat.index == 0 and (key := order.secrets.get("VLLM_API_KEY")):
        found["VLLM_API_KEY"] = key
    for name, text in recipe.environment.items():
        if name in HUB_TOKENS and (seat.has_all or _names_missing_token(text, order.secrets)):
            continue  # not needed, or only for a gated model, which is a gate's matter
        value = _filled(name, text, values, order.secrets)
        if len(seats) > 1 and name in NODES_OWN and found.get(name) != value:
            notes.append(_taken_over(name, value, found.get(name), seat))
            continue
        found[name] = value
    for name, text in recipe.node_environment.items():
        found[name] = _filled(name, text, {**values, **node_parameters(seat, seats)}, order.secrets)
    known = {value for value in order.secrets.values() if value}
    for name, value in found.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise CannotRender(f"env: {name[:60]!r} can't be a variable's name, or its value holds a NUL")
        if value and (is_secret_name(name) or any(secret in value for secret in known)):
            secrets.append(name)
    return Variables(
        environment=found,
        secret_names=tuple(secrets),
        detected_names=tuple(name for name in detected if name not in recipe.node_environment),
        notes=tuple(notes),
    )


def _names_missing_token(text: str, secrets: Mapping[str, str]) -> bool:
    named = {found[1] or found[2] for found in _REFERENCE.finditer(text)}
    return bool(named) and named <= set(HUB_TOKENS) - set(secrets)


def _shared(engine: EngineKind, executor: Executor, nodes: int) -> dict[str, str]:
    """What is the same on every node of two."""
    if nodes < 2:
        return {}
    found = {"NCCL_IB_DISABLE": "0", "NCCL_NET_PLUGIN": "none", "NCCL_IGNORE_CPU_AFFINITY": "1"}
    if executor is Executor.RAY and engine is EngineKind.VLLM:
        found |= {
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_num_prestart_python_workers": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
    return found


def _detected(seat: Seat, seats: Sequence[Seat], engine: EngineKind, executor: Executor) -> dict[str, str]:
    found = {"MASTER_ADDR": seats[0].fabric_ip}
    if seat.fabric_interface:
        names = "NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME UCX_NET_DEVICES OMPI_MCA_btl_tcp_if_include"
        found |= dict.fromkeys(names.split(), seat.fabric_interface)
    if engine is EngineKind.VLLM:
        found["VLLM_HOST_IP"] = seat.fabric_ip
    if executor is Executor.RAY:
        found |= dict.fromkeys(("RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS"), seat.fabric_ip)
    if seat.hcas:
        found["NCCL_IB_HCA"] = ",".join(seat.hcas)
    indices = {each.gid_index for each in seats}
    if len(indices) == 1 and seat.gid_index is not None:
        found["NCCL_IB_GID_INDEX"] = str(seat.gid_index)
    return found


def _taken_over(name: str, value: str, ours: str | None, seat: Seat) -> str:
    if ours is None:
        return f"{name}={value} of the recipe is left out on {seat.node}: it differs between machines"
    return f"{name} is {ours} on {seat.node}, not the recipe's {value}: it differs between machines"


def _filled(name: str, text: str, values: Mapping[str, str], secrets: Mapping[str, str]) -> str:
    """A value with its {parameters} and the operator's own $VARIABLES; what these hold is not looked at again."""
    pieces: list[str] = []
    done = 0
    for found in _REFERENCE.finditer(text):
        wanted = found[1] or found[2]
        if wanted not in secrets:
            raise CannotRender(
                f"the recipe's env takes {name} from your own ${wanted}, which isn't set",
                f"export {wanted} before you start sparktop, or a line {wanted}=... in {place()} (mode 0600)",
            )
        pieces += [template.fill(text[done : found.start()], values), secrets[wanted]]
        done = found.end()
    return "".join((*pieces, template.fill(text[done:], values)))
