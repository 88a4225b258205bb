"""Gates on the image: on every node and the same build, or available; and what its version lacks. Pure.

Ranks of different builds hang in a collective or fail without naming a cause, so content is compared, not tags
(docs/facts/engines.md 1C, 7). An image id is a hash of the content, but a Docker Engine with the containerd store has
another id for the same image: a common registry digest, or the same layers and settings, count as the same too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

from sparktop.checks.image import PackageFacts, judge_fastsafetensors, judge_ray_package, judge_tag
from sparktop.checks.judgement import Judgement
from sparktop.engines.images import Family, family_of, tag_of, version_of
from sparktop.model.prospect import Gate, Lever
from sparktop.operate.container.inspected import image_path
from sparktop.operate.launch.inputs.docker import (
    Image,
    image_parity,
    image_question,
    is_local_only,
)
from sparktop.operate.launch.inputs.gate_inputs import (
    GateInputs,
    failed,
    judged,
    passed,
    told,
    unknown,
    warned,
)
from sparktop.text.units import gb

_MACHINES = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "amd64", "amd64": "amd64"}


_BUILD_COMMAND = (
    "git clone https://github.com/eugr/spark-vllm-docker && cd spark-vllm-docker && ./build-and-copy.sh -t {}"
)


_VERSION_LABEL, _BASE_LABEL = "org.opencontainers.image.version", "org.opencontainers.image.ref.name"


# --- gates


def image_gates(inputs: GateInputs) -> Iterator[Gate]:
    """For each node, or for all where they differ."""
    image = inputs.image
    if image_path(image) is None:
        yield failed("", f"{image!r} is no name of an image", "--set container=nvcr.io/nvidia/vllm:TAG")
        return
    images = {node: inputs.docker[node].image for node in inputs.nodes}
    present = list(filter(None, images.values()))
    differing = next(
        (
            (first, second, judgement)
            for first, second in pairwise(present)
            if (judgement := image_parity(first, second)).is_problem
        ),
        None,
    )
    for node, local_image in images.items():
        if local_image is None:
            yield _missing(inputs, node, image, next(iter(present), None))
        elif (wrong := _wrong_machine(inputs, local_image)) is not None:
            yield wrong
        elif differing is None:
            size = f", {gb(local_image.size_bytes)}" if local_image.size_bytes else ""
            yield passed(node, f"{image} is there: {local_image.short_id}{size}")
    if differing is not None:
        yield _differs(image, *differing)


def _missing(inputs: GateInputs, node: str, image: str, other_image: Image | None) -> Gate:
    survey, name = inputs.survey, shlex.quote(image)
    question = image_question(node, image)
    if not inputs.docker[node].knows_image:
        why = (survey.problem(question) if question is not None else "") or "Docker has not answered"
        return unknown(node, f"whether {image} is there is not known: {why}")
    size = f", {gb(other_image.size_bytes)}" if other_image and other_image.size_bytes else ""
    copy = f"on {other_image.node}: docker save {name} | ssh {node} docker load" if other_image else ""
    if is_local_only(image):
        if other_image is not None:
            return failed(
                node,
                f"{image} is on {other_image.node} ({other_image.short_id}{size}) and not on {node}; no registry has "
                "it",
                copy,
            )
        build = _BUILD_COMMAND.format(shlex.quote(image.partition(":")[0]))
        return failed(
            node,
            f"{image} is not on {node}, and no registry has it by such a name: it is built there, or copied",
            f"on {node}: {build}   # or on a Spark that has it: docker save {name} | ssh {node} docker load",
        )
    if not inputs.order.may_fetch:
        return failed(node, f"{image} is not on {node}", copy or f"on {node}: docker pull {name}")
    if other_image is not None and not other_image.digests:
        return failed(
            node,
            f"{image} is on {other_image.node} ({other_image.short_id}{size}), made there and from no registry, and "
            f"not on {node}: "
            "what a registry has under that name would be another",
            copy,
        )
    how_much = (
        f"{gb(other_image.size_bytes)} unpacked"
        if other_image and other_image.size_bytes
        else "its size is not known beforehand"
    )
    return warned(
        node,
        f"{image} is not on {node} and is pulled first: {how_much}",
        f"{copy}   # over the cable" if copy else f"on {node}: docker pull {name}   # to download it beforehand",
    )


def _wrong_machine(inputs: GateInputs, image: Image) -> Gate | None:
    facts = inputs.view(image.node).facts
    machine = _MACHINES.get(facts.architecture, "") if facts else ""
    image_machine = _MACHINES.get(image.architecture, "")
    if not machine or not image_machine or machine == image_machine:
        return None
    return failed(
        image.node,
        f"the image {image.short_id} is for {image.architecture}, and {image.node} is {machine}: nothing in it can run",
        f"on {image.node}: docker pull --platform linux/{machine} {shlex.quote(inputs.image)}",
    )


def _differs(image: str, first: Image, second: Image, judgement: Judgement) -> Gate:
    """The nodes' images differ; the remedy replaces the older one."""
    older, newer = sorted((first, second), key=lambda candidate: candidate.created)
    name = shlex.quote(image)
    copy = f"on {newer.node}: docker save {name} | ssh {older.node} docker load"
    pull = f"   # or on {older.node}: docker pull {name}" if newer.digests and "@" not in image else ""
    return judged(
        "",
        judgement,
        f"{image} is {first.short_id} on {first.node} ({first.created[:10] or 'no date'}) and {second.short_id} on "
        f"{second.node} ({second.created[:10] or 'no date'}): ranks of different builds hang or fail",
        copy + pull,
    )


# --- version


def version_gates(inputs: GateInputs) -> Iterator[Gate]:
    """What the image's version lacks, or that nothing tells it."""
    recipe, image = inputs.order.recipe, inputs.image
    if image_path(image) is None:
        return
    images = list(filter(None, (inputs.docker[node].image for node in inputs.nodes)))
    packages = PackageFacts(image=image, is_nvidias=family_of(image) is Family.NGC, commands=recipe.command)
    if recipe.requires.ray and (ray := judge_ray_package(packages)).is_problem:
        yield told("", judge_ray_package, ray, image=image)
        return
    if recipe.requires.fastsafetensors and (loader := judge_fastsafetensors(packages)).is_problem:
        lever = Lever(values={"load_format": "auto"})
        yield told("", judge_fastsafetensors, loader, levers=(lever,), image=image, lever=lever.text)
        return
    version = version_of(image, recipe.engine) or next(
        (label for local_image in images if (label := _label_version(local_image))), ""
    )
    tag = tag_of(image)
    if version:
        yield passed("", f"{recipe.engine.value} {version} by {'its tag' if tag else 'its label'}")
    elif (moves := judge_tag(tag)).is_problem and not is_local_only(image):
        pinned = next((digest for local_image in images for digest in sorted(local_image.digests)), "")
        base = image.rpartition("/")[0] + "/" + image.rpartition("/")[2].partition(":")[0]
        pin = f"{base}@{pinned}" if pinned else f"{base}:VERSION"
        yield told("", judge_tag, moves, tag=tag, pin=pin)
    else:
        yield unknown("", f"neither the tag of {image} nor a label tells the engine's version")


def _label_version(image: Image) -> str:
    """The image's version label, unless that is its Ubuntu base image's."""
    value = image.labels.get(_VERSION_LABEL, "")
    is_own = image.labels.get(_BASE_LABEL, "") != "ubuntu" and re.fullmatch(r"v?\d+\.\d+\.\d+[\w.+-]{0,40}", value)
    return value.removeprefix("v") if is_own else ""
