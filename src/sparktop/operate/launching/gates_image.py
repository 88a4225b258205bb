"""Gates of the image: there on every node and the same, or to be had; and what its version can't do. Pure.

Ranks of different builds hang in a collective or fail without naming a cause, so the content is compared, not the tag
(facts/engines.md 1C, 7). An id is made of the content, but a Docker Engine with the containerd store has another for
the same image: a common digest of the registry, or the same layers and settings, count too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sparktop.diagnose.lint.images import family_of, tag_of, version_of
from sparktop.diagnose.lint.spec import Family
from sparktop.model.prospect import Gate
from sparktop.operate.changing import image_path
from sparktop.operate.launching.looked import (
    Looked,
    failed,
    gb,
    image_of,
    passed,
    unknown,
    warned,
    why_not,
)
from sparktop.operate.survey import Ask, DockerGet, Survey

_MACHINES = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "amd64", "amd64": "amd64"}
_MOVES = re.compile(r"latest|nightly|^main$|^dev$")
_EUGR = "git clone https://github.com/eugr/spark-vllm-docker && cd spark-vllm-docker && ./build-and-copy.sh -t {}"
_VERSION_LABEL, _BASE_LABEL = "org.opencontainers.image.version", "org.opencontainers.image.ref.name"
_NO_RAY = (26, 5)
"""NVIDIA's vLLM images carry no Ray from 26.05 on (facts/engines.md sections 5.3, 7)."""
_NO_FASTSAFETENSORS = ((26, 3), (26, 4))
"""NVIDIA's images of these months have no fastsafetensors (facts/engines.md KRN-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What Docker says of an image on one node."""

    node: str
    image_id: str
    size_bytes: int | None
    created: str
    digests: frozenset[str]
    """Of the registry it came from; empty for one that was built or imported here."""
    content: tuple[object, ...]
    """Layers and settings, to compare."""
    architecture: str
    labels: Mapping[str, str]

    @property
    def short_id(self) -> str:
        return self.image_id.removeprefix("sha256:")[:12]


def ask(node: str, image: str) -> DockerGet | None:
    """None for what is no name of an image."""
    path = image_path(image)
    return DockerGet(node=node, path=path) if path is not None else None


def asks(looked: Looked) -> Iterator[Ask]:
    for node in looked.nodes:
        if (found := ask(node, image_of(looked.order, looked.rendered))) is not None:
            yield found


def is_local_only(image: str) -> bool:
    """Whether no registry has it: a name of one part is made on the machine; none of Docker Hub's own is an engine."""
    return "/" not in image or image.startswith(("localhost/", "sha256:"))


def there(survey: Survey, node: str, image: str) -> Image | None:
    """The image on the node; None where it isn't there, or that isn't known (see `was_told`)."""
    wanted = ask(node, image)
    raw = survey.value(wanted) if wanted is not None else None
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
        digests=frozenset(str(one).rpartition("@")[2] for one in digests) if isinstance(digests, list) else frozenset(),
        content=(str(root.get("Layers")), str(settings)) if root.get("Layers") else (),
        architecture=str(raw.get("Architecture") or ""),
        labels={str(name): str(value) for name, value in labels.items()},
    )


def was_told(survey: Survey, node: str, image: str) -> bool:
    """Whether Docker said that it is there, or that it isn't."""
    wanted = ask(node, image)
    return wanted is not None and wanted in survey.answers and not survey.problem(wanted)


def is_same(one: Image, other: Image) -> bool:
    return (
        one.image_id == other.image_id
        or bool(one.digests & other.digests)
        or bool(one.content and one.content == other.content)
    )


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = raw.get(name)
    return found if isinstance(found, Mapping) else {}


# --- gates


def gates(looked: Looked) -> Iterator[Gate]:
    """image for each node, or of both; image-version."""
    image = image_of(looked.order, looked.rendered)
    if image_path(image) is None:
        yield failed("image", "", f"{image!r} is no name of an image", "--set container=nvcr.io/nvidia/vllm:TAG")
        return
    found = {node: there(looked.survey, node, image) for node in looked.nodes}
    here = [one for one in found.values() if one is not None]
    differing = next(((one, other) for one, other in pairwise(here) if not is_same(one, other)), None)
    for node, one in found.items():
        if one is None:
            yield _missing(looked, node, image, next(iter(here), None))
        elif (wrong := _wrong_machine(looked, one)) is not None:
            yield wrong
        elif differing is None:
            size = f", {gb(one.size_bytes)}" if one.size_bytes else ""
            yield passed("image", node, f"{image} is there: {one.short_id}{size}")
    if differing is not None:
        yield _differs(image, *differing)
    yield from _version(looked, image, here)


def _missing(looked: Looked, node: str, image: str, other: Image | None) -> Gate:
    survey, name = looked.survey, shlex.quote(image)
    wanted = ask(node, image)
    if not was_told(survey, node, image):
        why = why_not(survey, wanted, "Docker has not answered") if wanted is not None else ""
        return unknown("image", node, f"whether {image} is there is not known: {why}")
    size = f", {gb(other.size_bytes)}" if other and other.size_bytes else ""
    copy = f"on {other.node}: docker save {name} | ssh {node} docker load" if other else ""
    if is_local_only(image):
        if other is not None:
            return failed(
                "image",
                node,
                f"{image} is on {other.node} ({other.short_id}{size}) and not on {node}; no registry has it",
                copy,
            )
        how = _EUGR.format(shlex.quote(image.partition(":")[0]))
        return failed(
            "image",
            node,
            f"{image} is not on {node}, and no registry has it by such a name: it is built there, or copied",
            f"on {node}: {how}   # or on a Spark that has it: docker save {name} | ssh {node} docker load",
        )
    if not looked.order.may_fetch:
        return failed("image", node, f"{image} is not on {node}", copy or f"on {node}: docker pull {name}")
    if other is not None and not other.digests:
        return failed(
            "image",
            node,
            f"{image} is on {other.node} ({other.short_id}{size}), made there and from no registry, and not on {node}: "
            "what a registry has under that name would be another",
            copy,
        )
    how_much = f"{gb(other.size_bytes)} unpacked" if other and other.size_bytes else "its size is not known beforehand"
    return warned(
        "image",
        node,
        f"{image} is not on {node} and is pulled first: {how_much}",
        f"{copy}   # over the cable" if copy else f"on {node}: docker pull {name}   # to have it beforehand",
    )


def _wrong_machine(looked: Looked, one: Image) -> Gate | None:
    view = looked.view(one.node)
    machine = _MACHINES.get(view.facts.architecture, "") if view and view.facts else ""
    wanted = _MACHINES.get(one.architecture, "")
    if not machine or not wanted or machine == wanted:
        return None
    return failed(
        "image",
        one.node,
        f"the image {one.short_id} is for {one.architecture}, and {one.node} is {machine}: nothing in it can run",
        f"on {one.node}: docker pull --platform linux/{machine} {shlex.quote(image_of(looked.order, looked.rendered))}",
    )


def _differs(image: str, one: Image, other: Image) -> Gate:
    """The older of the two is brought up to the newer."""
    older, newer = sorted((one, other), key=lambda each: each.created)
    name = shlex.quote(image)
    copy = f"on {newer.node}: docker save {name} | ssh {older.node} docker load"
    pull = f"   # or on {older.node}: docker pull {name}" if newer.digests and "@" not in image else ""
    return failed(
        "image",
        "",
        f"{image} is {one.short_id} on {one.node} ({one.created[:10] or 'no date'}) and {other.short_id} on "
        f"{other.node} ({other.created[:10] or 'no date'}): ranks of different builds hang or fail",
        copy + pull,
    )


# --- what its version can't do


def _version(looked: Looked, image: str, here: Sequence[Image]) -> Iterator[Gate]:
    recipe = looked.order.recipe
    month = _month(image)
    if month is not None and recipe.requires.ray and month >= _NO_RAY and not _installs(looked, "ray"):
        yield failed(
            "image-version",
            "",
            f"{image} carries no Ray (NVIDIA's have none from 26.05 on), and the recipe starts its ranks with it",
            "--set container=nvcr.io/nvidia/vllm:26.04-py3   # or a recipe of the native kind, without Ray",
        )
        return
    if month in _NO_FASTSAFETENSORS and recipe.requires.fastsafetensors and not _installs(looked, "fastsafetensors"):
        yield failed(
            "image-version",
            "",
            f"{image} has no fastsafetensors, and the recipe loads with it: ImportError at the start",
            "--set load_format=auto",
        )
        return
    version = version_of(image, recipe.engine) or next((said for one in here if (said := _labelled(one))), "")
    tag = tag_of(image)
    if version:
        yield passed("image-version", "", f"{recipe.engine.value} {version} by {'its tag' if tag else 'its label'}")
    elif tag is not None and _MOVES.search(tag) and not is_local_only(image):
        pinned = next((digest for one in here for digest in sorted(one.digests)), "")
        base = image.rpartition("/")[0] + "/" + image.rpartition("/")[2].partition(":")[0]
        yield warned(
            "image-version",
            "",
            f"the tag {tag} tells no version, so flags aren't held against one; and it may be another image tomorrow",
            f"--set container={base}@{pinned}" if pinned else f"--set container={base}:VERSION",
        )
    else:
        yield unknown("image-version", "", f"neither the tag of {image} nor a label tells the engine's version")


def _month(image: str) -> tuple[int, int] | None:
    """Of one of NVIDIA's vLLM images: (26, 5) of 26.05."""
    found = re.search(r"^nvcr\.io/nvidia/vllm:(\d\d)\.(\d\d)", image)
    return (int(found[1]), int(found[2])) if found and family_of(image) is Family.NGC else None


def _installs(looked: Looked, package: str) -> bool:
    """Whether the command itself brings it: `pip install ray`."""
    return re.search(rf"pip3? install [^&|;]*\b{re.escape(package)}\b", looked.order.recipe.command) is not None


def _labelled(one: Image) -> str:
    """Its label, unless that is the one of the Ubuntu it was made from."""
    value = one.labels.get(_VERSION_LABEL, "")
    is_own = one.labels.get(_BASE_LABEL, "") != "ubuntu" and re.fullmatch(r"v?\d+\.\d+\.\d+[\w.+-]{0,40}", value)
    return value.removeprefix("v") if is_own else ""
