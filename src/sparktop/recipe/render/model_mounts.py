"""Which models a launch mounts into the container, and their paths there."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from sparktop.cmdline import engine_argv as flags
from sparktop.dataclass import dataclass
from sparktop.model.recipe import Order, Recipe
from sparktop.recipe import template
from sparktop.recipe.container_spec import CannotRender, Mount, NodeContext
from sparktop.recipe.models import is_path, is_repo
from sparktop.recipe.parameters import OWN, main_name, resolve

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
    folder: str = ""
    """The model's folder on the node, where it is outside the cache."""
    is_inside: bool = False
    """It is in the container already."""

    @property
    def is_hub(self) -> bool:
        """Whether the argv names it as the hub does."""
        return not self.folder and not self.is_inside

    def cache_target(self, user: str, own: str) -> str:
        """Where the cache is mounted: the recipe's HF_HOME, root's home, or a path that needs no home."""
        if own.startswith("/"):
            return own
        return self.ROOT_CACHE if user.partition(":")[0] in ("", "0", "root") else self.OTHER_CACHE

    def mounts(
        self, node: NodeContext, cache: str, argv: Sequence[str], *, more: Sequence[str] = ()
    ) -> tuple[Mount, ...]:
        """The bind mounts of the model, the cache and further models.

        Args:
            more: further models that the engine loads.
        """
        mounts = [Mount(source=self.folder, target=self.named, is_read_only=True)] if self.folder else []
        needs_cache = any(map(is_repo, more)) or any(flags.has(argv, name) for name in _DRAFT_FLAGS)
        if node.cache and (self.is_hub or needs_cache):
            mounts.append(Mount(source=_mountable_path(node.cache), target=cache))
        return (*mounts, *more_mounts(more, node))


def model_place(model: str, node: NodeContext) -> ModelPlace:
    """How an engine on this node finds the model.

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
    if not folder or (is_cached and not model.startswith(("/", "~"))):
        return ModelPlace(named=model)
    folder = _mountable_path(folder).rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", posixpath.basename(model.rstrip("/"))).strip("-.") or "model"
    return ModelPlace(named=f"/models/{name}", folder=folder)


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
    target = ModelPlace(named="").cache_target(user, recipe.environment.get("HF_HOME", ""))
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


_DRAFT_PARAMETERS = frozenset({
    "speculative_draft_model_path", "speculative_draft_model", "speculative_model", "speculative_config",
})  # fmt: skip
"""Parameters whose value names a model, whatever else the recipe names."""


def more_models(order: Order) -> tuple[str, ...]:
    """The launch's further models, each once: repositories, or paths on the nodes."""
    recipe = order.recipe
    launch_values, as_written = resolve(order), resolve(replace(order, values={}))
    if launch_values.problem or as_written.problem:  # rendering reports it
        return recipe.more_models
    recipe_values, final_values = as_written.by_name, launch_values.by_name
    replaced, added = _model_changes(order, recipe_values, final_values)
    models: list[str] = []
    for listed in recipe.more_models:
        name = _fill(listed, recipe_values)
        models += replaced.get(name, (name,))
    return tuple(name for name in dict.fromkeys((*models, *added)) if name and name != final_values.get("model"))


def parameter_of(order: Order, model: str) -> str:
    """The parameter that sets this further model, so that another can be chosen; empty: none does."""
    values = resolve(order).by_name
    return next((name for name, value in values.items() if main_name(name) not in OWN and value == model), "")


def _model_changes(
    order: Order, recipe_values: Mapping[str, str], final_values: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """(model named by the recipe -> its replacements, models named in addition)."""
    recipe = order.recipe
    replaced: dict[str, tuple[str, ...]] = {}
    added: list[str] = []
    used_parameters = template.used(recipe.command, recipe_values)
    for name, value in final_values.items():
        if main_name(name) in OWN:
            continue
        recipe_value = recipe_values.get(name)
        is_draft = main_name(name) in _DRAFT_PARAMETERS
        if recipe_value == value:
            if is_draft and (name in used_parameters or not recipe.command.strip()):
                added += _model_named_by(value)
            continue
        if recipe_value is not None:
            replaced |= dict.fromkeys(_model_named_by(recipe_value), _model_named_by(value))
        elif is_draft:  # it becomes a flag, in the place of the command's own
            listed = (_fill(repository, recipe_values) for repository in recipe.more_models)
            replaced |= {repository: () for repository in listed if repository in recipe.command}
        if is_draft:
            added += _model_named_by(value)
    return replaced, added


def _model_named_by(value: str) -> tuple[str, ...]:
    """The model that a value names: the value itself, or "model" of its JSON."""
    if value.lstrip().startswith("{"):
        try:
            config = json.loads(value)
        except (ValueError, RecursionError):
            return ()
        value = str(config.get("model") or "") if isinstance(config, dict) else ""
    return (value,) if is_path(value) or (is_repo(value) and "/" in value) else ()


def _fill(text: str, final_values: Mapping[str, str]) -> str:
    try:
        return template.fill(text, final_values).strip()
    except CannotRender:
        return text.strip()


# --- in the container


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
