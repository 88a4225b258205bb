"""Whether a node has the image that a recipe's patches make, and the step that makes it. Pure.

A patched image has the layers of the image that it was made of, and those of the patches on top: where the base is
another one today, it is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparktop.model.survey import Survey
from sparktop.operate.acts.patch_image import APPLY_LIMIT_S, COMMIT_LIMIT_S, patch_image
from sparktop.operate.container import inspected
from sparktop.operate.plan.common_steps import step_id
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.recipe.container_spec import Rendered, RenderedRank
from sparktop.recipe.patches import APPLY
from sparktop.recipe.render.compiled import TARGET
from sparktop.recipe.render.host_config import body


def step(rank: RenderedRank, rendered: Rendered, survey: Survey) -> Step | None:
    """What makes the patched image of the base that the rank's node has; None where it is there, or nothing is
    patched."""
    patched = rendered.patched
    if patched is None or is_patched(rendered, rank.node, survey):
        return None
    # As the engine's container, without its variables: an image keeps them, and secrets are among them.
    mounts = tuple(mount for mount in rank.container.mounts if mount.target != TARGET)  # not there yet
    spec = replace(rank.container, image=patched.base, argv=("sh", APPLY), environment={}, labels={}, mounts=mounts)
    request = body(spec)
    host = {key: value for key, value in request["HostConfig"].items() if key != "PortBindings"}
    request |= {"HostConfig": host}
    request.pop("ExposedPorts", None)
    return Step(
        id=step_id("patch", rank.node, [other.node for other in rendered.ranks]),
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
