"""One message of each kind, as the probe sends it."""

from __future__ import annotations

from typing import Any

FACTS = {
    "hostname": "spark-0d93",
    "boot_id": "2195ff23-1947-4619-b9b0-f26df50aa73f",
    "machine_digest": None,
    "kernel": "6.14.0-1015-nvidia",
    "arch": "aarch64",
    "os": "Ubuntu 24.04.3 LTS",
    "dgx": "7.6.0",
    "product": "DGX Spark",
    "driver": "580.142",
    "cpus": 20,
    "python": "3.12.3",
    "user": "nvidia",
    "uid": 1000,
    "disks": [["/", 4_000_000_000_000, 1_500_000_000_000]],
    "gaps": {"machine_digest": "no permission"},
}
SAMPLE = {
    "kind": "sample",
    "seq": 17,
    "boot": 7003.25,
    "wall": 1757000000.5,
    "interval": 1.0,
    "meminfo": {
        "MemTotal": 127535276,
        "MemFree": 2149448,
        "MemAvailable": 8134368,
        "Shmem": 3742096,
        "Cached": 6812020,
    },
    "psi": {"memory": [1.5, 0.8, 0.5, 0.2]},
    "vmstat": {"pswpin": 1, "pswpout": 2, "pgmajfault": 3, "allocstall": 4, "oom_kill": 5},
    "cpu": [10, 100],
    "load": [20.5, 18.0, 9.9],
    "cost": [1.25, 14440],
    "skipped": 2,
}
MESSAGES: dict[str, dict[str, Any]] = {
    "hello": {"kind": "hello", "protocol": 1, "pid": 77, "digest": "5072b139", "facts": FACTS},
    "sample": SAMPLE,
    "gpu": {
        "kind": "gpu",
        "seq": 2,
        "boot": 1.0,
        "gpus": [
            {
                "name": "NVIDIA GB10",
                "util": 96,
                "mem_util": 0,
                "power_mw": 13460,
                "pstate": 0,
                "throttle": 0x24,
                "procs": [[197277, "VLLM::Worker_TP0", 107610112000, "C"]],
                "gaps": {"mem_total": "not supported", "mem_used": "from a later version"},
            }
        ],
    },
    "processes": {
        "kind": "processes",
        "seq": 3,
        "boot": 1.0,
        "total": 578,
        "zombies": 1,
        "rows": [
            {
                "pid": 5,
                "ppid": 1,
                "comm": "x",
                "state": "S",
                "rss": 4096,
                "cgroup": f"/docker/{'a' * 64}",
                "argv": ["a"],
            }
        ],
    },
    "desktop": {
        "kind": "desktop",
        "seq": 7,
        "boot": 90.5,
        "compositor": "gnome-shell",
        "pid": 3849,
        "uid": 1000,
        "state": "S",
        "wchan": "do_sys_poll",
        "answers": False,
        "silent": 84.5,
        "blocked": None,
        "reason": "no answer within 3 s",
        "greeter": False,
    },
    "facts": {"kind": "facts", "seq": 4, **FACTS},
    "collector": {"kind": "collector", "seq": 5, "name": "nvml", "state": "stuck", "detail": "d", "since": 1.5},
    "kernel": {"kind": "kernel", "seq": 6, "source": "kmsg", "lines": [[1.0, 2.0, 3, "x"], [None, None, None, ""]]},
    "guard": {
        "kind": "guard",
        "seq": 8,
        "phase": "fired",
        "id": "a" * 64,
        "name": "vllm-qwen36",
        "floor": 4 << 30,
        "within": 2.0,
        "stay": 600.0,
        "since": 1.78e9,
        "available": 4_100_000_000,
        "answered": 0.04,
        "until": None,
        "detail": "below the floor",
    },
    "bye": {"kind": "bye", "reason": "asked to"},
}
