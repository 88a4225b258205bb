"""Flags of an engine's command line: set, switched and taken away, and nothing else touched."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.cmdline.engine_argv import opposite, parsed, value_of, without
from sparktop.cmdline.engine_flag_edits import CannotEdit, FlagEdits, flag_edits
from sparktop.cmdline.engine_flags import canonical
from sparktop.cmdline.launch_command import changed
from sparktop.model.engine import EngineKind

VLLM, SGLANG = EngineKind.VLLM, EngineKind.SGLANG


def applied(edits: FlagEdits, arguments: list[str]) -> list[str]:
    """The arguments with the edits, as plain words."""
    return [word for at, one in enumerate(arguments) for word in edits.replaced.get(at, (one,))] + edits.appended


CASES = [
    # (arguments, changes, expected)
    ("m --gpu-memory-utilization 0.9", {"--gpu-memory-utilization": "0.7"}, "m --gpu-memory-utilization 0.7"),
    ("m --gpu-memory-utilization=0.9 -x", {"--gpu-memory-utilization": "0.7"}, "m --gpu-memory-utilization=0.7 -x"),
    ("m --gpu_memory_utilization 0.9", {"--gpu-memory-utilization": "0.7"}, "m --gpu_memory_utilization 0.7"),
    ("m", {"--gpu-memory-utilization": "0.7"}, "m --gpu-memory-utilization 0.7"),
    ("m -tp 2 --port 1", {"--tensor-parallel-size": "1"}, "m -tp 1 --port 1"),
    ("m --tensor-parallel-size 2", {"-tp": "1"}, "m --tensor-parallel-size 1"),
    ("m --port 1", {"--enforce-eager": ""}, "m --port 1 --enforce-eager"),
    ("m --enforce-eager --port 1", {"--enforce-eager": ""}, "m --enforce-eager --port 1"),
    ("m --enforce-eager --port 1", {"--enforce-eager": None}, "m --port 1"),
    ("m --no-enable-prefix-caching -q fp8", {"--enable-prefix-caching": ""}, "m --enable-prefix-caching -q fp8"),
    ("m --enable-prefix-caching", {"--no-enable-prefix-caching": ""}, "m --no-enable-prefix-caching"),
    ("m --trust-remote-code=false", {"--trust-remote-code": ""}, "m --trust-remote-code"),
    ("m --quantization mxfp4 --port 1", {"--quantization": None}, "m --port 1"),
    ("m -q mxfp4 --port 1", {"--quantization": None}, "m --port 1"),
    ("m --load-format=fastsafetensors --port 1", {"--load-format": None}, "m --port 1"),
    ("m -O3 --port 1", {"--optimization-level": "2"}, "m -O2 --port 1"),
    ("m -O3 --port 1", {"--optimization-level": None}, "m --port 1"),
    ("m --optimization-level 3", {"-O0": ""}, "m --optimization-level 0"),
    ("m --dtype half --dtype auto", {"--dtype": "bfloat16"}, "m --dtype half --dtype bfloat16"),
    ("m --dtype half --dtype auto -x", {"--dtype": None}, "m -x"),
    ("m --served-model-name a b --port 1", {"--served-model-name": "c"}, "m --served-model-name c --port 1"),
    ("m --served-model-name a b --port 1", {"--served-model-name": None}, "m --port 1"),
    ("m --port 1", {"--model": "other"}, "other --port 1"),
    ("--model m --port 1", {"--model": "other"}, "--model other --port 1"),
    ("m --logits-processors a b c --port 1", {"--logits-processors": None}, "m --port 1"),
    ("m --device-memory-util 0.9", {"--gpu-memory-utilization": "0.7"}, "m --device-memory-util 0.7"),
    ("m --disable-prefix-caching", {"--enable-prefix-caching": ""}, "m --enable-prefix-caching"),
    ("m --disable-prefix-caching", {"--no-enable-prefix-caching": None}, "m"),
    ("m --disable-access-log-for-endpoints /metrics", {"--disable-access-log-for-endpoints": None}, "m"),
    ("m -n2", {"--nnodes": "1"}, "m -n1"),
    ("m --swap-space 4", {"--swap-space": "-1"}, "m --swap-space=-1"),
    (
        """m --compilation-config '{"mode":3}' --port 1""",
        {"-cc.cudagraph_mode": "NONE"},
        """m --compilation-config '{"mode":3,"cudagraph_mode":"NONE"}' --port 1""",
    ),
    (
        """m --compilation_config='{"mode": 3, "pass_config": {"fuse": true}}'""",
        {"--compilation-config.pass_config.fuse": "false"},
        """m '--compilation_config={"mode": 3, "pass_config": {"fuse": false}}'""",
    ),
    ("m", {"-cc.cudagraph_mode": "NONE"}, "m -cc.cudagraph_mode NONE"),
    ("m -cc.cudagraph_mode FULL", {"--compilation-config.cudagraph_mode": "NONE"}, "m -cc.cudagraph_mode NONE"),
    (
        "m -cc.cudagraph_mode FULL --port 1",
        {"--compilation-config": '{"cudagraph_mode":"none"}'},
        """m --port 1 --compilation-config '{"cudagraph_mode":"none"}'""",
    ),
    (
        """m --speculative_config '{"method":"mtp","n":1}'""",
        {"--speculative-config.method": None},
        """m --speculative_config '{"n":1}'""",
    ),
    ("m --absent-before", {"--load-format": None}, "m --absent-before"),
    ("m --a b --c d", {"--c": "e", "--a": None, "--new": "v"}, "m --c e --new v"),
    ("m --max-model-len -1 --x", {"--max-model-len": "4096"}, "m --max-model-len 4096 --x"),
]


@over("before, changes, after", CASES, ids=[case[0][:40] + str(case[1])[:40] for case in CASES])
def test_changes(before: str, changes: dict[str, str | None], after: str) -> None:
    arguments = shlex.split(before)
    assert applied(flag_edits(arguments, VLLM, changes), arguments) == shlex.split(after)


def test_what_was_and_is() -> None:
    made = flag_edits(["m", "--dtype", "half"], VLLM, {"--dtype": "auto", "--enforce-eager": "", "--port": None})
    assert [(one.name, one.before, one.after) for one in made.changed] == [
        ("--dtype", "half", "auto"),
        ("--enforce-eager", None, ""),
    ]
    assert not flag_edits(["m", "--dtype", "auto"], VLLM, {"--dtype": "auto"}).changed


@over(
    "arguments, changes, words",
    [
        (["--odd-switch", "org/model"], {"--odd-switch": None}, "the model"),
        (["m", "--compilation-config", "3"], {"-cc.mode": "0"}, "no JSON object"),
        (["m"], {"rm -rf": "x"}, "no flag"),
        (["m"], {"--dtype": "a\0b"}, "no command line can"),
        (["m", None], {"--dtype": "auto"}, "shell variable"),
    ],
)
def test_refuses(arguments: list[str | None], changes: dict[str, str | None], words: str) -> None:
    with pytest.raises(CannotEdit, match=words):
        flag_edits(arguments, VLLM, changes)


def test_sglang_spellings() -> None:
    arguments = shlex.split("--model-path m --tp 2 --mem-fraction-static 0.85")
    made = flag_edits(arguments, SGLANG, {"--tp-size": None, "--mem-fraction-static": "0.75", "--model": "n"})
    assert applied(made, arguments) == shlex.split("--model-path n --mem-fraction-static 0.75")
    arguments = shlex.split("--model-path m --cuda-graph-bs 1 2 4")  # of 0.5.12, which the table doesn't have
    assert applied(flag_edits(arguments, SGLANG, {"--cuda-graph-bs": None}), arguments) == ["--model-path", "m"]


LINES = [
    # (entrypoint, command, flags, environment, entrypoint after, command after)
    (["vllm", "serve"], ["m", "--port", "1"], {"--port": "2"}, {}, ["vllm", "serve"], ["m", "--port", "2"]),
    (
        ["/opt/nvidia/nvidia_entrypoint.sh"],
        ["vllm", "serve", "m"],
        {"--enforce-eager": ""},
        {},
        ["/opt/nvidia/nvidia_entrypoint.sh"],
        ["vllm", "serve", "m", "--enforce-eager"],
    ),
    (["vllm", "serve", "m", "--x"], [], {"--y": "1"}, {}, ["vllm", "serve", "m", "--x"], ["--y", "1"]),
    (["vllm", "serve", "m", "--port", "1"], ["-x"], {"--port": None}, {}, ["vllm", "serve", "m"], ["-x"]),
    (
        [],
        ["python3", "-m", "sglang.launch_server", "--model-path", "m", "--mem-fraction-static", "0.9"],
        {"--mem-fraction-static": "0.75"},
        {},
        [],
        ["python3", "-m", "sglang.launch_server", "--model-path", "m", "--mem-fraction-static", "0.75"],
    ),
    (
        ["/bin/bash"],
        ["-c", "pip install x && vllm serve m --port 1 2>&1 | tee /tmp/log"],
        {"--enforce-eager": "", "--port": "2"},
        {},
        ["/bin/bash"],
        ["-c", "pip install x && vllm serve m --port 2 --enforce-eager 2>&1 | tee /tmp/log"],
    ),
    (
        ["bash", "-lc"],
        ["export A=1\n# old\nexec vllm serve \\\n  'my model' \\\n  --dtype \"half\" \\\n  --port 1 ; echo done"],
        {"--dtype": None, "--enforce-eager": ""},
        {"A": "it's"},
        ["bash", "-lc"],
        ["export A='it'\"'\"'s'\n# old\nexec vllm serve \\\n  'my model' \\\n  --port 1 --enforce-eager ; echo done"],
    ),
    (
        ["sh", "-c"],
        ["VLLM_X=0 vllm serve $MODEL --port ${PORT:-8000}"],
        {"--dtype": "auto"},
        {"VLLM_X": None},
        ["sh", "-c"],
        [" vllm serve $MODEL --port ${PORT:-8000} --dtype auto"],
    ),
    (
        ["bash", "-c"],
        ["sleep 1; bash -c 'vllm serve m --x 1' && true"],
        {"--x": "a b"},
        {},
        ["bash", "-c"],
        ["sleep 1; bash -c " + shlex.quote("vllm serve m --x 'a b'") + " && true"],
    ),
    (
        ["bash", "-c"],
        ["cat > f <<EOF\nvllm serve no\nEOF\nvllm serve m"],
        {"--x": "1"},
        {},
        ["bash", "-c"],
        ["cat > f <<EOF\nvllm serve no\nEOF\nvllm serve m --x 1"],
    ),
]


@over("case", LINES, ids=[" ".join(case[0] + case[1])[:50] for case in LINES])
def test_command_lines(case: tuple[list[str], list[str], dict[str, str], dict[str, str], list[str], list[str]]) -> None:
    entrypoint, command, flags, environment, entrypoint_after, command_after = case
    made = changed(entrypoint, command, flags, environment)
    assert list(made.entrypoint) == entrypoint_after
    assert [word.lstrip() for word in made.command] == [word.lstrip() for word in command_after]


@over(
    "command, words",
    [
        (["bash", "-c", 'vllm serve m "$@"'], "shell variable"),
        (["bash", "-c", "vllm serve m $EXTRA"], "shell variable"),
        (["bash", "-c", "vllm serve $ALL"], "shell variable"),
        (["bash", "-c", 'vllm serve m "${ARGS[@]}"'], "shell variable"),
        (["bash", "-c", "cat <<EOF\nx\nvllm serve m"], "here-document"),
        (["bash", "-c", "vllm serve 'm"], "never closed"),
        (["bash", "-c", "vllm serve a & vllm serve b"], "more than one"),
        (["bash", "-c", "/start.sh"], "a script"),
        (["sleep", "infinity"], "no engine"),
        (["ray", "start", "--block"], "no engine"),
    ],
)
def test_command_lines_that_cannot_be_edited(command: list[str], words: str) -> None:
    with pytest.raises(CannotEdit, match=words):
        changed([], command, {"--dtype": "auto"}, {})


def test_a_variable_exported_by_the_shell_is_not_taken_away_from_outside() -> None:
    with pytest.raises(CannotEdit, match="HF_HOME"):
        changed([], ["bash", "-c", "export HF_HOME=/x && vllm serve m"], {}, {"HF_HOME": None})


# --- properties -------------------------------------------------------------------------------------------------------

_VALUE = st.one_of(
    st.text(
        alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=12
    ).filter(lambda text: not text.startswith("-")),
    st.sampled_from(["0.7", "$(reboot)", "a b", "it's", '{"a": [1, 2]}', "`id`", "x;y", "\n", '"', "\\", "é", "*"]),
)
_NAMES = ["--dtype", "--moe-backend", "--port", "--max-num-seqs", "--kv_cache_dtype", "-tp", "--served-model-name"]
_SWITCHES = ["--enforce-eager", "--no-enable-prefix-caching", "--trust-remote-code"]
_ONE = st.one_of(
    st.tuples(st.sampled_from(_NAMES), _VALUE).map(list),
    st.tuples(st.sampled_from(_NAMES), _VALUE).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    st.sampled_from(_SWITCHES).map(lambda name: [name]),
)
_ARGUMENTS = st.lists(_ONE, max_size=6).map(lambda parts: ["org/model", *(word for part in parts for word in part)])
_ONCE = st.lists(_ONE, max_size=6, unique_by=lambda part: canonical(part[0].partition("=")[0])).map(
    lambda parts: ["org/model", *(word for part in parts for word in part)]
)
_CHANGES: st.SearchStrategy[dict[str, str | None]] = st.dictionaries(
    st.sampled_from([*_NAMES, "--kv-cache-dtype", "--tensor-parallel-size", "--new"]),
    st.one_of(st.none(), _VALUE),
    max_size=4,
).filter(lambda changes: len({canonical(name) for name in changes}) == len(changes))


@given(_ARGUMENTS)
def test_no_change_is_identity(arguments: list[str]) -> None:
    assert applied(flag_edits(arguments, VLLM, {}), arguments) == arguments


def meaning(arguments: list[str], kind: EngineKind) -> dict[str, tuple[str, ...]]:
    """The flags' values by canonical name, last occurrence; loose words under ""."""
    flags, loose = parsed(arguments, kind)
    meanings: dict[str, tuple[str, ...]] = {"": tuple(str(arguments[index]) for index in loose)} if loose else {}
    for flag in flags:
        values = (flag.joined,) if flag.joined is not None else tuple(str(arguments[index]) for index in flag.values)
        meanings.pop(opposite(flag.name), None)
        meanings[flag.name] = values
    return meanings


@given(_ARGUMENTS, _CHANGES)
def test_a_change_does_what_it_says_and_no_more(arguments: list[str], changes: dict[str, str | None]) -> None:
    after = applied(flag_edits(arguments, VLLM, changes), arguments)
    before, now = meaning(arguments, VLLM), meaning(after, VLLM)
    asked = {canonical(name): value for name, value in changes.items()}
    for name, value in asked.items():
        assert now.get(name) == (None if value is None else (value,))
    assert {name: value for name, value in now.items() if name not in asked} == {
        name: value for name, value in before.items() if name not in asked
    }


@given(_ONCE, _CHANGES)
def test_a_change_and_its_inverse_restore_the_meaning(arguments: list[str], changes: dict[str, str | None]) -> None:
    made = flag_edits(arguments, VLLM, changes)
    after = applied(made, arguments)
    inverse = {one.name: one.before for one in made.changed}
    restored = applied(flag_edits(after, VLLM, inverse), after)
    assert meaning(restored, VLLM) == meaning(arguments, VLLM)


@given(_ARGUMENTS, _CHANGES, st.sampled_from(["", "pip install x && ", "A=1 exec ", "set -e\n", "(cd /; "]))
def test_in_a_shell_the_same_words_come_out(arguments: list[str], changes: dict[str, str | None], head: str) -> None:
    tail = " 2>&1 | tee /tmp/log" + (")" if head.startswith("(") else "")
    script = f"{head}vllm serve {shlex.join(arguments)}{tail}"
    assert changed(["bash", "-c"], [script], {}, {}).command == (script,)
    made = changed(["bash", "-c"], [script], changes, {}).command[0]
    assert made.startswith(f"{head}vllm serve ")
    assert made.endswith(tail)
    inside = made[len(f"{head}vllm serve ") : len(made) - len(tail)]
    assert shlex.split(inside) == applied(flag_edits(arguments, VLLM, changes), arguments)


@given(st.text(max_size=80))
def test_any_shell_text_is_read_or_refused(text: str) -> None:
    try:
        assert changed([], ["sh", "-c", text], {}, {}).command == ("sh", "-c", text)
    except CannotEdit:
        pass


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3), st.integers())
def test_json_keys_are_set_inside(whole: dict[str, int], value: int) -> None:
    arguments = ["m", "--compilation-config", json.dumps(whole)]
    after = applied(flag_edits(arguments, VLLM, {"--compilation-config.some_key": str(value)}), arguments)
    assert json.loads(after[2]) == {**whole, "some_key": value}


@over(
    "words, name, value, without_it",
    [
        ("vllm serve m --port 1 --port 2", "port", "2", "vllm serve m"),
        ("vllm serve m -tp 2", "tensor-parallel-size", "2", "vllm serve m"),
        ("vllm serve m -n 2 -r 1", "--node-rank", "1", "vllm serve m -n 2"),
        ("vllm serve m --tensor_parallel_size=2", "--tp", "2", "vllm serve m"),
        ("vllm serve --enforce-eager m", "enforce-eager", "", "vllm serve m"),
        ("vllm serve --log-level debug m", "log-level", "debug", "vllm serve m"),
        ("v --bucket-time-to-first-token 0.1 1 -q fp8", "bucket-time-to-first-token", "0.1", "v -q fp8"),
        ("vllm serve m --no-enable-prefix-caching", "enable-prefix-caching", None, "vllm serve m"),
        ("vllm serve m -O3", "optimization-level", "3", "vllm serve m"),
        ("vllm serve m --swap-space -1", "swap-space", "-1", "vllm serve m"),
    ],
)  # fmt: skip
def test_a_flag_is_looked_up_and_taken_away_by_any_of_its_names(
    words: str, name: str, value: str | None, without_it: str
) -> None:
    assert value_of(words.split(), name) == value
    assert without(words.split(), name) == tuple(without_it.split())
