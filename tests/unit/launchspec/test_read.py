"""Texts of every kind told apart by content, and what is read of each; bad ones refused with their line."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lint_support import CASES, linted, only
from tests.plain_text import unclean
from tests.table import over

from sparktop.engines.images import Family
from sparktop.errors import ConfigError
from sparktop.launchspec.read.configuration import MAX_CHARS, read
from sparktop.launchspec.spec import Launcher, SourceKind, quantisation
from sparktop.model.engine import EngineKind

INSPECT = [
    {
        "Id": "0" * 64,
        "Name": "/sg",
        "Path": "python3",
        "Args": ["-m", "sglang.launch_server", "--model-path", "Org/M", "--mem_fraction_static=0.9"],
        "Config": {"Image": "lmsysorg/sglang:v0.5.12", "Env": ["A=b c", "HF_TOKEN=canary-9"], "Cmd": ["x"]},
        "HostConfig": {
            "NetworkMode": "bridge",
            "IpcMode": "private",
            "ShmSize": 67108864,
            "RestartPolicy": {"Name": "always"},
            "AutoRemove": False,
            "DeviceRequests": [{"Capabilities": [["gpu"]]}],
            "PortBindings": {"30000/tcp": [{"HostIp": "", "HostPort": "30000"}]},
        },
        "Mounts": [{"Source": "/a", "Destination": "/root/.cache/huggingface"}],
    }
]


@over(
    "text, kind",
    [
        ("#!/bin/sh\nvllm serve /m", SourceKind.SHELL),
        ("vllm serve /m", SourceKind.SHELL),
        ("\ufeff# hello\nservices:\n  a: {image: 'vllm/vllm-openai:v1', command: [/m]}\n", SourceKind.COMPOSE),
        ("[Service]\nExecStart=vllm serve /m", SourceKind.UNIT),
        ("# c\n\n[Unit]\nDescription=x\n[Service]\nExecStart=/usr/bin/vllm serve /m", SourceKind.UNIT),
        (json.dumps(INSPECT, indent=4), SourceKind.INSPECT),
        (json.dumps(INSPECT[0], indent="\t"), SourceKind.INSPECT),
        ('FROM vllm/vllm-openai:v0.19.0\nCMD ["--model", "/m"]\n', SourceKind.DOCKERFILE),
        ("model: Org/M\nruntime: vllm\ncontainer: x\n", SourceKind.RECIPE),
    ],
)
def test_the_kind_is_told_by_content(text: str, kind: SourceKind) -> None:
    reading = read(text, "any.name")
    assert reading.kind == kind.value
    assert len(reading.specs) == 1
    assert reading.specs[0].kind is kind


@over(
    "text, note",
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("services:\n  db:\n    image: postgres:16\n", "none of its services"),
        ("apiVersion: v1\nkind: Pod\n", "neither a compose file"),
        ("[]", "JSON"),
        ('{"a": 1}', "JSON"),
        ("FROM debian\nRUN true\n", "no engine"),
        ("[Service]\nExecStart=/bin/true\n", "no engine"),
        ("#!/bin/sh\necho vllm serve /m\ndocker run --rm nginx\n", "no `docker run`"),
        ("docker run --rm --entrypoint python3 vllm/vllm-openai:v0.33.0 -c 'import vllm'\n", "no `docker run`"),
        ("A=1\nVLLM_API_KEY=abc\n", "only variables"),
        ("model: Org/M\nruntime: llama-cpp\ncontainer: x\n", "neither"),
    ],
)
def test_nothing_to_check_says_why(text: str, note: str) -> None:
    reading = read(text, "f")
    assert reading.specs == ()
    assert note in reading.note


@over(
    "text, said",
    [
        ("a\0b", "binary"),
        ("x" * (MAX_CHARS + 1), "kB"),
        ("#!/usr/bin/env python3\nprint()", "python3"),
        ("services:\n  a: [\n", "f:3"),
        ("services:\n  a: b\n c: d\n", "f:3"),
        ('[{"Config": ', "f:1"),
        ("echo ok\nvllm serve 'x\n", "f:2"),
        ("model: &a\n  *a : [\n", "f:"),
        ("key: " + "[" * 5000, "f"),
        ("[" * 100_000, "f"),
    ],
)
def test_what_cant_be_read_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text, "f")
    assert said in str(raised.value)


@over(
    "text",
    [
        "vllm serve Org/M --a-b 1",
        "sudo -E env X=1 vllm serve Org/M --a_b=1",
        "nohup python3 -m vllm.entrypoints.openai.api_server --model Org/M --a-b 1 > log 2>&1 &",
        "bash -lc 'cd /x && vllm serve Org/M --a-b 1'",
        'ssh spark1 "docker run --gpus all x/vllm vllm serve Org/M --a-b 1"',
        "if true; then vllm serve Org/M --a-b 1; fi",
        "docker run -it --gpus all -e X vllm/vllm-openai:v0.19.0 Org/M --a-b=1",
        "podman run --gpus=all --entrypoint vllm any/image serve Org/M --a-b 1",
        "docker run --gpus all $IMG vllm serve Org/M --a-b 1",
        "docker run $OPTIONS --gpus all vllm/vllm-openai:v0.19.0 Org/M --a-b 1",
        'docker run ${T:+-e "T=$T"} -e X=1 vllm/vllm-openai:v0.19.0 Org/M --a-b 1',
        'eval "vllm serve Org/M --a-b 1"',
        "docker run --gpus all --entrypoint /bin/bash x/y -c \"pip install z && vllm serve Org/M --a-b '1'\"",
        "docker exec -it -e Y=1 name vllm serve Org/M --a-b 1",
        "M=Org/M\nF='--a-b 1'\nvllm serve $M $F",
        "docker run x/y sh -c 'echo up; shift 1; exec \"$@\"' name first vllm serve Org/M --a-b 1",
        "docker container run x/vllm bash -c \"bash -c 'vllm serve Org/M --a-b 1'\"",
        "services:\n  v:\n    image: x/y\n    entrypoint: [bash, -c]\n    command: ['vllm serve Org/M --a-b 1']\n",
        "services:\n  v:\n    image: x/y\n    command: >\n      vllm serve Org/M\n      --a-b\n      1\n",
        "x-b: &b\n  image: x/vllm\nservices:\n  v:\n    <<: *b\n    command: vllm serve ${M:-Org/M} --a_b ${N:-1}\n",
        "services:\n  a: {image: x/y}\n  v:\n    extends: {service: a}\n    command: [vllm, serve, Org/M, --a-b=1]\n",
        "[Service]\nEnvironment=N=1\nExecStart=-/usr/bin/vllm \\\n  serve Org/M \\\n# why\n  --a-b ${N}\n",
        'FROM x/y\nENTRYPOINT ["vllm", "serve"]\nCMD ["Org/M", "--a-b", "1"]\n',
        "FROM x/y\nCMD vllm serve Org/M \\\n  --a-b 1\n",
        "recipe_version: '1'\nmodel: Org/M\ndefaults: {n: 1}\ncommand: |\n  vllm serve {model} \\\n    --a-b {n}\n",
        "./launch-cluster.sh -n 10.0.0.1 exec vllm serve Org/M --a-b 1",
    ],
)
def test_one_engine_is_the_same_however_it_is_started(text: str) -> None:
    specs = [spec for spec in read(text, "f").specs if spec.flag("a-b")]
    assert len(specs) == 1
    (spec,) = specs
    assert (spec.engine, spec.model_name, spec.value("a-b")) == (EngineKind.VLLM, "Org/M", "1")


def test_a_docker_run_line_is_taken_apart() -> None:
    spec = only(
        "docker run -itd --rm -p8000:8000 --net=host -v /a:/b --mount type=bind,src=/c,dst=/d --ulimit memlock=-1 "
        "--env-file .env -eA=1 --name v vllm/vllm-openai:v0.19.1 Org/M-8B-FP8 --served-model-name a b"
    )
    given = {(item.name, item.value) for item in spec.options}
    assert given >= {("detach", None), ("rm", None), ("publish", "8000:8000"), ("network", "host"), ("name", "v")}
    assert given >= {("mount", "/a:/b"), ("mount", "/c:/d"), ("ulimit", "memlock=-1")}
    assert (spec.version, spec.family, spec.launcher) == ("0.19.1", Family.VLLM_OPENAI, Launcher.DOCKER)
    assert not spec.knows_environment
    assert spec.variable("A") is not None
    served = spec.flag("served-model-name")
    assert served is not None
    assert (served.value, served.rest) == ("a", ("b",))
    assert quantisation(spec) == "fp8"


@over(
    "image, version, family",
    [
        ("nvcr.io/nvidia/vllm:26.03-py3", "0.19.0", Family.NGC),
        ("nvcr.io/nvidia/vllm:26.05.post1-py3", "0.21.0", Family.NGC),
        ("nvcr.io/nvidia/vllm:25.11-py3", "0.11.0", Family.NGC),
        ("nvcr.io/nvidia/vllm:27.01-py3", None, Family.NGC),
        ("vllm/vllm-openai:v0.22.1", "0.22.1", Family.VLLM_OPENAI),
        ("docker.io/vllm/vllm-openai:nightly", None, Family.VLLM_OPENAI),
        ("me/vllm-node:latest", None, Family.COMMUNITY),
    ],
)
def test_an_images_name_tells_its_version_or_nothing(image: str, version: str | None, family: Family) -> None:
    spec = only(f"docker run --gpus all {image} vllm serve /m")
    assert (spec.version, spec.family) == (version, family)


def test_nodes_are_counted_by_ranks_since_each_has_one_gpu() -> None:
    assert only("vllm serve /m -tp 2").nodes == 2
    assert only("vllm serve /m --tensor-parallel-size=1 --pipeline_parallel_size 2").nodes == 2
    assert only("vllm serve /m --nnodes 2").nodes == 2
    assert only("vllm serve /m --tensor-parallel-size $TP").nodes == 1
    assert only((CASES / "eugr-minimax.yaml").read_text()).nodes == 2


def test_json_arguments_are_read_dotted_too() -> None:
    spec = only("""vllm serve /m --compilation_config '{"level": 3}' --compilation-config.cudagraph_mode NONE""")
    assert spec.json("compilation-config") == {"level": 3, "cudagraph_mode": "NONE"}
    assert only("vllm serve /m --hf-overrides '{broken'").json("hf-overrides") == {}


def test_a_container_is_known_to_a_later_exec() -> None:
    text = "docker run -d --name box -e A=1 --network host --gpus all x/y sleep infinity\ndocker exec box vllm serve /m"
    spec = only(text)
    assert spec.variable("A") is not None
    assert spec.option("network") is not None


@over(
    "text",
    [
        "launch-cluster.sh stop",
        "./launch-cluster.sh -n 1,2 status",
        "if ! [[ -x launch-cluster.sh ]]; then :; fi",
        "if grep x launch-cluster.sh; then :; fi",
    ],
)
def test_a_launcher_that_starts_nothing_is_none(text: str) -> None:
    assert not read(f"#!/bin/bash\n{text}\n", "f").specs


@over(
    "text, options",
    [
        ("A=()\nread -ra A <<< $X", [("more", "${A[@]}")]),
        ("A=(-d)\nwhile read -r A B; do :; done < x", [("more", "${A[@]}")]),
        ("A=(-d)\nwhile IFS= read -r A; do :; done < x", [("more", "${A[@]}")]),
        ("A=(-d)\nif ! read -r A < x; then exit; fi", [("more", "${A[@]}")]),
        ("A=(-d)\necho read A", [("detach", None)]),
        ("A=()\nmapfile -t A < x", [("more", "${A[@]}")]),
        ("A=(-d)\nread -r B < x", [("detach", None)]),
        ("A=(-d)\nA[1]=--rm", [("more", "${A[@]}")]),
        ("A=(-d)\nA[1]=--rm\nA+=(-i)", [("more", "${A[@]}")]),
        ("A=(-d)\nB[1]=--rm", [("detach", None)]),
        ("A=(-d)\nunset 'A[0]'", [("more", "${A[@]}")]),
        ("A=(-d)\nif x; then unset A; fi", [("more", "${A[@]}")]),
        ("A=(-d)\nprintf -v A %s -i", [("more", "${A[@]}")]),
        ("A=(-d)\nprintf %s A", [("detach", None)]),
        ("A=(-d)\nfor A in -i; do :; done", [("more", "${A[@]}")]),
        ("A=(-d)\nwhile getopts a: A; do :; done", [("more", "${A[@]}")]),
        ("A=(-d)\n(( A = 1 ))", [("more", "${A[@]}")]),
        ("A=(-d)\nlet --A", [("more", "${A[@]}")]),
        ("A=(-d)\nif (( A == 1 )); then :; fi", [("detach", None)]),
        ("A=(-d)\nunset A\nA=(--rm)", [("rm", None)]),
        ("A=()", []),
    ],
)
def test_what_a_command_sets_is_not_known_by_what_it_was_before(
    text: str, options: list[tuple[str, str | None]]
) -> None:
    spec = only(f'#!/bin/bash\n{text}\ndocker run "${{A[@]}}" i/vllm:1 vllm serve /m\n')
    assert [(item.name, item.value) for item in spec.options] == options
    assert spec.image_name == "i/vllm:1"


@over(
    "text, port, exported",
    [
        ("A=1; f() {\n local A=2\n { :; }\n}; f", "1", {}),
        ("f() { local A=2; }; f", "$A", {}),
        ("A=1; f() {\n local B=3 A\n A=2\n}", "1", {}),
        ("export A=1; f() { declare A=2; }", "1", {"A": "1"}),
        ("A=8; A+=1", "81", {}),
        ("A=8; read -r A; A+=1", "$A1", {}),
        ("export A=1; A=2", "2", {"A": "2"}),
        ("declare -x A=1; readonly B=2", "1", {"A": "1"}),
        ("export A=1; unset A", "$A", {}),
        ("export A=1; read -r A", "$A", {"A": "$A"}),
    ],
)
def test_a_variable_is_what_a_shell_has_where_it_is_read(text: str, port: str, exported: dict[str, str]) -> None:
    spec = only(f"#!/bin/bash\n{text}\nvllm serve /m --port $A\n")
    assert [item.value for item in spec.flags if item.name == "port"] == [port]
    assert {item.name: item.value for item in spec.environment} == exported


def test_a_function_s_own_variable_is_known_in_it() -> None:
    specs = read("A=1\nf() {\n local A=2\n vllm serve /m --port $A\n}\nf\nvllm serve /m --port $A\n", "f").specs
    assert [item.value for spec in specs for item in spec.flags if item.name == "port"] == ["2", "1"]


def test_inspect_is_read_with_its_lines() -> None:
    text = json.dumps(INSPECT, indent=4)
    spec = only(text)
    item = spec.flag("mem-fraction-static")
    assert item is not None
    assert spec.name == "sg"
    assert "mem_fraction_static" in text.splitlines()[(spec.line_of(item) or 0) - 1]
    assert {(item.name, item.value) for item in spec.options} >= {("publish", "30000:30000/tcp"), ("gpus", "all")}
    rules = {finding.rule for finding in linted(text)}
    assert {"config.mem-fraction-static-high", "config.loopback-in-container"} <= rules
    assert "config.ipc-or-shm" in rules
    assert "config.model-cache-mount" not in rules
    assert "canary-9" not in repr(linted(text))


@over("host", [{"NanoCpus": "x", "Ulimits": 3}, {"Mounts": [{"TmpfsOptions": {"Mode": "x"}}]}, {"PortBindings": [1]}])
def test_an_odd_inspect_is_read_all_the_same(host: dict[str, object]) -> None:
    config = {"Image": "vllm/vllm-openai:v0.21.0", "Cmd": ["vllm", "serve", "Org/Model", "--port", "8001"]}
    spec = only(json.dumps({"Config": config, "Id": None, "HostConfig": host}, indent=1))
    assert spec.model_name == "Org/Model"
    assert spec.line_of(spec.flag("port")) == 8, "by its text, without an id to begin at"


def test_a_drop_in_is_judged_by_what_it_has_alone() -> None:
    text = "[Service]\nExecStartPre=/opt/wait-for-vllm-memory 70 300\nRestartSec=10\n"
    assert {finding.rule for finding in linted(text)} == {"config.restart-sec"}


FRAGMENTS = st.sampled_from(
    [
        *(
            "docker run ",
            "--gpus all ",
            "-e A=b ",
            "vllm serve ",
            "Org/M ",
            "vllm/vllm-openai:v0.19.0 ",
            "bash -c ",
            "'",
        ),
        *(
            '"',
            "$X",
            "${Y:-",
            "}",
            "(",
            ")",
            "\\\n",
            "\n",
            "  ",
            "--api-key ",
            "secret ",
            "=",
            "[Service]\n",
            "ExecStart=",
        ),
        *(
            "services:\n",
            "  a:\n",
            "    image: vllm\n",
            "    command: ",
            ">\n",
            "- ",
            "{",
            "[",
            "]",
            "&a ",
            "*a ",
            "<<: ",
        ),
        *(
            "model: x\n",
            "command: |\n",
            "recipe_version: '1'\n",
            "{model}",
            "FROM vllm\n",
            "CMD ",
            "#!/bin/sh\n",
            "ssh h ",
        ),
        *(
            "docker exec ",
            "ray start ",
            "run_cluster.sh ",
            "launch-cluster.sh -n 1,2 ",
            "-tp 2 ",
            "--nnodes ",
            "9" * 30,
            "é",
        ),
        *(
            '{"Config": {}, "HostConfig": {}}',
            "RestartSec=",
            "1min ",
            "RestartSec=9" * 3,
            "TimeoutStartSec=x\n",
            "\t",
            "\r\n",
        ),
        *(
            "Restart=always\n",
            "ExecStartPre=wait 1 300\n",
            "--gpu-memory-utilization ",
            "nan ",
            "inf ",
            "0.99 ",
            "-O3 ",
        ),
    ]
)


@given(st.lists(FRAGMENTS, max_size=25).map("".join))
def test_any_mixture_is_read_or_refused(text: str) -> None:
    try:
        findings = linted(text)
    except ConfigError:
        return
    assert unclean(findings) == []


@given(st.text(alphabet=string.printable + "é\u202e\x85", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for begin in (
        "",
        "services:\n  a:\n    image: vllm\n    command: ",
        "[Service]\nExecStart=vllm serve ",
        "FROM vllm\n",
    ):
        try:
            findings = linted(begin + text)
        except ConfigError:
            continue
        assert unclean(findings) == []


def test_anchors_defaults_and_services_cant_multiply() -> None:
    merges = "m0: &m0 {a: 1}\n" + "".join(f"m{i + 1}: &m{i + 1} {{<<: [*m{i}, *m{i}, *m{i}]}}\n" for i in range(25))
    text = f"{merges}services:\n  v: {{<<: *m25, image: vllm/vllm-openai:v1, command: [--model, x]}}\n"
    with pytest.raises(ConfigError, match="aliases stand for more"):
        read(text, "f")
    few = text.replace("*m25", "*m3")
    assert len(read(few[: few.index("m4:")] + few[few.index("services:") :], "f").specs) == 1
    assert read("echo " + "${a:-" * 50_000, "f").specs == ()
    assert len(read("vllm serve /m " + "--a b " * 20_000, "f").specs) == 1


def test_lines_that_end_as_on_windows_are_read_alike() -> None:
    for name in ("report-002-one-node.sh", "report-004.service", "report-001-unattended.yml"):
        text = (CASES / name).read_text()
        rules = {finding.rule: finding.evidence[0].line for finding in linted(text)}
        assert rules
        assert {one.rule: one.evidence[0].line for one in linted(text.replace("\n", "\r\n"))} == rules


@over(
    "text, says",
    [
        ("services:\n\tvllm:\n    image: x\n", "compose.yml:2: no YAML: a tab"),
        ('services:\n  vllm:\n    image: "x\n    command: y\n', "compose.yml:3: no YAML: the quote that opens here"),
    ],
)
def test_a_fault_of_the_file_is_told_where_it_began(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text, "compose.yml")
    assert refused.value.message.startswith(says)
