"""Sources of recipes: folders, real git repositories, and sparkrun's registries as it lays them out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.table import over
from tests.unit.operate.launch.launch_support import Sparks
from tests.unit.recipe.test_shelf import BAD, GOOD

from sparktop.cli import main
from sparktop.config import state_home
from sparktop.errors import UsageError
from sparktop.model.recipe import Order
from sparktop.operate.step.plan import Plan
from sparktop.recipe.operator_secrets import read_secrets
from sparktop.recipe.read.shelf import (
    Origin,
    entries,
    entry,
    names,
    own_folder,
    recipe,
    recipe_argument,
    unreadable_folders,
)
from sparktop.recipe.sources import git, sources

MANIFEST = "registries:\n- {name: main, recipes: good}\n- {name: out, recipes: ../..}\n- {name: lab, subpath: lab}\n"


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def committed(folder: Path, files: dict[str, str]) -> str:
    """Make or change a repository; its commit."""
    written(folder, files)
    environment = os.environ | {
        f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    told = ""
    for words in ("init -q", "add -A", "commit -qm x", "rev-parse HEAD"):
        told = subprocess.run(
            ["git", *words.split()], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    return told.strip()


def listed(name: str) -> list[str]:
    return [item.id for item in entries() if item.source is not None and item.source.name == name]


def test_a_repository_is_copied_at_its_commit_updated_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = tmp_path / "repo"
    first = committed(repo, {"recipes/a.yaml": GOOD, "recipes/b.yaml": BAD, "mods/x/run.sh": "id\n", "c.yaml": GOOD})
    url = repo.as_uri()
    assert main(["recipes", "source", "add", "team", url]) == 0
    assert f"@team: {url} at {first[:7]} of " in capsys.readouterr().out
    assert listed("team") == ["@team/a", "@team/b"]
    chosen = recipe("@team/a")
    assert (chosen.id, recipe_argument(chosen), entry("@team/a").origin) == ("@team/a", "@team/a", Origin.SOURCE)
    assert chosen.source == sources.source("@team")
    copy = Path(chosen.path).parents[1]
    assert (copy / "mods/x/run.sh").read_text() == "id\n", "what a recipe needs beside it is there"
    assert not (copy / ".git").exists()
    assert main(["recipes", "list", "@team", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["recipes"]
    assert [(item["id"], item["source"]["commit"], bool(item["problems"])) for item in data] == [
        ("@team/a", first, False),
        ("@team/b", first, True),
    ]
    (repo / "recipes/b.yaml").unlink()
    second = committed(repo, {"recipes/a.yaml": GOOD + "# more\n", "recipes/d.yaml": GOOD})
    assert recipe("@team/a") == chosen, "it stays as it is until it is updated"
    assert main(["recipes", "source", "update"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  new: @team/d",
        "  changed: @team/a",
        "  gone: @team/b",
    ]
    assert [path.name for path in copy.parent.glob("*team@*")] == [f"team@{second}"]
    shutil.rmtree(repo)
    assert main(["recipes", "source", "update", "team"]) == 1
    assert f"@team stays at {second[:7]}: git can't read {url}: '/" in capsys.readouterr().err
    assert listed("team") == ["@team/a", "@team/d"]
    assert main(["recipes", "source", "remove", "@team"]) == 0
    assert listed("team") == [*copy.parent.iterdir()] == []


def test_nothing_of_a_repository_is_run_or_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo, secret, sign = tmp_path / "repo", tmp_path / "secret.yaml", tmp_path / "sign"
    secret.write_text(GOOD)
    written(repo, {"recipes/.env": "HF_TOKEN=theirs\n", "recipes/a.yaml": GOOD})
    (repo / "recipes/link.yaml").symlink_to(secret)
    (repo / "all").symlink_to("/")
    committed(tmp_path / "sub", {"recipes/sub.yaml": GOOD})
    subprocess.run(
        [
            "git",
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            str(tmp_path / "sub"),
            "recipes/sub",
        ],
        cwd=(committed(repo, {}), repo)[1],
        check=True,
    )
    committed(repo, {".sparkrun/registry.yaml": MANIFEST.replace("good", "recipes")})
    hook = written(tmp_path / "template", {"hooks/post-checkout": f"#!/bin/sh\ntouch {sign}\n"}) / "hooks/post-checkout"
    hook.chmod(0o755)
    written(
        Path.home(), {".gitconfig": f"[init]\n templateDir = {tmp_path}/template\n[core]\n hooksPath = {hook.parent}"}
    )
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "sub/.git"))
    old = os.umask(0o077)
    try:
        made = sources.add("team", repo.as_uri())
    finally:
        os.umask(old)
    assert not sign.exists()
    assert listed("team") == ["@team/a", "@team/link"]
    assert entry("@team/link").recipe is None, "a link became text"
    assert not (Path(made.tree) / "all").is_symlink()
    assert "HF_TOKEN" not in read_secrets(recipe("@team/a")).values


REFUSED = (
    *("", "-x", "--upload-pack=id", "ext::sh -c id", "git://h/x", "http://h/x", "https://u:p@h/x", "https://t@h/x"),
    *("https:///x", "ssh://-oProxyCommand=id/x", "-oProxyCommand=id:x", "u@-h:x", "u@h:-x", "file://h/x", "C:/x"),
    *("https://h/x\n", "https://h/x\x1b[2J", "fd::7", "/no/such/folder", "~nobody-of-that-name/x"),
)
TAKEN = ("https://h/x.git", "ssh://git@h:22/x", "ssh://h/~/x", "git@h.lan:a/b.git", "file:///a b", "https://[::1]/x")


def test_what_git_would_run_or_others_would_read_is_refused() -> None:
    for url in REFUSED:
        with pytest.raises(UsageError) as why:
            sources.add("x", url)
        assert "p@h" not in str(why.value)
    for url in TAKEN:
        git.check_url(url)
    for name in ("", "-x", "a/b", "..", "a b", "@", "x" * 65, "ä"):
        with pytest.raises(UsageError):
            sources.add(name, "https://h/x")
    assert not (state_home() / "recipe-sources").exists()


@over(
    "files, ids",
    [
        ({"a.yaml": GOOD, "deep/b.yml": GOOD, "compose.yaml": "services: {}\n", "x/a.yaml": GOOD}, ["a", "b", "x/a"]),
        ({"a.yaml": GOOD, "recipes/b.yaml": "services: {}\n"}, ["b"]),
        ({"recipes/1/a.yaml": GOOD, "recipes/2/a.yaml": GOOD, "recipes/b.yaml": GOOD}, ["1/a", "2/a", "b"]),
        ({".sparkrun/registry.yaml": MANIFEST, "good/a.yaml": GOOD, "lab/b.yaml": GOOD, "c.yaml": GOOD}, ["a", "b"]),
        (
            {".sparkrun/registry.yaml": MANIFEST, "good/a.yaml": GOOD, "lab/a.yaml": GOOD},
            ["good/a.yaml", "lab/a.yaml"],
        ),
        ({".sparkrun/registry.yaml": "registries: {", "a.yaml": GOOD, "b.yaml": "model: [\n"}, ["a", "b"]),
    ],
)
def test_where_a_folder_keeps_its_recipes(tmp_path: Path, files: dict[str, str], ids: list[str]) -> None:
    sources.add("team", str(written(tmp_path, files)))
    try:
        assert listed("team") == [f"@team/{name}" for name in ids]
    finally:
        sources.remove(sources.source("team"))


def test_no_source_hides_another_recipe_and_names_that_collide_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"qwen3-0.6b.yaml": GOOD, "mine.yaml": GOOD, "only.yaml": GOOD}
    sources.add("team", str(written(tmp_path / "team", files)))
    written(own_folder(), {"mine.yaml": GOOD, "@team/only.yaml": GOOD})
    assert recipe("qwen3-0.6b").model != "org/name"
    assert {"@team/qwen3-0.6b", "@team/mine", "mine"} <= set(names())
    assert entry("mine").origin is entry("@team/only").origin is Origin.OWN
    assert entry("@team/only").covers == str(tmp_path / "team/only.yaml")
    (own_folder() / "mine.yaml").unlink()
    with pytest.raises(UsageError) as why:
        recipe("mine")
    assert why.value.hint == "did you mean @team/mine?", "a bare name is never one of a source"
    for place, is_again in ((tmp_path, False), (tmp_path / "team", True)):
        with pytest.raises(UsageError, match="already") as why:
            sources.add("team", str(place))
        assert ("source update team" in (why.value.hint or "")) is is_again
    shutil.rmtree(tmp_path / "team")
    assert "@team" in "".join(unreadable_folders())
    assert main(["recipes", "source"]) == 0
    assert "the folder of @team can't be read" in capsys.readouterr().err


def test_sparkruns_registries_are_read_where_they_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As its `core/registry.py` keeps them: two of one URL are links to one checkout."""
    home = Path.home()
    cache = home / ".cache/sparkrun/registries"
    commit = committed(cache / "_url_0123456789ab", {"recipes/a.yaml": GOOD, "lab/b/c.yaml": GOOD, "d.yaml": GOOD})
    for name in ("main", "lab", "off", "gone"):
        (cache / name).symlink_to("_url_0123456789ab" if name != "gone" else "nowhere")
    rows = [
        f"- {{name: {name}, url: 'https://u:canary@h/x', subpath: {subpath}, {more}}}\n"
        for name, subpath, more in (
            ("main", "recipes", ""),
            ("lab", "lab", "visible: false"),
            ("off", "recipes", "enabled: false"),
            ("gone", "recipes", ""),
            ("out", "../..", ""),
            ("../x", "recipes", ""),
        )
    ]
    written(home / ".config/sparkrun", {"registries.yaml": f"registries:\n{''.join(rows)}- 5\n"})
    assert [(each.name, each.place, each.commit) for each in sources.sources()] == [
        ("lab", "https://<masked>@h/x", commit),
        ("main", "https://<masked>@h/x", commit),
    ]
    assert listed("main") + listed("lab") == ["@main/a", "@lab/c"]
    assert main(["recipes", "source", "remove", "main"]) == 2
    assert "sparkrun registry disable main" in capsys.readouterr().err
    written(home / ".local/state/sparktop/recipe-sources", {"lab.json": json.dumps({"place": str(tmp_path)})})
    assert (sources.source("lab").place, sources.source("lab").covers) == (str(tmp_path), "https://<masked>@h/x")
    sources.remove(sources.source("lab"))
    for text in ("cache_dir: ~nobody-of-that-name/x\n", "cache_dir: ['\\0']\n", "cache_dir: [\n", "5\n"):
        written(home / ".config/sparkrun", {"config.yaml": text})
        assert [each.name for each in sources.sources()] in ([], ["lab", "main"])
    (home / ".config/sparkrun/config.yaml").unlink()
    (home / ".cache/sparkrun").rename(tmp_path / "moved")
    assert sources.sources() == ()
    written(home / ".config/sparkrun", {"config.yaml": f"cache_dir: {tmp_path}/moved\n"})
    assert listed("main") == ["@main/a"]


def test_a_launch_is_agreed_to_once_for_each_commit(tmp_path: Path) -> None:
    sources.add(
        "team", str(written(tmp_path / "team", {"a.yaml": Path(entry("qwen3.6-35b-a3b-fp8").path).read_text()}))
    )

    def planned() -> Plan:
        plan = Sparks().planned(Order(recipe=recipe("@team/a")))
        assert isinstance(plan, Plan)
        return plan

    first = planned()
    assert first.typed == "@team"
    assert "First launch from @team: " in first.warnings[0]
    sources.trust(*first.new_sources)
    again = planned()
    assert (again.typed, again.new_sources) == ("", ())
    assert not any("First launch" in warning for warning in again.warnings)
    assert again.steps == first.steps
    committed(tmp_path / "team", {})
    (at_commit,) = planned().new_sources
    assert at_commit.commit, "its commit is another"
    assert replace(first, typed="spark1").new_sources == ()
    sources.trust(at_commit)
    sources.add("mods", str(written(tmp_path / "mods", {"mods/x/run.sh": "true"})))
    written(tmp_path / "team", {"a.yaml": (tmp_path / "team/a.yaml").read_text() + "mods: [mods/x]\n"})
    with_mod = planned()
    assert [source.name for source in with_mod.new_sources] == ["mods"], "what its mod is of is agreed to as well"
    assert f"(mods/x of @mods: {tmp_path}/mods)" in "".join(with_mod.warnings)


def test_a_folder_that_may_not_be_looked_at_is_told(tmp_path: Path) -> None:
    sources.add("team", str(written(tmp_path / "team", {"a.yaml": GOOD})))
    place = f"/{'a' * 300}"  # whoever runs this as root may look at any other
    (state_home() / "recipe-sources" / "team.json").write_text(json.dumps({"place": place}))
    assert listed("team") == []
    assert place in "".join(unreadable_folders())
    with pytest.raises(UsageError, match="is no folder"):
        sources.add("other", place)
