"""The frozen desktop (field report 000): the compositor lives and doesn't answer, while all other figures look well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparktop.diagnose.burst import describe
from sparktop.diagnose.live.kernel import Standing, standing
from sparktop.diagnose.live.moepath import Suspect, suspects
from sparktop.diagnose.live.window import gib, is_current, seen, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.change import Change
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import DesktopReading

TWICE_S = 5.0
"""Silent for longer than one question takes (3 s): the second one went without an answer too."""
BLOCKED_S = 10.0
LINES_S = 5 * 60.0
MANY_LINES = 3
OLD_READING_S = 45.0
STALLING_PERCENT = 10.0
"""PSI memory full avg10: above it a slow desktop is the memory's fault, and other rules say so."""

_DISPLAY = ("display.flip-timeout", "display.kms-update", "display.modeset-stuck")
_GPU_GONE = (79, 119, 120)
_DRIVER_WAITS = ("nv_", "nvidia", "nvkms", "drm_", "dma_fence", "dma_resv", "os_acquire", "rm_", "uvm_")
_NAMES = {"gnome-shell": "GNOME's shell", "kwin_wayland": "KWin", "kwin_x11": "KWin", "Xorg": "the X server"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signs:
    """What speaks for a frozen desktop on one node."""

    desktop: DesktopReading
    silent_s: float | None
    blocked_s: float | None
    display: tuple[KernelEvent, ...]
    gpu: tuple[KernelEvent, ...]

    @property
    def is_confirmed(self) -> bool:
        told = bool(self.display or self.gpu)
        asked = self.silent_s is not None and (self.silent_s >= TWICE_S or told)
        return asked or (self.desktop.state == "D" and told) or bool(self.display and self.gpu)

    @property
    def is_suspected(self) -> bool:
        if self.silent_s is not None or self.gpu:
            return True
        if self.blocked_s is not None and self.blocked_s >= BLOCKED_S:
            return True
        return any(
            event.count >= MANY_LINES or event.pattern == "display.flip-timeout" for event in self.display
        )  # one failed update comes with a monitor that is plugged


def check(fleet: FleetState) -> Iterable[Finding]:
    """desktop.frozen: the compositor is silent twice, waits in the driver, or can't draw while the GPU is gone.

    One sign alone is a suspicion. Memory pressure, a machine without a desktop and an old reading are no ground at all.
    """
    for node in fleet.nodes:
        if not is_current(node) or node.desktop is None or node.desktop.compositor is None:
            continue
        if node.facts is not None and node.facts.is_graphical is False:
            continue
        pressure = node.sample.memory_pressure if node.sample else None
        if pressure is not None and pressure.full_avg10 >= STALLING_PERCENT:
            continue
        signs = _signs(node, node.desktop, fleet)
        if signs is not None and (signs.is_confirmed or signs.is_suspected):
            yield _finding(node, signs, fleet)


def _signs(node: NodeView, desktop: DesktopReading, fleet: FleetState) -> _Signs | None:
    assert node.sample is not None
    now_boot_s = node.sample.boot_s + max(0.0, fleet.monotonic_s - (node.sample_at_s or fleet.monotonic_s))
    if now_boot_s - desktop.boot_s > OLD_READING_S:  # the child that asks is stuck or paused itself
        return None
    lines = [event for event in node.kernel_events if event.last_boot_s is not None]
    if desktop.answers:  # what came before its last answer is over
        lines = [event for event in lines if (event.last_boot_s or 0.0) > desktop.boot_s - BLOCKED_S]
    silent = desktop.answers is False and desktop.silent_since_boot_s is not None
    blocked = desktop.blocked_since_boot_s is not None and desktop.state == "D"
    channel = desktop.wait_channel
    if blocked and channel is not None and not channel.startswith(_DRIVER_WAITS) and desktop.answers is not False:
        blocked = False  # it waits for a disk, say
    return _Signs(
        desktop=desktop,
        silent_s=desktop.boot_s - (desktop.silent_since_boot_s or 0.0) if silent else None,
        blocked_s=now_boot_s - (desktop.blocked_since_boot_s or 0.0) if blocked else None,
        display=tuple(
            event for event in lines if event.pattern in _DISPLAY and now_boot_s - (event.last_boot_s or 0.0) < LINES_S
        ),
        gpu=tuple(
            event
            for event in lines
            if (event.code in _GPU_GONE or event.pattern == "nvrm.gsp")
            and standing(event, node, now_boot_s) is Standing.NOW
        ),
    )


# --- what is said ----------------------------------------------------------------------------------------------------


def _finding(node: NodeView, signs: _Signs, fleet: FleetState) -> Finding:
    desktop = signs.desktop
    what = "login screen" if desktop.is_greeter else "desktop"
    sure = signs.is_confirmed
    likely = suspects(node)
    return Finding(
        rule="desktop.frozen",
        severity=Severity.CRITICAL,
        confidence=Confidence.CONFIRMED if sure else Confidence.SUSPECTED,
        title=f"The {what} {'is' if sure else 'may be'} frozen: {_why(signs)}",
        explanation=" ".join(part for part in (_told(signs), _point(node), _blame(likely)) if part),
        distinction=(
            "Not a starved host: memory and load are as they should be, and SSH answers.",
            "Not a dead engine: its network side may go on serving; only what needs the display waits.",
        ),
        settles="" if sure else _settles(desktop),
        evidence=tuple(_evidence(node, signs, likely)),
        remedies=_remedies(node, signs, likely),
        references=(
            "field report 000",
            "field log of a DGX Spark (Xid 119 of the KMS thread, then 120 and 154)",
            *(("vLLM sources 0.11-0.27",) if likely else ()),
        ),
        nodes=(node.name,),
        brief=_brief(node, signs),
        since_wall_s=_since_wall_s(node, signs, fleet),
    )


def _name(desktop: DesktopReading) -> str:
    return f"{desktop.compositor}, pid {desktop.pid}," if desktop.pid is not None else f"{desktop.compositor}"


def _why(signs: _Signs) -> str:
    command = signs.desktop.compositor or "the compositor"
    if signs.silent_s is not None and signs.desktop.state == "T":
        return f"{command} has been stopped by a signal"
    if signs.silent_s is not None:
        return f"{command} lives and doesn't answer"
    if signs.gpu:
        return "the GPU it draws with doesn't answer the driver"
    if signs.blocked_s is not None:
        return f"{command} waits in the kernel"
    return f"{command} can't hand its pictures to the display"


def _told(signs: _Signs) -> str:
    desktop = signs.desktop
    parts = []
    if signs.silent_s is not None:
        parts.append(
            f"{_NAMES.get(desktop.compositor or '', 'The compositor')} ({_name(desktop).rstrip(',')}) is alive and has "
            f"not answered on its session bus for {span(signs.silent_s)}."
        )
    if signs.blocked_s is not None:
        where = f" in {desktop.wait_channel}" if desktop.wait_channel else ""
        parts.append(f"It has waited{where} in state D for {span(signs.blocked_s)} without running once.")
    if signs.display or signs.gpu:
        named = "; ".join(describe(event) for event in (*signs.gpu, *signs.display)[:4])
        parts.append(f"The kernel log says: {named}.")
    if desktop.answers is None and desktop.reason:
        parts.append(f"It could not be asked itself: {desktop.reason}.")
    first = " ".join(parts)
    return first[:1].upper() + first[1:]


def _point(node: NodeView) -> str:
    return (
        f"That all else looks well is the point: {_figures(node)}. Compute and display share one GPU, one driver and "
        "one memory here, so GPU work that never ends takes the picture with it, while SSH and the engines' network "
        "side go on."
    )


def _figures(node: NodeView) -> str:
    assert node.sample is not None
    gpu = node.first_gpu
    parts = [f"load {node.sample.load_1m:.2f}" if node.sample.load_1m is not None else ""]
    parts.append(f"{gib(node.sample.memory.available_bytes)} available")
    if gpu is not None and gpu.utilisation_percent is not None:
        drawn = f" at {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
        parts.append(f"GPU {gpu.utilisation_percent:.0f} %{drawn}")
    return ", ".join(part for part in parts if part)


def _blame(likely: tuple[Suspect, ...]) -> str:
    if not likely:
        return ""
    first = likely[0]
    return (
        f"The likely trigger, suspected only: {first.engine.name} runs vLLM with `{first.sign}`, and field report 000 "
        "traced such freezes to its throughput kernels for mixture-of-experts layers on SM 12.1. That report cured "
        f"them with `VLLM_FLASHINFER_MOE_BACKEND=latency`; {first.about_variable}, so choose the kernels with "
        f"`--moe-backend {first.backend}` first."
    )


def _settles(desktop: DesktopReading) -> str:
    if desktop.answers is False:
        return "a second question without an answer, some seconds from now."
    return "a look at the screen: does the clock go on, does the pointer move?"


def _evidence(node: NodeView, signs: _Signs, likely: tuple[Suspect, ...]) -> Iterable[Evidence]:
    desktop = signs.desktop
    if signs.silent_s is not None:
        yield seen(
            node,
            "desktop",
            f"{_name(desktop)} no answer on the session bus for {span(signs.silent_s)} ({desktop.reason})",
        )
    waits = f" in {desktop.wait_channel}" if desktop.wait_channel else ""
    yield seen(node, "desktop", f"{_name(desktop)} state {desktop.state or 'unknown'}{waits}")
    for event in (*signs.gpu, *signs.display):
        yield Evidence(source=f"{node.name} kernel log", text=event.text, wall_s=event.first_wall_s)
    yield seen(node, "figures", _figures(node))
    for one in likely:
        yield Evidence(source=f"{one.engine.name} @ {node.name} command", text=one.sign)


def _brief(node: NodeView, signs: _Signs) -> str:
    parts = []
    if signs.silent_s is not None:
        parts.append(f"no answer for {span(signs.silent_s)}")
    if signs.blocked_s is not None:
        parts.append(f"state D for {span(signs.blocked_s)}")
    if signs.gpu:
        parts.append(describe(signs.gpu[-1]).partition("  ")[0])
    elif signs.display:
        parts.append(describe(signs.display[-1]).partition("  ")[2] or describe(signs.display[-1]))
    return f"{', '.join(parts)}; {_figures(node)}"


def _since_wall_s(node: NodeView, signs: _Signs, fleet: FleetState) -> float | None:
    starts = [signs.desktop.silent_since_boot_s, signs.desktop.blocked_since_boot_s if signs.blocked_s else None]
    starts += [event.first_boot_s for event in (*signs.gpu, *signs.display)]
    known = [start for start in starts if start is not None]
    if not known or node.sample is None:
        return None
    now_boot_s = node.sample.boot_s + max(0.0, fleet.monotonic_s - (node.sample_at_s or fleet.monotonic_s))
    return fleet.wall_s - (now_boot_s - min(known))


# --- what to do ------------------------------------------------------------------------------------------------------

_ONE_SHELL = Remedy(
    title="On an X11 session, restart the shell alone",
    steps=("pkill -HUP -x gnome-shell   # over SSH, as the desktop's user",),
    cost="on X11 nothing but a moment: programs stay; on Wayland the session ends with every program in it",
    action="recover-desktop",
)
_DISPLAY_MANAGER = Remedy(
    title="Restart the display manager",
    steps=("sudo systemctl restart gdm3",),
    cost="the desktop session and everything open in it; engines in containers go on",
)
_NO_DESKTOP = Remedy(
    title="Do without the desktop while engines run",
    steps=("sudo systemctl isolate multi-user.target   # back with: sudo systemctl isolate graphical.target",),
    cost="the desktop session; it gives some 3 GiB of memory back",
)
_REBOOT = Remedy(
    title="Reboot",
    steps=("sudo reboot",),
    cost="everything on the machine, and the time to load the models again",
    action="reboot",
)


def _remedies(node: NodeView, signs: _Signs, likely: tuple[Suspect, ...]) -> tuple[Remedy, ...]:
    if signs.desktop.state == "T" and signs.silent_s is not None:
        return (Remedy(title="Let it go on", steps=(f"kill -CONT {signs.desktop.pid}",), cost="nothing"),)
    shell = () if _is_wayland(node) or signs.desktop.compositor != "gnome-shell" else (_ONE_SHELL,)
    manager = _DISPLAY_MANAGER if shell else replace(_DISPLAY_MANAGER, action="recover-desktop")
    mend: tuple[Remedy, ...] = (*shell, manager, _NO_DESKTOP, _REBOOT)
    if signs.gpu:  # a display restarted on a GPU that doesn't answer freezes again
        mend = (_REBOOT, *(one for one in mend if one is not _REBOOT))
    return (*mend, *(_other_kernels(one) for one in likely))


def _other_kernels(suspect: Suspect) -> Remedy:
    return Remedy(
        title=f"So that it doesn't come again, give {suspect.engine.name} other MoE kernels",
        steps=(
            f"add --moe-backend {suspect.backend}",
            *(("remove --performance-mode throughput",) if "--performance-mode" in suspect.sign else ()),
            "keep CUDA graphs: --enforce-eager is no cure",
        ),
        cost="a restart of the engine; a few percent of its speed",
        action="relaunch",
        change=Change(
            flags={
                "--moe-backend": suspect.backend,
                **({"--performance-mode": None} if "--performance-mode" in suspect.sign else {}),
            }
        ),
    )


def _is_wayland(node: NodeView) -> bool:
    """Whether the session is surely Wayland: nothing but Xwayland speaks X there."""
    table = node.processes.processes if node.processes else ()
    commands = {process.command for process in table}
    return "Xwayland" in commands and "Xorg" not in commands


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=Rule(
            id="desktop.frozen",
            kind=RuleKind.LIVE,
            title="The desktop is frozen while every other figure looks well",
            severity=Severity.CRITICAL,
            scope="machines with a graphical session; asked on its own bus where that is ours, else by its state and "
            "the kernel log",
            sources=("field report 000", "field log of a DGX Spark", "vLLM sources 0.11-0.27"),
        ),
        check=check,
        clear_s=4.0,
        follows=("kernel.xid-79", "kernel.xid-119", "kernel.xid-120", "kernel.nvrm-gsp"),
    ),
)
