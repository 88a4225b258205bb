"""What is advised for one engine's log are flags of that engine."""

from __future__ import annotations

import re

import pytest

from sparktop.cmdline import engine_flags
from sparktop.cmdline.engine_flags import is_in, spec_names, spec_of
from sparktop.diagnose.logs.rule import shipped
from sparktop.diagnose.names import for_engine
from sparktop.model.engine import VERSIONED, EngineKind
from sparktop.model.finding import Remedy

FLAG = re.compile(r"(?<![\w-])--([a-z][\w-]+)")
OTHERS_OWN = {
    "device", "file", "include", "format", "tail", "since", "filter", "force", "full", "version", "user", "revision",
}  # fmt: skip
"""Of docker, hf or journalctl, and of one engine too."""


@pytest.mark.parametrize("engine", [*VERSIONED, EngineKind("llama.cpp"), None])
def test_no_remedy_names_another_engine_s_flag(engine: EngineKind | None) -> None:
    """None: another program's log."""
    own = spec_names(engine) if engine else frozenset()
    own = own.union(*(spec_of(name, engine).aliases for name in own))
    foreign = frozenset().union(*(spec_names(kind) for kind in VERSIONED)) - own - OTHERS_OWN
    if engine is None:
        foreign &= {"gpu-memory-utilization", "mem-fraction-static", "attention-backend", "moe-backend", "max-num-seqs"}
    wrong = []
    for rule in shipped():
        area = rule.id.partition(".")[0]
        if rule.engine not in (None, engine) or (area in ("vllm", "sglang") and area != (engine or "")):
            continue
        for remedy in for_engine(rule.remedies, engine.value if engine else "Ollama"):
            named = set(FLAG.findall(" ".join((remedy.title, *remedy.steps))))
            wrong += [(rule.id, flag) for flag in sorted(named & foreign)]
    assert wrong == []


def test_each_engine_s_words_are_told_where_the_engine_is_not_known() -> None:
    remedies = (
        Remedy(title="Lower [vllm: `--a`][sglang: `--b`]", steps=("[vllm: x]",)),
        Remedy(title="Only here", engine="vllm"),
    )
    assert [(one.title, one.steps) for one in for_engine(remedies, None)] == [
        ("Lower `--a` (vLLM), `--b` (SGLang)", ("x (vLLM)",)),
        ("Only here (vLLM)", ()),
    ]
    assert [(one.title, one.steps) for one in for_engine(remedies, "sglang")] == [("Lower `--b`", ())]
    same = for_engine((Remedy(title="Leave out [vllm: `--a`][sglang: `--a`]"),), None)
    assert [one.title for one in same] == ["Leave out `--a`"]
    assert for_engine(remedies, "Ollama") == ()
    (plain,) = for_engine((Remedy(title="Free memory", steps=("lower [vllm: --a][sglang: --b]", "wait")),), "Ollama")
    assert plain.steps == ("wait",)


@pytest.mark.parametrize("engine", VERSIONED)
def test_each_flag_that_is_advised_is_in_the_newest_version(engine: EngineKind) -> None:
    newest = engine_flags._parsers()[engine].versions[-1]
    gone = []
    for rule in shipped():
        area = rule.id.partition(".")[0]
        if rule.engine in (None, engine) and (area not in ("vllm", "sglang") or area == engine):
            for remedy in for_engine(rule.remedies, engine.value):
                named = FLAG.findall(" ".join((remedy.title, *remedy.steps)))
                known = [flag for flag in named if flag in spec_names(engine)]
                gone += [(rule.id, flag) for flag in known if is_in(f"--{flag}", engine, newest) is False]
    assert gone == []


def test_no_command_holds_a_package_s_name_that_a_log_gave() -> None:
    """Whoever writes the log would choose what is installed."""
    install = re.compile(r"(?:pip|apt|apt-get|conda|uv)\s[^`\n]*install[^`\n]*\{\w+\}")
    texts = [(rule.id, text) for rule in shipped() for one in rule.remedies for text in (one.title, *one.steps)]
    assert [rule for rule, text in texts if install.search(text)] == []
