"""Every kind of flag and name read, and command lines as the engines' own parsers read them (tests/real/flags)."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from tests.real.flags.table import PATH, dumped, merged
from tests.table import over

from sparktop.cmdline.engine_argv import is_pooling, parsed
from sparktop.cmdline.engine_command import of_process
from sparktop.cmdline.engine_flags import Arity, attached, canonical, is_flag, is_in, polar, spec_of
from sparktop.model.engine import EngineKind

VLLM, SGLANG = EngineKind.VLLM, EngineKind.SGLANG
SOURCES = Path(__file__).parents[3] / "src"
READINGS = sorted((Path(__file__).parents[2] / "cases" / "engine_flags").glob("*.json"))
Reading = dict[str, tuple[str, ...]]


def as_sparktop_reads(line: str, kind: EngineKind, version: str | None) -> Reading:
    """{canonical name: values}; the words of no flag under "model"."""
    words = shlex.split(line)
    flags, loose = parsed(words, kind, version)
    values = {"model": (words[loose[0]],)} if loose else {}
    for flag in flags:
        values.pop(polar(f"no-{flag.name}"), None)
        values.pop(flag.name.removeprefix("no-"), None)
        values[flag.name] = (flag.joined,) if flag.joined is not None else tuple(words[at] for at in flag.values)
    return values


def as_the_engine_reads(reading: dict[str, Any], kind: EngineKind) -> Reading:
    values: Reading = {}
    for flag, value in reading.items():
        name = "model" if flag == "(model)" else canonical(flag, kind)
        if isinstance(value, str) and value.startswith("{"):
            values |= {f"{name}.{key.replace('_', '-')}": (str(inner),) for key, inner in json.loads(value).items()}
        else:
            name = name if value is not False else f"no-{name}"
            values[name] = tuple(value) if isinstance(value, list) else (value,) if isinstance(value, str) else ()
    return {name: () if values_ == ("",) else values_ for name, values_ in values.items()}


@over("path", READINGS, ids=lambda path: path.stem)
def test_command_lines_are_read_as_the_engine_reads_them(path: Path) -> None:
    capture = json.loads(path.read_text())
    kind, version = EngineKind(capture["engine"]), capture["version"]
    read = [(line, reading) for line, reading in capture["readings"] if "error" not in reading]
    assert len(read) > 10
    for line, reading in read:
        engines = as_the_engine_reads(reading, kind)
        assert as_sparktop_reads(line, kind, version) == engines, line
        assert as_sparktop_reads(line, kind, None) == engines, f"{line}, its version unknown"


@over("path", READINGS, ids=lambda path: path.stem)
def test_a_name_that_the_engine_refuses_is_in_no_such_version(path: Path) -> None:
    capture = json.loads(path.read_text())
    kind, version = EngineKind(capture["engine"]), capture["version"]
    for line, reading in capture["readings"]:
        names = [word.partition("=")[0] for word in shlex.split(line) if is_flag(word) and not attached(word)]
        if refused := reading.get("error", ""):
            refused = refused.partition(":")[2]
            assert all(is_in(name, kind, version) for name in names if name not in refused), line
            assert not any(is_in(name, kind, version) for name in names if f"{name} " in f"{refused} "), line
        else:
            assert all(is_in(name, kind, version) for name in names), line


KINDS = [
    # (a name of it, engine, canonical, number of values)
    ("--enforce-eager", VLLM, "enforce-eager", Arity.SWITCH),
    ("--language-model-only", VLLM, "language-model-only", Arity.SWITCH),
    ("--disable-access-log-for-endpoints", VLLM, "disable-access-log-for-endpoints", Arity.ONE),
    ("--allowed-media-domains", VLLM, "allowed-media-domains", Arity.MANY),
    ("--hf-token", VLLM, "hf-token", Arity.OPT),
    ("--served-model-name", VLLM, "served-model-name", Arity.MANY),
    ("--served-model-name", SGLANG, "served-model-name", Arity.ONE),
    ("-dpn", VLLM, "data-parallel-rank", Arity.ONE),
    ("-ep", VLLM, "enable-expert-parallel", Arity.SWITCH),
    ("--device-memory-utilization", VLLM, "gpu-memory-utilization", Arity.ONE),
    ("--gpu_memory_util", VLLM, "gpu-memory-utilization", Arity.ONE),
    ("--disable-prefix-caching", VLLM, "enable-prefix-caching", Arity.SWITCH),
    ("--enable-custom-all-reduce", VLLM, "disable-custom-all-reduce", Arity.SWITCH),
    ("--tp", SGLANG, "tensor-parallel-size", Arity.ONE),
    ("--expert-parallel-size", SGLANG, "ep-size", Arity.ONE),
    ("--model-path", SGLANG, "model", Arity.ONE),
    ("--compilation-config.mode", VLLM, "compilation-config.mode", Arity.ONE),
    ("--of-a-fork", VLLM, "of-a-fork", Arity.ONE),
    ("--enable-of-a-fork", VLLM, "enable-of-a-fork", Arity.SWITCH),
    ("--cuda-graph-bs", SGLANG, "cuda-graph-bs", Arity.MANY),  # of 0.5.12: ambiguous in 0.5.23
]


@over("spelled, kind, name, arity", KINDS, ids=[case[0] + case[1] for case in KINDS])
def test_every_kind_of_flag(spelled: str, kind: EngineKind, name: str, arity: Arity) -> None:
    assert is_flag(spelled)
    assert canonical(spelled, kind) == name
    assert spec_of(canonical(spelled, kind), kind).arity is arity


def test_an_alias_and_a_beginning_are_the_flag_to_whoever_asks() -> None:
    for spelled in ("--device-memory-utilization", "--gpu_memory_util", "--gpu-mem"):
        command = of_process(["vllm", "serve", "org/m", spelled, "0.5", "--disable-prefix-caching"])
        assert command is not None
        assert command.model == "org/m"
        assert command.value("--gpu-memory-utilization", "--mem-fraction-static") == "0.5"
        assert not command.has("--enable-prefix-caching")
        assert command.has("--no-enable-prefix-caching")


def test_versions() -> None:
    assert [is_in("--device-memory-utilization", VLLM, version) for version in ("0.28.0", "0.32.0", "0.32.1")] == [
        False, True, True,
    ]  # fmt: skip
    assert is_in("--device-memory-utilization", VLLM, "0.30.0") is None, "between two that differ"
    assert is_in("--moe-backend", VLLM, "0.19.0") is None, "older than the table"
    assert polar("--disable-prefix-caching", VLLM) == polar("--no-enable-prefix-caching", VLLM)
    assert polar("--log-l", VLLM) == "log-level", "only versions that take it count"


def test_the_file_is_what_the_script_makes_of_it() -> None:
    assert merged(dumped(PATH.read_text())) == PATH.read_text()


@over(
    "kind, line, expected",
    [
        (VLLM, "vllm serve m --runner pooling", True),
        (VLLM, "vllm serve m --task=embed --port 8000", True),
        (VLLM, "vllm serve m --convert classify", True),
        (VLLM, "vllm serve m --runner generate --task generate", False),
        (VLLM, "vllm serve pooling --convert none", False),
        (SGLANG, "sglang serve --model-path m --is-embedding", True),
        (SGLANG, "sglang serve --model-path m", False),
        (EngineKind("llama.cpp"), "llama-server -m m.gguf --embeddings --pooling cls", True),
        (EngineKind("llama.cpp"), "llama-server -m m.gguf --reranking", True),
        (EngineKind("llama.cpp"), "llama-server -m m.gguf --pooling cls", False),
        (EngineKind("ollama"), "ollama serve", False),
    ],
)
def test_an_engine_is_told_to_serve_no_text(kind: EngineKind, line: str, expected: bool) -> None:
    assert is_pooling(shlex.split(line), kind) is expected


def test_code_asks_for_flags_by_their_canonical_names() -> None:
    asked = {
        name
        for path in SOURCES.rglob("*.py")
        for call in re.findall(r"\bcommand\.(?:value|has|count)\(([^()]*)\)", path.read_text("utf-8"))
        for name in re.findall(r'"([\w.-]+)"', call)
    }
    assert len(asked) > 10
    for name in asked:
        assert name.lstrip("-") in {polar(name, kind) for kind in (VLLM, SGLANG)}
