"""Every failure and fix of the five field reports is covered by a rule: report, row, what shows it, which rules say it.

A row the facts contradict is covered by what is true instead, and says so. Texts are ours, in the engines' formats.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.pictures_support import STARVED, WALL_S, container, engine, facts, idle_node, node, picture
from tests.scenario_support import Stage
from tests.table import few

from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.explain import Explanation, explain_together
from sparktop.diagnose.lint import catalogue
from sparktop.diagnose.logs.rule import shipped
from sparktop.launchspec.read import configuration
from sparktop.masking import mask_text
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState


@dataclass(frozen=True)
class Row:
    """One row: `log`, `launch`, `scenario` or `fleet` shows it."""

    report: str
    row: str
    rules: tuple[str, ...]
    """One of them must be found; empty: nothing at warning or above may be."""
    log: str = ""
    launch: str = ""
    scenario: str = ""
    fleet: FleetState | None = None
    says: str = ""
    """A word that its explanation or a remedy must have."""

    @property
    def name(self) -> str:
        return f"{self.report}: {self.row}"


def vllm(
    flags: str = "", *, image: str = "nvcr.io/nvidia/vllm:26.04-py3", model: str = "m/Qwen3-30B-A3B", env: str = ""
) -> str:
    variables = "".join(f" -e {pair}" for pair in env.split())
    return (
        f"docker run --gpus all --network host --ipc host -v ~/.cache/huggingface:/root/.cache/huggingface{variables} "
        f"{image} vllm serve {model} --gpu-memory-utilization 0.70 {flags}\n"
    )


def sglang(flags: str = "", *, docker: str = "", version: str = "v0.5.12") -> str:
    return (
        f"docker run --gpus all --network host --ipc host {docker} -v ~/.cache/huggingface:/root/.cache/huggingface "
        f"lmsysorg/sglang:{version} python3 -m sglang.launch_server --model-path /models/mistral-small-4 "
        f"--enable-metrics {flags}\n"
    )


def unit(service: str, head: str = "") -> str:
    return (
        f"[Unit]\nDescription=SGLang\n{head}\n[Service]\n{service}\n"
        "ExecStart=/usr/bin/docker run --gpus all --network host --ipc host lmsysorg/sglang:v0.5.12 "
        "python3 -m sglang.launch_server --model-path /m --mem-fraction-static 0.75\n"
    )


TWO = "--tensor-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1"
CORE = "(EngineCore_DP0 pid=211) "
_SPIKE = [(-60.0, 45.4), (-8.0, 45.4), (-6.0, 43.7), (-4.0, 31.9), (-2.0, 11.4), (0.0, 4.5)]

ROWS = (
    # --- 000: vLLM froze the desktop --------------------------------------------------------------------------------
    Row("000", "the desktop is frozen while every figure says idle", ("desktop.frozen",), scenario="desktop-freeze"),
    Row(
        "000",
        "Xid 79: NVIDIA calls it fallen off the bus, the report a hung display; both are told",
        ("kernel.xid-79",),
        log="[5120.1] NVRM: Xid (PCI:000f:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        says="field report 000",
    ),
    Row(
        "000",
        "VLLM_FLASHINFER_MOE_BACKEND=latency: does nothing on SM 12.1 up to 0.22",
        ("config.variable-without-effect",),
        launch=vllm(env="VLLM_FLASHINFER_MOE_BACKEND=latency"),
    ),
    Row(
        "000",
        "--performance-mode throughput",
        ("config.performance-mode-throughput",),
        launch=vllm("--performance-mode throughput"),
    ),
    Row(
        "000",
        "--optimization-level 3 is the same as 2",
        ("config.optimization-level-3",),
        launch=vllm("--optimization-level 3"),
    ),
    Row("000", "keep CUDA graphs on one node", ("config.enforce-eager",), launch=vllm("--enforce-eager")),
    # --- 001: gpt-oss-120b against Qwen3.6 --------------------------------------------------------------------------
    Row(
        "001",
        "wall 1: the default utilisation starves the host",
        ("config.gpu-memory-utilization-absent",),
        launch="vllm serve openai/gpt-oss-20b\n",
    ),
    Row(
        "001",
        "wall 1: ping answers and SSH does not",
        ("memory.starved",),
        fleet=picture(node("spark1", link=STARVED, available_gib=_SPIKE, age_s=12.0)),
        says="available",
    ),
    Row(
        "001", "wall 2 and 4: the spike at the first request", ("memory.first-request-spike",), scenario="memory-spike"
    ),
    Row(
        "001",
        "wall 3: MXFP4 on a stock image",
        ("config.mxfp4-stock-image",),
        launch=vllm(image="nvcr.io/nvidia/vllm:26.05.post1-py3", model="openai/gpt-oss-120b"),
    ),
    Row(
        "001",
        "wall 3: --mxfp4-layers on stock vLLM",
        ("cli.patched-build-flag",),
        log="vllm: error: unrecognized arguments: --mxfp4-layers moe,qkv,o,lm_head",
    ),
    Row(
        "001",
        "wall 3: --mxfp4-layers, before it is run",
        ("config.patched-flag-layers",),
        launch=vllm("--mxfp4-layers moe"),
    ),
    Row(
        "001",
        "wall 3: attention sinks not supported",
        ("attention.sinks-unsupported",),
        log=f"{CORE}ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. "
        "Reason: ['attention sinks not supported']",
    ),
    Row(
        "001",
        "wall 3: VLLM_MXFP4_BACKEND is not read",
        ("vllm.env-moe-removed", "vllm.env-unknown"),
        log="WARNING 06-08 13:40:11 [envs.py:1744] Unknown vLLM environment variable detected: VLLM_MXFP4_BACKEND",
    ),
    Row(
        "001",
        "wall 3: VLLM_MXFP4_BACKEND, before it is run",
        ("config.variable-without-effect",),
        launch=vllm(env="VLLM_MXFP4_BACKEND=marlin"),
    ),
    Row(
        "001",
        "watch available, not free: the page cache is not the enemy",
        (),
        fleet=picture(idle_node(available_gib=114.0, cache_gib=110.0)),
    ),
    Row(
        "001",
        "the warning of no MoE configuration for GB10 is harmless",
        (),
        log="WARNING 06-08 13:41:02 [fused_moe.py:1091] Using default MoE config. Performance might be "
        "sub-optimal! Config file not found at /x/E=128,N=768,device_name=NVIDIA_GB10.json",
    ),
    Row("001", "the API key in argv", ("config.secret-in-argv",), launch=vllm("--api-key sk-1234567890abcdef")),
    Row(
        "001",
        "the cache is not mounted: the model is loaded again",
        ("config.model-cache-mount",),
        launch="docker run --gpus all --network host --ipc host vllm/vllm-openai:v0.22.1 --model Qwen/Qwen3-8B "
        "--gpu-memory-utilization 0.7\n",
    ),
    Row(
        "001",
        'restart: "no" until it is trusted',
        ("config.restart-before-proven",),
        launch=vllm().replace("docker run", "docker run --restart unless-stopped"),
    ),
    Row(
        "001",
        "nginx: streaming is held back",
        ("proxy.buffers-stream",),
        log="2026/06/08 14:02:11 [warn] 812#812: *44 an upstream response is buffered to a temporary file "
        "/var/cache/nginx/proxy_temp/4/00/0000000004 while reading upstream, client: 203.0.113.9, server: inference, "
        'request: "POST /v1/chat/completions HTTP/1.1", upstream: "http://192.168.0.50:8000/v1/chat/completions"',
    ),
    Row(
        "001",
        "nginx: cut off at 60 s",
        ("proxy.read-timeout",),
        log="2026/06/08 14:05:40 [error] 8#8: *5 upstream timed out (110: Connection timed out) while reading response "
        'header from upstream, client: 203.0.113.9, server: inference, request: "POST /v1/chat/completions HTTP/1.1", '
        'upstream: "http://192.168.0.50:8000/v1/chat/completions"',
    ),
    Row(
        "001",
        "nginx: long prompts exceed 1 MB",
        ("proxy.body-too-large",),
        log="2026/06/08 14:06:02 [error] 812#812: *60 client intended to send too large body: 2381022 bytes, client: "
        '203.0.113.9, server: inference, request: "POST /v1/chat/completions HTTP/1.1"',
    ),
    Row(
        "001",
        "nginx: duplicate upstream",
        ("proxy.config-invalid",),
        log='nginx: [emerg] duplicate upstream "vllm_backend" in /etc/nginx/sites-enabled/inference.conf:2',
    ),
    # --- 002: SM121 on NGC 26.04, two nodes -------------------------------------------------------------------------
    Row(
        "002",
        "FlashInfer attention with FP8 (advice only: NVIDIA's own playbook uses it)",
        ("config.flashinfer-attention-fp8",),
        launch=vllm("--attention-backend FLASHINFER", model="Qwen/Qwen3-30B-A3B-FP8"),
    ),
    Row(
        "002",
        "--moe-backend=marlin for NVFP4",
        ("config.nvfp4-moe-backend",),
        launch=vllm(model="nvidia/Qwen3-30B-A3B-NVFP4"),
    ),
    Row(
        "002",
        "CUTLASS FP4 chosen silently",
        ("vllm.nvfp4-moe-cutlass-old",),
        log="INFO 05-18 11:58:40 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: x\n"
        f"{CORE}INFO 05-18 11:59:01 [nvfp4.py:188] Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential "
        "backends: "
        "['FLASHINFER_TRTLLM', 'FLASHINFER_CUTLASS', 'MARLIN'].",
    ),
    Row(
        "002",
        "VLLM_USE_FLASHINFER_MOE_FP4 is gone from 0.27 on",
        ("config.variable-without-effect",),
        launch=vllm(image="vllm/vllm-openai:v0.27.1", env="VLLM_USE_FLASHINFER_MOE_FP4=0"),
    ),
    Row(
        "002",
        "VLLM_MARLIN_USE_ATOMIC_ADD: harmless, no matter of correctness",
        ("config.marlin-atomic-add",),
        launch=vllm(env="VLLM_MARLIN_USE_ATOMIC_ADD=1"),
    ),
    Row("002", "never --enforce-eager (on one node)", ("config.enforce-eager",), launch=vllm("--enforce-eager")),
    Row(
        "002",
        "never above 0.90",
        ("config.gpu-memory-utilization-high",),
        launch=vllm().replace("0.70", "0.93"),
    ),
    Row(
        "002",
        "0.82 at 131K on two nodes",
        ("config.gpu-memory-utilization-high",),
        launch=vllm(f"{TWO} --max-model-len 131072").replace("0.70", "0.87"),
    ),
    Row(
        "002",
        "Xid 43 under load",
        ("kernel.xid-43",),
        log="[88123.001122] NVRM: Xid (PCI:000f:01:00): 43, pid=74059, name=VLLM::EngineCor, channel 0x00000002",
    ),
    Row("002", "stay on 580.x", ("host.driver-branch",), fleet=picture(node(facts=facts(driver_version="590.48.01")))),
    Row(
        "002",
        "no fastsafetensors in NGC 26.04",
        ("config.fastsafetensors-ngc",),
        launch=vllm("--load-format fastsafetensors"),
    ),
    Row(
        "002",
        "no fastsafetensors: the error itself",
        ("start.fastsafetensors-missing",),
        log=f"{CORE}ImportError: Please install vllm[fastsafetensors] for fastsafetensors support",
    ),
    Row("002", "mxfp4 is for gpt-oss checkpoints", ("config.mxfp4-checkpoint",), launch=vllm("--quantization mxfp4")),
    Row(
        "002",
        "mxfp4 on another checkpoint: IndexError in fused_moe/layer.py",
        ("vllm.mxfp4-loader-format",),
        log=f'{CORE}  File "/usr/lib/vllm/model_executor/layers/fused_moe/layer.py", line 1190, in load\n'
        f"{CORE}    param = param[expert]\n{CORE}IndexError: too many indices for tensor of dimension 2",
    ),
    Row(
        "002",
        "content: null",
        ("serving.content-null",),
        log='{"object":"chat.completion","choices":[{"message":{"content":null,"reasoning":"Let me"},'
        '"finish_reason":"length"}]}',
        says="max_tokens",
    ),
    Row(
        "002",
        "network_mode: host for two nodes",
        ("config.host-network",),
        launch=vllm(TWO).replace("--network host ", ""),
    ),
    Row("002", "NCCL_IB_HCA set", ("config.nccl-ib-hca",), launch=vllm(TWO)),
    Row(
        "002",
        "NCCL_IB_GID_INDEX: never hard-coded",
        ("config.nccl-gid-index",),
        launch=vllm(TWO, env="NCCL_IB_GID_INDEX=3"),
    ),
    Row(
        "002",
        "TCP in place of RoCE",
        ("nccl.tcp-between-nodes",),
        log="spark1:311:311 [0] NCCL INFO Bootstrap: Using enp1s0f1np1:192.168.100.10<0>\n"
        "spark1:311:520 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
    ),
    Row(
        "002",
        "RAY_memory_monitor_refresh_ms=0",
        ("config.ray-memory-monitor",),
        launch=vllm(f"{TWO} --distributed-executor-backend ray")
        .replace("vllm serve", 'bash -c "ray start --head && vllm serve')
        .rstrip()
        + '"\n',
    ),
    Row(
        "002",
        "Ray kills it",
        ("ray.memory-monitor",),
        log="(raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
        "crashed due to other reasons at node (ID: 0a1b, IP: 10.0.0.2) over the last time period.",
        says="RAY_memory_monitor_refresh_ms",
    ),
    Row(
        "002",
        "Triton finds no ptxas for sm_121a",
        ("triton.ptxas-too-old",),
        log="ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        says="TRITON_PTXAS_PATH",
    ),
    Row("002", "GLOO_SOCKET_IFNAME on the interconnect", ("config.socket-ifname",), launch=vllm(TWO)),
    Row("002", "drop the page cache after an OOM at start", ("memory.held-after-exit",), scenario="leak-after-kill"),
    # --- 003: MiniMax M2.7 on two Sparks ----------------------------------------------------------------------------
    Row(
        "003",
        "capture deadlock: 96 % SM and nothing moves",
        ("gpu.capture-stuck",),
        scenario="capture-stuck",
        says="cuda-graph",
    ),
    Row(
        "003",
        "SGLANG_DISABLE_CUDA_GRAPH does nothing",
        ("config.variable-without-effect",),
        launch=sglang(docker="-e SGLANG_DISABLE_CUDA_GRAPH=1"),
    ),
    Row("003", "0 % memory bandwidth proves nothing on GB10", (), fleet=picture(node("spark1"), node("spark2"))),
    Row("003", "a spin deadlock of both ranks", ("gpu.spin-deadlock",), scenario="spin-deadlock"),
    Row(
        "003",
        "memory held after the container ended",
        ("memory.held-after-exit",),
        scenario="leak-after-kill",
        says="reboot",
    ),
    Row(
        "003",
        "memory capacity is unbalanced: the other node is the poor one",
        ("sglang.memory-unbalanced",),
        log="RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
        "processes. pre_model_load_memory=33.77, local_gpu_memory=101.33, local_gpu_memory * 0.9=91.20",
        says="other",
    ),
    Row(
        "003",
        "rank sync time-out",
        ("dist.peers-missing", "dist.store-gone"),
        log="torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        says="dist-timeout",
    ),
    Row(
        "003",
        "--dist-timeout on two nodes",
        ("config.dist-timeout-absent",),
        launch=sglang("--tp 2 --nnodes 2 --node-rank 0"),
    ),
    Row(
        "003",
        "7 GiB apart before a launch",
        ("cluster.memory-apart",),
        fleet=picture(
            idle_node("spark1", available_gib=107.0), idle_node("spark2", available_gib=100.0, cache_gib=18.0)
        ),
    ),
    Row(
        "003",
        "--mem-fraction-static 0.85 on two nodes",
        ("config.mem-fraction-static-pair",),
        launch=sglang("--tp 2 --nnodes 2 --mem-fraction-static 0.85"),
    ),
    Row(
        "003",
        "deep_gemm on SM 12.1",
        ("deepgemm.unsupported",),
        log="RuntimeError: Assertion error (csrc/apis/layout.hpp:59): Unknown SF transformation",
    ),
    Row(
        "003",
        "the memory check fails at 0.88 beside other services",
        ("vllm.free-memory-below-utilisation",),
        log="ValueError: Free memory on device cuda:0 (99.2/119.6 GiB) on startup is less than desired GPU memory "
        "utilization (0.88, 105.25 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ),
    Row(
        "003",
        "the FP4 warning is harmless",
        (),
        log="WARNING 05-20 [marlin_utils_fp4.py:299] Your GPU does not have native support for FP4 computation "
        "but FP4 quantization is being used. Weight-only FP4 compression will be used leveraging the Marlin "
        "kernel. This may "
        "degrade performance for compute-heavy workloads.",
    ),
    Row(
        "003",
        "VLLM_NVFP4_GEMM_BACKEND by version",
        ("config.variable-without-effect",),
        launch=vllm(image="vllm/vllm-openai:v0.27.1", env="VLLM_NVFP4_GEMM_BACKEND=marlin"),
        says="linear-backend",
    ),
    Row(
        "003",
        "graphs across two nodes",
        ("config.vllm-graphs-two-nodes",),
        launch=vllm(TWO, model="x/MiniMax-M2.7-NVFP4"),
    ),
    # --- 004: SGLang's restart and exit 137 -------------------------------------------------------------------------
    Row(
        "004",
        "exit 137 after a restart, with what it proves",
        ("restart.exit-137",),
        log="CONTAINER ID   IMAGE   COMMAND   CREATED   STATUS   PORTS   NAMES\n"
        '0a1b2c3d4e5f   sgl:5   "python3"   1 hour ago   Exited (137) 2 minutes ago      sglang-mistral4\n',
        says="SIGKILL",
    ),
    Row(
        "004",
        "flashinfer takes 2 GB more when memory is tight",
        ("config.sglang-flashinfer-memory",),
        launch=sglang("--attention-backend flashinfer --mem-fraction-static 0.85"),
    ),
    Row(
        "004",
        "--mem-fraction-static 0.88",
        ("config.mem-fraction-static-high",),
        launch=sglang("--mem-fraction-static 0.88"),
    ),
    Row(
        "004",
        "--speculative-eagle-topk 4",
        ("config.eagle-topk",),
        launch=sglang("--mem-fraction-static 0.75 --speculative-algorithm EAGLE --speculative-eagle-topk 4"),
    ),
    Row(
        "004",
        "--rm with --restart (Docker refuses it)",
        ("config.rm-with-restart",),
        launch=sglang("--mem-fraction-static 0.75", docker="--rm --restart unless-stopped"),
    ),
    Row(
        "004",
        "--rm with --restart: Docker's own words",
        ("docker.restart-with-rm",),
        log="docker: conflicting options: cannot specify both --restart and --rm",
    ),
    Row(
        "004",
        "engine flags before the image, as the report has them",
        ("config.engine-flag-before-image",),
        launch="docker run --gpus all --attention-backend flashinfer sglang/sglang:v0.5.12 --model-path /models/m\n",
    ),
    Row(
        "004",
        "nvidia-gpu-reset.target doesn't exist",
        ("config.gpu-reset-target",),
        launch=unit("RestartSec=60", "After=nvidia-gpu-reset.target"),
    ),
    Row("004", "RestartSec=30 is too soon", ("config.restart-sec",), launch=unit("Restart=always\nRestartSec=30")),
    Row(
        "004",
        "StartLimitBurst and its interval",
        ("config.start-limit-absent", "config.start-limit-section"),
        launch=unit("Restart=always\nRestartSec=60"),
    ),
    Row(
        "004",
        "started before memory came back",
        ("restart.too-soon",),
        fleet=picture(
            node(
                available_gib=[(-40.0, 32.0), (-30.0, 32.0), (0.0, 100.0)],
                engines=(
                    engine(
                        state=EngineState.LOADING,
                        has_metrics=False,
                        uptime_s=30.0,
                        container=container(started_wall_s=WALL_S - 30, finished_wall_s=WALL_S - 42),
                    ),
                ),
            )
        ),
    ),
    Row("004", "wait for memory: how far it has come back", ("memory.held-after-exit",), scenario="leak-after-kill"),
)


def found(row: Row) -> list[Finding]:
    if row.log:
        explanation = Explanation("stdin", shipped(), mask=mask_text)
        explanation.feed(row.log.encode())
        return list(explain_together([explanation], shipped()))
    if row.launch:
        return list(catalogue.check(configuration.read(row.launch, "launch.sh").specs, mask=mask_text))
    if row.scenario:
        stage = Stage(row.scenario)
        seen: dict[str, Finding] = {}
        for shown in stage.play():
            seen |= {one.rule: one for one in shown.findings}
            if set(row.rules) & set(seen) and not row.says:
                break
        return list(seen.values())
    assert row.fleet is not None
    return [one for rule in live_rules() for one in rule.check(row.fleet)]


@pytest.mark.parametrize("row", few(ROWS, lambda row: row.scenario in ("", "spin-deadlock")), ids=lambda row: row.name)
def test_every_row_of_the_reports_is_covered(row: Row) -> None:
    findings = found(row)
    if not row.rules:
        assert [one.rule for one in findings if one.severity is not Severity.INFO] == []
        return
    fitting = [one for one in findings if one.rule in row.rules]
    assert fitting, [one.rule for one in findings]
    if row.says:
        text = " ".join(
            " ".join([one.title, one.explanation, *one.references, *one.distinction])
            + " ".join(" ".join([remedy.title, *remedy.steps, remedy.cost]) for remedy in one.remedies)
            for one in fitting
        )
        assert row.says.lower() in text.lower()


def test_every_report_has_rows() -> None:
    assert {row.report for row in ROWS} == {"000", "001", "002", "003", "004"}
    assert len({row.name for row in ROWS}) == len(ROWS)
