"""`sparktop launch`: what is asked for is understood, secrets stay where they belong, and refusals show the picture."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.table import over
from tests.ui import pictures
from tests.ui.look import clock_of_pictures
from tests.ui.operating import FakeOperating
from tests.unit.headless.test_act import Side, nobody
from tests.unit.operate.launch.launch_support import Sparks, recipe

from sparktop.cli import main
from sparktop.cli.commands import BY_NAME
from sparktop.cli.engines import _secrets, _values, order_of, ordered
from sparktop.errors import ConfigError, UsageError
from sparktop.headless.invocation import Invocation, print_files
from sparktop.headless.launch import Launch, adopt_there, launch
from sparktop.model.prospect import Gate
from sparktop.model.recipe import Order, SecretProblem
from sparktop.model.request import Request
from sparktop.model.state import State
from sparktop.model.survey import Answer, FileText, Question
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.recipe.read import shelf
from sparktop.recipe.sources import sources

QWEN = "qwen3.6-35b-a3b-fp8"


def planned(values: Mapping[str, str] | None = None) -> Plan | Refusal:
    """As the planner makes it on an idle Spark."""
    return Sparks().planned(Order(recipe=recipe(QWEN), values=values or {}))


async def run(side: FakeOperating, wanted: Launch, **output: Any) -> int:
    clock = clock_of_pictures()
    watch = pictures.FakeWatch(pictures.PICTURES["one"](clock))
    call = Invocation(make=lambda _: (watch, side), secret=nobody, clock=clock, timeout_s=0.2, **output)
    return await launch(call, wanted)


async def test_a_dry_run_prints_plan_and_prospect(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    side.answer = lambda request: planned()
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN)), notes=("taken: HF_TOKEN",)), is_dry=True) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Launch Qwen3.6-35B-A3B-FP8 on spark1 (vLLM)\n")
    for part in (
        "\nMemory\n",
        "\nOn disk already\n",
        "\nGates\n",
        " steps in this order\n",
        "Rollback, if it fails\n",
        "\nThe same by hand\n",
    ):
        assert part in said.out, part
    assert "taken: HF_TOKEN" in said.err
    assert side.asked[0].action == "launch"
    assert side.executions == ()


async def test_a_refusal_prints_the_picture_of_why(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    side.answer = lambda request: planned({"gpu_memory_utilization": "0.95"})
    wanted = Launch(order=Order(recipe=recipe(QWEN)))
    assert await run(side, wanted, is_agreed=True) == 1
    out = capsys.readouterr().out
    assert out.startswith("✖ Does not fit")
    assert "\nspark1  now  ▏" in out
    assert await run(side, wanted, is_agreed=True, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)["refusal"]["prospect"]
    assert told["budget"]["nodes"][0]["after"]
    assert told["recipe"] == QWEN


async def test_yes_alone_does_not_agree_to_a_new_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources.add("team", str(tmp_path))
    order = Order(recipe=replace(recipe(QWEN), id="@team/a", source=sources.source("team")))
    side = Side()
    side.answer = lambda request: Sparks().planned(order)
    assert await run(side, Launch(order=order), is_agreed=True) == 1
    said = capsys.readouterr()
    assert f"▲ First launch from @team: {tmp_path}" in said.out
    assert "sparktop recipes source trust team" in said.err
    assert side.executions == ()


async def test_export_prints_the_file_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    side.answer = lambda request: planned()
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN)), export="run")) == 0
    out = capsys.readouterr().out
    assert "docker run" in out
    assert "Gates" not in out
    side.answer = lambda request: Refusal(request=request, reason="no docker")
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN)), export="run")) == 1
    said = capsys.readouterr()
    assert (said.out, "no docker" in said.err) == ("", True)


def test_several_files_have_their_names_above_them(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned()
    assert print_files(plan, {"a.yaml": "one\n"}) == 0
    assert capsys.readouterr().out == "one\n"
    print_files(plan, {"a.yaml": "one\n", "b.yaml": "two\n"})
    assert capsys.readouterr().out == "# --- a.yaml\none\n\n# --- b.yaml\ntwo\n"


async def test_engines_that_may_be_stopped_are_found_on_their_nodes() -> None:
    side = Side()
    side.answer = lambda request: Refusal(request=request, reason="as a test wants it")
    await run(side, Launch(order=Order(recipe=recipe(QWEN)), stops=("vllm-minimax",)))
    assert side.asked[0].order is not None
    assert side.asked[0].order.stops == (("spark1", "vllm-minimax"),)
    with pytest.raises(UsageError, match="vllm-minimx") as why:
        await run(side, Launch(order=Order(recipe=recipe(QWEN)), stops=("vllm-minimx",)))
    assert why.value.hint == "did you mean vllm-minimax?"


async def test_a_container_is_launched_and_adopted_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    side.answer = lambda request: Refusal(request=request, reason="as a test wants it")
    inspect = {
        "Name": "/vllm-minimax",
        "Image": "sha256:1",
        "Config": {"Image": "i/vllm:1", "Cmd": ["vllm", "serve", "Org/M"], "Env": ["MY_TOKEN=canary"]},
        "HostConfig": {"NetworkMode": "host"},
    }

    async def answers(questions: Sequence[Question]) -> Mapping[Question, Answer]:
        return {ask: Answer(value=inspect if "/containers/" in ask.path else {}) for ask in questions}  # type: ignore[union-attr]

    side.answers = answers
    options = BY_NAME["launch"].arguments().parse_args(["vllm-minimax", "spark1"])

    def wanted(name: str) -> Launch:
        return Launch(
            order=None,
            name=name,
            order_of=lambda adopted: order_of(adopted.reading.recipe, options, adopted),
        )

    await run(side, wanted("vllm-minimax"))
    order = side.asked[0].order
    assert order is not None
    assert (order.recipe.model, order.stops) == ("Org/M", (("spark1", "vllm-minimax"),))
    assert order.secrets["MY_TOKEN"] == "canary"
    capsys.readouterr()
    clock = clock_of_pictures()
    watch = pictures.FakeWatch(pictures.PICTURES["one"](clock))
    call = Invocation(make=lambda _: (watch, side), secret=nobody, timeout_s=0.2)
    assert await adopt_there(call, "vllm-minimax", saves=False) == 0
    said = capsys.readouterr()
    assert "\nmodel: Org/M\n" in said.out
    assert "canary" not in said.out + said.err
    with pytest.raises(UsageError, match="no recipe, no file here, and no container") as why:
        await run(side, wanted("vllm-minimx"))
    assert why.value.hint == "did you mean vllm-minimax?"


async def test_a_file_that_lies_on_the_spark_alone_is_made_into_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    files = {"/srv/llm/run.sh": "docker run --network host i/vllm:1 vllm serve Org/There\n"}
    side = Side()

    async def answers(questions: Sequence[Question]) -> Mapping[Question, Answer]:
        return {ask: Answer(value=files.get(ask.path)) for ask in questions if isinstance(ask, FileText)}

    side.answers = answers
    clock = clock_of_pictures()
    watch = pictures.FakeWatch(pictures.PICTURES["one"](clock))
    call = Invocation(make=lambda _: (watch, side), secret=nobody, timeout_s=0.2)
    assert await adopt_there(call, "/srv/llm/run.sh", saves=False) == 0
    assert "\nmodel: Org/There\n" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"/srv/llm/other\.sh on spark1 is no file that can be read there"):
        await adopt_there(call, "/srv/llm/other.sh", saves=False)


async def test_a_file_whose_image_has_the_command_asks_the_node_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.sh"
    file.write_text("docker run -d --name mine own/vllm:1\n")
    options = BY_NAME["launch"].arguments().parse_args([str(file), "spark1"])
    with pytest.raises(
        ConfigError, match=r"its image's own command starts the engine.*name the HOST that has the image"
    ):
        ordered(options)
    side = Side()
    side.answer = lambda request: Refusal(request=request, reason="as a test wants it")
    images: list[object] = [{"Config": {"Entrypoint": ["vllm", "serve"], "Cmd": ["Org/Own", "--port", "8005"]}}, None]

    async def answers(questions: Sequence[Question]) -> Mapping[Question, Answer]:
        assert [getattr(ask, "path", "") for ask in questions] == ["/images/own/vllm:1/json"]
        return dict.fromkeys(questions, Answer(value=images.pop(0)))

    side.answers = answers
    wanted = Launch(
        order=None,
        name=str(file),
        order_of=lambda adopted: order_of(adopted.reading.recipe, options, adopted),
    )
    await run(side, wanted)
    order = side.asked[0].order
    assert order is not None
    assert (order.recipe.model, order.recipe.defaults["port"], order.stops) == ("Org/Own", 8005, ())
    assert "is a shell script: made into a recipe and launched" in capsys.readouterr().err
    with pytest.raises(UsageError, match="is in own/vllm:1, which spark1 doesn't have") as why:
        await run(side, wanted)
    assert why.value.hint == "on spark1: docker pull own/vllm:1"


def test_all_that_nothing_sets_is_named_with_the_command_to_type(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("\ndocker run -v $DATA:/d i/vllm:1 vllm serve $1 --max-model-len $LEN\n")

    def order(*given: str) -> Order:
        options = BY_NAME["launch"].arguments().parse_args([str(file), "spark1", *(f"--set={one}" for one in given)])
        return ordered(options)[0]

    with pytest.raises(UsageError) as why:
        order("LEN=8k")
    assert str(why.value).startswith("not set: DATA (run.sh:2 uses it), ARG1 (run.sh:2 uses it)\n")
    assert why.value.hint == f"sparktop launch {file} spark1 --set LEN=8k --set DATA=... --set ARG1=..."
    recipe = order("LEN=8k", "DATA=/data", "ARG1=Org/M").recipe
    assert (recipe.model, recipe.options["volumes"]) == ("Org/M", ["/data:/d"])
    with pytest.raises(UsageError, match="begins with a dash"):
        order("LEN=8k", "DATA=/data", "ARG1=--x")


async def test_one_name_is_stopped_on_every_node_or_on_the_one_that_is_named() -> None:
    side = Side()
    side.answer = lambda request: Refusal(request=request, reason="as a test wants it")
    for stop, found in (
        ("vllm-minimax", ("spark1", "spark2")),
        ("vllm-minimax@spark2", ("spark2",)),
    ):
        clock = clock_of_pictures()
        seen = pictures.PICTURES["decode"](clock)
        one, other = seen.nodes
        watch = pictures.FakeWatch(replace(seen, nodes=(one, replace(other, engines=one.engines))))
        wanted = Launch(order=Order(recipe=recipe(QWEN)), stops=(stop, stop))
        call = Invocation(make=lambda _, watch=watch: (watch, side), secret=nobody, timeout_s=0.2)
        await launch(call, wanted)
        asked = side.asked[-1].order
        assert asked is not None
        assert asked.stops == tuple((node, "vllm-minimax") for node in found)


async def test_what_runs_already_is_exported_as_launched_in_its_own_place(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    here = (("spark1", "vllm-qwen"),)

    def answer(request: Request) -> Plan | Refusal:
        plan = planned()
        assert isinstance(plan, Plan)
        assert plan.prospect is not None
        if request.order is not None and request.order.stops == here:
            return plan
        return Refusal(request=request, reason="runs already", prospect=replace(plan.prospect, runs=here))

    side.answer = answer
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN)), export="compose")) == 0
    assert "services:" in capsys.readouterr().out
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN))), is_dry=True) == 1


async def test_what_a_gate_says_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    plan = planned()
    assert isinstance(plan, Plan)
    assert plan.prospect is not None
    gate = Gate(name="port", node="spark1", state=State.WARNING, detail="is odd", steps=("look at it",))
    said = ("The log is lost.", "port on spark1: is odd")
    odd = replace(plan, warnings=said, prospect=replace(plan.prospect, gates=(gate,)))
    side.answer = lambda request: odd
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN))), is_dry=True) == 0
    out = capsys.readouterr().out
    assert out.count("▲ port  is odd") == 1
    assert out.rstrip().endswith("▲ The log is lost."), "where the question is asked"
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN))), is_dry=True, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["warnings"] == list(said)


# --- the arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which recipe?"),
        (("qwen3.6-35b-a3b-fp",), "did you mean qwen3.6-35b-a3b-fp8"),
        ((QWEN,), "on which Spark?"),
        ((QWEN, "spark1", "--yes", "--dry-run"), "together"),
        ((QWEN, "spark1", "--yes", "--export", "run"), "together"),
        ((QWEN, "spark1", "--json", "--export", "run"), "--export prints a file"),
        ((QWEN, "spark1", "--set", "max_model_len"), "--set wants NAME=VALUE"),
        ((QWEN, "spark1", "--set", "prot=8000"), "did you mean port?"),
        ((QWEN, "spark1", "--set", "port="), "it must be a port from 1 to 65535"),
        ((QWEN, "spark1", "spark1"), "spark1 is named twice"),
        ((QWEN, "spark1", "--env-file", "/tmp"), "/tmp is no file"),
        ((QWEN, "spark1", "--set", "HF_TOKEN=hf_abcdefghijklmnop"), "looks like a secret"),
        ((QWEN, "spark1", "--env-file", "/no/such/file"), "there is no such file"),
    ],
)
def test_what_is_mistyped_is_told_with_what_was_meant(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *words]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


def test_a_slip_in_a_recipes_name_is_told_before_a_container_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Launch] = []

    def launch(call: Invocation, command: Launch) -> int:
        asked.append(command)
        return 0

    monkeypatch.setattr("sparktop.headless.launch.launch", launch)
    assert main(["launch", QWEN[:-1], "local"]) == 0
    assert main(["launch", "vllm-mine", "local"]) == 0
    near, far = asked
    assert near.name == QWEN[:-1]
    assert f"did you mean {QWEN}?" in " ".join(near.notes)
    assert far.notes == ()


def test_the_next_step_for_a_file_that_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("empty.yaml", b""), ("engine.sh", b"\x7fELF\xff\xfe\x00")):
        (tmp_path / name).write_bytes(content)
        assert main(["launch", str(tmp_path / name), "spark1"]) == 2
        assert "give a recipe, a compose file" in capsys.readouterr().err
    assert main(["recipes", "show", str(tmp_path / "engine.sh")]) == 2
    shown = capsys.readouterr().out
    assert "engine.sh can't be launched" in shown
    assert "give a recipe, a compose file" in shown


def test_a_default_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services:\n  v:\n    image: vllm/vllm-openai:v0.33.0\n    command: vllm serve ${MODEL:-Org/M}\n")
    assert main(["recipes", "adopt", str(file)]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "MODEL" in line] == [
        "· model is `Org/M`, as the file has it: whether MODEL is set where this starts may change it (compose.yaml:4)"
    ]


def test_act_leads_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["act", "launch", "spark1"]) == 2
    assert "sparktop launch RECIPE|FILE|CONTAINER HOST" in capsys.readouterr().err


@over("pair", ["note=sk-proj-abcdefghijklmnopqrstuv", "api_key=x", "HF_TOKEN=x"])
def test_a_secret_is_refused_as_an_argument(pair: str) -> None:
    with pytest.raises(UsageError, match="looks like a secret") as why:
        _values([pair])
    assert pair.partition("=")[2] not in str(why.value) or len(pair.partition("=")[2]) < 3


def test_values_may_hold_an_equals_sign() -> None:
    assert _values(['speculative_config={"a": "b=c"}', "port=8001"]) == {
        "speculative_config": '{"a": "b=c"}',
        "port": "8001",
    }


# --- secrets


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The operator's own recipes, and no secret in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("HF_TOKEN", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "sparktop" / "recipes"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text((Path(shelf.entry(QWEN).path)).read_text())
    return folder


def secrets_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_from_the_file_beside_an_own_recipe(own: Path) -> None:
    secrets_file(own / ".env", "VLLM_API_KEY=key-77\n")
    secrets_file(own.parent / ".env", "VLLM_API_KEY=general\nHF_TOKEN=hub\n")
    options = Namespace(set=[], env_file=None, recipe="mine", hosts=[])
    order, notes = order_of(shelf.recipe("mine"), options, None)
    assert order.secrets == {"VLLM_API_KEY": "key-77", "HF_TOKEN": "hub"}
    assert notes == (f"taken: VLLM_API_KEY from {own}/.env, HF_TOKEN from {own.parent}/.env",)


def test_the_environment_wins_and_a_named_file_is_the_only_one(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets_file(own / ".env", "VLLM_API_KEY=beside\n")
    named = secrets_file(own.parent / "other.env", "HF_TOKEN=named\n")
    assert _secrets(shelf.recipe("mine"), named).values == {"HF_TOKEN": "named"}
    monkeypatch.setenv("HF_TOKEN", "mine")
    assert _secrets(shelf.recipe("mine"), named).values["HF_TOKEN"] == "mine"


def test_a_file_that_others_can_read_is_told_and_one_that_was_asked_for_is_an_error(own: Path) -> None:
    open_to_all = secrets_file(own / ".env", "VLLM_API_KEY=beside\n", 0o640)
    found = _secrets(shelf.recipe("mine"), None)
    assert found.values == {}
    (problem,) = found.problems
    assert problem.text.endswith(f"chmod 600 {open_to_all}")
    with pytest.raises(ConfigError, match="chmod 600") as why:
        _secrets(shelf.recipe("mine"), open_to_all)
    assert str(open_to_all) in str(why.value)


def test_of_a_file_only_what_is_wanted_is_taken(own: Path) -> None:
    secrets_file(own / ".env", "AWS_SECRET_ACCESS_KEY=other\nHF_TOKEN=hub\n")
    assert _secrets(shelf.recipe("mine"), None).values == {"HF_TOKEN": "hub"}


async def test_why_a_secret_is_not_taken_is_not_masked_itself(capsys: pytest.CaptureFixture[str]) -> None:
    side = Side()
    problem = "/home/me/.env line 1: the value of VLLM_API_KEY is not valid: it is not NAME=value"
    side.answer = lambda request: Sparks().planned(
        Order(recipe=recipe(QWEN), secret_problems=(SecretProblem(text=problem, name="VLLM_API_KEY"),))
    )
    assert await run(side, Launch(order=Order(recipe=recipe(QWEN))), is_dry=True) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"✖ secrets - {problem} " in said
    assert "VLLM_API_KEY" in said
