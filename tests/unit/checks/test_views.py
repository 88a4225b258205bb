"""Every view of a check says the same of the same facts: what the check judged."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from types import ModuleType
from typing import Any

from tests.lint_support import linted
from tests.pictures_support import facts, gib, memory, process
from tests.table import over
from tests.unit.diagnose.rules.pair_support import ENV, bare, box, fabric, loading, rank, spark
from tests.unit.operate.launch.gates_support import BOTH, World, disk, fits, image, rendered

from sparktop.bringup.card import CheckInputs
from sparktop.bringup.catalogue import BY_ID as CARDS_BY_ID
from sparktop.bringup.looking import targets
from sparktop.checks import container, docker, host, link, machine, nccl, parity, ray
from sparktop.checks import image as images
from sparktop.checks.catalogue import CHECKS
from sparktop.checks.judgement import SEVERITY_ORDER, Check, View
from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.lint import catalogue as lints
from sparktop.diagnose.lint import two_nodes
from sparktop.diagnose.rules.host import system
from sparktop.diagnose.rules.pair import container_access, node_parity
from sparktop.diagnose.rules.pair import link as pair_link
from sparktop.diagnose.rules.pair import nccl as pair_nccl
from sparktop.model.engine import Containers
from sparktop.model.event import Severity
from sparktop.model.fleet import NodeView
from sparktop.model.recipe import Requirement
from sparktop.model.state import State
from sparktop.model.survey import Answer, Privileges, PrivilegesQuestion
from sparktop.model.telemetry import Disk
from sparktop.operate.launch.gates import catalogue as gates
from sparktop.operate.launch.gates import docker as gates_docker
from sparktop.operate.launch.gates import downloads, node
from sparktop.operate.launch.gates import link as gates_link
from sparktop.operate.launch.inputs.downloads import disk_question

PASSED, NOTE, WARNING, FAILED, UNKNOWN = State.PASSED, State.NOTE, State.WARNING, State.FAILED, State.UNKNOWN
SEVERITIES = {Severity.CRITICAL: FAILED, Severity.WARNING: WARNING, Severity.INFO: State.NOTE}
GATE_STATES = {
    State.PASSED: PASSED,
    State.WARNING: WARNING,
    State.FAILED: FAILED,
    State.UNKNOWN: UNKNOWN,
}


BRING_UP_STATES = {
    State.PASSED: PASSED,
    State.WARNING: WARNING,
    State.FAILED: FAILED,
    State.UNKNOWN: UNKNOWN,
    State.SKIPPED: None,
}


class Facts:
    """The same facts in every view's world: a picture, a launch on it, and a `docker run` line."""

    def __init__(self, second: NodeView, *, line: str = "", **world: Any) -> None:
        self.world = World()
        self.world.views = {"spark1": spark(1), "spark2": second}
        for name, value in world.items():
            setattr(self.world, name, value)
        self.line = line

    def publish_after(self, view: View, name: str) -> State | None:
        """What a view says; a rule or lint that is silent has found nothing. None: it isn't given these facts."""
        if view is View.LINT and not self.line:
            return None
        if view is View.GATE:
            states = [GATE_STATES[gate.state] for gate in self.world.gates() if gate.name == name]
        elif view is View.BRING_UP:
            picture, survey, card = self.world.picture, self.world.looked.survey, CARDS_BY_ID[name]
            shown = [target for target in targets(card, picture) if "spark2" in target.nodes]
            seen = [CheckInputs(picture=picture, survey=survey, target=target) for target in shown]
            rows = [BRING_UP_STATES[card.look(one).state] for one in seen]
            return max(filter(None, rows), key=SEVERITY_ORDER.index, default=None)
        elif view is View.RULE:
            (rule,) = (rule for rule in live_rules() if rule.id == name)
            states = [SEVERITIES[finding.severity] for finding in rule.check(self.world.picture)]
        else:
            states = [SEVERITIES[finding.severity] for finding in linted(self.line) if finding.rule == name]
        return max(states, key=SEVERITY_ORDER.index, default=PASSED)


def of_host(**host_facts: Any) -> Facts:
    return Facts(spark(2, facts=facts("spark2", **host_facts)))


def clock(ahead_s: float) -> Facts:
    second = spark(2)
    assert second.sample is not None
    return Facts(replace(second, sample=replace(second.sample, wall_s=second.sample.wall_s + ahead_s)))


def handover(kernel: str, total_bytes: int | None, free_bytes: int) -> Facts:
    held = memory(110.0, cma_total_bytes=total_bytes, cma_free_bytes=free_bytes)
    second = spark(2, facts=facts("spark2", kernel=kernel))
    assert second.sample is not None
    return Facts(replace(second, sample=replace(second.sample, memory=held)))


def stored(free_gib: float, total_gib: float = 3700.0) -> Facts:
    return of_host(disks=(Disk(mount="/", total_bytes=gib(total_gib), free_bytes=gib(free_gib)),))


def asking_for(tokens: int) -> Facts:
    """A launch of a model that was made for 40,960 tokens."""
    told = disk()
    told["models"][0]["config"] = {"max_position_embeddings": 40960}
    answers = {disk_question(node): Answer(value=told) for node in BOTH}
    return Facts(spark(2), budget=fits(context_tokens=tokens), answers=answers)


def lingering(*, engine_user: int = 1000, requires: bool = False, **host_facts: Any) -> Facts:
    host_facts = {"is_lingering": False, "removes_ipc": True, **host_facts}
    row = process(601, "VLLM::Worker_TP", user_id=engine_user)
    launch = {"DeviceRequests": [{}], "IpcMode": "host"}
    made = Facts(
        spark(2, facts=facts("spark2", **host_facts), processes=(row,)),
        rendered=rendered(BOTH, user=f"{engine_user}:{engine_user}", host=launch),
    )
    made.world.asks_for(requires=Requirement(linger=requires))
    made.world.view("spark1", facts=facts("spark1", is_lingering=True))
    return made


def contained(*options: str, flow: float = 0.0, **given: Any) -> Facts:
    """A rank's container that isn't privileged, while it loads, and the `docker run` options that make it so."""
    held = box(1, **{"is_privileged": False, "devices": ("/dev/infiniband",), **given})
    second = spark(2, engines=(loading(1, held=held),), rdma_bytes_per_s=flow)
    line = f"docker run --gpus all {' '.join(options)} vllm/vllm-openai:v0.33.0 /models/x -tp 2 --nnodes 2"
    made = Facts(second, line=line)
    made.world.view("spark1", engines=(loading(0),))
    return made


def networked(mode: str) -> Facts:
    return contained(f"--network {mode}", network_mode=mode)


def opened(*devices: str) -> Facts:
    return contained("--net=host --ulimit memlock=-1", *(f"--device {path}" for path in devices), devices=devices)


def locked(*ulimits: str, options: str = "", **given: Any) -> Facts:
    lines = [f"--ulimit {limit}" for limit in ulimits]
    return contained("--net=host --device /dev/infiniband", options, *lines, ulimits=ulimits, **given)


def on_ray(*variables: str) -> Facts:
    serve = ("vllm", "serve", "m", "--tensor-parallel-size", "2", "--distributed-executor-backend", "ray")
    held = [box(number, argv=serve, environment=("A=b", *variables)) for number in (0, 1)]
    made = contained("--net=host", *(f"-e {variable}" for variable in variables))
    made.line += " --distributed-executor-backend ray"
    for number, name in enumerate(BOTH):
        made.world.view(name, engines=(rank(number, held=held[number]),))
    return made


def joined(**network: Any) -> Facts:
    return Facts(spark(2, network=fabric(2, **network)))


def told(*variables: str, both: bool = False) -> Facts:
    """Ranks that load, with these variables: the second, or both."""
    made = contained("--net=host", *(f"-e {variable}" for variable in variables))
    for number, name in enumerate(BOTH):
        given = ("A=b", *variables) if number or both else ENV
        made.world.view(name, engines=(loading(number, held=box(number, environment=given)),))
    return made


def seen_only(made: Facts) -> Facts:
    """Facts of nodes, which no file has."""
    made.line = ""
    return made


def imaged(number: int) -> Facts:
    """The second node's image is this one, the first node's number 1."""
    made = Facts(spark(2, engines=(rank(1, held=box(1, image_id=f"sha256:{number:064x}")),)))
    made.world.view("spark1", engines=(rank(0, held=box(0, image_id=f"sha256:{1:064x}")),))
    for node_name, each in (("spark1", 1), ("spark2", number)):
        made.world.image(node_name, image(each, Id=f"sha256:{each:064x}"))
    return made


def remembering(second_gib: float) -> Facts:
    made = Facts(bare(2, memory=memory(second_gib)))
    made.world.views["spark1"] = bare(1, memory=memory(116.0))
    return made


def permitted(access: str) -> Facts:
    containers = Containers(available=access == "open", is_denied=access == "denied")
    made = Facts(spark(2, containers=containers))
    made.world.answers[PrivilegesQuestion(node="spark2")] = Answer(value=Privileges(user="spark", docker=access))
    return made


def runtimes(*names: str) -> Facts:
    made = of_host()
    made.world.info("spark2", Runtimes={name: {} for name in names})
    return made


def run(image_name: str, *flags: str, ray_needed: bool = False, loader: bool = False) -> Facts:
    """A launch of an image, and its `docker run` line."""
    made = Facts(spark(2), line=f"docker run --gpus all --net=host {image_name} vllm serve /models/x {' '.join(flags)}")
    made.world.rendered = rendered(BOTH, image=image_name)
    made.world.asks_for(container=image_name, requires=Requirement(ray=ray_needed, fastsafetensors=loader))
    for node_name in BOTH:
        made.world.image(node_name, image(), name=image_name)
    return made


def on_ngc(month: str) -> Facts:
    flags = "-tp 2 --distributed-executor-backend ray"
    return run(f"nvcr.io/nvidia/vllm:{month}-py3", flags, ray_needed=True)


def fast_on_ngc(month: str) -> Facts:
    return run(f"nvcr.io/nvidia/vllm:{month}-py3", "--load-format fastsafetensors", loader=True)


CASES: list[tuple[Check[Any], State, Facts]] = [
    (host.judge_driver_branch, PASSED, of_host(driver_version="580.95.05")),
    (host.judge_driver_branch, WARNING, of_host(driver_version="585.10")),
    (host.judge_driver_branch, WARNING, of_host(driver_version="570.124")),
    (host.judge_driver_branch, WARNING, of_host(driver_version="595.84")),
    (host.judge_driver_pending, PASSED, of_host(driver_installed="580.142")),
    (host.judge_driver_pending, WARNING, of_host(driver_installed="580.173.02")),
    (images.judge_ray_package, PASSED, on_ngc("26.04")),
    (images.judge_ray_package, FAILED, on_ngc("26.05")),
    (images.judge_ray_package, FAILED, on_ngc("26.06")),
    (
        images.judge_fastsafetensors,
        PASSED,
        run("vllm/vllm-openai:v0.33.0", "--load-format fastsafetensors", loader=True),
    ),
    (images.judge_fastsafetensors, FAILED, fast_on_ngc("26.03")),
    (images.judge_tag, PASSED, run("vllm/vllm-openai:v0.33.0")),
    (images.judge_tag, WARNING, run("vllm/vllm-openai:nightly")),
    (docker.judge_docker_access, PASSED, permitted("open")),
    (docker.judge_docker_access, FAILED, permitted("denied")),
    (docker.judge_gpu_runtime, PASSED, runtimes("nvidia", "runc")),
    (docker.judge_gpu_runtime, WARNING, runtimes("runc")),
    (parity.judge_driver_parity, PASSED, of_host()),
    (parity.judge_driver_parity, WARNING, of_host(driver_version="580.95.05")),
    (parity.judge_kernel_parity, PASSED, of_host()),
    (parity.judge_kernel_parity, WARNING, of_host(kernel="6.11.0-1000-nvidia")),
    (parity.judge_release_parity, PASSED, of_host()),
    (parity.judge_release_parity, NOTE, of_host(dgx_release="7.5.0")),
    (parity.judge_image_parity, PASSED, imaged(1)),
    (parity.judge_image_parity, FAILED, imaged(2)),
    (parity.judge_memory_parity, PASSED, remembering(111.0)),
    (parity.judge_memory_parity, WARNING, remembering(110.9)),
    (link.judge_link, PASSED, joined()),
    (link.judge_link, FAILED, joined(up=False)),
    (link.judge_rate, PASSED, joined()),
    (link.judge_rate, WARNING, joined(rate=100.0)),
    (link.judge_rate, PASSED, Facts(spark(2, facts=facts("spark2", product="Other"), network=fabric(2, rate=100.0)))),
    (link.judge_mtu, PASSED, joined()),
    (link.judge_mtu, WARNING, joined(mtu=1500)),
    (nccl.judge_hca_names, PASSED, told("NCCL_IB_HCA=rocep1s0f0")),
    (nccl.judge_hca_names, WARNING, told("NCCL_IB_HCA=rocep1s0f0,mlx5_0")),
    (nccl.judge_hca_names, FAILED, told("NCCL_IB_HCA=mlx5_0")),
    (nccl.judge_hca_pinned, PASSED, told("NCCL_IB_HCA=rocep1s0f0", both=True)),
    (nccl.judge_hca_pinned, PASSED, told("NCCL_IB_DISABLE=1", both=True)),
    (nccl.judge_hca_pinned, WARNING, told(both=True)),
    (nccl.judge_gid, PASSED, told("NCCL_IB_GID_INDEX=-1")),
    (nccl.judge_gid, PASSED, seen_only(told("NCCL_IB_GID_INDEX=3"))),
    (nccl.judge_gid, FAILED, seen_only(told("NCCL_IB_GID_INDEX=5"))),
    (nccl.judge_place, PASSED, told("NCCL_SOCKET_IFNAME=enp1s0f0np0")),
    (nccl.judge_place, FAILED, told("NCCL_SOCKET_IFNAME=eth7")),
    (nccl.judge_place, FAILED, told("VLLM_HOST_IP=10.0.0.1")),
    (container.judge_network, PASSED, networked("host")),
    (container.judge_network, UNKNOWN, networked("container:ab")),
    (container.judge_network, FAILED, networked("bridge")),
    (container.judge_network, FAILED, networked("llm_default")),
    (container.judge_network, FAILED, networked("macvlan7")),
    (container.judge_rdma_devices, PASSED, opened("/dev/infiniband")),
    (container.judge_rdma_devices, PASSED, opened("/dev/infiniband/uverbs0")),
    (container.judge_rdma_devices, WARNING, opened()),
    (container.judge_rdma_devices, WARNING, opened("/dev/infinibandage")),
    (container.judge_rdma_devices, WARNING, opened("/dev/shm")),
    (container.judge_memlock, PASSED, locked("memlock=-1:-1")),
    (container.judge_memlock, PASSED, locked("memlock=17179869184:17179869184")),
    (container.judge_memlock, PASSED, locked(options="--privileged", is_privileged=True)),
    (container.judge_memlock, WARNING, locked()),
    (container.judge_memlock, WARNING, locked("memlock=8388608:8388608")),
    (ray.judge_memory_monitor, PASSED, on_ray("RAY_memory_monitor_refresh_ms=0")),
    (ray.judge_memory_monitor, WARNING, on_ray()),
    (ray.judge_memory_monitor, WARNING, on_ray("RAY_memory_monitor_refresh_ms=250")),
    (host.judge_next_kernel, PASSED, of_host(kernel_next="6.17.0-1026-nvidia", kernel_next_has_driver=False)),
    (host.judge_next_kernel, WARNING, of_host(kernel_next="7.0.0-1020", kernel_next_has_driver=False)),
    (host.judge_disk_room, PASSED, stored(120.0)),
    (host.judge_disk_room, PASSED, stored(6.0, 50.0)),
    (host.judge_disk_room, WARNING, stored(14.0)),
    (host.judge_disk_room, FAILED, stored(1.2)),
    (host.judge_clock, PASSED, clock(200.0)),
    (host.judge_clock, WARNING, clock(-400.0)),
    (host.judge_linger, PASSED, lingering(is_lingering=True)),
    (machine.judge_context, PASSED, asking_for(4096)),
    (machine.judge_context, WARNING, asking_for(65536)),
    (host.judge_linger, PASSED, lingering(removes_ipc=False)),
    (host.judge_linger, PASSED, lingering(engine_user=0)),
    (machine.judge_handover, PASSED, handover("6.17.0-1032-nvidia", 131072 * 1024, 4096)),
    (machine.judge_handover, NOTE, handover("7.0.0-1019-nvidia", 0, 0)),
    (machine.judge_handover, WARNING, handover("7.0.0-1019-nvidia", 0, gib(9.3))),
    (machine.judge_handover, UNKNOWN, handover("6.17.0-1032-nvidia", None, 0)),
    (host.judge_linger, PASSED, lingering(engine_user=1001)),
    (host.judge_linger, PASSED, lingering(user_id=998, engine_user=998)),
    (host.judge_linger, UNKNOWN, lingering(is_lingering=None)),
    (host.judge_linger, WARNING, lingering()),
    (host.judge_linger, WARNING, lingering(removes_ipc=None)),
]


@over("check, state, given", CASES, ids=[f"{row[0].id}-{row[1]}-{index}" for index, row in enumerate(CASES)])
def test_all_views_of_a_check_agree(check: Check[Any], state: State, given: Facts) -> None:
    for view, name in check.views.items():
        expected = state
        if view in (View.GATE, View.BRING_UP):
            expected = PASSED if state is NOTE else state
        elif state is UNKNOWN:
            expected = PASSED
        elif name == parity.judge_image_parity.id and state is FAILED:
            expected = WARNING  # it sees ids alone, and two stores may give one image two of them
        elif name in SHOWN_AS_NOTES and state is not PASSED:
            expected = NOTE
        assert given.publish_after(view, name) in (expected, None), view


SHOWN_AS_NOTES = {"config.image-not-pinned", "cluster.hca-unset", "config.memlock", "host.docker-denied"}
"""Views that tell a problem as information: it works until it doesn't, or watching works all the same."""


def test_every_check_is_listed_once_and_has_its_views_and_cases() -> None:
    names = {
        View.RULE: {rule.id for rule in live_rules()},
        View.GATE: set(gates.GATES),
        View.LINT: {card.id for card in lints.cards()},
        View.BRING_UP: set(CARDS_BY_ID),
    }
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.views
        assert all(name in names[view] for view, name in check.views.items()), check.id
        assert check.views.get(View.RULE, check.id) == check.id
        if set(check.views) == {View.BRING_UP}:
            continue  # its cases: tests/unit/bringup/test_cards.py
        states = {state for judged, state, _ in CASES if judged is check}
        assert PASSED in states, check.id
        assert states & {NOTE, WARNING, FAILED}, check.id


VIEWS: dict[ModuleType, set[str]] = {
    system: {"MANY_ZOMBIES"},
    container_access: set(),
    two_nodes: set(),
    pair_link: {"TOKENS_PER_S", "FLAT_BYTES_PER_TOKEN", "IP_HEADER_BYTES"},
    pair_nccl: set(),
    node_parity: set(),
    downloads: set(),
    gates_docker: {"_NAME_CHARS"},
    gates_link: {"USUAL_MTU", "PING_LARGEST"},
    node: set(),
}
"""Modules of views, with the thresholds of their own: of what no check judges."""


def test_a_view_has_no_threshold_of_its_own() -> None:
    for module, own in VIEWS.items():
        tree = ast.parse(inspect.getsource(module))
        values = {
            target.id: assignment.value
            for assignment in tree.body
            if isinstance(assignment, ast.Assign)
            for target in assignment.targets
            if isinstance(target, ast.Name)
        }
        numbers = {
            name
            for name, value in values.items()
            if any(isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in ast.walk(value))
        }
        assert numbers <= own, module.__name__
