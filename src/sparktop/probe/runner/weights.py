"""Readers of a model's small files, each within a bound: configs, indexes, headers of safetensors."""

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
    """A regular file's bytes; None where it can't be read or is longer than `limit`."""
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
    """Sort key of the order in which engines look for weights: "model...", others, Mistral's "consolidated..."."""
    return (0 if name.startswith("model") else 2 if name.startswith("consolidated") else 1, name)


def index_of(path: str) -> tuple[list[str], int | None]:
    """(shards that an index names, its total_size). It may list 20 MB of tensors' names, so it is read in pieces."""
    shards: dict[str, None] = {}
    total = None
    rest = b""
    try:
        with open(path, "rb") as file:
            left = INDEX_BYTES
            while left > 0 and (piece := file.read(1 << 20)):
                left -= len(piece)
                text = rest + piece
                for shard in _SHARD.finditer(text):
                    shards[shard.group(1).decode("utf-8", "replace")] = None
                if total is None and (match := _TOTAL.search(text)) and match.end() < len(text):
                    total = int(match.group(1))
                rest = text[-512:]
    except OSError:
        return [], None
    inside = [shard for shard in shards if not shard.startswith("/") and ".." not in shard.split("/")]
    return sorted(inside), total


def header_of(path: str) -> tuple[dict[str, int] | None, int]:
    """({dtype: bytes of its tensors}, size that the file must have) by its safetensors header, (None, 0) without one.

    The header is eight bytes of length, little-endian, then JSON.
    """
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
    """A config with long lists and texts cut: quantisation may name every layer."""
    if isinstance(value, dict):
        return {str(key)[:200]: shortened(one, depth - 1) for key, one in list(value.items())[:300]} if depth else {}
    if isinstance(value, list):
        return [shortened(one, depth - 1) for one in value[:512]] if depth else []
    return value[:500] if isinstance(value, str) else value
