"""The flags each rank adds to the engine's argv, and the Ray commands of head and workers.

vLLM: --nnodes, --node-rank, --master-addr, --master-port, and --headless on all but the first. SGLang: --nnodes,
--node-rank, --dist-init-addr. Under Ray only the head runs the engine. Facts: docs/facts/engines.md 5.1, 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.cmdline import engine_argv as flags
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import MOST_NODES, Executor
from sparktop.recipe.container_spec import CannotRender, NodeContext

MASTER_PORT = 29501


def executor_for(recipe_executor: Executor, engine: EngineKind, nodes: int) -> Executor:
    """How the ranks find each other on this number of nodes.

    Raises:
        CannotRender: SGLang doesn't support Ray.
    """
    if nodes < 2:
        return Executor.ALONE
    if recipe_executor is Executor.RAY:
        if engine is EngineKind.SGLANG:
            raise CannotRender("SGLang doesn't run on Ray: its ranks connect by themselves")
        return Executor.RAY
    return Executor.NATIVE


def with_rank_flags(
    argv: Sequence[str],
    engine: EngineKind,
    executor: Executor,
    node: NodeContext,
    nodes: Sequence[NodeContext],
    *,
    port: str,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the engine's argv on this node, notes).

    Raises:
        CannotRender: its parallelism doesn't match the number of nodes: each Spark has one GPU.
    """
    node_count = len(nodes)
    _check_parallelism(argv, engine, node_count)
    backend = (flags.value_of(argv, "distributed-executor-backend", kind=engine) or "").lower()
    if executor is Executor.RAY:
        words = ("--distributed-executor-backend", "ray")
        return (tuple(argv) if backend == "ray" else flags.placed(argv, words, "distributed-executor-backend")), ()
    notes: tuple[str, ...] = ()
    argv = tuple(argv)
    if backend == "ray":
        argv = flags.without(argv, "distributed-executor-backend")
        where = "one node doesn't need it" if node_count == 1 else "the ranks connect without it"
        notes = (f"sparktop leaves out the recipe's --distributed-executor-backend ray: {where}",)
    if executor is Executor.NATIVE:
        argv = (*argv, *_native_flags(argv, engine, node, nodes, port))
    return argv, notes


def _native_flags(
    argv: Sequence[str], engine: EngineKind, node: NodeContext, nodes: Sequence[NodeContext], port: str
) -> list[str]:
    words = []
    for name, form in engine.traits.rank_flags.items():
        value = form.format(nodes=len(nodes), rank=node.index, head=nodes[0].fabric_ip, port=port)
        if not flags.has(argv, name):
            words += [f"--{name}", value]
        elif name == "node-rank" and flags.value_of(argv, name) != value:
            raise CannotRender("the recipe's command fixes --node-rank, which differs from node to node",
                               "write it as --node-rank {node_rank}, or remove it")  # fmt: skip
    if engine is EngineKind.VLLM and node.index > 0 and not flags.has(argv, "--headless"):
        words.append("--headless")
    return words


def _check_parallelism(argv: Sequence[str], engine: EngineKind, nodes: int) -> None:
    tensor = _number(argv, "tensor-parallel-size", engine)
    pipeline = _number(argv, "pipeline-parallel-size", engine)
    data = _number(argv, "data-parallel-size", engine)
    if engine is EngineKind.SGLANG:
        if data > 1 and nodes > 1 and not flags.has(argv, "enable-dp-attention"):
            raise CannotRender(
                f"SGLang doesn't run data_parallel={data} over several nodes: each node would need a whole engine",
                f"--set data_parallel=1 --set tensor_parallel={nodes}", "or launch it on each node alone",
                is_settable=True,
            )  # fmt: skip
        data = 1  # of attention alone, within the tensor parallel ranks
    ranks = tensor * pipeline * data
    if ranks == nodes:
        return
    parallelism = f"tensor_parallel={tensor}" + (f", pipeline_parallel={pipeline}" if pipeline != 1 else "")
    parallelism += f", data_parallel={data}" if data != 1 else ""
    many = "one node has" if nodes == 1 else f"{nodes} nodes have"
    raise CannotRender(
        f"{parallelism} needs {ranks} GPU{'s' if ranks > 1 else ''}, but {many} {nodes}: each Spark has one",
        *([f"--set tensor_parallel={nodes // (pipeline * data)}"] if nodes % (pipeline * data) == 0 else []),
        *([f"name {ranks} nodes"] if 1 < ranks <= MOST_NODES else []),
        is_settable=True,
    )


def _number(argv: Sequence[str], flag: str, engine: EngineKind) -> int:
    text = flags.value_of(argv, flag, kind=engine) or "1"
    if not text.isdecimal() or not 0 < int(text[:4]) < 1000:
        raise CannotRender(f"--{flag} is {text[:20]!r}: it must be a whole number")
    return int(text[:4])


RAY_PORT = 6379


LIMIT_S = 900
"""How long one node waits for the other's Ray to start."""


HEAD_SCRIPT = r"""nodes=$1; address=$2; port=$3; limit=$4; shift 4
echo "sparktop: starting Ray at $address:$port"
ray start --head --node-ip-address="$address" --port="$port" --include-dashboard=false \
  --object-store-memory=1073741824 || exit 1
start=$(date +%s); told=-1
while :; do
  there=$(ray status --address="$address:$port" 2>/dev/null | grep -c '^ *[0-9][0-9]* node_')
  [ "$there" -ge "$nodes" ] && break
  if [ $(($(date +%s) - start)) -ge "$limit" ]; then
    echo "sparktop: gave up after $limit s: $((nodes - there)) of $nodes Ray nodes are missing"
    exit 1
  fi
  [ "$there" = "$told" ] || echo "sparktop: waiting for $((nodes - there)) of $nodes Ray nodes"
  told=$there
  sleep 2
done
echo "sparktop: all $nodes Ray nodes joined, starting the engine"
exec "$@"
"""
"""Parameters: nodes, the head's address, Ray's port, limit in seconds, then the engine's argv."""


WORKER_SCRIPT = r"""address=$1; port=$2; own=$3; limit=$4
echo "sparktop: waiting for Ray at $address:$port"
start=$(date +%s)
until python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()' \
  "$address" "$port" 2>/dev/null; do
  if [ $(($(date +%s) - start)) -ge "$limit" ]; then
    echo "sparktop: gave up after $limit s: no Ray at $address:$port"
    exit 1
  fi
  sleep 2
done
echo "sparktop: joining Ray at $address:$port"
exec ray start --address="$address:$port" --node-ip-address="$own" --object-store-memory=1073741824 --block
"""
"""Parameters: the head's address, Ray's port, this node's own address, limit in seconds."""


def under_ray(
    argv: tuple[str, ...], node: NodeContext, nodes: Sequence[NodeContext], port: str, limit_s: int = LIMIT_S
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the command of a rank's container, what it ends by running): on the head the engine, else `ray start`."""
    head, own, limit = nodes[0].fabric_ip, node.fabric_ip, str(limit_s)
    if node.index == 0:
        return ("sh", "-c", HEAD_SCRIPT, "sparktop-ray-head", str(len(nodes)), head, port, limit, *argv), argv
    joins = ("ray", "start", f"--address={head}:{port}", f"--node-ip-address={own}",
             "--object-store-memory=1073741824", "--block")  # fmt: skip
    return ("sh", "-c", WORKER_SCRIPT, "sparktop-ray-worker", head, port, own, limit), joins
