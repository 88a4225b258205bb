"""Reboot a node and watch it come back; or only watch, where it reboots by itself. Pure.

The command first checks the boot id, so that a broken link can't make the machine reboot twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.checks.host import judge_driver_pending, judge_next_kernel
from sparktop.engines.ranks import other_ranks, rank_of
from sparktop.model.engine import Engine
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.plan import AwaitBack, Plan, Remote, Request, Risk, Step
from sparktop.model.survey import Ask, Survey
from sparktop.operate.machine.sessions import inhibitors, inhibitors_ask, logged_in, who_ask
from sparktop.operate.plan.common_steps import evidence_step, living, privilege_asks, resolved_step, the_node
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import program, require_root, sudo_note

BACK_LIMIT_S = 15 * 60.0
"""A Spark is back in about two minutes; in ten when it repairs its disk or installs firmware."""
REBOOT = (program("systemctl"), "reboot")
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    node = the_node(request, picture)
    if _watches_only(request):
        return ()
    return (*privilege_asks(request), who_ask(node.name), inhibitors_ask(node.name))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Evidence, the reboot, and the watch; with `watch_only` only the watch."""
    node = the_node(request, picture)
    if node.facts is None or not node.facts.boot_id:
        raise Refused(
            f"{node.name} has not said yet which boot it is in, so its return could not be told",
            ("wait until it is live, and try again",),
        )
    boot_id = node.facts.boot_id
    if _watches_only(request):
        return _watch_plan(request, picture, node, boot_id)
    require_root(survey.privileges(node.name), (REBOOT,), node.name)
    note = sudo_note(survey.privileges(node.name), (REBOOT,), node.name)
    return Plan(
        request=request,
        title=f"Reboot {node.name}",
        risk=Risk.DESTRUCTIVE,
        steps=(
            evidence_step((node.name,)),
            _reboot_step(node.name, boot_id),
            _back_step(node.name, boot_id),
            *resolved_step(request, node.name),
        ),
        effect=f"Everything on the machine ends{'' if living(node) else '; no engine runs there'}. It is watched while "
        "it goes and comes back; then its driver, kernel and memory after the boot are compared with those before.",
        warnings=(*_warnings(node, picture, survey), *((note,) if note else ())),
        equivalent=(f"on {node.name}: sudo systemctl reboot",),
        typed=node.name,
        seen_monotonic_s=picture.monotonic_s,
    )


def _watches_only(request: Request) -> bool:
    return request.options.get("watch_only", "no") == "yes"


def _watch_plan(request: Request, picture: FleetState, node: NodeView, boot_id: str) -> Plan:
    return Plan(
        request=request,
        title=f"Watch {node.name} come back",
        risk=Risk.SAFE,
        steps=(_back_step(node.name, boot_id), *resolved_step(request, node.name)),
        effect="Nothing is done to it. When it is back, its driver, kernel and memory are compared with those before.",
        seen_monotonic_s=picture.monotonic_s,
    )


def _reboot_step(node: str, boot_id: str) -> Step:
    done = Command(argv=("/usr/bin/grep", "-qvxF", "-e", boot_id, "--", BOOT_ID), limit_s=5.0)
    return Step(
        id="reboot",
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


# --- what is lost, and what comes back -------------------------------------------------------------------------------


def _warnings(node: NodeView, picture: FleetState, survey: Survey) -> Iterator[str]:
    engines = living(node)
    for engine in engines:
        yield f"{_end_text(engine)} {_comeback_text(engine)}"
        for other in other_ranks(rank_of(engine, node), picture):
            yield f"{other.engine.name} on {other.node.name} is a rank of it and will hang: stop or restart it too."
    logins = logged_in(survey, node.name)
    if logins is None:
        yield f"Who is logged in could not be asked: {survey.problem(who_ask(node.name)) or 'no answer'}."
    elif logins:
        yield f"Logged in: {'; '.join(logins)}."
    for line in inhibitors(survey, node.name):
        yield f"Asks not to be shut down: {line}."
    host = node.facts
    if host is not None and judge_next_kernel(node).is_problem:
        yield (
            f"The next boot takes kernel {host.kernel_next}, for which no NVIDIA driver is installed: the GPU would "
            "be gone after it. Install the driver's module for that kernel first."
        )
    elif host is not None and host.kernel_next and host.kernel_next != host.kernel:
        yield f"The next boot takes another kernel: {host.kernel_next} instead of {host.kernel}."
    if host is not None and judge_driver_pending(node).is_problem:
        yield f"It will load another driver: {host.driver_installed} instead of {node.driver_version}."


def _end_text(engine: Engine) -> str:
    running = engine.metrics.running if engine.metrics else None
    return f"{engine.name} ends{f', with {running:.0f} requests running' if running else ''}."


def _comeback_text(engine: Engine) -> str:
    """Whether Docker starts its container at boot; `on-failure` doesn't apply at boot."""
    container = engine.container
    if container is None:
        return "It has no container: it comes back only if a service starts it."
    if container.auto_remove:
        return "Its container was started with --rm: it does not come back, and its writable layer is lost."
    policy = container.restart_policy.partition(":")[0]
    if policy not in ("always", "unless-stopped"):
        return f"Its restart policy is {policy or 'no'}: it does not come back by itself."
    if _starts_no_engine(container.argv):
        return f"Its container comes back ({policy}), but the engine was started inside it by hand: that does not."
    return f"It comes back by itself ({policy}), and loads its model again."


def _starts_no_engine(argv: tuple[str, ...]) -> bool:
    words = " ".join(argv)
    return "sleep infinity" in words or "tail -f /dev/null" in words or "ray start" in words
