# The shapes of NVIDIA's own command lines for the Spark (facts/engines.md 5.3), models of our own choice.
docker run -d --gpus all --ipc=host -p 8000:8000 -v ~/.cache/huggingface:/root/.cache/huggingface \
  vllm/vllm-openai:latest nvidia/Qwen3.6-35B-A3B-NVFP4 --kv-cache-dtype fp8 --attention-backend flashinfer \
  --moe-backend marlin --gpu-memory-utilization 0.4 --max-model-len 262144 \
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}' --load-format fastsafetensors

bash run_cluster.sh nvcr.io/nvidia/vllm:26.05-py3 $HEAD_IP --head ~/.cache/huggingface \
  -e VLLM_HOST_IP=$HEAD_IP -e UCX_NET_DEVICES=$MN_IF -e NCCL_SOCKET_IFNAME=$MN_IF \
  -e OMPI_MCA_btl_tcp_if_include=$MN_IF -e GLOO_SOCKET_IFNAME=$MN_IF -e TP_SOCKET_IFNAME=$MN_IF \
  -e RAY_memory_monitor_refresh_ms=0 -e MASTER_ADDR=$HEAD_IP

docker exec -it $VLLM_CONTAINER /bin/bash -c '
  vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 2 --max_model_len 2048 \
    --distributed-executor-backend ray --gpu-memory-utilization 0.8'

docker run --gpus all -it --rm -p 30000:30000 -v /tmp:/tmp lmsysorg/sglang:latest-cu130 \
  python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V2-Lite --host 0.0.0.0 --port 30000 \
  --trust-remote-code --tp 1 --attention-backend flashinfer --mem-fraction-static 0.75

docker run --rm -it --gpus all --ipc=host -p 8000:8000 -e VLLM_NVFP4_GEMM_BACKEND=marlin \
  -e VLLM_USE_FLASHINFER_MOE_FP4=0 -e VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 \
  -e VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm -v ~/.cache/huggingface:/root/.cache/huggingface \
  --entrypoint /bin/bash vllm/vllm-openai:cu130-nightly -c "pip install fastsafetensors && vllm serve \
  --model nvidia/Nemotron-3-Super-120B-A12B-NVFP4 --moe-backend marlin --quantization fp4 --kv-cache-dtype fp8 \
  --gpu-memory-utilization 0.90 --max-model-len 1000000 \
  --speculative_config '{\"method\": \"mtp\", \"moe_backend\": \"triton\"}'"
