"""Answers about models become facts; nothing that a node or the hub says raises, or becomes an argument by itself."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over
from tests.unit.recipe.test_model_config import GPT_OSS, QWEN36, VALUES

from sparktop.recipe.models import hub_listing_of, is_path, is_repo, is_revision, node_models_of, on_disk

COMMIT, OTHER = "a" * 40, "b" * 40
QWEN = "Qwen/Qwen3.6-35B-A3B-FP8"


def row(name: str = QWEN, **more: Any) -> dict[str, Any]:
    folder = f"/home/x/.cache/huggingface/hub/models--{name.replace('/', '--')}"
    return {
        "name": name, "path": f"{folder}/snapshots/{COMMIT}", "folder": folder, "where": "cache", "revision": COMMIT,
        "refs": ["main"], "size_bytes": 36_000_000_000, "folder_bytes": 36_000_000_000, "is_complete": True,
        "missing": [], "config": QWEN36, "weights_bytes": 35_000_000_000, "dtypes": {"F8_E4M3": 33, "BF16": 2},
        "writable": True,
    } | more  # fmt: skip


def answer(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "cache": "/home/x/.cache/huggingface", "hub": "/home/x/.cache/huggingface/hub", "home": "/home/x",
        "token": True, "models": list(rows), "problems": [], "uid": 1000, "gid": 1000, "free_bytes": 10**12,
        "writable": True,
    } | more  # fmt: skip


def test_a_node_s_models_become_facts() -> None:
    disk = node_models_of("spark1", answer(row()))
    assert disk is not None
    found = disk.find(QWEN)
    assert found is not None
    facts = found.facts
    assert (facts.quantisation, facts.layers, facts.cache_layers, facts.kv_heads) == ("fp8", 40, 10, 2)
    assert (facts.weights_bytes, facts.size_bytes) == (35_000_000_000, 36_000_000_000)
    assert (disk.has_token, disk.uid, disk.free_bytes, disk.is_writable) == (True, 1000, 10**12, True)


def test_which_revision_is_found() -> None:
    older = row(revision=OTHER, refs=[], path="/older", is_complete=False)
    disk = node_models_of("spark1", answer(older, row()))
    assert disk is not None
    for asked, path in (("", COMMIT), ("main", COMMIT), (COMMIT, COMMIT), (OTHER, OTHER)):
        found = disk.find(QWEN, asked)
        assert found is not None
        assert found.revision == path
    assert disk.find(QWEN, "v2") is None
    assert disk.find("Qwen/Other") is None
    only_older = node_models_of("spark1", answer(older))
    assert only_older is not None
    found = only_older.find(QWEN)
    assert found is not None
    assert found.revision == OTHER
    assert only_older.find(QWEN, "main") is None


def test_a_path_is_found_in_the_home_of_each_node() -> None:
    plain = row("mine", where="folder", path="/home/x/models/mine", folder="/home/x/models/mine", revision="")
    disk = node_models_of("spark1", answer(plain))
    assert disk is not None
    assert disk.find("~/models/mine/") is not None
    assert disk.find("/home/x/models/mine") is not None
    assert disk.find("mine") is None


@over(
    "name, repo, path",
    [
        ("Qwen/Qwen3-0.6B", True, False), ("gpt2", True, False), ("-rf/x", False, False), ("a/--token", False, False),
        ("a/b/c", False, False), ("a/..", False, False), ("a b/c", False, False), ("a/b\n", False, False),
        ("/models/a", False, True), ("~/models/a", False, True), ("/models/../etc", False, False),
        ("/mod\x1bels", False, False), ("", False, False),
    ],
)  # fmt: skip
def test_what_can_be_a_model_s_name(name: str, repo: bool, path: bool) -> None:
    assert (is_repo(name), is_path(name)) == (repo, path)


def test_revisions() -> None:
    assert is_revision("main")
    assert is_revision("refs/pr/3")
    assert not is_revision("--x")
    assert not is_revision("a..b")


def test_the_hub_s_facts_and_what_nobody_loads() -> None:
    files = [
        {"path": "config.json", "size_bytes": 100},
        {"path": "model-00001-of-00002.safetensors", "size_bytes": 40},
        {"path": "model-00002-of-00002.safetensors", "size_bytes": 20},
        {"path": "original/model.safetensors", "size_bytes": 60},
        {"path": "metal/model.bin", "size_bytes": 60},
        {"path": "pytorch_model.bin", "size_bytes": 60},
    ]
    said = {"status": 200, "revision": COMMIT, "gated": False, "files": files, "config": GPT_OSS}
    hub = hub_listing_of("openai/gpt-oss-120b", said)
    assert hub.is_there
    assert [one.path for one in hub.needed] == [file["path"] for file in files[:3]]
    assert hub.size_bytes == 160
    assert hub.facts is not None
    assert (hub.facts.weights_bytes, hub.facts.quantisation, hub.facts.window_layers) == (60, "mxfp4", 18)
    counted = hub_listing_of("openai/gpt-oss-120b", {**said, "parameters": {"BF16": 10, "U8": 30}})
    assert counted.facts is not None
    assert counted.facts.weights_bytes == 50
    unknown = hub_listing_of("openai/gpt-oss-120b", {**said, "parameters": {"X9": 10}})
    assert unknown.facts is not None
    assert unknown.facts.weights_bytes == 60
    files[1]["size_bytes"] = None
    assert hub_listing_of("x", said).size_bytes is None


def test_mistral_s_own_shards_are_weighed_once() -> None:
    files = [
        {"path": name, "size_bytes": 10}
        for name in ("consolidated-00001-of-00002.safetensors", "consolidated-00002-of-00002.safetensors")
    ]
    hub = hub_listing_of("m/x", {"status": 200, "files": files})
    assert hub.facts is not None
    assert hub.facts.weights_bytes == 20
    both = hub_listing_of("m/x", {"status": 200, "files": [*files, {"path": "model.safetensors", "size_bytes": 21}]})
    assert both.facts is not None
    assert both.facts.weights_bytes == 21


def test_models_of_both_nodes_are_listed_once() -> None:
    one = node_models_of("spark1", answer(row(), row("acme/other")))
    two = node_models_of("spark2", answer(row(is_complete=False, size_bytes=1)))
    assert one is not None
    assert two is not None
    listed = on_disk({"spark1": one, "spark2": two})
    assert [(found.name, found.nodes, found.is_complete) for found in listed] == [
        (QWEN, ("spark1", "spark2"), False),
        ("acme/other", ("spark1",), True),
    ]
    assert listed[0].quantisation == "fp8"


def test_bytes_tell_fp8_where_the_config_does_not() -> None:
    disk = node_models_of("n", answer(row("a/b", config={"torch_dtype": "bfloat16"})))
    assert disk is not None
    assert disk.models[0].facts.quantisation == "fp8"


FIELDS = [*row(), *answer(), "status", "files", "problem", "gated", "parameters", "quant_config", "rfilename"]
ANSWERS = st.recursive(
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8),
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), st.lists(inner, max_size=3) | inner | VALUES, max_size=8),
    max_leaves=5,
)


@given(ANSWERS | VALUES)
def test_no_answer_raises(said: Any) -> None:
    disk = node_models_of("spark1", said)
    if disk is not None:
        for one in disk.models:
            assert one.path.startswith("/")
            assert one.name.isprintable()
        on_disk({"spark1": disk})
    hub = hub_listing_of("a/b", said)
    assert hub.size_bytes is None or hub.size_bytes >= 0
