"""What both ranks of an engine must have been told alike: variables and flags, but for each host's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from sparktop.diagnose.live.pair import MASK, Pair, pair_of, variables
from sparktop.diagnose.live.ranks import flag, has_flag
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
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
"""Each host's own (facts/engines.md section 4.5); what the HCA and the GID index must be, other rules know."""
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
"""They change what is written, or where things lie, and not what the ranks say to one another."""
_SHARED_FLAGS: tuple[tuple[str, ...], ...] = (
    ("--tensor-parallel-size", "-tp", "--tp", "--tp-size"),
    ("--pipeline-parallel-size", "-pp", "--pp-size"),
    ("--nnodes",),
    ("--master-addr",),
    ("--master-port",),
    ("--dist-init-addr", "--nccl-init-addr"),
    ("--dtype",),
    ("--quantization", "-q"),
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
MOST_SHOWN = 8


def environment_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.environment-differs: variables or flags that both ranks must share are not the same."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
    differing = {**_variables_apart(pair), **_flags_apart(pair)}
    if not differing:
        return
    names = list(differing)
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    yield Finding(
        rule="cluster.environment-differs",
        severity=Severity.WARNING,
        title=f"The ranks of {pair.name} were started differently: {listed}",
        explanation=(
            "Both ranks must take the same decisions at the same step: which kernels, which graphs, which NCCL "
            "settings. Where one was told otherwise they wait for one another, or give wrong results without a word. "
            "Variables that name this host's own interface or address may differ, and are left out here."
        ),
        evidence=tuple(
            Evidence(source=f"{rank.engine.name} @ {rank.node.name}", text=f"{name} {_shown(values[index])}")
            for name, values in list(differing.items())[:MOST_SHOWN]
            for index, rank in enumerate(pair.ranks)
        ),
        remedies=(
            Remedy(
                title="Start both ranks with the same variables and flags",
                steps=(
                    "write them once, in one file that both start scripts read",
                    f"start both ranks again; here {pair.other(pair.head).node.name} is given what rank 0 was",
                ),
                cost="the time to load",
                action="relaunch",
                change=_as_the_head(pair, differing),
            ),
        ),
        references=("NVIDIA/dgx-spark-playbooks two-node scripts", "vllm-project/vllm#40991"),
        nodes=pair.nodes,
        subject=pair.name,
        brief=listed,
    )


def _variables_apart(pair: Pair) -> Mapping[str, tuple[str | None, str | None]]:
    one, other = (variables(rank) for rank in pair.ranks)
    if not one or not other:
        return {}
    wanted = sorted(
        name
        for name in one.keys() | other.keys()
        if name.startswith(_PREFIXES) and name not in PER_HOST and not any(word in name for word in _HARMLESS)
    )
    values = {name: (one.get(name), other.get(name)) for name in wanted}
    return {name: both for name, both in values.items() if both[0] != both[1] and MASK not in both}


def _flags_apart(pair: Pair) -> Mapping[str, tuple[str | None, str | None]]:
    one, other = (rank.engine.argv for rank in pair.ranks)
    if not all(any(word in ("serve", "sglang.launch_server") for word in argv) for argv in (one, other)):
        return {}  # a Ray worker gets its orders from the head
    found = {names[0]: (flag(one, *names), flag(other, *names)) for names in _SHARED_FLAGS}
    for name in _SHARED_SWITCHES:
        found[name] = tuple("given" if has_flag(argv, name) else None for argv in (one, other))  # type: ignore[assignment]
    return {name: both for name, both in found.items() if _plain(both[0]) != _plain(both[1])}


def _as_the_head(pair: Pair, differing: Mapping[str, tuple[str | None, str | None]]) -> Change:
    """What makes the other rank's launch say what the head's does."""
    at = 0 if pair.ranks[0] is pair.head else 1
    wanted = {name: both[at] for name, both in differing.items()}
    flags = {name: value for name, value in wanted.items() if name.startswith("-")}
    given = {name: "" if name in _SHARED_SWITCHES and value else value for name, value in flags.items()}
    environment = {name: value for name, value in wanted.items() if name not in flags}
    return Change(by_node={pair.other(pair.head).node.name: Change(environment=environment, flags=given)})


def _plain(value: str | None) -> object:
    """JSON by what it says, not by its spaces."""
    if value is not None and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _shown(value: str | None) -> str:
    return "is not set" if value is None else f"= {value[:120]}"
