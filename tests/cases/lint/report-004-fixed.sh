#!/bin/bash
docker run --rm --gpus all --ipc host -v /models:/models --network host \
  lmsysorg/sglang:v0.5.12 \
  python3 -m sglang.launch_server --model-path /models/mistral-small-4 \
  --attention-backend triton --moe-runner-backend flashinfer_cutlass \
  --speculative-algorithm EAGLE --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
  --mem-fraction-static 0.75 --context-length 65536 --enable-metrics
