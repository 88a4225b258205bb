"""What an image's name and a model's name tell: whose build, which version, which quantisation. Guesses are None-able.

Facts: facts/engines.md sections 4.1 (tag map), 1E (C7), 5.
"""

from __future__ import annotations

import re

from sparktop.diagnose.enginecommand import kind_of_image, version_of_image
from sparktop.diagnose.lint.spec import Family, LaunchSpec
from sparktop.model.engine import EngineKind

NGC_VLLM = {"25.11": "0.11.0", "26.03": "0.19.0", "26.04": "0.19.0", "26.05": "0.21.0"}
"""vLLM's version in NVIDIA's images, by tag; other tags are not known."""

_MOE = re.compile(
    r"-a\d+(?:\.\d+)?b|moe|mixtral|gpt-oss|minimax-m\d|deepseek-(?:v[2-9]|r1)|glm-(?:4\.[5-9]|5)|kimi-k|mistral-small-4"
    r"|nemotron-?3|llama-4|qwen3-(?:next|coder-480)|\d+x\d+b"
)
_FP8 = re.compile(r"(?:^|[-_./])fp8(?:$|[-_./])")


def family_of(image: str) -> Family | None:
    """Whose build an image is; None where its name names no engine."""
    name = image.lower()
    if name.startswith("nvcr.io/nvidia/"):
        return Family.NGC
    if re.match(r"(?:docker\.io/)?vllm/vllm-openai(?:[:@]|$)", name):
        return Family.VLLM_OPENAI
    if re.match(r"(?:docker\.io/)?lmsysorg/sglang(?:[:@]|$)", name):
        return Family.LMSYS
    return Family.COMMUNITY if kind_of_image(name) else None


def version_of(image: str, engine: EngineKind | None) -> str | None:
    """The engine's version where the image's tag tells it."""
    if engine is EngineKind.VLLM and (match := re.search(r"nvcr\.io/nvidia/vllm:(\d\d\.\d\d)", image)):
        return NGC_VLLM.get(match[1])
    return version_of_image(image)


def tag_of(image: str) -> str | None:
    """The tag; "latest" where none is given, None where a digest or a variable stands there."""
    if "@" in image or "$" in image:
        return None
    return image.rpartition("/")[2].partition(":")[2] or "latest"


def numbers_of(version: str) -> tuple[int, ...]:
    """A version's first three numbers, to compare by; 0 for those it leaves out."""
    found = [int(part[:9]) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]
    return tuple([*found, 0, 0, 0][:3])


def at_least(spec: LaunchSpec, version: str) -> bool | None:
    """Whether the engine is that version or a later one; None where its version isn't known."""
    return None if spec.version is None else numbers_of(spec.version) >= numbers_of(version)


def is_at_most(spec: LaunchSpec, version: str) -> bool | None:
    """Whether the engine is that version or an earlier one, patches of it included; None where it isn't known."""
    if spec.version is None:
        return None
    wanted = numbers_of(version)
    length = max(2, version.count(".") + 1)
    return numbers_of(spec.version)[:length] <= wanted[:length]


def model_name(spec: LaunchSpec) -> str:
    """The model's name in lower case: of a path its last part, of a cached snapshot the model's; empty: not known."""
    name = spec.model_name.lower()
    if "$" in name:
        return ""
    if cached := re.search(r"models--([\w.-]+)", name):
        return cached[1].replace("--", "/")
    return name.rstrip("/").rpartition("/")[2] if name.startswith(("/", "~", ".")) else name


def is_gpt_oss(spec: LaunchSpec) -> bool:
    """Whether the model is one of gpt-oss, which ship in MXFP4."""
    return "gpt-oss" in model_name(spec) or "gpt_oss" in model_name(spec)


def is_moe(spec: LaunchSpec) -> bool | None:
    """True for models known to be mixtures of experts; None where the name doesn't tell."""
    return True if _MOE.search(model_name(spec)) else None


def quantisation(spec: LaunchSpec) -> str | None:
    """nvfp4, mxfp4 or fp8, by the flag or the model's name; None where neither tells."""
    flag, name = spec.value("quantization"), model_name(spec)
    if "mxfp4" in flag or (not flag and ("mxfp4" in name or is_gpt_oss(spec))):
        return "mxfp4"
    if "fp4" in flag or (not flag and "nvfp4" in name):
        return "nvfp4"
    if "nvfp4" in name and flag in ("compressed-tensors", "modelopt"):
        return "nvfp4"
    return "fp8" if flag == "fp8" or (not flag and _FP8.search(name)) else None
