"""Load the GPU of each Spark for some seconds, and see what it draws: the slow one that every status passes. Pure."""

from __future__ import annotations

from sparktop.model.fleet import FleetState
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Output, Question, Survey
from sparktop.operate.measure.busy import require_idle
from sparktop.operate.measure.gpu_load import PACKAGE, find_argv, library_in
from sparktop.operate.measure.power_run import MeasurePower
from sparktop.operate.plan.common_steps import step_id
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import OnFailure, Plan, Step

SECONDS = 12
"""Power and clock settle within a few; heat is not what is looked for."""
STARTS_S = 30
"""CUDA's start, and the matrices."""


def library_question(node: str) -> Output:
    return Output(node=node, argv=find_argv())


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return tuple(library_question(node) for node in request.nodes)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Refused while a node works or has an engine loaded, and where nothing is there to load the GPU with."""
    require_idle(request.nodes, picture, loads_gpu=True)
    libraries = {node: library_in(survey.text(library_question(node))) for node in request.nodes}
    if missing := [node for node, library in libraries.items() if not library]:
        raise Refused(
            f"{' and '.join(missing)} {'has' if len(missing) == 1 else 'have'} no cuBLAS to load the GPU with",
            tuple(f"on {node}: sudo apt install {PACKAGE}" for node in missing),
        )
    return Plan(
        request=request,
        title=f"Measure the power of {' and '.join(request.nodes)} under load",
        risk=Risk.DISRUPTIVE,
        steps=tuple(_step(node, libraries[node], request.nodes) for node in request.nodes),
        effect=(
            f"Multiplies matrices on the GPU for {SECONDS} s, one Spark after the other. Nothing is changed; the "
            f"program ends with the run, and by itself after {SECONDS + STARTS_S} s."
        ),
        warnings=("A Spark with weak power delivery may switch off as the load begins: then that is the finding.",),
    )


def _step(node: str, library: str, nodes: tuple[str, ...]) -> Step:
    return Step(
        id=step_id("load", node, nodes),
        title=f"Load the GPU of {node} for {SECONDS} s",
        node=node,
        act=MeasurePower(library=library, seconds=SECONDS, limit_s=SECONDS + STARTS_S),
        limit_s=SECONDS + STARTS_S + 60.0,
        verifies="its clock and power rise",
        on_failure=OnFailure.FAIL_AT_END,
    )
