"""The frozen desktop, firing and quiet: field report 000, and what machines with this trouble log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kernel_support import ASKS_REBOOT, XID_79, XID_119, log
from tests.pictures_support import (
    BOOT_S,
    WALL_S,
    claims,
    engine,
    facts,
    idle_node,
    link,
    node,
    picture,
    process,
    rules_on,
)
from tests.scenario_support import Stage
from tests.table import over

import sparktop.sim
from sparktop.model.engine import Engine
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence
from sparktop.model.fleet import LinkState, NodeView
from sparktop.model.telemetry import DesktopReading
from sparktop.sim.scenario.scenario import load_file

RULES = rules_on("desktop")

UPDATE = "gnome-shell[3849]: Failed to post KMS update: drmModeAtomicCommit: Invalid argument"
MODESET = "nvidia-modeset: ERROR: GPU:0: Failed detecting connected display devices"
S, C = Confidence.SUSPECTED, Confidence.CONFIRMED


def shell(answers: bool | None = True, *, silent_s: float | None = None, **more: Any) -> DesktopReading:
    known: dict[str, Any] = {
        "boot_s": BOOT_S - 0.5,
        "compositor": "gnome-shell",
        "pid": 3849,
        "user_id": 1000,
        "state": "S",
        "wait_channel": "do_sys_poll",
        "answers": answers,
        "silent_since_boot_s": None if silent_s is None else BOOT_S - 0.5 - silent_s,
        "reason": "" if answers is not None else "its session bus belongs to user 1000",
    }
    return DesktopReading(**(known | more))


def silent(silent_s: float = 41.0, **more: Any) -> DesktopReading:
    return shell(False, silent_s=silent_s, **more)


def blocked(for_s: float, channel: str | None = "nv_drm_atomic_commit", **more: Any) -> DesktopReading:
    since = BOOT_S - for_s
    return shell(more.pop("answers", None), state="D", wait_channel=channel, blocked_since_boot_s=since, **more)


def desk(reading: DesktopReading | None, *lines: Any, **more: Any) -> NodeView:
    """Field report 000's machine: load 0.67, 53 GiB available, 0 % GPU, a compositor that is there."""
    events = log(*lines) if lines else ()
    options: dict[str, Any] = {"available_gib": 53.0, "util": 0.0, "power_w": 11.4, "kernel_events": events}
    return node(desktop=reading, **(options | more))


@over(
    "view, expected",
    [
        (desk(silent()), C),
        (desk(silent(3.1)), S),
        (desk(silent(3.1), XID_119), C),
        (desk(silent(3.1), UPDATE), C),
        (desk(blocked(12.0)), S),
        (desk(blocked(2.0), XID_119), C),
        (desk(blocked(2.0), UPDATE), C),
        (desk(blocked(12.0, None)), S),
        (desk(shell(None), XID_119), S),
        (desk(shell(None), XID_79), S),
        (desk(shell(None), XID_119, UPDATE), C),
        (desk(shell(None), UPDATE, UPDATE, UPDATE), S),
        (desk(shell(None), "[drm:x [nvidia_drm]] *ERROR* [nvidia-drm] Flip event timeout on head 0"), S),
        (desk(silent(state="T")), C),
        (desk(silent(), facts=None), C),
        (desk(silent(is_greeter=True)), C),
        (idle_node(desktop=silent()), C),
        # quiet
        (node(), None),
        (desk(shell()), None),
        (desk(shell(None)), None),
        (desk(DesktopReading(boot_s=BOOT_S, reason="no compositor runs"), XID_119), None),
        (desk(None, XID_119, UPDATE), None),
        (desk(silent(), facts=facts(is_graphical=False)), None),
        (desk(silent(), link=link(LinkState.LOST)), None),
        (desk(silent(), psi_full=30.0), None),
        (desk(silent(boot_s=BOOT_S - 120.0)), None),
        (desk(shell(), (UPDATE, 60.0), (UPDATE, 59.0), (UPDATE, 58.0), (XID_119, 61.0)), None),
        (desk(shell(None), UPDATE), None),
        (desk(shell(None), MODESET), None),
        (desk(shell(None), (XID_119, 3 * 3600.0)), None),
        (desk(shell(None), (UPDATE, 900.0), (UPDATE, 899.0), (UPDATE, 898.0)), None),
        (desk(blocked(4.0)), None),
        (desk(blocked(60.0, "folio_wait_bit_common")), None),
        (desk(shell(state="D", wait_channel="nv_drm_atomic_commit")), None),
    ],
)
def test_frozen_or_not(view: NodeView, expected: Confidence | None) -> None:
    found = claims(RULES, picture(view))
    assert [finding.confidence for finding in found] == ([] if expected is None else [expected])
    for finding in found:
        assert finding.rule == "desktop.frozen"
        assert finding.severity is Severity.CRITICAL
        assert bool(finding.settles) == (expected is S)
        assert finding.remedies
        assert WALL_S - 3600 < (finding.since_wall_s or 0.0) <= WALL_S


def test_every_row_of_field_report_000_is_in_what_it_says() -> None:
    """The symptom table: shell alive in a poll wait, load 0.67, 53 GB available, GPU 0 %, SSH works, the flags."""
    sample = desk(silent()).sample
    assert sample is not None
    argv = (
        "vllm", "serve", "Qwen/Qwen3.6-35B-A3B-FP8", "--performance-mode", "throughput", "--optimization-level", "3",
    )  # fmt: skip
    (finding,) = claims(RULES, picture(desk(silent(), engines=(engine(argv=argv),))))
    assert "pid 3849) runs but hasn't answered on its session bus for 41 s" in finding.explanation
    assert "load 1.60, 53.0 GiB available, GPU 0 % at 11 W" in finding.explanation
    assert "SSH" in finding.explanation
    assert any("do_sys_poll" in evidence.text for evidence in finding.evidence)
    assert "A suspected trigger" in finding.explanation
    assert "--performance-mode throughput" in finding.explanation
    assert "VLLM_FLASHINFER_MOE_BACKEND=latency" in finding.explanation
    assert "changes nothing on this GPU" in finding.explanation
    assert "field report 000" in finding.references
    last = finding.remedies[-1]
    assert (last.action, last.steps[0]) == ("relaunch", "add --moe-backend marlin")
    assert any("--enforce-eager" in step for step in last.steps)


def test_remedies_come_in_order_with_what_each_loses() -> None:
    (finding,) = claims(RULES, picture(desk(silent())))
    assert [remedy.steps[0].partition("   #")[0] for remedy in finding.remedies] == [
        "pkill -HUP -x gnome-shell",
        "sudo systemctl restart gdm3",
        "sudo systemctl isolate multi-user.target",
        "sudo reboot",
    ]
    assert [remedy.action for remedy in finding.remedies] == ["recover-desktop", None, None, "reboot"]
    assert all(remedy.cost for remedy in finding.remedies)

    wayland = (process(3849, "gnome-shell"), process(3990, "Xwayland"))
    (finding,) = claims(RULES, picture(desk(silent(), processes=wayland)))
    assert finding.remedies[0].action == "recover-desktop"
    assert "gdm3" in finding.remedies[0].steps[0]

    (finding,) = claims(RULES, picture(desk(silent(), XID_119, ASKS_REBOOT)))
    assert finding.remedies[0].action == "reboot"

    (finding,) = claims(RULES, picture(desk(silent(state="T"))))
    assert [remedy.steps for remedy in finding.remedies] == [("kill -CONT 3849",)]


ON_PATH = ("vllm", "serve", "m/Qwen3-30B-A3B", "--performance-mode=throughput")


@over(
    "one, words",
    [
        (engine(argv=ON_PATH, model="m/Qwen3-30B-A3B"), "--moe-backend triton"),
        (engine(argv=(*ON_PATH, "--quantization", "fp8")), "--moe-backend marlin"),
        (engine(argv=ON_PATH, version="0.33.0"), "doesn't have that variable any more"),
        (engine(argv=ON_PATH, version="0.21.0"), "in upstream's vLLM 0.21.0 that variable changes nothing"),
        (engine(argv=ON_PATH, version=None), "from vLLM 0.12 to 0.22 and is gone from 0.27"),
        (engine(argv=ON_PATH[:3], environment=("VLLM_FLASHINFER_MOE_BACKEND=throughput",)), "`VLLM_FLASHINFER_MOE"),
        (engine(), ""),
        (engine(argv=(*ON_PATH, "--moe-backend", "marlin")), ""),
        (engine(argv=("vllm", "serve", "m/Llama-8B", "--performance-mode", "throughput"), model="m/Llama-8B"), ""),
    ],
)
def test_the_likely_trigger_is_named_as_a_suspicion(one: Engine, words: str) -> None:
    (finding,) = claims(RULES, picture(desk(silent(), engines=(one,))))
    assert ("suspected trigger" in finding.explanation) == bool(words)
    assert words in finding.explanation
    assert finding.severity is Severity.CRITICAL


def test_the_scenario_is_named_within_15_seconds_of_its_onset() -> None:
    stage = Stage("desktop-freeze", rules=RULES)
    stage.run(60)
    suspected = stage.first("desktop.frozen")
    sure = stage.first("desktop.frozen", confidence=C)
    assert suspected is not None
    assert sure is not None
    assert 14.0 < suspected <= sure <= 29.0
    assert stage.shown[0].finding.nodes == ("spark1",)
    assert [finding.nodes for finding in stage.firing("desktop.frozen")] == [("spark1",)]


def test_by_its_silence_alone_within_15_seconds_and_over_with_the_first_answer(tmp_path: Path) -> None:
    scenarios = Path(sparktop.sim.__file__).parent / "scenarios"
    for base in ("_spark", "healthy"):
        (tmp_path / f"{base}.toml").write_text((scenarios / f"{base}.toml").read_text())
    (tmp_path / "silent.toml").write_text(
        'extends = "healthy"\ntitle = "t"\nlength_s = 120\nrepeat = "hold"\n[[nodes]]\nname = "spark1"\n'
        "tracks = { desktop_answers = [[0, 1], [21, 1], [21, 0], [60, 0], [60, 1]] }\n"
    )
    stage = Stage(load_file(tmp_path / "silent.toml"), rules=RULES)
    stage.run(59)
    suspected, sure = stage.first("desktop.frozen"), stage.first("desktop.frozen", confidence=C)
    assert suspected is not None
    assert sure is not None
    assert 21 < suspected <= 36
    assert suspected < sure <= suspected + 4
    stage.run(85)
    assert stage.firing("desktop.frozen") == []
