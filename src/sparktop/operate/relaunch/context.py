"""Whether a relaunch asks for a longer context than its model was made for, as a launch's gate judges it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.checks.machine import judge_context
from sparktop.cmdline.engine_flags import canonical
from sparktop.model.survey import ModelsOnDisk, Survey
from sparktop.operate.relaunch.rank_change import RankChange
from sparktop.recipe.models import node_models_of
from sparktop.recipe.weigh.settings import whole
from sparktop.sanitise import items, mapping

_CONTEXT = ("max-model-len", "context-length")


def asks(rank_change: RankChange) -> Iterator[ModelsOnDisk]:
    """The models on the node, where the change sets the context."""
    if _tokens(rank_change) is not None:
        yield _ask(rank_change)


def warnings(rank_change: RankChange, survey: Survey) -> Iterator[str]:
    """The warning, where it is longer; what can't be told is left to the engine."""
    tokens = _tokens(rank_change)
    if tokens is None:
        return
    ask = _ask(rank_change)
    models = node_models_of(ask.node, survey.value(ask))
    copy = models.find(*ask.roots or (rank_change.rank.engine.model or "",)) if models is not None else None
    longest = copy.facts.longest_tokens if copy is not None else None
    if judge_context((tokens, longest)).is_problem:
        yield (
            f"{tokens:,} tokens are more than the {longest:,} that the model was made for (its "
            "max_position_embeddings): the engine will probably refuse to start."
        )


def _tokens(rank_change: RankChange) -> int | None:
    flags = rank_change.change.flags.items()
    texts = [value for name, value in flags if value and canonical(name) in _CONTEXT]
    return whole(texts[-1]) if texts else None


def _ask(rank_change: RankChange) -> ModelsOnDisk:
    """With the model's folder on the node, where the engine is given a path."""
    path = rank_change.rank.engine.model or ""
    if not path.startswith("/"):
        return ModelsOnDisk(node=rank_change.rank.node)
    for mount in map(mapping, items(rank_change.raw.get("Mounts"))):
        inside = str(mount.get("Destination") or "").rstrip("/")
        if inside and f"{path}/".startswith(f"{inside}/"):
            path = f"{str(mount.get('Source') or '').rstrip('/')}{path[len(inside) :]}"
            break
    return ModelsOnDisk(node=rank_change.rank.node, roots=(path,))
