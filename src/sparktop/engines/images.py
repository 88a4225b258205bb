"""What an image's name tells: whose build it is, and which version; None where it can't be told.

Facts: docs/facts/engines.md sections 4.1 (tag map), 1E (C7), 5.
"""

from __future__ import annotations

import re
from enum import StrEnum

from sparktop.cmdline.engine_command import kind_of_image, version_of_image
from sparktop.model.engine import EngineKind

NGC_VLLM = {"25.11": "0.11.0", "26.03": "0.19.0", "26.04": "0.19.0", "26.05": "0.21.0"}
"""vLLM's version in NVIDIA's images, by tag; other tags are unknown."""


def family_of(image: str) -> Family | None:
    """Whose build an image is; None where its name names no engine."""
    name = image.lower()
    if name.startswith("nvcr.io/nvidia/"):
        return Family.NGC
    if re.match(r"(?:docker\.io/)?vllm/vllm-openai(?:[:@]|$)", name):
        return Family.VLLM_OPENAI
    if re.match(r"(?:docker\.io/)?lmsysorg/sglang(?:[:@]|$)", name):
        return Family.LMSYS
    if re.match(r"ghcr\.io/ggml-org/llama\.cpp(?::server|@|$)", name):
        return Family.GGML
    return Family.COMMUNITY if kind_of_image(name) else None


def version_of(image: str, engine: EngineKind | None) -> str | None:
    """The engine's version, where the image's tag gives it."""
    if engine is EngineKind.VLLM and (match := re.search(r"nvcr\.io/nvidia/vllm:(\d\d\.\d\d)", image)):
        return NGC_VLLM.get(match[1])
    return version_of_image(image)


def tag_of(image: str) -> str | None:
    """The image's tag; "latest" where it has none, None where it has a digest or a variable instead."""
    if "@" in image or "$" in image:
        return None
    return image.rpartition("/")[2].partition(":")[2] or "latest"


def release_of(version: str | None) -> tuple[int, ...] | None:
    """The numbers that a version begins with; None where there are none."""
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9}){0,9})", version or "")
    return tuple(int(part) for part in match[1].split(".")) if match else None


def numbers_of(version: str) -> tuple[int, ...]:
    """A version's first three numbers, for comparison; missing ones are 0."""
    return (*(release_of(version) or ()), 0, 0, 0)[:3]


class Family(StrEnum):
    """Whose build an image is: advice for one family is wrong for another (docs/facts/engines.md section 1E, C7)."""

    NGC = "NGC"
    VLLM_OPENAI = "vllm/vllm-openai"
    LMSYS = "lmsysorg/sglang"
    GGML = "ggml-org/llama.cpp:server"
    COMMUNITY = "community"


STOCK = (Family.NGC, Family.VLLM_OPENAI)
"""Builds of vLLM without flags of their own."""
