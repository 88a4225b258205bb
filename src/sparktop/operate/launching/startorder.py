"""In which order the ranks of a launch are started. Pure.

Ray: the head first, as a worker's `ray start --address` needs it up (facts/engines.md sections 5.1, 5.3). vLLM's own
multi-node mode: the workers first, as launch-cluster.sh of spark-vllm-docker does it: they wait at the meeting address
until rank 0 is there, and what keeps a worker from starting is seen before the head loads anything. SGLang's ranks
meet in any order. All are started one right after the other, and waited for together.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.recipe import Executor
from sparktop.operate.launching.place import Place


def start_order(places: Sequence[Place], executor: Executor) -> tuple[Place, ...]:
    """As they are started."""
    is_ray = executor is Executor.RAY
    return tuple(sorted(places, key=lambda one: (one.is_head != is_ray, one.rank.index)))


def stop_order(places: Sequence[Place]) -> tuple[Place, ...]:
    """Head first: from then on none waits for a worker that is gone."""
    return tuple(sorted(places, key=lambda one: one.rank.index))
