#!/bin/bash
docker run --rm --restart unless-stopped --gpus all --ipc host \
  --attention-backend flashinfer \
  --mem-fraction-static 0.88 \
  --speculative-eagle-topk 4 \
  sglang/sglang:v0.3.0-mistral-small-4 \
  --model-path /models/mistral-small-4
