"""The reboot: what is said before, that it can't happen twice, and what is compared after."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

from tests.pictures_support import (
    NOW_S,
    container,
    engine,
    facts,
    gib,
    gpu,
    idle_node,
    link,
    node,
    picture,
    process,
)
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.operate.machine.machine_support import FREE, SPARK, ids, operations, planned, refused, step, warned

from sparktop.model.engine import Containers, Engine
from sparktop.model.fleet import Baseline, LinkState, NodeView
from sparktop.model.operation import Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import GpuReading
from sparktop.operate.acts.arrivals import AwaitBack, compared
from sparktop.operate.acts.remote import Remote
from sparktop.operate.machine import reboot
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.wait import Since, WaitStatus, WaitVerdict

WHO = "spark    pts/0        2026-11-21 03:10 00:12        4711 (192.168.0.9)\n"
INHIBITED = "PackageKit 0 root 1201 packagekitd shutdown Updating packages block\nx 0 root 1 y sleep Because delay\n"


def ask(**options: str) -> Request:
    return Request(action="reboot", nodes=("spark1",), options=options)


def made(view: NodeView, *others: NodeView, privileges: Privileges = FREE, **options: str) -> Any:
    return planned(
        reboot,
        ask(**options),
        picture(view, *others),
        privileges=privileges,
        outputs={"who": WHO, "systemd-inhibit": INHIBITED},
    )


def test_it_is_typed_watched_and_destructive() -> None:
    plan = made(node("spark1"))
    compare_plan("reboot", plan)
    assert ids(plan) == ["evidence", "reboot", "back", "ready-vllm-qwen36", "serving-vllm-qwen36"]
    assert plan.typed == "spark1"
    assert plan.risk is Risk.DESTRUCTIVE
    (command,) = operations(plan, "reboot")
    assert (command.argv, command.privilege) == (("/usr/bin/systemctl", "reboot"), Privilege.ROOT)
    act = step(plan, "reboot").act
    assert isinstance(act, Remote)
    assert act.takes_link
    assert step(plan, "back").act == AwaitBack(boot_id="boot-of-spark1")


def test_other_containers_that_docker_leaves_down_are_named() -> None:
    view = node("spark1")
    others = tuple(
        container(name, restart_policy=policy, status=status)
        for name, policy, status in (
            ("open-webui", "no", "running"), ("litellm", "on-failure:3", "running"), ("cache", "always", "running"),
            ("old", "no", "exited"),
        )
    )  # fmt: skip
    with_others = replace(view, containers=replace(view.containers, containers=(*view.containers.containers, *others)))
    assert "open-webui and litellm" in warned(made(with_others))
    assert "Docker doesn't start" not in warned(made(view))


def test_what_ran_before_runs_again_at_its_end() -> None:
    by_hand = engine(container=container(restart_policy="no"))
    plan = made(node("spark1", engines=(by_hand,)))
    assert ids(plan)[2:] == ["back", "start-vllm-qwen36", "ready-vllm-qwen36", "serving-vllm-qwen36"]
    (call,) = operations(plan, "start-vllm-qwen36")
    assert call.path == f"/containers/{container().container_id}/start"
    assert plan.effect.endswith("vllm-qwen36 serves again.")
    for lost in (container(auto_remove=True), container(argv=("sleep", "infinity")), None):
        assert ids(made(node("spark1", engines=(engine(container=lost),)))) == ["evidence", "reboot", "back"]


def test_what_runs_in_a_container_that_docker_does_not_tell_of_runs_again_too() -> None:
    """A Docker Engine that hangs is why one reboots."""
    box = container()
    runs_in_it = (process(77352, "VLLM::EngineCor", 4.1, container_id=box.container_id),)
    view = node("spark1", engines=(engine(container=None, pids=(77352,)),), processes=runs_in_it)
    hangs = replace(view, containers=Containers(detail="it doesn't answer"))
    plan = made(hangs)
    (call,) = operations(plan, "start-vllm-qwen36")
    assert call.path == f"/containers/{box.container_id}/start"
    assert ids(plan) == ["evidence", "reboot", "back", "start-vllm-qwen36"], (
        "by its name it would be waited for in vain"
    )
    assert "this plan starts it again" in warned(plan)
    denied = made(replace(hangs, containers=Containers(is_denied=True)))
    assert ids(denied) == ["evidence", "reboot", "back"]
    assert "docker ps --all" in warned(denied)


def test_a_machine_that_has_rebooted_is_not_rebooted_again() -> None:
    """Its own question, as it would be asked there: yes for another boot, no for this one."""
    with open(reboot.BOOT_ID, encoding="ascii") as file:
        now = file.read().strip()

    def asked(boot_id: str) -> int:
        plan = made(replace(node("spark1"), facts=facts("spark1", boot_id=boot_id)))
        (command,) = operations(plan, "reboot")
        assert command.done_when is not None
        assert command.done_when.privilege is Privilege.USER
        return subprocess.run(command.done_when.argv, check=False, capture_output=True).returncode

    assert asked(now) == 1
    assert asked("0d0e0f00-0000-4000-8000-000000000000") == 0
    assert asked("-r") == 0, "an id is data, whatever it begins with"


@over(
    "one, said",
    [
        (engine(), "It comes back by itself (unless-stopped)"),
        (engine(container=container(restart_policy="always")), "It comes back by itself (always)"),
        (engine(container=container(restart_policy="no")), "Its restart policy is no: this plan starts it again."),
        (
            engine(container=container(restart_policy="on-failure:3")),
            "policy is on-failure: this plan starts it again.",
        ),
        (engine(container=container(restart_policy="", auto_remove=True)), "its writable layer is lost"),
        (engine(container=container(argv=("sleep", "infinity"))), "started inside it by hand"),
        (engine(container=None, name="vllm-8000"), "comes back only if a service starts it"),
    ],
)
def test_what_comes_back_by_itself(one: Engine, said: str) -> None:
    text = warned(made(node("spark1", engines=(one,))))
    assert said in text
    assert "with 2 requests running" in text


def test_who_is_there_and_who_asks_it_not_to() -> None:
    plan = made(idle_node("spark1"))
    text = warned(plan)
    assert "no engine" in plan.effect
    assert "spark from 192.168.0.9" in text
    assert "Inhibits shutdown: PackageKit" in text
    assert "sleep" not in text


def test_what_cannot_be_asked_is_said() -> None:
    plan = planned(reboot, ask(), picture(idle_node("spark1")), privileges=SPARK)
    text = warned(plan)
    assert "no such program" in text
    assert "NOPASSWD: /usr/bin/systemctl reboot" in text


def test_the_other_rank_hangs() -> None:
    split = engine(argv=("vllm", "serve", "m", "--tensor-parallel-size", "2"))
    worker = engine("vllm-worker", argv=("vllm", "serve", "m", "--nnodes", "2"), has_metrics=False, endpoint=None)
    text = warned(made(node("spark1", engines=(split,)), node("spark2", engines=(worker,))))
    assert "vllm-worker on spark2" in text


@over(
    "more, said",
    [
        ({"kernel_next": "7.0.0-1-nvidia", "kernel_next_has_driver": False}, "the GPU would be gone afterwards"),
        ({"kernel_next": "7.0.0-1-nvidia", "kernel_next_has_driver": True}, "another kernel: 7.0.0-1-nvidia"),
        ({"driver_installed": "580.159.03"}, "spark1 will load driver 580.159.03 instead of 580.142"),
    ],
)
def test_what_the_next_boot_takes(more: dict[str, Any], said: str) -> None:
    assert said in warned(made(idle_node("spark1", facts=facts("spark1", **more))))


def test_it_is_refused_without_root_and_without_a_boot_id() -> None:
    assert "no sudo" in refused(made(node("spark1"), privileges=Privileges(user="spark", sudo="missing")))
    assert "boot id" in refused(made(replace(node("spark1"), facts=None)))


def test_watching_alone_does_nothing_to_it() -> None:
    plan = planned(reboot, ask(watch_only="yes"), picture(node("spark1")), privileges=None)
    compare_plan("reboot-watched", plan)
    assert ids(plan) == ["back"]
    assert isinstance(plan, Plan)
    assert (plan.risk, plan.typed) == (Risk.SAFE, "")


def test_after_the_boot() -> None:
    before = replace(idle_node("spark1"), baseline=Baseline(after_boot_available_bytes=gib(117.0)))
    assert compared(before, idle_node("spark1")) == (
        "driver 580.142 as before",
        "kernel 6.17.0-1026-nvidia as before",
        "DGX OS 7.6.0 as before",
        "116.0 GiB available, 117.0 GiB after an earlier boot",
    )
    changed = replace(
        idle_node("spark1", available_gib=90.0),
        facts=facts("spark1", driver_version=None, kernel="7.0.0-1-nvidia"),
        gpu=GpuReading(boot_s=10.0, gpus=(gpu(), gpu())),
    )
    said = compared(before, changed)
    assert said[:3] == (
        "driver 580.142 before, none now",
        "kernel 7.0.0-1-nvidia, was 6.17.0-1026-nvidia",
        "2 GPUs, were 1",
    )


def judged(before: NodeView, after: NodeView) -> WaitStatus:
    since = Since(began_monotonic_s=NOW_S - 112.0, began_wall_s=0.0, before=before)
    return AwaitBack(boot_id="boot-of-spark1").judge(picture(after), "spark1", since)


def after_boot(boot_s: float = 70.0, **more: Any) -> NodeView:
    view = idle_node("spark1", facts=facts("spark1", **({"boot_id": "another"} | more)))
    assert view.sample is not None
    return replace(view, sample=replace(view.sample, boot_s=boot_s))


def test_the_wait_tells_how_long_it_took_and_what_differs() -> None:
    before = idle_node("spark1")
    assert judged(before, before).detail.startswith("still up, 112 s")
    gone = replace(before, link=link(LinkState.LOST, reason="connection refused"))
    assert judged(before, gone).detail.startswith("not back 112 s")
    assert judged(before, gone).detail.endswith("connection refused")
    back = judged(before, after_boot(driver_version="580.159.03"))
    assert back.verdict is WaitVerdict.MET
    assert back.detail.startswith("back 112 s after the order; driver 580.159.03, was 580.142; kernel")


def test_a_driver_that_is_not_loaded_yet_is_waited_for_a_while() -> None:
    before = idle_node("spark1")
    assert judged(before, after_boot(driver_version=None)).verdict is WaitVerdict.WAITING
    late = judged(before, after_boot(driver_version=None, boot_s=130.0))
    assert late.verdict is WaitVerdict.MET
    assert "driver 580.142 before, none now" in late.detail
    never = idle_node("spark1", facts=facts("spark1", driver_version=None))
    assert judged(never, after_boot(driver_version=None)).verdict is WaitVerdict.MET
