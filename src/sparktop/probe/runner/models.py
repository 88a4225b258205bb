"""The models on this machine's disk.

Only names, sizes, config.json, indexes and headers of safetensors are read, each within a bound, and no weights.
An engine sees only the folder that is mounted for it: a link that leads out of that folder counts as missing, except
the cache's own links from a snapshot to its blobs (huggingface.co/docs/huggingface_hub/how-to-cache).
"""

from __future__ import annotations

import json
import os
import re
import time

from sparktop.probe.runner.weights import by_stem, header_of, index_of, shortened, text_of_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Words = dict[str, Any]

MODELS_AT_MOST = 200
SNAPSHOTS_AT_MOST = 3
FILES_AT_MOST = 4000
FOLDERS_AT_MOST = 2000
CONFIG_BYTES = 256 * 1024
CONFIGS_BYTES = 2 << 20
"""Of all configs together, as they are sent."""
SHARDS_AT_MOST = 512
GGUFS_AT_MOST = 4000
"""Of all models together."""
MISSING_TOLD = 20
USUAL_FOLDERS = ("~/models", "~/Models", "/models", "/data/models")
CONFIG_NAMES = ("config.json", "params.json")
"""params.json is config.json in Mistral's own format."""
_PART_OF = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
_FIRST_GGUF = re.compile(r"(.*)-00001-of-(\d{5})\.gguf")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class ModelFolders:
    """One search of the folders for models."""

    def __init__(self, roots: Iterable[str], seconds: float, cache: str = "") -> None:
        """`cache`: the hub's, where it isn't the user's own."""
        self.own = {"HF_HOME": cache} if cache else os.environ
        self.until = time.monotonic() + seconds * 0.9
        self.roots = [os.path.abspath(os.path.expanduser(root)) for root in roots]
        self.models: list[Words] = []
        self.weights: list[dict[str, str]] = []
        """Of each model: the files an engine loads, with their real paths."""
        self.problems: list[str] = []
        self.seen: set[str] = set()
        """Real paths of folders already searched."""
        self.taken: set[str] = set()
        """Real paths of models already listed."""
        self.config_room = CONFIGS_BYTES

    def answer(self) -> Words:
        """The answer to a `models` question."""
        home = os.path.expanduser("~")
        cache, hub, others = hub_folders(self.own)
        for folder in dict.fromkeys((hub, *others)):
            self.cache(folder)
        for folder in dict.fromkeys((*self.roots, *(os.path.expanduser(usual) for usual in USUAL_FOLDERS))):
            self.root(folder)
        self.read_headers()
        there = hub
        while not os.path.exists(there) and there != "/":
            there = os.path.dirname(there)
        try:
            disk = os.statvfs(there)
            free = disk.f_bavail * disk.f_frsize
        except OSError:
            free = None
        return {
            "cache": cache, "hub": hub, "home": home, "token": bool(node_token(os.environ)), "models": self.models,
            "problems": self.problems[:MISSING_TOLD], "uid": os.getuid(), "gid": os.getgid(), "free_bytes": free,
            "writable": os.access(there, os.W_OK | os.X_OK),
        }  # fmt: skip

    def late(self) -> bool:
        return time.monotonic() > self.until

    def problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder, without those that aren't UTF-8."""
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.problem(f"{folder} can't be read: {error.strerror}")
            return []
        return sorted(name for name in names if not any("\udc80" <= char <= "\udcff" for char in name))

    # where models lie

    def cache(self, hub: str) -> None:
        """Search a hub's cache, a folder of models--ORG--NAME."""
        real = os.path.realpath(hub)
        if real in self.seen:
            return
        self.seen.add(real)
        for name in self.names(real):
            if name.startswith("models--"):
                self.cached(hub, name)

    def root(self, folder: str) -> None:
        """Search a folder that is a model, or holds models or folders of models; a hub's cache may be among them."""
        real = os.path.realpath(folder)
        if folder.lower().endswith(".gguf") and os.path.isfile(real):
            self.file(folder)
            return
        if real in self.seen or not os.path.isdir(real):
            return
        self.seen.add(real)
        if self.is_model(real):
            self.plain(folder, os.path.basename(folder), real)
            return
        left = FOLDERS_AT_MOST
        for name in self.names(real):
            if name.startswith("models--"):
                self.cached(folder, name)
                continue
            if name == "hub" and any(inner.startswith("models--") for inner in self.names(os.path.join(real, name))):
                self.cache(os.path.join(folder, name))
                continue
            inside = os.path.join(real, name)
            if name.startswith(".") or not self.is_folder_in(inside, real):
                continue
            if self.is_model(inside):
                self.plain(os.path.join(folder, name), name, real)
                continue
            for inner in self.names(inside):
                left -= 1
                if left < 0 or self.late():
                    self.problem(f"{folder} has more entries than sparktop reads")
                    return
                inmost = os.path.join(inside, inner)
                if not inner.startswith(".") and self.is_folder_in(inmost, real) and self.is_model(inmost):
                    self.plain(os.path.join(folder, name, inner), f"{name}/{inner}", real)

    def is_folder_in(self, path: str, real: str) -> bool:
        """Whether a path is a folder inside `real`, links followed."""
        if not os.path.isdir(path):
            return False
        inside = is_within(os.path.realpath(path), real)
        if not inside:
            self.problem(f"{path} is a link out of {real}: ignored, because engines can't see its target")
        return inside

    def is_model(self, folder: str) -> bool:
        names = self.names(folder)
        return any(name in names for name in CONFIG_NAMES) and any(name.endswith(".safetensors") for name in names)

    # what a model consists of

    def cached(self, hub: str, name: str) -> None:
        """Add the snapshots of a model in a hub's cache."""
        real_hub = os.path.realpath(hub)
        folder = os.path.join(real_hub, name)
        if not self.is_folder_in(folder, real_hub):
            return
        repo = name[len("models--") :].replace("--", "/", 1)
        refs = {}
        for ref, path in self.walk(os.path.join(folder, "refs"), depth=3):
            commit = (text_of_file(path, 128) or b"").decode("ascii", "replace").strip()
            if _COMMIT.fullmatch(commit):
                refs[ref] = commit
        blobs = self.names(os.path.join(folder, "blobs"))
        # "<etag>.incomplete", in newer versions "<etag>.<8 hex>.incomplete": an interrupted download leaves it behind,
        # even when the blob itself was fetched later.
        begun = [blob for blob in blobs if blob.endswith(".incomplete") and blob.partition(".")[0] not in blobs]
        partial = sum(held_by(os.path.join(folder, "blobs", blob)) for blob in begun)
        whole = sum(size_of(os.path.join(folder, "blobs", blob)) for blob in blobs if not blob.endswith(".incomplete"))
        snapshots = [name for name in self.names(f"{folder}/snapshots") if os.path.isdir(f"{folder}/snapshots/{name}")]
        main = refs.get("main")
        snapshots.sort(key=lambda commit: (commit != main, -changed_at(f"{folder}/snapshots/{commit}")))
        for snapshot in snapshots[:SNAPSHOTS_AT_MOST]:
            self.add(
                repo, os.path.join(hub, name, "snapshots", snapshot), real_hub,
                where="cache", revision=snapshot, folder=os.path.join(hub, name), folder_bytes=whole, begun=begun,
                partial_bytes=partial,
                refs=sorted(ref for ref, commit in refs.items() if commit == snapshot),
            )  # fmt: skip
        if not snapshots and (blobs or refs):
            self.add(
                repo, os.path.join(hub, name), real_hub,
                where="cache", revision=main or "", refs=sorted(refs), folder=os.path.join(hub, name),
                folder_bytes=whole, begun=begun or ["everything"], partial_bytes=partial, is_empty=True,
            )  # fmt: skip

    def plain(self, path: str, name: str, real_root: str) -> None:
        """Add a model that lies in a folder of its own."""
        begun = {
            file: at for file, at in self.walk(os.path.join(path, ".cache/huggingface/download"), depth=4)
            if file.endswith(".incomplete")
        }  # fmt: skip
        self.add(
            name, path, real_root, where="folder", revision="", refs=[], folder=path, begun=list(begun),
            partial_bytes=sum(map(held_by, begun.values())),
        )  # fmt: skip

    def file(self, path: str) -> None:
        """Add a model that is one .gguf file, or its first part: its folder is what an engine's container sees."""
        folder = os.path.realpath(os.path.dirname(path))
        self.add(
            os.path.basename(path), path, folder, where="folder", revision="", refs=[], folder=path, begun=[],
            partial_bytes=0,
        )  # fmt: skip

    def add(
        self, name: str, path: str, real_root: str, *, where: str, revision: str, refs: list[str], folder: str,
        begun: list[str], partial_bytes: int, folder_bytes: int | None = None, is_empty: bool = False,
    ) -> None:  # fmt: skip
        if len(self.models) >= MODELS_AT_MOST or self.late():
            self.problem("there are more models than sparktop reads")
            return
        real = os.path.realpath(path)
        if real in self.taken:
            return
        self.taken.add(real)
        files, missing = {}, []
        walked = self.walk(path, depth=4) if os.path.isdir(path) else with_parts(path)
        for file, at in [] if is_empty else walked:
            target = os.path.realpath(at)
            if is_within(target, real_root) and os.path.isfile(target):
                files[file] = target
            else:
                missing.append(file)
        shards, total = self.shards(files)
        missing += [shard for shard in shards if shard not in files and shard not in missing]
        if not shards and not is_empty:
            others = [file for file in files if file.endswith((".gguf", ".bin", ".pt"))]
            missing += [] if others or missing else ["*.safetensors"]
        room = GGUFS_AT_MOST - sum(len(model["ggufs"]) for model in self.models)
        ggufs = sorted(file for file in files if file.lower().endswith(".gguf"))[:room]
        missing += begun
        config, config_name = None, ""
        for config_name in CONFIG_NAMES:
            config = self.json_of(files.get(config_name))
            if config is not None:
                break
        weights = {shard: files[shard] for shard in shards if shard in files}
        self.models.append({
            "name": name, "path": path, "where": where, "revision": revision, "refs": refs, "folder": folder,
            "size_bytes": sum(size_of(target) for target in set(files.values())),
            "folder_bytes": folder_bytes, "partial_bytes": partial_bytes,
            "is_complete": not missing, "missing": sorted(missing)[:MISSING_TOLD],
            "config": config, "config_name": config_name if config is not None else "",
            "quant_config": self.json_of(files.get("hf_quant_config.json")),
            "weights_bytes": total or sum(size_of(file) for file in weights.values()) or None,
            "ggufs": {file: size_of(files[file]) for file in ggufs},
            "weights_from": "index" if total else "files", "dtypes": {}, "unread": len(weights),
            "writable": os.access(os.path.realpath(folder), os.W_OK | os.X_OK)
            and (where != "cache" or writable_below(os.path.realpath(folder))),
        })  # fmt: skip
        self.weights.append(weights)

    def walk(self, folder: str, *, depth: int) -> list[tuple[str, str]]:
        """(relative name, path) of the files below a folder; folders that are links are not entered."""
        found: list[tuple[str, str]] = []
        waiting = [("", folder)]
        while waiting and len(found) < FILES_AT_MOST:
            prefix, at = waiting.pop()
            for name in self.names(at):
                path = os.path.join(at, name)
                if os.path.isdir(path):
                    if not os.path.islink(path) and prefix.count("/") < depth - 1 and not name.startswith("."):
                        waiting.append((f"{prefix}{name}/", path))
                else:
                    found.append((prefix + name, path))
        return found[:FILES_AT_MOST]

    def shards(self, files: dict[str, str]) -> tuple[list[str], int | None]:
        """(files an engine loads, their size by the index). Of a model in two formats, engines load "model..." and not
        "consolidated..."."""
        tops = [name for name in files if "/" not in name]
        indexes = sorted((name for name in tops if name.endswith(".safetensors.index.json")), key=by_stem)
        if indexes:
            named, total = index_of(files[indexes[0]])
            if named:
                return named[:SHARDS_AT_MOST], total
        present = sorted(name for name in tops if name.endswith(".safetensors"))
        stems = {by_stem(name)[0] for name in present}
        loaded = [name for name in present if by_stem(name)[0] == min(stems)]
        for match in [match for match in map(_PART_OF.fullmatch, loaded) if match]:
            parts = min(int(match.group(3)), SHARDS_AT_MOST)
            loaded += [f"{match.group(1)}-{part:05}-of-{match.group(3)}.safetensors" for part in range(1, parts + 1)]
        return sorted(set(loaded))[:SHARDS_AT_MOST], None

    def json_of(self, path: str | None) -> Words | None:
        """A small file's JSON object, shortened; None where there is none, or it is too long to send."""
        text = text_of_file(path, CONFIG_BYTES) if path else None
        if text is None:
            return None
        try:
            config = shortened(json.loads(text))
        except (ValueError, RecursionError):
            self.problem(f"{path} is not JSON")
            return None
        size = len(json.dumps(config))
        if not isinstance(config, dict) or size > self.config_room:
            return None
        self.config_room -= size
        return config

    def read_headers(self) -> None:
        """Read the sizes of tensors, of complete models first and of as many as time allows. A file shorter than its
        header says is damaged."""
        both = zip(self.models, self.weights)  # noqa: B905 - they are equally long
        for model, weights in sorted(both, key=lambda pair: not pair[0]["is_complete"]):
            dtypes: dict[str, int] = {}
            unread = len(weights)
            for name, path in weights.items():
                if self.late():
                    self.problem("some file headers are unread: the time ran out")
                    break
                sizes, ends = header_of(path)
                if sizes is None:
                    continue
                unread -= 1
                for dtype, size in sizes.items():
                    dtypes[dtype] = dtypes.get(dtype, 0) + size
                if size_of(path) < ends:
                    model["is_complete"] = False
                    model["missing"] = [*model["missing"], f"the end of {name}"][:MISSING_TOLD]
            model["unread"] = unread
            if weights and not unread and not any(shard.endswith(".safetensors") for shard in model["missing"]):
                model["dtypes"], model["weights_bytes"], model["weights_from"] = dtypes, sum(dtypes.values()), "headers"


# --- files ------------------------------------------------------------------------------------------------------------


def hub_folders(environment: Any) -> tuple[str, str, list[str]]:
    """(cache, its folder of models, other folders of models), by huggingface_hub's variables; those that only the
    user's login shell sets aren't seen."""
    usual = os.path.expanduser("~/.cache/huggingface")
    home = environment.get("HF_HOME") or os.path.join(environment.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = os.path.abspath(os.path.expanduser(home))
    hub = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or os.path.join(cache, "hub")
    hub = os.path.abspath(os.path.expanduser(hub))
    return cache, hub, [os.path.join(cache, "hub"), os.path.join(usual, "hub")]


def node_token(environment: Any) -> str:
    """The hub's token on this machine, found as huggingface_hub does; it is used here and never sent to the console."""
    given = (environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN") or "").strip()
    path = environment.get("HF_TOKEN_PATH") or os.path.join(hub_folders(environment)[0], "token")
    text = text_of_file(os.path.expanduser(path), 4096)
    return given or (text or b"").decode("ascii", "ignore").strip()


def with_parts(path: str) -> list[tuple[str, str]]:
    """(name, path) of a .gguf file and, where it is the first of several, of all its parts."""
    match = _FIRST_GGUF.fullmatch(path)
    last = min(int(match.group(2)), SHARDS_AT_MOST) if match else 0
    parts = [f"{match.group(1)}-{part:05}-of-{match.group(2)}.gguf" for part in range(1, last + 1)] if match else [path]
    return [(os.path.basename(part), part) for part in parts]


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def held_by(path: str) -> int:
    """Bytes that a file takes on the disk: a download may reserve its whole length first."""
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0


def changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def writable_below(folder: str) -> bool:
    """Whether this user may write below a cached model: a container that ran as root leaves root's folders there."""
    inner = [os.path.join(folder, name) for name in ("blobs", "refs", "snapshots")]
    return all(os.access(path, os.W_OK | os.X_OK) for path in inner if os.path.isdir(path))
