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
from tests.support import engine_of
from tests.table import over

from sparktop.cmdline.engine_command import kind_of_image, of_container, of_process, server_in
from sparktop.cmdline.launch_command import changed
from sparktop.diagnose.logs.engine_state import Phase, phase_of, wordings
from sparktop.engines import metrics
from sparktop.engines.memory_needs import share
from sparktop.engines.metrics import parse, paths_of, sources_of, text_in
from sparktop.model.engine import EngineKind, EngineMetrics
from sparktop.model.kinds.engine_kind import FOLDER, EngineTraits
from sparktop.model.telemetry import GapReason
from sparktop.probe.engine_marks import engine_marks

KINDS = list(EngineKind)
MARKS = engine_marks()
LLAMA = EngineKind("llama.cpp")
CAPTURES = Path(__file__).parents[2] / "real/captures/llama.cpp-0.7.0"
SHAPES = {"str": str, "int": int, "float": float, "bool": bool, "tuple": tuple, "Mapping": Mapping}


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
    assert asked <= {"/metrics", "/version", *traits.asks}
    assert all(seconds >= 1.0 for seconds in traits.asks.values())
    assert {traits.health} <= {"", "/health", *traits.asks}
    assert paths_of(kind) or traits.health


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


@over(
    "line, image, kind, model, port",
    [
        ("python3 /opt/bin/trtllm-serve nv/x --max_batch_size 4 --port 8355", "", "trtllm", "nv/x", 8355),
        ("trtllm-serve serve --trust_remote_code nv/x", "", "trtllm", "nv/x", 8000),
        ("/home/me/.lmstudio/llmster/0.4.4/llmster", "", "lmstudio", None, 1234),
        ("./ds4-server --quality -m f.gguf --ctx 100000", "", "ds4", "f.gguf", 8000),
        ("spark serve --speculative Qwen/Q --max-seq-len 65536", "", "atlas", "Qwen/Q", 8888),
        ("spark serve --model-from-path /model --bind 0.0.0.0", "", "atlas", "/model", 8888),
        ("python3 main.py --host 0.0.0.0", "ghcr.io/theroyallab/tabbyapi:latest", "tabbyapi", None, 5000),
        ("python3 /srv/tabbyAPI/start.py --model-name x-exl3 --port 5001", "", "tabbyapi", "x-exl3", 5001),
        ("python -u main.py --lowvram --port 8189", "yanwk/comfyui-boot:cu130", "comfyui", None, 8189),
        ("python /home/me/ComfyUI/main.py", "", "comfyui", None, 8188),
        ("python main.py", "", None, None, 0),
        ("python main.py", "vllm/vllm-openai:v0.33.0", None, None, 0),
        ("spark-submit job.py", "", None, None, 0),
        ("python /home/me/ComfyUI/custom_nodes/x/train.py", "", None, None, 0),
    ],
)  # fmt: skip
def test_other_engines_commands(line: str, image: str, kind: str | None, model: str | None, port: int) -> None:
    """As their documentation and their owners write them (docs/facts/engines.md sections 3.5 to 3.10)."""
    for found in (of_process(line.split(), image=image), of_container(line.split(), (), image)):
        assert (found.kind, found.model, found.port) == (kind, model, port) if found else kind is None
        assert found is not None or kind is None


PREFILLED = b'ds4_tokens_prefilled_total{kind="computed"} 100\nds4_tokens_prefilled_total{kind="cached"} 50\n'
QUEUE = b"""{"queue_running": [[3, "id", {"1": {"inputs": {"seed": 7}}}, {"create_time": 5}, ["1"]]],
    "queue_pending": [[4, "a", {}, {}, []], [5.0, "b", {}, {}, []]]}"""
STATS = b'{"devices": [{"index": 0, "torch_vram_total": 9e9}]}'
LOADED = b"""{"models": [{"key": "b", "max_context_length": 262144, "loaded_instances": []},
    {"key": "a", "loaded_instances": [{"id": "a", "config": {"context_length": 4096}}]}]}"""


@over(
    "kind, body, answers, figures",
    [
        ("trtllm", b"trtllm_num_requests_running 2.0\n", {}, {"running": 2, "waiting": None}),
        ("ds4", PREFILLED, {}, {"prompt_tokens": 100, "prefix_queries": 150, "prefix_hits": 50, "running": None}),
        ("atlas", b"atlas_requests_active 1\natlas_prompt_tokens_total 3\n", {}, {"running": 1, "waiting": None}),
        ("comfyui", b"", {"/queue": b'{"queue_running": []}'}, {"running": 0, "waiting": 0, "model_bytes": None}),
        ("comfyui", b"", {"/queue": QUEUE, "/system_stats": STATS}, {"running": 1, "waiting": 2, "model_bytes": 9e9}),
        ("lmstudio", b"", {"/api/v1/models": LOADED}, {"context_tokens": 4096, "running": None}),
    ],
)  # fmt: skip
def test_other_engines_figures(
    kind: str, body: bytes, answers: Mapping[str, bytes], figures: Mapping[str, float | None]
) -> None:
    found = parse(body, EngineKind(kind), 1.0, answers)
    assert isinstance(found, EngineMetrics)
    assert {name: getattr(found, name) for name in figures} == figures
    assert all(name in found.gaps for name, value in figures.items() if value is None and name != "running")


@over(
    "kind, line, state, port",
    [
        ("trtllm", "INFO:     Uvicorn running on http://localhost:8355 (Press CTRL+C to quit)", "ready", 8355),
        ("ds4", "0521 13:32:43 ds4-server: listening on http://127.0.0.1:8000", "ready", 8000),
        ("ds4", "ds4: CUDA loading model tensors into device cache: 12.00 GiB", "loading", None),
        ("ds4", "0521 13:32:43 ds4-server: failed to listen on 127.0.0.1:8000: in use", "failure", None),
        ("ds4", "0521 13:32:43 ds4-server: shutdown requested, draining requests", "stopping", None),
        ("atlas", "2026-08-08T10:00:00Z  INFO Atlas Spark starting...", "starting", None),
        ("atlas", "2026-08-08T10:01:00Z  INFO Listening on 0.0.0.0:8888", "ready", 8888),
        ("tabbyapi", "12:55:45.123 INFO:     Developer documentation: http://127.0.0.1:5001/redoc", "ready", 5001),
        ("tabbyapi", "2026-08-13 20:55:45.123 INFO:     Loading model: /app/models/x-exl3", "loading", None),
        ("comfyui", "Total VRAM 122570 MB, total RAM 122570 MB", "starting", None),
        ("comfyui", "To see the GUI go to: http://0.0.0.0:8188", "ready", 8188),
    ],
)  # fmt: skip
def test_other_engines_log_lines(kind: str, line: str, state: str, port: int | None) -> None:
    """Formatted as their source has them."""
    phase = phase_of(line, EngineKind(kind))
    assert phase is not None
    assert state == (phase.state or ("failure" if phase.failure else "stopping"))
    assert phase.port == port


@over("line", ["docker run --name llama-server image", "grep llama-server /x", "pkill -f llama-server", "llama bench"])
def test_what_only_names_it(line: str) -> None:
    assert of_process(line.split()) is None
    assert "llama-server /x" in line or server_in(line.split()) is None


def test_its_switches_take_no_word() -> None:
    found = of_process(["llama-server", "--metrics", "-np", "2", "--jinja", "--no-slots", "-m", "x.gguf", "-kvu"])
    assert found is not None
    assert (found.value("--parallel"), found.value("model"), found.has("--kv-unified")) == ("2", "x.gguf", True)


def test_it_takes_no_share_of_memory() -> None:
    engine = engine_of(key="a", kind=LLAMA, name="a", argv=("llama-server", "-m", "x"))
    assert (share(engine), engine.command.kind) == (1.0, LLAMA)


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
