#!/bin/bash
export NCCL_IB_HCA=rocep1s0f0 NCCL_SOCKET_IFNAME=bond0 GLOO_SOCKET_IFNAME=bond0
python3 -m sglang.launch_server \
  --model-path /models/MiniMax-M2.7-FP8 \
  --tp 2 --nnodes 2 --node-rank 1 --dist-init-addr 10.1.0.1:20000 \
  --disable-cuda-graph --dist-timeout 1800 \
  --enable-metrics \
  --mem-fraction-static 0.75
