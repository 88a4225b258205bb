"""Recipes of both formats: what is taken, and every problem with its line, its key and the nearest right one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.config import resource_dir
from sparktop.diagnose.lint.catalogue import cards
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Dialect, Executor, Muted, Order, Recipe
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.parameters import resolve
from sparktop.recipe.problems import ProblemKind
from sparktop.recipe.read.fields import MAX_PROBLEMS
from sparktop.recipe.read.recipe_file import MAX_CHARS, Reading, read
from sparktop.recipe.render.render import render
from sparktop.recipe.template import text_of

PLAIN = """\
recipe_version: "2"
model: org/name
runtime: vllm
container: docker.io/org/image:1
min_nodes: 1
max_nodes: 1
defaults:
  port: 8000
command: |
  vllm serve {model} \\
    --port {port}
"""

FULL = """\
recipe_version: "2"
model: org/name
model_revision: 1234567
runtime: vllm-ray
container: ghcr.io/org/image:1@sha256:%s
min_nodes: 2
max_nodes: 2
metadata: {description: "What it is. And more.", model_vram: 79.96, model_params: 30B, links: [a, b]}
capabilities: [tools]
benchmark: {pp: [2048]}
readiness: {port_timeout_s: 600, health_timeout_s: 300, inference_prompt: Say ready}
defaults:
  port: 8000
  tensor_parallel: 2
  gpu_memory_utilization: 0.82
  trust: true
  config: {method: mtp, tokens: 2}
  doubled: '{{"a": 1}}'
env:
  A: "1"
  B: 2
  C: "{config.port}"
  D: "{launch.node_rank}"
  E: ${HF_TOKEN}
executor_config:
  privileged: false
  shm_size: 16gb
  volumes: ["/data:/data:ro"]
  labels: {a: b}
command: |
  vllm serve {model} --port {port} -tp {tensor_parallel} \\
    --distributed-executor-backend ray --gpu-memory-utilization {gpu_memory_utilization} \\
    --speculative-config '{"method": "eagle3", "model": "org/draft"}' --x {config} {doubled} {trust}
runtime_config:
  sparktop:
    title: A title
    executor: ray
    served_name: served
    models: [org/other]
    node_environment: {F: "{fabric_ip}"}
    need: {weights_gib: 70, kv_bytes_per_token: 1.5, active_gib: 5, spike_gib: 2, reserve_gib: 20, share: 0.8}
    requires: {driver: "580", ray: true, fastsafetensors: true, linger: true, rdma: false, equal_memory_gib: 3}
    ready: {limit_s: 1200}
    smoke_test: {prompt: Hello, max_tokens: 99, measure_tokens: 50, reasoning: true}
    expected: {tokens_s: 20, tokens_s_most: 30, first_token_s: 1, load_s: 600, available_gib: 12, source: me}
    mute: [{rule: config.enforce-eager, reason: It is so.}]
    provenance: [{source: a report, date: 2026-05-18, says: this, resolved: so}]
    risks: [It may bite.]
""" % ("ab" * 32)


def recipe_of(text: str, path: str = "folder/thing.yaml") -> Recipe:
    reading = read(text, path)
    assert reading.recipe is not None, [str(each) for each in reading.problems]
    return reading.recipe


def problems_of(text: str) -> list[str]:
    return [str(each) for each in read(text, "r.yaml").problems]


def test_a_plain_recipe() -> None:
    recipe = recipe_of(PLAIN)
    assert (recipe.id, recipe.path, recipe.dialect) == ("thing", "folder/thing.yaml", Dialect.SPARKRUN)
    assert (recipe.engine, recipe.model, recipe.container) == (EngineKind.VLLM, "org/name", "docker.io/org/image:1")
    assert (recipe.min_nodes, recipe.max_nodes, recipe.executor) == (1, 1, Executor.ALONE)
    assert recipe.defaults == {"port": 8000}
    assert read(PLAIN, "r.yaml").problems == ()


@over(
    "typed, shown, value",
    [
        ("0.70", "0.70", 0.7),
        ("0.7", "0.7", 0.7),
        ("1.0", "1.0", 1.0),
        ("7e-1", "7e-1", "7e-1"),  # no number of YAML 1.1
        ("7.0e-1", "0.7", 0.7),
        ("1_0.5", "10.5", 10.5),
        ("+0.50", "0.5", 0.5),
        ("12", "12", 12),
    ],
)
def test_a_number_is_shown_as_it_was_typed(typed: str, shown: str, value: float | str) -> None:
    found = recipe_of(PLAIN.replace("port: 8000", f"port: 8000\n  share: {typed}")).defaults["share"]
    assert (text_of(found), found, hash(found)) == (shown, value, hash(value))
    assert isinstance(found, float | int | str)


def test_all_that_a_recipe_may_say() -> None:
    recipe = recipe_of(FULL)
    assert recipe.model_revision == "1234567"
    assert recipe.executor is Executor.RAY
    assert recipe.defaults["config"] == '{"method":"mtp","tokens":2}'
    assert recipe.defaults["doubled"] == '{"a": 1}'
    assert recipe.defaults["trust"] is True
    assert recipe.environment == {"A": "1", "B": "2", "C": "{port}", "E": "$HF_TOKEN"}
    assert recipe.node_environment == {"D": "{node_rank}", "F": "{fabric_ip}"}
    assert recipe.options == {
        "privileged": False,
        "shm_size": "16gb",
        "volumes": ["/data:/data:ro"],
        "labels": ["a=b"],
    }
    assert recipe.title == "A title"
    assert recipe.description == "What it is. And more."
    assert recipe.more_models == ("org/other", "org/draft")
    assert recipe.need.weights_gib == 70
    assert recipe.need.share == 0.8
    assert recipe.requires.driver == "580"
    assert recipe.requires.ray
    assert not recipe.requires.rdma
    assert recipe.requires.equal_memory_gib == 3
    assert recipe.proof.prompt == "Hello"
    assert recipe.proof.ready_limit_s == 1200
    assert recipe.proof.is_reasoning
    assert (recipe.expected.tokens_s, recipe.expected.tokens_s_most) == (20, 30)
    assert recipe.muted == (Muted(rule="config.enforce-eager", reason="It is so."),)
    assert recipe.provenance[0].date == "2026-05-18"
    assert recipe.risks == ("It may bite.",)
    assert recipe.metadata == {"description": "What it is. And more.", "model_vram": 79.96, "model_params": "30B"}


def test_our_own_limit_wins_over_sparkrun_s_readiness_whatever_it_is() -> None:
    said = FULL.partition("runtime_config:")[0] + "runtime_config: {sparktop: {ready: {limit_s: 3600}}}\n"
    assert recipe_of(said).proof.ready_limit_s == 3600


def test_what_sparkrun_says_stands_where_our_section_says_nothing() -> None:
    recipe = recipe_of(FULL.partition("runtime_config:")[0])
    assert recipe.need.weights_gib == 79.96
    assert recipe.proof.ready_limit_s == 900
    assert recipe.proof.prompt == "Say ready"
    assert recipe.title == "What it is."
    assert recipe.requires.ray  # Ray joins its ranks


EUGR = """\
recipe_version: "1"
name: A Name
description: What it serves
model: org/name
container: vllm-node
cluster_only: true
mods: []
build_args: [--tf5]
defaults: {port: 8000, tensor_parallel: 2}
env:
command: |
  vllm serve org/name --port {port} -tp {tensor_parallel} \\
    --distributed-executor-backend ray \\
    --compilation-config '{{"cudagraph_mode":"none"}}'
"""


def test_version_1() -> None:
    reading = read(EUGR, "r.yaml")
    recipe = reading.recipe
    assert recipe is not None
    assert (recipe.dialect, recipe.title) == (Dialect.EUGR, "A Name")
    assert (recipe.min_nodes, recipe.max_nodes, recipe.executor) == (2, 8, Executor.NATIVE)
    assert [each.kind for each in reading.problems] == [ProblemKind.NOTE]


@over(
    "container, args, pulls, builds",
    [
        ("vllm-node", [], "eugr/spark-vllm:latest", ""),
        ("vllm-node-tf5:latest", ["--tf5"], "eugr/spark-vllm:latest", ""),
        ("vllm-node", ["--exp-b12x"], "eugr/spark-vllm-b12x:latest", ""),
        ("sparkrun-eugr-vllm", [], "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest", ""),
        ("vllm-node", ["--vllm-ref", "v1"], "", "-t vllm-node --vllm-ref v1"),
        ("vllm-node-mxfp4", [], "", "-t vllm-node-mxfp4 --exp-mxfp4"),
        ("vllm-node:v2", [], "", "-t vllm-node:v2"),
        ("mine", [], "", "-t mine"),
        ("org/mine", [], "", ""),
        ("org/mine", ["--tf5"], "", ""),
        ("org/mine", ["--rebuild-vllm"], "", "-t org/mine --rebuild-vllm"),
        ("mine\npull_image: org/mine:1", [], "org/mine:1", ""),
    ],
)
def test_a_local_image_is_pulled_or_built_as_its_tools_do(
    container: str, args: list[str], pulls: str, builds: str
) -> None:
    text = EUGR.replace("container: vllm-node", f"container: {container}").replace("[--tf5]", str(args))
    recipe = recipe_of(text)
    assert recipe.pulls == pulls
    assert [f"./build-and-copy.sh {builds}" in risk for risk in recipe.risks] == [True] * bool(builds)


def test_version_1_may_leave_its_model_to_the_command() -> None:
    assert recipe_of(EUGR.replace("model: org/name\n", "")).model == "org/name"


@over(
    "old, new, nodes",
    [
        ("cluster_only: true", "solo_only: true", (1, 1)),
        ("cluster_only: true", "cluster_only: false\nsolo_only: false", (1, 8)),
        ("cluster_only: true", "max_nodes: 1", (1, 1)),
    ],
)
def test_nodes_of_version_1(old: str, new: str, nodes: tuple[int, int]) -> None:
    recipe = recipe_of(EUGR.replace(old, new))
    assert (recipe.min_nodes, recipe.max_nodes) == nodes


@over(
    "runtime, command, engine, executor",
    [
        ("runtime: vllm", "vllm serve {model}", EngineKind.VLLM, Executor.NATIVE),
        ("runtime: vllm-distributed", "vllm serve {model}", EngineKind.VLLM, Executor.NATIVE),
        ("runtime: vllm-ray", "vllm serve {model}", EngineKind.VLLM, Executor.RAY),
        ("runtime: vllm", "vllm serve {model} --distributed-executor-backend ray", EngineKind.VLLM, Executor.RAY),
        (
            "runtime: eugr-vllm",
            "vllm serve {model} --distributed-executor-backend ray",
            EngineKind.VLLM,
            Executor.NATIVE,
        ),
        ("runtime: sglang", "sglang serve --model-path {model}", EngineKind.SGLANG, Executor.NATIVE),
        ("", "python3 -m sglang.launch_server --model-path {model}", EngineKind.SGLANG, Executor.NATIVE),
        ("", "A=1 /opt/bin/sglang serve --model-path {model}", EngineKind.SGLANG, Executor.NATIVE),
        ("", "vllm serve {model}", EngineKind.VLLM, Executor.NATIVE),
    ],
)
def test_engine_and_how_its_ranks_meet(runtime: str, command: str, engine: EngineKind, executor: Executor) -> None:
    recipe = recipe_of(f"model: org/name\ncontainer: a/b:1\nmin_nodes: 2\n{runtime}\ncommand: {command}\n")
    assert (recipe.engine, recipe.executor) == (engine, executor)


@over(
    "written, environment",
    [
        ("${HF_TOKEN:-}", {}),
        ("${MY_API_KEY:-none}", {"A": "none"}),
        ("${LEVEL:-info}/${PLACE-here}", {"A": "info/here"}),
    ],
)
def test_a_variable_with_a_default_is_an_expression(written: str, environment: dict[str, str]) -> None:
    recipe = recipe_of(with_line(f"env: {{{'HF_TOKEN' if not environment else 'A'}: '{written}'}}"))
    rendered = render(resolve(Order(recipe=recipe)), [NodeContext(node="a", model_path="/m")])
    assert {key: rendered.head.container.environment.get(key) for key in environment} == environment
    assert "HF_TOKEN" not in rendered.head.container.environment


def test_a_share_in_gib_is_a_fraction() -> None:
    text = PLAIN.replace("--port {port}", "--gpu-memory-utilization-gb {gpu_memory_utilization}")
    recipe = recipe_of(text.replace("port: 8000", "gpu_memory_utilization: 108"))
    assert recipe.defaults == {"gpu_memory_utilization": 0.88}
    assert recipe.command.endswith("--gpu-memory-utilization {gpu_memory_utilization}")


def test_a_recipe_without_a_command_has_flags() -> None:
    recipe = recipe_of(PLAIN.partition("command:")[0])
    assert recipe.command == ""
    assert recipe.defaults == {"port": 8000}


def with_line(line: str) -> str:
    """A plain recipe with one more at its top level, as line 7."""
    return PLAIN.replace("defaults:", f"{line}\ndefaults:")


@over(
    "text, said",
    [
        (with_line("modle: x"), "r.yaml:7: modle: unknown key: did you mean `model`?"),
        (with_line("max_model_len: 5"), "r.yaml:7: max_model_len: unknown key: did you mean `defaults.max_model_len`?"),
        (with_line("need: {}"), "r.yaml:7: need: unknown key: did you mean `runtime_config.sparktop.need`?"),
        (with_line("patches: [x]"), "r.yaml:7: patches: no key of this format: neither sparktop nor sparkrun knows"),
        (PLAIN.replace("command:", "command_mtp:"), "r.yaml:9: command_mtp: no key of this format"),
        (with_line("user: me"), "r.yaml:7: user: unknown key: did you mean `executor_config.user`?"),
        (with_line("volumes: [data]"), "r.yaml:7: volumes: 'data' is not SOURCE:TARGET"),
        (with_line("model: x/y"), "r.yaml:7: model: the key is here a second time"),
        (with_line("env: {A: [1]}"), "r.yaml:7: env.A: must be a text; write a list or a mapping in quotes"),
        (with_line("env: {A: }"), 'r.yaml:7: env.A: has no value; for an empty value write ""'),
        (with_line("env: {A-B: 1}"), "r.yaml:7: env.A-B: not a variable name; use letters, digits and _"),
        (with_line("env: [1]"), "r.yaml:7: env: must be a mapping of keys, but is a list"),
        (
            with_line("env: {A: '{prot}'}"),
            "r.yaml:7: env.A: the parameter `{prot}` has no value: did you mean `port`",
        ),
        (
            with_line("env: {A: '{launch.cluster_id}'}"),
            "r.yaml:7: env.A: only sparkrun's launcher knows `{launch.cluster_id}`",
        ),
        (with_line('env: {A: "a\\x1bb"}'), "r.yaml:7: env.A: it has a control character (U+001B)"),
        (with_line("executor_config: {shmsize: 1}"), "did you mean `executor_config.shm_size`?"),
        (with_line("executor_config: {privileged: yes please}"), "must be true or false, but is the text `yes please`"),
        (
            with_line("executor_config: {ulimit: [[1]]}"),
            "executor_config.ulimit: must be a list of texts, but is a list",
        ),
        (
            with_line("executor_config: {restart_policy: always, auto_remove: true}"),
            "executor_config.restart_policy: `auto_remove` deletes the container when it exits, "  # noqa: ISC004
            "so Docker can't restart it",
        ),
        (
            with_line("executor_config: {auto_remove: true}"),
            "r.yaml:7: executor_config.auto_remove: doesn't work with sparktop: --rm deletes the log of a failure",
        ),
        (
            with_line("executor_config: {shm_size: lots}"),
            "executor_config.shm_size: is 'lots': it must be a size, for example 16gb",
        ),
        (
            with_line("executor_config: {memory_limit: x}"),
            "executor_config.memory_limit: is 'x': it must be a size, for example 16gb",
        ),
        (
            with_line("executor_config: {devices: [gpu]}"),
            "executor_config.devices: 'gpu' is not a device path (/dev/...)",
        ),
        (with_line("executor_config: {ulimit: [much]}"), "executor_config.ulimit: 'much' is not NAME=SOFT:HARD"),
        (with_line("executor_config: {volumes: ['/a:b']}"), "executor_config.volumes: '/a:b' is not SOURCE:TARGET"),
        (with_line("executor_config: {labels: ['=1']}"), "executor_config.labels: '=1' has no name"),
        (with_line("executor_config: {gpus: two}"), "executor_config.gpus: is 'two': it must be all, 1 or device=0"),
        (with_line("executor_config: {gpus: 2}"), "executor_config.gpus: is '2': it must be all, 1 or device=0"),
        (
            with_line("executor_config: {ipc: mine}"),
            "executor_config.ipc: is 'mine': it must be host, private, shareable or none",
        ),
        (with_line("executor_config: {network: none}"), "executor_config.network: is 'none': no request would reach"),
        (with_line("executor_config: {network: a b}"), "executor_config.network: is 'a b': it must be host, bridge or"),
        (
            with_line("executor_config: {user: 'root; id'}"),
            "executor_config.user: is 'root; id': it must be a user, or",
        ),
        (
            with_line("executor_config: {restart_policy: sometimes}"),
            "executor_config.restart_policy: is 'sometimes': it must be no, always, unless-stopped or on-failure:N",
        ),
        (
            PLAIN.replace("--port {port}", "--port {port} --api-key sk-abcdefgh"),
            "r.yaml:9: command: --api-key puts a secret on the command line",
        ),
        (PLAIN.replace("org/image", "Org/Image"), "r.yaml:4: container: is 'docker.io/Org/Image:1': an image name is"),
        (with_line("executor_config: {pid_dir: /x}"), "executor_config.pid_dir: is for engines without a container"),
        (with_line("mods: [mods/fix-x]"), "r.yaml:7: mods: `mods/fix-x`: the recipe is in no folder"),
        (with_line("mods: [../x]"), "r.yaml:7: mods: `../x` is no name of a mod"),
        (with_line("mods: [{a: b}]"), "is no name of a mod"),
        (
            with_line("builder: uv-venv"),
            "r.yaml:7: builder: `uv-venv` builds an image before the launch; sparktop builds none",
        ),
        (
            with_line("pre_exec: [{copy: /a, dest: /b}]"),
            "r.yaml:7: pre_exec: copies a file of another machine into the container",
        ),
        (
            with_line("pre_exec: [serve-metrics &]"),
            "r.yaml:7: pre_exec: `serve-metrics &` leaves a process running, which an image can't keep",
        ),
        (
            with_line("post_exec: ['curl {base_url}']"),
            "r.yaml:7: post_exec: only sparkrun's launcher knows `{base_url}`",
        ),
        (
            with_line("post_exec: ['curl {launch.port}']"),
            "r.yaml:7: post_exec: only sparkrun's launcher knows `{launch.",
        ),
        (with_line("post_exec: x"), "r.yaml:7: post_exec: must be a list of texts"),
        (with_line("post_exec: [{copy: /a}]"), "r.yaml:7: post_exec: must be a list of texts"),
        (with_line("post_commands: [x]"), "r.yaml:7: post_commands: runs commands on your machine"),
        (with_line("stop_after_post: true"), "r.yaml:7: stop_after_post: stops the engine as soon as it has started"),
        (with_line("include: base"), "r.yaml:7: include: takes its fields from another recipe"),
        (with_line("overrides: [{when: {}}]"), "r.yaml:7: overrides: changes fields depending on the hosts"),
        (with_line("layout: {a: 1}"), "r.yaml:7: layout: places ranks on hosts by name"),
        (with_line("cluster_config: {a: 1}"), "r.yaml:7: cluster_config: has settings of a cluster"),
        (with_line("containers: [{host: a}]"), "r.yaml:7: containers: gives each machine its own image"),
        (with_line("executor: local"), "r.yaml:7: executor: `local` is not Docker"),
        (
            with_line("distribution_config: {models: {entries: [{name: a/b, allow_patterns: [x]}]}}"),
            "r.yaml:7: distribution_config.models.allow_patterns: downloads only some files",
        ),
        (with_line("distribution_config: {containers: {entries: [x]}}"), "distribution_config.containers: distributes"),
        (
            with_line("distribution_config: {models: {entries: [{name: a/b, target: [1]}]}}"),
            "r.yaml:7: distribution_config.models.target: downloads it to some nodes only",
        ),
        (with_line("runtime_config: {sparktopp: {}}"), "did you mean `runtime_config.sparktop`?"),
        (with_line("runtime_config: {mods: [x]}"), "runtime_config.mods: `x`: the recipe is in no folder"),
        (PLAIN.replace("runtime: vllm", "runtime: trtllm"), "r.yaml:3: runtime: sparktop doesn't launch TensorRT-LLM"),
        (
            PLAIN.replace("runtime: vllm", "runtime: vlm"),
            "r.yaml:3: runtime: sparktop doesn't know the runtime `vlm`: did you",
        ),
        (PLAIN.replace("runtime: vllm", "runtime: sglang"), "the command starts vLLM, but `runtime` says SGLang"),
        (PLAIN.replace("max_nodes: 1", "max_nodes: 0"), "r.yaml:6: max_nodes: 0 is out of range"),
        (
            PLAIN.replace("min_nodes: 1", "min_nodes: two"),
            "r.yaml:5: min_nodes: must be a number, but is the text `two`",
        ),
        (PLAIN.replace("min_nodes: 1", "min_nodes: 1.5"), "r.yaml:5: min_nodes: 1.5 is not a whole number"),
        (PLAIN.replace("min_nodes: 1", "min_nodes: 2"), "r.yaml:6: max_nodes: 1 is less than its minimum of 2"),
        (
            PLAIN.replace("min_nodes: 1\nmax_nodes: 1", "min_nodes: 9\nmax_nodes: 9"),
            "r.yaml:5: min_nodes: it needs 9 Sparks, but sparktop launches vLLM on 8 at most",
        ),
        (
            PLAIN.replace("max_nodes: 1", "max_nodes: 16").replace("port: 8000", "port: 8000\n  tensor_parallel: 16"),
            "r.yaml:9: defaults.tensor_parallel: it needs 16 Sparks",
        ),
        (PLAIN.replace("--port {port}", "--port {port} -tp 16"), "r.yaml:9: command: it needs 16 Sparks"),
        (PLAIN.replace("--port {port}", "--prt {prt}"), "r.yaml:11: command: the parameter `{prt}` has no value"),
        (PLAIN.replace("{model} \\", "{model}"), "r.yaml:11: command: a second command, or the line before lacks"),
        (
            PLAIN.replace("--port {port}", "--port {port} | tee x"),
            "r.yaml:11: command: a pipe: no shell runs the command",
        ),
        (
            PLAIN.replace("vllm serve {model}", "python3 x.py"),
            "r.yaml:9: command: `python3 x.py --port` starts no server",
        ),
        (
            PLAIN.replace("--port {port}", "--node-rank 0"),
            "r.yaml:9: command: `--node-rank 0` differs from node to node",
        ),
        (
            PLAIN.replace("port: 8000", "port: 8000\n  spare: 1"),
            "r.yaml:9: defaults.spare: the command doesn't use it",
        ),
        (
            PLAIN.replace("port: 8000", "port: 8000\n  model: org/other"),
            "r.yaml:9: defaults.model: belongs at the top of the recipe; move it there as `model`",
        ),
        (with_line("model_revision: a/../b"), "r.yaml:7: model_revision: is 'a/../b', which is not a branch"),
        (PLAIN.replace("port: 8000", "port: .inf"), "r.yaml:8: defaults.port: the number is not finite"),
        (
            PLAIN.replace("port: 8000", "port: !x 8000"),
            "r.yaml:8: defaults.port: the tag !x is not a standard YAML tag",
        ),
        (
            PLAIN.replace("port: 8000", "port: 8000\n  x: !!python/object/apply:os.system [id]"),
            "r.yaml:9: defaults.x: the tag tag:yaml.org,2002:python/objec… is not a standard YA…",
        ),
        (
            PLAIN.replace("port: 8000", "port: 8000\n  max_model_len: 32768.5"),
            "defaults.max_model_len: is '32768.5':",
        ),
        (PLAIN.replace("port: 8000", f"port: {'9' * 5000}"), "r.yaml:8: defaults.port: "),
        (
            PLAIN.replace("port: 8000", "port: abc"),
            "r.yaml:8: defaults.port: is 'abc': it must be a port from 1 to 65535",
        ),
        (
            PLAIN.replace("port: 8000", "port: [8000]"),
            "r.yaml:8: defaults.port: is '[8000]': it must be a port from 1 to 65535",
        ),
        (
            PLAIN.replace("port: 8000", "port: 80000"),
            "r.yaml:8: defaults.port: is '80000': it must be a port from 1 to 65535",
        ),
        (PLAIN.replace("port: 8000", "'po rt': 8000"), "r.yaml:8: defaults.po rt: not a parameter name"),
        (PLAIN.replace("org/name", "--evil"), "r.yaml:2: model: `--evil` is not a name"),
        (PLAIN.replace("org/name", "a b"), "r.yaml:2: model: `a b` is not a name"),
        (PLAIN.replace("org/name", "'a/b;c'"), "r.yaml:2: model: `a/b;c` is not a valid name"),
        (PLAIN.replace("org/name", ""), "r.yaml:2: model: missing"),
        (PLAIN.replace("docker.io/org/image:1", "$(id)"), "r.yaml:4: container: `$(id)` is not a valid name"),
        (PLAIN.replace("container: docker.io/org/image:1\n", ""), "r.yaml:1: container: missing; an image name is"),
        (PLAIN.replace("command: |", "command: [x]\nname: |"), "r.yaml:9: command: must be a text, but is a list"),
        ("model: a/b\ncontainer: c/d:1\n", "r.yaml:1: command: missing, and there are no `defaults` to build one from"),
        ("", "r.yaml:1: the file is empty"),
        ("# only a comment\n", "r.yaml:1: the file is empty"),
        ("- a\n- b\n", "r.yaml:1: not a recipe: it is not a mapping of keys"),
        ("\x85\u2028a: 'b\n", "r.yaml:1: no YAML: the quote that opens here is never closed"),
        ("\x85\u2028- a\n", "r.yaml:1: not a recipe: it is not a mapping of keys"),
        ("just text", "r.yaml:1: not a recipe: it is not a mapping of keys"),
        ("services:\n  a: 1\n", "r.yaml:1: it has no key of a recipe"),
        ("model: a\n\tcontainer: b\n", "r.yaml:2: no YAML: "),
        ("model: 'a\nb: c\n", "r.yaml:1: no YAML: the quote that opens here is never closed"),
        ("a\0b", "r.yaml:1: a binary file, not a recipe"),
        ("#" * (MAX_CHARS + 1), "r.yaml:1: 200 kB: too large for a recipe"),
        (PLAIN + "---\nmodel: b\n", "r.yaml:12: a second document begins here; write one recipe in each file"),
        ("model: &a {b: *a}\n", "r.yaml:1: an alias stands inside what it is an alias of"),
        ("[" * 3000, "r.yaml:1: more than 100 levels"),
    ],
)
def test_problems_stand_at_their_place(text: str, said: str) -> None:
    found = problems_of(text)
    assert any(said in each for each in found), found


def test_a_key_that_is_misspelt_is_not_told_as_missing_too() -> None:
    assert problems_of(PLAIN.replace("container:", "containr:")) == [
        "r.yaml:4: containr: unknown key: did you mean `container`?"
    ]


@over(
    "section, said",
    [
        (
            "titel: x",
            "r.yaml:14: runtime_config.sparktop.titel: unknown key: did you mean `runtime_config.sparktop.title`",
        ),
        (
            "gats: [a]",
            "r.yaml:14: runtime_config.sparktop.gats: unknown key; known keys: executor, expected, model_inside,",
        ),
        (
            "reserv_gib: 12",
            "runtime_config.sparktop.reserv_gib: unknown key: did you mean `runtime_config.sparktop.need.reserve_gib`?",
        ),
        ("executor: rya", "executor: `rya` is not one of native, ray: did you mean `ray`?"),
        ("need: {weights: 3}", "runtime_config.sparktop.need.weights: unknown key: did you mean"),
        ("need: {share: 1.2}", "need.share: 1.2 is out of range: from 0.05 to 0.98"),
        ("need: {weights_gib: many}", "need.weights_gib: must be a number, but is the text `many`"),
        ("requires: {driver: newest}", "requires.driver: must be a driver branch or version"),
        ("requires: {ray: 1}", "requires.ray: must be true or false, but is the number `1`"),
        ("ready: {limit_s: 1}", "ready.limit_s: 1 is out of range"),
        ("smoke_test: {max_tokens: 0}", "smoke_test.max_tokens: 0 is out of range"),
        ("expected: {tokens_s_most: 5}", "expected.tokens_s_most: is the upper end of a range"),
        (
            "mute: [{rule: a.b}]",
            "runtime_config.sparktop.mute[0].reason: missing: say why you mute the rule",
        ),
        ("mute: [{reason: x}]", "runtime_config.sparktop.mute[0].rule: missing: name the lint rule"),
        ("mute: {rule: a.b}", "runtime_config.sparktop.mute: must be a list of mappings, but is a mapping"),
        ("provenance: [{date: x}]", "runtime_config.sparktop.provenance[0].source: missing"),
        (
            "node_environment: {A: '{fabric_ipp}'}",
            "node_environment.A: the parameter `{fabric_ipp}` has no value: did you mean `fabric_ip`?",
        ),
        ("node_environment: {A-B: x}", "node_environment.A-B: not a variable name; use letters, digits and _"),
        ("models: [a b]", "runtime_config.sparktop.models: `a b` is not a model name; a Hugging Face name is"),
        ("models: [../x]", "runtime_config.sparktop.models: `../x` is not a model name"),
        ("risks: it bites", "runtime_config.sparktop.risks: must be a list of texts, but is the text `it bites`"),
    ],
)
def test_problems_of_our_own_section(section: str, said: str) -> None:
    found = problems_of(f"{PLAIN}runtime_config:\n  sparktop:\n    {section}\n")
    assert any(said in each for each in found), found
    assert all(each.line == 14 for each in read(f"{PLAIN}runtime_config:\n  sparktop:\n    {section}\n", "x").problems)


@over(
    "line",
    [
        "mods: []",
        "builder: none",
        "builder: docker-pull",
        "builder: eugr",
        "pre_exec: []",
        "overrides:",
        "containers: []",
        "benchmark: {x: [1, {y: 2}]}",
        "metadata: {attributions: [{author: a}]}",
        "min_sparkrun_version: '0.4.0'",
        "capabilities: [x]",
        "scheduler: greedy",
        "executor: docker",
        "runtime_cache: true",
        "runtime_cache: {enabled: false}",
        "distribution_config: {additional_models: [org/other]}",
        "distribution_config: {models: {entries: [{name: '{model}', target: [-1]}]}}",
        "distribution_config: {containers: {enabled: true, entries: [{name: '{container}', target: [-1]}]}}",
        "runtime_config: {dashboard: true}",
        "name: an old name",
    ],
)
def test_what_changes_nothing_or_is_empty_is_no_problem(line: str) -> None:
    assert problems_of(with_line(line)) == []


def test_what_the_launch_itself_takes_needs_no_place_in_the_command() -> None:
    text = PLAIN.replace("port: 8000", "port: 8000\n  ray_port: 6380\n  master_port: 29501\n  name: mine")
    assert read(text, "r.yaml").problems == ()


@over(
    "line, said",
    [
        ("env: {A: true}", "is passed as `True`"),
        ("maintainer: me", "unknown key: sparktop ignores it"),
        ("command_mtp: x", "unknown key: sparktop ignores it"),
        ("container: docker.io/org/image:1", "stands here a second time"),
        ("volumes: [/a:/b]", "read as `executor_config.volumes`"),
        ("mods: [mods/drop-caches]", "not needed for `drop-caches`"),
        ("builder_config: {rebuild: true}", "has no effect: it is for a builder, and sparktop builds no image"),
        ("readiness: {inference: false}", "has no effect: sparktop proves every launch by a first request"),
        ("readiness: {inference_style: completion}", "has no effect: sparktop's first request is a chat"),
        ("env: {DB_PASSWORD: hunter2}", "this is a secret, readable for everybody who has the file"),
        ("env: {INNOCENT: hf_abcdefghijklmnopqrstuvwx}", "this is a secret"),
    ],
)
def test_notes_are_no_errors(line: str, said: str) -> None:
    reading = read(with_line(line), "r.yaml")
    assert reading.recipe is not None
    assert [each.kind for each in reading.problems] == [ProblemKind.NOTE]
    assert said in reading.problems[0].text


@over(
    "name, meant",
    [
        ("gpu_memory_utilizaton", "gpu_memory_utilization"),
        ("max_modl_len", "max_model_len"),
        ("max_lora_rank", ""),
        ("max_num_seqs", ""),
    ],
)
def test_a_slip_in_a_default_that_is_a_flag_is_noted(name: str, meant: str) -> None:
    reading = read(PLAIN.partition("command:")[0] + f"  {name}: 4\n", "r.yaml")
    assert reading.recipe is not None
    assert [(each.key, each.nearest) for each in reading.problems] == ([(f"defaults.{name}", meant)] if meant else [])


def test_a_secret_of_a_file_is_in_no_problem_and_no_repr() -> None:
    reading = read(with_line("env: {DB_PASSWORD: hunter2, INNOCENT: hf_abcdefghijklmnopqrstuvwx}"), "r.yaml")
    assert reading.recipe is not None
    assert reading.recipe.environment["DB_PASSWORD"] == "hunter2"
    assert "hunter2" not in repr(reading)
    assert "hf_abcdefgh" not in repr(reading)


@over(
    "text",
    [
        with_line('env: {A: "Bearer $HF_TOKEN", DB_PASSWORD: $DB_PASSWORD}'),
        PLAIN.replace("min_nodes: 1\nmax_nodes: 1", "min_nodes: 2\nmax_nodes: 2"),
        PLAIN.replace("org/name", "/models/name"),
        with_line("executor_config: {gpus: 1, user: '1000:1000', restart_policy: on-failure:3, network: bridge}"),
    ],
    ids=["secrets of the operator's", "what --set mends", "a folder", "options"],
)
def test_what_a_launch_can_mend_or_has_is_no_problem_of_the_file(text: str) -> None:
    assert problems_of(text) == []


def test_anchors_multiply_nothing() -> None:
    bomb = "metadata:\n  a0: &a0 [x, x]\n" + "".join(
        f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 20)}]\n" for n in range(1, 9)
    )
    found = problems_of(PLAIN + bomb)
    assert any("its aliases stand for more than" in each for each in found)


def test_of_a_thousand_problems_the_first_are_named() -> None:
    assert len(problems_of(PLAIN + "".join(f"k{n}: v\n" for n in range(1000)))) == MAX_PROBLEMS


def test_an_anchor_may_be_used() -> None:
    recipe = recipe_of(with_line("env: &e {A: '1'}\nexecutor_config: {shm_size: &s 16gb}").replace("8000", "&p 8000"))
    assert recipe.environment == {"A": "1"}
    merged = recipe_of("base: &b {port: 1}\n".replace("base", "metadata") + PLAIN.replace("port: 8000", "<<: *b"))
    assert merged.defaults == {"port": 1}


SHIPPED = sorted(resource_dir("recipes").glob("*.yaml"))


@over("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_have_no_problem_and_say_where_they_come_from(path: Path) -> None:
    reading = read(path.read_text("utf-8"), str(path))
    assert reading.problems == ()
    assert reading.recipe is not None
    assert reading.recipe.provenance
    assert reading.recipe.title
    assert {muted.rule for muted in reading.recipe.muted} <= {card.id for card in cards()}


def placed(reading: Reading, text: str) -> bool:
    lines = text.count("\n") + 1
    return all(1 <= each.line <= lines for each in reading.problems) and (
        (reading.recipe is None) == bool(reading.errors)
    )


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    reading = read(text, "r.yaml")
    assert placed(reading, text)
    assert reading.recipe is not None or reading.problems


KEYS = st.sampled_from(
    [
        "model", "container", "runtime", "defaults", "env", "command", "mods", "executor_config", "runtime_config",
        "metadata", "min_nodes", "sparktop", "need", "mute", "provenance", "requires", "distribution_config",
        "models", "entries", "name", "readiness", "build_args", "<<", "x",
    ]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["{a}", "org/x", "$A", "2"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda deeper: st.one_of(st.lists(deeper, max_size=3), st.dictionaries(KEYS, deeper, max_size=4)),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=8))
def test_any_values_at_any_key_are_read(values: dict[str, object]) -> None:
    import yaml

    text = yaml.safe_dump(values, sort_keys=False)
    assert placed(read(text, "r.yaml"), text)


@over("value", ["!!int", "!!float", "!!bool", "!!bool maybe", "!!int x"])
def test_a_tag_over_a_text_that_is_not_of_its_kind_is_a_problem(value: str) -> None:
    read_recipe = read(FULL.replace("links: [a, b]", f"links: [a, {value}]"), "r.yaml")
    assert read_recipe.problems


@given(st.data())
def test_a_recipe_with_a_piece_cut_out_is_read(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(FULL)))
    text = FULL[:start] + data.draw(st.sampled_from(["", "{", "}", ":", "\n", "'", "- ", "&a ", "*a", "!!int "]))
    text += FULL[start + data.draw(st.integers(0, 40)) :]
    assert placed(read(text, "r.yaml"), text)


def test_a_parameter_that_only_a_hook_uses_is_used() -> None:
    text = PLAIN.replace("port: 8000", "port: 8000\n  spare: 1")
    for hook in ("pre_exec: [echo {spare}]", "post_exec: [echo {spare}]"):
        reading = read(f"{text}{hook}\n", "r.yaml")
        assert not [problem for problem in reading.problems if "spare" in problem.key], hook
