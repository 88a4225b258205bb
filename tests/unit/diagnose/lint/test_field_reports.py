"""The configurations of the five field reports, written anew: each row about configuration is told as the facts say."""

from __future__ import annotations

from tests.lint_support import case, severities, worse
from tests.table import over

from sparktop.model.event import Severity

CRITICAL, WARNING, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO

ROWS = [
    ("report 000: --performance-mode throughput", "report-000.sh", "performance-mode-throughput", INFO),
    ("report 000: --optimization-level 3", "report-000.sh", "optimization-level-3", INFO),
    ("report 000: MOE_BACKEND=latency has no effect", "report-000-fixed.sh", "variable-without-effect", INFO),
    ("report 001: the default of 0.9", "report-001.sh", "gpu-memory-utilization-absent", WARNING),
    ("report 001: unrecognized --mxfp4-layers", "report-001.sh", "patched-flag-layers", CRITICAL),
    ("report 001: attention sinks not supported", "report-001.sh", "attention-sinks", CRITICAL),
    ("report 001: VLLM_MXFP4_BACKEND isn't read", "report-001.sh", "variable-without-effect", WARNING),
    ("report 001: MXFP4 on the stock image", "report-001.sh", "mxfp4-stock-image", WARNING),
    ("report 001: the key shows in ps", "report-001.sh", "secret-in-argv", WARNING),
    ("report 001: no cache in the container", "report-001-unattended.yml", "model-cache-mount", INFO),
    ("report 001: unless-stopped too early", "report-001-unattended.yml", "restart-before-proven", INFO),
    ("report 002: --moe-backend=marlin", "report-002.sh", "nvfp4-moe-backend", WARNING),
    ("report 002: FlashInfer with FP8", "report-002-one-node.sh", "flashinfer-attention-fp8", INFO),
    ("report 002: never --enforce-eager", "report-002-one-node.sh", "enforce-eager", WARNING),
    ("report 002: utilisation over 0.90", "report-002-one-node.sh", "gpu-memory-utilization-high", CRITICAL),
    ("report 002: 0.82 at 131K on two", "report-002.sh", "gpu-memory-utilization-high", INFO),
    ("report 002: no fastsafetensors", "report-002.sh", "fastsafetensors-ngc", CRITICAL),
    ("report 002: atomic add", "report-002-fixed.sh", "marlin-atomic-add", INFO),
    ("report 002: network_mode host", "report-002.sh", "host-network", CRITICAL),
    ("report 002: NCCL_IB_HCA", "report-002.sh", "nccl-ib-hca", WARNING),
    ("report 002: GLOO_SOCKET_IFNAME", "report-002.sh", "socket-ifname", WARNING),
    ("report 002: RAY_memory_monitor_refresh_ms", "report-002.sh", "ray-memory-monitor", WARNING),
    ("report 003: graph capture deadlock", "report-003-sglang.sh", "sglang-graphs-two-nodes", WARNING),
    ("report 003: the variable doesn't work", "report-003-sglang.sh", "variable-without-effect", WARNING),
    ("report 003: --dist-timeout", "report-003-sglang.sh", "dist-timeout-absent", INFO),
    ("report 003: --mem-fraction-static 0.85 on two", "report-003-sglang.sh", "mem-fraction-static-pair", WARNING),
    ("report 003: 0.88 beside other services", "report-003-vllm.sh", "gpu-memory-utilization-high", WARNING),
    ("report 004: flags before the image", "report-004.sh", "engine-flag-before-image", CRITICAL),
    ("report 004: --rm with --restart", "report-004.sh", "rm-with-restart", CRITICAL),
    ("report 004: flashinfer's 2 GB", "report-004.sh", "sglang-flashinfer-memory", INFO),
    ("report 004: --mem-fraction-static 0.88", "report-004.sh", "mem-fraction-static-high", WARNING),
    ("report 004: topk 4", "report-004.sh", "eagle-topk", WARNING),
    ("report 004: RestartSec=30", "report-004.service", "restart-sec", WARNING),
    ("report 004: nvidia-gpu-reset.target", "report-004.service", "gpu-reset-target", INFO),
    ("report 004: the wait outlasts the start", "report-004.service", "start-timeout", WARNING),
    ("report 004: StartLimit in [Service]", "report-004.service", "start-limit-section", WARNING),
]


@over("file, rule, severity", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_each_row_is_told(file: str, rule: str, severity: Severity) -> None:
    assert severities(case(file)).get(rule) is severity


@over(
    "file",
    [
        "report-000-fixed.sh", "report-001-compose.yml", "report-002-fixed.sh", "report-003-fixed.sh",
        "report-003-cluster.sh", "report-004-fixed.sh", "report-004-fixed.service", "eugr-minimax.yaml",
        "playbooks.sh",
    ],
)  # fmt: skip
def test_what_worked_is_left_alone(file: str) -> None:
    assert worse(case(file)) == set()


def test_nvidias_bare_line_is_told_of_the_default_share_alone() -> None:
    """Facts MEM-01 and C2 are for it: the default is above what may be exceeded by nobody."""
    from tests.lint_support import linted

    text = "docker run -it --gpus all -p 8000:8000 nvcr.io/nvidia/vllm:26.05.post1-py3 vllm serve Org/Math-1.5B"
    assert worse(linted(text)) == {"gpu-memory-utilization-absent"}


def test_no_report_is_told_to_do_a_thing_and_its_opposite() -> None:
    """What one finding puts in, no other takes out: flags and variables of all changed lines together."""
    for file in sorted({row[1] for row in ROWS}):
        put: set[str] = set()
        taken: set[str] = set()
        for finding in case(file):
            for remedy in finding.remedies[:1]:
                before = {word for step in remedy.steps if step.startswith("- ") for word in step[2:].split()}
                after = {word for step in remedy.steps if step.startswith("+ ") for word in step[2:].split()}
                put |= {word for word in after - before if word.startswith("--")}
                taken |= {word for word in before - after if word.startswith("--")}
        assert not put & taken, file
