"""Relaunches that are somebody else's to do: what to type; and what is known against a launch as a change makes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests import pictures_support as made
from tests import relaunch_support as support
from tests import restart_support as restarts
from tests.plan_golden import compare_plan
from tests.relaunch_support import asked, planned
from tests.table import over

from sparktop.cmdline.docker_run import parse_run_line
from sparktop.model.change import Change
from sparktop.operate.step.plan import Plan, Refusal

SECRET = "canary-5f0b7c11d2"
CHANGE = Change(
    flags={"--gpu-memory-utilization": "0.60", "--enforce-eager": ""},
    environment={"NCCL_DEBUG": "INFO; reboot", "VLLM_API_KEY": SECRET},
    options={"IpcMode": "host", "ShmSize": 1 << 34},
)
SLEEPS = ("sleep", "infinity")
EUGR = {"name": "vllm_node", "argv": SLEEPS, "auto_remove": True, "ipc_mode": "host", "is_privileged": True}
SPARKRUN = {
    "name": "sparkrun_7d7b52c2c9174082_15b33f409193_solo",
    "argv": SLEEPS,
    "labels": {"sparkrun.recipe": "@eugr/qwen3.6 $(reboot)", "sparkrun.cluster_id": "sparkrun_7d7b_15b3"},
}
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("sparkrun", SPARKRUN, [
        "sparkrun stop sparkrun_7d7b_15b3",
        ("sparkrun run '@eugr/qwen3.6 $(reboot)' -o gpu_memory_utilization=0.60 -o ipc=host -o shm_size=17179869184 "
        "-- --enforce-eager"),
        "in the recipe, variable: NCCL_DEBUG='INFO; reboot'",
        'in the recipe, variable: VLLM_API_KEY="$VLLM_API_KEY"',
    ]),
    ("spark-vllm-docker", EUGR, [
        "./launch-cluster.sh stop",
        ("VLLM_SPARK_EXTRA_DOCKER_ARGS='--ipc=host --shm-size=17179869184' ./launch-cluster.sh "
        "-e NCCL_DEBUG='INFO; reboot' -e VLLM_API_KEY=\"$VLLM_API_KEY\" exec vllm serve"),
        "--gpu-memory-utilization 0.60",
    ]),
    ("run_cluster.sh", {"name": "node-31415", "argv": ("bash", "-c", "ray start --block --head")}, [
        "docker exec -it -e NCCL_DEBUG='INFO; reboot' -e VLLM_API_KEY=\"$VLLM_API_KEY\" node-31415 vllm serve",
    ]),
    ("docker exec", {"name": "mine", "argv": SLEEPS}, ["docker exec -it", "docker run ... --ipc=host"]),
    ("Kubernetes", {"labels": {"io.kubernetes.pod.name": "vllm-0", "io.kubernetes.pod.namespace": "ai"}}, [
        "kubectl -n ai get pod vllm-0", "variable: NCCL_DEBUG=",
    ]),
    ("Docker Swarm", {"labels": {"com.docker.swarm.service.name": "vllm"}}, ["docker service update vllm"]),
]  # fmt: skip


@over("who, box, lines", CASES, ids=[one[0] for one in CASES])
def test_what_to_type(who: str, box: dict[str, Any], lines: list[str]) -> None:
    one = support.engine(**box)
    refusal = planned(asked(CHANGE), made.picture(restarts.spark(engines=(one,))))
    assert isinstance(refusal, Refusal), refusal
    compare_plan(f"relaunch_refused-{who.replace(' ', '-')}", refusal)
    assert who in refusal.reason
    text = "\n".join(refusal.remedies)
    for line in lines:
        assert line in text, text
    assert SECRET not in text
    assert SECRET not in repr(refusal)


def test_a_process_of_its_own() -> None:
    one = replace(made.engine("vllm"), container=None)
    refusal = planned(asked(CHANGE), made.picture(restarts.spark(engines=(one,))))
    assert isinstance(refusal, Refusal)
    assert "only its command line tells how it was started" in refusal.reason
    assert any("--gpu-memory-utilization 0.60" in line for line in refusal.remedies)


def test_the_ranks_of_one_engine_are_of_one_starter() -> None:
    worker = restarts.worker()
    assert worker.container is not None
    other = replace(worker, container=replace(worker.container, labels={"sparktop.recipe": "x"}))
    picture = made.picture(
        restarts.spark("spark1", engines=(restarts.head(),)), restarts.spark("spark2", engines=(other,))
    )
    refusal = planned(asked(CHANGE), picture)
    assert isinstance(refusal, Refusal)
    assert "differently (spark1: docker run, spark2: sparktop launch)" in refusal.reason


# --- lint of the launch that a change makes


def whispers(change: Change, **more: Any) -> list[str]:
    plan = planned(asked(change), made.picture(restarts.spark(**more)))
    assert isinstance(plan, Plan), plan
    return [warning for warning in plan.warnings if warning.startswith("The change itself")]


def test_a_change_that_is_known_to_go_wrong_is_told() -> None:
    assert whispers(Change(environment={"NCCL_DEBUG": "INFO"})) == []
    (said,) = whispers(Change(flags={"--gpu-memory-utilization": "0.95"}))
    assert "(config.gpu-memory-utilization-high)" in said
    (said,) = whispers(Change(flags={"--api-key": SECRET}))
    assert "(config.secret-in-argv)" in said
    assert SECRET not in said


def test_what_was_wrong_before_is_not_told_again() -> None:
    argv = (*made.ARGV[:8], "0.95", *made.ARGV[9:])
    one = made.engine(argv=argv, container=made.container(argv=argv))
    assert whispers(Change(environment={"NCCL_DEBUG": "INFO"}), engines=(one,)) == []
    assert whispers(Change(flags={"--gpu-memory-utilization": "0.96"}), engines=(one,)) != [], "it is another figure"


@over("line", ["docker run --ulimit memlock=-1 --device=/dev/x IMAGE", "podman container run IMAGE"])
def test_taken_apart(line: str) -> None:
    assert parse_run_line(line.split()).words == line.split()
