"""Reads `nvidia-smi` tables and `-q` output: GPU errors, slowdowns, and a GPU busy at idle power.

On GB10, "Not Supported" in the memory column and N/A for fan, power cap and ECC are normal (docs/facts/gb10.md section
1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop import sanitise
from sparktop.knowledge.card import found
from sparktop.model.finding import Evidence, Finding

CARDS = ("driver.gpu-error", "driver.ecc-errors", "gpu.busy-at-low-power", "gpu.slowed-down")

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
    gpu = {"index": index, "name": name}
    both = (name_evidence, evidence)
    if "ERR!" in figures.group(0) or ecc == "ERR!":
        yield found("driver.gpu-error", "unreadable", gpu, evidence=both, subject=index)
    if ecc.isdecimal() and int(ecc) > 0:
        yield found("driver.ecc-errors", "counted", {**gpu, "count": ecc}, evidence=(name_evidence,), subject=index)
    busy, power = figures["busy"], figures["power"]
    is_read = busy.isdecimal() and power.isdigit()
    if "GB10" in name and is_read and int(busy) >= BUSY_PERCENT and 0 < int(power) <= LOW_POWER_W:
        load = {"busy": int(busy), "power_w": int(power)}
        yield found("gpu.busy-at-low-power", "now", load, evidence=both, subject=index)


def _slowdown(evidence: list[Evidence]) -> Iterator[Finding]:
    if evidence:
        reasons = ", ".join(dict.fromkeys(entry.text.split(":")[0] for entry in evidence))
        case = "power-brake" if "Power Brake" in reasons else "heat"
        yield found("gpu.slowed-down", case, {"reasons": reasons}, evidence=tuple(evidence[:4]))
