"""The budget's picture in plain text, as it reads at 80 columns."""

from __future__ import annotations

from tests import recipe_budget_support as made
from tests.recipe_budget_support import GIB, order, room

from sparktop.model.prospect import Fit, NodeBudget, Slice, SliceKind
from sparktop.recipe.budget import budget
from sparktop.recipe.picture import bar, lines, widths

REFUSED = """\
Does not fit: at 0.90 it takes 109.5 GiB of spark1's 121.7 and 47.0 beside that,
where 109.0 can be given (113.0 available, 4.0 for the host). With --set
gpu_memory_utilization=0.70 --set enforce_eager=true it fits: 24.8 GiB would be
left.

spark1: 109.5 GiB of 121.7 for it, 47.0 beside that, 47.5 short
  before |▒▒▒▒..............................................|
          ▒ host 8.7   . available 113.0
  after  |▒▒▒█████████████████████████K░░░░░░░░░░░░░░░░░░░==!!!!!!!!!!!!!!!!!!!|
          ▒ host 8.7   █ weights 60.7   K KV cache 1.1
          ░ rest of its share 47.7   = reserve 4.0 of 20.0   ! short 47.5

share 0.90, as you set it
context of 32,768 tokens, the cache would hold about 1,246,464
would change it: --set gpu_memory_utilization=0.70 --set enforce_eager=true"""


def test_the_refusal_of_gpt_oss_at_090() -> None:
    found = budget(order(made.GPT_OSS_RECIPE, gpu_memory_utilization="0.90"), [room()], made.GPT_OSS, values={})
    assert "\n".join(lines(found, 80)) == REFUSED


def test_what_goes_is_in_the_picture_before_only() -> None:
    crowded = room(available_gib=70.0, going=(("vllm-old", 35 * GIB),), stays=(("asr", 6 * GIB),))
    drawn = lines(budget(order(made.QWEN_RECIPE), [crowded], made.QWEN, values={}), 80)
    before, after = (next(line for line in drawn if line.startswith(f"  {word}")) for word in ("before", "after"))
    assert "xxxx" in before
    assert "x" not in after.partition("|")[2]
    assert "ooo" in before
    assert "ooo" in after
    assert len(before) == len(after) == 80


def test_a_sliver_gets_its_cell_and_the_rest_its_share() -> None:
    sizes = ((SliceKind.HOST, 1), (SliceKind.WEIGHTS, 600), (SliceKind.CACHE, 1), (SliceKind.FREE, 398))
    slices = tuple(Slice(kind=kind, label=kind.value, size_bytes=size) for kind, size in sizes)
    node = NodeBudget(
        node="a", total_bytes=1000, available_bytes=0, before=(), after=slices, left_bytes=0, fit=Fit.FITS, sentence=""
    )
    assert [run.width for run in bar(node, 10, is_after=True)] == [1, 5, 1, 3]
    assert [run.kind for run in bar(node, 2, is_after=True)] == [SliceKind.WEIGHTS, SliceKind.FREE]
    assert bar(node, 10, is_after=False) == ()
    assert widths(node, 40) == (40, 40)


def test_a_machine_that_is_short_ends_before_its_bar_does() -> None:
    found = budget(order(made.GPT_OSS_RECIPE, gpu_memory_utilization="0.90"), [room()], made.GPT_OSS, values={})
    before, after = widths(found.nodes[0], 69)
    assert (before, after) == (50, 69)
    runs = bar(found.nodes[0], after, is_after=True)
    assert sum(run.width for run in runs if run.kind is not SliceKind.SHORT) == before
