"""Models as the nodes and the hub report them.

Answers from a node or the network are trusted only to be JSON: a field of the wrong type counts as missing. A name goes
into an argv only after `is_repo`, `is_revision` or `is_path` has accepted it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.model.prospect import OnDisk
from sparktop.recipe import gguf
from sparktop.recipe.model_config import ModelFacts, quantisation_of
from sparktop.recipe.model_shape import shape_of
from sparktop.sanitise import items, mapping

_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ELEMENT_BYTES = {
    "F64": 8.0, "I64": 8.0, "F32": 4.0, "I32": 4.0, "U32": 4.0, "BF16": 2.0, "F16": 2.0, "I16": 2.0, "U16": 2.0,
    "F8_E4M3": 1.0, "F8_E5M2": 1.0, "F8_E8M0": 1.0, "I8": 1.0, "U8": 1.0, "BOOL": 1.0, "F4": 0.5,
}  # fmt: skip
"""Bytes per element, by the safetensors format's own type names."""
UNUSED_FOLDERS = ("original/", "metal/", "onnx/", "openvino/", "gguf/", "coreml/")
"""Folders of a repository that no engine here loads: gpt-oss has its weights three times."""
UNUSED_ENDINGS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".onnx", ".gguf", ".tflite")
"""The same weights in other formats, where there are safetensors."""


def is_repo(name: str) -> bool:
    """Whether this can be a repository on the hub, and not a path."""
    return _REPO.fullmatch(name) is not None and ".." not in name and "--" not in name


def is_revision(name: str) -> bool:
    """Whether this can be a branch, a tag or a commit."""
    return _REVISION.fullmatch(name) is not None and ".." not in name


def is_path(name: str) -> bool:
    """Whether this is a model's path on the nodes that is safe in an argv."""
    return name.startswith(("/", "~/")) and name.isprintable() and ".." not in name.split("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCopy:
    """One model on one node, in one revision."""

    name: str
    path: str
    """The folder with its config.json: a snapshot of the cache, or a plain folder. Printable, not shortened."""
    folder: str
    """The folder to copy to have the model elsewhere: models--ORG--NAME of the cache, or the folder itself."""
    where: str
    """ "cache" or "folder"."""
    revision: str = ""
    """The commit, of a model in the cache."""
    refs: tuple[str, ...] = ()
    """Branches and tags that point to this revision there."""
    size_bytes: int = 0
    folder_bytes: int | None = None
    """Of a model in the cache: all its revisions, without incomplete files."""
    partial_bytes: int = 0
    """What its incomplete files take on the disk: a download that goes on from there."""
    is_complete: bool = True
    missing: tuple[str, ...] = ()
    """Names of missing files, where the node reported them."""
    is_writable: bool = True
    facts: ModelFacts
    ggufs: Mapping[str, int | None] = field(default_factory=dict)
    """Name -> bytes of its .gguf files."""
    choice: gguf.Choice | None = None
    """What of them is loaded; None: an engine that reads the whole folder."""

    def of_gguf(self, wanted: gguf.Wanted) -> ModelCopy:
        """The copy as an engine sees it that loads one file of it: whole where that file is there with all its parts,
        whatever else is missing."""
        choice = gguf.choice(self.ggufs, wanted)
        missing = tuple(name for name in choice.files if self.ggufs.get(name, 0) == 0)
        size = sum(self.ggufs.get(name) or 0 for name in choice.files)
        is_complete = bool(choice.files) and not missing
        facts = replace(self.facts, weights_bytes=size or None, size_bytes=size or None, is_complete=is_complete)
        return replace(
            self,
            size_bytes=size,
            folder_bytes=None,
            is_complete=is_complete,
            missing=missing or (() if is_complete else (f"*{wanted.quant}*.gguf".replace("**", "*"),)),
            facts=facts,
            choice=choice,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModels:
    """The models on one node, and its Hugging Face cache."""

    node: str
    cache: str = ""
    """HF_HOME there, or its default."""
    hub: str = ""
    """The folder that holds the models--ORG--NAME folders."""
    home: str = ""
    has_token: bool = False
    uid: int | None = None
    gid: int | None = None
    free_bytes: int | None = None
    """Of the file system that holds the cache."""
    is_writable: bool = True
    """Whether the user may write into the cache."""
    models: tuple[ModelCopy, ...] = ()

    def find(self, model: str, revision: str = "", *, wanted: gguf.Wanted | None = None) -> ModelCopy | None:
        """The model of this name or at this path; complete copies before incomplete ones.

        Without a revision, "main"; where no copy is known to be "main", any revision, in the order the node reported.

        Args:
            wanted: the one file of it that is loaded.
        """
        if is_path(model):
            path = self.home + model[1:] if model.startswith("~/") else model
            candidates = [
                copy for copy in self.models if path.rstrip("/") in (copy.path.rstrip("/"), copy.folder.rstrip("/"))
            ]
        else:
            branch = revision or "main"
            candidates = [copy for copy in self.models if copy.where == "cache" and copy.name.lower() == model.lower()]
            exact = [copy for copy in candidates if branch == copy.revision or branch in copy.refs]
            candidates = exact if exact or revision else candidates
            candidates = [copy.of_gguf(wanted) for copy in candidates] if wanted is not None else candidates
        return min(candidates, key=lambda copy: not copy.is_complete, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    path: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubListing:
    """The hub's answer about a model."""

    status: int = 0
    """HTTP status; 0: the hub did not answer. 401 and 403: this token has no access, 404: no such model or revision."""
    problem: str = ""
    is_gated: bool = False
    revision: str = ""
    """The commit that the requested revision points to now."""
    files: tuple[HubFile, ...] = ()
    """All files; `needed` leaves out what no engine loads."""
    facts: ModelFacts | None = None
    """None where the hub's answer was no model."""
    choice: gguf.Choice | None = None
    """The .gguf files that are loaded; None: an engine that reads the whole folder."""

    def of_gguf(self, wanted: gguf.Wanted) -> HubListing:
        """The listing for an engine that loads one file of it."""
        if not self.is_there:
            return self
        sizes = {file.path: file.size_bytes for file in self.files}
        choice = gguf.lacks(gguf.choice(sizes, wanted), sizes)
        known = [size for name in choice.files if (size := sizes.get(name)) is not None]
        size = sum(known) if choice.files and len(known) == len(choice.files) else None
        facts = replace(self.facts, weights_bytes=size, size_bytes=size) if self.facts is not None else None
        return replace(self, facts=facts, choice=choice)

    @property
    def is_there(self) -> bool:
        """Whether it can be downloaded."""
        return self.status == 200

    @property
    def needed(self) -> tuple[HubFile, ...]:
        """The files an engine loads, with their configuration."""
        if self.choice is not None:
            return tuple(file for file in self.files if file.path in (*self.choice.files, "config.json"))
        has_safetensors = any("/" not in file.path and file.path.endswith(".safetensors") for file in self.files)
        return tuple(
            file
            for file in self.files
            if not file.path.startswith(UNUSED_FOLDERS) and not (has_safetensors and file.path.endswith(UNUSED_ENDINGS))
        )

    @property
    def size_bytes(self) -> int | None:
        """Size of the needed files; None where one of them is unknown."""
        sizes = [file.size_bytes for file in self.needed]
        return sum(size for size in sizes if size) if sizes and None not in sizes else None


def node_models_of(node: str, answer: object) -> NodeModels | None:
    """Parse a node's ModelsOnDisk answer; None where it is none."""
    if not isinstance(answer, Mapping):
        return None
    cache = _absolute_path(answer.get("cache"))
    copies = (_model_copy(mapping(row)) for row in items(answer.get("models")))
    return NodeModels(
        node=node,
        cache=cache,
        hub=_absolute_path(answer.get("hub")) or (f"{cache}/hub" if cache else ""),
        home=_absolute_path(answer.get("home")),
        has_token=answer.get("token") is True,
        uid=_count(answer.get("uid")),
        gid=_count(answer.get("gid")),
        free_bytes=_count(answer.get("free_bytes")),
        is_writable=answer.get("writable") is not False,
        models=tuple(filter(None, copies)),
    )


def _model_copy(row: Mapping[str, Any]) -> ModelCopy | None:
    name, path = row.get("name"), _absolute_path(row.get("path"))
    if not isinstance(name, str) or not name or not path:
        return None
    name = sanitise.name(name)
    size = _count(row.get("size_bytes")) or 0
    revision = _commit(row.get("revision"))
    is_complete = row.get("is_complete") is True
    return ModelCopy(
        name=name,
        path=path,
        folder=_absolute_path(row.get("folder")) or path,
        where="cache" if row.get("where") == "cache" else "folder",
        revision=revision,
        refs=tuple(_strings(row.get("refs"))),
        size_bytes=size,
        folder_bytes=_count(row.get("folder_bytes")),
        partial_bytes=_count(row.get("partial_bytes")) or 0,
        is_complete=is_complete,
        missing=tuple(sanitise.line(text) for text in _strings(row.get("missing"))),
        is_writable=row.get("writable") is not False,
        facts=facts_of(
            name,
            row.get("config"),
            quant_config=row.get("quant_config"),
            weights_bytes=_count(row.get("weights_bytes")),
            size_bytes=size,
            dtypes=row.get("dtypes"),
            is_complete=is_complete,
        ),
        ggufs={str(name): _count(size) for name, size in mapping(row.get("ggufs")).items()},
    )


def hub_listing_of(repo: str, answer: object) -> HubListing:
    """Parse a HubModel answer."""
    if not isinstance(answer, Mapping):
        return HubListing(problem="sparktop has not asked the hub")
    files = tuple(
        HubFile(path=path, size_bytes=_count(row.get("size_bytes")))
        for row in map(mapping, items(answer.get("files")))
        if isinstance(path := row.get("path"), str) and path.isprintable()
    )
    hub = HubListing(
        status=_count(answer.get("status")) or 0,
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
        weights_bytes=_bytes_by_parameters(answer.get("parameters")) or _bytes_by_shards(files),
        size_bytes=hub.size_bytes,
    )
    return replace(hub, facts=facts)


def facts_of(
    name: str,
    config: object,
    *,
    quant_config: object = None,
    weights_bytes: int | None,
    size_bytes: int | None,
    dtypes: object = None,
    is_complete: bool = True,
) -> ModelFacts:
    """A model's facts from its raw configuration and sizes.

    Args:
        dtypes: bytes per tensor type; they tell fp8 from bf16 where the configuration doesn't.
    """
    quantisation = quantisation_of(mapping(config), mapping(quant_config), name)
    if quantisation in ("", "bf16", "fp16") and _most_common_dtype(dtypes).startswith("F8_"):
        quantisation = "fp8"
    return ModelFacts(
        name=name,
        weights_bytes=weights_bytes or None,
        size_bytes=size_bytes or None,
        quantisation=sanitise.name(quantisation),
        is_complete=is_complete,
        **asdict(shape_of(mapping(config))),
    )


def on_disk(disks: Mapping[str, NodeModels]) -> tuple[OnDisk, ...]:
    """All models on all nodes, each once."""
    copies_by_node: dict[tuple[str, str, str], dict[str, ModelCopy]] = {}
    for node, disk in disks.items():
        for copy in disk.models:
            copies_by_node.setdefault((copy.name, copy.revision, copy.where), {})[node] = copy
    return tuple(_merged(copies) for copies in copies_by_node.values())


def _merged(copies: Mapping[str, ModelCopy]) -> OnDisk:
    first = next(iter(copies.values()))
    return OnDisk(
        name=first.name,
        path=sanitise.line(first.path),
        nodes=tuple(copies),
        size_bytes=max(copy.size_bytes for copy in copies.values()),
        quantisation=first.facts.quantisation,
        is_complete=all(copy.is_complete for copy in copies.values()),
    )


# --- values


def _bytes_by_parameters(counts: object) -> int | None:
    """Bytes from the hub's count of elements per type, which it reads from the safetensors headers."""
    known = [(_ELEMENT_BYTES.get(str(dtype)), _count(count)) for dtype, count in mapping(counts).items()]
    sizes = [size * count for size, count in known if size is not None and count is not None]
    return int(sum(sizes)) or None if len(sizes) == len(known) else None


def _bytes_by_shards(files: tuple[HubFile, ...]) -> int | None:
    """Sum of the shards: only "model..." where the repository also has Mistral's "consolidated..."."""
    shards = [shard for shard in files if "/" not in shard.path and shard.path.endswith(".safetensors")]
    transformers_shards = [shard for shard in shards if shard.path.startswith("model")]
    other_shards = [shard for shard in shards if not shard.path.startswith("consolidated")]
    sizes = [shard.size_bytes for shard in transformers_shards or other_shards or shards]
    return sum(size for size in sizes if size) or None if None not in sizes else None


def _most_common_dtype(dtypes: object) -> str:
    """The type that holds most bytes; empty where there is none."""
    counts = {str(key): _count(size) or 0 for key, size in mapping(dtypes).items()}
    return max(counts, key=lambda key: counts[key], default="")


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and 0 <= value < 1 << 62 else None


def _strings(value: object) -> list[str]:
    return [item for item in items(value) if isinstance(item, str)]


def _absolute_path(value: object) -> str:
    """An absolute path that is safe to show and to pass to a program; else empty."""
    return value if isinstance(value, str) and value.startswith("/") and value.isprintable() else ""


def _commit(value: object) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{7,64}", value) else ""
