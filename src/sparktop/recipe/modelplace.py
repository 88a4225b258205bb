"""Where an engine finds its model in the container: by its repository in the hub's cache, or as a folder of its own."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparktop.recipe import argv as flags
from sparktop.recipe import moremodels
from sparktop.recipe.models import is_repo
from sparktop.recipe.rendered import CannotRender, Mount, Seat

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?")
_DRAFTS = ("speculative-draft-model-path", "speculative-config", "speculative-model", "lora-modules", "lora-paths",
           "tokenizer", "tokenizer-path")  # fmt: skip
"""Flags that may name another model of the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlace:
    """A model on one node."""

    ROOT_CACHE: ClassVar[str] = "/root/.cache/huggingface"
    OTHER_CACHE: ClassVar[str] = "/cache/huggingface"

    named: str
    """As the engine's argv names it."""
    folder: str = ""
    """On the node, where it is no part of the cache."""

    @property
    def is_hub(self) -> bool:
        """Whether it is named as the hub does."""
        return not self.folder

    def cache_target(self, user: str, own: str) -> str:
        """Where the cache is mounted: what the recipe's HF_HOME says, root's home, or a place that needs no home."""
        if own.startswith("/"):
            return own
        return self.ROOT_CACHE if user.partition(":")[0] in ("", "0", "root") else self.OTHER_CACHE

    def mounts(self, seat: Seat, cache: str, argv: Sequence[str], *, more: Sequence[str] = ()) -> tuple[Mount, ...]:
        """The binds it takes.

        Args:
            more: further models that are loaded beside it.
        """
        found = [Mount(source=self.folder, target=self.named, is_read_only=True)] if self.folder else []
        needs_cache = any(map(is_repo, more)) or any(flags.has(argv, name) for name in _DRAFTS)
        if seat.cache and (self.is_hub or needs_cache):
            found.append(Mount(source=_path(seat.cache), target=cache))
        return (*found, *moremodels.mounts(more, seat))


def model_place(model: str, seat: Seat) -> ModelPlace:
    """Where this model is for an engine on that node.

    Raises:
        CannotRender: its name is neither a repository's nor a path.
    """
    folder = seat.model_path
    if model.startswith(("/", "~")):
        folder = folder or re.sub(r"\A~(?=/)", seat.home, model)
        if not folder.startswith("/") or not posixpath.normpath(folder).strip("/"):
            raise CannotRender(f"model {model[:80]!r} is no path from the root to a folder")
    elif not _REPOSITORY.fullmatch(model):
        raise CannotRender(f"model {model[:80]!r} is neither a repository of the hub (ORG/NAME) nor a path")
    if not folder or (seat.cache and not model.startswith(("/", "~")) and _is_in(folder, seat.cache)):
        return ModelPlace(named=model)
    folder = _path(folder).rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", posixpath.basename(model.rstrip("/"))).strip("-.") or "model"
    return ModelPlace(named=f"/models/{name}", folder=folder)


def _is_in(path: str, folder: str) -> bool:
    return posixpath.normpath(path).startswith(posixpath.normpath(folder).rstrip("/") + "/")


def _path(text: str) -> str:
    """A path that a bind can say."""
    if ":" in text or not text.startswith("/") or re.search(r"[\x00-\x1f\x7f]", text):
        raise CannotRender(f"{text[:80]!r} can't be mounted: Docker takes no colon or control character in a path")
    return text
