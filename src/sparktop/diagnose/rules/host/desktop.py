"""Rule on a frozen desktop, and the engines that may have frozen it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from sparktop.cmdline.engine_command import command_of
from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel.findings import GPU_GONE, knowledge_of
from sparktop.diagnose.kernel.incident import counted, describe, victim_text
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.host.kernel_log import Relevance, relevance_of
from sparktop.diagnose.rules.window import seen
from sparktop.engines.images import release_of
from sparktop.engines.ranks import is_alive
from sparktop.model.change import Change
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView, boot_s_now, current_nodes
from sparktop.model.telemetry import DesktopReading, Sample
from sparktop.text.units import gib, span

FROZEN = "desktop.frozen"
TWICE_S = 5.0
"""Silent for longer than one query takes (3 s): the second one failed too."""
BLOCKED_S = 10.0
LINES_S = 5 * 60.0
MANY_LINES = 3
OLD_READING_S = 45.0
STALLING_PERCENT = 10.0
"""PSI memory full avg10. Above it a slow desktop is due to memory, and other rules report that."""
_DRIVER_WAITS = ("nv_", "nvidia", "nvkms", "drm_", "dma_fence", "dma_resv", "os_acquire", "rm_", "uvm_")
_NAMES = {"gnome-shell": "GNOME's shell", "kwin_wayland": "KWin", "kwin_x11": "KWin", "Xorg": "the X server"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signs:
    """The evidence for a frozen desktop on one node."""

    desktop: DesktopReading
    silent_s: float | None
    blocked_s: float | None
    display: tuple[KernelEvent, ...]
    gpu: tuple[KernelEvent, ...]

    @property
    def is_confirmed(self) -> bool:
        has_kernel_lines = bool(self.display or self.gpu)
        is_silent = self.silent_s is not None and (self.silent_s >= TWICE_S or has_kernel_lines)
        return is_silent or (self.desktop.state == "D" and has_kernel_lines) or bool(self.display and self.gpu)

    @property
    def is_suspected(self) -> bool:
        if self.silent_s is not None or self.gpu:
            return True
        if self.blocked_s is not None and self.blocked_s >= BLOCKED_S:
            return True
        return any(
            event.count >= MANY_LINES or event.pattern == "display.flip-timeout" for event in self.display
        )  # a plugged monitor causes one failed update


@live_rule(
    FROZEN,
    "The desktop is frozen while memory and load look fine",
    Severity.CRITICAL,
    scope=(
        "machines with a graphical session; sparktop asks on its bus if it may, else it reads its state and the "
        "kernel log"
    ),
    sources=("field report 000", "field log of a DGX Spark", "vLLM sources 0.11-0.27"),
    clear_s=4.0,
    follows=GPU_GONE,
)
def frozen(fleet: FleetState) -> Iterable[Finding]:
    """desktop.frozen: the compositor is silent twice, waits in the driver, or can't draw because the GPU is gone.

    One sign alone is only suspected. Nothing is reported under memory pressure, without a desktop, or on an old
    reading.
    """
    for node, sample in current_nodes(fleet):
        if node.desktop is None or node.desktop.compositor is None:
            continue
        if node.facts is not None and node.facts.is_graphical is False:
            continue
        if sample.memory_pressure is not None and sample.memory_pressure.full_avg10 >= STALLING_PERCENT:
            continue
        signs = _signs(node, node.desktop, boot_s_now(node, sample, fleet))
        if signs is not None and (signs.is_confirmed or signs.is_suspected):
            yield _finding(node, sample, signs, fleet)


def _signs(node: NodeView, desktop: DesktopReading, now_boot_s: float) -> _Signs | None:
    if now_boot_s - desktop.boot_s > OLD_READING_S:  # the probe's own child is stuck or paused
        return None
    lines = [
        event
        for event in node.kernel_events
        if event.last_boot_s is not None and (known := knowledge_of(event)) and known.sign_of == FROZEN
    ]
    if desktop.answers:  # lines before its last answer don't count
        lines = [event for event in lines if (event.last_boot_s or 0.0) > desktop.boot_s - BLOCKED_S]
    silent = desktop.answers is False and desktop.silent_since_boot_s is not None
    blocked = desktop.blocked_since_boot_s is not None and desktop.state == "D"
    channel = desktop.wait_channel
    if blocked and channel is not None and not channel.startswith(_DRIVER_WAITS) and desktop.answers is not False:
        blocked = False  # it may be waiting for a disk
    return _Signs(
        desktop=desktop,
        silent_s=desktop.boot_s - (desktop.silent_since_boot_s or 0.0) if silent else None,
        blocked_s=now_boot_s - (desktop.blocked_since_boot_s or 0.0) if blocked else None,
        display=tuple(
            event for event in lines if event.kind == "display" and now_boot_s - (event.last_boot_s or 0.0) < LINES_S
        ),
        gpu=tuple(
            event
            for event in lines
            if event.kind != "display" and relevance_of(event, node, now_boot_s) is Relevance.NOW
        ),
    )


# --- wording ---------------------------------------------------------------------------------------------------------


def _finding(node: NodeView, sample: Sample, signs: _Signs, fleet: FleetState) -> Finding:
    desktop = signs.desktop
    screen = "login screen" if desktop.is_greeter else "desktop"
    is_confirmed = signs.is_confirmed
    likely = suspects(node)
    return Finding(
        rule="desktop.frozen",
        severity=Severity.CRITICAL,
        confidence=Confidence.CONFIRMED if is_confirmed else Confidence.SUSPECTED,
        title=f"The {screen} {'is' if is_confirmed else 'may be'} frozen: {_headline(signs)}",
        explanation=" ".join(filter(None, (_observations(signs), _context_sentence(node), _suspect_sentence(likely)))),
        distinction=(
            "Not a host out of memory: memory and load are normal, and SSH answers.",
            *(() if signs.gpu else ("Not a dead engine: it may keep serving; only what needs the display waits.",)),
        ),
        settles="" if is_confirmed else _settles(desktop),
        evidence=tuple(_evidence(node, signs, likely)),
        remedies=_remedies(node, signs, likely),
        references=(
            "field report 000",
            "field log of a DGX Spark (Xid 119 of the KMS thread, then 120 and 154)",
            *(("vLLM sources 0.11-0.27",) if likely else ()),
        ),
        nodes=(node.name,),
        brief=_brief(node, signs),
        since_wall_s=_since_wall_s(signs, boot_s_now(node, sample, fleet), fleet),
    )


def _name(desktop: DesktopReading) -> str:
    return f"{desktop.compositor}, pid {desktop.pid}," if desktop.pid is not None else f"{desktop.compositor}"


def _headline(signs: _Signs) -> str:
    command = signs.desktop.compositor or "the compositor"
    if signs.silent_s is not None and signs.desktop.state == "T":
        return f"a signal stopped {command}"
    if signs.silent_s is not None:
        return f"{command} runs but doesn't answer"
    if signs.gpu:
        return "its GPU doesn't answer the driver"
    if signs.blocked_s is not None:
        return f"{command} waits in the kernel"
    return f"{command} can't pass its frames to the display"


def _observations(signs: _Signs) -> str:
    desktop = signs.desktop
    parts = []
    if signs.silent_s is not None:
        parts.append(
            f"{_NAMES.get(desktop.compositor or '', 'The compositor')} ({_name(desktop).rstrip(',')}) runs but "
            f"hasn't answered on its session bus for {span(signs.silent_s)}."
        )
    if signs.blocked_s is not None:
        where = f" in {desktop.wait_channel}" if desktop.wait_channel else ""
        parts.append(f"It has waited{where} in state D for {span(signs.blocked_s)} without running once.")
    if signs.display or signs.gpu:
        events = "; ".join(describe(event) for event in (*signs.gpu, *signs.display)[:4])
        parts.append(f"The kernel log says: {events}.")
    if desktop.answers is None and desktop.reason:
        parts.append(f"sparktop couldn't ask it: {desktop.reason}.")
    first = " ".join(parts)
    return first[:1].upper() + first[1:]


def _context_sentence(node: NodeView) -> str:
    return (
        f"Memory and load look fine: {_figures(node)}. Compute and display share one GPU, one driver and one "
        "memory here. GPU work that never finishes freezes the screen too, while SSH and the engines' network side "
        "keep working."
    )


def _figures(node: NodeView) -> str:
    assert node.sample is not None
    gpu = node.first_gpu
    parts = [f"load {node.sample.load_1m:.2f}" if node.sample.load_1m is not None else ""]
    parts.append(f"{gib(node.sample.memory.available_bytes)} available")
    if gpu is not None and gpu.utilisation_percent is not None:
        power = f" at {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
        parts.append(f"GPU {gpu.utilisation_percent:.0f} %{power}")
    return ", ".join(figure for figure in parts if figure)


def _suspect_sentence(likely: tuple[Suspect, ...]) -> str:
    if not likely:
        return ""
    first = likely[0]
    return (
        f"A suspected trigger: {first.engine.name} runs vLLM with `{first.sign}`. Field report 000 blames FlashInfer's "
        "throughput kernels for mixture-of-experts layers on SM 12.1. It ended such freezes by several changes at "
        f"once, among them `VLLM_FLASHINFER_MOE_BACKEND=latency`; {first.about_variable}. So set `--moe-backend "
        f"{first.backend}` too: it chooses other kernels."
    )


def _settles(desktop: DesktopReading) -> str:
    if desktop.answers is False:
        return "a second query without an answer, some seconds from now."
    return "a look at the screen: does the clock move, does the pointer move?"


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
    for suspect in likely:
        yield Evidence(source=f"{suspect.engine.name} @ {node.name} command", text=suspect.sign)


def _brief(node: NodeView, signs: _Signs) -> str:
    parts = []
    if signs.silent_s is not None:
        parts.append(f"no answer for {span(signs.silent_s)}")
    if signs.blocked_s is not None:
        parts.append(f"state D for {span(signs.blocked_s)}")
    if signs.gpu:
        parts.append(counted(signs.gpu[-1]))
    elif signs.display:
        parts.append(victim_text(signs.display[-1]) or counted(signs.display[-1]))
    return f"{', '.join(parts)}; {_figures(node)}"


def _since_wall_s(signs: _Signs, now_boot_s: float, fleet: FleetState) -> float | None:
    starts = [signs.desktop.silent_since_boot_s, signs.desktop.blocked_since_boot_s if signs.blocked_s else None]
    starts += [event.first_boot_s for event in (*signs.gpu, *signs.display)]
    known_starts = [start for start in starts if start is not None]
    return fleet.wall_s - (now_boot_s - min(known_starts)) if known_starts else None


# --- remedies --------------------------------------------------------------------------------------------------------

_ONE_SHELL = Remedy(
    title="On X11, restart only the shell",
    steps=("pkill -HUP -x gnome-shell   # over SSH, as the desktop's user",),
    cost="on X11 only a moment: programs stay; on Wayland the session and every program in it",
    action="recover-desktop",
)

_DISPLAY_MANAGER = Remedy(
    title="Restart the display manager",
    steps=("sudo systemctl restart gdm3",),
    cost="the desktop session and everything open in it; engines in containers keep running",
)

_NO_DESKTOP = Remedy(
    title="Switch the desktop off while engines run",
    steps=("sudo systemctl isolate multi-user.target   # back with: sudo systemctl isolate graphical.target",),
    cost="the desktop session; frees some 3 GiB of memory",
)

_REBOOT = Remedy(
    title="Reboot",
    steps=("sudo reboot",),
    cost="what runs there now, and the time to load the models again",
    action="reboot",
)


def _remedies(node: NodeView, signs: _Signs, likely: tuple[Suspect, ...]) -> tuple[Remedy, ...]:
    if signs.desktop.state == "T" and signs.silent_s is not None:
        return (Remedy(title="Resume it (SIGCONT)", steps=(f"kill -CONT {signs.desktop.pid}",), cost="nothing"),)
    shell = () if _is_wayland(node) or signs.desktop.compositor != "gnome-shell" else (_ONE_SHELL,)
    manager = _DISPLAY_MANAGER if shell else replace(_DISPLAY_MANAGER, action="recover-desktop")
    remedies: tuple[Remedy, ...] = (*shell, manager, _NO_DESKTOP, _REBOOT)
    if signs.gpu:  # on a GPU that doesn't answer, a restarted display freezes again
        remedies = (_REBOOT, *(remedy for remedy in remedies if remedy is not _REBOOT))
    return (*remedies, *(_other_kernels(suspect) for suspect in likely))


def _other_kernels(suspect: Suspect) -> Remedy:
    return Remedy(
        title=f"To prevent it, give {suspect.engine.name} other MoE kernels",
        steps=(
            f"add --moe-backend {suspect.backend}",
            *(("remove --performance-mode throughput",) if "--performance-mode" in suspect.sign else ()),
            "keep CUDA graphs: --enforce-eager doesn't help",
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
    """Whether the session is certainly Wayland: only Xwayland speaks X there."""
    table = node.processes.processes if node.processes else ()
    commands = {process.command for process in table}
    return "Xwayland" in commands and "Xorg" not in commands


VARIABLE = "VLLM_FLASHINFER_MOE_BACKEND"
_SAFE_BACKENDS = ("marlin", "triton")
_QUANTISED = re.compile(r"fp8|fp4|mxfp4|w4a|awq|gptq|int4|int8", re.IGNORECASE)
_MOE = re.compile(
    r"-A\d+(?:\.\d+)?B\b|moe|mixtral|gpt-oss|deepseek-v|minimax|glm-[45]|kimi|nemotron-3|qwen3-next|llama-4",
    re.IGNORECASE,
)
"""Model names of known mixtures of experts; nothing is claimed about others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An engine that uses the kernels suspected of freezing the desktop."""

    engine: Engine
    sign: str
    """The flag or variable that selects them, as given."""
    backend: str
    """The MoE backend to try first: marlin for NVFP4 and FP8 weights, triton for BF16."""
    about_variable: str
    """What this version does with VLLM_FLASHINFER_MOE_BACKEND, as half a sentence."""


def suspects(node: NodeView) -> tuple[Suspect, ...]:
    """The living vLLM engines of a node that use the suspected kernels."""
    return tuple(
        Suspect(
            engine=engine,
            sign=sign,
            backend="marlin" if _QUANTISED.search(_words(engine)) else "triton",
            about_variable=_about_variable(engine.version),
        )
        for engine in node.engines
        if engine.kind is EngineKind.VLLM and is_alive(engine) and (sign := _sign(engine))
    )


def _sign(engine: Engine) -> str:
    if command_of(engine).value("--moe-backend") in _SAFE_BACKENDS or not _MOE.search(_words(engine)):
        return ""
    environment = engine.environment or (engine.container.environment if engine.container else ())
    variable = next((entry for entry in environment if entry.startswith(VARIABLE + "=")), "")
    if variable.lower().endswith("=throughput"):
        return variable
    if command_of(engine).value("--performance-mode") == "throughput":
        return "--performance-mode throughput"
    return ""


def _words(engine: Engine) -> str:
    """Its model and its command."""
    return " ".join((engine.model or "", *(engine.argv or (engine.container.argv if engine.container else ()))))


def _about_variable(version: str | None) -> str:
    minor = (release_of(version) or ())[:2]
    if minor >= (0, 27):
        return f"vLLM {version} doesn't have that variable any more"
    if (0, 12) <= minor < (0, 23):
        return f"in upstream's vLLM {version} that variable changes nothing on this GPU"
    return "upstream, it changes nothing on this GPU from vLLM 0.12 to 0.22 and is gone from 0.27 on"
