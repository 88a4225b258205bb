"""All pre-launch gates, in the order shown. Pure.

    gates = catalogue.gates(inputs)          # failed first, then warned, unknown, passed
    blocking_gates = catalogue.blocking(gates)

A gate's detail has the figure it found; one that failed or warns has a remedy to type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sparktop.checks.judgement import SEVERITY_ORDER
from sparktop.model.prospect import Gate
from sparktop.model.state import State
from sparktop.operate.launch.gates import docker, downloads, image, recipe
from sparktop.operate.launch.gates import link as gates_link
from sparktop.operate.launch.gates import node as gates_node
from sparktop.operate.launch.inputs.gate_inputs import GateInputs

GATES: Mapping[str, Callable[[GateInputs], Gate | Iterable[Gate]]] = {
    "recipe-lint": recipe.lint_gates,
    "docker": docker.docker_gates,
    "gpu-runtime": docker.gpu_runtime_gates,
    "driver": gates_node.driver_gates,
    "image": image.image_gates,
    "image-version": image.version_gates,
    "model": downloads.model_gates,
    "hub": downloads.hub_gates,
    "disk": downloads.disk_gates,
    "port": gates_node.port_gate,
    "name": docker.name_gates,
    "linger": gates_node.linger_gates,
    "memory": recipe.memory_gate,
    "context": recipe.context_gate,
    "secrets": recipe.secret_gates,
    **{name: gates_link.gates_of(name) for name in gates_link.PAIR_GATES},
    "ssh": downloads.ssh_gates,
    "equal-memory": gates_node.memory_gates,
    "same-driver": gates_node.software_gates,
}
"""By name; in the order in which those in the same state are shown."""


def gates(inputs: GateInputs) -> tuple[Gate, ...]:
    """All gates: failed first, then warned, unknown, passed; then by name and node."""
    made = [replace(gate, name=name) for name, judge in GATES.items() for gate in _gates(judge(inputs))]
    order, nodes = list(GATES), {node: index for index, node in enumerate(inputs.nodes)}

    def rank(gate: Gate) -> tuple[int, int, int, str]:
        return (-SEVERITY_ORDER.index(gate.state), order.index(gate.name), nodes.get(gate.node, -1), gate.detail)

    return tuple(sorted(made, key=rank))


def _gates(made: Gate | Iterable[Gate]) -> Iterable[Gate]:
    return (made,) if isinstance(made, Gate) else made


def blocking(gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Gates that prevent the launch: failed ones, and a Docker Engine that gave no answer."""
    return tuple(
        gate for gate in gates if gate.state is State.FAILED or (gate.state is State.UNKNOWN and gate.name == "docker")
    )
