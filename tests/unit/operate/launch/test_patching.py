"""When a recipe's patches are applied, and the container in which they are."""

from __future__ import annotations

from tests.recipe_support import order, seat
from tests.table import over
from tests.unit.operate.launch.launch_support import Sparks

from sparktop.documents.plan import plan_lines
from sparktop.model.operation import DockerCall
from sparktop.model.recipe import Patch, PatchFile
from sparktop.model.survey import Answer, Survey, looked_up
from sparktop.operate.acts.patch_image import PatchImage, patch_image
from sparktop.operate.launch import patching
from sparktop.operate.step.plan import Plan
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.render import render

MOD = Patch(name="mods/fix-x", files=(PatchFile(path="run.sh", content=b"echo it-is-shown\n" * 300),))


@over(
    "base, made, is_patched",
    [
        (["a", "b"], ["a", "b", "patch"], True),
        (["a", "b"], None, False),
        (["a", "new"], ["a", "b", "patch"], False),
        (None, ["a", "b", "patch"], False),
    ],
)
def test_patches_are_applied_again_where_the_base_is_another(
    base: list[str] | None, made: list[str] | None, is_patched: bool
) -> None:
    rendered = render(resolve(order(patches=(MOD,))), [seat()])
    layers = {rendered.patched.base: base, rendered.patched.name: made} if rendered.patched else {}
    questions = looked_up(Survey(), lambda look_ups: patching.is_patched(rendered, "spark1", look_ups))
    answers = {
        ask: Answer(value={"Id": "x", "RootFS": {"Layers": found}} if found else None)
        for ask, found in zip(questions, layers.values(), strict=True)
    }
    assert patching.is_patched(rendered, "spark1", Survey(answers=answers)) is is_patched
    assert patching.is_patched(render(resolve(order()), [seat()]), "spark1", Survey(answers={}))


def test_the_container_has_no_secret_and_the_review_shows_what_runs_in_it() -> None:
    asked = order(
        patches=(MOD,), environment={"MY_TOKEN": "$MY_TOKEN"}, secrets={"MY_TOKEN": "tok-123456789"},
        model="Qwen/Qwen3-0.6B", keeps_compiled=True,
    )  # fmt: skip
    sparks = Sparks()
    sparks.models["spark1"] = (asked.recipe.model, 1.5)
    plan = sparks.planned(asked)
    assert isinstance(plan, Plan), plan
    acts = {step.id: step.act for step in plan.steps}
    patch = acts["patch"]
    assert isinstance(patch, PatchImage)
    assert list(acts).index("patch") < list(acts).index("make")
    create = next(one for one in patch.operations if isinstance(one, DockerCall) and one.body)
    assert create.body is not None
    assert (create.body["Image"], create.body["Env"], create.body["Labels"]) == (asked.recipe.container, [], {})
    assert not any("/cache/compiled" in bind for bind in create.body["HostConfig"]["Binds"])
    shown = "\n".join("".join(text for text, _ in line.runs) for line in plan_lines(plan, 120))
    assert "echo it-is-shown" in shown
    assert "100 more lines" in shown
    assert "tok-123456789" not in shown + repr(patch)


@over(
    "path, content, shown",
    [
        ("run.sh", b"a\nevil\n\xff", "evil"),
        ("run.sh", b"a\nevil\n\0", "evil"),
        ("run.sh", b": \x1b]; evil; : \x07\n", "evil"),
        ("lib.so", b"\x7fELF\0evil", "it is no text"),
        ("a.py", b"evil # caf\xe9", "evil"),
    ],
)
def test_no_byte_hides_what_a_mod_runs(path: str, content: bytes, shown: str) -> None:
    patched = render(
        resolve(order(patches=(Patch(name="x", files=(PatchFile(path=path, content=content),)),))), [seat()]
    ).patched
    assert patched is not None
    told = "\n".join(patch_image(patched, {}).text())
    assert shown in told
    assert not [char for char in told if char < " " and char != "\n"]
