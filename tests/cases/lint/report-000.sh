#!/usr/bin/env bash
# A desktop Spark: serves a mixture of experts to one person.
set -euo pipefail
MODEL=Qwen/Qwen3.6-35B-A3B-FP8

docker run -d --name qwen --gpus all --network host --ipc host \
  -v "$HOME/.cache/huggingface:/root/.cache/huggingface" \
  -e VLLM_API_KEY \
  nvcr.io/nvidia/vllm:26.04-py3 \
  vllm serve "$MODEL" \
    --port 8100 \
    --gpu-memory-utilization 0.72 \
    --performance-mode throughput \
    --optimization-level 3
