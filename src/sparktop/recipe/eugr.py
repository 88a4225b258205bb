"""Version 1, spark-vllm-docker's: what it says otherwise than version 2.

Facts: facts/engines.md section 5.1.
"""

from __future__ import annotations

from sparktop.recipe.fields import Fields
from sparktop.recipe.problems import ProblemKind, shown


def nodes_of(fields: Fields, least: int | None, most: int | None) -> tuple[int | None, int | None]:
    """`solo_only` and `cluster_only`, which version 2 has too and advises against, laid over the node range."""
    solo, cluster = fields.flag("solo_only"), fields.flag("cluster_only")
    if solo and cluster:
        fields.add("cluster_only", "`solo_only` says the opposite", remedy="keep one of them")
    if cluster:
        least = max(least or 1, 2)
    if solo:
        most = 1
    return least, most


def image_note(fields: Fields, container: str, build_args: tuple[str, ...]) -> str:
    """What to say of an image that its launcher builds; empty where it is one to be pulled.

    The launcher builds it only where it isn't there: with the image on the nodes, the recipe is whole.
    """
    is_local = "/" not in container
    if not is_local and not build_args:
        return ""
    how = f"./build-and-copy.sh -t {container} {' '.join(build_args)}".strip()
    text = f"`{shown(container)}` has to be on every node already: sparktop builds no image"
    fields.add(
        "build_args" if build_args else "container", text, kind=ProblemKind.NOTE, remedy=f"build it: {shown(how, 160)}"
    )
    told = f"{shown(how, 160)} in spark-vllm-docker, for every node alike"
    return f"The image {shown(container)} is built, not pulled: {told}."
