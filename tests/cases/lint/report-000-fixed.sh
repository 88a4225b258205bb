#!/usr/bin/env bash
set -euo pipefail

docker run -d --name qwen --gpus all --network host --ipc host \
  -v "$HOME/.cache/huggingface:/root/.cache/huggingface" \
  -e VLLM_API_KEY \
  -e VLLM_FLASHINFER_MOE_BACKEND=latency \
  nvcr.io/nvidia/vllm:26.04-py3 \
  vllm serve Qwen/Qwen3.6-35B-A3B-FP8 \
    --port 8100 \
    --gpu-memory-utilization 0.72
