"""A compose file, a script or a container becomes a recipe that starts the same; or the unknown value is named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lint_support import CASES
from tests.recipe_support import order, seat
from tests.table import over

from sparktop.cmdline.source import Item
from sparktop.errors import ConfigError
from sparktop.launchspec.read.configuration import read, read_file
from sparktop.launchspec.read.docker import container_specs
from sparktop.launchspec.spec import LaunchSpec, SourceKind
from sparktop.model.recipe import Dialect, Order, Patch, Recipe
from sparktop.recipe.export import run_line
from sparktop.recipe.operator_secrets import SecretValues
from sparktop.recipe.parameters import resolve
from sparktop.recipe.read.adopt import Adopted, adopted
from sparktop.recipe.read.recipe_file import read as read_recipe
from sparktop.recipe.read.recipe_file import render_made_up
from sparktop.recipe.read.shelf import entry
from sparktop.recipe.render.host_config import body
from sparktop.recipe.render.model_mounts import own_cache
from sparktop.recipe.render.render import render

SERVICE = "services:\n  llm:\n    image: vllm/vllm-openai:v0.27.0\n    network_mode: host\n"
RUN = "docker run --gpus all --network host "
VLLM = "vllm/vllm-openai:v0.27.0 --model Org/M"


def adopt(folder: Path, files: Mapping[str, str]) -> Adopted:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    found = entry(str(folder / next(iter(files)))).adopted
    assert found is not None
    return found


ADOPTED: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    ".env beside it": (
        {"compose.yaml": SERVICE + "    command: --model ${MODEL} --port ${PORT:-8001}\n", ".env": "MODEL=Org/M\n"},
        {"model": "Org/M", "defaults": {"name": "FOLDER-llm-1", "port": 8001}},
    ),
    "a token from outside": (
        {"compose.yaml": SERVICE + '    command: --model Org/M\n    environment: {HF_TOKEN: "${HF_TOKEN:-}"}\n'},
        {"environment": {"HF_TOKEN": "$HF_TOKEN"}},
    ),
    "a demanded variable": (
        {"compose.yaml": SERVICE + '    command: --model Org/M\n    environment: {A: "x${B:?set it}"}\n'},
        {"environment": {"A": "x{B}"}, "settings": {"B": "compose.yaml:6"}},
    ),
    "volumes of the project and its folder": (
        {
            "compose.yaml": "name: Proj\n" + SERVICE + "    command: --model Org/M\n"
            "    volumes: ['./t:/t:ro', 'cache:/c', 'mine:/m', '~/x:/x']\n"
            "volumes: {cache: {}, mine: {external: true}}\n"
        },
        {"options.volumes": ["FOLDER/t:/t:ro", "proj_cache:/c", "mine:/m", "~/x:/x"]},
    ),
    "a volume as the hub's cache": (
        {"run.sh": f"{RUN} -v hf:/root/.cache/huggingface -v kept:/t {VLLM}\n"},
        {"options.volumes": ["kept:/t"]},
    ),
    "an env_file beside it": (
        {"compose.yaml": SERVICE + "    command: --model Org/M\n    env_file: [a.env]\n", "a.env": "A=1\nB_TOKEN=s3\n"},
        {"environment": {"A": "1", "B_TOKEN": "$B_TOKEN"}},
    ),
    "a port published on one address": (
        {"run.sh": f"docker run --gpus all -p 127.0.0.1:9000:8000 {VLLM}\n"},
        {"defaults": {"port": 9000}, "options.publish_address": "127.0.0.1", "options.network": "bridge"},
    ),
    "no port published": (
        {"run.sh": f"docker run --gpus all {VLLM}\n"},
        {"options.publish_address": "127.0.0.1"},
    ),
    "a model in a mounted folder": (
        {"run.sh": f"{RUN} -v /data:/models vllm/vllm-openai:v0.27.0 --model /models/M --max-model-len 8k\n"},
        {"model": "/data/M", "served_name": "/models/M"},
    ),
    "a model in the image": (
        {"run.sh": f"{RUN} vllm/vllm-openai:v0.27.0 --model /opt/model\n"},
        {"model": "/opt/model", "has_model_inside": True, "served_name": "/opt/model"},
    ),
    "a model in a volume": (
        {"run.sh": f"{RUN} -v models:/models vllm/vllm-openai:v0.27.0 --model /models/m\n"},
        {"model": "/models/m", "has_model_inside": True, "options.volumes": ["models:/models"]},
    ),
    "a snapshot of the cache": (
        {"run.sh": f"{RUN} i/vllm:1 vllm serve /c/hub/models--Org--M/snapshots/{'a' * 40}\n"},
        {"model": "Org/M", "model_revision": "a" * 40},
    ),
    "a sourced file beside the script": (
        {
            "run.sh": f'source "$(dirname "$0")/common.sh"\n{RUN} $IMAGE vllm serve "$MODEL" "$@"\n',
            "common.sh": "MODEL=Org/M\nIMAGE=a/vllm:2\n",
        },
        {"model": "Org/M", "container": "a/vllm:2"},
    ),
    "an image whose entrypoint is the engine": (
        {"run.sh": f"{RUN} my-vllm serve Org/M --max-model-len 8192\n"},
        {"model": "Org/M", "defaults": {"max_model_len": 8192}, "options.gpus": "all"},
    ),
    "what is installed before it": (
        {"run.sh": f"{RUN} i/vllm:1 bash -c 'pip install \"x>=5\" -q && exec vllm serve Org/M'\n"},
        {"patches": (Patch(name="pre_exec 1", command="pip install 'x>=5' -q"),)},
    ),
    "what is installed before it from a repository": (
        {"run.sh": f"{RUN} i/vllm:1 bash -c 'pip install \"x @ git+https://h/x\" y && exec vllm serve Org/M'\n"},
        {"patches": (Patch(name="pre_exec 1", command="pip install 'x @ git+https://h/x' y"),)},
    ),
    "what is installed over two lines": (
        {"run.sh": f"{RUN} i/vllm:1 bash -c 'pip install \"a\n b\" && exec vllm serve Org/M'\n"},
        {"patches": (), "options.entrypoint": ["bash", "-c", 'pip install "a\n b" && exec "$@"', "bash"]},
    ),
    "SGLang, with its names": (
        {"run.sh": f"{RUN} lmsysorg/sglang:v0.5.23 python3 -m sglang.launch_server --model-path Org/M --tp 1\n"},
        {"defaults": {"tensor_parallel": 1}, "options.gpus": "all"},
    ),
    "what else runs before it": (
        {"run.sh": f"{RUN} i/vllm:1 bash -lc 'pip install x && cp /mine/$X /x && exec vllm serve Org/M | tee log'\n"},
        {"options.entrypoint": ["bash", "-lc", 'pip install x && cp /mine/$X /x && exec "$@"', "bash"]},
    ),
    "what is written before it": (
        {"run.sh": f"{RUN} i/vllm:1 bash -c 'echo a > /f; vllm serve Org/M'\n"},
        {"options.entrypoint": ["bash", "-c", 'echo a > /f; exec "$@"', "bash"]},
    ),
    "a variable that extends the image's": (
        {
            "compose.yaml": SERVICE
            + "    entrypoint: []\n    command: ['sh', '-c', 'export PATH=/x:$$PATH; vllm serve m']\n"
        },
        {"options.entrypoint": ["sh", "-c", 'export PATH=/x:$PATH; exec "$@"', "sh"], "environment": {}},
    ),
    "a script beside it, mounted": (
        {
            "run.sh": 'HERE=$(cd "$(dirname "$0")" && pwd)\n'
            f'{RUN} -v "$HERE/in/start.sh:/start.sh" i/vllm:1 bash /start.sh\n',
            "in/start.sh": "#!/bin/sh\nset -e\ncp a b\nexec vllm serve Org/M\n",
        },
        {"model": "Org/M", "options.entrypoint": ["bash", "-c", '#!/bin/sh\nset -e\ncp a b\nexec "$@"', "bash"]},
    ),
    "a wrapper with its script": (
        {"compose.yaml": SERVICE + "    entrypoint: [/bin/bash, /x/run.sh]\n    command: [vllm, serve, m]\n"},
        {"options.entrypoint": ["/bin/bash", "/x/run.sh"]},
    ),
    "an image of NVIDIA's, through its entrypoint": (
        {"run.sh": f"{RUN} nvcr.io/nvidia/vllm:26.01-py3 bash -c 'cp a b; vllm serve Org/M'\n"},
        {"options.entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh", "bash", "-c", 'cp a b; exec "$@"', "bash"]},
    ),
    "a variable of the container in its command": (
        {
            "compose.yaml": SERVICE
            + "    environment: {M: Org/M}\n    command: sh -c 'vllm serve $${M}'\n    entrypoint: []\n"
        },
        {"model": "Org/M"},
    ),
    "words that nothing gives": (
        {"run.sh": f'{RUN} {VLLM} --max-model-len 8192 $EXTRA_ARGS "${{MORE[@]}}" ${{A:+--x $A}} "$@"\n'},
        {"defaults": {"max_model_len": 8192}, "settings": {}},
    ),
    "what a branch gives where a variable is set": (
        {"run.sh": f'A=()\nif [ -n "${{T:-}}" ]; then A+=(-v "$T:/t"); fi\n{RUN} "${{A[@]}}" {VLLM}\n'},
        {"options": {"network": "host", "gpus": "all"}, "settings": {}},
    ),
    "spark-vllm-docker's own image": (
        {"run.sh": "./launch-cluster.sh --solo exec vllm serve Org/M\n"},
        {"container": "vllm-node", "pulls": "eugr/spark-vllm:latest"},
    ),
    "a container that the file starts before": (
        {"run.sh": f"{RUN} -d --name n i/vllm:1 sleep infinity\ndocker exec n vllm serve Org/M\n"},
        {"model": "Org/M", "container": "i/vllm:1"},
    ),
    "an entrypoint of its own": (
        {"run.sh": f"{RUN} --entrypoint /start.sh i/vllm:1 vllm serve Org/M\n"},
        {"options.entrypoint": "/start.sh"},
    ),
    "a key on the command line": (
        {"run.sh": f"{RUN} {VLLM} --api-key sk-canary-0123456789 --hf-token canary\n"},
        {"environment": {"VLLM_API_KEY": "$VLLM_API_KEY", "HF_TOKEN": "$HF_TOKEN"}},
    ),
    "a key under another name too": (
        {"run.sh": f"KEY=canary-1\n{RUN} -e A=$KEY -e B=$C {VLLM} --api-key $KEY\n"},
        {"environment": {"A": "$A", "B": "{C}", "VLLM_API_KEY": "$VLLM_API_KEY"}},
    ),
}


@over("files, wanted", ADOPTED.values(), ids=ADOPTED)
def test_a_launch_becomes_a_recipe(tmp_path: Path, files: dict[str, str], wanted: dict[str, Any]) -> None:
    found = adopt(tmp_path, files)
    recipe = found.reading.recipe
    assert recipe is not None, found.reading.problems
    assert recipe.dialect is Dialect.ADOPTED
    for name, value in wanted.items():
        assert _attribute(recipe, name) == _filled(value, tmp_path), name
    assert "canary" not in found.text
    assert "s3" not in found.text


def _attribute(recipe: Recipe, name: str) -> Any:
    first, _, key = name.partition(".")
    value = getattr(recipe, first)
    return value[key] if key else value


def _filled(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_filled(one, folder) for one in value]
    if isinstance(value, dict):
        return {name: _filled(one, folder) for name, one in value.items()}
    return value.replace("FOLDER/", f"{folder}/").replace("FOLDER", folder.name) if isinstance(value, str) else value


HOSTILE = "x\nprivileged: true\x1b]52;c;x\x07 [/red] ${A:-$(reboot)} {model}"
QUOTED = json.dumps(HOSTILE)


@over(
    "text",
    [
        f"    container_name: {QUOTED}\n    command: --model Org/M\n",
        f"    command: [--model, Org/M, --dtype, {QUOTED}]\n",
        f"    command: --model Org/M\n    environment: {{A: {QUOTED}}}\n    {QUOTED}: 1\n",
        f"    command: --model Org/M\n    volumes: [{QUOTED}, {json.dumps(f'./x:{HOSTILE}')}]\n",
    ],
)
def test_a_hostile_file_is_only_text(tmp_path: Path, text: str) -> None:
    found = adopt(tmp_path, {"compose.yaml": SERVICE + text})
    told = "".join(map(str, found.reading.problems))
    recipe = found.reading.recipe
    assert not [char for char in told + "".join(recipe.risks if recipe else ()) if ord(char) < 32]
    if recipe is not None:
        assert set(yaml.safe_load(found.text)) <= KEYS
        assert "privileged" not in recipe.options


KEYS = {"recipe_version", "model", "runtime", "container", "description", "min_nodes", "max_nodes", "defaults"}
KEYS |= {"pre_exec", "command", "env", "executor_config", "runtime_config", "runtime_cache"}


KEY = "    environment: {VLLM_API_KEY: %s}\n    command: --model Org/M --api-key %s\n"


@over(
    "files, key",
    [
        ({"compose.yaml": SERVICE + KEY % ("own-77", "own-77")}, "own-77"),
        ({"compose.yaml": SERVICE + KEY % ('"${VLLM_API_KEY:-own-77}"', "${VLLM_API_KEY:-own-77}")}, "operator-1"),
        ({"compose.yaml": SERVICE + KEY % ('"${VLLM_API_KEY}"', "${VLLM_API_KEY}")}, "operator-1"),
        ({"compose.yaml": SERVICE + KEY % ('"${KEY:-own-77}"', "${KEY:-own-77}")}, "own-77"),
        ({"run.sh": f"{RUN} {VLLM} --api-key ${{VLLM_API_KEY:-own-77}}\n"}, "operator-1"),
        ({"run.sh": f"KEY=own-77\n{RUN} -e VLLM_API_KEY=$KEY {VLLM}\n"}, "own-77"),
    ],
)
def test_a_key_that_the_file_sets_is_the_engines(tmp_path: Path, files: dict[str, str], key: str) -> None:
    own = {"VLLM_API_KEY": "operator-1", "HF_TOKEN": "operator-2"}
    found = adopt(tmp_path, files).secrets_over(SecretValues(values=own, sources=dict.fromkeys(own, "from x")))
    assert found.values == {**own, "VLLM_API_KEY": key}
    assert found.sources["HF_TOKEN"] == "from x"
    assert (found.sources["VLLM_API_KEY"] == "from x") is (key == "operator-1")


KEY_FILE = "VLLM_API_KEY=own-77\n"


@over(
    "given, text, key",
    [
        ({"VLLM_API_KEY"}, KEY % ('"${VLLM_API_KEY}"', "${VLLM_API_KEY}"), "operator-1"),
        ({"VLLM_API_KEY"}, "    command: --model Org/M --api-key ${VLLM_API_KEY:?set it}\n", "operator-1"),
        ({"VLLM_API_KEY"}, "    environment: [VLLM_API_KEY=$VLLM_API_KEY]\n    command: --model Org/M\n", "operator-1"),
        ({"VLLM_API_KEY"}, "    env_file: .env\n    command: --model Org/M --api-key $VLLM_API_KEY\n", "own-77"),
        ((), KEY % ('"${VLLM_API_KEY}"', "${VLLM_API_KEY}"), "own-77"),
        ({"VLLM_API_KEY"}, "    env_file: .env\n    command: --model Org/M  # with $VLLM_API_KEY\n", "own-77"),
        ({"VLLM_API_KEY"}, KEY % ("own-77", "own-77"), "own-77"),
    ],
)
def test_what_is_given_for_the_command_wins_over_a_env_that_compose_would_read_after_the_shell(
    tmp_path: Path, given: Iterable[str], text: str, key: str
) -> None:
    own = SecretValues(values={"VLLM_API_KEY": "operator-1"}, given=frozenset(given))
    found = adopt(tmp_path, {"compose.yaml": SERVICE + text, ".env": KEY_FILE}).secrets_over(own)
    assert found.values["VLLM_API_KEY"] == key


def test_a_file_that_compose_lays_over_it_is_told(tmp_path: Path) -> None:
    files = {"compose.yaml": SERVICE + "    command: --model Org/M\n"}
    alone = adopt(tmp_path, files).reading.recipe
    more = adopt(tmp_path, {**files, "compose.override.yaml": "services: {}\n"}).reading.recipe
    assert alone is not None
    assert more is not None
    assert len(more.risks) == len(alone.risks) + 1


def test_a_variable_is_that_of_the_shell_that_would_start_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose = (
        SERVICE + '    command: --model ${MODEL}\n    volumes: ["$HOME/x:/x"]\n    environment: {K_TOKEN: $K_TOKEN}\n'
    )
    for name, value in (("MODEL", "Org/Shell"), ("HOME", "/home/here"), ("K_TOKEN", "canary")):
        monkeypatch.setenv(name, value)
    found = adopt(tmp_path, {"compose.yaml": compose, ".env": "MODEL=Org/File\n"})
    recipe = found.reading.recipe
    assert recipe is not None
    assert (recipe.model, recipe.options["volumes"]) == ("Org/Shell", ["~/x:/x"])
    assert recipe.environment == {"K_TOKEN": "$K_TOKEN"}


SETTINGS: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "a compose file's": (
        {
            "c.yaml": SERVICE
            + "    command: >\n      --model ${MODEL} --max-model-len ${LEN:?say it} --hf-overrides '{\"n\": $N}'\n"
        },
        {"MODEL": "c.yaml:6", "LEN": "c.yaml:6", "N": "c.yaml:6"},
        ["Org/M", "--max-model-len", "9", "--hf-overrides", '{"n": 9}'],
    ),
    "a script's": (
        {"s.sh": f'# read DATA\n{RUN} -v "$DATA:/d" \\\n  $image vllm serve "$1" --port ${{2:?usage: $0}}\n'},
        {"DATA": "s.sh:2", "IMAGE": "s.sh:3", "ARG1": "s.sh:3", "ARG2": "s.sh:3"},
        ["Org/M", "--port", "9"],
    ),
    "of a model in a folder": (
        {"s.sh": f"{RUN} -v $DATA:/m {VLLM.split()[0]} --model /m/x\n"},
        {"DATA": "s.sh:1"},
        ["/m/x"],
    ),
    "what a command computes": (
        {"s.sh": f"{RUN} {VLLM} --gpu-memory-utilization $(free | awk '{{print 9}}')\n"},
        {"GPU_MEMORY_UTILIZATION": "s.sh:1"},
        ["Org/M", "--gpu-memory-utilization", "0.9"],
    ),
    "a published port's": (
        {"s.sh": f"docker run -p $P:$P {VLLM} --port $P\n"},
        {"P": "s.sh:1"},
        ["Org/M", "--port", "9"],
    ),
    "an environment's, and in the shell before": (
        {"s.sh": f'{RUN} -e A="$X" i/vllm:1 bash -c "cp $X y; vllm serve Org/M"\n'},
        {"X": "s.sh:1"},
        ["Org/M"],
    ),
}
GIVEN = {"MODEL": "Org/M", "ARG1": "Org/M", "DATA": "/data", "IMAGE": "a/b:1", "GPU_MEMORY_UTILIZATION": "0.9"}


@over("files, settings, argv", SETTINGS.values(), ids=SETTINGS)
def test_a_value_that_nothing_sets_is_asked_for_and_launched_with(
    tmp_path: Path, files: dict[str, str], settings: dict[str, str], argv: list[str]
) -> None:
    found = adopt(tmp_path, files)
    recipe = found.reading.recipe
    assert recipe is not None, found.reading.problems
    assert recipe.settings == settings
    missing = resolve(Order(recipe=recipe)).problem
    assert missing is not None
    assert all(f"{name} ({place} uses it)" in missing.reason for name, place in settings.items())
    assert missing.remedies == (" ".join(f"--set {name}=..." for name in recipe.settings),)
    values = {name: GIVEN.get(name, "9") for name in settings}
    head = render_made_up(recipe, 1, values).head
    assert [word for word in head.argv if word in argv] == argv
    assert not [
        text for text in (repr(head), repr(body(head.container))) if any(f"{{{name}}}" in text for name in settings)
    ]
    assert "/data" in repr(head.container.mounts) or "DATA" not in settings
    assert head.container.image == ("a/b:1" if "IMAGE" in settings else head.container.image)
    saved = read_recipe(found.text, "saved.yaml").recipe
    assert saved is not None
    assert render_made_up(saved, 1, values).head.argv == head.argv


REFUSED: dict[str, tuple[str, int, str]] = {
    "extends.yaml": (SERVICE + "    extends: {file: base.yaml, service: llm}\n    command: --model Org/M\n", 5, ""),
    "image.sh": (f"\n{RUN} \\\n  my/image:$(date +%F) vllm serve m\n", 3, "image"),
    "secret.sh": (f"{RUN} \\\n  {VLLM} \\\n --dtype $MY_TOKEN\n", 3, "--dtype"),
    "url.sh": (f"{RUN} \\\n {VLLM} \\\n --otlp-traces-endpoint https://u:canary99@otel/\n", 3, "command"),
    "loop.sh": (f"for m in Org/A Org/B; do\n{RUN} i/vllm:1 vllm serve $m\ndone\n", 2, "model"),
    "mount.sh": (f"{RUN} \\\n -v $(pick):/d {VLLM}\n", 2, "mount"),
    "exec.sh": ("\ndocker exec mine vllm serve Org/M\n", 2, ""),
    "inside.sh": (f"{RUN} \\\n i/vllm:1\n", 2, ""),
    "runs.service": ("[Service]\nExecStart=/srv/start-vllm.sh\n", 2, ""),
    "branch.sh": (f"{RUN} i/vllm:1 bash -c 'cp a b; if true; then vllm serve Org/M; fi'\n", 1, ""),
    "arguments.sh": (f"""{RUN} i/vllm:1 bash -c 'cp $1 b; vllm serve Org/M' - a\n""", 1, ""),
    "kept.sh": (f"{RUN} i/vllm:1 bash -c 'login hf_canary0123456789abcdef; vllm serve Org/M'\n", 1, ""),
    "install.sh": (f"{RUN} i/vllm:1 bash -c 'pip install -i https://u:canary99@h/ x; vllm serve Org/M'\n", 1, ""),
    "filled.sh": (f'ARGS=($(cat args))\n{RUN} {VLLM} "${{ARGS[@]}}"\n', 2, ""),
    "venv.sh": ("vllm serve Org/M\n", 1, ""),
    "sourced.sh": (f'. ./not-here.sh\n{RUN} {VLLM} "${{ARGS[@]}}"\n', 2, ""),
    "cut.sh": (f"{RUN} {VLLM} \\\n --port 8001 # \\\n --max-model-len 8192\n", 2, ""),
    "name.sh": (f"{RUN} \\\n --name '-x;rm -rf /' {VLLM}\n", 2, "name"),
    "none.yaml": ("services: {web: {image: nginx}}\n", 1, ""),
    "none.service": ("[Service]\nType=oneshot\n", 1, ""),
    "none.sh": ("docker run nginx\n", 1, ""),
    "same.sh": (f"{RUN} --name a {VLLM}\n{RUN} --name a {VLLM}\n", 1, ""),
    "two.sh": (f"{RUN} --name a {VLLM}\n{RUN} --name b {VLLM}\n", 1, ""),
}


@over("name, row", REFUSED.items(), ids=REFUSED)
def test_what_is_unknown_is_named_by_its_line(tmp_path: Path, name: str, row: tuple[str, int, str]) -> None:
    text, line, key = row
    found = adopt(tmp_path, {name: text})
    errors = found.reading.errors
    assert not found.text
    assert found.reading.recipe is None
    assert [(error.line, error.key) for error in errors] == [(line, key)], errors


def test_arguments_of_a_scripts_own_are_none_and_told(tmp_path: Path) -> None:
    found = adopt(tmp_path, {"s.sh": f'{RUN} {VLLM} "$@"\n'})
    assert found.reading.recipe is not None
    assert any("$@ is taken as nothing" in risk for risk in found.reading.recipe.risks)


def test_one_of_several_engines_is_named(tmp_path: Path) -> None:
    path = tmp_path / "two.sh"
    path.write_text(REFUSED["two.sh"][0])
    assert [entry(f"{path}#{engine}").id for engine in ("a", "b", "2")] == ["a", "b", "b"]
    assert entry(f"{path}#c").recipe is None
    path.write_text(REFUSED["same.sh"][0])
    assert f"{path}#1, {path}#2" in str(entry(str(path)).problems)


def test_a_quote_that_is_never_closed_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"\n{RUN} --name 'a {VLLM}\n")
    with pytest.raises(ConfigError, match=r"run\.sh:2: this quote is never closed"):
        entry(str(path))


def _rendered(recipe: Recipe) -> LaunchSpec:
    return read(run_line(render_made_up(recipe, recipe.min_nodes).head.container), "x").specs[0]


def _specs() -> list[LaunchSpec]:
    paths = [*CASES.glob("*.sh"), *CASES.glob("*.y*ml"), *CASES.glob("*.service")]
    specs = [spec for path in paths for spec in read_file(path, path.read_text()).specs]
    return [spec for spec in specs if spec.nodes == 1 and spec.kind is not SourceKind.RECIPE and spec.engine]


def _flags(items: tuple[Item, ...]) -> Counter[tuple[str, str | None, tuple[str, ...]]]:
    own = {"model", "model-path", "revision", "served-model-name", "api-key", "port"}
    return Counter((item.name, item.value, item.rest) for item in items if item.name not in own)


def test_an_adopted_launch_has_the_flags_and_variables_of_its_source() -> None:
    count = 0
    for spec in _specs():
        recipe = adopted(spec, folder="/folder").reading.recipe
        if recipe is None:
            continue
        count += 1
        again = _rendered(recipe)
        assert _flags(again.flags) == _flags(spec.flags), spec.document.name
        names = {item.name for item in spec.environment} | {"HF_TOKEN", "VLLM_API_KEY"}
        assert names >= {item.name for item in again.environment} >= names - {"HF_TOKEN", "VLLM_API_KEY"}
    assert count > 5


INSPECT = {
    "Id": "a" * 64,
    "Name": "/llm",
    "Image": "sha256:1",
    "Config": {
        "Image": "i/vllm:1",
        "Env": ["PATH=/bin", "A=b c", "HF_TOKEN=hf_canary0123456789abcdef"],
        "Cmd": ["vllm", "serve", "Org/M", "--port", "8000", "--hf-overrides", '{"a": {"b": 1}}'],
        "Labels": {"com.docker.compose.project": "p"},
    },
    "HostConfig": {
        "NetworkMode": "host",
        "IpcMode": "host",
        "Binds": ["/home/u/.cache/huggingface:/root/.cache/huggingface:rw", "/t:/t:ro"],
        "DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}],
        "RestartPolicy": {"Name": "always"},
        "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
    },
}
IMAGE = {"Config": {"Env": ["PATH=/bin"], "Entrypoint": None}}


def test_of_a_running_container_nothing_is_unknown() -> None:
    found = adopted(container_specs(INSPECT, IMAGE)[0], folder="/")
    recipe = found.reading.recipe
    assert recipe is not None
    assert (recipe.id, recipe.max_nodes) == ("llm", 1)
    assert recipe.environment == {"A": "b c", "HF_TOKEN": "$HF_TOKEN"}
    assert recipe.options == {
        "ipc": "host",
        "network": "host",
        "ulimit": ["memlock=-1"],
        "restart_policy": "always",
        "gpus": "all",
        "volumes": ["/home/u/.cache/huggingface:/root/.cache/huggingface", "/t:/t:ro"],
    }
    assert len(recipe.risks) == 1, "that compose starts its own again"
    assert "canary" not in found.text
    assert found.secrets == {"HF_TOKEN": "hf_canary0123456789abcdef"}
    container = render_made_up(recipe, 1).head.container
    assert container.argv == tuple(INSPECT["Config"]["Cmd"])  # type: ignore[index]
    assert [mount.target for mount in container.mounts] == ["/root/.cache/huggingface", "/t"]


def test_the_file_of_docker_inspect_has_all_that_the_container_has(tmp_path: Path) -> None:
    config = {**INSPECT["Config"], "User": "1000:1000", "Env": INSPECT["Config"]["Env"][1:]}  # type: ignore[dict-item]
    mounts = [{"Type": "bind", "Source": "/home/u/.cache/huggingface", "Destination": "/root/.cache/huggingface"}]
    mounts += [{"Type": "bind", "Source": "/t", "Destination": "/t", "RW": False}]  # type: ignore[dict-item]
    volumes = [("kept", "/k"), ("0123456789abcdef" * 4, "/own")]
    mounts += [{"Type": "volume", "Name": name, "Source": "/var/x", "Destination": at} for name, at in volumes]
    host = {**INSPECT["HostConfig"], "Binds": [*INSPECT["HostConfig"]["Binds"], "kept:/k"]}  # type: ignore[dict-item]
    inspect = {**INSPECT, "Config": config, "HostConfig": host, "Mounts": mounts}
    of_file = adopt(tmp_path, {"llm.json": json.dumps([inspect])})
    running = adopted(container_specs(inspect, {})[0], folder="/")
    assert running.reading.recipe is not None
    assert running.reading.recipe.options["user"] == "1000:1000"
    assert of_file.text.replace(f"{tmp_path}/llm.json", "llm") == running.text
    assert of_file.secrets == running.secrets


def test_an_engine_that_was_started_by_docker_exec_has_its_processs_command() -> None:
    idle = {**INSPECT, "Config": {**INSPECT["Config"], "Cmd": ["sleep", "infinity"]}}  # type: ignore[dict-item]
    spec = container_specs(idle, IMAGE, argv=("/usr/bin/python3", "/usr/bin/vllm", "serve", "Org/M", "--port", "8001"))[
        0
    ]
    recipe = adopted(spec, folder="/").reading.recipe
    assert recipe is not None
    assert recipe.defaults == {"name": "llm", "port": 8001}


@over(
    "volumes, environment, cache",
    [
        (["/data/hf:/root/.cache/huggingface:ro"], {}, "/data/hf"),
        (["~/.cache:/root/.cache"], {}, "~/.cache/huggingface"),
        (["/data/hf/hub:/root/.cache/huggingface/hub"], {}, "/data/hf"),
        (["/data:/models"], {"HF_HOME": "/models/hf"}, "/data/hf"),
        (["/data:/models", "hf:/root/.cache/huggingface"], {}, ""),
    ],
)
def test_the_cache_that_a_recipe_mounts_is_its_models_place(
    volumes: list[str], environment: dict[str, str], cache: str
) -> None:
    chosen = order(options={"volumes": volumes}, environment=environment)
    assert own_cache(chosen.recipe) == cache
    mounts = render(resolve(chosen), [seat(cache=cache.replace("~", "/home/me") or "/c")]).head.container.mounts
    targets = [mount.target for mount in mounts]
    assert len(set(targets)) == len(targets), "Docker takes each target once"


def test_a_model_in_the_container_is_neither_mounted_nor_renamed() -> None:
    chosen = order(model="/opt/model", has_model_inside=True)
    [rank] = render(resolve(chosen), [seat()]).ranks
    assert rank.argv[:3] == ("vllm", "serve", "/opt/model")
    assert not rank.container.mounts
    other = render(resolve(replace(chosen, values={"model": "/data/other"})), [seat()]).head
    assert [mount.source for mount in other.container.mounts] == ["/data/other"]
