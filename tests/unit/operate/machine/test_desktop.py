"""Bringing a desktop back: each way's commands, and what is said that it loses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import BOOT_S, container, engine, facts, node, picture, process
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.operate.machine.machine_support import (
    FREE,
    SESSIONS,
    ids,
    operations,
    planned,
    refused,
    session,
    stat,
    step,
    warned,
)

from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import DesktopReading
from sparktop.operate.machine import desktop
from sparktop.operate.step.plan import Plan

GDM = "Id=gdm.service\nLoadState=loaded\nActiveState=active\n"
STARTED_S = BOOT_S - 7200
SYSTEMCTL = "/usr/bin/systemctl"


def reading(**more: Any) -> DesktopReading:
    known: dict[str, Any] = {
        "boot_s": BOOT_S - 0.5,
        "compositor": "gnome-shell",
        "pid": 3849,
        "user_id": 1000,
        "state": "S",
        "answers": False,
        "silent_since_boot_s": BOOT_S - 40,
    }
    return DesktopReading(**(known | more))


def frozen(read: DesktopReading | None = None, **more: Any) -> NodeView:
    return node("spark1", desktop=read or reading(), **more)


def ask(way: str = "shell", finding: Finding | None = None) -> Request:
    return Request(action="recover-desktop", nodes=("spark1",), options={"way": way}, finding=finding)


def made(
    request: Request,
    view: NodeView,
    *,
    kind: str = "x11",
    state: str = "S",
    privileges: Privileges = FREE,
    unit: str = GDM,
    command: str = "gnome-shell",
    **more: Any,
) -> Any:
    sessions = session("c1", "gdm", 120, "wayland", "greeter") + "\n" + session("2", "spark", 1000, kind)
    return planned(
        desktop,
        request,
        picture(view, **more),
        privileges=privileges,
        files={"/proc/3849/stat": stat(3849, command, state=state, started_s=STARTED_S)},
        outputs={
            "loginctl list-sessions": SESSIONS,
            "loginctl show-session": sessions + "\n" + session("57", "spark", 1000, "tty"),
            "systemctl show": unit,
        },
    )


def test_the_shell_on_x11() -> None:
    plan = made(ask(), frozen())
    compare_plan("recover-desktop-shell", plan)
    assert ids(plan) == ["evidence", "shell"]
    (signal,) = operations(plan, "shell")
    assert (signal.pid, signal.signal, signal.privilege) == (3849, "HUP", Privilege.USER)
    assert signal.started_ticks == round(STARTED_S * 100)
    assert "open windows stay" in warned(plan)
    assert plan.risk is Risk.DISRUPTIVE
    assert step(plan, "shell").act.commands() == ("kill -s HUP 3849",)


def test_the_shell_on_wayland_says_what_ends() -> None:
    rows = (
        process(3849, "gnome-shell", user_id=1000),
        process(77352, "vllm", user_id=1000, cgroup="/user.slice/user-1000.slice/session-2.scope"),
    )
    view = frozen(engines=(engine(container=None, pids=(77352,), name="vllm-8000"),), processes=rows)
    text = warned(made(ask(), view, kind="wayland"))
    assert "open windows with it" in text
    assert "a login session" in text


def test_another_users_shell_needs_root() -> None:
    plan = made(ask(), frozen(reading(user_id=1001)))
    assert operations(plan, "shell")[0].privilege is Privilege.ROOT
    denied = Privileges(user="spark", sudo="denied", docker="open")
    assert "doesn't allow" in refused(made(ask(), frozen(reading(user_id=1001)), privileges=denied))
    assert isinstance(made(ask(), frozen(), privileges=denied), Plan), "our own needs none"


def test_a_shell_that_was_stopped_is_let_go_on() -> None:
    plan = made(ask(), frozen(reading(state="T")), state="T")
    assert operations(plan, "shell")[0].signal == "CONT"
    assert plan.risk is Risk.SAFE
    assert "Nothing is lost" in plan.effect


def test_a_shell_that_waits_in_the_kernel() -> None:
    text = warned(made(ask(), frozen(reading(state="D", wait_channel="nv_drm_wait")), state="D"))
    assert "(state D) in nv_drm_wait" in text
    assert "reboot" in text


def test_the_login_screens_own_shell() -> None:
    view = frozen(reading(user_id=120, is_greeter=True))
    assert "nobody's windows" in warned(made(ask(), view))


@over(
    "read, command, reason",
    [
        (reading(compositor=None, pid=None), "gnome-shell", "no desktop was found"),
        (reading(compositor="kwin_wayland"), "kwin_wayland", "does not restart on HUP"),
        (reading(), "bash", "is gone by now"),
    ],
)
def test_when_there_is_no_shell_to_hup(read: DesktopReading, command: str, reason: str) -> None:
    assert reason in refused(made(ask(), frozen(read), command=command))


def test_the_display_manager() -> None:
    plan = made(ask("manager"), frozen())
    compare_plan("recover-desktop-manager", plan)
    restart, active = operations(plan, "manager")
    assert (restart.argv, restart.privilege) == ((SYSTEMCTL, "restart", "gdm.service"), Privilege.ROOT)
    assert active.argv == (SYSTEMCTL, "is-active", "--quiet", "gdm.service")
    assert "spark (x11)" in warned(plan)
    assert "gdm (" not in warned(plan), "the login screen is nobody's session"


@over("said", ["Id=--force\nLoadState=loaded\n", "Id=$(id).service\nLoadState=loaded\n", ""])
def test_a_strange_unit_is_not_named(said: str) -> None:
    plan = made(ask("manager"), frozen(), unit=said)
    assert operations(plan, "manager")[0].argv[-1] == "display-manager.service"


def test_without_a_display_manager() -> None:
    said = "Id=display-manager.service\nLoadState=not-found\nActiveState=inactive\n"
    assert "no display manager" in refused(made(ask("manager"), frozen(), unit=said))


def test_without_a_desktop_and_back() -> None:
    plan = made(ask("console"), frozen())
    compare_plan("recover-desktop-console", plan)
    isolate, checked = operations(plan, "console")
    assert isolate.argv == (SYSTEMCTL, "isolate", "multi-user.target")
    assert checked.accepts == (3,)
    back, checked = operations(plan, "graphical")
    assert back.argv == (SYSTEMCTL, "isolate", "graphical.target")
    assert checked.accepts == (0,)
    assert step(plan, "console").act.undoing() == ("sudo systemctl isolate graphical.target",)
    assert "sudo systemctl isolate graphical.target" in warned(plan)
    headless = replace(frozen(), facts=facts("spark1", is_graphical=False))
    assert "without a desktop" in refused(made(ask("console"), headless))


def test_shared_memory_of_a_user_who_does_not_linger() -> None:
    rows = (process(3849, "gnome-shell", user_id=1000), process(77352, "vllm", user_id=1000, container_id="ab" * 32))
    view = frozen(
        engines=(engine(container=container(ipc_mode="host")),),
        processes=rows,
        facts=facts("spark1", is_lingering=False, removes_ipc=True),
    )
    assert "loginctl enable-linger spark" in warned(made(ask("manager"), view))
    safe = replace(view, facts=facts("spark1", is_lingering=True, removes_ipc=True))
    assert "enable-linger" not in warned(made(ask("manager"), safe))


def test_a_gpu_that_is_gone_is_said() -> None:
    gone = Finding(rule="kernel.xid-119", severity=Severity.CRITICAL, title="GSP is silent", nodes=("spark1",))
    assert "the surer way" in warned(made(ask("manager"), frozen(), findings=(gone,)))
    first = Finding(
        rule="desktop.frozen",
        severity=Severity.CRITICAL,
        title="frozen",
        nodes=("spark1",),
        remedies=(Remedy(title="Reboot", action="reboot"),),
    )
    assert "the surer way" in warned(made(ask(), frozen(), findings=(first,)))
    last = replace(first, remedies=(Remedy(title="Restart it", action="recover-desktop"), *first.remedies))
    assert "surer way" not in warned(made(ask(), frozen(), findings=(last,)))


def test_the_finding_is_looked_at() -> None:
    finding = Finding(rule="desktop.frozen", severity=Severity.CRITICAL, title="frozen", nodes=("spark1",))
    assert ids(made(ask(finding=finding), frozen())) == ["evidence", "shell", "resolved"]


@over(
    "view, kind, state, way",
    [
        (frozen(), "x11", "S", "shell"),
        (frozen(), "wayland", "S", "manager"),
        (frozen(), "wayland", "T", "shell"),
        (frozen(reading(compositor="kwin_wayland")), "wayland", "S", "manager"),
        (frozen(reading(compositor=None, pid=None)), "x11", "S", "manager"),
    ],
)
def test_the_way_that_is_taken_when_none_is_named(view: NodeView, kind: str, state: str, way: str) -> None:
    request = Request(action="recover-desktop", nodes=("spark1",))
    assert ids(made(request, view, kind=kind, state=state))[1] == way


def test_a_way_that_is_none() -> None:
    assert "hammer" in refused(made(ask("hammer"), frozen()))


def test_when_logind_says_nothing() -> None:
    plan = planned(
        desktop,
        ask(),
        picture(frozen()),
        privileges=FREE,
        files={"/proc/3849/stat": stat(3849, "gnome-shell", started_s=STARTED_S)},
    )
    assert "X11 or Wayland" in warned(plan)


def test_two_nodes_at_once_are_not_meant() -> None:
    request = Request(action="recover-desktop", nodes=("spark1", "spark2"))
    fleet: FleetState = picture()
    assert "one node" in refused(planned(desktop, request, fleet))
