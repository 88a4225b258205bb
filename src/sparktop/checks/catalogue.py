"""Every check, with the views that show it."""

from __future__ import annotations

from typing import Any

from sparktop.checks import container, docker, host, image, link, nccl, parity, ray
from sparktop.checks.judgement import Check

CHECKS: tuple[Check[Any], ...] = (
    host.judge_driver_branch,
    host.judge_driver_pending,
    host.judge_next_kernel,
    host.judge_disk_room,
    host.judge_clock,
    docker.judge_docker_access,
    docker.judge_gpu_runtime,
    parity.judge_driver_parity,
    parity.judge_kernel_parity,
    parity.judge_release_parity,
    parity.judge_image_parity,
    parity.judge_memory_parity,
    link.judge_link,
    link.judge_rate,
    link.judge_mtu,
    container.judge_network,
    container.judge_rdma_devices,
    container.judge_memlock,
    nccl.judge_hca_names,
    nccl.judge_hca_pinned,
    nccl.judge_gid,
    nccl.judge_place,
    ray.judge_memory_monitor,
    image.judge_ray_package,
    image.judge_fastsafetensors,
    image.judge_tag,
    host.judge_linger,
)
