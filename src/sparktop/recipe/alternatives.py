"""What lies on the nodes' disks already that would do instead of a download: the same model, in whatever quantisation.

Names are compared, as nothing else tells what a model is made of: without organisation, case and what names a
quantisation or a build; its version, size and date stay. The quantisation that worked lay on both disks for 27 days
(field report on MiniMax M2.7, facts/engines.md OPS-15). Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from sparktop.model.prospect import OnDisk
from sparktop.model.recipe import Order
from sparktop.recipe.parameters import get

_QUANTISATION = re.compile(
    r"fp8|fp4|nvfp4(a\d+)?|mxfp4|mxfp8|mx|awq|gptq|gguf|exl[23]|bnb|autoround|marlin|bf16|fp16|f16|f32|fp32|int[48]|[24568]bit"
    r"|(quantized\.)?w\d+a\d+|g\d+|a?sym|mixed|i?q\d(_\w+)?|ud|k|m|s|xl|e4m3|block|dynamic|static|quantized|quant|qat|hf|ct|compressed|tensors|modelopt"
    r"|torchao|llmcompressor"
)
"""A part of a name that says how it was quantised."""
_BUILD = re.compile(r"gb10|spark|dgx|sm12[01]a?|blackwell|ac")
"""A part that says for what it was built."""
_TUNING = re.compile(
    r"instruct|it|chat|base|thinking|reasoning|abliterated|uncensored|heretic|finetuned?|sft|dpo|tuned|\d{4,8}"
)
_DRAFT = re.compile(
    r"eagle\d*|draft|dflash|mtp|speculator|speculators|medusa|lora|adapter|mmproj|embedding|reranker|vae"
)
"""A part that says that it is no model to serve by itself."""


def alternatives(order: Order, on_disk: Sequence[OnDisk]) -> tuple[OnDisk, ...]:
    """Of what is on the disks, what is wanted and what would do, best first, each with a note and how to use it.

    The wanted one, then complete ones before parts, the same model before its fine-tunes, what engines read well before
    GGUF, on more nodes before fewer, smaller before larger.
    """
    wanted = get(order.values, "model") or order.recipe.model
    found: list[tuple[tuple[object, ...], OnDisk]] = []
    for model in on_disk:
        is_wanted = _is_it(model, wanted)
        kin = None if is_wanted else _kin(wanted, model.name)
        if not is_wanted and kin is None:
            continue
        is_last = (bool(kin), is_gguf(model), -len(model.nodes), model.size_bytes, model.name)
        rank = (not is_wanted, not model.is_complete, *is_last)
        note = _note(model, is_wanted=is_wanted, kin=kin or "")
        found.append((rank, replace(model, is_wanted=is_wanted, note=note)))
    return tuple(model for _, model in sorted(found, key=lambda one: one[0]))


def same(wanted: str, name: str) -> bool:
    """Whether both name the same model, in whatever quantisation."""
    return _kin(wanted, name) == ""


def is_gguf(model: OnDisk) -> bool:
    """Whether it is for llama.cpp; vLLM and SGLang hardly read it."""
    return "gguf" in (model.quantisation.lower(), _quantisation(model.name))


def use(model: OnDisk) -> str:
    """What `--set model=` takes for it: its repository where it lies in the hub's cache, else its folder."""
    return model.name if "/models--" in model.path and model.name.count("/") == 1 else model.path


def core(name: str) -> tuple[str, ...]:
    """A model's name without what doesn't say which model it is: ("minimax", "m2.7")."""
    return tuple(part for part in _parts(name) if not (_QUANTISATION.fullmatch(part) or _BUILD.fullmatch(part)))


def _parts(name: str) -> list[str]:
    """ "saricles/MiniMax-M2.7-NVFP4", "/models/MiniMax-M2.7" or "models--a--b" in its parts, lower case."""
    last = name.rstrip("/").rpartition("/")[2].rpartition("--")[2] or name
    return [part for part in re.split(r"[-_\s]+", last.lower().removesuffix(".gguf")) if part]


def _is_it(model: OnDisk, wanted: str) -> bool:
    if wanted.startswith(("/", "~", ".")):
        return model.path.rstrip("/") == wanted.rstrip("/")
    names = (model.name.lower(), model.name.lower().removeprefix("models--").replace("--", "/"))
    return wanted.lower() in names


def _kin(wanted: str, name: str) -> str | None:
    """ "" for the same model, what sets a fine-tune of it apart, None for another model."""
    mine, other = core(wanted), core(name)
    if not mine or not other or (any(_DRAFT.fullmatch(part) for part in other) and not _shares_draft(mine)):
        return None
    if mine == other:
        return ""
    extra = [part for part in (*mine, *other) if (part in mine) != (part in other)]
    common = [part for part in mine if part in other]
    if not common or common[0] != mine[0] or common[0] != other[0]:
        return None
    return " ".join(extra) if all(_TUNING.fullmatch(part) for part in extra) else None


def _shares_draft(parts: tuple[str, ...]) -> bool:
    return any(_DRAFT.fullmatch(part) for part in parts)


def _note(model: OnDisk, *, is_wanted: bool, kin: str) -> str:
    """ "the same model in NVFP4, on spark1 and spark2: --set model=/home/x/models/..."."""
    where = f"on {' and '.join(model.nodes)}" if model.nodes else ""
    what = "what the recipe names" if is_wanted else f"a relative of it ({kin})" if kin else "the same model"
    if not is_wanted and (kind := model.quantisation or _quantisation(model.name)):
        what += f" in {kind.upper()}" + (", which vLLM and SGLang hardly read" if is_gguf(model) else "")
    said = ", ".join(part for part in (what, where, "" if model.is_complete else "not complete") if part)
    if not model.is_complete:
        return f"{said}: a download goes on from there" if is_wanted else said
    return said if is_wanted else f"{said}: --set model={shlex.quote(use(model))}"


def _quantisation(name: str) -> str:
    kinds = ("nvfp4", "mxfp4", "fp8", "awq", "gptq", "gguf", "fp4", "bf16", "int4", "int8")
    return next((part for part in _parts(name) if part in kinds), "gguf" if name.lower().endswith(".gguf") else "")
