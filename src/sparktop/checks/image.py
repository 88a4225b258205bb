"""Checks of an engine's image: the packages that NVIDIA's builds lack, and a tag that moves."""

from __future__ import annotations

import re

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning
from sparktop.dataclass import dataclass

_NO_RAY_SINCE = (26, 5)
"""NVIDIA's vLLM images have no Ray from 26.05 on (docs/facts/engines.md sections 5.3, 7)."""
_NO_FASTSAFETENSORS = ((26, 3), (26, 4))
"""NVIDIA's images of these months have no fastsafetensors (docs/facts/engines.md KRN-11)."""
_MOVING_TAG = re.compile(r"latest|nightly|^main$|^dev$")
_NGC_VLLM = re.compile(r"nvcr\.io/nvidia/vllm:(\d\d)\.(\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFacts:
    """The image that an engine runs in, which needs a package."""

    image: str
    is_nvidias: bool = True
    """Whether it is one of NVIDIA's builds; others have both packages."""
    commands: str = ""
    """What its container runs before the engine: `pip install ray`."""

    def installs(self, package: str) -> bool:
        """Whether a command installs the package first."""
        return re.search(rf"pip3? install [^&|;]*\b{package}\b", self.commands) is not None

    @property
    def month(self) -> tuple[int, int] | None:
        """Release of NVIDIA's vLLM image: (26, 5) of 26.05."""
        match = _NGC_VLLM.match(self.image)
        return (int(match[1]), int(match[2])) if match else None


@check("image.no-ray", is_rule=False, gate="image-version", lint="config.ray-missing")
def judge_ray_package(facts: PackageFacts) -> Judgement:
    """Whether the image has the Ray that the engine starts its ranks with."""
    if not facts.is_nvidias or facts.installs("ray"):
        return passed()
    if facts.month is None:
        return unknown("the image's release is not known")
    return failed("absent") if facts.month >= _NO_RAY_SINCE else passed()


@check("image.no-fastsafetensors", is_rule=False, gate="image-version", lint="config.fastsafetensors-ngc")
def judge_fastsafetensors(facts: PackageFacts) -> Judgement:
    """Whether the image has the loader that the engine is told to use."""
    if not facts.is_nvidias or facts.installs("fastsafetensors"):
        return passed()
    return (
        failed("absent") if facts.month in _NO_FASTSAFETENSORS else unknown("whether this release has it is not known")
    )


@check("image.moving-tag", is_rule=False, gate="image-version", lint="config.image-not-pinned")
def judge_tag(tag: str | None) -> Judgement:
    """Whether the tag names one version; None: the image has a digest, or isn't known."""
    if tag is None:
        return unknown("there is no tag")
    return warning("moves") if _MOVING_TAG.search(tag) else passed()
