"""What `explain` says first of failing starts and a death of a real vLLM 0.32.0 (CPU), by the lines that tell."""

from __future__ import annotations

from pathlib import Path

from tests.table import over

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.findings import families
from sparktop.diagnose.logs.rule import shipped
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding

TESTS = Path(__file__).parents[3]
LOGS = {
    path.stem: path
    for folder in ("cases/engine_logs/vllm-0.32.0", "real/captures/vllm-0.32.0")
    for path in (TESTS / folder).glob("*.log")
}
QUIET = {"healthy", "served-and-stopped", "stopped-in-compile"}
TEMPORARY = ("host.no-temporary-directory", "a full disk, a read-only root or a user without rights", "--tmpfs /tmp")
CAUSES = {
    # `vllm serve` given twice, as the image's entrypoint and as its command.
    "serve-twice": ("cli.serve-twice", "twice"),
    "removed-flags": ("cli.removed-flag", "--swap-space 4 --cuda-graph-sizes 1 2"),
    # `kill -9` of the EngineCore under two requests; the API server exits with 0.
    "killcore": ("engine.died-serving", "engine core"),
    # tokenizer.json and config.json cut off; a --config file that is no YAML.
    "badtok": ("model.tokenizer-gives-nothing", "tokenizer"),
    "emptyconf": ("model.config-file-broken", "/models/emptyconf/config.json"),
    "badyaml": ("engine.last-words", "/models/bad.yaml"),
    # --port 70000, --max-num-seqs 0, a graph mode and a dtype that don't exist.
    "port70000": ("engine.last-words", "port must be 0-65535"),
    "seqs0": ("vllm.config-invalid", "Input should be greater than or equal to 1"),
    "cc": ("engine.last-words", "CUDAGraphMode"),
    "dtype": ("engine.last-words", "float7"),
    "core-killed": ("engine.died-serving", "engine core"),
    # --shm-size 1m; --read-only; a user without a right to /tmp.
    "shm-small": ("start.shared-memory-full", "160 MiB required, 1 MiB free", "--ipc=host"),
    "read-only-root": TEMPORARY,
    "no-right-to-temporary": TEMPORARY,
    "lora-missing": ("model.lora-missing", "/models/none", "--lora-modules"),
    "draft-missing": ("model.draft-path-wrong", "The draft model's", "--speculative-config"),
    "host-not-here": ("start.host-not-here", "--host", "--host 0.0.0.0"),
    "tokenizer-mode": ("model.tokenizer-unusable", "tokenizer", "Leave out `--tokenizer-mode`"),
    "config-missing": ("start.file-missing", "/models/none.yaml", "Correct the path"),
}
"""Rule, words of its title, and of its first remedy."""


def test_every_capture_has_its_cause() -> None:
    assert set(LOGS) == set(CAUSES) | QUIET
    assert not any(map(blocks, QUIET))


def blocks(name: str, before: str = "") -> list[list[Finding]]:
    explanation = Explanation(name, shipped())
    if before:
        explanation.feed(LOGS[before].read_bytes())
    explanation.feed(LOGS[name].read_bytes())
    return [family for family in families(explanation.finish()) if family[0].severity is Severity.CRITICAL]


@over("name, cause", CAUSES.items(), ids=CAUSES)
def test_the_cause_is_one_block(name: str, cause: tuple[str, ...]) -> None:
    (family,) = blocks(name)
    rule, word, *remedy = cause
    assert family[0].rule == rule
    assert word in family[0].title
    assert all(word in family[0].remedies[0].title for word in remedy)
    assert cause is not TEMPORARY or family[0].confidence is Confidence.SUSPECTED
    assert family[0].evidence[0].line is not None


@over("name", set(CAUSES) - {"badyaml"})  # that one is the end of a traceback alone
def test_a_start_that_fails_after_a_run_that_was_stopped_is_named_too(name: str) -> None:
    assert [family[0].rule for family in blocks(name, "served-and-stopped")] == [CAUSES[name][0]]
