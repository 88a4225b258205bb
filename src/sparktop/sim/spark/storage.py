"""The models and images on a simulated Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparktop.sim.scenario import hub
from sparktop.sim.scenario.hub import Model
from sparktop.sim.scenario.script import ContainerScript, DiskModel, NodeScript
from sparktop.sim.spark.spark import GIB, Spark

Json = dict[str, Any]
HUB = "https://huggingface.co"
_MAX_MISSING = 20


def home(script: NodeScript) -> str:
    return f"/home/{script.machine.user}"


def hub_folder(script: NodeScript) -> str:
    """The folder that holds the models--ORG--NAME folders."""
    return f"{home(script)}/.cache/huggingface/hub"


def folder_of(script: NodeScript, disk_model: DiskModel) -> str:
    """The folder to copy to have the model elsewhere."""
    if disk_model.folder:
        return f"{disk_model.folder.rstrip('/')}/{disk_model.name.rpartition('/')[2]}"
    return f"{hub_folder(script)}/models--{disk_model.name.replace('/', '--')}"


def find_model(script: NodeScript, name: str) -> DiskModel | None:
    """A model on the node, by its name or its folder's path; complete ones first."""
    path = name.rstrip("/")
    matches = [
        disk_model for disk_model in script.models
        if disk_model.name.lower() == name.lower()
        or path in (folder_of(script, disk_model), _model_path(script, disk_model))
    ]  # fmt: skip
    return min(matches, key=lambda disk_model: not is_whole(disk_model), default=None)


def is_whole(disk_model: DiskModel) -> bool:
    return disk_model.held_bytes is None or disk_model.held_bytes >= model_of_disk(disk_model).size_bytes


def held_bytes(disk_model: DiskModel) -> int:
    size = model_of_disk(disk_model).size_bytes
    return size if disk_model.held_bytes is None else min(size, disk_model.held_bytes)


def bytes_there(script: NodeScript, name: str, folder: str) -> int:
    """Bytes of a model that a node has in a folder; 0: it has none of it there."""
    return sum(held_bytes(other) for other in script.models if (other.name, other.folder) == (name, folder))


def model_of_disk(disk_model: DiskModel) -> Model:
    """The model's entry in the hub."""
    model = hub.model(disk_model.name)
    assert model is not None  # the scenario's file was checked
    return model


def with_model(script: NodeScript, new: DiskModel) -> NodeScript:
    """The node with a model, or a part of it, on its disk."""
    others = tuple(other for other in script.models if (other.name, other.folder) != (new.name, new.folder))
    grown = held_bytes(new) - bytes_there(script, new.name, new.folder)
    machine = replace(script.machine, disk_free_gib=max(0.0, script.machine.disk_free_gib - grown / GIB))
    return replace(script, models=(*others, new), machine=machine)


# --- the answers


def models_answer(spark: Spark) -> Json:
    """The answer to ModelsOnDisk."""
    script = spark.script
    return {
        "cache": f"{home(script)}/.cache/huggingface", "hub": hub_folder(script), "home": home(script), "token": False,
        "models": [_model_row(script, disk_model) for disk_model in script.models], "problems": [],
        "uid": script.machine.user_id, "gid": script.machine.user_id,
        "free_bytes": int(script.machine.disk_free_gib * GIB), "writable": True,
    }  # fmt: skip


def hub_answer(words: Mapping[str, Any]) -> Json:
    """The answer to HubModel; there is only one hub."""
    empty: Json = {"status": 0, "problem": "", "gated": "", "revision": "", "files": [], "config": None}
    hub_url, repo, revision = str(words["hub"]).rstrip("/"), str(words["repo"]), str(words.get("revision") or "main")
    if hub_url != HUB:
        return {**empty, "problem": f"{hub_url[:200]} can't be reached from here: this is a simulated Spark"}
    model = hub.model(repo)
    if model is None or revision not in ("main", model.revision):
        problem = "RepoNotFound Repository not found" if model is None else "RevisionNotFound Invalid rev id"
        return {**empty, "status": 404, "problem": problem}
    return {
        **empty, "status": 200, "revision": model.revision, "parameters": None,
        "files": [{"path": path, "size_bytes": size} for path, size in model.files()], "config": dict(model.config),
    }  # fmt: skip


def config_text(script: NodeScript, path: str) -> Mapping[str, Any] | None:
    """The config.json at a path, where a model has one there."""
    folder, _, name = path.rpartition("/")
    disk_model = find_model(script, folder) if name == "config.json" else None
    return model_of_disk(disk_model).config if disk_model is not None else None


def _model_path(script: NodeScript, disk_model: DiskModel) -> str:
    folder = folder_of(script, disk_model)
    return folder if disk_model.folder else f"{folder}/snapshots/{model_of_disk(disk_model).revision}"


def _model_row(script: NodeScript, disk_model: DiskModel) -> Json:
    model, is_complete, held_size = model_of_disk(disk_model), is_whole(disk_model), held_bytes(disk_model)
    share = 1.0 if is_complete else held_size / model.size_bytes
    names = model.shard_names()
    shard_count = len(names) if is_complete else int(share * len(names))
    missing = [] if is_complete else [*names[shard_count:], f"{model.revision[:16]}.incomplete"]
    dtypes = dict(model.dtypes) if is_complete else {}
    listed_bytes = held_size if is_complete else int(model.weights_bytes * shard_count / len(names))
    in_cache = not disk_model.folder
    return {
        "name": disk_model.name if in_cache else disk_model.name.rpartition("/")[2],
        "path": _model_path(script, disk_model), "where": "cache" if in_cache else "folder",
        "revision": model.revision if in_cache else "", "refs": ["main"] if in_cache else [],
        "folder": folder_of(script, disk_model), "size_bytes": listed_bytes,
        "partial_bytes": max(0, held_size - listed_bytes), "folder_bytes": held_size if in_cache else None,
        "is_complete": is_complete, "missing": missing[:_MAX_MISSING], "config": dict(model.config),
        "config_name": "config.json", "quant_config": None, "weights_bytes": model.weights_bytes,
        "weights_from": "headers" if is_complete else "index", "dtypes": dtypes,
        "unread": 0 if is_complete else shard_count, "ggufs": {}, "writable": True,
    }  # fmt: skip


_SIZE_BYTES = 22 * GIB
_CREATED = "2026-10-20T11:02:17Z"


def image_id(script: ContainerScript) -> str:
    """The image's id, derived from its name where the scenario has none."""
    return script.image_id or id_of(script.image)


def id_of(name: str) -> str:
    """An id derived from the name: the same on both nodes."""
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def find_image(script: NodeScript, name_or_id: str) -> tuple[str, str] | None:
    """(name, id) of an image on the node, by its name or its id."""
    for container in script.containers:
        if name_or_id in _image_names(container.image, image_id(container)):
            return container.image, image_id(container)
    image_name = next((name for name in script.images if name_or_id in _image_names(name, id_of(name))), None)
    return (image_name, id_of(image_name)) if image_name is not None else None


def with_image(script: NodeScript, name: str) -> NodeScript:
    """The node with one more image."""
    if name in script.images:
        return script
    catalogued = hub.image(name)
    size = catalogued.size_bytes if catalogued is not None else 0
    machine = replace(script.machine, disk_free_gib=max(0.0, script.machine.disk_free_gib - size / GIB))
    return replace(script, images=(*script.images, name), machine=machine)


def inspection(spark: Spark, name_or_id: str) -> dict[str, Any] | None:
    """The answer to GET /images/<name>/json."""
    image_entry = find_image(spark.script, name_or_id)
    if image_entry is None:
        return None
    name, number = image_entry
    catalogued = hub.image(name)
    tag = name if not name.startswith("sha256:") else ""
    from_registry = catalogued is not None and not catalogued.is_local
    digest = f"{_repository(name)}@{id_of(f'manifest of {name}')}"
    return {
        "Id": number,
        "RepoTags": [tag] if tag else [],
        "RepoDigests": [digest] if from_registry else [],
        "Created": catalogued.created if catalogued is not None else _CREATED,
        "Size": catalogued.size_bytes if catalogued is not None else _SIZE_BYTES,
        "RootFS": {
            "Type": "layers",
            "Layers": [id_of(f"{number}/{i}") for i in range(catalogued.layers if catalogued is not None else 24)],
        },
    }


def _repository(name: str) -> str:
    """The image's name without its tag."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def _image_names(name: str, number: str) -> tuple[str, ...]:
    plain = number.removeprefix("sha256:")
    return (name, number, plain, plain[:12])
