"""The images that a simulated Spark has, as its Docker Engine tells of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from sparktop.sim import catalogue
from sparktop.sim.script import ContainerScript, NodeScript
from sparktop.sim.spark import GIB, Spark

_SIZE_BYTES = 22 * GIB
_CREATED = "2026-10-20T11:02:17Z"


def image_id(script: ContainerScript) -> str:
    """Made of the name where the scenario gives none."""
    return script.image_id or id_of(script.image)


def id_of(name: str) -> str:
    """The same on both nodes."""
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def find(script: NodeScript, wanted: str) -> tuple[str, str] | None:
    """(name, id) of an image that is there, by its name or its id."""
    for box in script.containers:
        if wanted in _names(box.image, image_id(box)):
            return box.image, image_id(box)
    found = next((name for name in script.images if wanted in _names(name, id_of(name))), None)
    return (found, id_of(found)) if found is not None else None


def with_image(script: NodeScript, name: str) -> NodeScript:
    """The node with one more."""
    if name in script.images:
        return script
    known = catalogue.image(name)
    size = known.size_bytes if known is not None else 0
    machine = replace(script.machine, disk_free_gib=max(0.0, script.machine.disk_free_gib - size / GIB))
    return replace(script, images=(*script.images, name), machine=machine)


def inspection(spark: Spark, wanted: str) -> dict[str, Any] | None:
    """GET /images/<name>/json."""
    there = find(spark.script, wanted)
    if there is None:
        return None
    name, number = there
    known = catalogue.image(name)
    named = name if not name.startswith("sha256:") else ""
    from_registry = known is not None and not known.is_local
    digest = f"{_repository(name)}@{id_of(f'manifest of {name}')}"
    return {
        "Id": number,
        "RepoTags": [named] if named else [],
        "RepoDigests": [digest] if from_registry else [],
        "Created": known.created if known is not None else _CREATED,
        "Architecture": "arm64",
        "Os": "linux",
        "Size": known.size_bytes if known is not None else _SIZE_BYTES,
        "RootFS": {
            "Type": "layers",
            "Layers": [id_of(f"{number}/{i}") for i in range(known.layers if known is not None else 24)],
        },
        "Config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": None,
            "Entrypoint": None,
            "Labels": {},
            "WorkingDir": "/workspace",
            "User": "",
        },
    }


def _repository(name: str) -> str:
    """Without its tag."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def _names(name: str, number: str) -> tuple[str, ...]:
    plain = number.removeprefix("sha256:")
    return (name, number, plain, plain[:12])
