"""Reboot a node, and watch it go and come back; or watch only, where it reboots by itself. Pure.

The command asks itself first whether the machine has rebooted already (its boot id), so that a broken link can't
make it reboot twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop import sanitise
from sparktop.diagnose.live.ranks import Rank, other_ranks
from sparktop.diagnose.live.window import gib
from sparktop.model.engine import Engine
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.plan import AwaitBack, Plan, Refusal, Remote, Request, Risk, Step
from sparktop.operate.machine import evidence_step, living, privilege_asks, resolved_step, the_node
from sparktop.operate.privilege import program, root_refusal, sudo_note
from sparktop.operate.sessions import inhibitors, inhibitors_ask, logged_in, who_ask
from sparktop.operate.survey import Ask, Survey

BACK_LIMIT_S = 15 * 60.0
"""A Spark is back in about two minutes; one that mends its disk or takes new firmware in ten."""
DRIVER_COMES_S = 120.0
"""Seconds after a boot in which the driver is still waited for; facts come once a minute."""
REBOOT = (program("systemctl"), "reboot")
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    node = the_node(request, picture)
    if isinstance(node, Refusal) or _watches_only(request):
        return ()
    return (*privilege_asks(request), who_ask(node.name), inhibitors_ask(node.name))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Evidence, the reboot, and the watch; with `watch_only` the watch alone."""
    node = the_node(request, picture)
    if isinstance(node, Refusal):
        return node
    if node.facts is None or not node.facts.boot_id:
        return Refusal(
            request=request,
            reason=f"{node.name} has not said yet which boot it is in, so its return could not be told",
            remedies=("wait until it is live, and try again",),
        )
    boot_id = node.facts.boot_id
    if _watches_only(request):
        return _watch(request, picture, node, boot_id)
    obstacle = root_refusal(survey.privileges(node.name), (REBOOT,), node.name)
    if obstacle is not None:
        return obstacle.refusal(request)
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


def _watch(request: Request, picture: FleetState, node: NodeView, boot_id: str) -> Plan:
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
        yield f"{_state(engine)} {_return(engine)}"
        for other in other_ranks(Rank(node=node, engine=engine), picture):
            yield f"{other.engine.name} on {other.node.name} is a rank of it and will hang: stop or restart it too."
    people = logged_in(survey, node.name)
    if people is None:
        yield f"Who is logged in could not be asked: {survey.problem(who_ask(node.name)) or 'no answer'}."
    elif people:
        yield f"Logged in: {'; '.join(people)}."
    for line in inhibitors(survey, node.name):
        yield f"Asks not to be shut down: {line}."
    facts = node.facts
    if facts is not None and facts.kernel_next_has_driver is False:
        yield (
            f"The next boot takes kernel {facts.kernel_next}, for which no NVIDIA driver is installed: the GPU would "
            "be gone after it. Install the driver's module for that kernel first."
        )
    elif facts is not None and facts.kernel_next and facts.kernel_next != facts.kernel:
        yield f"The next boot takes another kernel: {facts.kernel_next} instead of {facts.kernel}."
    if facts is not None and facts.driver_installed and facts.driver_installed != facts.driver_version:
        yield f"It will load another driver: {facts.driver_installed} instead of {facts.driver_version}."


def _state(engine: Engine) -> str:
    busy = engine.metrics.running if engine.metrics else None
    return f"{engine.name} ends{f', with {busy:.0f} requests running' if busy else ''}."


def _return(engine: Engine) -> str:
    """Whether Docker starts its container at boot: `on-failure` is heeded only when a container fails."""
    box = engine.container
    if box is None:
        return "It has no container: it comes back only if a service starts it."
    if box.auto_remove:
        return "Its container was started with --rm: it does not come back, and its writable layer is lost."
    policy = box.restart_policy.partition(":")[0]
    if policy not in ("always", "unless-stopped"):
        return f"Its restart policy is {policy or 'no'}: it does not come back by itself."
    if _is_host_of_others(box.argv):
        return f"Its container comes back ({policy}), but the engine was started inside it by hand: that does not."
    return f"It comes back by itself ({policy}), and loads its model again."


def _is_host_of_others(argv: tuple[str, ...]) -> bool:
    words = " ".join(argv)
    return "sleep infinity" in words or "tail -f /dev/null" in words or "ray start" in words


# --- what it is after the boot ---------------------------------------------------------------------------------------


def lacks_driver(before: NodeView, after: NodeView) -> bool:
    """Whether a driver that was there before the boot may still come."""
    had = before.facts is not None and before.facts.driver_version is not None
    has = after.facts is not None and after.facts.driver_version is not None
    return had and not has and after.sample is not None and after.sample.boot_s < DRIVER_COMES_S


def compared(before: NodeView, after: NodeView) -> tuple[str, ...]:
    """What a machine says of itself after a boot, against before it: only what is known of both, differences first."""
    differs: list[str] = []
    same: list[str] = []
    if before.facts is not None and after.facts is not None:
        for what, old, new in (
            ("driver", before.facts.driver_version, after.facts.driver_version),
            ("kernel", before.facts.kernel, after.facts.kernel),
            ("DGX OS", before.facts.dgx_release, after.facts.dgx_release),
        ):
            if old and not new:
                differs.append(f"{what} {sanitise.name(old)} before, none now")
            elif old and new and old != new:
                differs.append(f"{what} {sanitise.name(new)}, was {sanitise.name(old)}")
            elif new:
                same.append(f"{what} {sanitise.name(new)} as before")
    if before.gpu is not None and after.gpu is not None and len(before.gpu.gpus) != len(after.gpu.gpus):
        differs.append(f"{len(after.gpu.gpus)} GPUs, were {len(before.gpu.gpus)}")
    if after.sample is not None:
        available = gib(after.sample.memory.available_bytes)
        usual = before.baseline.after_boot_available_bytes if before.baseline else None
        same.append(f"{available} available" + (f", {gib(usual)} after an earlier boot" if usual else ""))
    return (*differs, *same)
