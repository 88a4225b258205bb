"""Reboot a node and watch it come back; or only watch, where it reboots by itself. Pure.

The command first checks the boot id, so that a broken link can't make the machine reboot twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sparktop import sanitise
from sparktop.checks.host import judge_driver_pending, judge_next_kernel
from sparktop.engines.ranks import other_ranks, rank_of
from sparktop.model.engine import Container, Engine
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, DockerCall, Expect, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.acts.arrivals import AwaitBack
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit_file import REBOOT_STEP
from sparktop.operate.machine.sessions import inhibitors, inhibitors_question, logged_in, who_question
from sparktop.operate.plan import start_steps
from sparktop.operate.plan.common_steps import evidence_step, living, privilege_questions, resolved_step, the_node
from sparktop.operate.plan.sequence import serving
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program, require_root, sudo_note
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.text.units import requests

BACK_LIMIT_S = 15 * 60.0
"""A Spark is back in about two minutes; in ten when it repairs its disk or installs firmware."""
REBOOT = (program("systemctl"), "reboot")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_AT_BOOT = ("always", "unless-stopped")
"""Restart policies by which Docker starts a container at boot; `on-failure` doesn't."""
_ID = re.compile(r"[0-9a-f]{64}")


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    node = the_node(request, picture)
    if _watches_only(request):
        return ()
    return (*privilege_questions(request), who_question(node.name), inhibitors_question(node.name))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Evidence, the reboot, and the watch; with `watch_only` only the watch."""
    node = the_node(request, picture)
    if node.facts is None or not node.facts.boot_id:
        raise Refused(
            f"{node.name} has not reported its boot id yet, so its return could not be recognised",
            ("wait until it is live, and try again",),
        )
    boot_id = node.facts.boot_id
    if _watches_only(request):
        return _watch_plan(request, picture, node, boot_id)
    require_root(survey.privileges(node.name), (REBOOT,), node.name)
    note = sudo_note(survey.privileges(node.name), (REBOOT,), node.name)
    started = tuple(_start_steps(node, picture))
    return Plan(
        request=request,
        title=f"Reboot {node.name}",
        risk=Risk.DESTRUCTIVE,
        steps=(
            evidence_step((node.name,)),
            _reboot_step(node.name, boot_id),
            _back_step(node.name, boot_id),
            *started,
            *resolved_step(request, node.name),
            *serving(_ready_steps(node, picture)),
        ),
        # As it was before: what ran then, and Docker doesn't start at boot.
        rollback=started if any(isinstance(step.act, Remote) for step in started) else (),
        effect=f"Everything on the machine stops{'' if living(node) else '; no engine runs there'}. "
        "sparktop watches it go and come back, then compares driver, kernel and memory with those before."
        + _effect(node, picture),
        warnings=(*_warnings(node, picture, survey), *((note,) if note else ())),
        typed=node.name,
    )


def _watches_only(request: Request) -> bool:
    return request.options.get("watch_only", "no") == "yes"


def _watch_plan(request: Request, picture: FleetState, node: NodeView, boot_id: str) -> Plan:
    return Plan(
        request=request,
        title=f"Watch {node.name} come back",
        risk=Risk.SAFE,
        steps=(_back_step(node.name, boot_id), *resolved_step(request, node.name)),
        effect="Changes nothing. When it is back, sparktop compares driver, kernel and memory with those before.",
    )


def _reboot_step(node: str, boot_id: str) -> Step:
    done = Command(argv=("/usr/bin/grep", "-qvxF", "-e", boot_id, "--", BOOT_ID), limit_s=5.0)
    return Step(
        id=REBOOT_STEP,
        title=f"Reboot {node}",
        node=node,
        act=Remote(
            operations=(Command(argv=REBOOT, privilege=Privilege.ROOT, limit_s=30.0, done_when=done),),
            takes_link=True,
        ),
        limit_s=90.0,
        verifies="the connection ends",
    )


def _back_step(node: str, boot_id: str) -> Step:
    return Step(
        id="back",
        title=f"Watch {node} go and come back",
        node=node,
        act=AwaitBack(boot_id=boot_id),
        limit_s=BACK_LIMIT_S,
        verifies="another boot id; driver, kernel and memory as before",
    )


# --- what runs again -------------------------------------------------------------------------------------------------


def _restartable(node: NodeView, picture: FleetState) -> tuple[tuple[Engine, Container], ...]:
    """The engines that run again after the boot, by Docker or by this plan.

    A rank doesn't rejoin its server alone; what was started by hand inside a container, or with --rm, is gone.
    """
    return tuple(
        (engine, container)
        for engine in living(node)
        if (container := _container(engine, node)) is not None
        and not node.containers.is_denied
        and not container.auto_remove
        and not _starts_no_engine(container.argv)
        and not other_ranks(rank_of(engine, node), picture)
        and _ID.fullmatch(container.container_id)
    )


def _container(engine: Engine, node: NodeView) -> Container | None:
    """Its container; while Docker lists none, the one that its process is in, of which the id alone is known."""
    if engine.container is not None or node.containers.available:
        return engine.container
    table = node.processes.processes if node.processes else ()
    found = next((one.container_id for one in table if one.pid in engine.pids and one.container_id), None)
    return Container(container_id=found, name=found[:12], image="") if found else None


def _effect(node: NodeView, picture: FleetState) -> str:
    names = [engine.name for engine, _ in _restartable(node, picture) if engine.container is not None]
    return f" The run ends when {' and '.join(names)} {'serve' if names[1:] else 'serves'} again." if names else ""


def _start_steps(node: NodeView, picture: FleetState) -> Iterator[Step]:
    """Start what Docker doesn't start at boot, then wait for all that ran before."""
    for engine, container in _restartable(node, picture):
        if _policy(container) in _AT_BOOT:
            continue
        path = f"/containers/{container.container_id}"
        running = Expect(path=f"{path}/json", equals={"State.Running": True}, within_s=10.0)
        yield Step(
            id=f"start-{engine.name}",
            title=f"Start {engine.name}",
            node=node.name,
            act=Remote(
                operations=(DockerCall(method="POST", path=f"{path}/start", accepts=(204, 304), done_when=running),)
            ),
            limit_s=60.0,
            verifies="Docker says that it runs",
            on_failure=OnFailure.FAIL_AT_END,
        )
    yield from _ready_steps(node, picture)


def _ready_steps(node: NodeView, picture: FleetState) -> tuple[Step, ...]:
    return tuple(
        replace(
            start_steps.ready(
                node.name,
                f"-{engine.name}",
                AwaitReady(name=container.name, container_id=container.container_id),
                max(start_steps.READY_AT_LEAST_S, 2 * (start_steps.load_s(engine) or 0.0)),
                start_steps.load_s(engine),
            ),
            on_failure=OnFailure.FAIL_AT_END,
        )
        for engine, container in _restartable(node, picture)
        if engine.container is not None  # else its name isn't known, by which it is waited for
    )


# --- what is lost, and what comes back -------------------------------------------------------------------------------


def _warnings(node: NodeView, picture: FleetState, survey: Survey) -> Iterator[str]:
    restarted = [engine for engine, _ in _restartable(node, picture)]
    for engine in living(node):
        yield f"{_end_text(engine)} {_comeback_text(engine, node, is_restarted=engine in restarted)}"
        for other in other_ranks(rank_of(engine, node), picture):
            name = f"{other.engine.name} on {other.node.name}"
            yield f"{name} is a rank of the same engine and will hang: stop or restart it too."
    if stays := _not_started_at_boot(node):
        yield f"Docker doesn't start {' and '.join(stays)} at boot: start {'them' if stays[1:] else 'it'} afterwards."
    logins = logged_in(survey, node.name)
    if logins is None:
        yield f"Who is logged in could not be asked: {survey.problem(who_question(node.name)) or 'no answer'}."
    elif logins:
        yield f"Logged in: {'; '.join(logins)}."
    for line in inhibitors(survey, node.name):
        yield f"Inhibits shutdown: {line}."
    host = node.facts
    if host is not None and judge_next_kernel(node).is_problem:
        yield (
            f"The next boot takes kernel {host.kernel_next}, for which no NVIDIA driver is installed: the GPU would "
            "be gone afterwards. Install the driver's module for that kernel first."
        )
    elif host is not None and host.kernel_next and host.kernel_next != host.kernel:
        yield f"The next boot takes another kernel: {host.kernel_next} instead of {host.kernel}."
    if host is not None and judge_driver_pending(node).is_problem:
        yield f"{node.name} will load driver {host.driver_installed} instead of {node.driver_version}."


def _not_started_at_boot(node: NodeView) -> list[str]:
    """The running containers of no engine that stay down after the boot."""
    engines = {engine.container.container_id for engine in node.engines if engine.container is not None}
    running = (container for container in node.containers.containers if container.status == "running")
    others = (container for container in running if container.container_id not in engines)
    return [sanitise.name(container.name) for container in others if _policy(container) not in _AT_BOOT]


def _end_text(engine: Engine) -> str:
    running = engine.metrics.running if engine.metrics else None
    return f"{engine.name} stops{f', with {requests(running)} running' if running else ''}."


def _comeback_text(engine: Engine, node: NodeView, *, is_restarted: bool) -> str:
    """Whether Docker starts its container at boot; `on-failure` doesn't apply at boot."""
    container = _container(engine, node)
    if container is not None and engine.container is None:
        then = "this plan starts it again" if is_restarted else "look with docker ps --all afterwards"
        return f"Docker doesn't tell now of its container, {container.name}: {then}."
    if container is None:
        return "It has no container: it comes back only if a service starts it."
    if container.auto_remove:
        return "Its container was started with --rm: it does not come back, and its writable layer is lost."
    policy = _policy(container)
    if _starts_no_engine(container.argv):
        comes_back = f"Its container comes back ({policy})" if policy in _AT_BOOT else "Its container stays down"
        return f"{comes_back}, but the engine was started inside it by hand: that does not."
    if policy not in _AT_BOOT:
        comes_back = "this plan starts it again" if is_restarted else "it does not come back by itself"
        return f"Its restart policy is {policy or 'no'}: {comes_back}."
    return f"It comes back by itself ({policy}), and loads its model again."


def _policy(container: Container) -> str:
    return container.restart_policy.partition(":")[0]


def _starts_no_engine(argv: tuple[str, ...]) -> bool:
    words = " ".join(argv)
    return "sleep infinity" in words or "tail -f /dev/null" in words or "ray start" in words
