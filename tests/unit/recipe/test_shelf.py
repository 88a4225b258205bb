"""Where recipes are found, and the command that lists, shows and checks them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.table import over

from sparktop.cli import main
from sparktop.documents.recipe import columns, recipe_row, row_line
from sparktop.errors import ConfigError, UsageError
from sparktop.recipe.read.shelf import Origin, entries, entry, own_folder, recipe, unreadable_folders
from sparktop.text.table import heading

GOOD = "model: org/name\ncontainer: a/b:1\ndefaults: {port: 8000}\ncommand: vllm serve {model} --port {port}\n"
BAD = """\
model: org/name
container: a/b:1
mods: [mods/x]
defalts: {port: 8000}
command: vllm serve {model} --port {port}
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's own folder, empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_COLOR", "1")
    folder = own_folder()
    folder.mkdir(parents=True)
    return folder


def test_shipped_recipes_are_there_and_an_own_one_wins(own: Path) -> None:
    before = {each.id: each for each in entries()}
    assert before["qwen3-0.6b"].origin is Origin.SHIPPED
    (own / "qwen3-0.6b.yaml").write_text(GOOD)
    (own / "mine.yml").write_text(GOOD)
    (own / "team").mkdir()
    (own / "team" / "theirs.yaml").write_text(GOOD)
    (own / ".hidden.yaml").write_text(GOOD)
    (own / "notes.txt").write_text(GOOD)
    after = {each.id: each for each in entries()}
    assert set(after) - set(before) == {"mine", "team/theirs"}
    assert after["qwen3-0.6b"].origin is Origin.OWN
    assert after["qwen3-0.6b"].covers.endswith("recipes/qwen3-0.6b.yaml")
    assert recipe("qwen3-0.6b").model == "org/name"
    assert recipe("team/theirs").id == "team/theirs"
    assert list(after) == sorted(after)


def test_a_file_is_taken_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(GOOD)
    assert entry(str(path)).origin is Origin.FILE
    assert recipe(str(path)).id == "some"
    monkeypatch.chdir(tmp_path)
    assert recipe("./some.yaml").id == recipe("some.yaml").id == "some"


@over(
    "name, hint",
    [
        ("qwen3-06b", "did you mean qwen3-0.6b"),
        ("MINIMAX", "did you mean minimax"),
        ("xyzzy", "sparktop recipes list shows all"),
        ("/no/such.yaml", "sparktop recipes list shows all"),
        ("./none", "sparktop recipes list shows all"),
        ("", "sparktop recipes list shows all"),
        ("..", "sparktop recipes list shows all"),
        ("a/../b", "sparktop recipes list shows all"),
        ("x" * 5000, "sparktop recipes list shows all"),
        (f"/{'x' * 5000}.yaml", "sparktop recipes list shows all"),
        ("~nobody-of-that-name/x.yaml", "sparktop recipes list shows all"),
    ],
)
def test_a_name_that_nobody_has(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        entry(name)
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_recipe_with_errors_is_found_and_not_launched(own: Path) -> None:
    (own / "bad.yaml").write_text(BAD)
    assert entry("bad").recipe is None
    with pytest.raises(ConfigError) as caught:
        recipe("bad")
    assert f"{own / 'bad.yaml'}:3: mods: " in str(caught.value)
    assert f"{own / 'bad.yaml'}:4: defalts: unknown key: did you mean `defaults`?" in str(caught.value)


def test_what_is_no_text_or_cant_be_opened_is_a_problem(own: Path) -> None:
    (own / "binary.yaml").write_bytes(b"model: a\n\xff\xfe")
    (own / "gone.yaml").symlink_to(own / "nowhere")
    (own / "wide.yaml").write_bytes(GOOD.encode("utf-16"))
    found = {each.id: each.reading for each in entries()}
    assert found["binary"].problems[0].line == 2
    assert "UTF-8" in found["binary"].problems[0].text
    assert "No such file" in found["gone"].problems[0].text
    assert found["wide"].recipe is not None


def test_a_file_in_the_place_of_the_own_folder_is_told(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.rmdir()
    assert unreadable_folders() == (), "a folder that nobody has made is no fault"
    own.write_text(GOOD)
    said = f"{own} is a file, but must be the folder of your recipes"
    assert main(["recipes", "list"]) == 0
    assert said in capsys.readouterr().err
    assert main(["recipes", "list", "--json"]) == 0
    assert said in json.loads(capsys.readouterr().out)["unread"][0]
    assert main(["recipes", "validate", "--all"]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(UsageError) as gone:
        entry("mine")
    assert said in (gone.value.hint or "")


def test_a_folder_that_may_not_be_read_is_told_and_the_others_are_listed(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "mine.yaml").write_text(GOOD)
    shut = own / "of others"
    shut.mkdir()
    (shut / "lost.yaml").write_text(GOOD)
    listed = Path.iterdir

    def iterdir(folder: Path) -> object:
        if folder == shut:
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert main(["recipes", "list"]) == 0
    out, err = capsys.readouterr()
    assert "\nmine " in out
    assert f"ls -ld '{shut}'" in err


def test_list(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "bad.yaml").write_text(BAD)
    (own / "mine.yaml").write_text(GOOD)
    assert main(["recipes", "list"]) == 0
    out, err = capsys.readouterr()
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert "✖ bad.yaml:3: mods:" in rows["bad"]
    assert rows["bad"].endswith("(and 2 more)")
    at = {name: rows["RECIPE"].index(name) for name in rows["RECIPE"].split()}
    assert list(at) == ["RECIPE", "ENGINE", "NODES", "MODEL", "QUANT", "TOK/S", "FROM", "TITLE"]
    mine, mistral = rows["mine"], rows["mistral-small-4-119b-nvfp4"]
    assert mine[at["ENGINE"] :].startswith("vllm      1-8  org/name ")
    assert mine[at["FROM"] :] == "yours"
    assert mistral[at["ENGINE"] :].startswith("sglang      1  mistralai/")
    assert mistral[at["FROM"] :].startswith("shipped  Mistral Small 4")
    assert "1 of them" in err


@pytest.mark.parametrize("width", [40, 80, 120, 400])
def test_the_list_is_as_wide_as_the_terminal_at_the_most_and_its_columns_stand_below_one_another(
    own: Path, width: int
) -> None:
    (own / "bad.yaml").write_text(BAD)
    (own / "wide.yaml").write_text(GOOD.replace("org/name", "org/" + "模型" * 40))
    (own / "qwen3-0.6b.yaml").write_text(GOOD)
    shelf_rows = list(map(recipe_row, entries()))
    shown = columns(shelf_rows, width, has_titles=True)
    lines = [heading(shown), *(row_line(row, shown, width, {}) for row in shelf_rows)]
    head, *rows = (line.plain.rstrip() for line in lines)
    assert all(cell_len(line) <= width for line in (head, *rows))
    by_name = {line.split()[0]: line for line in rows}
    assert by_name["bad"].partition("✖")[1]
    engine = head.index("ENGINE")
    told = {line[engine:].split()[0] for name, line in by_name.items() if name != "bad"}
    if width >= 80:
        assert told == {"vllm", "sglang"}
        assert "qwen3.6-35b-a3b-fp8 " in by_name["qwen3.6-35b-a3b-fp8"]
        assert "FROM" in head
    if width >= 120:
        assert by_name["qwen3.6-35b-a3b-fp8"][head.index("MODEL") :].startswith("Qwen/Qwen3.6-")
    if width == 400:
        assert "…" not in "".join(line for name, line in by_name.items() if name != "bad")


def test_list_as_json(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "bad.yaml").write_text(BAD)
    assert main(["recipes", "list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    known = {each["id"]: each for each in data["recipes"]}
    assert known["bad"]["origin"] == "yours"
    assert [each["line"] for each in known["bad"]["problems"]] == [3, 4, 5]
    assert known["bad"]["problems"][1]["nearest"] == "defaults"
    assert known["qwen3-0.6b"]["nodes"] == [1, 1]


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "minimax-m2.7-nvfp4-ray", "--set", "max_model_len=4096"]) == 0
    out = capsys.readouterr().out
    for text in (
        "2 nodes, joined by Ray",
        "4096 (as you set it)",
        "Known risks",
        "29-37 tokens/s",
        "--max-model-len 4096 \\",
        "an image that carries Ray",
        "config.variable-without-effect  ",
        '› Field report "MiniMax M2.7 on 2x DGX Spark"',
        "(Field report on two Sparks with MiniMax M2.7",
    ):
        assert text in out
    assert main(["recipes", "show", "gpt-oss-120b"]) == 0
    assert "\nexpected    Nobody has reported a figure" in capsys.readouterr().out


def test_show_wants_no_secret_and_shows_none(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "env: {SITE: 'Bearer $SITE_TOKEN', MY_PASSWORD: hunter2}\nruntime_config: {sparktop: {provenance: "
    (own / "mine.yaml").write_text(GOOD.replace("8000", "8000, trust: true") + said + "[{source: a friend}]}}\n")
    assert main(["recipes", "show", "mine"]) == 0
    printed = capsys.readouterr().out
    assert "\nSITE=Bearer $SITE_TOKEN\nMY_PASSWORD=<masked>\n" in printed
    assert "hunter2" not in printed
    assert "\ntrust  true\n" in printed
    assert "\n› a friend\n" in printed


def test_show_refuses_what_cant_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "qwen3-0.6b", "--set", "max_modl_len=1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "max_model_len" in err


def test_show_refuses_what_a_file_with_settings_doesnt_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "run.sh"
    script.write_text("docker run --gpus all vllm/vllm-openai:v0.27.0 --model a/b --max-model-len $LONG --port $PORT\n")
    assert main(["recipes", "show", str(script), "--set", "FOO=1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "LONG, PORT" in err
    assert main(["recipes", "show", str(script), "--set", "PORT=8123"]) == 0


def test_show_of_a_broken_one(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "bad.yaml").write_text(BAD)
    assert main(["recipes", "show", "bad"]) == 2
    assert "bad.yaml:4: defalts:" in capsys.readouterr().out


def test_validate_says_every_problem_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(BAD)
    assert main(["recipes", "validate", "bad.yaml"]) == 2
    assert capsys.readouterr().out == VALIDATED.replace("FOLDER", str(tmp_path))


VALIDATED = """\
✖ bad.yaml:3: mods: `mods/x`: no folder of that name with run.sh in FOLDER and its repository, \
nor in a source of recipes; add eugr's mods: sparktop recipes source add eugr https://github.com/eugr/spark-vllm-docker
✖ bad.yaml:4: defalts: unknown key: did you mean `defaults`?
✖ bad.yaml:5: command: the parameter `{port}` has no value; \
set it: `defaults: port: ...`, or --set port=...
"""
LINTED = GOOD.replace("a/b:1", "vllm/vllm-openai:v0.19.0").replace(
    "--port {port}", "--port {port} --gpu-memory-utilization 0.97"
)


def test_validate_lints_and_mutes_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(LINTED)
    assert main(["recipes", "validate", "r.yaml", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["recipes"][0]["findings"]
    rules = [each["rule"] for each in found if each["severity"] != "info"]
    assert rules
    mute = ", ".join(f"{{rule: {rule}, reason: it is meant}}" for rule in {*rules, "no.such"})
    Path("r.yaml").write_text(f"{LINTED}runtime_config: {{sparktop: {{mute: [{mute}]}}}}\n")
    assert main(["recipes", "validate", "r.yaml"]) == 0
    out = capsys.readouterr().out
    assert f"· {rules[0]} is muted" in out
    assert "· no.such is muted" in out
    assert "✓ r.yaml: vllm" in out


def test_every_shipped_recipe_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "validate", "--all"]) == 0
    assert capsys.readouterr().out.count("✓ ") == len(entries())


@pytest.mark.parametrize(
    "words",
    [
        ["recipes", "list", "x"],
        ["recipes", "show"],
        ["recipes", "show", "a", "b"],
        ["recipes", "validate"],
        ["recipes", "validate", "nobodys"],
        ["recipes", "list", "--set", "a=b"],
        ["recipes", "show", "qwen3-0.6b", "--set", "a"],
    ],
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("sparktop: ")


def test_a_hostile_file_reaches_the_terminal_as_text(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "h\x1b]52;c;x\x07.yaml").write_text(GOOD.replace("port: 8000", '"\\e[31m": "\\x1b]0;x\\x07"'))
    main(["recipes", "list"])
    main(["recipes", "validate", "--all"])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\x07" not in captured.out + captured.err


def test_what_would_wait_for_ever_is_a_problem_and_holds_nothing_up(own: Path) -> None:
    os.mkfifo(own / "pipe.yaml")
    (own / "endless.yaml").symlink_to("/dev/zero")
    (own / "huge.yaml").write_text(GOOD + "# filler\n" * 200_000)
    (own / "mine.yaml").write_text(GOOD)
    found = {each.id: each.reading for each in entries()}
    assert "a FIFO" in found["pipe"].problems[0].text
    assert "no file" in found["endless"].problems[0].text
    assert "larger than 781 KiB" in found["huge"].problems[0].text
    assert recipe("mine").model == "org/name"


def test_a_path_that_is_no_file_is_told_as_what_it_is(own: Path, tmp_path: Path) -> None:
    (own / "mine.yaml").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for name, said in (
        (f"{tmp_path}", "is a folder"),
        (f"{tmp_path}/pipe.yaml", "is not a readable file"),
        (f"{tmp_path}/loop.yaml", "is not a readable file"),
        ("mine.yaml", "did you mean the recipe mine?"),
    ):
        with pytest.raises(UsageError) as caught:
            entry(name)
        assert said in str(caught.value), name


def test_a_recipe_without_a_title_has_no_empty_line_for_it(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "mine.yaml").write_text(GOOD)
    assert main(["recipes", "show", "mine"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == ["mine", "", "model       org/name"]
