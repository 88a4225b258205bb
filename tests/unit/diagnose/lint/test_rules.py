"""Each lint firing and quiet, on command lines and files of a few lines."""

from __future__ import annotations

import json

from tests.lint_support import case, lines, linted, severities, worse
from tests.table import over

from sparktop.diagnose.lint import user_rules
from sparktop.diagnose.lint.catalogue import cards, lints
from sparktop.launchspec.read.configuration import read
from sparktop.model.finding import Confidence

NGC26 = "docker run --gpus all --ipc host --network host -v /m:/models nvcr.io/nvidia/vllm:26.04-py3 vllm serve"
V33 = "docker run --gpus all --ipc host --network host -v /m:/models vllm/vllm-openai:v0.33.0"
V22 = "docker run --gpus all --ipc host --network host -v /m:/models vllm/vllm-openai:v0.22.1"
SGL12 = "docker run --gpus all --ipc host lmsysorg/sglang:v0.5.12 python3 -m sglang.launch_server --model-path /m/x"
SGL23 = SGL12.replace("v0.5.12", "v0.5.23")
U = "--gpu-memory-utilization 0.7"
M = "--mem-fraction-static 0.7"
TWO = "-tp 2 --distributed-executor-backend ray"
NET = "NCCL_IB_HCA=a NCCL_SOCKET_IFNAME=b GLOO_SOCKET_IFNAME=b RAY_memory_monitor_refresh_ms=0"
E2 = " ".join(f"-e {each}" for each in NET.split())
RDMA = "--device /dev/infiniband --ulimit memlock=-1"
UNIT = "[Service]\nExecStart=/usr/bin/docker run --gpus all --name v vllm/vllm-openai:v0.33.0 /models/x " + U + "\n"

IMAGE = "vllm/vllm-openai:v0.33.0"
RUN = f"docker run --name v --gpus all {IMAGE} /models/x"
RECIPE = "recipe_version: '2'\nmodel: a/b\ncontainer: x/vllm\ncommand: vllm serve a/b\n"
FOLDED = (
    "services:\n  v:\n    image: x/y\n    entrypoint: [bash, -c]\n    command:\n      - >\n"
    "        vllm serve /m\n        {}\n"
)
TWICE = "services:\n  v:\n    image: vllm/vllm-openai:v0.33.0\n    ipc: host\n    gpus: all\n"
INSPECTED = [
    {
        "Name": "/v",
        "Path": "vllm",
        "Args": ["serve", "vllm", "serve", "/models/x"],
        "Config": {"Image": "vllm/vllm-openai:v0.33.0", "Env": []},
        "HostConfig": {"NetworkMode": "host", "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}},
    }
]

FIRING = [
    ("gpu-memory-utilization-high", f"{V33} /models/x --gpu-memory-utilization 0.91"),
    ("gpu-memory-utilization-high", f"{V33} /models/x --gpu_memory_utilization=0.88"),
    ("gpu-memory-utilization-high", f"{V33} /models/x --device-memory-utilization 0.97"),
    ("gpu-memory-utilization-high", f"{V33} /models/x --gpu-memory-util 0.97"),
    ("gpu-memory-utilization-high", "vllm serve /m -tp 2 --max-model-len 131072 --gpu-memory-utilization 0.83"),
    ("mem-fraction-static-high", f"{SGL12} --mem-fraction-static 0.88"),
    ("mem-fraction-static-pair", f"{SGL12} --mem-fraction-static=0.85 --tp-size 2"),
    ("shm-size-large", f"docker run --shm-size=64g --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("shm-size-large", TWICE + "    shm_size: 64gb\n    command: /models/x\n"),
    ("comment-cuts-command", f"docker run --gpus all \\\n  --ipc host  # shared \\\n  {IMAGE} /models/x"),
    ("comment-cuts-command", f"docker run --gpus all \\\n  # --ipc host\n  {IMAGE} /models/x"),
    ("comment-cuts-command", f"docker run --gpus all \\  \n  --ipc host {IMAGE} /models/x"),
    ("comment-cuts-command", "f() {\n  vllm serve /m \\\n    # one \\\n    # two\n    --port 8000\n}"),
    ("comment-cuts-command", FOLDED.format("# why\n        # not\n        --port 9")),
    ("restarted-at-once", f"docker rm -f v 2>/dev/null || true\ndocker run --name v --gpus all {IMAGE} /models/x"),
    ("restarted-at-once", f'N=v\nif docker ps | grep -q v; then sudo docker stop "$N"; fi\n{RUN}'),
    ("restarted-at-once", "pkill -f 'vllm serve'; sleep 5\nvllm serve /models/x"),
    ("ports-without-effect", TWICE + '    network_mode: host\n    ports: ["8080:8000"]\n    command: /models/x\n'),
    ("ports-without-effect", f"docker run --network host -p 8000:8000 --gpus all {IMAGE} /models/x"),
    ("variable-unknown", f"docker run --gpus all -e VLLM_NOT_THERE=1 {IMAGE} /models/x"),
    ("variable-unknown", f"docker run --gpus all -e VLLM_NVFP4_EMULATION=1 {IMAGE} /models/x"),
    ("variable-unknown", "docker compose run --rm -e VLLM_NOT_THERE=1 engine vllm serve /m"),
    ("api-without-key", f"docker run -p 0.0.0.0:8000:8000 --gpus all {IMAGE} /models/x"),
    ("api-without-key", f"docker run -p '${{P:?which: port}}:8000' --gpus all {IMAGE} /models/x"),
    ("recipe-default-literal", f"{RECIPE}env: {{T: '${{T:-}}'}}\n"),
    ("recipe-default-literal", f"{RECIPE}env: {{HF_TOKEN: '${{HF_TOKEN:-s3cret-value}}'}}\n"),
    ("api-without-key", f"docker run -p 8.8.8.8:8000:8000 --gpus all {IMAGE} /models/x"),
    ("enforce-eager", f"{V33} /models/x {U} --enforce-eager"),
    ("enforce-eager", f"{V33} /models/x {U} --no-enforce-eager --enforce_eager"),
    ("nvfp4-moe-backend", f"{V22} Org/Big-30B-A3B-NVFP4 {U}"),
    ("nvfp4-moe-backend", f"{NGC26} Org/Big-30B-A3B-NVFP4 {U} --moe-backend flashinfer-cutlass"),
    ("nvfp4-moe-backend", f"vllm serve Org/Big-MoE {U} --quantization modelopt_fp4"),
    ("fastsafetensors-ngc", f"{NGC26} /models/x {U} --load-format fastsafetensors"),
    ("performance-mode-throughput", f"{V33} Org/Model-30B-A3B {U} --performance-mode throughput"),
    ("vllm-graphs-two-nodes", f"{V33} /models/x {U} {TWO}"),
    ("vllm-graphs-two-nodes", f"""{V33} /models/x {U} {TWO} --compilation-config '{{"cudagraph_mode":"FULL"}}'"""),
    ("host-network", f"docker run --gpus all vllm/vllm-openai:v0.33.0 /models/x {U} -tp 2"),
    ("nccl-ib-hca", f"{V33} /models/x {U} {TWO}"),
    ("socket-ifname", f"{V33} /models/x {U} {TWO}"),
    ("nccl-gid-index", f"NCCL_IB_GID_INDEX=3 vllm serve /models/x {U} {TWO}"),
    ("rdma-devices", f"{V33} /models/x {U} {TWO}"),
    ("memlock", f"{V33} /models/x {U} {TWO}"),
    ("ray-memory-monitor", f"{V33} /models/x {U} {TWO}"),
    ("ray-memory-monitor", "ray start --head --port 6379"),
    ("ray-missing", f"{NGC26.replace('26.04', '26.05')} /models/x {U} {TWO}"),
    ("server-started-twice", f"{V33} vllm serve /models/x {U}"),
    ("server-started-twice", f"{V33} serve /models/x {U}"),
    ("server-started-twice", f"{V33} python3 -m vllm.entrypoints.openai.api_server --model /models/x {U}"),
    ("server-started-twice", f"{V33} bash -c 'pip install z && vllm serve /models/x {U}'"),
    ("server-started-twice", TWICE + '    command: ["vllm", "serve", "/models/x"]\n'),
    ("server-started-twice", f"[Service]\nExecStart=/usr/bin/{V33} vllm serve /models/x {U}\n"),
    ("server-started-twice", json.dumps(INSPECTED)),
    ("server-started-twice", 'FROM vllm/vllm-openai:v0.33.0\nCMD ["vllm", "serve", "/models/x"]\n'),
    ("restart-on-failure", f"docker run --restart on-failure:3 --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("restart-on-failure", UNIT + "Restart=on-failure\nRestartSec=60\n"),
    ("restart-on-failure", UNIT + "Restart=on-abnormal\nRestartSec=60\n"),
    ("restart-on-failure", TWICE + "    restart: on-failure\n    command: /models/x\n"),
    ("restart-on-failure", json.dumps(INSPECTED)),
    ("rm-with-restart", f"docker run --rm --restart=always --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("rm-with-restart", "docker run --rm --restart unless-stopped --gpus all sglang/sglang:v0.3.0-some-model"),
    ("engine-flag-before-image", f"docker run --gpus all --tensor-parallel-size 1 vllm/vllm-openai:v0.33.0 /m {U}"),
    ("restart-before-proven", f"docker run -d --restart always --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("model-cache-mount", f"docker run --gpus all vllm/vllm-openai:v0.33.0 Org/Model {U}"),
    ("gpus-not-requested", f"docker run vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("ipc-or-shm", f"docker run --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("image-not-pinned", f"docker run --gpus all vllm/vllm-openai /models/x {U}"),
    (
        "image-not-pinned",
        f"docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model /m {M}",
    ),
    ("secret-in-argv", f"{V33} /models/x {U} --api-key s3cret-value"),
    ("secret-in-argv", f'{V33} /models/x {U} --api-key "$KEY"'),
    ("api-without-key", f"{V33} /models/x {U}"),
    ("loopback-in-container", f"{SGL12.replace('run', 'run -p 30000:30000', 1)} {M}"),
    ("flag-unknown-to-version", f"{NGC26} /models/x {U} --linear-backend marlin"),
    ("flag-unknown-to-version", f"{NGC26} /models/x {U} --moe-backend flashinfer_b12x"),
    ("flag-unknown-to-version", f"{SGL12} {M} --cuda-graph-backend-decode disabled"),
    ("flag-unknown-to-version", f"{V33} /models/x {U} --cuda-graph-sizes 1 2 4"),
    ("flag-unknown-to-version", f"{V33} /models/x {U} --max-num 4"),
    ("flag-unknown-to-version", f"{V33.replace('33', '32')} /models/x {U} --disable-log-requests"),
    ("flag-unknown-to-version", f"{SGL23} --mem_fraction_static 0.7"),
    (
        "deprecated",
        f"VLLM_NVFP4_GEMM_BACKEND=marlin {V22.replace('run', 'run -e VLLM_NVFP4_GEMM_BACKEND', 1)} /m/x {U}",
    ),
    ("deprecated", f"{SGL23} {M} --nnodes 2 --disable-cuda-graph"),
    ("variable-without-effect", f"{V33.replace('run', 'run -e VLLM_USE_FLASHINFER_MOE_FP4=0', 1)} /m/x {U}"),
    ("variable-without-effect", f"{V33.replace('run', 'run -e VLLM_ATTENTION_BACKEND=X', 1)} /m/x {U}"),
    ("restart-sec", UNIT + "Restart=always\nRestartSec=30\n"),
    ("restart-sec", UNIT + "Restart=on-failure\n"),
    ("start-limit-section", UNIT + "StartLimitBurst=3\nStartLimitIntervalSec=600\n"),
    ("start-limit-absent", UNIT + "Restart=always\nRestartSec=1min\n"),
    ("start-limit-absent", "[Unit]\nStartLimitBurst=3\n" + UNIT + "Restart=always\nRestartSec=60\n"),
    ("start-timeout", UNIT + "ExecStartPre=/bin/sleep 120\n"),
    ("start-timeout", UNIT + "ExecStartPre=/opt/wait-for-memory 70 300\nTimeoutStartSec=4min\n"),
    ("gpu-reset-target", "[Unit]\nAfter=nvidia-gpu-reset.target\n" + UNIT),
]

QUIET = [
    ("gpu-memory-utilization-high", f"{V33} /models/x --gpu-memory-utilization 0.87"),
    ("gpu-memory-utilization-high", f"{V33} /models/x --gpu-memory-utilization $UTIL"),
    ("gpu-memory-utilization-high", f"{V33} /models/x --gpu-memory-utilization 0.95 --kv-cache-memory-bytes 20G"),
    ("gpu-memory-utilization-high", "vllm serve /m -tp 2 --max-model-len 65536 --gpu-memory-utilization 0.85"),
    ("gpu-memory-utilization-absent", f"{V33} /models/x --kv-cache-memory-bytes 20G"),
    ("gpu-memory-utilization-absent", "docker run --gpus all nvcr.io/nvidia/vllm:26.04-py3 sleep infinity"),
    ("mem-fraction-static-high", f"{SGL12} --mem-fraction-static 0.85"),
    ("sglang-flashinfer-memory", f"{SGL12} {M} --moe-runner-backend flashinfer_cutlass"),
    ("enforce-eager", f"{V33} /models/x {U} --enforce-eager --no-enforce-eager"),
    ("enforce-eager", f"{V33} /models/x {U} -tp 2 --enforce-eager"),
    ("enforce-eager", f"# eager: the first request took the host down\n{V33} /models/x {U} --enforce-eager"),
    ("enforce-eager", f"{NGC26} openai/gpt-oss-120b {U} --enforce-eager"),
    ("nvfp4-moe-backend", f"{V33} Org/Big-30B-A3B-NVFP4 {U}"),
    ("nvfp4-moe-backend", f"{V22} Org/Big-30B-A3B-NVFP4 {U} --moe_backend=marlin"),
    ("nvfp4-moe-backend", f"{V22} Org/Dense-8B-NVFP4 {U}"),
    ("nvfp4-moe-backend", f"{V22.replace('run', 'run -e VLLM_TEST_FORCE_FP8_MARLIN=1', 1)} Org/B-30B-A3B-NVFP4 {U}"),
    ("flashinfer-attention-fp8", f"{V33} Org/Model-8B-NVFP4 {U} --attention-backend FLASHINFER --kv-cache-dtype fp8"),
    ("flashinfer-attention-fp8", f"{SGL12} {M} --attention-backend flashinfer"),
    ("attention-sinks", f"{NGC26} Org/Model {U} --attention-backend flashinfer"),
    (
        "attention-sinks",
        "docker run --gpus all vllm-mxfp4 vllm serve openai/gpt-oss-20b --attention-backend FLASHINFER",
    ),
    ("mxfp4-checkpoint", f"{NGC26} openai/gpt-oss-20b {U} --quantization mxfp4"),
    ("mxfp4-stock-image", f"{NGC26} openai/gpt-oss-20b {U} --moe-backend marlin"),
    ("mxfp4-stock-image", f"docker run --gpus all my/vllm-patched:2 vllm serve openai/gpt-oss-20b {U}"),
    ("fastsafetensors-ngc", f"{V33} /models/x {U} --load-format fastsafetensors"),
    (
        "fastsafetensors-ngc",
        f"docker run --gpus all nvcr.io/nvidia/vllm:26.04-py3 bash -c 'pip install fastsafetensors && vllm serve /m {U} --load-format fastsafetensors'",  # noqa: E501
    ),
    ("performance-mode-throughput", f"{V33} Org/Dense-8B {U} --performance-mode throughput"),
    ("performance-mode-throughput", f"{V33} Org/Model-30B-A3B {U} --performance-mode interactivity"),
    ("sglang-graphs-two-nodes", f"{SGL12} {M} --nnodes 2 --disable-cuda-graph"),
    ("sglang-graphs-two-nodes", f"{SGL23} {M} --nnodes 2 --cuda-graph-backend-decode disabled"),
    ("sglang-graphs-off", f"{SGL12} {M} --nnodes 2 --disable-cuda-graph"),
    ("vllm-graphs-two-nodes", f"{V33} /models/x {U}"),
    ("vllm-graphs-two-nodes", f"{V33} /models/x {U} {TWO} --compilation-config.cudagraph_mode PIECEWISE"),
    ("vllm-graphs-two-nodes", f'{V33} /models/x {U} {TWO} -cc \'{{"cudagraph_mode": "none"}}\''),
    ("host-network", f"docker run --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("host-network", f"docker run --net=host --gpus all vllm/vllm-openai:v0.33.0 /models/x {U} -tp 2"),
    ("nccl-ib-hca", f"{V33.replace('run', f'run {E2}', 1)} /models/x {U} {TWO}"),
    ("nccl-ib-hca", f"{V33} /models/x {U}"),
    ("socket-ifname", f"{V33.replace('run', f'run {E2}', 1)} /models/x {U} {TWO}"),
    ("nccl-gid-index", f"NCCL_IB_GID_INDEX=3 vllm serve /models/x {U}"),
    ("rdma-devices", f"{V33.replace('run', f'run {RDMA}', 1)} /models/x {U} {TWO}"),
    ("rdma-devices", f"{V33.replace('run', 'run --privileged', 1)} /models/x {U} {TWO}"),
    ("recipe-default-literal", f"{RECIPE}env: {{T: '${{T}}'}}\n"),
    ("recipe-default-literal", "recipe_version: '1'\nmodel: a/b\ncommand: vllm serve a/b\nenv: {T: '${T:-}'}\n"),
    ("variable-unknown", "docker run --gpus all -e VLLM_NOT_THERE=1 x/vllm:1 vllm serve /m"),
    ("memlock", f"{V33.replace('run', f'run {RDMA}', 1)} /models/x {U} {TWO}"),
    ("ray-memory-monitor", f"{V33.replace('run', f'run {E2}', 1)} /models/x {U} {TWO}"),
    ("ray-memory-monitor", "export RAY_memory_monitor_refresh_ms=0\nray start --address 10.0.0.1:6379"),
    ("ray-missing", f"{NGC26} /models/x {U} {TWO}"),
    ("server-started-twice", f"{NGC26} /models/x {U}"),
    ("server-started-twice", f"{V33.replace('run', 'run --entrypoint bash', 1)} -c 'vllm serve /models/x {U}'"),
    ("server-started-twice", f"{V33.replace('run', 'run --entrypoint=', 1)} vllm serve /models/x {U}"),
    ("server-started-twice", f"{V33} /models/x {U}"),
    ("server-started-twice", TWICE + "    entrypoint: []\n    command: vllm serve /models/x\n"),
    ("server-started-twice", TWICE.replace("vllm/", "my/") + "    command: vllm serve /models/x\n"),
    (
        "server-started-twice",
        "model: Org/M\nruntime: vllm\ncontainer: vllm/vllm-openai:v0.33.0\ncommand: vllm serve {model}\n",
    ),
    ("restart-on-failure", f"docker run --restart always --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("restart-on-failure", f"docker run --restart on-failure --gpus all vllm/vllm-openai:v0.22.1 /models/x {U}"),
    ("restart-on-failure", f"{SGL23.replace('run', 'run --restart on-failure', 1)} {M}"),
    ("restart-on-failure", UNIT + "Restart=on-success\nRestartSec=60\n"),
    ("rm-with-restart", f"docker run --rm --restart no --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("engine-flag-before-image", f"{V33} /models/x {U} --tensor-parallel-size 1"),
    ("restart-before-proven", f"docker run --restart on-failure:2 --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("model-cache-mount", f"docker run -v hf:/root/.cache/huggingface --gpus all vllm/vllm-openai:v1 Org/Model {U}"),
    ("model-cache-mount", f"docker run -v /d:/hf -e HF_HOME=/hf --gpus all vllm/vllm-openai:v1 Org/Model {U}"),
    ("model-cache-mount", f"{V33} /models/x {U}"),
    ("gpus-not-requested", f"docker run --runtime=nvidia vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("gpus-not-requested", f"vllm serve /models/x {U}"),
    ("gpus-not-requested", "docker run -p 9400:9400 mine/vllm-router:2 --config /etc/router.yaml"),
    ("gpu-memory-utilization-absent", "docker run -p 9400:9400 mine/vllm-router:2 --config /etc/router.yaml"),
    ("image-not-pinned", f"{V33} /models/x {U}"),
    ("secret-in-argv", f"{V33.replace('run', 'run -e VLLM_API_KEY', 1)} /models/x {U} --max-tokens 5"),
    ("api-without-key", f"{V33} /models/x {U} --host 127.0.0.1"),
    ("api-without-key", f"docker run -p 127.0.0.1:8000:8000 --gpus all vllm/vllm-openai:v0.33.0 /models/x {U}"),
    ("loopback-in-container", f"{SGL12.replace('run', 'run -p 30000:30000', 1)} {M} --host 0.0.0.0"),
    ("loopback-in-container", f"{SGL12.replace('run', 'run --network host', 1)} {M}"),
    ("flag-unknown-to-version", f"{V22} /models/x {U} --linear-backend marlin --moe-backend flashinfer_b12x"),
    (
        "flag-unknown-to-version",
        f"{V33} /models/x {U} --disable-log-requests --no-enable-lora --gpu-mem 1 -O3",
    ),
    ("flag-unknown-to-version", f"{V33.replace('33', '30')} /models/x {U} --device-memory-utilization 0.7"),
    ("flag-unknown-to-version", f"{V33.replace('vllm/', 'my/')} vllm serve /models/x {U} --of-a-fork 1"),
    ("variable-without-effect", f"{V22.replace('run', 'run -e VLLM_NVFP4_GEMM_BACKEND=marlin', 1)} /m/x {U}"),
    ("variable-without-effect", f"{V33.replace('run', 'run -e VLLM_SOMETHING_ELSE=1', 1)} /m/x {U}"),
    ("variable-without-effect", f"docker run -e VLLM_MXFP4_BACKEND=x --gpus all fork/vllm-mxfp4 vllm serve /m {U}"),
    ("restart-sec", UNIT + "Restart=always\nRestartSec=90\n"),
    ("server-started-twice", f"docker run --gpus all --ipc host x/vllm:1 serve --model /models/x {U}"),
    ("comment-cuts-command", f"docker run --gpus all \\\n  {IMAGE} /models/x  # the model\n--odd"),
    ("comment-cuts-command", FOLDED.format("--port 9\n        # the end")),
    ("comment-cuts-command", FOLDED.format("--port 9").replace(">", "|")),
    ("comment-cuts-command", f"# C:\\\ndocker run --gpus all {IMAGE} /models/x"),
    ("comment-cuts-command", 'A=(--gpus all  # every one\n  --ipc host)\ndocker run "${A[@]}" x/vllm vllm serve /m'),
    ("comment-cuts-command", f"docker run --gpus all {IMAGE} \\\n  /models/x \\\n  # the end\n\necho started"),
    ("restarted-at-once", f"docker rm -f v\nuntil awk '/MemAvailable/' /proc/meminfo; do sleep 2; done\n{RUN}"),
    ("restarted-at-once", f"docker rm -f v; sleep 90\n{RUN}"),
    ("restarted-at-once", f"docker rm -f open-webui\n{RUN}"),
    ("restarted-at-once", f"docker rm v\n{RUN}"),
    ("restarted-at-once", f"{RUN}\ndocker stop v"),
    ("restarted-at-once", f"echo 'to stop: docker stop v'\n{RUN}"),
    ("restarted-at-once", f"case $1 in\n  stop) docker stop v ;;\n  start) {RUN} ;;\nesac"),
    ("restarted-at-once", f"stop() {{\n  docker stop v\n}}\n{RUN}"),
    ("restarted-at-once", f"if test $1 = stop; then docker stop v; else {RUN}; fi"),
    ("ports-without-effect", f"docker run -p 8000:8000 --gpus all {IMAGE} /models/x"),
    ("variable-unknown", f"docker run --gpus all -e VLLM_LOGGING_LEVEL=DEBUG -e OWN=1 {IMAGE} /models/x"),
    ("variable-unknown", "docker run -e VLLM_NVFP4_EMULATION=1 vllm/vllm-openai:v0.10.0 /models/x"),
    ("variable-unknown", 'export VLLM_MY_PORT=8000\nvllm serve /m --port "$VLLM_MY_PORT"'),
    ("api-without-key", f"docker run -p 10.1.2.3:8000:8000 --gpus all {IMAGE} /models/x"),
    ("api-without-key", f"docker run -p 100.64.0.9:8000:8000 --gpus all {IMAGE} /models/x"),
    ("api-without-key", f"docker run -p $ADDRESS:8000:8000 --gpus all {IMAGE} /models/x"),
    ("memlock", f"{V33.replace('--ipc', '--cap-add IPC_LOCK --ipc')} /models/x {U} {TWO}"),
    ("vllm-graphs-two-nodes", f"# NCCL 2.30.5 is preloaded\n{V33} /models/x {U} {TWO}"),
    ("nvfp4-moe-backend", f"# vLLM 0.25.1 in a venv\nvllm serve Org/Big-30B-A3B-NVFP4 {U}"),
    ("gpu-memory-utilization-high", f"# for a DGX Station\n{V33} /models/x --gpu-memory-utilization 0.95"),
    ("gpus-not-requested", f'docker run "${{GPUS[@]}}" -p 8000:8000 {IMAGE} /models/x'),
    ("restart-sec", UNIT + "RestartSec=5\n"),
    ("start-limit-section", UNIT + "StartLimitBurst=3\nStartLimitInterval=600\n"),
    ("start-limit-absent", UNIT),
    ("start-timeout", UNIT + "ExecStartPre=/opt/wait-for-memory 70 300\nTimeoutStartSec=10min\n"),
    ("start-timeout", UNIT + "ExecStartPre=/opt/wait-for-memory 70 300\nTimeoutStartSec=infinity\n"),
    ("start-timeout", UNIT + "ExecStartPre=-/usr/bin/docker rm -f v\n"),
]


@over("rule, text", FIRING, ids=[f"{index}-{rule}" for index, (rule, _) in enumerate(FIRING)])
def test_it_fires(rule: str, text: str) -> None:
    findings = linted(text)
    assert rule in severities(findings)
    assert "s3cret" not in str(findings)


@over("rule, text", QUIET, ids=[f"{index}-{rule}" for index, (rule, _) in enumerate(QUIET)])
def test_it_keeps_quiet(rule: str, text: str) -> None:
    specs = read(text, "stdin").specs
    assert specs, "a case in which nothing is read proves nothing"
    assert rule not in severities(linted(text))


def test_every_lint_has_a_firing_case() -> None:
    ids = {card.id.removeprefix("config.") for card in cards()}
    told = {rule for rule, _ in FIRING} | {rule.id.removeprefix("config.") for rule in user_rules.shipped()}
    assert ids == told


@over("rule", user_rules.shipped(), ids=lambda rule: rule.id)
def test_what_is_data_reads_its_examples_and_leaves_the_others(rule: user_rules.LintRule) -> None:
    for text in rule.examples:
        assert any(rule.lint.findings(spec) for spec in read(text, "example").specs), text
    for text in rule.quiet:
        specs = read(text, "example").specs
        assert specs, text
        assert not any(rule.lint.findings(spec) for spec in specs), text


def test_every_card_says_where_it_holds_and_whence() -> None:
    assert len({card.id for card in cards()}) == len(lints())
    for card in cards():
        assert card.scope, card.id
        assert card.sources, card.id


def test_an_unknown_version_is_judged_as_a_suspicion_and_as_information() -> None:
    text = f"docker run -e VLLM_NVFP4_GEMM_BACKEND=marlin --gpus all mine/vllm:dev vllm serve /m {U}"
    (finding,) = [one for one in linted(text) if one.rule == "config.variable-without-effect"]
    assert finding.confidence is Confidence.SUSPECTED
    assert "__version__" in finding.settles
    assert worse((finding,)) == set()


def test_what_comes_from_elsewhere_makes_absence_a_suspicion() -> None:
    (finding,) = [one for one in linted('vllm serve /m "$@"') if one.rule == "config.gpu-memory-utilization-absent"]
    assert finding.confidence is Confidence.SUSPECTED


def test_a_remark_in_the_file_mutes_a_lint_by_its_name() -> None:
    text = f"vllm serve /m {U} -O3"
    assert "optimization-level-3" in severities(linted(text))
    assert "optimization-level-3" not in severities(
        linted(f"# sparktop: allow config.optimization-level-3 (habit)\n{text}")
    )


@over(
    "file, rule, changed",
    [
        (
            "report-002-one-node.sh",
            "gpu-memory-utilization-high",
            ["-     --gpu_memory_utilization=0.93 \\", "+     --gpu_memory_utilization=0.87 \\"],
        ),
        ("report-002-one-node.sh", "enforce-eager", ["-     --enforce-eager"]),
        (
            "report-004.service",
            "gpu-reset-target",
            ["- After=docker.service nvidia-gpu-reset.target", "+ After=docker.service"],
        ),
        (
            "report-001-unattended.yml",
            "restart-before-proven",
            ["-     restart: unless-stopped", '+     restart: "no"'],
        ),
        ("report-002.sh", "host-network", ["+   --network host \\"]),
        ("report-003-sglang.sh", "dist-timeout-absent", ["+   --dist-timeout 1800 \\"]),
        ("sparkrun.yaml", "mem-fraction-static-pair", ["-   mem: 0.88", "+   mem: 0.75"]),
        (
            "report-003-vllm.sh",
            "gpu-memory-utilization-high",
            [
                '-   --gpu-memory-utilization "${GPU_MEM_UTIL:-0.88}" \\',
                '+   --gpu-memory-utilization "${GPU_MEM_UTIL:-0.87}" \\',
            ],
        ),
    ],
)
def test_the_changed_line_is_shown_in_the_files_own_style(file: str, rule: str, changed: list[str]) -> None:
    (finding,) = [one for one in case(file) if one.rule == f"config.{rule}"]
    assert lines(finding) == changed
