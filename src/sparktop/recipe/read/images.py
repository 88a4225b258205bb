"""Local image names: the image that their own tools pull under such a name, or the command that builds it.

spark-vllm-docker's build-and-copy.sh pulls a prebuilt image and tags it, unless an argument asks for a build;
sparkrun's eugr builder does the same with its nightly (docs/facts/engines.md section 5.1). Both first take what is
there by that name.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.recipe.problems import shown
from sparktop.recipe.read.fields import Fields

_B12X = "eugr/spark-vllm-b12x:latest"
PREBUILT = {
    "vllm-node": "eugr/spark-vllm:latest",
    "vllm-node-tf5": "eugr/spark-vllm:latest",
    "vllm-node-b12x": _B12X,
    "sparkrun-eugr-vllm": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest",
    "sparkrun-eugr-vllm-tf5": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest",
    "sparkrun-eugr-vllm-b12x": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly-b12x:latest",
}
_B12X_ARGS = frozenset(("--exp-b12x", "--experimental-b12x"))
_NO_BUILD_ARGS = _B12X_ARGS | {"--tf5", "--pre-tf", "--pre-transformers"}
"""With these the script still pulls: the first choose which image, the others have no effect any more."""
_VARIANTS = {"vllm-node-mxfp4": "--exp-mxfp4"}
"""Names that the script gives with an argument that recipes may leave out."""


def prebuilt_image(fields: Fields, container: str, build_args: Sequence[str]) -> str:
    """What is pulled where no node has the image; empty where its own name is pulled, or nothing can be."""
    named = fields.word("pull_image")
    name = container.removesuffix(":latest")
    if set(build_args) - _NO_BUILD_ARGS or not (named or name in PREBUILT):
        return ""
    pulled = named or (_B12X if set(build_args) & _B12X_ARGS else PREBUILT[name])
    if pulled == container:
        return ""
    if not named:
        note = f"`{shown(container)}` is a local name: where no node has it, sparktop pulls {pulled}"
        fields.note("container", note, "as spark-vllm-docker and sparkrun do")
    return pulled


def build_instructions(fields: Fields, container: str, build_args: Sequence[str]) -> str:
    """How to build an image that can't be pulled; empty where it can be.

    Its launcher builds it only where it is missing: with the image on the nodes, the recipe works.
    """
    if "/" in container and not set(build_args) - _NO_BUILD_ARGS:
        return ""
    args = build_args or filter(None, (_VARIANTS.get(container.removesuffix(":latest")),))
    build_command = f"./build-and-copy.sh -t {container} {' '.join(args)}".strip()
    text = f"`{shown(container)}` must already be on every node: sparktop builds no image"
    fields.note("build_args" if build_args else "container", text, f"build it: {shown(build_command, 160)}")
    instructions = f"run {shown(build_command, 160)} in spark-vllm-docker, for every node"
    return f"The image {shown(container)} can't be pulled: {instructions}."
