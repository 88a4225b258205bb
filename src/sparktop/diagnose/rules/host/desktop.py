"""Rule on a frozen desktop, and the engines that may have frozen it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel.findings import GPU_GONE, knowledge_of
from sparktop.diagnose.kernel.incident import counted, describe, victim_text
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.host.kernel_log import Relevance, relevance_of
from sparktop.diagnose.rules.window import seen
from sparktop.engines.images import release_of
from sparktop.engines.ranks import is_alive
from sparktop.knowledge.card import found, remedies
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.event import KernelEvent
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
_NAMES = {"gnome-shell": "GNOME's shell", "kwin_wayland": "KWin", "kwin_x11": "KWin", "Xorg": "The X server"}


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


@live_rule(FROZEN, clear_s=4.0, follows=GPU_GONE)
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


def _finding(node: NodeView, sample: Sample, signs: _Signs, fleet: FleetState) -> Finding:
    desktop, likely = signs.desktop, suspects(node)
    events = (*signs.gpu, *signs.display)
    first = likely[0] if likely else None
    return found(
        FROZEN,
        "seen",
        {
            "command": desktop.compositor,
            "is_greeter": desktop.is_greeter,
            "is_confirmed": signs.is_confirmed,
            _headline(signs): True,
            "shell": _NAMES.get(desktop.compositor or "", "The compositor"),
            "process": _name(desktop).rstrip(","),
            "silent": span(signs.silent_s) if signs.silent_s is not None else None,
            "where": _where(desktop),
            "blocked": span(signs.blocked_s) if signs.blocked_s is not None else None,
            "events": "; ".join(describe(event) for event in events[:4]),
            "reason": desktop.reason if desktop.answers is None else None,
            "figures": _figures(node),
            **({"suspect": first.engine.name, "sign": first.sign, "backend": first.backend} if first else {}),
            **({first.about_variable: True, "version": first.engine.version} if first else {}),
            "gpu_answers": not signs.gpu,
            "is_unanswered": desktop.answers is False,
            "signs": _brief(signs),
        },
        confidence=Confidence.CONFIRMED if signs.is_confirmed else Confidence.SUSPECTED,
        evidence=tuple(_evidence(node, signs, likely)),
        remedies=_remedies(node, signs, likely),
        nodes=(node.name,),
        since_wall_s=_since_wall_s(signs, boot_s_now(node, sample, fleet), fleet),
    )


def _name(desktop: DesktopReading) -> str:
    return f"{desktop.compositor}, pid {desktop.pid}," if desktop.pid is not None else f"{desktop.compositor}"


def _where(desktop: DesktopReading) -> str:
    return f" in {desktop.wait_channel}" if desktop.wait_channel else ""


def _headline(signs: _Signs) -> str:
    """The figure whose words are the headline."""
    if signs.silent_s is not None:
        return "is_signalled" if signs.desktop.state == "T" else "is_silent"
    if signs.gpu:
        return "gpu_is_gone"
    return "is_waiting" if signs.blocked_s is not None else "cannot_draw"


def _figures(node: NodeView) -> str:
    assert node.sample is not None
    gpu = node.first_gpu
    parts = [f"load {node.sample.load_1m:.2f}" if node.sample.load_1m is not None else ""]
    parts.append(f"{gib(node.sample.memory.available_bytes)} available")
    if gpu is not None and gpu.utilisation_percent is not None:
        power = f" at {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
        parts.append(f"GPU {gpu.utilisation_percent:.0f} %{power}")
    return ", ".join(figure for figure in parts if figure)


def _evidence(node: NodeView, signs: _Signs, likely: tuple[Suspect, ...]) -> Iterable[Evidence]:
    desktop = signs.desktop
    if signs.silent_s is not None:
        yield seen(
            node,
            "desktop",
            f"{_name(desktop)} no answer on the session bus for {span(signs.silent_s)} ({desktop.reason})",
        )
    yield seen(node, "desktop", f"{_name(desktop)} state {desktop.state or 'unknown'}{_where(desktop)}")
    for event in (*signs.gpu, *signs.display):
        yield Evidence(source=f"{node.name} kernel log", text=event.text, wall_s=event.first_wall_s)
    yield seen(node, "figures", _figures(node))
    for suspect in likely:
        yield Evidence(source=f"{suspect.engine.name} @ {node.name} command", text=suspect.sign)


def _brief(signs: _Signs) -> str:
    parts = []
    if signs.silent_s is not None:
        parts.append(f"no answer for {span(signs.silent_s)}")
    if signs.blocked_s is not None:
        parts.append(f"state D for {span(signs.blocked_s)}")
    if signs.gpu:
        parts.append(counted(signs.gpu[-1]))
    elif signs.display:
        parts.append(victim_text(signs.display[-1]) or counted(signs.display[-1]))
    return ", ".join(parts)


def _since_wall_s(signs: _Signs, now_boot_s: float, fleet: FleetState) -> float | None:
    starts = [signs.desktop.silent_since_boot_s, signs.desktop.blocked_since_boot_s if signs.blocked_s else None]
    starts += [event.first_boot_s for event in (*signs.gpu, *signs.display)]
    known_starts = [start for start in starts if start is not None]
    return fleet.wall_s - (now_boot_s - min(known_starts)) if known_starts else None


def _remedies(node: NodeView, signs: _Signs, likely: tuple[Suspect, ...]) -> tuple[Remedy, ...]:
    if signs.desktop.state == "T" and signs.silent_s is not None:
        return remedies(FROZEN, "signalled", {"pid": signs.desktop.pid})
    has_shell = signs.desktop.compositor == "gnome-shell" and not _is_wayland(node)
    is_gone = bool(signs.gpu)  # on a GPU that doesn't answer, a restarted display freezes again
    shells = {"has_shell": has_shell, "has_no_shell": not has_shell}
    restarts = remedies(FROZEN, "restart", {**shells, "gpu_is_gone": is_gone, "gpu_answers": not is_gone})
    return (*restarts, *chain.from_iterable(map(_other_kernels, likely)))


def _other_kernels(suspect: Suspect) -> tuple[Remedy, ...]:
    has_mode = "--performance-mode" in suspect.sign
    figures = {"engine": suspect.engine.name, "backend": suspect.backend}
    return remedies(FROZEN, "kernels", {**figures, "has_mode": has_mode, "has_no_mode": not has_mode})


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
    """The figure whose words say what this version does with VLLM_FLASHINFER_MOE_BACKEND."""


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
    if engine.command.value("--moe-backend") in _SAFE_BACKENDS or not _MOE.search(_words(engine)):
        return ""
    environment = engine.environment or (engine.container.environment if engine.container else ())
    variable = next((entry for entry in environment if entry.startswith(VARIABLE + "=")), "")
    if variable.lower().endswith("=throughput"):
        return variable
    if engine.command.value("--performance-mode") == "throughput":
        return "--performance-mode throughput"
    return ""


def _words(engine: Engine) -> str:
    """Its model and its command."""
    return " ".join((engine.model or "", *(engine.argv or (engine.container.argv if engine.container else ()))))


def _about_variable(version: str | None) -> str:
    minor = (release_of(version) or ())[:2]
    if minor >= (0, 27):
        return "variable_is_gone"
    return "variable_is_ignored" if (0, 12) <= minor < (0, 23) else "variable_is_either"
