"""Rule on variables and flags that must be the same on all ranks, except those of each host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from sparktop.diagnose.rule import live_rule
from sparktop.engines.pair import MASK, Team, engine_evidence, variables, whole
from sparktop.knowledge.card import found
from sparktop.model.change import Change
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState

_PREFIXES = (
    "NCCL_", "GLOO_", "TP_", "VLLM_", "SGLANG_", "SGL_", "RAY_", "UCX_", "TORCH_", "PYTORCH_", "CUDA_", "FLASHINFER_",
    "TRITON_", "OMP_",
)  # fmt: skip
PER_HOST = frozenset(
    {
        "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "VLLM_HOST_IP",
        "RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS", "SGLANG_HOST_IP", "SGLANG_LOCAL_IP_NIC", "NCCL_IB_HCA",
        "NCCL_IB_GID_INDEX", "NCCL_OOB_NET_IFNAME", "CUDA_VISIBLE_DEVICES", "VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL",
        "RAY_ADDRESS", "SGLANG_DP_RANK", "TORCH_NCCL_RANK",
    }
)  # fmt: skip
"""Settings of each host (docs/facts/engines.md section 4.5); other rules check the HCA and the GID index."""
_HARMLESS = (
    "_DEBUG",
    "_LOG",
    "LOGGING",
    "_CACHE",
    "_DIR",
    "_FILE",
    "_PATH",
    "_USAGE",
    "_PORT",
    "_VERSION",
    "_BUILD",
    "_COMMIT",
)
"""Settings that affect logs or paths, not what the ranks exchange."""
_SHARED_FLAGS: tuple[tuple[str, ...], ...] = (
    ("--tensor-parallel-size",),
    ("--pipeline-parallel-size",),
    ("--nnodes",),
    ("--master-addr",),
    ("--master-port",),
    ("--dist-init-addr", "--nccl-init-addr"),
    ("--dtype",),
    ("--quantization",),
    ("--kv-cache-dtype",),
    ("--max-model-len", "--context-length"),
    ("--block-size", "--page-size"),
    ("--attention-backend",),
    ("--moe-backend", "--moe-runner-backend"),
    ("--linear-backend",),
    ("--speculative-config",),
    ("--speculative-algorithm",),
    ("--compilation-config", "-O"),
    ("--distributed-executor-backend",),
)
_SHARED_SWITCHES = ("--enforce-eager", "--disable-cuda-graph", "--enable-expert-parallel", "--enable-dp-attention")
_SHARES = ("--gpu-memory-utilization", "--mem-fraction-static")
"""A host may have its own; a rank without one takes its engine's default, which rarely fits beside what else runs."""
MOST_SHOWN = 8


@live_rule("cluster.environment-differs", hold_s=1.0)
def environment_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.environment-differs: variables or flags that all ranks must share differ."""
    for team in whole(fleet):
        for pair in team.pairs:
            yield from _differing(pair)


def _differing(pair: Team) -> Iterator[Finding]:
    differing = {**_differing_variables(pair), **_differing_flags(pair)}
    if not differing:
        return
    names = list(differing)
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    yield found(
        "cluster.environment-differs",
        "differ",
        {
            "pair": pair.name,
            "listed": listed,
            "worker": pair.worker.node.name,
            "change": _to_head_values(pair, differing),
        },
        evidence=tuple(
            engine_evidence(rank, f"{name} {_value_text(values[index])}")
            for name, values in list(differing.items())[:MOST_SHOWN]
            for index, rank in enumerate(pair.ranks)
        ),
        nodes=pair.nodes,
        subject=pair.name,
    )


def _differing_variables(pair: Team) -> Mapping[str, tuple[str | None, str | None]]:
    first, second = (variables(rank) for rank in pair.ranks)
    if not first or not second:
        return {}
    names = sorted(
        name
        for name in first.keys() | second.keys()
        if name.startswith(_PREFIXES) and name not in PER_HOST and not any(word in name for word in _HARMLESS)
    )
    values = {name: (first.get(name), second.get(name)) for name in names}
    return {
        name: pair_values
        for name, pair_values in values.items()
        if pair_values[0] != pair_values[1] and MASK not in pair_values
    }


def _differing_flags(pair: Team) -> Mapping[str, tuple[str | None, str | None]]:
    if not all(any(word in ("serve", "sglang.launch_server") for word in rank.engine.argv) for rank in pair.ranks):
        return {}  # a Ray worker gets its configuration from the head
    first, second = (rank.engine.command for rank in pair.ranks)
    values_by_flag = {
        next((name for name in names if first.has(name) or second.has(name)), names[0]): (
            first.value(*names),
            second.value(*names),
        )
        for names in _SHARED_FLAGS
    }
    for name in _SHARES:
        if first.has(name) != second.has(name):
            values_by_flag[name] = (first.value(name), second.value(name))
    for name in _SHARED_SWITCHES:
        values_by_flag[name] = ("given" if first.has(name) else None, "given" if second.has(name) else None)
    return {
        name: pair_values
        for name, pair_values in values_by_flag.items()
        if _plain(pair_values[0]) != _plain(pair_values[1])
    }


def _to_head_values(pair: Team, differing: Mapping[str, tuple[str | None, str | None]]) -> Change:
    """The change that gives the other rank the head's values, and the head a memory share that only the other has."""
    head_values = {name: values[0] for name, values in differing.items()}
    flags = {name: value for name, value in head_values.items() if name.startswith("-")}
    environment = {name: value for name, value in head_values.items() if name not in flags}
    own_share = {name: differing[name][1] for name in _SHARES if name in flags and flags[name] is None}
    other_flags = {
        name: "" if name in _SHARED_SWITCHES and value else value
        for name, value in flags.items()
        if name not in own_share
    }
    by_node = {pair.worker.node.name: Change(environment=environment, flags=other_flags)}
    if own_share:
        by_node[pair.head.node.name] = Change(flags=own_share)
    return Change(by_node=by_node)


def _plain(value: str | None) -> object:
    """JSON is compared by value, not by spacing."""
    if value is not None and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _value_text(value: str | None) -> str:
    return "is not set" if value is None else f"= {value[:120]}"
