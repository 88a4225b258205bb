"""All pre-launch gates, in the order shown, and the questions they need answered. Pure.

    questions = catalogue.asks(inputs)       # again with the answers so far, until nothing new is asked
    gates = catalogue.gates(inputs)          # failed first, then warned, unknown, passed
    blocking_gates = catalogue.blocking(gates)

A gate's detail has the figure it found; one that failed or warns has a remedy to type.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.checks.judgement import SEVERITY_ORDER
from sparktop.model.prospect import Gate
from sparktop.model.state import State
from sparktop.model.survey import Ask
from sparktop.operate.launch.gates import docker, downloads, image, recipe
from sparktop.operate.launch.gates import link as gates_link
from sparktop.operate.launch.gates import node as gates_node
from sparktop.operate.launch.inputs import link as inputs_link
from sparktop.operate.launch.inputs.gate_inputs import GateInputs

NAMES = (
    *("recipe-lint", "docker", "gpu-runtime", "driver", "image", "image-version", "model", "hub", "disk", "port"),
    *(
        "name",
        "linger",
        "memory",
        "context",
        "secrets",
        "link",
        "rate",
        "mtu",
        "hca",
        "gid",
        "peer",
        "ssh",
        "equal-memory",
    ),
    "same-driver",
)
"""Display order of gates in the same state."""


def asks(inputs: GateInputs) -> tuple[Ask, ...]:
    """Questions of all gates, in rounds."""
    nodes, picture, survey = inputs.nodes, inputs.picture, inputs.survey
    return tuple(
        dict.fromkeys(
            (
                *docker.asks(nodes),
                *image.asks(inputs),
                *gates_node.asks(nodes),
                *downloads.asks(inputs),
                *downloads.disk_asks(inputs.order, nodes, survey),
                *inputs_link.asks(nodes, picture),
                *gates_link.asks(inputs_link.fabrics(nodes, picture, survey), survey),
            )
        )
    )


def gates(inputs: GateInputs) -> tuple[Gate, ...]:
    """All gates, in display order."""
    all_gates = (
        *recipe.gates(inputs),
        *docker.gates(inputs),
        *docker.name_gates(inputs),
        *image.gates(inputs),
        *gates_node.gates(inputs),
        *downloads.gates(inputs),
        *downloads.disk_gates(inputs),
        *gates_link.gates(inputs),
        *gates_node.parity_gates(inputs),
    )
    return ordered(inputs, all_gates)


def ordered(inputs: GateInputs, gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Failed first, then warned, unknown, passed; then by name and node."""
    nodes = {node: index for index, node in enumerate(inputs.nodes)}
    return tuple(
        sorted(
            gates,
            key=lambda gate: (
                -SEVERITY_ORDER.index(gate.state),
                NAMES.index(gate.name),
                nodes.get(gate.node, -1),
                gate.detail,
            ),
        )
    )


def blocking(gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Gates that prevent the launch: failed ones, and a Docker Engine that gave no answer."""
    return tuple(
        gate for gate in gates if gate.state is State.FAILED or (gate.state is State.UNKNOWN and gate.name == "docker")
    )
