#!/bin/bash
# What the cluster launcher runs on each node.
export VLLM_NVFP4_GEMM_BACKEND=marlin
export VLLM_USE_FLASHINFER_MOE_FP4=0
export VLLM_TEST_FORCE_FP8_MARLIN=1
export VLLM_MARLIN_USE_ATOMIC_ADD=1
vllm serve /models/MiniMax-M2.7-NVFP4-GB10-AC \
  --tensor-parallel-size 2 --distributed-executor-backend ray \
  --kv-cache-dtype fp8_e4m3 \
  --gpu-memory-utilization "${GPU_MEM_UTIL:-0.88}" \
  --compilation-config '{"cudagraph_mode": "none"}' \
  --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'
