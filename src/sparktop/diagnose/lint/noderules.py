"""Lints of two Sparks as one engine: their network, RDMA and what NCCL is told (facts/engines.md 1C, 4.5)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.diagnose.lint.changes import removed, replaced, with_option, with_variable, with_variables
from sparktop.diagnose.lint.lintrule import Lint, card, change, claim
from sparktop.diagnose.lint.spec import Launcher, LaunchSpec, SourceKind
from sparktop.diagnose.rule import Rule
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

SETS_NETWORK = (Launcher.EUGR, Launcher.SPARKRUN)
"""Launchers that find interfaces and set NCCL's variables themselves."""
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
ELSEWHERE = "the variables that are set elsewhere: see the running engine's environment"

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


def has_two(spec: LaunchSpec) -> bool:
    """Whether the engine spans more than one node."""
    return spec.nodes > 1


def _network(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.option("network")
    is_elsewhere = spec.launcher in SETS_NETWORK or spec.kind is SourceKind.RUNNING
    if not has_two(spec) or not spec.has_container or (item is None and is_elsewhere):
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
    return has_two(spec) and spec.launcher not in SETS_NETWORK and (spec.engine is not None or spec.is_ray_start)


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
        settles="" if spec.knows_environment else ELSEWHERE,
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
        settles="" if spec.knows_environment else ELSEWHERE,
        remedies=[
            change(
                "name the interface that has the cable, on each node its own",
                *with_variables(spec, missing, "<interface with the cable>"),
            )
        ],
    )


def _gid(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.variable("NCCL_IB_GID_INDEX")
    if not has_two(spec) or item is None or item.number is None or item.number < 0:
        return
    is_tuned = spec.launcher in SETS_NETWORK
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
    if not has_two(spec) or item is None or not _is_tcp(spec):
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
    if not has_two(spec) or not spec.has_container or spec.launcher is not Launcher.DOCKER or _is_tcp(spec):
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
    if not has_two(spec) or not spec.has_container or spec.launcher is not Launcher.DOCKER or _is_tcp(spec):
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


LINTS = (
    Lint(card=_NETWORK, check=_network, is_live=True),
    Lint(card=_HCA, check=_hca),
    Lint(card=_IFNAME, check=_ifname),
    Lint(card=_GID, check=_gid),
    Lint(card=_IB_OFF, check=_ib_off),
    Lint(card=_RDMA, check=_rdma),
    Lint(card=_MEMLOCK, check=_memlock),
)
