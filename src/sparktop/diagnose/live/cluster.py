"""Two nodes: what differs between them, what the fabric does, and which rank is gone."""

from __future__ import annotations

from sparktop.diagnose.live.addresses import interface_wrong
from sparktop.diagnose.live.alike import (
    dgx_os_differs,
    driver_differs,
    engine_version_differs,
    image_differs,
    kernel_differs,
)
from sparktop.diagnose.live.boxes import bridge_network, linger, memlock, no_infiniband_device, ray_monitor
from sparktop.diagnose.live.hca import gid_index, hca_unset, hca_wrong
from sparktop.diagnose.live.links import link_down, link_slow, mtu_differs, nccl_on_tcp
from sparktop.diagnose.live.orders import environment_differs
from sparktop.diagnose.live.pair import card
from sparktop.diagnose.live.poorer import memory_apart
from sparktop.diagnose.live.rankdied import rank_died
from sparktop.diagnose.rule import LiveRule
from sparktop.model.event import Severity

_PLAYBOOKS = "NVIDIA/dgx-spark-playbooks connect-two-sparks"
_ENGINE = "one engine over two nodes, vLLM or SGLang"
_BOXED = "one engine over two nodes, in Docker containers"
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL

RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=card("link-down", "An engine runs over a link that is down", CRITICAL, _PLAYBOOKS, scope=_ENGINE),
        check=link_down,
        hold_s=2.0,
        follows=("kernel.link-unplugged", "kernel.link-down"),
    ),
    LiveRule(
        card=card("rank-died", "One rank has ended and the other waits", CRITICAL, "field report 003", scope=_ENGINE),
        check=rank_died,
        hold_s=5.0,
        follows=(
            "guard.fired",
            "kernel.oom-kill",
            "memory.starved",
            "memory.falling",
            "memory.low",
            "cluster.link-down",
        ),
    ),
    LiveRule(
        card=card("memory-apart", "Memory is unequal before a launch", CRITICAL, "field report 003"),
        check=memory_apart,
        hold_s=15.0,
        follows=("memory.held-after-exit",),
    ),
    LiveRule(
        card=card("dgx-os-differs", "The nodes are at different releases of DGX OS", INFO, "/etc/dgx-release"),
        check=dgx_os_differs,
    ),
    LiveRule(
        card=card("driver-differs", "The nodes' NVIDIA drivers differ", WARNING, "field report 002", _PLAYBOOKS),
        check=driver_differs,
    ),
    LiveRule(
        card=card("kernel-differs", "The nodes' kernels differ", WARNING, _PLAYBOOKS),
        check=kernel_differs,
    ),
    LiveRule(
        card=card("image-differs", "The ranks run different images", WARNING, "eugr/spark-vllm-docker", scope=_BOXED),
        check=image_differs,
        hold_s=1.0,
    ),
    LiveRule(
        card=card(
            "engine-version-differs",
            "The ranks are of different versions",
            WARNING,
            "eugr/spark-vllm-docker",
            scope=_ENGINE,
        ),
        check=engine_version_differs,
        hold_s=1.0,
        follows=("cluster.image-differs",),
    ),
    LiveRule(
        card=card(
            "environment-differs",
            "The ranks were started differently",
            WARNING,
            "vllm-project/vllm#40991",
            scope=_ENGINE,
        ),
        check=environment_differs,
        hold_s=1.0,
    ),
    LiveRule(
        card=card("mtu-differs", "The MTU differs at the ends of the cable", WARNING, _PLAYBOOKS), check=mtu_differs
    ),
    LiveRule(
        card=card(
            "link-slow", "The cable runs below 200 Gb/s", WARNING, _PLAYBOOKS, scope="two DGX Sparks joined by cable"
        ),
        check=link_slow,
        hold_s=10.0,
    ),
    LiveRule(
        card=card("bridge-network", "A rank is on Docker's bridge", CRITICAL, "field report 002", scope=_BOXED),
        check=bridge_network,
        hold_s=1.0,
    ),
    LiveRule(
        card=card(
            "interface-wrong",
            "A rank was told an interface or address that can't work",
            CRITICAL,
            "vllm-project/vllm#40991",
            "field report 002",
            scope=_ENGINE,
        ),
        check=interface_wrong,
        hold_s=1.0,
    ),
    LiveRule(
        card=card(
            "gid-index",
            "NCCL_IB_GID_INDEX is no RoCE v2 address",
            CRITICAL,
            "field report 002",
            "NVIDIA/nccl",
            scope=_ENGINE,
        ),
        check=gid_index,
        hold_s=1.0,
    ),
    LiveRule(
        card=card(
            "hca-wrong",
            "NCCL_IB_HCA names what isn't there",
            CRITICAL,
            "field report 002",
            "NVIDIA/nccl",
            scope=_ENGINE,
        ),
        check=hca_wrong,
        hold_s=1.0,
        follows=("cluster.link-down",),
    ),
    LiveRule(
        card=card("hca-unset", "Nothing pins NCCL to the RDMA devices", INFO, "field report 002", scope=_ENGINE),
        check=hca_unset,
        hold_s=10.0,
    ),
    LiveRule(
        card=card(
            "no-infiniband-device",
            "A rank's container can't open the RDMA devices",
            WARNING,
            "field report 002",
            scope=_BOXED,
        ),
        check=no_infiniband_device,
        hold_s=10.0,
    ),
    LiveRule(
        card=card(
            "memlock", "A rank's container may lock too little memory", WARNING, "field report 002", scope=_BOXED
        ),
        check=memlock,
        hold_s=10.0,
    ),
    LiveRule(
        card=card("nccl-on-tcp", "The ranks talk over TCP", WARNING, "field report 002", "NVIDIA/nccl", scope=_ENGINE),
        check=nccl_on_tcp,
        hold_s=12.0,
        clear_s=15.0,
        follows=("cluster.no-infiniband-device", "cluster.hca-wrong"),
    ),
    LiveRule(
        card=card(
            "ray-monitor",
            "Ray's memory monitor may kill workers",
            WARNING,
            "field report 002",
            scope="vLLM on Ray, two nodes",
        ),
        check=ray_monitor,
        hold_s=1.0,
    ),
    LiveRule(
        card=card(
            "linger", "A logout removes an engine's IPC objects", WARNING, "eugr/spark-vllm-docker#352", scope=_ENGINE
        ),
        check=linger,
        hold_s=1.0,
    ),
)
"""Causes before what follows from them."""
