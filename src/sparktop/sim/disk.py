"""The models on a simulated Spark's disk, and what its hub says: the answers that probe.runner_models and _hub give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparktop.sim import catalogue
from sparktop.sim.catalogue import Model
from sparktop.sim.script import DiskModel, NodeScript
from sparktop.sim.spark import GIB, Spark

Words = dict[str, Any]
HUB = "https://huggingface.co"
_MISSING_TOLD = 20


def home(script: NodeScript) -> str:
    return f"/home/{script.machine.user}"


def hub_folder(script: NodeScript) -> str:
    """Of models--ORG--NAME."""
    return f"{home(script)}/.cache/huggingface/hub"


def folder_of(script: NodeScript, one: DiskModel) -> str:
    """What has to be copied for a model."""
    if one.folder:
        return f"{one.folder.rstrip('/')}/{one.name.rpartition('/')[2]}"
    return f"{hub_folder(script)}/models--{one.name.replace('/', '--')}"


def found(script: NodeScript, name: str) -> DiskModel | None:
    """A model that is there, by its name or the path of its folder; what is whole comes first."""
    path = name.rstrip("/")
    if path.startswith("~/"):
        path = home(script) + path[1:]
    named = [
        one for one in script.models
        if one.name.lower() == name.lower() or path in (folder_of(script, one), _path_of(script, one))
    ]  # fmt: skip
    return min(named, key=lambda one: not is_whole(one), default=None)


def is_whole(one: DiskModel) -> bool:
    return one.held_bytes is None or one.held_bytes >= known(one).size_bytes


def held_bytes(one: DiskModel) -> int:
    size = known(one).size_bytes
    return size if one.held_bytes is None else min(size, one.held_bytes)


def known(one: DiskModel) -> Model:
    """What the catalogue says of it."""
    model = catalogue.model(one.name)
    assert model is not None  # the scenario's file was checked
    return model


def with_model(script: NodeScript, come: DiskModel) -> NodeScript:
    """The node with a model, or with so much of it."""
    old = next((one for one in script.models if (one.name, one.folder) == (come.name, come.folder)), None)
    grown = held_bytes(come) - (held_bytes(old) if old is not None else 0)
    kept = tuple(one for one in script.models if one is not old)
    machine = replace(script.machine, disk_free_gib=max(0.0, script.machine.disk_free_gib - grown / GIB))
    return replace(script, models=(*kept, come), machine=machine)


# --- the answers


def answer(spark: Spark) -> Words:
    """As ModelsOnDisk has it."""
    script = spark.script
    return {
        "cache": f"{home(script)}/.cache/huggingface",
        "hub": hub_folder(script),
        "home": home(script),
        "token": False,
        "models": [_row(script, one) for one in script.models],
        "problems": [],
        "uid": script.machine.user_id,
        "gid": script.machine.user_id,
        "free_bytes": int(script.machine.disk_free_gib * GIB),
        "writable": True,
    }


def hub_answer(words: Mapping[str, Any]) -> Words:
    """As HubModel has it, of the one hub that there is."""
    empty: Words = {"status": 0, "problem": "", "gated": "", "revision": "", "files": [], "config": None}
    hub, repo, revision = str(words["hub"]).rstrip("/"), str(words["repo"]), str(words.get("revision") or "main")
    if hub != HUB:
        return {**empty, "problem": f"{hub[:200]} can't be reached from here: this is a simulated Spark"}
    model = catalogue.model(repo)
    if model is None or revision not in ("main", model.revision):
        what = "RepoNotFound Repository not found" if model is None else "RevisionNotFound Invalid rev id"
        return {**empty, "status": 404, "problem": what}
    return {
        **empty,
        "status": 200,
        "revision": model.revision,
        "parameters": None,
        "files": [{"path": path, "size_bytes": size} for path, size in model.files()],
        "config": dict(model.config),
    }


def config_text(script: NodeScript, path: str) -> Mapping[str, Any] | None:
    """The configuration at a path, where a model lies there."""
    folder, _, name = path.rpartition("/")
    one = found(script, folder) if name == "config.json" else None
    return known(one).config if one is not None else None


def _path_of(script: NodeScript, one: DiskModel) -> str:
    folder = folder_of(script, one)
    return folder if one.folder else f"{folder}/snapshots/{known(one).revision}"


def _row(script: NodeScript, one: DiskModel) -> Words:
    model, whole, held = known(one), is_whole(one), held_bytes(one)
    share = 1.0 if whole else held / model.size_bytes
    names = model.shard_names()
    there = len(names) if whole else int(share * len(names))
    missing = [] if whole else [*names[there:], f"{model.revision[:16]}.incomplete"]
    dtypes = dict(model.dtypes) if whole else {}
    return {
        "name": one.name if not one.folder else one.name.rpartition("/")[2],
        "path": _path_of(script, one),
        "where": "folder" if one.folder else "cache",
        "revision": "" if one.folder else model.revision,
        "refs": [] if one.folder else ["main"],
        "folder": folder_of(script, one),
        "size_bytes": held if whole else int(model.weights_bytes * there / len(names)),
        "folder_bytes": None if one.folder else held,
        "is_complete": whole,
        "missing": missing[:_MISSING_TOLD],
        "config": dict(model.config),
        "config_name": "config.json",
        "quant_config": None,
        "weights_bytes": model.weights_bytes,
        "weights_from": "headers" if whole else "index",
        "dtypes": dtypes,
        "unread": 0 if whole else there,
        "writable": True,
    }
