"""The runner: which models lie on this machine's disk (the rest: `runner`).

Only names, sizes, config.json, indexes and the headers of safetensors are read, each within a bound; no weight is.
Engines see what lies in the folder that is mounted for them: a link that leads out of it counts as missing, but for the
cache's own, from a snapshot to its blobs (huggingface.co/docs/huggingface_hub/how-to-cache).
"""

from __future__ import annotations

import json
import os
import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Words = dict[str, Any]
if __name__ != "sparktop_runner":  # on a Spark this text runs among the runner's own names
    from sparktop.probe.runner_weights import by_stem, header_of, index_of, shortened, text_of_file

MODELS_AT_MOST = 200
SNAPSHOTS_AT_MOST = 3
FILES_AT_MOST = 4000
FOLDERS_AT_MOST = 2000
CONFIG_BYTES = 256 * 1024
CONFIGS_BYTES = 2 << 20
"""Of all together, as they are sent."""
SHARDS_AT_MOST = 512
MISSING_TOLD = 20
USUAL_FOLDERS = ("~/models", "~/Models", "/models", "/data/models")
CONFIG_NAMES = ("config.json", "params.json")
"""params.json: what Mistral's own format has in its place."""
_PART_OF = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class ModelFolders:
    """One look through the folders."""

    def __init__(self, roots: Iterable[str], seconds: float) -> None:
        self.until = time.monotonic() + seconds * 0.9
        self.roots = [os.path.abspath(os.path.expanduser(root)) for root in roots]
        self.models: list[Words] = []
        self.weights: list[dict[str, str]] = []
        """Of each model: what is loaded, and its real path."""
        self.problems: list[str] = []
        self.seen: set[str] = set()
        """Folders that were looked through."""
        self.taken: set[str] = set()
        self.config_room = CONFIGS_BYTES

    def answer(self) -> Words:
        home = os.path.expanduser("~")
        cache, hub, others = hub_folders(os.environ)
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
        """Of what is in it and can be named in an answer, sorted."""
        try:
            found = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.problem(f"{folder} can't be read: {error.strerror}")
            return []
        return sorted(name for name in found if not any("\udc80" <= sign <= "\udcff" for sign in name))

    # where models lie

    def cache(self, hub: str) -> None:
        """The folder that holds models--ORG--NAME."""
        real = os.path.realpath(hub)
        if real in self.seen:
            return
        self.seen.add(real)
        for name in self.names(real):
            if name.startswith("models--"):
                self.cached(hub, name)

    def root(self, folder: str) -> None:
        """A model, a folder of them, or of folders of them; a cache lies among them where it was put there."""
        real = os.path.realpath(folder)
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
                    self.problem(f"{folder} holds more than was looked through")
                    return
                inmost = os.path.join(inside, inner)
                if not inner.startswith(".") and self.is_folder_in(inmost, real) and self.is_model(inmost):
                    self.plain(os.path.join(folder, name, inner), f"{name}/{inner}", real)

    def is_folder_in(self, path: str, real: str) -> bool:
        if not os.path.isdir(path):
            return False
        inside = is_within(os.path.realpath(path), real)
        if not inside:
            self.problem(f"{path} is a link that leads out of {real}: left out, engines would not see it")
        return inside

    def is_model(self, folder: str) -> bool:
        names = self.names(folder)
        return any(name in names for name in CONFIG_NAMES) and any(name.endswith(".safetensors") for name in names)

    # what they are

    def cached(self, hub: str, name: str) -> None:
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
        # "<etag>.incomplete", of newer versions "<etag>.<8 hex>.incomplete": what was cut off there stays, and means
        # nothing any more where the blob itself has come since.
        begun = [one for one in blobs if one.endswith(".incomplete") and one.partition(".")[0] not in blobs]
        whole = sum(size_of(os.path.join(folder, "blobs", one)) for one in blobs if not one.endswith(".incomplete"))
        snapshots = [
            one for one in self.names(os.path.join(folder, "snapshots")) if os.path.isdir(f"{folder}/snapshots/{one}")
        ]
        main = refs.get("main")
        snapshots.sort(key=lambda one: (one != main, -changed_at(f"{folder}/snapshots/{one}")))
        for snapshot in snapshots[:SNAPSHOTS_AT_MOST]:
            self.add(
                repo, os.path.join(hub, name, "snapshots", snapshot), real_hub,
                where="cache", revision=snapshot, folder=os.path.join(hub, name), folder_bytes=whole, begun=begun,
                refs=sorted(ref for ref, commit in refs.items() if commit == snapshot),
            )  # fmt: skip
        if not snapshots and (blobs or refs):
            self.add(
                repo, os.path.join(hub, name), real_hub,
                where="cache", revision=main or "", refs=sorted(refs), folder=os.path.join(hub, name),
                folder_bytes=whole, begun=begun or ["everything"], is_empty=True,
            )  # fmt: skip

    def plain(self, path: str, name: str, real_root: str) -> None:
        begun = [
            found for found, _ in self.walk(os.path.join(path, ".cache/huggingface/download"), depth=4)
            if found.endswith(".incomplete")
        ]  # fmt: skip
        self.add(name, path, real_root, where="folder", revision="", refs=[], folder=path, begun=begun)

    def add(
        self, name: str, path: str, real_root: str, *, where: str, revision: str, refs: list[str], folder: str,
        begun: list[str], folder_bytes: int | None = None, is_empty: bool = False,
    ) -> None:  # fmt: skip
        if len(self.models) >= MODELS_AT_MOST or self.late():
            self.problem("there are more models than were looked at")
            return
        real = os.path.realpath(path)
        if real in self.taken:
            return
        self.taken.add(real)
        files, missing = {}, []
        for found, at in [] if is_empty else self.walk(path, depth=4):
            target = os.path.realpath(at)
            if is_within(target, real_root) and os.path.isfile(target):
                files[found] = target
            else:
                missing.append(found)
        shards, total = self.shards(files)
        missing += [shard for shard in shards if shard not in files and shard not in missing]
        if not shards and not is_empty:
            others = [found for found in files if found.endswith((".gguf", ".bin", ".pt"))]
            missing += [] if others else ["*.safetensors"]
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
            "folder_bytes": folder_bytes, "is_complete": not missing, "missing": sorted(missing)[:MISSING_TOLD],
            "config": config, "config_name": config_name if config is not None else "",
            "quant_config": self.json_of(files.get("hf_quant_config.json")),
            "weights_bytes": total or sum(size_of(one) for one in weights.values()) or None,
            "weights_from": "index" if total else "files", "dtypes": {}, "unread": len(weights),
            "writable": os.access(os.path.realpath(folder), os.W_OK | os.X_OK)
            and (where != "cache" or writable_below(os.path.realpath(folder))),
        })  # fmt: skip
        self.weights.append(weights)

    def walk(self, folder: str, *, depth: int) -> list[tuple[str, str]]:
        """(relative name, path) of the files below; folders that are links are not gone into."""
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
        """Which files hold what is loaded, and the size of it by the index. Where a model lies in two formats, that of
        "model" is loaded and not that of "consolidated"."""
        tops = [name for name in files if "/" not in name]
        indexes = sorted((name for name in tops if name.endswith(".safetensors.index.json")), key=by_stem)
        if indexes:
            named, total = index_of(files[indexes[0]])
            if named:
                return named[:SHARDS_AT_MOST], total
        there = sorted(name for name in tops if name.endswith(".safetensors"))
        stems = {by_stem(name)[0] for name in there}
        wanted = [name for name in there if by_stem(name)[0] == min(stems)]
        for found in [match for match in map(_PART_OF.fullmatch, wanted) if match]:
            parts = min(int(found.group(3)), SHARDS_AT_MOST)
            wanted += [f"{found.group(1)}-{part:05}-of-{found.group(3)}.safetensors" for part in range(1, parts + 1)]
        return sorted(set(wanted))[:SHARDS_AT_MOST], None

    def json_of(self, path: str | None) -> Words | None:
        """A small file's object, without its long lists; None where there is none, or it can't be told whole."""
        text = text_of_file(path, CONFIG_BYTES) if path else None
        if text is None:
            return None
        try:
            found = shortened(json.loads(text))
        except (ValueError, RecursionError):
            self.problem(f"{path} is no JSON")
            return None
        size = len(json.dumps(found))
        if not isinstance(found, dict) or size > self.config_room:
            return None
        self.config_room -= size
        return found

    def read_headers(self) -> None:
        """The tensors' sizes, of as many models as there is time for, what is complete first; a file that is shorter
        than its header says is a damaged one."""
        both = zip(self.models, self.weights)  # noqa: B905 - as many of the one as of the other
        for model, weights in sorted(both, key=lambda pair: not pair[0]["is_complete"]):
            dtypes: dict[str, int] = {}
            unread = len(weights)
            for name, path in weights.items():
                if self.late():
                    self.problem("not every file's header was read: there was no time")
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
    """(the cache, the folder of models in it, further ones), by the variables of huggingface_hub; what the user's
    login shell sets is not seen here."""
    usual = os.path.expanduser("~/.cache/huggingface")
    home = environment.get("HF_HOME") or os.path.join(environment.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = os.path.abspath(os.path.expanduser(home))
    hub = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or os.path.join(cache, "hub")
    hub = os.path.abspath(os.path.expanduser(hub))
    return cache, hub, [os.path.join(cache, "hub"), os.path.join(usual, "hub")]


def node_token(environment: Any) -> str:
    """As huggingface_hub finds it; never told, only used here."""
    given = (environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN") or "").strip()
    path = environment.get("HF_TOKEN_PATH") or os.path.join(hub_folders(environment)[0], "token")
    text = text_of_file(os.path.expanduser(path), 4096)
    return given or (text or b"").decode("ascii", "ignore").strip()


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def writable_below(folder: str) -> bool:
    """A container that ran as root leaves folders of root's in a user's cache."""
    inner = [os.path.join(folder, name) for name in ("blobs", "refs", "snapshots")]
    return all(os.access(one, os.W_OK | os.X_OK) for one in inner if os.path.isdir(one))
