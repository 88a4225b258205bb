"""Each rank's own command line: what an engine over several nodes is told, where the recipe doesn't say it. Pure.

vLLM: --nnodes, --node-rank, --master-addr, --master-port, and --headless on all but the first. SGLang: --nnodes,
--node-rank, --dist-init-addr. Under Ray the head alone is the engine. Facts: facts/engines.md 5.1, 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor
from sparktop.recipe import argv as flags
from sparktop.recipe.rendered import CannotRender, Seat

MASTER_PORT = 29501


def executor_for(recipe_executor: Executor, engine: EngineKind, nodes: int) -> Executor:
    """How the ranks find one another on so many nodes.

    Raises:
        CannotRender: SGLang has no Ray.
    """
    if nodes < 2:
        return Executor.ALONE
    if recipe_executor is Executor.RAY:
        if engine is EngineKind.SGLANG:
            raise CannotRender("SGLang's ranks find one another by themselves: it doesn't run on Ray")
        return Executor.RAY
    return Executor.NATIVE


def ranked(
    argv: Sequence[str], engine: EngineKind, executor: Executor, seat: Seat, seats: Sequence[Seat], *, port: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the engine's argv on this node, notes).

    Raises:
        CannotRender: its parallelism doesn't take exactly the nodes there are: each Spark has one GPU.
    """
    nodes = len(seats)
    _spread(argv, engine, nodes)
    backend = (flags.value_of(argv, "distributed-executor-backend") or "").lower()
    if executor is Executor.RAY:
        words = ("--distributed-executor-backend", "ray")
        return (tuple(argv) if backend == "ray" else flags.placed(argv, words, "distributed-executor-backend")), ()
    notes: tuple[str, ...] = ()
    argv = tuple(argv)
    if backend == "ray":
        argv = flags.without(argv, "distributed-executor-backend")
        where = "one node needs none" if nodes == 1 else "its ranks find one another without it"
        notes = (f"--distributed-executor-backend ray of the recipe is left out: {where}",)
    if executor is Executor.NATIVE:
        argv = (*argv, *_native(argv, engine, seat, seats, port))
    return argv, notes


def _native(argv: Sequence[str], engine: EngineKind, seat: Seat, seats: Sequence[Seat], port: str) -> list[str]:
    head = seats[0].fabric_ip
    wanted = [("--nnodes", str(len(seats))), ("--node-rank", str(seat.index))]
    if engine is EngineKind.SGLANG:
        wanted.append(("--dist-init-addr", f"{head}:{port}"))
    else:
        wanted += [("--master-addr", head), ("--master-port", port)]
    words = []
    for flag, value in wanted:
        if not flags.has(argv, flag):
            words += [flag, value]
        elif flag == "--node-rank" and flags.value_of(argv, flag) != value:
            raise CannotRender("the recipe's command fixes --node-rank, which differs from node to node",
                               "write it as --node-rank {node_rank}, or leave it out")  # fmt: skip
    if engine is EngineKind.VLLM and seat.index > 0 and not flags.has(argv, "--headless"):
        words.append("--headless")
    return words


def _spread(argv: Sequence[str], engine: EngineKind, nodes: int) -> None:
    tensor = _number(argv, "tensor-parallel-size")
    pipeline = _number(argv, "pipeline-parallel-size")
    data = 1 if engine is EngineKind.SGLANG else _number(argv, "data-parallel-size")
    ranks = tensor * pipeline * data
    if ranks == nodes:
        return
    said = f"tensor_parallel={tensor}" + (f", pipeline_parallel={pipeline}" if pipeline != 1 else "")
    said += f", data_parallel={data}" if data != 1 else ""
    many = "one node has" if nodes == 1 else f"{nodes} nodes have"
    raise CannotRender(
        f"{said} takes {ranks} GPU{'s' if ranks > 1 else ''}, and {many} {nodes}: each Spark has one",
        f"--set tensor_parallel={nodes}",
        *([f"name {ranks} nodes"] if ranks == 2 else []),
    )


def _number(argv: Sequence[str], flag: str) -> int:
    text = flags.value_of(argv, flag) or "1"
    if not text.isdecimal() or not 0 < int(text[:4]) < 1000:
        raise CannotRender(f"--{flag} is {text[:20]!r}: a whole number is wanted")
    return int(text[:4])
