#!/bin/sh
# gpt-oss with a recipe that was written for somebody's patched build.
docker run -d --name oss --gpus all --ipc host --network host \
  -v ~/.cache/huggingface:/root/.cache/huggingface \
  -e VLLM_MXFP4_BACKEND=marlin \
  -e HF_TOKEN="$HF_TOKEN" \
  nvcr.io/nvidia/vllm:26.05-py3 \
  vllm serve openai/gpt-oss-120b \
    --host 0.0.0.0 \
    --attention-backend FLASHINFER \
    --mxfp4-layers moe,qkv,o,lm_head \
    --api-key sk-canary-0123456789abcdef
