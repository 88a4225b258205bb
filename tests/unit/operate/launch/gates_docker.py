"""What spoils the gates of Docker and of the image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pictures_support import container, engine
from tests.unit.operate.launch.gates_support import (
    BOTH,
    FAILED,
    IMAGE,
    PASSED,
    UNKNOWN,
    WARNED,
    World,
    case,
    image,
    rendered,
)

from sparktop.model.engine import EngineState
from sparktop.model.recipe import Requirement
from sparktop.model.survey import Answer, Privileges, PrivilegesQuestion
from sparktop.operate.launch.gates import docker
from sparktop.operate.launch.inputs import docker as inputs_docker

# --- docker, gpu-runtime, name


@case("docker", "spark2", FAILED, "may not use", "usermod")
def _(world: World) -> None:
    world.answers[PrivilegesQuestion(node="spark2")] = Answer(value=Privileges(user="spark", docker="denied"))


@case("docker", "spark2", FAILED, "no Docker Engine answers", "systemctl")
def _(world: World) -> None:
    world.answers[PrivilegesQuestion(node="spark2")] = Answer(value=Privileges(user="spark", docker="missing"))


@case("docker", "spark1", UNKNOWN, "could not be asked", "live")
def _(world: World) -> None:
    world.silent(PrivilegesQuestion(node="spark1"))


@case("gpu-runtime", "spark1", FAILED, "its runtimes are io.containerd.runc.v2, runc", "nvidia-container-toolkit")
def _(world: World) -> None:
    world.info("spark1", Runtimes={"runc": {}, "io.containerd.runc.v2": {}})
    world.silent(docker.toolkit_question("spark1"), "there is no nvidia-ctk")


@case("gpu-runtime", "spark1", WARNED, "version 1.18.0 is there, but", "nvidia-ctk runtime configure")
def _(world: World) -> None:
    world.info("spark1", Runtimes={"runc": {}})


@case("gpu-runtime", "spark1", PASSED, "CDI: nvidia.com/gpu=all")
def _(world: World) -> None:
    world.info("spark1", Runtimes={"runc": {}}, DiscoveredDevices=[{"Source": "cdi", "ID": "nvidia.com/gpu=all"}])


@case("gpu-runtime", "spark1", PASSED, "asks Docker for no GPU")
def _(world: World) -> None:
    world.info("spark1", Runtimes={})
    world.rendered = rendered(BOTH, host={})


@case("gpu-runtime", "spark1", UNKNOWN, "Docker on spark1 is gone")
def _(world: World) -> None:
    world.silent(inputs_docker.info_question("spark1"), "Docker on spark1 is gone")


def row(**more: Any) -> dict[str, Any]:
    return {"Id": "ab" * 32, "Names": ["/sparktop-model"], "State": "running", "Labels": {}, "Image": "img", **more}


@case(
    "name",
    "spark1",
    FAILED,
    "sparktop-model already exists: container abababababab, running",
    "--stop sparktop-model, or --set name=sparktop-model-3",
)
def _(world: World) -> None:
    """A name is offered that is free on the other node too."""
    world.view("spark1", engines=(engine("sparktop-model", container=container("sparktop-model")),))
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[row()])
    world.answers[inputs_docker.list_question("spark2")] = Answer(value=[row(Names=["/sparktop-model-2"])])


@case(
    "name",
    "spark1",
    FAILED,
    "running, of image img; sparktop doesn't know it as an engine",
    "--set name=sparktop-model-2, or on spark1: docker rename sparktop-model sparktop-model-old-2",
)
def _(world: World) -> None:
    """Nor is an engine that ended there, or one that runs in another container."""
    ended = engine("sparktop-model", container=container("sparktop-model"), state=EngineState.EXITED)
    world.view("spark1", engines=(ended, engine("sparktop-model", container=None)))
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[row(), row(Names=["/sparktop-model-old"])])


@case(
    "name",
    "spark1",
    FAILED,
    "of the recipe model-fp8, container abababababab, running; it has no engine that sparktop sees",
    "--set name=sparktop-model-2, or on spark1: docker stop sparktop-model",
)
def _(world: World) -> None:
    ours = row(Labels={"sparktop.recipe": "model-fp8"})
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[ours])


@case("name", "spark2", FAILED, "no launch made it", "docker rename sparktop-model sparktop-model-old")
def _(world: World) -> None:
    world.answers[inputs_docker.list_question("spark2")] = Answer(value=[row(State="exited")])


@case("name", "spark1", PASSED, "of an earlier launch (model-fp8")
def _(world: World) -> None:
    ours = row(State="exited", Labels={"sparktop.recipe": "model-fp8"})
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[ours])


@case("name", "spark1", PASSED, "never started: it is removed")
def _(world: World) -> None:
    left = row(State="created", Labels={"sparktop.recipe": "model-fp8", "sparktop.launch": "20261121T031211"})
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[left])


@case("name", "spark2", FAILED, "no launch made it", "docker rename sparktop-model sparktop-model-old")
def _(world: World) -> None:
    world.answers[inputs_docker.list_question("spark2")] = Answer(value=[row(State="created")])


@case("name", "spark2", FAILED, "running, alone: its other rank on spark1 doesn't run", "--stop sparktop-model")
def _(world: World) -> None:
    made_by = {"sparktop.recipe": "model-fp8", "sparktop.launch": "20261121T031211"}
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[row(State="created", Labels=made_by)])
    world.answers[inputs_docker.list_question("spark2")] = Answer(value=[row(Labels=made_by)])
    world.view("spark2", engines=(engine("sparktop-model", container=container("sparktop-model")),))


@case("name", "spark1", PASSED, "is stopped first")
def _(world: World) -> None:
    world.answers[inputs_docker.list_question("spark1")] = Answer(value=[row()])
    world.order = replace(world.order, stops=(("spark1", "sparktop-model"),))


@case("name", "spark1", UNKNOWN, "whether sparktop-model is free")
def _(world: World) -> None:
    world.silent(inputs_docker.list_question("spark1"))


@case("name", "spark1", UNKNOWN, "the field port is no number")
def _(world: World) -> None:
    world.rendered, world.unrendered = None, "the field port is no number"


# --- image, image-version


@case("image", "", FAILED, "111111111111 on spark1 (2026-01-01) and 222222222222 on spark2", "on spark2: docker save")
def _(world: World) -> None:
    world.image("spark2", image(2))


@case("image", "spark1", PASSED, "is there: 111111111111, 21.0 GB")
def _(world: World) -> None:
    """One image in two stores: another id, the registry's digest the same."""
    world.image("spark2", image(2, RepoDigests=image(1)["RepoDigests"]))


@case("image", "spark2", WARNED, "is pulled first: 21.0 GB unpacked", "on spark1: docker save")
def _(world: World) -> None:
    world.image("spark2", None)
    world.df("spark2", "/var/lib/docker", 10**12)


@case("image", "spark1", WARNED, "its size is not known beforehand", f"on spark1: docker pull {IMAGE}")
def _(world: World) -> None:
    for node in BOTH:
        world.image(node, None)
        world.df(node, "/var/lib/docker", 10**12)


@case("image", "spark1", FAILED, "is not on spark1", f"on spark1: docker pull {IMAGE}")
def _(world: World) -> None:
    world.image("spark1", None)
    world.image("spark2", None)
    world.order = replace(world.order, may_fetch=False)


@case(
    "image",
    "spark2",
    FAILED,
    "made there and from no registry",
    f"on spark1: docker save {IMAGE} | ssh spark2 docker load",
)
def _(world: World) -> None:
    world.image("spark1", image(RepoDigests=[]))
    world.image("spark2", None)


def built_here(world: World) -> None:
    world.asks_for(container="vllm-node:latest")
    world.rendered = rendered(BOTH, image="vllm-node:latest")
    world.image("spark2", None, name="vllm-node:latest")


@case(
    "image", "spark2", FAILED, "no registry has it", "on spark1: docker save vllm-node:latest | ssh spark2 docker load"
)
def _(world: World) -> None:
    built_here(world)
    world.image("spark1", image(RepoDigests=[]), name="vllm-node:latest")


@case("image", "spark1", FAILED, "no registry has it", "./build-and-copy.sh -t vllm-node")
def _(world: World) -> None:
    built_here(world)
    world.image("spark1", None, name="vllm-node:latest")


@case("image", "spark1", FAILED, "is for amd64, and spark1 is arm64", "--platform linux/arm64")
def _(world: World) -> None:
    world.image("spark1", image(Architecture="amd64"))


@case("image", "spark1", UNKNOWN, "whether nvcr.io/nvidia/vllm:26.05.post1-py3 is there is not known: no socket")
def _(world: World) -> None:
    world.image("spark1", None, problem="no socket")


@case("image", "", FAILED, "is no name of an image", "--set container=")
def _(world: World) -> None:
    world.rendered = rendered(BOTH, image="$(reboot)\x1b[2J")


@case("image-version", "", PASSED, "vllm 0.21.0 by its tag")
def _(world: World) -> None:
    pass


@case("image-version", "", FAILED, "carries no Ray", "26.04")
def _(world: World) -> None:
    world.asks_for(requires=Requirement(ray=True))


@case("image-version", "", PASSED, "vllm 0.21.0")
def _(world: World) -> None:
    world.asks_for(requires=Requirement(ray=True), command="pip install -q ray[default] && vllm serve {model}")


@case("image-version", "", FAILED, "has no fastsafetensors", "--set load_format=auto")
def _(world: World) -> None:
    world.asks_for(requires=Requirement(fastsafetensors=True))
    another_image(world, "nvcr.io/nvidia/vllm:26.04-py3")


def another_image(world: World, name: str, **more: Any) -> None:
    world.rendered = rendered(BOTH, image=name)
    for node in BOTH:
        world.image(node, image(**more), name=name)


@case("image-version", "", WARNED, "the tag latest tells no version", "--set container=vllm/vllm-openai@sha256:ddd")
def _(world: World) -> None:
    another_image(world, "vllm/vllm-openai:latest")


@case("image-version", "", UNKNOWN, "neither the tag of registry.example:5000/me/vllm:blue nor a label")
def _(world: World) -> None:
    labels = {"org.opencontainers.image.version": "24.04", "org.opencontainers.image.ref.name": "ubuntu"}
    another_image(world, "registry.example:5000/me/vllm:blue", Config={"Labels": labels})


@case("image-version", "", PASSED, "vllm 0.33.0 by its label")
def _(world: World) -> None:
    name = "me/vllm@sha256:" + "d" * 64
    another_image(world, name, Config={"Labels": {"org.opencontainers.image.version": "v0.33.0"}})
