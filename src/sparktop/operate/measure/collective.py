"""Run an all-reduce of 1 GiB over two Sparks, inside a serving image that both have. Pure.

Before it the cable alone is measured, so that what separates the causes of a slow collective is known. Both containers
are removed at the end, and by the way back of a run that ends before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparktop.model.fleet import FleetState
from sparktop.model.operation import DockerCall
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.inspected import image_path
from sparktop.operate.container.lifecycle import NEW, NEW_PATH, NewContainer, make, remove_new, start_call
from sparktop.operate.launch.inputs.docker import (
    Image,
    image_on,
    image_parity,
    image_question,
    images_question,
    list_question,
    rows,
    serving_images,
)
from sparktop.operate.launch.inputs.link import Rail, fabrics, rails
from sparktop.operate.measure import link
from sparktop.operate.measure.all_reduce import LIMIT_S, PORT, PROGRAM
from sparktop.operate.measure.busy import require_idle
from sparktop.operate.measure.collective_run import MeasureCollective
from sparktop.operate.measure.link_load import MeasureLink
from sparktop.operate.plan.common_steps import step_id
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.render.host_config import options
from sparktop.text.units import GIB, gib

NAME = "sparktop-all-reduce"
LABEL = "sparktop.measures"
NEEDS_BYTES = 8 * GIB
"""The tensor, NCCL's buffers, and what CUDA and PyTorch take."""
START_LIMIT_S = 60.0


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    if len(request.nodes) != 2:
        return ()
    image = image_name(request, survey)
    found = [question for node in request.nodes if image and (question := image_question(node, image)) is not None]
    docker = [question for node in request.nodes for question in (images_question(node), list_question(node))]
    return (*link.questions(request, picture, survey), *docker, *found)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Refused while a node works or has an engine loaded, and where no serving image is on both."""
    if len(request.nodes) != 2:
        raise Refused("a collective takes two Sparks", ("sparktop act measure-collective spark1 spark2",))
    require_idle(request.nodes, picture, loads_gpu=True)
    _require_memory(request.nodes, picture)
    link.require_link(request.nodes, picture, survey)
    pair_rails = rails(request.nodes, picture)
    if not pair_rails:
        raise Refused(
            f"no RDMA device of {request.nodes[0]} shares a network with one of {request.nodes[1]}",
            ("sparktop act set-addresses " + " ".join(request.nodes),),
        )
    images = _images(request, survey)
    head_ip = fabrics(request.nodes, picture, survey)[request.nodes[0]].ip
    ranks = [
        _container(node, number, images[node], head_ip, pair_rails, request.nodes)
        for number, node in enumerate(request.nodes)
    ]
    head, worker = ranks
    return Plan(
        request=request,
        title=f"Run a collective over {' and '.join(request.nodes)}",
        risk=Risk.SAFE,
        steps=(
            *(_clear(node, listed, request.nodes) for node in request.nodes if (listed := _leftovers(node, survey))),
            *_rdma_step(request.nodes, picture, survey),
            *(_make(rank) for rank in ranks),
            _start(worker),
            _start(head),
            _measure(head, worker, request.nodes),
            *(_remove(rank, "remove") for rank in ranks),
        ),
        rollback=tuple(_remove(rank, "take-away") for rank in ranks),
        is_all_or_nothing=True,
        effect=(
            f"Runs an all-reduce of 1 GiB by PyTorch and NCCL in {image_name(request, survey)} on both, for about a "
            f"minute. Both containers are removed at the end, and the program in them ends by itself after {LIMIT_S} s."
        ),
    )


def _require_memory(nodes: Sequence[str], picture: FleetState) -> None:
    for node in nodes:
        view = picture.node(node)
        available = view.sample.memory.available_bytes if view is not None and view.sample is not None else 0
        if available < NEEDS_BYTES:
            raise Refused(f"{node} has {gib(available)} available, and the collective needs {gib(NEEDS_BYTES)}")


# --- the image


def image_name(request: Request, survey: Survey) -> str:
    """The one that was asked for, else the newest that both have; empty: none."""
    return request.options.get("image") or _common_image(request.nodes, survey)


def _images(request: Request, survey: Survey) -> Mapping[str, Image]:
    name = image_name(request, survey)
    help_text = "launch a recipe over both first, which pulls its image; or name one: --set image=NAME"
    if not name:
        raise Refused("no serving image is on both Sparks", (help_text,))
    if image_path(name) is None:
        raise Refused(f"{name[:80]!r} is no image's name", (help_text,))
    found: dict[str, Image] = {}
    for node in request.nodes:
        image = image_on(survey, node, name)
        if image is None:
            raise Refused(f"{name} is not on {node}", (f"on {node}: docker pull {name}", help_text))
        found[node] = image
    first, second = found.values()
    if image_parity(first, second).is_problem:
        raise Refused(f"{name} is another build on {second.node} than on {first.node}", ("pull it on both again",))
    return found


def _common_image(nodes: Sequence[str], survey: Survey) -> str:
    """The newest serving image by name that both have; empty: none."""
    made = [serving_images(survey, node) or {} for node in nodes]
    common = set.intersection(*map(set, made))
    return max(sorted(common), key=lambda name: max(images[name] for images in made), default="")


# --- the containers


def _container(
    node: str, number: int, image: Image, head_ip: str, pair_rails: Sequence[Rail], nodes: Sequence[str]
) -> NewContainer:
    ends = [rail.near if number == 0 else rail.far for rail in pair_rails]
    devices = tuple(end.device for end in ends)
    environment = {
        "MASTER_ADDR": head_ip,
        "MASTER_PORT": str(PORT),
        "RANK": str(number),
        "WORLD_SIZE": str(len(nodes)),
        "NCCL_SOCKET_IFNAME": "=" + ",".join(end.interface for end in ends),
        "NCCL_IB_HCA": "=" + ",".join(devices),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "SPARKTOP_HCAS": ",".join(devices),
    }
    body: dict[str, Any] = {
        "Image": image.image_id,
        "Entrypoint": ["timeout", "-k", "5", str(LIMIT_S), "python3", "-c", PROGRAM],
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": {LABEL: "all-reduce"},
        "HostConfig": host_config(node, devices, len(nodes)),
    }
    return NewContainer(
        node=node,
        mark=f"@{node}",
        name=NAME,
        body=body,
        image_ref=image.image_id,
        image_id=image.image_id,
        created_as={f"Config.Labels.{LABEL}": "all-reduce"},
    )


def host_config(node: str, devices: tuple[str, ...], nodes: int) -> Mapping[str, object]:
    """As a recipe's container over two nodes has it: GPU, /dev/infiniband, locked memory, the host's network."""
    return options({}, NodeContext(node=node, hcas=devices), nodes=nodes).host


# --- the steps


def _rdma_step(nodes: Sequence[str], picture: FleetState, survey: Survey) -> Iterator[Step]:
    """The cable alone, where perftest is there: a slow collective over a fast cable has another cause."""
    if any(link.missing_programs(node, survey) for node in nodes):
        return
    steps = link.steps(nodes, sorted(rails(nodes, picture), key=link.port_of))
    whole = [one for one in steps if isinstance(one.act, MeasureLink) and not one.act.is_latency]
    yield max(whole, key=lambda one: len(one.act.halves) if isinstance(one.act, MeasureLink) else 0)


def _make(rank: NewContainer) -> Step:
    return make(
        rank,
        title=f"Create {rank.name} on {rank.node}",
        verifies="Docker accepts it; nothing runs yet",
        on_failure=OnFailure.ROLL_BACK,
    )


def _start(rank: NewContainer) -> Step:
    return Step(
        id=f"start{rank.mark}",
        title=f"Start {rank.name} on {rank.node}",
        node=rank.node,
        act=Remote(operations=(start_call(NEW_PATH),)),
        limit_s=START_LIMIT_S,
        verifies="Docker says that it runs",
        on_failure=OnFailure.ROLL_BACK,
    )


def _measure(head: NewContainer, worker: NewContainer, nodes: Sequence[str]) -> Step:
    return Step(
        id=step_id("all-reduce", head.node, nodes),
        title=f"All-reduce of 1 GiB over {' and '.join(nodes)}",
        node=head.node,
        act=MeasureCollective(peer=worker.node, container_id=NEW),
        limit_s=LIMIT_S + START_LIMIT_S,
        verifies="a figure, NCCL's line that it used RDMA, and the ports' counters",
        on_failure=OnFailure.FAIL_AT_END,
    )


def _remove(rank: NewContainer, verb: str) -> Step:
    return Step(
        id=f"{verb}{rank.mark}",
        title=f"Remove {rank.name} from {rank.node}",
        node=rank.node,
        act=Remote(operations=(remove_new(rank),)),
        limit_s=120.0,
        verifies="it is gone",
        undoes=(f"make{rank.mark}", f"start{rank.mark}"),
        on_failure=OnFailure.FAIL_AT_END if verb == "remove" else OnFailure.GO_ON,
    )


def _leftovers(node: str, survey: Survey) -> list[str]:
    """Ids of containers that an earlier measurement has left; refused where the name is somebody else's."""
    found = []
    for row in rows(survey, node) or ():
        if NAME not in row.names:
            continue
        if not row.labels.get(LABEL) or not row.container_id:
            raise Refused(f"{node} has a container {NAME} that sparktop did not create", (f"docker rm {NAME}",))
        found.append(row.container_id)
    return found


def _clear(node: str, container_ids: Sequence[str], nodes: Sequence[str]) -> Step:
    return Step(
        id=step_id("clear", node, nodes),
        title=f"Remove what an earlier measurement left on {node}",
        node=node,
        act=Remote(
            operations=tuple(
                DockerCall(
                    method="DELETE",
                    path=f"/containers/{one}",
                    query={"force": "true"},
                    accepts=(204, 404, 409),
                    limit_s=60.0,
                )
                for one in container_ids
            )
        ),
        limit_s=120.0,
        verifies="it is gone",
    )
