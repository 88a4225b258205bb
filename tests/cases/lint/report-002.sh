#!/bin/bash
# Two nodes, everything that went wrong.
docker run -d --name rank0 --gpus all --ipc=host \
  -p 8000:8000 \
  -v /models:/models \
  nvcr.io/nvidia/vllm:26.04-py3 \
  vllm serve /models/Qwen3-235B-A22B-NVFP4 \
    --tensor-parallel-size 2 \
    --distributed-executor-backend ray \
    --max-model-len 131072 \
    --gpu-memory-utilization 0.86 \
    --load-format fastsafetensors
