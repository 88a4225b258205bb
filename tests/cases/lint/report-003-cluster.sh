GPU_MEM_UTIL=0.82 \
VLLM_SPARK_EXTRA_DOCKER_ARGS="-v /home/op/models:/models -e GPU_MEM_UTIL=0.82" \
./launch-cluster.sh -n 10.1.0.1,10.1.0.2 --eth-if bond0 --ib-if rocep1s0f0,roceP2p1s0f0 \
  --launch-script /home/op/models/run.sh
