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
from sparktop.model.survey import DockerGet, Survey
from sparktop.operate.container.inspected import image_path, is_whole_id
from sparktop.recipe.parameters import LaunchValues, resolve
from sparktop.sanitise import items, mapping


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


def image_question(node: str, image: str) -> DockerGet | None:
    """Asks for the image; None where the text is no image name."""
    path = image_path(image)
    return DockerGet(node=node, path=path) if path is not None else None


def is_local_only(image: str) -> bool:
    """Whether no registry has it: a name without a slash is built locally, as Docker Hub's official images are no
    engines."""
    return "/" not in image or image.startswith(("localhost/", "sha256:"))


def image_on(survey: Survey, node: str, image: str) -> Image | None:
    """The image on the node; None where it is missing or not known (see `knows_image`)."""
    question = image_question(node, image)
    raw = survey.value(question) if question is not None else None
    if not isinstance(raw, Mapping) or not isinstance(raw.get("Id"), str):
        return None
    size, config, root = raw.get("Size"), mapping(raw.get("Config")), mapping(raw.get("RootFS"))
    settings = [config.get(name) for name in ("Env", "Cmd", "Entrypoint", "WorkingDir", "User")]
    return Image(
        node=node,
        image_id=raw["Id"],
        size_bytes=size if isinstance(size, int) else None,
        created=str(raw.get("Created") or ""),
        digests=frozenset(str(digest).rpartition("@")[2] for digest in items(raw.get("RepoDigests"))),
        content=(str(root.get("Layers")), str(settings)) if root.get("Layers") else (),
        architecture=str(raw.get("Architecture") or ""),
        labels={str(name): str(value) for name, value in mapping(config.get("Labels")).items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerThere:
    """What the Docker Engine of one node tells of a launch."""

    image: Image | None
    """The image that is launched; None where it is missing or not known."""
    knows_image: bool
    containers: tuple[Listed, ...] | None
    """None: no answer."""

    @property
    def lacks_image(self) -> bool:
        return self.knows_image and self.image is None

    def holder(self, name: str) -> Listed | None:
        """The container that has this name."""
        return next((row for row in self.containers or () if name in row.names), None)


def docker_there(survey: Survey, node: str, image: str) -> DockerThere:
    """What it tells, as far as it has answered."""
    there, knows = image_on(survey, node, image), knows_image(survey, node, image)
    return DockerThere(image=there, knows_image=knows, containers=rows(survey, node))


def with_pulled_image(values: LaunchValues, nodes: Sequence[str], survey: Survey) -> LaunchValues:
    """The values with the image that is pulled instead of a local name that no node has; unchanged where one has it."""
    order, recipe, image = values.order, values.order.recipe, values.image
    if not recipe.pulls or image != recipe.container:
        return values
    if not all(docker_there(survey, node, image).lacks_image for node in nodes):
        return values
    risk = f"No node has the recipe's image {image}: sparktop pulls {recipe.pulls}, as its own tools do."
    pulled = replace(recipe, container=recipe.pulls, pulls="", risks=(*recipe.risks, risk))
    return resolve(replace(order, recipe=pulled))


def images_question(node: str) -> DockerGet:
    """Asks for the images of the node, by name."""
    return DockerGet(node=node, path="/images/json")


def serving_images(survey: Survey, node: str) -> Mapping[str, float] | None:
    """When each image of an engine that runs over several nodes was made (seconds since the epoch, 0: not told), by
    name; None: not listed."""
    listed = survey.value(images_question(node))
    if not isinstance(listed, list):
        return None
    made: dict[str, float] = {}
    for row in listed:
        stamp = mapping(row).get("Created")
        for name in items(mapping(row).get("RepoTags")):
            kind = kind_of_image(name) if isinstance(name, str) and image_path(name) is not None else None
            if kind is not None and kind.traits.rank_flags:
                made[name] = float(stamp) if isinstance(stamp, int | float) else 0.0
    return made


def knows_image(survey: Survey, node: str, image: str) -> bool:
    """Whether Docker has answered: the image is there, or it isn't."""
    question = image_question(node, image)
    return question is not None and survey.answer(question) is not None and not survey.problem(question)


def image_parity(first: Image, second: Image) -> Judgement:
    """Whether both are one build: the same id, a common registry digest, or the same layers and settings."""
    return judge_image_parity(
        ImageFacts(
            ids=(first.image_id, second.image_id),
            digests=(first.digests, second.digests),
            contents=(first.content, second.content),
        )
    )


def info_question(node: str) -> DockerGet:
    return DockerGet(node=node, path="/info")


def list_question(node: str) -> DockerGet:
    """Asks for every container, stopped ones included."""
    return DockerGet(node=node, path="/containers/json?all=1")


def info(survey: Survey, node: str) -> Mapping[str, Any]:
    """GET /info of the node; empty: no answer."""
    return mapping(survey.value(info_question(node)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A container as Docker lists it."""

    container_id: str
    """Its whole id; empty where the listed one is none."""
    names: tuple[str, ...]
    state: str
    image: str
    labels: Mapping[str, str]
    ports: frozenset[int]
    """The node's ports that Docker publishes for it."""

    @property
    def is_never_started(self) -> bool:
        """Whether an interrupted launch created it and never started it."""
        return self.state == "created" and bool(self.labels.get(labels.LAUNCH))


def rows(survey: Survey, node: str) -> tuple[Listed, ...] | None:
    """The node's containers as Docker lists them; None: no answer."""
    listed = survey.value(list_question(node))
    return tuple(_listed(row) for row in listed if isinstance(row, Mapping)) if isinstance(listed, list) else None


def _listed(row: Mapping[str, Any]) -> Listed:
    container_id = str(row.get("Id"))
    published = (mapping(entry).get("PublicPort") for entry in items(row.get("Ports")))
    return Listed(
        container_id=container_id if is_whole_id(container_id) else "",
        names=tuple(str(name).removeprefix("/") for name in items(row.get("Names"))),
        state=str(row.get("State") or "not known"),
        image=str(row.get("Image") or "not known"),
        labels={str(name): str(value or "") for name, value in mapping(row.get("Labels")).items()},
        ports=frozenset(port for port in published if isinstance(port, int)),
    )
