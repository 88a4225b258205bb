"""Lints of Ray: its memory monitor, and an image without it (facts/engines.md NET-09, section 7)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.diagnose.lint.changes import replaced, with_variable
from sparktop.diagnose.lint.lintrule import Lint, card, change, claim
from sparktop.diagnose.lint.noderules import ELSEWHERE, SETS_NETWORK
from sparktop.diagnose.lint.spec import Family, Launcher, LaunchSpec
from sparktop.diagnose.rule import Rule
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_RAY_MONITOR = card(
    "ray-memory-monitor",
    Severity.WARNING,
    "Ray's memory monitor kills workers when the shared memory is nearly full",
    "Ray on Sparks, set for `ray start` on every node",
    "field report 002",
    "NVIDIA/dgx-spark-playbooks",
)
_RAY_MISSING = card(
    "ray-missing",
    Severity.CRITICAL,
    "NVIDIA's 26.05 image has no Ray",
    "NVIDIA's vLLM images 26.05",
    "NVIDIA/dgx-spark-playbooks",
)


def _ray_monitor(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.variable("RAY_memory_monitor_refresh_ms")
    if spec.launcher in SETS_NETWORK or (item is not None and (item.value == "0" or not item.is_known)):
        return
    uses_ray = spec.is_ray_start or (spec.value("distributed-executor-backend") == "ray" and spec.has_container)
    if not uses_ray or (spec.launcher is Launcher.RUN_CLUSTER and not spec.is_ray_start):
        return
    is_certain = spec.knows_environment or (spec.is_ray_start and spec.has_container is False)
    yield claim(
        spec,
        rule,
        item,
        title="RAY_memory_monitor_refresh_ms=0 is not set: Ray may kill the engine's workers",
        severity=None if is_certain else Severity.INFO,
        explanation=(
            "Ray looks every 250 ms and kills workers when 95 % of the memory are used. On a Spark the model itself "
            "fills the memory that Ray looks at, so a healthy engine is what it kills. The variable must be 0 where "
            "`ray start` runs, on both nodes."
        ),
        settles="" if is_certain else ELSEWHERE,
        remedies=[
            change(
                "turn the monitor off, on both nodes, before `ray start`",
                *(
                    replaced(spec, item, "0")
                    if item and item.value_span
                    else with_variable(spec, "RAY_memory_monitor_refresh_ms", "0")
                ),
            )
        ],
    )


def _ray_missing(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = spec.flag("distributed-executor-backend")
    image = spec.image.value or "" if spec.image else ""
    if item is None or spec.value("distributed-executor-backend") != "ray" or spec.family is not Family.NGC:
        return
    if (
        "26.05" not in image
        or spec.launcher is not Launcher.DOCKER
        or re.search(r"pip3? install.*\bray\b", spec.prelude)
    ):
        return
    yield claim(
        spec,
        rule,
        item,
        explanation=(
            "Ray was dropped from the image: `--distributed-executor-backend ray` ends in `No module named 'ray'`. "
            "NVIDIA's own two-node guide installs it when the container starts."
        ),
        remedies=[
            Remedy(title="install it first: pip install ray, in the container's command"),
            Remedy(
                title="or run without Ray: --nnodes 2 --node-rank N --master-addr ADDRESS (--headless on the second)"
            ),
        ],
    )


LINTS = (
    Lint(card=_RAY_MONITOR, check=_ray_monitor, is_live=True),
    Lint(card=_RAY_MISSING, check=_ray_missing),
)
