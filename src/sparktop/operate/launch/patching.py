"""Whether a node has the image that a recipe's patches make, and the step that makes it. Pure.

A patched image has the layers of the image that it was made of, and those of the patches on top: where the base is
another one today, it is made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.model.survey import Ask, Survey
from sparktop.operate.acts.patch_image import APPLY_LIMIT_S, COMMIT_LIMIT_S, patch_image
from sparktop.operate.container import inspected
from sparktop.operate.launch.inputs.docker import image_ask
from sparktop.operate.launch.planned_rank import PlannedRank
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.recipe.container_spec import Rendered
from sparktop.recipe.patches import APPLY
from sparktop.recipe.render.compiled import TARGET
from sparktop.recipe.render.host_config import body


def asks(rendered: Rendered) -> Iterator[Ask]:
    """Asks for the patched image, and for the one it is made of."""
    if rendered.patched is not None:
        for rank in rendered.ranks:
            for name in (rendered.patched.name, rendered.patched.base):
                yield from filter(None, (image_ask(rank.node, name),))


def steps(rendered: Rendered, ranks: Sequence[PlannedRank], survey: Survey) -> Iterator[Step]:
    """A step for each node that doesn't have the patched image of the base that it has."""
    patched = rendered.patched
    if patched is None:
        return
    for rank in ranks:
        if is_patched(rendered, rank.node, survey):
            continue
        # As the engine's container, without its variables: an image keeps them, and secrets are among them.
        container = rank.rendered.container
        mounts = tuple(mount for mount in container.mounts if mount.target != TARGET)  # not there yet
        spec = replace(container, image=patched.base, argv=("sh", APPLY), environment={}, labels={}, mounts=mounts)
        request = body(spec)
        host = {key: value for key, value in request["HostConfig"].items() if key != "PortBindings"}
        request |= {"HostConfig": {**host, "RestartPolicy": {"Name": "no"}}}
        request.pop("ExposedPorts", None)
        yield Step(
            id=f"patch{rank.mark}",
            title=f"Apply {', '.join(patch.name for patch in patched.patches)} to {patched.base} on {rank.node}",
            node=rank.node,
            act=patch_image(patched, request),
            limit_s=APPLY_LIMIT_S + COMMIT_LIMIT_S,
            verifies=f"each exits with 0; kept as {patched.name}",
            on_failure=OnFailure.ROLL_BACK,
        )


def is_patched(rendered: Rendered, node: str, survey: Survey) -> bool:
    """Whether the node has the patched image, made of the base that it has now."""
    patched = rendered.patched
    if patched is None:
        return True
    base, made = (_layers(inspected.image(node, name, survey)) for name in (patched.base, patched.name))
    return bool(base) and made[: len(base)] == base


def _layers(image: Mapping[str, Any] | None) -> list[object]:
    root = (image or {}).get("RootFS")
    layers = root.get("Layers") if isinstance(root, Mapping) else None
    return layers if isinstance(layers, list) else []
