"""Which models a launch mounts into the container, and their paths there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from sparktop.cmdline import engine_argv as flags
from sparktop.dataclass import dataclass
from sparktop.model.recipe import Recipe
from sparktop.recipe import gguf
from sparktop.recipe.container_spec import CannotRender, Mount, NodeContext
from sparktop.recipe.models import is_path, is_repo

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?")


_DRAFT_FLAGS = ("speculative-draft-model-path", "speculative-config", "speculative-model", "lora-modules", "lora-paths",
           "tokenizer", "tokenizer-path")  # fmt: skip
"""Flags that may name another model on the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlace:
    """Where the engine finds the model on one node."""

    ROOT_CACHE: ClassVar[str] = "/root/.cache/huggingface"
    OTHER_CACHE: ClassVar[str] = "/cache/huggingface"

    named: str
    """The model as the engine's argv names it."""
    encoder: str = ""
    """Its image encoder's file, as the argv names it."""
    is_file: bool = False
    """It is named by its one file in the cache."""
    folder: str = ""
    """The model's folder on the node, where it is outside the cache."""
    target: str = ""
    """Where that is mounted; empty: as `named`."""
    is_inside: bool = False
    """It is in the container already."""

    @property
    def is_hub(self) -> bool:
        """Whether the argv names it as the hub does."""
        return not self.folder and not self.is_inside and not self.is_file

    def mounts(
        self, node: NodeContext, cache: str, argv: Sequence[str], *, more: Sequence[str] = ()
    ) -> tuple[Mount, ...]:
        """The bind mounts of the model, the cache and further models.

        Args:
            more: further models that the engine loads.
        """
        target = self.target or self.named
        mounts = [Mount(source=self.folder, target=target, is_read_only=True)] if self.folder else []
        needs_cache = any(map(is_repo, more)) or any(flags.has(argv, name) for name in _DRAFT_FLAGS)
        if node.cache and (self.is_hub or self.is_file or needs_cache):
            mounts.append(Mount(source=_mountable_path(node.cache), target=cache))
        return (*mounts, *more_mounts(more, node))


def cache_target(user: str, own: str) -> str:
    """Where the cache is mounted: the recipe's HF_HOME, root's home, or a path that needs no home."""
    if own.startswith("/"):
        return own
    return ModelPlace.ROOT_CACHE if user.partition(":")[0] in ("", "0", "root") else ModelPlace.OTHER_CACHE


def model_place(model: str, node: NodeContext, cache: str) -> ModelPlace:
    """How an engine on this node finds the model.

    Args:
        cache: where the hub's cache is mounted.

    Raises:
        CannotRender: its name is neither a repository's nor a path.
    """
    folder = node.model_path
    if model.startswith(("/", "~")):
        folder = folder or re.sub(r"\A~(?=/)", node.home, model)
        if not folder.startswith("/") or not posixpath.normpath(folder).strip("/"):
            raise CannotRender(f"{model[:80]!r} is not the absolute path of a folder", key="model")
    elif not _REPOSITORY.fullmatch(model):
        raise CannotRender(f"{model[:80]!r} is neither a hub repository (ORG/NAME) nor a path", key="model")
    is_cached = node.cache and posixpath.normpath(folder).startswith(posixpath.normpath(node.cache).rstrip("/") + "/")
    if node.model_file and not model.startswith(("/", "~")):
        return _file_place(node, cache)
    if not folder or (is_cached and not model.startswith(("/", "~"))):
        return ModelPlace(named=model)
    folder = _mountable_path(folder).rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", posixpath.basename(model.rstrip("/"))).strip("-.") or "model"
    if folder.lower().endswith(gguf.ENDING):  # with its other parts
        folder, name = posixpath.split(folder)
        return ModelPlace(named=f"/models/{name}", folder=folder, target="/models")
    return ModelPlace(named=f"/models/{name}", folder=folder)


def _file_place(node: NodeContext, cache: str) -> ModelPlace:
    """One file of a model in the hub's cache; of a cache that HF_HOME doesn't hold, the model's folder is mounted."""
    outside, inside, folder = node.cache.rstrip("/"), cache, ""
    if not outside or not node.model_file.startswith(f"{outside}/"):
        outside = folder = _mountable_path(node.model_file.partition("/snapshots/")[0])
        inside = f"/models/{posixpath.basename(folder)}"
    named, encoder = (inside + path[len(outside) :] if path else "" for path in (node.model_file, node.encoder_file))
    return ModelPlace(named=named, encoder=encoder, is_file=not folder, folder=folder, target=inside)


def _mountable_path(text: str) -> str:
    """The path, refused where Docker can't mount it."""
    if ":" in text or not text.startswith("/") or re.search(r"[\x00-\x1f\x7f]", text):
        raise CannotRender(f"Docker can't mount {text[:80]!r}: the path has a colon or a control character")
    return text


def is_inside(recipe: Recipe, model: str) -> bool:
    """Whether this model is the one that the recipe's container has inside."""
    return recipe.has_model_inside and model == recipe.model


def own_cache(recipe: Recipe) -> str:
    """The folder on the nodes that the recipe itself mounts as the hub's cache; empty: it mounts none."""
    user = str(recipe.options.get("user") or "")
    target = cache_target(user, recipe.environment.get("HF_HOME", ""))
    volumes = recipe.options.get("volumes")
    for volume in volumes if isinstance(volumes, list | tuple) else ():
        source, _, rest = str(volume).partition(":")
        inside = rest.partition(":")[0].rstrip("/")
        if not source.startswith(("/", "~/")):
            continue
        if inside == f"{target}/hub" and source.rstrip("/").endswith("/hub"):
            return source.rstrip("/").removesuffix("/hub")
        if inside and (target == inside or target.startswith(f"{inside}/")):
            return source.rstrip("/") + target.removeprefix(inside)
    return ""


def expand_home(values_by_key: Mapping[str, str], more: Sequence[str], node: NodeContext) -> dict[str, str]:
    """The values, with `~/` of further models expanded to the node's home: no shell will do it."""
    names = {name for name in more if name.startswith("~/")} if node.home else frozenset[str]()
    return {key: node.home.rstrip("/") + value[1:] if value in names else value for key, value in values_by_key.items()}


def more_mounts(more: Sequence[str], node: NodeContext) -> tuple[Mount, ...]:
    """Mounts for further models given by path: each at the same path in the container."""
    mounts = []
    for name in more:
        if is_path(name):
            path = expand_home({"": name}, more, node)[""].rstrip("/")
            if not path.startswith("/") or ":" in path:
                raise CannotRender(f"Docker can't mount {name[:80]!r}: the path must be absolute and have no colon")
            mounts.append(Mount(source=path, target=path, is_read_only=True))
    return tuple(mounts)
