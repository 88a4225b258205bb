"""Compiled kernels, kept on the node by image and model: else each start compiles them anew.

On a pair a start that compiles longer on one node ends in NCCL's time-out on the other. All of these caches check by
themselves whether an entry fits (docs/facts/engines.md section 5.1); the folder's name only keeps them apart.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from hashlib import blake2s

from sparktop.model.engine import EngineKind
from sparktop.recipe.container_spec import Mount, NodeContext, RenderedRank

TARGET = "/cache/compiled"
_HOST_FOLDER = ".cache/sparktop/compiled"
_EVERY_ENGINE = {
    "TRITON_CACHE_DIR": ("triton", "/root/.triton"),
    "TORCHINDUCTOR_CACHE_DIR": ("inductor", "/tmp/torchinductor_root"),  # noqa: S108 (in the container)
    "FLASHINFER_WORKSPACE_BASE": ("", "/root/.cache/flashinfer"),
    "CUTE_DSL_CACHE_DIR": ("cute_dsl", "/tmp/root/cutlass_python_cache"),  # noqa: S108
    "TILELANG_CACHE_DIR": ("tilelang", "/root/.tilelang"),
}
"""Variable -> (folder below TARGET, the place without it). FlashInfer adds .cache/flashinfer by itself."""


def compiled_mount(node: NodeContext, user: str, *, image: str, model: str) -> Mount | None:
    """The mount of the node's folder; None where its owner couldn't write there, or the home isn't known."""
    if not node.home.startswith("/") or ":" in node.home or user.partition(":")[0] not in ("", "0", "root"):
        return None
    names = (_plain(image.rpartition("/")[2]), _plain(model.strip("/").rpartition("/")[2]))
    key = blake2s(repr((image, model)).encode(), digest_size=4).hexdigest()
    return Mount(source=posixpath.join(node.home, _HOST_FOLDER, names[0], f"{names[1]}-{key}"), target=TARGET)


def compiled_variables(engine: EngineKind, mounted: Collection[str]) -> Mapping[str, str]:
    """The variables that lead there; none whose usual place the recipe mounts itself (`mounted`)."""
    places = {**_EVERY_ENGINE, **engine.traits.caches}
    return {
        name: posixpath.join(TARGET, folder).rstrip("/")
        for name, (folder, usual) in places.items()
        if not any(posixpath.commonpath((usual, target)) == target for target in mounted if target.startswith("/"))
    }


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:60] or "any"


def folder_of(rank: RenderedRank) -> str:
    """The rank's folder on its node; empty where it keeps nothing."""
    return next((mount.source for mount in rank.container.mounts if mount.target == TARGET), "")
