"""Models on a disk as huggingface_hub, `hf download --local-dir`, rsync and people leave them there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hub import index_of, safetensors
from tests.runner_support import NODE, bench

from sparktop.model.survey import ModelsOnDisk
from sparktop.probe.runner import models as models_on_disk
from sparktop.probe.runner import weights as weights_part
from sparktop.recipe.models import node_models_of

COMMIT = "a" * 40
OTHER = "b" * 40
SHARDS = {"model-00001-of-00002.safetensors": {"a": 4096}, "model-00002-of-00002.safetensors": {"b": 2048}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's, with nothing in it, and no folder of models outside."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(models_on_disk, "USUAL_FOLDERS", ("~/models",))
    return tmp_path


def cached(home: Path, repo: str, files: dict[str, bytes], *, commit: str = COMMIT, ref: str = "main") -> Path:
    """As huggingface_hub lays it out; the folder models--ORG--NAME."""
    folder = home / ".cache/huggingface/hub" / f"models--{repo.replace('/', '--')}"
    for name, data in files.items():
        blob = folder / "blobs" / f"{len(data):08x}{abs(hash(data)):016x}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if ref:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / ref).write_text(commit)
    return folder


def whole(config: dict[str, Any] | None = None) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(config or {"model_type": "qwen3"}).encode(),
        "model.safetensors.index.json": index_of(SHARDS),
        **{name: safetensors(tensors) for name, tensors in SHARDS.items()},
    }


def looked(*roots: str | Path, seconds: float = 20.0) -> dict[str, Any]:
    said = models_on_disk.ModelFolders([str(root) for root in roots], seconds).answer()
    again: dict[str, Any] = json.loads(json.dumps(said))
    return again


def only(said: dict[str, Any]) -> dict[str, Any]:
    assert len(said["models"]) == 1, said["models"]
    model: dict[str, Any] = said["models"][0]
    return model


def test_a_whole_model_in_the_cache(home: Path) -> None:
    folder = cached(home, "Qwen/Qwen3-0.6B", whole({"num_hidden_layers": 28}))
    (home / ".cache/huggingface/token").write_text("hf_secret\n")
    said = looked()
    model = only(said)
    assert (said["cache"], said["home"], said["token"]) == (str(home / ".cache/huggingface"), str(home), True)
    assert "hf_secret" not in json.dumps(said)
    assert (model["name"], model["revision"], model["refs"]) == ("Qwen/Qwen3-0.6B", COMMIT, ["main"])
    assert model["path"] == str(folder / "snapshots" / COMMIT)
    assert (model["is_complete"], model["missing"], model["writable"]) == (True, [], True)
    assert model["config"] == {"num_hidden_layers": 28}
    assert (model["weights_bytes"], model["weights_from"], model["dtypes"]) == (6144, "headers", {"BF16": 6144})
    size = sum(map(len, whole({"num_hidden_layers": 28}).values()))
    assert (model["size_bytes"], model["folder_bytes"]) == (size, size)


def test_nothing_there(home: Path) -> None:
    said = looked()
    assert (said["models"], said["token"], said["problems"]) == ([], False, [])
    assert said["free_bytes"] > 0
    assert said["writable"] is True


def test_a_shard_that_the_index_names_and_that_is_not_there(home: Path) -> None:
    folder = cached(home, "acme/half", whole())
    gone = folder / "snapshots" / COMMIT / "model-00002-of-00002.safetensors"
    blob = gone.resolve()
    blob.unlink()
    assert only(looked())["missing"] == [gone.name]
    gone.unlink()
    model = only(looked())
    assert (model["is_complete"], model["missing"]) == (False, [gone.name])
    assert (model["weights_bytes"], model["weights_from"]) == (6144, "index")


def test_what_was_cut_off_is_told_until_the_blob_has_come(home: Path) -> None:
    folder = cached(home, "acme/m", whole())
    there = next((folder / "blobs").iterdir()).name
    (folder / "blobs" / f"{there}.0a1b2c3d.incomplete").write_bytes(b"left over by an earlier try")
    assert only(looked())["is_complete"] is True
    (folder / "blobs" / "feedbeef.0a1b2c3d.incomplete").write_bytes(b"half")
    model = only(looked())
    assert (model["is_complete"], model["missing"]) == (False, ["feedbeef.0a1b2c3d.incomplete"])
    assert 0 < model["partial_bytes"] <= 1 << 16, "of the one that was cut off, not of the one that came later"


def test_a_download_that_has_just_begun_has_no_snapshot_yet(home: Path) -> None:
    folder = home / ".cache/huggingface/hub/models--acme--m"
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "abc.incomplete").write_bytes(b"0")
    model = only(looked())
    assert (model["name"], model["is_complete"], model["path"]) == ("acme/m", False, str(folder))


def test_a_file_that_is_shorter_than_its_header_says(home: Path) -> None:
    files = whole()
    files["model-00001-of-00002.safetensors"] = files["model-00001-of-00002.safetensors"][:-1]
    cached(home, "acme/cut", files)
    model = only(looked())
    assert not model["is_complete"]
    assert ["model-00001-of-00002.safetensors" in one for one in model["missing"]] == [True]


def test_several_snapshots_the_one_of_main_first(home: Path) -> None:
    cached(home, "acme/m", whole(), commit=OTHER, ref="")
    cached(home, "acme/m", whole())
    assert [(model["revision"], model["refs"]) for model in looked()["models"]] == [(COMMIT, ["main"]), (OTHER, [])]


def test_links_that_lead_out_of_the_cache_are_missing(home: Path) -> None:
    """An engine sees the cache in its container, and nothing beside it."""
    folder = cached(home, "acme/m", whole())
    outside = home / "elsewhere.safetensors"
    outside.write_bytes(safetensors({"a": 4096}))
    link = folder / "snapshots" / COMMIT / "model-00001-of-00002.safetensors"
    link.unlink()
    link.symlink_to(outside)
    assert only(looked())["missing"] == [link.name]
    other = folder.with_name("models--acme--linked")
    other.symlink_to(home / "somewhere")
    (home / "somewhere" / "snapshots" / COMMIT).mkdir(parents=True)
    said = looked()
    assert [model["name"] for model in said["models"]] == ["acme/m"]
    assert "link" in said["problems"][0]


def test_the_cache_itself_may_be_a_link(home: Path) -> None:
    cached(home, "acme/m", whole())
    (home / ".cache/huggingface").rename(home / "big-disk")
    (home / ".cache/huggingface").symlink_to(home / "big-disk")
    model = only(looked())
    assert model["is_complete"] is True
    assert model["path"].startswith(str(home / ".cache/huggingface/hub/models--acme--m/"))


def test_blobs_that_are_shared_within_the_cache_are_there(home: Path) -> None:
    """huggingface_hub 2 may keep one blob for several models, beside their folders."""
    folder = cached(home, "acme/m", whole())
    shared = folder.parent / "blobs" / "aa"
    shared.mkdir(parents=True)
    blob = (folder / "snapshots" / COMMIT / "model-00001-of-00002.safetensors").resolve()
    blob.rename(shared / "hash")
    blob.symlink_to("../../blobs/aa/hash")
    assert only(looked())["is_complete"] is True


def test_plain_folders_one_and_two_deep_and_asked_for(home: Path) -> None:
    for place in ("models/one", "models/acme/two", "apart/three", "models/deep/er/four"):
        (home / place).mkdir(parents=True)
        for name, data in whole().items():
            (home / place / name).write_bytes(data)
    names = {model["name"]: model for model in looked(home / "apart/three")["models"]}
    assert sorted(names) == ["acme/two", "one", "three"]
    assert all(model["is_complete"] and model["where"] == "folder" for model in names.values())
    assert names["three"]["path"] == str(home / "apart/three")
    (home / "models/one/.cache/huggingface/download").mkdir(parents=True)
    (home / "models/one/.cache/huggingface/download/x.incomplete").write_bytes(b"0")
    one = next(model for model in looked()["models"] if model["name"] == "one")
    assert one["is_complete"] is False


def test_mistral_s_own_format_and_numbered_shards_without_an_index(home: Path) -> None:
    folder = home / "models/mistral"
    folder.mkdir(parents=True)
    (folder / "params.json").write_text('{"dim": 4096, "n_layers": 36}')
    (folder / "consolidated-00001-of-00002.safetensors").write_bytes(safetensors({"a": 64}))
    model = only(looked())
    assert (model["config"], model["config_name"]) == ({"dim": 4096, "n_layers": 36}, "params.json")
    assert model["missing"] == ["consolidated-00002-of-00002.safetensors"]


def test_a_model_in_two_formats_is_weighed_once(home: Path) -> None:
    cached(
        home,
        "mistralai/both",
        {
            "config.json": b"{}",
            "model.safetensors": safetensors({"a": 4096}),
            "consolidated.safetensors": safetensors({"b": 4096}),
            "original/model.safetensors": safetensors({"c": 4096}),
        },
    )
    assert only(looked())["weights_bytes"] == 4096


def test_old_modelopt_says_its_quantisation_apart(home: Path) -> None:
    quant = {"quantization": {"quant_algo": "NVFP4"}}
    cached(home, "nvidia/x", whole() | {"hf_quant_config.json": json.dumps(quant).encode()})
    disk = node_models_of(NODE, looked())
    assert disk is not None
    assert disk.models[0].facts.quantisation == "nvfp4"


def test_long_lists_and_large_files_are_left_out(home: Path) -> None:
    ignored = {"quantization_config": {"quant_method": "fp8", "ignore": [f"layer.{n}" for n in range(3000)]}}
    cached(home, "acme/listed", whole(ignored))
    cached(home, "acme/large", whole() | {"config.json": b'{"a": "' + b"x" * models_on_disk.CONFIG_BYTES + b'"}'})
    models = {model["name"]: model for model in looked()["models"]}
    assert len(models["acme/listed"]["config"]["quantization_config"]["ignore"]) == 512
    assert models["acme/large"]["config"] is None
    assert models["acme/large"]["is_complete"] is True


def test_bounds(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_on_disk, "MODELS_AT_MOST", 2)
    for number in range(4):
        cached(home, f"acme/m{number}", whole())
    said = looked()
    assert len(said["models"]) == 2
    assert len(said["problems"]) == 1
    assert looked(seconds=0.0)["models"] == []


def test_headers_that_there_was_no_time_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(home, "acme/m", whole())
    monkeypatch.setattr(models_on_disk, "header_of", lambda path: (None, 0))
    model = only(looked())
    assert (model["unread"], model["weights_bytes"], model["weights_from"]) == (2, 6144, "index")


@pytest.mark.parametrize(
    "name", ["models--a--$(touch x)", "models--a--\x1b[2Jb", "models--..--..", "models--a--b\nc", "models-- --'\""]
)
def test_hostile_names_are_names(home: Path, name: str) -> None:
    folder = home / ".cache/huggingface/hub" / name / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for file, data in whole().items():
        (folder / file).write_bytes(data)
    disk = node_models_of(NODE, looked())
    assert disk is not None
    for one in disk.models:
        assert one.name.isprintable()
        assert one.path.isprintable()


def test_names_that_are_no_text_are_left_out(home: Path) -> None:
    hub = home / ".cache/huggingface/hub"
    hub.mkdir(parents=True)
    os.mkdir(os.fsencode(hub) + b"/models--a--\xff")
    assert looked()["models"] == []


@pytest.mark.parametrize("text", ["../../etc/passwd.safetensors", "/etc/x.safetensors"])
def test_an_index_leads_nowhere_else(home: Path, text: str) -> None:
    files = whole() | {"model.safetensors.index.json": json.dumps({"weight_map": {"a": text}}).encode()}
    cached(home, "acme/m", files)
    assert only(looked())["missing"] == []


def test_an_index_is_read_in_pieces(tmp_path: Path) -> None:
    weights = {f"model.layers.{n}.weight": f"model-{n // 1000:05}-of-00100.safetensors" for n in range(100_000)}
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 123456789012}, "weight_map": weights}, indent=2))
    shards, total = weights_part.index_of(str(path))
    assert (len(shards), total) == (100, 123456789012)
    path.write_text(json.dumps({"weight_map": weights, "metadata": {"total_size": 1.5e11}}))
    assert weights_part.index_of(str(path))[1] is None


@given(st.binary(max_size=200), st.booleans())
def test_any_header(data: bytes, has_length: bool) -> None:
    path = f"/tmp/sparktop-header-{os.getpid()}"
    with open(path, "wb") as file:
        file.write(len(data).to_bytes(8, "little") + data if has_length else data)
    try:
        sizes, ends = weights_part.header_of(path)
    finally:
        os.unlink(path)
    assert sizes is None or ends >= 8


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.none() | st.dictionaries(st.sampled_from(["dtype", "data_offsets"]), st.lists(st.integers()) | st.text()),
    )
)
def test_any_header_s_json(header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    path = f"/tmp/sparktop-header-{os.getpid()}"
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
    try:
        sizes, ends = weights_part.header_of(path)
    finally:
        os.unlink(path)
    assert sizes is None or (ends >= 8 + len(text) and all(size >= 0 for size in sizes.values()))


async def test_asked_through_a_real_runner(home: Path, tmp_path: Path) -> None:
    cached(home, "Qwen/Qwen3-0.6B", whole({"num_hidden_layers": 28, "architectures": ["Qwen3ForCausalLM"]}))
    ask = ModelsOnDisk(node=NODE, roots=(str(tmp_path / "none"),))
    async with bench(tmp_path / "state") as stage:
        line = await stage.line()
        answer = (await line.ask([ask]))[ask]
    assert answer.problem == ""
    disk = node_models_of(NODE, answer.value)
    assert disk is not None
    found = disk.find("qwen/qwen3-0.6b")
    assert found is not None
    assert (found.facts.weights_bytes, found.is_complete) == (6144, True)


async def test_the_cache_that_an_engine_mounts_is_looked_at_in_the_users_place(home: Path, tmp_path: Path) -> None:
    cached(home, "Qwen/Qwen3-0.6B", whole({"num_hidden_layers": 28}))
    other = tmp_path / "other/.cache/huggingface"
    cached(tmp_path / "other", "Org/Other", whole({"num_hidden_layers": 2}))
    async with bench(tmp_path / "state") as stage:
        ask = ModelsOnDisk(node=NODE, cache=str(other))
        answer = (await (await stage.line()).ask([ask]))[ask]
    disk = node_models_of(NODE, answer.value)
    assert disk is not None
    assert (disk.cache, disk.hub) == (str(other), str(other / "hub"))
    assert disk.find("Org/Other") is not None


def test_the_gguf_files_of_a_repository_and_their_sizes(home: Path) -> None:
    folder = cached(home, "acme/m-GGUF", {"m-Q4.gguf": b"GGUF", "BF16/m-00001-of-00002.gguf": b"GGUF12"})
    (folder / "blobs/abc.incomplete").write_bytes(b"G")
    model = only(looked())
    assert model["ggufs"] == {"m-Q4.gguf": 4, "BF16/m-00001-of-00002.gguf": 6}
    assert (model["is_complete"], model["missing"]) == (False, ["abc.incomplete"])


def test_a_gguf_file_by_its_path(home: Path) -> None:
    """With its other parts; one that leads out of its folder isn't what a container sees there."""
    parts = [home / f"g/m-0000{part}-of-00002.gguf" for part in (1, 2)]
    parts[0].parent.mkdir()
    for part in parts:
        part.write_bytes(b"GGUF")
    (home / "g/other.gguf").write_bytes(bytes(99))
    model = only(looked(parts[0]))
    assert (model["name"], model["path"], model["where"]) == (parts[0].name, str(parts[0]), "folder")
    assert (model["is_complete"], model["size_bytes"]) == (True, 8)
    disk = node_models_of(NODE, looked(parts[0]))
    assert disk is not None
    assert disk.find(str(parts[0])) is not None
    parts[1].unlink()
    assert only(looked(parts[0]))["missing"] == [parts[1].name]
    (home / "h").mkdir()
    (home / "h/link.gguf").symlink_to(parts[0])
    assert only(looked(home / "h/link.gguf"))["is_complete"] is False
    assert looked(home / "g/none.gguf")["models"] == []


def test_of_endless_gguf_files_only_so_many_are_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_on_disk, "GGUFS_AT_MOST", 5)
    for repo in ("acme/a", "acme/b"):
        cached(home, repo, {f"{number}.gguf": str(number).encode() for number in range(4)})
    assert [len(model["ggufs"]) for model in looked()["models"]] == [4, 1]
