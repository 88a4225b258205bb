"""Reads `nvidia-smi` tables and `-q` output: GPU errors, slowdowns, and a GPU busy at idle power.

On GB10, "Not Supported" in the memory column and N/A for fan, power cap and ECC are normal (docs/facts/gb10.md section
1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop import sanitise
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy

GPU_ERROR = Rule(
    id="driver.gpu-error",
    kind=RuleKind.DOCUMENT,
    title="A GPU reports ERR! for some figures",
    severity=Severity.CRITICAL,
    scope="nvidia-smi's table",
    sources=("NVIDIA: nvidia-smi documentation",),
)
ECC_ERRORS = Rule(
    id="driver.ecc-errors",
    kind=RuleKind.DOCUMENT,
    title="A GPU has uncorrectable ECC errors",
    severity=Severity.CRITICAL,
    scope="nvidia-smi's table, GPUs with ECC (not GB10)",
    sources=("NVIDIA: GPU memory error management",),
)
LOW_POWER = Rule(
    id="gpu.busy-at-low-power",
    kind=RuleKind.DOCUMENT,
    title="The GPU is busy at idle power: it may be spinning, or short of power",
    severity=Severity.WARNING,
    scope="nvidia-smi's table on GB10",
    sources=("vllm-project/vllm#46097", "Blackwellboy/model-serving-minefield", "field report 003"),
)
SLOWED_DOWN = Rule(
    id="gpu.slowed-down",
    kind=RuleKind.DOCUMENT,
    title="The GPU is slowed down by heat or by its power supply",
    severity=Severity.WARNING,
    scope="nvidia-smi -q",
    sources=("NVIDIA: nvidia-smi documentation",),
)
CARDS = (GPU_ERROR, ECC_ERRORS, LOW_POWER, SLOWED_DOWN)

BUSY_PERCENT = 90
LOW_POWER_W = 25
_NAME = re.compile(r"^\|\s*(?P<index>\d{1,3})\s+(?P<name>[A-Z][^|]{2,60}?)\s\s[^|]*\|[^|]*\|(?P<ecc>[^|]*)\|\s*$")
_FIGURES = re.compile(
    r"^\|\s*\S+\s+(?:\d+|N/A|ERR!)\S?\s+(?:P\d+|N/A|ERR!)\s+(?P<power>\d{1,6}|N/A|ERR!)[^\s/]{0,4}\s*/\s*\S{1,9}\s*"
    r"\|[^|]*\|\s*(?P<busy>\d{1,6}|N/A|ERR!)"
)
_ACTIVE = re.compile(
    r"^\s*(?P<what>HW Slowdown|HW Thermal Slowdown|SW Thermal Slowdown|HW Power Brake Slowdown)\s*:\s*Active\s*$"
)


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """The findings in nvidia-smi output; None if the text holds none."""
    if "NVIDIA-SMI" not in text and "NVSMI LOG" not in text:
        return None
    findings: list[Finding] = []
    gpu: tuple[re.Match[str], Evidence] | None = None
    slowdowns: list[Evidence] = []
    for number, line in enumerate(text.splitlines(), 1):
        if (name_row := _NAME.match(line)) is not None and "Name" not in line:
            gpu = name_row, Evidence(source=source, line=number, text=sanitise.line(line.strip(), limit=200))
        elif gpu is not None and (figures := _FIGURES.match(line)) is not None:
            findings += _card_findings(*gpu, figures, Evidence(source=source, line=number, text=line.strip()[:200]))
            gpu = None
        elif (active := _ACTIVE.match(line)) is not None:
            slowdowns.append(Evidence(source=source, line=number, text=f"{active['what']}: Active"))
    findings += _slowdown(slowdowns)
    return tuple(findings)


def _card_findings(
    name_row: re.Match[str], name_evidence: Evidence, figures: re.Match[str], evidence: Evidence
) -> Iterator[Finding]:
    index, name, ecc = name_row["index"], sanitise.name(name_row["name"]), name_row["ecc"].strip()
    if "ERR!" in figures.group(0) or ecc == "ERR!":
        yield Finding(
            rule=GPU_ERROR.id,
            severity=GPU_ERROR.severity,
            title=f"GPU {index} ({name}) reports ERR! for some figures",
            explanation=(
                "The driver still lists the GPU but can't read its sensors: the GPU has failed or hangs. The kernel "
                "log shows why: an Xid or an RmInitAdapter line."
            ),
            evidence=(name_evidence, evidence),
            remedies=(
                Remedy(
                    title="Read the kernel log", steps=("journalctl -k -b | grep -i -e xid -e nvrm",), cost="nothing"
                ),
                Remedy(
                    title="Reboot", cost="interrupts everything on this Spark; takes a few minutes", action="reboot"
                ),
            ),
            references=GPU_ERROR.sources,
            subject=index,
        )
    if ecc.isdecimal() and int(ecc) > 0:
        yield Finding(
            rule=ECC_ERRORS.id,
            severity=ECC_ERRORS.severity,
            title=f"GPU {index} ({name}) has {ecc} uncorrectable ECC errors since it was last reset",
            explanation=(
                "Its memory returned wrong data that couldn't be corrected: programs that used it have failed, or "
                "computed with it. A reset clears the count and remaps the rows. If the errors return, have the "
                "hardware replaced (RMA)."
            ),
            evidence=(name_evidence,),
            remedies=(
                Remedy(
                    title="Reset the GPU or reboot", cost="interrupts everything that uses the GPU", action="reboot"
                ),
            ),
            references=ECC_ERRORS.sources,
            subject=index,
        )
    busy, power = figures["busy"], figures["power"]
    is_read = busy.isdecimal() and power.isdigit()
    if "GB10" in name and is_read and int(busy) >= BUSY_PERCENT and 0 < int(power) <= LOW_POWER_W:
        yield _busy_at_low_power(index, int(busy), int(power), (name_evidence, evidence))


def _busy_at_low_power(index: str, busy: int, power_w: int, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        rule=LOW_POWER.id,
        severity=LOW_POWER.severity,
        confidence=Confidence.SUSPECTED,
        title=f"The GPU is {busy} % busy at {power_w} W: it may be spinning, or short of power",
        explanation=(
            "Decoding draws about 31 to 45 W on GB10. A busy GPU at a third of that has one of two causes. Either "
            "kernels wait for one another and compute nothing: no tokens, SM clock near 2.4 GHz. Or the power supply "
            "throttles the machine: tokens at half speed, SM clock pinned at 500 to 850 MHz. The memory column's 0 % "
            "means nothing: that counter never moves on GB10."
        ),
        settles=(
            "`nvidia-smi --query-gpu=clocks.sm,power.draw,utilization.gpu --format=csv -l 1`, and whether the "
            "engine's token counters move meanwhile"
        ),
        evidence=evidence,
        remedies=(
            Remedy(
                title="At 500 to 850 MHz: shut down, then unplug the power supply from the wall and the Spark for at "
                "least 60 s",
                cost="interrupts everything on this Spark; takes some minutes",
            ),
            Remedy(
                title="At 2.4 GHz with no tokens: restart the engine (on two nodes, both ranks together)",
                cost="interrupts its requests; the engine loads again",
                action="safe-restart",
            ),
        ),
        references=LOW_POWER.sources,
        subject=index,
    )


def _slowdown(evidence: list[Evidence]) -> Iterator[Finding]:
    if not evidence:
        return
    reasons = ", ".join(dict.fromkeys(entry.text.split(":")[0] for entry in evidence))
    is_power_brake = "Power Brake" in reasons
    yield Finding(
        rule=SLOWED_DOWN.id,
        severity=SLOWED_DOWN.severity,
        title=f"The GPU is slowed down: {reasons}",
        explanation=(
            "The hardware lowers its clocks "
            + ("because the power supply demands it." if is_power_brake else "to stay below its temperature limit.")
            + " Work continues, but slower."
        ),
        evidence=tuple(evidence[:4]),
        remedies=(
            Remedy(
                title="Check the power supply and its cable"
                if is_power_brake
                else "Improve its airflow, or cap the clock",
                steps=() if is_power_brake else ("sudo nvidia-smi -lgc 300,2100",),
                cost="" if is_power_brake else "some speed; a reboot reverts it",
            ),
        ),
        references=SLOWED_DOWN.sources,
    )
