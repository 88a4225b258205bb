#!/bin/bash
docker run --rm -it --gpus all --ipc=host \
  -v /models:/models \
  nvcr.io/nvidia/vllm:26.03-py3 \
  vllm serve /models/Qwen3-30B-A3B-Instruct-FP8 \
    --attention-backend=FLASHINFER \
    --gpu_memory_utilization=0.93 \
    --enforce-eager
