"""Which .gguf files of a repository llama.cpp loads: by their names, on a node, and on the hub."""

from __future__ import annotations

from tests.table import over
from tests.unit.recipe.test_models import answer, row

from sparktop.recipe import gguf
from sparktop.recipe.models import hub_listing_of, node_models_of

PARTS = tuple(f"BF16/M-BF16-{part:05}-of-00003.gguf" for part in (1, 2, 3))
NAMES = (
    "README.md", "config.json", "imatrix_unsloth.gguf", "M-Q4_K_M.gguf", "M-Q8_0.gguf", "M-UD-Q4_K_XL.gguf",
    *("mmproj-BF16.gguf", "mmproj-F16.gguf", "mtp-M-Q4_K_M.gguf", "M-F16.gguf"), *PARTS,
)  # fmt: skip
REPO = "acme/M-GGUF"


@over(
    "asked, names, weights",
    [
        ("", NAMES, ("M-Q4_K_M.gguf",)),
        ("Q8_0", NAMES, ("M-Q8_0.gguf",)),
        ("q4_k_xl", NAMES, ("M-UD-Q4_K_XL.gguf",)),
        ("F16", NAMES, ("M-F16.gguf",)),  # and not BF16
        ("BF16", NAMES, PARTS),
        ("BF16", PARTS[:1], PARTS),  # the others belong to it, there or not
        ("", ("b-mxfp4.gguf", "a-mxfp4.gguf"), ("a-mxfp4.gguf",)),
        ("", ("x-Q8_0.gguf", "x-Q2_K.gguf"), ("x-Q8_0.gguf",)),
    ],
)
def test_the_files_that_are_loaded(asked: str, names: tuple[str, ...], weights: tuple[str, ...]) -> None:
    assert gguf.choice(names, gguf.wanted(f"{REPO}:{asked}")).weights == weights


@over(
    "asked, names, problem",
    [
        ("Q5_K_M", ("M-Q8_0.gguf",), "acme/M-GGUF has no .gguf model of the quant Q5_K_M: M-Q8_0.gguf"),
        ("", ("mmproj-F16.gguf", "model.safetensors"), "acme/M-GGUF has no .gguf model"),
        ("", (), "acme/M-GGUF has no .gguf model"),
        ("Q4_K_M", ("M-Q4_K_M-00001-of-00000.gguf",), "acme/M-GGUF has no .gguf model of the quant Q4_K_M"),
        ("Q4_K_M", ("M-Q4_K_M-00001-of-00500.gguf",), "acme/M-GGUF has no .gguf model of the quant Q4_K_M"),
        ("", ("a/M-Q8_0.gguf", "b/M-Q8_0.gguf"), "2 models of acme/M-GGUF match: a/M-Q8_0.gguf, b/M-Q8_0.gguf"),
        ("F16", ("M-MMPROJ-F16.gguf",), "acme/M-GGUF has no .gguf model of the quant F16"),
        (
            "Q4_K_M",
            ("M-Q4_K_M.gguf", "UD/M-UD-Q4_K_M.gguf"),
            "2 models of acme/M-GGUF match the quant Q4_K_M: M-Q4_K_M.gguf, UD/M-UD-Q4_K_M.gguf",
        ),
    ],
)
def test_nothing_is_loaded_where_it_is_not_clear_what(asked: str, names: tuple[str, ...], problem: str) -> None:
    choice = gguf.choice(names, gguf.wanted(f"{REPO}:{asked}"))
    assert (choice.files, choice.problem) == ((), problem)


@over(
    "said, encoder",
    [
        ("", "mmproj-F16.gguf"), ("auto", "mmproj-F16.gguf"), ("bf16", "mmproj-BF16.gguf"), ("false", ""),
        ("mmproj-BF16.gguf", "mmproj-BF16.gguf"),
    ],
)  # fmt: skip
def test_the_image_encoder(said: str, encoder: str) -> None:
    assert gguf.choice(NAMES, gguf.wanted(REPO, said)).encoder == encoder


def test_an_image_encoder_that_is_not_there() -> None:
    problem = "acme/M-GGUF has no image encoder f8: mmproj-BF16.gguf, mmproj-F16.gguf"
    assert gguf.choice(NAMES, gguf.wanted(REPO, "F8")).problem == problem


# --- on a node, and on the hub


@over(
    "asked, ggufs, is_complete, size, missing",
    [
        ("Q4_K_M", {"M-Q4_K_M.gguf": 7, "M-Q8_0.gguf": 9}, True, 7, ()),
        ("Q8_0", {"M-Q4_K_M.gguf": 7}, False, 0, ("*Q8_0*.gguf",)),
        ("Q8_0", {"M-Q8_0.gguf": 0}, False, 0, ("M-Q8_0.gguf",)),
        ("BF16", dict.fromkeys(PARTS[:2], 5), False, 10, PARTS[2:]),
        ("", {"M-Q4_K_M.gguf": 7, "mmproj-F16.gguf": 2}, True, 9, ()),
    ],
)
def test_a_copy_is_whole_where_the_files_are_that_are_loaded(
    asked: str, ggufs: dict[str, int], is_complete: bool, size: int, missing: tuple[str, ...]
) -> None:
    """Another quant of the same repository isn't it, and what another's download left behind doesn't count."""
    disk = node_models_of("spark1", answer(row(REPO, ggufs=ggufs, is_complete=False, missing=["x.incomplete"])))
    assert disk is not None
    copy = disk.find(REPO, wanted=gguf.wanted(f"{REPO}:{asked}"))
    assert copy is not None
    assert (copy.is_complete, copy.size_bytes, copy.missing) == (is_complete, size, missing)
    assert copy.facts.weights_bytes == (size or None)


@over(
    "name",
    [
        "../x-Q4_K_M.gguf",
        "a/../../x-Q4_K_M.gguf",
        "-x-Q4_K_M.gguf",
        "x\n-Q4_K_M.gguf",
        "x y-Q4_K_M.gguf",
        "/x-Q4_K_M.gguf",
    ],
)
def test_what_is_said_to_be_a_file_is_no_flag_and_no_path_out_of_the_model(name: str) -> None:
    assert gguf.choice((name, "y-Q4_K_M.gguf"), gguf.wanted(REPO)).weights == ("y-Q4_K_M.gguf",)


def test_a_node_s_sizes_are_figures() -> None:
    disk = node_models_of("spark1", answer(row(REPO, ggufs={"z.gguf": "big", "y.gguf": -1, "x.gguf": 7})))
    assert disk is not None
    assert disk.models[0].ggufs == {"z.gguf": None, "y.gguf": None, "x.gguf": 7}


def test_what_the_hub_lists_is_needed_in_part() -> None:
    files = [{"path": name, "size_bytes": 10} for name in NAMES]
    hub = hub_listing_of(REPO, {"status": 200, "files": files}).of_gguf(gguf.wanted(f"{REPO}:BF16"))
    assert {file.path for file in hub.needed} == {"config.json", "mmproj-F16.gguf", *PARTS}
    assert (hub.size_bytes, hub.facts.weights_bytes if hub.facts else None) == (50, 40)
    lacks = hub_listing_of(REPO, {"status": 200, "files": files[:-1]}).of_gguf(gguf.wanted(f"{REPO}:BF16"))
    assert lacks.choice is not None
    assert lacks.choice.problem == f"the repository lacks parts of this model: {PARTS[2]}"
    empty = hub_listing_of(REPO, {"status": 200}).of_gguf(gguf.wanted(REPO))
    assert empty.choice is not None
    assert empty.choice.problem
    none = hub_listing_of(REPO, {"status": 404}).of_gguf(gguf.wanted(REPO))
    assert (none.choice, none.needed) == (None, ())
