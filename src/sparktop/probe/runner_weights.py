"""The runner: what a model's own small files tell, each within a bound (the rest: `runner_models`)."""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INDEX_BYTES = 64 << 20
HEADER_BYTES = 8 << 20
_SHARD = re.compile(rb'"([^"\\]{1,200}\.safetensors)"')
_TOTAL = re.compile(rb'"total_size"\s*:\s*(\d{1,18})(?![\d.eE])')


def text_of_file(path: str, limit: int) -> bytes | None:
    """A regular file's bytes; None where there is none, it can't be read, or is longer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        data = b""
        while len(data) <= limit and (piece := os.read(file, limit + 1 - len(data))):
            data += piece
        return data if len(data) <= limit else None
    except OSError:
        return None
    finally:
        os.close(file)


def by_stem(name: str) -> tuple[int, str]:
    """What is loaded first: "model...", then anything, then Mistral's own "consolidated..."."""
    return (0 if name.startswith("model") else 2 if name.startswith("consolidated") else 1, name)


def index_of(path: str) -> tuple[list[str], int | None]:
    """The shards that an index names, and its total_size. It may have 20 MB of tensors' names: it is read in pieces,
    and never held as a whole."""
    shards: dict[str, None] = {}
    total = None
    rest = b""
    try:
        with open(path, "rb") as file:
            left = INDEX_BYTES
            while left > 0 and (piece := file.read(1 << 20)):
                left -= len(piece)
                text = rest + piece
                for found in _SHARD.finditer(text):
                    shards[found.group(1).decode("utf-8", "replace")] = None
                if total is None and (said := _TOTAL.search(text)) and said.end() < len(text):
                    total = int(said.group(1))
                rest = text[-512:]
    except OSError:
        return [], None
    named = [one for one in shards if not one.startswith("/") and ".." not in one.split("/")]
    return sorted(named), total


def header_of(path: str) -> tuple[dict[str, int] | None, int]:
    """({dtype: bytes of its tensors}, the size that the file must have) by a safetensors' header: eight bytes of its
    length, little-endian, and JSON; (None, 0) where it has none that can be read."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= HEADER_BYTES:
                return None, 0
            text = file.read(length)
        if len(text) < length:
            return None, 0
        header = json.loads(text)
        sizes: dict[str, int] = {}
        last = 0
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            begin, end = tensor["data_offsets"]
            sizes[str(tensor["dtype"])[:20]] = sizes.get(str(tensor["dtype"])[:20], 0) + max(0, int(end) - int(begin))
            last = max(last, int(end))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None, 0
    return sizes, 8 + length + last


def shortened(value: Any, depth: int = 8) -> Any:
    """A config without what is long in it: quantisation may name every layer."""
    if isinstance(value, dict):
        return {str(key)[:200]: shortened(one, depth - 1) for key, one in list(value.items())[:300]} if depth else {}
    if isinstance(value, list):
        return [shortened(one, depth - 1) for one in value[:512]] if depth else []
    return value[:500] if isinstance(value, str) else value
