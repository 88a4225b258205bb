#!/bin/bash
# Rank 0 of two; the other has the same.
export NCCL_IB_HCA=rocep1s0f1,roceP2p1s0f1
docker run -d --name rank0 --gpus all --ipc=host --network host --ulimit memlock=-1 --device /dev/infiniband \
  -v /models:/models \
  -e NCCL_IB_HCA -e NCCL_IB_DISABLE=0 -e NCCL_NET_PLUGIN=none -e NCCL_IB_TIMEOUT=22 \
  -e NCCL_SOCKET_IFNAME=enp1s0f1np1 -e GLOO_SOCKET_IFNAME=enp1s0f1np1 \
  -e RAY_memory_monitor_refresh_ms=0 -e VLLM_USE_FLASHINFER_MOE_FP4=0 -e VLLM_MARLIN_USE_ATOMIC_ADD=1 \
  nvcr.io/nvidia/vllm:26.04-py3 \
  bash -c "ln -sf /usr/local/cuda/bin/ptxas /opt/ptxas && vllm serve /models/Qwen3-235B-A22B-NVFP4 \
    --tensor-parallel-size 2 --distributed-executor-backend ray \
    --attention-backend=TRITON_ATTN --moe-backend=marlin \
    --compilation-config '{\"cudagraph_mode\": \"PIECEWISE\"}' \
    --max-model-len 131072 --gpu-memory-utilization 0.82"
