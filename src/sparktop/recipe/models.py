"""Models as the nodes and the hub answer about them (`operate.survey`: ModelsOnDisk, HubModel). Pure.

What comes from a machine or the network is believed in nothing but that it is JSON: a field of another type is as if it
weren't there. A name is data for argv only where `is_repo`, `is_revision` or `is_path` say that it can be one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparktop import sanitise
from sparktop.model.prospect import OnDisk
from sparktop.recipe.modelconfig import quantisation_of, shape_of
from sparktop.recipe.modelfacts import ModelFacts

_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ELEMENT_BYTES = {
    "F64": 8.0, "I64": 8.0, "F32": 4.0, "I32": 4.0, "U32": 4.0, "BF16": 2.0, "F16": 2.0, "I16": 2.0, "U16": 2.0,
    "F8_E4M3": 1.0, "F8_E5M2": 1.0, "F8_E8M0": 1.0, "I8": 1.0, "U8": 1.0, "BOOL": 1.0, "F4": 0.5,
}  # fmt: skip
"""Bytes an element by the safetensors format's own names of types."""
NO_NEED = ("original/", "metal/", "onnx/", "openvino/", "gguf/", "coreml/")
"""Folders of a repository that no engine here loads: gpt-oss has its weights three times."""
NO_NEED_ENDINGS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".onnx", ".gguf", ".tflite")
"""The same weights in other formats, where there are safetensors."""


def is_repo(name: str) -> bool:
    """Whether this can be a repository of the hub's, and not a path."""
    return _REPO.fullmatch(name) is not None and ".." not in name and "--" not in name


def is_revision(name: str) -> bool:
    return _REVISION.fullmatch(name) is not None and ".." not in name


def is_commit(revision: str) -> bool:
    """Whether it names one state for ever, not a branch or a tag."""
    return _COMMIT.fullmatch(revision) is not None


def is_path(name: str) -> bool:
    """Whether a model is named by its place on the nodes; it can then stand in an argv."""
    return name.startswith(("/", "~/")) and name.isprintable() and ".." not in name.split("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One model on one node, in one revision."""

    name: str
    path: str
    """The folder with its config.json: a snapshot of the cache, or a plain folder. Printable, and otherwise exact."""
    folder: str
    """What has to be copied for it: models--ORG--NAME of the cache, or the folder itself."""
    where: str
    """ "cache" or "folder"."""
    revision: str = ""
    """Of the cache: the commit."""
    refs: tuple[str, ...] = ()
    """Branches and tags that mean it there."""
    size_bytes: int = 0
    folder_bytes: int | None = None
    """Of the cache: all revisions, without what is half there."""
    is_complete: bool = True
    missing: tuple[str, ...] = ()
    """What isn't there, as far as it is told."""
    is_writable: bool = True
    facts: ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What one node has."""

    node: str
    cache: str = ""
    """HF_HOME there, or its default."""
    hub: str = ""
    """The folder of models--ORG--NAME."""
    home: str = ""
    has_token: bool = False
    uid: int | None = None
    gid: int | None = None
    free_bytes: int | None = None
    """Of the file system that holds the cache."""
    is_writable: bool = True
    """Whether the user may write into the cache."""
    models: tuple[Found, ...] = ()
    problems: tuple[str, ...] = ()

    def find(self, model: str, revision: str = "") -> Found | None:
        """The model of this name or at this path: the asked revision, complete before incomplete.

        Without a revision "main" is meant, and where nothing says what that is, the newest there.
        """
        if is_path(model):
            path = self.home + model[1:] if model.startswith("~/") else model
            named = [one for one in self.models if path.rstrip("/") in (one.path.rstrip("/"), one.folder.rstrip("/"))]
        else:
            wanted = revision or "main"
            named = [one for one in self.models if one.where == "cache" and one.name.lower() == model.lower()]
            exact = [one for one in named if wanted == one.revision or wanted in one.refs]
            named = exact if exact or revision else named
        return min(named, key=lambda one: not one.is_complete, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    path: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """What the hub says of a model."""

    repo: str
    status: int = 0
    """Of HTTP; 0: the hub gave no answer. 401 and 403: not for this token, 404: no such model or revision."""
    problem: str = ""
    is_gated: bool = False
    revision: str = ""
    """The commit that the asked revision means now."""
    files: tuple[HubFile, ...] = ()
    """All of them; `needed` leaves out what no engine loads."""
    facts: ModelFacts | None = None
    """None where it didn't answer with a model."""

    @property
    def is_there(self) -> bool:
        """Whether it can be downloaded."""
        return self.status == 200

    @property
    def needed(self) -> tuple[HubFile, ...]:
        """The files that are loaded and what belongs to them."""
        has_safetensors = any("/" not in one.path and one.path.endswith(".safetensors") for one in self.files)
        return tuple(
            one
            for one in self.files
            if not one.path.startswith(NO_NEED) and not (has_safetensors and one.path.endswith(NO_NEED_ENDINGS))
        )

    @property
    def size_bytes(self) -> int | None:
        """Of what is needed; None where a size isn't told."""
        sizes = [one.size_bytes for one in self.needed]
        return sum(size for size in sizes if size) if sizes and None not in sizes else None


def disk_of(node: str, answer: object) -> Disk | None:
    """The answer of ModelsOnDisk; None where it is none."""
    if not isinstance(answer, Mapping):
        return None
    rows = answer.get("models")
    found = [_found(node, row) for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return Disk(
        node=node,
        cache=_path(answer.get("cache")),
        hub=_path(answer.get("hub")) or (f"{_path(answer.get('cache'))}/hub" if _path(answer.get("cache")) else ""),
        home=_path(answer.get("home")),
        has_token=answer.get("token") is True,
        uid=_count(answer.get("uid")),
        gid=_count(answer.get("gid")),
        free_bytes=_count(answer.get("free_bytes")),
        is_writable=answer.get("writable") is not False,
        models=tuple(one for one in found if one is not None),
        problems=tuple(sanitise.line(text) for text in _texts(answer.get("problems"))),
    )


def _found(node: str, row: Mapping[str, Any]) -> Found | None:
    name, path = row.get("name"), _path(row.get("path"))
    if not isinstance(name, str) or not name or not path:
        return None
    name = sanitise.name(name)
    size = _count(row.get("size_bytes")) or 0
    revision = _commit(row.get("revision"))
    is_complete = row.get("is_complete") is True
    return Found(
        name=name,
        path=path,
        folder=_path(row.get("folder")) or path,
        where="cache" if row.get("where") == "cache" else "folder",
        revision=revision,
        refs=tuple(_texts(row.get("refs"))),
        size_bytes=size,
        folder_bytes=_count(row.get("folder_bytes")),
        is_complete=is_complete,
        missing=tuple(sanitise.line(text) for text in _texts(row.get("missing"))),
        is_writable=row.get("writable") is not False,
        facts=facts_of(
            name,
            row.get("config"),
            quant_config=row.get("quant_config"),
            weights_bytes=_count(row.get("weights_bytes")),
            size_bytes=size,
            dtypes=row.get("dtypes"),
            revision=revision,
            is_complete=is_complete,
            source=f"its files on {node}",
        ),
    )


def hub_of(repo: str, answer: object) -> Hub:
    """The answer of HubModel."""
    if not isinstance(answer, Mapping):
        return Hub(repo=repo, problem="the hub was not asked")
    status = _count(answer.get("status")) or 0
    rows = answer.get("files")
    files = tuple(
        HubFile(path=row["path"], size_bytes=_count(row.get("size_bytes")))
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and isinstance(row.get("path"), str) and row["path"].isprintable()
    )
    hub = Hub(
        repo=repo,
        status=status,
        problem=sanitise.line(answer["problem"]) if isinstance(answer.get("problem"), str) else "",
        is_gated=answer.get("gated") not in (None, False, "", "false"),
        revision=_commit(answer.get("revision")),
        files=files,
    )
    if not files:
        return hub
    facts = facts_of(
        repo,
        answer.get("config"),
        quant_config=answer.get("quant_config"),
        weights_bytes=_by_parameters(answer.get("parameters")) or _by_files(files),
        size_bytes=hub.size_bytes,
        dtypes=None,
        revision=hub.revision,
        is_complete=True,
        source="the hub",
    )
    return Hub(
        repo=repo,
        status=status,
        problem=hub.problem,
        is_gated=hub.is_gated,
        revision=hub.revision,
        files=files,
        facts=facts,
    )


def facts_of(
    name: str,
    config: object,
    *,
    quant_config: object = None,
    weights_bytes: int | None,
    size_bytes: int | None,
    dtypes: object,
    revision: str,
    is_complete: bool,
    source: str,
) -> ModelFacts:
    """A model's facts from its raw parts.

    Args:
        dtypes: bytes by the tensors' types; they tell fp8 from bf16 where the configuration doesn't.
    """
    config = config if isinstance(config, Mapping) else None
    shape = shape_of(config)
    quantisation = quantisation_of(config, quant_config if isinstance(quant_config, Mapping) else None, name)
    if quantisation in ("", "bf16", "fp16") and _mostly(dtypes).startswith("F8_"):
        quantisation = "fp8"
    return ModelFacts(
        name=name,
        weights_bytes=weights_bytes or None,
        size_bytes=size_bytes or None,
        architecture=sanitise.name(shape.architecture),
        quantisation=sanitise.name(quantisation),
        layers=shape.layers,
        cache_layers=shape.cache_layers,
        kv_heads=shape.kv_heads,
        head_size=shape.head_size,
        latent_size=shape.latent_size,
        window_tokens=shape.window_tokens,
        window_layers=shape.window_layers,
        longest_tokens=shape.longest_tokens,
        is_moe=shape.is_moe,
        revision=revision,
        is_complete=is_complete,
        source=source,
    )


def on_disk(disks: Mapping[str, Disk], wanted: str = "", revision: str = "") -> tuple[OnDisk, ...]:
    """All models of all nodes, each once; what is asked for first, then by name."""
    rows: dict[tuple[str, str, str], list[tuple[str, Found]]] = {}
    for node, disk in disks.items():
        for one in disk.models:
            rows.setdefault((one.name, one.revision, one.where), []).append((node, one))
    found = []
    for (name, _, _), places in rows.items():
        first = places[0][1]
        is_wanted = any(disks[node].find(wanted, revision) is one for node, one in places) if wanted else False
        halves = [node for node, one in places if not one.is_complete]
        found.append(
            OnDisk(
                name=name,
                path=sanitise.line(first.path),
                nodes=tuple(node for node, _ in places),
                size_bytes=max(one.size_bytes for _, one in places),
                quantisation=first.facts.quantisation,
                is_complete=not halves,
                is_wanted=is_wanted,
                note=f"not whole on {', '.join(halves)}" if halves else "",
            )
        )
    return tuple(sorted(found, key=lambda one: (not one.is_wanted, one.name.lower(), one.path)))


# --- values


def _by_parameters(counts: object) -> int | None:
    """Bytes by the hub's count of elements of each type, as it reads them from the headers itself."""
    if not isinstance(counts, Mapping) or not counts:
        return None
    total = 0.0
    for dtype, count in counts.items():
        size, number = _ELEMENT_BYTES.get(str(dtype)), _count(count)
        if size is None or number is None:
            return None
        total += size * number
    return int(total) or None


def _by_files(files: tuple[HubFile, ...]) -> int | None:
    """The sum of the shards: "model..." where the model is there in Mistral's format ("consolidated...") too."""
    shards = [one for one in files if "/" not in one.path and one.path.endswith(".safetensors")]
    usual = [one for one in shards if one.path.startswith("model")]
    other = [one for one in shards if not one.path.startswith("consolidated")]
    sizes = [one.size_bytes for one in usual or other or shards]
    return sum(size for size in sizes if size) or None if None not in sizes else None


def _mostly(dtypes: object) -> str:
    counts = {str(key): _count(size) or 0 for key, size in dtypes.items()} if isinstance(dtypes, Mapping) else {}
    return max(counts, key=lambda key: counts[key]) if counts else ""


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and 0 <= value < 1 << 62 else None


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _path(value: object) -> str:
    """An absolute path that can be shown and given to a program; else none."""
    return value if isinstance(value, str) and value.startswith("/") and value.isprintable() else ""


def _commit(value: object) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{7,64}", value) else ""
