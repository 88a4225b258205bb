"""The folder of compiled kernels on each node: how much is in it, and what a pair should know of it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from sparktop.model.survey import Ask, Output, Survey
from sparktop.operate.launch.inputs.gate_inputs import gb
from sparktop.recipe.container_spec import Rendered, RenderedRank
from sparktop.recipe.render.compiled import TARGET

_LEAST_KB = 1024
"""Less is folders, and nothing compiled in them."""


def folder_of(rank: RenderedRank) -> str:
    """The rank's folder on its node; empty where it keeps nothing."""
    return next((mount.source for mount in rank.container.mounts if mount.target == TARGET), "")


def asks(rendered: Rendered) -> Iterator[Ask]:
    """Asks for the folder's size."""
    yield from (_ask(rank) for rank in rendered.ranks if folder_of(rank))


def notes(rendered: Rendered, survey: Survey) -> Iterator[str]:
    """How much is kept where, and how it is cleared; on a pair, that one node has none."""
    sizes = {rank.node: _size_kb(rank, survey) for rank in rendered.ranks if folder_of(rank)}
    full = [node for node, size_kb in sizes.items() if size_kb is not None and size_kb >= _LEAST_KB]
    empty = [node for node, size_kb in sizes.items() if size_kb is not None and size_kb < _LEAST_KB]
    for rank in rendered.ranks:
        if rank.node in full:
            folder = shlex.quote(folder_of(rank))
            kept = gb((sizes[rank.node] or 0) * 1024)
            yield f"{rank.node} keeps {kept} of compiled kernels of this model; clear them with: sudo rm -r {folder}"
    if full and empty:
        yield (
            f"{' and '.join(empty)} has no compiled kernels of this model yet, {' and '.join(full)} has: one rank "
            "compiles for minutes while the other waits."
        )


def _ask(rank: RenderedRank) -> Output:
    return Output(node=rank.node, argv=("du", "-sk", "--", folder_of(rank)), limit_s=10.0)


def _size_kb(rank: RenderedRank, survey: Survey) -> int | None:
    """None: not known; 0 where the folder isn't there."""
    answer = survey.answers.get(_ask(rank))
    if answer is None:
        return None
    words = answer.value.split() if isinstance(answer.value, str) else []
    if words and words[0].isdecimal():
        return int(words[0])
    return 0 if answer.code == 1 else None
