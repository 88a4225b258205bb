"""Images and containers on the nodes, as their Docker Engines report them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.checks.judgement import Judgement
from sparktop.checks.parity import ImageFacts, judge_image_parity
from sparktop.cmdline.engine_command import kind_of_image
from sparktop.dataclass import dataclass
from sparktop.engines import labels
from sparktop.model.engine import LAUNCHED
from sparktop.model.recipe import Order
from sparktop.model.survey import DockerGet, Survey
from sparktop.operate.container.inspected import image_path
from sparktop.recipe.parameters import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image on one node."""

    node: str
    image_id: str
    size_bytes: int | None
    created: str
    digests: frozenset[str]
    """Registry digests; empty for an image that was built or imported on the node."""
    content: tuple[object, ...]
    """Layers and settings, for comparison."""
    architecture: str
    labels: Mapping[str, str]

    @property
    def short_id(self) -> str:
        return self.image_id.removeprefix("sha256:")[:12]


def image_ask(node: str, image: str) -> DockerGet | None:
    """Asks for the image; None where the text is no image name."""
    path = image_path(image)
    return DockerGet(node=node, path=path) if path is not None else None


def is_local_only(image: str) -> bool:
    """Whether no registry has it: a name without a slash is built locally, as Docker Hub's official images are no
    engines."""
    return "/" not in image or image.startswith(("localhost/", "sha256:"))


def image_on(survey: Survey, node: str, image: str) -> Image | None:
    """The image on the node; None where it is missing or not known (see `knows_image`)."""
    ask = image_ask(node, image)
    raw = survey.value(ask) if ask is not None else None
    if not isinstance(raw, Mapping) or not isinstance(raw.get("Id"), str):
        return None
    size, config, root = raw.get("Size"), _part(raw, "Config"), _part(raw, "RootFS")
    labels = _part(config, "Labels")
    digests = raw.get("RepoDigests")
    settings = [config.get(name) for name in ("Env", "Cmd", "Entrypoint", "WorkingDir", "User")]
    return Image(
        node=node,
        image_id=raw["Id"],
        size_bytes=size if isinstance(size, int) else None,
        created=str(raw.get("Created") or ""),
        digests=frozenset(str(digest).rpartition("@")[2] for digest in digests)
        if isinstance(digests, list)
        else frozenset(),
        content=(str(root.get("Layers")), str(settings)) if root.get("Layers") else (),
        architecture=str(raw.get("Architecture") or ""),
        labels={str(name): str(value) for name, value in labels.items()},
    )


def with_pulled_image(order: Order, nodes: Sequence[str], survey: Survey) -> Order:
    """The order with the image that is pulled instead of a local name that no node has; unchanged where one has it."""
    recipe, image = order.recipe, resolve(order).image
    if not recipe.pulls or image != recipe.container:
        return order
    if not all(knows_image(survey, node, image) and image_on(survey, node, image) is None for node in nodes):
        return order
    risk = f"No node has the recipe's image {image}: sparktop pulls {recipe.pulls}, as its own tools do."
    return replace(order, recipe=replace(recipe, container=recipe.pulls, pulls="", risks=(*recipe.risks, risk)))


def images_ask(node: str) -> DockerGet:
    """Asks for the images of the node, by name."""
    return DockerGet(node=node, path="/images/json")


def serving_images(survey: Survey, node: str) -> Mapping[str, float] | None:
    """When each image of an engine was made (seconds since the epoch, 0: not told), by name; None: not listed."""
    listed = survey.value(images_ask(node))
    if not isinstance(listed, list):
        return None
    made: dict[str, float] = {}
    for row in listed:
        names, stamp = (row.get("RepoTags"), row.get("Created")) if isinstance(row, Mapping) else (None, None)
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str) and image_path(name) is not None and kind_of_image(name) in LAUNCHED:
                made[name] = float(stamp) if isinstance(stamp, int | float) else 0.0
    return made


def knows_image(survey: Survey, node: str, image: str) -> bool:
    """Whether Docker has answered: the image is there, or it isn't."""
    ask = image_ask(node, image)
    return ask is not None and ask in survey.answers and not survey.problem(ask)


def image_parity(first: Image, second: Image) -> Judgement:
    """Whether both are one build: the same id, a common registry digest, or the same layers and settings."""
    return judge_image_parity(
        ImageFacts(
            ids=(first.image_id, second.image_id),
            digests=(first.digests, second.digests),
            contents=(first.content, second.content),
        )
    )


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = raw.get(name)
    return section if isinstance(section, Mapping) else {}


def info_ask(node: str) -> DockerGet:
    return DockerGet(node=node, path="/info")


def list_ask(node: str) -> DockerGet:
    """Asks for every container, stopped ones included."""
    return DockerGet(node=node, path="/containers/json?all=1")


def info(survey: Survey, node: str) -> Mapping[str, Any]:
    """GET /info of the node; empty: no answer."""
    answer = survey.value(info_ask(node))
    return answer if isinstance(answer, Mapping) else {}


def rows(survey: Survey, node: str) -> tuple[Mapping[str, Any], ...] | None:
    """The node's containers as Docker lists them; None: no answer."""
    listed = survey.value(list_ask(node))
    return tuple(row for row in listed if isinstance(row, Mapping)) if isinstance(listed, list) else None


def names_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A listed container's names."""
    names = row.get("Names")
    return tuple(str(name).removeprefix("/") for name in names) if isinstance(names, list) else ()


def is_never_started(row: Mapping[str, Any]) -> bool:
    """Whether an interrupted launch created it and never started it."""
    row_labels = row.get("Labels")
    return row.get("State") == "created" and isinstance(row_labels, Mapping) and bool(row_labels.get(labels.LAUNCH))
