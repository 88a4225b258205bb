"""What is looked at before a launch: every gate of it, and the questions they need answers to. Pure.

    asked = gates.asks(looked)      # again with the answers so far, until nothing new is asked
    found = gates.gates(looked)     # failed first, then warned, not known, passed
    stops = gates.blocking(found)

Each gate's detail has the figure that was found; what failed or is warned of says what to do as it would be typed.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.model.prospect import Gate, GateState
from sparktop.operate.launching import (
    fabric,
    gates_disk,
    gates_docker,
    gates_image,
    gates_launch,
    gates_link,
    gates_model,
    gates_name,
    gates_node,
    gates_pair,
)
from sparktop.operate.launching.looked import Looked
from sparktop.operate.survey import Ask

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
"""In the order in which they are shown where nothing else tells them apart."""
_RANKS = {GateState.FAILED: 0, GateState.WARNED: 1, GateState.UNKNOWN: 2, GateState.PASSED: 3}


def asks(looked: Looked) -> tuple[Ask, ...]:
    """Everything that is to be asked, as far as the answers so far tell what that is."""
    nodes, picture, survey = looked.nodes, looked.picture, looked.survey
    return tuple(
        dict.fromkeys(
            (
                *gates_docker.asks(nodes),
                *gates_image.asks(looked),
                *gates_node.asks(nodes),
                *gates_model.asks(looked),
                *gates_disk.asks(nodes, survey),
                *fabric.asks(nodes, picture),
                *gates_link.asks(fabric.fabrics(nodes, picture, survey), survey),
            )
        )
    )


def gates(looked: Looked) -> tuple[Gate, ...]:
    """All of them, as they are shown."""
    found = [
        gate
        for part in (
            gates_launch,
            gates_docker,
            gates_name,
            gates_image,
            gates_node,
            gates_model,
            gates_disk,
            gates_link,
            gates_pair,
        )
        for gate in part.gates(looked)
    ]
    return ordered(looked, found)


def ordered(looked: Looked, found: Iterable[Gate]) -> tuple[Gate, ...]:
    """What failed first, then what is warned of, what is not known, what passed; then by name and node."""
    nodes = {node: index for index, node in enumerate(looked.nodes)}
    return tuple(
        sorted(
            found, key=lambda gate: (_RANKS[gate.state], NAMES.index(gate.name), nodes.get(gate.node, -1), gate.detail)
        )
    )


def blocking(found: Iterable[Gate]) -> tuple[Gate, ...]:
    """Those that a launch does not pass: what failed, and a Docker Engine that couldn't be asked."""
    return tuple(
        gate
        for gate in found
        if gate.state is GateState.FAILED or (gate.state is GateState.UNKNOWN and gate.name == "docker")
    )
