"""Lints of two Sparks as one engine: graphs, time-outs, networks (facts/engines.md 1C, 4.5, conflicts C1, C4)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.diagnose.lint.changes import removed, replaced, with_flag, with_option, with_variable, with_variables
from sparktop.diagnose.lint.images import at_least, is_moe, model_name
from sparktop.diagnose.lint.lintrule import Lint, card, change, claim
from sparktop.diagnose.lint.memoryrules import OPEN
from sparktop.diagnose.lint.spec import Family, Launcher, LaunchSpec, SourceKind
from sparktop.diagnose.rule import Rule
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_SETS_NETWORK = (Launcher.EUGR, Launcher.SPARKRUN)
"""Launchers that find interfaces and set NCCL's variables themselves."""
_GRAPHS_OFF = ("none", "0")
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_ELSEWHERE = "the variables that are set elsewhere: see the running engine's environment"

_SGLANG_GRAPHS = card(
    "sglang-graphs-two-nodes",
    Severity.WARNING,
    "SGLang over two nodes captures CUDA graphs, which has deadlocked on Sparks",
    "SGLang on two nodes; seen on 0.5.12",
    "field report 003",
    "sgl-project/sglang#19991",
)
_VLLM_GRAPHS = card(
    "vllm-graphs-two-nodes",
    Severity.WARNING,
    "Full CUDA graphs across two nodes have hung or slowed vLLM on Sparks",
    "vLLM on two nodes with NCCL before 2.30.4; needed for MiniMax models",
    "field report 003",
    "vllm-project/vllm#52504",
    "eugr/spark-vllm-docker#35",
)
_DIST_TIMEOUT = card(
    "dist-timeout-absent",
    Severity.INFO,
    "Two nodes that load at different speeds may run into the rank time-out",
    "SGLang on two nodes",
    "field report 003",
)
_NETWORK = card(
    "host-network",
    Severity.CRITICAL,
    "An engine over two nodes needs the host's network",
    "containers of an engine over two nodes",
    "field report 002",
)
_HCA = card(
    "nccl-ib-hca",
    Severity.WARNING,
    "NCCL isn't told which RDMA devices to use",
    "engines over two Sparks; NVIDIA's own two-node guide leaves it to NCCL",
    "field report 002",
)
_IFNAME = card(
    "socket-ifname",
    Severity.WARNING,
    "NCCL and Gloo aren't told which network connects the two Sparks",
    "engines over two Sparks",
    "field report 002",
    "vllm-project/vllm#40991",
)
_GID = card(
    "nccl-gid-index",
    Severity.WARNING,
    "NCCL_IB_GID_INDEX is fixed to a number that differs between machines",
    "engines over two Sparks",
    "field report 002",
    "NCCL documentation, NCCL_IB_GID_INDEX",
)
_IB_OFF = card(
    "nccl-ib-disabled",
    Severity.WARNING,
    "NCCL_IB_DISABLE=1 sends the traffic between two Sparks over TCP",
    "engines over two Sparks",
    "NCCL documentation, NCCL_IB_DISABLE",
    "field report 002",
)
_RDMA = card(
    "rdma-devices",
    Severity.WARNING,
    "The container has no RDMA devices: NCCL falls back to TCP without an error",
    "containers of an engine over two Sparks",
    "NVIDIA developer forum, thread 366325",
    "field report 002",
)
_MEMLOCK = card(
    "memlock",
    Severity.INFO,
    "RDMA may not be allowed to lock the memory it needs",
    "containers of an engine over two Sparks",
    "NCCL documentation, troubleshooting",
)
_RAY_MONITOR = card(
    "ray-memory-monitor",
    Severity.WARNING,
    "Ray's memory monitor kills workers when the shared memory is nearly full",
    "Ray on Sparks, set for `ray start` on every node",
    "field report 002",
    "NVIDIA/dgx-spark-playbooks",
)
_RAY_MISSING = card(
    "ray-missing",
    Severity.CRITICAL,
    "NVIDIA's 26.05 image has no Ray",
    "NVIDIA's vLLM images 26.05",
    "NVIDIA/dgx-spark-playbooks",
)


def _has_two(spec: LaunchSpec) -> bool:
    return spec.nodes > 1


def _sglang_graphs(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if spec.engine is not EngineKind.SGLANG or not _has_two(spec) or not spec.has_command:
        return
    if spec.flag("disable-cuda-graph") or spec.value("cuda-graph-backend-decode") == "disabled":
        return
    is_new = at_least(spec, "0.5.23")
    flags = "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"
    lines = with_flag(spec, "disable-cuda-graph")
    if is_new:
        lines = (
            *with_flag(spec, "cuda-graph-backend-decode", "disabled"),
            *with_flag(spec, "cuda-graph-backend-prefill", "disabled"),
        )
    yield claim(
        spec,
        rule,
        spec.flag("nnodes") or spec.flag("tensor-parallel-size"),
        explanation=(
            "The capture runs collective operations inside graphs, and the two ranks may wait for one another for "
            "ever: 0 of 36 sizes after 34 minutes, at 96 % SM and idle power. `--disable-cuda-graph` skips it "
            f"(from 0.5.23: `{flags}`; the old flag still works there). The variable SGLANG_DISABLE_CUDA_GRAPH has "
            "never done anything."
        ),
        settles=OPEN if spec.is_open else "a capture bar that stands at 0 for more than five minutes, at low power",
        remedies=[change("capture no graphs", *lines, cost="some speed of decoding")],
    )


def _vllm_graphs(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or not _has_two(spec) or not spec.has_command or spec.flag("enforce-eager"):
        return
    mode = spec.json("compilation-config").get("cudagraph_mode")
    if (mode is not None and not str(mode).lower().startswith("full")) or spec.launcher in _SETS_NETWORK:
        return
    item = spec.flag("compilation-config") or spec.flag("compilation-config.cudagraph_mode")
    is_minimax = "minimax" in model_name(spec)
    remedies = []
    if item is None:
        remedies.append(
            change(
                "run without graphs, compilation kept",
                *with_flag(spec, "compilation-config", '{"cudagraph_mode": "NONE"}'),
                cost="some speed, where graphs would have worked",
            )
        )
    else:
        remedies.append(Remedy(title='set "cudagraph_mode": "NONE" in --compilation-config', cost="some speed"))
    remedies.append(Remedy(title="or try PIECEWISE, which has not hung; it cost 12 to 20 % in one report"))
    remedies.append(Remedy(title="or use an image with NCCL 2.30.4 and try one request before relying on it"))
    yield claim(
        spec,
        rule,
        item or spec.flag("tensor-parallel-size") or spec.flag("nnodes"),
        severity=None if is_minimax and is_moe(spec) else Severity.INFO,
        explanation=(
            "The default captures full graphs with the collective operations between the nodes in them. With NCCL "
            "before 2.30.4 that has hung (FULL), while PIECEWISE and NONE ran; for MiniMax models NONE is what holds."
        ),
        settles=OPEN if spec.is_open else "the image's NCCL version, and a first request that comes back",
        remedies=remedies,
    )


def _dist_timeout(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if spec.engine is not EngineKind.SGLANG or not _has_two(spec) or not spec.has_command or spec.flag("dist-timeout"):
        return
    yield claim(
        spec,
        rule,
        None,
        explanation=(
            "Without --dist-timeout the ranks wait as long as torch does, 10 minutes over NCCL. One Spark that reads "
            "its weights from a slower disk, or swaps, made the other give up and the whole start fail."
        ),
        settles=OPEN if spec.is_open else "",
        remedies=[change("give them half an hour", *with_flag(spec, "dist-timeout", "1800"))],
    )


def _network(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.option("network")
    is_elsewhere = spec.launcher in _SETS_NETWORK or spec.kind is SourceKind.RUNNING
    if not _has_two(spec) or not spec.has_container or (item is None and is_elsewhere):
        return
    if item is not None and (item.value == "host" or not item.is_known or (item.value or "").startswith("container:")):
        return
    yield claim(
        spec,
        rule,
        item,
        title=f"An engine over {spec.nodes} nodes is not on the host's network",
        explanation=(
            "On Docker's bridge the other node can't reach the ports that NCCL, Gloo and Ray choose, and RDMA doesn't "
            "pass it at all: the ranks never meet. `--network host` (`network_mode: host`) is required."
        ),
        remedies=[
            change(
                "use the host's network",
                *(replaced(spec, item, "host") if item and item.value_span else with_option(spec, "network", "host")),
            )
        ],
    )


def _knows_communication(spec: LaunchSpec) -> bool:
    return _has_two(spec) and spec.launcher not in _SETS_NETWORK and (spec.engine is not None or spec.is_ray_start)


def _hca(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not _knows_communication(spec) or spec.variable("NCCL_IB_HCA") or _is_tcp(spec):
        return
    is_nvidias = spec.launcher is Launcher.RUN_CLUSTER
    if is_nvidias and not spec.is_ray_start:
        return
    yield claim(
        spec,
        rule,
        None,
        title="NCCL_IB_HCA is not set: NCCL chooses RDMA devices itself",
        severity=Severity.INFO if is_nvidias or not spec.knows_environment else None,
        explanation=(
            "Each cable of a Spark shows as two RDMA devices, and ports without a cable are there too. Left to choose, "
            "NCCL has hung without an error or a line of log. The names depend on the port that has the cable: take "
            "those that are up on this machine, not another's."
        ),
        settles="" if spec.knows_environment else _ELSEWHERE,
        remedies=[
            change(
                "name the devices that `ibdev2netdev` shows as (Up)",
                *with_variable(spec, "NCCL_IB_HCA", "<devices that are up>"),
            )
        ],
    )


def _ifname(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not _knows_communication(spec):
        return
    missing = [name for name in _INTERFACES if spec.variable(name) is None]
    if not missing or (spec.launcher is Launcher.RUN_CLUSTER and not spec.is_ray_start):
        return
    yield claim(
        spec,
        rule,
        None,
        title=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
        severity=None if spec.knows_environment else Severity.INFO,
        explanation=(
            "Without it the rendezvous takes whatever interface comes first, the office network or Wi-Fi rather than "
            "the cable between the two Sparks, and the ranks wait for one another or crawl. The interface's name may "
            "differ from host to host: each node gets its own."
        ),
        settles="" if spec.knows_environment else _ELSEWHERE,
        remedies=[
            change(
                "name the interface that has the cable, on each node its own",
                *with_variables(spec, missing, "<interface with the cable>"),
            )
        ],
    )


def _gid(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.variable("NCCL_IB_GID_INDEX")
    if not _has_two(spec) or item is None or item.number is None or item.number < 0:
        return
    is_tuned = spec.launcher in _SETS_NETWORK
    yield claim(
        spec,
        rule,
        item,
        title=f"NCCL_IB_GID_INDEX={item.value} is a guess until `show_gids` says so",
        severity=Severity.INFO if is_tuned else None,
        explanation=(
            "Which index holds RoCE v2 over IPv4 depends on the addresses an interface has had: 3 on many machines, "
            "not on all, and not for ever. A wrong one gives no connection, or one that times out. NCCL finds it "
            "itself where the variable is left out."
        ),
        settles="`show_gids` on both nodes: the index with RoCE v2 and the cable's IPv4 address",
        remedies=[change("leave it to NCCL", *removed(spec, item))],
    )


def _is_tcp(spec: LaunchSpec) -> bool:
    item = spec.variable("NCCL_IB_DISABLE")
    return item is not None and item.value == "1"


def _ib_off(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.variable("NCCL_IB_DISABLE")
    if not _has_two(spec) or item is None or not _is_tcp(spec):
        return
    yield claim(
        spec,
        rule,
        item,
        explanation=(
            "Without RDMA the two nodes exchange over TCP, about 2 GB/s instead of 20 and more, with several times the "
            "latency of each step. It is a way to look for a fault, not to serve."
        ),
        remedies=[change("let NCCL use RDMA", *removed(spec, item))],
    )


def _rdma(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not _has_two(spec) or not spec.has_container or spec.launcher is not Launcher.DOCKER or _is_tcp(spec):
        return
    devices = [item.value or "" for item in (*spec.options_of("device"), *spec.options_of("mount"))]
    if spec.option("privileged") or any(re.match(r"/dev(?:/infiniband)?(?:/|:|\Z)", each) for each in devices):
        return
    yield claim(
        spec,
        rule,
        None,
        explanation=(
            "RDMA goes through /dev/infiniband. Without it NCCL says `NET/IB : No device found` at its INFO level only "
            "and takes TCP, at about a tenth of the speed."
        ),
        remedies=[change("pass the devices in", *with_option(spec, "device", "/dev/infiniband"))],
    )


def _memlock(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not _has_two(spec) or not spec.has_container or spec.launcher is not Launcher.DOCKER or _is_tcp(spec):
        return
    if any((item.value or "").startswith("memlock") for item in spec.options_of("ulimit")):
        return
    yield claim(
        spec,
        rule,
        None,
        explanation=(
            "RDMA registers memory, which counts against the memlock limit; Docker's default is small unless the "
            "daemon's own is raised. `ibv_reg_mr` then fails, or NCCL takes TCP."
        ),
        remedies=[change("lift the limit", *with_option(spec, "ulimit", "memlock=-1"))],
    )


def _ray_monitor(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.variable("RAY_memory_monitor_refresh_ms")
    if spec.launcher in _SETS_NETWORK or (item is not None and (item.value == "0" or not item.is_known)):
        return
    uses_ray = spec.is_ray_start or (spec.value("distributed-executor-backend") == "ray" and spec.has_container)
    if not uses_ray or (spec.launcher is Launcher.RUN_CLUSTER and not spec.is_ray_start):
        return
    is_certain = spec.knows_environment or (spec.is_ray_start and spec.has_container is False)
    yield claim(
        spec,
        rule,
        item,
        title="RAY_memory_monitor_refresh_ms=0 is not set: Ray may kill the engine's workers",
        severity=None if is_certain else Severity.INFO,
        explanation=(
            "Ray looks every 250 ms and kills workers when 95 % of the memory are used. On a Spark the model itself "
            "fills the memory that Ray looks at, so a healthy engine is what it kills. The variable must be 0 where "
            "`ray start` runs, on both nodes."
        ),
        settles="" if is_certain else _ELSEWHERE,
        remedies=[
            change(
                "turn the monitor off, on both nodes, before `ray start`",
                *(
                    replaced(spec, item, "0")
                    if item and item.value_span
                    else with_variable(spec, "RAY_memory_monitor_refresh_ms", "0")
                ),
            )
        ],
    )


def _ray_missing(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("distributed-executor-backend")
    image = spec.image.value or "" if spec.image else ""
    if item is None or spec.value("distributed-executor-backend") != "ray" or spec.family is not Family.NGC:
        return
    if (
        "26.05" not in image
        or spec.launcher is not Launcher.DOCKER
        or re.search(r"pip3? install.*\bray\b", spec.prelude)
    ):
        return
    yield claim(
        spec,
        rule,
        item,
        explanation=(
            "Ray was dropped from the image: `--distributed-executor-backend ray` ends in `No module named 'ray'`. "
            "NVIDIA's own two-node guide installs it when the container starts."
        ),
        remedies=[
            Remedy(title="install it first: pip install ray, in the container's command"),
            Remedy(
                title="or run without Ray: --nnodes 2 --node-rank N --master-addr ADDRESS (--headless on the second)"
            ),
        ],
    )


LINTS = (
    Lint(card=_NETWORK, check=_network, is_live=True),
    Lint(card=_SGLANG_GRAPHS, check=_sglang_graphs),
    Lint(card=_VLLM_GRAPHS, check=_vllm_graphs),
    Lint(card=_HCA, check=_hca),
    Lint(card=_IFNAME, check=_ifname),
    Lint(card=_GID, check=_gid),
    Lint(card=_IB_OFF, check=_ib_off),
    Lint(card=_RDMA, check=_rdma),
    Lint(card=_MEMLOCK, check=_memlock),
    Lint(card=_RAY_MONITOR, check=_ray_monitor, is_live=True),
    Lint(card=_RAY_MISSING, check=_ray_missing),
    Lint(card=_DIST_TIMEOUT, check=_dist_timeout),
)
