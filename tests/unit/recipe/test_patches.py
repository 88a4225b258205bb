"""Mods and `pre_exec`: where they are found, and the image that they make."""

from __future__ import annotations

import base64
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.table import over
from tests.unit.recipe.test_read import PLAIN

from sparktop.model.recipe import Order, Patch, PatchFile, Recipe
from sparktop.recipe.container_spec import NodeContext, Rendered
from sparktop.recipe.parameters import resolve
from sparktop.recipe.patches import APPLY, PatchedImage, patched_image
from sparktop.recipe.read import shelf
from sparktop.recipe.render.render import render
from sparktop.recipe.sources.sources import sources

FILES = (PatchFile(path="run.sh", content=b"true"), PatchFile(path="a/b.py", content=b"1", is_program=True))
MOD = Patch(name="mods/fix-x", files=FILES)
HOOK = Patch(name="pre_exec 1", command='echo {port} ${HOME} {"a": 1} {unknown}')


def made(*patches: Patch, base: str = "org/Image:1") -> PatchedImage:
    image = patched_image(base, patches, {"port": "8000"})
    assert image is not None
    return image


@over(
    "place, name, found",
    [
        ("repo/recipes/mods/x", "mods/x", True),
        ("repo/recipes/x", "x", True),
        ("repo/mods/x", "mods/x", True),
        ("repo/official-mods/x", "x", True),
        ("mods/x", "x", False),
        ("home/spark-vllm-docker/mods/x", "mods/x", True),
        ("home/.cache/sparkrun/registries/eugr-vllm/mods/x", "@eugr/x", True),
        ("home/.cache/sparkrun/registries/other/mods/x", "@eugr/x", False),
        ("repo/mods/x", "@repo/x", True),
        ("repo/mods/x", "@eugr/x", False),
        ("repo/mods/x", "a" * 300, False),
    ],
)
def test_a_mod_is_found_where_its_launchers_look(
    place: str, name: str, found: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path_factory.mktemp("mods")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "repo" / "recipes").mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "run.sh").write_text("true")
    rows = "".join(f"- {{name: {registry}, url: u, subpath: .}}\n" for registry in ("eugr-vllm", "other"))
    (tmp_path / "home/.config/sparkrun").mkdir(parents=True)
    (tmp_path / "home/.config/sparkrun/registries.yaml").write_text(f"registries:\n{rows}")
    recipe = tmp_path / "repo" / "recipes" / "r.yaml"
    recipe.write_text(f"{PLAIN}mods: ['{name}']\n")
    reading = shelf.read_file(recipe)
    assert [each.key for each in reading.errors] == ([] if found else ["mods"])
    if reading.recipe is not None:
        source = next((each for each in sources() if each.tree in str(tmp_path / place)), None)
        assert (source is not None) is ("registries" in place)
        files = (PatchFile(path="run.sh", content=b"true"),)
        assert reading.recipe.patches == (Patch(name=name, files=files, source=source),)


@over(
    "script, stays",
    [
        ("serve-metrics &\n", False),
        ("nohup serve-metrics > /dev/null", False),
        ("a && b\nc > /dev/null 2>&1\n", True),
        ("a &&\n  b &> log\n", True),
    ],
)
def test_a_mod_that_leaves_a_process_running_is_refused(
    script: str, stays: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mod")
    (folder / "x").mkdir()
    (folder / "x" / "run.sh").write_text(script)
    (folder / "r.yaml").write_text(f"{PLAIN}mods: [x]\n")
    assert (shelf.read_file(folder / "r.yaml").recipe is not None) is stays


@over("target", ["/etc/hostname", "/etc", "/nowhere"])
def test_a_mod_takes_no_file_from_elsewhere(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("mod")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.sh").write_text("true")
    (tmp_path / "x" / "key").symlink_to(target)
    (tmp_path / "r.yaml").write_text(f"{PLAIN}mods: [x]\n")
    assert "key is a link" in str(shelf.read_file(tmp_path / "r.yaml").errors[0])


@over(
    "other",
    [
        lambda: made(HOOK, MOD, base="org/image:2"),
        lambda: made(HOOK),
        lambda: made(MOD, HOOK),
        lambda: made(HOOK, replace(MOD, files=FILES[:1])),
        lambda: made(replace(HOOK, command="echo"), MOD),
    ],
)
def test_other_patches_make_another_image(other: object) -> None:
    assert callable(other)
    assert made(HOOK, MOD).name == made(HOOK, MOD).name
    assert other().name != made(HOOK, MOD).name


def test_mods_of_one_name_are_each_in_a_folder_of_its_own() -> None:
    other = replace(MOD, name="@other/fix-x", files=(PatchFile(path="run.sh", content=b"false"),))
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(made(MOD, other).archive()))) as tree:
        scripts = {name: tree.extractfile(name).read() for name in tree.getnames() if name.endswith("run.sh")}  # type: ignore[union-attr]
    assert list(scripts.values()) == [b"true", b"false"]


def test_what_is_copied_into_the_container() -> None:
    image = made(HOOK, MOD)
    assert image.name.startswith("localhost/sparktop/image:")
    assert image.archive() == made(HOOK, MOD).archive()
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(image.archive()))) as tree:
        files = [(entry, tree.extractfile(entry)) for entry in tree.getmembers()]
        texts = {entry.name: (entry.mode, file.read().decode() if file else "") for entry, file in files}
    script = texts.pop(APPLY.lstrip("/"))[1]
    assert texts == {
        "workspace/mods/pre_exec-1.sh": (0o755, 'echo 8000 ${HOME} {"a": 1} {unknown}'),
        "workspace/mods/fix-x/run.sh": (0o644, "true"),
        "workspace/mods/fix-x/a/b.py": (0o755, "1"),
    }
    assert script.index("pre_exec-1.sh") < script.index("fix-x")


def test_the_ranks_run_the_patched_image_and_all_else_judges_the_base(tmp_path: Path) -> None:
    def rendered(*patches: Patch) -> Rendered:
        recipe = shelf.read(PLAIN, "r.yaml").recipe
        assert isinstance(recipe, Recipe)
        return render(resolve(Order(recipe=replace(recipe, patches=patches))), [NodeContext(node="a", model_path="/m")])

    plain, changed = rendered(), rendered(MOD)
    assert plain.patched is None
    assert changed.patched is not None
    assert (changed.image, changed.head.container.image) == (plain.image, changed.patched.name)
    assert changed.head.argv == plain.head.argv
