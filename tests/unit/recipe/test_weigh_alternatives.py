"""What lies on the disks that would do: the same model by its name, however it was quantised."""

from __future__ import annotations

from tests import recipe_budget_support as made
from tests.recipe_budget_support import on_disk
from tests.table import over

from sparktop.recipe.weigh.budget import alternatives, same

WORKING = on_disk("MiniMax-M2.7-NVFP4-GB10-AC", 130_600_000_000, path="/home/milo/models/MiniMax-M2.7-NVFP4-GB10-AC")


def test_the_quantisation_that_lay_on_both_disks_for_27_days() -> None:
    found = alternatives(made.MINIMAX_RECIPE.model, [on_disk("Qwen3-4B"), WORKING])
    assert [one.name for one in found] == ["MiniMax-M2.7-NVFP4-GB10-AC"]
    assert found[0].text == (
        "the same model in NVFP4, on spark1 and spark2: --set model=/home/milo/models/MiniMax-M2.7-NVFP4-GB10-AC"
    )
    assert not found[0].is_wanted


@over(
    "wanted, name, is_same",
    [
        ("MiniMaxAI/MiniMax-M2.7", "saricles/MiniMax-M2.7-NVFP4-GB10-AC", True),
        ("saricles/MiniMax-M2.7-NVFP4-GB10-AC", "models--MiniMaxAI--MiniMax-M2.7", True),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "nvidia/Qwen3.6-35B-A3B-NVFP4", True),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "Qwen3.6-35B-A3B-UD-Q4_K_M.gguf", True),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "qwen3.6-35b-a3b-awq-4bit", True),
        ("meta-llama/Llama-3.1-8B-Instruct", "RedHatAI/Llama-3.1-8B-Instruct-quantized.w4a16", True),
        ("meta-llama/Llama-3.1-8B-Instruct", "neuralmagic/Llama-3.1-8B-Instruct-W4A16", True),
        ("MiniMaxAI/MiniMax-M2.7", "MiniMaxAI/MiniMax-M2.5", False),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "Qwen/Qwen3.6-27B-FP8", False),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-Coder-Next-80B-A3B-Instruct", False),
        ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V2", False),
        ("mistralai/Mistral-Small-4-119B-2603-NVFP4", "mistralai/Mistral-Small-4-119B-2603-eagle", False),
        ("openai/gpt-oss-120b", "openai/gpt-oss-20b", False),
        ("openai/gpt-oss-120b", "", False),
    ],
)
def test_names(wanted, name, is_same) -> None:
    assert same(wanted, name) is is_same


def test_the_wanted_one_comes_first_then_complete_ones_then_relatives() -> None:
    models = [
        on_disk("someone/Qwen3.6-35B-A3B-heretic"),
        on_disk("Qwen3.6-35B-A3B-GGUF"),
        on_disk("Qwen3.6-35B-A3B-AWQ", nodes=("spark1",)),
        on_disk("Qwen3.6-35B-A3B-NVFP4", is_complete=False),
        on_disk("Qwen3.6-35B-A3B-NVFP4A16", 2 * 10**9, quantisation="nvfp4"),
        on_disk("Qwen/Qwen3.6-35B-A3B-FP8", is_complete=False),
        on_disk("Qwen/Qwen3.6-35B-A3B"),
    ]
    found = alternatives(made.QWEN_RECIPE.model, models)
    assert [one.name for one in found] == [
        "Qwen/Qwen3.6-35B-A3B-FP8",
        "Qwen/Qwen3.6-35B-A3B",
        "Qwen3.6-35B-A3B-NVFP4A16",
        "Qwen3.6-35B-A3B-AWQ",
        "Qwen3.6-35B-A3B-GGUF",
        "someone/Qwen3.6-35B-A3B-heretic",
        "Qwen3.6-35B-A3B-NVFP4",
    ]
    assert [one.is_wanted for one in found] == [True, *[False] * 6]
    assert "not complete" in found[0].text
    assert "barely support" in found[4].text
    assert "(heretic)" in found[5].text
    assert "--set" not in found[6].text


def test_a_model_in_the_hubs_cache_is_named_by_its_repository_and_a_path_is_quoted() -> None:
    cached = on_disk(
        "nvidia/Qwen3.6-35B-A3B-NVFP4", path="/home/x/.cache/huggingface/hub/models--nvidia--Q/snapshots/1"
    )
    spaced = on_disk("Qwen3.6-35B-A3B-AWQ", path="/home/x/my models/$(q)")
    found = alternatives(made.QWEN_RECIPE.model, [cached, spaced])
    assert found[0].text.endswith(": --set model='/home/x/my models/$(q)'")
    assert found[1].text.endswith(": --set model=nvidia/Qwen3.6-35B-A3B-NVFP4")


def test_a_path_that_was_set_is_the_wanted_one() -> None:
    found = alternatives(f"{WORKING.path}/", [WORKING])
    assert found[0].is_wanted
