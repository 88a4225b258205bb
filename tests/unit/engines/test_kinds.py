"""Each engine's file: it can be read, names what exists, and what it recognises is its own."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import typing
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.table import over

from sparktop.cmdline.engine_command import command_of, kind_of_image, of_container, of_process, server_in
from sparktop.cmdline.launch_command import changed
from sparktop.diagnose.logs.engine_state import Phase, wordings
from sparktop.engines import metrics
from sparktop.engines.memory_needs import share
from sparktop.engines.metrics import METRICS, parse, paths_of, sources_of, text_in
from sparktop.model.engine import Engine, EngineKind, EngineMetrics
from sparktop.model.kinds.engine_kind import FOLDER, EngineTraits
from sparktop.model.telemetry import GapReason
from sparktop.probe.engine_marks import engine_marks

KINDS = list(EngineKind)
MARKS = engine_marks()
LLAMA = EngineKind("llama.cpp")
CAPTURES = Path(__file__).parents[2] / "real/captures/llama.cpp-0.7.0"
SHAPES = {"str": str, "int": int, "bool": bool, "tuple": tuple, "Mapping": Mapping}


def test_every_file_is_an_engine() -> None:
    assert {kind.value for kind in KINDS} == {file.stem for file in FOLDER.glob("*.toml")}


@over("kind", KINDS)
def test_a_file_says_what_can_be_used(kind: EngineKind) -> None:
    traits = kind.traits
    for each in dataclasses.fields(EngineTraits):
        assert isinstance(getattr(traits, each.name), SHAPES[str(each.type).partition("[")[0]]), each.name
    figures = set(typing.get_type_hints(EngineMetrics))
    assert set(sources_of(kind)) <= figures
    assert {f"{name}_buckets" for name in traits.histograms} <= figures
    assert {row["word"] for row in traits.line} == {one.word for one in wordings() if one.kind is kind}
    assert all(set(row) - {"word", "pattern"} <= set(typing.get_type_hints(Phase)) for row in traits.line)
    asked = {*paths_of(kind), *(text.partition(" ")[0] for text in traits.texts.values())}
    assert asked <= {METRICS, "/version", *traits.asks}
    assert all(seconds >= 1.0 for seconds in traits.asks.values())


@over("kind", KINDS)
def test_its_programs_are_its_own_and_seen_by_the_probe(kind: EngineKind) -> None:
    for program in kind.traits.programs:
        found = of_process([f"/opt/{program.split()[0]}", *program.split()[1:], "--port", "9"])
        assert found is not None
        assert (found.kind, found.port) == (kind, 9)
        assert re.search(MARKS["command"], f"/opt/{program} --port 9")
        assert re.match(MARKS["comm"], program[:15])
        assert re.search(MARKS["unit"], f"/opt/{program}")
    assert all(kind_of_image(f"example.org/{image}:1") is kind for image in kind.traits.images)


@over(
    "line, environment, model, port",
    [
        ("/app/llama-server -m /m/x.gguf --host 0.0.0.0 -ngl 99 -fa on", (), "/m/x.gguf", 8080),
        ("/usr/bin/llama-server -hf ggml-org/oss-GGUF -c 0 -n -1 --port 8088", (), "ggml-org/oss-GGUF", 8088),
        ("sh -c 'exec llama-server --metrics -m $M'", (), "$M", 8080),
        ("llama serve --docker-repo ai/smollm2 -a tiny", (), "ai/smollm2", 8080),
        ("/app/tools.sh --server -m /m/x.gguf", (), "/m/x.gguf", 8080),
        ("/app/llama-server", ("LLAMA_ARG_MODEL=/m/y.gguf", "LLAMA_ARG_PORT=81"), "/m/y.gguf", 81),
        ("/app/llama-server -m /m/x.gguf", ("LLAMA_ARG_MODEL=/y", "LLAMA_ARG_ENDPOINT_METRICS=0"), "/m/x.gguf", 8080),
    ],
)  # fmt: skip
def test_llama_cpps_command(line: str, environment: tuple[str, ...], model: str, port: int) -> None:
    found = of_container(shlex.split(line), environment)
    assert found is not None
    assert (found.kind, found.model, found.port) == (LLAMA, model, port)
    assert bool(found.metrics_off) is ("--metrics" not in line)


@over("line", ["docker run --name llama-server image", "grep llama-server /x", "pkill -f llama-server", "llama bench"])
def test_what_only_names_it(line: str) -> None:
    assert of_process(line.split()) is None
    assert "llama-server /x" in line or server_in(line.split()) is None


def test_its_switches_take_no_word() -> None:
    found = of_process(["llama-server", "--metrics", "-np", "2", "--jinja", "--no-slots", "-m", "x.gguf", "-kvu"])
    assert found is not None
    assert (found.value("--parallel"), found.value("-m"), found.has("--kv-unified")) == ("2", "x.gguf", True)


def test_it_takes_no_share_of_memory() -> None:
    engine = Engine(key="a", kind=LLAMA, name="a", argv=("llama-server", "-m", "x"))
    assert (share(engine), command_of(engine).kind) == (1.0, LLAMA)


@pytest.mark.parametrize("name", ["metrics-ready", "metrics-under-load", "metrics-after"])
def test_figures_of_a_real_llama_cpp(name: str) -> None:
    found = parse((CAPTURES / f"{name}.txt").read_bytes(), LLAMA, 1.0, {"/slots": slots(busy=2)})
    assert isinstance(found, EngineMetrics)
    running, generated = {"metrics-ready": (0, 0), "metrics-under-load": (3, 832), "metrics-after": (0, 2432)}[name]
    assert (found.running, found.waiting, found.generation_tokens) == (running, 0, generated)
    assert (found.slots, found.context_tokens, found.unfinished_tokens) == (4, 8192, 30)
    assert found.prefix_queries == (found.prompt_tokens or 0) + (found.prefix_hits or 0)
    assert found.gaps["kv_cache_ratio"] is GapReason.NOT_FOUND


def slots(busy: int) -> bytes:
    """A real answer, with so many slots at work."""
    rows = json.loads((CAPTURES / "slots.json").read_text())
    for number, row in enumerate(rows[:busy], 1):
        row["is_processing"], row["next_token"][0]["n_decoded"] = True, 10 * number
    return json.dumps(rows).encode()


def test_without_metrics_its_slots_tell_what_runs() -> None:
    found = parse(b"", LLAMA, 1.0, {"/slots": slots(busy=1)})
    assert isinstance(found, EngineMetrics)
    assert (found.running, found.slots, found.waiting, found.generation_tokens) == (1, 4, None, None)


def test_texts_in_json() -> None:
    assert text_in((CAPTURES / "models.json").read_bytes(), "data.id") == "tiny"
    assert text_in(b'{"version": 3}', "version") is None
    assert text_in(b"<html>", "version") is None
    with pytest.raises(metrics.TooManyRows):
        metrics._add_json({}, "/x", b"[" + b"1," * 40_000 + b"1]")


@over(
    "changes, after",
    [
        ({"--ctx-size": "2048", "--parallel": "1"}, "-m x.gguf -np 1 -c 2048 --metrics"),
        ({"-c": None, "--metrics": None}, "-m x.gguf -np 2"),
        ({"--predict": "-1", "--jinja": ""}, "-m x.gguf -np 2 -c 4096 --metrics --predict -1 --jinja"),
    ],
)
def test_its_flags_are_changed_in_its_own_spelling(changes: dict[str, str | None], after: str) -> None:
    words = ["llama-server", *["-m", "x.gguf", "-np", "2", "-c", "4096", "--metrics"]]
    assert list(changed((), words, changes, {}).command) == ["llama-server", *after.split()]
