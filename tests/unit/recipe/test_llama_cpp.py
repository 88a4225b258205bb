"""A recipe of llama.cpp: how its file is read, and the container that loads one file of a repository."""

from __future__ import annotations

from typing import Any

import pytest
from tests.recipe_support import order, seat
from tests.table import over
from tests.unit.recipe.test_models import COMMIT

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.parameters import resolve
from sparktop.recipe.read.recipe_file import read
from sparktop.recipe.render.engine_argv import plain_argv
from sparktop.recipe.render.render import render

REPO = "acme/M-GGUF"
LLAMA: dict[str, Any] = {
    "engine": EngineKind.LLAMA_CPP,
    "model": f"{REPO}:Q4_K_M",
    "container": "scitrera/dgx-spark-llama-cpp:b8094-cu131",
    "command": "llama-server -hf {model} --host {host} --port {port} -c {ctx_size} -fa 1 -np 4",
    "defaults": {"port": 8000, "host": "0.0.0.0", "ctx_size": 8192},
    "keeps_compiled": True,
}
SNAPSHOT = f"hub/models--acme--M-GGUF/snapshots/{COMMIT}"
INSIDE = f"/root/.cache/huggingface/{SNAPSHOT}"


def placed(cache: str = "/home/me/.cache/huggingface", encoder: str = "", **more: Any) -> NodeContext:
    own = f"{cache}/{SNAPSHOT}"
    return seat(model_path=own, model_file=f"{own}/M-Q4_K_M.gguf", encoder_file=encoder and f"{own}/{encoder}", **more)


def test_the_file_takes_its_repository_s_place() -> None:
    rank = render(resolve(order(**LLAMA)), [placed()]).head
    assert rank.argv == (
        *("llama-server", "--model", f"{INSIDE}/M-Q4_K_M.gguf", "--host", "0.0.0.0", "--port", "8000"),
        *("-c", "8192", "-fa", "1", "-np", "4", "--alias", f"{REPO}:Q4_K_M"),
    )
    assert [mount.text for mount in rank.container.mounts] == ["/home/me/.cache/huggingface:/root/.cache/huggingface"]
    assert (rank.container.argv, rank.container.entrypoint) == (rank.argv, ())


@over(
    "command",
    [
        "llama-server --hf-repo acme/M-GGUF:Q4_K_M --port 8000",
        "llama-server -m {model} --port 8000",
        "llama-server --port 8000",
    ],
)
def test_however_the_command_names_it(command: str) -> None:
    argv = render(resolve(order(**LLAMA | {"command": command, "defaults": {}})), [placed()]).head.argv
    assert argv.count("--model") == 1
    assert argv[argv.index("--model") + 1] == f"{INSIDE}/M-Q4_K_M.gguf"
    assert f"{REPO}:Q4_K_M" == argv[-1]
    assert "--hf-repo" not in argv


def test_its_own_image_has_it_as_the_entrypoint() -> None:
    own = LLAMA | {"container": "ghcr.io/ggml-org/llama.cpp:server-cuda"}
    rank = render(resolve(order(**own)), [placed()]).head
    assert (rank.container.argv, rank.container.entrypoint) == (rank.argv[1:], None)


def test_a_cache_that_hf_home_does_not_hold() -> None:
    rank = render(resolve(order(**LLAMA)), [placed("/data", encoder="mmproj-F16.gguf")]).head
    inside = f"/models/models--acme--M-GGUF/snapshots/{COMMIT}"
    assert rank.argv[1:3] == ("--model", f"{inside}/M-Q4_K_M.gguf")
    assert rank.argv[rank.argv.index("--mmproj") + 1] == f"{inside}/mmproj-F16.gguf"
    assert [mount.text for mount in rank.container.mounts] == [
        "/data/hub/models--acme--M-GGUF:/models/models--acme--M-GGUF:ro"
    ]


def test_a_command_names_its_image_encoder() -> None:
    reading = read(FILE.format(more="", words="--mmproj {mmproj}"), "r.yaml")
    assert reading.recipe is not None, reading.problems
    values = resolve(Order(recipe=reading.recipe))
    argv = render(values, [placed(encoder="mmproj F16.gguf")]).head.argv
    assert argv.count("--mmproj") == 1
    assert argv[argv.index("--mmproj") + 1] == f"{INSIDE}/mmproj F16.gguf"
    with pytest.raises(CannotRender, match="no image encoder comes with the model"):
        render(values, [placed()])
    assert plain_argv(values)[-2:] == ("--mmproj", "mmproj.gguf")
    own = resolve(order(**LLAMA | {"command": reading.recipe.command, "defaults": {"mmproj": "/opt/e.gguf"}}))
    assert "/opt/e.gguf" in render(own, [placed(encoder="mmproj-F16.gguf")]).head.argv


def test_a_file_on_the_node_and_one_in_the_image() -> None:
    here = order(**LLAMA | {"model": "~/gguf/m-00001-of-00002.gguf"})
    rank = render(resolve(here), [seat(model_path="/home/me/gguf/m-00001-of-00002.gguf")]).head
    assert rank.argv[1:3] == ("--model", "/models/m-00001-of-00002.gguf")
    assert [mount.text for mount in rank.container.mounts] == ["/home/me/gguf:/models:ro"]
    inside = order(**LLAMA | {"model": "/opt/m.gguf", "has_model_inside": True})
    rank = render(resolve(inside), [seat()]).head
    assert (rank.argv[1:3], rank.container.mounts) == (("--model", "/opt/m.gguf"), ())


def test_parameters_become_its_flags() -> None:
    own = {"ctx_size": 8192, "flash_attn": True, "n_gpu_layers": 999, "tensor_parallel": 1, "parallel": 2}
    switches = {"jinja": True, "props": False, "no_webui": True, "served_model_name": "tiny"}
    without = order({"context": "64k"}, **LLAMA | {"command": "", "defaults": own | switches})
    argv = " ".join(render(resolve(without), [placed()]).head.argv)
    assert argv.startswith(f"llama-server --model {INSIDE}/M-Q4_K_M.gguf ")
    for words in ("--ctx-size 64000", "--flash-attn on", "--n-gpu-layers 999", "--parallel 2", "--jinja", "--no-webui"):
        assert f" {words} " in f"{argv} "
    assert argv.endswith("--metrics --port 8080")
    assert " --alias tiny " in argv
    assert "parallel-size" not in argv
    assert "props" not in argv


def test_a_false_parameter_turns_its_flag_off() -> None:
    off = dict.fromkeys(("webui", "mmap", "cont_batching", "kv_unified", "no_warmup", "metrics"), False)
    without = order({"jinja": "false"}, **LLAMA | {"command": "", "defaults": off})
    argv = render(resolve(without), [placed()]).head.argv
    own = ("--no-webui", "--no-mmap", "--no-cont-batching", "--no-kv-unified", "--no-jinja")
    assert set(own) == {word for word in argv if word.startswith("--no")}
    assert {"--metrics", "--warmup"}.isdisjoint(argv)
    told = order({"jinja": "false"}, **LLAMA | {"command": "llama-server --jinja -hf {model}"})
    argv = render(resolve(told), [placed()]).head.argv
    assert argv[1] == "--no-jinja"
    assert "--jinja" not in argv


@over("name", ["M --tools all --x-Q4_K_M.gguf", "M'--rpc a-Q4_K_M.gguf"])
def test_a_name_from_the_hub_is_one_word(name: str) -> None:
    own = f"/home/me/.cache/huggingface/{SNAPSHOT}"
    command = {"command": "llama-server -hf {model} --port 8000", "defaults": {}}
    argv = render(resolve(order(**LLAMA | command)), [seat(model_path=own, model_file=f"{own}/{name}")]).head.argv
    assert argv == (*("llama-server", "--model", f"{INSIDE}/{name}", "--port", "8000", "--alias", f"{REPO}:Q4_K_M"),)


@over(
    "path, is_told",
    [("/m/x.gguf", True), ("/m/x-00001-of-00002.gguf", True), ("/m/x-00002-of-00002.gguf", False), ("/m", False)],
)
def test_a_path_names_a_model_or_its_first_part(path: str, is_told: bool) -> None:
    launch = resolve(order(**LLAMA | {"model": path}))
    if is_told:
        assert render(launch, [seat(model_path=path)]).head.argv[2] == f"/models/{path.rpartition('/')[2]}"
        return
    with pytest.raises(CannotRender, match=r"names no \.gguf file"):
        render(launch, [seat(model_path=path)])


def test_its_variables_count_and_a_key_goes_into_one() -> None:
    own = LLAMA | {"command": "llama-server -hf {model}", "environment": {"LLAMA_ARG_PORT": "9000"}}
    made = render(resolve(order(secrets={"LLAMA_API_KEY": "s3cret-s3cret"}, **own)), [placed()])
    assert (made.port, "--port" in made.head.argv) == (9000, False)
    assert made.head.container.environment["LLAMA_API_KEY"] == "s3cret-s3cret"
    assert "LLAMA_API_KEY" in made.head.container.secret_names


@over(
    "more, reason",
    [
        ({"command": "llama-server -hf {model} --api-key abc"}, "--api-key puts a secret on the command line"),
        ({"command": "llama-server -hf {model} -hff x.gguf"}, "--hf-file has no place in a launch"),
        ({"command": "llama-server -hf {model} --rpc a:50052"}, "--rpc has no place in a launch"),
        ({"command": "llama-server -hf {model} -hfd a/b"}, "--spec-draft-hf has no place in a launch"),
        ({"environment": {"LLAMA_ARG_HF_REPO": "a/b"}}, "a variable sets --hf-repo"),
        ({"environment": {"LLAMA_ARG_MODELS_DIR": "/m"}}, "a variable sets --models-dir"),
        ({"environment": {"LLAMA_ARG_ALIAS": "m"}}, "a variable sets --alias"),
        (
            {"command": "LLAMA_ARG_RPC=a:1 llama-server -hf {model}"},
            "a variable sets --rpc: sparktop starts llama.cpp on one Spark",
        ),
        ({"command": "llama-server --gpt-oss-20b-default"}, "--gpt-oss-20b-default has no place in a launch"),
        ({"command": "llama-server -hf other/m"}, "the recipe's command names its model"),
    ],
)
def test_what_would_load_something_else_is_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(CannotRender, match=reason):
        render(resolve(order(**LLAMA | more)), [placed()])


@over(
    "name, reason",
    [
        ("tp", "llama.cpp has no parameter 'tp': it runs on one Spark"),
        ("gpu_memory_utilization", "llama.cpp has no parameter 'gpu_memory_utilization': it takes the memory"),
    ],
)
def test_what_it_lacks_is_told(name: str, reason: str) -> None:
    with pytest.raises(CannotRender, match=reason):
        resolve(order({name: "1"}, **LLAMA)).checked()


# --- the file

FILE = """model: acme/M-GGUF:Q4_K_M
runtime: llama-cpp
container: scitrera/dgx-spark-llama-cpp:b8094-cu131
{more}
command: llama-server -hf {{model}} --port 8000 {words}
"""


def test_a_file_is_read() -> None:
    reading = read(FILE.format(more="mmproj: false\nruntime_config: {mmproj: F16}", words="-a tiny"), "r.yaml")
    recipe = reading.recipe
    assert recipe is not None, reading.problems
    assert (recipe.engine, recipe.min_nodes, recipe.max_nodes) == (EngineKind.LLAMA_CPP, 1, 1)
    assert (recipe.served_name, recipe.mmproj) == ("tiny", "F16")
    hinted = read(FILE.replace("runtime: llama-cpp\n", "").format(more="mmproj: false", words=""), "r.yaml").recipe
    assert hinted is not None
    assert (hinted.engine, hinted.mmproj) == (EngineKind.LLAMA_CPP, "false")


@over("command", ["llama-server", "/app/llama-server -hf {model}", "llama serve -hf {model}", "A=1 llama-server"])
def test_without_a_runtime_the_command_s_program_is_the_engine(command: str) -> None:
    text = FILE.replace("runtime: llama-cpp\n", "").partition("command:")[0].format(more="")
    recipe = read(f"{text}command: {command}\n", "r.yaml").recipe
    assert recipe is not None
    assert recipe.engine is EngineKind.LLAMA_CPP


@over(
    "runtime, command, told",
    [
        ("runtime: llama.cpp", "llama-server", "sparktop doesn't know the runtime `llama.cpp`"),
        ("runtime: atlas", "spark serve x", "sparktop doesn't launch Atlas"),
        ("runtime: vllm", "llama-server", "the command starts llama.cpp, but `runtime` says vLLM"),
        ("", "spark serve x", "missing, and the command starts Atlas"),
    ],
)
def test_a_wrong_runtime_is_one_problem(runtime: str, command: str, told: str) -> None:
    text = FILE.replace("runtime: llama-cpp", runtime).partition("command:")[0].format(more="")
    problems = read(f"{text}command: {command}\n", "r.yaml").errors
    assert [(problem.key, problem.text) for problem in problems] == [("runtime", told)]


@over(
    "defaults, command, context",
    [
        ("{max_model_len: 4096}", "llama-server -c {ctx_size}", "-c 4096"),
        ("{max_model_len: 4096}", "llama-server -c {max_model_len}", "-c 4096"),
        ("{max_model_len: 4096, ctx_size: 0}", "llama-server -c {ctx_size}", "-c 0"),
        ("{max_model_len: 4096, ctx_size: 8192}", "''", "--ctx-size 8192"),
        ("{max_model_len: 4096}", "''", "--ctx-size 4096"),
    ],
)
def test_one_context_whatever_it_is_called(defaults: str, command: str, context: str) -> None:
    text = FILE.partition("command:")[0].format(more=f"defaults: {defaults}")
    recipe = read(f"{text}command: {command}\n", "r.yaml").recipe
    assert recipe is not None
    argv = render(resolve(Order(recipe=recipe)), [placed()]).head.argv
    at = [index for index, word in enumerate(argv) if word in ("-c", "--ctx-size", "--max-model-len")]
    assert [" ".join(argv[index : index + 2]) for index in at] == [context]


def test_a_context_that_llama_cpp_cannot_read() -> None:
    (problem,) = read(FILE.format(more="defaults: {ctx_size: auto}", words="-c {ctx_size}"), "r.yaml").errors
    assert problem.text == "is 'auto': it must be a number of tokens, or 0 for the model's own"


@over("more, key", [("min_nodes: 2", "min_nodes"), ("defaults: {tensor_parallel: 2}", "defaults.tensor_parallel")])
def test_several_sparks_are_refused(more: str, key: str) -> None:
    reading = read(FILE.format(more=more, words=""), "r.yaml")
    told = [(problem.key, problem.text) for problem in reading.errors]
    assert told == [(key, "it needs 2 Sparks, but sparktop launches llama.cpp on 1 at most")]


def test_an_order_with_another_quant() -> None:
    reading = read(FILE.format(more="", words=""), "r.yaml")
    assert reading.recipe is not None
    values = resolve(Order(recipe=reading.recipe, values={"model": "acme/M-GGUF:Q8_0"}))
    assert render(values, [placed()]).served_name == "acme/M-GGUF:Q8_0"
